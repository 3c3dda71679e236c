/*
 * Products of the formats with integer scales within blocks of 256, with AMX (rule 1 of DESIGN 4).
 *
 * The integer scales are folded into the weights (unpack_q256_amx.h), so that int8 tiles give a block's isum, up to
 * a shift, and bf16 tiles its msum, which float holds exactly. What is left for vectors is one step per 16 x 16
 * outputs and block of 256: acc = fma((float)isum, dA * dW, acc), and the same for the minima.
 *
 * A step is a block of 256 of two panels with two tiles of rows (one, if there is no second). Each tile of
 * activations and of weights that is loaded meets two of the other kind, so that the tile unit waits for neither.
 * Steps follow each other as (pair of panels, block of 256, pair of tiles of rows): an unpacked block serves all
 * rows of a row block, and the accumulators wait in memory between blocks.
 *
 * All is one endless pipeline. Results go to a ring when their tile is needed again, a product or more after the
 * last one into it; the vectors of a step are spread over the tile products of the next. Where a result of this step
 * would overwrite one that the vectors still want, the ring has two places for it.
 *
 * Bounds, in cycles for two by two tiles with two planes and minima: tile products 36 * 16 = 576; loads (528 of
 * tiles + 288 of vectors) / 2 = 408; multiplications, fma, conversions and shifts, which have one port beside tile
 * products, 384.
 */
#include <immintrin.h>
#include <string.h>

#include "kern/x86/amx.h"
#include "kern/x86/avx512.h"
#include "kern/x86/matmul_amx.h"
#include "kern/x86/unpack_q256_amx.h"
#include "kern/x86/unroll.h"

#define TILE        KERN_ACT_TILE
#define MAX_TILES   32                    /* of a row block */
#define BLOCK_BYTES ((size_t)1024 * 1024) /* of a row block's codes: they stay in the second cache */
#define BLOCK       256
#define RUNS        (BLOCK / KERN_ACT_RUN)
#define RUN_BYTES   (TILE * KERN_ACT_RUN)
#define PANELS      2                     /* of a step */
#define COLUMNS     (PANELS * KERN_PANEL) /* of a step */
#define AHEAD       3                     /* units from what is unpacked to what is prefetched */

/* What the stages know of a format when they are compiled. */
typedef struct shape {
    bool two_planes; /* isum = (first << shift) + second, else first */
    bool is_signed;  /* the first plane; the second never is */
    bool has_min;
    bool negated; /* the plane holds -w * sc */
    int shift;
} shape;

/* Results of a step: of the first tile of rows both panels, then of the second. */
typedef int32_t tile_ints[TILE][KERN_PANEL];
typedef struct ring {
    tile_ints first[2][4]; /* of even and odd steps */
    tile_ints second[4];
    float msum[4][TILE][KERN_PANEL];
} ring;

/* What is left to do of a step when its tiles are done. */
typedef struct vector_step {
    const float *d_act[2];     /* [TILE] of both tiles of rows */
    const q256_scales *scales; /* of both panels */
    const float *acc;          /* [rows][COLUMNS], rows acc_stride apart */
    size_t acc_stride;
    float *out;
    size_t out_stride;
    float *edge; /* not NULL: out holds an incomplete step, which belongs here */
    size_t edge_stride;
    size_t edge_rows;
    size_t edge_columns;
} vector_step;

/* The operands of a step. */
typedef struct tile_step {
    const uint8_t *q[2]; /* [RUNS][TILE][64] */
    const uint16_t *halves[2];
    const q256_codes *codes; /* of both panels */
} tile_step;

/* Scales of the step that the vectors work on, in registers. */
typedef struct panel_scales {
    __m512 d[PANELS], dmin[PANELS];
} panel_scales;

