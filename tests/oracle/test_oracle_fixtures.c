/*
 * Values that other programs computed. Where shared/fixtures is absent these tests are skipped, loudly.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test_oracle.h"

/* ---- fixtures --------------------------------------------------------------------------------------------
 */

static char fixtures[1024];

void find_fixtures(void)
{
    const char *given = getenv("HEARTH_FIXTURES");
    const char *root = getenv("HEARTH_ROOT");

    if (given)
        snprintf(fixtures, sizeof fixtures, "%s", given);
    else
        snprintf(fixtures, sizeof fixtures, "%s/../shared/fixtures", root ? root : ".");
}

static const char *fixture_path(const char *name)
{
    static char path[1200];

    snprintf(path, sizeof path, "%s/%s", fixtures, name);
    return path;
}

/* Skips the running test, and says so, if the folder is not there. */
static void need_fixtures(void)
{
    FILE *f = fopen(fixture_path("MANIFEST.md"), "rb");

    if (f) {
        fclose(f);
        return;
    }
    fprintf(stderr, "SKIPPED: fixtures absent (%s)\n", fixtures);
    skip();
}

/* The whole file, malloc'd. A fixture that is missing from a folder that is there is a failure. */
static void *read_fixture(const char *name, size_t *n_bytes)
{
    FILE *f = fopen(fixture_path(name), "rb");
    uint8_t *bytes;
    long end;

    if (!f)
        fail_msg("cannot open %s", fixture_path(name));
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    end = ftell(f);
    assert_true(end >= 0);
    rewind(f);
    bytes = malloc((size_t)end + 1);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, (size_t)end, f), end);
    fclose(f);
    bytes[end] = '\0';
    *n_bytes = (size_t)end;
    return bytes;
}

/* Ids separated by white space, malloc'd. */
static int32_t *read_tokens(const char *name, size_t *n)
{
    size_t n_bytes;
    char *text = read_fixture(name, &n_bytes);
    int32_t *ids = malloc((n_bytes + 1) * sizeof *ids);
    char *at = text, *end;
    long id;

    assert_non_null(ids);
    for (*n = 0; id = strtol(at, &end, 10), end != at; at = end)
        ids[(*n)++] = (int32_t)id;
    free(text);
    return ids;
}

static oracle_model *open_fixture(const char *name)
{
    char err[1400] = "";
    oracle_model *m = oracle_open(fixture_path(name), err, sizeof err);

    if (!m)
        fail_msg("%s: %s", name, err);
    return m;
}

static size_t argmax(const float *v, size_t n)
{
    size_t best = 0;

    for (size_t i = 1; i < n; i++) {
        if (v[i] > v[best])
            best = i;
    }
    return best;
}

/* Mean over the rows of each row's standard deviation: the unit of the manifest's pass rule. */
static double spread(const float *v, size_t rows, size_t width)
{
    double total = 0.0;

    for (size_t r = 0; r < rows; r++) {
        double mean = 0.0, squares = 0.0;
        for (size_t i = 0; i < width; i++)
            mean += (double)v[r * width + i] / (double)width;
        for (size_t i = 0; i < width; i++)
            squares += pow((double)v[r * width + i] - mean, 2.0);
        total += sqrt(squares / (double)width);
    }
    return total / (double)rows;
}

static void check_arch(const char *name)
{
    char file[64];
    oracle_model *m;
    int32_t *tokens;
    float *want, *got;
    size_t n, n_bytes, width;
    double worst = 0.0, unit;

    snprintf(file, sizeof file, "arch/%s.gguf", name);
    m = open_fixture(file);
    width = oracle_n_vocab(m);
    snprintf(file, sizeof file, "arch/%s.tokens.txt", name);
    tokens = read_tokens(file, &n);
    snprintf(file, sizeof file, "arch/%s.exact.f32", name);
    want = read_fixture(file, &n_bytes);
    assert_int_equal(n_bytes, n * width * sizeof(float));
    got = malloc(n_bytes);
    assert_non_null(got);
    assert_true(oracle_logits(m, tokens, n, got));
    unit = spread(want, n, width);
    for (size_t i = 0; i < n * width; i++)
        worst = fmax(worst, fabs((double)got[i] - (double)want[i]));
    print_message("%-14s worst %.3g = %.3g x std %.3f\n", name, worst, worst / unit, unit);
    assert_true(worst <= 2e-6 * unit);
    for (size_t t = 0; t < n; t++)
        assert_int_equal(argmax(got + t * width, width), argmax(want + t * width, width));
    free(got);
    free(want);
    free(tokens);
    oracle_free(m);
}

void test_arch_fixtures(void **state)
{
    static const char *const names[] = {"llama", "llama-untied", "qwen3"};

    (void)state;
    need_fixtures();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        check_arch(names[i]);
}

void test_arch_refused(void **state)
{
    /* same architecture name as llama, but with expert tensors: must not be computed as if it were plain */
    char err[200] = "";

    (void)state;
    need_fixtures();
    assert_null(oracle_open(fixture_path("arch/llama-moe.gguf"), err, sizeof err));
    assert_non_null(strstr(err, "tensor"));
}

/* Negative natural log of the softmax probability of one id. */
static double nll(const float *logits, size_t width, int32_t id)
{
    double highest = (double)logits[argmax(logits, width)], sum = 0.0;

    for (size_t i = 0; i < width; i++)
        sum += exp((double)logits[i] - highest);
    return log(sum) + highest - (double)logits[id];
}

