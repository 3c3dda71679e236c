#include <float.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "wire/frame_put_int.h"

#define FLOAT_DIGITS 9 /* enough for every float to be read back as itself */

/*
 * Log-probabilities
 */
static void put_logprob_value(json_w *w, double logprob)
{
    char text[32];
    double shown = logprob >= -(double)FLT_MAX && logprob <= (double)FLT_MAX ? logprob : -(double)FLT_MAX;
    snprintf(text, sizeof text, "%.*g", FLOAT_DIGITS, shown);
    json_w_f64(w, strtod(text, NULL)); /* the shortest text of that is text */
}

/* One position without its alternatives, the object left open. */
static void open_logprob(json_w *w, const frame_logprob *p)
{
    json_w_obj_open(w);
    FRAME_KEY(w, id);
    json_w_i64(w, p->token);
    FRAME_KEY(w, logprob);
    put_logprob_value(w, p->logprob);
    FRAME_KEY(w, text);
    frame_put_string(w, p->text);
    if (p->text.data && !utf8_valid(p->text.data, p->text.len, NULL)) {
        FRAME_KEY(w, bytes);
        json_w_arr_open(w);
        for (size_t i = 0; i < p->text.len; i++) {
            json_w_i64(w, (unsigned char)p->text.data[i]);
        }
        json_w_arr_close(w);
    }
}

static void put_logprob(json_w *w, const frame_logprob *p)
{
    open_logprob(w, p);
    FRAME_KEY(w, top);
    json_w_arr_open(w);
    for (size_t i = 0; i < p->n_top; i++) {
        open_logprob(w, &p->top[i]);
        json_w_obj_close(w);
    }
    json_w_arr_close(w);
    json_w_obj_close(w);
}

void frame_put_step_ids(json_w *w, const frame_step *s)
{
    FRAME_KEY(w, ids);
    frame_put_ids(w, s->ids, s->n_ids);
    if (s->logprobs) {
        FRAME_KEY(w, logprobs);
        json_w_arr_open(w);
        for (size_t i = 0; i < s->n_ids; i++) {
            put_logprob(w, &s->logprobs[i]);
        }
        json_w_arr_close(w);
    }
}

status frame_put_prompt_logprobs(buf *out, wire_string id, const frame_logprob *lp, size_t n)
{
    frame_line l;
    frame_line_begin(&l, out, id);
    FRAME_KEY(&l.w, prompt_logprobs);
    json_w_arr_open(&l.w);
    json_w_null(&l.w);
    for (size_t i = 0; i < n; i++) {
        put_logprob(&l.w, &lp[i]);
    }
    json_w_arr_close(&l.w);
    return frame_line_end(&l);
}

/*
 * The frames of a reply
 */
status frame_prompt_digest(const int32_t *ids, size_t n, char hex[SHA256_HEX_LEN + 1])
{
    uint8_t sum[SHA256_BYTES];
    status st = sha256_once(ids, n * sizeof *ids, sum); /* base/le.h: this machine is little-endian */
    if (st == ST_OK) {
        hex_encode(sum, sizeof sum, hex);
    }
    return st;
}

status frame_put_accepted(buf *out, wire_string id, const frame_accepted *a)
{
    frame_line l;
    json_w *w = &l.w;
    frame_line_begin(&l, out, id);
    FRAME_KEY(w, accepted);
    json_w_obj_open(w);
    FRAME_KEY(w, seed);
    json_w_u64(w, a->seed);
    FRAME_KEY(w, now);
    json_w_i64(w, a->now_ms);
    FRAME_KEY(w, prompt_tokens);
    json_w_i64(w, a->prompt_tokens);
    FRAME_KEY(w, prompt_digest);
    json_w_cstr(w, a->prompt_digest);
    FRAME_KEY(w, cached_prompt_tokens);
    json_w_i64(w, a->cached_prompt_tokens);
    if (a->prompt_ids) {
        FRAME_KEY(w, prompt_ids);
        frame_put_ids(w, a->prompt_ids, (size_t)a->prompt_tokens);
    }
    json_w_obj_close(w);
    return frame_line_end(&l);
}

