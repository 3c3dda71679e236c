/*
 * The limit of pages moves while replies run (DESIGN 7, PROTOCOL 4 `kv_limit`): what is only kept goes first, then
 * sequences give way, the last one goes beyond the limit alone, and no reply is another for it.
 */
#include "engine/test_main.h"

#include <string.h>

#include "engine/engine_rig.h"

#define N_PAGES 64

static rig_config config(size_t park_bytes)
{
    rig_config cfg = rig_config_default();
    cfg.n_ctx = 4000;
    cfg.n_pages = N_PAGES;
    cfg.chunk = 128;
    cfg.max_rows = 256;
    cfg.park_bytes = park_bytes;
    return cfg;
}

/* Pages that are taken, by what runs or kept. */
static size_t taken(const engine_rig *r)
{
    engine_stats st = rig_stats(r);
    return st.pages_used + st.pages_cached;
}

static void generate(engine_rig *r, reply_log *l, int32_t *prompt, size_t n, int32_t n_new, uint64_t seed)
{
    rig_tokens(prompt, n, seed);
    log_init(l, r);
    gen_request q = rig_request(l, prompt, n, n_new);
    rig_submit(r, &q, l);
}

static void test_cached_goes_first(void **state)
{
    static int32_t prompt[2][600];
    static reply_log logs[2];
    engine_rig r;
    rig_config cfg = config(0);
    rig_open(&r, &cfg);
    generate(&r, &logs[0], prompt[0], 600, 8, 1);
    rig_drain(&r);
    assert_int_equal(rig_stats(&r).pages_cached, 19);
    generate(&r, &logs[1], prompt[1], 100, 60, 2);
    while (logs[1].ids.len == 0) {
        rig_step(&r);
    }
    assert_int_equal(engine_set_page_limit(r.en, 15), 15);
    engine_stats st = rig_stats(&r);
    assert_int_equal(st.pages_total, 15);
    assert_true(st.pages_cached > 0 && taken(&r) <= 15); /* no more than needed, the oldest */
    assert_int_equal(engine_set_page_limit(r.en, 5), 5); /* what it has and what was promised to it */
    assert_int_equal(rig_stats(&r).pages_cached, 0);
    rig_drain(&r);
    assert_int_equal(rig_stats(&r).preemptions, 0);
    for (size_t i = 0; i < 2; i++) {
        log_expect_greedy(&logs[i], prompt[i], i ? 100 : 600, i ? 60 : 8);
        log_release(&logs[i]);
    }
    rig_close(&r);
}

/* Longer than the limit by far: it is what it is without one, and the memory is given back behind it. */
static void test_alone_beyond_it(void **state)
{
    static int32_t prompt[900];
    static reply_log l;
    engine_rig r;
    rig_config cfg = config(0);
    rig_open(&r, &cfg);
    assert_int_equal(engine_set_page_limit(r.en, 3), 3);
    generate(&r, &l, prompt, 900, -1, 3);
    rig_drain(&r);
    log_expect_greedy(&l, prompt, 900, N_PAGES * KV_PAGE_TOKENS - 900); /* the pool is the context, as ever */
    assert_string_equal(l.guard, "context");
    log_release(&l);
    rig_step(&r);
    assert_int_equal(rig_stats(&r).pages_total, 3);
    assert_true(taken(&r) <= 3);
    rig_close(&r);
}

