/*
 * arena: memory with one lifetime (model, session, request or step).
 *
 * Allocation bumps a pointer in chunks taken from mem.h; single objects are never freed. One owner thread at
 * a time. Every pointer dies at arena_reset (chunks kept for reuse) or arena_release (chunks returned).
 */
#ifndef HEARTH_BASE_ARENA_H
#define HEARTH_BASE_ARENA_H

#include <stddef.h>

typedef struct arena_chunk arena_chunk;
typedef struct arena {
    arena_chunk *head;  /* owned: chunk being filled, older ones behind it */
    arena_chunk *spare; /* owned: emptied by reset, reused before new ones are taken */
    size_t chunk_bytes;
    size_t used_bytes; /* handed out since the last reset */
} arena;

void arena_init(arena *a, size_t chunk_bytes);
void arena_release(arena *a); /* an arena that is all zero is fine */
void arena_reset(arena *a);
/* Aligned to 64 bytes if n_bytes >= 64, else to 16. NULL when out of memory. Not zeroed. */
void *arena_alloc(arena *a, size_t n_bytes);
void *arena_calloc(arena *a, size_t n, size_t size_bytes);      /* zeroed, product checked */
void *arena_alloc_array(arena *a, size_t n, size_t size_bytes); /* product checked */
char *arena_strndup(arena *a, const char *s, size_t n);         /* n bytes and a NUL */

#endif
