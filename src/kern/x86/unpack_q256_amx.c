/* Units of the formats with integer scales within blocks of 256, unpacked: see the header. */
#include "kern/x86/unpack_q256_amx.h"

#include <immintrin.h>

#include "kern/x86/matmul_amx.h"

#define EVEN_BYTES 0x5555555555555555ull
#define ODD_BYTES  0xAAAAAAAAAAAAAAAAull

AMX_INLINE __m512i load(const void *p)
{
    return _mm512_loadu_si512(p);
}

AMX_INLINE void store(void *p, __m512i v)
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

/* The same for n lines from p on: the rest of a unit. */
AMX_INLINE void prefetch_rest(const void *p, size_t n, size_t distance)
{
    for (size_t i = 0; i < n; i++) {
        prefetch((const uint8_t *)p + 64 * i, distance);
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
AMX_INLINE __m512i swap(void)
{
    return _mm512_set4_epi32(0x0E0F0C0D, 0x0A0B0809, 0x06070405, 0x02030001);
}

/* Products of even and of odd bytes, 16 bits each, to line r of both planes. */
AMX_INLINE void split(q256_codes *out, int r, __m512i even, __m512i odd)
{
    store(out->low[r], _mm512_mask_shuffle_epi8(even, ODD_BYTES, odd, swap()));
    store(out->high[r], _mm512_mask_shuffle_epi8(odd, EVEN_BYTES, even, swap()));
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
    store(out->high[r], _mm512_mullo_epi16(w, sc.high));
    store(out->low[r], _mm512_mullo_epi16(w, sc.low));
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
        store(out->mins[i], bits);
    }
}

/* Minima of 32 values each. */
AMX_INLINE void mins_of_32(q256_codes *out, const uint8_t (*m)[KERN_PANEL])
{
    for (int j = 0; j < 8; j++) {
        mins_store(out, 2 * j, 2, _mm_loadu_si128((const __m128i *)(const void *)m[j]));
    }
}

void q256_unpack_q4_k(const void *unit, size_t ahead, q256_codes *out, q256_scales *scales)
{
    const unit_q4_k *u = unit;
    for (int half = 0; half < 2; half++) {
        __m512i sc = load(u->sc[4 * half]);
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            const int s = 4 * half + j;
            sc_eighths pair = eighths(sc, j);
            for (int r = 0; r < 4; r++) {
                prefetch(u->nibbles[s][r], ahead);
                __m512i x = load(u->nibbles[s][r]);
                fold(out, 8 * s + r, low_nibbles(x), pair);
                fold(out, 8 * s + r + 4, high_nibbles(x), pair);
            }
        }
    }
    prefetch_rest(u->sc, 5, ahead);
    mins_of_32(out, u->m);
    halves_to_floats(u->d, scales->d);
    halves_to_floats(u->dmin, scales->dmin);
}

/* A code of Q6_K is a nibble and, above it, a pair; it counts from -32. */
void q256_unpack_q6_k(const void *unit, size_t ahead, q256_codes *out, q256_scales *scales)
{
    const unit_q6_k *u = unit;
    for (int quarter = 0; quarter < 4; quarter++) {
        __m512i sc = load(u->sc[4 * quarter]);
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            const int s = 2 * quarter + j;
            for (int p = 0; p < 2; p++) {
                sc_pair pair = spread(sc, 2 * j + p);
                __m512i less = _mm512_srai_epi16(pair.odd, 3); /* 256 * sc / 8 */
                __m512i pairs = load(u->pairs[s][p]);
                prefetch(u->pairs[s][p], ahead);
#pragma GCC unroll 4
                for (int i = 0; i < 4; i++) {
                    __m512i x = load(u->nibbles[s][i]);
                    x = p ? high_nibbles(x) : low_nibbles(x);
                    __m512i high =
                        i < 2 ? _mm512_slli_epi16(pairs, 4 - 2 * i) : _mm512_srli_epi16(pairs, 2 * i - 4);
                    high = _mm512_and_si512(high, _mm512_set1_epi8(0x30));
                    if (p) {
                        prefetch(u->nibbles[s][i], ahead);
                    }
                    fold_less(out, 8 * s + 4 * p + i, _mm512_or_si512(x, high), pair, less);
                }
            }
        }
    }
    prefetch_rest(u->sc, 5, ahead);
    halves_to_floats(u->d, scales->d);
}

/* Bit r of each byte of bits, moved to bit `to`. */
AMX_INLINE __m512i bit_to(__m512i bits, int r, int to)
{
    __m512i moved = r <= to ? _mm512_slli_epi16(bits, to - r) : _mm512_srli_epi16(bits, r - to);
    return _mm512_and_si512(moved, _mm512_set1_epi8((char)(1 << to)));
}

void q256_unpack_q5_k(const void *unit, size_t ahead, q256_codes *out, q256_scales *scales)
{
    const unit_q5_k *u = unit;
    for (int half = 0; half < 2; half++) {
        __m512i sc = load(u->sc[4 * half]);
        for (int j = 0; j < 4; j++) {
            const int s = 4 * half + j;
            sc_eighths pair = eighths(sc, j);
            __m512i bits = load(u->bits[s]);
            prefetch(u->bits[s], ahead);
#pragma GCC unroll 4
            for (int r = 0; r < 4; r++) {
                prefetch(u->nibbles[s][r], ahead);
                __m512i x = load(u->nibbles[s][r]);
                __m512i low = _mm512_or_si512(low_nibbles(x), bit_to(bits, r, 4));
                __m512i high = _mm512_or_si512(high_nibbles(x), bit_to(bits, r + 4, 4));
                fold(out, 8 * s + r, low, pair);
                fold(out, 8 * s + r + 4, high, pair);
            }
        }
    }
    prefetch_rest(u->sc, 5, ahead);
    mins_of_32(out, u->m);
    halves_to_floats(u->d, scales->d);
    halves_to_floats(u->dmin, scales->dmin);
}

