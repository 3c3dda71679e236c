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

size_t conn_unsent(const http_conn *c)
{
    return evbuffer_get_length(bufferevent_get_output(c->bev));
}

void conn_wake(http_conn *c)
{
    event_active(c->wake, 0, 0);
}

void conn_doom(http_conn *c)
{
    c->doomed = true;
    conn_wake(c);
}

/* seconds 0: no deadline */
static void set_phase(http_conn *c, http_phase phase, int seconds)
{
    const struct timeval tv = {seconds, 0};
    c->phase = phase;
    c->overdue = false;
    evtimer_del(c->timer);
    if (seconds > 0 && evtimer_add(c->timer, &tv) != 0) {
        conn_doom(c); /* without memory: better none than one without a deadline */
    }
}

bool conn_is_idle(const http_conn *c)
{
    return c->phase == HTTP_PHASE_HEAD && !http_reader_started(&c->reader) && conn_unsent(c) == 0;
}

/* What a client sends too early stays with it, and nothing is read while it waits for its answer. (Not a high
 * watermark: above it libevent calls on_read again and again.) */
static void regulate_reading(http_conn *c)
{
    bool waits = c->phase == HTTP_PHASE_REPLY && !c->answered;
    bool want = !waits && !c->at_end && evbuffer_get_length(input(c)) < READ_AHEAD_BYTES;
    bool reading = bufferevent_get_enabled(c->bev) & EV_READ;
    if (!want && reading) {
        bufferevent_disable(c->bev, EV_READ);
    } else if (want && !reading && bufferevent_enable(c->bev, EV_READ) != 0) {
        conn_doom(c);
    }
}

static void drop_input(http_conn *c)
{
    evbuffer_drain(input(c), evbuffer_get_length(input(c)));
    regulate_reading(c);
}

/* Answered for good: close once all is sent. The deadline is renewed while bytes go out; the bufferevent has one
 * of its own, but without memory it can come to life unable to write (evbuffer_add_cb is not checked). */
static void begin_flush(http_conn *c)
{
    c->flush_left = conn_unsent(c);
    set_phase(c, HTTP_PHASE_FLUSH, c->server->cfg.write_s);
    conn_wake(c); /* if nothing is unsent no other event would come */
}

/* In HTTP_PHASE_FLUSH. May free c. */
static void flush_step(http_conn *c)
{
    http_reader_drop_body(&c->reader);
    drop_input(c);
    if (conn_unsent(c) > 0) {
        return;
    }
    if (c->at_end || shutdown(bufferevent_getfd(c->bev), SHUT_WR) != 0) {
        conn_free(c);
        return;
    }
    set_phase(c, HTTP_PHASE_LINGER, c->server->draining ? 1 : c->server->cfg.linger_s);
}

void conn_answered(http_conn *c)
{
    c->answered = true;
    c->gone = NULL;
    c->slow = NULL;
    bufferevent_setwatermark(c->bev, EV_WRITE, 0, 0);
    exchange_end(c, false);
    if (!c->keep) {
        begin_flush(c);
    } else if (c->phase == HTTP_PHASE_REPLY) {
        conn_wake(c); /* not now: we are inside a call of the user */
    } else if (c->reader.request.has_body) {
        http_reader_skip_body(&c->reader);
        set_phase(c, HTTP_PHASE_BODY, c->server->cfg.head_s);
    } /* else refused at its head, no body follows: conn_advance goes on to its end */
}

static void answer_fault(http_conn *c, int http_status, const char *message)
{
    api_fault fault;
    buf body = {0};
    exchange_begin(c);
    api_fault_http(&fault, http_status, message);
    api_fault_put(&fault, &body); /* without memory: an empty body */
    http_conn_reply(c, &(http_reply){.status = http_status,
                                     .retry_after_s = fault.retry_after_s,
                                     .body = buf_str(&body),
                                     .body_len = body.len});
    buf_release(&body);
}

