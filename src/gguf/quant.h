/*
 * quant: rows of values <-> rows of blocks, in plain C. Dequantising is exact as the format defines it (each
 * value rounded once per operation of the format's own formula, in fp32). Quantising makes files for tests
 * and tools; it is not the fastest, it is deterministic. Pure functions, any thread.
 *
 * Supported now: F32, F16, BF16, Q8_0, Q4_0, Q4_K, Q6_K.
 */
#ifndef HEARTH_GGUF_QUANT_H
#define HEARTH_GGUF_QUANT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "gguf/blocks.h"

bool quant_supported(gguf_type type);
/* Bytes of a row of n values; 0 if n is not a multiple of the block or the type is unknown. */
size_t quant_row_bytes(gguf_type type, size_t n);
/* n values (a multiple of the block) from blocks to out[n]; type must be supported. */
void quant_dequantise(gguf_type type, const void *blocks, float *out, size_t n);
/* The other way; values must be finite. Q4_K and Q6_K search scales by weighted least squares. */
void quant_quantise(gguf_type type, const float *x, void *blocks, size_t n);

#endif
