#include <string.h>

#include "base/json_int.h"

/* A `json` is json-c's object under another name: these two casts are the only places that know. */
static struct json_object *raw(const json *v)
{
    union {
        const json *ours;
        struct json_object *theirs; /* json-c takes no const, but its readers change nothing we can see */
    } u = {.ours = v};
    return u.theirs;
}

static const json *view(const struct json_object *o)
{
    return (const json *)o;
}

const json *json_root(const json_doc *d)
{
    return view(d->root);
}

json_type json_kind(const json *v)
{
    switch (json_object_get_type(raw(v))) {
    case json_type_boolean:
        return JSON_BOOL;
    case json_type_int:
        return JSON_INT;
    case json_type_double:
        return JSON_DOUBLE;
    case json_type_string:
        return JSON_STRING;
    case json_type_array:
        return JSON_ARRAY;
    case json_type_object:
        return JSON_OBJECT;
    case json_type_null:
        break;
    }
    return JSON_NULL;
}

bool json_get(const json *obj, const char *key, const json **out)
{
    struct json_object *member = NULL;
    if (json_kind(obj) != JSON_OBJECT || !json_object_object_get_ex(raw(obj), key, &member)) {
        return false;
    }
    if (out) {
        *out = view(member);
    }
    return true;
}

size_t json_len(const json *v)
{
    switch (json_kind(v)) {
    case JSON_ARRAY:
        return json_object_array_length(raw(v));
    case JSON_OBJECT:
        return (size_t)json_object_object_length(raw(v));
    default:
        return 0;
    }
}

const json *json_at(const json *arr, size_t i)
{
    return i < json_len(arr) && json_kind(arr) == JSON_ARRAY ? view(json_object_array_get_idx(raw(arr), i))
                                                             : NULL;
}

void json_each(const json *obj, json_member_fn fn, void *ctx)
{
    if (json_kind(obj) != JSON_OBJECT) {
        return;
    }
    /* json-c keeps members in the order in which they came. */
    for (struct lh_entry *at = lh_table_head(json_object_get_object(raw(obj))); at; at = lh_entry_next(at)) {
        const char *key = lh_entry_k(at);
        if (!fn(ctx, key, strlen(key), view(lh_entry_v(at)))) {
            return;
        }
    }
}

const char *json_string(const json *v, size_t *len)
{
    if (json_kind(v) != JSON_STRING) {
        return NULL;
    }
    if (len) {
        *len = (size_t)json_object_get_string_len(raw(v));
    }
    return json_object_get_string(raw(v));
}

bool json_i64(const json *v, int64_t *out)
{
    /* json-c clamps on reading: only a literal of 2^63 and more has an unsigned value above INT64_MAX. */
    if (json_kind(v) != JSON_INT || json_object_get_uint64(raw(v)) > INT64_MAX) {
        return false;
    }
    *out = json_object_get_int64(raw(v));
    return true;
}

bool json_u64(const json *v, uint64_t *out)
{
    if (json_kind(v) != JSON_INT || json_object_get_int64(raw(v)) < 0) {
        return false;
    }
    *out = json_object_get_uint64(raw(v));
    return true;
}

bool json_f64(const json *v, double *out)
{
    json_type kind = json_kind(v);
    if (kind != JSON_INT && kind != JSON_DOUBLE) {
        return false;
    }
    *out = json_object_get_double(raw(v));
    return true;
}

bool json_bool(const json *v, bool *out)
{
    if (json_kind(v) != JSON_BOOL) {
        return false;
    }
    *out = json_object_get_boolean(raw(v)) != 0;
    return true;
}
