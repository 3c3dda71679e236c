#include "kv/tree.h"

#include <assert.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "kv/tree_int.h"

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

status kv_tree_new(const kv_tree_config *cfg, kv_tree **out)
{
    if (cfg->n_kinds > KV_TREE_MAX_KINDS || (cfg->n_kinds == 0 && cfg->snapshot_bytes == 0)) {
        return ST_INVALID_FIELD;
    }
    kv_tree *t = mem_calloc(1, sizeof *t);
    if (!t) {
        return ST_NOMEM;
    }
    t->cfg = *cfg;
    list_init(&t->unheld);
    list_init(&t->spaced);
    list_init(&t->turns);
    for (size_t k = 0; k < cfg->n_kinds; k++) {
        if (cfg->kinds[k].window > 0) {
            list_init(&t->windows[t->n_windows]);
            t->window_kinds[t->n_windows++] = k;
        }
    }
    t->priorities = hash64_keyed(&t, sizeof(kv_tree *));
    t->stats.overhead_bytes = heap_bytes(sizeof *t);
    *out = t;
    return ST_OK;
}

const char *kv_miss_name(kv_miss m)
{
    static const char *const names[] = {
        [KV_MISS_NONE] = "none",       [KV_MISS_NEW] = "new",         [KV_MISS_ENDS] = "ends",
        [KV_MISS_DIFFERS] = "differs", [KV_MISS_EVICTED] = "evicted", [KV_MISS_SNAPSHOT] = "no_snapshot",
    };
    return names[m];
}

static void root_ids(const kv_root_key *key, int32_t ids[ROOT_IDS])
{
    memcpy(ids, key->bytes, sizeof key->bytes);
}

kv_node *root_find(const kv_tree *t, const kv_root_key *key)
{
    int32_t ids[ROOT_IDS];
    root_ids(key, ids);
    return order_find(&t->top, ids, ROOT_IDS).exact;
}

/* --- match --- */

/* The way down, one node after the other. */
typedef struct match_walk {
    const kv_tree *t;
    const int32_t *ids;
    size_t limit;                  /* tokens that may be usable */
    size_t from;                   /* where the node that is looked for begins */
    size_t run[KV_TREE_MAX_KINDS]; /* positions before `from` without a gap in the pages, by window */
    size_t n_computed;             /* usable if there were no recurrent layers */
    size_t n_usable;
    kv_node *node;
} match_walk;

/* Whether the windows that end at `at`, inside a complete node that begins at w->from, are there. */
static bool windows_reach(const match_walk *w, size_t at)
{
    for (size_t i = 0; i < w->t->n_windows; i++) {
        size_t window = w->t->cfg.kinds[w->t->window_kinds[i]].window;
        if (w->run[i] < w->from && at - (w->from - w->run[i]) < window) {
            return false;
        }
    }
    return true;
}

static void match_inside(match_walk *w, const kv_node *parent, const kv_place *p, size_t len)
{
    size_t common = p->exact ? len : p->n_below > p->n_above ? p->n_below : p->n_above;
    kv_node *n = p->exact ? p->exact : p->n_below > p->n_above ? p->below : p->above;
    if (n && !n->complete) {
        n = order_find_complete(parent, w->ids + w->from, len, &common);
    }
    size_t at = least(w->from + common, w->limit);
    if (!n || at <= w->from || !windows_reach(w, at)) {
        return;
    }
    w->n_computed = at;
    if (w->t->cfg.snapshot_bytes == 0) {
        w->n_usable = at;
        w->node = n;
    }
}

/* The longest child that is passed to its end, and has a snapshot there. */
static void match_snapshot(match_walk *w, const kv_node *parent, const kv_place *p, size_t len)
{
    size_t most = least(len, w->limit - w->from);
    kv_node *n = p->exact && most == len ? p->exact : order_find_beginning(parent, w->ids + w->from, most);
    while (n) {
        size_t at = w->from + n->n_ids;
        if (n->snapshot && n->complete && windows_reach(w, at)) {
            w->n_usable = at;
            w->node = n;
            return;
        }
        n = order_find_beginning(parent, w->ids + w->from, n->n_ids - 1u);
    }
}

static void match_pass(match_walk *w, const kv_node *n)
{
    for (size_t i = 0; i < w->t->n_windows; i++) {
        bool has = n->pages[w->t->window_kinds[i]] != KV_NO_PAGE;
        w->run[i] = has ? w->run[i] + KV_PAGE_TOKENS : 0;
    }
    w->from += KV_PAGE_TOKENS;
}

