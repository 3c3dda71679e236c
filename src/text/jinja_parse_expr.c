#include <string.h>

#include "text/jinja_parse.h"
#include "text/jinja_run.h"

static jnode *parse_unary(jparse *p, bool with_filter);

static jnode *two(jparse *p, jkind kind, int op, jnode *a, jnode *b)
{
    jnode *n = jparse_node(p, kind, a->at);
    n->op = (uint8_t)op;
    n->a = a;
    n->b = b;
    return n;
}

typedef struct chain {
    jnode *first, **end;
} chain;

static void chain_add(chain *c, jnode *n)
{
    if (!c->first) {
        c->end = &c->first;
    }
    *c->end = n;
    c->end = &n->next;
}

/* -- operators, loosest first ------------------------------------------------------------------------------ */

jnode *jparse_expression(jparse *p)
{
    jparse_deeper(p);
    jnode *value = jparse_or(p);
    while (jtok_is_name(p->tok, "if")) {
        jnode *n = jparse_node(p, E_COND, p->tok->at);
        p->tok++;
        n->a = value;
        n->b = jparse_or(p);
        n->c = jparse_skip_name(p, "else") ? jparse_expression(p) : NULL;
        value = n;
    }
    p->nesting--;
    return value;
}

static jnode *parse_not(jparse *p);

static jnode *parse_and(jparse *p)
{
    jnode *left = parse_not(p);
    while (jparse_skip_name(p, "and")) {
        left = two(p, E_AND, 0, left, parse_not(p));
    }
    return left;
}

jnode *jparse_or(jparse *p)
{
    jnode *left = parse_and(p);
    while (jparse_skip_name(p, "or")) {
        left = two(p, E_OR, 0, left, parse_and(p));
    }
    return left;
}

static jnode *parse_pow(jparse *p)
{
    jnode *left = parse_unary(p, true);
    while (jtok_is_op(p->tok, OP_POW)) {
        p->tok++;
        left = two(p, E_BINARY, OP_POW, left, parse_unary(p, true));
    }
    return left;
}

static jnode *parse_product(jparse *p)
{
    jnode *left = parse_pow(p);
    while (jtok_is_op(p->tok, '*') || jtok_is_op(p->tok, '/') || jtok_is_op(p->tok, OP_FLOORDIV) ||
           jtok_is_op(p->tok, '%')) {
        const jtoken *t = p->tok++;
        left = two(p, E_BINARY, t->op, left, parse_pow(p));
        left->at = t->at;
    }
    return left;
}

static jnode *parse_concat(jparse *p)
{
    jnode *first = parse_product(p);
    if (!jtok_is_op(p->tok, '~')) {
        return first;
    }
    jnode *n = jparse_node(p, E_CONCAT, first->at);
    chain parts = {0};
    chain_add(&parts, first);
    while (jparse_skip_op(p, '~')) {
        chain_add(&parts, parse_product(p));
    }
    n->a = parts.first;
    return n;
}

static jnode *parse_sum(jparse *p)
{
    jnode *left = parse_concat(p);
    while (jtok_is_op(p->tok, '+') || jtok_is_op(p->tok, '-')) {
        const jtoken *t = p->tok++;
        left = two(p, E_BINARY, t->op, left, parse_concat(p));
        left->at = t->at;
    }
    return left;
}

/* The operator of a comparison at the current token, which is then skipped; 0 if there is none. */
static int comparison(jparse *p)
{
    if (p->tok->kind == T_OP) {
        int op = p->tok->op;
        if (op == OP_EQ || op == OP_NE || op == OP_LE || op == OP_GE || op == '<' || op == '>') {
            p->tok++;
            return op;
        }
    } else if (jparse_skip_name(p, "in")) {
        return OP_IN;
    } else if (jtok_is_name(p->tok, "not") && jtok_is_name(p->tok + 1, "in")) {
        p->tok += 2;
        return OP_NOT_IN;
    }
    return 0;
}

static jnode *parse_comparison(jparse *p)
{
    jnode *first = parse_sum(p);
    chain operands = {0};
    size_t at = p->tok->at;
    for (int op; (op = comparison(p)) != 0;) {
        jnode *n = jparse_node(p, E_OPERAND, p->tok->at);
        n->op = (uint8_t)op;
        n->a = parse_sum(p);
        chain_add(&operands, n);
    }
    if (!operands.first) {
        return first;
    }
    jnode *n = two(p, E_COMPARE, 0, first, operands.first);
    n->at = (uint32_t)at;
    return n;
}

static jnode *parse_not(jparse *p)
{
    if (!jtok_is_name(p->tok, "not")) {
        return parse_comparison(p);
    }
    jparse_deeper(p);
    jnode *n = jparse_node(p, E_NOT, p->tok++->at);
    n->a = parse_not(p);
    p->nesting--;
    return n;
}

