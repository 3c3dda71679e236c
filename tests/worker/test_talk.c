/*
 * Conversations through the worker's loop: templates, calls, reasoning, budgets, forced openers. The model says what
 * the test wants, one byte a token; the template is a small one with the markers of a real form.
 */
#include "base/test_main.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "worker/loop_rig.h"

/* Hermes: tools, <tool_call>, <think>. The reply begins behind the mark. */
#define HERMES                                                                                             \
    "{%- if tools %}T{{ tools | length }}<tool_call>{\"name\"}</tool_call><think></think>{% endif %}"      \
    "{%- for m in messages %}[{{ m.role }}:{{ m.content }}"                                                \
    "{%- for c in m.tool_calls %}({{ c.function.name }} {{ c.function.arguments | tojson }}){% endfor %}]" \
    "{%- endfor %}{% if add_generation_prompt %}~{% endif %}"
/* The same, with reasoning that the prompt opens. */
#define THINKS HERMES "{% if enable_thinking %}<think>\n{% endif %}"

#define TOOLS                                                                                                \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"add\",\"parameters\":{\"type\":\"object\"}}" \
    "}]"
#define HEAD                                                                                           \
    "{\"id\":\"c\",\"op\":\"chat\",\"seed\":1,\"now\":0,\"messages\":[{\"role\":\"user\",\"content\":" \
    "\"hi\"}]"

/* All that the deltas of request c add up to. */
typedef struct heard {
    buf content, reasoning, calls; /* calls: index id name, arguments, '.' closed, '!' withdrawn */
    ivec ids;
    char id[64]; /* of the last call */
    const frame *done;
} heard;

static void heard_release(heard *h)
{
    buf_release(&h->content);
    buf_release(&h->reasoning);
    buf_release(&h->calls);
    ivec_release(&h->ids);
}

static void add_call(heard *h, const frame_call *c)
{
    if (c->name.data) {
        snprintf(h->id, sizeof h->id, "%s", c->id.data);
        assert_int_equal(buf_printf(&h->calls, "%d:%s", (int)c->index, c->name.data), ST_OK);
    }
    assert_int_equal(buf_append(&h->calls, c->arguments.data, c->arguments.len), ST_OK);
    assert_int_equal(buf_append_str(&h->calls, c->closed ? "." : ""), ST_OK);
    assert_int_equal(buf_append_str(&h->calls, c->withdrawn ? "!" : ""), ST_OK);
}

static void listen(loop_rig *r, const char *line, heard *h)
{
    memset(h, 0, sizeof *h);
    loop_rig_forget(r);
    loop_rig_send(r, line);
    loop_rig_run(r);
    loop_rig_hear(r);
    for (size_t i = 0; i < r->n_frames; i++) {
        const frame *f = &r->frames[i];
        if (f->kind != FRAME_DELTA) {
            continue;
        }
        assert_int_equal(ivec_append(&h->ids, f->ids, f->n_ids), ST_OK);
        assert_true(f->n_ids <= 1);
        if (f->delta == FRAME_DELTA_CALL) {
            add_call(h, &f->call);
        } else {
            buf *to = f->delta == FRAME_DELTA_REASONING ? &h->reasoning : &h->content;
            assert_int_equal(buf_append(to, f->text, f->text_len), ST_OK);
        }
    }
    h->done = loop_rig_last(r, "c");
    assert_non_null(h->done);
    if (h->done->kind != FRAME_DONE) {
        print_error("%s -> %s\n", line, h->done->text ? h->done->text : "?");
    }
    assert_int_equal(h->done->kind, FRAME_DONE);
    assert_int_equal(h->ids.len, h->done->done.completion_tokens); /* each id in exactly one frame */
}

typedef struct talk_case {
    const char *source, *says, *fields;
    const char *content, *reasoning, *calls, *reason;
    int32_t reasoning_tokens;
    int32_t mark; /* 0: RIG_CHAT_MARK; else the byte that ends the opener */
} talk_case;

#define CALL(args) "<tool_call>\n{\"name\": \"add\", \"arguments\": " args "}\n</tool_call>"

