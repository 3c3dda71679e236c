/*
 * reader, FAILURES I5: a good file, one thing wrong at a time. Every load must fail, name the key or tensor,
 * and tell the byte. All of it is done on the file as it is and on the same file grown to 40 GB without data
 * (sparse).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <time.h>

#include "gguf/raw_gguf.h"
#include "gguf/reader.h"

#define SPARSE_BYTES  (UINT64_C(40) << 30)
#define TEXT_BYTES    3200 /* makes the table longer than most of the 4 KiB that are cut byte by byte */
#define MAX_RECORDS   16
#define OPEN_LIMIT_NS 2000000000ll /* reading 40 GB would take far longer; a busy machine does not */

/* Places in the good file that the faults patch. */
typedef enum mark {
    M_MAGIC,
    M_VERSION,
    M_N_TENSORS,
    M_N_KV,
    M_ARCH_TYPE,
    M_ALIGN_KEY,
    M_ALIGN,
    M_FLAG,
    M_FLAGS,
    M_LIST_ELEM,
    M_LIST_N,
    M_WORDS_ELEM,
    M_WORDS_N,
    M_WORD_LEN,
    M_BRAVO_LEN,
    M_BRAVO_NAME,
    M_TEXT_TYPE,
    M_TEXT_LEN,
    M_BLOCKS_TYPE,
    M_A_NAME_LEN,
    M_A_N_DIMS,
    M_A_DIM0,
    M_A_DIM1,
    M_A_TYPE,
    M_B_NAME_LEN,
    M_B_NAME,
    M_B_DIM0,
    M_B_OFFSET,
    M_C_OFFSET,
    M_COUNT
} mark;

typedef struct good_file {
    raw r;
    size_t at[M_COUNT];
    /* for truncation: where each record and its name end, and the name */
    size_t n_records;
    struct record {
        const char *name;
        const char *kind;
        size_t index;
        size_t name_end;
        size_t end;
    } records[MAX_RECORDS];
    size_t table_end;
    size_t data_start;
    size_t whole; /* bytes that are needed; only padding follows */
} good_file;

static void record_begin(good_file *g, const char *kind, size_t index, const char *name)
{
    struct record *rec = &g->records[g->n_records++];
    assert_true(g->n_records <= MAX_RECORDS);
    *rec = (struct record){name, kind, index, g->r.len + 8 + strlen(name), 0};
}

static void record_end(good_file *g)
{
    g->records[g->n_records - 1].end = g->r.len;
}

static void good_pairs(good_file *g)
{
    raw *r = &g->r;
    static char text[TEXT_BYTES + 1];
    memset(text, 'x', TEXT_BYTES);
    record_begin(g, "key", 0, "general.architecture");
    g->at[M_ARCH_TYPE] = r->len + 8 + strlen("general.architecture");
    raw_key(r, "general.architecture", 8);
    raw_str(r, "llama");
    record_end(g);
    record_begin(g, "key", 1, "general.alignment");
    g->at[M_ALIGN_KEY] = r->len;
    raw_key(r, "general.alignment", 4);
    g->at[M_ALIGN] = r->len;
    raw_u32(r, 32);
    record_end(g);
    record_begin(g, "key", 2, "test.flag");
    raw_key(r, "test.flag", 7);
    g->at[M_FLAG] = r->len;
    raw_u8(r, 1);
    record_end(g);
    record_begin(g, "key", 3, "test.flags");
    raw_key(r, "test.flags", 9);
    raw_u32(r, 7);
    raw_u64(r, 3);
    g->at[M_FLAGS] = r->len;
    raw_bytes(r, (const uint8_t[]){0, 1, 1}, 3);
    record_end(g);
    record_begin(g, "key", 4, "test.list");
    raw_key(r, "test.list", 9);
    g->at[M_LIST_ELEM] = r->len;
    raw_u32(r, 4);
    g->at[M_LIST_N] = r->len;
    raw_u64(r, 2);
    raw_u64(r, 0x0000000200000001u);
    record_end(g);
    record_begin(g, "key", 5, "test.words");
    raw_key(r, "test.words", 9);
    g->at[M_WORDS_ELEM] = r->len;
    raw_u32(r, 8);
    g->at[M_WORDS_N] = r->len;
    raw_u64(r, 2);
    raw_str(r, "one");
    g->at[M_WORD_LEN] = r->len;
    raw_str(r, "two");
    record_end(g);
    record_begin(g, "key", 6, "test.alpha");
    raw_key(r, "test.alpha", 4);
    raw_u32(r, 1);
    record_end(g);
    record_begin(g, "key", 7, "test.bravo");
    g->at[M_BRAVO_LEN] = r->len;
    g->at[M_BRAVO_NAME] = r->len + 8;
    raw_key(r, "test.bravo", 4);
    raw_u32(r, 2);
    record_end(g);
    record_begin(g, "key", 8, "test.text");
    g->at[M_TEXT_TYPE] = r->len + 8 + strlen("test.text");
    raw_key(r, "test.text", 8);
    g->at[M_TEXT_LEN] = r->len;
    raw_str(r, text);
    record_end(g);
    record_begin(g, "key", 9, "llama.block_count");
    g->at[M_BLOCKS_TYPE] = r->len + 8 + strlen("llama.block_count");
    raw_key(r, "llama.block_count", 4);
    raw_u32(r, 1);
    record_end(g);
}

