/* tree: full attention alone. Who matches what, leaves, holds, the order of eviction, roots, bookkeeping, failing
 * memory. */
#include <string.h>

#include "base/mem.h"
#include "base/philox.h"
#include "kv/tree_rig.h"

static kv_root_key key0;

static void enter(tree_rig *r, const int32_t *ids, size_t n)
{
    assert_int_equal(rig_enter(r, 0, ids, n, NULL), n);
    rig_check(r);
}

static void expect(const tree_rig *r, const int32_t *ids, size_t n, size_t usable, kv_miss miss)
{
    kv_match m = rig_match(r, 0, ids, n);
    assert_int_equal(m.n_usable, usable);
    assert_int_equal(m.n_known, usable);
    assert_int_equal(m.miss, miss);
}

/* Kept: 0 … 99. Asked: those with another id at `differs`, n of them. */
static void test_match_at_every_length(void **state)
{
    static const struct {
        size_t differs, n, most, usable, known;
        kv_miss miss;
    } cases[] = {
        {999, 100, 100, 100, 100, KV_MISS_NONE}, /* all */
        {999, 100, 99, 99, 100, KV_MISS_NONE},   /* one token is always computed */
        {999, 150, 149, 100, 100, KV_MISS_ENDS}, /* a leaf of 4 ends */
        {999, 96, 96, 96, 96, KV_MISS_NONE},     /* just the full ones */
        {999, 97, 97, 97, 97, KV_MISS_NONE},     /* into the leaf */
        {999, 1, 1, 1, 1, KV_MISS_NONE},         /* into the first page */
        {999, 50, 20, 20, 50, KV_MISS_NONE},
        {999, 50, 0, 0, 50, KV_MISS_NONE},
        {999, 0, 0, 0, 0, KV_MISS_NONE},
        {0, 100, 100, 0, 0, KV_MISS_NEW},
        {1, 100, 100, 1, 1, KV_MISS_DIFFERS},
        {31, 100, 100, 31, 31, KV_MISS_DIFFERS}, /* the last of a page */
        {32, 100, 100, 32, 32, KV_MISS_DIFFERS}, /* the first of the next */
        {50, 100, 100, 50, 50, KV_MISS_DIFFERS},
        {96, 100, 100, 96, 96, KV_MISS_DIFFERS}, /* the first of the leaf */
        {99, 120, 120, 99, 99, KV_MISS_DIFFERS},
        {50, 100, 40, 40, 50, KV_MISS_NONE},
    };
    tree_rig r;
    int32_t ids[200];
    rig_open_one(&r, 40);
    rig_ids(ids, 0, 100, 0, 1);
    enter(&r, ids, 100);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig_ids(ids, 0, 200, 0, 1);
        ids[cases[i].differs < 200 ? cases[i].differs : 199] = -5;
        kv_match m = rig_match_sound(&r, 0, ids, cases[i].n, cases[i].most);
        assert_int_equal(m.n_usable, cases[i].usable);
        assert_int_equal(m.n_known, cases[i].known);
        assert_int_equal(m.miss, cases[i].miss);
    }
    rig_close(&r);
}

static void test_nothing_there(void **state)
{
    tree_rig r;
    int32_t ids[100];
    rig_open_one(&r, 40);
    rig_ids(ids, 0, 100, 0, 1);
    expect(&r, ids, 100, 0, KV_MISS_NEW);
    kv_node *hold = NULL;
    assert_int_equal(rig_enter(&r, 0, ids, 0, &hold), 0);
    assert_null(hold);
    kv_tree_hold(r.tree, NULL);
    kv_tree_release(r.tree, NULL);
    kv_tree_forget(r.tree, NULL);
    assert_false(kv_tree_evict(r.tree, 0));
    assert_int_equal(kv_tree_stats_read(r.tree).roots, 0);
    rig_close(&r);
    kv_tree_free(NULL);
}

