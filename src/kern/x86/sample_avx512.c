/* What the sampler asks of a whole vocabulary, sixteen tokens at a time (rule 7). */
#include <math.h>

#include "kern/fmath.h"
#include "kern/x86/avx512.h"
#include "kern/x86/fmath_avx512.h"
#include "kern/x86/philox.h"
#include "kern/x86/unroll.h"

static __mmask16 lanes_at(size_t n, size_t i)
{
    return w16_mask(n - i < 16 ? n - i : 16);
}

void scale_tops_avx512(float *y, float *tops, const float *x, float t, size_t n)
{
    const __m512 by = _mm512_set1_ps(t);
    const bool divide = t != 1.0f;
    for (size_t i = 0; i < n; tops += 16) {
        const size_t end = n - i < KERN_TOPS_RUN ? n : i + KERN_TOPS_RUN;
        __m512 top = _mm512_set1_ps(-INFINITY);
        for (; i < end; i += 16) {
            const __mmask16 lanes = lanes_at(n, i);
            __m512 v = _mm512_maskz_loadu_ps(lanes, x + i);
            v = divide ? _mm512_div_ps(v, by) : v;
            if (y) {
                _mm512_mask_storeu_ps(y + i, lanes, v);
            }
            top = _mm512_mask_max_ps(top, lanes, top, v);
        }
        _mm512_storeu_ps(tops, top);
    }
}

float softmax_terms_avx512(float *y, const float *x, float max, size_t n)
{
    const __m512 most = _mm512_set1_ps(max);
    __m512 sum = _mm512_setzero_ps();
    for (size_t i = 0; i < n; i += 16) { /* lanes without an element add +0, which changes nothing */
        const __mmask16 lanes = lanes_at(n, i);
        const __m512 v = w16_exp(_mm512_sub_ps(_mm512_maskz_loadu_ps(lanes, x + i), most));
        _mm512_mask_storeu_ps(y + i, lanes, v);
        sum = _mm512_mask_add_ps(sum, lanes, sum, v);
    }
    return w16_sum(sum);
}

float sum_at_least_avx512(const float *y, const float *x, size_t n, float least)
{
    const __m512 floor = _mm512_set1_ps(least);
    __m512 sum = _mm512_setzero_ps();
    for (size_t i = 0; i < n; i += 16) {
        const __mmask16 lanes = lanes_at(n, i);
        const __mmask16 in =
            _mm512_mask_cmp_ps_mask(lanes, _mm512_maskz_loadu_ps(lanes, x + i), floor, _CMP_GE_OQ);
        sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(in, y + i));
    }
    return w16_sum(sum);
}

size_t at_least_avx512(int32_t *index, const float *x, size_t n, float least)
{
    const __m512 floor = _mm512_set1_ps(least);
    const __m512i step = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    size_t found = 0;
    for (size_t i = 0; i < n; i += 16) {
        const __mmask16 lanes = lanes_at(n, i);
        const __mmask16 in =
            _mm512_mask_cmp_ps_mask(lanes, _mm512_maskz_loadu_ps(lanes, x + i), floor, _CMP_GE_OQ);
        if (in) {
            _mm512_mask_compressstoreu_epi32(index + found, in,
                                             _mm512_add_epi32(step, _mm512_set1_epi32((int)i)));
            found += (size_t)__builtin_popcount(in);
        }
    }
    return found;
}

/* Words stand in the low halves of 64 bits; what the high ones hold is never looked at. */
static inline __m512i high_half(__m512i product)
{
    return _mm512_shuffle_epi32(product, _MM_PERM_DDBB); /* a shift would want the multiplier's port */
}

static inline __m512i xor3(__m512i a, __m512i b, uint32_t key)
{
    return _mm512_ternarylogic_epi32(a, b, _mm512_set1_epi32((int)key), 0x96);
}

static inline __m512i xor2(__m512i a, uint32_t key)
{
    return _mm512_xor_si512(a, _mm512_set1_epi32((int)key));
}

#define CHAINS 4 /* independent of each other: as one after the other they would wait for products */

/* The first output of Philox with the counter (position, token, 0, 0): base/philox.c for eight tokens of each chain, in
 * place, less what philox.h says. */
