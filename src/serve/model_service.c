#include "serve/model_service.h"

#include <string.h>

#include "base/mem.h"
#include "serve/model_service_int.h"

uint64_t service_now(const model_service *s)
{
    return clock_mono_ns(s->cfg.clock);
}

static service_state state_of_life(const model_service *s)
{
    if (s->draining) {
        return SERVICE_DRAINING;
    }
    if (s->life == LIFE_READY || s->life == LIFE_FAILED) {
        return s->life == LIFE_READY ? SERVICE_READY : SERVICE_FAILED;
    }
    return s->was_ready || s->n_starts > 1 ? SERVICE_RESTARTING : SERVICE_LOADING;
}

service_state service_state_now(const model_service *s)
{
    service_state state = state_of_life(s);
    bool still =
        worker_conn_suspended(s->conn) || s->still_ns * 2 >= s->cfg.limits.stall_ms * SERVICE_NS_PER_MS;
    bool works = state == SERVICE_LOADING || state == SERVICE_READY || state == SERVICE_RESTARTING;
    return works && still ? SERVICE_STALLED : state;
}

void service_tell(model_service *s)
{
    service_state now = service_state_now(s);
    bool stopped = service_stopped(s);
    if (now != s->told || stopped != s->told_stopped) {
        s->told = now;
        s->told_stopped = stopped;
        if (s->cfg.changed) {
            s->cfg.changed(s->cfg.ctx, s);
        }
    }
}

void service_read(const model_service *s, service_info *out)
{
    *out = (service_info){.state = service_state_now(s),
                          .id = s->cfg.id,
                          .known = s->was_ready,
                          .model = s->model,
                          .pid = worker_conn_pid(s->conn),
                          .n_waiting = s->queue.n_items + s->n_again,
                          .waiting_bytes = s->queue.n_bytes + s->kept_bytes,
                          .n_light = s->n_light,
                          .n_with_worker = s->n_full,
                          .n_starts = s->n_starts,
                          .n_cancelled = s->n_cancelled,
                          .n_resumed = s->n_resumed,
                          .n_resumed_tokens = s->n_resumed_tokens,
                          .n_blamed = s->n_blamed,
                          .job_s = s->job_s};
    memcpy(out->n_deaths, s->n_deaths, sizeof out->n_deaths);
    memcpy(out->failure, s->failure, sizeof out->failure);
}

void service_page(const model_service *s, struct status_snapshot *out)
{
    worker_conn_page(s->conn, out);
}

const char *service_id(const model_service *s)
{
    return s->cfg.id;
}

status service_open(struct event_base *base, const service_config *cfg, model_service **out, err *e)
{
    model_service *s = mem_calloc(1, sizeof *s);
    if (!s) {
        return err_set(e, ST_NOMEM, NULL, "out of memory");
    }
    s->cfg = *cfg;
    s->base = base;
    s->respawn.max_respawns = cfg->limits.max_respawns;
    fair_queue_init(&s->queue, cfg->limits.max_waiting, cfg->limits.max_waiting_bytes);
    const worker_conn_config conn = {.argv = cfg->argv,
                                     .more = s->pages_option,
                                     .frame = service_take_frame,
                                     .lost = service_life_lost,
                                     .gone = service_life_gone,
                                     .ctx = s};
    status st = worker_conn_open(base, &conn, &s->conn, e);
    s->tick = event_new(base, -1, 0, service_on_tick, s);
    s->lost = event_new(base, -1, 0, service_on_lost, s);
    if (st == ST_OK && (!s->tick || !s->lost)) {
        st = err_set(e, ST_NOMEM, NULL, "out of memory");
    }
    if (st != ST_OK) {
        service_free(s);
        return st;
    }
    *out = s;
    return ST_OK;
}

void service_free(model_service *s)
{
    if (!s) {
        return;
    }
    worker_conn_free(s->conn);
    service_entries_free(s);
    fair_queue_release(&s->queue);
    if (s->tick) {
        event_free(s->tick);
    }
    if (s->lost) {
        event_free(s->lost);
    }
    mem_free(s);
}
