/*
 * The journal over a folder of its own: what a start finds after any cut and any flipped byte, what a power cut leaves, what
 * has to go when room or time is over. This program defines the system calls by which the journal writes, so that they fail
 * when a test wants it, and so that it is known what was synced.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/test_main.h"
#include "serve/journal.h"

#define START_MS   1700000000000
#define MAX_SYNCED 64

/*
 * System calls. The journal's thread calls them; the test looks when nothing is under way.
 */
static int fail_writes, fail_syncs; /* so many are still to fail; -1 = all */
static struct {
    ino_t ino;
    off_t size;
} synced[MAX_SYNCED];
static size_t n_synced;

static bool fails(int *left)
{
    if (*left > 0) {
        (*left)--;
        return true;
    }
    return *left < 0;
}

int fdatasync(int fd)
{
    struct stat s;
    if (fails(&fail_syncs)) {
        errno = EIO;
        return -1;
    }
    size_t i = 0;
    assert_int_equal(fstat(fd, &s), 0);
    while (i < n_synced && synced[i].ino != s.st_ino) {
        i++;
    }
    assert_true(i < MAX_SYNCED);
    n_synced += i == n_synced;
    synced[i].ino = s.st_ino;
    synced[i].size = s.st_size;
    return 0; /* the disk's own time would be most of that of this program */
}

int fsync(int fd)
{
    return 0;
}

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER; /* held: nothing is read */

/* In the C library their names are pread64 and pwrite64: files may be long. */
ssize_t pwrite(int fd, const void *data, size_t n, off_t at)
{
    static ssize_t (*real)(int, const void *, size_t, off64_t);
    if (!real) {
        real = (ssize_t(*)(int, const void *, size_t, off64_t))(uintptr_t)dlsym(RTLD_NEXT, "pwrite64");
    }
    if (fails(&fail_writes)) {
        if (n > 8) { /* a part of it is there */
            (void)!real(fd, data, n / 2, at);
        }
        errno = ENOSPC;
        return -1;
    }
    return real(fd, data, n, at);
}

ssize_t pread(int fd, void *data, size_t n, off_t at)
{
    static ssize_t (*real)(int, void *, size_t, off64_t);
    if (!real) {
        real = (ssize_t(*)(int, void *, size_t, off64_t))(uintptr_t)dlsym(RTLD_NEXT, "pread64");
    }
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
    return real(fd, data, n, at);
}

/*
 * A folder.
 */
typedef struct bench {
    char dir[64];
    struct event_base *base;
    clock_fake clock;
    uint64_t max_bytes;
    journal *j;
    unsigned n_done; /* callbacks */
    status last;
    buf text; /* what was read */
} bench;

static void path_of(const char *dir, const char *name, char out[512])
{
    snprintf(out, 512, "%s/%s", dir, name);
}

static void each_file(const char *dir, void (*fn)(const char *path, void *ctx), void *ctx)
{
    DIR *d = opendir(dir);
    char path[512];
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] != '.') {
            path_of(dir, e->d_name, path);
            fn(path, ctx);
        }
    }
    closedir(d);
}

static void remove_file(const char *path, void *ctx)
{
    unlink(path);
}

static void remove_folder(const char *dir)
{
    each_file(dir, remove_file, NULL);
    assert_int_equal(rmdir(dir), 0);
}

static void add_size(const char *path, void *ctx)
{
    struct stat s;
    assert_int_equal(stat(path, &s), 0);
    *(uint64_t *)ctx += (uint64_t)s.st_size;
}

static uint64_t bytes_in(const char *dir)
{
    uint64_t n = 0;
    each_file(dir, add_size, &n);
    return n;
}

static void make_bench(bench *b, uint64_t max_bytes)
{
    memset(b, 0, sizeof *b);
    snprintf(b->dir, sizeof b->dir, "/tmp/hearth-journal-XXXXXX");
    assert_non_null(mkdtemp(b->dir));
    clock_fake_init(&b->clock, 1000000000, START_MS);
    b->max_bytes = max_bytes;
    b->base = event_base_new();
    fail_writes = fail_syncs = 0;
    n_synced = 0;
}

static status try_open(bench *b, err *e)
{
    const journal_config cfg = {b->base, &b->clock.src, b->dir, b->max_bytes};
    return journal_open(&cfg, &b->j, e);
}

static void open_journal(bench *b)
{
    err e;
    if (try_open(b, &e) != ST_OK) {
        fail_msg("%s", e.msg);
    }
}

static void close_journal(bench *b)
{
    journal_close(b->j);
    b->j = NULL;
}

static void reopen(bench *b)
{
    close_journal(b);
    open_journal(b);
}

static void free_bench(bench *b)
{
    journal_close(b->j);
    event_base_free(b->base);
    remove_folder(b->dir);
    buf_release(&b->text);
}

/*
 * What a user does.
 */
static void on_written(void *ctx, status st)
{
    bench *b = ctx;
    b->n_done++;
    b->last = st;
}

static void on_text(void *ctx, status st, const char *text, size_t len)
{
    bench *b = ctx;
    b->n_done++;
    b->last = st;
    buf_reset(&b->text);
    assert_int_equal(buf_append(&b->text, text, len), ST_OK);
}

/* Until the next callback. */
static status wait_for(bench *b, unsigned before)
{
    while (b->n_done == before) {
        assert_true(event_base_loop(b->base, EVLOOP_ONCE) >= 0);
    }
    assert_int_equal(b->n_done, before + 1);
    return b->last;
}

