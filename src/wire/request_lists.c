#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire/request_int.h"

#define FIELD_BYTES 96 /* of a name with an index in it */

bool request_copy_string(request_decoder *d, const json *v, wire_string *out)
{
    size_t len;
    const char *s = json_string(v, &len);
    char *copy = arena_strndup(&d->r->mem, s, len);
    if (!copy) {
        return request_no_memory(d);
    }
    *out = (wire_string){copy, len};
    return true;
}

/*
 * Texts
 */
bool request_read_text(request_decoder *d, const char *field, const json *v)
{
    if (json_kind(v) != JSON_STRING) {
        return request_refuse(d, field, v, "a string");
    }
    wire_segment *s = arena_calloc(&d->r->mem, 1, sizeof *s);
    if (!s) {
        return request_no_memory(d);
    }
    d->r->segments = s;
    d->r->n_segments = 1;
    d->r->prompt_field = strcmp(field, "text") == 0 ? "text" : "prompt";
    return request_copy_string(d, v, &s->text);
}

bool request_read_stop(request_decoder *d, const char *field, const json *v)
{
    if (json_kind(v) != JSON_ARRAY) {
        return request_refuse(d, field, v, "a list of strings");
    }
    size_t n = json_len(v);
    wire_string *stops = arena_alloc_array(&d->r->mem, n, sizeof *stops);
    if (!stops) {
        return request_no_memory(d);
    }
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        const json *s = json_at(v, i);
        size_t len;
        if (!json_string(s, &len)) {
            return request_refuse(d, field, s, "a list of strings");
        }
        if (len > 0 && !request_copy_string(d, s, &stops[kept++])) {
            return false;
        }
    }
    d->r->stops = stops;
    d->r->n_stops = kept;
    return true;
}

/*
 * Token ids
 */
bool request_read_token_list(request_decoder *d, const char *field, const json *v, bool name_each,
                             const int32_t **out, size_t *n_out)
{
    char name[FIELD_BYTES];
    if (json_kind(v) != JSON_ARRAY) {
        return request_refuse(d, field, v, "a list of token ids");
    }
    size_t n = json_len(v);
    int32_t *ids = arena_alloc_array(&d->r->mem, n, sizeof *ids);
    if (!ids) {
        return request_no_memory(d);
    }
    for (size_t i = 0; i < n; i++) {
        const json *id = json_at(v, i);
        int64_t x;
        if (!json_i64(id, &x) || x < 0 || x >= d->limits->n_vocab) {
            snprintf(name, sizeof name, "%s[%zu]", field, i);
            return name_each
                       ? request_refuse(d, name, id, "a token id, an integer in the vocabulary")
                       : request_refuse(d, field, id, "a list of token ids, integers in the vocabulary");
        }
        ids[i] = (int32_t)x;
    }
    *out = ids;
    *n_out = n;
    return true;
}

bool request_read_ids(request_decoder *d, const char *field, const json *v)
{
    return request_read_token_list(d, field, v, false, &d->r->ids, &d->r->n_ids);
}

bool request_read_stop_ids(request_decoder *d, const char *field, const json *v)
{
    if (json_len(v) > WIRE_MAX_STOP_IDS) {
        return request_refuse(d, field, v, "a list of at most 64 token ids");
    }
    return request_read_token_list(d, field, v, false, &d->r->stop_token_ids, &d->r->n_stop_token_ids);
}

/*
 * Segments
 */
static bool read_segment(request_decoder *d, const char *list, const json *v, size_t i, wire_segment *s)
{
    char field[FIELD_BYTES];
    const json *part;
    snprintf(field, sizeof field, "%s[%zu]", list, i);
    if (json_kind(v) != JSON_OBJECT) {
        return request_refuse(d, field, v, "an object with text or ids");
    }
    if (json_get(v, "ids", &part)) { /* with both keys it counts as ids */
        snprintf(field, sizeof field, "%s[%zu].ids", list, i);
        return request_read_token_list(d, field, part, false, &s->ids, &s->n_ids);
    }
    if (!json_get(v, "text", &part)) {
        return request_refuse(d, field, v, "an object with text or ids");
    }
    if (json_kind(part) != JSON_STRING) {
        snprintf(field, sizeof field, "%s[%zu].text", list, i);
        return request_refuse(d, field, part, "a string");
    }
    return request_copy_string(d, part, &s->text);
}

bool request_read_segments(request_decoder *d, const char *field, const json *v)
{
    if (json_kind(v) != JSON_ARRAY) {
        return request_refuse(d, field, v, "a list of segments");
    }
    size_t n = json_len(v);
    wire_segment *segments = arena_calloc(&d->r->mem, n, sizeof *segments);
    if (!segments) {
        return request_no_memory(d);
    }
    for (size_t i = 0; i < n; i++) {
        if (!read_segment(d, field, json_at(v, i), i, &segments[i])) {
            return false;
        }
    }
    d->r->segments = segments;
    d->r->n_segments = n;
    d->r->prompt_field = "prompt_segments";
    return true;
}

/*
 * Bias
 */
typedef struct bias_ctx {
    request_decoder *d;
    const char *field;
    wire_bias *list;
    size_t n;
} bias_ctx;

/* A token id as its shortest decimal, so that no two keys mean the same token. */
static bool read_token_key(const char *key, int32_t n_vocab, int32_t *out)
{
    size_t len = strspn(key, "0123456789");
    if (len == 0 || len > 10 || key[len] != '\0' || (key[0] == '0' && len > 1)) {
        return false;
    }
    long long x = strtoll(key, NULL, 10);
    if (x >= n_vocab) {
        return false;
    }
    *out = (int32_t)x;
    return true;
}

static bool read_one_bias(void *ctx, const char *key, size_t key_len, const json *v)
{
    bias_ctx *c = ctx;
    wire_bias *b = &c->list[c->n];
    char field[FIELD_BYTES];
    snprintf(field, sizeof field, "%s.%.32s", c->field, key);
    if (!read_token_key(key, c->d->limits->n_vocab, &b->token)) {
        return request_refuse(c->d, field, v, "absent: its name is no token id in the vocabulary");
    }
    if (!json_f64(v, &b->bias)) {
        return request_refuse(c->d, field, v, "a number");
    }
    b->bias = b->bias > WIRE_MAX_BIAS_VALUE    ? WIRE_MAX_BIAS_VALUE
              : b->bias < -WIRE_MAX_BIAS_VALUE ? -WIRE_MAX_BIAS_VALUE
                                               : b->bias;
    c->n++;
    return true;
}

static int by_token(const void *a, const void *b)
{
    int32_t x = ((const wire_bias *)a)->token, y = ((const wire_bias *)b)->token;
    return (x > y) - (x < y);
}

bool request_read_bias(request_decoder *d, const char *field, const json *v)
{
    size_t n = json_len(v);
    if (json_kind(v) != JSON_OBJECT || n > WIRE_MAX_BIAS) {
        return request_refuse(d, field, v, "an object of at most 1024 numbers");
    }
    bias_ctx c = {d, field, arena_alloc_array(&d->r->mem, n, sizeof(wire_bias)), 0};
    if (!c.list) {
        return request_no_memory(d);
    }
    json_each(v, read_one_bias, &c);
    if (d->e.code != ST_OK) {
        return false;
    }
    qsort(c.list, n, sizeof *c.list, by_token);
    d->r->bias = c.list;
    d->r->n_bias = n;
    return true;
}
