/*
 * The multiplexed dialect on a scripted model: what is said about each request, and cancel, pause and deadline in
 * every state that one can be in.
 */
#include "base/test_main.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "worker/loop_rig.h"

#define LONG_REPLY                                                                           \
    "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefgh" \
    "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefgh"

/* <|im_start|> u s er LF h i <|im_end|> LF <|im_start|> a s s i s t a n t LF: the vocabulary merges only "er". */
#define HI_TOKENS 20

static void ask(loop_rig *r, const char *line)
{
    loop_rig_forget(r);
    loop_rig_send(r, line);
    loop_rig_run(r);
    loop_rig_hear(r);
}

static const frame *nth(const loop_rig *r, size_t i)
{
    assert_true(i < r->n_frames);
    return &r->frames[i];
}

static void expect_error(const loop_rig *r, const char *id, status code)
{
    const frame *f = loop_rig_last(r, id);
    assert_non_null(f);
    assert_int_equal(f->kind, FRAME_ERROR);
    assert_int_equal(f->code, code);
}

/* The reply to id: its text and its ids, which are the bytes of want_ids. */
static void expect_reply(const loop_rig *r, const char *id, const char *want_text, const char *want_ids)
{
    buf text = {0};
    ivec ids = {0};
    loop_rig_reply(r, id, &text, &ids);
    assert_string_equal(buf_str(&text), want_text);
    assert_int_equal(ids.len, strlen(want_ids));
    for (size_t i = 0; i < ids.len; i++) {
        assert_int_equal(ids.data[i], (unsigned char)want_ids[i]);
    }
    buf_release(&text);
    ivec_release(&ids);
}

/*
 * Frames
 */
static void test_accepted_comes_first(void **state)
{
    static loop_rig r;
    char digest[SHA256_HEX_LEN + 1];
    uint8_t sum[SHA256_BYTES];
    static const int32_t prompt[] = {'h', 'i', '>'};
    loop_rig_open(&r, "ab");
    ask(&r, "{\"id\":\"x\",\"op\":\"generate\",\"prompt\":\"hi>\",\"seed\":7,\"now\":1234}");
    const frame *f = nth(&r, 0);
    assert_int_equal(f->kind, FRAME_ACCEPTED);
    assert_int_equal(f->accepted.seed, 7);
    assert_int_equal(f->accepted.now_ms, 1234);
    assert_int_equal(f->accepted.prompt_tokens, 3);
    assert_int_equal(f->accepted.cached_prompt_tokens, 0);
    assert_int_equal(sha256_once(prompt, sizeof prompt, sum), ST_OK); /* of the ids as little-endian int32 */
    hex_encode(sum, sizeof sum, digest);
    assert_string_equal(f->accepted.prompt_digest, digest);
    assert_int_equal(nth(&r, 1)->kind, FRAME_TOKEN);
    assert_int_equal(nth(&r, 2)->kind, FRAME_TOKEN);
    assert_int_equal(nth(&r, 3)->kind, FRAME_DONE);
    assert_string_equal(nth(&r, 3)->done.reason, "stop");
    assert_int_equal(r.n_frames, 4);
    expect_reply(&r, "x", "ab", "ab");
    ask(&r, "{\"id\":\"x\",\"op\":\"generate\",\"prompt\":\"hi>\"}"); /* the id is free again */
    assert_true(nth(&r, 0)->accepted.seed >= 1);
    assert_int_equal(nth(&r, 0)->accepted.now_ms, r.engine.clock.wall_ms);
    loop_rig_close(&r);
}

static void test_cached_prompt_tokens(void **state)
{
    static loop_rig r;
    loop_rig_open(&r, "ab");
    ask(&r,
        "{\"id\":\"x\",\"op\":\"generate\",\"prompt\":\"qqqqq>\",\"session_id\":\"s\",\"max_new_tokens\":2}");
    assert_int_equal(nth(&r, 0)->accepted.cached_prompt_tokens, 0);
    ask(&r, "{\"id\":\"x\",\"op\":\"generate\",\"prompt\":\"qqqqq>abmore>\",\"session_id\":\"s\"}");
    assert_int_equal(nth(&r, 0)->accepted.cached_prompt_tokens, 8);
    assert_int_equal(loop_rig_last(&r, "x")->done.cached_prompt_tokens, 8);
    assert_int_equal(loop_rig_last(&r, "x")->done.reused_prompt_tokens, 8);
    loop_rig_close(&r);
}

/* Every generated id is in exactly one frame, also one without text; what the end releases is without ids. */
static void test_every_id_in_one_frame(void **state)
{
    static const struct {
        const char *fields, *text, *ids, *reason;
        size_t n_tokens; /* token frames */
    } cases[] = {
        {"", "x\xc3\xa9.", "x\xc3\xa9.", "stop", 4},                      /* half a character: "" */
        {",\"max_new_tokens\":2", "x\xef\xbf\xbd", "x\xc3", "length", 3}, /* repaired behind the last id */
        {",\"stop\":[\".!\"]", "x\xc3\xa9.", "x\xc3\xa9.", "stop", 5},    /* held back, released by the end */
        {",\"stop\":[\"\\u00e9.\"]", "x", "x\xc3\xa9.", "stop", 4},       /* cut: the ids stay */
        {",\"stop\":[\"x\"]", "", "x", "stop", 1},
        {",\"max_new_tokens\":0", "", "", "length", 0},
    };
    static loop_rig r;
    loop_rig_open(&r, "x\xc3\xa9.");
    for (size_t i = 0; i < N_OF(cases); i++) {
        char line[200];
        snprintf(line, sizeof line, "{\"id\":\"i\",\"op\":\"generate\",\"prompt\":\">\"%s}", cases[i].fields);
        ask(&r, line);
        expect_reply(&r, "i", cases[i].text, cases[i].ids);
        const frame *done = loop_rig_last(&r, "i");
        assert_int_equal(done->kind, FRAME_DONE);
        assert_string_equal(done->done.reason, cases[i].reason);
        assert_int_equal(done->done.completion_tokens, strlen(cases[i].ids));
        assert_int_equal(r.n_frames, cases[i].n_tokens + 2); /* accepted and done */
        for (size_t k = 1; k + 1 < r.n_frames; k++) {
            assert_int_equal(r.frames[k].kind, FRAME_TOKEN);
            bool is_tail = k > strlen(cases[i].ids);
            assert_int_equal(r.frames[k].n_ids, is_tail ? 0 : 1);
            assert_true(!is_tail || r.frames[k].text_len > 0);
        }
    }
    loop_rig_close(&r);
}

