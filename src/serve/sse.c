#include "serve/sse.h"

#define KEEP_BYTES 4096 /* of memory between two events */

void sse_release(sse_stream *s)
{
    buf_release(&s->event);
}

void sse_begin(sse_stream *s)
{
    if (!s->began) {
        s->began = true;
        s->last_ns = clock_mono_ns(s->clock);
        http_conn_stream_begin(s->conn);
    }
}

static void put(sse_stream *s, const char *text)
{
    s->failed = s->failed || buf_append_str(&s->event, text) != ST_OK;
}

static void write_event(sse_stream *s)
{
    if (!s->failed) {
        sse_begin(s);
        http_conn_stream_write(s->conn, s->event.data, s->event.len);
        s->last_ns = clock_mono_ns(s->clock);
    }
    if (s->event.cap > KEEP_BYTES) {
        buf_release(&s->event);
    }
}

buf *sse_object(sse_stream *s)
{
    buf_reset(&s->event);
    put(s, "data: ");
    return &s->event;
}

buf *sse_named_object(sse_stream *s, const char *name)
{
    buf_reset(&s->event);
    put(s, "event: ");
    put(s, name);
    put(s, "\ndata: ");
    return &s->event;
}

void sse_send(sse_stream *s, status appended)
{
    s->failed = s->failed || appended != ST_OK;
    put(s, "\n\n");
    write_event(s);
}

void sse_comment(sse_stream *s, const char *text)
{
    buf_reset(&s->event);
    put(s, ": ");
    put(s, text);
    put(s, "\n\n");
    write_event(s);
}

void sse_end(sse_stream *s, bool whole)
{
    static const char last[] = "data: [DONE]\n\n";
    if (s->failed) { /* an event is missing: nobody is to take this for all of it */
        http_conn_stream_cut(s->conn);
        return;
    }
    if (whole) {
        http_conn_stream_write(s->conn, last, sizeof last - 1);
    }
    http_conn_stream_end(s->conn);
}
