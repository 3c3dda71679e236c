/* store: what is put can be had, now and later, from here and from elsewhere; budgets; what the queue does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/mem.h"
#include "kv/store_rig.h"

/* SHA-256 of root, parent (zeros if there is none), ids; each id little-endian. Python:
 *   hashlib.sha256(b'\1'*32 + bytes(32) + struct.pack('<3i', 1, 2, -3)).hexdigest() */
static void test_chain_key(void **state)
{
    static const struct {
        bool with_parent;
        const char *want;
    } cases[] = {
        {false, "9787cfe62162376f14e8be8043762be99880934d1ea6bcd9032a794eaafb1c9f"},
        {true, "445a50a559630b09fa7894ba4a91fe306315636b515ecb9d419cdb167ec4f6e4"},
    };
    const int32_t ids[] = {1, 2, -3};
    kv_root_key root;
    store_key parent;
    memset(&root, 1, sizeof root);
    memset(&parent, 2, sizeof parent);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char hex[SHA256_HEX_LEN + 1];
        const store_key key = store_chain(&root, cases[i].with_parent ? &parent : NULL, ids, 3);
        hex_encode(key.bytes, sizeof key.bytes, hex);
        assert_string_equal(hex, cases[i].want);
    }
}

static void test_round_trip(void **state)
{
    store_rig r;
    rig_page p;
    rig_init(&r);
    rig_open(&r);
    rig_page_make(&p, 1, 0);
    assert_false(store_has(r.s, &p.key));
    assert_false(rig_get(&r, 1, 0));
    for (unsigned i = 0; i < 5; i++) {
        assert_true(rig_put(&r, 1, i));
    }
    assert_true(store_has(r.s, &p.key)); /* at once, written or not */
    assert_true(rig_get(&r, 1, 4));
    store_flush(r.s);
    for (unsigned i = 0; i < 5; i++) {
        assert_true(rig_get(&r, 1, i));
    }
    assert_false(rig_get(&r, 1, 5));
    assert_false(rig_put(&r, 1, 2)); /* it is there */
    const store_stats s = rig_stats(&r);
    assert_true(s.reads && s.writes);
    assert_int_equal(s.files, 5);
    assert_int_equal(s.bytes, 5 * RIG_FILE_BYTES);
    assert_int_equal(s.written, 5);
    assert_int_equal(s.written_bytes, 5 * RIG_FILE_BYTES);
    assert_int_equal(s.read, 6);
    assert_int_equal(s.missed, 2);
    assert_int_equal(s.bad, 0);
    assert_int_equal(s.not_written, 0);
    assert_int_equal(s.queued_bytes, 0);
    assert_int_equal(rig_count_files(&r, ".page"), 5);
    assert_int_equal(rig_count_files(&r, ".tmp"), 0);
    rig_end(&r);
}

/* A page of fewer ids has a key of its own, and is not the full one. */
static void test_leaf(void **state)
{
    store_rig r;
    rig_page full, leaf;
    rig_init(&r);
    rig_open(&r);
    rig_page_make(&full, 1, 0);
    leaf = full;
    leaf.n_ids = 7;
    leaf.key = store_chain(&leaf.root, NULL, leaf.ids, leaf.n_ids);
    leaf.bytes[0] ^= 1;
    assert_true(rig_put_page(&r, &leaf));
    store_flush(r.s);
    assert_false(rig_get_page(&r, &full));
    assert_true(rig_put_page(&r, &full));
    store_flush(r.s);
    assert_true(rig_get_page(&r, &leaf));
    assert_true(rig_get_page(&r, &full));
    rig_end(&r);
}

static void test_restart_finds_all(void **state)
{
    store_rig r;
    rig_page p;
    rig_init(&r);
    rig_open(&r);
    for (unsigned i = 0; i < 40; i++) {
        assert_true(rig_put(&r, i % 4, i / 4));
    }
    rig_close(&r); /* writes what waits */
    rig_open(&r);
    rig_page_make(&p, 3, 9);
    assert_true(store_has(r.s, &p.key));
    assert_int_equal(rig_stats(&r).files, 40);
    assert_int_equal(rig_stats(&r).bytes, 40 * RIG_FILE_BYTES);
    for (unsigned c = 0; c < 4; c++) {
        assert_int_equal(rig_prefix(&r, c, 11), 10);
    }
    rig_end(&r);
}

/* Results come in the order of the questions, and wake who waits. */
static void count_wakes(void *ctx)
{
    __atomic_fetch_add((unsigned *)ctx, 1, __ATOMIC_SEQ_CST);
}

