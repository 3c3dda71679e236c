/* page_pool: reference counts, who may write, the NaN fill, exhaustion, failing memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "kern/kv_layout.h"
#include "kv/page_pool.h"

#define PAGE_BYTES 192

static page_pool *pool_of(size_t n_pages)
{
    page_pool *p = NULL;
    assert_int_equal(page_pool_new(PAGE_BYTES, n_pages, &p, NULL), ST_OK);
    return p;
}

static page_id take(page_pool *p)
{
    page_id id = -1;
    assert_int_equal(page_pool_take(p, &id), ST_OK);
    return id;
}

static void test_counts_and_exhaustion(void **state)
{
    page_pool *p = pool_of(3);
    page_id ids[3], none = 77;
    assert_int_equal(page_pool_total(p), 3);
    assert_int_equal(page_pool_page_bytes(p), PAGE_BYTES);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(page_pool_available(p), 3 - i);
        ids[i] = take(p);
        for (size_t j = 0; j < i; j++) {
            assert_int_not_equal(ids[i], ids[j]);
        }
        assert_int_equal(page_pool_refs(p, ids[i]), 1);
    }
    assert_int_equal(page_pool_available(p), 0);
    assert_int_equal(page_pool_take(p, &none), ST_CAPACITY);
    assert_int_equal(none, 77);
    /* Last in, first out. */
    page_pool_unref(p, ids[0]);
    page_pool_unref(p, ids[2]);
    assert_int_equal(page_pool_available(p), 2);
    assert_int_equal(take(p), ids[2]);
    assert_int_equal(take(p), ids[0]);
    assert_int_equal(page_pool_take(p, &none), ST_CAPACITY);
    page_pool_free(p);
    page_pool_free(NULL);
}

static void test_shared_once_is_immutable(void **state)
{
    page_pool *p = pool_of(2);
    page_id id = take(p);
    assert_true(page_pool_may_write(p, id));
    page_pool_ref(p, id);
    assert_int_equal(page_pool_refs(p, id), 2);
    assert_false(page_pool_may_write(p, id));
    page_pool_unref(p, id);
    assert_int_equal(page_pool_refs(p, id), 1);
    assert_false(page_pool_may_write(p, id)); /* had a second reference: never again */
    assert_int_equal(page_pool_available(p), 1);
    page_pool_unref(p, id);
    assert_int_equal(page_pool_available(p), 2);
    assert_false(page_pool_may_write(p, id)); /* nobody's */
    assert_int_equal(take(p), id);            /* a new life */
    assert_true(page_pool_may_write(p, id));
    page_pool_free(p);
}

static void test_pages_do_not_overlap(void **state)
{
    page_pool *p = pool_of(5);
    page_id ids[5];
    for (int i = 0; i < 5; i++) {
        ids[i] = take(p);
        memset(page_pool_addr(p, ids[i]), i, PAGE_BYTES);
        assert_int_equal((uintptr_t)page_pool_addr(p, ids[i]) % 64, 0);
    }
    for (int i = 0; i < 5; i++) {
        unsigned char want[PAGE_BYTES];
        memset(want, i, sizeof want);
        assert_memory_equal(page_pool_addr(p, ids[i]), want, PAGE_BYTES);
    }
    page_pool_free(p);
}

/* In a debug build a page holds NaN in each KV type when it is handed out, also the second time. */
static void test_nan_fill(void **state)
{
#ifdef HEARTH_DEBUG
    page_pool *p = pool_of(1);
    for (int life = 0; life < 2; life++) {
        page_id id = take(p);
        float f[PAGE_BYTES / sizeof(float)];
        memcpy(f, page_pool_addr(p, id), sizeof f);
        for (size_t i = 0; i < sizeof f / sizeof *f; i++) {
            assert_true(f[i] != f[i]);
        }
        uint16_t half;
        memcpy(&half, page_pool_addr(p, id), sizeof half);
        assert_true((half & 0x7FFF) > 0x7C00); /* binary16: exponent all ones, mantissa not zero */
        memset(page_pool_addr(p, id), 0, PAGE_BYTES);
        page_pool_unref(p, id);
    }
    page_pool_free(p);
#else
    skip();
#endif
}

/* Address space is reserved at once, memory comes when it is touched: 16 GiB must not need 16 GiB. */
static void test_large_pool_is_lazy(void **state)
{
    page_pool *p = NULL;
    status st = page_pool_new((size_t)1 << 20, (size_t)1 << 14, &p, NULL);
    if (st == ST_NOMEM) { /* a strict overcommit policy or an address-space limit may say no */
        skip();
    }
    assert_int_equal(st, ST_OK);
    page_id id = take(p);
    memset(page_pool_addr(p, id), 1, (size_t)1 << 20);
    page_pool_free(p);
}

