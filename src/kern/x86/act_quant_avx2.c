/*
 * Activation rows in AVX2: the operations of ref/act_quant.c on eight values at a time. The largest magnitude
 * does not depend on the order of comparison, the rest is per value; vcvtps2dq rounds half to even.
 */
#include <immintrin.h>
#include <string.h>

#include "kern/x86/avx2.h"

#define ABSMAX_ZERO 0x1p-100f
#define SUM_RUN     16
#define BLOCK_MAX   256
#define BF16_RUN    32
/* Finite values from here up round to infinity in bf16: for that kind they are as bad as infinity itself. */
#define BF16_LIMIT 0x7F7F8000
#define F32_LIMIT  0x7F800000

/* The first n of eight lanes: all bits set. */
static __m256i lanes_first(size_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

static bool part_is_good(const float *x, size_t k, int limit)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
    const __m256i last_good = _mm256_set1_epi32(limit - 1);
    __m256i over = _mm256_setzero_si256();
    size_t c = 0;
    for (; c + 8 <= k; c += 8) {
        __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)(x + c));
        over = _mm256_or_si256(over, _mm256_cmpgt_epi32(_mm256_and_si256(v, magnitude), last_good));
    }
    if (c < k) {
        __m256i v = _mm256_castps_si256(_mm256_maskload_ps(x + c, lanes_first(k - c)));
        over = _mm256_or_si256(over, _mm256_cmpgt_epi32(_mm256_and_si256(v, magnitude), last_good));
    }
    return _mm256_testz_si256(over, over) != 0;
}

static float block_absmax(const float *x, size_t width)
{
    const __m256 sign = _mm256_set1_ps(-0.0f);
    __m256 most = _mm256_setzero_ps();
    for (size_t i = 0; i < width; i += 8) {
        most = _mm256_max_ps(most, _mm256_andnot_ps(sign, _mm256_loadu_ps(x + i)));
    }
    __m128 half = _mm_max_ps(_mm256_castps256_ps128(most), _mm256_extractf128_ps(most, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    half = _mm_max_ss(half, _mm_movehdup_ps(half));
    return _mm_cvtss_f32(half);
}

/* 32 values into codes, and the sums of each 16 of them. */
static void codes_store(const float *x, __m256 inv, int8_t *q, int16_t *sums)
{
    __m256i v[4];
    for (size_t i = 0; i < 4; i++) {
        v[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), inv));
    }
    __m256i words01 = _mm256_packs_epi32(v[0], v[1]);
    __m256i words23 = _mm256_packs_epi32(v[2], v[3]);
    /* packing works inside 128-bit lanes: dwords come out as 0 2 4 6 | 1 3 5 7 of the eight groups of four */
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i codes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(words01, words23), order);
    _mm256_storeu_si256((__m256i *)(void *)q, codes);
    __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), codes);
    __m256i quads = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    quads = _mm256_hadd_epi32(quads, quads);
    quads = _mm256_hadd_epi32(quads, quads);
    sums[0] = (int16_t)_mm256_extract_epi32(quads, 0);
    sums[1] = (int16_t)_mm256_extract_epi32(quads, 4);
}

/* What is derived from the sixteen sums of a block of 256 (act.h). */
static void halves_store(kern_act *a, size_t r, size_t b, const int16_t *sums)
{
    for (size_t i = 0; i < 16; i += 8) {
        __m256i sum = _mm256_cvtepi16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(sums + i)));
        __m256i high = _mm256_and_si256(_mm256_add_epi32(sum, _mm256_set1_epi32(8)), _mm256_set1_epi32(-16));
        __m256i low = _mm256_castps_si256(_mm256_cvtepi32_ps(_mm256_sub_epi32(sum, high)));
        high = _mm256_castps_si256(_mm256_cvtepi32_ps(high));
        /* whole numbers this small have nothing in the lower half of their bits */
        _mm256_storeu_si256((__m256i *)(void *)(kern_act_halves(a, r, b) + 2 * i),
                            _mm256_or_si256(_mm256_srli_epi32(high, 16), low));
    }
}

