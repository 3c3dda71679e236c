/* idempotency_again: what a restart has left without an answer, and a key of which that is asked for: begun again. */
#include <string.h>

#include "base/log.h"
#include "serve/idempotency_int.h"
#include "serve/idempotency_order.h"

static uint64_t now_ns(const idempotency *d)
{
    return clock_mono_ns(d->cfg.api->clock);
}

/* One that is begun again has been read, and begun or not. */
static void looked(idempotency *d)
{
    d->looking = false;
    promises_pump(d);
}

static const generation_route *find_route(const idempotency *d, const char *path)
{
    for (size_t i = 0; i < d->cfg.n_routes; i++) {
        if (strcmp(d->cfg.routes[i]->path, path) == 0) {
            return d->cfg.routes[i];
        }
    }
    return NULL;
}

/* ST_MODEL_CHANGED and what making a run says; else what says that nobody can have it any more. */
static status make_again(promise *p, const idempotency_order *o, err *e)
{
    const api_context *api = p->d->cfg.api;
    const generation_route *route = find_route(p->d, o->route);
    generation_order order = {.request_id = o->request_id,
                              .serial = o->seed, /* drawn at random, and the same as before */
                              .created_ms = p->entry->created_ms,
                              .sampling = o->knows_sampling ? &o->sampling : NULL,
                              .model_digest = o->model_digest,
                              .service = o->model[0] ? models_find(api->models, o->model) : NULL};
    const generation_taker taker = promise_taker(p);
    generation g;
    if (!route || !keys_index(api->keys, p->entry->owner, p->entry->owner_len, &order.key)) {
        return err_set(e, ST_BAD_REQUEST, NULL, "nobody can have the answer any more");
    }
    if (!order.service || o->numerics != p->d->cfg.numerics) {
        return err_set(e, ST_MODEL_CHANGED, NULL, "the model %.64s is %s", o->model,
                       order.service ? "computed in another way now" : "not here any more");
    }
    status st = route->read(o->body, o->body_len, o->seed, &g, e);
    if (st != ST_OK) {
        return st;
    }
    st = generation_read_session(&g, o->session, e)
             ? generation_run_new(api, route, &order, &taker, &g, &p->run, e)
             : e->code;
    generation_release(&g);
    return st;
}

/* A request that takes the daemon with it must not do so for ever. */
static bool may_begin(promise *p)
{
    if (p->entry->begun) {
        return true;
    }
    if (p->entry->n_begun >= IDEMPOTENCY_MAX_STARTS) {
        log_emit(LOG_WARN, "journal", "event=given_up starts=%u", p->entry->n_begun);
        return false;
    }
    journal_begun(p->d->cfg.journal, p->entry);
    return true;
}

static void begin_again(promise *p, status st, const char *text, size_t len)
{
    idempotency_order o = {0};
    api_fault fault;
    err e;
    st = st == ST_OK ? idempotency_order_get(text, len, &o) : st;
    if (st == ST_BAD_FORMAT) {
        promise_drop_entry(p);
        api_fault_http(&fault, 503, "the journal's record of the request is damaged; its key is free");
    } else if (st != ST_OK) {
        promise_put_off(p, now_ns(p->d) + PROMISE_PAUSE_NS);
        api_fault_http(&fault, 503, "the journal cannot be read at the moment");
    } else if (!may_begin(p)) {
        st = ST_INTERNAL;
        promise_drop_entry(p);
        api_fault_http(&fault, 503, "the request was begun again too often; its key is free");
    }
    if (st != ST_OK) {
        promise_refuse(p, &fault);
        promise_end(p);
        return;
    }
    st = make_again(p, &o, &e);
    idempotency_order_release(&o);
    if (st != ST_OK) {
        generation_fault_of(p->d->cfg.api, KEYS_ANONYMOUS, &e, &fault);
        promise_settle(p, &fault);
        return;
    }
    p->d->counts.recovered++;
    generation_run_begin(p->run);
}

void promise_on_order(void *ctx, status st, const char *text, size_t len)
{
    promise *p = ctx; /* its end may come at once */
    idempotency *d = p->d;
    bool counted = p->counted;
    begin_again(p, st, text, len);
    if (counted) {
        looked(d);
    }
}

/* The oldest that is due. */
static journal_entry *next_due(idempotency *d)
{
    uint64_t now = now_ns(d);
    for (journal_entry *e = journal_unanswered(d->cfg.journal, NULL); e;
         e = journal_unanswered(d->cfg.journal, e)) {
        if (!e->held && e->found && e->not_before_ns <= now) {
            return e;
        }
        d->put_off = d->put_off || (!e->held && e->found && e->not_before_ns != PROMISE_NEVER_NS);
    }
    return NULL;
}

/* One after the other, so that their texts are in memory one at a time. */
void promises_pump(idempotency *d)
{
    if (!d->started || d->draining || d->looking || d->held_up ||
        d->n_recovering >= IDEMPOTENCY_MAX_RECOVERING) {
        return;
    }
    d->put_off = false;
    journal_entry *e = next_due(d);
    promise *p = e ? promise_new(d) : NULL;
    if (!p) {
        d->put_off = d->put_off || e;
        return;
    }
    e->held = p;
    p->entry = e;
    p->counted = d->looking = true;
    d->n_recovering++;
    promise_look_up(p);
}
