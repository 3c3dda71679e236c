#include "serve/memory_desk.h"

#include <stdio.h>

#include "base/log.h"
#include "base/mem.h"
#include "serve/planner.h"
#include "wire/request.h"
#include "wire/status_page.h"

#define LOOK_S 1
/* What is above these is nonsense. */
#define MOST_PAGES      ((uint64_t)INT32_MAX)
#define MOST_PAGE_BYTES ((uint64_t)1 << 30)

typedef struct desk_model {
    memory_desk *desk;
    model_service *service;
    service_job job; /* the order under way */
    size_t at;       /* which it is */
    bool deaf;       /* it knows no such op */
} desk_model;

struct memory_desk {
    /* owned */
    struct event *timer;
    desk_model *of; /* [n] */
    size_t n;
    uint64_t n_orders;
    planner plan;
};

static void on_frame(void *ctx, const frame *f)
{
    desk_model *m = ctx;
    if (f->kind == FRAME_ERROR) {
        m->deaf = f->code == ST_UNSUPPORTED || f->code == ST_INVALID_FIELD;
        log_emit(LOG_WARN, "serve", "event=kv_limit_refused model=\"%s\" error=\"%s\"",
                 service_id(m->service), f->text);
        planner_tell_again(&m->desk->plan, m->at);
    }
}

static void on_lost(void *ctx, const err *why)
{
    desk_model *m = ctx;
    (void)why;
    planner_tell_again(&m->desk->plan, m->at);
}

static void send_order(memory_desk *d, const planner_order *o)
{
    desk_model *m = &d->of[o->model];
    err e;
    wire_request q = wire_request_default(WIRE_KV_LIMIT);
    if (m->job.entry) { /* the last one is not answered yet */
        planner_tell_again(&d->plan, o->model);
        return;
    }
    m->job = (service_job){.light = true, .on_frame = on_frame, .on_lost = on_lost, .ctx = m};
    int n = snprintf(m->job.id, sizeof m->job.id, "kv-limit-%llu", (unsigned long long)++d->n_orders);
    q.id = (wire_string){m->job.id, (size_t)n};
    q.pages = o->pages;
    err_clear(&e);
    status st = wire_request_put(&m->job.line, &q);
    if (st == ST_OK) {
        st = service_submit(m->service, &m->job, &e);
    }
    if (st != ST_OK) {
        buf_release(&m->job.line);
        planner_tell_again(&d->plan, o->model);
        return;
    }
    log_emit(LOG_INFO, "serve", "event=kv_limit model=\"%s\" pages=%llu", service_id(m->service),
             (unsigned long long)o->pages);
}

static planner_view view_of(const desk_model *m)
{
    service_info info;
    status_snapshot page;
    service_read(m->service, &info);
    service_page(m->service, &page);
    planner_view v = {.start = info.n_starts,
                      .page_bytes = info.model.kv_page_bytes,
                      .most_pages = info.model.kv_pages,
                      .limit = page.row[STATUS_ROW_PAGES_TOTAL],
                      .used = page.row[STATUS_ROW_PAGES_USED],
                      .parked = page.row[STATUS_ROW_PARKED],
                      .waiting = page.row[STATUS_ROW_QUEUED],
                      .running = page.row[STATUS_ROW_RUNNING],
                      .lanes = page.row[STATUS_ROW_LANES_TOTAL]};
    v.ready = info.state == SERVICE_READY && !m->deaf && v.limit > 0 && v.limit <= v.most_pages &&
              v.used <= v.most_pages && v.most_pages <= MOST_PAGES && v.page_bytes <= MOST_PAGE_BYTES;
    return v;
}

static void on_look(evutil_socket_t fd, short what, void *ctx)
{
    memory_desk *d = ctx;
    planner_view views[PLANNER_MAX_MODELS];
    planner_order orders[PLANNER_MAX_MODELS];
    for (size_t i = 0; i < d->n; i++) {
        views[i] = view_of(&d->of[i]);
    }
    size_t n = planner_look(&d->plan, views, orders);
    for (size_t i = 0; i < n; i++) {
        send_order(d, &orders[i]);
    }
}

status memory_desk_new(struct event_base *base, models *m, memory_desk **out, err *e)
{
    const struct timeval every = {LOOK_S, 0};
    memory_desk *d = mem_calloc(1, sizeof *d);
    size_t n = models_count(m) <= PLANNER_MAX_MODELS ? models_count(m) : PLANNER_MAX_MODELS;
    if (!d || !(d->of = mem_calloc(n, sizeof *d->of))) {
        mem_free(d);
        return err_set(e, ST_NOMEM, NULL, "out of memory");
    }
    d->n = n;
    planner_init(&d->plan, n);
    for (size_t i = 0; i < n; i++) {
        d->of[i] = (desk_model){.desk = d, .service = models_at(m, i), .at = i};
    }
    d->timer = event_new(base, -1, EV_PERSIST, on_look, d);
    if (!d->timer || (n > 1 && event_add(d->timer, &every) != 0)) {
        memory_desk_free(d);
        return err_set(e, ST_NOMEM, NULL, "out of memory");
    }
    *out = d;
    return ST_OK;
}

void memory_desk_free(memory_desk *d)
{
    if (!d) {
        return;
    }
    for (size_t i = 0; i < d->n; i++) {
        buf_release(&d->of[i].job.line);
    }
    if (d->timer) {
        event_free(d->timer);
    }
    mem_free(d->of);
    mem_free(d);
}
