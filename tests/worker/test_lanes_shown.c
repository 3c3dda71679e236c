/*
 * What a worker on a scripted model shows of lanes, pages and turns: its stats, how often a reply gave way, requests
 * that can never fit, and who begins first.
 */
#include "base/test_main.h"

#include <stdio.h>
#include <string.h>

#include "worker/loop_rig.h"

#define LONG_REPLY                                                                           \
    "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefgh" \
    "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefgh"
#define PROMPT_61 "123456789012345678901234567890123456789012345678901234567890>"
#define OTHER_61  "023456789012345678901234567890123456789012345678901234567890>" /* nothing of it is shared */

static void ask(loop_rig *r, const char *line)
{
    loop_rig_forget(r);
    loop_rig_send(r, line);
    loop_rig_run(r);
    loop_rig_hear(r);
}

static const frame_stats *stats_of(loop_rig *r)
{
    loop_rig_send(r, "{\"id\":\"s\",\"op\":\"stats\"}");
    loop_rig_turns(r, 1);
    loop_rig_hear(r);
    const frame *f = loop_rig_last(r, "s");
    assert_non_null(f);
    assert_int_equal(f->kind, FRAME_STATS);
    return &f->stats;
}

/* Until so many texts in all are prepared. */
static void wait_for_texts(loop_rig *r, uint64_t n)
{
    status_snapshot s;
    for (int tries = 0; tries < 10000; tries++) {
        status_page_read(r->page, &s);
        if (s.row[STATUS_ROW_PREPARED] >= n) {
            return;
        }
        bell_wait(&r->bell, &r->halt, 10);
    }
    fail_msg("%llu texts are prepared", (unsigned long long)s.row[STATUS_ROW_PREPARED]);
}

static void start(loop_rig *r)
{
    loop_rig_start_writer(r);
    loop_rig_start_preparer(r);
}

static void test_stats(void **state)
{
    static loop_rig r;
    loop_rig_open_still(&r, LONG_REPLY);
    for (int i = 0; i < 3; i++) {
        char line[100];
        snprintf(line, sizeof line, "{\"id\":\"g%d\",\"op\":\"generate\",\"prompt\":\">\"}", i);
        loop_rig_send(&r, line);
    }
    loop_rig_turns(&r, 1);
    loop_rig_start_writer(&r);
    loop_rig_start_preparer(&r);
    loop_rig_wait_prepared(&r);
    loop_rig_turns(&r, 5);
    loop_rig_send(&r, "{\"id\":\"s\",\"op\":\"stats\"}");
    loop_rig_turns(&r, 1);
    loop_rig_hear(&r);
    const frame_stats *s = &loop_rig_last(&r, "s")->stats;
    assert_int_equal(s->lanes, RIG_LANES);
    assert_int_equal(s->lanes_live, 2);
    assert_int_equal(s->running, 2);
    assert_int_equal(s->queued, 1);
    assert_int_equal(s->pages_total, 64);
    assert_true(s->pages_used >= 2);
    assert_int_equal(s->requests_done, 0);
    assert_false(s->draining);
    assert_int_equal(s->lanes_tracked, 2);
    assert_int_equal(s->lanes_idle, 0);
    assert_int_equal(s->n_rows, RIG_LANES);
    uint64_t sum = 0;
    for (size_t i = 0; i < s->n_rows; i++) {
        assert_true(s->rows[i].index == i && s->rows[i].active && s->rows[i].tokens > 0);
        assert_null(s->rows[i].session_id.data);
        sum += s->rows[i].tokens;
    }
    assert_true(s->total_tokens == sum && s->largest_tokens <= sum && s->largest_tokens >= sum / 2);
    assert_true(s->tokens_evaluated == s->tokens_prefilled + s->tokens_generated);
    loop_rig_run(&r);
    ask(&r, "{\"id\":\"s\",\"op\":\"stats\"}");
    s = &loop_rig_last(&r, "s")->stats;
    assert_int_equal(s->lanes_live + s->lanes_tracked + s->total_tokens + s->largest_tokens, 0);
    assert_int_equal(s->lanes_idle, s->lanes_created - s->lanes_destroyed);
    assert_true(s->lanes_idle > 0 && s->n_rows == RIG_LANES);
    assert_false(s->rows[0].active || s->rows[1].active);
    assert_int_equal(s->requests_done, 3);
    assert_int_equal(s->queued + s->running + s->pages_used, 0);
    loop_rig_close(&r);
}

