/*
 * product: how columns become tasks. The kernels are fakes that note what they are asked for, so that every width and
 * number of threads can be looked at: each column is computed once, in whole panels, added and gated once, prepared in
 * parts that a row may be divided into, and no thread is left without work where there is enough.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/product.h"

#define MOST_COLUMNS 20000
#define M            3 /* rows */

/* What was done to a column; atomic. */
typedef struct seen {
    unsigned computed[MOST_COLUMNS];
    unsigned added[MOST_COLUMNS];
    unsigned gated[MOST_COLUMNS];
    unsigned prepared[MOST_COLUMNS];
    unsigned calls;
    size_t largest; /* range */
    unsigned wrong; /* ranges that no kernel takes */
} seen;

static seen list_seen[PRODUCT_MAX];

static void count(unsigned *at, size_t n0, size_t n1)
{
    for (size_t n = n0; n < n1; n++) {
        __atomic_fetch_add(&at[n], 1, __ATOMIC_RELAXED);
    }
}

static void note_wrong(seen *s, bool wrong)
{
    __atomic_fetch_add(&s->wrong, wrong, __ATOMIC_RELAXED);
}

static void fake_matmul(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                        size_t y_stride)
{
    seen *s = (seen *)(uintptr_t)w->data;
    (void)a, (void)y, (void)y_stride;
    note_wrong(s, n0 % KERN_PANEL != 0 || n0 >= n1 || n1 > w->n || (n1 % KERN_PANEL != 0 && n1 != w->n));
    count(s->computed, n0, n1);
    size_t largest = __atomic_load_n(&s->largest, __ATOMIC_RELAXED);
    while (n1 - n0 > largest && !__atomic_compare_exchange_n(&s->largest, &largest, n1 - n0, true,
                                                             __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    __atomic_fetch_add(&s->calls, 1, __ATOMIC_RELAXED);
}

/* Rows are of one buffer each: an address tells the column. */
static float rows_y[PRODUCT_MAX][M][MOST_COLUMNS], rows_x[M][MOST_COLUMNS];

static size_t column_in(const float *p, float (*rows)[MOST_COLUMNS])
{
    return (size_t)(p - rows[0]) % MOST_COLUMNS;
}

static void fake_add(float *y, const float *x, size_t n)
{
    const size_t at = column_in(x, rows_y[0]);
    note_wrong(&list_seen[0], column_in(y, rows_x) != at);
    count(list_seen[0].added, at, at + n);
}

static void fake_silu_mul(float *y, const float *gate, const float *up, size_t n)
{
    const size_t at = column_in(gate, rows_y[0]);
    note_wrong(&list_seen[0], y != gate || column_in(up, rows_y[1]) != at);
    for (size_t i = at; i < at + n; i++) { /* both are there */
        note_wrong(&list_seen[0], list_seen[0].computed[i] != 1 || list_seen[1].computed[i] != 1);
    }
    count(list_seen[0].gated, at, at + n);
}

static void fake_prepare(kern_act *a, const float *x, size_t r, size_t k0, size_t k1, uint8_t *bad)
{
    seen *s = &list_seen[0];
    note_wrong(s, k0 % KERN_ACT_STEP != 0 || (k1 % KERN_ACT_STEP != 0 && k1 != a->k) || r >= M || k0 >= k1);
    note_wrong(s, x != rows_y[0][r] || bad != (uint8_t *)rows_x);
    for (size_t i = k0; i < k1; i++) {
        note_wrong(s, s->gated[i] < r + 1); /* this row's */
    }
    count(s->prepared, k0, k1);
}

static const kern_table fakes = {.act_prepare = fake_prepare,
                                 .matmul = {[GGUF_TYPE_Q8_0] = fake_matmul},
                                 .add = fake_add,
                                 .silu_mul = fake_silu_mul};
static const size_t widths[] = {1,    8,    16,   17,   40,   64,    96,    128,   160,  256,  300,
                                512,  768,  1000, 1024, 1536, 2048,  2816,  3072,  4096, 4864, 5632,
                                8192, 8960, 9728, 9984, 9999, 11008, 14336, 16384, 18944};
static const size_t team_sizes[] = {1, 2, 3, 4, 7, 16, 33};

#define N_WIDTHS (sizeof widths / sizeof *widths)

static void all_once(const unsigned *at, size_t n, unsigned times)
{
    for (size_t i = 0; i < MOST_COLUMNS; i++) {
        if (at[i] != (i < n ? times : 0)) {
            fail_msg("column %zu of %zu: %u times", i, n, at[i]);
        }
    }
}

static pool *team(size_t i)
{
    pool *p = NULL;
    err e;
    assert_int_equal(pool_new(team_sizes[i], false, &p, &e), ST_OK);
    return p;
}

static product product_of(const kern_matrix *w, const kern_act *a, size_t i)
{
    return (product){.w = w, .act = a, .y = rows_y[i][0], .y_stride = MOST_COLUMNS};
}

/* Three products of different widths in one run, the first with what it is added to. */
static void test_each_column_once(void **state)
{
    const kern_act act = {.m = M};
    (void)state;
    for (size_t t = 0; t < sizeof team_sizes / sizeof *team_sizes; t++) {
        pool *p = team(t);
        for (size_t i = 0; i < N_WIDTHS; i++) {
            kern_matrix w[3];
            product list[3];
            memset(list_seen, 0, sizeof list_seen);
            for (size_t j = 0; j < 3; j++) {
                w[j] = (kern_matrix){
                    .type = GGUF_TYPE_Q8_0, .n = widths[(i + 5 * j) % N_WIDTHS], .data = &list_seen[j]};
                list[j] = product_of(&w[j], &act, j);
            }
            list[0].add_to = rows_x[0];
            list[0].add_stride = MOST_COLUMNS;
            product_run(&fakes, p, list, 3);
            size_t calls = 0, panels = 0, threads = team_sizes[t];
            for (size_t j = 0; j < 3; j++) {
                assert_int_equal(list_seen[j].wrong, 0);
                all_once(list_seen[j].computed, w[j].n, 1);
                calls += list_seen[j].calls;
                panels += (w[j].n + KERN_PANEL - 1) / KERN_PANEL;
            }
            all_once(list_seen[0].added, w[0].n, M);
            /* No task is more than a thread's share, and they are not so many that setting up costs more than work. */
            for (size_t j = 0; j < 3; j++) {
                assert_true(list_seen[j].largest <= (panels + threads - 1) / threads * KERN_PANEL);
            }
            assert_true(calls <= 12 * threads + 3);
        }
        pool_free(p);
    }
}

static void test_gated(void **state)
{
    kern_act act = {.m = M};
    (void)state;
    for (size_t t = 0; t < sizeof team_sizes / sizeof *team_sizes; t++) {
        pool *p = team(t);
        for (size_t i = 0; i < N_WIDTHS; i++) {
            const size_t n = widths[i], threads = team_sizes[t];
            kern_matrix w[2];
            product list[2];
            kern_act to = {.m = M, .k = n};
            memset(list_seen, 0, sizeof list_seen);
            for (size_t j = 0; j < 2; j++) {
                w[j] = (kern_matrix){.type = GGUF_TYPE_Q8_0, .n = n, .data = &list_seen[j]};
                list[j] = product_of(&w[j], &act, j);
            }
            const bool prepared = product_run_gated(&fakes, p, &list[0], &list[1], &to, (uint8_t *)rows_x);
            for (size_t j = 0; j < 2; j++) {
                assert_int_equal(list_seen[j].wrong, 0);
                all_once(list_seen[j].computed, n, 1);
            }
            all_once(list_seen[0].gated, n, M);
            all_once(list_seen[0].prepared, prepared ? n : 0, M);
            assert_int_equal(prepared, n / KERN_ACT_STEP >= 4 * threads);
            const size_t piece = prepared ? KERN_ACT_STEP : KERN_PANEL, pieces = (n + piece - 1) / piece;
            assert_true(list_seen[0].largest <= (pieces + threads - 1) / threads * piece);
            assert_true(list_seen[0].calls <= 12 * threads);
        }
        pool_free(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_column_once), cmocka_unit_test(test_gated)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
