/*
 * jinja: chat templates, as transformers renders them with Jinja2.
 *
 * A template is compiled once and rendered many times. The language is that of Jinja2 3.1 with trim_blocks,
 * lstrip_blocks, one trailing newline dropped, break and continue, {% generation %}, raise_exception,
 * strftime_now and transformers' tojson. Beyond transformers, whose sandbox forbids it, lists and dicts may be
 * changed (append, update …) within one rendering: templates of llama.cpp do. Left out, and refused by name:
 * include, import, extends, autoescape, and the filters that make HTML or draw numbers; `safe` changes nothing.
 * Integers are 64 bits wide; more is an error.
 *
 * Rendering yields the text and which of its bytes stem from the caller's values (`plain`): they never become
 * control tokens, whatever they spell (FAILURES T5). Origin is kept per byte through every string operation;
 * what is made of a whole value (its JSON, its length) counts as stemming from it. Values passed as `trusted`
 * (bos_token) count as the template's own text.
 *
 * Threads: a template is immutable and may be rendered by any number of threads at once. Nothing is kept
 * between renders; the result depends on template, variables and `now` alone.
 *
 * Limits: see below; a render that passes one fails with ST_TEMPLATE and a text that names the limit. The C
 * stack stays below 1 MiB (2 MiB under sanitizers).
 *
 * Errors: ST_TEMPLATE (e->msg begins with "line L, column C: ", e->offset is the byte), ST_NOMEM.
 */
#ifndef HEARTH_TEXT_JINJA_H
#define HEARTH_TEXT_JINJA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/status.h"

#define JINJA_MAX_SOURCE_BYTES ((size_t)1 << 20)
#define JINJA_MAX_NESTING      400 /* of statements and of expressions in the source */
#define JINJA_DEFAULT_STEPS    20000000u
#define JINJA_DEFAULT_BYTES    ((size_t)256 << 20) /* alive at once, the variables included */
#define JINJA_DEFAULT_DEPTH    2000u /* of evaluation: a macro that calls itself takes some 10 */

typedef struct jinja_template jinja_template;

/* src is UTF-8 and may be freed afterwards. */
status jinja_compile(const char *src, size_t len, jinja_template **out, err *e);
void jinja_free(jinja_template *t);

typedef struct jinja_var {
    const char *name;
    const json *value; /* borrowed; not looked at if text is set */
    const char *text;  /* borrowed: a string, valid UTF-8; NULL: value */
    size_t text_len;
    bool trusted; /* counts as the template's own text */
} jinja_var;

typedef struct jinja_options {
    int64_t now_s;      /* what strftime_now formats: seconds since 1970, UTC */
    uint64_t max_steps; /* 0 in any of these: the default above */
    size_t max_bytes;
    unsigned max_depth; /* at most the default */
} jinja_options;

typedef struct jinja_range {
    size_t from, to; /* bytes [from, to) of the text */
} jinja_range;

/* All zero before the first use. */
typedef struct jinja_output {
    /* owned */
    buf text;
    jinja_range *plain; /* sorted, apart, never empty: what stems from the caller's values */
    size_t n_plain;
    jinja_range *generated; /* the same for what {% generation %} blocks wrote */
    size_t n_generated;
    buf error;   /* after ST_TEMPLATE: the whole text, else empty */
    bool raised; /* that text is what the template gave to raise_exception, without a place */
} jinja_output;

/* vars of the same name: the last one counts. o may be NULL. What out held before is released. */
status jinja_render(const jinja_template *t, const jinja_var *vars, size_t n_vars, const jinja_options *o,
                    jinja_output *out, err *e);
void jinja_output_release(jinja_output *out);

#endif
