/*
 * Expressions.
 */
#include <string.h>

#include "text/jinja_ops.h"
#include "text/jinja_print.h"
#include "text/jinja_run.h"

void jinja_deeper(jrt *rt)
{
    if (++rt->depth > rt->max_depth) {
        jrt_fail(rt, "evaluation is nested more than %u deep", rt->max_depth);
    }
}

static jv eval_name(jrt *rt, const jnode *n)
{
    jv v;
    if (jscope_get(rt->scope, n->sym, &v)) {
        return v;
    }
    v = rt->globals[n->sym];
    return v.type == J_ABSENT ? jv_undef(rt, U_NAME, NULL, jv_of_str(jstr_name(rt, n->sym))) : v;
}

static jv eval_string(jrt *rt, const jnode *n)
{
    if (!rt->consts[n->slot]) {
        rt->consts[n->slot] = jstr_new(rt, n->s, n->len, 0);
        rt->consts[n->slot]->h.refs++;
    }
    return jv_of_str(rt->consts[n->slot]);
}

static jv eval_items(jrt *rt, const jnode *n, jseq_kind kind)
{
    jseq *q = jseq_new(rt, kind, 0);
    for (const jnode *item = n->a; item; item = item->next) {
        jseq_push(rt, q, jinja_eval(rt, item));
    }
    return jv_of_seq(q);
}

static jv eval_dict(jrt *rt, const jnode *n)
{
    jdict *d = jdict_new(rt);
    for (const jnode *key = n->a; key; key = key->next->next) {
        jv k = jinja_eval(rt, key);
        jdict_put(rt, d, k, jinja_eval(rt, key->next));
    }
    return (jv){.type = J_DICT, .d = d};
}

static jv eval_or_none(jrt *rt, const jnode *n)
{
    return n ? jinja_eval(rt, n) : JV_NONE;
}

static jv eval_getitem(jrt *rt, const jnode *n)
{
    jv v = jinja_eval(rt, n->a);
    if (n->b->kind == E_SLICE) {
        jv from = eval_or_none(rt, n->b->b), to = eval_or_none(rt, n->b->c), step = eval_or_none(rt, n->b->d);
        rt->at = n->at;
        return jv_slice(rt, v, from, to, step);
    }
    jv key = jinja_eval(rt, n->b);
    rt->at = n->at;
    return jrt_pin(rt, jv_getitem(rt, v, key));
}

static jv eval_binary(jrt *rt, const jnode *n)
{
    jv a = jinja_eval(rt, n->a), b = jinja_eval(rt, n->b);
    rt->at = n->at;
    return jv_binary(rt, n->op, a, b);
}

/* a ~ b ~ c: texts joined. */
static jv eval_concat(jrt *rt, const jnode *n)
{
    jstr *s = NULL;
    for (const jnode *part = n->a; part; part = part->next) {
        jstr *more = jv_str(rt, jinja_eval(rt, part));
        s = s ? jstr_concat(rt, s, more) : more;
    }
    return jv_of_str(s);
}

static jv eval_comparison(jrt *rt, const jnode *n)
{
    jv a = jinja_eval(rt, n->a);
    for (const jnode *o = n->b; o; o = o->next) {
        jv b = jinja_eval(rt, o->a);
        rt->at = o->at;
        if (!jv_relation(rt, o->op, a, b)) {
            return jv_bool(false);
        }
        a = b;
    }
    return jv_bool(true);
}

static jv eval_cond(jrt *rt, const jnode *n)
{
    if (jv_truth(jinja_eval(rt, n->b))) {
        return jinja_eval(rt, n->a);
    }
    return n->c ? jinja_eval(rt, n->c)
                : jv_undef_hint(
                      rt, "the inline if-expression evaluated to false and no else section was defined.");
}

