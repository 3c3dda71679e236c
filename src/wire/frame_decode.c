#include <float.h>
#include <string.h>

#include "wire/errors.h"
#include "wire/frame_decode_int.h"
#include "wire/line.h"

#define MAX_FRAME_DEPTH   32 /* ours nest five deep; a later protocol may add a little */
#define ARENA_CHUNK_BYTES 1024

/*
 * Fields
 */
bool frame_refuse(err *e, const char *key, const char *want)
{
    err_set(e, ST_BAD_REQUEST, key, "broken frame: %s is not %s", key, want);
    return false;
}

bool frame_no_memory(err *e)
{
    err_set(e, ST_NOMEM, NULL, "out of memory while reading a frame");
    return false;
}

static bool present(const json *o, const char *key)
{
    const json *v;
    return json_get(o, key, &v) && v;
}

bool frame_get_string(const json *o, const char *key, wire_string *out, err *e)
{
    const json *v;
    const char *s = json_get(o, key, &v) ? json_string(v, &out->len) : NULL;
    if (!s) {
        return frame_refuse(e, key, "a string");
    }
    out->data = s;
    return true;
}

bool frame_get_i64(const json *o, const char *key, int64_t *out, err *e)
{
    const json *v;
    if (!json_get(o, key, &v) || !json_i64(v, out) || *out < 0) {
        return frame_refuse(e, key, "an integer in [0, 2^63)");
    }
    return true;
}

bool frame_get_i32(const json *o, const char *key, int32_t *out, err *e)
{
    const json *v;
    int64_t i;
    if (!json_get(o, key, &v) || !json_i64(v, &i) || i < 0 || i > INT32_MAX) {
        return frame_refuse(e, key, "an integer in [0, 2^31)");
    }
    *out = (int32_t)i;
    return true;
}

bool frame_get_u64(const json *o, const char *key, uint64_t *out, err *e)
{
    const json *v;
    if (!json_get(o, key, &v) || !json_u64(v, out)) {
        return frame_refuse(e, key, "an integer in [0, 2^64)");
    }
    return true;
}

bool frame_get_bool(const json *o, const char *key, bool *out, err *e)
{
    const json *v;
    if (!json_get(o, key, &v) || !json_bool(v, out)) {
        return frame_refuse(e, key, "a boolean");
    }
    return true;
}

bool frame_get_object(const json *o, const char *key, const json **out, err *e)
{
    return (json_get(o, key, out) && json_kind(*out) == JSON_OBJECT) || frame_refuse(e, key, "an object");
}

bool frame_get_array(const json *o, const char *key, const json **out, err *e)
{
    return (json_get(o, key, out) && json_kind(*out) == JSON_ARRAY) || frame_refuse(e, key, "a list");
}

bool frame_opt_string(const json *o, const char *key, wire_string *out, err *e)
{
    return !present(o, key) || frame_get_string(o, key, out, e);
}

bool frame_opt_i32(const json *o, const char *key, int32_t *out, err *e)
{
    return !present(o, key) || frame_get_i32(o, key, out, e);
}

bool frame_opt_i64(const json *o, const char *key, int64_t *out, err *e)
{
    return !present(o, key) || frame_get_i64(o, key, out, e);
}

bool frame_opt_bool(const json *o, const char *key, bool *out, err *e)
{
    return !present(o, key) || frame_get_bool(o, key, out, e);
}

static bool get_cstr(const json *o, const char *key, const char **out, err *e)
{
    wire_string s;
    bool ok = frame_get_string(o, key, &s, e);
    if (ok) {
        *out = s.data;
    }
    return ok;
}

static bool opt_cstr(const json *o, const char *key, const char **out, err *e)
{
    return !present(o, key) || get_cstr(o, key, out, e);
}

static bool get_ms(const json *o, const char *key, double *out, err *e)
{
    const json *v;
    if (!json_get(o, key, &v) || !json_f64(v, out)) {
        return frame_refuse(e, key, "a number");
    }
    return true;
}

static bool opt_ms(const json *o, const char *key, double *out, err *e)
{
    return !present(o, key) || get_ms(o, key, out, e);
}

static bool must_be_true(const json *o, const char *key, err *e)
{
    bool b;
    return frame_get_bool(o, key, &b, e) && (b || frame_refuse(e, key, "true"));
}

/*
 * Frames
 */
static bool read_done_extras(const json *o, frame_done *d, err *e)
{
    d->guard = "";
    d->has_ids = json_get(o, "generated_token_ids", NULL);
    return opt_cstr(o, "guard", &d->guard, e) && frame_opt_bool(o, "cancelled", &d->cancelled, e) &&
           frame_opt_bool(o, "tail_repaired", &d->tail_repaired, e) &&
           opt_ms(o, "queue_ms", &d->queue_ms, e) && opt_ms(o, "ttft_ms", &d->ttft_ms, e) &&
           frame_read_costs(o, d, e);
}

