/*
 * quant, the encoders: against plain rounding, on values that a format holds exactly, and on what no block
 * can hold.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fp16.h"
#include "fixtures.h"
#include "gguf/quant.h"

#define ROWS 16
#define COLS 1024

/*
 * What plain rounding does with as many codes: the scale is exact and puts the largest magnitude of each run
 * of n_run values on the last level, each value takes the nearest level, of either sign. Levels are the whole
 * numbers from first to last, or with is_fp4 the eight magnitudes of a 4-bit float; with is_power the scale is
 * rounded up to a power of two. Formats that share integer scales among runs are held to the same bound.
 */
static const struct plain {
    gguf_type type;
    size_t n_run;
    int first, last;
    bool is_fp4, is_power;
    bool is_stable; /* a decoded row, encoded again, decodes to the same: the search meets its own result */
    bool has_gap;   /* no code of the format is small beside the others of its run */
} plain[] = {
    {GGUF_TYPE_Q4_0, 32, 0, 7, .is_stable = true},
    {GGUF_TYPE_Q4_1, 32, 0, 7},
    {GGUF_TYPE_Q5_0, 32, 0, 15, .is_stable = true},
    {GGUF_TYPE_Q5_1, 32, 0, 15},
    {GGUF_TYPE_Q8_0, 32, 0, 127, .is_stable = true},
    {GGUF_TYPE_Q2_K, 16, 0, 1},
    {GGUF_TYPE_Q3_K, 16, 0, 3},
    {GGUF_TYPE_Q4_K, 32, 0, 7},
    {GGUF_TYPE_Q5_K, 32, 0, 15},
    {GGUF_TYPE_Q6_K, 16, 0, 31},
    {GGUF_TYPE_IQ4_NL, 32, 0, 7, .is_stable = true},
    {GGUF_TYPE_IQ4_XS, 32, 0, 7, .is_stable = true},
    {GGUF_TYPE_TQ1_0, 256, 0, 1, .is_stable = true},
    {GGUF_TYPE_TQ2_0, 256, 0, 1, .is_stable = true},
    {GGUF_TYPE_MXFP4, 32, 0, 7, .is_fp4 = true, .is_power = true, .is_stable = true},
    {GGUF_TYPE_NVFP4, 16, 0, 7, .is_fp4 = true, .is_stable = true},
    {GGUF_TYPE_Q1_0, 128, 1, 1, .is_stable = true, .has_gap = true},
    {GGUF_TYPE_Q2_0, 64, 0, 1, .is_stable = true},
    {GGUF_TYPE_IQ1_S, 32, 1, 1, .has_gap = true},
    {GGUF_TYPE_IQ1_M, 16, 1, 1, .has_gap = true},
    {GGUF_TYPE_IQ2_XXS, 32, 0, 1, .has_gap = true},
    {GGUF_TYPE_IQ2_XS, 16, 0, 1, .has_gap = true},
    {GGUF_TYPE_IQ2_S, 16, 0, 1, .has_gap = true},
    {GGUF_TYPE_IQ3_XXS, 32, 0, 2, .has_gap = true},
    {GGUF_TYPE_IQ3_S, 32, 0, 3, .has_gap = true},
};
#define N_PLAIN   (sizeof plain / sizeof *plain)
#define WIDE_ROW  7  /* ten decades: scales that share one factor lose against scales that do not */
#define SMALL_ROW 12 /* times 0.001, below what the scales of NVFP4 reach without a factor for the tensor */

static float source[ROWS * COLS];

static void read_source(void)
{
    const char *path = fixture_path("quants/source.f32");
    if (!path) {
        skip();
    }
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(source, sizeof *source, ROWS * COLS, file), ROWS * COLS);
    fclose(file);
}

static double squared_error(const float *x, const float *y, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
    }
    return sum;
}

