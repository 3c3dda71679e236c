/* AVX-512's entries of the table (F, BW, DQ, VL, VNNI). */
#include "kern/fill.h"
#include "kern/x86/avx512.h"

void kern_fill_avx512(kern_table *t)
{
    t->rms_norm = rms_norm_avx512;
    t->silu_mul = silu_mul_avx512;
    t->exp_array = exp_array_avx512;
    t->attention = attention_avx512;
}
