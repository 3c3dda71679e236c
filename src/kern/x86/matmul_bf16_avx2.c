/*
 * Products with BF16 in AVX2 (the rule: kern/README.md; the lanes: matmul_avx2.h): per 32 k an even and an
 * odd fma chain from +0, even + odd, then the accumulator. The flush of denormals is the CPU's own: DAZ and
 * FTZ are set for the time of the product. FTZ judges a result after rounding to 24 bits, as the reference
 * does and the tile unit.
 */
#include <string.h>

#include "kern/x86/matmul_avx2.h"

#define RUN       32 /* k per pair of chains */
#define RUN_BYTES (RUN * sizeof(uint16_t))
#define FTZ_DAZ   0x8040u

/* RUN values of k: bytes `at` of eight rows, x: [rows][x_stride]. */
MM_INLINE void run_add(const uint8_t *const *row, size_t at, const float *x, size_t x_stride, __m256 *acc,
                       const int rows)
{
    const __m256i odd_half = _mm256_set1_epi32((int)0xFFFF0000u);
    __m256 even[MM_ROWS], odd[MM_ROWS];
    MM_UNROLL
    for (int i = 0; i < rows; i++) {
        even[i] = _mm256_setzero_ps();
        odd[i] = _mm256_setzero_ps();
    }
    MM_UNROLL
    for (size_t c = 0; c < RUN; c += 8) {
        __m256i t[4];
        mm_load_dwords(row, at + c * sizeof(uint16_t), t);
        MM_UNROLL
        for (size_t j = 0; j < 4; j++) {
            __m256 w0 = _mm256_castsi256_ps(_mm256_slli_epi32(t[j], 16));
            __m256 w1 = _mm256_castsi256_ps(_mm256_and_si256(t[j], odd_half));
            MM_UNROLL
            for (int i = 0; i < rows; i++) {
                const float *p = x + (size_t)i * x_stride + c + 2 * j;
                even[i] = _mm256_fmadd_ps(w0, _mm256_set1_ps(p[0]), even[i]);
                odd[i] = _mm256_fmadd_ps(w1, _mm256_set1_ps(p[1]), odd[i]);
            }
        }
    }
    MM_UNROLL
    for (int i = 0; i < rows; i++) {
        acc[i] = _mm256_add_ps(acc[i], _mm256_add_ps(even[i], odd[i]));
    }
}

/* The last n < RUN values, padded with zeros to a whole run. */
MM_INLINE void tail_add(const mm_group *g, const float *x, size_t k, size_t n, __m256 *acc, const int rows)
{
    uint8_t weights[MM_LANES][RUN_BYTES] = {{0}};
    float values[MM_ROWS][RUN] = {{0}};
    const uint8_t *row[MM_LANES];
    for (size_t i = 0; i < MM_LANES; i++) {
        memcpy(weights[i], g->row[i] + (k - n) * sizeof(uint16_t), n * sizeof(uint16_t));
        row[i] = weights[i];
    }
    for (size_t i = 0; i < (size_t)rows; i++) {
        memcpy(values[i], x + i * k + (k - n), n * sizeof(float));
    }
    run_add(row, 0, values[0], RUN, acc, rows);
}

MM_INLINE void tile_bf16(const mm_group *g, const kern_act *a, size_t r, __m256 *acc, const int rows)
{
    const float *x = a->f32 + r * a->k;
    __m256 out[MM_ROWS];
    for (int i = 0; i < rows; i++) {
        out[i] = _mm256_setzero_ps();
    }
    size_t tail = a->k % RUN;
    for (size_t c = 0; c < a->k - tail; c += RUN) {
        mm_prefetch(g, g->row, c * sizeof(uint16_t), RUN_BYTES);
        run_add(g->row, c * sizeof(uint16_t), x + c, a->k, out, rows);
    }
    if (tail) {
        tail_add(g, x, a->k, tail, out, rows);
    }
    for (int i = 0; i < rows; i++) {
        acc[i] = out[i];
    }
}
MM_TILES(bf16);

void matmul_avx2_bf16(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                      size_t y_stride)
{
    /* All arithmetic is behind mm_run, in another file, so the compiler cannot move it past the switches. */
    unsigned mode = _mm_getcsr();
    _mm_setcsr(mode | FTZ_DAZ);
    mm_run(w, a, n0, n1, y, y_stride, MM_LANES, tiles_bf16);
    _mm_setcsr(mode);
}