/* -- primary expressions ----------------------------------------------------------------------------------- */

static jnode *parse_list(jparse *p)
{
    jnode *n = jparse_node(p, E_LIST, p->tok++->at);
    chain items = {0};
    while (!jtok_is_op(p->tok, ']')) {
        if (items.first) {
            jparse_expect_op(p, ',');
            if (jtok_is_op(p->tok, ']')) {
                break;
            }
        }
        chain_add(&items, jparse_expression(p));
    }
    jparse_expect_op(p, ']');
    n->a = items.first;
    return n;
}

static jnode *parse_dict(jparse *p)
{
    jnode *n = jparse_node(p, E_DICT, p->tok++->at);
    chain items = {0};
    while (!jtok_is_op(p->tok, '}')) {
        if (items.first) {
            jparse_expect_op(p, ',');
            if (jtok_is_op(p->tok, '}')) {
                break;
            }
        }
        chain_add(&items, jparse_expression(p));
        jparse_expect_op(p, ':');
        chain_add(&items, jparse_expression(p));
    }
    jparse_expect_op(p, '}');
    n->a = items.first;
    return n;
}

static jnode *parse_string(jparse *p)
{
    jnode *n = jparse_node(p, E_STR, p->tok->at);
    n->s = p->tok->s;
    n->len = p->tok->len;
    n->slot = p->n_constants++;
    for (p->tok++; p->tok->kind == T_STRING; p->tok++) { /* "a" "b" */
        char *joined = jcompile_alloc(p->c, n->len + p->tok->len + 1);
        memcpy(joined, n->s, n->len);
        memcpy(joined + n->len, p->tok->s, p->tok->len);
        n->s = joined;
        n->len += p->tok->len;
    }
    return n;
}

static jnode *parse_name(jparse *p, bool namespaces)
{
    const jtoken *t = p->tok++;
    static const struct {
        const char *name;
        jkind kind;
        int64_t i;
    } words[] = {{"true", E_BOOL, 1},  {"True", E_BOOL, 1}, {"false", E_BOOL, 0},
                 {"False", E_BOOL, 0}, {"none", E_NONE, 0}, {"None", E_NONE, 0}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (jtok_is_name(t, words[i].name)) {
            jnode *n = jparse_node(p, words[i].kind, t->at);
            n->i = words[i].i;
            return n;
        }
    }
    jnode *n = jparse_node(p, E_NAME, t->at);
    n->sym = jparse_sym(p, t->s, t->len);
    if (namespaces && jparse_skip_op(p, '.')) {
        n->kind = E_NSREF;
        const jtoken *attr = jparse_expect_name(p);
        n->slot = jparse_sym(p, attr->s, attr->len);
        return n;
    }
    p->uses |= n->sym == SYM_VARARGS  ? USES_VARARGS
               : n->sym == SYM_KWARGS ? USES_KWARGS
               : n->sym == SYM_CALLER ? USES_CALLER
                                      : 0u;
    return n;
}

static jnode *parse_primary(jparse *p, bool namespaces)
{
    const jtoken *t = p->tok;
    if (t->kind == T_NAME) {
        return parse_name(p, namespaces);
    }
    if (t->kind == T_STRING) {
        return parse_string(p);
    }
    if (t->kind == T_INT || t->kind == T_FLOAT) {
        jnode *n = jparse_node(p, t->kind == T_INT ? E_INT : E_FLOAT, t->at);
        if (t->kind == T_INT) {
            n->i = t->i;
        } else {
            n->f = t->f;
        }
        p->tok++;
        return n;
    }
    if (jparse_skip_op(p, '(')) {
        jnode *n = jparse_tuple(p, TUPLE_IN_PARENS, NULL);
        jparse_expect_op(p, ')');
        return n;
    }
    if (jtok_is_op(t, '[')) {
        return parse_list(p);
    }
    if (jtok_is_op(t, '{')) {
        return parse_dict(p);
    }
    jparse_unexpected(p, "an expression");
}

static bool tuple_ends(const jparse *p, const char *end)
{
    return p->tok->kind == T_VAR_END || p->tok->kind == T_BLOCK_END || jtok_is_op(p->tok, ')') ||
           (end && jtok_is_name(p->tok, end));
}

