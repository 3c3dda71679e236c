#include "serve/chat_talk.h"

#include <stdio.h>
#include <string.h>

#include "serve/chat_messages.h"
#include "serve/chat_tools.h"
#include "serve/fields.h"

bool chat_talk_effort(wire_request *r, const char *path, const json *v, err *e)
{
    static const char *const efforts[] = {"minimal", "low", "medium", "high"};
    if (!v) {
        return true;
    }
    if (fields_is(v, "none")) {
        r->reasoning_enabled = WIRE_OFF;
        return true;
    }
    for (size_t i = 0; i < sizeof efforts / sizeof efforts[0]; i++) {
        if (fields_is(v, efforts[i])) {
            r->reasoning_effort = efforts[i];
            return true;
        }
    }
    return fields_refuse(e, path, v, "none, minimal, low, medium or high");
}

static bool read_budget(const json *root, wire_request *r, err *e)
{
    static const char *const names[] = {"reasoning_budget", "thinking_budget", "thinking_budget_tokens",
                                        "thinking_token_budget"};
    int64_t budget = -1;
    const char *said = NULL;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        int64_t n = -1;
        if (!fields_int(root, names[i], -1, INT64_MAX, "an integer of at least -1", &n, e)) {
            return false;
        }
        if (!fields_get(root, names[i])) {
            continue;
        }
        if (said && n != budget) {
            err_set(e, ST_INVALID_FIELD, names[i], "%s and %s differ: %lld and %lld", said, names[i],
                    (long long)budget, (long long)n);
            return false;
        }
        said = names[i];
        budget = n;
    }
    r->reasoning_budget = budget < INT32_MAX ? (int32_t)budget : INT32_MAX;
    return true;
}

/* Whether it thinks may be said by three names. */
static bool read_thinking(const json *root, wire_request *r, err *e)
{
    bool on = false, also = false;
    const json *kwargs = fields_get(root, "chat_template_kwargs");
    if (kwargs && json_kind(kwargs) != JSON_OBJECT) {
        return fields_refuse(e, "chat_template_kwargs", kwargs, "an object");
    }
    if (!chat_talk_effort(r, "reasoning_effort", fields_get(root, "reasoning_effort"), e) ||
        !fields_bool(root, "enable_thinking", &on, e) ||
        !fields_bool(kwargs, "chat_template_kwargs.enable_thinking", &also, e)) {
        return false;
    }
    bool said = fields_get(root, "enable_thinking") != NULL;
    bool said_also = fields_get(kwargs, "enable_thinking") != NULL;
    if (said && said_also && on != also) {
        err_set(e, ST_INVALID_FIELD, "enable_thinking",
                "enable_thinking and chat_template_kwargs.enable_thinking differ");
        return false;
    }
    if (said || said_also) {
        on = said ? on : also;
        if (on && r->reasoning_enabled == WIRE_OFF) {
            err_set(e, ST_INVALID_FIELD, "reasoning_effort",
                    "reasoning_effort is none, but enable_thinking is true");
            return false;
        }
        r->reasoning_enabled = on ? WIRE_ON : WIRE_OFF;
    }
    return read_budget(root, r, e);
}

static bool read_start(const json *root, wire_request *r, bool ends_with_assistant, err *e)
{
    bool add = true;
    if (!fields_bool(root, "continue_final_message", &r->continue_final_message, e) ||
        !fields_bool(root, "add_generation_prompt", &add, e)) {
        return false;
    }
    if (r->continue_final_message && !ends_with_assistant) {
        err_set(e, ST_INVALID_FIELD, "continue_final_message",
                "continue_final_message needs a last message of the assistant");
        return false;
    }
    if (r->continue_final_message && add && fields_get(root, "add_generation_prompt")) {
        err_set(e, ST_INVALID_FIELD, "add_generation_prompt",
                "add_generation_prompt and continue_final_message cannot both be true");
        return false;
    }
    if (!add && !r->continue_final_message) {
        err_set(e, ST_UNSUPPORTED, "add_generation_prompt",
                "add_generation_prompt false is supported only beside continue_final_message true");
        return false;
    }
    return true;
}

bool chat_talk_adopt(wire_request *r, const buf *text, json_doc **doc, err *e)
{
    err fault;
    /* the text is ours: arguments and schemas of the body, two or three levels deeper than there */
    status st = json_parse(buf_str(text), text->len, JSON_MAX_DEPTH, doc, &fault);
    if (st != ST_OK) {
        err_set(e, st == ST_NOMEM ? ST_NOMEM : ST_INTERNAL, NULL, "conversation: %s", fault.msg);
        return false;
    }
    const json *root = json_root(*doc);
    r->messages = fields_get(root, "messages");
    r->tools = fields_get(root, "tools");
    r->template_kwargs = fields_get(root, "template_kwargs");
    return true;
}

static bool put_talk(const json *root, buf *text, bool *ends_with_assistant, err *e)
{
    buf tools = {0};
    json_w w;
    const json *kwargs = fields_get(root, "chat_template_kwargs");
    bool ok = (buf_append_str(text, "{\"messages\":") == ST_OK || fields_no_memory(e)) &&
              chat_messages_read(fields_get(root, "messages"), text, ends_with_assistant, e) &&
              chat_tools_read(fields_get(root, "tools"), false, &tools, e);
    status st = ST_OK;
    if (ok && tools.len > 0) {
        st = buf_printf(text, ",\"tools\":%s", buf_str(&tools));
    }
    if (ok && st == ST_OK && kwargs && json_len(kwargs) > 0) {
        st = buf_append_str(text, ",\"template_kwargs\":");
        json_w_begin(&w, text);
        json_w_json(&w, kwargs);
        st = st == ST_OK ? json_w_end(&w) : st;
    }
    if (ok && st == ST_OK) {
        st = buf_append_char(text, '}');
    }
    buf_release(&tools);
    return ok && (st == ST_OK || fields_no_memory(e));
}

bool chat_talk_read(const json *root, wire_request *r, json_doc **doc, err *e)
{
    buf text = {0};
    bool ends_with_assistant = false;
    bool ok = put_talk(root, &text, &ends_with_assistant, e) &&
              chat_choice_read(fields_get(root, "tool_choice"), fields_get(root, "tools"), false,
                               &r->tool_choice, &r->tool_name, e) &&
              fields_bool(root, "parallel_tool_calls", &r->parallel_tool_calls, e) &&
              read_thinking(root, r, e) && read_start(root, r, ends_with_assistant, e) &&
              chat_talk_adopt(r, &text, doc, e);
    buf_release(&text);
    return ok;
}
