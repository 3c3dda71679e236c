/*
 * batch: scenarios lived in forked children, so that an abort, a crash or a hang is seen as what it is; and the
 * shrinker, which looks for the smallest scenario that still fails.
 */
#ifndef HEARTH_TESTS_SIM_BATCH_H
#define HEARTH_TESTS_SIM_BATCH_H

#include "base/pool.h"
#include "sim/world.h"

#define SIM_MESSAGE 512

typedef struct sim_outcome {
    bool failed;
    uint64_t seed; /* of the one that did */
    char message[SIM_MESSAGE];
} sim_outcome;

bool batch_open(void);
void batch_close(void);
/* `count` scenarios from first_seed on, or fewer once `until_ns` of the system's clock has come (0 = never). */
sim_outcome batch_seeds(uint64_t first_seed, uint64_t count, uint64_t until_ns, sim_tally *tally);
sim_outcome batch_one(const scenario *s);
/* *s fails; afterwards it is smaller, and still does. Returns what it fails with. */
sim_outcome batch_shrink(scenario *s, uint64_t until_ns);

#endif
