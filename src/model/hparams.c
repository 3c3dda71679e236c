#include "model/hparams.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define KEY_BYTES 128

/* Carries the first failure through the reading steps; later steps then do nothing. */
typedef struct key_reader {
    const gguf_file *f; /* borrowed */
    const char *prefix;
    status st;
    err *e;
    char key[KEY_BYTES]; /* the last key looked at */
} key_reader;

static const char *key_name(key_reader *r, const char *suffix)
{
    snprintf(r->key, sizeof r->key, "%s.%s", r->prefix, suffix);
    return r->key;
}

static const gguf_kv *key_find(key_reader *r, const char *suffix)
{
    return r->st == ST_OK ? gguf_find(r->f, key_name(r, suffix)) : NULL;
}

static void missing(key_reader *r)
{
    r->st = err_set(r->e, ST_LOAD_FAILED, r->key, "key %s is missing", r->key);
}

/* A whole number in [lo, hi]; fallback 0 means that the key must be there. */
static uint32_t size_key(key_reader *r, const char *suffix, uint32_t lo, uint32_t hi, uint32_t fallback)
{
    uint32_t v = fallback;
    if (!key_find(r, suffix)) {
        if (r->st == ST_OK && fallback == 0) {
            missing(r);
        }
        return fallback;
    }
    r->st = gguf_get_u32(r->f, r->key, &v, r->e);
    if (r->st == ST_OK && (v < lo || v > hi)) {
        r->st = err_set(r->e, ST_LOAD_FAILED, r->key, "key %s is %u, it must be %u to %u", r->key, v, lo, hi);
    }
    return v;
}

/* The same for a key that some files write once per layer: an array is taken if all layers agree. */
static uint32_t size_key_per_layer(key_reader *r, const char *suffix, uint32_t hi, uint32_t fallback,
                                   uint32_t n_layers)
{
    const gguf_kv *kv = key_find(r, suffix);
    if (!kv || kv->type != GGUF_ARRAY) {
        return size_key(r, suffix, 1, hi, fallback);
    }
    r->st = gguf_get_array(r->f, r->key, GGUF_I32, &kv, r->e);
    if (r->st != ST_OK) {
        return fallback;
    }
    if (kv->n != n_layers) {
        r->st = err_set(r->e, ST_LOAD_FAILED, r->key, "key %s has %llu values for %u layers", r->key,
                        (unsigned long long)kv->n, n_layers);
        return fallback;
    }
    const unsigned char *values = kv->data;
    int32_t first;
    memcpy(&first, values, sizeof first);
    for (uint64_t i = 1; i < kv->n; i++) {
        if (memcmp(values + i * sizeof first, &first, sizeof first) != 0) {
            r->st = err_set(r->e, ST_UNSUPPORTED, r->key,
                            "key %s differs between layers: that is not supported", r->key);
            return fallback;
        }
    }
    if (first < 1 || (uint32_t)first > hi) {
        r->st = err_set(r->e, ST_LOAD_FAILED, r->key, "key %s is %d, it must be 1 to %u", r->key, first, hi);
        return fallback;
    }
    return (uint32_t)first;
}

/* A real number in [lo, hi]; a negative fallback means that the key must be there. */
static float real_key(key_reader *r, const char *suffix, float lo, float hi, float fallback)
{
    float v = fallback;
    if (!key_find(r, suffix)) {
        if (r->st == ST_OK && fallback < 0.0f) {
            missing(r);
        }
        return fallback;
    }
    r->st = gguf_get_f32(r->f, r->key, &v, r->e);
    if (r->st == ST_OK && !(v >= lo && v <= hi)) {
        r->st = err_set(r->e, ST_LOAD_FAILED, r->key, "key %s is %g, it must be %g to %g", r->key, (double)v,
                        (double)lo, (double)hi);
    }
    return v;
}

static status read_arch(const gguf_file *f, hparams *hp, err *e)
{
    gguf_str name;
    status st = gguf_get_str(f, "general.architecture", &name, e);
    if (st != ST_OK) {
        return st == ST_NOT_FOUND
                   ? err_set(e, ST_LOAD_FAILED, "general.architecture", "key general.architecture is missing")
                   : st;
    }
    hp->arch = arch_find(name.data, name.len);
    if (!hp->arch) {
        char known[160] = "";
        size_t len = 0;
        for (size_t i = 0; arch_at(i) && len < sizeof known; i++) {
            len += (size_t)snprintf(known + len, sizeof known - len, "%s%s", i ? ", " : "", arch_at(i)->name);
        }
        return err_set(e, ST_UNSUPPORTED, "general.architecture",
                       "architecture '%.*s' is not supported: known are %s",
                       (int)(name.len < 64 ? name.len : 64), name.data, known);
    }
    snprintf(hp->shape.arch, sizeof hp->shape.arch, "%s", hp->arch->name);
    return ST_OK;
}

