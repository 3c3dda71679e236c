#include <string.h>

#include "base/hash.h"
#include "base/json_int.h"

/* Outside, null is NULL. */
static const json *view(const json *node)
{
    return node->type == JSON_NULL ? NULL : node;
}

static bool key_equal(const json *key, const char *s, size_t len)
{
    return key->len == len && memcmp(key->as.string, s, len) == 0;
}

size_t json_index_slots(size_t len)
{
    size_t n = 4 * JSON_SMALL_OBJECT;
    while (n < 2 * len) {
        n *= 2;
    }
    return n;
}

size_t json_member_find(const json *obj, const char *key, size_t key_len, uint32_t **slot)
{
    json *nodes = obj->as.nodes;
    size_t len = obj->len;
    if (len <= JSON_SMALL_OBJECT) {
        for (size_t i = 0; i < len; i++) {
            if (key_equal(&nodes[2 * i], key, key_len)) {
                return i;
            }
        }
        return SIZE_MAX;
    }
    uint32_t *index = (uint32_t *)(nodes + 2 * len);
    size_t mask = json_index_slots(len) - 1;
    /* Keyed: a client cannot prepare keys that all fall into one place. */
    size_t at = (size_t)hash64_keyed(key, key_len) & mask;
    for (; index[at] != 0; at = (at + 1) & mask) {
        size_t i = index[at] - 1;
        if (key_equal(&nodes[2 * i], key, key_len)) {
            return i;
        }
    }
    if (slot) {
        *slot = &index[at];
    }
    return SIZE_MAX;
}

const json *json_root(const json_doc *d)
{
    return view(&d->root);
}

json_type json_kind(const json *v)
{
    return v ? (json_type)v->type : JSON_NULL;
}

bool json_get(const json *obj, const char *key, const json **out)
{
    size_t i = json_kind(obj) == JSON_OBJECT ? json_member_find(obj, key, strlen(key), NULL) : SIZE_MAX;
    if (i == SIZE_MAX) {
        return false;
    }
    if (out) {
        *out = view(&obj->as.nodes[2 * i + 1]);
    }
    return true;
}

size_t json_len(const json *v)
{
    json_type kind = json_kind(v);
    return kind == JSON_ARRAY || kind == JSON_OBJECT ? v->len : 0;
}

const json *json_at(const json *arr, size_t i)
{
    return json_kind(arr) == JSON_ARRAY && i < arr->len ? view(&arr->as.nodes[i]) : NULL;
}

void json_each(const json *obj, json_member_fn fn, void *ctx)
{
    if (json_kind(obj) != JSON_OBJECT) {
        return;
    }
    for (size_t i = 0; i < obj->len; i++) {
        const json *key = &obj->as.nodes[2 * i];
        if (!fn(ctx, key->as.string, key->len, view(key + 1))) {
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
        *len = v->len;
    }
    return v->as.string;
}

bool json_i64(const json *v, int64_t *out)
{
    if (json_kind(v) != JSON_INT || v->is_u64) {
        return false;
    }
    *out = v->as.i64;
    return true;
}

bool json_u64(const json *v, uint64_t *out)
{
    if (json_kind(v) != JSON_INT || (!v->is_u64 && v->as.i64 < 0)) {
        return false;
    }
    *out = v->as.u64;
    return true;
}

bool json_f64(const json *v, double *out)
{
    switch (json_kind(v)) {
    case JSON_INT:
        *out = v->is_u64 ? (double)v->as.u64 : (double)v->as.i64;
        return true;
    case JSON_DOUBLE:
        *out = v->as.f64;
        return true;
    default:
        return false;
    }
}

bool json_bool(const json *v, bool *out)
{
    if (json_kind(v) != JSON_BOOL) {
        return false;
    }
    *out = v->as.boolean;
    return true;
}