static void test_order_and_wake(void **state)
{
    enum { N = 50 };
    static uint8_t dst[N][RIG_PAGE_BYTES];
    store_rig r;
    rig_page p;
    unsigned wakes = 0, n = 0;
    store_result results[7];
    rig_init(&r);
    r.cfg.wake = count_wakes;
    r.cfg.wake_ctx = &wakes;
    rig_open(&r);
    assert_true(store_ready(r.s));
    rig_put_all(&r, 1, 0, N / 2);
    for (unsigned i = 0; i < N; i++) {
        rig_page_make(&p, 1, i);
        assert_true(
            store_get(r.s, &p.root, p.has_parent ? &p.parent : NULL, p.ids, p.n_ids, dst[i], 1000 + i));
    }
    while (n < N) {
        size_t got = store_poll(r.s, results, 7);
        for (size_t i = 0; i < got; i++, n++) {
            assert_int_equal(results[i].ticket, 1000 + n);
            assert_int_equal(results[i].ok, n < N / 2);
            rig_page_make(&p, 1, n);
            if (results[i].ok) {
                assert_memory_equal(dst[n], p.bytes, sizeof p.bytes);
            }
        }
    }
    rig_close(&r);
    assert_int_equal(wakes, N + 1); /* and once when it was ready */
    rig_end(&r);
}

/* Two stores on one folder, as two workers have it: what one writes the other can read, and knows before long. */
static void test_two_on_one_folder(void **state)
{
    store_rig r, other;
    rig_page p;
    const struct timespec pause = {0, 10000000};
    rig_init(&r);
    rig_open(&r);
    rig_put_all(&r, 1, 0, 3);
    other = r;
    rig_open(&other);
    rig_page_make(&p, 1, 2);
    assert_true(store_has(other.s, &p.key));
    assert_int_equal(rig_prefix(&other, 1, 9), 3);
    rig_put_all(&r, 2, 0, 1);
    assert_true(rig_get(&other, 2, 0)); /* asked for, it need not be known */
    rig_put_all(&r, 3, 0, 1);
    rig_page_make(&p, 3, 0);
    for (unsigned i = 0; i < 6000 && !store_has(other.s, &p.key); i++) {
        nanosleep(&pause, NULL);
    }
    assert_true(store_has(other.s, &p.key));
    assert_int_equal(rig_stats(&other).files, 5);
    assert_false(rig_put_page(&other, &p)); /* it is there already */
    assert_int_equal(rig_stats(&other).written, 0);
    rig_close(&other);
    rig_end(&r);
}

/* How much of a conversation there is; a page behind one that is missing would be of no use. */
static unsigned kept(const store_rig *r, unsigned c, unsigned most)
{
    rig_page p;
    unsigned n = 0;
    for (unsigned i = 0; i < most; i++) {
        char path[RIG_PATH_BYTES];
        rig_page_make(&p, c, i);
        rig_path(r, &p, path);
        bool there = access(path, F_OK) == 0;
        assert_int_equal(there, store_has(r->s, &p.key));
        if (there) {
            assert_int_equal(i, n);
            n++;
        }
    }
    return n;
}

enum { PAGES = 10 };

static void open_for_two(store_rig *r)
{
    rig_init(r);
    r->cfg.budget_bytes = (uint64_t)2 * PAGES * RIG_FILE_BYTES + RIG_FILE_BYTES - 1;
    rig_open(r);
}

static void check_full(const store_rig *r)
{
    assert_int_equal(rig_stats(r).bytes, (uint64_t)2 * PAGES * RIG_FILE_BYTES);
    assert_int_equal(rig_count_files(r, ".page"), 2 * PAGES);
}

/* FAILURES P4: a budget for two conversations, three of them. */
static void test_oldest_goes(void **state)
{
    store_rig r;
    open_for_two(&r);
    rig_put_all(&r, 1, 0, PAGES);
    rig_put_all(&r, 2, 0, PAGES);
    rig_put_all(&r, 3, 0, PAGES / 2);
    assert_int_equal(kept(&r, 1, PAGES), PAGES / 2); /* from its end */
    rig_put_all(&r, 3, PAGES / 2, PAGES);
    assert_int_equal(kept(&r, 1, PAGES), 0);
    assert_int_equal(kept(&r, 2, PAGES), PAGES);
    assert_int_equal(kept(&r, 3, PAGES), PAGES);
    check_full(&r);
    rig_end(&r);
}

