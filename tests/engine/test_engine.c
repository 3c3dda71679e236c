/*
 * The engine on a pure function: batches, fairness, cuts in every state, holding. What a reply must be is
 * computed from the function alone.
 */
#include "engine/test_main.h"

#include <string.h>

#include "engine/engine_rig.h"

/* Chunk sizes never show, and no batch is larger than allowed. */
static void test_chunks(void **state)
{
    static const size_t chunks[] = {1, 7, 32, 512};
    static const size_t lengths[] = {1, 31, 32, 33, 200, 700};
    int32_t p[700];
    rig_tokens(p, 700, 1);
    for (size_t c = 0; c < N_OF(chunks); c++) {
        rig_config cfg = rig_config_default();
        engine_rig r;
        cfg.chunk = chunks[c];
        cfg.max_rows = 512;
        cfg.n_ctx = 1024;
        cfg.cold = true;
        rig_open(&r, &cfg);
        for (size_t i = 0; i < N_OF(lengths); i++) {
            reply_log l;
            log_init(&l, &r);
            size_t steps = r.model.n_calls;
            gen_request q = rig_request(&l, p, lengths[i], 12);
            rig_generate(&r, &q, &l);
            log_expect_greedy(&l, p, lengths[i], 12);
            assert_int_equal(l.result.prefilled_tokens, lengths[i]);
            assert_int_equal(r.model.n_calls - steps, (lengths[i] + chunks[c] - 1) / chunks[c] + 11);
            log_release(&l);
        }
        assert_true(r.model.most_rows_of_one <= chunks[c]);
        assert_int_equal(rig_stats(&r).tokens_generated, 12 * N_OF(lengths));
        rig_close(&r);
    }
}

/* Sampled replies, with logprobs: alone, or beside others in one batch, the same ids and the same bits. */
static void test_alone_or_beside(void **state)
{
    rig_config cfg = rig_config_default();
    engine_rig r;
    reply_log alone[4], beside[4];
    int32_t p[4][100];
    static const size_t lengths[4] = {5, 33, 64, 100};
    cfg.n_pages = 40;
    rig_open(&r, &cfg);
    for (int round = 0; round < 2; round++) {
        reply_log *logs = round ? beside : alone;
        for (size_t i = 0; i < 4; i++) {
            log_init(&logs[i], &r);
            rig_tokens(p[i], lengths[i], 100 + i);
            gen_request q = rig_request(&logs[i], p[i], lengths[i], 30 + 10 * (int32_t)i);
            q.params.temperature = 1.0f + 0.5f * (float)i;
            q.params.seed = 7 + i;
            q.params.top_logprobs = 3;
            rig_submit(&r, &q, &logs[i]);
            if (!round) {
                rig_drain(&r);
            } else {
                engine_step(r.en); /* the others come in while it runs */
            }
        }
        rig_drain(&r);
    }
    assert_true(r.model.most_seqs == 4);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(alone[i].ids.len, 30 + 10 * i);
        log_expect_ids(&beside[i], alone[i].ids.data, alone[i].ids.len);
        assert_int_equal(alone[i].probs.len, alone[i].ids.len * 8);
        assert_int_equal(beside[i].probs.len, alone[i].probs.len);
        assert_memory_equal(alone[i].probs.data, beside[i].probs.data, alone[i].probs.len * sizeof(int32_t));
        log_release(&alone[i]);
        log_release(&beside[i]);
    }
    rig_close(&r);
}

/* A long prompt, then a short one: both advance in each step, and decoding goes on beside. */
static void test_fair_prefill(void **state)
{
    rig_config cfg = rig_config_default();
    engine_rig r;
    reply_log runs, longest, small;
    int32_t p[480];
    rig_tokens(p, 480, 2);
    cfg.chunk = cfg.max_rows = 32;
    rig_open(&r, &cfg);
    log_init(&runs, &r);
    log_init(&longest, &r);
    log_init(&small, &r);
    gen_request q = rig_request(&runs, p, 10, 40);
    rig_submit(&r, &q, &runs);
    engine_step(r.en);
    q = rig_request(&longest, p, 480, 2);
    rig_submit(&r, &q, &longest);
    engine_step(r.en);
    q = rig_request(&small, p, 20, 2);
    rig_submit(&r, &q, &small);
    engine_step(
        r.en); /* 31 rows for two prompts: 7 are the long one's own, the small one has its 20 and speaks */
    assert_int_equal(small.ids.len, 1);
    assert_int_equal(runs.ids.len, 3); /* one in each step */
    /* What the small one did not need went to the long one: 7 + 4 after its 31. */
    assert_int_equal(rig_stats(&r).tokens_prefilled, 10 + 20 + 31 + 11);
    assert_int_equal(r.model.most_rows, 32);
    rig_drain(&r);
    log_expect_greedy(&runs, p, 10, 40);
    log_expect_greedy(&longest, p, 480, 2);
    log_expect_greedy(&small, p, 20, 2);
    log_release(&runs);
    log_release(&longest);
    log_release(&small);
    rig_close(&r);
}

