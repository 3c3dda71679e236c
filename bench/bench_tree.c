/*
 * bench_tree: what the prefix tree costs a token and a node.
 *
 *     bench_tree [NODES [PATH_PAGES [ROUNDS]]]
 *
 * 1,000,000 nodes in paths of 312 pages (10k tokens) behind a system prompt of 2,010 tokens that ends inside a page, so
 * that all paths part among the children of one node; 5 rounds, the best of each counts. Pages are of 64 bytes: the
 * tree never looks into one (build it without debug, which does).
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "kv/tree.h"

#define SYSTEM_TOKENS 2010

typedef struct bench {
    kv_tree *tree;
    page_pool *pool;
    kv_root_key key;
    size_t n_paths, n_tokens; /* of each path */
    int32_t *ids;
    page_id *pages;
} bench;

/* Path number p; which is not the order of its ids. */
static void path_ids(const bench *b, size_t p)
{
    for (size_t i = 0; i < b->n_tokens; i++) {
        uint32_t x = (uint32_t)(i < SYSTEM_TOKENS ? i : i + p * 2654435761u);
        b->ids[i] = (int32_t)((x * 2246822519u) >> 15);
    }
}

static size_t insert_path(bench *b)
{
    size_t n_pages = (b->n_tokens + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
    const kv_span span = {{b->pages}};
    for (size_t i = 0; i < n_pages; i++) {
        if (page_pool_take(b->pool, &b->pages[i]) != ST_OK) {
            return 0;
        }
    }
    size_t done = kv_tree_insert(b->tree, &b->key, b->ids, b->n_tokens, &span, NULL);
    for (size_t i = 0; i < n_pages; i++) {
        page_pool_unref(b->pool, b->pages[i]);
    }
    return done;
}

typedef struct times {
    uint64_t insert, again, match, hold, evict; /* ns for all */
} times;

static void keep_least(uint64_t *least, uint64_t ns)
{
    *least = *least == 0 || ns < *least ? ns : *least;
}

static bool round_of(bench *b, times *best, kv_tree_stats *stats)
{
    times t = {0};
    const clock_src *clock = clock_system();
    for (size_t p = 0; p < b->n_paths; p++) {
        path_ids(b, p);
        uint64_t start = clock_mono_ns(clock);
        if (insert_path(b) != b->n_tokens) {
            return false;
        }
        t.insert += clock_mono_ns(clock) - start;
    }
    *stats = kv_tree_stats_read(b->tree);
    for (size_t i = 0; i < b->n_paths; i++) {
        path_ids(b, i * 7919 % b->n_paths);
        uint64_t start = clock_mono_ns(clock);
        kv_match m = kv_tree_match(b->tree, &b->key, b->ids, b->n_tokens, b->n_tokens);
        uint64_t matched = clock_mono_ns(clock);
        kv_tree_hold(b->tree, m.node);
        kv_tree_release(b->tree, m.node);
        uint64_t released = clock_mono_ns(clock);
        size_t done = insert_path(b);
        if (m.n_usable != b->n_tokens || done != m.n_usable) {
            return false;
        }
        t.match += matched - start;
        t.hold += released - matched;
        t.again += clock_mono_ns(clock) - released;
    }
    uint64_t start = clock_mono_ns(clock);
    while (kv_tree_evict(b->tree, 0)) {
    }
    t.evict = clock_mono_ns(clock) - start;
    keep_least(&best->insert, t.insert);
    keep_least(&best->again, t.again);
    keep_least(&best->match, t.match);
    keep_least(&best->hold, t.hold);
    keep_least(&best->evict, t.evict);
    return true;
}

int main(int argc, char **argv)
{
    size_t nodes = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000000;
    size_t path_pages = argc > 2 ? strtoul(argv[2], NULL, 10) : 312;
    size_t rounds = argc > 3 ? strtoul(argv[3], NULL, 10) : 5;
    size_t shared = SYSTEM_TOKENS / KV_PAGE_TOKENS;
    if (path_pages <= shared || path_pages > 1 << 16 || nodes < path_pages || nodes > 1 << 24 || rounds < 1) {
        fprintf(stderr, "bench_tree: a number is out of range\nbench_tree [NODES [PATH_PAGES [ROUNDS]]]\n");
        return 2;
    }
    bench b = {.n_paths = nodes / (path_pages - shared), .n_tokens = path_pages * KV_PAGE_TOKENS};
    b.ids = malloc(b.n_tokens * sizeof *b.ids);
    b.pages = malloc(path_pages * sizeof *b.pages);
    kv_tree_config cfg = {.n_kinds = 1};
    if (!b.ids || !b.pages || page_pool_new(64, nodes + 2 * path_pages, &b.pool, NULL) != ST_OK) {
        fprintf(stderr, "bench_tree: out of memory\n");
        return 1;
    }
    cfg.kinds[0].pool = b.pool;
    times best = {0};
    kv_tree_stats s = {0};
    if (kv_tree_new(&cfg, &b.tree) != ST_OK) {
        return 1;
    }
    for (size_t r = 0; r < rounds; r++) {
        if (!round_of(&b, &best, &s)) {
            fprintf(stderr, "bench_tree: a path is not there\n");
            return 1;
        }
    }
    double tokens = (double)(b.n_paths * b.n_tokens);
    printf("%zu nodes, %zu paths of %zu tokens, %.1f bytes a node\n", s.nodes, b.n_paths, b.n_tokens,
           (double)s.overhead_bytes / (double)s.nodes);
    printf(
        "ns a token: insert %.2f, match %.2f, hold and release %.2f, insert again %.2f; evict %.0f a page\n",
        (double)best.insert / tokens, (double)best.match / tokens, (double)best.hold / tokens,
        (double)best.again / tokens, (double)best.evict / (double)s.nodes);
    kv_tree_free(b.tree);
    page_pool_free(b.pool);
    free(b.ids);
    free(b.pages);
    return 0;
}
