/*
 * json under any bytes: the reader never crashes; each member is found by its key; what it accepts, the
 * writer can write, and what the writer wrote is accepted again and is a fixed point (written once more it is
 * the same bytes).
 */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_value(json_w *w, const json *v);

typedef struct member_ctx {
    json_w *w;
    const json *obj;
} member_ctx;

static bool write_member(void *ctx, const char *key, size_t key_len, const json *v)
{
    const member_ctx *c = ctx;
    const json *found = NULL;
    if (strlen(key) != key_len || !json_get(c->obj, key, &found) || found != v) {
        abort(); /* what is visited is found by its key */
    }
    json_w_key(c->w, key);
    write_value(c->w, v);
    return true;
}

static void write_number(json_w *w, const json *v)
{
    int64_t i;
    uint64_t u;
    double f;
    if (json_i64(v, &i)) {
        json_w_i64(w, i);
    } else if (json_u64(v, &u)) {
        json_w_u64(w, u);
    } else if (json_f64(v, &f)) {
        json_w_f64(w, f);
    }
}

/* The reader bounds the depth. */
static void write_value(json_w *w, const json *v)
{
    size_t len;
    const char *s;
    bool b = false;
    switch (json_kind(v)) {
    case JSON_NULL:
        json_w_null(w);
        break;
    case JSON_BOOL:
        json_bool(v, &b);
        json_w_bool(w, b);
        break;
    case JSON_INT:
    case JSON_DOUBLE:
        write_number(w, v);
        break;
    case JSON_STRING:
        s = json_string(v, &len);
        json_w_str(w, s, len);
        break;
    case JSON_ARRAY:
        json_w_arr_open(w);
        for (size_t i = 0; i < json_len(v); i++) {
            write_value(w, json_at(v, i));
        }
        json_w_arr_close(w);
        break;
    case JSON_OBJECT:
        json_w_obj_open(w);
        json_each(v, write_member, &(member_ctx){w, v});
        json_w_obj_close(w);
        break;
    }
}

/* Parses and writes; false if the text is refused. */
static bool rewrite(const char *text, size_t len, buf *out)
{
    json_doc *d = NULL;
    json_w w;
    err e;
    status st = json_parse(text, len, JSON_MAX_DEPTH, &d, &e);
    if (st != ST_OK) {
        if (st != ST_BAD_REQUEST || e.offset > len) {
            abort();
        }
        return false;
    }
    json_w_begin(&w, out);
    write_value(&w, json_root(d));
    if (json_w_end(&w) != ST_OK) {
        abort();
    }
    json_doc_free(d);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    buf once = {0}, twice = {0};
    if (rewrite((const char *)data, size, &once)) {
        if (!rewrite(once.data, once.len, &twice) || once.len != twice.len ||
            memcmp(once.data, twice.data, once.len) != 0) {
            abort();
        }
    }
    buf_release(&once);
    buf_release(&twice);
    return 0;
}
