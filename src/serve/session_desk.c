#include "serve/session_desk.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"

#define NS_PER_S         1000000000u
#define US_PER_S         1000000u
#define MAX_RETRY_S      3600
#define CLOSES_AT_ONCE   64
#define CLOSES_EVERY_NS  ((uint64_t)100 * 1000000)
#define CLOSES_FAILED_NS NS_PER_S

typedef struct ask {
    service_job job;
    session_desk *of;
    session_row *row; /* held; NULL = none */
    wire_op op;
    session_answer_fn answer;
    void *ctx;
    struct ask *prev, *next;
} ask;

struct session_desk {
    session_desk_config cfg;
    uint64_t timer_ns; /* when it fires; UINT64_MAX: it does not */

    /* owned */
    session_table *table;
    struct event *timer;
    ask *asks; /* list of those under way */
};

static uint64_t now_ns(const session_desk *s)
{
    return clock_mono_ns(s->cfg.clock);
}

const session_table *session_desk_table(const session_desk *s)
{
    return s->table;
}

int session_desk_retry_s(const session_desk *s, uint32_t key)
{
    uint64_t now = now_ns(s), room = session_table_room_ns(s->table, key);
    uint64_t left_s = room <= now ? 0 : (room - now) / NS_PER_S;
    return left_s >= MAX_RETRY_S ? MAX_RETRY_S : (int)left_s + 1;
}

status session_desk_put_name(const session_desk *s, uint32_t key, const char *name, buf *out)
{
    return session_name_put(out, s->cfg.keys, key, name);
}

/* Nothing lives on without a process, and one that is being started knows of no session. */
bool session_desk_has_worker(const model_service *m)
{
    service_state state = service_state_now(m);
    return state == SERVICE_READY || state == SERVICE_STALLED;
}

void session_desk_look(session_desk *s, const model_service *m)
{
    service_state state = service_state_now(m);
    if (state != SERVICE_RESTARTING && state != SERVICE_FAILED) {
        return;
    }
    for (session_row *r = session_table_each(s->table, NULL); r; r = session_table_each(s->table, r)) {
        if (r->model == m) {
            r->tokens = 0;
            r->dirty = false;
        }
    }
}

/*
 * Time.
 */
static void wake_at(session_desk *s, uint64_t at_ns)
{
    uint64_t now = now_ns(s), us = at_ns > now ? (at_ns - now) / 1000 + 1 : 0;
    const struct timeval tv = {(time_t)(us / US_PER_S), (suseconds_t)(us % US_PER_S)};
    if (at_ns < s->timer_ns && evtimer_add(s->timer, &tv) == 0) {
        s->timer_ns = at_ns;
    }
}

static void watch_idle(session_desk *s)
{
    wake_at(s, session_table_due_ns(s->table));
}

static void let_go(session_desk *s, session_row *row, session_hold how, bool used)
{
    session_table_release(s->table, row, how, used, now_ns(s));
    watch_idle(s);
}

void session_desk_let_go(session_desk *s, session_row *row)
{
    let_go(s, row, SESSION_OP, false);
}

void session_desk_forget(session_desk *s, session_row *row)
{
    session_table_hold(s->table, row, SESSION_OP);
    row->opened = false;
    row->tokens = 0;
    row->dirty = false;
    session_table_release(s->table, row, SESSION_OP, false, now_ns(s));
}

/* False: not now. */
static bool end_session(session_desk *s, session_row *row)
{
    err e;
    wire_request q = wire_request_default(WIRE_SESSION_CLOSE);
    if (!session_desk_has_worker(row->model)) {
        session_desk_forget(s, row);
        return true;
    }
    if (session_desk_ask(s, row->model, row->key, row, &q, NULL, NULL, NULL, &e) != ST_OK) {
        log_emit(LOG_WARN, "serve", "event=session_not_closed model=\"%s\" error=\"%s\"",
                 service_id(row->model), e.msg);
        return false;
    }
    return true;
}

