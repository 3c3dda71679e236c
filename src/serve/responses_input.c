#include <stdio.h>
#include <string.h>

#include "serve/chat_messages.h"
#include "serve/fields.h"
#include "serve/responses.h"

#define PATH_BYTES 96

typedef struct input_reader {
    json_w w;
    err *e;
    char at[PATH_BYTES]; /* "input[3].call_id" */
    char prefix[32];     /* "input[3]." */

    /* what the assistant has said since somebody else spoke; owned */
    buf reasoning, content, calls; /* calls: objects with commas between them */
    bool has_reasoning, has_content;
} input_reader;

static const char *path_of(input_reader *r, const char *member)
{
    snprintf(r->at, sizeof r->at, "%s%s", r->prefix, member);
    return r->at;
}

static void put_text(json_w *w, const char *key, const char *s, size_t len)
{
    json_w_key(w, key);
    json_w_str(w, s, len);
}

/* Ends the message of the assistant, if one has begun. */
static bool end_turn(input_reader *r)
{
    status st = ST_OK;
    if (!r->has_reasoning && !r->has_content && r->calls.len == 0) {
        return true;
    }
    json_w_obj_open(&r->w);
    put_text(&r->w, "role", "assistant", strlen("assistant"));
    json_w_key(&r->w, "content");
    if (r->has_content || r->calls.len == 0) {
        json_w_str(&r->w, buf_str(&r->content), r->content.len);
    } else {
        json_w_null(&r->w);
    }
    if (r->has_reasoning) {
        put_text(&r->w, "reasoning_content", buf_str(&r->reasoning), r->reasoning.len);
    }
    if (r->calls.len > 0) { /* it is JSON already */
        json_w_key(&r->w, "tool_calls");
        json_w_arr_open(&r->w);
        st = buf_append(r->w.out, buf_str(&r->calls), r->calls.len);
        json_w_arr_close(&r->w);
    }
    json_w_obj_close(&r->w);
    buf_reset(&r->reasoning);
    buf_reset(&r->content);
    buf_reset(&r->calls);
    r->has_reasoning = r->has_content = false;
    return st == ST_OK || fields_no_memory(r->e);
}

static bool is_type(const json *type, const char *const *types)
{
    for (; *types; types++) {
        if (fields_is(type, *types)) {
            return true;
        }
    }
    return false;
}

/* A string, or a list of parts of these types; appended to out. */
static bool read_text(input_reader *r, const json *v, const char *member, const char *const *types, buf *out)
{
    static const char *const names[] = {"type", "text", "annotations", "logprobs"};
    char prefix[sizeof r->prefix + 48];
    size_t len;
    const char *s = json_string(v, &len);
    if (s) {
        return buf_append(out, s, len) == ST_OK || fields_no_memory(r->e);
    }
    if (json_kind(v) != JSON_ARRAY) {
        return fields_refuse(r->e, path_of(r, member), v, "a string or a list of text parts");
    }
    for (size_t i = 0; i < json_len(v); i++) {
        const json *part = json_at(v, i);
        const char *type =
            json_kind(part) == JSON_OBJECT ? json_string(fields_get(part, "type"), &len) : NULL;
        if (!type) {
            return fields_refuse(r->e, path_of(r, member), part, "a string or a list of text parts");
        }
        if (!is_type(fields_get(part, "type"), types)) {
            err_set(r->e, ST_UNSUPPORTED, path_of(r, member),
                    "%s has a part of type %.32s: only text is supported", path_of(r, member), type);
            return false;
        }
        snprintf(prefix, sizeof prefix, "%s%s[%zu].", r->prefix, member, i);
        if (!fields_only(part, names, sizeof names / sizeof names[0], prefix, r->e)) {
            return false;
        }
        s = json_string(fields_get(part, "text"), &len);
        if (!s) {
            return fields_refuse(r->e, path_of(r, member), fields_get(part, "text"), "text");
        }
        if (buf_append(out, s, len) != ST_OK) {
            return fields_no_memory(r->e);
        }
    }
    return true;
}

static bool read_message(input_reader *r, const json *v)
{
    static const char *const names[] = {"type", "role", "content", "id", "status", "phase"};
    static const char *const types[] = {"input_text", "output_text", "text", NULL};
    static const char *const roles[] = {"user", "system", "developer", "assistant"};
    size_t k = 0;
    const json *role = fields_get(v, "role");
    if (!fields_only(v, names, sizeof names / sizeof names[0], r->prefix, r->e)) {
        return false;
    }
    while (k < 4 && !fields_is(role, roles[k])) {
        k++;
    }
    if (k == 4) {
        return fields_refuse(r->e, path_of(r, "role"), role, "user, system, developer or assistant");
    }
    if (k == 3) {
        if ((r->has_content || r->calls.len > 0) && !end_turn(r)) {
            return false;
        }
        r->has_content = true;
        return read_text(r, fields_get(v, "content"), "content", types, &r->content);
    }
    buf text = {0};
    bool ok = end_turn(r) && read_text(r, fields_get(v, "content"), "content", types, &text);
    if (ok) {
        const char *name = k == 0 ? "user" : "system";
        json_w_obj_open(&r->w);
        put_text(&r->w, "role", name, strlen(name));
        put_text(&r->w, "content", buf_str(&text), text.len);
        json_w_obj_close(&r->w);
    }
    buf_release(&text);
    return ok;
}

static const char *needed(input_reader *r, const json *v, const char *member, size_t *len)
{
    const char *s = json_string(fields_get(v, member), len);
    if (!s || *len == 0) {
        fields_refuse(r->e, path_of(r, member), fields_get(v, member), "a string that is not empty");
        return NULL;
    }
    return s;
}

