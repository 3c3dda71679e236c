/*
 * fmath_avx2: kern/fmath.h for eight floats (sine and cosine: four) at a time; the operations of
 * kern/ref/fmath.c in the same order, so the bits are the same. A NaN comes out as some NaN. Internal to
 * kern/x86.
 */
#ifndef HEARTH_KERN_X86_FMATH_AVX2_H
#define HEARTH_KERN_X86_FMATH_AVX2_H

#include <immintrin.h>
#include <math.h>

#include "kern/fmath_coef.h"

/* 2^k, -126 <= k <= 127 */
static inline __m256 v8_pow2(__m256i k)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(k, _mm256_set1_epi32(127)), 23));
}

static inline __m256 v8_exp(__m256 x)
{
    /* max and min return their second operand when one is NaN */
    __m256 c = _mm256_max_ps(_mm256_set1_ps(FM_EXP_MIN), x);
    c = _mm256_min_ps(_mm256_set1_ps(FM_EXP_MAX), c);
    const __m256 round = _mm256_set1_ps(FM_ROUND);
    __m256 t = _mm256_fmadd_ps(c, _mm256_set1_ps(FM_LOG2E), round);
    __m256 n = _mm256_sub_ps(t, round);
    __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-FM_LN2_HI), c);
    r = _mm256_fmadd_ps(n, _mm256_set1_ps(-FM_LN2_LO), r);
    __m256 q = _mm256_fmadd_ps(_mm256_set1_ps(FM_EXP_Q4), r, _mm256_set1_ps(FM_EXP_Q3));
    q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(FM_EXP_Q2));
    q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(FM_EXP_Q1));
    q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(FM_EXP_Q0));
    __m256 p = _mm256_add_ps(_mm256_fmadd_ps(_mm256_mul_ps(r, r), q, r), _mm256_set1_ps(1.0f));
    __m256i k = _mm256_sub_epi32(_mm256_castps_si256(t), _mm256_set1_epi32((int)FM_ROUND_BITS));
    __m256i half = _mm256_srai_epi32(k, 1);
    return _mm256_mul_ps(_mm256_mul_ps(p, v8_pow2(half)), v8_pow2(_mm256_sub_epi32(k, half)));
}

static inline __m256 v8_log(__m256 x)
{
    __m256 tiny = _mm256_cmp_ps(x, _mm256_set1_ps(FM_LOG_MIN_NORMAL), _CMP_LT_OQ);
    __m256 u = _mm256_blendv_ps(x, _mm256_mul_ps(x, _mm256_set1_ps(0x1p23f)), tiny);
    __m256i bits = _mm256_castps_si256(u);
    __m256i e = _mm256_srai_epi32(_mm256_sub_epi32(bits, _mm256_set1_epi32((int)FM_LOG_SPLIT)), 23);
    __m256 m = _mm256_castsi256_ps(_mm256_sub_epi32(bits, _mm256_slli_epi32(e, 23)));
    __m256 f = _mm256_sub_ps(m, _mm256_set1_ps(1.0f));
    e = _mm256_sub_epi32(e, _mm256_and_si256(_mm256_castps_si256(tiny), _mm256_set1_epi32(23)));
    __m256 k = _mm256_cvtepi32_ps(e);
    __m256 q = _mm256_fmadd_ps(_mm256_set1_ps(FM_LOG_Q8), f, _mm256_set1_ps(FM_LOG_Q7));
    q = _mm256_fmadd_ps(q, f, _mm256_set1_ps(FM_LOG_Q6));
    q = _mm256_fmadd_ps(q, f, _mm256_set1_ps(FM_LOG_Q5));
    q = _mm256_fmadd_ps(q, f, _mm256_set1_ps(FM_LOG_Q4));
    q = _mm256_fmadd_ps(q, f, _mm256_set1_ps(FM_LOG_Q3));
    q = _mm256_fmadd_ps(q, f, _mm256_set1_ps(FM_LOG_Q2));
    q = _mm256_fmadd_ps(q, f, _mm256_set1_ps(FM_LOG_Q1));
    q = _mm256_fmadd_ps(q, f, _mm256_set1_ps(FM_LOG_Q0));
    __m256 y = _mm256_fmadd_ps(_mm256_mul_ps(f, f), q, _mm256_mul_ps(k, _mm256_set1_ps(FM_LN2_LO)));
    y = _mm256_fmadd_ps(k, _mm256_set1_ps(FM_LN2_HI), _mm256_add_ps(f, y));
    const __m256 inf = _mm256_set1_ps(INFINITY);
    const __m256 zero = _mm256_setzero_ps();
    y = _mm256_blendv_ps(x, y, _mm256_cmp_ps(x, inf, _CMP_LT_OQ));
    y = _mm256_blendv_ps(y, _mm256_set1_ps(NAN), _mm256_cmp_ps(x, zero, _CMP_LT_OQ));
    return _mm256_blendv_ps(y, _mm256_set1_ps(-INFINITY), _mm256_cmp_ps(x, zero, _CMP_EQ_OQ));
}

