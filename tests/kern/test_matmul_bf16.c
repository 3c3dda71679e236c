/*
 * matmul_bf16: the rule of BF16 (DESIGN 4 rule 2) at its edges: values worked out by hand from the Intel
 * manual's text (inputs that are denormal are zero; a result is flushed if it is tiny after rounding to 24
 * bits), and, where this CPU has a tile unit, the unit itself as the judge.
 */
#include "matmul_test.h"

/* One output: w · x in pairs; k is what is given, the rest of the run is the padding's business. */
typedef struct edge {
    const char *what;
    float w[4]; /* bf16 values at k = 0 … 3: even chain 0, 2; odd chain 1, 3 */
    float x[4];
    float want;
} edge;

#define E63 0x1p-63f
#define E75 0x1p-75f

static const edge edges[] = {
    {"the smallest normal product stays", {E63}, {E63}, 0x1p-126f},
    {"half of it is flushed", {E63}, {0x1p-64f}, 0.0f},
    {"flushed keeps its sign in the chain, even + odd makes +0", {-E63}, {0x1p-64f}, 0.0f},
    {"a denormal weight is zero", {0x1p-127f}, {0x1p100f}, 0.0f},
    {"the largest denormal bf16 weight is zero", {0x1.fcp-127f}, {0x1p100f}, 0.0f},
    {"a denormal activation is zero", {0x1p100f}, {0x1p-130f}, 0.0f},
    {"the smallest normal weight is not", {0x1p-126f}, {0x1p100f}, 0x1p-26f},
    /* 2^-126 - 2^-152: 24 bits round up to 2^-126 */
    {"a quarter step below the limit rounds up to it", {E63, 0, -E75}, {E63, 0, 0x1p-77f}, 0x1p-126f},
    /* 2^-126 - 2^-151: tie between 2^-126 (1 - 2^-24) and 2^-126, to the even one */
    {"half a step below the limit is a tie, to even", {E63, 0, -E75}, {E63, 0, 0x1p-76f}, 0x1p-126f},
    /* 2^-126 - 1.5 * 2^-151: rounds to 2^-126 (1 - 2^-24), which is tiny, though the denormal grid has 2^-126
     */
    {"past the tie it is tiny, whatever the denormal grid says", {E63, 0, -E75}, {E63, 0, 0x1.8p-76f}, 0.0f},
    {"one step below", {E63, 0, -E75}, {E63, 0, 0x1p-75f}, 0.0f},
    {"the same below zero", {-E63, 0, E75}, {E63, 0, 0x1.8p-76f}, 0.0f},
    {"the same in the odd chain", {0, E63, 0, -E75}, {0, E63, 0, 0x1.8p-76f}, 0.0f},
    {"the odd chain, tie", {0, E63, 0, -E75}, {0, E63, 0, 0x1p-76f}, 0x1p-126f},
    /* even 1.5 * 2^-126, odd -2^-126: both normal, the sum is not */
    {"even + odd is flushed", {0x1.8p-63f, -E63}, {E63, E63}, 0.0f},
    {"even + odd on the limit stays", {0x1p-62f, -E63}, {E63, E63}, 0x1p-126f},
    /* 1 + 2^-24 + 2^-24: each chain alone keeps 2^-24, one chain in order would lose it twice */
    {"the small ones meet before they meet the large one",
     {1, 0x1p-12f, 0, 0x1p-12f},
     {1, 0x1p-12f, 0, 0x1p-12f},
     0x1.000002p0f},
    /* even: 1 + 2^-24 = 1 (tie to even), again 1 */
    {"in one chain they do not", {1, 0, 0x1p-12f, 0}, {1, 0, 0x1p-12f, 0}, 1.0f},
};

