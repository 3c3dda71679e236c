/*
 * faulty_malloc: a library for LD_PRELOAD in which malloc and its kin fail now and then, in whatever library calls
 * them. How often stands in the environment (README.md); a test tool: it is in no product.
 *
 * Any thread. What is read from the environment is written by the constructor and constant afterwards; the counts are
 * relaxed, each stands alone.
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

/* The file of HEARTH_MALLOC_COUNTS: whether calls fail now (written by the test), those made meanwhile, those failed. */
enum { ON, CALLS, FAILED, N_COUNTS };

static uint64_t one_in, seed;
static atomic_uint_fast64_t own_counts[N_COUNTS];
static atomic_uint_fast64_t *counts = own_counts;

/* The C library's own, by the names that it has for this. */
extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t n);
extern void *__libc_memalign(size_t align, size_t n);

static uint64_t number_of(const char *name)
{
    const char *value = getenv(name);
    return value ? strtoull(value, NULL, 10) : 0;
}

static bool is_for_us(int argc, char **argv)
{
    const char *only = getenv("HEARTH_MALLOC_IN");
    for (int i = 0; only && i < argc; i++) {
        if (strcmp(argv[i], only) == 0) {
            return true;
        }
    }
    return !only;
}

__attribute__((constructor)) static void begin(int argc, char **argv)
{
    const char *path = getenv("HEARTH_MALLOC_COUNTS");
    if (!is_for_us(argc, argv) || !path) {
        return;
    }
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    void *p = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, sizeof own_counts) == 0) {
        p = mmap(NULL, sizeof own_counts, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (p == MAP_FAILED) {
        fprintf(stderr, "faulty_malloc: HEARTH_MALLOC_COUNTS=%s cannot be used\n", path);
        _exit(99);
    }
    close(fd);
    counts = p;
    seed = number_of("HEARTH_MALLOC_SEED");
    one_in = number_of("HEARTH_MALLOC_ONE_IN");
}

/* splitmix64 */
static uint64_t mix(uint64_t n)
{
    uint64_t x = n * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static bool fails(void)
{
    if (one_in == 0 || atomic_load_explicit(&counts[ON], memory_order_relaxed) == 0) {
        return false;
    }
    uint64_t n = atomic_fetch_add_explicit(&counts[CALLS], 1, memory_order_relaxed);
    if (mix(n + mix(seed)) % one_in != 0) {
        return false;
    }
    atomic_fetch_add_explicit(&counts[FAILED], 1, memory_order_relaxed);
    errno = ENOMEM;
    return true;
}

EXPORT void *malloc(size_t n)
{
    return fails() ? NULL : __libc_malloc(n);
}

EXPORT void *calloc(size_t n, size_t size)
{
    return fails() ? NULL : __libc_calloc(n, size);
}

EXPORT void *realloc(void *p, size_t n)
{
    return n > 0 && fails() ? NULL : __libc_realloc(p, n);
}

EXPORT void *reallocarray(void *p, size_t n, size_t size)
{
    size_t all;
    if (__builtin_mul_overflow(n, size, &all)) {
        errno = ENOMEM;
        return NULL;
    }
    return realloc(p, all);
}

EXPORT void *aligned_alloc(size_t align, size_t n)
{
    return fails() ? NULL : __libc_memalign(align, n);
}

EXPORT void *memalign(size_t align, size_t n)
{
    return fails() ? NULL : __libc_memalign(align, n);
}

EXPORT int posix_memalign(void **out, size_t align, size_t n)
{
    void *p = fails() ? NULL : __libc_memalign(align, n);
    if (p) {
        *out = p;
    }
    return p ? 0 : ENOMEM;
}
