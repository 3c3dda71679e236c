/*
 * input: the reader thread: bytes of stdin -> lines -> checked requests -> inbox.
 *
 * It stops at EOF (a last line without '\n' still counts; then the inbox is ended), when the worker is
 * halted, or when the inbox is aborted. It never waits for stdout: while the inbox has room it reads,
 * whatever the engine and the writer do. Its descriptor is only read after poll said so, and its mode is left
 * as it is.
 */
#ifndef HEARTH_WORKER_INPUT_H
#define HEARTH_WORKER_INPUT_H

#include <pthread.h>
#include <stdint.h>

#include "base/status.h"
#include "worker/halt.h"
#include "worker/inbox.h"

typedef struct input {
    pthread_t thread;
    /* borrowed */
    inbox *box;
    const halt *halt;
    int fd;
    int32_t n_vocab; /* what ids are checked against */
} input;

/* The four last fields are set by the caller; *in must stay where it is until input_join. */
status input_start(input *in, err *e);
/* After EOF, a halt or inbox_abort. */
void input_join(input *in);

#endif
