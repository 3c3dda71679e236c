/*
 * Sessions as PROTOCOL 2 has them: reset reasons, reuse counts, dirty rules, the token forwarded after
 * `length`. A reason speaks of the session; what is reused may be more, where the prefix tree has it from earlier. Every reply is compared with what the model function says for the whole prompt, so warm equals
 * cold.
 */
#include "engine/test_main.h"

#include <string.h>

#include "engine/engine_rig.h"

typedef struct turn_expect {
    reset_reason reason;
    int32_t reused;
} turn_expect;

/* One greedy turn on s; checks reason, counts and that the reply is the model function's. */
static void turn(engine_rig *r, session *s, const int32_t *prompt, size_t n, int32_t max_new,
                 turn_expect want)
{
    int32_t all[FAKE_MAX_POS];
    reply_log l;
    log_init(&l, r);
    gen_request q = rig_request(&l, prompt, n, max_new);
    size_t n_logit_rows = r->model.n_logit_rows;
    q.session = s;
    rig_generate(r, &q, &l);
    assert_int_equal(r->model.n_logit_rows - n_logit_rows,
                     max_new); /* none for a prompt's middle or the last token */
    memcpy(all, prompt, n * sizeof *all);
    fake_greedy(&r->model, all, n, (size_t)max_new);
    log_expect_ids(&l, all + n, (size_t)max_new);
    assert_string_equal(reset_reason_name(l.result.reset), reset_reason_name(want.reason));
    assert_int_equal(l.result.reused_tokens, want.reused);
    assert_int_equal(l.result.prompt_tokens, n);
    assert_int_equal(l.result.prefilled_tokens, (int32_t)n - want.reused);
    assert_int_equal(l.result.reason, FINISH_LENGTH);
    log_release(&l);
}

static void expect_resident(const session *s, const int32_t *ids, size_t n)
{
    size_t got;
    const int32_t *have = session_resident(s, &got);
    assert_int_equal(got, n);
    if (n > 0) {
        assert_memory_equal(have, ids, n * sizeof *ids);
    }
}

static void open_with(engine_rig *r, session **s, bool cold)
{
    rig_config cfg = rig_config_default();
    cfg.cold = cold;
    rig_open(r, &cfg);
    assert_int_equal(session_open(r->en, s), ST_OK);
}

static void test_reasons(void **state)
{
    engine_rig r;
    session *s;
    int32_t p[400];
    open_with(&r, &s, false);
    rig_tokens(p, 400, 1);
    turn(&r, s, p, 50, 0, (turn_expect){RESET_NEW, 0});
    expect_resident(s, p, 50);
    turn(&r, s, p, 70, 0, (turn_expect){RESET_EXACT_PREFIX, 50});
    turn(&r, s, p, 70, 0, (turn_expect){RESET_EQUAL, 69}); /* the same prompt again */
    turn(&r, s, p, 40, 0,
         (turn_expect){RESET_EQUAL, 39}); /* the whole prompt is a prefix of what is resident */
    expect_resident(s, p, 40);
    turn(&r, s, p, 1, 0, (turn_expect){RESET_EQUAL, 0}); /* nothing to reuse: one token is always computed */
    turn(&r, s, p, 100, 0,
         (turn_expect){RESET_EXACT_PREFIX, 70}); /* the session knows one token, the tree 70 */
    p[32] ^= 1;                                  /* exactly one page shared */
    turn(&r, s, p, 100, 0, (turn_expect){RESET_PREFIX, 32});
    p[31] ^= 1; /* one token less */
    turn(&r, s, p, 100, 0, (turn_expect){RESET_MISMATCH, 0});
    p[77] ^= 1; /* inside a page: every shared token counts, the tail is dropped */
    turn(&r, s, p, 90, 0, (turn_expect){RESET_PREFIX, 77});
    expect_resident(s, p, 90);
    p[0] ^= 1;
    turn(&r, s, p, 90, 0, (turn_expect){RESET_MISMATCH, 0});
    assert_int_equal(session_reset(s), ST_OK);
    expect_resident(s, p, 0);
    turn(&r, s, p, 90, 0, (turn_expect){RESET_NEW, 89});
    p[0] ^= 1; /* what nobody has seen, on a session of few tokens */
    turn(&r, s, p, 12, 0, (turn_expect){RESET_MISMATCH, 0});
    turn(&r, s, p, 30, 0,
         (turn_expect){RESET_EXACT_PREFIX, 12}); /* less than a page is fine for this reason */
    session_close(s);
    rig_close(&r);
}

