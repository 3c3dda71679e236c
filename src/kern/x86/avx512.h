/*
 * avx512: the kernels for AVX-512 F, BW, DQ, VL and VNNI, one file per family of formats. Internal to kern/x86;
 * contracts in kern/kern.h. The matrix products read w->packed.
 */
#ifndef HEARTH_KERN_X86_AVX512_H
#define HEARTH_KERN_X86_AVX512_H

#include "kern/kern.h"

/* elementwise_avx512.c, rope_avx512.c, sample_avx512.c */
void rms_norm_avx512(float *y, const float *x, const float *w, size_t n, float eps);
void silu_mul_avx512(float *y, const float *gate, const float *up, size_t n);
void add_avx512(float *y, const float *x, size_t n);
bool all_finite_avx512(const float *x, size_t n);
void exp_array_avx512(float *y, const float *x, size_t n);
void log_array_avx512(float *y, const float *x, size_t n);
void tanh_array_avx512(float *y, const float *x, size_t n);
void sin_cos_array_avx512(float *s, float *c, const float *x, size_t n);
size_t argmax_avx512(const float *x, size_t n);
void rope_avx512(float *x, const float *cos_sin, size_t n_rot, kern_rope_style style);
void rope_angles_avx512(float *cos_sin, const double *inv_freq, size_t n_half, int32_t pos, float magnitude);
void scale_tops_avx512(float *y, float *tops, const float *x, float t, size_t n);
float softmax_terms_avx512(float *y, const float *x, float max, size_t n);
float sum_at_least_avx512(const float *y, const float *x, size_t n, float least);
size_t at_least_avx512(int32_t *index, const float *x, size_t n, float least);
size_t gumbel_argmax_avx512(const float *x, const int32_t *token, int32_t first, size_t n, uint64_t seed,
                            int32_t position, float least, float *score);

void attention_avx512(const kern_attn *a);
void attention_spans_avx512(const kern_attn *a, size_t span0, size_t span1, float *parts);
void attention_join_avx512(const kern_attn *a, size_t span0, const float *parts);

void act_prepare_avx512(kern_act *a, const float *x, size_t r, size_t k0, size_t k1, uint8_t *bad);

#define MATMUL_AVX512(type)                                                                            \
    void matmul_avx512_##type(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y, \
                              size_t y_stride)

/* Activations in blocks of 32: matmul_q32_avx512.c */
MATMUL_AVX512(q4_0);
MATMUL_AVX512(q4_1);
MATMUL_AVX512(q5_0);
MATMUL_AVX512(q5_1);
MATMUL_AVX512(q8_0);
MATMUL_AVX512(iq4_nl);
MATMUL_AVX512(mxfp4);

/* Activations in blocks of 256, one plane of codes times scales: matmul_q2_k_avx512.c */
MATMUL_AVX512(q2_k);
MATMUL_AVX512(q3_k);

/* Activations in blocks of 256, a dot product per sub-block: matmul_k_avx512.c */
MATMUL_AVX512(q4_k);
MATMUL_AVX512(q5_k);
MATMUL_AVX512(iq4_xs);
MATMUL_AVX512(q6_k);

/* matmul_float_avx512.c, matmul_bf16_avx512.c */
MATMUL_AVX512(f32);
MATMUL_AVX512(f16);
MATMUL_AVX512(bf16);

uint64_t int8_rate_avx512(uint64_t n_rounds); /* rate_avx512.c */

#endif