static void good_tensors(good_file *g)
{
    raw *r = &g->r;
    record_begin(g, "tensor", 0, "a.weight");
    g->at[M_A_NAME_LEN] = r->len;
    raw_str(r, "a.weight");
    g->at[M_A_N_DIMS] = r->len;
    raw_u32(r, 2);
    g->at[M_A_DIM0] = r->len;
    raw_u64(r, 8);
    g->at[M_A_DIM1] = r->len;
    raw_u64(r, 4);
    g->at[M_A_TYPE] = r->len;
    raw_u32(r, 0); /* F32: 128 bytes at 0 */
    raw_u64(r, 0);
    record_end(g);
    record_begin(g, "tensor", 1, "b.weight");
    g->at[M_B_NAME_LEN] = r->len;
    g->at[M_B_NAME] = r->len + 8;
    raw_str(r, "b.weight");
    raw_u32(r, 2);
    g->at[M_B_DIM0] = r->len;
    raw_u64(r, 64);
    raw_u64(r, 2);
    raw_u32(r, 8); /* Q8_0: 136 bytes at 128 */
    g->at[M_B_OFFSET] = r->len;
    raw_u64(r, 128);
    record_end(g);
    record_begin(g, "tensor", 2, "c.weight");
    raw_str(r, "c.weight");
    raw_u32(r, 1);
    raw_u64(r, 160);
    raw_u32(r, 1); /* F16: 320 bytes at 288 */
    g->at[M_C_OFFSET] = r->len;
    raw_u64(r, 288);
    record_end(g);
}

static void good_build(good_file *g)
{
    memset(g, 0, sizeof *g);
    raw_header(&g->r, 3, 3, 10);
    g->at[M_MAGIC] = 0;
    g->at[M_VERSION] = 4;
    g->at[M_N_TENSORS] = 8;
    g->at[M_N_KV] = 16;
    good_pairs(g);
    good_tensors(g);
    g->table_end = g->r.len;
    raw_pad(&g->r, 32);
    g->data_start = g->r.len;
    for (size_t i = 0; i < 288 + 320; i++) {
        raw_u8(&g->r, 0x11);
    }
    g->whole = g->r.len;
    raw_pad(&g->r, 32);
}

typedef struct outcome {
    status st;
    err e;
    long long ns;
} outcome;

