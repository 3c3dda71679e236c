/*
 * fake_model: a forward table whose logits are a pure function of all tokens of the sequence so far, read
 * back from the pages. Each row stores its token, its position and a check word in its slot; a row that wants
 * logits reads the slots 0 … its own. So a page that was lost, swapped, shared or never written shows as a
 * fault, and a reply can be predicted without the engine (fake_logits, fake_greedy). The hidden state of a row that
 * wants it is such a function too: FAKE_N_EMBD values in [-1, 1) that a hash of the tokens gives (fake_hidden).
 */
#ifndef HEARTH_TESTS_ENGINE_FAKE_MODEL_H
#define HEARTH_TESTS_ENGINE_FAKE_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/forward.h"

#define FAKE_MAX_POS 32768
#define FAKE_N_EMBD  8

typedef struct fake_model {
    model_shape shape;
    forward_ops ops; /* ctx = this struct */
    kv_layer layer;  /* a page as the forward table describes it: no K, and a V of one slot */
    /* What it does; set by tests. */
    /* Returns the token that gets by far the largest logit after tokens[0..n), or -1 for a hashed row. NULL:
     * hashed. */
    int32_t (*script)(void *ctx, const int32_t *tokens, size_t n);
    void *script_ctx;
    void (*on_step)(void *ctx); /* at the start of each forward call; NULL = nothing */
    void *on_step_ctx;
    int32_t bad_token; /* rows from this token on are bad; -1 = none */
    status fail;       /* not ST_OK: every forward call fails with it */
    /* What it saw. */
    size_t n_calls, n_rows, n_logit_rows, most_rows, most_logit_rows, most_seqs;
    size_t most_rows_of_one; /* of a sequence with more than one row left, for the chunk limit */
    size_t n_faults;
    int32_t tokens[FAKE_MAX_POS]; /* scratch */
} fake_model;

void fake_model_init(fake_model *m, uint32_t n_vocab, size_t max_rows, size_t max_logit_rows);
/* logits [n_vocab] after tokens[0..n). */
void fake_logits(const fake_model *m, const int32_t *tokens, size_t n, float *logits);
/* hidden [FAKE_N_EMBD] after tokens[0..n). */
void fake_hidden(const int32_t *tokens, size_t n, float *hidden);
/* Appends n greedy tokens to tokens[0..n_prompt). */
void fake_greedy(const fake_model *m, int32_t *tokens, size_t n_prompt, size_t n);

#endif
