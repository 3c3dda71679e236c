/*
 * The engine at its limits: budgets, pages, want of memory, rows and forward calls that go wrong; and its
 * times.
 */
#include "engine/test_main.h"

#include <string.h>

#include "base/mem.h"
#include "engine/engine_rig.h"
#include "engine/policy.h"

static void test_budgets(void **state)
{
    engine_rig r;
    rig_config cfg = rig_config_default();
    int32_t p[64];
    static const struct {
        size_t n_prompt;
        int32_t max_new;
        size_t want;
        const char *guard;
    } rows[] = {
        {40, 0, 0, ""},          /* nothing is generated, the prompt is computed */
        {40, 1, 1, ""},          /**/
        {40, 24, 24, ""},        /* exactly what is left: the caller's own limit */
        {40, 25, 24, "context"}, /* clamped */
        {40, INT32_MAX, 24, "context"},
        {40, -1, 24, "context"},
        {63, -1, 1, "context"}, /* context - 1: room for one */
        {1, -1, 63, "context"},
    };
    rig_tokens(p, 64, 5);
    cfg.n_ctx = 64;
    rig_open(&r, &cfg);
    for (size_t i = 0; i < N_OF(rows); i++) {
        reply_log l;
        log_init(&l, &r);
        gen_request q = rig_request(&l, p, rows[i].n_prompt, rows[i].max_new);
        rig_generate(&r, &q, &l);
        log_expect_greedy(&l, p, rows[i].n_prompt, rows[i].want);
        assert_int_equal(l.result.reason, FINISH_LENGTH);
        assert_string_equal(l.guard, rows[i].guard);
        assert_int_equal(l.result.reused_tokens + l.result.prefilled_tokens, rows[i].n_prompt);
        log_release(&l);
    }
    rig_close(&r);
}

/* Pages: what can never fit is refused with the numbers; what does not fit now waits and is not overtaken. */
static void pages_case(bool late)
{
    rig_config cfg = rig_config_default();
    engine_rig r;
    reply_log l[3];
    int32_t p[400];
    err e;
    rig_tokens(p, 400, 11);
    cfg.n_pages = 10;
    rig_open(&r, &cfg);
    log_init(&l[0], &r);
    gen_request q = rig_request(&l[0], p, 300, 21);
    assert_int_equal(rig_refused(&r, &q, &e), ST_NEVER_FITS);
    assert_non_null(strstr(e.msg, "11 pages"));
    assert_non_null(strstr(e.msg, "10"));
    q = rig_request(&l[0], p, 240, 16); /* 8 pages */
    rig_submit(&r, &q, &l[0]);
    log_init(&l[1], &r);
    q = rig_request(&l[1], p, 300, 20); /* all ten: must wait for the first */
    rig_submit(&r, &q, &l[1]);
    if (late) {
        clock_fake_advance_ms(&r.clock, POLICY_PASS_NS / 1000000);
    }
    log_init(&l[2], &r);
    q = rig_request(&l[2], p, 20, 10); /* one: fits at once */
    rig_submit(&r, &q, &l[2]);
    while (engine_running(r.en) > 0) {
        engine_step(r.en);
        assert_true(log_over(&l[0]) || l[1].ids.len == 0);
        assert_true(!late || log_over(&l[1]) || l[2].ids.len == 0);
        assert_true(late || l[2].ids.len > 0 || l[0].ids.len == 0);
    }
    log_expect_greedy(&l[0], p, 240, 16);
    log_expect_greedy(&l[1], p, 300, 20);
    log_expect_greedy(&l[2], p, 20, 10);
    for (size_t i = 0; i < 3; i++) {
        log_release(&l[i]);
    }
    rig_close(&r);
}

/* What does not fit may be passed by what does, until it has waited too long. */
static void test_pages(void **state)
{
    pages_case(false);
    pages_case(true);
}

