/*
 * Random models in every supported format against tests/oracle, a second forward pass in double precision
 * that shares no code with src/. Whole models within 2e-2 x spread and the same best token where its margin
 * exceeds twice that; float formats, where no code can flip, within 2e-4.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "model/make_model.h"
#include "model/rig.h"
#include "model/temp_path.h"
#include "oracle.h"

#define N_TOKENS 24
/* Random weights at these gains must give logits of about this deviation, or the test judges a dead model. */
#define TIGHT      1e-5 /* times the spread: no code differs */
#define TIGHT_ROWS (N_TOKENS * 3 / 4)
#define SPREAD_MIN 1.0
#define SPREAD_MAX 4.0

typedef struct oracle_case {
    uint64_t number; /* seed of weights and tokens */
    const char *arch;
    gguf_type type;
    gguf_type type_alt;
    bool tied;
    bool rope_freqs;
    bool gqa;      /* 4:2, else 4:4 */
    double within; /* times the spread */
} oracle_case;

#define QUANT_WITHIN 2e-2
#define FLOAT_WITHIN 2e-4

static const oracle_case cases[] = {
    {1, "llama", GGUF_TYPE_F32, GGUF_TYPE_F32, true, false, true, FLOAT_WITHIN},
    {2, "llama", GGUF_TYPE_F32, GGUF_TYPE_F16, false, true, true, FLOAT_WITHIN},
    {3, "llama", GGUF_TYPE_F16, GGUF_TYPE_F16, true, true, false, FLOAT_WITHIN},
    {4, "llama", GGUF_TYPE_BF16, GGUF_TYPE_BF16, false, false, true, QUANT_WITHIN},
    {5, "llama", GGUF_TYPE_Q8_0, GGUF_TYPE_Q8_0, true, false, true, QUANT_WITHIN},
    {6, "llama", GGUF_TYPE_Q4_0, GGUF_TYPE_Q4_0, false, true, true, QUANT_WITHIN},
    {7, "llama", GGUF_TYPE_Q4_K, GGUF_TYPE_Q6_K, false, true, true, QUANT_WITHIN},
    {8, "llama", GGUF_TYPE_Q4_K, GGUF_TYPE_Q4_K, true, false, false, QUANT_WITHIN},
    {9, "llama", GGUF_TYPE_Q6_K, GGUF_TYPE_Q8_0, true, false, true, QUANT_WITHIN},
    {10, "qwen3", GGUF_TYPE_F32, GGUF_TYPE_F32, true, false, true, FLOAT_WITHIN},
    {11, "qwen3", GGUF_TYPE_F16, GGUF_TYPE_F32, false, false, true, FLOAT_WITHIN},
    {12, "qwen3", GGUF_TYPE_BF16, GGUF_TYPE_Q8_0, true, false, true, QUANT_WITHIN},
    {13, "qwen3", GGUF_TYPE_Q8_0, GGUF_TYPE_Q8_0, false, false, false, QUANT_WITHIN},
    {14, "qwen3", GGUF_TYPE_Q4_0, GGUF_TYPE_Q8_0, true, false, true, QUANT_WITHIN},
    {15, "qwen3", GGUF_TYPE_Q4_K, GGUF_TYPE_Q6_K, true, false, true, QUANT_WITHIN},
    {16, "qwen3", GGUF_TYPE_Q6_K, GGUF_TYPE_Q6_K, false, false, true, QUANT_WITHIN},
    {17, "llama", GGUF_TYPE_Q4_1, GGUF_TYPE_Q5_1, false, true, true, QUANT_WITHIN},
    {18, "qwen3", GGUF_TYPE_Q5_0, GGUF_TYPE_Q4_1, true, false, true, QUANT_WITHIN},
    {19, "llama", GGUF_TYPE_Q2_K, GGUF_TYPE_Q3_K, false, false, true, QUANT_WITHIN},
    {20, "qwen3", GGUF_TYPE_Q5_K, GGUF_TYPE_Q6_K, true, false, true, QUANT_WITHIN},
    {21, "llama", GGUF_TYPE_IQ4_NL, GGUF_TYPE_IQ4_XS, false, false, true, QUANT_WITHIN},
    {22, "qwen3", GGUF_TYPE_MXFP4, GGUF_TYPE_NVFP4, false, false, true, QUANT_WITHIN},
    {23, "llama", GGUF_TYPE_TQ1_0, GGUF_TYPE_TQ2_0, false, false, true, QUANT_WITHIN},
    {24, "qwen3", GGUF_TYPE_Q2_0, GGUF_TYPE_Q1_0, false, false, true, QUANT_WITHIN},
};

