/*
 * Methods of strings, dicts, lists, loops and cyclers. The tables are at the end.
 */
#include <string.h>

#include "base/utf8.h"
#include "text/jinja_ops.h"
#include "text/jinja_print.h"
#include "text/jinja_run.h"
#include "text/jinja_text.h"

/* The argument must be a string, as Python wants it. NULL: absent or None. */
static jstr *text_arg(jrt *rt, const jargs *a, size_t i)
{
    jv v = a->pos[i];
    if (v.type == J_ABSENT || v.type == J_NONE) {
        return NULL;
    }
    if (v.type != J_STR) {
        jrt_fail(rt, "must be str, not %s", jv_type_name(v));
    }
    return v.s;
}

static jstr *need_text(jrt *rt, const jargs *a, size_t i)
{
    jstr *s = text_arg(rt, a, i);
    if (!s) {
        jrt_fail(rt, "must be str, not NoneType");
    }
    return s;
}

/* -- strings: stripping, splitting, joining ---------------------------------------------------------------- */

static jv s_strip(jrt *rt, jv v, const jargs *a)
{
    return jv_of_str(jtext_strip(rt, v.s, text_arg(rt, a, 0), true, true));
}

static jv s_lstrip(jrt *rt, jv v, const jargs *a)
{
    return jv_of_str(jtext_strip(rt, v.s, text_arg(rt, a, 0), true, false));
}

static jv s_rstrip(jrt *rt, jv v, const jargs *a)
{
    return jv_of_str(jtext_strip(rt, v.s, text_arg(rt, a, 0), false, true));
}

static jv s_split(jrt *rt, jv v, const jargs *a)
{
    return jv_of_seq(jtext_split(rt, v.s, text_arg(rt, a, 0), jarg_int(rt, a, 1, -1), false));
}

static jv s_rsplit(jrt *rt, jv v, const jargs *a)
{
    return jv_of_seq(jtext_split(rt, v.s, text_arg(rt, a, 0), jarg_int(rt, a, 1, -1), true));
}

static jv s_splitlines(jrt *rt, jv v, const jargs *a)
{
    return jv_of_seq(jtext_split_lines(rt, v.s, jarg_bool(a, 0, false)));
}

static jv partition(jrt *rt, jstr *s, const jargs *a, bool last)
{
    jstr *sep = need_text(rt, a, 0);
    if (sep->len == 0) {
        jrt_fail(rt, "empty separator");
    }
    size_t at = jtext_find(rt, s, sep, 0, s->len, last);
    bool found = at != SIZE_MAX;
    size_t cut[4] = {0, found ? at : last ? 0 : s->len, found ? at + sep->len : last ? 0 : s->len, s->len};
    jseq *q = jseq_new(rt, SEQ_TUPLE, 3);
    for (size_t i = 0; i < 3; i++) {
        jseq_push(rt, q, jv_of_str(jstr_slice(rt, s, cut[i], cut[i + 1])));
    }
    return jv_of_seq(q);
}

static jv s_partition(jrt *rt, jv v, const jargs *a)
{
    return partition(rt, v.s, a, false);
}

static jv s_rpartition(jrt *rt, jv v, const jargs *a)
{
    return partition(rt, v.s, a, true);
}

static jv s_join(jrt *rt, jv v, const jargs *a)
{
    const jseq *q = jv_iterate(rt, a->pos[0]);
    for (size_t i = 0; i < q->n; i++) {
        if (q->at[i].type != J_STR) {
            jrt_fail(rt, "sequence item %zu: expected str instance, %s found", i, jv_type_name(q->at[i]));
        }
    }
    return jv_of_str(jtext_join(rt, v.s, q));
}

static jv s_replace(jrt *rt, jv v, const jargs *a)
{
    const jstr *from = need_text(rt, a, 0), *to = need_text(rt, a, 1);
    return jv_of_str(jtext_replace(rt, v.s, from, to, jarg_int(rt, a, 2, -1)));
}

static jv s_removeprefix(jrt *rt, jv v, const jargs *a)
{
    const jstr *p = need_text(rt, a, 0);
    bool has = v.s->len >= p->len && memcmp(v.s->s, p->s, p->len) == 0;
    return jv_of_str(has ? jstr_slice(rt, v.s, p->len, v.s->len) : v.s);
}

