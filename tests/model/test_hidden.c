/*
 * The state behind the output norm (want_hidden): what the oracle computes; times the output matrix it is the logits,
 * ours and those of the fixtures; the same bits however the tokens are cut; and no logit changes by asking for it.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/sanitized.h"
#include "fixtures.h"
#include "model/edit_model.h"
#include "model/make_model.h"
#include "model/rig.h"
#include "model/temp_path.h"
#include "oracle.h"

#define N_TOKENS 40
#define GUARD    12345.0f

typedef enum wish { NOTHING, LOGITS, HIDDEN, BOTH } wish;

/* tokens[0, n) as a sequence of its own, chunk rows a step; wishes[i % n_wishes] is what row i wants. logits and
 * hidden: rows that want them, in order. bad: [n]. */
static void run(rig *r, const int32_t *tokens, size_t n, size_t chunk, const wish *wishes, size_t n_wishes,
                float *logits, float *hidden, uint8_t *bad)
{
    batch_row rows[N_TOKENS];
    rig_reset(r);
    rig_seq s = rig_sequence(r, n);
    const batch_seq seq = {.pages = s.pages, .n_pages = s.n_pages};
    for (size_t at = 0; at < n; at += chunk) {
        batch b = {.rows = rows, .n_rows = n - at < chunk ? n - at : chunk, .seqs = &seq, .n_seqs = 1};
        size_t n_logits = 0, n_hidden = 0;
        for (size_t i = 0; i < b.n_rows; i++) {
            wish w = wishes[(at + i) % n_wishes];
            rows[i] = (batch_row){.pos = (int32_t)(at + i),
                                  .token = tokens[at + i],
                                  .want_logits = w == LOGITS || w == BOTH,
                                  .want_hidden = w == HIDDEN || w == BOTH};
            n_logits += rows[i].want_logits;
            n_hidden += rows[i].want_hidden;
        }
        b.hidden = n_hidden > 0 ? hidden : NULL;
        assert_int_equal(r->ops.forward(r->ops.ctx, r->p, &b, logits, bad + at, NULL), ST_OK);
        logits += n_logits * r->ops.shape->n_vocab;
        hidden += n_hidden * r->ops.shape->n_embd;
    }
}

/* Row i of the output matrix, F32 in the file: output.weight, or the embedding. */
static const float *output_row(const rig *r, size_t i)
{
    const gguf_tensor *t = gguf_find_tensor(r->file, "output.weight");
    t = t ? t : gguf_find_tensor(r->file, "token_embd.weight");
    assert_non_null(t);
    assert_int_equal(t->type, GGUF_TYPE_F32);
    return (const float *)t->data + i * (size_t)t->dims[0];
}

/* Largest difference between logits and output times hidden, in double. */
static double distance_by_hand(const rig *r, const float *hidden, const float *logits, size_t n)
{
    size_t n_embd = r->ops.shape->n_embd, n_vocab = r->ops.shape->n_vocab;
    double worst = 0.0;
    for (size_t i = 0; i < n; i++) {
        for (size_t v = 0; v < n_vocab; v++) {
            const float *w = output_row(r, v);
            double sum = 0.0;
            for (size_t k = 0; k < n_embd; k++) {
                sum += (double)w[k] * (double)hidden[i * n_embd + k];
            }
            double d = fabs(sum - (double)logits[i * n_vocab + v]);
            worst = d <= worst ? worst : d;
        }
    }
    return worst;
}

typedef struct outputs {
    float *logits, *hidden; /* of all N_TOKENS rows, and one value more */
    size_t n_logits, n_hidden;
} outputs;

static outputs outputs_new(const rig *r)
{
    outputs o = {.n_logits = N_TOKENS * (size_t)r->ops.shape->n_vocab,
                 .n_hidden = N_TOKENS * (size_t)r->ops.shape->n_embd};
    o.logits = mem_alloc_array(o.n_logits + 1, sizeof(float));
    o.hidden = mem_alloc_array(o.n_hidden + 1, sizeof(float));
    assert_true(o.logits && o.hidden);
    o.logits[o.n_logits] = o.hidden[o.n_hidden] = GUARD;
    return o;
}

