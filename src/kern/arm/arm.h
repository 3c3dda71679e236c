/* arm: the products of the ARM sets; all else is the reference's so far. Internal to kern/arm; contracts in
 * kern/kern.h. */
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

#endif
