/*
 * The judge is judged: by hand-made blocks, by a model small enough to compute on paper, and by values that
 * other programs computed (shared/fixtures: exact logits from a float64 program, dequantised rows from the
 * reference).
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "test_oracle.h"

/* ---- rule 1: activation codes ----------------------------------------------------------------------------
 */

/* One Q8_0 block with d = 1 and all codes w. */
static void make_q8_0(uint8_t block[34], int8_t w)
{
    block[0] = 0x00; /* 1.0 in binary16 */
    block[1] = 0x3c;
    memset(block + 2, (uint8_t)w, 32);
}

static void codes_of(const float x[32], int8_t codes[32], double *y)
{
    uint8_t block[34];
    double bound;

    make_q8_0(block, 1);
    assert_true(oracle_matmul(ORACLE_Q8_0, block, 1, 32, x, y, &bound, codes));
}

static void test_codes_round_half_to_even(void **state)
{
    /* absmax 127 makes both d and its inverse 1, so each x is rounded as it stands */
    static const float x[32] = {127.0f, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 126.5f, 3.49f, 3.51f};
    static const int8_t want[32] = {127, 0, 2, 2, 0, -2, -2, 126, 3, 4};
    int8_t codes[32];
    double y;

    (void)state;
    codes_of(x, codes, &y);
    assert_memory_equal(codes, want, sizeof want);
    assert_true(y == 127.0 + 0 + 2 + 2 + 0 - 2 - 2 + 126 + 3 + 4);
}

static void test_codes_use_float_arithmetic(void **state)
{
    /* found by search: round(x * 127 / absmax) in double gives the other neighbour */
    static const float x[32] = {3.0f, 0x1.e3c79p-5f, 0x1.b366cep-4f, 0x1.cb972ep-3f, 0x1.fbf7f2p-3f};
    int8_t codes[32];
    double y;

    (void)state;
    codes_of(x, codes, &y);
    assert_int_equal(codes[0], 127);
    assert_int_equal(codes[1], 2);
    assert_int_equal(codes[2], 4);
    assert_int_equal(codes[3], 10);
    assert_int_equal(codes[4], 10); /* 11 if x were divided by d */
    /* y is d times the sum of the codes, d being 3/127 rounded to float */
    assert_true(y == (double)(3.0f / 127.0f) * (127 + 2 + 4 + 10 + 10));
}

static void test_codes_of_tiny_rows(void **state)
{
    float x[32] = {0};
    int8_t codes[32], zero[32] = {0};
    double y;

    (void)state;
    codes_of(x, codes, &y);
    assert_memory_equal(codes, zero, sizeof zero);
    x[5] = -0x1.fffffep-101f; /* the largest float below 2^-100 */
    codes_of(x, codes, &y);
    assert_memory_equal(codes, zero, sizeof zero);
    assert_true(y == 0.0);
    x[5] = -0x1p-100f;
    codes_of(x, codes, &y);
    assert_int_equal(codes[5], -127);
    assert_true(fabs(y + 0x1p-100) < 0x1p-122);
}

static void test_matmul_refuses(void **state)
{
    uint8_t block[34];
    float x[32] = {1.0f};
    double y = 42.0;

    (void)state;
    make_q8_0(block, 1);
    assert_false(oracle_matmul(99, block, 1, 32, x, &y, NULL, NULL));
    assert_false(oracle_matmul(ORACLE_Q8_0, block, 1, 31, x, &y, NULL, NULL));
    x[3] = NAN;
    assert_false(oracle_matmul(ORACLE_Q8_0, block, 1, 32, x, &y, NULL, NULL));
    x[3] = INFINITY;
    assert_false(oracle_matmul(ORACLE_Q8_0, block, 1, 32, x, &y, NULL, NULL));
    assert_true(y == 42.0);
}