/* grow_to 0: as it is. Returns false if the filesystem cannot hold such a file. */
static bool load(const raw *r, uint64_t grow_to, outcome *o)
{
    struct timespec t0, t1;
    gguf_file *f = NULL;
    const char *path = temp_file("fault.gguf");
    file_put(path, r->data, r->len);
    if (grow_to && truncate(path, (off_t)grow_to) != 0) {
        unlink(path);
        return false;
    }
    memset(o, 0, sizeof *o);
    clock_gettime(CLOCK_MONOTONIC, &t0);
    o->st = gguf_open(path, &f, &o->e);
    clock_gettime(CLOCK_MONOTONIC, &t1);
    o->ns = (t1.tv_sec - t0.tv_sec) * 1000000000ll + (t1.tv_nsec - t0.tv_nsec);
    if (o->st == ST_OK) {
        gguf_close(f);
    } else {
        assert_null(f);
    }
    unlink(path);
    return true;
}

static void skip_sparse(void)
{
    fprintf(stderr,
            "SKIPPED: sparse files absent (this filesystem cannot hold a file of 40 GB; set TMPDIR)\n");
    skip();
}

typedef struct fault {
    const char *what;
    mark at;
    size_t width; /* bytes patched: 1, 4 or 8 */
    uint64_t value;
    const char *field;
    mark told;  /* err.offset must be in the record of the named thing, or exactly here */
    bool exact; /* offset is exactly at[told] */
    const char *says;
} fault;

