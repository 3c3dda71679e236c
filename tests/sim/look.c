/*
 * Who comes in, who gives way and who comes back, by the rules of DESIGN 6. It looks into the engine
 * (engine_int.h), for nothing of this is told outside; the rules are worked out here again.
 */
#include <string.h>

#include "engine/engine_int.h"
#include "sim/world.h"

static void look_at(world *w, bool after)
{
    for (size_t i = 0; i < w->s->n_requests; i++) {
        memset(after ? &w->lives[i].now : &w->lives[i].before, 0, sizeof w->lives[i].now);
    }
    for (const sequence *s = w->en->first; s; s = s->next) {
        life *l = &w->lives[s->id_hash - 1];
        look *at = after ? &l->now : &l->before;
        at->there = true;
        at->queued = s->state == SEQ_QUEUED;
        at->parked = s->state == SEQ_PARKED;
        at->restoring = s->state == SEQ_RESTORE;
        at->sealed = s->state == SEQ_TAIL;
        at->held = s->held;
        at->admitted = s->admitted;
        at->n_generated = l->n_ids;
        at->n_preempted = s->n_preempted;
        at->n_pages = s->kv ? s->kv->n_pages + s->promised_pages : 0;
        at->n_found = s->n_known;
        at->fetching = s->fetch_ns != 0 && !s->fetched;
    }
}

static uint64_t evicted_by(const world *w)
{
    return w->en->tree ? kv_tree_stats_read(w->en->tree).evicted_pages : 0;
}

void look_before(world *w)
{
    look_at(w, false);
    w->n_evicted = evicted_by(w);
}

void look_planned(world *w)
{
    for (const sequence *s = w->en->first; s; s = s->next) {
        w->lives[s->id_hash - 1].admitted = s->admitted;
    }
}

/* What became of it in this step. */

static bool was_cut(const life *l)
{
    return l->before.there && !l->now.there && !l->in_batch;
}

static bool was_parked(const life *l)
{
    return l->now.there && l->now.n_preempted > l->before.n_preempted;
}

static bool was_resumed(const life *l)
{
    return l->before.parked && !was_cut(l) && (!l->now.parked || was_parked(l));
}

static bool was_admitted(const life *l)
{
    return l->before.queued && !was_cut(l) && !l->now.queued;
}

/* While pages were handed out. */
static bool was_active(const life *l)
{
    return l->before.there && !was_cut(l) && (!l->before.queued || was_admitted(l));
}

static bool could_give_way(const life *l)
{
    return was_active(l) && !l->before.sealed && (!l->before.parked || was_resumed(l));
}

static uint64_t admitted_at(const life *l)
{
    return l->now.there ? l->now.admitted : l->admitted;
}

static bool immune(const life *l)
{
    return l->before.n_generated < l->immune_until;
}

/* Admitted longest ago of those that are not held. */
static const life *eldest_of(const world *w)
{
    const life *best = NULL;
    for (size_t i = 0; i < w->s->n_requests; i++) {
        const life *l = &w->lives[i];
        if (was_active(l) && !l->before.held && (!best || admitted_at(l) < admitted_at(best))) {
            best = l;
        }
    }
    return best;
}

#define WHO(w, l) ((size_t)((l) - (w)->lives))

/* Somebody came in or back in this step: for that only those give way who are held. */
static bool anybody_came_in(const world *w)
{
    for (size_t i = 0; i < w->s->n_requests; i++) {
        if (was_admitted(&w->lives[i]) || was_resumed(&w->lives[i])) {
            return true;
        }
    }
    return false;
}

/* Fewest generated tokens, then admitted last; the immune behind all others; never the eldest. */
static void gave_way_justly(const world *w, const life *v, const life *eldest)
{
    if (v == eldest) {
        sim_fail("request %zu: parked although it was admitted longest ago", WHO(w, v));
    }
    for (size_t i = 0; i < w->s->n_requests; i++) {
        const life *c = &w->lives[i];
        bool spared = v->before.held && !c->before.held && anybody_came_in(w);
        if (c == eldest || spared || !could_give_way(c) || was_parked(c)) {
            continue;
        }
        bool fewer = c->before.n_generated < v->before.n_generated ||
                     (c->before.n_generated == v->before.n_generated && admitted_at(c) > admitted_at(v));
        if (immune(c) == immune(v) ? fewer : immune(v)) {
            sim_fail(
                "request %zu: parked, request %zu should have been (%zu and %zu tokens, immune %d and %d)",
                WHO(w, v), WHO(w, c), v->before.n_generated, c->before.n_generated, immune(v), immune(c));
        }
    }
}

/* One for each shortage: what is free behind it is less than what the last one gave. */
static void no_more_than_needed(const world *w, size_t n_victims)
{
    engine_stats st;
    size_t most = 0;
    if (w->memory_failed) {
        return; /* the one that pages were made free for did not get its lane */
    }
    for (size_t i = 0; i < w->s->n_requests; i++) {
        const life *l = &w->lives[i];
        if (l->before.there && !l->now.there) {
            return; /* its pages are free again too */
        }
        if (was_parked(l)) {
            size_t n_tokens = l->n_prompt + l->before.n_generated;
            bool for_itself =
                n_tokens % KV_PAGE_TOKENS == 1 || l->before.n_generated == l->n_had || was_resumed(l);
            most = for_itself ? SIZE_MAX : l->before.n_pages > most ? l->before.n_pages : most;
        }
    }
    engine_stats_read(w->en, &st);
    size_t n_free = (size_t)(st.pages_total - st.pages_used) - w->en->promised_pages;
    if (n_victims > 0 && n_free >= most) {
        sim_fail("%zu requests parked, and %zu pages free: more than were needed", n_victims, n_free);
    }
}

