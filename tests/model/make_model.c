#include "model/make_model.h"

#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/mem.h"
#include "base/philox.h"
#include "gguf/quant.h"
#include "gguf/writer.h"
#include "model/make_vocab.h"

#define ROPE_DIVISOR_MAX 8.0f
/*
 * Gains, over 1 / sqrt(inputs). The stream begins with deviation GAIN_OUT / sqrt(width) and each block adds a
 * part of that: enough that a wrong block moves the logits by many times what a test allows, so little that
 * one activation code that falls the other way moves them by less (its change is divided by the stream, and
 * so the change it makes in the next codes). A head's scores have a deviation of about 1.4. The last norm's
 * weights have mean 0, so that a token of a tied model does not just predict itself.
 */
#define GAIN_QK   1.2f
#define GAIN_V    1.0f
#define GAIN_O    0.6f /* of the stream */
#define GAIN_FFN  1.0f
#define GAIN_DOWN 0.4f /* of the stream */
#define GAIN_OUT  2.0f /* the deviation of the logits */
#define NORM_WIDE 0.3f

typedef struct maker {
    const make_model_spec *spec;
    gguf_writer *w;
    arena mem;
    uint32_t n_made; /* tensors so far: each has its own stream of numbers */
    status st;       /* the first failure */
    err *e;
} maker;

make_model_spec make_model_default(gguf_type type)
{
    return (make_model_spec){.arch = "llama",
                             .type = type,
                             .type_alt = type,
                             .norm_type = GGUF_TYPE_F32,
                             .width = 256,
                             .n_layers = 2,
                             .n_heads = 4,
                             .n_kv_heads = 2,
                             .head_dim = 64,
                             .n_ff = 512,
                             .n_vocab = 300,
                             .n_ctx = 512,
                             .tied = true,
                             .vocab = MAKE_VOCAB_NONE,
                             .seed = 1};
}

/* Two numbers of mean 0 and deviation 1: sums of four 16-bit numbers. Whole numbers until the last product,
 * so that every machine makes the same. */
static void normal_pair(const maker *mk, uint64_t i, float out[2])
{
    const uint32_t ctr[4] = {(uint32_t)i, (uint32_t)(i >> 32), mk->n_made, 0};
    const uint32_t key[2] = {(uint32_t)mk->spec->seed, (uint32_t)(mk->spec->seed >> 32)};
    uint32_t r[4];
    philox4x32_10(ctr, key, r);
    for (int j = 0; j < 2; j++) {
        uint32_t sum =
            (r[2 * j] & 0xFFFF) + (r[2 * j] >> 16) + (r[2 * j + 1] & 0xFFFF) + (r[2 * j + 1] >> 16);
        out[j] = (float)((int32_t)sum - 2 * 65535) * (1.0f / 37837.0f); /* deviation 65536 / sqrt(3) */
    }
}

static void fill(const maker *mk, float *x, size_t n, float mean, float deviation)
{
    for (size_t i = 0; i < n; i += 2) {
        float pair[2];
        normal_pair(mk, i / 2, pair);
        for (size_t j = 0; j < 2 && i + j < n; j++) {
            x[i + j] = mean + deviation * pair[j];
        }
    }
}

/* Writes n rows of k values, quantised. */
static void put(maker *mk, const char *name, gguf_type type, size_t k, size_t n, const float *x)
{
    const uint64_t dims[2] = {k, n};
    size_t row_bytes = quant_row_bytes(type, k);
    if (mk->st != ST_OK) {
        return;
    }
    if (row_bytes == 0 || !quant_supported(type)) {
        mk->st = err_set(mk->e, ST_INVALID_FIELD, "type", "%s cannot hold rows of %zu values", name, k);
        return;
    }
    unsigned char *data = arena_alloc_array(&mk->mem, n, row_bytes);
    if (!data) {
        mk->st = ST_NOMEM;
        return;
    }
    for (size_t r = 0; r < n; r++) {
        quant_quantise(type, x + r * k, data + r * row_bytes, k);
    }
    mk->st = gguf_writer_tensor(mk->w, name, type, dims, n > 1 ? 2 : 1, data, mk->e);
}

static void random_tensor(maker *mk, const char *name, gguf_type type, size_t k, size_t n, float mean,
                          float deviation)
{
    float *x = mem_alloc_array(n * k, sizeof *x);
    mk->n_made++;
    if (x) {
        fill(mk, x, n * k, mean, deviation);
        put(mk, name, type, k, n, x);
    } else {
        mk->st = ST_NOMEM;
    }
    mem_free(x);
}

/* Newton's method from above: exact enough, and the same everywhere. */
static float root(float x)
{
    float r = x > 1.0f ? x : 1.0f;
    for (int i = 0; i < 64; i++) {
        r = 0.5f * (r + x / r);
    }
    return r;
}

static void matrix(maker *mk, int layer, const char *part, gguf_type type, uint32_t k, uint32_t n, float gain)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%d.%s.weight", layer, part);
    random_tensor(mk, name, type, k, n, 0.0f, gain / root((float)k));
}

static void norm(maker *mk, int layer, const char *part, uint32_t k)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%d.%s.weight", layer, part);
    random_tensor(mk, name, mk->spec->norm_type, k, 1, 1.0f, NORM_WIDE);
}

