/* AVX2's entries of the table. */
#include "kern/fill.h"
#include "kern/x86/avx2.h"

static void product_set(kern_table *t, gguf_type type, kern_matmul_fn fn)
{
    t->matmul[type] = fn;
    t->wants_packed[type] = true;
}

static void products_set(kern_table *t)
{
    product_set(t, GGUF_TYPE_F32, matmul_avx2_f32);
    product_set(t, GGUF_TYPE_F16, matmul_avx2_f16);
    product_set(t, GGUF_TYPE_BF16, matmul_avx2_bf16);
    product_set(t, GGUF_TYPE_Q4_0, matmul_avx2_q4_0);
    product_set(t, GGUF_TYPE_Q4_1, matmul_avx2_q4_1);
    product_set(t, GGUF_TYPE_Q5_0, matmul_avx2_q5_0);
    product_set(t, GGUF_TYPE_Q5_1, matmul_avx2_q5_1);
    product_set(t, GGUF_TYPE_Q8_0, matmul_avx2_q8_0);
    product_set(t, GGUF_TYPE_Q2_K, matmul_avx2_q2_k);
    product_set(t, GGUF_TYPE_Q3_K, matmul_avx2_q3_k);
    product_set(t, GGUF_TYPE_Q4_K, matmul_avx2_q4_k);
    product_set(t, GGUF_TYPE_Q5_K, matmul_avx2_q5_k);
    product_set(t, GGUF_TYPE_Q6_K, matmul_avx2_q6_k);
    product_set(t, GGUF_TYPE_IQ4_NL, matmul_avx2_iq4_nl);
    product_set(t, GGUF_TYPE_IQ4_XS, matmul_avx2_iq4_xs);
    product_set(t, GGUF_TYPE_MXFP4, matmul_avx2_mxfp4);
}

void kern_fill_avx2(kern_table *t)
{
    t->rms_norm = rms_norm_avx2;
    t->add = add_avx2;
    t->silu_mul = silu_mul_avx2;
    t->rope = rope_avx2;
    t->rope_angles = rope_angles_avx2;
    t->kv_store = kv_store_avx2;
    t->attention = attention_avx2;
    t->attention_spans = attention_spans_avx2;
    t->attention_join = attention_join_avx2;
    t->all_finite = all_finite_avx2;
    t->exp_array = exp_array_avx2;
    t->log_array = log_array_avx2;
    t->tanh_array = tanh_array_avx2;
    t->sin_cos_array = sin_cos_array_avx2;
    t->argmax = argmax_avx2;
    t->scale_tops = scale_tops_avx2;
    t->softmax_terms = softmax_terms_avx2;
    t->sum_at_least = sum_at_least_avx2;
    t->at_least = at_least_avx2;
    t->gumbel_argmax = gumbel_argmax_avx2;
    t->int8_rate = int8_rate_avx2;
    t->act_prepare = act_prepare_avx2;
    products_set(t);
}
