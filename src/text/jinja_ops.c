#include "text/jinja_ops.h"

#include <math.h>
#include <string.h>

#include "text/jinja_print.h"
#include "text/jinja_run.h"
#include "text/jinja_unicode.h"

const char *jv_type_name(jv v)
{
    static const char *const seqs[] = {"list",      "tuple",       "range",     "generator",
                                       "dict_keys", "dict_values", "dict_items"};
    switch ((jtype)v.type) {
    case J_ABSENT:
    case J_UNDEF:
        return "Undefined";
    case J_NONE:
        return "NoneType";
    case J_BOOL:
        return "bool";
    case J_INT:
        return "int";
    case J_FLOAT:
        return "float";
    case J_STR:
        return "str";
    case J_SEQ:
        return seqs[v.q->kind];
    case J_DICT:
        return "dict";
    case J_NS:
        return "Namespace";
    case J_FUNC:
        return v.fn->builtin ? "function" : "Macro";
    case J_LOOP:
        return "LoopContext";
    case J_CYCLER:
        return v.cycler->joiner ? "Joiner" : "Cycler";
    }
    return "?";
}

void jrt_fail_undefined(jrt *rt, jv v)
{
    const jundef *u = v.u;
    if (!u) {
        jrt_fail(rt, "the value is undefined");
    }
    const char *owner = u->owner ? u->owner : "";
    jbuild b;
    jbuild_begin(rt, &b);
    if (u->kind == U_ATTRIBUTE || u->kind == U_ITEM) {
        jv_repr(rt, &b, u->name);
    } else {
        jv_print(rt, &b, u->name);
    }
    const jstr *name = jbuild_end(rt, &b);
    int n = name->len < 200 ? (int)name->len : 200;
    switch (u->kind) {
    case U_NAME:
        jrt_fail(rt, "'%.*s' is undefined", n, name->s);
    case U_ATTRIBUTE:
        jrt_fail(rt, "'%s' has no attribute %.*s", owner, n, name->s);
    case U_ITEM:
        jrt_fail(rt, "%s has no element %.*s", owner, n, name->s);
    case U_MISSING:
        jrt_fail(rt, "parameter '%.*s' was not provided", n, name->s);
    case U_HINT:
        break;
    }
    jrt_fail(rt, "%s", owner);
}

double jv_as_double(jv v)
{
    return v.type == J_FLOAT ? v.f : v.type == J_INT ? (double)v.i : v.b;
}

int64_t jv_as_int(jv v)
{
    return v.type == J_BOOL ? v.b : v.i;
}

bool jv_truth(jv v)
{
    switch ((jtype)v.type) {
    case J_ABSENT:
    case J_UNDEF:
    case J_NONE:
        return false;
    case J_BOOL:
        return v.b;
    case J_INT:
        return v.i != 0;
    case J_FLOAT:
        return v.f != 0;
    case J_STR:
        return v.s->len > 0;
    case J_SEQ:
        return v.q->kind == SEQ_ITERATOR || v.q->n > 0;
    case J_DICT:
        return v.d->n > 0;
    default:
        return true;
    }
}

/* -- equality and order ------------------------------------------------------------------------------------ */

static bool seq_equal(jrt *rt, const jseq *a, const jseq *b)
{
    if (a == b) {
        return true;
    }
    if (a->kind != b->kind || a->n != b->n || a->kind == SEQ_ITERATOR || a->kind == SEQ_VALUES) {
        return false;
    }
    jinja_deeper(rt);
    bool equal = true;
    for (size_t i = 0; equal && i < a->n; i++) {
        equal = jv_equal(rt, a->at[i], b->at[i]);
    }
    rt->depth--;
    return equal;
}

static bool dict_equal(jrt *rt, const jdict *a, const jdict *b)
{
    if (a->n != b->n) {
        return false;
    }
    jinja_deeper(rt);
    bool equal = true;
    for (size_t i = 0; equal && i < a->n; i++) {
        jv other;
        equal = jdict_get(rt, b, a->at[i].key, &other) && jv_equal(rt, a->at[i].value, other);
    }
    rt->depth--;
    return equal;
}

