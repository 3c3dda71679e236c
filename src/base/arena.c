#include "base/arena.h"

#include <stdint.h>
#include <string.h>

#include "base/mem.h"

#define LINE_BYTES          64
#define DEFAULT_CHUNK_BYTES ((size_t)64 * 1024)

/* The payload begins one cache line after the header, so offsets in it keep the chunk's 64-byte alignment. */
struct arena_chunk {
    arena_chunk *next; /* owned */
    size_t cap_bytes;  /* of the payload */
    size_t used_bytes;
};

_Static_assert(sizeof(arena_chunk) <= LINE_BYTES, "the payload begins one line after the header");

static char *payload(arena_chunk *c)
{
    return (char *)c + LINE_BYTES;
}

static void free_list(arena_chunk *c)
{
    while (c) {
        arena_chunk *next = c->next;
        mem_free(c);
        c = next;
    }
}

void arena_init(arena *a, size_t chunk_bytes)
{
    memset(a, 0, sizeof *a);
    a->chunk_bytes = chunk_bytes;
}

void arena_release(arena *a)
{
    if (!a) {
        return;
    }
    free_list(a->head);
    free_list(a->spare);
    a->head = a->spare = NULL;
    a->used_bytes = 0;
}

void arena_reset(arena *a)
{
    while (a->head) {
        arena_chunk *c = a->head;
        a->head = c->next;
        c->used_bytes = 0;
        c->next = a->spare;
        a->spare = c;
    }
    a->used_bytes = 0;
}

/* Moves the first spare chunk of at least n_bytes out of the spare list, or takes a new one. */
static arena_chunk *chunk_take(arena *a, size_t n_bytes)
{
    for (arena_chunk **at = &a->spare; *at; at = &(*at)->next) {
        arena_chunk *c = *at;
        if (c->cap_bytes >= n_bytes) {
            *at = c->next;
            return c;
        }
    }
    size_t cap = a->chunk_bytes ? a->chunk_bytes : DEFAULT_CHUNK_BYTES;
    size_t total;
    if (cap < n_bytes) {
        cap = n_bytes;
    }
    if (!size_add(cap, LINE_BYTES, &total)) {
        return NULL;
    }
    arena_chunk *c = mem_alloc_aligned(LINE_BYTES, total);
    if (c) {
        c->cap_bytes = cap;
        c->used_bytes = 0;
    }
    return c;
}

/* Offset of an aligned run of n_bytes in c; false if it does not fit. */
static bool chunk_fit(const arena_chunk *c, size_t n_bytes, size_t *at)
{
    size_t align = n_bytes >= LINE_BYTES ? LINE_BYTES : 16;
    size_t start = (c->used_bytes + align - 1) & ~(align - 1); /* used <= cap, far from SIZE_MAX */
    if (start > c->cap_bytes || n_bytes > c->cap_bytes - start) {
        return false;
    }
    *at = start;
    return true;
}

void *arena_alloc(arena *a, size_t n_bytes)
{
    size_t at = 0;
    arena_chunk *c = a->head;
    if (n_bytes == 0) {
        n_bytes = 1; /* every call has a pointer of its own */
    }
    if (!c || !chunk_fit(c, n_bytes, &at)) {
        c = chunk_take(a, n_bytes);
        if (!c) {
            return NULL;
        }
        at = 0;
        if (a->head && a->head->cap_bytes - a->head->used_bytes > c->cap_bytes - n_bytes) {
            c->next = a->head->next; /* the older chunk has more room left: it stays the one being filled */
            a->head->next = c;
        } else {
            c->next = a->head;
            a->head = c;
        }
    }
    c->used_bytes = at + n_bytes;
    a->used_bytes += n_bytes;
    return payload(c) + at;
}

void *arena_alloc_array(arena *a, size_t n, size_t size_bytes)
{
    size_t total;
    return size_mul(n, size_bytes, &total) ? arena_alloc(a, total) : NULL;
}

void *arena_calloc(arena *a, size_t n, size_t size_bytes)
{
    size_t total;
    void *p = size_mul(n, size_bytes, &total) ? arena_alloc(a, total) : NULL;
    if (p) {
        memset(p, 0, total);
    }
    return p;
}

char *arena_strndup(arena *a, const char *s, size_t n)
{
    size_t total;
    char *p = size_add(n, 1, &total) ? arena_alloc(a, total) : NULL;
    if (p) {
        memcpy(p, s, n);
        p[n] = '\0';
    }
    return p;
}
