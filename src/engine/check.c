/*
 * Whether the engine's books agree: what lanes, sessions and sequences say of pages and positions, and what the pools
 * say themselves.
 */
#include <string.h>

#include "engine/engine_int.h"

static const char *check_kv(const resident *kv)
{
    if (kv->ids.len > kv->n_pages * KV_PAGE_TOKENS) {
        return "a lane has tokens that are in no page";
    }
    return kv->n_pages > kv->cap_pages ? "a lane has more pages than room for them" : NULL;
}

static const char *check_sequence(const sequence *s)
{
    const resident *kv = s->kv;
    if (s->lane->owner != (s->session ? s->session->owner : s->ticket) || kv != &s->lane->kv) {
        return "a sequence runs on a lane that is not its own";
    }
    if (kv->ids.len > s->history.len ||
        (kv->ids.len > 0 && memcmp(kv->ids.data, s->history.data, kv->ids.len * sizeof *kv->ids.data) != 0)) {
        return "what a lane has in pages is not what its sequence has computed";
    }
    switch (s->state) {
    case SEQ_QUEUED:
        return "a queued sequence is among those that run";
    case SEQ_PARKED:
        return kv->n_pages > 0 || s->promised_pages > 0 ? "a parked sequence has pages" : NULL;
    case SEQ_RESTORE:
        return s->image ? NULL : "a sequence waits for a copy that is not there";
    case SEQ_PREFILL:
        break;
    case SEQ_DECODE:
    case SEQ_TAIL:
        if (sequence_pending(s) != 1) {
            return "a reply has more or less than one token to compute";
        }
        break;
    }
    return s->image ? "a running sequence has a copy" : NULL;
}

static const char *check_active(const engine *en)
{
    size_t n_promised = 0, n_images = 0;
    for (size_t i = 0; i < en->n_active; i++) {
        const char *why = check_sequence(en->active[i]);
        if (why) {
            return why;
        }
        n_promised += en->active[i]->promised_pages;
        n_images += en->active[i]->image != NULL;
        if (i > 0 && en->active[i]->admitted <= en->active[i - 1]->admitted) {
            return "those that run are not in the order admitted";
        }
    }
    if (n_promised != en->promised_pages) {
        return "the promises do not add up";
    }
    if (n_promised > page_pool_available(en->pages)) {
        return "more pages are promised than are free";
    }
    return n_images == park_images(en->parking) ? NULL : "there are copies of nobody";
}

static const char *check_lists(const engine *en, size_t *n_lanes)
{
    size_t n = 0, n_waiting = 0;
    for (const sequence *s = en->first; s; s = s->next) {
        n++;
        n_waiting += s->state == SEQ_QUEUED;
        *n_lanes += s->state != SEQ_QUEUED && !s->session;
        if (s->state == SEQ_QUEUED && s->lane) {
            return "a queued sequence has a lane";
        }
    }
    for (const session *s = en->sessions; s; s = s->next) {
        *n_lanes += s->lane != NULL;
        if (s->lane && s->lane->owner != s->owner) {
            return "a session has a lane that is not its own";
        }
        if (s->active && s->active->session != s) {
            return "a session's request is another's";
        }
    }
    return n == en->n_sequences && n_waiting + en->n_active == n ? NULL : "the lists do not add up";
}

/* Pages of a lane that nobody else has; the others are the tree's. */
static size_t own_pages(const engine *en, const resident *kv)
{
    size_t n = 0;
    for (size_t i = 0; i < kv->n_pages; i++) {
        n += page_pool_refs(en->pages, kv->pages[i]) == 1;
    }
    return n;
}

static const char *check_lanes(const engine *en, size_t n_owned)
{
    size_t n_pages = 0;
    kv_tree_stats tree = {0};
    lanes_stats l = lanes_stats_read(en->lanes);
    for (size_t i = 0; i < lanes_count(en->lanes); i++) {
        const lane *at = lanes_at(en->lanes, i);
        const char *why = at ? check_kv(&at->kv) : NULL;
        if (why) {
            return why;
        }
        if (at && at->owner == 0 && at->kv.n_pages > 0) {
            return "an idle lane has pages";
        }
        n_pages += at ? own_pages(en, &at->kv) : 0;
    }
    if (l.live != n_owned || l.tracked != n_owned) {
        return "lanes are owned by nobody";
    }
    const char *why = NULL;
    if (en->tree && !kv_tree_check(en->tree, &why)) {
        return why;
    }
    tree = en->tree ? kv_tree_stats_read(en->tree) : tree;
    bool all = n_pages + tree.pages[0] + en->n_reads == page_pool_used(en->pages);
    return all ? NULL : "there are pages of nobody";
}

bool engine_check(const engine *en, const char **why)
{
    size_t n_owned = 0;
    *why = check_active(en);
    *why = *why ? *why : check_lists(en, &n_owned);
    *why = *why ? *why : check_lanes(en, n_owned);
    return *why == NULL;
}
