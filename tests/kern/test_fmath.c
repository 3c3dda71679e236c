/*
 * fmath: against the C library in long double (which shares nothing with ours), over a dense sample of all
 * bit patterns, and at the values that have a name.
 */
#include "kern_test.h"

#include "kern/fmath.h"

/* 1021 is prime: the sample walks through all low bits. 2^32 / 1021 = 4.2 million patterns. */
#define STEP 1021u

typedef struct fn_case {
    const char *name;
    float (*ours)(float);
    long double (*theirs)(long double);
    double max_ulp; /* stated in kern/fmath.h, measured over all 2^32 patterns */
} fn_case;

/* The distance of neighbouring floats at y. */
static double ulp_at(double y)
{
    int e;
    frexp(y, &e);
    return y == 0 || e < -125 ? 0x1p-149 : ldexp(1.0, e - 24);
}

static double error_ulp(float got, long double want)
{
    double w = (double)want;
    if (isnan(w) || isnan(got)) {
        return isnan(w) && isnan(got) ? 0 : (double)INFINITY;
    }
    if (isinf(got) || isinf((float)w)) { /* a half ulp beyond the largest float is infinity's */
        bool both = fabsf(got) >= 0x1.fffffep127f && fabs(w) >= 0x1.fffffep127;
        return both && signbit(got) == signbit((float)w) ? 0 : (double)INFINITY;
    }
    if (w == 0 && signbit(got) != signbit((float)w)) {
        return (double)INFINITY;
    }
    return fabs((double)got - w) / ulp_at(w);
}

static const fn_case fns[] = {
    {"exp", fm_exp, expl, 1.02},   {"log", fm_log, logl, 0.91},   {"tanh", fm_tanh, tanhl, 1.35},
    {"sin", fm_sin, sinl, 0.5001}, {"cos", fm_cos, cosl, 0.5001},
};

static void test_error(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof fns / sizeof fns[0]; i++) {
        double worst = 0;
        float worst_x = 0;
        for (uint64_t bits = 0; bits <= UINT32_MAX; bits += STEP) {
            float x = f32_from_bits((uint32_t)bits);
            double e = error_ulp(fns[i].ours(x), fns[i].theirs((long double)x));
            if (e > worst) {
                worst = e;
                worst_x = x;
            }
        }
        printf("%s: at most %.4f ulp (at %a)\n", fns[i].name, worst, (double)worst_x);
        if (worst > fns[i].max_ulp) {
            fail_msg("%s(%a) = %a is off by %.4f ulp, stated are %.3f", fns[i].name, (double)worst_x,
                     (double)fns[i].ours(worst_x), worst, fns[i].max_ulp);
        }
    }
}

/* silu leaves the formula's range below -88.72, where exp(-x) overflows: the true value is under 2^-121
 * there. */
static void test_silu(void **state)
{
    (void)state;
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 10 * STEP) {
        float x = f32_from_bits((uint32_t)bits);
        if (x < -88.72f) {
            assert_true(isinf(x) || f32_bits(fm_silu(x)) == f32_bits(-0.0f) || fabsf(fm_silu(x)) < 0x1p-121f);
            continue;
        }
        long double want = (long double)x / (1 + expl(-(long double)x));
        if (error_ulp(fm_silu(x), want) > 2.5) {
            fail_msg("silu(%a) = %a, wanted %La", (double)x, (double)fm_silu(x), want);
        }
    }
}

static void test_named_values(void **state)
{
    static const struct {
        float (*fn)(float);
        float x, y;
    } cases[] = {
        {fm_exp, 0.0f, 1.0f},
        {fm_exp, -0.0f, 1.0f},
        {fm_exp, INFINITY, INFINITY},
        {fm_exp, -INFINITY, 0.0f},
        {fm_exp, 88.72284f, INFINITY},         /* ln(2^128) = 88.722839… */
        {fm_exp, 88.72283f, 0x1.ffff08p+127f}, /* correctly rounded, from mpmath */
        {fm_exp, -104.0f, 0.0f},
        {fm_exp, -103.27893f, 0x1p-149f}, /* ln(2^-149) */
        {fm_log, 1.0f, 0.0f},
        {fm_log, 0.0f, -INFINITY},
        {fm_log, -0.0f, -INFINITY},
        {fm_log, INFINITY, INFINITY},
        {fm_log, 0x1p-149f, -0x1.9d1dap+6f}, /* -149 ln 2 = -103.2789… */
        {fm_tanh, 0.0f, 0.0f},
        {fm_tanh, -0.0f, -0.0f},
        {fm_tanh, INFINITY, 1.0f},
        {fm_tanh, -INFINITY, -1.0f},
        {fm_tanh, -20.0f, -1.0f},
        {fm_tanh, 0x1p-149f, 0x1p-149f},
        {fm_sin, 0.0f, 0.0f},
        {fm_sin, -0.0f, -0.0f},
        {fm_cos, 0.0f, 1.0f},
        {fm_silu, 0.0f, 0.0f},
        {fm_silu, 100.0f, 100.0f},
        {fm_silu, -200.0f, -0.0f},
    };
    static float (*const nans[])(float) = {fm_exp, fm_log, fm_tanh, fm_sin, fm_cos, fm_silu};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (!same_float(cases[i].fn(cases[i].x), cases[i].y)) {
            fail_msg("case %zu: f(%a) = %a, wanted %a", i, (double)cases[i].x,
                     (double)cases[i].fn(cases[i].x), (double)cases[i].y);
        }
    }
    for (size_t i = 0; i < sizeof nans / sizeof nans[0]; i++) {
        assert_true(isnan(nans[i](NAN)));
        assert_true(isnan(nans[i](-NAN)));
    }
    assert_true(isnan(fm_log(-1.0f)) && isnan(fm_log(-INFINITY)) && isnan(fm_log(-0x1p-149f)));
    assert_true(isnan(fm_sin(INFINITY)) && isnan(fm_cos(-INFINITY)));
}