static bool read_finish_reason(const json *o, frame_done *d, err *e)
{
    return get_cstr(o, "finish_reason", &d->finish_reason, e) &&
           (strcmp(d->finish_reason, "stop") == 0 || strcmp(d->finish_reason, "length") == 0 ||
            frame_refuse(e, "finish_reason", "stop or length"));
}

static bool read_done(const json *o, frame_done *d, err *e)
{
    return must_be_true(o, "done", e) && frame_get_i32(o, "prompt_tokens", &d->prompt_tokens, e) &&
           frame_get_i32(o, "completion_tokens", &d->completion_tokens, e) &&
           frame_get_i32(o, "reused_prompt_tokens", &d->reused_prompt_tokens, e) &&
           frame_get_i32(o, "prefilled_prompt_tokens", &d->prefilled_prompt_tokens, e) &&
           read_finish_reason(o, d, e) && get_cstr(o, "reason", &d->reason, e) &&
           get_cstr(o, "session_reset_reason", &d->session_reset_reason, e) &&
           get_ms(o, "prefill_ms", &d->prefill_ms, e) && get_ms(o, "decode_ms", &d->decode_ms, e) &&
           get_ms(o, "total_ms", &d->total_ms, e) && frame_get_u64(o, "seed", &d->seed, e) &&
           read_done_extras(o, d, e);
}

/* What is out of range is what the model file says, not a broken frame. */
static void read_sampling(const json *model, frame_sampling *s)
{
    static const struct {
        const char *name;
        double low, high;
    } rows[FRAME_SAMPLING_COUNT] = {[FRAME_SAMPLING_temperature] = {"temperature", 0, DBL_MAX},
                                    [FRAME_SAMPLING_top_p] = {"top_p", DBL_TRUE_MIN, 1},
                                    [FRAME_SAMPLING_top_k] = {"top_k", 0, INT32_MAX},
                                    [FRAME_SAMPLING_min_p] = {"min_p", 0, 1},
                                    [FRAME_SAMPLING_repetition_penalty] = {"repetition_penalty", 0.01, 100},
                                    [FRAME_SAMPLING_repeat_last_n] = {"repeat_last_n", -1, INT32_MAX}};
    const json *o = NULL, *v = NULL;
    json_get(model, "sampling", &o);
    for (size_t i = 0; i < FRAME_SAMPLING_COUNT; i++) {
        double x;
        if (json_get(o, rows[i].name, &v) && json_f64(v, &x) && x >= rows[i].low && x <= rows[i].high) {
            s->said |= 1u << i;
            s->value[i] = x;
        }
    }
}

static bool read_ready(const json *o, frame_ready *r, err *e)
{
    const json *m;
    uint64_t pid = 0;
    if (!must_be_true(o, "ready", e) || !frame_get_object(o, "model", &m, e) ||
        !frame_get_u64(o, "pid", &pid, e)) {
        return false;
    }
    if (pid > INT32_MAX) {
        return frame_refuse(e, "pid", "a process number");
    }
    r->pid = (int64_t)pid;
    read_sampling(m, &r->sampling);
    return opt_cstr(m, "digest", &r->digest, e) && frame_get_i32(o, "max_sessions", &r->max_sessions, e) &&
           frame_get_bool(o, "supports_cancel", &r->supports_cancel, e) &&
           frame_get_i32(o, "protocol", &r->protocol, e) && get_cstr(m, "name", &r->name, e) &&
           get_cstr(m, "arch", &r->arch, e) && get_cstr(m, "quant", &r->quant, e) &&
           frame_get_u64(m, "params", &r->params, e) &&
           frame_get_i32(m, "context_length", &r->context_length, e) &&
           frame_get_i32(m, "vocab_size", &r->vocab_size, e) && get_cstr(o, "kernels", &r->kernels, e) &&
           frame_get_u64(o, "kv_pages", &r->kv_pages, e) &&
           (!json_get(o, "kv_page_bytes", NULL) || frame_get_u64(o, "kv_page_bytes", &r->kv_page_bytes, e));
}

static bool read_error(const json *o, frame *f, err *e)
{
    wire_string code = {0}, msg;
    if (!frame_opt_string(o, "code", &code, e) || !frame_get_string(o, "error", &msg, e)) {
        return false;
    }
    f->text = msg.data;
    f->text_len = msg.len;
    f->code = ST_INTERNAL;
    if (code.data) {
        wire_error_from_name(code.data, code.len, &f->code);
    }
    f->has_value = json_get(o, "value", &f->value);
    return opt_cstr(o, "field", &f->field, e) && opt_cstr(o, "path", &f->path, e) &&
           frame_opt_i64(o, "prompt_tokens", &f->prompt_tokens, e) &&
           frame_opt_i64(o, "limit", &f->limit, e) && frame_opt_i64(o, "need", &f->need, e) &&
           frame_opt_i64(o, "have", &f->have, e) && frame_opt_i64(o, "retry_after", &f->retry_after, e);
}