/* Row i of the step in both panels. */
AMX_INLINE void vector_row(shape f, const ring *g, int slot, const vector_step *v, const panel_scales *s,
                           int i)
{
    const __m512 d_act = _mm512_set1_ps(v->d_act[i / TILE][i % TILE]);
    MM_UNROLL
    for (int p = 0; p < PANELS; p++) {
        const int c = i / TILE * PANELS + p;
        __m512 acc = _mm512_loadu_ps(v->acc + (size_t)i * v->acc_stride + p * KERN_PANEL);
        __m512i isum = _mm512_load_si512(g->first[slot][c][i % TILE]);
        if (f.two_planes) {
            isum = _mm512_slli_epi32(isum, (unsigned)f.shift);
            isum = _mm512_add_epi32(isum, _mm512_load_si512(g->second[c][i % TILE]));
        }
        const __m512 sum = _mm512_cvtepi32_ps(isum);
        const __m512 scale = _mm512_mul_ps(d_act, s->d[p]);
        acc = f.negated ? _mm512_fnmadd_ps(sum, scale, acc) : _mm512_fmadd_ps(sum, scale, acc);
        if (f.has_min) {
            acc =
                _mm512_fnmadd_ps(_mm512_load_ps(g->msum[c][i % TILE]), _mm512_mul_ps(d_act, s->dmin[p]), acc);
        }
        _mm512_storeu_ps(v->out + (size_t)i * v->out_stride + p * KERN_PANEL, acc);
    }
    __asm__ volatile("" : : : "memory"); /* rows stay apart: clang spills otherwise */
}

/* Of `rows` rows those that belong into place `at` of n; none where that is negative. */
AMX_INLINE void vectors(shape f, const ring *g, int slot, const vector_step *v, const panel_scales *s,
                        int rows, int at, int n)
{
    MM_UNROLL
    for (int i = at < 0 ? 0 : at * rows / n; i < (at + 1) * rows / n; i++) {
        vector_row(f, g, slot, v, s, i);
    }
}

/* Tiles: 0 … 3 results; 4, 5 activations, 6, 7 weights. The last result of tile c goes `to` the ring. */
#define RESULT(c, to)         \
    do {                      \
        AMX_STORE(c, to, 64); \
        AMX_ZERO(c);          \
    } while (0)

/* Which product a run wants. */
typedef enum run_kind { RUN_SIGNED, RUN_UNSIGNED, RUN_BF16 } run_kind;

#define DOT(kind, c, a, b)                   \
    do {                                     \
        if ((kind) == RUN_SIGNED) {          \
            AMX_DOT_INT8(c, a, b);           \
        } else if ((kind) == RUN_UNSIGNED) { \
            AMX_DOT_INT8_UNSIGNED(c, a, b);  \
        } else {                             \
            AMX_DOT_BF16(c, a, b);           \
        }                                    \
    } while (0)

/* What a step reads and writes. */
typedef struct stage_args {
    ring *ring;
    const tile_step *tiles;
    const vector_step *before;
    panel_scales scales; /* of `before` */
} stage_args;

/* How a run is done: known when it is compiled. */
typedef struct run_plan {
    run_kind kind;
    bool kept;   /* the activations are still in their tiles */
    bool stores; /* what the result tiles hold goes to the ring; else the run adds to it */
    int place;   /* of vectors; the next one too; negative: none */
} run_plan;

/* One run of 64 k, or of sums: activations a (of both tiles of rows) times b (of both panels). `to` takes what the
 * result tiles hold from before. pair, slot: as in stage. */
