/*
 * Replies of the plain dialect against an engine whose model is scripted: the frames, failures, memory, halting,
 * and the cancel pipe.
 */
#include "base/test_main.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "worker/loop_rig.h"

/* One line, run to its end. */
static const frame *ask(loop_rig *r, const char *line)
{
    loop_rig_forget(r);
    loop_rig_send(r, line);
    loop_rig_run(r);
    loop_rig_hear(r);
    const frame *last = loop_rig_last(r, NULL);
    assert_non_null(last);
    assert_int_equal(r->tasks.n, 0);
    for (size_t i = 0; i + 1 < r->n_frames; i++) {
        assert_int_equal(r->frames[i].kind, FRAME_TOKEN);
        assert_true(r->frames[i].text_len > 0);
    }
    return last;
}

static void expect_text(loop_rig *r, const char *want)
{
    buf text = {0};
    ivec ids = {0};
    loop_rig_reply(r, NULL, &text, &ids);
    assert_string_equal(buf_str(&text), want);
    buf_release(&text);
    ivec_release(&ids);
}

static void expect_done(loop_rig *r, const char *line, const char *text, const char *reason,
                        int32_t n_completion, const char *reset)
{
    const frame *f = ask(r, line);
    assert_int_equal(f->kind, FRAME_DONE);
    expect_text(r, text);
    assert_string_equal(f->done.reason, reason);
    assert_int_equal(f->done.completion_tokens, n_completion);
    assert_string_equal(f->done.session_reset_reason, reset);
}

static void expect_error(loop_rig *r, const char *line, const char *text, status code)
{
    const frame *f = ask(r, line);
    assert_int_equal(f->kind, FRAME_ERROR);
    assert_int_equal(f->code, code);
    expect_text(r, text);
}

static void test_frames(void **state)
{
    static loop_rig r;
    loop_rig_open(&r, "hello \xc3\xa9!");
    expect_done(&r, "{\"prompt\":\"hi>\"}", "hello \xc3\xa9!", "stop", 9,
                "new"); /* the end token does not count */
    expect_done(&r, "{\"prompt\":\"hi>\",\"max_new_tokens\":7}", "hello \xef\xbf\xbd", "length", 7,
                "new"); /* the unfinished character is repaired */
    expect_done(&r, "{\"prompt\":\"hi>\",\"stop\":[\"o \\u00e9\",\"zz\"]}", "hell", "stop", 8, "new");
    expect_done(&r, "{\"prompt\":\"hi>\",\"stop\":[\"!?\"]}", "hello \xc3\xa9!", "stop", 9,
                "new"); /* held back, then flushed */
    expect_done(&r, "{\"prompt\":\"hi>\",\"stop\":[\"hello\"]}", "", "stop", 5, "new");
    r.says = "";
    expect_done(&r, "{\"prompt\":\"hi>\"}", "", "stop", 0, "new");
    loop_rig_close(&r);
}

static void tick(void *ctx)
{
    clock_fake_advance_ms(ctx, 10);
}

static void test_times(void **state)
{
    static loop_rig r;
    loop_rig_open_still(&r, "abcd");
    r.engine.model.on_step = tick;
    r.engine.model.on_step_ctx = &r.engine.clock;
    loop_rig_send(&r, "{\"prompt\":\"hi>\",\"max_new_tokens\":4}");
    clock_fake_advance_ms(&r.engine.clock, 1000); /* in the inbox: not taken up yet */
    loop_rig_turns(&r, 1);
    clock_fake_advance_ms(&r.engine.clock, 5); /* being prepared */
    loop_rig_start_preparer(&r);
    loop_rig_start_writer(&r);
    loop_rig_run(&r);
    loop_rig_hear(&r);
    const frame *f = loop_rig_last(&r, NULL);
    assert_true(f->done.prefill_ms == 10);
    assert_true(f->done.decode_ms == 30); /* the first token comes with the prompt */
    assert_true(f->done.total_ms == 45);
    assert_true(f->done.queue_ms == 5);
    assert_true(f->done.ttft_ms == 15);
    loop_rig_close(&r);
}