static void outputs_free(outputs *o)
{
    assert_true(o->logits[o->n_logits] == GUARD && o->hidden[o->n_hidden] == GUARD);
    mem_free(o->logits);
    mem_free(o->hidden);
}

static const wish all_both[] = {BOTH};

/* What others are compared with. Under a sanitizer, which makes the reference kernels take minutes, the best ones. */
static kern_set first_set(void)
{
    return SANITIZED ? kern_select(KERN_SET_COUNT - 1)->set : KERN_REF;
}

/* Cut in other places, other sets and threads, with and without logits: the same bits. */
static void check_variants(const char *path, const int32_t *tokens, const outputs *want)
{
    static const size_t chunks[] = {7, 1, N_TOKENS};
    static const wish hidden_only[] = {HIDDEN}, logits_only[] = {LOGITS};
    for (int set = 0; set < KERN_SET_COUNT; set++) {
        rig_options opt = rig_options_of((kern_set)set);
        uint8_t bad[N_TOKENS];
        rig r;
        if (!kern_table_of((kern_set)set)) {
            continue;
        }
        opt.threads = set == KERN_REF ? 1 : 2;
        rig_open(&r, path, &opt);
        outputs got = outputs_new(&r);
        for (size_t i = 0; i < (SANITIZED && set == KERN_REF ? 1 : 3); i++) {
            run(&r, tokens, N_TOKENS, chunks[i], all_both, 1, got.logits, got.hidden, bad);
            assert_memory_equal(got.logits, want->logits, want->n_logits * sizeof(float));
            assert_memory_equal(got.hidden, want->hidden, want->n_hidden * sizeof(float));
            memset(got.hidden, 0, got.n_hidden * sizeof(float));
            run(&r, tokens, N_TOKENS, chunks[i], hidden_only, 1, NULL, got.hidden, bad);
            assert_memory_equal(got.hidden, want->hidden, want->n_hidden * sizeof(float));
            memset(got.logits, 0, got.n_logits * sizeof(float));
            run(&r, tokens, N_TOKENS, chunks[i], logits_only, 1, got.logits, NULL, bad);
            assert_memory_equal(got.logits, want->logits, want->n_logits * sizeof(float));
        }
        outputs_free(&got);
        rig_close(&r);
    }
}

typedef struct model_case {
    const char *name, *arch;
    gguf_type type, output; /* output: also of attn_v and ffn_down */
    bool tied;
    double within; /* of the oracle, times the spread */
} model_case;

static const model_case model_cases[] = {
    {"F32", "llama", GGUF_TYPE_F32, GGUF_TYPE_F32, false, 2e-4},
    {"F32, tied", "qwen3", GGUF_TYPE_F32, GGUF_TYPE_F32, true, 2e-4},
    {"F16 output", "llama", GGUF_TYPE_F32, GGUF_TYPE_F16, false, 2e-4},
    {"quantised", "llama", GGUF_TYPE_Q4_0, GGUF_TYPE_Q8_0, false, 5e-2 /* codes near a tie flip */},
};

static void check_model(const model_case *c)
{
    make_model_spec spec = make_model_default(c->type);
    char path[TEMP_PATH_BYTES], why[256];
    int32_t tokens[N_TOKENS];
    uint8_t bad[N_TOKENS];
    spec.arch = c->arch;
    spec.type_alt = c->output;
    spec.tied = c->tied;
    assert_int_equal(make_model(temp_path(path, "hidden.gguf"), &spec, NULL), ST_OK);
    rig_tokens(tokens, N_TOKENS, spec.n_vocab, 3);
    rig_options opt = rig_options_of(first_set());
    rig r;
    rig_open(&r, path, &opt);
    outputs got = outputs_new(&r), plain = outputs_new(&r);
    run(&r, tokens, N_TOKENS, N_TOKENS, all_both, 1, got.logits, got.hidden, bad);
    assert_true(rig_run(&r, tokens, N_TOKENS, N_TOKENS, plain.logits)); /* as it is without */
    assert_memory_equal(got.logits, plain.logits, got.n_logits * sizeof(float));
    if (c->output == GGUF_TYPE_F32) {
        double spread = rig_spread(got.logits, N_TOKENS, spec.n_vocab);
        assert_true(distance_by_hand(&r, got.hidden, got.logits, N_TOKENS) <= 1e-5 * spread);
    }
    oracle_model *judge = oracle_open(path, why, sizeof why);
    assert_non_null(judge);
    assert_true(oracle_hidden(judge, tokens, N_TOKENS, plain.hidden));
    double d = rig_distance(got.hidden, plain.hidden, got.n_hidden);
    double spread = rig_spread(plain.hidden, N_TOKENS, spec.width);
    print_message("%s: %.3g x spread from the oracle (allowed %.0e)\n", c->name, d / spread, c->within);
    assert_true(spread > 0.1); /* it is alive */
    assert_true(d <= c->within * spread);
    oracle_free(judge);
    outputs_free(&plain);
    rig_close(&r);
    check_variants(path, tokens, &got);
    outputs_free(&got);
    assert_int_equal(unlink(path), 0);
}