AMX_INLINE void run(shape f, const bool pair, const int slot, const run_plan plan, const stage_args *s,
                    const void *const a[2], const void *const b[2], tile_ints *to)
{
    const int rows = pair ? 2 * TILE : TILE;
    const int places = f.two_planes ? 14 : f.has_min ? 8 : 6;
    if (!plan.kept) {
        AMX_LOAD(4, a[0], 64);
    }
    AMX_LOAD(6, b[0], 64);
    if (plan.stores) {
        RESULT(0, to[0]);
    }
    DOT(plan.kind, 0, 4, 6);
    AMX_LOAD(7, b[1], 64);
    if (plan.stores) {
        RESULT(1, to[1]);
    }
    DOT(plan.kind, 1, 4, 7);
    vectors(f, s->ring, slot ^ 1, s->before, &s->scales, rows, plan.place, places);
    if (pair) {
        if (!plan.kept) {
            AMX_LOAD(5, a[1], 64);
        }
        if (plan.stores) {
            RESULT(2, to[2]);
        }
        DOT(plan.kind, 2, 5, 6);
        if (plan.stores) {
            RESULT(3, to[3]);
        }
        DOT(plan.kind, 3, 5, 7);
    }
    vectors(f, s->ring, slot ^ 1, s->before, &s->scales, rows, plan.place < 0 ? -1 : plan.place + 1, places);
}

/* Run r of a plane. */
AMX_INLINE void run_plane(shape f, const bool pair, const int slot, const run_plan plan, const stage_args *s,
                          int r, tile_ints *to)
{
    const tile_step *t = s->tiles;
    const bool high = plan.place < 6; /* the second plane comes after the first one's six places */
    const void *const a[2] = {t->q[0] + r * RUN_BYTES, t->q[1] + r * RUN_BYTES};
    const void *const b[2] = {(high ? t->codes[0].high : t->codes[0].low)[TILE * r],
                              (high ? t->codes[1].high : t->codes[1].low)[TILE * r]};
    run(f, pair, slot, plan, s, a, b, to);
}

/*
 * The tiles of a step and the vectors of the one before it. pair: there are two tiles of rows. slot: 0 in even steps,
 * 1 in odd ones.
 *
 * No vectors beside the first run, whose stores they wait for, nor beside the last one where it overwrites `second`.
 */
AMX_INLINE void stage(shape f, const bool pair, const int slot, ring *g, const tile_step *t,
                      const vector_step *v)
{
    const run_kind kind = f.is_signed ? RUN_SIGNED : RUN_UNSIGNED;
    const stage_args s = {
        g,
        t,
        v,
        {.d = {_mm512_load_ps(v->scales[0].d), _mm512_load_ps(v->scales[1].d)},
         .dmin = {_mm512_load_ps(v->scales[0].dmin), _mm512_load_ps(v->scales[1].dmin)}},
    };
    tile_ints *const left = f.has_min      ? (tile_ints *)(void *)g->msum
                            : f.two_planes ? g->second
                                           : g->first[slot ^ 1]; /* for what the step before has left */
    run_plane(f, pair, slot, (run_plan){kind, false, true, -1}, &s, 0, left);
    run_plane(f, pair, slot, (run_plan){kind, false, false, 0}, &s, 1, NULL);
    run_plane(f, pair, slot, (run_plan){kind, false, false, 2}, &s, 2, NULL);
    run_plane(f, pair, slot, (run_plan){kind, false, false, 4}, &s, 3, NULL);
    if (f.two_planes) {
        run_plane(f, pair, slot, (run_plan){RUN_UNSIGNED, true, true, 6}, &s, 3, g->first[slot]);
        run_plane(f, pair, slot, (run_plan){RUN_UNSIGNED, false, false, 8}, &s, 0, NULL);
        run_plane(f, pair, slot, (run_plan){RUN_UNSIGNED, false, false, 10}, &s, 1, NULL);
        run_plane(f, pair, slot, (run_plan){RUN_UNSIGNED, false, false, 12}, &s, 2, NULL);
    }
    if (f.has_min) {
        const void *const a[2] = {t->halves[0], t->halves[1]};
        const void *const b[2] = {t->codes[0].mins, t->codes[1].mins};
        run(f, pair, slot, (run_plan){RUN_BF16, false, true, f.two_planes ? -1 : 6}, &s, a, b,
            f.two_planes ? g->second : g->first[slot]);
    }
}

