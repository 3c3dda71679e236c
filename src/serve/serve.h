/*
 * serve: the daemon. One loop thread (libevent) owns the listening socket, HTTP connections and the worker;
 * it parses no model file and runs no tensor code. serve_run returns when SIGTERM or SIGINT has been handled.
 *
 * Until "The wire and the front door": one model, one worker, plain dialect, requests to the worker one after
 * another in FIFO order, bounded (SERVE_MAX_WAITING); routes /v1/completions (streamed and not), /v1/models,
 * /health.
 */
#ifndef HEARTH_SERVE_SERVE_H
#define HEARTH_SERVE_SERVE_H

#include <stddef.h>
#include <stdint.h>

#define SERVE_MAX_WAITING      256u
#define SERVE_DEFAULT_MAX_BODY ((size_t)6 << 20)

typedef struct serve_config { /* borrowed until serve_run returns */
    const char *host;
    uint16_t port;            /* 0 = any free one; the line "listening on http://HOST:PORT" tells which */
    const char *model_id;     /* what /v1/models calls the model */
    char *const *worker_argv; /* NULL-terminated; [0] is the program to exec */
    size_t max_body_bytes;
    void (*listening)(void *ctx,
                      const char *url); /* called once, when the worker is ready and the socket listens */
    void *listening_ctx;
} serve_config;

/* 0 after a clean shutdown; 1 if it could not start (the reason is logged). */
int serve_run(const serve_config *cfg);

#endif
