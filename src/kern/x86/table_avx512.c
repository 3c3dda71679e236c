/* AVX-512's entries of the table (F, BW, DQ, VL, VNNI). */
#include "kern/fill.h"
#include "kern/x86/avx512.h"

static void put(kern_table *t, gguf_type type, kern_matmul_fn product)
{
    t->matmul[type] = product;
    t->wants_packed[type] = true;
}

void kern_fill_avx512(kern_table *t)
{
    t->rms_norm = rms_norm_avx512;
    t->silu_mul = silu_mul_avx512;
    t->add = add_avx512;
    t->rope = rope_avx512;
    t->rope_angles = rope_angles_avx512;
    t->all_finite = all_finite_avx512;
    t->exp_array = exp_array_avx512;
    t->log_array = log_array_avx512;
    t->tanh_array = tanh_array_avx512;
    t->sin_cos_array = sin_cos_array_avx512;
    t->argmax = argmax_avx512;
    t->scale_tops = scale_tops_avx512;
    t->softmax_terms = softmax_terms_avx512;
    t->sum_at_least = sum_at_least_avx512;
    t->at_least = at_least_avx512;
    t->gumbel_argmax = gumbel_argmax_avx512;
    t->attention = attention_avx512;
    t->attention_spans = attention_spans_avx512;
    t->attention_join = attention_join_avx512;
    t->int8_rate = int8_rate_avx512;

    t->act_prepare = act_prepare_avx512;
    put(t, GGUF_TYPE_Q4_0, matmul_avx512_q4_0);
    put(t, GGUF_TYPE_Q4_1, matmul_avx512_q4_1);
    put(t, GGUF_TYPE_Q5_0, matmul_avx512_q5_0);
    put(t, GGUF_TYPE_Q5_1, matmul_avx512_q5_1);
    put(t, GGUF_TYPE_Q8_0, matmul_avx512_q8_0);
    put(t, GGUF_TYPE_IQ4_NL, matmul_avx512_iq4_nl);
    put(t, GGUF_TYPE_MXFP4, matmul_avx512_mxfp4);
    put(t, GGUF_TYPE_Q2_K, matmul_avx512_q2_k);
    put(t, GGUF_TYPE_Q3_K, matmul_avx512_q3_k);
    put(t, GGUF_TYPE_Q4_K, matmul_avx512_q4_k);
    put(t, GGUF_TYPE_Q5_K, matmul_avx512_q5_k);
    put(t, GGUF_TYPE_Q6_K, matmul_avx512_q6_k);
    put(t, GGUF_TYPE_IQ4_XS, matmul_avx512_iq4_xs);
    put(t, GGUF_TYPE_F32, matmul_avx512_f32);
    put(t, GGUF_TYPE_F16, matmul_avx512_f16);
    put(t, GGUF_TYPE_BF16, matmul_avx512_bf16);
}
