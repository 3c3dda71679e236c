/*
 * The reference's share of the kernel table: matrix products and activations.
 */
#include "kern/fill.h"
#include "kern/ref/matmul_ref.h"

void kern_fill_ref_matmul(kern_table *t)
{
    t->act_prepare = act_prepare_ref;
    t->matmul[GGUF_TYPE_F32] = matmul_ref_f32;
    t->matmul[GGUF_TYPE_F16] = matmul_ref_f16;
    t->matmul[GGUF_TYPE_BF16] = matmul_ref_bf16;
    t->matmul[GGUF_TYPE_Q8_0] = matmul_ref_q8_0;
    t->matmul[GGUF_TYPE_Q4_0] = matmul_ref_q4_0;
    t->matmul[GGUF_TYPE_Q4_K] = matmul_ref_q4_k;
    t->matmul[GGUF_TYPE_Q6_K] = matmul_ref_q6_k;
}
