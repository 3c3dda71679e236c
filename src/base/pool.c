#include "base/pool.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"

/*
 * How a run goes. The caller writes the job (fn, arg, n_tasks) and n_undone, then sets n_unclaimed = n: from
 * here on whoever decrements n_unclaimed owns one task. n_undone falls as tasks end; at 0 the run is over. A
 * thread that comes late finds n_unclaimed at 0, or claims a task of the run that is on by then: it reads the
 * job only after a successful claim, and the job cannot change while a claimed task is not done. So no
 * generation number and no lock is needed, and a run need not wait for threads that are still asleep.
 *
 *   atomic          writer, order                        reader, order: what it carries
 *   n_unclaimed     caller: store release                claim: CAS acquire: the job and what the caller wrote
 *                   claim: CAS acq_rel                   (the CASes continue the store's release sequence)
 *   n_undone        end of a task: sub acq_rel           caller: load acquire: the results of all tasks
 *   epoch           caller: add seq_cst, after the store sleeper: load acquire, futex; n_sleepers (Dekker)
 *   n_sleepers      sleeper: add/sub seq_cst             caller: load seq_cst, after epoch
 *   done_epoch      last task: add seq_cst               caller: load acquire, futex; caller_sleeps (Dekker)
 *   caller_sleeps   caller: store seq_cst                last task: load seq_cst, after done_epoch
 *   stop            pool_free: store release             worker: load acquire
 */
typedef struct worker {
    pool *p; /* borrowed */
    size_t thread;
    pthread_t handle;
} worker;

struct pool {
    alignas(64) atomic_size_t n_unclaimed;
    alignas(64) atomic_size_t n_undone;
    alignas(64) atomic_uint epoch; /* rises once per run that may need a sleeper */
    atomic_uint n_sleepers;
    alignas(64) atomic_uint done_epoch; /* rises at the end of each run */
    atomic_uint caller_sleeps;
    /* the job: written by the caller between runs */
    alignas(64) pool_fn fn;
    void *arg;
    size_t n_tasks;
    /* constant after pool_new */
    size_t n_threads;
    bool may_spin;
    atomic_bool stop;
    worker *workers; /* owned [n_threads - 1] */
};

static void futex_wait(atomic_uint *word, unsigned seen)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0); /* every outcome means: look again */
}

static void futex_wake(atomic_uint *word, int n)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

static void cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

void fp_env_default(void)
{
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr(0x1F80); /* nearest, no FTZ, no DAZ, all exceptions masked */
#elif defined(__aarch64__)
    uint64_t fpcr = 0; /* nearest, FZ and FZ16 off, no traps */
    __asm__ volatile("msr fpcr, %0" : : "r"(fpcr));
#else
#error "fp_env_default: name this machine's rounding and denormal mode"
#endif
}

/* Waits until *word differs from seen: spins for a bounded time if allowed. False if it is still the same. */
static bool spin_until_changed(const pool *p, atomic_uint *word, unsigned seen)
{
    if (!p->may_spin) {
        return atomic_load_explicit(word, memory_order_acquire) != seen;
    }
    const clock_src *clock = clock_system();
    uint64_t until = clock_mono_ns(clock) + POOL_SPIN_US * 1000u;
    do {
        for (int i = 0; i < 32; i++) {
            if (atomic_load_explicit(word, memory_order_acquire) != seen) {
                return true;
            }
            cpu_relax();
        }
    } while (clock_mono_ns(clock) < until);
    return false;
}

/* Takes one task; false if none is left. */
static bool claim(pool *p, size_t *task)
{
    size_t left = atomic_load_explicit(&p->n_unclaimed, memory_order_relaxed);
    while (left > 0) {
        if (atomic_compare_exchange_weak_explicit(&p->n_unclaimed, &left, left - 1, memory_order_acq_rel,
                                                  memory_order_relaxed)) {
            *task = p->n_tasks - left;
            return true;
        }
    }
    return false;
}

static void work(pool *p, size_t thread)
{
    size_t task;
    while (claim(p, &task)) {
        p->fn(p->arg, task, thread);
        if (atomic_fetch_sub_explicit(&p->n_undone, 1, memory_order_acq_rel) == 1) {
            atomic_fetch_add_explicit(&p->done_epoch, 1, memory_order_seq_cst);
            if (atomic_load_explicit(&p->caller_sleeps, memory_order_seq_cst)) {
                futex_wake(&p->done_epoch, 1);
            }
        }
    }
}

