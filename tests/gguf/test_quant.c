/*
 * quant: decoding against the reference library's own values (fixtures/quants, bit for bit) and against
 * blocks made by hand; encoding against the error that the reference reaches on the same rows.
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

#define ROWS     16
#define COLS     1024
#define N        (ROWS * COLS)
#define WIDE_ROW 7

static const struct supported {
    gguf_type type;
    const char *name;
    double reference_error; /* quants/MANIFEST.md: relative RMS without the wide row */
} types[] = {
    {GGUF_TYPE_F16, "F16", 0.00021},       {GGUF_TYPE_Q4_0, "Q4_0", 0.12495},
    {GGUF_TYPE_Q4_1, "Q4_1", 0.08247},     {GGUF_TYPE_Q5_0, "Q5_0", 0.06386},
    {GGUF_TYPE_Q5_1, "Q5_1", 0.04009},     {GGUF_TYPE_Q8_0, "Q8_0", 0.00808},
    {GGUF_TYPE_Q2_K, "Q2_K", 0.25587},     {GGUF_TYPE_Q3_K, "Q3_K", 0.15892},
    {GGUF_TYPE_Q4_K, "Q4_K", 0.07896},     {GGUF_TYPE_Q5_K, "Q5_K", 0.03900},
    {GGUF_TYPE_Q6_K, "Q6_K", 0.02384},     {GGUF_TYPE_IQ2_XXS, "IQ2_XXS", 0.51976},
    {GGUF_TYPE_IQ2_XS, "IQ2_XS", 0.40376}, {GGUF_TYPE_IQ3_XXS, "IQ3_XXS", 0.25164},
    {GGUF_TYPE_IQ1_S, "IQ1_S", 0.55322},   {GGUF_TYPE_IQ4_NL, "IQ4_NL", 0.09956},
    {GGUF_TYPE_IQ3_S, "IQ3_S", 0.20484},   {GGUF_TYPE_IQ2_S, "IQ2_S", 0.40390},
    {GGUF_TYPE_IQ4_XS, "IQ4_XS", 0.10148}, {GGUF_TYPE_IQ1_M, "IQ1_M", 0.53025},
    {GGUF_TYPE_BF16, "BF16", 0.00166},     {GGUF_TYPE_TQ1_0, "TQ1_0", 0.77787},
    {GGUF_TYPE_TQ2_0, "TQ2_0", 0.77787},   {GGUF_TYPE_MXFP4, "MXFP4", 0.13786},
    {GGUF_TYPE_NVFP4, "NVFP4", 0.09580},   {GGUF_TYPE_Q1_0, "Q1_0", 0.66586},
    {GGUF_TYPE_Q2_0, "Q2_0", 0.62156},
};
#define N_TYPES (sizeof types / sizeof *types)

static float source[N], want[N], got[N];
static uint8_t blocks[4 * N];

/* Reads fixtures/quants/<type><suffix>; skips the test if it is not there. */
static size_t fixture_get(const char *type, const char *suffix, void *out, size_t max)
{
    char name[64];
    snprintf(name, sizeof name, "quants/%s%s", type, suffix);
    const char *path = fixture_path(name);
    if (!path) {
        skip();
    }
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t n = fread(out, 1, max, file);
    fclose(file);
    return n;
}

static void test_decode_fixtures(void **state)
{
    static const char *const kinds[2][2] = {{".bin", ".f32"}, {".rnd.bin", ".rnd.f32"}};
    for (size_t i = 0; i < N_TYPES; i++) {
        for (size_t k = 0; k < 2; k++) {
            size_t n_bytes = fixture_get(types[i].name, kinds[k][0], blocks, sizeof blocks);
            assert_int_equal(n_bytes, ROWS * quant_row_bytes(types[i].type, COLS));
            assert_int_equal(fixture_get(types[i].name, kinds[k][1], want, sizeof want), sizeof want);
            quant_dequantise(types[i].type, blocks, got, N);
            for (size_t at = 0; at < N; at++) {
                if (f32_bits(got[at]) != f32_bits(want[at])) {
                    fail_msg("%s%s value %zu is %a, it should be %a", types[i].name, kinds[k][0], at,
                             (double)got[at], (double)want[at]);
                }
            }
        }
    }
}

static double relative_error(const float *x, const float *y)
{
    double diff = 0, sum = 0;
    for (size_t i = 0; i < N; i++) {
        if (i / COLS != WIDE_ROW) {
            diff += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
            sum += (double)x[i] * (double)x[i];
        }
    }
    return sqrt(diff / sum);
}

