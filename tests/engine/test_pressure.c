/*
 * Few pages (FAILURES K1) and many requests (K4): who gives way comes back, with the reply that it has alone, and
 * nothing is left of anybody.
 */
#include "engine/test_main.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sanitized.h"
#include "engine/engine_rig.h"

#define POOL_TOKENS 2048
#define N_SMALL     10

static rig_config pressure_config(size_t park_bytes)
{
    rig_config cfg = rig_config_default();
    cfg.n_ctx = 4000;
    cfg.n_pages = POOL_TOKENS / KV_PAGE_TOKENS;
    cfg.max_sequences = 4;
    cfg.chunk = 128;
    cfg.max_rows = 256;
    cfg.park_bytes = park_bytes;
    return cfg;
}

/* A pool of 2,048 tokens and 4 lanes: prompts of 500 and 1,400 tokens without a limit, then ten small ones. */
static void long_and_small(size_t park_bytes)
{
    static const size_t lens[] = {500, 1400};
    static int32_t prompts[2][1400], small[N_SMALL][20];
    static reply_log logs[2 + N_SMALL];
    engine_rig r;
    rig_config cfg = pressure_config(park_bytes);
    rig_open(&r, &cfg);
    for (size_t i = 0; i < N_OF(logs); i++) {
        log_init(&logs[i], &r);
    }
    for (size_t i = 0; i < 2; i++) {
        rig_tokens(prompts[i], lens[i], i);
        gen_request q = rig_request(&logs[i], prompts[i], lens[i], -1);
        rig_submit(&r, &q, &logs[i]);
        while (logs[i].ids.len == 0) {
            engine_step(r.en);
        }
    }
    for (size_t i = 0; i < N_SMALL; i++) {
        rig_tokens(small[i], 20, 100 + i);
        gen_request q = rig_request(&logs[2 + i], small[i], 20, 12);
        rig_submit(&r, &q, &logs[2 + i]);
    }
    rig_drain(&r);
    size_t n_preempted = 0;
    for (size_t i = 0; i < N_OF(logs); i++) {
        size_t n = i < 2 ? lens[i] : 20;
        log_expect_greedy(&logs[i], i < 2 ? prompts[i] : small[i - 2], n, i < 2 ? POOL_TOKENS - n : 12);
        assert_int_equal(logs[i].result.reason, FINISH_LENGTH);
        assert_string_equal(logs[i].guard, i < 2 ? "context" : "");
        n_preempted += logs[i].result.preemptions > 0;
        log_release(&logs[i]);
    }
    assert_int_equal(n_preempted, 1);
    engine_stats st = rig_stats(&r);
    assert_int_equal(st.requests_failed, 0);
    assert_int_equal(st.parked, 0);
    assert_int_equal(st.lanes_live, 0);
    assert_true(park_bytes ? st.tokens_restored > 0 : st.tokens_recomputed > 0);
    rig_close(&r); /* all pages are back */
}

static void test_long_and_small_recomputed(void **state)
{
    long_and_small(0);
}

static void test_long_and_small_parked(void **state)
{
    long_and_small(1 << 20);
}

/* Pages of memory that this process has. */
static size_t resident_pages(void)
{
    size_t total, mine;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%zu %zu", &total, &mine), 2);
    fclose(f);
    return mine;
}

/* Up to eight at a time; every tenth is cancelled at some moment of its life. */
static void many(engine_rig *r, size_t n)
{
    static int32_t prompt[40];
    static reply_log logs[8];
    for (size_t done = 0; done < n;) {
        size_t some = n - done < N_OF(logs) ? n - done : N_OF(logs);
        for (size_t i = 0; i < some; i++, done++) {
            reply_log *l = &logs[i];
            log_init(l, r);
            rig_tokens(prompt, N_OF(prompt), done % 50);
            gen_request q = rig_request(l, prompt, 1 + done % N_OF(prompt), 8);
            l->cancel_after = done % 20 == 3 ? 1 + done % 7 : 0; /* of 8 */
            rig_submit(r, &q, l);
            if (done % 20 == 13) {
                seq_cancel(l->seq);
            }
        }
        rig_drain(r);
        for (size_t i = 0; i < some; i++) {
            assert_int_equal(logs[i].n_done, 1);
            log_release(&logs[i]);
        }
    }
}

static void test_memory_stays(void **state)
{
    engine_rig r;
    rig_config cfg = rig_config_default();
    rig_open(&r, &cfg);
    many(&r, 5000);   /* all pages are in the tree by then, and its nodes' lists have grown */
    resident_pages(); /* what looking costs is there from now on */
    engine_stats first = rig_stats(&r);
    size_t bytes = mallinfo2().uordblks, rss = resident_pages();
    many(&r, 5000);
    engine_stats last = rig_stats(&r);
    assert_int_equal(
        last.requests_done + last.requests_cancelled - first.requests_done - first.requests_cancelled, 5000);
    assert_int_equal(last.requests_cancelled - first.requests_cancelled, 500);
    assert_int_equal(last.pages_used, 0);
    assert_int_equal(last.lanes_live, 0);
    if (!SANITIZED) {
        /* What the C library keeps to itself of freed blocks comes and goes; 5,000 of anything would be far more. */
        assert_in_range(mallinfo2().uordblks, 0, bytes + 4096);
        assert_in_range(resident_pages(), 0, rss + 16);
    }
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_long_and_small_recomputed),
        cmocka_unit_test(test_long_and_small_parked),
        cmocka_unit_test(test_memory_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
