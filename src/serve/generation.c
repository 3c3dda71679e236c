#include "serve/generation.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "serve/fields.h"
#include "serve/session_names.h"

#define ARENA_CHUNK_BYTES 4096
#define MAX_BIAS          100 /* OpenAI's range */
#define MAX_PENALTY       2
#define MIN_REPETITION    0.01
#define MAX_REPETITION    100

#define WANT_INT32 "an integer in [0, 2^31)"

status generation_begin(generation *g, wire_op op, const char *body, size_t len, uint64_t drawn_seed, err *e)
{
    json_doc *doc = NULL;
    status st = fields_parse(body, len, &doc, e);
    if (st != ST_OK) {
        return st;
    }
    memset(g, 0, sizeof *g);
    arena_init(&g->mem, ARENA_CHUNK_BYTES);
    g->doc = doc;
    g->common = wire_request_default(op);
    g->common.temperature = GENERATION_TEMPERATURE; /* the API's default; the wire's is greedy */
    g->seed = drawn_seed;
    g->n = 1;
    return ST_OK;
}

void generation_release(generation *g)
{
    json_doc_free(g->doc);
    json_doc_free(g->talk);
    buf_release(&g->request);
    arena_release(&g->mem);
    memset(g, 0, sizeof *g);
}

static bool read_sampling(wire_request *r, const json *root, err *e)
{
    static const char at_least_0[] = "a number of at least 0";
    static const char penalty[] = "a number in [-2, 2]";
    static const char guard[] = "0 or an integer in [16, 4096]";
    int64_t top_k = r->top_k, min_tokens = r->min_tokens, priority = 0, span = r->repetition_guard;
    bool ok = fields_number(root, "temperature", 0, DBL_MAX, at_least_0, &r->temperature, e) &&
              fields_number(root, "top_p", DBL_TRUE_MIN, 1, "a number above 0 and at most 1", &r->top_p, e) &&
              fields_number(root, "min_p", 0, 1, "a number in [0, 1]", &r->min_p, e) &&
              fields_int(root, "top_k", 0, INT32_MAX, WANT_INT32, &top_k, e) &&
              fields_number(root, "repetition_penalty", MIN_REPETITION, MAX_REPETITION,
                            "a number in [0.01, 100]", &r->repetition_penalty, e) &&
              fields_number(root, "presence_penalty", -MAX_PENALTY, MAX_PENALTY, penalty,
                            &r->presence_penalty, e) &&
              fields_number(root, "frequency_penalty", -MAX_PENALTY, MAX_PENALTY, penalty,
                            &r->frequency_penalty, e) &&
              fields_int(root, "min_tokens", 0, INT32_MAX, WANT_INT32, &min_tokens, e) &&
              fields_bool(root, "ignore_eos", &r->ignore_eos, e) &&
              fields_int(root, "priority", WIRE_MIN_PRIORITY, WIRE_MAX_PRIORITY, "an integer in [-10, 10]",
                         &priority, e) &&
              fields_int(root, "repetition_guard", 0, WIRE_MAX_REPETITION_GUARD, guard, &span, e) &&
              (span <= 0 || span >= WIRE_MIN_REPETITION_GUARD ||
               fields_refuse(e, "repetition_guard", fields_get(root, "repetition_guard"), guard));
    r->top_k = (int32_t)top_k;
    r->min_tokens = (int32_t)min_tokens;
    r->priority = (int32_t)priority;
    r->repetition_guard = (int32_t)span;
    return ok;
}

