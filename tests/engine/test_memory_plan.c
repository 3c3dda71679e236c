/*
 * memory_plan: tables of models and limits. What is expected is worked out from the rules of the header, not from what
 * the code says: a page of 1 MiB costs 1.25 MiB with its copies (and 320 bytes), a sixteenth of the limit is spare, half
 * of it may be pages.
 */
#include "engine/test_main.h"

#include <stdio.h>
#include <string.h>

#include "engine/memory_plan.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

/* A model of 1 GiB whose pages have 1 MiB, so that a token has 32 KiB. */
static memory_needs needs(void)
{
    return (memory_needs){.packed_bytes = GIB,
                          .scratch_bytes = 64 * MIB,
                          .page_bytes = MIB,
                          .lanes = 8,
                          .context_train = 131072};
}

static memory_wish wish(uint64_t limit)
{
    return (memory_wish){
        .limit_bytes = limit, .available_bytes = UINT64_MAX, .copies_bytes = MEMORY_PLAN_QUARTER};
}

static memory_plan made(const memory_needs *n, const memory_wish *w)
{
    memory_plan p = {0};
    err e;
    if (memory_plan_make(n, w, &p, &e) != ST_OK) {
        fail_msg("%s", e.msg);
    }
    uint64_t weights = n->mapped_bytes + n->packed_bytes + n->anonymous_bytes;
    assert_true(p.total_bytes == weights + p.scratch_bytes + p.kv_bytes);
    assert_true(p.kv_bytes == p.pages * n->page_bytes && p.limit_bytes == w->limit_bytes);
    assert_true(p.total_bytes + p.copies_bytes <= w->limit_bytes && p.most_pages >= p.pages);
    return p;
}

/* Limits from wide to narrow: first the model's context and its lanes bound, then half the limit, then what is left. */
static void test_context(void **state)
{
    static const struct {
        uint64_t limit;
        int32_t least_context, most_context;
        size_t least_pages, most_pages;
    } rows[] = {
        {UINT64_MAX, 131072, 131072, 8 * 4097, 8 * 4097}, /* nothing is known of a limit */
        {256 * GIB, 131072, 131072, 8 * 4097, 8 * 4097},  /* 8 x 4,097 pages x 1.25 MiB = 40 GiB */
        {16 * GIB, 131072, 131072, 6500,
         6553}, /* half: 8 GiB / 1.25 MiB = 6,553 pages; one context has 4,097 */
        {8 * GIB, 3200 * 32, 3276 * 32, 3200, 3276}, /* half: 4 GiB: 3,276 pages are one context */
        {2 * GIB, 640 * 32, 686 * 32, 640, 686},     /* left: 2048 - 128 - 1088 = 832 MiB: 665 pages */
        {1200 * MIB, 512, 1024, 17, 33},             /* left: 1200 - 75 - 1088 = 37 MiB: 29 pages */
    };
    const memory_needs n = needs();
    int32_t before = INT32_MAX;
    for (size_t i = 0; i < N_OF(rows); i++) {
        const memory_wish w = wish(rows[i].limit);
        memory_plan p = made(&n, &w);
        if (p.context < rows[i].least_context || p.context > rows[i].most_context ||
            p.pages < rows[i].least_pages || p.pages > rows[i].most_pages || p.context > before) {
            fail_msg("row %zu: context %d, %zu pages", i, (int)p.context, p.pages);
        }
        before = p.context;
        assert_true(p.pages > (size_t)p.context / 32);
    }
}

static void refused(const memory_needs *n, const memory_wish *w, status want, const char *field,
                    const char *says)
{
    memory_plan p = {.context = 77};
    err e = {0};
    assert_int_equal(memory_plan_make(n, w, &p, &e), want);
    assert_string_equal(e.field, field);
    assert_int_equal(p.context, 77);
    if (!strstr(e.msg, says)) {
        fail_msg("\"%s\" does not say \"%s\"", e.msg, says);
    }
}

/* Both numbers are said, and the one that is needed is enough. */
static void test_too_small(void **state)
{
    memory_needs n = needs();
    memory_wish w = wish(GIB);
    err e = {0};
    memory_plan p;
    refused(&n, &w, ST_LOAD_FAILED, "memory", "1073741824 may be used");
    assert_int_equal(memory_plan_make(&n, &w, &p, &e), ST_LOAD_FAILED);
    unsigned long long need = 0;
    assert_int_equal(sscanf(strstr(e.msg, "need ") + 5, "%llu", &need), 1);
    assert_true(need > GIB + 64 * MIB);
    w.limit_bytes = need + need / 15; /* the spare sixteenth is of the limit */
    p = made(&n, &w);
    assert_true(p.context >= 512);
    w = wish(1);
    refused(&n, &w, ST_LOAD_FAILED, "memory", "1 may be used");
    n.packed_bytes = UINT64_MAX; /* sums do not begin again at 0 */
    w = wish(GIB);
    refused(&n, &w, ST_LOAD_FAILED, "memory", "18446744073709551615");
    n = needs();
    n.context_train = 100; /* less than the least: all of it */
    w = wish(1200 * MIB);
    assert_int_equal(made(&n, &w).context, 100);
}

