/*
 * fmath: exp, log, sin, cos, tanh and their kin as hearth defines them. The formula is the contract: a fixed
 * sequence of IEEE operations (add, mul, fma, div, integer) that every instruction set repeats lane by lane, so
 * results are equal to the bit everywhere and never depend on the C library. Pure, any thread, default rounding.
 *
 * Maximal errors are stated at each function and tested. Special values: exp(-inf) = +0, exp(+inf) = +inf, NaN
 * stays NaN; log(0) = -inf, log(x < 0) = NaN.
 */
#ifndef HEARTH_KERN_FMATH_H
#define HEARTH_KERN_FMATH_H

float fm_exp(float x);
float fm_log(float x);
float fm_sin(float x);
float fm_cos(float x);
float fm_tanh(float x);
float fm_silu(float x); /* x / (1 + exp(-x)) */
/* base^(-2 i / n) in double without libm: the inverse frequency of rotary pair i of n. base > 0, 2 i < n. */
double fm_rope_inv_freq(double base, int i, int n);
/* pos * inv_freq reduced to [-pi, pi] in double, rounded to float. */
float fm_rope_angle(int pos, double inv_freq);

#endif