static bool read_n_and_seed(generation *g, const json *root, err *e)
{
    int64_t n = 1, seed = 0;
    if (!fields_int(root, "n", 1, GENERATION_MAX_N, "an integer in [1, 16]", &n, e)) {
        return false;
    }
    g->n = (int32_t)n;
    if (generation_n_choices(g) > GENERATION_MAX_CHOICES) {
        err_set(e, ST_INVALID_FIELD, "n",
                "n times the number of prompts is %zu: at most %d are answered at once",
                generation_n_choices(g), GENERATION_MAX_CHOICES);
        return false;
    }
    const json *v = fields_get(root, "seed");
    if (!fields_int(root, "seed", 0, GENERATION_MAX_SEED - (n - 1),
                    n == 1 ? "an integer in [0, 2^63 - 2]" : "an integer in [0, 2^63 - 1 - n]", &seed, e)) {
        return false;
    }
    if (v) {
        g->seed = (uint64_t)seed + 1;
    } else if (g->seed > WIRE_MAX_SEED - (uint64_t)(n - 1)) {
        g->seed -= (uint64_t)(n - 1);
    }
    return true;
}

static bool read_stops(generation *g, const json *root, err *e)
{
    static const char want[] = "a string or a list of up to 1000 strings, none of them empty";
    const json *v = fields_get(root, "stop");
    bool is_list = json_kind(v) == JSON_ARRAY;
    size_t n = is_list ? json_len(v) : 1;
    if (!v || n == 0) {
        return true;
    }
    if (n > GENERATION_MAX_STOPS) {
        return fields_refuse(e, "stop", v, want);
    }
    wire_string *stops = arena_alloc_array(&g->mem, n, sizeof *stops);
    if (!stops) {
        return fields_no_memory(e);
    }
    for (size_t i = 0; i < n; i++) {
        const json *item = is_list ? json_at(v, i) : v;
        stops[i].data = json_string(item, &stops[i].len);
        if (!stops[i].data || stops[i].len == 0) {
            return fields_refuse(e, "stop", item, want);
        }
    }
    g->common.stops = stops;
    g->common.n_stops = n;
    return true;
}

static bool read_stop_ids(generation *g, const json *root, err *e)
{
    static const char want[] = "a list of up to 64 token ids of the vocabulary";
    const json *v = fields_get(root, "stop_token_ids");
    size_t n = json_len(v);
    if (v && (json_kind(v) != JSON_ARRAY || n > WIRE_MAX_STOP_IDS)) {
        return fields_refuse(e, "stop_token_ids", v, want);
    }
    if (!v || n == 0) {
        return true;
    }
    int32_t *ids = arena_alloc_array(&g->mem, n, sizeof *ids);
    if (!ids) {
        return fields_no_memory(e);
    }
    for (size_t i = 0; i < n; i++) {
        int64_t id;
        if (!json_i64(json_at(v, i), &id) || id < 0 || id > INT32_MAX) {
            return fields_refuse(e, "stop_token_ids", json_at(v, i), want);
        }
        ids[i] = (int32_t)id;
    }
    g->common.stop_token_ids = ids;
    g->common.n_stop_token_ids = n;
    return true;
}

typedef struct bias_reader {
    wire_bias *bias; /* [json_len] */
    size_t n;
    err *e;
    bool ok;
} bias_reader;

/* Plain decimal without a sign or leading zero, so that no token has two names. */
static bool token_of_key(const char *key, size_t len, int32_t *out)
{
    int64_t id = 0;
    if (len == 0 || len > 10 || (key[0] == '0' && len > 1)) {
        return false;
    }
    for (size_t i = 0; i < len; i++) {
        if (key[i] < '0' || key[i] > '9') {
            return false;
        }
        id = id * 10 + (key[i] - '0');
    }
    *out = (int32_t)id;
    return id <= INT32_MAX;
}

static bool read_one_bias(void *ctx, const char *key, size_t len, const json *v)
{
    bias_reader *b = ctx;
    wire_bias *out = &b->bias[b->n];
    if (!token_of_key(key, len, &out->token)) {
        err_set(b->e, ST_INVALID_FIELD, "logit_bias",
                "logit_bias has the key \"%.40s\", which is no token id", key);
        b->ok = false;
    } else if (!json_f64(v, &out->bias) || !(out->bias >= -MAX_BIAS && out->bias <= MAX_BIAS)) {
        b->ok = fields_refuse(b->e, "logit_bias", v, "numbers in [-100, 100] by token id");
    } else {
        b->n++;
    }
    return b->ok;
}

