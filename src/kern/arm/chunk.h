/*
 * chunk: packed weights of one panel, 256 values of k, spread out to int8 lines and the scales of each output, as
 * the ARM products use them. A chunk is unpacked once and meets all rows of activations while it lies in the first
 * cache. Internal to kern/arm. Pure, any thread.
 *
 *     lines[b][r][4 n + j]   value 32 b + 4 r + j of output n, offset and table applied
 *
 * Blocks of 32: value b has d[b] and, where the format has one, the added minimum m[b].
 * Blocks of 256: sub-block j of 16 values has sc[j] and the minimum mins[j]; d[0] and m[0] are d and dmin.
 */
#ifndef HEARTH_KERN_ARM_CHUNK_H
#define HEARTH_KERN_ARM_CHUNK_H

#include "kern/kern.h"
#include "kern/pack_units.h"

#define CHUNK_BLOCKS 8 /* of 32 values */

typedef struct chunk {
    int8_t lines[CHUNK_BLOCKS][8][4 * KERN_PANEL];
    float d[CHUNK_BLOCKS][KERN_PANEL];
    float m[CHUNK_BLOCKS][KERN_PANEL];
    int32_t sc[16][KERN_PANEL];
    int32_t mins[16][KERN_PANEL];
} chunk;

/* n units of a format in blocks of 32, n <= CHUNK_BLOCKS. */
void chunk_unpack_q32(gguf_type type, const uint8_t *units, size_t n, chunk *c);
/* One unit of a format in blocks of 256. */
void chunk_unpack_q256(gguf_type type, const uint8_t *unit, chunk *c);
bool chunk_has_min(gguf_type type);

#endif
