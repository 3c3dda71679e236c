#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"

#define NUMBER_BYTES      400  /* %.17f of the largest double takes 328 */
#define INTEGER_BYTES     20   /* of 2^64 - 1, and of -2^63 with its sign */
#define SHORT_FLOAT_BELOW 1e15 /* larger ones show their exponent anyway */

static void put(json_w *w, const char *s, size_t n)
{
    if (w->st == ST_OK) {
        w->st = buf_append(w->out, s, n);
    }
}

/* Before a value or a key: the comma that separates it from the one before. */
static void separate(json_w *w)
{
    if (w->need_comma) {
        put(w, ",", 1);
    }
}

static void put_value(json_w *w, const char *s, size_t n)
{
    separate(w);
    put(w, s, n);
    w->need_comma = true;
}

void json_w_begin(json_w *w, buf *out)
{
    *w = (json_w){.out = out, .st = ST_OK};
}

status json_w_end(json_w *w)
{
    assert(w->depth == 0 || w->st != ST_OK);
    return w->st;
}

static void open_with(json_w *w, const char *bracket)
{
    separate(w);
    put(w, bracket, 1);
    w->depth++;
    w->need_comma = false;
}

static void close_with(json_w *w, const char *bracket)
{
    assert(w->depth > 0);
    put(w, bracket, 1);
    w->depth--;
    w->need_comma = true;
}

void json_w_obj_open(json_w *w)
{
    open_with(w, "{");
}

void json_w_obj_close(json_w *w)
{
    close_with(w, "}");
}

void json_w_arr_open(json_w *w)
{
    open_with(w, "[");
}

void json_w_arr_close(json_w *w)
{
    close_with(w, "]");
}

/* Writes the escape of cp to esc and returns its length, 0 if cp stands for itself. */
static size_t escape(uint32_t cp, char esc[8])
{
    static const char short_form[32] = {['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'};
    esc[0] = '\\';
    if (cp == '"' || cp == '\\') {
        esc[1] = (char)cp;
        return 2;
    }
    if (cp < 0x20 && short_form[cp]) {
        esc[1] = short_form[cp];
        return 2;
    }
    if (cp < 0x20 || (cp >= 0x7F && cp < 0xA0) || cp == 0x2028 || cp == 0x2029) {
        return (size_t)snprintf(esc, 8, "\\u%04x", (unsigned)cp);
    }
    return 0;
}

static void put_quoted(json_w *w, const char *s, size_t n)
{
    size_t from = 0; /* s[from..i) is written as it is */
    put(w, "\"", 1);
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        bool ok;
        char esc[8];
        size_t took = utf8_decode(s + i, n - i, &cp, &ok);
        size_t n_esc = ok ? escape(cp, esc) : utf8_encode(UTF8_REPLACEMENT, esc);
        if (n_esc > 0) {
            put(w, s + from, i - from);
            put(w, esc, n_esc);
            from = i + took;
        }
        i += took;
    }
    put(w, s + from, n - from);
    put(w, "\"", 1);
}

void json_w_key(json_w *w, const char *key)
{
    separate(w);
    put_quoted(w, key, strlen(key));
    put(w, ":", 1);
    w->need_comma = false;
}

void json_w_str(json_w *w, const char *s, size_t n)
{
    separate(w);
    put_quoted(w, s, n);
    w->need_comma = true;
}

void json_w_cstr(json_w *w, const char *s)
{
    json_w_str(w, s, strlen(s));
}

/* Lists of token ids are long: this is several times as fast as printf. */
static void put_decimal(json_w *w, bool negative, uint64_t v)
{
    char text[INTEGER_BYTES], *at = text + sizeof text;
    do {
        *--at = (char)('0' + v % 10);
        v /= 10;
    } while (v > 0);
    if (negative) {
        *--at = '-';
    }
    put_value(w, at, (size_t)(text + sizeof text - at));
}

void json_w_i64(json_w *w, int64_t v)
{
    put_decimal(w, v < 0, v < 0 ? 0 - (uint64_t)v : (uint64_t)v);
}

void json_w_u64(json_w *w, uint64_t v)
{
    put_decimal(w, false, v);
}

/* The decimal point of a number that printf wrote is the locale's (one to a few bytes): makes it a '.'. */
static size_t plain_point(char *text)
{
    size_t w = 0;
    bool in_point = false;
    for (const char *r = text; *r; r++) {
        bool ours = (*r >= '0' && *r <= '9') || *r == '-' || *r == '+' || *r == 'e';
        if (ours) {
            text[w++] = *r;
        } else if (!in_point) {
            text[w++] = '.';
        }
        in_point = !ours;
    }
    text[w] = '\0';
    return w;
}

void json_w_f64(json_w *w, double v)
{
    char text[NUMBER_BYTES];
    if (!isfinite(v)) {
        json_w_null(w);
        return;
    }
    if (v == 0.0) {
        put_value(w, signbit(v) ? "-0.0" : "0", signbit(v) ? 4 : 1); /* "-0" would be read as an integer */
        return;
    }
    /* Any decimal of up to 15 digits survives a normal double, so %.15g finds it; below DBL_MIN fewer do. */
    for (int digits = fabs(v) < DBL_MIN ? 1 : 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v) {
            break;
        }
    }
    put_value(w, text, plain_point(text));
}

void json_w_fixed(json_w *w, double v, int digits)
{
    char text[NUMBER_BYTES];
    if (!isfinite(v)) {
        json_w_null(w);
        return;
    }
    digits = digits < 0 ? 0 : digits > 17 ? 17 : digits;
    snprintf(text, sizeof text, "%.*f", digits, v);
    put_value(w, text, plain_point(text));
}

void json_w_bool(json_w *w, bool v)
{
    put_value(w, v ? "true" : "false", v ? 4 : 5);
}

void json_w_null(json_w *w)
{
    put_value(w, "null", 4);
}

/* "1.0" is read as a float, "1" would not be. */
static void put_float(json_w *w, double v)
{
    if (v == trunc(v) && fabs(v) < SHORT_FLOAT_BELOW) {
        json_w_fixed(w, v, 1);
    } else {
        json_w_f64(w, v);
    }
}

static bool put_member(void *ctx, const char *key, size_t key_len, const json *v)
{
    json_w_key(ctx, key);
    json_w_json(ctx, v);
    return true;
}

static void put_number(json_w *w, const json *v)
{
    int64_t i;
    uint64_t u;
    double f;
    if (json_i64(v, &i)) {
        json_w_i64(w, i);
    } else if (json_u64(v, &u)) {
        json_w_u64(w, u);
    } else if (json_f64(v, &f)) {
        put_float(w, f);
    }
}

void json_w_json(json_w *w, const json *v)
{
    size_t len;
    bool b;
    const char *s;
    switch (json_kind(v)) {
    case JSON_NULL:
        json_w_null(w);
        break;
    case JSON_BOOL:
        json_w_bool(w, json_bool(v, &b) && b);
        break;
    case JSON_INT:
    case JSON_DOUBLE:
        put_number(w, v);
        break;
    case JSON_STRING:
        s = json_string(v, &len);
        json_w_str(w, s, len);
        break;
    case JSON_ARRAY:
        json_w_arr_open(w);
        for (size_t i = 0; i < json_len(v); i++) {
            json_w_json(w, json_at(v, i));
        }
        json_w_arr_close(w);
        break;
    case JSON_OBJECT:
        json_w_obj_open(w);
        json_each(v, put_member, w);
        json_w_obj_close(w);
        break;
    }
}
