/*
 * Activation rows in AVX-512: the operations of ref/act_quant.c on sixteen values at a time. The largest magnitude
 * does not depend on the order of comparison, the rest is per value; vcvtps2dq rounds half to even. Places in the
 * arrays are counted on from the row's first one: finding each anew costs divisions by the tile.
 */
#include <immintrin.h>
#include <string.h>

#include "kern/x86/avx512.h"

#define ABSMAX_ZERO 0x1p-100f
#define BLOCK_MAX   256
#define BF16_RUN    32
/* Finite values from here up round to infinity in bf16: for that kind they are as bad as infinity itself. */
#define BF16_LIMIT 0x7F7F8000u
#define F32_LIMIT  0x7F800000u

static __mmask16 lanes_first(size_t n)
{
    return (__mmask16)(n < 16 ? (1u << n) - 1 : 0xFFFFu);
}

static bool part_is_good(const float *x, size_t k, uint32_t limit)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
    __m512i most = _mm512_setzero_si512();
    for (size_t c = 0; c < k; c += 16) {
        __m512i v = _mm512_castps_si512(_mm512_maskz_loadu_ps(lanes_first(k - c), x + c));
        most = _mm512_max_epu32(most, _mm512_and_si512(v, magnitude));
    }
    return _mm512_cmpge_epu32_mask(most, _mm512_set1_epi32((int)limit)) == 0;
}

/* d of a block of n values, a multiple of 32, and what they are multiplied with. */
static float block_scale(const float *x, size_t n, __m512 *inv)
{
    __m512 most = _mm512_setzero_ps();
    for (size_t i = 0; i < n; i += 32) {
        most = _mm512_max_ps(most, _mm512_max_ps(_mm512_abs_ps(_mm512_loadu_ps(x + i)),
                                                 _mm512_abs_ps(_mm512_loadu_ps(x + i + 16))));
    }
    const float absmax = _mm512_reduce_max_ps(most);
    if (absmax < ABSMAX_ZERO) {
        *inv = _mm512_setzero_ps();
        return 0.0f;
    }
    *inv = _mm512_set1_ps(127.0f / absmax);
    return absmax / 127.0f;
}

static __m128i sixteen_codes(const float *x, __m512 inv)
{
    return _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x), inv)));
}

/* The sums of sixteen codes: one dword of each 128 bits is that of its four dwords. */
static __m512i sums_of_16(__m512i codes)
{
    __m512i quads = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), codes);
    quads = _mm512_add_epi32(quads, _mm512_shuffle_epi32(quads, _MM_PERM_CDAB));
    return _mm512_add_epi32(quads, _mm512_shuffle_epi32(quads, _MM_PERM_BADC));
}

/* Where the parts of a row's next block go. */
typedef struct act_row {
    int8_t *q;
    float *d;
    int16_t *sums;
    float *totals;
    uint16_t *halves;
} act_row;

/* A block of 32 to the 32 bytes at q. */
static void encode_32(act_row *to, int8_t *q, const float *x)
{
    __m512 inv;
    *to->d = block_scale(x, 32, &inv);
    __m256i codes =
        _mm256_inserti128_si256(_mm256_castsi128_si256(sixteen_codes(x, inv)), sixteen_codes(x + 16, inv), 1);
    _mm256_storeu_si256((__m256i *)(void *)q, codes);
    __m512i sums = sums_of_16(_mm512_castsi256_si512(codes));
    const int low = _mm_cvtsi128_si32(_mm512_castsi512_si128(sums));
    const int high = _mm_cvtsi128_si32(_mm512_extracti32x4_epi32(sums, 1));
    to->sums[0] = (int16_t)low;
    to->sums[1] = (int16_t)high;
    *to->totals = (float)(low + high);
}