static bool read_call(input_reader *r, const json *v)
{
    static const char *const names[] = {"type", "call_id", "name", "arguments", "id", "status"};
    size_t id_len, name_len, len = 0;
    const char *arguments = "";
    if (!fields_only(v, names, sizeof names / sizeof names[0], r->prefix, r->e)) {
        return false;
    }
    const char *id = needed(r, v, "call_id", &id_len);
    const char *name = id ? needed(r, v, "name", &name_len) : NULL;
    if (!name || !fields_text(v, path_of(r, "arguments"), &arguments, &len, r->e)) {
        return false;
    }
    json_w w;
    status st = r->calls.len > 0 ? buf_append_char(&r->calls, ',') : ST_OK;
    json_w_begin(&w, &r->calls);
    json_w_obj_open(&w);
    put_text(&w, "id", id, id_len);
    put_text(&w, "type", "function", strlen("function"));
    json_w_key(&w, "function");
    json_w_obj_open(&w);
    put_text(&w, "name", name, name_len);
    put_text(&w, "arguments", arguments, len);
    json_w_obj_close(&w);
    json_w_obj_close(&w);
    return (json_w_end(&w) == ST_OK && st == ST_OK) || fields_no_memory(r->e);
}

static bool read_output(input_reader *r, const json *v)
{
    static const char *const names[] = {"type", "call_id", "output", "id", "status"};
    static const char *const types[] = {"input_text", "text", NULL};
    size_t id_len;
    buf text = {0};
    if (!fields_only(v, names, sizeof names / sizeof names[0], r->prefix, r->e) || !end_turn(r)) {
        return false;
    }
    const char *id = needed(r, v, "call_id", &id_len);
    bool ok = id && read_text(r, fields_get(v, "output"), "output", types, &text);
    if (ok) {
        json_w_obj_open(&r->w);
        put_text(&r->w, "role", "tool", strlen("tool"));
        put_text(&r->w, "tool_call_id", id, id_len);
        put_text(&r->w, "content", buf_str(&text), text.len);
        json_w_obj_close(&r->w);
    }
    buf_release(&text);
    return ok;
}

static bool read_reasoning(input_reader *r, const json *v)
{
    static const char *const names[] = {"type", "id", "summary", "content", "status"};
    static const char *const types[] = {"reasoning_text", "summary_text", NULL};
    const json *content = fields_get(v, "content"), *summary = fields_get(v, "summary");
    if (!fields_only(v, names, sizeof names / sizeof names[0], r->prefix, r->e)) {
        return false;
    }
    if ((r->has_content || r->calls.len > 0) && !end_turn(r)) {
        return false;
    }
    r->has_reasoning = true;
    if (json_len(content) > 0) {
        return read_text(r, content, "content", types, &r->reasoning);
    }
    return !summary || read_text(r, summary, "summary", types, &r->reasoning);
}

static bool read_item(input_reader *r, const json *v, size_t i)
{
    static const struct {
        const char *type;
        bool (*read)(input_reader *r, const json *v);
    } rows[] = {{"message", read_message},
                {"function_call", read_call},
                {"function_call_output", read_output},
                {"reasoning", read_reasoning}};
    size_t len;
    snprintf(r->at, sizeof r->at, "input[%zu]", i);
    snprintf(r->prefix, sizeof r->prefix, "input[%zu].", i);
    if (json_kind(v) != JSON_OBJECT) {
        return fields_refuse(r->e, r->at, v, "an object");
    }
    const json *type = fields_get(v, "type");
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        if (type ? fields_is(type, rows[k].type) : rows[k].read == read_message) {
            return rows[k].read(r, v);
        }
    }
    const char *s = json_string(type, &len);
    if (!s) {
        return fields_refuse(r->e, path_of(r, "type"), type, "a string");
    }
    err_set(r->e, ST_UNSUPPORTED, path_of(r, "type"), "%s %.32s is not supported", r->at, s);
    return false;
}

static bool read_input(input_reader *r, const json *root)
{
    size_t len;
    const json *input = fields_get(root, "input");
    const char *text = json_string(input, &len);
    if (text) {
        json_w_obj_open(&r->w);
        put_text(&r->w, "role", "user", strlen("user"));
        put_text(&r->w, "content", text, len);
        json_w_obj_close(&r->w);
        return true;
    }
    size_t n = json_len(input);
    if (json_kind(input) != JSON_ARRAY || n == 0 || n > CHAT_MAX_MESSAGES) {
        return fields_refuse(r->e, "input", input, "a string or a list of 1 to 4096 items");
    }
    for (size_t i = 0; i < n; i++) {
        if (!read_item(r, json_at(input, i), i)) {
            return false;
        }
    }
    return end_turn(r);
}

bool responses_input_read(const json *root, buf *out, err *e)
{
    input_reader r = {.e = e};
    const char *instructions = NULL;
    size_t len = 0;
    if (!fields_text(root, "instructions", &instructions, &len, e)) {
        return false;
    }
    json_w_begin(&r.w, out);
    json_w_arr_open(&r.w);
    if (instructions) {
        json_w_obj_open(&r.w);
        put_text(&r.w, "role", "system", strlen("system"));
        put_text(&r.w, "content", instructions, len);
        json_w_obj_close(&r.w);
    }
    bool ok = read_input(&r, root);
    if (ok) {
        json_w_arr_close(&r.w);
        ok = json_w_end(&r.w) == ST_OK || fields_no_memory(e);
    }
    buf_release(&r.reasoning);
    buf_release(&r.content);
    buf_release(&r.calls);
    return ok;
}