static double plain_error(const struct plain *p, const float *x, size_t n)
{
    static const double fp4[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    double sum = 0;
    for (size_t run = 0; run < n; run += p->n_run) {
        double top = 0;
        for (size_t i = 0; i < p->n_run; i++) {
            top = fmax(top, fabs((double)x[run + i]));
        }
        double d = top / (p->is_fp4 ? 6 : p->last);
        d = p->is_power && d > 0 ? exp2(ceil(log2(d))) : d;
        for (size_t i = 0; i < p->n_run; i++) {
            double v = fabs((double)x[run + i]), best = HUGE_VAL;
            for (int l = p->first; l <= p->last; l++) {
                best = fmin(best, fabs(d * (p->is_fp4 ? fp4[l] : l) - v));
            }
            sum += best * best;
        }
    }
    return sum;
}

static const char *name_of(size_t t)
{
    return gguf_type_info_of((uint32_t)plain[t].type).name;
}

static void round_trip(gguf_type type, const float *x, float *out, size_t n)
{
    static uint8_t blocks[4 * COLS];
    memset(blocks, 0xA5, sizeof blocks); /* what lay there before does not matter */
    quant_quantise(type, x, blocks, n);
    quant_dequantise(type, blocks, out, n);
}

static void test_not_worse_than_plain(void **state)
{
    static float got[COLS];
    read_source();
    for (size_t t = 0; t < N_PLAIN; t++) {
        double worst = 0;
        for (size_t row = 0; row < ROWS; row++) {
            const float *x = source + row * COLS;
            if ((plain[t].type == GGUF_TYPE_NVFP4 && row == SMALL_ROW) ||
                (plain[t].has_gap && row == WIDE_ROW)) { /* small values beside large ones need small codes */
                continue;
            }
            round_trip(plain[t].type, x, got, COLS);
            double ratio = sqrt(squared_error(x, got, COLS) / (plain_error(&plain[t], x, COLS) + DBL_MIN));
            worst = fmax(worst, ratio);
            /* 0.01 for the rounding of scales to binary16 or to integers; 0.1 for that over ten decades, and
             * where what is small beside an outlier has no small code */
            if (ratio > (row == WIDE_ROW || plain[t].has_gap ? 1.1 : 1.01)) {
                fail_msg("%s, row %zu: %.3f of the error of plain rounding", name_of(t), row, ratio);
            }
        }
        print_message("%-6s worst row %.3f of plain rounding\n", name_of(t), worst);
    }
}

static void test_stable(void **state)
{
    static float once[COLS], twice[COLS];
    read_source();
    for (size_t t = 0; t < N_PLAIN; t++) {
        for (size_t row = 0; plain[t].is_stable && row < ROWS; row++) {
            round_trip(plain[t].type, source + row * COLS, once, COLS);
            round_trip(plain[t].type, once, twice, COLS);
            for (size_t i = 0; i < COLS; i++) {
                if (once[i] != twice[i]) {
                    fail_msg("%s, row %zu, value %zu: %a became %a", name_of(t), row, i, (double)once[i],
                             (double)twice[i]);
                }
            }
        }
    }
}

static uint32_t seed = 1;

static int draw(int lo, int hi)
{
    seed = seed * 1664525u + 1013904223u;
    return lo + (int)((seed >> 8) % (uint32_t)(hi - lo + 1));
}

/*
 * Rows on a grid that the format has, whose codes in each sub-block reach both ends (or, where codes are
 * signed, the end with one step more) and whose scales reach theirs: nothing is left to choose, so they come
 * back exactly. Value = d * scale * code - dmin * min; d = 0.375 and dmin = 0.25 have few bits, so that every
 * value is exact in fp32.
 */
static const struct grid {
    gguf_type type;
    size_t n_sub; /* values that share a scale */
    int code_lo, code_hi;
    int scale_lo, scale_hi; /* 1, 1: the format has d alone */
    int min_hi;             /* 0: no minimum */
} grids[] = {
    {GGUF_TYPE_Q4_1, 32, 0, 15, 1, 1, 60},   {GGUF_TYPE_Q5_0, 32, -16, 15, 1, 1, 0},
    {GGUF_TYPE_Q5_1, 32, 0, 31, 1, 1, 60},   {GGUF_TYPE_Q2_K, 16, 0, 3, 1, 15, 15},
    {GGUF_TYPE_Q3_K, 16, -4, 3, -32, 31, 0}, {GGUF_TYPE_Q4_K, 32, 0, 15, 1, 63, 63},
    {GGUF_TYPE_Q5_K, 32, 0, 31, 1, 63, 63},  {GGUF_TYPE_Q6_K, 16, -32, 31, -128, 127, 0},
    {GGUF_TYPE_TQ1_0, 256, -1, 1, 1, 1, 0},  {GGUF_TYPE_TQ2_0, 256, -1, 1, 1, 1, 0},
    {GGUF_TYPE_Q2_0, 64, -1, 2, 1, 1, 0},
};

static void fill_on_grid(const struct grid *g, float *x)
{
    for (size_t at = 0; at < COLS; at += g->n_sub) {
        int scale = draw(g->scale_lo, g->scale_hi), min = draw(0, g->min_hi);
        if (at % 256 == 0) { /* the first sub-block of a block has the extreme scale and minimum */
            scale = g->scale_lo < 0 ? g->scale_lo : g->scale_hi;
            min = g->min_hi;
        }
        for (size_t i = 0; i < g->n_sub; i++) {
            int code = i == 0 ? g->code_lo : i == 1 ? g->code_hi : draw(g->code_lo, g->code_hi);
            x[at + i] = 0.375f * (float)(scale * code) - 0.25f * (float)min;
        }
    }
}

static void test_on_grid(void **state)
{
    static float x[COLS], got[COLS];
    for (size_t t = 0; t < sizeof grids / sizeof *grids; t++) {
        for (int round = 0; round < 20; round++) {
            fill_on_grid(&grids[t], x);
            round_trip(grids[t].type, x, got, COLS);
            for (size_t i = 0; i < COLS; i++) {
                if (x[i] != got[i]) {
                    fail_msg("%s, value %zu: %a became %a", gguf_type_info_of((uint32_t)grids[t].type).name,
                             i, (double)x[i], (double)got[i]);
                }
            }
        }
    }
}

/* NaN counts as 0 and an infinity as the largest float; what comes back is finite. */
static void test_not_finite(void **state)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY}, instead[] = {0, FLT_MAX, -FLT_MAX};
    static uint8_t want[1024], blocks[1024];
    float x[256], y[256], got[256];
    for (size_t t = 0; t < N_PLAIN; t++) {
        for (size_t i = 0; i < 256; i++) {
            x[i] = y[i] = (float)draw(-100, 100) * 0.01f;
        }
        for (size_t i = 0; i < 3; i++) { /* one in each of three sub-blocks, NaN first of all */
            x[80 * i] = bad[i];
            y[80 * i] = instead[i];
        }
        quant_quantise(plain[t].type, x, blocks, 256);
        quant_quantise(plain[t].type, y, want, 256);
        assert_memory_equal(blocks, want, quant_row_bytes(plain[t].type, 256));
        quant_dequantise(plain[t].type, blocks, got, 256);
        for (size_t i = 0; i < 256; i++) {
            assert_true(isfinite(got[i]));
        }
    }
}

/* One large value among zeros: it is kept, and the zeros stay small beside it (1 of 127 for IQ4). */
static void test_single_large(void **state)
{
    for (size_t t = 0; t < N_PLAIN; t++) {
        float x[256] = {0}, got[256];
        if (plain[t].has_gap) {
            continue;
        }
        x[77] = -1000;
        round_trip(plain[t].type, x, got, 256);
        assert_true(fabs((double)got[77] + 1000) <= 50);
        for (size_t i = 0; i < 256; i++) {
            assert_true(i == 77 || fabs((double)got[i]) <= 10);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_not_worse_than_plain),
        cmocka_unit_test(test_stable),
        cmocka_unit_test(test_on_grid),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_single_large),
    };
    return cmocka_run_group_tests_name("gguf-quant-encode", tests, NULL, NULL);
}
