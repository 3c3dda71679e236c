/*
 * pool: the fixed team of compute threads.
 *
 * pool_run(p, fn, arg, n) calls fn(arg, task, thread) for each task in [0, n) exactly once, thread in
 * [0, pool_threads(p)), and returns when all are done; the caller's thread takes part as thread 0. Which
 * thread gets which task is not fixed: results must not depend on it. One caller at a time; no allocation.
 * Between runs a thread spins for at most POOL_SPIN_US and then sleeps; under a CPU quota it does not spin.
 * Every thread (the caller inside pool_run too) runs with the default rounding and denormal mode (DESIGN 4,
 * 9).
 */
#ifndef HEARTH_BASE_POOL_H
#define HEARTH_BASE_POOL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

#define POOL_SPIN_US     50
#define POOL_MAX_THREADS 256

typedef struct pool pool;
typedef void (*pool_fn)(void *arg, size_t task, size_t thread);

/* n_threads in [1, POOL_MAX_THREADS]; 1 makes no thread at all. */
status pool_new(size_t n_threads, bool may_spin, pool **out, err *e);
void pool_free(pool *p); /* joins */
size_t pool_threads(const pool *p);
void pool_run(pool *p, pool_fn fn, void *arg, size_t n_tasks);

/* Sets the calling thread to round-to-nearest with denormals kept (x86 MXCSR, arm FPCR). */
void fp_env_default(void);

#endif
