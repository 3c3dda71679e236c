/*
 * AVX2 products with weights in blocks of 256: Q2_K, Q3_K, Q4_K, Q5_K, Q6_K (one plane of codes), IQ4_XS (two). The
 * rule: kern/README.md; lanes, strips and bounds of chains: matmul_avx2.h.
 *
 * One vpmaddwd with (sc, sc) widens a chain's words and scales them. Q4_K 0 … 15: a chain of 8 lines is a sub-block of
 * 32. Q5_K 0 … 31: two of 4. Sub-blocks of 16 are chains of 4: Q2_K 0 … 3, Q3_K 0 … 7 - 4, Q6_K 0 … 63 - 32. IQ4_XS has
 * the planes of IQ4_NL. msum likewise: (m_j, m_j+1) times the sums of those two sub-blocks' activations.
 */
#include "kern/x86/avx2.h"
#include "kern/x86/matmul_avx2.h"

#define BLOCK 256
#define LINES 8 /* of 32 values */
#define SUBS  8 /* of 32 values */

typedef enum q256_format { Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_XS } q256_format;

typedef struct q256_kind {
    size_t chain;    /* lines */
    size_t sub;      /* lines of a sub-block */
    size_t n_min;    /* pairs of sub-blocks that have a minimum: 8, 4 or 0 */
    bool start;      /* chains start at the extras */
    bool two_planes; /* and then the high one */
} q256_kind;

/* Lines [from, from + chain) of the strip into isum; they belong to one sub-block. */
MM_INLINE void chain_add(const mm_strip *s, size_t from, const int8_t *q, const int32_t *start, mm_sums isum,
                         const int rows, const q256_kind kind)
{
    const __m256i *sc = s->sc[from / kind.sub];
    const bool start_low = kind.start && !kind.two_planes;
    mm_sums words;
    if (start_low) {
        mm_start(start, words, rows);
    }
    mm_chain(s->codes + from, kind.chain, q, !start_low, words, rows);
    mm_widen(words, sc[0], sc[1], false, isum, rows);
    if (kind.two_planes) {
        mm_start(start, words, rows);
        mm_chain(s->high + from, kind.chain, q, false, words, rows);
        mm_widen(words, _mm256_slli_epi16(sc[0], 4), _mm256_slli_epi16(sc[1], 4), false, isum, rows);
    }
}

/* Takes the minima of block b off a row's half. sums: pairs of sums, `step` dwords apart. */
MM_INLINE __m256 mins_sub(const mm_strip *s, size_t b, const size_t h, const void *sums, const size_t step,
                          __m256 d_act, __m256 out, const size_t n_min)
{
    __m256i msum = _mm256_setzero_si256();
    MM_UNROLL
    for (size_t j = 0; j < n_min; j++) {
        __m256i pair = mm_broadcast_dword((const uint8_t *)sums + 4 * step * j);
        msum = _mm256_add_epi32(msum, _mm256_madd_epi16(s->mins[n_min * b + j][h], pair));
        MM_KEEP(msum);
    }
    return _mm256_fnmadd_ps(_mm256_cvtepi32_ps(msum), _mm256_mul_ps(d_act, s->m[b][h]), out);
}

/* A block's integers to floats and into the accumulators. */
MM_INLINE void block_finish(const mm_strip *s, size_t b, const mm_rows *a, size_t block, const mm_sums isum,
                            float *acc, const int rows, const size_t n_min)
{
    MM_UNROLL
    for (int i = 0; i < rows; i++) {
        const size_t at = block * a->d_stride + (size_t)i;
        const __m256 d_act = _mm256_set1_ps(a->d[at]);
        MM_UNROLL
        for (size_t h = 0; h < 2; h++) {
            float *to = acc + KERN_PANEL * i + 8 * h;
            __m256 out = _mm256_fmadd_ps(_mm256_cvtepi32_ps(isum[i][h]), _mm256_mul_ps(d_act, s->d[b][h]),
                                         _mm256_load_ps(to));
            if (n_min == 4) {
                out = mins_sub(s, b, h, a->extra + 4 * MM_ROWS * block + i, MM_ROWS, d_act, out, 4);
            } else if (n_min == 8) {
                out = mins_sub(s, b, h, a->sums + 16 * at, 1, d_act, out, 8);
            }
            _mm256_store_ps(to, out);
        }
    }
}

