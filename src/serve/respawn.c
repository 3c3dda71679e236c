#include "serve/respawn.h"

/* first, 2 first, 4 first … most */
static uint64_t doubled(uint64_t first, unsigned times, uint64_t most)
{
    uint64_t ms = first;
    while (times-- > 0 && ms < most) {
        ms *= 2;
    }
    return ms < most ? ms : most;
}

void respawn_forget(respawn *r)
{
    r->n_deaths = r->n_failures = 0;
}

bool respawn_after_death(respawn *r, bool cannot_load, uint64_t *wait_ms)
{
    r->n_deaths += r->n_deaths <= r->max_respawns;
    if (cannot_load || r->n_failures > 0 || r->n_deaths > r->max_respawns) {
        *wait_ms = doubled(RESPAWN_RETRY_MS, r->n_failures++, RESPAWN_RETRIES_MS);
        return false;
    }
    *wait_ms = r->n_deaths == 1 ? 0 : doubled(RESPAWN_FIRST_MS, r->n_deaths - 2, RESPAWN_MOST_MS);
    return true;
}
