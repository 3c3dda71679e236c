/*
 * The reference's share of the kernel table: matrix products and activations.
 */
#include "kern/fill.h"
#include "kern/ref/matmul_codes.h"
#include "kern/ref/matmul_ref.h"

void kern_fill_ref_matmul(kern_table *t)
{
    matmul_grids_fill();
    t->act_prepare = act_prepare_ref;
    t->matmul[GGUF_TYPE_F32] = matmul_ref_f32;
    t->matmul[GGUF_TYPE_F16] = matmul_ref_f16;
    t->matmul[GGUF_TYPE_BF16] = matmul_ref_bf16;
    for (int type = 0; type < GGUF_TYPE_COUNT; type++) {
        kern_act_kind kind = kern_act_kind_of((gguf_type)type);
        if (kind == KERN_ACT_Q8_32) {
            t->matmul[type] = matmul_ref_q32;
        } else if (kind == KERN_ACT_Q8_256) {
            t->matmul[type] = matmul_ref_q256;
        }
    }
}
