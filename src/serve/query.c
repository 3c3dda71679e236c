#include "serve/query.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN_BYTES 64

static int nibble(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool query_unescape(const char *s, size_t n, bool plus, char *out, size_t cap)
{
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        if (c == '%') {
            int high = i + 2 < n ? nibble(s[i + 1]) : -1, low = high >= 0 ? nibble(s[i + 2]) : -1;
            if (low < 0) {
                return false;
            }
            c = (char)(high * 16 + low);
            i += 2;
        } else if (c == '+' && plus) {
            c = ' ';
        }
        if (c == '\0' || len + 1 >= cap) {
            return false;
        }
        out[len++] = c;
    }
    out[len] = '\0';
    return true;
}

static bool read_one(const char *s, size_t n, query_field *fields, size_t n_fields, err *e)
{
    char name[SHOWN_BYTES];
    const char *equals = memchr(s, '=', n);
    size_t name_len = equals ? (size_t)(equals - s) : n;
    query_field *f = NULL;
    if (query_unescape(s, name_len, true, name, sizeof name)) {
        for (size_t i = 0; i < n_fields && !f; i++) {
            f = strcmp(fields[i].name, name) == 0 ? &fields[i] : NULL;
        }
    }
    if (!f) {
        int shown = name_len < SHOWN_BYTES ? (int)name_len : SHOWN_BYTES;
        char field[SHOWN_BYTES + 1] = "";
        memcpy(field, s, (size_t)shown);
        err_set(e, ST_UNSUPPORTED, field, "%s is not supported in the query", field);
        return false;
    }
    if (f->given) {
        err_set(e, ST_INVALID_FIELD, f->name, "%s is there twice", f->name);
        return false;
    }
    f->given = true;
    const char *value = equals ? equals + 1 : s + n;
    if (!query_unescape(value, (size_t)(s + n - value), true, f->value, sizeof f->value)) {
        err_set(e, ST_INVALID_FIELD, f->name, "%s is too long, or badly escaped", f->name);
        return false;
    }
    return true;
}

bool query_read(const char *query, query_field *fields, size_t n_fields, err *e)
{
    for (const char *s = query; *s != '\0';) {
        size_t n = strcspn(s, "&");
        if (n > 0 && !read_one(s, n, fields, n_fields, e)) {
            return false;
        }
        s += n + (s[n] == '&');
    }
    return true;
}

bool query_int(const query_field *f, int64_t min, int64_t *out, err *e)
{
    size_t n = strlen(f->value);
    errno = 0;
    long long v = strtoll(f->value, NULL, 10);
    if (n == 0 || strspn(f->value, "0123456789") != n || errno != 0 || v < min) {
        err_set(e, ST_INVALID_FIELD, f->name, "%s must be an integer in [%lld, 2^63), not \"%.64s\"", f->name,
                (long long)min, f->value);
        return false;
    }
    *out = v;
    return true;
}
