#include "serve/session_routes.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "serve/api_reply.h"
#include "serve/fields.h"
#include "serve/query.h"

#define NS_PER_MS ((uint64_t)1000000)
#define MS_PER_S  1000

typedef struct call {
    const api_context *api;
    http_conn *conn; /* borrowed: until it is answered or `gone`; then NULL */
    uint32_t key;
    session_action action;
    bool deletes; /* SESSION_ONE */
    model_service *service;
    session_row *row; /* held by the question; NULL: none was needed */
    wire_request question;
    char name[SESSION_MAX_NAME + 1]; /* of the session */
    char save[SESSION_MAX_SAVE + 1]; /* "" = none */

    /* owned */
    buf wire_name, wire_save; /* as the worker hears them; wire_name: of a drop without a session */
    struct event *timer;      /* GET */
    held_bytes *download;     /* export: its place in the budget */
} call;

static void call_free(call *k)
{
    buf_release(&k->wire_name);
    buf_release(&k->wire_save);
    held_bytes_free(k->download);
    if (k->timer) {
        event_free(k->timer);
    }
    mem_free(k);
}

/* The client has its answer; the call lives on until the worker's. */
static http_conn *take_conn(call *k)
{
    http_conn *c = k->conn;
    k->conn = NULL;
    return c;
}

static void on_gone(void *ctx)
{
    take_conn(ctx);
}

/*
 * Objects.
 */
static void put_text(json_w *w, const char *key, const char *text)
{
    json_w_key(w, key);
    json_w_cstr(w, text);
}

static void put_int(json_w *w, const char *key, int64_t v)
{
    json_w_key(w, key);
    json_w_i64(w, v);
}

/* The row's clock never goes back, clients have the other one. */
static void put_time(json_w *w, const api_context *api, const char *key, uint64_t at_ns)
{
    uint64_t now_ns = clock_mono_ns(api->clock);
    int64_t now_ms = clock_wall_ms(api->clock);
    int64_t ms = at_ns > now_ns ? now_ms + (int64_t)((at_ns - now_ns) / NS_PER_MS)
                                : now_ms - (int64_t)((now_ns - at_ns) / NS_PER_MS);
    put_int(w, key, ms / MS_PER_S);
}

static void put_members(json_w *w, const api_context *api, const session_row *r)
{
    uint64_t end_ns = session_row_end_ns(session_desk_table(api->sessions), r);
    put_text(w, "id", r->name);
    put_text(w, "object", "session");
    put_text(w, "model", service_id(r->model));
    put_int(w, "tokens", r->tokens);
    json_w_key(w, "dirty");
    json_w_bool(w, r->dirty);
    json_w_key(w, "busy");
    json_w_bool(w, r->n_turns > 0);
    put_time(w, api, "created", r->created_ns);
    put_time(w, api, "last_used", r->used_ns);
    if (end_ns != UINT64_MAX) {
        put_time(w, api, "expires", end_ns);
    } else {
        json_w_key(w, "expires");
        json_w_null(w);
    }
}

static void put_extent(json_w *w, const call *k, const frame_extent *x)
{
    switch (k->action) {
    case SESSION_PREWARM:
        put_int(w, "prefilled", x->prefilled);
        break;
    case SESSION_SAVE:
        put_text(w, "saved", k->save);
        break;
    case SESSION_RESTORE:
        put_text(w, "restored", k->save);
        break;
    case SESSION_PROBE:
        put_int(w, "from", x->from);
        put_int(w, "count", x->count);
        put_int(w, "in_memory", x->in_memory);
        put_int(w, "stored", x->stored);
        break;
    case SESSION_IMPORT:
        put_int(w, "from", x->from);
        put_int(w, "count", x->count);
        break;
    default:
        break;
    }
}

