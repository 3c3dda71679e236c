/* Rotary positions with NEON: two angles, four pairs or halves at a time; the last few as the reference. */
#include <arm_neon.h>
#include <math.h>

#include "kern/arm/arm.h"
#include "kern/arm/fmath_neon.h"
#include "kern/fmath.h"

void rope_angles_neon(float *cos_sin, const double *inv_freq, size_t n_half, int32_t pos, float magnitude)
{
    size_t i = 0;
    for (; i + 2 <= n_half; i += 2) {
        float64x2_t t = vmulq_n_f64(vld1q_f64(inv_freq + i), (double)pos);
        float64x2_t k = d2_step(t, vdupq_n_f64(FM_ONE_OVER_2PI), FM_ROUND_D);
        k = vsubq_f64(k, vdupq_n_f64(FM_ROUND_D));
        float64x2_t r = vfmsq_f64(t, k, vdupq_n_f64(FM_2PI_HI));
        r = vfmsq_f64(r, k, vdupq_n_f64(FM_2PI_LO));
        float32x2x2_t cs;
        d2_sin_cos(vcvt_f32_f64(r), &cs.val[1], &cs.val[0]);
        cs.val[0] = vmul_n_f32(cs.val[0], magnitude);
        cs.val[1] = vmul_n_f32(cs.val[1], magnitude);
        vst2_f32(cos_sin + 2 * i, cs);
    }
    for (; i < n_half; i++) {
        float angle = fm_rope_angle(pos, inv_freq[i]);
        cos_sin[2 * i] = fm_cos(angle) * magnitude;
        cos_sin[2 * i + 1] = fm_sin(angle) * magnitude;
    }
}

/* (x0, x1) times (c, s) in four lanes. */
static void turn(float32x4_t *x0, float32x4_t *x1, float32x4x2_t cs)
{
    float32x4_t y0 = vfmaq_f32(vnegq_f32(vmulq_f32(*x1, cs.val[1])), *x0, cs.val[0]);
    *x1 = vfmaq_f32(vmulq_f32(*x0, cs.val[1]), *x1, cs.val[0]);
    *x0 = y0;
}

void rope_neon(float *x, const float *cos_sin, size_t n_rot, kern_rope_style style)
{
    const size_t n_half = n_rot / 2;
    const bool pairs = style == KERN_ROPE_PAIRS;
    size_t i = 0;
    for (; i + 4 <= n_half; i += 4) {
        float32x4x2_t cs = vld2q_f32(cos_sin + 2 * i);
        if (pairs) {
            float32x4x2_t v = vld2q_f32(x + 2 * i);
            turn(&v.val[0], &v.val[1], cs);
            vst2q_f32(x + 2 * i, v);
        } else {
            float32x4_t x0 = vld1q_f32(x + i), x1 = vld1q_f32(x + n_half + i);
            turn(&x0, &x1, cs);
            vst1q_f32(x + i, x0);
            vst1q_f32(x + n_half + i, x1);
        }
    }
    for (; i < n_half; i++) {
        float *p0 = pairs ? &x[2 * i] : &x[i], *p1 = pairs ? &x[2 * i + 1] : &x[n_half + i];
        float c = cos_sin[2 * i], s = cos_sin[2 * i + 1], x0 = *p0, x1 = *p1;
        *p0 = fmaf(x0, c, -(x1 * s));
        *p1 = fmaf(x1, c, x0 * s);
    }
}
