/*
 * Products of the formats with a float scale for each 32 values, on AMX tiles.
 *
 * A float step every 32 values makes the vector units the limit, not the tiles. So both run at once, on one
 * endless stream of blocks that is not drained between tiles of rows, chunks of k and panels:
 *
 *     T(block)  tile stage:   C = A * B in int32, exact, in one of four tiles in turn. C is stored into a ring
 *                             four blocks later, when its tile is needed again: a store right behind its product
 *                             would wait for it
 *     V(block)  vector stage: acc = fma((float)C, dA * d, acc) for the 16 rows, accumulators in registers
 *     U(block)  unpacks the weights of one block of the following chunk, once for all tiles of rows, over those
 *               that T has just used for the last time: more buffers would drive the ring out of the first cache
 *
 * A step is one chunk of eight blocks of one panel with one tile of 16 rows: V of this step, T of the next one
 * and U of a later chunk, block by block in turns. Between the chunks of a panel the accumulators of a tile of
 * rows wait in a scratch. One tile of rows alone takes its panels eight by eight, chunk by chunk: several streams of
 * weights are read faster than one, and the products are little slower than memory then. Many tiles take them three by
 * three, each tile all three of them. Weights are fetched between the rows of V, each line once: a core has sixteen
 * lines under way to its first cache, and each fetch is one of them. Where tiles are four or more, the steps without U
 * fetch what the next U reads: all of it at once would be more than memory brings in one step. A chunk at the end of k
 * may be shorter: T then repeats a block that nobody reads.
 *
 * Multiplications, fma and conversions run at half rate near tile instructions, additions do not (measured). So
 * (float)C is, in every second row, one integer and one float addition: with magic = 1.5 * 2^23,
 * as_float(C + bits(magic)) - magic is exact, and +0 for 0, while |C| < 2^22 = 4,194,304. The largest is
 * 32 * 128 * 127 = 520,192 (kern/README.md).
 */
#include <assert.h>
#include <immintrin.h>

#include "kern/pack_units.h"
#include "kern/x86/amx.h"
#include "kern/x86/avx512.h"
#include "kern/x86/matmul_amx.h"
#include "kern/x86/unroll.h"

#define CHUNK 8 /* blocks of a step */
#define ROWS  KERN_ACT_TILE

/* Activations of a pass over the weights: what stays in the second cache, and rows of the scratch. */
#define PASS_BYTES ((size_t)1 << 20)
#define PASS_TILES 32

/* A y of more bytes does not stay in the second cache anyway: it is written past the caches. Its rows are mostly a
 * multiple of 4 KiB apart and would hold up the stores of tiles behind them (+15 % at 256 rows). */
#define STREAM_BYTES ((size_t)512 << 10)

#define CLEAN_BLOCKS 1024 /* k up to 32,768; above that the time is not worth the memory */

/* Panels side by side: where there is one tile of rows; and where there are many, for which the panels share a tile's
 * codes while they are in the first cache, and steps without U fetch what the next one reads. */
#define GROUP      8
#define MANY_TILES 4
#define GROUP_MANY 3

#define LINE_BYTES 64
#define AND_OR     0xEA /* (a & b) | c */

/* Weights as T wants them: as in pack_units.h, offsets taken off and tables looked up. */
typedef int8_t block_lines[8][LINE_BYTES];

/* Scales of a chunk as V wants them. */
typedef struct scales {
    float d[CHUNK][KERN_PANEL];
    float m[CHUNK][KERN_PANEL]; /* formats with a minimum */
} scales;

/* A unit to its lines, d and m. */
typedef void (*unpack_fn)(const uint8_t *unit, int8_t (*lines)[LINE_BYTES], float *d, float *m);

