#include "serve/responses.h"

#include <string.h>

#include "serve/chat.h"
#include "serve/chat_talk.h"
#include "serve/chat_tools.h"
#include "serve/fields.h"

static const char *const names[] = {
    CHAT_IDLE_FIELDS,
    "model",
    "input",
    "instructions",
    "max_output_tokens",
    "tools",
    "tool_choice",
    "reasoning",
    "parallel_tool_calls",
    "temperature",
    "top_p",
    "stream",
    "background",
    "truncation",
    "text",
    "include",
    "user",
    "seed",
    "top_k",
    "min_p",
    "priority",
    "repetition_guard",
    "stop",
    "hearth",
    "top_logprobs",
    "stream_options",
    "session_id",
};

static bool unsupported(err *e, const char *name, const char *why)
{
    err_set(e, ST_UNSUPPORTED, name, "%s is not supported: %s", name, why);
    return false;
}

/* What OpenAI has and a server without memory has not: told apart from names that nobody knows. */
static bool refuse_state(const json *root, err *e)
{
    static const char *const state[] = {"previous_response_id", "conversation", "prompt"};
    for (size_t i = 0; i < sizeof state / sizeof state[0]; i++) {
        if (fields_get(root, state[i])) {
            return unsupported(e, state[i], "responses are not kept, send the whole conversation as input");
        }
    }
    return true;
}

static bool read_reasoning(const json *root, wire_request *r, err *e)
{
    static const char *const members[] = {"effort"};
    const json *v = fields_get(root, "reasoning");
    if (v && json_kind(v) != JSON_OBJECT) {
        return fields_refuse(e, "reasoning", v, "an object");
    }
    return !v || (fields_only(v, members, 1, "reasoning.", e) &&
                  chat_talk_effort(r, "reasoning.effort", fields_get(v, "effort"), e));
}

static bool read_text_format(const json *root, err *e)
{
    static const char *const members[] = {"format", "verbosity"};
    static const char *const format_members[] = {"type"};
    const json *v = fields_get(root, "text");
    if (!v) {
        return true;
    }
    if (json_kind(v) != JSON_OBJECT) {
        return fields_refuse(e, "text", v, "an object");
    }
    if (!fields_only(v, members, 2, "text.", e)) {
        return false;
    }
    const json *format = fields_get(v, "format"), *verbosity = fields_get(v, "verbosity");
    if (format && json_kind(format) != JSON_OBJECT) {
        return fields_refuse(e, "text.format", format, "an object with a type");
    }
    if (format && !fields_is(fields_get(format, "type"), "text")) {
        return unsupported(e, "text.format", "only text is");
    }
    if (verbosity && !fields_is(verbosity, "medium")) {
        return unsupported(e, "text.verbosity", "only medium is");
    }
    return !format || fields_only(format, format_members, 1, "text.format.", e);
}

static bool read_idle(const json *root, err *e)
{
    static const char *const options[] = {"include_obfuscation"};
    bool background = false;
    int64_t top_logprobs = 0;
    const json *include = fields_get(root, "include"), *truncation = fields_get(root, "truncation");
    const json *stream_options = fields_get(root, "stream_options");
    if (!fields_bool(root, "background", &background, e) ||
        !fields_int(root, "top_logprobs", 0, INT64_MAX, "an integer of at least 0", &top_logprobs, e)) {
        return false;
    }
    if (background) {
        return unsupported(e, "background", "responses are not kept");
    }
    if (top_logprobs > 0) {
        return unsupported(e, "top_logprobs", "/v1/chat/completions has them");
    }
    if (include && json_kind(include) != JSON_ARRAY) {
        return fields_refuse(e, "include", include, "a list");
    }
    if (json_len(include) > 0) {
        return unsupported(e, "include", "there is nothing to be included");
    }
    if (truncation && !fields_is(truncation, "disabled")) {
        return unsupported(e, "truncation", "only disabled is");
    }
    return chat_read_idle(root, e) && read_text_format(root, e) &&
           (!stream_options || fields_only(stream_options, options, 1, "stream_options.", e));
}

static bool read_max_tokens(generation *g, const json *root, err *e)
{
    int64_t n = -1;
    if (!fields_int(root, "max_output_tokens", 1, INT64_MAX, "an integer of at least 1", &n, e)) {
        return false;
    }
    g->common.max_new_tokens = n < INT32_MAX ? (int32_t)n : INT32_MAX;
    return true;
}