static int compare_numbers(jv a, jv b)
{
    if (a.type != J_FLOAT && b.type != J_FLOAT) {
        int64_t x = jv_as_int(a), y = jv_as_int(b);
        return (x > y) - (x < y);
    }
    double x = jv_as_double(a), y = jv_as_double(b);
    return isnan(x) || isnan(y) ? 2 : (x > y) - (x < y);
}

bool jv_equal(jrt *rt, jv a, jv b)
{
    jrt_charge(rt, 1);
    if (jv_is_number(a) && jv_is_number(b)) {
        return compare_numbers(a, b) == 0;
    }
    if (a.type != b.type) {
        return false;
    }
    switch ((jtype)a.type) {
    case J_STR:
        return jstr_equal(a.s, b.s);
    case J_SEQ:
        return seq_equal(rt, a.q, b.q);
    case J_DICT:
        return dict_equal(rt, a.d, b.d);
    case J_NONE:
    case J_UNDEF:
        return true;
    case J_FUNC:
        return a.fn == b.fn;
    default:
        return a.o == b.o;
    }
}

int jv_compare(jrt *rt, jv a, jv b, const char *op)
{
    jrt_charge(rt, 1);
    if (jv_is_number(a) && jv_is_number(b)) {
        return compare_numbers(a, b);
    }
    if (a.type == J_UNDEF || b.type == J_UNDEF) {
        jrt_fail_undefined(rt, a.type == J_UNDEF ? a : b);
    }
    if (a.type == J_STR && b.type == J_STR) {
        return jstr_compare(a.s, b.s);
    }
    if (a.type == J_SEQ && b.type == J_SEQ && a.q->kind == b.q->kind && a.q->kind <= SEQ_TUPLE) {
        for (size_t i = 0; i < a.q->n && i < b.q->n; i++) {
            if (!jv_equal(rt, a.q->at[i], b.q->at[i])) {
                jinja_deeper(rt);
                int c = jv_compare(rt, a.q->at[i], b.q->at[i], op);
                rt->depth--;
                return c;
            }
        }
        return (a.q->n > b.q->n) - (a.q->n < b.q->n);
    }
    jrt_fail(rt, "'%s' not supported between instances of '%s' and '%s'", op, jv_type_name(a),
             jv_type_name(b));
}

static bool contains(jrt *rt, jv needle, jv hay)
{
    if (hay.type == J_STR) {
        if (needle.type != J_STR) {
            jrt_fail(rt, "'in <string>' requires string as left operand, not %s", jv_type_name(needle));
        }
        jrt_charge(rt, hay.s->len / 64);
        return memmem(hay.s->s, hay.s->len, needle.s->s, needle.s->len) != NULL;
    }
    if (hay.type == J_DICT) {
        jv v;
        return jdict_get(rt, hay.d, needle, &v);
    }
    if (hay.type != J_SEQ && hay.type != J_UNDEF) {
        jrt_fail(rt, "argument of type '%s' is not iterable", jv_type_name(hay));
    }
    const jseq *q = jv_iterate(rt, hay);
    for (size_t i = 0; i < q->n; i++) {
        if (jv_equal(rt, needle, q->at[i])) {
            return true;
        }
    }
    return false;
}

bool jv_relation(jrt *rt, int op, jv a, jv b)
{
    int c;
    switch (op) {
    case OP_EQ:
        return jv_equal(rt, a, b);
    case OP_NE:
        return !jv_equal(rt, a, b);
    case OP_IN:
        return contains(rt, a, b);
    case OP_NOT_IN:
        return !contains(rt, a, b);
    case '<':
        return jv_compare(rt, a, b, "<") < 0;
    case OP_LE:
        return jv_compare(rt, a, b, "<=") <= 0;
    case '>':
        return jv_compare(rt, a, b, ">") == 1;
    default:
        c = jv_compare(rt, a, b, ">=");
        return c >= 0 && c != 2;
    }
}

