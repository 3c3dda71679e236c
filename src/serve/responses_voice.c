/*
 * responses_voice: how /v1/responses tells what its one choice says: an object, or events (responses.h).
 *
 * Items of the speech are the items of the output; the index of one in a stream is that in the speech. Items
 * [0, n_begun) have been told of, [0, n_ended) have had their done events or were withdrawn.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "serve/generation_int.h"
#include "serve/responses.h"

#define ID_BYTES 112

typedef struct run_told {
    uint64_t n_events;
    size_t n_begun, n_ended;
} run_told;

static void put_text(json_w *w, const char *key, const char *s, size_t len)
{
    json_w_key(w, key);
    json_w_str(w, s, len);
}

static void put_cstr(json_w *w, const char *key, const char *s)
{
    put_text(w, key, s, strlen(s));
}

static void put_u64(json_w *w, const char *key, uint64_t v)
{
    json_w_key(w, key);
    json_w_u64(w, v);
}

static void put_empty_list(json_w *w, const char *key)
{
    json_w_key(w, key);
    json_w_arr_open(w);
    json_w_arr_close(w);
}

static void item_id(const generation_run *r, size_t i, const speech_item *item, char id[ID_BYTES])
{
    static const char *const prefixes[] = {
        [SPEECH_TEXT] = "msg_", [SPEECH_THOUGHT] = "rs_", [SPEECH_CALL] = "fc_"};
    snprintf(id, ID_BYTES, "%s%s_%zu", prefixes[item->kind], r->head.id + strlen(r->head.shape->id_prefix),
             i);
}

static const char *part_type(const speech_item *item)
{
    return item->kind == SPEECH_TEXT ? "output_text" : "reasoning_text";
}

/* len 0 of a part that begins. */
static void put_part(json_w *w, const speech_item *item, size_t len)
{
    json_w_obj_open(w);
    put_cstr(w, "type", part_type(item));
    put_text(w, "text", buf_str(&item->text), len);
    if (item->kind == SPEECH_TEXT) {
        put_empty_list(w, "annotations");
        put_empty_list(w, "logprobs");
    }
    json_w_obj_close(w);
}

/* whole: with what it says. */
static void put_item(json_w *w, const generation_run *r, size_t i, bool whole, const char *state)
{
    const speech_item *item = speech_at(&r->choices[0].said, i);
    char id[ID_BYTES];
    item_id(r, i, item, id);
    json_w_obj_open(w);
    put_cstr(w, "id", id);
    if (item->kind == SPEECH_CALL) {
        put_cstr(w, "type", "function_call");
        put_cstr(w, "status", state);
        put_text(w, "arguments", buf_str(&item->text), whole ? item->text.len : 0);
        put_text(w, "call_id", buf_str(&item->id), item->id.len);
        put_text(w, "name", buf_str(&item->name), item->name.len);
    } else {
        bool is_text = item->kind == SPEECH_TEXT;
        put_cstr(w, "type", is_text ? "message" : "reasoning");
        put_cstr(w, "status", state);
        if (is_text) {
            put_cstr(w, "role", "assistant");
        } else {
            put_empty_list(w, "summary");
        }
        json_w_key(w, "content");
        json_w_arr_open(w);
        if (whole) {
            put_part(w, item, item->text.len);
        }
        json_w_arr_close(w);
    }
    json_w_obj_close(w);
}

static bool is_complete(const answer_result *result)
{
    return strcmp(result->reason, "stop") == 0 || strcmp(result->reason, "tool_calls") == 0;
}

/* The last item is what a cut has cut. */
static const char *item_state(const generation_run *r, size_t i)
{
    const run_choice *c = &r->choices[0];
    const speech_item *item = speech_at(&c->said, i);
    bool is_last = i + 1 == speech_len(&c->said);
    bool cut = item->kind == SPEECH_CALL ? !item->closed : is_last && !is_complete(&c->result);
    return cut ? "incomplete" : "completed";
}

static void put_output(json_w *w, const generation_run *r)
{
    const speech *said = &r->choices[0].said;
    json_w_key(w, "output");
    json_w_arr_open(w);
    for (size_t i = 0; i < speech_len(said); i++) {
        if (!speech_at(said, i)->withdrawn) {
            put_item(w, r, i, true, item_state(r, i));
        }
    }
    json_w_arr_close(w);
}

static void put_usage(json_w *w, const answer_result *result)
{
    json_w_key(w, "usage");
    json_w_obj_open(w);
    put_u64(w, "input_tokens", (uint64_t)result->prompt_tokens);
    json_w_key(w, "input_tokens_details");
    json_w_obj_open(w);
    put_u64(w, "cached_tokens", (uint64_t)result->cached_tokens);
    json_w_obj_close(w);
    put_u64(w, "output_tokens", (uint64_t)result->completion_tokens);
    json_w_key(w, "output_tokens_details");
    json_w_obj_open(w);
    put_u64(w, "reasoning_tokens", (uint64_t)result->reasoning_tokens);
    json_w_obj_close(w);
    put_u64(w, "total_tokens", (uint64_t)result->prompt_tokens + (uint64_t)result->completion_tokens);
    json_w_obj_close(w);
}

