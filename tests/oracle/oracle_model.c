/*
 * From a parsed file to a model: which family, which sizes, which tensor plays which part.
 */
#include "oracle_int.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct oracle_arch archs[] = {
    /* name    split-half  qk-norm  divisors */
    {"llama", false, false, true},
    {"qwen3", true, true, false},
};

/* Carries the first failure through the loading steps; later ones keep quiet. */
struct loader {
    oracle_model *m;
    char *err;
    size_t err_size;
    bool failed;
};

static void fail(struct loader *l, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void fail(struct loader *l, const char *format, ...)
{
    va_list args;

    if (l->failed)
        return;
    l->failed = true;
    va_start(args, format);
    vsnprintf(l->err, l->err_size, format, args);
    va_end(args);
}

static void find_arch(struct loader *l)
{
    const char *text;
    size_t len;

    if (!oracle_file_string(&l->m->file, "general.architecture", &text, &len)) {
        fail(l, "general.architecture is missing");
        return;
    }
    for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++) {
        if (strlen(archs[i].name) == len && memcmp(archs[i].name, text, len) == 0)
            l->m->arch = &archs[i];
    }
    if (!l->m->arch)
        fail(l, "the oracle does not know the architecture \"%.*s\"", (int)(len < 64 ? len : 64), text);
}

/* A count under the architecture's prefix. fallback 0 means that the key must be there. */
static size_t count(struct loader *l, const char *key, size_t fallback)
{
    char full[128];
    uint64_t v = fallback;

    if (l->failed)
        return 1;
    snprintf(full, sizeof full, "%s.%s", l->m->arch->name, key);
    oracle_file_uint(&l->m->file, full, &v);
    if (v < 1 || v > 1u << 24) {
        fail(l, "%s is missing or out of range", full);
        return 1;
    }
    return (size_t)v;
}

/* A real number under the architecture's prefix. A negative fallback means that the key must be there. */
static double real(struct loader *l, const char *key, double fallback)
{
    char full[128];
    double v = fallback;

    if (l->failed)
        return 1.0;
    snprintf(full, sizeof full, "%s.%s", l->m->arch->name, key);
    oracle_file_float(&l->m->file, full, &v);
    if (!(v >= 0.0) || isinf(v))
        fail(l, "%s is missing or not a number the oracle can use", full);
    return v;
}

static void read_sizes(struct loader *l)
{
    oracle_model *m = l->m;

    m->n_embd = count(l, "embedding_length", 0);
    m->n_layers = count(l, "block_count", 0);
    m->n_ff = count(l, "feed_forward_length", 0);
    m->n_head = count(l, "attention.head_count", 0);
    m->n_head_kv = count(l, "attention.head_count_kv", m->n_head);
    m->head_k = count(l, "attention.key_length", m->n_embd / m->n_head);
    m->head_v = count(l, "attention.value_length", m->n_embd / m->n_head);
    m->n_rot = count(l, "rope.dimension_count", m->head_k);
    m->norm_eps = real(l, "attention.layer_norm_rms_epsilon", -1.0);
    m->rope_base = real(l, "rope.freq_base", 10000.0);
    if (m->n_head % m->n_head_kv != 0)
        fail(l, "%zu heads cannot share %zu key-value heads", m->n_head, m->n_head_kv);
    if (m->n_rot % 2 != 0 || m->n_rot > m->head_k)
        fail(l, "%zu rotated dimensions do not fit a head of %zu", m->n_rot, m->head_k);
}

/* Any key of rope.scaling other than type "none" asks for something that is not computed here. */
static void refuse_rope_scaling(struct loader *l)
{
    const struct oracle_file *file = &l->m->file;
    char prefix[64];
    const char *text;
    size_t len;

    if (l->failed)
        return;
    snprintf(prefix, sizeof prefix, "%s.rope.scaling.type", l->m->arch->name);
    if (oracle_file_string(file, prefix, &text, &len) && len == 4 && memcmp(text, "none", 4) == 0)
        return;
    prefix[strlen(prefix) - strlen("type")] = '\0';
    for (size_t i = 0; i < file->n_kv; i++) {
        if (file->kv[i].key_len > strlen(prefix) && memcmp(file->kv[i].key, prefix, strlen(prefix)) == 0)
            fail(l, "the oracle does not compute %.*s", (int)file->kv[i].key_len, file->kv[i].key);
    }
}

/* The tensor of that name and shape [rows][k]; rows 0 takes any. NULL, quietly, if it is optional and absent.
 */
static const struct oracle_tensor *tensor(struct loader *l, const char *name, size_t rows, size_t k,
                                          bool optional)
{
    struct oracle_tensor *t;

    if (l->failed)
        return NULL;
    t = oracle_file_tensor(&l->m->file, name);
    if (!t) {
        if (!optional)
            fail(l, "tensor %s is missing", name);
        return NULL;
    }
    t->used = true;
    if (!t->type) {
        fail(l, "tensor %s has a type the oracle does not know", name);
        return NULL;
    }
    if (t->k != k || (rows != 0 && t->rows != rows)) {
        fail(l, "tensor %s is [%zu][%zu] but should be [%zu][%zu]", name, t->rows, t->k, rows, k);
        return NULL;
    }
    return t;
}

