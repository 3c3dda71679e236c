/* rope, rope_angles: every set equal to the reference; the reference against rotation in double. */
#include "kern_test.h"

#include "kern/fmath.h"

#define MAX_ROT 256

static const size_t rots[] = {2, 4, 6, 8, 10, 14, 16, 18, 24, 30, 32, 34, 64, 80, 96, 126, 128, 256};
#define N_ROTS (sizeof rots / sizeof rots[0])

static const int32_t positions[] = {0, 1, 2, 31, 32, 255, 4096, 131071, 1048575, INT32_MAX};
#define N_POSITIONS (sizeof positions / sizeof positions[0])

static const kern_rope_style styles[] = {KERN_ROPE_PAIRS, KERN_ROPE_HALVES};

static void freqs_fill(double *f, size_t n_rot, double base)
{
    for (size_t i = 0; i < n_rot / 2; i++) {
        f[i] = fm_rope_inv_freq(base, (int)i, (int)n_rot);
    }
}

static void test_angles(void **state)
{
    const kern_table *t;
    float want[MAX_ROT];
    (void)state;
    for (int s = -1; (t = sets_next(&s));) {
        for (size_t i = 0; i < 2 * N_ROTS * N_POSITIONS; i++) {
            size_t n_rot = rots[i / 2 / N_POSITIONS];
            int32_t pos = positions[i / 2 % N_POSITIONS];
            guard_side side = i % 2 ? GUARD_START : GUARD_END;
            guard freq = guard_new(n_rot / 2 * sizeof(double), side);
            guard out = guard_new(n_rot * sizeof(float), side);
            double *f = (double *)(void *)freq.data;
            float magnitude = i % 3 ? 1.0f : 1.1375f;
            freqs_fill(f, n_rot, i % 5 ? 10000 : 500000);
            t->rope_angles(guard_floats(&out), f, n_rot / 2, pos, magnitude);
            for (size_t j = 0; j < n_rot / 2; j++) {
                double angle = (double)pos * f[j];
                want[2 * j] = fm_cos(fm_rope_angle(pos, f[j])) * magnitude;
                want[2 * j + 1] = fm_sin(fm_rope_angle(pos, f[j])) * magnitude;
                /* half an ulp of an angle near pi, and of the results */
                assert_true(fabs((double)want[2 * j] - cos(angle) * (double)magnitude) < 3e-7);
                assert_true(fabs((double)want[2 * j + 1] - sin(angle) * (double)magnitude) < 3e-7);
            }
            assert_same_floats("rope_angles", t, guard_floats(&out), want, n_rot);
            guard_check(&out);
            guard_free(&out);
            guard_free(&freq);
        }
    }
}

/* The pair i of x, by style, as (real, imaginary). */
static void pair_at(kern_rope_style style, size_t n_rot, size_t i, size_t *re, size_t *im)
{
    *re = style == KERN_ROPE_PAIRS ? 2 * i : i;
    *im = style == KERN_ROPE_PAIRS ? 2 * i + 1 : i + n_rot / 2;
}

static void test_rotation(void **state)
{
    const kern_table *ref = kern_table_of(KERN_REF);
    const kern_table *t;
    uint64_t rng = 5;
    float want[MAX_ROT], before[MAX_ROT];
    (void)state;
    for (int s = -1; (t = sets_next(&s));) {
        for (size_t i = 0; i < 4 * N_ROTS; i++) {
            size_t n_rot = rots[i / 4];
            kern_rope_style style = styles[i / 2 % 2];
            guard_side side = i % 2 ? GUARD_START : GUARD_END;
            guard x = guard_new(n_rot * sizeof(float), side);
            guard cs = guard_new(n_rot * sizeof(float), side);
            float *c = guard_floats(&cs);
            double f[MAX_ROT / 2];
            freqs_fill(f, n_rot, 10000);
            ref->rope_angles(c, f, n_rot / 2, 12345, 1.0f);
            rng_fill(&rng, guard_floats(&x), n_rot);
            memcpy(before, x.data, x.n_bytes);
            memcpy(want, x.data, x.n_bytes);
            ref->rope(want, c, n_rot, style);
            t->rope(guard_floats(&x), c, n_rot, style);
            assert_same_floats("rope", t, guard_floats(&x), want, n_rot);
            for (size_t j = 0; j < n_rot / 2; j++) {
                size_t re, im;
                pair_at(style, n_rot, j, &re, &im);
                double angle = 12345.0 * f[j]; /* (re + i im) e^(i angle) */
                double re_want = (double)before[re] * cos(angle) - (double)before[im] * sin(angle);
                double im_want = (double)before[re] * sin(angle) + (double)before[im] * cos(angle);
                assert_true(fabs((double)want[re] - re_want) < 1e-6);
                assert_true(fabs((double)want[im] - im_want) < 1e-6);
            }
            guard_check(&x);
            guard_free(&x);
            guard_free(&cs);
        }
    }
}

/* The exact operations: fma(x0, c, -(x1 s)) and fma(x1, c, x0 s), which plain multiply-add would not give. */
static void test_operations(void **state)
{
    const kern_table *t;
    (void)state;
    for (int s = -1; (t = sets_next(&s));) {
        uint64_t rng = 6;
        for (int i = 0; i < 2000; i++) {
            float x[2], cs[2];
            rng_fill(&rng, x, 2);
            rng_fill(&rng, cs, 2);
            float y0 = fmaf(x[0], cs[0], -(x[1] * cs[1]));
            float y1 = fmaf(x[1], cs[0], x[0] * cs[1]);
            t->rope(x, cs, 2, styles[i % 2]);
            assert_true(f32_bits(x[0]) == f32_bits(y0) && f32_bits(x[1]) == f32_bits(y1));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_angles),
        cmocka_unit_test(test_rotation),
        cmocka_unit_test(test_operations),
        cmocka_unit_test(test_every_set_ran),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