/* Block b of row r from its values, whole. */
static void block_encode(kern_act *a, size_t r, size_t b, const float *x)
{
    float absmax = block_absmax(x, a->block);
    bool zero = absmax < ABSMAX_ZERO;
    const __m256 inv = zero ? _mm256_setzero_ps() : _mm256_set1_ps(127.0f / absmax);
    int16_t *sums = kern_act_sums(a, r, b);
    for (size_t i = 0; i < a->block; i += 32) {
        size_t at = b * a->block + i;
        codes_store(x + i, inv, kern_act_q(a, r, at / KERN_ACT_RUN) + at % KERN_ACT_RUN, sums + i / SUM_RUN);
    }
    *kern_act_d(a, r, b) = zero ? 0.0f : absmax / 127.0f;
    if (a->totals) {
        *kern_act_total(a, r, b) = (float)(sums[0] + sums[1]);
    } else {
        halves_store(a, r, b, sums);
    }
}

/* Values [k0, k1) of row r into codes; x NULL: all zero. */
static void part_encode(kern_act *a, const float *x, size_t r, size_t k0, size_t k1)
{
    static const float zeros[BLOCK_MAX];
    const size_t padded = a->n_blocks * a->block;
    if (k1 == a->k && padded < a->n_runs * KERN_ACT_RUN) { /* an odd number of blocks of 32 */
        memset(kern_act_q(a, r, a->n_runs - 1) + 32, 0, 32);
    }
    for (size_t at = k0; at < k1; at += a->block) {
        const float *from = x ? x + at : zeros;
        float part[BLOCK_MAX];
        if (x && k1 - at < a->block) {
            memset(part, 0, sizeof part);
            memcpy(part, from, (k1 - at) * sizeof *part);
            from = part;
        }
        block_encode(a, r, at / a->block, from);
    }
}

/* Finite values to bf16, half to even: as base/fp16.h. */
static __m256i round_bf16(__m256 x)
{
    __m256i u = _mm256_castps_si256(x);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    u = _mm256_add_epi32(u, _mm256_add_epi32(_mm256_set1_epi32(0x7FFF), odd));
    return _mm256_srli_epi32(u, 16);
}

static void part_round(kern_act *a, const float *x, size_t r, size_t k0, size_t k1)
{
    for (size_t at = k0; at < k1; at += BF16_RUN) {
        uint16_t *out = kern_act_bf16(a, r, at / BF16_RUN);
        const size_t n = !x ? 0 : k1 - at < BF16_RUN ? k1 - at : BF16_RUN;
        const float *from = x ? x + at : NULL;
        float part[BF16_RUN];
        if (n < BF16_RUN) {
            memset(part, 0, sizeof part);
            if (n > 0) {
                memcpy(part, from, n * sizeof *part);
            }
            from = part;
        }
        for (size_t i = 0; i < BF16_RUN; i += 16) {
            __m256i low = round_bf16(_mm256_loadu_ps(from + i));
            __m256i high = round_bf16(_mm256_loadu_ps(from + i + 8));
            __m256i both = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xD8);
            _mm256_storeu_si256((__m256i *)(void *)(out + i), both);
        }
    }
}

void act_prepare_avx2(kern_act *a, const float *x, size_t r, size_t k0, size_t k1, uint8_t *bad)
{
    if (!part_is_good(x + k0, k1 - k0, a->kind == KERN_ACT_BF16 ? BF16_LIMIT : F32_LIMIT)) {
        __atomic_store_n(&bad[r], 1, __ATOMIC_RELAXED); /* several threads may say so of one row */
        x = NULL;
    }
    if (a->block) {
        part_encode(a, x, r, k0, k1);
    } else if (a->kind == KERN_ACT_BF16) {
        part_round(a, x, r, k0, k1);
    } else if (x) {
        memcpy(a->f32 + r * a->k + k0, x + k0, (k1 - k0) * sizeof *x);
    } else {
        memset(a->f32 + r * a->k + k0, 0, (k1 - k0) * sizeof *a->f32);
    }
}
