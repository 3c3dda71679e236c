#include <math.h>
#include <string.h>

#include "base/utf8.h"
#include "wire/errors.h"
#include "wire/frame.h"

#define SHOWN_VALUE_BYTES 64   /* of a string at fault */
#define SHOWN_POINT_BELOW 1e15 /* larger ones show their exponent anyway */
#define RATE_DIGITS       3
#define MS_DIGITS         3

/* Only names of the two lists can be written: any other is an undeclared FRAME_KEY_…. */
#define KEY(w, name) ((void)FRAME_KEY_##name, json_w_key(w, #name))

typedef struct line_out {
    json_w w;
    buf *out;   /* borrowed */
    size_t len; /* before this frame */
} line_out;

static json_w *begin(line_out *l, buf *out)
{
    l->out = out;
    l->len = out->len;
    json_w_begin(&l->w, out);
    json_w_obj_open(&l->w);
    return &l->w;
}

static status finish(line_out *l)
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

static void put_model(json_w *w, const frame_ready *r)
{
    json_w_obj_open(w);
    KEY(w, name);
    json_w_cstr(w, r->name);
    KEY(w, arch);
    json_w_cstr(w, r->arch);
    KEY(w, quant);
    json_w_cstr(w, r->quant);
    KEY(w, params);
    json_w_u64(w, r->params);
    if (r->digest) {
        KEY(w, digest);
        json_w_cstr(w, r->digest);
    }
    KEY(w, context_length);
    json_w_i64(w, r->context_length);
    KEY(w, vocab_size);
    json_w_i64(w, r->vocab_size);
    KEY(w, modalities);
    json_w_arr_open(w);
    json_w_cstr(w, "text");
    json_w_arr_close(w);
    KEY(w, capabilities);
    json_w_arr_open(w);
    json_w_cstr(w, "generate");
    json_w_arr_close(w);
    json_w_obj_close(w);
}

status frame_put_ready(buf *out, const frame_ready *r)
{
    line_out l;
    json_w *w = begin(&l, out);
    KEY(w, ready);
    json_w_bool(w, true);
    KEY(w, max_sessions);
    json_w_i64(w, r->max_sessions);
    KEY(w, max_named_sessions);
    json_w_i64(w, r->max_sessions - 1);
    KEY(w, supports_cancel);
    json_w_bool(w, r->supports_cancel);
    KEY(w, protocol);
    json_w_i64(w, r->protocol);
    KEY(w, pid);
    json_w_i64(w, r->pid);
    KEY(w, model);
    put_model(w, r);
    KEY(w, kernels);
    json_w_cstr(w, r->kernels);
    KEY(w, kv_pages);
    json_w_u64(w, r->kv_pages);
    return finish(&l);
}

status frame_put_token(buf *out, const char *text, size_t len)
{
    line_out l;
    json_w *w = begin(&l, out);
    KEY(w, token);
    json_w_str(w, text, len);
    return finish(&l);
}

static double rate(int32_t n_tokens, double ms)
{
    return ms > 0 ? n_tokens / ms * 1000.0 : 0.0;
}

static void put_times(json_w *w, const frame_done *d)
{
    KEY(w, prefill_ms);
    json_w_fixed(w, d->prefill_ms, MS_DIGITS);
    KEY(w, decode_ms);
    json_w_fixed(w, d->decode_ms, MS_DIGITS);
    KEY(w, total_ms);
    json_w_fixed(w, d->total_ms, MS_DIGITS);
    KEY(w, prefill_tok_s);
    json_w_fixed(w, rate(d->prefilled_prompt_tokens, d->prefill_ms), RATE_DIGITS);
    KEY(w, decode_tok_s);
    json_w_fixed(w, rate(d->completion_tokens, d->decode_ms), RATE_DIGITS);
    KEY(w, queue_ms);
    json_w_fixed(w, d->queue_ms, MS_DIGITS);
    KEY(w, ttft_ms);
    json_w_fixed(w, d->ttft_ms, MS_DIGITS);
}

/* What is there only when it says something. */
static void put_optional(json_w *w, const frame_done *d)
{
    if (d->guard[0] != '\0') {
        KEY(w, guard);
        json_w_cstr(w, d->guard);
    }
    if (d->cancelled) {
        KEY(w, cancelled);
        json_w_bool(w, true);
    }
    if (d->tail_repaired) {
        KEY(w, tail_repaired);
        json_w_bool(w, true);
    }
    if (d->has_ids) {
        KEY(w, generated_token_ids);
        json_w_arr_open(w);
        for (int32_t i = 0; i < d->completion_tokens; i++) {
            json_w_i64(w, d->ids[i]);
        }
        json_w_arr_close(w);
    }
}

status frame_put_done(buf *out, const frame_done *d)
{
    line_out l;
    json_w *w = begin(&l, out);
    KEY(w, done);
    json_w_bool(w, true);
    KEY(w, prompt_tokens);
    json_w_i64(w, d->prompt_tokens);
    KEY(w, completion_tokens);
    json_w_i64(w, d->completion_tokens);
    KEY(w, finish_reason);
    json_w_cstr(w, d->finish_reason);
    KEY(w, reason);
    json_w_cstr(w, d->reason);
    KEY(w, reused_prompt_tokens);
    json_w_i64(w, d->reused_prompt_tokens);
    KEY(w, prefilled_prompt_tokens);
    json_w_i64(w, d->prefilled_prompt_tokens);
    KEY(w, session_reset_reason);
    json_w_cstr(w, d->session_reset_reason);
    KEY(w, seed);
    json_w_u64(w, d->seed);
    put_times(w, d);
    put_optional(w, d);
    return finish(&l);
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
    };
}

static void put_error_extras(json_w *w, const frame_error *e)
{
    if (e->field[0] != '\0') {
        KEY(w, field);
        json_w_cstr(w, e->field);
    }
    if (e->has_value) {
        KEY(w, value);
        frame_put_value(w, e->value);
    }
    if (e->prompt_tokens != FRAME_NO_NUMBER) {
        KEY(w, prompt_tokens);
        json_w_i64(w, e->prompt_tokens);
    }
    if (e->limit != FRAME_NO_NUMBER) {
        KEY(w, limit);
        json_w_i64(w, e->limit);
    }
    if (e->has_session) {
        KEY(w, session_id);
        if (e->session_id) {
            json_w_str(w, e->session_id, e->session_id_len);
        } else {
            json_w_null(w);
        }
    }
    if (e->id) {
        KEY(w, id);
        json_w_str(w, e->id, e->id_len);
    }
}

status frame_put_error(buf *out, const frame_error *e)
{
    line_out l;
    json_w *w = begin(&l, out);
    KEY(w, error);
    json_w_cstr(w, e->msg);
    KEY(w, code);
    json_w_cstr(w, wire_error_name(e->code));
    put_error_extras(w, e);
    return finish(&l);
}

status frame_put_session(buf *out, frame_kind kind, const char *session_id, size_t len)
{
    line_out l;
    json_w *w = begin(&l, out);
    if (kind == FRAME_OPENED) {
        KEY(w, opened);
    } else if (kind == FRAME_CLOSED) {
        KEY(w, closed);
    } else {
        KEY(w, reset);
    }
    json_w_bool(w, true);
    KEY(w, session_id);
    json_w_str(w, session_id, len);
    return finish(&l);
}
