/*
 * What an agent's day costs (FAILURES C3, P1, P6): conversations that begin a little differently each turn, side calls between
 * a long one's turns, prompts that are given up and asked for again. Each reply is the model function's; what is reused, and why no
 * more, is worked out here from all that was left before.
 */
#include "engine/test_main.h"

#include <string.h>

#include "engine/engine_rig.h"

#define N_TURNS 20
#define N_REPLY 12
#define CHANGES 6 /* tokens, as hex digits are */

/* Prompts */

typedef struct text {
    int32_t ids[24000];
    size_t n;
} text;

static void add(text *t, const int32_t *ids, size_t n)
{
    assert_true(t->n + n <= N_OF(t->ids));
    memcpy(t->ids + t->n, ids, n * sizeof *ids);
    t->n += n;
}

/* n tokens that are those of the seed. */
static void say(text *t, size_t n, uint64_t seed)
{
    int32_t ids[24000];
    assert_true(n <= N_OF(ids));
    rig_tokens(ids, n, seed);
    add(t, ids, n);
}

/* What was left */

typedef struct past {
    ivec ids[3 * N_TURNS];
    size_t n;
} past;

static void remember(past *p, const text *prompt, const int32_t *reply, size_t n_reply)
{
    ivec *at = &p->ids[p->n++];
    assert_true(p->n <= N_OF(p->ids));
    assert_int_equal(ivec_append(at, prompt->ids, prompt->n), ST_OK);
    assert_int_equal(ivec_append(at, reply, n_reply), ST_OK);
}

static void forget(past *p)
{
    while (p->n > 0) {
        ivec_release(&p->ids[--p->n]);
    }
}

typedef struct found {
    size_t n_tokens;
    kv_miss miss;
    size_t at;
} found;

/* By engine.h: the longest prefix that was left, all but the last token at most, and a page at least. */
static found find(const past *p, const text *prompt)
{
    size_t best = 0;
    bool goes_on = false; /* otherwise */
    for (size_t i = 0; i < p->n; i++) {
        const ivec *left = &p->ids[i];
        size_t c = 0;
        while (c < left->len && c < prompt->n && left->data[c] == prompt->ids[c]) {
            c++;
        }
        if (c >= best) {
            goes_on = c < left->len || (c == best && goes_on);
            best = c;
        }
    }
    if (best + 1 >= prompt->n) {
        return (found){prompt->n - 1, KV_MISS_NONE, prompt->n - 1};
    }
    size_t n = best >= KV_PAGE_TOKENS ? best : 0;
    return (found){n, best == 0 ? KV_MISS_NEW : goes_on ? KV_MISS_DIFFERS : KV_MISS_ENDS, goes_on ? best : n};
}

static void expect(const reply_log *l, const text *prompt, found f)
{
    const gen_result *r = &l->result;
    log_expect_greedy(l, prompt->ids, prompt->n, N_REPLY);
    assert_int_equal(r->prompt_tokens, prompt->n);
    assert_int_equal(r->reused_tokens, f.n_tokens);
    assert_int_equal(r->prefilled_tokens, prompt->n - f.n_tokens);
    assert_string_equal(kv_miss_name(r->miss), kv_miss_name(f.miss));
    assert_true(f.miss == KV_MISS_NONE || (size_t)r->miss_at == f.at);
}

/* One turn, its reply into `reply`; a named one has its last token computed, too. */
static gen_result turn(engine_rig *r, session *s, const text *prompt, past *p, int32_t *reply)
{
    reply_log l;
    log_init(&l, r);
    gen_request q = rig_request(&l, prompt->ids, prompt->n, N_REPLY);
    q.session = s;
    rig_generate(r, &q, &l);
    expect(&l, prompt, find(p, prompt));
    memcpy(reply, l.ids.data, N_REPLY * sizeof *reply);
    remember(p, prompt, reply, s ? N_REPLY : N_REPLY - 1);
    gen_result got = l.result;
    log_release(&l);
    return got;
}

/* P1: an agent of 20 turns */

#define SYSTEM  64  /* tokens; the first line is 20 of them */
#define TOOLS   200 /* behind them */
#define FIRST   100 /* the first message */
#define TIME_AT 5
#define HEX_AT  (SYSTEM + TOOLS + 40)
#define TOOL_AT (SYSTEM + TOOLS)

