/*
 * sim_store: a disk in simulated time. It has the names of kv/store.h, so that the engine is linked with it unchanged;
 * pages are kept in this process' memory, reads take as long as they are told to, and go wrong when they are told to.
 * One at a time in a process.
 */
#ifndef HEARTH_TESTS_SIM_SIM_STORE_H
#define HEARTH_TESTS_SIM_SIM_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "kv/store.h"

#define SIM_STORE_MOST 512 /* pages */

typedef struct sim_disk {
    const clock_src *clock;
    size_t page_bytes;
    size_t room;       /* pages that it takes, at most SIM_STORE_MOST */
    uint64_t ready_ns; /* when it has looked through its folder */
    uint64_t read_ns;  /* that a read takes */
    uint64_t stuck_ns; /* until then nothing is read */
    bool full;         /* nothing is written */
    size_t n_damaged;  /* of the next reads so many find a damaged file */
} sim_disk;

/* Empty, with what a test may change while it is used. */
store *sim_store_new(const sim_disk *d);
sim_disk *sim_store_disk(void);
/* When a result can be polled or it becomes ready; UINT64_MAX: nothing is under way. */
uint64_t sim_store_due(void);

#endif
