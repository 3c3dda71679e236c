#include "serve/idempotency_int.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "serve/api_reply.h"
#include "serve/idempotency_order.h"
#include "wire/errors.h"

#define TICK_S    1
#define FIELD     "idempotency-key"
#define WANT_NAME "1 to 255 visible ASCII characters"

/*
 * Clients.
 */
static void waiter_remove(waiter *w)
{
    *(w->prev ? &w->prev->next : &w->of->waiters) = w->next;
    if (w->next) {
        w->next->prev = w->prev;
    }
    mem_free(w);
}

static void on_gone(void *ctx)
{
    waiter_remove(ctx);
}

static bool add_waiter(promise *p, http_conn *c, bool is_first)
{
    waiter *w = mem_calloc(1, sizeof *w);
    if (!w) {
        api_reply_no_memory(c);
        return false;
    }
    *w = (waiter){.of = p, .conn = c, .is_first = is_first, .next = p->waiters};
    if (p->waiters) {
        p->waiters->prev = w;
    }
    p->waiters = w;
    http_conn_on_gone(c, on_gone, w);
    return true;
}

static void answer_waiters(promise *p, int http_status, const char *text, size_t len)
{
    while (p->waiters) {
        waiter *w = p->waiters;
        const http_reply reply = {.status = http_status,
                                  .headers = w->is_first ? NULL : "Idempotent-Replayed: true\r\n",
                                  .body = text,
                                  .body_len = len};
        p->d->counts.replayed += !w->is_first;
        http_conn_reply(w->conn, &reply);
        waiter_remove(w);
    }
}

void promise_refuse(promise *p, const api_fault *f)
{
    while (p->waiters) {
        api_reply_fault(p->waiters->conn, f);
        waiter_remove(p->waiters);
    }
}

/* What the journal's refusals are to a client. */
static void fault_of_journal(api_fault *f, const err *e)
{
    if (e->code == ST_NOMEM) {
        api_fault_err(f, e);
        return;
    }
    api_fault_http(f, e->code == ST_CAPACITY ? 413 : 503, e->msg);
    if (e->code != ST_CAPACITY) {
        f->code = "journal_unavailable";
        f->retry_after_s = JOURNAL_RETRY_MS / 1000;
    }
}

/*
 * Promises.
 */
promise *promise_new(idempotency *d)
{
    promise *p = mem_calloc(1, sizeof *p);
    if (p) {
        p->d = d;
        p->next = d->promises;
        if (p->next) {
            p->next->prev = p;
        }
        d->promises = p;
    }
    return p;
}

void promise_free(promise *p)
{
    idempotency *d = p->d;
    *(p->prev ? &p->prev->next : &d->promises) = p->next;
    if (p->next) {
        p->next->prev = p->prev;
    }
    if (p->entry) {
        p->entry->held = NULL;
    }
    d->n_recovering -= p->counted;
    d->asking_bytes -= p->n_asking;
    buf_release(&p->body);
    mem_free(p);
}

/* The last thing that happens to it. */
void promise_end(promise *p)
{
    idempotency *d = p->d;
    bool counted = p->counted;
    assert(!p->waiters && !p->run);
    promise_free(p);
    if (counted) {
        d->held_up = false;
        promises_pump(d);
    }
}

/* The key is free. */
void promise_drop_entry(promise *p)
{
    if (p->entry) {
        journal_drop(p->d->cfg.journal, p->entry);
        p->entry = NULL;
    }
}

/* It stays unanswered; one that was there at the start is tried again after not_before_ns. */
void promise_put_off(promise *p, uint64_t not_before_ns)
{
    bool retry = p->entry->found && not_before_ns != PROMISE_NEVER_NS;
    p->entry->not_before_ns = retry ? not_before_ns : PROMISE_NEVER_NS;
    p->d->put_off = p->d->put_off || retry;
}

/*
 * The end of a run.
 */
/* Kept or not, it is the answer. */
static void on_kept(void *ctx, status st)
{
    promise *p = ctx;
    if (st != ST_OK) {
        promise_put_off(p, PROMISE_NEVER_NS);
    }
    answer_waiters(p, p->http_status, buf_str(&p->body), p->body.len);
    promise_end(p);
}