/* A failed decode is an error frame after the tokens; the session is dirty until a reset that works. */
static void test_failures_make_dirty(void **state)
{
    static loop_rig r;
    loop_rig_open(&r, "abcX");
    expect_done(&r, "{\"prompt\":\"hi>\",\"session_id\":\"s\",\"max_new_tokens\":2}", "ab", "length", 2,
                "new");
    r.engine.model.bad_token = 'X';
    expect_error(&r, "{\"prompt\":\"hi>\",\"session_id\":\"s\"}", "abcX", ST_NONFINITE);
    r.engine.model.bad_token = -1;
    expect_done(&r, "{\"prompt\":\"hi>\",\"session_id\":\"s\",\"max_new_tokens\":2}", "ab", "length", 2,
                "dirty");
    r.engine.model.fail = ST_INTERNAL;
    expect_error(&r, "{\"prompt\":\"hi>x\",\"session_id\":\"s\"}", "", ST_INTERNAL); /* a failed prefill */
    r.engine.model.fail = ST_OK;
    assert_int_equal(session_reset(sessions_find(r.sessions, (wire_string){"s", 1})), ST_OK);
    expect_done(&r, "{\"prompt\":\"hi>\",\"session_id\":\"s\"}", "abcX", "stop", 4, "new");
    loop_rig_close(&r);
}

static void test_refused(void **state)
{
    static loop_rig r;
    loop_rig_open(&r, "abc");
    expect_error(&r, "{\"prompt\":\"\",\"session_id\":\"s\"}", "", ST_INVALID_FIELD);
    expect_error(&r, "{\"prompt_segments\":[],\"session_id\":\"s\"}", "", ST_INVALID_FIELD);
    assert_int_equal(sessions_count(r.sessions), 0); /* not opened */
    expect_done(&r, "{\"prompt\":\">\",\"session_id\":\"a\"}", "abc", "stop", 3, "new");
    expect_done(&r, "{\"prompt\":\">\",\"session_id\":\"b\"}", "abc", "stop", 3, "new");
    expect_error(&r, "{\"prompt\":\">\",\"session_id\":\"c\"}", "", ST_CAPACITY);
    loop_rig_close(&r);
}

/* Every allocation of a request fails once: one error frame, nothing left behind, and the next one is fine. */
static void test_memory(void **state)
{
    static const char *const lines[] = {
        "{\"prompt\":\"hi>\",\"session_id\":\"s\",\"stop\":[\"zz\",\"y\"],\"seed\":5}",
        "{\"id\":\"x\",\"op\":\"generate\",\"prompt\":\"hi>\",\"session_id\":\"s\",\"stop\":[\"zz\",\"y\"],"
        "\"seed\":5,"
        "\"logit_bias\":{\"5\":1},\"prompt_logprobs\":1}",
        "{\"id\":\"x\",\"op\":\"tokenize\",\"text\":\"abc\"}",
        "{\"id\":\"x\",\"op\":\"detokenize\",\"ids\":[97,98]}",
        "{\"id\":\"x\",\"op\":\"count\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}",
    };
    for (size_t i = 0; i < N_OF(lines); i++) {
        static loop_rig r;
        uint64_t n_failed = 0;
        const char *id = i == 0 ? NULL : "x";
        bool good = false;
        loop_rig_open(&r, "abc");
        for (uint64_t n = 1; n < 300 && !good; n++) {
            loop_rig_forget(&r);
            loop_rig_send(&r, lines[i]);
            mem_fail_at(n, false);
            loop_rig_run(&r);
            mem_fail_at(0, false);
            assert_false(halt_asked(&r.halt));
            loop_rig_hear(&r);
            const frame *f = loop_rig_last(&r, id);
            assert_non_null(f);
            assert_int_equal(loop_rig_count(&r, id), r.n_frames); /* all are its own */
            good = f->kind != FRAME_ERROR;
            if (!good) {
                n_failed++;
                /* where the engine cannot create the state it is a matter of capacity */
                assert_true(f->code == ST_INTERNAL || f->code == ST_CAPACITY);
                /* one that was begun leaves its session, one that was refused none */
                assert_true(sessions_count(r.sessions) == 0 || loop_rig_count(&r, id) > 1);
                sessions_close(r.sessions, (wire_string){"s", 1});
            }
            assert_int_equal(r.tasks.n, 0);
        }
        assert_true(n_failed >= 1);
        loop_rig_close(&r);
    }
}

