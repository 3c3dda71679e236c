/*
 * attend: what a forward pass does with pages: writing K and V, and attention, cut into tasks. Rows of one sequence form tiles that share each pass
 * over K and V; a tile is split further by KV heads and, where that is not enough for all threads, by spans, whose
 * results are then joined from left to right (rule 3: the cuts change no bit).
 *
 * A plan belongs to one batch and is made once for all layers that see the same positions. Thread: the engine's, which
 * lends its pool. Nothing is allocated.
 */
#ifndef HEARTH_MODEL_ATTEND_H
#define HEARTH_MODEL_ATTEND_H

#include "base/pool.h"
#include "kern/kern.h"
#include "model/forward.h"
#include "model/hparams.h"

#define ATTEND_PARTS \
    ((size_t)1 << 21) /* floats for what spans come to; a batch that needs more is split less */

/* Rows [row0, row0 + n_rows) of one sequence. */
typedef struct attend_tile {
    size_t row0;
    size_t n_rows;
    size_t n_groups;   /* of KV heads, and … */
    size_t n_pieces;   /* … of spans: a task each */
    size_t first_task; /* of all tiles' */
    size_t first_join; /* of all tiles that have several pieces */
    size_t part0;      /* where the parts of its KV heads begin, in floats */
} attend_tile;

/* The caller's memory and what it is about. */
typedef struct attend {
    /* borrowed */
    const kern_table *kern;
    const model_shape *shape;
    const batch *b;
    /* What is done first with the query and key heads that belong to KV heads [h0, h1) of a row: norm, rotation. Once
     * for each; any thread. */
    void (*turn)(const void *ctx, size_t row, size_t h0, size_t h1);
    const void *turn_ctx;
    const float *q; /* rows of n_heads * k_dim, q_stride floats apart */
    float *mix;     /* rows of n_heads * v_dim */
    size_t q_stride, mix_stride;
    attend_tile *tiles; /* [batch rows] */
    float *parts;       /* [ATTEND_PARTS] */
    float *scratch;     /* [threads][scratch_floats] */
    size_t scratch_floats;
    kv_type type;
    float scale;
    /* made by attend_plan */
    size_t n_tiles, n_tasks, n_joins;
    bool alone;         /* each row is of another sequence: nobody else reads in this batch what it writes */
    const kv_layer *kv; /* of the present layer */
    const float *k, *v; /* its new rows */
    size_t k_stride, v_stride;
} attend;

/* Rows of a tile: as many as have 128 query heads for one KV head, but a power of two. */
size_t attend_tile_rows(const model_shape *s);
/* Floats of scratch of one thread. */
size_t attend_scratch(const model_shape *s);
void attend_plan(attend *at, size_t n_threads);
/* Turns the heads of all rows of the batch and writes what they have for one layer into their pages: rows of
 * n_kv_heads * k_dim, and of v_dim. Where each row is of another sequence this is left to attend_run: to the task that
 * reads them. */
void attend_store(attend *at, pool *p, const kv_layer *kv, const float *k, size_t k_stride, const float *v,
                  size_t v_stride);
/* Fills mix for all rows of the batch from the pages of one layer. After attend_store, once. */
void attend_run(attend *at, pool *p, const kv_layer *kv);

#endif
