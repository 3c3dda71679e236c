#include "serve/serve.h"

#include <event2/event.h>
#include <signal.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "serve/api.h"
#include "serve/http.h"
#include "serve/idempotency.h"
#include "serve/loop_memory.h"
#include "serve/memory_desk.h"
#include "serve/session_routes.h"

/* The stop: up to drain_ms for replies, or until a second signal, then they are ended; then clients get FLUSH_MS for their
 * last bytes and workers their stop_grace_ms, and whatever is left after LAST_MS, or at one more signal, is cut. */
#define FLUSH_MS 1000
#define LAST_MS  1600
#define TICK_US  20000

#define N_TIMERS 8192 /* more than HTTP's 1,024 connections with all that waits for their requests */

#define NS_PER_MS ((uint64_t)1000000)

#define WRITE_MORE_S 30 /* a client that takes nothing is dropped so long after its reply should have ended */

typedef struct serve_daemon {
    const serve_config *cfg;
    const clock_src *clock;
    struct event_base *base;
    struct event *on_term, *on_int, *tick;
    http_server *http;
    api_context api;
    models *models;
    keys *keys;
    request_table *requests;
    session_desk *sessions;
    memory_desk *memory;
    journal *journal;
    idempotency *promises;
    metrics metrics;
    byte_budget bodies, downloads; /* outlive the event base: see held_bytes.h */
    bool announced;
    bool stopping, cut;
    uint64_t stop_ns, stopped_ns; /* since when it stops; since when no worker is left, 0 = not yet */
    uint64_t drain_ms;            /* from stop_ns on */
    int rc;
} serve_daemon;

static uint64_t ms_since(const serve_daemon *d, uint64_t ns)
{
    return (uint64_t)clock_ms_between(ns, clock_mono_ns(d->clock));
}

/* Ends what runs; on_tick leaves the loop when that is done. */
static void begin_stop(serve_daemon *d, int rc)
{
    const struct timeval tick = {0, TICK_US};
    d->stopping = true;
    d->rc = rc;
    d->stop_ns = clock_mono_ns(d->clock);
    d->drain_ms = d->cfg->drain_ms;
    http_server_drain(d->http);
    idempotency_drain(d->promises);
    models_drain(d->models);
    event_add(d->tick, &tick);
}

/* The last bytes of the answers are on their way, and the workers on theirs. */
static void on_tick(evutil_socket_t fd, short what, void *ctx)
{
    serve_daemon *d = ctx;
    uint64_t ms = ms_since(d, d->stop_ns);
    if (!d->cut && ms >= d->drain_ms) {
        d->cut = true;
        log_emit(LOG_INFO, "serve", "event=cut connections=%zu", http_server_n_connections(d->http));
        models_cut(d->models);
    }
    if (d->stopped_ns == 0 && models_stopped(d->models)) {
        d->stopped_ns = clock_mono_ns(d->clock);
    }
    bool flushed = http_server_n_connections(d->http) == 0;
    bool patient = d->stopped_ns == 0 || (!flushed && ms_since(d, d->stopped_ns) < FLUSH_MS);
    if (!patient || ms >= d->drain_ms + LAST_MS) {
        event_base_loopbreak(d->base);
    }
}

static void announce(serve_daemon *d)
{
    d->announced = true;
    log_emit(LOG_INFO, "serve", "listening=%s models=%zu", http_server_url(d->http), models_count(d->models));
    if (d->cfg->listening) {
        d->cfg->listening(d->cfg->listening_ctx, http_server_url(d->http));
    }
}

/* At the start: is every model ready or failed, and one of them ready? */
static void on_changed(void *ctx, model_service *changed)
{
    serve_daemon *d = ctx;
    size_t n_ready = 0, n_failed = 0;
    session_desk_look(d->sessions, changed);
    if (d->announced || d->stopping) {
        return;
    }
    for (size_t i = 0; i < models_count(d->models); i++) {
        service_state state = service_state_now(models_at(d->models, i));
        n_ready += state == SERVICE_READY;
        n_failed += state == SERVICE_FAILED;
    }
    if (n_ready + n_failed < models_count(d->models)) {
        return;
    }
    if (n_ready > 0) {
        announce(d);
    } else {
        log_emit(LOG_ERROR, "serve", "event=start_failed error=\"no model can be served\"");
        begin_stop(d, 1);
    }
}

static void on_signal(evutil_socket_t sig, short what, void *ctx)
{
    serve_daemon *d = ctx;
    if (d->cut) { /* even the last bytes are not waited for */
        event_base_loopbreak(d->base);
        return;
    }
    if (d->stopping) { /* no more patience with replies: they are ended, each with its error */
        uint64_t ms = ms_since(d, d->stop_ns);
        d->drain_ms = ms < d->drain_ms ? ms : d->drain_ms;
        return;
    }
    log_emit(LOG_INFO, "serve", "event=stopping signal=%d connections=%zu", (int)sig,
             http_server_n_connections(d->http));
    begin_stop(d, 0);
}

static size_t n_connections(void *ctx)
{
    return http_server_n_connections(((serve_daemon *)ctx)->http);
}

