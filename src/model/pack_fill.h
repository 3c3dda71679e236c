/*
 * pack_fill: does what a pack_plan says, step by step over the compute pool: slices are packed side by side,
 * and what was read of the model is given back to the system as soon as a step is done, so that the model never
 * lies in memory twice.
 *
 * Into memory, or as a stream: then the image passes through two buffers of one step each, in order, while the
 * next step is being packed, and every byte of the model is hashed on the way (SHA-256 of its parts, one after
 * the other).
 *
 * Thread: the caller of pool_run.
 */
#ifndef HEARTH_MODEL_PACK_FILL_H
#define HEARTH_MODEL_PACK_FILL_H

#include "base/hash.h"
#include "base/pool.h"
#include "model/pack_plan.h"

typedef struct pack_progress {
    void (*report)(void *ctx, double done); /* 0 … 1; may be NULL */
    void *ctx;
} pack_progress;

/* image has plan->image_bytes and is all zero. */
void pack_fill_memory(const pack_plan *plan, pool *p, void *image, const pack_progress *progress);

/* Called with the next n bytes of the image, on any thread, one call at a time. */
typedef struct pack_sink {
    status (*write)(void *ctx, const void *data, size_t n, err *e);
    void *ctx;
} pack_sink;

/* The sink's failure, or ST_NOMEM. */
status pack_fill_stream(const pack_plan *plan, pool *p, const pack_sink *sink, const pack_progress *progress,
                        uint8_t digest[SHA256_BYTES], err *e);

#endif
