/*
 * kv_layout: where K and V lie inside a KV page (DESIGN 7). Data and pure functions.
 *
 * A page holds KV_PAGE_TOKENS positions of all layers of one attention kind. Layers follow each other in
 * ascending order, the KV heads of a layer likewise; each head is K then V:
 *
 *     page:   [layer 0: head 0 | head 1 | …][layer 1: …] …       layers, heads, K and V start on multiples of 64 bytes
 *     head:   K [k_dim][32]  V [32][v_dim]
 *
 * K is transposed, so that one score per position is one lane; V is not, so that a position's values are one
 * run. Values are of kv_type (little-endian). Q8_0 keeps a binary16 scale for each KV_BLOCK values of one position
 * (the last block of a head may be shorter), in front of the int8 codes of the same part; a value is scale * code,
 * which fp32 holds exactly:
 *
 *     K:   scales [ceil(k_dim / 32)][32]   codes [k_dim][32]
 *     V:   scales [32][ceil(v_dim / 32)]   codes [32][v_dim]
 *
 * With v_in_k (MLA) a head is K alone, and V of a position is the first v_dim values of its K.
 *
 * Rows that were never written may hold anything, NaN included: no result depends on a position that is not
 * visible.
 */
#ifndef HEARTH_KERN_KV_LAYOUT_H
#define HEARTH_KERN_KV_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define KV_PAGE_TOKENS 32
#define KV_BLOCK       32 /* values of one position that share a scale in Q8_0 */

typedef enum kv_type { KV_F32, KV_F16, KV_BF16, KV_Q8_0, KV_TYPE_COUNT } kv_type;

typedef struct kv_layer {
    size_t offset_bytes; /* of head 0 in the page */
    size_t head_bytes;   /* from one KV head to the next */
    size_t v_bytes;      /* from a head's K to its V; 0 with v_in_k */
    uint32_t n_kv_heads;
    uint32_t k_dim;
    uint32_t v_dim;
    bool v_in_k;
} kv_layer;

typedef struct kv_dims {
    uint32_t n_kv_heads;
    uint32_t k_dim;
    uint32_t v_dim;
    bool v_in_k; /* then v_dim <= k_dim */
} kv_dims;

/* Bytes of the scales in front of the codes of K or V, dim values wide: 32 for each block. */
static inline size_t kv_q8_scale_bytes(size_t dim)
{
    return (dim + KV_BLOCK - 1) / KV_BLOCK * KV_PAGE_TOKENS * sizeof(uint16_t);
}

/* Bytes of K or V of one head of a page, dim values wide. */
size_t kv_part_bytes(kv_type type, uint32_t dim);
const char *kv_type_name(kv_type type); /* "f32", "f16", "bf16", "q8_0" */
/* ST_INVALID_FIELD naming kv_type for anything else. */
status kv_type_parse(const char *name, kv_type *out, err *e);
/* Fills layers[n] from dims[n]; *page_bytes is a multiple of 64. ST_LOAD_FAILED if sizes overflow. */
status kv_layout_init(kv_type type, const kv_dims *dims, size_t n, kv_layer *layers, size_t *page_bytes);

#endif
