/*
 * Filters of sequences and dicts. The table is at the end.
 */
#include <string.h>

#include "text/jinja_ops.h"
#include "text/jinja_print.h"
#include "text/jinja_run.h"
#include "text/jinja_text.h"

/* -- sorting and keys -------------------------------------------------------------------------------------- */

static bool comes_first(jrt *rt, jv left, jv right, bool reverse)
{
    int c = reverse ? jv_compare(rt, left, right, "<") : jv_compare(rt, right, left, "<");
    return !(c < 0); /* equal: as they stood */
}

void jseq_sort(jrt *rt, jseq *items, const jv *keys, bool reverse)
{
    size_t n = items->n;
    jseq *order = jseq_new(rt, SEQ_LIST, n), *next = jseq_new(rt, SEQ_LIST, n);
    for (size_t i = 0; i < n; i++) {
        jseq_push(rt, order, jv_int((int64_t)i));
        jseq_push(rt, next, jv_int(0));
    }
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t from = 0; from < n; from += 2 * width) {
            size_t mid = from + width < n ? from + width : n, end = mid + width < n ? mid + width : n;
            size_t l = from, r = mid;
            for (size_t k = from; k < end; k++) {
                bool left = r == end ||
                            (l < mid && comes_first(rt, keys[order->at[l].i], keys[order->at[r].i], reverse));
                next->at[k] = order->at[left ? l++ : r++];
            }
        }
        jseq *t = order;
        order = next;
        next = t;
    }
    jseq *sorted = jseq_new(rt, SEQ_LIST, n);
    for (size_t i = 0; i < n; i++) {
        jseq_push(rt, sorted, items->at[order->at[i].i]);
    }
    jv *at = items->at; /* the same values, counted once in each */
    size_t cap = items->cap;
    items->at = sorted->at;
    items->cap = sorted->cap;
    sorted->at = at;
    sorted->cap = cap;
}

/* What a value is compared by: its attribute ("a.b"), in lower case. */
static jv key_of(jrt *rt, jv v, jv attribute, bool case_sensitive)
{
    if (attribute.type != J_ABSENT && attribute.type != J_NONE) {
        v = jv_get_path(rt, v, attribute);
    }
    return v.type == J_STR && !case_sensitive ? jv_of_str(jtext_map(rt, v.s, UNICODE_LOWER)) : v;
}

static jseq *keys_of(jrt *rt, const jseq *items, jv attribute, bool case_sensitive)
{
    jseq *keys = jseq_new(rt, SEQ_LIST, items->n);
    for (size_t i = 0; i < items->n; i++) {
        jseq_push(rt, keys, key_of(rt, items->at[i], attribute, case_sensitive));
    }
    return keys;
}

static jseq *copy(jrt *rt, jv v, jseq_kind kind)
{
    const jseq *all = jv_iterate(rt, v);
    jseq *q = jseq_new(rt, kind, all->n);
    jrt_charge(rt, all->n);
    for (size_t i = 0; i < all->n; i++) {
        jseq_push(rt, q, all->at[i]);
    }
    return q;
}

/* A tuple of what each of the attributes "a,b.c" is: so undefined ones are equal rather than an error. */
static jv keys_of_sort(jrt *rt, jv v, jv attribute, bool case_sensitive)
{
    jseq *all = jseq_new(rt, SEQ_TUPLE, 1);
    if (attribute.type != J_STR) {
        jseq_push(rt, all, key_of(rt, v, attribute, case_sensitive));
        return jv_of_seq(all);
    }
    const jseq *parts = jtext_split(rt, attribute.s, jstr_of(rt, ","), -1, false);
    for (size_t i = 0; i < parts->n; i++) {
        jseq_push(rt, all, key_of(rt, v, parts->at[i], case_sensitive));
    }
    return jv_of_seq(all);
}

static jv f_sort(jrt *rt, jv v, const jargs *a)
{
    jseq *q = copy(rt, v, SEQ_LIST), *keys = jseq_new(rt, SEQ_LIST, q->n);
    for (size_t i = 0; i < q->n; i++) {
        jseq_push(rt, keys, keys_of_sort(rt, q->at[i], a->pos[2], jarg_bool(a, 1, false)));
    }
    jseq_sort(rt, q, keys->at, jarg_bool(a, 0, false));
    return jv_of_seq(q);
}

