#include "text/jinja_text.h"

#include <string.h>

#include "base/utf8.h"

static size_t char_before(const char *s, size_t at)
{
    do {
        at--;
    } while (at > 0 && ((unsigned char)s[at] & 0xC0) == 0x80);
    return at;
}

static void map_slice(jrt *rt, jbuild *b, const jstr *s, size_t from, size_t to, unicode_case how)
{
    jrt_charge(rt, (to - from) / 16);
    while (from < to) {
        uint32_t cp, out[UNICODE_MAP_MAX];
        size_t n = utf8_decode(s->s + from, to - from, &cp, NULL), k = unicode_map(cp, how, out);
        for (size_t i = 0; i < k; i++) {
            jbuild_char(rt, b, out[i], s->m[from]);
        }
        from += n;
    }
}

jstr *jtext_map(jrt *rt, const jstr *s, unicode_case to)
{
    jbuild b;
    jbuild_begin(rt, &b);
    map_slice(rt, &b, s, 0, s->len, to);
    return jbuild_end(rt, &b);
}

jstr *jtext_capitalize(jrt *rt, jstr *s)
{
    jbuild b;
    jbuild_begin(rt, &b);
    size_t first = unicode_offset(s->s, s->len, 1);
    map_slice(rt, &b, s, 0, first, UNICODE_TITLE);
    map_slice(rt, &b, s, first, s->len, UNICODE_LOWER);
    return jbuild_end(rt, &b);
}

static bool has_char(const jstr *chars, const char *c, size_t n)
{
    return memmem(chars->s, chars->len, c, n) != NULL;
}

jstr *jtext_strip(jrt *rt, jstr *s, const jstr *chars, bool left, bool right)
{
    size_t from = 0, to = s->len;
    if (!chars) {
        from = left ? unicode_lstrip(s->s, s->len) : 0;
        to = right ? from + unicode_rstrip(s->s + from, s->len - from) : s->len;
        return jstr_slice(rt, s, from, to);
    }
    while (left && from < to) {
        size_t n = unicode_offset(s->s + from, to - from, 1);
        if (!has_char(chars, s->s + from, n)) {
            break;
        }
        from += n;
        jrt_charge(rt, chars->len / 64);
    }
    while (right && from < to) {
        size_t at = char_before(s->s, to);
        if (!has_char(chars, s->s + at, to - at)) {
            break;
        }
        to = at;
        jrt_charge(rt, chars->len / 64);
    }
    return jstr_slice(rt, s, from, to);
}

size_t jtext_find(jrt *rt, const jstr *s, const jstr *what, size_t from, size_t to, bool last)
{
    if (from > to || what->len > to - from) {
        return SIZE_MAX;
    }
    jrt_charge(rt, (to - from) / 64);
    if (!last) {
        const char *p = memmem(s->s + from, to - from, what->s, what->len);
        return p ? (size_t)(p - s->s) : SIZE_MAX;
    }
    jrt_charge(rt, (to - from) / 8);
    for (size_t at = to - what->len;; at--) {
        if (memcmp(s->s + at, what->s, what->len) == 0) {
            return at;
        }
        if (at == from) {
            return SIZE_MAX;
        }
    }
}

/* Python puts `to` before each character and at the end. */
static jstr *replace_nothing(jrt *rt, jstr *s, const jstr *to, int64_t max)
{
    jbuild b;
    jbuild_begin(rt, &b);
    size_t at = 0;
    for (; max != 0 && at <= s->len; max--) {
        size_t n = at < s->len ? unicode_offset(s->s + at, s->len - at, 1) : 1;
        jbuild_str(rt, &b, to);
        jbuild_slice(rt, &b, s, at, at + n < s->len ? at + n : s->len);
        at += n;
    }
    if (at < s->len) {
        jbuild_slice(rt, &b, s, at, s->len);
    }
    return jbuild_end(rt, &b);
}

jstr *jtext_replace(jrt *rt, jstr *s, const jstr *from, const jstr *to, int64_t max)
{
    if (from->len == 0) {
        return replace_nothing(rt, s, to, max);
    }
    jbuild b;
    jbuild_begin(rt, &b);
    size_t at = 0;
    jrt_charge(rt, s->len / 64);
    for (; max != 0; max--) {
        const char *p = memmem(s->s + at, s->len - at, from->s, from->len);
        if (!p) {
            break;
        }
        jbuild_slice(rt, &b, s, at, (size_t)(p - s->s));
        jbuild_str(rt, &b, to);
        at = (size_t)(p - s->s) + from->len;
    }
    if (at == 0) {
        return s;
    }
    jbuild_slice(rt, &b, s, at, s->len);
    return jbuild_end(rt, &b);
}

jstr *jtext_join(jrt *rt, const jstr *sep, const jseq *texts)
{
    jbuild b;
    jbuild_begin(rt, &b);
    for (size_t i = 0; i < texts->n; i++) {
        if (i) {
            jbuild_str(rt, &b, sep);
        }
        jbuild_str(rt, &b, texts->at[i].s);
    }
    return jbuild_end(rt, &b);
}

