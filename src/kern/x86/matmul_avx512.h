/*
 * matmul_avx512: what the AVX-512 matrix products share. Private to src/kern/x86/matmul_*_avx512.c.
 *
 * Lanes are outputs: a vector of 64 bytes is one line of a packed unit (kern/pack_units.h), four values of k of
 * each of the sixteen outputs of a panel, and the activation's four codes are broadcast. Every lane goes through
 * the operations of the reference in its order.
 *
 * A tile is some rows times some panels, up to MM_TILE vectors of sums. Its shape decides how many loads there are
 * for a multiplication: 4 x 3, 6 x 2 and 8 x 2 measure a fifth faster than 8 x 1. And one core reads panels side by
 * side faster than one stream.
 *
 * Up to MM_FEW_ROWS rows (`few`): all rows meet a line as soon as it is unpacked in a register; there is a function
 * for each shape. More rows (`many`): a chunk of k of the panels is unpacked into strips that stay in the first
 * cache and meet one group of rows after another. A tile may be larger there if its sums stay in memory.
 */
#ifndef HEARTH_KERN_X86_MATMUL_AVX512_H
#define HEARTH_KERN_X86_MATMUL_AVX512_H

#include <immintrin.h>

#include "kern/kern.h"
#include "kern/pack_units.h"
#include "kern/x86/avx512.h"
#include "kern/x86/unroll.h"

#define MM_TILE     16 /* vectors of sums */
#define MM_FEW_ROWS KERN_ACT_SMALL
#define MM_GROUP    4 /* rows that meet strips together, of most formats */
#define MM_PANELS   3 /* panels side by side */
#define MM_SCRATCH  8 /* words a row that a format may keep for a chunk */
/* Bytes of a packed panel that are fetched ahead, at least: some 500 ns of each of three panels. */
#define MM_AHEAD 2304

/* What keeps the compilers from moving the loads of one line before those of another: clang gathers all of a block
 * and spills them, which costs a third. */
#define MM_ORDER() __asm__ volatile("" ::: "memory")

/* Neighbouring panels, panel_bytes apart, times all rows of a; rows and panels as the function is for. last: which
 * outputs of the last panel exist. */
typedef void (*mm_few_fn)(const uint8_t *panel, size_t panel_bytes, const kern_act *a, float *y,
                          size_t y_stride, __mmask16 last);

/* For a number of rows: one panel, and as many as are best. */
typedef struct mm_few {
    mm_few_fn one;
    mm_few_fn wide;
    size_t panels; /* of wide */
} mm_few;

/* Functions from one body `few_<name>(panel, panel_bytes, a, out, rows, panels)`, which leaves out[panel][row], and
 * their table. */
#define MM_FEW_SHAPE(name, rows, panels)                                                                    \
    static void few_##name##_##rows##x##panels(const uint8_t *panel, size_t panel_bytes, const kern_act *a, \
                                               float *y, size_t y_stride, __mmask16 last)                   \
    {                                                                                                       \
        __m512 out[(panels) * (rows)];                                                                      \
        few_##name(panel, panel_bytes, a, out, rows, panels);                                               \
        MM_UNROLL                                                                                           \
        for (size_t i = 0; i < (panels) * (rows); i++) {                                                    \
            const size_t p = i / (rows);                                                                    \
            _mm512_mask_storeu_ps(y + i % (rows)*y_stride + p * KERN_PANEL,                                 \
                                  p + 1 < (panels) ? 0xFFFFu : last, out[i]);                               \
        }                                                                                                   \
    }
#define MM_FEW_SHAPES(name)  \
    MM_FEW_SHAPE(name, 1, 1) \
    MM_FEW_SHAPE(name, 2, 1) \
    MM_FEW_SHAPE(name, 3, 1) \
    MM_FEW_SHAPE(name, 4, 1) \
    MM_FEW_SHAPE(name, 5, 1) \
    MM_FEW_SHAPE(name, 6, 1) \
    MM_FEW_SHAPE(name, 7, 1) \
    MM_FEW_SHAPE(name, 8, 1) \
    MM_FEW_SHAPE(name, 1, 3) \
    MM_FEW_SHAPE(name, 2, 3) \
    MM_FEW_SHAPE(name, 3, 3) \
    MM_FEW_SHAPE(name, 4, 3) \
    MM_FEW_SHAPE(name, 5, 2) \
    MM_FEW_SHAPE(name, 6, 2)