static const fault faults[] = {
    /* the fixed part */
    {"other magic", M_MAGIC, 4, 0x46554747u + 1, "header", M_MAGIC, true, "not a gguf file"},
    {"version 1", M_VERSION, 4, 1, "header", M_VERSION, true, "version 1"},
    {"version 4", M_VERSION, 4, 4, "header", M_VERSION, true, "version 4"},
    {"big-endian", M_VERSION, 4, 0x03000000, "header", M_VERSION, true, "big-endian"},
    {"version 0", M_VERSION, 4, 0, "header", M_VERSION, true, "version 0"},
    {"too many tensors", M_N_TENSORS, 8, UINT64_MAX, "header", M_N_TENSORS, true, "limit"},
    {"too many keys", M_N_KV, 8, UINT64_C(1) << 63, "header", M_N_TENSORS, true, "limit"},
    /* keys */
    {"alignment 0", M_ALIGN, 4, 0, "general.alignment", M_ALIGN_KEY, true, "is 0"},
    {"alignment 33", M_ALIGN, 4, 33, "general.alignment", M_ALIGN_KEY, true, "power of two"},
    {"alignment 2^17", M_ALIGN, 4, 1u << 17, "general.alignment", M_ALIGN_KEY, true, "is 131072"},
    {"alignment 2^31", M_ALIGN, 4, 1u << 31, "general.alignment", M_ALIGN_KEY, true, "is 2147483648"},
    {"bool 2", M_FLAG, 1, 2, "test.flag", M_FLAG, true, "is 2"},
    {"bool 255 in an array", M_FLAGS, 1, 255, "test.flags", M_FLAGS, true, "is 255"},
    {"element type 13", M_LIST_ELEM, 4, 13, "test.list", M_LIST_ELEM, true, "13"},
    {"array of arrays", M_LIST_ELEM, 4, 9, "test.list", M_LIST_ELEM, true, "array of arrays"},
    {"array near 2^64", M_LIST_N, 8, UINT64_MAX - 3, "test.list", M_LIST_N, true, "limit"},
    {"array whose bytes overflow", M_LIST_N, 8, (UINT64_C(1) << 62) + 1, "test.list", M_LIST_N, true,
     "limit"},
    {"array of 1 GiB", M_LIST_N, 8, UINT64_C(1) << 30, "test.list", M_LIST_N, true, "1073741824"},
    {"string array near 2^64", M_WORDS_N, 8, UINT64_MAX, "test.words", M_WORDS_N, true, "limit"},
    {"string array of 1 GiB", M_WORDS_N, 8, UINT64_C(1) << 30, "test.words", M_WORDS_N, true, "1073741824"},
    {"string array over its own limit", M_WORDS_N, 8, 50u << 20, "test.words", M_WORD_LEN, false, "52428800"},
    {"word near 2^64", M_WORD_LEN, 8, UINT64_MAX, "test.words", M_WORD_LEN, true, "limit"},
    {"word of 1 GiB", M_WORD_LEN, 8, UINT64_C(1) << 30, "test.words", M_WORD_LEN, true, "1073741824"},
    {"empty key", M_BRAVO_LEN, 8, 0, "key 7", M_BRAVO_LEN, true, "empty"},
    {"key near 2^64", M_BRAVO_LEN, 8, UINT64_MAX - 7, "key 7", M_BRAVO_LEN, true, "limit"},
    {"key of 1 GiB", M_BRAVO_LEN, 8, UINT64_C(1) << 30, "key 7", M_BRAVO_LEN, true, "1073741824"},
    {"duplicate key", M_BRAVO_NAME, 0, 0, "test.alpha", M_BRAVO_LEN, true, "twice"}, /* see fault_apply */
    {"bad utf-8 in a key", M_BRAVO_NAME, 1, 0xC0, NULL, M_BRAVO_NAME, true, "utf-8"},
    {"nul in a key", M_BRAVO_NAME, 1, 0, NULL, M_BRAVO_LEN, true, "nul"},
    {"value type 13", M_TEXT_TYPE, 4, 13, "test.text", M_TEXT_TYPE, true, "13"},
    {"value type 2^31", M_TEXT_TYPE, 4, 1u << 31, "test.text", M_TEXT_TYPE, true, "2147483648"},
    {"string near 2^64", M_TEXT_LEN, 8, UINT64_MAX - 15, "test.text", M_TEXT_LEN, true, "limit"},
    {"string of 1 GiB", M_TEXT_LEN, 8, UINT64_C(1) << 30, "test.text", M_TEXT_LEN, true, "1073741824"},
    {"known key of another type", M_BLOCKS_TYPE, 4, 6, "llama.block_count", M_BLOCKS_TYPE, false, "f32"},
    /* tensors */
    {"empty tensor name", M_A_NAME_LEN, 8, 0, "tensor 0", M_A_NAME_LEN, true, "empty"},
    {"tensor name of 1 GiB", M_A_NAME_LEN, 8, UINT64_C(1) << 30, "tensor 0", M_A_NAME_LEN, true,
     "1073741824"},
    {"no dimensions", M_A_N_DIMS, 4, 0, "a.weight", M_A_N_DIMS, true, "0 dimensions"},
    {"5 dimensions", M_A_N_DIMS, 4, 5, "a.weight", M_A_N_DIMS, true, "5 dimensions"},
    {"2^32-1 dimensions", M_A_N_DIMS, 4, UINT32_MAX, "a.weight", M_A_N_DIMS, true, "4294967295"},
    {"dimension 0", M_A_DIM0, 8, 0, "a.weight", M_A_DIM0, true, "is 0"},
    {"second dimension 0", M_A_DIM1, 8, 0, "a.weight", M_A_DIM1, true, "is 0"},
    {"dimension 2^42+1", M_A_DIM0, 8, (UINT64_C(1) << 42) + 1, "a.weight", M_A_DIM0, true, "4398046511105"},
    {"dimension 2^64-1", M_A_DIM1, 8, UINT64_MAX, "a.weight", M_A_DIM1, true, "18446744073709551615"},
    {"dimension 2^42", M_A_DIM0, 8, UINT64_C(1) << 42, "a.weight", M_A_NAME_LEN, true, "end after"},
    {"removed type 4", M_A_TYPE, 4, 4, "a.weight", M_A_TYPE, true, "type 4"},
    {"removed type 31", M_A_TYPE, 4, 31, "a.weight", M_A_TYPE, true, "type 31"},
    {"unknown type 43", M_A_TYPE, 4, 43, "a.weight", M_A_TYPE, true, "type 43"},
    {"unknown type 2^32-1", M_A_TYPE, 4, UINT32_MAX, "a.weight", M_A_TYPE, true, "4294967295"},
    {"row that is not whole blocks", M_A_TYPE, 4, 2, "a.weight", M_A_TYPE, true, "Q4_0"},
    {"duplicate tensor", M_B_NAME, 1, 'a', "a.weight", M_B_NAME_LEN, true, "twice"},
    {"row of 63 in Q8_0", M_B_DIM0, 8, 63, "b.weight", M_B_OFFSET, false, "63"},
    {"unaligned offset", M_B_OFFSET, 8, 130, "b.weight", M_B_NAME_LEN, true, "multiple"},
    {"overlap with the one before", M_B_OFFSET, 8, 96, "b.weight", M_B_NAME_LEN, true,
     "overlaps tensor a.weight"},
    {"same offset as another", M_C_OFFSET, 8, 0, NULL, M_COUNT, false, "overlaps"},
    {"overlap with the one after", M_B_OFFSET, 8, 160, "c.weight", M_COUNT, false,
     "overlaps tensor b.weight"},
    {"offset near 2^64", M_B_OFFSET, 8, UINT64_MAX - 31, "b.weight", M_B_NAME_LEN, true, "end after"},
    {"offset 2^63", M_C_OFFSET, 8, UINT64_C(1) << 63, "c.weight", M_COUNT, false, "end after"},
    {"offset after a file of 40 GB", M_C_OFFSET, 8, UINT64_C(40) << 30, "c.weight", M_COUNT, false,
     "end after"},
};

