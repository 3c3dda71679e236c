/*
 * Products with float weights (DESIGN 4 rule 2).
 *
 * F32 and F16: one fp32 accumulator, fma, k ascending.
 *
 * BF16 is the bf16 matrix unit's own rule (Intel SDM, TDPBF16PS): per 32 k one fma chain over the even and
 * one over the odd elements, each from +0; their sum is added to the accumulator. Denormal inputs count as
 * zero and tiny results become zero, the sign kept, after each operation. "Tiny" is judged as x86 judges it:
 * after rounding to 24 bits as if the exponent had no lower bound. So a result that the denormal grid would
 * round up to 2^-126 is still flushed when 24 bits would have left it below. Measured on a Sapphire Rapids
 * tile unit: with this 0 of 5,120,000 outputs differ, a quarter of them made to lie on that edge; with a
 * plain comparison 7 %.
 */
#include <math.h>

#include "base/fp16.h"
#include "base/le.h"
#include "kern/ref/matmul_ref.h"

#define BF16_RUN   32 /* k per pair of chains */
#define MIN_NORMAL 0x1p-126f
/* Magnitudes below this round to less than 2^-126 in 24 bits; this one itself is a tie and rounds up, to
 * even. */
#define TINY_BELOW (0x1p-126 * (1.0 - 0x1p-25))

static float dot_f32(const uint8_t *row, const kern_act *a, size_t r)
{
    const float *x = a->f32 + r * a->k;
    float acc = 0.0f;
    for (size_t c = 0; c < a->k; c++) {
        acc = fmaf(lef32_get(row + 4 * c), x[c], acc);
    }
    return acc;
}

static float dot_f16(const uint8_t *row, const kern_act *a, size_t r)
{
    const float *x = a->f32 + r * a->k;
    float acc = 0.0f;
    for (size_t c = 0; c < a->k; c++) {
        acc = fmaf(fp16_to_f32(le16_get(row + 2 * c)), x[c], acc);
    }
    return acc;
}

static float flush(float v)
{
    return fabsf(v) < MIN_NORMAL ? copysignf(0.0f, v) : v;
}

/*
 * Is |a * b + c|, exactly, below TINY_BELOW? The product of two bf16 values is exact in double, and so are
 * sum and rest together (Knuth's two-sum), which decides a sum that double would round onto the limit.
 */
static int exact_is_tiny(float a, float b, float c)
{
    double p = (double)a * (double)b;
    double q = (double)c;
    double sum = p + q;
    double q_part = sum - p;
    double rest = (p - (sum - q_part)) + (q - q_part);
    double toward_zero = sum < 0.0 ? rest : -rest;
    return fabs(sum) < TINY_BELOW || (fabs(sum) == TINY_BELOW && toward_zero > 0.0);
}

/* a, b: bf16 values; c: flushed. */
static float fma_flushed(float a, float b, float c)
{
    float fa = flush(a);
    float fb = flush(b);
    float v = fmaf(fa, fb, c);
    if (fabsf(v) == MIN_NORMAL && exact_is_tiny(fa, fb, c)) {
        return copysignf(0.0f, v);
    }
    return flush(v);
}

/* Sums of flushed values are multiples of 2^-149, hence exact near 2^-126: comparing the result is enough. */
static float add_flushed(float a, float b)
{
    return flush(a + b);
}

static float dot_bf16(const uint8_t *row, const kern_act *a, size_t r)
{
    float acc = 0.0f;
    for (size_t at = 0; at < a->k; at += BF16_RUN) {
        const uint16_t *x = kern_act_bf16(a, r, at / BF16_RUN);
        float chain[2] = {0.0f, 0.0f}; /* even elements, odd elements */
        for (size_t i = 0; i < BF16_RUN; i++) {
            bool inside = at + i < a->k; /* both tails are zeros, which turn a -0 into +0 */
            float wv = inside ? bf16_to_f32(le16_get(row + 2 * (at + i))) : 0.0f;
            chain[i % 2] = fma_flushed(wv, bf16_to_f32(x[i]), chain[i % 2]);
        }
        acc = add_flushed(acc, add_flushed(chain[0], chain[1]));
    }
    return acc;
}

void matmul_ref_f32(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y, size_t y_stride)
{
    matmul_ref_run(w, a, n0, n1, y, y_stride, dot_f32);
}

void matmul_ref_f16(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y, size_t y_stride)
{
    matmul_ref_run(w, a, n0, n1, y, y_stride, dot_f16);
}

void matmul_ref_bf16(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y, size_t y_stride)
{
    matmul_ref_run(w, a, n0, n1, y, y_stride, dot_bf16);
}
