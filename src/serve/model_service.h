/*
 * model_service: one model of the daemon: its worker process, the jobs that are with it, and the fair queue
 * of those that wait.
 *
 *   LOADING ──ready──► READY ◄──ready── RESTARTING ◄──death── READY      service_drain: any ──► DRAINING
 *      └──load_failed, or too many deaths──► FAILED ──a job after the back-off──► RESTARTING
 *   STALLED is what service_read calls LOADING, READY or RESTARTING while its worker makes no progress.
 *
 * At most SERVICE_JOBS_PER_LANE x lanes unfinished jobs are with the worker, not counting those that rank behind the
 * next one, and SERVICE_URGENT_PER_LANE x lanes in all; the others wait, round-robin over keys, within a key by rank
 * (priority, one more for each SERVICE_AGEING_NS of waiting, then first come), bounded in number and bytes. `light` jobs (tokenize,
 * detokenize, count, session, stats, kv_limit) do not count and do not wait for others.
 *
 * Invariants. A job ends exactly once: with its last frame (done, error, or the one answer of an op), with
 * on_lost, or with service_cancel; it is the owner's again before the last of its callbacks is called. A death is a pause:
 * the generations that were with the worker are sent again, before those that wait, and go on behind what they have said
 * (reply_journal), so that their owner sees one undisturbed reply; so are light ones marked `resend`, the other light ones
 * end with ST_WORKER_CRASHED. After a death by the worker's own fault those that it is suspected of go one at a time, and
 * one that is with a worker when the next one dies so, ends with ST_WORKER_CRASHED (blame). A worker that cannot be
 * started ends those that no worker has had. A load belongs to the daemon: it goes on when the client that asked has
 * left. No callback but `complete` is called from inside service_submit, _cancel, _stop, _pause or _read.
 *
 * Loop thread only. Limits: service_limits. All times are on the clock of the config.
 */
#ifndef HEARTH_SERVE_MODEL_SERVICE_H
#define HEARTH_SERVE_MODEL_SERVICE_H

#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/status.h"
#include "serve/worker_cause.h"
#include "wire/frame.h"

#define SERVICE_JOBS_PER_LANE   2
#define SERVICE_URGENT_PER_LANE 4
#define SERVICE_AGEING_NS       2000000000 /* as the engine counts (engine/policy.h) */
#define SERVICE_MAX_JOB_ID      71         /* bytes */

typedef struct model_service model_service;
struct held_bytes;
struct status_snapshot; /* wire/status_page.h */
struct service_entry;
struct service_model;

typedef struct service_job {
    /* The owner's: set before submit, whole until the job has ended. */
    char id[SERVICE_MAX_JOB_ID + 1]; /* unique in the daemon: the `id` of the line */
    buf line; /* owned: the multiplexed line with its '\n', without deadline_ms and resume (the service appends
                             what remains); given back once the job has ended; a light one's that is not to
                             be sent again, once the worker has it */
    struct held_bytes
        *behind;  /* owned: the attachment that the line announces; goes with the line, but is not counted in
                                  any limit here: it has its own budget. NULL = none */
    uint32_t key; /* whose turn: index of the API key, 0 = anonymous */
    uint64_t
        deadline_ns; /* 0 = none. The service watches it while the job waits (on_lost ST_TIMEOUT), and that
                             of a light one always; of the others the worker does */
    bool light;
    bool
        resend; /* a light one that changes nothing: it may be sent to another worker if the first one dies */
    uint64_t order; /* jobs of the same one are sent in the order of their submission, also again; 0 = none */
    int32_t priority; /* the request's */
    bool
        has_begun; /* set at any time: others of its request have, so that it waits for the next try where a worker could not
                       be started, as they do */
    /* Of a job whose line depends on the model, submitted while none is known: makes `line` anew. Called once, before it is
     * sent for the first time, and must do nothing else. NULL = the line is as it has to be. */
    status (*complete)(void *ctx, const struct service_model *m);
    /* The last one is FRAME_DONE or FRAME_ERROR, or the answer of an op. */
    void (*on_frame)(void *ctx, const frame *f);
    /* ST_WORKER_CRASHED, ST_LOAD_FAILED, ST_MODEL_CHANGED, ST_DRAINING, ST_TIMEOUT, ST_CANCELLED (service_stop) or
     * ST_NOMEM. */
    void (*on_lost)(void *ctx, const err *why);
    void *ctx;
    /* The service's; NULL = outside. */
    struct service_entry *entry;
} service_job;

typedef struct service_limits {
    size_t max_waiting;       /* jobs; as many light ones, waiting or not, beside them */
    size_t max_waiting_bytes; /* of their lines, and of those that are kept while they are with the worker */
    size_t max_light_bytes;   /* of light ones: generations wait while the worker tokenises them */
    uint64_t stall_ms;        /* without any counter of the status page moving while there is work */
    uint64_t cancel_grace_ms; /* for the terminal frame after a cancel that the worker can have read */
    uint64_t steady_ms;       /* ready for so long: earlier deaths are forgotten */
    uint64_t stop_grace_ms;   /* from SIGTERM to SIGKILL */
    uint64_t tick_ms;         /* how often the above are looked at */
    unsigned max_respawns;    /* deaths without a token in between; one more marks the model failed */
} service_limits;