static jv s_removesuffix(jrt *rt, jv v, const jargs *a)
{
    const jstr *p = need_text(rt, a, 0);
    bool has = v.s->len >= p->len && memcmp(v.s->s + v.s->len - p->len, p->s, p->len) == 0;
    return jv_of_str(has ? jstr_slice(rt, v.s, 0, v.s->len - p->len) : v.s);
}

/* -- strings: searching ------------------------------------------------------------------------------------ */

/* The bytes that arguments `i` and `i + 1` (characters, from and to) leave; *from > *to: nothing, not even "". */
static void range_args(jrt *rt, jstr *s, const jargs *a, size_t i, size_t *from, size_t *to)
{
    int64_t n = (int64_t)jstr_chars(s), low = jarg_int(rt, a, i, 0), high = jarg_int(rt, a, i + 1, n);
    low += low < 0 ? n : 0;
    high += high < 0 ? n : 0;
    low = low < 0 ? 0 : low;
    high = high < 0 ? 0 : high > n ? n : high;
    *to = jstr_offset(rt, s, (size_t)high);
    *from = low > n ? s->len + 1 : jstr_offset(rt, s, (size_t)low);
}

static jv affix(jrt *rt, jstr *s, const jargs *a, bool suffix)
{
    jseq *single = jseq_new(rt, SEQ_TUPLE, 1);
    jseq_push(rt, single, a->pos[0]);
    const jseq *all = jv_is_list(a->pos[0], SEQ_TUPLE) ? a->pos[0].q : single;
    size_t from, to;
    range_args(rt, s, a, 1, &from, &to);
    for (size_t i = 0; i < all->n; i++) {
        if (all->at[i].type != J_STR) {
            jrt_fail(rt, "%s first arg must be str or a tuple of str, not %s",
                     suffix ? "endswith" : "startswith", jv_type_name(all->at[i]));
        }
        const jstr *p = all->at[i].s;
        if (from <= to && p->len <= to - from &&
            memcmp(s->s + (suffix ? to - p->len : from), p->s, p->len) == 0) {
            return jv_bool(true);
        }
    }
    return jv_bool(false);
}

static jv s_startswith(jrt *rt, jv v, const jargs *a)
{
    return affix(rt, v.s, a, false);
}

static jv s_endswith(jrt *rt, jv v, const jargs *a)
{
    return affix(rt, v.s, a, true);
}

static jv find(jrt *rt, jstr *s, const jargs *a, bool last, bool must)
{
    size_t from, to;
    const jstr *what = need_text(rt, a, 0);
    range_args(rt, s, a, 1, &from, &to);
    size_t at = jtext_find(rt, s, what, from, to, last);
    if (at == SIZE_MAX && must) {
        jrt_fail(rt, "substring not found");
    }
    return jv_int(at == SIZE_MAX ? -1 : (int64_t)unicode_count(s->s, at));
}

static jv s_find(jrt *rt, jv v, const jargs *a)
{
    return find(rt, v.s, a, false, false);
}

static jv s_rfind(jrt *rt, jv v, const jargs *a)
{
    return find(rt, v.s, a, true, false);
}

static jv s_index(jrt *rt, jv v, const jargs *a)
{
    return find(rt, v.s, a, false, true);
}

static jv s_rindex(jrt *rt, jv v, const jargs *a)
{
    return find(rt, v.s, a, true, true);
}

static jv s_count(jrt *rt, jv v, const jargs *a)
{
    const jstr *what = need_text(rt, a, 0);
    size_t from, to;
    int64_t n = 0;
    range_args(rt, v.s, a, 1, &from, &to);
    if (from > to) {
        return jv_int(0);
    }
    if (what->len == 0) {
        return jv_int((int64_t)unicode_count(v.s->s + from, to - from) + 1);
    }
    jrt_charge(rt, (to - from) / 64);
    for (const char *p; (p = memmem(v.s->s + from, to - from, what->s, what->len)) != NULL; n++) {
        from = (size_t)(p - v.s->s) + what->len;
    }
    return jv_int(n);
}

/* -- strings: case, padding, kinds ------------------------------------------------------------------------- */

static jv s_upper(jrt *rt, jv v, const jargs *a)
{
    return jv_of_str(jtext_map(rt, v.s, UNICODE_UPPER));
}

