#include "cmd/int8_speed.h"

#include <stdatomic.h>

#include "base/clock.h"

#define SLICES_PER_THREAD 16
#define PASS_MS           20.0
#define TRY_ROUNDS        2000u

typedef struct rate_job {
    const kern_table *kern;
    uint64_t rounds; /* of a slice */
    atomic_ullong ops;
} rate_job;

static void rate_task(void *arg, size_t task, size_t thread)
{
    rate_job *j = arg;
    (void)task;
    (void)thread;
    atomic_fetch_add_explicit(&j->ops, j->kern->int8_rate(j->rounds), memory_order_relaxed);
}

double int8_speed_pass(pool *p, const kern_table *kern)
{
    const clock_src *c = clock_system();
    if (!kern->int8_rate) {
        return 0;
    }
    uint64_t t0 = clock_mono_ns(c);
    kern->int8_rate(TRY_ROUNDS);
    double try_ms = clock_ms_between(t0, clock_mono_ns(c));
    rate_job j = {.kern = kern};
    j.rounds = 1 + (uint64_t)(TRY_ROUNDS * PASS_MS / SLICES_PER_THREAD / (try_ms > 1e-3 ? try_ms : 1e-3));
    t0 = clock_mono_ns(c);
    pool_run(p, rate_task, &j, pool_threads(p) * SLICES_PER_THREAD);
    double ms = clock_ms_between(t0, clock_mono_ns(c));
    return ms > 0 ? (double)atomic_load_explicit(&j.ops, memory_order_relaxed) / 1e9 / ms : 0;
}
