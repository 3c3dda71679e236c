#include <stdlib.h>

#include "base/mem.h"
#include "kv/tree_int.h"

/* What a walk over all nodes adds up. */
typedef struct audit {
    const kv_tree *t;
    const char *why;
    kv_tree_stats sum;
    size_t listed;        /* nodes in the recency list */
    size_t spaced, turns; /* listed snapshots */
    size_t in_windows[KV_TREE_MAX_KINDS];
    size_t pins, pins_due;
} audit;

static bool audit_that(audit *a, bool holds, const char *what)
{
    if (!holds && !a->why) {
        a->why = what;
    }
    return holds;
}

static void audit_order(audit *a, const kv_node *n)
{
    const kv_node *l = n->left, *r = n->right, *next = order_next(n);
    bool some = n->complete || (l && l->some_complete) || (r && r->some_complete);
    audit_that(a, n->up || n->parent->children == n, "siblings: the uppermost is not the parent's");
    audit_that(a, (!l || l->up == n) && (!r || r->up == n), "siblings: up");
    audit_that(a, (!l || l->priority <= n->priority) && (!r || r->priority <= n->priority),
               "siblings: priority");
    audit_that(a, n->some_complete == some, "siblings: some_complete");
    if (next) {
        size_t common = ids_common(n->ids, n->n_ids, next->ids, next->n_ids);
        bool before = common == n->n_ids ? n->n_ids < next->n_ids
                                         : common < next->n_ids && n->ids[common] < next->ids[common];
        audit_that(a, before, "siblings: order");
        audit_that(a, next->parent == n->parent, "siblings: parent");
    }
}

static void audit_pages(audit *a, const kv_node *n)
{
    const kv_tree *t = a->t;
    bool complete = true;
    for (size_t k = 0; k < t->cfg.n_kinds; k++) {
        const kv_tree_kind *kind = &t->cfg.kinds[k];
        bool has = n->pages[k] != KV_NO_PAGE;
        complete = complete && has;
        a->sum.pages[k] += has;
        audit_that(a, !has || page_pool_refs(kind->pool, n->pages[k]) > 0, "pages: without a reference");
        audit_that(a, has || kind->window > 0, "pages: a node without one");
    }
    audit_that(a, n->complete == complete, "pages: complete");
    for (size_t w = 0; w < t->n_windows; w++) {
        const kv_window *win = &n->windows[w];
        size_t kind = t->window_kinds[w];
        bool listed = win->link.older != NULL;
        audit_that(a, win->node == n, "windows: node");
        audit_that(a, listed == (win->pins == 0 && n->pages[kind] != KV_NO_PAGE), "windows: listed");
        a->in_windows[w] += listed;
        a->pins += win->pins;
        size_t window = t->cfg.kinds[kind].window, back = 0;
        for (const kv_node *c = n;
             !node_is_root(c) && (c == n || back * KV_PAGE_TOKENS + 1 - KV_PAGE_TOKENS < window);
             c = c->parent) {
            a->pins_due += n->holds;
            back++;
        }
    }
}

static void audit_node(audit *a, const kv_node *n)
{
    size_t users = n->holds, children = 0;
    for (const kv_node *c = order_first(n); c; c = order_next(c)) {
        children++;
        users += c->users > 0;
        audit_that(a, c->parent == n, "children: parent");
    }
    audit_that(a, n->users == users, "holds: users");
    audit_order(a, n);
    a->sum.overhead_bytes += heap_bytes(node_bytes(a->t, n->n_ids));
    if (node_is_root(n)) {
        a->sum.roots++;
        audit_that(a, n->parent == &a->t->top && n->n_ids == ROOT_IDS, "roots");
        audit_that(a, children > 0, "roots: one with nothing under it");
        audit_that(a, !n->link.older, "roots: one is listed");
        return;
    }
    a->sum.nodes++;
    a->sum.held_nodes += users > 0;
    a->sum.leaves += n->n_ids < KV_PAGE_TOKENS;
    a->listed += n->link.older != NULL;
    audit_that(a, n->depth == n->parent->depth + 1 - (n->parent->parent == NULL), "nodes: depth");
    audit_that(a, n->n_ids > 0 && n->n_ids <= KV_PAGE_TOKENS, "nodes: number of ids");
    audit_that(a, children == 0 || n->n_ids == KV_PAGE_TOKENS, "nodes: a leaf with children");
    audit_that(a, (n->link.older != NULL) == (users == 0), "holds: listed");
    audit_pages(a, n);
    if (n->snapshot) {
        const kv_snapshot *s = n->snapshot;
        a->sum.snapshots++;
        a->sum.overhead_bytes += heap_bytes(sizeof *s);
        audit_that(a, s->node == n, "snapshots: node");
        audit_that(a, (s->link.older != NULL) == (n->holds == 0), "snapshots: listed");
        *(s->spaced ? &a->spaced : &a->turns) += s->link.older != NULL;
    }
}

