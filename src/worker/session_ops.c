#include "worker/session_ops.h"

#include <string.h>

#include "engine/session_range.h"
#include "wire/frame.h"
#include "wire/line.h"
#include "worker/last.h"
#include "worker/ops.h"
#include "worker/reply.h"

static session *find(const task *k, err *e)
{
    session *s = sessions_find(k->desk->sessions, k->request->session_id);
    if (!s) {
        err_set(e, ST_UNKNOWN_ID, "session_id", "there is no session of this name");
    }
    return s;
}

static size_t tokens_of(const session *s)
{
    size_t n;
    (void)session_resident(s, &n);
    return n;
}

static frame_extent extent_of(const task *k, size_t tokens)
{
    return (frame_extent){
        .session_id = k->request->session_id, .name = k->request->name, .tokens = (int64_t)tokens};
}

static session_range range_of(const wire_request *r, size_t from, size_t count)
{
    return (session_range){.name_space = r->cache_namespace.data,
                           .n_name_space = r->cache_namespace.len,
                           .from = from,
                           .count = count};
}

static void refuse(task *k, const err *e)
{
    last_said(k, ops_put_session_error(k, e));
}

/* The last frame: the answer, or why there is none. */
static void answer(task *k, status st, const err *e, frame_kind kind, const frame_extent *x)
{
    if (st != ST_OK) {
        refuse(k, e);
        return;
    }
    last_said(k, frame_put_extent(output_stage(k->desk->out), k->request->id, kind, x));
}

/*
 * At once
 */
static void probe(task *k)
{
    err e;
    const wire_request *r = k->request;
    const session *s = find(k, &e);
    frame_extent x = extent_of(k, s ? tokens_of(s) : 0);
    size_t from = (size_t)r->from, all = (size_t)x.tokens, in_memory = 0, stored = 0;
    size_t count = r->count >= 0 ? (size_t)r->count : from < all ? all - from : 0;
    const session_range range = range_of(r, from, count);
    status st = s ? session_probe(s, &range, &in_memory, &stored, &e) : e.code;
    x.from = (int64_t)from;
    x.count = (int64_t)count;
    x.in_memory = (int64_t)in_memory;
    x.stored = (int64_t)stored;
    answer(k, st, &e, FRAME_PROBE, &x);
}

/* The frame and, behind it, the bytes. On failure nothing of it is left. */
static status put_export(const task *k, session *s, const session_range *range, err *e)
{
    buf *stage = output_stage(k->desk->out);
    size_t before = stage->len, bytes = 0;
    frame_extent x = extent_of(k, tokens_of(s));
    x.from = (int64_t)range->from;
    x.count = (int64_t)range->count;
    status st = session_export_bytes(s, range, WIRE_MAX_ATTACH_BYTES, &bytes, e);
    if (st != ST_OK) {
        return st;
    }
    st = frame_put_extent(stage, k->request->id, FRAME_EXPORT, &x);
    st = st == ST_OK ? line_add_u64(stage, "attach", bytes) : st;
    if (st != ST_OK) {
        err_set(e, st, NULL, "out of memory for an export");
    } else {
        st = session_export(s, range, stage, e);
    }
    if (st != ST_OK) {
        buf_truncate(stage, before);
    }
    return st;
}

static void export_range(task *k)
{
    err e;
    const wire_request *r = k->request;
    session *s = find(k, &e);
    const session_range range = range_of(r, (size_t)r->from, (size_t)r->count);
    status st = s ? put_export(k, s, &range, &e) : e.code;
    last_said(k, st == ST_OK ? st : ops_put_session_error(k, &e));
}

static void import_range(task *k)
{
    err e;
    const wire_request *r = k->request;
    const sessions_kind kind = SESSION_WITHOUT_LANE;
    session *s = NULL;
    bool opened = false;
    session_range range = range_of(r, 0, 0);
    frame_extent x = {0};
    status st = sessions_open(k->desk->sessions, r->session_id, kind, &s, &opened, &e);
    if (st == ST_OK) {
        st = session_import(s, (const uint8_t *)r->attached, (size_t)r->attach_bytes, &range, &e);
    }
    if (st == ST_OK) {
        x = extent_of(k, tokens_of(s));
        x.from = (int64_t)range.from;
        x.count = (int64_t)range.count;
    } else if (opened) {
        sessions_close(k->desk->sessions, r->session_id);
    }
    answer(k, st, &e, FRAME_IMPORT, &x);
}

void session_op_answer(task *k)
{
    switch (k->request->op) {
    case WIRE_SESSION_PROBE:
        probe(k);
        break;
    case WIRE_SESSION_EXPORT:
        export_range(k);
        break;
    default:
        import_range(k);
        break;
    }
}

/*
 * Prewarm
 */
static void on_token(void *ctx, const gen_token *t)
{
    (void)ctx; /* nothing is generated */
    (void)t;
}

