#include "text/byte_level.h"

#include <string.h>

#include "base/utf8.h"

/* The bytes without a printable Latin-1 character are three runs; they get consecutive characters from
 * U+0100. */
enum {
    FIRST = 0x100,
    RUN1_LAST = 0x20,  /* 00..20: controls and space */
    RUN2_FIRST = 0x7F, /* 7F..A0: DEL, C1 controls, no-break space */
    RUN2_LAST = 0xA0,
    SOFT_HYPHEN = 0xAD,
    RUN2_CHAR = FIRST + RUN1_LAST + 1,
    HYPHEN_CHAR = RUN2_CHAR + RUN2_LAST - RUN2_FIRST + 1
};

uint32_t byte_level_char(unsigned char b)
{
    if (b <= RUN1_LAST) {
        return FIRST + b;
    }
    if (b >= RUN2_FIRST && b <= RUN2_LAST) {
        return RUN2_CHAR + (b - (uint32_t)RUN2_FIRST);
    }
    return b == SOFT_HYPHEN ? HYPHEN_CHAR : b;
}

int byte_level_byte(uint32_t cp)
{
    if (cp >= FIRST) {
        if (cp < RUN2_CHAR) {
            return (int)cp - FIRST;
        }
        if (cp < HYPHEN_CHAR) {
            return (int)cp - RUN2_CHAR + RUN2_FIRST;
        }
        return cp == HYPHEN_CHAR ? SOFT_HYPHEN : BYTE_LEVEL_NONE;
    }
    return byte_level_char((unsigned char)cp) == cp ? (int)cp : BYTE_LEVEL_NONE;
}

size_t byte_level_encode(const char *bytes, size_t n, char *out)
{
    size_t w = 0;
    for (size_t i = 0; i < n; i++) {
        w += utf8_encode(byte_level_char((unsigned char)bytes[i]), out + w);
    }
    return w;
}

size_t byte_level_decode(const char *text, size_t n, char *out)
{
    size_t w = 0;
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        bool ok;
        size_t took = utf8_decode(text + i, n - i, &cp, &ok);
        int b = ok ? byte_level_byte(cp) : BYTE_LEVEL_NONE;
        if (b != BYTE_LEVEL_NONE) {
            out[w++] = (char)b;
        } else {
            memcpy(out + w, text + i, took);
            w += took;
        }
        i += took;
    }
    return w;
}
