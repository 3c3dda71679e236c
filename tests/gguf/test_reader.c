/* reader: what a good file gives. Bad files: test_reader_faults.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <math.h>
#include <sys/stat.h>

#include "base/le.h"
#include "base/mem.h"
#include "fixtures.h"
#include "gguf/raw_gguf.h"
#include "gguf/reader.h"
#include "gguf/writer.h"

static void assert_str(gguf_str got, const char *want, size_t len)
{
    assert_int_equal(got.len, len);
    if (len) {
        assert_memory_equal(got.data, want, len);
    }
}

static void assert_text(const char *whole, const char *part)
{
    if (!strstr(whole, part)) {
        fail_msg("\"%s\" does not say \"%s\"", whole, part);
    }
}

/* One of each scalar type: number in the format, size, bytes as the format lays them out. */
static const struct scalar {
    const char *key;
    gguf_value_type type;
    size_t n_bytes;
    uint8_t bytes[8];
} scalars[] = {
    {"t.u8", GGUF_U8, 1, {0xFE}},
    {"t.i8", GGUF_I8, 1, {0x80}},
    {"t.u16", GGUF_U16, 2, {0x34, 0x12}},
    {"t.i16", GGUF_I16, 2, {0xFF, 0xFF}},
    {"t.u32", GGUF_U32, 4, {0x78, 0x56, 0x34, 0x12}},
    {"t.i32", GGUF_I32, 4, {0xFE, 0xFF, 0xFF, 0xFF}},
    {"t.f32", GGUF_F32, 4, {0x00, 0x00, 0xC0, 0x3F}}, /* 1.5 */
    {"t.bool", GGUF_BOOL, 1, {1}},
    {"t.u64", GGUF_U64, 8, {0, 0, 0, 0, 0, 0, 0, 0x80}},
    {"t.i64", GGUF_I64, 8, {0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}},
    {"t.f64", GGUF_F64, 8, {0, 0, 0, 0, 0, 0, 0x04, 0xC0}}, /* -2.5 */
};
#define N_SCALARS (sizeof scalars / sizeof *scalars)

static gguf_file *open_ok(const char *path)
{
    gguf_file *f = NULL;
    err e;
    err_clear(&e);
    if (gguf_open(path, &f, &e) != ST_OK) {
        fail_msg("%s: %s", path, e.msg);
    }
    return f;
}

static void add_scalars_and_arrays(gguf_writer *w)
{
    for (size_t i = 0; i < N_SCALARS; i++) {
        const struct scalar *s = &scalars[i];
        char key[32];
        uint8_t three[24];
        assert_int_equal(gguf_writer_copy_kv(w, &(gguf_kv){.key = {s->key, strlen(s->key)},
                                                           .type = s->type,
                                                           .elem = s->type,
                                                           .n = 1,
                                                           .data = s->bytes}),
                         ST_OK);
        for (size_t k = 0; k < 3; k++) {
            memcpy(three + k * s->n_bytes, s->bytes, s->n_bytes);
        }
        snprintf(key, sizeof key, "%s.three", s->key);
        assert_int_equal(gguf_writer_array(w, key, s->type, three, 3), ST_OK);
        snprintf(key, sizeof key, "%s.none", s->key);
        assert_int_equal(gguf_writer_array(w, key, s->type, NULL, 0), ST_OK);
    }
}

static void check_scalars_and_arrays(const gguf_file *f)
{
    for (size_t i = 0; i < N_SCALARS; i++) {
        const struct scalar *s = &scalars[i];
        char key[32];
        const gguf_kv *kv = gguf_find(f, s->key);
        assert_non_null(kv);
        assert_int_equal(kv->type, s->type);
        assert_int_equal(kv->n, 1);
        assert_memory_equal(kv->data, s->bytes, s->n_bytes);
        snprintf(key, sizeof key, "%s.three", s->key);
        kv = gguf_find(f, key);
        assert_non_null(kv);
        assert_int_equal(kv->type, GGUF_ARRAY);
        assert_int_equal(kv->elem, s->type);
        assert_int_equal(kv->n, 3);
        for (size_t k = 0; k < 3; k++) {
            assert_memory_equal((const uint8_t *)kv->data + k * s->n_bytes, s->bytes, s->n_bytes);
        }
        snprintf(key, sizeof key, "%s.none", s->key);
        kv = gguf_find(f, key);
        assert_non_null(kv);
        assert_int_equal(kv->n, 0);
        assert_int_equal(kv->elem, s->type);
    }
}

