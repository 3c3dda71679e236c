/*
 * Products with Q2_K and Q3_K (the rule: kern/README.md; the lanes: matmul_avx512.h). Code times sub-scale fits a
 * byte here, so a block of 256 is one dot product of 64 lines:
 *
 *     Q2_K:  w * sc              0 … 45
 *     Q3_K:  w * sc + 124        0 … 252, as -4 * 31 is the smallest and -4 * -32 the largest; 124 times the sum of
 *                                the block's codes is taken off. Bound: 256 * 252 * 127 = 8,193,024.
 *
 * Two bytes of a line, c0 + 256 c1, times a 16-bit scale are c0 sc + 256 (c1 sc) modulo 2^16; with what makes both
 * bytes 0 … 255 added in the same form, no byte carries into the other.
 */
#include "kern/x86/matmul_avx512.h"

#define RAISED 124
#define PAIRS  8 /* of 16-bit sums in a block */

/* A strip: one block, all unpacked. */
typedef struct q2_block {
    pack_line lines[8][8];
    int32_t words[PAIRS][KERN_PANEL]; /* minima to multiply a pair of sums with */
    float d[KERN_PANEL];
    float dmin[KERN_PANEL];
} q2_block;

/* Where a block's operands lie: `from` is the type whose unit the block is, or this, if it is a q2_block. */
#define STRIP GGUF_TYPE_COUNT

MM_INLINE size_t unit_bytes(const gguf_type type)
{
    return type == GGUF_TYPE_Q2_K ? sizeof(unit_q2_k) : sizeof(unit_q3_k);
}

/* The scale of values 16 j … 16 j + 15 in both words of each lane. */
MM_INLINE __m512i scale_words(const void *block, const gguf_type from, size_t j)
{
    if (from == GGUF_TYPE_Q2_K) {
        __m512i sc = _mm512_and_si512(mm_bytes_u(((const unit_q2_k *)block)->sc_m[j]), _mm512_set1_epi32(15));
        return _mm512_or_si512(sc, _mm512_slli_epi32(sc, 16));
    }
    __m512i sc = mm_bytes_s(((const unit_q3_k *)block)->sc[j]);
    return _mm512_mask_mov_epi16(_mm512_slli_epi32(sc, 16), 0x55555555u, sc);
}

/* Line r of values 32 s … 32 s + 31, times the scale words of its half of them, raised. */
MM_INLINE __m512i block_line(const void *block, const gguf_type from, size_t s, const int r, __m512i sc,
                             __m512i up)
{
    const unit_q3_k *u = block; /* the pairs of both types lie in the same place */
    const __m512i three = _mm512_set1_epi8(3);
    if (from == STRIP) {
        return mm_load(((const q2_block *)block)->lines[s][r]);
    }
    __m512i codes = _mm512_and_si512(mm_shift(mm_load(u->pairs[s][r / 4]), -2 * (r % 4)), three);
    if (from == GGUF_TYPE_Q2_K) {
        return _mm512_mullo_epi16(codes, sc);
    }
    codes = mm_or_and(codes, mm_shift(mm_load(u->bits[s]), 2 - r), _mm512_set1_epi8(4));
    return _mm512_add_epi16(_mm512_mullo_epi16(codes, sc), up);
}

/* What is added to two bytes: 124 - 4 sc each. */
MM_INLINE __m512i raise_words(__m512i sc)
{
    __m512i one = _mm512_sub_epi16(_mm512_set1_epi16(RAISED), _mm512_slli_epi16(sc, 2));
    return _mm512_add_epi16(one, _mm512_slli_epi16(one, 8));
}

