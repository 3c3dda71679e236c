/*
 * act_quant: activation rows. Codes against hand calculation (rule 1 of DESIGN 4), rounding to bf16 against
 * the definition of round-half-even, bad rows, and every set against the reference.
 */
#include "matmul_test.h"

#include <float.h>

static const kern_act_kind kinds[] = {KERN_ACT_F32, KERN_ACT_BF16, KERN_ACT_Q8_32, KERN_ACT_Q8_256};
#define KIND_COUNT (sizeof kinds / sizeof *kinds)

/* absmax is 127, so that 127 / absmax and d are exactly 1 and every code can be read off the value. */
static void test_codes_by_hand(void **state)
{
    static const struct {
        float x;
        int code;
    } cases[] = {
        {127.0f, 127}, {-127.0f, -127}, {0.5f, 0},       {1.5f, 2},   {2.5f, 2},        {-0.5f, 0},
        {-1.5f, -2},   {-2.5f, -2},     {0.0f, 0},       {-0.0f, 0},  {0.49999997f, 0}, {0.50000006f, 1},
        {126.5f, 126}, {125.5f, 126},   {-126.5f, -126}, {1e-40f, 0}, {63.500004f, 64}, {-3.4999998f, -3},
    };
    enum { N = sizeof cases / sizeof *cases };
    (void)state;
    const kern_table *t;
    for (int s = -1; (t = sets_next(&s));) {
        for (size_t i = 2; i < N; i++) { /* each case at the start of a block with 127 beside it */
            for (size_t b = 0; b < 2; b++) {
                size_t width = b ? 256 : 32;
                float x[256] = {cases[i].x, 127.0f};
                x[width - 1] = cases[i].x;
                mm_act g = mm_act_new(b ? KERN_ACT_Q8_256 : KERN_ACT_Q8_32, 1, width, GUARD_END);
                uint8_t bad = 0;
                kern_act_rows(t, &g.a, x, 0, 1, &bad);
                assert_int_equal(bad, 0);
                assert_true(same_float(g.a.d[0], 1.0f));
                assert_int_equal(g.a.q[0], cases[i].code);
                assert_int_equal(g.a.q[1], 127);
                assert_int_equal(g.a.q[2], 0);
                assert_int_equal(g.a.q[width - 1], cases[i].code);
                assert_int_equal(g.a.sums[0], cases[i].code + 127);
                assert_int_equal(g.a.sums[width / 16 - 1], cases[i].code);
                mm_act_free(&g);
            }
        }
    }
}

/* Scale and largest code at the edges: d = absmax / 127 in fp32, nothing at all below 2^-100. */
static void test_scale_edges(void **state)
{
    static const struct {
        float absmax;
        int code;
    } cases[] = {
        {0x1p-100f, 127},
        {-0x1p-100f, -127},
        {0x1.fffffep-101f, 0},
        {-0x1.fffffep-101f, 0},
        {0x1p-149f, 0},
        {0.0f, 0},
        {-0.0f, 0},
        {FLT_MAX, 127},
        {-FLT_MAX, -127},
        {0x1.5p+3f, 127},
        {0x1.000002p-100f, 127},
        {0x1.fffffep-99f, 127},
        {3.14159274f, 127},
    };
    (void)state;
    const kern_table *t;
    for (int s = -1; (t = sets_next(&s));) {
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            for (size_t at = 0; at < 256; at += 15) {
                for (size_t b = 0; b < 2; b++) {
                    float x[256] = {0};
                    x[at] = cases[i].absmax;
                    mm_act g = mm_act_new(b ? KERN_ACT_Q8_256 : KERN_ACT_Q8_32, 1, 256, GUARD_END);
                    uint8_t bad = 0;
                    kern_act_rows(t, &g.a, x, 0, 1, &bad);
                    float d = cases[i].code ? fabsf(cases[i].absmax) / 127.0f : 0.0f;
                    assert_true(same_float(g.a.d[b ? 0 : at / 32], d));
                    assert_int_equal(g.a.q[at], cases[i].code);
                    assert_int_equal(g.a.sums[at / 16], cases[i].code);
                    assert_int_equal(bad, 0);
                    mm_act_free(&g);
                }
            }
        }
    }
}

