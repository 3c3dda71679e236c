/* tree against tree_model: thousands of random operations, what is found, kept and evicted being the same at each. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/philox.h"
#include "kv/tree_model.h"
#include "kv/tree_rig.h"

#define N_PAGES   60
#define N_HOLDS   6
#define N_ROOTS   2
#define SNAPSHOTS 7

typedef struct play {
    tree_rig rig;
    tree_model model;
    uint32_t seed, draws;
    struct {
        kv_node *node;
        model_node *model;
    } held[N_HOLDS];
    size_t n_evicted, n_hits, n_leaves_gone,
        n_failures; /* that the random way came by what it is there for */
} play;

static play p;               /* large */
static size_t n_leaves_gone; /* of all */

static uint32_t draw(uint32_t below)
{
    uint32_t out[4], ctr[4] = {p.draws++, 0, 0, 0}, key[2] = {p.seed, 9};
    philox4x32_10(ctr, key, out);
    return out[0] % below;
}

/* Goes on from somewhere inside a sequence that is there, or begins anew; few different ids, so that many share. */
static size_t draw_ids(unsigned *root, int32_t *ids)
{
    size_t n = 0;
    *root = draw(N_ROOTS);
    model_node *from = &p.model.nodes[draw(MODEL_NODES / 8)];
    if (from->live && draw(8) > 0) {
        n = draw(2) ? from->n : draw((uint32_t)from->n + 1);
        *root = draw(10) ? from->root : *root;
        memcpy(ids, from->ids, n * sizeof *ids);
    }
    size_t end = n + draw(70);
    end = end > MODEL_IDS ? MODEL_IDS : end;
    int32_t run = (int32_t)draw(3);
    for (; n < end; n++) {
        run = draw(12) ? run : (int32_t)draw(3);
        ids[n] = run;
    }
    return end;
}

static void check_match(void)
{
    static const kv_miss ends[] = {KV_MISS_ENDS, KV_MISS_DIFFERS};
    unsigned root;
    int32_t ids[MODEL_IDS];
    size_t n = draw_ids(&root, ids), most = draw(3) ? n : draw((uint32_t)n + 1);
    kv_match m = rig_match_sound(&p.rig, root, ids, n, most);
    model_match want = model_find(&p.model, root, ids, n, most);
    assert_int_equal(m.n_usable, want.n_usable);
    assert_int_equal(m.n_known, want.n_known);
    kv_miss miss = want.n_usable == most             ? KV_MISS_NONE
                   : want.n_computed > want.n_usable ? KV_MISS_SNAPSHOT
                   : want.n_known > want.n_usable    ? KV_MISS_EVICTED
                   : want.n_known == 0               ? KV_MISS_NEW
                                                     : ends[want.differs];
    assert_int_equal(m.miss, miss);
    p.n_hits += m.n_usable > 0;
    size_t slot = draw(N_HOLDS);
    if (m.node && !p.held[slot].node && draw(4) == 0) {
        kv_tree_hold(p.rig.tree, m.node);
        p.held[slot].node = m.node;
        for (size_t i = 0; i < MODEL_NODES;
             i++) { /* the model's node that is meant: by its page, or by its end */
            model_node *a = &p.model.nodes[i];
            page_id page = KV_NO_PAGE;
            size_t index = (m.n_usable - 1) / KV_PAGE_TOKENS;
            page_id pages[MODEL_IDS / KV_PAGE_TOKENS];
            if (p.rig.cfg.n_kinds > 0) {
                kv_tree_pages(p.rig.tree, m.node, 0, pages, index + 1);
                page = pages[index];
            }
            bool same_end = a->n == m.n_usable && memcmp(a->ids, ids, a->n * sizeof *ids) == 0;
            if (a->live && a->root == root && (page != KV_NO_PAGE ? a->pages[0] == page : same_end)) {
                p.held[slot].model = a;
                model_hold(&p.model, a);
                return;
            }
        }
        fail_msg("the node of a match is not the model's");
    }
}

static void release(size_t slot)
{
    if (p.held[slot].node) {
        kv_tree_release(p.rig.tree, p.held[slot].node);
        model_release(&p.model, p.held[slot].model);
        p.held[slot].node = NULL;
        p.held[slot].model = NULL;
    }
}