/* The framing is broken, or too slow: answer and close. */
static void answer_lost(http_conn *c, int http_status, const char *message)
{
    c->reader.request.keep_alive = false;
    answer_fault(c, http_status, message);
}

static void next_request(http_conn *c)
{
    http_reader_next(&c->reader);
    c->answered = false;
    c->head_timed = false;
    if (c->server->draining) {
        begin_flush(c);
    } else {
        set_phase(c, HTTP_PHASE_HEAD, c->server->cfg.idle_s);
    }
}

static void head_complete(http_conn *c)
{
    const http_handler *h = &c->server->cfg.handler;
    const http_request *r = &c->reader.request;
    exchange_begin(c);
    h->head(h->ctx, c, r);
    if (!c->answered && !http_reader_fits(&c->reader)) { /* for max_body_bytes, or what head has set */
        answer_fault(c, 413, "the body is too large");
    }
    if (c->answered || !r->has_body) {
        return;
    }
    set_phase(c, HTTP_PHASE_BODY, c->server->cfg.body_s);
    if (r->expect_100 && r->minor >= 1) {
        conn_write_continue(c);
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
    watch_reply(c);
    h->request(h->ctx, c, &c->reader.request);
    http_reader_drop_body(&c->reader);
}

void http_conn_limit_body(http_conn *c, size_t max_bytes)
{
    http_reader_limit_body(&c->reader, max_bytes); /* head_complete looks */
}

void http_conn_allow_body(http_conn *c, size_t max_bytes)
{
    http_reader_allow_body(&c->reader, max_bytes);
}

held_bytes *http_conn_take_body(http_conn *c)
{
    return http_reader_take_body(&c->reader);
}

/* Reads requests from what has arrived, until one waits for its answer. Never frees c. */
static void conn_advance(http_conn *c)
{
    while (!c->doomed && (c->phase == HTTP_PHASE_HEAD || c->phase == HTTP_PHASE_BODY) &&
           (conn_unsent(c) <= MAX_PIPELINE_BYTES || c->answered)) {
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
            answer_lost(c, c->reader.fault.status, c->reader.fault.message);
        }
    }
    if (c->phase == HTTP_PHASE_HEAD && !c->head_timed && http_reader_started(&c->reader)) {
        c->head_timed = true;
        set_phase(c, HTTP_PHASE_HEAD, c->server->cfg.head_s);
    }
    regulate_reading(c);
}

/* conn_advance, and the end of a connection whose client has nothing more to ask. May free c. */
static void conn_step(http_conn *c)
{
    conn_advance(c);
    bool stuck = conn_unsent(c) > MAX_PIPELINE_BYTES; /* requests may still wait in the input */
    if (!c->at_end || stuck || (c->phase != HTTP_PHASE_HEAD && c->phase != HTTP_PHASE_BODY)) {
        return;
    }
    if (conn_unsent(c) == 0) {
        conn_free(c);
    } else {
        begin_flush(c); /* its last answer is still on its way */
    }
}

/* Tells a change of pace. The write callback comes when less than the watermark is unsent. */
static void watch_pace(http_conn *c)
{
    const http_config *cfg = &c->server->cfg;
    size_t n = conn_unsent(c);
    bool is_slow = c->is_slow ? n >= cfg->continue_at : n > cfg->pause_at;
    if (!c->slow || c->doomed || is_slow == c->is_slow) {
        return;
    }
    c->is_slow = is_slow;
    bufferevent_setwatermark(c->bev, EV_WRITE, is_slow ? cfg->continue_at - 1 : 0, 0);
    c->slow(c->slow_ctx, is_slow);
}

static void on_wake(evutil_socket_t fd, short what, void *ctx)
{
    http_conn *c = ctx;
    watch_pace(c);
    if (c->doomed) {
        conn_free(c);
        return;
    }
    if (c->phase == HTTP_PHASE_REPLY && c->answered) {
        next_request(c);
        conn_step(c);
    } else if (c->phase == HTTP_PHASE_FLUSH) {
        flush_step(c);
    }
}

