/* writer: the bytes it makes, what it refuses, and that the target is whole or untouched. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "gguf/raw_gguf.h"
#include "gguf/reader.h"
#include "gguf/writer.h"

static gguf_writer *writer(void)
{
    gguf_writer *w = NULL;
    assert_int_equal(gguf_writer_new(&w), ST_OK);
    return w;
}

static size_t file_get(const char *path, uint8_t *out, size_t max)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    ssize_t n = read(fd, out, max);
    assert_true(n >= 0);
    close(fd);
    return (size_t)n;
}

/* Compared with bytes laid out by hand from the specification. */
static void test_bytes(void **state)
{
    static raw want;
    static uint8_t got[RAW_MAX_BYTES];
    const float v[3] = {1, 2, 3};
    const uint16_t h[4] = {1, 2, 3, 4};
    want.len = 0;
    raw_header(&want, 3, 2, 3);
    raw_key(&want, "general.alignment", 4);
    raw_u32(&want, 64);
    raw_key(&want, "name", 8);
    raw_str(&want, "abc");
    raw_key(&want, "list", 9);
    raw_u32(&want, 2);
    raw_u64(&want, 4);
    raw_bytes(&want, h, sizeof h);
    raw_str(&want, "x");
    raw_u32(&want, 1);
    raw_u64(&want, 3);
    raw_u32(&want, 0);
    raw_u64(&want, 0);
    raw_str(&want, "y");
    raw_u32(&want, 2);
    raw_u64(&want, 2);
    raw_u64(&want, 2);
    raw_u32(&want, 1);
    raw_u64(&want, 64);
    raw_pad(&want, 64);
    raw_bytes(&want, v, sizeof v);
    raw_pad(&want, 64);
    raw_bytes(&want, h, sizeof h);
    raw_pad(&want, 64);

    gguf_writer *w = writer();
    assert_int_equal(gguf_writer_u32(w, "general.alignment", 64), ST_OK);
    assert_int_equal(gguf_writer_str(w, "name", "abc", 3), ST_OK);
    assert_int_equal(gguf_writer_array(w, "list", GGUF_U16, h, 4), ST_OK);
    assert_int_equal(gguf_writer_tensor(w, "x", GGUF_TYPE_F32, (const uint64_t[]){3}, 1, v, NULL), ST_OK);
    assert_int_equal(gguf_writer_tensor(w, "y", GGUF_TYPE_F16, (const uint64_t[]){2, 2}, 2, h, NULL), ST_OK);
    assert_int_equal(gguf_writer_finish(w, temp_file("b.gguf"), NULL), ST_OK);
    gguf_writer_free(w);
    size_t n = file_get(temp_file("b.gguf"), got, sizeof got);
    assert_int_equal(n, want.len);
    assert_memory_equal(got, want.data, n);
    unlink(temp_file("b.gguf"));
}

static void test_refused_keys(void **state)
{
    static char long_key[GGUF_MAX_KEY_BYTES + 2];
    gguf_writer *w = writer();
    memset(long_key, 'k', GGUF_MAX_KEY_BYTES + 1);
    assert_int_equal(gguf_writer_u32(w, "twice", 1), ST_OK);
    assert_int_equal(gguf_writer_u32(w, "twice", 1), ST_INVALID_FIELD);
    assert_int_equal(gguf_writer_str(w, "twice", "x", 1), ST_INVALID_FIELD);
    assert_int_equal(gguf_writer_str_array(w, "twice", NULL, 0), ST_INVALID_FIELD);
    assert_int_equal(gguf_writer_u32(w, "", 1), ST_INVALID_FIELD);
    assert_int_equal(gguf_writer_u32(w, "bad\xff", 1), ST_INVALID_FIELD);
    assert_int_equal(gguf_writer_u32(w, long_key, 1), ST_INVALID_FIELD);
    assert_int_equal(gguf_writer_u32(w, "general.alignment", 0), ST_INVALID_FIELD);
    assert_int_equal(gguf_writer_u32(w, "general.alignment", 48), ST_INVALID_FIELD);
    assert_int_equal(gguf_writer_u32(w, "general.alignment", 1u << 17), ST_INVALID_FIELD);
    assert_int_equal(gguf_writer_i32(w, "general.alignment", 32), ST_INVALID_FIELD);
    assert_int_equal(gguf_writer_array(w, "a", GGUF_STR, NULL, 0), ST_INVALID_FIELD);
    assert_int_equal(gguf_writer_array(w, "a", GGUF_ARRAY, NULL, 0), ST_INVALID_FIELD);
    assert_int_equal(gguf_writer_array(w, "a", GGUF_BOOL, "\1\2", 2), ST_INVALID_FIELD);
    assert_int_equal(gguf_writer_copy_kv(w, &(gguf_kv){.key = {"a\0b", 3}, .type = GGUF_U8, .data = "\1"}),
                     ST_INVALID_FIELD);
    /* none of them left anything behind */
    assert_int_equal(gguf_writer_bool(w, "general.alignment2", true), ST_OK);
    assert_int_equal(gguf_writer_u64(w, "a", UINT64_MAX), ST_OK);
    assert_int_equal(gguf_writer_finish(w, temp_file("k.gguf"), NULL), ST_OK);
    gguf_writer_free(w);
    gguf_file *f = NULL;
    assert_int_equal(gguf_open(temp_file("k.gguf"), &f, NULL), ST_OK);
    assert_int_equal(gguf_n_kv(f), 3);
    gguf_close(f);
    unlink(temp_file("k.gguf"));
}

