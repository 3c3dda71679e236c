/* model_service: the life of its worker: starts, deaths, back-off, what is watched, and the end. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "serve/model_service_int.h"

static const char stopping[] = "the server is shutting down";

/*
 * The tick: runs while something may become due.
 */
static bool must_watch(const model_service *s)
{
    return s->life == LIFE_STARTING || (s->life == LIFE_DOWN && s->started) || s->at[ENTRY_SENT].first ||
           s->at[ENTRY_AGAIN].first || s->at[ENTRY_WAITING].first || s->kill_ns != 0;
}

static void add_tick(model_service *s)
{
    uint64_t ms = s->cfg.limits.tick_ms;
    const struct timeval tv = {(time_t)(ms / 1000), (suseconds_t)(ms % 1000 * 1000)};
    evtimer_add(s->tick, &tv);
}

void service_want_tick(model_service *s)
{
    if (must_watch(s) && !evtimer_pending(s->tick, NULL)) {
        worker_watch_reset(&s->watch, service_now(s));
        s->still_ns = 0;
        add_tick(s);
    }
}

static void tick_now(model_service *s)
{
    service_want_tick(s);
    event_active(s->tick, EV_TIMEOUT, 1);
}

/*
 * Starts and deaths.
 */
static void start_worker(model_service *s);
static void go_on_draining(model_service *s);

static void give_up(model_service *s, worker_cause cause, uint64_t wait_ms)
{
    s->life = LIFE_FAILED;
    s->failed_code = cause == WORKER_LOAD_FAILED ? ST_LOAD_FAILED : ST_WORKER_CRASHED;
    log_emit(LOG_ERROR, "serve", "model=\"%s\" worker=given_up retry_ms=%llu cause=%s detail=\"%s\"",
             s->cfg.id, (unsigned long long)wait_ms, worker_cause_label(cause), s->failure);
    service_lose_all(s, ENTRY_AGAIN, s->failed_code, s->failure);
    service_lose_all(s, ENTRY_WAITING, s->failed_code, s->failure);
}

/* But not those whose request has begun: its other replies go on with the next worker, and it with them. */
static void lose_those_who_wait(model_service *s)
{
    for (service_entry *en = s->at[ENTRY_WAITING].first, *next; en; en = next) {
        next = en->next;
        if (!en->job->has_begun) {
            service_entry_lose(s, en, ST_WORKER_CRASHED, s->failure);
        }
    }
}

/* No process is left. */
static void after_death(model_service *s, worker_cause cause, const char *detail)
{
    uint64_t now_ns = service_now(s), wait_ms;
    s->n_deaths[cause]++;
    snprintf(s->failure, sizeof s->failure, "%s", detail);
    s->kill_ns = 0;
    s->life = LIFE_DOWN;
    go_on_draining(s);
    if (s->life == LIFE_STOPPED) {
        service_tell(s);
        return;
    }
    if (s->ready_ns != 0 && now_ns - s->ready_ns >= s->cfg.limits.steady_ms * SERVICE_NS_PER_MS) {
        respawn_forget(&s->respawn);
    }
    bool again = respawn_after_death(&s->respawn, cause == WORKER_LOAD_FAILED, &wait_ms);
    s->start_ns = now_ns + wait_ms * SERVICE_NS_PER_MS;
    if (!again) {
        give_up(s, cause, wait_ms);
        go_on_draining(s);
        service_tell(s);
        return;
    }
    log_emit(LOG_INFO, "serve", "model=\"%s\" worker=respawn wait_ms=%llu deaths=%u", s->cfg.id,
             (unsigned long long)wait_ms, s->respawn.n_deaths);
    if (cause == WORKER_NOT_STARTED) {
        lose_those_who_wait(s);
    }
    if (wait_ms == 0) {
        start_worker(s);
    } else {
        service_want_tick(s);
        service_tell(s);
    }
}

