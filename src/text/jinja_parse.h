/*
 * jinja_parse: tokens into nodes. Statements are in jinja_parse.c, expressions in jinja_parse_expr.c; the
 * grammar is that of Jinja2's parser.py, function by function. Faults leave by jcompile_fail.
 */
#ifndef HEARTH_TEXT_JINJA_PARSE_H
#define HEARTH_TEXT_JINJA_PARSE_H

#include "text/jinja_lex.h"

typedef struct jparse {
    jcompile *c;
    const jtoken *tok; /* the current one */
    unsigned nesting;
    unsigned uses; /* USES_… of the macro that is being parsed */
    uint32_t n_constants;
    jname *names; /* [n_names], in the arena */
    uint32_t n_names, cap_names;
} jparse;

/* Parses all tokens of c and fills c->t. */
void jinja_parse(jcompile *c);

void jparse_fail(jparse *p, const char *fmt, ...) __attribute__((noreturn, format(printf, 2, 3)));
void jparse_unexpected(jparse *p, const char *wanted) __attribute__((noreturn)); /* wanted may be NULL */
jnode *jparse_node(jparse *p, jkind kind, size_t at);
uint32_t jparse_sym(jparse *p, const char *s, size_t len);
void jparse_deeper(jparse *p); /* undone with p->nesting-- */

bool jtok_is_op(const jtoken *t, int op);
bool jtok_is_name(const jtoken *t, const char *name);
bool jparse_skip_op(jparse *p, int op);
bool jparse_skip_name(jparse *p, const char *name);
void jparse_expect_op(jparse *p, int op);
const jtoken *jparse_expect_name(jparse *p); /* any name */

jnode *jparse_expression(jparse *p);
jnode *jparse_or(jparse *p); /* an expression without `a if b` */
typedef enum jtuple_flags {
    TUPLE_TARGETS = 1,   /* names and their like only */
    TUPLE_NO_COND = 2,   /* elements are jparse_or */
    TUPLE_IN_PARENS = 4, /* may be empty */
    TUPLE_NAMESPACE = 8  /* a.b is a target */
} jtuple_flags;
/* end: a name that ends it too, or NULL. */
jnode *jparse_tuple(jparse *p, unsigned flags, const char *end);
jnode *jparse_target(jparse *p, unsigned flags, const char *end);
jnode *jparse_name_target(jparse *p); /* E_NAME */
jnode *jparse_filter(jparse *p, jnode *value, bool inline_start);

#endif
