#include "worker/prompt.h"

#include "base/mem.h"
#include "text/chatml.h"

#define ARENA_CHUNK_BYTES ((size_t)4096)

static bool is_dropped(const atomic_bool *dropped)
{
    return dropped && atomic_load_explicit(dropped, memory_order_acquire);
}

static status add_segment(const tokenizer *tok, const wire_segment *s, unsigned flags, ivec *out)
{
    if (s->ids) {
        return ivec_append(out, s->ids, s->n_ids);
    }
    return tokenizer_encode(tok, s->text.data, s->text.len, flags, out);
}

static status add_segments(const tokenizer *tok, const wire_request *r, const atomic_bool *dropped, ivec *out)
{
    status st = ST_OK;
    bool first = true; /* nothing but BOS before it */
    bool literal = r->op == WIRE_TOKENIZE && !r->parse_special;
    if (r->add_special && tokenizer_adds_bos(tok)) {
        st = ivec_push(out, tokenizer_bos(tok));
    }
    for (size_t i = 0; st == ST_OK && i < r->n_segments; i++) {
        const wire_segment *s = &r->segments[i];
        unsigned flags = (literal ? 0u : TOKENIZE_PARSE_SPECIAL) | (first ? 0u : TOKENIZE_NO_PREFIX);
        st = is_dropped(dropped) ? ST_CANCELLED : add_segment(tok, s, flags, out);
        first = first && (s->ids ? s->n_ids : s->text.len) == 0;
    }
    if (st == ST_OK && r->add_special && tokenizer_adds_eos(tok)) {
        st = ivec_push(out, tokenizer_eos(tok));
    }
    return st;
}

static status add_messages(const tokenizer *tok, const wire_request *r, const atomic_bool *dropped, ivec *out)
{
    arena mem;
    const chatml_segment *segments;
    size_t n = 0;
    ivec ids = {0}; /* of its own: the space prefix stands where text begins the prompt */
    arena_init(&mem, ARENA_CHUNK_BYTES);
    size_t n_messages = json_len(r->messages);
    chatml_message *messages = arena_alloc_array(&mem, n_messages, sizeof *messages);
    status st = messages ? ST_OK : ST_NOMEM;
    for (size_t i = 0; messages && i < n_messages; i++) {
        const json *m = json_at(r->messages, i), *role = NULL, *content = NULL;
        json_get(m, "role", &role);
        json_get(m, "content", &content);
        messages[i].role = json_string(role, &messages[i].role_len);
        messages[i].content = json_string(content, &messages[i].content_len);
        if (!messages[i].content) {
            messages[i].content = "";
            messages[i].content_len = 0;
        }
    }
    if (st == ST_OK) {
        st = chatml_render(messages, n_messages, CHATML_GENERATION_PROMPT, &mem, &segments, &n);
    }
    for (size_t i = 0; st == ST_OK && i < n; i++) {
        st = is_dropped(dropped) ? ST_CANCELLED : chatml_encode(tok, &segments[i], 1, &ids);
    }
    if (st == ST_OK) {
        st = ivec_append(out, ids.data, ids.len);
    }
    ivec_release(&ids);
    arena_release(&mem);
    return st;
}

static const char *field_of(const wire_request *r)
{
    return r->messages ? "messages" : r->prompt_field;
}

status prompt_encode(const tokenizer *tok, const wire_request *r, const atomic_bool *dropped, ivec *out,
                     err *e)
{
    status st = r->messages ? add_messages(tok, r, dropped, out) : add_segments(tok, r, dropped, out);
    return st == ST_OK ? ST_OK : err_set(e, st, NULL, "%s while tokenising %s", status_text(st), field_of(r));
}

status prompt_build(const tokenizer *tok, const ivec *prefix, const wire_request *r, int32_t n_ctx,
                    const atomic_bool *dropped, ivec *out, err *e)
{
    const char *field = field_of(r);
    size_t n_prefix = prefix ? prefix->len : 0;
    ivec_reset(out);
    if (n_prefix > 0 && ivec_append(out, prefix->data, n_prefix) != ST_OK) {
        return err_set(e, ST_NOMEM, NULL, "out of memory while tokenising %s", field);
    }
    status st = prompt_encode(tok, r, dropped, out, e);
    if (st != ST_OK) {
        return st;
    }
    if (out->len == n_prefix) {
        return err_set(e, ST_INVALID_FIELD, field, "%s is empty", field);
    }
    if (out->len >= (size_t)n_ctx) {
        return err_set(e, ST_CONTEXT_LENGTH, field,
                       "%s has %zu tokens and the context %d: there is no room for a reply", field, out->len,
                       (int)n_ctx);
    }
    return ST_OK;
}
