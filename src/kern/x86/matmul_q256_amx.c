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
 * rows of a row block, and the accumulators wait in memory between blocks. Beside the last step of a block the next one
 * is unpacked, each run over the one that was multiplied for the last time.
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
#include <stddef.h>
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
/* A y of more bytes does not stay in the second cache anyway: it is written past the caches. */
#define STREAM_BYTES ((size_t)512 << 10)
#define AHEAD        3 /* units from what is unpacked to what is prefetched */

/* What the stages know of a format when they are compiled. */
typedef struct shape {
    size_t unit_bytes;
    q256_run_fn unpack_run;
    q256_rest_fn unpack_rest;
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
    const float *acc;          /* [2 * TILE][COLUMNS] */
    float *out;                /* likewise */
    float *y;                  /* NULL, or where the rows go from there: the block is the last one */
    size_t y_stride;
    size_t y_rows;
    size_t y_columns;
    bool y_streams; /* whole lines go past the caches */
} vector_step;

/* The operands of a step. */
typedef struct tile_step {
    const void *q[2]; /* [RUNS][TILE][64] */
    const void *halves[2];
    q256_codes *codes; /* of both panels */
} tile_step;

/* What is unpacked into a step's codes when they are done with. */
typedef struct next_units {
    const uint8_t *unit[PANELS];
    size_t ahead; /* from there to what is prefetched */
    q256_scales *scales;
} next_units;

/* Scales of the step that the vectors work on, in registers. */
typedef struct panel_scales {
    __m512 d[PANELS], dmin[PANELS];
} panel_scales;

/* Where the vectors read and write, in registers too: nothing else is known not to change with a store. */
typedef struct vector_places {
    const ring *ring;
    const tile_ints *first; /* of that step */
    const float *d_act[2];
    const float *acc;
    float *out;
} vector_places;

/* A pointer by itself in a register: two read in one go would wait for the two stores that wrote them, and for all
 * stores before those. */
AMX_INLINE const float *alone(const float *p)
{
    __asm__("" : "+r"(p));
    return p;
}

/* Row i of the step in both panels. */
AMX_INLINE void vector_row(shape f, const vector_places *v, const panel_scales *s, int i)
{
    const __m512 d_act = _mm512_set1_ps(v->d_act[i / TILE][i % TILE]);
    MM_UNROLL
    for (int p = 0; p < PANELS; p++) {
        const int c = i / TILE * PANELS + p;
        __m512 acc = _mm512_load_ps(v->acc + i * COLUMNS + p * KERN_PANEL);
        __m512i isum = _mm512_load_si512(v->first[c][i % TILE]);
        if (f.two_planes) {
            isum = _mm512_slli_epi32(isum, (unsigned)f.shift);
            isum = _mm512_add_epi32(isum, _mm512_load_si512(v->ring->second[c][i % TILE]));
        }
        const __m512 sum = _mm512_cvtepi32_ps(isum);
        const __m512 scale = _mm512_mul_ps(d_act, s->d[p]);
        acc = f.negated ? _mm512_fnmadd_ps(sum, scale, acc) : _mm512_fmadd_ps(sum, scale, acc);
        if (f.has_min) {
            const __m512 msum = _mm512_load_ps(v->ring->msum[c][i % TILE]);
            acc = _mm512_fnmadd_ps(msum, _mm512_mul_ps(d_act, s->dmin[p]), acc);
        }
        _mm512_store_ps(v->out + i * COLUMNS + p * KERN_PANEL, acc);
    }
    __asm__ volatile("" : : : "memory"); /* rows stay apart: clang spills otherwise */
}

/* Of `rows` rows those that belong into place `at` of n; none where that is negative. */
AMX_INLINE void vectors(shape f, const vector_places *v, const panel_scales *s, int rows, int at, int n)
{
    MM_UNROLL
    for (int i = at < 0 ? 0 : at * rows / n; i < (at + 1) * rows / n; i++) {
        vector_row(f, v, s, i);
    }
}