/* What the sums of values 32 s … 32 s + 15 and 32 s + 16 … 32 s + 31 are multiplied with. */
MM_INLINE __m512i block_words(const void *block, const gguf_type from, const gguf_type type, size_t s)
{
    if (type == GGUF_TYPE_Q3_K) {
        return _mm512_set1_epi16(-RAISED);
    }
    if (from == STRIP) {
        return mm_load(((const q2_block *)block)->words[s]);
    }
    __m512i low = _mm512_srli_epi32(mm_bytes_u(((const unit_q2_k *)block)->sc_m[2 * s]), 4);
    __m512i high = _mm512_srli_epi32(mm_bytes_u(((const unit_q2_k *)block)->sc_m[2 * s + 1]), 4);
    return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

MM_INLINE __m512 block_d(const void *block, const gguf_type from)
{
    return from == STRIP            ? _mm512_load_ps(((const q2_block *)block)->d)
           : from == GGUF_TYPE_Q2_K ? mm_halves(((const unit_q2_k *)block)->d)
                                    : mm_halves(((const unit_q3_k *)block)->d);
}

MM_INLINE __m512 block_dmin(const void *block, const gguf_type from)
{
    return from == STRIP ? _mm512_load_ps(((const q2_block *)block)->dmin)
                         : mm_halves(((const unit_q2_k *)block)->dmin);
}

/* The activations of one block: the row after a row lies 64 bytes, one d and sixteen sums on. */
typedef struct q2_rows {
    const int8_t *q;
    size_t run_bytes; /* from a run of 64 codes to the next one of the same row */
    const float *d;
    const int16_t *sums;
} q2_rows;

MM_INLINE void block_add(const void *block, const gguf_type from, const gguf_type type, const q2_rows *x,
                         __m512 *acc, const size_t rows)
{
    __m512i sum[KERN_ACT_SMALL], pairs[KERN_ACT_SMALL];
    MM_UNROLL
    for (size_t i = 0; i < rows; i++) {
        sum[i] = _mm512_setzero_si512();
        pairs[i] = _mm512_setzero_si512();
    }
    for (size_t s = 0; s < PAIRS; s++) {
        const __m512i words = block_words(block, from, type, s);
        MM_UNROLL
        for (size_t i = 0; i < rows; i++) {
            pairs[i] = _mm512_dpwssd_epi32(pairs[i], words, mm_dword(x->sums + i * 16 + 2 * s));
        }
    }
    for (size_t s = 0; s < 8; s++) {
        const int8_t *q = x->q + s / 2 * x->run_bytes + s % 2 * 32;
        if (from != STRIP) {
            mm_prefetch((const uint8_t *)block + s * (unit_bytes(from) / 8), unit_bytes(from) / 8);
        }
        MM_UNROLL
        for (int half = 0; half < 2; half++) {
            __m512i sc = _mm512_setzero_si512(), up = _mm512_setzero_si512();
            if (from != STRIP) {
                sc = scale_words(block, from, 2 * s + (size_t)half);
                up = raise_words(sc);
            }
            MM_UNROLL
            for (int r = 4 * half; r < 4 * half + 4; r++) {
                const __m512i line = block_line(block, from, s, r, sc, up);
                MM_UNROLL
                for (size_t i = 0; i < rows; i++) {
                    sum[i] = _mm512_dpbusd_epi32(sum[i], line, mm_dword(q + i * KERN_ACT_RUN + 4 * r));
                }
            }
        }
    }
    const __m512 d = block_d(block, from);
    MM_UNROLL
    for (size_t i = 0; i < rows; i++) {
        if (type == GGUF_TYPE_Q3_K) {
            sum[i] = _mm512_add_epi32(sum[i], pairs[i]);
        }
        acc[i] =
            _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[i]), _mm512_mul_ps(_mm512_set1_ps(x->d[i]), d), acc[i]);
    }
    if (type == GGUF_TYPE_Q2_K) {
        const __m512 dmin = block_dmin(block, from);
        MM_UNROLL
        for (size_t i = 0; i < rows; i++) {
            acc[i] = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(pairs[i]),
                                      _mm512_mul_ps(_mm512_set1_ps(x->d[i]), dmin), acc[i]);
        }
    }
}

