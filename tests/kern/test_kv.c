/* kv_layout by hand calculation; kv_store of every set against the drawing in kern/kv_layout.h. */
#include "kern_test.h"

static void test_types(void **state)
{
    kv_type type = KV_F32;
    err e;
    (void)state;
    assert_int_equal(kv_type_bytes(KV_F32), 4);
    assert_int_equal(kv_type_bytes(KV_F16), 2);
    assert_string_equal(kv_type_name(KV_F16), "f16");
    assert_int_equal(kv_type_parse("f16", &type, &e), ST_OK);
    assert_int_equal(type, KV_F16);
    assert_int_equal(kv_type_parse("f32", &type, NULL), ST_OK);
    assert_int_equal(type, KV_F32);
    assert_int_equal(kv_type_parse("F16", &type, &e), ST_INVALID_FIELD);
    assert_string_equal(e.field, "kv_type");
    assert_int_equal(type, KV_F32);
}

static void test_layout(void **state)
{
    /* Head bytes are 32 * (k_dim + v_dim) * type: 32 * 256 * 2 = 16384; 32 * 104 * 2 = 6656; K first. */
    const kv_dims dims[3] = {{8, 128, 128}, {1, 24, 80}, {2, 64, 64}};
    kv_layer l[3];
    size_t page;
    (void)state;
    assert_int_equal(kv_layout_init(KV_F16, dims, 3, l, &page), ST_OK);
    assert_int_equal(l[0].offset_bytes, 0);
    assert_int_equal(l[0].head_bytes, 16384);
    assert_int_equal(l[0].v_bytes, 8192);
    assert_int_equal(l[1].offset_bytes, 8 * 16384);
    assert_int_equal(l[1].head_bytes, 6656);
    assert_int_equal(l[1].v_bytes, 24 * 64);
    assert_int_equal(l[2].offset_bytes, 8 * 16384 + 6656);
    assert_int_equal(page, 8 * 16384 + 6656 + 2 * 8192);
    assert_int_equal(l[1].n_kv_heads, 1);
    assert_int_equal(l[1].k_dim, 24);
    assert_int_equal(l[1].v_dim, 80);
    assert_int_equal(kv_layout_init(KV_F32, dims, 3, l, &page), ST_OK);
    assert_int_equal(page, 2 * (8 * 16384 + 6656 + 2 * 8192));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(l[i].offset_bytes % 64, 0);
    }
}

static void test_layout_overflow(void **state)
{
    const kv_dims huge[2] = {{1, 8, 8}, {UINT32_MAX, UINT32_MAX, UINT32_MAX}};
    kv_layer l[2];
    size_t page = 77;
    (void)state;
    memset(l, 0x11, sizeof l);
    assert_int_equal(kv_layout_init(KV_F32, huge, 2, l, &page), ST_LOAD_FAILED);
    assert_int_equal(page, 77);
    assert_int_equal(l[0].k_dim, 0x11111111);
}

/* What numbers a float can be: all kinds, half of them random bits. */
static float any_float(uint64_t *rng)
{
    static const float special[] = {0.0f,     -0.0f,      INFINITY, -INFINITY, NAN,
                                    -NAN,     65519.996f, 65520.0f, 0x1p-24f,  0x1.8p-25f,
                                    0x1p-25f, 0x1p-149f,  2049.0f,  2051.0f,   -1.0f};
    uint64_t r = rng_next(rng);
    if (r % 4 == 0) {
        return special[r / 4 % (sizeof special / sizeof special[0])];
    }
    return r % 4 == 1 ? f32_from_bits((uint32_t)(r >> 32)) : rng_float(rng);
}

static void value_check(const unsigned char *at, kv_type type, float x, const kern_table *t)
{
    if (type == KV_F16) {
        uint16_t h;
        memcpy(&h, at, sizeof h);
        if (h != fp16_from_f32(x)) {
            fail_msg("set %s: %a is stored as %04x, not %04x", t->name, (double)x, h, fp16_from_f32(x));
        }
    } else {
        assert_memory_equal(at, &x, sizeof x);
    }
}

