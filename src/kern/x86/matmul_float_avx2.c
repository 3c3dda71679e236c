/*
 * AVX2 products with F32, F16 and BF16 weights (the rule: kern/README.md; lanes and walk: matmul_avx2.h).
 *
 * F32 and F16: one fma per k and output, k ascending. BF16: per 32 k an even and an odd fma chain from +0, even + odd,
 * then the accumulator; the flush of denormals is the CPU's own: DAZ and FTZ are set for the time of the product. FTZ
 * judges a result after rounding to 24 bits, as the reference does and the tile unit.
 */
#include "kern/x86/avx2.h"
#include "kern/x86/matmul_avx2.h"

#define RUN     32 /* bf16: k per pair of chains */
#define FTZ_DAZ 0x8040u

/* values: [k][16]. */
MM_INLINE void rows_add(const float *values, const mm_rows *a, size_t c, size_t k, float *acc, const int rows)
{
    __m256 out[MM_ROWS][2];
    MM_UNROLL
    for (int i = 0; i < rows; i++) {
        out[i][0] = _mm256_load_ps(acc + KERN_PANEL * i);
        out[i][1] = _mm256_load_ps(acc + KERN_PANEL * i + 8);
    }
    const float *x = a->x + c;
    for (size_t j = 0; j < k; j++) {
        __m256 w0 = _mm256_loadu_ps(values + KERN_PANEL * j);
        __m256 w1 = _mm256_loadu_ps(values + KERN_PANEL * j + 8);
        MM_UNROLL
        for (int i = 0; i < rows; i++) {
            __m256 v = _mm256_set1_ps(x[(size_t)i * a->x_stride + j]);
            out[i][0] = _mm256_fmadd_ps(w0, v, out[i][0]);
            out[i][1] = _mm256_fmadd_ps(w1, v, out[i][1]);
        }
    }
    MM_UNROLL
    for (int i = 0; i < rows; i++) {
        _mm256_store_ps(acc + KERN_PANEL * i, out[i][0]);
        _mm256_store_ps(acc + KERN_PANEL * i + 8, out[i][1]);
    }
}

/* From the strip (F16) or as the weights lie (F32). */
MM_INLINE void rows_float(const mm_strip *s, const uint8_t *w, const mm_rows *a, size_t c, size_t k,
                          float *acc, const int rows, const bool from_strip)
{
    rows_add(from_strip ? (const float *)s->floats : (const float *)(const void *)w, a, c, k, acc, rows);
}
MM_ROWS_FNS(rows_f32, rows_float, false);
MM_ROWS_FNS(rows_f16, rows_float, true);

static void unpack_f16(const uint8_t *units, size_t k, mm_strip *s)
{
    const unit_f16 *u = (const void *)units;
    for (size_t c = 0; c < k; c++, u++) {
        mm_prefetch(u, sizeof *u);
        s->floats[c][0] = mm_scales(u->w, 0);
        s->floats[c][1] = mm_scales(u->w, 1);
    }
}

/* The strip holds even and odd values as floats; the activations are extras. */
MM_INLINE void rows_pairs(const mm_strip *s, const uint8_t *w, const mm_rows *a, size_t c, size_t k,
                          float *acc, const int rows, const bool unused)
{
    (void)w;
    (void)unused;
    const float *x = (const float *)(const void *)a->extra + MM_ROWS * c;
    for (size_t at = 0; at < k; at += RUN) {
        for (size_t h = 0; h < 2; h++) {
            __m256 even[MM_ROWS], odd[MM_ROWS];
            MM_UNROLL
            for (int i = 0; i < rows; i++) {
                even[i] = _mm256_setzero_ps();
                odd[i] = _mm256_setzero_ps();
            }
            MM_UNROLL
            for (size_t j = 0; j < RUN; j += 2) {
                __m256 w0 = s->floats[at + j][h];
                __m256 w1 = s->floats[at + j + 1][h];
                MM_UNROLL
                for (int i = 0; i < rows; i++) {
                    even[i] = _mm256_fmadd_ps(w0, _mm256_set1_ps(x[MM_ROWS * (at + j) + (size_t)i]), even[i]);
                    odd[i] =
                        _mm256_fmadd_ps(w1, _mm256_set1_ps(x[MM_ROWS * (at + j + 1) + (size_t)i]), odd[i]);
                }
            }
            MM_UNROLL
            for (int i = 0; i < rows; i++) {
                float *to = acc + KERN_PANEL * i + 8 * h;
                _mm256_store_ps(to, _mm256_add_ps(_mm256_load_ps(to), _mm256_add_ps(even[i], odd[i])));
            }
        }
    }
}
MM_ROWS_FNS(rows_bf16, rows_pairs, false);

static void unpack_bf16(const uint8_t *units, size_t k, mm_strip *s)
{
    const unit_bf16 *u = (const void *)units;
    const __m256i odd_half = _mm256_set1_epi32((int)0xFFFF0000u);
    for (size_t c = 0; c < k; c += RUN, u++) {
        for (size_t j = 0; j < RUN / 2; j++) {
            mm_prefetch(u->w[j], sizeof u->w[j]);
            MM_UNROLL
            for (size_t h = 0; h < 2; h++) {
                __m256i v = mm_load(u->w[j][8 * h]);
                s->floats[c + 2 * j][h] = _mm256_castsi256_ps(_mm256_slli_epi32(v, 16));
                s->floats[c + 2 * j + 1][h] = _mm256_castsi256_ps(_mm256_and_si256(v, odd_half));
            }
        }
    }
}

void matmul_avx2_f32(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y, size_t y_stride)
{
    static const mm_format f = {
        .unit_bytes = sizeof(unit_f32), .unit_values = 1, .rows = rows_f32, .chunk = MM_FLOAT_CHUNK};
    mm_run(&f, w, a, n0, n1, y, y_stride);
}

void matmul_avx2_f16(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y, size_t y_stride)
{
    static const mm_format f = {.unit_bytes = sizeof(unit_f16),
                                .unit_values = 1,
                                .unpack = unpack_f16,
                                .rows = rows_f16,
                                .chunk = MM_FLOAT_CHUNK};
    mm_run(&f, w, a, n0, n1, y, y_stride);
}

void matmul_avx2_bf16(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                      size_t y_stride)
{
    static const mm_format f = {.unit_bytes = sizeof(unit_bf16),
                                .unit_values = RUN,
                                .unpack = unpack_bf16,
                                .rows = rows_bf16,
                                .chunk = MM_FLOAT_CHUNK,
                                .extra = MM_FLOATS};
    /* All arithmetic is behind mm_run, in another file, so the compiler cannot move it past the switches. */
    unsigned mode = _mm_getcsr();
    _mm_setcsr(mode | FTZ_DAZ);
    mm_run(&f, w, a, n0, n1, y, y_stride);
    _mm_setcsr(mode);
}
