#include <assert.h>

#include "base/mem.h"
#include "kv/tree_int.h"

void list_init(kv_link *head)
{
    head->older = head->newer = head;
}

/* Just behind `head`, which is the list's own or an element. */
void list_push(kv_link *head, kv_link *l)
{
    assert(!l->older);
    l->newer = head;
    l->older = head->older;
    head->older->newer = l;
    head->older = l;
}

void list_remove(kv_link *l)
{
    if (l->older) {
        l->older->newer = l->newer;
        l->newer->older = l->older;
        l->older = l->newer = NULL;
    }
}

/* --- holds --- */

void path_hold(kv_tree *t, kv_node *n)
{
    for (; n->parent && n->users++ == 0; n = n->parent) {
        if (!node_is_root(n)) {
            list_remove(&n->link);
            t->stats.held_nodes++;
        }
    }
}

void path_release(kv_tree *t, kv_node *n)
{
    for (; n->parent && --n->users == 0; n = n->parent) {
        if (!node_is_root(n)) {
            list_push(&t->unheld, &n->link);
            t->stats.held_nodes--;
        }
    }
}

/* Whether a hold of n needs the page of c, which is n or above it, with a window that wide. */
static bool in_reach(const kv_node *n, const kv_node *c, size_t window)
{
    return !node_is_root(c) && (c == n || (size_t)KV_PAGE_TOKENS * (n->depth - 1 - c->depth) + 1 < window);
}

static void windows_pin(kv_tree *t, kv_node *n)
{
    for (size_t w = 0; w < t->n_windows; w++) {
        size_t kind = t->window_kinds[w];
        for (kv_node *c = n; in_reach(n, c, t->cfg.kinds[kind].window); c = c->parent) {
            kv_window *win = &c->windows[w];
            if (win->pins++ == 0 && c->pages[kind] != KV_NO_PAGE) {
                list_remove(&win->link);
                t->stats.evictable[kind]--;
            }
        }
    }
}

static void windows_unpin(kv_tree *t, kv_node *n)
{
    for (size_t w = 0; w < t->n_windows; w++) {
        size_t kind = t->window_kinds[w];
        kv_link *deeper = &t->windows[w];
        for (kv_node *c = n; in_reach(n, c, t->cfg.kinds[kind].window); c = c->parent) {
            kv_window *win = &c->windows[w];
            assert(win->pins > 0);
            if (--win->pins == 0 && c->pages[kind] != KV_NO_PAGE) {
                list_push(deeper, &win->link);
                deeper = &win->link;
                t->stats.evictable[kind]++;
            }
        }
    }
}

void kv_tree_hold(kv_tree *t, kv_node *node)
{
    if (!node) {
        return;
    }
    if (node->holds++ == 0 && node->snapshot) {
        list_remove(&node->snapshot->link);
    }
    windows_pin(t, node);
    path_hold(t, node);
}

void kv_tree_release(kv_tree *t, kv_node *node)
{
    if (!node) {
        return;
    }
    assert(node->holds > 0);
    windows_unpin(t, node);
    path_release(t, node);
    if (--node->holds == 0 && node->snapshot) {
        snapshot_list(t, node->snapshot);
    }
    node_tidy(t, node);
}

/* --- what a node has --- */

static kv_window *window_of(const kv_tree *t, const kv_node *n, size_t kind)
{
    for (size_t w = 0; w < t->n_windows; w++) {
        if (t->window_kinds[w] == kind) {
            return &n->windows[w];
        }
    }
    return NULL;
}

static void judge_complete(const kv_tree *t, kv_node *n)
{
    bool complete = true;
    for (size_t k = 0; k < t->cfg.n_kinds; k++) {
        complete = complete && n->pages[k] != KV_NO_PAGE;
    }
    if (complete != n->complete) {
        n->complete = complete;
        order_changed(n);
    }
}

void node_give_page(kv_tree *t, kv_node *n, size_t kind, page_id page)
{
    kv_window *win = window_of(t, n, kind);
    assert(n->pages[kind] == KV_NO_PAGE);
    page_pool_ref(t->cfg.kinds[kind].pool, page);
    n->pages[kind] = page;
    t->stats.pages[kind]++;
    if (win && win->pins == 0) {
        list_push(&t->windows[win - n->windows], &win->link);
        t->stats.evictable[kind]++;
    }
    judge_complete(t, n);
}

/* True if that was the last reference. */
static bool node_drop_page(kv_tree *t, kv_node *n, size_t kind)
{
    page_pool *pool = t->cfg.kinds[kind].pool;
    kv_window *win = window_of(t, n, kind);
    bool last = page_pool_refs(pool, n->pages[kind]) == 1;
    page_pool_unref(pool, n->pages[kind]);
    n->pages[kind] = KV_NO_PAGE;
    t->stats.pages[kind]--;
    if (win && win->link.older) {
        list_remove(&win->link);
        t->stats.evictable[kind]--;
    }
    return last;
}

bool node_covers(const kv_tree *t, const kv_node *other, const kv_node *leaf)
{
    for (size_t k = 0; k < t->cfg.n_kinds; k++) {
        if (leaf->pages[k] != KV_NO_PAGE && other->pages[k] == KV_NO_PAGE) {
            return false;
        }
    }
    return other->n_ids > leaf->n_ids &&
           ids_common(other->ids, other->n_ids, leaf->ids, leaf->n_ids) == leaf->n_ids;
}