static jv s_lower(jrt *rt, jv v, const jargs *a)
{
    return jv_of_str(jtext_map(rt, v.s, UNICODE_LOWER));
}

static jv s_capitalize(jrt *rt, jv v, const jargs *a)
{
    return jv_of_str(jtext_capitalize(rt, v.s));
}

/* Each character in the case that `how` chooses from it and from whether a cased one stands before it. */
static jv map_each(jrt *rt, const jstr *s, unicode_case (*how)(uint32_t cp, bool behind_cased))
{
    jbuild b;
    jbuild_begin(rt, &b);
    bool behind = false;
    jrt_charge(rt, s->len / 16);
    for (size_t at = 0; at < s->len;) {
        uint32_t cp, out[UNICODE_MAP_MAX];
        size_t n = utf8_decode(s->s + at, s->len - at, &cp, NULL), k = unicode_map(cp, how(cp, behind), out);
        for (size_t i = 0; i < k; i++) {
            jbuild_char(rt, &b, out[i], s->m[at]);
        }
        behind = unicode_is_cased(cp);
        at += n;
    }
    return jv_of_str(jbuild_end(rt, &b));
}

static unicode_case titled(uint32_t cp, bool behind_cased)
{
    return behind_cased ? UNICODE_LOWER : UNICODE_TITLE;
}

static unicode_case swapped(uint32_t cp, bool behind_cased)
{
    return unicode_is_upper(cp) ? UNICODE_LOWER : UNICODE_UPPER;
}

static jv s_title(jrt *rt, jv v, const jargs *a)
{
    return map_each(rt, v.s, titled);
}

static jv s_swapcase(jrt *rt, jv v, const jargs *a)
{
    return map_each(rt, v.s, swapped);
}

static jv pad(jrt *rt, jv v, const jargs *a, jtext_align align)
{
    jstr *fill = text_arg(rt, a, 1);
    fill = fill ? fill : jstr_of(rt, " ");
    if (jstr_chars(fill) != 1) {
        jrt_fail(rt, "the fill character must be exactly one character long");
    }
    return jv_of_str(jtext_pad(rt, v.s, jarg_int(rt, a, 0, 0), align, fill));
}

static jv s_ljust(jrt *rt, jv v, const jargs *a)
{
    return pad(rt, v, a, JTEXT_LEFT);
}

static jv s_rjust(jrt *rt, jv v, const jargs *a)
{
    return pad(rt, v, a, JTEXT_RIGHT);
}

static jv s_center(jrt *rt, jv v, const jargs *a)
{
    return pad(rt, v, a, JTEXT_CENTER);
}

static jv s_zfill(jrt *rt, jv v, const jargs *a)
{
    size_t sign = v.s->len && (v.s->s[0] == '-' || v.s->s[0] == '+') ? 1 : 0;
    int64_t width = jarg_int(rt, a, 0, 0), chars = (int64_t)jstr_chars(v.s);
    jbuild b;
    jbuild_begin(rt, &b);
    jbuild_slice(rt, &b, v.s, 0, sign);
    jbuild_repeat(rt, &b, "0", 1, width > chars ? (size_t)(width - chars) : 0, 0);
    jbuild_slice(rt, &b, v.s, sign, v.s->len);
    return jv_of_str(jbuild_end(rt, &b));
}

static bool is_alnum(uint32_t cp)
{
    return unicode_is_alpha(cp) || unicode_is_numeric(cp) || unicode_is_digit(cp);
}

static bool is_ascii(uint32_t cp)
{
    return cp < 0x80;
}

/* All characters are of a kind; for "" what `empty` says. */
static jv all_are(jrt *rt, const jstr *s, bool (*kind)(uint32_t cp), bool empty)
{
    jrt_charge(rt, s->len / 16);
    for (size_t at = 0; at < s->len;) {
        uint32_t cp;
        at += utf8_decode(s->s + at, s->len - at, &cp, NULL);
        if (!kind(cp)) {
            return jv_bool(false);
        }
    }
    return jv_bool(s->len ? true : empty);
}

static jv s_isalpha(jrt *rt, jv v, const jargs *a)
{
    return all_are(rt, v.s, unicode_is_alpha, false);
}

static jv s_isalnum(jrt *rt, jv v, const jargs *a)
{
    return all_are(rt, v.s, is_alnum, false);
}

