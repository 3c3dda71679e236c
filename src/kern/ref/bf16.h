/*
 * bf16: the arithmetic of BF16 products (DESIGN 4 rule 2): fma and sum with denormal inputs taken as zero and tiny
 * results made zero, the sign kept. "Tiny" is judged as x86 judges it: after rounding to 24 bits as if the exponent
 * had no lower bound. So a result that the denormal grid would round up to 2^-126 is still flushed when 24 bits
 * would have left it below. Scalar, for the sets whose hardware flushes by another rule. Internal to kern/.
 */
#ifndef HEARTH_KERN_REF_BF16_H
#define HEARTH_KERN_REF_BF16_H

#include <math.h>

#define BF16_MIN_NORMAL 0x1p-126f
/* Magnitudes below this round to less than 2^-126 in 24 bits; this one itself is a tie and rounds up, to even. */
#define BF16_TINY_BELOW (0x1p-126 * (1.0 - 0x1p-25))

static inline float bf16_flush(float v)
{
    return fabsf(v) < BF16_MIN_NORMAL ? copysignf(0.0f, v) : v;
}

/*
 * Is |a * b + c|, exactly, below BF16_TINY_BELOW? The product of two bf16 values is exact in double, and so are
 * sum and rest together (Knuth's two-sum), which decides a sum that double would round onto the limit.
 */
static inline int bf16_exact_is_tiny(float a, float b, float c)
{
    double p = (double)a * (double)b;
    double q = (double)c;
    double sum = p + q;
    double q_part = sum - p;
    double rest = (p - (sum - q_part)) + (q - q_part);
    double toward_zero = sum < 0.0 ? rest : -rest;
    return fabs(sum) < BF16_TINY_BELOW || (fabs(sum) == BF16_TINY_BELOW && toward_zero > 0.0);
}

/* a, b: bf16 values; c: flushed. */
static inline float bf16_fma_flushed(float a, float b, float c)
{
    float fa = bf16_flush(a);
    float fb = bf16_flush(b);
    float v = fmaf(fa, fb, c);
    if (fabsf(v) == BF16_MIN_NORMAL && bf16_exact_is_tiny(fa, fb, c)) {
        return copysignf(0.0f, v);
    }
    return bf16_flush(v);
}

/* Sums of flushed values are multiples of 2^-149, hence exact near 2^-126: comparing the result is enough. */
static inline float bf16_add_flushed(float a, float b)
{
    return bf16_flush(a + b);
}

#endif