/* No value's product with 127 / absmax may round to 128, and the largest one is always ±127. */
static void test_largest_is_127(void **state)
{
    (void)state;
    uint64_t rng = 5;
    const kern_table *t;
    for (int s = -1; (t = sets_next(&s));) {
        mm_act g = mm_act_new(KERN_ACT_Q8_32, 1, 32, GUARD_END);
        for (int i = 0; i < 20000; i++) {
            float x[32] = {0};
            uint64_t r = rng_next(&rng);
            int exponent = (int)(r % 226) - 98;
            x[r >> 59] = ldexpf(1.0f + (float)((r >> 20) & 0x7FFFFF) * 0x1p-23f, exponent);
            uint8_t bad = 0;
            kern_act_rows(t, &g.a, x, 0, 1, &bad);
            assert_int_equal(g.a.q[r >> 59], 127);
            assert_int_equal(g.a.sums[0] + g.a.sums[1], 127);
            assert_true(same_float(g.a.totals[0], 127.0f));
        }
        mm_act_free(&g);
    }
}

/* To bf16, half to even: 8 bits of significand stay. */
static void test_bf16_by_hand(void **state)
{
    static const struct {
        float x;
        float want;
    } cases[] = {
        {1.0f, 1.0f},
        {0x1.01p0f, 0x1p0f},        /* 1 + 2^-8: tie, down to the even one */
        {0x1.03p0f, 0x1.04p0f},     /* tie, up to the even one */
        {0x1.010002p0f, 0x1.02p0f}, /* above the tie */
        {0x1.02fffep0f, 0x1.02p0f}, /* below it */
        {-0x1.03p0f, -0x1.04p0f},
        {0x1.ffp0f, 0x1p1f}, /* carries into the exponent */
        {-0.0f, -0.0f},
        {0x1p-133f, 0x1p-133f}, /* bf16 has denormals; the product flushes them, not the rounding */
        {0x1p-134f, 0.0f},      /* tie between 0 and 2^-133 */
        {0x1.8p-134f, 0x1p-133f},
        {0x1.fefffep127f, 0x1.fep127f} /* the last one that does not round to infinity */
    };
    enum { N = sizeof cases / sizeof *cases };
    (void)state;
    const kern_table *t;
    for (int s = -1; (t = sets_next(&s));) {
        float x[N];
        for (size_t i = 0; i < N; i++) {
            x[i] = cases[i].x;
        }
        mm_act g = mm_act_new(KERN_ACT_BF16, 1, N, GUARD_END);
        uint8_t bad = 0;
        kern_act_rows(t, &g.a, x, 0, 1, &bad);
        assert_int_equal(bad, 0);
        for (size_t i = 0; i < N; i++) {
            assert_true(same_float(bf16_to_f32(g.a.bf16[i]), cases[i].want));
        }
        mm_act_free(&g);
        x[3] = 0x1.ffp127f; /* finite, but infinite in bf16 */
        g = mm_act_new(KERN_ACT_BF16, 1, N, GUARD_END);
        kern_act_rows(t, &g.a, x, 0, 1, &bad);
        assert_int_equal(bad, 1);
        assert_int_equal(g.a.bf16[0], 0);
        mm_act_free(&g);
    }
}

/* Values of all magnitudes, zeros of both signs, denormals. */
static void fill_wild(uint64_t *rng, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t r = rng_next(rng);
        switch (r >> 61) {
        case 0:
            x[i] = r & 1 ? -0.0f : 0.0f;
            break;
        case 1:
            x[i] = f32_from_bits((uint32_t)r & 0x807FFFFFu);
            break;
        case 2:
            x[i] = ldexpf(rng_float(rng), (int)(r % 200) - 110);
            break;
        default:
            x[i] = rng_float(rng);
            break;
        }
    }
}

static void test_sets_equal(void **state)
{
    static const size_t widths[] = {1,  7,   8,   9,   16,  31,  32,  33,  63,
                                    64, 100, 255, 256, 257, 511, 512, 768, 1000};
    (void)state;
    const kern_table *ref = kern_table_of(KERN_REF);
    uint64_t rng = 11;
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        for (size_t kind = 0; kind < KIND_COUNT; kind++) {
            for (int side = 0; side < 2; side++) {
                size_t k = widths[i];
                size_t m = 5;
                guard x = guard_new(m * k * sizeof(float), (guard_side)side);
                fill_wild(&rng, guard_floats(&x), m * k);
                memset(guard_floats(&x) + 2 * k, 0, k * sizeof(float)); /* a row of zeros */
                uint8_t bad[5] = {0};
                mm_act want = mm_act_new(kinds[kind], m, k, (guard_side)side);
                kern_act_rows(ref, &want.a, guard_floats(&x), 0, m, bad);
                const kern_table *t;
                for (int s = -1; (t = sets_next(&s));) {
                    mm_act got = mm_act_new(kinds[kind], m, k, (guard_side)side);
                    kern_act_rows(t, &got.a, guard_floats(&x), 3, 5, bad); /* in any pieces, any order */
                    kern_act_rows(t, &got.a, guard_floats(&x), 0, 1, bad);
                    kern_act_rows(t, &got.a, guard_floats(&x), 1, 3, bad);
                    mm_act_equal(t, &got, &want);
                    mm_act_free(&got);
                }
                mm_act_free(&want);
                guard_free(&x);
            }
        }
    }
}