/* As many sequences as a batch has rows. */
static void test_no_row_to_spare(void **state)
{
    rig_config cfg = rig_config_default();
    engine_rig r;
    reply_log l[6];
    int32_t p[40];
    rig_tokens(p, 40, 3);
    cfg.chunk = 4;
    cfg.max_rows = cfg.max_sequences = 4;
    rig_open(&r, &cfg);
    for (size_t i = 0; i < 6; i++) {
        log_init(&l[i], &r);
        gen_request q = rig_request(&l[i], p + i, 20, 5);
        rig_submit(&r, &q, &l[i]);
    }
    engine_step(r.en);
    assert_int_equal(rig_stats(&r).tokens_prefilled, 4);
    rig_drain(&r);
    assert_int_equal(r.model.most_rows, 4);
    for (size_t i = 0; i < 6; i++) {
        log_expect_greedy(&l[i], p + i, 20, 5);
        log_release(&l[i]);
    }
    rig_close(&r);
}

/* Cuts: where the sequence stands when cancel or deadline comes. */

typedef enum place { IN_QUEUE, IN_PREFILL, IN_DECODE, HELD_QUEUED, HELD_DECODING, N_PLACES } place;
typedef enum cut { BY_CALL, BY_FLAG, BY_DEADLINE, BY_BOTH, N_CUTS } cut;

static void test_cut_everywhere(void **state)
{
    for (int where = 0; where < N_PLACES; where++) {
        for (int how = 0; how < N_CUTS; how++) {
            rig_config cfg = rig_config_default();
            engine_rig r;
            reply_log first, l;
            int32_t p[100];
            atomic_bool flag = false;
            rig_tokens(p, 100, 6);
            cfg.max_sequences = 1;
            rig_open(&r, &cfg);
            log_init(&first, &r);
            log_init(&l, &r);
            if (where == IN_QUEUE) { /* behind another */
                gen_request q = rig_request(&first, p, 20, 50);
                rig_submit(&r, &q, &first);
            }
            gen_request q = rig_request(&l, p, 100, 50);
            q.cancel = &flag;
            q.deadline_ns = how >= BY_DEADLINE ? r.clock.now_ns + 1000000 : 0;
            rig_submit(&r, &q, &l);
            seq_hold(l.seq, where == HELD_QUEUED);
            int steps = where == IN_DECODE || where == HELD_DECODING ? 6 : where == HELD_QUEUED ? 0 : 2;
            for (int i = 0; i < steps; i++) { /* 4 steps of prefill, the last brings a token */
                engine_step(r.en);
            }
            seq_hold(l.seq, where == HELD_DECODING || where == HELD_QUEUED);
            assert_int_equal(l.ids.len, steps == 6 ? 3 : 0);
            assert_false(log_over(&l));
            if (how == BY_CALL) {
                seq_cancel(l.seq);
            } else if (how == BY_FLAG) {
                atomic_store(&flag, true);
            } else {
                clock_fake_advance_ms(&r.clock, 1);
                atomic_store(&flag, how == BY_BOTH);
            }
            size_t rows = r.model.n_rows;
            engine_step(r.en); /* one step ends it, in whatever state */
            assert_true(log_over(&l));
            assert_int_equal(r.model.n_rows - rows,
                             where == IN_QUEUE ? 1 : 0); /* nothing more computed for it */
            assert_int_equal(l.n_done, 1);
            assert_int_equal(l.result.reason, how >= BY_DEADLINE ? FINISH_TIMEOUT : FINISH_CANCELLED);
            assert_string_equal(l.guard, how >= BY_DEADLINE ? "deadline" : "");
            assert_int_equal(l.result.n_ids, l.ids.len);
            assert_int_equal(l.result.prompt_tokens, 100);
            bool never_ran = where == IN_QUEUE || where == HELD_QUEUED;
            assert_true(l.result.queue_ms == (never_ran && how >= BY_DEADLINE ? 1.0 : 0.0));
            static const int32_t prefilled[N_PLACES] = {0, 64, 100, 0, 100};
            assert_int_equal(l.result.prefilled_tokens, prefilled[where]);
            int32_t all[103];
            memcpy(all, p, sizeof p);
            fake_greedy(&r.model, all, 100, l.ids.len);
            log_expect_ids(&l, all + 100, l.ids.len); /* a prefix of the undisturbed reply */
            rig_drain(&r);
            engine_stats st = rig_stats(&r);
            assert_int_equal(st.requests_cancelled, how < BY_DEADLINE);
            assert_int_equal(st.requests_done, (how >= BY_DEADLINE) + (where == IN_QUEUE));
            assert_int_equal(st.requests_failed, 0);
            log_release(&first);
            log_release(&l);
            rig_close(&r);
        }
    }
}

typedef struct late {
    engine_rig *r;
    sequence *seq;
    size_t at_call; /* forward calls so far when it strikes */
    bool by_clock;
} late;

static void strike(void *ctx)
{
    late *l = ctx;
    if (l->r->model.n_calls == l->at_call) {
        if (l->by_clock) {
            clock_fake_advance_ms(&l->r->clock, 10);
        } else {
            seq_cancel(l->seq);
        }
    }
}

