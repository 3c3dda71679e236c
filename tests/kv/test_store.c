/* store: what is put can be had, now and later, from here and from elsewhere; budgets; what the queue does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
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
    assert_int_equal(wakes, N);
    rig_end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chain_key),      cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_leaf),           cmocka_unit_test(test_restart_finds_all),
        cmocka_unit_test(test_order_and_wake),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
