#include "worker/ops.h"

#include <string.h>

#include "base/mem.h"
#include "wire/frame.h"
#include "worker/last.h"
#include "worker/session_ops.h"

static wire_string id_of(const task *k)
{
    return k->request->id;
}

static buf *stage_of(const task *k)
{
    return output_stage(k->desk->out);
}

bool ops_must_wait(const task *k)
{
    switch (k->request ? k->request->op : WIRE_STATS) {
    case WIRE_CLOSE:
    case WIRE_RESET:
    case WIRE_SESSION_CLOSE:
    case WIRE_SESSION_RESET:
    case WIRE_SESSION_PREWARM:
    case WIRE_SESSION_PROBE:
    case WIRE_SESSION_EXPORT:
    case WIRE_SESSION_IMPORT:
    case WIRE_SESSION_SAVE:
    case WIRE_SESSION_RESTORE: {
        const session *s = sessions_find(k->desk->sessions, k->request->session_id);
        return (s && session_busy(s)) || tasks_earlier_on_session(k->desk->tasks, k, false);
    }
    default:
        return false;
    }
}

status ops_put_session_error(const task *k, const err *e)
{
    frame_error f = frame_error_of(e);
    f.id = id_of(k);
    f.has_session = true;
    f.session_id = k->request->session_id.data;
    f.session_id_len = k->request->session_id.len;
    return frame_put_error(stage_of(k), &f);
}

static status change_session(const task *k)
{
    err e;
    const wire_request *r = k->request;
    session *s = sessions_find(k->desk->sessions, r->session_id);
    frame_kind kind = FRAME_RESET;
    status st = ST_OK;
    err_clear(&e);
    if (r->op == WIRE_OPEN) {
        kind = FRAME_OPENED;
        st = sessions_open(k->desk->sessions, r->session_id, SESSION_KEEPS_LANE, &s, NULL, &e);
    } else if (r->op == WIRE_CLOSE || r->op == WIRE_SESSION_CLOSE) {
        kind = FRAME_CLOSED;
        sessions_close(k->desk->sessions, r->session_id);
    } else if (s) { /* an unknown id is answered true and creates nothing */
        st = session_reset(s);
        if (st != ST_OK) {
            err_set(&e, st, NULL, "the session cannot be reset: %s", status_text(st));
        }
    }
    return st == ST_OK ? frame_put_session(stage_of(k), id_of(k), kind, r->session_id)
                       : ops_put_session_error(k, &e);
}

static status describe_session(const task *k)
{
    const session *s = sessions_find(k->desk->sessions, k->request->session_id);
    frame_session f = {.session_id = k->request->session_id, .known = s != NULL};
    if (s) {
        size_t n;
        (void)session_resident(s, &n);
        f.tokens = (int64_t)n;
        f.dirty = session_dirty(s);
        f.busy = session_busy(s);
    }
    return frame_put_session_info(stage_of(k), id_of(k), &f);
}

/* One row for each lane that may be. rows: [lanes_count]. */
static void describe_lanes(const desk *d, frame_lane *rows)
{
    const lane_table *lanes = engine_lanes(d->en);
    for (size_t i = 0; i < lanes_count(lanes); i++) {
        const lane *l = lanes_at(lanes, i);
        rows[i] = (frame_lane){.index = i};
        if (l && l->owner != 0) {
            rows[i].active = true;
            rows[i].session_id = l->named ? sessions_name_of(d->sessions, l->owner) : WIRE_NO_ID;
            rows[i].tokens = l->tokens->len;
        }
    }
}

static status put_stats(const task *k, frame_stats *f)
{
    size_t n = lanes_count(engine_lanes(k->desk->en));
    frame_lane *rows = mem_alloc_array(n, sizeof *rows);
    if (!rows) {
        return ST_NOMEM;
    }
    describe_lanes(k->desk, rows);
    f->rows = rows;
    f->n_rows = n;
    status st = frame_put_stats(stage_of(k), id_of(k), f);
    mem_free(rows);
    return st;
}

