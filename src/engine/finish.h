/*
 * finish: why a reply ended, as one pure and total function (DESIGN 6).
 */
#ifndef HEARTH_ENGINE_FINISH_H
#define HEARTH_ENGINE_FINISH_H

#include <stdbool.h>

typedef enum finish_reason {
    FINISH_NONE, /* nothing of all this: a bug, reported as an error and counted */
    FINISH_STOP,
    FINISH_LENGTH,
    FINISH_TOOL_CALLS,
    FINISH_TIMEOUT,
    FINISH_CANCELLED
} finish_reason;

typedef struct finish_causes { /* everything that held when the last step was decided */
    bool deadline;
    bool cancelled;
    bool budget;  /* max_new_tokens used up */
    bool context; /* context ceiling reached */
    bool guard;   /* a repetition guard fired */
    bool end_token;
    bool stop_string;
    bool tool_calls_closed; /* the last tool call closed */
    int n_tool_calls;       /* complete ones */
} finish_causes;

/* deadline > cancelled > (budget, context, guard) > own end (end token, stop string, last tool call closed):
 * a cut is never `stop`, also when the reply ended by itself in the same step. */
finish_reason finish_of(const finish_causes *c);
const char *finish_name(finish_reason r); /* "stop", "length" … */
/* The two-valued finish_reason of the plain dialect: "stop" or "length". */
const char *finish_plain_name(finish_reason r);

#endif
