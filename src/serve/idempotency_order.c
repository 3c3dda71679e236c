#include "serve/idempotency_order.h"

#include <string.h>

static const char *const sampling_names[FRAME_SAMPLING_COUNT] = {
#define X(name) [FRAME_SAMPLING_##name] = #name,
    FRAME_SAMPLING_NUMBERS(X)
#undef X
};

static void put_text(json_w *w, const char *key, const char *text)
{
    if (text) {
        json_w_key(w, key);
        json_w_cstr(w, text);
    }
}

static void put_u64(json_w *w, const char *key, uint64_t v)
{
    json_w_key(w, key);
    json_w_u64(w, v);
}

static void put_sampling(json_w *w, const frame_sampling *s)
{
    json_w_key(w, "sampling");
    json_w_obj_open(w);
    for (size_t i = 0; i < FRAME_SAMPLING_COUNT; i++) {
        if (s->said & 1u << i) {
            json_w_key(w, sampling_names[i]);
            json_w_f64(w, s->value[i]);
        }
    }
    json_w_obj_close(w);
}

status idempotency_order_put(buf *out, const idempotency_order *o)
{
    size_t before = out->len;
    json_w w;
    json_w_begin(&w, out);
    json_w_obj_open(&w);
    put_text(&w, "route", o->route);
    put_text(&w, "request_id", o->request_id);
    put_text(&w, "session", o->session);
    put_text(&w, "model", o->model);
    put_text(&w, "digest", o->model_digest);
    put_u64(&w, "numerics", o->numerics);
    put_u64(&w, "seed", o->seed);
    if (o->knows_sampling) {
        put_sampling(&w, &o->sampling);
    }
    json_w_obj_close(&w);
    status st = json_w_end(&w);
    st = st == ST_OK ? buf_append_char(out, '\n') : st;
    st = st == ST_OK ? buf_append(out, o->body, o->body_len) : st;
    if (st != ST_OK) {
        buf_truncate(out, before);
    }
    return st;
}

/* NULL: it is none, or has a zero in it. */
static const char *get_text(const json *root, const char *key)
{
    const json *v = NULL;
    size_t len;
    const char *text = json_get(root, key, &v) ? json_string(v, &len) : NULL;
    return text && strlen(text) == len ? text : NULL;
}

static bool get_u64(const json *root, const char *key, uint64_t *out)
{
    const json *v = NULL;
    return json_get(root, key, &v) && json_u64(v, out);
}

static bool get_sampling(const json *root, bool *known, frame_sampling *out)
{
    const json *v = NULL, *number;
    memset(out, 0, sizeof *out);
    *known = json_get(root, "sampling", &v);
    if (!*known) {
        return true;
    }
    if (json_kind(v) != JSON_OBJECT) {
        return false;
    }
    for (size_t i = 0; i < FRAME_SAMPLING_COUNT; i++) {
        if (json_get(v, sampling_names[i], &number)) {
            out->said |= 1u << i;
            if (!json_f64(number, &out->value[i])) {
                return false;
            }
        }
    }
    return true;
}

static bool get_members(const json *root, idempotency_order *o)
{
    uint64_t numerics = 0;
    o->route = get_text(root, "route");
    o->request_id = get_text(root, "request_id");
    o->session = get_text(root, "session");
    o->model = get_text(root, "model");
    o->model_digest = get_text(root, "digest");
    bool ok = o->route && o->request_id && o->model && o->model_digest &&
              get_u64(root, "numerics", &numerics) && get_u64(root, "seed", &o->seed) && o->seed > 0 &&
              o->seed <= INT64_MAX && numerics <= UINT32_MAX &&
              get_sampling(root, &o->knows_sampling, &o->sampling);
    o->numerics = (uint32_t)numerics;
    return ok;
}

status idempotency_order_get(const char *text, size_t len, idempotency_order *out)
{
    const char *end = len > 0 ? memchr(text, '\n', len) : NULL;
    idempotency_order o = {0};
    if (!end) {
        return ST_BAD_FORMAT;
    }
    status st = json_parse(text, (size_t)(end - text), 4, &o.doc, NULL);
    if (st != ST_OK) {
        return st == ST_NOMEM ? st : ST_BAD_FORMAT;
    }
    if (!get_members(json_root(o.doc), &o)) {
        json_doc_free(o.doc);
        return ST_BAD_FORMAT;
    }
    o.body = end + 1;
    o.body_len = len - (size_t)(o.body - text);
    *out = o;
    return ST_OK;
}

void idempotency_order_release(idempotency_order *o)
{
    json_doc_free(o->doc);
    memset(o, 0, sizeof *o);
}

status idempotency_digest(const char *route, const char *session, const char *body, size_t len,
                          uint8_t out[SHA256_BYTES])
{
    sha256 *s = NULL;
    status st = sha256_new(&s);
    st = st == ST_OK ? sha256_update(s, route, strlen(route) + 1) : st;
    st = st == ST_OK && session ? sha256_update(s, session, strlen(session)) : st;
    st = st == ST_OK ? sha256_update(s, "", 1) : st;
    st = st == ST_OK ? sha256_update(s, body, len) : st;
    st = st == ST_OK ? sha256_final(s, out) : st;
    sha256_free(s);
    return st;
}