static int by_token(const void *a, const void *b)
{
    int32_t x = ((const wire_bias *)a)->token, y = ((const wire_bias *)b)->token;
    return (x > y) - (x < y);
}

static bool read_bias(generation *g, const json *root, err *e)
{
    const json *v = fields_get(root, "logit_bias");
    size_t n = json_len(v);
    if (v && (json_kind(v) != JSON_OBJECT || n > WIRE_MAX_BIAS)) {
        return fields_refuse(e, "logit_bias", v, "an object of up to 1024 token ids and numbers");
    }
    if (!v || n == 0) {
        return true;
    }
    bias_reader b = {.bias = arena_alloc_array(&g->mem, n, sizeof(wire_bias)), .e = e, .ok = true};
    if (!b.bias) {
        return fields_no_memory(e);
    }
    json_each(v, read_one_bias, &b);
    qsort(b.bias, b.n, sizeof *b.bias, by_token);
    g->common.bias = b.bias;
    g->common.n_bias = b.n;
    return b.ok;
}

static const json *read_object(const json *root, const char *name, bool *ok, err *e)
{
    const json *v = fields_get(root, name);
    *ok = !v || json_kind(v) == JSON_OBJECT || fields_refuse(e, name, v, "an object");
    return v;
}

static bool read_stream(generation *g, const json *root, err *e)
{
    static const char *const names[] = {"include_usage", "include_obfuscation"};
    bool ok, obfuscate = false;
    const json *options = read_object(root, "stream_options", &ok, e);
    if (!ok || !fields_bool(root, "stream", &g->stream, e)) {
        return false;
    }
    if (options && !g->stream) {
        err_set(e, ST_INVALID_FIELD, "stream_options", "stream_options is only for stream true");
        return false;
    }
    if (options && (!fields_only(options, names, 2, "stream_options.", e) ||
                    !fields_bool(options, "stream_options.include_usage", &g->include_usage, e) ||
                    !fields_bool(options, "stream_options.include_obfuscation", &obfuscate, e))) {
        return false;
    }
    if (obfuscate) {
        err_set(e, ST_UNSUPPORTED, "stream_options.include_obfuscation",
                "stream_options.include_obfuscation true is not supported");
        return false;
    }
    return true;
}

static bool read_own(generation *g, const json *root, err *e)
{
    static const char *const names[] = {"progress", "deadline_ms"};
    int64_t deadline_ms = 0;
    bool ok;
    const json *own = read_object(root, "hearth", &ok, e);
    if (!ok || !own) {
        return ok;
    }
    ok = fields_only(own, names, 2, "hearth.", e) && fields_bool(own, "hearth.progress", &g->progress, e) &&
         fields_int(own, "hearth.deadline_ms", 1, GENERATION_MAX_MS, "an integer in [1, 2^31)", &deadline_ms,
                    e);
    if (ok && g->progress && !g->stream) {
        err_set(e, ST_INVALID_FIELD, "hearth.progress", "hearth.progress is only for stream true");
        return false;
    }
    g->deadline_ms = (uint64_t)deadline_ms;
    g->common.progress = g->progress;
    return ok;
}

static bool read_session_id(generation *g, const json *root, err *e)
{
    size_t len = 0;
    return fields_text(root, "session_id", &g->session, &len, e) &&
           (!g->session || session_name_good(g->session, len) ||
            fields_refuse(e, "session_id", fields_get(root, "session_id"), SESSION_WANT_NAME));
}

