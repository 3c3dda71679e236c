/*
 * json: strict reading, and a small writer.
 *
 * Reading accepts exactly one JSON text (RFC 8259) in valid UTF-8 and refuses, with the byte offset: anything
 * after it but white space, NaN/Infinity/comments/single quotes, lone surrogate escapes, duplicate keys in
 * one object (compared decoded), keys with U+0000, nesting deeper than the limit, integer literals (no '.',
 * 'e') outside [-2^63, 2^64), and float literals that overflow to infinity. Strings have a length and may
 * hold U+0000. Linear time (duplicate keys are found by hashing), constant C stack; a document takes its text
 * and at most 64 bytes per value or member, in one arena.
 *
 * A `json` is a borrowed view into the document that owns it; the document is freed once, with json_doc_free.
 * A document may be read by several threads, freed by one.
 */
#ifndef HEARTH_BASE_JSON_H
#define HEARTH_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

#define JSON_MAX_BYTES ((size_t)1 << 30)
#define JSON_MAX_DEPTH 256 /* the wire's limit; containers may nest this deep, one more is refused */

typedef struct json_doc json_doc;
typedef struct json json; /* NULL stands for JSON null */

typedef enum json_type {
    JSON_NULL,
    JSON_BOOL,
    JSON_INT,
    JSON_DOUBLE,
    JSON_STRING,
    JSON_ARRAY,
    JSON_OBJECT
} json_type;

/* ST_BAD_REQUEST with offset on any fault (a duplicate key is named in e->field), ST_NOMEM. A max_depth above
 * JSON_MAX_DEPTH means JSON_MAX_DEPTH. */
status json_parse(const char *text, size_t len, size_t max_depth, json_doc **out, err *e);
void json_doc_free(json_doc *d);
size_t json_doc_bytes(const json_doc *d); /* of memory that it holds, about */
const json *json_root(const json_doc *d);
/* Without memory, for a text that there was none to parse: the first member of this name (no U+0000) of the object that
 * the text is or begins with; what comes behind it is not looked at. False: there is none, or it is no string, or has
 * more than JSON_PEEK_BYTES. */
#define JSON_PEEK_BYTES 256
bool json_peek_string(const char *text, size_t len, const char *key, char dst[JSON_PEEK_BYTES], size_t *n);

json_type json_kind(const json *v);
/* Object member by NUL-terminated key: true if the key is present (its value may be null = NULL). */
bool json_get(const json *obj, const char *key, const json **out);
size_t json_len(const json *v); /* members of an object, elements of an array, else 0 */
const json *json_at(const json *arr, size_t i);
/* The i-th member in document order is visited by iteration: return false from fn to stop early. */
typedef bool (*json_member_fn)(void *ctx, const char *key, size_t key_len, const json *v);
void json_each(const json *obj, json_member_fn fn, void *ctx);
const char *json_string(const json *v, size_t *len); /* NULL if not a string; borrowed; NUL-terminated too */
bool json_i64(const json *v, int64_t *out);          /* integer literals that fit */
bool json_u64(const json *v, uint64_t *out);
bool json_f64(const json *v, double *out); /* integer or float literal */
bool json_bool(const json *v, bool *out);

/*
 * Writer: appends compact JSON to a buf. Commas are put where needed. Strings are repaired to valid UTF-8
 * (U+FFFD) and escaped; control characters (C0, DEL, C1), quote, backslash and U+2028/9 are escaped.
 * Non-finite numbers are written as null. Errors (memory) are sticky and returned by json_w_end.
 */
typedef struct json_w {
    buf *out; /* borrowed */
    status st;
    unsigned depth;
    bool need_comma;
} json_w;

void json_w_begin(json_w *w, buf *out);
status json_w_end(json_w *w);
void json_w_obj_open(json_w *w);
void json_w_obj_close(json_w *w);
void json_w_arr_open(json_w *w);
void json_w_arr_close(json_w *w);
void json_w_key(json_w *w, const char *key);
void json_w_str(json_w *w, const char *s, size_t n);
void json_w_cstr(json_w *w, const char *s);
void json_w_i64(json_w *w, int64_t v);
void json_w_u64(json_w *w, uint64_t v);
void json_w_f64(json_w *w, double v);               /* shortest text that reads back equal */
void json_w_fixed(json_w *w, double v, int digits); /* %.*f, for times and rates */
void json_w_bool(json_w *w, bool v);
void json_w_null(json_w *w);
/* A whole value, so that reading it gives an equal one: a float literal stays one. Recursion as deep as it
 * nests, at most JSON_MAX_DEPTH. */
void json_w_json(json_w *w, const json *v);

#endif