static void test_chat(void **state)
{
    static loop_rig r;
    loop_rig_open(&r, "");
    ask(&r, "{\"id\":\"c\",\"op\":\"chat\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"max_new_"
            "tokens\":0}");
    assert_int_equal(nth(&r, 0)->kind, FRAME_ACCEPTED);
    assert_int_equal(nth(&r, 0)->accepted.prompt_tokens, HI_TOKENS);
    r.says = "ok"; /* the layout has a '>' and more behind it: the reply to that is the model's own affair */
    ask(&r, "{\"id\":\"c\",\"op\":\"chat\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"max_new_"
            "tokens\":3,"
            "\"logprobs\":true}");
    for (size_t k = 1; k + 1 < r.n_frames; k++) {
        assert_int_equal(r.frames[k].kind, FRAME_DELTA);
    }
    loop_rig_close(&r);
}

static void test_logprobs(void **state)
{
    static loop_rig r;
    loop_rig_open(&r, "ab");
    ask(&r, "{\"id\":\"x\",\"op\":\"generate\",\"prompt\":\"hi>\",\"logprobs\":true,\"top_logprobs\":3,"
            "\"prompt_logprobs\":2}");
    assert_int_equal(nth(&r, 0)->kind, FRAME_ACCEPTED);
    const frame *f = nth(&r, 1); /* in a frame of their own before the first token */
    assert_int_equal(f->kind, FRAME_PROMPT_LOGPROBS);
    assert_int_equal(f->n_logprobs, 2);
    assert_int_equal(f->logprobs[0].token, 'i');
    assert_int_equal(f->logprobs[1].token, '>');
    assert_int_equal(f->logprobs[1].n_top, 2);
    f = nth(&r, 2);
    assert_int_equal(f->n_logprobs, 1);
    assert_int_equal(f->logprobs[0].token, 'a');
    assert_int_equal(f->logprobs[0].n_top, 3);
    assert_int_equal(f->logprobs[0].top[0].token, 'a'); /* it was greedy */
    assert_true(f->logprobs[0].logprob == f->logprobs[0].top[0].logprob);
    assert_true(f->logprobs[0].logprob <= 0);
    assert_int_equal(f->logprobs[0].text.len, 1);
    ask(&r, "{\"id\":\"x\",\"op\":\"generate\",\"prompt\":\"hi>\"}");
    assert_null(nth(&r, 1)->logprobs);
    loop_rig_close(&r);
}

static void test_sampling_fields_reach_the_engine(void **state)
{
    static loop_rig r;
    loop_rig_open(&r, "ab");
    /* the script's token is by far the likeliest: only a bias that forbids keeps it away */
    ask(&r, "{\"id\":\"x\",\"op\":\"generate\",\"prompt\":\">\",\"logit_bias\":{\"97\":-1e30},\"max_new_"
            "tokens\":1,"
            "\"logprobs\":true,\"top_logprobs\":1}");
    const frame *f = nth(&r, 1);
    assert_int_not_equal(f->ids[0], 'a');
    assert_int_equal(f->logprobs[0].top[0].token, 'a');
    ask(&r, "{\"id\":\"x\",\"op\":\"generate\",\"prompt\":\">\",\"stop_token_ids\":[98]}");
    expect_reply(&r, "x", "a", "a"); /* neither emitted nor counted */
    assert_string_equal(loop_rig_last(&r, "x")->done.reason, "stop");
    ask(&r, "{\"id\":\"x\",\"op\":\"generate\",\"prompt\":\">\",\"ignore_eos\":true,\"max_new_tokens\":5}");
    assert_int_equal(loop_rig_last(&r, "x")->done.completion_tokens, 5);
    ask(&r, "{\"id\":\"x\",\"op\":\"generate\",\"prompt\":\">\",\"min_tokens\":4,\"max_new_tokens\":9}");
    assert_true(loop_rig_last(&r, "x")->done.completion_tokens >= 4);
    loop_rig_close(&r);
}

static void tick(void *ctx)
{
    clock_fake_advance_ms(ctx, 200);
}