static void put_error(json_w *w, const api_fault *f)
{
    json_w_key(w, "error");
    if (!f) {
        json_w_null(w);
        return;
    }
    json_w_obj_open(w);
    put_cstr(w, "code", f->code);
    put_cstr(w, "message", f->message);
    json_w_obj_close(w);
}

/* ended: its result is known. f: why it failed, or NULL. */
static status put_response(json_w *w, const generation_run *r, bool ended, const api_fault *f)
{
    const answer_result *result = &r->choices[0].result;
    bool complete = ended && is_complete(result);
    json_w_obj_open(w);
    put_cstr(w, "id", r->head.id);
    put_cstr(w, "object", "response");
    put_u64(w, "created_at", (uint64_t)r->head.created_s);
    put_cstr(w, "status", f ? "failed" : complete ? "completed" : ended ? "incomplete" : "in_progress");
    put_error(w, f);
    json_w_key(w, "incomplete_details");
    if (ended && !complete) {
        json_w_obj_open(w);
        put_cstr(w, "reason", "max_output_tokens");
        json_w_obj_close(w);
    } else {
        json_w_null(w);
    }
    put_cstr(w, "model", r->head.model);
    json_w_key(w, "temperature");
    json_w_f64(w, r->temperature);
    json_w_key(w, "top_p");
    json_w_f64(w, r->top_p);
    if (ended || f) {
        put_output(w, r);
    } else {
        put_empty_list(w, "output");
    }
    if (ended) {
        put_usage(w, result);
        answer_put_own(w, result, 1);
    } else {
        json_w_key(w, "usage");
        json_w_null(w);
    }
    /* what it repeats is one object whose members belong here */
    status st = buf_append_char(w->out, ',');
    if (st == ST_OK) {
        st = buf_append(w->out, r->request.data + 1, r->request.len - 2);
    }
    json_w_obj_close(w);
    return st;
}

/*
 * Events
 */
typedef struct event_w {
    generation_run *r;
    json_w w;
} event_w;

static void begin_event(event_w *e, generation_run *r, const char *type)
{
    e->r = r;
    json_w_begin(&e->w, sse_named_object(&r->sse, type));
    json_w_obj_open(&e->w);
    put_cstr(&e->w, "type", type);
    put_u64(&e->w, "sequence_number", r->told->n_events++);
}

static void end_event(event_w *e, status st)
{
    json_w_obj_close(&e->w);
    status written = json_w_end(&e->w);
    sse_send(&e->r->sse, st == ST_OK ? written : st);
    if (e->r->sse.failed) {
        run_no_memory(e->r);
    }
}

static void tell_response(generation_run *r, const char *type, bool ended, const api_fault *f)
{
    event_w e;
    begin_event(&e, r, type);
    json_w_key(&e.w, "response");
    end_event(&e, put_response(&e.w, r, ended, f));
}

static void tell_item(generation_run *r, const char *type, size_t i, bool whole, const char *state)
{
    event_w e;
    begin_event(&e, r, type);
    put_u64(&e.w, "output_index", i);
    json_w_key(&e.w, "item");
    put_item(&e.w, r, i, whole, state);
    end_event(&e, ST_OK);
}

/* Of the one part of an item: where it is. */
static void begin_part_event(event_w *e, generation_run *r, const char *type, size_t i)
{
    const speech_item *item = speech_at(&r->choices[0].said, i);
    char id[ID_BYTES];
    item_id(r, i, item, id);
    begin_event(e, r, type);
    put_cstr(&e->w, "item_id", id);
    put_u64(&e->w, "output_index", i);
    if (item->kind != SPEECH_CALL) {
        put_u64(&e->w, "content_index", 0);
    }
}

static void tell_part(generation_run *r, const char *type, size_t i, bool whole)
{
    event_w e;
    const speech_item *item = speech_at(&r->choices[0].said, i);
    begin_part_event(&e, r, type, i);
    json_w_key(&e.w, "part");
    put_part(&e.w, item, whole ? item->text.len : 0);
    end_event(&e, ST_OK);
}

static void tell_text(generation_run *r, const char *type, size_t i, const char *key, const char *text,
                      size_t len)
{
    event_w e;
    const speech_item *item = speech_at(&r->choices[0].said, i);
    begin_part_event(&e, r, type, i);
    put_text(&e.w, key, text, len);
    if (item->kind == SPEECH_TEXT) {
        put_empty_list(&e.w, "logprobs");
    } else if (item->kind == SPEECH_CALL && strcmp(key, "arguments") == 0) {
        put_text(&e.w, "name", buf_str(&item->name), item->name.len);
    }
    end_event(&e, ST_OK);
}

