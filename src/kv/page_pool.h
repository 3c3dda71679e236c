/*
 * page_pool: the KV pages of one model, all from one mapping, with reference counts.
 *
 * Invariants: a page is free or has >= 1 references; only a page with exactly one reference may be written,
 * and a page that ever had a second one is immutable from then on (page_pool_may_write). Free pages come back
 * in LIFO order. Memory is reserved at once and touched on first use; in debug builds a page handed out is
 * filled with NaN (0xFF) so that reading an unwritten row shows.
 *
 * Limit: at most so many pages are handed out, of those that were reserved (page_pool_total; at first all of them). It
 * may be lowered below what is in use: then none is available until enough have come back. Free pages beyond it have
 * no memory, which went back to the system (all but what shares a system page with a neighbour).
 *
 * Thread: the engine's only. Errors: ST_NOMEM at creation, ST_CAPACITY when no page may be taken.
 */
#ifndef HEARTH_KV_PAGE_POOL_H
#define HEARTH_KV_PAGE_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct page_pool page_pool;
typedef int32_t page_id;

status page_pool_new(size_t page_bytes, size_t n_pages, page_pool **out, err *e);
void page_pool_free(page_pool *p);
size_t page_pool_total(const page_pool *p);     /* reserved */
size_t page_pool_used(const page_pool *p);      /* that have references */
size_t page_pool_available(const page_pool *p); /* that can be taken now */
size_t page_pool_backed(const page_pool *p);    /* that have memory, free or not */
size_t page_pool_limit(const page_pool *p);
void page_pool_set_limit(page_pool *p, size_t n_pages); /* 1 … page_pool_total, else the nearest of these */
size_t page_pool_page_bytes(const page_pool *p);

status page_pool_take(page_pool *p, page_id *out); /* one reference */
void page_pool_ref(page_pool *p, page_id id);
void page_pool_unref(page_pool *p, page_id id); /* the last one frees it */
uint32_t page_pool_refs(const page_pool *p, page_id id);
bool page_pool_may_write(const page_pool *p, page_id id);
void *page_pool_addr(const page_pool *p, page_id id);

#endif
