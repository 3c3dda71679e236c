/*
 * alloc_rig: a whole worker on a small model, in this process, so that base/mem.h can be told which of its allocations
 * fails; and what it says about each request, as bytes. Nothing in here takes memory from base/mem.h.
 *
 * What cannot go on ends the program.
 */
#ifndef HEARTH_TESTS_WORKER_ALLOC_RIG_H
#define HEARTH_TESTS_WORKER_ALLOC_RIG_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ALLOC_MAX_REQUESTS 64

/* What was said about a request. */
typedef struct heard {
    char *body; /* its frames but the last, without what time or cached pages have a part in */
    size_t n_body;
    char *last; /* the last one likewise, and a checksum of what was attached; NULL: there was none yet */
    size_t n_last;
    char *attached;
    size_t n_attached;
    bool failed;
    char code[32]; /* if it failed */
} heard;

typedef struct alloc_rig {
    pthread_t thread;
    int to, from;                        /* the worker's stdin and stdout, our ends */
    int rc;                              /* of worker_run */
    bool over;                           /* it returned: what it said is at its end */
    const char *ids[ALLOC_MAX_REQUESTS]; /* "" = plain: those in the order sent */
    heard all[ALLOC_MAX_REQUESTS];
    size_t n;
    char *bytes; /* read and not yet a whole frame */
    size_t n_bytes, cap_bytes;
    const char *fault; /* of the protocol: what was said is not what may be; NULL = none */
    char shown[512];
} alloc_rig;

/* folder: of the store, an absolute path. Returns when it has said `ready`. */
void alloc_rig_open(alloc_rig *r, const char *model, const char *folder);
/* Ends its input. Returns the exit status. */
int alloc_rig_close(alloc_rig *r);

/* Forgets all that was heard; nothing may be unanswered. */
void alloc_rig_begin(alloc_rig *r);
/* Announces a request of this id, or "" (a plain one), and returns its number; nothing is sent. */
size_t alloc_rig_expect(alloc_rig *r, const char *id);
void alloc_rig_send(alloc_rig *r, const char *bytes, size_t n);
/* Reads until all that was announced is answered. False: the worker is gone, or silent, or said what it may not. */
bool alloc_rig_hear(alloc_rig *r);
/* Reads until something was said about this one. */
bool alloc_rig_hear_some(alloc_rig *r, size_t request);

#endif