static bool read_token(const json *o, frame *f, err *e)
{
    wire_string text;
    if (!frame_get_string(o, "token", &text, e)) {
        return false;
    }
    f->text = text.data;
    f->text_len = text.len;
    return frame_read_step_ids(o, f, e);
}

static bool read_session(const json *o, const frame *f, err *e)
{
    const char *key = f->kind == FRAME_OPENED ? "opened" : f->kind == FRAME_CLOSED ? "closed" : "reset";
    return must_be_true(o, key, e) && (f->session_id.data || frame_refuse(e, "session_id", "a string"));
}

/* In the order in which clients look for these keys. */
static frame_kind kind_of(const json *o)
{
    static const struct {
        const char *key;
        frame_kind kind;
    } kinds[] = {
        {"token", FRAME_TOKEN},
        {"done", FRAME_DONE},
        {"error", FRAME_ERROR},
        {"ready", FRAME_READY},
        {"opened", FRAME_OPENED},
        {"closed", FRAME_CLOSED},
        {"reset", FRAME_RESET},
        {"accepted", FRAME_ACCEPTED},
        {"delta", FRAME_DELTA},
        {"prompt_logprobs", FRAME_PROMPT_LOGPROBS},
        {"progress", FRAME_PROGRESS},
        {"pieces", FRAME_TOKENS},
        {"text", FRAME_TEXT},
        {"count", FRAME_COUNT},
        {"session", FRAME_SESSION_INFO},
        {"stats", FRAME_STATS},
        {"prewarmed", FRAME_PREWARMED},
        {"probe", FRAME_PROBE},
        {"export", FRAME_EXPORT},
        {"import", FRAME_IMPORT},
        {"saved", FRAME_SAVED},
        {"restored", FRAME_RESTORED},
        {"dropped", FRAME_DROPPED},
        {"kv_limit", FRAME_KV_LIMIT},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (json_get(o, kinds[i].key, NULL)) {
            return kinds[i].kind;
        }
    }
    return FRAME_UNKNOWN;
}

/* What every frame may have. An id is a string wherever there is one. */
static bool read_envelope(const json *o, frame *f, err *e)
{
    int64_t attach = 0;
    f->kind = kind_of(o);
    f->field = f->path = "";
    f->prompt_tokens = f->limit = f->need = f->have = f->retry_after = FRAME_NO_NUMBER;
    if (json_get(o, "id", NULL) && !frame_get_string(o, "id", &f->id, e)) {
        return false;
    }
    if (!frame_opt_string(o, "session_id", &f->session_id, e) || !frame_opt_i64(o, "attach", &attach, e)) {
        return false;
    }
    f->attach_bytes = (uint64_t)attach;
    if (f->attach_bytes > WIRE_MAX_ATTACH_BYTES || (attach > 0 && !f->id.data)) {
        return frame_refuse(e, "attach", "at most 67108864 in a frame with an id");
    }
    return true;
}

static bool read_frame(const json *o, frame *f, err *e)
{
    if (!read_envelope(o, f, e)) {
        return false;
    }
    switch (f->kind) {
    case FRAME_TOKEN:
        return read_token(o, f, e);
    case FRAME_DONE:
        return read_done(o, &f->done, e);
    case FRAME_ERROR:
        return read_error(o, f, e);
    case FRAME_READY:
        return read_ready(o, &f->ready, e);
    case FRAME_OPENED:
    case FRAME_CLOSED:
    case FRAME_RESET:
        return read_session(o, f, e);
    case FRAME_UNKNOWN:
        return true;
    default:
        return (f->id.data || frame_refuse(e, "id", "a string")) && frame_read_mux(o, f, e);
    }
}

status frame_decode(const char *line, size_t len, frame *out, err *e)
{
    err why;
    frame f;
    memset(&f, 0, sizeof f);
    arena_init(&f.mem, ARENA_CHUNK_BYTES);
    err_clear(&why);
    status st = json_parse(line, len, MAX_FRAME_DEPTH, &f.doc, &why);
    if (st == ST_OK && json_kind(json_root(f.doc)) != JSON_OBJECT) {
        st = err_set(&why, ST_BAD_REQUEST, NULL, "broken frame: not a JSON object");
    } else if (st == ST_OK && !read_frame(json_root(f.doc), &f, &why)) {
        st = why.code;
    }
    if (st != ST_OK) {
        frame_release(&f);
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
        arena_release(&f->mem);
        memset(f, 0, sizeof *f);
    }
}
