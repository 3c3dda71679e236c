/*
 * session_table: which sessions there are: whose, of which model, when they were used, and who holds them. What a
 * session has read is with the worker; here is its name.
 *
 *   add ──► held (n_turns, n_ops > 0) ──last release──► idle ──ttl──► session_table_expired: somebody closes it
 *              ▲                          │ not `opened`: removed      │
 *              └──────────hold────────────┴────────────────────────────┘
 *
 * Invariants. A row is found only with the key that made it. It stays where it is until the release that removes it;
 * who holds it may use it. Only idle rows expire, the one unused for longest first. `opened` is the holders': false
 * means that no worker knows of it (never taken, or closed), and such a row goes when nobody holds it any more.
 *
 * Times are values of one clock that never goes back. No thread of its own; loop thread. Limits: session_caps, and
 * SESSION_MAX_ROWS over all keys.
 */
#ifndef HEARTH_SERVE_SESSION_TABLE_H
#define HEARTH_SERVE_SESSION_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "serve/session_names.h"

#define SESSION_MAX_ROWS 65536

struct model_service;

typedef struct session_caps {
    size_t per_key;
    uint64_t ttl_ns; /* of an idle one */
} session_caps;

typedef struct session_row {
    char name[SESSION_MAX_NAME + 1];
    uint32_t key;
    struct model_service *model; /* borrowed, only compared here */
    uint64_t created_ns, used_ns;
    size_t n_turns; /* generations of it that wait or run */
    size_t n_ops;   /* whatever else holds it */

    /* The holders', free to write. */
    bool opened;
    int64_t tokens; /* as the worker has said last */
    bool dirty;
    int32_t priority; /* of the last turn that was taken up */

    /* private */
    bool idle;
    struct session_row *prev, *next;   /* all of them, the oldest first */
    struct session_row *older, *newer; /* the idle ones by used_ns */
    struct session_row *next_hashed;
} session_row;

typedef struct session_table session_table;

typedef enum session_hold { SESSION_TURN, SESSION_OP } session_hold;

status session_table_new(const session_caps *caps, session_table **out);
void session_table_free(session_table *t); /* and all rows, held or not */

/* NULL if this key has none. model NULL: of any; then *several (may be NULL) tells whether more than one model has it. */
session_row *session_table_find(const session_table *t, uint32_t key, const struct model_service *model,
                                const char *name, bool *several);
/* A new row, held by the caller. Call only if there is none. ST_CAPACITY (either limit), ST_NOMEM. */
status session_table_add(session_table *t, uint32_t key, struct model_service *model, const char *name,
                         session_hold how, uint64_t now_ns, session_row **out, err *e);
void session_table_hold(session_table *t, session_row *r, session_hold how);
/* used: it counts as a use, from which the time to its end runs. True: the row is gone. */
bool session_table_release(session_table *t, session_row *r, session_hold how, bool used, uint64_t now_ns);

/* An idle row whose time is over, or NULL. It stays until it is held and released without `opened`. */
session_row *session_table_expired(const session_table *t, uint64_t now_ns);
uint64_t session_table_due_ns(
    const session_table *t); /* when the next one's is; UINT64_MAX = nothing is idle */
uint64_t session_row_end_ns(const session_table *t, const session_row *r); /* UINT64_MAX: a turn holds it */
/* When a place for the key becomes free by itself; UINT64_MAX = nothing of it is idle. */
uint64_t session_table_room_ns(const session_table *t, uint32_t key);

/* All rows one after another, the oldest first; r NULL: the first. */
session_row *session_table_each(const session_table *t, const session_row *r);
/* The key's rows one after another, the oldest first; r NULL: the first. */
session_row *session_table_next(const session_table *t, uint32_t key, const session_row *r);
size_t session_table_count(const session_table *t, const struct model_service *model); /* of all keys */

#endif
