/*
 * Pages on disk: what a sequence computes is written behind, and what a prompt begins with is read back into the tree
 * before the sequence is admitted. The store does both on its own thread; here is what it is asked for.
 */
#include <assert.h>

#include "engine/engine_int.h"

/* The key of page `at` of its history, behind the page of that key. */
static store_key key_of(const sequence *s, size_t at, const store_key *parent)
{
    return store_chain(&s->root, at > 0 ? parent : NULL, s->history.data + at * KV_PAGE_TOKENS,
                       KV_PAGE_TOKENS);
}

void stored_write(sequence *s, bool all)
{
    store *to = s->en->cfg.store;
    size_t whole = s->kv->ids.len / KV_PAGE_TOKENS;
    if (!to || !s->en->tree || whole < (all ? s->n_written + 1 : s->n_asked + ENGINE_WRITE_PAGES)) {
        return;
    }
    s->n_asked = whole; /* a store that refuses is not asked for every token */
    while (s->n_written < whole) {
        size_t at = s->n_written;
        store_key key = key_of(s, at, &s->written);
        if (!store_has(to, &key) &&
            !store_put(to, &s->root, at > 0 ? &s->written : NULL, s->history.data + at * KV_PAGE_TOKENS,
                       KV_PAGE_TOKENS, s->kv->addrs[at])) {
            return; /* it is asked again, some pages later */
        }
        s->written = key;
        s->n_written++;
    }
}

/* A page for what is to be read, which only cached ones make room for. */
static bool page_for_read(engine *en, page_id *out)
{
    while (page_pool_available(en->pages) <= en->promised_pages) {
        if (!kv_tree_evict(en->tree, 0)) {
            return false;
        }
    }
    return page_pool_take(en->pages, out) == ST_OK;
}

/* Asks for the next page; false: the store does not have it, or it cannot be asked for. */
static bool ask(sequence *s)
{
    engine *en = s->en;
    size_t at = s->n_fetched;
    store_key key = key_of(s, at, &s->fetched_to);
    stored_read r = {.ticket = ++en->n_tickets, .of = s, .at = at};
    if (!store_has(en->cfg.store, &key) || !page_for_read(en, &r.page)) {
        return false;
    }
    if (!store_get(en->cfg.store, &s->root, at > 0 ? &s->fetched_to : NULL,
                   s->history.data + at * KV_PAGE_TOKENS, KV_PAGE_TOKENS, page_pool_addr(en->pages, r.page),
                   r.ticket)) {
        page_pool_unref(en->pages, r.page);
        return false;
    }
    en->reads[en->n_reads++] = r;
    s->n_reads++;
    s->fetched_to = key;
    s->n_fetched++;
    return true;
}

/* What is at hand already, and whether the store may have the page behind it. */
static bool more_is_stored(sequence *s, size_t most, kv_match *at_hand)
{
    *at_hand = kv_tree_match(s->en->tree, &s->root, s->history.data, s->history.len, most);
    s->n_fetched = 0;
    while (s->n_fetched < at_hand->n_usable / KV_PAGE_TOKENS) {
        s->fetched_to = key_of(s, s->n_fetched, &s->fetched_to);
        s->n_fetched++;
    }
    if ((s->n_fetched + 1) * KV_PAGE_TOKENS > most) {
        return false;
    }
    store_key next = key_of(s, s->n_fetched, &s->fetched_to);
    return store_has(s->en->cfg.store, &next);
}

/* There is nothing more to ask for, until fewer than these tokens are at hand. */
static void has_fetched(sequence *s, size_t n_tokens)
{
    s->fetched = true;
    s->fetched_tokens = n_tokens;
}

/* Whether s still waits: for the store to begin, or for its turn, or for a page. */
static bool begin_fetch(sequence *s, size_t most)
{
    engine *en = s->en;
    kv_match at_hand;
    if (!store_ready(en->cfg.store)) {
        return true;
    }
    if (!more_is_stored(s, most, &at_hand)) {
        has_fetched(s, at_hand.n_usable);
        return false;
    }
    if (!en->fetching) {
        s->fetch_ns = clock_mono_ns(en->cfg.clock);
        s->hold = at_hand.node; /* what it goes on from is not to go for the rest */
        kv_tree_hold(en->tree, s->hold);
        en->fetching = s;
    }
    return true;
}

bool stored_fetch(sequence *s, size_t at_hand, size_t most)
{
    engine *en = s->en;
    if (!en->cfg.store || !en->tree || s->prompt_probs || (s->fetched && at_hand >= s->fetched_tokens)) {
        return false;
    }
    uint64_t now_ns = clock_mono_ns(en->cfg.clock);
    if (s->fetched || s->fetch_ns == 0) {
        s->fetched = false;
        s->fetch_ns = now_ns;
    }
    if (now_ns - s->fetch_ns > ENGINE_DISK_NS) { /* a disk that gives nothing holds nobody up */
        stored_give_up(s);
        has_fetched(s, 0);
        return false;
    }
    if (en->fetching != s && (!begin_fetch(s, most) || en->fetching != s)) {
        return !s->fetched;
    }
    en->fetch_seen = true;
    while (en->n_reads < ENGINE_READS && (s->n_fetched + 1) * KV_PAGE_TOKENS <= most && ask(s)) {
    }
    if (s->n_reads > 0) {
        return true;
    }
    stored_give_up(s);
    has_fetched(s, at_hand);
    return false;
}

void stored_give_up(sequence *s)
{
    engine *en = s->en;
    if (en->fetching != s) {
        return;
    }
    for (size_t i = 0; i < en->n_reads; i++) {
        if (en->reads[i].of == s) {
            en->reads[i].of = NULL; /* its page is the store's until it has been read */
        }
    }
    s->n_reads = 0;
    en->fetching = NULL;
    kv_tree_release(en->tree, s->hold);
    s->hold = NULL;
    has_fetched(s, 0);
}

bool stored_yield(engine *en)
{
    sequence *s = en->fetching;
    if (!s) {
        return false;
    }
    stored_give_up(s);
    s->fetched = false;
    s->fetch_ns = 0;
    return true;
}

/* The page goes into the tree, behind those before it. */
static void take_in(engine *en, const stored_read *r)
{
    sequence *s = r->of;
    size_t n = (r->at + 1) * KV_PAGE_TOKENS;
    for (size_t i = 0; i < r->at; i++) {
        en->path[i] = KV_NO_PAGE; /* they are held, so the tree has them */
    }
    en->path[r->at] = r->page;
    kv_span span = {.pages = {en->path}};
    s->fetch_ns = clock_mono_ns(en->cfg.clock);
    bool whole = kv_tree_insert(en->tree, &s->root, s->history.data, n, &span, &s->hold) == n;
    counter_add(&en->count.fetched, whole ? KV_PAGE_TOKENS : 0);
}

bool stored_collect(engine *en)
{
    store_result got[ENGINE_READS];
    size_t n = en->n_reads > 0 ? store_poll(en->cfg.store, got, ENGINE_READS) : 0;
    for (size_t k = 0; k < n; k++) {
        size_t i = 0;
        while (i < en->n_reads && en->reads[i].ticket != got[k].ticket) {
            i++;
        }
        assert(i < en->n_reads);
        stored_read r = en->reads[i];
        for (en->n_reads--; i < en->n_reads; i++) {
            en->reads[i] = en->reads[i + 1];
        }
        if (r.of && got[k].ok) {
            r.of->n_reads--;
            take_in(en, &r);
        } else if (r.of) {
            stored_give_up(r.of); /* what comes behind it has no place */
        }
        page_pool_unref(en->pages, r.page);
    }
    return n > 0;
}
