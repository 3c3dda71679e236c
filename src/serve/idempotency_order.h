/*
 * idempotency_order: what a journal keeps of a request, so that it can be begun again: one line of JSON, then the body.
 *
 * Pure functions, any thread.
 */
#ifndef HEARTH_SERVE_IDEMPOTENCY_ORDER_H
#define HEARTH_SERVE_IDEMPOTENCY_ORDER_H

#include <stdint.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/status.h"
#include "wire/frame.h"

typedef struct idempotency_order {
    const char *route, *request_id, *model; /* borrowed; of one that was read: from doc */
    const char *session;                    /* NULL = none */
    const char *model_digest;               /* "" = unknown */
    uint64_t seed;
    uint32_t numerics;
    bool knows_sampling;     /* else no worker had been ready: it is the first one's that takes it */
    frame_sampling sampling; /* what the model said of it */
    const char *body;        /* borrowed */
    size_t body_len;
    json_doc *doc; /* owned: of one that was read */
} idempotency_order;

/* Appends it. ST_NOMEM. */
status idempotency_order_put(buf *out, const idempotency_order *o);
/* text is borrowed for as long as *out is used. ST_BAD_FORMAT, ST_NOMEM: *out needs no release. */
status idempotency_order_get(const char *text, size_t len, idempotency_order *out);
void idempotency_order_release(idempotency_order *o);
/* What makes two requests the same: everything that the client has said. */
status idempotency_digest(const char *route, const char *session, const char *body, size_t len,
                          uint8_t out[SHA256_BYTES]);

#endif
