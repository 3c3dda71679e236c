/*
 * Three states, as in Jinja2's lexer: text, inside {{ }}, inside {% %}. Comments and raw blocks never leave
 * the first.
 */
#include "text/jinja_lex.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/jinja_unicode.h"

#define BRACKETS_MAX 256 /* open at once */

typedef struct lexer {
    jcompile *c;
    const char *src;
    size_t len;
    size_t at;
    bool line_starting; /* what was read last ends with a newline, or nothing was read */
    char open[BRACKETS_MAX];
    size_t n_open;
} lexer;

static jtoken *push(lexer *x, jtok kind, size_t at)
{
    jcompile *c = x->c;
    if (c->n_tokens == c->cap_tokens) {
        size_t cap = c->cap_tokens ? 2 * c->cap_tokens : 256;
        jtoken *grown = jcompile_alloc(c, cap * sizeof *grown);
        if (c->n_tokens) {
            memcpy(grown, c->tokens, c->n_tokens * sizeof *grown);
        }
        c->tokens = grown;
        c->cap_tokens = cap;
    }
    jtoken *t = &c->tokens[c->n_tokens++];
    *t = (jtoken){.kind = (uint8_t)kind, .at = (uint32_t)at};
    return t;
}

static bool starts(const lexer *x, size_t at, const char *s)
{
    size_t n = strlen(s);
    return x->len - at >= n && memcmp(x->src + at, s, n) == 0;
}

/* The first `{{`, `{%` or `{#` from `at`, or len. */
static size_t next_tag(const lexer *x, size_t at)
{
    for (; at + 1 < x->len; at++) {
        const char *p = memchr(x->src + at, '{', x->len - at - 1);
        if (!p) {
            break;
        }
        at = (size_t)(p - x->src);
        if (p[1] == '{' || p[1] == '%' || p[1] == '#') {
            return at;
        }
    }
    return x->len;
}

/* '-', '+' or 0. */
static char sign_at(const lexer *x, size_t at)
{
    return at < x->len && (x->src[at] == '-' || x->src[at] == '+') ? x->src[at] : 0;
}

/* Text [from, to) before a tag that begins with `sign`; lstrip: the tag is a block or a comment. */
static void push_data(lexer *x, size_t from, size_t to, char sign, bool lstrip)
{
    const char *s = x->src;
    if (sign == '-') {
        to = from + unicode_rstrip(s + from, to - from);
    } else if (sign != '+' && lstrip) {
        size_t line = to;
        while (line > from && s[line - 1] != '\n') {
            line--;
        }
        if ((line > from || x->line_starting) && unicode_lstrip(s + line, to - line) == to - line) {
            to = line;
        }
    }
    if (to > from) {
        jtoken *t = push(x, T_DATA, from);
        t->s = s + from;
        t->len = to - from;
    }
}

/* Behind the end of a tag: `-` took the white space that follows, else trim takes one newline. */
static void after_tag(lexer *x, size_t at, char sign, bool trim)
{
    if (sign == '-') {
        at += unicode_lstrip(x->src + at, x->len - at);
    } else if (trim && sign != '+' && at < x->len && x->src[at] == '\n') {
        at++;
    }
    x->line_starting = x->src[at - 1] == '\n';
    x->at = at;
}

static void lex_comment(lexer *x, size_t begin)
{
    size_t from = begin + 2;
    from += sign_at(x, from) != 0;
    const char *end = memmem(x->src + from, x->len - from, "#}", 2);
    if (!end) {
        jcompile_fail(x->c, begin, "this comment has no end");
    }
    size_t at = (size_t)(end - x->src);
    after_tag(x, at + 2, at > from ? sign_at(x, at - 1) : 0, true);
}

static size_t skip_space(const lexer *x, size_t at)
{
    return at + unicode_lstrip(x->src + at, x->len - at);
}

/* `{% word %}` at `at`: the place behind it and the sign of its end, or 0. */
static size_t lone_tag(const lexer *x, size_t at, const char *word, char *end_sign)
{
    at += 2;
    at = skip_space(x, at + (sign_at(x, at) != 0));
    if (!starts(x, at, word)) {
        return 0;
    }
    at = skip_space(x, at + strlen(word));
    *end_sign = sign_at(x, at);
    at += *end_sign != 0;
    return starts(x, at, "%}") ? at + 2 : 0;
}

