/* fmath at the values that have a name, and what rope makes of it; test_fmath_range walks the whole range. */
#include "kern_test.h"

#include "kern/fmath.h"

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

/* Every set at the values that have a name, in arrays of every small length. */
static void test_arrays_named(void **state)
{
    static const float values[] = {0.0f,  -0.0f,     INFINITY, -INFINITY, NAN, 1.0f,
                                   -1.0f, 0x1p-149f, 0x1p30f,  -3e38f,    0.5f};
    enum { N = sizeof values / sizeof values[0] };
    const kern_table *t;
    (void)state;
    for (int s = -1; (t = sets_next(&s));) {
        for (size_t n = 0; n <= N; n++) {
            float e[N], l[N], h[N], sine[N], cosine[N];
            t->exp_array(e, values + N - n, n);
            t->log_array(l, values + N - n, n);
            t->tanh_array(h, values + N - n, n);
            t->sin_cos_array(sine, cosine, values + N - n, n);
            for (size_t i = 0; i < n; i++) {
                float x = values[N - n + i];
                assert_true(same_float(e[i], fm_exp(x)) && same_float(l[i], fm_log(x)));
                assert_true(same_float(h[i], fm_tanh(x)));
                assert_true(same_float(sine[i], fm_sin(x)) && same_float(cosine[i], fm_cos(x)));
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_named_values),  cmocka_unit_test(test_rope_inv_freq),
        cmocka_unit_test(test_rope_angle),    cmocka_unit_test(test_arrays_named),
        cmocka_unit_test(test_every_set_ran),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