jnode *jparse_tuple(jparse *p, unsigned flags, const char *end)
{
    size_t at = p->tok->at;
    chain items = {0};
    bool is_tuple = false;
    for (;;) {
        if (items.first) {
            jparse_expect_op(p, ',');
        }
        if (tuple_ends(p, end)) {
            break;
        }
        jparse_deeper(p);
        chain_add(&items, flags & TUPLE_TARGETS   ? parse_primary(p, (flags & TUPLE_NAMESPACE) != 0)
                          : flags & TUPLE_NO_COND ? jparse_or(p)
                                                  : jparse_expression(p));
        p->nesting--;
        if (!jtok_is_op(p->tok, ',')) {
            break;
        }
        is_tuple = true;
    }
    if (!is_tuple) {
        if (items.first) {
            return items.first;
        }
        if (!(flags & TUPLE_IN_PARENS)) {
            jparse_unexpected(p, "an expression");
        }
    }
    jnode *n = jparse_node(p, E_TUPLE, at);
    n->a = items.first;
    return n;
}

static void check_target(jparse *p, const jnode *n)
{
    if (n->kind == E_TUPLE) {
        for (const jnode *item = n->a; item; item = item->next) {
            check_target(p, item);
        }
    } else if (n->kind != E_NAME && n->kind != E_NSREF) {
        jcompile_fail(p->c, n->at, "this cannot be assigned to");
    }
}

jnode *jparse_target(jparse *p, unsigned flags, const char *end)
{
    unsigned uses = p->uses;
    jnode *n = jparse_tuple(p, flags | TUPLE_TARGETS, end);
    check_target(p, n);
    p->uses = uses; /* a name that is written is not read */
    return n;
}

jnode *jparse_name_target(jparse *p)
{
    const jtoken *t = p->tok;
    unsigned uses = p->uses;
    jparse_expect_name(p);
    p->tok = t;
    jnode *n = parse_name(p, false);
    check_target(p, n);
    p->uses = uses;
    return n;
}

/* -- what may follow one ----------------------------------------------------------------------------------- */

/* `*a` or `**a` in args, of which `seen` holds the kinds that came before. */
static jnode *parse_argument(jparse *p, unsigned *seen)
{
    enum { KEYWORD = 1, STAR = 2, STARSTAR = 4 };
    const jtoken *t = p->tok;
    jnode *n;
    unsigned mine, after;
    if (jtok_is_op(t, '*') || jtok_is_op(t, OP_POW)) {
        bool star = jtok_is_op(t, '*');
        n = jparse_node(p, star ? E_STAR : E_STARSTAR, t->at);
        mine = star ? STAR : STARSTAR;
        after = star ? STAR | STARSTAR : STARSTAR;
        p->tok++;
        n->a = jparse_expression(p);
    } else if (t->kind == T_NAME && jtok_is_op(t + 1, '=')) {
        n = jparse_node(p, E_KEYWORD, t->at);
        n->sym = jparse_sym(p, t->s, t->len);
        mine = KEYWORD;
        after = STARSTAR;
        p->tok += 2;
        n->a = jparse_expression(p);
    } else {
        n = jparse_expression(p);
        mine = 0;
        after = KEYWORD | STAR | STARSTAR;
    }
    if (*seen & after) {
        jcompile_fail(p->c, t->at, "this argument cannot stand behind those before it");
    }
    *seen |= mine;
    return n;
}

static jnode *parse_args(jparse *p)
{
    chain args = {0};
    unsigned seen = 0;
    jparse_expect_op(p, '(');
    while (!jtok_is_op(p->tok, ')')) {
        if (args.first) {
            jparse_expect_op(p, ',');
            if (jtok_is_op(p->tok, ')')) {
                break;
            }
        }
        chain_add(&args, parse_argument(p, &seen));
    }
    jparse_expect_op(p, ')');
    return args.first;
}

static jnode *parse_call(jparse *p, jnode *callee)
{
    jnode *n = jparse_node(p, E_CALL, callee->at);
    n->a = callee;
    n->args = parse_args(p);
    return n;
}

static bool at_slice_end(const jparse *p)
{
    return jtok_is_op(p->tok, ']') || jtok_is_op(p->tok, ',');
}

/* What stands between [ and ]: an expression or a slice. */
static jnode *parse_subscribed(jparse *p)
{
    size_t at = p->tok->at;
    jnode *from = NULL;
    if (!jtok_is_op(p->tok, ':')) {
        from = jparse_expression(p);
        if (!jtok_is_op(p->tok, ':')) {
            return from;
        }
    }
    p->tok++;
    jnode *n = jparse_node(p, E_SLICE, at);
    n->b = from;
    if (!jtok_is_op(p->tok, ':') && !at_slice_end(p)) {
        n->c = jparse_expression(p);
    }
    if (jparse_skip_op(p, ':') && !at_slice_end(p)) {
        n->d = jparse_expression(p);
    }
    return n;
}