/* A raw block whose opening tag ends at `from`. */
static void lex_raw(lexer *x, size_t begin, size_t from, char sign)
{
    after_tag(x, from, sign, false);
    from = x->at;
    for (size_t at = from; at < x->len; at++) {
        const char *p = memmem(x->src + at, x->len - at, "{%", 2);
        if (!p) {
            break;
        }
        at = (size_t)(p - x->src);
        char end_sign;
        size_t end = lone_tag(x, at, "endraw", &end_sign);
        if (end) {
            push_data(x, from, at, sign_at(x, at + 2), true);
            after_tag(x, end, end_sign, true);
            return;
        }
    }
    jcompile_fail(x->c, begin, "this raw block has no end");
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_name_byte(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (unsigned char)c >= 0x80;
}

/* Digits with single underscores between them, from `at`; the end. */
static size_t skip_digits(const lexer *x, size_t at)
{
    while (at < x->len &&
           (is_digit(x->src[at]) || (x->src[at] == '_' && at + 1 < x->len && is_digit(x->src[at + 1])))) {
        at++;
    }
    return at;
}

/* The end of a float that begins at `at`, or 0 if it is none (an integer). */
static size_t float_end(const lexer *x, size_t at)
{
    if (at > 0 && x->src[at - 1] == '.') {
        return 0; /* a.0.1: two subscripts */
    }
    size_t end = skip_digits(x, at);
    bool is_float = false;
    if (end + 1 < x->len && x->src[end] == '.' && is_digit(x->src[end + 1])) {
        end = skip_digits(x, end + 1);
        is_float = true;
    }
    if (end < x->len && (x->src[end] == 'e' || x->src[end] == 'E')) {
        size_t exp = end + 1;
        exp += exp < x->len && (x->src[exp] == '+' || x->src[exp] == '-');
        if (exp < x->len && is_digit(x->src[exp])) {
            end = skip_digits(x, exp);
            is_float = true;
        }
    }
    return is_float ? end : 0;
}

/* The digits of [at, end) without underscores, NUL-terminated. */
static char *plain_digits(const lexer *x, size_t at, size_t end)
{
    char *s = jcompile_alloc(x->c, end - at + 1);
    size_t n = 0;
    for (; at < end; at++) {
        if (x->src[at] != '_') {
            s[n++] = x->src[at];
        }
    }
    return s;
}

static int digit_value(char c)
{
    return is_digit(c)            ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : 99;
}

static void lex_number(lexer *x)
{
    size_t begin = x->at, end = float_end(x, begin);
    if (end) {
        push(x, T_FLOAT, begin)->f = strtod(plain_digits(x, begin, end), NULL);
        x->at = end;
        return;
    }
    int base = 10;
    size_t at = begin;
    if (x->src[at] == '0' && at + 1 < x->len) {
        char kind = (char)(x->src[at + 1] | 0x20);
        base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
        at += base != 10 ? 2 : 0;
    }
    uint64_t v = 0;
    size_t first = at;
    bool zero = base == 10 && x->src[at] == '0'; /* 0 and 00, but not 01 */
    for (; at < x->len; at++) {
        char d = x->src[at];
        if (d == '_' && at + 1 < x->len && digit_value(x->src[at + 1]) < base) {
            continue;
        }
        if (digit_value(d) >= base || (zero && d != '0')) {
            break;
        }
        if (v > (INT64_MAX - (uint64_t)digit_value(d)) / (uint64_t)base) {
            jcompile_fail(x->c, begin, "this integer has more than 64 bits");
        }
        v = v * (uint64_t)base + (uint64_t)digit_value(d);
    }
    if (at == first) { /* 0x without digits: 0, then a name */
        at = begin + 1;
    }
    push(x, T_INT, begin)->i = (int64_t)v;
    x->at = at;
}

/* Appends the character of `digits` hexadecimal digits at s[0..n); false if they are not there. */
static bool escape_hex(const char *s, size_t n, size_t digits, char *out, size_t *len)
{
    uint32_t cp = 0;
    if (n < digits) {
        return false;
    }
    for (size_t i = 0; i < digits; i++) {
        int v = digit_value(s[i]);
        if (v >= 16) {
            return false;
        }
        cp = cp << 4 | (uint32_t)v;
    }
    if (cp > 0x10FFFF || (cp >= 0xD800 && cp <= 0xDFFF)) {
        return false;
    }
    *len += utf8_encode(cp, out + *len);
    return true;
}

/* One escape of Python at s (behind the backslash); returns the bytes read, 0 if it is malformed. */
static size_t escape(const char *s, size_t n, char *out, size_t *len)
{
    static const char from[] = "nrtabfv\\'\"", to[] = "\n\r\t\a\b\f\v\\'\"";
    const char *simple = *s ? strchr(from, *s) : NULL;
    if (simple) {
        out[(*len)++] = to[simple - from];
        return 1;
    }
    if (*s == '\n') {
        return 1;
    }
    if (*s >= '0' && *s <= '7') {
        uint32_t cp = 0;
        size_t i = 0;
        for (; i < 3 && i < n && s[i] >= '0' && s[i] <= '7'; i++) {
            cp = cp << 3 | (uint32_t)(s[i] - '0');
        }
        *len += utf8_encode(cp, out + *len);
        return i;
    }
    size_t digits = *s == 'x' ? 2 : *s == 'u' ? 4 : *s == 'U' ? 8 : 0;
    if (digits) {
        return escape_hex(s + 1, n - 1, digits, out, len) ? 1 + digits : 0;
    }
    out[(*len)++] = '\\'; /* not an escape: the backslash stays */
    return SIZE_MAX;
}

static void lex_string(lexer *x)
{
    size_t begin = x->at, at = begin + 1;
    char quote = x->src[begin];
    while (at < x->len && x->src[at] != quote) {
        at += x->src[at] == '\\' ? 2 : 1;
    }
    if (at >= x->len) {
        jcompile_fail(x->c, begin, "this string has no end");
    }
    const char *s = x->src + begin + 1;
    size_t n = at - begin - 1;
    x->at = at + 1;
    jtoken *t = push(x, T_STRING, begin);
    t->s = s;
    t->len = n;
    if (!memchr(s, '\\', n)) {
        return;
    }
    char *out = jcompile_alloc(x->c, n + 4);
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        if (s[i] != '\\') {
            out[len++] = s[i];
            continue;
        }
        size_t used = escape(s + i + 1, n - i - 1, out, &len);
        if (used == 0) {
            jcompile_fail(x->c, begin + 1 + i, "this escape is malformed");
        }
        i += used == SIZE_MAX ? 0 : used;
    }
    t->s = out;
    t->len = len;
}

