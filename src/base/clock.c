#include "base/clock.h"

#include <stddef.h>
#include <time.h>

static uint64_t system_mono_ns(void *ctx)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int64_t system_wall_ms(void *ctx)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static const clock_src system_clock = {system_mono_ns, system_wall_ms, NULL};

const clock_src *clock_system(void)
{
    return &system_clock;
}

uint64_t clock_mono_ns(const clock_src *c)
{
    return c->mono_ns(c->ctx);
}

int64_t clock_wall_ms(const clock_src *c)
{
    return c->wall_ms(c->ctx);
}

double clock_ms_between(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (double)(to_ns - from_ns) * 1e-6 : 0.0;
}

static uint64_t fake_mono_ns(void *ctx)
{
    const clock_fake *f = ctx;
    return f->now_ns;
}

static int64_t fake_wall_ms(void *ctx)
{
    const clock_fake *f = ctx;
    return f->wall_ms;
}

void clock_fake_init(clock_fake *f, uint64_t now_ns, int64_t wall_ms)
{
    f->src = (clock_src){fake_mono_ns, fake_wall_ms, f};
    f->now_ns = now_ns;
    f->wall_ms = wall_ms;
}

void clock_fake_advance_ms(clock_fake *f, uint64_t ms)
{
    f->now_ns += ms * 1000000u;
    f->wall_ms += (int64_t)ms;
}
