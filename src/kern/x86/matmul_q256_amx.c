/*
 * Products of the formats with integer scales within blocks of 256, with AMX (rule 1 of DESIGN 4).
 *
 * The integer scales are folded into the weights (unpack_q256_amx.h), so that the tiles give a block's isum, up to
 * shifts, and its msum, in four tiles of int32; every other operation is one vector stage per 16 x 16 outputs and
 * block. The two stages are one endless pipeline: while the tiles of a step are computed, the vectors of the step
 * before it are, and the tiles' stores wait behind tile products that do not need them. A step is (pair of panels,
 * block of 256, tile of rows, panel of the pair) in this order, so that an unpacked block serves all rows of a row
 * block and a tile of activations both panels; the accumulators wait in memory between blocks.
 *
 * Measured: the vectors' arithmetic is free beside the tiles, their loads and stores are not, and more than what
 * lies in 2 x 8 KiB of planes, one tile of activations and a ring of two steps costs more than it saves.
 */
#include <immintrin.h>
#include <string.h>

#include "kern/x86/amx.h"
#include "kern/x86/avx512.h"
#include "kern/x86/matmul_amx.h"
#include "kern/x86/unpack_q256_amx.h"

#define TILE        KERN_ACT_TILE
#define MAX_TILES   32                    /* of a row block */
#define BLOCK_BYTES ((size_t)1024 * 1024) /* of a row block's codes: they stay in the second cache */
#define TILE_INTS   (TILE * KERN_PANEL)
#define BLOCK       256
#define RUNS        (BLOCK / KERN_ACT_RUN)
#define RUN_BYTES   (TILE * KERN_ACT_RUN)
#define HALF_BYTES  (TILE * 16)
#define PANELS      2 /* that meet a tile of activations while it lies in the first cache */
#define AHEAD       3 /* units from what is unpacked to what is prefetched */

/* What the stages know of a format when they are compiled. */
typedef struct shape {
    bool two_planes; /* isum = 256 * first + second, else first + second, which have two runs each */
    bool has_min;
    bool negated; /* the plane holds -w * sc */
} shape;

/* Results of a step's tiles: int32 each. */
typedef struct ring_slot {
    int32_t first[TILE_INTS];
    int32_t second[TILE_INTS];
    int32_t high[TILE_INTS]; /* msum = 64 * high + low */
    int32_t low[TILE_INTS];
} ring_slot;

/* What is left to do of a step when its tiles are done. */
typedef struct vector_step {
    const ring_slot *ints;
    const float *d_act; /* [TILE] */
    const q256_scales *scales;
    const float *acc; /* [TILE][KERN_PANEL] */
    float *out;
    size_t out_stride;
    float *edge; /* not NULL: out holds an incomplete tile, which belongs here */
    size_t edge_stride;
    size_t edge_rows;
    __mmask16 edge_columns;
} vector_step;

/* The operands of a step. */
typedef struct tile_step {
    const uint8_t *q; /* [RUNS][TILE][64] */
    const int8_t *halves;
    const q256_codes *codes;
    ring_slot *ints;
} tile_step;

/* Rows [from, from + 4). */
AMX_INLINE void vector_rows(shape f, const vector_step *v, __m512 d, __m512 dmin, int from)
{
#pragma GCC unroll 4
    for (int i = from; i < from + 4; i++) {
        __m512 acc = _mm512_load_ps(v->acc + i * KERN_PANEL);
        __m512i isum = _mm512_load_si512(v->ints->first + i * KERN_PANEL);
        isum = f.two_planes ? _mm512_slli_epi32(isum, 8) : isum;
        isum = _mm512_add_epi32(isum, _mm512_load_si512(v->ints->second + i * KERN_PANEL));
        __m512 d_act = _mm512_set1_ps(v->d_act[i]);
        __m512 scale = _mm512_mul_ps(d_act, d);
        __m512 sum = _mm512_cvtepi32_ps(isum);
        acc = f.negated ? _mm512_fnmadd_ps(sum, scale, acc) : _mm512_fmadd_ps(sum, scale, acc);
        if (f.has_min) {
            __m512i msum = _mm512_slli_epi32(_mm512_load_si512(v->ints->high + i * KERN_PANEL), 6);
            msum = _mm512_add_epi32(msum, _mm512_load_si512(v->ints->low + i * KERN_PANEL));
            acc = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(msum), _mm512_mul_ps(d_act, dmin), acc);
        }
        _mm512_storeu_ps(v->out + (size_t)i * v->out_stride, acc);
        __asm__ volatile("" : : : "memory"); /* rows stay apart: clang spills otherwise */
    }
}

