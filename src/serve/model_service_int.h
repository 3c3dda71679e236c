/*
 * model_service, inside: what jobs (service_jobs.c), frames (service_frames.c), the life of the worker (service_life.c)
 * and what a death leaves (service_again.c) share. Nobody else includes this, but for the tests' service_bench.c, which
 * waits for a tick.
 *
 * An entry is the service's half of a job, from submit to its last frame; it stays when the job is given up.
 *
 *   submit ─► WAITING ──dispatch──► SENT ──terminal frame──► (freed)
 *                │                  │ ▲ │
 *                │            death ▼ │ │
 *                │                AGAIN │
 *                └────── LOST ◄─────┴───┘   on_lost is called from the loop, then it is freed
 */
#ifndef HEARTH_SERVE_MODEL_SERVICE_INT_H
#define HEARTH_SERVE_MODEL_SERVICE_INT_H

#include "serve/fair_queue.h"
#include "serve/model_service.h"
#include "serve/reply_journal.h"
#include "serve/respawn.h"
#include "serve/worker_conn.h"
#include "serve/worker_watch.h"
#include "wire/request.h"

#define SERVICE_NS_PER_MS    1000000u
#define SERVICE_HASH_BUCKETS 1024u

typedef enum entry_place {
    ENTRY_WAITING,
    ENTRY_AGAIN, /* its worker has died; in the order in which they were first sent */
    ENTRY_SENT,
    ENTRY_LOST,
    ENTRY_PLACES
} entry_place;

typedef struct service_entry {
    fair_item turn;   /* first; light ones are not in the fair queue */
    service_job *job; /* borrowed; NULL = given up */
    entry_place place;
    bool light;
    bool paused;
    bool marked, twice;          /* suspected: blame.h */
    size_t marked_at;            /* the tokens that it had then */
    uint64_t cleared_in;         /* which inquiry it was cleared in, 0 = none */
    size_t n_bytes;              /* of its line */
    size_t kept_bytes;           /* of them, counted in the service's */
    uint64_t serial;             /* in the order of first sending; 0 = never sent */
    uint64_t sent_ns, cancel_ns; /* sent_ns: first. cancel_ns: its grace runs since then, 0 = there is none */
    uint64_t cancel_line, cancel_end;  /* which line to this worker it is (from 1), and where that ends */
    status lost;                       /* LOST: why */
    const char *lost_text;             /* static storage or the service's `failure` */
    struct service_entry *prev, *next; /* of its place */
    struct service_entry *next_hashed;
    char id[SERVICE_MAX_JOB_ID + 1];
    size_t id_len;
    reply_journal told; /* owned; not of a light one */
} service_entry;

typedef struct entry_list {
    service_entry *first, *last;
} entry_list;

typedef struct service_reading { /* how far the worker has read what was written to it, as of the last tick */
    uint64_t lines;              /* as its status page says; the most that it ever said */
    uint64_t bytes;              /* in its pipe, or read */
} service_reading;

typedef enum service_life {
    LIFE_DOWN,     /* no process; started at start_ns */
    LIFE_STARTING, /* until the ready frame */
    LIFE_READY,
    LIFE_LOSING, /* until it is reaped */
    LIFE_FAILED, /* no process; started when somebody asks after start_ns */
    LIFE_STOPPED
} service_life;

struct model_service {
    service_config cfg;
    struct event_base *base; /* borrowed */
    service_life life;
    bool started, draining, cut;
    bool was_ready;     /* a worker has been ready, ever */
    bool load_failed;   /* this worker has said so */
    bool lost_work;     /* this worker had some when it was lost */
    bool told_drain;    /* this worker */
    service_state told; /* what `changed` has heard of */
    bool told_stopped;
    service_model model;
    uint64_t start_ns, ready_ns; /* ready_ns: of this worker, 0 = not yet */
    uint64_t kill_ns;            /* SIGKILL then, 0 = not asked to end */
    respawn respawn;
    worker_watch watch;
    uint64_t still_ns; /* no progress for so long */
    uint64_t n_lines;  /* written to this worker */
    service_reading reading;
    status failed_code;
    char failure[384];
    uint64_t n_deaths[WORKER_CAUSE_COUNT], n_starts, n_cancelled;
    uint64_t n_resumed, n_resumed_tokens, n_blamed;
    double job_s;

