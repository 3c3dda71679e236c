/*
 * How many blocks are alive: the linker puts these in the place of malloc and its kin for all that is linked into
 * the program (-Wl,--wrap; meson.build), so what base/mem.c gives out is counted while src/ stays as it is.
 */
#include <stdint.h>
#include <stdlib.h>

#include "sim/world.h"

static int64_t live;

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
int __real_posix_memalign(void **out, size_t align, size_t n);
void __real_free(void *p);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
int __wrap_posix_memalign(void **out, size_t align, size_t n);
void __wrap_free(void *p);

void *__wrap_malloc(size_t n)
{
    void *p = __real_malloc(n);
    live += p != NULL;
    return p;
}

void *__wrap_calloc(size_t n, size_t size)
{
    void *p = __real_calloc(n, size);
    live += p != NULL;
    return p;
}

void *__wrap_realloc(void *p, size_t n)
{
    void *to = __real_realloc(p, n);
    live += !p && to;
    return to;
}

int __wrap_posix_memalign(void **out, size_t align, size_t n)
{
    int rc = __real_posix_memalign(out, align, n);
    live += rc == 0;
    return rc;
}

void __wrap_free(void *p)
{
    live -= p != NULL;
    __real_free(p);
}

int64_t sim_live_blocks(void)
{
    return live;
}
