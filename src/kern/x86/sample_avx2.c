/* What the sampler asks of a whole vocabulary, eight tokens at a time (rule 7). */
#include <math.h>

#include "kern/fmath.h"
#include "kern/x86/avx2.h"
#include "kern/x86/fmath_avx2.h"
#include "kern/x86/philox.h"
#include "kern/x86/unroll.h"
#include "kern/x86/vec_avx2.h"

static size_t lanes_left(size_t n, size_t i)
{
    return n - i < 8 ? n - i : 8;
}

/* The first n <= 8 of v, -inf in the other lanes. */
static __m256 first_of(__m256 v, size_t n)
{
    return _mm256_blendv_ps(_mm256_set1_ps(-INFINITY), v, _mm256_castsi256_ps(v8_mask(n)));
}

void scale_tops_avx2(float *y, float *tops, const float *x, float t, size_t n)
{
    const __m256 by = _mm256_set1_ps(t);
    const bool divide = t != 1.0f;
    for (size_t i = 0; i < n; tops += 16) {
        const size_t end = n - i < KERN_TOPS_RUN ? n : i + KERN_TOPS_RUN;
        __m256 top[2] = {_mm256_set1_ps(-INFINITY), _mm256_set1_ps(-INFINITY)};
        for (; i + 16 <= end; i += 16) {
            for (size_t h = 0; h < 2; h++) {
                __m256 v = _mm256_loadu_ps(x + i + 8 * h);
                v = divide ? _mm256_div_ps(v, by) : v;
                if (y) {
                    _mm256_storeu_ps(y + i + 8 * h, v);
                }
                top[h] = _mm256_max_ps(top[h], v);
            }
        }
        for (size_t h = 0; i < end; i += 8, h++) { /* the last run ends in less than sixteen */
            size_t m = lanes_left(end, i);
            __m256 v = _mm256_div_ps(v8_load_n(x + i, m), by);
            if (y) {
                v8_store_n(y + i, m, v);
            }
            top[h] = _mm256_max_ps(top[h], first_of(v, m));
        }
        _mm256_storeu_ps(tops, top[0]);
        _mm256_storeu_ps(tops + 8, top[1]);
    }
}

float softmax_terms_avx2(float *y, const float *x, float max, size_t n)
{
    const __m256 most = _mm256_set1_ps(max);
    __m256 sum[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        for (size_t h = 0; h < 2; h++) {
            __m256 v = v8_exp(_mm256_sub_ps(_mm256_loadu_ps(x + i + 8 * h), most));
            _mm256_storeu_ps(y + i + 8 * h, v);
            sum[h] = _mm256_add_ps(sum[h], v);
        }
    }
    for (size_t h = 0; i < n; i += 8, h++) { /* lanes without an element add +0, which changes nothing */
        size_t m = lanes_left(n, i);
        __m256 v = v8_exp(_mm256_sub_ps(v8_load_n(x + i, m), most));
        v8_store_n(y + i, m, v);
        sum[h] = _mm256_add_ps(sum[h], _mm256_and_ps(v, _mm256_castsi256_ps(v8_mask(m))));
    }
    return v16_sum(sum[0], sum[1]);
}

/* y where x is at least the floor, else +0. */
static __m256 where_at_least(__m256 y, __m256 x, __m256 floor)
{
    return _mm256_and_ps(y, _mm256_cmp_ps(x, floor, _CMP_GE_OQ));
}

float sum_at_least_avx2(const float *y, const float *x, size_t n, float least)
{
    const __m256 floor = _mm256_set1_ps(least);
    __m256 sum[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        for (size_t h = 0; h < 2; h++) {
            const size_t at = i + 8 * h;
            __m256 v = where_at_least(_mm256_loadu_ps(y + at), _mm256_loadu_ps(x + at), floor);
            sum[h] = _mm256_add_ps(sum[h], v);
        }
    }
    for (size_t h = 0; i < n; i += 8, h++) { /* lanes without an element have y = 0 */
        size_t m = lanes_left(n, i);
        sum[h] = _mm256_add_ps(sum[h], where_at_least(v8_load_n(y + i, m), v8_load_n(x + i, m), floor));
    }
    return v16_sum(sum[0], sum[1]);
}

size_t at_least_avx2(int32_t *index, const float *x, size_t n, float least)
{
    const __m256 floor = _mm256_set1_ps(least);
    size_t found = 0;
    for (size_t i = 0; i < n; i += 8) {
        size_t m = lanes_left(n, i);
        int in = _mm256_movemask_ps(_mm256_cmp_ps(v8_load_n(x + i, m), floor, _CMP_GE_OQ));
        for (in &= (1 << m) - 1; in; in &= in - 1) {
            index[found++] = (int32_t)i + __builtin_ctz((unsigned)in);
        }
    }
    return found;
}

/* Words stand in the low halves of 64 bits; what the high ones hold is never looked at. */
static inline __m256i high_half(__m256i product)
{
    return _mm256_shuffle_epi32(product, 0xF5); /* a shift would want the multiplier's ports */
}

static inline __m256i xor2(__m256i a, uint32_t key)
{
    return _mm256_xor_si256(a, _mm256_set1_epi32((int)key));
}

