/*
 * tree: the prefixes whose keys and values are kept, for whoever begins with the same tokens (DESIGN 7).
 *
 * Below a root (one for each root key: what else the state depends on) a node is KV_PAGE_TOKENS ids, or fewer: a
 * leaf, which has no children. It has a page of each kind with full attention, may have one of each kind with a
 * window, and may have a snapshot at its end. A node's pages are immutable: the tree holds a reference on each, and
 * whoever goes on from inside a page copies it first.
 *
 * Usable length L of a list of ids: the longest for which the tree has the pages of full attention for [0, L), those
 * of a window of W positions for [L - W, L), and, with recurrent layers, a snapshot exactly at L. L may end inside a
 * node (not with recurrent layers). Windows' pages beyond L are kept; an insert that reaches a node that lacks one
 * adopts it. Debug builds compare a full page that was computed again with the one that is kept.
 *
 * Tokens are compared; children are kept in their order, so that one look finds who shares most with given ids. A
 * leaf whose ids are a prefix of a neighbour's goes, unless it is held, has a snapshot, or the neighbour lacks a page
 * that it has.
 *
 * Who computes on a path holds its end (kv_tree_hold): neither a held node nor one above it goes, nor the page of a
 * window that reaches it from that end, nor the snapshot of the held node itself. All else is evictable, on one
 * condition: who has references of his own to a node's pages holds it, or gives them back before anybody evicts (else
 * a page is given up and not free, and evict goes on to the next). Eviction is LRU, each kind by itself: full pages
 * leaves first (the node goes with all it has), windows' pages wherever they are, of one path the first first.
 * Snapshots over their number go spaced ones first, thinning out geometrically as they grow old; then those at turns'
 * ends, the oldest first. A node in which nothing is left goes, and so does a root.
 *
 * Bytes: kv_tree_stats counts nodes, their ids and what they hold; bookkeeping is bounded by max_overhead_bytes (an
 * insert beyond it evicts, then stops).
 *
 * Engine thread. Allocation failure shortens what an insert keeps, and is never an error. A look for a child costs the
 * logarithm of their number; match and insert cost that for each node on the way, hold and release the nodes up to
 * the first that is held anyway (with windows: as far as they reach), an eviction that for one node.
 */
#ifndef HEARTH_KV_TREE_H
#define HEARTH_KV_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "kern/kv_layout.h"
#include "kv/page_pool.h"

#define KV_TREE_MAX_KINDS 4
#define KV_NO_PAGE        ((page_id)-1)

typedef struct kv_tree kv_tree;
typedef struct kv_node kv_node;

/* What else the state depends on: model, adapters, KV type, context and rope settings, numerics version, namespace. */
typedef struct kv_root_key {
    uint8_t bytes[32];
} kv_root_key;

typedef struct kv_tree_kind {
    page_pool *pool; /* borrowed; its own pool */
    size_t window;   /* positions up to and with its own that a row sees; 0 = all */
} kv_tree_kind;

typedef struct kv_tree_config {
    kv_tree_kind kinds[KV_TREE_MAX_KINDS];
    size_t n_kinds;            /* 0 only if there are snapshots */
    size_t max_overhead_bytes; /* of nodes; 0 = no limit */
    /* Recurrent layers: a snapshot is opaque and belongs to the tree once put. snapshot_bytes 0 = there are none. */
    size_t snapshot_bytes;
    size_t max_snapshots;
    size_t snapshot_spacing; /* spaced ones lie at its multiples (kv_snapshot_spacing) */
    void (*drop_snapshot)(void *ctx, void *snapshot);
    void *ctx;
} kv_tree_config;

/* ST_NOMEM, ST_INVALID_FIELD (n_kinds). */
status kv_tree_new(const kv_tree_config *cfg, kv_tree **out);
/* Nothing may be held (asserted). NULL is fine. */
void kv_tree_free(kv_tree *t);

/* Why a prefix is not usable any further. */
typedef enum kv_miss {
    KV_MISS_NONE,    /* all of it is usable */
    KV_MISS_NEW,     /* nothing under this root begins like this */
    KV_MISS_ENDS,    /* what is kept ends here: the ids go on */
    KV_MISS_DIFFERS, /* what is kept goes on with other ids */
    KV_MISS_EVICTED, /* known, but a page of it served somebody else */
    KV_MISS_SNAPSHOT /* known, but with no snapshot here */
} kv_miss;
const char *kv_miss_name(kv_miss m); /* "none", "new", "ends", "differs", "evicted", "no_snapshot" */

