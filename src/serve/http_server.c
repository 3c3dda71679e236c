#include "base/mem.h"
#include "serve/http_int.h"

http_config http_config_default(void)
{
    return (http_config){
        .host = "127.0.0.1",
        .max_body_bytes = (size_t)6 << 20,
        .clock = clock_system(),
        .max_connections = 1024,
        .head_s = 10,
        .body_s = 300,
        .idle_s = 75,
        .write_s = 60,
        .linger_s = 10,
        .max_unsent = (size_t)4 << 20,
        .pause_at = (size_t)256 << 10,
        .continue_at = (size_t)128 << 10,
    };
}

static status check(const http_config *cfg, err *e)
{
    bool times =
        cfg->head_s > 0 && cfg->body_s > 0 && cfg->idle_s > 0 && cfg->write_s > 0 && cfg->linger_s > 0;
    bool sizes = cfg->max_connections > 0 && (!cfg->bodies || cfg->bodies->max > 0) && cfg->continue_at > 0 &&
                 cfg->continue_at <= cfg->pause_at && cfg->pause_at < cfg->max_unsent;
    return times && sizes ? ST_OK
                          : err_set(e, ST_INVALID_FIELD, NULL, "the limits of the HTTP server make no sense");
}

status http_server_open(struct event_base *base, const http_config *cfg, http_server **out, err *e)
{
    status st = check(cfg, e);
    if (st != ST_OK) {
        return st;
    }
    http_server *s = mem_calloc(1, sizeof *s);
    if (!s) {
        return err_set(e, ST_NOMEM, NULL, "out of memory");
    }
    s->cfg = *cfg;
    s->base = base;
    s->watch_fd = -1;
    s->own_bodies.max = HTTP_BODY_BUDGET;
    s->bodies = cfg->bodies ? cfg->bodies : &s->own_bodies;
    st = exchange_init(e);
    if (st == ST_OK) {
        st = watch_open(s, e);
    }
    if (st == ST_OK) {
        st = listen_open(s, e);
    }
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
    listen_close(s);
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
    listen_close(s);
    if (s->accept_timer) {
        event_free(s->accept_timer);
    }
    watch_close(s);
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
