#include "text/python_literal.h"

#include <inttypes.h>
#include <string.h>

#include "base/utf8.h"

enum {
    AT_VALUE,        /* a value must come */
    AT_VALUE_OR_END, /* behind a bracket or comma */
    AT_KEY_OR_END,
    AT_COLON,
    AT_AFTER, /* behind a value */
    IN_STRING,
    IN_QUOTES,     /* opening quotes: one, two (empty string) or three */
    IN_ESCAPE,     /* behind the backslash */
    IN_RAW_ESCAPE, /* the same in a raw string: the next character is no end */
    IN_HEX,
    IN_OCTAL,
    AT_STRING_END, /* another string may be joined */
    IN_NUMBER,
    IN_WORD
};

enum { LIST, DICT_KEY, DICT_VALUE, PAREN, TUPLE }; /* kinds of open brackets */

void python_literal_begin(python_literal *v)
{
    buf out = v->out;
    buf_reset(&out);
    *v = (python_literal){.out = out, .state = AT_VALUE};
}

static void put(python_literal *v, const char *text, size_t n)
{
    if (v->st == ST_OK) {
        v->st = buf_append(&v->out, text, n);
    }
}

static void put_char(python_literal *v, char c)
{
    put(v, &c, 1);
}

/* One byte of a string's value. */
static void put_byte(python_literal *v, unsigned char c)
{
    if (c == '"' || c == '\\') {
        put_char(v, '\\');
        put_char(v, (char)c);
    } else if (c < 0x20) {
        if (v->st == ST_OK) {
            v->st = buf_printf(&v->out, "\\u%04x", c);
        }
    } else {
        put_char(v, (char)c);
    }
}

/* False if there is no such character. Surrogates can only be written as escapes. */
static bool put_code(python_literal *v, uint32_t code)
{
    char utf8[4];
    if (code < 0x80) {
        put_byte(v, (unsigned char)code);
    } else if (code >= 0xD800 && code < 0xE000) {
        if (v->st == ST_OK) {
            v->st = buf_printf(&v->out, "\\u%04" PRIx32, code);
        }
    } else if (code <= 0x10FFFF) {
        put(v, utf8, utf8_encode(code, utf8));
    } else {
        return false;
    }
    return true;
}

static uint8_t *top(python_literal *v)
{
    return v->depth > 0 ? &v->kind[v->depth - 1] : NULL;
}

static bool at_key(python_literal *v)
{
    return v->depth > 0 && *top(v) == DICT_KEY;
}

static void begin_value(python_literal *v)
{
    if (v->need_comma) {
        put(v, ", ", 2);
        v->need_comma = false;
    }
}

static void end_value(python_literal *v)
{
    v->state = at_key(v) ? AT_COLON : AT_AFTER;
}

static python_result open_bracket(python_literal *v, unsigned char c)
{
    if (v->depth == PYTHON_MAX_DEPTH || at_key(v)) {
        return PYTHON_BAD;
    }
    begin_value(v);
    if (c == '(') { /* a space, until it is known to be a tuple */
        v->at[v->depth] = v->out.len;
        v->n_open++;
    }
    put_char(v, c == '(' ? ' ' : (char)c);
    v->kind[v->depth++] = c == '(' ? PAREN : c == '[' ? LIST : DICT_KEY;
    v->state = c == '{' ? AT_KEY_OR_END : AT_VALUE_OR_END;
    return PYTHON_MORE;
}

static void is_tuple(python_literal *v)
{
    if (v->st == ST_OK) {
        v->out.data[v->at[v->depth - 1]] = '[';
    }
    *top(v) = TUPLE;
    v->n_open--;
}

