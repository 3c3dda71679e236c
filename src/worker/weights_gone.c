#include "worker/weights_gone.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

static _Atomic(const instance *) watched; /* release in watch and forget, acquire in the handler */

static status_page *told; /* set before `watched` */

static void on_bus(int sig, siginfo_t *info, void *context)
{
    const instance *in = atomic_load_explicit(&watched, memory_order_acquire);
    bool is_fault = info->si_code > 0; /* not sent by somebody */
    if (is_fault && in && instance_maps(in, info->si_addr)) {
        status_page_set(told, STATUS_ROW_PHASE, STATUS_WEIGHTS_GONE);
    }
    signal(sig, SIG_DFL);
    if (!is_fault) {
        raise(sig);
    } /* else what was read is read again, and that is the end */
}

status weights_gone_watch(const instance *in, status_page *page, err *e)
{
    struct sigaction sa;
    memset(&sa, 0, sizeof sa);
    sigemptyset(&sa.sa_mask);
    sa.sa_sigaction = on_bus;
    sa.sa_flags = SA_SIGINFO;
    told = page;
    atomic_store_explicit(&watched, in, memory_order_release);
    return sigaction(SIGBUS, &sa, NULL) == 0
               ? ST_OK
               : err_set(e, ST_IO, NULL, "cannot set the action of SIGBUS: %s", strerror(errno));
}

void weights_gone_forget(void)
{
    if (atomic_exchange_explicit(&watched, NULL, memory_order_acq_rel)) {
        signal(SIGBUS, SIG_DFL);
    }
}