/* What an early end did not use is free again at once. */
static void test_promised_pages_come_back(void **state)
{
    rig_config cfg = rig_config_default();
    engine_rig r;
    int32_t p[20];
    rig_tokens(p, 20, 18);
    cfg.n_pages = 16; /* one context */
    rig_open(&r, &cfg);
    for (int i = 0; i < 20; i++) {
        reply_log l;
        log_init(&l, &r);
        l.cancel_after = 1;
        gen_request q = rig_request(&l, p, 20, -1);
        rig_generate(&r, &q, &l);
        assert_int_equal(l.ids.len, 1);
        log_release(&l);
    }
    rig_close(&r);
}

/* A non-finite row fails its own sequence; the neighbours in that batch do not notice. */
static void test_bad_row_fails_alone(void **state)
{
    rig_config cfg = rig_config_default();
    engine_rig r;
    reply_log l[3];
    int32_t p[3][70];
    rig_open(&r, &cfg);
    r.model.bad_token = 7;
    for (size_t i = 0; i < 3; i++) {
        rig_tokens(p[i], 70, 12 + i);
        for (size_t k = 0; k < 70; k++) {
            p[i][k] += p[i][k] == 7;
        }
    }
    p[1][50] = 7; /* in its second chunk */
    for (size_t i = 0; i < 3; i++) {
        log_init(&l[i], &r);
        gen_request q = rig_request(&l[i], p[i], 70, 5);
        rig_submit(&r, &q, &l[i]);
    }
    rig_drain(&r);
    assert_int_equal(l[1].n_failed, 1);
    assert_int_equal(l[1].error.code, ST_NONFINITE);
    assert_int_equal(l[1].ids.len, 0);
    log_expect_greedy(&l[0], p[0], 70, 5);
    log_expect_greedy(&l[2], p[2], 70, 5);
    engine_stats st = rig_stats(&r);
    assert_int_equal(st.requests_failed, 1);
    assert_int_equal(st.requests_done, 2);
    assert_int_equal(st.bugs, 0);
    for (size_t i = 0; i < 3; i++) {
        log_release(&l[i]);
    }
    rig_close(&r);
}

/* A forward call that fails ends the sequences of that batch, is counted, and the engine goes on. */
static void test_failed_forward(void **state)
{
    rig_config cfg = rig_config_default();
    engine_rig r;
    reply_log l[3];
    int32_t p[20];
    rig_tokens(p, 20, 15);
    rig_open(&r, &cfg);
    for (size_t i = 0; i < 3; i++) {
        r.model.fail = i < 2 ? ST_INTERNAL : ST_OK;
        log_init(&l[i], &r);
        gen_request q = rig_request(&l[i], p, 20, 5);
        rig_submit(&r, &q, &l[i]);
        if (i > 0) {
            rig_drain(&r);
        }
    }
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(l[i].n_failed, 1);
        assert_int_equal(l[i].error.code, ST_INTERNAL);
        log_release(&l[i]);
    }
    log_expect_greedy(&l[2], p, 20, 5);
    log_release(&l[2]);
    assert_int_equal(rig_stats(&r).bugs, 3); /* the batch, then each of the two alone */
    rig_close(&r);
}

/* Every allocation of a submit fails once: ST_NOMEM, nothing changed, and the next try works. */
static void test_no_memory(void **state)
{
    rig_config cfg = rig_config_default();
    engine_rig r;
    session *s;
    int32_t p[300];
    static const logit_bias bias[] = {{3, -1.0f}, {9, 2.0f}};
    static const int32_t stop_ids[] = {5, 6};
    rig_tokens(p, 300, 16);
    rig_open(&r, &cfg);
    assert_int_equal(session_open(r.en, &s), ST_OK);
    for (int sticky = 0; sticky < 2; sticky++) {
        size_t n_failures = 0;
        for (uint64_t n = 1;; n++) {
            reply_log l;
            log_init(&l, &r);
            gen_request q =
                rig_request(&l, p, 200 + 10 * n_failures, 20); /* the session must grow each time */
            q.session = s;
            q.params.bias = bias;
            q.params.n_bias = 2;
            q.stop_ids = stop_ids;
            q.n_stop_ids = 2;
            q.prompt_logprobs = 3;
            err e;
            mem_fail_at(n, sticky);
            status st = engine_submit(r.en, &q, &l.seq, &e);
            mem_fail_at(0, false);
            if (st == ST_OK) {
                rig_drain(&r);
                assert_int_equal(l.n_done, 1);
                log_release(&l);
                break;
            }
            assert_int_equal(st, ST_NOMEM);
            assert_int_equal(engine_running(r.en), 0);
            assert_false(session_busy(s));
            n_failures++;
            log_release(&l);
        }
        assert_true(n_failures >= 5);
        assert_int_equal(session_reset(s), ST_OK);
    }
    session_close(s);
    rig_close(&r);
}