/* A tile of a plane, as second operand. */
#define LINES(plane, run) ((plane)[TILE * (run)])

/*
 * With minima: tiles 0, 1 first and second; 2, 3, 4 activations, of which 3 and 4 hold high and low at other
 * times; 5 weights; 6 halves of the sums, 7 minima (loaded once per block).
 */
AMX_INLINE void stage_with_min(shape f, const tile_step *t, ring_slot *before, const vector_step *v)
{
    const __m512 d = _mm512_load_ps(v->scales->d);
    const __m512 dmin = _mm512_load_ps(v->scales->dmin);
    const uint8_t *q = t->q;
    const q256_codes *w = t->codes;
    AMX_LOAD(7, w->mins, 64);
    AMX_ZERO(3);
    AMX_LOAD(6, t->halves, 16);
    AMX_DOT_INT8(3, 6, 7);
    AMX_ZERO(4);
    AMX_LOAD(6, t->halves + HALF_BYTES, 16);
    AMX_DOT_INT8(4, 6, 7);
    AMX_STORE(1, before->second, 64);

    AMX_ZERO(0);
    AMX_LOAD(2, q, 64);
    AMX_LOAD(5, LINES(w->high, 0), 64);
    AMX_DOT_INT8(0, 2, 5);
    AMX_STORE(3, t->ints->high, 64);
    AMX_LOAD(3, q + RUN_BYTES, 64);
    AMX_LOAD(5, LINES(w->high, 1), 64);
    AMX_DOT_INT8(0, 3, 5);
    AMX_STORE(4, t->ints->low, 64);
    vector_rows(f, v, d, dmin, 0);
    if (f.two_planes) {
        AMX_LOAD(4, q + 2 * RUN_BYTES, 64);
        AMX_LOAD(5, LINES(w->high, 2), 64);
        AMX_DOT_INT8(0, 4, 5);
        AMX_LOAD(2, q + 3 * RUN_BYTES, 64);
        AMX_LOAD(5, LINES(w->high, 3), 64);
        AMX_DOT_INT8(0, 2, 5);
        vector_rows(f, v, d, dmin, 4);
        AMX_ZERO(1);
        AMX_LOAD(5, LINES(w->low, 3), 64);
        AMX_DOT_INT8_UNSIGNED(1, 2, 5);
        AMX_LOAD(5, LINES(w->low, 1), 64);
        AMX_DOT_INT8_UNSIGNED(1, 3, 5);
        vector_rows(f, v, d, dmin, 8);
        AMX_STORE(0, t->ints->first, 64);
        AMX_LOAD(5, LINES(w->low, 2), 64);
        AMX_DOT_INT8_UNSIGNED(1, 4, 5);
        AMX_LOAD(2, q, 64);
        AMX_LOAD(5, LINES(w->low, 0), 64);
        AMX_DOT_INT8_UNSIGNED(1, 2, 5);
        vector_rows(f, v, d, dmin, 12);
    } else {
        vector_rows(f, v, d, dmin, 4);
        AMX_ZERO(1);
        AMX_LOAD(4, q + 2 * RUN_BYTES, 64);
        AMX_LOAD(5, LINES(w->high, 2), 64);
        AMX_DOT_INT8(1, 4, 5);
        vector_rows(f, v, d, dmin, 8);
        AMX_LOAD(2, q + 3 * RUN_BYTES, 64);
        AMX_LOAD(5, LINES(w->high, 3), 64);
        AMX_DOT_INT8(1, 2, 5);
        AMX_STORE(0, t->ints->first, 64);
        vector_rows(f, v, d, dmin, 12);
    }
}

