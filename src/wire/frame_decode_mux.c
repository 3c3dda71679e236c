#include <string.h>

#include "wire/frame_decode_int.h"

/*
 * Lists
 */
static bool read_id_list(const json *list, const char *key, arena *mem, const int32_t **out, err *e)
{
    size_t n = json_len(list);
    int32_t *ids = arena_alloc_array(mem, n, sizeof *ids);
    if (!ids) {
        return frame_no_memory(e);
    }
    for (size_t i = 0; i < n; i++) {
        int64_t id;
        if (!json_i64(json_at(list, i), &id) || id < 0 || id > INT32_MAX) {
            return frame_refuse(e, key, "a list of token ids");
        }
        ids[i] = (int32_t)id;
    }
    *out = ids;
    return true;
}

static bool read_ids(const json *list, frame *f, err *e)
{
    f->n_ids = json_len(list);
    return read_id_list(list, "ids", &f->mem, &f->ids, e);
}

/* The raw bytes of a piece that is no UTF-8. */
static bool read_bytes(const json *list, arena *mem, wire_string *out, err *e)
{
    size_t n = json_len(list);
    char *bytes = arena_alloc_array(mem, n + 1, 1);
    if (!bytes) {
        return frame_no_memory(e);
    }
    for (size_t i = 0; i < n; i++) {
        int64_t b;
        if (!json_i64(json_at(list, i), &b) || b < 0 || b > 255) {
            return frame_refuse(e, "bytes", "a list of bytes");
        }
        bytes[i] = (char)b;
    }
    bytes[n] = '\0';
    *out = (wire_string){bytes, n};
    return true;
}

/* One token of a position. */
static bool read_alternative(const json *v, arena *mem, frame_logprob *p, err *e)
{
    const json *x;
    if (json_kind(v) != JSON_OBJECT) {
        return frame_refuse(e, "logprobs", "a list of objects");
    }
    if (!frame_get_i32(v, "id", &p->token, e) || !frame_get_string(v, "text", &p->text, e)) {
        return false;
    }
    if (!json_get(v, "logprob", &x) || !json_f64(x, &p->logprob)) {
        return frame_refuse(e, "logprob", "a number");
    }
    return !json_get(v, "bytes", NULL) ||
           (frame_get_array(v, "bytes", &x, e) && read_bytes(x, mem, &p->text, e));
}

static bool read_position(const json *v, arena *mem, frame_logprob *p, err *e)
{
    const json *list;
    if (!read_alternative(v, mem, p, e) || !frame_get_array(v, "top", &list, e)) {
        return false;
    }
    p->n_top = json_len(list);
    frame_logprob *top = arena_calloc(mem, p->n_top, sizeof *top);
    if (!top) {
        return frame_no_memory(e);
    }
    for (size_t i = 0; i < p->n_top; i++) {
        if (!read_alternative(json_at(list, i), mem, &top[i], e)) {
            return false;
        }
    }
    p->top = top;
    return true;
}

/* The elements of list from `first` on. */
static bool read_positions(const json *list, size_t first, frame *f, err *e)
{
    size_t n = json_len(list) - first;
    frame_logprob *p = arena_calloc(&f->mem, n, sizeof *p);
    if (!p) {
        return frame_no_memory(e);
    }
    for (size_t i = 0; i < n; i++) {
        if (!read_position(json_at(list, first + i), &f->mem, &p[i], e)) {
            return false;
        }
    }
    f->logprobs = p;
    f->n_logprobs = n;
    return true;
}

bool frame_read_step_ids(const json *o, frame *f, err *e)
{
    const json *list;
    if (!f->id.data) {
        return true;
    }
    if (!frame_get_array(o, "ids", &list, e) || !read_ids(list, f, e)) {
        return false;
    }
    if (!json_get(o, "logprobs", NULL)) {
        return true;
    }
    if (!frame_get_array(o, "logprobs", &list, e)) {
        return false;
    }
    return (json_len(list) == f->n_ids || frame_refuse(e, "logprobs", "as long as ids")) &&
           read_positions(list, 0, f, e);
}

static bool read_prompt_logprobs(const json *o, frame *f, err *e)
{
    const json *list;
    if (!frame_get_array(o, "prompt_logprobs", &list, e)) {
        return false;
    }
    if (json_len(list) < 1 || json_at(list, 0)) {
        return frame_refuse(e, "prompt_logprobs", "a list that begins with null");
    }
    return read_positions(list, 1, f, e);
}

static bool read_tokens(const json *o, frame *f, err *e)
{
    const json *ids, *pieces;
    if (!frame_get_array(o, "ids", &ids, e) || !frame_get_array(o, "pieces", &pieces, e) ||
        !read_ids(ids, f, e)) {
        return false;
    }
    if (json_len(pieces) != f->n_ids) {
        return frame_refuse(e, "pieces", "as long as ids");
    }
    wire_string *s = arena_alloc_array(&f->mem, f->n_ids, sizeof *s);
    if (!s) {
        return frame_no_memory(e);
    }
    for (size_t i = 0; i < f->n_ids; i++) {
        s[i].data = json_string(json_at(pieces, i), &s[i].len);
        if (!s[i].data) {
            return frame_refuse(e, "pieces", "a list of strings");
        }
    }
    f->pieces = s;
    return true;
}