/* A block of 256; runs of 64 codes lie run_bytes apart. */
static void encode_256(act_row *to, const float *x, size_t run_bytes)
{
    int32_t sums[16];
    __m512 inv;
    *to->d = block_scale(x, 256, &inv);
    for (size_t run = 0; run < 4; run++, x += 64) {
        __m512i codes = _mm512_castsi128_si512(sixteen_codes(x, inv));
        codes = _mm512_inserti32x4(codes, sixteen_codes(x + 16, inv), 1);
        codes = _mm512_inserti32x4(codes, sixteen_codes(x + 32, inv), 2);
        codes = _mm512_inserti32x4(codes, sixteen_codes(x + 48, inv), 3);
        _mm512_storeu_si512(to->q + run * run_bytes, codes);
        _mm512_mask_compressstoreu_epi32(sums + 4 * run, 0x1111u, sums_of_16(codes));
    }
    const __m512i all = _mm512_loadu_si512(sums);
    const __m512i high =
        _mm512_and_si512(_mm512_add_epi32(all, _mm512_set1_epi32(8)), _mm512_set1_epi32(-16));
    const __m512i high_bits = _mm512_castps_si512(_mm512_cvtepi32_ps(high));
    const __m512i low_bits = _mm512_castps_si512(_mm512_cvtepi32_ps(_mm512_sub_epi32(all, high)));
    _mm256_storeu_si256((__m256i *)(void *)to->sums, _mm512_cvtepi32_epi16(all));
    /* whole numbers this small have nothing in the lower half of their bits */
    _mm512_storeu_si512(to->halves, _mm512_or_si512(_mm512_srli_epi32(high_bits, 16), low_bits));
}

/* Values [k0, k1) of row r into codes; x NULL: all zero. */
static void part_encode(kern_act *a, const float *x, size_t r, size_t k0, size_t k1)
{
    static const float zeros[BLOCK_MAX];
    const size_t run_bytes = a->tile * KERN_ACT_RUN, b0 = k0 / a->block;
    act_row to = {
        .q = kern_act_q(a, r, k0 / KERN_ACT_RUN), .d = kern_act_d(a, r, b0), .sums = kern_act_sums(a, r, b0)};
    if (a->block != BLOCK_MAX) {
        to.totals = kern_act_total(a, r, b0);
    } else {
        to.halves = kern_act_halves(a, r, b0);
    }
    for (size_t at = k0; at < k1; at += a->block) {
        const float *from = x ? x + at : zeros;
        float part[BLOCK_MAX];
        if (x && k1 - at < a->block) {
            memset(part, 0, sizeof part);
            memcpy(part, from, (k1 - at) * sizeof *part);
            from = part;
        }
        if (a->block == BLOCK_MAX) {
            encode_256(&to, from, run_bytes);
            to.q += 4 * run_bytes;
            to.halves += a->tile * KERN_ACT_HALVES;
        } else {
            const size_t odd = at / 32 % 2;
            encode_32(&to, to.q + odd * 32, from);
            to.q += odd * run_bytes;
            to.totals += a->tile;
        }
        to.d += a->tile;
        to.sums += a->tile * (a->block / 16);
    }
    if (k1 == a->k && a->n_blocks * a->block < a->n_runs * KERN_ACT_RUN) { /* an odd number of blocks of 32 */
        memset(to.q + 32, 0, 32);
    }
}

/* Finite values to bf16, half to even: as base/fp16.h. */
static __m256i round_bf16(__m512i x)
{
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(x, 16), _mm512_set1_epi32(1));
    x = _mm512_add_epi32(x, _mm512_add_epi32(_mm512_set1_epi32(0x7FFF), odd));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(x, 16));
}

/* Values [k0, k1) of row r into bf16; x NULL: all zero. */
static void part_round(kern_act *a, const float *x, size_t r, size_t k0, size_t k1)
{
    uint16_t *out = k0 < k1 ? kern_act_bf16(a, r, k0 / BF16_RUN) : NULL;
    for (size_t at = k0; at < k1; at += BF16_RUN, out += a->tile * BF16_RUN) {
        for (size_t i = 0; i < BF16_RUN; i += 16) {
            const __mmask16 inside = x && at + i < k1 ? lanes_first(k1 - at - i) : 0;
            const __m512i v = _mm512_maskz_loadu_epi32(inside, inside ? x + at + i : x);
            _mm256_storeu_si256((__m256i *)(void *)(out + i), round_bf16(v));
        }
    }
}

void act_prepare_avx512(kern_act *a, const float *x, size_t r, size_t k0, size_t k1, uint8_t *bad)
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