/* With replies between: what was resident is the reply too, and each warm reply equals the cold one. */
static void test_replies_equal_cold(void **state)
{
    static const struct {
        size_t n_prompt;
        int32_t n_new;
        size_t flip; /* this prompt token is changed first; SIZE_MAX = none */
        turn_expect want;
    } turns[] = {
        {45, 20, SIZE_MAX, {RESET_NEW, 0}},
        {66, 10, SIZE_MAX, {RESET_MISMATCH, 0}}, /* filled in below: 45 + 20 + 1 new */
        {60, 30, 50, {RESET_PREFIX, 50}},
        {60, 5, 10, {RESET_MISMATCH, 0}},
        {33, 40, SIZE_MAX, {RESET_EQUAL, 32}},
    };
    engine_rig r;
    session *s;
    int32_t p[400];
    open_with(&r, &s, false);
    rig_tokens(p, 400, 2);
    for (size_t i = 0; i < N_OF(turns); i++) {
        turn_expect want = turns[i].want;
        if (i == 1) { /* the client splices the reply */
            fake_greedy(&r.model, p, 45, 20);
            want = (turn_expect){RESET_EXACT_PREFIX, 65};
        }
        if (turns[i].flip != SIZE_MAX) {
            p[turns[i].flip] ^= 1;
        }
        turn(&r, s, p, turns[i].n_prompt, turns[i].n_new, want);
    }
    session_close(s);
    rig_close(&r);
}

/* The last token of a `length` end is forwarded: the next turn reuses prompt_tokens + completion_tokens. */
static void test_length_forwards_the_last_token(void **state)
{
    engine_rig r;
    session *s;
    int32_t p[400];
    open_with(&r, &s, false);
    rig_tokens(p, 10, 3);
    turn(&r, s, p, 10, 7, (turn_expect){RESET_NEW, 0});
    fake_greedy(&r.model, p, 10, 7);
    expect_resident(s, p, 17);
    p[17] = 5;
    turn(&r, s, p, 18, 1, (turn_expect){RESET_EXACT_PREFIX, 17});
    fake_greedy(&r.model, p, 18, 1);
    expect_resident(s, p, 19);
    session_close(s);
    rig_close(&r);
}

static void test_context_ceiling(void **state)
{
    rig_config cfg = rig_config_default();
    engine_rig r;
    session *s;
    int32_t p[64];
    cfg.n_ctx = 40;
    rig_open(&r, &cfg);
    assert_int_equal(session_open(r.en, &s), ST_OK);
    rig_tokens(p, 64, 4);
    for (int named = 0; named < 2; named++) {
        reply_log l;
        log_init(&l, &r);
        gen_request q = rig_request(&l, p, 30, -1);
        q.session = named ? s : NULL;
        rig_generate(&r, &q, &l);
        int32_t all[64];
        memcpy(all, p, 30 * sizeof *p);
        fake_greedy(&r.model, all, 30, 10);
        log_expect_ids(&l, all + 30, 10);
        assert_int_equal(l.result.reason, FINISH_LENGTH);
        assert_string_equal(l.guard, "context");
        if (named) {
            expect_resident(s, all, 40); /* the last one fits: position 39 */
        }
        log_release(&l);
    }
    session_close(s);
    rig_close(&r);
}

static void test_cold_reuses_nothing(void **state)
{
    engine_rig r;
    session *s;
    int32_t p[100];
    open_with(&r, &s, true);
    rig_tokens(p, 100, 5);
    turn(&r, s, p, 50, 3, (turn_expect){RESET_NEW, 0});
    turn(&r, s, p, 50, 3, (turn_expect){RESET_NEW, 0});
    turn(&r, s, p, 80, 3, (turn_expect){RESET_NEW, 0});
    assert_int_equal(rig_stats(&r).pages_used, 0); /* nor is anything kept for it */
    reply_log l;
    log_init(&l, &r);
    l.cancel_after = 1;
    gen_request q = rig_request(&l, p, 50, 3);
    q.session = s;
    rig_generate(&r, &q, &l);
    log_release(&l);
    assert_true(session_dirty(s));
    turn(&r, s, p, 50, 3, (turn_expect){RESET_NEW, 0}); /* that comes before dirty */
    assert_false(session_dirty(s));
    session_close(s);
    rig_close(&r);
}