static void prewarmed(task *k, size_t prefilled)
{
    err e;
    const session *s = find(k, &e); /* whoever closes it waits */
    frame_extent x = extent_of(k, s ? tokens_of(s) : 0);
    x.prefilled = (int64_t)prefilled;
    answer(k, ST_OK, NULL, FRAME_PREWARMED, &x);
}

static void on_done(void *ctx, const gen_result *r)
{
    task *k = ctx;
    if (halt_asked(k->desk->halt)) {
        last_said(k, ST_OK);
    } else if (r->reason == FINISH_CANCELLED) {
        reply_cut(k, r->reason, r->guard);
    } else {
        prewarmed(k, (size_t)r->prefilled_tokens);
    }
}

static void on_failed(void *ctx, const err *e)
{
    task *k = ctx;
    last_said(k, halt_asked(k->desk->halt) ? ST_OK : ops_put_session_error(k, e));
}

/* Its tokens, but for the last of a full context: no prompt goes that far, so nobody can use it. */
static gen_request request_of(task *k, const int32_t *ids, size_t n)
{
    const wire_request *r = k->request;
    size_t most = (size_t)k->desk->n_ctx - 1;
    return (gen_request){.prompt = ids,
                         .n_prompt = n < most ? n : most,
                         .max_new_tokens = 0,
                         .params = sampling_default(),
                         .sink = {.ctx = k, .token = on_token, .done = on_done, .failed = on_failed},
                         .prompt_logprobs = -1,
                         .id_hash = status_page_id_hash(r->id.data, r->id.len),
                         .cache_namespace = r->cache_namespace.data,
                         .n_cache_namespace = r->cache_namespace.len};
}

/* Whether all of its tokens have their state in memory now. */
static bool is_warm(const task *k, const session *s, size_t n)
{
    err e;
    size_t in_memory = 0, stored = 0;
    const session_range all = range_of(k->request, 0, n);
    return session_probe(s, &all, &in_memory, &stored, &e) == ST_OK && in_memory == n;
}

void session_op_prewarm(task *k)
{
    err e;
    size_t n = 0;
    const session *s = find(k, &e);
    const int32_t *ids = s ? session_resident(s, &n) : NULL;
    status st = s ? ST_OK : e.code;
    if (s && is_warm(k, s, n)) {
        prewarmed(k, 0);
        return;
    }
    if (st == ST_OK) {
        gen_request g = request_of(k, ids, n);
        st = engine_submit(k->desk->en, &g, &k->seq, &e);
    }
    if (st == ST_OK) {
        k->state = TASK_RUNNING;
    } else {
        k->seq = NULL;
        refuse(k, &e);
    }
}

/*
 * Through the preparer
 */
static bool is_saving(const task *k)
{
    wire_op op = k->request ? k->request->op : WIRE_STATS;
    return op == WIRE_SESSION_SAVE || op == WIRE_SESSION_RESTORE || op == WIRE_SESSION_DROP;
}

/* What the preparer is to save. */
static status take_tokens(task *k, err *e)
{
    size_t n;
    const session *s = find(k, e);
    if (!s) {
        return e->code;
    }
    const int32_t *ids = session_resident(s, &n);
    return ivec_append(&k->job.ids, ids, n) == ST_OK
               ? ST_OK
               : err_set(e, ST_NOMEM, NULL, "out of memory for a session to be saved");
}

bool session_op_begin(task *k)
{
    err e;
    status st = ST_OK;
    if (!is_saving(k)) {
        return true;
    }
    if (!k->desk->saved) {
        st = err_set(&e, ST_UNSUPPORTED, "action", "this worker has no store: nothing can be saved");
    } else if (k->request->op == WIRE_SESSION_SAVE) {
        st = take_tokens(k, &e);
    }
    if (st != ST_OK) {
        refuse(k, &e);
    }
    return st == ST_OK;
}

/* The session, opened if need be, knows what the preparer has read. */
static status restore(const task *k, err *e)
{
    session *s = NULL;
    bool opened = false;
    status st =
        sessions_open(k->desk->sessions, k->request->session_id, SESSION_WITHOUT_LANE, &s, &opened, e);
    if (st != ST_OK) {
        return st;
    }
    st = session_set_tokens(s, k->job.ids.data, k->job.ids.len, e);
    if (st != ST_OK && opened) {
        sessions_close(k->desk->sessions, k->request->session_id);
    }
    return st;
}

void session_op_finish(task *k)
{
    err e = k->job.error;
    status st = k->job.st;
    frame_kind kind = FRAME_SAVED;
    frame_extent x = extent_of(k, k->job.ids.len);
    if (k->request->op == WIRE_SESSION_RESTORE) {
        kind = FRAME_RESTORED;
        st = st == ST_OK ? restore(k, &e) : st;
    } else if (k->request->op == WIRE_SESSION_DROP) {
        kind = FRAME_DROPPED;
        x.tokens = (int64_t)k->job.n_dropped;
    }
    answer(k, st, &e, kind, &x);
}
