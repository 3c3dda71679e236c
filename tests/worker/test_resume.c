/*
 * A reply that goes on, frame by frame: for each of many replies, and after each of its frames, what was heard and what a
 * worker says that gets the request again is the whole reply. The model says what the test wants, one byte a token; so
 * steps that say several things are here, which no real model is asked for. And whom the status page names meanwhile.
 */
#include "base/test_main.h"

#include <stdio.h>
#include <string.h>

#include "worker/loop_rig.h"

#define TOOLS                                                                                                \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"add\",\"parameters\":{\"type\":\"object\"}}" \
    "}]"
#define CHAT                                                                                           \
    "{\"id\":\"c\",\"op\":\"chat\",\"seed\":1,\"now\":0,\"messages\":[{\"role\":\"user\",\"content\":" \
    "\"hi\"}]"
#define GENERATE   "{\"id\":\"c\",\"op\":\"generate\",\"seed\":1,\"now\":0,\"prompt\":\"hi~\""
#define CALL(args) "<tool_call>\n{\"name\": \"add\", \"arguments\": " args "}\n</tool_call>"
#define THINKS                                                                                             \
    "{%- if tools %}T{{ tools | length }}<tool_call>{\"name\"}</tool_call><think></think>{% endif %}"      \
    "{%- for m in messages %}[{{ m.role }}:{{ m.content }}"                                                \
    "{%- for c in m.tool_calls %}({{ c.function.name }} {{ c.function.arguments | tojson }}){% endfor %}]" \
    "{%- endfor %}{% if add_generation_prompt %}~{% endif %}{% if enable_thinking %}<think>\n{% endif %}"
#define THINK ",\"reasoning\":{\"enabled\":true"

static const struct {
    const char *says, *line;
    int32_t mark; /* 0: RIG_CHAT_MARK */
    bool bare;    /* some of its frames have no id, before the last step too */
} kinds[] = {
    {"hello w\xc3\xb6rld", GENERATE "}"},
    {"hello world", GENERATE ",\"max_new_tokens\":5}"},
    {"h\xc3\xa9", GENERATE ",\"max_new_tokens\":2}"},
    {"hello world and all", GENERATE ",\"stop\":[\"world and\",\"o world.\"]}"},
    {"hello wor", GENERATE ",\"stop\":[\"world\"]}"},
    {"hello wor", GENERATE ",\"stop\":[\"world\"],\"max_new_tokens\":9}"},
    {"hello world", GENERATE ",\"stop_token_ids\":[119],\"logprobs\":true,\"top_logprobs\":3}"},
    {"hello world", GENERATE ",\"prompt_logprobs\":2}"},
    {"hello world", GENERATE ",\"session_id\":\"s\",\"max_new_tokens\":7}"},
    {"hello world", GENERATE ",\"max_new_tokens\":0}"},
    {"hello", CHAT "}"},
    {"  hello  ", CHAT ",\"stop\":[\" !\"]}"},
    {"so " CALL("{\"a\": 1}"), CHAT "," TOOLS "}"},
    {CALL("{}") "\n" CALL("{\"b\":2}"), CHAT "," TOOLS "}"},
    {CALL("{}") "\n" CALL("{\"b\":2}"), CHAT "," TOOLS ",\"parallel_tool_calls\":false}"},
    {"<tool_call>\n{oops}\n</tool_call>", CHAT "," TOOLS "}"},
    {CALL("{\"a\": 1}"), CHAT "," TOOLS ",\"max_new_tokens\":48}"},
    {CALL("{\"a\": 1}") "and more", CHAT "," TOOLS ",\"max_new_tokens\":68}"},
    {"so <tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\"", CHAT "," TOOLS "}", .bare = true},
    {"<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": x}}</tool_call> b", CHAT "," TOOLS "}",
     .bare = true},
    {CALL("{\"a\": 1}"), CHAT "," TOOLS ",\"stop\":[\": 1\"]}", .bare = true},
    {CALL("{}") "\n<tool_call>\n{\"name\": \"add\", \"arguments\": {", CHAT "," TOOLS "}", .bare = true},
    {" {}}</tool_call>", CHAT "," TOOLS ",\"tool_choice\":{\"name\":\"add\"}}", ':'},
    {"{\"name\":\"add\",\"arguments\":{}}</tool_call>", CHAT "," TOOLS ",\"tool_choice\":\"required\"}",
     '\n'},
    {"{\"name\":\"add\",\"arguments\":[]}</tool_call>x", CHAT "," TOOLS ",\"tool_choice\":\"required\"}",
     '\n'},
    {"<think>hm, so</think>yes", CHAT "," TOOLS "}"},
    {"hm</think>yes", CHAT "," TOOLS THINK "}}", '\n'},
    {"abcdefghijklmnop", CHAT "," TOOLS THINK ",\"budget\":3}}", '\n'},
    {"abcdefghijklmnop", CHAT "," TOOLS THINK ",\"budget\":0}}", '\n'},
};