MM_INLINE void rows_q256(const mm_strip *s, const uint8_t *w, const mm_rows *a, size_t c, size_t k,
                         float *acc, const int rows, const q256_kind kind)
{
    (void)w;
    for (size_t b = 0; b < k / BLOCK; b++) {
        const size_t block = c / BLOCK + b;
        mm_sums isum;
        MM_UNROLL
        for (int i = 0; i < rows; i++) {
            isum[i][0] = _mm256_setzero_si256();
            isum[i][1] = _mm256_setzero_si256();
        }
        for (size_t run = 0; run < BLOCK / KERN_ACT_RUN; run++) {
            const int8_t *q = a->q + (4 * block + run) * a->q_stride;
            const int32_t *start = a->extra + (4 * block + run) * (16 / kind.chain) * MM_ROWS;
            MM_UNROLL
            for (size_t j = 0; j < 16 / kind.chain; j++) {
                chain_add(s, BLOCK / 4 * b + 16 * run + kind.chain * j, q + 4 * kind.chain * j,
                          start + MM_ROWS * j, isum, rows, kind);
            }
        }
        block_finish(s, b, a, block, isum, acc, rows, kind.n_min);
    }
}
#define KIND(...) ((q256_kind){__VA_ARGS__})
MM_ROWS_FNS(rows_q2_k, rows_q256, KIND(.chain = 4, .sub = 4, .n_min = 8));
MM_ROWS_FNS(rows_q4_k, rows_q256, KIND(.chain = 8, .sub = 8, .n_min = 4));
MM_ROWS_FNS(rows_q5_k, rows_q256, KIND(.chain = 4, .sub = 8, .n_min = 4));
MM_ROWS_FNS(rows_signed, rows_q256, KIND(.chain = 4, .sub = 4, .start = true)); /* Q3_K, Q6_K */
MM_ROWS_FNS(rows_iq4_xs, rows_q256, KIND(.chain = 8, .sub = 8, .start = true, .two_planes = true));

/* The scales of a sub-block, eight bytes of a half, each twice as int16. */
MM_INLINE __m256i twice(const void *sc)
{
    const __m256i pick =
        _mm256_setr_epi32((int)0x80008000u, (int)0x80018001u, (int)0x80028002u, (int)0x80038003u,
                          (int)0x80048004u, (int)0x80058005u, (int)0x80068006u, (int)0x80078007u);
    return _mm256_shuffle_epi8(_mm256_broadcastq_epi64(_mm_loadl_epi64((const __m128i *)sc)), pick);
}

MM_INLINE __m256i twice_signed(const void *sc)
{
    const __m256i pick = _mm256_setr_epi32(0x00800080, 0x01800180, 0x02800280, 0x03800380, 0x04800480,
                                           0x05800580, 0x06800680, 0x07800780);
    __m256i v = _mm256_broadcastq_epi64(_mm_loadl_epi64((const __m128i *)sc));
    return _mm256_srai_epi16(_mm256_shuffle_epi8(v, pick), 8);
}

MM_INLINE __m128i load16(const void *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}

MM_INLINE size_t unit_bytes(const q256_format f)
{
    static const size_t n_bytes[] = {
        [Q2_K] = sizeof(unit_q2_k), [Q3_K] = sizeof(unit_q3_k), [Q4_K] = sizeof(unit_q4_k),
        [Q5_K] = sizeof(unit_q5_k), [Q6_K] = sizeof(unit_q6_k), [IQ4_XS] = sizeof(unit_iq4_xs),
    };
    return n_bytes[f];
}

/* A unit as each format has it. */
typedef struct unit_ptr {
    const unit_q2_k *q2_k;
    const unit_q3_k *q3_k;
    const unit_q4_k *q4_k;
    const unit_q5_k *q5_k;
    const unit_q6_k *q6_k;
    const unit_iq4_xs *iq4_xs;
} unit_ptr;

