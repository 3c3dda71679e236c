/* avx512: the AVX-512 kernels (F, BW, DQ, VL, VNNI), one file per family. Internal to kern/x86; contracts in
 * kern/kern.h. */
#ifndef HEARTH_KERN_X86_AVX512_H
#define HEARTH_KERN_X86_AVX512_H

#include "kern/kern.h"

void rms_norm_avx512(float *y, const float *x, const float *w, size_t n, float eps);
void silu_mul_avx512(float *y, const float *gate, const float *up, size_t n);
void exp_array_avx512(float *y, const float *x, size_t n);
void attention_avx512(const kern_attn *a);

void matmul_avx512_f32(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                       size_t y_stride);
void matmul_avx512_f16(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                       size_t y_stride);
void matmul_avx512_bf16(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                        size_t y_stride);
void matmul_avx512_q8_0(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                        size_t y_stride);
void matmul_avx512_q4_0(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                        size_t y_stride);
void matmul_avx512_q4_1(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                        size_t y_stride);
void matmul_avx512_q5_0(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                        size_t y_stride);
void matmul_avx512_q5_1(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                        size_t y_stride);
void matmul_avx512_iq4_nl(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                          size_t y_stride);
void matmul_avx512_mxfp4(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                         size_t y_stride);
void matmul_avx512_q2_k(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                        size_t y_stride);
void matmul_avx512_q3_k(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                        size_t y_stride);
void matmul_avx512_q4_k(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                        size_t y_stride);
void matmul_avx512_q5_k(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                        size_t y_stride);
void matmul_avx512_q6_k(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                        size_t y_stride);
void matmul_avx512_iq4_xs(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                          size_t y_stride);

#endif
