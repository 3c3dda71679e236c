/* Values to blocks of the K formats: a fit per sub-block, then integer scales that share d (and dmin), then
 * codes against the scales as stored. */
#include <math.h>
#include <string.h>

#include "base/fp16.h"
#include "gguf/quant_fit.h"
#include "gguf/quant_int.h"

#define SYMMETRIC_TRIALS 19 /* the extreme value on -(n - 0.9) to -(n + 0.9) */

typedef struct affine_block { /* what the formats with minima share; as many sub-blocks as the format has */
    quant_affine fit[16];
    int scale[16], min[16];
    uint16_t d, dmin; /* as stored */
    double d_value, dmin_value;
} affine_block;

/* n_sub fits of 256 / n_sub values with codes 0..max_code, and their scales and minima in 0..max_scale. */
static void affine_block_fit(affine_block *a, const float *x, size_t n_sub, int max_code, int max_scale)
{
    double top_scale = 0, top_min = 0;
    for (size_t j = 0; j < n_sub; j++) {
        a->fit[j] = quant_fit_affine(x + 256 / n_sub * j, 256 / n_sub, max_code, false);
        top_scale = fmax(top_scale, a->fit[j].scale);
        top_min = fmax(top_min, a->fit[j].min);
    }
    a->d = quant_fit_fp16(top_scale / max_scale);
    a->dmin = quant_fit_fp16(top_min / max_scale);
    a->d_value = (double)fp16_to_f32(a->d);
    a->dmin_value = (double)fp16_to_f32(a->dmin);
    for (size_t j = 0; j < n_sub; j++) {
        a->scale[j] = quant_fit_code(a->fit[j].scale, a->d_value, 0, max_scale);
        a->min[j] = quant_fit_code(a->fit[j].min, a->dmin_value, 0, max_scale);
    }
}

static int affine_code(const affine_block *a, size_t j, float x, int max_code)
{
    return quant_fit_code((double)x + a->dmin_value * a->min[j], a->d_value * a->scale[j], 0, max_code);
}

/* The squared error of sub-block j of 16 values with another scale and minimum. */
static double q2_error(const affine_block *a, const float *x, int scale, int min)
{
    double sub_d = a->d_value * scale, sub_min = a->dmin_value * min, sum = 0;
    for (size_t i = 0; i < 16; i++) {
        double diff = sub_d * quant_fit_code((double)x[i] + sub_min, sub_d, 0, 3) - sub_min - (double)x[i];
        sum += diff * diff;
    }
    return sum;
}

/* Four bits round a scale by up to a half: a neighbour of the pair can fit better than the nearest. */
static void q2_refine(affine_block *a, const float *x, size_t j)
{
    int scale = a->scale[j], min = a->min[j];
    double best = q2_error(a, x, scale, min);
    for (int t = 0; t < 9; t++) {
        int s = scale + t / 3 - 1, m = min + t % 3 - 1;
        if (s < 0 || s > 15 || m < 0 || m > 15) {
            continue;
        }
        double error = q2_error(a, x, s, m);
        if (error < best) {
            best = error;
            a->scale[j] = s;
            a->min[j] = m;
        }
    }
}

void quant_encode_q2_k(const float *x, void *block)
{
    block_q2_k *b = block;
    affine_block a;
    memset(b, 0, sizeof *b);
    affine_block_fit(&a, x, 16, 3, 15);
    b->d = a.d;
    b->dmin = a.dmin;
    for (size_t j = 0; j < 16; j++) {
        q2_refine(&a, x + 16 * j, j);
        b->scales[j] = (uint8_t)(a.scale[j] | a.min[j] << 4);
    }
    for (size_t i = 0; i < 256; i++) {
        int code = affine_code(&a, i / 16, x[i], 3);
        b->qs[32 * (i / 128) + i % 32] |= (uint8_t)(code << 2 * (i % 128 / 32));
    }
}

/* The packing that blocks.h draws. */
static void pack_scales_mins(uint8_t *out, const int *scale, const int *min)
{
    for (size_t j = 0; j < 4; j++) {
        out[j] = (uint8_t)(scale[j] | (scale[j + 4] >> 4) << 6);
        out[j + 4] = (uint8_t)(min[j] | (min[j + 4] >> 4) << 6);
        out[j + 8] = (uint8_t)((scale[j + 4] & 15) | (min[j + 4] & 15) << 4);
    }
}

