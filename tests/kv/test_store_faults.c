/* store: files that are not what they should be, and disks that fail, fill up, hang or go away. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/hash.h"
#include "kv/store_rig.h"

/*
 * Bad files
 */
typedef struct file_bytes {
    uint8_t bytes[RIG_FILE_BYTES + 64];
    size_t n;
} file_bytes;

static void read_file(const char *path, file_bytes *f)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    ssize_t n = read(fd, f->bytes, sizeof f->bytes);
    assert_true(n > 0);
    f->n = (size_t)n;
    close(fd);
}

static void write_file(const char *path, const file_bytes *f)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, f->bytes, f->n), f->n);
    close(fd);
}

/* What the file of p should be, with valid checksums whatever is in the header. */
static void make_file(file_bytes *f, const store_header *h, const rig_page *p)
{
    store_header_put(h, store_sum(p->bytes, sizeof p->bytes), f->bytes);
    memcpy(f->bytes + STORE_HEADER_BYTES, p->bytes, sizeof p->bytes);
    f->n = RIG_FILE_BYTES;
}

static store_header header_of(const store_rig *r, const rig_page *p)
{
    store_header h;
    store_header_make(&h, &p->root, p->has_parent ? &p->parent : NULL, p->ids, p->n_ids);
    memcpy(h.layout, r->cfg.layout, sizeof h.layout);
    h.page_bytes = RIG_PAGE_BYTES;
    return h;
}

/* One that is there is refused, removed, counted once, and can be written again. */
static void check_refused(store_rig *r, const rig_page *p, const char *what)
{
    char path[RIG_PATH_BYTES];
    uint64_t bad = rig_stats(r).bad, missed = rig_stats(r).missed;
    struct stat sb;
    rig_path(r, p, path);
    if (rig_get_page(r, p)) {
        fail_msg("%s: was taken", what);
    }
    if (rig_stats(r).bad != bad + 1 || rig_stats(r).missed != missed) {
        fail_msg("%s: not counted as bad", what);
    }
    if (lstat(path, &sb) == 0) {
        fail_msg("%s: was not removed", what);
    }
    assert_false(store_has(r->s, &p->key));
    assert_false(rig_get_page(r, p));
    assert_int_equal(rig_stats(r).bad, bad + 1);
    assert_int_equal(rig_stats(r).missed, missed + 1);
    assert_true(rig_put_page(r, p));
    store_flush(r->s);
    if (!rig_get_page(r, p)) {
        fail_msg("%s: cannot be written again", what);
    }
}

static void test_flipped_bytes(void **state)
{
    /* every field of the header and both ends of its free room; the page's ends and middle */
    static const size_t at[] = {
        0,   7,   8,   11,  12,  16,  23,  24,  55,  56,  87,  88,   119,
        120, 247, 248, 400, 495, 496, 503, 504, 511, 512, 513, 4000, RIG_FILE_BYTES - 1};
    store_rig r;
    rig_page p;
    file_bytes f;
    char path[RIG_PATH_BYTES], what[64];
    rig_init(&r);
    rig_open(&r);
    rig_put_all(&r, 1, 0, 2);
    rig_page_make(&p, 1, 1);
    rig_path(&r, &p, path);
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        read_file(path, &f);
        assert_int_equal(f.n, RIG_FILE_BYTES);
        f.bytes[at[i]] ^= (uint8_t)(1u << i % 8);
        write_file(path, &f);
        snprintf(what, sizeof what, "byte %zu flipped", at[i]);
        check_refused(&r, &p, what);
    }
    assert_int_equal(rig_lines("event=bad_file"), 1); /* one tells all */
    assert_int_equal(rig_prefix(&r, 1, 9), 2);
    assert_int_equal(rig_stats(&r).files, 2);
    rig_end(&r);
}

static void test_torn_files(void **state)
{
    static const size_t sizes[] = {0, 1, 511, 512, 513, 4096, RIG_FILE_BYTES - 1, RIG_FILE_BYTES + 1};
    store_rig r;
    rig_page p;
    file_bytes f;
    char path[RIG_PATH_BYTES], what[64];
    rig_init(&r);
    rig_open(&r);
    rig_put_all(&r, 1, 0, 1);
    rig_page_make(&p, 1, 0);
    rig_path(&r, &p, path);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        memset(&f, 0, sizeof f);
        read_file(path, &f);
        f.n = sizes[i];
        write_file(path, &f);
        snprintf(what, sizeof what, "%zu bytes", sizes[i]);
        check_refused(&r, &p, what);
    }
    /* as a file system leaves it that knew the size and not the bytes */
    read_file(path, &f);
    memset(f.bytes + 4096, 0, f.n - 4096);
    write_file(path, &f);
    check_refused(&r, &p, "zeros from 4096 on");
    memset(f.bytes, 0, f.n);
    write_file(path, &f);
    check_refused(&r, &p, "zeros");
    rig_end(&r);
}