/* Row 1 of three is bad by one value anywhere; it is zero, its flag set, and the neighbours are as without
 * it. */
static void bad_row_check(const kern_table *t, kern_act_kind kind, size_t k, size_t at, float value)
{
    uint64_t rng = 17;
    float x[3 * 300];
    rng_fill(&rng, x, 3 * k);
    mm_act want = mm_act_new(kind, 3, k, GUARD_END);
    float clean[3 * 300];
    memcpy(clean, x, sizeof clean);
    memset(clean + k, 0, k * sizeof *clean); /* a row of zeros is what a bad row must look like */
    uint8_t bad[3] = {7, 7, 7};
    kern_act_rows(kern_table_of(KERN_REF), &want.a, clean, 0, 3, bad);
    assert_int_equal(bad[1], 7);
    x[k + at] = value;
    mm_act got = mm_act_new(kind, 3, k, GUARD_END);
    kern_act_rows(t, &got.a, x, 0, 3, bad);
    assert_int_equal(bad[0], 7);
    assert_int_equal(bad[1], 1);
    assert_int_equal(bad[2], 7);
    mm_act_equal(t, &got, &want);
    mm_act_free(&got);
    mm_act_free(&want);
}

static void test_bad_rows(void **state)
{
    const float values[] = {NAN, -NAN, INFINITY, -INFINITY, f32_from_bits(0x7F800001u)};
    static const size_t widths[] = {1, 32, 45, 256, 300};
    (void)state;
    const kern_table *t;
    for (int s = -1; (t = sets_next(&s));) {
        for (size_t kind = 0; kind < KIND_COUNT; kind++) {
            for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
                for (size_t at = 0; at < widths[i]; at += at + 7 < widths[i] ? 7 : 1) {
                    bad_row_check(t, kinds[kind], widths[i], at, values[at % 5]);
                }
            }
        }
    }
}

/* Row r of both, in every array. */
static void row_equal(const kern_act *a, const kern_act *b, size_t r)
{
    if (a->f32) {
        assert_memory_equal(a->f32 + r * a->k, b->f32 + r * a->k, a->k * sizeof(float));
    }
    for (size_t i = 0; a->bf16 && i < a->n_runs; i++) {
        assert_memory_equal(kern_act_bf16(a, r, i), kern_act_bf16(b, r, i), 64);
    }
    for (size_t i = 0; a->q && i < a->n_runs; i++) {
        assert_memory_equal(kern_act_q(a, r, i), kern_act_q(b, r, i), 64);
    }
    for (size_t i = 0; i < a->n_blocks; i++) {
        assert_memory_equal(kern_act_d(a, r, i), kern_act_d(b, r, i), sizeof(float));
        assert_memory_equal(kern_act_sums(a, r, i), kern_act_sums(b, r, i), a->block / 16 * sizeof(int16_t));
        if (a->totals) {
            assert_memory_equal(kern_act_total(a, r, i), kern_act_total(b, r, i), sizeof(float));
        } else {
            assert_memory_equal(kern_act_halves(a, r, i), kern_act_halves(b, r, i),
                                KERN_ACT_HALVES * sizeof(uint16_t));
        }
    }
}

/* Rows outside [r0, r1) stay as they are. */
static void test_range_only(void **state)
{
    (void)state;
    uint64_t rng = 23;
    float x[5 * 300];
    rng_fill(&rng, x, 5 * 300);
    const kern_table *t;
    for (int s = -1; (t = sets_next(&s));) {
        for (size_t kind = 0; kind < KIND_COUNT; kind++) {
            mm_act fresh = mm_act_new(kinds[kind], 5, 300, GUARD_END);
            mm_act whole = mm_act_new(kinds[kind], 5, 300, GUARD_END);
            mm_act part = mm_act_new(kinds[kind], 5, 300, GUARD_END);
            uint8_t bad[5] = {0};
            kern_act_rows(t, &whole.a, x, 0, 5, bad);
            kern_act_rows(t, &part.a, x, 2, 4, bad);
            for (size_t r = 0; r < 5; r++) {
                row_equal(&part.a, r >= 2 && r < 4 ? &whole.a : &fresh.a, r);
            }
            mm_act_free(&part);
            mm_act_free(&whole);
            mm_act_free(&fresh);
        }
    }
}

