/* Values to blocks whose codes stand for uneven values: IQ4_NL, IQ4_XS, MXFP4, NVFP4. */
#include <math.h>
#include <string.h>

#include "base/fp16.h"
#include "gguf/quant_fit.h"
#include "gguf/quant_int.h"
#include "gguf/quant_tables.h"

#define E8M0_MAX 252 /* 6 * 2^125: with a larger scale some codes would overflow to infinity */
#define E4M3_MAX 0x7E
/* Trial scales of NVFP4 around the one that puts the extreme on 6. Eight codes make an octave, so that five above
 * put it on 4, where the values are denser. */
#define NVFP4_BELOW     3
#define NVFP4_ABOVE     5
#define FP4_MAX_DOUBLED 12

static uint8_t iq4_code(float x, double d)
{
    return d == 0 ? 0 : (uint8_t)quant_fit_nearest((double)x / d, quant_iq4_values, 16);
}

void quant_encode_iq4_nl(const float *x, void *block)
{
    block_iq4_nl *b = block;
    b->d = quant_fit_fp16(quant_fit_codebook(x, 32, quant_iq4_values));
    double d = (double)fp16_to_f32(b->d);
    for (size_t i = 0; i < 16; i++) {
        b->qs[i] = (uint8_t)(iq4_code(x[i], d) | iq4_code(x[i + 16], d) << 4);
    }
}

void quant_encode_iq4_xs(const float *x, void *block)
{
    block_iq4_xs *b = block;
    double fit[8], extreme = 0;
    memset(b, 0, sizeof *b);
    for (size_t j = 0; j < 8; j++) {
        fit[j] = quant_fit_codebook(x + 32 * j, 32, quant_iq4_values);
        extreme = fabs(fit[j]) > fabs(extreme) ? fit[j] : extreme;
    }
    b->d = quant_fit_fp16(extreme / -32);
    double d = (double)fp16_to_f32(b->d);
    for (size_t j = 0; j < 8; j++) {
        int scale = quant_fit_code(fit[j], d, -32, 31);
        b->scales_l[j / 2] |= (uint8_t)(((scale + 32) & 15) << 4 * (j % 2));
        b->scales_h |= (uint16_t)((scale + 32) >> 4 << 2 * j);
        for (size_t l = 0; l < 16; l++) {
            const float *pair = x + 32 * j + l;
            b->qs[16 * j + l] = (uint8_t)(iq4_code(pair[0], d * scale) | iq4_code(pair[16], d * scale) << 4);
        }
    }
}

/* The nearest of quant_fp4_values; d is the halved scale. */
static uint8_t fp4_code(float x, double d)
{
    size_t magnitude = d == 0 ? 0 : quant_fit_nearest(fabs((double)x) / d, quant_fp4_values, 8);
    return (uint8_t)(magnitude | (x < 0 && magnitude > 0 ? 8u : 0u));
}

static double fp4_error(const float *x, size_t n, double d)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double diff = d * quant_fp4_values[fp4_code(x[i], d)] - (double)x[i];
        sum += diff * diff;
    }
    return sum;
}

/* The scale is a power of two: one at which the largest value is within range, and the one below. */
void quant_encode_mxfp4(const float *x, void *block)
{
    block_mxfp4 *b = block;
    double extreme = fabs(quant_fit_extreme(x, 32));
    int e = 0;
    while (e < E8M0_MAX && (double)quant_mxfp4_scale((uint8_t)e) * FP4_MAX_DOUBLED < extreme) {
        e++;
    }
    if (e > 0 && fp4_error(x, 32, (double)quant_mxfp4_scale((uint8_t)(e - 1))) <
                     fp4_error(x, 32, (double)quant_mxfp4_scale((uint8_t)e))) {
        e--;
    }
    b->e = (uint8_t)e;
    double d = (double)quant_mxfp4_scale(b->e);
    for (size_t i = 0; i < 16; i++) {
        b->qs[i] = (uint8_t)(fp4_code(x[i], d) | fp4_code(x[i + 16], d) << 4);
    }
}

/* One scale of NVFP4 for 16 values: of those around the first at which the largest is within range. */
static uint8_t nvfp4_fit(const float *x)
{
    double extreme = fabs(quant_fit_extreme(x, 16)), best_error = HUGE_VAL;
    int top = 0, best = 0;
    while (top < E4M3_MAX && (double)quant_nvfp4_scale((uint8_t)top) * FP4_MAX_DOUBLED < extreme) {
        top++;
    }
    int first = top < NVFP4_BELOW ? 0 : top - NVFP4_BELOW;
    int last = top > E4M3_MAX - NVFP4_ABOVE ? E4M3_MAX : top + NVFP4_ABOVE;
    for (int code = first; code <= last; code++) {
        double error = fp4_error(x, 16, (double)quant_nvfp4_scale((uint8_t)code));
        if (error < best_error) {
            best_error = error;
            best = code;
        }
    }
    return (uint8_t)best;
}

void quant_encode_nvfp4(const float *x, void *block)
{
    block_nvfp4 *b = block;
    for (size_t s = 0; s < 4; s++) {
        b->d[s] = nvfp4_fit(x + 16 * s);
        double d = (double)quant_nvfp4_scale(b->d[s]);
        for (size_t l = 0; l < 8; l++) {
            const float *pair = x + 16 * s + l;
            b->qs[8 * s + l] = (uint8_t)(fp4_code(pair[0], d) | fp4_code(pair[8], d) << 4);
        }
    }
}