static void *worker_main(void *arg)
{
    worker *w = arg;
    pool *p = w->p;
    fp_env_default();
    pthread_setname_np(pthread_self(), "hearth-pool");
    for (;;) {
        /* Read before looking for work: a run that starts after the look changes it and ends the wait at
         * once. */
        unsigned seen = atomic_load_explicit(&p->epoch, memory_order_acquire);
        if (atomic_load_explicit(&p->stop, memory_order_acquire)) {
            return NULL;
        }
        work(p, w->thread);
        if (!spin_until_changed(p, &p->epoch, seen)) {
            atomic_fetch_add_explicit(&p->n_sleepers, 1, memory_order_seq_cst);
            futex_wait(&p->epoch, seen);
            atomic_fetch_sub_explicit(&p->n_sleepers, 1, memory_order_seq_cst);
        }
    }
}

/* Wakes at most n sleepers. */
static void wake_workers(pool *p, size_t n)
{
    atomic_fetch_add_explicit(&p->epoch, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&p->n_sleepers, memory_order_seq_cst) > 0) {
        futex_wake(&p->epoch, n < INT_MAX ? (int)n : INT_MAX);
    }
}

static void wait_done(pool *p)
{
    bool told = false;
    for (;;) {
        unsigned seen = atomic_load_explicit(&p->done_epoch, memory_order_acquire);
        if (atomic_load_explicit(&p->n_undone, memory_order_acquire) == 0) {
            break;
        }
        if (!told && spin_until_changed(p, &p->done_epoch, seen)) {
            continue;
        }
        if (!told) {
            atomic_store_explicit(&p->caller_sleeps, 1, memory_order_seq_cst);
            told = true;
            continue; /* done_epoch is read again after the word that asks for a wake-up */
        }
        futex_wait(&p->done_epoch, seen);
    }
    if (told) {
        atomic_store_explicit(&p->caller_sleeps, 0, memory_order_seq_cst);
    }
}

void pool_run(pool *p, pool_fn fn, void *arg, size_t n_tasks)
{
    fp_env_default();
    if (p->n_threads == 1 || n_tasks < 2) {
        for (size_t task = 0; task < n_tasks; task++) {
            fn(arg, task, 0);
        }
        return;
    }
    p->fn = fn;
    p->arg = arg;
    p->n_tasks = n_tasks;
    atomic_store_explicit(&p->n_undone, n_tasks, memory_order_relaxed); /* published by the next store */
    atomic_store_explicit(&p->n_unclaimed, n_tasks, memory_order_release);
    wake_workers(p, n_tasks - 1);
    work(p, 0);
    wait_done(p);
}

/* Starts thread w->thread with signals blocked: they belong to the threads that wait for them. Faults stay
 * open. */
static int start(worker *w)
{
    sigset_t block, old;
    sigfillset(&block);
    sigdelset(&block, SIGSEGV);
    sigdelset(&block, SIGBUS);
    sigdelset(&block, SIGFPE);
    sigdelset(&block, SIGILL);
    sigdelset(&block, SIGTRAP);
    sigdelset(&block, SIGABRT);
    sigdelset(&block, SIGSYS);
    pthread_sigmask(SIG_SETMASK, &block, &old);
    int rc = pthread_create(&w->handle, NULL, worker_main, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc;
}

status pool_new(size_t n_threads, bool may_spin, pool **out, err *e)
{
    if (n_threads < 1 || n_threads > POOL_MAX_THREADS) {
        return err_set(e, ST_INVALID_FIELD, "threads", "%zu compute threads are outside 1 to %d", n_threads,
                       POOL_MAX_THREADS);
    }
    pool *p = mem_alloc_aligned(64, sizeof *p);
    worker *workers = mem_calloc(n_threads, sizeof *workers);
    if (!p || !workers) {
        mem_free(p);
        mem_free(workers);
        return err_set(e, ST_NOMEM, NULL, "out of memory for %zu compute threads", n_threads);
    }
    memset(p, 0, sizeof *p);
    p->may_spin = may_spin;
    p->workers = workers;
    p->n_threads = 1;
    for (size_t i = 1; i < n_threads; i++) {
        worker *w = &workers[i - 1];
        *w = (worker){.p = p, .thread = i};
        int rc = start(w);
        if (rc != 0) {
            pool_free(p); /* joins the i - 1 that run */
            return err_set(e, ST_CAPACITY, "threads", "cannot start compute thread %zu of %zu: %s", i + 1,
                           n_threads, strerror(rc));
        }
        p->n_threads = i + 1;
    }
    *out = p;
    return ST_OK;
}

void pool_free(pool *p)
{
    if (!p) {
        return;
    }
    atomic_store_explicit(&p->stop, true, memory_order_release);
    wake_workers(p, SIZE_MAX);
    for (size_t i = 1; i < p->n_threads; i++) {
        pthread_join(p->workers[i - 1].handle, NULL);
    }
    mem_free(p->workers);
    mem_free(p);
}

size_t pool_threads(const pool *p)
{
    return p->n_threads;
}
