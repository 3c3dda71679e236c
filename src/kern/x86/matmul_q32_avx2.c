/*
 * AVX2 products with weights in blocks of 32: Q4_0, Q4_1, Q5_0, Q5_1, MXFP4 (one plane of codes), Q8_0 and IQ4_NL
 * (two). The rule: kern/README.md; lanes, strips and bounds of chains: matmul_avx2.h.
 *
 * Of one plane, with offset: Q4_0 0 … 15 - 8, Q5_0 0 … 31 - 16, MXFP4 0 … 24 - 12: all within -16 … 16, a chain of
 * 8. Without: Q4_1 0 … 15, a chain of 8; Q5_1 0 … 31, two of 4. The planes of Q8_0 and IQ4_NL are nibbles of
 * value + 128: 0 … 15, and 0 … 15 - 8.
 */
#include "kern/x86/avx2.h"
#include "kern/x86/matmul_avx2.h"

#define BLOCK 32
#define LINES 8

typedef enum q32_format { Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL, MXFP4 } q32_format;

/* What differs between the formats' rows. */
typedef enum q32_kind { ONE_START, ONE_MIN, ONE_MIN_WIDE, TWO_PLANES } q32_kind;

/* Block `at` of the strip. */
MM_INLINE void block_sums(const mm_strip *s, size_t at, const int8_t *q, const int32_t *start, mm_sums isum,
                          const int rows, const q32_kind kind)
{
    const __m256i ones = _mm256_set1_epi16(1);
    const size_t chain = kind == ONE_MIN_WIDE ? 4 : 8;
    mm_sums words;
    if (kind == ONE_START) {
        mm_start(start, words, rows);
    }
    mm_chain(s->codes + LINES * at, chain, q, kind != ONE_START, words, rows);
    mm_widen(words, ones, ones, true, isum, rows);
    if (kind == ONE_MIN_WIDE) {
        mm_chain(s->codes + LINES * at + 4, chain, q + 16, true, words, rows);
        mm_widen(words, ones, ones, false, isum, rows);
    }
    if (kind == TWO_PLANES) {
        const __m256i sixteens = _mm256_set1_epi16(16);
        mm_start(start, words, rows);
        mm_chain(s->high + LINES * at, chain, q, false, words, rows);
        mm_widen(words, sixteens, sixteens, false, isum, rows);
    }
}

MM_INLINE void rows_q32(const mm_strip *s, const uint8_t *w, const mm_rows *a, size_t c, size_t k, float *acc,
                        const int rows, const q32_kind kind)
{
    (void)w;
    const bool has_min = kind == ONE_MIN || kind == ONE_MIN_WIDE;
    for (size_t b = 0; b < k / BLOCK; b++) {
        const size_t at = c / BLOCK + b;
        const float *d = a->d + at * a->d_stride;
        const float *totals = a->totals + at * a->d_stride;
        mm_sums isum;
        block_sums(s, b, a->q + at / 2 * a->q_stride + at % 2 * BLOCK, a->extra + MM_ROWS * at, isum, rows,
                   kind);
        MM_UNROLL
        for (int i = 0; i < rows; i++) {
            const __m256 d_act = _mm256_set1_ps(d[i]);
            MM_UNROLL
            for (size_t h = 0; h < 2; h++) {
                float *to = acc + KERN_PANEL * i + 8 * h;
                __m256 out = _mm256_fmadd_ps(_mm256_cvtepi32_ps(isum[i][h]), _mm256_mul_ps(d_act, s->d[b][h]),
                                             _mm256_load_ps(to));
                if (has_min) {
                    out = _mm256_fmadd_ps(_mm256_set1_ps(totals[i]), _mm256_mul_ps(d_act, s->m[b][h]), out);
                }
                _mm256_store_ps(to, out);
            }
        }
    }
}
MM_ROWS_FNS(rows_one_start, rows_q32, ONE_START);
MM_ROWS_FNS(rows_one_min, rows_q32, ONE_MIN);
MM_ROWS_FNS(rows_one_min_wide, rows_q32, ONE_MIN_WIDE);
MM_ROWS_FNS(rows_two_planes, rows_q32, TWO_PLANES);

