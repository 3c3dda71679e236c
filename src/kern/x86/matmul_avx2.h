/*
 * matmul_avx2: what the AVX2 matrix products share. Private to src/kern/x86/matmul_*_avx2.c.
 *
 * Lanes are outputs: a panel's sixteen are two halves of eight, a vector holds four codes of k of each output of a
 * half, and a row's four codes are broadcast to it. Every lane is one output's own accumulator and goes through
 * the operations of the reference in its order.
 *
 * A chunk of a panel is unpacked once into a strip (bytes, wide scales), which stays in the first cache while the
 * rows pass in groups of up to four; float accumulators wait in between. Rows are taken in runs and k in
 * segments, so that their codes stay in the second cache while the panels pass.
 *
 * vpmaddubsw adds products of unsigned and signed bytes in pairs into int16. Activations are -127 … 127, so a
 * pair is exact for codes up to 129, and sums of pairs go on in int16 (wrapping) as long as the whole is known to
 * fit: a chain of 8 lines (16 products a word) for codes 0 … 16 or, with an offset taken off, -16 … 16; a chain
 * of 4 lines for 0 … 32 or -32 … 32. The offset is taken off by starting the chain at -offset * (sum of
 * the activations that this word meets), which is prepared once per row (the extras).
 */
#ifndef HEARTH_KERN_X86_MATMUL_AVX2_H
#define HEARTH_KERN_X86_MATMUL_AVX2_H

#include <immintrin.h>
#include <string.h>

#include "kern/kern.h"
#include "kern/pack_units.h"
#include "kern/x86/unroll.h"

#define MM_ROWS        4   /* rows of a group */
#define MM_CHUNK       512 /* values of k in a strip, at most: some MM_AHEAD packed bytes */
#define MM_FLOAT_CHUNK 256
#define MM_AHEAD       4608 /* bytes of weights fetched ahead */

/*
 * Pins a partial sum where it is written. GCC reorders integer additions (they are associative) so that it
 * multiplies a whole block first and adds at the end, with every product on the stack: three times slower.
 */
#define MM_KEEP(v) __asm__("" : "+x"(v))

/* A chunk of a panel, unpacked. Only what the format has is filled. */
typedef struct mm_strip {
    union {
        struct {
            __m256i codes[MM_CHUNK / 4][2]; /* [line][half] unsigned */
            __m256i high[MM_CHUNK / 4][2];  /* formats of two planes: value = 16 * (high - 8) + code */
        };
        __m256 floats[MM_FLOAT_CHUNK][2]; /* [value][half] */
    };
    __m256i sc[MM_CHUNK / 16][2];   /* [sub-block][half] the scale twice a lane, int16 */
    __m256i mins[MM_CHUNK / 32][2]; /* [pair of sub-blocks][half] minima of both, int16 */
    __m256 d[MM_CHUNK / 32][2];     /* [block][half] */
    __m256 m[MM_CHUNK / 32][2];     /* minimum or its scale */
} mm_strip;

/* A group of rows from the segment's start on. Row i of the group: */
typedef struct mm_rows {
    const int8_t *q; /* value c: q[c / 64 * q_stride + 64 * i + c % 64] */
    size_t q_stride;
    const float *d;      /* block b: d[b * d_stride + i], and so totals */
    const float *totals; /* Q8_32 */
    size_t d_stride;
    const int16_t *sums;  /* Q8_256: block b: sums[(b * d_stride + i) * 16 …] */
    const int32_t *extra; /* entry j: extra[MM_ROWS * j + i] */
    const float *x;       /* F32: value c: x[c + i * x_stride] */
    size_t x_stride;
} mm_rows;

/* Adds values [c, c + k) of the segment, which lie in the strip, to acc [rows][16] (aligned). w: the packed units
 * the strip was unpacked from. */
typedef void (*mm_rows_fn)(const mm_strip *s, const uint8_t *w, const mm_rows *a, size_t c, size_t k,
                           float *acc);

/* What is prepared once for a run of rows and a segment: 32 bits per row for each so many values. */
typedef enum mm_extra {
    MM_NONE,
    MM_START16, /* per 16: two int16, -offset * (sum of codes 0, 1 and of codes 2, 3 of each four) */
    MM_START32, /* per 32: likewise */
    MM_SUMS64,  /* per 64: two int16, the sums of 32 codes each */
    MM_FLOATS   /* per value: a bf16 value as float */
} mm_extra;

typedef struct mm_format {
    size_t unit_bytes;
    size_t unit_values;
    void (*unpack)(const uint8_t *units, size_t k, mm_strip *s); /* k values; NULL: rows read the units */
    const mm_rows_fn *rows;                                      /* [MM_ROWS], for 1, 2 … rows */
    const mm_rows_fn *direct; /* likewise, from the units: for a run of a single group; or NULL */
    size_t chunk;             /* values of a strip, whole units */
    mm_extra extra;
    int offset;
} mm_format;