/* A session of the plain dialect keeps its lane and is shown by its name, which may hold any character; one of the
 * other has a lane only while it runs. Idle, neither has pages. */
static void test_rows_have_names(void **state)
{
    static loop_rig r;
    loop_rig_open(&r, "abc");
    ask(&r, "{\"prompt\":\"12>\",\"session_id\":\"n\\u0000\\n\"}");
    ask(&r, "{\"id\":\"x\",\"op\":\"generate\",\"prompt\":\"34>\",\"session_id\":\"m\"}");
    ask(&r, "{\"id\":\"y\",\"op\":\"generate\",\"prompt\":\">\"}");
    const frame_stats *s = stats_of(&r);
    assert_int_equal(s->n_rows, RIG_LANES);
    size_t n_active = 0;
    for (size_t i = 0; i < s->n_rows; i++) {
        n_active += s->rows[i].active;
        if (s->rows[i].active) {
            assert_int_equal(s->rows[i].session_id.len, 3);
            assert_memory_equal(s->rows[i].session_id.data, "n\0\n", 3);
            assert_int_equal(s->rows[i].tokens, 6); /* 1 2 > a b c */
        }
    }
    assert_int_equal(n_active, 1);
    assert_true(s->lanes_live == 1 && s->lanes_tracked == 1 && s->sessions == 2 && s->running == 0);
    assert_true(s->total_tokens == 6 && s->largest_tokens == 6 && s->pages_used == 0);
    ask(&r, "{\"op\":\"close\",\"session_id\":\"n\\u0000\\n\"}");
    s = stats_of(&r);
    assert_true(s->lanes_live == 0 && s->lanes_idle == RIG_LANES && s->sessions == 1);
    loop_rig_close(&r);
}

static const frame_done *reply_of(const loop_rig *r, const char *id, const char *want)
{
    buf text = {0};
    ivec ids = {0};
    loop_rig_reply(r, id, &text, &ids);
    assert_string_equal(buf_str(&text), want);
    buf_release(&text);
    ivec_release(&ids);
    assert_int_equal(loop_rig_last(r, id)->kind, FRAME_DONE);
    return &loop_rig_last(r, id)->done;
}

/* Two of 61 + 172 tokens need 16 pages where there are 10: one gives way, and its reply says how often. The other takes
 * three of its five pages, the last ones first; two are there when it comes back. */
static void test_preemptions_are_told(void **state)
{
    static loop_rig r;
    loop_rig_open_small(&r, LONG_REPLY, 10);
    start(&r);
    loop_rig_send(&r, "{\"id\":\"x\",\"op\":\"generate\",\"prompt\":\"" PROMPT_61 "\"}");
    loop_rig_send(&r, "{\"id\":\"y\",\"op\":\"generate\",\"prompt\":\"" OTHER_61 "\"}");
    loop_rig_turns(&r, 1);
    wait_for_texts(&r, 2);
    loop_rig_run(&r);
    loop_rig_hear(&r);
    int32_t n = reply_of(&r, "x", LONG_REPLY)->preemptions + reply_of(&r, "y", LONG_REPLY)->preemptions;
    assert_true(n >= 1);
    status_snapshot page;
    status_page_read(r.page, &page);
    const frame_stats *s = stats_of(&r);
    assert_int_equal(s->preempted, n);
    assert_true(s->parked == 0 && s->pages_used == 0 && s->tokens_restored == 64);
    assert_true(s->tokens_recomputed >= 61);
    assert_true(s->tokens_prefilled == 2 * 61 && s->tokens_generated == 2 * strlen(LONG_REPLY));
    assert_true(s->tokens_evaluated == s->tokens_prefilled + s->tokens_generated + s->tokens_recomputed);
    assert_true(page.row[STATUS_ROW_PREEMPTIONS] == (uint64_t)n && page.row[STATUS_ROW_PARKED] == 0);
    assert_true(page.row[STATUS_ROW_TOKENS_RECOMPUTED] == s->tokens_recomputed);
    assert_true(page.row[STATUS_ROW_LANES_IDLE] == s->lanes_idle && s->lanes_idle > 0);
    loop_rig_close(&r);
}

