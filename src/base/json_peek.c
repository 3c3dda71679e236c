/*
 * Looking into a text without memory: what is found there when there was none to read it.
 */
#include <string.h>

#include "base/json_int.h"

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void skip_space(json_lexer *x)
{
    while (x->at < x->len && is_space(x->text[x->at])) {
        x->at++;
    }
}

static bool at_byte(json_lexer *x, char c)
{
    skip_space(x);
    return x->at < x->len && x->text[x->at] == c;
}

/* Past a value of any kind; false: the text ends in it, or it is none. */
static bool skip_value(json_lexer *x)
{
    size_t depth = 0;
    skip_space(x);
    for (size_t start = x->at; x->at < x->len;) {
        char c = x->text[x->at];
        bool escaped;
        if (c == '"') {
            if (json_lex_string(x, &escaped) != ST_OK) {
                return false;
            }
            if (depth == 0) {
                return true;
            }
            continue;
        }
        if (depth == 0 && (c == ',' || c == '}' || c == ']')) {
            return x->at > start; /* behind a number or a word */
        }
        depth += c == '{' || c == '[';
        depth -= c == '}' || c == ']';
        x->at++;
        if (depth == 0 && (c == '}' || c == ']')) {
            return true;
        }
    }
    return false;
}

/* The string at x->at, decoded. False: it has no end here, is none, or is longer than JSON_PEEK_BYTES. */
static bool read_string(json_lexer *x, char dst[JSON_PEEK_BYTES], size_t *len)
{
    char decoded[6 * JSON_PEEK_BYTES]; /* an escape has six bytes for a character of one at least */
    bool escaped;
    size_t start = x->at + 1;
    if (json_lex_string(x, &escaped) != ST_OK) {
        return false;
    }
    size_t n = x->at - 1 - start;
    if (n > sizeof decoded) {
        return false;
    }
    n = json_lex_unescape(decoded, x->text + start, n);
    if (n > JSON_PEEK_BYTES) {
        return false;
    }
    memcpy(dst, decoded, n);
    *len = n;
    return true;
}

/* At the next key of the object, or false. *found: it is this one. Leaves x behind its colon. */
static bool next_key(json_lexer *x, const char *key, bool *found)
{
    char name[JSON_PEEK_BYTES];
    size_t n = 0;
    if (!at_byte(x, '"')) {
        return false;
    }
    size_t quote = x->at;
    *found = read_string(x, name, &n) && n == strlen(key) && memcmp(name, key, n) == 0;
    if (x->at == quote || !at_byte(x, ':')) {
        return false;
    }
    x->at++;
    return true;
}

bool json_peek_string(const char *text, size_t len, const char *key, char dst[JSON_PEEK_BYTES], size_t *n)
{
    json_lexer x = {text, len, 0, NULL};
    bool found;
    if (!at_byte(&x, '{')) {
        return false;
    }
    do {
        x.at++;
        if (!next_key(&x, key, &found)) {
            return false;
        }
        if (found) {
            return at_byte(&x, '"') && read_string(&x, dst, n);
        }
    } while (skip_value(&x) && at_byte(&x, ','));
    return false;
}
