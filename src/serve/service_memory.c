/* model_service: the memory of its worker: whether the kernel has killed it for want of that, and how many pages the next
 * one may have. */
#include <signal.h>
#include <stdio.h>

#include "base/log.h"
#include "base/mem_limit.h"
#include "serve/model_service_int.h"

#define LEAST_PAGES 17 /* for a context of 512 tokens */

void service_memory_started(model_service *s)
{
    s->counts_kills = mem_limit_oom_kills(NULL, &s->kills);
}

worker_cause service_memory_cause(model_service *s, worker_cause cause)
{
    uint64_t kills = s->kills;
    bool by_kernel = cause == WORKER_KILLED && worker_conn_end(s->conn) == SIGKILL;
    bool more = s->counts_kills && mem_limit_oom_kills(NULL, &kills) && kills > s->kills;
    return by_kernel && more ? WORKER_OOM_KILLED : cause;
}

void service_memory_after(model_service *s, worker_cause cause)
{
    status_snapshot page;
    uint64_t had = s->model.kv_pages;
    if (cause != WORKER_OOM_KILLED || s->ready_ns == 0) { /* while it was loaded it had no pages yet */
        return;
    }
    worker_conn_left(s->conn, &page);
    uint64_t limit =
        page.row[STATUS_ROW_PAGES_TOTAL]; /* it may have been lower when it died; believed if it can be */
    had = limit > 0 && limit < had ? limit : had;
    had = s->kv_pages_limit > 0 && s->kv_pages_limit < had ? s->kv_pages_limit : had;
    uint64_t lower = had - had / 4;
    s->kv_pages_limit = lower > LEAST_PAGES ? lower : had < LEAST_PAGES ? had : LEAST_PAGES;
    snprintf(s->pages_option, sizeof s->pages_option, "--kv-pages=%llu",
             (unsigned long long)s->kv_pages_limit);
    log_emit(LOG_WARN, "serve", "model=\"%s\" event=kv_pages_lowered had=%llu pages=%llu reason=oom_killed",
             s->cfg.id, (unsigned long long)had, (unsigned long long)s->kv_pages_limit);
}