static jv f_dictsort(jrt *rt, jv v, const jargs *a)
{
    if (v.type != J_DICT) {
        jrt_fail(rt, "'%s' object has no attribute 'items'", jv_type_name(v));
    }
    const jstr *by = jarg_str(rt, a, 1, "key");
    if (!jstr_is(by, "key") && !jstr_is(by, "value")) {
        jrt_fail(rt, "You can only sort by either \"key\" or \"value\"");
    }
    jseq *q = jseq_new(rt, SEQ_LIST, v.d->n), *keys = jseq_new(rt, SEQ_LIST, v.d->n);
    for (size_t i = 0; i < v.d->n; i++) {
        jv key = v.d->at[i].key, value = v.d->at[i].value;
        jseq_push(rt, q, jv_of_seq(jseq_pair(rt, key, value)));
        jseq_push(rt, keys, key_of(rt, jstr_is(by, "key") ? key : value, JV_ABSENT, jarg_bool(a, 0, false)));
    }
    jseq_sort(rt, q, keys->at, jarg_bool(a, 2, false));
    return jv_of_seq(q);
}

static jv extreme(jrt *rt, jv v, const jargs *a, bool max)
{
    const jseq *q = jv_iterate(rt, v);
    if (q->n == 0) {
        return jv_undef_hint(rt, "No aggregated item, sequence was empty.");
    }
    const jseq *keys = keys_of(rt, q, a->pos[1], jarg_bool(a, 0, false));
    size_t best = 0;
    for (size_t i = 1; i < q->n; i++) {
        int c = max ? jv_compare(rt, keys->at[i], keys->at[best], ">")
                    : jv_compare(rt, keys->at[i], keys->at[best], "<");
        if (c == (max ? 1 : -1)) {
            best = i;
        }
    }
    return q->at[best];
}

static jv f_max(jrt *rt, jv v, const jargs *a)
{
    return extreme(rt, v, a, true);
}

static jv f_min(jrt *rt, jv v, const jargs *a)
{
    return extreme(rt, v, a, false);
}

static jv f_unique(jrt *rt, jv v, const jargs *a)
{
    const jseq *q = jv_iterate(rt, v), *keys = keys_of(rt, q, a->pos[1], jarg_bool(a, 0, false));
    jseq *out = jseq_new(rt, SEQ_ITERATOR, 0);
    jdict *seen = jdict_new(rt);
    for (size_t i = 0; i < q->n; i++) {
        jv known;
        if (!jdict_get(rt, seen, keys->at[i], &known)) {
            jdict_put(rt, seen, keys->at[i], JV_NONE);
            jseq_push(rt, out, q->at[i]);
        }
    }
    return jv_of_seq(out);
}

static jv f_groupby(jrt *rt, jv v, const jargs *a)
{
    jseq *q = copy(rt, v, SEQ_LIST), *real = jseq_new(rt, SEQ_LIST, q->n),
         *keys = jseq_new(rt, SEQ_LIST, q->n);
    for (size_t i = 0; i < q->n; i++) {
        jv key = jv_get_path(rt, q->at[i], a->pos[0]);
        key = key.type == J_UNDEF && a->pos[1].type != J_ABSENT ? a->pos[1] : key;
        jseq_push(rt, real, key);
        jseq_push(rt, keys, key_of(rt, key, JV_ABSENT, jarg_bool(a, 2, false)));
    }
    jseq_sort(rt, q, keys->at, false);
    jseq_sort(rt, real, keys->at, false);
    jseq *sorted = copy(rt, jv_of_seq(keys), SEQ_LIST);
    jseq_sort(rt, sorted, keys->at, false);
    jseq *out = jseq_new(rt, SEQ_LIST, 0);
    for (size_t i = 0; i < q->n;) {
        jseq *members = jseq_new(rt, SEQ_LIST, 0);
        jseq *pair = jseq_pair(rt, real->at[i], jv_of_seq(members));
        pair->group = true;
        jseq_push(rt, out, jv_of_seq(pair));
        for (size_t first = i; i < q->n && jv_equal(rt, sorted->at[first], sorted->at[i]); i++) {
            jseq_push(rt, members, q->at[i]);
        }
    }
    return jv_of_seq(out);
}

/* -- choosing ---------------------------------------------------------------------------------------------- */

/* The arguments from pos[skip] on. */
static jargs rest(const jargs *a, size_t skip)
{
    jargs r = *a;
    r.pos = a->n_pos > skip ? a->pos + skip : NULL;
    r.n_pos = a->n_pos > skip ? a->n_pos - skip : 0;
    return r;
}

/* What is not true has no elements, even if it could not be iterated (none). */
static const jseq *iterate_true(jrt *rt, jv v)
{
    return jv_truth(v) ? jv_iterate(rt, v) : jseq_new(rt, SEQ_LIST, 0);
}

