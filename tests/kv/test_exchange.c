/*
 * exchange: bytes of small ranges written down by hand, ranges of every type and shape there and back, and everything
 * that is not exactly what was written refused by name.
 */
#include "base/test_main.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "kv/exchange.h"

#define MAX_LAYERS 3
#define MAX_PAGES  4
#define UNTOUCHED  0xEE

typedef struct model {
    exchange_shape shape;
    kv_layer layers[MAX_LAYERS];
    size_t page_bytes;
    void *pages[MAX_PAGES]; /* owned */
} model;

static uint8_t random_byte(uint32_t *x)
{
    *x = *x * 1664525u + 1013904223u;
    return (uint8_t)(*x >> 24);
}

/* Pages full of anything, or of UNTOUCHED (seed 0). */
static void model_open(model *m, kv_type type, const kv_dims *dims, size_t n_layers, uint32_t seed)
{
    memset(m, 0, sizeof *m);
    m->shape.type = type;
    m->shape.layers = m->layers;
    m->shape.n_layers = n_layers;
    memset(m->shape.identity, 'i', sizeof m->shape.identity);
    assert_int_equal(kv_layout_init(type, dims, n_layers, m->layers, &m->page_bytes), ST_OK);
    for (size_t p = 0; p < MAX_PAGES; p++) {
        uint8_t *page = malloc(m->page_bytes + 1);
        for (size_t i = 0; i < m->page_bytes; i++) {
            page[i] = seed ? random_byte(&seed) : UNTOUCHED;
        }
        m->pages[p] = page;
    }
}

static void model_close(model *m)
{
    for (size_t p = 0; p < MAX_PAGES; p++) {
        free(m->pages[p]);
    }
}

static const exchange_range *read_ok(const model *m, const buf *b, exchange_range *r)
{
    err e;
    err_clear(&e);
    if (exchange_read(&m->shape, (const uint8_t *)b->data, b->len, r, &e) != ST_OK) {
        fail_msg("refused: %s", e.msg);
    }
    return r;
}

static void refused(const model *m, const void *bytes, size_t n, const char *field)
{
    exchange_range r = {77, 77, NULL, NULL};
    err e;
    err_clear(&e);
    assert_int_equal(exchange_read(&m->shape, bytes, n, &r, &e), ST_INVALID_FIELD);
    assert_string_equal(e.field, field);
    assert_true(e.msg[0] != '\0');
    assert_int_equal(r.from, 77);
    assert_null(r.rows);
}

/*
 * By hand
 */

/* Position 33 of a layer of one head, K two wide and V three, f16: byte values of K are 0x10 + 2 i, of V 0x40 + 2 i (and
 * the next one), all else in the page is UNTOUCHED. The bytes below: Python's
 *   b"hearthkv" + struct.pack("<II32sQQII", 1, 1, b"i" * 32, 33, 1, 1, 0) + struct.pack("<IIII", 1, 2, 3, 0)
 *   + struct.pack("<34i", *range(1000, 1034)) + bytes([0x10, 0x11, 0x12, 0x13, 0x40, 0x41, 0x42, 0x43, 0x44, 0x45]) */
