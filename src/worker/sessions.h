/*
 * sessions: the slot table: names of sessions to the engine's sessions.
 *
 * A worker of N slots has N - 1 named ones that keep a lane (the plain dialect's); the last belongs to anonymous
 * requests. Beside them stand those that hold a lane only while a request of theirs runs (the daemon's). A session that
 * exists is found before capacity is looked at; none is ever evicted. Names are bytes with a length. One owner: the
 * engine thread.
 *
 * Errors: ST_UNSUPPORTED_SESSION (no named slots at all), ST_CAPACITY (all in use, or the engine cannot make
 * one).
 */
#ifndef HEARTH_WORKER_SESSIONS_H
#define HEARTH_WORKER_SESSIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "engine/engine.h"
#include "wire/request.h"

typedef struct sessions sessions;

#define SESSIONS_WITHOUT_LANE 1024

typedef enum sessions_kind { SESSION_KEEPS_LANE, SESSION_WITHOUT_LANE } sessions_kind;

status sessions_new(engine *en, size_t n_named, sessions **out); /* en is borrowed */
void sessions_free(sessions *t);                                 /* closes what is open; none may be busy */

session *sessions_find(const sessions *t, wire_string name); /* NULL if there is none */
/* Finds, or opens one of that kind. *opened (may be NULL): whether this call opened it. */
status sessions_open(sessions *t, wire_string name, sessions_kind kind, session **out, bool *opened, err *e);
void sessions_close(sessions *t, wire_string name); /* an unknown name is fine; must not be busy */
size_t sessions_count(const sessions *t);
/* Of the session that has this owner's number in the engine, also while it is being closed; data NULL if there
 * is none. Borrowed until it is closed. */
wire_string sessions_name_of(const sessions *t, uint64_t owner);
/* Logs what became of a lane: `reset` for who debugs, `reclaimed` as a warning with the session's name. t may be
 * NULL (no session has a name yet). */
void sessions_note_lane(const sessions *t, const lane_event *ev);

#endif
