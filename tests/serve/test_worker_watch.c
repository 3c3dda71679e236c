/* worker_watch: which standstill counts, in a table of ticks. */

#include "base/test_main.h"
#include "serve/worker_watch.h"

#define MS      1000000u
#define TICK_MS 100

/* One tick: how long after the last, is there work, and by how much which row moves. */
typedef struct tick {
    uint64_t after_ms;
    bool working;
    int row, by;
    uint64_t still_ms, lost_ms; /* expected */
} tick;

static void run(const tick *ticks, size_t n)
{
    worker_watch w;
    status_snapshot page = {0};
    uint64_t now = 5000u * MS, lost;
    worker_watch_reset(&w, now);
    for (size_t i = 0; i < n; i++) {
        now += ticks[i].after_ms * MS;
        page.row[ticks[i].row] += (uint64_t)ticks[i].by;
        assert_int_equal(worker_watch_tick(&w, now, TICK_MS, ticks[i].working, &page, &lost),
                         ticks[i].still_ms * MS);
        assert_int_equal(lost, ticks[i].lost_ms * MS);
    }
}
#define RUN(...)                               \
    do {                                       \
        static const tick t[] = {__VA_ARGS__}; \
        run(t, sizeof t / sizeof t[0]);        \
    } while (0)

static void a_standstill_counts_from_the_last_move(void **state)
{
    RUN({100, true, 1, 1, 0}, {100, true, 0, 0, 100}, {100, true, 0, 0, 200}, {100, true, 1, 1, 0},
        {100, true, 0, 0, 100}, {900, true, 0, 0, 1000});
}

static void without_work_there_is_none(void **state)
{
    RUN({100, false, 0, 0, 0}, {100, false, 0, 0, 0}, {100, true, 0, 0, 0}, {100, true, 0, 0, 100},
        {100, false, 0, 0, 0}, {100, true, 0, 0, 0});
}

static void which_rows_are_counters(void **state)
{
    static const int counters[] = {1, 3, 5, 7, 8, 18, 19},
                     others[] = {0, 2, 4, 6, 9, 10, 11, 12, 13, 14, 15, 16, 17, 20, 31};
    for (size_t i = 0; i < sizeof counters / sizeof counters[0]; i++) {
        const tick t[] = {{100, true, 0, 0, 0},
                          {100, true, 0, 0, 100},
                          {100, true, counters[i], 1, 0},
                          {100, true, counters[i], -1, 0}};
        run(t, 4);
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        const tick t[] = {
            {100, true, 0, 0, 0}, {100, true, others[i], 1, 100}, {100, true, others[i], 1, 200}};
        run(t, 3);
    }
}

static void time_without_the_daemon_does_not_count(void **state)
{
    /* 60 s stopped: of them one tick counts */
    RUN({100, true, 1, 1, 0}, {100, true, 0, 0, 100}, {60100, true, 0, 0, 200, 60000},
        {100, true, 0, 0, 300});
    /* a tick that is just late is the machine's load: it counts */
    RUN({100, true, 1, 1, 0}, {1099, true, 0, 0, 1099, 0}, {1100, true, 0, 0, 1199, 1000});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_standstill_counts_from_the_last_move),
        cmocka_unit_test(without_work_there_is_none),
        cmocka_unit_test(which_rows_are_counters),
        cmocka_unit_test(time_without_the_daemon_does_not_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
