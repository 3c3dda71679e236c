/*
 * The keys whose type is fixed: by the format, by the tokenizers, or because every architecture reads its
 * sizes under the same names. Keys that only describe (authors, licences, urls) are left out: no file is
 * refused for them.
 */
#include <string.h>

#include "gguf/reader_int.h"

typedef enum kind {
    KIND_STR,
    KIND_BOOL,
    KIND_FLOAT,
    KIND_INT,
    KIND_SIZE,          /* an integer that is not negative */
    KIND_SIZE_OR_SIZES, /* one for all layers, or one for each */
    KIND_STRS,
    KIND_FLOATS,
    KIND_INTS,
} kind;

typedef struct known {
    const char *key; /* one '*' stands for any text */
    kind kind;
} known;

static const known general_keys[] = {
    {"general.architecture", KIND_STR},
    {"general.name", KIND_STR},
    {"general.type", KIND_STR},
    {"general.alignment", KIND_SIZE},
    {"general.file_type", KIND_SIZE},
    {"general.quantization_version", KIND_SIZE},
    {"general.sampling.top_k", KIND_INT},
    {"general.sampling.top_p", KIND_FLOAT},
    {"general.sampling.min_p", KIND_FLOAT},
    {"general.sampling.temp", KIND_FLOAT},
    {"general.sampling.penalty_last_n", KIND_INT},
    {"general.sampling.penalty_repeat", KIND_FLOAT},
    {"split.no", KIND_SIZE},
    {"split.count", KIND_SIZE},
    {"split.tensors.count", KIND_SIZE},
    {"tokenizer.ggml.model", KIND_STR},
    {"tokenizer.ggml.pre", KIND_STR},
    {"tokenizer.ggml.tokens", KIND_STRS},
    {"tokenizer.ggml.merges", KIND_STRS},
    {"tokenizer.ggml.scores", KIND_FLOATS},
    {"tokenizer.ggml.token_type", KIND_INTS},
    {"tokenizer.ggml.token_type_count", KIND_SIZE},
    {"tokenizer.ggml.*_token_id", KIND_INT},
    {"tokenizer.ggml.add_*", KIND_BOOL},
    {"tokenizer.ggml.remove_extra_whitespaces", KIND_BOOL},
    {"tokenizer.ggml.precompiled_charsmap", KIND_INTS},
    {"tokenizer.huggingface.json", KIND_STR},
    {"tokenizer.chat_template", KIND_STR},
    {"tokenizer.chat_template.*", KIND_STR},
    {"tokenizer.chat_templates", KIND_STRS},
};

/* Behind "<architecture>.". */
static const known arch_keys[] = {
    {"context_length", KIND_SIZE},
    {"embedding_length", KIND_SIZE},
    {"block_count", KIND_SIZE},
    {"vocab_size", KIND_SIZE},
    {"feed_forward_length", KIND_SIZE_OR_SIZES},
    {"expert_count", KIND_SIZE},
    {"expert_used_count", KIND_SIZE},
    {"attention.head_count", KIND_SIZE_OR_SIZES},
    {"attention.head_count_kv", KIND_SIZE_OR_SIZES},
    {"attention.key_length", KIND_SIZE},
    {"attention.value_length", KIND_SIZE},
    {"attention.sliding_window", KIND_SIZE},
    {"attention.causal", KIND_BOOL},
    {"attention.layer_norm_epsilon", KIND_FLOAT},
    {"attention.layer_norm_rms_epsilon", KIND_FLOAT},
    {"rope.dimension_count", KIND_SIZE},
    {"rope.freq_base", KIND_FLOAT},
    {"rope.scaling.type", KIND_STR},
    {"rope.scaling.factor", KIND_FLOAT},
    {"rope.scaling.original_context_length", KIND_SIZE},
};

static const char *const wanted_text[] = {
    [KIND_STR] = "a string",
    [KIND_BOOL] = "a bool",
    [KIND_FLOAT] = "f32 or f64",
    [KIND_INT] = "an integer",
    [KIND_SIZE] = "an integer that is not negative",
    [KIND_SIZE_OR_SIZES] = "an integer that is not negative, or an array of integers",
    [KIND_STRS] = "an array of strings",
    [KIND_FLOATS] = "an array of f32",
    [KIND_INTS] = "an array of integers",
};

static bool type_is_integer(gguf_value_type t)
{
    return gguf_value_bytes(t) != 0 && t != GGUF_F32 && t != GGUF_F64 && t != GGUF_BOOL;
}

static bool kv_is_size(const gguf_kv *kv)
{
    bool negative;
    uint64_t v;
    return gguf_kv_integer(kv, &negative, &v) && !negative;
}

static bool kv_is_array(const gguf_kv *kv, bool elem_fits)
{
    return kv->type == GGUF_ARRAY && elem_fits;
}

static bool kind_fits(kind k, const gguf_kv *kv)
{
    switch (k) {
    case KIND_STR:
        return kv->type == GGUF_STR;
    case KIND_BOOL:
        return kv->type == GGUF_BOOL;
    case KIND_FLOAT:
        return kv->type == GGUF_F32 || kv->type == GGUF_F64;
    case KIND_INT:
        return type_is_integer(kv->type);
    case KIND_SIZE:
        return kv_is_size(kv);
    case KIND_SIZE_OR_SIZES:
        return kv_is_size(kv) || kv_is_array(kv, type_is_integer(kv->elem));
    case KIND_STRS:
        return kv_is_array(kv, kv->elem == GGUF_STR);
    case KIND_FLOATS:
        return kv_is_array(kv, kv->elem == GGUF_F32);
    case KIND_INTS:
        return kv_is_array(kv, type_is_integer(kv->elem));
    }
    return false;
}

static bool key_matches(const char *pattern, const char *key, size_t len)
{
    const char *star = strchr(pattern, '*');
    size_t head = star ? (size_t)(star - pattern) : strlen(pattern);
    size_t tail = star ? strlen(star + 1) : 0;
    if (star ? len < head + tail : len != head) {
        return false;
    }
    return memcmp(pattern, key, head) == 0 && memcmp(pattern + head + 1, key + len - tail, tail) == 0;
}

static const char *wanted_in(const known *keys, size_t n, const char *key, size_t len, const gguf_kv *kv)
{
    for (size_t i = 0; i < n; i++) {
        if (key_matches(keys[i].key, key, len)) {
            return kind_fits(keys[i].kind, kv) ? NULL : wanted_text[keys[i].kind];
        }
    }
    return NULL;
}

const char *gguf_known_wanted(const gguf_kv *kv, gguf_str arch)
{
    const char *key = kv->key.data;
    size_t len = kv->key.len;
    const char *wanted = wanted_in(general_keys, sizeof general_keys / sizeof *general_keys, key, len, kv);
    if (wanted || arch.len == 0 || len <= arch.len + 1 || key[arch.len] != '.' ||
        memcmp(key, arch.data, arch.len) != 0) {
        return wanted;
    }
    return wanted_in(arch_keys, sizeof arch_keys / sizeof *arch_keys, key + arch.len + 1, len - arch.len - 1,
                     kv);
}
