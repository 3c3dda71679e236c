/*
 * serve: the daemon. One loop thread (libevent) owns sockets, HTTP connections, queues and the connections to
 * the workers, one per model; it parses no model file and runs no tensor code. serve_run returns when SIGTERM
 * or SIGINT has been handled: no new connections, replies may finish for drain_ms, then they are ended with an
 * error; a second signal ends everything at once.
 */
#ifndef HEARTH_SERVE_SERVE_H
#define HEARTH_SERVE_SERVE_H

#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "serve/model_service.h"

#define SERVE_DEFAULT_MAX_BODY      ((size_t)6 << 20)
#define SERVE_DEFAULT_DRAIN_MS      3000
#define SERVE_DEFAULT_KEEPALIVE_MS  15000
#define SERVE_DEFAULT_SLOW_READER_S 120
#define SERVE_DEFAULT_SESSION_TTL_S 3600
#define SERVE_DEFAULT_SESSIONS      256
#define SERVE_DEFAULT_JOURNAL_BYTES ((uint64_t)256 << 20)

typedef enum sse_keepalive_kind { SSE_KEEPALIVE_COMMENT, SSE_KEEPALIVE_DELTA } sse_keepalive_kind;

typedef struct serve_model {  /* borrowed */
    const char *id;           /* what /v1/models calls it; unique */
    char *const *worker_argv; /* NULL-terminated; [0] is the program to exec */
} serve_model;

typedef struct serve_config { /* borrowed until serve_run returns */
    const serve_model *models;
    size_t n_models;         /* >= 1 */
    const char *host;        /* NULL with a unix_path = no TCP */
    uint16_t port;           /* 0 = any free one; the line "listening on http://HOST:PORT" tells which */
    const char *unix_path;   /* NULL = none */
    const char *keys_path;   /* file of API keys, NULL = everybody is the anonymous one */
    const char *journal_dir; /* answers of requests with an Idempotency-Key are kept here; NULL = nowhere */
    uint64_t journal_bytes;
    uint32_t numerics; /* version of the workers' arithmetic; 0 = unknown */
    size_t max_body_bytes;
    service_limits limits; /* of each model */
    uint64_t drain_ms;
    int slow_reader_s;         /* what the workers were told: a reply that nobody reads ends after it */
    uint64_t sse_keepalive_ms; /* 0 = off */
    sse_keepalive_kind sse_keepalive_kind;
    uint64_t session_ttl_ms;     /* a named session that is idle for so long ends */
    size_t max_sessions_per_key; /* named ones */
    const clock_src *clock;      /* NULL = the system's */
    /* Called once, when the socket listens and every model is ready or failed, one of them ready. */
    void (*listening)(void *ctx, const char *url);
    void *listening_ctx;
} serve_config;

/* Everything at its default: no models, 127.0.0.1 and any port. */
serve_config serve_config_default(void);

/* 0 after a clean shutdown; 1 if it could not start, or no model could be loaded (the reason is logged). */
int serve_run(const serve_config *cfg);

#endif
