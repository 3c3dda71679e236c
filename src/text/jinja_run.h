/*
 * jinja_run: evaluating nodes, calling things, and the tables of what templates may call. See jinja_value.h for
 * memory and errors.
 *
 * Statements are in jinja_exec.c, expressions in jinja_eval.c, calls in jinja_call.c. Filters:
 * jinja_filters_seq.c, jinja_filters_text.c. Tests: jinja_tests.c. Methods: jinja_methods.c. Global
 * functions: jinja_globals.c.
 */
#ifndef HEARTH_TEXT_JINJA_RUN_H
#define HEARTH_TEXT_JINJA_RUN_H

#include "text/jinja_value.h"

typedef struct jargs {
    const jv *pos;
    size_t n_pos;
    /* The keyword arguments; after binding none. */
    const jv *names; /* strings */
    const jv *values;
    size_t n_named;
} jargs;

/* A filter, test, method or global function. */
typedef struct jbuiltin {
    const char *name;
    /* Parameters behind the value, separated by blanks; fn gets exactly as many in args->pos, J_ABSENT where
     * none was given. "*": args as they came. */
    const char *params;
    uint8_t n_required;
    jv (*fn)(jrt *rt, jv self, const jargs *a); /* NULL: known and refused */
} jbuiltin;

#define JARGS_MAX 16 /* parameters of one builtin */

/* Found when the template is parsed; NULL if there is none. */
const jbuiltin *jinja_filter_find(const char *name, size_t len);
const jbuiltin *jinja_test_find(const char *name, size_t len);
/* The method of a value's type, or NULL. */
const jbuiltin *jinja_method_find(jv self, const jstr *name);
const jbuiltin *jinja_global_find(const char *name, size_t len);
extern const jbuiltin jinja_text_filters[], jinja_seq_filters[]; /* ended by a row without name */

jv jinja_eval(jrt *rt, const jnode *n);
/* What stopped a list of statements. */
typedef enum jflow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE } jflow;
jflow jinja_exec(jrt *rt, const jnode *list);
/* The text that a list of statements writes, in the current scope. */
jv jinja_capture(jrt *rt, const jnode *list);
void jinja_assign(jrt *rt, const jnode *target, jv value);
/* A chain of filters whose innermost has no value of its own: text is its value. */
jv jinja_filter_text(jrt *rt, const jnode *filter, jv text);
/* One more level of evaluation; undone with rt->depth--. */
void jinja_deeper(jrt *rt);
/* Runs the body of a for statement in a new call of `loop` (recursive loops). */
jv jinja_loop_again(jrt *rt, jloop *loop, jv iterable);

jv jinja_call(jrt *rt, jv callee, const jargs *a);
jv jinja_call_builtin(jrt *rt, const jbuiltin *b, const char *what, jv self, const jargs *a);
/* The values of an args list, as temporaries. extra: one more keyword argument (caller), or J_ABSENT. */
jargs jinja_eval_args(jrt *rt, const jnode *args, jv extra);
/* The filter or test of that name (a jstr's value), for map, select and their like. */
jv jinja_apply_filter(jrt *rt, jv name, jv v, const jargs *a);
bool jinja_apply_test(jrt *rt, jv name, jv v, const jargs *a);
/* dict(mapping or pairs, **more) */
jdict *jinja_make_dict(jrt *rt, const jargs *a);
jv jinja_make_macro(jrt *rt, const jnode *n);

/* Arguments of builtins: the value of a[i], or what stands for an absent one. */
int64_t jarg_int(jrt *rt, const jargs *a, size_t i, int64_t absent);
bool jarg_bool(const jargs *a, size_t i, bool absent);
jstr *jarg_str(jrt *rt, const jargs *a, size_t i, const char *absent); /* str() of it; NULL absent: NULL */
jv jarg(const jargs *a, size_t i, jv absent);

/* Stable; keys[i] belongs to items->at[i]. */
void jseq_sort(jrt *rt, jseq *items, const jv *keys, bool reverse);

#endif
