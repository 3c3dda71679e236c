#include <limits.h>
#include <locale.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_int.h"
#include "base/mem.h"

/* What may come next. */
typedef enum expect {
    EXPECT_VALUE,
    EXPECT_VALUE_OR_END, /* after '[' */
    EXPECT_KEY,          /* after ',' in an object */
    EXPECT_KEY_OR_END,   /* after '{' */
    EXPECT_COLON,
    EXPECT_COMMA_OR_END,
    EXPECT_NOTHING, /* after the root value */
} expect;

/* One loop over the text; the open containers are on a stack of fixed size, so that nesting costs no C stack.
 */
typedef struct parser {
    json_lexer x;
    expect next;
    size_t depth, max_depth;
    struct json_object *open[JSON_MAX_DEPTH]; /* borrowed: each is already a member of the one before */
    struct json_object *root;                 /* owned */
    buf key;                                  /* the member whose value comes next, decoded */
    buf scratch;                              /* one string or number */
} parser;

static status nomem(const parser *p)
{
    return err_set(p->x.e, ST_NOMEM, NULL, "out of memory while reading JSON");
}

static bool in_object(const parser *p)
{
    return p->depth > 0 && json_object_is_type(p->open[p->depth - 1], json_type_object);
}

/* Moves v (NULL = null) to its place: root, element or member. */
static status place_take(parser *p, struct json_object *v)
{
    int rc = 0;
    if (p->depth == 0) {
        p->root = v;
    } else if (in_object(p)) {
        rc = json_object_object_add_ex(p->open[p->depth - 1], buf_str(&p->key), v,
                                       JSON_C_OBJECT_ADD_KEY_IS_NEW);
    } else {
        rc = json_object_array_add(p->open[p->depth - 1], v);
    }
    if (rc != 0) {
        json_object_put(v);
        return nomem(p);
    }
    p->next = p->depth ? EXPECT_COMMA_OR_END : EXPECT_NOTHING;
    return ST_OK;
}

/* The same for what a constructor returned, where NULL is a failure. */
static status place_new_take(parser *p, struct json_object *v)
{
    return v ? place_take(p, v) : nomem(p);
}

static status open_container(parser *p, bool object)
{
    if (p->depth >= p->max_depth) {
        return json_lex_fault(&p->x, p->x.at, "nested deeper than %zu", p->max_depth);
    }
    struct json_object *v = object ? json_object_new_object() : json_object_new_array();
    status st = place_new_take(p, v);
    if (st == ST_OK) {
        p->open[p->depth++] = v;
        p->next = object ? EXPECT_KEY_OR_END : EXPECT_VALUE_OR_END;
        p->x.at++;
    }
    return st;
}

static status parse_string(parser *p)
{
    size_t start = p->x.at + 1;
    bool escaped;
    status st = json_lex_string(&p->x, &escaped);
    if (st != ST_OK) {
        return st;
    }
    const char *s = p->x.text + start;
    size_t n = p->x.at - 1 - start;
    if (escaped) {
        buf_reset(&p->scratch);
        if (json_lex_unescape(&p->scratch, s, n) != ST_OK) {
            return nomem(p);
        }
        s = p->scratch.data;
        n = p->scratch.len;
    }
    return place_new_take(p, json_object_new_string_len(s, (int)n));
}

static status parse_float(parser *p, size_t start)
{
    buf_reset(&p->scratch);
    if (buf_append(&p->scratch, p->x.text + start, p->x.at - start) != ST_OK) {
        return nomem(p);
    }
    locale_t c_locale = newlocale(LC_ALL_MASK, "C", NULL); /* glibc's static one: nothing is allocated */
    if (!c_locale) {
        return nomem(p);
    }
    double v = strtod_l(p->scratch.data, NULL, c_locale);
    freelocale(c_locale);
    if (isinf(v)) {
        return json_lex_fault(&p->x, start, "a number overflows a double");
    }
    return place_new_take(p, json_object_new_double(v));
}

static status parse_number(parser *p)
{
    size_t start = p->x.at;
    bool is_float, negative = p->x.text[start] == '-';
    status st = json_lex_number(&p->x, &is_float);
    if (st != ST_OK) {
        return st;
    }
    if (is_float) {
        return parse_float(p, start);
    }
    uint64_t v = 0; /* json_lex_number has checked the range */
    for (size_t i = start + negative; i < p->x.at; i++) {
        v = v * 10 + (uint64_t)(p->x.text[i] - '0');
    }
    if (negative) {
        return place_new_take(p, json_object_new_int64((int64_t)(0 - v)));
    }
    return place_new_take(p, v > INT64_MAX ? json_object_new_uint64(v) : json_object_new_int64((int64_t)v));
}

