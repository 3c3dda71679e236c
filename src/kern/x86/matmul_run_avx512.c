/* The walk of the AVX-512 products over panels and rows (matmul_avx512.h). */
#include <assert.h>

#include "kern/pack.h"
#include "kern/x86/matmul_avx512.h"

/* Rows that meet panels before the next ones are unpacked: their sums and activations lie in the second cache. */
#define RUN_ROWS    128u
#define RUN_BYTES   (1u << 20)
#define STRIP_BYTES (24u << 10) /* of MM_PANELS panels, at most */

typedef struct panels {
    const uint8_t *first;
    size_t panel_bytes;
    size_t n;       /* of them, up to MM_PANELS */
    __mmask16 last; /* outputs of the last one that exist */
} panels;

/* Rows and their sums. */
typedef struct row_group {
    size_t r;
    size_t n;
    size_t wide; /* rows that acc has */
    float *acc;  /* [panel][row][16] */
} row_group;

static void store_rows(const panels *p, const row_group *w, float *y, size_t y_stride)
{
    for (size_t i = 0; i < p->n; i++) {
        const __mmask16 lanes = i + 1 < p->n ? 0xFFFFu : p->last;
        for (size_t j = 0; j < w->n; j++) {
            _mm512_mask_storeu_ps(y + (w->r + j) * y_stride + i * KERN_PANEL, lanes,
                                  _mm512_load_ps(w->acc + (i * w->wide + j) * KERN_PANEL));
        }
    }
}

/* Asks for lines that store_rows will write, of rows [j0, j1) of w, if it has them: they are in nobody's first cache,
 * and waiting for them cost a tenth of the time. */
static void fetch_rows(const panels *p, const row_group *w, size_t j0, size_t j1, const float *y,
                       size_t y_stride)
{
    for (size_t j = j0; j < j1 && j < w->n; j++) {
        for (size_t i = 0; i < p->n; i++) {
            __asm__ volatile("prefetchw %0" : : "m"(y[(w->r + j) * y_stride + i * KERN_PANEL]));
        }
    }
}

/* Group g of rows [r0, r1). */
static row_group group_of(const panels *p, const mm_many *many, size_t g, size_t r0, size_t r1, float *acc)
{
    row_group w = {.r = r0 + g * many->group, .wide = many->group};
    w.n = r1 - w.r < many->group ? r1 - w.r : many->group;
    w.acc = acc + g * many->group * p->n * KERN_PANEL;
    if (g > 0 && many->half[0] && w.n <= many->group / 2) {
        w.wide = many->group / 2;
    }
    return w;
}

static void panels_many(const panels *p, const kern_act *a, size_t r0, size_t r1, float *y, size_t y_stride,
                        const mm_many *many)
{
    _Alignas(64) float acc[RUN_ROWS * MM_PANELS * KERN_PANEL];
    _Alignas(64) uint8_t strips[STRIP_BYTES];
    _Alignas(64) int32_t scratch[RUN_ROWS * MM_SCRATCH];
    const size_t groups = (r1 - r0 + many->group - 1) / many->group;
    const size_t chunk_bytes = p->panel_bytes * many->chunk / a->k;
    const size_t steps = groups * (many->chunk / 32);
    assert(chunk_bytes > 0 && steps > 0);
    mm_chunk c = {.panel = p->first,
                  .panel_bytes = p->panel_bytes,
                  .strips = strips,
                  .a = a,
                  .r0 = r0,
                  .r1 = r1,
                  .scratch = scratch};
    for (size_t i = 0; i < groups * many->group * p->n * KERN_PANEL; i += KERN_PANEL) {
        _mm512_store_ps(acc + i, _mm512_setzero_ps());
    }
    size_t offset = 0;
    for (; c.at < a->k; c.at += c.n, offset += chunk_bytes) {
        c.n = a->k - c.at < many->chunk ? a->k - c.at : many->chunk;
        c.ahead = mm_ahead(offset, chunk_bytes, p->panel_bytes, p->n);
        c.fetch = (uintptr_t)p->first + offset + c.ahead;
        c.fetch_lines = (chunk_bytes + 64 * steps - 1) / (64 * steps);
        const uintptr_t fetch_end = c.fetch + chunk_bytes;
        const bool last = c.at + c.n == a->k;
        const size_t j0 = many->group * c.at / a->k, j1 = many->group * (c.at + c.n) / a->k;
        for (size_t g = 0; g < groups; g++) {
            const row_group w = group_of(p, many, g, r0, r1, acc);
            c.r = w.r;
            fetch_rows(p, &w, j0, j1, y, y_stride);
            (g == 0 ? many->first : w.wide < many->group ? many->half : many->add)[p->n - 1](&c, w.acc);
            c.fetch += c.fetch_lines * 64 * (c.n / 32);
            if (c.fetch >= fetch_end) {
                c.fetch_lines = 0;
            }
            if (last) {
                store_rows(p, &w, y, y_stride);
            }
        }
    }
}

