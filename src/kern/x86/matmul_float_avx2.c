/*
 * Products with F32 and F16 in AVX2 (the rule: kern/README.md; the lanes: matmul_avx2.h): one fma per k and
 * output, k ascending. One accumulator is a chain of four cycles a step, so one or two activation rows take
 * sixteen outputs at once; more rows bring chains enough, and the registers are theirs.
 */
#include "kern/x86/matmul_avx2.h"

#define WIDTH      (2 * MM_LANES)
#define LINE_BYTES 64
#define ROWS_SIDE_BY_SIDE \
    2 /* up to here the sixteen outputs of a tile run together, beyond eight after eight */

typedef enum float_format { FORMAT_F32, FORMAT_F16 } float_format;

/* Values c … c + 3 of eight rows: t[j] is value c + j, lane = row. */
MM_INLINE void load_f32(const uint8_t *const *row, size_t c, __m256 *t)
{
    __m256i bits[4];
    mm_load_dwords(row, c * sizeof(float), bits);
    MM_UNROLL
    for (int j = 0; j < 4; j++) {
        t[j] = _mm256_castsi256_ps(bits[j]);
    }
}

/* Values c … c + 7 of eight rows likewise: widened row by row, then transposed 8 x 8. */
MM_INLINE void load_f16(const uint8_t *const *row, size_t c, __m256 *t)
{
    __m256 v[8], pair[8], quad[8];
    MM_UNROLL
    for (int i = 0; i < 8; i++) {
        v[i] =
            _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(row[i] + c * sizeof(uint16_t))));
    }
    MM_UNROLL
    for (int i = 0; i < 8; i += 2) {
        pair[i] = _mm256_unpacklo_ps(v[i], v[i + 1]);
        pair[i + 1] = _mm256_unpackhi_ps(v[i], v[i + 1]);
    }
    MM_UNROLL
    for (int i = 0; i < 8; i += 4) {
        __m256d low0 = _mm256_castps_pd(pair[i]), low1 = _mm256_castps_pd(pair[i + 2]);
        __m256d high0 = _mm256_castps_pd(pair[i + 1]), high1 = _mm256_castps_pd(pair[i + 3]);
        quad[i] = _mm256_castpd_ps(_mm256_unpacklo_pd(low0, low1));
        quad[i + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(low0, low1));
        quad[i + 2] = _mm256_castpd_ps(_mm256_unpacklo_pd(high0, high1));
        quad[i + 3] = _mm256_castpd_ps(_mm256_unpackhi_pd(high0, high1));
    }
    MM_UNROLL
    for (int j = 0; j < 4; j++) {
        t[j] = _mm256_permute2f128_ps(quad[j], quad[j + 4], 0x20);
        t[j + 4] = _mm256_permute2f128_ps(quad[j], quad[j + 4], 0x31);
    }
}

/* Value c of eight rows, for the end of a row: padding would turn an accumulator of -0 into +0. */
MM_INLINE __m256 load_one(const uint8_t *const *row, size_t c, const float_format format)
{
    if (format == FORMAT_F16) {
        return mm_load_halves(row, c * sizeof(uint16_t));
    }
    const size_t at = c * sizeof(float);
    return _mm256_setr_ps(lef32_get(row[0] + at), lef32_get(row[1] + at), lef32_get(row[2] + at),
                          lef32_get(row[3] + at), lef32_get(row[4] + at), lef32_get(row[5] + at),
                          lef32_get(row[6] + at), lef32_get(row[7] + at));
}

/* `count` values of k from c on, a whole number of transposed steps, into the accumulators of eight outputs.
 */
