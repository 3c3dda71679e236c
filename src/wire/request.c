#include "wire/request.h"

#include <string.h>

#include "base/mem.h"
#include "wire/frame.h"
#include "wire/request_int.h"

#define ARENA_CHUNK_BYTES        4096
#define DEFAULT_REPEAT_LAST_N    64
#define DEFAULT_REPETITION_GUARD 1024

/*
 * Refusals
 */
bool request_no_memory(request_decoder *d)
{
    err_set(&d->e, ST_NOMEM, NULL, "out of memory while reading a request");
    return false;
}

bool request_refuse(request_decoder *d, const char *field, const json *v, const char *want)
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
        request_no_memory(d);
    }
    buf_release(&shown);
    return false;
}

bool request_refuse_absent(request_decoder *d, const char *field, const char *msg)
{
    err_set(&d->e, ST_INVALID_FIELD, field, "%s", msg);
    return false;
}

bool request_refuse_unbuilt(request_decoder *d, const char *field)
{
    err_set(&d->e, ST_UNSUPPORTED, field, "%s is not supported by this build", field);
    return false;
}

/*
 * Ops
 */
typedef struct op_row {
    const char *name;
    wire_op op;
    bool plain, mux; /* in which dialects; in neither: in the protocol, not in this build */
} op_row;

static const op_row ops[] = {
    {"generate", WIRE_GENERATE, true, true},
    {"open", WIRE_OPEN, true, false},
    {"close", WIRE_CLOSE, true, false},
    {"reset", WIRE_RESET, true, false},
    {"chat", WIRE_CHAT, false, true},
    {"tokenize", WIRE_TOKENIZE, false, true},
    {"detokenize", WIRE_DETOKENIZE, false, true},
    {"count", WIRE_COUNT, false, true},
    {"render", WIRE_RENDER, false, true},
    {"session", WIRE_SESSION_GET, false, true},
    {"session", WIRE_SESSION_RESET, false, true},
    {"session", WIRE_SESSION_CLOSE, false, true},
    {"session", WIRE_SESSION_PREWARM, false, true},
    {"session", WIRE_SESSION_PROBE, false, true},
    {"session", WIRE_SESSION_EXPORT, false, true},
    {"session", WIRE_SESSION_IMPORT, false, true},
    {"session", WIRE_SESSION_SAVE, false, true},
    {"session", WIRE_SESSION_RESTORE, false, true},
    {"session", WIRE_SESSION_DROP, false, true},
    {"stats", WIRE_STATS, false, true},
    {"kv_limit", WIRE_KV_LIMIT, false, true},
    {"cancel", WIRE_CANCEL, false, true},
    {"pause", WIRE_PAUSE, false, true},
    {"continue", WIRE_CONTINUE, false, true},
    {"drain", WIRE_DRAIN, true, true},
    {"shutdown", WIRE_SHUTDOWN, true, true},
    {"embed", WIRE_GENERATE, false, false},
    {"score", WIRE_GENERATE, false, false},
    {"adapter", WIRE_GENERATE, false, false},
};

#define N_OPS (sizeof ops / sizeof ops[0])

static const struct {
    const char *name;
    wire_op op;
} actions[] = {
    {"get", WIRE_SESSION_GET},         {"reset", WIRE_SESSION_RESET}, {"close", WIRE_SESSION_CLOSE},
    {"prewarm", WIRE_SESSION_PREWARM}, {"probe", WIRE_SESSION_PROBE}, {"export", WIRE_SESSION_EXPORT},
    {"import", WIRE_SESSION_IMPORT},   {"save", WIRE_SESSION_SAVE},   {"restore", WIRE_SESSION_RESTORE},
    {"drop", WIRE_SESSION_DROP},
};

#define N_ACTIONS (sizeof actions / sizeof actions[0])

const char *request_op_name(wire_op op)
{
    for (size_t i = 0; i < N_OPS; i++) {
        if (ops[i].op == op) {
            return ops[i].name;
        }
    }
    return "";
}

const char *request_session_action(wire_op op)
{
    for (size_t i = 0; i < N_ACTIONS; i++) {
        if (actions[i].op == op) {
            return actions[i].name;
        }
    }
    return NULL;
}

bool request_is_mux(const wire_request *r)
{
    return r->id.data != NULL;
}