static void test_round_trip(void **state)
{
    static const gguf_str words[] = {{"one", 3}, {"", 0}, {"a\0b", 3}, {"\xff\xfe", 2}};
    static const float values[8] = {0, 1, -1, 2.5f, 1e30f, -0.0f, 3, 4};
    static const uint8_t blocks[2 * 34] = {7};
    gguf_writer *w = NULL;
    assert_int_equal(gguf_writer_new(&w), ST_OK);
    add_scalars_and_arrays(w);
    assert_int_equal(gguf_writer_str(w, "t.str", "x\0y\xff", 4), ST_OK);
    assert_int_equal(gguf_writer_str(w, "t.empty", "", 0), ST_OK);
    assert_int_equal(gguf_writer_str_array(w, "t.words", words, 4), ST_OK);
    assert_int_equal(gguf_writer_str_array(w, "t.nowords", NULL, 0), ST_OK);
    assert_int_equal(
        gguf_writer_tensor(w, "v.weight", GGUF_TYPE_F32, (const uint64_t[]){4, 2}, 2, values, NULL), ST_OK);
    assert_int_equal(
        gguf_writer_tensor(w, "q.weight", GGUF_TYPE_Q8_0, (const uint64_t[]){32, 1, 2}, 3, blocks, NULL),
        ST_OK);
    assert_int_equal(gguf_writer_finish(w, temp_file("a.gguf"), NULL), ST_OK);
    gguf_writer_free(w);

    gguf_file *f = open_ok(temp_file("a.gguf"));
    struct stat sb;
    assert_int_equal(stat(temp_file("a.gguf"), &sb), 0);
    assert_int_equal(gguf_version(f), 3);
    assert_int_equal(gguf_parts(f), 1);
    assert_int_equal(gguf_file_bytes(f), sb.st_size);
    assert_int_equal(gguf_n_kv(f), 3 * N_SCALARS + 4);
    assert_str(gguf_kv_at(f, 0)->key, "t.u8", 4);
    check_scalars_and_arrays(f);
    assert_str(gguf_find(f, "t.str")->strs[0], "x\0y\xff", 4);
    assert_str(gguf_find(f, "t.empty")->strs[0], "", 0);
    const gguf_kv *kv = gguf_find(f, "t.words");
    assert_int_equal(kv->n, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_str(kv->strs[i], words[i].data, words[i].len);
    }
    assert_int_equal(gguf_find(f, "t.nowords")->n, 0);
    assert_null(gguf_find(f, "t.absent"));

    assert_int_equal(gguf_n_tensors(f), 2);
    const gguf_tensor *t = gguf_find_tensor(f, "v.weight");
    assert_ptr_equal(t, gguf_tensor_at(f, 0));
    assert_int_equal(t->n_bytes, sizeof values);
    assert_int_equal(t->offset % 32, 0);
    assert_memory_equal(t->data, values, sizeof values);
    t = gguf_find_tensor(f, "q.weight");
    assert_int_equal(t->type, GGUF_TYPE_Q8_0);
    assert_int_equal(t->n_dims, 3);
    assert_int_equal(t->dims[2], 2);
    assert_int_equal(t->dims[3], 1);
    assert_int_equal(t->n_bytes, sizeof blocks);
    assert_memory_equal(t->data, blocks, sizeof blocks);
    assert_null(gguf_find_tensor(f, "absent"));
    gguf_close(f);
    unlink(temp_file("a.gguf"));
}

/* Versions 2 and 3 have the same layout; laid out by hand, alignment 64, a gap between the tensors, no
 * padding at the end. */
static void test_by_hand(void **state)
{
    for (uint32_t version = 2; version <= 3; version++) {
        raw r = {.len = 0};
        raw_header(&r, version, 2, 2);
        raw_key(&r, "general.alignment", 4);
        raw_u32(&r, 64);
        raw_key(&r, "k", 9);
        raw_u32(&r, 8);
        raw_u64(&r, 1);
        raw_str(&r, "w");
        raw_str(&r, "second");
        raw_u32(&r, 1);
        raw_u64(&r, 3);
        raw_u32(&r, 0);
        raw_u64(&r, 128);
        raw_str(&r, "first");
        raw_u32(&r, 1);
        raw_u64(&r, 2);
        raw_u32(&r, 1);
        raw_u64(&r, 0);
        raw_pad(&r, 64);
        size_t data = r.len;
        raw_u32(&r, 0x3C003800); /* first: 0.5, 1.0 in binary16 */
        while (r.len < data + 128) {
            raw_u8(&r, 0xAA);
        }
        raw_bytes(&r, (const float[]){1, 2, 3}, 12);
        file_put(temp_file("hand.gguf"), r.data, r.len);

        gguf_file *f = open_ok(temp_file("hand.gguf"));
        assert_int_equal(gguf_version(f), version);
        assert_str(gguf_find(f, "k")->strs[0], "w", 1);
        const gguf_tensor *t = gguf_find_tensor(f, "second");
        assert_int_equal(t->offset, data + 128);
        assert_true(lef32_get((const char *)t->data + 8) == 3.0f);
        t = gguf_find_tensor(f, "first");
        assert_int_equal(t->offset, data);
        assert_int_equal(le16_get(t->data), 0x3800);
        gguf_close(f);
    }
    unlink(temp_file("hand.gguf"));
}

