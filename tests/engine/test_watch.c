/*
 * What others can see of a running engine: the announcement before each step, progress of a prompt, what a
 * session would reuse, and who cancelled.
 */
#include "engine/test_main.h"

#include <string.h>

#include "engine/engine_rig.h"

typedef struct seen {
    engine_rig *r;
    step_row rows[8];
    size_t n, n_calls;
    bool any_prefill;
} seen;

static void on_step(void *ctx, const step_row *rows, size_t n, bool any_prefill)
{
    seen *s = ctx;
    assert_int_equal(s->n_calls, s->r->model.n_calls); /* before the forward call, once each */
    assert_in_range(n, 1, N_OF(s->rows));
    memcpy(s->rows, rows, n * sizeof *rows);
    s->n = n;
    s->n_calls++;
    s->any_prefill = any_prefill;
}

static void expect_step(engine_rig *r, const seen *s, size_t n, const step_row *want, bool any_prefill)
{
    size_t before = s->n_calls;
    assert_true(engine_step(r->en));
    assert_int_equal(s->n_calls, before + 1);
    assert_int_equal(s->n, n);
    assert_int_equal(s->any_prefill, any_prefill);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(s->rows[i].id_hash, want[i].id_hash);
        assert_int_equal(s->rows[i].position, want[i].position);
    }
}

static void test_before_step(void **state)
{
    rig_config cfg = rig_config_default();
    engine_rig r;
    seen s = {.r = &r};
    reply_log a, b;
    session *named;
    int32_t p[50];
    rig_tokens(p, 50, 1);
    cfg.before_step = on_step;
    cfg.before_step_ctx = &s;
    rig_open(&r, &cfg);
    assert_int_equal(session_open(r.en, &named), ST_OK);
    log_init(&a, &r);
    log_init(&b, &r);
    gen_request q = rig_request(&a, p, 50, 3);
    q.id_hash = 0xABCDEF0123456789u;
    q.session = named;
    rig_submit(&r, &q, &a);
    expect_step(&r, &s, 1, (step_row[]){{q.id_hash, 0}}, true);
    q = rig_request(&b, p, 10, 2);
    rig_submit(&r, &q, &b); /* no hash */
    expect_step(&r, &s, 2, (step_row[]){{0xABCDEF0123456789u, 32}, {0, 0}}, true);
    expect_step(&r, &s, 2, (step_row[]){{0xABCDEF0123456789u, 50}, {0, 10}}, false);
    expect_step(&r, &s, 1, (step_row[]){{0xABCDEF0123456789u, 51}}, false);
    expect_step(&r, &s, 1, (step_row[]){{0xABCDEF0123456789u, 52}}, false); /* the tail */
    assert_false(engine_step(r.en));
    assert_int_equal(s.n_calls, 5); /* nothing to compute, nothing to announce */
    log_release(&a);
    log_release(&b);
    session_close(named);
    rig_close(&r);
}

static void expect_progress(const reply_log *l, int32_t cached, int32_t processed)
{
    int32_t c = -1, p = -1;
    seq_progress(l->seq, &c, &p);
    assert_int_equal(c, cached);
    assert_int_equal(p, processed);
}

/* Through queue, prefill and decode; in a session whose resident tokens are somebody else's until admission.
 */
static void test_progress(void **state)
{
    rig_config cfg = rig_config_default();
    engine_rig r;
    reply_log l[2];
    session *s;
    int32_t p[100];
    rig_tokens(p, 100, 2);
    rig_open(&r, &cfg);
    assert_int_equal(session_open(r.en, &s), ST_OK);
    log_init(&l[0], &r);
    log_init(&l[1], &r);
    gen_request q = rig_request(&l[0], p, 40, 0);
    q.session = s;
    rig_submit(&r, &q, &l[0]);
    q = rig_request(&l[1], p, 100, 4);
    q.session = s;
    rig_submit(&r, &q, &l[1]);
    engine_step(r.en);
    expect_progress(&l[0], 0, 32);
    expect_progress(&l[1], 0, 0); /* waits for the first */
    engine_step(r.en);
    assert_true(log_over(&l[0]));
    expect_progress(&l[1], 0, 0);
    engine_step(r.en);
    expect_progress(&l[1], 40, 72);
    engine_step(r.en);
    assert_int_equal(l[1].ids.len, 1);
    expect_progress(&l[1], 40, 100);
    engine_step(r.en);
    expect_progress(&l[1], 40, 100); /* generated tokens are not part of it */
    rig_drain(&r);
    log_release(&l[0]);
    log_release(&l[1]);
    session_close(s);
    rig_close(&r);
}