/* A page that another has already is not kept twice; what both share is one node. */
static void test_shared_prefix_is_kept_once(void **state)
{
    tree_rig r;
    int32_t a[100], b[100];
    rig_open_one(&r, 40);
    rig_ids(a, 0, 100, 0, 1);
    rig_ids(b, 0, 100, 0, 1);
    rig_ids(b, 70, 100, 1000, 1);
    enter(&r, a, 100);
    enter(&r, b, 100);
    kv_tree_stats s = kv_tree_stats_read(r.tree);
    assert_int_equal(s.nodes, 4 + 2); /* pages 2 and 3 differ */
    assert_int_equal(s.pages[0], 6);
    assert_int_equal(s.leaves, 2);
    assert_int_equal(page_pool_available(r.pools[0]), 40 - 6);
    assert_int_equal(s.bytes, s.overhead_bytes + 6 * page_pool_page_bytes(r.pools[0]));
    expect(&r, a, 100, 100, KV_MISS_NONE);
    expect(&r, b, 100, 100, KV_MISS_NONE);
    b[80] = 7;
    expect(&r, b, 100, 80, KV_MISS_DIFFERS);
    rig_close(&r);
}

/* Among many that part within one page, whoever shares most is found. */
static void test_longest_of_many_neighbours(void **state)
{
    enum { N = 28 };
    tree_rig r;
    int32_t ids[KV_PAGE_TOKENS];
    rig_open_one(&r, N);
    /* Number i: i times 5, then 9 and others: it shares i with the list of fives alone. */
    for (size_t i = 0; i < N; i++) {
        rig_ids(ids, 0, i, 5, 0);
        rig_ids(ids, i, KV_PAGE_TOKENS, i % 2 ? 9 : 3, 1);
        enter(&r, ids, KV_PAGE_TOKENS);
    }
    rig_ids(ids, 0, KV_PAGE_TOKENS, 5, 0);
    for (size_t n = 1; n <= KV_PAGE_TOKENS; n++) {
        size_t most = n < N - 1 ? n : N - 1;
        expect(&r, ids, n, most, n == most ? KV_MISS_NONE : KV_MISS_DIFFERS);
    }
    rig_close(&r);
}

static size_t shared(const int32_t *a, const int32_t *b, size_t n)
{
    size_t i = 0;
    while (i < n && a[i] == b[i]) {
        i++;
    }
    return i;
}

/* Thousands of children of one node, in no order, half of them gone again: found as by comparing with each. */
static void test_very_many_neighbours(void **state)
{
    enum { N = 3000, N_LEFT = N / 2 };
    static int32_t all[N][KV_PAGE_TOKENS];
    tree_rig r;
    rig_open_one(&r, N);
    for (size_t i = 0; i < N; i++) {
        uint32_t out[4], ctr[4] = {(uint32_t)i, 0, 0, 0}, key[2] = {1, 2};
        for (size_t j = 0; j < KV_PAGE_TOKENS; j++) {
            ctr[1] = (uint32_t)j;
            philox4x32_10(ctr, key, out);
            all[i][j] = (int32_t)(out[0] % 3);
        }
        assert_int_equal(rig_enter(&r, 0, all[i], KV_PAGE_TOKENS, NULL), KV_PAGE_TOKENS);
    }
    rig_check(&r);
    for (size_t i = 0; i < N - N_LEFT; i++) {
        assert_true(kv_tree_evict(r.tree, 0));
    }
    rig_check(&r);
    for (size_t i = 0; i < N; i += 10) {
        size_t most = 0;
        for (size_t j = N - N_LEFT; j < N; j++) { /* those entered last */
            size_t n = shared(all[i], all[j], KV_PAGE_TOKENS);
            most = n > most ? n : most;
        }
        assert_int_equal(rig_match(&r, 0, all[i], KV_PAGE_TOKENS).n_usable, most);
    }
    rig_close(&r);
}

static size_t leaves(const tree_rig *r)
{
    return kv_tree_stats_read(r->tree).leaves;
}

