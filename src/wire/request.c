#include "wire/request.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "wire/frame.h"

#define ARENA_CHUNK_BYTES 4096

typedef struct decoder {
    wire_request *r; /* owned until it is handed out */
    int32_t n_vocab;
    err e;
    /* what the error frame adds */
    bool has_value;
    const json *value; /* borrowed from the document */
} decoder;

static bool no_memory(decoder *d)
{
    err_set(&d->e, ST_NOMEM, NULL, "out of memory while reading a request");
    return false;
}

static bool refuse(decoder *d, const char *field, const json *v, const char *want)
{
    buf shown = {0};
    json_w w;
    d->has_value = true;
    d->value = v;
    json_w_begin(&w, &shown);
    frame_put_value(&w, v);
    if (json_w_end(&w) == ST_OK) {
        err_set(&d->e, ST_INVALID_FIELD, field, "%s must be %s, not %s", field, want, buf_str(&shown));
    } else {
        no_memory(d);
    }
    buf_release(&shown);
    return false;
}

static bool refuse_absent(decoder *d, const char *field, const char *msg)
{
    err_set(&d->e, ST_INVALID_FIELD, field, "%s", msg);
    return false;
}

static bool copy_string(decoder *d, const json *v, wire_string *out)
{
    size_t len;
    const char *s = json_string(v, &len);
    char *copy = arena_strndup(&d->r->mem, s, len);
    if (!copy) {
        return no_memory(d);
    }
    *out = (wire_string){copy, len};
    return true;
}

/*
 * The fields of generate. Each reader gets a present value (NULL = null, always a wrong type).
 */
static bool read_max_new_tokens(decoder *d, const json *v)
{
    int64_t i;
    uint64_t u;
    if (json_i64(v, &i)) {
        d->r->max_new_tokens = i <= 0 ? -1 : i > INT32_MAX ? INT32_MAX : (int32_t)i;
    } else if (json_u64(v, &u)) {
        d->r->max_new_tokens = INT32_MAX; /* clamped, as any number beyond the context is */
    } else {
        return refuse(d, "max_new_tokens", v, "an integer");
    }
    return true;
}

static bool read_temperature(decoder *d, const json *v)
{
    double f;
    if (!json_f64(v, &f) || !isfinite(f) || f < 0) {
        return refuse(d, "temperature", v, "a finite number >= 0");
    }
    d->r->temperature = f;
    return true;
}

static bool read_top_p(decoder *d, const json *v)
{
    double f;
    if (!json_f64(v, &f) || !(f > 0 && f <= 1)) {
        return refuse(d, "top_p", v, "a number in (0, 1]");
    }
    d->r->top_p = f;
    return true;
}

static bool read_top_k(decoder *d, const json *v)
{
    int64_t i;
    if (!json_i64(v, &i) || i < 0 || i > INT32_MAX) {
        return refuse(d, "top_k", v, "an integer in [0, 2^31)");
    }
    d->r->top_k = (int32_t)i;
    return true;
}

static bool read_seed(decoder *d, const json *v)
{
    int64_t i;
    if (!json_i64(v, &i) || i < 0) {
        return refuse(d, "seed", v, "an integer in [0, 2^63)");
    }
    d->r->seed = (uint64_t)i;
    return true;
}

static bool read_add_special(decoder *d, const json *v)
{
    return json_bool(v, &d->r->add_special) || refuse(d, "add_special", v, "a boolean");
}

static bool read_stop(decoder *d, const json *v)
{
    if (json_kind(v) != JSON_ARRAY) {
        return refuse(d, "stop", v, "a list of strings");
    }
    size_t n = json_len(v);
    wire_string *stops = arena_alloc_array(&d->r->mem, n, sizeof *stops);
    if (!stops) {
        return no_memory(d);
    }
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        const json *s = json_at(v, i);
        size_t len;
        if (!json_string(s, &len)) {
            return refuse(d, "stop", s, "a list of strings");
        }
        if (len > 0 && !copy_string(d, s, &stops[kept++])) {
            return false;
        }
    }
    d->r->stops = stops;
    d->r->n_stops = kept;
    return true;
}

