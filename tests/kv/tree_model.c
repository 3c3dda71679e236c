#include "kv/tree_model.h"

#include <string.h>

static size_t start_of(const model_node *n)
{
    return (n->n - 1) / KV_PAGE_TOKENS * KV_PAGE_TOKENS;
}

static bool same(const model_node *a, unsigned root, const int32_t *ids, size_t n)
{
    return a->live && a->root == root && memcmp(a->ids, ids, n * sizeof *ids) == 0;
}

static bool is_above(const model_node *a, const model_node *b) /* or the same */
{
    return a == b || (a->n % KV_PAGE_TOKENS == 0 && a->n < b->n && same(a, b->root, b->ids, a->n));
}

static bool are_siblings(const model_node *a, const model_node *b)
{
    return a->live && start_of(a) == start_of(b) && same(a, b->root, b->ids, start_of(b));
}

bool model_held(const tree_model *m, const model_node *n)
{
    for (size_t i = 0; i < MODEL_NODES; i++) {
        const model_node *b = &m->nodes[i];
        if (b->live && b->holds > 0 && is_above(n, b)) {
            return true;
        }
    }
    return false;
}

/* A hold needs what a row at the first position of its node sees, or any later one. */
static bool is_pinned(const tree_model *m, const model_node *n, size_t kind)
{
    size_t window = m->cfg.kinds[kind].window;
    for (size_t i = 0; i < MODEL_NODES; i++) {
        const model_node *b = &m->nodes[i];
        if (b->live && b->holds > 0 && is_above(n, b) && (b == n || n->n + window > start_of(b) + 1)) {
            return true;
        }
    }
    return false;
}

model_node *model_node_at(tree_model *m, unsigned root, const int32_t *ids, size_t n)
{
    for (model_node *a = m->nodes; a < m->nodes + MODEL_NODES; a++) {
        if (a->live && a->n == n && same(a, root, ids, n)) {
            return a;
        }
    }
    return NULL;
}

/* --- match --- */

static bool complete(const tree_model *m, const model_node *n)
{
    for (size_t k = 0; k < m->cfg.n_kinds; k++) {
        if (n->pages[k] == KV_NO_PAGE) {
            return false;
        }
    }
    return true;
}

/* Whether rows [0, at) can be had with `last` for those of its page. */
static bool usable_with(tree_model *m, unsigned root, const int32_t *ids, size_t at, const model_node *last)
{
    for (size_t page = 0; page * KV_PAGE_TOKENS < start_of(last); page++) {
        model_node *a = model_node_at(m, root, ids, (page + 1) * KV_PAGE_TOKENS);
        if (!a) {
            return false;
        }
        for (size_t k = 0; k < m->cfg.n_kinds; k++) {
            size_t window = m->cfg.kinds[k].window;
            bool seen = window == 0 || a->n + window > at;
            if (seen && a->pages[k] == KV_NO_PAGE) {
                return false;
            }
        }
    }
    return complete(m, last);
}

model_match model_find(tree_model *m, unsigned root, const int32_t *ids, size_t n, size_t most)
{
    model_match found = {0};
    for (model_node *a = m->nodes; a < m->nodes + MODEL_NODES; a++) {
        if (!a->live || a->root != root) {
            continue;
        }
        size_t common = 0;
        while (common < n && common < a->n && a->ids[common] == ids[common]) {
            common++;
        }
        if (common > found.n_known) {
            found.n_known = common;
            found.differs = false;
        }
        found.differs = found.differs || (common == found.n_known && common < a->n);
        for (size_t at = start_of(a) + 1; at <= common && at <= most; at++) {
            if (!usable_with(m, root, ids, at, a)) {
                continue;
            }
            found.n_computed = at > found.n_computed ? at : found.n_computed;
            bool ends = m->cfg.snapshot_bytes == 0 || (at == a->n && a->snapshot);
            if (ends && at > found.n_usable) {
                found.n_usable = at;
            }
        }
    }
    return found;
}

/* --- holds --- */

void model_hold(tree_model *m, model_node *n)
{
    n->holds++;
}

static void into_lists(tree_model *m, const bool *was_held, bool (*was_pinned)[KV_TREE_MAX_KINDS])
{
    m->now++;
    for (size_t i = 0; i < MODEL_NODES; i++) {
        model_node *a = &m->nodes[i];
        if (!a->live) {
            continue;
        }
        if (was_held[i] && !model_held(m, a)) {
            a->used = m->now;
        }
        for (size_t k = 0; k < m->cfg.n_kinds; k++) {
            if (was_pinned[i][k] && !is_pinned(m, a, k)) {
                a->window_used[k] = m->now;
            }
        }
    }
}

