#include <assert.h>
#include <string.h>

#include "kv/tree_int.h"

size_t ids_common(const int32_t *a, size_t n_a, const int32_t *b, size_t n_b)
{
    size_t n = n_a < n_b ? n_a : n_b, i = 0;
    if (memcmp(a, b, n * sizeof *a) == 0) {
        return n;
    }
    while (a[i] == b[i]) {
        i++;
    }
    return i;
}

/* Where child stands to ids that have `common` with it: < 0: before them. */
static int compare(const kv_node *child, const int32_t *ids, size_t n, size_t common)
{
    if (common == child->n_ids || common == n) {
        return (child->n_ids > n) - (child->n_ids < n);
    }
    return child->ids[common] < ids[common] ? -1 : 1;
}

kv_place order_find(const kv_node *parent, const int32_t *ids, size_t n)
{
    kv_place p = {0};
    kv_node *c = parent->children;
    while (c) {
        size_t common = ids_common(c->ids, c->n_ids, ids, n);
        int side = compare(c, ids, n, common);
        if (side == 0) {
            p.exact = c;
            break;
        }
        if (side < 0) {
            p.below = c;
            p.n_below = common;
            c = c->right;
        } else {
            p.above = c;
            p.n_above = common;
            c = c->left;
        }
    }
    return p;
}

static bool some_complete(const kv_node *c)
{
    return c && c->some_complete;
}

static kv_node *last_complete(kv_node *c)
{
    for (;;) {
        if (some_complete(c->right)) {
            c = c->right;
        } else if (c->complete) {
            return c;
        } else {
            c = c->left;
        }
    }
}

static kv_node *first_complete(kv_node *c)
{
    for (;;) {
        if (some_complete(c->left)) {
            c = c->left;
        } else if (c->complete) {
            return c;
        } else {
            c = c->right;
        }
    }
}

/* The complete neighbours on both sides; what hangs off the way down lies nearer the later it does. */
kv_node *order_find_complete(const kv_node *parent, const int32_t *ids, size_t n, size_t *common)
{
    kv_node *below = NULL, *above = NULL, *c = parent->children;
    while (some_complete(c)) {
        int side = compare(c, ids, n, ids_common(c->ids, c->n_ids, ids, n));
        if (side == 0 && c->complete) {
            *common = n;
            return c;
        }
        if (side <= 0) {
            below = c->complete ? c : some_complete(c->left) ? last_complete(c->left) : below;
        }
        if (side >= 0) {
            above = c->complete ? c : some_complete(c->right) ? first_complete(c->right) : above;
        }
        c = side < 0 ? c->right : side > 0 ? c->left : NULL;
    }
    size_t n_below = below ? ids_common(below->ids, below->n_ids, ids, n) : 0;
    size_t n_above = above ? ids_common(above->ids, above->n_ids, ids, n) : 0;
    *common = n_below > n_above ? n_below : n_above;
    return *common == 0 ? NULL : n_below > n_above ? below : above;
}

/*
 * The one just before ids[0, most] is either such a beginning, or differs at some m: then longer beginnings than m
 * would stand between the two, so there are none.
 */
kv_node *order_find_beginning(const kv_node *parent, const int32_t *ids, size_t most)
{
    while (most > 0) {
        kv_place p = order_find(parent, ids, most);
        if (p.exact) {
            return p.exact;
        }
        if (p.below && p.n_below == p.below->n_ids) {
            return p.below;
        }
        most = p.n_below;
    }
    return NULL;
}

static void pull(kv_node *c)
{
    c->some_complete = c->complete || some_complete(c->left) || some_complete(c->right);
}

void order_changed(kv_node *child)
{
    for (kv_node *c = child; c; c = c->up) {
        pull(c);
    }
}

/* Puts `by` (or nothing) where c was. */
static void replace(kv_node *c, kv_node *by)
{
    kv_node *up = c->up;
    if (!up) {
        c->parent->children = by;
    } else if (up->left == c) {
        up->left = by;
    } else {
        up->right = by;
    }
    if (by) {
        by->up = up;
    }
}

static void rotate_up(kv_node *c)
{
    kv_node *over = c->up;
    replace(over, c);
    if (over->left == c) {
        over->left = c->right;
        if (c->right) {
            c->right->up = over;
        }
        c->right = over;
    } else {
        over->right = c->left;
        if (c->left) {
            c->left->up = over;
        }
        c->left = over;
    }
    over->up = c;
    pull(over);
    pull(c);
}

void order_add(kv_node *parent, const kv_place *at, kv_node *child)
{
    child->parent = parent;
    child->left = child->right = NULL;
    if (at->below && !at->below->right) {
        child->up = at->below;
        at->below->right = child;
    } else if (at->above) {
        assert(!at->above->left);
        child->up = at->above;
        at->above->left = child;
    } else {
        assert(!parent->children);
        child->up = NULL;
        parent->children = child;
    }
    order_changed(child);
    while (child->up && child->up->priority < child->priority) {
        rotate_up(child);
    }
}

void order_remove(kv_node *child)
{
    while (child->left && child->right) {
        rotate_up(child->left->priority > child->right->priority ? child->left : child->right);
    }
    kv_node *up = child->up;
    replace(child, child->left ? child->left : child->right);
    if (up) {
        order_changed(up);
    }
}

static kv_node *leftmost(kv_node *c)
{
    while (c && c->left) {
        c = c->left;
    }
    return c;
}

kv_node *order_first(const kv_node *parent)
{
    return leftmost(parent->children);
}

kv_node *order_next(const kv_node *child)
{
    if (child->right) {
        return leftmost(child->right);
    }
    while (child->up && child->up->right == child) {
        child = child->up;
    }
    return child->up;
}

kv_node *walk_first(kv_node *within)
{
    while (within->children) {
        within = order_first(within);
    }
    return within;
}

kv_node *walk_next(const kv_node *node)
{
    kv_node *beside = order_next(node);
    return beside ? walk_first(beside) : node->parent;
}
