/*
 * Products with Q4_K, Q5_K, Q6_K and IQ4_XS (the rule: kern/README.md; the lanes: matmul_avx512.h): activations in
 * blocks of 256, a dot product for each sub-block, times its scale.
 *
 * Few rows: vpdpbusd wants unsigned weights: codes are used as stored or with their table raised, by 32 (Q6_K) or 128
 * (IQ4_XS), and the sum starts at minus what that adds, offset * sc_j * (sum of q over sub-block j): vpdpwssd of
 * the 16-bit sums with words of -offset * sc_j, at most 32 * 128 = 128 * 32 = 4096. Bounds of a sub-block's sum:
 * 63 * 127 * 16 = 128,016 (Q6_K), 31 * 127 * 32 = 125,984 (Q5_K), 241 * 127 * 32 = 979,424 (IQ4_XS); times the
 * scales and summed over the block 262 M, 63 M and 251 M.
 *
 * Q4_K multiplies and adds in fp32, which costs less than vpmulld and is exact: four sub-blocks reach at most
 * 4 * 32 * 15 * 127 * 63 = 15,361,920, below 2^24, and the sum of the two halves of a block is rounded once, as
 * (float)isum is.
 *
 * Many rows count operations, not bytes: the second half of this file.
 */
#include "kern/x86/strip_k_avx512.h"

