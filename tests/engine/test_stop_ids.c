/*
 * Stop ids, and the seal: what ends a reply in the same step as a cancel comes (PROTOCOL 3).
 */
#include "engine/test_main.h"

#include <string.h>

#include "engine/engine_rig.h"

#define N_PROMPT 20
#define STOP_ID  7

/* After n tokens the model wants STOP_ID once n has reached at; before that something else. */
typedef struct wish {
    size_t at;
    int32_t token;
} wish;

static int32_t wanted(void *ctx, const int32_t *tokens, size_t n)
{
    const wish *w = ctx;
    return n >= w->at ? w->token : 100 + (int32_t)(n % 50);
}

/* Not emitted, not counted, not forwarded, not resident; the list is the engine's own. */
static void test_ends_the_reply(void **state)
{
    rig_config cfg = rig_config_default();
    engine_rig r;
    reply_log l;
    session *s;
    int32_t p[N_PROMPT], stop_ids[] = {250, STOP_ID, 3};
    size_t n;
    wish w = {.at = N_PROMPT + 4, .token = STOP_ID};
    rig_tokens(p, N_PROMPT, 1);
    rig_open(&r, &cfg);
    r.model.script = wanted;
    r.model.script_ctx = &w;
    assert_int_equal(session_open(r.en, &s), ST_OK);
    log_init(&l, &r);
    gen_request q = rig_request(&l, p, N_PROMPT, 50);
    q.session = s;
    q.stop_ids = stop_ids;
    q.n_stop_ids = 3;
    rig_submit(&r, &q, &l);
    stop_ids[1] = 299; /* it has its own copy */
    rig_drain(&r);
    static const int32_t want[] = {120, 121, 122, 123};
    log_expect_ids(&l, want, 4);
    assert_int_equal(l.result.reason, FINISH_STOP);
    assert_false(l.result.stop_cut);
    assert_int_equal(rig_stats(&r).tokens_generated, 4);
    const int32_t *kept = session_resident(s, &n);
    assert_int_equal(n, N_PROMPT + 4);
    assert_memory_equal(kept + N_PROMPT, want, sizeof want);
    assert_false(session_dirty(s));
    assert_int_equal(r.model.n_rows, N_PROMPT + 4);
    log_release(&l);
    session_close(s);
    rig_close(&r);
}

/* min_tokens forbids them; ignore_eos does not, but keeps forbidding end tokens. */
static void test_beside_other_rules(void **state)
{
    int32_t eos;
    tokenizer *tok = byte_tokenizer_open(&eos);
    const struct {
        int32_t min_tokens;
        bool ignore_eos;
        int32_t wanted; /* from the first token on */
        int32_t stop_id;
        size_t n;
        finish_reason reason;
    } rows[] = {
        {0, false, STOP_ID, STOP_ID, 0, FINISH_STOP},
        {5, false, STOP_ID, STOP_ID, 5, FINISH_STOP}, /* drawn as the sixth */
        {0, true, STOP_ID, STOP_ID, 0, FINISH_STOP},
        {5, true, STOP_ID, STOP_ID, 5, FINISH_STOP},
        {5, false, eos, STOP_ID, 5, FINISH_STOP}, /* the end token is still one */
        {0, true, eos, eos, 8, FINISH_LENGTH},    /* an end token that is a stop id stays forbidden */
        {0, false, STOP_ID, 8, 8, FINISH_LENGTH}, /* another id does not stop */
    };
    for (size_t i = 0; i < N_OF(rows); i++) {
        rig_config cfg = rig_config_default();
        engine_rig r;
        reply_log l;
        int32_t p[N_PROMPT];
        wish w = {.at = 0, .token = rows[i].wanted};
        rig_tokens(p, N_PROMPT, 2);
        cfg.tok = tok;
        rig_open(&r, &cfg);
        r.model.script = wanted;
        r.model.script_ctx = &w;
        log_init(&l, &r);
        gen_request q = rig_request(&l, p, N_PROMPT, 8);
        q.params.min_tokens = rows[i].min_tokens;
        q.params.ignore_eos = rows[i].ignore_eos;
        q.stop_ids = &rows[i].stop_id;
        q.n_stop_ids = 1;
        rig_generate(&r, &q, &l);
        assert_int_equal(l.result.reason, rows[i].reason);
        assert_int_equal(l.ids.len, rows[i].n);
        for (size_t k = 0; k < l.ids.len; k++) {
            assert_int_not_equal(l.ids.data[k], rows[i].stop_id);
            assert_int_not_equal(l.ids.data[k], eos);
        }
        log_release(&l);
        rig_close(&r);
    }
    tokenizer_free(tok);
}

static void test_refused(void **state)
{
    rig_config cfg = rig_config_default();
    engine_rig r;
    reply_log l;
    int32_t p[N_PROMPT], many[GEN_MAX_STOP_IDS + 1] = {0};
    err e;
    const struct {
        int32_t first;
        size_t n;
        const char *says;
    } rows[] = {
        {0, GEN_MAX_STOP_IDS + 1, "65"},
        {-1, 1, "-1"},
        {RIG_VOCAB, 1, "300"},
    };
    rig_tokens(p, N_PROMPT, 3);
    rig_open(&r, &cfg);
    log_init(&l, &r);
    gen_request q = rig_request(&l, p, N_PROMPT, 5);
    q.stop_ids = many;
    for (size_t i = 0; i < N_OF(rows); i++) {
        many[0] = rows[i].first;
        q.n_stop_ids = rows[i].n;
        assert_int_equal(rig_refused(&r, &q, &e), ST_INVALID_FIELD);
        assert_string_equal(e.field, "stop_token_ids");
        assert_non_null(strstr(e.msg, rows[i].says));
    }
    many[0] = 0;
    q.n_stop_ids = GEN_MAX_STOP_IDS;
    rig_generate(&r, &q, &l);
    log_release(&l);
    rig_close(&r);
}