/* A conversation grows: its leaf goes when the page behind it is full, or a longer leaf is there. */
static void test_leaf_goes_when_covered(void **state)
{
    tree_rig r;
    int32_t ids[100], other[100];
    kv_node *hold = NULL;
    rig_open_one(&r, 40);
    rig_ids(ids, 0, 100, 0, 1);
    enter(&r, ids, 40);
    assert_int_equal(leaves(&r), 1);
    enter(&r, ids, 50); /* a longer leaf */
    assert_int_equal(leaves(&r), 1);
    enter(&r, ids, 45); /* the longer one stands for it */
    assert_int_equal(leaves(&r), 1);
    expect(&r, ids, 100, 50, KV_MISS_ENDS);
    memcpy(other, ids, sizeof ids);
    other[49] = 7;
    enter(&r, other, 50); /* no prefix of the other */
    assert_int_equal(leaves(&r), 2);
    enter(&r, ids, 64);
    assert_int_equal(leaves(&r), 1);
    assert_int_equal(page_pool_available(r.pools[0]), 40 - 3);
    /* One that is held stays until it is released. */
    assert_int_equal(rig_enter(&r, 0, ids, 70, &hold), 70);
    enter(&r, ids, 96);
    assert_int_equal(leaves(&r), 2);
    kv_tree_release(r.tree, hold);
    assert_int_equal(leaves(&r), 1);
    expect(&r, ids, 100, 96, KV_MISS_ENDS);
    /* Who goes on from his own leaf takes it along. */
    hold = NULL;
    assert_int_equal(rig_enter(&r, 0, ids, 97, &hold), 97);
    assert_int_equal(rig_enter(&r, 0, ids, 99, &hold), 99);
    assert_int_equal(leaves(&r), 2);
    assert_int_equal(rig_enter(&r, 0, ids, 98, &hold), 98); /* back: the longer one stands for it */
    assert_int_equal(leaves(&r), 2);
    rig_check(&r);
    kv_tree_release(r.tree, hold);
    rig_close(&r);
}

/* 1 before 2 before 3 by last use; each has two full pages and a leaf. */
static void three(tree_rig *r, int32_t ids[3][80])
{
    rig_open_one(r, 20);
    for (size_t i = 0; i < 3; i++) {
        rig_ids(ids[i], 0, 80, 100 * (int32_t)i, 1);
        enter(r, ids[i], 80);
    }
}

static void expect_left(const tree_rig *r, int32_t ids[3][80], size_t a, size_t b, size_t c)
{
    const size_t want[3] = {a, b, c};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(rig_match(r, 0, ids[i], 80).n_usable, want[i]);
    }
    rig_check(r);
}

static void evict(tree_rig *r, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t left = kv_tree_evictable(r->tree, 0), available = page_pool_available(r->pools[0]);
        assert_true(kv_tree_evict(r->tree, 0));
        assert_int_equal(kv_tree_evictable(r->tree, 0), left - 1);
        assert_int_equal(page_pool_available(r->pools[0]), available + 1);
        rig_check(r);
    }
}

static void test_eviction_oldest_first_leaves_first(void **state)
{
    tree_rig r;
    int32_t ids[3][80];
    three(&r, ids);
    assert_int_equal(kv_tree_evictable(r.tree, 0), 9);
    evict(&r, 1);
    expect_left(&r, ids, 64, 80, 80);
    evict(&r, 1);
    expect_left(&r, ids, 32, 80, 80);
    kv_tree_hold(r.tree, rig_match(&r, 0, ids[0], 80).node); /* a use makes it the newest */
    kv_node *n = rig_match(&r, 0, ids[0], 80).node;
    evict(&r, 4);
    expect_left(&r, ids, 32, 0, 64);
    kv_tree_release(r.tree, n);
    evict(&r, 2);
    expect_left(&r, ids, 32, 0, 0);
    evict(&r, 1);
    expect_left(&r, ids, 0, 0, 0);
    assert_false(kv_tree_evict(r.tree, 0));
    kv_tree_stats s = kv_tree_stats_read(r.tree);
    assert_int_equal(s.nodes + s.roots + s.pages[0], 0);
    assert_int_equal(s.evicted_pages, 9);
    rig_close(&r);
}

static void test_held_paths_stay(void **state)
{
    tree_rig r;
    int32_t ids[3][80];
    three(&r, ids);
    kv_node *a = rig_match(&r, 0, ids[0], 40).node; /* its second page; the leaf may go */
    kv_tree_hold(r.tree, a);
    kv_tree_hold(r.tree, a);
    kv_node *c = rig_match(&r, 0, ids[2], 80).node;
    kv_tree_hold(r.tree, c);
    assert_int_equal(kv_tree_evictable(r.tree, 0), 4);
    assert_int_equal(kv_tree_stats_read(r.tree).held_nodes, 5);
    kv_tree_forget(r.tree, NULL);
    expect_left(&r, ids, 64, 0, 80);
    assert_false(kv_tree_evict(r.tree, 0));
    kv_tree_release(r.tree, a);
    assert_int_equal(kv_tree_evictable(r.tree, 0), 0);
    kv_tree_release(r.tree, a);
    assert_int_equal(kv_tree_evictable(r.tree, 0), 2);
    kv_tree_release(r.tree, c);
    evict(&r, 5);
    rig_close(&r);
}

