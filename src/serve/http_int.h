/*
 * http_int: what the files of http share.
 *
 * Invariants of a connection:
 * 1. It is in exactly one phase; a phase has at most one timer, which is its deadline.
 * 2. `gone` is set only between HTTP_PHASE_REPLY and the end of the answer.
 * 3. It is freed only by conn_free, from a callback of the loop (event, timer, doom), never from inside a
 * call of its user.
 */
#ifndef HEARTH_SERVE_HTTP_INT_H
#define HEARTH_SERVE_HTTP_INT_H

#include <event2/bufferevent.h>
#include <event2/listener.h>

#include "base/buf.h"
#include "serve/http.h"

typedef enum http_phase {
    HTTP_PHASE_HEAD,  /* waiting for a request, or inside its headers */
    HTTP_PHASE_BODY,  /* headers accepted, body incomplete */
    HTTP_PHASE_REPLY, /* request handed over, answer incomplete */
    HTTP_PHASE_FLUSH, /* answered; the connection closes once all is sent */
    HTTP_PHASE_LINGER /* all sent and our side shut: what the client still sends is dropped, so that our last
                         answer is not lost to a reset */
} http_phase;

struct http_conn {
    http_server *server; /* borrowed */
    http_conn *prev, *next;

    /* owned */
    struct bufferevent *bev;
    struct event *timer; /* deadline of the phase */
    struct event *wake;  /* runs conn_advance, or frees a doomed connection, from the loop */
    http_reader reader;

    http_phase phase;
    bool head_timed; /* the deadline of the headers runs (not that of an idle connection) */
    bool answered;   /* the current request has its answer */
    bool keep;       /* the connection goes on after the current answer */
    bool chunked;    /* the stream's framing */
    bool streaming;  /* between stream_begin and stream_end */
    bool doomed;     /* to be freed from the loop; writes do nothing */
    bool at_end;     /* the client has sent its last byte */
    void (*gone)(void *ctx);
    void *gone_ctx;
};

struct http_server {
    http_config cfg;
    struct event_base *base; /* borrowed */
    /* owned */
    struct evconnlistener *listener;
    struct event *accept_timer; /* ends the pause after a failed accept */
    http_conn *conns;           /* list */
    buf url;

    size_t n_conns;
    http_budget budget;
    bool draining;
};

/* http_conn.c */
void conn_new(http_server *s, evutil_socket_t fd); /* takes fd; closes it if memory is out */
void conn_free(http_conn *c);
/* The current request has been answered in full. */
void conn_answered(http_conn *c);
void conn_doom(http_conn *c);
bool conn_is_idle(const http_conn *c);

/* http_listen.c: a connection has been freed */
void server_conn_freed(http_server *s);

#endif
