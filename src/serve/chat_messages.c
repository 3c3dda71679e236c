#include "serve/chat_messages.h"

#include <stdio.h>
#include <string.h>

#include "serve/fields.h"

#define PATH_BYTES 96

typedef struct message_reader {
    json_w *w;
    err *e;
    size_t i;            /* which message */
    const char *prefix;  /* "messages[3]." */
    char at[PATH_BYTES]; /* the member that is at fault */
} message_reader;

typedef enum message_role { ROLE_SYSTEM, ROLE_USER, ROLE_ASSISTANT, ROLE_TOOL } message_role;

static const char *path_of(message_reader *r, const char *member)
{
    snprintf(r->at, sizeof r->at, "%s%s", r->prefix, member);
    return r->at;
}

static const char *call_path(message_reader *r, size_t call, const char *member)
{
    snprintf(r->at, sizeof r->at, "%stool_calls[%zu]%s%s", r->prefix, call, member[0] != '\0' ? "." : "",
             member);
    return r->at;
}

static void put_string(json_w *w, const char *key, const char *s, size_t len)
{
    json_w_key(w, key);
    json_w_str(w, s, len);
}

static bool read_role(message_reader *r, const json *v, message_role *out)
{
    static const struct {
        const char *name;
        message_role role;
    } roles[] = {{"system", ROLE_SYSTEM},
                 {"developer", ROLE_SYSTEM},
                 {"user", ROLE_USER},
                 {"assistant", ROLE_ASSISTANT},
                 {"tool", ROLE_TOOL}};
    static const char *const names[] = {"system", "user", "assistant", "tool"};
    const json *role = fields_get(v, "role");
    for (size_t k = 0; k < sizeof roles / sizeof roles[0]; k++) {
        if (fields_is(role, roles[k].name)) {
            *out = roles[k].role;
            put_string(r->w, "role", names[*out], strlen(names[*out]));
            return true;
        }
    }
    return fields_refuse(r->e, path_of(r, "role"), role, "system, developer, user, assistant or tool");
}

/* The text of one part, borrowed from the document. */
static bool read_part(message_reader *r, size_t at, const json *part, const char **text, size_t *len)
{
    static const char *const names[] = {"type", "text"};
    static const char want[] = "a string or a list of parts {\"type\":\"text\",\"text\":…}";
    char prefix[PATH_BYTES];
    size_t type_len;
    path_of(r, "content");
    if (json_kind(part) != JSON_OBJECT) {
        return fields_refuse(r->e, r->at, part, want);
    }
    const char *type = json_string(fields_get(part, "type"), &type_len);
    if (!fields_is(fields_get(part, "type"), "text")) {
        err_set(r->e, ST_UNSUPPORTED, r->at, "%s has a part of type %.32s: only text is supported", r->at,
                type ? type : "null");
        return false;
    }
    snprintf(prefix, sizeof prefix, "%scontent[%zu].", r->prefix, at);
    if (!fields_only(part, names, sizeof names / sizeof names[0], prefix, r->e)) {
        return false;
    }
    *text = json_string(fields_get(part, "text"), len);
    return *text || fields_refuse(r->e, r->at, fields_get(part, "text"), want);
}

static bool read_parts(message_reader *r, const json *list)
{
    buf all = {0};
    bool ok = true;
    for (size_t i = 0; ok && i < json_len(list); i++) {
        const char *text = NULL;
        size_t len = 0;
        ok = read_part(r, i, json_at(list, i), &text, &len) &&
             (buf_append(&all, text, len) == ST_OK || fields_no_memory(r->e));
    }
    if (ok) {
        put_string(r->w, "content", buf_str(&all), all.len);
    }
    buf_release(&all);
    return ok;
}

static bool read_content(message_reader *r, const json *v, bool may_be_null)
{
    size_t len;
    const json *content = fields_get(v, "content");
    if (json_kind(content) == JSON_ARRAY && json_len(content) > 0) {
        return read_parts(r, content);
    }
    if (!content && may_be_null) {
        json_w_key(r->w, "content");
        json_w_null(r->w);
        return true;
    }
    const char *text = json_string(content, &len);
    if (!text) {
        return fields_refuse(r->e, path_of(r, "content"), content, "a string or a list of text parts");
    }
    put_string(r->w, "content", text, len);
    return true;
}

/* A member that is a string, if it is there. */
static bool copy_text(message_reader *r, const json *v, const char *name)
{
    const char *text = NULL;
    size_t len = 0;
    if (!fields_text(v, path_of(r, name), &text, &len, r->e)) {
        return false;
    }
    if (text) {
        put_string(r->w, name, text, len);
    }
    return true;
}

static bool needs_text(message_reader *r, const char *path, const char *key, const json *v)
{
    size_t len;
    const char *text = json_string(v, &len);
    if (!text || len == 0) {
        return fields_refuse(r->e, path, v, "a string that is not empty");
    }
    put_string(r->w, key, text, len);
    return true;
}

static bool read_function(message_reader *r, size_t call, const json *f)
{
    static const char *const names[] = {"name", "arguments"};
    char prefix[PATH_BYTES];
    if (json_kind(f) != JSON_OBJECT) {
        return fields_refuse(r->e, call_path(r, call, "function"), f, "an object with a name");
    }
    snprintf(prefix, sizeof prefix, "%stool_calls[%zu].function.", r->prefix, call);
    if (!fields_only(f, names, sizeof names / sizeof names[0], prefix, r->e) ||
        !needs_text(r, call_path(r, call, "function.name"), "name", fields_get(f, "name"))) {
        return false;
    }
    const json *arguments = fields_get(f, "arguments");
    json_type kind = json_kind(arguments);
    if (arguments && kind != JSON_STRING && kind != JSON_OBJECT) {
        return fields_refuse(r->e, call_path(r, call, "function.arguments"), arguments,
                             "a string or an object");
    }
    json_w_key(r->w, "arguments");
    json_w_json(r->w, arguments); /* nothing is null */
    return true;
}

