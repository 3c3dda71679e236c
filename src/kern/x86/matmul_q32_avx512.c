/*
 * Products with the formats whose activations come in blocks of 32 (the rule: kern/README.md; the lanes:
 * matmul_avx512.h).
 *
 * vpdpbusd wants unsigned weights: codes are used as stored, or with their table raised, by `offset`. Sums begin at
 * minus what that adds, offset times the sum of the activations' codes; all of it is exact, the largest raised sum
 * being 32 * 255 * 127 = 1,036,320 (Q8_0), below 2^24.
 *
 * Many rows: 8 x 3 sums stay in memory, read and written once a block, so that 24 registers hold integer sums. That
 * comes within a hundredth of what the two ports can do; 4 x 3 with everything in registers stays 4 % below it, as
 * twelve chains of five cycles leave no slack. The first group fills the strips as it meets the lines.
 */
#include "kern/x86/matmul_avx512.h"

#define CHUNK_BLOCKS 8
#define CHUNK        (CHUNK_BLOCKS * 32)
#define GROUP        8 /* rows that meet strips together */

/* A block of a strip: all unpacked. */
typedef struct q32_block {
    pack_line lines[8];
    float d[KERN_PANEL];
    float m[KERN_PANEL];
} q32_block;

_Static_assert(CHUNK_BLOCKS <= MM_SCRATCH, "starts of a chunk");

/* Where a block's operands lie: `from` is the type whose unit the block is, or this, if it is a q32_block. */
#define STRIP GGUF_TYPE_COUNT

MM_INLINE size_t unit_bytes(const gguf_type type)
{
    switch ((int)type) {
    case GGUF_TYPE_Q4_1:
        return sizeof(unit_q4_1);
    case GGUF_TYPE_Q5_0:
        return sizeof(unit_q5_0);
    case GGUF_TYPE_Q5_1:
        return sizeof(unit_q5_1);
    case GGUF_TYPE_Q8_0:
        return sizeof(unit_q8_0);
    case GGUF_TYPE_MXFP4:
        return sizeof(unit_mxfp4);
    default: /* Q4_0, IQ4_NL */
        return sizeof(unit_q4_0);
    }
}

MM_INLINE float offset_of(const gguf_type type)
{
    switch ((int)type) {
    case GGUF_TYPE_Q4_0:
        return 8.0f;
    case GGUF_TYPE_Q5_0:
        return 16.0f;
    case GGUF_TYPE_Q8_0:
    case GGUF_TYPE_IQ4_NL:
        return 128.0f;
    case GGUF_TYPE_MXFP4:
        return 12.0f;
    default:
        return 0.0f;
    }
}

MM_INLINE bool has_minimum(const gguf_type type)
{
    return type == GGUF_TYPE_Q4_1 || type == GGUF_TYPE_Q5_1;
}

/* Line r of the values, raised. */
MM_INLINE __m512i block_line(const void *block, const gguf_type from, const int r)
{
    const unit_q5_0 *u = block; /* the nibbles of all, the fifth bits of two */
    switch ((int)from) {
    case STRIP:
        return mm_load(((const q32_block *)block)->lines[r]);
    case GGUF_TYPE_Q5_0:
    case GGUF_TYPE_Q5_1:
        return mm_or_and(mm_nibble(u->nibbles, r), mm_shift(mm_load(u->bits), 4 - r), _mm512_set1_epi8(16));
    case GGUF_TYPE_Q8_0:
        return _mm512_xor_si512(mm_load(((const unit_q8_0 *)block)->lines[r]), _mm512_set1_epi8((char)0x80));
    case GGUF_TYPE_IQ4_NL:
        return _mm512_shuffle_epi8(mm_table_iq4(), mm_nibble(u->nibbles, r));
    case GGUF_TYPE_MXFP4:
        return _mm512_shuffle_epi8(mm_table(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0),
                                   mm_nibble(u->nibbles, r));
    default:
        return mm_nibble(u->nibbles, r);
    }
}

/* 2^(e - 128); the two smallest are denormal. */
MM_INLINE __m512 byte_scales(const uint8_t *p)
{
    __m512i e = mm_bytes_u(p);
    __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    __m512i tiny = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
    __mmask16 is_tiny = _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2));
    return _mm512_castsi512_ps(_mm512_mask_mov_epi32(normal, is_tiny, tiny));
}

MM_INLINE __m512 block_scales(const void *block, const gguf_type from)
{
    switch ((int)from) {
    case STRIP:
        return _mm512_load_ps(((const q32_block *)block)->d);
    case GGUF_TYPE_Q5_0:
        return mm_halves(((const unit_q5_0 *)block)->d);
    case GGUF_TYPE_Q5_1:
        return mm_halves(((const unit_q5_1 *)block)->d);
    case GGUF_TYPE_Q8_0:
        return mm_halves(((const unit_q8_0 *)block)->d);
    case GGUF_TYPE_MXFP4:
        return byte_scales(((const unit_mxfp4 *)block)->e);
    default:
        return mm_halves(((const unit_q4_1 *)block)->d); /* Q4_0 and IQ4_NL have them in the same place */
    }
}