/* All checksums are right: it is another file that somebody put in this place. */
typedef enum foreign {
    OTHER_IDS,
    FEWER_IDS,
    OTHER_PARENT,
    NO_PARENT,
    OTHER_ROOT,
    OTHER_LAYOUT,
    OTHER_SIZE,
    OTHER_VERSION,
    OTHER_MAGIC,
    SOMETHING_BEHIND,
    N_FOREIGN
} foreign;

static void sum_again(file_bytes *f)
{
    uint64_t sum = hash64(f->bytes, STORE_HEADER_BYTES - sizeof sum);
    memcpy(f->bytes + STORE_HEADER_BYTES - sizeof sum, &sum, sizeof sum);
}

static void make_foreign(const store_rig *r, const rig_page *p, foreign kind, file_bytes *f)
{
    store_header h = header_of(r, p);
    switch (kind) {
    case OTHER_IDS:
        h.ids[31]++;
        break;
    case FEWER_IDS:
        h.ids[--h.n_ids] = 0;
        break;
    case OTHER_PARENT:
        h.parent.bytes[31] ^= 1;
        break;
    case NO_PARENT:
        memset(&h.parent, 0, sizeof h.parent);
        break;
    case OTHER_ROOT:
        h.root.bytes[0] ^= 1;
        break;
    case OTHER_LAYOUT:
        h.layout[31] ^= 1;
        break;
    case OTHER_SIZE:
        h.page_bytes -= 64;
        break;
    default:
        break;
    }
    make_file(f, &h, p);
    if (kind == OTHER_VERSION) {
        f->bytes[8]++;
    } else if (kind == OTHER_MAGIC) {
        f->bytes[0] = 'H';
    } else if (kind == SOMETHING_BEHIND) {
        f->bytes[300] = 1;
    }
    sum_again(f);
}

static void test_foreign_files(void **state)
{
    store_rig r;
    rig_page p;
    file_bytes f;
    char path[RIG_PATH_BYTES], what[64];
    rig_init(&r);
    rig_open(&r);
    rig_put_all(&r, 1, 0, 2);
    rig_page_make(&p, 1, 1);
    rig_path(&r, &p, path);
    const store_header right = header_of(&r, &p);
    make_file(&f, &right, &p);
    sum_again(&f);
    write_file(path, &f);
    assert_true(rig_get_page(&r, &p)); /* so much for the forger */
    for (int kind = 0; kind < N_FOREIGN; kind++) {
        make_foreign(&r, &p, (foreign)kind, &f);
        write_file(path, &f);
        snprintf(what, sizeof what, "foreign file %d", kind);
        check_refused(&r, &p, what);
    }
    rig_end(&r);
}

/* The same by way of a store of other settings. A key is of tokens and root alone, so its file has the same name. */
static void test_other_layout(void **state)
{
    store_rig r;
    rig_page p;
    rig_init(&r);
    rig_open(&r);
    rig_put_all(&r, 1, 0, 2);
    rig_close(&r);
    r.cfg.layout[0] ^= 1;
    rig_open(&r);
    rig_page_make(&p, 1, 0);
    assert_true(store_has(r.s, &p.key)); /* of another layout, which only its header tells */
    check_refused(&r, &p, "another layout");
    rig_end(&r);
}

