#include "text/jinja_unicode.h"

#include <utf8proc.h>

#include "base/utf8.h"

bool unicode_is_space(uint32_t cp)
{
    if (cp < 0x80) {
        return cp == ' ' || (cp >= 0x09 && cp <= 0x0D) || (cp >= 0x1C && cp <= 0x1F);
    }
    return cp == 0x85 || utf8proc_category((utf8proc_int32_t)cp) == UTF8PROC_CATEGORY_ZS || cp == 0x2028 ||
           cp == 0x2029;
}

static utf8proc_category_t category(uint32_t cp)
{
    return utf8proc_category((utf8proc_int32_t)cp);
}

bool unicode_is_alpha(uint32_t cp)
{
    utf8proc_category_t c = category(cp);
    return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

bool unicode_is_decimal(uint32_t cp)
{
    return category(cp) == UTF8PROC_CATEGORY_ND;
}

bool unicode_is_digit(uint32_t cp)
{
    return unicode_is_decimal(cp) || cp == 0xB2 || cp == 0xB3 || cp == 0xB9 || cp == 0x2070 ||
           (cp >= 0x2074 && cp <= 0x2079) || (cp >= 0x2080 && cp <= 0x2089) || (cp >= 0x2460 && cp <= 0x2468);
}

bool unicode_is_numeric(uint32_t cp)
{
    utf8proc_category_t c = category(cp);
    return c >= UTF8PROC_CATEGORY_ND && c <= UTF8PROC_CATEGORY_NO;
}

bool unicode_is_upper(uint32_t cp)
{
    return utf8proc_isupper((utf8proc_int32_t)cp) != 0;
}

bool unicode_is_lower(uint32_t cp)
{
    return utf8proc_islower((utf8proc_int32_t)cp) != 0;
}

bool unicode_is_cased(uint32_t cp)
{
    return unicode_is_upper(cp) || unicode_is_lower(cp) || category(cp) == UTF8PROC_CATEGORY_LT;
}

bool unicode_is_printable(uint32_t cp)
{
    if (cp < 0x7F) {
        return cp >= ' ';
    }
    switch (category(cp)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return false;
    default:
        return true;
    }
}

size_t unicode_lstrip(const char *s, size_t n)
{
    size_t at = 0;
    while (at < n) {
        uint32_t cp;
        size_t len = utf8_decode(s + at, n - at, &cp, NULL);
        if (!unicode_is_space(cp)) {
            break;
        }
        at += len;
    }
    return at;
}

size_t unicode_rstrip(const char *s, size_t n)
{
    while (n > 0) {
        size_t from = n - 1;
        while (from > 0 && ((unsigned char)s[from] & 0xC0) == 0x80) {
            from--;
        }
        uint32_t cp;
        utf8_decode(s + from, n - from, &cp, NULL);
        if (!unicode_is_space(cp)) {
            break;
        }
        n = from;
    }
    return n;
}

/* Characters that become several (Unicode's SpecialCasing.txt, without the Greek iota subscripts). */
static const struct {
    uint32_t cp;
    unicode_case to;
    uint32_t out[UNICODE_MAP_MAX];
} special_cases[] = {
    {0xDF, UNICODE_UPPER, {'S', 'S'}},        {0xDF, UNICODE_TITLE, {'S', 's'}},
    {0x149, UNICODE_UPPER, {0x2BC, 'N'}},     {0x149, UNICODE_TITLE, {0x2BC, 'N'}},
    {0x1F0, UNICODE_UPPER, {'J', 0x30C}},     {0x1F0, UNICODE_TITLE, {'J', 0x30C}},
    {0x130, UNICODE_LOWER, {'i', 0x307}},     {0x587, UNICODE_UPPER, {0x535, 0x552}},
    {0xFB00, UNICODE_UPPER, {'F', 'F'}},      {0xFB01, UNICODE_UPPER, {'F', 'I'}},
    {0xFB02, UNICODE_UPPER, {'F', 'L'}},      {0xFB03, UNICODE_UPPER, {'F', 'F', 'I'}},
    {0xFB04, UNICODE_UPPER, {'F', 'F', 'L'}}, {0xFB05, UNICODE_UPPER, {'S', 'T'}},
    {0xFB06, UNICODE_UPPER, {'S', 'T'}},      {0xFB00, UNICODE_TITLE, {'F', 'f'}},
    {0xFB01, UNICODE_TITLE, {'F', 'i'}},      {0xFB02, UNICODE_TITLE, {'F', 'l'}},
    {0xFB03, UNICODE_TITLE, {'F', 'f', 'i'}}, {0xFB04, UNICODE_TITLE, {'F', 'f', 'l'}},
    {0xFB05, UNICODE_TITLE, {'S', 't'}},      {0xFB06, UNICODE_TITLE, {'S', 't'}},
};

size_t unicode_map(uint32_t cp, unicode_case to, uint32_t out[UNICODE_MAP_MAX])
{
    if (cp < 0x80) {
        bool letter = (cp | 0x20) >= 'a' && (cp | 0x20) <= 'z';
        out[0] = !letter ? cp : to == UNICODE_LOWER ? (cp | 0x20) : (cp & ~0x20u);
        return 1;
    }
    for (size_t i = 0; i < sizeof special_cases / sizeof special_cases[0]; i++) {
        if (special_cases[i].cp == cp && special_cases[i].to == to) {
            size_t n = 0;
            for (; n < UNICODE_MAP_MAX && special_cases[i].out[n]; n++) {
                out[n] = special_cases[i].out[n];
            }
            return n;
        }
    }
    utf8proc_int32_t c = (utf8proc_int32_t)cp;
    out[0] = (uint32_t)(to == UNICODE_UPPER   ? utf8proc_toupper(c)
                        : to == UNICODE_LOWER ? utf8proc_tolower(c)
                                              : utf8proc_totitle(c));
    return 1;
}

size_t unicode_count(const char *s, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        count += ((unsigned char)s[i] & 0xC0) != 0x80;
    }
    return count;
}

size_t unicode_offset(const char *s, size_t n, size_t i)
{
    for (size_t at = 0; at < n; at++) {
        if (((unsigned char)s[at] & 0xC0) != 0x80 && i-- == 0) {
            return at;
        }
    }
    return n;
}
