#include "text/jinja_print.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/jinja_ops.h"
#include "text/jinja_run.h"
#include "text/jinja_unicode.h"

/* The shortest digits that read back as f, in Python's layout: with an exponent below 1e-4 and from 1e16 on. */
void jfloat_repr(double f, char out[JFLOAT_TEXT_MAX])
{
    if (isnan(f) || isinf(f)) {
        snprintf(out, JFLOAT_TEXT_MAX, "%s", isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
        return;
    }
    char e[JFLOAT_TEXT_MAX / 2];
    for (int digits = 0; digits <= 16; digits++) {
        snprintf(e, sizeof e, "%.*e", digits, f);
        if (strtod(e, NULL) == f) {
            break;
        }
    }
    int exponent = (int)strtol(strchr(e, 'e') + 1, NULL, 10);
    if (exponent < -4 || exponent >= 16) {
        snprintf(out, JFLOAT_TEXT_MAX, "%s", e); /* d.ddde+XX, as Python */
        return;
    }
    char digits[JFLOAT_TEXT_MAX / 2];
    int n = 0;
    for (const char *p = e; *p != 'e'; p++) {
        if (*p >= '0' && *p <= '9') {
            digits[n++] = *p;
        }
    }
    digits[n] = 0;
    const char *sign = signbit(f) ? "-" : "";
    if (exponent < 0) {
        snprintf(out, JFLOAT_TEXT_MAX, "%s0.%.*s%s", sign, -exponent - 1, "0000", digits);
    } else if (n <= exponent + 1) {
        snprintf(out, JFLOAT_TEXT_MAX, "%s%s%.*s.0", sign, digits, exponent + 1 - n, "0000000000000000");
    } else {
        snprintf(out, JFLOAT_TEXT_MAX, "%s%.*s.%s", sign, exponent + 1, digits, digits + exponent + 1);
    }
}

/* The characters of s between quotes, as Python's repr. */
static void repr_string(jrt *rt, jbuild *b, const jstr *s)
{
    bool single = memchr(s->s, '\'', s->len) != NULL, both = single && memchr(s->s, '"', s->len) != NULL;
    const char *quote = single && !both ? "\"" : "'";
    uint8_t mark = s->len ? s->m[0] : 0;
    jbuild_add(rt, b, quote, 1, mark);
    for (size_t at = 0; at < s->len;) {
        uint32_t cp;
        size_t n = utf8_decode(s->s + at, s->len - at, &cp, NULL);
        char escape[12] = "";
        if (cp == '\\' || cp == (uint32_t)*quote) {
            snprintf(escape, sizeof escape, "\\%c", (char)cp);
        } else if (cp == '\n' || cp == '\r' || cp == '\t') {
            snprintf(escape, sizeof escape, "\\%c", cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't');
        } else if (!unicode_is_printable(cp)) {
            if (cp < 0x100) {
                snprintf(escape, sizeof escape, "\\x%02x", cp);
            } else if (cp < 0x10000) {
                snprintf(escape, sizeof escape, "\\u%04x", cp);
            } else {
                snprintf(escape, sizeof escape, "\\U%08x", cp);
            }
        }
        if (escape[0]) {
            jbuild_add(rt, b, escape, strlen(escape), s->m[at]);
        } else {
            jbuild_slice(rt, b, s, at, at + n);
        }
        at += n;
    }
    jbuild_add(rt, b, quote, 1, s->len ? s->m[s->len - 1] : 0);
}

static void repr_items(jrt *rt, jbuild *b, const jv *at, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        jbuild_text(rt, b, i ? ", " : "");
        jv_repr(rt, b, at[i]);
    }
}