static void test_config(void **state)
{
    fake_model m;
    clock_fake clock;
    pool *compute;
    err e;
    fake_model_init(&m, RIG_VOCAB, 64, 4);
    clock_fake_init(&clock, 0, 0);
    assert_int_equal(pool_new(1, false, &compute, &e), ST_OK);
    const engine_config good = {.ops = m.ops,
                                .kern = kern_table_of(KERN_REF),
                                .compute = compute,
                                .clock = &clock.src,
                                .n_ctx = 512,
                                .n_pages = 16,
                                .prefill_chunk = 32,
                                .max_sequences = 4,
                                .warm = true};
    static const struct {
        const char *field;
        size_t chunk, sequences, pages;
        int32_t n_ctx;
    } rows[] = {
        {"prefill_chunk", 0, 4, 16, 512},  {"prefill_chunk", 65, 4, 16, 512},
        {"max_sequences", 32, 0, 16, 512}, {"max_sequences", 32, 5, 16, 512},
        {"n_pages", 32, 4, 0, 512},        {"context", 32, 4, 16, 1},
    };
    engine *en = NULL;
    for (size_t i = 0; i < N_OF(rows); i++) {
        engine_config c = good;
        c.prefill_chunk = rows[i].chunk;
        c.max_sequences = rows[i].sequences;
        c.n_pages = rows[i].pages;
        c.n_ctx = rows[i].n_ctx;
        assert_int_equal(engine_new(&c, &en, &e), ST_INVALID_FIELD);
        assert_string_equal(e.field, rows[i].field);
        assert_null(en);
    }
    for (uint64_t n = 1;; n++) { /* each allocation fails once */
        mem_fail_at(n, false);
        status st = engine_new(&good, &en, &e);
        mem_fail_at(0, false);
        if (st == ST_OK) {
            assert_true(n > 5);
            break;
        }
        assert_int_equal(st, ST_NOMEM);
        assert_null(en);
    }
    engine_free(en);
    engine_free(NULL);
    pool_free(compute);
}

/* Times on a clock that moves 3 ms in each step: 2 steps of prefill, then 4 of decode. */
static void advance_clock(void *ctx)
{
    clock_fake_advance_ms(ctx, 3);
}

static void test_times(void **state)
{
    rig_config cfg = rig_config_default();
    engine_rig r;
    reply_log l;
    int32_t p[64];
    rig_tokens(p, 64, 17);
    rig_open(&r, &cfg);
    log_init(&l, &r);
    gen_request q = rig_request(&l, p, 64, 5);
    rig_submit(&r, &q, &l);
    clock_fake_advance_ms(&r.clock, 100); /* in the queue */
    r.model.on_step = advance_clock;
    r.model.on_step_ctx = &r.clock;
    rig_drain(&r);
    assert_true(l.result.queue_ms == 100.0);
    assert_true(l.result.prefill_ms == 6.0);
    assert_true(l.result.decode_ms == 12.0);
    assert_true(l.result.total_ms == 118.0);
    assert_true(l.result.ttft_ms == 106.0);
    log_release(&l);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_budgets),
        cmocka_unit_test(test_pages),
        cmocka_unit_test(test_promised_pages_come_back),
        cmocka_unit_test(test_bad_row_fails_alone),
        cmocka_unit_test(test_failed_forward),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_config),
        cmocka_unit_test(test_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