static void let_go(tree_model *m, model_node *n)
{
    static bool held[MODEL_NODES], pinned[MODEL_NODES][KV_TREE_MAX_KINDS];
    for (size_t i = 0; i < MODEL_NODES; i++) {
        model_node *a = &m->nodes[i];
        held[i] = a->live && model_held(m, a);
        for (size_t k = 0; k < m->cfg.n_kinds; k++) {
            pinned[i][k] = a->live && is_pinned(m, a, k);
        }
    }
    n->holds--;
    into_lists(m, held, pinned);
}

static bool goes_on(const tree_model *m, const model_node *longer, const model_node *leaf)
{
    return longer->live && longer->n > leaf->n && start_of(longer) == start_of(leaf) &&
           same(longer, leaf->root, leaf->ids, leaf->n);
}

static bool covers(const tree_model *m, const model_node *longer, const model_node *leaf)
{
    for (size_t k = 0; k < m->cfg.n_kinds; k++) {
        if (leaf->pages[k] != KV_NO_PAGE && longer->pages[k] == KV_NO_PAGE) {
            return false;
        }
    }
    return goes_on(m, longer, leaf);
}

static bool before(const model_node *a, const model_node *b) /* in the order of their ids */
{
    for (size_t i = start_of(a); i < a->n && i < b->n; i++) {
        if (a->ids[i] != b->ids[i]) {
            return a->ids[i] < b->ids[i];
        }
    }
    return a->n < b->n;
}

/* Unlist and list again all of the path that is not held. */
static void touch(tree_model *m, model_node *n)
{
    m->now++;
    for (model_node *a = m->nodes; a < m->nodes + MODEL_NODES; a++) {
        if (a->live && is_above(a, n) && !model_held(m, a)) {
            a->used = m->now;
        }
    }
}

static bool is_removable_leaf(const tree_model *m, const model_node *n)
{
    return n->live && n->n % KV_PAGE_TOKENS != 0 && !model_held(m, n) && !n->snapshot;
}

static bool has_children(tree_model *m, const model_node *n)
{
    for (model_node *a = m->nodes; a < m->nodes + MODEL_NODES; a++) {
        if (a->live && a != n && is_above(n, a)) {
            return true;
        }
    }
    return false;
}

/* What is left of a path without pages and snapshots: only where no kind has full attention. */
static void tidy_up(tree_model *m, model_node *n)
{
    for (model_node *a = m->nodes; a < m->nodes + MODEL_NODES; a++) {
        bool has = a->snapshot != NULL;
        for (size_t k = 0; k < m->cfg.n_kinds; k++) {
            has = has || a->pages[k] != KV_NO_PAGE;
        }
        if (a->live && !has && is_above(a, n) && !model_held(m, a) && !has_children(m, a)) {
            a->live = false;
            a = m->nodes - 1;
        }
    }
}

static void tidy(tree_model *m, model_node *n)
{
    tidy_up(m, n);
    if (!is_removable_leaf(m, n)) {
        return;
    }
    model_node *next = NULL;
    for (model_node *a = m->nodes; a < m->nodes + MODEL_NODES; a++) {
        if (a != n && are_siblings(a, n) && before(n, a) && (!next || before(a, next))) {
            next = a;
        }
    }
    if (next && covers(m, next, n)) {
        touch(m, next);
        n->live = false;
    }
}

void model_release(tree_model *m, model_node *n)
{
    let_go(m, n);
    tidy(m, n);
}

/* --- insert --- */

static model_node *cover_of(tree_model *m, unsigned root, const int32_t *ids, size_t n)
{
    model_node leaf = {.live = true, .root = root, .n = n}, *best = NULL;
    memcpy(leaf.ids, ids, n * sizeof *ids);
    for (model_node *a = m->nodes; a < m->nodes + MODEL_NODES; a++) {
        if (goes_on(m, a, &leaf) && complete(m, a) && (!best || before(a, best))) {
            best = a;
        }
    }
    return best;
}

