#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_int.h"
#include "base/mem.h"

#define MIN_CHUNK_BYTES 1024
#define MAX_CHUNK_BYTES 65536

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

typedef struct level {
    size_t first; /* the container's own node in the stack; its children lie behind it */
    bool object;
} level;

/*
 * One loop over the text. Open containers are on a stack of fixed size, so nesting costs no C stack; finished
 * values wait on another one until their container ends and takes them into the arena in one run.
 */
typedef struct parser {
    json_lexer x;
    expect next;
    locale_t c_locale; /* owned */
    size_t depth, max_depth;
    level open[JSON_MAX_DEPTH];
    json *stack; /* owned */
    size_t n, cap;
    json_doc *doc; /* owned */
    char *copy;    /* in the arena: the text and a NUL, strings decoded in place */
} parser;

static status nomem(const parser *p)
{
    return err_set(p->x.e, ST_NOMEM, NULL, "out of memory while reading JSON");
}

static bool in_object(const parser *p)
{
    return p->depth > 0 && p->open[p->depth - 1].object;
}

static status push(parser *p, json v)
{
    if (p->n == p->cap) {
        size_t cap = p->cap ? p->cap + p->cap / 2 : 32;
        size_t n_bytes;
        json *stack = size_mul(cap, sizeof v, &n_bytes) ? mem_realloc(p->stack, n_bytes) : NULL;
        if (!stack) {
            return nomem(p);
        }
        p->stack = stack;
        p->cap = cap;
    }
    p->stack[p->n++] = v;
    return ST_OK;
}

static status push_value(parser *p, json v)
{
    p->next = p->depth ? EXPECT_COMMA_OR_END : EXPECT_NOTHING;
    return push(p, v);
}

static status open_container(parser *p, bool object)
{
    if (p->depth >= p->max_depth) {
        return json_lex_fault(&p->x, p->x.at, "nested deeper than %zu", p->max_depth);
    }
    p->open[p->depth++] = (level){p->n, object};
    p->next = object ? EXPECT_KEY_OR_END : EXPECT_VALUE_OR_END;
    p->x.at++;
    return push(p, (json){.type = object ? JSON_OBJECT : JSON_ARRAY});
}

static status duplicate(const parser *p, const json *key)
{
    size_t quote = (size_t)(key->as.string - p->copy) - 1;
    return err_at(p->x.e, ST_BAD_REQUEST, quote, key->as.string,
                  "bad JSON at byte %zu: duplicate key \"%.128s\"", quote, key->as.string);
}

/* Refuses keys that stand twice; fills the index of a large object on the way. */
static status check_members(const parser *p, const json *v)
{
    if (v->len > JSON_SMALL_OBJECT) {
        memset(v->as.nodes + 2 * (size_t)v->len, 0, json_index_slots(v->len) * sizeof(uint32_t));
    }
    for (uint32_t i = 0; i < v->len; i++) {
        const json *key = &v->as.nodes[2 * (size_t)i];
        uint32_t *slot = NULL;
        size_t found =
            json_member_find(v, key->as.string, key->len, &slot); /* without an index it finds i itself */
        if (found < i) {
            return duplicate(p, key);
        }
        if (slot) {
            *slot = i + 1;
        }
    }
    return ST_OK;
}

/* The container that ends takes its children off the stack. */
static status close_container(parser *p)
{
    level l = p->open[--p->depth];
    json *v = &p->stack[l.first];
    size_t n_nodes = p->n - l.first - 1;
    size_t n = l.object ? n_nodes / 2 : n_nodes;
    size_t n_index = l.object && n > JSON_SMALL_OBJECT ? json_index_slots(n) : 0;
    p->x.at++;
    p->next = p->depth ? EXPECT_COMMA_OR_END : EXPECT_NOTHING;
    if (n == 0) {
        return ST_OK;
    }
    /* JSON_MAX_BYTES bounds n: no overflow */
    v->as.nodes = arena_alloc(&p->doc->mem, n_nodes * sizeof *v + n_index * sizeof(uint32_t));
    if (!v->as.nodes) {
        return nomem(p);
    }
    memcpy(v->as.nodes, v + 1, n_nodes * sizeof *v);
    v->len = (uint32_t)n;
    p->n = l.first + 1;
    return l.object ? check_members(p, v) : ST_OK;
}

/* The string at x.at, decoded in the copy. */
static status read_string(parser *p, json *v)
{
    size_t start = p->x.at + 1;
    bool escaped;
    status st = json_lex_string(&p->x, &escaped);
    if (st != ST_OK) {
        return st;
    }
    char *s = p->copy + start;
    size_t n = p->x.at - 1 - start;
    if (escaped) {
        n = json_lex_unescape(s, p->x.text + start, n);
    }
    s[n] = '\0';
    *v = (json){.type = JSON_STRING, .len = (uint32_t)n, .as.string = s};
    return ST_OK;
}

