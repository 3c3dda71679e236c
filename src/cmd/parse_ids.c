#include "cmd/parse_ids.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/cmd.h"

int parse_ids(const char *option, const char *text, ivec *out)
{
    static const char separators[] = " ,\t\r\n";
    size_t before = out->len;
    const char *p = text;
    for (;;) {
        p += strspn(p, separators);
        if (!*p) {
            break;
        }
        char *end;
        errno = 0;
        long v = strtol(p, &end, 10);
        if (end == p || errno || v < INT32_MIN || v > INT32_MAX || (*end && !strchr(separators, *end))) {
            fprintf(stderr, "hearth: %s: '%.*s' is not a token id\n", option, (int)strcspn(p, separators), p);
            return EXIT_USAGE;
        }
        if (ivec_push(out, (int32_t)v) != ST_OK) {
            fprintf(stderr, "hearth: %s: out of memory\n", option);
            return EXIT_FAILED;
        }
        p = end;
    }
    if (out->len == before) {
        fprintf(stderr, "hearth: %s: no ids given\n", option);
        return EXIT_USAGE;
    }
    return EXIT_OK;
}