/* At most every 500 ms; only when asked. A step takes 200 ms here and computes 32 of 200 prompt tokens. */
static void test_progress(void **state)
{
    static loop_rig r;
    char line[400];
    size_t n = 0;
    int32_t last = 0;
    loop_rig_open(&r, "a");
    r.engine.model.on_step = tick;
    r.engine.model.on_step_ctx = &r.engine.clock;
    snprintf(line, sizeof line, "{\"id\":\"x\",\"op\":\"generate\",\"prompt\":\"%0199d>\",\"progress\":true}",
             0);
    ask(&r, line);
    for (size_t i = 0; i < r.n_frames; i++) {
        const frame *f = &r.frames[i];
        if (f->kind == FRAME_PROGRESS) {
            assert_int_equal(f->progress.prompt_tokens, 200);
            assert_int_equal(f->progress.cached, 0);
            assert_true(f->progress.processed > last && f->progress.processed < 200);
            last = f->progress.processed;
            n++;
        }
    }
    assert_int_equal(n, 2); /* after the steps at 200 and 800 ms; at 1400 ms the prompt is done */
    snprintf(line, sizeof line, "{\"id\":\"x\",\"op\":\"generate\",\"prompt\":\"%0199d>\"}", 0);
    ask(&r, line);
    for (size_t i = 0; i < r.n_frames; i++) {
        assert_int_not_equal(r.frames[i].kind, FRAME_PROGRESS);
    }
    loop_rig_close(&r);
}

/*
 * Errors
 */
static void test_errors(void **state)
{
    static loop_rig r;
    char line[1200];
    loop_rig_open(&r, "a");
    snprintf(line, sizeof line, "{\"id\":\"x\",\"op\":\"generate\",\"prompt\":\"%0600d\"}", 0);
    ask(&r, line);
    expect_error(&r, "x", ST_CONTEXT_LENGTH);
    assert_int_equal(loop_rig_last(&r, "x")->prompt_tokens, 600);
    assert_int_equal(loop_rig_last(&r, "x")->limit, 512);
    assert_int_equal(r.n_frames, 1); /* before any work */
    ask(&r, "{\"id\":\"x\",\"op\":\"generate\",\"prompt\":\"\"}");
    expect_error(&r, "x", ST_INVALID_FIELD);
    ask(&r,
        "{\"id\":\"x\",\"op\":\"generate\",\"prompt\":\"a\",\"nonsense\":1}"); /* unknown fields are errors */
    assert_int_equal(loop_rig_last(&r, "x")->kind, FRAME_ERROR);
    ask(&r, "{\"id\":\"x\",\"op\":\"generate\",\"prompt\":\"a\",\"grammar\":\"g\"}");
    expect_error(&r, "x", ST_UNSUPPORTED);
    assert_string_equal(loop_rig_last(&r, "x")->field, "grammar");
    ask(&r, "{\"id\":7,\"op\":\"generate\",\"prompt\":\"a\"}"); /* an id that is no string */
    assert_int_equal(loop_rig_last(&r, NULL)->kind, FRAME_ERROR);
    for (int i = 0; i < 3; i++) {
        snprintf(line, sizeof line, "{\"prompt\":\">\",\"session_id\":\"s%d\"}", i);
        ask(&r, line);
    }
    expect_error(&r, NULL, ST_CAPACITY); /* two keep a lane, and one is for anonymous requests */
    assert_int_equal(loop_rig_last(&r, NULL)->session_id.len, 2);
    engine_stats s = desk_stats(&r.loop.desk); /* lines that were no request do not count */
    assert_int_equal(s.requests_failed, 3);
    assert_int_equal(s.requests_done, 2);
    loop_rig_close(&r);
}

/* The running one is untouched. */
static void test_an_id_in_use(void **state)
{
    static loop_rig r;
    loop_rig_open(&r, "abcdef");
    loop_rig_send(&r, "{\"id\":\"x\",\"op\":\"generate\",\"prompt\":\">\"}");
    loop_rig_send(&r, "{\"id\":\"x\",\"op\":\"generate\",\"prompt\":\"1>\"}");
    loop_rig_send(&r, "{\"id\":\"x\",\"op\":\"stats\"}");
    loop_rig_run(&r);
    loop_rig_hear(&r);
    expect_reply(&r, "x", "abcdef", "abcdef");
    size_t n_errors = 0;
    for (size_t i = 0; i < r.n_frames; i++) {
        n_errors += r.frames[i].kind == FRAME_ERROR;
        assert_true(r.frames[i].kind != FRAME_ERROR || r.frames[i].code == ST_BAD_REQUEST);
    }
    assert_int_equal(n_errors, 2);
    assert_int_equal(loop_rig_count(&r, "x"), 2 + 1 + 6 + 1);
    loop_rig_close(&r);
}

/*
 * Small ops
 */
static void test_texts(void **state)
{
    static loop_rig r;
    loop_rig_open(&r, "a");
    ask(&r, "{\"id\":\"t\",\"op\":\"tokenize\",\"text\":\"h\\u00e9\"}");
    const frame *f = nth(&r, 0);
    assert_int_equal(f->kind, FRAME_TOKENS);
    assert_int_equal(f->n_ids, 3);
    assert_int_equal(f->ids[0], 'h');
    assert_int_equal(f->ids[1], 0xC3);
    assert_int_equal(f->pieces[0].len, 1);
    ask(&r, "{\"id\":\"t\",\"op\":\"tokenize\",\"text\":\"\"}");
    assert_int_equal(nth(&r, 0)->n_ids, 0);
    ask(&r, "{\"id\":\"d\",\"op\":\"detokenize\",\"ids\":[104,195,169,195]}");
    assert_int_equal(nth(&r, 0)->kind, FRAME_TEXT);
    assert_string_equal(nth(&r, 0)->text, "h\xc3\xa9\xef\xbf\xbd"); /* the unfinished one is repaired */
    ask(&r, "{\"id\":\"n\",\"op\":\"count\",\"text\":\"qqqqq\"}");
    assert_int_equal(nth(&r, 0)->kind, FRAME_COUNT);
    assert_int_equal(nth(&r, 0)->count, 5);
    ask(&r, "{\"id\":\"n\",\"op\":\"count\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}");
    assert_int_equal(nth(&r, 0)->count, HI_TOKENS);
    loop_rig_close(&r);
}

