#include "serve/chat_tools.h"

#include <stdio.h>
#include <string.h>

#include "serve/fields.h"

#define PATH_BYTES 96

/* What describes the function: the tool itself if it is flat. */
static const json *function_of(const json *tool, bool flat)
{
    return flat ? tool : fields_get(tool, "function");
}

static bool check_function(const json *f, const char *prefix, bool flat, err *e)
{
    static const char *const names[] = {"name", "description", "parameters", "strict", "type"};
    char path[PATH_BYTES];
    const char *text = NULL;
    size_t len = 0;
    bool strict = false;
    if (!fields_only(f, names, flat ? 5 : 4, prefix, e)) {
        return false;
    }
    snprintf(path, sizeof path, "%sname", prefix);
    if (!fields_text(f, path, &text, &len, e)) {
        return false;
    }
    if (len == 0 || len > CHAT_MAX_TOOL_NAME) {
        return fields_refuse(e, path, fields_get(f, "name"), "a name of 1 to 256 bytes");
    }
    snprintf(path, sizeof path, "%sdescription", prefix);
    if (!fields_text(f, path, &text, &len, e)) {
        return false;
    }
    snprintf(path, sizeof path, "%sparameters", prefix);
    const json *parameters = fields_get(f, "parameters");
    if (parameters && json_kind(parameters) != JSON_OBJECT) {
        return fields_refuse(e, path, parameters, "a JSON schema");
    }
    snprintf(path, sizeof path, "%sstrict", prefix);
    if (!fields_bool(f, path, &strict, e)) {
        return false;
    }
    if (strict) {
        err_set(e, ST_UNSUPPORTED, path, "%s true is not supported: calls are not forced into a schema yet",
                path);
        return false;
    }
    return true;
}

typedef struct copier {
    json_w *w;
    const char *leave_out;
} copier;

static bool copy_member(void *ctx, const char *key, size_t len, const json *v)
{
    copier *c = ctx;
    if (v && strcmp(key, "strict") != 0 && strcmp(key, c->leave_out) != 0) {
        json_w_key(c->w, key);
        json_w_json(c->w, v);
    }
    return true;
}

static void put_tool(json_w *w, const json *tool, bool flat)
{
    json_w_obj_open(w);
    json_w_key(w, "type");
    json_w_cstr(w, "function");
    json_w_key(w, "function");
    json_w_obj_open(w);
    json_each(function_of(tool, flat), copy_member, &(copier){w, flat ? "type" : ""});
    json_w_obj_close(w);
    json_w_obj_close(w);
}

static bool check_tool(const json *tool, size_t i, bool flat, err *e)
{
    static const char *const names[] = {"type", "function"};
    char prefix[PATH_BYTES];
    snprintf(prefix, sizeof prefix, "tools[%zu]", i);
    if (json_kind(tool) != JSON_OBJECT) {
        return fields_refuse(e, prefix, tool, "an object");
    }
    const json *type = fields_get(tool, "type");
    if (!fields_is(type, "function")) {
        size_t len;
        const char *s = json_string(type, &len);
        snprintf(prefix, sizeof prefix, "tools[%zu].type", i);
        if (!s) {
            return fields_refuse(e, prefix, type, "\"function\"");
        }
        err_set(e, ST_UNSUPPORTED, prefix, "%s is %.32s: only function is supported", prefix, s);
        return false;
    }
    snprintf(prefix, sizeof prefix, "tools[%zu].", i);
    if (flat) {
        return check_function(tool, prefix, true, e);
    }
    const json *f = fields_get(tool, "function");
    if (!fields_only(tool, names, sizeof names / sizeof names[0], prefix, e)) {
        return false;
    }
    snprintf(prefix, sizeof prefix, "tools[%zu].function", i);
    if (json_kind(f) != JSON_OBJECT) {
        return fields_refuse(e, prefix, f, "an object with a name");
    }
    snprintf(prefix, sizeof prefix, "tools[%zu].function.", i);
    return check_function(f, prefix, false, e);
}

bool chat_tools_read(const json *list, bool flat, buf *out, err *e)
{
    json_w w;
    size_t n = json_len(list);
    if (list && (json_kind(list) != JSON_ARRAY || n > CHAT_MAX_TOOLS)) {
        return fields_refuse(e, "tools", list, "a list of up to 128 tools");
    }
    for (size_t i = 0; i < n; i++) {
        if (!check_tool(json_at(list, i), i, flat, e)) {
            return false;
        }
    }
    if (n == 0) {
        return true;
    }
    json_w_begin(&w, out);
    json_w_arr_open(&w);
    for (size_t i = 0; i < n; i++) {
        put_tool(&w, json_at(list, i), flat);
    }
    json_w_arr_close(&w);
    return json_w_end(&w) == ST_OK || fields_no_memory(e);
}

static bool read_named(const json *v, const json *tools, bool flat, wire_string *name, err *e)
{
    static const char *const nested_names[] = {"type", "function"};
    static const char *const flat_names[] = {"type", "name"};
    static const char *const function_names[] = {"name"};
    const char *path = flat ? "tool_choice.name" : "tool_choice.function.name";
    const json *f = function_of(v, flat);
    if (!fields_only(v, flat ? flat_names : nested_names, 2, "tool_choice.", e) ||
        (!flat && f && !fields_only(f, function_names, 1, "tool_choice.function.", e))) {
        return false;
    }
    const json *given = json_kind(f) == JSON_OBJECT ? fields_get(f, "name") : NULL;
    name->data = json_string(given, &name->len);
    if (!name->data) {
        return fields_refuse(e, path, given, "the name of one of the tools");
    }
    for (size_t i = 0; i < json_len(tools); i++) {
        size_t len;
        const char *s = json_string(fields_get(function_of(json_at(tools, i), flat), "name"), &len);
        if (s && len == name->len && memcmp(s, name->data, len) == 0) {
            return true;
        }
    }
    return fields_refuse(e, path, given, "the name of one of the tools");
}

bool chat_choice_read(const json *v, const json *tools, bool flat, wire_tool_choice *out, wire_string *name,
                      err *e)
{
    static const char want[] = "none, auto, required or a function of the tools";
    static const struct {
        const char *name;
        wire_tool_choice choice;
    } rows[] = {{"auto", WIRE_TOOLS_AUTO}, {"none", WIRE_TOOLS_NONE}, {"required", WIRE_TOOLS_REQUIRED}};
    *out = WIRE_TOOLS_AUTO;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (fields_is(v, rows[i].name)) {
            *out = rows[i].choice;
            if (*out == WIRE_TOOLS_REQUIRED && json_len(tools) == 0) {
                err_set(e, ST_INVALID_FIELD, "tool_choice",
                        "tool_choice is required, but there are no tools");
                return false;
            }
            return true;
        }
    }
    if (!v) {
        return true;
    }
    if (json_kind(v) != JSON_OBJECT) {
        return fields_refuse(e, "tool_choice", v, want);
    }
    const json *type = fields_get(v, "type");
    if (!fields_is(type, "function")) {
        size_t len;
        const char *s = json_string(type, &len);
        if (!s) {
            return fields_refuse(e, "tool_choice", v, want);
        }
        err_set(e, ST_UNSUPPORTED, "tool_choice",
                "tool_choice of type %.32s is not supported: only function is", s);
        return false;
    }
    *out = WIRE_TOOLS_NAMED;
    return read_named(v, tools, flat, name, e);
}
