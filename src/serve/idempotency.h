/*
 * idempotency: generations that carry the header Idempotency-Key, answered once: over a journal (journal.h).
 *
 *   first request ─► run made ─► journal_ask ─► run begun ─► journal_answer ─► answered to all who wait
 *   the same again, meanwhile ─► waits with them          later ─► the stored answer, byte for byte
 *   another one with the key ─► 422                        after a restart ─► the unanswered ones are begun again
 *
 * A promise is a key in work or waited for: at most one run, and any number of clients. A client that leaves only leaves;
 * DELETE /v1/requests/{id} cancels the run, and what it had is the answer. The seed, the time and what the model said of
 * sampling are journaled with the body, so that a run that is begun again gives the answer it would have given.
 *
 * Kept is an answer with status 200, and that a request cannot be finished because its model is another one now (409
 * model_changed). After any other refusal the key is free. `draining` keeps the request for the next start. An answer that
 * cannot be journaled is given all the same; the same again is computed again then.
 *
 * Keys belong to API keys, by their names. Streams are not journaled: they are answered as if they had no key.
 *
 * Loop thread only. Limits: those of the journal, IDEMPOTENCY_MAX_KEY bytes of a key, IDEMPOTENCY_MAX_RECOVERING runs from
 * before the restart at once, IDEMPOTENCY_MAX_STARTS after which a request that was never finished is dropped,
 * IDEMPOTENCY_MAX_ASKING bytes of runs that wait for the journal.
 */
#ifndef HEARTH_SERVE_IDEMPOTENCY_H
#define HEARTH_SERVE_IDEMPOTENCY_H

#include "serve/generation_run.h"
#include "serve/journal.h"

#define IDEMPOTENCY_MAX_KEY        255
#define IDEMPOTENCY_MAX_RECOVERING 32
#define IDEMPOTENCY_MAX_STARTS     8
#define IDEMPOTENCY_MAX_ASKING     ((size_t)256 << 20)

typedef struct idempotency idempotency;

typedef struct idempotency_counts {
    uint64_t replayed;  /* requests answered without a run of their own */
    uint64_t recovered; /* runs begun again after a restart */
    uint64_t conflicts; /* answered with 422 */
} idempotency_counts;

typedef struct idempotency_config {        /* borrowed until idempotency_free */
    const api_context *api;                /* used from idempotency_start on */
    journal *journal;                      /* owned by the caller, outlives it */
    const generation_route *const *routes; /* [n_routes] */
    size_t n_routes;
    uint32_t numerics; /* version of the workers' arithmetic: part of what an answer depends on */
} idempotency_config;

status idempotency_new(const idempotency_config *cfg, idempotency **out, err *e);
/* The services take jobs from now on: begins what a restart has left. */
void idempotency_start(idempotency *d);
/* Begins nothing again any more. */
void idempotency_drain(idempotency *d);
/* After the connections, before the services and the journal: runs are dropped, what they were asked stays in the journal. */
void idempotency_free(idempotency *d);
void idempotency_read_counts(const idempotency *d, idempotency_counts *out);

/* Answers the request, now or later. name: the header's value. The rest is as of generation_run_start. */
void idempotency_ask(idempotency *d, const generation_route *route, http_conn *c, uint32_t key,
                     const char *name, const char *session, const char *body, size_t len);

#endif
