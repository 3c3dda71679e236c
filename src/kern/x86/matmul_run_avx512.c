/* The walk of the AVX-512 products over panels and rows (matmul_avx512.h). */
#include <assert.h>

#include "kern/pack.h"

#include "kern/x86/matmul_avx512.h"

/* Rows that meet a panel before the next one is unpacked: their accumulators lie in the first cache, their
 * activations in the second. */
#define RUN_ROWS  256u
#define RUN_BYTES (1u << 20)

static __mmask16 lanes_of(size_t n)
{
    return (__mmask16)(n < KERN_PANEL ? (1u << n) - 1 : 0xFFFFu);
}

static void panel_many(const uint8_t *panel, const kern_act *a, size_t r0, size_t r1, float *y,
                       size_t y_stride, __mmask16 lanes, const mm_many *many, void *strip)
{
    _Alignas(64) float acc[RUN_ROWS][KERN_PANEL];
    for (size_t r = r0; r < r1; r += MM_GROUP) {
        for (size_t i = 0; i < MM_GROUP; i++) {
            _mm512_store_ps(acc[r - r0 + i], _mm512_setzero_ps());
        }
    }
    for (size_t at = 0; at < a->k; at += MM_CHUNK) {
        size_t n = a->k - at < MM_CHUNK ? a->k - at : MM_CHUNK;
        many->unpack(panel, at, n, strip);
        for (size_t r = r0; r < r1; r += MM_GROUP) {
            many->add(strip, at, n, a, r, acc[r - r0]);
        }
    }
    for (size_t r = r0; r < r1; r++) {
        _mm512_mask_storeu_ps(y + r * y_stride, lanes, _mm512_load_ps(acc[r - r0]));
    }
}

void mm_run_avx512(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y, size_t y_stride,
                   const mm_few_fn few[KERN_ACT_SMALL], const mm_many *many, void *strip)
{
    const size_t panel_bytes = kern_packed_panel_bytes(w->type, w->k);
    const uint8_t *packed = w->packed;
    assert(n0 % KERN_PANEL == 0 || n0 >= n1);
    if (a->m <= KERN_ACT_SMALL) {
        for (size_t n = n0; a->m > 0 && n < n1; n += KERN_PANEL) {
            few[a->m - 1](packed + n / KERN_PANEL * panel_bytes, a, y + n, y_stride, lanes_of(n1 - n));
        }
        return;
    }
    size_t row_bytes = a->n_runs > 0 ? a->n_runs * KERN_ACT_RUN : a->k * sizeof(float);
    size_t rows = RUN_BYTES / (row_bytes + 1) / KERN_ACT_TILE * KERN_ACT_TILE;
    rows = rows < KERN_ACT_TILE ? KERN_ACT_TILE : rows > RUN_ROWS ? RUN_ROWS : rows;
    for (size_t r = 0; r < a->m; r += rows) {
        size_t end = a->m - r < rows ? a->m : r + rows;
        for (size_t n = n0; n < n1; n += KERN_PANEL) {
            panel_many(packed + n / KERN_PANEL * panel_bytes, a, r, end, y + n, y_stride, lanes_of(n1 - n),
                       many, strip);
        }
    }
}