static void test_no_tensors(void **state)
{
    raw r = {.len = 0};
    raw_header(&r, 3, 0, 1);
    raw_key(&r, "general.architecture", 8);
    raw_str(&r, "llama");
    file_put(temp_file("v.gguf"), r.data, r.len);
    gguf_file *f = open_ok(temp_file("v.gguf"));
    assert_int_equal(gguf_n_tensors(f), 0);
    gguf_close(f);
    unlink(temp_file("v.gguf"));
}

static gguf_file *getter_file(void)
{
    gguf_writer *w = NULL;
    assert_int_equal(gguf_writer_new(&w), ST_OK);
    add_scalars_and_arrays(w);
    assert_int_equal(gguf_writer_str(w, "t.str", "text", 4), ST_OK);
    assert_int_equal(gguf_writer_f32(w, "t.nan", NAN), ST_OK);
    assert_int_equal(
        gguf_writer_copy_kv(w, &(gguf_kv){.key = {"t.huge", 6}, .type = GGUF_F64, .data = &(double){1e39}}),
        ST_OK);
    assert_int_equal(gguf_writer_array(w, "t.small", GGUF_U32, (const uint32_t[]){0, 7, INT32_MAX}, 3),
                     ST_OK);
    assert_int_equal(gguf_writer_array(w, "t.large", GGUF_U32, (const uint32_t[]){0, 0x80000000u}, 2), ST_OK);
    assert_int_equal(gguf_writer_finish(w, temp_file("g.gguf"), NULL), ST_OK);
    gguf_writer_free(w);
    gguf_file *f = open_ok(temp_file("g.gguf"));
    unlink(temp_file("g.gguf"));
    return f;
}

static void test_get_integers(void **state)
{
    static const struct {
        const char *key;
        status u32, u64;
        uint64_t value;
    } cases[] = {
        {"t.u8", ST_OK, ST_OK, 0xFE},
        {"t.i8", ST_LOAD_FAILED, ST_LOAD_FAILED, 0},
        {"t.u16", ST_OK, ST_OK, 0x1234},
        {"t.i16", ST_LOAD_FAILED, ST_LOAD_FAILED, 0},
        {"t.u32", ST_OK, ST_OK, 0x12345678},
        {"t.i32", ST_LOAD_FAILED, ST_LOAD_FAILED, 0},
        {"t.u64", ST_LOAD_FAILED, ST_OK, UINT64_C(1) << 63},
        {"t.i64", ST_LOAD_FAILED, ST_LOAD_FAILED, 0},
        {"t.f32", ST_LOAD_FAILED, ST_LOAD_FAILED, 0},
        {"t.bool", ST_LOAD_FAILED, ST_LOAD_FAILED, 0},
        {"t.str", ST_LOAD_FAILED, ST_LOAD_FAILED, 0},
        {"t.u32.three", ST_LOAD_FAILED, ST_LOAD_FAILED, 0},
        {"t.absent", ST_NOT_FOUND, ST_NOT_FOUND, 0},
    };
    gguf_file *f = getter_file();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t a = 99;
        uint64_t b = 99;
        err e;
        err_clear(&e);
        assert_int_equal(gguf_get_u32(f, cases[i].key, &a, &e), cases[i].u32);
        assert_true(a == (cases[i].u32 == ST_OK ? cases[i].value : 99));
        if (cases[i].u32 != ST_OK) {
            assert_string_equal(e.field, cases[i].key);
            assert_int_equal(gguf_get_u32(f, cases[i].key, &a, NULL), cases[i].u32);
        }
        assert_int_equal(gguf_get_u64(f, cases[i].key, &b, &e), cases[i].u64);
        assert_true(b == (cases[i].u64 == ST_OK ? cases[i].value : 99));
    }
    gguf_close(f);
}