static bool is_name(const char *name, const char *s, size_t len)
{
    return strlen(name) == len && memcmp(name, s, len) == 0;
}

static bool read_action(request_decoder *d, const json *o)
{
    const json *v = NULL;
    size_t len;
    if (!json_get(o, "action", &v)) {
        return request_refuse_absent(d, "action", "action must be present");
    }
    const char *name = json_string(v, &len);
    for (size_t i = 0; name && i < N_ACTIONS; i++) {
        if (is_name(actions[i].name, name, len)) {
            d->r->op = actions[i].op;
            return true;
        }
    }
    return request_refuse(d, "action", v, "an action of the protocol");
}

/* The op is known; may it stand in this line? */
static bool take_op(request_decoder *d, const json *o, const op_row *row)
{
    bool mux = request_is_mux(d->r);
    if (!row->plain && !row->mux) {
        err_set(&d->e, ST_UNSUPPORTED, "op", "op %s is not supported by this build", row->name);
        return false;
    }
    if (!mux && !row->plain) {
        err_set(&d->e, ST_INVALID_FIELD, "id", "%s needs an id", row->name);
        return false;
    }
    if (mux && !row->mux) {
        err_set(&d->e, ST_INVALID_FIELD, "op", "op %s goes without an id", row->name);
        return false;
    }
    d->r->op = row->op;
    d->r->parse_special = wire_request_default(row->op).parse_special;
    return row->op != WIRE_SESSION_GET || read_action(d, o);
}

static bool read_op(request_decoder *d, const json *o)
{
    const json *v;
    size_t len;
    if (!json_get(o, "op", &v)) {
        return true; /* generate */
    }
    const char *name = json_string(v, &len);
    for (size_t i = 0; name && i < N_OPS; i++) {
        if (is_name(ops[i].name, name, len)) {
            return take_op(d, o, &ops[i]);
        }
    }
    return request_refuse(d, "op", v,
                          request_is_mux(d->r) ? "an op of the protocol" : "generate, open, close or reset");
}

/*
 * Lines
 */
static bool read_id(request_decoder *d, const json *o, size_t line_len)
{
    const json *v;
    size_t len;
    if (!json_get(o, "id", &v)) {
        return true; /* plain */
    }
    const char *id = json_string(v, &len);
    if (!id || len == 0 || len > WIRE_MAX_ID_BYTES) {
        return request_refuse(d, "id", v, "a string of 1 to 256 bytes");
    }
    size_t max = json_get(o, "resume", NULL) ? WIRE_MAX_RESUME_LINE_BYTES : WIRE_MAX_MUX_LINE_BYTES;
    if (line_len > max) {
        err_set(&d->e, ST_BAD_REQUEST, NULL, "line is longer than %zu bytes", max);
        return false;
    }
    return request_copy_string(d, v, &d->r->id);
}

static bool read_line(request_decoder *d, const json *o, size_t line_len)
{
    if (json_kind(o) != JSON_OBJECT) {
        err_set(&d->e, ST_BAD_REQUEST, NULL, "a line must be one JSON object");
        return false;
    }
    return read_id(d, o, line_len) && read_op(d, o) && request_read_fields(d, o);
}

/* Of a line that there was no memory to read: the daemon writes it last. What follows is never taken for lines. */
static uint64_t attachment_of_text(const char *line, size_t len)
{
    static const char key[] = ",\"attach\":";
    uint64_t n = 0, unit = 1;
    size_t at = len;
    if (at == 0 || line[--at] != '}') {
        return 0;
    }
    for (; at > 0 && line[at - 1] >= '0' && line[at - 1] <= '9' && unit < UINT64_MAX / 100; unit *= 10) {
        n += (uint64_t)(line[--at] - '0') * unit;
    }
    size_t n_key = sizeof key - 1;
    return at >= n_key && memcmp(line + at - n_key, key, n_key) == 0 ? n : 0;
}

/* What follows the line is raw bytes whatever is wrong with the line. */
static uint64_t attachment_of(const json *o)
{
    const json *v;
    uint64_t n;
    return json_get(o, "id", NULL) && json_get(o, "attach", &v) && json_u64(v, &n) ? n : 0;
}