static void test_encode_error(void **state)
{
    assert_int_equal(fixture_get("source", ".f32", source, sizeof source), sizeof source);
    for (size_t i = 0; i < N_TYPES; i++) {
        for (size_t row = 0; row < ROWS; row++) {
            quant_quantise(types[i].type, source + row * COLS,
                           blocks + row * quant_row_bytes(types[i].type, COLS), COLS);
        }
        quant_dequantise(types[i].type, blocks, got, N);
        double error = relative_error(source, got);
        print_message("%-6s error %.5f, reference %.5f\n", types[i].name, error, types[i].reference_error);
        /* half a digit for the rounding of the figures in the manifest */
        assert_true(error <= 1.15 * (types[i].reference_error + 0.000005));
    }
}

/* One value per float of the plain types, chosen so that the right answer is known exactly. */
static void test_decode_floats(void **state)
{
    const uint16_t half[] = {0x3C00, 0xC000, 0x0001, 0x7BFF, 0x8000, 0x0400};
    const float half_want[] = {1, -2, 0x1p-24f, 65504, -0.0f, 0x1p-14f};
    const uint16_t brain[] = {0x3F80, 0xC049, 0x0001, 0x7F7F};
    const float brain_want[] = {1, -3.140625f, 0x1p-133f, 0x1.FEp127f};
    const float plain[] = {1, -0.0f, 0x1p-149f};
    quant_dequantise(GGUF_TYPE_F16, half, got, 6);
    assert_memory_equal(got, half_want, sizeof half_want);
    quant_dequantise(GGUF_TYPE_BF16, brain, got, 4);
    assert_memory_equal(got, brain_want, sizeof brain_want);
    quant_dequantise(GGUF_TYPE_F32, plain, got, 3);
    assert_memory_equal(got, plain, sizeof plain);
}

static void test_decode_q4_0_q8_0(void **state)
{
    block_q4_0 four = {.d = 0x3800};  /* 0.5 */
    block_q8_0 eight = {.d = 0xC000}; /* -2 */
    for (size_t i = 0; i < 16; i++) {
        four.qs[i] = (uint8_t)(i | (15 - i) << 4);
        eight.qs[i] = (int8_t)(i - 128);
        eight.qs[i + 16] = (int8_t)(112 + i);
    }
    quant_dequantise(GGUF_TYPE_Q4_0, &four, got, 32);
    for (int i = 0; i < 16; i++) {
        assert_true(got[i] == 0.5f * (float)(i - 8));
        assert_true(got[i + 16] == 0.5f * (float)(7 - i));
    }
    quant_dequantise(GGUF_TYPE_Q8_0, &eight, got, 32);
    for (int i = 0; i < 16; i++) {
        assert_true(got[i] == -2.0f * (float)(i - 128));
        assert_true(got[i + 16] == -2.0f * (float)(112 + i));
    }
}

/*
 * Q4_K, scales 1, 2, 3, 62, 17, 34, 51, 63 and minima 63, 5, 0, 40, 48, 33, 16, 7 packed by hand:
 * byte j = sc_j | (sc_(4+j) >> 4) << 6, byte 4+j likewise for m, byte 8+j = low nibbles of sc_(4+j), m_(4+j).
 *   sc 17 = 1|1, 34 = 2|2, 51 = 3|3, 63 = 3|15        m 48 = 3|0, 33 = 2|1, 16 = 1|0, 7 = 0|7
 */
static void test_decode_q4_k(void **state)
{
    static const int scale[8] = {1, 2, 3, 62, 17, 34, 51, 63};
    static const int min[8] = {63, 5, 0, 40, 48, 33, 16, 7};
    block_q4_k b = {.d = 0x3C00,
                    .dmin = 0x3800, /* 1 and 0.5 */
                    .scales = {1 | 1 << 6, 2 | 2 << 6, 3 | 3 << 6, 62 | 3 << 6, 63 | 3 << 6, 5 | 2 << 6,
                               0 | 1 << 6, 40 | 0 << 6, 0x01, 0x12, 0x03, 0x7F}};
    for (size_t i = 0; i < 128; i++) {
        b.qs[i] = (uint8_t)(i % 16 | (i % 16 ^ 15) << 4);
    }
    quant_dequantise(GGUF_TYPE_Q4_K, &b, got, 256);
    for (int i = 0; i < 256; i++) {
        int j = i / 32, code = i % 16;
        code = j % 2 ? code ^ 15 : code;
        assert_true(got[i] == (float)(scale[j] * code) - 0.5f * (float)min[j]);
    }
}

