/*
 * Calls: arguments, macros, builtins by name.
 */
#include <string.h>

#include "text/jinja_ops.h"
#include "text/jinja_print.h"
#include "text/jinja_run.h"

/* -- arguments --------------------------------------------------------------------------------------------- */

/* The keyword arguments under construction: names and values side by side. */
typedef struct named {
    jseq *names, *values;
} named;

static void add_named(jrt *rt, named *n, jstr *name, jv value)
{
    for (size_t i = 0; i < n->names->n; i++) {
        if (jstr_equal(n->names->at[i].s, name)) {
            jrt_fail(rt, "got multiple values for keyword argument '%.*s'",
                     name->len < 60 ? (int)name->len : 60, name->s);
        }
    }
    jseq_push(rt, n->names, jv_of_str(name));
    jseq_push(rt, n->values, value);
}

static void add_starstar(jrt *rt, named *n, jv v)
{
    if (v.type != J_DICT) {
        jrt_fail(rt, "argument after ** must be a mapping, not %s", jv_type_name(v));
    }
    for (size_t i = 0; i < v.d->n; i++) {
        if (v.d->at[i].key.type != J_STR) {
            jrt_fail(rt, "keywords must be strings");
        }
        add_named(rt, n, v.d->at[i].key.s, v.d->at[i].value);
    }
}

jargs jinja_eval_args(jrt *rt, const jnode *args, jv extra)
{
    if (!args && extra.type == J_ABSENT) {
        return (jargs){0};
    }
    jseq *pos = jseq_new(rt, SEQ_TUPLE, 0);
    named n = {jseq_new(rt, SEQ_TUPLE, 0), jseq_new(rt, SEQ_TUPLE, 0)};
    for (const jnode *a = args; a; a = a->next) {
        if (a->kind == E_STAR) {
            const jseq *more = jv_iterate(rt, jinja_eval(rt, a->a));
            for (size_t i = 0; i < more->n; i++) {
                jseq_push(rt, pos, more->at[i]);
            }
        } else if (a->kind == E_STARSTAR) {
            add_starstar(rt, &n, jinja_eval(rt, a->a));
        } else if (a->kind == E_KEYWORD) {
            add_named(rt, &n, jstr_name(rt, a->sym), jinja_eval(rt, a->a));
        } else {
            jseq_push(rt, pos, jinja_eval(rt, a));
        }
    }
    if (extra.type != J_ABSENT) {
        add_named(rt, &n, jstr_name(rt, SYM_CALLER), extra);
    }
    return (jargs){pos->at, pos->n, n.names->at, n.values->at, n.names->n};
}

int64_t jarg_int(jrt *rt, const jargs *a, size_t i, int64_t absent)
{
    jv v = a->pos[i];
    if (v.type == J_ABSENT || v.type == J_NONE) {
        return absent;
    }
    if (v.type == J_UNDEF) {
        jrt_fail_undefined(rt, v);
    }
    if (v.type != J_INT && v.type != J_BOOL) {
        jrt_fail(rt, "'%s' object cannot be interpreted as an integer", jv_type_name(v));
    }
    return jv_as_int(v);
}

bool jarg_bool(const jargs *a, size_t i, bool absent)
{
    return a->pos[i].type == J_ABSENT ? absent : jv_truth(a->pos[i]);
}

jstr *jarg_str(jrt *rt, const jargs *a, size_t i, const char *absent)
{
    if (a->pos[i].type == J_ABSENT) {
        return absent ? jstr_of(rt, absent) : NULL;
    }
    return jv_str(rt, a->pos[i]);
}

jv jarg(const jargs *a, size_t i, jv absent)
{
    return a->pos[i].type == J_ABSENT ? absent : a->pos[i];
}

/* -- builtins ---------------------------------------------------------------------------------------------- */

/* The number of the parameter `name` in "a b c", or SIZE_MAX; NULL: how many there are. */
static size_t param_index(const char *params, const jstr *name)
{
    size_t i = 0;
    for (const char *p = params; *p; i++) {
        size_t n = strcspn(p, " ");
        if (name && name->len == n && memcmp(name->s, p, n) == 0) {
            return i;
        }
        p += n;
        p += *p == ' ';
    }
    return name ? SIZE_MAX : i;
}

