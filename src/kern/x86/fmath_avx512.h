/*
 * fmath_avx512: kern/fmath.h for sixteen floats (sine and cosine: eight) at a time; the operations of
 * kern/ref/fmath.c in the same order, so the bits are the same. A NaN comes out as some NaN. Also the sums of rule 6,
 * whose sixteen lanes are one vector. Internal to kern/x86.
 */
#ifndef HEARTH_KERN_X86_FMATH_AVX512_H
#define HEARTH_KERN_X86_FMATH_AVX512_H

#include <immintrin.h>
#include <math.h>
#include <stddef.h>

#include "kern/fmath_coef.h"

/* The first n of sixteen lanes, n <= 16. */
static inline __mmask16 w16_mask(size_t n)
{
    return (__mmask16)((1u << n) - 1);
}

static inline __m512 w16_exp(__m512 x)
{
    /* max and min return their second operand when one is NaN */
    __m512 c = _mm512_max_ps(_mm512_set1_ps(FM_EXP_MIN), x);
    c = _mm512_min_ps(_mm512_set1_ps(FM_EXP_MAX), c);
    const __m512 round = _mm512_set1_ps(FM_ROUND);
    __m512 t = _mm512_fmadd_ps(c, _mm512_set1_ps(FM_LOG2E), round);
    __m512 n = _mm512_sub_ps(t, round);
    __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(-FM_LN2_HI), c);
    r = _mm512_fmadd_ps(n, _mm512_set1_ps(-FM_LN2_LO), r);
    __m512 q = _mm512_fmadd_ps(_mm512_set1_ps(FM_EXP_Q4), r, _mm512_set1_ps(FM_EXP_Q3));
    q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(FM_EXP_Q2));
    q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(FM_EXP_Q1));
    q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(FM_EXP_Q0));
    __m512 p = _mm512_add_ps(_mm512_fmadd_ps(_mm512_mul_ps(r, r), q, r), _mm512_set1_ps(1.0f));
    __m512i k = _mm512_sub_epi32(_mm512_castps_si512(t), _mm512_set1_epi32((int)FM_ROUND_BITS));
    __m512i half = _mm512_srai_epi32(k, 1);
    const __m512i bias = _mm512_set1_epi32(127);
    __m512i high = _mm512_slli_epi32(_mm512_add_epi32(half, bias), 23);
    __m512i low = _mm512_slli_epi32(_mm512_add_epi32(_mm512_sub_epi32(k, half), bias), 23);
    return _mm512_mul_ps(_mm512_mul_ps(p, _mm512_castsi512_ps(high)), _mm512_castsi512_ps(low));
}

static inline __m512 w16_log(__m512 x)
{
    const __m512 zero = _mm512_setzero_ps();
    __mmask16 tiny = _mm512_cmp_ps_mask(x, _mm512_set1_ps(FM_LOG_MIN_NORMAL), _CMP_LT_OQ);
    __m512 u = _mm512_mask_mul_ps(x, tiny, x, _mm512_set1_ps(0x1p23f));
    __m512i bits = _mm512_castps_si512(u);
    __m512i e = _mm512_srai_epi32(_mm512_sub_epi32(bits, _mm512_set1_epi32((int)FM_LOG_SPLIT)), 23);
    __m512 m = _mm512_castsi512_ps(_mm512_sub_epi32(bits, _mm512_slli_epi32(e, 23)));
    __m512 f = _mm512_sub_ps(m, _mm512_set1_ps(1.0f));
    __m512 k = _mm512_cvtepi32_ps(_mm512_mask_sub_epi32(e, tiny, e, _mm512_set1_epi32(23)));
    __m512 q = _mm512_fmadd_ps(_mm512_set1_ps(FM_LOG_Q8), f, _mm512_set1_ps(FM_LOG_Q7));
    q = _mm512_fmadd_ps(q, f, _mm512_set1_ps(FM_LOG_Q6));
    q = _mm512_fmadd_ps(q, f, _mm512_set1_ps(FM_LOG_Q5));
    q = _mm512_fmadd_ps(q, f, _mm512_set1_ps(FM_LOG_Q4));
    q = _mm512_fmadd_ps(q, f, _mm512_set1_ps(FM_LOG_Q3));
    q = _mm512_fmadd_ps(q, f, _mm512_set1_ps(FM_LOG_Q2));
    q = _mm512_fmadd_ps(q, f, _mm512_set1_ps(FM_LOG_Q1));
    q = _mm512_fmadd_ps(q, f, _mm512_set1_ps(FM_LOG_Q0));
    __m512 y = _mm512_fmadd_ps(_mm512_mul_ps(f, f), q, _mm512_mul_ps(k, _mm512_set1_ps(FM_LN2_LO)));
    y = _mm512_fmadd_ps(k, _mm512_set1_ps(FM_LN2_HI), _mm512_add_ps(f, y));
    __mmask16 ordinary = _mm512_cmp_ps_mask(x, _mm512_set1_ps(INFINITY), _CMP_LT_OQ);
    y = _mm512_mask_blend_ps(ordinary, x, y);
    y = _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, zero, _CMP_LT_OQ), y, _mm512_set1_ps(NAN));
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, zero, _CMP_EQ_OQ), y, _mm512_set1_ps(-INFINITY));
}

