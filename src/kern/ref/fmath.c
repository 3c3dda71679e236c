/*
 * fmath, the definition. Read it beside NUMERICS in kern/README.md: the order of the operations is the
 * contract. Selections (?:) choose between finished values, so that a vector set can compute both sides and
 * blend.
 */
#include "kern/fmath.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/fp16.h"
#include "kern/fmath_coef.h"

static uint64_t f64_bits(double d)
{
    uint64_t u;
    memcpy(&u, &d, sizeof u);
    return u;
}

/* 2^k for -126 <= k <= 127. */
static float pow2(int32_t k)
{
    return f32_from_bits((uint32_t)(k + 127) << 23);
}

float fm_exp(float x)
{
    float c = x < FM_EXP_MIN ? FM_EXP_MIN : x; /* NaN passes both */
    c = c > FM_EXP_MAX ? FM_EXP_MAX : c;
    float t = fmaf(c, FM_LOG2E, FM_ROUND);
    float n = t - FM_ROUND;
    float r = fmaf(n, -FM_LN2_HI, c); /* exact */
    r = fmaf(n, -FM_LN2_LO, r);
    float q = fmaf(FM_EXP_Q4, r, FM_EXP_Q3);
    q = fmaf(q, r, FM_EXP_Q2);
    q = fmaf(q, r, FM_EXP_Q1);
    q = fmaf(q, r, FM_EXP_Q0);
    float p = fmaf(r * r, q, r) + 1.0f;
    if (x != x) {
        return x; /* the integer below would be noise */
    }
    /* 2^k in two halves: k = 128 and results below the normal range need no case of their own. */
    int32_t k = (int32_t)(f32_bits(t) - FM_ROUND_BITS);
    int32_t half = k >> 1;
    return p * pow2(half) * pow2(k - half);
}

float fm_log(float x)
{
    bool tiny = x < FM_LOG_MIN_NORMAL;
    float u = tiny ? x * 0x1p23f : x;
    int32_t e = (int32_t)(f32_bits(u) - FM_LOG_SPLIT) >> 23;
    float f = f32_from_bits(f32_bits(u) - ((uint32_t)e << 23)) - 1.0f; /* exact */
    float k = (float)(tiny ? e - 23 : e);
    float q = fmaf(FM_LOG_Q8, f, FM_LOG_Q7);
    q = fmaf(q, f, FM_LOG_Q6);
    q = fmaf(q, f, FM_LOG_Q5);
    q = fmaf(q, f, FM_LOG_Q4);
    q = fmaf(q, f, FM_LOG_Q3);
    q = fmaf(q, f, FM_LOG_Q2);
    q = fmaf(q, f, FM_LOG_Q1);
    q = fmaf(q, f, FM_LOG_Q0);
    float y = fmaf(f * f, q, k * FM_LN2_LO);
    y = fmaf(k, FM_LN2_HI, f + y);
    y = x < INFINITY ? y : x; /* +inf and NaN are their own logarithm */
    y = x < 0 ? NAN : y;
    return x == 0 ? -INFINITY : y;
}

float fm_tanh(float x)
{
    float a = fabsf(x);
    float z = a * a;
    float p = fmaf(FM_TANH_P4, z, FM_TANH_P3);
    p = fmaf(p, z, FM_TANH_P2);
    p = fmaf(p, z, FM_TANH_P1);
    p = fmaf(p, z, FM_TANH_P0);
    float small = fmaf(a * z, p, a);
    float large = 1.0f - 2.0f / (fm_exp(a + a) + 1.0f);
    return copysignf(a < FM_TANH_SMALL ? small : large, x);
}

float fm_silu(float x)
{
    return x / (1.0f + fm_exp(-x));
}

/* The first 256 bits of 2/pi behind the binary point, most significant first. */
static const uint32_t two_over_pi[8] = {
    0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB, 0xDEBBC561,
};