static jv call_bound(jrt *rt, const jbuiltin *b, const char *what, jv self, const jargs *a)
{
    jv slots[JARGS_MAX] = {{0}}; /* J_ABSENT */
    size_t n = param_index(b->params, NULL);
    if (a->n_pos > n) {
        jrt_fail(rt, "the %s '%s' takes at most %zu argument(s), got %zu", what, b->name, n, a->n_pos);
    }
    for (size_t i = 0; i < a->n_pos; i++) {
        slots[i] = a->pos[i];
    }
    for (size_t k = 0; k < a->n_named; k++) {
        const jstr *name = a->names[k].s;
        size_t i = param_index(b->params, name);
        if (i == SIZE_MAX || slots[i].type != J_ABSENT) {
            jrt_fail(rt, "the %s '%s' got %s keyword argument '%.*s'", what, b->name,
                     i == SIZE_MAX ? "an unexpected" : "twice the", name->len < 60 ? (int)name->len : 60,
                     name->s);
        }
        slots[i] = a->values[k];
    }
    for (size_t i = 0; i < b->n_required; i++) {
        if (slots[i].type == J_ABSENT) {
            jrt_fail(rt, "the %s '%s' needs %d argument(s)", what, b->name, b->n_required);
        }
    }
    return b->fn(rt, self, &(jargs){.pos = slots, .n_pos = n});
}

jv jinja_call_builtin(jrt *rt, const jbuiltin *b, const char *what, jv self, const jargs *a)
{
    if (!b->fn) {
        jrt_fail(rt, "the %s '%s' is not supported", what, b->name);
    }
    jinja_deeper(rt); /* map("map", …) calls itself */
    jv v = b->params[0] == '*' ? b->fn(rt, self, a) : call_bound(rt, b, what, self, a);
    rt->depth--;
    return jrt_pin(rt, v);
}

static const jbuiltin *named_builtin(jrt *rt, jv name, const jbuiltin *(*find)(const char *, size_t),
                                     const char *what)
{
    const jbuiltin *b = name.type == J_STR ? find(name.s->s, name.s->len) : NULL;
    if (!b) {
        const jstr *s = jv_str(rt, name);
        jrt_fail(rt, "No %s named '%.*s'.", what, s->len < 60 ? (int)s->len : 60, s->s);
    }
    return b;
}

jv jinja_apply_filter(jrt *rt, jv name, jv v, const jargs *a)
{
    return jinja_call_builtin(rt, named_builtin(rt, name, jinja_filter_find, "filter"), "filter", v, a);
}

bool jinja_apply_test(jrt *rt, jv name, jv v, const jargs *a)
{
    return jv_truth(jinja_call_builtin(rt, named_builtin(rt, name, jinja_test_find, "test"), "test", v, a));
}

/* -- macros ------------------------------------------------------------------------------------------------ */

jv jinja_make_macro(jrt *rt, const jnode *n)
{
    jfunc *f = (jfunc *)jobj_new(rt, O_FUNC, sizeof *f);
    f->self = JV_NONE;
    f->macro = n;
    f->scope = rt->scope;
    f->scope->h.refs++;
    return (jv){.type = J_FUNC, .fn = f};
}

static const char *macro_name(jrt *rt, const jnode *n, int *len)
{
    if (n->kind == S_CALL_BLOCK) {
        *len = 6;
        return "caller";
    }
    const jname *name = &rt->t->names[n->sym];
    *len = name->len < 60 ? (int)name->len : 60;
    return name->s;
}

/* Whether a keyword argument is one of the parameters that no positional one took. */
static bool is_parameter(jrt *rt, const jnode *n, const jstr *name, size_t from)
{
    size_t i = 0;
    for (const jnode *p = n->args; p; p = p->next, i++) {
        if (i >= from && jstr_equal(jstr_name(rt, p->sym), name)) {
            return true;
        }
    }
    return false;
}

