/*
 * scenario: what happens in one simulated life of an engine, as plain numbers: its configuration, the requests that
 * arrive and the events that befall them. Written and read as text, one line each; whatever has its simplest value
 * is left out, and the shrinker goes towards the simplest values.
 *
 * Times are microseconds of simulated time. A request's are counted from its arrival, but for `at`.
 */
#ifndef HEARTH_TESTS_SIM_SCENARIO_H
#define HEARTH_TESTS_SIM_SCENARIO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define SIM_MAX_REQUESTS 24
#define SIM_MAX_EVENTS   12
#define SIM_MAX_SESSIONS 4
#define SIM_MAX_CTX      512

/* X(name, simplest value, least value) */
#define SIM_CONFIG_FIELDS(X)                                                    \
    X(n_ctx, 256, 2)                                                            \
    X(pages, 64, 1)                                                             \
    X(lanes, 4, 1)                                                              \
    X(chunk, 16, 1)                                                             \
    X(max_rows, 64, 1)                                                          \
    X(logit_rows, 8, 1)                                                         \
    X(max_step, 0, 0) /* microseconds */                                        \
    X(idle_lanes, 0, 0)                                                         \
    X(prewarm, 0, 0)                                                            \
    X(park_pages, 0, 0) /* budget, in pages */                                  \
    X(cold, 0, 0)                                                               \
    X(tok, 0, 0)         /* 1 = with a tokenizer */                             \
    X(step_cost, 100, 0) /* of a forward call */                                \
    X(row_cost, 0, 0)                                                           \
    X(read_cost_ns, 0, 0) /* per row and position */                            \
    X(fail_new, 0, 0)     /* the n-th allocation of a first engine_new fails */ \
    X(store_room, 0, 0)   /* pages that the disk takes; 0: there is none */     \
    X(store_delay, 0, 0)  /* that reading a page takes */                       \
    X(store_ready, 0, 0)  /* until it knows what it has */                      \
    X(stored, 0, 0)       /* tokens of each conversation that a process before has left there */

#define SIM_REQUEST_FIELDS(X)                                                       \
    X(at, 0, 0)                                                                     \
    X(conv, 0, 0)    /* which conversation its prompt begins as */                  \
    X(shared, 0, 0)  /* tokens of that */                                           \
    X(own, 1, 0)     /* tokens of its own behind them */                            \
    X(salt, 0, 0)    /* which own part */                                           \
    X(follows, 0, 0) /* 1 + the request whose prompt and reply so far come first */ \
    X(poison, 0, 0)  /* 1 + the position of a token that the model cannot stand */  \
    X(looped, 0, 0)  /* the reply is one run of that many tokens over and over */   \
    X(max_new, 1, -1)                                                               \
    X(session, 0, 0) /* 1 + its number; 0 = anonymous */                            \
    X(space, 0, 0)   /* of the cache: what others leave is found in the same one */ \
    X(priority, 0, -10)                                                             \
    X(plan, 0, 0) /* gen_plan */                                                    \
    X(n_labels, 1, 1)                                                               \
    X(temp, 0, 0) /* hundredths */                                                  \
    X(top_k, 0, 0)                                                                  \
    X(penalty, 100, 1) /* hundredths */                                             \
    X(min_tokens, 0, 0)                                                             \
    X(ignore_eos, 0, 0)                                                             \
    X(sample_seed, 0, 0)                                                            \
    X(stops, 0, 0)    /* which list of stop strings */                              \
    X(stop_ids, 0, 0) /* how many */                                                \
    X(logprobs, -1, -1)                                                             \
    X(prompt_logprobs, -1, -1)                                                      \
    X(repeat_span, 0, 0)                                                            \
    X(deadline, 0, 0)    /* 0 = none */                                             \
    X(cancel, 0, 0)      /* how: enum sim_cancel */                                 \
    X(cancel_at, 0, 0)   /* when, or inside of which token's call */                \
    X(hold_at, 0, 0)     /* when a slow reader stops reading ... */                 \
    X(hold_token, 0, 0)  /* ... or inside of which token's call */                  \
    X(hold_for, 0, 0)    /* 0 = never */                                            \
    X(fail_submit, 0, 0) /* the n-th allocation of a first engine_submit fails */   \
    X(had, 0, 0)         /* tokens of its reply that it had elsewhere; all, if it has fewer */

#define SIM_EVENT_FIELDS(X)                                                  \
    X(at, 0, 0)                                                              \
    X(kind, 0, 0) /* enum sim_event_kind */                                  \
    X(arg, 0, 0)  /* request, session or number of the allocation, from 0 */ \
    X(span, 0, 0) /* how long */

enum sim_cancel {
    CANCEL_NEVER,
    CANCEL_FLAG,
    CANCEL_CALL,
    CANCEL_GUARDED,
    CANCEL_IN_TOKEN,
    CANCEL_FLAG_IN_TOKEN,
    CANCEL_KINDS
};

enum sim_event_kind {
    EVENT_NONE,
    EVENT_SESSION_RESET, /* if it is idle */
    EVENT_SESSION_CLOSE, /* if it is idle; opened again by the next request */
    EVENT_RING_FULL,     /* everything is held */
    EVENT_FORWARD_FAILS, /* the next forward call; span = 1: each one of a step that has that request in it */
    EVENT_BAD_ROW,       /* the next rows of that request are not finite */
    EVENT_NO_MEMORY,     /* the n-th allocation of the next step that allocates at all fails */
    EVENT_STALL,         /* the next step takes that much longer */
    EVENT_DISK_FULL,     /* nothing is written any more; span = 0: it is again */
    EVENT_DISK_DAMAGED,  /* so many of the next reads find a damaged page */
    EVENT_DISK_STUCK,    /* nothing is read for that long */
    EVENT_KINDS
};

typedef struct sim_config {
#define X(name, simplest, least) int64_t name;
    SIM_CONFIG_FIELDS(X)
#undef X
} sim_config;

typedef struct sim_request {
#define X(name, simplest, least) int64_t name;
    SIM_REQUEST_FIELDS(X)
#undef X
} sim_request;

typedef struct sim_event {
#define X(name, simplest, least) int64_t name;
    SIM_EVENT_FIELDS(X)
#undef X
} sim_event;

typedef struct scenario {
    uint64_t seed; /* that it was made from; 0 = written by hand or shrunk */
    sim_config config;
    size_t n_requests, n_events;
    sim_request requests[SIM_MAX_REQUESTS];
    sim_event events[SIM_MAX_EVENTS];
} scenario;

/* A struct of int64_t only, as the shrinker, the printer and the reader see it. */
typedef struct sim_field {
    const char *name;
    int64_t simplest, least;
} sim_field;

typedef struct sim_kind {
    const char *word; /* that a line begins with */
    const sim_field *fields;
    size_t n_fields;
} sim_kind;

extern const sim_kind sim_config_kind, sim_request_kind, sim_event_kind;

void sim_set_simplest(const sim_kind *kind, int64_t *values);
void scenario_make(uint64_t seed, scenario *out);
void scenario_print(FILE *to, const scenario *s);
/* false, and one line on stderr, if it is not one. */
bool scenario_read(FILE *from, scenario *out);
/* Brings into the bounds that the engine's configuration demands what shrinking or a hand wrote outside of them. */
void scenario_mend(scenario *s);

#endif