static void read_sizes(key_reader *r, model_shape *s)
{
    s->n_layers = size_key(r, "block_count", 1, MODEL_MAX_LAYERS, 0);
    s->n_ctx_train = size_key(r, "context_length", 1, HPARAMS_MAX_CONTEXT, 0);
    s->n_embd = size_key(r, "embedding_length", 1, HPARAMS_MAX_EMBD, 0);
    s->n_ff = size_key_per_layer(r, "feed_forward_length", HPARAMS_MAX_FF, 0, s->n_layers);
    s->n_kv_heads = s->n_heads =
        size_key_per_layer(r, "attention.head_count", MODEL_MAX_HEADS, 0, s->n_layers);
    if (r->st != ST_OK) {
        return;
    }
    assert(s->n_heads >= 1); /* size_key_per_layer's lower bound */
    bool split = key_find(r, "attention.key_length") && key_find(r, "attention.value_length");
    key_name(r, "attention.head_count");
    if (!split && (s->n_embd % s->n_heads != 0 || s->n_embd / s->n_heads > MODEL_MAX_HEAD_DIM)) {
        r->st = err_set(r->e, ST_LOAD_FAILED, r->key,
                        "key %s is %u: a width of %u does not divide into that many heads of at most %d",
                        r->key, s->n_heads, s->n_embd, MODEL_MAX_HEAD_DIM);
        return;
    }
    s->n_kv_heads =
        size_key_per_layer(r, "attention.head_count_kv", MODEL_MAX_HEADS, s->n_heads, s->n_layers);
    if (r->st != ST_OK) {
        return;
    }
    assert(s->n_kv_heads >= 1);
    if (s->n_heads % s->n_kv_heads != 0) {
        r->st = err_set(r->e, ST_LOAD_FAILED, key_name(r, "attention.head_count_kv"),
                        "%u query heads cannot share %u heads of keys and values", s->n_heads, s->n_kv_heads);
    }
    s->k_dim = size_key(r, "attention.key_length", 1, MODEL_MAX_HEAD_DIM, s->n_embd / s->n_heads);
    s->v_dim = size_key(r, "attention.value_length", 1, MODEL_MAX_HEAD_DIM, s->n_embd / s->n_heads);
}

/* llama.cpp's reading: without a type a factor is linear; rope.scale_linear is the factor's old name. */
static void read_rope_scaling(key_reader *r, hparams *hp)
{
    float factor = real_key(r, "rope.scale_linear", 1e-6f, 1e6f, 1.0f);
    factor = real_key(r, "rope.scaling.factor", 1e-6f, 1e6f, factor);
    hp->rope_divisor = (double)factor;
    gguf_str type;
    if (!key_find(r, "rope.scaling.type")) {
        return;
    }
    r->st = gguf_get_str(r->f, r->key, &type, r->e);
    if (r->st != ST_OK) {
        return;
    }
    if (type.len == 6 && memcmp(type.data, "linear", 6) == 0) {
        return;
    }
    hp->rope_divisor = 1.0;
    if (type.len == 4 && memcmp(type.data, "none", 4) == 0) {
        return;
    }
    if (type.len == 6 && memcmp(type.data, "llama3", 6) == 0 && gguf_find_tensor(r->f, "rope_freqs.weight")) {
        return; /* the tensor holds what the rule gives */
    }
    r->st = err_set(r->e, ST_UNSUPPORTED, r->key, "key %s is '%.*s': known are none and linear", r->key,
                    (int)(type.len < 64 ? type.len : 64), type.data);
}

static void read_rope(key_reader *r, hparams *hp)
{
    model_shape *s = &hp->shape;
    s->n_rot = size_key(r, "rope.dimension_count", 2, MODEL_MAX_HEAD_DIM, s->k_dim);
    if (r->st == ST_OK && (s->n_rot % 2 != 0 || s->n_rot > s->k_dim)) {
        r->st = err_set(r->e, ST_LOAD_FAILED, key_name(r, "rope.dimension_count"),
                        "%u rotated values do not fit a head of %u in pairs", s->n_rot, s->k_dim);
    }
    hp->rope_base = (double)real_key(r, "rope.freq_base", 1.0f, 1e18f, 10000.0f);
    read_rope_scaling(r, hp);
}

