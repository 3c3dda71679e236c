/*
 * Products with BF16 (the rule: kern/README.md; the lanes: matmul_avx512.h): per 32 k an even and an odd fma chain
 * from +0, even + odd, then the accumulator. The flush of denormals is the CPU's own: DAZ and FTZ are set for the
 * time of the product. FTZ judges a result after rounding to 24 bits, as the reference does and the tile unit.
 */
#include "kern/x86/matmul_avx512.h"

#define RUN     32 /* values of k per pair of chains */
#define PAIRS   16
#define FTZ_DAZ 0x8040u

/* The even or odd value of sixteen pairs, in fp32. */
MM_INLINE __m512 even_of(__m512i pairs)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
}

MM_INLINE __m512 odd_of(__m512i pairs)
{
    return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32((int)0xFFFF0000u)));
}

/* A unit of a strip. */
typedef struct bf16_run {
    float w[PAIRS][2][KERN_PANEL];
} bf16_run;

/* One run times `rows` rows of activations, which lie KERN_ACT_RUN bytes apart; block: a bf16_run or a unit. */
MM_INLINE void run_add(const void *block, const bool strip, const uint16_t *x, __m512 *acc, const size_t rows)
{
    _Alignas(64) float values[KERN_ACT_SMALL][2][PAIRS];
    __m512 even[KERN_ACT_SMALL], odd[KERN_ACT_SMALL];
    MM_UNROLL
    for (size_t r = 0; r < rows; r++) {
        const __m512i pairs = mm_load(x + r * RUN);
        _mm512_store_ps(values[r][0], even_of(pairs));
        _mm512_store_ps(values[r][1], odd_of(pairs));
        even[r] = _mm512_setzero_ps();
        odd[r] = _mm512_setzero_ps();
    }
    MM_UNROLL
    for (size_t p = 0; p < PAIRS; p++) {
        __m512 w0, w1;
        if (strip) {
            w0 = _mm512_load_ps(((const bf16_run *)block)->w[p][0]);
            w1 = _mm512_load_ps(((const bf16_run *)block)->w[p][1]);
        } else {
            const __m512i pairs = mm_load(((const unit_bf16 *)block)->w[p]);
            w0 = even_of(pairs);
            w1 = odd_of(pairs);
        }
        MM_UNROLL
        for (size_t r = 0; r < rows; r++) {
            even[r] = _mm512_fmadd_ps(w0, _mm512_set1_ps(values[r][0][p]), even[r]);
            odd[r] = _mm512_fmadd_ps(w1, _mm512_set1_ps(values[r][1][p]), odd[r]);
        }
    }
    MM_UNROLL
    for (size_t r = 0; r < rows; r++) {
        acc[r] = _mm512_add_ps(acc[r], _mm512_add_ps(even[r], odd[r]));
    }
}

MM_INLINE void few_bf16(const uint8_t *panel, const kern_act *a, __m512 *out, const size_t rows)
{
    const unit_bf16 *unit = (const unit_bf16 *)(const void *)panel;
    __m512 acc[KERN_ACT_SMALL];
    MM_UNROLL
    for (size_t r = 0; r < rows; r++) {
        acc[r] = _mm512_setzero_ps();
    }
    for (size_t i = 0; i < a->n_runs; i++) {
        mm_prefetch(unit + i, sizeof *unit);
        run_add(unit + i, false, a->bf16 + i * rows * RUN, acc, rows);
    }
    MM_UNROLL
    for (size_t r = 0; r < rows; r++) {
        out[r] = acc[r];
    }
}
MM_FEW(bf16);

static void unpack(const uint8_t *panel, size_t at, size_t n, void *strip)
{
    const unit_bf16 *unit = (const unit_bf16 *)(const void *)panel + at / RUN;
    bf16_run *runs = strip;
    for (size_t i = 0; i * RUN < n; i++) {
        mm_prefetch(unit + i, sizeof *unit);
        for (size_t p = 0; p < PAIRS; p++) {
            const __m512i pairs = mm_load(unit[i].w[p]);
            _mm512_store_ps(runs[i].w[p][0], even_of(pairs));
            _mm512_store_ps(runs[i].w[p][1], odd_of(pairs));
        }
    }
}

static void add(const void *strip, size_t at, size_t n, const kern_act *a, size_t row, float *sums)
{
    const bf16_run *runs = strip;
    const uint16_t *x = a->bf16 + mm_place(row, a->n_runs, at / RUN) * RUN;
    __m512 acc[MM_GROUP];
    MM_UNROLL
    for (size_t r = 0; r < MM_GROUP; r++) {
        acc[r] = _mm512_load_ps(sums + r * KERN_PANEL);
    }
    for (size_t i = 0; i * RUN < n; i++) {
        run_add(runs + i, true, x + i * KERN_ACT_TILE * RUN, acc, MM_GROUP);
    }
    MM_UNROLL
    for (size_t r = 0; r < MM_GROUP; r++) {
        _mm512_store_ps(sums + r * KERN_PANEL, acc[r]);
    }
}

void matmul_avx512_bf16(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                        size_t y_stride)
{
    static const mm_many many = {unpack, add};
    _Alignas(64) bf16_run strip[MM_CHUNK / RUN];
    /* All arithmetic is behind mm_run_avx512, in another file, so the compiler cannot move it past the switches. */
    unsigned mode = _mm_getcsr();
    _mm_setcsr(mode | FTZ_DAZ);
    mm_run_avx512(w, a, n0, n1, y, y_stride, all_few_bf16, &many, strip);
    _mm_setcsr(mode);
}
