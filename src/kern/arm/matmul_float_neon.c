/*
 * Products with packed float weights, four outputs a vector.
 *
 * BF16 stays scalar: its rule flushes what lies below 2^-126 after rounding to 24 bits, and ARM's flush mode judges
 * before rounding. The operations are those of the reference (ref/bf16.h), read from the packed pairs.
 */
#include <arm_neon.h>
#include <string.h>

#include "base/fp16.h"
#include "kern/arm/arm.h"
#include "kern/pack.h"
#include "kern/pack_units.h"
#include "kern/ref/bf16.h"

#define VECS (KERN_PANEL / 4)

static inline __attribute__((always_inline)) void weights_load(const uint8_t *panel, bool half, size_t k,
                                                               float32x4_t w[VECS])
{
    for (size_t v = 0; v < VECS; v++) {
        if (half) {
            const unit_f16 *u = (const void *)panel;
            w[v] = vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(u[k].w + 4 * v)));
        } else {
            const unit_f32 *u = (const void *)panel;
            w[v] = vld1q_f32(u[k].w + 4 * v);
        }
    }
}

static inline __attribute__((always_inline)) void panel_float(const kern_matrix *w, const kern_act *a,
                                                              bool half, size_t n, size_t lanes, float *y,
                                                              size_t y_stride)
{
    const uint8_t *panel =
        (const uint8_t *)w->packed + n / KERN_PANEL * kern_packed_panel_bytes(w->type, w->k);
    for (size_t r = 0; r < a->m; r += 2) {
        const float *x0 = a->f32 + r * a->k;
        const float *x1 = r + 1 < a->m ? x0 + a->k : x0;
        float32x4_t acc[2][VECS];
        for (size_t v = 0; v < VECS; v++) {
            acc[0][v] = acc[1][v] = vdupq_n_f32(0.0f);
        }
        for (size_t k = 0; k < a->k; k++) {
            float32x4_t wv[VECS];
            weights_load(panel, half, k, wv);
            for (size_t v = 0; v < VECS; v++) {
                acc[0][v] = vfmaq_n_f32(acc[0][v], wv[v], x0[k]);
                acc[1][v] = vfmaq_n_f32(acc[1][v], wv[v], x1[k]);
            }
        }
        for (size_t i = 0; i < 2 && r + i < a->m; i++) {
            float out[KERN_PANEL];
            for (size_t v = 0; v < VECS; v++) {
                vst1q_f32(out + 4 * v, acc[i][v]);
            }
            memcpy(y + (r + i) * y_stride + n, out, lanes * sizeof *out);
        }
    }
}

void matmul_neon_f32(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y, size_t y_stride)
{
    for (size_t n = n0; n < n1; n += KERN_PANEL) {
        panel_float(w, a, false, n, n1 - n < KERN_PANEL ? n1 - n : KERN_PANEL, y, y_stride);
    }
}

void matmul_neon_f16(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y, size_t y_stride)
{
    for (size_t n = n0; n < n1; n += KERN_PANEL) {
        panel_float(w, a, true, n, n1 - n < KERN_PANEL ? n1 - n : KERN_PANEL, y, y_stride);
    }
}

void matmul_neon_bf16(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                      size_t y_stride)
{
    const size_t panel_bytes = kern_packed_panel_bytes(w->type, w->k);
    for (size_t n = n0; n < n1; n++) {
        const unit_bf16 *units = (const void *)((const uint8_t *)w->packed + n / KERN_PANEL * panel_bytes);
        for (size_t r = 0; r < a->m; r++) {
            float acc = 0.0f;
            for (size_t run = 0; run < a->n_runs; run++) {
                const uint16_t *x = kern_act_bf16(a, r, run);
                float chain[2] = {0.0f, 0.0f}; /* even elements, odd elements */
                for (size_t i = 0; i < 32; i++) {
                    float wv = bf16_to_f32(units[run].w[i / 2][n % KERN_PANEL][i % 2]);
                    chain[i % 2] = bf16_fma_flushed(wv, bf16_to_f32(x[i]), chain[i % 2]);
                }
                acc = bf16_add_flushed(acc, bf16_add_flushed(chain[0], chain[1]));
            }
            y[r * y_stride + n] = acc;
        }
    }
}
