/*
 * turns: what the model said in conversations, kept so that the next turn of the same conversation finds the very
 * tokens, and the reasoning, that the client does not send back (FAILURES P3).
 *
 * A turn is found by its key: a digest of the conversation up to it and of what the client was told (recall.h
 * makes both). Of two with the same key the later one counts. It is a cache: what is forgotten is tokenised anew,
 * what is found changes token ids, never text of the client. It is in memory only and ends with the worker; so
 * the ids of a prompt, and with them its prompt_digest, may be others after a restart: where something of a conversation
 * was found `accepted` says the ids, and whoever resumes that reply sends them along (`resume`).
 *
 * Bounds: bytes, all of a turn and its bookkeeping counted, and TURNS_MAX; beyond either the turns unused for
 * longest go. One that is larger than the whole budget is not kept.
 *
 * Threads: any; a mutex guards everything. A turn that was got is immutable and stays until it is given back, also
 * if it is replaced or goes over the budget meanwhile; all must be back before turns_free.
 *
 * Errors: ST_NOMEM; what was kept before is kept.
 */
#ifndef HEARTH_WORKER_TURNS_H
#define HEARTH_WORKER_TURNS_H

#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/status.h"

#define TURNS_DEFAULT_BYTES ((size_t)64 << 20)
#define TURNS_MAX           65536

typedef struct turn { /* borrowed when put; all of it is copied */
    uint8_t key[SHA256_BYTES];
    /* The rendered text that the reply followed: its length, and a digest of it. */
    size_t prompt_bytes;
    uint8_t prompt_digest[SHA256_BYTES];
    /* The reply as it was generated: tokens of whole characters, then text that no whole token spells (what is left
     * before a stop string, or of repaired bytes). */
    const int32_t *ids;
    size_t n_ids;
    const char *rest;
    size_t n_rest;
    const char *reasoning; /* as the client was told it */
    size_t n_reasoning;
    void *entry; /* private */
} turn;

typedef struct turns turns;

status turns_new(size_t max_bytes, turns **out);
void turns_free(turns *t);
status turns_put(turns *t, const turn *what);
/* NULL: there is none. To be given back with turns_unget. */
const turn *turns_get(turns *t, const uint8_t key[SHA256_BYTES]);
void turns_unget(turns *t, const turn *what); /* NULL is fine */

typedef struct turns_figures {
    size_t n, bytes;
} turns_figures;
turns_figures turns_count(turns *t);

#endif
