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
    t->attention_spans = attention_spans_ref;
    t->attention_join = attention_join_ref;
    t->all_finite = all_finite_ref;
    t->exp_array = exp_array_ref;
    t->log_array = log_array_ref;
    t->tanh_array = tanh_array_ref;
    t->sin_cos_array = sin_cos_array_ref;
    t->argmax = argmax_ref;
    t->scale_tops = scale_tops_ref;
    t->softmax_terms = softmax_terms_ref;
    t->sum_at_least = sum_at_least_ref;
    t->at_least = at_least_ref;
    t->gumbel_argmax = gumbel_argmax_ref;
}