/* matmul_run_avx2.c */
void mm_run(const mm_format *f, const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
            size_t y_stride);

/* Functions for 1 … MM_ROWS rows from one body, and their table. */
#define MM_ROWS_FN(name, n, body, ...)                                                                \
    static void name##_##n(const mm_strip *s, const uint8_t *w, const mm_rows *a, size_t c, size_t k, \
                           float *acc)                                                                \
    {                                                                                                 \
        body(s, w, a, c, k, acc, n, __VA_ARGS__);                                                     \
    }
#define MM_ROWS_FNS(name, body, ...)       \
    MM_ROWS_FN(name, 1, body, __VA_ARGS__) \
    MM_ROWS_FN(name, 2, body, __VA_ARGS__) \
    MM_ROWS_FN(name, 3, body, __VA_ARGS__) \
    MM_ROWS_FN(name, 4, body, __VA_ARGS__) \
    static const mm_rows_fn name[MM_ROWS] = {name##_1, name##_2, name##_3, name##_4}

/* matmul_avx2_<name> of a format f from what its file has for all of its formats, which have units of `values` and chunks of
 * MM_CHUNK: unit_bytes(f), unpack(units, k, s, f), direct(s, w, a, c, k, acc, rows, f). */
#define MM_FORMAT(name, f, values, rows_of, extra_of, offset_of)                                     \
    MM_ROWS_FNS(direct_##name, direct, f);                                                           \
    static void unpack_##name(const uint8_t *units, size_t k, mm_strip *s)                           \
    {                                                                                                \
        unpack(units, k, s, f);                                                                      \
    }                                                                                                \
    void matmul_avx2_##name(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y, \
                            size_t y_stride)                                                         \
    {                                                                                                \
        const mm_format format = {.unit_bytes = unit_bytes(f),                                       \
                                  .unit_values = (values),                                           \
                                  .unpack = unpack_##name,                                           \
                                  .rows = (rows_of),                                                 \
                                  .direct = direct_##name,                                           \
                                  .chunk = MM_CHUNK,                                                 \
                                  .extra = (extra_of),                                               \
                                  .offset = (offset_of)};                                            \
        mm_run(&format, w, a, n0, n1, y, y_stride);                                                  \
    }

MM_INLINE __m256i mm_load(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

/* Four codes, or two 16-bit sums, in every lane. */
MM_INLINE __m256i mm_broadcast_dword(const void *p)
{
    int32_t v;
    memcpy(&v, p, sizeof v);
    return _mm256_set1_epi32(v);
}

/* Fetches n_bytes of weights ahead of p. The address may be outside: a prefetch cannot fault. */
MM_INLINE void mm_prefetch(const void *p, size_t n_bytes)
{
    MM_UNROLL
    for (size_t at = 0; at < n_bytes; at += 64) {
        _mm_prefetch((const char *)((uintptr_t)p + MM_AHEAD + at), _MM_HINT_T1);
    }
}

/* Bits `mask` of each byte, moved from place `from` to place `to`; mask is where they are then. */
MM_INLINE __m256i mm_bits(__m256i v, const int from, const int to, const int mask)
{
    v = from < to ? _mm256_slli_epi16(v, to - from) : from > to ? _mm256_srli_epi16(v, from - to) : v;
    return _mm256_and_si256(v, _mm256_set1_epi8((char)mask));
}

/* Half h of a block's eight lines of nibbles. */
MM_INLINE void mm_nibbles(const pack_line *nibbles, const size_t h, __m256i lines[8])
{
    MM_UNROLL
    for (size_t r = 0; r < 4; r++) {
        __m256i v = mm_load(nibbles[r] + 32 * h);
        lines[r] = mm_bits(v, 0, 0, 15);
        lines[r + 4] = mm_bits(v, 4, 0, 15);
    }
}

/* The fifth bit of each code. */
MM_INLINE void mm_fifth_bits(const pack_line bits, const size_t h, __m256i lines[8])
{
    __m256i v = mm_load(bits + 32 * h);
    MM_UNROLL
    for (int r = 0; r < 8; r++) {
        lines[r] = _mm256_or_si256(lines[r], mm_bits(v, r, 4, 16));
    }
}

/* Sixteen bytes in both 128-bit lanes, for vpshufb. */
MM_INLINE __m256i mm_table(const int8_t table[16])
{
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)table));
}

