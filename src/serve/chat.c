#include "serve/chat.h"

#include <stdio.h>
#include <string.h>

#include "serve/fields.h"

static const char *const names[] = {
    GENERATION_FIELDS, "messages",     "max_tokens",      "max_completion_tokens",
    "logprobs",        "top_logprobs", "response_format",
};

#define PATH_BYTES 64

/* "messages[3].content" */
static const char *path_of(char path[PATH_BYTES], size_t i, const char *member)
{
    snprintf(path, PATH_BYTES, "messages[%zu]%s%s", i, member[0] != '\0' ? "." : "", member);
    return path;
}

static bool read_role(const json *v, size_t i, wire_string *out, err *e)
{
    static const char *const roles[][2] = {
        {"system", "system"}, {"developer", "system"}, {"user", "user"}, {"assistant", "assistant"}};
    char path[PATH_BYTES];
    size_t len;
    const json *role = fields_get(v, "role");
    const char *s = json_string(role, &len);
    for (size_t k = 0; s && k < sizeof roles / sizeof roles[0]; k++) {
        if (strlen(roles[k][0]) == len && memcmp(s, roles[k][0], len) == 0) {
            *out = (wire_string){roles[k][1], strlen(roles[k][1])};
            return true;
        }
    }
    return fields_refuse(e, path_of(path, i, "role"), role, "system, developer, user or assistant");
}

/* The text of one part, borrowed from the document. */
static bool read_part(const json *part, const char *path, wire_string *out, err *e)
{
    static const char *const part_names[] = {"type", "text"};
    static const char want[] = "a string or a list of parts {\"type\":\"text\",\"text\":…}";
    size_t len;
    if (json_kind(part) != JSON_OBJECT) {
        return fields_refuse(e, path, part, want);
    }
    const char *type = json_string(fields_get(part, "type"), &len);
    if (!type || strcmp(type, "text") != 0) {
        err_set(e, ST_UNSUPPORTED, path, "%s has a part of type %.32s: only text is supported", path,
                type ? type : "null");
        return false;
    }
    if (!fields_only(part, part_names, 2, "messages[].content[].", e)) {
        return false;
    }
    out->data = json_string(fields_get(part, "text"), &out->len);
    return out->data || fields_refuse(e, path, fields_get(part, "text"), want);
}

/* Parts are joined as they are. */
static bool read_parts(generation *g, const json *list, const char *path, wire_string *out, err *e)
{
    size_t total = 0;
    wire_string part = {"", 0};
    for (size_t i = 0; i < json_len(list); i++) {
        if (!read_part(json_at(list, i), path, &part, e)) {
            return false;
        }
        total += part.len;
    }
    char *text = arena_alloc(&g->mem, total + 1);
    if (!text) {
        return fields_no_memory(e);
    }
    *out = (wire_string){text, total};
    for (size_t i = 0; i < json_len(list); i++) {
        read_part(json_at(list, i), path, &part, e);
        memcpy(text, part.data, part.len);
        text += part.len;
    }
    *text = '\0';
    return true;
}

static bool read_message(generation *g, const json *v, size_t i, wire_message *out, err *e)
{
    static const char *const message_names[] = {"role", "content"};
    char path[PATH_BYTES], prefix[PATH_BYTES];
    if (json_kind(v) != JSON_OBJECT) {
        return fields_refuse(e, path_of(path, i, ""), v, "an object");
    }
    snprintf(prefix, sizeof prefix, "messages[%zu].", i);
    const json *content = fields_get(v, "content");
    if (!read_role(v, i, &out->role, e) || !fields_only(v, message_names, 2, prefix, e)) {
        return false;
    }
    path_of(path, i, "content");
    if (json_kind(content) == JSON_ARRAY && json_len(content) > 0) {
        return read_parts(g, content, path, &out->content, e);
    }
    out->content.data = json_string(content, &out->content.len);
    return out->content.data || fields_refuse(e, path, content, "a string or a list of text parts");
}

static bool read_messages(generation *g, const json *root, err *e)
{
    const json *v = fields_get(root, "messages");
    size_t n = json_len(v);
    if (json_kind(v) != JSON_ARRAY || n == 0 || n > CHAT_MAX_MESSAGES) {
        return fields_refuse(e, "messages", v, "a list of 1 to 4096 messages");
    }
    wire_message *messages = arena_alloc_array(&g->mem, n, sizeof *messages);
    if (!messages) {
        return fields_no_memory(e);
    }
    for (size_t i = 0; i < n; i++) {
        if (!read_message(g, json_at(v, i), i, &messages[i], e)) {
            return false;
        }
    }
    g->common.messages = messages;
    g->common.n_messages = n;
    g->n_prompts = 1;
    return true;
}

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
    if (strcmp(type, "text") != 0) {
        err_set(e, ST_UNSUPPORTED, "response_format", "response_format %.32s is not supported: only text is",
                type);
        return false;
    }
    return fields_only(v, format_names, 1, "response_format.", e);
}

status chat_read(const char *body, size_t len, uint64_t drawn_seed, generation *out, err *e)
{
    err fault;
    generation g;
    err_clear(&fault);
    status st = generation_begin(&g, WIRE_CHAT, body, len, drawn_seed, &fault);
    if (st == ST_OK) {
        const json *root = json_root(g.doc);
        if (fields_only(root, names, sizeof names / sizeof names[0], "", &fault) &&
            read_messages(&g, root, &fault) && generation_read_shared(&g, &fault) &&
            read_max_tokens(&g, root, &fault) && read_logprobs(&g, root, &fault) &&
            read_response_format(root, &fault)) {
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

static void put_content(json_w *w, const answer_choice *c)
{
    json_w_key(w, "content");
    json_w_str(w, c->text, c->text_len);
}

static void put_message(json_w *w, const answer_choice *c)
{
    json_w_key(w, "message");
    json_w_obj_open(w);
    json_w_key(w, "role");
    json_w_cstr(w, "assistant");
    put_content(w, c);
    json_w_key(w, "refusal");
    json_w_null(w);
    json_w_obj_close(w);
}

/* The last delta of a choice is empty unless it has text. */
static void put_delta(json_w *w, const answer_choice *c)
{
    json_w_key(w, "delta");
    json_w_obj_open(w);
    if (c->first) {
        json_w_key(w, "role");
        json_w_cstr(w, "assistant");
    }
    if (c->first || c->text_len > 0 || !c->finish_reason) {
        put_content(w, c);
    }
    json_w_obj_close(w);
}

const answer_shape chat_shape = {
    .id_prefix = "chatcmpl-",
    .object = "chat.completion",
    .chunk_object = "chat.completion.chunk",
    .chat_logprobs = true,
    .put_text = put_message,
    .put_delta = put_delta,
};
