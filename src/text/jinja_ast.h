/*
 * jinja_ast: a template after parsing: nodes, names and string constants, all in one arena; immutable.
 *
 * Which fields of a node are used by which kind stands beside the kind. Lists are chained by `next`. `at` is
 * the byte in the source (with newlines already normalised) that errors point to.
 */
#ifndef HEARTH_TEXT_JINJA_AST_H
#define HEARTH_TEXT_JINJA_AST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

struct jbuiltin; /* jinja_run.h */

typedef enum jkind {
    /* expressions */
    E_NONE,
    E_BOOL,    /* i */
    E_INT,     /* i */
    E_FLOAT,   /* f */
    E_STR,     /* s[len], slot: its number among the constants */
    E_NAME,    /* sym */
    E_NSREF,   /* sym.slot: only as a target */
    E_TUPLE,   /* a: list */
    E_LIST,    /* a: list */
    E_DICT,    /* a: key, value, key, value … */
    E_GETATTR, /* a, sym */
    E_GETITEM, /* a, b */
    E_SLICE,   /* a[b:c:d] of E_GETITEM's b: b, c, d or NULL */
    E_CALL,    /* a, args */
    E_FILTER,  /* a (NULL: the text of a block), sym, builtin (NULL: unknown), args */
    E_TEST,    /* a, sym, builtin, args */
    E_NOT,     /* a */
    E_NEG,     /* a */
    E_POS,     /* a */
    E_AND,     /* a, b */
    E_OR,      /* a, b */
    E_BINARY,  /* a op b */
    E_CONCAT,  /* a: list */
    E_COMPARE, /* a, b: list of E_OPERAND */
    E_OPERAND, /* op a */
    E_COND,    /* a if b else c (NULL: undefined) */
    /* in args only */
    E_KEYWORD,  /* sym = a */
    E_STAR,     /* *a */
    E_STARSTAR, /* **a */
    /* statements */
    S_TEXT,       /* s[len] */
    S_PRINT,      /* a */
    S_IF,         /* a: test, body, c: orelse: NULL, or one S_IF (elif), or S_ELSE */
    S_ELSE,       /* body */
    S_FOR,        /* a: target, b: iterable, c: test or NULL, body, d: else (S_ELSE), flag: recursive */
    S_SET,        /* a: target, b: value */
    S_SET_BLOCK,  /* a: target, b: filter or NULL, body */
    S_MACRO,      /* sym, args: E_NAME list with default in a, body, uses */
    S_CALL_BLOCK, /* a: E_CALL, args, body, uses */
    S_FILTER,     /* a: filter, body */
    S_WITH,       /* a: list of S_SET, body */
    S_SCOPE,      /* body: {% block %} */
    S_GENERATION, /* body */
    S_BREAK,
    S_CONTINUE
} jkind;

/* Operators of more than one character; the others are their character. */
enum { OP_FLOORDIV = 1, OP_POW, OP_EQ, OP_NE, OP_GE, OP_LE, OP_IN, OP_NOT_IN };

/* Names that the body of a macro reads. */
enum { USES_VARARGS = 1, USES_KWARGS = 2, USES_CALLER = 4 };

typedef struct jnode jnode;
struct jnode {
    uint8_t kind; /* jkind */
    uint8_t op;
    uint8_t uses;
    bool flag;
    uint32_t at;
    uint32_t sym;
    uint32_t slot;
    jnode *next;
    jnode *a, *b, *c, *d;
    jnode *args;
    jnode *body;
    union {
        int64_t i;
        double f;
        struct {
            const char *s;
            size_t len;
        };
        const struct jbuiltin *builtin;
    };
};

typedef struct jname {
    const char *s;
    size_t len;
} jname;

struct jinja_template {
    arena mem; /* owned: all of this but the struct */
    const char *src;
    size_t len;
    jnode *body;
    const jname *names; /* [n_names], by sym; the first are SYM_LOOP … */
    uint32_t n_names;
    uint32_t n_constants;
};

/* Names with a meaning of their own, in every template under the same numbers. */
enum { SYM_LOOP, SYM_VARARGS, SYM_KWARGS, SYM_CALLER, N_FIXED_SYMS };

/* Line and column (in characters), both from 1, of a byte. */
void jinja_place(const char *src, size_t len, size_t at, uint32_t *line, uint32_t *column);

#endif