static inline __m256 v8_tanh(__m256 x)
{
    const __m256 minus0 = _mm256_set1_ps(-0.0f);
    const __m256 one = _mm256_set1_ps(1.0f);
    __m256 a = _mm256_andnot_ps(minus0, x);
    __m256 z = _mm256_mul_ps(a, a);
    __m256 p = _mm256_fmadd_ps(_mm256_set1_ps(FM_TANH_P4), z, _mm256_set1_ps(FM_TANH_P3));
    p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(FM_TANH_P2));
    p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(FM_TANH_P1));
    p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(FM_TANH_P0));
    __m256 small = _mm256_fmadd_ps(_mm256_mul_ps(a, z), p, a);
    __m256 e = _mm256_add_ps(v8_exp(_mm256_add_ps(a, a)), one);
    __m256 large = _mm256_sub_ps(one, _mm256_div_ps(_mm256_set1_ps(2.0f), e));
    __m256 is_small = _mm256_cmp_ps(a, _mm256_set1_ps(FM_TANH_SMALL), _CMP_LT_OQ);
    __m256 y = _mm256_blendv_ps(large, small, is_small);
    return _mm256_or_ps(_mm256_andnot_ps(minus0, y), _mm256_and_ps(minus0, x));
}

static inline __m256 v8_silu(__m256 x)
{
    __m256 e = v8_exp(_mm256_xor_ps(x, _mm256_set1_ps(-0.0f)));
    return _mm256_div_ps(x, _mm256_add_ps(_mm256_set1_ps(1.0f), e));
}

static inline __m256d v4_sin_poly(__m256d r, __m256d z)
{
    __m256d s = _mm256_fmadd_pd(_mm256_set1_pd(FM_SIN_S5), z, _mm256_set1_pd(FM_SIN_S4));
    s = _mm256_fmadd_pd(s, z, _mm256_set1_pd(FM_SIN_S3));
    s = _mm256_fmadd_pd(s, z, _mm256_set1_pd(FM_SIN_S2));
    s = _mm256_fmadd_pd(s, z, _mm256_set1_pd(FM_SIN_S1));
    s = _mm256_fmadd_pd(s, z, _mm256_set1_pd(FM_SIN_S0));
    return _mm256_mul_pd(r, _mm256_fmadd_pd(s, z, _mm256_set1_pd(1.0)));
}

static inline __m256d v4_cos_poly(__m256d z)
{
    __m256d c = _mm256_fmadd_pd(_mm256_set1_pd(FM_COS_C6), z, _mm256_set1_pd(FM_COS_C5));
    c = _mm256_fmadd_pd(c, z, _mm256_set1_pd(FM_COS_C4));
    c = _mm256_fmadd_pd(c, z, _mm256_set1_pd(FM_COS_C3));
    c = _mm256_fmadd_pd(c, z, _mm256_set1_pd(FM_COS_C2));
    c = _mm256_fmadd_pd(c, z, _mm256_set1_pd(FM_COS_C1));
    c = _mm256_fmadd_pd(c, z, _mm256_set1_pd(FM_COS_C0));
    return _mm256_fmadd_pd(c, z, _mm256_set1_pd(1.0));
}

/* even: value in quadrants 0 and (negated) 2, odd: in 1 and 3. Bit 0 of quadrant moves to the sign to choose.
 */
static inline __m128 v4_quadrant(__m256d even, __m256d odd, __m256i quadrant)
{
    __m256d y = _mm256_blendv_pd(even, odd, _mm256_castsi256_pd(_mm256_slli_epi64(quadrant, 63)));
    __m256i sign = _mm256_slli_epi64(_mm256_srli_epi64(quadrant, 1), 63);
    return _mm256_cvtpd_ps(_mm256_xor_pd(y, _mm256_castsi256_pd(sign)));
}

/* |x| < FM_TRIG_HUGE or NaN. */
static inline void v4_sin_cos(__m128 x, __m128 *sin_out, __m128 *cos_out)
{
    const __m256d round = _mm256_set1_pd(FM_ROUND_D);
    __m256d xd = _mm256_cvtps_pd(x);
    __m256d t = _mm256_fmadd_pd(xd, _mm256_set1_pd(FM_TWO_OVER_PI), round);
    __m256d n = _mm256_sub_pd(t, round);
    __m256d r = _mm256_fnmadd_pd(n, _mm256_set1_pd(FM_PIO2_HI), xd);
    r = _mm256_fnmadd_pd(n, _mm256_set1_pd(FM_PIO2_LO), r);
    __m256d z = _mm256_mul_pd(r, r);
    __m256d s = v4_sin_poly(r, z);
    __m256d c = v4_cos_poly(z);
    __m256i quadrant = _mm256_castpd_si256(t);
    *sin_out = v4_quadrant(s, c, quadrant);
    *cos_out = v4_quadrant(s, c, _mm256_add_epi64(quadrant, _mm256_set1_epi64x(1)));
}

#endif