/* Elements from the oldest on, with both directions of each link; SIZE_MAX if they do not agree. */
static size_t ring_length(const kv_link *head)
{
    size_t n = 0;
    for (const kv_link *l = head->newer; l != head; l = l->newer) {
        if (l->newer->older != l || l->older->newer != l) {
            return SIZE_MAX;
        }
        n++;
    }
    return n;
}

typedef struct age {
    const kv_node *node;
    size_t rank;
} age;

static int by_address(const void *x, const void *y)
{
    const age *a = x, *b = y;
    return (a->node > b->node) - (a->node < b->node);
}

/* A parent in the list is newer than its children. */
static void audit_ages(audit *a)
{
    age *ages = mem_alloc_array(a->listed, sizeof *ages);
    size_t n = 0;
    if (!audit_that(a, ages != NULL, "out of memory for the check")) {
        return;
    }
    for (kv_link *l = a->t->unheld.newer; l != &a->t->unheld; l = l->newer) {
        ages[n] = (age){list_entry(l, kv_node), n};
        n++;
    }
    qsort(ages, n, sizeof *ages, by_address);
    for (size_t i = 0; i < n; i++) {
        age want = {.node = ages[i].node->parent};
        const age *parent = bsearch(&want, ages, n, sizeof *ages, by_address);
        audit_that(a, !parent || parent->rank > ages[i].rank, "recency: a child is newer than its parent");
    }
    mem_free(ages);
}

static void audit_sums(audit *a)
{
    const kv_tree_stats *is = &a->t->stats, *due = &a->sum;
    audit_that(a, is->nodes == due->nodes, "stats: nodes");
    audit_that(a, is->held_nodes == due->held_nodes, "stats: held_nodes");
    audit_that(a, is->leaves == due->leaves, "stats: leaves");
    audit_that(a, is->roots == due->roots, "stats: roots");
    audit_that(a, is->snapshots == due->snapshots, "stats: snapshots");
    audit_that(a, is->overhead_bytes == due->overhead_bytes, "stats: overhead_bytes");
    audit_that(a, a->pins == a->pins_due, "windows: pins");
    for (size_t k = 0; k < a->t->cfg.n_kinds; k++) {
        audit_that(a, is->pages[k] == due->pages[k], "stats: pages");
    }
    for (size_t w = 0; w < a->t->n_windows; w++) {
        audit_that(a, is->evictable[a->t->window_kinds[w]] == a->in_windows[w], "stats: evictable");
        audit_that(a, ring_length(&a->t->windows[w]) == a->in_windows[w], "windows: list");
    }
    audit_that(a, ring_length(&a->t->spaced) == a->spaced, "snapshots: list of the spaced");
    audit_that(a, ring_length(&a->t->turns) == a->turns, "snapshots: list of turns' ends");
    if (audit_that(a, ring_length(&a->t->unheld) == a->listed, "recency: list")) {
        audit_ages(a);
    }
}

bool kv_tree_check(const kv_tree *t, const char **why)
{
    audit a = {.t = t, .sum = {.overhead_bytes = heap_bytes(sizeof *t)}};
    const kv_node *n = &t->top;
    while (n->children) {
        n = order_first(n);
    }
    for (; n != &t->top && !a.why; n = walk_next(n)) {
        audit_node(&a, n);
    }
    if (!a.why) {
        audit_sums(&a);
    }
    if (why) {
        *why = a.why;
    }
    return a.why == NULL;
}
