/*
 * matmul_avx2: what the AVX2 matrix products share. Private to src/kern/x86/matmul_*_avx2.c.
 *
 * Lanes are outputs. A group is eight consecutive weight rows; 16 bytes of each are loaded and transposed by
 * dwords in registers, so that one vector holds the same four bytes of k of eight outputs, and the
 * activation's four bytes are broadcast. Every lane is therefore one output's own accumulator and goes
 * through the operations of the reference in its order. A tile is one group times up to MM_ROWS activation
 * rows, which share the unpacked weights.
 *
 *     rows in memory              loaded [row r | row r+4]       transposed
 *     row 0: a0 a1 a2 a3          v0: a0 a1 a2 a3 | e0 …         t[0]: a0 b0 c0 d0 | e0 f0 g0 h0
 *     row 1: b0 b1 b2 b3          v1: b0 b1 b2 b3 | f0 …         t[1]: a1 b1 c1 d1 | e1 f1 g1 h1
 *     …                           …                              …
 */
#ifndef HEARTH_KERN_X86_MATMUL_AVX2_H
#define HEARTH_KERN_X86_MATMUL_AVX2_H

#include <immintrin.h>

#include "base/le.h"
#include "kern/kern.h"

#define MM_LANES 8 /* outputs of a vector */
#define MM_ROWS  4 /* activation rows of a tile: as many accumulators as sixteen registers leave room for */
/* Bytes a row is fetched ahead. 512 … 2048 measure alike; without it a third of the rate is lost. */
#define MM_AHEAD 1024

#define MM_INLINE static inline __attribute__((always_inline))

/* Loops over the vectors of a tile must disappear, else their arrays stay in memory. Under a sanitizer, which
 * checks every load, they stay: unrolled, one file takes a minute to compile. */
#ifdef __has_feature /* clang's way to tell */
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define MM_SANITIZED
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MM_SANITIZED
#endif
#ifdef MM_SANITIZED
#define MM_UNROLL
#elif defined(__clang__)
#define MM_UNROLL _Pragma("clang loop unroll(full)")
#else
#define MM_UNROLL _Pragma("GCC unroll 16")
#endif

/*
 * Pins a partial sum where it is written. GCC reorders integer additions (they are associative) so that it
 * multiplies a whole block first and adds at the end, with every product on the stack: three times slower.
 */
#define MM_KEEP(v) __asm__("" : "+x"(v))

/* Rows past the last one repeat it: their lanes are computed and dropped. */
typedef struct mm_group {
    const uint8_t *row[2 * MM_LANES];
    size_t row_bytes;
    size_t wrap_bytes; /* from the end of a row to the same row of the next group */
} mm_group;

/* Activation rows [r, r + rows) times a group; acc[(lane / 8) * rows + row], width / 8 * rows vectors. */
typedef void (*mm_tile_fn)(const mm_group *g, const kern_act *a, size_t r, __m256 *acc);

/* Tile functions for 1 … MM_ROWS rows from one body `tile_<name>(g, a, r, acc, rows)`, and their table. */
#define MM_TILES(name)                                                                                  \
    static void tile_##name##_1(const mm_group *g, const kern_act *a, size_t r, __m256 *acc)            \
    {                                                                                                   \
        tile_##name(g, a, r, acc, 1);                                                                   \
    }                                                                                                   \
    static void tile_##name##_2(const mm_group *g, const kern_act *a, size_t r, __m256 *acc)            \
    {                                                                                                   \
        tile_##name(g, a, r, acc, 2);                                                                   \
    }                                                                                                   \
    static void tile_##name##_3(const mm_group *g, const kern_act *a, size_t r, __m256 *acc)            \
    {                                                                                                   \
        tile_##name(g, a, r, acc, 3);                                                                   \
    }                                                                                                   \
    static void tile_##name##_4(const mm_group *g, const kern_act *a, size_t r, __m256 *acc)            \
    {                                                                                                   \
        tile_##name(g, a, r, acc, 4);                                                                   \
    }                                                                                                   \
    static const mm_tile_fn tiles_##name[MM_ROWS] = {tile_##name##_1, tile_##name##_2, tile_##name##_3, \
                                                     tile_##name##_4}

