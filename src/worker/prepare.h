/*
 * prepare: the thread that turns requests into what the engine gets, so that a long text never holds up a
 * step: token ids, stop strings, a seed; the whole answer of the small ops that need no engine (tokenize,
 * detokenize, count, render); and the files of saved sessions (saved.h), which a slow disk may hold up.
 *
 * Jobs are done one after another in the order they came. Each is given back exactly once. How many there are
 * is bounded by who puts them in; the preparer allocates nothing for them.
 *
 * Threads: one puts and takes (the engine thread); between put and take a job is the preparer's, but for
 * `dropped`.
 */
#ifndef HEARTH_WORKER_PREPARE_H
#define HEARTH_WORKER_PREPARE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/status.h"
#include "base/vec.h"
#include "text/stop.h"
#include "text/tokenizer.h"
#include "wire/request.h"
#include "wire/status_page.h"
#include "worker/bell.h"
#include "worker/prompt.h"
#include "worker/saved.h"

typedef struct prepare_with { /* borrowed; any thread may read it */
    const tokenizer *tok;
    const ivec *prefix; /* ids before every plain prompt */
    int32_t n_ctx;
    const chat_template *chat; /* NULL: conversations are refused with chat_error */
    const err *chat_error;
    const clock_src *clock; /* for requests without `now`; NULL = the system's */
    turns *kept;            /* what was said in conversations; NULL: nothing is remembered */
    const saved *saved;     /* where sessions are saved; NULL: no such job may be put */
} prepare_with;

typedef struct prepare_job {
    const wire_request
        *request;        /* borrowed: generate, chat, tokenize, detokenize, count or render; session save (its
                                    tokens are in ids), restore or drop */
    atomic_bool dropped; /* nobody waits for it: it may stop between two texts */
    struct prepare_job *next;

    /* The result. st: ST_OK, or why (in error). */
    status st;
    err error;
    uint64_t seed;
    int64_t now_ms; /* the request's (seed too), of `resume` if it has that; else the time of day */
    int32_t budget; /* chat: reasoning tokens, -1 = no limit */
    char digest[SHA256_HEX_LEN + 1]; /* of the ids; multiplexed generate and chat only */
    /* owned */
    ivec ids;         /* also when the prompt is too long; session restore: what was saved */
    stop_set *stops;  /* NULL = none */
    buf answer;       /* tokenize, detokenize, count, render: one whole frame */
    prompt_talk talk; /* chat */
    ivec close_ids;   /* chat: what ends reasoning */
    size_t n_dropped; /* session drop: tokens that were saved */
} prepare_job;

/* What the thread does with one job; a pure function but for a seed that has to be drawn. */
void prepare_run(const prepare_with *with, prepare_job *job);
void prepare_job_release(prepare_job *job);

typedef struct preparer preparer;

/* with is copied, what it points to, b and page are borrowed. b is rung when a job is done; page (may be NULL)
 * counts them, and says whose job is being done (STATUS_ROW_PREPARING). */
status preparer_new(const prepare_with *with, const bell *b, status_page *page, preparer **out, err *e);
/* Until then jobs only queue up. */
status preparer_start(preparer *p, err *e);
/* Waits for the text it is in; started or not. Jobs that were not given back are those of who put them in
 * again. NULL is fine. */
void preparer_free(preparer *p);
void preparer_put(preparer *p, prepare_job *job);
prepare_job *preparer_take(preparer *p); /* one that is done, or NULL */

#endif
