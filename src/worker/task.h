/*
 * task: one request on its way through the worker, and the table of all that are.
 *
 *   WAITING ──► PREPARING ──► PREPARED ──► RUNNING ──► gone      every exit: one last frame, then task_end
 *      │   begun     │    ids, or its answer  │ the engine has it
 *      └─────────────┴────────────────────────┴── cancel, deadline ──► gone
 *
 * Ops that need neither ids, files nor engine go from WAITING to their end, `session prewarm` by way of RUNNING. A line that was refused is a task too: it
 * waits for room for its answer. Paused is a mark beside the state. OWING: over, but there was no memory for its last
 * frame (last.h).
 *
 * Two queues in the order read: the plain ones, of which only the first is looked at, and the multiplexed
 * ones, found by id from reading to their last frame. A task that ends while the preparer has its job is out
 * of the queues (its id is free again) and goes when the job comes back: tasks_settle.
 *
 * Memory is taken once. Their number is bounded: a task counts among the INBOX_MAX_ITEMS of the inbox until it
 * is begun (generations) or gone (all others), and no more than max_begun multiplexed ones and a
 * plain one are begun. One owner: the engine thread.
 */
#ifndef HEARTH_WORKER_TASK_H
#define HEARTH_WORKER_TASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "engine/engine.h"
#include "wire/request.h"
#include "worker/inbox.h"
#include "worker/prepare.h"

/* Generations that are begun (preparing, prepared or running) for each lane, so that the engine always has
 * work and the rest waits where it costs nothing. */
#define TASKS_BEGUN_PER_LANE 2
/* The same where some are begun for their priority although as many as that are begun: what ranks behind one does
 * not hold it back, up to here. */
#define TASKS_URGENT_PER_LANE 4
/* Texts and lists that are with the preparer, or wait with their answer: an answer can have 64 MiB, and a
 * prompt behind them waits for no more than these. */
#define TASKS_MAX_ANSWERS 4

typedef enum task_state { TASK_WAITING, TASK_PREPARING, TASK_PREPARED, TASK_RUNNING, TASK_OWING } task_state;

struct desk;

typedef struct task {
    /* owned */
    wire_request *request; /* NULL: the line was refused and `answer` is all there is */
    char *answer;          /* NULL with no request: there was no memory for it */
    prepare_job job;
    struct talk *talk; /* of a chat that runs */
    /* borrowed */
    const struct desk *desk;
    sequence *seq;            /* RUNNING */
    struct task *prev, *next; /* of its queue */

    size_t answer_len;
    size_t id_len; /* of a line without request: 0 = plain, or in the answer */
    char id_bytes[WIRE_MAX_ID_BYTES];
    task_state state;
    bool submitted; /* the engine had it */
    bool lost;      /* RUNNING: a frame of it could not be said, it is to end with an error */
    bool multiplexed;
    bool counts; /* among those that wait in the inbox, for inbox_bytes */
    bool begun;  /* it was given to the preparer */
    bool preparer_has_it;
    bool orphan; /* ended, and only waits for its job */
    bool paused;
    size_t inbox_bytes;
    size_t n_again;    /* tokens of `resume` that are still to be heard again: nothing is said until then */
    uint64_t id_hash;  /* on the status page; 0 = plain */
    uint64_t ticket;   /* rises in the order read */
    uint64_t begun_ns; /* multiplexed: when it was read; plain: when it was taken up */
    uint64_t submit_ns;
    uint64_t deadline_ns; /* on mono_ns, 0 = none */
    uint64_t paused_ns;   /* since when */
    uint64_t progress_ns; /* of the last progress frame, 0 = none yet */
} task;

typedef struct task_queue {
    task *first, *last;
} task_queue;

typedef struct tasks {
    task_queue plain, multiplexed;
    size_t n;           /* in both queues */
    size_t n_preparing; /* jobs with the preparer, also of those that ended */
    size_t n_begun;   /* multiplexed generations past WAITING, also those that ended and wait for their job */
    size_t n_answers; /* the same of what is no generation */
    size_t n_owing;   /* OWING */
    uint64_t n_ended;
    uint64_t n_done, n_failed, n_cancelled; /* generations that ended before the engine had them */
    uint64_t attended;                      /* desk_attend's */
    /* private */
    struct tasks_mem *mem;
} tasks;

status tasks_open(tasks *t, inbox *box, size_t max_begun); /* box is borrowed */
/* No job may be with the preparer; nothing is said. */
void tasks_close(tasks *t);
/* Moves the item in. Its id must not be in use. */
task *tasks_add(tasks *t, const struct desk *d, inbox_item *item);
task *tasks_find(const tasks *t, wire_string id);
/* It has said its last frame. */
void tasks_end(tasks *t, task *k);
/* WAITING -> PREPARING: k->job goes to the preparer. */
void tasks_prepare(tasks *t, task *k);
/* Its job came back. */
void tasks_settle(tasks *t, task *k);
task *task_of_job(prepare_job *job);

bool task_is_generation(const task *k);
bool task_same_session(const task *a, const task *b); /* a named one; both have a request */
/* Whether a task that was read before k and is not over has to do with k's session: any, or only an op that
 * changes it or speaks of its tokens. The first plain one counts, those behind it do not. */
bool tasks_earlier_on_session(const tasks *t, const task *k, bool ops_only);

#endif