static void test_not_files(void **state)
{
    store_rig r;
    rig_page p;
    char path[RIG_PATH_BYTES], other[RIG_PATH_BYTES], below[RIG_PATH_BYTES + 8];
    rig_init(&r);
    rig_open(&r);
    rig_put_all(&r, 1, 0, 1);
    rig_page_make(&p, 1, 0);
    rig_path(&r, &p, path);
    rig_name(&r, "elsewhere", other);
    assert_int_equal(rename(path, other), 0);
    assert_int_equal(symlink("elsewhere", path), 0);
    check_refused(&r, &p, "a link to the right file");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    check_refused(&r, &p, "a pipe");
    /* a folder cannot be removed: it is counted, and not looked at again */
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(below, sizeof below, "%s/x", path);
    assert_int_equal(mkdir(below, 0700), 0);
    uint64_t bad = rig_stats(&r).bad;
    assert_false(rig_get_page(&r, &p));
    assert_false(rig_get_page(&r, &p));
    assert_int_equal(rig_stats(&r).bad, bad + 1);
    assert_true(rig_put_page(&r, &p)); /* in vain */
    store_flush(r.s);
    assert_true(rig_stats(&r).writes);
    assert_int_equal(rig_stats(&r).not_written, 1);
    rig_put_all(&r, 2, 0, 2);
    assert_int_equal(rig_prefix(&r, 2, 3), 2);
    rig_end(&r);
}

/* Somebody removed a file: it is missed once, and its room is free. */
static void test_removed_file(void **state)
{
    store_rig r;
    rig_page p;
    char path[RIG_PATH_BYTES];
    rig_init(&r);
    rig_open(&r);
    rig_put_all(&r, 1, 0, 3);
    rig_page_make(&p, 1, 1);
    rig_path(&r, &p, path);
    assert_int_equal(unlink(path), 0);
    assert_false(rig_get_page(&r, &p));
    assert_false(store_has(r.s, &p.key));
    assert_int_equal(rig_stats(&r).bad, 0);
    assert_int_equal(rig_stats(&r).files, 2);
    assert_int_equal(rig_stats(&r).bytes, 2 * RIG_FILE_BYTES);
    rig_page_make(&p, 1, 2);
    rig_path(&r, &p, path);
    assert_int_equal(unlink(path), 0);
    rig_close(&r);
    rig_open(&r); /* the same while nobody was there */
    assert_false(store_has(r.s, &p.key));
    assert_int_equal(rig_stats(&r).files, 1);
    rig_end(&r);
}

/* Foreign names are nobody's business; leftovers of the dead are removed. */
static void test_names(void **state)
{
    static const char *const names[] = {
        "README",    "index.db.old",
        "0123.page", "new-0123456789abcdef.tmp",
        "new-.tmp",  "ABCDEF0123456789ABCDEF0123456789ABCDEF0123456789ABCDEF0123456789.page",
    };
    store_rig r;
    char path[RIG_PATH_BYTES];
    rig_init(&r);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        rig_name(&r, names[i], path);
        close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    }
    rig_open(&r);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        rig_name(&r, names[i], path);
        assert_int_equal(access(path, F_OK) == 0, strcmp(names[i], "new-0123456789abcdef.tmp") != 0);
    }
    assert_int_equal(rig_stats(&r).files, 0);
    assert_int_equal(rig_stats(&r).bad, 0);
    rig_end(&r);
}

/*
 * Disks
 */
typedef struct bad_disk {
    store_seam seam;
    pthread_mutex_t mu;
    pthread_cond_t changed;
    /* guarded by mu */
    store_op op;  /* the one that fails, or waits */
    int why;      /* 0: it does not fail */
    bool blocked; /* it waits until this is false */
    bool waits;   /* somebody does */
    unsigned slow_ms;
    unsigned seen; /* operations of that kind */
} bad_disk;

static int before(void *ctx, store_op op)
{
    bad_disk *d = ctx;
    pthread_mutex_lock(&d->mu);
    int why = 0;
    unsigned slow_ms = op == d->op ? d->slow_ms : 0;
    if (op == d->op) {
        d->seen++;
        why = d->why;
        while (d->blocked) {
            d->waits = true;
            pthread_cond_broadcast(&d->changed);
            pthread_cond_wait(&d->changed, &d->mu);
        }
        d->waits = false;
    }
    pthread_mutex_unlock(&d->mu);
    usleep(slow_ms * 1000);
    return why;
}

static void disk_init(bad_disk *d, store_rig *r)
{
    memset(d, 0, sizeof *d);
    pthread_mutex_init(&d->mu, NULL);
    pthread_cond_init(&d->changed, NULL);
    d->seam = (store_seam){.before = before, .ctx = d};
    r->cfg.seam = &d->seam;
}

static void disk_set(bad_disk *d, store_op op, int why, bool blocked)
{
    pthread_mutex_lock(&d->mu);
    d->op = op;
    d->why = why;
    d->blocked = blocked;
    d->seen = 0;
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&d->mu);
}

static unsigned disk_seen(bad_disk *d)
{
    pthread_mutex_lock(&d->mu);
    unsigned n = d->seen;
    pthread_mutex_unlock(&d->mu);
    return n;
}

