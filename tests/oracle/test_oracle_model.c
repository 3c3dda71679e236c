/*
 * Whole models small enough to compute on paper, and files that must be refused.
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

/* ---- a model on paper ------------------------------------------------------------------------------------
 */

/* A GGUF image under construction. */
struct image {
    uint8_t bytes[4096];
    size_t n;
};

static void put(struct image *g, const void *p, size_t n)
{
    assert_true(g->n + n <= sizeof g->bytes);
    memcpy(g->bytes + g->n, p, n);
    g->n += n;
}

static void put_uint(struct image *g, uint64_t v, size_t n)
{
    for (size_t i = 0; i < n; i++, v >>= 8)
        put(g, &(uint8_t){(uint8_t)v}, 1);
}

static void put_string(struct image *g, const char *s)
{
    put_uint(g, strlen(s), 8);
    put(g, s, strlen(s));
}

static void put_count(struct image *g, const char *key, uint32_t v)
{
    put_string(g, key);
    put_uint(g, 4, 4);
    put_uint(g, v, 4);
}

static void put_real(struct image *g, const char *key, float v)
{
    put_string(g, key);
    put_uint(g, 6, 4);
    put(g, &v, sizeof v);
}

/* Everything up to the first six keys: one layer, one head, epsilon 0. n_kv counts the keys put later too. */
static void put_header(struct image *g, size_t n_tensors, size_t n_kv, const char *arch, uint32_t n_embd,
                       uint32_t n_ff)
{
    g->n = 0;
    put(g, "GGUF", 4);
    put_uint(g, 3, 4);
    put_uint(g, n_tensors, 8);
    put_uint(g, n_kv, 8);
    put_string(g, "general.architecture");
    put_uint(g, 8, 4);
    put_string(g, arch);
    put_count(g, "llama.embedding_length", n_embd);
    put_count(g, "llama.block_count", 1);
    put_count(g, "llama.feed_forward_length", n_ff);
    put_count(g, "llama.attention.head_count", 1);
    put_real(g, "llama.attention.layer_norm_rms_epsilon", 0.0f);
}

static void put_tensor(struct image *g, const char *name, uint64_t k, uint64_t rows, uint32_t type,
                       uint64_t offset)
{
    put_string(g, name);
    put_uint(g, 2, 4);
    put_uint(g, k, 8);
    put_uint(g, rows, 8);
    put_uint(g, type, 4);
    put_uint(g, offset, 8);
}

/*
 * Width 2, one head, one layer, a vocabulary of 3, FFN of 1, epsilon 0, tied. The attention matrices are
 * identities. Every tensor takes one 32-byte slot.
 */
static const struct {
    const char *name;
    uint64_t k, rows;
    float data[6];
} paper_tensors[] = {
    {"token_embd.weight", 2, 3, {1, 1, 3, -3, 0.5f, 2}},
    {"output_norm.weight", 2, 1, {1, 1}},
    {"blk.0.attn_norm.weight", 2, 1, {1, 1}},
    {"blk.0.attn_q.weight", 2, 2, {1, 0, 0, 1}},
    {"blk.0.attn_k.weight", 2, 2, {1, 0, 0, 1}},
    {"blk.0.attn_v.weight", 2, 2, {1, 0, 0, 1}},
    {"blk.0.attn_output.weight", 2, 2, {1, 0, 0, 1}},
    {"blk.0.ffn_norm.weight", 2, 1, {1, 1}},
    {"blk.0.ffn_gate.weight", 2, 1, {1, 0}},
    {"blk.0.ffn_up.weight", 2, 1, {0, 1}},
    {"blk.0.ffn_down.weight", 1, 2, {2, -1}},
};

enum { N_PAPER = sizeof paper_tensors / sizeof paper_tensors[0] };

static void make_paper_model(struct image *g, const char *arch)
{
    put_header(g, N_PAPER, 6, arch, 2, 1);
    for (size_t i = 0; i < N_PAPER; i++)
        put_tensor(g, paper_tensors[i].name, paper_tensors[i].k, paper_tensors[i].rows, ORACLE_F32, 32 * i);
    while (g->n % 32 != 0)
        put(g, "", 1);
    for (size_t i = 0; i < N_PAPER; i++) {
        put(g, paper_tensors[i].data, sizeof paper_tensors[i].data);
        put_uint(g, 0, 8);
    }
}

/* From the residual stream before the FFN to the logits, for the weights above. */
static void paper_tail(double a, double b, double logits[3])
{
    double rms = sqrt((a * a + b * b) / 2);
    double ga = a / rms, gb = b / rms;
    double f = ga / (1 + exp(-ga)) * gb;

    a += 2 * f;
    b -= f;
    rms = sqrt((a * a + b * b) / 2);
    logits[0] = (a + b) / rms;
    logits[1] = (3 * a - 3 * b) / rms;
    logits[2] = (0.5 * a + 2 * b) / rms;
}

void test_paper_model(void **state)
{
    static const int32_t tokens[2] = {0, 1};
    static struct image g;
    char err[160] = "";
    oracle_model *m;
    float got[6];
    double want[6], p0;

    (void)state;
    make_paper_model(&g, "llama");
    m = oracle_open_bytes(g.bytes, g.n, err, sizeof err);
    assert_string_equal(err, "");
    assert_non_null(m);
    assert_int_equal(oracle_n_vocab(m), 3);
    assert_int_equal(oracle_n_embd(m), 2);
    assert_int_equal(oracle_n_layers(m), 1);
    assert_true(oracle_logits(m, tokens, 2, got));
    /*
     * Position 0: norm (1,1) is itself and the only value, so the stream becomes (2,2). Position 1: norm
     * (3,-3) is (1,-1); turned by 1 radian it meets key (1,1) with score 2 sin 1 and itself with score 2; the
     * mix of (1,1) and (1,-1) is (1, p0 - p1).
     */
    paper_tail(2, 2, want);
    p0 = 1 / (1 + exp((2 - 2 * sin(1.0)) / sqrt(2.0)));
    paper_tail(3 + 1, -3 + (2 * p0 - 1), want + 3);
    for (size_t i = 0; i < 6; i++)
        assert_true(fabs((double)got[i] - want[i]) < 5e-7);
    assert_false(oracle_logits(m, tokens, 0, got));
    assert_false(oracle_logits(m, (const int32_t[]){3}, 1, got));
    assert_false(oracle_logits(m, (const int32_t[]){-1}, 1, got));
    oracle_free(m);
    oracle_free(NULL);
}