static void edge_copy(const vector_step *v)
{
    for (size_t i = 0; i < v->edge_rows; i++) {
        for (size_t n = 0; n < v->edge_columns; n += KERN_PANEL) {
            const size_t left = v->edge_columns - n;
            _mm512_mask_storeu_ps(v->edge + i * v->edge_stride + n,
                                  (__mmask16)(left < KERN_PANEL ? (1u << left) - 1 : 0xFFFF),
                                  _mm512_load_ps(v->out + i * COLUMNS + n));
        }
    }
}

static void configure(void)
{
    amx_config c = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        c.rows[i] = TILE;
        c.row_bytes[i] = 64;
    }
    amx_configure(&c);
}

/* A product under way. */
typedef struct product {
    q256_codes codes[PANELS];
    ring ring;
    float acc[MAX_TILES / 2][2 * TILE * COLUMNS];
    float incomplete[2 * TILE * COLUMNS];
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
    size_t columns; /* of the panels, the last one's missing ones left out */
} product_part;

static const _Alignas(64) float zeros[COLUMNS];

/* The tiles of t and the vectors of the step before it. */
AMX_INLINE void step_run(shape f, const bool pair, product *p, const tile_step *t)
{
    if (p->step % 2) {
        stage(f, pair, 1, &p->ring, t, &p->before);
    } else {
        stage(f, pair, 0, &p->ring, t, &p->before);
    }
    if (p->before.edge) {
        edge_copy(&p->before);
    }
    p->step++;
}

/* Where the rows from `row` on go when their last block is done. */
static void before_to_y(product *p, const product_part *part, size_t row)
{
    vector_step *v = &p->before;
    float *y = part->y + row * part->y_stride;
    const size_t rows = part->rows - row;
    if (rows >= 2 * TILE && part->columns == COLUMNS) {
        v->out = y;
        v->out_stride = part->y_stride;
        return;
    }
    v->out = p->incomplete;
    v->edge = y;
    v->edge_stride = part->y_stride;
    v->edge_rows = rows < 2 * TILE ? rows : 2 * TILE;
    v->edge_columns = part->columns;
}

/* Block b of two tiles of rows from tile t on, of which the second is the first again where there is none. Fields one
 * by one: a copy of a struct would be read in one go, which waits for all stores before it. */
AMX_INLINE void tiles_run(shape f, const bool pair, const kern_act *a, const product_part *part, size_t b,
                          size_t t, product *p)
{
    const size_t row[2] = {t * TILE, (t + 1 < part->t1 ? t + 1 : t) * TILE};
    tile_step now = {.codes = p->codes};
    for (int i = 0; i < 2; i++) {
        now.q[i] = (const uint8_t *)kern_act_q(a, row[i], b * RUNS);
        now.halves[i] = kern_act_halves(a, row[i], b);
    }
    step_run(f, pair, p, &now);
    vector_step *v = &p->before;
    float *acc = p->acc[(t - part->t0) / 2];
    v->d_act[0] = kern_act_d(a, row[0], b);
    v->d_act[1] = kern_act_d(a, row[1], b);
    v->scales = p->scales[p->block % 2];
    v->acc = b ? acc : zeros;
    v->acc_stride = b ? COLUMNS : 0;
    v->out = acc;
    v->out_stride = COLUMNS;
    v->edge = NULL;
    if (b + 1 == a->n_blocks) {
        before_to_y(p, part, row[0]);
    }
}

