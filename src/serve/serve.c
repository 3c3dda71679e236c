#include "serve/serve.h"

#include <event2/event.h>
#include <signal.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "serve/completion_run.h"
#include "serve/http.h"
#include "serve/routes.h"
#include "serve/worker_link.h"

#define FLUSH_TICKS 75  /* how long clients may take for their last bytes: 1.5 s */
#define STOP_TICKS  200 /* and the whole stop: 4 s */
#define TICK_US     20000

typedef struct serve_daemon {
    const serve_config *cfg;
    struct event_base *base;
    struct event *on_term, *on_int, *tick;
    http_server *http;
    completion_service service;
    bool announced;
    bool stopping;
    bool worker_stopped;
    unsigned n_ticks;
    int rc;
} serve_daemon;

/* Ends what runs; on_tick leaves the loop when that is done. */
static void begin_stop(serve_daemon *d, int rc)
{
    const struct timeval tick = {0, TICK_US};
    d->stopping = true;
    d->rc = rc;
    http_server_drain(d->http);
    worker_link_stop(d->service.link);
    event_add(d->tick, &tick);
}

static void on_ready(void *ctx)
{
    serve_daemon *d = ctx;
    if (!d->announced) {
        d->announced = true;
        log_emit(LOG_INFO, "serve", "listening=%s model=\"%s\"", http_server_url(d->http),
                 d->cfg->models[0].id);
        if (d->cfg->listening) {
            d->cfg->listening(d->cfg->listening_ctx, http_server_url(d->http));
        }
    }
}

static void on_failed(void *ctx)
{
    serve_daemon *d = ctx;
    log_emit(LOG_ERROR, "serve", "event=given_up model=\"%s\" reason=\"no worker can be started\"",
             d->cfg->models[0].id);
    d->worker_stopped = true;
    if (!d->stopping) {
        begin_stop(d, 1);
    }
}

static void on_stopped(void *ctx)
{
    serve_daemon *d = ctx;
    d->worker_stopped = true;
}

/* While stopping: the last bytes of the answers are on their way, and the worker on its. */
static void on_tick(evutil_socket_t fd, short what, void *ctx)
{
    serve_daemon *d = ctx;
    d->n_ticks++;
    bool flushed = http_server_n_connections(d->http) == 0 || d->n_ticks >= FLUSH_TICKS;
    if ((d->worker_stopped && flushed) || d->n_ticks >= STOP_TICKS) {
        event_base_loopbreak(d->base);
    }
}

static void on_signal(evutil_socket_t sig, short what, void *ctx)
{
    serve_daemon *d = ctx;
    if (d->stopping) { /* a second one: no more patience */
        event_base_loopbreak(d->base);
        return;
    }
    log_emit(LOG_INFO, "serve", "event=stopping signal=%d connections=%zu", (int)sig,
             http_server_n_connections(d->http));
    begin_stop(d, 0);
}

static status open_all(serve_daemon *d, err *e)
{
    const worker_link_config link = {.argv = d->cfg->models[0].worker_argv,
                                     .clock = d->service.clock,
                                     .ready = on_ready,
                                     .failed = on_failed,
                                     .stopped = on_stopped,
                                     .ctx = d};
    http_config http = http_config_default();
    http.host = d->cfg->host;
    http.port = d->cfg->port;
    http.max_body_bytes = d->cfg->max_body_bytes;
    http.handler = (http_handler){routes_head, routes_request, &d->service};
    http.clock = d->service.clock;
    d->base = event_base_new();
    if (!d->base) {
        return err_set(e, ST_IO, NULL, "cannot make an event loop");
    }
    d->on_term = evsignal_new(d->base, SIGTERM, on_signal, d);
    d->on_int = evsignal_new(d->base, SIGINT, on_signal, d);
    d->tick = event_new(d->base, -1, EV_PERSIST, on_tick, d);
    if (!d->on_term || !d->on_int || !d->tick || evsignal_add(d->on_term, NULL) != 0 ||
        evsignal_add(d->on_int, NULL) != 0) {
        return err_set(e, ST_NOMEM, NULL, "out of memory");
    }
    status st = http_server_open(d->base, &http, &d->http, e); /* first: a taken port starts no worker */
    return st == ST_OK ? worker_link_open(d->base, &link, &d->service.link, e) : st;
}

/* Waiting clients are cut first: they still reach into the link. */
static void close_all(serve_daemon *d)
{
    http_server_free(d->http);
    worker_link_free(d->service.link);
    struct event *events[] = {d->on_term, d->on_int, d->tick};
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++) {
        if (events[i]) {
            event_free(events[i]);
        }
    }
    if (d->base) {
        event_base_free(d->base);
    }
}

serve_config serve_config_default(void)
{
    return (serve_config){.host = "127.0.0.1",
                          .max_body_bytes = SERVE_DEFAULT_MAX_BODY,
                          .limits = service_limits_default(),
                          .drain_ms = SERVE_DEFAULT_DRAIN_MS,
                          .sse_keepalive_ms = SERVE_DEFAULT_KEEPALIVE_MS};
}

int serve_run(const serve_config *cfg)
{
    err e;
    serve_daemon d = {.cfg = cfg, .rc = 1};
    struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
    d.service.model_id = cfg->models[0].id;
    d.service.clock = clock_system();
    event_set_mem_functions(mem_alloc, mem_realloc, mem_free);
    sigaction(SIGPIPE, &ignore, &before); /* a client or worker that is gone is an error of write */
    if (open_all(&d, &e) != ST_OK) {
        log_emit(LOG_ERROR, "serve", "event=start_failed error=\"%s\"", e.msg);
    } else {
        worker_link_start(d.service.link);
        event_base_dispatch(d.base);
    }
    close_all(&d);
    sigaction(SIGPIPE, &before, NULL);
    log_emit(LOG_INFO, "serve", "event=stopped status=%d", d.rc);
    return d.rc;
}
