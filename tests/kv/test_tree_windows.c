/* tree with a kind that has a window of 64 positions beside full attention: what is usable, what a hold keeps, what
 * goes. */
#include <string.h>

#include "kv/tree_rig.h"

#define WINDOW 64

static void open_window(tree_rig *r, size_t n_pages)
{
    static const size_t windows[2] = {0, WINDOW};
    rig_open(r, 2, windows, n_pages, 0);
}

static void expect(const tree_rig *r, const int32_t *ids, size_t n, size_t usable, kv_miss miss)
{
    kv_match m = rig_match(r, 0, ids, n);
    assert_int_equal(m.n_usable, usable);
    assert_int_equal(m.miss, miss);
}

static void evict_windows(tree_rig *r, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t left = kv_tree_evictable(r->tree, 1), available = page_pool_available(r->pools[1]);
        assert_true(kv_tree_evict(r->tree, 1));
        assert_int_equal(kv_tree_evictable(r->tree, 1), left - 1);
        assert_int_equal(page_pool_available(r->pools[1]), available + 1);
        rig_check(r);
    }
}

/* Six pages; those of the window go from the first on, and full attention keeps all of its own. */
static void test_usable_needs_the_window_alone(void **state)
{
    tree_rig r;
    int32_t ids[200];
    open_window(&r, 20);
    rig_ids(ids, 0, 200, 0, 1);
    assert_int_equal(rig_enter(&r, 0, ids, 192, NULL), 192);
    expect(&r, ids, 200, 192, KV_MISS_ENDS);
    evict_windows(&r, 1); /* [0, 32) */
    expect(&r, ids, 192, 192, KV_MISS_NONE);
    expect(&r, ids, 96, 96, KV_MISS_NONE); /* needs [32, 96) */
    expect(&r, ids, 95, 0, KV_MISS_EVICTED);
    expect(&r, ids, 97, 97, KV_MISS_NONE);
    evict_windows(&r, 3); /* [32, 128) */
    expect(&r, ids, 192, 192, KV_MISS_NONE);
    expect(&r, ids, 191, 0, KV_MISS_EVICTED); /* needs position 127 */
    evict_windows(&r, 1);
    expect(&r, ids, 192, 0, KV_MISS_EVICTED);
    assert_int_equal(rig_match(&r, 0, ids, 192).n_known, 192);
    evict_windows(&r, 1);
    assert_false(kv_tree_evict(r.tree, 1));
    kv_tree_stats s = kv_tree_stats_read(r.tree);
    assert_int_equal(s.nodes, 6);
    assert_int_equal(s.pages[0], 6);
    assert_int_equal(s.pages[1], 0);
    rig_close(&r);
}

/* What was computed again is adopted; full attention's pages are still those of before. */
static void test_missing_pages_are_adopted(void **state)
{
    tree_rig r;
    int32_t ids[192];
    page_id before[6], after[6];
    open_window(&r, 20);
    rig_ids(ids, 0, 192, 0, 1);
    rig_enter(&r, 0, ids, 192, NULL);
    kv_tree_pages(r.tree, rig_match(&r, 0, ids, 192).node, 0, before, 6);
    evict_windows(&r, 4);
    assert_int_equal(rig_enter(&r, 0, ids, 192, NULL), 192);
    kv_tree_pages(r.tree, rig_match(&r, 0, ids, 192).node, 0, after, 6);
    assert_memory_equal(before, after, sizeof before);
    for (size_t n = 1; n <= 192; n++) {
        expect(&r, ids, n, n, KV_MISS_NONE);
    }
    assert_int_equal(kv_tree_stats_read(r.tree).pages[1], 6);
    rig_close(&r);
}

/* A hold keeps what a row of the held page sees, [97, 192) here, and no more. */
static void test_hold_keeps_its_window(void **state)
{
    tree_rig r;
    int32_t ids[192];
    open_window(&r, 20);
    rig_ids(ids, 0, 192, 0, 1);
    kv_node *hold = NULL;
    rig_enter(&r, 0, ids, 192, &hold);
    assert_int_equal(kv_tree_evictable(r.tree, 0), 0);
    assert_int_equal(kv_tree_evictable(r.tree, 1), 3);
    evict_windows(&r, 3);
    assert_false(kv_tree_evict(r.tree, 1));
    expect(&r, ids, 192, 192, KV_MISS_NONE);
    expect(&r, ids, 160, 160, KV_MISS_NONE);
    /* A second hold further up keeps what is left there. */
    kv_node *up = rig_match(&r, 0, ids, 160).node;
    kv_tree_hold(r.tree, up);
    kv_tree_release(r.tree, hold);
    assert_int_equal(kv_tree_evictable(r.tree, 1), 1); /* [160, 192) */
    kv_tree_release(r.tree, up);
    assert_int_equal(kv_tree_evictable(r.tree, 1), 3);
    rig_close(&r);
}

/* A sequence of 64 pages needs no more than its window of them and the one that it computes, though it holds its
 * path. */
