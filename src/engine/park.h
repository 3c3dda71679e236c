/*
 * park: copies of the pages of preempted sequences in memory outside of the page pool, within a byte budget. An
 * image holds the K and V of a number of tokens; who has none computes them again from the tokens, with the same
 * bits. (Images on disk come with the store.)
 *
 * Engine thread.
 */
#ifndef HEARTH_ENGINE_PARK_H
#define HEARTH_ENGINE_PARK_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "engine/resident.h"
#include "kv/page_pool.h"

typedef struct park park;             /* the budget and what is in use of it */
typedef struct park_image park_image; /* owned by the sequence that it is of */

status park_new(size_t budget_bytes, park **out);
void park_free(park *p); /* every image must have been dropped (asserted); NULL is fine */
/* Less than what is in use: no further copies until enough of them are gone. */
void park_set_budget(park *p, size_t budget_bytes);
bool park_is_over(const park *p); /* more is in use than the budget is */
size_t park_bytes_used(const park *p);
size_t park_images(const park *p);

/* Copies the pages of kv that its ids need, and nothing of what it covers beyond; kv is as it was. The budget counts
 * the bytes of pages. ST_CAPACITY: over the budget; ST_NOMEM; then there is no image. */
status park_save(park *p, const resident *kv, const page_pool *pool, park_image **out);
size_t park_image_tokens(const park_image *img);
/* Takes pages and copies up to max_pages (>= 1) of the image behind those that kv has got from it; kv is empty
 * before the first call, with memory reserved for the image's tokens (resident_reserve), and has all of them after
 * the last. ids: the image's tokens. *complete: all are back. ST_CAPACITY: no free page; what came back stays. No
 * allocation. */
status park_load(const park_image *img, resident *kv, page_pool *pool, const int32_t *ids, size_t max_pages,
                 bool *complete);
void park_drop(park *p, park_image *img); /* NULL is fine */

#endif