static jv eval_filter(jrt *rt, const jnode *n)
{
    jv v = jinja_eval(rt, n->a);
    jargs a = jinja_eval_args(rt, n->args, JV_ABSENT);
    const jname *name = &rt->t->names[n->sym];
    rt->at = n->at;
    if (!n->builtin) {
        jrt_fail(rt, "No filter named '%.*s'.", name->len < 60 ? (int)name->len : 60, name->s);
    }
    return jinja_call_builtin(rt, n->builtin, "filter", v, &a);
}

static jv eval_test(jrt *rt, const jnode *n)
{
    jv v = jinja_eval(rt, n->a);
    jargs a = jinja_eval_args(rt, n->args, JV_ABSENT);
    const jname *name = &rt->t->names[n->sym];
    rt->at = n->at;
    if (!n->builtin) {
        jrt_fail(rt, "No test named '%.*s'.", name->len < 60 ? (int)name->len : 60, name->s);
    }
    return jinja_call_builtin(rt, n->builtin, "test", v, &a);
}

static jv eval_call(jrt *rt, const jnode *n)
{
    jv callee = jinja_eval(rt, n->a);
    jargs a = jinja_eval_args(rt, n->args, JV_ABSENT);
    rt->at = n->at;
    return jinja_call(rt, callee, &a);
}

static jv eval_attribute(jrt *rt, const jnode *n)
{
    jv v = jinja_eval(rt, n->a);
    rt->at = n->at;
    return jrt_pin(rt, jv_getattr(rt, v, jstr_name(rt, n->sym)));
}

static jv eval_unary(jrt *rt, const jnode *n)
{
    jv v = jinja_eval(rt, n->a);
    rt->at = n->at;
    if (n->kind == E_NOT) {
        return jv_bool(!jv_truth(v));
    }
    if (n->kind == E_NEG) {
        return jv_negate(rt, v);
    }
    if (!jv_is_number(v)) {
        if (v.type == J_UNDEF) {
            jrt_fail_undefined(rt, v);
        }
        jrt_fail(rt, "bad operand type for unary +: '%s'", jv_type_name(v));
    }
    return v.type == J_BOOL ? jv_int(v.b) : v;
}

static jv eval_node(jrt *rt, const jnode *n)
{
    jv v;
    switch ((jkind)n->kind) {
    case E_NONE:
        return JV_NONE;
    case E_BOOL:
        return jv_bool(n->i != 0);
    case E_INT:
        return jv_int(n->i);
    case E_FLOAT:
        return jv_float(n->f);
    case E_STR:
        return eval_string(rt, n);
    case E_NAME:
        return eval_name(rt, n);
    case E_TUPLE:
        return eval_items(rt, n, SEQ_TUPLE);
    case E_LIST:
        return eval_items(rt, n, SEQ_LIST);
    case E_DICT:
        return eval_dict(rt, n);
    case E_GETATTR:
        return eval_attribute(rt, n);
    case E_GETITEM:
        return eval_getitem(rt, n);
    case E_CALL:
        return eval_call(rt, n);
    case E_FILTER:
        return eval_filter(rt, n);
    case E_TEST:
        return eval_test(rt, n);
    case E_NOT:
    case E_NEG:
    case E_POS:
        return eval_unary(rt, n);
    case E_AND:
        v = jinja_eval(rt, n->a);
        return jv_truth(v) ? jinja_eval(rt, n->b) : v;
    case E_OR:
        v = jinja_eval(rt, n->a);
        return jv_truth(v) ? v : jinja_eval(rt, n->b);
    case E_BINARY:
        return eval_binary(rt, n);
    case E_CONCAT:
        return eval_concat(rt, n);
    case E_COMPARE:
        return eval_comparison(rt, n);
    case E_COND:
        return eval_cond(rt, n);
    default:
        jrt_fail(rt, "a slice stands where a value should");
    }
}

jv jinja_eval(jrt *rt, const jnode *n)
{
    jrt_charge(rt, 1);
    jinja_deeper(rt);
    rt->at = n->at;
    jv v = eval_node(rt, n);
    rt->depth--;
    return v;
}