/* -- arithmetic -------------------------------------------------------------------------------------------- */

_Noreturn static void fail_overflow(jrt *rt)
{
    jrt_fail(rt, "an integer would need more than 64 bits");
}

int64_t jv_multiply_int(jrt *rt, int64_t a, int64_t b)
{
    int64_t r;
    if (__builtin_mul_overflow(a, b, &r)) {
        fail_overflow(rt);
    }
    return r;
}

static const char *op_text(int op)
{
    switch (op) {
    case OP_FLOORDIV:
        return "//";
    case OP_POW:
        return "** or pow()";
    case '+':
        return "+";
    case '-':
        return "-";
    case '*':
        return "*";
    case '/':
        return "/";
    default:
        return "%";
    }
}

/* Python's: the remainder has the sign of the divisor. */
static double float_mod(double a, double b)
{
    double r = fmod(a, b);
    if (r == 0) {
        return copysign(0.0, b);
    }
    return (r < 0) != (b < 0) ? r + b : r;
}

static double float_floordiv(double a, double b)
{
    double r = float_mod(a, b);
    double q = (a - r) / b;
    double down = floor(q);
    return q - down > 0.5 ? down + 1 : q == 0 ? copysign(0.0, a / b) : down;
}

static jv int_pow(jrt *rt, int64_t a, int64_t n)
{
    if (n < 0) {
        if (a == 0) {
            jrt_fail(rt, "0.0 cannot be raised to a negative power");
        }
        return jv_float(pow((double)a, (double)n));
    }
    int64_t r = 1;
    while (n > 0) {
        if (n & 1) {
            r = jv_multiply_int(rt, r, a);
        }
        n >>= 1;
        if (n > 0) {
            a = jv_multiply_int(rt, a, a);
        }
    }
    return jv_int(r);
}

static jv int_binary(jrt *rt, int op, int64_t a, int64_t b)
{
    int64_t r = 0;
    switch (op) {
    case '+':
        if (__builtin_add_overflow(a, b, &r)) {
            fail_overflow(rt);
        }
        return jv_int(r);
    case '-':
        if (__builtin_sub_overflow(a, b, &r)) {
            fail_overflow(rt);
        }
        return jv_int(r);
    case '*':
        return jv_int(jv_multiply_int(rt, a, b));
    case OP_POW:
        return int_pow(rt, a, b);
    default:
        break;
    }
    if (b == 0) {
        jrt_fail(rt, op == '/'   ? "division by zero"
                     : op == '%' ? "integer modulo by zero"
                                 : "integer division or modulo by zero");
    }
    if (op == '/') {
        return jv_float((double)a / (double)b);
    }
    if (b == -1) {
        return op == '%' ? jv_int(0) : jv_int(jv_multiply_int(rt, a, -1));
    }
    int64_t q = a / b, m = a % b;
    if (m != 0 && (m < 0) != (b < 0)) {
        m += b;
        q--;
    }
    return jv_int(op == '%' ? m : q);
}

static jv float_binary(jrt *rt, int op, double a, double b)
{
    if (b == 0 && (op == '/' || op == '%' || op == OP_FLOORDIV)) {
        jrt_fail(rt, op == '/'   ? "float division by zero"
                     : op == '%' ? "float modulo"
                                 : "float floor division by zero");
    }
    switch (op) {
    case '+':
        return jv_float(a + b);
    case '-':
        return jv_float(a - b);
    case '*':
        return jv_float(a * b);
    case '/':
        return jv_float(a / b);
    case '%':
        return jv_float(float_mod(a, b));
    case OP_FLOORDIV:
        return jv_float(float_floordiv(a, b));
    default:
        if (a == 0 && b < 0) {
            jrt_fail(rt, "0.0 cannot be raised to a negative power");
        }
        return jv_float(pow(a, b));
    }
}

