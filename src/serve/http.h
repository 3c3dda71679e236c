/*
 * http: the listening sockets and their connections, over libevent buffers.
 *
 * A connection carries one exchange at a time: `head` is called when a request's headers are complete (before
 * its body is read; it may answer at once, to refuse), then `request` when the body is there. `request` must
 * answer, now or later: http_conn_reply, or http_conn_stream_begin … http_conn_stream_end. The next request
 * of the connection is parsed after that. Whoever answers later sets http_conn_on_gone; it is called once if
 * the client leaves before the answer is complete, and after it the connection must not be touched any more.
 *
 * A client is gone when its socket is reset or fully closed; noticed within a second in every phase of a
 * request. A client that only shut its write side (FIN) looks the same at first: on TCP it is probed, at once
 * and then once a second, a stream with an SSE comment, an unanswered HTTP/1.1 request with "102 Processing".
 * A closed peer resets, a half-closed one reads on and gets its whole reply. A Unix socket tells without a
 * probe; for HTTP/1.0 FIN is gone. (The FIN of a client that left more requests unread behind the waiting one
 * than the sockets hold does not come through: the first byte that is sent to it finds out.)
 *
 * A refusal by `head` keeps the connection if it can: no body, or at most HTTP_SKIP_BYTES that are still to
 * come (read and dropped); else the connection is closed, after the client had time to read the answer.
 *
 * Every reply carries X-Request-Id. Every exchange ends with one line in the log and one call of on_exchange.
 *
 * One loop thread. Nothing here blocks; calls into a connection never call the handler back, and never free
 * the connection: that happens from the loop.
 *
 * Limits: the fields of http_config. Errors of the framing are answered here, in the API's shape, and close
 * the connection.
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

#define HTTP_BODY_BUDGET ((size_t)256 << 20)

typedef struct http_server http_server;
typedef struct http_conn http_conn;

typedef struct http_handler { /* r is borrowed for the call; what must live longer is copied */
    void (*head)(void *ctx, http_conn *c, const http_request *r);
    void (*request)(void *ctx, http_conn *c, const http_request *r);
    void *ctx;
} http_handler;

typedef struct http_exchange { /* one request and what became of it; borrowed for the call */
    const char *method, *path; /* "-" if the headers never were complete; the path has no query */
    const char *id, *user;     /* user: "-" if none was set */
    int status;                /* 0: gone before an answer had begun */
    uint64_t bytes_out;        /* of the answer, headers included, handed to the socket's buffer */
    double ms;                 /* from the complete headers to the end */
    bool gone;                 /* the client left, or was dropped, before the answer was complete */
} http_exchange;

typedef struct http_config { /* borrowed until http_server_free */
    const char *host;        /* a name, an IPv4 or IPv6 address; NULL or "" with unix_path: no TCP */
    uint16_t port;           /* 0 = any free one */
    const char
        *unix_path; /* a socket of mode 0600, removed at the end; a stale one is replaced. NULL = none */
    size_t max_body_bytes;
    http_handler handler;
    void (*on_exchange)(void *ctx, const http_exchange *x); /* NULL = none; must not touch a connection */
    void *on_exchange_ctx;
    const clock_src *clock;

    /* limits; http_config_default sets them */
    size_t max_connections; /* 1,024; more wait in the kernel's queue */
    int head_s;             /* 10: a request's headers, in all */
    int body_s;             /* 300: a request's body, in all */
    int idle_s;             /* 75: between requests */
    int write_s;            /* 60: a client that takes no byte */
    int linger_s;           /* 10: for a client to read a last answer while it still sends */
    size_t max_unsent;      /* 4 MiB of a stream; above it the client is dropped */
    byte_budget *bodies; /* bodies of all connections together; NULL: one of the server's own, of 256 MiB */
    size_t pause_at;     /* 256 KiB unsent: see http_conn_on_slow */
    size_t continue_at;  /* 128 KiB */
} http_config;

/* The limits, 6 MiB of body, the system's clock, 127.0.0.1; the rest 0. */
http_config http_config_default(void);

typedef struct http_reply {
    int status;
    const char *content_type; /* NULL = application/json */
    const char *allow;        /* the methods of a 405 or of OPTIONS, else NULL */
    int retry_after_s;        /* 0 = none */
    const char *headers;      /* more of them: whole lines, each with its "\r\n"; NULL = none */
    const char *body;         /* borrowed; left out for HEAD and 204 */
    size_t body_len;
    held_bytes *held; /* the body instead of `body`: taken, and freed when it is sent; NULL = none */
} http_reply;

/* Binds and listens. ST_IO with the reason. */
status http_server_open(struct event_base *base, const http_config *cfg, http_server **out, err *e);
void http_server_free(http_server *s); /* cuts what is left; on_gone is called for each waiting client */
/* "http://HOST:PORT" with the real port, or "unix:PATH" if there is no TCP; owned by the server. */
const char *http_server_url(const http_server *s);
/* No new connections; idle ones are closed now, the others after what they carry. */
void http_server_drain(http_server *s);
size_t http_server_n_connections(const http_server *s);

/* The client's X-Request-Id if it is 1 … 64 characters of [A-Za-z0-9_.-], else "req_" and 24 random hex digits.
 * From `head` to the end of the exchange. */
const char *http_conn_request_id(const http_conn *c);
/* The name of the client's key, for the log; copied, cut at 47 bytes. */
void http_conn_set_user(http_conn *c, const char *name);
/* In `head`: a lower limit for the body of this request; a longer one is refused with 413. */
void http_conn_limit_body(http_conn *c, size_t max_bytes);
/* In `head`: a body of this request may be longer than max_body_bytes. */
void http_conn_allow_body(http_conn *c, size_t max_bytes);
/* In `request`: its body, with what it takes of the budget for bodies. NULL: no memory. */
held_bytes *http_conn_take_body(http_conn *c);

void http_conn_on_gone(http_conn *c, void (*gone)(void *ctx), void *ctx);
/* slow(ctx, true) when more than pause_at bytes of a stream are unsent, slow(ctx, false) when they are below
 * continue_at again; never from inside a call into the connection, never after the end of the answer. */
void http_conn_on_slow(http_conn *c, void (*slow)(void *ctx, bool is_slow), void *ctx);
void http_conn_reply(http_conn *c, const http_reply *reply);
/* A stream of server-sent events. */
void http_conn_stream_begin(http_conn *c);
/* n > 0 bytes of whole events: a probe may come between two writes. */
void http_conn_stream_write(http_conn *c, const char *data, size_t n);
void http_conn_stream_end(http_conn *c);
/* In place of that, where something of it is missing: the connection is lost, so that the client knows. */
void http_conn_stream_cut(http_conn *c);

#endif
