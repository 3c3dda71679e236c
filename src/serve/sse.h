/*
 * sse: one stream of server-sent events on a connection: data events of one JSON object each, and comments,
 * which every reader of event streams skips.
 *
 * An event is written whole or not at all; when memory for one is out, `failed` is set and nothing more is
 * written: the answer must not look whole. Loop thread only.
 */
#ifndef HEARTH_SERVE_SSE_H
#define HEARTH_SERVE_SSE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/clock.h"
#include "serve/http.h"

typedef struct sse_stream { /* conn and clock are set by the owner, the rest begins as zero */
    http_conn *conn;        /* borrowed */
    const clock_src *clock; /* borrowed */
    bool began;             /* the headers are out */
    bool failed;
    uint64_t last_ns; /* when something was written last */

    /* owned */
    buf event;
} sse_stream;

void sse_release(sse_stream *s);
void sse_begin(sse_stream *s); /* sends the headers; again: nothing */
/* Where the object of the next event goes; then sse_send with what appending it gave. Begins the stream. */
buf *sse_object(sse_stream *s);
/* The same of an event with a name: letters, digits, '.' and '_'. */
buf *sse_named_object(sse_stream *s, const char *name);
void sse_send(sse_stream *s, status appended);
/* One line of text without control characters. */
void sse_comment(sse_stream *s, const char *text);
/* "[DONE]" if whole, and the end of the response. */
void sse_end(sse_stream *s, bool whole);

#endif
