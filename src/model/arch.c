#include "model/arch.h"

#include <stdio.h>
#include <string.h>

#include "model/weights.h"

#define N_OF(list) (sizeof(list) / sizeof *(list))

#define GLOBAL_TABLE(field, name, k, n)                               \
    {                                                                 \
        name, offsetof(model_weights, field), ARCH_TABLE, k, n, false \
    }
#define GLOBAL_VECTOR(field, name, k)                                         \
    {                                                                         \
        name, offsetof(model_weights, field), ARCH_VECTOR, k, ARCH_ONE, false \
    }
#define GLOBAL_MATRIX_IF(field, name, k, n)                           \
    {                                                                 \
        name, offsetof(model_weights, field), ARCH_MATRIX, k, n, true \
    }
#define GLOBAL_VECTOR_IF(field, name, k)                                     \
    {                                                                        \
        name, offsetof(model_weights, field), ARCH_VECTOR, k, ARCH_ONE, true \
    }
#define LAYER_MATRIX(field, name, k, n)                                \
    {                                                                  \
        name, offsetof(layer_weights, field), ARCH_MATRIX, k, n, false \
    }
#define LAYER_VECTOR(field, name, k)                                          \
    {                                                                         \
        name, offsetof(layer_weights, field), ARCH_VECTOR, k, ARCH_ONE, false \
    }

/* Pre-norm decoder with separate Q, K, V and a gated feed-forward block. */
/* clang-format off */
#define DECODER_GLOBALS                                                                                      \
    GLOBAL_TABLE(embd, "token_embd.weight", ARCH_EMBD, ARCH_VOCAB),                                          \
    GLOBAL_VECTOR(output_norm, "output_norm.weight", ARCH_EMBD),                                             \
    GLOBAL_MATRIX_IF(output, "output.weight", ARCH_EMBD, ARCH_VOCAB)

#define DECODER_LAYER                                                                                        \
    LAYER_VECTOR(attn_norm, "attn_norm.weight", ARCH_EMBD),                                                  \
    LAYER_MATRIX(q, "attn_q.weight", ARCH_EMBD, ARCH_Q),                                                     \
    LAYER_MATRIX(k, "attn_k.weight", ARCH_EMBD, ARCH_K),                                                     \
    LAYER_MATRIX(v, "attn_v.weight", ARCH_EMBD, ARCH_V),                                                     \
    LAYER_MATRIX(o, "attn_output.weight", ARCH_MIX, ARCH_EMBD),                                              \
    LAYER_VECTOR(ffn_norm, "ffn_norm.weight", ARCH_EMBD),                                                    \
    LAYER_MATRIX(gate, "ffn_gate.weight", ARCH_EMBD, ARCH_FF),                                               \
    LAYER_MATRIX(up, "ffn_up.weight", ARCH_EMBD, ARCH_FF),                                                   \
    LAYER_MATRIX(down, "ffn_down.weight", ARCH_FF, ARCH_EMBD)

static const arch_tensor llama_globals[] = {
    DECODER_GLOBALS,
    /* Llama 3 long context: each inverse frequency is divided by its factor. */
    GLOBAL_VECTOR_IF(rope_divisors, "rope_freqs.weight", ARCH_ROT_HALF),
};
static const arch_tensor llama_layer[] = {DECODER_LAYER};

static const arch_tensor qwen3_globals[] = {DECODER_GLOBALS};
static const arch_tensor qwen3_layer[] = {
    DECODER_LAYER,
    LAYER_VECTOR(q_norm, "attn_q_norm.weight", ARCH_HEAD),
    LAYER_VECTOR(k_norm, "attn_k_norm.weight", ARCH_HEAD),
};

#define TENSORS(name) name##_globals, N_OF(name##_globals), name##_layer, N_OF(name##_layer)

static const arch archs[] = {
    {"llama", KERN_ROPE_PAIRS, TENSORS(llama)},
    {"qwen3", KERN_ROPE_HALVES, TENSORS(qwen3)},
};
/* clang-format on */

const arch *arch_at(size_t i)
{
    return i < N_OF(archs) ? &archs[i] : NULL;
}

const arch *arch_find(const char *name, size_t len)
{
    for (size_t i = 0; i < N_OF(archs); i++) {
        if (strlen(archs[i].name) == len && memcmp(archs[i].name, name, len) == 0) {
            return &archs[i];
        }
    }
    return NULL;
}

static const arch_tensor *find_in(const arch_tensor *list, size_t n, const char *name, size_t len)
{
    for (size_t i = 0; i < n; i++) {
        if (strlen(list[i].name) == len && memcmp(list[i].name, name, len) == 0) {
            return &list[i];
        }
    }
    return NULL;
}

/* The part behind "blk.<i>." with i < n_layers, written without leading zeros; NULL if name is not like that.
 */
static const char *behind_layer(gguf_str name, uint32_t n_layers)
{
    static const char prefix[] = "blk.";
    size_t at = sizeof prefix - 1;
    uint32_t layer = 0;
    if (name.len <= at || memcmp(name.data, prefix, at) != 0) {
        return NULL;
    }
    size_t first = at;
    while (at < name.len && name.data[at] >= '0' && name.data[at] <= '9') {
        layer = layer * 10 + (uint32_t)(name.data[at] - '0');
        at++;
        if (layer >= n_layers || (at - first > 1 && name.data[first] == '0')) {
            return NULL;
        }
    }
    return at > first && at < name.len && name.data[at] == '.' ? name.data + at + 1 : NULL;
}

const arch_tensor *arch_find_tensor(const arch *a, gguf_str name, uint32_t n_layers)
{
    const char *rest = behind_layer(name, n_layers);
    if (rest) {
        return find_in(a->layer, a->n_layer, rest, name.len - (size_t)(rest - name.data));
    }
    return find_in(a->globals, a->n_globals, name.data, name.len);
}

uint64_t arch_dim_size(arch_dim dim, const model_shape *s)
{
    switch (dim) {
    case ARCH_ONE:
        return 1;
    case ARCH_EMBD:
        return s->n_embd;
    case ARCH_FF:
        return s->n_ff;
    case ARCH_VOCAB:
        return s->n_vocab;
    case ARCH_Q:
        return (uint64_t)s->n_heads * s->k_dim;
    case ARCH_K:
        return (uint64_t)s->n_kv_heads * s->k_dim;
    case ARCH_V:
        return (uint64_t)s->n_kv_heads * s->v_dim;
    case ARCH_MIX:
        return (uint64_t)s->n_heads * s->v_dim;
    case ARCH_HEAD:
        return s->k_dim;
    case ARCH_ROT_HALF:
        return s->n_rot / 2;
    }
    return 0;
}
