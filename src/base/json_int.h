/*
 * json_int: what the files of base/json share. json_lex checks a text against the strict grammar, json_keys
 * finds duplicate keys for it; after that json-c only has to build the tree.
 */
#ifndef HEARTH_BASE_JSON_INT_H
#define HEARTH_BASE_JSON_INT_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/status.h"

/* json-c counts in int, and the offsets of keys are kept in 32 bits. */
#define JSON_MAX_BYTES ((size_t)1 << 30)

/* The whole contract of json_parse but for building the tree. Constant C stack, linear time. */
status json_lex_check(const char *text, size_t len, size_t max_depth, err *e);

/*
 * Keys seen so far, of all objects of one text, in one hash table. All-zero is empty. One owner thread.
 */
typedef struct json_key {
    uint64_t hash; /* of the decoded key and its object's number */
    uint32_t object;
    uint32_t at;   /* offset of the decoded key: in the text, or in `decoded` */
    uint32_t len;  /* bytes of the decoded key */
    uint32_t kind; /* JSON_KEY_FREE, _IN_TEXT, _DECODED */
} json_key;

enum { JSON_KEY_FREE, JSON_KEY_IN_TEXT, JSON_KEY_DECODED };

typedef struct json_keys {
    const char *text; /* borrowed */
    json_key *slots;  /* owned [n_slots], a power of two, at most half in use */
    size_t n_slots;
    size_t count;
    buf decoded; /* keys that had escapes */
} json_keys;

void json_keys_release(json_keys *k);
/* Adds the key whose source (between the quotes, already checked) is text[at..at+len) to object number
 * `object`. ST_BAD_REQUEST at the key's offset if that object has it already or if it holds U+0000. */
status json_keys_add(json_keys *k, uint32_t object, size_t at, size_t len, err *e);

#endif
