/*
 * scene: one case on its way: the place, the request that is looked at, its neighbours. The ways of running (ways_*.c)
 * are functions on it. A way that finds that what it wants has not come about (nobody was preempted, nothing was
 * reused) says so with expect: a way that does nothing would hold without meaning anything.
 *
 * After a way has returned, run_case ends what still runs and judges.
 */
#ifndef HEARTH_TESTS_PURITY_SCENE_H
#define HEARTH_TESTS_PURITY_SCENE_H

#include "purity/ask.h"

#define SCENE_MAX_OTHERS   24
#define SCENE_MAX_SESSIONS 2

typedef struct scene {
    purity_case judged; /* the case; a way may change how it is judged */
    place p;
    place_way how; /* what it was opened with */
    place_config cfg;
    ask q;
    const heard *reference;
    heard got;
    heard others[SCENE_MAX_OTHERS];
    size_t n_others;
    session *sessions[SCENE_MAX_SESSIONS];
    size_t n_sessions;
    int32_t stop_id;
    bool scored;   /* the request asks about its prompt, too */
    size_t n_had;  /* tokens that its reply had elsewhere */
    char why[200]; /* "" while all is as it should be */
} scene;

typedef struct other { /* a neighbour */
    size_t n_prompt;   /* 1 … ASK_MAX_PROMPT, or up to 480 with `prompt` NULL */
    int32_t n_new;
    const int32_t *prompt; /* NULL: tokens of its own, drawn */
    session *session;
    size_t cancel_at;
    const int32_t *force; /* [n_force]: its reply */
    size_t n_force;
    int32_t priority;
    gen_plan plan;
    bool scored;            /* every row of its prompt */
    bool poison;            /* meets a non-finite value */
    const char *name_space; /* of the cache; NULL: that of the request that is looked at */
} other;

/* The request that is looked at; session NULL: anonymous. */
void tested(scene *s, session *in);
void tested_with_priority(scene *s, int32_t priority);
heard *submit_other(scene *s, const other *o);
session *open_session(scene *s); /* closed by run_case */
/* Its place ends, and another of the same kind begins, with what the store of that folder has. run_case removes the folder; the seam
 * stays until then. */
void restart(scene *s, const char *store_dir, const store_seam *seam);
/* The request, broken off after so many tokens, in a place of another kind that has that store (NULL: none), which must say what the
 * reference says. */
void began_elsewhere(scene *s, size_t n_tokens, const char *store_dir, const store_seam *seam);
/* 1 … PURITY_MOST_HAD, by the case. */
size_t tokens_had(const scene *s);
/* Another set than the case's: the reference set only where there is nothing else. */
kern_set another_set(const purity_case *c);

void step(scene *s, size_t n);
/* Steps until h has said n tokens, or is over. */
void until_said(scene *s, const heard *h, size_t n);
void until_over(scene *s, const heard *h);
/* seq_hold and seq_cancel, nothing for one that is over. */
void hold(const heard *h, bool held);
void cancel(const heard *h);
engine_stats stats_of(const scene *s);
/* Records the first thing that is not as it should be. Returns ok. */
bool expect(scene *s, bool ok, const char *what);

/* Runs it; NULL, or what is wrong (static storage). */
const char *run_case(const purity_case *c);

#define X(name, ...) void run_##name(scene *s);
PURITY_WAYS(X)
#undef X

#endif
