#include "text/json_scan.h"

#include <stdbool.h>
#include <string.h>

void json_scan_init(json_scan *s)
{
    memset(s, 0, sizeof *s);
}

static bool in_object(const json_scan *s)
{
    unsigned top = s->depth - 1u;
    return s->is_object[top / 32] >> (top % 32) & 1;
}

static json_scan_result go(json_scan *s, json_scan_state to)
{
    s->state = (uint8_t)to;
    return JSON_SCAN_MORE;
}

static json_scan_result open_bracket(json_scan *s, bool object)
{
    if (s->depth == JSON_SCAN_MAX_DEPTH) {
        return JSON_SCAN_BAD;
    }
    uint32_t bit = UINT32_C(1) << (s->depth % 32);
    uint32_t *bits = &s->is_object[s->depth / 32];
    *bits = object ? *bits | bit : *bits & ~bit;
    s->depth++;
    return go(s, object ? JSON_SCAN_KEY_OR_END : JSON_SCAN_VALUE_OR_END);
}

static json_scan_result close_bracket(json_scan *s, unsigned char c)
{
    if (c != (in_object(s) ? '}' : ']')) {
        return JSON_SCAN_BAD;
    }
    s->depth--;
    if (s->depth == 0) {
        s->state = JSON_SCAN_END;
        return JSON_SCAN_DONE;
    }
    return go(s, JSON_SCAN_AFTER);
}

static json_scan_result begin_string(json_scan *s, bool key)
{
    s->in_key = key;
    return go(s, JSON_SCAN_STRING);
}

static json_scan_result begin_word(json_scan *s, const char *rest)
{
    s->word = rest;
    return go(s, JSON_SCAN_WORD);
}

static json_scan_result begin_value(json_scan *s, unsigned char c)
{
    switch (c) {
    case '{':
        return open_bracket(s, true);
    case '[':
        return open_bracket(s, false);
    case '"':
        return begin_string(s, false);
    case '-':
        return go(s, JSON_SCAN_NUMBER_SIGN);
    case '0':
        return go(s, JSON_SCAN_NUMBER_ZERO);
    case 't':
        return begin_word(s, "rue");
    case 'f':
        return begin_word(s, "alse");
    case 'n':
        return begin_word(s, "ull");
    default:
        return c >= '1' && c <= '9' ? go(s, JSON_SCAN_NUMBER_INT) : JSON_SCAN_BAD;
    }
}

static json_scan_result after_value(json_scan *s, unsigned char c)
{
    if (c == ',') {
        return go(s, in_object(s) ? JSON_SCAN_KEY : JSON_SCAN_VALUE);
    }
    return close_bracket(s, c);
}

static json_scan_result in_string(json_scan *s, unsigned char c)
{
    if (c == '"') {
        return go(s, s->in_key ? JSON_SCAN_COLON : JSON_SCAN_AFTER);
    }
    if (c == '\\') {
        return go(s, JSON_SCAN_ESCAPE);
    }
    return c < 0x20 ? JSON_SCAN_BAD : JSON_SCAN_MORE;
}

static json_scan_result in_escape(json_scan *s, unsigned char c)
{
    if (s->state == JSON_SCAN_HEX) {
        bool digit = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
        if (digit && --s->n_hex == 0) {
            s->state = JSON_SCAN_STRING;
        }
        return digit ? JSON_SCAN_MORE : JSON_SCAN_BAD;
    }
    if (c == 'u') {
        s->n_hex = 4;
        return go(s, JSON_SCAN_HEX);
    }
    return c && strchr("\"\\/bfnrt", c) ? go(s, JSON_SCAN_STRING) : JSON_SCAN_BAD;
}

static bool is_space(unsigned char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* A number has no last byte of its own: what cannot be part of it belongs to what follows. */
static json_scan_result in_number(json_scan *s, unsigned char c)
{
    bool digit = c >= '0' && c <= '9', e = c == 'e' || c == 'E';
    switch (s->state) {
    case JSON_SCAN_NUMBER_SIGN:
        return c == '0' ? go(s, JSON_SCAN_NUMBER_ZERO) : digit ? go(s, JSON_SCAN_NUMBER_INT) : JSON_SCAN_BAD;
    case JSON_SCAN_NUMBER_DOT:
        return digit ? go(s, JSON_SCAN_NUMBER_FRACTION) : JSON_SCAN_BAD;
    case JSON_SCAN_NUMBER_E:
        if (c == '+' || c == '-') {
            return go(s, JSON_SCAN_NUMBER_E_SIGN);
        }
        return digit ? go(s, JSON_SCAN_NUMBER_EXPONENT) : JSON_SCAN_BAD;
    case JSON_SCAN_NUMBER_E_SIGN:
        return digit ? go(s, JSON_SCAN_NUMBER_EXPONENT) : JSON_SCAN_BAD;
    case JSON_SCAN_NUMBER_ZERO:
    case JSON_SCAN_NUMBER_INT:
        if (c == '.') {
            return go(s, JSON_SCAN_NUMBER_DOT);
        }
        break;
    default:
        break;
    }
    if (digit && s->state != JSON_SCAN_NUMBER_ZERO) {
        return JSON_SCAN_MORE;
    }
    if (e && s->state != JSON_SCAN_NUMBER_EXPONENT) {
        return go(s, JSON_SCAN_NUMBER_E);
    }
    go(s, JSON_SCAN_AFTER);
    return is_space(c) ? JSON_SCAN_MORE : after_value(s, c);
}

static json_scan_result in_word(json_scan *s, unsigned char c)
{
    if (c != (unsigned char)*s->word) {
        return JSON_SCAN_BAD;
    }
    return *++s->word ? JSON_SCAN_MORE : go(s, JSON_SCAN_AFTER);
}

json_scan_result json_scan_push(json_scan *s, unsigned char c)
{
    switch (s->state) {
    case JSON_SCAN_STRING:
        return in_string(s, c);
    case JSON_SCAN_ESCAPE:
    case JSON_SCAN_HEX:
        return in_escape(s, c);
    case JSON_SCAN_WORD:
        return in_word(s, c);
    case JSON_SCAN_START:
        return c == '{' || c == '[' ? begin_value(s, c) : JSON_SCAN_BAD;
    case JSON_SCAN_END:
        return JSON_SCAN_BAD;
    case JSON_SCAN_VALUE:
    case JSON_SCAN_VALUE_OR_END:
    case JSON_SCAN_KEY:
    case JSON_SCAN_KEY_OR_END:
    case JSON_SCAN_COLON:
    case JSON_SCAN_AFTER:
        break;
    default:
        return in_number(s, c);
    }
    if (is_space(c)) {
        return JSON_SCAN_MORE;
    }
    switch (s->state) {
    case JSON_SCAN_VALUE_OR_END:
        return c == ']' ? close_bracket(s, c) : begin_value(s, c);
    case JSON_SCAN_VALUE:
        return begin_value(s, c);
    case JSON_SCAN_KEY_OR_END:
        return c == '"' ? begin_string(s, true) : close_bracket(s, c);
    case JSON_SCAN_KEY:
        return c == '"' ? begin_string(s, true) : JSON_SCAN_BAD;
    case JSON_SCAN_COLON:
        return c == ':' ? go(s, JSON_SCAN_VALUE) : JSON_SCAN_BAD;
    default:
        return after_value(s, c);
    }
}
