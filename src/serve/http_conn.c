#include <event2/buffer.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "serve/api_error.h"
#include "serve/http_int.h"

#define READ_AHEAD_BYTES   ((size_t)64 << 10) /* kept of what a client sends too early */
#define MAX_PIPELINE_BYTES ((size_t)64 << 10) /* unsent; above it the next pipelined request waits */

static void conn_advance(http_conn *c);

static struct evbuffer *input(const http_conn *c)
{
    return bufferevent_get_input(c->bev);
}

static size_t unsent(const http_conn *c)
{
    return evbuffer_get_length(bufferevent_get_output(c->bev));
}

/* seconds 0: no deadline */
static void set_phase(http_conn *c, http_phase phase, int seconds)
{
    const struct timeval tv = {seconds, 0};
    c->phase = phase;
    evtimer_del(c->timer);
    if (seconds > 0) {
        evtimer_add(c->timer, &tv);
    }
}

void conn_doom(http_conn *c)
{
    c->doomed = true;
    event_active(c->wake, 0, 0);
}

bool conn_is_idle(const http_conn *c)
{
    return c->phase == HTTP_PHASE_HEAD && !http_reader_started(&c->reader) && unsent(c) == 0;
}

/* What a client sends too early stays with it. (Not a high watermark: above it libevent calls on_read again
 * and again.) */
static void regulate_reading(http_conn *c)
{
    bool full = evbuffer_get_length(input(c)) >= READ_AHEAD_BYTES;
    bool reading = bufferevent_get_enabled(c->bev) & EV_READ;
    if (full && reading) {
        bufferevent_disable(c->bev, EV_READ);
    } else if (!full && !reading && !c->at_end) {
        bufferevent_enable(c->bev, EV_READ);
    }
}

static void drop_input(http_conn *c)
{
    evbuffer_drain(input(c), evbuffer_get_length(input(c)));
    regulate_reading(c);
}

/* Answered for good: close once all is sent. */
static void begin_flush(http_conn *c)
{
    set_phase(c, HTTP_PHASE_FLUSH, 0);
    event_active(c->wake, 0, 0); /* if nothing is unsent no other event would come */
}

/* In HTTP_PHASE_FLUSH. May free c. */
static void flush_step(http_conn *c)
{
    http_reader_drop_body(&c->reader);
    drop_input(c);
    if (unsent(c) > 0) {
        return;
    }
    if (c->at_end || shutdown(bufferevent_getfd(c->bev), SHUT_WR) != 0) {
        conn_free(c);
        return;
    }
    set_phase(c, HTTP_PHASE_LINGER, HTTP_LINGER_S);
}

void conn_answered(http_conn *c)
{
    c->answered = true;
    c->gone = NULL;
    if (!c->keep) {
        begin_flush(c);
    } else if (c->phase == HTTP_PHASE_REPLY) {
        event_active(c->wake, 0, 0); /* not now: we are inside a call of the user */
    } /* else refused at its head, no body follows: conn_advance goes on to its end */
}

/* The framing is broken, or too slow: answer and close. */
static void answer_fault(http_conn *c, int http_status, const char *message)
{
    api_fault fault;
    buf body = {0};
    api_fault_http(&fault, http_status, message);
    api_fault_put(&fault, &body); /* without memory: an empty body */
    c->reader.request.keep_alive = false;
    http_conn_reply(c, &(http_reply){.status = http_status,
                                     .retry_after_s = fault.retry_after_s,
                                     .body = buf_str(&body),
                                     .body_len = body.len});
    buf_release(&body);
}

static void next_request(http_conn *c)
{
    http_reader_next(&c->reader);
    c->answered = false;
    c->head_timed = false;
    if (c->server->draining) {
        begin_flush(c);
    } else {
        set_phase(c, HTTP_PHASE_HEAD, HTTP_IDLE_S);
    }
}

static void head_complete(http_conn *c)
{
    const http_handler *h = &c->server->cfg.handler;
    const http_request *r = &c->reader.request;
    h->head(h->ctx, c, r);
    if (c->answered || !r->has_body) {
        return;
    }
    set_phase(c, HTTP_PHASE_BODY, HTTP_BODY_S);
    if (r->expect_100 && r->minor >= 1) {
        bufferevent_write(c->bev, "HTTP/1.1 100 Continue\r\n\r\n", 25);
    }
}

static void request_complete(http_conn *c)
{
    const http_handler *h = &c->server->cfg.handler;
    if (c->answered) {
        next_request(c);
        return;
    }
    set_phase(c, HTTP_PHASE_REPLY, 0);
    h->request(h->ctx, c, &c->reader.request);
    http_reader_drop_body(&c->reader);
}