/* The lines that were heard. */
typedef struct said {
    buf bytes;
    size_t ends[RIG_MAX_FRAMES];
    size_t n;
} said;

static void hear_all(loop_rig *r, const char *line, said *out)
{
    loop_rig_forget(r);
    loop_rig_send(r, line);
    loop_rig_run(r);
    loop_rig_hear(r);
    memset(out, 0, sizeof *out);
    assert_int_equal(buf_append(&out->bytes, r->bytes.data, r->bytes.len), ST_OK);
    for (size_t i = 0; i < out->bytes.len; i++) {
        if (out->bytes.data[i] == '\n') {
            out->ends[out->n++] = i + 1;
        }
    }
    assert_int_equal(out->n, r->n_frames);
}

static void open_kind(loop_rig *r, size_t i)
{
    loop_rig_open_chat(r, kinds[i].says, THINKS);
    r->mark = kinds[i].mark ? kinds[i].mark : RIG_CHAT_MARK;
}

/* What a daemon keeps of the first k frames. */
typedef struct seen {
    ivec ids;
    size_t n_bare;
    bool scored;
} seen;

static seen look(const frame *frames, size_t k)
{
    seen s = {0};
    for (size_t i = 0; i < k; i++) {
        const frame *f = &frames[i];
        bool step = f->kind == FRAME_TOKEN || f->kind == FRAME_DELTA;
        s.scored = s.scored || f->kind == FRAME_PROMPT_LOGPROBS;
        assert_int_equal(ivec_append(&s.ids, f->ids, f->n_ids), ST_OK);
        s.n_bare = step && f->n_ids == 0 ? s.n_bare + 1 : 0;
    }
    return s;
}

static void put_line(buf *b, const char *line, const frame_accepted *a, const seen *s)
{
    const wire_resume x = {.ids = s->ids.data,
                           .n_ids = s->ids.len,
                           .seed = a->seed,
                           .now_ms = a->now_ms,
                           .prompt_digest = a->prompt_digest};
    assert_int_equal(buf_append_str(b, line), ST_OK);
    assert_int_equal(buf_append_char(b, '\n'), ST_OK);
    assert_int_equal(wire_request_put_resume(b, &x), ST_OK);
    buf_truncate(b, b->len - 1);
}

static void expect_done(const frame_done *a, const frame_done *b)
{
    assert_int_equal(a->completion_tokens, b->completion_tokens);
    assert_int_equal(a->prompt_tokens, b->prompt_tokens);
    assert_int_equal(a->reused_prompt_tokens + a->prefilled_prompt_tokens, a->prompt_tokens);
    assert_int_equal(a->reasoning_tokens, b->reasoning_tokens);
    assert_string_equal(a->reason, b->reason);
    assert_string_equal(a->guard, b->guard);
    assert_true(a->seed == b->seed && a->tail_repaired == b->tail_repaired);
}

/* r has just heard the frames that come behind the first k of those of `whole`. */
static void expect_rest(const loop_rig *r, const said *got, const loop_rig *was, const said *whole, size_t k,
                        const seen *s)
{
    size_t skip = 1 + (s->scored && r->frames[1].kind == FRAME_PROMPT_LOGPROBS);
    size_t from = k - s->n_bare; /* what it says again, byte for byte, and what is new */
    size_t n = was->n_frames - 1 - from;
    size_t a = got->ends[skip - 1], b = whole->ends[from - 1];
    if (r->n_frames - 1 - skip != n) {
        print_error("behind %zu frames of:\n%s\nthere are:\n%s\n", k, buf_str(&whole->bytes),
                    buf_str(&got->bytes));
    }
    assert_int_equal(r->n_frames - 1 - skip, n);
    size_t n_bytes = whole->ends[was->n_frames - 2] - b;
    assert_int_equal(got->ends[r->n_frames - 2] - a, n_bytes);
    assert_memory_equal(got->bytes.data + a, whole->bytes.data + b, n_bytes);
    expect_done(&r->frames[r->n_frames - 1].done, &was->frames[was->n_frames - 1].done);
}

