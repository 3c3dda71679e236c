/*
 * Functions that every template may call. The table is at the end.
 */
#include <string.h>

#include "text/jinja_ops.h"
#include "text/jinja_print.h"
#include "text/jinja_run.h"

#define MAX_RANGE 100000 /* of Jinja2's sandbox */

static jv g_range(jrt *rt, jv self, const jargs *a)
{
    int64_t from = 0, to = jarg_int(rt, a, 0, 0), step = jarg_int(rt, a, 2, 1);
    if (a->pos[1].type != J_ABSENT) {
        from = to;
        to = jarg_int(rt, a, 1, 0);
    }
    uint64_t span = step > 0 ? (to > from ? (uint64_t)to - (uint64_t)from : 0)
                             : (from > to ? (uint64_t)from - (uint64_t)to : 0);
    uint64_t by = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    if (by == 0) {
        jrt_fail(rt, "range() arg 3 must not be zero");
    }
    uint64_t n = span / by + (span % by != 0);
    if (n > MAX_RANGE) {
        jrt_fail(rt, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", MAX_RANGE);
    }
    jseq *q = jseq_new(rt, SEQ_RANGE, (size_t)n);
    jrt_charge(rt, n);
    for (uint64_t i = 0; i < n; i++) {
        jseq_push(rt, q, jv_int(from + (int64_t)i * step));
    }
    return jv_of_seq(q);
}

jdict *jinja_make_dict(jrt *rt, const jargs *a)
{
    jdict *d = jdict_new(rt);
    if (a->n_pos > 1) {
        jrt_fail(rt, "dict expected at most 1 argument, got %zu", a->n_pos);
    }
    jv v = a->n_pos ? a->pos[0] : JV_NONE;
    if (v.type == J_DICT) {
        for (size_t i = 0; i < v.d->n; i++) {
            jdict_put(rt, d, v.d->at[i].key, v.d->at[i].value);
        }
    } else if (a->n_pos) {
        const jseq *pairs = jv_iterate(rt, v);
        for (size_t i = 0; i < pairs->n; i++) {
            const jseq *pair = jv_iterate(rt, pairs->at[i]);
            if (pair->n != 2) {
                jrt_fail(rt, "dictionary update sequence element #%zu has length %zu; 2 is required", i,
                         pair->n);
            }
            jdict_put(rt, d, pair->at[0], pair->at[1]);
        }
    }
    for (size_t k = 0; k < a->n_named; k++) {
        jdict_put(rt, d, a->names[k], a->values[k]);
    }
    return d;
}

static jv g_dict(jrt *rt, jv self, const jargs *a)
{
    return (jv){.type = J_DICT, .d = jinja_make_dict(rt, a)};
}

static jv g_namespace(jrt *rt, jv self, const jargs *a)
{
    return (jv){.type = J_NS, .d = jinja_make_dict(rt, a)};
}

static jv g_raise_exception(jrt *rt, jv self, const jargs *a)
{
    jrt_raise(rt, jv_str(rt, a->pos[0]));
}

static jv g_strftime_now(jrt *rt, jv self, const jargs *a)
{
    return jv_of_str(jformat_time(rt, jarg_str(rt, a, 0, ""), rt->now_s));
}

static jv new_cycler(jrt *rt, const jargs *a, bool joiner)
{
    jseq *items = jseq_new(rt, SEQ_TUPLE, a->n_pos);
    for (size_t i = 0; i < a->n_pos; i++) {
        jseq_push(rt, items, a->pos[i].type == J_ABSENT ? jv_of_str(jstr_of(rt, ", ")) : a->pos[i]);
    }
    if (items->n == 0) {
        jrt_fail(rt, "at least one item has to be provided");
    }
    jcycler *c = (jcycler *)jobj_new(rt, O_CYCLER, sizeof *c);
    c->items = items;
    items->h.refs++;
    c->joiner = joiner;
    return (jv){.type = J_CYCLER, .cycler = c};
}

static jv g_cycler(jrt *rt, jv self, const jargs *a)
{
    return new_cycler(rt, a, false);
}

static jv g_joiner(jrt *rt, jv self, const jargs *a)
{
    return new_cycler(rt, a, true);
}

static const jbuiltin globals[] = {
    {"cycler", "*", 0, g_cycler},
    {"dict", "*", 0, g_dict},
    {"joiner", "sep", 0, g_joiner},
    {"lipsum", "*", 0, NULL}, /* random text */
    {"namespace", "*", 0, g_namespace},
    {"raise_exception", "message", 1, g_raise_exception},
    {"range", "start stop step", 1, g_range},
    {"strftime_now", "format", 1, g_strftime_now},
};

const jbuiltin *jinja_global_find(const char *name, size_t len)
{
    for (size_t i = 0; i < sizeof globals / sizeof globals[0]; i++) {
        if (strlen(globals[i].name) == len && memcmp(globals[i].name, name, len) == 0) {
            return &globals[i];
        }
    }
    return NULL;
}
