/*
 * reply_parser: the text of a reply, piece by piece, into content, reasoning and tool calls.
 *
 * It stands behind `detok` and `stop`: push what they release, in pieces of any size, then finish. Events come
 * out of push and finish, through the sink. Invariants:
 * 1. What the events add up to depends on the text alone, not on how it was cut.
 * 2. Only what may still become part of a marker, a call or trimmed white space is held back.
 * 3. A piece of whole UTF-8 characters gives deltas of whole characters, and no delta is empty.
 * 4. Nothing is an error but want of memory: what is no well-formed call is content. After ST_NOMEM (or an
 *    error of the sink) the parser may only be freed.
 * 5. Time is linear in the text, the C stack constant, memory in proportion to the text.
 *
 * Reasoning is the text between the format's markers, anywhere in the reply; calls spelled in it are none. Each
 * stretch of content or reasoning is trimmed (ASCII white space), empty ones vanish, the others are joined by one
 * newline: the newline comes as part of a delta.
 *
 * A call is BEGIN (name), ARGS deltas, END. The deltas joined are one JSON object by the grammar of RFC 8259,
 * as the model wrote it or, for the XML and Python forms, as we write it: keys may repeat, numbers have any size.
 * `call` counts the calls begun, from 0, and is never used twice. A call may turn out to be malformed after
 * BEGIN, or, inside a list or block of several, after END: then WITHDRAWN comes, and its text follows as content.
 * A call without END when the parser is finished was cut: it counts as none.
 *
 * A resumed reply is replayed: push the same text and ignore the events. There is no other way to copy a parser.
 *
 * Ownership: the tools are borrowed as long as the parser lives. One thread at a time.
 */
#ifndef HEARTH_TEXT_REPLY_PARSER_H
#define HEARTH_TEXT_REPLY_PARSER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/json.h"
#include "base/status.h"
#include "text/reply_format.h"

/* Bytes in a tool's or parameter's name. What is longer is no call, nor are arguments that nest deeper than
 * JSON_SCAN_MAX_DEPTH or, in the Python forms, PYTHON_MAX_DEPTH. */
#define REPLY_MAX_NAME 256u

typedef enum reply_event_kind {
    REPLY_CONTENT,       /* text */
    REPLY_REASONING,     /* text */
    REPLY_CALL_BEGIN,    /* call; text = name; id, if the reply carries one and it is known already */
    REPLY_CALL_ARGS,     /* call; text = the next part of its arguments */
    REPLY_CALL_END,      /* call; text = name; id, if the reply carries one */
    REPLY_CALL_WITHDRAWN /* call */
} reply_event_kind;

typedef struct reply_event {
    reply_event_kind kind;
    int call;
    const char *text; /* borrowed until the sink returns; not NUL-terminated */
    size_t len;
    const char *id; /* likewise; NULL if there is none */
    size_t id_len;
} reply_event;

/* May not call the parser. What it returns beside ST_OK ends the push that called it. */
typedef status (*reply_sink)(void *ctx, const reply_event *ev);

typedef struct reply_options {
    reply_format format;
    const json *tools;   /* array of definitions, {"type":"function","function":{...}} or flat; may be NULL */
    bool no_calls;       /* tool_choice none, or no tools: calls are not looked for, their text stays text */
    bool reasoning_open; /* the prompt has opened the reasoning */
} reply_options;

typedef struct reply_parser reply_parser;

status reply_parser_new(const reply_options *o, reply_sink sink, void *ctx, reply_parser **out);
void reply_parser_free(reply_parser *p);

status reply_parser_push(reply_parser *p, const char *text, size_t len);

typedef struct reply_end {
    /* Ended outside of calls, reasoning and harmony messages, and was not cut. (Where the end of a harmony message
     * is the token that ends the reply, and so not in its text, a final message is not complete.) */
    bool complete;
    bool in_call;          /* ended inside a call */
    const char *call_name; /* its name, if that was fully read, else NULL; borrowed from the parser */
    size_t call_name_len;
} reply_end;

/* The text is over; `cut` by a limit, so that its last call is not closed by the end where only the end would
 * close it (raw code). Releases what is held. Afterwards only the questions below and free. */
status reply_parser_finish(reply_parser *p, bool cut, reply_end *out);

/* Behind a finish that found the text inside a call, for a reply that ended there by itself: the call is withdrawn, and
 * where no call of its block has ended the block's text is content. */
status reply_parser_give_up(reply_parser *p);

/* Between pushes: */
bool reply_parser_in_reasoning(const reply_parser *p);
/* Calls that have ended and are not withdrawn. */
int reply_parser_calls(const reply_parser *p);
/* Whether the last thing in the text so far is a closed call, or block of calls. */
bool reply_parser_call_closed(const reply_parser *p);

#endif