static jnode *parse_subscript(jparse *p, jnode *value)
{
    const jtoken *t = p->tok++;
    if (t->op == '[') {
        size_t at = p->tok->at;
        jnode *index = parse_subscribed(p);
        if (jtok_is_op(p->tok, ',')) {
            jnode *tuple = jparse_node(p, E_TUPLE, at);
            chain items = {0};
            chain_add(&items, index);
            while (jparse_skip_op(p, ',')) {
                chain_add(&items, parse_subscribed(p));
            }
            tuple->a = items.first;
            index = tuple;
        }
        jparse_expect_op(p, ']');
        jnode *n = two(p, E_GETITEM, 0, value, index);
        n->at = t->at;
        return n;
    }
    if (p->tok->kind == T_INT) {
        jnode *index = jparse_node(p, E_INT, p->tok->at);
        index->i = p->tok++->i;
        return two(p, E_GETITEM, 0, value, index);
    }
    if (p->tok->kind != T_NAME) {
        jparse_unexpected(p, "a name or number");
    }
    jnode *n = jparse_node(p, E_GETATTR, p->tok->at);
    n->a = value;
    n->sym = jparse_sym(p, p->tok->s, p->tok->len);
    p->tok++;
    return n;
}

static jnode *parse_postfix(jparse *p, jnode *value)
{
    for (;;) {
        if (jtok_is_op(p->tok, '.') || jtok_is_op(p->tok, '[')) {
            value = parse_subscript(p, value);
        } else if (jtok_is_op(p->tok, '(')) {
            value = parse_call(p, value);
        } else {
            return value;
        }
    }
}

/* A name with dots, as of a filter or a test. */
static uint32_t parse_dotted(jparse *p)
{
    const jtoken *t = jparse_expect_name(p);
    uint32_t sym = jparse_sym(p, t->s, t->len);
    while (jtok_is_op(p->tok, '.')) {
        p->tok++;
        const jtoken *more = jparse_expect_name(p);
        size_t n = (size_t)(more->s + more->len - t->s);
        sym = jparse_sym(p, t->s, n); /* as written, with what blanks there are */
    }
    return sym;
}

jnode *jparse_filter(jparse *p, jnode *value, bool inline_start)
{
    while (inline_start || jparse_skip_op(p, '|')) {
        jnode *n = jparse_node(p, E_FILTER, p->tok->at);
        n->a = value;
        n->sym = parse_dotted(p);
        n->builtin = jinja_filter_find(p->names[n->sym].s, p->names[n->sym].len);
        n->args = jtok_is_op(p->tok, '(') ? parse_args(p) : NULL;
        value = n;
        inline_start = false;
    }
    return value;
}

static bool starts_test_argument(const jtoken *t)
{
    return t->kind == T_STRING || t->kind == T_INT || t->kind == T_FLOAT || jtok_is_op(t, '[') ||
           jtok_is_op(t, '{') ||
           (t->kind == T_NAME && !jtok_is_name(t, "else") && !jtok_is_name(t, "or") &&
            !jtok_is_name(t, "and"));
}

static jnode *parse_test(jparse *p, jnode *value)
{
    p->tok++; /* is */
    bool negated = jparse_skip_name(p, "not");
    jnode *n = jparse_node(p, E_TEST, p->tok->at);
    n->a = value;
    n->sym = parse_dotted(p);
    n->builtin = jinja_test_find(p->names[n->sym].s, p->names[n->sym].len);
    if (jtok_is_op(p->tok, '(')) {
        n->args = parse_args(p);
    } else if (starts_test_argument(p->tok)) {
        if (jtok_is_name(p->tok, "is")) {
            jparse_fail(p, "tests cannot be chained with 'is'");
        }
        n->args = parse_postfix(p, parse_primary(p, false));
    }
    if (!negated) {
        return n;
    }
    jnode *not = jparse_node(p, E_NOT, n->at);
    not ->a = n;
    return not ;
}

static jnode *parse_filters_and_tests(jparse *p, jnode *value)
{
    for (;;) {
        if (jtok_is_op(p->tok, '|')) {
            value = jparse_filter(p, value, false);
        } else if (jtok_is_name(p->tok, "is")) {
            value = parse_test(p, value);
        } else if (jtok_is_op(p->tok, '(')) {
            value = parse_call(p, value);
        } else {
            return value;
        }
    }
}

static jnode *parse_unary(jparse *p, bool with_filter)
{
    jparse_deeper(p);
    jnode *n;
    if (jtok_is_op(p->tok, '-') || jtok_is_op(p->tok, '+')) {
        n = jparse_node(p, jtok_is_op(p->tok, '-') ? E_NEG : E_POS, p->tok->at);
        p->tok++;
        n->a = parse_unary(p, false);
    } else {
        n = parse_primary(p, false);
    }
    n = parse_postfix(p, n);
    if (with_filter) {
        n = parse_filters_and_tests(p, n);
    }
    p->nesting--;
    return n;
}
