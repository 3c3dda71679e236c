/*
 * Blocks of 256 values, to integers (layouts: gguf/blocks.h): codes, sub-scales and minima per 16 values. A
 * scale over 32 values stands twice.
 */
#include "base/fp16.h"
#include "base/le.h"
#include "kern/ref/matmul_codes.h"

#define BLOCK 256
#define RUNS  (BLOCK / MATMUL_RUN)

static float half_at(const uint8_t *block, size_t offset)
{
    return fp16_to_f32(le16_get(block + offset));
}

/* Two bits per value; in each half of 128 values, byte l holds values l, l + 32, l + 64, l + 96. */
static void put_two_bits(const uint8_t *qs, int less, int16_t *q)
{
    for (size_t run = 0; run < 8; run++) {
        const uint8_t *bytes = qs + 32 * (run / 4);
        for (size_t l = 0; l < 32; l++) {
            q[32 * run + l] = (int16_t)((bytes[l] >> 2 * (run % 4) & 3) - less);
        }
    }
}

/* Runs of 32 bytes: the low nibbles are 32 values, the high ones the next 32. */
static void put_nibbles(const uint8_t *qs, int16_t *q)
{
    for (size_t run = 0; run < 8; run++) {
        const uint8_t *bytes = qs + 32 * (run / 2);
        for (size_t l = 0; l < 32; l++) {
            q[32 * run + l] = (int16_t)(run % 2 ? bytes[l] >> 4 : bytes[l] & 15);
        }
    }
}

/* One more bit: bit n of bits[l] is worth `worth` in value 32 n + l. */
static void put_high_bits(const uint8_t *bits, int worth, int16_t *q)
{
    for (size_t n = 0; n < 8; n++) {
        for (size_t l = 0; l < 32; l++) {
            q[32 * n + l] = (int16_t)(q[32 * n + l] + (bits[l] >> n & 1) * worth);
        }
    }
}

static void decode_q2_k(const uint8_t *block, size_t at, matmul_codes *out)
{
    size_t run = at / MATMUL_RUN;
    const uint8_t *scales = block + offsetof(block_q2_k, scales);
    out->d[run] = half_at(block, offsetof(block_q2_k, d));
    out->min[run] = half_at(block, offsetof(block_q2_k, dmin));
    for (size_t j = 0; j < RUNS; j++) {
        out->sc[run + j] = scales[j] & 15;
        out->sub_min[run + j] = scales[j] >> 4;
    }
    put_two_bits(block + offsetof(block_q2_k, qs), 0, out->q + at);
}

static void decode_q3_k(const uint8_t *block, size_t at, matmul_codes *out)
{
    size_t run = at / MATMUL_RUN;
    const uint8_t *scales = block + offsetof(block_q3_k, scales);
    out->d[run] = half_at(block, offsetof(block_q3_k, d));
    for (size_t j = 0; j < RUNS; j++) {
        int low = j < 8 ? scales[j] & 15 : scales[j - 8] >> 4;
        int high = scales[8 + j % 4] >> 2 * (j / 4) & 3;
        out->sc[run + j] = (int16_t)((low | high << 4) - 32);
    }
    put_two_bits(block + offsetof(block_q3_k, qs), 4, out->q + at);
    put_high_bits(block + offsetof(block_q3_k, hmask), 4, out->q + at);
}

/* The six-bit scales and minima of Q4_K and Q5_K, per 32 values. */
static void put_packed_scales(const uint8_t *packed, size_t run, matmul_codes *out)
{
    int sc[8], m[8];
    for (size_t j = 0; j < 4; j++) {
        sc[j] = packed[j] & 63;
        m[j] = packed[4 + j] & 63;
        sc[4 + j] = (packed[8 + j] & 15) | (packed[j] >> 6) << 4;
        m[4 + j] = (packed[8 + j] >> 4) | (packed[4 + j] >> 6) << 4;
    }
    for (size_t j = 0; j < RUNS; j++) {
        out->sc[run + j] = (int16_t)sc[j / 2];
        out->sub_min[run + j] = (int16_t)m[j / 2];
    }
}

static void decode_q4_k(const uint8_t *block, size_t at, matmul_codes *out)
{
    size_t run = at / MATMUL_RUN;
    out->d[run] = half_at(block, offsetof(block_q4_k, d));
    out->min[run] = half_at(block, offsetof(block_q4_k, dmin));
    put_packed_scales(block + offsetof(block_q4_k, scales), run, out);
    put_nibbles(block + offsetof(block_q4_k, qs), out->q + at);
}

static void decode_q5_k(const uint8_t *block, size_t at, matmul_codes *out)
{
    size_t run = at / MATMUL_RUN;
    out->d[run] = half_at(block, offsetof(block_q5_k, d));
    out->min[run] = half_at(block, offsetof(block_q5_k, dmin));
    put_packed_scales(block + offsetof(block_q5_k, scales), run, out);
    put_nibbles(block + offsetof(block_q5_k, qs), out->q + at);
    put_high_bits(block + offsetof(block_q5_k, qh), 16, out->q + at);
}

