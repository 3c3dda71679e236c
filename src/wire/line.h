/*
 * line: cuts a stream of bytes into lines.
 *
 * Bytes are pushed as they come; each complete line (up to, not including, its '\n') is handed to a callback,
 * in order, however the bytes were cut into pushes. Lines of nothing but JSON white space (space, tab, '\r')
 * are dropped without a call. A line of more than max_bytes is reported once, when it gets too long, and
 * skipped up to its '\n'; memory is bounded by max_bytes. line_end hands out a last line that has no '\n'.
 *
 * One owner thread. Errors: ST_NOMEM never stops the stream: the line is reported as LINE_NO_MEMORY and
 * skipped.
 */
#ifndef HEARTH_WIRE_LINE_H
#define HEARTH_WIRE_LINE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/status.h"

#define WIRE_MAX_LINE_BYTES ((size_t)64 << 20) /* of the plain dialect */

typedef enum line_kind { LINE_TEXT, LINE_TOO_LONG, LINE_NO_MEMORY } line_kind;

/* text[0..len) is borrowed during the call and "" unless kind is LINE_TEXT. Return false to stop. */
typedef bool (*line_fn)(void *ctx, line_kind kind, const char *text, size_t len);

typedef struct line_splitter {
    size_t max_bytes;
    bool skipping; /* inside a line that was reported already */
    buf partial;   /* owned: the line so far */
} line_splitter;

void line_init(line_splitter *s, size_t max_bytes);
void line_release(line_splitter *s);
/* ST_OK, or ST_CLOSED as soon as fn returned false (the rest of data is then lost). */
status line_push(line_splitter *s, const char *data, size_t n, line_fn fn, void *ctx);
status line_end(line_splitter *s, line_fn fn, void *ctx);

#endif