/*
 * Objects
 */
static bool is_hex(const char *s, size_t len)
{
    return len == SHA256_HEX_LEN && strspn(s, "0123456789abcdef") == len;
}

static bool read_prompt_ids(const json *v, arena *mem, frame_accepted *a, err *e)
{
    const json *list;
    if (!json_get(v, "prompt_ids", NULL)) {
        return true;
    }
    if (!frame_get_array(v, "prompt_ids", &list, e)) {
        return false;
    }
    return (json_len(list) == (size_t)a->prompt_tokens ||
            frame_refuse(e, "prompt_ids", "as long as the prompt")) &&
           read_id_list(list, "prompt_ids", mem, &a->prompt_ids, e);
}

static bool read_accepted(const json *o, arena *mem, frame_accepted *a, err *e)
{
    const json *v;
    wire_string digest;
    if (!frame_get_object(o, "accepted", &v, e) || !frame_get_string(v, "prompt_digest", &digest, e)) {
        return false;
    }
    if (!is_hex(digest.data, digest.len)) {
        return frame_refuse(e, "prompt_digest", "64 hex digits");
    }
    a->prompt_digest = digest.data;
    return frame_get_u64(v, "seed", &a->seed, e) && frame_get_i64(v, "now", &a->now_ms, e) &&
           frame_get_i32(v, "prompt_tokens", &a->prompt_tokens, e) &&
           frame_get_i32(v, "cached_prompt_tokens", &a->cached_prompt_tokens, e) &&
           read_prompt_ids(v, mem, a, e);
}

static bool read_call(const json *delta, frame_call *c, err *e)
{
    const json *v;
    if (!frame_get_object(delta, "tool_call", &v, e) || !frame_get_i32(v, "index", &c->index, e) ||
        !frame_get_string(v, "arguments_delta", &c->arguments, e) || !frame_opt_string(v, "id", &c->id, e) ||
        !frame_opt_string(v, "name", &c->name, e)) {
        return false;
    }
    if (!c->id.data != !c->name.data) {
        return frame_refuse(e, "tool_call", "with id and name, or without both");
    }
    return frame_opt_bool(v, "closed", &c->closed, e) && frame_opt_bool(v, "withdrawn", &c->withdrawn, e);
}

static bool read_delta(const json *o, frame *f, err *e)
{
    const json *v;
    wire_string text = {"", 0};
    bool ok = frame_get_object(o, "delta", &v, e);
    if (ok && json_get(v, "tool_call", NULL)) {
        f->delta = FRAME_DELTA_CALL;
        ok = read_call(v, &f->call, e);
    } else if (ok && json_get(v, "reasoning", NULL)) {
        f->delta = FRAME_DELTA_REASONING;
        ok = frame_get_string(v, "reasoning", &text, e);
    } else if (ok) {
        ok = frame_get_string(v, "content", &text, e);
    }
    f->text = text.data;
    f->text_len = text.len;
    return ok && frame_read_step_ids(o, f, e);
}

static bool read_progress(const json *o, frame_progress *p, err *e)
{
    const json *v;
    return frame_get_object(o, "progress", &v, e) &&
           frame_get_i32(v, "prompt_tokens", &p->prompt_tokens, e) &&
           frame_get_i32(v, "cached", &p->cached, e) && frame_get_i32(v, "processed", &p->processed, e);
}

bool frame_read_costs(const json *o, frame_done *d, err *e)
{
    const json *miss;
    wire_string reason = {"", 0};
    if (json_get(o, "cache_miss", &miss) && miss) {
        if (!frame_get_object(o, "cache_miss", &miss, e) ||
            !frame_get_i32(miss, "at", &d->cache_miss_at, e) ||
            !frame_get_string(miss, "reason", &reason, e)) {
            return false;
        }
    }
    d->cache_miss_reason = reason.data;
    return frame_opt_i32(o, "cached_prompt_tokens", &d->cached_prompt_tokens, e) &&
           frame_opt_i32(o, "preemptions", &d->preemptions, e) &&
           frame_opt_i32(o, "drafted", &d->drafted, e) && frame_opt_i32(o, "accepted", &d->accepted, e) &&
           frame_opt_i32(o, "reasoning_tokens", &d->reasoning_tokens, e);
}

static bool read_text(const json *o, frame *f, err *e)
{
    wire_string text;
    bool ok = frame_get_string(o, "text", &text, e);
    if (ok) {
        f->text = text.data;
        f->text_len = text.len;
        f->count = FRAME_NO_NUMBER;
    }
    return ok && (!json_get(o, "count", NULL) || frame_get_i64(o, "count", &f->count, e));
}

