#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "wire/request_int.h"

#define FIELD_BYTES 128 /* of a name with indices in it */

typedef struct field_name {
    char s[FIELD_BYTES];
} field_name;

__attribute__((format(printf, 1, 2))) static field_name name_of(const char *fmt, ...)
{
    field_name f;
    va_list args;
    va_start(args, fmt);
    vsnprintf(f.s, sizeof f.s, fmt, args);
    va_end(args);
    return f;
}

/* A string of 1 … WIRE_MAX_NAME_BYTES bytes. */
static bool is_name(const json *v)
{
    size_t len;
    return json_string(v, &len) && len > 0 && len <= WIRE_MAX_NAME_BYTES;
}

static bool check_name(request_decoder *d, const char *field, const json *v)
{
    return is_name(v) || request_refuse(d, field, v, "a string of 1 to 256 bytes");
}

/* A member that is a string, null or absent. */
static bool check_optional(request_decoder *d, const char *path, const json *o, const char *key)
{
    const json *v = NULL;
    if (!json_get(o, key, &v) || !v || json_kind(v) == JSON_STRING) {
        return true;
    }
    return request_refuse(d, name_of("%s.%s", path, key).s, v, "a string or null");
}

/*
 * Content
 */
static bool check_part(request_decoder *d, const char *field, const json *part)
{
    const json *type = NULL, *text = NULL;
    size_t len;
    if (json_kind(part) != JSON_OBJECT) {
        return request_refuse(d, field, part, "an object with type and text");
    }
    json_get(part, "type", &type);
    json_get(part, "text", &text);
    const char *t = json_string(type, &len);
    if (!t) {
        return request_refuse(d, name_of("%s.type", field).s, type, "text");
    }
    if (len != 4 || memcmp(t, "text", 4) != 0) {
        field_name f = name_of("%s.type", field);
        err_set(&d->e, ST_UNSUPPORTED, f.s, "%s: a part of type %.32s is not supported by this build", f.s,
                t);
        return false;
    }
    return json_kind(text) == JSON_STRING || request_refuse(d, name_of("%s.text", field).s, text, "a string");
}

static bool check_content(request_decoder *d, const char *path, const json *message)
{
    const json *v = NULL;
    field_name field = name_of("%s.content", path);
    if (!json_get(message, "content", &v) || !v || json_kind(v) == JSON_STRING) {
        return true;
    }
    if (json_kind(v) != JSON_ARRAY) {
        return request_refuse(d, field.s, v, "a string, null or a list of parts");
    }
    for (size_t i = 0; i < json_len(v); i++) {
        if (!check_part(d, name_of("%s[%zu]", field.s, i).s, json_at(v, i))) {
            return false;
        }
    }
    return true;
}

/*
 * Calls
 */
static bool check_call(request_decoder *d, const char *field, const json *call)
{
    const json *function = NULL, *name = NULL, *arguments = NULL, *type = NULL;
    size_t len;
    if (json_kind(call) != JSON_OBJECT) {
        return request_refuse(d, field, call, "an object");
    }
    if (json_get(call, "type", &type) && type) {
        const char *t = json_string(type, &len);
        if (!t || strcmp(t, "function") != 0) {
            return request_refuse(d, name_of("%s.type", field).s, type, "function");
        }
    }
    json_get(call, "function", &function);
    if (json_kind(function) != JSON_OBJECT) {
        return request_refuse(d, name_of("%s.function", field).s, function,
                              "an object with name and arguments");
    }
    json_get(function, "name", &name);
    json_get(function, "arguments", &arguments);
    json_type kind = json_kind(arguments);
    if (kind != JSON_NULL && kind != JSON_STRING && kind != JSON_OBJECT) {
        return request_refuse(d, name_of("%s.function.arguments", field).s, arguments,
                              "an object or a string");
    }
    return check_name(d, name_of("%s.function.name", field).s, name) && check_optional(d, field, call, "id");
}

