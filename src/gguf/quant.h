/*
 * quant: rows of values <-> rows of blocks, in plain C. Dequantising is exact as the format defines it (each
 * value rounded once per operation of the format's own formula, in fp32). Quantising makes files for tests
 * and tools; it is not the fastest, it is deterministic. Pure functions, any thread.
 *
 * Read: every type of blocks.h but Q8_1, Q8_K (only for activations), the integers and F64. Written: those but
 * the IQ formats with a grid (IQ1, IQ2, IQ3), which need an importance matrix to be of use.
 */
#ifndef HEARTH_GGUF_QUANT_H
#define HEARTH_GGUF_QUANT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "gguf/blocks.h"

bool quant_supported(gguf_type type);    /* quant_dequantise takes it */
bool quant_can_quantise(gguf_type type); /* quant_quantise takes it too */
/* Bytes of a row of n values; 0 if n is not a multiple of the block or the type is unknown. */
size_t quant_row_bytes(gguf_type type, size_t n);
/* n values (a multiple of the block) from blocks to out[n]; type must be supported. */
void quant_dequantise(gguf_type type, const void *blocks, float *out, size_t n);
/*
 * The other way; type must be one that can be written. Scales are searched by least squares (quant_fit.h). In
 * a block format NaN becomes 0 and an infinity the largest float; what a scale cannot hold is cut to the
 * largest value of the block format. F16 and BF16 round as IEEE does and keep both.
 */
void quant_quantise(gguf_type type, const float *x, void *blocks, size_t n);

#endif
