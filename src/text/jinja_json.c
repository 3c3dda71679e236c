/*
 * tojson: json.dumps of Python, with the arguments that transformers passes on.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "text/jinja_ops.h"
#include "text/jinja_print.h"
#include "text/jinja_run.h"

typedef struct writer {
    jrt *rt;
    jbuild b;
    const jjson_options *o;
    size_t level;
} writer;

static void write_value(writer *w, jv v);

static void write_escape(writer *w, uint32_t cp, uint8_t mark)
{
    static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
    char text[16];
    const char *simple = cp && cp < 0x80 ? strchr(from, (int)cp) : NULL;
    if (simple) {
        snprintf(text, sizeof text, "\\%c", to[simple - from]);
    } else if (cp < 0x10000) {
        snprintf(text, sizeof text, "\\u%04x", cp);
    } else {
        snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xD800 + ((cp - 0x10000) >> 10), 0xDC00 + (cp & 0x3FF));
    }
    jbuild_add(w->rt, &w->b, text, strlen(text), mark);
}

/* Quotes are marked as what they stand beside. */
static void write_string(writer *w, const jstr *s)
{
    jbuild_add(w->rt, &w->b, "\"", 1, s->len ? s->m[0] : 0);
    size_t plain = 0; /* from here to `at` nothing needs an escape */
    for (size_t at = 0; at < s->len;) {
        unsigned char c = (unsigned char)s->s[at];
        uint32_t cp = c;
        size_t n = c < 0x80 || !w->o->ascii ? 1 : utf8_decode(s->s + at, s->len - at, &cp, NULL);
        if (c < 0x20 || c == '"' || c == '\\' || (w->o->ascii && c >= 0x80)) {
            jbuild_slice(w->rt, &w->b, s, plain, at);
            write_escape(w, cp, s->m[at]);
            plain = at + n;
        }
        at += n;
    }
    jbuild_slice(w->rt, &w->b, s, plain, s->len);
    jbuild_add(w->rt, &w->b, "\"", 1, s->len ? s->m[s->len - 1] : 0);
}

static void write_float(writer *w, double f)
{
    char text[JFLOAT_TEXT_MAX];
    if (isnan(f) || isinf(f)) {
        snprintf(text, sizeof text, "%s", isnan(f) ? "NaN" : f < 0 ? "-Infinity" : "Infinity");
    } else {
        jfloat_repr(f, text);
    }
    jbuild_text(w->rt, &w->b, text);
}

static void newline(writer *w)
{
    if (w->o->indent) {
        jbuild_text(w->rt, &w->b, "\n");
        for (size_t i = 0; i < w->level; i++) {
            jbuild_str(w->rt, &w->b, w->o->indent);
        }
    }
}

static void write_list(writer *w, const jseq *q)
{
    if (q->kind > SEQ_TUPLE) {
        jrt_fail(w->rt, "Object of type %s is not JSON serializable",
                 jv_type_name(jv_of_seq((jseq *)(uintptr_t)q)));
    }
    jbuild_text(w->rt, &w->b, "[");
    w->level++;
    for (size_t i = 0; i < q->n; i++) {
        if (i) {
            jbuild_str(w->rt, &w->b, w->o->item_separator);
        }
        newline(w);
        write_value(w, q->at[i]);
    }
    w->level--;
    if (q->n) {
        newline(w);
    }
    jbuild_text(w->rt, &w->b, "]");
}

/* Numbers and the like become strings. */
static void write_key(writer *w, jv key)
{
    if (key.type == J_STR) {
        write_string(w, key.s);
        return;
    }
    if (key.type != J_NONE && !jv_is_number(key)) {
        jrt_fail(w->rt, "keys must be str, int, float, bool or None, not %s", jv_type_name(key));
    }
    jbuild_text(w->rt, &w->b, "\"");
    write_value(w, key);
    jbuild_text(w->rt, &w->b, "\"");
}

static void write_dict(writer *w, const jdict *d)
{
    jseq *keys = jseq_new(w->rt, SEQ_LIST, d->n);
    for (size_t i = 0; i < d->n; i++) {
        jseq_push(w->rt, keys, d->at[i].key);
    }
    if (w->o->sort_keys) {
        jseq *sorted_by = jseq_new(w->rt, SEQ_LIST, d->n);
        for (size_t i = 0; i < d->n; i++) {
            jseq_push(w->rt, sorted_by, d->at[i].key);
        }
        jseq_sort(w->rt, keys, sorted_by->at, false);
    }
    jbuild_text(w->rt, &w->b, "{");
    w->level++;
    for (size_t i = 0; i < d->n; i++) {
        jv value = d->at[i].value;
        if (w->o->sort_keys) {
            jdict_get(w->rt, d, keys->at[i], &value);
        }
        if (i) {
            jbuild_str(w->rt, &w->b, w->o->item_separator);
        }
        newline(w);
        write_key(w, keys->at[i]);
        jbuild_str(w->rt, &w->b, w->o->key_separator);
        write_value(w, value);
    }
    w->level--;
    if (d->n) {
        newline(w);
    }
    jbuild_text(w->rt, &w->b, "}");
}

/* A whole value of the caller is marked as such, punctuation included: it is one range. */
static void write_value(writer *w, jv v)
{
    size_t from = jbuild_len(&w->b);
    char text[32];
    jrt_charge(w->rt, 1);
    jinja_deeper(w->rt);
    switch ((jtype)v.type) {
    case J_NONE:
        jbuild_text(w->rt, &w->b, "null");
        break;
    case J_BOOL:
        jbuild_text(w->rt, &w->b, v.b ? "true" : "false");
        break;
    case J_INT:
        snprintf(text, sizeof text, "%" PRId64, v.i);
        jbuild_text(w->rt, &w->b, text);
        break;
    case J_FLOAT:
        write_float(w, v.f);
        break;
    case J_STR:
        write_string(w, v.s);
        break;
    case J_SEQ:
        write_list(w, v.q);
        break;
    case J_DICT:
        write_dict(w, v.d);
        break;
    default:
        jrt_fail(w->rt, "Object of type %s is not JSON serializable", jv_type_name(v));
    }
    w->rt->depth--;
    jbuild_mark(&w->b, from, v.plain ? MARK_PLAIN : 0);
}

jstr *jv_to_json(jrt *rt, jv v, const jjson_options *o)
{
    writer w = {.rt = rt, .o = o};
    jbuild_begin(rt, &w.b);
    write_value(&w, v);
    return jbuild_end(rt, &w.b);
}
