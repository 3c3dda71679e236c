/*
 * What of a prompt need not be computed: the prefix tree's part in a sequence's life. A sequence finds its prefix when
 * it is admitted or comes back, holds it while it runs, and leaves what it has computed when it ends.
 */
#include <assert.h>
#include <string.h>

#include "base/hash.h"
#include "engine/engine_int.h"

status reuse_root(const engine *en, const char *name_space, size_t n, kv_root_key *out)
{
    uint8_t both[2 * SHA256_BYTES];
    *out = en->cfg.identity;
    if (n == 0) {
        return ST_OK;
    }
    memcpy(both, en->cfg.identity.bytes, SHA256_BYTES);
    status st = sha256_once(name_space, n, both + SHA256_BYTES);
    return st == ST_OK ? sha256_once(both, sizeof both, out->bytes) : st;
}

/* Fewer tokens than a page hold are offered to nobody but the session that has them: all conversations begin alike. */
static size_t offered(size_t usable, size_t known)
{
    return usable >= KV_PAGE_TOKENS || usable <= known ? usable : known;
}

reuse_offer reuse_find(const engine *en, const kv_root_key *root, const session *s, const int32_t *prompt,
                       size_t n)
{
    reuse_offer o = {.root = root, .ids = prompt};
    size_t known = 0; /* of the session */
    o.reason = session_match(s, en->cfg.warm, prompt, n, &known);
    if (!en->tree) {
        return o;
    }
    kv_match m = kv_tree_match(en->tree, root, prompt, n, n - 1);
    o.n_tokens = offered(m.n_usable, known);
    o.node = m.node;
    if (o.n_tokens < m.n_usable) {
        o.node = kv_tree_match(en->tree, root, prompt, n, o.n_tokens).node;
    }
    o.miss = known > o.n_tokens ? KV_MISS_EVICTED : m.miss;
    if (o.miss == KV_MISS_NONE && o.n_tokens < m.n_usable) {
        o.miss = KV_MISS_NEW; /* for who may not have what is there */
    }
    o.miss_at = m.miss == KV_MISS_DIFFERS && m.n_known > o.n_tokens ? m.n_known : o.n_tokens;
    return o;
}

reuse_offer reuse_find_for(const sequence *s)
{
    if (s->prompt_probs) { /* whoever asks about each row gets each computed */
        size_t known;
        return (reuse_offer){.reason =
                                 session_match(s->session, false, s->history.data, s->n_prompt, &known)};
    }
    return reuse_find(s->en, &s->root, s->session, s->history.data, s->history.len);
}

reuse_offer reuse_find_again(const sequence *s)
{
    reuse_offer o = {.root = &s->root, .ids = s->history.data};
    if (s->en->tree && !s->image) {
        size_t whole = s->n_known - s->n_known % KV_PAGE_TOKENS;
        kv_match m = kv_tree_match(s->en->tree, &s->root, s->history.data, s->history.len, whole);
        o.n_tokens = m.n_usable - m.n_usable % KV_PAGE_TOKENS;
        o.node = o.n_tokens < m.n_usable ? kv_tree_match(s->en->tree, &s->root, o.ids, whole, o.n_tokens).node
                                         : m.node;
    }
    return o;
}

/* Holds what ends at the last whole page of o instead, so that nothing but that is in nobody's way. */
void reuse_whole_pages(engine *en, reuse_offer *o)
{
    kv_node *leaf = o->node;
    size_t whole = o->n_tokens - o->n_tokens % KV_PAGE_TOKENS;
    if (whole == o->n_tokens) {
        return;
    }
    o->n_tokens = whole;
    o->miss = KV_MISS_EVICTED;
    o->miss_at = whole;
    o->node = whole > 0 ? kv_tree_match(en->tree, o->root, o->ids, whole, whole).node : NULL;
    kv_tree_hold(en->tree, o->node);
    kv_tree_release(en->tree, leaf);
}

void reuse_hold(engine *en, const reuse_offer *o)
{
    if (en->tree) {
        kv_tree_hold(en->tree, o->node);
    }
}

void reuse_let_go(engine *en, const reuse_offer *o)
{
    if (en->tree) {
        kv_tree_release(en->tree, o->node);
    }
}

size_t reuse_pages(engine *en, const reuse_offer *o)
{
    size_t n = o->n_tokens / KV_PAGE_TOKENS;
    if (n > 0) {
        kv_tree_pages(en->tree, o->node, 0, en->path, n);
    }
    return n;
}

void reuse_take(sequence *s, reuse_offer *o)
{
    engine *en = s->en;
    size_t whole = o->n_tokens - o->n_tokens % KV_PAGE_TOKENS, n_pages = resident_pages_for(o->n_tokens);
    if (o->n_tokens == 0) {
        return;
    }
    kv_tree_pages(en->tree, o->node, 0, en->path, n_pages);
    resident_adopt(s->kv, en->pages, o->ids, whole, en->path);
    if (o->n_tokens > whole) {
        status st = resident_copy_tail(s->kv, en->pages, o->ids + whole, o->n_tokens - whole,
                                       page_pool_addr(en->pages, en->path[n_pages - 1]));
        assert(st == ST_OK); /* the caller made sure of the page */
        (void)st;
        reuse_whole_pages(en, o);
    }
    s->hold = o->node;
}

void reuse_leave(sequence *s, bool kept)
{
    engine *en = s->en;
    if (en->tree) {
        if (kept) {
            kv_span span = {.pages = {s->kv->pages}};
            (void)kv_tree_insert(en->tree, &s->root, s->kv->ids.data, s->kv->ids.len, &span, &s->hold);
        }
        kv_tree_release(en->tree, s->hold);
        s->hold = NULL;
    }
    resident_truncate(s->kv, en->pages, 0);
}