typedef enum habit { SAME, TIME_IN_LINE_1, HEX_IN_MESSAGE_1, TOOL_AT_TURN_10, NOTE_AT_END } habit;

/* The conversation as its client sends it in this turn. history: what was said behind the first message. */
static void make_prompt(text *t, habit h, size_t turn_no, const text *history)
{
    int32_t digits[CHANGES];
    rig_tokens(digits, CHANGES, 7000 + turn_no);
    t->n = 0;
    say(t, SYSTEM, 1);
    say(t, TOOLS, 2);
    if (h == TOOL_AT_TURN_10 && turn_no >= 10) {
        say(t, 45, 3);
    }
    say(t, FIRST, 4);
    if (h == TIME_IN_LINE_1 || h == HEX_IN_MESSAGE_1) {
        memcpy(t->ids + (h == TIME_IN_LINE_1 ? TIME_AT : HEX_AT), digits, sizeof digits);
    }
    add(t, history->ids, history->n);
    if (h == NOTE_AT_END) {
        add(t, digits, CHANGES);
        say(t, 4, 5);
    }
}

/* What each turn costs, beside what follows from all that was left: by hand. */
static void expect_cost(habit h, size_t turn_no, const gen_result *r, size_t n_before, size_t n_said,
                        bool named)
{
    size_t spliced = n_before + N_REPLY - !named; /* of an anonymous one the last token was never computed */
    size_t reused = (size_t)r->reused_tokens, at = (size_t)r->miss_at;
    if (turn_no == 0) {
        assert_int_equal(reused, 0);
        return;
    }
    switch (h) {
    case TIME_IN_LINE_1: /* nothing can be found, and it is told why */
        assert_true(reused == 0 && at >= TIME_AT && at < TIME_AT + CHANGES && r->miss == KV_MISS_DIFFERS);
        break;
    case HEX_IN_MESSAGE_1:
        assert_true(reused == at && at >= HEX_AT && at < HEX_AT + CHANGES && r->miss == KV_MISS_DIFFERS);
        break;
    case TOOL_AT_TURN_10:
        assert_true(turn_no == 10 ? at == TOOL_AT && reused == TOOL_AT : reused == spliced);
        break;
    case NOTE_AT_END: /* up to the note; then the last reply and what was said since, and the note */
        assert_true(reused >= n_before - CHANGES - 4 && r->miss == KV_MISS_DIFFERS);
        assert_true((size_t)r->prefilled_tokens <= N_REPLY + n_said + CHANGES + 4);
        break;
    case SAME:
        assert_true(reused == spliced && r->miss == KV_MISS_ENDS && at == spliced);
        break;
    }
}

static void agent(habit h, bool named)
{
    static text prompt, history;
    engine_rig r;
    session *s = NULL;
    past p = {0};
    rig_config cfg = rig_config_default();
    cfg.n_ctx = 4096;
    cfg.n_pages = 2600; /* nothing has to go */
    rig_open(&r, &cfg);
    if (named) {
        assert_int_equal(session_open(r.en, &s), ST_OK);
    }
    size_t n_before = 0;
    history.n = 0;
    for (size_t i = 0; i < N_TURNS; i++) {
        int32_t reply[N_REPLY];
        size_t n_said = 30 + i * 7;
        make_prompt(&prompt, h, i, &history);
        gen_result g = turn(&r, s, &prompt, &p, reply);
        expect_cost(h, i, &g, n_before, i > 0 ? 30 + (i - 1) * 7 : 0, named);
        reset_reason want = !named || i == 0                                 ? RESET_NEW
                            : h == TIME_IN_LINE_1                            ? RESET_MISMATCH
                            : h == SAME || (h == TOOL_AT_TURN_10 && i != 10) ? RESET_EXACT_PREFIX
                                                                             : RESET_PREFIX;
        assert_string_equal(reset_reason_name(g.reset), reset_reason_name(want));
        n_before = prompt.n;
        add(&history, reply, N_REPLY);
        say(&history, n_said, 100 + i); /* a tool's result, or the next question */
    }
    session_close(s);
    forget(&p);
    rig_close(&r);
}