static void test_refused_sizes(void **state)
{
    static const struct {
        size_t page_bytes;
        size_t n_pages;
        status want;
    } cases[] = {
        {0, 4, ST_INVALID_FIELD},
        {64, 0, ST_INVALID_FIELD},
        {64, (size_t)INT32_MAX + 1, ST_INVALID_FIELD},
        {SIZE_MAX / 2, 3, ST_NOMEM},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        page_pool *p = NULL;
        err e;
        assert_int_equal(page_pool_new(cases[i].page_bytes, cases[i].n_pages, &p, &e), cases[i].want);
        assert_null(p);
        assert_int_equal(e.code, cases[i].want);
    }
}

static void test_failing_memory(void **state)
{
    uint64_t before = mem_alloc_count();
    page_pool *p = pool_of(4);
    uint64_t n = mem_alloc_count() - before;
    page_pool_free(p);
    assert_true(n > 0);
    for (uint64_t i = 1; i <= n; i++) {
        err e;
        p = NULL;
        mem_fail_at(i, false);
        status st = page_pool_new(PAGE_BYTES, 4, &p, &e);
        mem_fail_at(0, false);
        assert_int_equal(st, ST_NOMEM);
        assert_null(p);
    }
}

/*
 * The limit
 */
#define LARGE ((size_t)16 << 10)

/* System pages of a page that have memory. */
static size_t resident(const page_pool *p, page_id id)
{
    unsigned char at[LARGE / 4096];
    size_t n = 0;
    assert_int_equal(sysconf(_SC_PAGESIZE), 4096);
    assert_int_equal(mincore(page_pool_addr(p, id), LARGE, at), 0);
    for (size_t i = 0; i < sizeof at; i++) {
        n += at[i] & 1;
    }
    return n;
}

static void test_limit(void **state)
{
    page_pool *p = NULL;
    page_id ids[6], none;
    assert_int_equal(page_pool_new(LARGE, 6, &p, NULL), ST_OK);
    assert_int_equal(page_pool_limit(p), 6);
    for (size_t i = 0; i < 5; i++) {
        ids[i] = take(p);
        memset(page_pool_addr(p, ids[i]), 1, LARGE);
    }
    page_pool_unref(p, ids[4]);
    page_pool_unref(p, ids[3]);
    assert_int_equal(page_pool_backed(p), 5);
    assert_int_equal(resident(p, ids[4]) + resident(p, ids[3]), 8);
    /* Free ones beyond it have no memory. */
    page_pool_set_limit(p, 4);
    assert_int_equal(page_pool_used(p), 3);
    assert_int_equal(page_pool_available(p), 1);
    assert_int_equal(page_pool_backed(p), 4);
    assert_int_equal(resident(p, ids[4]) + resident(p, ids[3]), 4);
    /* Below what is in use: nothing is lost, and who gives one back gives its memory back. */
    page_pool_set_limit(p, 2);
    assert_int_equal(page_pool_total(p), 6);
    assert_int_equal(page_pool_available(p), 0);
    assert_int_equal(page_pool_take(p, &none), ST_CAPACITY);
    assert_int_equal(page_pool_backed(p), 3);
    assert_int_equal(resident(p, ids[0]) + resident(p, ids[1]) + resident(p, ids[2]), 12);
    page_pool_unref(p, ids[2]);
    assert_int_equal(page_pool_backed(p), 2);
    assert_int_equal(resident(p, ids[2]), 0);
    assert_int_equal(page_pool_take(p, &none), ST_CAPACITY);
    page_pool_unref(p, ids[1]);
    assert_int_equal(page_pool_backed(p), 2); /* within the limit it keeps its memory … */
    assert_int_equal(take(p), ids[1]);        /* … and is the next */
    /* Up again: all of them, each once, with what was in those that were kept. */
    page_pool_set_limit(p, 600);
    assert_int_equal(page_pool_limit(p), 6);
    assert_int_equal(page_pool_available(p), 4);
    bool seen[6] = {false};
    seen[ids[0]] = seen[ids[1]] = true;
    while (page_pool_available(p) > 0) {
        page_id id = take(p);
        assert_false(seen[id]);
        seen[id] = true;
        memset(page_pool_addr(p, id), 2, LARGE);
    }
    assert_int_equal(page_pool_backed(p), 6);
    assert_int_equal(*(unsigned char *)page_pool_addr(p, ids[0]), 1);
    page_pool_set_limit(p, 0); /* one is the least */
    assert_int_equal(page_pool_limit(p), 1);
    page_pool_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts_and_exhaustion), cmocka_unit_test(test_shared_once_is_immutable),
        cmocka_unit_test(test_pages_do_not_overlap),  cmocka_unit_test(test_nan_fill),
        cmocka_unit_test(test_large_pool_is_lazy),    cmocka_unit_test(test_refused_sizes),
        cmocka_unit_test(test_failing_memory),        cmocka_unit_test(test_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