AMX_INLINE void part_run(shape f, const bool pair, q256_unpack_fn unpack, size_t unit_bytes,
                         const kern_act *a, const product_part *part, product *p)
{
    const size_t second = part->columns > KERN_PANEL ? part->panel_bytes : 0; /* else the first again */
    for (size_t b = 0; b < a->n_blocks; b++) {
        p->block++;
        /* at the end of a panel: the one PANELS on */
        const size_t ahead =
            AHEAD * unit_bytes + (b + AHEAD < a->n_blocks ? 0 : (PANELS - 1) * part->panel_bytes);
        for (size_t i = 0; i < PANELS; i++) {
            unpack(part->packed + i * second + b * unit_bytes, ahead, &p->codes[i],
                   &p->scales[p->block % 2][i]);
        }
        for (size_t t = part->t0; t < part->t1; t += 2) {
            tiles_run(f, pair, a, part, b, t, p);
        }
    }
}

AMX_INLINE void product_run(shape f, const bool pair, q256_unpack_fn unpack, size_t unit_bytes,
                            const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                            size_t y_stride)
{
    const size_t pairs = (a->m + 2 * TILE - 1) / (2 * TILE), tiles = (a->m + TILE - 1) / TILE;
    const size_t fitting = BLOCK_BYTES / (a->n_runs * RUN_BYTES) / 2;
    const size_t most = fitting > MAX_TILES / 2 ? MAX_TILES / 2 : fitting > 0 ? fitting : 1;
    const size_t cuts = (pairs + most - 1) / most;
    const size_t panel_bytes = a->n_blocks * unit_bytes;
    _Alignas(4096) product p;
    p.step = 0;
    p.block = 0;
    memset(p.scales, 0, sizeof p.scales);
    /* of no interest */
    p.before = (vector_step){.d_act = {zeros, zeros},
                             .scales = p.scales[0],
                             .acc = zeros,
                             .out = p.incomplete,
                             .out_stride = COLUMNS};
    configure();
    for (size_t i = 0; i < cuts; i++) {
        const size_t t1 = pairs * (i + 1) / cuts * 2;
        for (size_t n = n0; n < n1; n += COLUMNS) {
            const product_part part = {(const uint8_t *)w->packed + n / KERN_PANEL * panel_bytes,
                                       panel_bytes,
                                       pairs * i / cuts * 2,
                                       t1 < tiles ? t1 : tiles,
                                       y + n,
                                       y_stride,
                                       a->m,
                                       n1 - n < COLUMNS ? n1 - n : COLUMNS};
            part_run(f, pair, unpack, unit_bytes, a, &part, &p);
        }
    }
    /* the last step's vectors, beside tiles of no interest */
    const uint8_t *q = (const uint8_t *)a->q;
    const tile_step again = {{q, q}, {a->halves, a->halves}, p.codes};
    step_run(f, pair, &p, &again);
    amx_release();
}

/* Products by what their formats have in common; one tile of rows, or more. */
#define PRODUCT(name, ...)                                                                              \
    static void name(q256_unpack_fn unpack, size_t unit_bytes, const kern_matrix *w, const kern_act *a, \
                     size_t n0, size_t n1, float *y, size_t y_stride)                                   \
    {                                                                                                   \
        const shape f = {__VA_ARGS__};                                                                  \
        if (n0 >= n1) {                                                                                 \
            return;                                                                                     \
        }                                                                                               \
        if (a->m <= TILE) {                                                                             \
            product_run(f, false, unpack, unit_bytes, w, a, n0, n1, y, y_stride);                       \
        } else {                                                                                        \
            product_run(f, true, unpack, unit_bytes, w, a, n0, n1, y, y_stride);                        \
        }                                                                                               \
    }

PRODUCT(eighths_and_min, .two_planes = true, .has_min = true, .shift = 3)
PRODUCT(bytes, .two_planes = true, .is_signed = true, .shift = 8)
PRODUCT(plane_and_min, .has_min = true)
PRODUCT(negated_plane, .is_signed = true, .negated = true)

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

MATMUL(q4_k, eighths_and_min)
MATMUL(q5_k, eighths_and_min)
MATMUL(q6_k, bytes)
MATMUL(iq4_xs, bytes)
MATMUL(q2_k, plane_and_min)
MATMUL(q3_k, negated_plane)