static void test_f16_by_hand(void **state)
{
    static const uint8_t header[] = {
        'h', 'e', 'a', 'r', 't', 'h', 'k', 'v', 1,   0,   0,   0,   1,   0,   0,   0,   'i', 'i',
        'i', 'i', 'i', 'i', 'i', 'i', 'i', 'i', 'i', 'i', 'i', 'i', 'i', 'i', 'i', 'i', 'i', 'i',
        'i', 'i', 'i', 'i', 'i', 'i', 'i', 'i', 'i', 'i', 'i', 'i', 33,  0,   0,   0,   0,   0,
        0,   0,   1,   0,   0,   0,   0,   0,   0,   0,   1,   0,   0,   0,   0,   0,   0,   0,
        1,   0,   0,   0,   2,   0,   0,   0,   3,   0,   0,   0,   0,   0,   0,   0};
    static const uint8_t row[] = {0x10, 0x11, 0x12, 0x13, 0x40, 0x41, 0x42, 0x43, 0x44, 0x45};
    const kv_dims dims = {.n_kv_heads = 1, .k_dim = 2, .v_dim = 3};
    model m;
    int32_t ids[34];
    buf out = {0};
    size_t bytes = 0;
    model_open(&m, KV_F16, &dims, 1, 0);
    for (int32_t i = 0; i < 34; i++) {
        ids[i] = 1000 + i;
    }
    uint8_t *page = m.pages[1]; /* K: [2][32] of two bytes, V: [32][3] behind it; slot 1 */
    memcpy(page + 2, row, 2);
    memcpy(page + 64 + 2, row + 2, 2);
    memcpy(page + 128 + 6, row + 4, 6);
    assert_int_equal(exchange_row_bytes(&m.shape), sizeof row);
    assert_int_equal(exchange_bytes(&m.shape, 33, 1, &bytes), ST_OK);
    assert_int_equal(bytes, sizeof header + 34 * 4 + sizeof row + 8);
    assert_int_equal(buf_append_str(&out, "before"), ST_OK);
    assert_int_equal(exchange_write(&m.shape, ids, 33, 1, m.pages, &out), ST_OK);
    assert_int_equal(out.len, 6 + bytes);
    assert_memory_equal(out.data, "before", 6);
    assert_memory_equal(out.data + 6, header, sizeof header);
    for (int32_t i = 0; i < 34; i++) {
        const uint8_t id[4] = {(uint8_t)((1000 + i) & 255), (uint8_t)((1000 + i) >> 8), 0, 0};
        assert_memory_equal(out.data + 6 + sizeof header + 4 * i, id, 4);
    }
    assert_memory_equal(out.data + 6 + sizeof header + 34 * 4, row, sizeof row);
    uint64_t sum = hash64(out.data + 6, bytes - 8);
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal((uint8_t)out.data[6 + bytes - 8 + i], (uint8_t)(sum >> 8 * i));
    }
    buf_release(&out);
    model_close(&m);
}

/* One position of q8_0: the scale of each block in front of the codes; 34 values are two blocks. Then V in K: no V. */
static void test_q8_by_hand(void **state)
{
    const kv_dims dims[] = {{.n_kv_heads = 1, .k_dim = 34, .v_dim = 1},
                            {.n_kv_heads = 1, .k_dim = 2, .v_dim = 1, .v_in_k = true}};
    model m;
    int32_t ids[3] = {7, 8, 9};
    buf out = {0};
    uint8_t want[(4 + 34) + (2 + 1) + (2 + 2)];
    model_open(&m, KV_Q8_0, dims, 2, 0);
    uint8_t *page = m.pages[0];
    const size_t slot = 2;
    for (size_t i = 0; i < sizeof want; i++) {
        want[i] = (uint8_t)(i + 1);
    }
    /* layer 0, K: scales [2][32], codes [34][32] in a part of 128 + 1088 bytes */
    memcpy(page + slot * 2, want, 2);
    memcpy(page + 64 + slot * 2, want + 2, 2);
    for (size_t i = 0; i < 34; i++) {
        page[128 + i * 32 + slot] = want[4 + i];
    }
    /* V begins at the next multiple of 64: scales [32][1], codes [32][1] */
    memcpy(page + 1216 + slot * 2, want + 38, 2);
    page[1216 + 64 + slot] = want[40];
    /* layer 1 at the next multiple of 64: K alone, scales [1][32], codes [2][32] */
    memcpy(page + 1344 + slot * 2, want + 41, 2);
    page[1344 + 64 + slot] = want[43];
    page[1344 + 64 + 32 + slot] = want[44];
    assert_int_equal(m.layers[0].v_bytes, 1216);
    assert_int_equal(m.layers[1].offset_bytes, 1344);
    assert_int_equal(exchange_row_bytes(&m.shape), sizeof want);
    assert_int_equal(exchange_write(&m.shape, ids, 2, 1, m.pages, &out), ST_OK);
    assert_memory_equal(out.data + 72 + 2 * 16 + 3 * 4, want, sizeof want);
    buf_release(&out);
    model_close(&m);
}