static void fault_apply(good_file *g, const fault *f)
{
    memcpy(g->r.data + g->at[f->at], &f->value, f->width);
    if (strcmp(f->what, "duplicate key") == 0) {
        memcpy(g->r.data + g->at[M_BRAVO_NAME], "test.alpha", 10);
    }
}

static void fault_check(const good_file *g, const fault *f, const outcome *o)
{
    if (o->st != ST_LOAD_FAILED) {
        fail_msg("%s: %s %s", f->what, status_name(o->st), o->e.msg);
    }
    if (!o->e.field[0] || (f->field && strcmp(o->e.field, f->field) != 0)) {
        fail_msg("%s: field is \"%s\": %s", f->what, o->e.field, o->e.msg);
    }
    if (o->e.offset == ERR_NO_OFFSET || o->e.offset > g->table_end ||
        (f->exact && o->e.offset != g->at[f->told])) {
        fail_msg("%s: offset is %llu, not %zu: %s", f->what, (unsigned long long)o->e.offset, g->at[f->told],
                 o->e.msg);
    }
    if (f->says && !strstr(o->e.msg, f->says)) {
        fail_msg("%s: message does not say %s: %s", f->what, f->says, o->e.msg);
    }
    if (!strstr(o->e.msg, o->e.field)) {
        fail_msg("%s: message does not name %s: %s", f->what, o->e.field, o->e.msg);
    }
}

static void run_faults(uint64_t grow_to)
{
    static good_file g;
    outcome o;
    good_build(&g);
    if (!load(&g.r, grow_to, &o)) {
        skip_sparse();
    }
    if (o.st != ST_OK) {
        fail_msg("the good file: %s", o.e.msg);
    }
    assert_true(o.ns < OPEN_LIMIT_NS);
    if (grow_to) {
        print_message("a sparse file of 40 GB opened in %.3f ms\n", (double)o.ns / 1e6);
    }
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        good_build(&g);
        fault_apply(&g, &faults[i]);
        assert_true(load(&g.r, grow_to, &o));
        fault_check(&g, &faults[i], &o);
        assert_true(o.ns < OPEN_LIMIT_NS);
    }
}

static void test_faults(void **state)
{
    run_faults(0);
}

static void test_faults_sparse(void **state)
{
    run_faults(SPARSE_BYTES);
}