MM_INLINE void values_add(const uint8_t *const *row, size_t c, const size_t count, const float *x, size_t k,
                          __m256 *out, const int rows, const float_format format)
{
    const size_t step = format == FORMAT_F16 ? 8 : 4;
    MM_UNROLL
    for (size_t s = 0; s < count; s += step) {
        __m256 t[8];
        if (format == FORMAT_F16) {
            load_f16(row, c + s, t);
        } else {
            load_f32(row, c + s, t);
        }
        MM_UNROLL
        for (size_t j = 0; j < step; j++) {
            MM_UNROLL
            for (int i = 0; i < rows; i++) {
                out[i] = _mm256_fmadd_ps(t[j], _mm256_set1_ps(x[(size_t)i * k + c + s + j]), out[i]);
            }
        }
    }
}

/*
 * vectors * 8 outputs, whose chains run side by side. acc: [vectors][rows]. A cache line of each row is used
 * up before the next row's: rows of 4, 8, 16 KiB fall into the same few sets of L1, which cannot hold sixteen
 * of them.
 */
MM_INLINE void chains_run(const mm_group *g, size_t first, const float *x, size_t k, __m256 *acc,
                          const int rows, const int vectors, const float_format format)
{
    const size_t value_bytes = format == FORMAT_F16 ? sizeof(uint16_t) : sizeof(float);
    const size_t step = format == FORMAT_F16 ? 8 : 4;
    const size_t line = LINE_BYTES / value_bytes;
    __m256 out[2][MM_ROWS];
    for (int v = 0; v < vectors; v++) {
        for (int i = 0; i < rows; i++) {
            out[v][i] = _mm256_setzero_ps();
        }
    }
    size_t c = 0;
    for (; c + line <= k; c += line) {
        MM_UNROLL
        for (int v = 0; v < vectors; v++) {
            const uint8_t *const *row = g->row + first + v * MM_LANES;
            mm_prefetch(g, row, c * value_bytes, LINE_BYTES);
            values_add(row, c, line, x, k, out[v], rows, format);
        }
    }
    for (; c + step <= k; c += step) {
        MM_UNROLL
        for (int v = 0; v < vectors; v++) {
            values_add(g->row + first + v * MM_LANES, c, step, x, k, out[v], rows, format);
        }
    }
    for (; c < k; c++) {
        MM_UNROLL
        for (int v = 0; v < vectors; v++) {
            __m256 t = load_one(g->row + first + v * MM_LANES, c, format);
            for (int i = 0; i < rows; i++) {
                out[v][i] = _mm256_fmadd_ps(t, _mm256_set1_ps(x[(size_t)i * k + c]), out[v][i]);
            }
        }
    }
    for (int v = 0; v < vectors; v++) {
        for (int i = 0; i < rows; i++) {
            acc[v * rows + i] = out[v][i];
        }
    }
}

MM_INLINE void tile_float(const mm_group *g, const kern_act *a, size_t r, __m256 *acc, const int rows,
                          const float_format format)
{
    const float *x = a->f32 + r * a->k;
    if (rows <= ROWS_SIDE_BY_SIDE) {
        chains_run(g, 0, x, a->k, acc, rows, 2, format);
        return;
    }
    for (int v = 0; v < 2; v++) {
        chains_run(g, (size_t)v * MM_LANES, x, a->k, acc + v * rows, rows, 1, format);
    }
}

MM_INLINE void tile_f32(const mm_group *g, const kern_act *a, size_t r, __m256 *acc, const int rows)
{
    tile_float(g, a, r, acc, rows, FORMAT_F32);
}
MM_TILES(f32);

MM_INLINE void tile_f16(const mm_group *g, const kern_act *a, size_t r, __m256 *acc, const int rows)
{
    tile_float(g, a, r, acc, rows, FORMAT_F16);
}
MM_TILES(f16);

void matmul_avx2_f32(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y, size_t y_stride)
{
    mm_run(w, a, n0, n1, y, y_stride, WIDTH, tiles_f32);
}

void matmul_avx2_f16(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y, size_t y_stride)
{
    mm_run(w, a, n0, n1, y, y_stride, WIDTH, tiles_f16);
}
