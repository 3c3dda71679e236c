/*
 * tree_model: what tree.h says, in the most naive way: a list of nodes, each with all ids from the beginning,
 * everything looked for by going through all of it. It shares no code and no structure with the tree.
 */
#ifndef HEARTH_TESTS_KV_TREE_MODEL_H
#define HEARTH_TESTS_KV_TREE_MODEL_H

#include "kv/tree.h"

#define MODEL_IDS   160
#define MODEL_NODES 1024

typedef struct model_node {
    bool live;
    unsigned root;
    size_t n; /* ids from the beginning to its end */
    int32_t ids[MODEL_IDS];
    page_id pages[KV_TREE_MAX_KINDS];
    size_t holds;
    uint64_t used; /* when it came into the list; of one time the deepest is the oldest */
    uint64_t window_used[KV_TREE_MAX_KINDS]; /* likewise; of one time the deepest is the newest */
    void *snapshot;
    bool spaced;
} model_node;

typedef struct tree_model {
    model_node nodes[MODEL_NODES];
    kv_tree_config cfg;
    uint64_t now;
} tree_model;

typedef struct model_match {
    size_t n_usable, n_known;
    bool differs;      /* something goes on from n_known with another id */
    size_t n_computed; /* usable without recurrent layers */
} model_match;

model_match model_find(tree_model *m, unsigned root, const int32_t *ids, size_t n, size_t most);
/* As insert, for the `done` tokens that the tree says. Returns the node that is held instead of `held`, or NULL. */
model_node *model_insert(tree_model *m, unsigned root, const int32_t *ids, size_t n, size_t done,
                         const kv_span *span, model_node *held, bool hold);
void model_hold(tree_model *m, model_node *n);
void model_release(tree_model *m, model_node *n);
void model_forget(tree_model *m, unsigned root);
/* The node that has to give its page next, or NULL. */
model_node *model_victim(tree_model *m, size_t kind);
void model_evicted(tree_model *m, model_node *n, size_t kind);
size_t model_evictable(const tree_model *m, size_t kind);
bool model_held(const tree_model *m, const model_node *n); /* itself or below */
model_node *model_node_at(tree_model *m, unsigned root, const int32_t *ids, size_t n);
/* The snapshot of n went: what follows for n. */
void model_snapshot_gone(tree_model *m, model_node *n);
/* Put at n, which may be NULL; afterwards n is as new as can be. */
void model_snapshot_put(tree_model *m, model_node *n, void *snapshot, bool spaced, bool kept);

#endif
