/*
 * matmul_ref: the reference matrix products of every type that has one, and the preparation of activations.
 * They define what is right (kern/README.md, "Matrix products"); every instruction set gives their bits.
 * Private to ref/ and to the table that is filled from it. Pure, any thread, default rounding and denormal
 * mode.
 */
#ifndef HEARTH_KERN_REF_MATMUL_REF_H
#define HEARTH_KERN_REF_MATMUL_REF_H

#include "kern/kern.h"

void act_prepare_ref(kern_act *a, const float *x, size_t r, size_t k0, size_t k1, uint8_t *bad);

void matmul_ref_f32(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y, size_t y_stride);
void matmul_ref_f16(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y, size_t y_stride);
void matmul_ref_bf16(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                     size_t y_stride);
/* Every block format of its kind of activations; w->type says which. */
void matmul_ref_q32(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y, size_t y_stride);
void matmul_ref_q256(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                     size_t y_stride);

/* Float weights. One output: the row of weights times activation row r. */
typedef float (*matmul_ref_dot)(const uint8_t *row, const kern_act *a, size_t r);

/* The loop around a dot: every output by itself, so no neighbour can matter. */
static inline void matmul_ref_run(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                                  size_t y_stride, matmul_ref_dot dot)
{
    const uint8_t *data = w->data;
    for (size_t i = n0; i < n1; i++) {
        for (size_t r = 0; r < a->m; r++) {
            y[r * y_stride + i] = dot(data + i * w->row_bytes, a, r);
        }
    }
}

#endif