/* What the stages of one step read and write. */
typedef struct step {
    int32_t (*ring)[ROWS][KERN_PANEL]; /* [4] */
    block_lines *lines;                /* [8], of T and of U */
    /* V */
    const scales *now;
    size_t n_now;        /* blocks, 0 … 8 */
    const float *d_act;  /* [block][16] */
    const float *totals; /* [block][16] */
    float *acc;          /* [16][16]: read unless first, written unless last */
    bool first;          /* chunk of the panel */
    bool last;           /* then y is written */
    __mmask16 lanes;     /* of y */
    size_t n_rows;       /* of y */
    float *y;            /* of that output and the tile's first row */
    size_t y_stride;
    bool stream; /* y is written past the caches: whole lines */
    /* T */
    size_t n_next;
    const int8_t *q_next; /* [run][16][64] */
    /* U */
    unpack_fn unpack; /* NULL: nothing is unpacked */
    scales *later;
    size_t n_later; /* of the chunk at units */
    const uint8_t *units;
    size_t unit_bytes;
    const uint8_t *fetch; /* what is fetched between the rows of V; steps without U: NULL for nothing */
} step;

typedef struct format {
    size_t unit_bytes;
    unpack_fn unpack;
    void (*step)(const step *s);        /* V and T of full chunks */
    void (*step_fetch)(const step *s);  /* that, and a part of a chunk's weights */
    void (*step_unpack)(const step *s); /* V, T and U of full chunks */
    void (*step_short)(const step *s);  /* any */
} format;

/* Unpacking: eight lines. */

static inline __m512i line_load(const pack_line line)
{
    return _mm512_loadu_si512(line);
}

static inline void line_store(int8_t (*lines)[LINE_BYTES], size_t r, __m512i v)
{
    _mm512_store_si512(lines[r], v);
}

static inline void halves_widen(const uint16_t *halves, float *to)
{
    _mm512_store_ps(to, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)halves)));
}

/* vpermb looks at six bits of each byte: a table of four equal parts needs no mask for a nibble. */
static inline __m512i table_of(const int8_t *values)
{
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)values));
}

static inline void nibbles_look_up(const pack_line *nibbles, const int8_t *values,
                                   int8_t (*lines)[LINE_BYTES])
{
    const __m512i table = table_of(values);
    MM_UNROLL
    for (size_t r = 0; r < 4; r++) {
        __m512i v = line_load(nibbles[r]);
        line_store(lines, r, _mm512_permutexvar_epi8(v, table));
        line_store(lines, r + 4, _mm512_permutexvar_epi8(_mm512_srli_epi16(v, 4), table));
    }
}

/* The fifth bit of line r as bit 4 of each byte; where signed, bits 4 … 7 as what it is not. GFNI's matrix: byte
 * 7 - i picks the bits whose parity is bit i of the result. */
static inline __m512i fifth_bit(__m512i bits, size_t r, const bool is_signed)
{
    return is_signed
               ? _mm512_gf2p8affine_epi64_epi8(bits, _mm512_set1_epi64((long long)(0x01010101ull << r)), 0xF0)
               : _mm512_gf2p8affine_epi64_epi8(bits, _mm512_set1_epi64((long long)(0x01000000ull << r)), 0);
}

/* Codes of five bits, 0 … 31, or -16 … 15 where signed: then bits 4 … 7 are what the fifth bit is not. */
static inline void five_bits_join(const pack_line *nibbles, const pack_line fifths, const bool is_signed,
                                  int8_t (*lines)[LINE_BYTES])
{
    const __m512i low = _mm512_set1_epi8(15);
    const __m512i bits = line_load(fifths);
    MM_UNROLL
    for (size_t r = 0; r < 4; r++) {
        __m512i v = line_load(nibbles[r]);
        __m512i high = _mm512_srli_epi16(v, 4);
        line_store(lines, r, _mm512_ternarylogic_epi32(v, low, fifth_bit(bits, r, is_signed), AND_OR));
        line_store(lines, r + 4,
                   _mm512_ternarylogic_epi32(high, low, fifth_bit(bits, r + 4, is_signed), AND_OR));
    }
}

static inline void unpack_q8_0(const uint8_t *unit, int8_t (*lines)[LINE_BYTES], float *d, float *m)
{
    (void)m;
    const unit_q8_0 *u = (const unit_q8_0 *)(const void *)unit;
    MM_UNROLL
    for (size_t r = 0; r < 8; r++) {
        line_store(lines, r, line_load(u->lines[r]));
    }
    halves_widen(u->d, d);
}