MM_INLINE void few(const uint8_t *panel, const kern_act *a, const gguf_type type, __m512 *out,
                   const size_t rows)
{
    const uint8_t *unit = panel;
    q2_rows x = {a->q, rows * KERN_ACT_RUN, a->d, a->sums};
    __m512 acc[KERN_ACT_SMALL];
    MM_UNROLL
    for (size_t i = 0; i < rows; i++) {
        acc[i] = _mm512_setzero_ps();
    }
    for (size_t b = 0; b < a->n_blocks; b++, unit += unit_bytes(type)) {
        block_add(unit, type, type, &x, acc, rows);
        x.q += 4 * rows * KERN_ACT_RUN;
        x.d += rows;
        x.sums += 16 * rows;
    }
    MM_UNROLL
    for (size_t i = 0; i < rows; i++) {
        out[i] = acc[i];
    }
}

MM_INLINE void unpack(const uint8_t *panel, size_t at, const gguf_type type, q2_block *strip)
{
    const uint8_t *unit = panel + at / 256 * unit_bytes(type);
    for (size_t s = 0; s < 8; s++) {
        mm_prefetch(unit + s * (unit_bytes(type) / 8), unit_bytes(type) / 8);
        MM_UNROLL
        for (int half = 0; half < 2; half++) {
            const __m512i sc = scale_words(unit, type, 2 * s + (size_t)half);
            const __m512i up = raise_words(sc);
            MM_UNROLL
            for (int r = 4 * half; r < 4 * half + 4; r++) {
                _mm512_store_si512(strip->lines[s][r], block_line(unit, type, s, r, sc, up));
            }
        }
        if (type == GGUF_TYPE_Q2_K) {
            _mm512_store_si512(strip->words[s], block_words(unit, type, type, s));
        }
    }
    _mm512_store_ps(strip->d, block_d(unit, type));
    if (type == GGUF_TYPE_Q2_K) {
        _mm512_store_ps(strip->dmin, block_dmin(unit, type));
    }
}

MM_INLINE void many_add(const q2_block *strip, size_t at, const gguf_type type, const kern_act *a, size_t row,
                        float *sums)
{
    const size_t place = mm_place(row, a->n_blocks, at / 256);
    const q2_rows x = {mm_codes(a, row, at / KERN_ACT_RUN), KERN_ACT_TILE * KERN_ACT_RUN, a->d + place,
                       a->sums + 16 * place};
    __m512 acc[MM_GROUP];
    MM_UNROLL
    for (size_t i = 0; i < MM_GROUP; i++) {
        acc[i] = _mm512_load_ps(sums + i * KERN_PANEL);
    }
    block_add(strip, STRIP, type, &x, acc, MM_GROUP);
    MM_UNROLL
    for (size_t i = 0; i < MM_GROUP; i++) {
        _mm512_store_ps(sums + i * KERN_PANEL, acc[i]);
    }
}

#define Q2_PRODUCT(name, type)                                                                              \
    MM_INLINE void few_##name(const uint8_t *panel, const kern_act *a, __m512 *out, const size_t rows)      \
    {                                                                                                       \
        few(panel, a, type, out, rows);                                                                     \
    }                                                                                                       \
    MM_FEW(name);                                                                                           \
    static void unpack_##name(const uint8_t *panel, size_t at, size_t n, void *strip)                       \
    {                                                                                                       \
        (void)n;                                                                                            \
        unpack(panel, at, type, strip);                                                                     \
    }                                                                                                       \
    static void add_##name(const void *strip, size_t at, size_t n, const kern_act *a, size_t r, float *acc) \
    {                                                                                                       \
        (void)n;                                                                                            \
        many_add(strip, at, type, a, r, acc);                                                               \
    }                                                                                                       \
    void matmul_avx512_##name(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,      \
                              size_t y_stride)                                                              \
    {                                                                                                       \
        static const mm_many many = {unpack_##name, add_##name};                                            \
        _Alignas(64) q2_block strip;                                                                        \
        mm_run_avx512(w, a, n0, n1, y, y_stride, all_few_##name, &many, &strip);                            \
    }

Q2_PRODUCT(q2_k, GGUF_TYPE_Q2_K)
Q2_PRODUCT(q3_k, GGUF_TYPE_Q3_K)
