/*
 * Sessions saved under a name: what comes back is what was put, whatever is not that is refused and, if it is damaged,
 * gone; folders that cannot be written.
 */
#include "base/test_main.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/mem.h"
#include "worker/saved.h"

#define N_CTX 1000

typedef struct rig {
    char dir[64];
    saved s;
} rig;

static void rig_open(rig *r)
{
    snprintf(r->dir, sizeof r->dir, "/tmp/hearth-saved-XXXXXX");
    assert_non_null(mkdtemp(r->dir));
    memset(&r->s, 0, sizeof r->s);
    assert_int_equal(saved_open(&r->s, r->dir, NULL), ST_OK);
    r->s.kv_type = "f16";
    r->s.max_ids = N_CTX;
    memset(r->s.identity, 'i', sizeof r->s.identity);
}

/* How many files are there; all are removed. */
static size_t clear(const rig *r)
{
    size_t n = 0;
    DIR *d = opendir(r->dir);
    assert_non_null(d);
    for (const struct dirent *x = readdir(d); x; x = readdir(d)) {
        if (x->d_name[0] != '.') {
            n++;
            unlinkat(r->s.folder, x->d_name, 0);
        }
    }
    closedir(d);
    return n;
}

static void rig_close(rig *r)
{
    clear(r);
    saved_close(&r->s);
    saved_close(&r->s);
    assert_int_equal(rmdir(r->dir), 0);
}

static void ids_of(int32_t *ids, size_t n, int32_t first)
{
    for (size_t i = 0; i < n; i++) {
        ids[i] = first + (int32_t)i * 3;
    }
}

static void put(const rig *r, const char *name, size_t n, int32_t first)
{
    int32_t ids[N_CTX] = {0};
    ids_of(ids, n, first);
    assert_int_equal(saved_put(&r->s, name, ids, n, NULL), ST_OK);
}

static void expect(const rig *r, const char *name, size_t n, int32_t first)
{
    int32_t ids[N_CTX];
    ivec got = {0};
    ids_of(ids, n, first);
    assert_int_equal(ivec_push(&got, -7), ST_OK); /* they are appended */
    assert_int_equal(saved_get(&r->s, name, &got, NULL), ST_OK);
    assert_int_equal(got.len, n + 1);
    assert_int_equal(got.data[0], -7);
    assert_memory_equal(got.data + 1, ids, n * sizeof *ids);
    ivec_release(&got);
}

static void refuse(const rig *r, const char *name, status code, const char *field, const char *part)
{
    ivec got = {0};
    err e;
    err_clear(&e);
    assert_int_equal(saved_get(&r->s, name, &got, &e), code);
    assert_string_equal(e.field, field);
    if (!strstr(e.msg, part)) {
        fail_msg("%s: %s", name, e.msg);
    }
    assert_int_equal(got.len, 0);
    ivec_release(&got);
}

static void test_there_and_back(void **state)
{
    rig r;
    char longest[SAVED_NAME_MAX + 1];
    size_t n = 77;
    rig_open(&r);
    memset(longest, 'x', SAVED_NAME_MAX);
    longest[SAVED_NAME_MAX] = '\0';
    put(&r, "a", 5, 100);
    put(&r, "b-_.Z9", 1, 7);
    put(&r, longest, N_CTX, 0);
    put(&r, "none", 0, 0);
    expect(&r, "a", 5, 100);
    expect(&r, "b-_.Z9", 1, 7);
    expect(&r, longest, N_CTX, 0);
    expect(&r, "none", 0, 0);
    put(&r, "a", 6, 200); /* takes its place */
    expect(&r, "a", 6, 200);
    assert_int_equal(saved_drop(&r.s, "a", &n, NULL), ST_OK);
    assert_int_equal(n, 6);
    refuse(&r, "a", ST_UNKNOWN_ID, "name", "nothing is saved");
    assert_int_equal(saved_drop(&r.s, "a", &n, NULL), ST_UNKNOWN_ID);
    assert_int_equal(n, 6);
    assert_int_equal(clear(&r), 3); /* nothing is left beside them */
    rig_close(&r);
}

