/*
 * Tests (`is …`), and finding filters and tests by name.
 */
#include <string.h>

#include "base/utf8.h"
#include "text/jinja_ops.h"
#include "text/jinja_print.h"
#include "text/jinja_run.h"
#include "text/jinja_text.h"

static jv t_boolean(jrt *rt, jv v, const jargs *a)
{
    return jv_bool(v.type == J_BOOL);
}

static jv t_callable(jrt *rt, jv v, const jargs *a)
{
    return jv_bool(v.type == J_FUNC || (v.type == J_LOOP) || (v.type == J_CYCLER && v.cycler->joiner) ||
                   v.type == J_UNDEF);
}

static jv t_defined(jrt *rt, jv v, const jargs *a)
{
    return jv_bool(v.type != J_UNDEF);
}

static jv t_undefined(jrt *rt, jv v, const jargs *a)
{
    return jv_bool(v.type == J_UNDEF);
}

static jv remainder_is(jrt *rt, jv v, jv divisor, int64_t want)
{
    return jv_bool(jv_equal(rt, jv_binary(rt, '%', v, divisor), jv_int(want)));
}

static jv t_divisibleby(jrt *rt, jv v, const jargs *a)
{
    return remainder_is(rt, v, a->pos[0], 0);
}

static jv t_even(jrt *rt, jv v, const jargs *a)
{
    return remainder_is(rt, v, jv_int(2), 0);
}

static jv t_odd(jrt *rt, jv v, const jargs *a)
{
    return remainder_is(rt, v, jv_int(2), 1);
}

static jv t_eq(jrt *rt, jv v, const jargs *a)
{
    return jv_bool(jv_equal(rt, v, a->pos[0]));
}

static jv t_ne(jrt *rt, jv v, const jargs *a)
{
    return jv_bool(!jv_equal(rt, v, a->pos[0]));
}

static jv t_gt(jrt *rt, jv v, const jargs *a)
{
    return jv_bool(jv_relation(rt, '>', v, a->pos[0]));
}

static jv t_ge(jrt *rt, jv v, const jargs *a)
{
    return jv_bool(jv_relation(rt, OP_GE, v, a->pos[0]));
}

static jv t_lt(jrt *rt, jv v, const jargs *a)
{
    return jv_bool(jv_relation(rt, '<', v, a->pos[0]));
}

static jv t_le(jrt *rt, jv v, const jargs *a)
{
    return jv_bool(jv_relation(rt, OP_LE, v, a->pos[0]));
}

static jv t_in(jrt *rt, jv v, const jargs *a)
{
    return jv_bool(jv_relation(rt, OP_IN, v, a->pos[0]));
}

static jv t_escaped(jrt *rt, jv v, const jargs *a)
{
    return jv_bool(false);
}

static jv t_false(jrt *rt, jv v, const jargs *a)
{
    return jv_bool(v.type == J_BOOL && !v.b);
}

static jv t_true(jrt *rt, jv v, const jargs *a)
{
    return jv_bool(v.type == J_BOOL && v.b);
}

static jv t_none(jrt *rt, jv v, const jargs *a)
{
    return jv_bool(v.type == J_NONE);
}

static jv t_filter(jrt *rt, jv v, const jargs *a)
{
    return jv_bool(v.type == J_STR && jinja_filter_find(v.s->s, v.s->len));
}

static jv t_test(jrt *rt, jv v, const jargs *a)
{
    return jv_bool(v.type == J_STR && jinja_test_find(v.s->s, v.s->len));
}

static jv t_float(jrt *rt, jv v, const jargs *a)
{
    return jv_bool(v.type == J_FLOAT);
}

static jv t_integer(jrt *rt, jv v, const jargs *a)
{
    return jv_bool(v.type == J_INT);
}

static jv t_number(jrt *rt, jv v, const jargs *a)
{
    return jv_bool(jv_is_number(v));
}

static jv t_iterable(jrt *rt, jv v, const jargs *a)
{
    return jv_bool(jv_can_iterate(v));
}

static jv t_mapping(jrt *rt, jv v, const jargs *a)
{
    return jv_bool(v.type == J_DICT);
}

