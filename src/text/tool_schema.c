#include "text/tool_schema.h"

#include <string.h>

#define MAX_NESTING 8 /* of anyOf and its kin; what lies deeper may be anything */

static const json *member(const json *obj, const char *key)
{
    const json *v = NULL;
    return json_kind(obj) == JSON_OBJECT && json_get(obj, key, &v) ? v : NULL;
}

static bool string_is(const json *v, const char *s, size_t len)
{
    size_t n = 0;
    const char *text = json_kind(v) == JSON_STRING ? json_string(v, &n) : NULL;
    return text && n == len && memcmp(text, s, n) == 0;
}

/* The "properties" of the tool, or NULL. */
static const json *properties(const json *tools, const char *name, size_t len)
{
    size_t n = json_kind(tools) == JSON_ARRAY ? json_len(tools) : 0;
    for (size_t i = 0; i < n; i++) {
        const json *tool = json_at(tools, i), *function = member(tool, "function");
        tool = function ? function : tool;
        if (string_is(member(tool, "name"), name, len)) {
            const json *schema = member(tool, "parameters");
            const json *props = member(schema ? schema : member(tool, "input_schema"), "properties");
            return json_kind(props) == JSON_OBJECT ? props : NULL;
        }
    }
    return NULL;
}

typedef struct seeker { /* of a member by its name or its place */
    const char *name;
    size_t len, place, seen;
    const char *found_name;
    size_t found_len;
    const json *found;
    bool hit;
} seeker;

static bool seek(void *ctx, const char *key, size_t key_len, const json *v)
{
    seeker *s = ctx;
    s->hit = s->name ? key_len == s->len && memcmp(key, s->name, key_len) == 0 : s->seen == s->place;
    s->seen++;
    if (s->hit) {
        s->found_name = key;
        s->found_len = key_len;
        s->found = v;
    }
    return !s->hit;
}

unsigned tool_type_of(const json *v)
{
    switch (json_kind(v)) {
    case JSON_STRING:
        return TOOL_TYPE_STRING;
    case JSON_INT:
    case JSON_DOUBLE:
        return TOOL_TYPE_NUMBER;
    case JSON_BOOL:
        return TOOL_TYPE_BOOL;
    case JSON_ARRAY:
        return TOOL_TYPE_ARRAY;
    case JSON_OBJECT:
        return TOOL_TYPE_OBJECT;
    default:
        return TOOL_TYPE_NULL;
    }
}

static unsigned named_type(const json *type)
{
    static const struct {
        const char *name;
        unsigned bit;
    } types[] = {{"string", TOOL_TYPE_STRING}, {"integer", TOOL_TYPE_NUMBER}, {"number", TOOL_TYPE_NUMBER},
                 {"boolean", TOOL_TYPE_BOOL},  {"array", TOOL_TYPE_ARRAY},    {"object", TOOL_TYPE_OBJECT},
                 {"null", TOOL_TYPE_NULL}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (string_is(type, types[i].name, strlen(types[i].name))) {
            return types[i].bit;
        }
    }
    return 0;
}

/* 0 if the schema itself says nothing. */
static unsigned own_types(const json *schema)
{
    const json *type = member(schema, "type"), *values = member(schema, "enum"), *one = NULL;
    unsigned types = named_type(type);
    for (size_t i = 0; json_kind(type) == JSON_ARRAY && i < json_len(type); i++) {
        types |= named_type(json_at(type, i));
    }
    size_t n_values = !types && json_kind(values) == JSON_ARRAY ? json_len(values) : 0;
    for (size_t i = 0; i < n_values && types != TOOL_TYPE_ANY; i++) {
        types |= tool_type_of(json_at(values, i));
    }
    if (!types && json_kind(schema) == JSON_OBJECT && json_get(schema, "const", &one)) {
        types = tool_type_of(one);
    }
    bool nullable = false;
    return types && json_bool(member(schema, "nullable"), &nullable) && nullable ? types | TOOL_TYPE_NULL
                                                                                 : types;
}

typedef struct alternatives { /* of anyOf and its kin, on a stack of our own */
    const json *list;
    size_t next;
} alternatives;

static const json *alternatives_of(const json *schema)
{
    static const char *const words[] = {"anyOf", "oneOf", "allOf"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const json *list = member(schema, words[i]);
        if (json_kind(list) == JSON_ARRAY && json_len(list) > 0) {
            return list;
        }
    }
    return NULL;
}

static unsigned types_of(const json *schema)
{
    alternatives stack[MAX_NESTING];
    size_t depth = 0;
    unsigned types = own_types(schema);
    const json *list = alternatives_of(schema);
    if (types || !list) {
        return types ? types : TOOL_TYPE_ANY;
    }
    stack[depth++] = (alternatives){list, 0};
    while (depth > 0) {
        alternatives *a = &stack[depth - 1];
        if (a->next == json_len(a->list)) {
            depth--;
            continue;
        }
        schema = json_at(a->list, a->next++);
        unsigned own = own_types(schema);
        list = own ? NULL : alternatives_of(schema);
        if (list && depth < MAX_NESTING) {
            stack[depth++] = (alternatives){list, 0};
        } else {
            types |= own ? own : TOOL_TYPE_ANY;
        }
    }
    return types;
}

unsigned tool_parameter_types(const json *tools, const char *name, size_t len, const char *param,
                              size_t param_len)
{
    seeker s = {.name = param, .len = param_len};
    const json *props = properties(tools, name, len);
    if (props) {
        json_each(props, seek, &s);
    }
    return s.hit ? types_of(s.found) : TOOL_TYPE_STRING;
}

const char *tool_parameter_at(const json *tools, const char *name, size_t len, size_t i, size_t *param_len)
{
    seeker s = {.place = i};
    const json *props = properties(tools, name, len);
    if (props) {
        json_each(props, seek, &s);
    }
    *param_len = s.found_len;
    return s.hit ? s.found_name : NULL;
}
