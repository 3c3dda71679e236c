/*
 * Hermes, Qwen 2.5 and 3:
 *
 *     <tool_call>
 *     {"name": "f", "arguments": {...}}
 *     </tool_call>
 */
#include "text/reply_parser_int.h"

static const char *const openers[] = {"<tool_call>", NULL};
static const char *const closer[] = {"</tool_call>", NULL};

enum { AT_OBJECT, IN_OBJECT, AT_CLOSER };

static reply_step hermes_open(reply_parser *p, size_t opener)
{
    p->state = AT_OBJECT;
    return STEP_MORE;
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
            p->state = AT_CLOSER;
            return STEP_MORE;
        }
        return step;
    default:
        return p->n_mark == 0 && reply_is_space(c) ? STEP_MORE : reply_match(p, closer, c, NULL);
    }
}

static reply_stop hermes_end(reply_parser *p, bool cut)
{
    return p->state == AT_CLOSER ? STOP_CALLED : STOP_IN_CALL;
}

const reply_family tool_hermes = {openers, false, hermes_open, hermes_step, hermes_end};