/* Without: tiles 0, 1 first and second; 2 ... 5 activations; 6, 7 weights. */
AMX_INLINE void stage_without_min(shape f, const tile_step *t, ring_slot *before, const vector_step *v)
{
    const __m512 d = _mm512_load_ps(v->scales->d);
    const uint8_t *q = t->q;
    const q256_codes *w = t->codes;
    AMX_ZERO(0);
    AMX_LOAD(2, q, 64);
    AMX_LOAD(6, LINES(w->high, 0), 64);
    AMX_DOT_INT8(0, 2, 6);
    AMX_LOAD(3, q + RUN_BYTES, 64);
    AMX_LOAD(7, LINES(w->high, 1), 64);
    AMX_DOT_INT8(0, 3, 7);
    AMX_STORE(1, before->second, 64);
    vector_rows(f, v, d, d, 0);
    AMX_LOAD(4, q + 2 * RUN_BYTES, 64);
    AMX_LOAD(6, LINES(w->high, 2), 64);
    if (f.two_planes) {
        AMX_DOT_INT8(0, 4, 6);
    } else {
        AMX_ZERO(1);
        AMX_DOT_INT8(1, 4, 6);
    }
    AMX_LOAD(5, q + 3 * RUN_BYTES, 64);
    AMX_LOAD(7, LINES(w->high, 3), 64);
    if (!f.two_planes) {
        AMX_DOT_INT8(1, 5, 7);
        AMX_STORE(0, t->ints->first, 64);
        vector_rows(f, v, d, d, 4);
        vector_rows(f, v, d, d, 8);
        vector_rows(f, v, d, d, 12);
        return;
    }
    AMX_DOT_INT8(0, 5, 7);
    vector_rows(f, v, d, d, 4);
    AMX_ZERO(1);
    AMX_LOAD(6, LINES(w->low, 0), 64);
    AMX_DOT_INT8_UNSIGNED(1, 2, 6);
    AMX_LOAD(7, LINES(w->low, 1), 64);
    AMX_DOT_INT8_UNSIGNED(1, 3, 7);
    AMX_STORE(0, t->ints->first, 64);
    vector_rows(f, v, d, d, 8);
    AMX_LOAD(6, LINES(w->low, 2), 64);
    AMX_DOT_INT8_UNSIGNED(1, 4, 6);
    AMX_LOAD(7, LINES(w->low, 3), 64);
    AMX_DOT_INT8_UNSIGNED(1, 5, 7);
    vector_rows(f, v, d, d, 12);
}

static void edge_copy(const vector_step *v)
{
    for (size_t i = 0; i < v->edge_rows; i++) {
        _mm512_mask_storeu_ps(v->edge + i * v->edge_stride, v->edge_columns,
                              _mm512_load_ps(v->out + i * KERN_PANEL));
    }
}

static void configure(bool has_min)
{
    amx_config c = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        c.rows[i] = TILE;
        c.row_bytes[i] = 64;
    }
    if (has_min) {
        c.row_bytes[6] = 16;
        c.rows[7] = 4;
    }
    amx_configure(&c);
}

/* A product under way. */
typedef struct product {
    q256_codes codes[PANELS];
    ring_slot ring[2]; /* of this step and the one before */
    float acc[MAX_TILES][PANELS][TILE_INTS];
    float incomplete[TILE_INTS];
    q256_scales scales[2][PANELS]; /* of this block and the one before */
    vector_step before;
    unsigned step;
    unsigned block;
} product;

