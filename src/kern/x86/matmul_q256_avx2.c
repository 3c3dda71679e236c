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
MM_INLINE __m256i twice(const uint8_t *sc)
{
    const __m256i pick =
        _mm256_setr_epi32((int)0x80008000u, (int)0x80018001u, (int)0x80028002u, (int)0x80038003u,
                          (int)0x80048004u, (int)0x80058005u, (int)0x80068006u, (int)0x80078007u);
    return _mm256_shuffle_epi8(_mm256_broadcastq_epi64(_mm_loadl_epi64((const __m128i *)(const void *)sc)),
                               pick);
}

MM_INLINE __m256i twice_signed(const int8_t *sc)
{
    const __m256i pick = _mm256_setr_epi32(0x00800080, 0x01800180, 0x02800280, 0x03800380, 0x04800480,
                                           0x05800580, 0x06800680, 0x07800780);
    __m256i v = _mm256_broadcastq_epi64(_mm_loadl_epi64((const __m128i *)(const void *)sc));
    return _mm256_srai_epi16(_mm256_shuffle_epi8(v, pick), 8);
}

/* The minima of two sub-blocks of all outputs, side by side as int16, to both halves. */
MM_INLINE void pairs_of(__m128i first, __m128i second, mm_strip *s, size_t at)
{
    s->mins[at][0] = _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(first, second));
    s->mins[at][1] = _mm256_cvtepu8_epi16(_mm_unpackhi_epi8(first, second));
}

MM_INLINE __m128i load16(const void *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}

/* A sub-block's share of a unit, fetched ahead. */
#define PREFETCH_SHARE(u, sub) mm_prefetch((const uint8_t *)(u) + (sub) * (sizeof *(u) / 8), sizeof *(u) / 8)

/* Two bits of each code. */
MM_INLINE void pair_lines(const pack_line pairs[2], const size_t h, const int to, __m256i lines[8])
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

static void unpack_q2_k(const uint8_t *units, size_t k, mm_strip *s)
{
    const unit_q2_k *u = (const void *)units;
    const __m128i nibble = _mm_set1_epi8(15);
    for (size_t b = 0; b < k / BLOCK; b++, u++) {
        for (size_t j = 0; j < 8; j++) {
            PREFETCH_SHARE(u, j);
            __m128i both0 = load16(u->sc_m[2 * j]), both1 = load16(u->sc_m[2 * j + 1]);
            uint8_t sc[2][KERN_PANEL];
            _mm_storeu_si128((__m128i *)(void *)sc[0], _mm_and_si128(both0, nibble));
            _mm_storeu_si128((__m128i *)(void *)sc[1], _mm_and_si128(both1, nibble));
            pairs_of(_mm_and_si128(_mm_srli_epi16(both0, 4), nibble),
                     _mm_and_si128(_mm_srli_epi16(both1, 4), nibble), s, 8 * b + j);
            for (size_t h = 0; h < 2; h++) {
                __m256i lines[LINES];
                pair_lines(u->pairs[j], h, 0, lines);
                mm_store_lines(s->codes + LINES * (8 * b + j), h, lines);
                s->sc[16 * b + 2 * j][h] = twice(sc[0] + 8 * h);
                s->sc[16 * b + 2 * j + 1][h] = twice(sc[1] + 8 * h);
            }
        }
        mm_scales(u->d, s->d[b]);
        mm_scales(u->dmin, s->m[b]);
    }
}

static void unpack_q3_k(const uint8_t *units, size_t k, mm_strip *s)
{
    const unit_q3_k *u = (const void *)units;
    for (size_t b = 0; b < k / BLOCK; b++, u++) {
        for (size_t j = 0; j < 8; j++) {
            PREFETCH_SHARE(u, j);
            for (size_t h = 0; h < 2; h++) {
                __m256i lines[LINES];
                __m256i bits = mm_load(u->bits[j] + 32 * h);
                pair_lines(u->pairs[j], h, 0, lines);
                MM_UNROLL
                for (int r = 0; r < LINES; r++) {
                    lines[r] = _mm256_or_si256(lines[r], mm_bits(bits, r, 2, 4));
                }
                mm_store_lines(s->codes + LINES * (8 * b + j), h, lines);
                s->sc[16 * b + 2 * j][h] = twice_signed(u->sc[2 * j] + 8 * h);
                s->sc[16 * b + 2 * j + 1][h] = twice_signed(u->sc[2 * j + 1] + 8 * h);
            }
        }
        mm_scales(u->d, s->d[b]);
    }
}

