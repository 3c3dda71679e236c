/* AVX2's entries of the table, but for the matrix products. */
#include "kern/fill.h"
#include "kern/x86/avx2.h"

void kern_fill_avx2(kern_table *t)
{
    t->rms_norm = rms_norm_avx2;
    t->add = add_avx2;
    t->silu_mul = silu_mul_avx2;
    t->rope = rope_avx2;
    t->rope_angles = rope_angles_avx2;
    t->kv_store = kv_store_avx2;
    t->attention = attention_avx2;
    t->all_finite = all_finite_avx2;
    t->exp_array = exp_array_avx2;
    t->log_array = log_array_avx2;
    t->argmax = argmax_avx2;
    t->int8_rate = int8_rate_avx2;
}