/* Procedure A of fixtures/MANIFEST.md: pieces of 255 ids, each after a BOS of its own. */
void test_stories_nll(void **state)
{
    enum { PIECE = 255 };
    int32_t window[PIECE + 1] = {1};
    oracle_model *m;
    int32_t *ids;
    float *want, *logits;
    size_t n, n_bytes, width;
    double sum = 0.0, worst = 0.0;

    (void)state;
    need_fixtures();
    m = open_fixture("stories260K.gguf");
    width = oracle_n_vocab(m);
    ids = read_tokens("stories.tokens.txt", &n);
    assert_int_equal(n, 2063);
    want = read_fixture("stories.nll.f32", &n_bytes);
    assert_int_equal(n_bytes, n * sizeof(float));
    logits = malloc((PIECE + 1) * width * sizeof *logits);
    assert_non_null(logits);
    for (size_t from = 0; from < n; from += PIECE) {
        size_t len = n - from < PIECE ? n - from : PIECE;
        memcpy(window + 1, ids + from, len * sizeof *ids);
        assert_true(oracle_logits(m, window, len + 1, logits));
        for (size_t i = 0; i < len; i++) {
            double score = nll(logits + i * width, width, ids[from + i]);
            sum += score;
            worst = fmax(worst, fabs(score - (double)want[from + i]));
        }
    }
    print_message("stories260K    mean NLL %.7f, worst single score off by %.3g\n", sum / (double)n, worst);
    assert_true(fabs(sum / (double)n - 1.622184) <= 1e-6);
    assert_true(worst <= 2e-5); /* the file's scores are fp32 work: 1.3e-5 from a float64 program */
    free(logits);
    free(want);
    free(ids);
    oracle_free(m);
}

/* An activation row whose codes and d are exact: d = 1, every 32nd value +-127. */
static void fill_exact_row(float *x, size_t k, uint32_t seed)
{
    for (size_t i = 0; i < k; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = i % 32 == 0 ? (seed >> 31 ? 127.0f : -127.0f) : (float)((int)(seed >> 24) % 255 - 127);
    }
}

/*
 * With an exact activation row the integer path may differ from a dot product with the dequantised row only
 * by the one float rounding in each dequantised value.
 */
static void check_matmul_against_rows(uint32_t type, const uint8_t *blocks, const float *values, size_t rows,
                                      size_t k)
{
    float *x = malloc(k * sizeof *x);
    double *y = malloc(rows * sizeof *y);
    double *bound = malloc(rows * sizeof *bound);

    assert_true(x && y && bound);
    fill_exact_row(x, k, type + 1u);
    assert_true(oracle_matmul(type, blocks, rows, k, x, y, bound, NULL));
    for (size_t r = 0; r < rows; r++) {
        double sum = 0.0, magnitude = 0.0;
        for (size_t i = 0; i < k; i++) {
            double term = (double)x[i] * (double)values[r * k + i];
            sum += term;
            magnitude += fabs(term);
        }
        assert_true(fabs(sum - y[r]) <= 0x1p-24 * magnitude + 1e-30);
        assert_true(bound[r] >= 0.0 && (magnitude == 0.0 || bound[r] < 0.1 * magnitude));
    }
    free(bound);
    free(y);
    free(x);
}

static void check_quant(uint32_t type, const char *name, const char *kind)
{
    enum { ROWS = 16, WIDTH = 1024 };
    char file[64];
    size_t n_bytes, n_want, block_values = 0, block_bytes = 0;
    uint8_t *blocks;
    float *want, *got = malloc(ROWS * WIDTH * sizeof *got);

    assert_non_null(got);
    snprintf(file, sizeof file, "quants/%s%s.bin", name, kind);
    blocks = read_fixture(file, &n_bytes);
    snprintf(file, sizeof file, "quants/%s%s.f32", name, kind);
    want = read_fixture(file, &n_want);
    assert_true(oracle_type_size(type, &block_values, &block_bytes));
    assert_int_equal(n_want, ROWS * WIDTH * sizeof *want);
    assert_int_equal(n_bytes, ROWS * WIDTH / block_values * block_bytes);
    assert_true(oracle_dequant(type, blocks, ROWS * WIDTH, got));
    for (size_t i = 0; i < ROWS * WIDTH; i++) {
        if (memcmp(&got[i], &want[i], sizeof *got) != 0)
            fail_msg("%s value %zu: %a instead of %a", file, i, (double)got[i], (double)want[i]);
    }
    check_matmul_against_rows(type, blocks, want, ROWS, WIDTH);
    free(want);
    free(blocks);
    free(got);
}

void test_quant_fixtures(void **state)
{
    static const struct {
        uint32_t type;
        const char *name;
    } all[] = {
        {ORACLE_F16, "F16"},       {ORACLE_BF16, "BF16"},     {ORACLE_Q4_0, "Q4_0"},
        {ORACLE_Q4_1, "Q4_1"},     {ORACLE_Q5_0, "Q5_0"},     {ORACLE_Q5_1, "Q5_1"},
        {ORACLE_Q8_0, "Q8_0"},     {ORACLE_Q2_K, "Q2_K"},     {ORACLE_Q3_K, "Q3_K"},
        {ORACLE_Q4_K, "Q4_K"},     {ORACLE_Q5_K, "Q5_K"},     {ORACLE_Q6_K, "Q6_K"},
        {ORACLE_IQ4_NL, "IQ4_NL"}, {ORACLE_IQ4_XS, "IQ4_XS"}, {ORACLE_TQ1_0, "TQ1_0"},
        {ORACLE_TQ2_0, "TQ2_0"},   {ORACLE_MXFP4, "MXFP4"},   {ORACLE_NVFP4, "NVFP4"},
        {ORACLE_Q1_0, "Q1_0"},     {ORACLE_Q2_0, "Q2_0"},
    };

    (void)state;
    need_fixtures();
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        check_quant(all[i].type, all[i].name, "");
        check_quant(all[i].type, all[i].name, ".rnd");
    }
}
