/*
 * Products with Q4_K, Q5_K, Q6_K and IQ4_XS (the rule: kern/README.md; the lanes: matmul_avx512.h): activations in
 * blocks of 256, a dot product for each sub-block, times its scale.
 *
 * vpdpbusd wants unsigned weights: codes are used as stored or with their table raised, by 32 (Q6_K) or 128
 * (IQ4_XS), and the sum starts at minus what that adds, offset * sc_j * (sum of q over sub-block j): vpdpwssd of
 * the 16-bit sums with words of -offset * sc_j, at most 32 * 128 = 128 * 32 = 4096. Bounds of a sub-block's sum:
 * 63 * 127 * 16 = 128,016 (Q6_K), 31 * 127 * 32 = 125,984 (Q5_K), 241 * 127 * 32 = 979,424 (IQ4_XS); times the
 * scales and summed over the block 262 M, 63 M and 251 M.
 *
 * Q4_K multiplies and adds in fp32, which costs less than vpmulld and is exact: four sub-blocks reach at most
 * 4 * 32 * 15 * 127 * 63 = 15,361,920, below 2^24, and the sum of the two halves of a block is rounded once, as
 * (float)isum is.
 */
#include "kern/x86/matmul_avx512.h"

#define PAIRS 8 /* of 16-bit sums in a block */

/* A strip: one block, all unpacked. */
typedef struct k_block {
    pack_line lines[8][8];
    int32_t sc[16][KERN_PANEL];       /* per sub-block of 16 (Q6_K) or 32; Q4_K: the bits of floats */
    int32_t words[PAIRS][KERN_PANEL]; /* to multiply a pair of sums with */
    float d[KERN_PANEL];
    float dmin[KERN_PANEL];
} k_block;

/* Where a block's operands lie: `from` is the type whose unit the block is, or this, if it is a k_block. */
#define STRIP GGUF_TYPE_COUNT

MM_INLINE size_t unit_bytes(const gguf_type type)
{
    switch ((int)type) {
    case GGUF_TYPE_Q4_K:
        return sizeof(unit_q4_k);
    case GGUF_TYPE_Q5_K:
        return sizeof(unit_q5_k);
    case GGUF_TYPE_Q6_K:
        return sizeof(unit_q6_k);
    default:
        return sizeof(unit_iq4_xs);
    }
}

MM_INLINE bool has_minima(const gguf_type type)
{
    return type == GGUF_TYPE_Q4_K || type == GGUF_TYPE_Q5_K;
}

/* Sub-scales in 32 values. */
MM_INLINE size_t scales_per_32(const gguf_type type)
{
    return type == GGUF_TYPE_Q6_K ? 2 : 1;
}

/* Line r of values 32 s … 32 s + 31, raised. */
MM_INLINE __m512i block_line(const void *block, const gguf_type from, size_t s, const int r)
{
    const unit_q5_k *u5 = block; /* the nibbles of all lie in the same place */
    const unit_q6_k *u6 = block;
    switch ((int)from) {
    case STRIP:
        return mm_load(((const k_block *)block)->lines[s][r]);
    case GGUF_TYPE_Q5_K:
        return mm_or_and(mm_nibble(u5->nibbles[s], r), mm_shift(mm_load(u5->bits[s]), 4 - r),
                         _mm512_set1_epi8(16));
    case GGUF_TYPE_Q6_K:
        return mm_or_and(mm_nibble(u6->nibbles[s], r),
                         mm_shift(mm_load(u6->pairs[s][r / 4]), 4 - 2 * (r % 4)), _mm512_set1_epi8(48));
    case GGUF_TYPE_IQ4_XS:
        return _mm512_shuffle_epi8(mm_table_iq4(), mm_nibble(u5->nibbles[s], r));
    default:
        return mm_nibble(u5->nibbles[s], r);
    }
}

