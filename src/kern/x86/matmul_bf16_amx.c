/*
 * BF16 products with AMX: the matrix unit's own arithmetic is the rule (README, NUMERICS), so a tile of outputs is one
 * chain of TDPBF16PS over k, 32 values at a time, begun at zero. Packed weights are its second operand as they lie.
 *
 * Two panels by two tiles of rows are computed together, so that each tile loaded serves two products. They
 * advance by a chunk of k, for all tiles of a row block: the two panels' chunk stays in the first cache, the row
 * block's activations in the second. Between chunks the sums wait in memory, unchanged.
 */
#include <immintrin.h>

#include "kern/pack_units.h"
#include "kern/x86/amx.h"
#include "kern/x86/avx512.h"
#include "kern/x86/matmul_amx.h"

#define TILE        KERN_ACT_TILE
#define TILE_FLOATS (TILE * KERN_PANEL)
#define CHUNK       8                     /* units of 32 values */
#define MAX_TILES   32                    /* of a row block */
#define BLOCK_BYTES ((size_t)1024 * 1024) /* of a row block's activations */
#define RUN_BYTES   (TILE * KERN_ACT_RUN)
#define UNIT_LINES  (sizeof(unit_bf16) / 64)

/* Sums of one tile of rows with both panels. */
typedef struct tile_sums {
    float of[2][TILE_FLOATS];
} tile_sums;

/* One chunk of k of one panel pair. */
typedef struct chunk {
    const unit_bf16 *w[2];     /* the same panel twice if there is but one */
    const unit_bf16 *ahead[2]; /* the next chunk: to prefetch, any address */
    size_t run, n_runs;        /* of k */
    bool first;
} chunk;

/* Lines [at, at + n) of the chunk to come, of both panels. */
AMX_INLINE void prefetch(const chunk *c, size_t at, size_t n)
{
    for (size_t i = at; i < at + n; i++) {
        _mm_prefetch((const char *)c->ahead[0] + 64 * i, _MM_HINT_T1);
        _mm_prefetch((const char *)c->ahead[1] + 64 * i, _MM_HINT_T1);
    }
}

/* Sums of one or two tiles of rows: tiles 0 ... 3 are they, 4 and 5 activations, 6 and 7 weights. a[i]: the chunk's
 * first run. Prefetches `lines` lines a unit, from line `at` on. */
AMX_INLINE void tiles_advance(bool two, const chunk *c, const uint16_t *const a[2], tile_sums *sums,
                              size_t at, size_t lines)
{
    if (c->first) {
        AMX_ZERO(0);
        AMX_ZERO(1);
        AMX_ZERO(2);
        AMX_ZERO(3);
    } else {
        AMX_LOAD(0, sums[0].of[0], 64);
        AMX_LOAD(1, sums[0].of[1], 64);
        if (two) {
            AMX_LOAD(2, sums[1].of[0], 64);
            AMX_LOAD(3, sums[1].of[1], 64);
        }
    }
    for (size_t i = 0; i < c->n_runs; i++) {
        AMX_LOAD(4, (const uint8_t *)a[0] + i * RUN_BYTES, 64);
        AMX_LOAD(6, &c->w[0][i], 64);
        AMX_DOT_BF16(0, 4, 6);
        AMX_LOAD(7, &c->w[1][i], 64);
        AMX_DOT_BF16(1, 4, 7);
        if (two) {
            AMX_LOAD(5, (const uint8_t *)a[1] + i * RUN_BYTES, 64);
            AMX_DOT_BF16(2, 5, 6);
            AMX_DOT_BF16(3, 5, 7);
        }
        prefetch(c, at, lines);
        at += lines;
    }
    AMX_STORE(0, sums[0].of[0], 64);
    AMX_STORE(1, sums[0].of[1], 64);
    if (two) {
        AMX_STORE(2, sums[1].of[0], 64);
        AMX_STORE(3, sums[1].of[1], 64);
    }
}

