/*
 * "%…" % args and "{…}".format(args), as Python formats.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "text/jinja_ops.h"
#include "text/jinja_print.h"
#include "text/jinja_run.h"
#include "text/jinja_unicode.h"

#define MAX_PRECISION 1000
#define NUMBER_MAX    1600 /* the longest double, its precision, grouping commas */

/* One conversion; of either language. */
typedef struct spec {
    char fill[4];
    size_t fill_len; /* 0: the default */
    char align;      /* '<' '>' '^' '=', 0: the default */
    char sign;       /* '+', ' ', 0 */
    bool alt, zero, comma;
    int64_t width;
    int64_t precision; /* -1: none */
    char type;         /* 0: none */
} spec;

/* s as wide as the spec wants; numbers align right, and with '=' (or zeros) behind their sign. */
static void pad(jrt *rt, jbuild *b, const spec *f, const jstr *s, bool is_number)
{
    int64_t chars = (int64_t)unicode_count(s->s, s->len), more = f->width > chars ? f->width - chars : 0;
    char align = f->align ? f->align : is_number ? (f->zero ? '=' : '>') : '<';
    const char *fill = f->fill_len ? f->fill : f->zero && is_number ? "0" : " ";
    size_t fill_len = f->fill_len ? f->fill_len : 1;
    int64_t before = align == '<' ? 0 : align == '^' ? more / 2 : more;
    size_t head = 0;
    if (align == '=') {
        head = s->len > 0 && strchr("+- ", s->s[0]) ? 1 : 0;
        head += s->len > head + 1 && s->s[head] == '0' && strchr("xXob", s->s[head + 1]) && f->alt ? 2 : 0;
    }
    jbuild_slice(rt, b, s, 0, head);
    jbuild_repeat(rt, b, fill, fill_len, (size_t)before, 0);
    jbuild_slice(rt, b, s, head, s->len);
    jbuild_repeat(rt, b, fill, fill_len, (size_t)(more - before), 0);
}

static size_t int_digits(uint64_t v, unsigned base, bool upper, char *out)
{
    char tmp[64];
    size_t n = 0;
    do {
        tmp[n++] = (upper ? "0123456789ABCDEF" : "0123456789abcdef")[v % base];
        v /= base;
    } while (v);
    for (size_t i = 0; i < n; i++) {
        out[i] = tmp[n - 1 - i];
    }
    return n;
}

/* Puts commas between groups of three of the digits at out[from..from+n). */
static size_t group(char *out, size_t from, size_t n)
{
    size_t commas = n ? (n - 1) / 3 : 0, to = from + n + commas;
    for (size_t i = 0; i < n; i++) {
        if (i && i % 3 == 0) {
            out[--to] = ',';
        }
        out[--to] = out[from + n - 1 - i];
    }
    return n + commas;
}

static void format_int(jrt *rt, jbuild *b, const spec *f, jv v)
{
    char text[NUMBER_MAX];
    int64_t i = v.type == J_FLOAT ? 0 : jv_as_int(v);
    if (v.type == J_FLOAT) {
        if (!(fabs(v.f) < 9.2e18)) {
            jrt_fail(rt, "an integer would need more than 64 bits");
        }
        i = (int64_t)v.f;
    }
    unsigned base = f->type == 'x' || f->type == 'X' ? 16 : f->type == 'o' ? 8 : f->type == 'b' ? 2 : 10;
    uint64_t u = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    char sign = i < 0 ? '-' : f->sign;
    size_t n = 0;
    if (sign) {
        text[n++] = sign;
    }
    if (f->alt && base != 10) {
        text[n++] = '0';
        text[n++] = f->type;
    }
    char digits[128];
    size_t n_digits = int_digits(u, base, f->type == 'X', digits);
    for (int64_t zeros = f->precision - (int64_t)n_digits; zeros > 0; zeros--) {
        text[n++] = '0';
    }
    memcpy(text + n, digits, n_digits);
    n += f->comma ? group(text, n, n_digits) : n_digits;
    pad(rt, b, f, jstr_new(rt, text, n, v.plain ? MARK_PLAIN : 0), true);
}