/* Tiles: 0 … 3 results; 4, 5 activations, 6, 7 weights. What tile c holds goes to tile c of `to`. */
#define RESULT(c, to)                                          \
    do {                                                       \
        AMX_STORE_AT(c, to, (c) * (int)sizeof(tile_ints), 64); \
        AMX_ZERO(c);                                           \
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
    const tile_step *tiles;
    const next_units *next;
    vector_places vectors;
    panel_scales scales;
} stage_args;

/* How a run is done: known when it is compiled. */
typedef struct run_plan {
    run_kind kind;
    bool kept;   /* the activations are still in their tiles */
    bool stores; /* what the result tiles hold goes to the ring; else the run adds to it */
    int place;   /* of vectors; the next one too; negative: none */
    int unpack;  /* the run that is unpacked; negative: none */
} run_plan;

/* Run r of panel p's next unit; r == RUNS: its rest. */
AMX_INLINE void unpack(shape f, const stage_args *s, int p, int r)
{
    const next_units *n = s->next;
    q256_codes *to = &s->tiles->codes[p];
    if (r == RUNS) {
        f.unpack_rest(n->unit[p], n->ahead, to, &n->scales[p]);
    } else if (r >= 0) {
        f.unpack_run(n->unit[p], r, n->ahead, to);
    }
}

/* One run of 64 k, or of sums: activations a_at bytes behind a (of both tiles of rows) times weights b_at behind both
 * panels' codes. `to` takes what the result tiles hold from before. pair: as in stage. */
AMX_INLINE void run(shape f, const bool pair, const run_plan plan, const stage_args *s,
                    const void *const a[2], const int a_at, const int b_at, tile_ints *to)
{
    const q256_codes *b = s->tiles->codes;
    const int rows = pair ? 2 * TILE : TILE;
    const int places = f.two_planes ? 14 : f.has_min ? 8 : 6;
    if (!plan.kept) {
        AMX_LOAD_AT(4, a[0], a_at, 64);
    }
    AMX_LOAD_AT(6, b, b_at, 64);
    if (plan.stores) {
        RESULT(0, to);
    }
    DOT(plan.kind, 0, 4, 6);
    AMX_LOAD_AT(7, b, b_at + (int)sizeof *b, 64);
    if (plan.stores) {
        RESULT(1, to);
    }
    DOT(plan.kind, 1, 4, 7);
    vectors(f, &s->vectors, &s->scales, rows, plan.place, places);
    unpack(f, s, 0, plan.unpack);
    if (pair) {
        if (!plan.kept) {
            AMX_LOAD_AT(5, a[1], a_at, 64);
        }
        if (plan.stores) {
            RESULT(2, to);
        }
        DOT(plan.kind, 2, 5, 6);
        if (plan.stores) {
            RESULT(3, to);
        }
        DOT(plan.kind, 3, 5, 7);
    }
    vectors(f, &s->vectors, &s->scales, rows, plan.place < 0 ? -1 : plan.place + 1, places);
    unpack(f, s, 1, plan.unpack);
}

/* Run r of a plane. */
AMX_INLINE void run_plane(shape f, const bool pair, const run_plan plan, const stage_args *s, int r,
                          tile_ints *to)
{
    const bool high = plan.place < 6; /* the second plane comes after the first one's six places */
    const int plane = high ? (int)offsetof(q256_codes, high) : (int)offsetof(q256_codes, low);
    run(f, pair, plan, s, s->tiles->q, r * RUN_BYTES, plane + r * RUN_BYTES, to);
}

/*
 * The tiles of a step and the vectors of the one before it. pair: there are two tiles of rows. slot: 0 in even steps,
 * 1 in odd ones. unpacks: this is a block's last step, and there is a next one.
 *
 * No vectors beside the first run, whose stores they wait for, nor beside the last one where it overwrites `second`.
 */