static void test_get_others(void **state)
{
    gguf_file *f = getter_file();
    float x = 9;
    bool b = false;
    gguf_str s = {NULL, 0};
    const gguf_kv *kv = NULL;
    err e;
    assert_int_equal(gguf_get_f32(f, "t.f32", &x, &e), ST_OK);
    assert_true(x == 1.5f);
    assert_int_equal(gguf_get_f32(f, "t.f64", &x, &e), ST_OK);
    assert_true(x == -2.5f);
    assert_int_equal(gguf_get_f32(f, "t.nan", &x, &e), ST_LOAD_FAILED);
    assert_int_equal(gguf_get_f32(f, "t.huge", &x, &e), ST_LOAD_FAILED);
    assert_int_equal(gguf_get_f32(f, "t.u32", &x, &e), ST_LOAD_FAILED);
    assert_text(e.msg, "u32");
    assert_text(e.msg, "f32");
    assert_int_equal(e.offset, gguf_find(f, "t.u32")->offset);
    assert_true(x == -2.5f);
    assert_int_equal(gguf_get_bool(f, "t.bool", &b, &e), ST_OK);
    assert_true(b);
    assert_int_equal(gguf_get_bool(f, "t.u8", &b, &e), ST_LOAD_FAILED);
    assert_int_equal(gguf_get_bool(f, "t.absent", &b, &e), ST_NOT_FOUND);
    assert_int_equal(gguf_get_str(f, "t.str", &s, &e), ST_OK);
    assert_str(s, "text", 4);
    assert_int_equal(gguf_get_str(f, "t.u8", &s, &e), ST_LOAD_FAILED);
    assert_int_equal(gguf_get_array(f, "t.f32.three", GGUF_F32, &kv, &e), ST_OK);
    assert_int_equal(kv->n, 3);
    assert_int_equal(gguf_get_array(f, "t.f32", GGUF_F32, &kv, &e), ST_LOAD_FAILED);
    assert_int_equal(gguf_get_array(f, "t.f32.three", GGUF_I32, &kv, &e), ST_LOAD_FAILED);
    assert_text(e.msg, "array of i32");
    assert_int_equal(gguf_get_array(f, "t.small", GGUF_I32, &kv, &e), ST_OK);
    assert_int_equal(gguf_get_array(f, "t.large", GGUF_I32, &kv, &e), ST_LOAD_FAILED);
    assert_string_equal(e.field, "t.large");
    assert_int_equal(gguf_get_array(f, "t.i32.three", GGUF_U32, &kv, &e), ST_LOAD_FAILED); /* -2 */
    assert_int_equal(gguf_get_array(f, "t.absent", GGUF_U32, &kv, &e), ST_NOT_FOUND);
    gguf_close(f);
}

static void test_value_type_names(void **state)
{
    assert_string_equal(gguf_value_type_name(GGUF_U8), "u8");
    assert_string_equal(gguf_value_type_name(GGUF_STR), "string");
    assert_string_equal(gguf_value_type_name(GGUF_F64), "f64");
    assert_string_equal(gguf_value_type_name((gguf_value_type)13), "unknown");
}

static void test_changed(void **state)
{
    raw r = {.len = 0};
    raw_header(&r, 3, 0, 0);
    const char *names[] = {"grown.gguf", "replaced.gguf", "removed.gguf"};
    for (size_t i = 0; i < 3; i++) {
        char path[512], other[512];
        snprintf(path, sizeof path, "%s", temp_file(names[i]));
        snprintf(other, sizeof other, "%s", temp_file("other.gguf"));
        file_put(path, r.data, r.len);
        gguf_file *f = open_ok(path);
        assert_false(gguf_changed(f));
        if (i == 0) {
            assert_int_equal(truncate(path, 4096), 0);
        } else if (i == 1) { /* a hard link keeps the old inode alive */
            assert_int_equal(link(path, other), 0);
            assert_int_equal(unlink(path), 0);
            file_put(path, r.data, r.len);
            assert_int_equal(unlink(other), 0);
        } else {
            assert_int_equal(unlink(path), 0);
        }
        assert_true(gguf_changed(f));
        gguf_close(f);
        unlink(path);
    }
}

