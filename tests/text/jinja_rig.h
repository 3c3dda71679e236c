/*
 * jinja_rig: rendering small templates in tests.
 */
#ifndef HEARTH_TESTS_TEXT_JINJA_RIG_H
#define HEARTH_TESTS_TEXT_JINJA_RIG_H

#include "cases.h"
#include "text/jinja.h"

#define RIG_MAX_VARS 64
#define RIG_NOW      1767312000 /* 2026-01-02 00:00:00 UTC */

typedef struct rig_vars {
    jinja_var at[RIG_MAX_VARS];
    size_t n;
} rig_vars;

static inline bool rig_add_member(void *ctx, const char *key, size_t key_len, const json *v)
{
    rig_vars *vars = ctx;
    assert_true(vars->n < RIG_MAX_VARS);
    vars->at[vars->n++] = (jinja_var){.name = key, .value = v};
    return true;
}

/* Compiles and renders with the members of `vars`, those named bos_token and eos_token trusted. */
static inline status rig_render(const char *text, size_t len, const json *vars, const jinja_options *o,
                                jinja_output *out, err *e)
{
    jinja_template *t = NULL;
    rig_vars all = {.n = 0};
    json_each(vars, rig_add_member, &all);
    for (size_t i = 0; i < all.n; i++) {
        const char *name = all.at[i].name;
        all.at[i].trusted = strcmp(name, "bos_token") == 0 || strcmp(name, "eos_token") == 0;
    }
    const jinja_options now = {.now_s = RIG_NOW};
    status st = jinja_compile(text, len, &t, e);
    st = st == ST_OK ? jinja_render(t, all.at, all.n, o ? o : &now, out, e) : st;
    jinja_free(t);
    return st;
}

static inline json_doc *rig_json(const char *text, size_t len)
{
    json_doc *d = NULL;
    err e;
    assert_int_equal(json_parse(text, len, JSON_MAX_DEPTH, &d, &e), ST_OK);
    return d;
}

/* The same with JSON text; out must be released. */
static inline status rig_render_text(const char *text, const char *vars, const jinja_options *o,
                                     jinja_output *out, err *e)
{
    json_doc *d = rig_json(vars, strlen(vars));
    status st = rig_render(text, strlen(text), json_root(d), o, out, e);
    json_doc_free(d);
    return st;
}

/* Calls fn for every line of a text. */
static inline void rig_each_line(const buf *text, void (*fn)(void *ctx, const char *line, size_t len),
                                 void *ctx)
{
    for (size_t at = 0; at < text->len;) {
        const char *end = memchr(text->data + at, '\n', text->len - at);
        size_t len = end ? (size_t)(end - text->data) - at : text->len - at;
        if (len) {
            fn(ctx, text->data + at, len);
        }
        at += len + 1;
    }
}

#endif