static void make_case(const char *path, const oracle_case *c)
{
    make_model_spec spec = make_model_default(c->type);
    err e = {0};
    spec.arch = c->arch;
    spec.type_alt = c->type_alt;
    spec.tied = c->tied;
    spec.rope_freqs = c->rope_freqs;
    spec.n_kv_heads = c->gqa ? 2 : 4;
    spec.vocab = MAKE_VOCAB_BPE;
    spec.seed = c->number;
    if (make_model(path, &spec, &e) != ST_OK) {
        print_error("make_model: [%s] %s\n", e.field, e.msg);
        fail();
    }
}

static size_t tight_rows(const float *got, const float *want, size_t n_vocab, double spread)
{
    size_t tight = 0;
    for (size_t i = 0; i < N_TOKENS; i++) {
        tight += rig_distance(got + i * n_vocab, want + i * n_vocab, n_vocab) <= TIGHT * spread;
    }
    return tight;
}

/* The same bits from every set: the reference in steps of 7, the others in steps of 1 with 3 threads. */
static void check_variants(const char *path, const int32_t *tokens, const float *want, size_t n)
{
    float *got = mem_alloc_array(n, sizeof *got);
    assert_non_null(got);
    for (int set = 0; set < KERN_SET_COUNT; set++) {
        rig_options opt = rig_options_of((kern_set)set);
        rig r;
        size_t chunk = set == KERN_REF ? 7 : 1;
        opt.threads = set == KERN_REF ? 1 : 3;
        if (!kern_table_of((kern_set)set)) {
            continue;
        }
        rig_open(&r, path, &opt);
        assert_true(rig_run(&r, tokens, N_TOKENS, chunk, got));
        assert_memory_equal(got, want, n * sizeof *got);
        rig_close(&r);
    }
    mem_free(got);
}

static void check_case(const oracle_case *c)
{
    char path[TEMP_PATH_BYTES], why[256];
    int32_t tokens[N_TOKENS];
    make_case(temp_path(path, "oracle.gguf"), c);
    oracle_model *judge = oracle_open(path, why, sizeof why);
    if (!judge) {
        print_error("oracle: %s\n", why);
        fail();
    }
    size_t n_vocab = oracle_n_vocab(judge), n = N_TOKENS * n_vocab;
    float *want = mem_alloc_array(n, sizeof *want), *got = mem_alloc_array(n, sizeof *got);
    assert_true(want && got);
    rig_tokens(tokens, N_TOKENS, (uint32_t)n_vocab, c->number);
    assert_true(oracle_logits(judge, tokens, N_TOKENS, want));

    rig_options opt = rig_options_of(kern_select(KERN_SET_COUNT - 1)->set);
    rig r;
    opt.shuffle = 3;
    rig_open(&r, path, &opt);
    assert_true(rig_run(&r, tokens, N_TOKENS, N_TOKENS, got));
    rig_close(&r);
    check_variants(path, tokens, got, n);

    double spread = rig_spread(want, N_TOKENS, n_vocab), d = rig_distance(got, want, n);
    size_t misses = rig_argmax_misses(got, want, N_TOKENS, n_vocab, 2 * c->within * spread);
    size_t tight = tight_rows(got, want, n_vocab, spread);
    print_message(
        "%llu: %s %s/%s%s%s%s: spread %.2f, error %.1e x spread (allowed %.0e), %zu of %d rows tight\n",
        (unsigned long long)c->number, c->arch, gguf_type_info_of((uint32_t)c->type).name,
        gguf_type_info_of((uint32_t)c->type_alt).name, c->tied ? " tied" : "", c->rope_freqs ? " freqs" : "",
        c->gqa ? " gqa" : "", spread, d / spread, c->within, tight, N_TOKENS);
    assert_true(spread > SPREAD_MIN && spread < SPREAD_MAX);
    assert_true(d <= c->within * spread);
    assert_int_equal(misses, 0);
    assert_true(tight >= TIGHT_ROWS);
    mem_free(want);
    mem_free(got);
    oracle_free(judge);
    assert_int_equal(unlink(path), 0);
}

static void test_all_formats(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check_case(&cases[i]);
    }
}

#define N_LONG 600 /* three spans of 256, 19 pages */

