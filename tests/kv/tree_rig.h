/*
 * tree_rig: a tree over small pools, and what a sequence would do with it: match, take over pages, compute the
 * others, enter. A page's row says what it was computed from (the root and all ids up to it), so that whoever gets
 * another's page is found out.
 */
#ifndef HEARTH_TESTS_KV_TREE_RIG_H
#define HEARTH_TESTS_KV_TREE_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kv/tree.h"

#define RIG_MAX_TOKENS 4096
#define RIG_MAX_PAGES  (RIG_MAX_TOKENS / KV_PAGE_TOKENS)

typedef struct tree_rig {
    kv_tree *tree;
    page_pool *pools[KV_TREE_MAX_KINDS];
    kv_tree_config cfg;
    size_t snapshots_out;  /* made and not dropped yet */
    uintptr_t dropped[64]; /* the states that were dropped since n_dropped was set to 0 */
    size_t n_dropped;
} tree_rig;

/* windows[n_kinds]; snapshots: how many at most, 0 = the model has none. */
void rig_open(tree_rig *r, size_t n_kinds, const size_t *windows, size_t n_pages, size_t snapshots);
void rig_open_one(tree_rig *r, size_t n_pages); /* full attention alone */
/* Nothing is held; afterwards every page is free. */
void rig_close(tree_rig *r);
void rig_check(const tree_rig *r);

kv_root_key rig_root(unsigned which);
/* ids[at, n) = from, from + step, from + 2 step, … */
void rig_ids(int32_t *ids, size_t at, size_t n, int32_t from, int32_t step);

/* A page with the rows that the first n tokens have in page `index`. */
page_id rig_page(tree_rig *r, size_t kind, unsigned root, const int32_t *ids, size_t n, size_t index);
/* Whether the rows of the first n tokens in that page are right. */
bool rig_page_is(const tree_rig *r, size_t kind, page_id page, unsigned root, const int32_t *ids, size_t n,
                 size_t index);

/* Computes all pages of n tokens and enters them; returns what insert does. hold: as insert. */
size_t rig_enter(tree_rig *r, unsigned root, const int32_t *ids, size_t n, kv_node **hold);
/* A state for kv_tree_put_snapshot, made from the first n ids. */
void *rig_state(tree_rig *r, unsigned root, const int32_t *ids, size_t n);
/* A recurrent layer that sums up all ids: its state after none, and after one more. */
uint64_t rig_state_begin(unsigned root);
uint64_t rig_state_step(uint64_t state, int32_t id);
bool rig_state_is(const void *state, unsigned root, const int32_t *ids, size_t n);
kv_match rig_match(const tree_rig *r, unsigned root, const int32_t *ids, size_t n);
/* A match whose pages were looked at, row by row. */
kv_match rig_match_sound(const tree_rig *r, unsigned root, const int32_t *ids, size_t n, size_t most);

#endif
