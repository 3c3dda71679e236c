/*
 * DeepSeek. V3 and R1, then V3.1:
 *
 *     <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f
 *     ```json
 *     {...}
 *     ```<｜tool▁call▁end｜><｜tool▁calls▁end｜>
 *
 *     <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{...}<｜tool▁call▁end｜><｜tool▁calls▁end｜>
 */
#include <string.h>

#include "text/reply_parser_int.h"

#define CALL_BEGIN "<｜tool▁call▁begin｜>"

static const char *const openers[] = {"<｜tool▁calls▁begin｜>", NULL};
static const char *const call_begin[] = {CALL_BEGIN, NULL};
static const char *const separator[] = {"<｜tool▁sep｜>", NULL};
static const char *const fence[] = {"```json", NULL};
static const char *const fence_end[] = {"```", NULL};
static const char *const call_end[] = {"<｜tool▁call▁end｜>", NULL};
static const char *const next[] = {CALL_BEGIN, "<｜tool▁calls▁end｜>", NULL};

enum { AT_CALL, IN_HEAD, AT_NAME, IN_NAME, AT_FENCE, AT_ARGS, IN_ARGS, AT_FENCE_END, AT_CALL_END, AT_NEXT };

static reply_step deepseek_open(reply_parser *p, size_t opener)
{
    p->state = AT_CALL;
    return STEP_MORE;
}

/* White space, then a literal; then `then`. */
static reply_step literal(reply_parser *p, const char *const *literals, unsigned char c, uint8_t then)
{
    if (p->n_mark == 0 && reply_is_space(c)) {
        return STEP_MORE;
    }
    reply_step step = reply_match(p, literals, c, NULL);
    if (step == STEP_DONE) {
        p->state = then;
        buf_reset(&p->word);
        return STEP_MORE;
    }
    return step;
}

static void head_put(reply_parser *p, unsigned char c)
{
    reply_keep(p, &p->word, &c, 1);
}

/* The name itself, or "function". */
static reply_step head_step(reply_parser *p, unsigned char c)
{
    size_t which;
    if (reply_search(p, separator, c, head_put, &which)) {
        p->state = AT_NAME;
        return STEP_MORE;
    }
    return p->word.len <= REPLY_MAX_NAME && c != '\n' ? STEP_MORE : STEP_FAIL;
}

static reply_step args_step(reply_parser *p, unsigned char c)
{
    reply_step step;
    if (p->state == AT_ARGS) {
        if (reply_is_space(c)) {
            return STEP_MORE;
        }
        if (c != '{') {
            return STEP_FAIL;
        }
        arguments_begin(p);
        p->state = IN_ARGS;
    }
    step = arguments_push(p, c);
    if (step == STEP_DONE) {
        p->state = p->fenced ? AT_FENCE_END : AT_CALL_END;
        return STEP_MORE;
    }
    return step;
}

static reply_step name_step(reply_parser *p, unsigned char c)
{
    if (p->state == AT_NAME) {
        if (reply_is_space(c)) {
            return STEP_MORE;
        }
        p->fenced = c != '{';
        if (!p->fenced) {
            if (p->word.len == 0) {
                return STEP_FAIL;
            }
            reply_call_named(p, p->word.data, p->word.len);
            p->state = AT_ARGS;
            return args_step(p, c);
        }
        buf_reset(&p->word);
        p->state = IN_NAME;
    }
    if (reply_is_space(c)) {
        reply_call_named(p, p->word.data, p->word.len);
        p->state = AT_FENCE;
        return STEP_MORE;
    }
    return c != '<' && c != '`' && reply_keep_name(p, &p->word, c) ? STEP_MORE : STEP_FAIL;
}

static reply_step next_step(reply_parser *p, unsigned char c)
{
    size_t which = 0;
    if (p->n_mark == 0 && reply_is_space(c)) {
        return STEP_MORE;
    }
    reply_step step = reply_match(p, next, c, &which);
    if (step != STEP_DONE || which == 1) {
        return step;
    }
    p->state = IN_HEAD;
    buf_reset(&p->word);
    return STEP_MORE;
}

static reply_step deepseek_step(reply_parser *p, unsigned char c)
{
    switch (p->state) {
    case AT_CALL:
        return literal(p, call_begin, c, IN_HEAD);
    case IN_HEAD:
        return head_step(p, c);
    case AT_NAME:
    case IN_NAME:
        return name_step(p, c);
    case AT_FENCE:
        return literal(p, fence, c, AT_ARGS);
    case AT_ARGS:
    case IN_ARGS:
        return args_step(p, c);
    case AT_FENCE_END:
        return literal(p, fence_end, c, AT_CALL_END);
    case AT_CALL_END:
        return literal(p, call_end, c, AT_NEXT);
    default:
        return next_step(p, c);
    }
}

static reply_stop deepseek_end(reply_parser *p, bool cut)
{
    static const char type[] = "function"; /* V3's head; any other is V3.1's name */
    if (p->state == AT_NAME && strcmp(buf_str(&p->word), type) != 0) {
        reply_call_named(p, buf_str(&p->word), p->word.len);
    }
    return p->state >= AT_FENCE_END ? STOP_CALLED : STOP_IN_CALL;
}

const reply_family tool_deepseek = {openers, false, deepseek_open, deepseek_step, deepseek_end};
