#include <assert.h>

#include "base/mem.h"
#include "engine/engine_int.h"

const char *reset_reason_name(reset_reason r)
{
    static const char *const names[] = {"new", "dirty", "exact_prefix", "equal", "prefix", "mismatch"};
    return (size_t)r < sizeof names / sizeof names[0] ? names[r] : "unknown";
}

status session_open(engine *en, session **out)
{
    session *s = mem_calloc(1, sizeof *s);
    if (!s) {
        return ST_NOMEM;
    }
    s->en = en;
    s->owner = ++en->n_tickets;
    s->last_used = en->step_no;
    s->next = en->sessions;
    if (s->next) {
        s->next->prev = s;
    }
    en->sessions = s;
    counter_add(&en->count.sessions, 1);
    *out = s;
    return ST_OK;
}

void session_close(session *s)
{
    if (!s) {
        return;
    }
    engine *en = s->en;
    assert(s->n_requests == 0);
    session_lose_lane(s);
    if (s->prev) {
        s->prev->next = s->next;
    } else {
        en->sessions = s->next;
    }
    if (s->next) {
        s->next->prev = s->prev;
    }
    atomic_fetch_sub_explicit(&en->count.sessions, 1, memory_order_relaxed);
    ivec_release(&s->ids);
    mem_free(s);
}

status session_reset(session *s)
{
    assert(s->n_requests == 0);
    ivec_reset(&s->ids);
    s->dirty = false;
    return ST_OK;
}

status session_keep(session *s, const ivec *ids)
{
    ivec_reset(&s->ids);
    return ivec_append(&s->ids, ids->data, ids->len);
}

void session_lose_lane(session *s)
{
    assert(!s->active);
    if (s->lane) {
        (void)lanes_release(s->en->lanes, s->owner);
        s->lane = NULL;
        engine_note_pages(s->en);
    }
}

void session_gives_lane(session *s)
{
    s->gives_lane = true;
}

uint64_t session_owner(const session *s)
{
    return s->owner;
}

bool session_busy(const session *s)
{
    return s->n_requests > 0;
}

bool session_dirty(const session *s)
{
    return s->dirty;
}

static const ivec *tokens_of(const session *s)
{
    return s->active ? &s->active->kv->ids : &s->ids;
}

const int32_t *session_resident(const session *s, size_t *n)
{
    *n = tokens_of(s)->len;
    return tokens_of(s)->data;
}

reset_reason session_match(const session *s, bool warm, const int32_t *prompt, size_t n, size_t *known)
{
    *known = 0;
    if (!s || !warm) {
        return RESET_NEW;
    }
    if (s->dirty) {
        return RESET_DIRTY;
    }
    const ivec *ids = tokens_of(s);
    if (ids->len == 0) {
        return RESET_NEW;
    }
    size_t shared = 0, limit = n < ids->len ? n : ids->len;
    while (shared < limit && ids->data[shared] == prompt[shared]) {
        shared++;
    }
    if (shared == ids->len && shared < n) {
        *known = shared;
        return RESET_EXACT_PREFIX;
    }
    if (shared == n) {
        *known = n - 1; /* the last token is always computed again: its logits are needed */
        return RESET_EQUAL;
    }
    if (shared >= KV_PAGE_TOKENS) {
        *known = shared;
        return RESET_PREFIX;
    }
    return RESET_MISMATCH;
}
