#include "worker/prompt.h"

#include <string.h>

#define MS_PER_S 1000

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

status prompt_encode(const tokenizer *tok, const wire_request *r, const atomic_bool *dropped, ivec *out,
                     err *e)
{
    status st = add_segments(tok, r, dropped, out);
    return st == ST_OK ? ST_OK
                       : err_set(e, st, NULL, "%s while tokenising %s", status_text(st), r->prompt_field);
}

/* Whether the request says its prompt's ids. */
static bool given(const wire_request *r)
{
    return r->resume && r->resume->prompt_ids;
}

static status build_given(const wire_resume *x, int32_t n_ctx, ivec *out, err *e)
{
    status st = ivec_append(out, x->prompt_ids, x->n_prompt_ids);
    return st == ST_OK ? prompt_check_room("resume.prompt_ids", out->len, n_ctx, e)
                       : err_set(e, st, NULL, "out of memory for a prompt");
}

status prompt_build(const tokenizer *tok, const ivec *prefix, const wire_request *r, int32_t n_ctx,
                    const atomic_bool *dropped, ivec *out, err *e)
{
    const char *field = r->prompt_field;
    size_t n_prefix = prefix ? prefix->len : 0;
    ivec_reset(out);
    if (given(r)) {
        return build_given(r->resume, n_ctx, out, e);
    }
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
    return prompt_check_room(field, out->len, n_ctx, e);
}

status prompt_check_room(const char *field, size_t n_tokens, int32_t n_ctx, err *e)
{
    if (n_tokens >= (size_t)n_ctx) {
        return err_set(e, ST_CONTEXT_LENGTH, field,
                       "%s has %zu tokens and the context %d: there is no room for a reply", field, n_tokens,
                       (int)n_ctx);
    }
    return ST_OK;
}

/*
 * Conversations
 */
static chat_input input_of(const wire_request *r, const recall *known, int64_t now_ms)
{
    return (chat_input){.messages = r->messages,
                        .reasoning = known->reasoning,
                        .tools = r->tool_choice == WIRE_TOOLS_NONE ? NULL : r->tools,
                        .kwargs = r->template_kwargs,
                        .effort = r->reasoning_effort,
                        .thinking = r->reasoning_enabled == WIRE_UNSAID ? CHAT_UNSAID
                                    : r->reasoning_enabled == WIRE_ON   ? CHAT_ON
                                                                        : CHAT_OFF,
                        .continue_final = r->continue_final_message,
                        .now_s = now_ms / MS_PER_S};
}

/* Adds the text that forces a call: behind the end of reasoning, if the prompt has opened one. */
static status open_call(const reply_format *f, const wire_request *r, prompt_talk *p, err *e)
{
    const char *name = r->tool_choice == WIRE_TOOLS_NAMED ? r->tool_name.data : NULL;
    const char *close = p->text.reasoning_open ? reply_format_reasoning_end(f) : "";
    buf opener = {0};
    status st = reply_format_opener(f, name, &opener);
    while (opener.len > 0 && opener.data[opener.len - 1] == ' ') {
        buf_truncate(&opener, opener.len - 1); /* it belongs to the model's next token */
    }
    if (st == ST_OK && opener.len == 0) {
        st = err_set(e, ST_UNSUPPORTED, "tool_choice",
                     "tool_choice: this model's form of calls has no beginning that could be forced");
    } else if (st == ST_OK) {
        st = buf_append_str(&p->opening, close);
        st = st == ST_OK ? buf_append(&p->opening, opener.data, opener.len) : st;
        st = st == ST_OK ? chat_text_append(&p->text, close, strlen(close)) : st;
        if (st == ST_OK) {
            st = name ? chat_text_append_named(&p->text, opener.data, opener.len, name)
                      : chat_text_append(&p->text, opener.data, opener.len);
        }
    }
    buf_release(&opener);
    return st;
}

static status render(const chat_template *t, const wire_request *r, int64_t now_ms, prompt_talk *out, err *e)
{
    chat_input in = input_of(r, &out->known, now_ms);
    status st = chat_template_render(t, &in, &out->text, e);
    if (st != ST_OK) {
        return st;
    }
    out->reasoning_open = out->text.reasoning_open;
    if (r->tool_choice == WIRE_TOOLS_REQUIRED || r->tool_choice == WIRE_TOOLS_NAMED) {
        st = open_call(chat_template_format(t), r, out, e);
    }
    return st;
}

status prompt_lay_out(const chat_template *t, const tokenizer *tok, turns *kept, const wire_request *r,
                      int64_t now_ms, prompt_talk *out, ivec *ids, err *e)
{
    recall *known = &out->known;
    const char *doing = "laying out";
    status st = recall_look(known, kept, r);
    if (st == ST_OK) {
        st = render(t, r, now_ms, out, e);
        if (st == ST_TEMPLATE || st == ST_UNSUPPORTED) {
            recall_settle(known);
            return st;
        }
    }
    if (st == ST_OK) {
        doing = "tokenising";
        st = recall_place(known, tok, &out->text);
    }
    if (st == ST_OK) {
        st = given(r) ? ivec_append(ids, r->resume->prompt_ids, r->resume->n_prompt_ids)
                      : chat_template_encode_spliced(t, &out->text, known->splices, known->n_splices, ids);
    }
    recall_settle(known);
    return st == ST_OK ? ST_OK : err_set(e, st, NULL, "%s while %s messages", status_text(st), doing);
}

void prompt_talk_release(prompt_talk *p)
{
    chat_text_release(&p->text);
    buf_release(&p->opening);
    recall_release(&p->known);
}
