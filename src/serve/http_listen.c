#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "serve/http_int.h"

#define BACKLOG        511
#define ACCEPT_PAUSE_S 1 /* after accept failed for want of descriptors or memory */
#define N_LISTENERS    2

static const unsigned listener_flags = LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC | LEV_OPT_REUSEABLE;

static void stop_accepting(http_server *s)
{
    for (int i = 0; i < N_LISTENERS; i++) {
        if (s->listeners[i]) {
            evconnlistener_disable(s->listeners[i]);
        }
    }
}

static void resume_accepting(http_server *s)
{
    if (s->draining || s->n_conns >= s->cfg.max_connections) {
        return;
    }
    for (int i = 0; i < N_LISTENERS; i++) {
        if (s->listeners[i]) {
            evconnlistener_enable(s->listeners[i]);
        }
    }
}

static void on_accept(struct evconnlistener *l, evutil_socket_t fd, struct sockaddr *sa, int len, void *ctx)
{
    http_server *s = ctx;
    conn_new(s, fd, sa->sa_family == AF_UNIX);
    if (s->n_conns >= s->cfg.max_connections) {
        stop_accepting(s);
    }
}

static void on_accept_timer(evutil_socket_t fd, short what, void *ctx)
{
    resume_accepting(ctx);
}

/* Out of descriptors or memory: the waiting client stays readable, so to go on at once would spin. */
static void on_accept_error(struct evconnlistener *l, void *ctx)
{
    http_server *s = ctx;
    const struct timeval pause = {ACCEPT_PAUSE_S, 0};
    log_emit(LOG_WARN, "http", "accept=failed error=\"%s\" connections=%zu", strerror(errno), s->n_conns);
    stop_accepting(s);
    evtimer_add(s->accept_timer, &pause);
}

void listen_conn_freed(http_server *s)
{
    s->n_conns--;
    if (!evtimer_pending(s->accept_timer, NULL)) {
        resume_accepting(s);
    }
}

/*
 * TCP.
 */
static status bind_first(http_server *s, const struct addrinfo *list, err *e)
{
    int why = 0;
    for (const struct addrinfo *a = list; a && !s->listeners[0]; a = a->ai_next) {
        s->listeners[0] = evconnlistener_new_bind(s->base, on_accept, s, listener_flags, BACKLOG, a->ai_addr,
                                                  (int)a->ai_addrlen);
        why = errno;
    }
    if (!s->listeners[0]) {
        return err_set(e, ST_IO, "port", "cannot listen on %s port %u: %s", s->cfg.host,
                       (unsigned)s->cfg.port, strerror(why));
    }
    return ST_OK;
}

static status make_url(http_server *s, err *e)
{
    struct sockaddr_storage sa = {0};
    socklen_t len = sizeof sa;
    if (getsockname(evconnlistener_get_fd(s->listeners[0]), (struct sockaddr *)&sa, &len) != 0) {
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

static status listen_tcp(http_server *s, err *e)
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

/*
 * Unix.
 */
static status unix_error(const http_server *s, const char *why, err *e)
{
    return err_set(e, ST_IO, "unix", "cannot listen on %s: %s", s->cfg.unix_path, why);
}

/* Removes a socket that nobody listens on. */
static status clear_path(const http_server *s, const struct sockaddr_un *sa, err *e)
{
    struct stat before;
    if (lstat(s->cfg.unix_path, &before) != 0) {
        return errno == ENOENT ? ST_OK : unix_error(s, strerror(errno), e);
    }
    if (!S_ISSOCK(before.st_mode)) {
        return unix_error(s, "there is a file of that name that is no socket", e);
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return unix_error(s, strerror(errno), e);
    }
    bool stale = connect(fd, (const struct sockaddr *)sa, sizeof *sa) != 0 && errno == ECONNREFUSED;
    close(fd);
    if (!stale) {
        return unix_error(s, "the socket is in use", e);
    }
    return unlink(s->cfg.unix_path) == 0 ? ST_OK : unix_error(s, strerror(errno), e);
}

/* Nobody can connect before listen, so the mode is right from the first connection on. */
static status listen_unix(http_server *s, err *e)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    struct stat made;
    size_t n = strlen(s->cfg.unix_path);
    if (n == 0 || n >= sizeof sa.sun_path) {
        return unix_error(s, "the path is empty or too long", e);
    }
    memcpy(sa.sun_path, s->cfg.unix_path, n);
    status st = clear_path(s, &sa, e);
    if (st != ST_OK) {
        return st;
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&sa, sizeof sa) != 0) {
        st = unix_error(s, strerror(errno), e);
        goto out;
    }
    if (chmod(s->cfg.unix_path, 0600) != 0 || lstat(s->cfg.unix_path, &made) != 0) {
        st = unix_error(s, strerror(errno), e);
        unlink(s->cfg.unix_path);
        goto out;
    }
    s->unix_dev = made.st_dev;
    s->unix_ino = made.st_ino;
    s->listeners[1] = evconnlistener_new(s->base, on_accept, s, listener_flags, BACKLOG, fd);
    if (s->listeners[1]) {
        fd = -1; /* it owns it now */
    } else {
        st = unix_error(s, strerror(errno), e);
    }
out:
    if (fd >= 0) {
        close(fd);
    }
    return st;
}

status listen_open(http_server *s, err *e)
{
    bool tcp = s->cfg.host && s->cfg.host[0] != '\0';
    s->accept_timer = evtimer_new(s->base, on_accept_timer, s);
    if (!s->accept_timer) {
        return err_set(e, ST_NOMEM, NULL, "out of memory");
    }
    if (!tcp && !s->cfg.unix_path) {
        return err_set(e, ST_IO, "host", "there is no address to listen on");
    }
    status st = tcp ? listen_tcp(s, e) : ST_OK;
    if (st == ST_OK && s->cfg.unix_path) {
        st = listen_unix(s, e);
    }
    if (st == ST_OK && !tcp && buf_printf(&s->url, "unix:%s", s->cfg.unix_path) != ST_OK) {
        st = err_set(e, ST_NOMEM, NULL, "out of memory");
    }
    for (int i = 0; i < N_LISTENERS && st == ST_OK; i++) {
        if (s->listeners[i]) {
            evconnlistener_set_error_cb(s->listeners[i], on_accept_error);
        }
    }
    return st;
}

void listen_close(http_server *s)
{
    struct stat now;
    for (int i = 0; i < N_LISTENERS; i++) {
        if (s->listeners[i]) {
            evconnlistener_free(s->listeners[i]);
        }
        s->listeners[i] = NULL;
    }
    if (s->unix_ino != 0 && lstat(s->cfg.unix_path, &now) == 0 && now.st_dev == s->unix_dev &&
        now.st_ino == s->unix_ino) { /* else another has taken the path since */
        unlink(s->cfg.unix_path);
    }
    s->unix_ino = 0;
    if (s->accept_timer) {
        evtimer_del(s->accept_timer);
    }
}