void test_open_refuses(void **state)
{
    static struct image g;
    char err[160];
    oracle_model *m;

    (void)state;
    make_paper_model(&g, "gpt-6");
    assert_null(oracle_open_bytes(g.bytes, g.n, err, sizeof err));
    assert_string_equal(err, "the oracle does not know the architecture \"gpt-6\"");
    make_paper_model(&g, "llama");
    /* the last slot ends in padding, so a cut inside those 24 bytes still leaves a whole file */
    for (size_t n = 0; n + 24 < g.n; n++) {
        err[0] = '\0';
        m = oracle_open_bytes(g.bytes, n, err, sizeof err);
        assert_null(m);
        assert_true(err[0] != '\0');
    }
    assert_null(oracle_open_bytes(g.bytes, 100, NULL, 0));
    assert_null(oracle_open("/nonexistent/model.gguf", err, sizeof err));
    assert_non_null(strstr(err, "cannot open"));
}

/*
 * A quantised tied embedding around a layer that adds nothing: its output matrices are zero. What is left is
 * dequantise, norm, and rule 1 for the output, with two rows of activations at once.
 */
enum { WIDE = 32, WIDE_VOCAB = 4, WIDE_FF = 2, WIDE_HEAD = 2 };

static const struct {
    const char *name;
    uint64_t k, rows;
} wide_tensors[] = {
    {"token_embd.weight", WIDE, WIDE_VOCAB},       {"output_norm.weight", WIDE, 1},
    {"blk.0.attn_norm.weight", WIDE, 1},           {"blk.0.attn_q.weight", WIDE, WIDE_HEAD},
    {"blk.0.attn_k.weight", WIDE, WIDE_HEAD},      {"blk.0.attn_v.weight", WIDE, WIDE_HEAD},
    {"blk.0.attn_output.weight", WIDE_HEAD, WIDE}, {"blk.0.ffn_norm.weight", WIDE, 1},
    {"blk.0.ffn_gate.weight", WIDE, WIDE_FF},      {"blk.0.ffn_up.weight", WIDE, WIDE_FF},
    {"blk.0.ffn_down.weight", WIDE_FF, WIDE},
};

enum { N_WIDE = sizeof wide_tensors / sizeof wide_tensors[0], WIDE_SLOT = 256 };

static void make_wide_model(struct image *g, const uint8_t *embd, size_t embd_bytes)
{
    static const uint8_t nothing[WIDE_SLOT] = {0};

    put_header(g, N_WIDE, 8, "llama", WIDE, WIDE_FF);
    put_count(g, "llama.attention.key_length", WIDE_HEAD);
    put_count(g, "llama.attention.value_length", WIDE_HEAD);
    for (size_t i = 0; i < N_WIDE; i++)
        put_tensor(g, wide_tensors[i].name, wide_tensors[i].k, wide_tensors[i].rows,
                   i == 0 ? ORACLE_Q8_0 : ORACLE_F32, WIDE_SLOT * i);
    while (g->n % 32 != 0)
        put(g, "", 1);
    put(g, embd, embd_bytes);
    put(g, nothing, WIDE_SLOT - embd_bytes);
    for (size_t i = 1; i < N_WIDE; i++) {
        for (size_t j = 0; j < WIDE_SLOT / sizeof(float); j++) {
            float v = strstr(wide_tensors[i].name, "norm") ? 1.0f : 0.0f;
            put(g, &v, sizeof v);
        }
    }
}

void test_quantised_model(void **state)
{
    static const int32_t tokens[2] = {2, 1};
    static struct image g;
    uint8_t embd[WIDE_VOCAB * 34];
    char err[160] = "";
    float row[WIDE], got[2 * WIDE_VOCAB];
    double want[WIDE_VOCAB];
    oracle_model *m;

    (void)state;
    for (size_t i = 0; i < sizeof embd; i++)
        embd[i] = i % 34 == 0 ? 0 : i % 34 == 1 ? 0x2c : (uint8_t)(i * 37); /* d = 1/16 */
    make_wide_model(&g, embd, sizeof embd);
    m = oracle_open_bytes(g.bytes, g.n, err, sizeof err);
    assert_string_equal(err, "");
    assert_non_null(m);
    assert_true(oracle_logits(m, tokens, 2, got));
    for (size_t t = 0; t < 2; t++) {
        double squares = 0.0;
        assert_true(oracle_dequant(ORACLE_Q8_0, embd + 34 * tokens[t], WIDE, row));
        for (size_t i = 0; i < WIDE; i++)
            squares += (double)row[i] * (double)row[i];
        for (size_t i = 0; i < WIDE; i++)
            row[i] = (float)((double)row[i] * (1.0 / sqrt(squares / WIDE)));
        assert_true(oracle_matmul(ORACLE_Q8_0, embd, WIDE_VOCAB, WIDE, row, want, NULL, NULL));
        for (size_t i = 0; i < WIDE_VOCAB; i++)
            assert_true(got[t * WIDE_VOCAB + i] == (float)want[i]);
    }
    oracle_free(m);
}