static jv repeat(jrt *rt, jv v, jv count)
{
    int64_t n = jv_as_int(count);
    n = n < 0 ? 0 : n;
    if (v.type == J_STR) {
        jbuild b;
        jbuild_begin(rt, &b);
        if (n > 0) {
            jbuild_repeat(rt, &b, v.s->s, v.s->len, (size_t)n, 0);
        }
        jstr *s = jbuild_end(rt, &b);
        for (size_t i = 0; v.s->len && i < s->len; i++) {
            b.bytes->marks[i] = v.s->m[i % v.s->len];
        }
        return jv_of_str(s);
    }
    size_t total;
    if (__builtin_mul_overflow(v.q->n, (size_t)n, &total)) {
        total = SIZE_MAX;
    }
    jseq *q = jseq_new(rt, v.q->kind, total);
    jrt_charge(rt, total);
    for (size_t i = 0; i < total; i++) {
        jseq_push(rt, q, v.q->at[i % v.q->n]);
    }
    return jv_of_seq(q);
}

static jv add_lists(jrt *rt, const jseq *a, const jseq *b)
{
    jseq *q = jseq_new(rt, a->kind, a->n + b->n);
    jrt_charge(rt, a->n + b->n);
    for (size_t i = 0; i < a->n; i++) {
        jseq_push(rt, q, a->at[i]);
    }
    for (size_t i = 0; i < b->n; i++) {
        jseq_push(rt, q, b->at[i]);
    }
    return jv_of_seq(q);
}

static bool is_list_or_tuple(jv v)
{
    return v.type == J_SEQ && v.q->kind <= SEQ_TUPLE;
}

_Noreturn static void fail_operands(jrt *rt, int op, jv a, jv b)
{
    if (op == '+' && (a.type == J_STR || is_list_or_tuple(a))) {
        jrt_fail(rt, "can only concatenate %s (not \"%s\") to %s", jv_type_name(a), jv_type_name(b),
                 jv_type_name(a));
    }
    if (op == '*' && (a.type == J_STR || b.type == J_STR || is_list_or_tuple(a) || is_list_or_tuple(b))) {
        jv other = a.type == J_STR || is_list_or_tuple(a) ? b : a;
        jrt_fail(rt, "can't multiply sequence by non-int of type '%s'", jv_type_name(other));
    }
    jrt_fail(rt, "unsupported operand type(s) for %s: '%s' and '%s'", op_text(op), jv_type_name(a),
             jv_type_name(b));
}

jv jv_binary(jrt *rt, int op, jv a, jv b)
{
    if (jv_is_number(a) && jv_is_number(b)) {
        bool floats = a.type == J_FLOAT || b.type == J_FLOAT;
        jv r = floats ? float_binary(rt, op, jv_as_double(a), jv_as_double(b))
                      : int_binary(rt, op, jv_as_int(a), jv_as_int(b));
        r.plain = a.plain || b.plain;
        return r;
    }
    if (op == '%' && a.type == J_STR) {
        return jv_of_str(jformat_percent(rt, a.s, b));
    }
    if (a.type == J_UNDEF || b.type == J_UNDEF) {
        jrt_fail_undefined(rt, a.type == J_UNDEF ? a : b);
    }
    if (op == '+') {
        if (a.type == J_STR && b.type == J_STR) {
            return jv_of_str(jstr_concat(rt, a.s, b.s));
        }
        if (is_list_or_tuple(a) && is_list_or_tuple(b) && a.q->kind == b.q->kind) {
            return add_lists(rt, a.q, b.q);
        }
    } else if (op == '*') {
        bool count_a = a.type == J_INT || a.type == J_BOOL, count_b = b.type == J_INT || b.type == J_BOOL;
        if (count_b && (a.type == J_STR || is_list_or_tuple(a))) {
            return repeat(rt, a, b);
        }
        if (count_a && (b.type == J_STR || is_list_or_tuple(b))) {
            return repeat(rt, b, a);
        }
    }
    fail_operands(rt, op, a, b);
}

