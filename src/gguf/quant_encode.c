/*
 * Values to blocks. All fits are done in double, in a fixed order, so that a row gives the same bytes
 * everywhere and no finite input overflows on the way; scales beyond what binary16 holds are cut to its
 * largest value. Codes are chosen against the scale as stored, after its rounding.
 *
 * Q4_K and Q6_K: for several trial scales, codes are rounded and the scale (and minimum) that is best for
 * these codes is solved by weighted least squares; the trial with the least weighted error wins.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/fp16.h"
#include "gguf/quant.h"

#define FP16_MAX    65504.0
#define Q4_K_TRIALS 21 /* trial ranges of 14.0 to 16.0 steps */
#define Q6_K_MIDDLE 9  /* the trial of 32.0 steps */
#define Q6_K_TRIALS 19 /* trial ranges of 31.1 to 32.9 steps */
#define TRIAL_STEP  0.1

static uint16_t scale_to_fp16(double d)
{
    uint16_t half = fp16_from_f32((float)fmax(-FP16_MAX, fmin(FP16_MAX, d)));
    return half == 0x8000u ? 0 : half; /* a block of zeros decodes to +0 */
}

/* x / d to the nearest code, halves upwards, within [lo, hi]; 0 where the scale is 0. */
static int code_of(double x, double d, int lo, int hi)
{
    double v = d == 0 ? 0 : floor(x / d + 0.5);
    return v <= lo ? lo : v >= hi ? hi : (int)v;
}

/* The value of largest magnitude, with its sign. */
static double extreme_of(const float *x, size_t n)
{
    double best = 0;
    for (size_t i = 0; i < n; i++) {
        if (fabs((double)x[i]) > fabs(best)) {
            best = (double)x[i];
        }
    }
    return best;
}

static void quantise_q8_0(const float *x, block_q8_0 *b)
{
    b->d = scale_to_fp16(fabs(extreme_of(x, 32)) / 127);
    double d = (double)fp16_to_f32(b->d);
    for (size_t i = 0; i < 32; i++) {
        b->qs[i] = (int8_t)code_of((double)x[i], d, -127, 127);
    }
}

/* Codes 0..15 stand for -8..7: the extreme value gets the end that has eight steps. */
static void quantise_q4_0(const float *x, block_q4_0 *b)
{
    b->d = scale_to_fp16(extreme_of(x, 32) / -8);
    double d = (double)fp16_to_f32(b->d);
    for (size_t i = 0; i < 16; i++) {
        int low = code_of((double)x[i], d, -8, 7) + 8;
        int high = code_of((double)x[i + 16], d, -8, 7) + 8;
        b->qs[i] = (uint8_t)(low | high << 4);
    }
}

typedef struct affine { /* value = scale * code - min, both not negative */
    double scale;
    double min;
} affine;

/* Best scale and minimum for given codes; false if the codes do not determine them. */
static bool affine_solve(const float *x, const double *w, const int *code, size_t n, affine *out)
{
    double sw = 0, sx = 0, sl = 0, sll = 0, sxl = 0;
    for (size_t i = 0; i < n; i++) {
        double v = (double)x[i], l = code[i];
        sw += w[i];
        sx += w[i] * v;
        sl += w[i] * l;
        sll += w[i] * l * l;
        sxl += w[i] * l * v;
    }
    double det = sw * sll - sl * sl;
    if (!(det > 0)) {
        return false;
    }
    out->scale = (sw * sxl - sx * sl) / det;
    out->min = -(sll * sx - sl * sxl) / det;
    if (out->min < 0) { /* the format only subtracts: without a minimum, the scale alone */
        out->min = 0;
        out->scale = sxl / sll;
    }
    return out->scale > 0;
}

static double affine_error(const float *x, const double *w, const int *code, size_t n, affine a)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double diff = a.scale * code[i] - a.min - (double)x[i];
        sum += w[i] * diff * diff;
    }
    return sum;
}

/* Weights favour large values: they matter more in a product with the same activations. */
static affine affine_fit(const float *x, size_t n)
{
    double lo = 0, hi = (double)x[0], square = 0, w[32];
    int code[32];
    for (size_t i = 0; i < n; i++) {
        lo = fmin(lo, (double)x[i]);
        hi = fmax(hi, (double)x[i]);
        square += (double)x[i] * (double)x[i];
    }
    if (hi <= lo) {
        return (affine){0, -lo};
    }
    for (size_t i = 0; i < n; i++) {
        w[i] = sqrt(square / (double)n) + fabs((double)x[i]);
    }
    affine best = {(hi - lo) / 15, -lo};
    double best_error = HUGE_VAL;
    for (int trial = 0; trial < Q4_K_TRIALS; trial++) {
        double step = (hi - lo) / (14.0 + TRIAL_STEP * trial);
        affine a;
        for (size_t i = 0; i < n; i++) {
            code[i] = code_of((double)x[i] - lo, step, 0, 15);
        }
        if (!affine_solve(x, w, code, n, &a)) {
            continue;
        }
        double error = affine_error(x, w, code, n, a);
        if (error < best_error) {
            best_error = error;
            best = a;
        }
    }
    return best;
}