/* Scale j, as the sub-block's sum is multiplied with it. */
MM_INLINE __m512i block_scale(const void *block, const gguf_type from, size_t j)
{
    switch ((int)from) {
    case STRIP:
        return mm_load(((const k_block *)block)->sc[j]);
    case GGUF_TYPE_Q5_K:
        return mm_bytes_u(((const unit_q5_k *)block)->sc[j]);
    case GGUF_TYPE_Q6_K:
        return mm_bytes_s(((const unit_q6_k *)block)->sc[j]);
    case GGUF_TYPE_IQ4_XS:
        return mm_bytes_s(((const unit_iq4_xs *)block)->sc[j]);
    default:
        return _mm512_castps_si512(_mm512_cvtepi32_ps(mm_bytes_u(((const unit_q4_k *)block)->sc[j])));
    }
}

/* Two words a lane: low, high. */
MM_INLINE __m512i word_pairs(__m512i low, __m512i high)
{
    return _mm512_mask_mov_epi16(_mm512_slli_epi32(high, 16), 0x55555555u, low);
}

/* What the sums of values 32 s … 32 s + 15 and 32 s + 16 … 32 s + 31 are multiplied with. */
MM_INLINE __m512i block_words(const void *block, const gguf_type from, size_t s)
{
    __m512i low, high;
    switch ((int)from) {
    case STRIP:
        return mm_load(((const k_block *)block)->words[s]);
    case GGUF_TYPE_Q5_K:
        low = high = mm_bytes_u(((const unit_q5_k *)block)->m[s]);
        break;
    case GGUF_TYPE_Q6_K:
        low = _mm512_slli_epi32(mm_bytes_s(((const unit_q6_k *)block)->sc[2 * s]), 5);
        high = _mm512_slli_epi32(mm_bytes_s(((const unit_q6_k *)block)->sc[2 * s + 1]), 5);
        return _mm512_sub_epi16(_mm512_setzero_si512(), word_pairs(low, high));
    case GGUF_TYPE_IQ4_XS:
        low = high = _mm512_slli_epi32(mm_bytes_s(((const unit_iq4_xs *)block)->sc[s]), 7);
        return _mm512_sub_epi16(_mm512_setzero_si512(), word_pairs(low, high));
    default:
        low = high = mm_bytes_u(((const unit_q4_k *)block)->m[s]);
        break;
    }
    return word_pairs(low, high);
}

MM_INLINE __m512 block_d(const void *block, const gguf_type from)
{
    switch ((int)from) {
    case STRIP:
        return _mm512_load_ps(((const k_block *)block)->d);
    case GGUF_TYPE_Q5_K:
        return mm_halves(((const unit_q5_k *)block)->d);
    case GGUF_TYPE_Q6_K:
        return mm_halves(((const unit_q6_k *)block)->d);
    case GGUF_TYPE_IQ4_XS:
        return mm_halves(((const unit_iq4_xs *)block)->d);
    default:
        return mm_halves(((const unit_q4_k *)block)->d);
    }
}

MM_INLINE __m512 block_dmin(const void *block, const gguf_type from)
{
    switch ((int)from) {
    case STRIP:
        return _mm512_load_ps(((const k_block *)block)->dmin);
    case GGUF_TYPE_Q5_K:
        return mm_halves(((const unit_q5_k *)block)->dmin);
    default:
        return mm_halves(((const unit_q4_k *)block)->dmin);
    }
}

/* One block of each of `panels` panels and the activations that meet it. */
typedef struct k_work {
    const uint8_t *block;
    size_t stride; /* bytes from a panel's block to the next panel's */
    size_t ahead;  /* how far behind a unit to fetch */
    /* of the first row; the row after a row lies 64 bytes, one d and sixteen sums on */
    const int8_t *q;
    size_t run_bytes; /* from a run of 64 codes to the next one of the same row */
    const float *d;
    const int16_t *sums;
} k_work;

