/*
 * unpack_q256_amx: units of formats with integer scales within blocks of 256 (kern/pack_units.h) to tiles of int8, in
 * pieces that stand between tile products. Private to matmul_q256_amx.c.
 *
 * A code times its sub-scale, p = w * sc, is at most 16 bits wide and becomes two planes: p = 8 * high + low, both
 * unsigned bytes, where sc and w are not negative (then sc is cut, into 8 * h + l), else p = 256 * high + low, high a
 * signed byte and low an unsigned one. Where p, or -p, fits a byte there is one plane. Either way four tiles a plane
 * hold the 256 values of sixteen outputs: byte 4 n + j of line r is value 4 r + j of output n. Minima are one tile of
 * bf16: value 2 n and 2 n + 1 of line r is that of output n and values 16 r … 16 r + 15, which thus multiply both
 * halves of a sum (act.h).
 */
#ifndef HEARTH_KERN_X86_UNPACK_Q256_AMX_H
#define HEARTH_KERN_X86_UNPACK_Q256_AMX_H

#include <immintrin.h>
#include <stdint.h>

#include "kern/pack_units.h"
#include "kern/x86/matmul_amx.h"
#include "kern/x86/unroll.h"

typedef struct q256_codes {
    pack_line high[64]; /* or the only plane */
    pack_line low[64];
    uint32_t mins[16][KERN_PANEL];
} q256_codes;

typedef struct q256_scales {
    float d[KERN_PANEL];
    float dmin[KERN_PANEL];
} q256_scales;

/* Values [32 s, 32 s + 32) of a unit to lines [8 s, 8 s + 8) of the planes. Prefetches what lies `ahead` bytes behind
 * the codes it reads (any address). */
typedef void (*q256_slice_fn)(const void *unit, int s, size_t ahead, q256_codes *out);
/* Scales and minima; out and scales are aligned to 64 bytes. */
typedef void (*q256_rest_fn)(const void *unit, size_t ahead, q256_codes *out, q256_scales *scales);

#define EVEN_BYTES 0x5555555555555555ull
#define ODD_BYTES  0xAAAAAAAAAAAAAAAAull

AMX_INLINE __m512i line_load(const void *p)
{
    return _mm512_loadu_si512(p);
}

AMX_INLINE void line_store(void *p, __m512i v)
{
    _mm512_store_si512(p, v);
}

AMX_INLINE void halves_to_floats(const uint16_t *h, float *out)
{
    _mm512_store_ps(out, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)h)));
}

/* Asks for what lies `distance` behind a line. */
AMX_INLINE void prefetch(const void *p, size_t distance)
{
    _mm_prefetch((const char *)p + distance, _MM_HINT_T1);
}

/* The same for all lines from p up to end: the rest of a unit. */
AMX_INLINE void prefetch_rest(const void *p, const void *end, size_t distance)
{
    for (const uint8_t *line = p; line < (const uint8_t *)end; line += 64) {
        prefetch(line, distance);
    }
}

/* A sub-block's scales for vpmaddubsw: of each pair of bytes only the even or only the odd one counts. */
typedef struct sc_pair {
    __m512i even, odd;
} sc_pair;

/* Sub-block j of the four whose scales are in sc. */
AMX_INLINE sc_pair spread(__m512i sc, int j)
{
    const __m512i column = _mm512_set_epi32(0x0F0F0F0F, 0x0E0E0E0E, 0x0D0D0D0D, 0x0C0C0C0C, 0x0B0B0B0B,
                                            0x0A0A0A0A, 0x09090909, 0x08080808, 0x07070707, 0x06060606,
                                            0x05050505, 0x04040404, 0x03030303, 0x02020202, 0x01010101, 0);
    const __m512i at = _mm512_or_si512(column, _mm512_set1_epi8((char)(16 * j)));
    return (sc_pair){_mm512_maskz_permutexvar_epi8(EVEN_BYTES, at, sc),
                     _mm512_maskz_permutexvar_epi8(ODD_BYTES, at, sc)};
}

/* The other byte of each pair. */
AMX_INLINE __m512i swapped(void)
{
    return _mm512_set4_epi32(0x0E0F0C0D, 0x0A0B0809, 0x06070405, 0x02030001);
}