/* Q6_K: value i has code i mod 64, packed by hand for the run of 32 it is in. */
static void test_decode_q6_k(void **state)
{
    block_q6_k b = {.d = 0x4000}; /* 2 */
    for (int j = 0; j < 16; j++) {
        b.scales[j] = (int8_t)(j % 2 ? -j - 112 : j + 1);
    }
    for (int half = 0; half < 2; half++) {
        for (int l = 0; l < 32; l++) {
            /* codes of the values l, l + 32, l + 64, l + 96: l, l + 32, l, l + 32 */
            int low = l, high = l + 32;
            b.ql[64 * half + l] = (uint8_t)((low & 15) | (low & 15) << 4);
            b.ql[64 * half + 32 + l] = (uint8_t)((high & 15) | (high & 15) << 4);
            b.qh[32 * half + l] = (uint8_t)(low >> 4 | (high >> 4) << 2 | (low >> 4) << 4 | (high >> 4) << 6);
        }
    }
    quant_dequantise(GGUF_TYPE_Q6_K, &b, got, 256);
    for (int i = 0; i < 256; i++) {
        assert_true(got[i] == 2.0f * (float)(b.scales[i / 16] * (i % 64 - 32)));
    }
}

/* Steps of a grid that the format holds exactly come back exactly. */
static void test_encode_exact(void **state)
{
    float x[256];
    for (int i = 0; i < 256; i++) {
        x[i] = 0.25f * (float)(i % 16 - 8); /* Q4_0: -2 is the extreme, d = 0.25 */
    }
    quant_quantise(GGUF_TYPE_Q4_0, x, blocks, 256);
    quant_dequantise(GGUF_TYPE_Q4_0, blocks, got, 256);
    assert_memory_equal(got, x, sizeof x);
    for (int i = 0; i < 256; i++) {
        x[i] = 0.5f * (float)(i % 32 ? i % 32 - 16 : 127); /* Q8_0: d = 0.5 */
    }
    quant_quantise(GGUF_TYPE_Q8_0, x, blocks, 256);
    quant_dequantise(GGUF_TYPE_Q8_0, blocks, got, 256);
    assert_memory_equal(got, x, sizeof x);
    for (size_t i = 0; i < 256; i++) {
        x[i] = fp16_to_f32((uint16_t)(i * 100));
    }
    quant_quantise(GGUF_TYPE_F16, x, blocks, 256);
    quant_dequantise(GGUF_TYPE_F16, blocks, got, 256);
    assert_memory_equal(got, x, sizeof x);
}

/* Half of the last step beside the largest value: 1/15 for 4 bits (or finer, or without a step beyond it),
 * 1/5 where the two largest codes are 4 and 6, 1/4 where they are 1 and 2. The grids of IQ1 to IQ3 lack most
 * combinations of levels, so that a value may get any of them; the largest level is below twice a value that
 * gets it. */
static double overshoot_of(gguf_type type)
{
    switch (type) {
    case GGUF_TYPE_Q2_0:
        return 1.0 / 4;
    case GGUF_TYPE_MXFP4:
    case GGUF_TYPE_NVFP4:
        return 1.0 / 5;
    case GGUF_TYPE_IQ1_S:
    case GGUF_TYPE_IQ1_M:
    case GGUF_TYPE_IQ2_XXS:
    case GGUF_TYPE_IQ2_XS:
    case GGUF_TYPE_IQ2_S:
    case GGUF_TYPE_IQ3_XXS:
    case GGUF_TYPE_IQ3_S:
        return 1;
    default:
        return 1.0 / 15;
    }
}