MM_INLINE __m512 block_minima(const void *block, const gguf_type from)
{
    switch ((int)from) {
    case STRIP:
        return _mm512_load_ps(((const q32_block *)block)->m);
    case GGUF_TYPE_Q5_1:
        return mm_halves(((const unit_q5_1 *)block)->m);
    default:
        return mm_halves(((const unit_q4_1 *)block)->m);
    }
}

/* What raised codes add to the sums of n blocks of activations, negative, [block][row] as the totals are: sums that
 * begin with it need no operation to take it off. Made for a chunk at once: what is stored and then loaded in parts
 * has to reach the cache first, and all waits for it (15 cycles of a block's 66 when each block made its own). */
MM_INLINE void starts_make(int32_t *start, const float *totals, size_t n, const gguf_type type)
{
    const __m512 less = _mm512_set1_ps(-offset_of(type));
    for (size_t i = 0; i < n; i += 16) {
        const __mmask16 inside = n - i < 16 ? (__mmask16)((1u << (n - i)) - 1) : 0xFFFFu;
        const __m512 total = _mm512_maskz_loadu_ps(inside, totals + i);
        _mm512_store_si512(start + i, _mm512_cvtps_epi32(_mm512_mul_ps(total, less)));
    }
}

/* Blocks of panels and the activations that meet them. */
typedef struct q32_work {
    const uint8_t *block;
    size_t stride;    /* bytes from a panel's block to the next panel's */
    q32_block *strip; /* where lines are kept, if they are */
    /* of the first row */
    const int8_t *q;
    const float *d;
    const float *total;
    const int32_t *start;
} q32_work;

/* One block of each of `panels` panels times `rows` rows: codes 64 bytes apart, scales and totals side by side.
 * `from` says what the blocks are; acc: [panel][row]. */
MM_INLINE void block_add(const q32_work *x, const gguf_type from, const gguf_type type, const bool keep,
                         __m512 *acc, const size_t rows, const size_t panels)
{
    __m512i dot[MM_PANELS][GROUP];
    MM_UNROLL
    for (size_t p = 0; p < panels; p++) {
        MM_UNROLL
        for (size_t r = 0; r < rows; r++) {
            dot[p][r] = offset_of(type) != 0.0f ? _mm512_set1_epi32(x->start[r]) : _mm512_setzero_si512();
        }
    }
    MM_UNROLL
    for (int i = 0; i < 8; i++) {
        __m512i line[MM_PANELS];
        MM_UNROLL
        for (size_t p = 0; p < panels; p++) {
            line[p] = block_line(x->block + p * x->stride, from, i);
            if (keep) {
                _mm512_store_si512(x->strip[p * CHUNK_BLOCKS].lines[i], line[p]);
            }
        }
        MM_UNROLL
        for (size_t r = 0; r < rows; r++) {
            const __m512i codes = mm_dword(x->q + r * KERN_ACT_RUN + 4 * i);
            MM_UNROLL
            for (size_t p = 0; p < panels; p++) {
                dot[p][r] = _mm512_dpbusd_epi32(dot[p][r], line[p], codes);
            }
        }
        MM_ORDER();
    }
    MM_UNROLL
    for (size_t p = 0; p < panels; p++) {
        const __m512 dw = block_scales(x->block + p * x->stride, from);
        const __m512 mw = has_minimum(type) ? block_minima(x->block + p * x->stride, from) : dw;
        if (keep) {
            _mm512_store_ps(x->strip[p * CHUNK_BLOCKS].d, dw);
            _mm512_store_ps(x->strip[p * CHUNK_BLOCKS].m, mw);
        }
        MM_UNROLL
        for (size_t r = 0; r < rows; r++) {
            const __m512 d = _mm512_set1_ps(x->d[r]);
            __m512 sum = acc[p * rows + r];
            sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[p][r]), _mm512_mul_ps(d, dw), sum);
            if (has_minimum(type)) {
                sum = _mm512_fmadd_ps(_mm512_set1_ps(x->total[r]), _mm512_mul_ps(d, mw), sum);
            }
            acc[p * rows + r] = sum;
        }
        MM_ORDER();
    }
}

/* To block b + 1, of activations in tiles of `tile` rows. */
MM_INLINE void work_next(q32_work *x, size_t b, const size_t block_bytes, const size_t tile)
{
    x->block += block_bytes;
    x->q += b % 2 == 0 ? 32 : (ptrdiff_t)(tile * KERN_ACT_RUN) - 32;
    x->d += tile;
    x->total += tile;
    x->start += tile;
}

