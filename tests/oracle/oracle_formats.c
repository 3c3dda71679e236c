/*
 * Decoders of the weight formats beyond the common five (those: oracle_quant.c). Offsets are bytes in the
 * block. Written from the formats' definitions; table values are the formats' own.
 */
#include "oracle_int.h"

#include <math.h>
#include <string.h>

/* The n_bits bits from bit `at` on of a little-endian string of bits; no field crosses a byte. */
static int field(const uint8_t *p, size_t at, unsigned n_bits)
{
    return p[at / 8] >> at % 8 & ((1 << n_bits) - 1);
}

/* One float scale d and n_sub sub-blocks of equal size. */
static void start(struct oracle_block *out, float d, size_t width, size_t n_sub)
{
    memset(out, 0, sizeof *out);
    out->dw[0] = d;
    out->dw_len = width;
    out->sub_len = width / n_sub;
    for (size_t j = 0; j < n_sub; j++)
        out->sc[j] = 1;
}

/* Code i of 32 in 16 bytes: the low nibbles first. */
static int nibble(const uint8_t *p, size_t i)
{
    return i < 16 ? p[i] & 15 : p[i - 16] >> 4;
}

/* Q4_1, 20 bytes: 0 d | 2 m | 4 nibbles. Value d * q + m. */
void oracle_decode_q4_1(const uint8_t *p, struct oracle_block *out)
{
    start(out, oracle_f16(p), 32, 1);
    out->dmin = -oracle_f16(p + 2);
    out->m[0] = 1;
    for (size_t i = 0; i < 32; i++)
        out->q[i] = (int8_t)nibble(p + 4, i);
}

/* Q5_0, 22 bytes: 0 d | 2 thirty-two fifth bits | 6 nibbles. Value d * (q - 16). */
void oracle_decode_q5_0(const uint8_t *p, struct oracle_block *out)
{
    start(out, oracle_f16(p), 32, 1);
    for (size_t i = 0; i < 32; i++)
        out->q[i] = (int8_t)(16 * field(p + 2, i, 1) + nibble(p + 6, i) - 16);
}

/* Q5_1, 24 bytes: 0 d | 2 m | 4 fifth bits | 8 nibbles. Value d * q + m. */
void oracle_decode_q5_1(const uint8_t *p, struct oracle_block *out)
{
    start(out, oracle_f16(p), 32, 1);
    out->dmin = -oracle_f16(p + 2);
    out->m[0] = 1;
    for (size_t i = 0; i < 32; i++)
        out->q[i] = (int8_t)(16 * field(p + 4, i, 1) + nibble(p + 8, i));
}

/* Two bits of value i, [2][4][32]: half, pair within the byte, byte. */
static int pair(const uint8_t *p, size_t i)
{
    size_t half = i / 128, which = i / 32 % 4, byte = i % 32;
    return field(p + 32 * half + byte, 2 * which, 2);
}

/* Q2_K, 84 bytes: 0 sixteen (minimum, scale) nibbles | 16 pairs | 80 d | 82 dmin. */
void oracle_decode_q2_k(const uint8_t *p, struct oracle_block *out)
{
    start(out, oracle_f16(p + 80), 256, 16);
    out->dmin = oracle_f16(p + 82);
    for (size_t j = 0; j < 16; j++) {
        out->sc[j] = p[j] % 16;
        out->m[j] = p[j] / 16;
    }
    for (size_t i = 0; i < 256; i++)
        out->q[i] = (int8_t)pair(p + 16, i);
}

/*
 * Q3_K, 110 bytes: 0 high bits [32], bit n of byte l for value 32 n + l | 32 pairs | 96 twelve bytes of scales |
 * 108 d. A set high bit adds 4 to the pair; 4 is taken off all. Scales are six bits less 32: 16 low nibbles in
 * bytes 0 to 7 (0-7 low, 8-15 high nibbles), 16 high pairs in bytes 8 to 11 (scale 4 g + b: pair g of byte 8 + b).
 */
void oracle_decode_q3_k(const uint8_t *p, struct oracle_block *out)
{
    start(out, oracle_f16(p + 108), 256, 16);
    for (size_t g = 0; g < 4; g++) {
        for (size_t b = 0; b < 4; b++) {
            size_t j = 4 * g + b;
            int low = field(p + 96 + j % 8, j < 8 ? 0 : 4, 4);
            out->sc[j] = 16 * field(p + 104 + b, 2 * g, 2) + low - 32;
        }
    }
    for (size_t i = 0; i < 256; i++)
        out->q[i] = (int8_t)(pair(p + 32, i) - (field(p + i % 32, i / 32, 1) ? 0 : 4));
}

/*
 * Q5_K, 176 bytes: 0 d | 2 dmin | 4 scales as Q4_K's | 16 fifth bits [32], bit n of byte l for value 32 n + l |
 * 48 nibbles [4][32], low before high.
 */
void oracle_decode_q5_k(const uint8_t *p, struct oracle_block *out)
{
    start(out, oracle_f16(p), 256, 8);
    out->dmin = oracle_f16(p + 2);
    for (size_t j = 0; j < 4; j++) {
        out->sc[j] = field(p + 4 + j, 0, 6);
        out->m[j] = field(p + 8 + j, 0, 6);
        out->sc[j + 4] = 16 * field(p + 4 + j, 6, 2) + field(p + 12 + j, 0, 4);
        out->m[j + 4] = 16 * field(p + 8 + j, 6, 2) + field(p + 12 + j, 4, 4);
    }
    for (size_t n = 0; n < 8; n++) {
        for (size_t l = 0; l < 32; l++) {
            int low = field(p + 48 + 32 * (n / 2) + l, n % 2 ? 4 : 0, 4);
            out->q[32 * n + l] = (int8_t)(16 * field(p + 16 + l, n, 1) + low);
        }
    }
}

