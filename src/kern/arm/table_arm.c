/* The ARM sets' entries of the table. */
#include "kern/arm/arm.h"
#include "kern/fill.h"
#include "kern/pack.h"

static void blocks_fill(kern_table *t, kern_matmul_fn fn)
{
    for (int type = 0; type < GGUF_TYPE_COUNT; type++) {
        kern_act_kind kind = kern_act_kind_of((gguf_type)type);
        bool codes = kind == KERN_ACT_Q8_32 || kind == KERN_ACT_Q8_256;
        if (codes && kern_packed_panel_bytes((gguf_type)type, 256) > 0) {
            t->matmul[type] = fn;
            t->wants_packed[type] = true;
        }
    }
}

void kern_fill_dotprod(kern_table *t)
{
    blocks_fill(t, matmul_dotprod);
    t->matmul[GGUF_TYPE_F32] = matmul_neon_f32;
    t->matmul[GGUF_TYPE_F16] = matmul_neon_f16;
    t->matmul[GGUF_TYPE_BF16] = matmul_neon_bf16;
    t->wants_packed[GGUF_TYPE_F32] = true;
    t->wants_packed[GGUF_TYPE_F16] = true;
    t->wants_packed[GGUF_TYPE_BF16] = true;
    t->rms_norm = rms_norm_neon;
    t->add = add_neon;
    t->silu_mul = silu_mul_neon;
    t->rope = rope_neon;
    t->rope_angles = rope_angles_neon;
    t->all_finite = all_finite_neon;
    t->exp_array = exp_array_neon;
    t->log_array = log_array_neon;
    t->tanh_array = tanh_array_neon;
    t->sin_cos_array = sin_cos_array_neon;
    t->argmax = argmax_neon;
    t->scale_tops = scale_tops_neon;
    t->softmax_terms = softmax_terms_neon;
}

void kern_fill_i8mm(kern_table *t)
{
    blocks_fill(t, matmul_i8mm);
}
