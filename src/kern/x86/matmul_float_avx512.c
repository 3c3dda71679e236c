/* Products with F32 and F16 (the rule: kern/README.md; the lanes: matmul_avx512.h): one fma a value of k. */
#include "kern/x86/matmul_avx512.h"

#define LINE 8 /* values of k between two fetches ahead */

/* The weights of value c, from a panel of `from`. */
MM_INLINE __m512 weights(const uint8_t *panel, const gguf_type from, size_t c)
{
    return from == GGUF_TYPE_F16 ? mm_halves(((const unit_f16 *)(const void *)panel)[c].w)
                                 : _mm512_loadu_ps(((const unit_f32 *)(const void *)panel)[c].w);
}

MM_INLINE size_t unit_bytes(const gguf_type type)
{
    return type == GGUF_TYPE_F16 ? sizeof(unit_f16) : sizeof(unit_f32);
}

MM_INLINE void value_add(__m512 w, const float *const *x, size_t c, __m512 *acc, const size_t rows)
{
    MM_UNROLL
    for (size_t r = 0; r < rows; r++) {
        acc[r] = _mm512_fmadd_ps(w, _mm512_set1_ps(x[r][c]), acc[r]);
    }
}

/* n values of k; x[rows] are the rows from there on. */
MM_INLINE void values_add(const uint8_t *panel, const gguf_type from, size_t n, const float *const *x,
                          __m512 *acc, const size_t rows)
{
    size_t c = 0;
    for (; c + LINE <= n; c += LINE) {
        mm_prefetch(panel + c * unit_bytes(from), LINE * unit_bytes(from));
        MM_UNROLL
        for (size_t i = 0; i < LINE; i++) {
            value_add(weights(panel, from, c + i), x, c + i, acc, rows);
        }
    }
    for (; c < n; c++) {
        value_add(weights(panel, from, c), x, c, acc, rows);
    }
}

MM_INLINE void few(const uint8_t *panel, const kern_act *a, const gguf_type type, __m512 *out,
                   const size_t rows)
{
    const float *x[KERN_ACT_SMALL];
    __m512 acc[KERN_ACT_SMALL];
    MM_UNROLL
    for (size_t r = 0; r < rows; r++) {
        x[r] = a->f32 + r * a->k;
        acc[r] = _mm512_setzero_ps();
    }
    values_add(panel, type, a->k, x, acc, rows);
    MM_UNROLL
    for (size_t r = 0; r < rows; r++) {
        out[r] = acc[r];
    }
}

MM_INLINE void unpack(const uint8_t *panel, size_t at, size_t n, const gguf_type type, float *strip)
{
    const uint8_t *from = panel + at * unit_bytes(type);
    for (size_t c = 0; c < n; c++) {
        if (c % (64 / unit_bytes(type)) == 0) {
            mm_prefetch(from + c * unit_bytes(type), 64);
        }
        _mm512_store_ps(strip + c * KERN_PANEL, weights(from, type, c));
    }
}

static void add(const void *strip, size_t at, size_t n, const kern_act *a, size_t row, float *sums)
{
    const float *x[MM_GROUP];
    __m512 acc[MM_GROUP];
    MM_UNROLL
    for (size_t r = 0; r < MM_GROUP; r++) { /* float rows end with the last one: past it, it stands in */
        x[r] = a->f32 + (row + r < a->m ? row + r : a->m - 1) * a->k + at;
        acc[r] = _mm512_load_ps(sums + r * KERN_PANEL);
    }
    values_add(strip, GGUF_TYPE_F32, n, x, acc, MM_GROUP);
    MM_UNROLL
    for (size_t r = 0; r < MM_GROUP; r++) {
        _mm512_store_ps(sums + r * KERN_PANEL, acc[r]);
    }
}

#define FLOAT_PRODUCT(name, type)                                                                      \
    MM_INLINE void few_##name(const uint8_t *panel, const kern_act *a, __m512 *out, const size_t rows) \
    {                                                                                                  \
        few(panel, a, type, out, rows);                                                                \
    }                                                                                                  \
    MM_FEW(name);                                                                                      \
    static void unpack_##name(const uint8_t *panel, size_t at, size_t n, void *strip)                  \
    {                                                                                                  \
        unpack(panel, at, n, type, strip);                                                             \
    }                                                                                                  \
    void matmul_avx512_##name(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y, \
                              size_t y_stride)                                                         \
    {                                                                                                  \
        static const mm_many many = {unpack_##name, add};                                              \
        _Alignas(64) float strip[MM_CHUNK * KERN_PANEL];                                               \
        mm_run_avx512(w, a, n0, n1, y, y_stride, all_few_##name, &many, strip);                        \
    }

FLOAT_PRODUCT(f32, GGUF_TYPE_F32)
FLOAT_PRODUCT(f16, GGUF_TYPE_F16)
