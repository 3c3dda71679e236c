/* Blocks of the K formats (256 values, integer scales per sub-block) to values. */
#include "base/fp16.h"
#include "gguf/quant_int.h"

/* Bits 2 r, 2 r + 1 of the byte that value i shares with three others, r = its run of 32 in its half. */
static unsigned two_bits(const uint8_t *qs, size_t i)
{
    return qs[32 * (i / 128) + i % 32] >> 2 * (i % 128 / 32) & 3u;
}

void quant_decode_q2_k(const void *block, float *y)
{
    const block_q2_k *b = block;
    float d = fp16_to_f32(b->d), dmin = fp16_to_f32(b->dmin);
    for (size_t i = 0; i < 256; i++) {
        float sub_d = d * (float)(b->scales[i / 16] & 15);
        float sub_min = dmin * (float)(b->scales[i / 16] >> 4);
        y[i] = sub_d * (float)two_bits(b->qs, i) - sub_min;
    }
}

void quant_decode_q3_k(const void *block, float *y)
{
    const block_q3_k *b = block;
    float d = fp16_to_f32(b->d);
    for (size_t i = 0; i < 256; i++) {
        size_t j = i / 16;
        unsigned low = j < 8 ? b->scales[j] & 15u : (unsigned)b->scales[j - 8] >> 4;
        unsigned high = b->scales[8 + j % 4] >> 2 * (j / 4) & 3u;
        float sub_d = d * (float)((int)(low | high << 4) - 32);
        unsigned third = b->hmask[i % 32] >> i / 32 & 1u;
        y[i] = sub_d * (float)((int)(two_bits(b->qs, i) | third << 2) - 4);
    }
}

/* Six-bit scale and minimum of sub-block j: blocks.h has the drawing. */
static void scale_min(const uint8_t *s, size_t j, unsigned *scale, unsigned *min)
{
    if (j < 4) {
        *scale = s[j] & 63u;
        *min = s[j + 4] & 63u;
    } else {
        *scale = (s[j + 4] & 15u) | (unsigned)(s[j - 4] >> 6) << 4;
        *min = (unsigned)(s[j + 4] >> 4) | (unsigned)(s[j] >> 6) << 4;
    }
}

void quant_decode_q4_k(const void *block, float *y)
{
    const block_q4_k *b = block;
    float d = fp16_to_f32(b->d), dmin = fp16_to_f32(b->dmin);
    for (size_t j = 0; j < 8; j++) {
        unsigned scale, min;
        scale_min(b->scales, j, &scale, &min);
        float sub_d = d * (float)scale, sub_min = dmin * (float)min;
        const uint8_t *q = b->qs + 32 * (j / 2);
        for (size_t l = 0; l < 32; l++) {
            y[32 * j + l] = sub_d * (float)(j % 2 ? q[l] >> 4 : q[l] & 15) - sub_min;
        }
    }
}

void quant_decode_q5_k(const void *block, float *y)
{
    const block_q5_k *b = block;
    float d = fp16_to_f32(b->d), dmin = fp16_to_f32(b->dmin);
    for (size_t j = 0; j < 8; j++) {
        unsigned scale, min;
        scale_min(b->scales, j, &scale, &min);
        float sub_d = d * (float)scale, sub_min = dmin * (float)min;
        const uint8_t *q = b->qs + 32 * (j / 2);
        for (size_t l = 0; l < 32; l++) {
            int code = (j % 2 ? q[l] >> 4 : q[l] & 15) | (b->qh[l] >> j & 1) << 4;
            y[32 * j + l] = sub_d * (float)code - sub_min;
        }
    }
}

void quant_decode_q6_k(const void *block, float *y)
{
    const block_q6_k *b = block;
    float d = fp16_to_f32(b->d);
    for (size_t i = 0; i < 256; i++) {
        size_t sub = i / 16, half = i / 128, run = i % 128 / 32,
               l = i % 32; /* run: which of the four 32-runs of the half */
        unsigned low = b->ql[64 * half + 32 * (run % 2) + l];
        unsigned high = b->qh[32 * half + l] >> (2 * run);
        int q = (int)((run < 2 ? low & 15u : low >> 4) | (high & 3u) << 4) - 32;
        y[i] = d * (float)b->scales[sub] * (float)q;
    }
}
