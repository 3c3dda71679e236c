/*
 * kv_layout: where K and V lie inside a KV page (DESIGN 7). Data and pure functions.
 *
 * A page holds KV_PAGE_TOKENS positions of all layers of one attention kind. Layers follow each other in
 * ascending order, the KV heads of a layer likewise; each head is K then V:
 *
 *     page:   [layer 0: head 0 | head 1 | …][layer 1: …] …       each layer starts on a multiple of 64 bytes
 *     head:   K [k_dim][32]  V [32][v_dim]
 *
 * K is transposed, so that one score per position is one lane; V is not, so that a position's values are one
 * run. Values are kv_type (little-endian). Rows that were never written may hold anything, NaN included: no
 * result depends on a position that is not visible.
 */
#ifndef HEARTH_KERN_KV_LAYOUT_H
#define HEARTH_KERN_KV_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define KV_PAGE_TOKENS 32

typedef enum kv_type { KV_F32, KV_F16 } kv_type;

typedef struct kv_layer {
    size_t offset_bytes; /* of head 0 in the page */
    size_t head_bytes;   /* from one KV head to the next */
    size_t v_bytes;      /* from a head's K to its V */
    uint32_t n_kv_heads;
    uint32_t k_dim;
    uint32_t v_dim;
} kv_layer;

typedef struct kv_dims {
    uint32_t n_kv_heads;
    uint32_t k_dim;
    uint32_t v_dim;
} kv_dims;

size_t kv_type_bytes(kv_type type);
const char *kv_type_name(kv_type type); /* "f32", "f16" */
/* ST_INVALID_FIELD naming kv_type for anything else. */
status kv_type_parse(const char *name, kv_type *out, err *e);
/* Fills layers[n] from dims[n]; *page_bytes is a multiple of 64. ST_LOAD_FAILED if sizes overflow. */
status kv_layout_init(kv_type type, const kv_dims *dims, size_t n, kv_layer *layers, size_t *page_bytes);

#endif
