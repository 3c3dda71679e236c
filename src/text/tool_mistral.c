/*
 * Mistral, two forms:
 *
 *     [TOOL_CALLS][{"name": "f", "arguments": {...}, "id": "9 letters"}, ...]
 *     [TOOL_CALLS]f[ARGS]{...}     perhaps with [CALL_ID]9 letters before [ARGS]
 */
#include "text/reply_parser_int.h"

static const char *const openers[] = {"[TOOL_CALLS]", NULL};
static const char *const behind_name[] = {"[ARGS]", "[CALL_ID]", NULL};
static const char *const behind_id[] = {"[ARGS]", NULL};

enum {
    AT_START,
    AT_FIRST,
    IN_OBJECT,
    AT_COMMA,
    AT_NEXT,
    IN_NAME,
    BEHIND_NAME,
    IN_ID,
    BEHIND_ID,
    AT_ARGS,
    IN_ARGS
};

static reply_step mistral_open(reply_parser *p, size_t opener)
{
    p->state = AT_START;
    buf_reset(&p->word);
    reply_call_drop(p);
    return STEP_MORE;
}

static reply_step begin_object(reply_parser *p, unsigned char c)
{
    if (c != '{') {
        return STEP_FAIL;
    }
    envelope_begin(p, false);
    p->state = IN_OBJECT;
    return envelope_push(p, c);
}

static reply_step list_step(reply_parser *p, unsigned char c)
{
    reply_step step;
    if (p->state == IN_OBJECT) {
        step = envelope_push(p, c);
        if (step == STEP_DONE) {
            p->state = AT_COMMA;
            return STEP_MORE;
        }
        return step;
    }
    if (reply_is_space(c)) {
        return STEP_MORE;
    }
    if (c == ']' && p->state != AT_NEXT) {
        return STEP_DONE;
    }
    if (p->state != AT_COMMA) {
        return begin_object(p, c);
    }
    p->state = AT_NEXT;
    return c == ',' ? STEP_MORE : STEP_FAIL;
}

/* A name or id up to '['. */
static reply_step word_step(reply_parser *p, unsigned char c, buf *b)
{
    if (c != '[') {
        bool good = reply_is_word(c) || c == '-' || c == '.' || c == '/' || c == ':';
        return good && reply_keep_name(p, b, c) ? STEP_MORE : STEP_FAIL;
    }
    if (b->len == 0) {
        return STEP_FAIL;
    }
    if (p->state == IN_NAME) {
        reply_call_named(p, b->data, b->len);
    }
    p->state = p->state == IN_NAME ? BEHIND_NAME : BEHIND_ID;
    return reply_match(p, behind_name, c, NULL);
}

static reply_step named_step(reply_parser *p, unsigned char c)
{
    size_t which = 0;
    reply_step step;
    switch (p->state) {
    case BEHIND_NAME:
    case BEHIND_ID:
        step = reply_match(p, p->state == BEHIND_ID ? behind_id : behind_name, c, &which);
        if (step == STEP_DONE) {
            p->state = which == 0 ? AT_ARGS : IN_ID;
            return STEP_MORE;
        }
        return step;
    case AT_ARGS:
        if (reply_is_space(c)) {
            return STEP_MORE;
        }
        if (c != '{') {
            return STEP_FAIL;
        }
        arguments_begin(p);
        p->state = IN_ARGS;
        return arguments_push(p, c);
    default:
        return arguments_push(p, c);
    }
}

static reply_step mistral_step(reply_parser *p, unsigned char c)
{
    switch (p->state) {
    case AT_START:
        if (reply_is_space(c)) {
            return STEP_MORE;
        }
        p->state = c == '[' ? AT_FIRST : IN_NAME;
        return c == '[' ? STEP_MORE : word_step(p, c, &p->word);
    case AT_FIRST:
    case IN_OBJECT:
    case AT_COMMA:
    case AT_NEXT:
        return list_step(p, c);
    case IN_NAME:
        return word_step(p, c, &p->word);
    case IN_ID:
        return word_step(p, c, &p->id);
    default:
        return named_step(p, c);
    }
}

static reply_stop mistral_end(reply_parser *p, bool cut)
{
    return p->state == AT_COMMA ? STOP_CALLED : STOP_IN_CALL;
}

const reply_family tool_mistral = {openers, false, mistral_open, mistral_step, mistral_end};