static void unpack_q4_k(const uint8_t *units, size_t k, mm_strip *s)
{
    const unit_q4_k *u = (const void *)units;
    for (size_t b = 0; b < k / BLOCK; b++, u++) {
        for (size_t j = 0; j < 8; j++) {
            PREFETCH_SHARE(u, j);
            for (size_t h = 0; h < 2; h++) {
                __m256i lines[LINES];
                mm_nibbles(u->nibbles[j], h, lines);
                mm_store_lines(s->codes + LINES * (8 * b + j), h, lines);
                s->sc[8 * b + j][h] = twice(u->sc[j] + 8 * h);
            }
        }
        for (size_t j = 0; j < 4; j++) {
            pairs_of(load16(u->m[2 * j]), load16(u->m[2 * j + 1]), s, 4 * b + j);
        }
        mm_scales(u->d, s->d[b]);
        mm_scales(u->dmin, s->m[b]);
    }
}

static void unpack_q5_k(const uint8_t *units, size_t k, mm_strip *s)
{
    const unit_q5_k *u = (const void *)units;
    for (size_t b = 0; b < k / BLOCK; b++, u++) {
        for (size_t j = 0; j < 8; j++) {
            PREFETCH_SHARE(u, j);
            for (size_t h = 0; h < 2; h++) {
                __m256i lines[LINES];
                mm_nibbles(u->nibbles[j], h, lines);
                mm_fifth_bits(u->bits[j], h, lines);
                mm_store_lines(s->codes + LINES * (8 * b + j), h, lines);
                s->sc[8 * b + j][h] = twice(u->sc[j] + 8 * h);
            }
        }
        for (size_t j = 0; j < 4; j++) {
            pairs_of(load16(u->m[2 * j]), load16(u->m[2 * j + 1]), s, 4 * b + j);
        }
        mm_scales(u->d, s->d[b]);
        mm_scales(u->dmin, s->m[b]);
    }
}

static void unpack_q6_k(const uint8_t *units, size_t k, mm_strip *s)
{
    const unit_q6_k *u = (const void *)units;
    for (size_t b = 0; b < k / BLOCK; b++, u++) {
        for (size_t j = 0; j < 8; j++) {
            PREFETCH_SHARE(u, j);
            for (size_t h = 0; h < 2; h++) {
                __m256i lines[LINES], top[LINES];
                mm_nibbles(u->nibbles[j], h, lines);
                pair_lines(u->pairs[j], h, 4, top);
                MM_UNROLL
                for (size_t r = 0; r < LINES; r++) {
                    lines[r] = _mm256_or_si256(lines[r], top[r]);
                }
                mm_store_lines(s->codes + LINES * (8 * b + j), h, lines);
                s->sc[16 * b + 2 * j][h] = twice_signed(u->sc[2 * j] + 8 * h);
                s->sc[16 * b + 2 * j + 1][h] = twice_signed(u->sc[2 * j + 1] + 8 * h);
            }
        }
        mm_scales(u->d, s->d[b]);
    }
}

static void unpack_iq4_xs(const uint8_t *units, size_t k, mm_strip *s)
{
    const unit_iq4_xs *u = (const void *)units;
    for (size_t b = 0; b < k / BLOCK; b++, u++) {
        for (size_t j = 0; j < 8; j++) {
            PREFETCH_SHARE(u, j);
            for (size_t h = 0; h < 2; h++) {
                const size_t at = LINES * (8 * b + j);
                __m256i lines[LINES];
                mm_nibbles(u->nibbles[j], h, lines);
                mm_iq4_planes(lines, h, s->codes + at, s->high + at);
                s->sc[8 * b + j][h] = twice_signed(u->sc[j] + 8 * h);
            }
        }
        mm_scales(u->d, s->d[b]);
    }
}

/* All have blocks of 256 and chunks of MM_CHUNK. */
#define Q256_PRODUCT(name, rows_of, extra_of, offset_of)                                             \
    void matmul_avx2_##name(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y, \
                            size_t y_stride)                                                         \
    {                                                                                                \
        static const mm_format f = {.unit_bytes = sizeof(unit_##name),                               \
                                    .unit_values = BLOCK,                                            \
                                    .unpack = unpack_##name,                                         \
                                    .rows = rows_of,                                                 \
                                    .chunk = MM_CHUNK,                                               \
                                    .extra = extra_of,                                               \
                                    .offset = offset_of};                                            \
        mm_run(&f, w, a, n0, n1, y, y_stride);                                                       \
    }

Q256_PRODUCT(q2_k, rows_q2_k, MM_NONE, 0)
Q256_PRODUCT(q3_k, rows_signed, MM_START16, 4)
Q256_PRODUCT(q4_k, rows_q4_k, MM_SUMS64, 0)
Q256_PRODUCT(q5_k, rows_q5_k, MM_SUMS64, 0)
Q256_PRODUCT(q6_k, rows_signed, MM_START16, 32)
Q256_PRODUCT(iq4_xs, rows_iq4_xs, MM_START32, 8)