static jv s_isdigit(jrt *rt, jv v, const jargs *a)
{
    return all_are(rt, v.s, unicode_is_digit, false);
}

static jv s_isdecimal(jrt *rt, jv v, const jargs *a)
{
    return all_are(rt, v.s, unicode_is_decimal, false);
}

static jv s_isnumeric(jrt *rt, jv v, const jargs *a)
{
    return all_are(rt, v.s, unicode_is_numeric, false);
}

static jv s_isspace(jrt *rt, jv v, const jargs *a)
{
    return all_are(rt, v.s, unicode_is_space, false);
}

static jv s_isascii(jrt *rt, jv v, const jargs *a)
{
    return all_are(rt, v.s, is_ascii, true);
}

static jv s_isprintable(jrt *rt, jv v, const jargs *a)
{
    return all_are(rt, v.s, unicode_is_printable, true);
}

static jv s_isupper(jrt *rt, jv v, const jargs *a)
{
    return jinja_call_builtin(rt, jinja_test_find("upper", 5), "test", v, &(jargs){0});
}

static jv s_islower(jrt *rt, jv v, const jargs *a)
{
    return jinja_call_builtin(rt, jinja_test_find("lower", 5), "test", v, &(jargs){0});
}

static jv s_format(jrt *rt, jv v, const jargs *a)
{
    return jv_of_str(jformat_braces(rt, v.s, a));
}

/* -- dicts and lists --------------------------------------------------------------------------------------- */

static jv d_get(jrt *rt, jv v, const jargs *a)
{
    jv out;
    return jdict_get(rt, v.d, a->pos[0], &out) ? out : jarg(a, 1, JV_NONE);
}

static jv d_copy(jrt *rt, jv v, const jargs *a)
{
    jdict *d = jdict_new(rt);
    for (size_t i = 0; i < v.d->n; i++) {
        jdict_put(rt, d, v.d->at[i].key, v.d->at[i].value);
    }
    return (jv){.type = J_DICT, .plain = v.plain, .d = d};
}

/* Into d, as dict.update does: a mapping or pairs, then keyword arguments. */
static jv d_update(jrt *rt, jv v, const jargs *a)
{
    const jdict *more = jinja_make_dict(rt, a);
    for (size_t i = 0; i < more->n; i++) {
        jdict_put(rt, v.d, more->at[i].key, more->at[i].value);
    }
    return JV_NONE;
}

static jv d_setdefault(jrt *rt, jv v, const jargs *a)
{
    jv out;
    if (!jdict_get(rt, v.d, a->pos[0], &out)) {
        out = jarg(a, 1, JV_NONE);
        jdict_put(rt, v.d, a->pos[0], out);
    }
    return out;
}

static jv d_pop(jrt *rt, jv v, const jargs *a)
{
    jv out;
    if (!jdict_get(rt, v.d, a->pos[0], &out)) {
        if (a->pos[1].type == J_ABSENT) {
            const jstr *key = jv_str(rt, a->pos[0]);
            jrt_fail(rt, "the key '%.*s' is not there", key->len < 60 ? (int)key->len : 60, key->s);
        }
        return a->pos[1];
    }
    jrt_pin(rt, out);
    jdict_remove(rt, v.d, a->pos[0]);
    return out;
}

static jv view(jrt *rt, const jdict *d, jseq_kind kind)
{
    jseq *q = jseq_new(rt, kind, d->n);
    jrt_charge(rt, d->n);
    for (size_t i = 0; i < d->n; i++) {
        const jentry *e = &d->at[i];
        jseq_push(rt, q,
                  kind == SEQ_KEYS     ? e->key
                  : kind == SEQ_VALUES ? e->value
                                       : jv_of_seq(jseq_pair(rt, e->key, e->value)));
    }
    return jv_of_seq(q);
}

static jv d_keys(jrt *rt, jv v, const jargs *a)
{
    return view(rt, v.d, SEQ_KEYS);
}

static jv d_values(jrt *rt, jv v, const jargs *a)
{
    return view(rt, v.d, SEQ_VALUES);
}

static jv d_items(jrt *rt, jv v, const jargs *a)
{
    return view(rt, v.d, SEQ_ITEMS);
}

