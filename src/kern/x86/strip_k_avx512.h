/*
 * strip_k_avx512: how the formats with blocks of 256 meet many rows. Private to src/kern/x86/matmul_k_avx512.c and
 * matmul_q2_k_avx512.c.
 *
 * Pairs of lines: a line holds eight k of each of eight outputs, two dwords an output, in place of four k of sixteen;
 * two of them, A and B, are a panel. The activation's eight codes are broadcast, so that two panels and four rows are
 * sixteen chains of vpdpbusd with eight loads for sixteen of them. The usual lines of three panels have twelve chains;
 * for two vpdpbusd that begin in a cycle and take five that is too few, and compilers spill the sums of more.
 *
 *     A: outputs 0 0 1 1 | 4 4 5 5 | 8 8 9 9 | 12 12 13 13        B: 2 2 3 3 | 6 6 7 7 | 10 10 11 11 | 14 14 15 15
 *
 * What takes dwords of A and B by 128 bits, as vpackssdw and vshufps do, leaves outputs in their order.
 */
#ifndef HEARTH_KERN_X86_STRIP_K_AVX512_H
#define HEARTH_KERN_X86_STRIP_K_AVX512_H

#include "kern/x86/matmul_avx512.h"

#define PAIR_PANELS 2
#define PAIR_SUMS   (PAIR_PANELS * MM_GROUP)

typedef pack_line line_pair[2]; /* A, B */

/* matmul_avx512_<name> of a type with blocks of 256, block by block, from few as above, unpack(unit, type, strip) and
 * add(chunk, type, sums, panels) for MM_GROUP rows; `most` panels side by side, 2 or 3. */
#define MM_ADD_256(name, type, strip_bytes, panels)                                      \
    static void add_##name##_##panels(const mm_chunk *c, float *acc)                     \
    {                                                                                    \
        add(c, type, acc, panels);                                                       \
    }                                                                                    \
    static void first_##name##_##panels(const mm_chunk *c, float *acc)                   \
    {                                                                                    \
        for (size_t p = 0; p < (panels); p++) {                                          \
            unpack(c->panel + p * c->panel_bytes + c->at / 256 * unit_bytes(type), type, \
                   (void *)(c->strips + p * (strip_bytes)));                             \
        }                                                                                \
        add_##name##_##panels(c, acc);                                                   \
    }
#define MM_ADDS_256_2(name, type, strip_bytes) \
    MM_ADD_256(name, type, strip_bytes, 1)     \
    MM_ADD_256(name, type, strip_bytes, 2)
#define MM_ADDS_256_3(name, type, strip_bytes) \
    MM_ADDS_256_2(name, type, strip_bytes)     \
    MM_ADD_256(name, type, strip_bytes, 3)
