/*
 * Products with BF16 (the rule: kern/README.md; the lanes: matmul_avx512.h): per 32 k an even and an odd fma chain
 * from +0, even + odd, then the accumulator. The flush of denormals is the CPU's own: DAZ and FTZ are set for the
 * time of the product. FTZ judges a result after rounding to 24 bits, as the reference does and the tile unit.
 */
#include "kern/x86/matmul_avx512.h"

#define RUN        32 /* values of k per pair of chains */
#define PAIRS      16
#define CHUNK_RUNS 4 /* of a strip */
#define WIDEN_RUNS 8
#define FTZ_DAZ    0x8040u

/* The even or odd value of sixteen pairs, in fp32. */
MM_INLINE __m512 even_of(__m512i pairs)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
}

MM_INLINE __m512 odd_of(__m512i pairs)
{
    return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32((int)0xFFFF0000u)));
}

/* Weights of a run of a strip. */
typedef struct bf16_run {
    float w[PAIRS][2][KERN_PANEL];
} bf16_run;

/* Activations of a run: even and odd values. They are widened for several runs before they are broadcast: a
 * broadcast right behind the store it reads waits for it. */
typedef struct bf16_values {
    float x[MM_FEW_ROWS][2][PAIRS];
} bf16_values;

/* n runs from x on, tile rows a run. */
MM_INLINE void widen(const uint16_t *x, size_t tile, size_t n, bf16_values *out, const size_t rows)
{
    for (size_t i = 0; i < n; i++, x += tile * RUN) {
        MM_UNROLL
        for (size_t r = 0; r < rows; r++) {
            const __m512i pairs = mm_load(x + r * RUN);
            _mm512_store_ps(out[i].x[r][0], even_of(pairs));
            _mm512_store_ps(out[i].x[r][1], odd_of(pairs));
        }
    }
}

/* One run of each of `panels` panels, `stride` bytes apart; block: bf16_runs or units. */
MM_INLINE void run_add(const uint8_t *block, size_t stride, const bool strip, const bf16_values *values,
                       __m512 *acc, const size_t rows, const size_t panels)
{
    __m512 even[MM_TILE], odd[MM_TILE];
    mm_zero(even, rows * panels);
    mm_zero(odd, rows * panels);
    MM_UNROLL
    for (size_t i = 0; i < PAIRS; i++) {
        __m512 w0[MM_PANELS], w1[MM_PANELS];
        MM_UNROLL
        for (size_t p = 0; p < panels; p++) {
            const void *at = block + p * stride;
            if (strip) {
                w0[p] = _mm512_load_ps(((const bf16_run *)at)->w[i][0]);
                w1[p] = _mm512_load_ps(((const bf16_run *)at)->w[i][1]);
            } else {
                const __m512i pairs = mm_load(((const unit_bf16 *)at)->w[i]);
                w0[p] = even_of(pairs);
                w1[p] = odd_of(pairs);
            }
        }
        MM_UNROLL
        for (size_t r = 0; r < rows; r++) {
            const __m512 x0 = _mm512_set1_ps(values->x[r][0][i]);
            const __m512 x1 = _mm512_set1_ps(values->x[r][1][i]);
            MM_UNROLL
            for (size_t p = 0; p < panels; p++) {
                const size_t j = p * rows + r;
                even[j] = _mm512_fmadd_ps(w0[p], x0, even[j]);
                odd[j] = _mm512_fmadd_ps(w1[p], x1, odd[j]);
            }
        }
        MM_ORDER();
    }
    MM_UNROLL
    for (size_t j = 0; j < rows * panels; j++) {
        acc[j] = _mm512_add_ps(acc[j], _mm512_add_ps(even[j], odd[j]));
    }
}

MM_INLINE void few_bf16(const uint8_t *panel, size_t panel_bytes, const kern_act *a, __m512 *out,
                        const size_t rows, const size_t panels)
{
    _Alignas(64) bf16_values values[WIDEN_RUNS];
    __m512 acc[MM_TILE];
    mm_zero(acc, rows * panels);
    for (size_t run = 0; run < a->n_runs; run += WIDEN_RUNS) {
        const size_t n = a->n_runs - run < WIDEN_RUNS ? a->n_runs - run : WIDEN_RUNS;
        widen(a->bf16 + run * rows * RUN, rows, n, values, rows);
        for (size_t i = 0; i < n; i++) {
            const size_t at = (run + i) * sizeof(unit_bf16);
            MM_UNROLL
            for (size_t p = 0; p < panels; p++) {
                mm_prefetch(panel + p * panel_bytes + at,
                            mm_ahead(at, sizeof(unit_bf16), panel_bytes, panels), sizeof(unit_bf16));
            }
            run_add(panel + at, panel_bytes, false, &values[i], acc, rows, panels);
        }
    }
    mm_copy(out, acc, rows * panels);
}
MM_FEW_NARROW(bf16);

static void unpack_bf16(const uint8_t *panel, size_t at, size_t n, size_t ahead, void *strip)
{
    const unit_bf16 *unit = (const unit_bf16 *)(const void *)panel + at / RUN;
    bf16_run *runs = strip;
    for (size_t i = 0; i * RUN < n; i++) {
        mm_prefetch(unit + i, ahead, sizeof *unit);
        for (size_t p = 0; p < PAIRS; p++) {
            const __m512i pairs = mm_load(unit[i].w[p]);
            _mm512_store_ps(runs[i].w[p][0], even_of(pairs));
            _mm512_store_ps(runs[i].w[p][1], odd_of(pairs));
        }
    }
}

MM_INLINE void add_bf16(const void *strips, size_t at, size_t n, const kern_act *a, size_t row, float *sums,
                        const size_t panels)
{
    _Alignas(64) bf16_values values[CHUNK_RUNS];
    const size_t runs = (n + RUN - 1) / RUN;
    const uint8_t *block = strips;
    __m512 acc[MM_TILE];
    widen(a->bf16 + mm_place(row, a->n_runs, at / RUN) * RUN, KERN_ACT_TILE, runs, values, MM_GROUP);
    mm_load_sums(acc, sums, MM_GROUP * panels);
    for (size_t i = 0; i < runs; i++, block += sizeof(bf16_run)) {
        run_add(block, CHUNK_RUNS * sizeof(bf16_run), true, &values[i], acc, MM_GROUP, panels);
    }
    mm_store_sums(sums, acc, MM_GROUP * panels);
}
MM_MANY(bf16, CHUNK_RUNS *RUN, CHUNK_RUNS * sizeof(bf16_run));

void matmul_avx512_bf16(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                        size_t y_stride)
{
    /* All arithmetic is behind mm_run_avx512, in another file, so the compiler cannot move it past the switches. */
    unsigned mode = _mm_getcsr();
    _mm_setcsr(mode | FTZ_DAZ);
    mm_run_avx512(w, a, n0, n1, y, y_stride, all_few_bf16, &many_bf16);
    _mm_setcsr(mode);
}
