#include "base/test_main.h"

#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "base/clock.h"
#include "base/mem.h"
#include "base/pool.h"

#define MAX_TASKS 1000

typedef struct job {
    pool *p;
    atomic_uint count[MAX_TASKS];
    unsigned plain[MAX_TASKS]; /* not atomic on purpose: TSan checks that pool_run publishes it */
    size_t n;
    atomic_uint bad_thread;
    atomic_uint arrived;
} job;

static void bump_task(void *arg, size_t task, size_t thread)
{
    job *j = arg;
    atomic_fetch_add(&j->count[task], 1);
    j->plain[task]++;
    if (thread >= pool_threads(j->p)) {
        atomic_fetch_add(&j->bad_thread, 1);
    }
}

static void test_each_task_once(void **state)
{
    static const size_t threads[] = {1, 2, 3, 8};
    static const size_t sizes[] = {0, 1, 2, 3, 7, 8, 64, MAX_TASKS};
    static job j;
    for (size_t t = 0; t < N_OF(threads); t++) {
        for (int spin = 0; spin < 2; spin++) {
            memset(&j, 0, sizeof j);
            assert_int_equal(pool_new(threads[t], spin, &j.p, NULL), ST_OK);
            assert_int_equal(pool_threads(j.p), threads[t]);
            unsigned want[MAX_TASKS] = {0};
            for (size_t round = 0; round < 40; round++) {
                size_t n = sizes[round % N_OF(sizes)];
                pool_run(j.p, bump_task, &j, n);
                for (size_t i = 0; i < n; i++) {
                    want[i]++;
                }
                for (size_t i = 0; i < MAX_TASKS; i++) {
                    assert_int_equal(atomic_load(&j.count[i]), want[i]);
                    assert_int_equal(j.plain[i], want[i]); /* written by others, read here without a lock */
                }
            }
            assert_int_equal(atomic_load(&j.bad_thread), 0);
            pool_free(j.p);
        }
    }
    pool_free(NULL);
}

/* Very many very short runs: threads come late, are between two runs, or fall asleep just then. */
static void test_short_runs(void **state)
{
    static job j;
    for (int spin = 0; spin < 2; spin++) {
        memset(&j, 0, sizeof j);
        assert_int_equal(pool_new(5, spin, &j.p, NULL), ST_OK);
        for (unsigned round = 0; round < 6000; round++) {
            size_t n = 2 + round % 6;
            pool_run(j.p, bump_task, &j, n);
            if (round % 1000 == 999) {
                nanosleep(&(struct timespec){0, 1000000}, NULL); /* all fall asleep */
            }
        }
        unsigned total = 0, want = 0;
        for (size_t i = 0; i < MAX_TASKS; i++) {
            total += j.plain[i];
        }
        for (unsigned round = 0; round < 6000; round++) {
            want += 2 + round % 6;
        }
        assert_int_equal(total, want);
        pool_free(j.p);
    }
}

static void meet(void *arg, size_t task, size_t thread)
{
    job *j = arg;
    j->plain[task] = (unsigned)thread;
    atomic_fetch_add(&j->arrived, 1);
    while (atomic_load(&j->arrived) < j->n) { /* ends only if every thread of the team takes one */
        sched_yield();
    }
}

static void test_all_threads_work(void **state)
{
    static job j;
    for (int spin = 0; spin < 2; spin++) {
        memset(&j, 0, sizeof j);
        j.n = 6;
        assert_int_equal(pool_new(j.n, spin, &j.p, NULL), ST_OK);
        for (int round = 0; round < 50; round++) {
            unsigned seen = 0;
            atomic_store(&j.arrived, 0);
            pool_run(j.p, meet, &j, j.n);
            for (size_t i = 0; i < j.n; i++) {
                seen |= 1u << j.plain[i];
            }
            assert_int_equal(seen, (1u << j.n) - 1); /* each thread number exactly once */
        }
        pool_free(j.p);
    }
}

static atomic_uint wrong_mode;

static void check_mode(void *arg, size_t task, size_t thread)
{
    job *j = arg;
    volatile float tiny = 0x1p-140f, half = 0.5f, one = 1.0f, third = 3.0f, eps = 0x1p-25f;
    if (tiny * half != 0x1p-141f || one + eps != 1.0f || one / third != 0x1.555556p-2f) {
        atomic_fetch_add(&wrong_mode, 1);
    }
    meet(j, task, thread);
}