static inline void unpack_q4_0(const uint8_t *unit, int8_t (*lines)[LINE_BYTES], float *d, float *m)
{
    static const int8_t less_eight[16] = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
    /* high nibble - 8 in one step: bits 4 … 6 to 0 … 2, not bit 7 to 3 … 7 */
    const __m512i high = _mm512_set1_epi64(0x1020408080808080);
    (void)m;
    const unit_q4_0 *u = (const unit_q4_0 *)(const void *)unit;
    const __m512i table = table_of(less_eight);
    MM_UNROLL
    for (size_t r = 0; r < 4; r++) {
        __m512i v = line_load(u->nibbles[r]);
        line_store(lines, r, _mm512_permutexvar_epi8(v, table));
        line_store(lines, r + 4, _mm512_gf2p8affine_epi64_epi8(v, high, 0xF8));
    }
    halves_widen(u->d, d);
}

static inline void unpack_q4_1(const uint8_t *unit, int8_t (*lines)[LINE_BYTES], float *d, float *m)
{
    const unit_q4_1 *u = (const unit_q4_1 *)(const void *)unit;
    const __m512i low = _mm512_set1_epi8(15);
    MM_UNROLL
    for (size_t r = 0; r < 4; r++) {
        __m512i v = line_load(u->nibbles[r]);
        line_store(lines, r, _mm512_and_si512(v, low));
        line_store(lines, r + 4, _mm512_and_si512(_mm512_srli_epi16(v, 4), low));
    }
    halves_widen(u->d, d);
    halves_widen(u->m, m);
}

static inline void unpack_q5_0(const uint8_t *unit, int8_t (*lines)[LINE_BYTES], float *d, float *m)
{
    (void)m;
    const unit_q5_0 *u = (const unit_q5_0 *)(const void *)unit;
    five_bits_join(u->nibbles, u->bits, true, lines);
    halves_widen(u->d, d);
}

static inline void unpack_q5_1(const uint8_t *unit, int8_t (*lines)[LINE_BYTES], float *d, float *m)
{
    const unit_q5_1 *u = (const unit_q5_1 *)(const void *)unit;
    five_bits_join(u->nibbles, u->bits, false, lines);
    halves_widen(u->d, d);
    halves_widen(u->m, m);
}

static inline void unpack_iq4_nl(const uint8_t *unit, int8_t (*lines)[LINE_BYTES], float *d, float *m)
{
    static const int8_t values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};
    (void)m;
    const unit_q4_0 *u = (const unit_q4_0 *)(const void *)unit;
    nibbles_look_up(u->nibbles, values, lines);
    halves_widen(u->d, d);
}

/* Values doubled, the half is in d = 2^(e - 128); the two smallest are denormal. */
static inline void unpack_mxfp4(const uint8_t *unit, int8_t (*lines)[LINE_BYTES], float *d, float *m)
{
    static const int8_t values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    (void)m;
    const unit_mxfp4 *u = (const unit_mxfp4 *)(const void *)unit;
    nibbles_look_up(u->nibbles, values, lines);
    __m512i e = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)u->e));
    __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    __m512i denormal = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
    __mmask16 small = _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2));
    _mm512_store_ps(d, _mm512_castsi512_ps(_mm512_mask_blend_epi32(small, normal, denormal)));
}

/* The tile stage of block j. What tile c holds, the result of four blocks ago, goes to the ring. */
#define TILE_STAGE(ring, lines, q, j, c, a, b) \
    do {                                       \
        AMX_LOAD(a, q, KERN_ACT_RUN);          \
        AMX_LOAD(b, (lines)[j], LINE_BYTES);   \
        AMX_STORE(c, (ring)[c], LINE_BYTES);   \
        AMX_ZERO(c);                           \
        AMX_DOT_INT8(c, a, b);                 \
    } while (0)

/* Block j of a tile of rows, from its first block of the chunk on; rows are KERN_ACT_RUN apart. */
AMX_INLINE const int8_t *codes_at(const int8_t *q, size_t j)
{
    return q + j / 2 * (ROWS * KERN_ACT_RUN) + j % 2 * 32;
}