MM_INLINE unit_ptr unit_at(const void *p)
{
    return (unit_ptr){p, p, p, p, p, p};
}

/* Half h of two bits of each code, moved to place `to`. */
MM_INLINE void pair_lines(const pack_line pairs[2], const size_t h, const int to, __m256i lines[LINES])
{
    MM_UNROLL
    for (size_t p = 0; p < 2; p++) {
        __m256i v = mm_load(pairs[p] + 32 * h);
        MM_UNROLL
        for (int i = 0; i < 4; i++) {
            lines[4 * p + (size_t)i] = mm_bits(v, 2 * i, to, 3 << to);
        }
    }
}

/* Half h of the lines of sub-block j of 32: unsigned codes; for IQ4_XS places in the table. */
MM_INLINE void half_lines(const unit_ptr u, const q256_format f, size_t j, const size_t h,
                          __m256i lines[LINES])
{
    if (f == Q2_K) {
        pair_lines(u.q2_k->pairs[j], h, 0, lines);
    } else if (f == Q3_K) {
        __m256i bits = mm_load(u.q3_k->bits[j] + 32 * h);
        pair_lines(u.q3_k->pairs[j], h, 0, lines);
        MM_UNROLL
        for (int r = 0; r < LINES; r++) {
            lines[r] = _mm256_or_si256(lines[r], mm_bits(bits, r, 2, 4));
        }
    } else { /* the others begin with nibbles */
        mm_nibbles(u.q4_k->nibbles[j], h, lines);
    }
    if (f == Q5_K) {
        mm_fifth_bits(u.q5_k->bits[j], h, lines);
    } else if (f == Q6_K) {
        __m256i top[LINES];
        pair_lines(u.q6_k->pairs[j], h, 4, top);
        MM_UNROLL
        for (size_t r = 0; r < LINES; r++) {
            lines[r] = _mm256_or_si256(lines[r], top[r]);
        }
    }
}

/* Half h of the scales of sub-block j of 32: the same two times, or of both its sub-blocks of 16. */
MM_INLINE void half_subs(const unit_ptr u, const q256_format f, size_t j, const size_t h, __m256i sc[2])
{
    const size_t at = 8 * h;
    if (f == Q2_K) {
        const __m256i low = _mm256_set1_epi16(15);
        sc[0] = _mm256_and_si256(twice(u.q2_k->sc_m[2 * j] + at), low);
        sc[1] = _mm256_and_si256(twice(u.q2_k->sc_m[2 * j + 1] + at), low);
    } else if (f == Q3_K) {
        sc[0] = twice_signed(u.q3_k->sc[2 * j] + at);
        sc[1] = twice_signed(u.q3_k->sc[2 * j + 1] + at);
    } else if (f == Q6_K) {
        sc[0] = twice_signed(u.q6_k->sc[2 * j] + at);
        sc[1] = twice_signed(u.q6_k->sc[2 * j + 1] + at);
    } else {
        sc[0] = f == Q4_K   ? twice(u.q4_k->sc[j] + at)
                : f == Q5_K ? twice(u.q5_k->sc[j] + at)
                            : twice_signed(u.iq4_xs->sc[j] + at);
        sc[1] = sc[0];
    }
}

/* Pairs of sub-blocks that have a minimum. */
MM_INLINE size_t n_min_of(const q256_format f)
{
    return f == Q2_K ? 8 : f == Q4_K || f == Q5_K ? 4 : 0;
}

/* Half h of the minima of sub-blocks 2 j and 2 j + 1, side by side as int16. */
MM_INLINE __m256i half_mins(const unit_ptr u, const q256_format f, size_t j, const size_t h)
{
    __m128i first, second;
    if (f == Q2_K) {
        const __m128i nibble = _mm_set1_epi8(15);
        first = _mm_and_si128(_mm_srli_epi16(load16(u.q2_k->sc_m[2 * j]), 4), nibble);
        second = _mm_and_si128(_mm_srli_epi16(load16(u.q2_k->sc_m[2 * j + 1]), 4), nibble);
    } else if (f == Q4_K) {
        first = load16(u.q4_k->m[2 * j]);
        second = load16(u.q4_k->m[2 * j + 1]);
    } else {
        first = load16(u.q5_k->m[2 * j]);
        second = load16(u.q5_k->m[2 * j + 1]);
    }
    return _mm256_cvtepu8_epi16(h == 0 ? _mm_unpacklo_epi8(first, second) : _mm_unpackhi_epi8(first, second));
}

