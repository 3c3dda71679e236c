#include <string.h>

#include "wire/errors.h"
#include "wire/frame.h"

#define MAX_FRAME_DEPTH 32 /* ours nest three deep; a later protocol may add a little */

/*
 * Reading fields. A reader returns false, and says why in e, if the field is absent or of the wrong type.
 */
static bool refuse(err *e, const char *key, const char *want)
{
    err_set(e, ST_BAD_REQUEST, key, "broken frame: %s is not %s", key, want);
    return false;
}

static bool get_string(const json *obj, const char *key, const char **s, size_t *len, err *e)
{
    const json *v;
    const char *found = json_get(obj, key, &v) ? json_string(v, len) : NULL;
    if (!found) {
        return refuse(e, key, "a string");
    }
    *s = found;
    return true;
}

static bool get_cstr(const json *obj, const char *key, const char **s, err *e)
{
    size_t len;
    return get_string(obj, key, s, &len, e);
}

static bool get_i32(const json *obj, const char *key, int32_t *out, err *e)
{
    const json *v;
    int64_t i;
    if (!json_get(obj, key, &v) || !json_i64(v, &i) || i < 0 || i > INT32_MAX) {
        return refuse(e, key, "an integer in [0, 2^31)");
    }
    *out = (int32_t)i;
    return true;
}

static bool get_u64(const json *obj, const char *key, uint64_t *out, err *e)
{
    const json *v;
    if (!json_get(obj, key, &v) || !json_u64(v, out)) {
        return refuse(e, key, "an integer in [0, 2^64)");
    }
    return true;
}

static bool get_ms(const json *obj, const char *key, double *out, err *e)
{
    const json *v;
    if (!json_get(obj, key, &v) || !json_f64(v, out)) {
        return refuse(e, key, "a number");
    }
    return true;
}

static bool get_bool(const json *obj, const char *key, bool *out, err *e)
{
    const json *v;
    if (!json_get(obj, key, &v) || !json_bool(v, out)) {
        return refuse(e, key, "a boolean");
    }
    return true;
}

/* Optional ones: absent is fine, null too. */
static const char *optional_string(const json *obj, const char *key, size_t *len)
{
    const json *v;
    return json_get(obj, key, &v) ? json_string(v, len) : NULL;
}

static int64_t optional_number(const json *obj, const char *key)
{
    const json *v;
    int64_t i;
    return json_get(obj, key, &v) && json_i64(v, &i) && i >= 0 ? i : FRAME_NO_NUMBER;
}

static bool optional_true(const json *obj, const char *key)
{
    const json *v;
    bool b;
    return json_get(obj, key, &v) && json_bool(v, &b) && b;
}

static double optional_ms(const json *obj, const char *key)
{
    const json *v;
    double ms;
    return json_get(obj, key, &v) && json_f64(v, &ms) ? ms : 0.0;
}

static bool read_done(const json *o, frame_done *d, err *e)
{
    const char *guard = optional_string(o, "guard", NULL);
    d->guard = guard ? guard : "";
    d->has_ids = json_get(o, "generated_token_ids", NULL);
    d->cancelled = optional_true(o, "cancelled");
    d->tail_repaired = optional_true(o, "tail_repaired");
    d->queue_ms = optional_ms(o, "queue_ms");
    d->ttft_ms = optional_ms(o, "ttft_ms");
    return get_i32(o, "prompt_tokens", &d->prompt_tokens, e) &&
           get_i32(o, "completion_tokens", &d->completion_tokens, e) &&
           get_i32(o, "reused_prompt_tokens", &d->reused_prompt_tokens, e) &&
           get_i32(o, "prefilled_prompt_tokens", &d->prefilled_prompt_tokens, e) &&
           get_cstr(o, "finish_reason", &d->finish_reason, e) && get_cstr(o, "reason", &d->reason, e) &&
           get_cstr(o, "session_reset_reason", &d->session_reset_reason, e) &&
           get_ms(o, "prefill_ms", &d->prefill_ms, e) && get_ms(o, "decode_ms", &d->decode_ms, e) &&
           get_ms(o, "total_ms", &d->total_ms, e) && get_u64(o, "seed", &d->seed, e);
}

