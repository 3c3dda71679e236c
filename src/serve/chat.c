#include "serve/chat.h"

#include <string.h>

#include "serve/chat_talk.h"
#include "serve/fields.h"

static const char *const names[] = {
    GENERATION_FIELDS, CHAT_TALK_FIELDS, CHAT_IDLE_FIELDS,  "max_tokens", "max_completion_tokens",
    "logprobs",        "top_logprobs",   "response_format", "modalities", "verbosity",
};

static bool read_max_tokens(generation *g, const json *root, err *e)
{
    static const char want[] = "an integer of at least 1";
    int64_t old_name = -1, n = -1;
    if (!fields_int(root, "max_tokens", 1, INT64_MAX, want, &old_name, e) ||
        !fields_int(root, "max_completion_tokens", 1, INT64_MAX, want, &n, e)) {
        return false;
    }
    if (old_name != -1 && n != -1 && old_name != n) {
        err_set(e, ST_INVALID_FIELD, "max_tokens",
                "max_tokens and max_completion_tokens differ: %lld and %lld", (long long)old_name,
                (long long)n);
        return false;
    }
    n = n == -1 ? old_name : n;
    g->common.max_new_tokens = n < INT32_MAX ? (int32_t)n : INT32_MAX;
    return true;
}

static bool read_logprobs(generation *g, const json *root, err *e)
{
    bool wanted = false;
    int64_t top = 0;
    if (!fields_bool(root, "logprobs", &wanted, e) ||
        !fields_int(root, "top_logprobs", 0, WIRE_MAX_TOP_LOGPROBS, "an integer in [0, 20]", &top, e)) {
        return false;
    }
    if (!wanted && top > 0) {
        err_set(e, ST_INVALID_FIELD, "top_logprobs", "top_logprobs is only for logprobs true");
        return false;
    }
    g->common.top_logprobs = wanted ? (int32_t)top : -1;
    return true;
}

static bool read_response_format(const json *root, err *e)
{
    static const char *const format_names[] = {"type"};
    size_t len;
    const json *v = fields_get(root, "response_format");
    if (!v) {
        return true;
    }
    const char *type = json_kind(v) == JSON_OBJECT ? json_string(fields_get(v, "type"), &len) : NULL;
    if (!type) {
        return fields_refuse(e, "response_format", v, "an object with a type");
    }
    if (!fields_is(fields_get(v, "type"), "text")) {
        err_set(e, ST_UNSUPPORTED, "response_format", "response_format %.32s is not supported: only text is",
                type);
        return false;
    }
    return fields_only(v, format_names, 1, "response_format.", e);
}

/* One of a few words; any other is refused by name. */
static bool read_word(const json *root, const char *name, const char *const *words, err *e)
{
    const char *text = NULL;
    size_t len = 0;
    if (!fields_text(root, name, &text, &len, e)) {
        return false;
    }
    for (; text && *words; words++) {
        if (fields_is(fields_get(root, name), *words)) {
            return true;
        }
    }
    if (!text) {
        return true;
    }
    err_set(e, ST_UNSUPPORTED, name, "%s %.32s is not supported", name, text);
    return false;
}

static bool read_metadata(const json *root, err *e)
{
    const json *v = fields_get(root, "metadata");
    return !v || json_kind(v) == JSON_OBJECT || fields_refuse(e, "metadata", v, "an object");
}

bool chat_read_idle(const json *root, err *e)
{
    static const char *const texts[] = {"prompt_cache_key", "prompt_cache_retention", "safety_identifier"};
    static const char *const tiers[] = {"auto", "default", NULL};
    bool store = false;
    const char *text;
    size_t len;
    if (!fields_bool(root, "store", &store, e) || !read_metadata(root, e) ||
        !read_word(root, "service_tier", tiers, e)) {
        return false;
    }
    if (store) {
        err_set(e, ST_UNSUPPORTED, "store", "store true is not supported: replies are not kept");
        return false;
    }
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (!fields_text(root, texts[i], &text, &len, e)) {
            return false;
        }
    }
    return true;
}

static bool read_modalities(const json *root, err *e)
{
    const json *v = fields_get(root, "modalities");
    for (size_t i = 0; v && i < json_len(v); i++) {
        if (!fields_is(json_at(v, i), "text")) {
            err_set(e, ST_UNSUPPORTED, "modalities", "modalities: only text is supported");
            return false;
        }
    }
    return !v || json_kind(v) == JSON_ARRAY || fields_refuse(e, "modalities", v, "a list");
}