static void on_timer(evutil_socket_t fd, short what, void *ctx)
{
    session_desk *s = ctx;
    session_row *row;
    s->timer_ns = UINT64_MAX;
    for (int n = 0; (row = session_table_expired(s->table, now_ns(s))) != NULL; n++) {
        if (n == CLOSES_AT_ONCE || !end_session(s, row)) {
            wake_at(s, now_ns(s) + (n == CLOSES_AT_ONCE ? CLOSES_EVERY_NS : CLOSES_FAILED_NS));
            return;
        }
    }
    watch_idle(s);
}

/*
 * Ops.
 */
static bool is_use(wire_op op)
{
    return op != WIRE_SESSION_GET && op != WIRE_SESSION_CLOSE;
}

/* What the answer says of the session. */
static void learn(session_row *row, wire_op op, const frame *f)
{
    if (f->kind == FRAME_SESSION_INFO) {
        row->opened = row->opened || f->session.known;
        row->tokens = f->session.tokens;
        row->dirty = f->session.dirty;
    } else if (f->kind == FRAME_IMPORT || f->kind == FRAME_RESTORED) {
        row->opened = true;
        row->tokens = f->extent.tokens;
        row->dirty = row->dirty && f->kind == FRAME_IMPORT;
    } else if (f->kind == FRAME_RESET || f->kind == FRAME_CLOSED) {
        row->opened = f->kind == FRAME_RESET;
        row->tokens = 0;
        row->dirty = false;
    } else if (f->kind == FRAME_ERROR && f->code == ST_UNKNOWN_ID && op == WIRE_SESSION_GET) {
        row->tokens = 0; /* its worker is another one than that of its last turn */
        row->dirty = false;
    }
}

static void ask_free(ask *a)
{
    *(a->prev ? &a->prev->next : &a->of->asks) = a->next;
    if (a->next) {
        a->next->prev = a->prev;
    }
    buf_release(&a->job.line);
    held_bytes_free(a->job.behind);
    mem_free(a);
}

static void ask_end(ask *a, const frame *f, const err *lost)
{
    bool closing = a->op == WIRE_SESSION_CLOSE;
    bool used =
        f && (is_use(a->op) || (closing && f->kind == FRAME_ERROR)); /* then it is tried later again */
    if (a->row && f) {
        learn(a->row, a->op, f);
    } else if (a->row && lost && closing && lost->code != ST_NOMEM) {
        a->row->opened = false; /* its worker has gone, and the session with it */
    }
    if (a->row && used) {
        a->row->used_ns = now_ns(a->of);
    }
    if (a->answer) {
        a->answer(a->ctx, a->row, f, lost);
    }
    if (a->row) {
        let_go(a->of, a->row, SESSION_OP, used);
    }
    ask_free(a);
}

static void on_frame(void *ctx, const frame *f)
{
    ask_end(ctx, f, NULL);
}

static void on_lost(void *ctx, const err *why)
{
    ask_end(ctx, NULL, why);
}

static status put_line(session_desk *s, ask *a, wire_request *q)
{
    buf name = {0};
    status st = ST_OK;
    q->id = (wire_string){a->job.id, strlen(a->job.id)};
    q->cache_namespace = keys_namespace(s->cfg.keys, a->job.key);
    q->attach_bytes = a->job.behind ? a->job.behind->bytes.len : 0;
    if (a->row) {
        st = session_desk_put_name(s, a->row->key, a->row->name, &name);
        q->session_id = (wire_string){buf_str(&name), name.len};
    }
    if (st == ST_OK) {
        st = wire_request_put(&a->job.line, q);
    }
    if (a->row) {
        q->session_id = (wire_string){NULL, 0};
    }
    buf_release(&name);
    return st;
}

