#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "wire/line.h"
#include "wire/request_int.h"

static void put_string(json_w *w, const char *key, wire_string s)
{
    json_w_key(w, key);
    json_w_str(w, s.data ? s.data : "", s.len);
}

static void put_int(json_w *w, const char *key, int64_t value, int64_t unless)
{
    if (value != unless) {
        json_w_key(w, key);
        json_w_i64(w, value);
    }
}

static void put_double(json_w *w, const char *key, double value, double unless)
{
    if (value != unless) {
        json_w_key(w, key);
        json_w_f64(w, value);
    }
}

static void put_bool(json_w *w, const char *key, bool value, bool unless)
{
    if (value != unless) {
        json_w_key(w, key);
        json_w_bool(w, value);
    }
}

static void put_ids(json_w *w, const char *key, const int32_t *ids, size_t n)
{
    json_w_key(w, key);
    json_w_arr_open(w);
    for (size_t i = 0; i < n; i++) {
        json_w_i64(w, ids[i]);
    }
    json_w_arr_close(w);
}

static void put_segments(json_w *w, const wire_request *r)
{
    json_w_key(w, "prompt_segments");
    json_w_arr_open(w);
    for (size_t i = 0; i < r->n_segments; i++) {
        const wire_segment *s = &r->segments[i];
        json_w_obj_open(w);
        if (s->ids) {
            put_ids(w, "ids", s->ids, s->n_ids);
        } else {
            put_string(w, "text", s->text);
        }
        json_w_obj_close(w);
    }
    json_w_arr_close(w);
}

static void put_view(json_w *w, const char *key, const json *v)
{
    if (v) {
        json_w_key(w, key);
        json_w_json(w, v);
    }
}

static void put_tool_choice(json_w *w, const wire_request *r)
{
    if (r->tool_choice == WIRE_TOOLS_AUTO) {
        return;
    }
    json_w_key(w, "tool_choice");
    if (r->tool_choice == WIRE_TOOLS_NAMED) {
        json_w_obj_open(w);
        put_string(w, "name", r->tool_name);
        json_w_obj_close(w);
    } else {
        json_w_cstr(w, r->tool_choice == WIRE_TOOLS_NONE ? "none" : "required");
    }
}

static void put_reasoning(json_w *w, const wire_request *r)
{
    if (r->reasoning_budget < 0 && !r->reasoning_effort && r->reasoning_enabled == WIRE_UNSAID) {
        return;
    }
    json_w_key(w, "reasoning");
    json_w_obj_open(w);
    put_int(w, "budget", r->reasoning_budget, -1);
    if (r->reasoning_effort) {
        json_w_key(w, "effort");
        json_w_cstr(w, r->reasoning_effort);
    }
    if (r->reasoning_enabled != WIRE_UNSAID) {
        json_w_key(w, "enabled");
        json_w_bool(w, r->reasoning_enabled == WIRE_ON);
    }
    json_w_obj_close(w);
}

static void put_now(json_w *w, const wire_request *r)
{
    put_int(w, "now", r->has_now ? r->now_ms : -1, -1);
}

static void put_namespace(json_w *w, const wire_request *r)
{
    if (r->cache_namespace.len > 0) {
        put_string(w, "cache_namespace", r->cache_namespace);
    }
}

/* All of a conversation but now. */
static void put_conversation(json_w *w, const wire_request *r)
{
    put_view(w, "messages", r->messages);
    put_view(w, "tools", r->tools);
    put_tool_choice(w, r);
    put_bool(w, "parallel_tool_calls", r->parallel_tool_calls, true);
    put_view(w, "template_kwargs", r->template_kwargs);
    put_reasoning(w, r);
    put_bool(w, "continue_final_message", r->continue_final_message, false);
}

static void put_stops(json_w *w, const wire_request *r)
{
    if (r->n_stops > 0) {
        json_w_key(w, "stop");
        json_w_arr_open(w);
        for (size_t i = 0; i < r->n_stops; i++) {
            json_w_str(w, r->stops[i].data, r->stops[i].len);
        }
        json_w_arr_close(w);
    }
}

static void put_bias(json_w *w, const wire_request *r)
{
    char token[16];
    if (r->n_bias > 0) {
        json_w_key(w, "logit_bias");
        json_w_obj_open(w);
        for (size_t i = 0; i < r->n_bias; i++) {
            snprintf(token, sizeof token, "%d", (int)r->bias[i].token);
            json_w_key(w, token);
            json_w_f64(w, r->bias[i].bias);
        }
        json_w_obj_close(w);
    }
}

static void put_logprobs(json_w *w, const wire_request *r)
{
    put_bool(w, "logprobs", r->top_logprobs >= 0, false);
    if (r->top_logprobs > 0) {
        put_int(w, "top_logprobs", r->top_logprobs, 0);
    }
    put_int(w, "prompt_logprobs", r->prompt_logprobs, -1);
}

static void put_resume(json_w *w, const wire_resume *r)
{
    json_w_obj_open(w);
    put_ids(w, "ids", r->ids, r->n_ids);
    json_w_key(w, "seed");
    json_w_u64(w, r->seed);
    json_w_key(w, "now");
    json_w_i64(w, r->now_ms);
    json_w_key(w, "prompt_digest");
    json_w_cstr(w, r->prompt_digest);
    if (r->prompt_ids) {
        put_ids(w, "prompt_ids", r->prompt_ids, r->n_prompt_ids);
    }
    json_w_obj_close(w);
}