static status parse_string(parser *p)
{
    json v;
    status st = read_string(p, &v);
    return st == ST_OK ? push_value(p, v) : st;
}

static status parse_key(parser *p)
{
    json key;
    size_t quote = p->x.at;
    if (p->x.text[quote] != '"') {
        return json_lex_fault(&p->x, quote, "expected a key in double quotes");
    }
    status st = read_string(p, &key);
    if (st != ST_OK) {
        return st;
    }
    if (memchr(key.as.string, '\0', key.len)) {
        /* Keys are looked up and written as C strings: one that is longer than it looks would pass for
         * another. */
        return json_lex_fault(&p->x, quote, "a key holds U+0000");
    }
    p->next = EXPECT_COLON;
    return push(p, key);
}

static status parse_float(parser *p, size_t start)
{
    /* The copy ends with a NUL, and what follows the number there cannot lengthen it. */
    double v = strtod_l(p->copy + start, NULL, p->c_locale);
    if (isinf(v)) {
        return json_lex_fault(&p->x, start, "a number overflows a double");
    }
    return push_value(p, (json){.type = JSON_DOUBLE, .as.f64 = v});
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
        v = 0 - v;
    }
    return push_value(p, (json){.type = JSON_INT, .is_u64 = !negative && v > INT64_MAX, .as.u64 = v});
}

static status parse_word(parser *p, const char *word, json v)
{
    status st = json_lex_word(&p->x, word);
    return st == ST_OK ? push_value(p, v) : st;
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
        return parse_word(p, "true", (json){.type = JSON_BOOL, .as.boolean = true});
    case 'f':
        return parse_word(p, "false", (json){.type = JSON_BOOL});
    case 'n':
        return parse_word(p, "null", (json){.type = JSON_NULL});
    default:
        if (c == '-' || (c >= '0' && c <= '9')) {
            return parse_number(p);
        }
        return json_lex_fault(&p->x, p->x.at, "expected a value");
    }
}

/* At a byte that is not white space. */
static status step(parser *p)
{
    char c = p->x.text[p->x.at];
    char end = in_object(p) ? '}' : ']';
    switch (p->next) {
    case EXPECT_VALUE_OR_END:
    case EXPECT_KEY_OR_END:
    case EXPECT_COMMA_OR_END:
        if (c == end) {
            return close_container(p);
        }
        break;
    default:
        break;
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
    if (p->next != EXPECT_NOTHING) {
        return json_lex_fault(&p->x, p->x.len, "the text ends too early");
    }
    p->doc->root = p->stack[0];
    return ST_OK;
}

/* The document with its copy of the text. */
static status begin(parser *p)
{
    size_t len = p->x.len;
    if (len > JSON_MAX_BYTES) {
        return json_lex_fault(&p->x, JSON_MAX_BYTES, "%zu bytes are more than %zu", len, JSON_MAX_BYTES);
    }
    p->c_locale = newlocale(LC_ALL_MASK, "C", NULL); /* numbers have a '.' whatever the program has set */
    p->doc = mem_calloc(1, sizeof *p->doc);
    if (!p->doc || !p->c_locale) {
        return nomem(p);
    }
    size_t chunk = 2 * len;
    chunk = chunk < MIN_CHUNK_BYTES ? MIN_CHUNK_BYTES : chunk > MAX_CHUNK_BYTES ? MAX_CHUNK_BYTES : chunk;
    arena_init(&p->doc->mem, chunk);
    p->copy = arena_strndup(&p->doc->mem, p->x.text, len);
    return p->copy ? ST_OK : nomem(p);
}

status json_parse(const char *text, size_t len, size_t max_depth, json_doc **out, err *e)
{
    parser p = {.x = {text, len, 0, e}, .next = EXPECT_VALUE};
    p.max_depth = max_depth < JSON_MAX_DEPTH ? max_depth : JSON_MAX_DEPTH;
    status st = begin(&p);
    if (st == ST_OK) {
        st = parse_text(&p);
    }
    if (st == ST_OK) {
        *out = p.doc;
        p.doc = NULL;
    }
    json_doc_free(p.doc);
    mem_free(p.stack);
    if (p.c_locale) {
        freelocale(p.c_locale);
    }
    return st;
}

size_t json_doc_bytes(const json_doc *d)
{
    return d ? sizeof *d + d->mem.used_bytes : 0;
}

void json_doc_free(json_doc *d)
{
    if (d) {
        arena_release(&d->mem);
        mem_free(d);
    }
}
