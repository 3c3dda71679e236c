/*
 * One reply against an engine whose model is scripted: the frames it says, failures, memory, halting.
 */
#include "base/test_main.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "engine/engine_rig.h"
#include "wire/frame.h"
#include "worker/reply.h"

typedef struct desk {
    engine_rig rig;
    tokenizer *tok;
    int32_t eos;
    halt halt;
    bell bell;
    output *out;
    int null_fd;
    sessions *sessions;
    ivec prefix;
    reply reply;
    const char *says; /* what the model answers to a prompt that ends in '>' */
} desk;

/* After a prompt that ends in '>' the bytes of `says`, then the end token. */
static int32_t say(void *ctx, const int32_t *tokens, size_t n)
{
    desk *d = ctx;
    size_t at = n;
    while (at > 0 && tokens[at - 1] != '>') {
        at--;
    }
    size_t k = n - at;
    return k < strlen(d->says) ? (unsigned char)d->says[k] : d->eos;
}

static void desk_open(desk *d, const char *says)
{
    memset(d, 0, sizeof *d);
    rig_config cfg = rig_config_default();
    d->tok = byte_tokenizer_open(&d->eos);
    d->says = says;
    cfg.tok = d->tok;
    rig_open(&d->rig, &cfg);
    d->rig.model.script = say;
    d->rig.model.script_ctx = d;
    d->null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    assert_true(d->null_fd >= 0);
    assert_int_equal(halt_open(&d->halt, NULL), ST_OK);
    assert_int_equal(bell_open(&d->bell, NULL), ST_OK);
    assert_int_equal(output_open(d->null_fd, &d->halt, &d->bell, &d->out, NULL), ST_OK);
    assert_int_equal(sessions_new(d->rig.en, 2, &d->sessions), ST_OK);
    d->reply = (reply){.en = d->rig.en,
                       .tok = d->tok,
                       .clock = &d->rig.clock.src,
                       .prefix = &d->prefix,
                       .n_ctx = cfg.n_ctx,
                       .sessions = d->sessions,
                       .out = d->out,
                       .halt = &d->halt};
}

static void desk_close(desk *d)
{
    sessions_free(d->sessions);
    output_close(d->out);
    bell_close(&d->bell);
    halt_close(&d->halt);
    close(d->null_fd);
    rig_close(&d->rig);
    tokenizer_free(d->tok);
}

/* Takes up a line; it must be a good one. */
static void start(desk *d, const char *line)
{
    wire_request *r;
    buf answer = {0};
    assert_int_equal(wire_request_decode(line, strlen(line), tokenizer_n_vocab(d->tok), &r, &answer, NULL),
                     ST_OK);
    reply_start(&d->reply, r);
    wire_request_free(r);
    buf_release(&answer);
}

static void finish(desk *d)
{
    for (int i = 0; reply_running(&d->reply); i++) {
        assert_true(i < 10000);
        engine_step(d->rig.en);
    }
}

/* What was said since the last call: the text of all token frames, and the last frame. */
static frame heard(desk *d, buf *text, size_t *n_frames)
{
    buf *stage = output_stage(d->out);
    frame last = {.kind = FRAME_UNKNOWN};
    size_t n = 0;
    buf_reset(text);
    for (char *line = stage->data, *end; line && (end = strchr(line, '\n')); line = end + 1) {
        frame_release(&last);
        assert_int_equal(frame_decode(line, (size_t)(end - line), &last, NULL), ST_OK);
        if (last.kind == FRAME_TOKEN) {
            assert_true(last.text_len > 0);
            buf_append(text, last.text, last.text_len);
        }
        n++;
    }
    buf_reset(stage);
    *n_frames = n;
    return last;
}

static void expect_done(desk *d, const char *want_text, const char *reason, int32_t n_completion,
                        const char *reset)
{
    buf text = {0};
    size_t n;
    finish(d);
    frame f = heard(d, &text, &n);
    assert_int_equal(f.kind, FRAME_DONE);
    assert_string_equal(buf_str(&text), want_text);
    assert_string_equal(f.done.reason, reason);
    assert_int_equal(f.done.completion_tokens, n_completion);
    assert_string_equal(f.done.session_reset_reason, reset);
    frame_release(&f);
    buf_release(&text);
}