static float edge_product(const kern_table *t, const edge *e, size_t k)
{
    uint16_t w[4];
    for (size_t i = 0; i < 4; i++) {
        w[i] = bf16_from_f32(e->w[i]);
        assert_true(bf16_to_f32(w[i]) == e->w[i]);
        assert_true(bf16_to_f32(bf16_from_f32(e->x[i])) == e->x[i]);
    }
    uint8_t row[64 * sizeof(uint16_t)] = {0};
    float x[64] = {0};
    memcpy(row, w, sizeof w);
    memcpy(x, e->x, sizeof e->x);
    kern_matrix mat = {GGUF_TYPE_BF16, 1, k, k * sizeof(uint16_t), row, NULL};
    guard packed = mm_pack(&mat, GUARD_END);
    mm_act g = mm_act_of(t, GGUF_TYPE_BF16, x, 1, k, GUARD_END);
    float y = NAN;
    t->matmul[GGUF_TYPE_BF16](&mat, &g.a, 0, 1, &y, 1);
    mm_act_free(&g);
    mm_pack_free(&packed);
    return y;
}

static void test_edges(void **state)
{
    static const size_t ks[] = {4, 31, 32, 33, 64};
    (void)state;
    const kern_table *t;
    for (int s = -1; (t = sets_next(&s));) {
        for (size_t i = 0; i < sizeof edges / sizeof *edges; i++) {
            for (size_t c = 0; c < sizeof ks / sizeof *ks; c++) {
                float y = edge_product(t, &edges[i], ks[c]);
                if (!same_float(y, edges[i].want)) {
                    fail_msg("set %s, k %zu: %s: %a, not %a", t->name, ks[c], edges[i].what, (double)y,
                             (double)edges[i].want);
                }
            }
        }
    }
}

/* The product leaves the thread's denormal mode as it was. */
static void test_mode_is_kept(void **state)
{
    (void)state;
    const kern_table *t;
    for (int s = -1; (t = sets_next(&s));) {
        volatile float tiny = 0x1p-140f;
        (void)edge_product(t, &edges[0], 32);
        /* the bits: with denormals off, == finds a denormal equal to zero */
        assert_int_equal(f32_bits(tiny * 2.0f), 1u << 10);
    }
}

/*
 * Random values whose products and sums crowd around 2^-126, and ordinary ones. style 0: ordinary; 1:
 * products around the limit; 2: of all sizes, denormals too; 3: a normal 2^-126 and bits below it.
 */
static uint16_t crowd(uint64_t *rng, int style, size_t i, bool weight)
{
    uint64_t r = rng_next(rng);
    uint16_t sign = (uint16_t)((r & 1) << 15);
    uint16_t mantissa = (uint16_t)((r >> 1) & 127);
    unsigned spread = (unsigned)((r >> 8) & 31);
    switch (style) {
    case 0:
        return (uint16_t)(sign | (127 - spread % 20) << 7 | mantissa);
    case 1:
        return (uint16_t)(sign | (68 - spread) << 7 | mantissa);
    case 2:
        return (uint16_t)(sign | (unsigned)((r >> 16) % 127) << 7 | mantissa);
    default:
        if (i % 32 < 2) {
            return (uint16_t)(127 - 63) << 7;
        }
        if (i % 32 >= 8) {
            return 0;
        }
        return (uint16_t)(sign | (weight ? 127u - 70 : 127u - 80 - spread % 3) << 7 | mantissa);
    }
}

enum { ROWS = 16, COLS = 16, DEEP = 96 };

static void crowd_fill(uint64_t *rng, int style, uint16_t *w, float *x)
{
    for (size_t i = 0; i < COLS * DEEP; i++) {
        w[i] = crowd(rng, style, i, true);
    }
    for (size_t i = 0; i < ROWS * DEEP; i++) {
        x[i] = bf16_to_f32(crowd(rng, style, i, false));
    }
}

static void product_of(const kern_table *t, const uint16_t *w, const float *x, float *y)
{
    kern_matrix mat = {GGUF_TYPE_BF16, COLS, DEEP, DEEP * sizeof(uint16_t), w, NULL};
    guard packed = mm_pack(&mat, GUARD_END);
    mm_act g = mm_act_of(t, GGUF_TYPE_BF16, x, ROWS, DEEP, GUARD_END);
    t->matmul[GGUF_TYPE_BF16](&mat, &g.a, 0, COLS, y, COLS);
    mm_act_free(&g);
    mm_pack_free(&packed);
}