static model_node *new_node(tree_model *m, unsigned root, const int32_t *ids, size_t n)
{
    for (model_node *a = m->nodes; a < m->nodes + MODEL_NODES; a++) {
        if (!a->live) {
            *a = (model_node){.live = true, .root = root, .n = n};
            memcpy(a->ids, ids, n * sizeof *ids);
            for (size_t k = 0; k < KV_TREE_MAX_KINDS; k++) {
                a->pages[k] = KV_NO_PAGE;
            }
            return a;
        }
    }
    return NULL;
}

static void adopt(tree_model *m, model_node *n, const kv_span *span)
{
    for (size_t k = 0; k < m->cfg.n_kinds; k++) {
        page_id page = span->pages[k][start_of(n) / KV_PAGE_TOKENS];
        if (n->pages[k] == KV_NO_PAGE && page != KV_NO_PAGE) {
            n->pages[k] = page;
            n->window_used[k] = m->now;
        }
    }
}

model_node *model_insert(tree_model *m, unsigned root, const int32_t *ids, size_t n, size_t done,
                         const kv_span *span, model_node *held, bool hold)
{
    model_node *fresh = NULL, *end = NULL;
    m->now++;
    for (size_t at = 0; at < done;) {
        at = at + KV_PAGE_TOKENS < n ? at + KV_PAGE_TOKENS : n;
        end = model_node_at(m, root, ids, at);
        if (!end && at % KV_PAGE_TOKENS != 0 && m->cfg.snapshot_bytes == 0) {
            end = cover_of(m, root, ids, at);
        }
        if (!end) {
            end = new_node(m, root, ids, at);
            fresh = fresh ? fresh : end;
        }
        if (end->n == at) {
            adopt(m, end, span);
        }
    }
    if (end) {
        model_hold(m, end);
    }
    if (held) {
        model_release(m, held);
    }
    if (fresh) {
        for (model_node *a = m->nodes; a < m->nodes + MODEL_NODES; a++) {
            if (is_removable_leaf(m, a) && covers(m, fresh, a)) {
                a->live = false;
            }
        }
    }
    if (end && !hold) {
        model_release(m, end);
        return NULL;
    }
    return end;
}

/* --- eviction --- */

void model_forget(tree_model *m, unsigned root)
{
    for (model_node *a = m->nodes; a < m->nodes + MODEL_NODES; a++) {
        if (a->live && a->root == root && !model_held(m, a)) {
            a->live = false;
        }
    }
}

size_t model_evictable(const tree_model *m, size_t kind)
{
    size_t sum = 0;
    for (size_t i = 0; i < MODEL_NODES; i++) {
        const model_node *a = &m->nodes[i];
        bool windowed = m->cfg.kinds[kind].window > 0;
        if (a->live && a->pages[kind] != KV_NO_PAGE) {
            sum += windowed ? !is_pinned(m, a, kind) : !model_held(m, a);
        }
    }
    return sum;
}

model_node *model_victim(tree_model *m, size_t kind)
{
    model_node *oldest = NULL;
    bool windowed = m->cfg.kinds[kind].window > 0;
    for (model_node *a = m->nodes; a < m->nodes + MODEL_NODES; a++) {
        if (!a->live || a->pages[kind] == KV_NO_PAGE ||
            (windowed ? is_pinned(m, a, kind) : model_held(m, a))) {
            continue;
        }
        uint64_t age = windowed ? a->window_used[kind] : a->used;
        uint64_t best = !oldest ? 0 : windowed ? oldest->window_used[kind] : oldest->used;
        bool first = oldest && (windowed ? a->n < oldest->n : a->n > oldest->n);
        if (!oldest || age < best || (age == best && first)) {
            oldest = a;
        }
    }
    return oldest;
}

void model_evicted(tree_model *m, model_node *n, size_t kind)
{
    if (m->cfg.kinds[kind].window == 0) {
        n->live = false;
        return;
    }
    n->pages[kind] = KV_NO_PAGE;
    tidy(m, n);
}

/* --- snapshots --- */

void model_snapshot_gone(tree_model *m, model_node *n)
{
    n->snapshot = NULL;
    tidy(m, n);
}

void model_snapshot_put(tree_model *m, model_node *n, void *snapshot, bool spaced, bool kept)
{
    if (!n) {
        return;
    }
    if (n->snapshot) {
        n->spaced = n->spaced && spaced;
        return;
    }
    if (kept) {
        n->snapshot = snapshot;
        n->spaced = spaced;
    }
    touch(m, n);
    tidy(m, n);
}
