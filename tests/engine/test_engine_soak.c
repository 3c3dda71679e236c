/*
 * Random life: many requests on few pages, some in sessions, with cuts, holds, bad rows and forward errors at
 * random moments. Whatever happens each request ends exactly once, what it said is a prefix of the
 * undisturbed reply, and at the end every page is back.
 */
#include "engine/test_main.h"

#include <string.h>

#include "base/philox.h"
#include "engine/engine_rig.h"

#define N_REQUESTS 64
#define N_SESSIONS 5
#define BAD_TOKEN  13

typedef struct soak {
    engine_rig r;
    session *sessions[N_SESSIONS];
    reply_log logs[N_REQUESTS];
    int32_t prompts[N_REQUESTS][200];
    size_t n_prompt[N_REQUESTS];
    bool disturbed[N_REQUESTS]; /* may end before its time */
    bool held[N_REQUESTS];
    size_t n; /* submitted */
    uint64_t seed;
    uint32_t drawn;
} soak;

static uint32_t draw(soak *k, uint32_t below)
{
    uint32_t ctr[4] = {k->drawn++, 0, 0, 0}, key[2] = {(uint32_t)k->seed, 99}, out[4];
    philox4x32_10(ctr, key, out);
    return out[0] % below;
}

static void submit(soak *k)
{
    size_t i = k->n++;
    int32_t *p = k->prompts[i];
    reply_log *l = &k->logs[i];
    k->n_prompt[i] = 1 + draw(k, 150);
    rig_tokens(p, k->n_prompt[i], draw(k, 2)); /* two conversations: much is shared, and turns go back */
    for (size_t t = 0; t < k->n_prompt[i]; t++) {
        p[t] += p[t] == BAD_TOKEN;
    }
    log_init(l, &k->r);
    gen_request q = rig_request(l, p, k->n_prompt[i], (int32_t)draw(k, 50));
    q.session = draw(k, 3) ? k->sessions[draw(k, N_SESSIONS)] : NULL;
    if (draw(k, 5) == 0) {
        q.deadline_ns = k->r.clock.now_ns + UINT64_C(1000000) * draw(k, 60);
        k->disturbed[i] = true;
    }
    if (draw(k, 10) == 0) {
        p[draw(k, (uint32_t)k->n_prompt[i])] = BAD_TOKEN;
        k->disturbed[i] = true;
    }
    rig_submit(&k->r, &q, l);
}

/* Something random happens to a random running request. */
static void disturb(soak *k)
{
    size_t i = draw(k, (uint32_t)k->n);
    if (log_over(&k->logs[i])) {
        return;
    }
    if (draw(k, 8) == 0) {
        seq_cancel(k->logs[i].seq);
        k->disturbed[i] = true;
    } else {
        k->held[i] = !k->held[i];
        seq_hold(k->logs[i].seq, k->held[i]);
    }
}

static void idle_sessions(soak *k)
{
    session **s = &k->sessions[draw(k, N_SESSIONS)];
    if (session_busy(*s)) {
        return;
    }
    if (draw(k, 2)) {
        assert_int_equal(session_reset(*s), ST_OK);
    } else {
        session_close(*s);
        assert_int_equal(session_open(k->r.en, s), ST_OK);
    }
}

static void check(soak *k, size_t i)
{
    const reply_log *l = &k->logs[i];
    int32_t all[FAKE_MAX_POS];
    assert_int_equal(l->n_done + l->n_failed, 1);
    memcpy(all, k->prompts[i], k->n_prompt[i] * sizeof *all);
    fake_greedy(&k->r.model, all, k->n_prompt[i], l->ids.len);
    assert_memory_equal(all + k->n_prompt[i], l->ids.len ? l->ids.data : all + k->n_prompt[i],
                        l->ids.len * sizeof *all);
    if (!k->disturbed[i] && l->n_failed == 0) {
        assert_int_equal(l->result.reason, FINISH_LENGTH);
    }
    if (l->n_done && l->result.reason == FINISH_LENGTH) {
        assert_int_equal(l->result.reused_tokens + l->result.prefilled_tokens, k->n_prompt[i]);
    }
}

static void run(uint64_t seed, bool cold)
{
    static soak k;
    memset(&k, 0, sizeof k);
    k.seed = seed;
    rig_config cfg = rig_config_default();
    cfg.n_ctx = 256;
    cfg.n_pages = seed % 2 ? 12 : 40; /* idle sessions give way all the time, or hardly */
    cfg.chunk = 16;
    cfg.max_rows = 24;
    cfg.max_sequences = 6;
    cfg.cold = cold;
    rig_open(&k.r, &cfg);
    k.r.model.bad_token = BAD_TOKEN;
    for (size_t i = 0; i < N_SESSIONS; i++) {
        assert_int_equal(session_open(k.r.en, &k.sessions[i]), ST_OK);
    }
    for (int step = 0; k.n < N_REQUESTS || engine_running(k.r.en) > 0; step++) {
        assert_true(step < 100000);
        if (k.n < N_REQUESTS && draw(&k, 3) == 0) {
            submit(&k);
        }
        if (k.n > 0 && draw(&k, 4) == 0) {
            disturb(&k);
        }
        if (draw(&k, 50) == 0) {
            idle_sessions(&k);
        }
        clock_fake_advance_ms(&k.r.clock, draw(&k, 3));
        engine_step(k.r.en);
        if (k.n == N_REQUESTS && step > 2000) {
            for (size_t i = 0; i < N_REQUESTS; i++) { /* nobody stays held for ever */
                if (!log_over(&k.logs[i])) {
                    seq_hold(k.logs[i].seq, false);
                }
            }
        }
    }
    engine_stats st = rig_stats(&k.r);
    assert_int_equal(st.requests_done + st.requests_failed + st.requests_cancelled, N_REQUESTS);
    assert_int_equal(st.bugs, 0);
    assert_int_equal(cold ? st.tokens_reused : 0, 0);
    assert_true(cold || seed % 2 || st.tokens_reused > 100);
    for (size_t i = 0; i < N_REQUESTS; i++) {
        check(&k, i);
        log_release(&k.logs[i]);
    }
    for (size_t i = 0; i < N_SESSIONS; i++) {
        session_close(k.sessions[i]);
    }
    rig_close(&k.r);
}

static void test_soak(void **state)
{
    for (uint64_t seed = 0; seed < 40; seed++) {
        run(seed, seed % 4 == 3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_soak)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