static void put_call(json_w *w, const frame_call *c)
{
    json_w_obj_open(w);
    FRAME_KEY(w, index);
    json_w_i64(w, c->index);
    if (c->id.data) {
        FRAME_KEY(w, id);
        frame_put_string(w, c->id);
    }
    if (c->name.data) {
        FRAME_KEY(w, name);
        frame_put_string(w, c->name);
    }
    FRAME_KEY(w, arguments_delta);
    frame_put_string(w, c->arguments);
    if (c->closed) {
        FRAME_KEY(w, closed);
        json_w_bool(w, true);
    }
    if (c->withdrawn) {
        FRAME_KEY(w, withdrawn);
        json_w_bool(w, true);
    }
    json_w_obj_close(w);
}

status frame_put_delta(buf *out, wire_string id, const frame_step *s)
{
    frame_line l;
    json_w *w = &l.w;
    frame_line_begin(&l, out, id);
    FRAME_KEY(w, delta);
    json_w_obj_open(w);
    if (s->kind == FRAME_DELTA_CALL) {
        FRAME_KEY(w, tool_call);
        put_call(w, &s->call);
    } else if (s->kind == FRAME_DELTA_REASONING) {
        FRAME_KEY(w, reasoning);
        frame_put_string(w, s->text);
    } else {
        FRAME_KEY(w, content);
        frame_put_string(w, s->text);
    }
    json_w_obj_close(w);
    frame_put_step_ids(w, s);
    return frame_line_end(&l);
}

status frame_put_progress(buf *out, wire_string id, const frame_progress *p)
{
    frame_line l;
    json_w *w = &l.w;
    frame_line_begin(&l, out, id);
    FRAME_KEY(w, progress);
    json_w_obj_open(w);
    FRAME_KEY(w, prompt_tokens);
    json_w_i64(w, p->prompt_tokens);
    FRAME_KEY(w, cached);
    json_w_i64(w, p->cached);
    FRAME_KEY(w, processed);
    json_w_i64(w, p->processed);
    json_w_obj_close(w);
    return frame_line_end(&l);
}

/*
 * The answers to ops
 */
status frame_put_tokens(buf *out, wire_string id, const int32_t *ids, const wire_string *pieces, size_t n)
{
    frame_line l;
    json_w *w = &l.w;
    frame_line_begin(&l, out, id);
    FRAME_KEY(w, ids);
    frame_put_ids(w, ids, n);
    FRAME_KEY(w, pieces);
    json_w_arr_open(w);
    for (size_t i = 0; i < n; i++) {
        frame_put_string(w, pieces[i]);
    }
    json_w_arr_close(w);
    return frame_line_end(&l);
}

status frame_put_text(buf *out, wire_string id, wire_string text)
{
    frame_line l;
    frame_line_begin(&l, out, id);
    FRAME_KEY(&l.w, text);
    frame_put_string(&l.w, text);
    return frame_line_end(&l);
}

status frame_put_rendered(buf *out, wire_string id, wire_string text, int64_t count)
{
    frame_line l;
    frame_line_begin(&l, out, id);
    FRAME_KEY(&l.w, text);
    frame_put_string(&l.w, text);
    FRAME_KEY(&l.w, count);
    json_w_i64(&l.w, count);
    return frame_line_end(&l);
}

status frame_put_count(buf *out, wire_string id, int64_t count)
{
    frame_line l;
    frame_line_begin(&l, out, id);
    FRAME_KEY(&l.w, count);
    json_w_i64(&l.w, count);
    return frame_line_end(&l);
}

status frame_put_session_info(buf *out, wire_string id, const frame_session *s)
{
    frame_line l;
    json_w *w = &l.w;
    frame_line_begin(&l, out, id);
    FRAME_KEY(w, session);
    json_w_obj_open(w);
    FRAME_KEY(w, session_id);
    frame_put_string(w, s->session_id);
    FRAME_KEY(w, known);
    json_w_bool(w, s->known);
    FRAME_KEY(w, tokens);
    json_w_i64(w, s->tokens);
    FRAME_KEY(w, dirty);
    json_w_bool(w, s->dirty);
    FRAME_KEY(w, busy);
    json_w_bool(w, s->busy);
    json_w_obj_close(w);
    return frame_line_end(&l);
}