static bool read_session_info(const json *o, frame_session *s, err *e)
{
    const json *v;
    return frame_get_object(o, "session", &v, e) && frame_get_string(v, "session_id", &s->session_id, e) &&
           frame_get_bool(v, "known", &s->known, e) && frame_get_i64(v, "tokens", &s->tokens, e) &&
           frame_get_bool(v, "dirty", &s->dirty, e) && frame_get_bool(v, "busy", &s->busy, e);
}

/* Only what its kind says is looked at. */
static bool read_extent(const json *o, const char *key, frame *f, err *e)
{
    const json *v;
    frame_extent *x = &f->extent;
    bool range = f->kind == FRAME_PROBE || f->kind == FRAME_EXPORT || f->kind == FRAME_IMPORT;
    if (f->kind == FRAME_EXPORT && f->attach_bytes == 0) {
        return frame_refuse(e, "attach", "there");
    }
    if (!frame_get_object(o, key, &v, e) || !frame_get_string(v, "session_id", &x->session_id, e) ||
        !frame_get_i64(v, "tokens", &x->tokens, e)) {
        return false;
    }
    if (range && (!frame_get_i64(v, "from", &x->from, e) || !frame_get_i64(v, "count", &x->count, e))) {
        return false;
    }
    switch (f->kind) {
    case FRAME_PREWARMED:
        return frame_get_i64(v, "prefilled", &x->prefilled, e);
    case FRAME_PROBE:
        return frame_get_i64(v, "in_memory", &x->in_memory, e) && frame_get_i64(v, "stored", &x->stored, e);
    default:
        return range || frame_get_string(v, "name", &x->name, e);
    }
}

static bool read_lane(const json *v, frame_lane *l, err *e)
{
    if (json_kind(v) != JSON_OBJECT) {
        return frame_refuse(e, "rows", "a list of objects");
    }
    return frame_get_u64(v, "index", &l->index, e) && frame_get_bool(v, "active", &l->active, e) &&
           frame_opt_string(v, "session_id", &l->session_id, e) && frame_get_u64(v, "tokens", &l->tokens, e);
}

static bool read_lanes(const json *list, frame *f, err *e)
{
    size_t n = json_len(list);
    frame_lane *rows = arena_calloc(&f->mem, n, sizeof *rows);
    if (!rows) {
        return frame_no_memory(e);
    }
    for (size_t i = 0; i < n; i++) {
        if (!read_lane(json_at(list, i), &rows[i], e)) {
            return false;
        }
    }
    f->stats.rows = rows;
    f->stats.n_rows = n;
    return true;
}

static bool read_stats(const json *o, frame *f, err *e)
{
    const json *v, *list;
    frame_stats *s = &f->stats;
#define X(name) &&frame_get_u64(v, #name, &s->name, e)
    return frame_get_object(o, "stats", &v, e) &&
           frame_get_bool(v, "draining", &s->draining, e) FRAME_STATS_NUMBERS(X) &&
           frame_get_array(v, "rows", &list, e) && read_lanes(list, f, e);
#undef X
}

static bool read_kv_limit(const json *o, frame_kv_limit *k, err *e)
{
    const json *v;
    return frame_get_object(o, "kv_limit", &v, e) && frame_get_u64(v, "pages", &k->pages, e) &&
           frame_get_u64(v, "pages_used", &k->pages_used, e);
}

bool frame_read_mux(const json *o, frame *f, err *e)
{
    switch (f->kind) {
    case FRAME_ACCEPTED:
        return read_accepted(o, &f->mem, &f->accepted, e);
    case FRAME_DELTA:
        return read_delta(o, f, e);
    case FRAME_PROMPT_LOGPROBS:
        return read_prompt_logprobs(o, f, e);
    case FRAME_PROGRESS:
        return read_progress(o, &f->progress, e);
    case FRAME_TOKENS:
        return read_tokens(o, f, e);
    case FRAME_TEXT:
        return read_text(o, f, e);
    case FRAME_COUNT:
        return frame_get_i64(o, "count", &f->count, e);
    case FRAME_SESSION_INFO:
        return read_session_info(o, &f->session, e);
    case FRAME_STATS:
        return read_stats(o, f, e);
    case FRAME_PREWARMED:
        return read_extent(o, "prewarmed", f, e);
    case FRAME_PROBE:
        return read_extent(o, "probe", f, e);
    case FRAME_EXPORT:
        return read_extent(o, "export", f, e);
    case FRAME_IMPORT:
        return read_extent(o, "import", f, e);
    case FRAME_SAVED:
        return read_extent(o, "saved", f, e);
    case FRAME_RESTORED:
        return read_extent(o, "restored", f, e);
    case FRAME_DROPPED:
        return read_extent(o, "dropped", f, e);
    case FRAME_KV_LIMIT:
        return read_kv_limit(o, &f->kv_limit, e);
    default:
        return true;
    }
}
