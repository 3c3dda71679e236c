#include "serve/completions.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "wire/frame.h"

#define MAX_BODY_DEPTH 64
#define SHOWN_NAME     64 /* bytes of an unknown field's name in a message */

typedef struct reader {
    const json *root;
    const char *model_id;
    completion_options options;
    json_w w; /* the line */
    err e;
} reader;

static bool refuse(reader *r, const char *field, const json *v, const char *want)
{
    buf shown = {0};
    json_w w;
    json_w_begin(&w, &shown);
    frame_put_value(&w, v);
    json_w_end(&w); /* without memory: an empty text */
    err_set(&r->e, ST_INVALID_FIELD, field, "%s must be %s, not %s", field, want, buf_str(&shown));
    buf_release(&shown);
    return false;
}

/* The field's value; NULL if it is absent or null, which is the same in this API. */
static const json *field(const reader *r, const char *name)
{
    const json *v = NULL;
    json_get(r->root, name, &v);
    return v;
}

/*
 * Fields that the plain dialect does not carry: each has a value that asks for nothing.
 */
typedef enum neutral { NULL_ONLY, ZERO, ONE, FALSE, EMPTY_TEXT, EMPTY_OBJECT } neutral;

static const struct {
    const char *name;
    neutral neutral;
} not_carried[] = {
    {"n", ONE},
    {"best_of", ONE},
    {"echo", FALSE},
    {"logprobs", NULL_ONLY},
    {"suffix", EMPTY_TEXT},
    {"presence_penalty", ZERO},
    {"frequency_penalty", ZERO},
    {"repetition_penalty", ONE},
    {"min_p", ZERO},
    {"min_tokens", ZERO},
    {"ignore_eos", FALSE},
    {"logit_bias", EMPTY_OBJECT},
};

static bool is_neutral(const json *v, neutral n)
{
    double f;
    bool b;
    size_t len;
    switch (n) {
    case NULL_ONLY:
        return false;
    case ZERO:
        return json_f64(v, &f) && f == 0.0;
    case ONE:
        return json_f64(v, &f) && f == 1.0;
    case FALSE:
        return json_bool(v, &b) && !b;
    case EMPTY_TEXT:
        return json_string(v, &len) && len == 0;
    case EMPTY_OBJECT:
        return json_kind(v) == JSON_OBJECT && json_len(v) == 0;
    }
    return false;
}

static bool refuse_not_carried(reader *r)
{
    for (size_t i = 0; i < sizeof not_carried / sizeof not_carried[0]; i++) {
        const char *name = not_carried[i].name;
        const json *v = field(r, name);
        if (v && !is_neutral(v, not_carried[i].neutral)) {
            err_set(&r->e, ST_UNSUPPORTED, name, "%s is not supported yet", name);
            return false;
        }
    }
    return true;
}

static bool is_known(const char *name)
{
    static const char *const carried[] = {"model", "prompt", "max_tokens", "temperature",    "top_p", "top_k",
                                          "seed",  "stop",   "stream",     "stream_options", "user"};
    for (size_t i = 0; i < sizeof carried / sizeof carried[0]; i++) {
        if (strcmp(name, carried[i]) == 0) {
            return true;
        }
    }
    for (size_t i = 0; i < sizeof not_carried / sizeof not_carried[0]; i++) {
        if (strcmp(name, not_carried[i].name) == 0) {
            return true;
        }
    }
    return false;
}

static bool refuse_unknown(void *ctx, const char *key, size_t len, const json *v)
{
    reader *r = ctx;
    if (!is_known(key)) {
        err_set(&r->e, ST_UNSUPPORTED, key, "unknown field %.*s", SHOWN_NAME, key);
    }
    return r->e.code == ST_OK;
}

/*
 * Carried ones. Each reader checks its field and writes its part of the line.
 */