/* Places in the table of IQ4_XS, which counts from -128 here: w in 1 ... 241. */
void q256_unpack_iq4_xs(const void *unit, size_t ahead, q256_codes *out, q256_scales *scales)
{
    const unit_iq4_xs *u = unit;
    /* vpermb looks at six bits of each byte: with four equal parts a nibble needs no mask */
    const __m512i table = _mm512_set4_epi32((int)0xF1D9C5B5, (int)0xA6998D81, 0x766A5D4F, 0x3F2D1801);
    for (int half = 0; half < 2; half++) {
        __m512i sc = load(u->sc[4 * half]);
        for (int j = 0; j < 4; j++) {
            const int s = 4 * half + j;
            sc_pair pair = spread(sc, j);
            __m512i less = _mm512_srai_epi16(pair.odd, 1); /* 256 * sc / 2 */
#pragma GCC unroll 4
            for (int r = 0; r < 4; r++) {
                prefetch(u->nibbles[s][r], ahead);
                __m512i x = load(u->nibbles[s][r]);
                fold_less(out, 8 * s + r, _mm512_permutexvar_epi8(x, table), pair, less);
                fold_less(out, 8 * s + r + 4, _mm512_permutexvar_epi8(_mm512_srli_epi16(x, 4), table), pair,
                          less);
            }
        }
    }
    prefetch_rest(u->sc, 3, ahead);
    halves_to_floats(u->d, scales->d);
}

/* The only plane. w * sc <= 3 * 15: a 16-bit product of two codes has no carry between its bytes. */
void q256_unpack_q2_k(const void *unit, size_t ahead, q256_codes *out, q256_scales *scales)
{
    const unit_q2_k *u = unit;
    for (int quarter = 0; quarter < 4; quarter++) {
        __m512i sc_m = load(u->sc_m[4 * quarter]);
        __m512i sc = low_nibbles(sc_m);
        const __m512i m = high_nibbles(sc_m);
        mins_store(out, 4 * quarter, 1, _mm512_extracti32x4_epi32(m, 0));
        mins_store(out, 4 * quarter + 1, 1, _mm512_extracti32x4_epi32(m, 1));
        mins_store(out, 4 * quarter + 2, 1, _mm512_extracti32x4_epi32(m, 2));
        mins_store(out, 4 * quarter + 3, 1, _mm512_extracti32x4_epi32(m, 3));
        for (int j = 0; j < 4; j++) { /* sub-blocks of four lines */
            __m512i times = spread(sc, j).even;
            __m512i pairs = load(u->pairs[2 * quarter + j / 2][j % 2]);
            prefetch(u->pairs[2 * quarter + j / 2][j % 2], ahead);
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) {
                __m512i w = _mm512_and_si512(_mm512_srli_epi16(pairs, 2 * i), _mm512_set1_epi8(3));
                store(out->high[16 * quarter + 4 * j + i], _mm512_mullo_epi16(w, times));
            }
        }
    }
    prefetch_rest(u->sc_m, 5, ahead);
    halves_to_floats(u->d, scales->d);
    halves_to_floats(u->dmin, scales->dmin);
}

/* The only plane, of (4 - code) * sc, -128 ... 124: the low bytes of code * -sc, and 4 * sc modulo 256. */
void q256_unpack_q3_k(const void *unit, size_t ahead, q256_codes *out, q256_scales *scales)
{
    const unit_q3_k *u = unit;
    for (int quarter = 0; quarter < 4; quarter++) {
        __m512i sc = load(u->sc[4 * quarter]);
        __m512i minus = _mm512_sub_epi8(_mm512_setzero_si512(), sc);
        for (int j = 0; j < 4; j++) {
            const int s = 2 * quarter + j / 2;
            sc_pair pair = spread(minus, j);
            __m512i both = _mm512_or_si512(pair.even, pair.odd);
            __m512i four = _mm512_slli_epi16(_mm512_and_si512(both, _mm512_set1_epi8(0x3F)), 2);
            __m512i bits = load(u->bits[s]);
            __m512i pairs = load(u->pairs[s][j % 2]);
            prefetch(u->pairs[s][j % 2], ahead);
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) {
                __m512i w = _mm512_and_si512(_mm512_srli_epi16(pairs, 2 * i), _mm512_set1_epi8(3));
                w = _mm512_or_si512(w, j % 2 ? bit_to(bits, i + 4, 2) : bit_to(bits, i, 2));
                __m512i even = _mm512_maddubs_epi16(w, pair.even);
                __m512i odd = _mm512_maddubs_epi16(w, pair.odd);
                __m512i low = _mm512_mask_shuffle_epi8(even, ODD_BYTES, odd, swap());
                store(out->high[16 * quarter + 4 * j + i], _mm512_sub_epi8(low, four));
            }
        }
    }
    prefetch_rest(u->bits, 13, ahead);
    halves_to_floats(u->d, scales->d);
}