static const talk_case cases[] = {
    {HERMES, "hello", "", "hello", "", "", "stop", 0},
    /* calls */
    {HERMES, "so " CALL("{\"a\": 1}"), "," TOOLS, "so", "", "0:add{\"a\": 1}.", "tool_calls", 0},
    {HERMES, CALL("{}") "\n" CALL("{\"b\":2}"), "," TOOLS, "", "", "0:add{}.1:add{\"b\":2}.", "tool_calls",
     0},
    {HERMES, CALL("{}") "\n" CALL("{\"b\":2}"), "," TOOLS ",\"parallel_tool_calls\":false", "", "",
     "0:add{}.", "tool_calls", 0},
    /* no tools, or none wanted: their text stays text */
    {HERMES, CALL("{}"), "", CALL("{}"), "", "", "stop", 0},
    {HERMES, CALL("{}"), "," TOOLS ",\"tool_choice\":\"none\"", CALL("{}"), "", "", "stop", 0},
    /* S3: malformed is text; a cut is never stop */
    {HERMES, "<tool_call>\n{oops}\n</tool_call>", "," TOOLS, "<tool_call>\n{oops}\n</tool_call>", "", "",
     "stop", 0},
    {HERMES, CALL("{\"a\": 1}"), "," TOOLS ",\"max_new_tokens\":48", "", "", "0:add{\"a\": 1", "length", 0},
    {HERMES, CALL("{\"a\": 1}") "and more", "," TOOLS ",\"max_new_tokens\":68", "and m", "",
     "0:add{\"a\": 1}.", "length", 0},
    /* one that ends by itself inside a call has made none: by the end token, by a stop string */
    {HERMES, "so <tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\"", "," TOOLS,
     "so <tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\"", "", "0:add{\"a\"!", "stop", 0},
    {HERMES, CALL("{\"a\": 1}"), "," TOOLS ",\"stop\":[\": 1\"]",
     "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\"", "", "0:add{\"a\"!", "stop", 0},
    {HERMES, "<tool_call>\n{\"na", "," TOOLS, "<tool_call>\n{\"na", "", "", "stop", 0},
    {HERMES, CALL("{}") "\n<tool_call>\n{\"name\": \"add\", \"arguments\": {", "," TOOLS,
     "<tool_call>\n{\"name\": \"add\", \"arguments\": {", "", "0:add{}.1:add{!", "tool_calls", 0},
    /* a closing tag inside an argument */
    {HERMES, CALL("{\"a\": \"</tool_call>\"}"), "," TOOLS, "", "", "0:add{\"a\": \"</tool_call>\"}.",
     "tool_calls", 0},
    /* forced openers: the beginning is in the prompt */
    {HERMES, " {}}</tool_call>", "," TOOLS ",\"tool_choice\":{\"name\":\"add\"}", "", "", "0:add{}.",
     "tool_calls", 0, ':'},
    {HERMES, "{\"name\":\"add\",\"arguments\":{}}</tool_call>", "," TOOLS ",\"tool_choice\":\"required\"", "",
     "", "0:add{}.", "tool_calls", 0, '\n'},
    {THINKS, "{\"name\":\"add\",\"arguments\":{}}</tool_call>",
     "," TOOLS ",\"tool_choice\":\"required\",\"reasoning\":{\"enabled\":true}", "", "", "0:add{}.",
     "tool_calls", 0, '\n'},
    /* reasoning, opened by the model or by the prompt */
    {HERMES, "<think>hm, so</think>yes", "," TOOLS, "yes", "hm, so", "", "stop", 13},
    {THINKS, "hm</think>yes", "," TOOLS ",\"reasoning\":{\"enabled\":true}", "yes", "hm", "", "stop", 9,
     '\n'},
    {THINKS, "yes", "," TOOLS ",\"template_kwargs\":{\"enable_thinking\":false}", "yes", "", "", "stop", 0},
    /* budgets: the closing text stands where the model would have gone on */
    {THINKS, "abcdefghijklmnop", "," TOOLS ",\"reasoning\":{\"enabled\":true,\"budget\":3}", "lmnop", "abc",
     "", "stop", 3, '\n'},
    {THINKS, "abcdefghijklmnop", "," TOOLS ",\"reasoning\":{\"enabled\":true,\"budget\":0}", "ijklmnop", "",
     "", "stop", 0, '\n'},
    {HERMES, "<think>abcdefghijklmnop", "," TOOLS ",\"reasoning\":{\"budget\":2}", "klmnop", "ab", "", "stop",
     2},
    {THINKS, "ab</think>xyz", "," TOOLS ",\"reasoning\":{\"enabled\":true,\"budget\":100}", "xyz", "ab", "",
     "stop", 9, '\n'},
    /* a quarter of the reply stays for content: 16 = 4 reasoning + 8 closing + 4 */
    {THINKS, "abcdefghijklmnopqrst",
     "," TOOLS ",\"max_new_tokens\":16,\"reasoning\":{\"enabled\":true,\"budget\":50}", "mnop", "abcd", "",
     "length", 4, '\n'},
};

static void test_cases(void **state)
{
    static loop_rig r;
    char line[2048];
    for (size_t i = 0; i < N_OF(cases); i++) {
        const talk_case *c = &cases[i];
        heard h;
        loop_rig_open_chat(&r, c->says, c->source);
        r.mark = c->mark ? c->mark : r.mark;
        snprintf(line, sizeof line, HEAD "%s}", c->fields);
        listen(&r, line, &h);
        if (strcmp(buf_str(&h.content), c->content) != 0 ||
            strcmp(buf_str(&h.reasoning), c->reasoning) != 0 || strcmp(buf_str(&h.calls), c->calls) != 0 ||
            strcmp(h.done->done.reason, c->reason) != 0 ||
            h.done->done.reasoning_tokens != c->reasoning_tokens) {
            print_error(
                "case %zu (%s, %s): content '%s' reasoning '%s' calls '%s' reason %s, %d reasoning tokens\n",
                i, c->says, c->fields, buf_str(&h.content), buf_str(&h.reasoning), buf_str(&h.calls),
                h.done->done.reason, (int)h.done->done.reasoning_tokens);
            fail();
        }
        heard_release(&h);
        loop_rig_close(&r);
    }
}