static const frame *session_op(loop_rig *r, const char *action)
{
    char line[100];
    snprintf(line, sizeof line, "{\"id\":\"o\",\"op\":\"session\",\"action\":\"%s\",\"session_id\":\"s\"}",
             action);
    ask(r, line);
    assert_int_equal(r->n_frames, 1);
    return nth(r, 0);
}

static void test_sessions(void **state)
{
    static loop_rig r;
    loop_rig_open(&r, "abc");
    assert_false(session_op(&r, "get")->session.known);
    assert_int_equal(session_op(&r, "reset")->kind, FRAME_RESET); /* true, and creates nothing */
    assert_int_equal(sessions_count(r.sessions), 0);
    ask(&r, "{\"id\":\"x\",\"op\":\"generate\",\"prompt\":\">\",\"session_id\":\"s\",\"max_new_tokens\":2}");
    const frame *f = session_op(&r, "get");
    assert_int_equal(f->kind, FRAME_SESSION_INFO);
    assert_true(f->session.known);
    assert_int_equal(f->session.tokens, 3);
    assert_false(f->session.dirty);
    assert_false(f->session.busy);
    ask(&r, "{\"id\":\"x\",\"op\":\"generate\",\"prompt\":\">\",\"session_id\":\"s\",\"stop\":[\"a\"]}");
    assert_true(session_op(&r, "get")->session.dirty);
    assert_int_equal(session_op(&r, "reset")->kind, FRAME_RESET);
    assert_int_equal(session_op(&r, "get")->session.tokens, 0);
    assert_false(session_op(&r, "get")->session.dirty);
    assert_int_equal(session_op(&r, "close")->kind, FRAME_CLOSED);
    assert_int_equal(sessions_count(r.sessions), 0);
    assert_int_equal(session_op(&r, "close")->kind, FRAME_CLOSED); /* an unknown id is fine */
    loop_rig_close(&r);
}

static size_t place_of(const loop_rig *r, const char *id, frame_kind kind)
{
    for (size_t i = 0; i < r->n_frames; i++) {
        const frame *f = &r->frames[i];
        if (f->kind == kind && f->id.data && strcmp(f->id.data, id) == 0) {
            return i;
        }
    }
    fail_msg("no frame of that kind for %s", id);
    return 0;
}

/* reset and close wait for what was read before them on their session, what was read after them for these; get
 * and other sessions wait for nobody. */
static void test_order_on_a_session(void **state)
{
    static loop_rig r;
    loop_rig_open(&r, "abcdef");
    loop_rig_send(&r, "{\"id\":\"1\",\"op\":\"generate\",\"prompt\":\">\",\"session_id\":\"s\"}");
    loop_rig_send(&r, "{\"id\":\"2\",\"op\":\"session\",\"action\":\"reset\",\"session_id\":\"s\"}");
    loop_rig_send(&r, "{\"id\":\"3\",\"op\":\"generate\",\"prompt\":\">abcdef>\",\"session_id\":\"s\"}");
    loop_rig_send(&r, "{\"id\":\"4\",\"op\":\"session\",\"action\":\"close\",\"session_id\":\"s\"}");
    loop_rig_send(&r, "{\"id\":\"5\",\"op\":\"session\",\"action\":\"close\",\"session_id\":\"t\"}");
    loop_rig_send(&r, "{\"id\":\"6\",\"op\":\"session\",\"action\":\"get\",\"session_id\":\"s\"}");
    loop_rig_run(&r);
    loop_rig_hear(&r);
    assert_true(place_of(&r, "1", FRAME_DONE) < place_of(&r, "2", FRAME_RESET));
    assert_true(place_of(&r, "2", FRAME_RESET) < place_of(&r, "3", FRAME_ACCEPTED));
    assert_true(place_of(&r, "3", FRAME_DONE) < place_of(&r, "4", FRAME_CLOSED));
    assert_true(place_of(&r, "5", FRAME_CLOSED) < place_of(&r, "1", FRAME_DONE));
    assert_true(place_of(&r, "6", FRAME_SESSION_INFO) < place_of(&r, "1", FRAME_DONE));
    assert_string_equal(r.frames[place_of(&r, "3", FRAME_DONE)].done.session_reset_reason, "new");
    assert_int_equal(sessions_count(r.sessions), 0);
    loop_rig_close(&r);
}

/* Both dialects share the table of sessions: a plain op waits for a multiplexed request, and the other way. */
static void test_order_between_the_dialects(void **state)
{
    static loop_rig r;
    loop_rig_open(&r, "abcdef");
    loop_rig_send(&r, "{\"id\":\"1\",\"op\":\"generate\",\"prompt\":\">\",\"session_id\":\"s\"}");
    loop_rig_send(&r, "{\"op\":\"close\",\"session_id\":\"s\"}");
    loop_rig_send(&r, "{\"prompt\":\">\",\"session_id\":\"s\"}");
    loop_rig_run(&r);
    loop_rig_hear(&r);
    size_t closed = 0;
    while (r.frames[closed].kind != FRAME_CLOSED) {
        closed++;
    }
    assert_true(place_of(&r, "1", FRAME_DONE) < closed);
    assert_int_equal(loop_rig_last(&r, NULL)->kind, FRAME_DONE);
    loop_rig_forget(&r);
    loop_rig_send(&r, "{\"prompt\":\">\",\"session_id\":\"s\"}");
    loop_rig_send(&r, "{\"id\":\"2\",\"op\":\"session\",\"action\":\"close\",\"session_id\":\"s\"}");
    loop_rig_run(&r);
    loop_rig_hear(&r);
    assert_int_equal(nth(&r, r.n_frames - 1)->kind, FRAME_CLOSED);
    loop_rig_close(&r);
}

