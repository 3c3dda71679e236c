/*
 * planner: worlds of models that are told their limits and obey (or die, or cannot come down yet). After each look: the
 * sum of what all may have is never more than at the start.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "serve/planner.h"

#define MIB      ((uint64_t)1 << 20)
#define N_MODELS 3

typedef struct world {
    planner plan;
    planner_view of[N_MODELS];
    uint64_t budget;
    unsigned n_orders, n_up[N_MODELS], n_down[N_MODELS];
} world;

/* Three models of 100 MiB each: pages of 1, 1 and 2 MiB; all may have 300 MiB. */
static void begin(world *w)
{
    memset(w, 0, sizeof *w);
    planner_init(&w->plan, N_MODELS);
    for (size_t i = 0; i < N_MODELS; i++) {
        uint64_t page = i == 2 ? 2 * MIB : MIB;
        w->of[i] = (planner_view){.ready = true,
                                  .start = 1,
                                  .page_bytes = page,
                                  .most_pages = 300 * MIB / page,
                                  .limit = 100 * MIB / page,
                                  .used = 4,
                                  .lanes = 8};
        w->budget += w->of[i].limit * page;
    }
}

static uint64_t sum(const world *w)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < N_MODELS; i++) {
        bytes += w->of[i].ready ? w->of[i].limit * w->of[i].page_bytes : 0;
    }
    return bytes;
}

static void look(world *w)
{
    planner_order orders[N_MODELS];
    size_t n = planner_look(&w->plan, w->of, orders);
    assert_true(n <= N_MODELS);
    for (size_t i = 0; i < n; i++) {
        planner_view *v = &w->of[orders[i].model];
        assert_true(orders[i].pages >= 1 && orders[i].pages <= v->most_pages);
        w->n_up[orders[i].model] += orders[i].pages > v->limit;
        w->n_down[orders[i].model] += orders[i].pages < v->limit;
        v->limit =
            orders[i].pages > v->used ? orders[i].pages : v->used; /* it cannot come below what it uses */
    }
    w->n_orders += (unsigned)n;
    assert_true(sum(w) <= w->budget);
}

static void looks(world *w, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        look(w);
    }
}

static void test_divide(void **state)
{
    const uint64_t files[] = {400 * MIB, 800 * MIB};
    const uint64_t own[] = {(500 + 96) * MIB, (1000 + 96) * MIB};
    planner_share got[2];
    planner_divide(files, 2, 4000 * MIB, got);
    for (size_t i = 0; i < 2; i++) { /* 4,000 - 596 - 1,096 = 2,308 */
        assert_true(got[i].bytes == own[i] + 1154 * MIB && got[i].most_bytes == own[i] + 2308 * MIB);
    }
    assert_true(got[0].bytes + got[1].bytes == 4000 * MIB);
    planner_divide(files, 2, 1692 * MIB, got); /* just the weights */
    assert_true(got[0].bytes + got[1].bytes <= 1692 * MIB && got[0].bytes > 595 * MIB);
    planner_divide(files, 2, 846 * MIB, got); /* half of them */
    assert_true(got[0].bytes + got[1].bytes <= 846 * MIB);
    assert_true(got[0].bytes / MIB == 298 || got[0].bytes / MIB == 297);
    assert_true(got[0].most_bytes == got[0].bytes);
    planner_divide(files, 1, 4000 * MIB, got);
    assert_true(got[0].bytes == 4000 * MIB && got[0].most_bytes == 4000 * MIB);
}

static void test_nobody_is_short(void **state)
{
    world w;
    begin(&w);
    w.of[0].used = 100;  /* all of it, and nobody waits */
    w.of[1].waiting = 5; /* and here somebody waits for a lane, not for pages */
    w.of[1].running = 8;
    w.of[1].used = 100;
    w.of[2].waiting = 1; /* and here its text is being read: there are pages enough */
    looks(&w, 100);
    assert_int_equal(w.n_orders, 0);
}

/* One that waits gets from the two that do nothing, as far as they have any use for it themselves. */
static void test_short(void **state)
{
    world w;
    begin(&w);
    for (size_t i = 0; i < 200; i++) {
        w.of[0].used = w.of[0].limit;
        w.of[0].parked = 2;
        look(&w);
    }
    assert_true(w.of[0].limit > 250 && w.n_down[0] == 0);
    for (size_t i = 1; i < N_MODELS; i++) {
        uint64_t first = i == 2 ? 50 : 100;
        assert_true(w.of[i].limit >= first / 8 && w.of[i].limit < first / 3 && w.n_up[i] == 0);
    }
    /* A moment is not enough. */
    begin(&w);
    for (size_t i = 0; i < 100; i++) {
        w.of[0].parked = i % 2;
        look(&w);
    }
    assert_int_equal(w.n_orders, 0);
}

/* It can also be waiting for pages without anybody parked. */
static void test_waiting(void **state)
{
    world w;
    begin(&w);
    w.of[0].used = 60; /* what is left is not enough for it */
    w.of[0].waiting = 1;
    w.of[0].running = 2;
    looks(&w, 10);
    assert_true(w.of[0].limit > 100);
}

