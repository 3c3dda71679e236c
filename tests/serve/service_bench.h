/*
 * service_bench: a model service around stub_worker.py, its loop, and clients that note what becomes of their
 * jobs, for the tests of model_service.
 */
#ifndef HEARTH_TESTS_SERVICE_BENCH_H
#define HEARTH_TESTS_SERVICE_BENCH_H

#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/test_main.h"
#include "serve/model_service.h"

#define BENCH_MAX_ARGS 16

typedef struct bench {
    struct event_base *base;
    service_config cfg;
    model_service *service;
    clock_fake still; /* of bench_open_still */
    char dir[64], seen[128], stub[512];
    char *argv[BENCH_MAX_ARGS];
    size_t n_changes;
} bench;

typedef struct client {
    service_job job;
    size_t n_tokens, n_frames;
    char text[4096]; /* of the reply or answer, cut */
    char reason[32]; /* of the done frame */
    bool ended;      /* by a frame */
    bool lost;
    status code; /* of the error frame or the loss */
    char message[400];
    void (*then)(struct client *c); /* called at its end */
    void *then_ctx;
} client;

/* Generous ones, for a busy machine: stall and grace 20 s, tick 10 ms, 2 respawns; the rest as usual. */
service_limits bench_limits(void);
/* mode: words for the stub, "" = none. `program` replaces it (NULL = the stub). Does not start it. */
void bench_open(bench *b, const char *mode, const service_limits *limits, const char *program);
/*
 * The same on a clock that stands still until bench_until_later or bench_later moves it; its tick is 1 ms. Time passes
 * some hundred times faster then than it does for the worker: what the worker is to do before, wait for while it stands.
 */
void bench_open_still(bench *b, const char *mode, const service_limits *limits);
void bench_start(bench *b); /* and waits until it is ready */
void bench_close(bench *b);

/* Runs the loop until cond(ctx); fails after 60 s. */
void bench_until(bench *b, bool (*cond)(void *ctx), void *ctx);
/* As bench_until, while the clock of bench_open_still goes on; returns by how many ms. */
uint64_t bench_until_later(bench *b, bool (*cond)(void *ctx), void *ctx);
void bench_later(bench *b,
                 uint64_t ms); /* it goes on by ms, in small steps; the service has looked at each */
void bench_run_ms(bench *b, unsigned ms);
bool bench_is_ready(void *ctx); /* ctx: the bench */

/* A generate line with the prompt. */
void client_fill(client *c, const char *id, uint32_t key, const char *prompt);
status client_submit(bench *b, client *c, const char *id, uint32_t key, const char *prompt);
/* {"op":…} with the rest of the line's members; a light job. */
status client_submit_op(bench *b, client *c, const char *id, const char *members);
void client_wait(bench *b, client *c); /* until it has ended or is lost */
bool client_is_over(void *ctx);        /* ctx: the client */

service_info bench_info(const bench *b);
/* The stub's word "gate" goes on. Jobs that must still be with it when something is done to them wait there, not for a time. */
void bench_open_gate(const bench *b);
/* How often the stub has read a line that holds `text`; *first (may be NULL): in which line, from 0. */
size_t bench_seen(const bench *b, const char *text, size_t *first);
size_t bench_logged(const bench *b, const char *text);

#endif