/* What generate and chat have in common. */
static void put_reply_fields(json_w *w, const wire_request *r)
{
    const wire_request none = wire_request_default(r->op);
    if (r->session_id.len > 0) {
        put_string(w, "session_id", r->session_id);
    }
    put_namespace(w, r);
    put_int(w, "max_new_tokens", r->max_new_tokens, none.max_new_tokens);
    put_double(w, "temperature", r->temperature, none.temperature);
    put_double(w, "top_p", r->top_p, none.top_p);
    put_int(w, "top_k", r->top_k, none.top_k);
    json_w_key(w, "seed");
    json_w_u64(w, r->seed);
    put_now(w, r);
    put_stops(w, r);
    put_double(w, "min_p", r->min_p, none.min_p);
    put_double(w, "repetition_penalty", r->repetition_penalty, none.repetition_penalty);
    put_double(w, "presence_penalty", r->presence_penalty, none.presence_penalty);
    put_double(w, "frequency_penalty", r->frequency_penalty, none.frequency_penalty);
    put_int(w, "repeat_last_n", r->repeat_last_n, none.repeat_last_n);
    put_bias(w, r);
    put_int(w, "min_tokens", r->min_tokens, none.min_tokens);
    put_bool(w, "ignore_eos", r->ignore_eos, none.ignore_eos);
    if (r->n_stop_token_ids > 0) {
        put_ids(w, "stop_token_ids", r->stop_token_ids, r->n_stop_token_ids);
    }
    put_logprobs(w, r);
    put_bool(w, "progress", r->progress, none.progress);
    put_int(w, "priority", r->priority, none.priority);
    put_int(w, "repetition_guard", r->repetition_guard, none.repetition_guard);
    if (r->deadline_ms > 0) {
        json_w_key(w, "deadline_ms");
        json_w_u64(w, r->deadline_ms);
    }
    if (r->resume) {
        json_w_key(w, "resume");
        put_resume(w, r->resume);
    }
}

static void put_prompt(json_w *w, const wire_request *r)
{
    if (r->n_segments == 1 && !r->segments[0].ids && strcmp(r->prompt_field, "prompt") == 0) {
        put_string(w, "prompt", r->segments[0].text);
    } else {
        put_segments(w, r);
    }
    put_bool(w, "add_special", r->add_special, false);
}

static void put_session_fields(json_w *w, const wire_request *r)
{
    json_w_key(w, "action");
    json_w_cstr(w, request_session_action(r->op));
    put_string(w, "session_id", r->session_id);
    put_namespace(w, r);
    put_int(w, "from", r->from, r->op == WIRE_SESSION_EXPORT ? -1 : 0);
    put_int(w, "count", r->count, -1);
    if (r->name.len > 0) {
        put_string(w, "name", r->name);
    }
    put_int(w, "attach", (int64_t)r->attach_bytes, 0);
}

static void put_fields(json_w *w, const wire_request *r)
{
    switch (r->op) {
    case WIRE_GENERATE:
        put_prompt(w, r);
        put_reply_fields(w, r);
        break;
    case WIRE_CHAT:
        put_conversation(w, r);
        put_reply_fields(w, r);
        break;
    case WIRE_TOKENIZE:
        put_string(w, "text", r->segments[0].text);
        put_bool(w, "add_special", r->add_special, false);
        put_bool(w, "parse_special", r->parse_special, true);
        break;
    case WIRE_DETOKENIZE:
        put_ids(w, "ids", r->ids, r->n_ids);
        break;
    case WIRE_COUNT:
        if (!r->messages) {
            put_string(w, "text", r->segments[0].text);
            break;
        }
        put_conversation(w, r);
        put_namespace(w, r);
        put_now(w, r);
        break;
    case WIRE_RENDER:
        put_conversation(w, r);
        put_namespace(w, r);
        put_now(w, r);
        break;
    case WIRE_KV_LIMIT:
        json_w_key(w, "pages");
        json_w_u64(w, r->pages);
        break;
    default:
        if (request_session_action(r->op)) {
            put_session_fields(w, r);
        }
        break; /* of the others the id is all */
    }
}

status wire_request_put(buf *out, const wire_request *r)
{
    assert(r->op != WIRE_OPEN && r->op != WIRE_CLOSE && r->op != WIRE_RESET && r->cancel_request_id == 0);
    assert(r->id.data || r->op == WIRE_DRAIN || r->op == WIRE_SHUTDOWN);
    json_w w;
    size_t len = out->len;
    json_w_begin(&w, out);
    json_w_obj_open(&w);
    if (r->id.data) {
        put_string(&w, "id", r->id);
    }
    json_w_key(&w, "op");
    json_w_cstr(&w, request_op_name(r->op));
    put_fields(&w, r);
    json_w_obj_close(&w);
    status st = json_w_end(&w);
    if (st == ST_OK) {
        st = buf_append_char(out, '\n');
    }
    if (st != ST_OK) {
        buf_truncate(out, len);
    }
    return st;
}

status wire_request_put_deadline(buf *line, uint64_t ms)
{
    return line_add_u64(line, "deadline_ms", ms);
}

/* The text of the member takes the place of the line's last two bytes. */
status wire_request_put_resume(buf *line, const wire_resume *r)
{
    assert(line->len >= 3 && line->data[line->len - 2] == '}' && line->data[line->len - 1] == '\n');
    size_t len = line->len;
    json_w w;
    status st = buf_append_str(line, ",\"resume\":");
    if (st == ST_OK) {
        json_w_begin(&w, line);
        put_resume(&w, r);
        st = json_w_end(&w);
    }
    if (st == ST_OK) {
        st = buf_append_str(line, "}\n");
    }
    if (st == ST_OK) {
        memmove(line->data + len - 2, line->data + len, line->len - len);
    }
    buf_truncate(line, st == ST_OK ? line->len - 2 : len);
    return st;
}
