/*
 * fuzz_exchange: whoever imports. Any bytes are a range of this shape or refused by name; the same with the checksum
 * put right, so that what is behind it is reached. What was read gives the same bytes again when it is written.
 */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "kv/exchange.h"

#define MAX_PAGES 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok) {
        abort();
    }
}

/* The first byte says which: type, and one of two shapes. */
static size_t choose(uint8_t which, kv_layer layers[2], exchange_shape *s)
{
    static const kv_dims dims[][2] = {{{1, 2, 3, false}, {2, 33, 1, false}},
                                      {{1, 5, 4, true}, {1, 1, 1, false}}};
    size_t page_bytes = 0;
    memset(s, 0, sizeof *s);
    s->type = which % KV_TYPE_COUNT;
    s->layers = layers;
    s->n_layers = which & 8 ? 2 : 1;
    must(kv_layout_init(s->type, dims[which >> 2 & 1], s->n_layers, layers, &page_bytes) == ST_OK);
    return page_bytes;
}

static void write_again(const exchange_shape *s, size_t page_bytes, const exchange_range *r,
                        const uint8_t *data, size_t size)
{
    size_t n = r->from + r->count, n_pages = (n + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
    void *pages[MAX_PAGES] = {0};
    buf out = {0};
    if (n_pages > MAX_PAGES) {
        return;
    }
    int32_t *ids = malloc(n * sizeof *ids);
    for (size_t i = 0; i < n; i++) {
        ids[i] = exchange_id(r, i);
    }
    for (size_t p = r->from / KV_PAGE_TOKENS; p < n_pages; p++) {
        pages[p] = calloc(1, page_bytes);
    }
    for (size_t i = r->from; i < n; i++) {
        exchange_put_rows(s, r, i, 1, pages[i / KV_PAGE_TOKENS]);
    }
    must(exchange_write(s, ids, r->from, r->count, pages, &out) == ST_OK);
    must(out.len == size && memcmp(out.data, data, size) == 0);
    for (size_t p = 0; p < n_pages; p++) {
        free(pages[p]);
    }
    free(ids);
    buf_release(&out);
}

static void try(const exchange_shape *s, size_t page_bytes, const uint8_t *data, size_t size)
{
    exchange_range r;
    err e;
    err_clear(&e);
    if (exchange_read(s, data, size, &r, &e) == ST_OK) {
        write_again(s, page_bytes, &r, data, size);
    } else {
        must(e.code == ST_INVALID_FIELD && e.field[0] != '\0' && e.msg[0] != '\0');
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    kv_layer layers[2];
    exchange_shape s;
    if (size < 1) {
        return 0;
    }
    size_t page_bytes = choose(data[0], layers, &s);
    try(&s, page_bytes, data + 1, size - 1);
    if (size > 1 + sizeof(uint64_t)) {
        uint8_t *copy = malloc(size - 1);
        memcpy(copy, data + 1, size - 1);
        uint64_t sum = hash64(copy, size - 1 - sizeof sum);
        memcpy(copy + size - 1 - sizeof sum, &sum, sizeof sum);
        try(&s, page_bytes, copy, size - 1);
        free(copy);
    }
    return 0;
}