/* Stores one position and looks at every value of the page: either it is this one's, or it is untouched. */
static void store_check(const kern_table *t, kv_type type, kv_dims dims, size_t slot, guard_side side,
                        uint64_t *rng)
{
    const kv_dims both[2] = {{1, 8, 8}, dims}; /* a layer in front, so that the offset counts */
    kv_layer l[2];
    size_t page_bytes, vb = kv_type_bytes(type);
    assert_int_equal(kv_layout_init(type, both, 2, l, &page_bytes), ST_OK);
    guard page = guard_new(page_bytes, side);
    guard k = guard_new((size_t)dims.n_kv_heads * dims.k_dim * sizeof(float), side);
    guard v = guard_new((size_t)dims.n_kv_heads * dims.v_dim * sizeof(float), side);
    for (size_t i = 0; i < k.n_bytes / 4; i++) {
        guard_floats(&k)[i] = any_float(rng);
    }
    for (size_t i = 0; i < v.n_bytes / 4; i++) {
        guard_floats(&v)[i] = any_float(rng);
    }
    t->kv_store(page.data, &l[1], type, slot, guard_floats(&k), guard_floats(&v));
    for (size_t h = 0; h < dims.n_kv_heads; h++) {
        unsigned char *head = page.data + 32 * 16 * vb + h * 32 * (dims.k_dim + dims.v_dim) * vb;
        for (size_t d = 0; d < dims.k_dim; d++) {
            value_check(head + (d * 32 + slot) * vb, type, guard_floats(&k)[h * dims.k_dim + d], t);
            memset(head + (d * 32 + slot) * vb, GUARD_PATTERN, vb);
        }
        for (size_t d = 0; d < dims.v_dim; d++) {
            unsigned char *at = head + (dims.k_dim * 32 + slot * dims.v_dim + d) * vb;
            value_check(at, type, guard_floats(&v)[h * dims.v_dim + d], t);
            memset(at, GUARD_PATTERN, vb);
        }
    }
    page.n_bytes = 0; /* all of it must be pattern again */
    guard_check(&page);
    guard_free(&page);
    guard_free(&k);
    guard_free(&v);
}

static void test_store(void **state)
{
    static const kv_dims dims[] = {{1, 8, 8},   {2, 24, 80}, {3, 128, 128}, {1, 7, 13},
                                   {2, 80, 24}, {1, 1, 1},   {1, 65, 70}};
    const kern_table *t;
    uint64_t rng = 7;
    (void)state;
    for (int s = -1; (t = sets_next(&s));) {
        for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
            for (size_t slot = 0; slot < 32; slot += i % 2 ? 1 : 31) {
                store_check(t, KV_F16, dims[i], slot, slot % 2 ? GUARD_START : GUARD_END, &rng);
                store_check(t, KV_F32, dims[i], slot, slot % 2 ? GUARD_END : GUARD_START, &rng);
            }
        }
    }
}

/* Every binary32 bit pattern class narrowed in bulk: 2^22 patterns of a dense walk. */
static void test_store_narrowing(void **state)
{
    enum { DIM = 1024 };
    static float k[DIM], v[DIM];
    static uint16_t page[2 * DIM * 32];
    const kv_dims dims = {1, DIM, DIM};
    const kern_table *t;
    kv_layer l;
    size_t page_bytes;
    (void)state;
    assert_int_equal(kv_layout_init(KV_F16, &dims, 1, &l, &page_bytes), ST_OK);
    assert_int_equal(page_bytes, sizeof page);
    for (int s = -1; (t = sets_next(&s));) {
        for (uint64_t bits = 0; bits <= UINT32_MAX;) {
            for (size_t d = 0; d < DIM; d++, bits += 1021) {
                k[d] = f32_from_bits((uint32_t)bits);
                v[d] = f32_from_bits((uint32_t)bits + 509);
            }
            t->kv_store(page, &l, KV_F16, 5, k, v);
            for (size_t d = 0; d < DIM; d++) {
                value_check((unsigned char *)&page[d * 32 + 5], KV_F16, k[d], t);
                value_check((unsigned char *)&page[DIM * 32 + 5 * DIM + d], KV_F16, v[d], t);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),           cmocka_unit_test(test_layout),
        cmocka_unit_test(test_layout_overflow), cmocka_unit_test(test_store),
        cmocka_unit_test(test_store_narrowing), cmocka_unit_test(test_every_set_ran),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
