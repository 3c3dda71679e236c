#include "engine/resident.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

status resident_reserve(resident *r, size_t n_tokens)
{
    size_t n_pages = resident_pages_for(n_tokens);
    if (n_tokens > r->ids.len) {
        status st = ivec_reserve(&r->ids, n_tokens - r->ids.len);
        if (st != ST_OK) {
            return st;
        }
    }
    if (n_pages <= r->cap_pages) {
        return ST_OK;
    }
    size_t id_bytes, addr_bytes;
    if (!size_mul(n_pages, sizeof *r->pages, &id_bytes) ||
        !size_mul(n_pages, sizeof *r->addrs, &addr_bytes)) {
        return ST_NOMEM;
    }
    page_id *pages = mem_realloc(r->pages, id_bytes);
    if (!pages) {
        return ST_NOMEM;
    }
    r->pages = pages; /* larger than cap_pages says if the next one fails: harmless */
    void **addrs = mem_realloc(r->addrs, addr_bytes);
    if (!addrs) {
        return ST_NOMEM;
    }
    r->addrs = addrs;
    r->cap_pages = n_pages;
    return ST_OK;
}

void resident_release(resident *r, page_pool *pool)
{
    resident_truncate(r, pool, 0);
    ivec_release(&r->ids);
    mem_free(r->pages);
    mem_free(r->addrs);
    memset(r, 0, sizeof *r);
}

void resident_truncate(resident *r, page_pool *pool, size_t n_tokens)
{
    size_t keep = resident_pages_for(n_tokens);
    assert(n_tokens <= r->ids.len);
    while (r->n_pages > keep) {
        page_pool_unref(pool, r->pages[--r->n_pages]);
    }
    ivec_truncate(&r->ids, n_tokens);
}

status resident_cover(resident *r, page_pool *pool, size_t n_tokens)
{
    size_t need = resident_pages_for(n_tokens);
    assert(need <= r->cap_pages);
    while (r->n_pages < need) {
        status st = page_pool_take(pool, &r->pages[r->n_pages]);
        if (st != ST_OK) {
            return st;
        }
        r->addrs[r->n_pages] = page_pool_addr(pool, r->pages[r->n_pages]);
        r->n_pages++;
    }
    return ST_OK;
}

void resident_adopt(resident *r, page_pool *pool, const int32_t *ids, size_t n_tokens, const page_id *pages)
{
    assert(r->n_pages == 0 && r->ids.len == 0 && n_tokens % KV_PAGE_TOKENS == 0);
    for (size_t i = 0; i < n_tokens / KV_PAGE_TOKENS; i++) {
        page_pool_ref(pool, pages[i]);
        r->pages[i] = pages[i];
        r->addrs[i] = page_pool_addr(pool, pages[i]);
    }
    r->n_pages = n_tokens / KV_PAGE_TOKENS;
    status st = ivec_append(&r->ids, ids, n_tokens);
    assert(st == ST_OK); /* reserved */
    (void)st;
}

status resident_copy_tail(resident *r, page_pool *pool, const int32_t *ids, size_t n, const void *page)
{
    assert(r->n_pages * KV_PAGE_TOKENS == r->ids.len && n < KV_PAGE_TOKENS);
    status st = resident_cover(r, pool, r->ids.len + n);
    if (st != ST_OK || n == 0) {
        return st;
    }
    memcpy(r->addrs[r->n_pages - 1], page, page_pool_page_bytes(pool));
    st = ivec_append(&r->ids, ids, n);
    assert(st == ST_OK); /* reserved */
    return st;
}