static void on_heard(void *ctx, status st)
{
    *(status *)ctx = st;
}

static journal_entry *find(bench *b, const char *name)
{
    return journal_find(b->j, "ann", 3, name, strlen(name));
}

static status ask_it(bench *b, const char *name, const char *text, size_t len, journal_entry **out, err *e)
{
    const journal_question q = {.owner = "ann",
                                .owner_len = 3,
                                .name = name,
                                .name_len = strlen(name),
                                .text = text,
                                .text_len = len,
                                .digest = {7, 8, (uint8_t)name[0]},
                                .created_ms = clock_wall_ms(&b->clock.src)};
    unsigned before = b->n_done;
    status st = journal_ask(b->j, &q, b, on_written, b, out, e);
    return st == ST_OK ? wait_for(b, before) : st;
}

static journal_entry *ask(bench *b, const char *name, const char *text)
{
    err e;
    journal_entry *entry = NULL;
    if (ask_it(b, name, text, strlen(text), &entry, &e) != ST_OK) {
        fail_msg("%s: %s", name, e.msg);
    }
    assert_ptr_equal(find(b, name), entry);
    return entry;
}

static status answer_it(bench *b, journal_entry *entry, const char *text, size_t len, err *e)
{
    unsigned before = b->n_done;
    status st = journal_answer(b->j, entry, 200, text, len, on_written, b, e);
    st = st == ST_OK ? wait_for(b, before) : st;
    entry->held = NULL;
    return st;
}

static void answer(bench *b, journal_entry *entry, const char *text)
{
    err e;
    assert_int_equal(answer_it(b, entry, text, strlen(text), &e), ST_OK);
    assert_true(entry->answered);
}

static status read_it(bench *b, journal_entry *entry)
{
    err e;
    unsigned before = b->n_done;
    entry->held = b;
    assert_int_equal(journal_read(b->j, entry, on_text, b, &e), ST_OK);
    status st = wait_for(b, before);
    entry->held = NULL;
    return st;
}

/* '-' = unknown, 'q' = asked, 'a' = answered, each with its text. */
static char state_of(bench *b, const char *name)
{
    char want[64];
    journal_entry *e = find(b, name);
    if (!e) {
        return '-';
    }
    assert_int_equal(e->digest[2], name[0]);
    assert_int_equal(read_it(b, e), ST_OK);
    snprintf(want, sizeof want, e->answered ? "answer of %s" : "question of %s", name);
    assert_string_equal(buf_str(&b->text), want);
    return e->answered ? 'a' : 'q';
}

/* Two names to each letter of `does`: q asks, a answers, d drops, b begins again. */
static void act(bench *b, char what, const char *name)
{
    char text[64];
    journal_entry *e = find(b, name);
    snprintf(text, sizeof text, what == 'q' ? "question of %s" : "answer of %s", name);
    if (what == 'q') {
        ask(b, name, text);
    } else if (what == 'a') {
        e->held = b;
        answer(b, e, text);
    } else if (what == 'd') {
        journal_drop(b->j, e);
    } else {
        journal_begun(b->j, e);
    }
}

/* One segment in which everything happens once. */
static const struct {
    char what, name[2];
} script[] = {{'q', "a"}, {'q', "b"}, {'a', "a"}, {'q', "c"}, {'b', "b"},
              {'d', "c"}, {'q', "c"}, {'a', "b"}, {'q', "d"}};
#define N_SCRIPT N_OF(script)

/* What is true after the first n of them. */
static char expected(size_t n, char name)
{
    char state = '-';
    for (size_t i = 0; i < n; i++) {
        if (script[i].name[0] == name && script[i].what != 'b') {
            state = script[i].what == 'd' ? '-' : script[i].what;
        }
    }
    return state;
}

static void copy_file(const char *from, const char *to, off_t most)
{
    char data[4096];
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(in >= 0 && out >= 0);
    for (ssize_t n;
         most > 0 && (n = read(in, data, (size_t)most < sizeof data ? (size_t)most : sizeof data)) > 0;) {
        assert_int_equal(write(out, data, (size_t)n), n);
        most -= n;
    }
    close(in);
    close(out);
}

static buf read_file(const char *path)
{
    buf out = {0};
    char data[4096];
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    for (ssize_t n; (n = read(fd, data, sizeof data)) > 0;) {
        assert_int_equal(buf_append(&out, data, (size_t)n), ST_OK);
    }
    close(fd);
    return out;
}

static void write_file(const char *path, const char *data, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, n), (ssize_t)n);
    close(fd);
}

#define FIRST "0000000000000001.seg"

/* The file of the script, and where each of its records ends. */
static buf script_file(size_t ends[N_SCRIPT])
{
    bench b;
    char path[512];
    make_bench(&b, JOURNAL_MIN_BYTES);
    path_of(b.dir, FIRST, path);
    open_journal(&b);
    for (size_t i = 0; i < N_SCRIPT; i++) {
        act(&b, script[i].what, script[i].name);
        journal_counts counts;
        journal_read_counts(b.j, &counts);
        ends[i] = counts.bytes;
    }
    close_journal(&b);
    buf file = read_file(path);
    assert_int_equal(file.len, ends[N_SCRIPT - 1]);
    free_bench(&b);
    return file;
}

