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

typedef enum float_source { F32_UNITS, F16_UNITS, STRIP } float_source;

/* Sixteen weights of value c: from the strip or as they lie. */
MM_INLINE void weights_load(const mm_strip *s, const uint8_t *w, size_t c, const float_source from,
                            __m256 out[2])
{
    MM_UNROLL
    for (size_t h = 0; h < 2; h++) {
        if (from == STRIP) {
            out[h] = s->floats[c][h];
        } else if (from == F16_UNITS) {
            out[h] = mm_scales((const uint16_t *)(const void *)(w + c * sizeof(unit_f16)), h);
        } else {
            out[h] = _mm256_loadu_ps((const float *)(const void *)(w + c * sizeof(unit_f32)) + 8 * h);
        }
    }
}

MM_INLINE void rows_float(const mm_strip *s, const uint8_t *w, const mm_rows *a, size_t c, size_t k,
                          float *acc, const int rows, const float_source from)
{
    __m256 out[MM_ROWS][2];
    MM_UNROLL
    for (int i = 0; i < rows; i++) {
        out[i][0] = _mm256_load_ps(acc + KERN_PANEL * i);
        out[i][1] = _mm256_load_ps(acc + KERN_PANEL * i + 8);
    }
    const float *x = a->x + c;
    for (size_t j = 0; j < k; j++) {
        __m256 values[2];
        weights_load(s, w, j, from, values);
        if (from == F32_UNITS) {
            mm_prefetch(w + j * sizeof(unit_f32), sizeof(unit_f32));
        } else if (from == F16_UNITS) {
            mm_prefetch(w + j * sizeof(unit_f16), sizeof(unit_f16));
        }
        MM_UNROLL
        for (int i = 0; i < rows; i++) {
            __m256 v = _mm256_set1_ps(x[(size_t)i * a->x_stride + j]);
            out[i][0] = _mm256_fmadd_ps(values[0], v, out[i][0]);
            out[i][1] = _mm256_fmadd_ps(values[1], v, out[i][1]);
        }
    }
    MM_UNROLL
    for (int i = 0; i < rows; i++) {
        _mm256_store_ps(acc + KERN_PANEL * i, out[i][0]);
        _mm256_store_ps(acc + KERN_PANEL * i + 8, out[i][1]);
    }
}
MM_ROWS_FNS(rows_f32, rows_float, F32_UNITS);
MM_ROWS_FNS(rows_f16, rows_float, STRIP);
MM_ROWS_FNS(direct_f16, rows_float, F16_UNITS);

static void unpack_f16(const uint8_t *units, size_t k, mm_strip *s)
{
    const unit_f16 *u = (const void *)units;
    for (size_t c = 0; c < k; c++, u++) {
        mm_prefetch(u, sizeof *u);
        s->floats[c][0] = mm_scales(u->w, 0);
        s->floats[c][1] = mm_scales(u->w, 1);
    }
}

/* RUN values of up to two rows, so that all chains have a register; x: of the first row. */
MM_INLINE void run_add(const __m256 (*values)[2], const float *x, float *acc, const int rows)
{
    __m256 sum[2][2][2]; /* even and odd */
    MM_UNROLL
    for (int i = 0; i < rows; i++) {
        sum[0][i][0] = sum[0][i][1] = _mm256_setzero_ps();
        sum[1][i][0] = sum[1][i][1] = _mm256_setzero_ps();
    }
    MM_UNROLL
    for (size_t j = 0; j < RUN; j += 2) {
        MM_UNROLL
        for (size_t odd = 0; odd < 2; odd++) {
            __m256 w0 = values[j + odd][0];
            __m256 w1 = values[j + odd][1];
            MM_KEEP(w0); /* in registers: as operands from memory each row would load them again */
            MM_KEEP(w1);
            MM_UNROLL
            for (int i = 0; i < rows; i++) {
                __m256 v = _mm256_set1_ps(x[MM_ROWS * (j + odd) + (size_t)i]);
                sum[odd][i][0] = _mm256_fmadd_ps(w0, v, sum[odd][i][0]);
                sum[odd][i][1] = _mm256_fmadd_ps(w1, v, sum[odd][i][1]);
            }
        }
    }
    MM_UNROLL
    for (int i = 0; i < rows; i++) {
        MM_UNROLL
        for (size_t h = 0; h < 2; h++) {
            float *to = acc + KERN_PANEL * i + 8 * h;
            _mm256_store_ps(to, _mm256_add_ps(_mm256_load_ps(to), _mm256_add_ps(sum[0][i][h], sum[1][i][h])));
        }
    }
}

/* The strip holds even and odd values as floats; the activations are extras. */
MM_INLINE void rows_pairs(const mm_strip *s, const uint8_t *w, const mm_rows *a, size_t c, size_t k,
                          float *acc, const int rows, const bool few)
{
    (void)w;
    const float *x = (const float *)(const void *)a->extra + MM_ROWS * c;
    for (size_t at = 0; at < k; at += RUN, x += MM_ROWS * RUN) {
        run_add(s->floats + at, x, acc, few ? rows : 2);
        if (!few) {
            run_add(s->floats + at, x + 2, acc + 2 * KERN_PANEL, rows - 2);
        }
    }
}
MM_ROWS_FN(rows_bf16, 1, rows_pairs, true)
MM_ROWS_FN(rows_bf16, 2, rows_pairs, true)
MM_ROWS_FN(rows_bf16, 3, rows_pairs, false)
MM_ROWS_FN(rows_bf16, 4, rows_pairs, false)
static const mm_rows_fn rows_bf16[MM_ROWS] = {rows_bf16_1, rows_bf16_2, rows_bf16_3, rows_bf16_4};

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
                                .direct = direct_f16,
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
