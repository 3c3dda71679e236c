/*
 * Who runs: preemption and coming back, order by priority and age, lanes, chunks by time, and the plans that
 * generate nothing. Whatever happens, what is said is what the model function says (fake_model.h), and after each
 * step the engine's books agree.
 */
#include "engine/test_main.h"

#include <math.h>
#include <string.h>

#include "engine/engine_rig.h"
#include "engine/policy.h"

#define FAKE_PAGE_BYTES(r) ((r).model.ops.page_bytes)

typedef struct crowd {
    engine_rig r;
    reply_log l[8];
    int32_t p[8][400];
    size_t n_prompt[8];
    int32_t n_new[8];
} crowd;

static void crowd_open(crowd *c, const rig_config *cfg)
{
    memset(c, 0, sizeof *c);
    rig_open(&c->r, cfg);
}

static gen_request crowd_request(crowd *c, size_t i, size_t n_prompt, int32_t n_new)
{
    rig_tokens(c->p[i], n_prompt, 100 + i);
    c->n_prompt[i] = n_prompt;
    c->n_new[i] = n_new;
    log_init(&c->l[i], &c->r);
    return rig_request(&c->l[i], c->p[i], n_prompt, n_new);
}

static void crowd_add(crowd *c, size_t i, size_t n_prompt, int32_t n_new)
{
    gen_request q = crowd_request(c, i, n_prompt, n_new);
    rig_submit(&c->r, &q, &c->l[i]);
}

static void crowd_close(crowd *c, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        log_expect_greedy(&c->l[i], c->p[i], c->n_prompt[i], (size_t)c->n_new[i]);
        assert_int_equal(c->l[i].result.reused_tokens + c->l[i].result.prefilled_tokens, c->n_prompt[i]);
        log_release(&c->l[i]);
    }
    rig_close(&c->r);
}

/* Two replies outgrow the pool: the elder goes on, the other gives way and comes back, with a copy of its pages or
 * without, and nobody hears it. */
static void test_preempt(void **state)
{
    static const size_t copies[] = {0, 2, 100}; /* pages that may be aside */
    for (size_t k = 0; k < 3; k++) {
        static crowd c;
        rig_config cfg = rig_config_default();
        cfg.n_pages = 12;
        cfg.n_ctx = 384;
        engine_rig probe;
        rig_open(&probe, &cfg);
        cfg.park_bytes = copies[k] * FAKE_PAGE_BYTES(probe);
        rig_close(&probe);
        crowd_open(&c, &cfg);
        crowd_add(&c, 0, 60, 200); /* reserves 4 pages, grows to 9 */
        crowd_add(&c, 1, 90, 150); /* reserves 5, grows to 8 */
        rig_drain(&c.r);
        engine_stats st = rig_stats(&c.r);
        assert_int_equal(c.l[0].result.preemptions, 0); /* the eldest never gives way */
        assert_true(c.l[1].result.preemptions >= 1);
        assert_int_equal(st.preemptions, c.l[1].result.preemptions);
        /* Without a copy it finds in the tree what has not been taken yet, and computes the rest. */
        assert_true(st.tokens_recomputed + st.tokens_restored > 90);
        assert_true(copies[k] < 100 ? st.tokens_recomputed > 0 : st.tokens_recomputed == 0);
        crowd_close(&c, 2);
    }
}

/* One in the middle of its prompt gives way too, and what is scored is scored once. */
static void test_preempt_prompt(void **state)
{
    ivec alone = {0};
    for (int run = 0; run < 3; run++) { /* alone, then beside one that grows, without copies and with them */
        static crowd c;
        rig_config cfg = rig_config_default();
        cfg.n_pages = 14;
        cfg.chunk = 2;
        cfg.logit_rows = 12;
        cfg.park_bytes = run == 2 ? 1 << 20 : 0;
        crowd_open(&c, &cfg);
        if (run > 0) {
            crowd_add(&c, 0, 60, 200);
            while (c.l[0].ids.len < 64) { /* its reservation is used up soon */
                rig_step(&c.r);
            }
        }
        gen_request q = crowd_request(&c, 1, 240, 5);
        q.prompt_logprobs = 2;
        rig_submit(&c.r, &q, &c.l[1]);
        rig_drain(&c.r);
        log_expect_greedy(&c.l[1], c.p[1], 240, 5);
        assert_int_equal(c.l[1].n_prompt_calls, 1);
        assert_int_equal(c.l[1].result.prefilled_tokens, 240);
        assert_int_equal(c.l[1].result.preemptions > 0, run > 0);
        if (run == 0) {
            assert_int_equal(ivec_append(&alone, c.l[1].prompt_probs.data, c.l[1].prompt_probs.len), ST_OK);
        } else {
            log_expect_greedy(&c.l[0], c.p[0], 60, 200);
            log_release(&c.l[0]);
        }
        assert_int_equal(c.l[1].prompt_probs.len, alone.len);
        assert_memory_equal(c.l[1].prompt_probs.data, alone.data, alone.len * sizeof *alone.data);
        log_release(&c.l[1]);
        rig_close(&c.r);
    }
    ivec_release(&alone);
}