/* Products of even and of odd bytes, 16 bits each, to line r of both planes. */
AMX_INLINE void split(q256_codes *out, int r, __m512i even, __m512i odd)
{
    line_store(out->low[r], _mm512_mask_shuffle_epi8(even, ODD_BYTES, odd, swapped()));
    line_store(out->high[r], _mm512_mask_shuffle_epi8(odd, EVEN_BYTES, even, swapped()));
}

/* A sub-block's scales as 16-bit words, in eighths: sc = 8 * high + low. */
typedef struct sc_eighths {
    __m512i high, low;
} sc_eighths;

AMX_INLINE sc_eighths eighths(__m512i sc, int j)
{
    const __m512i seven = _mm512_set1_epi8(7);
    return (sc_eighths){spread(_mm512_and_si512(_mm512_srli_epi16(sc, 3), seven), j).even,
                        spread(_mm512_and_si512(sc, seven), j).even};
}

/* Codes without offset, to line r of both planes: w * 7 <= 217, so that a 16-bit product of two codes has no carry
 * between its bytes. */
AMX_INLINE void fold(q256_codes *out, int r, __m512i w, sc_eighths sc)
{
    line_store(out->high[r], _mm512_mullo_epi16(w, sc.high));
    line_store(out->low[r], _mm512_mullo_epi16(w, sc.low));
}

/* Codes with one: (w - offset) * sc, offset * sc being `less`; w * sc up to 255 * 32. */
AMX_INLINE void fold_less(q256_codes *out, int r, __m512i w, sc_pair sc, __m512i less)
{
    split(out, r, _mm512_sub_epi16(_mm512_maddubs_epi16(w, sc.even), less),
          _mm512_sub_epi16(_mm512_maddubs_epi16(w, sc.odd), less));
}

AMX_INLINE __m512i low_nibbles(__m512i x)
{
    return _mm512_and_si512(x, _mm512_set1_epi8(15));
}

AMX_INLINE __m512i high_nibbles(__m512i x)
{
    return low_nibbles(_mm512_srli_epi16(x, 4));
}

/* Sixteen minima to n lines of their tile from r on, as pairs of bf16. They are small: nothing is in the lower half of
 * their bits. */
AMX_INLINE void mins_store(q256_codes *out, int r, int n, __m128i m)
{
    __m512i bits = _mm512_castps_si512(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(m)));
    bits = _mm512_or_si512(bits, _mm512_srli_epi32(bits, 16));
    for (int i = r; i < r + n; i++) {
        line_store(out->mins[i], bits);
    }
}

/* Minima of 32 values each. */
AMX_INLINE void mins_of_32(q256_codes *out, const uint8_t (*m)[KERN_PANEL])
{
    for (int j = 0; j < 8; j++) {
        mins_store(out, 2 * j, 2, _mm_loadu_si128((const __m128i *)(const void *)m[j]));
    }
}

/* Two planes, of eighths, and minima: q4_k, q5_k. */

AMX_INLINE void q256_slice_q4_k(const void *unit, int s, size_t ahead, q256_codes *out)
{
    const unit_q4_k *u = unit;
    const sc_eighths pair = eighths(line_load(u->sc[s / 4 * 4]), s % 4);
    MM_UNROLL
    for (int i = 0; i < 4; i++) {
        prefetch(u->nibbles[s][i], ahead);
        const __m512i x = line_load(u->nibbles[s][i]);
        fold(out, 8 * s + i, low_nibbles(x), pair);
        fold(out, 8 * s + i + 4, high_nibbles(x), pair);
    }
}

AMX_INLINE void q256_rest_q4_k(const void *unit, size_t ahead, q256_codes *out, q256_scales *scales)
{
    const unit_q4_k *u = unit;
    prefetch_rest(u->sc, u + 1, ahead);
    mins_of_32(out, u->m);
    halves_to_floats(u->d, scales->d);
    halves_to_floats(u->dmin, scales->dmin);
}

/* Bit r of each byte of bits, moved to bit `to`. */
AMX_INLINE __m512i bit_to(__m512i bits, int r, int to)
{
    __m512i moved =
        r <= to ? _mm512_slli_epi16(bits, (unsigned)(to - r)) : _mm512_srli_epi16(bits, (unsigned)(r - to));
    return _mm512_and_si512(moved, _mm512_set1_epi8((char)(1 << to)));
}