jstr *jtext_pad(jrt *rt, jstr *s, int64_t width, jtext_align align, const jstr *fill)
{
    int64_t chars = (int64_t)jstr_chars(s);
    if (width <= chars) {
        return s;
    }
    int64_t more = width - chars;
    int64_t before = align == JTEXT_LEFT ? 0 : align == JTEXT_RIGHT ? more : more / 2 + (more & width & 1);
    jbuild b;
    jbuild_begin(rt, &b);
    jbuild_repeat(rt, &b, fill->s, fill->len, (size_t)before, 0);
    jbuild_str(rt, &b, s);
    jbuild_repeat(rt, &b, fill->s, fill->len, (size_t)(more - before), 0);
    return jbuild_end(rt, &b);
}

/* -- splitting --------------------------------------------------------------------------------------------- */

static void push_slice(jrt *rt, jseq *q, jstr *s, size_t from, size_t to)
{
    jrt_charge(rt, 1);
    jseq_push(rt, q, jv_of_str(jstr_slice(rt, s, from, to)));
}

static void split_space(jrt *rt, jseq *q, jstr *s, int64_t max)
{
    size_t at = unicode_lstrip(s->s, s->len);
    while (at < s->len) {
        if (max-- == 0) {
            push_slice(rt, q, s, at, s->len);
            return;
        }
        size_t end = at;
        while (end < s->len && unicode_lstrip(s->s + end, unicode_offset(s->s + end, s->len - end, 1)) == 0) {
            end += unicode_offset(s->s + end, s->len - end, 1);
        }
        push_slice(rt, q, s, at, end);
        at = end + unicode_lstrip(s->s + end, s->len - end);
    }
}

static void rsplit_space(jrt *rt, jseq *q, jstr *s, int64_t max)
{
    size_t end = unicode_rstrip(s->s, s->len);
    while (end > 0) {
        if (max-- == 0) {
            push_slice(rt, q, s, 0, end);
            return;
        }
        size_t at = end;
        while (at > 0 && unicode_rstrip(s->s + char_before(s->s, at), at - char_before(s->s, at)) != 0) {
            at = char_before(s->s, at);
        }
        push_slice(rt, q, s, at, end);
        end = unicode_rstrip(s->s, at);
    }
}

static void split_text(jrt *rt, jseq *q, jstr *s, const jstr *sep, int64_t max)
{
    size_t at = 0;
    jrt_charge(rt, s->len / 64);
    for (; max != 0; max--) {
        const char *p = memmem(s->s + at, s->len - at, sep->s, sep->len);
        if (!p) {
            break;
        }
        push_slice(rt, q, s, at, (size_t)(p - s->s));
        at = (size_t)(p - s->s) + sep->len;
    }
    push_slice(rt, q, s, at, s->len);
}

static void rsplit_text(jrt *rt, jseq *q, jstr *s, const jstr *sep, int64_t max)
{
    size_t end = s->len;
    for (; max != 0; max--) {
        size_t at = jtext_find(rt, s, sep, 0, end, true);
        if (at == SIZE_MAX) {
            break;
        }
        push_slice(rt, q, s, at + sep->len, end);
        end = at;
    }
    push_slice(rt, q, s, 0, end);
}

jseq *jtext_split(jrt *rt, jstr *s, const jstr *sep, int64_t max, bool from_right)
{
    if (sep && sep->len == 0) {
        jrt_fail(rt, "empty separator");
    }
    jseq *q = jseq_new(rt, SEQ_LIST, 0);
    from_right = from_right && max >= 0; /* without a limit both sides give the same */
    if (!from_right) {
        if (sep) {
            split_text(rt, q, s, sep, max);
        } else {
            split_space(rt, q, s, max);
        }
        return q;
    }
    if (sep) {
        rsplit_text(rt, q, s, sep, max);
    } else {
        rsplit_space(rt, q, s, max);
    }
    for (size_t i = 0; i < q->n / 2; i++) {
        jv v = q->at[i];
        q->at[i] = q->at[q->n - 1 - i];
        q->at[q->n - 1 - i] = v;
    }
    return q;
}

/* Bytes of the line end at s, 0 if there is none: those of str.splitlines. */
static size_t line_end(const char *s, size_t n)
{
    if (*s == '\r') {
        return n > 1 && s[1] == '\n' ? 2 : 1;
    }
    if (*s == '\n' || *s == '\v' || *s == '\f' || (*s >= 0x1C && *s <= 0x1E)) {
        return 1;
    }
    if (n > 1 && (unsigned char)s[0] == 0xC2 && (unsigned char)s[1] == 0x85) {
        return 2;
    }
    bool separator = n > 2 && (unsigned char)s[0] == 0xE2 && (unsigned char)s[1] == 0x80;
    return separator && ((unsigned char)s[2] == 0xA8 || (unsigned char)s[2] == 0xA9) ? 3 : 0;
}

jseq *jtext_split_lines(jrt *rt, jstr *s, bool keep_ends)
{
    jseq *q = jseq_new(rt, SEQ_LIST, 0);
    size_t from = 0;
    jrt_charge(rt, s->len / 64);
    for (size_t at = 0; at < s->len;) {
        size_t n = line_end(s->s + at, s->len - at);
        if (n) {
            push_slice(rt, q, s, from, at + (keep_ends ? n : 0));
            from = at + n;
        }
        at += n ? n : 1;
    }
    if (from < s->len) {
        push_slice(rt, q, s, from, s->len);
    }
    return q;
}