static void put_range(json_w *w, const frame_extent *x)
{
    FRAME_KEY(w, from);
    json_w_i64(w, x->from);
    FRAME_KEY(w, count);
    json_w_i64(w, x->count);
}

static void open_extent(json_w *w, frame_kind kind)
{
    switch (kind) {
    case FRAME_PREWARMED:
        FRAME_KEY(w, prewarmed);
        break;
    case FRAME_PROBE:
        FRAME_KEY(w, probe);
        break;
    case FRAME_EXPORT:
        FRAME_KEY(w, export);
        break;
    case FRAME_IMPORT:
        FRAME_KEY(w, import);
        break;
    case FRAME_SAVED:
        FRAME_KEY(w, saved);
        break;
    case FRAME_RESTORED:
        FRAME_KEY(w, restored);
        break;
    default:
        FRAME_KEY(w, dropped);
        break;
    }
    json_w_obj_open(w);
}

status frame_put_extent(buf *out, wire_string id, frame_kind kind, const frame_extent *x)
{
    frame_line l;
    json_w *w = &l.w;
    frame_line_begin(&l, out, id);
    open_extent(w, kind);
    FRAME_KEY(w, session_id);
    frame_put_string(w, x->session_id);
    if (kind == FRAME_PROBE || kind == FRAME_EXPORT || kind == FRAME_IMPORT) {
        put_range(w, x);
    } else if (kind != FRAME_PREWARMED) {
        FRAME_KEY(w, name);
        frame_put_string(w, x->name);
    }
    FRAME_KEY(w, tokens);
    json_w_i64(w, x->tokens);
    if (kind == FRAME_PREWARMED) {
        FRAME_KEY(w, prefilled);
        json_w_i64(w, x->prefilled);
    } else if (kind == FRAME_PROBE) {
        FRAME_KEY(w, in_memory);
        json_w_i64(w, x->in_memory);
        FRAME_KEY(w, stored);
        json_w_i64(w, x->stored);
    }
    json_w_obj_close(w);
    return frame_line_end(&l);
}

status frame_put_kv_limit(buf *out, wire_string id, const frame_kv_limit *k)
{
    frame_line l;
    json_w *w = &l.w;
    frame_line_begin(&l, out, id);
    FRAME_KEY(w, kv_limit);
    json_w_obj_open(w);
    FRAME_KEY(w, pages);
    json_w_u64(w, k->pages);
    FRAME_KEY(w, pages_used);
    json_w_u64(w, k->pages_used);
    json_w_obj_close(w);
    return frame_line_end(&l);
}

static void put_lane(json_w *w, const frame_lane *l)
{
    json_w_obj_open(w);
    FRAME_KEY(w, index);
    json_w_u64(w, l->index);
    FRAME_KEY(w, active);
    json_w_bool(w, l->active);
    if (l->session_id.data) {
        FRAME_KEY(w, session_id);
        frame_put_string(w, l->session_id);
    }
    FRAME_KEY(w, tokens);
    json_w_u64(w, l->tokens);
    json_w_obj_close(w);
}

status frame_put_stats(buf *out, wire_string id, const frame_stats *s)
{
    frame_line l;
    json_w *w = &l.w;
    frame_line_begin(&l, out, id);
    FRAME_KEY(w, stats);
    json_w_obj_open(w);
#define X(name)         \
    FRAME_KEY(w, name); \
    json_w_u64(w, s->name);
    FRAME_STATS_NUMBERS(X)
#undef X
    FRAME_KEY(w, draining);
    json_w_bool(w, s->draining);
    FRAME_KEY(w, rows);
    json_w_arr_open(w);
    for (size_t i = 0; i < s->n_rows; i++) {
        put_lane(w, &s->rows[i]);
    }
    json_w_arr_close(w);
    json_w_obj_close(w);
    return frame_line_end(&l);
}
