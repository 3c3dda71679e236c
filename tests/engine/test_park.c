/*
 * Parked pages: a budget that is counted to the byte, copies that are bytes equal whatever happens to the pages
 * meanwhile, and loading in pieces. Pages are filled with bytes that name page and place, so a page that comes back
 * in another's place, in part or not at all differs.
 */
#include "engine/test_main.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "engine/park.h"

#define PAGE_BYTES 96
#define N_PAGES    12
#define MOST       (N_PAGES * KV_PAGE_TOKENS)

static page_pool *new_pool(void)
{
    page_pool *pool = NULL;
    assert_int_equal(page_pool_new(PAGE_BYTES, N_PAGES, &pool, NULL), ST_OK);
    return pool;
}

static unsigned char byte_of(uint32_t seed, size_t page, size_t i)
{
    return (unsigned char)((seed * 2654435761u + (uint32_t)page * 40503u + (uint32_t)i * 977u) >> 7);
}

static int32_t id_of(uint32_t seed, size_t i)
{
    return (int32_t)(seed * 1000 + i);
}

/* n_tokens in pages for `cover` of them. */
static void fill(resident *kv, page_pool *pool, uint32_t seed, size_t n_tokens, size_t cover)
{
    assert_int_equal(resident_reserve(kv, MOST), ST_OK);
    assert_int_equal(resident_cover(kv, pool, cover), ST_OK);
    for (size_t i = 0; i < n_tokens; i++) {
        assert_int_equal(ivec_push(&kv->ids, id_of(seed, i)), ST_OK);
    }
    for (size_t p = 0; p < kv->n_pages; p++) {
        for (size_t i = 0; i < PAGE_BYTES; i++) {
            ((unsigned char *)kv->addrs[p])[i] = byte_of(seed, p, i);
        }
    }
}

/* kv holds the first n_tokens of what fill made of seed, in a page pool's own memory. */
static void expect_filled(const resident *kv, const page_pool *pool, uint32_t seed, size_t n_tokens)
{
    assert_int_equal(kv->ids.len, n_tokens);
    assert_int_equal(kv->n_pages, resident_pages_for(n_tokens));
    for (size_t i = 0; i < n_tokens; i++) {
        assert_int_equal(kv->ids.data[i], id_of(seed, i));
    }
    for (size_t p = 0; p < kv->n_pages; p++) {
        assert_ptr_equal(kv->addrs[p], page_pool_addr(pool, kv->pages[p]));
        for (size_t i = 0; i < PAGE_BYTES; i++) {
            assert_int_equal(((const unsigned char *)kv->addrs[p])[i], byte_of(seed, p, i));
        }
    }
}

static void ids_of(int32_t *ids, uint32_t seed, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        ids[i] = id_of(seed, i);
    }
}

typedef struct load_case {
    size_t n_tokens, cover, max_pages;
    size_t calls; /* until it is complete */
} load_case;

static const load_case load_cases[] = {
    {0, 0, 1, 1},       {0, 40, 1, 1}, /* nothing but reserved pages */
    {1, 1, 1, 1},       {31, 31, 1, 1},   {32, 32, 1, 1},   {33, 33, 1, 2},          {33, 33, 2, 1},
    {100, 100, 1, 4},   {100, 100, 3, 2}, {100, 100, 4, 1}, {100, 100, SIZE_MAX, 1}, {96, 200, 2, 2},
    {MOST, MOST, 5, 3},
};

/* Away and back, and the pages were somebody else's in between. */
static void test_away_and_back(void **state)
{
    for (size_t i = 0; i < N_OF(load_cases); i++) {
        const load_case *c = &load_cases[i];
        page_pool *pool = new_pool();
        park *pk = NULL;
        park_image *img = NULL;
        resident kv = {0}, other = {0};
        int32_t ids[MOST];
        bool complete = false;
        size_t bytes = resident_pages_for(c->n_tokens) * PAGE_BYTES;
        assert_int_equal(park_new(bytes, &pk), ST_OK); /* exactly enough */
        fill(&kv, pool, 3, c->n_tokens, c->cover);
        size_t covered = kv.n_pages;
        assert_int_equal(park_save(pk, &kv, pool, &img), ST_OK);
        assert_int_equal(park_image_tokens(img), c->n_tokens);
        assert_int_equal(park_bytes_used(pk), bytes);
        assert_int_equal(park_images(pk), 1);
        assert_int_equal(kv.n_pages, covered); /* as it was */
        assert_int_equal(kv.ids.len, c->n_tokens);
        resident_truncate(&kv, pool, 0);
        fill(&other, pool, 4, MOST, MOST);
        resident_release(&other, pool);
        ids_of(ids, 3, c->n_tokens);
        for (size_t call = 1; !complete; call++) {
            assert_true(call <= c->calls);
            assert_int_equal(park_load(img, &kv, pool, ids, c->max_pages, &complete), ST_OK);
            assert_int_equal(complete, call == c->calls);
            size_t so_far = complete ? c->n_tokens : call * c->max_pages * KV_PAGE_TOKENS;
            expect_filled(&kv, pool, 3, so_far);
        }
        assert_int_equal(park_load(img, &kv, pool, ids, 1, &complete), ST_OK); /* once more changes nothing */
        assert_true(complete);
        expect_filled(&kv, pool, 3, c->n_tokens);
        park_drop(pk, img);
        assert_int_equal(park_bytes_used(pk), 0);
        assert_int_equal(park_images(pk), 0);
        resident_release(&kv, pool);
        assert_int_equal(page_pool_available(pool), N_PAGES);
        park_free(pk);
        page_pool_free(pool);
    }
}

