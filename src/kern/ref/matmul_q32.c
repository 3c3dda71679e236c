/*
 * Products with formats of 32 values and one scale per block (DESIGN 4 rule 1): Q8_0 and Q4_0. Per block,
 * ascending: isum exact, acc = fma((float)isum, dA * dW, acc).
 */
#include <math.h>

#include "base/fp16.h"
#include "base/le.h"
#include "kern/ref/matmul_ref.h"

#define BLOCK 32

static float dot_q8_0(const uint8_t *row, const kern_act *a, size_t r)
{
    float acc = 0.0f;
    for (size_t b = 0; b < a->n_blocks; b++) {
        const uint8_t *block = row + b * sizeof(block_q8_0);
        const int8_t *qs = (const int8_t *)(block + offsetof(block_q8_0, qs));
        const int8_t *q = a->q + (r * a->n_blocks + b) * BLOCK;
        int32_t isum = 0;
        for (size_t i = 0; i < BLOCK; i++) {
            isum += qs[i] * q[i];
        }
        acc = fmaf((float)isum, a->d[r * a->n_blocks + b] * fp16_to_f32(le16_get(block)), acc);
    }
    return acc;
}

static float dot_q4_0(const uint8_t *row, const kern_act *a, size_t r)
{
    float acc = 0.0f;
    for (size_t b = 0; b < a->n_blocks; b++) {
        const uint8_t *block = row + b * sizeof(block_q4_0);
        const uint8_t *qs = block + offsetof(block_q4_0, qs);
        const int8_t *q = a->q + (r * a->n_blocks + b) * BLOCK;
        int32_t isum = 0;
        for (size_t i = 0; i < BLOCK / 2; i++) {
            isum += ((qs[i] & 15) - 8) * q[i];
            isum += ((qs[i] >> 4) - 8) * q[i + BLOCK / 2];
        }
        acc = fmaf((float)isum, a->d[r * a->n_blocks + b] * fp16_to_f32(le16_get(block)), acc);
    }
    return acc;
}

void matmul_ref_q8_0(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y, size_t y_stride)
{
    matmul_ref_run(w, a, n0, n1, y, y_stride, dot_q8_0);
}

void matmul_ref_q4_0(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y, size_t y_stride)
{
    matmul_ref_run(w, a, n0, n1, y, y_stride, dot_q4_0);
}
