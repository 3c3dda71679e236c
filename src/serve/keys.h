/*
 * keys: who may ask. A file has one `NAME SHA256HEX` per line (the digest of the key, lower or upper case),
 * blank lines and lines that begin with # are skipped; no name and no digest is there twice.
 *
 * A key comes as "Authorization: Bearer KEY" or "x-api-key: KEY". What came is hashed and compared with every
 * row, without an early exit, so that time tells nothing about the rows.
 *
 * Immutable once open: any thread may ask. Limits: KEYS_MAX_ROWS, KEYS_MAX_NAME, KEYS_MAX_FILE_BYTES.
 */
#ifndef HEARTH_SERVE_KEYS_H
#define HEARTH_SERVE_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "wire/text.h"

#define KEYS_MAX_ROWS       10000
#define KEYS_MAX_NAME       47
#define KEYS_MAX_FILE_BYTES ((size_t)4 << 20)
#define KEYS_ANONYMOUS      0u /* whose turn it is where no keys are asked for */

typedef struct keys keys;

/* ST_IO; ST_BAD_FORMAT with the line at fault (also for a file without a key); ST_NOMEM. */
status keys_open(const char *path, keys **out, err *e);
status keys_parse(const char *text, size_t len, keys **out, err *e);
void keys_free(keys *k);
/* Values of the two headers, NULL if absent; the first counts if it is a bearer token. True: *index (1 …) is
 * the row. */
bool keys_find(const keys *k, const char *authorization, const char *x_api_key, uint32_t *index);
/* What keys_namespace gives, the other way round. False: there is no such key (any more). */
bool keys_index(const keys *k, const char *name, size_t len, uint32_t *index);
const char *keys_name(const keys *k, uint32_t index); /* an index that keys_find gave */
/* The cache_namespace of its requests: what a worker keeps of them is found by those of the same key only. k may be
 * NULL, index KEYS_ANONYMOUS: the common one. Borrowed. */
wire_string keys_namespace(const keys *k, uint32_t index);

#endif
