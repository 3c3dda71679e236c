/*
 * Statements. Each ends with the temporaries it began with.
 */
#include <string.h>

#include "text/jinja_ops.h"
#include "text/jinja_print.h"
#include "text/jinja_run.h"

/* Makes a new innermost scope; leave_scope goes back. The scope is a temporary of the caller. */
static jscope *enter_scope(jrt *rt, jscope *parent)
{
    jscope *outer = rt->scope;
    rt->scope = jscope_new(rt, parent);
    return outer;
}

static void leave_scope(jrt *rt, jscope *outer)
{
    rt->scope = outer;
}

static void write_marked(jrt *rt, size_t from)
{
    jbuild_mark(rt->out, from, rt->mark);
}

static void print_value(jrt *rt, const jnode *n)
{
    size_t from = jbuild_len(rt->out);
    jv v = jinja_eval(rt, n->a);
    rt->at = n->at;
    jv_print(rt, rt->out, v);
    write_marked(rt, from);
}

static void print_text(jrt *rt, const jnode *n)
{
    jbuild_add(rt, rt->out, n->s, n->len, rt->mark);
}

jv jinja_capture(jrt *rt, const jnode *list)
{
    jbuild text, *outer = rt->out;
    uint8_t mark = rt->mark;
    jbuild_begin(rt, &text);
    rt->out = &text;
    rt->mark = 0; /* whoever prints the text marks it */
    if (jinja_exec(rt, list) != FLOW_ON) {
        jrt_fail(rt, "'break' or 'continue' outside of a loop");
    }
    rt->mark = mark;
    rt->out = outer;
    return jv_of_str(jbuild_end(rt, &text));
}

/* The same in a scope of its own. */
static jv capture_scoped(jrt *rt, const jnode *list)
{
    jscope *outer = enter_scope(rt, rt->scope);
    jv v = jinja_capture(rt, list);
    leave_scope(rt, outer);
    return v;
}

/* -- assignment -------------------------------------------------------------------------------------------- */

static void assign_tuple(jrt *rt, const jnode *target, jv value)
{
    if (value.type == J_UNDEF || !jv_can_iterate(value)) {
        jrt_fail(rt, "cannot unpack non-iterable %s object", jv_type_name(value));
    }
    const jseq *q = jv_iterate(rt, value);
    size_t n = 0;
    for (const jnode *t = target->a; t; t = t->next) {
        n++;
    }
    if (q->n < n) {
        jrt_fail(rt, "not enough values to unpack (expected %zu, got %zu)", n, q->n);
    }
    if (q->n > n) {
        jrt_fail(rt, "too many values to unpack (expected %zu)", n);
    }
    n = 0;
    for (const jnode *t = target->a; t; t = t->next) {
        jinja_assign(rt, t, q->at[n++]);
    }
}

void jinja_assign(jrt *rt, const jnode *target, jv value)
{
    if (target->kind == E_NAME) {
        jscope_set(rt, rt->scope, target->sym, value);
    } else if (target->kind == E_TUPLE) {
        rt->at = target->at;
        assign_tuple(rt, target, value);
    } else {
        jv ns;
        rt->at = target->at;
        if (!jscope_get(rt->scope, target->sym, &ns)) {
            ns = rt->globals[target->sym];
        }
        if (ns.type != J_NS) {
            jrt_fail(rt, "cannot assign attribute on non-namespace object");
        }
        jdict_put(rt, ns.d, jv_of_str(jstr_name(rt, target->slot)), value);
    }
}

static void set_block(jrt *rt, const jnode *n)
{
    jv v = capture_scoped(rt, n->body);
    jinja_assign(rt, n->a, n->b ? jinja_filter_text(rt, n->b, v) : v);
}

jv jinja_filter_text(jrt *rt, const jnode *filter, jv text)
{
    jinja_deeper(rt);
    jv v = filter->a ? jinja_filter_text(rt, filter->a, text) : text;
    jargs a = jinja_eval_args(rt, filter->args, JV_ABSENT);
    const jname *name = &rt->t->names[filter->sym];
    rt->at = filter->at;
    if (!filter->builtin) {
        jrt_fail(rt, "No filter named '%.*s'.", name->len < 60 ? (int)name->len : 60, name->s);
    }
    v = jinja_call_builtin(rt, filter->builtin, "filter", v, &a);
    rt->depth--;
    return v;
}

static void filter_block(jrt *rt, const jnode *n)
{
    size_t from = jbuild_len(rt->out);
    jv v = jinja_filter_text(rt, n->a, capture_scoped(rt, n->body));
    jv_print(rt, rt->out, v);
    write_marked(rt, from);
}

static jflow exec_with(jrt *rt, const jnode *n)
{
    jscope *inner = jscope_new(rt, rt->scope), *outer = rt->scope;
    for (const jnode *set = n->a; set; set = set->next) {
        jv v = jinja_eval(rt, set->b); /* outside: a value does not see those before it */
        rt->scope = inner;
        jinja_assign(rt, set->a, v);
        rt->scope = outer;
    }
    rt->scope = inner;
    jflow flow = jinja_exec(rt, n->body);
    leave_scope(rt, outer);
    return flow;
}

static jflow exec_scope(jrt *rt, const jnode *n)
{
    uint8_t mark = rt->mark;
    jscope *outer = enter_scope(rt, n->kind == S_GENERATION ? rt->scope : rt->top);
    rt->mark |= n->kind == S_GENERATION ? MARK_GENERATED : 0;
    jflow flow = jinja_exec(rt, n->body);
    rt->mark = mark;
    leave_scope(rt, outer);
    return flow;
}

