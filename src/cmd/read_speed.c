#include "cmd/read_speed.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

#define BYTES_MAX  ((uint64_t)512 << 20)
#define TASKS      128u
#define LINE_WORDS 8u
#define AHEAD_WORDS \
    256u /* prefetched this far ahead, as the kernels do: without it a third of the rate is lost */

typedef struct reading {
    const uint64_t *words;
    size_t n_words; /* of one task, a whole number of lines */
} reading;

static void read_task(void *arg, size_t task, size_t thread)
{
    const reading *r = arg;
    const uint64_t *p = r->words + task * r->n_words;
    uint64_t sum[LINE_WORDS] = {0};
    for (size_t i = 0; i < r->n_words; i += LINE_WORDS) {
        __builtin_prefetch((const void *)((uintptr_t)(p + i) + AHEAD_WORDS * sizeof *p));
        for (size_t l = 0; l < LINE_WORDS; l++) {
            sum[l] += p[i + l];
        }
    }
    uint64_t total = 0;
    for (size_t l = 0; l < LINE_WORDS; l++) {
        total += sum[l];
    }
    __asm__ volatile("" : : "r"(total)); /* looks used, so that no read can be left out */
}

double read_speed_measure(pool *p, uint64_t max_bytes)
{
    size_t n_bytes = (size_t)(max_bytes < BYTES_MAX ? max_bytes : BYTES_MAX);
    n_bytes -= n_bytes % (TASKS * LINE_WORDS * sizeof(uint64_t));
    uint64_t *data = n_bytes ? mem_alloc_aligned(64, n_bytes) : NULL;
    if (!data) {
        return 0;
    }
    memset(data, 1, n_bytes);
    reading r = {data, n_bytes / TASKS / sizeof *data};
    double best = 0;
    for (int i = 0; i < 3; i++) {
        uint64_t t0 = clock_mono_ns(clock_system());
        pool_run(p, read_task, &r, TASKS);
        double gbs = (double)n_bytes / 1e6 / clock_ms_between(t0, clock_mono_ns(clock_system()));
        best = gbs > best ? gbs : best;
    }
    mem_free(data);
    return best;
}
