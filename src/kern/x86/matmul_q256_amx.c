/*
 * Products of the formats with integer scales within blocks of 256, with AMX (rule 1 of DESIGN 4).
 *
 * The integer scales are folded into the weights (unpack_q256_amx.h), so that int8 tiles give a block's isum, up to
 * a shift, and bf16 tiles its msum, which float holds exactly. What is left for vectors is one step per 16 x 16
 * outputs and block of 256: acc = fma((float)isum, dA * dW, acc), and the same for the minima.
 *
 * A step is a block of 256 with four result tiles. Two tiles of rows meet two planes of weights: those of one panel, or
 * one each of two panels where a format has one plane. A single tile of rows meets the planes of two panels. So each
 * tile that is loaded is multiplied twice (of a single tile of rows: those of weights once).
 *
 * Steps follow each other as (group of panels, block of 256, pair of tiles of rows, panel): an unpacked block serves all
 * rows of a row block, a tile of rows all panels of the group while it is in the first cache, and the accumulators
 * wait in memory between blocks. The group is two panels: what a turn over it touches (18 KB of weights, 10 KB of
 * activations, 8 KB of accumulators, the ring) must fit into the first cache, or all of it goes through the second.
 * Beside the last step of a block the panel's next one is unpacked, each slice over one that is in its tile for the
 * last time.
 *
 * All is one endless pipeline. Results go to a ring right before their tile's next product, a few products after the
 * last one into it: stores in a row fill the store buffer, and nothing is decoded until it is drained. The vectors of a
 * step are spread over the tile products of the next.
 *
 * Bounds, in cycles for 32 x 32 x 256 in two planes with minima: tile products 36 * 16 = 576; loads (608 of tiles + 320
 * of vectors) / 2 = 464; multiplications, fma, conversions and shifts, which have one port beside tile products, 384.
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
#define SLICES      (BLOCK / 32)
#define RUN_BYTES   (TILE * KERN_ACT_RUN)
#define GROUP       2 /* panels */
/* A y of more bytes does not stay in the second cache anyway: it is written past the caches. */
#define STREAM_BYTES ((size_t)512 << 10)
#define AHEAD        2 /* units from what is unpacked to what is prefetched */

/* What the stages know of a format when they are compiled. */
typedef struct shape {
    size_t unit_bytes;
    q256_slice_fn unpack_slice;
    q256_rest_fn unpack_rest;
    bool two_planes; /* isum = (first << shift) + second, else first */
    bool is_signed;  /* the first plane; the second never is */
    bool has_min;
    bool negated; /* the plane holds -w * sc */
    int shift;
} shape;

typedef int32_t tile_ints[TILE][KERN_PANEL];
typedef struct ring {
    tile_ints sum[4];  /* of each result tile */
    tile_ints msum[4]; /* floats; of each part of a step */
} ring;

/* A step's outputs in parts of a tile of rows and a panel: [part][TILE][KERN_PANEL] accumulators. */
typedef float part_acc[TILE * KERN_PANEL];

/* What is left to do of a step when its tiles are done. */
typedef struct vector_step {
    const float *d_act[2];     /* [TILE] of both tiles of rows */
    const q256_scales *scales; /* of its panels */
    const float *acc;          /* of its parts */
    float *out;                /* likewise */
    float *y;                  /* NULL, or where the rows go from there: the block is the last one */
    size_t y_stride;
    size_t y_rows;
    size_t y_columns;
    bool y_streams; /* whole lines go past the caches */
} vector_step;

/* The operands of a step. */
typedef struct tile_step {
    const void *q[2]; /* [RUNS][TILE][64] of both tiles of rows */
    const void *halves[2];
    q256_codes *codes; /* of its panels */
} tile_step;

/* What is unpacked into a step's codes when they are done with. */
typedef struct next_units {
    const uint8_t *unit[2];
    size_t ahead; /* from there to what is prefetched */
    q256_scales *scales;
} next_units;