/*
 * There and back
 */

/* Copies one position as the drawing in kern/kv_layout.h says. */
static void copy_part(kv_type type, size_t dim, bool across, size_t slot, uint8_t *to, const uint8_t *from)
{
    size_t value = type == KV_F32 ? 4 : type == KV_Q8_0 ? 1 : 2, blocks = (dim + 31) / 32;
    size_t codes = type == KV_Q8_0 ? blocks * 32 * 2 : 0;
    for (size_t i = 0; codes > 0 && i < blocks; i++) {
        size_t at = 2 * (across ? i * 32 + slot : slot * blocks + i);
        memcpy(to + at, from + at, 2);
    }
    for (size_t i = 0; i < dim; i++) {
        size_t at = codes + value * (across ? i * 32 + slot : slot * dim + i);
        memcpy(to + at, from + at, value);
    }
}

static void copy_position(const model *m, size_t position, void *to_page, const void *from_page)
{
    for (size_t l = 0; l < m->shape.n_layers; l++) {
        const kv_layer *y = &m->layers[l];
        for (size_t h = 0; h < y->n_kv_heads; h++) {
            size_t at = y->offset_bytes + h * y->head_bytes;
            uint8_t *to = (uint8_t *)to_page + at;
            const uint8_t *from = (const uint8_t *)from_page + at;
            copy_part(m->shape.type, y->k_dim, true, position % 32, to, from);
            if (!y->v_in_k) {
                copy_part(m->shape.type, y->v_dim, false, position % 32, to + y->v_bytes, from + y->v_bytes);
            }
        }
    }
}

static const struct {
    const char *name;
    kv_dims dims[MAX_LAYERS];
    size_t n;
} shapes[] = {
    {"one", {{1, 1, 1, false}}, 1},
    {"usual", {{2, 64, 64, false}, {2, 64, 64, false}}, 2},
    {"odd", {{3, 33, 7, false}}, 1},
    {"widths", {{1, 96, 40, false}, {4, 5, 9, false}, {2, 31, 65, false}}, 3},
    {"mla", {{1, 72, 64, true}, {1, 72, 64, true}}, 2},
    {"mixed", {{1, 40, 33, true}, {2, 8, 8, false}}, 2},
    {"a layer without", {{0, 8, 8, false}, {1, 8, 8, false}}, 2},
};

static const struct {
    size_t from, count;
} ranges[] = {{0, 1}, {0, 32}, {0, 100}, {31, 2}, {32, 32}, {5, 90}, {99, 1}, {127, 1}, {0, 128}};

static void there_and_back(kv_type type, size_t s, size_t from, size_t count, const int32_t *ids)
{
    model a, b;
    exchange_range r;
    buf out = {0};
    model_open(&a, type, shapes[s].dims, shapes[s].n, 12345);
    model_open(&b, type, shapes[s].dims, shapes[s].n, 0);
    /* a page in which nothing of the range lies is not looked at */
    void *pages[MAX_PAGES];
    for (size_t p = 0; p < MAX_PAGES; p++) {
        pages[p] = p >= from / 32 && p <= (from + count - 1) / 32 ? a.pages[p] : NULL;
    }
    assert_int_equal(exchange_write(&a.shape, ids, from, count, pages, &out), ST_OK);
    read_ok(&b, &out, &r);
    assert_int_equal(r.from, from);
    assert_int_equal(r.count, count);
    for (size_t i = 0; i < from + count; i++) {
        assert_int_equal(exchange_id(&r, i), ids[i]);
    }
    for (size_t i = from, n; i < from + count; i += n) { /* one, two, three … at a time */
        size_t left = 32 - i % 32 < from + count - i ? 32 - i % 32 : from + count - i;
        n = i % 7 + 1 < left ? i % 7 + 1 : left;
        exchange_put_rows(&b.shape, &r, i, n, b.pages[i / 32]);
    }
    for (size_t p = 0; p < MAX_PAGES; p++) {
        uint8_t *want = malloc(a.page_bytes + 1);
        memset(want, UNTOUCHED, a.page_bytes);
        for (size_t i = from; i < from + count; i++) {
            if (i / 32 == p) {
                copy_position(&a, i, want, a.pages[p]);
            }
        }
        if (memcmp(want, b.pages[p], a.page_bytes) != 0) {
            fail_msg("%s, %s, [%zu, +%zu): page %zu differs", kv_type_name(type), shapes[s].name, from, count,
                     p);
        }
        free(want);
    }
    buf_release(&out);
    model_close(&a);
    model_close(&b);
}

