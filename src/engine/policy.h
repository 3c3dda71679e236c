/*
 * policy: who is next and who gives way, as pure functions of small views of the sequences (DESIGN 6). They know
 * nothing of pages, lanes or time but what the views say; the scheduler (scheduler.c) acts on what they answer.
 */
#ifndef HEARTH_ENGINE_POLICY_H
#define HEARTH_ENGINE_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define POLICY_NONE ((size_t)-1)

/* Requests that wait: a larger priority first, one more for every POLICY_AGEING_NS of waiting; then the one that
 * was submitted first. */
#define POLICY_AGEING_NS UINT64_C(2000000000)

typedef struct policy_waiting {
    int32_t priority;
    uint64_t waited_ns;
    uint64_t ticket; /* rises in the order submitted */
} policy_waiting;
bool policy_before(const policy_waiting *a,
                   const policy_waiting *b); /* a total order but for equal tickets */

/* One that does not fit now may be passed by others until it has waited that long: then nobody is admitted before
 * it, and the pages that become free are its. */
#define POLICY_PASS_NS UINT64_C(5000000000)

/* Who is preempted when pages run out: the fewest generated tokens, then the one admitted last; never the one
 * admitted longest ago of those that are not held; one that resumed less than POLICY_IMMUNE_TOKENS tokens ago only
 * if every other candidate is immune too. */
#define POLICY_IMMUNE_TOKENS 64

typedef struct policy_running {
    size_t n_generated;
    uint64_t admitted; /* rises in the order admitted; unique */
    bool immune;
    bool held;          /* EMIT_WAIT: it computes nothing, so it needs no protection as the eldest */
    bool can_be_parked; /* false: sealed, or nothing of it is in pages */
} policy_running;
size_t policy_victim(const policy_running *r, size_t n); /* POLICY_NONE: nobody */

/* Who of the parked ones is next: the one that needs the fewest tokens in pages, then the one parked first. */
typedef struct policy_parked {
    size_t n_tokens;
    uint64_t since; /* rises in the order parked */
    bool held;      /* not before it may say something again */
} policy_parked;
size_t policy_resume(const policy_parked *p, size_t n); /* POLICY_NONE: nobody */

/* Prompts by length, the shortest first, ties to the first: the one that comes after `last` (POLICY_NONE: the first of
 * all) of the n whose lengths are in want; POLICY_NONE behind the last one. */
size_t policy_shorter(const size_t *want, size_t n, size_t last);

#endif
