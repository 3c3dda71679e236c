/*
 * Products with Q4_K in AVX2 (the rule: kern/README.md; the lanes: matmul_avx2.h).
 *
 * Codes 0 … 15: the eight int16 pair sums of a sub-block stay below 30,481, and one vpmaddwd with (sc_j,
 * sc_j) widens and scales them at once. msum likewise: (m_j, m_j) times the two sums of 16 activations.
 */
#include "kern/x86/matmul_avx2.h"

#define BLOCK 256
#define SUBS  8

typedef struct q4_k_scales {
    __m256i sc[SUBS]; /* lane = output: the scale twice, as int16 */
    __m256i m[SUBS];
    __m256 d;
    __m256 dmin;
} q4_k_scales;

/* Byte j of each dword, twice, as int16. */
MM_INLINE __m256i byte_pairs(__m256i v, int j)
{
    const int pick = j | 0x8000 | j << 16 | (int)0x80000000u;
    const __m256i add =
        _mm256_setr_epi32(0, 0x00040004, 0x00080008, 0x000C000C, 0, 0x00040004, 0x00080008, 0x000C000C);
    return _mm256_shuffle_epi8(v, _mm256_or_si256(_mm256_set1_epi32(pick), add));
}

/* The 16 bytes before the codes: d, dmin and the packed six-bit scales (gguf/blocks.h) of eight rows. */
MM_INLINE void scales_unpack(const mm_group *g, size_t at, q4_k_scales *s)
{
    __m256i t[4];
    mm_load_dwords(g->row, at, t);
    const __m256i six = _mm256_set1_epi8(63);
    const __m256i four = _mm256_set1_epi8(15);
    const __m256i top = _mm256_set1_epi8(48);
    __m256i sc_low = _mm256_and_si256(t[1], six);
    __m256i m_low = _mm256_and_si256(t[2], six);
    __m256i sc_high =
        _mm256_or_si256(_mm256_and_si256(t[3], four), _mm256_and_si256(_mm256_srli_epi32(t[1], 2), top));
    __m256i m_high = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi32(t[3], 4), four),
                                     _mm256_and_si256(_mm256_srli_epi32(t[2], 2), top));
    MM_UNROLL
    for (int j = 0; j < 4; j++) {
        s->sc[j] = byte_pairs(sc_low, j);
        s->m[j] = byte_pairs(m_low, j);
        s->sc[4 + j] = byte_pairs(sc_high, j);
        s->m[4 + j] = byte_pairs(m_high, j);
    }
    /* [d 0-3, dmin 0-3 | d 4-7, dmin 4-7] -> [d 0-7 | dmin 0-7] */
    __m256i halves =
        _mm256_packus_epi32(_mm256_and_si256(t[0], _mm256_set1_epi32(0xFFFF)), _mm256_srli_epi32(t[0], 16));
    halves = _mm256_permute4x64_epi64(halves, 0xD8);
    s->d = _mm256_cvtph_ps(_mm256_castsi256_si128(halves));
    s->dmin = _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1));
}

/* Run `run` of 32 code bytes: sub-blocks 2 run and 2 run + 1, added to isum. x: the block's codes of row 0.
 */
MM_INLINE void run_add(const mm_group *g, size_t at, const q4_k_scales *s, size_t run, const int8_t *x,
                       size_t q_stride, __m256i *isum, const int rows)
{
    const __m256i nibble = _mm256_set1_epi8(15);
    __m256i low[MM_ROWS], high[MM_ROWS];
    MM_UNROLL
    for (int i = 0; i < rows; i++) {
        low[i] = _mm256_setzero_si256();
        high[i] = _mm256_setzero_si256();
    }
    MM_UNROLL
    for (size_t h = 0; h < 2; h++) {
        __m256i t[4];
        mm_load_dwords(g->row, at + offsetof(block_q4_k, qs) + 32 * run + 16 * h, t);
        MM_UNROLL
        for (size_t j = 0; j < 4; j++) {
            __m256i c0 = _mm256_and_si256(t[j], nibble);
            __m256i c1 = _mm256_and_si256(_mm256_srli_epi16(t[j], 4), nibble);
            MM_UNROLL
            for (int i = 0; i < rows; i++) {
                const int8_t *p = x + (size_t)i * q_stride + 64 * run + 16 * h + 4 * j;
                low[i] = _mm256_add_epi16(low[i], _mm256_maddubs_epi16(c0, mm_broadcast_dword(p)));
                high[i] = _mm256_add_epi16(high[i], _mm256_maddubs_epi16(c1, mm_broadcast_dword(p + 32)));
                MM_KEEP(low[i]);
                MM_KEEP(high[i]);
            }
        }
    }
    MM_UNROLL
    for (int i = 0; i < rows; i++) {
        isum[i] = _mm256_add_epi32(isum[i], _mm256_madd_epi16(low[i], s->sc[2 * run]));
        isum[i] = _mm256_add_epi32(isum[i], _mm256_madd_epi16(high[i], s->sc[2 * run + 1]));
    }
}

/* sums: the block's sixteen. */
MM_INLINE __m256i min_sum(const q4_k_scales *s, const int16_t *sums)
{
    __m256i msum = _mm256_setzero_si256();
    MM_UNROLL
    for (size_t j = 0; j < SUBS; j++) {
        msum = _mm256_add_epi32(msum, _mm256_madd_epi16(s->m[j], mm_broadcast_dword(sums + 2 * j)));
    }
    return msum;
}

MM_INLINE void tile_q4_k(const mm_group *g, const kern_act *a, size_t r, __m256 *acc, const int rows)
{
    const size_t q_stride = a->n_blocks * BLOCK;
    __m256 out[MM_ROWS];
    for (int i = 0; i < rows; i++) {
        out[i] = _mm256_setzero_ps();
    }
    for (size_t b = 0; b < a->n_blocks; b++) {
        const size_t at = b * sizeof(block_q4_k);
        mm_prefetch(g, g->row, at, sizeof(block_q4_k));
        q4_k_scales s;
        __m256i isum[MM_ROWS];
        scales_unpack(g, at, &s);
        MM_UNROLL
        for (int i = 0; i < rows; i++) {
            isum[i] = _mm256_setzero_si256();
        }
        for (size_t run = 0; run < SUBS / 2; run++) {
            run_add(g, at, &s, run, a->q + r * q_stride + b * BLOCK, q_stride, isum, rows);
        }
        MM_UNROLL
        for (int i = 0; i < rows; i++) {
            const size_t block = (r + (size_t)i) * a->n_blocks + b;
            const __m256 d_act = _mm256_set1_ps(a->d[block]);
            __m256i msum = min_sum(&s, a->sums + block * (BLOCK / 16));
            out[i] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(isum[i]), _mm256_mul_ps(d_act, s.d), out[i]);
            out[i] = _mm256_fnmadd_ps(_mm256_cvtepi32_ps(msum), _mm256_mul_ps(d_act, s.dmin), out[i]);
        }
    }
    for (int i = 0; i < rows; i++) {
        acc[i] = out[i];
    }
}
MM_TILES(q4_k);

void matmul_avx2_q4_k(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                      size_t y_stride)
{
    mm_run(w, a, n0, n1, y, y_stride, MM_LANES, tiles_q4_k);
}