static void test_refused_tensors(void **state)
{
    static const struct {
        const char *name;
        uint32_t type, n_dims;
        uint64_t dims[5];
    } cases[] = {
        {"first", 0, 1, {4}},
        {"", 0, 1, {4}},
        {"bad\xff", 0, 1, {4}},
        {"none", 0, 0, {4}},
        {"five", 0, 5, {1, 1, 1, 1, 1}},
        {"zero", 0, 2, {4, 0}},
        {"large", 0, 1, {(UINT64_C(1) << 42) + 1}},
        {"overflow", 0, 3, {UINT64_C(1) << 42, UINT64_C(1) << 42, 4}},
        {"removed", 4, 1, {32}},
        {"row", 12, 1, {128}},
    };
    const float v[4] = {0};
    gguf_writer *w = writer();
    assert_int_equal(gguf_writer_tensor(w, "first", GGUF_TYPE_F32, (const uint64_t[]){4}, 1, v, NULL), ST_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        err e;
        err_clear(&e);
        assert_int_equal(gguf_writer_tensor(w, cases[i].name, (gguf_type)cases[i].type, cases[i].dims,
                                            cases[i].n_dims, v, &e),
                         ST_INVALID_FIELD);
        assert_true(e.msg[0] != 0);
    }
    gguf_writer_free(w);
}

static size_t files_in_folder(const char *path)
{
    char folder[512];
    size_t n = 0;
    snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        n += entry->d_name[0] != '.';
    }
    closedir(dir);
    return n;
}

/* A disk that fills up in the middle of the data: the old file stays, nothing else does. */
static void test_whole_or_untouched(void **state)
{
    static uint8_t data[256 << 10];
    uint8_t got[16];
    char path[512];
    struct rlimit old, small;
    err e;
    err_clear(&e);
    snprintf(path, sizeof path, "%s", temp_file("old.gguf"));
    file_put(path, "old", 3);
    gguf_writer *w = writer();
    assert_int_equal(gguf_writer_tensor(w, "d", GGUF_TYPE_I8, (const uint64_t[]){sizeof data}, 1, data, NULL),
                     ST_OK);

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = old;
    small.rlim_cur = 64 << 10;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    status st = gguf_writer_finish(w, path, &e);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(st, ST_IO);
    assert_string_equal(e.field, "path");
    assert_int_equal(files_in_folder(path), 1);
    assert_int_equal(file_get(path, got, sizeof got), 3);
    assert_memory_equal(got, "old", 3);

    assert_int_equal(gguf_writer_finish(w, path, &e),
                     ST_OK); /* and now there is room: the same writer goes on */
    assert_int_equal(files_in_folder(path), 1);
    struct stat sb;
    assert_int_equal(stat(path, &sb), 0);
    assert_true((size_t)sb.st_size > sizeof data);
    assert_int_equal(gguf_writer_finish(w, "/nonexistent-folder/x.gguf", &e), ST_IO);
    gguf_writer_free(w);
    unlink(path);
}

typedef struct feed {
    const uint8_t *data;
    uint64_t next;  /* where the next piece must begin */
    uint64_t max;   /* of one piece */
    uint64_t stop;  /* from here on there is nothing */
    uint64_t extra; /* given beyond what was asked for */
} feed;

static status feed_piece(void *ctx, uint64_t offset, const void **data, uint64_t *n_bytes, err *e)
{
    feed *f = ctx;
    assert_int_equal(offset, f->next);
    if (offset >= f->stop) {
        return err_set(e, ST_NONFINITE, "p", "no more");
    }
    *data = f->data + offset;
    *n_bytes = (offset + f->max <= 100 ? f->max : 100 - offset) + f->extra;
    f->next = offset + *n_bytes;
    return ST_OK;
}