/* Half h of d, and of dmin where there is one. */
MM_INLINE void half_scales(const unit_ptr u, const q256_format f, const size_t h, __m256 *d, __m256 *dmin)
{
    switch (f) {
    case Q2_K:
        *d = mm_scales(u.q2_k->d, h);
        *dmin = mm_scales(u.q2_k->dmin, h);
        break;
    case Q3_K:
        *d = mm_scales(u.q3_k->d, h);
        break;
    case Q4_K:
        *d = mm_scales(u.q4_k->d, h);
        *dmin = mm_scales(u.q4_k->dmin, h);
        break;
    case Q5_K:
        *d = mm_scales(u.q5_k->d, h);
        *dmin = mm_scales(u.q5_k->dmin, h);
        break;
    case Q6_K:
        *d = mm_scales(u.q6_k->d, h);
        break;
    default:
        *d = mm_scales(u.iq4_xs->d, h);
        break;
    }
}

MM_INLINE void unpack(const uint8_t *units, size_t k, mm_strip *s, const q256_format f)
{
    const size_t subs = f == Q2_K || f == Q3_K || f == Q6_K ? 2 : 1; /* in 32 values */
    for (size_t b = 0; b < k / BLOCK; b++, units += unit_bytes(f)) {
        const unit_ptr u = unit_at(units);
        for (size_t j = 0; j < SUBS; j++) {
            const size_t sub = SUBS * b + j;
            mm_prefetch(units + j * (unit_bytes(f) / SUBS), unit_bytes(f) / SUBS);
            for (size_t h = 0; h < 2; h++) {
                __m256i lines[LINES], sc[2];
                half_lines(u, f, j, h, lines);
                half_subs(u, f, j, h, sc);
                MM_UNROLL
                for (size_t i = 0; i < subs; i++) {
                    s->sc[subs * sub + i][h] = sc[i];
                }
                MM_UNROLL
                for (size_t r = 0; r < LINES; r++) {
                    if (f == IQ4_XS) {
                        s->high[LINES * sub + r][h] = mm_iq4(lines[r], MM_IQ4_HIGH);
                        lines[r] = mm_iq4(lines[r], MM_IQ4_LOW);
                    }
                    s->codes[LINES * sub + r][h] = lines[r];
                }
            }
        }
        for (size_t h = 0; h < 2; h++) {
            for (size_t j = 0; j < n_min_of(f); j++) {
                s->mins[n_min_of(f) * b + j][h] = half_mins(u, f, j, h);
            }
            half_scales(u, f, h, &s->d[b][h], &s->m[b][h]);
        }
    }
}

/* Half h of sub-block j of 32 times the rows' codes. */
MM_INLINE void half_sums(const unit_ptr u, size_t j, const size_t h, const int8_t *q, const int32_t *start,
                         __m256i *isum, const int rows, const q256_format f)
{
    const bool has_start = f == Q3_K || f == Q6_K;
    const size_t chain = f == Q4_K ? 8 : 4;
    __m256i lines[LINES], sc[2], words[MM_ROWS];
    half_lines(u, f, j, h, lines);
    half_subs(u, f, j, h, sc);
    if (f == IQ4_XS) {
        MM_UNROLL
        for (size_t r = 0; r < LINES; r++) {
            lines[r] = mm_iq4(lines[r], MM_IQ4_VALUE);
        }
        mm_half_signed(lines, LINES, q, sc[0], isum, rows);
        return;
    }
    MM_UNROLL
    for (size_t at = 0; at < LINES; at += chain) {
        MM_UNROLL
        for (int i = 0; has_start && i < rows; i++) {
            words[i] = _mm256_set1_epi32(start[MM_ROWS * (at / 4) + (size_t)i]);
        }
        mm_half_chain(lines + at, chain, q + 4 * at, !has_start, words, rows);
        MM_UNROLL
        for (int i = 0; i < rows; i++) {
            isum[i] = _mm256_add_epi32(isum[i], _mm256_madd_epi16(words[i], sc[at / 4]));
            MM_KEEP(isum[i]);
        }
    }
}

