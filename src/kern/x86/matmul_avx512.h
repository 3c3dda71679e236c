/*
 * matmul_avx512: what the AVX-512 matrix products share. Private to src/kern/x86/matmul_*_avx512.c.
 *
 * Lanes are outputs: a vector of 64 bytes is one line of a packed unit (kern/pack_units.h), four values of k of
 * each of the sixteen outputs of a panel, and the activation's four codes are broadcast. Every lane goes through
 * the operations of the reference in its order.
 *
 * Up to KERN_ACT_SMALL rows (`few`): all rows meet a line as soon as it is unpacked in a register; there is one
 * function for each number of rows. More rows (`many`): a chunk of a panel is unpacked into a strip that stays in
 * the first cache and meets MM_GROUP rows after MM_GROUP rows.
 */
#ifndef HEARTH_KERN_X86_MATMUL_AVX512_H
#define HEARTH_KERN_X86_MATMUL_AVX512_H

#include <immintrin.h>

#include "kern/kern.h"
#include "kern/pack_units.h"
#include "kern/x86/avx512.h"

#define MM_GROUP 8   /* rows that meet a strip together: half a tile of activations */
#define MM_CHUNK 256 /* values of k in a strip */
/* Bytes of a packed panel that are fetched ahead. */
#define MM_AHEAD 4608

#define MM_INLINE static inline __attribute__((always_inline))

/* Loops over the vectors of a tile must disappear, else their arrays stay in memory. Under a sanitizer, which
 * checks every load, they stay: unrolled, one file takes a minute to compile. */
#ifdef __has_feature /* clang's way to tell */
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define MM_SANITIZED
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MM_SANITIZED
#endif
#ifdef MM_SANITIZED
#define MM_UNROLL
#elif defined(__clang__)
#define MM_UNROLL _Pragma("clang loop unroll(full)")
#else
#define MM_UNROLL _Pragma("GCC unroll 16")
#endif

/* One panel times all rows of a, of which there are as many as the function is for; lanes: which outputs exist. */
typedef void (*mm_few_fn)(const uint8_t *panel, const kern_act *a, float *y, size_t y_stride,
                          __mmask16 lanes);

/* Functions for 1 … 8 rows from one body `few_<name>(panel, a, out, rows)`, which leaves out[rows], and their
 * table. */
#define MM_FEW_ROWS(name, rows)                                                                         \
    static void few_##name##_##rows(const uint8_t *panel, const kern_act *a, float *y, size_t y_stride, \
                                    __mmask16 lanes)                                                    \
    {                                                                                                   \
        __m512 out[rows];                                                                               \
        few_##name(panel, a, out, rows);                                                                \
        MM_UNROLL                                                                                       \
        for (size_t r = 0; r < (rows); r++) {                                                           \
            _mm512_mask_storeu_ps(y + r * y_stride, lanes, out[r]);                                     \
        }                                                                                               \
    }
#define MM_FEW(name)                                                                                         \
    MM_FEW_ROWS(name, 1)                                                                                     \
    MM_FEW_ROWS(name, 2)                                                                                     \
    MM_FEW_ROWS(name, 3)                                                                                     \
    MM_FEW_ROWS(name, 4)                                                                                     \
    MM_FEW_ROWS(name, 5)                                                                                     \
    MM_FEW_ROWS(name, 6)                                                                                     \
    MM_FEW_ROWS(name, 7)                                                                                     \
    MM_FEW_ROWS(name, 8)                                                                                     \
    static const mm_few_fn all_few_##name[KERN_ACT_SMALL] = {few_##name##_1, few_##name##_2, few_##name##_3, \
                                                             few_##name##_4, few_##name##_5, few_##name##_6, \
                                                             few_##name##_7, few_##name##_8}

/* How a format meets many rows. at: where the chunk begins along k, a multiple of MM_CHUNK; n: its values. */
typedef struct mm_many {
    void (*unpack)(const uint8_t *panel, size_t at, size_t n, void *strip);
    /* acc[MM_GROUP][KERN_PANEL] of rows r … r + MM_GROUP - 1, r a multiple of MM_GROUP */
    void (*add)(const void *strip, size_t at, size_t n, const kern_act *a, size_t r, float *acc);
} mm_many;

/* Panels of [n0, n1) times all rows of a. strip: enough for unpack, 64-byte aligned. matmul_run_avx512.c */
void mm_run_avx512(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y, size_t y_stride,
                   const mm_few_fn few[KERN_ACT_SMALL], const mm_many *many, void *strip);

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

/* Fetches n_bytes that lie MM_AHEAD behind p. They may be outside the matrix: a prefetch cannot fault. */
MM_INLINE void mm_prefetch(const void *p, const size_t n_bytes)
{
    MM_UNROLL
    for (size_t i = 0; i < n_bytes; i += 64) {
        _mm_prefetch((const char *)((uintptr_t)p + MM_AHEAD + i), _MM_HINT_T1);
    }
}

#endif