static void check_states(bench *b, size_t n)
{
    for (char name = 'a'; name <= 'd'; name++) {
        const char text[2] = {name, 0};
        char got = state_of(b, text), want = expected(n, name);
        if (got != want) {
            fail_msg("%s after %zu records is %c, not %c", text, n, got, want);
        }
    }
}

static void test_round_trip(void **state)
{
    size_t ends[N_SCRIPT];
    buf file = script_file(ends);
    bench b;
    char path[512];
    make_bench(&b, JOURNAL_MIN_BYTES);
    path_of(b.dir, FIRST, path);
    write_file(path, file.data, file.len);
    open_journal(&b);
    check_states(&b, N_SCRIPT);
    journal_counts counts;
    journal_read_counts(b.j, &counts);
    assert_true(counts.is_on);
    assert_int_equal(counts.n_entries, 4);
    assert_int_equal(counts.n_unanswered, 2);
    assert_int_equal(counts.bytes, file.len);
    assert_int_equal(counts.n_bad, 0);
    assert_int_equal(find(&b, "a")->http_status, 200);
    assert_int_equal(find(&b, "a")->created_ms, START_MS);
    assert_true(find(&b, "a")->found);
    assert_string_equal(journal_unanswered(b.j, NULL)->name, "c"); /* the oldest one */
    assert_null(journal_unanswered(b.j, journal_unanswered(b.j, find(&b, "c"))));
    assert_null(journal_find(b.j, "bob", 3, "a", 1)); /* somebody else's */
    assert_null(journal_find(b.j, "", 0, "anna", 4));
    journal_begun(b.j, find(&b, "d"));
    reopen(&b);
    journal_begun(b.j, find(&b, "d"));
    reopen(&b);
    assert_int_equal(find(&b, "d")->n_begun, 2);
    assert_int_equal(find(&b, "c")->n_begun, 0);
    free_bench(&b);
    buf_release(&file);
}

/* What is whole counts; and the journal goes on behind it. */
static void test_every_length(void **state)
{
    size_t ends[N_SCRIPT];
    buf file = script_file(ends);
    for (size_t len = 0; len <= file.len; len++) {
        bench b;
        char path[512];
        size_t n = 0;
        make_bench(&b, JOURNAL_MIN_BYTES);
        path_of(b.dir, FIRST, path);
        write_file(path, file.data, len);
        while (n < N_SCRIPT && ends[n] <= len) {
            n++;
        }
        open_journal(&b);
        check_states(&b, n);
        journal_counts counts;
        journal_read_counts(b.j, &counts);
        bool whole = len == JOURNAL_SEGMENT_HEAD || len == 0 || (n > 0 && ends[n - 1] == len);
        assert_int_equal(counts.n_bad, whole ? 0 : 1);
        act(&b, 'q', "z");
        reopen(&b);
        check_states(&b, n);
        assert_int_equal(state_of(&b, "z"), 'q');
        free_bench(&b);
    }
    buf_release(&file);
}

/* Records before the flipped byte are there. Behind it too, unless it stands in what says how long a record is. */
static void test_every_byte(void **state)
{
    size_t ends[N_SCRIPT];
    buf file = script_file(ends);
    for (size_t at = 0; at < file.len; at++) {
        bench b;
        char path[512];
        size_t n = 0;
        make_bench(&b, JOURNAL_MIN_BYTES);
        path_of(b.dir, FIRST, path);
        file.data[at] ^= (char)(1 << at % 8);
        write_file(path, file.data, file.len);
        file.data[at] ^= (char)(1 << at % 8);
        while (n < N_SCRIPT && ends[n] <= at) {
            n++;
        }
        err e;
        if (try_open(&b, &e) != ST_OK) { /* only where it says of which version it is */
            assert_int_equal(at, 7);
            free_bench(&b);
            continue;
        }
        journal_counts counts;
        journal_read_counts(b.j, &counts);
        assert_int_equal(counts.n_bad, 1);
        size_t begin = n == 0 ? JOURNAL_SEGMENT_HEAD : ends[n - 1];
        if (at < JOURNAL_SEGMENT_HEAD) {
            check_states(&b, 0);
        } else if (at < begin + JOURNAL_RECORD_HEAD) {
            check_states(&b, n);
        } else {
            for (char name = 'a'; name <= 'd'; name++) {
                const char text[2] = {name, 0};
                if (script[n].name[0] != name) {
                    assert_int_equal(state_of(&b, text), expected(N_SCRIPT, name));
                } else {
                    state_of(&b, text); /* its text is right */
                }
            }
        }
        free_bench(&b);
    }
    buf_release(&file);
}

