/*
 * http_int: what the files of http share.
 *
 * Invariants of a connection:
 * 1. It is in exactly one phase; a phase has at most one timer: its deadline, or in HTTP_PHASE_REPLY the next
 * probe of a client that has sent FIN.
 * 2. `gone` and `slow` are set only until the end of the answer.
 * 3. It is freed only by conn_free, from a callback of the loop (event, timer, doom), never from inside a
 * call of its user.
 * 4. Nothing is read while a request waits for its answer, so the end of the stream is not seen by the
 * bufferevent then: the server's own epoll sees it (http_gone.c).
 */
#ifndef HEARTH_SERVE_HTTP_INT_H
#define HEARTH_SERVE_HTTP_INT_H

#include <event2/bufferevent.h>
#include <event2/listener.h>
#include <sys/types.h>

#include "base/buf.h"
#include "serve/http.h"

#define HTTP_ID_BYTES   65 /* with its NUL */
#define HTTP_USER_BYTES 48

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
    bool is_unix;
    bool head_timed;    /* the deadline of the headers runs (not that of an idle connection) */
    bool overdue;       /* the deadline has passed; what has come or gone by then is looked at first */
    bool answered;      /* the current request has its answer */
    bool keep;          /* the connection goes on after the current answer */
    bool chunked;       /* the stream's framing */
    bool streaming;     /* between stream_begin and stream_end */
    bool bare;          /* the answer has no body: HEAD */
    bool doomed;        /* to be freed from the loop; writes do nothing */
    bool at_end;        /* the client has sent its last byte, and it was read */
    bool half_closed;   /* FIN was seen in this HTTP_PHASE_REPLY */
    bool written;       /* a piece of the stream since the last probe: it did the probe's work */
    bool is_slow;       /* what `slow` was told last */
    uint64_t probed_ns; /* 0 = never */
    size_t flush_left;  /* unsent when the deadline of HTTP_PHASE_FLUSH was set */
    void (*gone)(void *ctx);
    void *gone_ctx;
    void (*slow)(void *ctx, bool is_slow);
    void *slow_ctx;

    /* the exchange, from its headers to the end of its answer (http_exchange.c) */
    bool in_exchange;
    int status; /* 0 = no answer has begun */
    uint64_t begin_ns;
    uint64_t bytes_out;
    char id[HTTP_ID_BYTES];
    char user[HTTP_USER_BYTES];
};

struct http_server {
    http_config cfg;
    struct event_base *base; /* borrowed */
    /* owned */
    struct evconnlistener *listeners[2]; /* TCP, Unix; NULL = none */
    struct event *accept_timer;          /* ends the pause after a failed accept */
    int watch_fd;                        /* epoll; -1 = none */
    struct event *watch;
    http_conn *conns; /* list */
    buf url;
    dev_t unix_dev; /* of the socket file that is ours to remove; 0, 0 = none */
    ino_t unix_ino;

    size_t n_conns;
    byte_budget own_bodies;
    byte_budget *bodies; /* borrowed, or own_bodies */
    bool draining;
};

/* http_conn.c */
void conn_new(http_server *s, evutil_socket_t fd, bool is_unix); /* takes fd; closes it if memory is out */
void conn_free(http_conn *c);
/* The current request has been answered in full. */
void conn_answered(http_conn *c);
void conn_doom(http_conn *c);
void conn_wake(http_conn *c); /* lets the loop look at it */
bool conn_is_idle(const http_conn *c);
size_t conn_unsent(const http_conn *c);

/* http_reply.c */
void conn_write_continue(http_conn *c);
void conn_write_probe(http_conn *c); /* for a client that has sent FIN: does it still read? */

/* http_gone.c */
status watch_open(http_server *s, err *e);
void watch_close(http_server *s); /* takes half-built */
bool watch_add(http_conn *c);     /* false: the kernel refused */
void watch_remove(http_conn *c);  /* takes one that was never added */
void watch_reply(http_conn *c);   /* HTTP_PHASE_REPLY begins */
void watch_timer(http_conn *c);   /* the timer of HTTP_PHASE_REPLY */

/* http_exchange.c */
status exchange_init(err *e);               /* once per server: the source of random ids */
void exchange_begin(http_conn *c);          /* does nothing inside an exchange */
void exchange_end(http_conn *c, bool gone); /* does nothing outside of one */

/* http_listen.c */
status listen_open(http_server *s, err *e);
void listen_close(http_server *s);
void listen_conn_freed(http_server *s); /* a connection has been freed */

#endif
