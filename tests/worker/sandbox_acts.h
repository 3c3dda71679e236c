/*
 * sandbox_acts: what code inside a worker might try, one function each, and how it should end there.
 */
#ifndef HEARTH_TESTS_WORKER_SANDBOX_ACTS_H
#define HEARTH_TESTS_WORKER_SANDBOX_ACTS_H

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <sys/types.h>

#define N_THREADS 3
#define KILLED    (-SIGSYS) /* how an act ended: 0, an errno, or minus the signal */

/* Open before the sandbox is entered, as a worker's descriptors are. */
typedef struct surroundings {
    char path[64]; /* a file of ours: the model */
    int model;
    const unsigned char *map;
    int pipe[2], pair[2]; /* pair: a connected socket and its other end */
    int socket;           /* neither bound nor connected */
    int root;             /* "/" */
    pid_t parent;
} surroundings;

extern surroundings out;

typedef int (*act_run)(void);

typedef struct act {
    const char *what;
    act_run run;
    int expect; /* inside, sealed */
} act;

extern const act forbidden_acts[], permitted_acts[]; /* both end with what = NULL */

/* The act of that name; ends the program if there is none. */
act_run act_named(const char *what);

#endif
