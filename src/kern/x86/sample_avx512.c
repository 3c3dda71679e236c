/* What the sampler asks of a whole vocabulary, sixteen tokens at a time (rule 7). */
#include <math.h>

#include "kern/fmath.h"
#include "kern/x86/avx512.h"
#include "kern/x86/fmath_avx512.h"
#include "kern/x86/philox.h"

static __mmask16 lanes_at(size_t n, size_t i)
{
    return w16_mask(n - i < 16 ? n - i : 16);
}

void scale_tops_avx512(float *y, float *tops, const float *x, float t, size_t n)
{
    const __m512 by = _mm512_set1_ps(t);
    for (size_t i = 0; i < n; tops += 16) {
        const size_t end = n - i < KERN_TOPS_RUN ? n : i + KERN_TOPS_RUN;
        __m512 top = _mm512_set1_ps(-INFINITY);
        for (; i < end; i += 16) {
            const __mmask16 lanes = lanes_at(n, i);
            const __m512 v = _mm512_div_ps(_mm512_maskz_loadu_ps(lanes, x + i), by);
            _mm512_mask_storeu_ps(y + i, lanes, v);
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

/* The high halves of v * m; the low ones, where asked for, into *low. */
static inline __m512i mul_wide(__m512i v, __m512i m, __m512i *low)
{
    const __m512i even = _mm512_mul_epu32(v, m);
    const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(v, 32), m);
    if (low) {
        *low = _mm512_mask_shuffle_epi32(even, 0xAAAA, odd, _MM_PERM_CCAA);
    }
    return _mm512_mask_blend_epi32(0xAAAA, _mm512_srli_epi64(even, 32), odd);
}

/* The first output of Philox with the counter (position, token, 0, 0): base/philox.c for sixteen tokens. */
static inline __m512i philox16(__m512i token, const philox_start *p)
{
    const __m512i m0 = _mm512_set1_epi32((int)PHILOX_M0);
    const __m512i m1 = _mm512_set1_epi32((int)PHILOX_M1);
    __m512i c0 = _mm512_xor_si512(token, _mm512_set1_epi32((int)p->key[0][0]));
    __m512i c1 = _mm512_setzero_si512();
    __m512i c2 = _mm512_set1_epi32((int)p->c2);
    __m512i c3 = _mm512_set1_epi32((int)p->c3);
    for (int round = 1; round < PHILOX_ROUNDS - 1; round++) {
        __m512i low0, low1;
        const __m512i high0 = mul_wide(c0, m0, &low0);
        const __m512i high1 = mul_wide(c2, m1, &low1);
        c0 = _mm512_ternarylogic_epi32(high1, c1, _mm512_set1_epi32((int)p->key[round][0]), 0x96);
        c2 = _mm512_ternarylogic_epi32(high0, c3, _mm512_set1_epi32((int)p->key[round][1]), 0x96);
        c1 = low1;
        c3 = low0;
    }
    const __m512i key = _mm512_set1_epi32((int)p->key[PHILOX_ROUNDS - 1][0]);
    return _mm512_ternarylogic_epi32(mul_wide(c2, m1, NULL), c1, key, 0x96);
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
                            int32_t position, float *score)
{
    const __m512i step = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const philox_start start = philox_begin(seed, position);
    size_t best = n;
    for (size_t i = 0; i < n; i += 16) {
        const __m512 least = _mm512_set1_ps(*score);
        const __mmask16 lanes = lanes_at(n, i);
        const __m512 v = _mm512_mask_loadu_ps(_mm512_set1_ps(-INFINITY), lanes, x + i);
        __mmask16 in = _mm512_cmp_ps_mask(v, _mm512_set1_ps(-INFINITY), _CMP_GT_OQ);
        in = _mm512_mask_cmp_ps_mask(in, _mm512_add_ps(v, _mm512_set1_ps(FM_GUMBEL_MAX)), least, _CMP_GE_OQ);
        if (!in) {
            continue;
        }
        const __m512i ids = token ? _mm512_maskz_loadu_epi32(lanes, token + i)
                                  : _mm512_add_epi32(step, _mm512_set1_epi32(first + (int32_t)i));
        const __m512i bits = philox16(ids, &start);
        unsigned left = _mm512_mask_cmp_ps_mask(in, _mm512_add_ps(v, gumbel_bound(bits)), least, _CMP_GE_OQ);
        for (; left; left &= left - 1) {
            const size_t at = i + (size_t)__builtin_ctz(left);
            const float s = x[at] + fm_gumbel(seed, position, token ? token[at] : first + (int32_t)at);
            if (s > *score || (s == *score && best == n)) {
                best = at;
                *score = s;
            }
        }
    }
    return best;
}