/* What the refusal says is needed is enough, and a byte less is not: whoever raises the limit does it once. */
static void test_what_is_needed(void **state)
{
    static const struct {
        uint64_t limit;
        int32_t context;
    } rows[] = {{1, 0}, {GIB, 0}, {1100 * MIB, 0}, {GIB, 4096}, {4 * GIB, 131072}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        memory_needs n = needs();
        memory_wish w = wish(rows[i].limit);
        memory_plan p;
        err e;
        unsigned long long need = 0;
        w.context = rows[i].context;
        assert_int_equal(memory_plan_make(&n, &w, &p, &e), ST_LOAD_FAILED);
        const char *text = strstr(e.msg, "need ");
        assert_non_null(text);
        assert_int_equal(sscanf(text, "need %llu bytes", &need), 1);
        w.limit_bytes = need;
        made(&n, &w);
        w.limit_bytes = need - 1;
        assert_int_equal(memory_plan_make(&n, &w, &p, &e), ST_LOAD_FAILED);
    }
}

/* A context that was asked for may take more than half, but is never made smaller. */
static void test_asked(void **state)
{
    const memory_needs n = needs();
    memory_wish w = wish(8 * GIB);
    w.context = 4096 * 32; /* 4,097 x 1.25 MiB = 5 GiB, beside 1 GiB of weights */
    memory_plan p = made(&n, &w);
    assert_int_equal(p.context, 4096 * 32);
    assert_int_equal(p.pages, 4097); /* one context at least, also beyond half */
    w.limit_bytes = 6 * GIB;
    refused(&n, &w, ST_LOAD_FAILED, "memory", "a context of 131072 tokens need");
    w.context = 131073;
    refused(&n, &w, ST_INVALID_FIELD, "context", "131073");
    w.context = -1;
    refused(&n, &w, ST_INVALID_FIELD, "context", "-1");
    w = wish(8 * GIB);
    w.context = 1024;
    assert_int_equal(made(&n, &w).pages, 8 * 33); /* all lanes */
}

/* Pages that were asked for are neither more nor fewer, and change no context. */
static void test_pages(void **state)
{
    const memory_needs n = needs();
    memory_wish w = wish(8 * GIB);
    int32_t context = made(&n, &w).context;
    w.pages = 100;
    memory_plan p = made(&n, &w);
    assert_true(p.pages == 100 && p.most_pages == 100 && p.context == context);
    w.pages = 6000; /* 7.3 GiB beside 1 GiB */
    refused(&n, &w, ST_LOAD_FAILED, "memory", "6000 pages need");
    w = wish(8 * GIB);
    w.copies_bytes = 0; /* half: 4,096 pages */
    p = made(&n, &w);
    assert_true(p.copies_bytes == 0 && p.pages > 4000 && p.pages <= 4096);
}

/* What the machine has now bounds pages, not the context; what others may give up is reserved. */
static void test_now_and_later(void **state)
{
    const memory_needs n = needs();
    memory_wish w = wish(16 * GIB);
    const memory_plan all = made(&n, &w);
    w.available_bytes = 8 * GIB; /* 8 - 1.06 GiB: 5,680 pages */
    memory_plan p = made(&n, &w);
    assert_int_equal(p.context, all.context);
    assert_true(p.pages < all.pages && p.pages > 5500 && p.most_pages == all.most_pages);
    w.available_bytes = 0;
    p = made(&n, &w);
    assert_int_equal(p.context, all.context);
    assert_int_equal(p.pages, 4097);
    w = wish(8 * GIB);
    const memory_plan half = made(&n, &w);
    w.most_bytes = 16 * GIB;
    p = made(&n, &w);
    assert_true(p.context == half.context && p.pages == half.pages && p.most_pages > half.pages);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_context),        cmocka_unit_test(test_too_small),
        cmocka_unit_test(test_what_is_needed), cmocka_unit_test(test_asked),
        cmocka_unit_test(test_pages),          cmocka_unit_test(test_now_and_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
