/*
 * control: the cancel pipe of plain clients (PROTOCOL 3(b)): its descriptor, and the cancel_gate that its ids
 * go through, shared by the two threads that have a say.
 *
 * Opening looks at the descriptor that the environment named (whoever reads the environment passes the text
 * on). It has to come before this process opens anything of its own: a number that nobody gave us could
 * otherwise be one of ours.
 *
 * Threads: the reader polls control_fd and calls control_read; the engine thread calls the rest. `cancel` is
 * the cancel flag of the active request (there is only ever one).
 */
#ifndef HEARTH_WORKER_CONTROL_H
#define HEARTH_WORKER_CONTROL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "worker/cancel_gate.h"

typedef struct control {
    int fd;             /* owned; -1: there is none, or its writers are gone */
    bool supported;     /* a cancel could come when the worker started */
    atomic_bool cancel; /* release in control_read and control_begin, acquire in the engine */
    pthread_mutex_t mu;
    cancel_gate gate; /* guarded by mu */
} control;

/* text: a descriptor number, NULL = none was named. Accepted is one that is all digits, > 2, an int, a FIFO
 * and open for reading; it becomes non-blocking and close-on-exec, and what is in it already is read. Any
 * other, or one whose writers are gone, is no error: then cancelling is not supported; it is closed if it is
 * above 2. */
void control_open(control *c, const char *text);
void control_close(control *c);

/* What poll should watch for POLLIN, or -1. */
int control_fd(const control *c);
/* Reads what is there. written: bytes that the writer has written. True if the active request was cancelled
 * by it: the engine should look. */
bool control_read(control *c, uint64_t written);

bool control_allows(control *c, uint64_t id);
void control_begin(control *c, uint64_t id); /* sets `cancel` as it has to be from the start */
void control_spend(control *c, uint64_t id);
void control_seal(control *c, uint64_t end_at);

#endif