/* What the manifests of the fixtures say about the files, and that every file there opens. */
static void test_stories(void **state)
{
    const char *path = fixture_path("stories260K.gguf");
    if (!path) {
        skip();
    }
    gguf_file *f = open_ok(path);
    uint32_t v = 0;
    gguf_str s;
    float eps = 0;
    static const struct {
        const char *key;
        uint32_t value;
    } sizes[] = {
        {"llama.block_count", 5},           {"llama.embedding_length", 64},
        {"llama.attention.head_count", 8},  {"llama.attention.head_count_kv", 4},
        {"llama.feed_forward_length", 172}, {"llama.context_length", 512},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        assert_int_equal(gguf_get_u32(f, sizes[i].key, &v, NULL), ST_OK);
        assert_int_equal(v, sizes[i].value);
    }
    assert_int_equal(gguf_get_str(f, "general.architecture", &s, NULL), ST_OK);
    assert_str(s, "llama", 5);
    assert_int_equal(gguf_get_f32(f, "llama.attention.layer_norm_rms_epsilon", &eps, NULL), ST_OK);
    assert_true(eps == 1e-5f);
    assert_int_equal(gguf_find(f, "tokenizer.ggml.tokens")->n, 512);
    const gguf_tensor *embd = gguf_find_tensor(f, "token_embd.weight");
    const gguf_tensor *out = gguf_find_tensor(f, "output.weight");
    assert_int_equal(embd->dims[0], 64);
    assert_int_equal(embd->dims[1], 512);
    assert_int_equal(embd->type, GGUF_TYPE_F32);
    assert_int_equal(embd->n_bytes, out->n_bytes);
    assert_memory_equal(embd->data, out->data, embd->n_bytes);
    gguf_close(f);
}

static void test_fixtures_open(void **state)
{
    static const char *const folders[] = {"arch", "tokenizers"};
    size_t opened = 0;
    for (size_t i = 0; i < 2; i++) {
        const char *found = fixture_path(folders[i]);
        if (!found) {
            skip();
        }
        char folder[4096];
        snprintf(folder, sizeof folder, "%s", found);
        DIR *dir = opendir(folder);
        assert_non_null(dir);
        for (struct dirent *entry; (entry = readdir(dir));) {
            size_t len = strlen(entry->d_name);
            if (len < 5 || strcmp(entry->d_name + len - 5, ".gguf") != 0) {
                continue;
            }
            char path[8192];
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
            gguf_file *f = open_ok(path);
            assert_true(gguf_n_kv(f) > 0);
            gguf_close(f);
            opened++;
        }
        closedir(dir);
    }
    assert_true(opened >= 20);
}

/* The n-th allocation fails, for every n until none does. */
static void test_out_of_memory(void **state)
{
    gguf_file *f = getter_file();
    gguf_writer *w = NULL;
    assert_int_equal(gguf_writer_new(&w), ST_OK);
    for (size_t i = 0; i < gguf_n_kv(f); i++) {
        assert_int_equal(gguf_writer_copy_kv(w, gguf_kv_at(f, i)), ST_OK);
    }
    for (size_t i = 0; i < 700; i++) { /* enough for more than one chunk of the arena */
        char name[32];
        snprintf(name, sizeof name, "t%zu", i);
        assert_int_equal(gguf_writer_tensor(w, name, GGUF_TYPE_F32, (const uint64_t[]){1}, 1, "\0\0\0", NULL),
                         ST_OK);
    }
    assert_int_equal(gguf_writer_finish(w, temp_file("m.gguf"), NULL), ST_OK);
    gguf_writer_free(w);
    gguf_close(f);
    f = NULL;
    for (int sticky = 0; sticky < 2; sticky++) {
        uint64_t n = 1;
        for (;; n++) {
            err e;
            err_clear(&e);
            mem_fail_at(n, sticky != 0);
            status st = gguf_open(temp_file("m.gguf"), &f, &e);
            mem_fail_at(0, false);
            if (st == ST_OK) {
                break;
            }
            assert_int_equal(st, ST_NOMEM);
            assert_int_equal(e.code, ST_NOMEM);
            assert_null(f);
        }
        assert_true(n > 5);
        assert_int_equal(gguf_n_tensors(f), 700);
        gguf_close(f);
        f = NULL;
    }
    unlink(temp_file("m.gguf"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),    cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_no_tensors),    cmocka_unit_test(test_get_integers),
        cmocka_unit_test(test_get_others),    cmocka_unit_test(test_value_type_names),
        cmocka_unit_test(test_changed),       cmocka_unit_test(test_stories),
        cmocka_unit_test(test_fixtures_open), cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests_name("gguf-reader", tests, NULL, temp_folder_remove);
}