jv jv_negate(jrt *rt, jv v)
{
    if (v.type == J_UNDEF) {
        jrt_fail_undefined(rt, v);
    }
    if (!jv_is_number(v)) {
        jrt_fail(rt, "bad operand type for unary -: '%s'", jv_type_name(v));
    }
    jv r = v.type == J_FLOAT ? jv_float(-v.f) : jv_int(jv_multiply_int(rt, jv_as_int(v), -1));
    r.plain = v.plain;
    return r;
}

/* -- iteration --------------------------------------------------------------------------------------------- */

size_t jv_len(jrt *rt, jv v)
{
    switch ((jtype)v.type) {
    case J_UNDEF:
        return 0;
    case J_STR:
        return jstr_chars(v.s);
    case J_SEQ:
        if (v.q->kind == SEQ_ITERATOR) {
            break;
        }
        return v.q->n;
    case J_DICT:
        return v.d->n;
    case J_LOOP:
        return v.loop->items->n;
    default:
        break;
    }
    jrt_fail(rt, "object of type '%s' has no len()", jv_type_name(v));
}

bool jv_can_iterate(jv v)
{
    return v.type == J_STR || v.type == J_SEQ || v.type == J_DICT || v.type == J_UNDEF || v.type == J_LOOP;
}

static jseq *characters(jrt *rt, jstr *s)
{
    jseq *q = jseq_new(rt, SEQ_LIST, jstr_chars(s));
    jrt_charge(rt, q->cap);
    for (size_t at = 0; at < s->len;) {
        size_t n = unicode_offset(s->s + at, s->len - at, 1);
        jseq_push(rt, q, jv_of_str(jstr_slice(rt, s, at, at + n)));
        at += n;
    }
    return q;
}

jseq *jv_iterate(jrt *rt, jv v)
{
    jseq *q;
    switch ((jtype)v.type) {
    case J_UNDEF:
        return jseq_new(rt, SEQ_LIST, 0);
    case J_STR:
        return characters(rt, v.s);
    case J_SEQ:
        if (v.q->kind == SEQ_ITERATOR) {
            if (v.q->spent) {
                return jseq_new(rt, SEQ_LIST, 0);
            }
            v.q->spent = true;
        }
        return v.q;
    case J_DICT:
        q = jseq_new(rt, SEQ_LIST, v.d->n);
        jrt_charge(rt, v.d->n);
        for (size_t i = 0; i < v.d->n; i++) {
            jseq_push(rt, q, v.d->at[i].key);
        }
        return q;
    default:
        jrt_fail(rt, "'%s' object is not iterable", jv_type_name(v));
    }
}

bool jv_hashable(jv v)
{
    return v.type != J_DICT && !jv_is_list(v, SEQ_LIST);
}

/* -- attributes and subscripts ----------------------------------------------------------------------------- */

static const char *owner_name(jv v)
{
    switch ((jtype)v.type) {
    case J_NONE:
        return "None";
    case J_BOOL:
        return "bool object";
    case J_INT:
        return "int object";
    case J_FLOAT:
        return "float object";
    case J_STR:
        return "str object";
    case J_DICT:
        return "dict object";
    case J_SEQ:
        return v.q->kind == SEQ_LIST       ? "list object"
               : v.q->kind == SEQ_TUPLE    ? "tuple object"
               : v.q->kind == SEQ_RANGE    ? "range object"
               : v.q->kind == SEQ_ITERATOR ? "generator object"
                                           : "dict view object";
    case J_NS:
        return "jinja2.utils.Namespace object";
    case J_LOOP:
        return "jinja2.runtime.LoopContext object";
    case J_FUNC:
        return v.fn->builtin ? "function object" : "jinja2.runtime.Macro object";
    default:
        return "jinja2.utils object";
    }
}

static jv neighbour(jrt *rt, const jloop *l, bool next)
{
    if (next ? l->i + 1 < l->items->n : l->i > 0) {
        return l->items->at[next ? l->i + 1 : l->i - 1];
    }
    return jv_undef_hint(rt, next ? "there is no next item" : "there is no previous item");
}