static const int8_t iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

/* IQ4_NL, 18 bytes: 0 d | 2 nibbles, which choose from the table. */
void oracle_decode_iq4_nl(const uint8_t *p, struct oracle_block *out)
{
    start(out, oracle_f16(p), 32, 1);
    for (size_t i = 0; i < 32; i++)
        out->q[i] = iq4[nibble(p + 2, i)];
}

/* IQ4_XS, 136 bytes: 0 d | 2 eight high pairs of scales | 4 eight low nibbles | 8 eight times 32 nibbles. */
void oracle_decode_iq4_xs(const uint8_t *p, struct oracle_block *out)
{
    start(out, oracle_f16(p), 256, 8);
    for (size_t j = 0; j < 8; j++) {
        out->sc[j] = 16 * field(p + 2, 2 * j, 2) + field(p + 4, 4 * j, 4) - 32;
        for (size_t i = 0; i < 32; i++)
            out->q[32 * j + i] = iq4[nibble(p + 8 + 16 * j, i)];
    }
}

/*
 * Digit k of a byte that holds n_trits base-3 digits as a fraction of 256, the first digit the most
 * significant: multiply by 3 and what passes 256 is the digit, again and again.
 */
static int trit(int fraction, size_t k)
{
    int digit = 0;
    for (size_t i = 0; i <= k; i++) {
        digit = fraction * 3 / 256;
        fraction = fraction * 3 % 256;
    }
    return digit;
}

/* TQ1_0, 54 bytes: 0 thirty-two bytes of five digits | 32 sixteen of five | 48 four of four | 52 d. */
void oracle_decode_tq1_0(const uint8_t *p, struct oracle_block *out)
{
    static const struct {
        size_t first, bytes, digits;
    } parts[] = {{0, 32, 5}, {32, 16, 5}, {48, 4, 4}};
    size_t at = 0;

    start(out, oracle_f16(p + 52), 256, 1);
    for (size_t part = 0; part < 3; part++) {
        for (size_t k = 0; k < parts[part].digits; k++) {
            for (size_t b = 0; b < parts[part].bytes; b++)
                out->q[at++] = (int8_t)(trit(p[parts[part].first + b], k) - 1);
        }
    }
}

/* TQ2_0, 66 bytes: 0 pairs | 64 d. Value d * (q - 1). */
void oracle_decode_tq2_0(const uint8_t *p, struct oracle_block *out)
{
    start(out, oracle_f16(p + 64), 256, 1);
    for (size_t i = 0; i < 256; i++)
        out->q[i] = (int8_t)(pair(p, i) - 1);
}

/* An E2M1 float, doubled: sign, two bits of exponent (bias 1), one of fraction. */
static int8_t e2m1_twice(int code)
{
    int exponent = code >> 1 & 3, fraction = code & 1;
    int twice = exponent == 0 ? fraction : (2 + fraction) << (exponent - 1);
    return (int8_t)(code & 8 ? -twice : twice);
}

/* MXFP4, 17 bytes: 0 E8M0 exponent, bias 127 | 1 nibbles, E2M1. */
void oracle_decode_mxfp4(const uint8_t *p, struct oracle_block *out)
{
    start(out, ldexpf(1.0f, p[0] - 127 - 1), 32, 1);
    for (size_t i = 0; i < 32; i++)
        out->q[i] = e2m1_twice(nibble(p + 1, i));
}

/* NVFP4, 64 values, 36 bytes: 0 four E4M3 scales (bias 7; sign ignored, NaN counts as zero) | 4 four times eight
 * bytes of nibbles, E2M1, low ones the first eight values. */
void oracle_decode_nvfp4(const uint8_t *p, struct oracle_block *out)
{
    start(out, 0.0f, 64, 1);
    out->dw_len = 16;
    for (size_t s = 0; s < 4; s++) {
        int exponent = field(p + s, 3, 4), fraction = field(p + s, 0, 3);
        float scale = exponent ? ldexpf((float)(8 + fraction), exponent - 10) : ldexpf((float)fraction, -9);
        out->dw[s] = p[s] == 0x7f ? 0.0f : scale / 2.0f;
        for (size_t i = 0; i < 16; i++)
            out->q[16 * s + i] = e2m1_twice(field(p + 4 + 8 * s + i % 8, i < 8 ? 0 : 4, 4));
    }
}

/* Q1_0, 128 values, 18 bytes: 0 d | 2 bits, 1 for d and 0 for -d. */
void oracle_decode_q1_0(const uint8_t *p, struct oracle_block *out)
{
    start(out, oracle_f16(p), 128, 1);
    for (size_t i = 0; i < 128; i++)
        out->q[i] = field(p + 2, i, 1) ? 1 : -1;
}

/* Q2_0, 64 values, 18 bytes: 0 d | 2 two bits a value. Value d * (q - 1). */
void oracle_decode_q2_0(const uint8_t *p, struct oracle_block *out)
{
    start(out, oracle_f16(p), 64, 1);
    for (size_t i = 0; i < 64; i++)
        out->q[i] = (int8_t)(field(p + 2, 2 * i, 2) - 1);
}