#define MM_FEW_TABLE(name, seven, eight, panels)                                          \
    static const mm_few all_few_##name[MM_FEW_ROWS] = {                                   \
        {few_##name##_1x1, few_##name##_1x3, 3}, {few_##name##_2x1, few_##name##_2x3, 3}, \
        {few_##name##_3x1, few_##name##_3x3, 3}, {few_##name##_4x1, few_##name##_4x3, 3}, \
        {few_##name##_5x1, few_##name##_5x2, 2}, {few_##name##_6x1, few_##name##_6x2, 2}, \
        {few_##name##_7x1, seven, panels},       {few_##name##_8x1, eight, panels}}
#define MM_FEW(name)         \
    MM_FEW_SHAPES(name)      \
    MM_FEW_SHAPE(name, 7, 2) \
    MM_FEW_SHAPE(name, 8, 2) \
    MM_FEW_TABLE(name, few_##name##_7x2, few_##name##_8x2, 2)
/* For a body that has two vectors for each sum: no more than MM_TILE / 2 of them fit. */
#define MM_FEW_NARROW(name) \
    MM_FEW_SHAPES(name)     \
    MM_FEW_TABLE(name, few_##name##_7x1, few_##name##_8x1, 1)

/* A chunk of k and the rows that meet it. */
typedef struct mm_chunk {
    size_t at; /* its place and length along k */
    size_t n;
    const uint8_t *panel; /* packed, panel_bytes apart */
    size_t panel_bytes;
    size_t ahead;    /* how far behind the chunk to fetch */
    uint8_t *strips; /* side by side */
    const kern_act *a;
    size_t r;  /* the first row of the group */
    size_t r0; /* rows [r0, r1) meet the strips */
    size_t r1;
    int32_t
        *scratch; /* MM_SCRATCH words for each of them, rounded up to whole tiles: what else `first` leaves */
    /* What to fetch meanwhile: of every panel, for each 32 values of k that a group meets, this many lines of 64
     * bytes. Spread over the work like this they come for nothing; all at once they wait for each other. No pointer:
     * it may lie outside the matrix. */
    uintptr_t fetch;
    size_t fetch_lines;
} mm_chunk;

/* Adds the products of a chunk and a group of rows to acc, [panel][row][16]. */
typedef void (*mm_add_fn)(const mm_chunk *c, float *acc);

/* How a format meets many rows; there are functions for 1 … `panels` panels. */
typedef struct mm_many {
    size_t chunk;               /* values of k in a strip, a multiple of 64 and of the block */
    size_t strip_bytes;         /* of one panel, a multiple of 64 */
    size_t group;               /* rows */
    size_t panels;              /* side by side, up to MM_PANELS */
    mm_add_fn first[MM_PANELS]; /* for the first group: fills the strips, too */
    mm_add_fn add[MM_PANELS];
    mm_add_fn half[MM_PANELS]; /* for half a group, or NULL */
} mm_many;

/* An mm_many of groups of MM_GROUP from the bodies `unpack_<name>(panel, at, n, ahead, strip)`, ahead being how far
 * behind the chunk's beginning to fetch, and `add_<name>(strips, at, n, a, r, acc, panels)`. */
#define MM_ADD_PANELS(name, strip_bytes, panels)                                        \
    static void add_##name##_##panels(const mm_chunk *c, float *acc)                    \
    {                                                                                   \
        add_##name(c->strips, c->at, c->n, c->a, c->r, acc, panels);                    \
    }                                                                                   \
    static void first_##name##_##panels(const mm_chunk *c, float *acc)                  \
    {                                                                                   \
        for (size_t p = 0; p < (panels); p++) {                                         \
            const uint8_t *panel = c->panel + p * c->panel_bytes;                       \
            unpack_##name(panel, c->at, c->n, c->ahead, c->strips + p * (strip_bytes)); \
        }                                                                               \
        add_##name##_##panels(c, acc);                                                  \
    }
#define MM_MANY(name, chunk, strip_bytes)                                                       \
    MM_ADD_PANELS(name, strip_bytes, 1)                                                         \
    MM_ADD_PANELS(name, strip_bytes, 2)                                                         \
    MM_ADD_PANELS(name, strip_bytes, 3)                                                         \
    static const mm_many many_##name = {chunk,                                                  \
                                        strip_bytes,                                            \
                                        MM_GROUP,                                               \
                                        MM_PANELS,                                              \
                                        {first_##name##_1, first_##name##_2, first_##name##_3}, \
                                        {add_##name##_1, add_##name##_2, add_##name##_3},       \
                                        {NULL, NULL, NULL}}

/* The product of a type from its two ways. */
#define MM_PRODUCT(name)                                                                               \
    void matmul_avx512_##name(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y, \
                              size_t y_stride)                                                         \
    {                                                                                                  \
        mm_run_avx512(w, a, n0, n1, y, y_stride, all_few_##name, &many_##name);                        \
    }

/* MM_FEW of a type from what its file has for all of its types: few(panel, panel_bytes, a, type, out, rows, panels). */
#define MM_FEW_TYPE(name, type)                                                                         \
    MM_INLINE void few_##name(const uint8_t *panel, size_t panel_bytes, const kern_act *a, __m512 *out, \
                              const size_t rows, const size_t panels)                                   \
    {                                                                                                   \
        few(panel, panel_bytes, a, type, out, rows, panels);                                            \
    }                                                                                                   \
    MM_FEW(name)

/* matmul_avx512_<name> of a type from what its file has for all of its types: few(panel, panel_bytes, a, type, out, rows,
 * panels); unpack(panel, at, n, ahead, type, strip) and add(strips, at, n, type, a, row, sums, panels), chunk by chunk. */
#define MM_TYPE(name, type, chunk, strip_bytes)                                                     \
    MM_FEW_TYPE(name, type);                                                                        \
    static void unpack_##name(const uint8_t *panel, size_t at, size_t n, size_t ahead, void *strip) \
    {                                                                                               \
        unpack(panel, at, n, ahead, type, strip);                                                   \
    }                                                                                               \
    MM_INLINE void add_##name(const void *strips, size_t at, size_t n, const kern_act *a, size_t r, \
                              float *acc, const size_t panels)                                      \
    {                                                                                               \
        add(strips, at, n, type, a, r, acc, panels);                                                \
    }                                                                                               \
    MM_MANY(name, chunk, strip_bytes);                                                              \
    MM_PRODUCT(name)

/* Panels of [n0, n1) times all rows of a. matmul_run_avx512.c */
void mm_run_avx512(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y, size_t y_stride,
                   const mm_few few[MM_FEW_ROWS], const mm_many *many);

/* Fetches a group's share for 32 values of k from *fetch on. */
MM_INLINE void mm_fetch(const mm_chunk *c, uintptr_t *fetch, const size_t panels)
{
    for (size_t i = 0; i < c->fetch_lines; i++, *fetch += 64) {
        MM_UNROLL
        for (size_t p = 0; p < panels; p++) {
            _mm_prefetch((const char *)(*fetch + p * c->panel_bytes), _MM_HINT_T1);
        }
    }
}

/* How far behind offset `at` of a panel to fetch when `panels` panels are done side by side: past the end of one
 * comes the one of the next group. Whole units: a fetch that begins in one and ends behind the panel's end would bring
 * what is there already and leave out the beginning of the next group (a tenth of the K-quants' speed). */
MM_INLINE size_t mm_ahead(size_t at, const size_t unit_bytes, size_t panel_bytes, size_t panels)
{
    const size_t ahead = (MM_AHEAD + unit_bytes - 1) / unit_bytes * unit_bytes;
    return ahead + (at + ahead >= panel_bytes ? (panels - 1) * panel_bytes : 0);
}

/* kern_act_at of more than KERN_ACT_SMALL rows. */
MM_INLINE size_t mm_place(size_t r, size_t n, size_t i)
{
    return (r / KERN_ACT_TILE * n + i) * KERN_ACT_TILE + r % KERN_ACT_TILE;
}

MM_INLINE const int8_t *mm_codes(const kern_act *a, size_t r, size_t run)
{
    return a->q + mm_place(r, a->n_runs, run) * KERN_ACT_RUN;
}

MM_INLINE __m512i mm_load(const void *p)
{
    return _mm512_loadu_si512(p);
}

/* Four bytes of activations, or two 16-bit sums, in every lane. */
MM_INLINE __m512i mm_dword(const void *p)
{
    int32_t v;
    __builtin_memcpy(&v, p, sizeof v);
    return _mm512_set1_epi32(v);
}

/* Sixteen binary16 values, widened. */
MM_INLINE __m512 mm_halves(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

/* Sixteen bytes, one a lane. */
MM_INLINE __m512i mm_bytes_u(const uint8_t *p)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}

MM_INLINE __m512i mm_bytes_s(const int8_t *p)
{
    return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}

/* Line r of a block of 32 in nibbles. */
MM_INLINE __m512i mm_nibble(const pack_line *nibbles, const int r)
{
    __m512i v = mm_load(nibbles[r % 4]);
    return _mm512_and_si512(r < 4 ? v : _mm512_srli_epi16(v, 4), _mm512_set1_epi8(15));
}

/* A table of sixteen bytes for vpshufb, which looks up in each 16 bytes. */
MM_INLINE __m512i mm_table(const char t0, const char t1, const char t2, const char t3, const char t4,
                           const char t5, const char t6, const char t7, const char t8, const char t9,
                           const char t10, const char t11, const char t12, const char t13, const char t14,
                           const char t15)
{
    return _mm512_broadcast_i32x4(
        _mm_setr_epi8(t0, t1, t2, t3, t4, t5, t6, t7, t8, t9, t10, t11, t12, t13, t14, t15));
}

/* The table of IQ4_NL and IQ4_XS, raised by 128. */
MM_INLINE __m512i mm_table_iq4(void)
{
    return _mm512_xor_si512(
        mm_table(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113),
        _mm512_set1_epi8((char)0x80));
}

/* a | (b & c) */
MM_INLINE __m512i mm_or_and(__m512i a, __m512i b, __m512i c)
{
    return _mm512_ternarylogic_epi32(a, b, c, 0xF8);
}

/* v shifted left by n bits, right where n is negative; bits cross from byte to byte. */
MM_INLINE __m512i mm_shift(__m512i v, const int n)
{
    return n > 0   ? _mm512_slli_epi16(v, n > 0 ? (unsigned)n : 0)
           : n < 0 ? _mm512_srli_epi16(v, n < 0 ? (unsigned)-n : 0)
                   : v;
}

/* Fetch n_bytes that lie `ahead` behind p. They may be outside the matrix: a prefetch cannot fault. Into the first cache,
 * for what few rows read from the packed units: a line takes one of the few places for lines under way once then, and twice
 * by way of the second. */
MM_INLINE void mm_prefetch(const void *p, size_t ahead, const size_t n_bytes)
{
    MM_UNROLL
    for (size_t i = 0; i < n_bytes; i += 64) {
        _mm_prefetch((const char *)((uintptr_t)p + ahead + i), _MM_HINT_T0);
    }
}

/* Into the second cache, where strips and activations have the first. */
MM_INLINE void mm_prefetch_second(const void *p, size_t ahead, const size_t n_bytes)
{
    MM_UNROLL
    for (size_t i = 0; i < n_bytes; i += 64) {
        _mm_prefetch((const char *)((uintptr_t)p + ahead + i), _MM_HINT_T1);
    }
}

MM_INLINE void mm_zero(__m512 *v, const size_t n)
{
    MM_UNROLL
    for (size_t i = 0; i < n; i++) {
        v[i] = _mm512_setzero_ps();
    }
}

MM_INLINE void mm_zero_int(__m512i *v, const size_t n)
{
    MM_UNROLL
    for (size_t i = 0; i < n; i++) {
        v[i] = _mm512_setzero_si512();
    }
}

MM_INLINE void mm_copy(__m512 *to, const __m512 *from, const size_t n)
{
    MM_UNROLL
    for (size_t i = 0; i < n; i++) {
        to[i] = from[i];
    }
}

MM_INLINE void mm_load_sums(__m512 *acc, const float *sums, const size_t n)
{
    MM_UNROLL
    for (size_t i = 0; i < n; i++) {
        acc[i] = _mm512_load_ps(sums + i * KERN_PANEL);
    }
}

MM_INLINE void mm_store_sums(float *sums, const __m512 *acc, const size_t n)
{
    MM_UNROLL
    for (size_t i = 0; i < n; i++) {
        _mm512_store_ps(sums + i * KERN_PANEL, acc[i]);
    }
}

#endif