static status parse_bool(parser *p, bool v)
{
    status st = json_lex_word(&p->x, v ? "true" : "false");
    return st == ST_OK ? place_new_take(p, json_object_new_boolean(v)) : st;
}

static status parse_null(parser *p)
{
    status st = json_lex_word(&p->x, "null");
    return st == ST_OK ? place_take(p, NULL) : st;
}

static status parse_value(parser *p)
{
    char c = p->x.text[p->x.at];
    switch (c) {
    case '{':
    case '[':
        return open_container(p, c == '{');
    case '"':
        return parse_string(p);
    case 't':
    case 'f':
        return parse_bool(p, c == 't');
    case 'n':
        return parse_null(p);
    default:
        if (c == '-' || (c >= '0' && c <= '9')) {
            return parse_number(p);
        }
        return json_lex_fault(&p->x, p->x.at, "expected a value");
    }
}

static status parse_key(parser *p)
{
    size_t quote = p->x.at;
    bool escaped;
    if (p->x.text[quote] != '"') {
        return json_lex_fault(&p->x, quote, "expected a key in double quotes");
    }
    status st = json_lex_string(&p->x, &escaped);
    if (st != ST_OK) {
        return st;
    }
    buf_reset(&p->key);
    if (json_lex_unescape(&p->key, p->x.text + quote + 1, p->x.at - quote - 2) != ST_OK) {
        return nomem(p);
    }
    const char *key = buf_str(&p->key);
    if (strlen(key) != p->key.len) {
        return json_lex_fault(&p->x, quote, "a key holds U+0000"); /* json-c's keys are C strings */
    }
    if (json_object_object_get_ex(p->open[p->depth - 1], key, NULL)) {
        return err_at(p->x.e, ST_BAD_REQUEST, quote, key, "bad JSON at byte %zu: duplicate key \"%.128s\"",
                      quote, key);
    }
    p->next = EXPECT_COLON;
    return ST_OK;
}

/* At a byte that is not white space. */
static status step(parser *p)
{
    char c = p->x.text[p->x.at];
    char end = in_object(p) ? '}' : ']';
    bool may_end =
        p->next == EXPECT_COMMA_OR_END || p->next == EXPECT_KEY_OR_END || p->next == EXPECT_VALUE_OR_END;
    if (may_end && c == end) {
        p->x.at++;
        p->depth--;
        p->next = p->depth ? EXPECT_COMMA_OR_END : EXPECT_NOTHING;
        return ST_OK;
    }
    switch (p->next) {
    case EXPECT_VALUE:
    case EXPECT_VALUE_OR_END:
        return parse_value(p);
    case EXPECT_KEY:
    case EXPECT_KEY_OR_END:
        return parse_key(p);
    case EXPECT_COLON:
        if (c != ':') {
            return json_lex_fault(&p->x, p->x.at, "expected ':'");
        }
        p->next = EXPECT_VALUE;
        break;
    case EXPECT_COMMA_OR_END:
        if (c != ',') {
            return json_lex_fault(&p->x, p->x.at, "expected ',' or '%c'", end);
        }
        p->next = in_object(p) ? EXPECT_KEY : EXPECT_VALUE;
        break;
    case EXPECT_NOTHING:
        return json_lex_fault(&p->x, p->x.at, "text after the value");
    }
    p->x.at++;
    return ST_OK;
}

static status parse_text(parser *p)
{
    if (p->x.len > JSON_MAX_BYTES) {
        return json_lex_fault(&p->x, JSON_MAX_BYTES, "%zu bytes are more than %zu", p->x.len, JSON_MAX_BYTES);
    }
    while (p->x.at < p->x.len) {
        char c = p->x.text[p->x.at];
        if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
            p->x.at++;
            continue;
        }
        status st = step(p);
        if (st != ST_OK) {
            return st;
        }
    }
    return p->next == EXPECT_NOTHING ? ST_OK : json_lex_fault(&p->x, p->x.len, "the text ends too early");
}

status json_parse(const char *text, size_t len, size_t max_depth, json_doc **out, err *e)
{
    parser p = {.x = {text, len, 0, e}, .next = EXPECT_VALUE};
    p.max_depth = max_depth < JSON_MAX_DEPTH ? max_depth : JSON_MAX_DEPTH;
    json_doc *d = mem_calloc(1, sizeof *d);
    status st = d ? parse_text(&p) : nomem(&p);
    if (st == ST_OK) {
        d->root = p.root;
        *out = d;
    } else {
        json_object_put(p.root);
        mem_free(d);
    }
    buf_release(&p.key);
    buf_release(&p.scratch);
    return st;
}

void json_doc_free(json_doc *d)
{
    if (d) {
        json_object_put(d->root);
        mem_free(d);
    }
}