/* A row in parts is the row as a whole; a part with a bad value is zero and says so, the others are as ever. */
static void test_parts(void **state)
{
    static const size_t widths[] = {256, 300, 512, 1000, 1056};
    const kern_table *t;
    uint64_t rng = 29;
    (void)state;
    for (int s = -1; (t = sets_next(&s));) {
        for (size_t i = 0; i < KIND_COUNT * sizeof widths / sizeof *widths; i++) {
            size_t k = widths[i / KIND_COUNT];
            kern_act_kind kind = kinds[i % KIND_COUNT];
            float x[1056], clean[1056];
            uint8_t bad[3] = {0};
            mm_act want = mm_act_new(kind, 3, k, GUARD_END), got = mm_act_new(kind, 3, k, GUARD_END);
            rng_fill(&rng, x, k);
            memcpy(clean, x, sizeof clean);
            memset(clean, 0, (k < KERN_ACT_STEP ? k : KERN_ACT_STEP) * sizeof *clean);
            t->act_prepare(&want.a, x, 0, 0, k, bad);
            t->act_prepare(&want.a, clean, 2, 0, k, bad);
            for (size_t k0 = (k - 1) / KERN_ACT_STEP * KERN_ACT_STEP;;
                 k0 -= KERN_ACT_STEP) { /* from the end */
                t->act_prepare(&got.a, x, 0, k0, k - k0 < KERN_ACT_STEP ? k : k0 + KERN_ACT_STEP, bad);
                if (k0 == 0) {
                    break;
                }
            }
            assert_true(bad[0] == 0 && bad[2] == 0);
            row_equal(&got.a, &want.a, 0);
            x[100] = INFINITY;
            t->act_prepare(&got.a, x, 2, 0, KERN_ACT_STEP, bad);
            assert_int_equal(bad[2], 1);
            t->act_prepare(&got.a, x, 2, KERN_ACT_STEP, k, bad);
            row_equal(&got.a, &want.a, 2);
            mm_act_free(&got);
            mm_act_free(&want);
        }
    }
}

/* Totals and halves against the codes, for a tile of few rows and for several of sixteen, in memory that
 * kern_act_init lays out. */
static void derived_check(const kern_table *t, kern_act_kind kind, size_t m, size_t k, uint64_t *rng)
{
    float *x = test_malloc(m * k * sizeof *x);
    uint8_t bad[40] = {0};
    guard mem = guard_new((kern_act_bytes(kind, m, k) + 4095) / 4096 * 4096, GUARD_END);
    kern_act a;
    rng_fill(rng, x, m * k);
    kern_act_init(&a, kind, m, k, mem.data);
    assert_int_equal(a.tile, m <= KERN_ACT_SMALL ? m : KERN_ACT_TILE);
    kern_act_rows(t, &a, x, 0, m, bad);
    guard_check(&mem);
    for (size_t r = 0; r < m; r++) {
        for (size_t b = 0; b < a.n_blocks; b++) {
            int total = 0;
            for (size_t s = 0; s < a.block / 16; s++) {
                int sum = 0;
                for (size_t i = 0; i < 16; i++) {
                    size_t at = b * a.block + s * 16 + i;
                    sum += kern_act_q(&a, r, at / 64)[at % 64];
                }
                assert_int_equal(kern_act_sums(&a, r, b)[s], sum);
                total += sum;
                if (a.halves) {
                    int high = (int)bf16_to_f32(kern_act_halves(&a, r, b)[2 * s]);
                    int low = (int)bf16_to_f32(kern_act_halves(&a, r, b)[2 * s + 1]);
                    assert_int_equal(high + low, sum);
                    assert_true(high % 16 == 0 && low >= -8 && low <= 7);
                }
            }
            assert_true(!a.totals || *kern_act_total(&a, r, b) == (float)total);
        }
    }
    guard_free(&mem);
    test_free(x);
}

static void test_derived(void **state)
{
    static const size_t ms[] = {1, 7, 8, 9, 16, 17, 33};
    (void)state;
    uint64_t rng = 31;
    const kern_table *t;
    for (int s = -1; (t = sets_next(&s));) {
        for (size_t i = 0; i < sizeof ms / sizeof *ms; i++) {
            derived_check(t, KERN_ACT_Q8_32, ms[i], 32 * 5, &rng);
            derived_check(t, KERN_ACT_Q8_256, ms[i], 768, &rng);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codes_by_hand),  cmocka_unit_test(test_scale_edges),
        cmocka_unit_test(test_largest_is_127), cmocka_unit_test(test_bf16_by_hand),
        cmocka_unit_test(test_sets_equal),     cmocka_unit_test(test_bad_rows),
        cmocka_unit_test(test_range_only),     cmocka_unit_test(test_parts),
        cmocka_unit_test(test_derived),        cmocka_unit_test(test_every_set_ran),
    };
    return cmocka_run_group_tests_name("kern act_quant", tests, NULL, NULL);
}