static bool check_calls(request_decoder *d, const char *path, const json *message)
{
    const json *v = NULL;
    field_name field = name_of("%s.tool_calls", path);
    if (!json_get(message, "tool_calls", &v) || !v) {
        return true;
    }
    if (json_kind(v) != JSON_ARRAY || json_len(v) > WIRE_MAX_CALLS) {
        return request_refuse(d, field.s, v, "a list of at most 256 calls");
    }
    for (size_t i = 0; i < json_len(v); i++) {
        if (!check_call(d, name_of("%s[%zu]", field.s, i).s, json_at(v, i))) {
            return false;
        }
    }
    return true;
}

/*
 * Messages
 */
static bool check_message(request_decoder *d, const char *path, const json *m)
{
    const json *role = NULL;
    if (json_kind(m) != JSON_OBJECT) {
        return request_refuse(d, path, m, "an object with role and content");
    }
    json_get(m, "role", &role);
    return check_name(d, name_of("%s.role", path).s, role) && check_content(d, path, m) &&
           check_calls(d, path, m) && check_optional(d, path, m, "tool_call_id") &&
           check_optional(d, path, m, "name") && check_optional(d, path, m, "reasoning_content");
}

bool request_read_messages(request_decoder *d, const char *field, const json *v)
{
    size_t n = json_len(v);
    if (json_kind(v) != JSON_ARRAY || n == 0 || n > WIRE_MAX_MESSAGES) {
        return request_refuse(d, field, v, "a list of 1 to 4096 messages");
    }
    for (size_t i = 0; i < n; i++) {
        if (!check_message(d, name_of("%s[%zu]", field, i).s, json_at(v, i))) {
            return false;
        }
    }
    d->r->messages = v;
    return true;
}

/*
 * Tools
 */
static const json *name_of_tool(const json *tool)
{
    const json *function = NULL, *name = NULL;
    json_get(json_get(tool, "function", &function) && function ? function : tool, "name", &name);
    return name;
}

bool request_read_tools(request_decoder *d, const char *field, const json *v)
{
    size_t n = json_len(v);
    if (json_kind(v) != JSON_ARRAY || n > WIRE_MAX_TOOLS) {
        return request_refuse(d, field, v, "a list of at most 1024 tools");
    }
    for (size_t i = 0; i < n; i++) {
        const json *tool = json_at(v, i), *function = NULL;
        if (json_kind(tool) != JSON_OBJECT) {
            return request_refuse(d, name_of("%s[%zu]", field, i).s, tool, "an object");
        }
        const char *middle = json_get(tool, "function", &function) ? ".function" : "";
        if (!check_name(d, name_of("%s[%zu]%s.name", field, i, middle).s, name_of_tool(tool))) {
            return false;
        }
    }
    d->r->tools = n > 0 ? v : NULL;
    return true;
}

bool request_read_tool_choice(request_decoder *d, const char *field, const json *v)
{
    static const char *const names[] = {
        [WIRE_TOOLS_AUTO] = "auto", [WIRE_TOOLS_NONE] = "none", [WIRE_TOOLS_REQUIRED] = "required"};
    const json *name = NULL;
    size_t len;
    const char *s = json_string(v, &len);
    for (size_t i = 0; s && i < sizeof names / sizeof names[0]; i++) {
        if (strlen(names[i]) == len && memcmp(names[i], s, len) == 0) {
            d->r->tool_choice = (wire_tool_choice)i;
            return true;
        }
    }
    if (json_kind(v) != JSON_OBJECT || json_len(v) != 1 || !json_get(v, "name", &name) || !is_name(name)) {
        return request_refuse(d, field, v, "auto, none, required or an object with the name of a tool");
    }
    d->r->tool_choice = WIRE_TOOLS_NAMED;
    return request_copy_string(d, name, &d->r->tool_name);
}