static void keep_answer(promise *p, int http_status)
{
    err e;
    p->http_status = http_status;
    status st = journal_answer(p->d->cfg.journal, p->entry, http_status, buf_str(&p->body), p->body.len,
                               on_kept, p, &e);
    if (st == ST_OK) {
        return;
    }
    if (st == ST_CAPACITY) { /* it never can be kept */
        promise_drop_entry(p);
    } else {
        promise_put_off(p, PROMISE_NEVER_NS);
    }
    answer_waiters(p, http_status, buf_str(&p->body), p->body.len);
    promise_end(p);
}

static void on_answer(void *ctx, buf *body)
{
    promise *p = ctx;
    p->run = NULL;
    p->body = *body;
    *body = (buf){0};
    keep_answer(p, 200);
}

static bool is_fault(const api_fault *f, status code)
{
    return strcmp(f->code, wire_error_name(code)) == 0;
}

/* Nothing to do with the request: later it may go well. */
static bool may_pass(const api_fault *f)
{
    return is_fault(f, ST_LOAD_FAILED) || is_fault(f, ST_QUEUE_FULL) || is_fault(f, ST_CAPACITY) ||
           (f->http_status == 503 && is_fault(f, ST_INTERNAL));
}

void promise_settle(promise *p, const api_fault *f)
{
    if (is_fault(f, ST_MODEL_CHANGED)) {
        api_fault final = *f;
        final.http_status = 409; /* later is no better */
        if (api_fault_put(&final, &p->body) == ST_OK) {
            keep_answer(p, final.http_status);
            return;
        }
    }
    if (is_fault(f, ST_DRAINING)) {
        promise_put_off(p, PROMISE_NEVER_NS);
    } else if (p->again && may_pass(f)) {
        promise_put_off(p, clock_mono_ns(p->d->cfg.api->clock) + PROMISE_PAUSE_NS);
    } else {
        promise_drop_entry(p);
    }
    promise_refuse(p, f);
    if (p->counted && is_fault(f, ST_QUEUE_FULL)) {
        p->d->held_up = p->d->put_off = true;
        p->entry->not_before_ns = 0;
        promise_free(p);
    } else {
        promise_end(p);
    }
}

static void on_refuse(void *ctx, const api_fault *f)
{
    promise *p = ctx;
    p->run = NULL;
    promise_settle(p, f);
}

generation_taker promise_taker(promise *p)
{
    return (generation_taker){.answer = on_answer, .refuse = on_refuse, .ctx = p};
}

static void on_stored(void *ctx, status st, const char *text, size_t len)
{
    promise *p = ctx;
    if (st == ST_OK) {
        answer_waiters(p, p->entry->http_status, text, len);
    } else {
        api_fault fault;
        bool is_bad = st == ST_BAD_FORMAT;
        if (is_bad) {
            promise_drop_entry(p);
        }
        api_fault_http(&fault, 503,
                       is_bad ? "the journal's record of the answer is damaged; the key is free"
                              : "the journal cannot be read at the moment");
        promise_refuse(p, &fault);
    }
    promise_end(p);
}

/* Of a promise that is new. */
void promise_look_up(promise *p)
{
    err e;
    api_fault fault;
    bool answered = p->entry->answered;
    p->again = !answered;
    if (journal_read(p->d->cfg.journal, p->entry, answered ? on_stored : promise_on_order, p, &e) != ST_OK) {
        api_fault_err(&fault, &e);
        if (!answered) {
            promise_put_off(p, clock_mono_ns(p->d->cfg.api->clock) + PROMISE_PAUSE_NS);
        }
        promise_refuse(p, &fault);
        p->d->looking = p->d->looking && !p->counted;
        promise_free(p);
    }
}

/*
 * Requests.
 */
static void refuse_name(http_conn *c, const char *name)
{
    err e;
    err_set(&e, ST_INVALID_FIELD, FIELD, FIELD " must be " WANT_NAME ", not %.160s", name);
    api_reply_err(c, &e);
}

static bool is_good_name(const char *name)
{
    size_t n = 0;
    for (; name[n] != '\0'; n++) {
        if (n >= IDEMPOTENCY_MAX_KEY || name[n] <= ' ' || name[n] > '~') {
            return false;
        }
    }
    return n > 0;
}

