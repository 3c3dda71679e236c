/*
 * api: the HTTP interface: which request gets which answer. serve.c makes one api_context, fills it before the
 * first connection is accepted, and keeps it until the last is gone (the server is freed first); it is the ctx
 * of the three functions below, which go into http_config.
 *
 *   POST /v1/completions, /v1/chat/completions, /v1/responses, /tokenize, /detokenize, /apply-template
 *   GET /v1/models, /v1/models/{id}, /health, /ready, /metrics (HEAD where GET is)
 *   GET, DELETE /v1/requests/{id}, and what session_routes.h has
 *
 * OPTIONS on a known path is 204 with Allow, another method 405; what else begins with /v1/ is 501, any other
 * path 404. All but /health, /ready and /metrics ask for a key, where there are keys: 401 when the headers are
 * complete.
 *
 * All pointers are borrowed. Loop thread only.
 */
#ifndef HEARTH_SERVE_API_H
#define HEARTH_SERVE_API_H

#include <event2/event.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "serve/http.h"
#include "serve/keys.h"
#include "serve/metrics.h"
#include "serve/models.h"
#include "serve/request_table.h"
#include "serve/serve.h"
#include "serve/session_desk.h"

struct generation_route;
struct idempotency;
struct journal;

typedef struct api_context {
    struct event_base *base;
    const clock_src *clock;
    models *models;
    const keys *keys; /* NULL: no key is asked for, everybody is KEYS_ANONYMOUS */
    request_table *requests;
    session_desk *sessions;
    struct journal *journal;      /* NULL: none, then Idempotency-Key says nothing */
    struct idempotency *promises; /* over it */
    byte_budget *downloads;       /* what exports together may hold */
    metrics *metrics;
    uint64_t keepalive_ms; /* what a quiet stream is sent, and how often; 0 = nothing */
    sse_keepalive_kind keepalive_kind;
    uint64_t started_ns;                /* on the clock */
    size_t (*n_connections)(void *ctx); /* for /metrics; NULL = 0 */
    void *n_connections_ctx;
} api_context;

/* The routes of generations. */
const struct generation_route *const *api_generation_routes(size_t *n);

/* ctx is an api_context. */
void api_head(void *ctx, http_conn *c, const http_request *r);
void api_request(void *ctx, http_conn *c, const http_request *r);
void api_exchange(void *ctx, const http_exchange *x);

#endif