/* Where attention merges spans and walks over pages. */
static void test_long_sequence(void **state)
{
    make_model_spec spec = make_model_default(GGUF_TYPE_F32);
    char path[TEMP_PATH_BYTES], why[256];
    static int32_t tokens[N_LONG];
    size_t n = N_LONG * (size_t)spec.n_vocab;
    spec.width = 64;
    spec.head_dim = 16;
    spec.n_ff = 96;
    assert_int_equal(make_model(temp_path(path, "long.gguf"), &spec, NULL), ST_OK);
    oracle_model *judge = oracle_open(path, why, sizeof why);
    assert_non_null(judge);
    float *want = mem_alloc_array(n, sizeof *want), *got = mem_alloc_array(n, sizeof *got);
    assert_true(want && got);
    rig_tokens(tokens, N_LONG, spec.n_vocab, 11);
    assert_true(oracle_logits(judge, tokens, N_LONG, want));
    rig_options opt = rig_options_of(kern_select(KERN_SET_COUNT - 1)->set);
    rig r;
    opt.shuffle = 2;
    rig_open(&r, path, &opt);
    assert_true(rig_run(&r, tokens, N_LONG, 64, got));
    rig_close(&r);
    assert_true(rig_distance(got, want, n) <= FLOAT_WITHIN * rig_spread(want, N_LONG, spec.n_vocab));
    mem_free(want);
    mem_free(got);
    oracle_free(judge);
    assert_int_equal(unlink(path), 0);
}

/* Linear scaling by f is what divisors of f everywhere do, and those the oracle judges. */
static void test_linear_scaling(void **state)
{
    make_model_spec spec = make_model_default(GGUF_TYPE_F32);
    char path[2][TEMP_PATH_BYTES];
    float *out[2];
    int32_t tokens[N_TOKENS];
    size_t n = N_TOKENS * (size_t)spec.n_vocab;
    rig_tokens(tokens, N_TOKENS, spec.n_vocab, 9);
    for (int i = 0; i < 2; i++) {
        rig_options opt = rig_options_of(KERN_REF);
        rig r;
        spec.rope_factor = i == 0 ? 4.0f : 0.0f;
        spec.rope_freqs = i == 1;
        spec.rope_divisor = 4.0f;
        assert_int_equal(
            make_model(temp_path(path[i], i == 0 ? "linear.gguf" : "divisors.gguf"), &spec, NULL), ST_OK);
        out[i] = mem_alloc_array(n, sizeof(float));
        assert_non_null(out[i]);
        rig_open(&r, path[i], &opt);
        assert_true(rig_run(&r, tokens, N_TOKENS, N_TOKENS, out[i]));
        rig_close(&r);
        assert_int_equal(unlink(path[i]), 0);
    }
    assert_memory_equal(out[0], out[1], n * sizeof(float));
    mem_free(out[0]);
    mem_free(out[1]);
}

/* Norms in halves are the same norms, widened: the bits of a model whose F32 norms hold those values. */
static void test_half_norms(void **state)
{
    static const gguf_type norm_types[] = {GGUF_TYPE_F16, GGUF_TYPE_BF16};
    for (size_t i = 0; i < 2; i++) {
        make_model_spec spec = make_model_default(GGUF_TYPE_F32);
        char path[TEMP_PATH_BYTES], why[256];
        int32_t tokens[N_TOKENS];
        size_t n = N_TOKENS * (size_t)spec.n_vocab;
        spec.norm_type = norm_types[i];
        assert_int_equal(make_model(temp_path(path, "norms.gguf"), &spec, NULL), ST_OK);
        oracle_model *judge = oracle_open(path, why, sizeof why);
        assert_non_null(judge);
        float *want = mem_alloc_array(n, sizeof *want), *got = mem_alloc_array(n, sizeof *got);
        assert_true(want && got);
        rig_tokens(tokens, N_TOKENS, spec.n_vocab, 9);
        assert_true(oracle_logits(judge, tokens, N_TOKENS, want));
        rig_options opt = rig_options_of(KERN_REF);
        rig r;
        rig_open(&r, path, &opt);
        assert_true(rig_run(&r, tokens, N_TOKENS, N_TOKENS, got));
        rig_close(&r);
        assert_true(rig_distance(got, want, n) <= FLOAT_WITHIN * rig_spread(want, N_TOKENS, spec.n_vocab));
        mem_free(want);
        mem_free(got);
        oracle_free(judge);
        assert_int_equal(unlink(path), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_formats),
        cmocka_unit_test(test_long_sequence),
        cmocka_unit_test(test_linear_scaling),
        cmocka_unit_test(test_half_norms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
