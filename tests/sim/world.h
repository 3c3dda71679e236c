/*
 * world: one scenario while it is lived: the engine, its model and clock, and what has become of each request.
 * run.c makes things happen, verdict.c says what was right; whatever was not ends the process by sim_fail.
 */
#ifndef HEARTH_TESTS_SIM_WORLD_H
#define HEARTH_TESTS_SIM_WORLD_H

#include "sim/oracle.h"
#include "sim/scenario.h"
#include "sim/sim_model.h"

#define SIM_TEXT_MAX (SIM_MAX_CTX * 16)
extern const int32_t sim_labels[]; /* [SIM_MAX_LABELS] */
#define SIM_MAX_LABELS   8
#define SIM_GUARD        "sim_guard"
#define US(microseconds) ((uint64_t)(microseconds)*1000)

typedef enum life_phase { LIFE_WAITS, LIFE_RUNS, LIFE_REFUSED, LIFE_DONE, LIFE_FAILED } life_phase;

/* What the engine has of a request (look.c). */
typedef struct look {
    bool there, queued, parked, restoring, sealed, held, fetching;
    uint64_t admitted; /* rises in the order admitted */
    size_t n_generated, n_preempted, n_pages, n_found;
} look;

typedef struct life {
    const sim_request *r;
    life_phase phase;
    int32_t prompt[SIM_PROMPT_MAX];
    int32_t had[SIM_MAX_CTX]; /* of its reply, elsewhere */
    size_t n_prompt, max_new, n_had;
    bool ceiling, poisoned, retried;
    sequence *seq; /* while it runs */
    atomic_bool flag;
    uint64_t submit_ns, deadline_ns, end_ns;
    uint64_t admit_step, end_step;
    bool cancel_asked, cancel_sent, guarded;
    uint64_t cancel_step; /* steps that had begun when it was asked */
    bool slow, was_slow, held;
    uint64_t slow_until_ns;
    /* What the sinks were told. */
    int32_t ids[SIM_MAX_CTX];
    uint64_t probs[SIM_MAX_CTX];
    size_t shown[SIM_MAX_CTX];
    size_t n_ids, n_text, n_probs;
    char text[SIM_TEXT_MAX];
    int n_prompt_calls;
    uint64_t prompt_probs;
    uint64_t last_token_ns;
    bool cancel_at_last_token; /* asked before that call */
    gen_result result;         /* pointers in it are dead */
    char guard[16];
    bool has_labels, has_embedding;
    float labels[SIM_MAX_LABELS], embedding[FAKE_N_EMBD];
    err error;
    bool begun; /* some of it has been computed */
    size_t reused, n_preempted;
    bool parked_first; /* before anything of it was computed */
    bool cut_short;    /* it was over when it came, and not all of it was computed when it ended */
    bool unseen;       /* nobody has seen what it found in its session */
    /* Of the present step. */
    bool in_batch, spoilt, call_failed;
    int32_t position;
    bool bad_pending, fail_pending; /* for its next step */
    look before, now;               /* what the engine had of it, before and after the step */
    size_t immune_until;            /* tokens of its reply */
    uint64_t parked_ns, ticket, admitted;
} life;

/* What a session held after the step behind which it was last idle. */
typedef struct memory {
    int32_t ids[SIM_MAX_CTX];
    size_t n;
    bool dirty;
} memory;

typedef struct world {
    const scenario *s;
    sim_model model;
    clock_fake clock;
    engine *en;
    const tokenizer *tok;
    session *sessions[SIM_MAX_SESSIONS];
    bool event_done[SIM_MAX_EVENTS];
    uint64_t ring_full_until_ns;
    size_t no_memory; /* armed: the n-th allocation of the next step; 0 = not */
    /* Of the present step. */
    uint64_t step; /* counts */
    uint64_t step_began_ns;
    bool memory_failed, fail_next;           /* fail_next: the next forward call, whoever is in it */
    size_t batch[SIM_MAX_REQUESTS], n_batch; /* requests, in the order of the batch */
    const void *pages[SIM_MAX_REQUESTS];     /* theirs; NULL at first: the step has not computed yet */
    /* Counted by the simulator. */
    uint64_t n_submitted, n_done, n_failed, n_cancelled, n_generated, n_forward_failures, n_preemptions;
    uint64_t n_lane_events, n_memory_failures;
    uint64_t n_evicted; /* pages of the tree, before the step */
    memory memories[SIM_MAX_SESSIONS];
    life lives[SIM_MAX_REQUESTS];
} world;

/* What one process found out, summed up. */
typedef struct sim_tally {
    uint64_t scenarios, requests, tokens, steps, reused;
    uint64_t preemptions, recomputed, restored;
    uint64_t ends[6], failed, refused; /* by finish_reason */
} sim_tally;

/* Says what is wrong and ends this process. */
_Noreturn void sim_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Token i of a conversation (0 to 2) or of a request's own part. */
int32_t sim_word(uint64_t who, uint64_t i);

/* Lives the scenario. compute and tok are made once a process. */
void run_scenario(const scenario *s, pool *compute, const tokenizer *tok, sim_tally *tally);

/* verdict.c */
question verdict_question(const world *w, const life *l);
/* What engine_submit must say. */
status verdict_submit(const world *w, life *l);
/* After a step: who had to end has ended, nobody else has failed, the figures agree. */
void verdict_step(world *w);
void remember_step(world *w); /* remember.c: the same about sessions */
/* look.c: whether the one who gave way in the step was the right one, and those who came in too. */
void look_before(world *w);
void look_planned(world *w); /* when it is known who computes */
void look_after(world *w);
/* Of a request that ended. */
void verdict_end(const world *w, const life *l);

/* Allocations that are alive (live_mem.c). */
int64_t sim_live_blocks(void);

#endif