/* The packing that blocks.h draws. */
static void q4_k_pack_scales(uint8_t *out, const int *scale, const int *min)
{
    for (size_t j = 0; j < 4; j++) {
        out[j] = (uint8_t)(scale[j] | (scale[j + 4] >> 4) << 6);
        out[j + 4] = (uint8_t)(min[j] | (min[j + 4] >> 4) << 6);
        out[j + 8] = (uint8_t)((scale[j + 4] & 15) | (min[j + 4] & 15) << 4);
    }
}

static void quantise_q4_k(const float *x, block_q4_k *b)
{
    affine fit[8];
    int scale[8], min[8];
    double max_scale = 0, max_min = 0;
    for (size_t j = 0; j < 8; j++) {
        fit[j] = affine_fit(x + 32 * j, 32);
        max_scale = fmax(max_scale, fit[j].scale);
        max_min = fmax(max_min, fit[j].min);
    }
    b->d = scale_to_fp16(max_scale / 63);
    b->dmin = scale_to_fp16(max_min / 63);
    double d = (double)fp16_to_f32(b->d), dmin = (double)fp16_to_f32(b->dmin);
    for (size_t j = 0; j < 8; j++) {
        scale[j] = code_of(fit[j].scale, d, 0, 63);
        min[j] = code_of(fit[j].min, dmin, 0, 63);
    }
    q4_k_pack_scales(b->scales, scale, min);
    memset(b->qs, 0, sizeof b->qs);
    for (size_t i = 0; i < 256; i++) {
        size_t j = i / 32;
        int code = code_of((double)x[i] + dmin * min[j], d * scale[j], 0, 15);
        b->qs[32 * (j / 2) + i % 32] |= (uint8_t)(j % 2 ? code << 4 : code);
    }
}

/* Symmetric: value = scale * code, code -32..31; the scale may be negative so that the extreme can be -32. */
static double symmetric_fit(const float *x, size_t n)
{
    double extreme = extreme_of(x, n), best = 0, best_gain = 0;
    for (int trial = 0; trial < Q6_K_TRIALS; trial++) {
        double d = extreme / -(32 + TRIAL_STEP * (trial - Q6_K_MIDDLE));
        double sll = 0, sxl = 0;
        for (size_t i = 0; i < n; i++) {
            double v = (double)x[i], w = v * v;
            int l = code_of(v, d, -32, 31);
            sll += w * l * l;
            sxl += w * l * v;
        }
        /* with scale = sxl / sll the weighted error is constant - sxl^2 / sll */
        if (sll > 0 && sxl * (sxl / sll) > best_gain) {
            best_gain = sxl * (sxl / sll);
            best = sxl / sll;
        }
    }
    return best;
}

static void quantise_q6_k(const float *x, block_q6_k *b)
{
    double fit[16], extreme = 0;
    for (size_t j = 0; j < 16; j++) {
        fit[j] = symmetric_fit(x + 16 * j, 16);
        extreme = fabs(fit[j]) > fabs(extreme) ? fit[j] : extreme;
    }
    b->d = scale_to_fp16(extreme / -128);
    double d = (double)fp16_to_f32(b->d);
    for (size_t j = 0; j < 16; j++) {
        b->scales[j] = (int8_t)code_of(fit[j], d, -128, 127);
    }
    memset(b->ql, 0, sizeof b->ql);
    memset(b->qh, 0, sizeof b->qh);
    for (size_t i = 0; i < 256; i++) {
        size_t sub = i / 16, half = i / 128, run = i % 128 / 32, l = i % 32;
        int code = code_of((double)x[i], d * b->scales[sub], -32, 31) + 32;
        b->ql[64 * half + 32 * (run % 2) + l] |= (uint8_t)(run < 2 ? code & 15 : (code & 15) << 4);
        b->qh[32 * half + l] |= (uint8_t)((code >> 4) << (2 * run));
    }
}

void quant_quantise(gguf_type type, const float *x, void *blocks, size_t n)
{
    uint8_t *p = blocks;
    gguf_type_info info = gguf_type_info_of((uint32_t)type);
    if (type == GGUF_TYPE_F32) {
        memcpy(blocks, x, n * sizeof *x);
        return;
    }
    for (size_t i = 0; i < n; i += info.block_values, p += info.block_bytes) {
        uint16_t half;
        switch (type) {
        case GGUF_TYPE_F16:
        case GGUF_TYPE_BF16:
            half = type == GGUF_TYPE_F16 ? fp16_from_f32(x[i]) : bf16_from_f32(x[i]);
            memcpy(p, &half, sizeof half);
            break;
        case GGUF_TYPE_Q8_0:
            quantise_q8_0(x + i, (block_q8_0 *)p);
            break;
        case GGUF_TYPE_Q4_0:
            quantise_q4_0(x + i, (block_q4_0 *)p);
            break;
        case GGUF_TYPE_Q4_K:
            quantise_q4_k(x + i, (block_q4_k *)p);
            break;
        case GGUF_TYPE_Q6_K:
            quantise_q6_k(x + i, (block_q6_k *)p);
            break;
        default:
            assert(!"type is not supported");
            return;
        }
    }
}