static void disk_wait(bad_disk *d) /* until somebody hangs */
{
    pthread_mutex_lock(&d->mu);
    while (!d->waits) {
        pthread_cond_wait(&d->changed, &d->mu);
    }
    pthread_mutex_unlock(&d->mu);
}

/* Writing stopped: what is there can be read, one warning was given, nothing is left behind. */
static void check_stopped(store_rig *r, unsigned n_there, const char *warning)
{
    rig_page p;
    rig_page_make(&p, 9, 0);
    store_stats s = rig_stats(r);
    assert_true(s.reads);
    assert_false(s.writes);
    assert_false(rig_put_page(r, &p));
    assert_false(store_has(r->s, &p.key));
    assert_int_equal(rig_stats(r).not_written, s.not_written + 1);
    assert_int_equal(rig_prefix(r, 1, n_there + 1), n_there);
    assert_int_equal(rig_lines("event=writing_stopped"), 1);
    assert_int_equal(rig_lines("warn "), 1);
    assert_int_equal(rig_lines(warning), 1);
    assert_int_equal(rig_count_files(r, ".tmp"), 0);
}

static void test_disk_that_fails(void **state)
{
    static const struct {
        store_op op;
        int why;
        const char *warning;
    } cases[] = {
        {STORE_WRITE, ENOSPC, "cannot write a file: No space left on device"},
        {STORE_WRITE, EDQUOT, "cannot write a file: Disk quota exceeded"},
        {STORE_WRITE, EIO, "cannot write a file: Input/output error"},
        {STORE_CREATE, EROFS, "cannot make a file: Read-only file system"},
        {STORE_CREATE, ENOSPC, "cannot make a file: No space left on device"},
        {STORE_CREATE, EACCES, "cannot make a file: Permission denied"},
        {STORE_RENAME, ENOSPC, "cannot rename a file: No space left on device"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        store_rig r;
        bad_disk d;
        rig_init(&r);
        disk_init(&d, &r);
        rig_open(&r);
        rig_put_all(&r, 1, 0, 3);
        disk_set(&d, cases[i].op, cases[i].why, false);
        for (unsigned j = 3; j < 8; j++) {
            (void)rig_put(&r, 1, j); /* several wait while the first fails */
        }
        store_flush(r.s);
        check_stopped(&r, 3, cases[i].warning);
        assert_int_equal(disk_seen(&d), 1); /* it is not tried again */
        rig_end(&r);
    }
}

/* Too many open files are no reason to stop for ever. */
static void test_later(void **state)
{
    store_rig r;
    bad_disk d;
    rig_init(&r);
    disk_init(&d, &r);
    rig_open(&r);
    disk_set(&d, STORE_CREATE, EMFILE, false);
    rig_put_all(&r, 1, 0, 1);
    assert_int_equal(rig_stats(&r).not_written, 1);
    assert_true(rig_stats(&r).writes);
    disk_set(&d, STORE_OPEN, EMFILE, false);
    rig_put_all(&r, 1, 0, 1);
    assert_int_equal(rig_stats(&r).written, 1);
    assert_false(rig_get(&r, 1, 0));
    assert_int_equal(rig_stats(&r).bad, 0);
    disk_set(&d, STORE_OPEN, 0, false);
    assert_true(rig_get(&r, 1, 0));
    assert_int_equal(rig_lines("warn "), 0);
    rig_end(&r);
}

/* What cannot be read is as good as torn; what cannot be removed is not read a second time. */
static void test_unreadable(void **state)
{
    store_rig r;
    bad_disk d;
    rig_page p;
    rig_init(&r);
    disk_init(&d, &r);
    rig_open(&r);
    rig_put_all(&r, 1, 0, 2);
    disk_set(&d, STORE_READ, EIO, false);
    assert_false(rig_get(&r, 1, 1));
    assert_int_equal(rig_stats(&r).bad, 1);
    assert_int_equal(rig_count_files(&r, ".page"), 1);
    rig_page_make(&p, 1, 0);
    char path[RIG_PATH_BYTES];
    file_bytes f;
    rig_path(&r, &p, path);
    read_file(path, &f);
    f.bytes[1000] ^= 1;
    write_file(path, &f);
    disk_set(&d, STORE_REMOVE, EROFS, false);
    assert_false(rig_get(&r, 1, 0));
    assert_int_equal(rig_stats(&r).bad, 2);
    assert_false(store_has(r.s, &p.key));
    disk_set(&d, STORE_OPEN, 0, false);
    assert_false(rig_get(&r, 1, 0));
    assert_int_equal(disk_seen(&d), 0);
    assert_int_equal(rig_stats(&r).bad, 2);
    rig_end(&r);
}

/* A file of the size that it may not have, and the signal for it off: as a full disk. In a process of its own. */
static int write_beyond_limit(store_rig *r)
{
    const struct rlimit limit = {RIG_PAGE_BYTES / 2, RIG_PAGE_BYTES / 2};
    signal(SIGXFSZ, SIG_IGN);
    rig_open(r);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) {
        return 1;
    }
    rig_put_all(r, 1, 3, 5);
    store_stats s = rig_stats(r);
    int verdict = s.writes || !s.reads ? 2 : rig_prefix(r, 1, 9) != 3 ? 3 : rig_lines("warn ") != 1 ? 4 : 0;
    rig_close(r);
    return verdict;
}