static void test_use_counts(void **state)
{
    store_rig r;
    open_for_two(&r);
    rig_put_all(&r, 1, 0, PAGES);
    rig_put_all(&r, 2, 0, PAGES);
    assert_int_equal(rig_prefix(&r, 1, PAGES), PAGES); /* used last */
    rig_put_all(&r, 3, 0, PAGES / 2);
    assert_int_equal(kept(&r, 1, PAGES), PAGES);
    assert_int_equal(kept(&r, 2, PAGES), PAGES / 2);
    assert_int_equal(rig_prefix(&r, 2, PAGES), PAGES / 2);
    rig_close(&r); /* and is remembered */
    rig_open(&r);
    rig_put_all(&r, 3, PAGES / 2, PAGES);
    assert_int_equal(kept(&r, 1, PAGES), PAGES / 2);
    assert_int_equal(kept(&r, 2, PAGES), PAGES / 2);
    assert_int_equal(kept(&r, 3, PAGES), PAGES);
    check_full(&r);
    rig_end(&r);
}

/* Page by page in turns, then turn by turn again: what is kept of each is its beginning, and the budget is used. */
static void test_interleaved(void **state)
{
    store_rig r;
    open_for_two(&r);
    for (unsigned i = 0; i < PAGES; i++) {
        for (unsigned c = 1; c <= 3; c++) {
            rig_put_all(&r, c, i, i + 1);
        }
    }
    for (unsigned turn = 0; turn < 9; turn++) {
        unsigned c = 1 + turn % 3;
        check_full(&r);
        assert_int_equal(kept(&r, 1, PAGES) + kept(&r, 2, PAGES) + kept(&r, 3, PAGES), 2 * PAGES);
        unsigned had = rig_prefix(&r, c, PAGES);
        assert_int_equal(had, kept(&r, c, PAGES));
        rig_put_all(&r, c, had, PAGES); /* computed anew */
        assert_int_equal(kept(&r, c, PAGES), PAGES);
    }
    rig_end(&r);
}

/* One that is longer than the budget keeps its beginning; a page behind a missing one is not written. */
static void test_longer_than_budget(void **state)
{
    store_rig r;
    open_for_two(&r);
    rig_put_all(&r, 1, 0, 1);
    rig_put_all(&r, 2, 0, 3 * PAGES);
    assert_int_equal(kept(&r, 1, 1), 0);
    assert_int_equal(kept(&r, 2, 3 * PAGES), 2 * PAGES);
    assert_int_equal(rig_stats(&r).not_written, PAGES);
    check_full(&r);
    rig_put_all(&r, 3, 5, 6);
    assert_int_equal(kept(&r, 2, 3 * PAGES), 2 * PAGES);
    assert_int_equal(rig_stats(&r).not_written, PAGES + 1);
    rig_close(&r);
    r.cfg.budget_bytes = RIG_FILE_BYTES - 1; /* less than there is, and less than one page */
    rig_open(&r);
    assert_int_equal(rig_stats(&r).files, 0);
    assert_int_equal(rig_count_files(&r, ".page"), 0);
    rig_put_all(&r, 4, 0, 1);
    assert_int_equal(rig_stats(&r).not_written, 1);
    assert_true(rig_stats(&r).writes);
    rig_end(&r);
}

/* A shared beginning goes after all that go on from it. */
static void test_shared_prefix(void **state)
{
    store_rig r;
    rig_page first, branch;
    rig_init(&r);
    r.cfg.budget_bytes = 5 * RIG_FILE_BYTES;
    rig_open(&r);
    rig_page_make(&first, 1, 0);
    assert_true(rig_put_page(&r, &first));
    store_flush(r.s);
    for (unsigned i = 0; i < 8; i++) {
        rig_page_make(&branch, 50 + i, 0);
        branch.parent = first.key;
        branch.has_parent = true;
        branch.key = store_chain(&branch.root, &branch.parent, branch.ids, branch.n_ids);
        assert_true(rig_put_page(&r, &branch));
        store_flush(r.s);
        assert_true(store_has(r.s, &branch.key));
    }
    assert_true(rig_get_page(&r, &first));
    assert_int_equal(rig_stats(&r).files, 5);
    rig_end(&r);
}

/* A page from the middle is lost and written again: it has those behind it, and stays as long as they do. */
static void test_written_again(void **state)
{
    store_rig r;
    rig_page p;
    char path[RIG_PATH_BYTES];
    open_for_two(&r);
    rig_put_all(&r, 1, 0, PAGES);
    rig_page_make(&p, 1, 4);
    rig_path(&r, &p, path);
    assert_int_equal(truncate(path, 100), 0);
    assert_int_equal(rig_prefix(&r, 1, PAGES), 4);
    rig_put_all(&r, 1, 4, 5);
    rig_put_all(&r, 2, 0, PAGES);
    assert_int_equal(rig_prefix(&r, 2, PAGES), PAGES);
    for (unsigned i = 0; i < PAGES - 2;
         i++) { /* in the order of use the one written again is the last of its kind */
        rig_put_all(&r, 3, i, i + 1);
        assert_int_equal(kept(&r, 1, PAGES), PAGES - 1 - i);
    }
    rig_end(&r);
}

