/*
 * json_int: what the files of base/json share. json_lex knows the tokens of RFC 8259, json_parse their order
 * and how they become a tree, json_read looks into that tree.
 *
 * The tree is made of json-c's objects, but not by json-c's own parser: version 0.16 clamps integers, takes
 * NaN, Infinity and single quotes in strict mode, replaces duplicate keys silently and dies of a failed
 * allocation (it does not check the copy of a key's name). The constructors used here report failure.
 */
#ifndef HEARTH_BASE_JSON_INT_H
#define HEARTH_BASE_JSON_INT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/status.h"

/* json-c has types json_type and json_bool, which are not ours: out of sight while its headers are read. */
#define json_bool json_c_bool
#define json_type json_c_type
#include <json-c/json.h>
#undef json_type
#undef json_bool

struct json_doc {
    struct json_object *root; /* owned; NULL = null */
};

/* A place in a text. The functions below expect `at` on the first byte of their token (which the caller has
 * looked at), leave it behind the last, and fail with ST_BAD_REQUEST at the byte at fault. */
typedef struct json_lexer {
    const char *text; /* borrowed [len] */
    size_t len;
    size_t at;
    err *e; /* borrowed, may be NULL */
} json_lexer;

status json_lex_fault(const json_lexer *x, size_t at, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* At the opening quote. *escaped tells whether there is a backslash between the quotes. */
status json_lex_string(json_lexer *x, bool *escaped);
/* At '-' or a digit. Integers (no '.', no 'e') outside [-2^63, 2^64) are refused. */
status json_lex_number(json_lexer *x, bool *is_float);
status json_lex_word(json_lexer *x, const char *word);
/* Appends the decoded form of s[0..n), which is what json_lex_string has passed between two quotes. */
status json_lex_unescape(buf *out, const char *s, size_t n);

#endif