/* A request that is cut before it had its session leaves it as it was. */
static void test_cut_in_the_queue_touches_nothing(void **state)
{
    engine_rig r;
    session *s;
    int32_t p[100];
    reply_log l[2];
    open_with(&r, &s, false);
    rig_tokens(p, 100, 14);
    for (size_t i = 0; i < 2; i++) {
        log_init(&l[i], &r);
        gen_request q = rig_request(&l[i], p + i, 40, 4);
        q.session = s;
        rig_submit(&r, &q, &l[i]);
    }
    engine_step(r.en);
    seq_cancel(l[1].seq);
    rig_drain(&r);
    assert_int_equal(l[1].result.reason, FINISH_CANCELLED);
    assert_int_equal(l[1].result.prefilled_tokens, 0);
    assert_false(session_dirty(s));
    fake_greedy(&r.model, p, 40, 4);
    log_expect_ids(&l[0], p + 40, 4);
    expect_resident(s, p, 44);
    log_release(&l[0]);
    log_release(&l[1]);
    session_close(s);
    rig_close(&r);
}

/* Pages that the session's own reset gives back count for its next request. */
static void test_own_pages_count(void **state)
{
    rig_config cfg = rig_config_default();
    engine_rig r;
    session *s;
    int32_t p[512];
    cfg.n_pages = 16;
    rig_open(&r, &cfg);
    assert_int_equal(session_open(r.en, &s), ST_OK);
    rig_tokens(p, 512, 15);
    turn(&r, s, p, 440, 0, (turn_expect){RESET_NEW, 0});
    turn(&r, s, p + 1, 500, 12, (turn_expect){RESET_MISMATCH, 0}); /* all 16 */
    session_close(s);
    rig_close(&r);
}

/* Dirty: after a failure and a cancel (the stop string is in test_reply_text); only a reset that works clears
 * it. */
static void test_dirty_after_cancel(void **state)
{
    engine_rig r;
    session *s;
    int32_t p[100];
    reply_log l;
    open_with(&r, &s, false);
    rig_tokens(p, 100, 6);
    log_init(&l, &r);
    l.cancel_after = 3;
    gen_request q = rig_request(&l, p, 40, 50);
    q.session = s;
    rig_generate(&r, &q, &l);
    assert_int_equal(l.result.reason, FINISH_CANCELLED);
    assert_int_equal(l.ids.len, 3);
    assert_true(session_dirty(s));
    log_release(&l);
    turn(&r, s, p, 60, 2, (turn_expect){RESET_DIRTY, 40}); /* what was computed is in the tree */
    assert_false(session_dirty(s));
    turn(&r, s, p, 60, 2, (turn_expect){RESET_EQUAL, 59});
    session_close(s);
    rig_close(&r);
}

static void test_dirty_after_failure(void **state)
{
    engine_rig r;
    session *s;
    int32_t p[100];
    reply_log l;
    open_with(&r, &s, false);
    rig_tokens(p, 100, 7);
    turn(&r, s, p, 40, 0, (turn_expect){RESET_NEW, 0});
    log_init(&l, &r);
    r.model.bad_token = p[45];
    gen_request q = rig_request(&l, p, 60, 2);
    q.session = s;
    rig_generate(&r, &q, &l);
    assert_int_equal(l.n_failed, 1);
    assert_int_equal(l.error.code, ST_NONFINITE);
    assert_true(session_dirty(s));
    assert_int_equal(rig_stats(&r).pages_used, 0);
    log_release(&l);
    r.model.bad_token = -1;
    turn(&r, s, p, 60, 2, (turn_expect){RESET_DIRTY, 40}); /* of the turn before: nothing of the failed one */
    /* The op clears it too. */
    log_init(&l, &r);
    r.model.bad_token = p[61];
    q = rig_request(&l, p, 64, 2);
    q.session = s;
    rig_generate(&r, &q, &l);
    assert_true(session_dirty(s));
    log_release(&l);
    r.model.bad_token = -1;
    assert_int_equal(session_reset(s), ST_OK);
    assert_false(session_dirty(s));
    turn(&r, s, p, 60, 2, (turn_expect){RESET_NEW, 59});
    session_close(s);
    rig_close(&r);
}

