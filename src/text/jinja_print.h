/*
 * jinja_print: values as text: str(), repr(), JSON. See jinja_value.h for memory.
 */
#ifndef HEARTH_TEXT_JINJA_PRINT_H
#define HEARTH_TEXT_JINJA_PRINT_H

#include "text/jinja_value.h"

#define JPRINT_MAX_DEPTH 300 /* of values in values */

jstr *jv_str(jrt *rt, jv v);             /* Python's str() */
void jv_print(jrt *rt, jbuild *b, jv v); /* the same, appended */
void jv_repr(jrt *rt, jbuild *b, jv v);
#define JFLOAT_TEXT_MAX 64
void jfloat_repr(double f, char out[JFLOAT_TEXT_MAX]);

typedef struct jjson_options {
    const jstr *indent;         /* one level; NULL: all on one line */
    const jstr *item_separator; /* ", "; with indent "," */
    const jstr *key_separator;  /* ": " */
    bool sort_keys, ascii;
} jjson_options;
jstr *jv_to_json(jrt *rt, jv v, const jjson_options *o);

/* "fmt" % args as Python formats; args: a tuple, a dict or a single value. */
jstr *jformat_percent(jrt *rt, const jstr *fmt, jv args);
struct jargs;
/* fmt.format(*args, **kwargs) */
jstr *jformat_braces(jrt *rt, const jstr *fmt, const struct jargs *args);
/* datetime.strftime of a moment in UTC, without a time zone. */
jstr *jformat_time(jrt *rt, const jstr *fmt, int64_t time_s);

#endif