static void test_there_and_back(void **state)
{
    int32_t ids[128];
    for (int32_t i = 0; i < 128; i++) {
        ids[i] = i * i * 17 + 3;
    }
    ids[3] = INT32_MAX;
    for (size_t t = 0; t < KV_TYPE_COUNT; t++) {
        for (size_t s = 0; s < N_OF(shapes); s++) {
            for (size_t i = 0; i < N_OF(ranges); i++) {
                there_and_back((kv_type)t, s, ranges[i].from, ranges[i].count, ids);
            }
        }
    }
}

/*
 * Refused
 */
static const int32_t small_ids[6] = {4, 5, 6, 7, 8, 9};
static const kv_dims small_dims[2] = {{1, 3, 2, false}, {2, 2, 2, true}};

/* Positions 2 … 4 of a small model; its page is full of anything. */
static buf small_bytes(const model *m)
{
    buf out = {0};
    assert_int_equal(exchange_write(&m->shape, small_ids, 2, 3, m->pages, &out), ST_OK);
    return out;
}

/* What a forger would do. */
static void sign(buf *b)
{
    uint64_t sum = hash64(b->data, b->len - 8);
    memcpy(b->data + b->len - 8, &sum, 8);
}

static void test_damage(void **state)
{
    for (size_t t = 0; t < KV_TYPE_COUNT; t++) {
        model m;
        exchange_range r;
        model_open(&m, (kv_type)t, small_dims, 2, 99);
        buf b = small_bytes(&m);
        for (size_t n = 0; n < b.len; n++) {
            char *cut = malloc(n + 1); /* so that a sanitizer sees whoever reads beyond */
            memcpy(cut, b.data, n);
            refused(&m, cut, n, n < 8 ? "magic" : "checksum");
            free(cut);
        }
        for (size_t i = 0; i < b.len; i++) {
            for (int bit = 0; bit < 8; bit++) {
                b.data[i] = (char)(b.data[i] ^ 1 << bit);
                refused(&m, b.data, b.len, i < 8 ? "magic" : i < 12 ? "version" : "checksum");
                b.data[i] = (char)(b.data[i] ^ 1 << bit);
            }
        }
        assert_int_equal(buf_append(&b, "", 1), ST_OK);
        refused(&m, b.data, b.len, "checksum");
        buf_truncate(&b, b.len - 1);
        read_ok(&m, &b, &r);
        buf_release(&b);
        model_close(&m);
    }
}

/* Whole bytes of something else: what differs is named. */
static void test_other_shapes(void **state)
{
    model m, other;
    model_open(&m, KV_F16, small_dims, 2, 99);
    buf b = small_bytes(&m);
    for (size_t t = 0; t < KV_TYPE_COUNT; t++) {
        if (t != KV_F16) { /* bf16 has the very same size */
            model_open(&other, (kv_type)t, small_dims, 2, 0);
            refused(&other, b.data, b.len, "kv_type");
            model_close(&other);
        }
    }
    kv_dims dims[3] = {small_dims[0], small_dims[1], {1, 1, 1, false}};
    for (size_t n = 1; n <= 3; n += 2) {
        model_open(&other, KV_F16, dims, n, 0);
        refused(&other, b.data, b.len, "layers");
        model_close(&other);
    }
    for (size_t i = 0; i < 5; i++) {
        memcpy(dims, small_dims, sizeof small_dims);
        dims[0].n_kv_heads += i == 0;
        dims[0].k_dim += i == 1;
        dims[0].v_dim += i == 2;
        dims[1].v_in_k ^= i == 3;
        dims[1].k_dim += i == 4;
        model_open(&other, KV_F16, dims, 2, 0);
        refused(&other, b.data, b.len, "layers");
        model_close(&other);
    }
    for (size_t i = 0; i < 32; i++) {
        m.shape.identity[i] ^= 1;
        refused(&m, b.data, b.len, "identity");
        m.shape.identity[i] ^= 1;
    }
    buf_release(&b);
    model_close(&m);
}

