/*
 * Blocks whose activations come in blocks of 32, to integers (layouts: gguf/blocks.h). The formats with a
 * codebook of halves (MXFP4, NVFP4) have their values doubled and the 1/2 in d.
 */
#include "base/fp16.h"
#include "base/le.h"
#include "kern/ref/matmul_codes.h"

static const int16_t fp4_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

const int16_t matmul_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                       1,    13,   25,  38,  53,  69,  89,  113};

/* Sixteen bytes: values 0 to 15 are the low nibbles, 16 to 31 the high ones. */
static void put_nibbles(const uint8_t *qs, int less, int16_t *q)
{
    for (size_t i = 0; i < 16; i++) {
        q[i] = (int16_t)((qs[i] & 15) - less);
        q[16 + i] = (int16_t)((qs[i] >> 4) - less);
    }
}

/* The fifth bit of value i is bit i of qh. */
static void put_fifth_bits(const uint8_t *qh, int16_t *q)
{
    uint32_t bits = le32_get(qh);
    for (size_t i = 0; i < 32; i++) {
        q[i] = (int16_t)(q[i] + (int16_t)((bits >> i & 1u) << 4));
    }
}

static void put_looked_up(const uint8_t *qs, const int16_t *values, int16_t *q)
{
    for (size_t i = 0; i < 16; i++) {
        q[i] = values[qs[i] & 15];
        q[16 + i] = values[qs[i] >> 4];
    }
}

static void decode_q4_0(const uint8_t *block, size_t at, matmul_codes *out)
{
    out->d[at / MATMUL_RUN] = fp16_to_f32(le16_get(block));
    put_nibbles(block + offsetof(block_q4_0, qs), 8, out->q + at);
}

static void decode_q4_1(const uint8_t *block, size_t at, matmul_codes *out)
{
    out->d[at / MATMUL_RUN] = fp16_to_f32(le16_get(block));
    out->min[at / MATMUL_RUN] = fp16_to_f32(le16_get(block + offsetof(block_q4_1, m)));
    put_nibbles(block + offsetof(block_q4_1, qs), 0, out->q + at);
}

static void decode_q5_0(const uint8_t *block, size_t at, matmul_codes *out)
{
    out->d[at / MATMUL_RUN] = fp16_to_f32(le16_get(block));
    put_nibbles(block + offsetof(block_q5_0, qs), 16, out->q + at);
    put_fifth_bits(block + offsetof(block_q5_0, qh), out->q + at);
}

static void decode_q5_1(const uint8_t *block, size_t at, matmul_codes *out)
{
    out->d[at / MATMUL_RUN] = fp16_to_f32(le16_get(block));
    out->min[at / MATMUL_RUN] = fp16_to_f32(le16_get(block + offsetof(block_q5_1, m)));
    put_nibbles(block + offsetof(block_q5_1, qs), 0, out->q + at);
    put_fifth_bits(block + offsetof(block_q5_1, qh), out->q + at);
}

static void decode_q8_0(const uint8_t *block, size_t at, matmul_codes *out)
{
    const int8_t *qs = (const int8_t *)(block + offsetof(block_q8_0, qs));
    out->d[at / MATMUL_RUN] = fp16_to_f32(le16_get(block));
    for (size_t i = 0; i < 32; i++) {
        out->q[at + i] = (int16_t)qs[i];
    }
}

static void decode_iq4_nl(const uint8_t *block, size_t at, matmul_codes *out)
{
    out->d[at / MATMUL_RUN] = fp16_to_f32(le16_get(block));
    put_looked_up(block + offsetof(block_iq4_nl, qs), matmul_iq4_values, out->q + at);
}

/* 2^(e - 128); the two smallest are denormal. */
static float mxfp4_scale(uint8_t e)
{
    return e < 2 ? f32_from_bits(0x00200000u << e) : f32_from_bits((uint32_t)(e - 1) << 23);
}

static void decode_mxfp4(const uint8_t *block, size_t at, matmul_codes *out)
{
    out->d[at / MATMUL_RUN] = mxfp4_scale(block[offsetof(block_mxfp4, e)]);
    put_looked_up(block + offsetof(block_mxfp4, qs), fp4_values, out->q + at);
}

/* Half of an unsigned E4M3 float (bias 7, the top bit without a meaning); its NaN counts as zero. */
static float nvfp4_scale(uint8_t code)
{
    uint32_t exponent = (code >> 3) & 15u;
    uint32_t fraction = code & 7u;
    if (code == 0x7F) {
        return 0.0f;
    }
    return exponent == 0 ? (float)fraction * 0x1p-10f
                         : f32_from_bits((exponent + 119u) << 23 | fraction << 20);
}

static void decode_nvfp4(const uint8_t *block, size_t at, matmul_codes *out)
{
    for (size_t s = 0; s < 4; s++) {
        const uint8_t *qs = block + offsetof(block_nvfp4, qs) + 8 * s;
        int16_t *q = out->q + at + 16 * s;
        out->d[at / MATMUL_RUN + s] = nvfp4_scale(block[s]);
        for (size_t i = 0; i < 8; i++) {
            q[i] = fp4_values[qs[i] & 15];
            q[8 + i] = fp4_values[qs[i] >> 4];
        }
    }
}

/* One scale for all activation blocks of 32 that the block of n values covers. */
static void put_wide_scale(const uint8_t *block, size_t at, size_t n, matmul_codes *out)
{
    for (size_t i = 0; i < n; i += 32) {
        out->d[(at + i) / MATMUL_RUN] = fp16_to_f32(le16_get(block));
    }
}

static void decode_q1_0(const uint8_t *block, size_t at, matmul_codes *out)
{
    const uint8_t *qs = block + offsetof(block_q1_0, qs);
    put_wide_scale(block, at, 128, out);
    for (size_t i = 0; i < 128; i++) {
        out->q[at + i] = (int16_t)((qs[i / 8] >> i % 8 & 1) * 2 - 1);
    }
}

static void decode_q2_0(const uint8_t *block, size_t at, matmul_codes *out)
{
    const uint8_t *qs = block + offsetof(block_q2_0, qs);
    put_wide_scale(block, at, 64, out);
    for (size_t i = 0; i < 64; i++) {
        out->q[at + i] = (int16_t)((qs[i / 4] >> 2 * (i % 4) & 3) - 1);
    }
}

matmul_format matmul_format_q32(gguf_type type)
{
    switch ((int)type) {
    case GGUF_TYPE_Q4_0:
        return (matmul_format){.decode = decode_q4_0};
    case GGUF_TYPE_Q4_1:
        return (matmul_format){.decode = decode_q4_1, .has_min = true};
    case GGUF_TYPE_Q5_0:
        return (matmul_format){.decode = decode_q5_0};
    case GGUF_TYPE_Q5_1:
        return (matmul_format){.decode = decode_q5_1, .has_min = true};
    case GGUF_TYPE_Q8_0:
        return (matmul_format){.decode = decode_q8_0};
    case GGUF_TYPE_IQ4_NL:
        return (matmul_format){.decode = decode_iq4_nl};
    case GGUF_TYPE_MXFP4:
        return (matmul_format){.decode = decode_mxfp4};
    case GGUF_TYPE_NVFP4:
        return (matmul_format){.decode = decode_nvfp4, .d_per_run = true};
    case GGUF_TYPE_Q1_0:
        return (matmul_format){.decode = decode_q1_0};
    case GGUF_TYPE_Q2_0:
        return (matmul_format){.decode = decode_q2_0};
    default:
        return (matmul_format){0};
    }
}
