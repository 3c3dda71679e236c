/*
 * Filters of texts, numbers and single values. The table is at the end.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/jinja_ops.h"
#include "text/jinja_print.h"
#include "text/jinja_run.h"
#include "text/jinja_text.h"

/* -- texts ------------------------------------------------------------------------------------------------- */

static jv f_upper(jrt *rt, jv v, const jargs *a)
{
    return jv_of_str(jtext_map(rt, jv_str(rt, v), UNICODE_UPPER));
}

static jv f_lower(jrt *rt, jv v, const jargs *a)
{
    return jv_of_str(jtext_map(rt, jv_str(rt, v), UNICODE_LOWER));
}

static jv f_capitalize(jrt *rt, jv v, const jargs *a)
{
    return jv_of_str(jtext_capitalize(rt, jv_str(rt, v)));
}

/* A word begins behind blanks, '-' and opening brackets. */
static jv f_title(jrt *rt, jv v, const jargs *a)
{
    jstr *s = jv_str(rt, v);
    jbuild b;
    jbuild_begin(rt, &b);
    bool begins = true;
    jrt_charge(rt, s->len / 16);
    for (size_t at = 0; at < s->len;) {
        uint32_t cp, out[UNICODE_MAP_MAX];
        size_t n = utf8_decode(s->s + at, s->len - at, &cp, NULL);
        size_t k = unicode_map(cp, begins ? UNICODE_UPPER : UNICODE_LOWER, out);
        for (size_t i = 0; i < k; i++) {
            jbuild_char(rt, &b, out[i], s->m[at]);
        }
        begins = unicode_is_space(cp) || cp == '-' || cp == '(' || cp == '{' || cp == '[' || cp == '<';
        at += n;
    }
    return jv_of_str(jbuild_end(rt, &b));
}

static jv f_trim(jrt *rt, jv v, const jargs *a)
{
    const jstr *chars = a->pos[0].type == J_NONE ? NULL : jarg_str(rt, a, 0, NULL);
    return jv_of_str(jtext_strip(rt, jv_str(rt, v), chars, true, true));
}

static jv f_replace(jrt *rt, jv v, const jargs *a)
{
    const jstr *from = jarg_str(rt, a, 0, ""), *to = jarg_str(rt, a, 1, "");
    return jv_of_str(jtext_replace(rt, jv_str(rt, v), from, to, jarg_int(rt, a, 2, -1)));
}

static jv f_center(jrt *rt, jv v, const jargs *a)
{
    return jv_of_str(jtext_pad(rt, jv_str(rt, v), jarg_int(rt, a, 0, 80), JTEXT_CENTER, jstr_of(rt, " ")));
}

static jv f_string(jrt *rt, jv v, const jargs *a)
{
    return jv_of_str(jv_str(rt, v));
}

static jv f_escape(jrt *rt, jv v, const jargs *a)
{
    static const struct {
        char c;
        const char *text;
    } rows[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&#34;"}, {'\'', "&#39;"}};
    const jstr *s = jv_str(rt, v);
    jbuild b;
    jbuild_begin(rt, &b);
    for (size_t i = 0; i < s->len; i++) {
        const char *text = NULL;
        for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
            text = s->s[i] == rows[k].c ? rows[k].text : text;
        }
        if (text) {
            jbuild_add(rt, &b, text, strlen(text), s->m[i]);
        } else {
            jbuild_slice(rt, &b, s, i, i + 1);
        }
    }
    return jv_of_str(jbuild_end(rt, &b));
}

static jv f_indent(jrt *rt, jv v, const jargs *a)
{
    jstr *s = jv_binary(rt, '+', v, jv_of_str(jstr_of(rt, "\n"))).s; /* fails for what is no string */
    bool first = jarg_bool(a, 1, false), blank = jarg_bool(a, 2, false);
    jbuild by, b;
    jbuild_begin(rt, &by);
    if (a->pos[0].type == J_STR) {
        jbuild_str(rt, &by, a->pos[0].s);
    } else {
        int64_t width = jarg_int(rt, a, 0, 4);
        jbuild_repeat(rt, &by, " ", 1, width > 0 ? (size_t)width : 0, 0);
    }
    const jstr *indention = jbuild_end(rt, &by);
    const jseq *lines = jtext_split_lines(rt, s, false);
    jbuild_begin(rt, &b);
    for (size_t i = 0; i < lines->n; i++) {
        if (i) {
            jbuild_text(rt, &b, "\n");
        }
        if (i ? blank || lines->at[i].s->len > 0 : first) {
            jbuild_str(rt, &b, indention);
        }
        jbuild_str(rt, &b, lines->at[i].s);
    }
    return jv_of_str(jbuild_end(rt, &b));
}

