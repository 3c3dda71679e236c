/*
 * json_int: what the files of base/json share. json_lex knows the tokens of RFC 8259, json_parse their order
 * and how they become a tree, json_read looks into that tree.
 *
 * A document is one arena: a copy of the text, in which each string is decoded where it stands (no decoded
 * string is longer than its source, and its NUL falls on the closing quote or before it), and for each
 * container that is not empty one run of nodes:
 *
 *   array:   [len] nodes
 *   object:  [2 * len] nodes: key, value, key, value ... (keys are JSON_STRING); if len > JSON_SMALL_OBJECT, behind
 *            them a hash table of uint32_t [json_index_slots(len)]: 0 = free, else member number + 1
 */
#ifndef HEARTH_BASE_JSON_INT_H
#define HEARTH_BASE_JSON_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/status.h"

#define JSON_SMALL_OBJECT 8 /* members up to which looking at each beats hashing */

struct json {
    uint8_t type; /* json_type */
    bool is_u64;  /* JSON_INT above INT64_MAX: u64 holds it */
    uint32_t len; /* bytes, elements or members */
    union {
        bool boolean;
        int64_t i64;
        uint64_t u64;
        double f64;
        const char *string;
        json *nodes; /* NULL if empty */
    } as;
};

struct json_doc {
    arena mem; /* owned: all of the document but this struct */
    json root;
};

/* A power of two, at most half of it in use; len > JSON_SMALL_OBJECT. */
size_t json_index_slots(size_t len);
/* The number of the first member with this key, or SIZE_MAX. Where obj has an index and the key is not in it,
 * *slot (if not NULL) is the free entry where it would go. */
size_t json_member_find(const json *obj, const char *key, size_t key_len, uint32_t **slot);

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
/* Writes the decoded form of s[0..n), which json_lex_string has passed between two quotes, to dst and returns
 * its length (<= n). dst and s must not overlap. */
size_t json_lex_unescape(char *dst, const char *s, size_t n);

#endif