    /* jobs */
    fair_queue queue;
    size_t n_full;               /* unfinished ones with the worker, the light ones not counted */
    size_t n_again;              /* to be sent again, the light ones not counted */
    size_t kept_bytes;           /* lines of those two */
    uint64_t n_sent;             /* ever, for the first time */
    uint64_t inquiry;            /* counts the times from the first mark to the last one gone */
    size_t n_light, light_bytes; /* light ones, wherever they are */
    entry_list at[ENTRY_PLACES];

    /* memory */
    uint64_t kills; /* for want of it, as counted when the worker was started */
    bool counts_kills;
    uint64_t kv_pages_limit; /* of the next worker, 0 = as it plans itself */
    char pages_option[40];   /* says so, behind its other words; "" = nothing */

    /* owned */
    worker_conn *conn;
    struct event *tick; /* runs while there is something to watch */
    struct event *lost; /* made active when there are lost entries */
    service_entry *hash[SERVICE_HASH_BUCKETS];
};

uint64_t service_now(const model_service *s);

/* Jobs. */
service_entry *service_entry_find(const model_service *s, const char *id, size_t len);
/* Forgets the entry; its job, if there is one, is the owner's again. */
void service_entry_end(model_service *s, service_entry *en);
/* on_lost comes from the loop; text has static storage. Of a given-up one: it is forgotten. */
void service_entry_lose(model_service *s, service_entry *en, status why, const char *text);
void service_lose_all(model_service *s, entry_place place, status why, const char *text);
/* Out of where it is; not to LOST. */
void service_entry_move(model_service *s, service_entry *en, entry_place place);
/* Sends what may be sent. */
void service_dispatch(model_service *s);
void service_sweep(model_service *s, uint64_t now_ns);           /* deadlines */
void service_on_lost(evutil_socket_t fd, short what, void *ctx); /* the event of lost entries */
void service_entries_free(model_service *s);
/* To the worker; en NULL: an op without id. */
void service_put_op(model_service *s, const service_entry *en, wire_op op);

/* To the worker, which is ready: it waits, out of the fair queue, or is sent again. */
void service_send(model_service *s, service_entry *en);

/* Deaths. */
/* No process is left: what was with it is to be sent again, or lost. */
void service_again_after(model_service *s, worker_cause cause);
/* Sends again what may be. */
void service_again_dispatch(model_service *s);
/* One of the same order is to be sent again, and must go before. */
bool service_again_holds(const model_service *s, const service_job *job);
/* Another file has been loaded: what has begun cannot go on. */
void service_again_drop(model_service *s);
/* It has got on. True: the mark is gone, another suspect may go. */
bool service_again_clears(model_service *s, service_entry *en);

/* Memory (service_memory.c). */
void service_memory_started(model_service *s);
/* The same, or WORKER_OOM_KILLED: it was killed, and the kernel has killed somebody for memory since it was started. */
worker_cause service_memory_cause(model_service *s, worker_cause cause);
/* After such a death of one that was ready the next worker has a quarter fewer pages. */
void service_memory_after(model_service *s, worker_cause cause);

/* Frames: worker_conn's `frame`. */
const char *service_take_frame(void *ctx, const frame *f);

/* The worker's life. */
void service_life_lost(void *ctx); /* worker_conn's `lost` and `gone` */
void service_life_gone(void *ctx);
void service_life_ready(model_service *s);
void service_life_asked(model_service *s); /* a failed model shall be tried again */
void service_on_tick(evutil_socket_t fd, short what, void *ctx);
void service_want_tick(model_service *s);
void service_tell(model_service *s); /* `changed`, if it has */

#endif
