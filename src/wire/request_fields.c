#include <math.h>
#include <stdio.h>
#include <string.h>

#include "wire/line.h"
#include "wire/request_int.h"

/* Where a field may stand. */
#define IN(op) (1u << (op))
#define PLAIN  (1u << 31) /* plain generate */
#define REPLY  (IN(WIRE_GENERATE) | IN(WIRE_CHAT))
#define TALK   (IN(WIRE_CHAT) | IN(WIRE_COUNT) | IN(WIRE_RENDER)) /* a conversation */
#define RANGE  (IN(WIRE_SESSION_PROBE) | IN(WIRE_SESSION_EXPORT))
#define SAVED  (IN(WIRE_SESSION_SAVE) | IN(WIRE_SESSION_RESTORE) | IN(WIRE_SESSION_DROP))
#define SESSION                                                                                          \
    (IN(WIRE_SESSION_GET) | IN(WIRE_SESSION_RESET) | IN(WIRE_SESSION_CLOSE) | IN(WIRE_SESSION_PREWARM) | \
     IN(WIRE_SESSION_IMPORT) | RANGE | SAVED)

typedef struct field field;
typedef bool (*field_reader)(request_decoder *d, const field *f, const json *v);
typedef bool (*list_reader)(request_decoder *d, const char *name, const json *v);

struct field {
    const char *name;
    unsigned where;
    field_reader read; /* NULL with `list` NULL: in the protocol, not in this build */
    list_reader list;
    size_t offset; /* of what a generic reader writes in wire_request */
    double low, high;
    const char *want;
};

/*
 * Generic readers
 */
static void *target(request_decoder *d, const field *f)
{
    return (char *)d->r + f->offset;
}

static bool read_i32(request_decoder *d, const field *f, const json *v)
{
    int64_t i;
    if (!json_i64(v, &i) || (double)i < f->low || (double)i > f->high) {
        return request_refuse(d, f->name, v, f->want);
    }
    *(int32_t *)target(d, f) = (int32_t)i;
    return true;
}

static bool read_double(request_decoder *d, const field *f, const json *v)
{
    double x;
    if (!json_f64(v, &x) || !(x >= f->low && x <= f->high)) {
        return request_refuse(d, f->name, v, f->want);
    }
    *(double *)target(d, f) = x;
    return true;
}

static bool read_bool(request_decoder *d, const field *f, const json *v)
{
    return json_bool(v, target(d, f)) || request_refuse(d, f->name, v, "a boolean");
}

/*
 * Readers of one field
 */
static bool read_max_new_tokens(request_decoder *d, const field *f, const json *v)
{
    int32_t none = request_is_mux(d->r) ? 0 : -1; /* what 0 means */
    int64_t i;
    uint64_t u;
    if (json_i64(v, &i)) {
        d->r->max_new_tokens = i < 0 ? -1 : i == 0 ? none : i > INT32_MAX ? INT32_MAX : (int32_t)i;
    } else if (json_u64(v, &u)) {
        d->r->max_new_tokens = INT32_MAX; /* clamped, as any number beyond the context is */
    } else {
        return request_refuse(d, f->name, v, "an integer");
    }
    return true;
}

static bool read_top_p(request_decoder *d, const field *f, const json *v)
{
    double x;
    if (!json_f64(v, &x) || !(x > 0 && x <= 1)) {
        return request_refuse(d, f->name, v, "a number in (0, 1]");
    }
    d->r->top_p = x;
    return true;
}

static bool read_seed(request_decoder *d, const field *f, const json *v)
{
    int64_t i;
    if (!json_i64(v, &i) || i < 0) {
        return request_refuse(d, f->name, v, "an integer in [0, 2^63)");
    }
    d->r->seed = (uint64_t)i;
    return true;
}

static bool read_now(request_decoder *d, const field *f, const json *v)
{
    if (!json_i64(v, &d->r->now_ms) || d->r->now_ms < 0) {
        return request_refuse(d, f->name, v, "an integer in [0, 2^63)");
    }
    d->r->has_now = true;
    return true;
}

static bool read_repetition_guard(request_decoder *d, const field *f, const json *v)
{
    int64_t i;
    if (!json_i64(v, &i) || (i != 0 && (i < WIRE_MIN_REPETITION_GUARD || i > WIRE_MAX_REPETITION_GUARD))) {
        return request_refuse(d, f->name, v, "0 or an integer in [16, 4096]");
    }
    d->r->repetition_guard = (int32_t)i;
    return true;
}

static bool read_deadline(request_decoder *d, const field *f, const json *v)
{
    uint64_t ms;
    if (!json_u64(v, &ms) || ms == 0) {
        return request_refuse(d, f->name, v, "an integer in [1, 2^64)");
    }
    d->r->deadline_ms = ms < WIRE_MAX_DEADLINE_MS ? ms : WIRE_MAX_DEADLINE_MS;
    return true;
}

