/*
 * What sessions must know: their resident ids are those of the request that ended last, and the next one reuses as
 * many of them as PROTOCOL 2 says, or none if its pages had to serve somebody else.
 */
#include <string.h>

#include "sim/world.h"

/* How many tokens of the prompt need no computing, by PROTOCOL 2. */
static size_t reusable(const memory *m, const int32_t *prompt, size_t n)
{
    size_t shared = 0;
    while (shared < m->n && shared < n && m->ids[shared] == prompt[shared]) {
        shared++;
    }
    if (m->dirty || m->n == 0) {
        return 0;
    }
    if (shared == m->n && shared < n) {
        return shared; /* exact_prefix */
    }
    if (shared == n) {
        return n - 1; /* equal */
    }
    return shared >= KV_PAGE_TOKENS ? shared : 0; /* prefix, mismatch */
}

/* Whether the one before it on its session was cut by this very step, computed or only admitted: nobody has seen what
 * that left. */
static bool follows_at_once(const world *w, const life *l)
{
    for (size_t i = 0; i < w->s->n_requests; i++) {
        const life *o = &w->lives[i];
        bool had_session = o->begun || (o->before.there && !o->before.queued);
        if (o != l && o->r->session == l->r->session && had_session && !o->in_batch &&
            o->end_step == w->step) {
            return true;
        }
    }
    return false;
}

static void begins(const world *w, life *l)
{
    const sim_request *r = l->r;
    size_t want = 0;
    if (r->session > 0 && !w->s->config.cold && r->prompt_logprobs < 0) {
        want = reusable(&w->memories[r->session - 1], l->prompt, l->n_prompt);
    }
    if (l->position != 0 && (size_t)l->position != want && !l->unseen) {
        sim_fail("request %zu: begins at %d, its session knows %zu of its tokens", (size_t)(l - w->lives),
                 l->position, want);
    }
    l->reused = (size_t)l->position;
    l->begun = true;
    l->parked_first = l->n_preempted > 0;
}

static void is_known(const world *w, const life *l, const memory *m)
{
    size_t i = 0, whole = l->n_prompt + l->n_ids, who = (size_t)(l - w->lives);
    while (i < m->n && i < whole && m->ids[i] == (i < l->n_prompt ? l->prompt[i] : l->ids[i - l->n_prompt])) {
        i++;
    }
    if (i < m->n) {
        sim_fail("request %zu: at %zu its session holds what it never said", who, i);
    }
    bool cut = l->cancel_asked || l->deadline_ns; /* perhaps with its last token still to be computed */
    bool unpaged = l->n_ids > 0 && (whole - 1) % KV_PAGE_TOKENS == 0; /* no page for the last token */
    bool by_itself =
        l->phase == LIFE_DONE && (l->result.reason == FINISH_STOP || l->result.reason == FINISH_LENGTH);
    if (w->s->config.cold || l->phase == LIFE_FAILED) {
        if (m->n > 0 || (l->phase == LIFE_FAILED && !m->dirty)) {
            sim_fail("request %zu: its session holds %zu tokens, dirty %d", who, m->n, m->dirty);
        }
    } else if (l->result.stop_cut || l->result.reason == FINISH_CANCELLED) {
        if (!m->dirty) {
            sim_fail("request %zu: its session is not dirty", who);
        }
    } else if (by_itself && l->in_batch && !l->spoilt && !l->call_failed &&
               (m->dirty || m->n + (cut || unpaged) < whole)) {
        sim_fail("request %zu: its session holds %zu of %zu tokens, dirty %d", who, m->n, whole, m->dirty);
    }
}

void remember_step(world *w)
{
    bool busy[SIM_MAX_SESSIONS] = {false}, computed[SIM_MAX_SESSIONS] = {false};
    for (size_t i = 0; i < w->s->n_requests; i++) {
        life *l = &w->lives[i];
        bool admitted = l->before.queued && (l->in_batch || (l->now.there && !l->now.queued));
        l->unseen = l->unseen || (admitted && follows_at_once(w, l));
        if (l->in_batch && !l->begun) {
            begins(w, l);
        }
        if (l->r->session > 0) {
            busy[l->r->session - 1] |= l->now.there && !l->now.queued;
            computed[l->r->session - 1] |= l->in_batch;
        }
    }
    for (size_t k = 0; k < SIM_MAX_SESSIONS; k++) {
        memory *m = &w->memories[k];
        if (busy[k]) {
            continue;
        }
        m->n = 0;
        m->dirty = false;
        if (w->sessions[k]) {
            const int32_t *ids = session_resident(w->sessions[k], &m->n);
            m->n = m->n < SIM_MAX_CTX ? m->n : SIM_MAX_CTX;
            if (m->n > 0) {
                memcpy(m->ids, ids, m->n * sizeof *ids);
            }
            m->dirty = session_dirty(w->sessions[k]);
        }
    }
    for (size_t i = 0; i < w->s->n_requests; i++) {
        const life *l = &w->lives[i];
        if (l->r->session == 0 || !l->begun || l->end_step != w->step) {
            continue;
        }
        size_t k = (size_t)l->r->session - 1; /* one that was cut may have been followed in the same step */
        if (!busy[k] && (l->in_batch || !computed[k])) {
            is_known(w, l, &w->memories[k]);
        }
    }
}