/* Python: b"hearthid" + struct.pack("<II8s32sQ3i", 1, 0, b"f16", b"i" * 32, 3, 100, 103, 106) + XXH3 of it */
static void test_bytes(void **state)
{
    static const uint8_t want[] = {
        'h', 'e', 'a', 'r', 't', 'h', 'i', 'd', 1,   0,   0,   0,   0,   0,   0,   0,   'f', '1', '6',
        0,   0,   0,   0,   0,   'i', 'i', 'i', 'i', 'i', 'i', 'i', 'i', 'i', 'i', 'i', 'i', 'i', 'i',
        'i', 'i', 'i', 'i', 'i', 'i', 'i', 'i', 'i', 'i', 'i', 'i', 'i', 'i', 'i', 'i', 'i', 'i', 3,
        0,   0,   0,   0,   0,   0,   0,   100, 0,   0,   0,   103, 0,   0,   0,   106, 0,   0,   0};
    uint8_t got[128];
    rig r;
    rig_open(&r);
    put(&r, "a", 3, 100);
    int fd = openat(r.s.folder, "a.session", O_RDONLY);
    assert_int_equal(read(fd, got, sizeof got), sizeof want + 8);
    close(fd);
    assert_memory_equal(got, want, sizeof want);
    uint64_t sum = hash64(want, sizeof want);
    assert_memory_equal(got + sizeof want, &sum, 8);
    rig_close(&r);
}

static void write_file(const rig *r, const char *file, const void *bytes, size_t n)
{
    int fd = openat(r->s.folder, file, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), (ssize_t)n);
    close(fd);
}

static size_t read_file(const rig *r, const char *file, uint8_t *out, size_t most)
{
    int fd = openat(r->s.folder, file, O_RDONLY);
    assert_true(fd >= 0);
    ssize_t n = read(fd, out, most);
    assert_true(n >= 0);
    close(fd);
    return (size_t)n;
}

/* Every length and every byte; what is damaged is deleted, and then unknown. */
static void test_damage(void **state)
{
    uint8_t whole[256], bytes[256];
    rig r;
    rig_open(&r);
    put(&r, "a", 9, 1);
    size_t n = read_file(&r, "a.session", whole, sizeof whole);
    for (size_t len = 0; len < n; len++) {
        write_file(&r, "a.session", whole, len);
        refuse(&r, "a", ST_INVALID_FIELD, "name", "damaged");
        refuse(&r, "a", ST_UNKNOWN_ID, "name", "nothing is saved");
    }
    for (size_t i = 0; i < n; i++) {
        memcpy(bytes, whole, n);
        bytes[i] ^= 0x40;
        write_file(&r, "a.session", bytes, n);
        refuse(&r, "a", ST_INVALID_FIELD, "name", "damaged");
    }
    memcpy(bytes, whole, n);
    bytes[n] = 0;
    write_file(&r, "a.session", bytes, n + 1);
    refuse(&r, "a", ST_INVALID_FIELD, "name", "damaged");
    /* a right checksum over a count that does not fit */
    memcpy(bytes, whole, n);
    bytes[56] = 8;
    uint64_t sum = hash64(bytes, n - 8);
    memcpy(bytes + n - 8, &sum, 8);
    write_file(&r, "a.session", bytes, n);
    refuse(&r, "a", ST_INVALID_FIELD, "name", "damaged");
    write_file(&r, "a.session", whole, n);
    expect(&r, "a", 9, 1);
    rig_close(&r);
}

/* Whole files of something else stay: another worker may want them. */
static void test_others(void **state)
{
    rig r;
    rig_open(&r);
    put(&r, "a", 9, 1);
    r.s.kv_type = "q8_0";
    refuse(&r, "a", ST_INVALID_FIELD, "name", "kv type f16, this worker keeps q8_0");
    r.s.kv_type = "f16";
    r.s.identity[31] = 0;
    refuse(&r, "a", ST_INVALID_FIELD, "name", "another model");
    r.s.identity[31] = 'i';
    r.s.max_ids = 8;
    refuse(&r, "a", ST_INVALID_FIELD, "name", "more tokens than the context of 8");
    r.s.max_ids = 9;
    expect(&r, "a", 9, 1);
    rig_close(&r);
}

