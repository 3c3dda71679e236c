#include "worker/prompt.h"

static status add_segment(const tokenizer *tok, const wire_segment *s, bool first, ivec *out)
{
    if (s->ids) {
        return ivec_append(out, s->ids, s->n_ids);
    }
    unsigned flags = TOKENIZE_PARSE_SPECIAL | (first ? 0u : TOKENIZE_NO_PREFIX);
    return tokenizer_encode(tok, s->text.data, s->text.len, flags, out);
}

static status add_segments(const tokenizer *tok, const wire_request *r, ivec *out)
{
    status st = ST_OK;
    bool first = true; /* nothing but BOS before it */
    if (r->add_special && tokenizer_adds_bos(tok)) {
        st = ivec_push(out, tokenizer_bos(tok));
    }
    for (size_t i = 0; st == ST_OK && i < r->n_segments; i++) {
        const wire_segment *s = &r->segments[i];
        st = add_segment(tok, s, first, out);
        first = first && (s->ids ? s->n_ids : s->text.len) == 0;
    }
    if (st == ST_OK && r->add_special && tokenizer_adds_eos(tok)) {
        st = ivec_push(out, tokenizer_eos(tok));
    }
    return st;
}

status prompt_build(const tokenizer *tok, const ivec *prefix, const wire_request *r, int32_t n_ctx, ivec *out,
                    err *e)
{
    ivec_reset(out);
    status st = ivec_append(out, prefix->data, prefix->len);
    if (st == ST_OK) {
        st = add_segments(tok, r, out);
    }
    if (st != ST_OK) {
        return err_set(e, st, NULL, "out of memory while tokenising %s", r->prompt_field);
    }
    if (out->len == prefix->len) {
        return err_set(e, ST_INVALID_FIELD, r->prompt_field, "%s is empty", r->prompt_field);
    }
    if (out->len >= (size_t)n_ctx) {
        return err_set(e, ST_CONTEXT_LENGTH, r->prompt_field,
                       "%s has %zu tokens and the context %d: there is no room for a reply", r->prompt_field,
                       out->len, (int)n_ctx);
    }
    return ST_OK;
}