AMX_INLINE void q256_slice_q5_k(const void *unit, int s, size_t ahead, q256_codes *out)
{
    const unit_q5_k *u = unit;
    const sc_eighths pair = eighths(line_load(u->sc[s / 4 * 4]), s % 4);
    const __m512i bits = line_load(u->bits[s]);
    prefetch(u->bits[s], ahead);
    MM_UNROLL
    for (int i = 0; i < 4; i++) {
        prefetch(u->nibbles[s][i], ahead);
        const __m512i x = line_load(u->nibbles[s][i]);
        fold(out, 8 * s + i, _mm512_or_si512(low_nibbles(x), bit_to(bits, i, 4)), pair);
        fold(out, 8 * s + i + 4, _mm512_or_si512(high_nibbles(x), bit_to(bits, i + 4, 4)), pair);
    }
}

AMX_INLINE void q256_rest_q5_k(const void *unit, size_t ahead, q256_codes *out, q256_scales *scales)
{
    const unit_q5_k *u = unit;
    prefetch_rest(u->sc, u + 1, ahead);
    mins_of_32(out, u->m);
    halves_to_floats(u->d, scales->d);
    halves_to_floats(u->dmin, scales->dmin);
}

/* Two planes, of bytes: q6_k, iq4_xs. */

/* A code of Q6_K is a nibble and, above it, a pair; it counts from -32. */
AMX_INLINE void q256_slice_q6_k(const void *unit, int s, size_t ahead, q256_codes *out)
{
    const unit_q6_k *u = unit;
    const __m512i sc = line_load(u->sc[s / 2 * 4]);
    MM_UNROLL
    for (int p = 0; p < 2; p++) {
        const sc_pair pair = spread(sc, s % 2 * 2 + p);
        const __m512i less = _mm512_srai_epi16(pair.odd, 3); /* 256 * sc / 8 */
        const __m512i pairs = line_load(u->pairs[s][p]);
        prefetch(u->pairs[s][p], ahead);
        MM_UNROLL
        for (int i = 0; i < 4; i++) {
            __m512i x = line_load(u->nibbles[s][i]);
            x = p ? high_nibbles(x) : low_nibbles(x);
            __m512i high = i < 2 ? _mm512_slli_epi16(pairs, (unsigned)(i < 2 ? 4 - 2 * i : 0))
                                 : _mm512_srli_epi16(pairs, (unsigned)(i < 2 ? 0 : 2 * i - 4));
            high = _mm512_and_si512(high, _mm512_set1_epi8(0x30));
            if (p) {
                prefetch(u->nibbles[s][i], ahead);
            }
            fold_less(out, 8 * s + 4 * p + i, _mm512_or_si512(x, high), pair, less);
        }
    }
}

AMX_INLINE void q256_rest_q6_k(const void *unit, size_t ahead, q256_codes *out, q256_scales *scales)
{
    const unit_q6_k *u = unit;
    (void)out;
    prefetch_rest(u->sc, u + 1, ahead);
    halves_to_floats(u->d, scales->d);
}

/* Places in the table of IQ4_XS, which counts from -128 here: w in 1 ... 241. */
AMX_INLINE void q256_slice_iq4_xs(const void *unit, int s, size_t ahead, q256_codes *out)
{
    const unit_iq4_xs *u = unit;
    /* vpermb looks at six bits of each byte: with four equal parts a nibble needs no mask */
    const __m512i table = _mm512_set4_epi32((int)0xF1D9C5B5, (int)0xA6998D81, 0x766A5D4F, 0x3F2D1801);
    const sc_pair pair = spread(line_load(u->sc[s / 4 * 4]), s % 4);
    const __m512i less = _mm512_srai_epi16(pair.odd, 1); /* 256 * sc / 2 */
    MM_UNROLL
    for (int i = 0; i < 4; i++) {
        prefetch(u->nibbles[s][i], ahead);
        const __m512i x = line_load(u->nibbles[s][i]);
        fold_less(out, 8 * s + i, _mm512_permutexvar_epi8(x, table), pair, less);
        fold_less(out, 8 * s + i + 4, _mm512_permutexvar_epi8(_mm512_srli_epi16(x, 4), table), pair, less);
    }
}