static void test_models(void **state)
{
    for (size_t i = 0; i < sizeof model_cases / sizeof *model_cases; i++) {
        check_model(&model_cases[i]);
    }
}

/* Rows that want this or that or nothing: each gets its own, in the order of the rows, and nothing is written beyond. */
static void test_mixed_wishes(void **state)
{
    static const wish wishes[] = {HIDDEN, LOGITS, NOTHING, BOTH, HIDDEN};
    make_model_spec spec = make_model_default(GGUF_TYPE_F32);
    char path[TEMP_PATH_BYTES];
    int32_t tokens[N_TOKENS];
    uint8_t bad[N_TOKENS];
    assert_int_equal(make_model(temp_path(path, "wishes.gguf"), &spec, NULL), ST_OK);
    rig_tokens(tokens, N_TOKENS, spec.n_vocab, 4);
    rig_options opt = rig_options_of(first_set());
    rig r;
    rig_open(&r, path, &opt);
    outputs all = outputs_new(&r), some = outputs_new(&r);
    run(&r, tokens, N_TOKENS, N_TOKENS, all_both, 1, all.logits, all.hidden, bad);
    for (size_t chunk = 1; chunk <= N_TOKENS; chunk += 13) {
        size_t n_logits = 0, n_hidden = 0;
        for (size_t i = 0; i < some.n_hidden; i++) {
            some.hidden[i] = GUARD;
        }
        run(&r, tokens, N_TOKENS, chunk, wishes, 5, some.logits, some.hidden, bad);
        for (size_t i = 0; i < N_TOKENS; i++) {
            wish w = wishes[i % 5];
            if (w == LOGITS || w == BOTH) {
                assert_memory_equal(some.logits + n_logits++ * spec.n_vocab, all.logits + i * spec.n_vocab,
                                    spec.n_vocab * sizeof(float));
            }
            if (w == HIDDEN || w == BOTH) {
                assert_memory_equal(some.hidden + n_hidden++ * spec.width, all.hidden + i * spec.width,
                                    spec.width * sizeof(float));
            }
        }
        assert_int_equal(n_hidden, N_TOKENS * 3 / 5);
        assert_true(some.hidden[n_hidden * spec.width] == GUARD);
    }
    outputs_free(&all);
    outputs_free(&some);
    rig_close(&r);
    assert_int_equal(unlink(path), 0);
}

