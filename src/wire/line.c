#include "wire/line.h"

#include <string.h>

/* A buffer that grew beyond this for one line is given back after it. */
#define KEEP_BYTES ((size_t)1 << 20)

void line_init(line_splitter *s, size_t max_bytes)
{
    memset(s, 0, sizeof *s);
    s->max_bytes = max_bytes;
}

void line_release(line_splitter *s)
{
    if (s) {
        buf_release(&s->partial);
        s->skipping = false;
    }
}

static bool is_blank(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (s[i] != ' ' && s[i] != '\t' && s[i] != '\r') {
            return false;
        }
    }
    return true;
}

static void drop_partial(line_splitter *s)
{
    if (s->partial.cap > KEEP_BYTES) {
        buf_release(&s->partial);
    } else {
        buf_reset(&s->partial);
    }
}

/* Reports a line that cannot be kept and skips what is left of it. */
static bool give_up(line_splitter *s, line_kind kind, line_fn fn, void *ctx)
{
    drop_partial(s);
    s->skipping = true;
    return fn(ctx, kind, "", 0);
}

/* Adds a piece that does not complete its line. */
static bool add_piece(line_splitter *s, const char *data, size_t n, line_fn fn, void *ctx)
{
    if (s->skipping || n == 0) {
        return true;
    }
    if (n > s->max_bytes - s->partial.len) {
        return give_up(s, LINE_TOO_LONG, fn, ctx);
    }
    if (buf_append(&s->partial, data, n) != ST_OK) {
        return give_up(s, LINE_NO_MEMORY, fn, ctx);
    }
    return true;
}

static bool finish_line(line_splitter *s, line_fn fn, void *ctx)
{
    bool go_on = true;
    if (!s->skipping && !is_blank(buf_str(&s->partial), s->partial.len)) {
        go_on = fn(ctx, LINE_TEXT, buf_str(&s->partial), s->partial.len);
    }
    drop_partial(s);
    s->skipping = false;
    return go_on;
}

status line_push(line_splitter *s, const char *data, size_t n, line_fn fn, void *ctx)
{
    while (n > 0) {
        const char *newline = memchr(data, '\n', n);
        size_t len = newline ? (size_t)(newline - data) : n;
        bool go_on = true;
        if (newline && !s->skipping && s->partial.len == 0 && len <= s->max_bytes) {
            /* the common case, a whole line in one push, needs no copy */
            go_on = is_blank(data, len) || fn(ctx, LINE_TEXT, data, len);
        } else {
            go_on = add_piece(s, data, len, fn, ctx) && (!newline || finish_line(s, fn, ctx));
        }
        if (!go_on) {
            return ST_CLOSED;
        }
        size_t took = newline ? len + 1 : len;
        data += took;
        n -= took;
    }
    return ST_OK;
}

status line_end(line_splitter *s, line_fn fn, void *ctx)
{
    return finish_line(s, fn, ctx) ? ST_OK : ST_CLOSED;
}