static bool read_model(reader *r)
{
    size_t len;
    const json *v = field(r, "model");
    const char *name = v ? json_string(v, &len) : r->model_id;
    if (!name) {
        return refuse(r, "model", v, "a string");
    }
    if (v && (strlen(r->model_id) != len || memcmp(name, r->model_id, len) != 0)) {
        err_set(&r->e, ST_NOT_FOUND, "model", "the model %.*s does not exist here; %s does", SHOWN_NAME, name,
                r->model_id);
        return false;
    }
    return true;
}

static bool put_ids(reader *r, const json *ids)
{
    static const char want[] = "one string or one list of token ids";
    json_w_key(&r->w, "prompt_segments");
    json_w_arr_open(&r->w);
    json_w_obj_open(&r->w);
    json_w_key(&r->w, "ids");
    json_w_arr_open(&r->w);
    for (size_t i = 0; i < json_len(ids); i++) {
        int64_t id;
        const json *v = json_at(ids, i);
        if (!json_i64(v, &id)) {
            return refuse(r, "prompt", v, want);
        }
        if (id < 0 || id > INT32_MAX) {
            return refuse(r, "prompt", v, "token ids of the vocabulary");
        }
        json_w_i64(&r->w, id);
    }
    json_w_arr_close(&r->w);
    json_w_obj_close(&r->w);
    json_w_arr_close(&r->w);
    return true;
}

static bool read_prompt(reader *r)
{
    size_t len;
    const json *v = field(r, "prompt");
    if (v && json_kind(v) == JSON_ARRAY && json_len(v) > 0) {
        json_type first = json_kind(json_at(v, 0));
        if ((first == JSON_STRING || first == JSON_ARRAY) && json_len(v) > 1) {
            err_set(&r->e, ST_UNSUPPORTED, "prompt", "prompt holds %zu prompts: only one is supported yet",
                    json_len(v));
            return false;
        }
        if (first == JSON_STRING || first == JSON_ARRAY) {
            v = json_at(v, 0);
        }
    }
    if (v && json_kind(v) == JSON_ARRAY && json_len(v) > 0) {
        return put_ids(r, v);
    }
    const char *text = v ? json_string(v, &len) : NULL;
    if (!text) {
        return refuse(r, "prompt", v, "a string or a list of token ids");
    }
    json_w_key(&r->w, "prompt");
    json_w_str(&r->w, text, len);
    json_w_key(&r->w, "add_special");
    json_w_bool(&r->w, true);
    return true;
}

static bool read_max_tokens(reader *r)
{
    int64_t n = COMPLETION_MAX_TOKENS;
    const json *v = field(r, "max_tokens");
    if (v && (!json_i64(v, &n) || n < 1)) {
        return refuse(r, "max_tokens", v, "an integer of at least 1");
    }
    json_w_key(&r->w, "max_new_tokens");
    json_w_i64(&r->w, n < INT32_MAX ? n : INT32_MAX); /* the context is shorter anyway */
    return true;
}

static bool read_sampling(reader *r)
{
    double temperature = 1, top_p = 1;
    int64_t top_k = 0;
    const json *v = field(r, "temperature");
    if (v && (!json_f64(v, &temperature) || !isfinite(temperature) || temperature < 0)) {
        return refuse(r, "temperature", v, "a number of at least 0");
    }
    v = field(r, "top_p");
    if (v && (!json_f64(v, &top_p) || !(top_p > 0 && top_p <= 1))) {
        return refuse(r, "top_p", v, "a number above 0 and at most 1");
    }
    v = field(r, "top_k");
    if (v && (!json_i64(v, &top_k) || top_k < 0 || top_k > INT32_MAX)) {
        return refuse(r, "top_k", v, "an integer in [0, 2^31)");
    }
    json_w_key(&r->w, "temperature");
    json_w_f64(&r->w, temperature);
    json_w_key(&r->w, "top_p");
    json_w_f64(&r->w, top_p);
    json_w_key(&r->w, "top_k");
    json_w_i64(&r->w, top_k);
    return true;
}

static bool read_seed(reader *r, uint64_t drawn_seed)
{
    uint64_t seed = drawn_seed - 1;
    const json *v = field(r, "seed");
    if (v && (!json_u64(v, &seed) || seed > (uint64_t)COMPLETION_MAX_SEED)) {
        return refuse(r, "seed", v, "an integer in [0, 2^63 - 2]");
    }
    json_w_key(&r->w, "seed");
    json_w_u64(&r->w, seed + 1);
    return true;
}