/* call_ and 24 hex digits of hash(request id, index): stable, and another one for each. */
static void test_call_ids(void **state)
{
    static loop_rig r;
    heard h;
    uint8_t sum[SHA256_BYTES];
    char hex[SHA256_HEX_LEN + 1], want[64];
    loop_rig_open_chat(&r, CALL("{}") CALL("{}"), HERMES);
    listen(&r, HEAD "," TOOLS "}", &h);
    assert_int_equal(sha256_once("c\0"
                                 "1",
                                 3, sum),
                     ST_OK);
    hex_encode(sum, sizeof sum, hex);
    snprintf(want, sizeof want, "call_%.24s", hex);
    assert_string_equal(h.id, want);
    heard_release(&h);
    loop_rig_close(&r);
}

/* What a frame says is text and count; the reference for the text is the template, read by eye. */
static void test_render(void **state)
{
    static loop_rig r;
    static const struct {
        const char *fields, *text;
    } rows[] = {
        {"\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]", "[user:a]~"},
        {"\"messages\":[{\"role\":\"user\",\"content\":null},{\"role\":\"user\"}]", "[user:][user:]~"},
        {"\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":"
         "\"text\",\"text\":"
         "\"b\"}]}]",
         "[user:ab]~"},
        {"\"messages\":[{\"role\":\"tool\",\"content\":\"7\"},{\"role\":\"system\",\"content\":\"s\"}]",
         "[tool:7][system:s]~"},
        /* S3: arguments as an object, as its text, and as text that is none */
        {"\"messages\":[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"function\":{\"name\":"
         "\"f\","
         "\"arguments\":{\"a\":1}}},{\"function\":{\"name\":\"g\",\"arguments\":\"{\\\"a\\\": 1}\"}},"
         "{\"function\":{\"name\":\"h\",\"arguments\":\"{\"}},{\"function\":{\"name\":\"i\",\"arguments\":"
         "\"\"}},"
         "{\"function\":{\"name\":\"j\",\"arguments\":null}}]}]",
         "[assistant:(f {\"a\": 1})(g {\"a\": 1})(h \"{\")(i \"\")(j null)]~"},
        /* the start of the reply */
        {"\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"So, \"}],"
         "\"continue_final_message\":true",
         "[user:a][assistant:So, "},
        {"\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"\"}],"
         "\"continue_final_message\":true",
         "[user:a]~"},
    };
    char line[1024];
    loop_rig_open_chat(&r, "", HERMES);
    for (size_t i = 0; i < N_OF(rows); i++) {
        snprintf(line, sizeof line, "{\"id\":\"x\",\"op\":\"render\",%s}", rows[i].fields);
        loop_rig_forget(&r);
        loop_rig_send(&r, line);
        loop_rig_run(&r);
        loop_rig_hear(&r);
        const frame *f = loop_rig_last(&r, "x");
        assert_int_equal(f->kind, FRAME_TEXT);
        assert_string_equal(f->text, rows[i].text);
        int64_t count = f->count;
        assert_true(count > 0);
        snprintf(line, sizeof line, "{\"id\":\"x\",\"op\":\"count\",%s}", rows[i].fields);
        loop_rig_send(&r, line);
        loop_rig_run(&r);
        loop_rig_hear(&r);
        assert_int_equal(loop_rig_last(&r, "x")->count, count);
    }
    loop_rig_close(&r);
}

static void refused(const char *source, const char *fields, status code, const char *field, const char *text)
{
    static loop_rig r;
    char line[1024];
    loop_rig_open_chat(&r, "x", source);
    snprintf(line, sizeof line, HEAD "%s}", fields);
    loop_rig_send(&r, line);
    loop_rig_run(&r);
    loop_rig_hear(&r);
    const frame *f = loop_rig_last(&r, "c");
    assert_int_equal(f->kind, FRAME_ERROR);
    assert_int_equal(f->code, code);
    assert_string_equal(f->field, field);
    if (!strstr(f->text, text)) {
        print_error("%s\n", f->text);
        fail();
    }
    loop_rig_close(&r);
}

static void test_refusals(void **state)
{
    refused("{{ raise_exception('roles must alternate') }}", "", ST_TEMPLATE, "messages",
            "roles must alternate");
    refused("{{ messages.nope.nope }}", "", ST_TEMPLATE, "messages", "line 1");
    refused("{% for m in messages %}{{ m.content }}{% endfor %}", "," TOOLS, ST_UNSUPPORTED, "tools",
            "tools");
    refused("{{ tools }}{% for m in messages %}{{ m.content }}{% endfor %}",
            "," TOOLS ",\"tool_choice\":\"required\"", ST_UNSUPPORTED, "tool_choice", "tool_choice");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_call_ids),
        cmocka_unit_test(test_render),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
