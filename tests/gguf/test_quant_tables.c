/*
 * quant_tables: the grids against check sums of what the reference library decodes for every index, and the
 * codes of small floats against their definition. That the points which occur in fixtures/quants are right is
 * seen in test_quant.c: its files use 4485 of the 4608 points.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "gguf/quant.h"
#include "gguf/quant_tables.h"

/*
 * sum: over the indices in order, sum = 31 * sum + rank, modulo 2^32; rank = the point's digits, first
 * coordinate least significant. Computed from ggml 0.18.1: one block per index, all other bits zero, through
 * dequantize_row_<type> (so not from its tables, nor from ours).
 */
static const struct known {
    const quant_grid *grid;
    unsigned n_points, n_dims, base;
    uint32_t sum;
    int first_level, last_level;
} known[] = {
    {&quant_grid_iq1, 2048, 8, 3, 0xe305f80du, -1, 1},
    {&quant_grid_iq2_xxs, 256, 8, 3, 0xa922802au, 8, 43},
    {&quant_grid_iq2_xs, 512, 8, 3, 0xf51b0f08u, 8, 43},
    {&quant_grid_iq2_s, 1024, 8, 3, 0xe9bde8c4u, 8, 43},
    {&quant_grid_iq3_xxs, 256, 4, 8, 0x74f7a18eu, 4, 62},
    {&quant_grid_iq3_s, 512, 4, 8, 0xad68e91bu, 1, 15},
};

static void test_grids(void **state)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const quant_grid *g = known[i].grid;
        uint32_t sum = 0;
        assert_int_equal(g->n_points, known[i].n_points);
        assert_int_equal(g->n_dims, known[i].n_dims);
        assert_int_equal(g->base, known[i].base);
        assert_int_equal(g->levels[0], known[i].first_level);
        assert_int_equal(g->levels[g->base - 1], known[i].last_level);
        for (unsigned index = 0, below = 0; index < g->n_points; index++) {
            unsigned rank = quant_grid_rank(g, index);
            assert_true(index == 0 || rank > below);
            assert_int_equal(quant_grid_index(g, rank), index);
            assert_int_equal(quant_grid_next(g, index == 0 ? 0 : below + 1), rank);
            below = rank;
            sum = 31 * sum + rank;
        }
        assert_int_equal(sum, known[i].sum);
        assert_int_equal(quant_grid_next(g, quant_grid_rank(g, g->n_points - 1u) + 1), 64u * g->n_words);
    }
}

/* The counts by which a point is found are those of the bits. */
static void test_counts(void **state)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const quant_grid *g = known[i].grid;
        unsigned n = 0;
        assert_int_equal(g->n_words, ((unsigned)pow(g->base, g->n_dims) + 63) / 64);
        for (size_t word = 0; word < g->n_words; word++) {
            assert_int_equal(g->before[word], n);
            for (unsigned bit = 0; bit < 64; bit++) {
                n += g->members[word] >> bit & 1u;
            }
        }
        assert_int_equal(n, g->n_points);
    }
}

static void test_point(void **state)
{
    /* the second rank of IQ3_XXS's grid is 2: the third level, then the first */
    int8_t out[QUANT_GRID_MAX_DIMS];
    assert_int_equal(quant_grid_rank(&quant_grid_iq3_xxs, 1), 2);
    quant_grid_point(&quant_grid_iq3_xxs, 1, out);
    assert_true(out[0] == 20 && out[1] == 4 && out[2] == 4 && out[3] == 4);
}

/* MXFP4 by the OCP MX specification: E2M1 codes (sign, two bits of exponent with bias 1, one of mantissa), times
 * 2^(e - 127). */
static void test_mxfp4(void **state)
{
    static const int exponents[] = {0, 1, 2, 100, 127, 128, 252};
    for (size_t t = 0; t < sizeof exponents / sizeof *exponents; t++) {
        block_mxfp4 b = {.e = (uint8_t)exponents[t]};
        float got[32];
        for (unsigned i = 0; i < 16; i++) {
            b.qs[i] = (uint8_t)(i | (15 - i) << 4);
        }
        quant_dequantise(GGUF_TYPE_MXFP4, &b, got, 32);
        for (int i = 0; i < 32; i++) {
            int code = i < 16 ? i : 31 - i, exponent = code >> 1 & 3, mantissa = code & 1;
            double magnitude = exponent == 0 ? 0.5 * mantissa : ldexp(1 + 0.5 * mantissa, exponent - 1);
            double want = ldexp(code & 8 ? -magnitude : magnitude, exponents[t] - 127);
            assert_true((double)got[i] == want);
        }
    }
}

/* The scales of NVFP4: E4M3 without sign, bias 7; 0x7F, its NaN, is read as 0. */
static void test_nvfp4_scales(void **state)
{
    for (int code = 0; code < 128; code++) {
        block_nvfp4 b = {.d = {(uint8_t)code, 0, 0, 0x38}};
        float got[64];
        memset(b.qs, 0x72, sizeof b.qs); /* 1 in the low nibbles, 6 in the high ones */
        quant_dequantise(GGUF_TYPE_NVFP4, &b, got, 64);
        double want = code < 8 ? ldexp(code, -9) : code == 127 ? 0 : ldexp(8 + code % 8, code / 8 - 10);
        assert_true((double)got[0] == want && (double)got[8] == 6 * want);
        assert_true(got[16] == 0 && got[48] == 1 && got[63] == 6);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grids), cmocka_unit_test(test_counts),       cmocka_unit_test(test_point),
        cmocka_unit_test(test_mxfp4), cmocka_unit_test(test_nvfp4_scales),
    };
    return cmocka_run_group_tests_name("gguf-quant-tables", tests, NULL, NULL);
}