/* Why what is kept is known to no more than n_known of the ids; parent and p: where that is. */
static kv_miss miss_at(const kv_node *parent, const kv_place *p, size_t n_known)
{
    if (n_known == 0) {
        return KV_MISS_NEW;
    }
    size_t common = p->n_below > p->n_above ? p->n_below : p->n_above;
    bool below_on = p->below && p->n_below == common && p->below->n_ids > common;
    bool above_on = p->above && p->n_above == common && p->above->n_ids > common;
    return parent && (below_on || above_on) ? KV_MISS_DIFFERS : KV_MISS_ENDS;
}

kv_match kv_tree_match(const kv_tree *t, const kv_root_key *root, const int32_t *ids, size_t n, size_t most)
{
    match_walk w = {.t = t, .ids = ids, .limit = least(n, most)};
    kv_place p = {0};
    size_t n_known = 0;
    kv_node *at = root_find(t, root);
    while (at && w.from < n) {
        size_t len = least(n - w.from, KV_PAGE_TOKENS);
        p = order_find(at, ids + w.from, len);
        n_known = w.from + (p.exact ? len : p.n_below > p.n_above ? p.n_below : p.n_above);
        if (w.from < w.limit) {
            match_inside(&w, at, &p, len);
            if (t->cfg.snapshot_bytes > 0) {
                match_snapshot(&w, at, &p, len);
            }
        }
        if (!p.exact || len < KV_PAGE_TOKENS) {
            break;
        }
        match_pass(&w, p.exact);
        at = p.exact;
        p = (kv_place){0};
    }
    kv_match m = {.n_usable = w.n_usable, .n_known = n_known, .node = w.node};
    if (m.n_usable == w.limit) {
        m.miss = KV_MISS_NONE;
    } else if (w.n_computed > m.n_usable) {
        m.miss = KV_MISS_SNAPSHOT;
    } else {
        m.miss = n_known > m.n_usable ? KV_MISS_EVICTED : miss_at(at, &p, n_known);
    }
    return m;
}

/* --- insert --- */

static kv_node *node_new(kv_tree *t, const int32_t *ids, size_t n, kv_node *parent)
{
    size_t bytes = node_bytes(t, n);
    kv_node *c = node_make_room(t, heap_bytes(bytes)) ? mem_calloc(1, bytes) : NULL;
    if (!c) {
        return NULL;
    }
    memcpy(c->ids, ids, n * sizeof *ids);
    c->n_ids = (uint8_t)n;
    c->depth = parent->parent ? parent->depth + 1 : 0;
    t->priorities += 0x9E3779B97F4A7C15u;
    c->priority = (uint32_t)hash64_keyed(&t->priorities, sizeof t->priorities);
    c->complete = t->cfg.n_kinds == 0;
    for (size_t k = 0; k < KV_TREE_MAX_KINDS; k++) {
        c->pages[k] = KV_NO_PAGE;
    }
    if (t->n_windows > 0) {
        c->windows = (kv_window *)(void *)((char *)c + bytes - t->n_windows * sizeof(kv_window));
    }
    for (size_t i = 0; i < t->n_windows; i++) {
        c->windows[i].node = c;
    }
    kv_place place = order_find(parent, ids, n); /* only now: making room may have changed the neighbours */
    order_add(parent, &place, c);
    t->stats.overhead_bytes += heap_bytes(bytes);
    if (node_is_root(c)) {
        t->stats.roots++;
        return c;
    }
    t->stats.nodes++;
    t->stats.leaves += n < KV_PAGE_TOKENS;
    list_push(&t->unheld, &c->link);
    return c;
}

static page_id span_page(const kv_span *span, size_t kind, size_t index)
{
    return span->pages[kind] ? span->pages[kind][index] : KV_NO_PAGE;
}

/* A page that was computed again is the same, bit for bit (DESIGN 1, P1). */
static void compare_pages(const kv_tree *t, const kv_node *n, size_t kind, page_id page)
{
#ifdef HEARTH_DEBUG
    page_pool *pool = t->cfg.kinds[kind].pool;
    if (page != n->pages[kind] && n->n_ids == KV_PAGE_TOKENS) {
        assert(memcmp(page_pool_addr(pool, page), page_pool_addr(pool, n->pages[kind]),
                      page_pool_page_bytes(pool)) == 0);
    }
#endif
}

