/*
 * request: one line of the plain dialect, decoded and checked (PROTOCOL 2).
 *
 * wire_request_decode gives a request, or the one error frame that answers the line. Checked is everything
 * that needs no model: exactly one JSON object, the op, presence, type and range of each field (null is a
 * wrong type, a float literal is no integer). What needs the model (ids in the vocabulary, empty prompt,
 * context) is the worker's. Unknown fields are ignored. Lines with an `id` belong to the multiplexed dialect,
 * which this build does not speak, and are refused by name; so is cancel_request_id.
 *
 * A request is immutable plain data in one arena of its own (nothing of the line is borrowed): one thread
 * makes it, another may use and free it. Limits: line.h's line length, JSON_MAX_DEPTH,
 * WIRE_MAX_SESSION_ID_BYTES.
 */
#ifndef HEARTH_WIRE_REQUEST_H
#define HEARTH_WIRE_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/status.h"

#define WIRE_MAX_SESSION_ID_BYTES ((size_t)64 << 10)
#define WIRE_MAX_SEED             ((uint64_t)INT64_MAX)

typedef enum wire_op { WIRE_GENERATE, WIRE_OPEN, WIRE_CLOSE, WIRE_RESET } wire_op;

typedef struct wire_string { /* may hold NUL bytes; a NUL that is not counted follows */
    const char *data;
    size_t len;
} wire_string;

typedef struct wire_segment { /* text, or ids where ids is not NULL */
    wire_string text;
    const int32_t *ids; /* in the vocabulary */
    size_t n_ids;
} wire_segment;

typedef struct wire_request {
    wire_op op;
    wire_string session_id; /* empty: anonymous (generate only) */

    /* generate */
    const char
        *prompt_field; /* which of the two it was: "prompt" (then one text segment) or "prompt_segments" */
    const wire_segment *segments;
    size_t n_segments;
    bool add_special;
    int32_t max_new_tokens;   /* >= 1, or -1: the rest of the context */
    double temperature;       /* finite, >= 0 */
    double top_p;             /* (0, 1] */
    int32_t top_k;            /* >= 0 */
    uint64_t seed;            /* 0 … WIRE_MAX_SEED; 0 = draw one */
    const wire_string *stops; /* none of them empty */
    size_t n_stops;

    /* owned */
    arena mem; /* all of the above */
} wire_request;

/* Token ids must be in [0, n_vocab). ST_OK and *out (wire_request_free), or another status: then the whole
 * error frame was appended to answer (unless memory ran out even for that: answer is as it was), and *e (may
 * be NULL) has the same code, field and message. */
status wire_request_decode(const char *line, size_t len, int32_t n_vocab, wire_request **out, buf *answer,
                           err *e);
void wire_request_free(wire_request *r);
size_t wire_request_bytes(const wire_request *r); /* of memory that it holds */

#endif
