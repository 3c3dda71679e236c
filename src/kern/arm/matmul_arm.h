/*
 * matmul_arm: products with packed blocks on ARM, one body for both sets, which differ in how a run of lines meets
 * the rows (arm_dot_fn). Private to src/kern/arm/matmul_*.c; all is inlined into one function per set.
 *
 * Each output's operations are those of the reference in its order: integers are exact, vfmaq rounds once. Walk:
 * activation rows in runs whose accumulators fit the stack, panels, chunks of 256 values, tiles of rows.
 */
#ifndef HEARTH_KERN_ARM_MATMUL_ARM_H
#define HEARTH_KERN_ARM_MATMUL_ARM_H

#include <arm_neon.h>
#include <string.h>

#include "kern/arm/chunk.h"
#include "kern/pack.h"

#define ARM_ROWS 4  /* of a tile */
#define ARM_RUN  64 /* rows whose accumulators wait on the stack */
#define ARM_VECS (KERN_PANEL / 4)

typedef float arm_acc[ARM_RUN][KERN_PANEL];

/* Adds to isum[i][v], lanes = outputs 4 v … 4 v + 3, the dot products of n_lines lines (a multiple of 4) of 64 bytes
 * with 4 n_lines codes of each of `rows` rows. */
typedef void (*arm_dot_fn)(const int8_t *lines, size_t n_lines, const int8_t *const *q, size_t rows,
                           int32x4_t (*isum)[ARM_VECS]);

#define ARM_INLINE static inline __attribute__((always_inline))

ARM_INLINE void arm_clear(int32x4_t sum[ARM_ROWS][ARM_VECS])
{
    for (size_t i = 0; i < ARM_ROWS; i++) {
        for (size_t v = 0; v < ARM_VECS; v++) {
            sum[i][v] = vdupq_n_s32(0);
        }
    }
}

/* acc += sum * (d_act * d), rounded once. */
ARM_INLINE void arm_scale_add(float *acc, const int32x4_t *sum, float d_act, const float *d)
{
    for (size_t v = 0; v < ARM_VECS; v++) {
        float32x4_t scale = vmulq_n_f32(vld1q_f32(d + 4 * v), d_act);
        vst1q_f32(acc + 4 * v, vfmaq_f32(vld1q_f32(acc + 4 * v), vcvtq_f32_s32(sum[v]), scale));
    }
}

/* The codes of `rows` rows from value 32 * block on; past the last the first again. */
static inline void arm_codes(const kern_act *a, size_t r, size_t rows, size_t block,
                             const int8_t *q[ARM_ROWS])
{
    for (size_t i = 0; i < ARM_ROWS; i++) {
        q[i] = kern_act_q(a, r + (i < rows ? i : 0), block / 2) + 32 * (block % 2);
    }
}

ARM_INLINE void arm_tile_q32(const arm_dot_fn dot, const chunk *c, const kern_act *a, size_t r, size_t rows,
                             size_t b0, size_t n, bool has_min, float (*acc)[KERN_PANEL])
{
    for (size_t b = 0; b < n; b++) {
        int32x4_t isum[ARM_ROWS][ARM_VECS];
        const int8_t *q[ARM_ROWS];
        arm_clear(isum);
        arm_codes(a, r, rows, b0 + b, q);
        dot(c->lines[b][0], 8, q, rows, isum);
        for (size_t i = 0; i < rows; i++) {
            float d_act = *kern_act_d(a, r + i, b0 + b);
            arm_scale_add(acc[i], isum[i], d_act, c->d[b]);
            for (size_t v = 0; has_min && v < ARM_VECS; v++) {
                float32x4_t scale = vmulq_n_f32(vld1q_f32(c->m[b] + 4 * v), d_act);
                float32x4_t total = vdupq_n_f32(*kern_act_total(a, r + i, b0 + b));
                vst1q_f32(acc[i] + 4 * v, vfmaq_f32(vld1q_f32(acc[i] + 4 * v), total, scale));
            }
        }
    }
}