/* Reads requests from what has arrived, until one waits for its answer. Never frees c. */
static void conn_advance(http_conn *c)
{
    while (!c->doomed && (c->phase == HTTP_PHASE_HEAD || c->phase == HTTP_PHASE_BODY) &&
           (unsent(c) <= MAX_PIPELINE_BYTES || c->answered)) {
        struct evbuffer_iovec v;
        http_step step;
        if (evbuffer_peek(input(c), -1, NULL, &v, 1) < 1 || v.iov_len == 0) {
            break;
        }
        size_t used = http_reader_push(&c->reader, v.iov_base, v.iov_len, &step);
        evbuffer_drain(input(c), used);
        if (step == HTTP_STEP_HEAD) {
            head_complete(c);
        } else if (step == HTTP_STEP_DONE) {
            request_complete(c);
        } else if (step == HTTP_STEP_BAD) {
            answer_fault(c, c->reader.fault.status, c->reader.fault.message);
        }
    }
    if (c->phase == HTTP_PHASE_HEAD && !c->head_timed && http_reader_started(&c->reader)) {
        c->head_timed = true;
        set_phase(c, HTTP_PHASE_HEAD, HTTP_HEAD_S);
    }
    regulate_reading(c);
}

static void on_wake(evutil_socket_t fd, short what, void *ctx)
{
    http_conn *c = ctx;
    if (c->doomed) {
        conn_free(c);
        return;
    }
    if (c->phase == HTTP_PHASE_REPLY && c->answered) {
        next_request(c);
        conn_advance(c);
    }
    if (c->phase == HTTP_PHASE_FLUSH) {
        flush_step(c);
    }
}

static void on_timer(evutil_socket_t fd, short what, void *ctx)
{
    http_conn *c = ctx;
    bool reading =
        c->phase == HTTP_PHASE_BODY || (c->phase == HTTP_PHASE_HEAD && http_reader_started(&c->reader));
    if (reading && !c->answered) {
        answer_fault(c, 408, "the request took too long to arrive");
    } else {
        conn_free(c);
    }
}

static void on_read(struct bufferevent *bev, void *ctx)
{
    http_conn *c = ctx;
    if (c->phase == HTTP_PHASE_FLUSH || c->phase == HTTP_PHASE_LINGER) {
        drop_input(c);
    } else {
        conn_advance(c);
    }
}

/* All is sent. */
static void on_sent(struct bufferevent *bev, void *ctx)
{
    http_conn *c = ctx;
    if (c->phase == HTTP_PHASE_FLUSH) {
        flush_step(c);
    } else {
        conn_advance(c);
    }
}

static void on_event(struct bufferevent *bev, short what, void *ctx)
{
    http_conn *c = ctx;
    if (!(what & BEV_EVENT_EOF) || c->phase == HTTP_PHASE_LINGER) {
        conn_free(c); /* an error, or a client that takes nothing */
        return;
    }
    c->at_end = true;
    conn_advance(c);
    bool waits = c->phase == HTTP_PHASE_REPLY && !c->answered;
    if (waits || unsent(c) == 0) {
        conn_free(c);
    } else {
        begin_flush(c); /* its last answer is still on its way */
    }
}

static bool conn_make(http_conn *c, evutil_socket_t fd)
{
    struct event_base *base = c->server->base;
    const struct timeval write_timeout = {HTTP_WRITE_S, 0};
    const int on = 1;
    c->timer = evtimer_new(base, on_timer, c);
    c->wake = event_new(base, -1, 0, on_wake, c);
    c->bev = bufferevent_socket_new(base, fd, BEV_OPT_CLOSE_ON_FREE);
    if (!c->timer || !c->wake || !c->bev) {
        return false;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* if it fails: only slower */
    bufferevent_setcb(c->bev, on_read, on_sent, on_event, c);
    bufferevent_set_timeouts(c->bev, NULL, &write_timeout);
    return bufferevent_enable(c->bev, EV_READ | EV_WRITE) == 0;
}

void conn_new(http_server *s, evutil_socket_t fd)
{
    http_conn *c = mem_calloc(1, sizeof *c);
    if (!c) {
        close(fd);
        return;
    }
    c->server = s;
    c->next = s->conns;
    if (c->next) {
        c->next->prev = c;
    }
    s->conns = c;
    s->n_conns++;
    http_reader_init(&c->reader, s->cfg.max_body_bytes, &s->budget);
    if (!conn_make(c, fd)) {
        if (!c->bev) {
            close(fd);
        }
        conn_free(c);
        return;
    }
    c->head_timed = true;
    set_phase(c, HTTP_PHASE_HEAD, HTTP_HEAD_S);
}

void conn_free(http_conn *c)
{
    http_server *s = c->server;
    void (*gone)(void *) = c->gone;
    void *gone_ctx = c->gone_ctx;
    if (c->prev) {
        c->prev->next = c->next;
    } else {
        s->conns = c->next;
    }
    if (c->next) {
        c->next->prev = c->prev;
    }
    http_reader_release(&c->reader);
    if (c->bev) {
        bufferevent_free(c->bev);
    }
    if (c->wake) {
        event_free(c->wake);
    }
    if (c->timer) {
        event_free(c->timer);
    }
    mem_free(c);
    server_conn_freed(s);
    if (gone) {
        gone(gone_ctx);
    }
}