static bool read_prompt(decoder *d, const json *v)
{
    if (json_kind(v) != JSON_STRING) {
        return refuse(d, "prompt", v, "a string");
    }
    wire_segment *s = arena_calloc(&d->r->mem, 1, sizeof *s);
    if (!s) {
        return no_memory(d);
    }
    d->r->segments = s;
    d->r->n_segments = 1;
    d->r->prompt_field = "prompt";
    return copy_string(d, v, &s->text);
}

static bool read_ids(decoder *d, const json *v, const char *field, wire_segment *s)
{
    if (json_kind(v) != JSON_ARRAY) {
        return refuse(d, field, v, "a list of token ids");
    }
    size_t n = json_len(v);
    int32_t *ids = arena_alloc_array(&d->r->mem, n, sizeof *ids);
    if (!ids) {
        return no_memory(d);
    }
    for (size_t i = 0; i < n; i++) {
        const json *id = json_at(v, i);
        int64_t x;
        if (!json_i64(id, &x) || x < 0 || x >= d->n_vocab) {
            return refuse(d, field, id, "a list of token ids, integers in the vocabulary");
        }
        ids[i] = (int32_t)x;
    }
    s->ids = ids;
    s->n_ids = n;
    return true;
}

static bool read_segment(decoder *d, const json *v, size_t i, wire_segment *s)
{
    char field[64];
    const json *part;
    snprintf(field, sizeof field, "prompt_segments[%zu]", i);
    if (json_kind(v) != JSON_OBJECT) {
        return refuse(d, field, v, "an object with text or ids");
    }
    if (json_get(v, "ids", &part)) { /* with both keys it counts as ids */
        snprintf(field, sizeof field, "prompt_segments[%zu].ids", i);
        return read_ids(d, part, field, s);
    }
    if (!json_get(v, "text", &part)) {
        return refuse(d, field, v, "an object with text or ids");
    }
    if (json_kind(part) != JSON_STRING) {
        snprintf(field, sizeof field, "prompt_segments[%zu].text", i);
        return refuse(d, field, part, "a string");
    }
    return copy_string(d, part, &s->text);
}

static bool read_prompt_segments(decoder *d, const json *v)
{
    if (json_kind(v) != JSON_ARRAY) {
        return refuse(d, "prompt_segments", v, "a list of segments");
    }
    size_t n = json_len(v);
    wire_segment *segments = arena_calloc(&d->r->mem, n, sizeof *segments);
    if (!segments) {
        return no_memory(d);
    }
    for (size_t i = 0; i < n; i++) {
        if (!read_segment(d, json_at(v, i), i, &segments[i])) {
            return false;
        }
    }
    d->r->segments = segments;
    d->r->n_segments = n;
    d->r->prompt_field = "prompt_segments";
    return true;
}

static bool read_session_id(decoder *d, const json *v)
{
    size_t len;
    if (!json_string(v, &len)) {
        return refuse(d, "session_id", v, "a string");
    }
    if (len > WIRE_MAX_SESSION_ID_BYTES) {
        return refuse(d, "session_id", v, "at most 65536 bytes long");
    }
    return copy_string(d, v, &d->r->session_id);
}

static bool read_cancel_request_id(decoder *d, const json *v)
{
    (void)v;
    err_set(&d->e, ST_UNSUPPORTED, "cancel_request_id",
            "cancel_request_id is not supported: this worker has no control pipe");
    return false;
}

typedef bool (*field_reader)(decoder *d, const json *v);

static const struct {
    const char *name;
    field_reader read;
} generate_fields[] = {
    {"prompt", read_prompt},
    {"prompt_segments", read_prompt_segments},
    {"max_new_tokens", read_max_new_tokens},
    {"temperature", read_temperature},
    {"top_p", read_top_p},
    {"top_k", read_top_k},
    {"seed", read_seed},
    {"stop", read_stop},
    {"session_id", read_session_id},
    {"cancel_request_id", read_cancel_request_id},
    {"add_special", read_add_special},
};

static bool read_generate(decoder *d, const json *o)
{
    bool text = json_get(o, "prompt", NULL);
    bool segments = json_get(o, "prompt_segments", NULL);
    if (text == segments) { /* presence decides, even with null */
        return refuse_absent(d, text ? "prompt_segments" : "prompt",
                             text ? "prompt and prompt_segments exclude each other"
                                  : "prompt or prompt_segments must be present");
    }
    for (size_t i = 0; i < sizeof generate_fields / sizeof generate_fields[0]; i++) {
        const json *v;
        if (json_get(o, generate_fields[i].name, &v) && !generate_fields[i].read(d, v)) {
            return false;
        }
    }
    return true;
}