static bool loop_attribute(jrt *rt, const jloop *l, jstr *name, jv *out)
{
    int64_t i = (int64_t)l->i, n = (int64_t)l->items->n;
    const struct {
        const char *name;
        jv value;
    } rows[] = {
        {"index", jv_int(i + 1)},      {"index0", jv_int(i)},
        {"revindex", jv_int(n - i)},   {"revindex0", jv_int(n - i - 1)},
        {"first", jv_bool(i == 0)},    {"last", jv_bool(i + 1 == n)},
        {"length", jv_int(n)},         {"depth", jv_int(l->depth0 + 1)},
        {"depth0", jv_int(l->depth0)},
    };
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        if (jstr_is(name, rows[k].name)) {
            *out = rows[k].value;
            return true;
        }
    }
    if (jstr_is(name, "previtem") || jstr_is(name, "nextitem")) {
        *out = neighbour(rt, l, jstr_is(name, "nextitem"));
        return true;
    }
    return false;
}

static bool method(jrt *rt, jv v, jstr *name, jv *out)
{
    const jbuiltin *b = jinja_method_find(v, name);
    if (!b) {
        return false;
    }
    jfunc *f = (jfunc *)jobj_new(rt, O_FUNC, sizeof *f);
    f->builtin = b;
    f->self = jv_keep(v);
    *out = (jv){.type = J_FUNC, .fn = f};
    return true;
}

/* What getattr() of Python finds. */
static bool attribute(jrt *rt, jv v, jstr *name, jv *out)
{
    if (v.type == J_LOOP && loop_attribute(rt, v.loop, name, out)) {
        return true;
    }
    if (v.type == J_NS) {
        return jdict_get(rt, v.d, jv_of_str(name), out);
    }
    if (v.type == J_FUNC && v.fn->macro && jstr_is(name, "name")) {
        const jname *n = &rt->t->names[v.fn->macro->sym];
        *out = jv_of_str(jstr_new(rt, n->s, n->len, 0));
        return true;
    }
    if (v.type == J_SEQ && v.q->group && (jstr_is(name, "grouper") || jstr_is(name, "list"))) {
        *out = v.q->at[jstr_is(name, "list")];
        return true;
    }
    if (v.type == J_CYCLER && !v.cycler->joiner && jstr_is(name, "current")) {
        *out = v.cycler->items->at[v.cycler->i];
        return true;
    }
    return method(rt, v, name, out);
}

jv jv_getattr(jrt *rt, jv v, jstr *name)
{
    if (v.type == J_UNDEF) {
        jrt_fail_undefined(rt, v);
    }
    jv out;
    jv key = jv_of_str(name);
    if (attribute(rt, v, name, &out) || (v.type == J_DICT && jdict_get(rt, v.d, key, &out))) {
        return out;
    }
    return jv_undef(rt, U_ATTRIBUTE, owner_name(v), key);
}

static bool element(jrt *rt, jv v, int64_t i, jv *out)
{
    int64_t n = (int64_t)(v.type == J_STR ? jstr_chars(v.s) : v.q->n);
    i += i < 0 ? n : 0;
    if (i < 0 || i >= n) {
        return false;
    }
    if (v.type == J_SEQ) {
        *out = v.q->at[i];
        return true;
    }
    size_t from = jstr_offset(rt, v.s, (size_t)i);
    size_t len = unicode_offset(v.s->s + from, v.s->len - from, 1);
    *out = jv_of_str(jstr_slice(rt, v.s, from, from + len));
    return true;
}

static bool has_elements(jv v)
{
    return v.type == J_STR || (v.type == J_SEQ && v.q->kind <= SEQ_RANGE);
}

jv jv_getitem(jrt *rt, jv v, jv key)
{
    jv out;
    if (v.type == J_UNDEF) {
        jrt_fail_undefined(rt, v);
    }
    if (v.type == J_DICT && jv_hashable(key) && jdict_get(rt, v.d, key, &out)) {
        return out;
    }
    if (has_elements(v) && (key.type == J_INT || key.type == J_BOOL) &&
        element(rt, v, jv_as_int(key), &out)) {
        return out;
    }
    if (key.type == J_STR && attribute(rt, v, key.s, &out)) {
        return out;
    }
    return jv_undef(rt, key.type == J_STR ? U_ATTRIBUTE : U_ITEM, owner_name(v), key);
}