/* f NULL: as it is known. */
static void reply_row(call *k, const frame *f)
{
    buf out = {0};
    json_w w;
    json_w_begin(&w, &out);
    json_w_obj_open(&w);
    put_members(&w, k->api, k->row);
    if (f) {
        put_extent(&w, k, &f->extent);
    }
    json_w_obj_close(&w);
    api_reply_take(take_conn(k), 200, &out, json_w_end(&w));
}

static void reply_ended(call *k, const char *what, const char *save)
{
    buf out = {0};
    json_w w;
    json_w_begin(&w, &out);
    json_w_obj_open(&w);
    put_text(&w, "id", k->name);
    put_text(&w, "object", "session");
    json_w_key(&w, what);
    if (save) {
        json_w_cstr(&w, save);
    } else {
        json_w_bool(&w, true);
    }
    json_w_obj_close(&w);
    api_reply_take(take_conn(k), 200, &out, json_w_end(&w));
}

static void fault_unknown(api_fault *f, const char *what)
{
    err e;
    err_set(&e, ST_UNKNOWN_ID, NULL, "there is no such %s here", what);
    api_fault_err(f, &e);
}

static void reply_fault(call *k, const api_fault *f)
{
    api_reply_fault(take_conn(k), f);
}

/*
 * Answers of the worker.
 */
static void reply_download(call *k, const frame *f)
{
    char headers[512];
    snprintf(headers, sizeof headers,
             "Content-Disposition: attachment; filename=\"session-%" PRId64 "-%" PRId64 ".hearthkv\"\r\n"
             "X-Hearth-From: %" PRId64 "\r\nX-Hearth-Count: %" PRId64 "\r\nX-Hearth-Tokens: %" PRId64 "\r\n",
             f->extent.from, f->extent.count, f->extent.from, f->extent.count, f->extent.tokens);
    if (buf_append(&k->download->bytes, f->attached, f->attach_bytes) != ST_OK) {
        api_reply_no_memory(take_conn(k));
        return;
    }
    held_bytes_recharge(k->download, f->attach_bytes);
    http_conn_reply(take_conn(k), &(http_reply){.status = 200,
                                                .content_type = "application/octet-stream",
                                                .headers = headers,
                                                .held = k->download});
    k->download = NULL;
}

static void reply_refusal(call *k, const frame *f)
{
    api_fault fault;
    bool names_a_save = k->action == SESSION_RESTORE || k->action == SESSION_DROP;
    if (f->code == ST_UNKNOWN_ID &&
        k->action == SESSION_ONE) { /* its worker is a new one: the name is left */
        reply_row(k, NULL);
        return;
    }
    if (f->code == ST_UNKNOWN_ID) {
        fault_unknown(&fault, names_a_save ? "saved state" : "session");
    } else {
        api_fault_frame(&fault, f);
    }
    if (strcmp(fault.param, "action") == 0) { /* of the wire; here it is the path */
        fault.param[0] = '\0';
    }
    reply_fault(k, &fault);
}

static frame_kind kind_of_answer(const call *k)
{
    static const frame_kind kinds[] = {
        [SESSION_LIST] = FRAME_UNKNOWN,  [SESSION_ONE] = FRAME_SESSION_INFO,
        [SESSION_RESET] = FRAME_RESET,   [SESSION_PREWARM] = FRAME_PREWARMED,
        [SESSION_SAVE] = FRAME_SAVED,    [SESSION_RESTORE] = FRAME_RESTORED,
        [SESSION_DROP] = FRAME_DROPPED,  [SESSION_PROBE] = FRAME_PROBE,
        [SESSION_EXPORT] = FRAME_EXPORT, [SESSION_IMPORT] = FRAME_IMPORT,
    };
    return k->deletes ? FRAME_CLOSED : kinds[k->action];
}

static void reply_frame(call *k, const frame *f)
{
    api_fault fault;
    if (f->kind == FRAME_ERROR) {
        reply_refusal(k, f);
    } else if (f->kind != kind_of_answer(k)) {
        api_fault_http(&fault, 500, "the worker's answer makes no sense");
        reply_fault(k, &fault);
    } else if (f->kind == FRAME_EXPORT) {
        reply_download(k, f);
    } else if (f->kind == FRAME_CLOSED) {
        reply_ended(k, "deleted", NULL);
    } else if (f->kind == FRAME_DROPPED) {
        reply_ended(k, "dropped", k->save);
    } else {
        reply_row(k, f);
    }
}