static void test_record(void **state)
{
    buf out = {0};
    const journal_record r = {.kind = JOURNAL_ANSWERED,
                              .serial = 1ull << 60,
                              .created_ms = -5,
                              .http_status = 409,
                              .digest = {1, [31] = 9},
                              .owner = "",
                              .name = "n\0m",
                              .name_len = 3,
                              .text = "text",
                              .text_len = 4};
    journal_record got;
    size_t n_body;
    assert_int_equal(journal_record_put(&out, &r), ST_OK);
    assert_int_equal(out.len, journal_record_size(0, 3, 4));
    const uint8_t *head = (const uint8_t *)out.data;
    assert_true(journal_head_get(head, &n_body));
    assert_int_equal(n_body, out.len - JOURNAL_RECORD_HEAD);
    assert_true(journal_record_get(head, out.data + JOURNAL_RECORD_HEAD, n_body, &got));
    assert_int_equal(got.kind, r.kind);
    assert_true(got.serial == r.serial);
    assert_int_equal(got.created_ms, -5);
    assert_int_equal(got.http_status, 409);
    assert_memory_equal(got.digest, r.digest, sizeof r.digest);
    assert_int_equal(got.owner_len, 0);
    assert_int_equal(got.name_len, 3);
    assert_memory_equal(got.name, "n\0m", 3);
    assert_int_equal(got.text_len, 4);
    assert_memory_equal(got.text, "text", 4);
    assert_int_equal(journal_record_size(256, 1, 1), 0);
    assert_int_equal(journal_record_size(1, 256, 1), 0);
    assert_int_equal(journal_record_size(1, 1, JOURNAL_MAX_BODY), 0);
    const journal_record large = {.kind = JOURNAL_ASKED, .text = "", .text_len = JOURNAL_MAX_BODY};
    assert_int_equal(journal_record_put(&out, &large), ST_CAPACITY);
    buf_release(&out);
}

/* A name that is asked again after it was forgotten: the later one counts, also if a copy of the earlier one follows. */
static void test_later_counts(void **state)
{
    bench b;
    make_bench(&b, JOURNAL_MIN_BYTES);
    open_journal(&b);
    act(&b, 'q', "a");
    act(&b, 'a', "a");
    b.clock.wall_ms += JOURNAL_TTL_MS;
    act(&b, 'q', "a");
    assert_false(find(&b, "a")->answered);
    reopen(&b);
    assert_int_equal(state_of(&b, "a"), 'q');
    assert_int_equal(find(&b, "a")->created_ms, START_MS + JOURNAL_TTL_MS);
    free_bench(&b);
}

static void test_time(void **state)
{
    bench b;
    make_bench(&b, JOURNAL_MIN_BYTES);
    open_journal(&b);
    act(&b, 'q', "a");
    act(&b, 'a', "a");
    journal_entry *q = ask(&b, "b", "question of b"); /* held */
    b.clock.wall_ms += JOURNAL_TTL_MS - 1;
    assert_int_equal(state_of(&b, "a"), 'a');
    reopen(&b);
    assert_int_equal(state_of(&b, "a"), 'a');
    q = find(&b, "b");
    q->held = &b;
    b.clock.wall_ms += 1;
    assert_null(find(&b, "a"));
    assert_ptr_equal(find(&b, "b"), q);
    q->held = NULL;
    assert_null(find(&b, "b"));
    reopen(&b);
    assert_null(find(&b, "a"));
    act(&b, 'q', "c");
    act(&b, 'q', "d");
    find(&b, "c")->held = find(&b, "d")->held = NULL;
    b.clock.wall_ms -= 3 * JOURNAL_TTL_MS; /* a clock that is put back keeps them */
    assert_int_equal(state_of(&b, "c"), 'q');
    b.clock.wall_ms += 5 * JOURNAL_TTL_MS;
    journal_tick(b.j);
    journal_counts counts;
    journal_read_counts(b.j, &counts);
    assert_int_equal(counts.n_entries, 0);
    free_bench(&b);
}

/* The oldest answers go, questions stay, and files take no more than they may. */
static void test_room(void **state)
{
    enum { N = 400, BYTES = 16000 };
    bench b;
    err e;
    char name[16], *text = mem_alloc(BYTES);
    memset(text, 'x', BYTES);
    make_bench(&b, JOURNAL_MIN_BYTES);
    open_journal(&b);
    act(&b, 'q', "stays");
    find(&b, "stays")->held = NULL;
    for (int i = 0; i < N; i++) {
        journal_entry *entry;
        snprintf(name, sizeof name, "k%d", i);
        assert_int_equal(ask_it(&b, name, "q", 1, &entry, &e), ST_OK);
        assert_int_equal(answer_it(&b, entry, text, BYTES, &e), ST_OK);
        assert_true(bytes_in(b.dir) <= JOURNAL_MIN_BYTES + JOURNAL_MIN_BYTES / 4);
    }
    for (int round = 0; round < 2; round++) {
        int first = 0;
        journal_counts counts;
        journal_read_counts(b.j, &counts);
        assert_int_equal(counts.n_bad, 0);
        assert_true(counts.bytes <= JOURNAL_MIN_BYTES + JOURNAL_MIN_BYTES / 4);
        assert_int_equal(state_of(&b, "stays"), 'q');
        for (int i = 0; i < N; i++) {
            snprintf(name, sizeof name, "k%d", i);
            journal_entry *entry = find(&b, name);
            if (!entry) {
                assert_int_equal(first, i); /* no gap */
                first = i + 1;
            } else {
                assert_int_equal(read_it(&b, entry), ST_OK);
                assert_int_equal(b.text.len, BYTES);
            }
        }
        assert_true(first > N / 2 && first < N - 25); /* half of a MiB holds 32 */
        reopen(&b);
    }
    mem_free(text);
    free_bench(&b);
}

