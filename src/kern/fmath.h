/*
 * fmath: exp, log, sin, cos, tanh and their kin as hearth defines them. The formula is the contract: a fixed
 * sequence of IEEE operations (add, mul, fma, div, integer) that every instruction set repeats lane by lane,
 * so results are equal to the bit everywhere and never depend on the C library. Pure, any thread, default
 * rounding and denormal mode. The formulas are written out in kern/README.md (NUMERICS).
 *
 * Errors are the largest over all 2^32 arguments, measured once against libm in double, every set of x86 being equal
 * to the reference in each (`ninja fmath-all`); a test repeats it on every 2,039th pattern in long double. In ulp of
 * the result, denormal results included. A NaN gives a NaN. exp never falls where its argument rises.
 */
#ifndef HEARTH_KERN_FMATH_H
#define HEARTH_KERN_FMATH_H

#include <stdint.h>

float fm_exp(float x);  /* 1.013 ulp; exp(-inf) = +0, exp(+inf) = +inf */
float fm_log(float x);  /* 0.908 ulp; log(+-0) = -inf, log(x < 0) = NaN, log(+inf) = +inf */
float fm_sin(float x);  /* 0.5001 ulp, also for huge x; sin(+-inf) = NaN */
float fm_cos(float x);  /* 0.5001 ulp, likewise */
float fm_tanh(float x); /* 1.332 ulp */
/* x / (1 + exp(-x)): 2.444 ulp from -88.72 up; below, exp(-x) overflows and the result is -0 (true: over
 * -2^-121), at -inf NaN. */
float fm_silu(float x);
/* Rule 7's noise of a token at a position, -log(-log u), u from Philox; at most FM_GUMBEL_MAX. */
float fm_gumbel(uint64_t seed, int32_t position, int32_t token);
#define FM_GUMBEL_MAX 16.7f
/* base^(-2 i / n) in double without libm, within 0.9 ulp of double: the inverse frequency of rotary pair i of
 * n values. base > 0 and normal, 0 <= 2 i < n, result normal. */
double fm_rope_inv_freq(double base, int i, int n);
/* pos * inv_freq reduced to [-pi, pi] in double, rounded to float. |pos * inv_freq| < 2^51. */
float fm_rope_angle(int pos, double inv_freq);

#endif