static const struct oracle_tensor *layer_tensor(struct loader *l, size_t layer, const char *part, size_t rows,
                                                size_t k)
{
    char name[96];

    snprintf(name, sizeof name, "blk.%zu.%s.weight", layer, part);
    return tensor(l, name, rows, k, false);
}

static void find_layer(struct loader *l, size_t i)
{
    const oracle_model *m = l->m;
    struct oracle_layer *b = &l->m->layers[i];

    b->attn_norm = layer_tensor(l, i, "attn_norm", 1, m->n_embd);
    b->q = layer_tensor(l, i, "attn_q", m->n_head * m->head_k, m->n_embd);
    b->k = layer_tensor(l, i, "attn_k", m->n_head_kv * m->head_k, m->n_embd);
    b->v = layer_tensor(l, i, "attn_v", m->n_head_kv * m->head_v, m->n_embd);
    b->o = layer_tensor(l, i, "attn_output", m->n_embd, m->n_head * m->head_v);
    if (m->arch->qk_head_norm) {
        b->q_norm = layer_tensor(l, i, "attn_q_norm", 1, m->head_k);
        b->k_norm = layer_tensor(l, i, "attn_k_norm", 1, m->head_k);
    }
    b->ffn_norm = layer_tensor(l, i, "ffn_norm", 1, m->n_embd);
    b->gate = layer_tensor(l, i, "ffn_gate", m->n_ff, m->n_embd);
    b->up = layer_tensor(l, i, "ffn_up", m->n_ff, m->n_embd);
    b->down = layer_tensor(l, i, "ffn_down", m->n_embd, m->n_ff);
}

static void find_tensors(struct loader *l)
{
    oracle_model *m = l->m;

    m->embd = tensor(l, "token_embd.weight", 0, m->n_embd, false);
    m->n_vocab = m->embd ? m->embd->rows : 0;
    m->output_norm = tensor(l, "output_norm.weight", 1, m->n_embd, false);
    m->output = tensor(l, "output.weight", m->n_vocab, m->n_embd, true);
    if (!m->output)
        m->output = m->embd; /* tied */
    if (l->failed)
        return;
    m->layers = oracle_alloc(m->n_layers, sizeof *m->layers);
    for (size_t i = 0; i < m->n_layers && !l->failed; i++)
        find_layer(l, i);
}

static void make_rope(struct loader *l)
{
    oracle_model *m = l->m;
    size_t half = m->n_rot / 2;
    const struct oracle_tensor *divisors = NULL;
    float divisor;

    if (m->arch && m->arch->rope_divisors)
        divisors = tensor(l, "rope_freqs.weight", 1, half, true);
    if (divisors && !divisors->type->widen)
        fail(l, "rope_freqs.weight is quantised");
    if (l->failed)
        return;
    m->rope_freq = oracle_alloc(half, sizeof *m->rope_freq);
    for (size_t i = 0; i < half; i++) {
        m->rope_freq[i] = pow(m->rope_base, -2.0 * (double)i / (double)m->n_rot);
        if (divisors) {
            divisor = divisors->type->widen(divisors->data + i * divisors->type->bytes);
            m->rope_freq[i] /= (double)divisor;
        }
    }
}

static void refuse_unused(struct loader *l)
{
    const struct oracle_file *file = &l->m->file;

    for (size_t i = 0; i < file->n_tensors; i++) {
        if (!file->tensors[i].used)
            fail(l, "the oracle has no use for tensor %.*s",
                 (int)(file->tensors[i].name_len < 64 ? file->tensors[i].name_len : 64),
                 file->tensors[i].name);
    }
}

static oracle_model *open_take(uint8_t *bytes, size_t n_bytes, char *err, size_t err_size)
{
    oracle_model *m = oracle_alloc(1, sizeof *m);
    struct loader l = {m, err, err_size, false};

    if (!oracle_file_parse_take(&m->file, bytes, n_bytes, err, err_size)) {
        free(m);
        return NULL;
    }
    find_arch(&l);
    read_sizes(&l);
    refuse_rope_scaling(&l);
    find_tensors(&l);
    make_rope(&l);
    refuse_unused(&l);
    if (l.failed) {
        oracle_free(m);
        return NULL;
    }
    return m;
}

oracle_model *oracle_open(const char *path, char *err, size_t err_size)
{
    size_t n_bytes = 0;
    uint8_t *bytes = oracle_file_read(path, &n_bytes, err, err_size);

    return bytes ? open_take(bytes, n_bytes, err, err_size) : NULL;
}

oracle_model *oracle_open_bytes(const void *bytes, size_t n_bytes, char *err, size_t err_size)
{
    uint8_t *copy = oracle_alloc(n_bytes, 1);

    memcpy(copy, bytes, n_bytes);
    return open_take(copy, n_bytes, err, err_size);
}

void oracle_free(oracle_model *model)
{
    if (!model)
        return;
    oracle_file_release(&model->file);
    free(model->rope_freq);
    free(model->layers);
    free(model);
}

size_t oracle_n_vocab(const oracle_model *model)
{
    return model->n_vocab;
}

size_t oracle_n_embd(const oracle_model *model)
{
    return model->n_embd;
}

size_t oracle_n_layers(const oracle_model *model)
{
    return model->n_layers;
}
