/*
 * The elementwise kernels of every set: equal to the reference over odd sizes, at every alignment a float can
 * have, between forbidden pages; and the reference against rule 6 and double arithmetic.
 */
#include "kern_test.h"

#include "kern/fmath.h"

/* 1 to 70, then what a vector loop may get wrong at its ends. */
static const size_t big_sizes[] = {127, 128, 129, 172, 2048};
#define N_SIZES (70 + sizeof big_sizes / sizeof big_sizes[0])

static size_t size_at(size_t i)
{
    return i < 70 ? i + 1 : big_sizes[i - 70];
}

/* Operands of one call, tight at one side. At the end's side sizes 1, 2, 3 … give every alignment. */
typedef struct operands {
    guard buf[3];
    float *x[3];
} operands;

static operands operands_new(uint64_t *rng, size_t n, guard_side side)
{
    operands o;
    for (int i = 0; i < 3; i++) {
        o.buf[i] = guard_new(n * sizeof(float), side);
        o.x[i] = guard_floats(&o.buf[i]);
        rng_fill(rng, o.x[i], n);
    }
    return o;
}

static void operands_free(operands *o)
{
    for (int i = 0; i < 3; i++) {
        guard_check(&o->buf[i]);
        guard_free(&o->buf[i]);
    }
}

typedef void (*run_fn)(const kern_table *t, float *y, const float *a, const float *b, size_t n);

static void run_rms_norm(const kern_table *t, float *y, const float *a, const float *b, size_t n)
{
    t->rms_norm(y, a, b, n, 1e-5f);
}

static void run_rms_norm_in_place(const kern_table *t, float *y, const float *a, const float *b, size_t n)
{
    t->rms_norm(y, y, b, n, 1e-6f);
}

static void run_add(const kern_table *t, float *y, const float *a, const float *b, size_t n)
{
    t->add(y, a, n);
}

static void run_silu_mul(const kern_table *t, float *y, const float *a, const float *b, size_t n)
{
    t->silu_mul(y, a, b, n);
}

static void run_silu_mul_in_place(const kern_table *t, float *y, const float *a, const float *b, size_t n)
{
    t->silu_mul(y, y, b, n);
}

static void run_exp(const kern_table *t, float *y, const float *a, const float *b, size_t n)
{
    t->exp_array(y, a, n);
}

static void run_log(const kern_table *t, float *y, const float *a, const float *b, size_t n)
{
    t->log_array(y, a, n);
}

static void test_equal(void **state)
{
    static const struct {
        const char *name;
        run_fn fn;
    } kernels[] = {
        {"rms_norm", run_rms_norm},
        {"rms_norm in place", run_rms_norm_in_place},
        {"silu_mul in place", run_silu_mul_in_place},
        {"add", run_add},
        {"silu_mul", run_silu_mul},
        {"exp_array", run_exp},
        {"log_array", run_log},
    };
    static float want[4096];
    const kern_table *ref = kern_table_of(KERN_REF);
    const kern_table *t;
    uint64_t rng = 1;
    (void)state;
    for (int s = -1; (t = sets_next(&s));) {
        for (size_t k = 0; k < sizeof kernels / sizeof kernels[0]; k++) {
            for (size_t i = 0; i < 2 * N_SIZES; i++) {
                size_t n = size_at(i / 2);
                operands o = operands_new(&rng, n, i % 2 ? GUARD_START : GUARD_END);
                memcpy(want, o.x[0], n * sizeof(float));
                kernels[k].fn(ref, want, o.x[1], o.x[2], n);
                kernels[k].fn(t, o.x[0], o.x[1], o.x[2], n);
                assert_same_floats(kernels[k].name, t, o.x[0], want, n);
                operands_free(&o);
            }
        }
    }
}

/* Rule 6 by its drawing: which elements meet in which order, written as a tree of three levels of pairs. */
static float rule6_sum_of_squares(const float *x, size_t n)
{
    float lane[16];
    for (size_t l = 0; l < 16; l++) {
        float acc = 0;
        for (size_t i = l; i < n; i += 16) {
            acc = fmaf(x[i], x[i], acc);
        }
        lane[l] = acc;
    }
    float four[4];
    for (size_t l = 0; l < 4; l++) {
        four[l] = (lane[l] + lane[l + 8]) + (lane[l + 4] + lane[l + 12]);
    }
    return (four[0] + four[2]) + (four[1] + four[3]);
}

