/*
 * attn_walk: how every set with vectors goes through attention (kern_attn): spans outside, then blocks of query heads
 * (of all rows), then the pages of a span. The walk is plain C and knows who sees what; the arithmetic of a page is a
 * table of functions, one per set.
 *
 * A page of one KV head is widened to fp32 once for all blocks: the whole span lies in the second cache while each block
 * passes over it, its scores and values in the first. With a single block (one row decoding) only one page is kept.
 *
 * Internal to kern/.
 */
#ifndef HEARTH_KERN_ATTN_WALK_H
#define HEARTH_KERN_ATTN_WALK_H

#include "kern/kern.h"

#define ATTN_BLOCK_MAX 8

/* The K, or the V, of one head of a page: as it lies there, or widened (KV_F32): K [k_dim][32], V [32][v_dim]. */
typedef struct attn_part {
    const unsigned char *at;
    kv_type type;
    const unsigned char *ahead; /* of what is not widened: a part that is read soon */
} attn_part;

typedef struct attn_ops {
    size_t block; /* query heads done at once, at most ATTN_BLOCK_MAX */
    size_t pair;  /* up to so many take two pages of K side by side, unless they are widened; 0: never */
    /*
     * The K, or the V, of one head of a page as fp32 into room: [k_dim][32], [32][v_dim]; n values of F16 or BF16, of
     * which both lie alike, and either of Q8_0. For each line that is read the same line from ahead on is fetched into
     * the second cache: one for one, since bursts are dropped.
     */
    void (*halves)(float *room, const unsigned char *from, size_t n, kv_type type,
                   const unsigned char *ahead);
    void (*code_keys)(float *room, const unsigned char *k, size_t k_dim, const unsigned char *ahead);
    void (*code_values)(float *room, const unsigned char *v, size_t v_dim, const unsigned char *ahead);
    /* K [k_dim][32] -> V [32][v_dim], its first v_dim rows turned */
    void (*turn)(float *v, const float *k, size_t v_dim);
    /* Dot products of n <= block query heads with the 32 positions of each of n_parts pages (1; 2 as `pair` says), times
     * scale: q [k_dim][n], p rows KERN_ATTN_P_PITCH apart. For each line that is read of what is not widened, the same
     * line from its `ahead` on is fetched. */
    void (*scores)(const attn_part *k, size_t n_parts, size_t k_dim, const float *q, size_t n, float scale,
                   float *p);
    /* Scores of positions first … last of a span (p[0] is its first position) pass the soft cap, if there is one; the
     * largest. */
    float (*largest)(float *p, size_t first, size_t last, float soft_cap);
    /* Scores of the same positions become weights, m being the largest; their sum. What lies beside them within the same
     * sixteen may be anything and becomes +0. */
    float (*weights)(float *p, size_t first, size_t last, float m);
    /* o[i] = fma(p[i][j], V[j], o[i]) for j0 <= j <= j1 and n <= block query heads; o rows v_dim apart. */
    void (*weigh)(const attn_part *v, size_t v_dim, const float *p, float *o, size_t j0, size_t j1, size_t n);
    /* (m[i], l[i], o[i]) = itself merged with (m2[i], l2[i], o2[i]) for n <= ATTN_BLOCK_MAX query heads; rows of o and o2
     * v_dim apart; o2 = NULL is all zeros. */
    void (*merge)(float *m, float *l, float *o, const float *m2, const float *l2, const float *o2, size_t n,
                  size_t v_dim);
    void (*divide)(float *out, const float *o, float l, size_t v_dim); /* out = o / l */
} attn_ops;

/* kern_table.attention, attention_spans and attention_join. */
void attn_walk(const attn_ops *ops, const kern_attn *a);
void attn_walk_spans(const attn_ops *ops, const kern_attn *a, size_t span0, size_t span1, float *parts);
void attn_walk_join(const attn_ops *ops, const kern_attn *a, size_t span0, const float *parts);

#endif