static int run_apart(int (*run)(store_rig *r), store_rig *r)
{
    int wait_status = 0;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        _exit(run(r));
    }
    assert_int_equal(waitpid(pid, &wait_status, 0), pid);
    return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : -WTERMSIG(wait_status);
}

static void test_full_disk(void **state)
{
    store_rig r;
    rig_init(&r);
    rig_open(&r);
    rig_put_all(&r, 1, 0, 3);
    rig_close(&r);
    assert_int_equal(run_apart(write_beyond_limit, &r), 0);
    assert_int_equal(rig_count_files(&r, ".tmp"), 0);
    rig_open(&r);
    rig_put_all(&r, 1, 3, 5);
    assert_int_equal(rig_prefix(&r, 1, 9), 5); /* a new start, a new chance */
    rig_end(&r);
}

/* As somebody who may not write there (root may everywhere). */
static int read_only(store_rig *r)
{
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) {
        return 1;
    }
    rig_open(r);
    store_stats s = rig_stats(r);
    rig_page p;
    rig_page_make(&p, 1, 2);
    if (s.writes || !s.reads || s.files != 3 || !store_has(r->s, &p.key)) {
        return 2;
    }
    if (rig_put(r, 2, 0) || rig_prefix(r, 1, 9) != 3 || rig_lines("warn ") != 1) {
        return 3;
    }
    rig_close(r);
    return 0;
}

static void test_read_only_folder(void **state)
{
    store_rig r;
    rig_page p;
    char path[RIG_PATH_BYTES];
    rig_init(&r);
    rig_open(&r);
    rig_put_all(&r, 1, 0, 3);
    rig_close(&r);
    for (unsigned i = 0; i < 3; i++) {
        rig_page_make(&p, 1, i);
        rig_path(&r, &p, path);
        assert_int_equal(chmod(path, 0444), 0);
    }
    assert_int_equal(chmod(r.dir, 0555), 0);
    assert_int_equal(run_apart(read_only, &r), 0);
    assert_int_equal(chmod(r.dir, 0700), 0);
    rig_end(&r);
}

static void remove_folder(const store_rig *r)
{
    char command[RIG_PATH_BYTES + 16];
    snprintf(command, sizeof command, "rm -rf %s", r->dir);
    assert_int_equal(system(command), 0);
}

static void test_folder_goes(void **state)
{
    store_rig r;
    rig_init(&r);
    rig_open(&r);
    rig_put_all(&r, 1, 0, 3);
    remove_folder(&r);
    rig_put_all(&r, 1, 3, 5);
    assert_false(rig_stats(&r).writes);
    assert_false(rig_stats(&r).reads);
    assert_int_equal(rig_prefix(&r, 1, 3), 0);
    assert_int_equal(rig_lines("warn "), 1);
    assert_int_equal(rig_lines("event=off"), 1);
    rig_end(&r);
}

static void test_no_folder(void **state)
{
    store_rig r;
    rig_init(&r);
    remove_folder(&r);
    rig_open(&r);
    rig_put_all(&r, 1, 0, 2);
    assert_false(rig_stats(&r).writes);
    assert_false(rig_stats(&r).reads);
    assert_int_equal(rig_prefix(&r, 1, 3), 0);
    assert_int_equal(rig_lines("warn "), 1);
    rig_end(&r);
}

