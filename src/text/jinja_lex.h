/*
 * jinja_lex: a template's source into tokens, with Jinja2's rules for white space around tags.
 *
 * The source is copied with "\r\n" and "\r" as "\n" and without one trailing newline; `at` counts in that
 * copy. Everything is in the compilation's arena. Faults leave by jcompile_fail, which does not return: the
 * whole compilation is undone by jinja_compile.
 */
#ifndef HEARTH_TEXT_JINJA_LEX_H
#define HEARTH_TEXT_JINJA_LEX_H

#include <setjmp.h>

#include "base/strmap.h"
#include "text/jinja_ast.h"

typedef enum jtok {
    T_EOF,
    T_DATA,      /* s[len]: text between tags */
    T_VAR_BEGIN, /* {{ */
    T_VAR_END,
    T_BLOCK_BEGIN, /* {% */
    T_BLOCK_END,
    T_NAME,   /* s[len] */
    T_STRING, /* s[len], escapes resolved */
    T_INT,    /* i */
    T_FLOAT,  /* f */
    T_OP      /* op: the character, or OP_… */
} jtok;

typedef struct jtoken {
    uint8_t kind; /* jtok */
    uint8_t op;
    uint32_t at;
    const char *s;
    size_t len;
    union {
        int64_t i;
        double f;
    };
} jtoken;

typedef struct jcompile {
    struct jinja_template *t; /* borrowed; arena, src, len are set */
    jtoken *tokens;           /* [n_tokens], the last is T_EOF */
    size_t n_tokens, cap_tokens;
    strmap *syms; /* owned by jinja_compile: names to their numbers */
    err *e;       /* borrowed, may be NULL */
    status st;
    jmp_buf fail;
} jcompile;

void jcompile_fail_nomem(jcompile *c) __attribute__((noreturn));
void jcompile_fail(jcompile *c, size_t at, const char *fmt, ...)
    __attribute__((noreturn, format(printf, 3, 4)));
void *jcompile_alloc(jcompile *c, size_t n_bytes); /* zeroed; does not return NULL */

void jinja_lex(jcompile *c);

#endif