/* A deadline cut leaves ids and state in step, so the session stays clean. */
static void test_timeout_is_not_dirty(void **state)
{
    engine_rig r;
    session *s;
    int32_t p[100];
    reply_log l;
    open_with(&r, &s, false);
    rig_tokens(p, 40, 8);
    log_init(&l, &r);
    gen_request q = rig_request(&l, p, 40, 50);
    q.session = s;
    q.deadline_ns = r.clock.now_ns + 5000000;
    rig_submit(&r, &q, &l);
    for (int i = 0; i < 6; i++) {
        engine_step(r.en); /* 2 of prefill, the second brings a token; then 4 tokens */
    }
    clock_fake_advance_ms(&r.clock, 5);
    engine_step(r.en);
    assert_int_equal(l.result.reason, FINISH_TIMEOUT);
    assert_false(session_dirty(s));
    fake_greedy(&r.model, p, 40, 5);
    log_expect_ids(&l, p + 40, 5);
    expect_resident(s, p, 44); /* the fifth was not computed any more */
    turn(&r, s, p, 45, 3, (turn_expect){RESET_EXACT_PREFIX, 44});
    log_release(&l);
    session_close(s);
    rig_close(&r);
}

/* The forward of the last token goes bad after the outcome was sealed: the reply stands, the session is
 * dirty. */
static void test_spoilt_tail(void **state)
{
    engine_rig r;
    session *s;
    int32_t p[32];
    reply_log l;
    open_with(&r, &s, false);
    rig_tokens(p, 10, 9);
    fake_greedy(&r.model, p, 10, 3);
    log_init(&l, &r);
    gen_request q = rig_request(&l, p, 10, 3);
    q.session = s;
    r.model.bad_token = p[12];
    for (size_t i = 0; i < 12; i++) {
        assert_int_not_equal(p[i], p[12]); /* only the last one is bad */
    }
    rig_generate(&r, &q, &l);
    log_expect_ids(&l, p + 10, 3);
    assert_int_equal(l.result.reason, FINISH_LENGTH);
    assert_true(session_dirty(s));
    log_release(&l);
    session_close(s);
    rig_close(&r);
}

static void test_refused_leaves_everything(void **state)
{
    engine_rig r;
    session *s;
    int32_t p[600];
    int32_t wrong[] = {1, 2, RIG_VOCAB}, negative[] = {-1};
    reply_log l;
    err e;
    open_with(&r, &s, false);
    rig_tokens(p, 600, 10);
    turn(&r, s, p, 40, 2, (turn_expect){RESET_NEW, 0});
    fake_greedy(&r.model, p, 40, 2);
    log_init(&l, &r);
    gen_request good = rig_request(&l, p, 50, 4);
    good.session = s;
    gen_request q = good;
    q.n_prompt = 0;
    assert_int_equal(rig_refused(&r, &q, &e), ST_INVALID_FIELD);
    assert_string_equal(e.field, "prompt");
    q = good;
    q.prompt = wrong;
    q.n_prompt = 3;
    assert_int_equal(rig_refused(&r, &q, &e), ST_INVALID_FIELD);
    assert_string_equal(e.field, "prompt");
    assert_non_null(strstr(e.msg, "300")); /* the id and the vocabulary */
    q.prompt = negative;
    q.n_prompt = 1;
    assert_int_equal(rig_refused(&r, &q, &e), ST_INVALID_FIELD);
    assert_non_null(strstr(e.msg, "-1"));
    q = good;
    q.n_prompt = 512;
    assert_int_equal(rig_refused(&r, &q, &e), ST_CONTEXT_LENGTH);
    q.n_prompt = 600;
    assert_int_equal(rig_refused(&r, &q, &e), ST_CONTEXT_LENGTH);
    assert_non_null(strstr(e.msg, "600"));
    assert_non_null(strstr(e.msg, "512"));
    q = good;
    q.params.temperature = -1.0f;
    assert_int_equal(rig_refused(&r, &q, &e), ST_INVALID_FIELD);
    assert_string_equal(e.field, "temperature");
    expect_resident(s, p, 42);
    assert_false(session_dirty(s));
    assert_false(session_busy(s));
    /* A dirty one stays dirty. */
    l.cancel_after = 1;
    rig_generate(&r, &good, &l);
    assert_true(session_dirty(s));
    assert_int_equal(rig_refused(&r, &q, &e), ST_INVALID_FIELD);
    assert_true(session_dirty(s));
    log_release(&l);
    session_close(s);
    rig_close(&r);
}

