/*
 * The cost model on machines made of a formula: it comes to predict them, through noise, wild steps, changes of speed
 * and stretches where every step is the same; and what it says about rows is the inverse of what it says about time.
 */
#include "engine/test_main.h"

#include <math.h>

#include "engine/cost_model.h"

typedef struct machine {
    const char *name;
    double step_ns, row_ns, read_ns;
} machine;

static const machine machines[] = {
    {"1B on a few cores", 25e6, 0.9e6, 600}, {"a toy model", 30e3, 2e3, 1.5},
    {"no cost per step", 0, 1e6, 100},       {"a 30B model", 900e6, 20e6, 20e3},
    {"reading is nothing", 10e6, 1e6, 0},    {"rows are nothing", 10e6, 0, 1e3},
};

static uint32_t next(uint32_t *x)
{
    *x = *x * 1664525u + 1013904223u;
    return *x >> 8;
}

/* In [-1, 1), sum of three: mostly near 0. */
static double noise(uint32_t *x)
{
    double sum = 0;
    for (int i = 0; i < 3; i++) {
        sum += (double)(next(x) % 100000) / 50000.0 - 1.0;
    }
    return sum / 3.0;
}

static double truth(const machine *mc, const step_shape *s)
{
    return mc->step_ns + mc->row_ns * (double)s->rows + mc->read_ns * (double)s->positions;
}

/* Replies at some depth, with a chunk of a prompt now and then. */
static step_shape work(uint32_t *x)
{
    step_shape s = {.rows = next(x) % 8 + 1};
    s.positions = s.rows * (next(x) % 3000);
    if (next(x) % 3 == 0) {
        size_t n = next(x) % 256 + 1;
        s.rows += n;
        s.positions += n * (next(x) % 4000);
    }
    return s;
}

static void run(cost_model *m, const machine *mc, int n, double noisy, uint32_t *x)
{
    for (int i = 0; i < n; i++) {
        step_shape s = work(x);
        cost_model_observe(m, &s, (uint64_t)(truth(mc, &s) * (1.0 + noisy * noise(x))));
    }
}

/* Largest relative error over shapes like those it was shown. */
static double worst_error(const cost_model *m, const machine *mc, uint32_t seed)
{
    double worst = 0;
    for (int i = 0; i < 200; i++) {
        step_shape s = work(&seed);
        double t = truth(mc, &s), d = fabs((double)cost_model_predict(m, &s) - t) / t;
        worst = d > worst ? d : worst;
    }
    return worst;
}

static void expect_sane(const cost_model *m)
{
    const double c[3] = {m->step_ns, m->row_ns, m->read_ns};
    for (int i = 0; i < 3; i++) {
        assert_true(c[i] >= 0.0 && isfinite(c[i])); /* false for NaN too */
    }
}

static void expect_error(const cost_model *m, const machine *mc, double at_most, const char *when)
{
    double got = worst_error(m, mc, 99);
    expect_sane(m);
    if (!(got <= at_most)) {
        print_error("%s, %s: off by %.3f, %.3f is allowed (%g %g %g)\n", mc->name, when, got, at_most,
                    m->step_ns, m->row_ns, m->read_ns);
        fail();
    }
}

static void test_prior(void **state)
{
    cost_model m;
    cost_model_init(&m);
    expect_sane(&m);
    step_shape one = {1, 1}, more_rows = {200, 200}, deeper = {1, 100000};
    assert_true(cost_model_predict(&m, &one) > 0);
    assert_true(cost_model_predict(&m, &more_rows) > cost_model_predict(&m, &one));
    assert_true(cost_model_predict(&m, &deeper) > cost_model_predict(&m, &one));
    assert_true(cost_model_rows(&m, &(step_shape){0, 0}, 0, 250000000, 512) >=
                32); /* a chunk worth its step */
}

static void test_learns(void **state)
{
    for (size_t i = 0; i < N_OF(machines); i++) {
        cost_model m;
        uint32_t x = 7;
        cost_model_init(&m);
        run(&m, &machines[i], 300, 0.0, &x);
        expect_error(&m, &machines[i], 0.02, "exact");
        run(&m, &machines[i], 300, 0.2, &x);
        expect_error(&m, &machines[i], 0.15, "noise of a tenth");
    }
}