static inline __m512 w16_tanh(__m512 x)
{
    const __m512 minus0 = _mm512_set1_ps(-0.0f);
    const __m512 one = _mm512_set1_ps(1.0f);
    __m512 a = _mm512_andnot_ps(minus0, x);
    __m512 z = _mm512_mul_ps(a, a);
    __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(FM_TANH_P4), z, _mm512_set1_ps(FM_TANH_P3));
    p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(FM_TANH_P2));
    p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(FM_TANH_P1));
    p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(FM_TANH_P0));
    __m512 small = _mm512_fmadd_ps(_mm512_mul_ps(a, z), p, a);
    __m512 e = _mm512_add_ps(w16_exp(_mm512_add_ps(a, a)), one);
    __m512 large = _mm512_sub_ps(one, _mm512_div_ps(_mm512_set1_ps(2.0f), e));
    __mmask16 is_small = _mm512_cmp_ps_mask(a, _mm512_set1_ps(FM_TANH_SMALL), _CMP_LT_OQ);
    __m512 y = _mm512_mask_blend_ps(is_small, large, small);
    return _mm512_or_ps(_mm512_andnot_ps(minus0, y), _mm512_and_ps(minus0, x));
}

static inline __m512 w16_silu(__m512 x)
{
    __m512 e = w16_exp(_mm512_xor_ps(x, _mm512_set1_ps(-0.0f)));
    return _mm512_div_ps(x, _mm512_add_ps(_mm512_set1_ps(1.0f), e));
}

static inline __m512d w8_sin_poly(__m512d r, __m512d z)
{
    __m512d s = _mm512_fmadd_pd(_mm512_set1_pd(FM_SIN_S5), z, _mm512_set1_pd(FM_SIN_S4));
    s = _mm512_fmadd_pd(s, z, _mm512_set1_pd(FM_SIN_S3));
    s = _mm512_fmadd_pd(s, z, _mm512_set1_pd(FM_SIN_S2));
    s = _mm512_fmadd_pd(s, z, _mm512_set1_pd(FM_SIN_S1));
    s = _mm512_fmadd_pd(s, z, _mm512_set1_pd(FM_SIN_S0));
    return _mm512_mul_pd(r, _mm512_fmadd_pd(s, z, _mm512_set1_pd(1.0)));
}

static inline __m512d w8_cos_poly(__m512d z)
{
    __m512d c = _mm512_fmadd_pd(_mm512_set1_pd(FM_COS_C6), z, _mm512_set1_pd(FM_COS_C5));
    c = _mm512_fmadd_pd(c, z, _mm512_set1_pd(FM_COS_C4));
    c = _mm512_fmadd_pd(c, z, _mm512_set1_pd(FM_COS_C3));
    c = _mm512_fmadd_pd(c, z, _mm512_set1_pd(FM_COS_C2));
    c = _mm512_fmadd_pd(c, z, _mm512_set1_pd(FM_COS_C1));
    c = _mm512_fmadd_pd(c, z, _mm512_set1_pd(FM_COS_C0));
    return _mm512_fmadd_pd(c, z, _mm512_set1_pd(1.0));
}

/* even: value in quadrants 0 and (negated) 2, odd: in 1 and 3. */
static inline __m256 w8_quadrant(__m512d even, __m512d odd, __m512i quadrant)
{
    __mmask8 is_odd = _mm512_test_epi64_mask(quadrant, _mm512_set1_epi64(1));
    __m512i sign = _mm512_slli_epi64(_mm512_srli_epi64(quadrant, 1), 63);
    __m512d y = _mm512_mask_blend_pd(is_odd, even, odd);
    return _mm512_cvtpd_ps(_mm512_castsi512_pd(_mm512_xor_si512(_mm512_castpd_si512(y), sign)));
}

/* |x| < FM_TRIG_HUGE or NaN. */
static inline void w8_sin_cos(__m256 x, __m256 *sin_out, __m256 *cos_out)
{
    const __m512d round = _mm512_set1_pd(FM_ROUND_D);
    __m512d xd = _mm512_cvtps_pd(x);
    __m512d t = _mm512_fmadd_pd(xd, _mm512_set1_pd(FM_TWO_OVER_PI), round);
    __m512d n = _mm512_sub_pd(t, round);
    __m512d r = _mm512_fnmadd_pd(n, _mm512_set1_pd(FM_PIO2_HI), xd);
    r = _mm512_fnmadd_pd(n, _mm512_set1_pd(FM_PIO2_LO), r);
    __m512d z = _mm512_mul_pd(r, r);
    __m512d s = w8_sin_poly(r, z);
    __m512d c = w8_cos_poly(z);
    __m512i quadrant = _mm512_castpd_si512(t);
    *sin_out = w8_quadrant(s, c, quadrant);
    *cos_out = w8_quadrant(s, c, _mm512_add_epi64(quadrant, _mm512_set1_epi64(1)));
}

/* 8 + 8, 4 + 4, 2 + 2, 1 + 1. */
static inline float w16_sum(__m512 lanes)
{
    __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(lanes), _mm512_extractf32x8_ps(lanes, 1));
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

#endif