/* A row that is bad, and those behind it, have zeros; one whose norm alone is not finite is bad by its hidden state. */
static void test_bad_rows(void **state)
{
    enum { WIDTH = 64, BAD_AT = 5 };
    static float norm[WIDTH], embd[300 * WIDTH];
    make_model_spec spec = make_model_default(GGUF_TYPE_F32);
    char plain[TEMP_PATH_BYTES], path[TEMP_PATH_BYTES];
    int32_t tokens[N_TOKENS];
    uint8_t bad[N_TOKENS];
    static const wish hidden_only[] = {HIDDEN};
    spec.width = WIDTH;
    spec.head_dim = 16;
    spec.n_ff = 96;
    spec.tied = false;
    for (size_t i = 0; i < 300 * WIDTH; i++) {
        embd[i] = (float)((i * 37) % 101) / 101.0f - 0.5f;
    }
    for (size_t i = 0; i < WIDTH; i++) {
        norm[i] = 1.0f;
    }
    rig_tokens(tokens, N_TOKENS, 299, 5);
    tokens[BAD_AT] = 299;
    for (int kind = 0; kind < 2; kind++) {
        if (kind == 0) {
            embd[299 * WIDTH + 3] = (float)NAN;
        } else { /* the state is fine until the norm's weight makes one value infinite, in every row */
            embd[299 * WIDTH + 3] = 0.0f;
            norm[7] = 3e38f;
        }
        const model_edit edits[] = {{.kind = EDIT_TENSOR,
                                     .name = "token_embd.weight",
                                     .type = GGUF_TYPE_F32,
                                     .dims = {WIDTH, 300},
                                     .data = embd},
                                    {.kind = EDIT_TENSOR,
                                     .name = "output_norm.weight",
                                     .type = GGUF_TYPE_F32,
                                     .dims = {WIDTH},
                                     .data = norm}};
        assert_int_equal(make_model(temp_path(plain, "bad-plain.gguf"), &spec, NULL), ST_OK);
        assert_int_equal(edit_model(plain, temp_path(path, "bad.gguf"), edits, 2, NULL), ST_OK);
        rig_options opt = rig_options_of(KERN_REF);
        rig r;
        rig_open(&r, path, &opt);
        outputs got = outputs_new(&r);
        run(&r, tokens, N_TOKENS, N_TOKENS, hidden_only, 1, NULL, got.hidden, bad);
        size_t n_bad = 0;
        for (size_t i = 0; i < N_TOKENS; i++) {
            bool zero = true, finite = true;
            for (size_t k = 0; k < WIDTH; k++) {
                float x = got.hidden[i * WIDTH + k];
                zero = zero && x == 0.0f;
                finite = finite && isfinite(x);
            }
            assert_true(finite);
            assert_int_equal(zero, bad[i]);
            assert_true(kind == 1 || bad[i] == (i >= BAD_AT));
            n_bad += bad[i];
        }
        assert_true(n_bad > 0);
        outputs_free(&got);
        rig_close(&r);
        assert_int_equal(unlink(plain), 0);
        assert_int_equal(unlink(path), 0);
    }
}

/* Nobody outside wrote hidden states of decoders down, but logits: output times hidden must be those. */
static void check_fixture(const char *name)
{
    char file[96], path[4096];
    int32_t tokens[N_TOKENS];
    uint8_t bad[N_TOKENS];
    snprintf(file, sizeof file, "arch/%s.gguf", name);
    const char *found = fixture_path(file);
    if (!found) {
        skip();
    }
    snprintf(path, sizeof path, "%s", found);
    rig_options opt = rig_options_of(first_set());
    rig r;
    rig_open(&r, path, &opt);
    outputs got = outputs_new(&r), exact = outputs_new(&r);
    snprintf(file, sizeof file, "arch/%s.exact.f32", name);
    found = fixture_path(file);
    FILE *f = found ? fopen(found, "rb") : NULL;
    assert_non_null(f);
    assert_int_equal(fread(exact.logits, sizeof(float), exact.n_logits, f), exact.n_logits);
    fclose(f);
    snprintf(file, sizeof file, "arch/%s.tokens.txt", name);
    found = fixture_path(file);
    f = found ? fopen(found, "r") : NULL;
    assert_non_null(f);
    for (size_t i = 0; i < N_TOKENS; i++) {
        assert_int_equal(fscanf(f, "%d", &tokens[i]), 1);
    }
    fclose(f);
    run(&r, tokens, N_TOKENS, 16, all_both, 1, got.logits, got.hidden, bad);
    double spread = rig_spread(exact.logits, N_TOKENS, r.ops.shape->n_vocab);
    assert_true(distance_by_hand(&r, got.hidden, exact.logits, N_TOKENS) <= 2e-4 * spread);
    outputs_free(&got);
    outputs_free(&exact);
    rig_close(&r);
}

static void test_fixture_llama(void **state)
{
    check_fixture("llama");
}

static void test_fixture_llama_untied(void **state)
{
    check_fixture("llama-untied");
}

static void test_fixture_qwen3(void **state)
{
    check_fixture("qwen3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models),
        cmocka_unit_test(test_mixed_wishes),
        cmocka_unit_test(test_bad_rows),
        cmocka_unit_test(test_fixture_llama),
        cmocka_unit_test(test_fixture_llama_untied),
        cmocka_unit_test(test_fixture_qwen3),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