static jv l_index(jrt *rt, jv v, const jargs *a)
{
    for (size_t i = 0; i < v.q->n; i++) {
        if (jv_equal(rt, v.q->at[i], a->pos[0])) {
            return jv_int((int64_t)i);
        }
    }
    jrt_fail(rt, "the value is not in the list");
}

static jv l_count(jrt *rt, jv v, const jargs *a)
{
    int64_t n = 0;
    for (size_t i = 0; i < v.q->n; i++) {
        n += jv_equal(rt, v.q->at[i], a->pos[0]);
    }
    return jv_int(n);
}

static jv l_append(jrt *rt, jv v, const jargs *a)
{
    jseq_push(rt, v.q, a->pos[0]);
    return JV_NONE;
}

static jv l_extend(jrt *rt, jv v, const jargs *a)
{
    const jseq *more = jv_iterate(rt, a->pos[0]);
    for (size_t i = 0, n = more->n; i < n; i++) {
        jseq_push(rt, v.q, more->at[i]);
    }
    return JV_NONE;
}

static jv l_insert(jrt *rt, jv v, const jargs *a)
{
    int64_t n = (int64_t)v.q->n, i = jarg_int(rt, a, 0, 0);
    i += i < 0 ? n : 0;
    jseq_insert(rt, v.q, i < 0 ? 0 : i > n ? (size_t)n : (size_t)i, a->pos[1]);
    return JV_NONE;
}

static jv l_pop(jrt *rt, jv v, const jargs *a)
{
    int64_t n = (int64_t)v.q->n, i = jarg_int(rt, a, 0, -1);
    i += i < 0 ? n : 0;
    if (i < 0 || i >= n) {
        jrt_fail(rt, n ? "pop index out of range" : "pop from empty list");
    }
    jv out = jrt_pin(rt, v.q->at[i]);
    jseq_remove(rt, v.q, (size_t)i);
    return out;
}

static jv l_remove(jrt *rt, jv v, const jargs *a)
{
    for (size_t i = 0; i < v.q->n; i++) {
        if (jv_equal(rt, v.q->at[i], a->pos[0])) {
            jseq_remove(rt, v.q, i);
            return JV_NONE;
        }
    }
    jrt_fail(rt, "list.remove(x): x not in list");
}

static jv l_reverse(jrt *rt, jv v, const jargs *a)
{
    jrt_charge(rt, v.q->n);
    for (size_t i = 0; i < v.q->n / 2; i++) {
        jv t = v.q->at[i];
        v.q->at[i] = v.q->at[v.q->n - 1 - i];
        v.q->at[v.q->n - 1 - i] = t;
    }
    return JV_NONE;
}

static jv l_copy(jrt *rt, jv v, const jargs *a)
{
    const jv all = JV_NONE;
    return jv_slice(rt, v, all, all, all);
}

/* -- loops and cyclers ------------------------------------------------------------------------------------- */

static jv loop_cycle(jrt *rt, jv v, const jargs *a)
{
    if (a->n_pos == 0) {
        jrt_fail(rt, "no items for cycling given");
    }
    return a->pos[v.loop->i % a->n_pos];
}

static jv loop_changed(jrt *rt, jv v, const jargs *a)
{
    jseq *now = jseq_new(rt, SEQ_TUPLE, a->n_pos);
    for (size_t i = 0; i < a->n_pos; i++) {
        jseq_push(rt, now, a->pos[i]);
    }
    jv before = v.loop->changed;
    if (before.type != J_ABSENT && jv_equal(rt, before, jv_of_seq(now))) {
        return jv_bool(false);
    }
    v.loop->changed = jv_keep(jv_of_seq(now));
    jv_drop(rt, before);
    return jv_bool(true);
}

static jv cycler_next(jrt *rt, jv v, const jargs *a)
{
    jv now = v.cycler->items->at[v.cycler->i];
    v.cycler->i = (v.cycler->i + 1) % v.cycler->items->n;
    return now;
}

static jv cycler_reset(jrt *rt, jv v, const jargs *a)
{
    v.cycler->i = 0;
    return JV_NONE;
}

/* -- tables ------------------------------------------------------------------------------------------------ */

