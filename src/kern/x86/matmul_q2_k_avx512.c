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
#include "kern/x86/strip_k_avx512.h"

#define RAISED 124
#define PAIRS  8 /* of 16-bit sums in a block */

MM_INLINE size_t unit_bytes(const gguf_type type)
{
    return type == GGUF_TYPE_Q2_K ? sizeof(unit_q2_k) : sizeof(unit_q3_k);
}

/* The scale of values 16 j … 16 j + 15 in both words of each lane. */
MM_INLINE __m512i scale_words(const void *block, const gguf_type type, size_t j)
{
    if (type == GGUF_TYPE_Q2_K) {
        __m512i sc = _mm512_and_si512(mm_bytes_u(((const unit_q2_k *)block)->sc_m[j]), _mm512_set1_epi32(15));
        return _mm512_or_si512(sc, _mm512_slli_epi32(sc, 16));
    }
    __m512i sc = mm_bytes_s(((const unit_q3_k *)block)->sc[j]);
    return _mm512_mask_mov_epi16(_mm512_slli_epi32(sc, 16), 0x55555555u, sc);
}

/* Line r of values 32 s … 32 s + 31, times the scale words of its half of them, raised. */
MM_INLINE __m512i block_line(const void *block, const gguf_type type, size_t s, const int r, __m512i sc,
                             __m512i up)
{
    const unit_q3_k *u = block; /* the pairs of both types lie in the same place */
    const __m512i three = _mm512_set1_epi8(3);
    __m512i codes = _mm512_and_si512(mm_shift(mm_load(u->pairs[s][r / 4]), -2 * (r % 4)), three);
    if (type == GGUF_TYPE_Q2_K) {
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
MM_INLINE __m512i block_words(const void *block, const gguf_type type, size_t s)
{
    if (type == GGUF_TYPE_Q3_K) {
        return _mm512_set1_epi16(-RAISED);
    }
    __m512i low = _mm512_srli_epi32(mm_bytes_u(((const unit_q2_k *)block)->sc_m[2 * s]), 4);
    __m512i high = _mm512_srli_epi32(mm_bytes_u(((const unit_q2_k *)block)->sc_m[2 * s + 1]), 4);
    return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

MM_INLINE __m512 block_d(const void *block, const gguf_type type)
{
    return mm_halves(type == GGUF_TYPE_Q2_K ? ((const unit_q2_k *)block)->d : ((const unit_q3_k *)block)->d);
}

/* One block of each of `panels` panels and the activations that meet it. */
typedef struct q2_work {
    const uint8_t *block;
    size_t stride; /* bytes from a panel's block to the next panel's */
    size_t ahead;  /* how far behind a unit to fetch */
    /* of the first row; the row after a row lies 64 bytes, one d and sixteen sums on */
    const int8_t *q;
    const float *d;
    const int16_t *sums;
} q2_work;

/* out[panel][row]: the pairs of sums times the words. */
MM_INLINE void pairs_dot(const q2_work *x, const gguf_type type, __m512i *out, const size_t rows,
                         const size_t panels)
{
    mm_zero_int(out, rows * panels);
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

/* Lines 4 half … 4 half + 3 of values 32 s … 32 s + 31 into sum[chain][panel][row], line by line the next chain. */
MM_INLINE void half_dot(const q2_work *x, const gguf_type type, size_t s, const int half, __m512i *sum,
                        const size_t rows, const size_t panels, const size_t chains)
{
    const int8_t *q = x->q + s / 2 * rows * KERN_ACT_RUN + s % 2 * 32;
    __m512i sc[MM_PANELS], up[MM_PANELS];
    MM_UNROLL
    for (size_t p = 0; p < panels; p++) {
        sc[p] = scale_words(x->block + p * x->stride, type, 2 * s + (size_t)half);
        up[p] = raise_words(sc[p]);
    }
    MM_UNROLL
    for (int r = 4 * half; r < 4 * half + 4; r++) {
        __m512i *to = sum + (size_t)r % chains * rows * panels;
        __m512i line[MM_PANELS];
        MM_UNROLL
        for (size_t p = 0; p < panels; p++) {
            line[p] = block_line(x->block + p * x->stride, type, s, r, sc[p], up[p]);
        }
        MM_UNROLL
        for (size_t i = 0; i < rows; i++) {
            const __m512i codes = mm_dword(q + i * KERN_ACT_RUN + 4 * r);
            MM_UNROLL
            for (size_t p = 0; p < panels; p++) {
                to[p * rows + i] = _mm512_dpbusd_epi32(to[p * rows + i], line[p], codes);
            }
        }
        MM_ORDER();
    }
}

/* The dot products of the block: sum[panel][row]. A vpdpbusd waits five cycles for the one before it in its chain:
 * few sums are made in several chains. */
MM_INLINE void lines_dot(const q2_work *x, const gguf_type type, __m512i *sum, const size_t rows,
                         const size_t panels)
{
    const size_t chains = rows * panels <= 3 ? 4 : rows * panels <= 6 ? 2 : 1;
    __m512i part[MM_TILE];
    mm_zero_int(part, chains * rows * panels);
    for (size_t s = 0; s < 8; s++) {
        MM_UNROLL
        for (size_t p = 0; p < panels; p++) {
            mm_prefetch(x->block + p * x->stride + s * (unit_bytes(type) / 8), x->ahead,
                        unit_bytes(type) / 8);
        }
        MM_UNROLL
        for (int half = 0; half < 2; half++) {
            half_dot(x, type, s, half, part, rows, panels, chains);
        }
    }
    MM_UNROLL
    for (size_t i = 0; i < rows * panels; i++) {
        sum[i] = part[i];
        MM_UNROLL
        for (size_t c = 1; c < chains; c++) {
            sum[i] = _mm512_add_epi32(sum[i], part[c * rows * panels + i]);
        }
    }
}

MM_INLINE void block_add(const q2_work *x, const gguf_type type, __m512 *acc, const size_t rows,
                         const size_t panels)
{
    __m512i sum[MM_TILE], pairs[MM_TILE];
    lines_dot(x, type, sum, rows, panels);
    pairs_dot(x, type, pairs, rows, panels);
    MM_UNROLL
    for (size_t p = 0; p < panels; p++) {
        const __m512 d = block_d(x->block + p * x->stride, type);
        MM_UNROLL
        for (size_t i = 0; i < rows; i++) {
            const size_t j = p * rows + i;
            const __m512i isum = type == GGUF_TYPE_Q3_K ? _mm512_add_epi32(sum[j], pairs[j]) : sum[j];
            acc[j] =
                _mm512_fmadd_ps(_mm512_cvtepi32_ps(isum), _mm512_mul_ps(_mm512_set1_ps(x->d[i]), d), acc[j]);
            if (type == GGUF_TYPE_Q2_K) {
                const __m512 dmin =
                    mm_halves(((const unit_q2_k *)(const void *)(x->block + p * x->stride))->dmin);
                acc[j] = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(pairs[j]),
                                          _mm512_mul_ps(_mm512_set1_ps(x->d[i]), dmin), acc[j]);
            }
        }
    }
}

MM_INLINE void few(const uint8_t *panel, size_t panel_bytes, const kern_act *a, const gguf_type type,
                   __m512 *out, const size_t rows, const size_t panels)
{
    q2_work x = {panel, panel_bytes, 0, a->q, a->d, a->sums};
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

/* Many rows. A strip: one block, all unpacked. */
typedef struct q2_block {
    line_pair pairs[32];
    int32_t words[PAIRS][KERN_PANEL]; /* minima to multiply a pair of sums with */
    float d[KERN_PANEL];
    float dmin[KERN_PANEL];
} q2_block;

MM_INLINE void unpack(const uint8_t *unit, const gguf_type type, q2_block *strip)
{
    for (size_t s = 0; s < 8; s++) {
        MM_UNROLL
        for (int half = 0; half < 2; half++) {
            const __m512i sc = scale_words(unit, type, 2 * s + (size_t)half);
            const __m512i up = raise_words(sc);
            MM_UNROLL
            for (int r = 4 * half; r < 4 * half + 4; r += 2) {
                __m512i line[2];
                pair_of(block_line(unit, type, s, r, sc, up), block_line(unit, type, s, r + 1, sc, up), line);
                _mm512_store_si512(strip->pairs[4 * s + (size_t)r / 2][0], line[0]);
                _mm512_store_si512(strip->pairs[4 * s + (size_t)r / 2][1], line[1]);
            }
        }
        if (type == GGUF_TYPE_Q2_K) {
            _mm512_store_si512(strip->words[s], block_words(unit, type, s));
        }
    }
    _mm512_store_ps(strip->d, block_d(unit, type));
    if (type == GGUF_TYPE_Q2_K) {
        _mm512_store_ps(strip->dmin, mm_halves(((const unit_q2_k *)(const void *)unit)->dmin));
    }
}

/* Half of -RAISED times the sum of the block's codes, of MM_GROUP rows: dword total_at(row). */
MM_INLINE __m512i totals(const int16_t *sums)
{
    const __m512i by = _mm512_set1_epi16(-RAISED / 2);
    const __m512i a = _mm512_madd_epi16(mm_load(sums), by); /* eight dwords of rows 0 and 1 */
    const __m512i b = _mm512_madd_epi16(mm_load(sums + 32), by);
    __m512i v = _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
    v = _mm512_add_epi32(v, _mm512_shuffle_epi32(v, _MM_PERM_CDAB));
    return _mm512_add_epi32(v, _mm512_shuffle_i32x4(v, v, _MM_PERM_CDAB));
}

/* The two dwords of each output added. */
MM_INLINE __m512i pair_sum(__m512i a, __m512i b)
{
    const __m512 va = _mm512_castsi512_ps(a), vb = _mm512_castsi512_ps(b);
    return _mm512_add_epi32(_mm512_castps_si512(_mm512_shuffle_ps(va, vb, _MM_SHUFFLE(2, 0, 2, 0))),
                            _mm512_castps_si512(_mm512_shuffle_ps(va, vb, _MM_SHUFFLE(3, 1, 3, 1))));
}

MM_INLINE size_t total_at(size_t row)
{
    return row % 2 * 8 + row / 2 * 2;
}

MM_INLINE void add(const mm_chunk *c, const gguf_type type, float *sums, const size_t panels)
{
    const q2_block *strip = (const void *)c->strips;
    const kern_act *a = c->a;
    const size_t place = mm_place(c->r, a->n_blocks, c->at / 256);
    uintptr_t fetch = c->fetch;
    _Alignas(64) int32_t start[KERN_PANEL]; /* of each of the two dwords of a sum */
    _Alignas(64) group_codes q;
    __m512i sum[PAIR_SUMS], dot[2][PAIR_SUMS];
    _mm512_store_si512(start, totals(a->sums + 16 * place));
    group_codes_make(q, c, false);
    MM_UNROLL
    for (size_t i = 0; i < MM_GROUP * panels; i++) {
        dot[0][i] = dot[1][i] =
            type == GGUF_TYPE_Q3_K ? mm_dword(start + total_at(i % MM_GROUP)) : _mm512_setzero_si512();
    }
    for (size_t s = 0; s < 8; s++) { /* not in the loop below, where gcc moves the sums about around it */
        mm_fetch(c, &fetch, panels);
    }
    for (size_t s = 0; s < 8; s++) {
        MM_UNROLL
        for (size_t t = 0; t < 4; t++) {
            pair_dot(dot, strip->pairs, sizeof *strip, 4 * s + t, q, false, panels);
        }
    }
    MM_UNROLL
    for (size_t i = 0; i < MM_GROUP * panels; i++) {
        sum[i] = pair_sum(dot[0][i], dot[1][i]);
    }
    __m512 acc[PAIR_SUMS];
    mm_load_sums(acc, sums, MM_GROUP * panels);
    mm_add_scaled(acc, sum, a->d + place, strip->d, sizeof *strip, false, panels);
    if (type == GGUF_TYPE_Q2_K) {
        mm_zero_int(sum, MM_GROUP * panels);
        for (size_t s = 0; s < PAIRS; s++) {
            MM_UNROLL
            for (size_t i = 0; i < MM_GROUP * panels; i++) {
                const __m512i pair = mm_dword(a->sums + 16 * (place + i % MM_GROUP) + 2 * s);
                sum[i] = _mm512_dpwssd_epi32(sum[i], mm_load(strip[i / MM_GROUP].words[s]), pair);
            }
        }
        mm_add_scaled(acc, sum, a->d + place, strip->dmin, sizeof *strip, true, panels);
    }
    mm_store_sums(sums, acc, MM_GROUP * panels);
}

MM_TYPE_256(q2_k, GGUF_TYPE_Q2_K, sizeof(q2_block), 2)
MM_TYPE_256(q3_k, GGUF_TYPE_Q3_K, sizeof(q2_block), 2)