static bool read_own_fields(generation *g, const json *root, err *e)
{
    static const char *const verbosities[] = {"medium", NULL};
    return read_max_tokens(g, root, e) && read_logprobs(g, root, e) && read_response_format(root, e) &&
           chat_read_idle(root, e) && read_modalities(root, e) &&
           read_word(root, "verbosity", verbosities, e);
}

status chat_read(const char *body, size_t len, uint64_t drawn_seed, generation *out, err *e)
{
    err fault;
    generation g;
    err_clear(&fault);
    status st = generation_begin(&g, WIRE_CHAT, body, len, drawn_seed, &fault);
    if (st == ST_OK) {
        const json *root = json_root(g.doc);
        g.n_prompts = 1;
        if (fields_only(root, names, sizeof names / sizeof names[0], "", &fault) &&
            chat_talk_read(root, &g.common, &g.talk, &fault) && generation_read_shared(&g, &fault) &&
            read_own_fields(&g, root, &fault)) {
            *out = g;
            return ST_OK;
        }
        generation_release(&g);
    }
    if (e) {
        *e = fault;
    }
    return fault.code;
}

static void put_text(json_w *w, const char *key, const char *text, size_t len)
{
    json_w_key(w, key);
    json_w_str(w, text, len);
}

static void put_call(json_w *w, wire_string id, wire_string name, wire_string arguments)
{
    put_text(w, "id", id.data, id.len);
    put_text(w, "type", "function", strlen("function"));
    json_w_key(w, "function");
    json_w_obj_open(w);
    put_text(w, "name", name.data, name.len);
    put_text(w, "arguments", arguments.data, arguments.len);
    json_w_obj_close(w);
}

static wire_string view_of(const buf *b)
{
    return (wire_string){buf_str(b), b->len};
}

static void put_calls(json_w *w, const speech *said)
{
    json_w_key(w, "tool_calls");
    json_w_arr_open(w);
    for (size_t i = 0; i < speech_len(said); i++) {
        const speech_item *item = speech_at(said, i);
        if (item->kind == SPEECH_CALL && !item->withdrawn) {
            json_w_obj_open(w);
            put_call(w, view_of(&item->id), view_of(&item->name), view_of(&item->text));
            json_w_obj_close(w);
        }
    }
    json_w_arr_close(w);
}

static void put_message(json_w *w, const answer_choice *c)
{
    bool has_calls = c->said && speech_n_calls(c->said) > 0;
    json_w_key(w, "message");
    json_w_obj_open(w);
    put_text(w, "role", "assistant", strlen("assistant"));
    if (has_calls && c->text_len == 0) {
        json_w_key(w, "content");
        json_w_null(w);
    } else {
        put_text(w, "content", c->text, c->text_len);
    }
    if (c->thoughts_len > 0) {
        put_text(w, "reasoning_content", c->thoughts, c->thoughts_len);
    }
    json_w_key(w, "refusal");
    json_w_null(w);
    if (has_calls) {
        put_calls(w, c->said);
    }
    json_w_obj_close(w);
}

static void put_call_delta(json_w *w, const frame_call *c)
{
    json_w_key(w, "tool_calls");
    json_w_arr_open(w);
    json_w_obj_open(w);
    json_w_key(w, "index");
    json_w_i64(w, c->index);
    if (c->name.data) {
        put_call(w, c->id, c->name, (wire_string){"", 0});
    } else {
        json_w_key(w, "function");
        json_w_obj_open(w);
        put_text(w, "arguments", c->arguments.data, c->arguments.len);
        json_w_obj_close(w);
    }
    json_w_obj_close(w);
    json_w_arr_close(w);
}

/* The last delta of a choice is empty unless it has text. */
static void put_delta(json_w *w, const answer_choice *c)
{
    json_w_key(w, "delta");
    json_w_obj_open(w);
    if (c->first) {
        put_text(w, "role", "assistant", strlen("assistant"));
    }
    if (c->kind == SPEECH_CALL) {
        put_call_delta(w, c->call);
    } else if (c->first || c->text_len > 0 || !c->finish_reason) {
        put_text(w, c->kind == SPEECH_THOUGHT ? "reasoning_content" : "content", c->text, c->text_len);
    }
    json_w_obj_close(w);
}

const answer_shape chat_shape = {
    .id_prefix = "chatcmpl-",
    .object = "chat.completion",
    .chunk_object = "chat.completion.chunk",
    .is_chat = true,
    .put_text = put_message,
    .put_delta = put_delta,
};