AMX_INLINE void stage(shape f, const bool pair, const bool unpacks, unsigned slot, ring *g,
                      const tile_step *t, const next_units *n, const vector_step *v)
{
    const run_kind kind = f.is_signed ? RUN_SIGNED : RUN_UNSIGNED;
    const stage_args s = {
        t,
        n,
        {g, g->first[slot ^ 1], {alone(v->d_act[0]), alone(v->d_act[1])}, alone(v->acc), v->out},
        {.d = {_mm512_load_ps(v->scales[0].d), _mm512_load_ps(v->scales[1].d)},
         .dmin = {_mm512_load_ps(v->scales[0].dmin), _mm512_load_ps(v->scales[1].dmin)}},
    };
    tile_ints *const left = f.has_min      ? (tile_ints *)(void *)g->msum
                            : f.two_planes ? g->second
                                           : g->first[slot ^ 1]; /* for what the step before has left */
    const bool early = unpacks && !f.two_planes;
    const bool late = unpacks && f.two_planes;
    run_plane(f, pair, (run_plan){kind, false, true, -1, early ? 0 : -1}, &s, 0, left);
    run_plane(f, pair, (run_plan){kind, false, false, 0, early ? 1 : -1}, &s, 1, NULL);
    run_plane(f, pair, (run_plan){kind, false, false, 2, early ? 2 : -1}, &s, 2, NULL);
    run_plane(f, pair, (run_plan){kind, false, false, 4, early ? 3 : -1}, &s, 3, NULL);
    if (f.two_planes) {
        run_plane(f, pair, (run_plan){RUN_UNSIGNED, true, true, 6, late ? 3 : -1}, &s, 3, g->first[slot]);
        run_plane(f, pair, (run_plan){RUN_UNSIGNED, false, false, 8, late ? 0 : -1}, &s, 0, NULL);
        run_plane(f, pair, (run_plan){RUN_UNSIGNED, false, false, 10, late ? 1 : -1}, &s, 1, NULL);
        run_plane(f, pair, (run_plan){RUN_UNSIGNED, false, false, 12, late ? 2 : -1}, &s, 2, NULL);
    }
    if (f.has_min) {
        run(f, pair, (run_plan){RUN_BF16, false, true, f.two_planes ? -1 : 6, -1}, &s, t->halves, 0,
            offsetof(q256_codes, mins), f.two_planes ? g->second : g->first[slot]);
    }
    for (int p = 0; unpacks && p < PANELS; p++) {
        unpack(f, &s, p, RUNS);
    }
}