static bool read_session_id(request_decoder *d, const field *f, const json *v)
{
    size_t len;
    if (!json_string(v, &len)) {
        return request_refuse(d, f->name, v, "a string");
    }
    if (len > WIRE_MAX_SESSION_ID_BYTES) {
        return request_refuse(d, f->name, v, "at most 65536 bytes long");
    }
    return request_copy_string(d, v, &d->r->session_id);
}

static bool read_cache_namespace(request_decoder *d, const field *f, const json *v)
{
    size_t len;
    if (!json_string(v, &len) || len > WIRE_MAX_NAMESPACE_BYTES) {
        return request_refuse(d, f->name, v, "a string of at most 256 bytes");
    }
    return request_copy_string(d, v, &d->r->cache_namespace);
}

static bool read_from(request_decoder *d, const field *f, const json *v)
{
    return (json_i64(v, &d->r->from) && d->r->from >= 0) ||
           request_refuse(d, f->name, v, "an integer in [0, 2^63)");
}

static bool read_count(request_decoder *d, const field *f, const json *v)
{
    bool export = d->r->op == WIRE_SESSION_EXPORT;
    return (json_i64(v, &d->r->count) && d->r->count >= export) ||
           request_refuse(d, f->name, v, export ? "an integer in [1, 2^63)" : "an integer in [0, 2^63)");
}

static bool is_save_name(const char *s, size_t len)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    return len >= 1 && len <= WIRE_MAX_SAVE_NAME_BYTES && s[0] != '.' && strspn(s, allowed) == len;
}

static bool read_save_name(request_decoder *d, const field *f, const json *v)
{
    size_t len;
    const char *s = json_string(v, &len);
    if (!s || !is_save_name(s, len)) {
        return request_refuse(d, f->name, v,
                              "1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-' that do not begin with a dot");
    }
    return request_copy_string(d, v, &d->r->name);
}

static bool read_attach(request_decoder *d, const field *f, const json *v)
{
    return (json_u64(v, &d->r->attach_bytes) && d->r->attach_bytes >= 1 &&
            d->r->attach_bytes <= WIRE_MAX_ATTACH_BYTES) ||
           request_refuse(d, f->name, v, "an integer in [1, 67108864]");
}

static bool read_pages(request_decoder *d, const field *f, const json *v)
{
    return (json_u64(v, &d->r->pages) && d->r->pages >= 1) ||
           request_refuse(d, f->name, v, "an integer in [1, 2^64)");
}

static bool read_cancel_request_id(request_decoder *d, const field *f, const json *v)
{
    if (!d->limits->supports_cancel) {
        err_set(&d->e, ST_UNSUPPORTED, f->name, "%s is not supported: this worker has no control pipe",
                f->name);
        return false;
    }
    if (!json_u64(v, &d->r->cancel_request_id) || d->r->cancel_request_id == 0) {
        return request_refuse(d, f->name, v, "an integer in [1, 2^64)");
    }
    return true;
}

/* "logprobs" and "top_logprobs" together say one number: logprobs first, whatever the order in the line. */
static bool read_logprobs(request_decoder *d, const field *f, const json *v)
{
    bool on;
    if (!json_bool(v, &on)) {
        return request_refuse(d, f->name, v, "a boolean");
    }
    if (on && d->r->top_logprobs < 0) {
        d->r->top_logprobs = 0;
    }
    return true;
}

/* Read by read_action before the fields. */
static bool read_nothing(request_decoder *d, const field *f, const json *v)
{
    return true;
}

#define AT(member)                 .offset = offsetof(wire_request, member)
#define INT32(low_, want_)         .read = read_i32, .low = (low_), .high = INT32_MAX, .want = (want_)
#define NUMBER(low_, high_, want_) .read = read_double, .low = (low_), .high = (high_), .want = (want_)

