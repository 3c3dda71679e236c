#include "base/mem.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"

/*
 * All relaxed: the counter only numbers allocations, and the hook is armed by the test that then allocates
 * (other threads may see it a little later; which of several threads gets number n is not fixed anyway).
 */
static atomic_uint_fast64_t n_allocs;
static atomic_uint_fast64_t fail_number; /* the allocation that fails, 0 = none */
static atomic_bool fail_sticky;

#ifdef HEARTH_DEBUG
static _Thread_local unsigned guard_depth;
#endif

/* Counts one allocation; false if the test hook wants it to fail or no object can be that large. */
static bool may_allocate(size_t n_bytes)
{
#ifdef HEARTH_DEBUG
    if (guard_depth > 0) {
        log_emit(LOG_ERROR, "mem", "event=allocation_in_token_loop bytes=%zu", n_bytes);
        abort();
    }
#endif
    uint64_t number = atomic_fetch_add_explicit(&n_allocs, 1, memory_order_relaxed) + 1;
    if (n_bytes > PTRDIFF_MAX) {
        return false;
    }
    uint64_t target = atomic_load_explicit(&fail_number, memory_order_relaxed);
    if (target == 0) {
        return true;
    }
    bool sticky = atomic_load_explicit(&fail_sticky, memory_order_relaxed);
    return sticky ? number < target : number != target;
}

void *mem_alloc(size_t n_bytes)
{
    return may_allocate(n_bytes) ? malloc(n_bytes ? n_bytes : 1) : NULL;
}

void *mem_calloc(size_t n, size_t size_bytes)
{
    size_t total;
    if (!size_mul(n, size_bytes, &total) || !may_allocate(total)) {
        return NULL;
    }
    return calloc(1, total ? total : 1);
}

void *mem_realloc(void *p, size_t n_bytes)
{
    return may_allocate(n_bytes) ? realloc(p, n_bytes ? n_bytes : 1) : NULL;
}

void *mem_alloc_array(size_t n, size_t size_bytes)
{
    size_t total;
    return size_mul(n, size_bytes, &total) ? mem_alloc(total) : NULL;
}

void *mem_alloc_aligned(size_t align, size_t n_bytes)
{
    void *p = NULL;
    if (!may_allocate(n_bytes)) {
        return NULL;
    }
    if (align < sizeof(void *)) {
        align = sizeof(void *);
    }
    return posix_memalign(&p, align, n_bytes ? n_bytes : 1) == 0 ? p : NULL;
}

char *mem_strdup(const char *s)
{
    return mem_strndup(s, strlen(s));
}

char *mem_strndup(const char *s, size_t n)
{
    size_t total;
    char *p = size_add(n, 1, &total) ? mem_alloc(total) : NULL;
    if (p) {
        memcpy(p, s, n);
        p[n] = '\0';
    }
    return p;
}

void mem_free(void *p)
{
    free(p);
}

void *mem_reserve(size_t n_bytes)
{
    if (!may_allocate(n_bytes)) {
        return NULL;
    }
    void *p = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

void mem_unreserve(void *p, size_t n_bytes)
{
    if (p) {
        munmap(p, n_bytes);
    }
}

bool size_mul(size_t a, size_t b, size_t *out)
{
    size_t r;
    if (__builtin_mul_overflow(a, b, &r)) {
        return false;
    }
    *out = r;
    return true;
}

bool size_add(size_t a, size_t b, size_t *out)
{
    size_t r;
    if (__builtin_add_overflow(a, b, &r)) {
        return false;
    }
    *out = r;
    return true;
}

bool u64_mul(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t r;
    if (__builtin_mul_overflow(a, b, &r)) {
        return false;
    }
    *out = r;
    return true;
}

bool u64_add(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t r;
    if (__builtin_add_overflow(a, b, &r)) {
        return false;
    }
    *out = r;
    return true;
}

void mem_fail_at(uint64_t n, bool sticky)
{
    uint64_t now = atomic_load_explicit(&n_allocs, memory_order_relaxed);
    atomic_store_explicit(&fail_sticky, sticky, memory_order_relaxed);
    atomic_store_explicit(&fail_number, n ? now + n : 0, memory_order_relaxed);
}

uint64_t mem_alloc_count(void)
{
    return atomic_load_explicit(&n_allocs, memory_order_relaxed);
}

void mem_guard_enter(void)
{
#ifdef HEARTH_DEBUG
    guard_depth++;
#endif
}

void mem_guard_leave(void)
{
#ifdef HEARTH_DEBUG
    if (guard_depth > 0) {
        guard_depth--;
    }
#endif
}
