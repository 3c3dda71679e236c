/*
 * prompt_logprobs: what the model says about its prompt. Expected values are computed here, in double, from
 * the function that the fake model is; the bits must not depend on how the prompt was cut.
 */
#include "engine/test_main.h"

#include <math.h>
#include <string.h>

#include "engine/engine_rig.h"

#define N_TOP 5

static float prob_at(const ivec *v, size_t i, int32_t *token)
{
    float f;
    *token = v->data[2 * i];
    memcpy(&f, &v->data[2 * i + 1], sizeof f);
    return f;
}

static double log_sum(const float *logits)
{
    double sum = 0;
    for (size_t v = 0; v < RIG_VOCAB; v++) {
        sum += exp((double)logits[v]);
    }
    return log(sum);
}

/* The k-th largest (0 = the largest), lower id first on a tie. */
static int32_t kth(const float *logits, size_t k)
{
    for (int32_t v = 0; v < RIG_VOCAB; v++) {
        size_t before = 0;
        for (int32_t u = 0; u < RIG_VOCAB; u++) {
            before += logits[u] > logits[v] || (logits[u] == logits[v] && u < v);
        }
        if (before == k) {
            return v;
        }
    }
    return -1;
}

static void expect_probs(const reply_log *l, const int32_t *p, size_t n_prompt, size_t n_top)
{
    float logits[RIG_VOCAB];
    assert_int_equal(l->n_prompt_calls, 1);
    assert_int_equal(l->n_prompt_probs, n_prompt - 1);
    assert_int_equal(l->prompt_probs.len, 2 * (n_prompt - 1) * (1 + n_top));
    for (size_t i = 0; i + 1 < n_prompt; i++) {
        int32_t token;
        fake_logits(&l->rig->model, p, i + 1, logits);
        double sum = log_sum(logits);
        float got = prob_at(&l->prompt_probs, i * (1 + n_top), &token);
        assert_int_equal(token, p[i + 1]);
        assert_true(fabs((double)got - ((double)logits[token] - sum)) < 1e-4);
        for (size_t k = 0; k < n_top; k++) {
            got = prob_at(&l->prompt_probs, i * (1 + n_top) + 1 + k, &token);
            assert_int_equal(token, kth(logits, k));
            assert_true(fabs((double)got - ((double)logits[token] - sum)) < 1e-4);
        }
    }
}

/* Values, for prompts from one token on, and with nothing to generate. */
static void test_values(void **state)
{
    static const struct {
        size_t n_prompt;
        int32_t n_top, max_new;
    } rows[] = {{1, 3, 4}, {2, 0, 4}, {2, 3, 0}, {1, 0, 0}, {33, N_TOP, 4}, {70, 20, 0}};
    rig_config cfg = rig_config_default();
    engine_rig r;
    int32_t p[70];
    rig_tokens(p, 70, 1);
    rig_open(&r, &cfg);
    for (size_t i = 0; i < N_OF(rows); i++) {
        reply_log l;
        log_init(&l, &r);
        size_t n_logits = r.model.n_logit_rows;
        gen_request q = rig_request(&l, p, rows[i].n_prompt, rows[i].max_new);
        q.prompt_logprobs = rows[i].n_top;
        rig_generate(&r, &q, &l);
        expect_probs(&l, p, rows[i].n_prompt, (size_t)rows[i].n_top);
        log_expect_greedy(&l, p, rows[i].n_prompt, (size_t)rows[i].max_new);
        assert_int_equal(r.model.n_logit_rows - n_logits, rows[i].n_prompt - 1 + (size_t)rows[i].max_new);
        log_release(&l);
    }
    rig_close(&r);
}

/* Whatever the chunk, the rows of logits and the neighbours: the same bits, and no more rows of logits than
 * the model gives (the fake counts that as a fault). */
static void test_cuts_do_not_show(void **state)
{
    static const struct {
        size_t chunk, logit_rows, n_others;
        size_t steps; /* until the prompt of 100 is scored, if it is alone */
    } rows[] = {
        {32, 4, 0, 25}, /* 4 rows a step */
        {32, 64, 0, 4}, /* the chunk is the limit */
        {7, 64, 0, 15}, /**/
        {1, 4, 0, 100}, /**/
        {32, 4, 3, 0},  /* the others leave it one row */
        {32, 10, 3, 0}, /**/
        {64, 5, 2, 0},  /**/
    };
    ivec want = {0};
    int32_t p[100];
    rig_tokens(p, 100, 2);
    for (size_t i = 0; i < N_OF(rows); i++) {
        rig_config cfg = rig_config_default();
        engine_rig r;
        reply_log l, others[3];
        cfg.chunk = rows[i].chunk;
        cfg.logit_rows = rows[i].logit_rows;
        rig_open(&r, &cfg);
        for (size_t k = 0; k < rows[i].n_others; k++) {
            log_init(&others[k], &r);
            gen_request q = rig_request(&others[k], p + 1 + k, 40, 120);
            q.prompt_logprobs = k == 1 ? 2 : -1; /* a second one that wants rows of logits */
            rig_submit(&r, &q, &others[k]);
        }
        log_init(&l, &r);
        gen_request q = rig_request(&l, p, 100, 3);
        q.prompt_logprobs = N_TOP;
        rig_submit(&r, &q, &l);
        while (l.n_prompt_calls == 0) {
            engine_step(r.en);
        }
        if (rows[i].n_others == 0) {
            assert_int_equal(r.model.n_calls, rows[i].steps);
        }
        assert_true(r.model.most_logit_rows <= rows[i].logit_rows);
        rig_drain(&r);
        expect_probs(&l, p, 100, N_TOP);
        log_expect_greedy(&l, p, 100, 3);
        if (i == 0) {
            assert_int_equal(ivec_append(&want, l.prompt_probs.data, l.prompt_probs.len), ST_OK);
        }
        assert_memory_equal(l.prompt_probs.data, want.data, want.len * sizeof(int32_t));
        for (size_t k = 0; k < rows[i].n_others; k++) {
            log_expect_greedy(&others[k], p + 1 + k, 40, 120);
            assert_int_equal(others[k].n_prompt_calls, k == 1);
            log_release(&others[k]);
        }
        log_release(&l);
        rig_close(&r);
    }
    ivec_release(&want);
}