MM_INLINE void philox(__m512i c[CHAINS], const philox_start *p)
{
    const __m512i m0 = _mm512_set1_epi64(PHILOX_M0), m1 = _mm512_set1_epi64(PHILOX_M1);
    __m512i c0[CHAINS], c1[CHAINS], c2[CHAINS], c3[CHAINS];
    MM_UNROLL
    for (size_t i = 0; i < CHAINS; i++) {
        c3[i] = _mm512_mul_epu32(xor2(c[i], p->key[0][0]), m0);
        c1[i] = _mm512_mul_epu32(xor2(high_half(c3[i]), p->x[0]), m1);
        c0[i] = xor2(high_half(c1[i]), p->x[1]);
        c2[i] = xor2(c3[i], p->x[2]);
    }
    MM_UNROLL
    for (size_t i = 0; i < CHAINS; i++) {
        c3[i] = _mm512_mul_epu32(c0[i], m0);
        const __m512i p1 = _mm512_mul_epu32(c2[i], m1);
        c0[i] = xor3(high_half(p1), c1[i], p->key[3][0]);
        c2[i] = xor2(high_half(c3[i]), p->x[3]);
        c1[i] = p1;
    }
    MM_UNROLL
    for (size_t round = 4; round < PHILOX_ROUNDS - 2; round++) {
        MM_UNROLL
        for (size_t i = 0; i < CHAINS; i++) {
            const __m512i p0 = _mm512_mul_epu32(c0[i], m0), p1 = _mm512_mul_epu32(c2[i], m1);
            c0[i] = xor3(high_half(p1), c1[i], p->key[round][0]);
            c2[i] = xor3(high_half(p0), c3[i], p->key[round][1]);
            c1[i] = p1;
            c3[i] = p0;
        }
    }
    MM_UNROLL
    for (size_t i = 0; i < CHAINS; i++) {
        c1[i] = _mm512_mul_epu32(c2[i], m1);
        c2[i] = xor3(high_half(_mm512_mul_epu32(c0[i], m0)), c3[i], p->key[PHILOX_ROUNDS - 2][1]);
    }
    MM_UNROLL
    for (size_t i = 0; i < CHAINS; i++) {
        c[i] = xor3(high_half(_mm512_mul_epu32(c2[i], m1)), c1[i], p->key[PHILOX_ROUNDS - 1][0]);
    }
}

/* For sixteen tokens each, in place. */
MM_INLINE void philox_both(__m512i token[CHAINS / 2], const philox_start *p)
{
    __m512i c[CHAINS];
    MM_UNROLL
    for (size_t i = 0; i < CHAINS / 2; i++) {
        c[2 * i] = token[i];
        c[2 * i + 1] = _mm512_srli_epi64(token[i], 32);
    }
    philox(c, p);
    MM_UNROLL
    for (size_t i = 0; i < CHAINS / 2; i++) {
        token[i] = _mm512_mask_shuffle_epi32(c[2 * i], 0xAAAA, c[2 * i + 1], _MM_PERM_CCAA);
    }
}

/* No less than the noise of these bits: -log(-log u) <= -log(1 - u), and 1 - u is at least the rest up to 2^24 less
 * one, of which the exponent is taken. */
static inline __m512 gumbel_bound(__m512i bits)
{
    __m512i rest = _mm512_sub_epi32(_mm512_set1_epi32(0xFFFFFF), _mm512_srli_epi32(bits, 8));
    rest = _mm512_max_epi32(rest, _mm512_set1_epi32(1));
    const __m512 e = _mm512_getexp_ps(_mm512_cvtepi32_ps(rest));
    return _mm512_fnmadd_ps(e, _mm512_set1_ps(PHILOX_LN2), _mm512_set1_ps(24 * PHILOX_LN2 + PHILOX_SLACK));
}

size_t gumbel_argmax_avx512(const float *x, const int32_t *token, int32_t first, size_t n, uint64_t seed,
                            int32_t position, float least, float *score)
{
    const __m512i step = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512 floor = _mm512_set1_ps(least);
    const philox_start start = philox_begin(seed, position);
    size_t best = n;
    for (size_t i = 0; i < n; i += 32) {
        const __m512 beat = _mm512_set1_ps(*score);
        const size_t half = n - i > 16 ? i + 16 : n; /* where the second sixteen begin, if there are any */
        const __mmask16 lanes[2] = {lanes_at(n, i), lanes_at(n, half)};
        const size_t at[2] = {i, half};
        __m512 v[2];
        __mmask16 in[2];
        __m512i bits[2];
        MM_UNROLL
        for (size_t h = 0; h < 2; h++) {
            v[h] = _mm512_mask_loadu_ps(_mm512_set1_ps(-INFINITY), lanes[h], x + at[h]);
            in[h] = _mm512_cmp_ps_mask(v[h], floor, _CMP_GE_OQ);
            in[h] = _mm512_mask_cmp_ps_mask(in[h], _mm512_add_ps(v[h], _mm512_set1_ps(FM_GUMBEL_MAX)), beat,
                                            _CMP_GE_OQ);
        }
        if (!(in[0] | in[1])) {
            continue;
        }
        MM_UNROLL
        for (size_t h = 0; h < 2; h++) {
            bits[h] = token ? _mm512_maskz_loadu_epi32(lanes[h], token + at[h])
                            : _mm512_add_epi32(step, _mm512_set1_epi32(first + (int32_t)at[h]));
        }
        philox_both(bits, &start);
        MM_UNROLL
        for (size_t h = 0; h < 2; h++) {
            in[h] =
                _mm512_mask_cmp_ps_mask(in[h], _mm512_add_ps(v[h], gumbel_bound(bits[h])), beat, _CMP_GE_OQ);
        }
        for (uint32_t left = in[0] | (uint32_t)in[1] << 16; left; left &= left - 1) {
            const size_t one = i + (size_t)__builtin_ctz(left);
            const float s = x[one] + fm_gumbel(seed, position, token ? token[one] : first + (int32_t)one);
            if (s > *score || (s == *score && best == n)) {
                best = one;
                *score = s;
            }
        }
    }
    return best;
}
