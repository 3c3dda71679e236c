#include "engine/finish.h"

#include <stddef.h>

finish_reason finish_of(const finish_causes *c)
{
    if (c->deadline) {
        return FINISH_TIMEOUT;
    }
    if (c->cancelled) {
        return FINISH_CANCELLED;
    }
    if (c->budget || c->context || c->guard) {
        return FINISH_LENGTH; /* a cut is never `stop` */
    }
    if (c->end_token || c->stop_string || c->tool_calls_closed) {
        return c->n_tool_calls > 0 ? FINISH_TOOL_CALLS : FINISH_STOP;
    }
    return FINISH_NONE;
}

const char *finish_name(finish_reason r)
{
    static const char *const names[] = {"none", "stop", "length", "tool_calls", "timeout", "cancelled"};
    return (size_t)r < sizeof names / sizeof names[0] ? names[r] : names[FINISH_NONE];
}

const char *finish_plain_name(finish_reason r)
{
    return r == FINISH_LENGTH || r == FINISH_TIMEOUT ? "length" : "stop";
}
