#include "base/buf.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

#define MIN_CAP 64

void buf_init(buf *b)
{
    memset(b, 0, sizeof *b);
}

void buf_release(buf *b)
{
    if (b) {
        mem_free(b->data);
        memset(b, 0, sizeof *b);
    }
}

void buf_reset(buf *b)
{
    buf_truncate(b, 0);
}

const char *buf_str(const buf *b)
{
    return b->data ? b->data : "";
}

/* cap counts the room for the NUL too: len < cap whenever data is set. */
status buf_reserve(buf *b, size_t n_more)
{
    size_t need;
    if (!size_add(b->len, n_more, &need) || !size_add(need, 1, &need)) {
        return ST_NOMEM;
    }
    if (need <= b->cap) {
        return ST_OK;
    }
    size_t cap = b->cap < MIN_CAP ? MIN_CAP : b->cap;
    while (cap < need) {
        if (!size_add(cap, cap / 2, &cap)) {
            cap = need;
        }
    }
    char *data = mem_realloc(b->data, cap);
    if (!data) {
        return ST_NOMEM;
    }
    data[b->len] = '\0';
    b->data = data;
    b->cap = cap;
    return ST_OK;
}

status buf_append(buf *b, const void *data, size_t n)
{
    status st = buf_reserve(b, n);
    if (st != ST_OK) {
        return st;
    }
    if (n > 0) {
        memcpy(b->data + b->len, data, n);
    }
    b->len += n;
    b->data[b->len] = '\0';
    return ST_OK;
}

status buf_append_str(buf *b, const char *s)
{
    return buf_append(b, s, strlen(s));
}

status buf_append_char(buf *b, char c)
{
    return buf_append(b, &c, 1);
}

status buf_printf(buf *b, const char *fmt, ...)
{
    va_list ap;
    status st = ST_OK;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0) {
        return ST_INTERNAL;
    }
    st = buf_reserve(b, (size_t)n);
    if (st == ST_OK) {
        va_start(ap, fmt);
        vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap);
        va_end(ap);
        b->len += (size_t)n;
    }
    return st;
}

void buf_consume(buf *b, size_t n)
{
    assert(n <= b->len);
    if (n > 0) {
        memmove(b->data, b->data + n, b->len - n + 1);
        b->len -= n;
    }
}

void buf_truncate(buf *b, size_t n)
{
    assert(n <= b->len);
    b->len = n;
    if (b->data) {
        b->data[n] = '\0';
    }
}

void buf_trim(buf *b, size_t n)
{
    size_t cap = b->len > n ? b->len : n;
    if (b->cap > 0 && cap < b->cap - 1) {
        char *data = mem_realloc(b->data, cap + 1);
        b->data = data ? data : b->data;
        b->cap = data ? cap + 1 : b->cap;
    }
}

char *buf_detach(buf *b, size_t *len)
{
    char *data = b->data;
    if (len) {
        *len = b->len;
    }
    memset(b, 0, sizeof *b);
    return data;
}