/* Errors can be passed over: the same without an err. */
static void test_faults_without_err(void **state)
{
    static good_file g;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        gguf_file *f = NULL;
        good_build(&g);
        fault_apply(&g, &faults[i]);
        file_put(temp_file("quiet.gguf"), g.r.data, g.r.len);
        assert_int_equal(gguf_open(temp_file("quiet.gguf"), &f, NULL), ST_LOAD_FAILED);
        assert_null(f);
    }
    unlink(temp_file("quiet.gguf"));
}

/* Who must be named when the file ends after `cut` bytes. */
static void expected_name(const good_file *g, size_t cut, char *out, size_t size)
{
    static const struct {
        const char *name;
        size_t end;
    } data[] = {{"a.weight", 128}, {"b.weight", 128 + 136}, {"c.weight", 288 + 320}};
    if (cut < 24) {
        snprintf(out, size, "header");
        return;
    }
    for (size_t i = 0; i < g->n_records; i++) {
        const struct record *rec = &g->records[i];
        if (cut < rec->name_end) {
            snprintf(out, size, "%s %zu", rec->kind, rec->index);
            return;
        }
        if (cut < rec->end) {
            snprintf(out, size, "%s", rec->name);
            return;
        }
    }
    for (size_t i = 0; i < 3; i++) {
        if (cut < g->data_start + data[i].end) {
            snprintf(out, size, "%s", data[i].name);
            return;
        }
    }
    out[0] = 0;
}

static void test_truncation(void **state)
{
    static good_file g;
    good_build(&g);
    assert_true(g.r.len > 4096 && g.table_end < 4096);
    const char *path = temp_file("cut.gguf");
    file_put(path, g.r.data, g.r.len);
    for (size_t cut = g.r.len; cut-- > 0;) { /* the first 4 KiB and what is behind */
        gguf_file *f = NULL;
        char name[64];
        err e;
        err_clear(&e);
        assert_int_equal(truncate(path, (off_t)cut), 0);
        status st = gguf_open(path, &f, &e);
        expected_name(&g, cut, name, sizeof name);
        if (cut >= g.whole) {
            assert_int_equal(st, ST_OK);
            gguf_close(f);
            continue;
        }
        if (st != ST_LOAD_FAILED || strcmp(e.field, name) != 0 || e.offset > cut) {
            fail_msg("cut at %zu: %s, \"%s\" named, not \"%s\", offset %llu: %s", cut, status_name(st),
                     e.field, name, (unsigned long long)e.offset, e.msg);
        }
    }
    unlink(path);
}

/* Cut, then 40 GB of nothing: zeros follow, so some cuts leave a file that says less but is whole. The file
 * is grown once; a cut one byte earlier is one more byte set to zero. */
static void test_truncation_sparse(void **state)
{
    static good_file g;
    good_build(&g);
    const char *path = temp_file("cut.gguf");
    file_put(path, g.r.data, g.r.len);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    if (ftruncate(fd, (off_t)SPARSE_BYTES) != 0) {
        close(fd);
        unlink(path);
        skip_sparse();
    }
    size_t loaded = 0;
    for (size_t cut = g.r.len; cut-- > 0;) {
        gguf_file *f = NULL;
        err e;
        err_clear(&e);
        assert_int_equal(pwrite(fd, "", 1, (off_t)cut), 1);
        status st = gguf_open(path, &f, &e);
        if (st == ST_OK) {
            loaded++;
            gguf_close(f);
        } else if (st != ST_LOAD_FAILED || !e.field[0] || e.offset > g.table_end) {
            fail_msg("cut at %zu: %s, field \"%s\": %s", cut, status_name(st), e.field, e.msg);
        }
        if (cut >= g.table_end) {
            assert_int_equal(st, ST_OK);
        }
        if (cut >= 24 && cut < g.records[0].end) { /* a key cut short is followed by empty keys */
            assert_int_equal(st, ST_LOAD_FAILED);
        }
    }
    assert_true(loaded < g.r.len);
    close(fd);
    unlink(path);
}

