/*
 * forward: one step of a model on a ragged batch, as a table of functions. The engine knows a model only
 * through this, so that tests can put a pure function of the tokens in its place.
 *
 * A batch is a list of rows (sequence, position, token). Rows of one sequence stand together, in ascending,
 * adjacent positions. A row sees the positions 0 … its own of its sequence: earlier steps' through the pages,
 * and those of the same batch because every layer writes K and V of all rows before any row attends. Pages
 * must cover the last position of each sequence. What a row computes depends on its own sequence alone (P1).
 *
 * Thread: the engine's, which lends its pool. No allocation in a step.
 */
#ifndef HEARTH_MODEL_FORWARD_H
#define HEARTH_MODEL_FORWARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/pool.h"
#include "base/status.h"
#include "kern/kv_layout.h"
#include "model/shape.h"

typedef struct batch_row {
    int32_t seq;   /* index into seqs */
    int32_t pos;   /* absolute, from 0 */
    int32_t token; /* in [0, n_vocab) */
    bool want_logits;
    bool want_hidden; /* its fp32 state behind the output norm goes to batch.hidden */
} batch_row;

typedef struct batch_seq {
    void *const *pages; /* borrowed: page p holds positions [32 p, 32 p + 32) */
    size_t n_pages;
} batch_seq;

typedef struct batch {
    const batch_row *rows;
    size_t n_rows; /* 1 … max_rows of the table */
    const batch_seq *seqs;
    size_t n_seqs;
    float *hidden; /* out: [rows with want_hidden, in row order][n_embd]; NULL if none wants it */
} batch;

typedef struct forward_ops {
    void *ctx;
    const model_shape *shape;
    size_t page_bytes;     /* size of a KV page */
    size_t max_rows;       /* rows one call takes */
    size_t max_logit_rows; /* rows with want_logits one call takes */
    /* What a page holds (kern/kv_layout.h). kv_layers NULL: nobody but the model knows, so nothing is exported. */
    const kv_layer *kv_layers; /* [n_kv_layers] */
    size_t n_kv_layers;
    kv_type kv_type;
    /*
     * logits: [rows with want_logits, in row order][n_vocab]. bad: [n_rows], set to 1 for each row whose
     * sequence met a non-finite value in or before that row of this batch (its logits are then unspecified
     * but finite or zero, its hidden state zero; its K and V must not be used), else 0. ST_OK, or ST_INTERNAL
     * for a batch that breaks the rules above.
     */
    status (*forward)(void *ctx, pool *p, const batch *b, float *logits, uint8_t *bad, err *e);
} forward_ops;

#endif