/* Running replies get their token in each step, however many rows the prompt wants. */
static void test_replies_go_on(void **state)
{
    rig_config cfg = rig_config_default();
    engine_rig r;
    reply_log reply, scored;
    int32_t p[200];
    rig_tokens(p, 200, 3);
    cfg.logit_rows = 8;
    rig_open(&r, &cfg);
    log_init(&reply, &r);
    log_init(&scored, &r);
    gen_request q = rig_request(&reply, p, 10, 60);
    rig_submit(&r, &q, &reply);
    engine_step(r.en);
    q = rig_request(&scored, p, 200, 0);
    q.prompt_logprobs = 0;
    rig_submit(&r, &q, &scored);
    for (size_t i = 0; i < 28; i++) { /* 7 rows a step: 8 less the reply's one */
        engine_step(r.en);
        assert_int_equal(reply.ids.len, 2 + i);
        assert_int_equal(rig_stats(&r).tokens_prefilled, 10 + 7 * (i + 1));
    }
    rig_drain(&r);
    expect_probs(&scored, p, 200, 0);
    log_release(&reply);
    log_release(&scored);
    rig_close(&r);
}

/* On a session: nothing of the prompt is reused, and what it leaves is reused by the next as ever. */
static void test_session(void **state)
{
    rig_config cfg = rig_config_default();
    engine_rig r;
    session *s;
    int32_t p[80];
    rig_tokens(p, 80, 4);
    rig_open(&r, &cfg);
    assert_int_equal(session_open(r.en, &s), ST_OK);
    static const struct {
        size_t n_prompt;
        int32_t n_top, reused;
        reset_reason reset;
    } turns[] = {
        {50, -1, 0, RESET_NEW},           {60, 2, 0, RESET_NEW}, /* computed anew, although 50 are there */
        {80, -1, 60, RESET_EXACT_PREFIX}, {80, 2, 0, RESET_NEW}, {80, -1, 79, RESET_EQUAL},
    };
    for (size_t i = 0; i < N_OF(turns); i++) {
        reply_log l;
        log_init(&l, &r);
        gen_request q = rig_request(&l, p, turns[i].n_prompt, 0);
        q.session = s;
        q.prompt_logprobs = turns[i].n_top;
        rig_generate(&r, &q, &l);
        assert_int_equal(l.result.reused_tokens, turns[i].reused);
        assert_int_equal(l.result.prefilled_tokens, (int32_t)turns[i].n_prompt - turns[i].reused);
        assert_int_equal(l.result.reset, turns[i].reset);
        assert_int_equal(l.n_prompt_calls, turns[i].n_top >= 0);
        log_release(&l);
    }
    session_close(s);
    rig_close(&r);
}

/* Cut or failed before the prompt was through: never called. A sink without the function asks for nothing. */
static void test_not_called(void **state)
{
    for (int how = 0; how < 3; how++) {
        rig_config cfg = rig_config_default();
        engine_rig r;
        reply_log l;
        int32_t p[60];
        rig_tokens(p, 60, 5);
        for (size_t i = 0; i < 60; i++) {
            p[i] += p[i] == 9;
        }
        p[40] = how == 1 ? 9 : p[40];
        rig_open(&r, &cfg);
        r.model.bad_token = 9;
        log_init(&l, &r);
        gen_request q = rig_request(&l, p, 60, 3);
        q.prompt_logprobs = 1;
        if (how == 2) {
            q.sink.prompt_probs = NULL;
        }
        rig_submit(&r, &q, &l);
        engine_step(r.en);
        if (how == 0) {
            seq_cancel(l.seq);
        }
        rig_drain(&r);
        assert_int_equal(l.n_prompt_calls, 0);
        assert_int_equal(l.n_failed, how == 1);
        assert_int_equal(l.ids.len, how == 2 ? 3 : 0);
        assert_int_equal(r.model.most_logit_rows, how == 2 ? 1 : 4);
        log_release(&l);
        rig_close(&r);
    }
}

static void test_refused(void **state)
{
    rig_config cfg = rig_config_default();
    engine_rig r;
    reply_log l;
    int32_t p[5];
    err e;
    rig_tokens(p, 5, 6);
    rig_open(&r, &cfg);
    log_init(&l, &r);
    gen_request q = rig_request(&l, p, 5, 5);
    static const int32_t bad[] = {-2, SAMPLER_MAX_TOP_LOGPROBS + 1};
    for (size_t i = 0; i < N_OF(bad); i++) {
        q.prompt_logprobs = bad[i];
        assert_int_equal(rig_refused(&r, &q, &e), ST_INVALID_FIELD);
        assert_string_equal(e.field, "prompt_logprobs");
    }
    log_release(&l);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),        cmocka_unit_test(test_cuts_do_not_show),
        cmocka_unit_test(test_replies_go_on), cmocka_unit_test(test_session),
        cmocka_unit_test(test_not_called),    cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