static void refuse_reuse(idempotency *d, http_conn *c)
{
    api_fault f;
    d->counts.conflicts++;
    api_fault_http(&f, 422, "this idempotency key was used with another request");
    f.code = "idempotency_key_reused";
    snprintf(f.param, sizeof f.param, FIELD);
    api_reply_fault(c, &f);
}

static void join(idempotency *d, http_conn *c, journal_entry *entry)
{
    promise *p = entry->held;
    bool is_new = !p;
    if (is_new && (p = promise_new(d))) {
        p->entry = entry;
        entry->held = p;
    }
    if (!p) {
        api_reply_no_memory(c);
        return;
    }
    bool added = add_waiter(p, c, false);
    if (is_new && added) {
        promise_look_up(p);
    } else if (is_new) {
        promise_free(p);
    }
}

static void on_asked(void *ctx, status st)
{
    promise *p = ctx;
    api_fault fault;
    err e;
    p->d->asking_bytes -= p->n_asking;
    p->n_asking = 0;
    if (st == ST_OK) {
        generation_run_begin(p->run);
        return;
    }
    p->entry = NULL;
    generation_run_drop(p->run);
    p->run = NULL;
    err_set(&e, st == ST_NOMEM ? st : ST_IO, NULL, "the request cannot be journaled at the moment");
    fault_of_journal(&fault, &e);
    promise_refuse(p, &fault);
    promise_end(p);
}

typedef struct request {
    const generation_route *route;
    http_conn *conn;
    uint32_t key;
    const char *session, *body;
    size_t len;
    uint64_t seed;
    journal_question question;
} request;

/* The run waits until that is done. A disk that hangs must not fill the memory with them. */
static status hand_in(promise *p, const journal_question *q, const buf *text, int64_t created_ms,
                      bool *by_journal, err *e)
{
    idempotency *d = p->d;
    journal_question question = *q;
    question.text = buf_str(text);
    question.text_len = text->len;
    question.created_ms = created_ms;
    size_t n = generation_run_bytes(p->run);
    status st;
    if (d->asking_bytes > 0 && d->asking_bytes + n > IDEMPOTENCY_MAX_ASKING) {
        st = err_set(e, ST_QUEUE_FULL, NULL, "%zu bytes of requests wait for the journal", d->asking_bytes);
    } else {
        st = journal_ask(d->cfg.journal, &question, p, on_asked, p, &p->entry, e);
        *by_journal = st != ST_OK;
    }
    if (st != ST_OK) {
        generation_run_drop(p->run);
        p->run = NULL;
        return st;
    }
    p->n_asking = n;
    d->asking_bytes += n;
    return ST_OK;
}

/* Makes the run, and hands the question to the journal. */
static status ask_first(promise *p, const request *q, generation *g, bool *by_journal, err *e)
{
    idempotency *d = p->d;
    const api_context *api = d->cfg.api;
    const generation_taker taker = promise_taker(p);
    service_info info;
    buf text = {0};
    generation_order order = {.key = q->key,
                              .request_id = http_conn_request_id(q->conn),
                              .serial = q->seed,
                              .created_ms = clock_wall_ms(api->clock),
                              .model_digest = ""};
    status st = generation_find_service(api, g, &order.service, e);
    if (st != ST_OK) {
        return st;
    }
    service_read(order.service, &info);
    order.sampling = info.known ? &info.model.sampling : NULL;
    const idempotency_order kept = {.route = q->route->path,
                                    .request_id = order.request_id,
                                    .session = q->session,
                                    .model = info.id,
                                    .model_digest = info.model.digest,
                                    .seed = q->seed,
                                    .numerics = d->cfg.numerics,
                                    .knows_sampling = info.known,
                                    .sampling = info.model.sampling,
                                    .body = q->body,
                                    .body_len = q->len};
    st = idempotency_order_put(&text, &kept);
    st = st == ST_OK ? generation_run_new(api, q->route, &order, &taker, g, &p->run, e)
                     : err_set(e, st, NULL, "out of memory");
    if (st == ST_OK) {
        st = hand_in(p, &q->question, &text, order.created_ms, by_journal, e);
    }
    buf_release(&text);
    return st;
}

static void refuse_first(promise *p, uint32_t key, bool by_journal, const err *e)
{
    api_fault fault;
    if (by_journal) {
        fault_of_journal(&fault, e);
    } else {
        generation_fault_of(p->d->cfg.api, key, e, &fault);
    }
    promise_refuse(p, &fault);
    promise_free(p);
}