wire_stub wire_request_peek(const char *line, size_t len)
{
    wire_stub s = {.op = WIRE_GENERATE};
    char name[JSON_PEEK_BYTES];
    size_t n;
    _Static_assert(JSON_PEEK_BYTES == WIRE_MAX_ID_BYTES, "an id can be looked at");
    if (!json_peek_string(line, len, "id", s.id, &s.id_len)) {
        s.id_len = 0;
    }
    for (size_t i = 0; json_peek_string(line, len, "op", name, &n) && i < N_OPS; i++) {
        if (is_name(ops[i].name, name, n) && (s.id_len > 0 ? ops[i].mux : ops[i].plain)) {
            s.op = ops[i].op;
            break;
        }
    }
    s.attach_bytes = s.id_len > 0 ? attachment_of_text(line, len) : 0;
    return s;
}

/* The frame for d->e. o is the line's object, or NULL if it was none. In the plain dialect every answer to an
 * op carries session_id, in the other one every answer the id. */
static void put_answer(const request_decoder *d, const json *o, const char *line, size_t line_len,
                       buf *answer)
{
    const json *v;
    size_t len;
    wire_stub stub;
    frame_error f = frame_error_of(&d->e);
    f.has_value = d->has_value;
    f.value = d->value;
    if (!o && d->e.code == ST_NOMEM) {
        stub = wire_request_peek(line, line_len);
        f.id = (wire_string){stub.id_len > 0 ? stub.id : NULL, stub.id_len};
        f.has_session = stub.id_len == 0 && stub.op != WIRE_GENERATE;
    } else if (json_get(o, "id", &v)) {
        f.id.data = json_string(v, &f.id.len);
    } else if (json_get(o, "op", &v)) {
        const char *op = json_string(v, &len);
        f.has_session = !op || !is_name("generate", op, len);
    }
    if (f.has_session && json_get(o, "session_id", &v)) {
        f.session_id = json_string(v, &f.session_id_len);
    }
    (void)frame_put_error(answer, &f); /* without memory for it answer stays as it was: the contract */
}

wire_request wire_request_default(wire_op op)
{
    return (wire_request){
        .op = op,
        .session_id = {"", 0},
        .cache_namespace = {"", 0},
        .parse_special = op == WIRE_TOKENIZE || op == WIRE_COUNT,
        .parallel_tool_calls = true,
        .reasoning_budget = -1,
        .count = -1,
        .name = {"", 0},
        .max_new_tokens = -1,
        .top_p = 1.0,
        .repetition_penalty = 1.0,
        .repeat_last_n = DEFAULT_REPEAT_LAST_N,
        .top_logprobs = -1,
        .prompt_logprobs = -1,
        .repetition_guard = -1,
    };
}

int32_t wire_request_repetition_guard(const wire_request *r)
{
    if (r->repetition_guard >= 0) {
        return r->repetition_guard;
    }
    return request_is_mux(r) && r->max_new_tokens < 0 && !r->ignore_eos ? DEFAULT_REPETITION_GUARD : 0;
}

static wire_request *request_new(void)
{
    wire_request *r = mem_alloc(sizeof *r);
    if (r) {
        *r = wire_request_default(WIRE_GENERATE);
        arena_init(&r->mem, ARENA_CHUNK_BYTES);
    }
    return r;
}

status wire_request_decode(const char *line, size_t len, const wire_limits *limits, wire_request **out,
                           buf *answer, uint64_t *attach_bytes, err *e)
{
    request_decoder d = {.limits = limits, .r = request_new()};
    json_doc *doc = NULL;
    const json *o = NULL;
    err_clear(&d.e);
    bool ok = d.r ? json_parse(line, len, JSON_MAX_DEPTH, &doc, &d.e) == ST_OK : request_no_memory(&d);
    if (ok) {
        o = json_root(doc);
        ok = read_line(&d, o, len);
    }
    if (attach_bytes) {
        *attach_bytes = o || d.e.code != ST_NOMEM ? attachment_of(o) : attachment_of_text(line, len);
    }
    if (ok) {
        if (d.r->messages) { /* the views stay */
            d.r->doc = doc;
            doc = NULL;
        }
        *out = d.r;
    } else {
        put_answer(&d, o, line, len, answer);
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
        json_doc_free(r->doc);
        mem_free(r->attached);
        mem_free(r);
    }
}

size_t wire_request_bytes(const wire_request *r)
{
    return sizeof *r + r->mem.used_bytes + json_doc_bytes(r->doc) + (size_t)r->attach_bytes;
}