/* Nothing that was promised goes: then there is no room. */
static void test_no_room(void **state)
{
    enum { BYTES = 100000 };
    bench b;
    err e;
    journal_entry *entry = NULL;
    char name[16], *text = mem_calloc(1, 4 * BYTES);
    int n = 0;
    make_bench(&b, JOURNAL_MIN_BYTES);
    open_journal(&b);
    assert_int_equal(ask_it(&b, "large", text, 3 * BYTES, &entry, &e), ST_CAPACITY);
    for (status st = ST_OK; st == ST_OK; n++) {
        snprintf(name, sizeof name, "k%d", n);
        st = ask_it(&b, name, text, BYTES, &entry, &e);
        assert_true(st == ST_OK || st == ST_FULL);
    }
    assert_int_equal(n, 6); /* five times 100 kB are less than half of a MiB */
    reopen(&b);
    for (int i = 0; i < 5; i++) {
        snprintf(name, sizeof name, "k%d", i);
        entry = find(&b, name);
        entry->held = &b;
        assert_false(entry->answered);
    }
    assert_int_equal(answer_it(&b, entry, text, BYTES, &e), ST_FULL);
    entry->held = &b;
    assert_int_equal(answer_it(&b, entry, text, 10, &e), ST_OK);
    assert_int_equal(ask_it(&b, "more", text, BYTES / 2, &entry, &e), ST_OK);
    mem_free(text);
    free_bench(&b);
}

/* As after a power cut that kept no more than what was synced. */
typedef struct cutter {
    const char *to;
} cutter;

static void cut_file(const char *path, void *ctx)
{
    const cutter *c = ctx;
    struct stat s;
    char to[512];
    off_t size = 0;
    assert_int_equal(stat(path, &s), 0);
    for (size_t i = 0; i < n_synced; i++) {
        size = synced[i].ino == s.st_ino ? synced[i].size : size;
    }
    path_of(c->to, strrchr(path, '/') + 1, to);
    copy_file(path, to, size);
}

/* Returns the number of files of b that were synced, to be put back when `after` is done with. */
static size_t open_after_cut(bench *b, bench *after)
{
    size_t n = n_synced;
    memset(after, 0, sizeof *after);
    snprintf(after->dir, sizeof after->dir, "/tmp/hearth-journal-XXXXXX");
    assert_non_null(mkdtemp(after->dir));
    each_file(b->dir, cut_file, &(cutter){after->dir});
    clock_fake_init(&after->clock, 1, START_MS);
    after->base = event_base_new();
    after->max_bytes = b->max_bytes;
    open_journal(after);
    return n;
}

/* Of each request: its question is nowhere behind its answer or its end, where a later start would find it alone. */
static void check_order(const bench *b)
{
    enum { MAX_SERIAL = 4096, MAX_SEGMENT = 256 };
    static bool over[MAX_SERIAL];
    memset(over, 0, sizeof over);
    for (unsigned segment = 1; segment < MAX_SEGMENT; segment++) {
        char path[512], name[32];
        size_t n_body;
        snprintf(name, sizeof name, "%016x.seg", segment);
        path_of(b->dir, name, path);
        if (access(path, F_OK) != 0) {
            continue;
        }
        buf file = read_file(path);
        for (size_t at = JOURNAL_SEGMENT_HEAD; at + JOURNAL_RECORD_HEAD <= file.len;
             at += JOURNAL_RECORD_HEAD + n_body) {
            journal_record r;
            const uint8_t *head = (const uint8_t *)file.data + at;
            assert_true(journal_head_get(head, &n_body));
            assert_true(journal_record_get(head, file.data + at + JOURNAL_RECORD_HEAD, n_body, &r));
            assert_true(r.serial < MAX_SERIAL);
            assert_false(r.kind == JOURNAL_ASKED && over[r.serial]);
            over[r.serial] = over[r.serial] || (r.serial > 0 && r.kind >= JOURNAL_ANSWERED);
        }
        buf_release(&file);
    }
}

/* A question that waits for long is copied from segment to segment, whole, and dropped it stays dropped; the order in
 * which they came stays too. */
static void test_moved(void **state)
{
    bench b, after;
    err e;
    char *text = mem_calloc(1, 60000);
    make_bench(&b, JOURNAL_MIN_BYTES);
    open_journal(&b);
    act(&b, 'q', "old");
    act(&b, 'q', "gone");
    act(&b, 'b', "old");
    journal_place at = find(&b, "old")->place;
    for (int i = 0; i < 60; i++) {
        journal_entry *entry;
        char name[16];
        snprintf(name, sizeof name, "k%d", i);
        if (ask_it(&b, name, text, 60000, &entry, &e) != ST_OK) {
            fail_msg("%d: %s", i, e.msg);
        }
        journal_drop(b.j, entry);
        if (i == 40) {
            act(&b, 'd', "gone");
        }
        if (i == 5) {
            act(&b, 'q', "young");
        }
        for (int k = 0; k < 4; k++) { /* a move, and what follows it, is over */
            assert_int_equal(state_of(&b, "old"), 'q');
        }
        size_t n = open_after_cut(&b, &after);
        assert_int_equal(state_of(&after, "old"), 'q');
        free_bench(&after);
        n_synced = n;
        assert_true(i < 20 || find(&b, "old")->place.segment > at.segment);
        if (i == 20) {
            assert_true(find(&b, "young")->place.segment < find(&b, "old")->place.segment);
            n = open_after_cut(&b, &after);
            assert_string_equal(journal_unanswered(after.j, NULL)->name, "old");
            free_bench(&after);
            n_synced = n;
        }
    }
    check_order(&b);
    assert_true(find(&b, "old")->place.segment > at.segment + 10);
    assert_int_equal(state_of(&b, "old"), 'q');
    reopen(&b);
    journal_counts counts;
    journal_read_counts(b.j, &counts);
    assert_int_equal(counts.n_entries, 2);
    assert_int_equal(state_of(&b, "old"), 'q');
    act(&b, 'a', "old");
    reopen(&b);
    assert_int_equal(state_of(&b, "old"), 'a');
    mem_free(text);
    free_bench(&b);
}