/* EMIT_WAIT: its pages are for those that can use them; after `continue` it says the rest. */
static void test_a_paused_one_is_parked(void **state)
{
    static loop_rig r;
    loop_rig_open_small(&r, LONG_REPLY, 10);
    start(&r);
    loop_rig_send(&r, "{\"id\":\"x\",\"op\":\"generate\",\"prompt\":\"" PROMPT_61 "\"}");
    loop_rig_turns(&r, 1);
    loop_rig_wait_prepared(&r);
    loop_rig_turns(&r, 40);
    loop_rig_send(&r, "{\"id\":\"x\",\"op\":\"pause\"}");
    loop_rig_send(&r, "{\"id\":\"y\",\"op\":\"generate\",\"prompt\":\"" PROMPT_61 "\"}");
    loop_rig_run(&r);
    loop_rig_hear(&r);
    assert_int_equal(reply_of(&r, "y", LONG_REPLY)->preemptions, 0);
    size_t n_said = loop_rig_count(&r, "x");
    assert_true(n_said > 20 && n_said < 60);
    const frame_stats *s = stats_of(&r);
    assert_true(s->parked == 1 && s->preempted == 1 && s->running == 1 && s->lanes_live == 1);
    assert_int_equal(s->pages_used, 0);
    status_snapshot page;
    status_page_read(r.page, &page);
    assert_true(page.row[STATUS_ROW_PARKED] == 1 && page.row[STATUS_ROW_LANES_LIVE] == 1);
    loop_rig_send(&r, "{\"id\":\"x\",\"op\":\"continue\"}");
    loop_rig_run(&r);
    loop_rig_hear(&r);
    assert_int_equal(reply_of(&r, "x", LONG_REPLY)->preemptions, 1);
    loop_rig_close(&r);
}

/* Both numbers, in pages of 32 tokens, and nothing runs. */
static void test_never_fits(void **state)
{
    static const struct {
        const char *line;
        const char *id;
        int64_t need; /* by hand */
    } cases[] = {
        {"{\"id\":\"x\",\"op\":\"generate\",\"prompt\":\">\",\"max_new_tokens\":128}", "x", 5},
        {"{\"id\":\"x\",\"op\":\"generate\",\"prompt\":\"" PROMPT_61 "\",\"max_new_tokens\":400}", "x", 15},
        /* a reply without an end of its own takes what there is, but one token it wants */
        {"{\"id\":\"x\",\"op\":\"generate\",\"prompt\":\"" PROMPT_61 PROMPT_61 "123456\"}", "x", 5},
        {"{\"prompt\":\">\",\"max_new_tokens\":128}", NULL, 5},
    };
    static loop_rig r;
    loop_rig_open_small(&r, "abc", 4);
    start(&r);
    for (size_t i = 0; i < N_OF(cases); i++) {
        ask(&r, cases[i].line);
        assert_int_equal(r.n_frames, 1);
        const frame *f = loop_rig_last(&r, cases[i].id);
        assert_true(f->kind == FRAME_ERROR && f->code == ST_NEVER_FITS);
        assert_int_equal(f->need, cases[i].need);
        assert_int_equal(f->have, 4);
    }
    ask(&r, "{\"id\":\"x\",\"op\":\"generate\",\"prompt\":\">\",\"max_new_tokens\":127}"); /* 4 pages */
    assert_int_equal(reply_of(&r, "x", "abc")->completion_tokens, 3);
    assert_int_equal(r.engine.model.n_rows, 1 + 3); /* of this one alone */
    loop_rig_close(&r);
}

static size_t first_token(const loop_rig *r, const char *id)
{
    for (size_t i = 0; i < r->n_frames; i++) {
        const frame *f = &r->frames[i];
        if (f->kind == FRAME_TOKEN && f->id.len == strlen(id) && memcmp(f->id.data, id, f->id.len) == 0) {
            return i;
        }
    }
    fail_msg("%s says nothing", id);
    return 0;
}

static void send_prior(loop_rig *r, const char *id, int priority, const char *more)
{
    char line[200];
    snprintf(line, sizeof line, "{\"id\":\"%s\",\"op\":\"generate\",\"prompt\":\">\",\"priority\":%d%s}", id,
             priority, more);
    loop_rig_send(r, line);
}