/* Lines r0 … r1 - 1 of values 32 s … 32 s + 31: dot[panel][row]. */
MM_INLINE void lines_dot(const k_work *x, const gguf_type from, size_t s, const int r0, const int r1,
                         __m512i *dot, const size_t rows, const size_t panels)
{
    const int8_t *q = x->q + s / 2 * x->run_bytes + s % 2 * 32;
    mm_zero_int(dot, rows * panels);
    MM_UNROLL
    for (size_t p = 0; from != STRIP && p < panels; p++) {
        const size_t part = unit_bytes(from) / 8 * (size_t)(r1 - r0) / 8;
        mm_prefetch(x->block + p * x->stride + (s * 8 + (size_t)r0) / (size_t)(r1 - r0) * part, x->ahead,
                    part);
    }
    MM_UNROLL
    for (int r = r0; r < r1; r++) {
        __m512i line[MM_PANELS];
        MM_UNROLL
        for (size_t p = 0; p < panels; p++) {
            line[p] = block_line(x->block + p * x->stride, from, s, r);
        }
        MM_UNROLL
        for (size_t i = 0; i < rows; i++) {
            const __m512i codes = mm_dword(q + i * KERN_ACT_RUN + 4 * r);
            MM_UNROLL
            for (size_t p = 0; p < panels; p++) {
                dot[p * rows + i] = _mm512_dpbusd_epi32(dot[p * rows + i], line[p], codes);
            }
        }
        MM_ORDER();
    }
}

/* out[panel][row] += the pairs of sums times the words. */
MM_INLINE void pairs_dot(const k_work *x, const gguf_type from, __m512i *out, const size_t rows,
                         const size_t panels)
{
    for (size_t s = 0; s < PAIRS; s++) {
        MM_UNROLL
        for (size_t p = 0; p < panels; p++) {
            const __m512i words = block_words(x->block + p * x->stride, from, s);
            MM_UNROLL
            for (size_t i = 0; i < rows; i++) {
                out[p * rows + i] =
                    _mm512_dpwssd_epi32(out[p * rows + i], words, mm_dword(x->sums + i * 16 + 2 * s));
            }
        }
        MM_ORDER();
    }
}

/* (float)isum of Q4_K. */
MM_INLINE void sum_in_floats(const k_work *x, const gguf_type from, __m512 *isum, const size_t rows,
                             const size_t panels)
{
    __m512i dot[MM_TILE];
    for (size_t half = 0; half < 2; half++) {
        __m512 part[MM_TILE];
        mm_zero(part, rows * panels);
        for (size_t s = 4 * half; s < 4 * half + 4; s++) {
            lines_dot(x, from, s, 0, 8, dot, rows, panels);
            MM_UNROLL
            for (size_t p = 0; p < panels; p++) {
                const __m512 sc = _mm512_castsi512_ps(block_scale(x->block + p * x->stride, from, s));
                MM_UNROLL
                for (size_t i = p * rows; i < (p + 1) * rows; i++) {
                    part[i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[i]), sc, part[i]);
                }
            }
        }
        MM_UNROLL
        for (size_t i = 0; i < rows * panels; i++) {
            isum[i] = half == 0 ? part[i] : _mm512_add_ps(isum[i], part[i]);
        }
    }
}

/* (float)isum of the others. */
MM_INLINE void sum_in_integers(const k_work *x, const gguf_type from, const gguf_type type, __m512 *isum,
                               const size_t rows, const size_t panels)
{
    __m512i sum[MM_TILE], dot[MM_TILE];
    mm_zero_int(sum, rows * panels);
    if (!has_minima(type)) { /* what the raised table adds */
        pairs_dot(x, from, sum, rows, panels);
    }
    const size_t per = scales_per_32(type);
    for (size_t s = 0; s < 8; s++) {
        MM_UNROLL
        for (size_t part = 0; part < per; part++) {
            lines_dot(x, from, s, (int)(8 / per * part), (int)(8 / per * (part + 1)), dot, rows, panels);
            MM_UNROLL
            for (size_t p = 0; p < panels; p++) {
                const __m512i sc = block_scale(x->block + p * x->stride, from, s * per + part);
                MM_UNROLL
                for (size_t i = p * rows; i < (p + 1) * rows; i++) {
                    sum[i] = _mm512_add_epi32(sum[i], _mm512_mullo_epi32(dot[i], sc));
                }
            }
        }
    }
    MM_UNROLL
    for (size_t i = 0; i < rows * panels; i++) {
        isum[i] = _mm512_cvtepi32_ps(sum[i]);
    }
}

