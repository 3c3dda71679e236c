/*
 * http: the listening socket and its connections, over libevent buffers.
 *
 * A connection carries one exchange at a time: `head` is called when a request's headers are complete (before
 * its body is read; it may answer at once, to refuse), then `request` when the body is there. `request` must
 * answer, now or later: http_conn_reply, or http_conn_stream_begin … http_conn_stream_end. The next request
 * of the connection is parsed after that. Whoever answers later sets http_conn_on_gone; it is called once if
 * the client leaves before the answer is complete, and after it the connection must not be touched any more.
 *
 * A client has gone when its socket is reset or its end of the stream is seen (FIN) while it waits; a client
 * that only shut its write side is taken for gone too.
 *
 * One loop thread. Nothing here blocks; calls into a connection never call the handler back, and never free
 * the connection: that happens from the loop.
 *
 * Limits: HTTP_MAX_CONNECTIONS (more wait in the kernel's queue), headers HTTP_HEAD_S in all, body
 * HTTP_BODY_S in all, an idle connection HTTP_IDLE_S, a client that takes no byte HTTP_WRITE_S, unsent bytes
 * of a stream HTTP_MAX_UNSENT (then the client is dropped), bodies together HTTP_BODY_BUDGET. Errors of the
 * framing are answered here, in the API's shape, and close the connection.
 */
#ifndef HEARTH_SERVE_HTTP_H
#define HEARTH_SERVE_HTTP_H

#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/status.h"
#include "serve/http_reader.h"

#define HTTP_MAX_CONNECTIONS 1024
#define HTTP_HEAD_S          10
#define HTTP_BODY_S          300
#define HTTP_IDLE_S          75
#define HTTP_WRITE_S         60
#define HTTP_LINGER_S        2
#define HTTP_MAX_UNSENT      ((size_t)4 << 20)
#define HTTP_BODY_BUDGET     ((size_t)256 << 20)

typedef struct http_server http_server;
typedef struct http_conn http_conn;

typedef struct http_handler { /* r is borrowed for the call; what must live longer is copied */
    void (*head)(void *ctx, http_conn *c, const http_request *r);
    void (*request)(void *ctx, http_conn *c, const http_request *r);
    void *ctx;
} http_handler;

typedef struct http_config { /* borrowed until http_server_free */
    const char *host;
    uint16_t port; /* 0 = any free one */
    size_t max_body_bytes;
    http_handler handler;
    const clock_src *clock;
} http_config;

typedef struct http_reply {
    int status;
    const char *content_type; /* NULL = application/json */
    const char *allow;        /* the methods of a 405, else NULL */
    int retry_after_s;        /* 0 = none */
    const char *body;         /* borrowed */
    size_t body_len;
} http_reply;

/* Binds and listens. ST_IO with the reason. */
status http_server_open(struct event_base *base, const http_config *cfg, http_server **out, err *e);
void http_server_free(http_server *s); /* cuts what is left; on_gone is called for each waiting client */
/* "http://HOST:PORT" with the real port; owned by the server. */
const char *http_server_url(const http_server *s);
/* No new connections; idle ones are closed now, the others after what they carry. */
void http_server_drain(http_server *s);
size_t http_server_n_connections(const http_server *s);

void http_conn_on_gone(http_conn *c, void (*gone)(void *ctx), void *ctx);
void http_conn_reply(http_conn *c, const http_reply *reply);
/* A stream of server-sent events. */
void http_conn_stream_begin(http_conn *c);
void http_conn_stream_write(http_conn *c, const char *data, size_t n); /* n > 0 */
void http_conn_stream_end(http_conn *c);

#endif