static void test_rope_inv_freq(void **state)
{
    static const double bases[] = {10000, 500000, 1e6, 1e7, 8e6, 10000.5, 2, 1.5, 0.9, 0x1p127};
    static const int dims[] = {2, 8, 24, 64, 80, 96, 128, 256, 510};
    double worst = 0;
    (void)state;
    for (size_t b = 0; b < sizeof bases / sizeof bases[0]; b++) {
        for (size_t k = 0; k < sizeof dims / sizeof dims[0]; k++) {
            for (int i = 0; 2 * i < dims[k]; i++) {
                long double want = powl((long double)bases[b], -2.0L * i / dims[k]);
                int e;
                frexp((double)want, &e);
                double off = (double)fabsl((long double)fm_rope_inv_freq(bases[b], i, dims[k]) - want);
                worst = fmax(worst, off / ldexp(1.0, e - 53));
            }
        }
    }
    printf("rope_inv_freq: at most %.3f ulp of double\n", worst);
    assert_true(worst < 0.9);
    assert_true(fm_rope_inv_freq(10000, 0, 64) == 1.0);
}

static void test_rope_angle(void **state)
{
    static const int positions[] = {0, 1, 7, 1000, 4095, 131071, 1000000, INT32_MAX, -1, -5000};
    static const long double two_pi = 6.283185307179586476925286766559005768L;
    (void)state;
    for (size_t p = 0; p < sizeof positions / sizeof positions[0]; p++) {
        for (int i = 0; i < 64; i++) {
            double f = fm_rope_inv_freq(10000, i, 128);
            float angle = fm_rope_angle(positions[p], f);
            assert_true(fabsf(angle) <= 0x1.921fb6p+1f); /* pi, rounded to float */
            /* The product's own rounding (2^-53 of it), and half a float ulp of the result. */
            long double off =
                remainderl((long double)positions[p] * (long double)f - (long double)angle, two_pi);
            long double allowed = fabsl((long double)positions[p] * (long double)f) * 0x1p-52L + 0x1p-23L;
            if (fabsl(off) > allowed) {
                fail_msg("angle of position %d, pair %d: %a is off by %Lg", positions[p], i, (double)angle,
                         off);
            }
        }
    }
    assert_true(fm_rope_angle(1, 1.0) == 1.0f);
    assert_true(fm_rope_angle(0, 1.0) == 0.0f);
    assert_true(fm_rope_angle(-3, 0.5) == -1.5f);
}

static void array_compare(const kern_table *t, void (*fn)(float *, const float *, size_t),
                          float (*ours)(float))
{
    enum { N = 4096 };
    static float x[N], y[N];
    uint64_t bits = 0;
    while (bits <= UINT32_MAX) { /* a million patterns */
        size_t n = 0;
        for (; n < N && bits <= UINT32_MAX; n++, bits += 4 * STEP) {
            x[n] = f32_from_bits((uint32_t)bits);
        }
        fn(y, x, n);
        for (size_t i = 0; i < n; i++) {
            if (!same_float(y[i], ours(x[i]))) {
                fail_msg("set %s: f(%a) = %a, the reference says %a", t->name, (double)x[i], (double)y[i],
                         (double)ours(x[i]));
            }
        }
    }
}

static void test_arrays_equal(void **state)
{
    const kern_table *t;
    (void)state;
    for (int s = -1; (t = sets_next(&s));) {
        array_compare(t, t->exp_array, fm_exp);
        array_compare(t, t->log_array, fm_log);
    }
}

static float ones[4096];

/* silu through the only kernel that has it. */
static const kern_table *silu_table;
static void silu_array(float *y, const float *x, size_t n)
{
    silu_table->silu_mul(y, x, ones, n);
}

static void test_silu_equal(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof ones / sizeof ones[0]; i++) {
        ones[i] = 1.0f;
    }
    for (int s = -1; (silu_table = sets_next(&s));) {
        array_compare(silu_table, silu_array, fm_silu);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_error),        cmocka_unit_test(test_silu),
        cmocka_unit_test(test_named_values), cmocka_unit_test(test_rope_inv_freq),
        cmocka_unit_test(test_rope_angle),   cmocka_unit_test(test_arrays_equal),
        cmocka_unit_test(test_silu_equal),   cmocka_unit_test(test_every_set_ran),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
