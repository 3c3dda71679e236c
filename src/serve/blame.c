#include "serve/blame.h"

#include <signal.h>

#define EXIT_BY_SIGNAL 128 /* what a worker exits with that a signal has asked to end: this and its number */

static bool asks_to_end(int sig)
{
    return sig == SIGKILL || sig == SIGTERM || sig == SIGINT || sig == SIGHUP;
}

bool blame_is_own_fault(worker_cause cause, int signal_or_status)
{
    switch (cause) {
    case WORKER_EXITED:
        return !asks_to_end(signal_or_status - EXIT_BY_SIGNAL);
    case WORKER_KILLED:
        return !asks_to_end(signal_or_status);
    case WORKER_BROKEN:
    case WORKER_STALLED:
        return true;
    default:
        return false;
    }
}

static bool is_named(const status_snapshot *page, uint64_t hash)
{
    bool named = page->row[STATUS_ROW_PREPARING] == hash || page->row[STATUS_ROW_ATTENDED] == hash;
    for (size_t i = 0; i < page->n_rows && !named; i++) {
        named = page->id_hash[i] == hash;
    }
    return named;
}

blame_case blame_open(const status_snapshot *page)
{
    return (blame_case){.page = page};
}

void blame_hear(blame_case *c, const blame_suspect *s)
{
    bool named = is_named(c->page, s->hash);
    bool doubtful = !s->marked && !s->cleared;
    c->any_named = c->any_named || named;
    c->any_marked = c->any_marked || s->marked;
    c->marked_is_named = c->marked_is_named || (s->marked && named);
    c->n_doubtful += named && doubtful;
    c->n_doubtful_unnamed += !named && doubtful;
}

blame_verdict blame_tell(const blame_case *c, const blame_suspect *s)
{
    bool named = !c->any_named || is_named(c->page, s->hash);
    bool on_trial = c->any_marked && (c->marked_is_named || !c->any_named);
    size_t n_doubtful = c->n_doubtful + (c->any_named ? 0 : c->n_doubtful_unnamed);
    if (!named) {
        return BLAME_NONE;
    }
    if (!on_trial) {
        return BLAME_MARK; /* nobody is tried, or the one that is has nothing to do with it */
    }
    if (s->marked) {
        return s->twice || n_doubtful == 0 ? BLAME_FAIL : BLAME_MARK;
    }
    return s->cleared ? BLAME_NONE : BLAME_MARK;
}