AMX_INLINE void q256_rest_iq4_xs(const void *unit, size_t ahead, q256_codes *out, q256_scales *scales)
{
    const unit_iq4_xs *u = unit;
    (void)out;
    prefetch_rest(u->sc, u + 1, ahead);
    halves_to_floats(u->d, scales->d);
}

/* One plane and minima. w * sc <= 3 * 15: a 16-bit product of two codes has no carry between its bytes. */
AMX_INLINE void q256_slice_q2_k(const void *unit, int s, size_t ahead, q256_codes *out)
{
    const unit_q2_k *u = unit;
    const __m512i sc = low_nibbles(line_load(u->sc_m[s / 2 * 4]));
    MM_UNROLL
    for (int p = 0; p < 2; p++) { /* sub-blocks of four lines */
        const __m512i times = spread(sc, s % 2 * 2 + p).even;
        const __m512i pairs = line_load(u->pairs[s][p]);
        prefetch(u->pairs[s][p], ahead);
        MM_UNROLL
        for (int i = 0; i < 4; i++) {
            const __m512i w =
                _mm512_and_si512(_mm512_srli_epi16(pairs, (unsigned)(2 * i)), _mm512_set1_epi8(3));
            line_store(out->high[8 * s + 4 * p + i], _mm512_mullo_epi16(w, times));
        }
    }
}

AMX_INLINE void q256_rest_q2_k(const void *unit, size_t ahead, q256_codes *out, q256_scales *scales)
{
    const unit_q2_k *u = unit;
    prefetch_rest(u->sc_m, u + 1, ahead);
    for (int j = 0; j < 16; j++) {
        const __m128i m = _mm_srli_epi16(_mm_loadu_si128((const __m128i *)(const void *)u->sc_m[j]), 4);
        mins_store(out, j, 1, _mm_and_si128(m, _mm_set1_epi8(15)));
    }
    halves_to_floats(u->d, scales->d);
    halves_to_floats(u->dmin, scales->dmin);
}

/* One plane, of (4 - code) * sc, -128 ... 124: the low bytes of code * -sc, and 4 * sc modulo 256. */
AMX_INLINE void q256_slice_q3_k(const void *unit, int s, size_t ahead, q256_codes *out)
{
    const unit_q3_k *u = unit;
    const __m512i minus = _mm512_sub_epi8(_mm512_setzero_si512(), line_load(u->sc[s / 2 * 4]));
    const __m512i bits = line_load(u->bits[s]);
    MM_UNROLL
    for (int p = 0; p < 2; p++) {
        const sc_pair pair = spread(minus, s % 2 * 2 + p);
        const __m512i both = _mm512_or_si512(pair.even, pair.odd);
        const __m512i four = _mm512_slli_epi16(_mm512_and_si512(both, _mm512_set1_epi8(0x3F)), 2);
        const __m512i pairs = line_load(u->pairs[s][p]);
        prefetch(u->pairs[s][p], ahead);
        MM_UNROLL
        for (int i = 0; i < 4; i++) {
            __m512i w = _mm512_and_si512(_mm512_srli_epi16(pairs, (unsigned)(2 * i)), _mm512_set1_epi8(3));
            w = _mm512_or_si512(w, p ? bit_to(bits, i + 4, 2) : bit_to(bits, i, 2));
            const __m512i even = _mm512_maddubs_epi16(w, pair.even);
            const __m512i odd = _mm512_maddubs_epi16(w, pair.odd);
            const __m512i low = _mm512_mask_shuffle_epi8(even, ODD_BYTES, odd, swapped());
            line_store(out->high[8 * s + 4 * p + i], _mm512_sub_epi8(low, four));
        }
    }
}

AMX_INLINE void q256_rest_q3_k(const void *unit, size_t ahead, q256_codes *out, q256_scales *scales)
{
    const unit_q3_k *u = unit;
    (void)out;
    prefetch_rest(u->bits, u + 1, ahead);
    halves_to_floats(u->d, scales->d);
}

#endif
