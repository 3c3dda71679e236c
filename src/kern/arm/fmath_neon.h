/*
 * fmath_neon: kern/fmath.h for four floats (sine and cosine: two) at a time; the operations of kern/ref/fmath.c in the
 * same order, so the bits are the same. A NaN comes out as some NaN. Internal to kern/arm.
 */
#ifndef HEARTH_KERN_ARM_FMATH_NEON_H
#define HEARTH_KERN_ARM_FMATH_NEON_H

#include <arm_neon.h>
#include <math.h>

#include "kern/fmath_coef.h"

/* 2^k, -126 <= k <= 127 */
static inline float32x4_t n4_pow2(int32x4_t k)
{
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(k, vdupq_n_s32(127)), 23));
}

/* fma(a, x, b) */
static inline float32x4_t n4_step(float32x4_t a, float32x4_t x, float b)
{
    return vfmaq_f32(vdupq_n_f32(b), a, x);
}

static inline float64x2_t d2_step(float64x2_t a, float64x2_t x, double b)
{
    return vfmaq_f64(vdupq_n_f64(b), a, x);
}

static inline float32x4_t n4_exp(float32x4_t x)
{
    /* max and min give NaN where either operand is one */
    float32x4_t c = vmaxq_f32(x, vdupq_n_f32(FM_EXP_MIN));
    c = vminq_f32(c, vdupq_n_f32(FM_EXP_MAX));
    float32x4_t t = n4_step(c, vdupq_n_f32(FM_LOG2E), FM_ROUND);
    float32x4_t n = vsubq_f32(t, vdupq_n_f32(FM_ROUND));
    float32x4_t r = vfmaq_f32(c, n, vdupq_n_f32(-FM_LN2_HI));
    r = vfmaq_f32(r, n, vdupq_n_f32(-FM_LN2_LO));
    float32x4_t q = n4_step(vdupq_n_f32(FM_EXP_Q4), r, FM_EXP_Q3);
    q = n4_step(q, r, FM_EXP_Q2);
    q = n4_step(q, r, FM_EXP_Q1);
    q = n4_step(q, r, FM_EXP_Q0);
    float32x4_t p = vaddq_f32(vfmaq_f32(r, vmulq_f32(r, r), q), vdupq_n_f32(1.0f));
    int32x4_t k = vsubq_s32(vreinterpretq_s32_f32(t), vdupq_n_s32((int32_t)FM_ROUND_BITS));
    int32x4_t half = vshrq_n_s32(k, 1);
    float32x4_t y = vmulq_f32(vmulq_f32(p, n4_pow2(half)), n4_pow2(vsubq_s32(k, half)));
    /* of a NaN the integers are noise */
    return vbslq_f32(vceqq_f32(x, x), y, x);
}

static inline float32x4_t n4_log(float32x4_t x)
{
    uint32x4_t tiny = vcltq_f32(x, vdupq_n_f32(FM_LOG_MIN_NORMAL));
    float32x4_t u = vbslq_f32(tiny, vmulq_f32(x, vdupq_n_f32(0x1p23f)), x);
    int32x4_t bits = vreinterpretq_s32_f32(u);
    int32x4_t e = vshrq_n_s32(vsubq_s32(bits, vdupq_n_s32((int32_t)FM_LOG_SPLIT)), 23);
    float32x4_t m = vreinterpretq_f32_s32(vsubq_s32(bits, vshlq_n_s32(e, 23)));
    float32x4_t f = vsubq_f32(m, vdupq_n_f32(1.0f));
    e = vsubq_s32(e, vandq_s32(vreinterpretq_s32_u32(tiny), vdupq_n_s32(23)));
    float32x4_t k = vcvtq_f32_s32(e);
    float32x4_t q = n4_step(vdupq_n_f32(FM_LOG_Q8), f, FM_LOG_Q7);
    q = n4_step(q, f, FM_LOG_Q6);
    q = n4_step(q, f, FM_LOG_Q5);
    q = n4_step(q, f, FM_LOG_Q4);
    q = n4_step(q, f, FM_LOG_Q3);
    q = n4_step(q, f, FM_LOG_Q2);
    q = n4_step(q, f, FM_LOG_Q1);
    q = n4_step(q, f, FM_LOG_Q0);
    float32x4_t y = vfmaq_f32(vmulq_f32(k, vdupq_n_f32(FM_LN2_LO)), vmulq_f32(f, f), q);
    y = vfmaq_f32(vaddq_f32(f, y), k, vdupq_n_f32(FM_LN2_HI));
    y = vbslq_f32(vcltq_f32(x, vdupq_n_f32(INFINITY)), y, x);
    y = vbslq_f32(vcltzq_f32(x), vdupq_n_f32(NAN), y);
    return vbslq_f32(vceqzq_f32(x), vdupq_n_f32(-INFINITY), y);
}

