/*
 * Hermes, Qwen 2.5 and 3:
 *
 *     <tool_call>
 *     {"name": "f", "arguments": {...}}
 *     </tool_call>
 */
#include "text/reply_parser_int.h"

static const char *const openers[] = {"<tool_call>", NULL};
static const char *const behind_object[] = {"</tool_call>", "<tool_call>", NULL};

enum { AT_OBJECT, IN_OBJECT, BEHIND_OBJECT };

static reply_step hermes_open(reply_parser *p, size_t opener)
{
    p->state = AT_OBJECT;
    return STEP_MORE;
}

static reply_step behind_step(reply_parser *p, unsigned char c)
{
    size_t which = 0;
    if (p->n_mark == 0 && reply_is_space(c)) {
        return STEP_MORE;
    }
    reply_step step = reply_match(p, behind_object, c, &which);
    if (step == STEP_DONE && which == 1) { /* the closing marker was forgotten */
        reply_confirm(p, openers[0]);
        p->state = AT_OBJECT;
        return STEP_MORE;
    }
    return step;
}

static reply_step hermes_step(reply_parser *p, unsigned char c)
{
    reply_step step;
    switch (p->state) {
    case AT_OBJECT:
        if (reply_is_space(c)) {
            return STEP_MORE;
        }
        if (c != '{') {
            return STEP_FAIL;
        }
        envelope_begin(p, false);
        p->state = IN_OBJECT;
        return envelope_push(p, c);
    case IN_OBJECT:
        step = envelope_push(p, c);
        if (step == STEP_DONE) {
            p->state = BEHIND_OBJECT;
            return STEP_MORE;
        }
        return step;
    default:
        return behind_step(p, c);
    }
}

static reply_stop hermes_end(reply_parser *p, bool cut)
{
    return p->state == BEHIND_OBJECT ? STOP_CALLED : STOP_IN_CALL;
}

const reply_family tool_hermes = {openers, false, hermes_open, hermes_step, hermes_end};