static void test_bound_counts_blocks(void **state)
{
    uint8_t blocks[68];
    float x[64];
    double y, bound;

    (void)state;
    make_q8_0(blocks, 1);
    make_q8_0(blocks + 34, -1);
    for (size_t i = 0; i < 64; i++)
        x[i] = 127.0f;
    assert_true(oracle_matmul(ORACLE_Q8_0, blocks, 1, 64, x, &y, &bound, NULL));
    assert_true(y == 0.0); /* the two blocks cancel, the bound must not */
    assert_true(bound == (2 * 2 + 4) * 0x1p-24 * (2 * 32 * 127.0));
}

/* ---- hand-made blocks ------------------------------------------------------------------------------------
 */

static void test_float_types(void **state)
{
    static const uint8_t f16[] = {0x00, 0x3c, 0x00, 0xc0, 0x01, 0x00, 0xff, 0x03, 0xff, 0x7b, 0x00, 0x80};
    static const float f16_want[] = {1.0f, -2.0f, 0x1p-24f, 1023 * 0x1p-24f, 65504.0f, -0.0f};
    static const uint8_t bf16[] = {0x80, 0x3f, 0x49, 0xc0};
    static const float bf16_want[] = {1.0f, -3.140625f};
    /* 1 + 2^-8 is half way between bf16 1 (even) and 1 + 2^-7; 1 + 3 * 2^-8 half way to 1 + 2^-6 (even) */
    static const float x[] = {1.00390625f, 0.0f};
    static const float x_up[] = {1.01171875f, 0.0f};
    float out[6];
    double y, bound;

    (void)state;
    assert_true(oracle_dequant(ORACLE_F16, f16, 6, out));
    assert_memory_equal(out, f16_want, sizeof f16_want);
    assert_true(oracle_dequant(ORACLE_BF16, bf16, 2, out));
    assert_memory_equal(out, bf16_want, sizeof bf16_want);
    assert_true(oracle_matmul(ORACLE_BF16, bf16, 1, 2, x, &y, &bound, NULL));
    assert_true(y == 1.0);
    assert_true(oracle_matmul(ORACLE_BF16, bf16, 1, 2, x_up, &y, &bound, NULL));
    assert_true(y == 1.015625);
    assert_true(bound == (2 * 2 + 4) * 0x1p-24 * 1.015625);
    assert_true(oracle_matmul(ORACLE_F32, x, 1, 2, x, &y, NULL, NULL));
    assert_true(y == 1.00390625 * 1.00390625);
}

static void test_q4_0_block(void **state)
{
    uint8_t block[18] = {0x00, 0x38}; /* d = 0.5 */
    float out[32];

    (void)state;
    for (size_t i = 0; i < 16; i++)
        block[2 + i] = (uint8_t)(i | (15 - i) << 4);
    assert_true(oracle_dequant(ORACLE_Q4_0, block, 32, out));
    for (int i = 0; i < 16; i++) {
        assert_true(out[i] == 0.5f * (float)(i - 8));
        assert_true(out[16 + i] == 0.5f * (float)(7 - i));
    }
}

/* Scales and minima of every sub-block different, with high bits set in the upper four. */
static const int q4_k_sc[8] = {1, 63, 17, 32, 5, 62, 33, 48};
static const int q4_k_m[8] = {60, 2, 0, 31, 63, 16, 47, 9};

/* d = 1, dmin = 2; code of value i is (i + i/32) mod 16 */
static void make_q4_k(uint8_t block[144])
{
    memset(block, 0, 144);
    block[1] = 0x3c;
    block[3] = 0x40;
    for (size_t j = 0; j < 4; j++) {
        block[4 + j] = (uint8_t)(q4_k_sc[j] | q4_k_sc[4 + j] / 16 << 6);
        block[8 + j] = (uint8_t)(q4_k_m[j] | q4_k_m[4 + j] / 16 << 6);
        block[12 + j] = (uint8_t)(q4_k_sc[4 + j] % 16 | q4_k_m[4 + j] % 16 << 4);
    }
    for (size_t i = 0; i < 256; i++) {
        size_t code = (i + i / 32) % 16;
        block[16 + i / 64 * 32 + i % 32] |= (uint8_t)(code << (i / 32 % 2 ? 4 : 0));
    }
}

