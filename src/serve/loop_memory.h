/*
 * loop_memory: what libevent 2.1 does without memory and does not tell, made impossible or told. Loop thread only.
 */
#ifndef HEARTH_SERVE_LOOP_MEMORY_H
#define HEARTH_SERVE_LOOP_MEMORY_H

#include <event2/bufferevent.h>
#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* Room for n timers at once: they are kept in one array that is never given back, so adding one does not fail then, and
 * whoever adds it need not ask. ST_NOMEM. */
status loop_memory_reserve(struct event_base *base, size_t n);

/* After something was added to its output: whether the loop looks when the descriptor takes it. A bufferevent that
 * could not arrange that says nothing, and nothing would ever be written. */
bool loop_memory_will_write(struct bufferevent *bev);

#endif