/* 2^(e - 128); the two smallest are denormal. */
MM_INLINE __m256 mxfp4_scales(const uint8_t *e)
{
    __m256i v = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)e));
    __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(v, _mm256_set1_epi32(1)), 23);
    __m256i denormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), v);
    __m256i is_normal = _mm256_cmpgt_epi32(v, _mm256_set1_epi32(1));
    return _mm256_castsi256_ps(_mm256_blendv_epi8(denormal, normal, is_normal));
}

MM_INLINE size_t unit_bytes(const q32_format f)
{
    static const size_t n_bytes[] = {
        [Q4_0] = sizeof(unit_q4_0),   [Q4_1] = sizeof(unit_q4_1), [Q5_0] = sizeof(unit_q5_0),
        [Q5_1] = sizeof(unit_q5_1),   [Q8_0] = sizeof(unit_q8_0), [IQ4_NL] = sizeof(unit_q4_0),
        [MXFP4] = sizeof(unit_mxfp4),
    };
    return n_bytes[f];
}

/* Half h of a unit's lines: unsigned codes, for Q8_0 the signed values, for IQ4_NL places in the table. All units but
 * Q8_0's begin with nibbles, and the fifth bits follow. */
MM_INLINE void half_lines(const uint8_t *unit, const q32_format f, const size_t h, __m256i lines[LINES])
{
    /* twice the value of MXFP4, and 12 */
    static const int8_t fp4[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
    if (f == Q8_0) {
        MM_UNROLL
        for (size_t r = 0; r < LINES; r++) {
            lines[r] = mm_load(((const unit_q8_0 *)(const void *)unit)->lines[r] + 32 * h);
        }
        return;
    }
    mm_nibbles(((const unit_q5_1 *)(const void *)unit)->nibbles, h, lines);
    if (f == Q5_0 || f == Q5_1) {
        mm_fifth_bits(((const unit_q5_1 *)(const void *)unit)->bits, h, lines);
    } else if (f == MXFP4) {
        const __m256i table = mm_table(fp4);
        MM_UNROLL
        for (size_t r = 0; r < LINES; r++) {
            lines[r] = _mm256_shuffle_epi8(table, lines[r]);
        }
    }
}

/* Half h of d, and of m where there is one. */
MM_INLINE void half_scales(const uint8_t *unit, const q32_format f, const size_t h, __m256 *d, __m256 *m)
{
    switch (f) {
    case Q4_1:
        *d = mm_scales(((const unit_q4_1 *)(const void *)unit)->d, h);
        *m = mm_scales(((const unit_q4_1 *)(const void *)unit)->m, h);
        break;
    case Q5_0:
        *d = mm_scales(((const unit_q5_0 *)(const void *)unit)->d, h);
        break;
    case Q5_1:
        *d = mm_scales(((const unit_q5_1 *)(const void *)unit)->d, h);
        *m = mm_scales(((const unit_q5_1 *)(const void *)unit)->m, h);
        break;
    case Q8_0:
        *d = mm_scales(((const unit_q8_0 *)(const void *)unit)->d, h);
        break;
    case MXFP4:
        *d = mxfp4_scales(((const unit_mxfp4 *)(const void *)unit)->e + 8 * h);
        break;
    default:
        *d = mm_scales(((const unit_q4_0 *)(const void *)unit)->d, h);
        break;
    }
}

MM_INLINE void unpack(const uint8_t *unit, size_t k, mm_strip *s, const q32_format f)
{
    for (size_t b = 0; b < k / BLOCK; b++, unit += unit_bytes(f)) {
        mm_prefetch(unit, unit_bytes(f));
        for (size_t h = 0; h < 2; h++) {
            __m256i lines[LINES];
            half_lines(unit, f, h, lines);
            half_scales(unit, f, h, &s->d[b][h], &s->m[b][h]);
            MM_UNROLL
            for (size_t r = 0; r < LINES; r++) {
                __m256i code = lines[r];
                if (f == Q8_0) {
                    s->high[LINES * b + r][h] =
                        _mm256_xor_si256(mm_bits(code, 4, 0, 15), _mm256_set1_epi8(8));
                    code = mm_bits(code, 0, 0, 15);
                } else if (f == IQ4_NL) {
                    s->high[LINES * b + r][h] = mm_iq4(code, MM_IQ4_HIGH);
                    code = mm_iq4(code, MM_IQ4_LOW);
                }
                s->codes[LINES * b + r][h] = code;
            }
        }
    }
}

/* Half h of a unit times the rows' codes. */
MM_INLINE void half_sums(const uint8_t *unit, const size_t h, const int8_t *q, const int32_t *start,
                         __m256i *isum, const int rows, const q32_format f)
{
    const __m256i ones = _mm256_set1_epi16(1);
    const bool has_start = f == Q4_0 || f == Q5_0 || f == MXFP4;
    __m256i lines[LINES], words[MM_ROWS];
    half_lines(unit, f, h, lines);
    if (f == Q8_0 || f == IQ4_NL) {
        if (f == IQ4_NL) {
            MM_UNROLL
            for (size_t r = 0; r < LINES; r++) {
                lines[r] = mm_iq4(lines[r], MM_IQ4_VALUE);
            }
        }
        MM_UNROLL
        for (int i = 0; i < rows; i++) {
            isum[i] = _mm256_setzero_si256();
        }
        mm_half_signed(lines, LINES, q, ones, isum, rows);
        return;
    }
    MM_UNROLL
    for (int i = 0; has_start && i < rows; i++) {
        words[i] = _mm256_set1_epi32(start[i]);
    }
    mm_half_chain(lines, f == Q5_1 ? 4 : 8, q, !has_start, words, rows);
    MM_UNROLL
    for (int i = 0; i < rows; i++) {
        isum[i] = _mm256_madd_epi16(words[i], ones);
    }
    if (f == Q5_1) {
        mm_half_chain(lines + 4, 4, q + 16, true, words, rows);
        MM_UNROLL
        for (int i = 0; i < rows; i++) {
            isum[i] = _mm256_add_epi32(isum[i], _mm256_madd_epi16(words[i], ones));
        }
    }
}

MM_INLINE void direct(const mm_strip *s, const uint8_t *unit, const mm_rows *a, size_t c, size_t k,
                      float *acc, const int rows, const q32_format f)
{
    (void)s;
    for (size_t at = c / BLOCK; at < (c + k) / BLOCK; at++, unit += unit_bytes(f)) {
        const float *d = a->d + at * a->d_stride;
        const float *totals = a->totals + at * a->d_stride;
        mm_prefetch(unit, unit_bytes(f));
        MM_UNROLL
        for (size_t h = 0; h < 2; h++) {
            __m256i isum[MM_ROWS];
            __m256 dw, mw;
            half_sums(unit, h, a->q + at / 2 * a->q_stride + at % 2 * BLOCK, a->extra + MM_ROWS * at, isum,
                      rows, f);
            half_scales(unit, f, h, &dw, &mw);
            MM_UNROLL
            for (int i = 0; i < rows; i++) {
                float *to = acc + KERN_PANEL * i + 8 * h;
                const __m256 d_act = _mm256_set1_ps(d[i]);
                __m256 out = _mm256_fmadd_ps(_mm256_cvtepi32_ps(isum[i]), _mm256_mul_ps(d_act, dw),
                                             _mm256_load_ps(to));
                if (f == Q4_1 || f == Q5_1) {
                    out = _mm256_fmadd_ps(_mm256_set1_ps(totals[i]), _mm256_mul_ps(d_act, mw), out);
                }
                _mm256_store_ps(to, out);
            }
        }
    }
}

MM_FORMAT(q4_0, Q4_0, BLOCK, rows_one_start, MM_START32, 8)
MM_FORMAT(q4_1, Q4_1, BLOCK, rows_one_min, MM_NONE, 0)
MM_FORMAT(q5_0, Q5_0, BLOCK, rows_one_start, MM_START32, 16)
MM_FORMAT(q5_1, Q5_1, BLOCK, rows_one_min_wide, MM_NONE, 0)
MM_FORMAT(q8_0, Q8_0, BLOCK, rows_two_planes, MM_START32, 8)
MM_FORMAT(iq4_nl, IQ4_NL, BLOCK, rows_two_planes, MM_START32, 8)
MM_FORMAT(mxfp4, MXFP4, BLOCK, rows_one_start, MM_START32, 12)