MM_INLINE void block_add(const k_work *x, const gguf_type from, const gguf_type type, __m512 *acc,
                         const size_t rows, const size_t panels)
{
    __m512 isum[MM_TILE];
    if (type == GGUF_TYPE_Q4_K) {
        sum_in_floats(x, from, isum, rows, panels);
    } else {
        sum_in_integers(x, from, type, isum, rows, panels);
    }
    MM_UNROLL
    for (size_t p = 0; p < panels; p++) {
        const __m512 d = block_d(x->block + p * x->stride, from);
        MM_UNROLL
        for (size_t i = 0; i < rows; i++) {
            __m512 *to = &acc[p * rows + i];
            *to = _mm512_fmadd_ps(isum[p * rows + i], _mm512_mul_ps(_mm512_set1_ps(x->d[i]), d), *to);
        }
    }
    if (!has_minima(type)) {
        return;
    }
    __m512i msum[MM_TILE];
    mm_zero_int(msum, rows * panels);
    pairs_dot(x, from, msum, rows, panels);
    MM_UNROLL
    for (size_t p = 0; p < panels; p++) {
        const __m512 dmin = block_dmin(x->block + p * x->stride, from);
        MM_UNROLL
        for (size_t i = 0; i < rows; i++) {
            __m512 *to = &acc[p * rows + i];
            *to = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(msum[p * rows + i]),
                                   _mm512_mul_ps(_mm512_set1_ps(x->d[i]), dmin), *to);
        }
    }
}

MM_INLINE void few(const uint8_t *panel, size_t panel_bytes, const kern_act *a, const gguf_type type,
                   __m512 *out, const size_t rows, const size_t panels)
{
    k_work x = {panel, panel_bytes, 0, a->q, rows * KERN_ACT_RUN, a->d, a->sums};
    __m512 acc[MM_TILE];
    mm_zero(acc, rows * panels);
    for (size_t b = 0; b < a->n_blocks; b++, x.block += unit_bytes(type)) {
        x.ahead = mm_ahead(b * unit_bytes(type), unit_bytes(type), panel_bytes, panels);
        block_add(&x, type, type, acc, rows, panels);
        x.q += 4 * rows * KERN_ACT_RUN;
        x.d += rows;
        x.sums += 16 * rows;
    }
    mm_copy(out, acc, rows * panels);
}

MM_INLINE void unpack(const uint8_t *panel, size_t at, size_t n, size_t ahead, const gguf_type type,
                      k_block *strip)
{
    const uint8_t *unit = panel + at / 256 * unit_bytes(type);
    (void)n;
    const size_t scales = 8 * scales_per_32(type);
    for (size_t s = 0; s < 8; s++) {
        mm_prefetch(unit + s * (unit_bytes(type) / 8), ahead, unit_bytes(type) / 8);
        MM_UNROLL
        for (int r = 0; r < 8; r++) {
            _mm512_store_si512(strip->lines[s][r], block_line(unit, type, s, r));
        }
        _mm512_store_si512(strip->words[s], block_words(unit, type, s));
    }
    for (size_t j = 0; j < scales; j++) {
        _mm512_store_si512(strip->sc[j], block_scale(unit, type, j));
    }
    _mm512_store_ps(strip->d, block_d(unit, type));
    if (has_minima(type)) {
        _mm512_store_ps(strip->dmin, block_dmin(unit, type));
    }
}

MM_INLINE void add(const void *strips, size_t at, size_t n, const gguf_type type, const kern_act *a,
                   size_t row, float *sums, const size_t panels)
{
    const size_t place = mm_place(row, a->n_blocks, at / 256);
    (void)n;
    const k_work x = {strips,
                      sizeof(k_block),
                      0,
                      mm_codes(a, row, at / KERN_ACT_RUN),
                      KERN_ACT_TILE * KERN_ACT_RUN,
                      a->d + place,
                      a->sums + 16 * place};
    __m512 acc[MM_TILE];
    mm_load_sums(acc, sums, MM_GROUP * panels);
    block_add(&x, STRIP, type, acc, MM_GROUP, panels);
    mm_store_sums(sums, acc, MM_GROUP * panels);
}

#define K_PRODUCT(name, type) MM_TYPE(name, type, 256, sizeof(k_block))

K_PRODUCT(q4_k, GGUF_TYPE_Q4_K)
K_PRODUCT(q5_k, GGUF_TYPE_Q5_K)
K_PRODUCT(q6_k, GGUF_TYPE_Q6_K)
K_PRODUCT(iq4_xs, GGUF_TYPE_IQ4_XS)