/* What was kept is given up page by page, for one who takes them at once. */
static void gave_up_no_more_than_needed(const world *w)
{
    engine_stats st;
    for (size_t i = 0; i < w->s->n_requests; i++) {
        const life *l = &w->lives[i];
        if ((l->before.there && !l->now.there) || was_parked(l)) {
            return; /* its pages are free again too */
        }
    }
    engine_stats_read(w->en, &st);
    size_t n_free = (size_t)(st.pages_total - st.pages_used - st.pages_cached) - w->en->promised_pages;
    if (!w->memory_failed && evicted_by(w) > w->n_evicted && n_free > 0) {
        sim_fail("cached pages were given up, and %zu are free", n_free);
    }
}

/* The smallest come back first, and one that has waited long enough lets nobody in before it. */
static void came_back_justly(const world *w, const life *x)
{
    if (was_resumed(x) && x->before.held) {
        sim_fail("request %zu: came back although its reader is slow", WHO(w, x));
    }
    if (!x->before.parked || x->before.held || was_cut(x) || was_resumed(x)) {
        return;
    }
    bool late = w->step_began_ns - x->parked_ns >= POLICY_PASS_NS;
    for (size_t i = 0; i < w->s->n_requests; i++) {
        const life *l = &w->lives[i];
        if (was_resumed(l) && l->n_prompt + l->before.n_generated > x->n_prompt + x->before.n_generated) {
            sim_fail("request %zu: came back before request %zu, which is smaller", WHO(w, l), WHO(w, x));
        }
        if (late && was_admitted(l)) {
            sim_fail("request %zu: let in although request %zu has been parked for long", WHO(w, l),
                     WHO(w, x));
        }
    }
}

static int64_t rank_of(const world *w, const life *l)
{
    return l->r->priority + (int64_t)((w->step_began_ns - l->submit_ns) / POLICY_AGEING_NS);
}

/* Pages that it needs to come in, at most: one that has come in has found some. */
static size_t needs(const life *l)
{
    size_t left = l->max_new - l->n_had, reply = left < GEN_WATERMARK_TOKENS ? left : GEN_WATERMARK_TOKENS;
    size_t found = l->in_batch    ? (size_t)l->position
                   : l->now.there ? l->now.n_found
                                  : 0; /* it came and went */
    return resident_pages_for(l->n_prompt + l->n_had + reply) - found / KV_PAGE_TOKENS;
}

/* Requests on one session run in the order submitted. */
static void in_order(const world *w, const life *x)
{
    for (size_t i = 0; x->r->session > 0 && x->now.queued && i < w->s->n_requests; i++) {
        const life *l = &w->lives[i];
        if (was_admitted(l) && l->r->session == x->r->session && l->ticket > x->ticket) {
            sim_fail("request %zu: overtakes request %zu on their session", WHO(w, l), WHO(w, x));
        }
    }
}

/* Who comes before another and needs no more than that one comes in before it, and so does, whatever it needs, who
 * has waited long enough. */
static void came_in_justly(const world *w, const life *x)
{
    bool waits = x->before.queued && x->now.queued && !x->before.held && !x->now.fetching &&
                 x->r->session == 0 && !w->memory_failed;
    bool late = w->step_began_ns - x->submit_ns >= POLICY_PASS_NS;
    for (size_t i = 0; waits && i < w->s->n_requests; i++) {
        const life *l = &w->lives[i];
        bool behind =
            rank_of(w, l) < rank_of(w, x) || (rank_of(w, l) == rank_of(w, x) && l->ticket > x->ticket);
        if (was_admitted(l) && behind && (late || (l->r->session == 0 && needs(l) >= needs(x)))) {
            sim_fail("request %zu: let in before request %zu, whose turn it was", WHO(w, l), WHO(w, x));
        }
    }
}

void look_after(world *w)
{
    size_t n_victims = 0;
    look_at(w, true);
    if (park_images(w->en->parking) == 0 && park_bytes_used(w->en->parking) > 0) {
        sim_fail("no copies of pages, and they take %zu bytes", park_bytes_used(w->en->parking));
    }
    for (size_t i = 0; i < w->s->n_requests; i++) {
        life *l = &w->lives[i];
        if (was_resumed(l)) {
            l->immune_until = l->before.n_generated + POLICY_IMMUNE_TOKENS;
        }
    }
    const life *eldest = eldest_of(w);
    bool about_to_end = false;
    for (size_t i = 0; i < w->s->n_requests; i++) {
        life *l = &w->lives[i];
        if (was_parked(l)) {
            gave_way_justly(w, l, eldest);
            n_victims++;
        }
        about_to_end = about_to_end || (l->before.sealed && !l->before.held);
        came_back_justly(w, l);
        came_in_justly(w, l);
        in_order(w, l);
    }
    no_more_than_needed(w, n_victims);
    gave_up_no_more_than_needed(w);
    if (eldest && !eldest->in_batch && !eldest->before.parked && !eldest->before.restoring && !about_to_end &&
        w->en->n_reads == 0) { /* the pages that it waits for */
        sim_fail("request %zu: stands still although it was admitted longest ago", WHO(w, eldest));
    }
    for (size_t i = 0; i < w->s->n_requests; i++) {
        life *l = &w->lives[i];
        if (was_parked(l)) {
            l->parked_ns = w->step_began_ns;
            l->n_preempted = l->now.n_preempted;
            w->n_preemptions++;
        }
    }
}
