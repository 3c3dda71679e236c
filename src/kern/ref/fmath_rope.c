/*
 * fm_rope_inv_freq: base^(-2 i / n) = exp(-(2 i / n) log(base)). The exponent reaches 20, so a plain double
 * logarithm would lose four bits of the result; it is carried as an unevaluated sum hi + lo instead (Dekker;
 * with fma a product's error is one more operation). Runs n / 2 times per model, so it has no vector form.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kern/fmath.h"
#include "kern/fmath_coef.h"

#define LOG2E     0x1.71547652b82fep+0
#define LN2_HI    0x1.62e42ffp-1 /* 29 bits: times an exponent it is exact */
#define LN2_LO    (-0x1.718432a1b0e26p-35)
#define SQRT_HALF 0x3FE6A09E667F3BCDull
#define ONE_BITS  1023

typedef struct twofold {
    double hi;
    double lo;
} twofold;

/* hi + lo = a + b exactly (Knuth). */
static twofold two_sum(double a, double b)
{
    double s = a + b;
    double t = s - a;
    return (twofold){s, (a - (s - t)) + (b - t)};
}

/*
 * log(x), x > 0 and normal: x = 2^e m, m in [sqrt(1/2), sqrt(2)), log m = 2 atanh(s) = 2 (s + s^3/3 + …) with
 * s = (m - 1) / (m + 1). Off by less than 2^-60 where |log x| < 100.
 */
static twofold log_twofold(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int64_t e = (int64_t)(bits - SQRT_HALF) >> 52;
    bits -= (uint64_t)e << 52;
    double m;
    memcpy(&m, &bits, sizeof m);
    double f = m - 1.0; /* exact */
    double g = m + 1.0;
    double g_lo = m - (g - 1.0);
    double s = f / g;
    double s_lo = (fma(-s, g, f) - s * g_lo) / g;
    double z = s * s;
    double q = 0;
    for (int k = 25; k >= 3; k -= 2) {
        q = fma(q, z, 1.0 / k);
    }
    double tail = 2.0 * fma(s * z, q, s_lo);
    twofold sum = two_sum((double)e * LN2_HI, 2.0 * s);
    sum.lo += fma((double)e, LN2_LO, tail);
    return sum;
}

/* exp(hi + lo) for a result in the normal range. */
static double exp_twofold(double hi, double lo)
{
    double k = fma(hi, LOG2E, FM_ROUND_D) - FM_ROUND_D;
    twofold r = two_sum(fma(-k, LN2_HI, hi), fma(-k, LN2_LO, lo));
    double q = 0;
    double factorial = 6227020800.0; /* 13! */
    for (int i = 13; i >= 2; i--) {
        q = fma(q, r.hi, 1.0 / factorial);
        factorial /= i; /* exact */
    }
    double p = 1.0 + (r.hi + fma(r.hi * r.hi, q, r.lo));
    uint64_t bits = (uint64_t)((int64_t)k + ONE_BITS) << 52;
    double scale;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

double fm_rope_inv_freq(double base, int i, int n)
{
    twofold l = log_twofold(base);
    double times = 2.0 * i;
    double prod = l.hi * times;
    double prod_lo = fma(l.lo, times, fma(l.hi, times, -prod));
    double y = prod / n;
    double y_lo = (fma(-y, (double)n, prod) + prod_lo) / n;
    return exp_twofold(-y, -y_lo);
}