size_t node_bytes(const kv_tree *t, size_t n_ids)
{
    size_t ids_end = (offsetof(kv_node, ids) + n_ids * sizeof(int32_t) + 7) / 8 * 8;
    return ids_end + t->n_windows * sizeof(kv_window);
}

/* With all it has; whatever is below it is gone already. */
static void node_drop(kv_tree *t, kv_node *n)
{
    for (size_t k = 0; k < t->cfg.n_kinds; k++) {
        if (n->pages[k] != KV_NO_PAGE) {
            node_drop_page(t, n, k);
        }
    }
    snapshot_free(t, n->snapshot);
    list_remove(&n->link);
    order_remove(n);
    t->stats.roots -= node_is_root(n);
    t->stats.nodes -= !node_is_root(n);
    t->stats.leaves -= !node_is_root(n) && n->n_ids < KV_PAGE_TOKENS;
    t->stats.overhead_bytes -= heap_bytes(node_bytes(t, n->n_ids));
    mem_free(n);
}

/* Nobody holds it, nothing is below it, and it has nothing. */
static bool is_useless(const kv_tree *t, const kv_node *n)
{
    if (!n->parent || n->children || n->users > 0 || n->snapshot) {
        return false;
    }
    for (size_t k = 0; k < t->cfg.n_kinds; k++) {
        if (n->pages[k] != KV_NO_PAGE) {
            return false;
        }
    }
    return true;
}

void node_remove(kv_tree *t, kv_node *n)
{
    assert(!n->children && n->users == 0);
    do {
        kv_node *parent = n->parent;
        node_drop(t, n);
        n = parent;
    } while (is_useless(t, n));
}

void node_tidy(kv_tree *t, kv_node *n)
{
    if (is_useless(t, n)) {
        node_remove(t, n);
        return;
    }
    if (node_is_root(n) || n->n_ids == KV_PAGE_TOKENS || n->users > 0 || n->snapshot) {
        return;
    }
    kv_node *longer = order_next(n);
    if (longer && node_covers(t, longer, n)) {
        path_hold(t, longer); /* it is used in its place: as recent as the leaf was */
        path_release(t, longer);
        node_remove(t, n);
    }
}

/* --- eviction --- */

size_t kv_tree_evictable(const kv_tree *t, size_t kind)
{
    bool windowed = t->cfg.kinds[kind].window > 0;
    return windowed ? t->stats.evictable[kind] : t->stats.nodes - t->stats.held_nodes;
}

static void evict_node(kv_tree *t, kv_node *n)
{
    for (size_t k = 0; k < t->cfg.n_kinds; k++) {
        t->stats.evicted_pages += n->pages[k] != KV_NO_PAGE;
    }
    node_remove(t, n);
}

static bool evict_full(kv_tree *t, size_t kind)
{
    bool freed = false;
    kv_link *l;
    while (!freed && (l = list_oldest(&t->unheld))) {
        kv_node *n = list_entry(l, kv_node);
        freed = page_pool_refs(t->cfg.kinds[kind].pool, n->pages[kind]) == 1;
        evict_node(t, n);
    }
    return freed;
}

bool kv_tree_evict(kv_tree *t, size_t kind)
{
    bool freed = false;
    size_t w = 0;
    kv_link *l;
    if (t->cfg.kinds[kind].window == 0) {
        return evict_full(t, kind);
    }
    while (t->window_kinds[w] != kind) {
        w++;
    }
    while (!freed && (l = list_oldest(&t->windows[w]))) {
        kv_node *n = list_entry(l, kv_window)->node;
        freed = node_drop_page(t, n, kind);
        t->stats.evicted_pages++;
        judge_complete(t, n);
        node_tidy(t, n);
    }
    return freed;
}

bool node_make_room(kv_tree *t, size_t n)
{
    kv_link *l;
    while (t->cfg.max_overhead_bytes > 0 && t->stats.overhead_bytes + n > t->cfg.max_overhead_bytes) {
        if (!(l = list_oldest(&t->unheld))) {
            return false;
        }
        evict_node(t, list_entry(l, kv_node));
    }
    return true;
}

void kv_tree_forget(kv_tree *t, const kv_root_key *key)
{
    kv_node *within = key ? root_find(t, key) : &t->top, *next;
    if (!within) {
        return;
    }
    path_hold(t, within); /* not to go while it is walked */
    for (kv_node *n = walk_first(within); n != within; n = next) {
        next = walk_next(n);
        if (!n->children && n->users == 0) {
            node_drop(t, n);
        }
    }
    path_release(t, within);
    if (within->parent) {
        node_tidy(t, within);
    }
}

void kv_tree_free(kv_tree *t)
{
    if (!t) {
        return;
    }
    assert(t->stats.held_nodes == 0);
    kv_node *next;
    for (kv_node *n = walk_first(&t->top); n != &t->top; n = next) {
        next = walk_next(n);
        node_drop(t, n);
    }
    mem_free(t);
}