static void on_answer(void *ctx, session_row *row, const frame *f, const err *lost)
{
    call *k = ctx;
    if (k->conn && f) {
        reply_frame(k, f);
    } else if (k->conn && k->action == SESSION_ONE && !k->deletes) {
        reply_row(k, NULL);
    } else if (k->conn && k->deletes && (lost->code == ST_WORKER_CRASHED || lost->code == ST_LOAD_FAILED)) {
        reply_ended(k, "deleted", NULL); /* with its worker */
    } else if (k->conn) {
        api_reply_err(take_conn(k), lost);
    }
    call_free(k);
}

static void on_patience_over(evutil_socket_t fd, short what, void *ctx)
{
    call *k = ctx;
    if (k->conn) {
        reply_row(k, NULL);
    }
}

/*
 * Questions. Each reader returns false after it has explained in *e what is wrong.
 */
static bool read_query(call *k, const char *query, const char **model, query_field *fields, err *e)
{
    int64_t count = -1;
    size_t n = k->action == SESSION_PROBE || k->action == SESSION_EXPORT ? 3 : 1;
    if (!query_read(query, fields, n, e)) {
        return false;
    }
    *model = fields[0].given ? fields[0].value : NULL;
    if ((fields[1].given && !query_int(&fields[1], 0, &k->question.from, e)) ||
        (fields[2].given && !query_int(&fields[2], k->action == SESSION_EXPORT, &count, e))) {
        return false;
    }
    k->question.count = count;
    return true;
}

static bool read_save(call *k, const http_request *r, err *e)
{
    static const char *const names[] = {"name"};
    json_doc *doc = NULL;
    const char *name = NULL;
    size_t len = 0;
    if (fields_parse(buf_str(&r->body), r->body.len, &doc, e) != ST_OK) {
        return false;
    }
    const json *root = json_root(doc), *v = fields_get(root, "name");
    bool ok = fields_only(root, names, 1, "", e) && fields_text(root, "name", &name, &len, e);
    if (ok && (!name || !session_save_good(name, len))) {
        ok = fields_refuse(e, "name", v, SESSION_WANT_SAVE);
    }
    if (ok && name) {
        memcpy(k->save, name, len);
        ok = session_save_put(&k->wire_save, k->api->keys, k->key, name, len) == ST_OK || fields_no_memory(e);
        k->question.name = (wire_string){buf_str(&k->wire_save), k->wire_save.len};
    }
    json_doc_free(doc);
    return ok;
}

/* Nothing, or an object without fields. */
static bool read_nothing(const http_request *r, err *e)
{
    json_doc *doc = NULL;
    if (r->body.len == 0) {
        return true;
    }
    if (fields_parse(buf_str(&r->body), r->body.len, &doc, e) != ST_OK) {
        return false;
    }
    bool ok = fields_only(json_root(doc), NULL, 0, "", e);
    json_doc_free(doc);
    return ok;
}

static bool read_body(call *k, const http_request *r, err *e)
{
    switch (k->action) {
    case SESSION_SAVE:
    case SESSION_RESTORE:
    case SESSION_DROP:
        return read_save(k, r, e);
    case SESSION_RESET:
    case SESSION_PREWARM:
        return read_nothing(r, e);
    case SESSION_IMPORT:
        if (r->body.len == 0) {
            err_set(e, ST_BAD_REQUEST, NULL, "the body is empty");
            return false;
        }
        return true;
    default:
        return true;
    }
}

static bool makes_sessions(const call *k)
{
    return k->action == SESSION_RESTORE || k->action == SESSION_IMPORT;
}

/* The model that is named, else that of the session, else the default one. *e.code ST_UNKNOWN_ID: there is no such
 * session. */
