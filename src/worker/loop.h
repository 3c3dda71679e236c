/*
 * loop: the engine thread of a worker: takes lines, begins requests, steps the engine, and says what comes of
 * it, one commit per step. It waits for nothing but the bell, and for that only when nothing can be computed.
 *
 * Order: plain lines one after another, each carried to its last frame before the next is looked at.
 * Multiplexed generations are begun in the engine's order (priority, age, then as they were read; those on one
 * session as they were read), at most TASKS_BEGUN_PER_LANE for each lane, not counting those that go behind the one
 * to begin, and TASKS_URGENT_PER_LANE in all; other ops wait for nobody, but session ops (get and drop apart) for what
 * was read before them on that session. cancel, pause,
 * continue and drain act as soon as they are read, also past requests that wait.
 *
 * Room: as long as the output has none every sequence is held, nothing is begun and nothing answered; cancels
 * and deadlines still act. Time: deadlines act in every state. A paused request ends as cancelled (guard
 * slow_reader) when slow_reader_ms have passed.
 *
 * Thread: the engine's.
 */
#ifndef HEARTH_WORKER_LOOP_H
#define HEARTH_WORKER_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/status_page.h"
#include "worker/bell.h"
#include "worker/desk.h"
#include "worker/inbox.h"
#include "worker/prepare.h"

typedef struct loop {
    /* borrowed, set by the caller */
    desk desk;
    inbox *box;
    preparer *preparer;
    const bell *bell;
    uint64_t slow_reader_ms;

    bool draining; /* `drain` came: nothing new is begun */
} loop;

/* Returns when everything that was read is answered and nothing more comes (EOF or drain), or when the worker
 * is halted; then nothing runs any more, and what had no end has none. */
void loop_run(loop *l);
/* One turn: everything above but the waiting. True when there may be more to do at once. */
bool loop_turn(loop *l);
/* How long nothing will happen by itself: milliseconds, or BELL_FOREVER. */
int loop_wait_ms(const loop *l);
/* For engine_config.before_step: keeps the page's step list and phase. */
void loop_before_step(void *page, const step_row *rows, size_t n, bool any_prefill);

#endif