static bool evict(size_t kind)
{
    model_node *victim = model_victim(&p.model, kind);
    page_id page = victim ? victim->pages[kind] : KV_NO_PAGE;
    bool done = kv_tree_evict(p.rig.tree, kind);
    assert_int_equal(done, victim != NULL);
    if (victim) {
        assert_int_equal(page_pool_refs(p.rig.pools[kind], page), 0);
        model_evicted(&p.model, victim, kind);
        p.n_evicted++;
    }
    return done;
}

static void make_room(void)
{
    for (size_t k = 0; k < p.rig.cfg.n_kinds; k++) {
        while (page_pool_available(p.rig.pools[k]) < MODEL_IDS / KV_PAGE_TOKENS + 1) {
            if (!evict(k)) {
                release(draw(N_HOLDS));
            }
        }
    }
}

/* What a sequence of a model with windows would still have: pages from some position on. */
static void compute(unsigned root, const int32_t *ids, size_t n, page_id pages[KV_TREE_MAX_KINDS][8],
                    kv_span *span)
{
    for (size_t k = 0; k < p.rig.cfg.n_kinds; k++) {
        size_t n_pages = (n + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
        size_t from = p.rig.cfg.kinds[k].window > 0 && draw(2) ? draw((uint32_t)n_pages + 1) : 0;
        span->pages[k] = pages[k];
        for (size_t i = 0; i < n_pages; i++) {
            pages[k][i] = i < from ? KV_NO_PAGE : rig_page(&p.rig, k, root, ids, n, i);
        }
    }
}

static void put_snapshot(unsigned root, const int32_t *ids, size_t n, bool must_be_there)
{
    const kv_root_key key = rig_root(root);
    bool spaced = n % KV_PAGE_TOKENS == 0 && draw(2);
    void *state = rig_state(&p.rig, root, ids, n);
    uintptr_t me = (uintptr_t)state;
    model_node *at = n > 0 ? model_node_at(&p.model, root, ids, n) : NULL;
    assert_true(at || !must_be_there);
    p.rig.n_dropped = 0;
    mem_fail_at(draw(10) == 0 ? 1 : 0, false);
    bool kept = kv_tree_put_snapshot(p.rig.tree, &key, ids, n, state, spaced);
    mem_fail_at(0, false);
    bool was_there = at && at->snapshot;
    for (size_t i = 0; i < p.rig.n_dropped; i++) {
        bool turn = false, spaced_left = false;
        model_node *gone = NULL;
        for (size_t j = 0; j < MODEL_NODES && p.rig.dropped[i] != me; j++) {
            model_node *a = &p.model.nodes[j];
            spaced_left = spaced_left || (a->live && a->snapshot && a->spaced && a->holds == 0);
            if (a->live && (uintptr_t)a->snapshot == p.rig.dropped[i]) {
                gone = a;
                turn = !a->spaced;
            }
        }
        assert_int_equal(gone == NULL, p.rig.dropped[i] == me);
        if (gone) {
            assert_int_equal(gone->holds, 0);
            assert_false(turn && (spaced_left || spaced));
            model_snapshot_gone(&p.model, gone);
        }
    }
    model_snapshot_put(&p.model, at, state, spaced, kept);
    assert_true(kept || !was_there);
    assert_true(kv_tree_stats_read(p.rig.tree).snapshots <= SNAPSHOTS);
}

static void enter(void)
{
    unsigned root;
    int32_t ids[MODEL_IDS];
    page_id pages[KV_TREE_MAX_KINDS][8];
    kv_span span = {{NULL}};
    size_t slot = draw(N_HOLDS), n_pages;
    bool hold = draw(2), fails = draw(12) == 0;
    make_room();
    size_t n = draw_ids(&root, ids), done;
    const kv_root_key key = rig_root(root);
    n_pages = (n + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
    compute(root, ids, n, pages, &span);
    size_t leaves = kv_tree_stats_read(p.rig.tree).leaves;
    mem_fail_at(fails ? 1 + draw(4) : 0, draw(2));
    done = kv_tree_insert(p.rig.tree, &key, ids, n, &span, hold ? &p.held[slot].node : NULL);
    mem_fail_at(0, false);
    assert_true(done == n || (fails && done % KV_PAGE_TOKENS == 0));
    p.n_failures += done < n;
    model_node *end =
        model_insert(&p.model, root, ids, n, done, &span, hold ? p.held[slot].model : NULL, hold);
    if (hold) {
        p.held[slot].model = end;
        assert_int_equal(p.held[slot].node == NULL, end == NULL);
    }
    p.n_leaves_gone += kv_tree_stats_read(p.rig.tree).leaves < leaves;
    for (size_t k = 0; k < p.rig.cfg.n_kinds; k++) {
        for (size_t i = 0; i < n_pages; i++) {
            if (pages[k][i] != KV_NO_PAGE) {
                page_pool_unref(p.rig.pools[k], pages[k][i]);
            }
        }
    }
    if (p.rig.cfg.snapshot_bytes > 0 && done > 0 && draw(3) > 0) {
        put_snapshot(root, ids, done, hold);
    }
}

static void compare(void)
{
    kv_tree_stats s = kv_tree_stats_read(p.rig.tree);
    size_t nodes = 0, held = 0, leaves = 0, snapshots = 0, pages[KV_TREE_MAX_KINDS] = {0};
    for (size_t i = 0; i < MODEL_NODES; i++) {
        const model_node *a = &p.model.nodes[i];
        if (!a->live) {
            continue;
        }
        nodes++;
        leaves += a->n % KV_PAGE_TOKENS != 0;
        held += model_held(&p.model, a);
        snapshots += a->snapshot != NULL;
        for (size_t k = 0; k < p.rig.cfg.n_kinds; k++) {
            pages[k] += a->pages[k] != KV_NO_PAGE;
        }
    }
    assert_int_equal(s.nodes, nodes);
    assert_int_equal(s.leaves, leaves);
    assert_int_equal(s.held_nodes, held);
    assert_int_equal(s.snapshots, snapshots);
    for (size_t k = 0; k < p.rig.cfg.n_kinds; k++) {
        assert_int_equal(s.pages[k], pages[k]);
        assert_int_equal(s.evictable[k], model_evictable(&p.model, k));
        assert_int_equal(page_pool_total(p.rig.pools[k]) - page_pool_available(p.rig.pools[k]), pages[k]);
    }
    rig_check(&p.rig);
}

static void step(void)
{
    unsigned root;
    int32_t ids[MODEL_IDS];
    uint32_t what = draw(100);
    if (what < 30) {
        enter();
    } else if (what < 75) {
        check_match();
    } else if (what < 85) {
        release(draw(N_HOLDS));
    } else if (what < 98 && p.rig.cfg.n_kinds > 0) {
        evict(draw((uint32_t)p.rig.cfg.n_kinds));
    } else if (what < 99 && p.rig.cfg.snapshot_bytes > 0) {
        size_t n = draw_ids(&root, ids);
        put_snapshot(root, ids, n, false);
    } else if (what == 99 && draw(4) == 0) {
        const kv_root_key key = rig_root(root = draw(N_ROOTS));
        kv_tree_forget(p.rig.tree, &key);
        model_forget(&p.model, root);
    }
}

typedef struct shape {
    const char *name;
    size_t n_kinds, windows[KV_TREE_MAX_KINDS], snapshots;
} shape;

static void run(const shape *s, uint32_t seed, size_t steps)
{
    p = (play){.seed = seed};
    rig_open(&p.rig, s->n_kinds, s->windows, N_PAGES, s->snapshots);
    p.model.cfg = p.rig.cfg;
    for (size_t i = 0; i < steps; i++) {
        step();
        compare();
    }
    for (size_t i = 0; i < N_HOLDS; i++) {
        release(i);
    }
    compare();
    assert_true(p.n_hits > steps / 50);
    assert_true(p.n_evicted > steps / 50 || s->n_kinds == 0);
    assert_true(p.n_failures > 0);
    n_leaves_gone += p.n_leaves_gone;
    rig_close(&p.rig);
}

static void test_random(void **state)
{
    static const shape shapes[] = {
        {"full", 1, {0}, 0},
        {"full and a window of 40", 2, {0, 40}, 0},
        {"windows of 33 and 66, full", 3, {33, 66, 0}, 0},
        {"window of 1, full, full", 3, {1, 0, 0}, 0},
        {"window of 64 alone", 1, {64}, 0},
        {"full, recurrent", 1, {0}, SNAPSHOTS},
        {"full, window of 48, recurrent", 2, {0, 48}, SNAPSHOTS},
        {"recurrent alone", 0, {0}, SNAPSHOTS},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        for (uint32_t seed = 1; seed <= 2; seed++) {
            printf("# %s, seed %u\n", shapes[i].name, seed);
            run(&shapes[i], seed, 1500);
        }
    }
    assert_true(n_leaves_gone > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