/* Whatever the caller's program has set, tasks see nearest and denormals, in every thread. */
static void test_fp_environment(void **state)
{
    static job j;
    memset(&j, 0, sizeof j);
    j.n = 4;
#if defined(__x86_64__)
    unsigned old = _mm_getcsr();
    _mm_setcsr(old | 0x8040); /* flush to zero, denormals are zero: new threads inherit it */
#endif
    fesetround(FE_UPWARD);
    assert_int_equal(pool_new(j.n, true, &j.p, NULL), ST_OK);
    for (int round = 0; round < 3; round++) {
#if defined(__x86_64__)
        _mm_setcsr(_mm_getcsr() | 0x8040);
#endif
        fesetround(FE_UPWARD);
        atomic_store(&j.arrived, 0);
        pool_run(j.p, check_mode, &j, j.n);
    }
    pool_free(j.p);
    fesetround(FE_TONEAREST);
    fp_env_default();
    assert_int_equal(atomic_load(&wrong_mode), 0);
}

static double cpu_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* An idle pool costs nothing: 8 threads x 50 us of spinning at most, once. */
static void test_idle_sleeps(void **state)
{
    static job j;
    memset(&j, 0, sizeof j);
    assert_int_equal(pool_new(8, true, &j.p, NULL), ST_OK);
    pool_run(j.p, bump_task, &j, 8);
    nanosleep(&(struct timespec){0, 20000000}, NULL);
    double before = cpu_ms();
    nanosleep(&(struct timespec){0, 200000000}, NULL);
    assert_true(cpu_ms() - before < 20.0);
    pool_free(j.p);
}

static void slow_other(void *arg, size_t task, size_t thread)
{
    job *j = arg;
    meet(j, task, thread);
    if (thread != 0) {
        nanosleep(&(struct timespec){0, 100000000}, NULL);
    }
}

/* A caller that waits for a slow thread sleeps too. */
static void test_caller_sleeps(void **state)
{
    static job j;
    memset(&j, 0, sizeof j);
    j.n = 2;
    assert_int_equal(pool_new(2, true, &j.p, NULL), ST_OK);
    uint64_t t0 = clock_mono_ns(clock_system());
    double before = cpu_ms();
    pool_run(j.p, slow_other, &j, 2);
    assert_true(cpu_ms() - before < 50.0);
    assert_true(clock_ms_between(t0, clock_mono_ns(clock_system())) >= 99.0);
    pool_free(j.p);
}

static atomic_uint open_signals;

static void look_at_signals(void *arg, size_t task, size_t thread)
{
    sigset_t now;
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    if (thread != 0 &&
        (!sigismember(&now, SIGTERM) || !sigismember(&now, SIGINT) || sigismember(&now, SIGBUS))) {
        atomic_fetch_add(&open_signals, 1);
    }
    meet(arg, task, thread);
}

static void test_signals_blocked(void **state)
{
    static job j;
    sigset_t before, after;
    memset(&j, 0, sizeof j);
    j.n = 3;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    assert_int_equal(pool_new(j.n, true, &j.p, NULL), ST_OK);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    assert_int_equal(sigismember(&before, SIGTERM), sigismember(&after, SIGTERM));
    pool_run(j.p, look_at_signals, &j, j.n);
    assert_int_equal(atomic_load(&open_signals), 0);
    pool_free(j.p);
}

static void test_no_allocation(void **state)
{
    static job j;
    memset(&j, 0, sizeof j);
    assert_int_equal(pool_new(3, true, &j.p, NULL), ST_OK);
    uint64_t before = mem_alloc_count();
    mem_guard_enter();
    for (int i = 0; i < 100; i++) {
        pool_run(j.p, bump_task, &j, 50);
    }
    mem_guard_leave();
    assert_true(mem_alloc_count() == before);
    pool_free(j.p);
}

static void test_refused(void **state)
{
    pool *p = NULL;
    err e;
    assert_int_equal(pool_new(0, true, &p, &e), ST_INVALID_FIELD);
    assert_string_equal(e.field, "threads");
    assert_int_equal(pool_new(POOL_MAX_THREADS + 1, true, &p, &e), ST_INVALID_FIELD);
    assert_non_null(strstr(e.msg, "257"));
    for (uint64_t n = 1; n <= 2; n++) {
        mem_fail_at(n, false);
        assert_int_equal(pool_new(4, true, &p, &e), ST_NOMEM);
        mem_fail_at(0, false);
    }
    assert_null(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_task_once),   cmocka_unit_test(test_short_runs),
        cmocka_unit_test(test_all_threads_work), cmocka_unit_test(test_fp_environment),
        cmocka_unit_test(test_idle_sleeps),      cmocka_unit_test(test_caller_sleeps),
        cmocka_unit_test(test_signals_blocked),  cmocka_unit_test(test_no_allocation),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