static void test_a_long_sequence_in_a_small_pool(void **state)
{
    enum { N_PAGES = 64, FEW = WINDOW / KV_PAGE_TOKENS + 3 };
    tree_rig r;
    static int32_t ids[N_PAGES * KV_PAGE_TOKENS];
    page_pool *few;
    open_window(&r, N_PAGES);
    kv_tree_free(r.tree);
    assert_int_equal(page_pool_new(page_pool_page_bytes(r.pools[1]), FEW, &few, NULL), ST_OK);
    page_pool_free(r.pools[1]);
    r.pools[1] = r.cfg.kinds[1].pool = few;
    assert_int_equal(kv_tree_new(&r.cfg, &r.tree), ST_OK);
    rig_ids(ids, 0, N_PAGES * KV_PAGE_TOKENS, 0, 1);
    const kv_root_key key = rig_root(0);
    kv_node *hold = NULL;
    for (size_t i = 0; i < N_PAGES; i++) {
        page_id full[N_PAGES], window[N_PAGES];
        const kv_span span = {{full, window}};
        size_t n = (i + 1) * KV_PAGE_TOKENS;
        for (size_t j = 0; j < i; j++) {
            full[j] = window[j] = KV_NO_PAGE;
        }
        assert_true(page_pool_available(few) > 0 || kv_tree_evict(r.tree, 1));
        full[i] = rig_page(&r, 0, 0, ids, n, i);
        window[i] = rig_page(&r, 1, 0, ids, n, i);
        assert_int_equal(kv_tree_insert(r.tree, &key, ids, n, &span, &hold), n);
        page_pool_unref(r.pools[0], full[i]);
        page_pool_unref(r.pools[1], window[i]);
        expect(&r, ids, n, n, KV_MISS_NONE);
    }
    rig_check(&r);
    kv_tree_release(r.tree, hold);
    rig_close(&r);
}

static void test_windows_go_by_last_use(void **state)
{
    tree_rig r;
    int32_t a[128], b[128];
    open_window(&r, 20);
    rig_ids(a, 0, 128, 0, 1);
    rig_ids(b, 0, 128, 1000, 1);
    rig_enter(&r, 0, a, 128, NULL);
    rig_enter(&r, 0, b, 128, NULL);
    kv_node *n = rig_match(&r, 0, a, 128).node;
    kv_tree_hold(r.tree, n); /* uses [33, 128) of a: not its first page, which is the oldest now */
    kv_tree_release(r.tree, n);
    evict_windows(&r, 1);
    expect(&r, a, 95, 0, KV_MISS_EVICTED);
    expect(&r, a, 128, 128, KV_MISS_NONE);
    expect(&r, b, 32, 32, KV_MISS_NONE);
    evict_windows(&r, 4);
    expect(&r, a, 128, 128, KV_MISS_NONE);
    expect(&r, b, 128, 0, KV_MISS_EVICTED);
    /* Full pages have an order of their own, and take the window's along. */
    assert_true(kv_tree_evict(r.tree, 0));
    assert_int_equal(rig_match(&r, 0, b, 128).n_known, 96);
    assert_int_equal(kv_tree_stats_read(r.tree).pages[1], 3);
    rig_close(&r);
}

/* Of those that part inside a page whoever has its window counts, though another shares more. */
static void test_a_neighbour_with_its_window(void **state)
{
    tree_rig r;
    int32_t ids[32];
    open_window(&r, 40);
    for (int32_t shared = 10; shared <= 20; shared++) { /* 10, 11, … 20 ids of what is asked */
        rig_ids(ids, 0, (size_t)shared, 7, 0);
        rig_ids(ids, (size_t)shared, 32, 100 * (shared % 2), 1);
        assert_int_equal(rig_enter(&r, 0, ids, 32, NULL), 32);
    }
    rig_ids(ids, 0, 32, 7, 0);
    expect(&r, ids, 32, 20, KV_MISS_DIFFERS);
    for (size_t left = 10; left > 0; left--) { /* those entered first go first; put the last to the front */
        kv_node *n = rig_match(&r, 0, ids, 10).node;
        kv_tree_hold(r.tree, n);
        evict_windows(&r, kv_tree_evictable(r.tree, 1) > 1 ? 1 : 0);
        kv_match m = rig_match(&r, 0, ids, 32);
        assert_true(m.n_usable >= 10);
        assert_int_equal(m.n_known, 20);
        assert_int_equal(m.miss, m.n_usable == 20 ? KV_MISS_DIFFERS : KV_MISS_EVICTED);
        kv_tree_release(r.tree, n);
    }
    rig_close(&r);
}

/* A leaf stays if the longer neighbour has lost what the leaf still has. */
static void test_leaf_with_a_page_that_its_neighbour_lacks(void **state)
{
    tree_rig r;
    int32_t ids[64];
    open_window(&r, 20);
    rig_ids(ids, 0, 64, 0, 1);
    rig_enter(&r, 0, ids, 64, NULL);
    evict_windows(&r, 2);
    assert_int_equal(rig_enter(&r, 0, ids, 40, NULL), 40);
    assert_int_equal(kv_tree_stats_read(r.tree).leaves, 1);
    expect(&r, ids, 64, 40, KV_MISS_EVICTED);
    evict_windows(&r, 2); /* now it has no more than the other */
    assert_int_equal(kv_tree_stats_read(r.tree).leaves, 0);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_usable_needs_the_window_alone),
        cmocka_unit_test(test_missing_pages_are_adopted),
        cmocka_unit_test(test_hold_keeps_its_window),
        cmocka_unit_test(test_a_long_sequence_in_a_small_pool),
        cmocka_unit_test(test_windows_go_by_last_use),
        cmocka_unit_test(test_a_neighbour_with_its_window),
        cmocka_unit_test(test_leaf_with_a_page_that_its_neighbour_lacks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