static status describe_worker(const task *k, bool draining)
{
    const desk *d = k->desk;
    engine_stats s = desk_stats(d);
    lanes_stats l = lanes_stats_read(engine_lanes(d->en));
    frame_stats f = {
        .lanes = l.lanes,
        .lanes_live = l.live,
        .lanes_idle = l.idle,
        .lanes_tracked = l.tracked,
        .lanes_created = l.created,
        .lanes_destroyed = l.destroyed,
        .largest_tokens = l.largest_tokens,
        .total_tokens = l.total_tokens,
        .sessions = s.sessions,
        .pages_total = s.pages_total,
        .pages_used = s.pages_used,
        .queued = d->tasks->n - s.running - 1, /* this one is none */
        .running = s.running,
        .steps = s.steps,
        .tokens_prefilled = s.tokens_prefilled,
        .tokens_generated = s.tokens_generated,
        .tokens_reused = s.tokens_reused,
        .tokens_evaluated = s.tokens_prefilled + s.tokens_generated + s.tokens_recomputed,
        .tokens_recomputed = s.tokens_recomputed,
        .tokens_restored = s.tokens_restored,
        .parked = s.parked,
        .preempted = s.preemptions,
        .requests_done = s.requests_done,
        .requests_failed = s.requests_failed,
        .requests_cancelled = s.requests_cancelled,
        .draining = draining,
    };
    return put_stats(k, &f);
}

static status limit_pages(const task *k)
{
    engine *en = k->desk->en;
    uint64_t asked = k->request->pages;
    size_t limit = engine_set_page_limit(en, asked < SIZE_MAX ? (size_t)asked : SIZE_MAX);
    const frame_kv_limit f = {.pages = limit, .pages_used = desk_stats(k->desk).pages_used};
    return frame_put_kv_limit(stage_of(k), id_of(k), &f);
}

static status put_refusal(const task *k)
{
    return k->answer ? buf_append(stage_of(k), k->answer, k->answer_len) : ST_NOMEM;
}

void ops_answer(task *k, bool draining)
{
    status st;
    wire_op op = k->request ? k->request->op : WIRE_STATS;
    if (op == WIRE_SESSION_PROBE || op == WIRE_SESSION_EXPORT || op == WIRE_SESSION_IMPORT) {
        session_op_answer(k);
        return;
    }
    if (!k->request) {
        st = put_refusal(k);
    } else if (op == WIRE_STATS) {
        st = describe_worker(k, draining);
    } else if (op == WIRE_SESSION_GET) {
        st = describe_session(k);
    } else if (op == WIRE_KV_LIMIT) {
        st = limit_pages(k);
    } else {
        st = change_session(k);
    }
    last_said(k, st);
}

void ops_answer_prepared(task *k)
{
    wire_op op = k->request->op;
    if (op == WIRE_SESSION_SAVE || op == WIRE_SESSION_RESTORE || op == WIRE_SESSION_DROP) {
        session_op_finish(k);
        return;
    }
    status st;
    if (k->job.st == ST_OK) {
        st = buf_append(stage_of(k), k->job.answer.data, k->job.answer.len);
    } else {
        frame_error f = frame_error_of(&k->job.error);
        f.id = id_of(k);
        st = frame_put_error(stage_of(k), &f);
    }
    last_said(k, st);
}

void ops_refuse(inbox_item *item, const err *e)
{
    const wire_request *r = item->request;
    buf answer = {0};
    frame_error f = frame_error_of(e);
    f.id = r->id;
    if (r->op == WIRE_OPEN || r->op == WIRE_CLOSE || r->op == WIRE_RESET) {
        f.has_session = true;
        f.session_id = r->session_id.data;
        f.session_id_len = r->session_id.len;
    }
    if (frame_put_error(&answer, &f) == ST_OK) {
        item->answer = buf_detach(&answer, &item->answer_len);
    } else {
        buf_release(&answer);
        item->id_len = r->id.len;
        memcpy(item->id_bytes, r->id.data ? r->id.data : "", r->id.len);
    }
    wire_request_free(item->request);
    item->request = NULL;
}