/* acc -= msum * (d_act * dmin) for one row. */
static void arm_take_minima(const chunk *c, const int16_t *sums, float d_act, float *acc)
{
    for (size_t v = 0; v < ARM_VECS; v++) {
        int32x4_t msum = vdupq_n_s32(0);
        for (size_t j = 0; j < 16; j++) {
            msum = vmlaq_n_s32(msum, vld1q_s32(c->mins[j] + 4 * v), sums[j]);
        }
        float32x4_t scale = vmulq_n_f32(vld1q_f32(c->m[0] + 4 * v), d_act);
        vst1q_f32(acc + 4 * v, vfmaq_f32(vld1q_f32(acc + 4 * v), vnegq_f32(vcvtq_f32_s32(msum)), scale));
    }
}

ARM_INLINE void arm_tile_q256(const arm_dot_fn dot, const chunk *c, const kern_act *a, size_t r, size_t rows,
                              size_t block, bool has_min, float (*acc)[KERN_PANEL])
{
    int32x4_t isum[ARM_ROWS][ARM_VECS];
    arm_clear(isum);
    for (size_t j = 0; j < 16; j++) {
        int32x4_t sub[ARM_ROWS][ARM_VECS];
        const int8_t *q[ARM_ROWS];
        arm_clear(sub);
        arm_codes(a, r, rows, block * CHUNK_BLOCKS + j / 2, q);
        for (size_t i = 0; i < ARM_ROWS; i++) {
            q[i] += 16 * (j % 2);
        }
        dot(c->lines[j / 2][4 * (j % 2)], 4, q, rows, sub);
        for (size_t i = 0; i < rows; i++) {
            for (size_t v = 0; v < ARM_VECS; v++) {
                isum[i][v] = vmlaq_s32(isum[i][v], sub[i][v], vld1q_s32(c->sc[j] + 4 * v));
            }
        }
    }
    for (size_t i = 0; i < rows; i++) {
        float d_act = *kern_act_d(a, r + i, block);
        arm_scale_add(acc[i], isum[i], d_act, c->d[0]);
        if (has_min) {
            arm_take_minima(c, kern_act_sums(a, r + i, block), d_act, acc[i]);
        }
    }
}

/* One panel, rows [r0, r1). */
ARM_INLINE void arm_panel(const arm_dot_fn dot, const kern_matrix *w, const kern_act *a, const uint8_t *units,
                          size_t r0, size_t r1, arm_acc acc)
{
    const bool has_min = chunk_has_min(w->type);
    const bool narrow = a->kind == KERN_ACT_Q8_32;
    const size_t step = narrow ? CHUNK_BLOCKS : 1;
    const size_t unit_bytes = kern_packed_panel_bytes(w->type, w->k) / a->n_blocks;
    chunk c;
    for (size_t b = 0; b < a->n_blocks; b += step, units += step * unit_bytes) {
        size_t n = a->n_blocks - b < step ? a->n_blocks - b : step;
        if (narrow) {
            chunk_unpack_q32(w->type, units, n, &c);
        } else {
            chunk_unpack_q256(w->type, units, &c);
        }
        for (size_t r = r0; r < r1; r += ARM_ROWS) {
            size_t rows = r1 - r < ARM_ROWS ? r1 - r : ARM_ROWS;
            if (narrow) {
                arm_tile_q32(dot, &c, a, r, rows, b, n, has_min, acc + (r - r0));
            } else {
                arm_tile_q256(dot, &c, a, r, rows, b, has_min, acc + (r - r0));
            }
        }
    }
}

ARM_INLINE void arm_matmul_blocks(const arm_dot_fn dot, const kern_matrix *w, const kern_act *a, size_t n0,
                                  size_t n1, float *y, size_t y_stride)
{
    const size_t panel_bytes = kern_packed_panel_bytes(w->type, w->k);
    for (size_t r0 = 0; r0 < a->m; r0 += ARM_RUN) {
        size_t r1 = a->m - r0 < ARM_RUN ? a->m : r0 + ARM_RUN;
        for (size_t n = n0; n < n1; n += KERN_PANEL) {
            arm_acc acc;
            size_t lanes = n1 - n < KERN_PANEL ? n1 - n : KERN_PANEL;
            memset(acc, 0, sizeof acc);
            arm_panel(dot, w, a, (const uint8_t *)w->packed + n / KERN_PANEL * panel_bytes, r0, r1, acc);
            for (size_t r = r0; r < r1; r++) {
                memcpy(y + r * y_stride + n, acc[r - r0], lanes * sizeof(float));
            }
        }
    }
}

#endif
