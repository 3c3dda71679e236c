#include <assert.h>
#include <event2/buffer.h>
#include <stdio.h>
#include <time.h>

#include "serve/http_int.h"

static struct evbuffer *output(const http_conn *c)
{
    return bufferevent_get_output(c->bev);
}

static const char *status_words(int http_status)
{
    switch (http_status) {
#define X(number, name, text) \
    case number:              \
        return #text;
        HTTP_STATUS_MAP(X)
#undef X
    }
    return "Unknown";
}

/* RFC 9110, 5.6.7; the C locale's names whatever the locale is. */
static void put_date(http_conn *c)
{
    static const char *const days[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    struct tm tm;
    time_t now = (time_t)(clock_wall_ms(c->server->cfg.clock) / 1000);
    if (gmtime_r(&now, &tm)) {
        evbuffer_add_printf(output(c), "Date: %s, %02d %s %d %02d:%02d:%02d GMT\r\n", days[tm.tm_wday],
                            tm.tm_mday, months[tm.tm_mon], tm.tm_year + 1900, tm.tm_hour, tm.tm_min,
                            tm.tm_sec);
    }
}

/* Decides whether the connection goes on: it cannot if a body is on its way that nobody wants to read. */
static void put_start(http_conn *c, int http_status, const char *content_type, bool may_keep)
{
    const http_request *r = &c->reader.request;
    bool body_unread = c->phase != HTTP_PHASE_REPLY && r->has_body && !http_reader_may_skip(&c->reader);
    c->keep =
        may_keep && r->keep_alive && !body_unread && !c->server->draining && c->reader.fault.status == 0;
    c->status = http_status;
    c->bare = (r->is_whole && r->method == HTTP_HEAD) || http_status == 204;
    evbuffer_add_printf(output(c), "HTTP/1.1 %d %s\r\n", http_status, status_words(http_status));
    put_date(c);
    evbuffer_add_printf(output(c), "X-Request-Id: %s\r\n", c->id);
    if (http_status != 204) {
        evbuffer_add_printf(output(c), "Content-Type: %s\r\n", content_type);
    }
    if (!c->keep) {
        evbuffer_add_printf(output(c), "Connection: close\r\n");
    } else if (r->minor == 0) {
        evbuffer_add_printf(output(c), "Connection: keep-alive\r\n");
    }
}

void http_conn_on_gone(http_conn *c, void (*gone)(void *ctx), void *ctx)
{
    c->gone = gone;
    c->gone_ctx = ctx;
}

void http_conn_on_slow(http_conn *c, void (*slow)(void *ctx, bool is_slow), void *ctx)
{
    c->slow = slow;
    c->slow_ctx = ctx;
}

void http_conn_reply(http_conn *c, const http_reply *reply)
{
    assert(!c->answered && !c->streaming);
    size_t before = conn_unsent(c);
    put_start(c, reply->status, reply->content_type ? reply->content_type : "application/json", true);
    if (reply->allow) {
        evbuffer_add_printf(output(c), "Allow: %s\r\n", reply->allow);
    }
    if (reply->retry_after_s > 0) {
        evbuffer_add_printf(output(c), "Retry-After: %d\r\n", reply->retry_after_s);
    }
    if (reply->status == 401) { /* RFC 9110, 15.5.2 */
        evbuffer_add_printf(output(c), "WWW-Authenticate: Bearer\r\n");
    }
    if (reply->status != 204) {
        evbuffer_add_printf(output(c), "Content-Length: %zu\r\n", reply->body_len);
    }
    bool ok = evbuffer_add(output(c), "\r\n", 2) == 0;
    if (!ok || (!c->bare && evbuffer_add(output(c), reply->body, reply->body_len) != 0)) {
        conn_doom(c); /* half an answer would be taken for a whole one of another length */
    }
    c->bytes_out = conn_unsent(c) - before;
    conn_answered(c);
}

void http_conn_stream_begin(http_conn *c)
{
    assert(!c->answered && !c->streaming);
    size_t before = conn_unsent(c);
    c->streaming = c->written = true;
    c->is_slow = false;
    c->chunked = c->reader.request.minor >= 1;
    put_start(c, 200, "text/event-stream; charset=utf-8", c->chunked);
    evbuffer_add_printf(output(c), "Cache-Control: no-cache\r\n%s\r\n",
                        c->chunked ? "Transfer-Encoding: chunked\r\n" : "");
    c->bytes_out = conn_unsent(c) - before;
}

static bool put_piece(http_conn *c, const char *data, size_t n)
{
    bool ok = !c->chunked || evbuffer_add_printf(output(c), "%zx\r\n", n) >= 0;
    ok = ok && evbuffer_add(output(c), data, n) == 0;
    return ok && (!c->chunked || evbuffer_add(output(c), "\r\n", 2) == 0);
}

void http_conn_stream_write(http_conn *c, const char *data, size_t n)
{
    assert(c->streaming && n > 0);
    const http_config *cfg = &c->server->cfg;
    if (c->doomed || c->bare) {
        return;
    }
    size_t before = conn_unsent(c);
    bool ok = put_piece(c, data, n);
    size_t after = conn_unsent(c);
    c->written = true;
    c->bytes_out += after - before;
    if (!ok || after > cfg->max_unsent) {
        conn_doom(c);
    } else if (c->slow && !c->is_slow && after > cfg->pause_at) {
        conn_wake(c);
    }
}

void http_conn_stream_end(http_conn *c)
{
    assert(c->streaming);
    if (c->chunked && !c->bare) {
        if (evbuffer_add(output(c), "0\r\n\r\n", 5) != 0) {
            conn_doom(c);
        }
        c->bytes_out += 5;
    }
    c->streaming = false;
    conn_answered(c);
}

void conn_write_probe(http_conn *c)
{
    static const char processing[] = "HTTP/1.1 102 Processing\r\n\r\n";
    bool ok = true;
    if (!c->streaming) {
        ok = evbuffer_add(output(c), processing, sizeof processing - 1) == 0;
    } else if (!c->bare) {
        ok = put_piece(c, ":\n\n", 3);
    }
    if (!ok) {
        conn_doom(c);
    }
}