/* One step tells how fast a machine is: of another size than the prior, but like it, it is known at once. */
static void test_first_step_scales(void **state)
{
    static const double factors[] = {1e-3, 1e3};
    static const step_shape firsts[] = {{1, 1}, {200, 40000}};
    for (size_t i = 0; i < 4; i++) {
        cost_model m;
        cost_model_init(&m);
        double f = factors[i / 2];
        machine mc = {"like the prior", m.step_ns * f, m.row_ns * f, m.read_ns * f};
        cost_model_observe(&m, &firsts[i % 2], (uint64_t)truth(&mc, &firsts[i % 2]));
        expect_error(&m, &mc, 0.01, "one step");
    }
}

/* It is of use long before it has seen its fill. */
static void test_learns_soon(void **state)
{
    for (size_t i = 0; i < N_OF(machines); i++) {
        cost_model m;
        uint32_t x = 8;
        cost_model_init(&m);
        run(&m, &machines[i], 24, 0.1, &x);
        expect_error(&m, &machines[i], 0.5, "24 steps");
    }
}

/* The machine becomes slower or faster: what is long ago does not count. */
static void test_forgets(void **state)
{
    static const double factors[] = {3.0, 1.0 / 3.0, 20.0, 0.05};
    for (size_t i = 0; i < N_OF(factors); i++) {
        machine then = machines[0], now = then;
        cost_model m;
        uint32_t x = 9;
        now.step_ns *= factors[i];
        now.row_ns *= factors[i];
        now.read_ns *= factors[i];
        cost_model_init(&m);
        run(&m, &then, 300, 0.05, &x);
        expect_error(&m, &then, 0.1, "before");
        run(&m, &now, 20, 0.05, &x);
        assert_true(worst_error(&m, &now, 3) > 0.1); /* it does remember, too */
        run(&m, &now, 600, 0.05, &x);
        expect_error(&m, &now, 0.15, "after");
    }
}

/* A wild step moves what it says of its own shape by no more than a small part, and it is gone after a while. */
static void test_wild_step(void **state)
{
    static const double factors[] = {10.0, 1000.0, 1e9, 0.0};
    for (size_t i = 0; i < N_OF(factors); i++) {
        cost_model m;
        uint32_t x = 10;
        step_shape s = {4, 4000};
        cost_model_init(&m);
        run(&m, &machines[0], 300, 0.02, &x);
        for (int j = 0; j < 100; j++) {
            cost_model_observe(&m, &s, (uint64_t)truth(&machines[0], &s));
        }
        double before = (double)cost_model_predict(&m, &s);
        cost_model_observe(&m, &s, (uint64_t)(truth(&machines[0], &s) * factors[i]));
        double moved = fabs((double)cost_model_predict(&m, &s) / before - 1.0);
        assert_true(moved <= 0.05);
        run(&m, &machines[0], 400, 0.02, &x);
        expect_error(&m, &machines[0], 0.1, "after a wild step");
    }
}

/* So is a start that was wild: a first step that took 50 times what it should. */
static void test_wild_start(void **state)
{
    cost_model m;
    uint32_t x = 11;
    step_shape s = {64, 2000};
    cost_model_init(&m);
    cost_model_observe(&m, &s, (uint64_t)(50 * truth(&machines[0], &s)));
    run(&m, &machines[0], 60, 0.05, &x);
    expect_error(&m, &machines[0], 0.3, "after a wild start");
}

/*
 * The same shape over and over: nothing can be told apart. It predicts that shape, and what it knew of other shapes
 * stays what it was.
 */
static void test_constant_shapes(void **state)
{
    static const step_shape shapes[] = {{1, 1},        {1, 3000}, {16, 16000},
                                        {512, 131328}, {0, 0},    {1000000, 1u << 30}};
    for (size_t i = 0; i < N_OF(shapes); i++) {
        for (size_t j = 0; j < N_OF(machines); j++) {
            cost_model m;
            uint32_t x = 12;
            double t = truth(&machines[j], &shapes[i]);
            cost_model_init(&m);
            for (int k = 0; k < 5000; k++) {
                cost_model_observe(&m, &shapes[i], (uint64_t)(t * (1.0 + 0.1 * noise(&x))));
            }
            expect_sane(&m);
            double d = fabs((double)cost_model_predict(&m, &shapes[i]) - t);
            assert_true(d <= 0.05 * t + 1000.0);
        }
    }
    for (size_t j = 0; j < N_OF(machines); j++) {
        cost_model m;
        uint32_t x = 13;
        step_shape one = {1, 500};
        cost_model_init(&m);
        run(&m, &machines[j], 300, 0.02, &x);
        for (int k = 0; k < 5000; k++) {
            cost_model_observe(&m, &one, (uint64_t)(truth(&machines[j], &one) * (1.0 + 0.1 * noise(&x))));
        }
        expect_error(&m, &machines[j], 0.25, "after 5,000 equal steps");
    }
}