/* Keys whose type is fixed, each with a type that it must not have. The value types are those of the format.
 */
static void test_known_keys(void **state)
{
    enum { U8 = 0, U32 = 4, I32 = 5, F32 = 6, BOOL = 7, STR = 8, ARRAY = 9 };
    static const struct {
        const char *key;
        uint32_t type;
        uint32_t elem;
    } cases[] = {
        {"general.architecture", U32, 0},
        {"general.alignment", STR, 0},
        {"general.alignment", F32, 0},
        {"general.alignment", ARRAY, U32},
        {"general.file_type", STR, 0},
        {"general.quantization_version", BOOL, 0},
        {"general.name", U8, 0},
        {"general.sampling.temp", STR, 0},
        {"split.no", STR, 0},
        {"split.count", BOOL, 0},
        {"split.tensors.count", F32, 0},
        {"tokenizer.ggml.model", ARRAY, STR},
        {"tokenizer.ggml.pre", U32, 0},
        {"tokenizer.ggml.tokens", STR, 0},
        {"tokenizer.ggml.tokens", ARRAY, U32},
        {"tokenizer.ggml.scores", ARRAY, STR},
        {"tokenizer.ggml.scores", ARRAY, I32},
        {"tokenizer.ggml.token_type", ARRAY, F32},
        {"tokenizer.ggml.token_type", U32, 0},
        {"tokenizer.ggml.merges", ARRAY, U8},
        {"tokenizer.ggml.bos_token_id", STR, 0},
        {"tokenizer.ggml.eos_token_id", ARRAY, U32},
        {"tokenizer.ggml.fim_pre_token_id", F32, 0},
        {"tokenizer.ggml.add_bos_token", U32, 0},
        {"tokenizer.ggml.add_space_prefix", STR, 0},
        {"tokenizer.chat_template", ARRAY, STR},
        {"tokenizer.chat_template.tool_use", U32, 0},
        {"llama.context_length", STR, 0},
        {"llama.embedding_length", ARRAY, U32},
        {"llama.block_count", F32, 0},
        {"llama.feed_forward_length", ARRAY, F32},
        {"llama.attention.head_count", BOOL, 0},
        {"llama.attention.layer_norm_rms_epsilon", U32, 0},
        {"llama.rope.freq_base", STR, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static raw r;
        outcome o;
        bool is_arch = strcmp(cases[i].key, "general.architecture") == 0;
        r.len = 0;
        raw_header(&r, 3, 0, is_arch ? 1 : 2);
        if (!is_arch) {
            raw_key(&r, "general.architecture", STR);
            raw_str(&r, "llama");
        }
        size_t at = r.len;
        raw_key(&r, cases[i].key, cases[i].type);
        if (cases[i].type == ARRAY) {
            raw_u32(&r, cases[i].elem);
        }
        raw_u64(&r, 0); /* a scalar of up to 8 bytes, an empty string, an empty array */
        assert_true(load(&r, 0, &o));
        if (o.st != ST_LOAD_FAILED || strcmp(o.e.field, cases[i].key) != 0 || o.e.offset != at ||
            !strstr(o.e.msg, "it must be")) {
            fail_msg("%s of type %u: %s, field %s: %s", cases[i].key, cases[i].type, status_name(o.st),
                     o.e.field, o.e.msg);
        }
    }
}

static void expect_failure(const char *path, status st, const char *says)
{
    gguf_file *f = NULL;
    err e;
    err_clear(&e);
    status got = gguf_open(path, &f, &e);
    assert_null(f);
    if (got != st || !strstr(e.msg, says)) {
        fail_msg("%s: %s: %s", path, status_name(got), e.msg);
    }
}

/* None of these may hang or be read. */
static void test_not_a_file(void **state)
{
    char path[512];
    expect_failure(temp_file("absent.gguf"), ST_NOT_FOUND, "absent.gguf");
    expect_failure("/", ST_LOAD_FAILED, "a directory");
    expect_failure("/dev/zero", ST_LOAD_FAILED, "a character device");
    expect_failure("/dev/null", ST_LOAD_FAILED, "a character device");
    snprintf(path, sizeof path, "%s", temp_file("fifo.gguf"));
    assert_int_equal(mkfifo(path, 0600), 0);
    expect_failure(path, ST_LOAD_FAILED, "a pipe");
    unlink(path);
    file_put(path, "", 0);
    expect_failure(path, ST_LOAD_FAILED, "empty");
    file_put(path, "GG", 2);
    expect_failure(path, ST_LOAD_FAILED, "header");
    file_put(path, "PK\3\4 something else entirely", 28);
    expect_failure(path, ST_LOAD_FAILED, "not a gguf file");
    if (geteuid() != 0) {
        assert_int_equal(chmod(path, 0), 0);
        expect_failure(path, ST_IO, "cannot open");
    }
    unlink(path);
}

/* Many records promised by a small file, and very many tensors in a large one. */
static void test_false_counts(void **state)
{
    static raw r;
    outcome o;
    r.len = 0;
    raw_header(&r, 3, GGUF_MAX_TENSORS, GGUF_MAX_KEYS);
    raw_key(&r, "k", 4);
    raw_u32(&r, 1);
    assert_true(load(&r, 0, &o));
    assert_int_equal(o.st, ST_LOAD_FAILED);
    assert_string_equal(o.e.field, "key 1");
    assert_int_equal(o.e.offset, r.len);
    if (!load(&r, SPARSE_BYTES, &o)) {
        skip_sparse();
    }
    assert_int_equal(o.st, ST_LOAD_FAILED);
    assert_string_equal(o.e.field, "key 1");
    /* a table that never ends: strings of nothing for 40 GB, in arrays as long as allowed */
    r.len = 0;
    raw_header(&r, 3, 0, 1);
    raw_key(&r, "k", 9);
    raw_u32(&r, 8);
    raw_u64(&r, GGUF_MAX_STRINGS + 1);
    assert_true(load(&r, SPARSE_BYTES, &o));
    assert_int_equal(o.st, ST_LOAD_FAILED);
    assert_string_equal(o.e.field, "k");
}

/* The order of the table is not the order of the data, and 1,000 tensors overlap nowhere but in one place. */
static void test_overlap_unordered(void **state)
{
    enum { N = 1000 };
    for (int bad = 0; bad < 2; bad++) {
        static raw r;
        outcome o;
        char name[16];
        r.len = 0;
        raw_header(&r, 3, N, 0);
        for (size_t i = 0; i < N; i++) {
            uint64_t place = i * 7 % N; /* 7 and 1,000 share no factor: every place once */
            snprintf(name, sizeof name, "t%03zu", i);
            raw_str(&r, name);
            raw_u32(&r, 1);
            raw_u64(&r, bad && i == 500 ? 9 : 8);
            raw_u32(&r, 0);
            raw_u64(&r, place * 32);
        }
        raw_pad(&r, 32);
        assert_true(load(&r, r.len + N * 32 + 32, &o));
        if (!bad) {
            assert_int_equal(o.st, ST_OK);
            continue;
        }
        /* t500 is at place 500 * 7 mod 1000 = 500; place 501 belongs to i with 7 i = 501 mod 1000: i = 643 */
        assert_int_equal(o.st, ST_LOAD_FAILED);
        assert_string_equal(o.e.field, "t643");
        assert_non_null(strstr(o.e.msg, "overlaps tensor t500"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_faults_sparse),
        cmocka_unit_test(test_faults_without_err),
        cmocka_unit_test(test_truncation),
        cmocka_unit_test(test_truncation_sparse),
        cmocka_unit_test(test_known_keys),
        cmocka_unit_test(test_not_a_file),
        cmocka_unit_test(test_false_counts),
        cmocka_unit_test(test_overlap_unordered),
    };
    return cmocka_run_group_tests_name("gguf-reader-faults", tests, NULL, temp_folder_remove);
}
