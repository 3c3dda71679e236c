/*
 * Strings of a rendering (jinja_value.h).
 */
#include <string.h>

#include "base/utf8.h"
#include "text/jinja_unicode.h"
#include "text/jinja_value.h"

static jbytes *bytes_new(jrt *rt, size_t cap)
{
    jbytes *b = (jbytes *)jobj_new(rt, O_BYTES, sizeof *b);
    if (cap > rt->max_bytes / 2) {
        jrt_fail(rt, "the template needs more than %zu bytes of memory", rt->max_bytes);
    }
    if (cap) {
        b->data = jrt_alloc(rt, 2 * cap);
        b->marks = (uint8_t *)b->data + cap;
        b->cap = cap;
    }
    return b;
}

static jstr *str_of_bytes(jrt *rt, jbytes *b, const char *s, size_t len)
{
    jstr *r = (jstr *)jobj_new(rt, O_STR, sizeof *r);
    r->bytes = b;
    b->h.refs++;
    r->s = s ? s : "";
    r->m = s ? b->marks + (s - b->data) : (const uint8_t *)"";
    r->len = len;
    r->chars = SIZE_MAX;
    return r;
}

jstr *jstr_new(jrt *rt, const char *s, size_t n, uint8_t mark)
{
    jbytes *b = bytes_new(rt, n);
    if (n) {
        memcpy(b->data, s, n);
        memset(b->marks, mark, n);
    }
    b->used = n;
    return str_of_bytes(rt, b, b->data, n);
}

jstr *jstr_of(jrt *rt, const char *s)
{
    return jstr_new(rt, s, strlen(s), 0);
}

jstr *jstr_slice(jrt *rt, jstr *s, size_t from, size_t to)
{
    if (from == 0 && to == s->len) {
        return s;
    }
    return str_of_bytes(rt, s->bytes, s->bytes->data ? s->s + from : NULL, to > from ? to - from : 0);
}

jstr *jstr_concat(jrt *rt, jstr *a, jstr *b)
{
    if (b->len == 0) {
        return a;
    }
    if (a->len == 0) {
        return b;
    }
    jbytes *to = a->bytes;
    const char *s = a->s;
    if (a->s + a->len != to->data + to->used || to->cap - to->used < b->len) {
        size_t n = a->len + b->len;
        to = bytes_new(rt, a->len > b->len && n > 256 ? n + n / 2 : n);
        memcpy(to->data, a->s, a->len);
        memcpy(to->marks, a->m, a->len);
        to->used = a->len;
        s = to->data;
        jrt_charge(rt, n / 64);
    }
    memcpy(to->data + to->used, b->s, b->len);
    memcpy(to->marks + to->used, b->m, b->len);
    to->used += b->len;
    return str_of_bytes(rt, to, s, a->len + b->len);
}

size_t jstr_chars(jstr *s)
{
    if (s->chars == SIZE_MAX) {
        s->chars = unicode_count(s->s, s->len);
    }
    return s->chars;
}

size_t jstr_offset(jrt *rt, jstr *s, size_t i)
{
    if (jstr_chars(s) == s->len) {
        return i;
    }
    jrt_charge(rt, i / 64);
    return unicode_offset(s->s, s->len, i);
}

bool jstr_equal(const jstr *a, const jstr *b)
{
    return a->len == b->len && memcmp(a->s, b->s, a->len) == 0;
}

int jstr_compare(const jstr *a, const jstr *b)
{
    int c = memcmp(a->s, b->s, a->len < b->len ? a->len : b->len);
    return c ? (c > 0) - (c < 0) : (a->len > b->len) - (a->len < b->len);
}

bool jstr_is(const jstr *s, const char *text)
{
    return strlen(text) == s->len && memcmp(s->s, text, s->len) == 0;
}

bool jstr_any_plain(const jstr *s)
{
    for (size_t i = 0; i < s->len; i++) {
        if (s->m[i] & MARK_PLAIN) {
            return true;
        }
    }
    return false;
}

jstr *jstr_name(jrt *rt, uint32_t sym)
{
    if (!rt->names[sym]) {
        const jname *n = &rt->t->names[sym];
        rt->names[sym] = jstr_new(rt, n->s, n->len, 0);
        rt->names[sym]->h.refs++;
    }
    return rt->names[sym];
}

/* -- building ---------------------------------------------------------------------------------------------- */

void jbuild_begin(jrt *rt, jbuild *b)
{
    b->bytes = bytes_new(rt, 0);
}

static void make_room(jrt *rt, jbytes *b, size_t n)
{
    if (b->cap - b->used >= n) {
        return;
    }
    if (n > rt->max_bytes || b->used > rt->max_bytes) {
        jrt_fail(rt, "the template needs more than %zu bytes of memory", rt->max_bytes);
    }
    size_t cap = b->used + n;
    cap = cap < 2 * b->cap ? 2 * b->cap : cap < 32 ? 32 : cap;
    char *data = jrt_alloc(rt, 2 * cap);
    if (b->used) {
        memcpy(data, b->data, b->used);
        memcpy(data + cap, b->marks, b->used);
    }
    jrt_free(rt, b->data, 2 * b->cap);
    b->data = data;
    b->marks = (uint8_t *)data + cap;
    b->cap = cap;
}

void jbuild_add(jrt *rt, jbuild *b, const char *s, size_t n, uint8_t mark)
{
    if (n) {
        make_room(rt, b->bytes, n);
        memcpy(b->bytes->data + b->bytes->used, s, n);
        memset(b->bytes->marks + b->bytes->used, mark, n);
        b->bytes->used += n;
    }
}

void jbuild_text(jrt *rt, jbuild *b, const char *s)
{
    jbuild_add(rt, b, s, strlen(s), 0);
}

void jbuild_char(jrt *rt, jbuild *b, uint32_t cp, uint8_t mark)
{
    char bytes[4];
    size_t n = utf8_encode(cp, bytes);
    jbuild_add(rt, b, bytes, n, mark);
}

void jbuild_repeat(jrt *rt, jbuild *b, const char *s, size_t n, size_t times, uint8_t mark)
{
    if (n && times > rt->max_bytes / n) {
        jrt_fail(rt, "the template needs more than %zu bytes of memory", rt->max_bytes);
    }
    make_room(rt, b->bytes, n * times);
    jrt_charge(rt, n * times / 64);
    for (size_t i = 0; i < times; i++) {
        jbuild_add(rt, b, s, n, mark);
    }
}

void jbuild_slice(jrt *rt, jbuild *b, const jstr *s, size_t from, size_t to)
{
    if (to > from) {
        make_room(rt, b->bytes, to - from);
        memcpy(b->bytes->data + b->bytes->used, s->s + from, to - from);
        memcpy(b->bytes->marks + b->bytes->used, s->m + from, to - from);
        b->bytes->used += to - from;
    }
}

void jbuild_str(jrt *rt, jbuild *b, const jstr *s)
{
    jbuild_slice(rt, b, s, 0, s->len);
}

size_t jbuild_len(const jbuild *b)
{
    return b->bytes->used;
}

void jbuild_mark(jbuild *b, size_t from, uint8_t mark)
{
    if (mark) {
        for (size_t i = from; i < b->bytes->used; i++) {
            b->bytes->marks[i] |= mark;
        }
    }
}

jstr *jbuild_end(jrt *rt, jbuild *b)
{
    return str_of_bytes(rt, b->bytes, b->bytes->data, b->bytes->used);
}