/* Four at once and a limit for one: the eldest goes on, the others come one after the other. */
static void test_all_but_the_eldest(void **state)
{
    static int32_t prompt[4][300];
    static reply_log logs[4];
    for (size_t park = 0; park < 2; park++) {
        engine_rig r;
        rig_config cfg = config(park ? 1 << 20 : 0);
        rig_open(&r, &cfg);
        for (size_t i = 0; i < 4; i++) {
            generate(&r, &logs[i], prompt[i], 300, 100, 10 + i);
        }
        while (logs[3].ids.len == 0) {
            rig_step(&r);
        }
        assert_int_equal(engine_set_page_limit(r.en, 0), 1); /* one is the least */
        engine_stats st = rig_stats(&r);
        assert_int_equal(st.parked, 3);
        assert_true(st.pages_used >= 10 && st.pages_used <= 14);
        while (!log_over(&logs[0])) {
            rig_step(&r);
            assert_true(rig_stats(&r).parked == 3 || log_over(&logs[0]));
        }
        rig_drain(&r);
        for (size_t i = 0; i < 4; i++) {
            log_expect_greedy(&logs[i], prompt[i], 300, 100);
            log_release(&logs[i]);
        }
        assert_int_equal(engine_set_page_limit(r.en, N_PAGES + 1), N_PAGES);
        assert_int_equal(rig_stats(&r).pages_total, N_PAGES);
        rig_close(&r);
    }
}

/* A copy of pages is memory, too. */
static void test_copies_shrink(void **state)
{
    static int32_t prompt[2][600];
    static reply_log logs[2];
    engine_rig r;
    fake_model_init(&r.model, RIG_VOCAB, 64, 4); /* how large its pages are */
    rig_config cfg = config(N_PAGES * r.model.ops.page_bytes);
    rig_open(&r, &cfg);
    for (size_t i = 0; i < 2; i++) {
        generate(&r, &logs[i], prompt[i], 600, 40, 20 + i);
    }
    while (logs[1].ids.len == 0) {
        rig_step(&r);
    }
    engine_set_page_limit(r.en, 30); /* one is parked, with a copy: there may be one of 30 pages */
    rig_step(&r);
    assert_int_equal(rig_stats(&r).parked, 1);
    engine_set_page_limit(r.en, 1); /* the copy of 19 pages goes */
    engine_set_page_limit(r.en, N_PAGES);
    rig_drain(&r);
    engine_stats st = rig_stats(&r);
    assert_true(st.tokens_recomputed >= 576); /* not copied back */
    for (size_t i = 0; i < 2; i++) {
        log_expect_greedy(&logs[i], prompt[i], 600, 40);
        log_release(&logs[i]);
    }
    rig_close(&r);
}

/* The limit jumps at every step, whatever runs: sessions, cancels, paused readers. */
static void jump(uint64_t seed, size_t park_bytes)
{
    static int32_t prompt[12][400];
    static reply_log logs[12];
    size_t n_prompt[12], n_new[12], over = 0;
    uint64_t x = seed * 2654435761u + 1;
    engine_rig r;
    rig_config cfg = config(park_bytes);
    rig_open(&r, &cfg);
    for (size_t i = 0; i < 12; i++) {
        int32_t sizes[2];
        rig_tokens(sizes, 2, seed * 100 + i);
        n_prompt[i] = 1 + (size_t)sizes[0] * 399 / RIG_VOCAB;
        n_new[i] = 1 + (size_t)sizes[1];
        generate(&r, &logs[i], prompt[i], n_prompt[i], (int32_t)n_new[i], seed * 1000 + i % 7);
        logs[i].hold_after = i % 5 == 4 ? 2 : 0;
    }
    for (size_t step = 0; over < 12; step++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        engine_set_page_limit(r.en, 1 + (size_t)(x >> 40) % (N_PAGES + 4));
        rig_step(&r);
        assert_true(step < 100000);
        over = 0;
        for (size_t i = 0; i < 12; i++) {
            over += log_over(&logs[i]);
            if (!log_over(&logs[i]) && step % 64 == 63) {
                seq_hold(logs[i].seq, false);
            }
        }
    }
    for (size_t i = 0; i < 12; i++) {
        log_expect_greedy(&logs[i], prompt[i], n_prompt[i], n_new[i]);
        log_release(&logs[i]);
    }
    rig_close(&r);
}

static void test_jumps(void **state)
{
    for (uint64_t seed = 1; seed <= 12; seed++) {
        jump(seed, 0);
        jump(seed, 1 << 20);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cached_goes_first),
        cmocka_unit_test(test_alone_beyond_it),
        cmocka_unit_test(test_all_but_the_eldest),
        cmocka_unit_test(test_copies_shrink),
        cmocka_unit_test(test_jumps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