static void repr_seq(jrt *rt, jbuild *b, const jseq *q)
{
    char text[64];
    switch ((jseq_kind)q->kind) {
    case SEQ_LIST:
        jbuild_text(rt, b, "[");
        repr_items(rt, b, q->at, q->n);
        jbuild_text(rt, b, "]");
        break;
    case SEQ_TUPLE:
        jbuild_text(rt, b, "(");
        repr_items(rt, b, q->at, q->n);
        jbuild_text(rt, b, q->n == 1 ? ",)" : ")");
        break;
    case SEQ_RANGE:
        snprintf(text, sizeof text, "range(%" PRId64 ", %" PRId64 ")", q->n ? q->at[0].i : 0,
                 q->n ? q->at[q->n - 1].i + 1 : 0);
        jbuild_text(rt, b, text);
        break;
    case SEQ_ITERATOR:
        jbuild_text(rt, b, "<generator object>");
        break;
    case SEQ_KEYS:
    case SEQ_VALUES:
    case SEQ_ITEMS:
        jbuild_text(rt, b, jv_type_name(jv_of_seq((jseq *)(uintptr_t)q)));
        jbuild_text(rt, b, "([");
        repr_items(rt, b, q->at, q->n);
        jbuild_text(rt, b, "])");
        break;
    }
}

static void repr_dict(jrt *rt, jbuild *b, const jdict *d)
{
    jbuild_text(rt, b, "{");
    for (size_t i = 0; i < d->n; i++) {
        jbuild_text(rt, b, i ? ", " : "");
        jv_repr(rt, b, d->at[i].key);
        jbuild_text(rt, b, ": ");
        jv_repr(rt, b, d->at[i].value);
    }
    jbuild_text(rt, b, "}");
}

static void repr_function(jrt *rt, jbuild *b, const jfunc *f)
{
    jbuild_text(rt, b, f->builtin ? "<function " : "<Macro '");
    if (f->builtin) {
        jbuild_text(rt, b, f->builtin->name);
    } else {
        const jname *n = &rt->t->names[f->macro->sym];
        jbuild_add(rt, b, n->s, n->len, 0);
    }
    jbuild_text(rt, b, f->builtin ? ">" : "'>");
}

static void print_scalar(jrt *rt, jbuild *b, jv v)
{
    char text[64];
    switch ((jtype)v.type) {
    case J_NONE:
        jbuild_text(rt, b, "None");
        break;
    case J_BOOL:
        jbuild_text(rt, b, v.b ? "True" : "False");
        break;
    case J_INT:
        snprintf(text, sizeof text, "%" PRId64, v.i);
        jbuild_text(rt, b, text);
        break;
    case J_FLOAT:
        jfloat_repr(v.f, text);
        jbuild_text(rt, b, text);
        break;
    case J_LOOP:
        snprintf(text, sizeof text, "<LoopContext %zu/%zu>", v.loop->i + 1, v.loop->items->n);
        jbuild_text(rt, b, text);
        break;
    default:
        jbuild_text(rt, b, "<");
        jbuild_text(rt, b, jv_type_name(v));
        jbuild_text(rt, b, " object>");
        break;
    }
}

void jv_repr(jrt *rt, jbuild *b, jv v)
{
    size_t from = jbuild_len(b);
    jrt_charge(rt, 1);
    jinja_deeper(rt);
    if (v.type == J_STR) {
        repr_string(rt, b, v.s);
    } else if (v.type == J_SEQ) {
        repr_seq(rt, b, v.q);
    } else if (v.type == J_DICT) {
        repr_dict(rt, b, v.d);
    } else if (v.type == J_NS) {
        jbuild_text(rt, b, "<Namespace ");
        repr_dict(rt, b, v.d);
        jbuild_text(rt, b, ">");
    } else if (v.type == J_FUNC) {
        repr_function(rt, b, v.fn);
    } else if (v.type == J_UNDEF) {
        jbuild_text(rt, b, "Undefined");
    } else {
        print_scalar(rt, b, v);
    }
    rt->depth--;
    jbuild_mark(b, from, v.plain ? MARK_PLAIN : 0);
}

void jv_print(jrt *rt, jbuild *b, jv v)
{
    if (v.type == J_STR) {
        jbuild_str(rt, b, v.s);
    } else if (v.type != J_UNDEF && v.type != J_ABSENT) {
        jv_repr(rt, b, v);
    }
}

jstr *jv_str(jrt *rt, jv v)
{
    if (v.type == J_STR) {
        return v.s;
    }
    jbuild b;
    jbuild_begin(rt, &b);
    jv_print(rt, &b, v);
    return jbuild_end(rt, &b);
}
