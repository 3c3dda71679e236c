/*
 * Products with float weights (DESIGN 4 rule 2).
 *
 * F32 and F16: one fp32 accumulator, fma, k ascending.
 *
 * BF16 is the bf16 matrix unit's own rule (Intel SDM, TDPBF16PS): per 32 k one fma chain over the even and
 * one over the odd elements, each from +0; their sum is added to the accumulator. Denormals are flushed at each
 * operation (ref/bf16.h). Measured on a Sapphire Rapids tile unit: with this rule 0 of 5,120,000 outputs differ, a
 * quarter of them made to lie on the edge of the flush; with a plain comparison 7 %.
 */
#include <math.h>

#include "base/fp16.h"
#include "base/le.h"
#include "kern/ref/bf16.h"
#include "kern/ref/matmul_ref.h"

#define BF16_RUN 32 /* k per pair of chains */

static float dot_f32(const uint8_t *row, const kern_act *a, size_t r)
{
    const float *x = a->f32 + r * a->k;
    float acc = 0.0f;
    for (size_t c = 0; c < a->k; c++) {
        acc = fmaf(lef32_get(row + 4 * c), x[c], acc);
    }
    return acc;
}

static float dot_f16(const uint8_t *row, const kern_act *a, size_t r)
{
    const float *x = a->f32 + r * a->k;
    float acc = 0.0f;
    for (size_t c = 0; c < a->k; c++) {
        acc = fmaf(fp16_to_f32(le16_get(row + 2 * c)), x[c], acc);
    }
    return acc;
}

static float dot_bf16(const uint8_t *row, const kern_act *a, size_t r)
{
    float acc = 0.0f;
    for (size_t at = 0; at < a->k; at += BF16_RUN) {
        const uint16_t *x = kern_act_bf16(a, r, at / BF16_RUN);
        float chain[2] = {0.0f, 0.0f}; /* even elements, odd elements */
        for (size_t i = 0; i < BF16_RUN; i++) {
            bool inside = at + i < a->k; /* both tails are zeros, which turn a -0 into +0 */
            float wv = inside ? bf16_to_f32(le16_get(row + 2 * (at + i))) : 0.0f;
            chain[i % 2] = bf16_fma_flushed(wv, bf16_to_f32(x[i]), chain[i % 2]);
        }
        acc = bf16_add_flushed(acc, bf16_add_flushed(chain[0], chain[1]));
    }
    return acc;
}

void matmul_ref_f32(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y, size_t y_stride)
{
    matmul_ref_run(w, a, n0, n1, y, y_stride, dot_f32);
}

void matmul_ref_f16(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y, size_t y_stride)
{
    matmul_ref_run(w, a, n0, n1, y, y_stride, dot_f16);
}

void matmul_ref_bf16(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y, size_t y_stride)
{
    matmul_ref_run(w, a, n0, n1, y, y_stride, dot_bf16);
}