/* Lines that begin before unit j of a chunk. */
AMX_INLINE size_t lines_before(size_t j, size_t unit_bytes)
{
    return (j * unit_bytes + LINE_BYTES - 1) / LINE_BYTES;
}

/* Lines that a step without U fetches beside each of its blocks: three steps fetch a chunk. */
AMX_INLINE size_t lines_beside(size_t unit_bytes)
{
    return (unit_bytes * CHUNK + 3 * CHUNK * LINE_BYTES - 1) / (3 * CHUNK * LINE_BYTES);
}

/* Fetches n lines from soon on (any address). Every second row is converted in one operation, on the port that
 * multiplies, the others in two that another port takes as well; with minima, which are more to multiply, all. */
AMX_INLINE void vector_stage(const int32_t (*isums)[KERN_PANEL], const scales *w, const float *d_act,
                             const float *totals, size_t j, __m512 *acc, const bool has_min, uintptr_t soon,
                             size_t n)
{
    const __m512i magic_bits = _mm512_set1_epi32(0x4B400000);
    const __m512 magic = _mm512_set1_ps(0x1.8p23f);
    const __m512 d = _mm512_load_ps(w->d[j]);
    MM_UNROLL
    for (size_t i = 0; i < ROWS; i++) {
        __m512i isum = _mm512_load_si512(isums[i]);
        __m512 value = i % 2 == 1 && !has_min
                           ? _mm512_cvtepi32_ps(isum)
                           : _mm512_sub_ps(_mm512_castsi512_ps(_mm512_add_epi32(isum, magic_bits)), magic);
        __m512 scale = _mm512_mul_ps(_mm512_set1_ps(d_act[j * ROWS + i]), d);
        acc[i] = _mm512_fmadd_ps(value, scale, acc[i]);
        if ((i + 1) * n / ROWS > i * n / ROWS) { /* one at most: a unit has less than sixteen lines */
            _mm_prefetch((const char *)(soon + i * n / ROWS * LINE_BYTES), _MM_HINT_T1);
        }
        __asm__ volatile("" : "+v"(acc[i])); /* row by row: clang else keeps 16 products on the stack */
    }
    if (has_min) {
        const __m512 m = _mm512_load_ps(w->m[j]);
        MM_UNROLL
        for (size_t i = 0; i < ROWS; i++) {
            __m512 scale = _mm512_mul_ps(_mm512_set1_ps(d_act[j * ROWS + i]), m);
            acc[i] = _mm512_fmadd_ps(_mm512_set1_ps(totals[j * ROWS + i]), scale, acc[i]);
            __asm__ volatile("" : "+v"(acc[i]));
        }
    }
}

AMX_INLINE void accumulators_load(const step *s, __m512 *acc)
{
    MM_UNROLL
    for (size_t i = 0; i < ROWS; i++) {
        acc[i] = s->first ? _mm512_setzero_ps() : _mm512_load_ps(s->acc + i * KERN_PANEL);
    }
}

AMX_INLINE void accumulators_store(const step *s, const __m512 *acc)
{
    if (s->last && s->stream) {
        MM_UNROLL
        for (size_t i = 0; i < ROWS; i++) {
            _mm512_stream_ps(s->y + i * s->y_stride, acc[i]);
        }
        return;
    }
    if (s->last && s->n_rows == ROWS) {
        MM_UNROLL
        for (size_t i = 0; i < ROWS; i++) {
            _mm512_mask_storeu_ps(s->y + i * s->y_stride, s->lanes, acc[i]);
        }
        return;
    }
    MM_UNROLL
    for (size_t i = 0; i < ROWS; i++) {
        _mm512_store_ps(s->acc + i * KERN_PANEL, acc[i]);
    }
    for (size_t i = 0; s->last && i < s->n_rows; i++) {
        _mm512_mask_storeu_ps(s->y + i * s->y_stride, s->lanes, _mm512_load_ps(s->acc + i * KERN_PANEL));
    }
}

