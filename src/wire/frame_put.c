#include <math.h>
#include <string.h>

#include "base/utf8.h"
#include "wire/errors.h"
#include "wire/frame_put_int.h"

#define SHOWN_VALUE_BYTES 64   /* of a string at fault */
#define SHOWN_POINT_BELOW 1e15 /* larger ones show their exponent anyway */
#define RATE_DIGITS       3
#define MS_DIGITS         3

void frame_line_begin(frame_line *l, buf *out, wire_string id)
{
    l->out = out;
    l->len = out->len;
    json_w_begin(&l->w, out);
    json_w_obj_open(&l->w);
    if (id.data) {
        FRAME_KEY(&l->w, id);
        frame_put_string(&l->w, id);
    }
}

status frame_line_end(frame_line *l)
{
    json_w_obj_close(&l->w);
    status st = json_w_end(&l->w);
    if (st == ST_OK) {
        st = buf_append_char(l->out, '\n');
    }
    if (st != ST_OK) {
        buf_truncate(l->out, l->len);
    }
    return st;
}

void frame_put_string(json_w *w, wire_string s)
{
    json_w_str(w, s.data ? s.data : "", s.len);
}

void frame_put_ids(json_w *w, const int32_t *ids, size_t n)
{
    json_w_arr_open(w);
    for (size_t i = 0; i < n; i++) {
        json_w_i64(w, ids[i]);
    }
    json_w_arr_close(w);
}

