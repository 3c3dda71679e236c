#include "serve/session_names.h"

#include <string.h>

#include "base/hash.h"

#define IDENTITY_BYTES 8 /* of the digest of a key's name */

static bool is_alnum(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

static bool is_made_of(const char *s, size_t len, const char *others)
{
    for (size_t i = 0; i < len; i++) {
        if (!is_alnum(s[i]) && (s[i] == '\0' || !strchr(others, s[i]))) {
            return false;
        }
    }
    return true;
}

bool session_name_good(const char *name, size_t len)
{
    return len > 0 && len <= SESSION_MAX_NAME && is_made_of(name, len, "._:-");
}

bool session_save_good(const char *name, size_t len)
{
    return len > 0 && len <= SESSION_MAX_SAVE && name[0] != '.' && is_made_of(name, len, "._-");
}

status session_name_put(buf *out, const keys *k, uint32_t key, const char *name)
{
    wire_string of = keys_namespace(k, key);
    return buf_printf(out, "%.*s/%s", (int)of.len, of.data, name);
}

status session_save_put(buf *out, const keys *k, uint32_t key, const char *name, size_t len)
{
    uint8_t digest[SHA256_BYTES];
    wire_string of = keys_namespace(k, key);
    char identity[2 * IDENTITY_BYTES + 1] = "0";
    if (of.len > 0) {
        status st = sha256_once(of.data, of.len, digest);
        if (st != ST_OK) {
            return st;
        }
        for (size_t i = 0; i < IDENTITY_BYTES; i++) {
            static const char digits[] = "0123456789abcdef";
            identity[2 * i] = digits[digest[i] >> 4];
            identity[2 * i + 1] = digits[digest[i] & 15];
        }
    }
    return buf_printf(out, "%s-%.*s", identity, (int)len, name);
}
