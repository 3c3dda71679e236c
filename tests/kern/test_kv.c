/* kv_layout by hand calculation; kv_store of every set against the drawing in kern/kv_layout.h. */
#include "kern_test.h"

static void test_types(void **state)
{
    static const char *const names[] = {"f32", "f16", "bf16", "q8_0"};
    kv_type type = KV_F32;
    err e;
    (void)state;
    for (size_t i = 0; i < KV_TYPE_COUNT; i++) {
        assert_string_equal(kv_type_name((kv_type)i), names[i]);
        assert_int_equal(kv_type_parse(names[i], &type, NULL), ST_OK);
        assert_int_equal(type, i);
    }
    assert_int_equal(kv_type_parse("F16", &type, &e), ST_INVALID_FIELD);
    assert_string_equal(e.field, "kv_type");
    assert_int_equal(type, KV_Q8_0);
}

static void test_layout(void **state)
{
    /* Head bytes are 32 * (k_dim + v_dim) * type: 32 * 256 * 2 = 16384; 32 * 104 * 2 = 6656; K first. */
    const kv_dims dims[3] = {{8, 128, 128, false}, {1, 24, 80, false}, {2, 64, 64, false}};
    kv_layer l[3];
    size_t page;
    (void)state;
    for (int type = KV_F16; type <= KV_BF16; type++) {
        assert_int_equal(kv_layout_init((kv_type)type, dims, 3, l, &page), ST_OK);
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
    }
    assert_int_equal(kv_layout_init(KV_F32, dims, 3, l, &page), ST_OK);
    assert_int_equal(page, 2 * (8 * 16384 + 6656 + 2 * 8192));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(l[i].offset_bytes % 64, 0);
    }
}

/* Q8_0: 32 scales of two bytes for each 32 dimensions begun, then 32 codes a dimension. 128 -> 4 * 64 + 4096 = 4352;
 * 24 -> 64 + 768 = 832; 80 -> 3 * 64 + 2560 = 2752; 33 -> 2 * 64 + 1056 = 1184, rounded up to 1216. */
static void test_layout_q8_0(void **state)
{
    const kv_dims dims[3] = {{2, 128, 128, false}, {1, 24, 80, false}, {3, 33, 33, false}};
    kv_layer l[3];
    size_t page;
    (void)state;
    assert_int_equal(kv_layout_init(KV_Q8_0, dims, 3, l, &page), ST_OK);
    assert_int_equal(l[0].head_bytes, 2 * 4352);
    assert_int_equal(l[0].v_bytes, 4352);
    assert_int_equal(l[1].offset_bytes, 4 * 4352);
    assert_int_equal(l[1].v_bytes, 832);
    assert_int_equal(l[1].head_bytes, 832 + 2752);
    assert_int_equal(l[2].v_bytes, 1216);
    assert_int_equal(page, 4 * 4352 + 832 + 2752 + 6 * 1216);
}

/* A row of 512 latent and 64 rotated values, and no V. */
static void test_layout_v_in_k(void **state)
{
    const kv_dims dims[2] = {{1, 576, 512, true}, {1, 8, 8, false}};
    kv_layer l[2];
    size_t page;
    (void)state;
    assert_int_equal(kv_layout_init(KV_F16, dims, 2, l, &page), ST_OK);
    assert_int_equal(l[0].head_bytes, 576 * 64);
    assert_int_equal(l[0].v_bytes, 0);
    assert_true(l[0].v_in_k);
    assert_false(l[1].v_in_k);
    assert_int_equal(page, 576 * 64 + 1024);
}

