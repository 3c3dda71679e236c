/*
 * resident: the tokens of one sequence or session whose K and V are in its pages.
 *
 * Invariants: ids are exactly the tokens computed into the pages, in order; pages cover at least that many
 * positions; addrs[i] is the address of pages[i]. Pages below the first one that r has alone are the tree's, too, and
 * hold nothing but ids; behind it nothing is shared, so what is still to be written is in pages of its own.
 *
 * Engine thread. Owned by a lane (lanes.h); the page pool is borrowed by every call.
 * All-zero is a valid empty one.
 */
#ifndef HEARTH_ENGINE_RESIDENT_H
#define HEARTH_ENGINE_RESIDENT_H

#include <stddef.h>

#include "base/status.h"
#include "base/vec.h"
#include "kern/kv_layout.h"
#include "kv/page_pool.h"

typedef struct resident {
    /* owned */
    ivec ids;
    page_id *pages; /* [cap_pages] */
    void **addrs;   /* [cap_pages] */
    size_t n_pages;
    size_t cap_pages;
} resident;

/* Pages that n positions take. */
static inline size_t resident_pages_for(size_t n_tokens)
{
    return n_tokens / KV_PAGE_TOKENS + (n_tokens % KV_PAGE_TOKENS != 0);
}

/* Memory for n_tokens in all, so that covering and appending up to there allocates nothing. Takes no page. */
status resident_reserve(resident *r, size_t n_tokens);
/* Gives everything back. */
void resident_release(resident *r, page_pool *pool);
/* Keeps the first n_tokens (at most as many as there are) and only the pages these need. */
void resident_truncate(resident *r, page_pool *pool, size_t n_tokens);
/* Takes pages until n_tokens positions are covered; within what was reserved. ST_CAPACITY: those it got stay.
 */
status resident_cover(resident *r, page_pool *pool, size_t n_tokens);
/* The first n_tokens (whole pages) of ids are in pages that somebody else has, too: takes a reference on each. r is
 * empty; within what was reserved. */
void resident_adopt(resident *r, page_pool *pool, const int32_t *ids, size_t n_tokens, const page_id *pages);
/* The next n < KV_PAGE_TOKENS ids are in a page of somebody else's: takes a page and copies it. r ends at the end of a
 * page; within what was reserved. ST_CAPACITY: nothing changed. */
status resident_copy_tail(resident *r, page_pool *pool, const int32_t *ids, size_t n, const void *page);

#endif