/* A part of a product: tiles [t0, t1) of rows with up to PANELS panels. */
typedef struct product_part {
    const uint8_t *packed; /* of the first panel */
    size_t panel_bytes;
    size_t t0, t1;
    float *y; /* row 0, first column */
    size_t y_stride;
    size_t rows;    /* of y */
    size_t columns; /* of all panels, the last one's missing ones left out */
} product_part;

static const _Alignas(64) float zeros[TILE_INTS];

static ring_slot *slot_of(product *p, unsigned step)
{
    return &p->ring[step % 2];
}

/* The tiles of t and the vectors of the step before it, whose place is returned. */
AMX_INLINE vector_step *stage(shape f, product *p, const tile_step *t)
{
    vector_step *v = &p->before;
    ring_slot *before = slot_of(p, p->step + 1);
    if (f.has_min) {
        stage_with_min(f, t, before, v);
    } else {
        stage_without_min(f, t, before, v);
    }
    if (v->edge) {
        edge_copy(v);
    }
    p->step++;
    return v;
}

/* Where a tile of y goes when its last block is done. */
static void vector_step_to_y(vector_step *v, product *p, float *y, size_t y_stride, size_t rows,
                             size_t columns)
{
    if (rows >= TILE && columns >= KERN_PANEL) {
        v->out = y;
        v->out_stride = y_stride;
        return;
    }
    v->out = p->incomplete;
    v->edge = y;
    v->edge_stride = y_stride;
    v->edge_rows = rows < TILE ? rows : TILE;
    v->edge_columns = (__mmask16)(columns < KERN_PANEL ? (1u << columns) - 1 : 0xFFFF);
}

/* A tile of rows with a block. */
typedef struct tile_at {
    const uint8_t *q;
    const int8_t *halves;
    const float *d;
    size_t row;
    bool last; /* block */
} tile_at;

AMX_INLINE void step_run(shape f, const product_part *part, const tile_at *at, const float *acc_in,
                         float *acc, size_t panel, product *p)
{
    const tile_step tiles = {at->q, at->halves, &p->codes[panel], slot_of(p, p->step)};
    vector_step *v = stage(f, p, &tiles);
    /* Field by field: a copy of the struct would be read in one go, which waits for all stores before it. */
    v->ints = tiles.ints;
    v->d_act = at->d;
    v->scales = &p->scales[p->block % 2][panel];
    v->acc = acc_in;
    v->out = acc;
    v->out_stride = KERN_PANEL;
    v->edge = NULL;
    if (at->last) {
        vector_step_to_y(v, p, part->y + at->row * part->y_stride + panel * KERN_PANEL, part->y_stride,
                         part->rows - at->row, part->columns - panel * KERN_PANEL);
    }
}

AMX_INLINE void part_run(shape f, q256_unpack_fn unpack, size_t unit_bytes, const kern_act *a,
                         const product_part *part, product *p)
{
    const size_t panels = (part->columns + KERN_PANEL - 1) / KERN_PANEL;
    for (size_t b = 0; b < a->n_blocks; b++) {
        p->block++;
        /* at the end of a panel: the one PANELS on */
        const size_t ahead =
            AHEAD * unit_bytes + (b + AHEAD < a->n_blocks ? 0 : (PANELS - 1) * part->panel_bytes);
        for (size_t i = 0; i < panels; i++) {
            unpack(part->packed + i * part->panel_bytes + b * unit_bytes, ahead, &p->codes[i],
                   &p->scales[p->block % 2][i]);
        }
        const size_t row = part->t0 * TILE;
        tile_at at = {(const uint8_t *)kern_act_q(a, row, b * RUNS), NULL, kern_act_d(a, row, b), row,
                      b + 1 == a->n_blocks};
        if (f.has_min) {
            at.halves = kern_act_halves(a, row, b, 0);
        }
        for (size_t t = 0; t < part->t1 - part->t0; t++) {
            for (size_t i = 0; i < panels; i++) {
                step_run(f, part, &at, b ? p->acc[t][i] : zeros, p->acc[t][i], i, p);
            }
            at.q += a->n_runs * RUN_BYTES;
            at.d += a->n_blocks * TILE;
            at.row += TILE;
            if (f.has_min) {
                at.halves += a->n_blocks * 2 * HALF_BYTES;
            }
        }
    }
}

