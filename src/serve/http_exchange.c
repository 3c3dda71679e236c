#include <event2/util.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "serve/http_int.h"

#define RANDOM_BYTES 12

status exchange_init(err *e)
{
    return evutil_secure_rng_init() == 0 ? ST_OK
                                         : err_set(e, ST_IO, NULL, "the system gives no random bytes");
}

static bool is_alnum(char ch)
{
    return (ch >= '0' && ch <= '9') || (ch >= 'A' && ch <= 'Z') || (ch >= 'a' && ch <= 'z');
}

/* What others will paste into logs and shells. */
static bool is_good_id(const char *id)
{
    size_t n = 0;
    for (; id && id[n] != '\0'; n++) {
        if (n >= HTTP_ID_BYTES - 1 || (!is_alnum(id[n]) && !strchr("_.-", id[n]))) {
            return false;
        }
    }
    return n > 0;
}

static void make_id(char id[HTTP_ID_BYTES])
{
    unsigned char random[RANDOM_BYTES];
    evutil_secure_rng_get_bytes(random, sizeof random);
    int at = snprintf(id, HTTP_ID_BYTES, "req_");
    for (size_t i = 0; i < RANDOM_BYTES; i++) {
        at += snprintf(id + at, HTTP_ID_BYTES - (size_t)at, "%02x", random[i]);
    }
}

void exchange_begin(http_conn *c)
{
    if (c->in_exchange) {
        return;
    }
    const char *id = http_request_header(&c->reader.request, "x-request-id");
    c->in_exchange = true;
    c->status = 0;
    c->bytes_out = 0;
    c->begin_ns = clock_mono_ns(c->server->cfg.clock);
    c->user[0] = '\0';
    if (is_good_id(id)) {
        snprintf(c->id, sizeof c->id, "%s", id);
    } else {
        make_id(c->id);
    }
}

void exchange_end(http_conn *c, bool gone)
{
    const http_config *cfg = &c->server->cfg;
    const http_request *r = &c->reader.request;
    if (!c->in_exchange) {
        return;
    }
    c->in_exchange = false;
    const http_exchange x = {
        .method = r->is_whole ? http_method_str(r->method) : "-",
        .path = r->is_whole ? buf_str(&r->path) : "-",
        .id = c->id,
        .user = c->user[0] != '\0' ? c->user : "-",
        .status = c->status,
        .bytes_out = c->bytes_out,
        .ms = clock_ms_between(c->begin_ns, clock_mono_ns(cfg->clock)),
        .gone = gone,
    };
    /* no field can forge another: a target has no blanks, and set_user leaves none */
    log_emit(LOG_INFO, "http", "method=%s path=%.256s status=%d bytes_out=%llu ms=%.3f id=%s user=%s gone=%d",
             x.method, x.path, x.status, (unsigned long long)x.bytes_out, x.ms, x.id, x.user, gone);
    if (cfg->on_exchange) {
        cfg->on_exchange(cfg->on_exchange_ctx, &x);
    }
}

const char *http_conn_request_id(const http_conn *c)
{
    return c->id;
}

void http_conn_set_user(http_conn *c, const char *name)
{
    snprintf(c->user, sizeof c->user, "%s", name);
    for (char *p = c->user; *p != '\0'; p++) {
        if ((unsigned char)*p <= ' ' || *p == '"') {
            *p = '_';
        }
    }
}