status session_desk_ask(session_desk *s, model_service *m, uint32_t key, session_row *row, wire_request *q,
                        held_bytes *behind, session_answer_fn answer, void *ctx, err *e)
{
    ask *a = mem_calloc(1, sizeof *a);
    if (!a) {
        held_bytes_free(behind);
        return err_set(e, ST_NOMEM, NULL, "out of memory");
    }
    a->of = s;
    a->row = row;
    a->op = q->op;
    a->answer = answer;
    a->ctx = ctx;
    a->next = s->asks;
    if (a->next) {
        a->next->prev = a;
    }
    s->asks = a;
    snprintf(a->job.id, sizeof a->job.id, "session.%llx",
             (unsigned long long)request_table_serial(s->cfg.requests));
    a->job.behind = behind;
    a->job.key = key;
    a->job.light = true;
    a->job.on_frame = on_frame;
    a->job.on_lost = on_lost;
    a->job.ctx = a;
    status st = put_line(s, a, q);
    if (st != ST_OK) {
        err_set(e, st, NULL, "out of memory");
    } else {
        st = service_submit(m, &a->job, e);
    }
    if (st != ST_OK) {
        ask_free(a);
    } else if (row) {
        session_table_hold(s->table, row, SESSION_OP);
    }
    return st;
}

status session_desk_open(session_desk *s, model_service *m, uint32_t key, const char *name, session_row **out,
                         err *e)
{
    session_row *row = session_table_find(s->table, key, m, name, NULL);
    if (!row) {
        return session_table_add(s->table, key, m, name, SESSION_OP, now_ns(s), out, e);
    }
    session_table_hold(s->table, row, SESSION_OP);
    *out = row;
    return ST_OK;
}

/*
 * Turns.
 */
status session_desk_begin(session_desk *s, uint32_t key, model_service *m, const char *name,
                          int32_t *priority, session_row **out, err *e)
{
    session_row *row = session_table_find(s->table, key, m, name, NULL);
    if (row) {
        session_table_hold(s->table, row, SESSION_TURN);
    } else {
        status st = session_table_add(s->table, key, m, name, SESSION_TURN, now_ns(s), &row, e);
        if (st != ST_OK) {
            return st;
        }
    }
    if (row->n_turns > 1 && *priority > row->priority) {
        *priority = row->priority;
    }
    row->priority = *priority;
    *out = row;
    return ST_OK;
}

void session_desk_end(session_desk *s, session_row *row, const session_turn_end *end)
{
    err e;
    wire_request q = wire_request_default(WIRE_SESSION_GET);
    if (end->opened) {
        row->opened = true;
        row->dirty = end->dirty;
        row->tokens = end->tokens >= 0 ? end->tokens : row->tokens;
    }
    if (end->opened && row->n_turns == 1 && session_desk_has_worker(row->model)) {
        session_desk_ask(s, row->model, row->key, row, &q, NULL, NULL, NULL,
                         &e); /* if not: as far as it is known */
    }
    let_go(s, row, SESSION_TURN, true);
}

/*
 * Life.
 */
status session_desk_new(const session_desk_config *cfg, session_desk **out, err *e)
{
    session_desk *s = mem_calloc(1, sizeof *s);
    if (!s) {
        return err_set(e, ST_NOMEM, NULL, "out of memory");
    }
    s->cfg = *cfg;
    s->timer_ns = UINT64_MAX;
    s->timer = evtimer_new(cfg->base, on_timer, s);
    status st = s->timer ? session_table_new(&cfg->caps, &s->table) : ST_NOMEM;
    if (st != ST_OK) {
        session_desk_free(s);
        return err_set(e, st, NULL, "out of memory");
    }
    *out = s;
    return ST_OK;
}

void session_desk_free(session_desk *s)
{
    err why;
    if (!s) {
        return;
    }
    err_set(&why, ST_DRAINING, NULL, "the server is shutting down");
    while (s->asks) {
        ask *a = s->asks;
        if (a->answer) {
            a->answer(a->ctx, a->row, NULL, &why);
        }
        ask_free(a);
    }
    if (s->timer) {
        event_free(s->timer);
    }
    session_table_free(s->table);
    mem_free(s);
}
