#include "serve/fields.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "wire/frame.h"

#define SHOWN_NAME 64 /* bytes of an unknown field's name in a message */

status fields_parse(const char *body, size_t len, json_doc **out, err *e)
{
    json_doc *doc = NULL;
    status st = json_parse(body, len, FIELDS_MAX_DEPTH, &doc, e);
    if (st == ST_OK && json_kind(json_root(doc)) != JSON_OBJECT) {
        json_doc_free(doc);
        return err_set(e, ST_BAD_REQUEST, NULL, "the body is not a JSON object");
    }
    if (st == ST_OK) {
        *out = doc;
    }
    return st;
}

const json *fields_get(const json *object, const char *name)
{
    const json *v = NULL;
    return json_get(object, name, &v) ? v : NULL;
}

bool fields_is(const json *v, const char *want)
{
    size_t len;
    const char *s = json_string(v, &len); /* may hold zero bytes */
    return s && len == strlen(want) && memcmp(s, want, len) == 0;
}

bool fields_refuse(err *e, const char *path, const json *v, const char *want)
{
    buf shown = {0};
    json_w w;
    json_w_begin(&w, &shown);
    frame_put_value(&w, v);
    json_w_end(&w); /* without memory: an empty text */
    err_set(e, ST_INVALID_FIELD, path, "%s must be %s, not %s", path, want, buf_str(&shown));
    buf_release(&shown);
    return false;
}

bool fields_no_memory(err *e)
{
    err_set(e, ST_NOMEM, NULL, "out of memory");
    return false;
}

typedef struct name_check {
    const char *const *names;
    size_t n_names;
    const char *prefix;
    err *e;
    bool ok;
} name_check;

static bool check_name(void *ctx, const char *key, size_t len, const json *v)
{
    name_check *c = ctx;
    if (!v) {
        return true;
    }
    for (size_t i = 0; i < c->n_names; i++) {
        if (strcmp(key, c->names[i]) == 0) {
            return true;
        }
    }
    char path[128];
    snprintf(path, sizeof path, "%s%.*s", c->prefix, SHOWN_NAME, key);
    err_set(c->e, ST_UNSUPPORTED, path, "%s is not supported", path);
    c->ok = false;
    return false;
}

bool fields_only(const json *object, const char *const *names, size_t n_names, const char *prefix, err *e)
{
    name_check c = {names, n_names, prefix, e, true};
    json_each(object, check_name, &c);
    return c.ok;
}

static const json *member(const json *object, const char *path)
{
    const char *dot = strrchr(path, '.');
    return fields_get(object, dot ? dot + 1 : path);
}

bool fields_bool(const json *object, const char *path, bool *out, err *e)
{
    const json *v = member(object, path);
    return !v || json_bool(v, out) || fields_refuse(e, path, v, "true or false");
}

bool fields_int(const json *object, const char *path, int64_t min, int64_t max, const char *want,
                int64_t *out, err *e)
{
    int64_t i;
    const json *v = member(object, path);
    if (!v) {
        return true;
    }
    if (!json_i64(v, &i) || i < min || i > max) {
        return fields_refuse(e, path, v, want);
    }
    *out = i;
    return true;
}

bool fields_number(const json *object, const char *path, double min, double max, const char *want,
                   double *out, err *e)
{
    double f;
    const json *v = member(object, path);
    if (!v) {
        return true;
    }
    if (!json_f64(v, &f) || !(f >= min && f <= max)) {
        return fields_refuse(e, path, v, want);
    }
    *out = f;
    return true;
}

bool fields_text(const json *object, const char *path, const char **out, size_t *len, err *e)
{
    size_t n;
    const json *v = member(object, path);
    if (!v) {
        return true;
    }
    const char *s = json_string(v, &n);
    if (!s) {
        return fields_refuse(e, path, v, "a string");
    }
    *out = s;
    *len = n;
    return true;
}