static python_result close_bracket(python_literal *v, unsigned char c)
{
    static const char closer[] = {
        [LIST] = ']', [DICT_KEY] = '}', [DICT_VALUE] = '}', [PAREN] = ')', [TUPLE] = ')'};
    if (v->depth == 0 || c != (unsigned char)closer[*top(v)]) {
        return PYTHON_BAD;
    }
    if (*top(v) == PAREN && v->state == AT_VALUE_OR_END) {
        is_tuple(v); /* () */
    }
    if (*top(v) == PAREN) {
        v->n_open--;
    } else {
        put_char(v, c == '}' ? '}' : ']');
    }
    v->depth--;
    v->need_comma = false;
    end_value(v);
    return PYTHON_MORE;
}

static python_result after_value(python_literal *v, unsigned char c)
{
    if (v->depth == 0) {
        return PYTHON_END;
    }
    if (c != ',') {
        return close_bracket(v, c);
    }
    if (*top(v) == PAREN) {
        is_tuple(v);
    }
    bool dict = *top(v) == DICT_VALUE;
    if (dict) {
        *top(v) = DICT_KEY;
    }
    v->need_comma = true;
    v->state = dict ? AT_KEY_OR_END : AT_VALUE_OR_END;
    return PYTHON_MORE;
}

static void begin_string(python_literal *v, unsigned char quote, bool raw, bool joined)
{
    if (!joined) {
        begin_value(v);
        put_char(v, '"');
    }
    v->quote = quote;
    v->raw = raw;
    v->triple = false;
    v->n_quote = 1;
    v->state = IN_QUOTES;
}

static void begin_word(python_literal *v, unsigned char c, bool may_be_string)
{
    v->word[0] = (char)c;
    v->n_word = 1;
    v->may_be_string = may_be_string;
    v->state = IN_WORD;
}

