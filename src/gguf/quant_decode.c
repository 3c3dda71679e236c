/* Blocks of 32 values, and of the formats of one to four bits without a grid, to values. */
#include <string.h>

#include "base/fp16.h"
#include "gguf/quant_int.h"
#include "gguf/quant_tables.h"

void quant_decode_q4_0(const void *block, float *y)
{
    const block_q4_0 *b = block;
    float d = fp16_to_f32(b->d);
    for (size_t i = 0; i < 16; i++) {
        y[i] = (float)((b->qs[i] & 15) - 8) * d;
        y[i + 16] = (float)((b->qs[i] >> 4) - 8) * d;
    }
}

void quant_decode_q4_1(const void *block, float *y)
{
    const block_q4_1 *b = block;
    float d = fp16_to_f32(b->d), m = fp16_to_f32(b->m);
    for (size_t i = 0; i < 16; i++) {
        y[i] = (float)(b->qs[i] & 15) * d + m;
        y[i + 16] = (float)(b->qs[i] >> 4) * d + m;
    }
}

/* Code i of Q5_0 and Q5_1, 0..31. */
static int five_bits(const uint8_t *qs, const uint8_t *qh, size_t i)
{
    int low = i < 16 ? qs[i] & 15 : qs[i - 16] >> 4;
    return low | (qh[i / 8] >> i % 8 & 1) << 4;
}

void quant_decode_q5_0(const void *block, float *y)
{
    const block_q5_0 *b = block;
    float d = fp16_to_f32(b->d);
    for (size_t i = 0; i < 32; i++) {
        y[i] = (float)(five_bits(b->qs, b->qh, i) - 16) * d;
    }
}

void quant_decode_q5_1(const void *block, float *y)
{
    const block_q5_1 *b = block;
    float d = fp16_to_f32(b->d), m = fp16_to_f32(b->m);
    for (size_t i = 0; i < 32; i++) {
        y[i] = (float)five_bits(b->qs, b->qh, i) * d + m;
    }
}

void quant_decode_q8_0(const void *block, float *y)
{
    const block_q8_0 *b = block;
    float d = fp16_to_f32(b->d);
    for (size_t i = 0; i < 32; i++) {
        y[i] = (float)b->qs[i] * d;
    }
}

void quant_decode_q1_0(const void *block, float *y)
{
    const block_q1_0 *b = block;
    float d = fp16_to_f32(b->d);
    for (size_t i = 0; i < 128; i++) {
        y[i] = b->qs[i / 8] >> i % 8 & 1 ? d : -d;
    }
}

void quant_decode_q2_0(const void *block, float *y)
{
    const block_q2_0 *b = block;
    float d = fp16_to_f32(b->d);
    for (size_t i = 0; i < 64; i++) {
        y[i] = (float)((b->qs[i / 4] >> 2 * (i % 4) & 3) - 1) * d;
    }
}

/* Trit k of a byte of TQ1_0, 0..2: the first k are shifted out at the top, the next is carried out by 3. */
static int trit(uint8_t byte, size_t k)
{
    static const uint8_t power[5] = {1, 3, 9, 27, 81};
    uint8_t rest = (uint8_t)(byte * power[k]);
    return rest * 3 >> 8;
}

void quant_decode_tq1_0(const void *block, float *y)
{
    const block_tq1_0 *b = block;
    float d = fp16_to_f32(b->d);
    for (size_t i = 0; i < 160; i++) {
        y[i] = (float)(trit(b->qs[i % 32], i / 32) - 1) * d;
    }
    for (size_t i = 0; i < 80; i++) {
        y[160 + i] = (float)(trit(b->qs[32 + i % 16], i / 16) - 1) * d;
    }
    for (size_t i = 0; i < 16; i++) {
        y[240 + i] = (float)(trit(b->qh[i % 4], i / 4) - 1) * d;
    }
}

void quant_decode_tq2_0(const void *block, float *y)
{
    const block_tq2_0 *b = block;
    float d = fp16_to_f32(b->d);
    for (size_t i = 0; i < 256; i++) {
        y[i] = (float)((b->qs[32 * (i / 128) + i % 32] >> 2 * (i % 128 / 32) & 3) - 1) * d;
    }
}

float quant_mxfp4_scale(uint8_t e)
{
    return e < 2 ? f32_from_bits(0x00200000u << e) : f32_from_bits((uint32_t)(e - 1) << 23);
}

void quant_decode_mxfp4(const void *block, float *y)
{
    const block_mxfp4 *b = block;
    float d = quant_mxfp4_scale(b->e);
    for (size_t i = 0; i < 16; i++) {
        y[i] = (float)quant_fp4_values[b->qs[i] & 15] * d;
        y[i + 16] = (float)quant_fp4_values[b->qs[i] >> 4] * d;
    }
}

float quant_nvfp4_scale(uint8_t code)
{
    uint32_t exp = (uint32_t)(code >> 3) & 15u, man = code & 7u;
    if (code == 0x7F) {
        return 0;
    }
    /* bias 7, one more for the half; the smallest step of E4M3 is 2^-9 */
    return exp == 0 ? (float)man * 0x1p-10f : f32_from_bits((exp - 8u + 127u) << 23 | man << 20);
}

void quant_decode_nvfp4(const void *block, float *y)
{
    const block_nvfp4 *b = block;
    for (size_t i = 0; i < 64; i++) {
        uint8_t codes = b->qs[8 * (i / 16) + i % 8];
        y[i] =
            (float)quant_fp4_values[i % 16 < 8 ? codes & 15 : codes >> 4] * quant_nvfp4_scale(b->d[i / 16]);
    }
}

void quant_decode_iq4_nl(const void *block, float *y)
{
    const block_iq4_nl *b = block;
    float d = fp16_to_f32(b->d);
    for (size_t i = 0; i < 16; i++) {
        y[i] = d * (float)quant_iq4_values[b->qs[i] & 15];
        y[i + 16] = d * (float)quant_iq4_values[b->qs[i] >> 4];
    }
}

void quant_decode_iq4_xs(const void *block, float *y)
{
    const block_iq4_xs *b = block;
    float d = fp16_to_f32(b->d);
    for (size_t j = 0; j < 8; j++) {
        int scale = (b->scales_l[j / 2] >> 4 * (j % 2) & 15) | (b->scales_h >> 2 * j & 3) << 4;
        float sub_d = d * (float)(scale - 32);
        for (size_t l = 0; l < 16; l++) {
            y[32 * j + l] = sub_d * (float)quant_iq4_values[b->qs[16 * j + l] & 15];
            y[32 * j + l + 16] = sub_d * (float)quant_iq4_values[b->qs[16 * j + l] >> 4];
        }
    }
}