/* Keys that change the arithmetic unless they have one of two values. */
static const struct {
    const char *suffix;
    double neutral[2];
} features[] = {
    {"expert_count", {0, 0}},
    {"expert_used_count", {0, 0}},
    {"attention.causal", {1, 1}},
    {"attention.scale", {0, 0}},
    {"attention.clamp_kqv", {0, 0}},
    {"attention.max_alibi_bias", {0, 0}},
    {"attn_logit_softcapping", {0, 0}},
    {"final_logit_softcapping", {0, 0}},
    {"logit_scale", {0, 1}},
    {"residual_scale", {0, 1}},
    {"embedding_scale", {0, 1}},
    {"rope.scaling.attn_factor", {0, 1}},
    {"use_parallel_residual", {0, 0}},
};

/* The value of a number or bool, converted; anything else counts as not neutral. */
static double number_of(const gguf_file *f, const gguf_kv *kv, const char *key)
{
    float real;
    bool flag;
    uint64_t whole;
    if (kv->type == GGUF_F32 || kv->type == GGUF_F64) {
        return gguf_get_f32(f, key, &real, NULL) == ST_OK ? (double)real : -1.0;
    }
    if (kv->type == GGUF_BOOL) {
        return gguf_get_bool(f, key, &flag, NULL) == ST_OK ? (double)flag : -1.0;
    }
    return gguf_get_u64(f, key, &whole, NULL) == ST_OK ? (double)whole : -1.0;
}

static void refuse_features(key_reader *r, const model_shape *s)
{
    for (size_t i = 0; i < sizeof features / sizeof features[0]; i++) {
        const gguf_kv *kv = key_find(r, features[i].suffix);
        if (!kv) {
            continue;
        }
        double v = number_of(r->f, kv, r->key);
        if (v != features[i].neutral[0] && v != features[i].neutral[1]) {
            r->st = err_set(r->e, ST_UNSUPPORTED, r->key,
                            "key %s is %g: architecture %s is not supported with it", r->key, v, r->prefix);
        }
    }
    const gguf_kv *window = key_find(r, "attention.sliding_window");
    if (window) {
        double v = number_of(r->f, window, r->key);
        if (v != 0 && v < (double)s->n_ctx_train) {
            r->st = err_set(r->e, ST_UNSUPPORTED, r->key,
                            "key %s is %g: sliding windows are not supported with %s", r->key, v, r->prefix);
        }
    }
}

static void read_vocab(key_reader *r, model_shape *s)
{
    static const char embd[] = "token_embd.weight";
    static const char tokens[] = "tokenizer.ggml.tokens";
    if (r->st != ST_OK) {
        return;
    }
    const gguf_tensor *t = gguf_find_tensor(r->f, embd);
    if (!t) {
        r->st = err_set(r->e, ST_LOAD_FAILED, embd, "tensor %s is missing", embd);
        return;
    }
    if (t->dims[1] > HPARAMS_MAX_VOCAB) {
        r->st = err_set(r->e, ST_LOAD_FAILED, embd, "tensor %s has %llu rows, at most %u are supported", embd,
                        (unsigned long long)t->dims[1], HPARAMS_MAX_VOCAB);
        return;
    }
    s->n_vocab = (uint32_t)t->dims[1];
    uint32_t n = size_key(r, "vocab_size", 1, HPARAMS_MAX_VOCAB, s->n_vocab);
    if (r->st == ST_OK && n != s->n_vocab) {
        r->st = err_set(r->e, ST_LOAD_FAILED, r->key, "key %s is %u but %s has %u rows", r->key, n, embd,
                        s->n_vocab);
        return;
    }
    const gguf_kv *kv = gguf_find(r->f, tokens);
    if (r->st == ST_OK && kv && kv->n != s->n_vocab) {
        r->st = err_set(r->e, ST_LOAD_FAILED, tokens, "%s has %llu tokens but %s has %u rows", tokens,
                        (unsigned long long)kv->n, embd, s->n_vocab);
    }
}

status hparams_read(const gguf_file *f, hparams *out, err *e)
{
    hparams hp = {0};
    status st = read_arch(f, &hp, e);
    if (st != ST_OK) {
        return st;
    }
    assert(hp.arch);
    key_reader r = {.f = f, .prefix = hp.arch->name, .st = ST_OK, .e = e};
    read_sizes(&r, &hp.shape);
    hp.rms_eps = real_key(&r, "attention.layer_norm_rms_epsilon", 1e-12f, 1.0f, -1.0f);
    read_rope(&r, &hp);
    refuse_features(&r, &hp.shape);
    read_vocab(&r, &hp.shape);
    if (r.st == ST_OK) {
        *out = hp;
    }
    return r.st;
}
