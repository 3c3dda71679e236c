/*
 * respawn: when a worker that has died is started again, and when it is given up (PROTOCOL 6).
 *
 * Deaths in a row, without a token or a steady time in between, wait 0, 0.25, 0.5, 1, 2, 4, 8, 8 … s. One more than
 * max_respawns of them, or a model that cannot be loaded, is a failure: then nobody waits for the worker any more, and
 * it is tried again only when somebody asks, after 1, 2, 4 … 30 s. A try that fails is the next failure at once.
 *
 * Plain data; one owner thread.
 */
#ifndef HEARTH_SERVE_RESPAWN_H
#define HEARTH_SERVE_RESPAWN_H

#include <stdbool.h>
#include <stdint.h>

#define RESPAWN_FIRST_MS   250
#define RESPAWN_MOST_MS    8000
#define RESPAWN_RETRY_MS   1000
#define RESPAWN_RETRIES_MS 30000

typedef struct respawn {
    unsigned max_respawns;
    unsigned n_deaths;   /* in a row */
    unsigned n_failures; /* in a row */
} respawn;

/* A token was made, or the worker has been ready for a while. */
void respawn_forget(respawn *r);
/* True: start it again in *wait_ms. False: a failure; not before *wait_ms, and only if asked. */
bool respawn_after_death(respawn *r, bool cannot_load, uint64_t *wait_ms);

#endif
