/*
 * kern_test: what the kernel tests share: buffers between forbidden pages, a deterministic source of numbers,
 * the walk over the instruction sets and the proof that every one of them ran.
 */
#ifndef HEARTH_TESTS_KERN_TEST_H
#define HEARTH_TESTS_KERN_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fp16.h"
#include "base/sanitized.h"
#include "kern/kern.h"

/* Under a sanitizer all is ten times slower, and what it watches are addresses: every fourth case is enough there. */
#define CASE_STEP (SANITIZED ? 4 : 1)

/*
 * n bytes between two pages that may not be touched. Tight at the end (the default) the first byte behind the
 * data is forbidden and the data begins wherever that leaves it; tight at the start, the last byte before.
 * The slack on the other side holds a pattern that guard_check looks at.
 */
typedef struct guard {
    unsigned char *map;
    size_t map_bytes;
    unsigned char *data;
    size_t n_bytes;
} guard;

typedef enum guard_side { GUARD_END, GUARD_START } guard_side;

#define GUARD_PATTERN 0xA5

static inline size_t guard_page(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static inline guard guard_new(size_t n_bytes, guard_side side)
{
    size_t page = guard_page();
    size_t body = (n_bytes + page - 1) / page * page;
    guard g = {.map_bytes = body + 2 * page, .n_bytes = n_bytes};
    g.map = mmap(NULL, g.map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(g.map != MAP_FAILED);
    if (body > 0) {
        assert_int_equal(mprotect(g.map + page, body, PROT_READ | PROT_WRITE), 0);
        memset(g.map + page, GUARD_PATTERN, body);
    }
    g.data = side == GUARD_END ? g.map + page + body - n_bytes : g.map + page;
    return g;
}

static inline float *guard_floats(const guard *g)
{
    return (float *)(void *)g->data;
}

/* Fails if a byte of the slack has changed. */
static inline void guard_check(const guard *g)
{
    const unsigned char *lo = g->map + guard_page();
    const unsigned char *hi = g->map + g->map_bytes - guard_page();
    for (const unsigned char *p = lo; p < hi; p++) {
        if ((p < g->data || p >= g->data + g->n_bytes) && *p != GUARD_PATTERN) {
            fail_msg("a byte was written %td bytes from the start of a buffer of %zu", p - g->data,
                     g->n_bytes);
        }
    }
}

static inline void guard_free(guard *g)
{
    munmap(g->map, g->map_bytes);
}

/* splitmix64 */
static inline uint64_t rng_next(uint64_t *state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

/* In [-1, 1). */
static inline float rng_float(uint64_t *state)
{
    return (float)((double)(rng_next(state) >> 11) * 0x1p-52 - 1.0);
}

static inline void rng_fill(uint64_t *state, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = rng_float(state);
    }
}

/* The same bits, or both NaN. */
static inline int same_float(float a, float b)
{
    return f32_bits(a) == f32_bits(b) || (isnan(a) && isnan(b));
}

static inline void assert_same_floats(const char *what, const kern_table *t, const float *got,
                                      const float *want, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!same_float(got[i], want[i])) {
            fail_msg("%s, set %s: element %zu of %zu is %a, the reference says %a", what, t->name, i, n,
                     (double)got[i], (double)want[i]);
        }
    }
}

static unsigned sets_ran; /* bit s: a test used the table of set s */

/* Walks the tables that exist here: for (int s = -1; (t = sets_next(&s));). */
static inline const kern_table *sets_next(int *s)
{
    while (++*s < KERN_SET_COUNT) {
        const kern_table *t = kern_table_of((kern_set)*s);
        if (t) {
            sets_ran |= 1u << *s;
            return t;
        }
    }
    return NULL;
}

/* The last test of every program: a set that is built in and that the CPU has must have run. */
static inline void test_every_set_ran(void **state)
{
    (void)state;
    printf("sets run:");
    for (int s = 0; s < KERN_SET_COUNT; s++) {
        if (sets_ran & 1u << s) {
            printf(" %s", kern_set_name((kern_set)s));
        }
    }
    printf("\n");
    for (int s = 0; s < KERN_SET_COUNT; s++) {
        if (kern_set_built((kern_set)s) && kern_set_on_cpu((kern_set)s) && !(sets_ran & 1u << s)) {
            fail_msg("set %s is built and the CPU has it, but it did not run", kern_set_name((kern_set)s));
        }
    }
    assert_true(sets_ran & 1u << KERN_REF);
}

#endif
