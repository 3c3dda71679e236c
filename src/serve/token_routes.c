#include "serve/token_routes.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "serve/api_reply.h"
#include "serve/chat_talk.h"
#include "serve/fields.h"
#include "wire/request.h"

typedef struct token_run {
    model_service *service; /* borrowed */
    http_conn *conn;        /* borrowed: until it is answered or `gone` */
    service_job job;
    bool with_pieces;
    const char *text_name; /* what the answer calls a text */

    /* owned */
    json_doc *talk; /* of a conversation, until the line is made */
} token_run;

static void run_free(token_run *r)
{
    buf_release(&r->job.line);
    mem_free(r);
}

static void on_gone(void *ctx)
{
    token_run *r = ctx;
    service_cancel(r->service, &r->job);
    run_free(r);
}

static void put_tokens(json_w *w, const token_run *r, const frame *f)
{
    json_w_key(w, "tokens");
    json_w_arr_open(w);
    for (size_t i = 0; i < f->n_ids; i++) {
        if (r->with_pieces) {
            json_w_obj_open(w);
            json_w_key(w, "id");
            json_w_i64(w, f->ids[i]);
            json_w_key(w, "piece");
            json_w_str(w, f->pieces[i].data, f->pieces[i].len);
            json_w_obj_close(w);
        } else {
            json_w_i64(w, f->ids[i]);
        }
    }
    json_w_arr_close(w);
}

static void on_frame(void *ctx, const frame *f)
{
    token_run *r = ctx;
    buf out = {0};
    json_w w;
    if (f->kind == FRAME_ERROR) {
        api_fault fault;
        api_fault_frame(&fault, f);
        api_reply_fault(r->conn, &fault);
        run_free(r);
        return;
    }
    json_w_begin(&w, &out);
    json_w_obj_open(&w);
    if (f->kind == FRAME_TOKENS) {
        put_tokens(&w, r, f);
    } else {
        json_w_key(&w, r->text_name);
        json_w_str(&w, f->text ? f->text : "", f->text_len);
    }
    json_w_obj_close(&w);
    api_reply_take(r->conn, 200, &out, json_w_end(&w));
    run_free(r);
}

static void on_lost(void *ctx, const err *why)
{
    token_run *r = ctx;
    api_reply_err(r->conn, why);
    run_free(r);
}

static bool read_tokenize(const json *root, arena *mem, wire_request *q, token_run *r, err *e)
{
    static const char *const names[] = {"content", "add_special", "parse_special", "with_pieces", "model"};
    const char *content = NULL;
    size_t len = 0;
    q->parse_special = true;
    if (!fields_only(root, names, sizeof names / sizeof names[0], "", e) ||
        !fields_text(root, "content", &content, &len, e) ||
        !fields_bool(root, "add_special", &q->add_special, e) ||
        !fields_bool(root, "parse_special", &q->parse_special, e) ||
        !fields_bool(root, "with_pieces", &r->with_pieces, e)) {
        return false;
    }
    if (!content) {
        return fields_refuse(e, "content", NULL, "a string");
    }
    wire_segment *text = arena_alloc(mem, sizeof *text);
    if (!text) {
        return fields_no_memory(e);
    }
    *text = (wire_segment){.text = {content, len}};
    q->segments = text;
    q->n_segments = 1;
    q->prompt_field = "text";
    return true;
}

static bool read_detokenize(const json *root, arena *mem, wire_request *q, token_run *r, err *e)
{
    static const char *const names[] = {"tokens", "model"};
    static const char want[] = "a list of token ids of the vocabulary";
    const json *v = fields_get(root, "tokens");
    if (!fields_only(root, names, sizeof names / sizeof names[0], "", e)) {
        return false;
    }
    if (json_kind(v) != JSON_ARRAY) {
        return fields_refuse(e, "tokens", v, want);
    }
    int32_t *ids = arena_alloc_array(mem, json_len(v), sizeof *ids);
    if (!ids) {
        return fields_no_memory(e);
    }
    for (size_t i = 0; i < json_len(v); i++) {
        int64_t id;
        if (!json_i64(json_at(v, i), &id) || id < 0 || id > INT32_MAX) {
            return fields_refuse(e, "tokens", json_at(v, i), want);
        }
        ids[i] = (int32_t)id;
    }
    q->ids = ids;
    q->n_ids = json_len(v);
    return true;
}