static jv f_truncate(jrt *rt, jv v, const jargs *a)
{
    if (v.type != J_STR && (int64_t)jv_len(rt, v) <= jarg_int(rt, a, 0, 255)) {
        return v; /* as Jinja2 does with a list */
    }
    jstr *s = jv_str(rt, v), *end = jarg_str(rt, a, 2, "...");
    int64_t length = jarg_int(rt, a, 0, 255), leeway = jarg_int(rt, a, 3, 5),
            n_end = (int64_t)jstr_chars(end);
    if (length < n_end || leeway < 0) {
        jrt_fail(rt, length < n_end ? "expected length >= %lld, got %lld" : "expected leeway >= 0",
                 (long long)n_end, (long long)length);
    }
    if ((int64_t)jstr_chars(s) <= length || (int64_t)jstr_chars(s) - length <= leeway) {
        return jv_of_str(s);
    }
    jstr *cut = jstr_slice(rt, s, 0, jstr_offset(rt, s, (size_t)(length - n_end)));
    if (!jarg_bool(a, 1, false)) {
        size_t blank = jtext_find(rt, cut, jstr_of(rt, " "), 0, cut->len, true);
        cut = blank == SIZE_MAX ? cut : jstr_slice(rt, cut, 0, blank);
    }
    return jv_of_str(jstr_concat(rt, cut, end));
}

static jv f_wordcount(jrt *rt, jv v, const jargs *a)
{
    const jstr *s = jv_str(rt, v);
    int64_t count = 0;
    bool inside = false;
    jrt_charge(rt, s->len / 16);
    for (size_t at = 0; at < s->len;) {
        uint32_t cp;
        at += utf8_decode(s->s + at, s->len - at, &cp, NULL);
        bool word = cp == '_' || unicode_is_alpha(cp) || unicode_is_numeric(cp);
        count += word && !inside;
        inside = word;
    }
    return jv_int(count);
}