static bool find_session(call *k, const char *id, size_t id_len, const char *model, err *e)
{
    bool several = false;
    bool good = query_unescape(id, id_len, false, k->name, sizeof k->name) &&
                session_name_good(k->name, strlen(k->name));
    k->service = model ? models_find(k->api->models, model) : NULL;
    if (model && !k->service) {
        err_set(e, ST_NOT_FOUND, "model", "the model %.64s does not exist here", model);
        return false;
    }
    if (!good && (makes_sessions(k) || k->action == SESSION_DROP)) {
        err_set(e, ST_INVALID_FIELD, "session_id", "the name of a session must be %s", SESSION_WANT_NAME);
        return false;
    }
    k->row =
        good ? session_table_find(session_desk_table(k->api->sessions), k->key, k->service, k->name, &several)
             : NULL;
    if (several) {
        err_set(e, ST_INVALID_FIELD, "model", "model must say which: several have a session of this name");
        return false;
    }
    if (!k->row && !makes_sessions(k) && k->action != SESSION_DROP) {
        err_set(e, ST_UNKNOWN_ID, NULL, "there is no such session here");
        return false;
    }
    if (!k->row && session_desk_put_name(k->api->sessions, k->key, k->name, &k->wire_name) != ST_OK) {
        return fields_no_memory(e);
    }
    k->question.session_id = (wire_string){buf_str(&k->wire_name), k->wire_name.len};
    k->service = k->row ? k->row->model : k->service ? k->service : models_find(k->api->models, NULL);
    return true;
}

/* Without a count: all that is known from there on. */
static bool prepare_download(call *k, err *e)
{
    buf none = {0};
    if (k->question.count < 0) {
        k->question.count = k->row->tokens - k->question.from;
        if (k->question.count < 1) {
            err_set(e, ST_INVALID_FIELD, "from",
                    "from is %" PRId64 ", but the session has %" PRId64 " tokens", k->question.from,
                    k->row->tokens);
            return false;
        }
    }
    if (!byte_budget_take(k->api->downloads, WIRE_MAX_ATTACH_BYTES)) {
        err_set(e, ST_QUEUE_FULL, NULL, "too many exports at once");
        return false;
    }
    k->download = held_bytes_new(&none, k->api->downloads, WIRE_MAX_ATTACH_BYTES);
    if (!k->download) {
        k->api->downloads->used -= WIRE_MAX_ATTACH_BYTES;
        return fields_no_memory(e);
    }
    return true;
}

static status ask(call *k, err *e)
{
    bool opened = makes_sessions(k);
    held_bytes *behind = NULL;
    status st = opened ? session_desk_open(k->api->sessions, k->service, k->key, k->name, &k->row, e) : ST_OK;
    if (st != ST_OK) {
        return st;
    }
    if (k->action == SESSION_IMPORT) {
        behind = http_conn_take_body(k->conn);
        st = behind ? ST_OK : err_set(e, ST_NOMEM, NULL, "out of memory");
    }
    if (st == ST_OK) {
        st = session_desk_ask(k->api->sessions, k->service, k->key, k->row, &k->question, behind, on_answer,
                              k, e);
    }
    if (opened) {
        session_desk_let_go(k->api->sessions, k->row);
    }
    return st;
}

static wire_op op_of(const call *k)
{
    static const wire_op ops[] = {
        [SESSION_LIST] = WIRE_SESSION_GET,      [SESSION_ONE] = WIRE_SESSION_GET,
        [SESSION_RESET] = WIRE_SESSION_RESET,   [SESSION_PREWARM] = WIRE_SESSION_PREWARM,
        [SESSION_SAVE] = WIRE_SESSION_SAVE,     [SESSION_RESTORE] = WIRE_SESSION_RESTORE,
        [SESSION_DROP] = WIRE_SESSION_DROP,     [SESSION_PROBE] = WIRE_SESSION_PROBE,
        [SESSION_EXPORT] = WIRE_SESSION_EXPORT, [SESSION_IMPORT] = WIRE_SESSION_IMPORT,
    };
    return k->deletes ? WIRE_SESSION_CLOSE : ops[k->action];
}

