/*
 * json_lex: the strict grammar of RFC 8259 as one loop over the bytes, with the open containers on a stack of
 * fixed size. json-c 0.16 is checked for nothing that this file does not check itself.
 */
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/json_int.h"
#include "base/utf8.h"

/* What may come next. */
typedef enum expect {
    EXPECT_VALUE,
    EXPECT_VALUE_OR_END, /* after '[' */
    EXPECT_KEY,          /* after ',' in an object */
    EXPECT_KEY_OR_END,   /* after '{' */
    EXPECT_COLON,
    EXPECT_COMMA_OR_END,
    EXPECT_NOTHING, /* after the root value */
} expect;

typedef struct lexer {
    const char *text; /* borrowed [len] */
    size_t len;
    size_t at;
    size_t depth, max_depth;
    uint32_t n_objects;
    uint32_t open[JSON_MAX_DEPTH]; /* number of the open object (from 1), 0 = an array */
    json_keys keys;
    err *e;
} lexer;

__attribute__((format(printf, 3, 4))) static status fault(lexer *x, size_t at, const char *fmt, ...) {
    char msg[200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    return err_at(x->e, ST_BAD_REQUEST, at, NULL, "bad JSON at byte %zu: %s", at, msg);
}

static bool is_digit(const lexer *x, size_t at) {
    return at < x->len && x->text[at] >= '0' && x->text[at] <= '9';
}

/* Four hex digits at x->at; -1 if they are not there. */
static long hex4(const lexer *x, size_t at) {
    long v = 0;
    if (x->len - at < 4) {
        return -1;
    }
    for (size_t i = 0; i < 4; i++) {
        int c = (unsigned char)x->text[at + i];
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

/* x->at is on the 'u' of an escape. */
static status lex_unicode_escape(lexer *x) {
    size_t start = x->at - 1;
    long hi = hex4(x, x->at + 1);
    if (hi < 0) {
        return fault(x, start, "\\u needs four hex digits");
    }
    x->at += 5;
    if (hi < 0xD800 || hi > 0xDFFF) {
        return ST_OK;
    }
    bool pair = hi <= 0xDBFF && x->len - x->at >= 6 && x->text[x->at] == '\\' && x->text[x->at + 1] == 'u';
    long lo = pair ? hex4(x, x->at + 2) : -1;
    if (lo < 0xDC00 || lo > 0xDFFF) {
        return fault(x, start, "lone surrogate \\u%04lx", (unsigned long)hi);
    }
    x->at += 6;
    return ST_OK;
}

/* x->at is on the opening quote; afterwards behind the closing one. */
static status lex_string(lexer *x) {
    size_t start = x->at++;
    while (x->at < x->len) {
        unsigned c = (unsigned char)x->text[x->at];
        if (c == '"') {
            x->at++;
            return ST_OK;
        }
        if (c == '\\') {
            size_t esc = x->at++;
            if (x->at < x->len && x->text[x->at] == 'u') {
                status st = lex_unicode_escape(x);
                if (st != ST_OK) {
                    return st;
                }
                continue;
            }
            if (x->at < x->len && (x->text[x->at] == '\0' || !strchr("\"\\/bfnrt", x->text[x->at]))) {
                return fault(x, esc, "unknown escape in a string");
            }
            x->at++;
        } else if (c < 0x20) {
            return fault(x, x->at, "control character 0x%02x in a string", c);
        } else if (c < 0x80) {
            x->at++;
        } else {
            bool ok;
            size_t took = utf8_decode(x->text + x->at, x->len - x->at, NULL, &ok);
            if (!ok) {
                return fault(x, x->at, "invalid UTF-8");
            }
            x->at += took;
        }
    }
    x->at = x->len;
    return fault(x, start, "a string has no end");
}

/* [-2^63, 2^64): digits without leading zeros, compared as text. */
static bool integer_fits(const char *digits, size_t n, bool negative) {
    const char *limit = negative ? "9223372036854775808" : "18446744073709551615";
    size_t n_limit = strlen(limit);
    return n < n_limit || (n == n_limit && memcmp(digits, limit, n) <= 0);
}

/*
 * 2^1024 - 2^970, halfway between the largest double and 2^1024: from here on reading rounds to infinity.
 * Comparing its 309 digits with the literal's decides that exactly, in linear time, however long the literal
 * is.
 */
static const char overflow_digits[] =
    "1797693134862315807937289714053034150799341327100378269361737789804449682927647509466490179775872070963"
    "3028641669288791094655554785194040263065748867150582068190890200070838367627385484581771153176447573027"
    "0069855571366959622842914819860834936475292719074168444365510704342711559699508093042880177904174497792";
#define OVERFLOW_POW10 309 /* the number is 0.DIGITS x 10^309 */
#define EXP_SATURATED  ((int64_t)1 << 40)

/* s[0..n) is the part before 'e' without the sign: DIGITS [. DIGITS]; the exponent is exp. */
static bool overflows(const char *s, size_t n, int64_t exp) {
    const char *dot = memchr(s, '.', n);
    int64_t point = dot ? dot - s : (int64_t)n; /* digits before the point */
    size_t i = 0;
    int64_t zeros = 0; /* leading */
    for (; i < n && (s[i] == '0' || s[i] == '.'); i++) {
        zeros += s[i] == '0';
    }
    if (i == n) {
        return false; /* zero */
    }
    int64_t pow10 = point - zeros + exp; /* the value is 0.DDD x 10^pow10, its first D not zero */
    if (pow10 != OVERFLOW_POW10) {
        return pow10 > OVERFLOW_POW10;
    }
    for (const char *t = overflow_digits; *t; t++) {
        if (i < n && s[i] == '.') {
            i++;
        }
        char c = i < n ? s[i++] : '0';
        if (c != *t) {
            return c > *t;
        }
    }
    return true;
}

/* x->at is on "e" or "E"; afterwards behind the exponent. */
static status lex_exponent(lexer *x, int64_t *exp) {
    size_t start = x->at++;
    bool negative = x->at < x->len && x->text[x->at] == '-';
    int64_t v = 0;
    if (x->at < x->len && (x->text[x->at] == '+' || x->text[x->at] == '-')) {
        x->at++;
    }
    if (!is_digit(x, x->at)) {
        return fault(x, start, "an exponent needs digits");
    }
    for (; is_digit(x, x->at); x->at++) {
        v = v < EXP_SATURATED ? v * 10 + (x->text[x->at] - '0') : v;
    }
    *exp = negative ? -v : v;
    return ST_OK;
}

/* x->at is on '-' or a digit. */
static status lex_number(lexer *x) {
    size_t start = x->at;
    bool negative = x->text[x->at] == '-', is_float = false;
    int64_t exp = 0;
    x->at += negative;
    size_t digits = x->at;
    if (!is_digit(x, x->at)) {
        return fault(x, start, "a number needs digits");
    }
    if (x->text[x->at] == '0' && is_digit(x, x->at + 1)) {
        return fault(x, start, "a number begins with 0");
    }
    while (is_digit(x, x->at)) {
        x->at++;
    }
    if (x->at < x->len && x->text[x->at] == '.') {
        is_float = true;
        if (!is_digit(x, ++x->at)) {
            return fault(x, start, "a decimal point needs digits behind it");
        }
        while (is_digit(x, x->at)) {
            x->at++;
        }
    }
    size_t n = x->at - digits;
    if (x->at < x->len && (x->text[x->at] == 'e' || x->text[x->at] == 'E')) {
        is_float = true;
        status st = lex_exponent(x, &exp);
        if (st != ST_OK) {
            return st;
        }
    }
    if (!is_float && !integer_fits(x->text + digits, n, negative)) {
        return fault(x, start, "an integer is outside [-2^63, 2^64)");
    }
    if (is_float && overflows(x->text + digits, n, exp)) {
        return fault(x, start, "a number overflows a double");
    }
    return ST_OK;
}

static status lex_word(lexer *x, const char *word) {
    size_t n = strlen(word);
    if (x->len - x->at < n || memcmp(x->text + x->at, word, n) != 0) {
        return fault(x, x->at, "expected a value");
    }
    x->at += n;
    return ST_OK;
}

static status open_container(lexer *x, bool object) {
    if (x->depth >= x->max_depth) {
        return fault(x, x->at, "nested deeper than %zu", x->max_depth);
    }
    x->open[x->depth++] = object ? ++x->n_objects : 0;
    x->at++;
    return ST_OK;
}

/* What follows a complete value. */
static expect after_value(const lexer *x) {
    return x->depth ? EXPECT_COMMA_OR_END : EXPECT_NOTHING;
}

static status lex_value(lexer *x, expect *next) {
    char c = x->text[x->at];
    status st;
    switch (c) {
    case '{':
        *next = EXPECT_KEY_OR_END;
        return open_container(x, true);
    case '[':
        *next = EXPECT_VALUE_OR_END;
        return open_container(x, false);
    case '"':
        st = lex_string(x);
        break;
    case 't':
        st = lex_word(x, "true");
        break;
    case 'f':
        st = lex_word(x, "false");
        break;
    case 'n':
        st = lex_word(x, "null");
        break;
    default:
        if (c != '-' && (c < '0' || c > '9')) {
            return fault(x, x->at, "expected a value");
        }
        st = lex_number(x);
    }
    *next = after_value(x);
    return st;
}

static status lex_key(lexer *x, expect *next) {
    size_t start = x->at + 1;
    if (x->text[x->at] != '"') {
        return fault(x, x->at, "expected a key in double quotes");
    }
    status st = lex_string(x);
    if (st == ST_OK) {
        st = json_keys_add(&x->keys, x->open[x->depth - 1], start, x->at - 1 - start, x->e);
    }
    *next = EXPECT_COLON;
    return st;
}

/* x->at is on a byte that is not white space. */
static status step(lexer *x, expect *next) {
    char c = x->text[x->at];
    bool in_object = x->depth > 0 && x->open[x->depth - 1] != 0;
    bool may_end = *next == EXPECT_COMMA_OR_END || *next == EXPECT_KEY_OR_END || *next == EXPECT_VALUE_OR_END;
    if (may_end && c == (in_object ? '}' : ']')) {
        x->at++;
        x->depth--;
        *next = after_value(x);
        return ST_OK;
    }
    switch (*next) {
    case EXPECT_VALUE:
    case EXPECT_VALUE_OR_END:
        return lex_value(x, next);
    case EXPECT_KEY:
    case EXPECT_KEY_OR_END:
        return lex_key(x, next);
    case EXPECT_COLON:
        *next = EXPECT_VALUE;
        return c == ':' ? (x->at++, ST_OK) : fault(x, x->at, "expected ':'");
    case EXPECT_COMMA_OR_END:
        *next = in_object ? EXPECT_KEY : EXPECT_VALUE;
        return c == ',' ? (x->at++, ST_OK) : fault(x, x->at, "expected ',' or '%c'", in_object ? '}' : ']');
    case EXPECT_NOTHING:
        break;
    }
    return fault(x, x->at, "text after the value");
}

status json_lex_check(const char *text, size_t len, size_t max_depth, err *e) {
    lexer x = {.text = text, .len = len, .e = e};
    expect next = EXPECT_VALUE;
    status st = ST_OK;
    x.max_depth = max_depth < JSON_MAX_DEPTH ? max_depth : JSON_MAX_DEPTH;
    x.keys.text = text;
    if (len > JSON_MAX_BYTES) {
        return err_at(e, ST_BAD_REQUEST, JSON_MAX_BYTES, NULL, "bad JSON: %zu bytes are more than %zu", len,
                      JSON_MAX_BYTES);
    }
    while (st == ST_OK && x.at < len) {
        char c = text[x.at];
        if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
            x.at++;
        } else {
            st = step(&x, &next);
        }
    }
    if (st == ST_OK && next != EXPECT_NOTHING) {
        st = fault(&x, len, "the text ends too early");
    }
    json_keys_release(&x.keys);
    return st;
}
