/*
 * blame: which requests a worker's death is suspected of (PROTOCOL 6). Pure.
 *
 * After a death by the worker's own fault the requests that its status page names are suspects: those of its step, the one
 * whose text was prepared, the one that was attended to; if it names none that was with the worker, all of them are. A
 * suspect is marked: it goes on only when no other marked one is with the worker, until it has BLAME_PROBATION_TOKENS more
 * than it had (then it is cleared) or ends. If the worker dies again meanwhile, and the page names the marked one, then it
 * is guilty: at once if all others that are named have been cleared since, else (it may have been one that has only come
 * since) the second time, and the others that are named are suspects.
 *
 *   a poison among neighbours: death 1, all marked ─► goes on among cleared ones: death 2, guilty
 *                                                └──► among others as well: death 2 ─► cleared ones only, or again: death 3
 *
 * The page is not trusted: any content gives a verdict, and each death marks or ends one or more, so that without tokens
 * in between they end.
 *
 * Plain data; any thread.
 */
#ifndef HEARTH_SERVE_BLAME_H
#define HEARTH_SERVE_BLAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "serve/worker_cause.h"
#include "wire/status_page.h"

#define BLAME_PROBATION_TOKENS 8

/* signal_or_status: of WORKER_KILLED the signal, of WORKER_EXITED the exit status, else any. */
bool blame_is_own_fault(worker_cause cause, int signal_or_status);

typedef struct blame_suspect { /* a request that was with the worker when it died */
    uint64_t hash;             /* status_page_id_hash of its id */
    bool marked;
    bool cleared; /* since the first of those that are marked now was */
    bool twice;   /* marked, and a death in its probation was not held against it alone */
} blame_suspect;

typedef enum blame_verdict {
    BLAME_NONE, /* goes on as before: of a marked one, with its mark */
    BLAME_MARK, /* a suspect; of a marked one: `twice` from now on */
    BLAME_FAIL  /* guilty */
} blame_verdict;

/* One death: hears of all that were with the worker, then tells of each. */
typedef struct blame_case {
    const status_snapshot *page; /* borrowed */
    bool any_named, marked_is_named;
    bool any_marked;
    size_t n_doubtful;         /* of the named ones that are neither marked nor cleared */
    size_t n_doubtful_unnamed; /* the same of those that are not named */
} blame_case;

blame_case blame_open(const status_snapshot *page);
void blame_hear(blame_case *c, const blame_suspect *s);
blame_verdict blame_tell(const blame_case *c, const blame_suspect *s);

#endif