/* An answer is on its way while the segment of its question is to go: the question stays there until that is decided. */
static void test_moved_meanwhile(void **state)
{
    enum { BYTES = 60000 };
    bench b;
    err e;
    char *text = mem_calloc(1, BYTES);
    make_bench(&b, JOURNAL_MIN_BYTES);
    open_journal(&b);
    act(&b, 'q', "old");
    journal_counts counts;
    for (int i = 0;; i++) {
        journal_entry *entry;
        char name[16];
        journal_read_counts(b.j, &counts);
        if (counts.bytes + BYTES + 2000 > b.max_bytes) {
            break;
        }
        snprintf(name, sizeof name, "k%d", i);
        assert_int_equal(ask_it(&b, name, text, BYTES, &entry, &e), ST_OK);
        journal_drop(b.j, entry);
    }
    unsigned before = b.n_done;
    journal_entry *entry, *old = find(&b, "old");
    const journal_question q = {.owner = "x",
                                .owner_len = 1,
                                .name = "y",
                                .name_len = 1,
                                .text = text,
                                .text_len = BYTES,
                                .created_ms = START_MS};
    assert_int_equal(old->place.segment, 1);
    assert_int_equal(journal_answer(b.j, old, 200, "answer of old", 13, on_written, &b, &e), ST_OK);
    assert_int_equal(journal_ask(b.j, &q, &b, on_written, &b, &entry, &e), ST_OK); /* now it is too much */
    journal_tick(b.j);
    while (b.n_done < before + 2) {
        event_base_loop(b.base, EVLOOP_ONCE);
    }
    old->held = NULL;
    journal_drop(b.j, entry);
    for (int i = 0; i < 5; i++) {
        char name[16];
        snprintf(name, sizeof name, "m%d", i);
        assert_int_equal(ask_it(&b, name, text, BYTES, &entry, &e), ST_OK);
        journal_drop(b.j, entry);
    }
    close_journal(&b);
    check_order(&b);
    open_journal(&b);
    assert_int_equal(state_of(&b, "old"), 'a');
    mem_free(text);
    free_bench(&b);
}

static void put_record(buf *file, journal_kind kind, uint64_t serial, const char *text)
{
    const journal_record r = {.kind = kind,
                              .serial = serial,
                              .created_ms = START_MS,
                              .digest = {0, 0, 'a'},
                              .owner = "ann",
                              .owner_len = 3,
                              .name = "a",
                              .name_len = 1,
                              .text = text,
                              .text_len = strlen(text)};
    assert_int_equal(journal_record_put(file, &r), ST_OK);
}

/* Records in any order: what is over is over. */
static void test_any_order(void **state)
{
    static const char q[] = "question of a", a[] = "answer of a";
    static const struct {
        struct {
            journal_kind kind;
            uint64_t serial;
        } records[4];
        char want;
    } rows[] = {{{{JOURNAL_ANSWERED, 1}, {JOURNAL_ASKED, 1}}, 'a'},
                {{{JOURNAL_ASKED, 2}, {JOURNAL_ANSWERED, 1}}, 'q'},
                {{{JOURNAL_ASKED, 2}, {JOURNAL_DROPPED, 1}}, 'q'},
                {{{JOURNAL_ANSWERED, 1}, {JOURNAL_ASKED, 2}}, 'q'},
                {{{JOURNAL_ANSWERED, 1}, {JOURNAL_ASKED, 2}, {JOURNAL_DROPPED, 2}}, '-'},
                {{{JOURNAL_ANSWERED, 1}, {JOURNAL_ANSWERED, 1}}, 'a'},
                {{{JOURNAL_ASKED, 1}, {JOURNAL_DROPPED, 1}, {JOURNAL_BEGUN, 1}}, '-'}};
    for (size_t i = 0; i < N_OF(rows); i++) {
        bench b;
        buf file = {0};
        char path[512];
        uint8_t head[JOURNAL_SEGMENT_HEAD];
        make_bench(&b, JOURNAL_MIN_BYTES);
        journal_segment_put(1, head);
        assert_int_equal(buf_append(&file, head, sizeof head), ST_OK);
        for (size_t k = 0; k < 4 && rows[i].records[k].kind; k++) {
            journal_kind kind = rows[i].records[k].kind;
            put_record(&file, kind, rows[i].records[k].serial,
                       kind == JOURNAL_ASKED      ? q
                       : kind == JOURNAL_ANSWERED ? a
                                                  : "");
        }
        path_of(b.dir, FIRST, path);
        write_file(path, file.data, file.len);
        open_journal(&b);
        assert_int_equal(state_of(&b, "a"), rows[i].want);
        free_bench(&b);
        buf_release(&file);
    }
}

/* What stood behind a bad head does not come back when something is written over that. */
static void test_cut_for_good(void **state)
{
    size_t ends[N_SCRIPT];
    buf file = script_file(ends);
    bench b;
    char path[512];
    make_bench(&b, JOURNAL_MIN_BYTES);
    path_of(b.dir, FIRST, path);
    file.data[ends[0]] ^= 1; /* "b" is asked there */
    write_file(path, file.data, file.len);
    open_journal(&b);
    check_states(&b, 1);
    act(&b, 'q', "z"); /* as long as that */
    reopen(&b);
    check_states(&b, 1);
    assert_int_equal(state_of(&b, "z"), 'q');
    free_bench(&b);
    buf_release(&file);
}