static void begin(idempotency *d, const request *q, generation *g)
{
    err e;
    bool by_journal = false;
    journal_entry *entry = journal_find(d->cfg.journal, q->question.owner, q->question.owner_len,
                                        q->question.name, q->question.name_len);
    if (entry && memcmp(entry->digest, q->question.digest, sizeof entry->digest) != 0) {
        refuse_reuse(d, q->conn);
        return;
    }
    if (entry) {
        join(d, q->conn, entry);
        return;
    }
    promise *p = promise_new(d);
    if (!p) {
        api_reply_no_memory(q->conn);
    } else if (!add_waiter(p, q->conn, true)) {
        promise_free(p);
    } else if (ask_first(p, q, g, &by_journal, &e) != ST_OK) {
        refuse_first(p, q->key, by_journal, &e);
    }
}

void idempotency_ask(idempotency *d, const generation_route *route, http_conn *c, uint32_t key,
                     const char *name, const char *session, const char *body, size_t len)
{
    err e;
    api_fault fault;
    generation g;
    wire_string owner = keys_namespace(d->cfg.api->keys, key);
    request q = {.route = route, .conn = c, .key = key, .session = session, .body = body, .len = len};
    if (!is_good_name(name)) {
        refuse_name(c, name);
        return;
    }
    status st = generation_draw_seed(&q.seed, &e);
    st = st == ST_OK ? route->read(body, len, q.seed, &g, &e) : st;
    bool has_g = st == ST_OK;
    if (has_g && !generation_read_session(&g, session, &e)) {
        st = e.code;
    }
    if (st == ST_OK && g.stream) {
        generation_release(&g);
        generation_run_start(d->cfg.api, route, c, key, session, body, len);
        return;
    }
    q.question = (journal_question){
        .owner = owner.data, .owner_len = owner.len, .name = name, .name_len = strlen(name)};
    if (st == ST_OK && idempotency_digest(route->path, session, body, len, q.question.digest) != ST_OK) {
        st = err_set(&e, ST_NOMEM, NULL, "out of memory");
    }
    if (st == ST_OK) {
        begin(d, &q, &g);
    } else {
        api_fault_err(&fault, &e);
        api_reply_fault(c, &fault);
    }
    if (has_g) {
        generation_release(&g);
    }
}

/*
 * Life.
 */
static void on_tick(evutil_socket_t fd, short what, void *ctx)
{
    idempotency *d = ctx;
    journal_tick(d->cfg.journal);
    if (d->put_off) {
        d->held_up = false;
        promises_pump(d);
    }
}

status idempotency_new(const idempotency_config *cfg, idempotency **out, err *e)
{
    idempotency *d = mem_calloc(1, sizeof *d);
    if (!d) {
        return err_set(e, ST_NOMEM, NULL, "out of memory");
    }
    d->cfg = *cfg;
    *out = d;
    return ST_OK;
}

void idempotency_start(idempotency *d)
{
    const struct timeval tick = {TICK_S, 0};
    journal_counts counts;
    d->tick = event_new(d->cfg.api->base, -1, EV_PERSIST, on_tick, d);
    if (!d->tick || event_add(d->tick, &tick) != 0) { /* then old answers go when new ones come */
        log_emit(LOG_WARN, "journal", "event=no_timer");
    }
    d->started = true;
    journal_read_counts(d->cfg.journal, &counts);
    if (counts.n_unanswered > 0) {
        log_emit(LOG_INFO, "journal", "event=begin_again requests=%zu", counts.n_unanswered);
    }
    promises_pump(d);
}

void idempotency_drain(idempotency *d)
{
    if (d) {
        d->draining = true;
    }
}

void idempotency_free(idempotency *d)
{
    if (!d) {
        return;
    }
    while (d->promises) {
        promise *p = d->promises;
        while (p->waiters) {
            waiter_remove(p->waiters);
        }
        if (p->run) {
            generation_run_drop(p->run);
        }
        promise_free(p);
    }
    if (d->tick) {
        event_free(d->tick);
    }
    mem_free(d);
}

void idempotency_read_counts(const idempotency *d, idempotency_counts *out)
{
    *out = d->counts;
}
