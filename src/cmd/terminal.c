#include "cmd/terminal.h"

#include <stdint.h>

#include "base/utf8.h"

void terminal_put(FILE *to, const char *s, size_t n, bool lines)
{
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        bool valid;
        size_t len = utf8_decode(s + i, n - i, &cp, &valid);
        bool kept =
            valid && ((cp >= 0x20 && cp < 0x7F) || cp >= 0xA0 || (lines && (cp == '\n' || cp == '\t')));
        if (kept) {
            fwrite(s + i, 1, len, to);
        } else {
            fputc('?', to);
        }
        i += len;
    }
}