/* A file that somebody has removed costs what was in it, and nothing else. */
static void test_lost_file(void **state)
{
    bench b;
    err e;
    char path[512], *text = mem_calloc(1, 60000);
    make_bench(&b, JOURNAL_MIN_BYTES);
    open_journal(&b);
    act(&b, 'q', "lost");
    act(&b, 'q', "also");
    find(&b, "lost")->held = find(&b, "also")->held = NULL;
    path_of(b.dir, FIRST, path);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(read_it(&b, find(&b, "also")), ST_BAD_FORMAT);
    for (int i = 0; i < 40; i++) {
        journal_entry *entry;
        char name[16];
        snprintf(name, sizeof name, "k%d", i);
        assert_int_equal(ask_it(&b, name, text, 60000, &entry, &e), ST_OK);
        journal_drop(b.j, entry);
    }
    assert_null(find(&b, "lost"));
    act(&b, 'q', "new");
    reopen(&b);
    assert_int_equal(state_of(&b, "new"), 'q');
    journal_counts counts;
    journal_read_counts(b.j, &counts);
    assert_int_equal(counts.n_entries, 1);
    assert_int_equal(counts.n_bad, 0); /* what stands for the lost ones is no damage */
    mem_free(text);
    free_bench(&b);
}

/* What the disk does not take is not promised; one try in ten seconds; what was kept is there. */
static void test_disk_full(void **state)
{
    bench b;
    err e;
    journal_entry *entry = NULL;
    make_bench(&b, JOURNAL_MIN_BYTES);
    open_journal(&b);
    act(&b, 'q', "a");
    act(&b, 'a', "a");
    act(&b, 'q', "b");
    fail_writes = -1;
    assert_int_equal(ask_it(&b, "c", "x", 1, &entry, &e), ST_IO); /* tried */
    assert_null(find(&b, "c"));
    journal_counts counts;
    journal_read_counts(b.j, &counts);
    assert_false(counts.is_on);
    fail_writes = 0;
    assert_int_equal(ask_it(&b, "c", "x", 1, &entry, &e), ST_IO); /* not tried */
    assert_int_equal(answer_it(&b, find(&b, "b"), "answer of b", 11, &e), ST_IO);
    assert_int_equal(state_of(&b, "a"), 'a');
    assert_int_equal(state_of(&b, "b"), 'q');
    clock_fake_advance_ms(&b.clock, JOURNAL_RETRY_MS);
    fail_writes = 1;
    const journal_question q = {.owner = "", .name = "two", .name_len = 3, .created_ms = START_MS};
    unsigned before = b.n_done;
    assert_int_equal(journal_ask(b.j, &q, &b, on_written, &b, &entry, &e), ST_OK);
    assert_int_equal(ask_it(&b, "c", "x", 1, &entry, &e), ST_IO); /* one is enough to find out */
    assert_int_equal(wait_for(&b, before), ST_IO);
    clock_fake_advance_ms(&b.clock, JOURNAL_RETRY_MS);
    act(&b, 'q', "c");
    find(&b, "b")->held = &b;
    act(&b, 'a', "b");
    journal_read_counts(b.j, &counts);
    assert_true(counts.is_on);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(state_of(&b, "a"), 'a');
        assert_int_equal(state_of(&b, "b"), 'a');
        assert_int_equal(state_of(&b, "c"), 'q');
        reopen(&b);
    }
    free_bench(&b);
}

/* Two segments in one turn of the thread: each is synced before it is said to be there. */
static void test_sync_between(void **state)
{
    enum { BYTES = 70000 }; /* more than a segment takes */
    bench b;
    err e;
    journal_entry *entry;
    status heard[3] = {ST_INTERNAL, ST_INTERNAL, ST_INTERNAL};
    char name[] = "k0", *text = mem_calloc(1, BYTES);
    make_bench(&b, JOURNAL_MIN_BYTES);
    open_journal(&b);
    act(&b, 'q', "first");
    pthread_mutex_lock(&gate); /* the thread stops in its next read, and what follows waits together */
    find(&b, "first")->held = &b;
    assert_int_equal(journal_read(b.j, find(&b, "first"), on_text, &b, &e), ST_OK);
    for (size_t i = 0; i < 3; i++, name[1]++) {
        const journal_question q = {.owner = "ann",
                                    .owner_len = 3,
                                    .name = name,
                                    .name_len = 2,
                                    .text = text,
                                    .text_len = BYTES,
                                    .created_ms = START_MS};
        assert_int_equal(journal_ask(b.j, &q, &b, on_heard, &heard[i], &entry, &e), ST_OK);
    }
    fail_syncs = 1;
    pthread_mutex_unlock(&gate);
    while (heard[2] == ST_INTERNAL) {
        event_base_loop(b.base, EVLOOP_ONCE);
    }
    assert_int_equal(heard[0], ST_IO);
    assert_null(find(&b, "k0"));
    assert_int_equal(heard[1], ST_OK);
    assert_int_equal(heard[2], ST_OK);
    mem_free(text);
    free_bench(&b);
}

