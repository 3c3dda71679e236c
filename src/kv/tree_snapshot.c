#include <assert.h>

#include "base/mem.h"
#include "kv/tree_int.h"

/* Over budget the spaced ones go first. The oldest is passed over as often as its number on the path (1, 2, 3 … times
 * the spacing) can be halved: of what grows old every second one goes, then every fourth, and so on. */
static uint8_t lives_of(const kv_tree *t, const kv_node *n)
{
    size_t spacing = t->cfg.snapshot_spacing;
    size_t at = (size_t)KV_PAGE_TOKENS * (n->depth - 1) + n->n_ids;
    if (spacing == 0 || at % spacing != 0) {
        return 0;
    }
    return (uint8_t)__builtin_ctzll(at / spacing);
}

void snapshot_list(kv_tree *t, kv_snapshot *s)
{
    s->lives = s->spaced ? lives_of(t, s->node) : 0;
    list_push(s->spaced ? &t->spaced : &t->turns, &s->link);
}

void snapshot_free(kv_tree *t, kv_snapshot *s)
{
    if (!s) {
        return;
    }
    list_remove(&s->link);
    s->node->snapshot = NULL;
    t->cfg.drop_snapshot(t->cfg.ctx, s->state);
    t->stats.snapshots--;
    t->stats.overhead_bytes -= heap_bytes(sizeof *s);
    mem_free(s);
}

/* Who has to go for another one; NULL: all are held. */
static kv_snapshot *choose_victim(kv_tree *t)
{
    kv_link *l;
    while ((l = list_oldest(&t->spaced))) {
        kv_snapshot *s = list_entry(l, kv_snapshot);
        if (s->lives == 0) {
            return s;
        }
        s->lives--;
        list_remove(l);
        list_push(&t->spaced, l);
    }
    l = list_oldest(&t->turns);
    return l ? list_entry(l, kv_snapshot) : NULL;
}

static kv_node *node_at(const kv_tree *t, const kv_root_key *root, const int32_t *ids, size_t n)
{
    kv_node *at = n > 0 ? root_find(t, root) : NULL;
    for (size_t done = 0; at && done < n; done += KV_PAGE_TOKENS) {
        size_t len = n - done < KV_PAGE_TOKENS ? n - done : KV_PAGE_TOKENS;
        at = order_find(at, ids + done, len).exact;
    }
    return at;
}

static bool make_room(kv_tree *t, bool spaced)
{
    while (t->stats.snapshots >= t->cfg.max_snapshots) {
        kv_snapshot *s = choose_victim(t);
        if (!s || (spaced && !s->spaced)) {
            return false;
        }
        kv_node *n = s->node;
        snapshot_free(t, s);
        t->stats.dropped_snapshots++;
        node_tidy(t, n);
    }
    return node_make_room(t, heap_bytes(sizeof(kv_snapshot)));
}

bool kv_tree_put_snapshot(kv_tree *t, const kv_root_key *root, const int32_t *ids, size_t n, void *snapshot,
                          bool spaced)
{
    kv_node *at = node_at(t, root, ids, n);
    if (at && at->snapshot) { /* the same: it depends on nothing but the root and the ids */
        kv_snapshot *s = at->snapshot;
        list_remove(&s->link);
        s->spaced = s->spaced && spaced;
        if (at->holds == 0) {
            snapshot_list(t, s);
        }
        t->cfg.drop_snapshot(t->cfg.ctx, snapshot);
        return true;
    }
    kv_snapshot *s = NULL;
    if (at) {
        path_hold(t, at); /* not to go while room is made */
        s = make_room(t, spaced) ? mem_calloc(1, sizeof *s) : NULL;
    }
    if (s) {
        *s = (kv_snapshot){.node = at, .state = snapshot, .spaced = spaced};
        at->snapshot = s;
        t->stats.snapshots++;
        t->stats.overhead_bytes += heap_bytes(sizeof *s);
        if (at->holds == 0) {
            snapshot_list(t, s);
        }
    } else {
        t->cfg.drop_snapshot(t->cfg.ctx, snapshot);
        t->stats.dropped_snapshots++;
    }
    if (at) {
        path_release(t, at);
        node_tidy(t, at);
    }
    return s != NULL;
}

void *kv_tree_snapshot(const kv_node *node)
{
    return node && node->snapshot ? node->snapshot->state : NULL;
}