/* The seal. A victim whose third token ends it, and another sequence in the same batch. */

#define VICTIM 65 /* what its prompt begins with */

typedef enum ending { BY_END_TOKEN, BY_STOP_ID, BY_STOP_STRING, BY_BUDGET, N_ENDINGS } ending;
typedef enum strike {
    WHILE_COMPUTED,    /* inside the forward call of that step */
    BY_EARLIER,        /* in the token call of a sequence that is settled before it in that step */
    BY_LATER,          /* of one that is settled behind it */
    BY_OWN_LAST_TOKEN, /* in the token call of its own last token */
    N_STRIKES
} strike;

typedef struct duel {
    engine_rig *r;
    int32_t last; /* the victim's third token */
    atomic_bool flag;
    size_t strike_call; /* forward calls so far when the flag is set; 0 = never */
} duel;

static int32_t duel_script(void *ctx, const int32_t *tokens, size_t n)
{
    const duel *d = ctx;
    return tokens[0] == VICTIM && n == N_PROMPT + 2 ? d->last : 'x';
}

static void duel_step(void *ctx)
{
    duel *d = ctx;
    if (d->strike_call != 0 && d->r->model.n_calls + 1 == d->strike_call) {
        atomic_store(&d->flag, true);
    }
}

static void one_duel(const tokenizer *tok, int32_t eos, ending how, strike when)
{
    rig_config cfg = rig_config_default();
    engine_rig r;
    reply_log victim, other;
    duel d = {.r = &r, .last = how == BY_END_TOKEN ? eos : how == BY_STOP_ID ? STOP_ID : '!'};
    int32_t pv[N_PROMPT], po[N_PROMPT];
    const int32_t stop_id = STOP_ID;
    const stop_string stop = {"!", 1};
    err e;
    rig_tokens(pv, N_PROMPT, 4);
    rig_tokens(po, N_PROMPT, 5);
    pv[0] = VICTIM;
    po[0] = VICTIM + 1;
    cfg.tok = tok;
    rig_open(&r, &cfg);
    r.model.script = duel_script;
    r.model.script_ctx = &d;
    r.model.on_step = duel_step;
    r.model.on_step_ctx = &d;
    log_init(&victim, &r);
    log_init(&other, &r);
    gen_request qv = rig_request(&victim, pv, N_PROMPT, how == BY_BUDGET ? 3 : 10);
    gen_request qo = rig_request(&other, po, N_PROMPT, 6);
    qv.cancel = &d.flag;
    qv.stop_ids = &stop_id;
    qv.n_stop_ids = how == BY_STOP_ID;
    if (how == BY_STOP_STRING) {
        assert_int_equal(stop_set_new(&stop, 1, &qv.stops, &e), ST_OK);
    }
    d.strike_call = when == WHILE_COMPUTED ? 3 : 0;
    reply_log *striker = when == BY_OWN_LAST_TOKEN ? &victim : &other;
    striker->flag = &d.flag;
    striker->flag_after = when == WHILE_COMPUTED ? 0 : 3;
    bool other_first = when == BY_EARLIER;
    rig_submit(&r, other_first ? &qo : &qv, other_first ? &other : &victim);
    rig_submit(&r, other_first ? &qv : &qo, other_first ? &victim : &other);
    for (int i = 0; i < 3; i++) {
        assert_false(log_over(&victim));
        engine_step(r.en);
    }
    assert_true(log_over(&victim)); /* it ends in this step in any case */
    assert_true(atomic_load(&d.flag));
    bool before = when == WHILE_COMPUTED || when == BY_EARLIER;
    finish_reason undisturbed = how == BY_BUDGET ? FINISH_LENGTH : FINISH_STOP;
    assert_int_equal(victim.result.reason, before ? FINISH_CANCELLED : undisturbed);
    assert_int_equal(victim.ids.len, how == BY_END_TOKEN || how == BY_STOP_ID ? 2 : 3);
    assert_int_equal(victim.n_done, 1);
    rig_drain(&r);
    assert_int_equal(other.ids.len, 6);
    assert_int_equal(rig_stats(&r).requests_cancelled, before);
    log_release(&victim);
    log_release(&other);
    rig_close(&r);
}

/* Before the seal a cancel wins, even over an end token in the same step; a later one changes nothing. */
static void test_seal(void **state)
{
    int32_t eos;
    tokenizer *tok = byte_tokenizer_open(&eos);
    for (int how = 0; how < N_ENDINGS; how++) {
        for (int when = 0; when < N_STRIKES; when++) {
            bool silent = how == BY_END_TOKEN || how == BY_STOP_ID; /* has no call of its own */
            if (when != BY_OWN_LAST_TOKEN || !silent) {
                one_duel(tok, eos, (ending)how, (strike)when);
            }
        }
    }
    tokenizer_free(tok);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ends_the_reply),
        cmocka_unit_test(test_beside_other_rules),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_seal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
