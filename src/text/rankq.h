/*
 * rankq: a queue of (rank, item) that gives the smallest rank first, and of one rank the smallest item first:
 * a binary heap of 8-byte keys.
 *
 * One owner thread; all-zero is a valid empty queue. Pushing may fail with ST_NOMEM and leaves the queue as
 * it was.
 */
#ifndef HEARTH_TEXT_RANKQ_H
#define HEARTH_TEXT_RANKQ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct rankq {
    uint64_t *keys; /* owned: rank in the high half, item in the low half */
    size_t n, cap;
} rankq;

void rankq_release(rankq *q);
void rankq_reset(rankq *q); /* empty, memory kept */
status rankq_push(rankq *q, uint32_t rank, uint32_t item);
bool rankq_pop(rankq *q, uint32_t *rank, uint32_t *item); /* false: empty */
/* The same, but only if what would come is smaller than (rank, item) as they stand before the call. */
bool rankq_pop_below(rankq *q, uint32_t *rank, uint32_t *item);

#endif