/* Cancelled or overdue while it is parked: it ends at the next step, with what it has said so far. */
static void test_cut_parked(void **state)
{
    for (int by_deadline = 0; by_deadline < 2; by_deadline++) {
        static crowd c;
        rig_config cfg = rig_config_default();
        cfg.n_pages = 12;
        cfg.n_ctx = 384;
        cfg.park_bytes = 1 << 20;
        crowd_open(&c, &cfg);
        crowd_add(&c, 0, 60, 200);
        gen_request q = crowd_request(&c, 1, 90, 150);
        q.deadline_ns = by_deadline ? c.r.clock.now_ns + UINT64_C(1000000000) : 0;
        rig_submit(&c.r, &q, &c.l[1]);
        while (rig_stats(&c.r).parked == 0) {
            rig_step(&c.r);
        }
        size_t n = c.l[1].ids.len;
        assert_true(n > 0);
        if (by_deadline) {
            clock_fake_advance_ms(&c.r.clock, 1000);
        } else {
            seq_cancel(c.l[1].seq);
        }
        rig_step(&c.r);
        assert_true(log_over(&c.l[1]));
        assert_int_equal(c.l[1].result.reason, by_deadline ? FINISH_TIMEOUT : FINISH_CANCELLED);
        assert_int_equal(c.l[1].ids.len, n);
        assert_int_equal(rig_stats(&c.r).parked, 0);
        c.n_new[1] = (int32_t)n;
        rig_drain(&c.r);
        log_expect_greedy(&c.l[0], c.p[0], 60, 200);
        log_release(&c.l[0]);
        log_release(&c.l[1]);
        rig_close(&c.r);
    }
}

/* A session's reply that was preempted leaves the session as if it had not been. */
static void test_preempt_session(void **state)
{
    static crowd c;
    rig_config cfg = rig_config_default();
    session *s;
    size_t n;
    cfg.n_pages = 12;
    cfg.n_ctx = 384;
    crowd_open(&c, &cfg);
    assert_int_equal(session_open(c.r.en, &s), ST_OK);
    crowd_add(&c, 0, 60, 200);
    gen_request q = crowd_request(&c, 1, 90, 150);
    q.session = s;
    rig_submit(&c.r, &q, &c.l[1]);
    rig_drain(&c.r);
    assert_true(c.l[1].result.preemptions > 0);
    assert_false(session_dirty(s));
    const int32_t *ids = session_resident(s, &n);
    assert_int_equal(n, 90 + 150);
    assert_memory_equal(ids, c.p[1], 90 * sizeof *ids);
    assert_memory_equal(ids + 90, c.l[1].ids.data, 150 * sizeof *ids);
    session_close(s);
    crowd_close(&c, 2);
}

/* A reader that does not read keeps nobody out: its reply gives its pages to one that wants to come in. */
static void test_held_gives_way(void **state)
{
    static crowd c;
    rig_config cfg = rig_config_default();
    cfg.n_pages = 12;
    cfg.n_ctx = 384;
    cfg.park_bytes = 1 << 20;
    crowd_open(&c, &cfg);
    crowd_add(&c, 0, 200, 30);
    while (c.l[0].ids.len < 5) {
        rig_step(&c.r);
    }
    seq_hold(c.l[0].seq, true);
    crowd_add(&c, 1, 250, 20);
    while (!log_over(&c.l[1])) {
        assert_true(engine_step(c.r.en));
    }
    assert_false(log_over(&c.l[0]));
    assert_int_equal(rig_stats(&c.r).preemptions, 1);
    seq_hold(c.l[0].seq, false);
    rig_drain(&c.r);
    crowd_close(&c, 2);
}

