/*
 * make_model: random models as GGUF files, for tests that must run without ../shared.
 *
 * A spec gives the same bytes on every machine (Philox and whole-number arithmetic make the weights, our own
 * quantiser the blocks). The scales are chosen so that the model is lively: logits have a standard deviation
 * of about 2 and attention is neither flat nor one-hot, so that a wrong sign, pairing or scale shows.
 *
 * Errors: ST_INVALID_FIELD naming the field of the spec, ST_NOMEM, and what the writer reports.
 */
#ifndef HEARTH_TESTS_MODEL_MAKE_MODEL_H
#define HEARTH_TESTS_MODEL_MAKE_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "gguf/blocks.h"

typedef enum make_vocab {
    MAKE_VOCAB_NONE, /* no tokenizer keys */
    /* SPM: <unk> <s> </s>, 256 byte tokens from id 3 on, then letters and pieces with falling scores. */
    MAKE_VOCAB_SPM,
    /* Byte-level BPE (gpt-2): token b is byte b, then merges, and at the end <|endoftext|> (eos),
     * <|im_start|>,
     * <|im_end|> (eot). */
    MAKE_VOCAB_BPE
} make_vocab;

#define MAKE_VOCAB_MIN 259 /* for SPM and BPE */
#define MAKE_VOCAB_MAX 16384

typedef struct make_model_spec {
    const char *arch;    /* "llama" or "qwen3" */
    gguf_type type;      /* embedding, attn_q, attn_k, attn_output, ffn_gate, ffn_up */
    gguf_type type_alt;  /* attn_v, ffn_down, output: files mix two types like this */
    gguf_type norm_type; /* F32, F16 or BF16 */
    uint32_t width;
    uint32_t n_layers;
    uint32_t n_heads;
    uint32_t n_kv_heads;
    uint32_t head_dim;
    uint32_t n_ff;
    uint32_t n_vocab;
    uint32_t n_ctx;
    bool tied;          /* no output.weight */
    bool rope_freqs;    /* llama only: divisors from 1 to 8 */
    float rope_factor;  /* linear rope scaling, 0 = no keys */
    float rope_divisor; /* with rope_freqs: this divisor everywhere, 0 = from 1 to 8 */
    make_vocab vocab;
    uint64_t seed;
} make_model_spec;

/* llama, width 256, 2 layers, 4:2 heads of 64, ffn 512, vocabulary 300, context 512, tied, no tokenizer; all
 * matrices of this type. */
make_model_spec make_model_default(gguf_type type);
status make_model(const char *path, const make_model_spec *spec, err *e);

#endif