/* Block j of a step; c is j % 4. Lines [first, last) of those to fetch go with it. */
#define STAGES(j, c, a, b)                                                                        \
    do {                                                                                          \
        const size_t first = unpack ? lines_before(j, unit_bytes) : (j)*beside;                   \
        const size_t last = unpack ? lines_before((j) + 1, unit_bytes) : ((j) + 1) * beside;      \
        if (full || (j) < s->n_now) {                                                             \
            vector_stage(ring[c], now, d_act, totals, j, acc, has_min, soon + first * LINE_BYTES, \
                         last - first);                                                           \
        }                                                                                         \
        TILE_STAGE(ring, lines, codes_at(q, full || (j) < s->n_next ? (j) : 0), j, c, a, b);      \
        if (unpack && (full || (j) < s->n_later)) {                                               \
            unpack(units + (j)*unit_bytes, lines[j], later->d[j], later->m[j]);                   \
        }                                                                                         \
    } while (0)

/*
 * unpack is NULL in steps that unpack nothing, which fetch `beside` lines with each block; full: all chunks have eight
 * blocks. The pointers are kept in
 * registers: next to stores of tiles, a load that shares its low twelve bits of address with one of them waits.
 */
AMX_INLINE void step_run(const step *s, unpack_fn unpack, size_t unit_bytes, size_t beside,
                         const bool has_min, const bool full)
{
    int32_t(*const ring)[ROWS][KERN_PANEL] = s->ring;
    block_lines *const lines = s->lines;
    const scales *const now = s->now;
    const float *const d_act = s->d_act;
    const float *const totals = s->totals;
    const int8_t *const q = s->q_next;
    scales *const later = s->later;
    const uint8_t *const units = s->units;
    const uintptr_t soon = (uintptr_t)s->fetch;
    __m512 acc[ROWS];
    accumulators_load(s, acc);
    STAGES(0, 0, 4, 6);
    STAGES(1, 1, 5, 7);
    STAGES(2, 2, 4, 6);
    STAGES(3, 3, 5, 7);
    STAGES(4, 0, 4, 6);
    STAGES(5, 1, 5, 7);
    STAGES(6, 2, 4, 6);
    STAGES(7, 3, 5, 7);
    accumulators_store(s, acc);
}

static void step_plain(const step *s)
{
    step_run(s, NULL, 0, 0, false, true);
}

static void step_short_plain(const step *s)
{
    step_run(s, s->unpack, s->unit_bytes, 0, false, false);
}

static void step_minimum(const step *s)
{
    step_run(s, NULL, 0, 0, true, true);
}

static void step_short_minimum(const step *s)
{
    step_run(s, s->unpack, s->unit_bytes, 0, true, false);
}

static void tiles_configure(void)
{
    amx_config c = {.palette = 1};
    for (size_t t = 0; t < 8; t++) {
        const bool is_a = t == 4 || t == 5;
        const bool is_b = t == 6 || t == 7;
        c.rows[t] = is_b ? 8 : ROWS;
        c.row_bytes[t] = is_a ? 32 : LINE_BYTES;
    }
    amx_configure(&c);
}

typedef struct scratch {
    int32_t ring[4][ROWS][KERN_PANEL];
    block_lines lines[GROUP_MANY][CHUNK]; /* U overwrites what T has used for the last time */
    scales scales[2][GROUP_MANY]; /* of even and odd turns; U overwrites what V has used for the last time */
    float acc[PASS_TILES * GROUP_MANY][ROWS * KERN_PANEL];
    /* Scales and totals of a last tile that rows fill only in part, with zeros for the others: what lies in their
     * place may be denormal, which takes a hundred times the cycles. */
    float d_clean[CLEAN_BLOCKS][ROWS];
    float totals_clean[CLEAN_BLOCKS][ROWS];
} scratch;

/* A pass: all panels of a call with some tiles of rows. */
typedef struct pass {
    const format *f;
    const uint8_t *units; /* of the first panel; those of the others follow */
    size_t group;         /* panels side by side */
    size_t n_panels;
    size_t n_blocks; /* of a panel */
    size_t n_chunks;
    size_t n_tiles;
    size_t n_rows;     /* of the tiles */
    const int8_t *q;   /* of the first tile */
    size_t tile_bytes; /* of q */
    const float *d_act;
    const float *totals;
    float *y; /* of the first row and output */
    size_t y_stride;
    bool stream;          /* whole lines of y are written past the caches */
    __mmask16 last_lanes; /* of the last panel */
    scratch *mem;
} pass;

