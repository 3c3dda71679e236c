/*
 * vec_avx2: vectors of eight floats with a tail: loads and stores of the first n lanes that touch nothing
 * beyond them. Internal to kern/x86, for files built with AVX2, FMA and F16C.
 */
#ifndef HEARTH_KERN_X86_VEC_AVX2_H
#define HEARTH_KERN_X86_VEC_AVX2_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* All ones in the first n of eight lanes, n <= 8. */
static inline __m256i v8_mask(size_t n)
{
    static const int32_t ones_then_zeros[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
    return _mm256_loadu_si256((const __m256i *)(const void *)(ones_then_zeros + 8 - n));
}

/* The first n floats, +0 in the other lanes. */
static inline __m256 v8_load_n(const float *p, size_t n)
{
    return n == 8 ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, v8_mask(n));
}

static inline void v8_store_n(float *p, size_t n, __m256 v)
{
    if (n == 8) {
        _mm256_storeu_ps(p, v);
    } else {
        _mm256_maskstore_ps(p, v8_mask(n), v);
    }
}

/* Eight binary16 values at any address, widened. */
static inline __m256 v8_load_f16(const void *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

static inline __m256 v8_load_f16_n(const void *p, size_t n)
{
    uint16_t h[8] = {0};
    memcpy(h, p, n * sizeof h[0]);
    return v8_load_f16(h);
}

/* Narrowed to binary16, half to even; a NaN becomes the one NaN of base/fp16.h (the instruction keeps
 * payloads). */
static inline __m128i v8_to_f16(__m256 v)
{
    __m256 nan = _mm256_cmp_ps(v, v, _CMP_UNORD_Q);
    __m256 sign = _mm256_and_ps(v, _mm256_set1_ps(-0.0f));
    __m256 canon = _mm256_or_ps(sign, _mm256_castsi256_ps(_mm256_set1_epi32(0x7FC00000)));
    return _mm256_cvtps_ph(_mm256_blendv_ps(v, canon, nan), _MM_FROUND_TO_NEAREST_INT);
}

/* The sum of 16 lanes, 0-7 in lo, 8-15 in hi: 8+8, 4+4, 2+2, 1+1 (rule 6). */
static inline float v16_sum(__m256 lo, __m256 hi)
{
    __m256 eight = _mm256_add_ps(lo, hi);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

#endif