/* Zeros give zeros, nothing finite gives anything else, and no value goes further off than the largest. */
static void test_encode_extremes(void **state)
{
    static const float scales[] = {0, FLT_MIN, 0x1p-149f, 1e-20f, 1e-7f, 1, 1e4f, 1e7f, 1e20f, FLT_MAX};
    for (size_t t = 0; t < N_TYPES; t++) {
        uint32_t block_values = gguf_type_info_of((uint32_t)types[t].type).block_values;
        for (size_t s = 0; s < sizeof scales / sizeof *scales; s++) {
            float x[512];
            for (int i = 0; i < 512; i++) {
                x[i] = scales[s] * ((float)(i * 37 % 101) / 50.0f - 1.0f); /* in [-1, 1] */
            }
            quant_quantise(types[t].type, x, blocks, 512);
            quant_dequantise(types[t].type, blocks, got, 512);
            for (int i = 0; i < 512; i++) {
                if (isinf(got[i]) &&
                    block_values == 1) { /* rounded as IEEE does: beyond the largest is infinity */
                    assert_true(scales[s] > (types[t].type == GGUF_TYPE_F16 ? 65504.0f : 0x1.FEp127f));
                    continue;
                }
                assert_true(isfinite(got[i]));
                /* 2^-19 is what the step of 2^-24 of a small binary16 scale makes of 32 codes */
                double bound =
                    (1 + overshoot_of(types[t].type)) * (double)scales[s] + (scales[s] != 0 ? 0x1p-19 : 0);
                if (fabs((double)got[i]) > bound) {
                    fail_msg("%s: %g became %g", types[t].name, (double)x[i], (double)got[i]);
                }
                assert_true(scales[s] != 0 || f32_bits(got[i]) << 1 == 0);
            }
        }
    }
}

static void test_encode_repeats(void **state)
{
    float x[1024];
    uint8_t again[4096];
    uint32_t seed = 1;
    for (size_t i = 0; i < 1024; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(int32_t)seed * 0x1p-31f;
    }
    for (size_t t = 0; t < N_TYPES; t++) {
        size_t n = quant_row_bytes(types[t].type, 1024);
        quant_quantise(types[t].type, x, blocks, 1024);
        memset(again, 0xFF, sizeof again); /* what lay there before does not matter */
        quant_quantise(types[t].type, x, again, 1024);
        assert_memory_equal(blocks, again, n);
    }
}

static void test_row_bytes(void **state)
{
    assert_int_equal(quant_row_bytes(GGUF_TYPE_F32, 3), 12);
    assert_int_equal(quant_row_bytes(GGUF_TYPE_Q4_0, 64), 36);
    assert_int_equal(quant_row_bytes(GGUF_TYPE_Q4_0, 33), 0);
    assert_int_equal(quant_row_bytes(GGUF_TYPE_Q6_K, 512), 420);
    assert_int_equal(quant_row_bytes((gguf_type)4, 32), 0);
    assert_int_equal(quant_row_bytes((gguf_type)43, 32), 0);
    assert_int_equal(quant_row_bytes(GGUF_TYPE_F64, SIZE_MAX), 0);
    assert_true(quant_supported(GGUF_TYPE_F32));
    assert_true(quant_supported(GGUF_TYPE_Q4_K));
    assert_false(quant_supported(GGUF_TYPE_Q8_K));
    assert_false(quant_supported(GGUF_TYPE_I8));
    assert_false(quant_supported((gguf_type)4));
    assert_false(quant_supported(GGUF_TYPE_COUNT));
}

/* The table of types against quants/MANIFEST.md: | name | id | values | bytes | ... */
static void test_type_table(void **state)
{
    const char *path = fixture_path("quants/MANIFEST.md");
    if (!path) {
        skip();
    }
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    char line[4096], name[16];
    unsigned id, values, bytes;
    size_t n = 0;
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "| %15[A-Z0-9_] | %u | %u | %u |", name, &id, &values, &bytes) == 4) {
            gguf_type_info info = gguf_type_info_of(id);
            assert_non_null(info.name);
            assert_string_equal(info.name, name);
            assert_int_equal(info.block_values, values);
            assert_int_equal(info.block_bytes, bytes);
            n++;
        }
    }
    fclose(file);
    assert_int_equal(n, 27);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decode_fixtures), cmocka_unit_test(test_encode_error),
        cmocka_unit_test(test_decode_floats),   cmocka_unit_test(test_decode_q4_0_q8_0),
        cmocka_unit_test(test_decode_q4_k),     cmocka_unit_test(test_decode_q6_k),
        cmocka_unit_test(test_encode_exact),    cmocka_unit_test(test_encode_extremes),
        cmocka_unit_test(test_encode_repeats),  cmocka_unit_test(test_row_bytes),
        cmocka_unit_test(test_type_table),
    };
    return cmocka_run_group_tests_name("gguf-quant", tests, NULL, NULL);
}