static void test_agents(void **state)
{
    static const habit habits[] = {SAME, TIME_IN_LINE_1, HEX_IN_MESSAGE_1, TOOL_AT_TURN_10, NOTE_AT_END};
    for (size_t i = 0; i < N_OF(habits); i++) {
        agent(habits[i], false);
        agent(habits[i], true);
    }
}

/* P6: side calls between the turns of a main agent */

#define N_MAIN   20000
#define N_SHARED 2000 /* the system prompt of both */
#define N_SIDE   300  /* of a side call's own */

typedef struct day {
    size_t lanes;
    bool named;  /* the main agent has a session */
    bool beside; /* the side call comes while the main turn is read or said, else behind it */
} day;

static void main_and_side(const day *d)
{
    static text prompt, side;
    engine_rig r;
    session *s = NULL;
    rig_config cfg = rig_config_default();
    cfg.n_ctx = 23000;
    cfg.chunk = 256;
    cfg.max_rows = 300;
    cfg.max_sequences = d->lanes;
    /* The main agent's last turn, one side call's own pages beside it, and one to go on from inside: no room for more. */
    cfg.n_pages =
        (N_MAIN + N_TURNS * 60 + 2 * N_REPLY) / KV_PAGE_TOKENS + (N_SIDE + N_REPLY) / KV_PAGE_TOKENS + 4;
    rig_open(&r, &cfg);
    if (d->named) {
        assert_int_equal(session_open(r.en, &s), ST_OK);
    }
    prompt.n = 0;
    say(&prompt, N_SHARED, 1);
    say(&prompt, N_MAIN - N_SHARED, 2);
    size_t had = 0;
    for (size_t i = 0; i < N_TURNS; i++) {
        reply_log l, o;
        log_init(&l, &r);
        log_init(&o, &r);
        gen_request q = rig_request(&l, prompt.ids, prompt.n, N_REPLY);
        q.session = s;
        rig_submit(&r, &q, &l);
        for (size_t k = 0; d->beside ? k < i % 4 : !log_over(&l); k++) { /* at different moments */
            rig_step(&r);
        }
        side.n = 0;
        say(&side, N_SHARED, 1);
        say(&side, N_SIDE, 1000 + i);
        side.ids[N_SHARED] =
            (prompt.ids[N_SHARED] + 1 + (int32_t)i) % RIG_VOCAB; /* as nothing before goes on */
        q = rig_request(&o, side.ids, side.n, N_REPLY);
        rig_submit(&r, &q, &o);
        rig_drain(&r);
        log_expect_greedy(&l, prompt.ids, prompt.n, N_REPLY);
        log_expect_greedy(&o, side.ids, side.n, N_REPLY);
        assert_int_equal(l.result.reused_tokens, had); /* to its last token */
        assert_true(o.result.reused_tokens == N_SHARED || (i == 0 && o.result.reused_tokens == 0));
        assert_true(i == 0 || o.result.preemptions + l.result.preemptions == 0);
        had = prompt.n + N_REPLY - !d->named;
        add(&prompt, l.ids.data, N_REPLY);
        say(&prompt, 60 - N_REPLY, 3000 + i);
        log_release(&l);
        log_release(&o);
    }
    engine_stats st = rig_stats(&r);
    assert_true(st.pages_total - st.pages_cached <
                N_SIDE / KV_PAGE_TOKENS); /* so somebody had to give pages */
    session_close(s);
    rig_close(&r);
}

static void test_side_calls(void **state)
{
    for (size_t lanes = 1; lanes <= 2; lanes++) {
        main_and_side(&(day){lanes, false, false});
        main_and_side(&(day){lanes, true, false});
    }
    main_and_side(&(day){2, false, true});
    main_and_side(&(day){2, true, true});
}

/* C3: a prompt that takes three times as long as its client waits */

typedef enum giving_up { BY_FLAG, BY_CALL, BY_DEADLINE, WAYS_TO_GIVE_UP } giving_up;

#define N_TRIES  4
#define CHUNK    37 /* so that they end inside pages */
#define PATIENCE 27 /* steps: 999 tokens of 3000 */
#define FAR_NS   UINT64_C(1000000000000000)