/* clang-format off */
static const field fields[] = {
    {"prompt", IN(WIRE_GENERATE) | PLAIN, .list = request_read_text},
    {"prompt_segments", IN(WIRE_GENERATE) | PLAIN, .list = request_read_segments},
    {"max_new_tokens", REPLY | PLAIN, .read = read_max_new_tokens},
    {"temperature", REPLY | PLAIN, NUMBER(0, HUGE_VAL, "a finite number >= 0"), AT(temperature)},
    {"top_p", REPLY | PLAIN, .read = read_top_p},
    {"top_k", REPLY | PLAIN, INT32(0, "an integer in [0, 2^31)"), AT(top_k)},
    {"seed", REPLY | PLAIN, .read = read_seed},
    {"stop", REPLY | PLAIN, .list = request_read_stop},
    {"session_id", REPLY | SESSION | PLAIN, .read = read_session_id},
    {"cancel_request_id", PLAIN, .read = read_cancel_request_id},
    {"add_special", IN(WIRE_GENERATE) | IN(WIRE_TOKENIZE) | PLAIN, .read = read_bool, AT(add_special)},
    /* multiplexed only */
    {"messages", TALK, .list = request_read_messages},
    {"tools", TALK, .list = request_read_tools},
    {"tool_choice", TALK, .list = request_read_tool_choice},
    {"parallel_tool_calls", TALK, .read = read_bool, AT(parallel_tool_calls)},
    {"template_kwargs", TALK, .list = request_read_template_kwargs},
    {"reasoning", TALK, .list = request_read_reasoning},
    {"continue_final_message", TALK, .read = read_bool, AT(continue_final_message)},
    {"text", IN(WIRE_TOKENIZE) | IN(WIRE_COUNT), .list = request_read_text},
    {"parse_special", IN(WIRE_TOKENIZE), .read = read_bool, AT(parse_special)},
    {"ids", IN(WIRE_DETOKENIZE), .list = request_read_ids},
    {"action", SESSION, .read = read_nothing},
    {"from", RANGE, .read = read_from},
    {"count", RANGE, .read = read_count},
    {"name", SAVED, .read = read_save_name},
    {"attach", IN(WIRE_SESSION_IMPORT), .read = read_attach},
    {"pages", IN(WIRE_KV_LIMIT), .read = read_pages},
    {"now", REPLY | IN(WIRE_COUNT) | IN(WIRE_RENDER), .read = read_now},
    {"min_p", REPLY, NUMBER(0, 1, "a number in [0, 1]"), AT(min_p)},
    {"repetition_penalty", REPLY, NUMBER(0.01, 100, "a number in [0.01, 100]"), AT(repetition_penalty)},
    {"presence_penalty", REPLY, NUMBER(-WIRE_MAX_PENALTY, WIRE_MAX_PENALTY, "a number in [-1e6, 1e6]"),
     AT(presence_penalty)},
    {"frequency_penalty", REPLY, NUMBER(-WIRE_MAX_PENALTY, WIRE_MAX_PENALTY, "a number in [-1e6, 1e6]"),
     AT(frequency_penalty)},
    {"repeat_last_n", REPLY, INT32(-1, "an integer in [-1, 2^31)"), AT(repeat_last_n)},
    {"logit_bias", REPLY, .list = request_read_bias},
    {"min_tokens", REPLY, INT32(0, "an integer in [0, 2^31)"), AT(min_tokens)},
    {"ignore_eos", REPLY, .read = read_bool, AT(ignore_eos)},
    {"stop_token_ids", REPLY, .list = request_read_stop_ids},
    {"logprobs", REPLY, .read = read_logprobs},
    {"top_logprobs", REPLY, .read = read_i32, .low = 0, .high = WIRE_MAX_TOP_LOGPROBS,
     .want = "an integer in [0, 20]", AT(top_logprobs)},
    {"prompt_logprobs", REPLY, .read = read_i32, .low = 0, .high = WIRE_MAX_TOP_LOGPROBS,
     .want = "an integer in [0, 20]", AT(prompt_logprobs)},
    {"cache_namespace", REPLY | IN(WIRE_COUNT) | IN(WIRE_RENDER) | SESSION, .read = read_cache_namespace},
    {"priority", REPLY, .read = read_i32, .low = WIRE_MIN_PRIORITY, .high = WIRE_MAX_PRIORITY,
     .want = "an integer in [-10, 10]", AT(priority)},
    {"repetition_guard", REPLY, .read = read_repetition_guard},
    {"deadline_ms", REPLY, .read = read_deadline},
    {"progress", REPLY, .read = read_bool, AT(progress)},
    {"resume", REPLY, .list = request_read_resume},
    /* in the protocol, not in this build */
    {"typical_p", REPLY}, {"top_n_sigma", REPLY}, {"dry_multiplier", REPLY}, {"dry_base", REPLY},
    {"dry_allowed_length", REPLY}, {"dry_penalty_last_n", REPLY}, {"dry_sequence_breakers", REPLY},
    {"grammar", REPLY}, {"json_schema", REPLY}, {"regex", REPLY}, {"choice", REPLY},
    {"adapter", REPLY}, {"response_format", IN(WIRE_CHAT)},
    {"now", IN(WIRE_SESSION_CLOSE)}, {"attach", ~PLAIN & ~IN(WIRE_SESSION_IMPORT)},
};
/* clang-format on */

#define N_FIELDS (sizeof fields / sizeof fields[0])

static bool read_field(request_decoder *d, const field *f, const json *v)
{
    return f->list ? f->list(d, f->name, v) : f->read ? f->read(d, f, v) : request_refuse_unbuilt(d, f->name);
}