static void test_layout_overflow(void **state)
{
    const kv_dims huge[2] = {{1, 8, 8, false}, {UINT32_MAX, UINT32_MAX, UINT32_MAX, false}};
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

/* One value into its place of a page drawn by hand. */
static void value_draw(unsigned char *part, kv_type type, size_t value, float x)
{
    uint16_t h = type == KV_F16 ? fp16_from_f32(x) : bf16_from_f32(x);
    if (type == KV_F32) {
        memcpy(part + value * 4, &x, 4);
    } else {
        memcpy(part + value * 2, &h, 2);
    }
}

/* A block of Q8_0 by its definition (kern/README.md), code i at codes[i * step]. */
static void block_draw(unsigned char *scale, unsigned char *codes, size_t step, const float *x, size_t n)
{
    float most = 0;
    bool finite = true;
    for (size_t i = 0; i < n; i++) {
        finite = finite && isfinite(x[i]);
        most = fmaxf(most, fabsf(x[i]));
    }
    uint16_t h = finite && most / 127 < 65520 ? fp16_from_f32(most / 127) : 0x7E00;
    float d = fp16_to_f32(h);
    memcpy(scale, &h, 2);
    for (size_t i = 0; i < n; i++) {
        long q = d > 0 ? lrintf(x[i] * (1 / d)) : 0;
        q = q > 127 ? 127 : q < -127 ? -127 : q;
        codes[i * step] = (unsigned char)(int8_t)q;
        if (d >=
            0) { /* half a step; where the scale itself is rounded to a multiple of 2^-24, 127 times that */
            assert_true(fabs((double)x[i] - (double)d * (double)q) <= 0.5001 * (double)d + 127 * 0x1p-25);
        }
    }
}

typedef struct store_case {
    kv_type type;
    kv_dims dims;
    size_t slot, n;
    guard_side side;
} store_case;

/* What page must hold after the store. */
static void page_draw(unsigned char *page, const store_case *c, size_t at, const float *k, size_t k_stride,
                      const float *v, size_t v_stride)
{
    size_t kd = c->dims.k_dim, vd = c->dims.v_dim, n_heads = c->dims.n_kv_heads, kb = (kd + 31) / 32,
           vb = (vd + 31) / 32;
    size_t one = c->type == KV_F32 ? 4 : 2;
    size_t k_bytes = c->type == KV_Q8_0 ? (64 * kb + 32 * kd + 63) / 64 * 64 : 32 * kd * one;
    size_t v_bytes = c->dims.v_in_k       ? 0
                     : c->type == KV_Q8_0 ? (64 * vb + 32 * vd + 63) / 64 * 64
                                          : 32 * vd * one;
    for (size_t i = 0; i < c->n * n_heads; i++) {
        size_t h = i % n_heads, slot = c->slot + i / n_heads;
        unsigned char *K = page + at + h * (k_bytes + v_bytes), *V = K + k_bytes;
        const float *kx = k + i / n_heads * k_stride + h * kd, *vx = v + i / n_heads * v_stride + h * vd;
        for (size_t d = 0; d < kd; d++) {
            if (c->type != KV_Q8_0) {
                value_draw(K, c->type, d * 32 + slot, kx[d]);
            } else if (d % 32 == 0) {
                block_draw(K + (d + slot) * 2, K + 64 * kb + d * 32 + slot, 32, kx + d,
                           kd - d < 32 ? kd - d : 32);
            }
        }
        for (size_t d = 0; !c->dims.v_in_k && d < vd; d++) {
            if (c->type != KV_Q8_0) {
                value_draw(V, c->type, slot * vd + d, vx[d]);
            } else if (d % 32 == 0) {
                block_draw(V + (slot * vb + d / 32) * 2, V + 64 * vb + slot * vd + d, 1, vx + d,
                           vd - d < 32 ? vd - d : 32);
            }
        }
    }
}

/* Numbers as keys are, with one of any kind in every other block of 32. */
static void fill_for(kv_type type, float *x, size_t n, uint64_t *rng)
{
    float size = ldexpf(1.0f, (int)(rng_next(rng) % 40) - 30);
    for (size_t i = 0; i < n; i++) {
        bool any = type != KV_Q8_0 || rng_next(rng) % 64 == 0;
        x[i] = any ? any_float(rng) : rng_float(rng) * size;
    }
}

/* Stores positions and looks at every byte of the page: what is not theirs is untouched. */
static void store_check(const kern_table *t, const store_case *c, uint64_t *rng)
{
    const kv_dims both[2] = {{1, 8, 8, false}, c->dims}; /* a layer in front, so that the offset counts */
    size_t k_stride = (size_t)c->dims.n_kv_heads * c->dims.k_dim + 3,
           v_stride = (size_t)c->dims.n_kv_heads * c->dims.v_dim + 1;
    kv_layer l[2];
    size_t page_bytes;
    assert_int_equal(kv_layout_init(c->type, both, 2, l, &page_bytes), ST_OK);
    guard page = guard_new(page_bytes, c->side), want = guard_new(page_bytes, c->side);
    guard k = guard_new((c->n * k_stride - 3) * sizeof(float), c->side);
    guard v = guard_new(c->dims.v_in_k ? 0 : (c->n * v_stride - 1) * sizeof(float), c->side);
    fill_for(c->type, guard_floats(&k), k.n_bytes / 4, rng);
    fill_for(c->type, guard_floats(&v), v.n_bytes / 4, rng);
    t->kv_store(page.data, &l[1], c->type, c->slot, c->n, guard_floats(&k), k_stride, guard_floats(&v),
                v_stride);
    page_draw(want.data, c, l[1].offset_bytes, guard_floats(&k), k_stride, guard_floats(&v), v_stride);
    for (size_t i = 0; i < page_bytes; i++) {
        if (page.data[i] != want.data[i]) {
            fail_msg("set %s, %s, %u heads of %u and %u, slot %zu: byte %zu is %02x, not %02x", t->name,
                     kv_type_name(c->type), c->dims.n_kv_heads, c->dims.k_dim, c->dims.v_dim, c->slot, i,
                     page.data[i], want.data[i]);
        }
    }
    guard_check(&page);
    guard_free(&want);
    guard_free(&page);
    guard_free(&k);
    guard_free(&v);
}

static void test_store(void **state)
{
    static const kv_dims dims[] = {
        {1, 8, 8, false}, {2, 24, 80, false}, {3, 128, 128, false}, {1, 7, 13, false},  {2, 80, 24, false},
        {1, 1, 1, false}, {1, 65, 70, false}, {1, 40, 33, true},    {2, 64, 64, false}, {1, 576, 512, true}};
    const kern_table *t;
    uint64_t rng = 7;
    (void)state;
    for (int s = -1; (t = sets_next(&s));) {
        for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
            for (size_t slot = 0; slot < 32; slot += i % 2 ? 1 : 31) {
                for (int type = 0; type < KV_TYPE_COUNT; type++) {
                    size_t n = 1 + rng_next(&rng) % (32 - slot);
                    store_case c = {(kv_type)type, dims[i], slot, slot % 3 ? n : 1,
                                    (slot + (size_t)type) % 2 ? GUARD_START : GUARD_END};
                    store_check(t, &c, &rng);
                }
            }
            store_case whole = {(kv_type)(i % KV_TYPE_COUNT), dims[i], 0, 32, GUARD_END};
            store_check(t, &whole, &rng);
        }
    }
}

