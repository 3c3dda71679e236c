#include "worker/halt.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Where the handler finds the worker. Release when set and cleared, acquire in the handler. */
static _Atomic(halt *) catcher;

void halt_ask(halt *h, int cause)
{
    int none = HALT_NONE;
    uint64_t one = 1;
    int saved = errno; /* of whatever the signal interrupted */
    atomic_compare_exchange_strong_explicit(&h->cause, &none, cause, memory_order_release,
                                            memory_order_relaxed);
    atomic_store_explicit(&h->on, true, memory_order_release);
    ssize_t n = write(h->fd, &one, sizeof one);
    (void)n; /* fails only when it is readable already */
    errno = saved;
}

bool halt_asked(const halt *h)
{
    return atomic_load_explicit(&h->on, memory_order_acquire);
}

int halt_cause(const halt *h)
{
    return halt_asked(h) ? atomic_load_explicit(&h->cause, memory_order_acquire) : HALT_NONE;
}

static void on_signal(int number)
{
    halt *h = atomic_load_explicit(&catcher, memory_order_acquire);
    if (h) {
        halt_ask(h, number);
    }
}

static status set_action(int number, void (*handler)(int), struct sigaction *old, err *e)
{
    struct sigaction sa;
    memset(&sa, 0, sizeof sa);
    sigemptyset(&sa.sa_mask);
    sa.sa_handler = handler;
    sa.sa_flags = handler == SIG_IGN ? 0 : (int)SA_RESETHAND;
    if (sigaction(number, &sa, old) != 0) {
        return err_set(e, ST_IO, NULL, "cannot set the action of signal %d: %s", number, strerror(errno));
    }
    return ST_OK;
}

status halt_open(halt *h, err *e)
{
    memset(h, 0, sizeof *h);
    h->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (h->fd < 0) {
        return err_set(e, ST_IO, NULL, "cannot make an eventfd: %s", strerror(errno));
    }
    status st = set_action(SIGPIPE, SIG_IGN, &h->old_pipe, e);
    if (st != ST_OK) {
        close(h->fd);
        h->fd = -1;
    }
    return st;
}

status halt_catch_signals(halt *h, err *e)
{
    atomic_store_explicit(&catcher, h, memory_order_release);
    h->catching = true;
    status st = set_action(SIGTERM, on_signal, &h->old_term, e);
    if (st == ST_OK) {
        st = set_action(SIGINT, on_signal, &h->old_int, e);
    }
    if (st == ST_OK && h->old_int.sa_handler == SIG_IGN) {
        sigaction(SIGINT, &h->old_int, NULL);
    }
    return st;
}

void halt_enforce(const halt *h)
{
    int cause = halt_cause(h);
    int number = cause > 0 ? cause : cause == HALT_OUTPUT_GONE ? SIGPIPE : SIGTERM;
    struct sigaction sa;
    sigset_t set;
    memset(&sa, 0, sizeof sa);
    sa.sa_handler = SIG_DFL;
    sigemptyset(&sa.sa_mask);
    sigaction(number, &sa, NULL);
    sigemptyset(&set);
    sigaddset(&set, number);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    kill(getpid(), number);
}

void halt_close(halt *h)
{
    if (h->fd < 0) {
        return;
    }
    if (h->catching) {
        sigaction(SIGTERM, &h->old_term, NULL);
        sigaction(SIGINT, &h->old_int, NULL);
        atomic_store_explicit(&catcher, NULL, memory_order_release);
    }
    sigaction(SIGPIPE, &h->old_pipe, NULL);
    close(h->fd);
    h->fd = -1;
}
