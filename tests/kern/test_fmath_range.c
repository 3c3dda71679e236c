/*
 * fmath over the whole range of float: the reference against the C library (which shares nothing with ours) within
 * the error that kern/fmath.h states, and every set equal to the reference. As a test, every 2,039th bit pattern
 * (a prime, so that all low bits are walked through) in long double; with the argument `all`, and optionally the
 * name of a function, all 2^32 patterns in double, whose own error is a millionth of an ulp of float.
 */
#include "kern_test.h"

#include "kern/fmath.h"

#define STEP  (SANITIZED ? 8161u : 2039u)
#define CHUNK 4096u

typedef void (*array_fn)(const kern_table *t, float *y, const float *x, size_t n);

typedef struct fn_case {
    const char *name;
    array_fn ours;
    double (*libm)(double);
    long double (*libml)(long double);
    double max_ulp;   /* stated in kern/fmath.h, measured over all patterns */
    float exact_from; /* below, the formula leaves its range and one bound on |y| is all that is promised */
    float below_max;
} fn_case;

static float scratch[CHUNK], ones[CHUNK];

static void run_exp(const kern_table *t, float *y, const float *x, size_t n)
{
    t->exp_array(y, x, n);
}

static void run_log(const kern_table *t, float *y, const float *x, size_t n)
{
    t->log_array(y, x, n);
}

static void run_tanh(const kern_table *t, float *y, const float *x, size_t n)
{
    t->tanh_array(y, x, n);
}

static void run_sin(const kern_table *t, float *y, const float *x, size_t n)
{
    t->sin_cos_array(y, scratch, x, n);
}

static void run_cos(const kern_table *t, float *y, const float *x, size_t n)
{
    t->sin_cos_array(scratch, y, x, n);
}

static void run_silu(const kern_table *t, float *y, const float *x, size_t n)
{
    t->silu_mul(y, x, ones, n);
}

static double silu(double x)
{
    return x / (1 + exp(-x));
}

static long double silul(long double x)
{
    return x / (1 + expl(-x));
}

static const fn_case fns[] = {
    {"exp", run_exp, exp, expl, 1.02, -INFINITY, 0},
    {"log", run_log, log, logl, 0.91, -INFINITY, 0},
    {"tanh", run_tanh, tanh, tanhl, 1.35, -INFINITY, 0},
    {"sin", run_sin, sin, sinl, 0.5001, -INFINITY, 0},
    {"cos", run_cos, cos, cosl, 0.5001, -INFINITY, 0},
    /* Below -88.72 exp(-x) overflows; the true value is under 2^-121 there. */
    {"silu", run_silu, silu, silul, 2.5, -88.72f, 0x1p-121f},
};

#define N_FNS (sizeof fns / sizeof fns[0])

/* 1 / (the distance of neighbouring floats at y). */
static double per_ulp(double y)
{
    union {
        double d;
        uint64_t u;
    } v = {.d = y};
    int e = (int)(v.u >> 52 & 0x7FF) - 1023;
    v.u = (uint64_t)(1023 + (e < -126 ? 149 : 23 - e)) << 52;
    return v.d;
}

/* want is finite, or infinite, or NaN, in more digits than float; off = got - want in them. */
static double error_ulp(float got, double want, double off)
{
    if (isnan(want) || isnan(got)) {
        return isnan(want) && isnan(got) ? 0 : (double)INFINITY;
    }
    if (isinf(got) || isinf((float)want)) { /* a half ulp beyond the largest float is infinity's */
        bool both = fabsf(got) >= 0x1.fffffep127f && fabs(want) >= 0x1.fffffep127;
        return both && signbit(got) == signbit((float)want) ? 0 : (double)INFINITY;
    }
    if (want == 0 && signbit(got) != signbit((float)want)) {
        return (double)INFINITY;
    }
    return fabs(off) * per_ulp(want);
}

typedef struct worst {
    double ulp;
    float x;
} worst;

