#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/mem.h"
#include "serve/http_int.h"

#define BACKLOG        511
#define ACCEPT_PAUSE_S 1 /* after accept failed for want of descriptors or memory */

static void on_accept(struct evconnlistener *l, evutil_socket_t fd, struct sockaddr *sa, int len, void *ctx)
{
    http_server *s = ctx;
    conn_new(s, fd);
    if (s->n_conns >= HTTP_MAX_CONNECTIONS) {
        evconnlistener_disable(l);
    }
}

static void resume_accepting(http_server *s)
{
    if (!s->draining && s->n_conns < HTTP_MAX_CONNECTIONS) {
        evconnlistener_enable(s->listener);
    }
}

static void on_accept_timer(evutil_socket_t fd, short what, void *ctx)
{
    resume_accepting(ctx);
}

/* Out of descriptors or memory: the waiting client stays readable, so go on at once would spin. */
static void on_accept_error(struct evconnlistener *l, void *ctx)
{
    http_server *s = ctx;
    const struct timeval pause = {ACCEPT_PAUSE_S, 0};
    log_emit(LOG_WARN, "serve", "accept=failed error=\"%s\" connections=%zu", strerror(errno), s->n_conns);
    evconnlistener_disable(l);
    evtimer_add(s->accept_timer, &pause);
}

void server_conn_freed(http_server *s)
{
    s->n_conns--;
    if (!evtimer_pending(s->accept_timer, NULL)) {
        resume_accepting(s);
    }
}

static status bind_first(http_server *s, const struct addrinfo *list, err *e)
{
    const unsigned flags = LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC | LEV_OPT_REUSEABLE;
    int why = 0;
    for (const struct addrinfo *a = list; a && !s->listener; a = a->ai_next) {
        s->listener =
            evconnlistener_new_bind(s->base, on_accept, s, flags, BACKLOG, a->ai_addr, (int)a->ai_addrlen);
        why = errno;
    }
    if (!s->listener) {
        return err_set(e, ST_IO, "port", "cannot listen on %s port %u: %s", s->cfg.host,
                       (unsigned)s->cfg.port, strerror(why));
    }
    evconnlistener_set_error_cb(s->listener, on_accept_error);
    return ST_OK;
}

static status make_url(http_server *s, err *e)
{
    struct sockaddr_storage sa = {0};
    socklen_t len = sizeof sa;
    if (getsockname(evconnlistener_get_fd(s->listener), (struct sockaddr *)&sa, &len) != 0) {
        return err_set(e, ST_IO, NULL, "cannot read the address of the listening socket: %s",
                       strerror(errno));
    }
    char port[8];
    if (getnameinfo((struct sockaddr *)&sa, len, NULL, 0, port, sizeof port, NI_NUMERICSERV) != 0) {
        return err_set(e, ST_INTERNAL, NULL, "the listening socket has no port");
    }
    bool brackets = strchr(s->cfg.host, ':'); /* an IPv6 address */
    status st =
        buf_printf(&s->url, "http://%s%s%s:%s", brackets ? "[" : "", s->cfg.host, brackets ? "]" : "", port);
    return st == ST_OK ? ST_OK : err_set(e, st, NULL, "out of memory");
}

static status listen_on(http_server *s, err *e)
{
    char port[8];
    struct addrinfo *list = NULL;
    const struct addrinfo want = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    snprintf(port, sizeof port, "%u", (unsigned)s->cfg.port);
    int rc = getaddrinfo(s->cfg.host, port, &want, &list);
    if (rc != 0) {
        return err_set(e, ST_IO, "host", "cannot listen on %s: %s", s->cfg.host, gai_strerror(rc));
    }
    status st = bind_first(s, list, e);
    freeaddrinfo(list);
    return st == ST_OK ? make_url(s, e) : st;
}

status http_server_open(struct event_base *base, const http_config *cfg, http_server **out, err *e)
{
    http_server *s = mem_calloc(1, sizeof *s);
    if (!s) {
        return err_set(e, ST_NOMEM, NULL, "out of memory");
    }
    s->cfg = *cfg;
    s->base = base;
    s->budget.max = HTTP_BODY_BUDGET;
    s->accept_timer = evtimer_new(base, on_accept_timer, s);
    status st = s->accept_timer ? listen_on(s, e) : err_set(e, ST_NOMEM, NULL, "out of memory");
    if (st != ST_OK) {
        http_server_free(s);
        return st;
    }
    *out = s;
    return ST_OK;
}

void http_server_drain(http_server *s)
{
    s->draining = true;
    evtimer_del(s->accept_timer);
    evconnlistener_free(s->listener);
    s->listener = NULL;
    for (http_conn *c = s->conns, *next; c; c = next) {
        next = c->next;
        if (conn_is_idle(c)) {
            conn_free(c);
        }
    }
}

void http_server_free(http_server *s)
{
    if (!s) {
        return;
    }
    s->draining = true;
    while (s->conns) {
        conn_free(s->conns);
    }
    if (s->listener) {
        evconnlistener_free(s->listener);
    }
    if (s->accept_timer) {
        event_free(s->accept_timer);
    }
    buf_release(&s->url);
    mem_free(s);
}

const char *http_server_url(const http_server *s)
{
    return buf_str(&s->url);
}

size_t http_server_n_connections(const http_server *s)
{
    return s->n_conns;
}