static inline float32x4_t n4_tanh(float32x4_t x)
{
    const float32x4_t one = vdupq_n_f32(1.0f);
    float32x4_t a = vabsq_f32(x);
    float32x4_t z = vmulq_f32(a, a);
    float32x4_t p = n4_step(vdupq_n_f32(FM_TANH_P4), z, FM_TANH_P3);
    p = n4_step(p, z, FM_TANH_P2);
    p = n4_step(p, z, FM_TANH_P1);
    p = n4_step(p, z, FM_TANH_P0);
    float32x4_t small = vfmaq_f32(a, vmulq_f32(a, z), p);
    float32x4_t e = vaddq_f32(n4_exp(vaddq_f32(a, a)), one);
    float32x4_t large = vsubq_f32(one, vdivq_f32(vdupq_n_f32(2.0f), e));
    float32x4_t y = vbslq_f32(vcltq_f32(a, vdupq_n_f32(FM_TANH_SMALL)), small, large);
    return vbslq_f32(vdupq_n_u32(0x80000000u), x, y);
}

static inline float32x4_t n4_silu(float32x4_t x)
{
    return vdivq_f32(x, vaddq_f32(vdupq_n_f32(1.0f), n4_exp(vnegq_f32(x))));
}

/* The sum of 16 lanes: 8+8, 4+4, 2+2, 1+1 (rule 6). */
static inline float neon_lanes_sum(const float lane[16])
{
    float32x4_t low = vaddq_f32(vld1q_f32(lane), vld1q_f32(lane + 8));
    float32x4_t high = vaddq_f32(vld1q_f32(lane + 4), vld1q_f32(lane + 12));
    float32x4_t four = vaddq_f32(low, high);
    float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

static inline float64x2_t d2_sin_poly(float64x2_t r, float64x2_t z)
{
    float64x2_t s = d2_step(vdupq_n_f64(FM_SIN_S5), z, FM_SIN_S4);
    s = d2_step(s, z, FM_SIN_S3);
    s = d2_step(s, z, FM_SIN_S2);
    s = d2_step(s, z, FM_SIN_S1);
    s = d2_step(s, z, FM_SIN_S0);
    return vmulq_f64(r, d2_step(s, z, 1.0));
}

static inline float64x2_t d2_cos_poly(float64x2_t z)
{
    float64x2_t c = d2_step(vdupq_n_f64(FM_COS_C6), z, FM_COS_C5);
    c = d2_step(c, z, FM_COS_C4);
    c = d2_step(c, z, FM_COS_C3);
    c = d2_step(c, z, FM_COS_C2);
    c = d2_step(c, z, FM_COS_C1);
    c = d2_step(c, z, FM_COS_C0);
    return d2_step(c, z, 1.0);
}

/* even: value in quadrants 0 and (negated) 2, odd: in 1 and 3. */
static inline float32x2_t d2_quadrant(float64x2_t even, float64x2_t odd, uint64x2_t quadrant)
{
    float64x2_t y = vbslq_f64(vtstq_u64(quadrant, vdupq_n_u64(1)), odd, even);
    uint64x2_t sign = vshlq_n_u64(vshrq_n_u64(quadrant, 1), 63);
    return vcvt_f32_f64(vreinterpretq_f64_u64(veorq_u64(vreinterpretq_u64_f64(y), sign)));
}

/* |x| < FM_TRIG_HUGE or NaN. */
static inline void d2_sin_cos(float32x2_t x, float32x2_t *sin_out, float32x2_t *cos_out)
{
    float64x2_t xd = vcvt_f64_f32(x);
    float64x2_t t = d2_step(xd, vdupq_n_f64(FM_TWO_OVER_PI), FM_ROUND_D);
    float64x2_t n = vsubq_f64(t, vdupq_n_f64(FM_ROUND_D));
    float64x2_t r = vfmsq_f64(xd, n, vdupq_n_f64(FM_PIO2_HI));
    r = vfmsq_f64(r, n, vdupq_n_f64(FM_PIO2_LO));
    float64x2_t z = vmulq_f64(r, r);
    float64x2_t s = d2_sin_poly(r, z);
    float64x2_t c = d2_cos_poly(z);
    uint64x2_t quadrant = vreinterpretq_u64_f64(t);
    *sin_out = d2_quadrant(s, c, quadrant);
    *cos_out = d2_quadrant(s, c, vaddq_u64(quadrant, vdupq_n_u64(1)));
}

#endif