/* Without room in the output a reply computes nothing and keeps its place. */
static void test_no_room(void **state)
{
    static loop_rig r;
    loop_rig_open_still(&r, "abc");
    loop_rig_start_preparer(&r);
    loop_rig_send(&r, "{\"prompt\":\"hi>\"}");
    while (r.engine.model.n_calls == 0) {
        loop_rig_turns(&r, 1);
    }
    loop_rig_fill_output(&r);
    size_t calls = r.engine.model.n_calls;
    loop_rig_turns(&r, 5);
    assert_int_equal(r.engine.model.n_calls, calls);
    loop_rig_start_writer(&r);
    loop_rig_run(&r);
    while (r.tasks.n > 0) {
        bell_wait(&r.bell, &r.halt, BELL_FOREVER);
        loop_rig_run(&r);
    }
    loop_rig_hear(&r);
    expect_text(&r, "abc");
    loop_rig_close(&r);
}

/* Halted, with room or without: gone at the next step, and nothing more is said. */
static void test_halt(void **state)
{
    for (int full = 0; full < 2; full++) {
        static loop_rig r;
        loop_rig_open_still(&r, "abc");
        loop_rig_start_preparer(&r);
        loop_rig_send(&r, "{\"prompt\":\"hi>\",\"session_id\":\"s\"}");
        loop_rig_send(&r, "{\"id\":\"x\",\"op\":\"generate\",\"prompt\":\"hi>\"}");
        while (r.engine.model.n_logit_rows < 2) {
            loop_rig_turns(&r, 1);
        }
        if (full) {
            loop_rig_fill_output(&r);
        }
        uint64_t said = output_said(r.out);
        halt_ask(&r.halt, 15);
        loop_run(&r.loop);
        assert_int_equal(engine_running(r.engine.en), 0);
        assert_true(output_said(r.out) == said);
        loop_rig_close(&r);
    }
}

/*
 * The cancel pipe
 */
static void begin(loop_rig *r, const char *line, size_t n_calls)
{
    loop_rig_forget(r);
    loop_rig_send(r, line);
    for (int n = 0; r->engine.model.n_calls < n_calls; n++) {
        assert_true(n < 1000000);
        loop_rig_turns(r, 1);
    }
}

static const frame *end(loop_rig *r)
{
    loop_rig_run(r);
    loop_rig_hear(r);
    return loop_rig_last(r, NULL);
}

static void test_cancel_in_decode(void **state)
{
    static loop_rig r;
    loop_rig_open(&r, "abcdefghij");
    begin(&r, "{\"prompt\":\">\",\"cancel_request_id\":5}", 3);
    loop_rig_cancel(&r, 4);
    loop_rig_cancel(&r, 6);
    loop_rig_turns(&r, 1);
    assert_int_equal(r.tasks.n, 1); /* others are dropped */
    loop_rig_cancel(&r, 5);
    size_t calls = r.engine.model.n_calls;
    const frame *f = end(&r);
    assert_int_equal(r.engine.model.n_calls, calls); /* at the next step */
    assert_string_equal(f->done.reason, "cancelled");
    assert_true(f->done.cancelled);
    assert_int_equal(f->done.completion_tokens, calls);
    f = ask(&r, "{\"prompt\":\">\",\"cancel_request_id\":6}"); /* never queued */
    assert_string_equal(f->done.reason, "stop");
    loop_rig_close(&r);
}

static void test_cancel_in_prefill(void **state)
{
    static loop_rig r;
    char line[300];
    loop_rig_open(&r, "abc");
    snprintf(line, sizeof line, "{\"prompt\":\"%0100d>\",\"cancel_request_id\":1,\"session_id\":\"s\"}", 0);
    begin(&r, line, 1); /* a chunk of 32 of 101 */
    loop_rig_cancel(&r, 1);
    const frame *f = end(&r);
    assert_string_equal(f->done.reason, "cancelled");
    assert_int_equal(f->done.completion_tokens, 0);
    assert_int_equal(f->done.prefilled_prompt_tokens, r.engine.model.n_rows); /* what was really computed */
    assert_true(f->done.prefilled_prompt_tokens < 101);
    loop_rig_close(&r);
}

