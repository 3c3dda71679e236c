/*
 * Products with Q6_K in AVX2 (the rule: kern/README.md; the lanes: matmul_avx2.h).
 *
 * Codes are taken as 0 … 63: an int16 pair sum is at most 16,002, two of them 32,004, so a sub-block of 16
 * values is two vpmaddwd with (sc_j, sc_j). The -32 is taken off at the end: isum - 32 * sum of sc_j * sum_j.
 */
#include "kern/x86/matmul_avx2.h"

#define BLOCK 256
#define SUBS  16

typedef struct q6_k_scales {
    __m256i twice[SUBS];    /* lane = output: (sc_j, sc_j) as int16 */
    __m256i pair[SUBS / 2]; /* (sc_2j, sc_2j+1) */
} q6_k_scales;

/* Bytes j0 and j1 of each dword as two int16: put into the high bytes, then shifted down with their sign. */
MM_INLINE __m256i byte_pair(__m256i v, int j0, int j1)
{
    const int pick = 0x80 | j0 << 8 | 0x80 << 16 | j1 << 24;
    const __m256i add =
        _mm256_setr_epi32(0, 0x04000400, 0x08000800, 0x0C000C00, 0, 0x04000400, 0x08000800, 0x0C000C00);
    return _mm256_srai_epi16(_mm256_shuffle_epi8(v, _mm256_or_si256(_mm256_set1_epi32(pick), add)), 8);
}

MM_INLINE void scales_unpack(const mm_group *g, size_t at, q6_k_scales *s)
{
    __m256i t[4];
    mm_load_dwords(g->row, at + offsetof(block_q6_k, scales), t);
    MM_UNROLL
    for (int j = 0; j < 4; j++) {
        s->twice[4 * j] = byte_pair(t[j], 0, 0);
        s->twice[4 * j + 1] = byte_pair(t[j], 1, 1);
        s->twice[4 * j + 2] = byte_pair(t[j], 2, 2);
        s->twice[4 * j + 3] = byte_pair(t[j], 3, 3);
        s->pair[2 * j] = byte_pair(t[j], 0, 1);
        s->pair[2 * j + 1] = byte_pair(t[j], 2, 3);
    }
}

/*
 * Four codes of the sub-block of `quarter`: a nibble and two high bits. low: dword j of the low-nibble run of
 * quarters 0 and 2 or of 1 and 3; high: dword j of the high-bit run.
 */
MM_INLINE __m256i codes_join(__m256i low, __m256i high, const size_t quarter)
{
    const __m256i nibble = _mm256_set1_epi8(15);
    const __m256i top = _mm256_set1_epi8(48);
    __m256i bits;
    switch (quarter) {
    case 0:
        bits = _mm256_slli_epi16(high, 4);
        break;
    case 1:
        bits = _mm256_slli_epi16(high, 2);
        break;
    case 2:
        bits = high;
        break;
    default:
        bits = _mm256_srli_epi16(high, 2);
        break;
    }
    low = quarter < 2 ? low : _mm256_srli_epi16(low, 4);
    return _mm256_or_si256(_mm256_and_si256(low, nibble), _mm256_and_si256(bits, top));
}

/* One sub-block of 16; x: its activation codes of row 0. */
MM_INLINE void sub_block_add(const __m256i low[4], const __m256i high[4], const size_t quarter, __m256i sc,
                             const int8_t *x, size_t q_stride, __m256i *isum, const int rows)
{
    MM_UNROLL
    for (size_t j = 0; j < 4; j += 2) {
        __m256i u0 = codes_join(low[j], high[j], quarter);
        __m256i u1 = codes_join(low[j + 1], high[j + 1], quarter);
        MM_UNROLL
        for (int i = 0; i < rows; i++) {
            const int8_t *p = x + (size_t)i * q_stride + 4 * j;
            __m256i pairs = _mm256_add_epi16(_mm256_maddubs_epi16(u0, mm_broadcast_dword(p)),
                                             _mm256_maddubs_epi16(u1, mm_broadcast_dword(p + 4)));
            isum[i] = _mm256_add_epi32(isum[i], _mm256_madd_epi16(pairs, sc));
            MM_KEEP(isum[i]);
        }
    }
}

