/*
 * lanes: the native sequence slots of one model (PROTOCOL 5). A lane is what the model keeps of one sequence: its
 * tokens and their pages. A lane is free (an index without native state), idle (made, without owner and without
 * pages) or live (owned).
 *
 * Indices are 0 … n_lanes - 1: a free list first, then a high-water mark that rises only when the native state
 * was made; a popped index goes back if it was not. An owner takes an idle lane before a new one is made. The
 * generation of a lane rises each time it changes owner, so that a result that names an older one is dropped.
 *
 * Cleanup runs once, when the lane's owner ends (an anonymous sequence at its end, a session at its close). It
 * never fails and never leaves bookkeeping behind, whatever the native reset does, and says exactly one event for
 * a live owner, none for any other:
 *
 *   reset failed                 the lane is destroyed; LANE_RECLAIMED; a warning with lane, owner and reason
 *   reset fine, idle pool full   destroyed; LANE_RESET
 *   reset fine                   idle; LANE_RESET
 *
 * Destroying frees the native state first, then the index.
 *
 * Engine thread. Owners are numbers that are never used twice; 0 is none.
 */
#ifndef HEARTH_ENGINE_LANES_H
#define HEARTH_ENGINE_LANES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/status.h"
#include "engine/resident.h"

typedef struct lane {
    resident kv;        /* of its owner's sequence; empty while none runs */
    const ivec *tokens; /* its owner's: those of kv while a sequence runs, else its session's; borrowed */
    uint32_t index;
    uint64_t generation; /* of the present owner */
    uint64_t owner;      /* 0 = idle */
    bool named;          /* the owner is a session */
} lane;

typedef struct lane_table lane_table;

/* The native state of a lane; a test may put failures in its place. */
typedef struct lane_ops {
    void *ctx;
    status (*create)(void *ctx, lane *l);        /* fills l->kv; on failure nothing is left */
    status (*reset)(void *ctx, lane *l, err *e); /* an empty kv; pages given back also when it fails */
    void (*destroy)(void *ctx, lane *l);         /* gives back all of l->kv */
} lane_ops;

typedef enum lane_event_kind { LANE_RESET, LANE_RECLAIMED } lane_event_kind;

typedef struct lane_event {
    lane_event_kind kind;
    uint32_t index;
    uint64_t owner;
    const char *reason; /* "" or why the reset failed; borrowed during the call */
} lane_event;

typedef struct lanes_config {
    size_t n_lanes;                                 /* 1 … UINT32_MAX */
    size_t idle_cap;                                /* idle lanes kept at most; 0 = n_lanes */
    lane_ops ops;                                   /* copied */
    const clock_src *clock;                         /* borrowed */
    void (*event)(void *ctx, const lane_event *ev); /* NULL = nobody listens */
    void *event_ctx;
} lanes_config;

status lanes_new(const lanes_config *cfg, lane_table **out);
/* Destroys the idle lanes; none may be live (asserted). NULL is fine. */
void lanes_free(lane_table *t);

/* ST_CAPACITY: all lanes are busy. Else the status of a creation that failed; then nothing changed. owner must
 * not have a lane. *out is borrowed until its release. */
status lanes_acquire(lane_table *t, uint64_t owner, bool named, lane **out);

typedef struct lane_cleanup {
    bool was_live;      /* the owner had a lane */
    bool discarded;     /* the lane was destroyed */
    const char *reason; /* why it was: "" (not discarded), "reset failed" or "idle pool full" */
    double reset_ms;
} lane_cleanup;

/* The owner has ended. An owner without a lane is fine and says nothing. */
lane_cleanup lanes_release(lane_table *t, uint64_t owner);

/* Makes idle lanes up to min(target, idle cap, n_lanes - live). A creation that fails stops it: what was made
 * stays, and its status is returned. *made (may be NULL): how many this call made. */
status lanes_prewarm(lane_table *t, size_t target, size_t *made);

/* Whether lane `index` still has the owner that it had at `generation`. */
bool lanes_is_current(const lane_table *t, uint32_t index, uint64_t generation);

typedef struct lanes_stats {
    size_t lanes, live, idle;
    size_t tracked; /* owners with bookkeeping: equal to live, or something leaked */
    size_t total_tokens, largest_tokens;
    size_t pages;
    uint64_t created, destroyed; /* since the beginning */
} lanes_stats;
lanes_stats lanes_stats_read(const lane_table *t);
/* The live or idle lane at an index below n_lanes, NULL if there is no native state. */
const lane *lanes_at(const lane_table *t, size_t index);
size_t lanes_count(const lane_table *t); /* n_lanes */

#endif