static void test_cancel_before_it_begins(void **state)
{
    static loop_rig r;
    loop_rig_open(&r, "abc");
    loop_rig_cancel(&r, 7);
    loop_rig_cancel(&r, 8); /* the slot is taken */
    const frame *f = ask(&r, "{\"prompt\":\">\",\"cancel_request_id\":7}");
    assert_string_equal(f->done.reason, "cancelled");
    assert_int_equal(f->done.completion_tokens, 0);
    assert_int_equal(r.engine.model.n_calls, 0); /* before its first token */
    f = ask(&r, "{\"prompt\":\">\",\"cancel_request_id\":8}");
    assert_string_equal(f->done.reason, "stop");
    loop_rig_cancel(&r, 20);
    f = ask(&r, "{\"prompt\":\">\",\"cancel_request_id\":10}"); /* another id: 20 is forgotten */
    assert_string_equal(f->done.reason, "stop");
    f = ask(&r, "{\"prompt\":\">\",\"cancel_request_id\":20}");
    assert_string_equal(f->done.reason, "stop");
    loop_rig_close(&r);
}

/* While its text is prepared a request has no session yet: a cancel waits in the slot. */
static void test_cancel_while_preparing(void **state)
{
    static loop_rig r;
    loop_rig_open_still(&r, "abc");
    loop_rig_start_writer(&r);
    loop_rig_send(&r, "{\"prompt\":\">\",\"cancel_request_id\":3}");
    loop_rig_turns(&r, 2);
    loop_rig_cancel(&r, 3);
    loop_rig_turns(&r, 2);
    assert_int_equal(r.tasks.n, 1);
    loop_rig_start_preparer(&r);
    const frame *f = end(&r);
    assert_string_equal(f->done.reason, "cancelled");
    assert_int_equal(r.engine.model.n_calls, 0);
    loop_rig_close(&r);
}

/* A running request without a cancel id does not count: while it runs the slot is open. */
static void test_a_request_without_id_is_not_active(void **state)
{
    static loop_rig r;
    loop_rig_open(&r, "abcdefghij");
    begin(&r, "{\"prompt\":\">\"}", 2);
    loop_rig_cancel(&r, 1);
    const frame *f = end(&r);
    assert_string_equal(f->done.reason, "stop");
    f = ask(&r, "{\"prompt\":\">\",\"cancel_request_id\":1}");
    assert_string_equal(f->done.reason, "cancelled");
    loop_rig_close(&r);
}

static void expect_id_refused(loop_rig *r, const char *id)
{
    char line[100];
    snprintf(line, sizeof line, "{\"prompt\":\">\",\"session_id\":\"new\",\"cancel_request_id\":%s}", id);
    const frame *f = ask(r, line);
    assert_int_equal(f->kind, FRAME_ERROR);
    assert_string_equal(f->field, "cancel_request_id");
    assert_null(sessions_find(r->sessions, (wire_string){"new", 3})); /* before the session is touched */
}

static void test_ids_are_used_up(void **state)
{
    static loop_rig r;
    loop_rig_open(&r, "abc");
    ask(&r, "{\"prompt\":\">\",\"cancel_request_id\":10}");
    expect_id_refused(&r, "10");
    expect_id_refused(&r, "9");
    expect_error(&r, "{\"prompt\":\"\",\"cancel_request_id\":11}", "", ST_INVALID_FIELD);
    expect_id_refused(&r, "11"); /* used up, although it ended with an error */
    expect_error(&r, "{\"prompt\":\">\",\"cancel_request_id\":12,\"top_k\":-1}", "", ST_INVALID_FIELD);
    expect_done(&r, "{\"prompt\":\">\",\"cancel_request_id\":12}", "abc", "stop", 3,
                "new"); /* never checked */
    r.engine.model.fail = ST_INTERNAL;
    expect_error(&r, "{\"prompt\":\">\",\"cancel_request_id\":13}", "", ST_INTERNAL);
    r.engine.model.fail = ST_OK;
    expect_id_refused(&r, "13");
    ask(&r, "{\"prompt\":\">\",\"session_id\":\"a\"}");
    ask(&r, "{\"prompt\":\">\",\"session_id\":\"b\"}");
    loop_rig_cancel(&r, 14);
    expect_error(&r, "{\"prompt\":\">\",\"session_id\":\"c\",\"cancel_request_id\":14}", "", ST_CAPACITY);
    const frame *f =
        ask(&r, "{\"prompt\":\">\",\"session_id\":\"a\",\"cancel_request_id\":14}"); /* not used up */
    assert_string_equal(f->done.reason, "cancelled");
    expect_id_refused(&r, "1");
    expect_id_refused(&r, "0");
    expect_id_refused(&r, "-1");
    expect_id_refused(&r, "1.0");
    expect_id_refused(&r, "\"15\"");
    expect_id_refused(&r, "null");
    expect_done(&r, "{\"prompt\":\">\",\"cancel_request_id\":18446744073709551615}", "abc", "stop", 3, "new");
    expect_error(&r, "{\"prompt\":\">\",\"cancel_request_id\":18446744073709551616}", "", ST_BAD_REQUEST);
    expect_id_refused(&r, "18446744073709551615");
    loop_rig_close(&r);
}

