/*
 * json under any bytes: the reader never crashes; each member is found by its key; what it accepts, the
 * writer can write, and what the writer wrote is accepted again and is a fixed point (written once more it is
 * the same bytes).
 */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void find_members(const json *v);

static bool find_member(void *obj, const char *key, size_t key_len, const json *v)
{
    const json *found = NULL;
    if (strlen(key) != key_len || !json_get(obj, key, &found) || found != v) {
        abort(); /* what is visited is found by its key */
    }
    find_members(v);
    return true;
}

/* The reader bounds the depth. */
static void find_members(const json *v)
{
    if (json_kind(v) == JSON_OBJECT) {
        json_each(v, find_member, (void *)(uintptr_t)v);
    }
    for (size_t i = 0; json_kind(v) == JSON_ARRAY && i < json_len(v); i++) {
        find_members(json_at(v, i));
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
    find_members(json_root(d));
    json_w_json(&w, json_root(d));
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