/* Requests on one session run one after another in the order given, others in between. */
static void test_one_after_another(void **state)
{
    engine_rig r;
    session *s;
    int32_t p[400], other[20];
    reply_log l[4], lo;
    open_with(&r, &s, false);
    rig_tokens(p, 400, 11);
    rig_tokens(other, 20, 12);
    for (size_t i = 0; i < 4; i++) {
        log_init(&l[i], &r);
        gen_request q = rig_request(&l[i], p, 40 + 20 * i, 3);
        q.session = s;
        rig_submit(&r, &q, &l[i]);
    }
    log_init(&lo, &r);
    gen_request q = rig_request(&lo, other, 20, 3);
    rig_submit(&r, &q, &lo);
    assert_true(session_busy(s));
    while (engine_step(r.en)) {
        for (size_t i = 1; i < 4; i++) {
            assert_true(!log_over(&l[i]) || log_over(&l[i - 1]));
            assert_true(l[i].ids.len == 0 || log_over(&l[i - 1]));
        }
        assert_true(log_over(&lo) || !log_over(&l[1])); /* the other did not wait for them */
    }
    /* The reply stands between, so the shared part is the prompt before: 40, 60, 80. */
    for (size_t i = 0; i < 4; i++) {
        int32_t all[200];
        memcpy(all, p, sizeof all);
        fake_greedy(&r.model, all, 40 + 20 * i, 3);
        log_expect_ids(&l[i], all + 40 + 20 * i, 3);
        assert_int_equal(l[i].result.reset, i ? RESET_PREFIX : RESET_NEW);
        assert_int_equal(l[i].result.reused_tokens, i ? 20 + 20 * (int)i : 0);
        log_release(&l[i]);
    }
    log_release(&lo);
    assert_false(session_busy(s));
    session_close(s);
    rig_close(&r);
}

/* What idle sessions left serves a request that needs pages, the oldest first; their tokens stay known. */
static void test_idle_sessions_give_way(void **state)
{
    rig_config cfg = rig_config_default();
    engine_rig r;
    session *s[3];
    int32_t p[900];
    cfg.n_pages = 16;
    rig_open(&r, &cfg);
    rig_tokens(p, 900, 13);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(session_open(r.en, &s[i]), ST_OK);
        turn(&r, s[i], p + 100 * i, 128, 0, (turn_expect){RESET_NEW, 0}); /* 4 pages each */
    }
    turn(&r, s[0], p, 128, 0, (turn_expect){RESET_EQUAL, 127}); /* now s[1] is the oldest */
    assert_int_equal(rig_stats(&r).pages_used, 0);
    assert_int_equal(rig_stats(&r).pages_cached, 12);
    reply_log l;
    log_init(&l, &r);
    gen_request q = rig_request(&l, p + 400, 200, 40); /* 8 pages: 4 free and 4 that one session left */
    rig_generate(&r, &q, &l);
    log_release(&l);
    expect_resident(s[1], p + 100, 128);
    turn(&r, s[0], p, 128, 0, (turn_expect){RESET_EQUAL, 127});
    turn(&r, s[2], p + 200, 128, 0,
         (turn_expect){RESET_EQUAL, 96}); /* s[0] needed a page for a copy of its last */
    turn(&r, s[1], p + 100, 128, 0, (turn_expect){RESET_EQUAL, 0});
    /* What a request goes on from is not taken for the rest of it. */
    turn(&r, s[1], p + 100, 500, 12, (turn_expect){RESET_EXACT_PREFIX, 128});
    turn(&r, s[0], p, 128, 0, (turn_expect){RESET_EQUAL, 0});
    for (size_t i = 0; i < 3; i++) {
        session_close(s[i]);
    }
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reasons),
        cmocka_unit_test(test_replies_equal_cold),
        cmocka_unit_test(test_length_forwards_the_last_token),
        cmocka_unit_test(test_context_ceiling),
        cmocka_unit_test(test_cold_reuses_nothing),
        cmocka_unit_test(test_cut_in_the_queue_touches_nothing),
        cmocka_unit_test(test_own_pages_count),
        cmocka_unit_test(test_dirty_after_cancel),
        cmocka_unit_test(test_dirty_after_failure),
        cmocka_unit_test(test_timeout_is_not_dirty),
        cmocka_unit_test(test_spoilt_tail),
        cmocka_unit_test(test_refused_leaves_everything),
        cmocka_unit_test(test_one_after_another),
        cmocka_unit_test(test_idle_sessions_give_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
