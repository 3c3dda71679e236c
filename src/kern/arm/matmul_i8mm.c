/*
 * Products with packed blocks by SMMLA: two rows of eight codes times two outputs of eight weights give four sums.
 * Two lines zipped by dwords are pairs of outputs with eight values each; a lone row is multiplied with itself
 * beside it.
 */
#include <arm_neon.h>

#include "kern/arm/arm.h"
#include "kern/arm/matmul_arm.h"

/* [outputs 2 p, 2 p + 1 of row 0 | the same of row 1], p = 0, 1: to one vector per row. */
ARM_INLINE void add_rows(int32x4_t low, int32x4_t high, int32x4_t *row0, int32x4_t *row1)
{
    *row0 = vaddq_s32(*row0, vcombine_s32(vget_low_s32(low), vget_low_s32(high)));
    if (row1) {
        *row1 = vaddq_s32(*row1, vcombine_s32(vget_high_s32(low), vget_high_s32(high)));
    }
}

ARM_INLINE void smmla_lines(const int8_t *lines, size_t n_lines, const int8_t *const *q, size_t rows,
                            int32x4_t (*isum)[ARM_VECS])
{
    for (size_t i = 0; i < rows; i += 2) {
        const int8_t *q1 = i + 1 < rows ? q[i + 1] : q[i];
        for (size_t v = 0; v < 4; v++) {
            int32x4_t low = vdupq_n_s32(0), high = vdupq_n_s32(0);
            for (size_t r = 0; r < n_lines; r += 2) {
                int8x16_t codes = vcombine_s8(vld1_s8(q[i] + 4 * r), vld1_s8(q1 + 4 * r));
                int32x4_t w0 = vreinterpretq_s32_s8(vld1q_s8(lines + 64 * r + 16 * v));
                int32x4_t w1 = vreinterpretq_s32_s8(vld1q_s8(lines + 64 * (r + 1) + 16 * v));
                low = vmmlaq_s32(low, codes, vreinterpretq_s8_s32(vzip1q_s32(w0, w1)));
                high = vmmlaq_s32(high, codes, vreinterpretq_s8_s32(vzip2q_s32(w0, w1)));
            }
            add_rows(low, high, &isum[i][v], i + 1 < rows ? &isum[i + 1][v] : NULL);
        }
    }
}

void matmul_i8mm(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y, size_t y_stride)
{
    arm_matmul_blocks(smmla_lines, w, a, n0, n1, y, y_stride);
}