static status open_loop(serve_daemon *d, err *e)
{
    d->base = event_base_new();
    if (!d->base) {
        return err_set(e, ST_IO, NULL, "cannot make an event loop");
    }
    if (loop_memory_reserve(d->base, N_TIMERS) != ST_OK) {
        return err_set(e, ST_NOMEM, NULL, "out of memory for timers");
    }
    d->on_term = evsignal_new(d->base, SIGTERM, on_signal, d);
    d->on_int = evsignal_new(d->base, SIGINT, on_signal, d);
    d->tick = event_new(d->base, -1, EV_PERSIST, on_tick, d);
    if (!d->on_term || !d->on_int || !d->tick || evsignal_add(d->on_term, NULL) != 0 ||
        evsignal_add(d->on_int, NULL) != 0) {
        return err_set(e, ST_NOMEM, NULL, "out of memory");
    }
    return ST_OK;
}

/* The socket first: a taken port starts no worker. */
static status open_http(serve_daemon *d, err *e)
{
    http_config http = http_config_default();
    http.host = d->cfg->host;
    http.port = d->cfg->port;
    http.unix_path = d->cfg->unix_path;
    http.max_body_bytes = d->cfg->max_body_bytes;
    http.bodies = &d->bodies;
    http.write_s = d->cfg->slow_reader_s + WRITE_MORE_S;
    http.handler = (http_handler){api_head, api_request, &d->api};
    http.on_exchange = api_exchange;
    http.on_exchange_ctx = &d->api;
    http.clock = d->clock;
    return http_server_open(d->base, &http, &d->http, e);
}

static status open_journal(serve_daemon *d, err *e)
{
    const journal_config kept = {
        .base = d->base, .clock = d->clock, .dir = d->cfg->journal_dir, .max_bytes = d->cfg->journal_bytes};
    idempotency_config promised = {.api = &d->api, .numerics = d->cfg->numerics};
    if (!d->cfg->journal_dir) {
        return ST_OK;
    }
    status st = journal_open(&kept, &d->journal, e);
    promised.journal = d->journal;
    promised.routes = api_generation_routes(&promised.n_routes);
    return st == ST_OK ? idempotency_new(&promised, &d->promises, e) : st;
}

static status open_all(serve_daemon *d, err *e)
{
    status st = open_loop(d, e);
    if (st == ST_OK && d->cfg->keys_path) {
        st = keys_open(d->cfg->keys_path, &d->keys, e);
    }
    if (st == ST_OK) {
        st = request_table_new(&d->requests);
    }
    if (st == ST_OK) {
        const session_desk_config named = {
            .base = d->base,
            .clock = d->clock,
            .keys = d->keys,
            .requests = d->requests,
            .caps = {.per_key = d->cfg->max_sessions_per_key, .ttl_ns = d->cfg->session_ttl_ms * NS_PER_MS}};
        st = session_desk_new(&named, &d->sessions, e);
    }
    if (st == ST_OK) {
        st = models_open(d->base, d->cfg, d->clock, on_changed, d, &d->models, e);
    }
    if (st == ST_OK) {
        st = memory_desk_new(d->base, d->models, &d->memory, e);
    }
    st = st == ST_OK ? open_journal(d, e) : st;
    if (st != ST_OK) {
        return st;
    }
    d->api = (api_context){.base = d->base,
                           .clock = d->clock,
                           .models = d->models,
                           .keys = d->keys,
                           .requests = d->requests,
                           .sessions = d->sessions,
                           .promises = d->promises,
                           .journal = d->journal,
                           .downloads = &d->downloads,
                           .metrics = &d->metrics,
                           .keepalive_ms = d->cfg->sse_keepalive_ms,
                           .keepalive_kind = d->cfg->sse_keepalive_kind,
                           .started_ns = clock_mono_ns(d->clock),
                           .n_connections = n_connections,
                           .n_connections_ctx = d};
    return open_http(d, e);
}

/* Waiting clients are cut first: they still reach into the rest. */
static void close_all(serve_daemon *d)
{
    http_server_free(d->http);
    idempotency_free(d->promises);
    models_free(d->models);
    memory_desk_free(d->memory);
    session_desk_free(d->sessions);
    request_table_free(d->requests);
    journal_close(d->journal);
    keys_free(d->keys);
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
                          .journal_bytes = SERVE_DEFAULT_JOURNAL_BYTES,
                          .max_body_bytes = SERVE_DEFAULT_MAX_BODY,
                          .limits = service_limits_default(),
                          .drain_ms = SERVE_DEFAULT_DRAIN_MS,
                          .slow_reader_s = SERVE_DEFAULT_SLOW_READER_S,
                          .session_ttl_ms = (uint64_t)SERVE_DEFAULT_SESSION_TTL_S * 1000,
                          .max_sessions_per_key = SERVE_DEFAULT_SESSIONS,
                          .sse_keepalive_ms = SERVE_DEFAULT_KEEPALIVE_MS};
}

int serve_run(const serve_config *cfg)
{
    err e;
    serve_daemon d = {.cfg = cfg,
                      .clock = cfg->clock ? cfg->clock : clock_system(),
                      .bodies = {.max = HTTP_BODY_BUDGET},
                      .downloads = {.max = SESSION_DOWNLOADS},
                      .rc = 1};
    struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
    event_set_mem_functions(mem_alloc, mem_realloc, mem_free);
    sigaction(SIGPIPE, &ignore, &before); /* a client or worker that is gone is an error of write */
    err_clear(&e);
    if (open_all(&d, &e) != ST_OK) {
        log_emit(LOG_ERROR, "serve", "event=start_failed error=\"%s\"", e.msg);
    } else {
        models_start(d.models);
        if (d.promises) {
            idempotency_start(d.promises);
        }
        event_base_dispatch(d.base);
    }
    close_all(&d);
    sigaction(SIGPIPE, &before, NULL);
    log_emit(LOG_INFO, "serve", "event=stopped status=%d", d.rc);
    return d.rc;
}