static bool read_talk(const json *root, arena *mem, wire_request *q, token_run *r, err *e)
{
    static const char *const names[] = {CHAT_TALK_FIELDS, "model"};
    r->text_name = "prompt";
    return fields_only(root, names, sizeof names / sizeof names[0], "", e) &&
           chat_talk_read(root, q, &r->talk, e);
}

static status find_model(const api_context *api, const json *root, token_run *r, err *e)
{
    const char *name = NULL;
    size_t len = 0;
    if (!fields_text(root, "model", &name, &len, e)) {
        return e->code;
    }
    r->service = !name || strlen(name) == len ? models_find(api->models, name) : NULL;
    return r->service ? ST_OK
                      : err_set(e, ST_NOT_FOUND, "model", "the model %.64s does not exist here", name);
}

typedef bool (*read_fn)(const json *root, arena *mem, wire_request *q, token_run *r, err *e);

static status make_job(const api_context *api, token_run *r, wire_op op, read_fn read, const char *body,
                       size_t len, err *e)
{
    json_doc *doc = NULL;
    arena mem = {0};
    wire_request q = wire_request_default(op);
    status st = fields_parse(body, len, &doc, e);
    if (st != ST_OK) {
        return st;
    }
    st = find_model(api, json_root(doc), r, e);
    if (st == ST_OK) {
        err_clear(e);
        st = read(json_root(doc), &mem, &q, r, e) ? ST_OK : e->code;
    }
    if (st == ST_OK) {
        q.id = (wire_string){r->job.id, strlen(r->job.id)};
        q.has_now = op == WIRE_RENDER;
        q.now_ms = clock_wall_ms(api->clock);
        q.cache_namespace = keys_namespace(api->keys, r->job.key);
        st = wire_request_put(&r->job.line, &q);
        if (st != ST_OK) {
            err_set(e, st, NULL, "out of memory");
        } else if (r->job.line.len > WIRE_MAX_MUX_LINE_BYTES) {
            st = err_set(e, ST_BAD_REQUEST, NULL, "the request is longer than the worker's wire allows");
        }
    }
    arena_release(&mem);
    json_doc_free(r->talk);
    r->talk = NULL;
    json_doc_free(doc);
    return st;
}

static void start(const api_context *api, http_conn *c, uint32_t key, wire_op op, read_fn read,
                  const char *body, size_t len)
{
    err e;
    token_run *r = mem_calloc(1, sizeof *r);
    if (!r) {
        api_reply_no_memory(c);
        return;
    }
    r->conn = c;
    r->text_name = "content";
    snprintf(r->job.id, sizeof r->job.id, "%.48s.%llx", http_conn_request_id(c),
             (unsigned long long)request_table_serial(api->requests));
    r->job.key = key;
    r->job.light = r->job.resend = true;
    r->job.on_frame = on_frame;
    r->job.on_lost = on_lost;
    r->job.ctx = r;
    if (make_job(api, r, op, read, body, len, &e) != ST_OK ||
        service_submit(r->service, &r->job, &e) != ST_OK) {
        api_reply_err(c, &e);
        run_free(r);
        return;
    }
    http_conn_on_gone(c, on_gone, r);
}

void token_routes_tokenize(const api_context *api, http_conn *c, uint32_t key, const char *body, size_t len)
{
    start(api, c, key, WIRE_TOKENIZE, read_tokenize, body, len);
}

void token_routes_detokenize(const api_context *api, http_conn *c, uint32_t key, const char *body, size_t len)
{
    start(api, c, key, WIRE_DETOKENIZE, read_detokenize, body, len);
}

void token_routes_apply_template(const api_context *api, http_conn *c, uint32_t key, const char *body,
                                 size_t len)
{
    start(api, c, key, WIRE_RENDER, read_talk, body, len);
}