static void begin_item(generation_run *r, size_t i)
{
    r->told->n_begun = i + 1;
    tell_item(r, "response.output_item.added", i, false, "in_progress");
    if (speech_at(&r->choices[0].said, i)->kind != SPEECH_CALL) {
        tell_part(r, "response.content_part.added", i, false);
    }
}

/* Names of the two events that carry the text of an item. */
static const char *text_event(const speech_item *item, bool done)
{
    static const char *const names[][2] = {
        [SPEECH_TEXT] = {"response.output_text.delta", "response.output_text.done"},
        [SPEECH_THOUGHT] = {"response.reasoning_text.delta", "response.reasoning_text.done"},
        [SPEECH_CALL] = {"response.function_call_arguments.delta", "response.function_call_arguments.done"}};
    return names[item->kind][done];
}

/* All that have begun. Of a call that was withdrawn nothing more is told; one that the end of the response has cut is
 * done as it is, but its arguments never are: who waits for those may call what they say. */
static void end_items(generation_run *r)
{
    const speech *said = &r->choices[0].said;
    for (; r->told->n_ended < r->told->n_begun; r->told->n_ended++) {
        size_t i = r->told->n_ended;
        const speech_item *item = speech_at(said, i);
        bool is_call = item->kind == SPEECH_CALL;
        if (is_call && item->withdrawn) {
            continue;
        }
        if (!is_call || item->closed) {
            tell_text(r, text_event(item, true), i, is_call ? "arguments" : "text", buf_str(&item->text),
                      item->text.len);
        }
        if (!is_call) {
            tell_part(r, "response.content_part.done", i, true);
        }
        tell_item(r, "response.output_item.done", i, true, item_state(r, i));
    }
}

static void tell_start(generation_run *r)
{
    if (!r->told) {
        r->told = mem_calloc(1, sizeof *r->told);
        if (!r->told) {
            run_no_memory(r);
            return;
        }
        tell_response(r, "response.created", false, NULL);
        tell_response(r, "response.in_progress", false, NULL);
    }
}

static void tell_accepted(run_choice *c)
{
    c->began = true;
    tell_start(c->run);
}

static void tell_piece(run_choice *c, const frame *f, size_t item)
{
    generation_run *r = c->run;
    if (item == SIZE_MAX || !r->told) {
        return;
    }
    const speech_item *s = speech_at(&c->said, item);
    bool is_call = s->kind == SPEECH_CALL;
    if (item >= r->told->n_begun) {
        if (!is_call || (item > 0 && speech_at(&c->said, item - 1)->kind != SPEECH_CALL)) {
            end_items(r);
        }
        begin_item(r, item);
    }
    const char *text = is_call ? f->call.arguments.data : f->text;
    size_t len = is_call ? f->call.arguments.len : f->text_len;
    if (len > 0) {
        tell_text(r, text_event(s, false), item, "delta", text, len);
    }
}

static void tell_ended(run_choice *c)
{
    tell_start(c->run); /* one that was cut before it was accepted */
    if (c->run->told) {
        end_items(c->run);
    }
}

static void tell_end(generation_run *r)
{
    if (r->told) {
        bool complete = is_complete(&r->choices[0].result);
        tell_response(r, complete ? "response.completed" : "response.incomplete", true, NULL);
    }
}

/* Before anything was told: OpenAI's event `error`. */
static void tell_fault(generation_run *r, const api_fault *f)
{
    if (r->told) {
        tell_response(r, "response.failed", false, f);
        return;
    }
    json_w w;
    json_w_begin(&w, sse_named_object(&r->sse, "error"));
    json_w_obj_open(&w);
    put_cstr(&w, "type", "error");
    put_cstr(&w, "code", f->code);
    put_cstr(&w, "message", f->message);
    json_w_key(&w, "param");
    if (f->param[0] != '\0') {
        json_w_cstr(&w, f->param);
    } else {
        json_w_null(&w);
    }
    put_u64(&w, "sequence_number", 0);
    json_w_obj_close(&w);
    sse_send(&r->sse, json_w_end(&w));
}

static status tell_whole(generation_run *r, buf *out)
{
    json_w w;
    json_w_begin(&w, out);
    status st = put_response(&w, r, true, NULL);
    status written = json_w_end(&w);
    return st == ST_OK ? written : st;
}

const answer_shape responses_shape = {.id_prefix = "resp_", .object = "response", .is_chat = true};

const run_voice run_responses = {.keeps = true,
                                 .accepted = tell_accepted,
                                 .piece = tell_piece,
                                 .ended = tell_ended,
                                 .end = tell_end,
                                 .fault = tell_fault,
                                 .whole = tell_whole};
