#include "text/rankq.h"

#include <string.h>

#include "base/mem.h"

#define MIN_CAP 64

static uint64_t key_of(uint32_t rank, uint32_t item)
{
    return (uint64_t)rank << 32 | item;
}

void rankq_release(rankq *q)
{
    if (q) {
        mem_free(q->keys);
        memset(q, 0, sizeof *q);
    }
}

void rankq_reset(rankq *q)
{
    q->n = 0;
}

status rankq_push(rankq *q, uint32_t rank, uint32_t item)
{
    uint64_t key = key_of(rank, item);
    if (q->n == q->cap) {
        size_t cap = q->cap ? q->cap * 2 : MIN_CAP, bytes;
        uint64_t *keys = size_mul(cap, sizeof *keys, &bytes) ? mem_realloc(q->keys, bytes) : NULL;
        if (!keys) {
            return ST_NOMEM;
        }
        q->keys = keys;
        q->cap = cap;
    }
    size_t i = q->n++;
    while (i > 0 && q->keys[(i - 1) / 2] > key) {
        q->keys[i] = q->keys[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    q->keys[i] = key;
    return ST_OK;
}

bool rankq_pop(rankq *q, uint32_t *rank, uint32_t *item)
{
    if (q->n == 0) {
        return false;
    }
    uint64_t top = q->keys[0], last = q->keys[--q->n];
    size_t i = 0, c = 1;
    while (c + 1 < q->n) {
        c += q->keys[c + 1] < q->keys[c]; /* no branch: the processor could only guess */
        if (q->keys[c] >= last) {
            break;
        }
        q->keys[i] = q->keys[c];
        i = c;
        c = 2 * i + 1;
    }
    if (c + 1 == q->n && q->keys[c] < last) {
        q->keys[i] = q->keys[c];
        i = c;
    }
    q->keys[i] = last;
    *rank = (uint32_t)(top >> 32);
    *item = (uint32_t)top;
    return true;
}

bool rankq_pop_below(rankq *q, uint32_t *rank, uint32_t *item)
{
    return q->n > 0 && q->keys[0] < key_of(*rank, *item) && rankq_pop(q, rank, item);
}