/* Pages run out in the middle of a call, and between two. */
static void test_no_free_page(void **state)
{
    page_pool *pool = new_pool();
    park *pk = NULL;
    park_image *img = NULL;
    resident kv = {0}, other = {0};
    int32_t ids[MOST];
    bool complete = false;
    assert_int_equal(park_new(SIZE_MAX, &pk), ST_OK);
    fill(&kv, pool, 5, 150, 150); /* five pages */
    assert_int_equal(park_save(pk, &kv, pool, &img), ST_OK);
    resident_truncate(&kv, pool, 0);
    fill(&other, pool, 6, (N_PAGES - 3) * KV_PAGE_TOKENS,
         (N_PAGES - 3) * KV_PAGE_TOKENS); /* three are left */
    ids_of(ids, 5, 150);
    assert_int_equal(park_load(img, &kv, pool, ids, 2, &complete), ST_OK);
    assert_int_equal(park_load(img, &kv, pool, ids, 2, &complete), ST_CAPACITY);
    assert_false(complete);
    expect_filled(&kv, pool, 5, 96); /* the one that it got stays */
    assert_int_equal(park_load(img, &kv, pool, ids, 2, &complete), ST_CAPACITY);
    expect_filled(&kv, pool, 5, 96);
    resident_truncate(&other, pool, (N_PAGES - 5) * KV_PAGE_TOKENS);
    assert_int_equal(park_load(img, &kv, pool, ids, 2, &complete), ST_OK);
    assert_true(complete);
    expect_filled(&kv, pool, 5, 150);
    expect_filled(&other, pool, 6, (N_PAGES - 5) * KV_PAGE_TOKENS);
    park_drop(pk, img);
    resident_release(&kv, pool);
    resident_release(&other, pool);
    assert_int_equal(page_pool_available(pool), N_PAGES);
    park_free(pk);
    page_pool_free(pool);
}

static void test_budget(void **state)
{
    static const struct {
        size_t budget, first, second; /* tokens */
        status says;
    } cases[] = {
        {0, 0, 0, ST_OK},
        {0, 0, 1, ST_CAPACITY},
        {PAGE_BYTES, 0, 32, ST_OK},
        {PAGE_BYTES, 0, 33, ST_CAPACITY},
        {PAGE_BYTES - 1, 0, 1, ST_CAPACITY},
        {3 * PAGE_BYTES, 33, 32, ST_OK}, /* with what is in use already */
        {3 * PAGE_BYTES, 33, 33, ST_CAPACITY},
        {3 * PAGE_BYTES, 96, 1, ST_CAPACITY},
        {3 * PAGE_BYTES, 96, 0, ST_OK},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        page_pool *pool = new_pool();
        park *pk = NULL;
        park_image *a = NULL, *b = NULL;
        resident kv[2] = {{.n_pages = 0}};
        assert_int_equal(park_new(cases[i].budget, &pk), ST_OK);
        fill(&kv[0], pool, 1, cases[i].first, cases[i].first);
        fill(&kv[1], pool, 2, cases[i].second, cases[i].second);
        assert_int_equal(park_save(pk, &kv[0], pool, &a), ST_OK);
        size_t used = park_bytes_used(pk);
        assert_int_equal(park_save(pk, &kv[1], pool, &b), cases[i].says);
        if (cases[i].says != ST_OK) {
            assert_null(b);
            assert_int_equal(park_bytes_used(pk), used);
            assert_int_equal(park_images(pk), 1);
        }
        park_drop(pk, a);
        if (cases[i].says != ST_OK && cases[i].first > 0) { /* what was dropped can be used again */
            assert_int_equal(park_save(pk, &kv[1], pool, &b), ST_OK);
        }
        park_drop(pk, b);
        assert_int_equal(park_bytes_used(pk), 0);
        resident_release(&kv[0], pool);
        resident_release(&kv[1], pool);
        park_free(pk);
        page_pool_free(pool);
    }
}