/* What is foretold is what then happens. */
static void test_would_reuse(void **state)
{
    for (int cold = 0; cold < 2; cold++) {
        rig_config cfg = rig_config_default();
        engine_rig r;
        session *s;
        int32_t p[100], q2[100];
        static const struct {
            size_t n;
            bool other; /* differs from the 41st token on */
            bool cancel;
            int32_t reuse;
        } turns[] = {
            {50, false, false, 0}, {70, false, false, 50}, {70, false, false, 69}, {100, true, false, 40},
            {90, true, true, 89},  {95, true, false, 94},  {30, true, false, 29},
        };
        rig_tokens(p, 100, 3);
        rig_tokens(q2, 100, 4);
        memcpy(q2, p, 40 * sizeof *p);
        cfg.cold = cold;
        rig_open(&r, &cfg);
        assert_int_equal(session_open(r.en, &s), ST_OK);
        for (size_t i = 0; i < N_OF(turns); i++) {
            const int32_t *prompt = turns[i].other ? q2 : p;
            reply_log l;
            log_init(&l, &r);
            l.cancel_after = turns[i].cancel ? 1 : 0;
            gen_request q = rig_request(&l, prompt, turns[i].n, turns[i].cancel ? 5 : 0);
            q.session = s;
            int32_t foretold = engine_would_reuse(r.en, &q);
            rig_generate(&r, &q, &l);
            assert_int_equal(foretold, l.result.reused_tokens);
            assert_int_equal(foretold, cold ? 0 : turns[i].reuse);
            log_release(&l);
        }
        session_close(s);
        rig_close(&r);
    }
}

typedef enum canceller {
    PLAIN,
    GUARDED,
    PLAIN_FIRST,
    GUARDED_TWICE,
    WITH_DEADLINE,
    TOO_LATE,
    N_CANCELLERS
} canceller;

/* The guard is that of the first who cancelled, and only of a reply that ended by it. */
static void test_guard(void **state)
{
    static const char *const want[N_CANCELLERS] = {"", "slow_reader", "", "slow_reader", "deadline", ""};
    for (int how = 0; how < N_CANCELLERS; how++) {
        rig_config cfg = rig_config_default();
        engine_rig r;
        reply_log l;
        session *s;
        int32_t p[20];
        rig_tokens(p, 20, 5);
        rig_open(&r, &cfg);
        assert_int_equal(session_open(r.en, &s), ST_OK);
        log_init(&l, &r);
        gen_request q = rig_request(&l, p, 20, 3);
        q.session = s;
        q.deadline_ns = r.clock.now_ns + 1000000;
        rig_submit(&r, &q, &l);
        for (int i = 0; i < (how == TOO_LATE ? 3 : 2); i++) {
            engine_step(r.en);
        }
        assert_false(log_over(&l));
        if (how == PLAIN || how == PLAIN_FIRST) {
            seq_cancel(l.seq);
        }
        if (how != PLAIN) {
            seq_cancel_guarded(l.seq, "slow_reader");
        }
        if (how == GUARDED_TWICE) {
            seq_cancel_guarded(l.seq, "another");
            seq_cancel(l.seq);
        }
        if (how == WITH_DEADLINE) {
            clock_fake_advance_ms(&r.clock, 2);
        }
        rig_drain(&r);
        assert_string_equal(l.guard, want[how]);
        assert_int_equal(l.result.reason, how == TOO_LATE        ? FINISH_LENGTH
                                          : how == WITH_DEADLINE ? FINISH_TIMEOUT
                                                                 : FINISH_CANCELLED);
        log_release(&l);
        session_close(s);
        rig_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_before_step),
        cmocka_unit_test(test_progress),
        cmocka_unit_test(test_would_reuse),
        cmocka_unit_test(test_guard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
