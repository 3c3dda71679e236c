/*
 * line: cuts a stream of bytes into lines and attachments (PROTOCOL 2 and 4).
 *
 * Bytes are pushed as they come; each complete line (up to, not including, its '\n') is handed to a callback,
 * in order, however the bytes were cut into pushes. Lines of nothing but JSON white space (space, tab, '\r')
 * are dropped without a call. A line of more than max_bytes is reported once, when it gets too long, and
 * skipped up to its '\n'. line_end hands out a last line that has no '\n'.
 *
 * A line that announces an attachment is followed, after its '\n', by so many raw bytes. Whoever reads the
 * line says so, from inside its callback: line_expect_attachment (the bytes come as one LINE_ATTACHMENT) or
 * line_skip_attachment (they are passed over, nothing is kept).
 *
 * One owner thread. Memory is bounded by max_bytes and WIRE_MAX_ATTACH_BYTES. Errors: want of memory never stops the
 * stream: the attachment is reported as LINE_NO_MEMORY at once, the line at its end, with its first LINE_HEAD_BYTES and,
 * of a longer one, its last LINE_TAIL_BYTES, so that who sent it can be told and what follows it is not taken for lines.
 */
#ifndef HEARTH_WIRE_LINE_H
#define HEARTH_WIRE_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

#define WIRE_MAX_LINE_BYTES   ((size_t)64 << 20) /* of the plain dialect */
#define WIRE_MAX_ATTACH_BYTES ((size_t)64 << 20)
#define LINE_HEAD_BYTES       2048
#define LINE_TAIL_BYTES       64

typedef enum line_kind {
    LINE_TEXT,
    LINE_TOO_LONG,
    LINE_NO_MEMORY,
    LINE_ATTACHMENT,
    LINE_TRUNCATED /* the stream ended inside an expected attachment */
} line_kind;

/* text[0..len) is borrowed during the call; "" with LINE_TOO_LONG, LINE_TRUNCATED and an attachment without memory.
 * Return false to stop. */
typedef bool (*line_fn)(void *ctx, line_kind kind, const char *text, size_t len);

typedef struct line_splitter {
    size_t max_bytes;
    bool skipping;        /* inside a line or attachment that was reported already, or is not wanted */
    bool lost;            /* there was no memory for the line that is skipped: it is to be reported */
    uint64_t attach_left; /* bytes of the attachment that are still to come */
    size_t n_edges;
    char edges[LINE_HEAD_BYTES +
               LINE_TAIL_BYTES]; /* of a line that came in pieces: its beginning, then its end */
    buf partial;                 /* owned: the line or attachment so far */
} line_splitter;

void line_init(line_splitter *s, size_t max_bytes);
void line_release(line_splitter *s);
/* ST_OK, or ST_CLOSED as soon as fn returned false (the rest of data is then lost). */
status line_push(line_splitter *s, const char *data, size_t n, line_fn fn, void *ctx);
status line_end(line_splitter *s, line_fn fn, void *ctx);

/* From inside the callback of the line that announced it, LINE_TEXT or (skip) LINE_NO_MEMORY. n in [1, WIRE_MAX_ATTACH_BYTES]. */
void line_expect_attachment(line_splitter *s, size_t n);
void line_skip_attachment(line_splitter *s, uint64_t n); /* any n; 0 = there is none */
/* From inside the callback of the LINE_ATTACHMENT: its bytes, the caller's from here on (mem_free); moved if they came in
 * more than one push, else copied. NULL: no memory. */
char *line_take_attachment(line_splitter *s, const char *text, size_t len);

/*
 * The sending side. Both change the line, a JSON object with at least one member and its '\n', that ends the
 * buffer; ST_NOMEM leaves the buffer as it was.
 */
status line_add_u64(buf *line, const char *key, uint64_t value); /* one more member */
/* n in [1, WIRE_MAX_ATTACH_BYTES]: adds "attach":n and the bytes after the line. */
status line_attach(buf *line, const void *data, size_t n);

#endif