static inline size_t blocks_of(const pass *p, size_t c)
{
    size_t left = p->n_blocks - c * CHUNK;
    return left < CHUNK ? left : CHUNK;
}

/* A chunk of a panel with a tile. */
typedef struct visit {
    size_t panel, chunk, tile;
    size_t turn; /* of the weights: U of the next one goes with T of this one */
} visit;

/* Chunk by chunk and tile by tile of a group's panels, or past the last panel. */
static inline visit visit_after(const pass *p, visit v)
{
    const size_t first = v.panel / p->group * p->group;
    const size_t end = first + p->group < p->n_panels ? first + p->group : p->n_panels;
    if (v.panel + 1 < end) {
        return (visit){v.panel + 1, v.chunk, v.tile, v.turn + (p->n_tiles == 1)};
    }
    if (v.tile + 1 < p->n_tiles) {
        return (visit){first, v.chunk, v.tile + 1, v.turn};
    }
    return v.chunk + 1 < p->n_chunks ? (visit){first, v.chunk + 1, 0, v.turn + 1}
                                     : (visit){end, 0, 0, v.turn + 1};
}

/* What U unpacks when T is at v: over the lines that T uses for the last time. */
static inline visit visit_later(const pass *p, visit v)
{
    if (p->n_tiles == 1) {
        return visit_after(p, v);
    }
    if (v.tile + 1 < p->n_tiles) {
        return (visit){p->n_panels, 0, 0, 0};
    }
    return v.chunk + 1 < p->n_chunks ? (visit){v.panel, v.chunk + 1, 0, v.turn + 1}
                                     : (visit){v.panel + p->group, 0, 0, v.turn + 1};
}

/* Where lines and scales lie: a single tile has one place for all. */
static inline size_t place_of(const pass *p, visit v)
{
    return p->n_tiles == 1 ? 0 : v.panel % p->group;
}

/* V at v. */
static inline void step_set_now(const pass *p, visit v, step *s)
{
    const size_t n_rows = p->n_rows - v.tile * ROWS;
    const bool cleaned = n_rows < ROWS && p->n_blocks <= CLEAN_BLOCKS;
    const size_t at = ((cleaned ? 0 : v.tile * p->n_blocks) + v.chunk * CHUNK) * ROWS;
    s->now = &p->mem->scales[v.turn % 2][place_of(p, v)];
    s->n_now = blocks_of(p, v.chunk);
    s->first = v.chunk == 0;
    s->last = v.chunk + 1 == p->n_chunks;
    s->lanes = v.panel + 1 == p->n_panels ? p->last_lanes : (__mmask16)0xFFFF;
    s->d_act = (cleaned ? p->mem->d_clean[0] : p->d_act) + at;
    s->totals = (cleaned ? p->mem->totals_clean[0] : p->totals) + at;
    s->acc = p->mem->acc[v.tile * p->group + v.panel % p->group];
    s->y = p->y + v.panel * KERN_PANEL + v.tile * ROWS * p->y_stride;
    s->n_rows = n_rows < ROWS ? n_rows : ROWS;
    s->stream = p->stream && n_rows >= ROWS && s->lanes == 0xFFFF;
}

/* The units of a visit's chunk. */
static inline const uint8_t *units_of(const pass *p, visit v)
{
    return p->units + (v.panel * p->n_blocks + v.chunk * CHUNK) * p->f->unit_bytes;
}

/* What a step that unpacks `later` fetches: the chunk behind it, or, behind a panel's end, that of the panel that takes
 * its place. Where steps without U have fetched, only what it reads, which is there. */
static inline const uint8_t *fetch_beside_unpack(const pass *p, visit later)
{
    if (p->n_tiles >= MANY_TILES) {
        return units_of(p, later);
    }
    const size_t panel_bytes = p->n_blocks * p->f->unit_bytes;
    const bool ends = later.chunk + 1 >= p->n_chunks;
    return units_of(p, later) + CHUNK * p->f->unit_bytes + (ends ? (p->group - 1) * panel_bytes : 0);
}