/* Times that no sum of costs gives: falling with the rows, or nothing at all. */
static void test_odd_times(void **state)
{
    cost_model m;
    uint32_t x = 14;
    cost_model_init(&m);
    for (int i = 0; i < 500; i++) {
        step_shape s = work(&x);
        cost_model_observe(&m, &s, (uint64_t)(1e9 / (double)(1 + s.rows)));
        expect_sane(&m);
    }
    cost_model_init(&m);
    for (int i = 0; i < 500; i++) {
        step_shape s = work(&x);
        cost_model_observe(&m, &s, 0);
        expect_sane(&m);
    }
    run(&m, &machines[0], 1500, 0.0, &x); /* it finds back from nothing */
    expect_error(&m, &machines[0], 0.1, "after 500 steps of no time");
    cost_model_init(&m);
    for (int i = 0; i < 200; i++) {
        step_shape s = {SIZE_MAX, UINT64_MAX};
        cost_model_observe(&m, i % 2 ? &s : &(step_shape){0, 0}, i % 3 ? UINT64_MAX : 0);
        expect_sane(&m);
        assert_true(cost_model_predict(&m, &s) <= UINT64_MAX);
    }
}

static step_shape with_rows(step_shape s, size_t position, size_t n)
{
    for (size_t i = 0; i < n; i++) { /* one by one, as the header says */
        s.rows++;
        s.positions += position + i + 1;
    }
    return s;
}

static void test_rows_is_the_inverse(void **state)
{
    static const size_t positions[] = {0, 1, 100, 30000};
    static const uint64_t budgets[] = {0, 1, 10000, 30000000, 250000000, UINT64_MAX};
    static const step_shape bases[] = {{0, 0}, {1, 2000}, {32, 90000}};
    static const size_t most[] = {0, 1, 7, 512};
    size_t n_none = 0, n_some = 0, n_all = 0;
    for (size_t mc = 0; mc < N_OF(machines); mc++) {
        const cost_model m = {
            .step_ns = machines[mc].step_ns, .row_ns = machines[mc].row_ns, .read_ns = machines[mc].read_ns};
        for (size_t i = 0; i < 4 * 6 * 3 * 4; i++) {
            size_t position = positions[i % 4], max = most[i / 72];
            uint64_t budget = budgets[i / 4 % 6];
            step_shape base = bases[i / 24 % 3];
            size_t n = cost_model_rows(&m, &base, position, budget, max);
            assert_true(n <= max);
            if (n > 0) {
                step_shape s = with_rows(base, position, n);
                assert_true(cost_model_predict(&m, &s) <= budget);
            }
            if (n < max) {
                step_shape s = with_rows(base, position, n + 1);
                assert_true(cost_model_predict(&m, &s) > budget);
            }
            n_none += n == 0;
            n_some += n > 0 && n < max;
            n_all += n == max;
        }
    }
    assert_true(n_none > 20 && n_some > 20 && n_all > 20);
}

/* By hand: 1000 for the step, 10 a row, 1 a position; two rows of depth 5 stand already: 1000 + 20 + 10. */
static void test_by_hand(void **state)
{
    const cost_model m = {.step_ns = 1000, .row_ns = 10, .read_ns = 1};
    const step_shape base = {2, 10};
    assert_int_equal(cost_model_predict(&m, &base), 1030);
    /* Rows at 99, 100, 101 cost 10 + 100, 10 + 101, 10 + 102. */
    assert_int_equal(cost_model_rows(&m, &base, 99, 1139, 9), 0);
    assert_int_equal(cost_model_rows(&m, &base, 99, 1140, 9), 1);
    assert_int_equal(cost_model_rows(&m, &base, 99, 1250, 9), 1);
    assert_int_equal(cost_model_rows(&m, &base, 99, 1251, 9), 2);
    assert_int_equal(cost_model_rows(&m, &base, 99, 1363, 9), 3);
    assert_int_equal(cost_model_rows(&m, &base, 99, 1363, 2), 2);
    assert_int_equal(cost_model_rows(&m, &base, 99, 1029, 9), 0); /* not even what stands */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prior),
        cmocka_unit_test(test_learns),
        cmocka_unit_test(test_first_step_scales),
        cmocka_unit_test(test_learns_soon),
        cmocka_unit_test(test_forgets),
        cmocka_unit_test(test_wild_step),
        cmocka_unit_test(test_wild_start),
        cmocka_unit_test(test_constant_shapes),
        cmocka_unit_test(test_odd_times),
        cmocka_unit_test(test_rows_is_the_inverse),
        cmocka_unit_test(test_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
