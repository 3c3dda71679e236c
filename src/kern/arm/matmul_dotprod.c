/* Products with packed blocks by SDOT: four int8 products a lane and instruction. */
#include <arm_neon.h>

#include "kern/arm/arm.h"
#include "kern/arm/matmul_arm.h"

ARM_INLINE void sdot_lines(const int8_t *lines, size_t n_lines, const int8_t *const *q, size_t rows,
                           int32x4_t (*isum)[ARM_VECS])
{
    for (size_t r = 0; r < n_lines; r += 4) {
        int8x16_t codes[ARM_ROWS];
        for (size_t i = 0; i < rows; i++) {
            codes[i] = vld1q_s8(q[i] + 4 * r);
        }
        for (size_t v = 0; v < 4; v++) {
            const int8_t *at = lines + 64 * r + 16 * v;
            int8x16_t w0 = vld1q_s8(at), w1 = vld1q_s8(at + 64);
            int8x16_t w2 = vld1q_s8(at + 128), w3 = vld1q_s8(at + 192);
            for (size_t i = 0; i < rows; i++) {
                isum[i][v] = vdotq_laneq_s32(isum[i][v], w0, codes[i], 0);
                isum[i][v] = vdotq_laneq_s32(isum[i][v], w1, codes[i], 1);
                isum[i][v] = vdotq_laneq_s32(isum[i][v], w2, codes[i], 2);
                isum[i][v] = vdotq_laneq_s32(isum[i][v], w3, codes[i], 3);
            }
        }
    }
}

void matmul_dotprod(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y, size_t y_stride)
{
    arm_matmul_blocks(sdot_lines, w, a, n0, n1, y, y_stride);
}
