/*
 * quant_int: what the files of quant share. A block is decoded or encoded by one function per type; quant.c
 * has the table of them. Blocks lie at even addresses (MXFP4 and NVFP4: any). Pure functions, any thread.
 */
#ifndef HEARTH_GGUF_QUANT_INT_H
#define HEARTH_GGUF_QUANT_INT_H

#include <stddef.h>
#include <stdint.h>

#include "gguf/blocks.h"

typedef void quant_decode_fn(const void *block, float *y);
typedef void quant_encode_fn(const float *x, void *block); /* every x[i] finite; all bytes are written */

/* The types with a block of more than one value. */
quant_decode_fn quant_decode_q4_0, quant_decode_q4_1, quant_decode_q5_0, quant_decode_q5_1, quant_decode_q8_0,
    quant_decode_q1_0, quant_decode_q2_0, quant_decode_tq1_0, quant_decode_tq2_0, quant_decode_mxfp4,
    quant_decode_nvfp4, quant_decode_iq4_nl, quant_decode_iq4_xs; /* quant_decode.c */
quant_decode_fn quant_decode_q2_k, quant_decode_q3_k, quant_decode_q4_k, quant_decode_q5_k,
    quant_decode_q6_k; /* quant_decode_k.c */
quant_decode_fn quant_decode_iq1_s, quant_decode_iq1_m, quant_decode_iq2_xxs, quant_decode_iq2_xs,
    quant_decode_iq2_s, quant_decode_iq3_xxs, quant_decode_iq3_s; /* quant_decode_iq.c */
quant_encode_fn quant_encode_q4_0, quant_encode_q4_1, quant_encode_q5_0, quant_encode_q5_1, quant_encode_q8_0,
    quant_encode_q1_0, quant_encode_q2_0, quant_encode_tq1_0, quant_encode_tq2_0; /* quant_encode.c */
quant_encode_fn quant_encode_q2_k, quant_encode_q3_k, quant_encode_q4_k, quant_encode_q5_k,
    quant_encode_q6_k; /* quant_encode_k.c */
quant_encode_fn quant_encode_iq4_nl, quant_encode_iq4_xs, quant_encode_mxfp4,
    quant_encode_nvfp4; /* quant_encode_float4.c */
quant_encode_fn quant_encode_iq1_s, quant_encode_iq1_m, quant_encode_iq2_xxs, quant_encode_iq2_xs,
    quant_encode_iq2_s, quant_encode_iq3_xxs, quant_encode_iq3_s; /* quant_encode_iq.c */

/* The scale of one E4M3 byte of NVFP4, halved, since quant_fp4_values are doubled. Bit 7 is ignored; 0x7F
 * (NaN in E4M3) is 0, as the format's reference has it. */
float quant_nvfp4_scale(uint8_t code);
/* The scale of one E8M0 byte of MXFP4, halved likewise: 2^(e - 128). */
float quant_mxfp4_scale(uint8_t e);

#endif