/* Every binary32 bit pattern class narrowed in bulk: 2^22 patterns of a dense walk. */
static void test_store_narrowing(void **state)
{
    enum { DIM = 1024 };
    static float k[DIM], v[DIM];
    static uint16_t page[2 * DIM * 32];
    const kv_dims dims = {1, DIM, DIM, false};
    const kern_table *t;
    kv_layer l;
    size_t page_bytes;
    (void)state;
    for (int type = KV_F16; type <= KV_BF16; type++) {
        uint16_t (*narrow)(float) = type == KV_F16 ? fp16_from_f32 : bf16_from_f32;
        assert_int_equal(kv_layout_init((kv_type)type, &dims, 1, &l, &page_bytes), ST_OK);
        assert_int_equal(page_bytes, sizeof page);
        for (int s = -1; (t = sets_next(&s));) {
            for (uint64_t bits = 0; bits <= UINT32_MAX;) {
                for (size_t d = 0; d < DIM; d++, bits += 1021) {
                    k[d] = f32_from_bits((uint32_t)bits);
                    v[d] = f32_from_bits((uint32_t)bits + 509);
                }
                t->kv_store(page, &l, (kv_type)type, 5, 1, k, DIM, v, DIM);
                for (size_t d = 0; d < DIM; d++) {
                    uint16_t kw = narrow(k[d]), vw = narrow(v[d]);
                    if (page[d * 32 + 5] != kw || page[DIM * 32 + 5 * DIM + d] != vw) {
                        fail_msg("set %s, %s: %a or %a is stored wrongly", t->name,
                                 kv_type_name((kv_type)type), (double)k[d], (double)v[d]);
                    }
                }
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),           cmocka_unit_test(test_layout),
        cmocka_unit_test(test_layout_overflow), cmocka_unit_test(test_store),
        cmocka_unit_test(test_layout_q8_0),     cmocka_unit_test(test_layout_v_in_k),
        cmocka_unit_test(test_store_narrowing), cmocka_unit_test(test_every_set_ran),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
