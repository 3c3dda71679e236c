/*
 * query: the query of a target ("from=3&count=5"), field by field, and the %-escapes in it and in a path.
 *
 * Pure functions, any thread. Limits: QUERY_VALUE_BYTES; a field is there at most once.
 */
#ifndef HEARTH_SERVE_QUERY_H
#define HEARTH_SERVE_QUERY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define QUERY_VALUE_BYTES 256

typedef struct query_field {
    const char *name;
    bool given;
    char value[QUERY_VALUE_BYTES]; /* "" if it is not given */
} query_field;

/* Undoes the escapes of s[0..n) into out, with a NUL behind it. False: it does not fit, is malformed or holds a NUL.
 * plus: '+' is a blank, as in queries. */
bool query_unescape(const char *s, size_t n, bool plus, char *out, size_t cap);
/* Fills the fields. False: *e says what is wrong with it: ST_INVALID_FIELD, or ST_UNSUPPORTED for a name that is not
 * among them. */
bool query_read(const char *query, query_field *fields, size_t n_fields, err *e);
/* A field that is given, as an integer in [min, 2^63): decimal digits alone. */
bool query_int(const query_field *f, int64_t min, int64_t *out, err *e);

#endif