static void test_q4_k_block(void **state)
{
    uint8_t block[144];
    float out[256], x[256];
    int8_t codes[256];
    long isum = 0, msum = 0;
    double y, bound;

    (void)state;
    make_q4_k(block);
    assert_true(oracle_dequant(ORACLE_Q4_K, block, 256, out));
    for (int i = 0; i < 256; i++) {
        int q = (i + i / 32) % 16, a = i == 0 ? 127 : i % 100 - 50;
        assert_true(out[i] == (float)(q4_k_sc[i / 32] * q - 2 * q4_k_m[i / 32]));
        x[i] = 0.25f * (float)a; /* d = 0.25 and the codes are a */
        isum += (long)q4_k_sc[i / 32] * q * a;
        msum += (long)q4_k_m[i / 32] * a;
    }
    assert_true(oracle_matmul(ORACLE_Q4_K, block, 1, 256, x, &y, &bound, codes));
    assert_int_equal(codes[0], 127);
    assert_int_equal(codes[255], 5);
    assert_true(y == 0.25 * (double)isum - 0.25 * 2.0 * (double)msum);
    assert_true(bound == 6 * 0x1p-24 * (fabs(0.25 * (double)isum) + fabs(0.5 * (double)msum)));
}

static void test_q6_k_block(void **state)
{
    uint8_t block[210] = {0};
    float out[256], x[256];
    double y, want = 0.0;

    (void)state;
    block[209] = 0x3c; /* d = 1 */
    for (int i = 0; i < 256; i++) {
        unsigned code = (unsigned)(i * 7 + i / 16) % 64; /* stored, 32 more than its worth */
        int half = i / 128, quarter = i % 128 / 32, lane = i % 32;
        block[64 * half + 32 * (quarter & 1) + lane] |= (uint8_t)((code & 15) << (quarter & 2 ? 4 : 0));
        block[128 + 32 * half + lane] |= (uint8_t)(code >> 4 << 2 * quarter);
        block[192 + i / 16] = (uint8_t)(i / 16 * 17 - 128); /* -128 .. 127 */
    }
    assert_true(oracle_dequant(ORACLE_Q6_K, block, 256, out));
    for (int i = 0; i < 256; i++) {
        int value = (i / 16 * 17 - 128) * ((i * 7 + i / 16) % 64 - 32);
        assert_true(out[i] == (float)value);
        x[i] = i == 0 ? -127.0f : (float)(i / 2 - 60); /* d = 1, codes as they stand */
        want += (double)value * (double)x[i];
    }
    assert_true(oracle_matmul(ORACLE_Q6_K, block, 1, 256, x, &y, NULL, NULL));
    assert_true(y == want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codes_round_half_to_even),
        cmocka_unit_test(test_codes_use_float_arithmetic),
        cmocka_unit_test(test_codes_of_tiny_rows),
        cmocka_unit_test(test_matmul_refuses),
        cmocka_unit_test(test_bound_counts_blocks),
        cmocka_unit_test(test_float_types),
        cmocka_unit_test(test_q4_0_block),
        cmocka_unit_test(test_q4_k_block),
        cmocka_unit_test(test_q6_k_block),
        cmocka_unit_test(test_paper_model),
        cmocka_unit_test(test_quantised_model),
        cmocka_unit_test(test_open_refuses),
        cmocka_unit_test(test_arch_fixtures),
        cmocka_unit_test(test_arch_refused),
        cmocka_unit_test(test_stories_nll),
        cmocka_unit_test(test_quant_fixtures),
    };

    find_fixtures();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
