/*
 * store_header: the first bytes of a page file.
 *
 *   offset  bytes
 *        0      8  magic "hearthpg"
 *        8      4  version of this format
 *       12      4  number of ids, 1 … KV_PAGE_TOKENS
 *       16      8  bytes of the page, which follows the header
 *       24     32  root key
 *       56     32  key of the parent's file; zeros: there is none
 *       88     32  layout identity
 *      120    128  ids, int32; zeros behind the last
 *      248    248  zeros
 *      496      8  sum of the page
 *      504      8  XXH3 of the 504 bytes before this
 *
 * Little-endian. One header has one spelling: what is not used is zero, so that two are the same exactly if their bytes
 * are. The header's checksum covers that of the page: a file of which any byte is another does not pass. The sum of a
 * page is made in steps, so that each is summed while it is still in the cache: from 0, with each STORE_STEP_BYTES of it
 * (the last may be fewer), XXH3 of (the sum so far, XXH3 of these bytes).
 *
 * Pure functions on memory; any thread. Nothing is trusted.
 */
#ifndef HEARTH_KV_STORE_HEADER_H
#define HEARTH_KV_STORE_HEADER_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "kern/kv_layout.h"
#include "kv/store.h"

#define STORE_HEADER_BYTES   512u
#define STORE_FORMAT_VERSION 1u
#define STORE_STEP_BYTES     262144u

typedef struct store_header {
    kv_root_key root;
    store_key parent; /* zeros: none */
    uint8_t layout[32];
    uint64_t page_bytes;
    uint32_t n_ids;
    int32_t ids[KV_PAGE_TOKENS];
} store_header;

/* n: 1 … KV_PAGE_TOKENS. */
void store_header_make(store_header *h, const kv_root_key *root, const store_key *parent, const int32_t *ids,
                       size_t n);
/* The key of the file that this is the header of; zeros if there is no memory. */
store_key store_header_key(const store_header *h);

/* The sum after the next step. */
uint64_t store_sum_step(uint64_t sum, const void *bytes, size_t n);
uint64_t store_sum(const void *page, size_t n);

void store_header_put(const store_header *h, uint64_t page_sum, uint8_t out[STORE_HEADER_BYTES]);
/* Everything but the page's sum. ST_BAD_FORMAT, saying what is wrong. */
status store_header_get(const uint8_t bytes[STORE_HEADER_BYTES], store_header *out, err *e);
/* Whether it is exactly this header, in front of a page of this sum. ST_BAD_FORMAT, naming what differs. */
status store_header_check(const uint8_t bytes[STORE_HEADER_BYTES], const store_header *want,
                          uint64_t page_sum, err *e);

#endif