#define MM_NAMES_256_2(name) name##_1, name##_2
#define MM_NAMES_256_3(name) MM_NAMES_256_2(name), name##_3
#define MM_TYPE_256(name, type, strip_bytes_, most)                                   \
    MM_FEW_TYPE(name, type);                                                          \
    MM_ADDS_256_##most(name, type, strip_bytes_) static const mm_many many_##name = { \
        .chunk = 256,                                                                 \
        .strip_bytes = (strip_bytes_),                                                \
        .group = MM_GROUP,                                                            \
        .panels = (most),                                                             \
        .first = {MM_NAMES_256_##most(first_##name)},                                 \
        .add = {MM_NAMES_256_##most(add_##name)}};                                    \
    MM_PRODUCT(name)

/* The eight codes of MM_GROUP rows that meet a line. */
typedef int8_t group_codes[MM_GROUP][256];

/* The codes of a group, raised by 128 if they are to be the unsigned operand. */
MM_INLINE void group_codes_make(group_codes q, const mm_chunk *c, const bool raised)
{
    const int8_t *from = mm_codes(c->a, c->r, c->at / KERN_ACT_RUN);
    MM_UNROLL
    for (size_t i = 0; i < MM_GROUP * 4; i++) {
        const size_t run = i / MM_GROUP, r = i % MM_GROUP;
        __m512i v = mm_load(from + (run * KERN_ACT_TILE + r) * KERN_ACT_RUN);
        v = raised ? _mm512_xor_si512(v, _mm512_set1_epi8((char)0x80)) : v;
        _mm512_store_si512(q[r] + run * KERN_ACT_RUN, v);
    }
    MM_ORDER();
}

/* A and B of values 8 r … 8 r + 7 from the lines of the first four and of the last four. */
MM_INLINE void pair_of(__m512i low, __m512i high, __m512i pair[2])
{
    pair[0] = _mm512_unpacklo_epi32(low, high);
    pair[1] = _mm512_unpackhi_epi32(low, high);
}

/* dot[A, B][panel][row] += pair `at` of each panel, `stride` bytes apart, times the group's codes. */
MM_INLINE void pair_dot(__m512i dot[2][PAIR_SUMS], const line_pair *pairs, size_t stride, size_t at,
                        group_codes q, const bool raised, const size_t panels)
{
    __m512i line[2][PAIR_PANELS];
    MM_UNROLL
    for (size_t p = 0; p < panels; p++) {
        line[0][p] = mm_load((const uint8_t *)pairs[at][0] + p * stride);
        line[1][p] = mm_load((const uint8_t *)pairs[at][1] + p * stride);
    }
    MM_UNROLL
    for (size_t i = 0; i < MM_GROUP; i++) {
        int64_t eight;
        __builtin_memcpy(&eight, q[i] + at * 8, sizeof eight);
        const __m512i codes = _mm512_set1_epi64(eight);
        MM_UNROLL
        for (size_t l = 0; l < 2 * panels; l++) {
            __m512i *to = &dot[l % 2][l / 2 * MM_GROUP + i];
            *to = raised ? _mm512_dpbusd_epi32(*to, codes, line[l % 2][l / 2])
                         : _mm512_dpbusd_epi32(*to, line[l % 2][l / 2], codes);
        }
    }
    MM_ORDER();
}

/* dot[panel][row] += a line of each panel times four codes of each row, which lie 64 bytes apart. */
MM_INLINE void mm_line_dot(__m512i *dot, const __m512i *line, const int8_t *q, const size_t rows,
                           const size_t panels)
{
    MM_UNROLL
    for (size_t i = 0; i < rows; i++) {
        const __m512i codes = mm_dword(q + i * KERN_ACT_RUN);
        MM_UNROLL
        for (size_t p = 0; p < panels; p++) {
            dot[p * rows + i] = _mm512_dpbusd_epi32(dot[p * rows + i], line[p], codes);
        }
    }
    MM_ORDER();
}

/* acc[panel][row] += (float)isum * (d of the row * dw of the panel) for MM_GROUP rows, or -=: rule 1 of DESIGN 4. dw: of
 * the first panel, the others' `stride` bytes apart. */
MM_INLINE void mm_add_scaled(__m512 *acc, const __m512i *isum, const float *d, const float *dw, size_t stride,
                             const bool minus, const size_t panels)
{
    MM_UNROLL
    for (size_t p = 0; p < panels; p++) {
        const __m512 of_panel = _mm512_load_ps((const uint8_t *)dw + p * stride);
        MM_UNROLL
        for (size_t i = 0; i < MM_GROUP; i++) {
            const size_t j = p * MM_GROUP + i;
            const __m512 scale = _mm512_mul_ps(_mm512_set1_ps(d[i]), of_panel);
            const __m512 sum = _mm512_cvtepi32_ps(isum[j]);
            acc[j] = minus ? _mm512_fnmadd_ps(sum, scale, acc[j]) : _mm512_fmadd_ps(sum, scale, acc[j]);
        }
    }
}

#endif