static void bracket(lexer *x, char c, size_t at)
{
    if (c == '(' || c == '[' || c == '{') {
        if (x->n_open == sizeof x->open) {
            jcompile_fail(x->c, at, "more than %zu brackets are open", sizeof x->open);
        }
        x->open[x->n_open++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
        if (x->n_open == 0) {
            jcompile_fail(x->c, at, "unexpected '%c'", c);
        }
        char want = x->open[--x->n_open];
        if (want != c) {
            jcompile_fail(x->c, at, "unexpected '%c', expected '%c'", c, want);
        }
    }
}

static void lex_operator(lexer *x)
{
    static const struct {
        char text[3];
        uint8_t op;
    } two[] = {{"//", OP_FLOORDIV}, {"**", OP_POW}, {"==", OP_EQ},
               {"!=", OP_NE},       {">=", OP_GE},  {"<=", OP_LE}};
    size_t at = x->at;
    for (size_t i = 0; i < sizeof two / sizeof two[0]; i++) {
        if (starts(x, at, two[i].text)) {
            push(x, T_OP, at)->op = two[i].op;
            x->at += 2;
            return;
        }
    }
    char c = x->src[at];
    if (c == 0 || !strchr("+-/*%~[](){}><=.:|,;", c)) {
        jcompile_fail(x->c, at, "unexpected character '%c'", c);
    }
    bracket(x, c, at);
    push(x, T_OP, at)->op = (uint8_t)c;
    x->at++;
}

/* From behind `{{` or `{%` to behind its end. */
static void lex_tag(lexer *x, size_t begin, bool block)
{
    const char *close = block ? "%}" : "}}";
    push(x, block ? T_BLOCK_BEGIN : T_VAR_BEGIN, begin);
    for (;;) {
        if (x->at >= x->len) {
            jcompile_fail(x->c, begin, "this tag has no end");
        }
        char sign = sign_at(x, x->at);
        if (sign == '+' && !block) {
            sign = 0;
        }
        if (x->n_open == 0 && starts(x, x->at + (sign != 0), close)) {
            push(x, block ? T_BLOCK_END : T_VAR_END, x->at);
            after_tag(x, x->at + (sign != 0) + 2, sign, block);
            return;
        }
        size_t space = unicode_lstrip(x->src + x->at, x->len - x->at);
        char c = x->src[x->at];
        if (space) {
            x->at += space;
        } else if (is_digit(c)) {
            lex_number(x);
        } else if (is_name_byte(c)) {
            jtoken *t = push(x, T_NAME, x->at);
            t->s = x->src + x->at;
            while (x->at < x->len && is_name_byte(x->src[x->at])) {
                x->at++;
            }
            t->len = (size_t)(x->src + x->at - t->s);
        } else if (c == '"' || c == '\'') {
            lex_string(x);
        } else {
            lex_operator(x);
        }
    }
}

void jinja_lex(jcompile *c)
{
    lexer x = {.c = c, .src = c->t->src, .len = c->t->len, .line_starting = true};
    while (x.at < x.len) {
        size_t tag = next_tag(&x, x.at);
        if (tag == x.len) {
            push_data(&x, x.at, x.len, '+', false);
            break;
        }
        char kind = x.src[tag + 1], sign = sign_at(&x, tag + 2), end_sign;
        push_data(&x, x.at, tag, sign, kind != '{');
        size_t raw = kind == '%' ? lone_tag(&x, tag, "raw", &end_sign) : 0;
        if (raw && end_sign != '+') {
            lex_raw(&x, tag, raw, end_sign);
        } else if (kind == '#') {
            lex_comment(&x, tag);
        } else {
            x.at = tag + 2 + (sign != 0);
            lex_tag(&x, tag, kind == '%');
        }
    }
    push(&x, T_EOF, x.len);
}
