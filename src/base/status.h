/*
 * status: the one list of outcomes, and err: the one way to explain a failure.
 *
 * A function that can fail returns `status` and takes an optional `err *` as its last argument. Outputs are
 * written only when it returns ST_OK. The message says in lower case what failed first, then why, with the
 * value. An err is plain data: no ownership, no thread. Passing NULL for it is always allowed.
 */
#ifndef HEARTH_BASE_STATUS_H
#define HEARTH_BASE_STATUS_H

#include <stdint.h>

/* X(name, number, text). Numbers never change: they are part of the public API (include/hearth.h). */
#define STATUS_LIST(X)                                      \
    X(ST_OK, 0, "ok")                                       \
    X(ST_NOMEM, 1, "out of memory")                         \
    X(ST_IO, 2, "input/output error")                       \
    X(ST_INTERNAL, 3, "internal error")                     \
    X(ST_BAD_REQUEST, 4, "bad request")                     \
    X(ST_INVALID_FIELD, 5, "invalid field")                 \
    X(ST_CONTEXT_LENGTH, 6, "context length exceeded")      \
    X(ST_UNSUPPORTED, 7, "not supported")                   \
    X(ST_TEMPLATE, 8, "template error")                     \
    X(ST_CONSTRAINT, 9, "constraint error")                 \
    X(ST_NEVER_FITS, 10, "can never fit")                   \
    X(ST_UNKNOWN_ID, 11, "unknown id")                      \
    X(ST_CAPACITY, 12, "capacity exhausted")                \
    X(ST_QUEUE_FULL, 13, "queue full")                      \
    X(ST_UNSUPPORTED_SESSION, 14, "sessions not supported") \
    X(ST_TIMEOUT, 15, "timed out")                          \
    X(ST_LOAD_FAILED, 16, "model cannot be loaded")         \
    X(ST_MODEL_CHANGED, 17, "model file changed")           \
    X(ST_WORKER_CRASHED, 18, "worker crashed")              \
    X(ST_DRAINING, 19, "draining")                          \
    X(ST_RESUME_MISMATCH, 20, "resume does not match")      \
    X(ST_NONFINITE, 21, "non-finite value")                 \
    X(ST_CANCELLED, 22, "cancelled")                        \
    X(ST_NOT_FOUND, 23, "not found")                        \
    X(ST_BAD_FORMAT, 24, "malformed file")                  \
    X(ST_CLOSED, 25, "closed")                              \
    X(ST_FULL, 26, "full")

typedef enum status {
#define X(name, number, text) name = (number),
    STATUS_LIST(X)
#undef X
} status;

#define ERR_NO_OFFSET UINT64_MAX

typedef struct err {
    status code;
    uint64_t offset; /* byte offset in the file or text at fault, or ERR_NO_OFFSET */
    char field[128]; /* field, key or tensor at fault, "" if none; cut, never overrun */
    char msg[384];   /* one line, lower case, with the value at fault */
} err;

/* "ok", "invalid field" … ; "unknown status" for a number that is not in the list. Static storage. */
const char *status_text(status st);
/* "ST_OK" … ; static storage. */
const char *status_name(status st);

/* Fills *e (if e is not NULL) and returns code, so that callers write `return err_set(...)`. field may be
 * NULL. Bytes of field and message that are not printable (or not UTF-8) are replaced with '?'. */
status err_set(err *e, status code, const char *field, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* The same with the byte offset at fault. */
status err_at(err *e, status code, uint64_t offset, const char *field, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
void err_clear(err *e);

#endif
