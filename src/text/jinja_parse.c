#include "text/jinja_parse.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "text/jinja.h"

/* -- what both files use ----------------------------------------------------------------------------------- */

void jparse_fail(jparse *p, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    jcompile_fail(p->c, p->tok->at, "%s", text);
}

void jparse_unexpected(jparse *p, const char *wanted)
{
    const jtoken *t = p->tok;
    const char *comma = wanted ? ", expected " : "";
    wanted = wanted ? wanted : "";
    switch (t->kind) {
    case T_EOF:
        jparse_fail(p, "unexpected end of the template%s%s", comma, wanted);
    case T_NAME:
        jparse_fail(p, "unexpected '%.*s'%s%s", t->len < 60 ? (int)t->len : 60, t->s, comma, wanted);
    case T_VAR_END:
    case T_BLOCK_END:
        jparse_fail(p, "unexpected end of the tag%s%s", comma, wanted);
    default:
        jparse_fail(p, "unexpected '%c'%s%s", p->c->t->src[t->at], comma, wanted);
    }
}

jnode *jparse_node(jparse *p, jkind kind, size_t at)
{
    jnode *n = jcompile_alloc(p->c, sizeof *n);
    n->kind = (uint8_t)kind;
    n->at = (uint32_t)at;
    return n;
}

uint32_t jparse_sym(jparse *p, const char *s, size_t len)
{
    int32_t known;
    if (strmap_get(p->c->syms, s, len, &known)) {
        return (uint32_t)known;
    }
    if (p->n_names == p->cap_names) {
        uint32_t cap = p->cap_names ? 2 * p->cap_names : 64;
        jname *grown = jcompile_alloc(p->c, cap * sizeof *grown);
        if (p->n_names) {
            memcpy(grown, p->names, p->n_names * sizeof *grown);
        }
        p->names = grown;
        p->cap_names = cap;
    }
    if (strmap_put(p->c->syms, s, len, (int32_t)p->n_names, NULL) != ST_OK) {
        jcompile_fail_nomem(p->c);
    }
    p->names[p->n_names] = (jname){s, len};
    return p->n_names++;
}

void jparse_deeper(jparse *p)
{
    if (++p->nesting > JINJA_MAX_NESTING) {
        jparse_fail(p, "nested more than %d deep", JINJA_MAX_NESTING);
    }
}

bool jtok_is_op(const jtoken *t, int op)
{
    return t->kind == T_OP && t->op == op;
}

bool jtok_is_name(const jtoken *t, const char *name)
{
    return t->kind == T_NAME && strlen(name) == t->len && memcmp(t->s, name, t->len) == 0;
}

bool jparse_skip_op(jparse *p, int op)
{
    bool there = jtok_is_op(p->tok, op);
    p->tok += there;
    return there;
}

bool jparse_skip_name(jparse *p, const char *name)
{
    bool there = jtok_is_name(p->tok, name);
    p->tok += there;
    return there;
}

void jparse_expect_op(jparse *p, int op)
{
    if (!jparse_skip_op(p, op)) {
        const char wanted[] = {'\'', (char)op, '\'', 0};
        jparse_unexpected(p, wanted);
    }
}

const jtoken *jparse_expect_name(jparse *p)
{
    if (p->tok->kind != T_NAME) {
        jparse_unexpected(p, "a name");
    }
    return p->tok++;
}

/* -- statements -------------------------------------------------------------------------------------------- */

static void expect_block_end(jparse *p)
{
    if (p->tok->kind != T_BLOCK_END) {
        jparse_unexpected(p, "the end of the tag");
    }
    p->tok++;
}

static jnode *parse_statement(jparse *p);

/* Up to a tag that begins with one of `ends` (ended by NULL), whose name is then the current token; NULL: to
 * the end of the template. */
static jnode *parse_body(jparse *p, const char *const *ends, const char *tag, size_t at)
{
    jnode *first = NULL, **end = &first;
    for (;;) {
        const jtoken *t = p->tok;
        jnode *n;
        if (t->kind == T_EOF) {
            if (ends) {
                jcompile_fail(p->c, at, "this '%s' has no end", tag);
            }
            return first;
        }
        if (t->kind == T_DATA) {
            n = jparse_node(p, S_TEXT, t->at);
            n->s = t->s;
            n->len = t->len;
            p->tok++;
        } else if (t->kind == T_VAR_BEGIN) {
            p->tok++;
            n = jparse_node(p, S_PRINT, t->at);
            n->a = jparse_tuple(p, 0, NULL);
            if (p->tok->kind != T_VAR_END) {
                jparse_unexpected(p, "the end of the expression");
            }
            p->tok++;
        } else {
            p->tok++; /* T_BLOCK_BEGIN */
            for (const char *const *e = ends; e && *e; e++) {
                if (jtok_is_name(p->tok, *e)) {
                    return first;
                }
            }
            jparse_deeper(p);
            n = parse_statement(p);
            p->nesting--;
            expect_block_end(p);
        }
        if (n) {
            *end = n;
            end = &n->next;
        }
    }
}

