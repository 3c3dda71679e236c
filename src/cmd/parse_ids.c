#include "cmd/parse_ids.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool parse_ids(const char *option, const char *text, ivec *out)
{
    size_t before = out->len;
    const char *p = text;
    for (;;) {
        p += strspn(p, " ,\t\n");
        if (!*p) {
            break;
        }
        char *end;
        errno = 0;
        long v = strtol(p, &end, 10);
        if (end == p || errno || v < INT32_MIN || v > INT32_MAX) {
            fprintf(stderr, "hearth: %s: '%.20s' is not a token id\n", option, p);
            return false;
        }
        if (ivec_push(out, (int32_t)v) != ST_OK) {
            fprintf(stderr, "hearth: %s: out of memory\n", option);
            return false;
        }
        p = end;
    }
    if (out->len == before) {
        fprintf(stderr, "hearth: %s: no ids given\n", option);
    }
    return out->len > before;
}
