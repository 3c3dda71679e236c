/* The reference's entries of the table, but for the matrix products. */
#include "kern/fill.h"
#include "kern/ref/ref.h"

void kern_fill_ref(kern_table *t)
{
    t->rms_norm = rms_norm_ref;
    t->add = add_ref;
    t->silu_mul = silu_mul_ref;
    t->rope = rope_ref;
    t->rope_angles = rope_angles_ref;
    t->kv_store = kv_store_ref;
    t->attention = attention_ref;
    t->all_finite = all_finite_ref;
    t->exp_array = exp_array_ref;
    t->log_array = log_array_ref;
    t->argmax = argmax_ref;
}