typedef struct kv_match {
    size_t n_usable; /* tokens */
    size_t n_known;  /* tokens that the nodes of the path have in common with the ids, usable or not */
    kv_miss miss;    /* at n_usable */
    kv_node *node;   /* the one that n_usable is in; NULL: it is 0. Valid until the next change */
} kv_match;

/* The longest usable prefix of ids that is at most `most` tokens (with recurrent layers: at a snapshot at or before).
 * Changes nothing. */
kv_match kv_tree_match(const kv_tree *t, const kv_root_key *root, const int32_t *ids, size_t n, size_t most);

/* Holds node and all above it, and makes them the most recently used. One hold is one release, which may be the end of
 * the node: it is not to be used afterwards. NULL is fine. */
void kv_tree_hold(kv_tree *t, kv_node *node);
void kv_tree_release(kv_tree *t, kv_node *node);

/* Pages of that kind on the path to node: out[i] is of positions [32 i, 32 i + 32), KV_NO_PAGE where there is none,
 * up to n_pages entries. No reference is taken: the caller, who holds the node, takes his. */
void kv_tree_pages(const kv_tree *t, const kv_node *node, size_t kind, page_id *out, size_t n_pages);
/* The snapshot at its end, borrowed while it is held, or NULL. */
void *kv_tree_snapshot(const kv_node *node);

typedef struct kv_span {
    const page_id *pages[KV_TREE_MAX_KINDS]; /* [kind][page of n tokens]; KV_NO_PAGE, or NULL: none */
} kv_span;

/*
 * Enters the first n ids with their pages; the last page is entered as a leaf if it is not full. The caller still has
 * his references; he writes no page again that was entered (page_pool_may_write says so). Pages that a node has are
 * kept, those that it lacks adopted. All nodes of the path become the most recently used. A path ends where a node
 * would have no page of full attention. A leaf that a neighbour goes on from is not entered (without snapshots): the
 * neighbour stands for it. *hold: what the caller holds (or NULL), which is released; afterwards the deepest node of
 * the path, held in its place, or NULL if there is none. hold NULL: nothing is held afterwards. Returns how many
 * tokens of the path the tree has now (less than n: out of memory, or a page was missing).
 */
size_t kv_tree_insert(kv_tree *t, const kv_root_key *root, const int32_t *ids, size_t n, const kv_span *span,
                      kv_node **hold);
/* A snapshot at the end of the first n ids, whose nodes are there. spaced: it is not at a turn's end. The tree owns it
 * from here on. Whether there is one now: false, it was dropped at once (no such node, out of memory, or no room: what
 * is left is held, or, for a spaced one, at turns' ends). */
bool kv_tree_put_snapshot(kv_tree *t, const kv_root_key *root, const int32_t *ids, size_t n, void *snapshot,
                          bool spaced);

/* Pages that kv_tree_evict could free now, one call each. O(1). */
size_t kv_tree_evictable(const kv_tree *t, size_t kind);
/* Frees the page of that kind that was not used for longest. false: there is none. */
bool kv_tree_evict(kv_tree *t, size_t kind);
/* Forgets all nodes that nobody holds under a root (NULL: everywhere). */
void kv_tree_forget(kv_tree *t, const kv_root_key *root);

typedef struct kv_tree_stats {
    size_t nodes, held_nodes, leaves, roots;
    size_t pages[KV_TREE_MAX_KINDS], evictable[KV_TREE_MAX_KINDS];
    size_t snapshots;
    size_t overhead_bytes;                     /* nodes and records of snapshots, as malloc takes them */
    size_t bytes;                              /* with pages and snapshots */
    uint64_t evicted_pages, dropped_snapshots; /* since the beginning */
} kv_tree_stats;
kv_tree_stats kv_tree_stats_read(const kv_tree *t);
/* Whether links, counts, lists and references agree; *why (or NULL): the first that does not. Linear; for tests. */
bool kv_tree_check(const kv_tree *t, const char **why);

#endif