static void node_adopt(kv_tree *t, kv_node *n, const kv_span *span, size_t index)
{
    for (size_t k = 0; k < t->cfg.n_kinds; k++) {
        page_id page = span_page(span, k, index);
        if (page == KV_NO_PAGE) {
            continue;
        }
        if (n->pages[k] == KV_NO_PAGE) {
            node_give_page(t, n, k, page);
        } else {
            compare_pages(t, n, k, page);
        }
    }
}

/* A node must have a page of each kind without a window. */
static bool can_enter(const kv_tree *t, const kv_span *span, size_t index)
{
    for (size_t k = 0; k < t->cfg.n_kinds; k++) {
        if (t->cfg.kinds[k].window == 0 && span_page(span, k, index) == KV_NO_PAGE) {
            return false;
        }
    }
    return true;
}

/* A child that goes on from a leaf with these ids and has all that the leaf would have; or NULL. Where there are
 * snapshots a leaf must be itself. */
static kv_node *find_cover(const kv_tree *t, const kv_node *parent, const kv_place *p, const int32_t *ids,
                           size_t len)
{
    size_t common = p->n_above;
    kv_node *n = p->above;
    if (len == KV_PAGE_TOKENS || t->cfg.snapshot_bytes > 0) {
        return NULL;
    }
    if (n && !n->complete) {
        n = order_find_complete(parent, ids, len, &common);
    }
    return n && common == len ? n : NULL;
}

/* The leaves that `n`, just entered, goes on from. */
static void drop_covered(kv_tree *t, kv_node *n)
{
    size_t most = n->n_ids - 1u;
    kv_node *leaf;
    while ((leaf = order_find_beginning(n->parent, n->ids, most))) {
        most = leaf->n_ids - 1u;
        if (leaf->users == 0 && !leaf->snapshot && node_covers(t, n, leaf)) {
            node_remove(t, leaf);
        }
    }
}

size_t kv_tree_insert(kv_tree *t, const kv_root_key *root, const int32_t *ids, size_t n, const kv_span *span,
                      kv_node **hold)
{
    size_t done = 0;
    kv_node *fresh = NULL, *at = root_find(t, root);
    if (!at && n > 0) {
        int32_t key[ROOT_IDS];
        root_ids(root, key);
        at = node_new(t, key, ROOT_IDS, &t->top);
    }
    if (at) {
        path_hold(t, at);
    }
    while (at && done < n) {
        size_t len = least(n - done, KV_PAGE_TOKENS), index = done / KV_PAGE_TOKENS;
        kv_place p = order_find(at, ids + done, len);
        kv_node *next = p.exact ? p.exact : find_cover(t, at, &p, ids + done, len);
        if (!next && can_enter(t, span, index)) {
            next = node_new(t, ids + done, len, at);
            fresh = fresh ? fresh : next;
        }
        if (!next) {
            break;
        }
        path_hold(t, next);
        path_release(t, at);
        at = next;
        if (next->n_ids == len) {
            node_adopt(t, next, span, index);
        }
        done += len;
    }
    kv_node *end = done > 0 ? at : NULL, *before = hold ? *hold : NULL;
    kv_tree_hold(t, end);
    if (at) {
        path_release(t, at);
    }
    kv_tree_release(t, before);
    if (fresh) {
        drop_covered(t, fresh);
    }
    if (hold) {
        *hold = end;
    } else {
        kv_tree_release(t, end);
    }
    if (!end && at) {
        node_tidy(t, at); /* a root that nothing came under */
    }
    return done;
}

/* --- what is there --- */

void kv_tree_pages(const kv_tree *t, const kv_node *node, size_t kind, page_id *out, size_t n_pages)
{
    for (size_t i = node ? node->depth : 0; i < n_pages; i++) {
        out[i] = KV_NO_PAGE;
    }
    for (; node && !node_is_root(node); node = node->parent) {
        if (node->depth <= n_pages) {
            out[node->depth - 1] = node->pages[kind];
        }
    }
}

kv_tree_stats kv_tree_stats_read(const kv_tree *t)
{
    kv_tree_stats s = t->stats;
    s.bytes = s.overhead_bytes + s.snapshots * t->cfg.snapshot_bytes;
    for (size_t k = 0; k < t->cfg.n_kinds; k++) {
        s.evictable[k] = kv_tree_evictable(t, k);
        s.bytes += s.pages[k] * page_pool_page_bytes(t->cfg.kinds[k].pool);
    }
    return s;
}