/* With a checksum that is right. */
static void test_forged(void **state)
{
    static const struct {
        size_t at, bytes;
        uint64_t value;
        const char *field;
    } rows[] = {
        {8, 4, 0, "version"},
        {8, 4, 2, "version"},
        {12, 4, 4, "kv_type"},
        {12, 4, UINT32_MAX, "kv_type"},
        {48, 8, 1, "checksum"}, /* other positions, so another length */
        {48, 8, 3, "checksum"},
        {48, 8, UINT64_MAX, "checksum"}, /* from + count overflows */
        {48, 8, UINT64_MAX - 2, "checksum"},
        {48, 8, UINT64_MAX / 4, "checksum"},
        {56, 8, 0, "checksum"},
        {56, 8, 2, "checksum"},
        {56, 8, 4, "checksum"},
        {56, 8, UINT64_MAX, "checksum"},
        {56, 8, UINT64_MAX / 20, "checksum"},
        {64, 4, 0, "layers"},
        {64, 4, UINT32_MAX, "layers"},
        {68, 4, 1, "checksum"},
        {72 + 16 + 12, 4, 2, "layers"}, /* true is 1 */
    };
    model m;
    model_open(&m, KV_F16, small_dims, 2, 99);
    for (size_t i = 0; i < N_OF(rows); i++) {
        buf b = small_bytes(&m);
        memcpy(b.data + rows[i].at, &rows[i].value, rows[i].bytes);
        sign(&b);
        refused(&m, b.data, b.len, rows[i].field);
        buf_release(&b);
    }
    /* cut, then signed again: it ends inside its layers, or is too short for its tokens */
    buf whole = small_bytes(&m);
    for (size_t n = 80; n < whole.len; n++) {
        buf b = small_bytes(&m);
        buf_truncate(&b, n);
        sign(&b);
        refused(&m, b.data, b.len, "checksum");
        buf_release(&b);
    }
    buf_release(&whole);
    model_close(&m);
}

static void test_limits(void **state)
{
    model m;
    size_t bytes = 77;
    buf out = {0};
    model_open(&m, KV_F32, small_dims, 2, 99);
    assert_int_equal(exchange_bytes(&m.shape, SIZE_MAX, 1, &bytes), ST_NOMEM);
    assert_int_equal(exchange_bytes(&m.shape, 0, SIZE_MAX, &bytes), ST_NOMEM);
    assert_int_equal(exchange_bytes(&m.shape, SIZE_MAX / 4, 2, &bytes), ST_NOMEM);
    assert_int_equal(exchange_bytes(&m.shape, 0, SIZE_MAX / exchange_row_bytes(&m.shape), &bytes), ST_NOMEM);
    assert_int_equal(bytes, 77);
    assert_int_equal(buf_append_str(&out, "x"), ST_OK);
    mem_fail_at(1, true);
    assert_int_equal(exchange_write(&m.shape, small_ids, 0, 6, m.pages, &out), ST_NOMEM);
    mem_fail_at(0, false);
    assert_int_equal(out.len, 1);
    assert_string_equal(buf_str(&out), "x");
    buf_release(&out);
    model_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f16_by_hand),    cmocka_unit_test(test_q8_by_hand),
        cmocka_unit_test(test_there_and_back), cmocka_unit_test(test_damage),
        cmocka_unit_test(test_other_shapes),   cmocka_unit_test(test_forged),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