/* A page to which somebody else has a reference is given up, but the next is taken to free one. */
static void test_evict_goes_on_to_a_page_that_gets_free(void **state)
{
    tree_rig r;
    int32_t ids[3][80];
    page_id page;
    three(&r, ids);
    kv_match m = rig_match(&r, 0, ids[0], 64);
    kv_tree_pages(r.tree, m.node, 0, &page, 1);
    page_pool_ref(r.pools[0], page);
    evict(&r, 2);
    size_t available = page_pool_available(r.pools[0]);
    assert_true(kv_tree_evict(r.tree, 0)); /* the first page of 0, and the leaf of 1 */
    assert_int_equal(page_pool_available(r.pools[0]), available + 1);
    expect_left(&r, ids, 0, 64, 80);
    page_pool_unref(r.pools[0], page);
    rig_close(&r);
}

static void test_roots_share_nothing(void **state)
{
    tree_rig r;
    int32_t ids[80];
    const kv_root_key one = rig_root(1);
    rig_open_one(&r, 20);
    rig_ids(ids, 0, 80, 0, 1);
    assert_int_equal(rig_enter(&r, 1, ids, 80, NULL), 80);
    expect(&r, ids, 80, 0, KV_MISS_NEW);
    enter(&r, ids, 80);
    assert_int_equal(kv_tree_stats_read(r.tree).pages[0], 6);
    assert_int_equal(kv_tree_stats_read(r.tree).roots, 2);
    assert_int_equal(rig_match(&r, 1, ids, 80).n_usable, 80); /* with its own rows: rig_match looks */
    kv_tree_forget(r.tree, &one);
    assert_int_equal(rig_match(&r, 1, ids, 80).n_usable, 0);
    assert_int_equal(kv_tree_stats_read(r.tree).roots, 1);
    expect(&r, ids, 80, 80, KV_MISS_NONE);
    kv_tree_forget(r.tree, &one);
    kv_tree_forget(r.tree, &key0);
    assert_int_equal(page_pool_available(r.pools[0]), 20);
    rig_close(&r);
}

/* A sequence's hold goes along with it; where it was is free to go only when all below is. */
static void test_hold_moves_with_insert(void **state)
{
    tree_rig r;
    int32_t ids[200];
    kv_node *hold = NULL;
    rig_open_one(&r, 40);
    rig_ids(ids, 0, 200, 0, 1);
    for (size_t n = 32; n <= 192; n += 32) {
        assert_int_equal(rig_enter(&r, 0, ids, n, &hold), n);
        assert_non_null(hold);
        assert_int_equal(kv_tree_evictable(r.tree, 0), 0);
        assert_int_equal(kv_tree_stats_read(r.tree).held_nodes, n / 32);
        rig_check(&r);
    }
    kv_tree_release(r.tree, hold);
    assert_int_equal(kv_tree_evictable(r.tree, 0), 6);
    rig_close(&r);
}

/* The pages that the tree takes cannot be written any more, and a path ends where one is missing. */
static void test_missing_page_ends_the_path(void **state)
{
    tree_rig r;
    int32_t ids[100];
    page_id pages[4];
    const kv_span span = {{pages}};
    rig_open_one(&r, 40);
    rig_ids(ids, 0, 100, 0, 1);
    for (size_t i = 0; i < 4; i++) {
        pages[i] = rig_page(&r, 0, 0, ids, 100, i);
        assert_true(page_pool_may_write(r.pools[0], pages[i]));
    }
    page_id third = pages[2];
    pages[2] = KV_NO_PAGE;
    assert_int_equal(kv_tree_insert(r.tree, &key0, ids, 100, &span, NULL), 64);
    pages[2] = third;
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(page_pool_may_write(r.pools[0], pages[i]), i >= 2);
        page_pool_unref(r.pools[0], pages[i]);
    }
    expect(&r, ids, 100, 64, KV_MISS_ENDS);
    const kv_span none = {{NULL}};
    kv_node *hold = NULL;
    assert_int_equal(kv_tree_insert(r.tree, &key0, ids, 64, &none, &hold), 64); /* nothing is needed */
    kv_tree_release(r.tree, hold);
    ids[0] = -1;
    hold = NULL;
    assert_int_equal(kv_tree_insert(r.tree, &key0, ids, 64, &none, &hold), 0);
    assert_null(hold);
    rig_close(&r);
}

