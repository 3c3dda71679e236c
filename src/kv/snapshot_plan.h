/*
 * snapshot_plan: where snapshots of recurrent layers are taken (DESIGN 7): at the last page boundary before a prompt's
 * end (whoever asks the same again has a token to compute), at the ends of turns, and every so many tokens. A chunk of
 * prefill ends at each of these, because a state cannot be had from the middle of one. Pure functions; any thread.
 */
#ifndef HEARTH_KV_SNAPSHOT_PLAN_H
#define HEARTH_KV_SNAPSHOT_PLAN_H

#include <stdbool.h>
#include <stddef.h>

/* Tokens between snapshots at fixed spacing, a multiple of KV_PAGE_TOKENS: at least 1,024, and as many as their keys
 * and values take the memory of one snapshot (0 bytes: a model without attention). */
size_t kv_snapshot_spacing(size_t snapshot_bytes, size_t kv_bytes_per_token);

typedef struct kv_snapshot_stop {
    size_t at;     /* how far to compute */
    bool snapshot; /* one is taken there */
    bool spaced;   /* it is there by its position alone (kv_tree_put_snapshot) */
} kv_snapshot_stop;

/* The next stop of a prompt of n_prompt tokens of which `from` (fewer) are computed; the last is its end. A reply's
 * tokens need only look whether their number is a multiple of the spacing. */
kv_snapshot_stop kv_snapshot_next(size_t from, size_t n_prompt, size_t spacing);

#endif