/* The same bytes as from a tensor in memory, in pieces of any size; a source that fails leaves the target. */
static void test_pieces(void **state)
{
    static uint8_t data[128], want[1024], got[1024];
    char path[512];
    err e;
    snprintf(path, sizeof path, "%s", temp_file("p.gguf"));
    for (size_t i = 0; i < sizeof data; i++) {
        data[i] = (uint8_t)(i + 1);
    }
    gguf_writer *w = writer();
    const uint64_t dims[2] = {10, 10};
    assert_int_equal(gguf_writer_tensor(w, "p", GGUF_TYPE_I8, dims, 2, data, NULL), ST_OK);
    assert_int_equal(gguf_writer_tensor(w, "q", GGUF_TYPE_I8, dims, 2, data, NULL), ST_OK);
    assert_int_equal(gguf_writer_finish(w, path, NULL), ST_OK);
    gguf_writer_free(w);
    size_t n = file_get(path, want, sizeof want);
    assert_memory_equal(want + n - 128, data, 100);
    for (uint64_t max = 1; max <= 100; max += 11) {
        feed f = {.data = data, .max = max, .stop = 100}, g = f;
        w = writer();
        assert_int_equal(gguf_writer_tensor_pieces(w, "p", GGUF_TYPE_I8, dims, 2, feed_piece, &f, NULL),
                         ST_OK);
        assert_int_equal(gguf_writer_tensor_pieces(w, "p", GGUF_TYPE_I8, dims, 2, feed_piece, &f, NULL),
                         ST_INVALID_FIELD);
        assert_int_equal(gguf_writer_tensor_pieces(w, "q", GGUF_TYPE_I8, dims, 2, feed_piece, &g, NULL),
                         ST_OK);
        assert_int_equal(gguf_writer_finish(w, path, NULL), ST_OK);
        assert_int_equal(file_get(path, got, sizeof got), n);
        assert_memory_equal(got, want, n);
        gguf_writer_free(w);
    }
    static const struct {
        uint64_t max, stop, extra;
        status st;
    } bad[] = {{30, 60, 0, ST_NONFINITE}, {0, 100, 0, ST_INTERNAL}, {100, 100, 1, ST_INTERNAL}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        feed f = {.data = data, .max = bad[i].max, .stop = bad[i].stop, .extra = bad[i].extra};
        w = writer();
        assert_int_equal(gguf_writer_tensor_pieces(w, "p", GGUF_TYPE_I8, dims, 2, feed_piece, &f, NULL),
                         ST_OK);
        assert_int_equal(gguf_writer_finish(w, path, &e), bad[i].st);
        assert_string_equal(e.field, "p");
        gguf_writer_free(w);
        assert_int_equal(files_in_folder(path), 1);
        assert_int_equal(file_get(path, got, sizeof got), n);
        assert_memory_equal(got, want, n);
    }
    unlink(path);
}

static status build_all(const char *path)
{
    static const float v[256] = {0};
    static const gguf_str words[] = {{"a", 1}, {"b", 1}};
    gguf_writer *w = NULL;
    status st = gguf_writer_new(&w);
    if (st == ST_OK) {
        st = gguf_writer_u32(w, "u", 1);
    }
    if (st == ST_OK) {
        st = gguf_writer_str_array(w, "s", words, 2);
    }
    for (size_t i = 0; st == ST_OK && i < 200; i++) {
        char name[80];
        snprintf(name, sizeof name, "a tensor with a long name so that the arena needs more than a chunk %zu",
                 i);
        st = gguf_writer_tensor(w, name, GGUF_TYPE_F32, (const uint64_t[]){256}, 1, v, NULL);
    }
    if (st == ST_OK) {
        st = gguf_writer_finish(w, path, NULL);
    }
    gguf_writer_free(w);
    return st;
}

static void test_out_of_memory(void **state)
{
    char path[512];
    snprintf(path, sizeof path, "%s", temp_file("m.gguf"));
    for (uint64_t n = 1;; n++) {
        mem_fail_at(n, false);
        status st = build_all(path);
        mem_fail_at(0, false);
        if (st == ST_OK) {
            assert_true(n > 10);
            break;
        }
        assert_int_equal(st, ST_NOMEM);
        assert_true(files_in_folder(path) <= 1); /* no temporary file stays */
    }
    gguf_file *f = NULL;
    assert_int_equal(gguf_open(path, &f, NULL), ST_OK);
    assert_int_equal(gguf_n_tensors(f), 200);
    gguf_close(f);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),           cmocka_unit_test(test_refused_keys),
        cmocka_unit_test(test_refused_tensors), cmocka_unit_test(test_whole_or_untouched),
        cmocka_unit_test(test_pieces),          cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests_name("gguf-writer", tests, NULL, temp_folder_remove);
}
