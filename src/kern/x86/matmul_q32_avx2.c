/*
 * Products with Q8_0 and Q4_0 in AVX2 (the rule: kern/README.md; the lanes: matmul_avx2.h).
 *
 * vpmaddubsw multiplies unsigned by signed bytes and adds pairs into int16 with saturation; it never
 * saturates here: Q8_0: |w| as the unsigned side (128 for -128) and w's sign moved to the activation: at most
 * 2 * 128 * 127 = 32,512. Q4_0: codes 0 … 15, pairs at most 3,810; all eight pairs of a block at most 30,480,
 * so they are added as int16 and widened once. The -8 is taken off through the activations' sums.
 */
#include "kern/x86/matmul_avx2.h"

#define BLOCK 32

MM_INLINE void tile_q8_0(const mm_group *g, const kern_act *a, size_t r, __m256 *acc, const int rows)
{
    const size_t q_stride = a->n_blocks * BLOCK;
    const int8_t *q = a->q + r * q_stride;
    const float *d = a->d + r * a->n_blocks;
    const __m256i ones = _mm256_set1_epi16(1);
    __m256 out[MM_ROWS];
    for (int i = 0; i < rows; i++) {
        out[i] = _mm256_setzero_ps();
    }
    for (size_t b = 0; b < a->n_blocks; b++) {
        const size_t at = b * sizeof(block_q8_0);
        mm_prefetch(g, g->row, at, sizeof(block_q8_0));
        __m256i isum[MM_ROWS];
        MM_UNROLL
        for (int i = 0; i < rows; i++) {
            isum[i] = _mm256_setzero_si256();
        }
        MM_UNROLL
        for (size_t h = 0; h < 2; h++) {
            __m256i t[4];
            mm_load_dwords(g->row, at + offsetof(block_q8_0, qs) + 16 * h, t);
            MM_UNROLL
            for (size_t j = 0; j < 4; j++) {
                __m256i magnitude = _mm256_abs_epi8(t[j]);
                MM_UNROLL
                for (int i = 0; i < rows; i++) {
                    __m256i x = mm_broadcast_dword(q + (size_t)i * q_stride + b * BLOCK + 16 * h + 4 * j);
                    __m256i pairs = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(x, t[j]));
                    isum[i] = _mm256_add_epi32(isum[i], _mm256_madd_epi16(pairs, ones));
                    MM_KEEP(isum[i]);
                }
            }
        }
        __m256 dw = mm_load_scales(g->row, at);
        MM_UNROLL
        for (int i = 0; i < rows; i++) {
            __m256 scale = _mm256_mul_ps(_mm256_set1_ps(d[(size_t)i * a->n_blocks + b]), dw);
            out[i] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(isum[i]), scale, out[i]);
        }
    }
    for (int i = 0; i < rows; i++) {
        acc[i] = out[i];
    }
}
MM_TILES(q8_0);

MM_INLINE void tile_q4_0(const mm_group *g, const kern_act *a, size_t r, __m256 *acc, const int rows)
{
    const size_t q_stride = a->n_blocks * BLOCK;
    const int8_t *q = a->q + r * q_stride;
    const int16_t *sums = a->sums + r * a->n_blocks * (BLOCK / 16);
    const float *d = a->d + r * a->n_blocks;
    const __m256i nibble = _mm256_set1_epi8(15);
    const __m256i minus_eight = _mm256_set1_epi16(-8);
    const __m256i ones = _mm256_set1_epi16(1);
    __m256 out[MM_ROWS];
    for (int i = 0; i < rows; i++) {
        out[i] = _mm256_setzero_ps();
    }
    for (size_t b = 0; b < a->n_blocks; b++) {
        const size_t at = b * sizeof(block_q4_0);
        mm_prefetch(g, g->row, at, sizeof(block_q4_0));
        __m256i t[4], pairs[MM_ROWS];
        mm_load_dwords(g->row, at + offsetof(block_q4_0, qs), t);
        MM_UNROLL
        for (int i = 0; i < rows; i++) {
            pairs[i] = _mm256_setzero_si256();
        }
        MM_UNROLL
        for (size_t j = 0; j < 4; j++) {
            __m256i low = _mm256_and_si256(t[j], nibble);
            __m256i high = _mm256_and_si256(_mm256_srli_epi16(t[j], 4), nibble);
            MM_UNROLL
            for (int i = 0; i < rows; i++) {
                const int8_t *x = q + (size_t)i * q_stride + b * BLOCK + 4 * j;
                __m256i p0 = _mm256_maddubs_epi16(low, mm_broadcast_dword(x));
                __m256i p1 = _mm256_maddubs_epi16(high, mm_broadcast_dword(x + BLOCK / 2));
                pairs[i] = _mm256_add_epi16(pairs[i], _mm256_add_epi16(p0, p1));
                MM_KEEP(pairs[i]);
            }
        }
        __m256 dw = mm_load_scales(g->row, at);
        MM_UNROLL
        for (int i = 0; i < rows; i++) {
            __m256i sum = mm_broadcast_dword(sums + ((size_t)i * a->n_blocks + b) * (BLOCK / 16));
            __m256i isum =
                _mm256_add_epi32(_mm256_madd_epi16(pairs[i], ones), _mm256_madd_epi16(sum, minus_eight));
            __m256 scale = _mm256_mul_ps(_mm256_set1_ps(d[(size_t)i * a->n_blocks + b]), dw);
            out[i] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(isum), scale, out[i]);
        }
    }
    for (int i = 0; i < rows; i++) {
        acc[i] = out[i];
    }
}
MM_TILES(q4_0);

void matmul_avx2_q8_0(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                      size_t y_stride)
{
    mm_run(w, a, n0, n1, y, y_stride, MM_LANES, tiles_q8_0);
}

void matmul_avx2_q4_0(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                      size_t y_stride)
{
    mm_run(w, a, n0, n1, y, y_stride, MM_LANES, tiles_q4_0);
}
