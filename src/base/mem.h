/*
 * mem: every allocation of the project, and checked size arithmetic.
 *
 * Any thread. mem_alloc(0) returns a unique pointer. Nothing here aborts on exhaustion: NULL is returned and
 * the caller reports ST_NOMEM. Two test hooks: mem_fail_at makes the n-th allocation from now fail (and every
 * later one if `sticky`), and mem_guard_enter forbids allocation on the calling thread until mem_guard_leave:
 * the token loop runs inside it, and a debug build aborts on an allocation there.
 */
#ifndef HEARTH_BASE_MEM_H
#define HEARTH_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void *mem_alloc(size_t n_bytes);
void *mem_calloc(size_t n, size_t size_bytes);         /* zeroed; NULL if n * size_bytes overflows */
void *mem_realloc(void *p, size_t n_bytes);            /* p stays valid on failure */
void *mem_alloc_array(size_t n, size_t size_bytes);    /* not zeroed; NULL if the product overflows */
void *mem_alloc_aligned(size_t align, size_t n_bytes); /* align: power of two; free with mem_free */
char *mem_strdup(const char *s);
char *mem_strndup(const char *s, size_t n); /* copies exactly n bytes and adds a NUL */
void mem_free(void *p);                     /* NULL is fine */

/* Address space, page-aligned, that reads as zero and costs memory only where it is written (a mapping: what
 * malloc fills or recycles it never touches). n_bytes > 0; give it back with the same size. */
void *mem_reserve(size_t n_bytes);
void mem_unreserve(void *p, size_t n_bytes); /* NULL is fine */

/* out is written only on success (true). */
bool size_mul(size_t a, size_t b, size_t *out);
bool size_add(size_t a, size_t b, size_t *out);
bool u64_mul(uint64_t a, uint64_t b, uint64_t *out);
bool u64_add(uint64_t a, uint64_t b, uint64_t *out);

/* Tests only: the n-th allocation from now (1 = the next) fails; 0 turns the hook off. Process-wide. */
void mem_fail_at(uint64_t n, bool sticky);
uint64_t mem_alloc_count(void); /* allocations since the process started (for tests that enumerate N) */

/* Nestable, per thread. In release builds both do nothing. */
void mem_guard_enter(void);
void mem_guard_leave(void);

#endif