/* The rows that are done, to y. */
static void rows_store(const vector_step *v)
{
    if (v->y_streams && v->y_columns == COLUMNS) {
        for (size_t i = 0; i < v->y_rows; i++) {
            float *y = v->y + i * v->y_stride;
            _mm512_stream_ps(y, _mm512_load_ps(v->out + i * COLUMNS));
            _mm512_stream_ps(y + KERN_PANEL, _mm512_load_ps(v->out + i * COLUMNS + KERN_PANEL));
        }
        return;
    }
    const __mmask16 left = (__mmask16)(v->y_columns < KERN_PANEL ? (1u << v->y_columns) - 1 : 0xFFFF);
    const __mmask16 right =
        (__mmask16)(v->y_columns < KERN_PANEL ? 0 : (1u << (v->y_columns - KERN_PANEL)) - 1);
    for (size_t i = 0; i < v->y_rows; i++) {
        float *y = v->y + i * v->y_stride;
        _mm512_mask_storeu_ps(y, left, _mm512_load_ps(v->out + i * COLUMNS));
        _mm512_mask_storeu_ps(y + KERN_PANEL, right, _mm512_load_ps(v->out + i * COLUMNS + KERN_PANEL));
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
    float nothing[2 * TILE * COLUMNS]; /* of the step before the first one */
    q256_scales scales[2][PANELS];     /* of this block and the one before */
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
    bool y_streams;
} product_part;

static const _Alignas(64) float zeros[2 * TILE * COLUMNS];

/* The tiles of t and the vectors of the step before it. n: NULL where nothing is unpacked. */
AMX_INLINE void step_run(shape f, const bool pair, product *p, const tile_step *t, const next_units *n)
{
    if (n) {
        stage(f, pair, true, p->step % 2, &p->ring, t, n, &p->before);
    } else {
        stage(f, pair, false, p->step % 2, &p->ring, t, n, &p->before);
    }
    if (p->before.y) {
        rows_store(&p->before);
    }
    p->step++;
}

/* A block of two tiles of rows. */
AMX_INLINE void tiles_run(shape f, const bool pair, const tile_step *now, const next_units *next,
                          const float *const d_act[2], bool first, float *acc, product *p)
{
    step_run(f, pair, p, now, next);
    vector_step *v = &p->before;
    v->d_act[0] = d_act[0];
    v->d_act[1] = d_act[1];
    v->scales = p->scales[p->block % 2];
    v->acc = first ? zeros : acc;
    v->out = acc;
    v->y = NULL;
}

/* Block b of all tiles of rows, two at a time; where there is no second, that is the first again. next: NULL after the
 * last block of all. */
AMX_INLINE void block_run(shape f, const bool pair, const kern_act *a, const product_part *part, size_t b,
                          const next_units *next, product *p)
{
    const size_t row = part->t0 * TILE;
    const uint8_t *q = (const uint8_t *)kern_act_q(a, row, b * RUNS);
    const uint16_t *halves = kern_act_halves(a, row, b);
    const float *d = kern_act_d(a, row, b);
    const size_t q_tile = a->n_runs * RUN_BYTES;
    const size_t halves_tile = a->n_blocks * TILE * KERN_ACT_HALVES;
    const size_t d_tile = a->n_blocks * TILE;
    for (size_t t = part->t0; t < part->t1; t += 2) {
        const size_t other = t + 1 < part->t1;
        const tile_step now = {{q, q + other * q_tile}, {halves, halves + other * halves_tile}, p->codes};
        tiles_run(f, pair, &now, t + 2 < part->t1 ? NULL : next,
                  (const float *const[2]){d, d + other * d_tile}, b == 0, p->acc[(t - part->t0) / 2], p);
        if (b + 1 == a->n_blocks) {
            const size_t rows = part->rows - t * TILE;
            p->before.y = part->y + t * TILE * part->y_stride;
            p->before.y_stride = part->y_stride;
            p->before.y_rows = rows < 2 * TILE ? rows : 2 * TILE;
            p->before.y_columns = part->columns;
            p->before.y_streams = part->y_streams;
        }
        q += 2 * q_tile;
        halves += 2 * halves_tile;
        d += 2 * d_tile;
    }
    p->block++;
}

/* The units of block b of a part, whose scales go to those of block number `at` of the product. */
AMX_INLINE next_units units_of(shape f, const kern_act *a, const product_part *part, size_t b, product *p,
                               unsigned at)
{
    const uint8_t *unit = part->packed + b * f.unit_bytes;
    /* at the end of a panel: the one PANELS on */
    const size_t jump = b + AHEAD < a->n_blocks ? 0 : (PANELS - 1) * part->panel_bytes;
    return (next_units){
        .unit = {unit, unit + (part->columns > KERN_PANEL ? part->panel_bytes : 0)}, /* or the first again */
        .ahead = AHEAD * f.unit_bytes + jump,
        .scales = p->scales[at % 2],
    };
}

/* Parts as they follow each other: panels within a cut of the rows. */
typedef struct product_cut {
    size_t n0, n1;
    size_t pairs; /* of tiles of rows */
    size_t tiles;
    size_t cuts;
    const uint8_t *packed;
    float *y;
    size_t y_stride;
    size_t rows;
    size_t panel_bytes;
    bool y_streams;
} product_cut;

/* Columns from n on (of a panel pair), cut i. */
static product_part part_of(const product_cut *c, size_t i, size_t n)
{
    const size_t t1 = c->pairs * (i + 1) / c->cuts * 2;
    return (product_part){.packed = c->packed + n / KERN_PANEL * c->panel_bytes,
                          .panel_bytes = c->panel_bytes,
                          .t0 = c->pairs * i / c->cuts * 2,
                          .t1 = t1 < c->tiles ? t1 : c->tiles,
                          .y = c->y + n,
                          .y_stride = c->y_stride,
                          .rows = c->rows,
                          .y_streams = c->y_streams,
                          .columns = c->n1 - n < COLUMNS ? c->n1 - n : COLUMNS};
}

AMX_INLINE void parts_run(shape f, const bool pair, const kern_act *a, const product_cut *c, product *p)
{
    product_part part = part_of(c, 0, c->n0);
    next_units next = units_of(f, a, &part, 0, p, 0);
    for (int i = 0; i < PANELS; i++) {
        for (int r = 0; r < RUNS; r++) {
            f.unpack_run(next.unit[i], r, next.ahead, &p->codes[i]);
        }
        f.unpack_rest(next.unit[i], next.ahead, &p->codes[i], &next.scales[i]);
    }
    for (size_t i = 0, n = c->n0; i < c->cuts;) {
        const bool end = n + COLUMNS >= c->n1;
        i += end;
        n = end ? c->n0 : n + COLUMNS;
        const bool last = i == c->cuts;
        const product_part part_next = part_of(c, last ? 0 : i, n);
        for (size_t b = 0; b < a->n_blocks; b++) {
            const bool more = b + 1 < a->n_blocks;
            next = units_of(f, a, more ? &part : &part_next, more ? b + 1 : 0, p, p->block + 1);
            block_run(f, pair, a, &part, b, more || !last ? &next : NULL, p);
        }
        part = part_next;
    }
}

AMX_INLINE void product_run(shape f, const bool pair, const kern_matrix *w, const kern_act *a, size_t n0,
                            size_t n1, float *y, size_t y_stride)
{
    const size_t pairs = (a->m + 2 * TILE - 1) / (2 * TILE);
    const size_t fitting = BLOCK_BYTES / (a->n_runs * RUN_BYTES) / 2;
    const size_t most = fitting > MAX_TILES / 2 ? MAX_TILES / 2 : fitting > 0 ? fitting : 1;
    const product_cut cut = {.n0 = n0,
                             .n1 = n1,
                             .pairs = pairs,
                             .tiles = (a->m + TILE - 1) / TILE,
                             .cuts = (pairs + most - 1) / most,
                             .packed = w->packed,
                             .y = y,
                             .y_stride = y_stride,
                             .rows = a->m,
                             .y_streams = a->m * (n1 - n0) * sizeof *y > STREAM_BYTES &&
                                          ((uintptr_t)y | y_stride * sizeof *y) % 64 == 0,
                             .panel_bytes = a->n_blocks * f.unit_bytes};
    _Alignas(4096) product p;
    p.step = 0;
    p.block = 0;
    memset(p.scales, 0, sizeof p.scales);
    /* of no interest */
    p.before = (vector_step){.d_act = {zeros, zeros}, .scales = p.scales[1], .acc = zeros, .out = p.nothing};
    configure();
    parts_run(f, pair, a, &cut, &p);
    /* the last step's vectors, beside tiles of no interest */
    const uint8_t *q = (const uint8_t *)a->q;
    const tile_step again = {{q, q}, {a->halves, a->halves}, p.codes};
    step_run(f, pair, &p, &again, NULL);
    amx_release();
    _mm_sfence(); /* what was streamed, before what the caller tells other threads */
}

/* matmul_amx_<type>, from what its format is like; few rows are fewer than a tile has. */
#define MATMUL(type, ...)                                                                           \
    void matmul_amx_##type(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y, \
                           size_t y_stride)                                                         \
    {                                                                                               \
        const shape f = {sizeof(unit_##type), q256_run_##type, q256_rest_##type, __VA_ARGS__};      \
        if (a->m <= KERN_ACT_SMALL) {                                                               \
            matmul_avx512_##type(w, a, n0, n1, y, y_stride);                                        \
        } else if (n0 < n1 && a->m <= TILE) {                                                       \
            product_run(f, false, w, a, n0, n1, y, y_stride);                                       \
        } else if (n0 < n1) {                                                                       \
            product_run(f, true, w, a, n0, n1, y, y_stride);                                        \
        }                                                                                           \
    }

MATMUL(q4_k, .two_planes = true, .has_min = true, .shift = 3)
MATMUL(q5_k, .two_planes = true, .has_min = true, .shift = 3)
MATMUL(q6_k, .two_planes = true, .is_signed = true, .shift = 8)
MATMUL(iq4_xs, .two_planes = true, .is_signed = true, .shift = 8)
MATMUL(q2_k, .has_min = true)
MATMUL(q3_k, .is_signed = true, .negated = true)