/* -- loops ------------------------------------------------------------------------------------------------- */

/* The elements for which the loop's test holds. */
static jseq *tested(jrt *rt, const jnode *n, jseq *all)
{
    if (!n->c) {
        return all;
    }
    jseq *q = jseq_new(rt, SEQ_LIST, 0);
    for (size_t i = 0; i < all->n; i++) {
        size_t temps = rt->n_temps;
        jscope *outer = enter_scope(rt, rt->scope);
        jinja_assign(rt, n->a, all->at[i]);
        bool keep = jv_truth(jinja_eval(rt, n->c));
        leave_scope(rt, outer);
        jrt_release_temps(rt, temps);
        if (keep) {
            jseq_push(rt, q, all->at[i]);
        }
    }
    return q;
}

static void run_loop(jrt *rt, const jnode *n, jv iterable, int64_t depth0)
{
    jseq *items = jv_iterate(rt, iterable);
    items = tested(rt, n, items);
    jloop *loop = (jloop *)jobj_new(rt, O_LOOP, sizeof *loop);
    loop->items = items;
    items->h.refs++;
    loop->depth0 = depth0;
    loop->node = n;
    loop->changed = JV_ABSENT;
    loop->scope = rt->scope;
    rt->scope->h.refs++;
    jscope *outer = rt->scope;
    bool completed = false;
    for (; loop->i < items->n; loop->i++) {
        size_t temps = rt->n_temps;
        jrt_charge(rt, 1);
        enter_scope(rt, outer);
        jscope_set(rt, rt->scope, SYM_LOOP, (jv){.type = J_LOOP, .loop = loop});
        jinja_assign(rt, n->a, items->at[loop->i]);
        jflow flow = jinja_exec(rt, n->body);
        leave_scope(rt, outer);
        jrt_release_temps(rt, temps);
        completed = completed || flow == FLOW_ON;
        if (flow == FLOW_BREAK) {
            break;
        }
    }
    if (!completed && n->d) { /* Jinja2's else: no round came to its end */
        enter_scope(rt, outer);
        if (jinja_exec(rt, n->d->body) != FLOW_ON) {
            jrt_fail(rt, "'break' or 'continue' outside of a loop");
        }
        leave_scope(rt, outer);
    }
}

static void exec_for(jrt *rt, const jnode *n)
{
    jv iterable = jinja_eval(rt, n->b);
    rt->at = n->b->at;
    run_loop(rt, n, iterable, 0);
}

jv jinja_loop_again(jrt *rt, jloop *loop, jv iterable)
{
    if (!loop->node->flag) {
        jrt_fail(rt, "the loop must have the 'recursive' marker to be called");
    }
    jbuild text, *out = rt->out;
    jscope *scope = rt->scope;
    jbuild_begin(rt, &text);
    rt->out = &text;
    rt->scope = loop->scope;
    run_loop(rt, loop->node, iterable, loop->depth0 + 1);
    rt->scope = scope;
    rt->out = out;
    return jv_of_str(jbuild_end(rt, &text));
}

/* -- the list ---------------------------------------------------------------------------------------------- */

static jflow exec_if(jrt *rt, const jnode *n)
{
    for (; n; n = n->c) {
        if (n->kind == S_ELSE || jv_truth(jinja_eval(rt, n->a))) {
            return jinja_exec(rt, n->body);
        }
    }
    return FLOW_ON;
}

static void call_block(jrt *rt, const jnode *n)
{
    size_t from = jbuild_len(rt->out);
    jv caller = jinja_make_macro(rt, n);
    jv callee = jinja_eval(rt, n->a->a);
    jargs a = jinja_eval_args(rt, n->a->args, caller);
    rt->at = n->at;
    jv_print(rt, rt->out, jinja_call(rt, callee, &a));
    write_marked(rt, from);
}

static jflow exec_one(jrt *rt, const jnode *n)
{
    switch ((jkind)n->kind) {
    case S_TEXT:
        print_text(rt, n);
        break;
    case S_PRINT:
        print_value(rt, n);
        break;
    case S_IF:
        return exec_if(rt, n);
    case S_ELSE:
        return jinja_exec(rt, n->body);
    case S_FOR:
        exec_for(rt, n);
        break;
    case S_SET:
        jinja_assign(rt, n->a, jinja_eval(rt, n->b));
        break;
    case S_SET_BLOCK:
        set_block(rt, n);
        break;
    case S_MACRO:
        jscope_set(rt, rt->scope, n->sym, jinja_make_macro(rt, n));
        break;
    case S_CALL_BLOCK:
        call_block(rt, n);
        break;
    case S_FILTER:
        filter_block(rt, n);
        break;
    case S_WITH:
        return exec_with(rt, n);
    case S_SCOPE:
    case S_GENERATION:
        return exec_scope(rt, n);
    case S_BREAK:
        return FLOW_BREAK;
    case S_CONTINUE:
        return FLOW_CONTINUE;
    default:
        jrt_fail(rt, "an expression stands where a statement should");
    }
    return FLOW_ON;
}

jflow jinja_exec(jrt *rt, const jnode *list)
{
    jinja_deeper(rt);
    jflow flow = FLOW_ON;
    for (const jnode *n = list; n && flow == FLOW_ON; n = n->next) {
        size_t temps = rt->n_temps;
        jrt_charge(rt, 1);
        rt->at = n->at;
        flow = exec_one(rt, n);
        jrt_release_temps(rt, temps);
    }
    rt->depth--;
    return flow;
}