bool generation_read_session(generation *g, const char *header, err *e)
{
    if (header && !session_name_good(header, strlen(header))) {
        err_set(e, ST_INVALID_FIELD, "x-hearth-session", "x-hearth-session must be %s, not %.160s",
                SESSION_WANT_NAME, header);
        return false;
    }
    if (header && g->session && strcmp(header, g->session) != 0) {
        err_set(e, ST_INVALID_FIELD, "session_id", "session_id and x-hearth-session differ: %s and %s",
                g->session, header);
        return false;
    }
    g->session = header ? header : g->session;
    if (g->session && g->n > 1) {
        err_set(e, ST_INVALID_FIELD, "n", "n must be 1 in a session, not %d", (int)g->n);
        return false;
    }
    if (g->session && g->n_prompts > 1) {
        err_set(e, ST_INVALID_FIELD, "prompt", "prompt must be one prompt in a session, not %zu",
                g->n_prompts);
        return false;
    }
    return true;
}

bool generation_read_shared(generation *g, err *e)
{
    const json *root = json_root(g->doc);
    const char *user;
    size_t len;
    return fields_text(root, "model", &g->model, &g->model_len, e) &&
           fields_text(root, "user", &user, &len, e) && read_session_id(g, root, e) &&
           read_n_and_seed(g, root, e) && read_sampling(&g->common, root, e) && read_stops(g, root, e) &&
           read_stop_ids(g, root, e) && read_bias(g, root, e) && read_stream(g, root, e) &&
           read_own(g, root, e);
}

void generation_default_sampling(wire_request *r, const json *root, const frame_sampling *s)
{
    double *const numbers[FRAME_SAMPLING_COUNT] = {[FRAME_SAMPLING_temperature] = &r->temperature,
                                                   [FRAME_SAMPLING_top_p] = &r->top_p,
                                                   [FRAME_SAMPLING_min_p] = &r->min_p,
                                                   [FRAME_SAMPLING_repetition_penalty] =
                                                       &r->repetition_penalty};
    int32_t *const integers[FRAME_SAMPLING_COUNT] = {
        [FRAME_SAMPLING_top_k] = &r->top_k, [FRAME_SAMPLING_repeat_last_n] = &r->repeat_last_n};
    static const char *const names[FRAME_SAMPLING_COUNT] = {
#define X(name) [FRAME_SAMPLING_##name] = #name,
        FRAME_SAMPLING_NUMBERS(X)
#undef X
    };
    for (size_t i = 0; i < FRAME_SAMPLING_COUNT; i++) {
        bool from_model = (s->said & 1u << i) && !fields_get(root, names[i]);
        if (from_model && numbers[i]) {
            *numbers[i] = s->value[i];
        } else if (from_model) {
            *integers[i] = (int32_t)s->value[i];
        }
    }
}

void generation_adopt_sampling(generation *g, const frame_sampling *s)
{
    generation_default_sampling(&g->common, json_root(g->doc), s);
}

size_t generation_n_choices(const generation *g)
{
    return g->n_prompts * (size_t)g->n;
}

status generation_put_line(const generation *g, size_t i, const char *id, buf *line, err *e)
{
    size_t before = line->len;
    wire_request r = g->common;
    r.id = (wire_string){id, strlen(id)};
    r.seed = g->seed + i % (size_t)g->n;
    if (g->prompts) {
        r.segments = &g->prompts[i / (size_t)g->n];
        r.n_segments = 1;
        r.prompt_field = r.segments->ids ? "prompt_segments" : "prompt";
        r.add_special = !r.segments->ids;
    }
    status st = wire_request_put(line, &r);
    if (st != ST_OK) {
        return err_set(e, st, NULL, "out of memory");
    }
    if (line->len - before > WIRE_MAX_MUX_LINE_BYTES) {
        size_t n = line->len - before;
        buf_truncate(line, before);
        return err_set(e, ST_BAD_REQUEST, NULL,
                       "the request takes %zu bytes on the worker's wire: at most %zu", n,
                       WIRE_MAX_MUX_LINE_BYTES);
    }
    return ST_OK;
}
