/*
 * How a client that leaves while its request waits is noticed. Nothing is read then, so libevent has no reason
 * to look at the socket, and an EV_CLOSED event alone will not do: of a reset its epoll backend makes
 * EV_READ | EV_WRITE, which such an event does not take, and the loop spins. So each server has an epoll of
 * its own, edge-triggered, in which every connection is once; libevent watches that one descriptor.
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "serve/http_int.h"

#define BATCH        64
#define PROBE_GAP_NS 1000000000u

static uint64_t now_ns(const http_conn *c)
{
    return clock_mono_ns(c->server->cfg.clock);
}

static void arm_probe(http_conn *c, uint64_t wait_ns)
{
    const struct timeval tv = {(time_t)(wait_ns / 1000000000u), (suseconds_t)(wait_ns % 1000000000u / 1000)};
    if (evtimer_add(c->timer, &tv) != 0) {
        conn_doom(c);
    }
}

/* Bytes that wait to be sent, or were sent since the last look, will be answered by a reset just as well. */
static void probe(http_conn *c)
{
    if (!c->written && conn_unsent(c) == 0) {
        conn_write_probe(c);
    }
    c->written = false;
    c->probed_ns = now_ns(c);
    arm_probe(c, PROBE_GAP_NS);
}

static void see_fin(http_conn *c)
{
    uint64_t since_ns = now_ns(c) - c->probed_ns;
    c->half_closed = true;
    c->written = false; /* what was sent before may have been read before the client closed */
    if (c->probed_ns == 0 || since_ns >= PROBE_GAP_NS) {
        probe(c);
    } else { /* one of an earlier request of this connection */
        arm_probe(c, PROBE_GAP_NS - since_ns);
    }
}

static void on_change(http_conn *c, uint32_t what)
{
    if (c->phase != HTTP_PHASE_REPLY || c->answered || c->doomed) {
        return; /* in other phases the bufferevent reads, or has something to write */
    }
    bool fin = what & EPOLLRDHUP;
    if ((what & (EPOLLERR | EPOLLHUP)) || (fin && c->reader.request.minor == 0)) {
        conn_free(c);
    } else if (fin && !c->is_unix && !c->half_closed) {
        see_fin(c);
    }
}

static void on_watch(evutil_socket_t fd, short what, void *ctx)
{
    struct epoll_event events[BATCH];
    int n = epoll_wait(fd, events, BATCH, 0); /* an error: the next turn of the loop tries again */
    for (int i = 0; i < n; i++) {             /* each frees none but its own connection */
        on_change(events[i].data.ptr, events[i].events);
    }
}

status watch_open(http_server *s, err *e)
{
    s->watch_fd = epoll_create1(EPOLL_CLOEXEC);
    if (s->watch_fd < 0) {
        return err_set(e, ST_IO, NULL, "cannot make an epoll: %s", strerror(errno));
    }
    s->watch = event_new(s->base, s->watch_fd, EV_READ | EV_PERSIST, on_watch, s);
    if (!s->watch || event_add(s->watch, NULL) != 0) {
        return err_set(e, ST_NOMEM, NULL, "out of memory");
    }
    return ST_OK;
}

void watch_close(http_server *s)
{
    if (s->watch) {
        event_free(s->watch);
    }
    if (s->watch_fd >= 0) {
        close(s->watch_fd);
    }
}

static int control(http_conn *c, int op)
{
    struct epoll_event ev = {.events = EPOLLRDHUP | EPOLLET, .data.ptr = c};
    return epoll_ctl(c->server->watch_fd, op, bufferevent_getfd(c->bev), &ev);
}

bool watch_add(http_conn *c)
{
    return control(c, EPOLL_CTL_ADD) == 0;
}

/* Closing the descriptor would not be enough: a worker that is being forked holds the socket open until its
 * exec. */
void watch_remove(http_conn *c)
{
    control(c, EPOLL_CTL_DEL);
}

/* What happened before counts too: a change of the interest makes epoll tell what is true now. */
void watch_reply(http_conn *c)
{
    c->half_closed = false;
    control(c, EPOLL_CTL_MOD);
}

void watch_timer(http_conn *c)
{
    if (c->half_closed && !c->answered) {
        probe(c);
    }
}