static void start_worker(model_service *s)
{
    err e;
    s->load_failed = s->lost_work = s->told_drain = false;
    s->ready_ns = 0;
    s->n_lines = 0;
    s->reading = (service_reading){0};
    service_memory_started(s);
    if (worker_conn_start(s->conn, &e) != ST_OK) {
        log_emit(LOG_WARN, "serve", "model=\"%s\" worker=not_started error=\"%s\"", s->cfg.id, e.msg);
        after_death(s, WORKER_NOT_STARTED, e.msg);
        return;
    }
    s->n_starts++;
    s->life = LIFE_STARTING;
    worker_watch_reset(&s->watch, service_now(s));
    log_emit(LOG_INFO, "serve", "model=\"%s\" worker=started pid=%d", s->cfg.id,
             (int)worker_conn_pid(s->conn));
    service_want_tick(s);
    service_tell(s);
}

void service_life_ready(model_service *s)
{
    s->life = LIFE_READY;
    s->was_ready = true;
    s->ready_ns = service_now(s);
    log_emit(LOG_INFO, "serve", "model=\"%s\" worker=ready pid=%d arch=%s quant=%s context=%d lanes=%d",
             s->cfg.id, (int)worker_conn_pid(s->conn), s->model.arch, s->model.quant,
             (int)s->model.context_length, (int)s->model.lanes);
    service_tell(s);
    service_dispatch(s);
    go_on_draining(s);
}

/* What was with it waits until it is known why. */
void service_life_lost(void *ctx)
{
    model_service *s = ctx;
    s->life = LIFE_LOSING;
    s->still_ns = 0;
    s->lost_work = s->at[ENTRY_SENT].first;
    service_tell(s);
}

/* The worker says on its page whose fault its SIGBUS was. */
static bool lost_its_weights(const model_service *s, worker_cause cause)
{
    status_snapshot page;
    if (cause != WORKER_KILLED || worker_conn_end(s->conn) != SIGBUS) {
        return false;
    }
    worker_conn_left(s->conn, &page);
    return page.row[STATUS_ROW_PHASE] == STATUS_WEIGHTS_GONE;
}

void service_life_gone(void *ctx)
{
    model_service *s = ctx;
    worker_cause cause = service_memory_cause(s, worker_conn_cause(s->conn));
    cause = lost_its_weights(s, cause) ? WORKER_MODEL_CHANGED : cause;
    bool by_itself = cause == WORKER_EXITED || cause == WORKER_KILLED;
    if (s->draining && !s->lost_work && by_itself) {
        cause = WORKER_STOPPED; /* as it was asked to */
    }
    log_emit(cause == WORKER_STOPPED ? LOG_INFO : LOG_WARN, "serve",
             "model=\"%s\" worker=gone was_ready=%d cause=%s detail=\"%s\"", s->cfg.id, s->ready_ns != 0,
             worker_cause_label(cause), worker_conn_detail(s->conn));
    service_again_after(s, cause);
    service_memory_after(s, cause);
    after_death(s, cause, worker_conn_detail(s->conn));
}

void service_life_asked(model_service *s)
{
    s->life = LIFE_DOWN;
    tick_now(s);
}

/*
 * What is watched.
 */
/* A suspect computes, paused or not: service_pause does not hold it back. */
static bool has_work(const model_service *s)
{
    if (s->life == LIFE_STARTING) {
        return true;
    }
    for (const service_entry *en = s->at[ENTRY_SENT].first; en && s->life == LIFE_READY; en = en->next) {
        if (!en->paused || en->marked || en->cancel_ns != 0) {
            return true;
        }
    }
    return false;
}

static void watch_progress(model_service *s, uint64_t now_ns, uint64_t *lost_ns)
{
    status_snapshot page;
    char text[96];
    worker_conn_page(s->conn, &page);
    s->still_ns = worker_watch_tick(&s->watch, now_ns, s->cfg.limits.tick_ms, has_work(s), &page, lost_ns);
    if (s->still_ns >= s->cfg.limits.stall_ms * SERVICE_NS_PER_MS) {
        snprintf(text, sizeof text, "no progress for %llu ms",
                 (unsigned long long)(s->still_ns / SERVICE_NS_PER_MS));
        worker_conn_kill(s->conn, WORKER_STALLED, text);
    }
}

