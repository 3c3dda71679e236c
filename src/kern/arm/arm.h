/* arm: the kernels of the ARM sets; attention, kv_store, the rounding of activations and the sampler's noise are the
 * reference's. Internal to kern/arm; contracts in kern/kern.h. */
#ifndef HEARTH_KERN_ARM_ARM_H
#define HEARTH_KERN_ARM_ARM_H

#include "kern/kern.h"

/* Every packed block format; w->type says which. */
void matmul_dotprod(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y, size_t y_stride);
void matmul_i8mm(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y, size_t y_stride);

void matmul_neon_f32(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                     size_t y_stride);
void matmul_neon_f16(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                     size_t y_stride);
void matmul_neon_bf16(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                      size_t y_stride);

/* elementwise_neon.c, rope_neon.c */
void rms_norm_neon(float *y, const float *x, const float *w, size_t n, float eps);
void add_neon(float *y, const float *x, size_t n);
void silu_mul_neon(float *y, const float *gate, const float *up, size_t n);
bool all_finite_neon(const float *x, size_t n);
void exp_array_neon(float *y, const float *x, size_t n);
void log_array_neon(float *y, const float *x, size_t n);
void tanh_array_neon(float *y, const float *x, size_t n);
void sin_cos_array_neon(float *s, float *c, const float *x, size_t n);
size_t argmax_neon(const float *x, size_t n);
void scale_tops_neon(float *y, float *tops, const float *x, float t, size_t n);
float softmax_terms_neon(float *y, const float *x, float max, size_t n);
void rope_neon(float *x, const float *cos_sin, size_t n_rot, kern_rope_style style);
void rope_angles_neon(float *cos_sin, const double *inv_freq, size_t n_half, int32_t pos, float magnitude);

#endif