/* The body of a statement up to its one end tag, which is skipped. */
static jnode *parse_block(jparse *p, const char *end, const char *tag, size_t at)
{
    const char *const ends[] = {end, NULL};
    jparse_skip_op(p, ':'); /* as in Python; Jinja2 allows it */
    expect_block_end(p);
    jnode *body = parse_body(p, ends, tag, at);
    p->tok++;
    return body;
}

static jnode *parse_if(jparse *p, size_t at)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    jnode *first = NULL, **end = &first;
    for (;;) {
        jnode *n = jparse_node(p, S_IF, p->tok->at);
        n->a = jparse_tuple(p, TUPLE_NO_COND, NULL);
        jparse_skip_op(p, ':');
        expect_block_end(p);
        n->body = parse_body(p, ends, "if", at);
        *end = n;
        end = &n->c;
        if (jparse_skip_name(p, "elif")) {
            continue;
        }
        if (jtok_is_name(p->tok, "else")) {
            n->c = jparse_node(p, S_ELSE, p->tok++->at);
            n->c->body = parse_block(p, "endif", "if", at);
        } else {
            p->tok++; /* endif */
        }
        return first;
    }
}

static jnode *parse_for(jparse *p, size_t at)
{
    static const char *const ends[] = {"endfor", "else", NULL};
    jnode *n = jparse_node(p, S_FOR, at);
    n->a = jparse_target(p, 0, "in");
    if (!jparse_skip_name(p, "in")) {
        jparse_unexpected(p, "'in'");
    }
    n->b = jparse_tuple(p, TUPLE_NO_COND, "recursive");
    n->c = jparse_skip_name(p, "if") ? jparse_expression(p) : NULL;
    n->flag = jparse_skip_name(p, "recursive");
    jparse_skip_op(p, ':');
    expect_block_end(p);
    n->body = parse_body(p, ends, "for", at);
    if (jtok_is_name(p->tok, "else")) {
        n->d = jparse_node(p, S_ELSE, p->tok++->at);
        n->d->body = parse_block(p, "endfor", "for", at);
    } else {
        p->tok++;
    }
    return n;
}

static jnode *parse_set(jparse *p, size_t at)
{
    jnode *target = jparse_target(p, TUPLE_NAMESPACE, NULL);
    if (jparse_skip_op(p, '=')) {
        jnode *n = jparse_node(p, S_SET, at);
        n->a = target;
        n->b = jparse_tuple(p, 0, NULL);
        return n;
    }
    jnode *n = jparse_node(p, S_SET_BLOCK, at);
    n->a = target;
    n->b = jparse_filter(p, NULL, false);
    n->body = parse_block(p, "endset", "set", at);
    return n;
}

/* (a, b=1): E_NAME nodes, their defaults in `a`. */
static jnode *parse_signature(jparse *p)
{
    jnode head = {0}, *last = &head;
    bool defaults = false;
    jparse_expect_op(p, '(');
    while (!jtok_is_op(p->tok, ')')) {
        if (head.next) {
            jparse_expect_op(p, ',');
        }
        jnode *n = jparse_name_target(p);
        assert(n);
        if (jparse_skip_op(p, '=')) {
            n->a = jparse_expression(p);
            defaults = true;
        } else if (defaults) {
            jcompile_fail(p->c, n->at, "a parameter without a default stands behind one that has one");
        }
        last->next = n;
        last = n;
    }
    p->tok++;
    return head.next;
}

/* A body in which varargs, kwargs and caller are the macro's own. */
static void parse_macro_body(jparse *p, jnode *n, const char *end, const char *tag)
{
    unsigned outer = p->uses;
    p->uses = 0;
    n->body = parse_block(p, end, tag, n->at);
    n->uses = (uint8_t)p->uses;
    p->uses |= outer; /* a macro around it gets them too, as in Jinja2 */
}

static jnode *parse_macro(jparse *p, size_t at)
{
    jnode *n = jparse_node(p, S_MACRO, at);
    n->sym = jparse_name_target(p)->sym;
    n->args = parse_signature(p);
    parse_macro_body(p, n, "endmacro", "macro");
    return n;
}