static bool has_tool(const json *tools, wire_string name)
{
    for (size_t i = 0; i < json_len(tools); i++) {
        size_t len;
        const char *s = json_string(name_of_tool(json_at(tools, i)), &len);
        if (s && len == name.len && memcmp(s, name.data, len) == 0) {
            return true;
        }
    }
    return false;
}

/*
 * The template
 */
bool request_read_template_kwargs(request_decoder *d, const char *field, const json *v)
{
    if (json_kind(v) != JSON_OBJECT) {
        return request_refuse(d, field, v, "an object");
    }
    d->r->template_kwargs = json_len(v) > 0 ? v : NULL;
    return true;
}

static bool read_effort(request_decoder *d, const json *v)
{
    static const char *const efforts[] = {"minimal", "low", "medium", "high"};
    size_t len;
    const char *s = json_string(v, &len);
    for (size_t i = 0; s && i < sizeof efforts / sizeof efforts[0]; i++) {
        if (strlen(efforts[i]) == len && memcmp(efforts[i], s, len) == 0) {
            d->r->reasoning_effort = efforts[i];
            return true;
        }
    }
    return request_refuse(d, "reasoning.effort", v, "minimal, low, medium or high");
}

static bool read_reasoning_member(void *ctx, const char *key, size_t key_len, const json *v)
{
    request_decoder *d = ctx;
    int64_t n;
    bool on;
    if (strcmp(key, "budget") == 0) {
        if (!json_i64(v, &n) || n < -1 || n > INT32_MAX) {
            return request_refuse(d, "reasoning.budget", v, "an integer in [-1, 2^31)");
        }
        d->r->reasoning_budget = (int32_t)n;
        return true;
    }
    if (strcmp(key, "enabled") == 0) {
        if (!json_bool(v, &on)) {
            return request_refuse(d, "reasoning.enabled", v, "a boolean");
        }
        d->r->reasoning_enabled = on ? WIRE_ON : WIRE_OFF;
        return true;
    }
    if (strcmp(key, "effort") == 0) {
        return read_effort(d, v);
    }
    return request_refuse(d, name_of("reasoning.%.32s", key).s, v,
                          "absent: reasoning has budget, effort and enabled");
}

bool request_read_reasoning(request_decoder *d, const char *field, const json *v)
{
    if (json_kind(v) != JSON_OBJECT) {
        return request_refuse(d, field, v, "an object");
    }
    json_each(v, read_reasoning_member, d);
    return d->e.code == ST_OK;
}

/*
 * Together
 */
static bool check_final_message(request_decoder *d)
{
    const json *last = json_at(d->r->messages, json_len(d->r->messages) - 1), *role = NULL;
    size_t len;
    json_get(last, "role", &role);
    const char *s = json_string(role, &len);
    return strcmp(s, "assistant") == 0 ||
           request_refuse_absent(d, "continue_final_message",
                                 "continue_final_message needs a last message of the assistant");
}

static const char *const conversation[] = {
    "tools",     "tool_choice", "parallel_tool_calls",    "template_kwargs",
    "reasoning", "now",         "continue_final_message", "cache_namespace"};

bool request_check_conversation(request_decoder *d, const json *o)
{
    const wire_request *r = d->r;
    const json *v = NULL;
    if (!r->messages) { /* count of a text */
        for (size_t i = 0; i < sizeof conversation / sizeof conversation[0]; i++) {
            if (json_get(o, conversation[i], &v)) {
                return request_refuse(d, conversation[i], v, "absent where there are no messages");
            }
        }
        return true;
    }
    json_get(o, "tool_choice", &v);
    if (r->tool_choice == WIRE_TOOLS_REQUIRED && !r->tools) {
        return request_refuse(d, "tool_choice", v, "auto or none where there are no tools");
    }
    if (r->tool_choice == WIRE_TOOLS_NAMED && !has_tool(r->tools, r->tool_name)) {
        return request_refuse(d, "tool_choice", v, "the name of one of the tools");
    }
    return !r->continue_final_message || check_final_message(d);
}
