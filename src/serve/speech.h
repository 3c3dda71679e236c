/*
 * speech: what one choice has said so far, put together from the worker's frames: runs of content, runs of
 * reasoning and calls, in the order in which they began. A plain answer is made of it, and a stream of
 * /v1/responses whose last events tell all that was said before.
 *
 * A withdrawn call stays as an item that is void: nothing that comes later has its place. A call that was cut
 * has the arguments it got so far.
 *
 * One owner thread. All-zero is an empty reply. Memory is that of the frames.
 */
#ifndef HEARTH_SERVE_SPEECH_H
#define HEARTH_SERVE_SPEECH_H

#include <stdbool.h>

#include "base/buf.h"
#include "wire/frame.h"

typedef enum speech_kind { SPEECH_TEXT, SPEECH_THOUGHT, SPEECH_CALL } speech_kind;

typedef struct speech_item {
    speech_kind kind;
    int32_t call; /* its index on the wire; -1 = no call */
    bool closed, withdrawn;

    /* owned */
    buf text; /* of a call: its arguments */
    buf id, name;
} speech_item;

typedef struct speech {
    buf items; /* owned: of speech_item */
} speech;

void speech_release(speech *r);
size_t speech_len(const speech *r);
speech_item *speech_at(const speech *r, size_t i);
/* Appends to the last item, or begins one. ST_NOMEM: r is incomplete. */
status speech_add_text(speech *r, speech_kind kind, const char *text, size_t len);
/* What a token or delta frame says. *item (may be NULL): where it went, SIZE_MAX = nowhere. ST_BAD_REQUEST: a
 * call that goes on without having begun. */
status speech_add(speech *r, const frame *f, size_t *item);
/* Appends the text of all items of a kind. */
status speech_join(const speech *r, speech_kind kind, buf *out);
/* Calls that count: not withdrawn. */
size_t speech_n_calls(const speech *r);

#endif