static void test_sets_crowded(void **state)
{
    static uint16_t w[COLS * DEEP];
    static float x[ROWS * DEEP], want[ROWS * COLS], y[ROWS * COLS];
    (void)state;
    uint64_t rng = 43;
    for (int i = 0; i < 40; i++) {
        crowd_fill(&rng, i % 4, w, x);
        product_of(kern_table_of(KERN_REF), w, x, want);
        const kern_table *t;
        for (int s = -1; (t = sets_next(&s));) {
            product_of(t, w, x, y);
            assert_same_floats("crowded bf16", t, y, want, ROWS * COLS);
        }
    }
}

#if defined(__x86_64__)

#include <immintrin.h>

typedef struct tile_config {
    uint8_t palette, start;
    uint8_t reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

/* y = x · wT on the tile unit: 32 k a step. x: [ROWS][DEEP] and w: [DEEP / 2][COLS] pairs. */
__attribute__((target("amx-tile,amx-bf16"), noinline)) static void tile_product(const uint16_t *x,
                                                                                const uint32_t *w, float *y)
{
    tile_config config = {.palette = 1};
    for (int i = 0; i < 3; i++) {
        config.row_bytes[i] = 64;
        config.rows[i] = 16;
    }
    __asm__ volatile("" ::: "memory"); /* GCC 12 drops stores to the configuration */
    _tile_loadconfig(&config);
    _tile_zero(0);
    for (size_t c = 0; c < DEEP; c += 32) {
        _tile_loadd(1, x + c, DEEP * sizeof *x);
        _tile_loadd(2, w + c / 2 * COLS, COLS * sizeof *w);
        _tile_dpbf16ps(0, 1, 2);
    }
    _tile_stored(0, y, COLS * sizeof *y);
    _tile_release();
}

static void test_tile_unit(void **state)
{
    static uint16_t w[COLS * DEEP], x16[ROWS * DEEP];
    static uint32_t pairs[DEEP / 2 * COLS];
    static float x[ROWS * DEEP], want[ROWS * COLS], y[ROWS * COLS];
    (void)state;
    if (!kern_set_on_cpu(KERN_AMX)) {
        fprintf(stderr, "SKIPPED: no bf16 tile unit here to judge the reference\n");
        skip();
    }
    uint64_t rng = 47;
    for (int i = 0; i < 60; i++) {
        crowd_fill(&rng, i % 4, w, x);
        for (size_t c = 0; c < ROWS * DEEP; c++) {
            x16[c] = bf16_from_f32(x[c]);
        }
        for (size_t p = 0; p < DEEP / 2; p++) {
            for (size_t o = 0; o < COLS; o++) {
                pairs[p * COLS + o] = w[o * DEEP + 2 * p] | (uint32_t)w[o * DEEP + 2 * p + 1] << 16;
            }
        }
        tile_product(x16, pairs, want);
        const kern_table *t;
        for (int s = -1; (t = sets_next(&s));) {
            product_of(t, w, x, y);
            for (size_t c = 0; c < ROWS * COLS; c++) {
                if (!same_float(y[c], want[c])) {
                    fail_msg("style %d, set %s, output %zu: %a, the tile unit says %a", i % 4, t->name, c,
                             (double)y[c], (double)want[c]);
                }
            }
        }
    }
}

#else

static void test_tile_unit(void **state)
{
    (void)state;
    fprintf(stderr, "SKIPPED: no bf16 tile unit here to judge the reference\n");
    skip();
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_edges),         cmocka_unit_test(test_mode_is_kept),
        cmocka_unit_test(test_sets_crowded),  cmocka_unit_test(test_tile_unit),
        cmocka_unit_test(test_every_set_ran),
    };
    return cmocka_run_group_tests_name("kern matmul bf16", tests, NULL, NULL);
}