/*
 * Presence
 */
static bool one_of(request_decoder *d, const json *o, const char *a, const char *b)
{
    bool has_a = json_get(o, a, NULL), has_b = json_get(o, b, NULL);
    char msg[96];
    if (has_a != has_b) { /* presence decides, even with null */
        return true;
    }
    snprintf(msg, sizeof msg, has_a ? "%s and %s exclude each other" : "%s or %s must be present", a, b);
    return request_refuse_absent(d, has_a ? b : a, msg);
}

static bool needs(request_decoder *d, const json *o, const char *name)
{
    char msg[64];
    if (json_get(o, name, NULL)) {
        return true;
    }
    snprintf(msg, sizeof msg, "%s must be present", name);
    return request_refuse_absent(d, name, msg);
}

static bool is_session_op(wire_op op)
{
    return (IN(op) & (SESSION | IN(WIRE_OPEN) | IN(WIRE_CLOSE) | IN(WIRE_RESET))) != 0;
}

static bool check_presence(request_decoder *d, const json *o)
{
    switch (d->r->op) {
    case WIRE_GENERATE:
        return one_of(d, o, "prompt", "prompt_segments");
    case WIRE_CHAT:
    case WIRE_RENDER:
        return needs(d, o, "messages");
    case WIRE_COUNT:
        return one_of(d, o, "text", "messages");
    case WIRE_TOKENIZE:
        return needs(d, o, "text");
    case WIRE_DETOKENIZE:
        return needs(d, o, "ids");
    case WIRE_SESSION_EXPORT:
        return needs(d, o, "session_id") && needs(d, o, "from") && needs(d, o, "count");
    case WIRE_SESSION_IMPORT:
        return needs(d, o, "session_id") && needs(d, o, "attach");
    case WIRE_SESSION_SAVE:
    case WIRE_SESSION_RESTORE:
    case WIRE_SESSION_DROP:
        return needs(d, o, "session_id") && needs(d, o, "name");
    case WIRE_KV_LIMIT:
        return needs(d, o, "pages");
    default:
        return !is_session_op(d->r->op) || needs(d, o, "session_id");
    }
}

/*
 * Both dialects
 */
static const field *find(const char *name, unsigned where)
{
    for (size_t i = 0; i < N_FIELDS; i++) {
        if ((fields[i].where & where) && strcmp(fields[i].name, name) == 0) {
            return &fields[i];
        }
    }
    return NULL;
}

/* Known fields in the order of the table, all others ignored. */
static bool read_generate(request_decoder *d, const json *o)
{
    for (size_t i = 0; i < N_FIELDS; i++) {
        const json *v;
        if ((fields[i].where & PLAIN) && json_get(o, fields[i].name, &v) && !read_field(d, &fields[i], v)) {
            return false;
        }
    }
    return true;
}

static bool read_plain(request_decoder *d, const json *o)
{
    const json *v;
    if (d->r->op == WIRE_GENERATE) {
        return read_generate(d, o);
    }
    return !json_get(o, "session_id", &v) || d->r->op == WIRE_DRAIN || d->r->op == WIRE_SHUTDOWN ||
           read_field(d, find("session_id", PLAIN), v);
}

static bool read_member(void *ctx, const char *key, size_t key_len, const json *v)
{
    request_decoder *d = ctx;
    char want[64];
    if (strcmp(key, "id") == 0 || strcmp(key, "op") == 0) {
        return true;
    }
    const field *f = find(key, IN(d->r->op));
    if (f) {
        return read_field(d, f, v);
    }
    snprintf(want, sizeof want, "absent: it is no field of %s", request_op_name(d->r->op));
    return request_refuse(d, key, v, want);
}

/* Every member, in the order of the line. */
static bool read_mux(request_decoder *d, const json *o)
{
    const json *top, *v;
    bool on = false;
    json_each(o, read_member, d);
    if (d->e.code != ST_OK) {
        return false;
    }
    if (json_get(o, "top_logprobs", &top) && !(json_get(o, "logprobs", &v) && json_bool(v, &on) && on)) {
        return request_refuse(d, "top_logprobs", top, "absent where logprobs is not true");
    }
    return (IN(d->r->op) & TALK) == 0 || request_check_conversation(d, o);
}

bool request_read_fields(request_decoder *d, const json *o)
{
    const json *v = NULL;
    if (!check_presence(d, o) || !(request_is_mux(d->r) ? read_mux(d, o) : read_plain(d, o))) {
        return false;
    }
    if (is_session_op(d->r->op) && d->r->session_id.len == 0) {
        json_get(o, "session_id", &v);
        return request_refuse(d, "session_id", v, "a string that is not empty");
    }
    return true;
}
