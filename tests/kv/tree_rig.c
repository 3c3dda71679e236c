#include "kv/tree_rig.h"

#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

#define ROW_BYTES sizeof(uint64_t)

static void drop_state(void *ctx, void *state)
{
    tree_rig *r = ctx;
    assert_true(r->snapshots_out > 0);
    r->snapshots_out--;
    r->dropped[r->n_dropped++ % (sizeof r->dropped / sizeof *r->dropped)] = (uintptr_t)state;
    mem_free(state);
}

void rig_open(tree_rig *r, size_t n_kinds, const size_t *windows, size_t n_pages, size_t snapshots)
{
    *r = (tree_rig){.cfg = {.n_kinds = n_kinds, .drop_snapshot = drop_state, .ctx = r}};
    r->cfg.snapshot_bytes = snapshots > 0 ? 64 : 0;
    r->cfg.max_snapshots = snapshots;
    for (size_t k = 0; k < n_kinds; k++) {
        assert_int_equal(page_pool_new(ROW_BYTES * KV_PAGE_TOKENS, n_pages, &r->pools[k], NULL), ST_OK);
        r->cfg.kinds[k] = (kv_tree_kind){r->pools[k], windows[k]};
    }
    assert_int_equal(kv_tree_new(&r->cfg, &r->tree), ST_OK);
}

void rig_open_one(tree_rig *r, size_t n_pages)
{
    const size_t full = 0;
    rig_open(r, 1, &full, n_pages, 0);
}

void rig_check(const tree_rig *r)
{
    const char *why = NULL;
    if (!kv_tree_check(r->tree, &why)) {
        fail_msg("kv_tree_check: %s", why);
    }
}

void rig_close(tree_rig *r)
{
    rig_check(r);
    kv_tree_free(r->tree);
    for (size_t k = 0; k < r->cfg.n_kinds; k++) {
        assert_int_equal(page_pool_available(r->pools[k]), page_pool_total(r->pools[k]));
        page_pool_free(r->pools[k]);
    }
    assert_int_equal(r->snapshots_out, 0);
}

kv_root_key rig_root(unsigned which)
{
    kv_root_key key;
    memset(key.bytes, 7, sizeof key.bytes);
    key.bytes[sizeof key.bytes - 1] = (uint8_t)which; /* what differs comes last */
    return key;
}

void rig_ids(int32_t *ids, size_t at, size_t n, int32_t from, int32_t step)
{
    for (size_t i = at; i < n; i++) {
        ids[i] = from + step * (int32_t)(i - at);
    }
}

/* Chained, so that a row depends on all ids before it; not the hash that the tree uses for anything. */
static uint64_t chain(uint64_t before, int32_t id)
{
    uint64_t both[2] = {before, (uint64_t)id};
    return hash64(both, sizeof both);
}

uint64_t rig_state_begin(unsigned root)
{
    return root * 8u + 7;
}

uint64_t rig_state_step(uint64_t state, int32_t id)
{
    return chain(state, id);
}

static uint64_t state_after(unsigned root, const int32_t *ids, size_t n)
{
    uint64_t value = rig_state_begin(root);
    for (size_t i = 0; i < n; i++) {
        value = rig_state_step(value, ids[i]);
    }
    return value;
}

void *rig_state(tree_rig *r, unsigned root, const int32_t *ids, size_t n)
{
    uint64_t *state = mem_alloc(sizeof *state);
    assert_non_null(state);
    *state = state_after(root, ids, n);
    r->snapshots_out++;
    return state;
}

bool rig_state_is(const void *state, unsigned root, const int32_t *ids, size_t n)
{
    return state && *(const uint64_t *)state == state_after(root, ids, n);
}

page_id rig_page(tree_rig *r, size_t kind, unsigned root, const int32_t *ids, size_t n, size_t index)
{
    page_id page;
    assert_int_equal(page_pool_take(r->pools[kind], &page), ST_OK);
    uint64_t *rows = page_pool_addr(r->pools[kind], page), value = root * 8u + kind;
    size_t from = index * KV_PAGE_TOKENS;
    for (size_t i = 0; i < n && i < from + KV_PAGE_TOKENS; i++) {
        value = chain(value, ids[i]);
        if (i >= from) {
            rows[i - from] = value;
        }
    }
    return page;
}

bool rig_page_is(const tree_rig *r, size_t kind, page_id page, unsigned root, const int32_t *ids, size_t n,
                 size_t index)
{
    const uint64_t *rows = page_pool_addr(r->pools[kind], page);
    uint64_t value = root * 8u + kind;
    size_t from = index * KV_PAGE_TOKENS;
    for (size_t i = 0; i < n && i < from + KV_PAGE_TOKENS; i++) {
        value = chain(value, ids[i]);
        if (i >= from && rows[i - from] != value) {
            return false;
        }
    }
    return page_pool_refs(r->pools[kind], page) > 0;
}

size_t rig_enter(tree_rig *r, unsigned root, const int32_t *ids, size_t n, kv_node **hold)
{
    static page_id pages[KV_TREE_MAX_KINDS][RIG_MAX_PAGES];
    const kv_root_key key = rig_root(root);
    kv_span span = {{NULL}};
    size_t n_pages = (n + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
    assert_true(n_pages <= RIG_MAX_PAGES);
    for (size_t k = 0; k < r->cfg.n_kinds; k++) {
        span.pages[k] = pages[k];
        for (size_t i = 0; i < n_pages; i++) {
            pages[k][i] = rig_page(r, k, root, ids, n, i);
        }
    }
    size_t done = kv_tree_insert(r->tree, &key, ids, n, &span, hold);
    for (size_t k = 0; k < r->cfg.n_kinds; k++) {
        for (size_t i = 0; i < n_pages; i++) {
            page_pool_unref(r->pools[k], pages[k][i]);
        }
    }
    return done;
}

kv_match rig_match_sound(const tree_rig *r, unsigned root, const int32_t *ids, size_t n, size_t most)
{
    const kv_root_key key = rig_root(root);
    page_id pages[RIG_MAX_PAGES];
    kv_match m = kv_tree_match(r->tree, &key, ids, n, most);
    size_t n_pages = (m.n_usable + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
    assert_true(m.n_usable <= n && m.n_usable <= most);
    assert_true(m.n_usable <= m.n_known && m.n_known <= n);
    assert_int_equal(m.node == NULL, m.n_usable == 0);
    assert_int_equal(m.miss == KV_MISS_NONE, m.n_usable == (n < most ? n : most));
    for (size_t k = 0; k < r->cfg.n_kinds; k++) {
        size_t window = r->cfg.kinds[k].window;
        size_t first = window == 0 || window > m.n_usable ? 0 : (m.n_usable - window) / KV_PAGE_TOKENS;
        kv_tree_pages(r->tree, m.node, k, pages, n_pages);
        for (size_t i = first; i < n_pages; i++) {
            assert_int_not_equal(pages[i], KV_NO_PAGE);
            assert_true(rig_page_is(r, k, pages[i], root, ids, m.n_usable, i));
        }
    }
    if (r->cfg.snapshot_bytes > 0 && m.node) {
        assert_true(rig_state_is(kv_tree_snapshot(m.node), root, ids, m.n_usable));
    }
    return m;
}

kv_match rig_match(const tree_rig *r, unsigned root, const int32_t *ids, size_t n)
{
    return rig_match_sound(r, root, ids, n, n);
}