/* Where the vectors read and write, in registers: nothing else is known not to change with a store. */
typedef struct vector_places {
    const ring *ring;
    const float *d_act[2];
    const q256_scales *scales;
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

/* Parts of a step, and which of its tiles of rows and panels are part c's. */
AMX_INLINE int parts_of(shape f, const bool pair)
{
    return !f.two_planes && pair ? 4 : 2;
}

AMX_INLINE int part_tile(shape f, const bool pair, int c)
{
    return !pair ? 0 : f.two_planes ? c : c / 2;
}

AMX_INLINE int part_panel(shape f, const bool pair, int c)
{
    return !f.two_planes ? c % 2 : pair ? 0 : c;
}

/* Row i of part c. */
AMX_INLINE void vector_row(shape f, const bool pair, const vector_places *v, int c, int i)
{
    const q256_scales *s = &v->scales[part_panel(f, pair, c)];
    const __m512 d_act = _mm512_set1_ps(v->d_act[part_tile(f, pair, c)][i]);
    const int at = (c * TILE + i) * KERN_PANEL;
    __m512 acc = _mm512_load_ps(v->acc + at);
    __m512i isum = _mm512_load_si512(v->ring->sum[f.two_planes ? 2 * c : c][i]);
    if (f.two_planes) {
        isum = _mm512_slli_epi32(isum, (unsigned)f.shift);
        isum = _mm512_add_epi32(isum, _mm512_load_si512(v->ring->sum[2 * c + 1][i]));
    }
    const __m512 sum = _mm512_cvtepi32_ps(isum);
    const __m512 scale = _mm512_mul_ps(d_act, _mm512_load_ps(s->d));
    acc = f.negated ? _mm512_fnmadd_ps(sum, scale, acc) : _mm512_fmadd_ps(sum, scale, acc);
    if (f.has_min) {
        const __m512 msum = _mm512_castsi512_ps(_mm512_load_si512(v->ring->msum[c][i]));
        acc = _mm512_fnmadd_ps(msum, _mm512_mul_ps(d_act, _mm512_load_ps(s->dmin)), acc);
    }
    _mm512_store_ps(v->out + at, acc);
    __asm__ volatile("" : : : "memory"); /* rows stay apart: clang spills otherwise */
}

/* The rows that belong behind product k of run r. None behind the first three: what they need is stored there. */
AMX_INLINE void vectors(shape f, const bool pair, const vector_places *v, int r, int k)
{
    const int rows = parts_of(f, pair) * TILE;
    const int n = 4 * RUNS - 3;
    const int at = 4 * r + k - 3;
    MM_UNROLL
    for (int i = at < 0 ? 0 : at * rows / n; i < (at + 1) * rows / n; i++) {
        vector_row(f, pair, v, i / TILE, i % TILE);
    }
}

/* Tiles: 0 … 3 results; 4 and, of pairs, 5 activations; the others weights. */

/* What tile c holds goes to `to`. */
#define RESULT(c, to)         \
    do {                      \
        AMX_STORE(c, to, 64); \
        AMX_ZERO(c);          \
    } while (0)

AMX_INLINE void result(int c, void *to)
{
    if (c == 0) {
        RESULT(0, to);
    } else if (c == 1) {
        RESULT(1, to);
    } else if (c == 2) {
        RESULT(2, to);
    } else {
        RESULT(3, to);
    }
}

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

/* Product c of a run. Pairs: tile c / 2 of rows by plane c % 2. Else the tile of rows by plane c % 2 of panel c / 2. */
AMX_INLINE void dot(const bool pair, run_kind kind, int c)
{
    if (c == 0) {
        DOT(kind, 0, 4, 6);
    } else if (c == 1) {
        DOT(kind, 1, 4, 7);
    } else if (c == 2 && pair) {
        DOT(kind, 2, 5, 6);
    } else if (c == 2) {
        DOT(kind, 2, 4, 7);
    } else if (pair) {
        DOT(kind, 3, 5, 7);
    } else {
        DOT(kind, 3, 4, 5);
    }
}

/* Its weights. */
AMX_INLINE void load_weights(const bool pair, int c, const void *p, int at)
{
    if (c == 0 || (c == 2 && pair)) {
        AMX_LOAD_AT(6, p, at, 64);
    } else if (c == 1 || c == 2 || pair) {
        AMX_LOAD_AT(7, p, at, 64);
    } else {
        AMX_LOAD_AT(5, p, at, 64);
    }
}

/* Bytes from the codes of a step to the plane of product c. */
AMX_INLINE int plane_at(shape f, const bool pair, int c)
{
    const int panel = (int)sizeof(q256_codes);
    if (!f.two_planes) {
        return c % 2 * panel;
    }
    return (c % 2 ? (int)offsetof(q256_codes, low) : (int)offsetof(q256_codes, high)) +
           (pair ? 0 : c / 2 * panel);
}

/* What a step reads and writes. */
typedef struct stage_args {
    const tile_step *tiles;
    const next_units *next; /* NULL: nothing is unpacked */
    ring *ring;
    vector_places vectors;
} stage_args;

/* Slice s of panel p's next unit. */
AMX_INLINE void unpack(shape f, const stage_args *s, int p, int slice)
{
    f.unpack_slice(s->next->unit[p], slice, s->next->ahead, &s->tiles->codes[p]);
}

/* Product c of a run, for which all but the weights is loaded if `loads`. First runs: what its tile holds from the step
 * before goes to the ring. */
AMX_INLINE void run_product(shape f, const bool pair, const stage_args *s, int r, int c, const bool loads)
{
    const bool second = f.two_planes && c % 2 == 1;
    if (loads) {
        load_weights(pair, c, s->tiles->codes, plane_at(f, pair, c) + r * RUN_BYTES);
    }
    if (r == 0) {
        ring *g = s->ring;
        result(c, !f.has_min || second ? g->sum[c] : g->msum[f.two_planes ? c / 2 : c]);
    }
    dot(pair, f.is_signed && !second ? RUN_SIGNED : RUN_UNSIGNED, c);
}

/*
 * Run r of 64 k. q: the planes' order. Between the products stand vectors and, where the step unpacks, two slices of
 * each panel. The first panel's are those of this run, whose tiles are loaded by then; a second panel's those of the
 * run before.
 */
AMX_INLINE void run(shape f, const bool pair, const bool unpacks, int r, int q, const stage_args *s)
{
    const bool four = pair || f.two_planes; /* products */
    const bool other = unpacks && !(pair && f.two_planes) && r > 0;
    AMX_LOAD_AT(4, s->tiles->q[0], r * RUN_BYTES, 64);
    run_product(f, pair, s, r, q, true);
    vectors(f, pair, &s->vectors, r, 0);
    if (other) {
        unpack(f, s, 1, 2 * r - 2);
    }
    if (four && pair) {
        AMX_LOAD_AT(5, s->tiles->q[1], r * RUN_BYTES, 64);
    }
    if (four) {
        run_product(f, pair, s, r, q + 2, !pair);
    }
    vectors(f, pair, &s->vectors, r, 1);
    if (other) {
        unpack(f, s, 1, 2 * r - 1);
    }
    run_product(f, pair, s, r, 1 - q, true);
    vectors(f, pair, &s->vectors, r, 2);
    if (unpacks) {
        unpack(f, s, 0, 2 * r);
    }
    if (four) {
        run_product(f, pair, s, r, 3 - q, !pair);
    }
    vectors(f, pair, &s->vectors, r, 3);
    if (unpacks) {
        unpack(f, s, 0, 2 * r + 1);
    }
}

/* The minima; the sums, or those of the first plane, go to the ring. */
AMX_INLINE void run_minima(shape f, const bool pair, const stage_args *s)
{
    const q256_codes *b = s->tiles->codes;
    const int mins = (int)offsetof(q256_codes, mins);
    ring *g = s->ring;
    AMX_LOAD(4, s->tiles->halves[0], 64);
    AMX_LOAD_AT(6, b, mins, 64);
    result(0, g->sum[0]);
    DOT(RUN_BF16, 0, 4, 6);
    if (!(pair && f.two_planes)) {
        AMX_LOAD_AT(7, b, mins + (int)sizeof *b, 64);
    }
    if (!f.two_planes) {
        result(1, g->sum[1]);
        DOT(RUN_BF16, 1, 4, 7);
    }
    if (pair) {
        AMX_LOAD(5, s->tiles->halves[1], 64);
        result(2, g->sum[2]);
        DOT(RUN_BF16, 2, 5, 6);
    } else if (f.two_planes) {
        result(2, g->sum[2]);
        DOT(RUN_BF16, 2, 4, 7);
    }
    if (pair && !f.two_planes) {
        result(3, g->sum[3]);
        DOT(RUN_BF16, 3, 5, 7);
    }
}

/* The tiles of a step and the vectors of the one before it. unpacks: n is not NULL. */
AMX_INLINE void stage(shape f, const bool pair, const bool unpacks, ring *g, const tile_step *t,
                      const next_units *n, const vector_step *v)
{
    const stage_args s = {
        t, n, g, {g, {alone(v->d_act[0]), alone(v->d_act[1])}, v->scales, alone(v->acc), v->out}};
    /* with minima the first plane's tiles are the last ones that were multiplied */
    run(f, pair, unpacks, 0, f.two_planes && f.has_min, &s);
    run(f, pair, unpacks, 1, 0, &s);
    run(f, pair, unpacks, 2, 0, &s);
    run(f, pair, unpacks, 3, 0, &s);
    if (f.has_min) {
        run_minima(f, pair, &s);
    }
    if (unpacks && !(pair && f.two_planes)) {
        unpack(f, &s, 1, SLICES - 2);
        unpack(f, &s, 1, SLICES - 1);
        f.unpack_rest(n->unit[1], n->ahead, &t->codes[1], &n->scales[1]);
    }
    if (unpacks) {
        f.unpack_rest(n->unit[0], n->ahead, &t->codes[0], &n->scales[0]);
    }
}

/* The rows that are done, to y. */
AMX_INLINE void rows_store(shape f, const bool pair, const vector_step *v)
{
    for (int c = 0; c < parts_of(f, pair); c++) {
        const size_t row = (size_t)part_tile(f, pair, c) * TILE;
        const size_t column = (size_t)part_panel(f, pair, c) * KERN_PANEL;
        if (v->y_rows <= row || v->y_columns <= column) {
            continue;
        }
        const size_t rows = v->y_rows - row < TILE ? v->y_rows - row : TILE;
        const size_t columns = v->y_columns - column;
        const __mmask16 lanes = (__mmask16)(columns < KERN_PANEL ? (1u << columns) - 1 : 0xFFFF);
        float *y = v->y + row * v->y_stride + column;
        const float *from = v->out + c * TILE * KERN_PANEL;
        if (v->y_streams && lanes == 0xFFFF) {
            for (size_t i = 0; i < rows; i++) {
                _mm512_stream_ps(y + i * v->y_stride, _mm512_load_ps(from + i * KERN_PANEL));
            }
        } else {
            for (size_t i = 0; i < rows; i++) {
                _mm512_mask_storeu_ps(y + i * v->y_stride, lanes, _mm512_load_ps(from + i * KERN_PANEL));
            }
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
    q256_codes codes[GROUP];
    ring ring;
    part_acc acc[MAX_TILES * GROUP]; /* of the steps of a row block and group, as they follow each other */
    part_acc nothing[4];             /* of the step before the first one */
    q256_scales scales[2][GROUP];    /* of this block and the one before */
    vector_step before;
} product;

static const _Alignas(64) float zeros[4 * TILE * KERN_PANEL];

/* What a product is of. */
typedef struct product_plan {
    const kern_act *a;
    size_t n0, n1;
    size_t panels;
    size_t pairs; /* of tiles of rows */
    size_t tiles;
    size_t cuts; /* of the pairs, into row blocks */
    const uint8_t *packed;
    size_t panel_bytes;
    float *y;
    size_t y_stride;
    bool y_streams;
} product_plan;

/* Block b of the group of panels from `panel` on, with the rows of a cut. */
typedef struct visit {
    size_t cut, panel, b;
} visit;

static inline visit visit_after(const product_plan *c, visit v)
{
    if (++v.b < c->a->n_blocks) {
        return v;
    }
    v.b = 0;
    v.panel += GROUP;
    if (v.panel >= c->panels) {
        v.panel = 0;
        v.cut++;
    }
    return v;
}

static inline size_t panels_of(const product_plan *c, visit v)
{
    return c->panels - v.panel < GROUP ? c->panels - v.panel : GROUP;
}

/* The units of panel i of a group and the one after it; the last panel's for what is no panel of it. */
AMX_INLINE next_units units_of(shape f, const product_plan *c, visit v, size_t i, q256_scales *scales)
{
    const size_t last = panels_of(c, v) - 1;
    const uint8_t *unit = c->packed + v.panel * c->panel_bytes + v.b * f.unit_bytes;
    /* at the end of a panel: the one that takes its place */
    const size_t jump = v.b + AHEAD < c->a->n_blocks ? 0 : (GROUP - 1) * c->panel_bytes;
    return (next_units){
        .unit = {unit + (i < last ? i : last) * c->panel_bytes,
                 unit + (i + 1 < last ? i + 1 : last) * c->panel_bytes},
        .ahead = AHEAD * f.unit_bytes + jump,
        .scales = scales + i,
    };
}

/* The tiles of t and the vectors of the step before it. n: NULL where nothing is unpacked. */
AMX_INLINE void step_run(shape f, const bool pair, product *p, const tile_step *t, const next_units *n)
{
    if (n) {
        stage(f, pair, true, &p->ring, t, n, &p->before);
    } else {
        stage(f, pair, false, &p->ring, t, n, &p->before);
    }
    if (p->before.y) {
        rows_store(f, pair, &p->before);
    }
}

/* p->before of a visit's last block: where its rows go, from tile t and panel i of the group on. */
static inline void step_ends(const product_plan *c, visit v, size_t t, size_t i, size_t width, vector_step *s)
{
    const size_t n = c->n0 + (v.panel + i) * KERN_PANEL;
    s->y = c->y + t * TILE * c->y_stride + n;
    s->y_stride = c->y_stride;
    s->y_rows = c->a->m - t * TILE;
    s->y_columns = c->n1 - n < width * KERN_PANEL ? c->n1 - n : width * KERN_PANEL;
    s->y_streams = c->y_streams;
}

/* All tiles of rows, two at a time; where there is no second, that is the first again. */
AMX_INLINE void visit_run(shape f, const bool pair, const product_plan *c, visit v, unsigned parity,
                          product *p)
{
    const kern_act *a = c->a;
    const size_t t0 = c->pairs * v.cut / c->cuts * 2;
    const size_t t2 = c->pairs * (v.cut + 1) / c->cuts * 2;
    const size_t t1 = t2 < c->tiles ? t2 : c->tiles;
    const visit after = visit_after(c, v);
    const size_t panels = panels_of(c, v);
    const size_t width = pair && f.two_planes ? 1 : 2; /* panels of a step */
    part_acc *acc = p->acc;
    for (size_t t = t0; t < t1; t += 2) {
        const size_t row = t * TILE;
        const size_t other = t + 1 < t1 ? row + TILE : row;
        const bool unpacks = after.cut < c->cuts && t + 2 >= t1;
        for (size_t i = 0; i < panels; i += width) {
            const tile_step now = {{kern_act_q(a, row, v.b * RUNS), kern_act_q(a, other, v.b * RUNS)},
                                   {kern_act_halves(a, row, v.b), kern_act_halves(a, other, v.b)},
                                   &p->codes[i]};
            const next_units next = units_of(f, c, unpacks ? after : v, i, p->scales[parity ^ 1]);
            step_run(f, pair, p, &now, unpacks ? &next : NULL);
            vector_step *s = &p->before;
            s->d_act[0] = kern_act_d(a, row, v.b);
            s->d_act[1] = kern_act_d(a, other, v.b);
            s->scales = &p->scales[parity][i];
            s->acc = v.b == 0 ? zeros : acc[0];
            s->out = acc[0];
            s->y = NULL;
            if (v.b + 1 == a->n_blocks) {
                step_ends(c, v, t, i, width, s);
            }
            acc += parts_of(f, pair);
        }
    }
}

AMX_INLINE void product_run(shape f, const bool pair, const kern_matrix *w, const kern_act *a, size_t n0,
                            size_t n1, float *y, size_t y_stride)
{
    const size_t panel_bytes = a->n_blocks * f.unit_bytes;
    const size_t pairs = (a->m + 2 * TILE - 1) / (2 * TILE);
    const size_t fitting = BLOCK_BYTES / (a->n_runs * RUN_BYTES) / 2;
    const size_t most = fitting > MAX_TILES / 2 ? MAX_TILES / 2 : fitting > 0 ? fitting : 1;
    const product_plan plan = {.a = a,
                               .n0 = n0,
                               .n1 = n1,
                               .panels = (n1 - n0 + KERN_PANEL - 1) / KERN_PANEL,
                               .pairs = pairs,
                               .tiles = (a->m + TILE - 1) / TILE,
                               .cuts = (pairs + most - 1) / most,
                               .packed = (const uint8_t *)w->packed + n0 / KERN_PANEL * panel_bytes,
                               .panel_bytes = panel_bytes,
                               .y = y,
                               .y_stride = y_stride,
                               .y_streams = a->m * (n1 - n0) * sizeof *y > STREAM_BYTES &&
                                            ((uintptr_t)y | y_stride * sizeof *y) % 64 == 0};
    _Alignas(4096) product p;
    memset(p.scales, 0, sizeof p.scales);
    /* of no interest */
    p.before =
        (vector_step){.d_act = {zeros, zeros}, .scales = p.scales[1], .acc = zeros, .out = p.nothing[0]};
    configure();
    visit v = {0, 0, 0};
    size_t ready = 0; /* panels that are unpacked: none, or as many as the group before has */
    for (unsigned parity = 0; v.cut < plan.cuts; parity ^= 1, v = visit_after(&plan, v)) {
        for (size_t i = ready; i < panels_of(&plan, v); i++) {
            const next_units now = units_of(f, &plan, v, i, p.scales[parity]);
            for (int s = 0; s < SLICES; s++) {
                f.unpack_slice(now.unit[0], s, now.ahead, &p.codes[i]);
            }
            f.unpack_rest(now.unit[0], now.ahead, &p.codes[i], now.scales);
        }
        ready = panels_of(&plan, v);
        visit_run(f, pair, &plan, v, parity, &p);
    }
    /* the last step's vectors, beside tiles of no interest */
    const tile_step again = {{a->q, a->q}, {a->halves, a->halves}, p.codes};
    step_run(f, pair, &p, &again, NULL);
    amx_release();
    _mm_sfence(); /* what was streamed, before what the caller tells other threads */
}

/* matmul_amx_<type>, from what its format is like; few rows are fewer than a tile has. */
#define MATMUL(type, ...)                                                                           \
    void matmul_amx_##type(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y, \
                           size_t y_stride)                                                         \
    {                                                                                               \
        const shape f = {sizeof(unit_##type), q256_slice_##type, q256_rest_##type, __VA_ARGS__};    \
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