/* Plain lines one after another, while multiplexed ones run beside them. */
static void test_both_dialects_run_together(void **state)
{
    static loop_rig r;
    loop_rig_open_still(&r, "abcdef");
    loop_rig_send(&r, "{\"prompt\":\">\"}");
    loop_rig_send(&r, "{\"prompt\":\"1>\",\"max_new_tokens\":2}");
    loop_rig_send(&r, "{\"id\":\"m\",\"op\":\"generate\",\"prompt\":\"2>\"}");
    loop_rig_turns(&r, 1);
    loop_rig_start_writer(&r);
    loop_rig_start_preparer(&r);
    loop_rig_wait_prepared(&r);
    loop_rig_run(&r);
    loop_rig_hear(&r);
    size_t n_plain = 0, first_done = 0, first_m = 0;
    for (size_t i = 0; i < r.n_frames; i++) {
        const frame *f = &r.frames[i];
        if (!f->id.data) {
            assert_true(f->kind == FRAME_TOKEN || f->kind == FRAME_DONE);
            assert_int_equal(f->kind == FRAME_DONE, n_plain == 6 || n_plain == 9);
            first_done = n_plain == 6 ? i : first_done;
            n_plain++;
        } else if (f->kind == FRAME_TOKEN && first_m == 0) {
            first_m = i;
        }
    }
    assert_int_equal(n_plain, 10);
    assert_true(first_m < first_done);
    expect_reply(&r, "m", "abcdef", "abcdef");
    loop_rig_close(&r);
}

/*
 * Every state
 */
typedef enum place {
    IN_WAITING,
    IN_PREPARING,
    IN_PREPARED,
    IN_QUEUED,
    IN_PREFILL,
    IN_DECODE,
    IN_PAUSE,
    N_PLACES
} place;

#define X_FIELDS "\"id\":\"x\",\"op\":\"generate\",\"session_id\":\"s\""

static const task *x_of(const loop_rig *r)
{
    return tasks_find(&r->tasks, (wire_string){"x", 1});
}

static void send_others(loop_rig *r, int n)
{
    for (int i = 0; i < n; i++) {
        char line[100];
        snprintf(line, sizeof line, "{\"id\":\"o%d\",\"op\":\"generate\",\"prompt\":\"%d>\"}", i, i);
        loop_rig_send(r, line);
    }
}

static void turn_until_calls(loop_rig *r, size_t n_calls)
{
    while (r->engine.model.n_calls < n_calls) {
        loop_rig_turns(r, 1);
    }
}

static void pause_x(loop_rig *r)
{
    loop_rig_send(r, "{\"id\":\"x\",\"op\":\"pause\"}");
    loop_rig_turns(r, 1);
    size_t calls = r->engine.model.n_calls;
    loop_rig_turns(r, 5);
    assert_int_equal(r->engine.model.n_calls, calls); /* it computes nothing */
}

/* Brings request x, with more fields of the caller's, to that place. Others may run beside it. All texts are
 * prepared before anything is computed, so that it does not matter how fast that is. */
static void bring(loop_rig *r, place where, const char *more)
{
    char line[600];
    loop_rig_open_still(r, LONG_REPLY);
    send_others(r, where == IN_WAITING  ? TASKS_BEGUN_PER_LANE * RIG_LANES
                   : where == IN_QUEUED ? RIG_LANES
                                        : 0);
    if (where == IN_PREFILL) {
        snprintf(line, sizeof line, "{" X_FIELDS ",\"prompt\":\"%0300d>\"%s}", 0, more);
    } else {
        snprintf(line, sizeof line, "{" X_FIELDS ",\"prompt\":\">\"%s}", more);
    }
    loop_rig_send(r, line);
    loop_rig_turns(r, 1);
    if (where == IN_PREPARING) {
        assert_int_equal(x_of(r)->state, TASK_PREPARING);
        return;
    }
    if (where == IN_PREPARED) {
        loop_rig_fill_output(r);
    }
    loop_rig_start_preparer(r);
    loop_rig_wait_prepared(r);
    loop_rig_turns(r, 1);
    size_t n_running = rig_stats(&r->engine).running;
    switch (where) {
    case IN_WAITING:
        assert_int_equal(x_of(r)->state, TASK_WAITING);
        break;
    case IN_PREPARED:
        assert_int_equal(x_of(r)->state, TASK_PREPARED);
        break;
    case IN_QUEUED:
        assert_int_equal(x_of(r)->state, TASK_RUNNING);
        assert_int_equal(n_running, RIG_LANES);
        assert_int_equal(engine_running(r->engine.en), RIG_LANES + 1); /* it has no lane */
        break;
    case IN_PREFILL:
        assert_int_equal(r->engine.model.n_logit_rows, 0);
        break;
    default:
        turn_until_calls(r, 3);
        assert_int_equal(r->engine.model.n_logit_rows, 3);
        break;
    }
    if (where == IN_PAUSE) {
        pause_x(r);
    }
}

/* The others go on; at the end nothing is left. */
static void finish(loop_rig *r)
{
    if (!r->preparing) {
        loop_rig_start_preparer(r);
    }
    if (!r->writing) {
        loop_rig_start_writer(r);
    }
    do {
        loop_rig_run(r);
        loop_rig_hear(r);
    } while (r->tasks.n > 0 || r->tasks.n_preparing > 0);
    for (int i = 0; i < TASKS_BEGUN_PER_LANE * RIG_LANES; i++) {
        char id[8];
        snprintf(id, sizeof id, "o%d", i);
        const frame *f = loop_rig_last(r, id);
        if (f) {
            assert_string_equal(f->done.reason, "stop"); /* undisturbed */
            expect_reply(r, id, LONG_REPLY, LONG_REPLY);
        }
    }
    assert_int_equal(inbox_waiting(r->box), 0);
    assert_int_equal(r->tasks.n_begun, 0);
    loop_rig_close(r);
}