/* 256 jobs, 256 MiB, 16 MiB, 30 s, 2 s, 10 s, 700 ms, 100 ms, 5. */
service_limits service_limits_default(void);

typedef struct service_config { /* borrowed until service_free */
    const char *id;             /* what the API calls the model */
    char *const *argv;          /* the worker's command, NULL-terminated; [0] is the path of the program */
    service_limits limits;      /* copied */
    const clock_src *clock;
    void (*changed)(void *ctx, model_service *s); /* the state has changed; may be NULL */
    void *ctx;
} service_config;

typedef enum service_state {
    SERVICE_LOADING,
    SERVICE_READY,
    SERVICE_RESTARTING,
    SERVICE_STALLED,
    SERVICE_FAILED,
    SERVICE_DRAINING
} service_state;

typedef struct service_model { /* of the last ready frame; strings are cut */
    char name[128], arch[64], quant[64], kernels[32], digest[65];
    uint64_t params, kv_pages, kv_page_bytes;
    int32_t context_length, vocab_size;
    int32_t lanes;
    frame_sampling sampling;
} service_model;

typedef struct service_info {
    service_state state;
    const char *id; /* borrowed */
    bool known;     /* a worker has been ready: `model` is true */
    service_model model;
    pid_t pid;            /* 0 = no process */
    size_t n_waiting;     /* to be sent, or sent again; the light ones not */
    size_t waiting_bytes; /* lines, of those that are with the worker too */
    size_t n_light;       /* light ones, waiting or with the worker */
    size_t n_with_worker; /* unfinished, those given up included, the light ones not */
    uint64_t n_deaths[WORKER_CAUSE_COUNT];
    uint64_t n_starts;                    /* processes started, the first included */
    uint64_t n_cancelled;                 /* jobs ended by service_cancel or stopped */
    uint64_t n_resumed, n_resumed_tokens; /* generations sent again; the tokens that they had */
    uint64_t n_blamed;                    /* jobs ended for a worker's death */
    double job_s;                         /* mean time of recent jobs with the worker, 0 = unknown */
    char failure[384];                    /* of the last death, "" = none yet */
} service_info;

/* Does not start a worker. */
status service_open(struct event_base *base, const service_config *cfg, model_service **out, err *e);
/* Once: starts the first worker from the loop. */
void service_start(model_service *s);
/* Kills what is left and waits for it; no callback is called. */
void service_free(model_service *s);

/* ST_QUEUE_FULL, ST_DRAINING, ST_NOMEM, ST_BAD_REQUEST (an id that is in use); of a failed model its reason, ST_LOAD_FAILED or
 * ST_WORKER_CRASHED, until its back-off has passed. Then the job is not the service's and keeps its line. */
status service_submit(model_service *s, service_job *j, err *e);
/* Nobody wants it any more: its callbacks are not called again and it is the owner's at once. A waiting one is
 * never sent. With the worker: op cancel is sent, and frames up to the terminal one are dropped; without one in
 * cancel_grace_ms the worker is killed. Of a job that has ended, or was never submitted: nothing. */
void service_cancel(model_service *s, service_job *j);
/* DELETE /v1/requests/{id}: as a cancel, but the job stays and gets its terminal frame; a waiting one gets
 * on_lost ST_CANCELLED. Of a light one that the worker has: nothing, it ends by itself. */
void service_stop(model_service *s, service_job *j);
/* A slow reader: op pause or continue. While all jobs are paused no progress is asked for. */
void service_pause(model_service *s, service_job *j, bool paused);
/* 0 = with the worker (or ended), n = n-th to be sent, those that are sent again included. *estimate_s (may be NULL): until it is sent, from the mean time of
 * recent jobs; 0 = unknown. */
size_t service_position(const model_service *s, const service_job *j, double *estimate_s);

const char *service_id(const model_service *s);
/* Both answer from memory: quick whatever the worker does. */
service_state service_state_now(const model_service *s);
void service_read(const model_service *s, service_info *out);
/* The status page of the worker that runs; zeroes while there is none. */
void service_page(const model_service *s, struct status_snapshot *out);

/* Ends the service. No new jobs; those that wait get on_lost ST_DRAINING from the loop, those with the worker, or to be sent
 * again, may finish, then it exits; a worker that is not ready, and that none of these waits for, is ended at once. */
void service_drain(model_service *s);
/* After service_drain: what is still with the worker gets on_lost ST_DRAINING from the loop, and the worker is ended: SIGTERM,
 * after stop_grace_ms SIGKILL. */
void service_cut(model_service *s);
/* Draining, and no process and no job is left. `changed` is called then. */
bool service_stopped(const model_service *s);

#endif