static void format_float(jrt *rt, jbuild *b, const spec *f, jv v)
{
    char text[NUMBER_MAX], fmt[16];
    double x = jv_as_double(v);
    int precision = f->precision < 0 ? 6 : (int)f->precision;
    size_t n = 0;
    if (isnan(x) || isinf(x)) {
        const char *words = isnan(x) ? "nan" : "inf";
        n = (size_t)snprintf(text, sizeof text, "%s%s", x < 0 ? "-" : f->sign == '+' ? "+" : "", words);
    } else if (f->type == 0 && f->precision < 0) {
        jfloat_repr(x, text);
        n = strlen(text);
    } else {
        char type = f->type == 0 ? 'g' : f->type == '%' ? 'f' : f->type;
        snprintf(fmt, sizeof fmt, "%%%s%s.*%c",
                 f->sign == '+'   ? "+"
                 : f->sign == ' ' ? " "
                                  : "",
                 f->alt ? "#" : "", type);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        n = (size_t)snprintf(text, sizeof text, fmt, precision, f->type == '%' ? x * 100 : x);
#pragma GCC diagnostic pop
        if (f->type == 0 && !memchr(text, '.', n) && !memchr(text, 'e', n)) {
            n += (size_t)snprintf(text + n, sizeof text - n, ".0");
        }
        if (f->type == '%') {
            text[n++] = '%';
        }
    }
    if (f->comma) {
        size_t from = n && strchr("+- ", text[0]) ? 1 : 0, digits = strspn(text + from, "0123456789");
        char rest[NUMBER_MAX];
        size_t tail = n - from - digits;
        memcpy(rest, text + from + digits, tail);
        size_t grouped = group(text, from, digits);
        memcpy(text + from + grouped, rest, tail);
        n = from + grouped + tail;
    }
    pad(rt, b, f, jstr_new(rt, text, n, v.plain ? MARK_PLAIN : 0), true);
}

static void format_string(jrt *rt, jbuild *b, const spec *f, jstr *s)
{
    if (f->precision >= 0 && (size_t)f->precision < jstr_chars(s)) {
        s = jstr_slice(rt, s, 0, jstr_offset(rt, s, (size_t)f->precision));
    }
    spec g = *f;
    g.alt = false;
    pad(rt, b, &g, s, false);
}

/* -- % ----------------------------------------------------------------------------------------------------- */

typedef struct percent {
    jrt *rt;
    const jstr *fmt;
    size_t at; /* behind the % */
    jv args;
    size_t next; /* of the tuple */
} percent;

static jv next_arg(percent *p)
{
    size_t n = jv_is_list(p->args, SEQ_TUPLE) ? p->args.q->n : 1;
    if (p->next >= n) {
        jrt_fail(p->rt, "not enough arguments for format string");
    }
    return jv_is_list(p->args, SEQ_TUPLE) ? p->args.q->at[p->next++] : (p->next++, p->args);
}

static char peek(const percent *p)
{
    if (p->at >= p->fmt->len) {
        jrt_fail(p->rt, "incomplete format");
    }
    return p->fmt->s[p->at];
}

/* A number of the format or, for '*', of the arguments. */
static int64_t percent_number(percent *p, int64_t max)
{
    int64_t v = 0;
    if (peek(p) == '*') {
        p->at++;
        jv arg = next_arg(p);
        if (arg.type != J_INT) {
            jrt_fail(p->rt, "* wants int");
        }
        v = arg.i;
    } else {
        for (; peek(p) >= '0' && peek(p) <= '9'; p->at++) {
            v = v > max ? v : v * 10 + (peek(p) - '0');
        }
    }
    if (v > max || v < -max) {
        jrt_fail(p->rt, "a width or precision is too big");
    }
    return v;
}

static spec percent_spec(percent *p)
{
    spec f = {.precision = -1};
    for (;; p->at++) {
        char c = peek(p);
        if (c == '-') {
            f.align = '<';
        } else if (c == '0') {
            f.zero = true;
        } else if (c == '#') {
            f.alt = true;
        } else if (c == '+' || (c == ' ' && !f.sign)) {
            f.sign = c;
        } else {
            break;
        }
    }
    f.width = percent_number(p, (int64_t)p->rt->max_bytes);
    if (f.width < 0) {
        f.width = -f.width;
        f.align = '<';
    }
    if (f.align) {
        f.zero = false;
    }
    if (peek(p) == '.') {
        p->at++;
        f.precision = percent_number(p, MAX_PRECISION);
        f.precision = f.precision < 0 ? 0 : f.precision;
    }
    while (strchr("hlL", peek(p))) {
        p->at++;
    }
    f.type = peek(p);
    p->at++;
    if (f.type != 's' && f.type != 'r' && f.type != 'a') {
        return f;
    }
    f.zero = false;
    f.align = f.align ? f.align : '>'; /* unlike format(), text goes right too */
    return f;
}