static void test_pages_of_a_path(void **state)
{
    tree_rig r;
    int32_t ids[100];
    page_id out[6];
    rig_open_one(&r, 40);
    rig_ids(ids, 0, 100, 0, 1);
    enter(&r, ids, 100);
    kv_node *n = rig_match(&r, 0, ids, 100).node;
    kv_tree_pages(r.tree, n, 0, out, 6);
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(out[i] != KV_NO_PAGE, i < 4);
    }
    out[2] = 77;
    kv_tree_pages(r.tree, n, 0, out, 2);
    assert_true(rig_page_is(&r, 0, out[1], 0, ids, 100, 1));
    assert_int_equal(out[2], 77);
    kv_tree_pages(r.tree, NULL, 0, out, 1);
    assert_int_equal(out[0], KV_NO_PAGE);
    assert_null(kv_tree_snapshot(n));
    rig_close(&r);
}

/* Bookkeeping has a limit of its own: old nodes go for new ones, held ones end the insert. */
static void test_overhead_is_bounded(void **state)
{
    tree_rig r;
    int32_t ids[32 * 64];
    kv_node *hold = NULL;
    rig_open_one(&r, 128);
    kv_tree_free(r.tree);
    r.cfg.max_overhead_bytes = 8192;
    assert_int_equal(kv_tree_new(&r.cfg, &r.tree), ST_OK);
    for (int32_t i = 0; i < 100; i++) {
        rig_ids(ids, 0, 96, 1000 * i, 1);
        enter(&r, ids, 96);
        expect(&r, ids, 96, 96, KV_MISS_NONE);
        assert_true(kv_tree_stats_read(r.tree).overhead_bytes <= 8192);
    }
    assert_true(kv_tree_stats_read(r.tree).evicted_pages > 200);
    rig_ids(ids, 0, 32 * 64, -1, -1);
    size_t done = rig_enter(&r, 0, ids, 32 * 64, &hold);
    assert_true(done > 0 && done < 32 * 64 && done % 32 == 0);
    assert_true(kv_tree_stats_read(r.tree).overhead_bytes <= 8192);
    assert_int_equal(rig_match(&r, 0, ids, 32 * 64).n_usable, done);
    kv_tree_release(r.tree, hold);
    rig_close(&r);
}

/* 8 KiB of nodes of 240 bytes are some 30; a node for 32 tokens must not grow unseen. */
static void test_node_size(void **state)
{
    tree_rig r;
    int32_t ids[32 * 100];
    rig_open_one(&r, 128);
    rig_ids(ids, 0, 32, 0, 1);
    enter(&r, ids, 32);
    size_t before = kv_tree_stats_read(r.tree).overhead_bytes;
    rig_ids(ids, 32, 32 * 100, 7, 1);
    enter(&r, ids, 32 * 100);
    assert_true(kv_tree_stats_read(r.tree).overhead_bytes - before <= 99 * 256);
    rig_close(&r);
}

static void test_failing_memory(void **state)
{
    tree_rig r;
    int32_t ids[100];
    rig_open_one(&r, 40);
    kv_tree *none = NULL;
    mem_fail_at(1, false);
    assert_int_equal(kv_tree_new(&r.cfg, &none), ST_NOMEM);
    assert_null(none);
    mem_fail_at(0, false);
    /* Root, three pages, leaf. */
    for (uint64_t at = 1; at <= 6; at++) {
        kv_node *hold = NULL;
        rig_ids(ids, 0, 100, 1000 * (int32_t)at, 1);
        mem_fail_at(at, false);
        size_t done = rig_enter(&r, (unsigned)at, ids, 100, &hold);
        mem_fail_at(0, false);
        assert_int_equal(done, at == 1 ? 0 : at == 6 ? 100 : 32 * (at - 2));
        assert_int_equal(hold == NULL, done == 0);
        assert_int_equal(rig_match(&r, (unsigned)at, ids, 100).n_usable, done);
        rig_check(&r);
        kv_tree_release(r.tree, hold);
    }
    assert_int_equal(kv_tree_stats_read(r.tree).roots, 4);
    rig_close(&r);
}