/* Keyword arguments that no parameter took. */
static void bind_rest(jrt *rt, const jnode *n, const jargs *a)
{
    int len;
    const char *name = macro_name(rt, n, &len);
    jdict *kwargs = jdict_new(rt);
    for (size_t k = 0; k < a->n_named; k++) {
        const jstr *key = a->names[k].s;
        if (is_parameter(rt, n, key, a->n_pos)) {
            continue;
        }
        if (jstr_is(key, "caller") && (n->uses & USES_CALLER)) {
            jscope_set(rt, rt->scope, SYM_CALLER, a->values[k]);
        } else if (n->uses & USES_KWARGS) {
            jdict_put(rt, kwargs, a->names[k], a->values[k]);
        } else {
            jrt_fail(rt, "macro '%.*s' takes no keyword argument '%.*s'", len, name,
                     key->len < 60 ? (int)key->len : 60, key->s);
        }
    }
    if (n->uses & USES_KWARGS) {
        jscope_set(rt, rt->scope, SYM_KWARGS, (jv){.type = J_DICT, .d = kwargs});
    }
}

/* Binds the parameters in the current scope, which is the macro's own. */
static void bind_macro(jrt *rt, const jnode *n, const jargs *a)
{
    size_t i = 0;
    if (n->uses & USES_CALLER) {
        jscope_set(rt, rt->scope, SYM_CALLER, jv_undef_hint(rt, "No caller defined"));
    }
    for (const jnode *p = n->args; p; p = p->next, i++) {
        jv v = i < a->n_pos ? a->pos[i] : JV_ABSENT;
        for (size_t k = 0; k < a->n_named; k++) {
            if (v.type == J_ABSENT && jstr_equal(a->names[k].s, jstr_name(rt, p->sym))) {
                v = a->values[k];
            }
        }
        if (v.type == J_ABSENT) {
            v = p->a ? jinja_eval(rt, p->a) : jv_undef(rt, U_MISSING, NULL, jv_of_str(jstr_name(rt, p->sym)));
        }
        jscope_set(rt, rt->scope, p->sym, v);
    }
    jseq *varargs = jseq_new(rt, SEQ_TUPLE, 0);
    for (size_t k = i; k < a->n_pos; k++) {
        jseq_push(rt, varargs, a->pos[k]);
    }
    if (n->uses & USES_VARARGS) {
        jscope_set(rt, rt->scope, SYM_VARARGS, jv_of_seq(varargs));
    } else if (varargs->n) {
        int len;
        const char *name = macro_name(rt, n, &len);
        jrt_fail(rt, "macro '%.*s' takes not more than %zu argument(s)", len, name, i);
    }
    bind_rest(rt, n, a);
}

static jv call_macro(jrt *rt, const jfunc *f, const jargs *a)
{
    size_t temps = rt->n_temps;
    jscope *outer = rt->scope;
    jinja_deeper(rt);
    rt->scope = jscope_new(rt, f->scope);
    bind_macro(rt, f->macro, a);
    jv text = jinja_capture(rt, f->macro->body);
    rt->scope = outer;
    rt->depth--;
    return jrt_carry(rt, temps, text);
}

jv jinja_call(jrt *rt, jv callee, const jargs *a)
{
    switch ((jtype)callee.type) {
    case J_UNDEF:
        jrt_fail_undefined(rt, callee);
    case J_FUNC:
        return callee.fn->macro ? call_macro(rt, callee.fn, a)
                                : jinja_call_builtin(rt, callee.fn->builtin, "function", callee.fn->self, a);
    case J_LOOP:
        if (a->n_pos != 1 || a->n_named) {
            jrt_fail(rt, "loop() takes one argument");
        }
        return jinja_loop_again(rt, callee.loop, a->pos[0]);
    case J_CYCLER:
        if (callee.cycler->joiner) { /* nothing at first, then the separator */
            bool first = callee.cycler->i++ == 0;
            return first ? jv_of_str(jstr_of(rt, "")) : callee.cycler->items->at[0];
        }
        break;
    default:
        break;
    }
    jrt_fail(rt, "'%s' object is not callable", jv_type_name(callee));
}