static void expect_error(desk *d, const char *want_text, status code)
{
    buf text = {0};
    size_t n;
    finish(d);
    frame f = heard(d, &text, &n);
    assert_int_equal(f.kind, FRAME_ERROR);
    assert_int_equal(f.code, code);
    assert_string_equal(buf_str(&text), want_text);
    frame_release(&f);
    buf_release(&text);
}

static void test_frames(void **state)
{
    desk d;
    desk_open(&d, "hello \xc3\xa9!");
    start(&d, "{\"prompt\":\"hi>\"}");
    expect_done(&d, "hello \xc3\xa9!", "stop", 9, "new"); /* the end token does not count */
    start(&d, "{\"prompt\":\"hi>\",\"max_new_tokens\":7}");
    expect_done(&d, "hello \xef\xbf\xbd", "length", 7, "new"); /* the unfinished character is repaired */
    start(&d, "{\"prompt\":\"hi>\",\"stop\":[\"o \\u00e9\",\"zz\"]}");
    expect_done(&d, "hell", "stop", 8, "new");
    start(&d, "{\"prompt\":\"hi>\",\"stop\":[\"!?\"]}"); /* held back, then flushed */
    expect_done(&d, "hello \xc3\xa9!", "stop", 9, "new");
    start(&d, "{\"prompt\":\"hi>\",\"stop\":[\"hello\"]}");
    expect_done(&d, "", "stop", 5, "new");
    d.says = "";
    start(&d, "{\"prompt\":\"hi>\"}");
    expect_done(&d, "", "stop", 0, "new");
    desk_close(&d);
}

static void tick(void *ctx)
{
    clock_fake_advance_ms(ctx, 10);
}

static void test_times(void **state)
{
    desk d;
    buf text = {0};
    size_t n;
    desk_open(&d, "abcd");
    d.rig.model.on_step = tick;
    d.rig.model.on_step_ctx = &d.rig.clock;
    start(&d, "{\"prompt\":\"hi>\",\"max_new_tokens\":4}");
    clock_fake_advance_ms(&d.rig.clock, 5); /* before its first step */
    finish(&d);
    frame f = heard(&d, &text, &n);
    assert_true(f.done.prefill_ms == 10);
    assert_true(f.done.decode_ms == 30); /* the first token comes with the prompt */
    assert_true(f.done.total_ms == 45);
    assert_true(f.done.queue_ms == 5);
    frame_release(&f);
    buf_release(&text);
    desk_close(&d);
}

/* A failed decode is an error frame after the tokens; the session is dirty until a reset that works. */
static void test_failures_make_dirty(void **state)
{
    desk d;
    desk_open(&d, "abcX");
    start(&d, "{\"prompt\":\"hi>\",\"session_id\":\"s\",\"max_new_tokens\":2}");
    expect_done(&d, "ab", "length", 2, "new");
    d.rig.model.bad_token = 'X';
    start(&d, "{\"prompt\":\"hi>\",\"session_id\":\"s\"}");
    expect_error(&d, "abcX", ST_NONFINITE);
    d.rig.model.bad_token = -1;
    start(&d, "{\"prompt\":\"hi>\",\"session_id\":\"s\",\"max_new_tokens\":2}");
    expect_done(&d, "ab", "length", 2, "dirty");
    d.rig.model.fail = ST_INTERNAL;
    start(&d, "{\"prompt\":\"hi>x\",\"session_id\":\"s\"}"); /* a failed prefill */
    expect_error(&d, "", ST_INTERNAL);
    d.rig.model.fail = ST_OK;
    assert_int_equal(session_reset(sessions_find(d.sessions, (wire_string){"s", 1})), ST_OK);
    start(&d, "{\"prompt\":\"hi>\",\"session_id\":\"s\"}");
    expect_done(&d, "abcX", "stop", 4, "new");
    desk_close(&d);
}