static const jbuiltin str_methods[] = {
    {"capitalize", "", 0, s_capitalize},
    {"casefold", "", 0, s_lower},
    {"center", "width fillchar", 1, s_center},
    {"count", "sub start end", 1, s_count},
    {"endswith", "suffix start end", 1, s_endswith},
    {"find", "sub start end", 1, s_find},
    {"format", "*", 0, s_format},
    {"index", "sub start end", 1, s_index},
    {"isalnum", "", 0, s_isalnum},
    {"isalpha", "", 0, s_isalpha},
    {"isascii", "", 0, s_isascii},
    {"isdecimal", "", 0, s_isdecimal},
    {"isdigit", "", 0, s_isdigit},
    {"islower", "", 0, s_islower},
    {"isnumeric", "", 0, s_isnumeric},
    {"isprintable", "", 0, s_isprintable},
    {"isspace", "", 0, s_isspace},
    {"isupper", "", 0, s_isupper},
    {"join", "iterable", 1, s_join},
    {"ljust", "width fillchar", 1, s_ljust},
    {"lower", "", 0, s_lower},
    {"lstrip", "chars", 0, s_lstrip},
    {"partition", "sep", 1, s_partition},
    {"removeprefix", "prefix", 1, s_removeprefix},
    {"removesuffix", "suffix", 1, s_removesuffix},
    {"replace", "old new count", 2, s_replace},
    {"rfind", "sub start end", 1, s_rfind},
    {"rindex", "sub start end", 1, s_rindex},
    {"rjust", "width fillchar", 1, s_rjust},
    {"rpartition", "sep", 1, s_rpartition},
    {"rsplit", "sep maxsplit", 0, s_rsplit},
    {"rstrip", "chars", 0, s_rstrip},
    {"split", "sep maxsplit", 0, s_split},
    {"splitlines", "keepends", 0, s_splitlines},
    {"startswith", "prefix start end", 1, s_startswith},
    {"strip", "chars", 0, s_strip},
    {"swapcase", "", 0, s_swapcase},
    {"title", "", 0, s_title},
    {"upper", "", 0, s_upper},
    {"zfill", "width", 1, s_zfill},
    {NULL, NULL, 0, NULL},
};

static const jbuiltin dict_methods[] = {
    {"copy", "", 0, d_copy},
    {"get", "key default", 1, d_get},
    {"items", "", 0, d_items},
    {"keys", "", 0, d_keys},
    {"pop", "key default", 1, d_pop},
    {"setdefault", "key default", 1, d_setdefault},
    {"update", "*", 0, d_update},
    {"values", "", 0, d_values},
    {NULL, NULL, 0, NULL},
};

static const jbuiltin list_methods[] = {
    {"append", "object", 1, l_append}, {"copy", "", 0, l_copy},
    {"count", "value", 1, l_count},    {"extend", "iterable", 1, l_extend},
    {"index", "value", 1, l_index},    {"insert", "index object", 2, l_insert},
    {"pop", "index", 0, l_pop},        {"remove", "value", 1, l_remove},
    {"reverse", "", 0, l_reverse},     {NULL, NULL, 0, NULL},
};

static const jbuiltin tuple_methods[] = {
    {"count", "value", 1, l_count},
    {"index", "value", 1, l_index},
    {NULL, NULL, 0, NULL},
};

static const jbuiltin loop_methods[] = {
    {"changed", "*", 0, loop_changed},
    {"cycle", "*", 0, loop_cycle},
    {NULL, NULL, 0, NULL},
};

static const jbuiltin cycler_methods[] = {
    {"next", "", 0, cycler_next},
    {"reset", "", 0, cycler_reset},
    {NULL, NULL, 0, NULL},
};

const jbuiltin *jinja_method_find(jv self, const jstr *name)
{
    const jbuiltin *b = NULL;
    switch ((jtype)self.type) {
    case J_STR:
        b = str_methods;
        break;
    case J_DICT:
        b = dict_methods;
        break;
    case J_SEQ:
        b = self.q->kind == SEQ_LIST ? list_methods : self.q->kind <= SEQ_RANGE ? tuple_methods : NULL;
        break;
    case J_LOOP:
        b = loop_methods;
        break;
    case J_CYCLER:
        b = self.cycler->joiner ? NULL : cycler_methods;
        break;
    default:
        break;
    }
    for (; b && b->name; b++) {
        if (jstr_is(name, b->name)) {
            return b;
        }
    }
    return NULL;
}