/* b is the one that comes last. */
static inline __m256i xor3(__m256i a, __m256i b, uint32_t key)
{
    return _mm256_xor_si256(xor2(a, key), b);
}

/* The first output of Philox with the counter (position, token, 0, 0): base/philox.c for eight tokens, less what
 * philox.h says. Even and odd ones are two chains, independent of each other: one after the other they would wait for
 * products. */
MM_INLINE __m256i philox8(__m256i token, const philox_start *p)
{
    const __m256i m0 = _mm256_set1_epi64x(PHILOX_M0), m1 = _mm256_set1_epi64x(PHILOX_M1);
    const __m256i c[2] = {token, _mm256_srli_epi64(token, 32)};
    __m256i c0[2], c1[2], c2[2], c3[2];
    MM_UNROLL
    for (size_t i = 0; i < 2; i++) {
        c3[i] = _mm256_mul_epu32(xor2(c[i], p->key[0][0]), m0);
        c1[i] = _mm256_mul_epu32(xor2(high_half(c3[i]), p->x[0]), m1);
        c0[i] = xor2(high_half(c1[i]), p->x[1]);
        c2[i] = xor2(c3[i], p->x[2]);
    }
    MM_UNROLL
    for (size_t i = 0; i < 2; i++) {
        c3[i] = _mm256_mul_epu32(c0[i], m0);
        const __m256i p1 = _mm256_mul_epu32(c2[i], m1);
        c0[i] = xor3(c1[i], high_half(p1), p->key[3][0]);
        c2[i] = xor2(high_half(c3[i]), p->x[3]);
        c1[i] = p1;
    }
    MM_UNROLL
    for (size_t round = 4; round < PHILOX_ROUNDS - 2; round++) {
        MM_UNROLL
        for (size_t i = 0; i < 2; i++) {
            const __m256i p0 = _mm256_mul_epu32(c0[i], m0), p1 = _mm256_mul_epu32(c2[i], m1);
            c0[i] = xor3(c1[i], high_half(p1), p->key[round][0]);
            c2[i] = xor3(c3[i], high_half(p0), p->key[round][1]);
            c1[i] = p1;
            c3[i] = p0;
        }
    }
    MM_UNROLL
    for (size_t i = 0; i < 2; i++) {
        c1[i] = _mm256_mul_epu32(c2[i], m1);
        c2[i] = xor3(c3[i], high_half(_mm256_mul_epu32(c0[i], m0)), p->key[PHILOX_ROUNDS - 2][1]);
    }
    MM_UNROLL
    for (size_t i = 0; i < 2; i++) {
        c2[i] = high_half(_mm256_mul_epu32(c2[i], m1));
        c0[i] = xor3(c1[i], c2[i], p->key[PHILOX_ROUNDS - 1][0]);
    }
    return _mm256_blend_epi32(c0[0], _mm256_slli_epi64(c0[1], 32), 0xAA);
}

/* No less than the noise of these bits: -log(-log u) <= -log(1 - u), and 1 - u is at least the rest up to 2^24 less
 * one, of which the exponent is taken. */
static inline __m256 gumbel_bound(__m256i bits)
{
    __m256i rest = _mm256_sub_epi32(_mm256_set1_epi32(0xFFFFFF), _mm256_srli_epi32(bits, 8));
    rest = _mm256_max_epi32(rest, _mm256_set1_epi32(1));
    __m256i e = _mm256_srli_epi32(_mm256_castps_si256(_mm256_cvtepi32_ps(rest)), 23);
    e = _mm256_sub_epi32(_mm256_set1_epi32(24 + 127), e);
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(e), _mm256_set1_ps(PHILOX_LN2), _mm256_set1_ps(PHILOX_SLACK));
}

size_t gumbel_argmax_avx2(const float *x, const int32_t *token, int32_t first, size_t n, uint64_t seed,
                          int32_t position, float least, float *score)
{
    const __m256i step = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256 floor = _mm256_set1_ps(least);
    const philox_start start = philox_begin(seed, position);
    size_t best = n;
    for (size_t i = 0; i < n; i += 8) {
        const size_t m = lanes_left(n, i);
        const __m256 beat = _mm256_set1_ps(*score);
        const __m256 v = first_of(v8_load_n(x + i, m), m);
        __m256 in = _mm256_cmp_ps(_mm256_add_ps(v, _mm256_set1_ps(FM_GUMBEL_MAX)), beat, _CMP_GE_OQ);
        in = _mm256_and_ps(in, _mm256_cmp_ps(v, floor, _CMP_GE_OQ));
        if (!_mm256_movemask_ps(in)) {
            continue;
        }
        const __m256i ids = token ? _mm256_maskload_epi32(token + i, v8_mask(m))
                                  : _mm256_add_epi32(step, _mm256_set1_epi32(first + (int32_t)i));
        const __m256i bits = philox8(ids, &start);
        in = _mm256_and_ps(in, _mm256_cmp_ps(_mm256_add_ps(v, gumbel_bound(bits)), beat, _CMP_GE_OQ));
        for (unsigned left = (unsigned)_mm256_movemask_ps(in); left; left &= left - 1) {
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
