#include "serve/journal_bench.h"

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

#define MAX_SYNCED 64

/*
 * System calls. The journal's thread calls them; the test looks when nothing is under way.
 */
int fail_writes, fail_syncs;
static struct {
    ino_t ino;
    off_t size;
} synced[MAX_SYNCED];
size_t n_synced;

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

pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

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
void path_of(const char *dir, const char *name, char out[512])
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

/* False: the journal's thread has removed it meanwhile; nobody is told when it does. */
static bool is_there(const char *path, struct stat *s)
{
    bool there = stat(path, s) == 0;
    assert_true(there || errno == ENOENT);
    return there;
}

static void add_size(const char *path, void *ctx)
{
    struct stat s;
    if (is_there(path, &s)) {
        *(uint64_t *)ctx += (uint64_t)s.st_size;
    }
}

uint64_t bytes_in(const char *dir)
{
    uint64_t n = 0;
    each_file(dir, add_size, &n);
    return n;
}

void make_bench(bench *b, uint64_t max_bytes)
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

status try_open(bench *b, err *e)
{
    const journal_config cfg = {b->base, &b->clock.src, b->dir, b->max_bytes};
    return journal_open(&cfg, &b->j, e);
}

void open_journal(bench *b)
{
    err e;
    if (try_open(b, &e) != ST_OK) {
        fail_msg("%s", e.msg);
    }
}

void close_journal(bench *b)
{
    journal_close(b->j);
    b->j = NULL;
}

void reopen(bench *b)
{
    close_journal(b);
    open_journal(b);
}

void free_bench(bench *b)
{
    journal_close(b->j);
    event_base_free(b->base);
    remove_folder(b->dir);
    buf_release(&b->text);
}

/*
 * What a user does.
 */
void on_written(void *ctx, status st)
{
    bench *b = ctx;
    b->n_done++;
    b->last = st;
}

void on_text(void *ctx, status st, const char *text, size_t len)
{
    bench *b = ctx;
    b->n_done++;
    b->last = st;
    buf_reset(&b->text);
    assert_int_equal(buf_append(&b->text, text, len), ST_OK);
}

/* Until the next callback. */
status wait_for(bench *b, unsigned before)
{
    while (b->n_done == before) {
        assert_true(event_base_loop(b->base, EVLOOP_ONCE) >= 0);
    }
    assert_int_equal(b->n_done, before + 1);
    return b->last;
}

void on_heard(void *ctx, status st)
{
    *(status *)ctx = st;
}

journal_entry *find(bench *b, const char *name)
{
    return journal_find(b->j, "ann", 3, name, strlen(name));
}

status ask_it(bench *b, const char *name, const char *text, size_t len, journal_entry **out, err *e)
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

journal_entry *ask(bench *b, const char *name, const char *text)
{
    err e;
    journal_entry *entry = NULL;
    if (ask_it(b, name, text, strlen(text), &entry, &e) != ST_OK) {
        fail_msg("%s: %s", name, e.msg);
    }
    assert_ptr_equal(find(b, name), entry);
    return entry;
}

status answer_it(bench *b, journal_entry *entry, const char *text, size_t len, err *e)
{
    unsigned before = b->n_done;
    status st = journal_answer(b->j, entry, 200, text, len, on_written, b, e);
    st = st == ST_OK ? wait_for(b, before) : st;
    entry->held = NULL;
    return st;
}

void answer(bench *b, journal_entry *entry, const char *text)
{
    err e;
    assert_int_equal(answer_it(b, entry, text, strlen(text), &e), ST_OK);
    assert_true(entry->answered);
}

status read_it(bench *b, journal_entry *entry)
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
char state_of(bench *b, const char *name)
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
void act(bench *b, char what, const char *name)
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
const journal_act script[N_SCRIPT] = {{'q', "a"}, {'q', "b"}, {'a', "a"}, {'q', "c"}, {'b', "b"},
                                      {'d', "c"}, {'q', "c"}, {'a', "b"}, {'q', "d"}};

/* What is true after the first n of them. */
char expected(size_t n, char name)
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

buf read_file(const char *path)
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

void write_file(const char *path, const char *data, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, n), (ssize_t)n);
    close(fd);
}

/* The file of the script, and where each of its records ends. */
buf script_file(size_t ends[N_SCRIPT])
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

void check_states(bench *b, size_t n)
{
    for (char name = 'a'; name <= 'd'; name++) {
        const char text[2] = {name, 0};
        char got = state_of(b, text), want = expected(n, name);
        if (got != want) {
            fail_msg("%s after %zu records is %c, not %c", text, n, got, want);
        }
    }
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
    if (!is_there(path, &s)) {
        return;
    }
    for (size_t i = 0; i < n_synced; i++) {
        size = synced[i].ino == s.st_ino ? synced[i].size : size;
    }
    path_of(c->to, strrchr(path, '/') + 1, to);
    copy_file(path, to, size);
}

/* Returns the number of files of b that were synced, to be put back when `after` is done with. */
size_t open_after_cut(bench *b, bench *after)
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
void check_order(const bench *b)
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