/* Several images, dropped and loaded in another order than saved. */
static void test_several(void **state)
{
    static const size_t lengths[4] = {40, 64, 1, 95}; /* 2 + 2 + 1 + 3 pages */
    static const size_t order[4] = {2, 0, 3, 1};
    page_pool *pool = new_pool();
    park *pk = NULL;
    park_image *img[4];
    resident kv[4] = {{.n_pages = 0}};
    int32_t ids[MOST];
    bool complete;
    assert_int_equal(park_new(8 * PAGE_BYTES, &pk), ST_OK);
    for (uint32_t i = 0; i < 4; i++) {
        fill(&kv[i], pool, 10 + i, lengths[i], lengths[i]);
    }
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(park_save(pk, &kv[i], pool, &img[i]), ST_OK);
        assert_int_equal(park_images(pk), i + 1);
        resident_truncate(&kv[i], pool, 0);
    }
    assert_int_equal(park_bytes_used(pk), 8 * PAGE_BYTES);
    for (size_t i = 0; i < 4; i++) {
        size_t at = order[i];
        size_t used = park_bytes_used(pk);
        ids_of(ids, 10 + (uint32_t)at, lengths[at]);
        assert_int_equal(park_load(img[at], &kv[at], pool, ids, 8, &complete), ST_OK);
        park_drop(pk, img[at]);
        assert_int_equal(used - park_bytes_used(pk), resident_pages_for(lengths[at]) * PAGE_BYTES);
        assert_int_equal(park_images(pk), 3 - i);
    }
    for (uint32_t i = 0; i < 4; i++) {
        expect_filled(&kv[i], pool, 10 + i, lengths[i]);
        resident_release(&kv[i], pool);
    }
    park_drop(pk, NULL);
    park_free(pk);
    park_free(NULL);
    page_pool_free(pool);
}

static void test_out_of_memory(void **state)
{
    page_pool *pool = new_pool();
    park *pk = NULL;
    park_image *img = NULL;
    resident kv = {0};
    mem_fail_at(1, false);
    assert_int_equal(park_new(1000, &pk), ST_NOMEM);
    assert_null(pk);
    mem_fail_at(0, false);
    assert_int_equal(park_new(1000, &pk), ST_OK);
    fill(&kv, pool, 7, 70, 70);
    for (uint64_t at = 1; at <= 2; at++) { /* the image, its bytes */
        mem_fail_at(at, false);
        assert_int_equal(park_save(pk, &kv, pool, &img), ST_NOMEM);
        mem_fail_at(0, false);
        assert_null(img);
        assert_int_equal(park_bytes_used(pk), 0);
        assert_int_equal(park_images(pk), 0);
    }
    uint64_t before = mem_alloc_count();
    assert_int_equal(park_save(pk, &kv, pool, &img), ST_OK);
    assert_int_equal(mem_alloc_count() - before, 2);
    resident_truncate(&kv, pool, 0);
    int32_t ids[70];
    bool complete;
    ids_of(ids, 7, 70);
    before = mem_alloc_count();
    assert_int_equal(park_load(img, &kv, pool, ids, 9, &complete), ST_OK);
    assert_int_equal(mem_alloc_count(), before); /* it comes back inside the token loop */
    park_drop(pk, img);
    resident_release(&kv, pool);
    park_free(pk);
    page_pool_free(pool);
}

static size_t mapped_pages(void)
{
    FILE *f = fopen("/proc/self/statm", "r");
    size_t total = 0;
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%zu", &total), 1);
    fclose(f);
    return total;
}

/* The memory of an image goes back to the system, not to a heap that keeps it. */
static void test_memory_is_returned(void **state)
{
    page_pool *pool = NULL;
    park *pk = NULL;
    park_image *img = NULL;
    resident kv = {0};
    const size_t page_bytes = (size_t)1 << 20;
    assert_int_equal(page_pool_new(page_bytes, 16, &pool, NULL), ST_OK);
    assert_int_equal(park_new(SIZE_MAX, &pk), ST_OK);
    assert_int_equal(resident_reserve(&kv, 512), ST_OK);
    assert_int_equal(resident_cover(&kv, pool, 512), ST_OK);
    for (int32_t i = 0; i < 512; i++) {
        assert_int_equal(ivec_push(&kv.ids, i), ST_OK);
    }
    for (int round = 0; round < 3; round++) {
        assert_int_equal(park_save(pk, &kv, pool, &img), ST_OK);
        size_t with = mapped_pages();
        park_drop(pk, img);
        assert_true(with >= mapped_pages() + 16 * page_bytes / 4096 / 2);
    }
    resident_release(&kv, pool);
    park_free(pk);
    page_pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_away_and_back), cmocka_unit_test(test_no_free_page),
        cmocka_unit_test(test_budget),        cmocka_unit_test(test_several),
        cmocka_unit_test(test_out_of_memory), cmocka_unit_test(test_memory_is_returned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
