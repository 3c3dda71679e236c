/*
 * errors: what each public status is called on the wire, which fields its frame adds, and which HTTP status
 * it becomes. One list for both ends (PROTOCOL 4). Pure functions over static tables: any thread, no errors.
 *
 * A status that is not in the list is our own affair: on the wire it is `internal`.
 */
#ifndef HEARTH_WIRE_ERRORS_H
#define HEARTH_WIRE_ERRORS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* X(status, wire name, HTTP status, first extra field, second extra field); "" = none */
#define WIRE_ERROR_LIST(X)                                                         \
    X(ST_BAD_REQUEST, "bad_request", 400, "", "")                                  \
    X(ST_INVALID_FIELD, "invalid_field", 400, "field", "value")                    \
    X(ST_CONTEXT_LENGTH, "context_length_exceeded", 400, "prompt_tokens", "limit") \
    X(ST_UNSUPPORTED, "unsupported", 400, "field", "")                             \
    X(ST_TEMPLATE, "template_error", 400, "", "")                                  \
    X(ST_CONSTRAINT, "constraint_error", 400, "path", "")                          \
    X(ST_NEVER_FITS, "never_fits", 400, "need", "have")                            \
    X(ST_UNSUPPORTED_SESSION, "unsupported_session", 400, "", "")                  \
    X(ST_UNKNOWN_ID, "unknown_id", 404, "", "")                                    \
    X(ST_CAPACITY, "capacity_exhausted", 429, "", "")                              \
    X(ST_QUEUE_FULL, "queue_full", 429, "retry_after", "")                         \
    X(ST_TIMEOUT, "timeout", 504, "", "")                                          \
    X(ST_LOAD_FAILED, "load_failed", 503, "", "")                                  \
    X(ST_MODEL_CHANGED, "model_changed", 503, "", "")                              \
    X(ST_WORKER_CRASHED, "worker_crashed", 503, "", "")                            \
    X(ST_DRAINING, "draining", 503, "", "")                                        \
    X(ST_RESUME_MISMATCH, "resume_mismatch", 500, "", "")                          \
    X(ST_NONFINITE, "nonfinite", 500, "", "")                                      \
    X(ST_INTERNAL, "internal", 500, "", "")

#define WIRE_ERROR_EXTRA_FIELDS 2

/* The public status that stands for st on the wire: st itself if it is in the list, else ST_INTERNAL. */
status wire_error_public(status st);
const char *wire_error_name(status st); /* "bad_request" …; "internal" for what is not in the list */
int wire_error_http(status st);         /* 400 … 504; 500 for what is not in the list */
/* The i-th extra field of the error's frame (i < WIRE_ERROR_EXTRA_FIELDS), "" if it has no such. */
const char *wire_error_field(status st, size_t i);
/* name need not end in NUL. False (out untouched) if there is no such code. */
bool wire_error_from_name(const char *name, size_t len, status *out);

#endif
