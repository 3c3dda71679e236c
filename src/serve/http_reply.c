#include <assert.h>
#include <event2/buffer.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "serve/http_int.h"
#include "serve/loop_memory.h"

static struct evbuffer *output(const http_conn *c)
{
    return bufferevent_get_output(c->bev);
}

/* Without memory the connection is lost: a client must not take a part for the whole. */
static void put(http_conn *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void put(http_conn *c, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (evbuffer_add_vprintf(output(c), fmt, ap) < 0) {
        conn_doom(c);
    }
    va_end(ap);
}

static void put_bytes(http_conn *c, const char *data, size_t n)
{
    if (evbuffer_add(output(c), data, n) != 0) {
        conn_doom(c);
    }
}

static void want_writing(http_conn *c)
{
    if (!loop_memory_will_write(c->bev)) {
        conn_doom(c);
    }
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
        put(c, "Date: %s, %02d %s %d %02d:%02d:%02d GMT\r\n", days[tm.tm_wday], tm.tm_mday, months[tm.tm_mon],
            tm.tm_year + 1900, tm.tm_hour, tm.tm_min, tm.tm_sec);
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
    put(c, "HTTP/1.1 %d %s\r\n", http_status, status_words(http_status));
    put_date(c);
    put(c, "X-Request-Id: %s\r\n", c->id);
    if (http_status != 204) {
        put(c, "Content-Type: %s\r\n", content_type);
    }
    if (!c->keep) {
        put(c, "Connection: close\r\n");
    } else if (r->minor == 0) {
        put(c, "Connection: keep-alive\r\n");
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

static void put_body(http_conn *c, const http_reply *reply)
{
    if (c->bare) {
        held_bytes_free(reply->held);
    } else if (!reply->held) {
        put_bytes(c, reply->body, reply->body_len);
    } else if (!held_bytes_send(reply->held, output(c))) {
        conn_doom(c);
    }
}

void http_conn_reply(http_conn *c, const http_reply *reply)
{
    assert(!c->answered && !c->streaming);
    size_t before = conn_unsent(c);
    put_start(c, reply->status, reply->content_type ? reply->content_type : "application/json", true);
    if (reply->allow) {
        put(c, "Allow: %s\r\n", reply->allow);
    }
    if (reply->retry_after_s > 0) {
        put(c, "Retry-After: %d\r\n", reply->retry_after_s);
    }
    if (reply->headers) {
        put_bytes(c, reply->headers, strlen(reply->headers));
    }
    if (reply->status == 401) { /* RFC 9110, 15.5.2 */
        put(c, "WWW-Authenticate: Bearer\r\n");
    }
    if (reply->status != 204) {
        put(c, "Content-Length: %zu\r\n", reply->held ? reply->held->bytes.len : reply->body_len);
    }
    put(c, "\r\n");
    put_body(c, reply);
    want_writing(c);
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
    put(c, "Cache-Control: no-cache\r\n%s\r\n", c->chunked ? "Transfer-Encoding: chunked\r\n" : "");
    want_writing(c);
    c->bytes_out = conn_unsent(c) - before;
}

static void put_piece(http_conn *c, const char *data, size_t n)
{
    if (c->chunked) {
        put(c, "%zx\r\n", n);
    }
    put_bytes(c, data, n);
    if (c->chunked) {
        put(c, "\r\n");
    }
}

void http_conn_stream_write(http_conn *c, const char *data, size_t n)
{
    assert(c->streaming && n > 0);
    const http_config *cfg = &c->server->cfg;
    if (c->doomed || c->bare) {
        return;
    }
    size_t before = conn_unsent(c);
    put_piece(c, data, n);
    want_writing(c);
    size_t after = conn_unsent(c);
    c->written = true;
    c->bytes_out += after - before;
    if (after > cfg->max_unsent) {
        conn_doom(c);
    } else if (c->slow && !c->is_slow && after > cfg->pause_at) {
        conn_wake(c);
    }
}

void http_conn_stream_end(http_conn *c)
{
    assert(c->streaming);
    if (c->chunked && !c->bare) {
        put(c, "0\r\n\r\n");
        want_writing(c);
        c->bytes_out += 5;
    }
    c->streaming = false;
    conn_answered(c);
}

void http_conn_stream_cut(http_conn *c)
{
    assert(c->streaming);
    conn_answered(c); /* it goes as one that streams: with a reset where nothing else tells */
    conn_doom(c);
}

void conn_write_continue(http_conn *c)
{
    put(c, "HTTP/1.1 100 Continue\r\n\r\n");
    want_writing(c);
}

void conn_write_probe(http_conn *c)
{
    if (!c->streaming) {
        put(c, "HTTP/1.1 102 Processing\r\n\r\n");
    } else if (!c->bare) {
        put_piece(c, ":\n\n", 3);
    }
    want_writing(c);
}