/*
 * x * 2/pi modulo 4 for finite |x| >= 2^30, exact to 2^-102 (Payne and Hanek): x = m 2^e; the bits of 2/pi
 * that weigh 4 / (m 2^e) or more give multiples of four and are left out, the next 128 are multiplied in
 * integers. *r is the rest in [-pi/4, pi/4], the result the quadrant.
 */
static unsigned reduce_huge(float x, double *r)
{
    uint32_t bits = f32_bits(x) & 0x7FFFFFFFu;
    uint64_t m = (bits & 0x7FFFFFu) | 0x800000u;
    unsigned skip = (bits >> 23) - 150 - 2; /* e - 2, 5 to 102 */
    const uint32_t *w = &two_over_pi[skip / 32];
    unsigned shift = skip % 32;
    uint32_t window[4];
    for (int i = 0; i < 4; i++) {
        uint64_t pair = (uint64_t)w[i] << 32 | w[i + 1];
        window[i] = (uint32_t)(pair << shift >> 32);
    }
    /* The product modulo 2^128: weight 2^-126, so its two top bits count quadrants. */
    uint64_t carry = 0;
    uint32_t prod[4];
    for (int i = 3; i >= 0; i--) {
        uint64_t v = m * window[i] + carry;
        prod[i] = (uint32_t)v;
        carry = v >> 32;
    }
    uint64_t top = (uint64_t)prod[0] << 32 | prod[1];
    uint64_t quadrant = (top + (1ull << 61)) >> 62; /* nearest */
    uint64_t rest = (top << 2) | (prod[2] >> 30);   /* fraction in units of 2^-64, as a signed number */
    double frac = (double)(int64_t)rest * 0x1p-64;
    double a = frac * FM_PIO2_HI;
    *r = signbit(x) ? -a : a;
    return (unsigned)(signbit(x) ? 0 - quadrant : quadrant) & 3;
}

static unsigned reduce(float x, double *r)
{
    if (fabsf(x) >= FM_TRIG_HUGE) {
        return reduce_huge(x, r);
    }
    double t = fma((double)x, FM_TWO_OVER_PI, FM_ROUND_D);
    double n = t - FM_ROUND_D;
    double a = fma(-n, FM_PIO2_HI, (double)x);
    *r = fma(-n, FM_PIO2_LO, a);
    return (unsigned)f64_bits(t) & 3;
}

static double sin_poly(double r)
{
    double z = r * r;
    double s = fma(FM_SIN_S5, z, FM_SIN_S4);
    s = fma(s, z, FM_SIN_S3);
    s = fma(s, z, FM_SIN_S2);
    s = fma(s, z, FM_SIN_S1);
    s = fma(s, z, FM_SIN_S0);
    return r * fma(s, z, 1.0);
}

static double cos_poly(double r)
{
    double z = r * r;
    double c = fma(FM_COS_C6, z, FM_COS_C5);
    c = fma(c, z, FM_COS_C4);
    c = fma(c, z, FM_COS_C3);
    c = fma(c, z, FM_COS_C2);
    c = fma(c, z, FM_COS_C1);
    c = fma(c, z, FM_COS_C0);
    return fma(c, z, 1.0);
}

/* The sine of r + quadrant * pi / 2. */
static float sin_quadrant(unsigned quadrant, double r)
{
    double y = quadrant & 1 ? cos_poly(r) : sin_poly(r);
    return (float)(quadrant & 2 ? -y : y);
}

float fm_sin(float x)
{
    double r;
    if (!isfinite(x)) {
        return NAN;
    }
    unsigned quadrant = reduce(x, &r);
    return sin_quadrant(quadrant, r);
}

float fm_cos(float x)
{
    double r;
    if (!isfinite(x)) {
        return NAN;
    }
    unsigned quadrant = reduce(x, &r);
    return sin_quadrant(quadrant + 1, r);
}

float fm_rope_angle(int pos, double inv_freq)
{
    double t = (double)pos * inv_freq;
    double n = fma(t, FM_ONE_OVER_2PI, FM_ROUND_D) - FM_ROUND_D;
    double r = fma(-n, FM_2PI_HI, t);
    r = fma(-n, FM_2PI_LO, r);
    return (float)r;
}