static bool is_letter(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(unsigned char c)
{
    return c >= '0' && c <= '9';
}

static python_result first_of_value(python_literal *v, unsigned char c)
{
    if (c == '"' || c == '\'') {
        begin_string(v, c, false, false);
    } else if (is_digit(c) || c == '-' || c == '+' || c == '.') {
        v->word[0] = (char)c;
        v->n_word = 1;
        v->state = IN_NUMBER;
    } else if (is_letter(c)) {
        begin_word(v, c, false);
    } else if (c == '[' || c == '(' || c == '{') {
        return open_bracket(v, c);
    } else {
        return v->state == AT_VALUE ? PYTHON_BAD : close_bracket(v, c);
    }
    return PYTHON_MORE;
}

/* Strings. */

static int hex_value(unsigned char c)
{
    if (is_digit(c)) {
        return c - '0';
    }
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static python_result in_escape(python_literal *v, unsigned char c)
{
    static const char from[] = "abfnrtv\\'\"", to[] = "\a\b\f\n\r\t\v\\'\"";
    const char *known = c ? strchr(from, c) : NULL;
    v->state = IN_STRING;
    v->code = 0;
    if (known) {
        put_byte(v, (unsigned char)to[known - from]);
    } else if (c == 'x' || c == 'u' || c == 'U') {
        v->n_digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        v->state = IN_HEX;
    } else if (c >= '0' && c <= '7') {
        v->code = c - (unsigned)'0';
        v->n_digits = 2;
        v->state = IN_OCTAL;
    } else if (c == 'N') {
        return PYTHON_BAD;
    } else if (c != '\n') { /* unknown escapes stay as they are; a backslash joins two lines */
        put_byte(v, '\\');
        put_byte(v, c);
    }
    return PYTHON_MORE;
}

static python_result in_hex(python_literal *v, unsigned char c)
{
    int digit = hex_value(c);
    if (digit < 0) {
        return PYTHON_BAD;
    }
    v->code = v->code << 4 | (unsigned)digit;
    if (--v->n_digits > 0) {
        return PYTHON_MORE;
    }
    v->state = IN_STRING;
    return put_code(v, v->code) ? PYTHON_MORE : PYTHON_BAD;
}

static python_result in_string(python_literal *v, unsigned char c)
{
    if (c == v->quote) {
        v->n_quote++;
        if (!v->triple || v->n_quote == 3) {
            v->state = AT_STRING_END;
        }
        return PYTHON_MORE;
    }
    for (; v->n_quote > 0; v->n_quote--) {
        put_byte(v, v->quote);
    }
    if (c == '\\') {
        v->state = v->raw ? IN_RAW_ESCAPE : IN_ESCAPE;
    } else if (c == '\n' && !v->triple) {
        return PYTHON_BAD;
    } else {
        put_byte(v, c);
    }
    return PYTHON_MORE;
}

static python_result in_raw_escape(python_literal *v, unsigned char c)
{
    put_byte(v, '\\');
    put_byte(v, c);
    v->state = IN_STRING;
    return PYTHON_MORE;
}

/* True if c is one of the opening quotes; else the string has begun, or, behind two quotes, has ended. */
static bool in_quotes(python_literal *v, unsigned char c)
{
    if (c == v->quote) {
        v->n_quote++;
        if (v->n_quote == 3) {
            v->triple = true;
            v->n_quote = 0;
            v->state = IN_STRING;
        }
        return true;
    }
    v->state = v->n_quote == 1 ? IN_STRING : AT_STRING_END;
    v->n_quote = 0;
    return false;
}

/* Numbers and words. */

/* 0x, 0o, 0b. */
static bool put_based(python_literal *v, const char *digits, unsigned base)
{
    uint64_t n = 0;
    if (!*digits) {
        return false;
    }
    for (; *digits; digits++) {
        int digit = hex_value((unsigned char)*digits);
        if (*digits == '_') {
            continue;
        }
        if (digit < 0 || (unsigned)digit >= base || n > (UINT64_MAX - (unsigned)digit) / base) {
            return false;
        }
        n = n * base + (unsigned)digit;
    }
    if (v->st == ST_OK) {
        v->st = buf_printf(&v->out, "%" PRIu64, n);
    }
    return true;
}

/* Digits of s that follow one another, underscores between them dropped. */
static size_t put_digits(python_literal *v, const char *s, bool skip_zeros)
{
    size_t n = 0;
    while (skip_zeros && s[n] == '0' && (is_digit((unsigned char)s[n + 1]) || s[n + 1] == '_')) {
        n++;
        n += s[n] == '_';
    }
    for (; is_digit((unsigned char)s[n]) || (s[n] == '_' && n > 0 && is_digit((unsigned char)s[n + 1]));
         n++) {
        if (s[n] != '_') {
            put_char(v, s[n]);
        }
    }
    return n;
}

static bool put_decimal(python_literal *v, const char *s)
{
    size_t n_int = put_digits(v, s, true), n_fraction = 0;
    s += n_int;
    if (n_int == 0) {
        put_char(v, '0');
    }
    if (*s == '.') {
        put_char(v, '.');
        n_fraction = put_digits(v, ++s, false);
        if (n_fraction == 0) {
            put_char(v, '0');
        }
        s += n_fraction;
    }
    if (n_int + n_fraction == 0) {
        return false;
    }
    if (*s == 'e' || *s == 'E') {
        put_char(v, *s++);
        if (*s == '+' || *s == '-') {
            put_char(v, *s++);
        }
        size_t n = put_digits(v, s, false);
        s += n;
        if (n == 0) {
            return false;
        }
    }
    return *s == 0;
}

static bool put_number(python_literal *v)
{
    const char *s = v->word;
    bool key = at_key(v), good;
    begin_value(v);
    put(v, "\"", key);
    if (*s == '-' || *s == '+') {
        put(v, s, *s == '-');
        s++;
    }
    char base = s[0] == '0' ? (char)(s[1] | 0x20) : 0;
    if (base == 'x' || base == 'o' || base == 'b') {
        good = put_based(v, s + 2, base == 'x' ? 16 : base == 'o' ? 8 : 2);
    } else {
        good = put_decimal(v, s);
    }
    put(v, "\"", key);
    return good;
}

static bool put_word(python_literal *v)
{
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"},
                                           {"true", "true"}, {"false", "false"}, {"null", "null"}};
    for (size_t i = 0; i < sizeof words / sizeof *words && !at_key(v); i++) {
        if (strcmp(v->word, words[i][0]) == 0) {
            begin_value(v);
            put(v, words[i][1], strlen(words[i][1]));
            return true;
        }
    }
    return false;
}

/* True if c goes on with the number or word. */
static bool goes_on(const python_literal *v, unsigned char c)
{
    if (is_letter(c) || is_digit(c)) {
        return true;
    }
    bool behind_e = (v->word[v->n_word - 1] | 0x20) == 'e' && !memchr(v->word, 'x', v->n_word) &&
                    !memchr(v->word, 'X', v->n_word);
    return v->state == IN_NUMBER && (c == '.' || ((c == '+' || c == '-') && behind_e));
}

static python_result in_word(python_literal *v, unsigned char c)
{
    if (goes_on(v, c)) {
        if (v->n_word == PYTHON_MAX_NUMBER) {
            return PYTHON_BAD;
        }
        v->word[v->n_word++] = (char)c;
        return PYTHON_MORE;
    }
    v->word[v->n_word] = 0;
    if ((c == '"' || c == '\'') && v->state == IN_WORD && v->n_word == 1 && strchr("rRuU", v->word[0])) {
        begin_string(v, c, (v->word[0] | 0x20) == 'r', v->may_be_string);
        return PYTHON_MORE;
    }
    if (v->state == IN_NUMBER ? !put_number(v) : v->may_be_string || !put_word(v)) {
        return PYTHON_BAD;
    }
    end_value(v);
    return python_literal_push(v, c);
}

static python_result at_string_end(python_literal *v, unsigned char c)
{
    if (c == '"' || c == '\'') {
        begin_string(v, c, false, true);
        return PYTHON_MORE;
    }
    if (c && strchr("rRuU", c)) {
        begin_word(v, c, true);
        return PYTHON_MORE;
    }
    put_char(v, '"');
    end_value(v);
    return python_literal_push(v, c);
}

/* The calls back into this function are at most two deep: behind a string's, number's or word's end. */
python_result python_literal_push(python_literal *v, unsigned char c)
{
    switch (v->state) {
    case IN_QUOTES:
        if (in_quotes(v, c)) {
            return PYTHON_MORE;
        }
        if (v->state == IN_STRING) {
            return in_string(v, c);
        }
        break;
    case IN_STRING:
        return in_string(v, c);
    case IN_ESCAPE:
        return in_escape(v, c);
    case IN_RAW_ESCAPE:
        return in_raw_escape(v, c);
    case IN_HEX:
        return in_hex(v, c);
    case IN_OCTAL:
        if (v->n_digits > 0 && c >= '0' && c <= '7') {
            v->code = v->code << 3 | (c - (unsigned)'0');
            v->n_digits--;
            return PYTHON_MORE;
        }
        put_code(v, v->code);
        v->state = IN_STRING;
        return in_string(v, c);
    case IN_NUMBER:
    case IN_WORD:
        return in_word(v, c);
    default:
        break;
    }
    if (c == ' ' || (c >= '\t' && c <= '\r')) {
        return PYTHON_MORE;
    }
    switch (v->state) {
    case AT_STRING_END:
        return at_string_end(v, c);
    case AT_COLON:
        put(v, ": ", 2);
        *top(v) = DICT_VALUE;
        v->state = AT_VALUE;
        return c == ':' ? PYTHON_MORE : PYTHON_BAD;
    case AT_AFTER:
        return after_value(v, c);
    default:
        return first_of_value(v, c);
    }
}

bool python_literal_finish(python_literal *v)
{
    return python_literal_push(v, ';') == PYTHON_END;
}