static jv t_sequence(jrt *rt, jv v, const jargs *a)
{
    return jv_bool(v.type == J_STR || v.type == J_DICT || v.type == J_UNDEF ||
                   (v.type == J_SEQ && v.q->kind <= SEQ_RANGE));
}

static jv t_string(jrt *rt, jv v, const jargs *a)
{
    return jv_bool(v.type == J_STR);
}

/* Every cased character has this case, and there is one. */
static jv all_case(jrt *rt, jv v, bool upper)
{
    const jstr *s = jv_str(rt, v);
    bool any = false;
    for (size_t at = 0; at < s->len;) {
        uint32_t cp;
        at += utf8_decode(s->s + at, s->len - at, &cp, NULL);
        if (unicode_is_cased(cp)) {
            any = true;
            if (upper ? !unicode_is_upper(cp) : !unicode_is_lower(cp)) {
                return jv_bool(false);
            }
        }
    }
    return jv_bool(any);
}

static jv t_lower(jrt *rt, jv v, const jargs *a)
{
    return all_case(rt, v, false);
}

static jv t_upper(jrt *rt, jv v, const jargs *a)
{
    return all_case(rt, v, true);
}

/* Python's `is`: the same object; small numbers are. */
static jv t_sameas(jrt *rt, jv v, const jargs *a)
{
    jv w = a->pos[0];
    if (v.type != w.type) {
        return jv_bool(false);
    }
    if (v.type <= J_FLOAT) {
        return jv_bool(jv_equal(rt, v, w));
    }
    return jv_bool(v.o == w.o || (v.type == J_STR && jstr_equal(v.s, w.s)));
}

static const jbuiltin tests[] = {
    {"!=", "other", 1, t_ne},
    {"<", "other", 1, t_lt},
    {"<=", "other", 1, t_le},
    {"==", "other", 1, t_eq},
    {">", "other", 1, t_gt},
    {">=", "other", 1, t_ge},
    {"boolean", "", 0, t_boolean},
    {"callable", "", 0, t_callable},
    {"defined", "", 0, t_defined},
    {"divisibleby", "num", 1, t_divisibleby},
    {"eq", "other", 1, t_eq},
    {"equalto", "other", 1, t_eq},
    {"escaped", "", 0, t_escaped},
    {"even", "", 0, t_even},
    {"false", "", 0, t_false},
    {"filter", "", 0, t_filter},
    {"float", "", 0, t_float},
    {"ge", "other", 1, t_ge},
    {"greaterthan", "other", 1, t_gt},
    {"gt", "other", 1, t_gt},
    {"in", "seq", 1, t_in},
    {"integer", "", 0, t_integer},
    {"iterable", "", 0, t_iterable},
    {"le", "other", 1, t_le},
    {"lessthan", "other", 1, t_lt},
    {"lower", "", 0, t_lower},
    {"lt", "other", 1, t_lt},
    {"mapping", "", 0, t_mapping},
    {"ne", "other", 1, t_ne},
    {"none", "", 0, t_none},
    {"number", "", 0, t_number},
    {"odd", "", 0, t_odd},
    {"sameas", "other", 1, t_sameas},
    {"sequence", "", 0, t_sequence},
    {"string", "", 0, t_string},
    {"test", "", 0, t_test},
    {"true", "", 0, t_true},
    {"undefined", "", 0, t_undefined},
    {"upper", "", 0, t_upper},
    {NULL, NULL, 0, NULL},
};

static const jbuiltin *find(const jbuiltin *rows, const char *name, size_t len)
{
    for (; rows->name; rows++) {
        if (strlen(rows->name) == len && memcmp(rows->name, name, len) == 0) {
            return rows;
        }
    }
    return NULL;
}

const jbuiltin *jinja_test_find(const char *name, size_t len)
{
    return find(tests, name, len);
}

const jbuiltin *jinja_filter_find(const char *name, size_t len)
{
    const jbuiltin *b = find(jinja_text_filters, name, len);
    return b ? b : find(jinja_seq_filters, name, len);
}