/* What the step at v, which does not unpack, fetches of what the panel's next U reads; NULL: nothing. */
static inline const uint8_t *fetch_for_later(const pass *p, visit v)
{
    const visit later = visit_later(p, (visit){v.panel, v.chunk, p->n_tiles - 1, v.turn});
    const size_t at = v.tile * CHUNK * lines_beside(p->f->unit_bytes) * LINE_BYTES;
    const bool wanted = p->n_tiles >= MANY_TILES && later.panel < p->n_panels;
    return wanted && at < CHUNK * p->f->unit_bytes ? units_of(p, later) + at : NULL;
}

/* T at v, and U. */
static inline void step_set_next(const pass *p, visit v, step *s)
{
    const visit later = visit_later(p, v);
    s->n_next = blocks_of(p, v.chunk);
    s->q_next = p->q + v.tile * p->tile_bytes + v.chunk * (CHUNK / 2 * ROWS * KERN_ACT_RUN);
    s->lines = p->mem->lines[place_of(p, v)];
    if (later.panel < p->n_panels) {
        s->unpack = p->f->unpack;
        s->units = units_of(p, later);
        s->fetch = fetch_beside_unpack(p, later);
        s->later = &p->mem->scales[later.turn % 2][place_of(p, v)];
        s->n_later = blocks_of(p, later.chunk);
    } else {
        s->unpack = NULL;
        s->fetch = v.tile + 1 < p->n_tiles ? fetch_for_later(p, v) : NULL;
    }
}

static inline void step_do(const format *f, const step *s)
{
    if (s->n_now + s->n_next < 2 * CHUNK || (s->unpack && s->n_later < CHUNK)) {
        f->step_short(s);
    } else if (s->unpack) {
        f->step_unpack(s);
    } else if (s->fetch) {
        f->step_fetch(s);
    } else {
        f->step(s);
    }
}

/* U of the first chunk of each place; T of the first visit, with the U that belongs to it. No V. */
static void pass_start(const pass *p, step *s)
{
    const size_t places = p->n_tiles == 1 ? 1 : p->group < p->n_panels ? p->group : p->n_panels;
    for (size_t i = 0; i < places; i++) {
        for (size_t b = 0; b < blocks_of(p, 0); b++) {
            p->f->unpack(p->units + (i * p->n_blocks + b) * p->f->unit_bytes, p->mem->lines[i][b],
                         p->mem->scales[0][i].d[b], p->mem->scales[0][i].m[b]);
        }
    }
    s->first = true;
    s->acc = p->mem->acc[0];
    step_set_next(p, (visit){0, 0, 0, 0}, s);
    step_do(p->f, s);
}

static void pass_run(const pass *p)
{
    step s = {.ring = p->mem->ring, .unit_bytes = p->f->unit_bytes, .y_stride = p->y_stride};
    pass_start(p, &s);
    for (visit v = {0, 0, 0, 0}; v.panel < p->n_panels;) {
        step_set_now(p, v, &s);
        v = visit_after(p, v);
        s.unpack = NULL;
        s.fetch = NULL;
        if (v.panel < p->n_panels) { /* else T repeats itself: what counts is the store of its last results */
            step_set_next(p, v, &s);
        }
        step_do(p->f, &s);
    }
}

/* The last tile's d_clean and totals_clean. */
static void rows_clean(const pass *p)
{
    const size_t used = p->n_rows % ROWS;
    const size_t at = p->n_rows / ROWS * p->n_blocks * ROWS;
    const __mmask16 kept = (__mmask16)((1u << used) - 1);
    if (used == 0 || p->n_rows / ROWS >= p->n_tiles || p->n_blocks > CLEAN_BLOCKS) {
        return;
    }
    for (size_t b = 0; b < p->n_blocks; b++) {
        _mm512_store_ps(p->mem->d_clean[b], _mm512_maskz_loadu_ps(kept, p->d_act + at + b * ROWS));
        _mm512_store_ps(p->mem->totals_clean[b], _mm512_maskz_loadu_ps(kept, p->totals + at + b * ROWS));
    }
}