static void expect_cut(loop_rig *r, const char *reason, const char *guard)
{
    assert_null(x_of(r)); /* at once: its last frame is said */
    if (!r->writing) {
        loop_rig_start_writer(r);
    }
    loop_rig_hear(r);
    const frame *f = loop_rig_last(r, "x");
    assert_non_null(f);
    assert_int_equal(f->kind, FRAME_DONE);
    assert_string_equal(f->done.reason, reason);
    assert_string_equal(f->done.guard, guard);
    assert_string_equal(f->done.finish_reason, strcmp(reason, "timeout") == 0 ? "length" : "stop");
}

static void test_cancel_in_every_state(void **state)
{
    for (place where = 0; where < N_PLACES; where++) {
        static loop_rig r;
        bring(&r, where, "");
        size_t calls = r.engine.model.n_calls;
        loop_rig_send(&r, "{\"id\":\"x\",\"op\":\"cancel\"}");
        loop_rig_send(&r, "{\"id\":\"x\",\"op\":\"cancel\"}"); /* idempotent */
        loop_rig_turns(&r, 1);
        assert_true(r.engine.model.n_calls <= calls + 1); /* of the others */
        expect_cut(&r, "cancelled", "");
        size_t n = loop_rig_count(&r, "x");
        loop_rig_send(&r, "{\"id\":\"x\",\"op\":\"cancel\"}"); /* finished: ignored */
        loop_rig_send(&r, "{\"id\":\"nobody\",\"op\":\"cancel\"}");
        loop_rig_turns(&r, 1);
        assert_int_equal(desk_stats(&r.loop.desk).requests_cancelled, 1); /* wherever it was */
        loop_rig_hear(&r);
        assert_int_equal(loop_rig_count(&r, "x"), n);
        assert_int_equal(loop_rig_count(&r, "nobody"), 0);
        finish(&r);
    }
}

static void test_deadline_in_every_state(void **state)
{
    for (place where = 0; where < N_PLACES; where++) {
        static loop_rig r;
        bring(&r, where, ",\"deadline_ms\":1000");
        clock_fake_advance_ms(&r.engine.clock, 999);
        assert_true(loop_wait_ms(&r.loop) <= 2); /* the loop wakes for it by itself */
        loop_rig_turns(&r, 1);
        assert_non_null(x_of(&r));
        clock_fake_advance_ms(&r.engine.clock, 1);
        loop_rig_turns(&r, 1);
        assert_int_equal(desk_stats(&r.loop.desk).requests_done, 1);
        expect_cut(&r, "timeout", "deadline");
        finish(&r);
    }
}

/* Paused, it neither computes nor says a token, however far it was; continued, it says what it would have. */
static void test_pause_in_every_state(void **state)
{
    for (place where = 0; where < IN_PAUSE; where++) {
        static loop_rig r;
        bring(&r, where, "");
        loop_rig_send(&r, "{\"id\":\"x\",\"op\":\"pause\"}");
        loop_rig_send(&r, "{\"id\":\"nobody\",\"op\":\"pause\"}");
        loop_rig_turns(&r, 1);
        if (!r.preparing) {
            loop_rig_start_preparer(&r);
        }
        if (!r.writing) {
            loop_rig_start_writer(&r);
        }
        loop_rig_hear(&r);
        size_t had = loop_rig_count(&r, "x");
        loop_rig_run(&r); /* the others end */
        loop_rig_hear(&r);
        assert_int_equal(r.tasks.n, 1);
        assert_true(loop_rig_count(&r, "x") <= had + 1); /* `accepted` may come */
        size_t calls = r.engine.model.n_calls;
        clock_fake_advance_ms(&r.engine.clock, 119000);
        loop_rig_turns(&r, 3);
        assert_int_equal(r.engine.model.n_calls, calls);
        loop_rig_send(&r, "{\"id\":\"x\",\"op\":\"continue\"}");
        loop_rig_run(&r);
        loop_rig_hear(&r);
        assert_string_equal(loop_rig_last(&r, "x")->done.reason, "stop");
        expect_reply(&r, "x", LONG_REPLY, LONG_REPLY);
        finish(&r);
    }
}

static void test_slow_reader_in_every_state(void **state)
{
    for (place where = 0; where < IN_PAUSE; where++) {
        static loop_rig r;
        bring(&r, where, "");
        loop_rig_send(&r, "{\"id\":\"x\",\"op\":\"pause\"}");
        loop_rig_turns(&r, 1);
        clock_fake_advance_ms(&r.engine.clock, 119999);
        loop_rig_send(&r, "{\"id\":\"x\",\"op\":\"pause\"}"); /* paused already: the time goes on */
        loop_rig_turns(&r, 1);
        assert_non_null(x_of(&r));
        clock_fake_advance_ms(&r.engine.clock, 1);
        loop_rig_turns(&r, 1);
        expect_cut(&r, "cancelled", "slow_reader");
        finish(&r);
    }
}

/* A pause that ended does not count. */
static void test_pauses_are_not_added_up(void **state)
{
    static loop_rig r;
    bring(&r, IN_DECODE, "");
    for (int i = 0; i < 3; i++) {
        loop_rig_send(&r, "{\"id\":\"x\",\"op\":\"pause\"}");
        loop_rig_turns(&r, 1);
        clock_fake_advance_ms(&r.engine.clock, 100000);
        loop_rig_send(&r, "{\"id\":\"x\",\"op\":\"continue\"}");
        loop_rig_turns(&r, 1);
        assert_non_null(x_of(&r));
    }
    finish(&r);
}