static void judge(const fn_case *f, const float *x, const float *y, size_t n, bool in_double, worst *w)
{
    for (size_t i = 0; i < n; i++) {
        double e;
        if (x[i] < f->exact_from) {
            bool fine = isinf(x[i]) || (signbit(y[i]) && fabsf(y[i]) < f->below_max);
            e = fine ? 0 : (double)INFINITY;
        } else if (in_double) {
            double want = f->libm((double)x[i]);
            e = error_ulp(y[i], want, (double)y[i] - want);
        } else {
            long double want = f->libml((long double)x[i]);
            e = error_ulp(y[i], (double)want, (double)((long double)y[i] - want));
        }
        if (e > w->ulp) {
            *w = (worst){e, x[i]};
        }
    }
}

static void chunk_run(const fn_case *f, const float *x, size_t n, bool in_double, worst *w)
{
    static float want[CHUNK], got[CHUNK];
    const kern_table *t;
    for (int s = -1; (t = sets_next(&s));) {
        if (t->set == KERN_REF) {
            f->ours(t, want, x, n);
            judge(f, x, want, n, in_double, w);
        } else {
            f->ours(t, got, x, n);
            if (memcmp(got, want, n * sizeof got[0]) != 0) {
                assert_same_floats(f->name, t, got, want, n); /* NaNs may differ */
            }
        }
    }
}

static void range_run(const fn_case *f, uint64_t step, bool in_double)
{
    static float x[CHUNK];
    worst w = {0};
    for (uint64_t bits = 0; bits <= UINT32_MAX;) {
        size_t n = 0;
        for (; n < CHUNK && bits <= UINT32_MAX; n++, bits += step) {
            x[n] = f32_from_bits((uint32_t)bits);
            ones[n] = 1.0f;
        }
        chunk_run(f, x, n, in_double, &w);
    }
    printf("%s: at most %.5f ulp (at %a)\n", f->name, w.ulp, (double)w.x);
    if (w.ulp > f->max_ulp) {
        fail_msg("%s(%a) is off by %.5f ulp, stated are %.4f", f->name, (double)w.x, w.ulp, f->max_ulp);
    }
}

static void test_range(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_FNS; i++) {
        range_run(&fns[i], STEP, false);
    }
}

/* exp never falls where its argument rises, which the sampler relies on: from 0 down to where the result is 0, runs of
 * neighbours, `gap` patterns between two. */
static void rises(uint32_t gap)
{
    static float x[CHUNK], y[CHUNK];
    float last = INFINITY;
    for (uint32_t bits = f32_bits(-0.0f); bits <= f32_bits(-105.0f); bits += CHUNK + gap) {
        for (uint32_t i = 0; i < CHUNK; i++) {
            x[i] = f32_from_bits(bits + i);
        }
        kern_select(KERN_SET_COUNT - 1)->exp_array(y, x, CHUNK); /* all sets are equal */
        for (size_t i = 0; i < CHUNK; i++) {
            if (!(y[i] <= last)) {
                fail_msg("exp(%a) is %a, above that of the float before", (double)x[i], (double)y[i]);
            }
            last = y[i];
        }
    }
    assert_true(last == 0);
}

static void test_exp_rises(void **state)
{
    (void)state;
    rises(63 * CHUNK + 5);
}

static void test_exp_rises_all(void **state)
{
    (void)state;
    rises(0);
}

static const char *only; /* NULL: all functions */

static void test_all(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_FNS; i++) {
        if (!only || strcmp(only, fns[i].name) == 0) {
            range_run(&fns[i], 1, true);
        }
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest sample[] = {cmocka_unit_test(test_range), cmocka_unit_test(test_exp_rises),
                                        cmocka_unit_test(test_every_set_ran)};
    const struct CMUnitTest all[] = {cmocka_unit_test(test_all), cmocka_unit_test(test_exp_rises_all),
                                     cmocka_unit_test(test_every_set_ran)};
    if (argc > 1 && strcmp(argv[1], "all") == 0) {
        only = argc > 2 ? argv[2] : NULL;
        return cmocka_run_group_tests(all, NULL, NULL);
    }
    return cmocka_run_group_tests(sample, NULL, NULL);
}