static void run_many(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y, size_t y_stride,
                     const mm_many *many)
{
    const size_t row_bytes = a->n_runs > 0 ? a->n_runs * KERN_ACT_RUN : a->k * sizeof(float);
    size_t rows = RUN_BYTES / row_bytes / KERN_ACT_TILE * KERN_ACT_TILE;
    rows = rows < KERN_ACT_TILE ? KERN_ACT_TILE : rows > RUN_ROWS ? RUN_ROWS : rows;
    const size_t runs = (a->m + rows - 1) / rows; /* of much the same length */
    rows = ((a->m + runs - 1) / runs + KERN_ACT_TILE - 1) / KERN_ACT_TILE * KERN_ACT_TILE;
    assert(many->panels * many->strip_bytes <= STRIP_BYTES);
    for (size_t r = 0; r < a->m; r += rows) {
        const size_t end = a->m - r < rows ? a->m : r + rows;
        for (size_t n = n0; n < n1;) {
            const size_t left = (n1 - n + KERN_PANEL - 1) / KERN_PANEL;
            panels p = {.panel_bytes = kern_packed_panel_bytes(w->type, w->k)};
            p.first = (const uint8_t *)w->packed + n / KERN_PANEL * p.panel_bytes;
            /* two and two are faster than three and one */
            p.n = left == 4 ? 2 : left < many->panels ? left : many->panels;
            const size_t outputs = n1 - n - (p.n - 1) * KERN_PANEL; /* from the last panel on */
            p.last = (__mmask16)(outputs < KERN_PANEL ? (1u << outputs) - 1 : 0xFFFFu);
            panels_many(&p, a, r, end, y + n, y_stride, many);
            n += p.n * KERN_PANEL;
        }
    }
}

void mm_run_avx512(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y, size_t y_stride,
                   const mm_few few[MM_FEW_ROWS], const mm_many *many)
{
    assert(a->k > 0 && (n0 % KERN_PANEL == 0 || n0 >= n1));
    if (a->m > MM_FEW_ROWS) {
        run_many(w, a, n0, n1, y, y_stride, many);
        return;
    }
    const size_t panel_bytes = kern_packed_panel_bytes(w->type, w->k);
    const uint8_t *packed = w->packed;
    for (size_t n = n0; a->m > 0 && n < n1;) {
        const mm_few *f = &few[a->m - 1];
        const size_t left = (n1 - n + KERN_PANEL - 1) / KERN_PANEL;
        const size_t count = left < f->panels ? 1 : f->panels;
        const size_t outputs = n1 - n - (count - 1) * KERN_PANEL;
        const __mmask16 last = (__mmask16)(outputs < KERN_PANEL ? (1u << outputs) - 1 : 0xFFFFu);
        (count == 1 ? f->one : f->wide)(packed + n / KERN_PANEL * panel_bytes, panel_bytes, a, y + n,
                                        y_stride, last);
        n += count * KERN_PANEL;
    }
}