static bool read_talk(generation *g, const json *root, err *e)
{
    buf text = {0}, tools = {0};
    wire_request *r = &g->common;
    status st = buf_append_str(&text, "{\"messages\":");
    bool ok = (st == ST_OK || fields_no_memory(e)) && responses_input_read(root, &text, e) &&
              chat_tools_read(fields_get(root, "tools"), true, &tools, e) &&
              chat_choice_read(fields_get(root, "tool_choice"), fields_get(root, "tools"), true,
                               &r->tool_choice, &r->tool_name, e) &&
              fields_bool(root, "parallel_tool_calls", &r->parallel_tool_calls, e) &&
              read_reasoning(root, r, e);
    if (ok) {
        st = tools.len > 0 ? buf_printf(&text, ",\"tools\":%s}", buf_str(&tools))
                           : buf_append_char(&text, '}');
        ok = (st == ST_OK || fields_no_memory(e)) && chat_talk_adopt(r, &text, &g->talk, e);
    }
    buf_release(&text);
    buf_release(&tools);
    return ok;
}

static void put_member(json_w *w, const json *root, const char *name)
{
    json_w_key(w, name);
    json_w_json(w, fields_get(root, name));
}

/* As far as an answer has it: the members after "model". */
static status put_request(const generation *g, const json *root, bool with_long, buf *out)
{
    json_w w;
    const json *tools = with_long ? fields_get(root, "tools") : NULL;
    const json *choice = fields_get(root, "tool_choice"), *metadata = fields_get(root, "metadata");
    json_w_begin(&w, out);
    json_w_obj_open(&w);
    json_w_key(&w, "background");
    json_w_bool(&w, false);
    json_w_key(&w, "instructions");
    json_w_json(&w, with_long ? fields_get(root, "instructions") : NULL);
    put_member(&w, root, "max_output_tokens");
    json_w_key(&w, "metadata");
    if (metadata && with_long) {
        json_w_json(&w, metadata);
    } else {
        json_w_obj_open(&w);
        json_w_obj_close(&w);
    }
    json_w_key(&w, "parallel_tool_calls");
    json_w_bool(&w, g->common.parallel_tool_calls);
    json_w_key(&w, "previous_response_id");
    json_w_null(&w);
    json_w_key(&w, "reasoning");
    json_w_obj_open(&w);
    json_w_key(&w, "effort");
    json_w_json(&w, fields_get(fields_get(root, "reasoning"), "effort"));
    json_w_key(&w, "summary");
    json_w_null(&w);
    json_w_obj_close(&w);
    json_w_key(&w, "service_tier");
    json_w_cstr(&w, "default");
    json_w_key(&w, "store");
    json_w_bool(&w, false);
    json_w_key(&w, "text");
    json_w_obj_open(&w);
    json_w_key(&w, "format");
    json_w_obj_open(&w);
    json_w_key(&w, "type");
    json_w_cstr(&w, "text");
    json_w_obj_close(&w);
    json_w_obj_close(&w);
    json_w_key(&w, "tool_choice");
    if (choice) {
        json_w_json(&w, choice);
    } else {
        json_w_cstr(&w, "auto");
    }
    json_w_key(&w, "tools");
    if (tools) {
        json_w_json(&w, tools);
    } else {
        json_w_arr_open(&w);
        json_w_arr_close(&w);
    }
    json_w_key(&w, "truncation");
    json_w_cstr(&w, "disabled");
    json_w_obj_close(&w);
    return json_w_end(&w);
}

static bool keep_request(generation *g, const json *root, size_t body_len, err *e)
{
    bool with_long = body_len <= RESPONSES_MAX_REPEATED;
    status st = put_request(g, root, with_long, &g->request);
    if (st == ST_OK && g->request.len > RESPONSES_MAX_REPEATED) {
        buf_reset(&g->request);
        st = put_request(g, root, false, &g->request);
    }
    return st == ST_OK || fields_no_memory(e);
}

status responses_read(const char *body, size_t len, uint64_t drawn_seed, generation *out, err *e)
{
    err fault;
    generation g;
    err_clear(&fault);
    status st = generation_begin(&g, WIRE_CHAT, body, len, drawn_seed, &fault);
    if (st == ST_OK) {
        const json *root = json_root(g.doc);
        g.n_prompts = 1;
        if (refuse_state(root, &fault) &&
            fields_only(root, names, sizeof names / sizeof names[0], "", &fault) &&
            read_talk(&g, root, &fault) && read_idle(root, &fault) && generation_read_shared(&g, &fault) &&
            read_max_tokens(&g, root, &fault) && keep_request(&g, root, len, &fault)) {
            *out = g;
            return ST_OK;
        }
        generation_release(&g);
    }
    if (e) {
        *e = fault;
    }
    return fault.code;
}
