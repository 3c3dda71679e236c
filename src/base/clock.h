/*
 * clock: time as a value that tests replace. Code that waits or measures takes a `const clock_src *` and
 * never asks the system itself. The pointed-to functions may be called from any thread.
 */
#ifndef HEARTH_BASE_CLOCK_H
#define HEARTH_BASE_CLOCK_H

#include <stdint.h>

typedef struct clock_src {
    uint64_t (*mono_ns)(void *ctx); /* never goes back */
    int64_t (*wall_ms)(void *ctx);  /* since 1970-01-01 UTC */
    void *ctx;
} clock_src;

const clock_src *clock_system(void); /* static storage */
uint64_t clock_mono_ns(const clock_src *c);
int64_t clock_wall_ms(const clock_src *c);
double clock_ms_between(uint64_t from_ns, uint64_t to_ns); /* 0 if to < from */

/* A clock that stands still until told (tests, simulator). One thread. */
typedef struct clock_fake {
    clock_src src; /* pass &fake.src on */
    uint64_t now_ns;
    int64_t wall_ms;
} clock_fake;
void clock_fake_init(clock_fake *f, uint64_t now_ns, int64_t wall_ms);
void clock_fake_advance_ms(clock_fake *f, uint64_t ms);

#endif