static void put_sampling(json_w *w, const frame_sampling *s)
{
    if (s->said == 0) {
        return;
    }
    FRAME_KEY(w, sampling);
    json_w_obj_open(w);
#define X(name)                                         \
    if (s->said & 1u << FRAME_SAMPLING_##name) {        \
        FRAME_KEY(w, name);                             \
        json_w_f64(w, s->value[FRAME_SAMPLING_##name]); \
    }
    FRAME_SAMPLING_NUMBERS(X)
#undef X
    json_w_obj_close(w);
}

static void put_model(json_w *w, const frame_ready *r)
{
    json_w_obj_open(w);
    FRAME_KEY(w, name);
    json_w_cstr(w, r->name);
    FRAME_KEY(w, arch);
    json_w_cstr(w, r->arch);
    FRAME_KEY(w, quant);
    json_w_cstr(w, r->quant);
    FRAME_KEY(w, params);
    json_w_u64(w, r->params);
    if (r->digest) {
        FRAME_KEY(w, digest);
        json_w_cstr(w, r->digest);
    }
    FRAME_KEY(w, context_length);
    json_w_i64(w, r->context_length);
    FRAME_KEY(w, vocab_size);
    json_w_i64(w, r->vocab_size);
    put_sampling(w, &r->sampling);
    FRAME_KEY(w, modalities);
    json_w_arr_open(w);
    json_w_cstr(w, "text");
    json_w_arr_close(w);
    FRAME_KEY(w, capabilities);
    json_w_arr_open(w);
    json_w_cstr(w, "generate");
    json_w_arr_close(w);
    json_w_obj_close(w);
}

status frame_put_ready(buf *out, const frame_ready *r)
{
    frame_line l;
    json_w *w = &l.w;
    frame_line_begin(&l, out, WIRE_NO_ID);
    FRAME_KEY(w, ready);
    json_w_bool(w, true);
    FRAME_KEY(w, max_sessions);
    json_w_i64(w, r->max_sessions);
    FRAME_KEY(w, max_named_sessions);
    json_w_i64(w, r->max_sessions - 1);
    FRAME_KEY(w, supports_cancel);
    json_w_bool(w, r->supports_cancel);
    FRAME_KEY(w, protocol);
    json_w_i64(w, r->protocol);
    FRAME_KEY(w, pid);
    json_w_i64(w, r->pid);
    FRAME_KEY(w, model);
    put_model(w, r);
    FRAME_KEY(w, kernels);
    json_w_cstr(w, r->kernels);
    FRAME_KEY(w, kv_pages);
    json_w_u64(w, r->kv_pages);
    if (r->kv_page_bytes > 0) {
        FRAME_KEY(w, kv_page_bytes);
        json_w_u64(w, r->kv_page_bytes);
    }
    return frame_line_end(&l);
}

status frame_put_token(buf *out, wire_string id, const frame_step *step)
{
    frame_line l;
    json_w *w = &l.w;
    frame_line_begin(&l, out, id);
    FRAME_KEY(w, token);
    frame_put_string(w, step->text);
    if (id.data) {
        frame_put_step_ids(w, step);
    }
    return frame_line_end(&l);
}

static double rate(int32_t n_tokens, double ms)
{
    return ms > 0 ? n_tokens / ms * 1000.0 : 0.0;
}

static void put_times(json_w *w, const frame_done *d)
{
    FRAME_KEY(w, prefill_ms);
    json_w_fixed(w, d->prefill_ms, MS_DIGITS);
    FRAME_KEY(w, decode_ms);
    json_w_fixed(w, d->decode_ms, MS_DIGITS);
    FRAME_KEY(w, total_ms);
    json_w_fixed(w, d->total_ms, MS_DIGITS);
    FRAME_KEY(w, prefill_tok_s);
    json_w_fixed(w, rate(d->prefilled_prompt_tokens, d->prefill_ms), RATE_DIGITS);
    FRAME_KEY(w, decode_tok_s);
    json_w_fixed(w, rate(d->completion_tokens, d->decode_ms), RATE_DIGITS);
    FRAME_KEY(w, queue_ms);
    json_w_fixed(w, d->queue_ms, MS_DIGITS);
    FRAME_KEY(w, ttft_ms);
    json_w_fixed(w, d->ttft_ms, MS_DIGITS);
}

/* What is there only when it says something. */
static void put_optional(json_w *w, const frame_done *d)
{
    if (d->guard[0] != '\0') {
        FRAME_KEY(w, guard);
        json_w_cstr(w, d->guard);
    }
    if (d->cancelled) {
        FRAME_KEY(w, cancelled);
        json_w_bool(w, true);
    }
    if (d->tail_repaired) {
        FRAME_KEY(w, tail_repaired);
        json_w_bool(w, true);
    }
}

/* What only the multiplexed dialect says; the ids were in its frames. */
static void put_costs(json_w *w, const frame_done *d)
{
    FRAME_KEY(w, cached_prompt_tokens);
    json_w_i64(w, d->reused_prompt_tokens);
    if (d->cache_miss_reason && d->cache_miss_reason[0] != '\0') {
        FRAME_KEY(w, cache_miss);
        json_w_obj_open(w);
        FRAME_KEY(w, at);
        json_w_i64(w, d->cache_miss_at);
        FRAME_KEY(w, reason);
        json_w_cstr(w, d->cache_miss_reason);
        json_w_obj_close(w);
    }
    FRAME_KEY(w, preemptions);
    json_w_i64(w, d->preemptions);
    FRAME_KEY(w, drafted);
    json_w_i64(w, d->drafted);
    FRAME_KEY(w, accepted);
    json_w_i64(w, d->accepted);
    FRAME_KEY(w, reasoning_tokens);
    json_w_i64(w, d->reasoning_tokens);
}

status frame_put_done(buf *out, wire_string id, const frame_done *d)
{
    frame_line l;
    json_w *w = &l.w;
    frame_line_begin(&l, out, id);
    FRAME_KEY(w, done);
    json_w_bool(w, true);
    FRAME_KEY(w, prompt_tokens);
    json_w_i64(w, d->prompt_tokens);
    FRAME_KEY(w, completion_tokens);
    json_w_i64(w, d->completion_tokens);
    FRAME_KEY(w, finish_reason);
    json_w_cstr(w, d->finish_reason);
    FRAME_KEY(w, reason);
    json_w_cstr(w, d->reason);
    FRAME_KEY(w, reused_prompt_tokens);
    json_w_i64(w, d->reused_prompt_tokens);
    FRAME_KEY(w, prefilled_prompt_tokens);
    json_w_i64(w, d->prefilled_prompt_tokens);
    FRAME_KEY(w, session_reset_reason);
    json_w_cstr(w, d->session_reset_reason);
    FRAME_KEY(w, seed);
    json_w_u64(w, d->seed);
    put_times(w, d);
    put_optional(w, d);
    if (id.data) {
        put_costs(w, d);
    } else if (d->has_ids) {
        FRAME_KEY(w, generated_token_ids);
        frame_put_ids(w, d->ids, (size_t)d->completion_tokens);
    }
    return frame_line_end(&l);
}

/* With its point, or "must be an integer, not 1" would answer 1.0. */
static void put_double(json_w *w, double f)
{
    if (f == trunc(f) && fabs(f) < SHOWN_POINT_BELOW) {
        json_w_fixed(w, f, 1);
    } else {
        json_w_f64(w, f);
    }
}

void frame_put_value(json_w *w, const json *v)
{
    int64_t i;
    uint64_t u;
    double f;
    bool b;
    size_t len;
    const char *s;
    switch (json_kind(v)) {
    case JSON_NULL:
        json_w_null(w);
        break;
    case JSON_BOOL:
        json_w_bool(w, json_bool(v, &b) && b);
        break;
    case JSON_INT:
        if (json_i64(v, &i)) {
            json_w_i64(w, i);
        } else if (json_u64(v, &u)) {
            json_w_u64(w, u);
        }
        break;
    case JSON_DOUBLE:
        if (json_f64(v, &f)) {
            put_double(w, f);
        }
        break;
    case JSON_STRING:
        s = json_string(v, &len);
        if (len > SHOWN_VALUE_BYTES) {
            len = SHOWN_VALUE_BYTES - utf8_incomplete_tail(s, SHOWN_VALUE_BYTES);
        }
        json_w_str(w, s, len);
        break;
    case JSON_ARRAY:
        json_w_cstr(w, "[...]");
        break;
    case JSON_OBJECT:
        json_w_cstr(w, "{...}");
        break;
    }
}

frame_error frame_error_of(const err *e)
{
    return (frame_error){
        .code = e->code,
        .msg = e->msg,
        .field = e->field,
        .prompt_tokens = FRAME_NO_NUMBER,
        .limit = FRAME_NO_NUMBER,
        .need = FRAME_NO_NUMBER,
        .have = FRAME_NO_NUMBER,
        .retry_after = FRAME_NO_NUMBER,
    };
}

#define PUT_NUMBER(w, e, name)              \
    do {                                    \
        if ((e)->name != FRAME_NO_NUMBER) { \
            FRAME_KEY(w, name);             \
            json_w_i64(w, (e)->name);       \
        }                                   \
    } while (0)

static void put_error_extras(json_w *w, const frame_error *e)
{
    if (e->field[0] != '\0') {
        FRAME_KEY(w, field);
        json_w_cstr(w, e->field);
    }
    if (e->has_value) {
        FRAME_KEY(w, value);
        frame_put_value(w, e->value);
    }
    PUT_NUMBER(w, e, prompt_tokens);
    PUT_NUMBER(w, e, limit);
    PUT_NUMBER(w, e, need);
    PUT_NUMBER(w, e, have);
    PUT_NUMBER(w, e, retry_after);
    if (e->path && e->path[0] != '\0') {
        FRAME_KEY(w, path);
        json_w_cstr(w, e->path);
    }
    if (e->has_session) {
        FRAME_KEY(w, session_id);
        if (e->session_id) {
            json_w_str(w, e->session_id, e->session_id_len);
        } else {
            json_w_null(w);
        }
    }
}

status frame_put_error(buf *out, const frame_error *e)
{
    frame_line l;
    json_w *w = &l.w;
    frame_line_begin(&l, out, e->id);
    FRAME_KEY(w, error);
    json_w_cstr(w, e->msg);
    FRAME_KEY(w, code);
    json_w_cstr(w, wire_error_name(e->code));
    put_error_extras(w, e);
    return frame_line_end(&l);
}

status frame_put_session(buf *out, wire_string id, frame_kind kind, wire_string session_id)
{
    frame_line l;
    json_w *w = &l.w;
    frame_line_begin(&l, out, id);
    if (kind == FRAME_OPENED) {
        FRAME_KEY(w, opened);
    } else if (kind == FRAME_CLOSED) {
        FRAME_KEY(w, closed);
    } else {
        FRAME_KEY(w, reset);
    }
    json_w_bool(w, true);
    FRAME_KEY(w, session_id);
    frame_put_string(w, session_id);
    return frame_line_end(&l);
}