/* A request that was cancelled while the preparer had its text leaves its id and nothing else behind. */
static void test_an_id_is_free_at_once(void **state)
{
    static loop_rig r;
    bring(&r, IN_PREPARING, "");
    for (int i = 0; i < 10; i++) {
        loop_rig_send(&r, "{\"id\":\"x\",\"op\":\"cancel\"}");
        loop_rig_send(&r, "{\"id\":\"x\",\"op\":\"tokenize\",\"text\":\"abc\"}");
        loop_rig_turns(&r, 1);
    }
    loop_rig_start_writer(&r);
    loop_rig_start_preparer(&r);
    loop_rig_run(&r);
    loop_rig_hear(&r);
    assert_int_equal(loop_rig_last(&r, "x")->kind, FRAME_TOKENS);
    assert_int_equal(loop_rig_count(&r, "x"), 11); /* ten cuts and one answer */
    finish(&r);
}

/*
 * Bounds and the end
 */

/* Generations are begun in the order read, so many at once; small ops overtake those that wait. */
static void test_how_many_are_begun(void **state)
{
    enum { N = 20 };
    static loop_rig r;
    loop_rig_open(&r, "abc");
    send_others(&r, N);
    loop_rig_send(&r, "{\"id\":\"t\",\"op\":\"count\",\"text\":\"abc\"}");
    size_t order[N] = {0}, n = 0, count_at = 0;
    loop_rig_turns(&r, 1);
    /* what is begun waits no longer, so that others are read; a small op counts until it is answered */
    assert_true(inbox_waiting(r.box) == N - TASKS_BEGUN_PER_LANE * RIG_LANES + 1);
    for (int n_turns = 0; r.tasks.n > 0; n_turns++) {
        assert_true(n_turns < 100000000);
        loop_rig_turns(&r, 1);
        assert_true(r.tasks.n_begun <= TASKS_BEGUN_PER_LANE * RIG_LANES);
    }
    loop_rig_hear(&r);
    for (size_t i = 0; i < r.n_frames; i++) {
        const frame *f = &r.frames[i];
        if (f->kind == FRAME_ACCEPTED) {
            size_t which = 0;
            sscanf(f->id.data, "o%zu", &which);
            order[n++] = which;
        } else if (f->kind == FRAME_COUNT) {
            count_at = n;
        }
    }
    assert_int_equal(n, N);
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(order[i], i);
    }
    assert_true(count_at < N);
    loop_rig_close(&r);
}

static void test_drain(void **state)
{
    static loop_rig r;
    loop_rig_open(&r, "abcdef");
    send_others(&r, 6);
    loop_rig_send(&r, "{\"prompt\":\">\"}");
    loop_rig_send(&r, "{\"prompt\":\">\",\"max_new_tokens\":1}");
    loop_rig_send(&r, "{\"op\":\"drain\"}");
    loop_rig_send(&r, "{\"id\":\"late\",\"op\":\"generate\",\"prompt\":\">\"}");
    loop_rig_send(&r, "{\"id\":\"late2\",\"op\":\"tokenize\",\"text\":\"a\"}");
    loop_rig_send(&r, "{\"prompt\":\"late\"}");
    loop_rig_send(&r, "{\"op\":\"open\",\"session_id\":\"late\"}");
    loop_run(&r.loop); /* returns by itself, although more lines could come */
    loop_rig_hear(&r);
    for (int i = 0; i < 6; i++) { /* what was there is finished */
        char id[8];
        snprintf(id, sizeof id, "o%d", i);
        expect_reply(&r, id, "abcdef", "abcdef");
        assert_string_equal(loop_rig_last(&r, id)->done.reason, "stop");
    }
    expect_error(&r, "late", ST_DRAINING);
    expect_error(&r, "late2", ST_DRAINING);
    size_t n_done = 0, n_errors = 0;
    for (size_t i = 0; i < r.n_frames; i++) {
        n_done += !r.frames[i].id.data && r.frames[i].kind == FRAME_DONE;
        n_errors +=
            !r.frames[i].id.data && r.frames[i].kind == FRAME_ERROR && r.frames[i].code == ST_DRAINING;
    }
    assert_int_equal(n_done, 2);
    assert_int_equal(n_errors, 2);
    assert_int_equal(loop_rig_last(&r, NULL)->session_id.len, 4); /* an answer to an op carries it */
    loop_rig_close(&r);
}

static void test_cancel_while_draining(void **state)
{
    static loop_rig r;
    bring(&r, IN_PAUSE, "");
    loop_rig_start_writer(&r);
    loop_rig_send(&r, "{\"op\":\"drain\"}");
    loop_rig_turns(&r, 3);
    assert_non_null(x_of(&r));
    loop_rig_send(&r, "{\"id\":\"x\",\"op\":\"cancel\"}");
    loop_run(&r.loop);
    expect_cut(&r, "cancelled", "");
    finish(&r);
}

/* EOF: everything that was read is answered, multiplexed requests too. */
static void test_end_of_input(void **state)
{
    static loop_rig r;
    loop_rig_open(&r, "abcdef");
    send_others(&r, 6);
    inbox_end(r.box);
    loop_run(&r.loop);
    loop_rig_hear(&r);
    for (int i = 0; i < 6; i++) {
        char id[8];
        snprintf(id, sizeof id, "o%d", i);
        expect_reply(&r, id, "abcdef", "abcdef");
    }
    loop_rig_close(&r);
}