static void make_layer(maker *mk, int i)
{
    const make_model_spec *s = mk->spec;
    uint32_t mix = s->n_heads * s->head_dim, kv = s->n_kv_heads * s->head_dim;
    float stream = GAIN_OUT / root((float)s->width);
    norm(mk, i, "attn_norm", s->width);
    matrix(mk, i, "attn_q", s->type, s->width, mix, GAIN_QK);
    matrix(mk, i, "attn_k", s->type, s->width, kv, GAIN_QK);
    matrix(mk, i, "attn_v", s->type_alt, s->width, kv, GAIN_V);
    matrix(mk, i, "attn_output", s->type, mix, s->width, GAIN_O * stream);
    if (strcmp(s->arch, "qwen3") == 0) {
        norm(mk, i, "attn_q_norm", s->head_dim);
        norm(mk, i, "attn_k_norm", s->head_dim);
    }
    norm(mk, i, "ffn_norm", s->width);
    matrix(mk, i, "ffn_gate", s->type, s->width, s->n_ff, GAIN_FFN);
    matrix(mk, i, "ffn_up", s->type, s->width, s->n_ff, GAIN_FFN);
    matrix(mk, i, "ffn_down", s->type_alt, s->n_ff, s->width, GAIN_DOWN * stream);
}

static void make_tensors(maker *mk)
{
    const make_model_spec *s = mk->spec;
    float out = GAIN_OUT / root((float)s->width);
    random_tensor(mk, "token_embd.weight", s->type, s->width, s->n_vocab, 0.0f, out);
    random_tensor(mk, "output_norm.weight", s->norm_type, s->width, 1, 0.0f, 1.0f);
    if (!s->tied) {
        random_tensor(mk, "output.weight", s->type_alt, s->width, s->n_vocab, 0.0f, out);
    }
    if (s->rope_freqs) {
        float divisors[512];
        uint32_t half = s->head_dim / 2;
        for (uint32_t i = 0; i < half; i++) {
            float share = half > 1 ? (float)i / (float)(half - 1) : 0.0f;
            divisors[i] = s->rope_divisor > 0.0f ? s->rope_divisor : 1.0f + (ROPE_DIVISOR_MAX - 1.0f) * share;
        }
        put(mk, "rope_freqs.weight", GGUF_TYPE_F32, half, 1, divisors);
    }
    for (uint32_t i = 0; i < s->n_layers; i++) {
        make_layer(mk, (int)i);
    }
}

static void put_u32(maker *mk, const char *suffix, uint32_t v)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", mk->spec->arch, suffix);
    mk->st = mk->st == ST_OK ? gguf_writer_u32(mk->w, key, v) : mk->st;
}

static void put_f32(maker *mk, const char *suffix, float v)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", mk->spec->arch, suffix);
    mk->st = mk->st == ST_OK ? gguf_writer_f32(mk->w, key, v) : mk->st;
}

static void put_str(maker *mk, const char *key, const char *v)
{
    mk->st = mk->st == ST_OK ? gguf_writer_str(mk->w, key, v, strlen(v)) : mk->st;
}

static void make_keys(maker *mk)
{
    const make_model_spec *s = mk->spec;
    bool qwen3 = strcmp(s->arch, "qwen3") == 0;
    char key[96];
    put_str(mk, "general.architecture", s->arch);
    put_str(mk, "general.name", "random");
    put_u32(mk, "block_count", s->n_layers);
    put_u32(mk, "context_length", s->n_ctx);
    put_u32(mk, "embedding_length", s->width);
    put_u32(mk, "feed_forward_length", s->n_ff);
    put_u32(mk, "attention.head_count", s->n_heads);
    put_u32(mk, "attention.head_count_kv", s->n_kv_heads);
    put_u32(mk, "attention.key_length", s->head_dim);
    put_u32(mk, "attention.value_length", s->head_dim);
    put_u32(mk, "rope.dimension_count", s->head_dim);
    put_f32(mk, "rope.freq_base", qwen3 ? 1e6f : 10000.0f);
    put_f32(mk, "attention.layer_norm_rms_epsilon", qwen3 ? 1e-6f : 1e-5f);
    if (s->rope_factor > 0.0f) {
        snprintf(key, sizeof key, "%s.rope.scaling.type", s->arch);
        put_str(mk, key, "linear");
        put_f32(mk, "rope.scaling.factor", s->rope_factor);
    }
    if (mk->st == ST_OK) {
        mk->st = make_vocab_write(mk->w, &mk->mem, s->vocab, s->n_vocab);
    }
}

static status check_spec(const make_model_spec *s, err *e)
{
    if (strcmp(s->arch, "llama") != 0 && strcmp(s->arch, "qwen3") != 0) {
        return err_set(e, ST_INVALID_FIELD, "arch", "made models are llama or qwen3, not %s", s->arch);
    }
    if (s->vocab != MAKE_VOCAB_NONE && (s->n_vocab < MAKE_VOCAB_MIN || s->n_vocab > MAKE_VOCAB_MAX)) {
        return err_set(e, ST_INVALID_FIELD, "n_vocab", "a vocabulary is made of %d to %d tokens, not %u",
                       MAKE_VOCAB_MIN, MAKE_VOCAB_MAX, s->n_vocab);
    }
    if (s->head_dim < 2 || s->head_dim > 1024 || s->head_dim % 2 != 0) {
        return err_set(e, ST_INVALID_FIELD, "head_dim", "heads are 2 to 1024 values in pairs, not %u",
                       s->head_dim);
    }
    return ST_OK;
}

status make_model(const char *path, const make_model_spec *spec, err *e)
{
    maker mk = {.spec = spec, .e = e};
    status st = check_spec(spec, e);
    if (st != ST_OK) {
        return st;
    }
    arena_init(&mk.mem, 0);
    mk.st = gguf_writer_new(&mk.w);
    make_keys(&mk);
    make_tensors(&mk);
    if (mk.st == ST_OK) {
        mk.st = gguf_writer_finish(mk.w, path, e);
    }
    gguf_writer_free(mk.w);
    arena_release(&mk.mem);
    return mk.st;
}
