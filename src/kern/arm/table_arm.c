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
}

void kern_fill_i8mm(kern_table *t)
{
    blocks_fill(t, matmul_i8mm);
}