static jv choose(jrt *rt, jv v, const jargs *a, bool by_attribute, bool want)
{
    size_t name = by_attribute ? 1 : 0;
    if (a->n_pos < name) {
        jrt_fail(rt, "Missing parameter for attribute name");
    }
    jargs more = rest(a, name + 1);
    const jseq *q = iterate_true(rt, v);
    jseq *out = jseq_new(rt, SEQ_ITERATOR, 0);
    for (size_t i = 0; i < q->n; i++) {
        size_t temps = rt->n_temps;
        jrt_charge(rt, 1);
        jv item = by_attribute ? jv_get_path(rt, q->at[i], a->pos[0]) : q->at[i];
        bool holds = a->n_pos > name ? jinja_apply_test(rt, a->pos[name], item, &more) : jv_truth(item);
        jrt_release_temps(rt, temps);
        if (holds == want) {
            jseq_push(rt, out, q->at[i]);
        }
    }
    return jv_of_seq(out);
}

static jv f_select(jrt *rt, jv v, const jargs *a)
{
    return choose(rt, v, a, false, true);
}

static jv f_reject(jrt *rt, jv v, const jargs *a)
{
    return choose(rt, v, a, false, false);
}

static jv f_selectattr(jrt *rt, jv v, const jargs *a)
{
    return choose(rt, v, a, true, true);
}

static jv f_rejectattr(jrt *rt, jv v, const jargs *a)
{
    return choose(rt, v, a, true, false);
}

static jv map_attribute(jrt *rt, jv item, jv attribute, jv otherwise)
{
    jv v = jv_get_path(rt, item, attribute);
    return v.type == J_UNDEF && otherwise.type != J_ABSENT ? otherwise : v;
}

static jv f_map(jrt *rt, jv v, const jargs *a)
{
    jv attribute = JV_ABSENT, otherwise = JV_ABSENT;
    for (size_t k = 0; a->n_pos == 0 && k < a->n_named; k++) {
        if (jstr_is(a->names[k].s, "attribute")) {
            attribute = a->values[k];
        } else if (jstr_is(a->names[k].s, "default")) {
            otherwise = a->values[k];
        } else {
            jrt_fail(rt, "map got an unexpected keyword argument");
        }
    }
    if (a->n_pos == 0 && attribute.type == J_ABSENT) {
        jrt_fail(rt, "map requires a filter argument");
    }
    jargs more = rest(a, 1);
    const jseq *q = iterate_true(rt, v);
    jseq *out = jseq_new(rt, SEQ_ITERATOR, q->n);
    for (size_t i = 0; i < q->n; i++) {
        jrt_charge(rt, 1);
        jseq_push(rt, out,
                  a->n_pos ? jinja_apply_filter(rt, a->pos[0], q->at[i], &more)
                           : map_attribute(rt, q->at[i], attribute, otherwise));
    }
    return jv_of_seq(out);
}

/* -- the others -------------------------------------------------------------------------------------------- */

static jv f_length(jrt *rt, jv v, const jargs *a)
{
    return jv_int((int64_t)jv_len(rt, v));
}

static jv f_first(jrt *rt, jv v, const jargs *a)
{
    const jseq *q = jv_iterate(rt, v);
    return q->n ? q->at[0] : jv_undef_hint(rt, "No first item, sequence was empty.");
}

static jv f_last(jrt *rt, jv v, const jargs *a)
{
    if (jv_is_list(v, SEQ_ITERATOR)) {
        jrt_fail(rt, "'%s' object is not reversible", jv_type_name(v));
    }
    const jseq *q = jv_iterate(rt, v);
    return q->n ? q->at[q->n - 1] : jv_undef_hint(rt, "No last item, sequence was empty.");
}

static jv f_list(jrt *rt, jv v, const jargs *a)
{
    return jv_of_seq(copy(rt, v, SEQ_LIST));
}

static jv f_reverse(jrt *rt, jv v, const jargs *a)
{
    if (v.type == J_STR) {
        const jv all = JV_NONE;
        return jv_slice(rt, v, all, all, jv_int(-1));
    }
    const jseq *q = jv_iterate(rt, v);
    jseq *out = jseq_new(rt, jv_is_list(v, SEQ_ITERATOR) ? SEQ_LIST : SEQ_ITERATOR, q->n);
    for (size_t i = q->n; i > 0; i--) {
        jseq_push(rt, out, q->at[i - 1]);
    }
    return jv_of_seq(out);
}

static jv f_join(jrt *rt, jv v, const jargs *a)
{
    const jseq *q = jv_iterate(rt, v);
    jseq *texts = jseq_new(rt, SEQ_LIST, q->n);
    bool by_attribute = a->pos[1].type != J_ABSENT && a->pos[1].type != J_NONE;
    for (size_t i = 0; i < q->n; i++) {
        jrt_charge(rt, 1);
        jv item = by_attribute ? jv_get_path(rt, q->at[i], a->pos[1]) : q->at[i];
        jseq_push(rt, texts, jv_of_str(jv_str(rt, item)));
    }
    return jv_of_str(jtext_join(rt, jarg_str(rt, a, 0, ""), texts));
}