/* msum of half h for each row. */
MM_INLINE void half_min_sums(const unit_ptr u, const size_t h, const mm_rows *a, size_t block, __m256i *msum,
                             const int rows, const q256_format f)
{
    MM_UNROLL
    for (int i = 0; i < rows; i++) {
        msum[i] = _mm256_setzero_si256();
    }
    MM_UNROLL
    for (size_t j = 0; j < n_min_of(f); j++) {
        const __m256i mins = half_mins(u, f, j, h);
        MM_UNROLL
        for (int i = 0; i < rows; i++) {
            const size_t at = block * a->d_stride + (size_t)i;
            const void *sums = f == Q2_K ? (const void *)(a->sums + 16 * at + 2 * j)
                                         : (const void *)(a->extra + MM_ROWS * (4 * block + j) + i);
            msum[i] = _mm256_add_epi32(msum[i], _mm256_madd_epi16(mins, mm_broadcast_dword(sums)));
            MM_KEEP(msum[i]);
        }
    }
}

MM_INLINE void direct(const mm_strip *s, const uint8_t *units, const mm_rows *a, size_t c, size_t k,
                      float *acc, const int rows, const q256_format f)
{
    (void)s;
    for (size_t block = c / BLOCK; block < (c + k) / BLOCK; block++, units += unit_bytes(f)) {
        const unit_ptr u = unit_at(units);
        __m256i isum[2][MM_ROWS];
        MM_UNROLL
        for (int i = 0; i < 2 * rows; i++) {
            isum[i % 2][i / 2] = _mm256_setzero_si256();
        }
        for (size_t j = 0; j < SUBS; j++) {
            const int8_t *q = a->q + (4 * block + j / 2) * a->q_stride + j % 2 * 32;
            const int32_t *start = a->extra + (SUBS * block + j) * 2 * MM_ROWS;
            mm_prefetch(units + j * (unit_bytes(f) / SUBS), unit_bytes(f) / SUBS);
            half_sums(u, j, 0, q, start, isum[0], rows, f);
            half_sums(u, j, 1, q, start, isum[1], rows, f);
        }
        MM_UNROLL
        for (size_t h = 0; h < 2; h++) {
            __m256i msum[MM_ROWS];
            __m256 dw, dmin;
            half_scales(u, f, h, &dw, &dmin);
            half_min_sums(u, h, a, block, msum, rows, f);
            MM_UNROLL
            for (int i = 0; i < rows; i++) {
                float *to = acc + KERN_PANEL * i + 8 * h;
                const __m256 d_act = _mm256_set1_ps(a->d[block * a->d_stride + (size_t)i]);
                __m256 out = _mm256_fmadd_ps(_mm256_cvtepi32_ps(isum[h][i]), _mm256_mul_ps(d_act, dw),
                                             _mm256_load_ps(to));
                if (n_min_of(f) > 0) {
                    out = _mm256_fnmadd_ps(_mm256_cvtepi32_ps(msum[i]), _mm256_mul_ps(d_act, dmin), out);
                }
                _mm256_store_ps(to, out);
            }
        }
    }
}

MM_FORMAT(q2_k, Q2_K, BLOCK, rows_q2_k, MM_NONE, 0)
MM_FORMAT(q3_k, Q3_K, BLOCK, rows_signed, MM_START16, 4)
MM_FORMAT(q4_k, Q4_K, BLOCK, rows_q4_k, MM_SUMS64, 0)
MM_FORMAT(q5_k, Q5_K, BLOCK, rows_q5_k, MM_SUMS64, 0)
MM_FORMAT(q6_k, Q6_K, BLOCK, rows_signed, MM_START16, 32)
MM_FORMAT(iq4_xs, IQ4_XS, BLOCK, rows_iq4_xs, MM_START32, 8)