static void decode_q6_k(const uint8_t *block, size_t at, matmul_codes *out)
{
    size_t run = at / MATMUL_RUN;
    const int8_t *scales = (const int8_t *)(block + offsetof(block_q6_k, scales));
    out->d[run] = half_at(block, offsetof(block_q6_k, d));
    for (size_t j = 0; j < RUNS; j++) {
        out->sc[run + j] = (int16_t)scales[j];
    }
    for (size_t n = 0; n < 8; n++) { /* runs of 32 values, four in each half */
        const uint8_t *low = block + offsetof(block_q6_k, ql) + 64 * (n / 4) + 32 * (n % 2);
        const uint8_t *high = block + offsetof(block_q6_k, qh) + 32 * (n / 4);
        for (size_t l = 0; l < 32; l++) {
            int nibble = n % 4 < 2 ? low[l] & 15 : low[l] >> 4;
            out->q[at + 32 * n + l] = (int16_t)((nibble | (high[l] >> 2 * (n % 4) & 3) << 4) - 32);
        }
    }
}

static void decode_iq4_xs(const uint8_t *block, size_t at, matmul_codes *out)
{
    size_t run = at / MATMUL_RUN;
    const uint8_t *scales_l = block + offsetof(block_iq4_xs, scales_l);
    unsigned scales_h = le16_get(block + offsetof(block_iq4_xs, scales_h));
    out->d[run] = half_at(block, offsetof(block_iq4_xs, d));
    for (size_t j = 0; j < 8; j++) {
        const uint8_t *qs = block + offsetof(block_iq4_xs, qs) + 16 * j;
        int scale = (scales_l[j / 2] >> 4 * (j % 2) & 15) | (int)(scales_h >> 2 * j & 3u) << 4;
        out->sc[run + 2 * j] = (int16_t)(scale - 32);
        out->sc[run + 2 * j + 1] = (int16_t)(scale - 32);
        for (size_t l = 0; l < 16; l++) {
            out->q[at + 32 * j + l] = matmul_iq4_values[qs[l] & 15];
            out->q[at + 32 * j + 16 + l] = matmul_iq4_values[qs[l] >> 4];
        }
    }
}

/* A format whose only scale is d. */
static void put_single_scale(float d, size_t run, matmul_codes *out)
{
    out->d[run] = d;
    for (size_t j = 0; j < RUNS; j++) {
        out->sc[run + j] = 1;
    }
}

/* n bytes of n_trits base-3 digits each; digit k of byte m is value k * n + m. */
static void put_trits(const uint8_t *bytes, size_t n, size_t n_trits, int16_t *q)
{
    static const uint8_t power[5] = {1, 3, 9, 27, 81};
    for (size_t k = 0; k < n_trits; k++) {
        for (size_t m = 0; m < n; m++) {
            uint8_t rest = (uint8_t)(bytes[m] * power[k]); /* the digits before are shifted out at the top */
            q[k * n + m] = (int16_t)((rest * 3 >> 8) - 1);
        }
    }
}

static void decode_tq1_0(const uint8_t *block, size_t at, matmul_codes *out)
{
    const uint8_t *qs = block + offsetof(block_tq1_0, qs);
    put_single_scale(half_at(block, offsetof(block_tq1_0, d)), at / MATMUL_RUN, out);
    put_trits(qs, 32, 5, out->q + at);
    put_trits(qs + 32, 16, 5, out->q + at + 160);
    put_trits(block + offsetof(block_tq1_0, qh), 4, 4, out->q + at + 240);
}

static void decode_tq2_0(const uint8_t *block, size_t at, matmul_codes *out)
{
    put_single_scale(half_at(block, offsetof(block_tq2_0, d)), at / MATMUL_RUN, out);
    put_two_bits(block + offsetof(block_tq2_0, qs), 1, out->q + at);
}

matmul_format matmul_format_q256(gguf_type type)
{
    switch ((int)type) {
    case GGUF_TYPE_Q2_K:
        return (matmul_format){.decode = decode_q2_k, .has_min = true};
    case GGUF_TYPE_Q3_K:
        return (matmul_format){.decode = decode_q3_k};
    case GGUF_TYPE_Q4_K:
        return (matmul_format){.decode = decode_q4_k, .has_min = true};
    case GGUF_TYPE_Q5_K:
        return (matmul_format){.decode = decode_q5_k, .has_min = true};
    case GGUF_TYPE_Q6_K:
        return (matmul_format){.decode = decode_q6_k};
    case GGUF_TYPE_IQ4_XS:
        return (matmul_format){.decode = decode_iq4_xs};
    case GGUF_TYPE_TQ1_0:
        return (matmul_format){.decode = decode_tq1_0};
    case GGUF_TYPE_TQ2_0:
        return (matmul_format){.decode = decode_tq2_0};
    default:
        return matmul_format_grid(type);
    }
}