static jv f_items(jrt *rt, jv v, const jargs *a)
{
    jseq *out = jseq_new(rt, SEQ_ITERATOR, 0);
    if (v.type != J_DICT && v.type != J_UNDEF) {
        jrt_fail(rt, "Can only get item pairs from a mapping.");
    }
    for (size_t i = 0; v.type == J_DICT && i < v.d->n; i++) {
        jseq_push(rt, out, jv_of_seq(jseq_pair(rt, v.d->at[i].key, v.d->at[i].value)));
    }
    return jv_of_seq(out);
}

static jv f_sum(jrt *rt, jv v, const jargs *a)
{
    const jseq *q = jv_iterate(rt, v);
    bool by_attribute = a->pos[0].type != J_ABSENT && a->pos[0].type != J_NONE;
    jv sum = jarg(a, 1, jv_int(0));
    if (sum.type == J_STR) {
        jrt_fail(rt, "sum() can't sum strings [use ''.join(seq) instead]");
    }
    for (size_t i = 0; i < q->n; i++) {
        sum = jv_binary(rt, '+', sum, by_attribute ? jv_get_path(rt, q->at[i], a->pos[0]) : q->at[i]);
    }
    return sum;
}

static size_t positive_arg(jrt *rt, const jargs *a, const char *filter)
{
    int64_t n = jarg_int(rt, a, 0, 0);
    if (n <= 0) {
        jrt_fail(rt, "%s needs a positive number", filter);
    }
    return (size_t)n;
}

static jv f_batch(jrt *rt, jv v, const jargs *a)
{
    const jseq *q = jv_iterate(rt, v);
    size_t n = positive_arg(rt, a, "batch");
    jseq *out = jseq_new(rt, SEQ_ITERATOR, 0), *line = NULL;
    for (size_t i = 0; i < q->n; i++) {
        if (i % n == 0) {
            line = jseq_new(rt, SEQ_LIST, 0);
            jseq_push(rt, out, jv_of_seq(line));
        }
        jseq_push(rt, line, q->at[i]);
    }
    jv fill = jarg(a, 1, JV_NONE);
    while (line && fill.type != J_NONE && line->n < n) {
        jrt_charge(rt, 1);
        jseq_push(rt, line, fill);
    }
    return jv_of_seq(out);
}

static jv f_slice(jrt *rt, jv v, const jargs *a)
{
    const jseq *q = jv_iterate(rt, v);
    size_t n = positive_arg(rt, a, "slice"), each = q->n / n, extra = q->n % n, at = 0;
    jv fill = jarg(a, 1, JV_NONE);
    jseq *out = jseq_new(rt, SEQ_ITERATOR, 0);
    for (size_t i = 0; i < n; i++) {
        jrt_charge(rt, 1);
        jseq *part = jseq_new(rt, SEQ_LIST, 0);
        for (size_t end = at + each + (i < extra); at < end; at++) {
            jseq_push(rt, part, q->at[at]);
        }
        if (fill.type != J_NONE && i >= extra) {
            jseq_push(rt, part, fill);
        }
        jseq_push(rt, out, jv_of_seq(part));
    }
    return jv_of_seq(out);
}

const jbuiltin jinja_seq_filters[] = {
    {"batch", "linecount fill_with", 1, f_batch},
    {"count", "", 0, f_length},
    {"dictsort", "case_sensitive by reverse", 0, f_dictsort},
    {"first", "", 0, f_first},
    {"groupby", "attribute default case_sensitive", 1, f_groupby},
    {"items", "", 0, f_items},
    {"join", "d attribute", 0, f_join},
    {"last", "", 0, f_last},
    {"length", "", 0, f_length},
    {"list", "", 0, f_list},
    {"map", "*", 0, f_map},
    {"max", "case_sensitive attribute", 0, f_max},
    {"min", "case_sensitive attribute", 0, f_min},
    {"random", "*", 0, NULL}, /* a rendering depends on its input alone */
    {"reject", "*", 0, f_reject},
    {"rejectattr", "*", 0, f_rejectattr},
    {"reverse", "", 0, f_reverse},
    {"select", "*", 0, f_select},
    {"selectattr", "*", 0, f_selectattr},
    {"slice", "slices fill_with", 1, f_slice},
    {"sort", "reverse case_sensitive attribute", 0, f_sort},
    {"sum", "attribute start", 0, f_sum},
    {"unique", "case_sensitive attribute", 0, f_unique},
    {NULL, NULL, 0, NULL},
};
