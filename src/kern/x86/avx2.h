/* avx2: the AVX2 + FMA + F16C kernels, one file per family. Internal to kern/x86; contracts in kern/kern.h.
 */
#ifndef HEARTH_KERN_X86_AVX2_H
#define HEARTH_KERN_X86_AVX2_H

#include "kern/kern.h"

void rms_norm_avx2(float *y, const float *x, const float *w, size_t n, float eps);
void add_avx2(float *y, const float *x, size_t n);
void silu_mul_avx2(float *y, const float *gate, const float *up, size_t n);
bool all_finite_avx2(const float *x, size_t n);
void exp_array_avx2(float *y, const float *x, size_t n);
void log_array_avx2(float *y, const float *x, size_t n);
void tanh_array_avx2(float *y, const float *x, size_t n);
void sin_cos_array_avx2(float *s, float *c, const float *x, size_t n);
size_t argmax_avx2(const float *x, size_t n);
void scale_tops_avx2(float *y, float *tops, const float *x, float t, size_t n);
float softmax_terms_avx2(float *y, const float *x, float max, size_t n);
float sum_at_least_avx2(const float *y, const float *x, size_t n, float least);
size_t at_least_avx2(int32_t *index, const float *x, size_t n, float least);
size_t gumbel_argmax_avx2(const float *x, const int32_t *token, int32_t first, size_t n, uint64_t seed,
                          int32_t position, float least, float *score);
void rope_avx2(float *x, const float *cos_sin, size_t n_rot, kern_rope_style style);
void rope_angles_avx2(float *cos_sin, const double *inv_freq, size_t n_half, int32_t pos, float magnitude);
void kv_store_avx2(void *page, const kv_layer *layer, kv_type type, size_t slot, size_t n, const float *k,
                   size_t k_stride, const float *v, size_t v_stride);
void attention_avx2(const kern_attn *a);
void attention_spans_avx2(const kern_attn *a, size_t span0, size_t span1, float *parts);
void attention_join_avx2(const kern_attn *a, size_t span0, const float *parts);
void attn_turn_avx2(float *v, const float *k, size_t v_dim); /* attn_ops.turn */
uint64_t int8_rate_avx2(uint64_t n_rounds);
void act_prepare_avx2(kern_act *a, const float *x, size_t r, size_t k0, size_t k1, uint8_t *bad);

/* Over packed weights. */
void matmul_avx2_f32(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                     size_t y_stride);
void matmul_avx2_f16(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                     size_t y_stride);
void matmul_avx2_bf16(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                      size_t y_stride);
void matmul_avx2_q4_0(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                      size_t y_stride);
void matmul_avx2_q4_1(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                      size_t y_stride);
void matmul_avx2_q5_0(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                      size_t y_stride);
void matmul_avx2_q5_1(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                      size_t y_stride);
void matmul_avx2_q8_0(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                      size_t y_stride);
void matmul_avx2_q2_k(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                      size_t y_stride);
void matmul_avx2_q3_k(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                      size_t y_stride);
void matmul_avx2_q4_k(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                      size_t y_stride);
void matmul_avx2_q5_k(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                      size_t y_stride);
void matmul_avx2_q6_k(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                      size_t y_stride);
void matmul_avx2_iq4_nl(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                        size_t y_stride);
void matmul_avx2_iq4_xs(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                        size_t y_stride);
void matmul_avx2_mxfp4(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                       size_t y_stride);

#endif
