#include "base/utf8.h"

#include <string.h>

/*
 * Unicode Standard, table 3-7 (well-formed byte sequences): what follows the lead byte, and the range of the
 * second byte; every later byte is 80..BF.
 */
typedef struct lead {
    size_t more; /* continuation bytes; 0 = not a lead byte */
    unsigned lo, hi;
    unsigned bits; /* payload mask of the lead byte */
} lead;

static lead lead_of(unsigned c)
{
    if (c >= 0xC2 && c <= 0xDF) {
        return (lead){1, 0x80, 0xBF, 0x1F};
    }
    if (c >= 0xE0 && c <= 0xEF) {
        return (lead){2, c == 0xE0 ? 0xA0 : 0x80, c == 0xED ? 0x9F : 0xBF, 0x0F};
    }
    if (c >= 0xF0 && c <= 0xF4) {
        return (lead){3, c == 0xF0 ? 0x90 : 0x80, c == 0xF4 ? 0x8F : 0xBF, 0x07};
    }
    return (lead){0, 0, 0, 0};
}

/* Bytes of s that agree with table 3-7 (at least 1); *need is what the whole character takes (1 for a bad
 * lead). */
static size_t match(const char *s, size_t n, size_t *need, uint32_t *cp)
{
    unsigned c = (unsigned char)s[0];
    lead l = lead_of(c);
    uint32_t v = c & l.bits;
    size_t i = 1;
    *need = l.more + 1;
    for (; i <= l.more && i < n; i++) {
        unsigned b = (unsigned char)s[i];
        if (b < l.lo || b > l.hi) {
            break;
        }
        v = v << 6 | (b & 0x3Fu);
        l.lo = 0x80;
        l.hi = 0xBF;
    }
    *cp = v;
    return i;
}

size_t utf8_decode(const char *s, size_t n, uint32_t *cp, bool *ok)
{
    unsigned c = (unsigned char)s[0];
    uint32_t v = c;
    size_t need = 1, took = 1;
    bool good = c < 0x80;
    if (!good) {
        took = match(s, n, &need, &v);
        good = need > 1 && took == need;
    }
    if (cp) {
        *cp = good ? v : UTF8_REPLACEMENT;
    }
    if (ok) {
        *ok = good;
    }
    return took;
}

size_t utf8_encode(uint32_t cp, char out[4])
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xC0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xE0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3F));
        out[2] = (char)(0x80 | (cp & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3F));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3F));
    out[3] = (char)(0x80 | (cp & 0x3F));
    return 4;
}

/* Length of the valid run at the start of s; plain ASCII goes eight bytes at a time. */
static size_t valid_run(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n) {
        uint64_t w;
        if (n - i >= sizeof w) {
            memcpy(&w, s + i, sizeof w);
            if ((w & 0x8080808080808080u) == 0) {
                i += sizeof w;
                continue;
            }
        }
        bool ok;
        size_t took = utf8_decode(s + i, n - i, NULL, &ok);
        if (!ok) {
            break;
        }
        i += took;
    }
    return i;
}

bool utf8_valid(const char *s, size_t n, size_t *bad)
{
    size_t run = valid_run(s, n);
    if (run == n) {
        return true;
    }
    if (bad) {
        *bad = run;
    }
    return false;
}

size_t utf8_incomplete_tail(const char *s, size_t n)
{
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        unsigned c = (unsigned char)s[n - back];
        if (c >= 0x80 && c <= 0xBF) {
            continue; /* a continuation byte: its lead is further left */
        }
        if (c < 0x80) {
            return 0;
        }
        size_t need;
        uint32_t cp;
        size_t took = match(s + n - back, back, &need, &cp);
        return took == back && need > back ? back : 0;
    }
    return 0;
}

status utf8_repair(buf *out, const char *s, size_t n)
{
    size_t i = 0;
    while (i < n) {
        size_t run = valid_run(s + i, n - i);
        status st = buf_append(out, s + i, run);
        i += run;
        if (st == ST_OK && i < n) {
            i += utf8_decode(s + i, n - i, NULL, NULL);
            st = buf_append(out, "\xEF\xBF\xBD", 3);
        }
        if (st != ST_OK) {
            return st;
        }
    }
    return ST_OK;
}

size_t utf8_make_printable(char *s, size_t n)
{
    size_t w = 0;
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        bool ok;
        size_t took = utf8_decode(s + i, n - i, &cp, &ok);
        if (!ok || cp < 0x20 || (cp >= 0x7F && cp < 0xA0) || cp == 0x2028 || cp == 0x2029) {
            s[w++] = '?';
        } else {
            memmove(s + w, s + i, took);
            w += took;
        }
        i += took;
    }
    return w;
}
