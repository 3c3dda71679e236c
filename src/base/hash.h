/*
 * hash: SHA-256 (identity; libcrypto EVP) and xxh3 (checksums and tables; libxxhash). The only place for
 * both.
 */
#ifndef HEARTH_BASE_HASH_H
#define HEARTH_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define SHA256_BYTES   32
#define SHA256_HEX_LEN 64

typedef struct sha256 sha256; /* one owner thread */

status sha256_new(sha256 **out);
status sha256_update(sha256 *s, const void *data, size_t n);
status sha256_final(sha256 *s, uint8_t out[SHA256_BYTES]); /* afterwards only sha256_free */
/* The digest of what was given and, behind it, these n bytes; s is as it was. */
status sha256_peek(const sha256 *s, const void *data, size_t n, uint8_t out[SHA256_BYTES]);
void sha256_free(sha256 *s);
status sha256_once(const void *data, size_t n, uint8_t out[SHA256_BYTES]);
void hex_encode(const uint8_t *data, size_t n, char *out); /* 2 n characters and a NUL, lower case */

uint64_t hash64(const void *data, size_t n); /* XXH3_64bits */
/* XXH3 with a seed drawn per process, so that a client or a model file cannot choose keys that collide: for
 * tables in memory only, never for anything that is stored, sent or printed. */
uint64_t hash64_keyed(const void *data, size_t n);

#endif