/* What needs no worker: one that is not there holds nothing. */
static bool answered_at_once(call *k)
{
    if (k->action != SESSION_ONE || session_desk_has_worker(k->service)) {
        return false;
    }
    if (k->deletes) {
        session_desk_forget(k->api->sessions, k->row);
        reply_ended(k, "deleted", NULL);
    } else {
        reply_row(k, NULL);
    }
    return true;
}

static void be_patient(call *k)
{
    const struct timeval tv = {0, SESSION_PATIENCE_MS * 1000};
    k->timer = evtimer_new(k->api->base, on_patience_over, k);
    if (k->timer) { /* without it the answer comes when the worker's does */
        evtimer_add(k->timer, &tv);
    }
}

static void list(const api_context *api, http_conn *c, uint32_t key, const char *query)
{
    const session_table *t = session_desk_table(api->sessions);
    query_field fields[] = {{.name = "model"}};
    buf out = {0};
    json_w w;
    err e;
    if (!query_read(query, fields, 1, &e)) {
        api_reply_err(c, &e);
        return;
    }
    const model_service *model = fields[0].given ? models_find(api->models, fields[0].value) : NULL;
    if (fields[0].given && !model) {
        err_set(&e, ST_NOT_FOUND, "model", "the model %.64s does not exist here", fields[0].value);
        api_reply_err(c, &e);
        return;
    }
    json_w_begin(&w, &out);
    json_w_obj_open(&w);
    put_text(&w, "object", "list");
    json_w_key(&w, "data");
    json_w_arr_open(&w);
    for (session_row *r = session_table_next(t, key, NULL); r; r = session_table_next(t, key, r)) {
        if (!model || r->model == model) {
            json_w_obj_open(&w);
            put_members(&w, api, r);
            json_w_obj_close(&w);
        }
    }
    json_w_arr_close(&w);
    json_w_obj_close(&w);
    api_reply_take(c, 200, &out, json_w_end(&w));
}

/* False: *e says why; the call is as it was. */
static bool start(call *k, const char *id, size_t id_len, const http_request *r, err *e)
{
    query_field fields[] = {{.name = "model"}, {.name = "from"}, {.name = "count"}};
    const char *model = NULL;
    k->question = wire_request_default(op_of(k));
    return read_query(k, buf_str(&r->query), &model, fields, e) && find_session(k, id, id_len, model, e) &&
           read_body(k, r, e) && (k->action != SESSION_EXPORT || prepare_download(k, e));
}

static void reply_err(call *k, const err *e)
{
    api_fault f;
    api_fault_err(&f, e);
    if (e->code == ST_CAPACITY) {
        f.retry_after_s = session_desk_retry_s(k->api->sessions, k->key);
    }
    reply_fault(k, &f);
}

void session_routes_answer(const api_context *api, http_conn *c, uint32_t key, session_action action,
                           const char *id, size_t id_len, const http_request *r)
{
    err e;
    if (action == SESSION_LIST) {
        list(api, c, key, buf_str(&r->query));
        return;
    }
    call *k = mem_calloc(1, sizeof *k);
    if (!k) {
        api_reply_no_memory(c);
        return;
    }
    k->api = api;
    k->conn = c;
    k->key = key;
    k->action = action;
    k->deletes = action == SESSION_ONE && r->method == HTTP_DELETE;
    if (!start(k, id, id_len, r, &e)) {
        reply_err(k, &e);
        call_free(k);
    } else if (answered_at_once(k)) {
        call_free(k);
    } else if (ask(k, &e) != ST_OK) {
        reply_err(k, &e);
        call_free(k);
    } else {
        http_conn_on_gone(c, on_gone, k);
        if (action == SESSION_ONE && !k->deletes) {
            be_patient(k);
        }
    }
}