/* The contract of kern_matmul_fn, for more than KERN_ACT_SMALL rows. */
static void product(const format *f, const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                    size_t y_stride)
{
    if (n0 >= n1) {
        return;
    }
    assert(a->kind == KERN_ACT_Q8_32 && a->tile == ROWS && n0 % KERN_PANEL == 0);
    scratch mem __attribute__((aligned(4096)));
    const size_t tile_bytes = a->n_runs * (ROWS * KERN_ACT_RUN);
    const size_t tiles = (a->m + ROWS - 1) / ROWS;
    const size_t fit = PASS_BYTES / tile_bytes;
    const size_t most = fit < 1 ? 1 : fit < PASS_TILES ? fit : PASS_TILES;
    const size_t n_passes = (tiles + most - 1) / most;
    const size_t n_panels = (n1 - n0 + KERN_PANEL - 1) / KERN_PANEL;
    tiles_configure();
    for (size_t i = 0; i < n_passes; i++) {
        const size_t tile0 = tiles * i / n_passes;
        const size_t n_tiles = tiles * (i + 1) / n_passes - tile0;
        const size_t row0 = tile0 * ROWS;
        const pass p = {
            .f = f,
            .units = (const uint8_t *)w->packed + n0 / KERN_PANEL * a->n_blocks * f->unit_bytes,
            .group = n_tiles == 1           ? GROUP
                     : n_tiles < MANY_TILES ? 1
                                            : GROUP_MANY,
            .n_panels = n_panels,
            .n_blocks = a->n_blocks,
            .n_chunks = (a->n_blocks + CHUNK - 1) / CHUNK,
            .n_tiles = n_tiles,
            .n_rows = a->m - row0,
            .q = kern_act_q(a, row0, 0),
            .tile_bytes = tile_bytes,
            .d_act = kern_act_d(a, row0, 0),
            .totals = kern_act_total(a, row0, 0),
            .y = y + row0 * y_stride + n0,
            .y_stride = y_stride,
            .stream = a->m * (n1 - n0) * sizeof *y > STREAM_BYTES &&
                      ((uintptr_t)y | y_stride * sizeof *y) % LINE_BYTES == 0,
            .last_lanes = (__mmask16)(0xFFFFu >> (n_panels * KERN_PANEL - (n1 - n0))),
            .mem = &mem,
        };
        rows_clean(&p);
        pass_run(&p);
    }
    amx_release();
    _mm_sfence(); /* what was streamed, before what the caller tells other threads */
}

/* matmul_amx_<name>, from unpack_<name> and the unit; a few rows are faster without tiles. */
#define PRODUCT(name, unit, family, has_min)                                                        \
    static void step_unpack_##name(const step *s)                                                   \
    {                                                                                               \
        step_run(s, unpack_##name, sizeof(unit), 0, has_min, true);                                 \
    }                                                                                               \
    static void step_fetch_##name(const step *s)                                                    \
    {                                                                                               \
        step_run(s, NULL, 0, lines_beside(sizeof(unit)), has_min, true);                            \
    }                                                                                               \
    void matmul_amx_##name(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y, \
                           size_t y_stride)                                                         \
    {                                                                                               \
        static const format f = {sizeof(unit),      unpack_##name,      step_##family,              \
                                 step_fetch_##name, step_unpack_##name, step_short_##family};       \
        if (a->m <= KERN_ACT_SMALL) {                                                               \
            matmul_avx512_##name(w, a, n0, n1, y, y_stride);                                        \
        } else {                                                                                    \
            product(&f, w, a, n0, n1, y, y_stride);                                                 \
        }                                                                                           \
    }                                                                                               \
    _Static_assert(sizeof(unit) % 2 == 0, "units follow each other")

PRODUCT(q8_0, unit_q8_0, plain, false);
PRODUCT(q4_0, unit_q4_0, plain, false);
PRODUCT(q4_1, unit_q4_1, minimum, true);
PRODUCT(q5_0, unit_q5_0, plain, false);
PRODUCT(q5_1, unit_q5_1, minimum, true);
PRODUCT(iq4_nl, unit_q4_0, plain, false);
PRODUCT(mxfp4, unit_mxfp4, plain, false);