/* A failed sync breaks what it was for, and nothing is added behind it. */
static void test_sync_fails(void **state)
{
    bench b;
    err e;
    journal_entry *entry = NULL;
    make_bench(&b, JOURNAL_MIN_BYTES);
    open_journal(&b);
    act(&b, 'q', "a");
    uint64_t segment = find(&b, "a")->place.segment;
    fail_syncs = 1;
    assert_int_equal(ask_it(&b, "b", "x", 1, &entry, &e), ST_IO);
    assert_null(find(&b, "b"));
    clock_fake_advance_ms(&b.clock, JOURNAL_RETRY_MS);
    act(&b, 'q', "c");
    assert_true(find(&b, "c")->place.segment > segment);
    fail_syncs = 1;
    assert_int_equal(answer_it(&b, find(&b, "a"), "x", 1, &e), ST_IO);
    assert_int_equal(state_of(&b, "a"), 'q');
    free_bench(&b);
}

static void test_power_cut(void **state)
{
    bench b, after;
    make_bench(&b, JOURNAL_MIN_BYTES);
    open_journal(&b);
    for (size_t i = 0; i < N_SCRIPT; i++) {
        act(&b, script[i].what, script[i].name);
        if (script[i].what != 'q' && script[i].what != 'a') {
            continue; /* a note: nobody was told that it is there */
        }
        size_t n = open_after_cut(&b, &after);
        check_states(&after, i + 1);
        free_bench(&after);
        n_synced = n;
    }
    free_bench(&b);
}

static void test_one_at_a_time(void **state)
{
    bench b;
    journal *other = NULL;
    err e;
    make_bench(&b, JOURNAL_MIN_BYTES);
    open_journal(&b);
    const journal_config cfg = {b.base, &b.clock.src, b.dir, JOURNAL_MIN_BYTES};
    assert_int_equal(journal_open(&cfg, &other, &e), ST_IO);
    assert_non_null(strstr(e.msg, "another daemon"));
    act(&b, 'q', "a");
    close_journal(&b);
    assert_int_equal(journal_open(&cfg, &other, &e), ST_OK);
    journal_close(other);
    free_bench(&b);
}

/* Closed with work under way: what was handed in is written, and nobody hears of it. */
static void test_close_at_once(void **state)
{
    bench b;
    err e;
    journal_entry *entry;
    make_bench(&b, JOURNAL_MIN_BYTES);
    open_journal(&b);
    act(&b, 'q', "b");
    const journal_question q = {.owner = "ann",
                                .owner_len = 3,
                                .name = "a",
                                .name_len = 1,
                                .text = "question of a",
                                .text_len = 13,
                                .digest = {0, 0, 'a'},
                                .created_ms = START_MS};
    unsigned before = b.n_done;
    assert_int_equal(journal_ask(b.j, &q, &b, on_written, &b, &entry, &e), ST_OK);
    assert_int_equal(journal_answer(b.j, find(&b, "b"), 200, "answer of b", 11, on_written, &b, &e), ST_OK);
    journal_entry *third = NULL;
    const journal_question r = {.owner = "", .name = "c", .name_len = 1, .created_ms = START_MS};
    assert_int_equal(journal_ask(b.j, &r, &b, on_written, &b, &third, &e), ST_OK);
    reopen(&b);
    assert_int_equal(b.n_done, before);
    assert_int_equal(state_of(&b, "a"), 'q');
    assert_int_equal(state_of(&b, "b"), 'a');
    assert_non_null(journal_find(b.j, "", 0, "c", 1));
    journal_drop(b.j, find(&b, "a"));
    reopen(&b);
    assert_null(find(&b, "a"));
    free_bench(&b);
}

/* Whichever allocation fails: an error or none, and what was there stays. */
static void test_no_memory(void **state)
{
    bench b;
    make_bench(&b, JOURNAL_MIN_BYTES);
    open_journal(&b);
    act(&b, 'q', "kept");
    for (uint64_t n = 1; n < 60; n++) {
        err e;
        journal_entry *entry = NULL;
        mem_fail_at(n, false);
        status st = ask_it(&b, "a", "question of a", 13, &entry, &e);
        if (st == ST_OK) {
            st = answer_it(&b, entry, "answer of a", 11, &e);
            assert_true(st == ST_OK || st == ST_NOMEM);
        } else {
            assert_true(st == ST_NOMEM || st == ST_IO);
            clock_fake_advance_ms(&b.clock, JOURNAL_RETRY_MS);
        }
        mem_fail_at(0, false);
        if (find(&b, "a")) {
            act(&b, 'd', "a");
        }
        close_journal(&b);
        mem_fail_at(n, false);
        st = try_open(&b, &e);
        mem_fail_at(0, false);
        assert_true(st == ST_OK || st == ST_NOMEM || st == ST_IO);
        if (st != ST_OK) {
            open_journal(&b);
        }
        assert_int_equal(state_of(&b, "kept"), 'q');
    }
    free_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_record),        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_every_length),  cmocka_unit_test(test_every_byte),
        cmocka_unit_test(test_later_counts),  cmocka_unit_test(test_time),
        cmocka_unit_test(test_room),          cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_moved),         cmocka_unit_test(test_moved_meanwhile),
        cmocka_unit_test(test_any_order),     cmocka_unit_test(test_cut_for_good),
        cmocka_unit_test(test_sync_between),  cmocka_unit_test(test_lost_file),
        cmocka_unit_test(test_disk_full),     cmocka_unit_test(test_sync_fails),
        cmocka_unit_test(test_power_cut),     cmocka_unit_test(test_one_at_a_time),
        cmocka_unit_test(test_close_at_once), cmocka_unit_test(test_no_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
