/*
 * fuzz_journal: any bytes as the journal's folder, one or two segments. A start takes it or says why not, and a
 * request that comes then is kept: the next start finds it. A text is given out only with its checksum right. And
 * any bytes as what a journal keeps of a request: what is taken is spelled again and comes out the same.
 *
 * The first byte says where the second segment begins (0: there is none). The mutator sums records anew, else hardly a case
 * would get past the checksums.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/le.h"
#include "serve/idempotency_order.h"
#include "serve/journal.h"

#define NOW_MS  1700000000000
#define MAX_ANY 16 /* entries that are looked at */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size); /* libFuzzer's own */

static char folder[] = "/tmp/hearth-fuzz-journal-XXXXXX";
static struct event_base *base;
static clock_fake now;

static void must(bool ok)
{
    if (!ok) {
        abort();
    }
}

/* The disk's own time is of no interest. */
int fdatasync(int fd)
{
    return 0;
}

int fsync(int fd)
{
    return 0;
}

static void clear_folder(void)
{
    char path[128];
    for (unsigned i = 0; i < 8; i++) {
        snprintf(path, sizeof path, "%s/%016x.seg", folder, i);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/lock", folder);
    unlink(path);
}

static void remove_folder(void)
{
    clear_folder();
    rmdir(folder);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    must(mkdtemp(folder) != NULL);
    atexit(remove_folder);
    base = event_base_new();
    clock_fake_init(&now, 1000000000, NOW_MS);
    return 0;
}

static void put_segment(unsigned number, const uint8_t *data, size_t size)
{
    char path[128];
    uint8_t head[JOURNAL_SEGMENT_HEAD];
    snprintf(path, sizeof path, "%s/%016x.seg", folder, number);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    must(fd >= 0);
    journal_segment_put(number, head);
    if (size > 0 && data[0] != 0xff) { /* else its head is the input's too */
        must(write(fd, head, sizeof head) == (ssize_t)sizeof head);
    }
    must(write(fd, data, size) == (ssize_t)size);
    close(fd);
}

typedef struct heard {
    unsigned n;
    status st;
} heard;

static void on_written(void *ctx, status st)
{
    heard *h = ctx;
    h->n++;
    h->st = st;
}

static void on_text(void *ctx, status st, const char *text, size_t len)
{
    heard *h = ctx;
    h->n++;
    h->st = st;
    if (st == ST_OK && len > 0) {
        (void)hash64(text, len); /* all of it is there */
    }
}

static status wait_for(heard *h, unsigned n)
{
    while (h->n < n) {
        event_base_loop(base, EVLOOP_ONCE);
    }
    return h->st;
}

static journal *open_it(void)
{
    const journal_config cfg = {base, &now.src, folder, JOURNAL_MIN_BYTES};
    journal *j = NULL;
    err e;
    err_clear(&e);
    status st = journal_open(&cfg, &j, &e);
    must(st == ST_OK || (st == ST_BAD_FORMAT && e.msg[0] != '\0'));
    return st == ST_OK ? j : NULL;
}

static void look_at(journal *j)
{
    journal_counts c;
    heard h = {0};
    err e;
    size_t n = 0, n_unanswered = 0;
    journal_read_counts(j, &c);
    for (journal_entry *x = journal_unanswered(j, NULL); x; x = journal_unanswered(j, x)) {
        n_unanswered++;
        must(!x->answered && journal_find(j, x->owner, x->owner_len, x->name, x->name_len) == x);
        if (n++ < MAX_ANY) {
            x->held = &h;
            must(journal_read(j, x, on_text, &h, &e) == ST_OK && wait_for(&h, (unsigned)n) == ST_OK);
            x->held = NULL;
        }
    }
    must(n_unanswered == c.n_unanswered && c.n_unanswered <= c.n_entries);
}

static const char our_owner[] = "the fuzzer", our_name[] = "\377\001";

/* A request of our own: asked and answered. False: the input has one of that name. */
static bool add_one(journal *j)
{
    const journal_question q = {.owner = our_owner,
                                .owner_len = sizeof our_owner,
                                .name = our_name,
                                .name_len = sizeof our_name,
                                .text = "q",
                                .text_len = 1,
                                .created_ms = NOW_MS};
    heard h = {0};
    err e;
    journal_entry *x = journal_find(j, our_owner, sizeof our_owner, our_name, sizeof our_name);
    if (x) {
        return false;
    }
    status st = journal_ask(j, &q, &h, on_written, &h, &x, &e);
    must(st == ST_OK && wait_for(&h, 1) == ST_OK);
    must(journal_answer(j, x, 200, "a", 1, on_written, &h, &e) == ST_OK && wait_for(&h, 2) == ST_OK);
    x->held = NULL;
    return true;
}

static void try_folder(void)
{
    journal *j = open_it();
    if (!j) {
        return;
    }
    look_at(j);
    bool added = add_one(j);
    journal_close(j);
    j = open_it();
    must(j != NULL);
    look_at(j);
    const journal_entry *x = journal_find(j, our_owner, sizeof our_owner, our_name, sizeof our_name);
    must(!added || (x && x->answered));
    journal_close(j);
}

static void try_order(const char *text, size_t len)
{
    idempotency_order o, again;
    buf out = {0}, twice = {0};
    if (idempotency_order_get(text, len, &o) != ST_OK) {
        return;
    }
    must(o.seed > 0 && o.body + o.body_len == text + len);
    must(idempotency_order_put(&out, &o) == ST_OK);
    must(idempotency_order_get(out.data, out.len, &again) == ST_OK);
    must(again.seed == o.seed && again.numerics == o.numerics && again.sampling.said == o.sampling.said);
    must(again.body_len == o.body_len && (o.session == NULL) == (again.session == NULL));
    must(idempotency_order_put(&twice, &again) == ST_OK);
    must(twice.len == out.len && memcmp(twice.data, out.data, out.len) == 0);
    buf_release(&out);
    buf_release(&twice);
    idempotency_order_release(&o);
    idempotency_order_release(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) {
        return 0;
    }
    size_t first = size - 1, cut = (size_t)data[0] * 4;
    if (cut > 0 && cut < first) {
        first = cut;
    }
    put_segment(1, data + 1, first);
    if (first < size - 1) {
        put_segment(2, data + 1 + first, size - 1 - first);
    }
    try_folder();
    clear_folder();
    try_order((const char *)data + 1, size - 1);
    return 0;
}

/* From the start on, as long as there are whole records. */
static void sum_records(uint8_t *data, size_t size)
{
    for (size_t at = 1; at + JOURNAL_RECORD_HEAD <= size;) {
        uint8_t *head = data + at;
        uint32_t n = le32_get(head + 4);
        if (n > size - at - JOURNAL_RECORD_HEAD) {
            return;
        }
        uint64_t sum = hash64(head + JOURNAL_RECORD_HEAD, n);
        memcpy(head + 16, &sum, sizeof sum);
        sum = hash64(head, 24);
        memcpy(head + 24, &sum, sizeof sum);
        at += JOURNAL_RECORD_HEAD + n;
    }
}

/* A good record, or nothing if there is no room. */
static size_t add_record(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
    static const char *const names[] = {"a", "b", ""};
    buf out = {0};
    const char *name = names[seed / 4 % 3];
    const journal_record r = {.kind = (journal_kind)(1 + seed % 4),
                              .serial = seed / 12 % 5,
                              .created_ms = NOW_MS - (seed / 60 % 2 ? 0 : 25 * 3600 * 1000),
                              .http_status = 200,
                              .owner = "o",
                              .owner_len = 1,
                              .name = name,
                              .name_len = strlen(name),
                              .text = "text",
                              .text_len = seed / 120 % 5};
    must(journal_record_put(&out, &r) == ST_OK);
    if (size == 0) {
        data[size++] = 0;
    }
    if (out.len <= max_size - size) {
        memcpy(data + size, out.data, out.len);
        size += out.len;
    }
    buf_release(&out);
    return size;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed)
{
    if (seed % 4 == 0 && max_size > 1) {
        return add_record(data, size, max_size, seed / 4);
    }
    size_t n = LLVMFuzzerMutate(data, size, max_size);
    if (seed % 4 != 1) {
        sum_records(data, n);
    }
    return n;
}
