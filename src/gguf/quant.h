/*
 * quant: rows of values <-> rows of blocks, in plain C. Dequantising is exact as the format defines it (each
 * value rounded once per operation of the format's own formula, in fp32). Quantising makes files for tests
 * and tools; it is not the fastest, it is deterministic. Pure functions, any thread.
 *
 * Supported: every type of blocks.h but Q8_1, Q8_K (only for activations), the integers and F64.
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
/*
 * The other way. Scales are searched by least squares (quant_fit.h), all without an importance matrix; the IQ
 * formats with a grid take microseconds per value. In a block format NaN becomes 0 and an infinity the largest
 * float; what its scales cannot hold is cut to the largest value that they can. F32, F16 and BF16 keep both,
 * and round as IEEE does.
 */
void quant_quantise(gguf_type type, const float *x, void *blocks, size_t n);

#endif