/* Decided, but its last frames wait behind a reader that does not read: its own cancel changes nothing, and the
 * next one's is dropped, not queued. */
static void test_seal_against_a_blocked_writer(void **state)
{
    static loop_rig r;
    loop_rig_open_still(&r, "abc");
    loop_rig_start_preparer(&r);
    loop_rig_send(&r, "{\"prompt\":\">\",\"cancel_request_id\":1}");
    loop_rig_run(&r);
    assert_int_equal(r.tasks.n, 0); /* ended */
    assert_int_equal(output_written(r.out), 0);
    loop_rig_cancel(&r, 1);
    loop_rig_cancel(&r, 2);
    loop_rig_start_writer(&r);
    loop_rig_hear(&r);
    assert_string_equal(loop_rig_last(&r, NULL)->done.reason, "stop");
    expect_text(&r, "abc");
    const frame *f = ask(&r, "{\"prompt\":\">\",\"cancel_request_id\":2}");
    assert_string_equal(f->done.reason, "stop");
    loop_rig_cancel(&r, 3); /* written: nothing is active */
    f = ask(&r, "{\"prompt\":\">\",\"cancel_request_id\":3}");
    assert_string_equal(f->done.reason, "cancelled");
    loop_rig_close(&r);
}

/* A cancel before the seal wins even over an end token in the same step. */
typedef struct cancel_plan {
    loop_rig *r;
    size_t left; /* forward calls until the one in which the cancel comes */
} cancel_plan;

static void cancel_in_step(void *ctx)
{
    cancel_plan *p = ctx;
    if (--p->left == 0) {
        loop_rig_cancel(p->r, 1);
    }
}

static void test_cancel_in_the_last_step(void **state)
{
    /* "abc": four forward calls; the last one gives the end token. A budget of 3 ends with the third. */
    static const struct {
        const char *line;
        size_t n_calls;
    } cases[] = {
        {"{\"prompt\":\">\",\"cancel_request_id\":1}", 4},
        {"{\"prompt\":\">\",\"cancel_request_id\":1,\"max_new_tokens\":3}", 3},
        {"{\"prompt\":\">\",\"cancel_request_id\":1,\"stop\":[\"c\"]}", 3},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        static loop_rig r;
        loop_rig_open(&r, "abc");
        cancel_plan plan = {&r, cases[i].n_calls};
        r.engine.model.on_step = cancel_in_step;
        r.engine.model.on_step_ctx = &plan;
        const frame *f = ask(&r, cases[i].line);
        assert_int_equal(plan.left, 0); /* it was the last one */
        assert_string_equal(f->done.reason, "cancelled");
        loop_rig_close(&r);
    }
}

/* Held because nobody reads: the cancel acts all the same. */
static void test_cancel_while_blocked(void **state)
{
    static loop_rig r;
    loop_rig_open_still(&r, "abcdef");
    loop_rig_start_preparer(&r);
    begin(&r, "{\"prompt\":\">\",\"cancel_request_id\":1}", 2);
    loop_rig_fill_output(&r);
    loop_rig_turns(&r, 1);
    assert_int_equal(r.tasks.n, 1);
    loop_rig_cancel(&r, 1);
    loop_rig_turns(&r, 1);
    assert_int_equal(r.tasks.n, 0);
    loop_rig_start_writer(&r);
    loop_rig_hear(&r);
    assert_string_equal(loop_rig_last(&r, NULL)->done.reason, "cancelled");
    loop_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frames),
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_failures_make_dirty),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_halt),
        cmocka_unit_test(test_cancel_in_decode),
        cmocka_unit_test(test_cancel_in_prefill),
        cmocka_unit_test(test_cancel_before_it_begins),
        cmocka_unit_test(test_cancel_while_preparing),
        cmocka_unit_test(test_a_request_without_id_is_not_active),
        cmocka_unit_test(test_ids_are_used_up),
        cmocka_unit_test(test_seal_against_a_blocked_writer),
        cmocka_unit_test(test_cancel_in_the_last_step),
        cmocka_unit_test(test_cancel_while_blocked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
