/* Products with F32 and F16 (the rule: kern/README.md; the lanes: matmul_avx512.h): one fma a value of k. */
#include "kern/x86/matmul_avx512.h"

#define LINE        8 /* values of k between two fetches ahead */
#define CHUNK       128
#define STRIP_BYTES (CHUNK * KERN_PANEL * sizeof(float))

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

MM_INLINE void value_add(const uint8_t *panel, size_t stride, const gguf_type from, const float *const *x,
                         size_t c, __m512 *acc, const size_t rows, const size_t panels)
{
    __m512 w[MM_PANELS];
    MM_UNROLL
    for (size_t p = 0; p < panels; p++) {
        w[p] = weights(panel + p * stride, from, c);
    }
    MM_UNROLL
    for (size_t r = 0; r < rows; r++) {
        const __m512 v = _mm512_set1_ps(x[r][c]);
        MM_UNROLL
        for (size_t p = 0; p < panels; p++) {
            acc[p * rows + r] = _mm512_fmadd_ps(w[p], v, acc[p * rows + r]);
        }
    }
    MM_ORDER();
}

MM_INLINE void few(const uint8_t *panel, size_t panel_bytes, const kern_act *a, const gguf_type type,
                   __m512 *out, const size_t rows, const size_t panels)
{
    const float *x[MM_FEW_ROWS];
    __m512 acc[MM_TILE];
    MM_UNROLL
    for (size_t r = 0; r < rows; r++) {
        x[r] = a->f32 + r * a->k;
    }
    mm_zero(acc, rows * panels);
    size_t c = 0;
    for (; c + LINE <= a->k; c += LINE) {
        const size_t at = c * unit_bytes(type);
        MM_UNROLL
        for (size_t p = 0; p < panels; p++) {
            mm_prefetch(panel + p * panel_bytes + at,
                        mm_ahead(at, LINE * unit_bytes(type), panel_bytes, panels), LINE * unit_bytes(type));
        }
        MM_UNROLL
        for (size_t i = 0; i < LINE; i++) {
            value_add(panel, panel_bytes, type, x, c + i, acc, rows, panels);
        }
    }
    for (; c < a->k; c++) {
        value_add(panel, panel_bytes, type, x, c, acc, rows, panels);
    }
    mm_copy(out, acc, rows * panels);
}

MM_INLINE void unpack(const uint8_t *panel, size_t at, size_t n, size_t ahead, const gguf_type type,
                      float *strip)
{
    const uint8_t *from = panel + at * unit_bytes(type);
    for (size_t c = 0; c < n; c++) {
        if (c % (64 / unit_bytes(type)) == 0) {
            mm_prefetch(from + c * unit_bytes(type), ahead, 64);
        }
        _mm512_store_ps(strip + c * KERN_PANEL, weights(from, type, c));
    }
}

MM_INLINE void add(const void *strips, size_t at, size_t n, const gguf_type type, const kern_act *a,
                   size_t row, float *sums, const size_t panels)
{
    (void)type; /* strips are F32 */
    const float *x[MM_GROUP];
    __m512 acc[MM_TILE];
    MM_UNROLL
    for (size_t r = 0; r < MM_GROUP; r++) { /* float rows end with the last one: past it, it stands in */
        x[r] = a->f32 + (row + r < a->m ? row + r : a->m - 1) * a->k + at;
    }
    mm_load_sums(acc, sums, MM_GROUP * panels);
    for (size_t c = 0; c < n; c++) {
        value_add(strips, STRIP_BYTES, GGUF_TYPE_F32, x, c, acc, MM_GROUP, panels);
    }
    mm_store_sums(sums, acc, MM_GROUP * panels);
}

MM_TYPE(f32, GGUF_TYPE_F32, CHUNK, STRIP_BYTES)
MM_TYPE(f16, GGUF_TYPE_F16, CHUNK, STRIP_BYTES)