AMX_INLINE void product_run(shape f, q256_unpack_fn unpack, size_t unit_bytes, const kern_matrix *w,
                            const kern_act *a, size_t n0, size_t n1, float *y, size_t y_stride)
{
    const size_t tiles = (a->m + TILE - 1) / TILE;
    const size_t fitting = BLOCK_BYTES / (a->n_runs * RUN_BYTES);
    const size_t most = fitting > MAX_TILES ? MAX_TILES : fitting > 0 ? fitting : 1;
    const size_t cuts = (tiles + most - 1) / most;
    const size_t panel_bytes = a->n_blocks * unit_bytes;
    _Alignas(64) product p;
    if (n0 >= n1) {
        return;
    }
    p.step = 0;
    p.block = 0;
    memset(p.scales, 0, sizeof p.scales);
    /* of no interest */
    p.before = (vector_step){p.ring, zeros, p.scales[0], zeros, p.incomplete, KERN_PANEL};
    configure(f.has_min);
    for (size_t i = 0; i < cuts; i++) {
        for (size_t n = n0; n < n1; n += PANELS * KERN_PANEL) {
            size_t left = n1 - n;
            product_part part = {(const uint8_t *)w->packed + n / KERN_PANEL * panel_bytes,
                                 panel_bytes,
                                 tiles * i / cuts,
                                 tiles * (i + 1) / cuts,
                                 y + n,
                                 y_stride,
                                 a->m,
                                 left < PANELS * KERN_PANEL ? left : PANELS * KERN_PANEL};
            part_run(f, unpack, unit_bytes, a, &part, &p);
        }
    }
    /* the last step's vectors, beside tiles of no interest */
    tile_step again = {(const uint8_t *)a->q, a->halves, p.codes, slot_of(&p, p.step)};
    stage(f, &p, &again);
    amx_release();
}

/* Products by what their formats have in common. */
#define PRODUCT(name, ...)                                                                              \
    static void name(q256_unpack_fn unpack, size_t unit_bytes, const kern_matrix *w, const kern_act *a, \
                     size_t n0, size_t n1, float *y, size_t y_stride)                                   \
    {                                                                                                   \
        product_run((shape){__VA_ARGS__}, unpack, unit_bytes, w, a, n0, n1, y, y_stride);               \
    }

PRODUCT(two_planes_and_min, .two_planes = true, .has_min = true)
PRODUCT(two_planes, .two_planes = true)
PRODUCT(plane_and_min, .has_min = true)
PRODUCT(negated_plane, .negated = true)

/* Few rows are fewer than a tile has. */
#define MATMUL(type, product)                                                                       \
    void matmul_amx_##type(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y, \
                           size_t y_stride)                                                         \
    {                                                                                               \
        if (a->m <= KERN_ACT_SMALL) {                                                               \
            matmul_avx512_##type(w, a, n0, n1, y, y_stride);                                        \
        } else {                                                                                    \
            product(q256_unpack_##type, sizeof(unit_##type), w, a, n0, n1, y, y_stride);            \
        }                                                                                           \
    }

MATMUL(q4_k, two_planes_and_min)
MATMUL(q5_k, two_planes_and_min)
MATMUL(q6_k, two_planes)
MATMUL(iq4_xs, two_planes)
MATMUL(q2_k, plane_and_min)
MATMUL(q3_k, negated_plane)