static jv f_urlencode(jrt *rt, jv v, const jargs *a)
{
    if (v.type == J_SEQ || v.type == J_DICT) {
        jrt_fail(rt, "urlencode of a %s is not supported", jv_type_name(v));
    }
    const jstr *s = jv_str(rt, v);
    jbuild b;
    jbuild_begin(rt, &b);
    for (size_t i = 0; i < s->len; i++) {
        unsigned char c = (unsigned char)s->s[i];
        char text[4];
        if ((c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || (c && strchr("_.-~/", c))) {
            jbuild_slice(rt, &b, s, i, i + 1);
        } else {
            snprintf(text, sizeof text, "%%%02X", c);
            jbuild_add(rt, &b, text, 3, s->m[i]);
        }
    }
    return jv_of_str(jbuild_end(rt, &b));
}

static jv f_format(jrt *rt, jv v, const jargs *a)
{
    const jstr *fmt = jv_str(rt, v);
    if (a->n_pos && a->n_named) {
        jrt_fail(rt, "can't handle positional and keyword arguments at the same time");
    }
    if (a->n_named) {
        jdict *d = jdict_new(rt);
        for (size_t k = 0; k < a->n_named; k++) {
            jdict_put(rt, d, a->names[k], a->values[k]);
        }
        return jv_of_str(jformat_percent(rt, fmt, (jv){.type = J_DICT, .d = d}));
    }
    jseq *q = jseq_new(rt, SEQ_TUPLE, a->n_pos);
    for (size_t i = 0; i < a->n_pos; i++) {
        jseq_push(rt, q, a->pos[i]);
    }
    return jv_of_str(jformat_percent(rt, fmt, jv_of_seq(q)));
}

/* The i-th of tojson's two separators. */
static jstr *separator(jrt *rt, jv pair, size_t i)
{
    if (pair.type != J_SEQ || pair.q->n != 2 || pair.q->at[i].type != J_STR) {
        jrt_fail(rt, "separators must be two strings");
    }
    return pair.q->at[i].s;
}

static jv f_tojson(jrt *rt, jv v, const jargs *a)
{
    jjson_options o = {.ascii = jarg_bool(a, 1, false), .sort_keys = jarg_bool(a, 3, false)};
    jv indent = jarg(a, 0, JV_NONE), separators = jarg(a, 2, JV_NONE);
    if (indent.type == J_STR) {
        o.indent = indent.s;
    } else if (indent.type != J_NONE) {
        int64_t width = jarg_int(rt, a, 0, 0);
        jbuild b;
        jbuild_begin(rt, &b);
        jbuild_repeat(rt, &b, " ", 1, width > 0 ? (size_t)width : 0, 0);
        o.indent = jbuild_end(rt, &b);
    }
    o.item_separator = jstr_of(rt, o.indent ? "," : ", ");
    o.key_separator = jstr_of(rt, ": ");
    if (separators.type != J_NONE) {
        o.item_separator = separator(rt, separators, 0);
        o.key_separator = separator(rt, separators, 1);
    }
    return jv_of_str(jv_to_json(rt, v, &o));
}

/* -- numbers ----------------------------------------------------------------------------------------------- */

static jv f_abs(jrt *rt, jv v, const jargs *a)
{
    if (!jv_is_number(v)) {
        jrt_fail(rt, "bad operand type for abs(): '%s'", jv_type_name(v));
    }
    return (v.type == J_FLOAT ? signbit(v.f) != 0 : jv_as_int(v) < 0) ? jv_negate(rt, v)
           : v.type == J_BOOL                                         ? jv_int(v.b)
                                                                      : v;
}

/* Copies s without white space around it and without underscores between digits; false if that is no number. */
static bool number_text(const jstr *s, char *out, size_t cap)
{
    size_t from = unicode_lstrip(s->s, s->len), to = unicode_rstrip(s->s, s->len), n = 0;
    for (size_t i = from; i < to; i++) {
        bool between = i > from && i + 1 < to && s->s[i - 1] != '_' && s->s[i + 1] != '_';
        if (s->s[i] == '_' && between) {
            continue;
        }
        if (s->s[i] == '_' || s->s[i] == 0 || n + 1 == cap) {
            return false;
        }
        out[n++] = s->s[i];
    }
    out[n] = 0;
    return n > 0;
}

static bool parse_float(const jstr *s, double *out)
{
    char text[400];
    if (!number_text(s, text, sizeof text)) {
        return false;
    }
    size_t sign = text[0] == '-' || text[0] == '+' ? 1 : 0;
    for (size_t i = sign; text[i]; i++) {
        if (text[i] == 'x' || text[i] == 'X' || text[i] == '(' ||
            (i == sign && unicode_is_space((unsigned char)text[i]))) {
            return false; /* strtod knows more than Python */
        }
    }
    char *end;
    *out = strtod(text, &end);
    return *end == 0;
}

static bool parse_int(const jstr *s, int64_t base, int64_t *out)
{
    char text[400];
    if (!number_text(s, text, sizeof text) || base < 0 || base == 1 || base > 36) {
        return false;
    }
    bool negative = text[0] == '-';
    const char *p = text + (text[0] == '-' || text[0] == '+');
    int prefix = p[0] == '0' && p[1] ? (p[1] | 0x20) : 0;
    int implied = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 0;
    if (implied && (base == 0 || base == implied)) {
        p += 2;
        base = implied;
    }
    base = base == 0 ? 10 : base;
    uint64_t v = 0;
    const char *first = p;
    for (; *p; p++) {
        int d = *p >= '0' && *p <= '9'                     ? *p - '0'
                : (*p | 0x20) >= 'a' && (*p | 0x20) <= 'z' ? (*p | 0x20) - 'a' + 10
                                                           : 99;
        if (d >= base || v > (INT64_MAX - (uint64_t)d) / (uint64_t)base) {
            return false;
        }
        v = v * (uint64_t)base + (uint64_t)d;
    }
    *out = negative ? -(int64_t)v : (int64_t)v;
    return p != first;
}

static bool float_to_int(double f, int64_t *out)
{
    if (!(f > -9.2233720368547758e18 && f < 9.2233720368547758e18)) {
        return false;
    }
    *out = (int64_t)f;
    return true;
}

static jv f_int(jrt *rt, jv v, const jargs *a)
{
    if (v.type == J_UNDEF) {
        jrt_fail_undefined(rt, v);
    }
    jv r = jv_int(0);
    double f;
    bool ok = false;
    if (v.type == J_STR) {
        ok = parse_int(v.s, jarg_int(rt, a, 1, 10), &r.i) || (parse_float(v.s, &f) && float_to_int(f, &r.i));
        r.plain = jstr_any_plain(v.s);
    } else if (jv_is_number(v)) {
        ok = v.type == J_FLOAT ? float_to_int(v.f, &r.i) : (r.i = jv_as_int(v), true);
        r.plain = v.plain;
    }
    return ok ? r : jarg(a, 0, jv_int(0));
}

static jv f_float(jrt *rt, jv v, const jargs *a)
{
    if (v.type == J_UNDEF) {
        jrt_fail_undefined(rt, v);
    }
    jv r = jv_float(0);
    if (jv_is_number(v)) {
        r.f = jv_as_double(v);
        r.plain = v.plain;
        return r;
    }
    if (v.type == J_STR && parse_float(v.s, &r.f)) {
        r.plain = jstr_any_plain(v.s);
        return r;
    }
    return jarg(a, 0, jv_float(0.0));
}

/* Rounded as Python does: the decimal nearest, halves to even. */
static double round_decimal(double f, int64_t digits)
{
    if (!isfinite(f) || digits > 330) {
        return f;
    }
    if (digits < 0) {
        double unit = pow(10, (double)-digits);
        return digits < -308 ? copysign(0.0, f) : nearbyint(f / unit) * unit;
    }
    char text[800];
    snprintf(text, sizeof text, "%.*f", (int)digits, f);
    return strtod(text, NULL);
}

static jv f_round(jrt *rt, jv v, const jargs *a)
{
    const jstr *method = jarg_str(rt, a, 1, "common");
    int64_t digits = jarg_int(rt, a, 0, 0);
    if (!jstr_is(method, "common") && !jstr_is(method, "ceil") && !jstr_is(method, "floor")) {
        jrt_fail(rt, "method must be common, ceil or floor");
    }
    if (v.type == J_UNDEF) {
        jrt_fail_undefined(rt, v);
    }
    if (!jv_is_number(v)) {
        jrt_fail(rt, "type %s doesn't define __round__ method", jv_type_name(v));
    }
    jv r = v;
    if (jstr_is(method, "common")) {
        if (v.type == J_FLOAT) {
            r.f = round_decimal(v.f, digits);
        } else {
            r.type = J_INT;
            r.i = digits >= 0 ? jv_as_int(v) : (int64_t)round_decimal((double)jv_as_int(v), digits);
        }
        return r;
    }
    double unit = pow(10, (double)digits), x = jv_as_double(v) * unit;
    r.type = J_FLOAT;
    r.f = (jstr_is(method, "ceil") ? ceil(x) : floor(x)) / unit;
    return r;
}

/* -- values ------------------------------------------------------------------------------------------------ */

static jv f_default(jrt *rt, jv v, const jargs *a)
{
    bool absent = v.type == J_UNDEF || (jarg_bool(a, 1, false) && !jv_truth(v));
    return absent ? jarg(a, 0, jv_of_str(jstr_of(rt, ""))) : v;
}

static jv f_attr(jrt *rt, jv v, const jargs *a)
{
    jstr *name = jarg_str(rt, a, 0, "");
    if (v.type == J_DICT && !jinja_method_find(v, name)) { /* attributes only, never members */
        return jv_undef(rt, U_ATTRIBUTE, "dict object", jv_of_str(name));
    }
    return jv_getattr(rt, v, name);
}

static jv f_same(jrt *rt, jv v, const jargs *a)
{
    return v;
}

const jbuiltin jinja_text_filters[] = {
    {"abs", "", 0, f_abs},
    {"attr", "name", 1, f_attr},
    {"capitalize", "", 0, f_capitalize},
    {"center", "width", 0, f_center},
    {"d", "default_value boolean", 0, f_default},
    {"default", "default_value boolean", 0, f_default},
    {"e", "", 0, f_escape},
    {"escape", "", 0, f_escape},
    {"filesizeformat", "*", 0, NULL},
    {"float", "default", 0, f_float},
    {"forceescape", "", 0, f_escape},
    {"format", "*", 0, f_format},
    {"indent", "width first blank", 0, f_indent},
    {"int", "default base", 0, f_int},
    {"lower", "", 0, f_lower},
    {"pprint", "*", 0, NULL},
    {"replace", "old new count", 2, f_replace},
    {"round", "precision method", 0, f_round},
    {"safe", "", 0, f_same},
    {"string", "", 0, f_string},
    {"striptags", "*", 0, NULL},
    {"title", "", 0, f_title},
    {"tojson", "indent ensure_ascii separators sort_keys", 0, f_tojson},
    {"trim", "chars", 0, f_trim},
    {"truncate", "length killwords end leeway", 0, f_truncate},
    {"upper", "", 0, f_upper},
    {"urlencode", "", 0, f_urlencode},
    {"urlize", "*", 0, NULL},
    {"wordcount", "", 0, f_wordcount},
    {"wordwrap", "*", 0, NULL},
    {"xmlattr", "*", 0, NULL},
    {NULL, NULL, 0, NULL},
};