void quant_encode_q4_k(const float *x, void *block)
{
    block_q4_k *b = block;
    affine_block a;
    memset(b, 0, sizeof *b);
    affine_block_fit(&a, x, 8, 15, 63);
    b->d = a.d;
    b->dmin = a.dmin;
    pack_scales_mins(b->scales, a.scale, a.min);
    for (size_t i = 0; i < 256; i++) {
        size_t j = i / 32;
        int code = affine_code(&a, j, x[i], 15);
        b->qs[32 * (j / 2) + i % 32] |= (uint8_t)(j % 2 ? code << 4 : code);
    }
}

void quant_encode_q5_k(const float *x, void *block)
{
    block_q5_k *b = block;
    affine_block a;
    memset(b, 0, sizeof *b);
    affine_block_fit(&a, x, 8, 31, 63);
    b->d = a.d;
    b->dmin = a.dmin;
    pack_scales_mins(b->scales, a.scale, a.min);
    for (size_t i = 0; i < 256; i++) {
        size_t j = i / 32;
        int code = affine_code(&a, j, x[i], 31);
        b->qs[32 * (j / 2) + i % 32] |= (uint8_t)(j % 2 ? (code & 15) << 4 : code & 15);
        b->qh[i % 32] |= (uint8_t)((code >> 4) << j);
    }
}

/* 16 fits of 16 values with codes -half..half - 1, and their scales in -max_scale..max_scale - 1; returns d as
 * stored. */
static uint16_t symmetric_block_fit(const float *x, int half, int max_scale, int *scale)
{
    quant_scale_form form = {
        .lo = -half, .hi = half - 1, .steps = -half, .n_trials = SYMMETRIC_TRIALS, .is_weighted = true};
    double fit[16], extreme = 0;
    for (size_t j = 0; j < 16; j++) {
        fit[j] = quant_fit_scale(x + 16 * j, 16, form);
        extreme = fabs(fit[j]) > fabs(extreme) ? fit[j] : extreme;
    }
    uint16_t d = quant_fit_fp16(extreme / -max_scale);
    for (size_t j = 0; j < 16; j++) {
        scale[j] = quant_fit_code(fit[j], (double)fp16_to_f32(d), -max_scale, max_scale - 1);
    }
    return d;
}

void quant_encode_q3_k(const float *x, void *block)
{
    block_q3_k *b = block;
    int scale[16];
    memset(b, 0, sizeof *b);
    b->d = symmetric_block_fit(x, 4, 32, scale);
    double d = (double)fp16_to_f32(b->d);
    for (size_t j = 0; j < 16; j++) {
        int code = scale[j] + 32;
        b->scales[j % 8] |= (uint8_t)(j < 8 ? code & 15 : (code & 15) << 4);
        b->scales[8 + j % 4] |= (uint8_t)((code >> 4) << 2 * (j / 4));
    }
    for (size_t i = 0; i < 256; i++) {
        size_t group = i / 16;
        int code = quant_fit_code((double)x[i], d * scale[group], -4, 3) + 4;
        b->qs[32 * (i / 128) + i % 32] |= (uint8_t)((code & 3) << 2 * (i % 128 / 32));
        b->hmask[i % 32] |= (uint8_t)((code >> 2) << i / 32);
    }
}

void quant_encode_q6_k(const float *x, void *block)
{
    block_q6_k *b = block;
    int scale[16];
    memset(b, 0, sizeof *b);
    b->d = symmetric_block_fit(x, 32, 128, scale);
    double d = (double)fp16_to_f32(b->d);
    for (size_t i = 0; i < 256; i++) {
        size_t sub = i / 16, half = i / 128, run = i % 128 / 32, l = i % 32;
        b->scales[sub] = (int8_t)scale[sub];
        int code = quant_fit_code((double)x[i], d * scale[sub], -32, 31) + 32;
        b->ql[64 * half + 32 * (run % 2) + l] |= (uint8_t)(run < 2 ? code & 15 : (code & 15) << 4);
        b->qh[32 * half + l] |= (uint8_t)((code >> 4) << (2 * run));
    }
}