/* A process that was stopped finds its timers due in a round of the loop that has looked at no socket (epoll_wait was
 * interrupted): the next one does, and what it finds goes before the timer. */
static bool look_again(http_conn *c)
{
    static const struct timeval at_once;
    bool first = c->phase != HTTP_PHASE_REPLY && !c->overdue;
    c->overdue = true;
    return first && evtimer_add(c->timer, &at_once) == 0;
}

static void on_timer(evutil_socket_t fd, short what, void *ctx)
{
    http_conn *c = ctx;
    if (look_again(c)) {
        return;
    }
    bool reading =
        c->phase == HTTP_PHASE_BODY || (c->phase == HTTP_PHASE_HEAD && http_reader_started(&c->reader));
    if (c->phase == HTTP_PHASE_REPLY) {
        watch_timer(c);
    } else if (c->phase == HTTP_PHASE_FLUSH && conn_unsent(c) < c->flush_left) {
        begin_flush(c);
    } else if (reading && !c->answered) {
        answer_lost(c, 408, "the request took too long to arrive");
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
        conn_step(c);
    }
}

/* All is sent, or less than the watermark is unsent. */
static void on_sent(struct bufferevent *bev, void *ctx)
{
    http_conn *c = ctx;
    watch_pace(c);
    if (c->phase == HTTP_PHASE_FLUSH) {
        flush_step(c);
    } else {
        conn_step(c);
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
    if (c->phase == HTTP_PHASE_FLUSH) {
        return; /* flush_step ends it */
    }
    conn_step(c);
}

static bool conn_make(http_conn *c, evutil_socket_t fd)
{
    struct event_base *base = c->server->base;
    const struct timeval write_timeout = {c->server->cfg.write_s, 0};
    const int on = 1;
    c->timer = evtimer_new(base, on_timer, c);
    c->wake = event_new(base, -1, 0, on_wake, c);
    c->bev = bufferevent_socket_new(base, fd, BEV_OPT_CLOSE_ON_FREE);
    if (!c->timer || !c->wake || !c->bev) {
        return false;
    }
    if (!c->is_unix) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* if it fails: only slower */
    }
    bufferevent_setcb(c->bev, on_read, on_sent, on_event, c);
    bufferevent_set_timeouts(c->bev, NULL, &write_timeout);
    return watch_add(c) && bufferevent_enable(c->bev, EV_READ | EV_WRITE) == 0;
}

void conn_new(http_server *s, evutil_socket_t fd, bool is_unix)
{
    http_conn *c = mem_calloc(1, sizeof *c);
    if (!c) {
        close(fd);
        return;
    }
    c->server = s;
    c->is_unix = is_unix;
    c->next = s->conns;
    if (c->next) {
        c->next->prev = c;
    }
    s->conns = c;
    s->n_conns++;
    http_reader_init(&c->reader, s->cfg.max_body_bytes, s->bodies);
    if (!conn_make(c, fd)) {
        if (!c->bev) {
            close(fd);
        }
        conn_free(c);
        return;
    }
    c->head_timed = true;
    set_phase(c, HTTP_PHASE_HEAD, c->server->cfg.head_s);
}

void conn_free(http_conn *c)
{
    http_server *s = c->server;
    void (*gone)(void *) = c->gone;
    void *gone_ctx = c->gone_ctx;
    exchange_end(c, true);
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
        if (c->streaming && !c->chunked) { /* nothing but a reset tells the client that this is not the end */
            const struct linger none = {1, 0};
            setsockopt(bufferevent_getfd(c->bev), SOL_SOCKET, SO_LINGER, &none, sizeof none);
        }
        watch_remove(c);
        bufferevent_free(c->bev);
    }
    if (c->wake) {
        event_free(c->wake);
    }
    if (c->timer) {
        event_free(c->timer);
    }
    mem_free(c);
    listen_conn_freed(s);
    if (gone) {
        gone(gone_ctx);
    }
}