/* Both have too little: nothing goes back and forth. */
static void test_both(void **state)
{
    world w;
    begin(&w);
    for (size_t i = 0; i < 300; i++) {
        for (size_t k = 0; k < N_MODELS; k++) {
            w.of[k].used = w.of[k].limit;
            w.of[k].parked = 1;
        }
        look(&w);
    }
    assert_int_equal(w.n_orders, 0);
    /* In turns, faster than PLANNER_KEEP_LOOKS: each may gain from the third, and neither loses what it got. */
    begin(&w);
    for (size_t i = 0; i < 300; i++) {
        for (size_t k = 0; k < 2; k++) {
            bool now = i / 6 % 2 == k;
            w.of[k].used = now ? w.of[k].limit : 4;
            w.of[k].parked = now;
        }
        look(&w);
        if (i == 12) { /* by now both have been short */
            memset(w.n_down, 0, sizeof w.n_down);
        }
    }
    assert_true(w.n_down[0] == 0 && w.n_down[1] == 0 && w.n_up[0] + w.n_up[1] < 20);
}

/* Who has something gives it back when he has had no need for a while and another has. */
static void test_turns(void **state)
{
    world w;
    begin(&w);
    for (size_t day = 0; day < 4; day++) {
        size_t busy = day % 2;
        for (size_t i = 0; i < 200; i++) {
            for (size_t k = 0; k < 2; k++) {
                w.of[k].used = k == busy ? w.of[k].limit : 4;
                w.of[k].parked = k == busy;
            }
            look(&w);
        }
        assert_true(w.of[busy].limit > 200 && w.of[!busy].limit < 50);
    }
}

/* The giver's pool does not come down at once: nobody is given what is not there. */
static void test_late(void **state)
{
    world w;
    begin(&w);
    w.of[0].parked = 1;
    w.of[0].used = 100;
    w.of[2].limit = w.of[2].most_pages = 1; /* gives nothing */
    w.budget = 202 * MIB;
    looks(&w, 2);
    assert_int_equal(w.n_down[1], 1);
    uint64_t lowered = w.of[1].limit;
    w.of[1].limit = w.of[1].used = 100; /* somebody has taken it meanwhile */
    looks(&w, 50);
    assert_int_equal(w.of[0].limit, 100);
    w.of[1].limit = lowered;
    w.of[1].used = 4;
    look(&w);
    assert_int_equal(w.of[0].limit, 100 + 100 - lowered);
}

/* A worker that starts again has its first limit; it is told. One that can have less now has less, for good. */
static void test_deaths(void **state)
{
    world w;
    begin(&w);
    for (size_t i = 0; i < 100; i++) {
        w.of[0].used = w.of[0].limit;
        w.of[0].parked = 1;
        look(&w);
    }
    uint64_t had = w.of[0].limit, other = w.of[1].limit;
    assert_true(had > 200);
    w.of[0].ready = false;
    w.of[0].parked = 0;
    looks(&w, 5);
    w.of[0].ready = true;
    w.of[0].start = 2;
    w.of[0].limit = 100;
    w.of[0].used = 0;
    look(&w);
    assert_int_equal(w.of[0].limit, had);
    w.of[1].start = 2; /* with more than its share: at once lowered again */
    w.of[1].limit = 100;
    w.budget = sum(&w); /* for a moment */
    look(&w);
    assert_int_equal(w.of[1].limit, other);
    w.budget = 300 * MIB;
    w.of[0].start = 3; /* the kernel has killed it for memory */
    w.of[0].limit = w.of[0].most_pages = had * 3 / 4;
    looks(&w, 20);
    assert_int_equal(w.of[0].limit, had * 3 / 4);
    assert_true(sum(&w) <= w.budget - had / 4 * MIB);
    /* An order that was lost is given again. */
    w.of[1].limit = other - 1;
    planner_tell_again(&w.plan, 1);
    look(&w);
    assert_int_equal(w.of[1].limit, other);
}

static void test_strangers(void **state)
{
    world w;
    begin(&w);
    for (size_t i = 0; i < N_MODELS; i++) {
        w.of[i].page_bytes = 0; /* it was not said */
        w.of[i].parked = i == 0;
    }
    looks(&w, 50);
    assert_int_equal(w.n_orders, 0);
    begin(&w);
    w.of[1].ready = w.of[2].ready = false; /* not yet there */
    w.of[0].parked = 1;
    looks(&w, 50);
    assert_int_equal(w.n_orders, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_divide),    cmocka_unit_test(test_nobody_is_short),
        cmocka_unit_test(test_short),     cmocka_unit_test(test_waiting),
        cmocka_unit_test(test_both),      cmocka_unit_test(test_turns),
        cmocka_unit_test(test_late),      cmocka_unit_test(test_deaths),
        cmocka_unit_test(test_strangers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