/* Codes of IQ4 to table values: signed, or one of the planes of value + 128. */
typedef enum mm_iq4_what { MM_IQ4_VALUE, MM_IQ4_LOW, MM_IQ4_HIGH } mm_iq4_what;

MM_INLINE __m256i mm_iq4(__m256i codes, const mm_iq4_what what)
{
    static const int8_t tables[3][16] = {
        {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113},
        {1, 8, 13, 15, 15, 13, 10, 6, 1, 13, 9, 6, 5, 5, 9, 1},
        {0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 9, 10, 11, 12, 13, 15},
    };
    return _mm256_shuffle_epi8(mm_table(tables[what]), codes);
}

/* Half h of sixteen binary16 values. */
MM_INLINE __m256 mm_scales(const uint16_t d[KERN_PANEL], const size_t h)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(d + 8 * h)));
}

/* A group's 16- or 32-bit sums. */
typedef __m256i mm_sums[MM_ROWS][2];

/* Adds to each row's words the pairs of n lines; q: the first row's codes of them. `fresh`: the words start here. */
MM_INLINE void mm_chain(const __m256i (*lines)[2], const size_t n, const int8_t *q, const bool fresh,
                        mm_sums words, const int rows)
{
    MM_UNROLL
    for (size_t r = 0; r < n; r++) {
        __m256i w0 = lines[r][0];
        __m256i w1 = lines[r][1];
        MM_UNROLL
        for (int i = 0; i < rows; i++) {
            __m256i x = mm_broadcast_dword(q + 64 * i + 4 * r);
            __m256i pairs0 = _mm256_maddubs_epi16(w0, x);
            __m256i pairs1 = _mm256_maddubs_epi16(w1, x);
            words[i][0] = fresh && r == 0 ? pairs0 : _mm256_add_epi16(words[i][0], pairs0);
            words[i][1] = fresh && r == 0 ? pairs1 : _mm256_add_epi16(words[i][1], pairs1);
            MM_KEEP(words[i][0]);
            MM_KEEP(words[i][1]);
        }
    }
}

/* The same for one half, its lines in registers. */
MM_INLINE void mm_half_chain(const __m256i *lines, const size_t n, const int8_t *q, const bool fresh,
                             __m256i *words, const int rows)
{
    MM_UNROLL
    for (size_t r = 0; r < n; r++) {
        MM_UNROLL
        for (int i = 0; i < rows; i++) {
            __m256i pairs = _mm256_maddubs_epi16(lines[r], mm_broadcast_dword(q + 64 * i + 4 * r));
            words[i] = fresh && r == 0 ? pairs : _mm256_add_epi16(words[i], pairs);
            MM_KEEP(words[i]);
        }
    }
}

/* Adds to each row's sums n lines of signed codes of a half, times the factor: |w| as the unsigned side (128 for -128)
 * and w's sign moved to the activation, so that a pair is at most 2 * 128 * 127 = 32,512. */
MM_INLINE void mm_half_signed(const __m256i *lines, const size_t n, const int8_t *q, const __m256i factor,
                              __m256i *sums, const int rows)
{
    MM_UNROLL
    for (size_t r = 0; r < n; r++) {
        __m256i magnitude = _mm256_abs_epi8(lines[r]);
        MM_UNROLL
        for (int i = 0; i < rows; i++) {
            __m256i x = _mm256_sign_epi8(mm_broadcast_dword(q + 64 * i + 4 * r), lines[r]);
            sums[i] =
                _mm256_add_epi32(sums[i], _mm256_madd_epi16(_mm256_maddubs_epi16(magnitude, x), factor));
            MM_KEEP(sums[i]);
        }
    }
}

/* Chains that begin with their rows' extras. */
MM_INLINE void mm_start(const int32_t *start, mm_sums words, const int rows)
{
    MM_UNROLL
    for (int i = 0; i < rows; i++) {
        words[i][0] = _mm256_set1_epi32(start[i]);
        words[i][1] = words[i][0];
    }
}

/* sums += words, widened and times the factors of each half. */
MM_INLINE void mm_widen(const mm_sums words, const __m256i factor0, const __m256i factor1, const bool fresh,
                        mm_sums sums, const int rows)
{
    MM_UNROLL
    for (int i = 0; i < rows; i++) {
        __m256i wide0 = _mm256_madd_epi16(words[i][0], factor0);
        __m256i wide1 = _mm256_madd_epi16(words[i][1], factor1);
        sums[i][0] = fresh ? wide0 : _mm256_add_epi32(sums[i][0], wide0);
        sums[i][1] = fresh ? wide1 : _mm256_add_epi32(sums[i][1], wide1);
        MM_KEEP(sums[i][0]);
        MM_KEEP(sums[i][1]);
    }
}

#endif
