/*
 * generation_int: what the files of a generation run share.
 *
 * Invariants of a run: 1. it is freed only by run_free, from a callback of its connection, its timer or a job, or by its
 * taker (generation_run_begin, _drop);
 * after a call of run_fail or run_choice_ended it must not be touched. 2. A choice that has not ended has a job
 * that was submitted, or waits for the text of an echo. 3. What was sent of a choice is never taken back.
 */
#ifndef HEARTH_SERVE_GENERATION_INT_H
#define HEARTH_SERVE_GENERATION_INT_H

#include "base/hash.h"
#include "serve/api_error.h"
#include "serve/generation_run.h"
#include "serve/sse.h"

#define RUN_NS_PER_MS 1000000u

struct run_choice;

/* How a route tells what its choices say. All but `whole` are of streams; each may fail the run's sse. */
struct run_voice {
    bool keeps;                                                       /* a stream too: choice.said */
    bool ends_with_done;                                              /* "[DONE]" */
    void (*accepted)(struct run_choice *c);                           /* before anything else of the choice */
    void (*piece)(struct run_choice *c, const frame *f, size_t item); /* item: of said, if that is kept */
    void (*ended)(struct run_choice *c);                              /* its result is known */
    void (*end)(struct generation_run *r);                            /* all choices have ended */
    void (*fault)(struct generation_run *r, const api_fault *f);      /* after which nothing comes */
    status (*whole)(struct generation_run *r, buf *out);
};

typedef struct run_choice {
    struct generation_run *run; /* borrowed */
    service_job job;
    bool began; /* stream: its first chunk is out */
    bool accepted, ended;
    bool echo_is_out;     /* the prompt is in the text */
    answer_result result; /* seed from the start, the rest at its end */

    /* owned */
    speech said;           /* so far; of a stream only if its route asks for it */
    logprob_list logprobs; /* not streamed: all of them; else those of one chunk */
} run_choice;

struct generation_run {
    const api_context *api;        /* borrowed */
    const generation_route *route; /* borrowed */
    model_service *service;        /* borrowed */
    http_conn *conn; /* borrowed: until the answer is complete or `gone`; NULL = there is a taker */
    generation_taker taker;
    char model_digest[SHA256_HEX_LEN + 1]; /* "" = any */
    request_entry entry;
    session_row *session; /* borrowed: a turn of it until the end; NULL = none */
    answer_head head;
    uint64_t created_ns;
    bool stream, include_usage, progress, echo, has_logprobs;
    bool failed;               /* memory was out: ends from the timer */
    bool slow;                 /* the client reads too slowly */
    bool has_first;            /* a token has come */
    bool was_accepted;         /* by the worker: any choice */
    double temperature, top_p; /* in force */
    int32_t priority;          /* in the daemon's queue */
    size_t shown_position;     /* in the last progress comment; SIZE_MAX = none yet */
    size_t per_prompt, n_choices, n_ended;

    /* owned */
    sse_stream sse;
    struct event *timer;
    buf request;             /* what the answer repeats of the request */
    generation *asked;       /* where the model was not known yet: lines are made again; by mem_free */
    struct run_told *told;   /* the voice's own, by mem_free */
    struct run_echo *echoes; /* [n_choices / per_prompt] if echo */
    run_choice choices[];    /* [n_choices] */
};

/* generation_chunks.c */
/* Sends a chunk of the choice, which is streamed: c->logprobs too if with_logprobs. */
void run_put_chunk(run_choice *c, const char *text, size_t len, bool with_logprobs,
                   const answer_result *result);

/* generation_run.c */
void run_no_memory(generation_run *r); /* it will fail, from the timer */
void run_fail(generation_run *r, const api_fault *f);
void run_fail_no_memory(generation_run *r);
void run_submit_choices(generation_run *r);
/* All choices end as cancelled. */
void run_cut_all(generation_run *r);

/* generation_wait.c */
void run_wait(generation_run *r); /* of a stream: until the next time that something is due */
void run_wait_over(evutil_socket_t fd, short what, void *ctx); /* of the timer */
/* In the queue, of the first choice that was not accepted yet; 0 = with the worker. */
size_t run_position(void *ctx, double *estimate_s);

/* generation_echo.c: the text of the prompts. */
typedef struct run_echo {
    buf text;        /* owned */
    service_job job; /* asks for it where the prompt was given as ids */
    bool is_known;
} run_echo;

status run_echo_prepare(generation_run *r, const generation *g, const char *job_id, err *e);
/* Asks for the texts one after another, then run_submit_choices. */
void run_echo_next(generation_run *r);
void run_echo_cancel(generation_run *r);
void run_echo_stop(generation_run *r);
void run_echo_free(generation_run *r);
/* Puts the prompt before the reply of the choice, with the log probabilities of its tokens from the second on. */
void run_echo_put(run_choice *c, const frame_logprob *probs, size_t n);

#endif