#define PAIRS 8 /* of 16-bit sums in a block */

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
MM_INLINE __m512i block_line(const void *block, const gguf_type type, size_t s, const int r)
{
    const unit_q5_k *u5 = block; /* the nibbles of all lie in the same place */
    const unit_q6_k *u6 = block;
    switch ((int)type) {
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

/* Scale j. */
MM_INLINE __m512i block_sc(const void *block, const gguf_type type, size_t j)
{
    switch ((int)type) {
    case GGUF_TYPE_Q5_K:
        return mm_bytes_u(((const unit_q5_k *)block)->sc[j]);
    case GGUF_TYPE_Q6_K:
        return mm_bytes_s(((const unit_q6_k *)block)->sc[j]);
    case GGUF_TYPE_IQ4_XS:
        return mm_bytes_s(((const unit_iq4_xs *)block)->sc[j]);
    default:
        return mm_bytes_u(((const unit_q4_k *)block)->sc[j]);
    }
}

/* Minimum j of Q4_K and Q5_K. */
MM_INLINE __m512i block_m(const void *block, const gguf_type type, size_t j)
{
    return mm_bytes_u(type == GGUF_TYPE_Q5_K ? ((const unit_q5_k *)block)->m[j]
                                             : ((const unit_q4_k *)block)->m[j]);
}

/* Two words a lane: low, high. */
MM_INLINE __m512i word_pairs(__m512i low, __m512i high)
{
    return _mm512_mask_mov_epi16(_mm512_slli_epi32(high, 16), 0x55555555u, low);
}

/* What the sums of values 32 s … 32 s + 15 and 32 s + 16 … 32 s + 31 are multiplied with. */
MM_INLINE __m512i block_words(const void *block, const gguf_type type, size_t s)
{
    if (has_minima(type)) {
        const __m512i m = block_m(block, type, s);
        return word_pairs(m, m);
    }
    const size_t per = scales_per_32(type);
    const unsigned shift = type == GGUF_TYPE_Q6_K ? 5 : 7;
    const __m512i low = _mm512_slli_epi32(block_sc(block, type, per * s), shift);
    const __m512i high = _mm512_slli_epi32(block_sc(block, type, per * s + per - 1), shift);
    return _mm512_sub_epi16(_mm512_setzero_si512(), word_pairs(low, high));
}

MM_INLINE __m512 block_d(const void *block, const gguf_type type)
{
    switch ((int)type) {
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

MM_INLINE __m512 block_dmin(const void *block, const gguf_type type)
{
    return mm_halves(type == GGUF_TYPE_Q5_K ? ((const unit_q5_k *)block)->dmin
                                            : ((const unit_q4_k *)block)->dmin);
}

/* One block of each of `panels` panels and the activations that meet it. */
typedef struct k_work {
    const uint8_t *block;
    size_t stride; /* bytes from a panel's block to the next panel's */
    size_t ahead;  /* how far behind a unit to fetch */
    /* of the first row; the row after a row lies 64 bytes, one d and sixteen sums on */
    const int8_t *q;
    const float *d;
    const int16_t *sums;
} k_work;

/* Lines r0 … r1 - 1 of values 32 s … 32 s + 31: dot[panel][row]. */
MM_INLINE void lines_dot(const k_work *x, const gguf_type type, size_t s, const int r0, const int r1,
                         __m512i *dot, const size_t rows, const size_t panels)
{
    const int8_t *q = x->q + s / 2 * rows * KERN_ACT_RUN + s % 2 * 32;
    mm_zero_int(dot, rows * panels);
    MM_UNROLL
    for (size_t p = 0; p < panels; p++) {
        const size_t part = unit_bytes(type) / 8 * (size_t)(r1 - r0) / 8;
        mm_prefetch(x->block + p * x->stride + (s * 8 + (size_t)r0) / (size_t)(r1 - r0) * part, x->ahead,
                    part);
    }
    MM_UNROLL
    for (int r = r0; r < r1; r++) {
        __m512i line[MM_PANELS];
        MM_UNROLL
        for (size_t p = 0; p < panels; p++) {
            line[p] = block_line(x->block + p * x->stride, type, s, r);
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
MM_INLINE void pairs_dot(const k_work *x, const gguf_type type, __m512i *out, const size_t rows,
                         const size_t panels)
{
    for (size_t s = 0; s < PAIRS; s++) {
        MM_UNROLL
        for (size_t p = 0; p < panels; p++) {
            const __m512i words = block_words(x->block + p * x->stride, type, s);
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
MM_INLINE void sum_in_floats(const k_work *x, const gguf_type type, __m512 *isum, const size_t rows,
                             const size_t panels)
{
    __m512i dot[MM_TILE];
    for (size_t half = 0; half < 2; half++) {
        __m512 part[MM_TILE];
        mm_zero(part, rows * panels);
        for (size_t s = 4 * half; s < 4 * half + 4; s++) {
            lines_dot(x, type, s, 0, 8, dot, rows, panels);
            MM_UNROLL
            for (size_t p = 0; p < panels; p++) {
                const __m512 sc = _mm512_cvtepi32_ps(block_sc(x->block + p * x->stride, type, s));
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
MM_INLINE void sum_in_integers(const k_work *x, const gguf_type type, __m512 *isum, const size_t rows,
                               const size_t panels)
{
    __m512i sum[MM_TILE], dot[MM_TILE];
    mm_zero_int(sum, rows * panels);
    if (!has_minima(type)) { /* what the raised table adds */
        pairs_dot(x, type, sum, rows, panels);
    }
    const size_t per = scales_per_32(type);
    for (size_t s = 0; s < 8; s++) {
        MM_UNROLL
        for (size_t part = 0; part < per; part++) {
            lines_dot(x, type, s, (int)(8 / per * part), (int)(8 / per * (part + 1)), dot, rows, panels);
            MM_UNROLL
            for (size_t p = 0; p < panels; p++) {
                const __m512i sc = block_sc(x->block + p * x->stride, type, s * per + part);
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

MM_INLINE void block_add(const k_work *x, const gguf_type type, __m512 *acc, const size_t rows,
                         const size_t panels)
{
    __m512 isum[MM_TILE];
    if (type == GGUF_TYPE_Q4_K) {
        sum_in_floats(x, type, isum, rows, panels);
    } else {
        sum_in_integers(x, type, isum, rows, panels);
    }
    MM_UNROLL
    for (size_t p = 0; p < panels; p++) {
        const __m512 d = block_d(x->block + p * x->stride, type);
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
    pairs_dot(x, type, msum, rows, panels);
    MM_UNROLL
    for (size_t p = 0; p < panels; p++) {
        const __m512 dmin = block_dmin(x->block + p * x->stride, type);
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
    k_work x = {panel, panel_bytes, 0, a->q, a->d, a->sums};
    __m512 acc[MM_TILE];
    mm_zero(acc, rows * panels);
    for (size_t b = 0; b < a->n_blocks; b++, x.block += unit_bytes(type)) {
        x.ahead = mm_ahead(b * unit_bytes(type), unit_bytes(type), panel_bytes, panels);
        block_add(&x, type, acc, rows, panels);
        x.q += 4 * rows * KERN_ACT_RUN;
        x.d += rows;
        x.sums += 16 * rows;
    }
    mm_copy(out, acc, rows * panels);
}

/*
 * Many rows of Q4_K, Q5_K and Q6_K.
 *
 * Each dword of a pair of lines (strip_k_avx512.h) is half of a sub-block's dot product and fits sixteen bits, so that
 * vpackssdw makes one vector of A's and B's, output by output, and vpdpwssd scales it: two operations for two vectors,
 * where vpmulld and an addition take six.
 *
 * What fits: 16 * 15 * 127 = 30,480 for half a sub-block of Q4_K as it is stored; less an offset and signed,
 * 16 * 16 * 127 = 32,512 for Q5_K and 8 * 32 * 127 = 32,512 for Q6_K. The codes are the unsigned operand then, raised
 * by 128, and a dword starts at minus 128 times the sum of its weights.
 */
typedef struct k_strip {
    line_pair pairs[32];
    int32_t start[16][2][KERN_PANEL]; /* of a sub-block: A, B */
    int32_t sc[16][KERN_PANEL];       /* of a sub-block, as both words */
    int32_t raise[4][KERN_PANEL];     /* Q5_K: 16 sc of two sub-blocks, what the offset took off */
    int32_t m[4][KERN_PANEL];         /* of two sub-blocks */
    float d[KERN_PANEL];
    float dmin[KERN_PANEL];
} k_strip;

MM_INLINE char offset_of(const gguf_type type)
{
    return type == GGUF_TYPE_Q6_K ? 32 : type == GGUF_TYPE_Q5_K ? 16 : 0;
}

/* Pairs of lines of a sub-block. */
MM_INLINE size_t pairs_of(const gguf_type type)
{
    return 4 / scales_per_32(type);
}

/* Sub-block j. */
MM_INLINE void unpack_lines(const uint8_t *unit, const gguf_type type, size_t j, const int part,
                            k_strip *strip)
{
    const int n = (int)pairs_of(type);
    __m512i start[2];
    start[0] = start[1] = _mm512_set1_epi32(128 * offset_of(type) * 4 * n);
    MM_UNROLL
    for (int t = 0; t < n; t++) {
        const int r = 2 * (part * n + t);
        const size_t s = j / scales_per_32(type);
        const __m512i low = block_line(unit, type, s, r), high = block_line(unit, type, s, r + 1);
        __m512i line[2];
        pair_of(low, high, line);
        MM_UNROLL
        for (int h = 0; h < 2; h++) {
            start[h] = _mm512_dpbusd_epi32(start[h], line[h], _mm512_set1_epi8(-128));
            _mm512_store_si512(strip->pairs[j * (size_t)n + (size_t)t][h],
                               _mm512_sub_epi8(line[h], _mm512_set1_epi8(offset_of(type))));
        }
    }
    if (offset_of(type)) {
        _mm512_store_si512(strip->start[j][0], start[0]);
        _mm512_store_si512(strip->start[j][1], start[1]);
    }
    const __m512i sc = block_sc(unit, type, j);
    _mm512_store_si512(strip->sc[j], word_pairs(sc, sc));
}

MM_INLINE void unpack_packed(const uint8_t *unit, const gguf_type type, k_strip *strip)
{
    const size_t per = scales_per_32(type);
    for (size_t s = 0; s < 8; s++) {
        MM_UNROLL
        for (size_t part = 0; part < per; part++) {
            unpack_lines(unit, type, s * per + part, (int)part, strip);
        }
    }
    _mm512_store_ps(strip->d, block_d(unit, type));
    if (!has_minima(type)) {
        return;
    }
    _mm512_store_ps(strip->dmin, block_dmin(unit, type));
    for (size_t j = 0; j < 4; j++) {
        _mm512_store_si512(strip->m[j],
                           word_pairs(block_m(unit, type, 2 * j), block_m(unit, type, 2 * j + 1)));
        if (offset_of(type)) {
            const __m512i sc = word_pairs(block_sc(unit, type, 2 * j), block_sc(unit, type, 2 * j + 1));
            _mm512_store_si512(strip->raise[j], _mm512_slli_epi16(sc, 4));
        }
    }
}

/* The sums of 32 codes of MM_GROUP rows, as words; those of sub-blocks 2 j and 2 j + 1 are dword pair_at(row, j). */
MM_INLINE __m512i sums_of_32(const int16_t *sums)
{
    const __m512i ones = _mm512_set1_epi16(1);
    return _mm512_packs_epi32(_mm512_madd_epi16(mm_load(sums), ones),
                              _mm512_madd_epi16(mm_load(sums + 32), ones));
}

MM_INLINE size_t pair_at(size_t row, size_t j)
{
    return row % 2 * 8 + j / 2 * 4 + row / 2 * 2 + j % 2;
}

/* sum[panel][row] += the sums of 32 times words, of which a panel's lie a strip behind another's. */
MM_INLINE void sums_dot(const int32_t (*words)[KERN_PANEL], const int32_t *pairs, __m512i *sum,
                        const size_t panels)
{
    MM_UNROLL
    for (size_t j = 0; j < 4; j++) {
        MM_UNROLL
        for (size_t i = 0; i < MM_GROUP * panels; i++) {
            const uint8_t *of_panel = (const uint8_t *)words[j] + i / MM_GROUP * sizeof(k_strip);
            sum[i] =
                _mm512_dpwssd_epi32(sum[i], mm_load(of_panel), mm_dword(pairs + pair_at(i % MM_GROUP, j)));
        }
        MM_ORDER();
    }
}

MM_INLINE void add_packed(const mm_chunk *c, const gguf_type type, float *sums, const size_t panels)
{
    const k_strip *strip = (const void *)c->strips;
    const kern_act *a = c->a;
    const size_t place = mm_place(c->r, a->n_blocks, c->at / 256);
    uintptr_t fetch = c->fetch;
    const bool raised = offset_of(type) != 0;
    _Alignas(64) group_codes q;
    _Alignas(64) int32_t pairs[KERN_PANEL];
    __m512i sum[PAIR_SUMS];
    mm_zero_int(sum, MM_GROUP * panels);
    if (has_minima(type)) {
        _mm512_store_si512(pairs, sums_of_32(a->sums + 16 * place));
    }
    group_codes_make(q, c, raised);
    if (type == GGUF_TYPE_Q5_K) {
        sums_dot(strip->raise, pairs, sum, panels);
    }
    for (size_t j = 0; j < 32 / pairs_of(type); j++) {
        __m512i dot[2][PAIR_SUMS];
        if (j % scales_per_32(type) == 0) {
            mm_fetch(c, &fetch, panels);
        }
        MM_UNROLL
        for (size_t i = 0; i < 2 * MM_GROUP * panels; i++) {
            dot[i % 2][i / 2] =
                raised ? mm_load(strip[i / 2 / MM_GROUP].start[j][i % 2]) : _mm512_setzero_si512();
        }
        MM_UNROLL
        for (size_t t = 0; t < pairs_of(type); t++) {
            pair_dot(dot, strip->pairs, sizeof *strip, j * pairs_of(type) + t, q, raised, panels);
        }
        MM_UNROLL
        for (size_t i = 0; i < MM_GROUP * panels; i++) {
            sum[i] = _mm512_dpwssd_epi32(sum[i], _mm512_packs_epi32(dot[0][i], dot[1][i]),
                                         mm_load(strip[i / MM_GROUP].sc[j]));
        }
    }
    __m512 acc[PAIR_SUMS];
    mm_load_sums(acc, sums, MM_GROUP * panels);
    mm_add_scaled(acc, sum, a->d + place, strip->d, sizeof *strip, false, panels);
    if (has_minima(type)) {
        mm_zero_int(sum, MM_GROUP * panels);
        sums_dot(strip->m, pairs, sum, panels);
        mm_add_scaled(acc, sum, a->d + place, strip->dmin, sizeof *strip, true, panels);
    }
    mm_store_sums(sums, acc, MM_GROUP * panels);
}

/* Many rows of IQ4_XS, whose table's dot products do not fit sixteen bits. A sub-block's starts at -128 times the sum
 * of its codes. */
typedef struct iq4_strip {
    pack_line lines[8][8];
    int32_t sc[8][KERN_PANEL];
    float d[KERN_PANEL];
} iq4_strip;

MM_INLINE void unpack_iq4(const uint8_t *unit, iq4_strip *strip)
{
    for (size_t s = 0; s < 8; s++) {
        MM_UNROLL
        for (int r = 0; r < 8; r++) {
            _mm512_store_si512(strip->lines[s][r], block_line(unit, GGUF_TYPE_IQ4_XS, s, r));
        }
        _mm512_store_si512(strip->sc[s], block_sc(unit, GGUF_TYPE_IQ4_XS, s));
    }
    _mm512_store_ps(strip->d, block_d(unit, GGUF_TYPE_IQ4_XS));
}

MM_INLINE void add_iq4(const mm_chunk *c, float *sums, const size_t panels)
{
    const iq4_strip *strip = (const void *)c->strips;
    const kern_act *a = c->a;
    const size_t place = mm_place(c->r, a->n_blocks, c->at / 256);
    uintptr_t fetch = c->fetch;
    _Alignas(64) int32_t start[MM_GROUP][8];
    MM_UNROLL
    for (size_t i = 0; i < MM_GROUP / 2; i++) {
        _mm512_store_si512(
            start[2 * i], _mm512_madd_epi16(mm_load(a->sums + 16 * place + 32 * i), _mm512_set1_epi16(-128)));
    }
    MM_ORDER();
    __m512i sum[MM_TILE], dot[MM_TILE];
    mm_zero_int(sum, MM_GROUP * panels);
    for (size_t s = 0; s < 8; s++) {
        const int8_t *q = mm_codes(a, c->r, c->at / KERN_ACT_RUN + s / 2) + s % 2 * 32;
        mm_fetch(c, &fetch, panels);
        MM_UNROLL
        for (size_t i = 0; i < MM_GROUP * panels; i++) {
            dot[i] = mm_dword(&start[i % MM_GROUP][s]);
        }
        MM_UNROLL
        for (size_t r = 0; r < 8; r++) {
            __m512i line[MM_PANELS];
            MM_UNROLL
            for (size_t p = 0; p < panels; p++) {
                line[p] = mm_load(strip[p].lines[s][r]);
            }
            mm_line_dot(dot, line, q + 4 * r, MM_GROUP, panels);
        }
        MM_UNROLL
        for (size_t i = 0; i < MM_GROUP * panels; i++) {
            const __m512i scaled = _mm512_mullo_epi32(dot[i], mm_load(strip[i / MM_GROUP].sc[s]));
            sum[i] = _mm512_add_epi32(sum[i], scaled);
        }
    }
    __m512 acc[MM_TILE];
    mm_load_sums(acc, sums, MM_GROUP * panels);
    mm_add_scaled(acc, sum, a->d + place, strip->d, sizeof *strip, false, panels);
    mm_store_sums(sums, acc, MM_GROUP * panels);
}

MM_INLINE void unpack(const uint8_t *unit, const gguf_type type, void *strip)
{
    if (type == GGUF_TYPE_IQ4_XS) {
        unpack_iq4(unit, strip);
    } else {
        unpack_packed(unit, type, strip);
    }
}

MM_INLINE void add(const mm_chunk *c, const gguf_type type, float *sums, const size_t panels)
{
    if (type == GGUF_TYPE_IQ4_XS) {
        add_iq4(c, sums, panels);
    } else {
        add_packed(c, type, sums, panels);
    }
}

MM_TYPE_256(q4_k, GGUF_TYPE_Q4_K, sizeof(k_strip), 2)
MM_TYPE_256(q5_k, GGUF_TYPE_Q5_K, sizeof(k_strip), 2)
MM_TYPE_256(q6_k, GGUF_TYPE_Q6_K, sizeof(k_strip), 2)
MM_TYPE_256(iq4_xs, GGUF_TYPE_IQ4_XS, sizeof(iq4_strip), 3)
