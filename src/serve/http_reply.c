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

/* Decides whether the connection goes on: it cannot if a body that nobody will read is on its way. */
static void put_start(http_conn *c, int http_status, const char *content_type, bool may_keep)
{
    const http_request *r = &c->reader.request;
    bool body_unread = c->phase != HTTP_PHASE_REPLY && r->has_body;
    c->keep =
        may_keep && r->keep_alive && !body_unread && !c->server->draining && c->reader.fault.status == 0;
    evbuffer_add_printf(output(c), "HTTP/1.1 %d %s\r\n", http_status, status_words(http_status));
    put_date(c);
    evbuffer_add_printf(output(c), "Content-Type: %s\r\n", content_type);
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

void http_conn_reply(http_conn *c, const http_reply *reply)
{
    assert(!c->answered && !c->streaming);
    put_start(c, reply->status, reply->content_type ? reply->content_type : "application/json", true);
    if (reply->allow) {
        evbuffer_add_printf(output(c), "Allow: %s\r\n", reply->allow);
    }
    if (reply->retry_after_s > 0) {
        evbuffer_add_printf(output(c), "Retry-After: %d\r\n", reply->retry_after_s);
    }
    evbuffer_add_printf(output(c), "Content-Length: %zu\r\n\r\n", reply->body_len);
    if (c->reader.request.method != HTTP_HEAD && evbuffer_add(output(c), reply->body, reply->body_len) != 0) {
        conn_doom(c); /* half an answer would be taken for a whole one of another length */
    }
    conn_answered(c);
}

void http_conn_stream_begin(http_conn *c)
{
    assert(!c->answered && !c->streaming);
    c->streaming = true;
    c->chunked = c->reader.request.minor >= 1;
    put_start(c, 200, "text/event-stream; charset=utf-8", c->chunked);
    evbuffer_add_printf(output(c), "Cache-Control: no-cache\r\n%s\r\n",
                        c->chunked ? "Transfer-Encoding: chunked\r\n" : "");
}

void http_conn_stream_write(http_conn *c, const char *data, size_t n)
{
    assert(c->streaming && n > 0);
    if (c->doomed) {
        return;
    }
    bool ok = !c->chunked || evbuffer_add_printf(output(c), "%zx\r\n", n) >= 0;
    ok = ok && evbuffer_add(output(c), data, n) == 0;
    ok = ok && (!c->chunked || evbuffer_add(output(c), "\r\n", 2) == 0);
    if (!ok || evbuffer_get_length(output(c)) > HTTP_MAX_UNSENT) {
        conn_doom(c);
    }
}

void http_conn_stream_end(http_conn *c)
{
    assert(c->streaming);
    if (c->chunked && evbuffer_add(output(c), "0\r\n\r\n", 5) != 0) {
        conn_doom(c);
    }
    c->streaming = false;
    conn_answered(c);
}