static void test_daily_limit(void **state)
{
    store_rig r;
    rig_init(&r);
    r.cfg.daily_write_bytes = 5 * RIG_FILE_BYTES + 1;
    rig_open(&r);
    rig_put_all(&r, 1, 0, 6);
    assert_int_equal(rig_stats(&r).written, 5);
    assert_int_equal(rig_stats(&r).not_written, 1);
    assert_false(rig_put(&r, 1, 5)); /* told at once */
    assert_int_equal(rig_stats(&r).not_written, 2);
    assert_int_equal(rig_prefix(&r, 1, 6), 5);
    rig_close(&r);
    rig_open(&r); /* no new day begins with a start */
    rig_put_all(&r, 1, 5, 6);
    assert_int_equal(rig_stats(&r).written, 0);
    r.clock.wall_ms += 86400000 - 1001; /* the last millisecond of the day */
    rig_put_all(&r, 1, 5, 6);
    assert_int_equal(rig_stats(&r).written, 0);
    r.clock.wall_ms += 1;
    rig_put_all(&r, 1, 5, 12);
    assert_int_equal(rig_stats(&r).written, 5);
    assert_true(rig_stats(&r).writes);
    rig_end(&r);
}

/* Without the index the day's bytes are those of today's files. */
static void test_daily_limit_without_index(void **state)
{
    store_rig r;
    char path[RIG_PATH_BYTES];
    rig_init(&r);
    r.clock.wall_ms = clock_wall_ms(clock_system());
    if (r.clock.wall_ms % 86400000 > 86400000 - 120000) {
        skip(); /* the files would be of another day */
    }
    r.cfg.daily_write_bytes = 5 * RIG_FILE_BYTES;
    rig_open(&r);
    rig_put_all(&r, 1, 0, 3);
    rig_close(&r);
    rig_name(&r, "index.db", path);
    assert_int_equal(unlink(path), 0);
    rig_open(&r);
    rig_put_all(&r, 1, 3, 6);
    assert_int_equal(rig_stats(&r).written, 2);
    rig_end(&r);
}

static void test_refused_configurations(void **state)
{
    static const struct {
        const char *dir;
        size_t page_bytes;
        const char *field;
    } cases[] = {
        {NULL, 64, "dir"},
        {"", 64, "dir"},
        {"relative", 64, "dir"},
        {"/tmp", 0, "page_bytes"},
        {"/tmp", SIZE_MAX, "page_bytes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const store_config cfg = {
            .dir = cases[i].dir, .page_bytes = cases[i].page_bytes, .clock = clock_system()};
        store *s = NULL;
        err e;
        assert_int_equal(store_open(&cfg, &s, &e), ST_INVALID_FIELD);
        assert_string_equal(e.field, cases[i].field);
        assert_null(s);
    }
    store_close(NULL, 0);
}

/* Any allocation may fail, the library's too: it opens or says why not, does what it can, and what is written is right. */
static void test_failing_memory(void **state)
{
    store_rig r;
    err e;
    unsigned n_refused = 0;
    rig_init(&r);
    for (uint64_t at = 1; at < 400; at += at < 60 ? 1 : 7) {
        mem_fail_at(at, at % 3 == 0);
        status st = store_open(&r.cfg, &r.s, &e);
        if (st == ST_OK) {
            (void)rig_put(&r, (unsigned)at, 0);
            (void)rig_put(&r, (unsigned)at, 1);
            store_flush(r.s);
            (void)rig_get(&r, (unsigned)at, 0);
        } else {
            assert_int_equal(st, ST_NOMEM);
            n_refused++;
        }
        rig_close(&r);
        mem_fail_at(0, false);
    }
    assert_true(n_refused >= 3);
    rig_open(&r);
    assert_int_equal(rig_stats(&r).files, rig_count_files(&r, ".page"));
    assert_int_equal(rig_stats(&r).bad, 0);
    rig_put_all(&r, 1000, 0, 3);
    assert_int_equal(rig_prefix(&r, 1000, 4), 3);
    rig_end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chain_key),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_leaf),
        cmocka_unit_test(test_restart_finds_all),
        cmocka_unit_test(test_order_and_wake),
        cmocka_unit_test(test_two_on_one_folder),
        cmocka_unit_test(test_oldest_goes),
        cmocka_unit_test(test_use_counts),
        cmocka_unit_test(test_interleaved),
        cmocka_unit_test(test_longer_than_budget),
        cmocka_unit_test(test_shared_prefix),
        cmocka_unit_test(test_written_again),
        cmocka_unit_test(test_daily_limit),
        cmocka_unit_test(test_daily_limit_without_index),
        cmocka_unit_test(test_refused_configurations),
        cmocka_unit_test(test_failing_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
