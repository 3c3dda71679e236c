#include "wire/line.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/mem.h"

#define MAX_MEMBER_BYTES 64 /* of ,"attach":n */
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
        s->skipping = s->lost = false;
        s->attach_left = 0;
        s->n_edges = 0;
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
    s->n_edges = 0;
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

/* Keeps what is kept of every line that comes in pieces. */
static void keep_edges(line_splitter *s, const char *data, size_t n)
{
    size_t head = s->n_edges < LINE_HEAD_BYTES ? LINE_HEAD_BYTES - s->n_edges : 0;
    head = head < n ? head : n;
    memcpy(s->edges + s->n_edges, data, head);
    s->n_edges += head;
    data += head;
    n -= head;
    if (n == 0) {
        return;
    }
    char *tail = s->edges + LINE_HEAD_BYTES;
    size_t had = s->n_edges - LINE_HEAD_BYTES, more = n < LINE_TAIL_BYTES ? n : LINE_TAIL_BYTES;
    size_t drop = had + more > LINE_TAIL_BYTES ? had + more - LINE_TAIL_BYTES : 0;
    memmove(tail, tail + drop, had - drop);
    memcpy(tail + had - drop, data + n - more, more);
    s->n_edges = LINE_HEAD_BYTES + had - drop + more;
}

/* Adds a piece, the last one or not. */
static bool add_piece(line_splitter *s, const char *data, size_t n, line_fn fn, void *ctx)
{
    if (s->lost || (!s->skipping && n > 0)) {
        keep_edges(s, data, n);
    }
    if (s->skipping || n == 0) {
        return true;
    }
    if (n > s->max_bytes - s->partial.len) {
        return give_up(s, LINE_TOO_LONG, fn, ctx);
    }
    if (buf_append(&s->partial, data, n) != ST_OK) {
        size_t n_edges = s->n_edges;
        drop_partial(s);
        s->n_edges = n_edges;
        s->skipping = s->lost = true;
    }
    return true;
}

static bool finish_line(line_splitter *s, line_fn fn, void *ctx)
{
    bool go_on = true, was_skipping = s->skipping, lost = s->lost;
    s->skipping = s->lost = false; /* before the call: it may ask for an attachment to be skipped */
    if (lost && !is_blank(s->edges, s->n_edges)) {
        go_on = fn(ctx, LINE_NO_MEMORY, s->edges, s->n_edges);
    } else if (!was_skipping && !is_blank(buf_str(&s->partial), s->partial.len)) {
        go_on = fn(ctx, LINE_TEXT, buf_str(&s->partial), s->partial.len);
    }
    drop_partial(s);
    return go_on;
}

/* Up to the next newline, or all. Returns the bytes it took. */
static size_t take_line(line_splitter *s, const char *data, size_t n, line_fn fn, void *ctx, bool *go_on)
{
    const char *newline = memchr(data, '\n', n);
    size_t len = newline ? (size_t)(newline - data) : n;
    if (newline && !s->skipping && s->partial.len == 0 && len <= s->max_bytes) {
        /* the common case, a whole line in one push, needs no copy */
        *go_on = is_blank(data, len) || fn(ctx, LINE_TEXT, data, len);
    } else {
        *go_on = add_piece(s, data, len, fn, ctx) && (!newline || finish_line(s, fn, ctx));
    }
    return newline ? len + 1 : len;
}

/* A piece that is not all of it. Memory for all is taken at once. */
static status add_attached(line_splitter *s, const char *data, size_t n, size_t n_more)
{
    status st = s->partial.len == 0 ? buf_reserve(&s->partial, n + n_more) : ST_OK;
    return st == ST_OK ? buf_append(&s->partial, data, n) : st;
}

/* The same for an attachment. */
static size_t take_attachment(line_splitter *s, const char *data, size_t n, line_fn fn, void *ctx,
                              bool *go_on)
{
    size_t len = n < s->attach_left ? n : (size_t)s->attach_left;
    bool last = len == s->attach_left;
    s->attach_left -= len;
    *go_on = true;
    if (s->skipping) {
        s->skipping = !last;
    } else if (last && s->partial.len == 0) {
        *go_on = fn(ctx, LINE_ATTACHMENT, data, len);
    } else if (add_attached(s, data, len, (size_t)s->attach_left) != ST_OK) {
        *go_on = give_up(s, LINE_NO_MEMORY, fn, ctx); /* at its first piece, so more of it is to come */
    } else if (last) {
        *go_on = fn(ctx, LINE_ATTACHMENT, buf_str(&s->partial), s->partial.len);
        drop_partial(s);
    }
    return len;
}

status line_push(line_splitter *s, const char *data, size_t n, line_fn fn, void *ctx)
{
    while (n > 0) {
        bool go_on;
        size_t took = s->attach_left > 0 ? take_attachment(s, data, n, fn, ctx, &go_on)
                                         : take_line(s, data, n, fn, ctx, &go_on);
        if (!go_on) {
            return ST_CLOSED;
        }
        data += took;
        n -= took;
    }
    return ST_OK;
}

status line_end(line_splitter *s, line_fn fn, void *ctx)
{
    if (s->attach_left == 0 && !finish_line(s, fn, ctx)) {
        return ST_CLOSED;
    }
    if (s->attach_left == 0) { /* the last line may have announced an attachment */
        return ST_OK;
    }
    bool told = s->skipping;
    s->attach_left = 0;
    s->skipping = false;
    drop_partial(s);
    return told || fn(ctx, LINE_TRUNCATED, "", 0) ? ST_OK : ST_CLOSED;
}

void line_expect_attachment(line_splitter *s, size_t n)
{
    assert(n >= 1 && n <= WIRE_MAX_ATTACH_BYTES);
    s->attach_left = n;
}

void line_skip_attachment(line_splitter *s, uint64_t n)
{
    s->attach_left = n;
    s->skipping = n > 0;
}

char *line_take_attachment(line_splitter *s, const char *text, size_t len)
{
    if (text == s->partial.data) {
        return buf_detach(&s->partial, &len);
    }
    char *copy = mem_alloc(len);
    if (copy) {
        memcpy(copy, text, len);
    }
    return copy;
}

/* The text of the member takes the place of the line's last two bytes. */
status line_add_u64(buf *line, const char *key, uint64_t value)
{
    assert(line->len >= 3 && line->data[line->len - 2] == '}' && line->data[line->len - 1] == '\n');
    size_t len = line->len;
    status st = buf_printf(line, ",\"%s\":%" PRIu64 "}\n", key, value);
    if (st == ST_OK) {
        memmove(line->data + len - 2, line->data + len, line->len - len);
    }
    buf_truncate(line, st == ST_OK ? line->len - 2 : len);
    return st;
}

status line_attach(buf *line, const void *data, size_t n)
{
    assert(n >= 1 && n <= WIRE_MAX_ATTACH_BYTES);
    status st = buf_reserve(line, n + MAX_MEMBER_BYTES);
    if (st == ST_OK) {
        st = line_add_u64(line, "attach", n);
    }
    return st == ST_OK ? buf_append(line, data, n) : st;
}