/* Walks [n0, n1) in groups of `width` (8 or 16) outputs and all rows of a in tiles. matmul_table_avx2.c */
void mm_run(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y, size_t y_stride,
            size_t width, const mm_tile_fn tiles[MM_ROWS]);

void matmul_avx2_f32(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                     size_t y_stride);
void matmul_avx2_f16(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                     size_t y_stride);
void matmul_avx2_bf16(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                      size_t y_stride);
void matmul_avx2_q8_0(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                      size_t y_stride);
void matmul_avx2_q4_0(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                      size_t y_stride);
void matmul_avx2_q4_k(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                      size_t y_stride);
void matmul_avx2_q6_k(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                      size_t y_stride);
void act_prepare_avx2(kern_act *a, const float *x, size_t r0, size_t r1, uint8_t *bad);

/* 16 bytes at offset `at` of rows 0 … 7: t[j] holds dword j of each, lane = row. */
MM_INLINE void mm_load_dwords(const uint8_t *const *row, size_t at, __m256i t[4])
{
    __m256i v[4];
    MM_UNROLL
    for (int i = 0; i < 4; i++) {
        __m128i low = _mm_loadu_si128((const __m128i *)(const void *)(row[i] + at));
        __m128i high = _mm_loadu_si128((const __m128i *)(const void *)(row[i + 4] + at));
        v[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
    }
    __m256i ab01 = _mm256_unpacklo_epi32(v[0], v[1]);
    __m256i ab23 = _mm256_unpackhi_epi32(v[0], v[1]);
    __m256i cd01 = _mm256_unpacklo_epi32(v[2], v[3]);
    __m256i cd23 = _mm256_unpackhi_epi32(v[2], v[3]);
    t[0] = _mm256_unpacklo_epi64(ab01, cd01);
    t[1] = _mm256_unpackhi_epi64(ab01, cd01);
    t[2] = _mm256_unpacklo_epi64(ab23, cd23);
    t[3] = _mm256_unpackhi_epi64(ab23, cd23);
}

/*
 * Of eight rows, fetches the lines that begin MM_AHEAD bytes behind [at, at + n_bytes), past a row's end
 * those of the next group. The address may be outside the matrix: a prefetch cannot fault.
 */
MM_INLINE void mm_prefetch(const mm_group *g, const uint8_t *const *row, size_t at, size_t n_bytes)
{
    for (size_t line = (at + 63) / 64 * 64; line < at + n_bytes; line += 64) {
        size_t ahead = line + MM_AHEAD;
        ahead += ahead >= g->row_bytes ? g->wrap_bytes : 0;
        MM_UNROLL
        for (int i = 0; i < MM_LANES; i++) {
            _mm_prefetch((const char *)((uintptr_t)row[i] + ahead), _MM_HINT_T0);
        }
    }
}

/* The binary16 scale at offset `at` of rows 0 … 7, widened; 16 bytes from there on belong to the row. */
MM_INLINE __m256 mm_load_scales(const uint8_t *const *row, size_t at)
{
    __m128i d[4];
    MM_UNROLL
    for (int i = 0; i < 4; i++) {
        d[i] = _mm_unpacklo_epi16(_mm_loadu_si128((const __m128i *)(const void *)(row[2 * i] + at)),
                                  _mm_loadu_si128((const __m128i *)(const void *)(row[2 * i + 1] + at)));
    }
    __m128i low = _mm_unpacklo_epi32(d[0], d[1]);
    __m128i high = _mm_unpacklo_epi32(d[2], d[3]);
    return _mm256_cvtph_ps(_mm_unpacklo_epi64(low, high));
}

/* One binary16 value at offset `at` of rows 0 … 7, widened. */
MM_INLINE __m256 mm_load_halves(const uint8_t *const *row, size_t at)
{
    __m128i d = _mm_setr_epi16((short)le16_get(row[0] + at), (short)le16_get(row[1] + at),
                               (short)le16_get(row[2] + at), (short)le16_get(row[3] + at),
                               (short)le16_get(row[4] + at), (short)le16_get(row[5] + at),
                               (short)le16_get(row[6] + at), (short)le16_get(row[7] + at));
    return _mm256_cvtph_ps(d);
}

/* Four codes, or two 16-bit sums, in every lane. */
MM_INLINE __m256i mm_broadcast_dword(const void *p)
{
    return _mm256_set1_epi32((int)le32_get(p));
}

#endif