static void test_refused(void **state)
{
    kv_tree *t = NULL;
    kv_tree_config cfg = {.n_kinds = KV_TREE_MAX_KINDS + 1};
    assert_int_equal(kv_tree_new(&cfg, &t), ST_INVALID_FIELD);
    cfg.n_kinds = 0;
    assert_int_equal(kv_tree_new(&cfg, &t), ST_INVALID_FIELD);
    assert_null(t);
}

static void test_names(void **state)
{
    static const char *const names[] = {"none", "new", "ends", "differs", "evicted", "no_snapshot"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_string_equal(kv_miss_name((kv_miss)i), names[i]);
    }
}

/* 2^20 tokens: 32,768 nodes one below the other. Nothing may go that deep on the stack, or look twice at each. */
static void test_a_very_long_path(void **state)
{
    enum { N_PAGES = 1 << 15, N = N_PAGES * KV_PAGE_TOKENS };
    page_pool *pool;
    kv_tree *t;
    assert_int_equal(page_pool_new(64, N_PAGES, &pool, NULL), ST_OK);
    const kv_tree_config cfg = {.kinds = {{pool, 0}}, .n_kinds = 1};
    assert_int_equal(kv_tree_new(&cfg, &t), ST_OK);
    int32_t *ids = mem_alloc_array(N, sizeof *ids);
    page_id *pages = mem_alloc_array(N_PAGES, sizeof *pages);
    assert_true(ids && pages);
    rig_ids(ids, 0, N, 0, 1);
    for (size_t i = 0; i < N_PAGES; i++) {
        assert_int_equal(page_pool_take(pool, &pages[i]), ST_OK);
    }
    const kv_span span = {{pages}};
    kv_node *hold = NULL;
    assert_int_equal(kv_tree_insert(t, &key0, ids, N, &span, &hold), N);
    for (size_t i = 0; i < N_PAGES; i++) {
        page_pool_unref(pool, pages[i]);
    }
    kv_match m = kv_tree_match(t, &key0, ids, N, N);
    assert_int_equal(m.n_usable, N);
    assert_ptr_equal(m.node, hold);
    kv_tree_release(t, hold);
    assert_true(kv_tree_check(t, NULL));
    assert_int_equal(kv_tree_evictable(t, 0), N_PAGES);
    assert_true(kv_tree_evict(t, 0));
    assert_int_equal(kv_tree_match(t, &key0, ids, N, N).n_usable, N - KV_PAGE_TOKENS);
    kv_tree_forget(t, &key0);
    assert_int_equal(page_pool_available(pool), N_PAGES);
    kv_tree_free(t);
    page_pool_free(pool);
    mem_free(ids);
    mem_free(pages);
}

int main(void)
{
    key0 = rig_root(0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_match_at_every_length),
        cmocka_unit_test(test_nothing_there),
        cmocka_unit_test(test_shared_prefix_is_kept_once),
        cmocka_unit_test(test_longest_of_many_neighbours),
        cmocka_unit_test(test_very_many_neighbours),
        cmocka_unit_test(test_leaf_goes_when_covered),
        cmocka_unit_test(test_eviction_oldest_first_leaves_first),
        cmocka_unit_test(test_held_paths_stay),
        cmocka_unit_test(test_evict_goes_on_to_a_page_that_gets_free),
        cmocka_unit_test(test_roots_share_nothing),
        cmocka_unit_test(test_hold_moves_with_insert),
        cmocka_unit_test(test_missing_page_ends_the_path),
        cmocka_unit_test(test_pages_of_a_path),
        cmocka_unit_test(test_overhead_is_bounded),
        cmocka_unit_test(test_node_size),
        cmocka_unit_test(test_failing_memory),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_a_very_long_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