/* A disk that hangs: nobody waits for it, what is too much is dropped, and what was taken is written in the end. */
static void test_slow_disk(void **state)
{
    enum { SLOTS = 8 };
    store_rig r;
    bad_disk d;
    rig_page p;
    rig_init(&r);
    disk_init(&d, &r);
    r.cfg.queue_bytes = SLOTS * RIG_PAGE_BYTES + RIG_PAGE_BYTES / 2;
    rig_open(&r);
    disk_set(&d, STORE_WRITE, 0, true);
    for (unsigned i = 0; i < SLOTS; i++) {
        assert_true(rig_put(&r, 1, i));
    }
    disk_wait(&d);
    for (unsigned i = SLOTS; i < SLOTS + 5; i++) {
        assert_false(rig_put(&r, 1, i));
    }
    rig_page_make(&p, 1, SLOTS);
    assert_false(store_has(r.s, &p.key));
    assert_int_equal(rig_stats(&r).not_written, 5);
    assert_int_equal(rig_stats(&r).queued_bytes, SLOTS * RIG_PAGE_BYTES);
    assert_int_equal(rig_stats(&r).written, 0);
    disk_set(&d, STORE_WRITE, 0, false);
    store_flush(r.s);
    assert_int_equal(rig_prefix(&r, 1, SLOTS + 5), SLOTS);
    assert_int_equal(rig_stats(&r).queued_bytes, 0);
    rig_end(&r);
}

/* Reading goes before writing, and what waits to be written can be read. */
static void test_reads_first(void **state)
{
    store_rig r;
    bad_disk d;
    rig_init(&r);
    disk_init(&d, &r);
    rig_open(&r);
    rig_put_all(&r, 1, 0, 2);
    disk_set(&d, STORE_WRITE, 0, true);
    for (unsigned i = 0; i < 6; i++) {
        assert_true(rig_put(&r, 2, i));
    }
    disk_wait(&d);
    static uint8_t dst[3][RIG_PAGE_BYTES];
    rig_page p[3];
    rig_page_make(&p[0], 2, 5);
    rig_page_make(&p[1], 1, 1);
    rig_page_make(&p[2], 2, 0);
    for (unsigned i = 0; i < 3; i++) {
        assert_true(store_get(r.s, &p[i].root, p[i].has_parent ? &p[i].parent : NULL, p[i].ids, p[i].n_ids,
                              dst[i], i));
    }
    disk_set(&d, STORE_WRITE, 0, false);
    store_flush(r.s);
    store_result results[4];
    assert_int_equal(store_poll(r.s, results, 4), 3); /* all before the last write */
    for (unsigned i = 0; i < 3; i++) {
        assert_true(results[i].ok);
        assert_memory_equal(dst[i], p[i].bytes, sizeof dst[i]);
    }
    rig_end(&r);
}

/* Closing waits no longer than it was told, but for what the disk is doing at that moment: 40 pages would take 8 s. */
static void test_close_in_time(void **state)
{
    enum { SLOTS = 40 };
    store_rig r;
    bad_disk d;
    rig_init(&r);
    disk_init(&d, &r);
    rig_open(&r);
    d.slow_ms = 200; /* nobody looks at it yet */
    disk_set(&d, STORE_WRITE, 0, false);
    for (unsigned i = 0; i < SLOTS; i++) {
        assert_true(rig_put(&r, 1, i));
    }
    store_close(r.s, 0);
    r.s = NULL;
    assert_in_range(rig_count_files(&r, ".page"), 0, SLOTS - 5);
    assert_int_equal(rig_count_files(&r, ".tmp"), 0);
    d.slow_ms = 0;
    rig_open(&r);
    unsigned n = rig_prefix(&r, 1, SLOTS);
    assert_int_equal(n, rig_count_files(&r, ".page"));
    rig_end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flipped_bytes), cmocka_unit_test(test_torn_files),
        cmocka_unit_test(test_foreign_files), cmocka_unit_test(test_other_layout),
        cmocka_unit_test(test_not_files),     cmocka_unit_test(test_removed_file),
        cmocka_unit_test(test_names),         cmocka_unit_test(test_disk_that_fails),
        cmocka_unit_test(test_later),         cmocka_unit_test(test_unreadable),
        cmocka_unit_test(test_full_disk),     cmocka_unit_test(test_read_only_folder),
        cmocka_unit_test(test_folder_goes),   cmocka_unit_test(test_no_folder),
        cmocka_unit_test(test_slow_disk),     cmocka_unit_test(test_reads_first),
        cmocka_unit_test(test_close_in_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
