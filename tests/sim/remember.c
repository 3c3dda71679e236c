/*
 * What is remembered. A session's ids are those of the request that ended last. A request reuses no more than some
 * request before it can have left, less than a page only from its own session, and all of it as long as no page had to
 * serve somebody else and nothing failed.
 */
#include <string.h>

#include "engine/engine_int.h"
#include "sim/world.h"

/* What it is submitted with: prompt, and what its reply had elsewhere. */
static int32_t token_of(const life *l, size_t i)
{
    return i < l->n_prompt ? l->prompt[i] : l->had[i - l->n_prompt];
}

/* How many tokens of the prompt its session knows, by PROTOCOL 2. */
static size_t known_to(const memory *m, const life *l)
{
    size_t shared = 0, n = l->n_prompt + l->n_had;
    while (shared < m->n && shared < n && m->ids[shared] == token_of(l, shared)) {
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

static size_t common(const life *o, size_t n_left, const life *l)
{
    size_t i = 0;
    while (i < n_left && i + 1 < l->n_prompt + l->n_had &&
           token_of(l, i) == (i < o->n_prompt ? o->prompt[i] : o->ids[i - o->n_prompt])) {
        i++;
    }
    return i;
}

/* What a process before this one left on disk. */
static size_t stored_before(const world *w, const life *l)
{
    size_t most = 0;
    for (uint64_t conv = 0; conv < 3 && w->s->config.store_room > 0 && l->r->space == 0; conv++) {
        size_t i = 0;
        while (i < (size_t)w->s->config.stored && i + 1 < l->n_prompt + l->n_had &&
               token_of(l, i) == sim_word(conv, i)) {
            i++;
        }
        most = i > most ? i : most;
    }
    return most;
}

typedef struct left { /* tokens of a prompt that others left, at least and at most */
    size_t least, most;
} left;

/* least: of those whose end says what they had computed. Both kinds of end leave all but perhaps the last token. */
static left left_for(const world *w, const life *l)
{
    left x = {0, stored_before(w, l)};
    for (size_t i = 0; i < w->s->n_requests; i++) {
        const life *o = &w->lives[i];
        bool written = w->s->config.store_room > 0; /* while it is computed */
        if (o == l || !o->begun || o->r->space != l->r->space ||
            (o->phase != LIFE_DONE && o->now.n_preempted == 0 && o->n_preempted == 0 && !written)) {
            continue; /* one that gives way leaves what it has, too */
        }
        size_t whole = o->n_prompt + o->n_ids, most = common(o, whole, l), least = common(o, whole - 1, l);
        bool by_itself =
            o->phase == LIFE_DONE && (o->result.reason == FINISH_STOP || o->result.reason == FINISH_LENGTH);
        x.most = most > x.most ? most : x.most;
        if (by_itself && !o->cut_short && o->end_step < l->admit_step && least > x.least) {
            x.least = least;
        }
    }
    return x;
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

/* Whether nothing that was left can have been lost. */
static bool all_is_kept(const world *w)
{
    kv_tree_stats st = w->en->tree ? kv_tree_stats_read(w->en->tree) : (kv_tree_stats){0};
    return st.evicted_pages == 0 && w->n_failed == 0 && w->n_memory_failures == 0;
}

static void begins(const world *w, life *l)
{
    const sim_request *r = l->r;
    size_t known = 0, at = (size_t)l->position;
    left x = {0, 0};
    if (!w->s->config.cold && (r->prompt_logprobs < 0 || l->n_had > 0)) {
        x = left_for(w, l);
        known = r->session > 0 ? known_to(&w->memories[r->session - 1], l) : 0;
    }
    bool parked = l->now.n_preempted > 0; /* it begins where it was */
    if (at > x.most || (at < KV_PAGE_TOKENS && at > known && !l->unseen)) {
        sim_fail("request %zu: begins at %zu, its session knows %zu of its tokens, all others at most %zu",
                 (size_t)(l - w->lives), at, known, x.most);
    }
    if (x.least >= KV_PAGE_TOKENS && at < x.least && !parked && all_is_kept(w)) {
        sim_fail("request %zu: begins at %zu, %zu of its tokens were left by others", (size_t)(l - w->lives),
                 at, x.least);
    }
    l->reused = at;
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
    } else if (by_itself && l->in_batch && !l->spoilt && !l->call_failed && !w->memory_failed &&
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
        l->admit_step = admitted ? w->step : l->admit_step;
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