static bool put_stop(reader *r, const json *v)
{
    size_t len;
    const char *s = json_string(v, &len);
    if (!s || len == 0) {
        return refuse(r, "stop", v, "a string or a list of strings, none of them empty");
    }
    json_w_str(&r->w, s, len);
    return true;
}

static bool read_stop(reader *r)
{
    const json *v = field(r, "stop");
    bool ok = true;
    if (!v) {
        return true;
    }
    json_w_key(&r->w, "stop");
    json_w_arr_open(&r->w);
    if (json_kind(v) == JSON_ARRAY) {
        for (size_t i = 0; ok && i < json_len(v); i++) {
            ok = put_stop(r, json_at(v, i));
        }
    } else {
        ok = put_stop(r, v);
    }
    json_w_arr_close(&r->w);
    return ok;
}

static bool refuse_unknown_option(void *ctx, const char *key, size_t len, const json *v)
{
    reader *r = ctx;
    char name[128];
    if (strcmp(key, "include_usage") != 0) {
        snprintf(name, sizeof name, "stream_options.%.*s", SHOWN_NAME, key);
        err_set(&r->e, ST_UNSUPPORTED, name, "unknown field %s", name);
    }
    return r->e.code == ST_OK;
}

static bool read_stream(reader *r)
{
    const json *v = field(r, "stream");
    if (v && !json_bool(v, &r->options.stream)) {
        return refuse(r, "stream", v, "true or false");
    }
    const json *options = field(r, "stream_options");
    if (!options) {
        return true;
    }
    if (json_kind(options) != JSON_OBJECT) {
        return refuse(r, "stream_options", options, "an object");
    }
    if (!r->options.stream) {
        err_set(&r->e, ST_INVALID_FIELD, "stream_options", "stream_options is only for stream true");
        return false;
    }
    json_each(options, refuse_unknown_option, r);
    v = NULL;
    if (json_get(options, "include_usage", &v) && v && !json_bool(v, &r->options.include_usage)) {
        return refuse(r, "stream_options.include_usage", v, "true or false");
    }
    return r->e.code == ST_OK;
}

static bool read_fields(reader *r, uint64_t drawn_seed)
{
    json_each(r->root, refuse_unknown, r);
    return r->e.code == ST_OK && refuse_not_carried(r) && read_model(r) && read_stream(r) && read_prompt(r) &&
           read_max_tokens(r) && read_sampling(r) && read_seed(r, drawn_seed) && read_stop(r);
}

static status read_root(reader *r, uint64_t drawn_seed, buf *line)
{
    if (json_kind(r->root) != JSON_OBJECT) {
        return err_set(&r->e, ST_BAD_REQUEST, NULL, "the body is not a JSON object");
    }
    json_w_begin(&r->w, line);
    json_w_obj_open(&r->w);
    if (!read_fields(r, drawn_seed)) {
        return r->e.code;
    }
    json_w_obj_close(&r->w);
    status st = json_w_end(&r->w);
    st = st == ST_OK ? buf_append_char(line, '\n') : st;
    return st == ST_OK ? ST_OK : err_set(&r->e, st, NULL, "out of memory");
}

status completion_read(const char *body, size_t len, const char *model_id, uint64_t drawn_seed,
                       completion_options *out, buf *line, err *e)
{
    json_doc *doc = NULL;
    size_t line_len = line->len;
    reader r = {.model_id = model_id};
    err_clear(&r.e);
    status st = json_parse(body, len, MAX_BODY_DEPTH, &doc, &r.e);
    if (st == ST_OK) {
        r.root = json_root(doc);
        st = read_root(&r, drawn_seed, line);
    }
    json_doc_free(doc);
    if (st == ST_OK) {
        *out = r.options;
    } else {
        buf_truncate(line, line_len);
        if (e) {
            *e = r.e;
        }
    }
    return st;
}