/* A larger priority is admitted first; one that has waited longer gains on it. */
static void test_priority(void **state)
{
    static crowd c;
    rig_config cfg = rig_config_default();
    cfg.max_sequences = 1;
    for (int aged = 0; aged < 2; aged++) {
        crowd_open(&c, &cfg);
        crowd_add(&c, 0, 10, 20);
        rig_step(&c.r);
        crowd_add(&c, 1, 10, 3);
        if (aged) {
            clock_fake_advance_ms(&c.r.clock, 6 * POLICY_AGEING_NS / 1000000);
        }
        gen_request q = crowd_request(&c, 2, 10, 3);
        q.priority = 5;
        rig_submit(&c.r, &q, &c.l[2]);
        while (!log_over(&c.l[1]) && !log_over(&c.l[2])) {
            rig_step(&c.r);
        }
        assert_int_equal(log_over(&c.l[1]), aged);
        rig_drain(&c.r);
        crowd_close(&c, 3);
    }
}

/* Idle sessions hold lanes; when they hold all of them the one unused for longest gives its own up. */
static void test_lanes_of_sessions(void **state)
{
    static crowd c;
    rig_config cfg = rig_config_default();
    session *s[3];
    cfg.max_sequences = 2;
    crowd_open(&c, &cfg);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(session_open(c.r.en, &s[i]), ST_OK);
        gen_request q = crowd_request(&c, i, 40, 3);
        q.session = s[i];
        rig_generate(&c.r, &q, &c.l[i]);
        assert_int_equal(rig_stats(&c.r).lanes_live, i < 2 ? i + 1 : 2);
    }
    size_t n;
    (void)session_resident(s[0], &n);
    assert_int_equal(n, 43); /* its tokens it keeps */
    (void)session_resident(s[1], &n);
    assert_int_equal(n, 43);
    crowd_add(&c, 3, 40, 3);
    rig_drain(&c.r);
    for (size_t i = 0; i < 3; i++) {
        session_close(s[i]);
    }
    crowd_close(&c, 4);
}

/* Reading instead of replying. */
static void test_plans(void **state)
{
    static crowd c;
    rig_config cfg = rig_config_default();
    err e;
    static const int32_t labels[] = {7, 299, 7};
    crowd_open(&c, &cfg);
    crowd_add(&c, 0, 30, 20);
    gen_request q = crowd_request(&c, 1, 70, 0);
    q.plan = GEN_SCORE;
    q.labels = labels;
    assert_int_equal(rig_refused(&c.r, &q, &e), ST_INVALID_FIELD);
    q.n_labels = c.l[1].n_labels = 3;
    rig_submit(&c.r, &q, &c.l[1]);
    q = crowd_request(&c, 2, 33, 5); /* the number of tokens is not looked at */
    q.plan = GEN_EMBED;
    rig_submit(&c.r, &q, &c.l[2]);
    rig_drain(&c.r);
    assert_int_equal(c.l[1].result.reason, FINISH_STOP);
    assert_int_equal(c.l[2].result.reason, FINISH_STOP);
    assert_int_equal(c.l[1].ids.len + c.l[2].ids.len, 0);
    assert_true(c.l[1].has_labels && !c.l[1].has_embedding);
    /* The same as a reply of one token says of these tokens. */
    float row[RIG_VOCAB];
    fake_logits(&c.r.model, c.p[1], 70, row);
    double sum = 0;
    for (size_t i = 0; i < RIG_VOCAB; i++) {
        sum += exp((double)row[i]);
    }
    for (size_t i = 0; i < 3; i++) {
        assert_true(fabs((double)c.l[1].labels[i] - ((double)row[labels[i]] - log(sum))) < 1e-4);
    }
    assert_true(c.l[2].has_embedding && !c.l[2].has_labels);
    c.n_new[2] = 0;
    crowd_close(&c, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_preempt),           cmocka_unit_test(test_preempt_prompt),
        cmocka_unit_test(test_cut_parked),        cmocka_unit_test(test_preempt_session),
        cmocka_unit_test(test_held_gives_way),    cmocka_unit_test(test_priority),
        cmocka_unit_test(test_lanes_of_sessions), cmocka_unit_test(test_plans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