static void test_refused(void **state)
{
    static const struct {
        const char *line;
        status code;
    } cases[] = {
        {"{\"prompt\":\"\",\"session_id\":\"s\"}", ST_INVALID_FIELD},
        {"{\"prompt_segments\":[],\"session_id\":\"s\"}", ST_INVALID_FIELD},
    };
    desk d;
    desk_open(&d, "abc");
    for (size_t i = 0; i < N_OF(cases); i++) {
        start(&d, cases[i].line);
        assert_false(reply_running(&d.reply));
        expect_error(&d, "", cases[i].code);
        assert_int_equal(sessions_count(d.sessions), 0); /* not opened */
    }
    start(&d, "{\"prompt\":\">\",\"session_id\":\"a\"}");
    expect_done(&d, "abc", "stop", 3, "new");
    start(&d, "{\"prompt\":\">\",\"session_id\":\"b\"}");
    expect_done(&d, "abc", "stop", 3, "new");
    start(&d, "{\"prompt\":\">\",\"session_id\":\"c\"}");
    expect_error(&d, "", ST_CAPACITY);
    desk_close(&d);
}

/* Every allocation of a request fails once: one error frame, nothing left behind, and the next one is fine.
 */
static void test_memory(void **state)
{
    static const char line[] = "{\"prompt\":\"hi>\",\"session_id\":\"s\",\"stop\":[\"zz\",\"y\"],\"seed\":5}";
    desk d;
    uint64_t n_failed = 0;
    desk_open(&d, "abc");
    for (uint64_t n = 1; n < 200; n++) {
        wire_request *r;
        buf answer = {0};
        assert_int_equal(wire_request_decode(line, strlen(line), tokenizer_n_vocab(d.tok), &r, &answer, NULL),
                         ST_OK);
        mem_fail_at(n, false);
        reply_start(&d.reply, r);
        mem_fail_at(0, false);
        wire_request_free(r);
        if (reply_running(&d.reply)) {
            expect_done(&d, "abc", "stop", 3, "new");
            break;
        }
        n_failed++;
        /* where the engine cannot create the state it is a matter of capacity */
        status code = strstr(output_stage(d.out)->data, "capacity_exhausted") ? ST_CAPACITY : ST_INTERNAL;
        expect_error(&d, "", code);
        assert_int_equal(sessions_count(d.sessions), 0);
    }
    assert_true(n_failed >= 5);
    assert_int_equal(sessions_count(d.sessions), 1);
    desk_close(&d);
}

static void test_hold(void **state)
{
    desk d;
    desk_open(&d, "abc");
    start(&d, "{\"prompt\":\"hi>\"}");
    engine_step(d.rig.en);
    reply_hold(&d.reply, true);
    size_t calls = d.rig.model.n_calls;
    for (int i = 0; i < 5; i++) {
        assert_false(engine_step(d.rig.en)); /* computes nothing, keeps its place */
    }
    assert_int_equal(d.rig.model.n_calls, calls);
    reply_hold(&d.reply, false);
    expect_done(&d, "abc", "stop", 3, "new");
    reply_hold(&d.reply, true); /* nothing runs: nothing happens */
    desk_close(&d);
}

/* Halted, held or not: gone at the next step, and nothing more is said. */
static void test_halt(void **state)
{
    for (int held = 0; held < 2; held++) {
        desk d;
        buf text = {0};
        size_t n;
        desk_open(&d, "abc");
        start(&d, "{\"prompt\":\"hi>\",\"session_id\":\"s\"}");
        engine_step(d.rig.en);
        reply_hold(&d.reply, held);
        frame f = heard(&d, &text, &n);
        frame_release(&f);
        halt_ask(&d.halt, 15);
        engine_step(d.rig.en);
        assert_false(reply_running(&d.reply));
        f = heard(&d, &text, &n);
        assert_int_equal(n, 0);
        frame_release(&f);
        buf_release(&text);
        desk_close(&d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frames),
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_failures_make_dirty),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_hold),
        cmocka_unit_test(test_halt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