static jstr *repr_of(jrt *rt, jv v)
{
    jbuild b;
    jbuild_begin(rt, &b);
    jv_repr(rt, &b, v);
    return jbuild_end(rt, &b);
}

static void percent_convert(percent *p, jbuild *b, spec *f, jv v)
{
    jrt *rt = p->rt;
    switch (f->type) {
    case 's':
        format_string(rt, b, f, jv_str(rt, v));
        return;
    case 'r':
    case 'a':
        format_string(rt, b, f, repr_of(rt, v));
        return;
    case 'c':
        f->align = f->align ? f->align : '>';
        f->zero = false;
        if (v.type == J_STR && jstr_chars(v.s) == 1) {
            format_string(rt, b, f, v.s);
            return;
        }
        if (v.type == J_INT && v.i >= 0 && v.i <= 0x10FFFF && (v.i < 0xD800 || v.i > 0xDFFF)) {
            char bytes[4];
            size_t n = utf8_encode((uint32_t)v.i, bytes);
            format_string(rt, b, f, jstr_new(rt, bytes, n, v.plain ? MARK_PLAIN : 0));
            return;
        }
        jrt_fail(rt, "%%c requires int or char");
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o':
        if (!jv_is_number(v) || (v.type == J_FLOAT && strchr("xXo", f->type))) {
            jrt_fail(rt, "%%%c format: %s is required, not %s", f->type,
                     strchr("xXo", f->type) ? "an integer" : "a real number", jv_type_name(v));
        }
        format_int(rt, b, f, v);
        return;
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
        if (!jv_is_number(v)) {
            jrt_fail(rt, "must be real number, not %s", jv_type_name(v));
        }
        format_float(rt, b, f, v);
        return;
    default:
        jrt_fail(rt, "unsupported format character '%c'", f->type);
    }
}

/* (name) behind the %: the member of the dict. */
static jv percent_key(percent *p)
{
    size_t depth = 1, from = ++p->at;
    for (; depth; p->at++) {
        char c = peek(p);
        depth += c == '(';
        depth -= c == ')';
    }
    jv key = jv_of_str(jstr_new(p->rt, p->fmt->s + from, p->at - 1 - from, 0)), v;
    if (p->args.type != J_DICT) {
        jrt_fail(p->rt, "format requires a mapping");
    }
    if (!jdict_get(p->rt, p->args.d, key, &v)) {
        jrt_fail(p->rt, "the format's key '%.*s' is not there", key.s->len < 100 ? (int)key.s->len : 100,
                 key.s->s);
    }
    return v;
}

jstr *jformat_percent(jrt *rt, const jstr *fmt, jv args)
{
    percent p = {.rt = rt, .fmt = fmt, .args = args};
    jbuild b;
    jbuild_begin(rt, &b);
    bool keyed = false;
    while (p.at < fmt->len) {
        const char *found = memchr(fmt->s + p.at, '%', fmt->len - p.at);
        size_t end = found ? (size_t)(found - fmt->s) : fmt->len;
        jbuild_slice(rt, &b, fmt, p.at, end);
        p.at = end + 1;
        if (!found) {
            break;
        }
        bool has_key = peek(&p) == '(';
        jv v = has_key ? percent_key(&p) : JV_ABSENT;
        keyed = keyed || has_key;
        spec f = percent_spec(&p);
        if (f.type == '%') {
            jbuild_slice(rt, &b, fmt, p.at - 1, p.at);
            continue;
        }
        percent_convert(&p, &b, &f, has_key ? v : next_arg(&p));
    }
    bool mapping =
        args.type == J_DICT || args.type == J_UNDEF || (args.type == J_SEQ && args.q->kind != SEQ_TUPLE);
    if (!keyed && !mapping && p.next < (jv_is_list(args, SEQ_TUPLE) ? args.q->n : 1)) {
        jrt_fail(rt, "not all arguments converted during string formatting");
    }
    return jbuild_end(rt, &b);
}