/* Python's slice.indices for one bound. */
static int64_t bound(jv b, int64_t absent, int64_t n, int64_t low, int64_t high)
{
    if (b.type == J_NONE) {
        return absent;
    }
    int64_t i = jv_as_int(b);
    i += i < 0 ? n : 0;
    return i < low ? low : i > high ? high : i;
}

static bool is_bound(jv b)
{
    return b.type == J_NONE || b.type == J_INT || b.type == J_BOOL;
}

/* Each |step|-th character of s from i on, count of them. */
static jv string_steps(jrt *rt, jstr *s, int64_t i, int64_t step, int64_t count)
{
    if (step == 1 || count == 0) {
        size_t from = jstr_offset(rt, s, (size_t)i);
        size_t len = count ? unicode_offset(s->s + from, s->len - from, (size_t)count) : 0;
        return jv_of_str(jstr_slice(rt, s, from, from + len));
    }
    const jseq *chars = characters(rt, s);
    jbuild b;
    jbuild_begin(rt, &b);
    for (; count > 0; count--, i += step) {
        jbuild_str(rt, &b, chars->at[i].s);
    }
    return jv_of_str(jbuild_end(rt, &b));
}

jv jv_slice(jrt *rt, jv v, jv from, jv to, jv step)
{
    if (v.type == J_UNDEF) {
        jrt_fail_undefined(rt, v);
    }
    if (!has_elements(v)) {
        jrt_fail(rt, v.type == J_DICT ? "unhashable type: 'slice'" : "'%s' object is not subscriptable",
                 jv_type_name(v));
    }
    if (!is_bound(from) || !is_bound(to) || !is_bound(step)) {
        jrt_fail(rt, "slice indices must be integers or None or have an __index__ method");
    }
    int64_t n = (int64_t)jv_len(rt, v), by = step.type == J_NONE ? 1 : jv_as_int(step);
    if (by == 0) {
        jrt_fail(rt, "slice step cannot be zero");
    }
    by = by < -INT64_MAX ? -INT64_MAX : by;
    int64_t low = by < 0 ? -1 : 0, high = by < 0 ? n - 1 : n;
    int64_t i = bound(from, by < 0 ? high : low, n, low, high);
    int64_t end = bound(to, by < 0 ? low : high, n, low, high);
    int64_t count = by > 0 ? (end > i ? (end - i - 1) / by + 1 : 0) : (i > end ? (i - end - 1) / -by + 1 : 0);
    if (v.type == J_STR) {
        return string_steps(rt, v.s, count ? i : 0, by, count);
    }
    jseq *q = jseq_new(rt, v.q->kind, (size_t)count);
    jrt_charge(rt, (uint64_t)count);
    for (; count > 0; count--) {
        jseq_push(rt, q, v.q->at[i]);
        i += count > 1 ? by : 0;
    }
    return jv_of_seq(q);
}

jv jv_get_path(jrt *rt, jv v, jv path)
{
    if (path.type != J_STR) {
        return jv_getitem(rt, v, path);
    }
    for (size_t at = 0; at <= path.s->len;) {
        const char *dot = memchr(path.s->s + at, '.', path.s->len - at);
        size_t end = dot ? (size_t)(dot - path.s->s) : path.s->len;
        int64_t i = 0;
        bool digits = end > at && end - at < 18;
        for (size_t k = at; k < end; k++) {
            digits = digits && path.s->s[k] >= '0' && path.s->s[k] <= '9';
            i = digits ? i * 10 + (path.s->s[k] - '0') : 0;
        }
        v = jv_getitem(rt, v, digits ? jv_int(i) : jv_of_str(jstr_slice(rt, path.s, at, end)));
        at = end + 1;
    }
    return v;
}