static bool read_session_op(decoder *d, const json *o)
{
    const json *v;
    if (!json_get(o, "session_id", &v)) {
        return refuse_absent(d, "session_id", "session_id must be present");
    }
    if (!read_session_id(d, v)) {
        return false;
    }
    return d->r->session_id.len > 0 || refuse(d, "session_id", v, "a string that is not empty");
}

static bool read_op(decoder *d, const json *o)
{
    static const struct {
        const char *name;
        wire_op op;
    } ops[] = {
        {"generate", WIRE_GENERATE}, {"open", WIRE_OPEN}, {"close", WIRE_CLOSE}, {"reset", WIRE_RESET}};
    const json *v;
    size_t len;
    if (!json_get(o, "op", &v)) {
        d->r->op = WIRE_GENERATE;
        return true;
    }
    const char *name = json_string(v, &len);
    for (size_t i = 0; name && i < sizeof ops / sizeof ops[0]; i++) {
        if (strlen(ops[i].name) == len && memcmp(ops[i].name, name, len) == 0) {
            d->r->op = ops[i].op;
            return true;
        }
    }
    return refuse(d, "op", v, "generate, open, close or reset");
}

static bool read_line(decoder *d, const json *o)
{
    if (json_kind(o) != JSON_OBJECT) {
        err_set(&d->e, ST_BAD_REQUEST, NULL, "a line must be one JSON object");
        return false;
    }
    if (json_get(o, "id", NULL)) {
        err_set(&d->e, ST_BAD_REQUEST, "id",
                "id is not supported: this worker speaks the plain dialect only");
        return false;
    }
    if (!read_op(d, o)) {
        return false;
    }
    return d->r->op == WIRE_GENERATE ? read_generate(d, o) : read_session_op(d, o);
}

/* The frame for d->e. o is the line's object, or NULL if it was none. */
static void put_answer(const decoder *d, const json *o, buf *answer)
{
    const json *v;
    frame_error f = frame_error_of(&d->e);
    f.has_value = d->has_value;
    f.value = d->value;
    if (json_get(o, "op", &v)) {
        size_t len;
        const char *op = json_string(v, &len);
        f.has_session = !op || len != strlen("generate") || memcmp(op, "generate", len) != 0;
    }
    if (f.has_session && json_get(o, "session_id", &v)) {
        f.session_id = json_string(v, &f.session_id_len);
    }
    if (json_get(o, "id", &v)) {
        f.id = json_string(v, &f.id_len);
    }
    (void)frame_put_error(answer, &f); /* without memory for it answer stays as it was: the contract */
}

static wire_request *request_new(void)
{
    wire_request *r = mem_calloc(1, sizeof *r);
    if (r) {
        arena_init(&r->mem, ARENA_CHUNK_BYTES);
        r->session_id = (wire_string){"", 0};
        r->max_new_tokens = -1;
        r->top_p = 1.0;
    }
    return r;
}

status wire_request_decode(const char *line, size_t len, int32_t n_vocab, wire_request **out, buf *answer,
                           err *e)
{
    decoder d = {.r = request_new(), .n_vocab = n_vocab};
    json_doc *doc = NULL;
    err_clear(&d.e);
    bool ok = d.r ? json_parse(line, len, JSON_MAX_DEPTH, &doc, &d.e) == ST_OK : no_memory(&d);
    if (ok) {
        ok = read_line(&d, json_root(doc));
    }
    if (ok) {
        *out = d.r;
    } else {
        put_answer(&d, doc ? json_root(doc) : NULL, answer);
        wire_request_free(d.r);
        if (e) {
            *e = d.e;
        }
    }
    json_doc_free(doc);
    return ok ? ST_OK : d.e.code;
}

void wire_request_free(wire_request *r)
{
    if (r) {
        arena_release(&r->mem);
        mem_free(r);
    }
}

size_t wire_request_bytes(const wire_request *r)
{
    return sizeof *r + r->mem.used_bytes;
}
