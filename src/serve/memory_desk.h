/*
 * memory_desk: moves pages between the models of the daemon while they run (planner.h): looks at them once a second and
 * sends each order as op kv_limit, a light job of the model's service. With one model there is nothing to move, and no
 * desk does anything.
 *
 * Loop thread only. A worker that does not know the op, or says nonsense of its pages, keeps what it has.
 */
#ifndef HEARTH_SERVE_MEMORY_DESK_H
#define HEARTH_SERVE_MEMORY_DESK_H

#include "serve/models.h"

typedef struct memory_desk memory_desk;

/* m is borrowed until memory_desk_free. ST_NOMEM. */
status memory_desk_new(struct event_base *base, models *m, memory_desk **out, err *e);
/* After the services. NULL is fine. */
void memory_desk_free(memory_desk *d);

#endif
