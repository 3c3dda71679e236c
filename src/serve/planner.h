/*
 * planner: how the memory for keys and values is divided between the models of one daemon while they run. Pure: it is
 * told what each model has and needs, once a second, and says what is to be moved.
 *
 * At the start each model has what its own plan gave it (engine/memory_plan.h, each with its share of the machine); the
 * sum of that is all there is. A model is short when a request of it is parked, or waits in its worker while lanes are
 * free and a quarter of its pages at least is in use. One that has been short for PLANNER_SHORT_LOOKS gets pages from the
 * one that has most to spare: half of what that one neither uses nor needs soon, a quarter more than the short one has at
 * most. What one needs soon is a quarter above what it uses now, and an eighth of what it began with, always.
 *
 * So that nothing swings: one move at a time, PLANNER_REST_LOOKS between two; who got something gives nothing for
 * PLANNER_KEEP_LOOKS, nor does who was short himself in that time. Nothing moves back by itself: who is short asks.
 *
 * The giver is lowered first; the taker is raised when the giver's pool has come down, so the sum is never exceeded. A
 * worker that has started again has its first limit again: it is told what it is to have.
 *
 * One owner thread; plain data. Limits: PLANNER_MAX_MODELS.
 */
#ifndef HEARTH_SERVE_PLANNER_H
#define HEARTH_SERVE_PLANNER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PLANNER_MAX_MODELS    32
#define PLANNER_SHORT_LOOKS   2
#define PLANNER_REST_LOOKS    3
#define PLANNER_KEEP_LOOKS    20
#define PLANNER_LEAST_MOVE    4 /* pages of the one that gives */
#define PLANNER_SCRATCH_BYTES ((uint64_t)96 << 20)

typedef struct planner_view { /* of one model, as its status page and its last ready frame say */
    bool ready;
    uint64_t start;      /* counts its workers: another number is another worker */
    uint64_t page_bytes; /* 0: it was not said, and nothing is moved */
    uint64_t most_pages; /* reserved */
    uint64_t limit;      /* pages that may be in use now */
    uint64_t used;       /* by what runs */
    uint64_t parked;     /* requests */
    uint64_t waiting;    /* requests in the worker that have not begun */
    uint64_t running, lanes;
} planner_view;

typedef struct planner_model {
    uint64_t first, target; /* pages; first 0: it has not been ready yet */
    uint64_t start;         /* the worker that was told of it */
    unsigned short_looks;   /* in a row */
    unsigned keep_looks;    /* gives nothing for so long */
} planner_model;

typedef struct planner {
    planner_model models[PLANNER_MAX_MODELS];
    size_t n;
    unsigned rest_looks;
    bool moving; /* a move is under way: `from` was lowered, `to` is told of its target once that shows */
    size_t from, to;
} planner;

typedef struct planner_order { /* kv_limit for one model */
    size_t model;
    uint64_t pages;
} planner_order;

/*
 * Before any of them is started, from nothing but the sizes of their files: each has what its weights will take (a
 * quarter more than the file, packed ones and the embedding that is not; and PLANNER_SCRATCH_BYTES), and an equal part
 * of the rest. Where even that is not there, each has its part, and its worker says what it lacks.
 */
typedef struct planner_share {
    uint64_t bytes;      /* of the model, to begin with */
    uint64_t most_bytes; /* that it may have when the others have no more than their weights */
} planner_share;
void planner_divide(const uint64_t *file_bytes, size_t n, uint64_t total_bytes, planner_share *shares);

void planner_init(planner *p, size_t n_models);
/* One look, views [n]; writes at most n orders, returns how many. */
size_t planner_look(planner *p, const planner_view *views, planner_order *orders);
/* An order did not reach that one: it is told again at the next look. */
void planner_tell_again(planner *p, size_t model);

#endif
