/*
 * fmath_coef: the constants of kern/fmath.h, one home for all sets. Internal to kern/. The formulas are
 * written out in kern/README.md (NUMERICS); a change of a digit here is a change of NUMERICS_VERSION.
 *
 * EXP_Q, LOG_Q, TANH_P: minimax polynomials (Remez on the weighted relative error, then each coefficient
 * rounded to binary32), ascending powers. The double ones are Taylor coefficients: there the error of the
 * series lies far below the float that leaves.
 */
#ifndef HEARTH_KERN_FMATH_COEF_H
#define HEARTH_KERN_FMATH_COEF_H

#define FM_LOG2E  0x1.715476p+0f
#define FM_LN2_HI 0x1.62e430p-1f
#define FM_LN2_LO (-0x1.05c610p-29f)

/* x + FM_ROUND - FM_ROUND is x rounded to an integer, half to even; the low bits of x + FM_ROUND are that
 * integer. Good for |x| < 2^22. FM_ROUND_D likewise in double, |x| < 2^51. */
#define FM_ROUND      0x1.8p23f
#define FM_ROUND_BITS 0x4B400000u
#define FM_ROUND_D    0x1.8p52

#define FM_EXP_MAX 89.0f     /* above: +inf */
#define FM_EXP_MIN (-104.0f) /* below: +0 */
/* exp(r) = 1 + (r + r^2 * Q(r)) for |r| <= ln 2 / 2, relative error 2^-28.2 */
#define FM_EXP_Q0 0x1.fffffcp-2f
#define FM_EXP_Q1 0x1.55548cp-3f
#define FM_EXP_Q2 0x1.55585ap-5f
#define FM_EXP_Q3 0x1.123d70p-7f
#define FM_EXP_Q4 0x1.6ab89ep-10f

/* log(1 + f) = f + f^2 * Q(f) for 1 + f in [2/3, 4/3), relative error 2^-26.6 */
#define FM_LOG_MIN_NORMAL 0x1p-126f
#define FM_LOG_SPLIT      0x3F2AAAABu /* bits of 2/3 */
#define FM_LOG_Q0         (-0x1.000000p-1f)
#define FM_LOG_Q1         0x1.555502p-2f
#define FM_LOG_Q2         (-0x1.fffe84p-3f)
#define FM_LOG_Q3         0x1.99d1f2p-3f
#define FM_LOG_Q4         (-0x1.55a754p-3f)
#define FM_LOG_Q5         0x1.1ebe6cp-3f
#define FM_LOG_Q6         (-0x1.f25ddap-4f)
#define FM_LOG_Q7         0x1.1ed12cp-3f
#define FM_LOG_Q8         (-0x1.0931e0p-3f)

/* tanh(a) = a + a^3 * P(a^2) for 0 <= a < FM_TANH_SMALL, relative error 2^-27.1 */
#define FM_TANH_SMALL 0.63f
#define FM_TANH_P0    (-0x1.555530p-2f)
#define FM_TANH_P1    0x1.110692p-3f
#define FM_TANH_P2    (-0x1.b827fcp-5f)
#define FM_TANH_P3    0x1.519c8ap-6f
#define FM_TANH_P4    (-0x1.7363fap-8f)

#define FM_TWO_OVER_PI  0x1.45f306dc9c883p-1
#define FM_PIO2_HI      0x1.921fb54442d18p+0
#define FM_PIO2_LO      0x1.1a62633145c07p-54
#define FM_ONE_OVER_2PI 0x1.45f306dc9c883p-3
#define FM_2PI_HI       0x1.921fb54442d18p+2
#define FM_2PI_LO       0x1.1a62633145c07p-52
#define FM_TRIG_HUGE    0x1p30f /* from here on 2/pi is multiplied in integers */

/* sin(r) = r * (1 + r^2 * S(r^2)), cos(r) = 1 + r^2 * C(r^2) for |r| <= pi / 4, in double */
#define FM_SIN_S0 (-0x1.5555555555555p-3)
#define FM_SIN_S1 0x1.1111111111111p-7
#define FM_SIN_S2 (-0x1.a01a01a01a01ap-13)
#define FM_SIN_S3 0x1.71de3a556c734p-19
#define FM_SIN_S4 (-0x1.ae64567f544e4p-26)
#define FM_SIN_S5 0x1.6124613a86d09p-33
#define FM_COS_C0 (-0x1.0p-1)
#define FM_COS_C1 0x1.5555555555555p-5
#define FM_COS_C2 (-0x1.6c16c16c16c17p-10)
#define FM_COS_C3 0x1.a01a01a01a01ap-16
#define FM_COS_C4 (-0x1.27e4fb7789f5cp-22)
#define FM_COS_C5 0x1.1eed8eff8d898p-29
#define FM_COS_C6 (-0x1.93974a8c07c9dp-37)

#endif
