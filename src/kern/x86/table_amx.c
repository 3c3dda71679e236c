/* AMX's entries of the table (tiles of int8 and bf16, with AVX-512 VBMI and GFNI beside them). */
#include "kern/fill.h"
#include "kern/x86/amx.h"

void kern_fill_amx(kern_table *t)
{
    t->int8_rate = int8_rate_amx;

    t->matmul[GGUF_TYPE_Q8_0] = matmul_amx_q8_0;
    t->wants_packed[GGUF_TYPE_Q8_0] = true;
    t->matmul[GGUF_TYPE_Q4_0] = matmul_amx_q4_0;
    t->wants_packed[GGUF_TYPE_Q4_0] = true;
    t->matmul[GGUF_TYPE_Q4_1] = matmul_amx_q4_1;
    t->wants_packed[GGUF_TYPE_Q4_1] = true;
    t->matmul[GGUF_TYPE_Q5_0] = matmul_amx_q5_0;
    t->wants_packed[GGUF_TYPE_Q5_0] = true;
    t->matmul[GGUF_TYPE_Q5_1] = matmul_amx_q5_1;
    t->wants_packed[GGUF_TYPE_Q5_1] = true;
    t->matmul[GGUF_TYPE_IQ4_NL] = matmul_amx_iq4_nl;
    t->wants_packed[GGUF_TYPE_IQ4_NL] = true;
    t->matmul[GGUF_TYPE_MXFP4] = matmul_amx_mxfp4;
    t->wants_packed[GGUF_TYPE_MXFP4] = true;

    t->matmul[GGUF_TYPE_Q4_K] = matmul_amx_q4_k;
    t->wants_packed[GGUF_TYPE_Q4_K] = true;
    t->matmul[GGUF_TYPE_Q5_K] = matmul_amx_q5_k;
    t->wants_packed[GGUF_TYPE_Q5_K] = true;
    t->matmul[GGUF_TYPE_Q6_K] = matmul_amx_q6_k;
    t->wants_packed[GGUF_TYPE_Q6_K] = true;
    t->matmul[GGUF_TYPE_Q2_K] = matmul_amx_q2_k;
    t->wants_packed[GGUF_TYPE_Q2_K] = true;
    t->matmul[GGUF_TYPE_Q3_K] = matmul_amx_q3_k;
    t->wants_packed[GGUF_TYPE_Q3_K] = true;
    t->matmul[GGUF_TYPE_BF16] = matmul_amx_bf16;
    t->wants_packed[GGUF_TYPE_BF16] = true;
    t->matmul[GGUF_TYPE_IQ4_XS] = matmul_amx_iq4_xs;
    t->wants_packed[GGUF_TYPE_IQ4_XS] = true;
}
