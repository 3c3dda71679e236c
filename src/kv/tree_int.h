/*
 * tree_int: the structs that the tree's files share. tree.c: ways down (match, insert); tree_order.c: the children of
 * one node; tree_use.c: holds, recency, eviction; tree_snapshot.c: snapshots; tree_check.c: the audit.
 *
 *     top ── roots (8 ids: the root key) ── nodes (1 … 32 ids) ── nodes …
 *
 * Children of a node are a treap ordered by their ids, a list before all that it is the beginning of: whoever shares
 * the longest beginning with given ids is a neighbour of where they would stand, so that a look is O(log children)
 * however many conversations part within one page. Priorities are random, so no client can choose a deep one. A node
 * with a single child, the common case, costs one comparison; there is no table that must grow.
 *
 * Recency: t->unheld lists the nodes that nobody holds, roots apart. A path that is released or touched goes to the
 * front deepest first, so a parent is always newer than its children, and the oldest node has none. users counts the
 * holds of a node itself and its children that are held: a hold goes up only to the first ancestor that was held
 * anyway.
 *
 * Windows: a hold of a node needs the pages of a window kind only as far as the window reaches back (pins); the others
 * are in that kind's list, also below a hold, newest first and of one path the deepest first: what goes first is what
 * lies furthest behind.
 *
 * No function recurses.
 */
#ifndef HEARTH_KV_TREE_INT_H
#define HEARTH_KV_TREE_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kv/tree.h"

#define ROOT_IDS ((int)(sizeof(kv_root_key) / sizeof(int32_t)))

/* A ring with its head as both ends; older == NULL: in no list. */
typedef struct kv_link {
    struct kv_link *older, *newer;
} kv_link;

/* A node's page of one window kind. */
typedef struct kv_window {
    kv_link link; /* in t->windows[kind], while it has a page and no pin */
    kv_node *node;
    uint32_t pins; /* holds whose window reaches this node, whether it has a page or not */
} kv_window;

typedef struct kv_snapshot {
    kv_link link; /* in t->spaced or t->turns, while nobody holds the node itself */
    kv_node *node;
    void *state;   /* owned; the caller's */
    uint8_t lives; /* how often it is passed over yet */
    bool spaced;
} kv_snapshot;

struct kv_node {
    kv_node *parent;            /* NULL: the top */
    kv_node *children;          /* the treap's uppermost */
    kv_node *up, *left, *right; /* in the parent's treap */
    kv_link link;               /* in t->unheld */
    kv_snapshot *snapshot;      /* owned; at its end */
    kv_window *windows;         /* [t->n_windows], behind ids; NULL if there are none */
    page_id pages[KV_TREE_MAX_KINDS];
    uint32_t holds; /* of this node itself */
    uint32_t users; /* holds, and children with users */
    uint32_t priority;
    uint32_t depth; /* the root: 0; a node holds positions from 32 (depth - 1) */
    uint8_t n_ids;
    bool complete;      /* has a page of every kind */
    bool some_complete; /* or one below it in the treap is */
    int32_t ids[];      /* [n_ids] */
};

struct kv_tree {
    kv_tree_config cfg;
    kv_link unheld;                         /* newest at the front */
    kv_link windows[KV_TREE_MAX_KINDS];     /* by place among the window kinds */
    kv_link spaced, turns;                  /* snapshots */
    size_t window_kinds[KV_TREE_MAX_KINDS]; /* the kinds with a window */
    size_t n_windows;
    uint64_t priorities; /* state of the generator */
    kv_tree_stats stats; /* bytes is computed when asked */
    kv_node top;         /* of the roots; has no ids */
};

/* --- tree_order.c: the children of one node --- */

typedef struct kv_place {
    kv_node *exact;          /* the child with just these ids, or NULL; then: */
    kv_node *below, *above;  /* its neighbours if it were there */
    size_t n_below, n_above; /* ids they have in common with it */
} kv_place;

kv_place order_find(const kv_node *parent, const int32_t *ids, size_t n);
/* The complete child that has most ids in common with these; *common. NULL: none has any. */
kv_node *order_find_complete(const kv_node *parent, const int32_t *ids, size_t n, size_t *common);
/* The longest child that is a beginning of ids, of at most `most` ids (not 0). */
kv_node *order_find_beginning(const kv_node *parent, const int32_t *ids, size_t most);
void order_add(kv_node *parent, const kv_place *at, kv_node *child);
void order_remove(kv_node *child);
/* To be called when child->complete has changed. */
void order_changed(kv_node *child);
kv_node *order_first(const kv_node *parent);
kv_node *order_next(const kv_node *child);
size_t ids_common(const int32_t *a, size_t n_a, const int32_t *b, size_t n_b);

/* All nodes below `within`, children before parents, `within` last. The next is asked before the present one goes. */
kv_node *walk_first(kv_node *within);
kv_node *walk_next(const kv_node *node); /* not for `within` itself */

/* --- tree_use.c --- */

void list_init(kv_link *head);
void list_push(kv_link *head, kv_link *l);
void list_remove(kv_link *l); /* in no list: nothing */
static inline kv_link *list_oldest(const kv_link *head)
{
    return head->newer == head ? NULL : head->newer;
}
#define list_entry(l, type) ((type *)(void *)((char *)(l)-offsetof(type, link)))

static inline bool node_is_root(const kv_node *n)
{
    return n->depth == 0;
}
kv_node *root_find(const kv_tree *t, const kv_root_key *key); /* tree.c; NULL: there is none */
size_t node_bytes(const kv_tree *t, size_t n_ids);
/* What malloc takes for n bytes. */
static inline size_t heap_bytes(size_t n)
{
    return (n + 8 + 15) / 16 * 16;
}
/* Evicts old nodes until n more bytes of bookkeeping are allowed. */
bool node_make_room(kv_tree *t, size_t n);
/* Without pins: what an operation does while it walks. */
void path_hold(kv_tree *t, kv_node *n);
void path_release(kv_tree *t, kv_node *n);
/* The tree takes a reference. */
void node_give_page(kv_tree *t, kv_node *n, size_t kind, page_id page);
/* Whether `other` has every page that `leaf` has, and its ids go on from the leaf's. */
bool node_covers(const kv_tree *t, const kv_node *other, const kv_node *leaf);
/* A childless node that nobody holds; and above it whatever has become useless by that. */
void node_remove(kv_tree *t, kv_node *n);
/* Drops n if nothing is left in it, or if it is a leaf that a neighbour covers. */
void node_tidy(kv_tree *t, kv_node *n);

/* --- tree_snapshot.c --- */

void snapshot_list(kv_tree *t, kv_snapshot *s); /* as the newest */
void snapshot_free(kv_tree *t, kv_snapshot *s); /* NULL is fine */

#endif
