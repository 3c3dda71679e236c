#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/json_int.h"
#include "base/utf8.h"

status json_lex_fault(const json_lexer *x, size_t at, const char *fmt, ...)
{
    char msg[sizeof x->e->msg];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    return err_at(x->e, ST_BAD_REQUEST, at, NULL, "bad JSON at byte %zu: %s", at, msg);
}

static bool is_digit(const json_lexer *x)
{
    return x->at < x->len && x->text[x->at] >= '0' && x->text[x->at] <= '9';
}

static void skip_digits(json_lexer *x)
{
    while (is_digit(x)) {
        x->at++;
    }
}

/* Value of the four hex digits at s[0..n); -1 if they are not there. */
static long hex4(const char *s, size_t n)
{
    long v = 0;
    if (n < 4) {
        return -1;
    }
    for (size_t i = 0; i < 4; i++) {
        int c = (unsigned char)s[i];
        int low = c | 0x20;
        if (c >= '0' && c <= '9') {
            v = v * 16 + (c - '0');
        } else if (low >= 'a' && low <= 'f') {
            v = v * 16 + (low - 'a' + 10);
        } else {
            return -1;
        }
    }
    return v;
}

/*
 * \uXXXX, or a pair of them for a character above U+FFFF, at s[0..n). Returns the bytes it took and *cp; 0 if
 * the digits are bad or (then *cp is a surrogate) its partner is missing.
 */
static size_t unicode_escape(const char *s, size_t n, uint32_t *cp)
{
    long hi = n > 2 ? hex4(s + 2, n - 2) : -1;
    *cp = hi < 0 ? 0 : (uint32_t)hi;
    if (hi < 0xD800 || hi > 0xDFFF) {
        return hi < 0 ? 0 : 6;
    }
    long lo = hi <= 0xDBFF && n > 8 && s[6] == '\\' && s[7] == 'u' ? hex4(s + 8, n - 8) : -1;
    if (lo < 0xDC00 || lo > 0xDFFF) {
        return 0;
    }
    *cp = 0x10000 + ((uint32_t)(hi - 0xD800) << 10) + (uint32_t)(lo - 0xDC00);
    return 12;
}

/* The character that a backslash before c means; -1 if none. */
static int plain_escape(char c)
{
    switch (c) {
    case '"':
    case '\\':
    case '/':
        return c;
    case 'b':
        return '\b';
    case 'f':
        return '\f';
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 't':
        return '\t';
    default:
        return -1;
    }
}

/* At a backslash. */
static status lex_escape(json_lexer *x)
{
    const char *s = x->text + x->at;
    size_t n = x->len - x->at;
    if (n > 1 && s[1] == 'u') {
        uint32_t cp;
        size_t took = unicode_escape(s, n, &cp);
        if (took == 0) {
            return cp ? json_lex_fault(x, x->at, "lone surrogate \\u%04x", (unsigned)cp)
                      : json_lex_fault(x, x->at, "\\u needs four hex digits");
        }
        x->at += took;
        return ST_OK;
    }
    if (n > 1 && plain_escape(s[1]) < 0) {
        return json_lex_fault(x, x->at, "unknown escape in a string");
    }
    x->at += n > 1 ? 2 : 1; /* at the end of the text the caller finds that the string has no end */
    return ST_OK;
}

status json_lex_string(json_lexer *x, bool *escaped)
{
    size_t start = x->at++;
    *escaped = false;
    while (x->at < x->len) {
        unsigned c = (unsigned char)x->text[x->at];
        if (c == '"') {
            x->at++;
            return ST_OK;
        }
        if (c == '\\') {
            status st = lex_escape(x);
            if (st != ST_OK) {
                return st;
            }
            *escaped = true;
        } else if (c < 0x20) {
            return json_lex_fault(x, x->at, "control character 0x%02x in a string", c);
        } else if (c < 0x80) {
            x->at++;
        } else {
            bool ok;
            size_t took = utf8_decode(x->text + x->at, x->len - x->at, NULL, &ok);
            if (!ok) {
                return json_lex_fault(x, x->at, "invalid UTF-8");
            }
            x->at += took;
        }
    }
    return json_lex_fault(x, start, "a string has no end");
}

/* digits[0..n) has no leading zero, so that numbers of equal length compare like their text. */
static bool integer_fits(const char *digits, size_t n, bool negative)
{
    const char *limit = negative ? "9223372036854775808" : "18446744073709551615";
    size_t n_limit = strlen(limit);
    return n < n_limit || (n == n_limit && memcmp(digits, limit, n) <= 0);
}

status json_lex_number(json_lexer *x, bool *is_float)
{
    size_t start = x->at;
    bool negative = x->text[x->at] == '-';
    x->at += negative;
    size_t digits = x->at;
    if (!is_digit(x)) {
        return json_lex_fault(x, start, "a number needs digits");
    }
    skip_digits(x);
    size_t n = x->at - digits;
    if (n > 1 && x->text[digits] == '0') {
        return json_lex_fault(x, start, "a number begins with 0");
    }
    *is_float = false;
    if (x->at < x->len && x->text[x->at] == '.') {
        *is_float = true;
        x->at++;
        if (!is_digit(x)) {
            return json_lex_fault(x, start, "a decimal point needs digits behind it");
        }
        skip_digits(x);
    }
    if (x->at < x->len && (x->text[x->at] == 'e' || x->text[x->at] == 'E')) {
        *is_float = true;
        x->at++;
        if (x->at < x->len && (x->text[x->at] == '+' || x->text[x->at] == '-')) {
            x->at++;
        }
        if (!is_digit(x)) {
            return json_lex_fault(x, start, "an exponent needs digits");
        }
        skip_digits(x);
    }
    if (!*is_float && !integer_fits(x->text + digits, n, negative)) {
        return json_lex_fault(x, start, "an integer is outside [-2^63, 2^64)");
    }
    return ST_OK;
}

status json_lex_word(json_lexer *x, const char *word)
{
    size_t n = strlen(word);
    if (x->len - x->at < n || memcmp(x->text + x->at, word, n) != 0) {
        return json_lex_fault(x, x->at, "expected a value");
    }
    x->at += n;
    return ST_OK;
}

size_t json_lex_unescape(char *dst, const char *s, size_t n)
{
    size_t w = 0;
    for (size_t i = 0; i < n;) {
        const char *esc = memchr(s + i, '\\', n - i);
        size_t run = esc ? (size_t)(esc - (s + i)) : n - i;
        memcpy(dst + w, s + i, run);
        w += run;
        i += run;
        if (!esc) {
            break;
        }
        if (esc[1] == 'u') {
            uint32_t cp;
            i += unicode_escape(esc, n - i, &cp);
            w += utf8_encode(cp, dst + w);
        } else {
            i += 2;
            dst[w++] = (char)plain_escape(esc[1]);
        }
    }
    return w;
}
