/* Values to blocks of one scale (and minimum). Codes are chosen against the scale as stored, after its
 * rounding. */
#include <math.h>
#include <string.h>

#include "base/fp16.h"
#include "gguf/quant_fit.h"
#include "gguf/quant_int.h"

#define Q5_0_TRIALS 19 /* the extreme value on -15.1 to -16.9 */
#define Q2_0_TRIALS 21 /* the extreme value on 1.0 to 3.0 */

void quant_encode_q8_0(const float *x, void *block)
{
    block_q8_0 *b = block;
    b->d = quant_fit_fp16(fabs(quant_fit_extreme(x, 32)) / 127);
    double d = (double)fp16_to_f32(b->d);
    for (size_t i = 0; i < 32; i++) {
        b->qs[i] = (int8_t)quant_fit_code((double)x[i], d, -127, 127);
    }
}

/* Codes 0..15 stand for -8..7: the extreme value gets the end that has eight steps. */
void quant_encode_q4_0(const float *x, void *block)
{
    block_q4_0 *b = block;
    b->d = quant_fit_fp16(quant_fit_extreme(x, 32) / -8);
    double d = (double)fp16_to_f32(b->d);
    for (size_t i = 0; i < 16; i++) {
        int low = quant_fit_code((double)x[i], d, -8, 7) + 8;
        int high = quant_fit_code((double)x[i + 16], d, -8, 7) + 8;
        b->qs[i] = (uint8_t)(low | high << 4);
    }
}

void quant_encode_q4_1(const float *x, void *block)
{
    block_q4_1 *b = block;
    quant_affine fit = quant_fit_affine(x, 32, 15, true);
    b->d = quant_fit_fp16(fit.scale);
    b->m = quant_fit_fp16(-fit.min);
    double d = (double)fp16_to_f32(b->d), m = (double)fp16_to_f32(b->m);
    for (size_t i = 0; i < 16; i++) {
        int low = quant_fit_code((double)x[i] - m, d, 0, 15);
        int high = quant_fit_code((double)x[i + 16] - m, d, 0, 15);
        b->qs[i] = (uint8_t)(low | high << 4);
    }
}

/* Code i, 0..31, into its five bits; the bytes begin as zeros. */
static void put_five_bits(uint8_t *qs, uint8_t *qh, size_t i, int code)
{
    qs[i % 16] |= (uint8_t)(i < 16 ? code & 15 : (code & 15) << 4);
    qh[i / 8] |= (uint8_t)((code >> 4) << i % 8);
}

void quant_encode_q5_0(const float *x, void *block)
{
    block_q5_0 *b = block;
    quant_scale_form form = {.lo = -16, .hi = 15, .steps = -16, .n_trials = Q5_0_TRIALS};
    memset(b, 0, sizeof *b);
    b->d = quant_fit_fp16(quant_fit_scale(x, 32, form));
    double d = (double)fp16_to_f32(b->d);
    for (size_t i = 0; i < 32; i++) {
        put_five_bits(b->qs, b->qh, i, quant_fit_code((double)x[i], d, -16, 15) + 16);
    }
}

void quant_encode_q5_1(const float *x, void *block)
{
    block_q5_1 *b = block;
    quant_affine fit = quant_fit_affine(x, 32, 31, true);
    memset(b, 0, sizeof *b);
    b->d = quant_fit_fp16(fit.scale);
    b->m = quant_fit_fp16(-fit.min);
    double d = (double)fp16_to_f32(b->d), m = (double)fp16_to_f32(b->m);
    for (size_t i = 0; i < 32; i++) {
        put_five_bits(b->qs, b->qh, i, quant_fit_code((double)x[i] - m, d, 0, 31));
    }
}

/* For signs alone the best scale is the mean magnitude. */
void quant_encode_q1_0(const float *x, void *block)
{
    block_q1_0 *b = block;
    double sum = 0;
    memset(b, 0, sizeof *b);
    for (size_t i = 0; i < 128; i++) {
        sum += fabs((double)x[i]);
        b->qs[i / 8] |= (uint8_t)((x[i] >= 0) << i % 8);
    }
    b->d = quant_fit_fp16(sum / 128);
}

/* Codes 0..3 stand for -1..2: the extreme value gets the end that has two steps. */
void quant_encode_q2_0(const float *x, void *block)
{
    block_q2_0 *b = block;
    quant_scale_form form = {.lo = -1, .hi = 2, .steps = 2, .n_trials = Q2_0_TRIALS};
    memset(b, 0, sizeof *b);
    b->d = quant_fit_fp16(quant_fit_scale(x, 64, form));
    double d = (double)fp16_to_f32(b->d);
    for (size_t i = 0; i < 64; i++) {
        b->qs[i / 4] |= (uint8_t)((quant_fit_code((double)x[i], d, -1, 2) + 1) << 2 * (i % 4));
    }
}

void quant_encode_tq2_0(const float *x, void *block)
{
    block_tq2_0 *b = block;
    memset(b, 0, sizeof *b);
    b->d = quant_fit_fp16(quant_fit_ternary(x, 256));
    double d = (double)fp16_to_f32(b->d);
    for (size_t i = 0; i < 256; i++) {
        int code = quant_fit_code((double)x[i], d, -1, 1) + 1;
        b->qs[32 * (i / 128) + i % 32] |= (uint8_t)(code << 2 * (i % 128 / 32));
    }
}

/* Five trits (or four and a zero) of values `stride` apart, the first the most significant: blocks.h. */
static uint8_t pack_trits(const float *x, size_t n, size_t stride, double d)
{
    int sum = 0;
    for (size_t k = 0; k < 5; k++) {
        sum = 3 * sum + (k < n ? quant_fit_code((double)x[k * stride], d, -1, 1) + 1 : 0);
    }
    return (uint8_t)((sum * 256 + 242) / 243);
}

void quant_encode_tq1_0(const float *x, void *block)
{
    block_tq1_0 *b = block;
    b->d = quant_fit_fp16(quant_fit_ternary(x, 256));
    double d = (double)fp16_to_f32(b->d);
    for (size_t m = 0; m < 32; m++) {
        b->qs[m] = pack_trits(x + m, 5, 32, d);
    }
    for (size_t m = 0; m < 16; m++) {
        b->qs[32 + m] = pack_trits(x + 160 + m, 5, 16, d);
    }
    for (size_t m = 0; m < 4; m++) {
        b->qh[m] = pack_trits(x + 240 + m, 4, 4, d);
    }
}
