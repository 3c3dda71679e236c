/*
 * generation_run: one request of /v1/completions, /v1/chat/completions or /v1/responses, from its body to the
 * end of its answer: one job of the model's service for each choice. How it is told is its route's voice; whom it is
 * told is a connection, or (never streamed) a taker, for which it exists without a client.
 *
 *   read ──► (echo of token ids: their text is asked for) ──► submitted ──► accepted, pieces … ──► all choices
 *   ended: the answer is completed        every exit: jobs given up, entry out of the table, run freed, once
 *
 * The headers of a stream are sent with the first choice that the worker accepts; if that takes longer than the
 * keep-alive interval or RUN_HEADERS_MS, or progress was asked for, before: from then on an error
 * is an event without [DONE] after it, else it is an HTTP status. A stream that is silent for the keep-alive
 * interval gets a comment or an empty delta. Progress goes out as comments (`: progress {…}`).
 *
 * A client that leaves takes all its jobs with it; one that reads too slowly pauses them. A choice cut by a
 * deadline or DELETE ends as `length`, with what it had; a request whose deadline passes before any choice
 * was accepted is a 504.
 *
 * A run frees itself when the answer is complete or the client is gone; one with a taker right before the taker hears
 * of it. Loop thread only. Its memory while it
 * is idle: about 1 KiB and 0.5 KiB for each choice.
 */
#ifndef HEARTH_SERVE_GENERATION_RUN_H
#define HEARTH_SERVE_GENERATION_RUN_H

#include "serve/answer.h"
#include "serve/api.h"
#include "serve/api_error.h"
#include "serve/generation.h"
#include "serve/http.h"

#define RUN_HEADERS_MS  15000u
#define RUN_PROGRESS_MS 500u

typedef struct run_voice run_voice;
extern const run_voice run_chunks; /* of completions and chat */

typedef struct generation_route {
    const char *path;
    const answer_shape *shape;
    const run_voice *voice;
    status (*read)(const char *body, size_t len, uint64_t drawn_seed, generation *out, err *e);
} generation_route;

typedef struct generation_run generation_run;

/* Who gets the answer of a run that has no connection: called once, the run is gone by then. */
typedef struct generation_taker {
    void (*answer)(void *ctx, buf *body); /* 200; takes the body */
    void (*refuse)(void *ctx, const api_fault *f);
    void *ctx;
} generation_taker;

/* What a run depends on beside its body and the seed drawn for it. */
typedef struct generation_order {
    uint32_t key;
    const char *request_id; /* borrowed for the call */
    uint64_t
        serial; /* tells it from others of that id on the wire, where call ids come from; 0 = a new one */
    int64_t created_ms; /* its `now`; its deadline counts from here */
    /* What its model said of sampling; NULL = it is not known yet, and counts when it is. Borrowed for the call. */
    const frame_sampling *sampling;
    const char *model_digest; /* copied: another file fails the run with model_changed; "" = any */
    model_service *service;
} generation_order;

/* 1 … 2^63-1, as on the wire. ST_INTERNAL: the system gives no random bytes. */
status generation_draw_seed(uint64_t *seed, err *e);
/* The service that g names. ST_NOT_FOUND. */
status generation_find_service(const api_context *api, const generation *g, model_service **out, err *e);
/* What a client hears that asked for it. */
void generation_fault_of(const api_context *api, uint32_t key, const err *e, api_fault *out);

/* A run for a taker, not begun: then generation_run_begin or _drop, once. g stays the caller's, its parts may be moved. */
status generation_run_new(const api_context *api, const generation_route *route,
                          const generation_order *order, const generation_taker *taker, generation *g,
                          generation_run **out, err *e);
/* Before it is begun: what its lines take. */
size_t generation_run_bytes(const generation_run *r);
/* The taker may be called at once. */
void generation_run_begin(generation_run *r);
/* The taker is not called any more. */
void generation_run_drop(generation_run *r);

/* Answers the request, now or later. key: whose it is. session: its header X-Hearth-Session, NULL = none. */
void generation_run_start(const api_context *api, const generation_route *route, http_conn *c, uint32_t key,
                          const char *session, const char *body, size_t len);

#endif