static jnode *parse_call_block(jparse *p, size_t at)
{
    jnode *n = jparse_node(p, S_CALL_BLOCK, at);
    n->args = jtok_is_op(p->tok, '(') ? parse_signature(p) : NULL;
    n->a = jparse_expression(p);
    if (n->a->kind != E_CALL) {
        jcompile_fail(p->c, n->a->at, "expected a call");
    }
    parse_macro_body(p, n, "endcall", "call");
    return n;
}

static jnode *parse_filter_block(jparse *p, size_t at)
{
    jnode *n = jparse_node(p, S_FILTER, at);
    n->a = jparse_filter(p, NULL, true);
    n->body = parse_block(p, "endfilter", "filter", at);
    return n;
}

static jnode *parse_with(jparse *p, size_t at)
{
    jnode *n = jparse_node(p, S_WITH, at), **end = &n->a;
    while (p->tok->kind != T_BLOCK_END && !jtok_is_op(p->tok, ':')) {
        if (n->a) {
            jparse_expect_op(p, ',');
        }
        jnode *set = jparse_node(p, S_SET, p->tok->at);
        set->a = jparse_target(p, 0, NULL);
        jparse_expect_op(p, '=');
        set->b = jparse_expression(p);
        *end = set;
        end = &set->next;
    }
    n->body = parse_block(p, "endwith", "with", at);
    return n;
}

static jnode *parse_print(jparse *p, size_t at)
{
    jnode *first = NULL, **end = &first;
    while (p->tok->kind != T_BLOCK_END) {
        if (first) {
            jparse_expect_op(p, ',');
        }
        jnode *n = jparse_node(p, S_PRINT, at);
        n->a = jparse_expression(p);
        *end = n;
        end = &n->next;
    }
    jnode *all = jparse_node(p, S_ELSE, at); /* a plain list of statements */
    all->body = first;
    return all;
}

static jnode *parse_generation(jparse *p, size_t at)
{
    jnode *n = jparse_node(p, S_GENERATION, at);
    n->body = parse_block(p, "endgeneration", "generation", at);
    return n;
}

/* {% block %}: there is no inheritance, so it stands where it is. */
static jnode *parse_named_block(jparse *p, size_t at)
{
    jnode *n = jparse_node(p, S_SCOPE, at);
    const jtoken *name = jparse_expect_name(p);
    jparse_skip_name(p, "scoped");
    jparse_skip_name(p, "required");
    n->body = parse_block(p, "endblock", "block", at);
    if (p->tok->kind == T_NAME && p->tok->len == name->len && memcmp(p->tok->s, name->s, name->len) == 0) {
        p->tok++;
    }
    return n;
}

static jnode *parse_break(jparse *p, size_t at)
{
    return jparse_node(p, S_BREAK, at);
}

static jnode *parse_continue(jparse *p, size_t at)
{
    return jparse_node(p, S_CONTINUE, at);
}

static jnode *refuse(jparse *p, size_t at)
{
    p->tok--;
    jparse_fail(p, "'%.*s' is not supported: a chat template is one text", (int)p->tok->len, p->tok->s);
}

static const struct {
    const char *name;
    jnode *(*parse)(jparse *p, size_t at); /* the current token is behind the name */
} statements[] = {
    {"if", parse_if},
    {"for", parse_for},
    {"set", parse_set},
    {"macro", parse_macro},
    {"call", parse_call_block},
    {"filter", parse_filter_block},
    {"with", parse_with},
    {"print", parse_print},
    {"generation", parse_generation},
    {"block", parse_named_block},
    {"break", parse_break},
    {"continue", parse_continue},
    {"include", refuse},
    {"import", refuse},
    {"from", refuse},
    {"extends", refuse},
    {"autoescape", refuse},
};

static jnode *parse_statement(jparse *p)
{
    const jtoken *t = p->tok;
    if (t->kind != T_NAME) {
        jparse_unexpected(p, "the name of a tag");
    }
    for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++) {
        if (jtok_is_name(t, statements[i].name)) {
            p->tok++;
            return statements[i].parse(p, t->at);
        }
    }
    jparse_fail(p, "unknown tag '%.*s'", t->len < 60 ? (int)t->len : 60, t->s);
}

void jinja_parse(jcompile *c)
{
    jparse p = {.c = c, .tok = c->tokens};
    if (strmap_new(64, &c->syms) != ST_OK) {
        jcompile_fail_nomem(c);
    }
    static const char *const fixed[N_FIXED_SYMS] = {"loop", "varargs", "kwargs", "caller"};
    for (uint32_t i = 0; i < N_FIXED_SYMS; i++) {
        jparse_sym(&p, fixed[i], strlen(fixed[i]));
    }
    c->t->body = parse_body(&p, NULL, NULL, 0);
    c->t->names = p.names;
    c->t->n_names = p.n_names;
    c->t->n_constants = p.n_constants;
}