static void test_rms_norm_rule(void **state)
{
    static float x[2048], w[2048], y[2048];
    const kern_table *ref = kern_table_of(KERN_REF);
    uint64_t rng = 2;
    (void)state;
    for (size_t i = 0; i < N_SIZES; i++) {
        size_t n = size_at(i);
        double sum = 0;
        rng_fill(&rng, x, n);
        rng_fill(&rng, w, n);
        for (size_t j = 0; j < n; j++) {
            x[j] *= ldexpf(1.0f, (int)(j % 23) - 11); /* sizes apart, so that the order shows */
            sum += (double)x[j] * (double)x[j];
        }
        ref->rms_norm(y, x, w, n, 1e-5f);
        float scale = 1.0f / sqrtf(rule6_sum_of_squares(x, n) / (float)n + 1e-5f);
        double exact = 1 / sqrt(sum / (double)n + 1e-5);
        for (size_t j = 0; j < n; j++) {
            double want = (double)x[j] * exact * (double)w[j];
            assert_true(f32_bits(y[j]) == f32_bits(x[j] * scale * w[j]));
            assert_true(fabs((double)y[j] - want) <= 1e-6 * fabs(want) + 1e-38);
        }
    }
}

static void test_silu_mul_value(void **state)
{
    /* x / (1 + e^-x) times up: 1 / (1 + 1/e) = 0.7310585786…, -2 / (1 + e^2) = -0.2384058440… */
    const float gate[3] = {1, -2, 0};
    const float up[3] = {2, -3, 5};
    const float want[3] = {1.4621171572f, 0.7152175321f, 0};
    const kern_table *t;
    (void)state;
    for (int s = -1; (t = sets_next(&s));) {
        float y[3];
        t->silu_mul(y, gate, up, 3);
        for (int i = 0; i < 3; i++) {
            assert_true(fabsf(y[i] - want[i]) < 3e-7f);
        }
    }
}

static void test_all_finite(void **state)
{
    const float bad[] = {INFINITY, -INFINITY, NAN, -NAN};
    const kern_table *t;
    uint64_t rng = 3;
    (void)state;
    for (int s = -1; (t = sets_next(&s));) {
        for (size_t i = 0; i < 2 * N_SIZES; i++) {
            size_t n = size_at(i / 2);
            operands o = operands_new(&rng, n, i % 2 ? GUARD_START : GUARD_END);
            o.x[0][0] = 0x1.fffffep+127f; /* the largest float and the smallest are finite */
            o.x[0][n - 1] = -0x1p-149f;
            assert_true(t->all_finite(o.x[0], n));
            for (size_t j = 0; j < n; j += 1 + n / 37) {
                float kept = o.x[0][j];
                o.x[0][j] = bad[(i + j) % 4];
                assert_false(t->all_finite(o.x[0], n));
                o.x[0][j] = kept;
            }
            operands_free(&o);
        }
        assert_true(t->all_finite(NULL, 0));
    }
}

static void test_argmax(void **state)
{
    const kern_table *t;
    uint64_t rng = 4;
    (void)state;
    for (int s = -1; (t = sets_next(&s));) {
        for (size_t i = 0; i < 2 * N_SIZES; i++) {
            size_t n = size_at(i / 2);
            operands o = operands_new(&rng, n, i % 2 ? GUARD_START : GUARD_END);
            float *x = o.x[0];
            for (size_t at = 0; at < n; at += 1 + n / 37) {
                size_t again = at + (size_t)(rng_next(&rng) % (n - at));
                float kept = x[at], kept_again = x[again];
                x[at] = x[again] = 7.0f; /* twice: the lower place wins */
                assert_int_equal(t->argmax(x, n), at);
                x[again] = kept_again;
                x[at] = kept;
            }
            for (size_t j = 0; j < n; j++) {
                x[j] = j % 2 ? 0.0f : -0.0f; /* equal */
            }
            assert_int_equal(t->argmax(x, n), 0);
            for (size_t j = 0; j < n; j++) {
                x[j] = -INFINITY;
            }
            assert_int_equal(t->argmax(x, n), 0);
            x[n - 1] = -0x1.fffffep+127f;
            assert_int_equal(t->argmax(x, n), n - 1);
            operands_free(&o);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal),          cmocka_unit_test(test_rms_norm_rule),
        cmocka_unit_test(test_silu_mul_value), cmocka_unit_test(test_all_finite),
        cmocka_unit_test(test_argmax),         cmocka_unit_test(test_every_set_ran),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
