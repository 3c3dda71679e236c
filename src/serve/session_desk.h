/*
 * session_desk: the named sessions of the daemon: turns and ops on them, and the end of those that nobody uses.
 *
 * A turn (a generation that names a session) holds its row from before it is submitted until its run ends. An op is one
 * light job of the model's service, answered by one frame; it holds the row as well. Turns and ops of one session are
 * carried out in the order in which they reach the worker. What a session has read lives with the worker, so it is
 * lost with one that dies: then the name stays, and the next turn begins anew.
 *
 * An idle session is closed at its worker when its time is over; a turn that comes meanwhile keeps the name. After each
 * turn the worker is asked how long the session is now, so that lists need nobody's answer.
 *
 * Loop thread only. Rows belong to the table and are borrowed: the holder's until it lets go.
 */
#ifndef HEARTH_SERVE_SESSION_DESK_H
#define HEARTH_SERVE_SESSION_DESK_H

#include <event2/event.h>

#include "serve/held_bytes.h"
#include "serve/keys.h"
#include "serve/model_service.h"
#include "serve/request_table.h"
#include "serve/session_table.h"
#include "wire/request.h"

typedef struct session_desk session_desk;

typedef struct session_desk_config { /* borrowed until session_desk_free, caps copied */
    struct event_base *base;
    const clock_src *clock;
    const keys *keys;        /* NULL: no keys are asked for */
    request_table *requests; /* numbers the jobs */
    session_caps caps;
} session_desk_config;

status session_desk_new(const session_desk_config *cfg, session_desk **out, err *e);
/* After the services and connections: ops that are still under way are dropped, their answer called as lost. */
void session_desk_free(session_desk *s);

const session_table *session_desk_table(const session_desk *s);
/* Seconds until the key has room for one more, at least 1. */
int session_desk_retry_s(const session_desk *s, uint32_t key);
/* Appends what the worker calls a session. */
status session_desk_put_name(const session_desk *s, uint32_t key, const char *name, buf *out);
/* Whether a process is there that may hold sessions of the model. */
bool session_desk_has_worker(const model_service *m);
/* The service's state has changed: without a worker nothing is held any more. */
void session_desk_look(session_desk *s, const model_service *m);

/*
 * A turn. Begun: *row is held; *priority becomes that in the daemon's queue: never above that of an earlier turn that
 * is still under way, so that they keep their order. ST_CAPACITY, ST_NOMEM.
 */
status session_desk_begin(session_desk *s, uint32_t key, model_service *m, const char *name,
                          int32_t *priority, session_row **row, err *e);
typedef struct session_turn_end { /* how it went */
    bool opened;                  /* the worker accepted it */
    int64_t tokens;               /* of the session now; -1 = unknown */
    bool dirty;
} session_turn_end;
void session_desk_end(session_desk *s, session_row *row, const session_turn_end *end);

/*
 * An op. The row (NULL: it is about none) is held from now until `answer` has returned, which is called once, from the
 * loop: with the worker's frame (which may be an error), or with why there is none. The row knows of it by then. It
 * may be NULL. Of q all is set but its id, its session_id is that of the row if there is one, and its attachment
 * is `behind` (taken whatever happens; NULL = none). On an error nothing was done and nothing is called.
 */
typedef void (*session_answer_fn)(void *ctx, session_row *row, const frame *f, const err *lost);
status session_desk_ask(session_desk *s, model_service *m, uint32_t key, session_row *row, wire_request *q,
                        held_bytes *behind, session_answer_fn answer, void *ctx, err *e);
/* A row that an op may make: found, or new and known to nobody; held as by an op, until session_desk_let_go. */
status session_desk_open(session_desk *s, model_service *m, uint32_t key, const char *name, session_row **out,
                         err *e);
void session_desk_let_go(session_desk *s, session_row *row);
/* Ends it without asking its worker, which has gone. */
void session_desk_forget(session_desk *s, session_row *row);

#endif