/* Of those that wait the largest begins first, also where as many as may be are begun for those before them. */
static void test_priority(void **state)
{
    static const struct {
        const char *id;
        int priority;
    } sent[] = {{"r1", 0},  {"r2", 0}, {"q1", 0}, {"q2", 0},  {"q3", 0}, {"low", -3},
                {"q4", -3}, {"q5", 0}, {"up", 5}, {"top", 9}, {"up2", 5}};
    static const char *const want[] = {"r1", "r2", "top", "up", "up2", "q1", "q2", "q3", "q5", "low", "q4"};
    static loop_rig r;
    loop_rig_open_still(&r, "abcdefgh");
    start(&r);
    for (size_t i = 0; i < N_OF(sent); i++) {
        send_prior(&r, sent[i].id, sent[i].priority, "");
        if (i == 1) { /* these two run before the others are read */
            loop_rig_turns(&r, 1);
            wait_for_texts(&r, 2);
            loop_rig_turns(&r, 2);
        }
    }
    loop_rig_turns(&r, 1);
    assert_true(r.tasks.n_begun > TASKS_BEGUN_PER_LANE * RIG_LANES); /* for their priority */
    assert_true(r.tasks.n_begun <= TASKS_URGENT_PER_LANE * RIG_LANES);
    wait_for_texts(&r, r.tasks.n_begun);
    loop_rig_run(&r);
    loop_rig_hear(&r);
    for (size_t i = 0; i + 1 < N_OF(want); i++) {
        if (first_token(&r, want[i]) > first_token(&r, want[i + 1])) {
            fail_msg("%s begins after %s", want[i], want[i + 1]);
        }
    }
    loop_rig_close(&r);
}

/* On one session the order read stands. */
static void test_priority_in_a_session(void **state)
{
    static loop_rig r;
    loop_rig_open_still(&r, "abcdefgh");
    start(&r);
    send_prior(&r, "r1", 0, "");
    send_prior(&r, "r2", 0, "");
    send_prior(&r, "s1", -5, ",\"session_id\":\"s\"");
    send_prior(&r, "s2", 5, ",\"session_id\":\"s\"");
    send_prior(&r, "q", 0, "");
    loop_rig_run(&r);
    loop_rig_hear(&r);
    assert_true(first_token(&r, "s1") < first_token(&r, "s2"));
    assert_true(first_token(&r, "q") < first_token(&r, "s2"));
    loop_rig_close(&r);
}

/* A flood of urgent ones is bounded, and in order among itself. */
static void test_many_urgent_ones(void **state)
{
    static loop_rig r;
    char id[8];
    loop_rig_open_still(&r, "ab");
    start(&r);
    for (int i = 0; i < 40; i++) {
        snprintf(id, sizeof id, "%d", i);
        send_prior(&r, id, i % 21 - 10, "");
        loop_rig_turns(&r, 1);
        assert_true(r.tasks.n_begun <= TASKS_URGENT_PER_LANE * RIG_LANES);
    }
    loop_rig_run(&r);
    loop_rig_hear(&r);
    for (int i = 0; i < 40; i++) {
        snprintf(id, sizeof id, "%d", i);
        (void)reply_of(&r, id, "ab");
    }
    loop_rig_close(&r);
}

/* The last 16 tokens are 8 copies of "ab" when it is looked at first, after 32 tokens (repeat_guard.h). */
static void test_repetition_guard(void **state)
{
    static const char loops[] = "ababababababababababababababababababababababababababababababababab";
    static loop_rig r;
    loop_rig_open(&r, loops);
    ask(&r, "{\"id\":\"x\",\"op\":\"generate\",\"prompt\":\">\",\"max_new_tokens\":60,"
            "\"repetition_guard\":16}");
    const frame_done *d = &loop_rig_last(&r, "x")->done;
    assert_int_equal(d->completion_tokens, 32);
    assert_string_equal(d->reason, "length");
    assert_string_equal(d->guard, "repetition");
    ask(&r, "{\"id\":\"x\",\"op\":\"generate\",\"prompt\":\">\",\"max_new_tokens\":60,"
            "\"repetition_guard\":0}");
    d = &loop_rig_last(&r, "x")->done;
    assert_int_equal(d->completion_tokens, 60);
    assert_string_equal(d->guard, "");
    ask(&r, "{\"prompt\":\">\"}"); /* the plain dialect has none */
    d = &loop_rig_last(&r, NULL)->done;
    assert_int_equal(d->completion_tokens, strlen(loops));
    assert_string_equal(d->reason, "stop");
    loop_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stats),
        cmocka_unit_test(test_rows_have_names),
        cmocka_unit_test(test_preemptions_are_told),
        cmocka_unit_test(test_a_paused_one_is_parked),
        cmocka_unit_test(test_never_fits),
        cmocka_unit_test(test_priority),
        cmocka_unit_test(test_priority_in_a_session),
        cmocka_unit_test(test_many_urgent_ones),
        cmocka_unit_test(test_repetition_guard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
