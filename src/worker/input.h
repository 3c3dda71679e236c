/*
 * input: the reader thread: bytes of stdin -> lines -> checked requests -> inbox; and the control pipe.
 *
 * It stops at EOF (a last line without '\n' still counts; then the inbox is ended), when the worker is
 * halted, or when the inbox is aborted; the line `shutdown` halts the worker at once. It never waits for
 * stdout: while the inbox has room it reads, whatever the engine and the writer do; while it has none only
 * the control pipe is read. The bytes that follow a line (`session import`) are gathered in one buffer, and read also
 * where the line is refused. After EOF it stays for the control pipe, if there is one, until the inbox is aborted. Its
 * descriptors are only read after poll said so, and the mode of stdin is left as it is.
 */
#ifndef HEARTH_WORKER_INPUT_H
#define HEARTH_WORKER_INPUT_H

#include <pthread.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/status.h"
#include "wire/line.h"
#include "wire/request.h"
#include "wire/status_page.h"
#include "worker/bell.h"
#include "worker/control.h"
#include "worker/halt.h"
#include "worker/inbox.h"
#include "worker/output.h"

typedef struct input {
    /* borrowed, set by the caller */
    inbox *box;
    halt *halt;
    control *control;
    output *out;       /* how far the writer is, for the control pipe */
    const bell *bell;  /* rung when a running request was cancelled */
    status_page *page; /* input_lines is kept in it */
    const clock_src *clock;
    int fd;
    wire_limits limits;

    pthread_t thread;
    /* reader thread */
    line_splitter lines;
    inbox_item awaiting; /* a request whose attachment is being read; none: all zero */
    bool stopped;        /* halted or aborted */
} input;

/* *in must stay where it is until input_join. */
status input_start(input *in, err *e);
/* After a halt or inbox_abort. */
void input_join(input *in);

#endif