static bool read_ready(const json *o, frame_ready *r, err *e)
{
    const json *m;
    uint64_t pid = 0;
    if (!json_get(o, "model", &m) || json_kind(m) != JSON_OBJECT) {
        return refuse(e, "model", "an object");
    }
    if (!get_u64(o, "pid", &pid, e)) {
        return false;
    }
    if (pid > INT32_MAX) {
        return refuse(e, "pid", "a process number");
    }
    r->pid = (int64_t)pid;
    r->digest = optional_string(m, "digest", NULL);
    return get_i32(o, "max_sessions", &r->max_sessions, e) &&
           get_bool(o, "supports_cancel", &r->supports_cancel, e) &&
           get_i32(o, "protocol", &r->protocol, e) && get_cstr(m, "name", &r->name, e) &&
           get_cstr(m, "arch", &r->arch, e) && get_cstr(m, "quant", &r->quant, e) &&
           get_u64(m, "params", &r->params, e) && get_i32(m, "context_length", &r->context_length, e) &&
           get_i32(m, "vocab_size", &r->vocab_size, e) && get_cstr(o, "kernels", &r->kernels, e) &&
           get_u64(o, "kv_pages", &r->kv_pages, e);
}

static bool read_error(const json *o, frame *f, err *e)
{
    size_t len;
    const char *code = optional_string(o, "code", &len);
    const char *field = optional_string(o, "field", NULL);
    f->code = ST_INTERNAL;
    if (code) {
        wire_error_from_name(code, len, &f->code);
    }
    f->field = field ? field : "";
    f->prompt_tokens = optional_number(o, "prompt_tokens");
    f->limit = optional_number(o, "limit");
    return get_string(o, "error", &f->text, &f->text_len, e);
}

/* In the order in which clients look for these keys. */
static frame_kind kind_of(const json *o)
{
    static const struct {
        const char *key;
        frame_kind kind;
    } kinds[] = {
        {"token", FRAME_TOKEN},   {"done", FRAME_DONE},     {"error", FRAME_ERROR}, {"ready", FRAME_READY},
        {"opened", FRAME_OPENED}, {"closed", FRAME_CLOSED}, {"reset", FRAME_RESET},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (json_get(o, kinds[i].key, NULL)) {
            return kinds[i].kind;
        }
    }
    return FRAME_UNKNOWN;
}

static bool read_frame(const json *o, frame *f, err *e)
{
    f->kind = kind_of(o);
    f->id = optional_string(o, "id", &f->id_len);
    f->session_id = optional_string(o, "session_id", &f->session_id_len);
    switch (f->kind) {
    case FRAME_TOKEN:
        return get_string(o, "token", &f->text, &f->text_len, e);
    case FRAME_DONE:
        return read_done(o, &f->done, e);
    case FRAME_ERROR:
        return read_error(o, f, e);
    case FRAME_READY:
        return read_ready(o, &f->ready, e);
    case FRAME_OPENED:
    case FRAME_CLOSED:
    case FRAME_RESET:
        return f->session_id || refuse(e, "session_id", "a string");
    case FRAME_UNKNOWN:
        break;
    }
    return true;
}

status frame_decode(const char *line, size_t len, frame *out, err *e)
{
    err why;
    frame f;
    memset(&f, 0, sizeof f);
    err_clear(&why);
    status st = json_parse(line, len, MAX_FRAME_DEPTH, &f.doc, &why);
    if (st == ST_OK && json_kind(json_root(f.doc)) != JSON_OBJECT) {
        st = err_set(&why, ST_BAD_REQUEST, NULL, "broken frame: not a JSON object");
    } else if (st == ST_OK && !read_frame(json_root(f.doc), &f, &why)) {
        st = why.code;
    }
    if (st != ST_OK) {
        json_doc_free(f.doc);
        if (e) {
            *e = why;
        }
        return st;
    }
    *out = f;
    return ST_OK;
}

void frame_release(frame *f)
{
    if (f) {
        json_doc_free(f->doc);
        memset(f, 0, sizeof *f);
    }
}
