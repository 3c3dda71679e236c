/*
 * philox: the counter-based generator Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers:
 * as easy as 1, 2, 3", SC 2011). A pure function: any thread, no state.
 */
#ifndef HEARTH_BASE_PHILOX_H
#define HEARTH_BASE_PHILOX_H

#include <stdint.h>

void philox4x32_10(const uint32_t ctr[4], const uint32_t key[2], uint32_t out[4]);

#endif
