/*
 * Products with the K-quants (DESIGN 4 rule 1): blocks of 256 with integer sub-scales, and for Q4_K integer
 * minima. Per block, ascending: isum = sum of sc_j * dot_j and msum = sum of m_j * sum_j exact, then acc =
 * fma((float)isum, dA * d, acc) and, with minima, acc = fma(-(float)msum, dA * dmin, acc).
 */
#include <math.h>

#include "base/fp16.h"
#include "base/le.h"
#include "kern/ref/matmul_ref.h"

#define BLOCK    256
#define Q4K_SUBS 8  /* of 32 values */
#define Q6K_SUBS 16 /* of 16 values */

/* The six-bit scales and minima of a Q4_K block (layout: gguf/blocks.h). */
static void q4_k_scales(const uint8_t *packed, int32_t sc[Q4K_SUBS], int32_t m[Q4K_SUBS])
{
    for (size_t j = 0; j < 4; j++) {
        sc[j] = packed[j] & 63;
        m[j] = packed[4 + j] & 63;
        sc[4 + j] = (packed[8 + j] & 15) | (packed[j] >> 6) << 4;
        m[4 + j] = (packed[8 + j] >> 4) | (packed[4 + j] >> 6) << 4;
    }
}

static float dot_q4_k(const uint8_t *row, const kern_act *a, size_t r)
{
    float acc = 0.0f;
    for (size_t b = 0; b < a->n_blocks; b++) {
        const uint8_t *block = row + b * sizeof(block_q4_k);
        const uint8_t *qs = block + offsetof(block_q4_k, qs);
        const int8_t *q = a->q + (r * a->n_blocks + b) * BLOCK;
        const int16_t *sums = a->sums + (r * a->n_blocks + b) * (BLOCK / 16);
        float d_act = a->d[r * a->n_blocks + b];
        int32_t sc[Q4K_SUBS], m[Q4K_SUBS];
        q4_k_scales(block + offsetof(block_q4_k, scales), sc, m);
        int32_t isum = 0;
        int32_t msum = 0;
        for (size_t j = 0; j < Q4K_SUBS; j++) {
            int32_t dot = 0;
            for (size_t i = 0; i < 32; i++) {
                uint8_t pair = qs[j / 2 * 32 + i];
                dot += (j % 2 ? pair >> 4 : pair & 15) * q[32 * j + i];
            }
            isum += sc[j] * dot;
            msum += m[j] * (sums[2 * j] + sums[2 * j + 1]);
        }
        acc = fmaf((float)isum, d_act * fp16_to_f32(le16_get(block + offsetof(block_q4_k, d))), acc);
        acc = fmaf(-(float)msum, d_act * fp16_to_f32(le16_get(block + offsetof(block_q4_k, dmin))), acc);
    }
    return acc;
}

/* Code i of a Q6_K block, -32 … 31 (layout: gguf/blocks.h). */
static int32_t q6_k_code(const uint8_t *block, size_t i)
{
    size_t half = i / 128;
    size_t quarter = i % 128 / 32;
    size_t l = i % 32;
    uint8_t low = block[offsetof(block_q6_k, ql) + 64 * half + 32 * (quarter % 2) + l];
    uint8_t high = block[offsetof(block_q6_k, qh) + 32 * half + l];
    return ((quarter < 2 ? low & 15 : low >> 4) | ((high >> (2 * quarter)) & 3) << 4) - 32;
}

static float dot_q6_k(const uint8_t *row, const kern_act *a, size_t r)
{
    float acc = 0.0f;
    for (size_t b = 0; b < a->n_blocks; b++) {
        const uint8_t *block = row + b * sizeof(block_q6_k);
        const int8_t *sc = (const int8_t *)(block + offsetof(block_q6_k, scales));
        const int8_t *q = a->q + (r * a->n_blocks + b) * BLOCK;
        int32_t isum = 0;
        for (size_t j = 0; j < Q6K_SUBS; j++) {
            int32_t dot = 0;
            for (size_t i = 16 * j; i < 16 * j + 16; i++) {
                dot += q6_k_code(block, i) * q[i];
            }
            isum += sc[j] * dot;
        }
        float d = fp16_to_f32(le16_get(block + offsetof(block_q6_k, d)));
        acc = fmaf((float)isum, a->d[r * a->n_blocks + b] * d, acc);
    }
    return acc;
}

void matmul_ref_q4_k(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y, size_t y_stride)
{
    matmul_ref_run(w, a, n0, n1, y, y_stride, dot_q4_k);
}

void matmul_ref_q6_k(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y, size_t y_stride)
{
    matmul_ref_run(w, a, n0, n1, y, y_stride, dot_q6_k);
}