/* -- format() ---------------------------------------------------------------------------------------------- */

typedef struct braces {
    jrt *rt;
    const jargs *args;
    size_t next; /* of {} */
    bool automatic, manual;
} braces;

static int64_t read_number(jrt *rt, const char *s, size_t n, size_t *at, int64_t max)
{
    int64_t v = 0;
    for (; *at < n && s[*at] >= '0' && s[*at] <= '9'; ++*at) {
        v = v * 10 + (s[*at] - '0');
        if (v > max) {
            jrt_fail(rt, "a width or precision is too big");
        }
    }
    return v;
}

/* [[fill]align][sign][#][0][width][,][.precision][type] */
static spec parse_spec(jrt *rt, const char *s, size_t n)
{
    spec f = {.precision = -1};
    size_t at = 0, first = n ? utf8_decode(s, n, NULL, NULL) : 0;
    if (first && first < n && strchr("<>^=", s[first])) {
        memcpy(f.fill, s, first);
        f.fill_len = first;
        f.align = s[first];
        at = first + 1;
    } else if (n && strchr("<>^=", s[0])) {
        f.align = s[at++];
    }
    if (at < n && strchr("+- ", s[at])) {
        f.sign = s[at] == '-' ? 0 : s[at];
        at++;
    }
    if (at < n && s[at] == '#') {
        f.alt = true;
        at++;
    }
    if (at < n && s[at] == '0') {
        f.zero = true;
        at++;
    }
    f.width = read_number(rt, s, n, &at, (int64_t)rt->max_bytes);
    if (at < n && (s[at] == ',' || s[at] == '_')) {
        f.comma = true;
        at++;
    }
    if (at < n && s[at] == '.') {
        at++;
        f.precision = read_number(rt, s, n, &at, MAX_PRECISION);
    }
    if (at < n) {
        f.type = s[at++];
    }
    if (at < n) {
        jrt_fail(rt, "invalid format specifier");
    }
    return f;
}

static void format_value(jrt *rt, jbuild *b, jv v, const char *s, size_t n)
{
    if (n == 0) {
        jv_print(rt, b, v);
        return;
    }
    spec f = parse_spec(rt, s, n);
    if (v.type == J_STR || v.type == J_UNDEF) {
        if (f.type && f.type != 's') {
            jrt_fail(rt, "unknown format code '%c' for object of type 'str'", f.type);
        }
        f.align = f.align ? f.align : '<';
        if (f.zero && !f.fill_len) {
            f.fill[0] = '0';
            f.fill_len = 1;
        }
        format_string(rt, b, &f, jv_str(rt, v));
    } else if (!jv_is_number(v)) {
        jrt_fail(rt, "unsupported format string passed to %s.__format__", jv_type_name(v));
    } else if (strchr("eEfFgG%", f.type) && (f.type || v.type == J_FLOAT)) {
        format_float(rt, b, &f, v);
    } else if (v.type != J_FLOAT && (f.type == 0 || strchr("dbxXon", f.type))) {
        format_int(rt, b, &f, v);
    } else if (v.type != J_FLOAT && f.type == 'c') {
        char bytes[4];
        if (jv_as_int(v) < 0 || jv_as_int(v) > 0xD7FF) {
            jrt_fail(rt, "%%c arg not in range");
        }
        f.align = f.align ? f.align : '<';
        format_string(rt, b, &f, jstr_new(rt, bytes, utf8_encode((uint32_t)jv_as_int(v), bytes), 0));
    } else {
        jrt_fail(rt, "unknown format code '%c' for object of type '%s'", f.type, jv_type_name(v));
    }
}