static bool read_call(message_reader *r, size_t call, const json *v)
{
    static const char *const names[] = {"id", "type", "function", "index"}; /* index: of a stream's deltas */
    char prefix[PATH_BYTES];
    size_t len;
    if (json_kind(v) != JSON_OBJECT) {
        return fields_refuse(r->e, call_path(r, call, ""), v, "an object");
    }
    const json *type = fields_get(v, "type");
    const char *s = json_string(type, &len);
    if (type && !fields_is(type, "function")) {
        err_set(r->e, ST_UNSUPPORTED, call_path(r, call, "type"), "%s is %.32s: only function is supported",
                r->at, s ? s : "no string");
        return false;
    }
    snprintf(prefix, sizeof prefix, "%stool_calls[%zu].", r->prefix, call);
    if (!fields_only(v, names, sizeof names / sizeof names[0], prefix, r->e)) {
        return false;
    }
    json_w_obj_open(r->w);
    if (!needs_text(r, call_path(r, call, "id"), "id", fields_get(v, "id"))) {
        return false;
    }
    put_string(r->w, "type", "function", strlen("function"));
    json_w_key(r->w, "function");
    json_w_obj_open(r->w);
    if (!read_function(r, call, fields_get(v, "function"))) {
        return false;
    }
    json_w_obj_close(r->w);
    json_w_obj_close(r->w);
    return true;
}

static bool read_calls(message_reader *r, const json *calls)
{
    json_w_key(r->w, "tool_calls");
    json_w_arr_open(r->w);
    for (size_t i = 0; i < json_len(calls); i++) {
        if (!read_call(r, i, json_at(calls, i))) {
            return false;
        }
    }
    json_w_arr_close(r->w);
    return true;
}

static bool is_empty_list(const json *v)
{
    return json_kind(v) == JSON_ARRAY && json_len(v) == 0;
}

static bool read_assistant(message_reader *r, const json *v)
{
    static const char *const names[] = {"role",       "content",           "name",
                                        "tool_calls", "reasoning_content", "annotations"};
    const json *calls = fields_get(v, "tool_calls"), *notes = fields_get(v, "annotations");
    if (!fields_only(v, names, sizeof names / sizeof names[0], r->prefix, r->e)) {
        return false;
    }
    if (notes && !is_empty_list(notes)) {
        err_set(r->e, ST_UNSUPPORTED, path_of(r, "annotations"), "%s is not supported", r->at);
        return false;
    }
    if (calls && (json_kind(calls) != JSON_ARRAY || json_len(calls) > CHAT_MAX_CALLS)) {
        return fields_refuse(r->e, path_of(r, "tool_calls"), calls, "a list of up to 128 calls");
    }
    bool has_calls = json_len(calls) > 0;
    return read_content(r, v, has_calls) && copy_text(r, v, "name") && copy_text(r, v, "reasoning_content") &&
           (!has_calls || read_calls(r, calls));
}

static bool read_tool(message_reader *r, const json *v)
{
    static const char *const names[] = {"role", "content", "name", "tool_call_id"};
    return fields_only(v, names, sizeof names / sizeof names[0], r->prefix, r->e) &&
           read_content(r, v, false) && copy_text(r, v, "name") &&
           needs_text(r, path_of(r, "tool_call_id"), "tool_call_id", fields_get(v, "tool_call_id"));
}

static bool read_plain(message_reader *r, const json *v)
{
    static const char *const names[] = {"role", "content", "name"};
    return fields_only(v, names, sizeof names / sizeof names[0], r->prefix, r->e) &&
           read_content(r, v, false) && copy_text(r, v, "name");
}

static bool read_message(message_reader *r, const json *v, message_role *role)
{
    char prefix[PATH_BYTES];
    if (json_kind(v) != JSON_OBJECT) {
        snprintf(r->at, sizeof r->at, "messages[%zu]", r->i);
        return fields_refuse(r->e, r->at, v, "an object");
    }
    snprintf(prefix, sizeof prefix, "messages[%zu].", r->i);
    r->prefix = prefix;
    json_w_obj_open(r->w);
    bool ok = read_role(r, v, role) && (*role == ROLE_ASSISTANT ? read_assistant
                                        : *role == ROLE_TOOL    ? read_tool
                                                                : read_plain)(r, v);
    json_w_obj_close(r->w);
    r->prefix = NULL; /* it ends with this call */
    return ok;
}

bool chat_messages_read(const json *list, buf *out, bool *ends_with_assistant, err *e)
{
    json_w w;
    message_role role = ROLE_SYSTEM;
    size_t n = json_len(list);
    if (json_kind(list) != JSON_ARRAY || n == 0 || n > CHAT_MAX_MESSAGES) {
        return fields_refuse(e, "messages", list, "a list of 1 to 4096 messages");
    }
    json_w_begin(&w, out);
    message_reader r = {.w = &w, .e = e};
    json_w_arr_open(&w);
    for (r.i = 0; r.i < n; r.i++) {
        if (!read_message(&r, json_at(list, r.i), &role)) {
            return false;
        }
    }
    json_w_arr_close(&w);
    *ends_with_assistant = role == ROLE_ASSISTANT;
    return json_w_end(&w) == ST_OK || fields_no_memory(e);
}