/*
 * The grace of a cancel begins when the worker can know of it: behind long lines it takes its time to come through.
 * Until then it is renewed while the worker reads on. That ends, whatever the status page says: both numbers only
 * rise, and count only up to the cancel.
 */
static void watch_cancels(model_service *s, uint64_t now_ns, uint64_t lost_ns)
{
    char text[160];
    const service_reading before = s->reading;
    uint64_t lines = s->watch.seen.row[STATUS_ROW_INPUT_LINES];
    s->reading.lines = lines > before.lines ? lines : before.lines;
    s->reading.bytes = worker_conn_taken(s->conn);
    for (service_entry *en = s->at[ENTRY_SENT].first; en && s->life == LIFE_READY; en = en->next) {
        if (en->cancel_ns == 0) {
            continue;
        }
        en->cancel_ns += lost_ns;
        if ((s->reading.lines > before.lines && before.lines < en->cancel_line) ||
            (s->reading.bytes > before.bytes && before.bytes < en->cancel_end)) {
            en->cancel_ns = now_ns;
        }
        if (now_ns >= en->cancel_ns + s->cfg.limits.cancel_grace_ms * SERVICE_NS_PER_MS) {
            snprintf(text, sizeof text, "the cancel of %s is not answered", en->id);
            worker_conn_kill(s->conn, WORKER_DEAF, text);
            return;
        }
    }
}

void service_on_tick(evutil_socket_t fd, short what, void *ctx)
{
    model_service *s = ctx;
    uint64_t now_ns = service_now(s), lost_ns = 0;
    watch_progress(s, now_ns, &lost_ns);
    watch_cancels(s, now_ns, lost_ns);
    service_sweep(s, now_ns);
    if (s->kill_ns != 0 && now_ns >= s->kill_ns) {
        s->kill_ns = 0;
        worker_conn_kill(s->conn, WORKER_STOPPED, "it did not end when asked to");
    }
    go_on_draining(s);
    if (s->life == LIFE_DOWN && s->started && now_ns >= s->start_ns) {
        start_worker(s);
    }
    service_tell(s);
    if (must_watch(s) && !evtimer_pending(s->tick, NULL)) {
        add_tick(s);
    }
    service_dispatch(s); /* who waited for one that has left, or was lost, waits for nothing now */
}

/*
 * From the owner.
 */
void service_start(model_service *s)
{
    s->started = true;
    tick_now(s);
}

static void end_worker(model_service *s)
{
    service_put_op(s, NULL, WIRE_SHUTDOWN);
    worker_conn_terminate(s->conn);
    s->kill_ns = service_now(s) + s->cfg.limits.stop_grace_ms * SERVICE_NS_PER_MS;
    service_want_tick(s);
}

/* The next thing that may be done: nothing that is to be sent again waits for a worker any more. */
static void go_on_draining(model_service *s)
{
    if (!s->draining || s->at[ENTRY_AGAIN].first) {
        return;
    }
    if (s->life == LIFE_READY && !s->told_drain) {
        s->told_drain = true;
        service_put_op(s, NULL, WIRE_DRAIN);
    } else if (s->life == LIFE_STARTING && s->kill_ns == 0) {
        end_worker(s);
    } else if (s->life == LIFE_DOWN || s->life == LIFE_FAILED) {
        s->life = LIFE_STOPPED;
    }
}

void service_drain(model_service *s)
{
    if (s->draining) {
        return;
    }
    s->draining = true;
    service_lose_all(s, ENTRY_WAITING, ST_DRAINING, stopping);
    go_on_draining(s);
    event_active(s->lost, EV_TIMEOUT, 1); /* the change is told from the loop */
}

void service_cut(model_service *s)
{
    service_drain(s);
    if (s->cut) {
        return;
    }
    s->cut = true;
    service_lose_all(s, ENTRY_SENT, ST_DRAINING, stopping);
    service_lose_all(s, ENTRY_AGAIN, ST_DRAINING, stopping);
    if (s->life == LIFE_READY) {
        end_worker(s);
    } else {
        go_on_draining(s);
    }
}

bool service_stopped(const model_service *s)
{
    return s->life == LIFE_STOPPED && !s->at[ENTRY_SENT].first && !s->at[ENTRY_LOST].first;
}