/* Not files: refused without waiting for them. */
static void test_no_files(void **state)
{
    rig r;
    rig_open(&r);
    assert_int_equal(mkdirat(r.s.folder, "d.session", 0700), 0);
    assert_int_equal(mkfifoat(r.s.folder, "f.session", 0600), 0);
    assert_int_equal(symlinkat("/etc/passwd", r.s.folder, "l.session"), 0);
    refuse(&r, "d", ST_INVALID_FIELD, "name", "damaged");
    refuse(&r, "f", ST_INVALID_FIELD, "name", "damaged");
    refuse(&r, "l", ST_CAPACITY, "", "cannot be restored");
    unlinkat(r.s.folder, "d.session", AT_REMOVEDIR);
    rig_close(&r);
}

static void test_too_many(void **state)
{
    rig r;
    const int32_t id = 1;
    rig_open(&r);
    for (int i = 0; i < SAVED_MAX; i++) {
        char file[32];
        snprintf(file, sizeof file, "%d.session", i);
        write_file(&r, file, "", 0);
    }
    assert_int_equal(saved_put(&r.s, "one-more", &id, 1, NULL), ST_CAPACITY);
    assert_int_equal(saved_put(&r.s, "17", &id, 1, NULL), ST_OK); /* one that is there */
    assert_int_equal(saved_drop(&r.s, "18", NULL, NULL), ST_OK);
    assert_int_equal(saved_put(&r.s, "one-more", &id, 1, NULL), ST_OK);
    assert_int_equal(clear(&r), SAVED_MAX);
    rig_close(&r);
}

/* A file that cannot be written whole is no file, and what was there before stays. */
static void test_no_room(void **state)
{
    rig r;
    int32_t ids[N_CTX] = {0};
    struct rlimit old, small;
    err e;
    rig_open(&r);
    put(&r, "a", 5, 100);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = (struct rlimit){.rlim_cur = 1000, .rlim_max = old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    status st = saved_put(&r.s, "a", ids, N_CTX, &e);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(st, ST_CAPACITY);
    expect(&r, "a", 5, 100);
    assert_int_equal(clear(&r), 1);
    /* the folder is gone */
    assert_int_equal(rmdir(r.dir), 0);
    assert_int_not_equal(saved_put(&r.s, "a", ids, 1, &e), ST_OK);
    assert_int_equal(mkdir(r.dir, 0700), 0);
    rig_close(&r);
}

static void test_read_only(void **state)
{
    rig r;
    int32_t id = 1;
    err e;
    rig_open(&r);
    put(&r, "a", 5, 100);
    saved_close(&r.s);
    r.s.folder = open("/proc/self", O_RDONLY | O_DIRECTORY); /* as if it were one that is full of rules */
    assert_true(r.s.folder >= 0);
    err_clear(&e);
    status st = saved_put(&r.s, "a", &id, 1, &e);
    assert_true(st == ST_UNSUPPORTED || st == ST_CAPACITY);
    assert_true(e.msg[0] != '\0');
    saved_close(&r.s);
    assert_int_equal(saved_open(&r.s, r.dir, NULL), ST_OK);
    expect(&r, "a", 5, 100);
    rig_close(&r);
}

static void test_memory(void **state)
{
    rig r;
    int32_t ids[100] = {0};
    rig_open(&r);
    put(&r, "a", 100, 1);
    for (uint64_t at = 1; at < 5; at++) {
        ivec got = {0};
        mem_fail_at(at, true);
        status st = saved_put(&r.s, "b", ids, 100, NULL);
        mem_fail_at(0, false);
        assert_true(st == ST_OK || st == ST_NOMEM);
        mem_fail_at(at, true);
        st = saved_get(&r.s, "a", &got, NULL);
        mem_fail_at(0, false);
        assert_true(st == ST_OK ? got.len == 100 : st == ST_NOMEM && got.len == 0);
        ivec_release(&got);
    }
    expect(&r, "a", 100, 1);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_there_and_back), cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_damage),         cmocka_unit_test(test_others),
        cmocka_unit_test(test_no_files),       cmocka_unit_test(test_too_many),
        cmocka_unit_test(test_no_room),        cmocka_unit_test(test_read_only),
        cmocka_unit_test(test_memory),
    };
    signal(SIGXFSZ, SIG_IGN); /* a file that is too long is an error then */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