/* The value that a field names: 0, name, empty; then .attribute and [index]. */
static jv field_value(braces *p, const char *s, size_t n)
{
    jrt *rt = p->rt;
    size_t end = 0, at = 0;
    while (end < n && s[end] != '.' && s[end] != '[') {
        end++;
    }
    jv v = JV_ABSENT;
    int64_t i = end ? read_number(rt, s, end, &at, 1 << 20) : (int64_t)p->next++;
    if (at == end) {
        p->automatic = p->automatic || end == 0;
        p->manual = p->manual || end != 0;
        if (p->automatic && p->manual) {
            jrt_fail(rt, "cannot switch between manual field specification and automatic field numbering");
        }
        if ((size_t)i >= p->args->n_pos) {
            jrt_fail(rt, "replacement index %lld out of range for positional args tuple", (long long)i);
        }
        v = p->args->pos[i];
    } else {
        for (size_t k = 0; k < p->args->n_named; k++) {
            const jstr *name = p->args->names[k].s;
            if (name->len == end && memcmp(name->s, s, end) == 0) {
                v = p->args->values[k];
            }
        }
        if (v.type == J_ABSENT) {
            jrt_fail(rt, "the format's key '%.*s' is not there", end < 100 ? (int)end : 100, s);
        }
    }
    while (end < n) {
        bool item = s[end] == '[';
        size_t from = ++end;
        while (end < n && (item ? s[end] != ']' : s[end] != '.' && s[end] != '[')) {
            end++;
        }
        size_t k = from;
        int64_t index = item ? read_number(rt, s, end, &k, INT32_MAX) : 0;
        jstr *name = jstr_new(rt, s + from, end - from, 0);
        v = !item ? jv_getattr(rt, v, name)
                  : jv_getitem(rt, v, k == end && end > from ? jv_int(index) : jv_of_str(name));
        end += item && end < n;
    }
    return v;
}

static void format_text(braces *p, jbuild *b, const jstr *fmt, int nesting);

/* What stands between { and }. */
static void format_field(braces *p, jbuild *b, jstr *field, int nesting)
{
    jrt *rt = p->rt;
    size_t name = 0;
    for (int open = 0; name < field->len; name++) {
        char c = field->s[name];
        open += c == '[';
        open -= c == ']';
        if (open == 0 && (c == '!' || c == ':')) {
            break;
        }
    }
    size_t at = name;
    char conversion = 0;
    if (at < field->len && field->s[at] == '!') {
        conversion = at + 1 < field->len ? field->s[at + 1] : 0;
        at += 2;
        if (!conversion || !strchr("rsa", conversion) || (at < field->len && field->s[at] != ':')) {
            jrt_fail(rt, "unknown conversion specifier");
        }
    }
    jv v = field_value(p, field->s, name);
    if (conversion) {
        v = jv_of_str(conversion == 's' ? jv_str(rt, v) : repr_of(rt, v));
    }
    at += at < field->len; /* ':' */
    jbuild f;
    jbuild_begin(rt, &f);
    format_text(p, &f, jstr_slice(rt, field, at, field->len), nesting + 1);
    const jstr *how = jbuild_end(rt, &f);
    format_value(rt, b, v, how->s, how->len);
}

static void format_text(braces *p, jbuild *b, const jstr *fmt, int nesting)
{
    jrt *rt = p->rt;
    if (nesting > 2) {
        jrt_fail(rt, "max string recursion exceeded");
    }
    for (size_t at = 0; at < fmt->len; at++) {
        char c = fmt->s[at];
        if (c != '{' && c != '}') {
            jbuild_slice(rt, b, fmt, at, at + 1);
            continue;
        }
        if (at + 1 < fmt->len && fmt->s[at + 1] == c && nesting == 0) {
            jbuild_slice(rt, b, fmt, at, at + 1);
            at++;
            continue;
        }
        if (c == '}') {
            jrt_fail(rt, "single '}' encountered in format string");
        }
        size_t from = ++at;
        for (int open = 1; at < fmt->len; at++) {
            open += fmt->s[at] == '{';
            open -= fmt->s[at] == '}';
            if (open == 0) {
                break;
            }
        }
        if (at >= fmt->len) {
            jrt_fail(rt, "expected '}' before end of string");
        }
        format_field(p, b, jstr_new(rt, fmt->s + from, at - from, 0), nesting);
    }
}

jstr *jformat_braces(jrt *rt, const jstr *fmt, const jargs *args)
{
    braces p = {.rt = rt, .args = args};
    jbuild b;
    jbuild_begin(rt, &b);
    format_text(&p, &b, fmt, 0);
    return jbuild_end(rt, &b);
}