/*
 * 16 bytes of each of the two low-nibble runs and of the high-bit run of a half: 64 codes, which belong to
 * four sub-blocks, one in each quarter. x: the block's codes of row 0.
 */
MM_INLINE void part_add(const mm_group *g, size_t at, const q6_k_scales *s, size_t half, size_t part,
                        const int8_t *x, size_t q_stride, __m256i *isum, const int rows)
{
    const size_t ql = at + offsetof(block_q6_k, ql) + 64 * half + 16 * part;
    const size_t sub = 8 * half + part;
    __m256i low0[4], low1[4], high[4];
    mm_load_dwords(g->row, at + offsetof(block_q6_k, qh) + 32 * half + 16 * part, high);
    mm_load_dwords(g->row, ql, low0);
    sub_block_add(low0, high, 0, s->twice[sub], x + 16 * sub, q_stride, isum, rows);
    sub_block_add(low0, high, 2, s->twice[sub + 4], x + 16 * (sub + 4), q_stride, isum, rows);
    mm_load_dwords(g->row, ql + 32, low1);
    sub_block_add(low1, high, 1, s->twice[sub + 2], x + 16 * (sub + 2), q_stride, isum, rows);
    sub_block_add(low1, high, 3, s->twice[sub + 6], x + 16 * (sub + 6), q_stride, isum, rows);
}

/* 32 * sum of sc_j * sum_j; sums: the block's sixteen. */
MM_INLINE __m256i offset_sum(const q6_k_scales *s, const int16_t *sums)
{
    __m256i sum = _mm256_setzero_si256();
    MM_UNROLL
    for (size_t j = 0; j < SUBS / 2; j++) {
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(s->pair[j], mm_broadcast_dword(sums + 2 * j)));
    }
    return _mm256_slli_epi32(sum, 5);
}

MM_INLINE void tile_q6_k(const mm_group *g, const kern_act *a, size_t r, __m256 *acc, const int rows)
{
    const size_t q_stride = a->n_blocks * BLOCK;
    __m256 out[MM_ROWS];
    for (int i = 0; i < rows; i++) {
        out[i] = _mm256_setzero_ps();
    }
    for (size_t b = 0; b < a->n_blocks; b++) {
        const size_t at = b * sizeof(block_q6_k);
        mm_prefetch(g, g->row, at, sizeof(block_q6_k));
        q6_k_scales s;
        __m256i isum[MM_ROWS];
        scales_unpack(g, at, &s);
        MM_UNROLL
        for (int i = 0; i < rows; i++) {
            isum[i] = _mm256_setzero_si256();
        }
        for (size_t c = 0; c < 4; c++) {
            part_add(g, at, &s, c / 2, c % 2, a->q + r * q_stride + b * BLOCK, q_stride, isum, rows);
        }
        __m256 dw = mm_load_halves(g->row, at + offsetof(block_q6_k, d));
        MM_UNROLL
        for (int i = 0; i < rows; i++) {
            const size_t block = (r + (size_t)i) * a->n_blocks + b;
            __m256i exact = _mm256_sub_epi32(isum[i], offset_sum(&s, a->sums + block * (BLOCK / 16)));
            __m256 scale = _mm256_mul_ps(_mm256_set1_ps(a->d[block]), dw);
            out[i] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(exact), scale, out[i]);
        }
    }
    for (int i = 0; i < rows; i++) {
        acc[i] = out[i];
    }
}
MM_TILES(q6_k);

void matmul_avx2_q6_k(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                      size_t y_stride)
{
    mm_run(w, a, n0, n1, y, y_stride, MM_LANES, tiles_q6_k);
}
