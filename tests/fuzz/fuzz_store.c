/*
 * fuzz_store: any bytes as a page file. What is taken as a header is spelled again and must come out the same, byte for
 * byte: one header has one spelling, so that nothing that was not written as such passes. Only exactly the page that the
 * checksum was made of passes with it.
 *
 * The mutator sums anew what it changed, else hardly a case would get past the checksum.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "kv/store_folder.h"
#include "kv/store_header.h"

#define MAX_PAGE 4096u
#define SUM_AT   (STORE_HEADER_BYTES - sizeof(uint64_t))

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int random);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size); /* libFuzzer's own */

static void check(bool right)
{
    if (!right) {
        abort();
    }
}

static void try_page(const uint8_t *bytes, const store_header *h, uint8_t *page)
{
    uint8_t again[STORE_HEADER_BYTES];
    err e;
    store_header other = *h;
    uint64_t sum = store_sum(page, h->page_bytes);
    bool passes = store_header_check(bytes, h, sum, &e) == ST_OK;
    store_header_put(h, sum, again);
    check(passes == (memcmp(bytes, again, sizeof again) == 0));
    if (passes) {
        other.ids[0] ^= 1;
        check(store_header_check(bytes, &other, sum, &e) == ST_BAD_FORMAT);
        page[h->page_bytes / 2] ^= 1;
        check(store_header_check(bytes, h, store_sum(page, h->page_bytes), &e) == ST_BAD_FORMAT);
    }
}

static void try_name(const uint8_t *data, size_t size)
{
    char name[256];
    store_key key;
    size_t n = size < sizeof name - 1 ? size : sizeof name - 1;
    memcpy(name, data, n);
    name[n] = '\0';
    (void)store_folder_kind(name, &key);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t page[MAX_PAGE];
    store_header h;
    err e;
    try_name(data, size);
    if (size < STORE_HEADER_BYTES) {
        return 0;
    }
    uint8_t *bytes = malloc(STORE_HEADER_BYTES); /* so that a read past the end is seen */
    memcpy(bytes, data, STORE_HEADER_BYTES);
    if (store_header_get(bytes, &h, &e) == ST_OK) {
        check(h.n_ids >= 1 && h.n_ids <= KV_PAGE_TOKENS);
        (void)store_header_key(&h);
        if (h.page_bytes > 0 && h.page_bytes <= MAX_PAGE) {
            size_t n = size - STORE_HEADER_BYTES;
            memset(page, 0, sizeof page);
            memcpy(page, data + STORE_HEADER_BYTES, n < sizeof page ? n : sizeof page);
            try_page(bytes, &h, page);
        }
    }
    free(bytes);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int random)
{
    size_t n = LLVMFuzzerMutate(data, size, max_size);
    if (n < STORE_HEADER_BYTES && max_size >= STORE_HEADER_BYTES + 64 && random % 4 == 0) {
        store_header h = {.page_bytes = 64, .n_ids = 1 + random / 4 % KV_PAGE_TOKENS};
        uint8_t page[64] = {0};
        for (uint32_t i = 0; i < h.n_ids; i++) {
            h.ids[i] = (int32_t)(random + i);
        }
        store_header_put(&h, store_sum(page, sizeof page), data);
        memcpy(data + STORE_HEADER_BYTES, page, sizeof page);
        return STORE_HEADER_BYTES + sizeof page;
    }
    if (n >= STORE_HEADER_BYTES && random % 8) {
        uint64_t sum = hash64(data, SUM_AT);
        memcpy(data + SUM_AT, &sum, sizeof sum);
    }
    return n;
}