/* All tiles [t0, t1) of rows by one chunk. */
static void chunk_run(const chunk *c, const kern_act *a, size_t t0, size_t t1, tile_sums *sums)
{
    const size_t pairs = (t1 - t0 + 1) / 2;
    const size_t lines = (UNIT_LINES + pairs - 1) / pairs;
    size_t at = 0;
    for (size_t t = t0; t < t1; t += 2, at += lines * c->n_runs) {
        const size_t some = at < UNIT_LINES * c->n_runs ? lines : 0;
        const uint16_t *first = kern_act_bf16(a, t * TILE, c->run);
        if (t + 1 < t1) {
            const uint16_t *both[2] = {first, kern_act_bf16(a, (t + 1) * TILE, c->run)};
            tiles_advance(true, c, both, sums + (t - t0), at, some);
        } else {
            const uint16_t *one[2] = {first, NULL};
            tiles_advance(false, c, one, sums + (t - t0), at, some);
        }
    }
}

static void sums_to_y(const tile_sums *sums, size_t rows, size_t columns, float *y, size_t y_stride)
{
    const __mmask16 left = (__mmask16)(columns >= KERN_PANEL ? 0xFFFF : (1u << columns) - 1);
    const size_t more = columns > KERN_PANEL ? columns - KERN_PANEL : 0;
    const __mmask16 right = (__mmask16)(more >= KERN_PANEL ? 0xFFFF : (1u << more) - 1);
    for (size_t i = 0; i < rows; i++) {
        float *to = y + i * y_stride;
        _mm512_mask_storeu_ps(to, left, _mm512_load_ps(sums->of[0] + i * KERN_PANEL));
        if (right) {
            _mm512_mask_storeu_ps(to + KERN_PANEL, right, _mm512_load_ps(sums->of[1] + i * KERN_PANEL));
        }
    }
}

/* Tiles [t0, t1) of rows with up to two panels, the first of which lies at w; y is row 0, first column. */
static void panels_run(const unit_bf16 *w, const kern_act *a, size_t t0, size_t t1, float *y, size_t y_stride,
                       size_t columns)
{
    _Alignas(64) tile_sums sums[MAX_TILES];
    const unit_bf16 *second = columns > KERN_PANEL ? w + a->n_runs : w;
    for (size_t run = 0; run < a->n_runs; run += CHUNK) {
        size_t left = a->n_runs - run;
        chunk c = {{w + run, second + run}, {w + run + CHUNK, second + run + CHUNK}, run, left, run == 0};
        if (left <= CHUNK) { /* the panels to come follow the second one */
            c.ahead[0] = second + a->n_runs;
            c.ahead[1] = second + 2 * a->n_runs;
        } else {
            c.n_runs = CHUNK;
        }
        chunk_run(&c, a, t0, t1, sums);
    }
    for (size_t t = t0; t < t1; t++) {
        size_t row = t * TILE;
        size_t rows = a->m - row < TILE ? a->m - row : TILE;
        sums_to_y(&sums[t - t0], rows, columns, y + row * y_stride, y_stride);
    }
}

void matmul_amx_bf16(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y, size_t y_stride)
{
    const size_t tiles = (a->m + TILE - 1) / TILE;
    if (a->m <= KERN_ACT_SMALL) {
        matmul_avx512_bf16(w, a, n0, n1, y, y_stride);
        return;
    }
    if (n0 >= n1) {
        return;
    }
    const size_t fitting = BLOCK_BYTES / (a->n_runs * RUN_BYTES);
    const size_t most = fitting > MAX_TILES ? MAX_TILES : fitting > 1 ? fitting : 2;
    const size_t cuts = (tiles + most - 1) / most;
    amx_config c = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        c.rows[i] = TILE;
        c.row_bytes[i] = 64;
    }
    amx_configure(&c);
    for (size_t i = 0; i < cuts; i++) {
        for (size_t n = n0; n < n1; n += 2 * KERN_PANEL) {
            const unit_bf16 *panel = (const unit_bf16 *)w->packed + n / KERN_PANEL * a->n_runs;
            panels_run(panel, a, tiles * i / cuts, tiles * (i + 1) / cuts, y + n, y_stride, n1 - n);
        }
    }
    amx_release();
}