/* A cut that comes while the last token is computed is before the seal: it wins, even over the budget. */
static void test_cut_before_the_seal(void **state)
{
    for (int by_clock = 0; by_clock < 2; by_clock++) {
        rig_config cfg = rig_config_default();
        engine_rig r;
        reply_log l;
        session *s;
        int32_t p[20];
        rig_tokens(p, 20, 7);
        rig_open(&r, &cfg);
        assert_int_equal(session_open(r.en, &s), ST_OK);
        log_init(&l, &r);
        gen_request q = rig_request(&l, p, 20, 3);
        q.session = s;
        q.deadline_ns = by_clock ? r.clock.now_ns + 10000000 : 0;
        rig_submit(&r, &q, &l);
        late strikes = {.r = &r, .seq = l.seq, .at_call = 2, .by_clock = by_clock};
        r.model.on_step = strike;
        r.model.on_step_ctx = &strikes;
        rig_drain(&r);
        assert_int_equal(l.result.reason, by_clock ? FINISH_TIMEOUT : FINISH_CANCELLED);
        log_expect_greedy(&l, p, 20, 3); /* its token was decided: it is there */
        assert_int_equal(session_dirty(s), !by_clock);
        log_release(&l);
        session_close(s);
        rig_close(&r);
    }
}

/* Once sealed nothing changes the outcome: neither a cancel in the last token's call nor one before the tail.
 */
static void test_cut_after_the_seal(void **state)
{
    for (int held = 0; held < 2; held++) {
        rig_config cfg = rig_config_default();
        engine_rig r;
        reply_log l;
        session *s;
        int32_t p[20];
        rig_tokens(p, 20, 8);
        rig_open(&r, &cfg);
        assert_int_equal(session_open(r.en, &s), ST_OK);
        log_init(&l, &r);
        l.cancel_after = 3;
        gen_request q = rig_request(&l, p, 20, 3);
        q.session = s;
        rig_submit(&r, &q, &l);
        for (int i = 0; i < 3; i++) {
            engine_step(r.en);
        }
        assert_int_equal(l.ids.len, 3);
        assert_false(log_over(&l)); /* its last token is still to be forwarded */
        seq_hold(l.seq, held);
        rig_drain(&r);
        assert_int_equal(l.result.reason, FINISH_LENGTH);
        assert_false(session_dirty(s));
        size_t n;
        session_resident(s, &n);
        assert_int_equal(n, held ? 22 : 23); /* cut while held: not forwarded, and the ids say so */
        log_release(&l);
        session_close(s);
        rig_close(&r);
    }
}

/* A cancel in a token call ends the reply at the next step's decision; the flag of another does nothing to
 * it. */
static void test_cancel_in_the_sink(void **state)
{
    rig_config cfg = rig_config_default();
    engine_rig r;
    reply_log a, b;
    int32_t p[20];
    rig_tokens(p, 20, 9);
    rig_open(&r, &cfg);
    log_init(&a, &r);
    log_init(&b, &r);
    a.cancel_after = 1;
    gen_request q = rig_request(&a, p, 20, 30);
    rig_submit(&r, &q, &a);
    q = rig_request(&b, p, 20, 30);
    rig_submit(&r, &q, &b);
    rig_drain(&r);
    assert_int_equal(a.result.reason, FINISH_CANCELLED);
    log_expect_greedy(&a, p, 20, 1);
    log_expect_greedy(&b, p, 20, 30);
    log_release(&a);
    log_release(&b);
    rig_close(&r);
}

/* Held: keeps its pages, computes nothing, the others go on; afterwards it goes on as if nothing had been. */
static void test_hold(void **state)
{
    rig_config cfg = rig_config_default();
    engine_rig r;
    reply_log a, b;
    int32_t p[70];
    rig_tokens(p, 70, 10);
    rig_open(&r, &cfg);
    log_init(&a, &r);
    log_init(&b, &r);
    a.hold_after = 4;
    gen_request q = rig_request(&a, p, 70, 30);
    rig_submit(&r, &q, &a);
    q = rig_request(&b, p, 20, 10);
    rig_submit(&r, &q, &b);
    while (engine_step(r.en)) {
    }
    assert_true(log_over(&b));
    assert_int_equal(a.ids.len, 4);
    assert_int_equal(engine_running(r.en), 1);
    assert_true(rig_stats(&r).pages_used > 0);
    assert_false(engine_step(r.en));
    seq_hold(a.seq, false);
    rig_drain(&r);
    log_expect_greedy(&a, p, 70, 30);
    log_expect_greedy(&b, p, 20, 10);
    log_release(&a);
    log_release(&b);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_alone_or_beside),
        cmocka_unit_test(test_fair_prefill),
        cmocka_unit_test(test_no_row_to_spare),
        cmocka_unit_test(test_cut_everywhere),
        cmocka_unit_test(test_cut_before_the_seal),
        cmocka_unit_test(test_cut_after_the_seal),
        cmocka_unit_test(test_cancel_in_the_sink),
        cmocka_unit_test(test_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
