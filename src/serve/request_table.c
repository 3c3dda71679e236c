#include "serve/request_table.h"

#include <string.h>

#include "base/json.h"
#include "base/mem.h"

struct request_table {
    request_entry *live; /* borrowed: list, youngest first */
    size_t n_live;
    uint64_t serial;
    request_entry ended[REQUESTS_KEPT]; /* ring */
    size_t n_ended;                     /* ever */
};

status request_table_new(request_table **out)
{
    request_table *t = mem_calloc(1, sizeof *t);
    if (!t) {
        return ST_NOMEM;
    }
    *out = t;
    return ST_OK;
}

void request_table_free(request_table *t)
{
    mem_free(t);
}

uint64_t request_table_serial(request_table *t)
{
    return ++t->serial;
}

void request_table_add(request_table *t, request_entry *r)
{
    r->prev = NULL;
    r->next = t->live;
    if (t->live) {
        t->live->prev = r;
    }
    t->live = r;
    t->n_live++;
}

void request_table_end(request_table *t, request_entry *r)
{
    if (r->prev) {
        r->prev->next = r->next;
    } else {
        t->live = r->next;
    }
    if (r->next) {
        r->next->prev = r->prev;
    }
    t->n_live--;
    r->prev = r->next = NULL;
    request_entry *kept = &t->ended[t->n_ended++ % REQUESTS_KEPT];
    *kept = *r;
    kept->cancel = NULL;
    kept->position = NULL;
    kept->ctx = NULL;
}

static bool is_it(const request_entry *r, uint32_t key, const char *id)
{
    return r->key == key && (strcmp(r->id, id) == 0 || strcmp(r->answer_id, id) == 0);
}

request_entry *request_table_find(request_table *t, uint32_t key, const char *id)
{
    for (request_entry *r = t->live; r; r = r->next) {
        if (is_it(r, key, id)) {
            return r;
        }
    }
    for (size_t back = 1; back <= REQUESTS_KEPT && back <= t->n_ended; back++) {
        request_entry *r = &t->ended[(t->n_ended - back) % REQUESTS_KEPT];
        if (is_it(r, key, id)) {
            return r;
        }
    }
    return NULL;
}

size_t request_table_n_live(const request_table *t)
{
    return t->n_live;
}

static const char *state_name(const request_entry *r)
{
    switch (r->state) {
    case REQUEST_QUEUED:
    case REQUEST_RUNNING:
        return r->cancelling ? "cancelling" : r->state == REQUEST_QUEUED ? "queued" : "running";
    case REQUEST_DONE:
        return "done";
    case REQUEST_FAILED:
        return "failed";
    case REQUEST_GONE:
        return "gone";
    }
    return "failed";
}

static void put_int(json_w *w, const char *key, int64_t v)
{
    json_w_key(w, key);
    json_w_i64(w, v);
}

static void put_text(json_w *w, const char *key, const char *text)
{
    json_w_key(w, key);
    json_w_cstr(w, text);
}

static void put_time(json_w *w, const char *key, int64_t ms)
{
    json_w_key(w, key);
    if (ms) {
        json_w_i64(w, ms);
    } else {
        json_w_null(w);
    }
}

static void put_place(json_w *w, const request_entry *r)
{
    double estimate_s = 0;
    size_t position = r->position(r->ctx, &estimate_s);
    put_int(w, "position", (int64_t)position);
    json_w_key(w, "estimate_s");
    if (estimate_s > 0) {
        json_w_fixed(w, estimate_s, 3);
    } else {
        json_w_null(w);
    }
}

status request_entry_put(const request_entry *r, buf *out)
{
    size_t before = out->len;
    json_w w;
    json_w_begin(&w, out);
    json_w_obj_open(&w);
    put_text(&w, "id", r->id);
    put_text(&w, "object", "hearth.request");
    put_text(&w, "answer_id", r->answer_id);
    put_text(&w, "route", r->route);
    put_text(&w, "model", r->model);
    put_text(&w, "state", state_name(r));
    json_w_key(&w, "ending");
    if (r->ending[0] != '\0') {
        json_w_cstr(&w, r->ending);
    } else {
        json_w_null(&w);
    }
    if (r->position && r->state == REQUEST_QUEUED) {
        put_place(&w, r);
    }
    put_int(&w, "n_choices", (int64_t)r->n_choices);
    put_int(&w, "prompt_tokens", r->prompt_tokens);
    put_int(&w, "completion_tokens", r->completion_tokens);
    put_time(&w, "created_ms", r->created_ms);
    put_time(&w, "started_ms", r->started_ms);
    put_time(&w, "ended_ms", r->ended_ms);
    json_w_obj_close(&w);
    status st = json_w_end(&w);
    if (st != ST_OK) {
        buf_truncate(out, before);
    }
    return st;
}