typedef struct client {
    giving_up how;
    bool named;
    bool at_once; /* the retry is there before the engine has seen the end */
} client;

static void give_up(engine_rig *r, const client *c, reply_log *l, atomic_bool *flag)
{
    if (c->how == BY_FLAG) {
        atomic_store(flag, true);
    } else if (c->how == BY_CALL) {
        seq_cancel(l->seq);
    } else {
        r->clock.now_ns += 2 * FAR_NS;
    }
    if (!c->at_once) {
        rig_step(r);
        assert_true(log_over(l));
    }
}

/* One that is given up; n_done tokens were computed for those before it. */
static void try_once(engine_rig *r, reply_log *l, size_t n_done)
{
    int32_t cached, processed;
    for (size_t k = 0; k < PATIENCE; k++) {
        rig_step(r);
    }
    assert_false(log_over(l));
    seq_progress(l->seq, &cached, &processed);
    assert_int_equal(cached, n_done);
    assert_int_equal(processed, n_done + PATIENCE * CHUNK);
}

static void expect_given_up(const reply_log *l, const client *c, bool first)
{
    bool late = c->how == BY_DEADLINE; /* which leaves a session clean */
    reset_reason want = !c->named || first ? RESET_NEW : late ? RESET_EXACT_PREFIX : RESET_DIRTY;
    assert_int_equal(l->n_done, 1);
    assert_int_equal(l->result.reason, late ? FINISH_TIMEOUT : FINISH_CANCELLED);
    assert_string_equal(reset_reason_name(l->result.reset), reset_reason_name(want));
    assert_string_equal(kv_miss_name(l->result.miss), first ? "new" : "ends");
    assert_int_equal(l->result.miss_at, l->result.reused_tokens);
}

static void retries(const client *c)
{
    static text prompt;
    engine_rig r;
    session *s = NULL;
    rig_config cfg = rig_config_default();
    reply_log l[N_TRIES];
    atomic_bool flags[N_TRIES];
    cfg.n_ctx = 4096;
    cfg.n_pages = 200;
    cfg.chunk = CHUNK;
    rig_open(&r, &cfg);
    if (c->named) {
        assert_int_equal(session_open(r.en, &s), ST_OK);
    }
    prompt.n = 0;
    say(&prompt, 3000, 1);
    for (size_t i = 0; i < N_TRIES; i++) {
        log_init(&l[i], &r);
        atomic_init(&flags[i], false);
        gen_request q = rig_request(&l[i], prompt.ids, prompt.n, N_REPLY);
        q.session = s;
        q.cancel = &flags[i];
        q.deadline_ns = c->how == BY_DEADLINE ? r.clock.now_ns + FAR_NS : 0;
        rig_submit(&r, &q, &l[i]);
        if (i + 1 < N_TRIES) {
            try_once(&r, &l[i], i * PATIENCE * CHUNK);
            give_up(&r, c, &l[i], &flags[i]);
        }
    }
    rig_drain(&r);
    for (size_t i = 0; i + 1 < N_TRIES; i++) {
        expect_given_up(&l[i], c, i == 0);
    }
    log_expect_greedy(&l[N_TRIES - 1], prompt.ids, prompt.n, N_REPLY);
    assert_int_equal(l[N_TRIES - 1].result.reused_tokens, 3 * PATIENCE * CHUNK);
    assert_int_equal(r.model.n_rows, prompt.n + N_REPLY - !c->named); /* no row was computed twice */
    assert_int_equal(rig_stats(&r).pages_cached, (3000 + N_REPLY) / KV_PAGE_TOKENS + 1); /* nor kept */
    session_close(s);
    for (size_t i = 0; i < N_TRIES; i++) {
        log_release(&l[i]);
    }
    rig_close(&r);
}

static void test_retries(void **state)
{
    for (int how = 0; how < WAYS_TO_GIVE_UP; how++) {
        for (int i = 0; i < 4; i++) {
            retries(&(client){(giving_up)how, i & 1, i & 2});
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_agents),
        cmocka_unit_test(test_side_calls),
        cmocka_unit_test(test_retries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
