/*
 * read_speed: how fast this machine reads memory, measured now: what bounds the decoding of a model, which
 * reads all its weights for each token. One call at a time; takes a buffer for the time of the call.
 */
#ifndef HEARTH_CMD_READ_SPEED_H
#define HEARTH_CMD_READ_SPEED_H

#include <stdint.h>

#include "base/pool.h"

/* GB (10^9 bytes) a second with all threads of p, best of three passes over at most max_bytes (more than the
 * caches hold: 512 MiB, or what max_bytes allows); 0 if there is no memory for it. */
double read_speed_measure(pool *p, uint64_t max_bytes);

#endif