MM_INLINE void few(const uint8_t *panel, size_t panel_bytes, const kern_act *a, const gguf_type type,
                   __m512 *out, const size_t rows, const size_t panels)
{
    _Alignas(64) int32_t start[CHUNK_BLOCKS * MM_FEW_ROWS];
    q32_work x = {
        .block = panel, .stride = panel_bytes, .q = a->q, .d = a->d, .total = a->totals, .start = start};
    __m512 acc[MM_TILE];
    mm_zero(acc, rows * panels);
    for (size_t b = 0; b < a->n_blocks; b++) {
        if (b % CHUNK_BLOCKS == 0 && offset_of(type) != 0.0f) {
            const size_t n = a->n_blocks - b < CHUNK_BLOCKS ? a->n_blocks - b : CHUNK_BLOCKS;
            starts_make(start, x.total, n * rows, type);
            x.start = start;
        }
        MM_UNROLL
        for (size_t p = 0; p < panels; p++) {
            mm_prefetch(x.block + p * panel_bytes,
                        mm_ahead(b * unit_bytes(type), unit_bytes(type), panel_bytes, panels),
                        unit_bytes(type));
        }
        block_add(&x, type, type, false, acc, rows, panels);
        work_next(&x, b, unit_bytes(type), rows);
    }
    mm_copy(out, acc, rows * panels);
}

/* Where row r has its starts, [tile][block][row in tile]. */
MM_INLINE int32_t *starts_at(const mm_chunk *c, size_t r)
{
    return c->scratch + mm_place(r - c->r0, CHUNK_BLOCKS, 0);
}

/* A chunk times a group of rows. from: the type, which fills the strips, or STRIP. */
MM_INLINE void add(const mm_chunk *c, const gguf_type from, const gguf_type type, float *acc,
                   const size_t rows, const size_t panels)
{
    const size_t place = mm_place(c->r, c->a->n_blocks, c->at / 32);
    q32_work x = {.block = from == STRIP ? c->strips : c->panel + c->at / 32 * unit_bytes(type),
                  .stride = from == STRIP ? CHUNK_BLOCKS * sizeof(q32_block) : c->panel_bytes,
                  .strip = (q32_block *)(void *)c->strips,
                  .q = mm_codes(c->a, c->r, c->at / KERN_ACT_RUN),
                  .d = c->a->d + place,
                  .total = c->a->totals + place,
                  .start = starts_at(c, c->r)};
    uintptr_t fetch = c->fetch;
    for (size_t r = c->r0; from != STRIP && offset_of(type) != 0.0f && r < c->r1; r += KERN_ACT_TILE) {
        starts_make(starts_at(c, r), c->a->totals + mm_place(r, c->a->n_blocks, c->at / 32),
                    c->n / 32 * KERN_ACT_TILE, type);
    }
    for (size_t b = 0; b < c->n / 32; b++) {
        mm_fetch(c, &fetch, panels);
        block_add(&x, from, type, from != STRIP, (__m512 *)(void *)acc, rows, panels);
        work_next(&x, b, from == STRIP ? sizeof(q32_block) : unit_bytes(type), KERN_ACT_TILE);
        x.strip++;
    }
}

#define ADD_SHAPE(name, from, type, rows, panels)              \
    static void name##_##panels(const mm_chunk *c, float *acc) \
    {                                                          \
        add(c, from, type, acc, rows, panels);                 \
    }
#define ADD_SHAPES(name, from, type, rows) \
    ADD_SHAPE(name, from, type, rows, 1)   \
    ADD_SHAPE(name, from, type, rows, 2)   \
    ADD_SHAPE(name, from, type, rows, 3)
#define ADDS(name)                   \
    {                                \
        name##_1, name##_2, name##_3 \
    }
/* Strips are alike, with a minimum and without. */
ADD_SHAPES(add_plain, STRIP, GGUF_TYPE_Q4_0, GROUP)
ADD_SHAPES(half_plain, STRIP, GGUF_TYPE_Q4_0, GROUP / 2)
ADD_SHAPES(add_minimum, STRIP, GGUF_TYPE_Q4_1, GROUP)
ADD_SHAPES(half_minimum, STRIP, GGUF_TYPE_Q4_1, GROUP / 2)

#define Q32_PRODUCT(name, type, strips)                                                  \
    MM_FEW_TYPE(name, type);                                                             \
    ADD_SHAPES(first_##name, type, type, GROUP)                                          \
    static const mm_many many_##name = {.chunk = CHUNK,                                  \
                                        .strip_bytes = CHUNK_BLOCKS * sizeof(q32_block), \
                                        .group = GROUP,                                  \
                                        .panels = MM_PANELS,                             \
                                        .first = ADDS(first_##name),                     \
                                        .add = ADDS(add_##strips),                       \
                                        .half = ADDS(half_##strips)};                    \
    MM_PRODUCT(name)

Q32_PRODUCT(q4_0, GGUF_TYPE_Q4_0, plain)
Q32_PRODUCT(q4_1, GGUF_TYPE_Q4_1, minimum)
Q32_PRODUCT(q5_0, GGUF_TYPE_Q5_0, plain)
Q32_PRODUCT(q5_1, GGUF_TYPE_Q5_1, minimum)
Q32_PRODUCT(q8_0, GGUF_TYPE_Q8_0, plain)
Q32_PRODUCT(iq4_nl, GGUF_TYPE_IQ4_NL, plain)
Q32_PRODUCT(mxfp4, GGUF_TYPE_MXFP4, plain)