static void test_every_frame(void **state)
{
    static loop_rig was, fresh;
    static said whole, got;
    for (size_t i = 0; i < N_OF(kinds); i++) {
        open_kind(&was, i);
        hear_all(&was, kinds[i].line, &whole);
        const frame *last = &was.frames[was.n_frames - 1];
        assert_int_equal(last->kind, FRAME_DONE);
        size_t n_bare = 0;
        for (size_t k = 1; k < was.n_frames; k++) {
            buf line = {0};
            seen s = look(was.frames, k);
            n_bare += s.n_bare > 0 && k + 1 < was.n_frames;
            put_line(&line, kinds[i].line, &was.frames[0].accepted, &s);
            if (k % 4 == 1) { /* where nothing is known of it, and then where all is */
                open_kind(&fresh, i);
            }
            hear_all(&fresh, buf_str(&line), &got);
            expect_rest(&fresh, &got, &was, &whole, k, &s);
            buf_release(&got.bytes);
            if (k % 4 == 0 || k + 1 == was.n_frames) {
                loop_rig_close(&fresh);
            }
            buf_release(&line);
            ivec_release(&s.ids);
        }
        assert_int_equal(n_bare > 0, kinds[i].bare);
        buf_release(&whole.bytes);
        loop_rig_close(&was);
    }
}

/* Cut before the engine has it: its counts are those of the whole reply, its seed the one in force. */
static void test_cut_early(void **state)
{
    static loop_rig r;
    const frame *f;
    static const char had[] =
        GENERATE ",\"deadline_ms\":5,\"resume\":{\"ids\":[104,101],\"seed\":7,\"now\":0,\"prompt_digest\":"
                 "\"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\"}}";
    for (int cancel = 0; cancel < 2; cancel++) {
        loop_rig_open_still(&r, "hello");
        loop_rig_send(&r, had);
        loop_rig_turns(&r, 1);
        if (cancel) {
            loop_rig_send(&r, "{\"id\":\"c\",\"op\":\"cancel\"}");
        } else {
            clock_fake_advance_ms(&r.engine.clock, 5);
        }
        loop_rig_turns(&r, 1);
        loop_rig_start_preparer(&r);
        loop_rig_start_writer(&r);
        loop_rig_run(&r);
        loop_rig_hear(&r);
        f = loop_rig_last(&r, "c");
        assert_int_equal(f->kind, FRAME_DONE);
        assert_string_equal(f->done.reason, cancel ? "cancelled" : "timeout");
        assert_int_equal(f->done.completion_tokens, 2);
        assert_true(f->done.seed == 7);
        loop_rig_close(&r);
    }
}

/* The page, asked wherever somebody wants to know the time. */
typedef struct spy {
    const clock_src *of;
    const status_page *page;
    uint64_t attended, preparing; /* the last ones that were not 0 */
    size_t n_attended, n_steps;   /* outside steps, inside */
} spy;

static void look_at_page(spy *s)
{
    status_snapshot p;
    status_page_read(s->page, &p);
    uint64_t attended = p.row[STATUS_ROW_ATTENDED], preparing = p.row[STATUS_ROW_PREPARING];
    s->attended = attended ? attended : s->attended;
    s->preparing = preparing ? preparing : s->preparing;
    s->n_attended += attended != 0 && p.n_rows == 0;
}

static uint64_t spy_mono(void *ctx)
{
    spy *s = ctx;
    look_at_page(s);
    return clock_mono_ns(s->of);
}

static void expect_nobody(const loop_rig *r)
{
    status_snapshot p;
    status_page_read(r->page, &p);
    assert_true(p.row[STATUS_ROW_ATTENDED] == 0);
    assert_true(p.row[STATUS_ROW_PREPARING] == 0);
}

static void test_attended(void **state)
{
    static loop_rig r;
    static const char *const lines[] = {
        CHAT "}", GENERATE "}",
        GENERATE ",\"temperature\":0.5,\"logit_bias\":{\"7\":1},\"max_new_tokens\":0}"};
    for (size_t i = 0; i < N_OF(lines); i++) {
        loop_rig_open_chat(&r, "hello", THINKS);
        spy s = {.of = r.loop.desk.clock, .page = r.page};
        clock_src src = {.mono_ns = spy_mono, .wall_ms = r.loop.desk.clock->wall_ms, .ctx = &s};
        r.loop.desk.clock = &src;
        loop_rig_send(&r, lines[i]);
        loop_rig_run(&r);
        assert_true(s.attended == status_page_id_hash("c", 1));
        assert_true(s.n_attended > 0); /* when it was submitted */
        expect_nobody(&r);
        /* one that is refused there, and one that is cut */
        s = (spy){.of = s.of, .page = s.page};
        loop_rig_send(
            &r,
            "{\"id\":\"long\",\"prompt\":\"hi~\",\"max_new_tokens\":100,\"resume\":{\"ids\":[104,297,104],"
            "\"seed\":7,\"now\":0,\"prompt_digest\":"
            "\"5994471abb01112afcc18159f6cc74b4f511b99806da59b3caf5a9c173cacfc5\"}}");
        loop_rig_run(&r);
        assert_true(s.attended == status_page_id_hash("long", 4));
        expect_nobody(&r);
        loop_rig_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_frame),
        cmocka_unit_test(test_cut_early),
        cmocka_unit_test(test_attended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