/* Without room nothing is answered, and cancels still act; what is said then is bounded by what was live. */
static void test_no_room(void **state)
{
    static loop_rig r;
    loop_rig_open_still(&r, LONG_REPLY);
    loop_rig_start_preparer(&r);
    send_others(&r, 2);
    turn_until_calls(&r, 3);
    loop_rig_fill_output(&r);
    uint64_t said = output_said(r.out);
    for (int i = 0; i < 500; i++) {
        loop_rig_send(&r, "{\"id\":\"t\",\"op\":\"generate\",\"nonsense\":1}");
        loop_rig_send(&r, "{");
    }
    size_t calls = r.engine.model.n_calls;
    loop_rig_turns(&r, 10);
    assert_true(output_said(r.out) == said);
    assert_int_equal(r.engine.model.n_calls, calls);
    assert_int_equal(inbox_waiting(r.box), 1000);
    loop_rig_send(&r, "{\"id\":\"o0\",\"op\":\"cancel\"}");
    loop_rig_turns(&r, 1);
    assert_null(tasks_find(&r.tasks, (wire_string){"o0", 2}));
    loop_rig_start_writer(&r);
    while (r.tasks.n > 0) {
        loop_rig_run(&r);
        loop_rig_hear(&r);
    }
    assert_int_equal(loop_rig_count(&r, "t"), 500);
    assert_int_equal(loop_rig_count(&r, NULL), 500);
    expect_reply(&r, "o1", LONG_REPLY, LONG_REPLY);
    assert_string_equal(loop_rig_last(&r, "o0")->done.reason, "cancelled");
    loop_rig_close(&r);
}

/* The status page tells what is, and before each step which sequences are in it. */
static loop_rig *watched;
static size_t n_watched;

static void watch_step(void *ctx)
{
    status_snapshot s;
    (void)ctx;
    status_page_read(watched->page, &s);
    assert_true(s.step_whole);
    assert_true(s.n_rows >= 1 && s.n_rows <= RIG_LANES);
    for (size_t i = 0; i < s.n_rows; i++) {
        bool plain = s.id_hash[i] == 0;
        assert_true(plain || s.id_hash[i] == status_page_id_hash("o0", 2));
        n_watched++;
    }
    assert_true(s.row[STATUS_ROW_PHASE] == STATUS_PREFILL || s.row[STATUS_ROW_PHASE] == STATUS_DECODE);
}

static void test_status_page(void **state)
{
    static loop_rig r;
    status_snapshot s;
    loop_rig_open(&r, "abc");
    watched = &r;
    n_watched = 0;
    r.engine.model.on_step = watch_step;
    send_others(&r, 1);
    loop_rig_send(&r, "{\"prompt\":\"1>\"}");
    loop_rig_run(&r);
    loop_rig_hear(&r);
    assert_int_equal(n_watched, 8); /* two replies of three tokens and an end */
    status_page_read(r.page, &s);
    assert_int_equal(s.n_rows, 0); /* between steps */
    assert_true(s.row[STATUS_ROW_TICK] > 0);
    assert_int_equal(s.row[STATUS_ROW_TOKENS_GENERATED], 6);
    assert_int_equal(s.row[STATUS_ROW_TOKENS_PREFILLED], 4);
    assert_int_equal(s.row[STATUS_ROW_PREPARED], 2);
    assert_int_equal(s.row[STATUS_ROW_LANES_TOTAL], RIG_LANES);
    assert_int_equal(s.row[STATUS_ROW_LANES_LIVE], 0);
    assert_int_equal(s.row[STATUS_ROW_QUEUED], 0);
    assert_int_equal(s.row[STATUS_ROW_RUNNING], 0);
    assert_int_equal(s.row[STATUS_ROW_PAGES_TOTAL], 64);
    assert_int_equal(s.row[STATUS_ROW_PAGES_USED], 0);
    assert_int_equal(s.row[STATUS_ROW_REQUESTS_DONE], 2);
    assert_true(s.row[STATUS_ROW_OUTPUT_BYTES] == output_said(r.out));
    loop_rig_close(&r);
}

/* While there is work but nothing to compute the tick still rises now and then; idle it waits for ever. */
static void test_waiting(void **state)
{
    static loop_rig r;
    bring(&r, IN_PAUSE, "");
    assert_true(loop_wait_ms(&r.loop) > 0 && loop_wait_ms(&r.loop) <= 1001);
    loop_rig_send(&r, "{\"id\":\"x\",\"op\":\"cancel\"}");
    loop_rig_turns(&r, 1);
    assert_int_equal(loop_wait_ms(&r.loop), BELL_FOREVER);
    finish(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accepted_comes_first),
        cmocka_unit_test(test_cached_prompt_tokens),
        cmocka_unit_test(test_every_id_in_one_frame),
        cmocka_unit_test(test_chat),
        cmocka_unit_test(test_logprobs),
        cmocka_unit_test(test_sampling_fields_reach_the_engine),
        cmocka_unit_test(test_progress),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_an_id_in_use),
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_sessions),
        cmocka_unit_test(test_order_on_a_session),
        cmocka_unit_test(test_order_between_the_dialects),
        cmocka_unit_test(test_both_dialects_run_together),
        cmocka_unit_test(test_cancel_in_every_state),
        cmocka_unit_test(test_deadline_in_every_state),
        cmocka_unit_test(test_pause_in_every_state),
        cmocka_unit_test(test_slow_reader_in_every_state),
        cmocka_unit_test(test_pauses_are_not_added_up),
        cmocka_unit_test(test_an_id_is_free_at_once),
        cmocka_unit_test(test_how_many_are_begun),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_cancel_while_draining),
        cmocka_unit_test(test_end_of_input),
        cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_status_page),
        cmocka_unit_test(test_waiting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
