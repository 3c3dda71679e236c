/*
 * The daemon's lines: their text, and that decoding one gives the request again.
 */
#include "base/test_main.h"

#include <string.h>

#include "base/mem.h"
#include "wire/request.h"
#include "wire/same_request.h"

#define R(text) ((wire_string){(text), sizeof(text) - 1})

static const wire_limits limits = {.n_vocab = 1000};

static wire_request *decode(const char *line, size_t len)
{
    wire_request *r = NULL;
    buf answer = {0};
    if (wire_request_decode(line, len, &limits, &r, &answer, NULL, NULL) != ST_OK) {
        print_error("%.*s -> %s", (int)len, line, buf_str(&answer));
    }
    assert_non_null(r);
    buf_release(&answer);
    return r;
}

static void check_text(const wire_request *r, const char *want)
{
    buf b = {0};
    assert_int_equal(buf_append_str(&b, "before"), ST_OK);
    assert_int_equal(wire_request_put(&b, r), ST_OK);
    assert_memory_equal(b.data, "before", 6);
    assert_string_equal(b.data + 6, want);
    buf_release(&b);
}

static void test_text(void **state)
{
    wire_segment hi = {.text = R("hi \"you\"")};
    wire_request r = wire_request_default(WIRE_GENERATE);
    r.id = R("req_1");
    r.prompt_field = "prompt";
    r.segments = &hi;
    r.n_segments = 1;
    r.seed = 5;
    check_text(&r, "{\"id\":\"req_1\",\"op\":\"generate\",\"prompt\":\"hi \\\"you\\\"\",\"seed\":5}\n");
    r.has_now = true;
    r.now_ms = 0;
    r.max_new_tokens = 0;
    r.temperature = 0.7;
    r.add_special = true;
    r.top_logprobs = 0;
    check_text(&r, "{\"id\":\"req_1\",\"op\":\"generate\",\"prompt\":\"hi \\\"you\\\"\",\"add_special\":true,"
                   "\"max_new_tokens\":0,\"temperature\":0.7,\"seed\":5,\"now\":0,\"logprobs\":true}\n");

    static const int32_t ids[] = {3, 1};
    wire_segment two[] = {{.text = R("a")}, {.ids = ids, .n_ids = 2}};
    r = wire_request_default(WIRE_GENERATE);
    r.id = R("x");
    r.prompt_field = "prompt_segments";
    r.segments = two;
    r.n_segments = 2;
    check_text(&r, "{\"id\":\"x\",\"op\":\"generate\",\"prompt_segments\":[{\"text\":\"a\"},{\"ids\":[3,1]}],"
                   "\"seed\":0}\n");

    json_doc *doc;
    static const char talk[] = "[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":"
                               "\"a\\u0000b\",\"x\":[1,1.0,1e300,-0.0,true,null,18446744073709551615,{}]}]";
    assert_int_equal(json_parse(talk, sizeof talk - 1, JSON_MAX_DEPTH, &doc, NULL), ST_OK);
    r = wire_request_default(WIRE_CHAT);
    r.id = R("x");
    r.messages = json_root(doc);
    r.seed = 1;
    r.session_id = R("s\xff"); /* repaired */
    check_text(&r, "{\"id\":\"x\",\"op\":\"chat\",\"messages\":[{\"role\":\"system\",\"content\":\"s\"},"
                   "{\"role\":\"user\",\"content\":\"a\\u0000b\",\"x\":[1,1.0,1e+300,-0.0,true,null,"
                   "18446744073709551615,{}]}],\"session_id\":\"s\xef\xbf\xbd\",\"seed\":1}\n");
    json_doc_free(doc);

    r = wire_request_default(WIRE_SESSION_RESET);
    r.id = R("x");
    r.session_id = R("s");
    check_text(&r, "{\"id\":\"x\",\"op\":\"session\",\"action\":\"reset\",\"session_id\":\"s\"}\n");
    r = wire_request_default(WIRE_SESSION_EXPORT);
    r.id = R("x");
    r.session_id = R("s");
    r.count = 32;
    check_text(&r, "{\"id\":\"x\",\"op\":\"session\",\"action\":\"export\",\"session_id\":\"s\",\"from\":0,"
                   "\"count\":32}\n");
    r = wire_request_default(WIRE_SESSION_IMPORT);
    r.id = R("x");
    r.session_id = R("s");
    r.attach_bytes = 5;
    check_text(&r,
               "{\"id\":\"x\",\"op\":\"session\",\"action\":\"import\",\"session_id\":\"s\",\"attach\":5}\n");
    r = wire_request_default(WIRE_SESSION_SAVE);
    r.id = R("x");
    r.session_id = R("s");
    r.name = R("n");
    check_text(&r,
               "{\"id\":\"x\",\"op\":\"session\",\"action\":\"save\",\"session_id\":\"s\",\"name\":\"n\"}\n");
    r = wire_request_default(WIRE_CANCEL);
    r.id = R("x");
    check_text(&r, "{\"id\":\"x\",\"op\":\"cancel\"}\n");
    r = wire_request_default(WIRE_SHUTDOWN);
    check_text(&r, "{\"op\":\"shutdown\"}\n");
}

#define CHAT    "{\"id\":\"r\",\"op\":\"chat\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],"
#define SESSION "{\"id\":\"r\",\"op\":\"session\",\"session_id\":\"s\",\"action\":"
#define GEN     "{\"id\":\"r\",\"prompt\":\"a\","
#define DIGEST  "74aa326617f00d2d252a24a9b0a9669c8f96fc9531abfbfb344cd9ca2aa9c633"
#define RESUME  "\"resume\":{\"prompt_digest\":\"" DIGEST "\",\"seed\":"

/* Every field away from its default once, and at the ends of its range. */
static const char *const lines[] = {
    "{\"id\":\"r\",\"prompt\":\"\"}",
    "{\"id\":\"r\\u0000\",\"prompt\":\"a\\u0000\\ud83d\\ude00\\u2028\"}",
    "{\"id\":\"r\",\"prompt_segments\":[]}",
    "{\"id\":\"r\",\"prompt_segments\":[{\"text\":\"a\"}]}",
    "{\"id\":\"r\",\"prompt_segments\":[{\"ids\":[0,999]},{\"ids\":[]},{\"text\":\"\"}]}",
    GEN "\"add_special\":true}",
    GEN "\"session_id\":\"\"}",
    GEN "\"session_id\":\"s\"}",
    GEN "\"max_new_tokens\":0}",
    GEN "\"max_new_tokens\":2147483647}",
    GEN "\"temperature\":1e308}",
    GEN "\"temperature\":-0.0}",
    GEN "\"temperature\":0.1}",
    GEN "\"top_p\":1e-300}",
    GEN "\"top_k\":2147483647}",
    GEN "\"seed\":9223372036854775807}",
    GEN "\"stop\":[\"x\",\"\",\"y\\n\"]}",
    GEN "\"stop\":[\"\"]}",
    GEN "\"now\":0}",
    GEN "\"now\":9223372036854775807}",
    GEN "\"min_p\":0.05}",
    GEN "\"repetition_penalty\":0.01}",
    GEN "\"presence_penalty\":-1e6}",
    GEN "\"frequency_penalty\":0.3333333333333333}",
    GEN "\"repeat_last_n\":-1}",
    GEN "\"repeat_last_n\":0}",
    GEN "\"logit_bias\":{\"7\":-1e308,\"3\":0.1,\"0\":0}}",
    GEN "\"logit_bias\":{}}",
    GEN "\"min_tokens\":2147483647}",
    GEN "\"ignore_eos\":true}",
    GEN "\"priority\":-10}",
    GEN "\"priority\":10}",
    GEN "\"repetition_guard\":0}",
    GEN "\"repetition_guard\":4096}",
    GEN "\"stop_token_ids\":[5,5,0]}",
    GEN "\"logprobs\":true}",
    GEN "\"logprobs\":true,\"top_logprobs\":0}",
    GEN "\"top_logprobs\":20,\"logprobs\":true}",
    GEN "\"logprobs\":false}",
    GEN "\"prompt_logprobs\":0}",
    GEN "\"prompt_logprobs\":20}",
    GEN "\"deadline_ms\":1}",
    GEN "\"deadline_ms\":18446744073709551615}",
    GEN "\"progress\":true}",
    GEN RESUME "1,\"now\":0,\"ids\":[]}}",
    GEN RESUME "9223372036854775807,\"now\":9223372036854775807,\"ids\":[0,999,0]}}",
    GEN RESUME "1,\"now\":0,\"ids\":[],\"prompt_ids\":[999]}}",
    GEN RESUME "1,\"now\":0,\"ids\":[],\"prompt_ids\":[999,0]},\"seed\":4,\"deadline_ms\":3}",
    CHAT RESUME "1,\"now\":7,\"ids\":[5],\"prompt_ids\":[1,2]}}",
    CHAT "\"top_k\":5,\"seed\":3,\"logprobs\":true,\"progress\":true}",
    "{\"id\":\"r\",\"op\":\"chat\",\"messages\":[{\"role\":\"system\",\"content\":\"\"},{\"role\":"
    "\"assistant\","
    "\"content\":\"<|im_end|>\"}]}",
    CHAT "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"x\":1.0}}}]}",
    CHAT "\"tools\":[{\"name\":\"f\"}],\"tool_choice\":\"required\"}",
    CHAT "\"tools\":[{\"name\":\"g\"},{\"name\":\"f\"}],\"tool_choice\":{\"name\":\"f\"}}",
    CHAT "\"tools\":[],\"tool_choice\":\"none\",\"parallel_tool_calls\":false}",
    CHAT "\"template_kwargs\":{\"enable_thinking\":false,\"x\":{\"y\":[1,2.5]}}}",
    CHAT "\"template_kwargs\":{}}",
    CHAT "\"cache_namespace\":\"tenant \\u0000\"}",
    "{\"id\":\"r\",\"prompt\":\"a\",\"cache_namespace\":\"n\"}",
    "{\"id\":\"r\",\"op\":\"render\",\"messages\":[{\"role\":\"user\"}],\"cache_namespace\":\"n\"}",
    "{\"id\":\"r\",\"op\":\"count\",\"messages\":[{\"role\":\"user\"}],\"cache_namespace\":\"n\"}",
    CHAT "\"reasoning\":{\"budget\":0}}",
    CHAT "\"reasoning\":{\"budget\":2147483647,\"effort\":\"high\",\"enabled\":false}}",
    CHAT "\"reasoning\":{\"budget\":-1,\"enabled\":true}}",
    "{\"id\":\"r\",\"op\":\"chat\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":"
    "\"a\"}]},"
    "{\"role\":\"assistant\",\"content\":null,\"reasoning_content\":\"r\",\"tool_calls\":[{\"id\":\"c\","
    "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\"}}]},{\"role\":\"tool\","
    "\"tool_call_id\":\"c\",\"content\":\"7\"},{\"role\":\"assistant\",\"content\":\"So\"}],"
    "\"continue_final_message\":true}",
    "{\"id\":\"r\",\"op\":\"render\",\"messages\":[{\"role\":\"user\"}],\"now\":5,\"tools\":[{\"name\":\"f\"}"
    "]}",
    "{\"id\":\"r\",\"op\":\"count\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"now\":5,"
    "\"reasoning\":{\"enabled\":true}}",
    "{\"id\":\"r\",\"op\":\"tokenize\",\"text\":\"a\"}",
    "{\"id\":\"r\",\"op\":\"tokenize\",\"text\":\"\",\"parse_special\":false,\"add_special\":true}",
    "{\"id\":\"r\",\"op\":\"detokenize\",\"ids\":[]}",
    "{\"id\":\"r\",\"op\":\"detokenize\",\"ids\":[1,2]}",
    "{\"id\":\"r\",\"op\":\"count\",\"text\":\"\"}",
    "{\"id\":\"r\",\"op\":\"count\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}",
    "{\"id\":\"r\",\"op\":\"session\",\"action\":\"get\",\"session_id\":\"s\"}",
    "{\"id\":\"r\",\"op\":\"session\",\"action\":\"reset\",\"session_id\":\"s\"}",
    SESSION "\"probe\",\"cache_namespace\":\"n\"}",
    SESSION "\"import\",\"attach\":5,\"cache_namespace\":\"n\"}",
    "{\"id\":\"r\",\"op\":\"session\",\"action\":\"close\",\"session_id\":\"s\"}",
    SESSION "\"prewarm\"}",
    SESSION "\"probe\"}",
    SESSION "\"probe\",\"from\":7}",
    SESSION "\"probe\",\"count\":0}",
    SESSION "\"probe\",\"from\":9223372036854775807,\"count\":9223372036854775807}",
    SESSION "\"export\",\"from\":0,\"count\":1}",
    SESSION "\"export\",\"from\":9223372036854775807,\"count\":9223372036854775807}",
    SESSION "\"import\",\"attach\":1}",
    SESSION "\"import\",\"attach\":67108864}",
    SESSION "\"save\",\"name\":\"a\"}",
    SESSION "\"restore\",\"name\":\"a\"}",
    SESSION "\"restore\",\"name\":\"-Az_09.b\"}",
    SESSION "\"drop\",\"name\":\"a\"}",
    "{\"id\":\"r\",\"op\":\"stats\"}",
    "{\"id\":\"r\",\"op\":\"cancel\"}",
    "{\"id\":\"r\",\"op\":\"pause\"}",
    "{\"id\":\"r\",\"op\":\"continue\"}",
    "{\"id\":\"r\",\"op\":\"drain\"}",
    "{\"op\":\"drain\"}",
    "{\"id\":\"r\",\"op\":\"shutdown\"}",
};

static void test_round_trip(void **state)
{
    for (size_t i = 0; i < N_OF(lines); i++) {
        buf b = {0};
        wire_request *r = decode(lines[i], strlen(lines[i]));
        assert_int_equal(wire_request_put(&b, r), ST_OK);
        assert_true(b.len > 1 && b.data[b.len - 1] == '\n');
        assert_null(memchr(b.data, '\n', b.len - 1));
        wire_request *again = decode(b.data, b.len - 1);
        if (!same_request(r, again)) {
            print_error("%s -> %s", lines[i], b.data);
        }
        assert_true(same_request(r, again));
        wire_request_free(r);
        wire_request_free(again);
        buf_release(&b);
    }
}

/* The comparison above is worth something: no two of the lines are equal but those that mean the same. */
static void test_lines_differ(void **state)
{
    size_t n_same = 0;
    for (size_t i = 0; i < N_OF(lines); i++) {
        wire_request *a = decode(lines[i], strlen(lines[i]));
        for (size_t j = 0; j < i; j++) {
            wire_request *b = decode(lines[j], strlen(lines[j]));
            n_same += same_request(a, b);
            wire_request_free(b);
        }
        wire_request_free(a);
    }
    /* session_id "", temperature -0.0, stop [""], logit_bias {} and logprobs false all say nothing: 10 pairs;
     * logprobs true with and without top_logprobs 0: 1 pair */
    assert_int_equal(n_same, 11);
}

static void test_deadline(void **state)
{
    buf b = {0};
    wire_request *r = decode(lines[1], strlen(lines[1]));
    assert_int_equal(buf_append_str(&b, "{\"other\":\"line\"}\n"), ST_OK);
    size_t before = b.len;
    assert_int_equal(wire_request_put(&b, r), ST_OK);
    assert_int_equal(wire_request_put_deadline(&b, 1500), ST_OK);
    assert_memory_equal(b.data, "{\"other\":\"line\"}\n", before);
    assert_non_null(strstr(b.data, "\"seed\":0,\"deadline_ms\":1500}\n"));
    wire_request *again = decode(b.data + before, b.len - before - 1);
    assert_true(again->deadline_ms == 1500);
    again->deadline_ms = 0;
    assert_true(same_request(r, again));
    wire_request_free(r);
    wire_request_free(again);

    b.len = 0;
    assert_int_equal(buf_append_str(&b, "{\"a\":1}\n"), ST_OK);
    assert_int_equal(wire_request_put_deadline(&b, UINT64_MAX), ST_OK);
    assert_string_equal(b.data, "{\"a\":1,\"deadline_ms\":18446744073709551615}\n");
    buf_release(&b);
}

static void test_resume(void **state)
{
    static const int32_t ids[] = {3, 999}, prompt[] = {0};
    wire_resume x = {.ids = ids, .n_ids = 2, .seed = 7, .now_ms = 8, .prompt_digest = DIGEST};
    buf b = {0};
    assert_int_equal(buf_append_str(&b, "{\"other\":\"line\"}\n{\"a\":1}\n"), ST_OK);
    assert_int_equal(wire_request_put_resume(&b, &x), ST_OK);
    assert_string_equal(b.data,
                        "{\"other\":\"line\"}\n{\"a\":1,\"resume\":{\"ids\":[3,999],\"seed\":7,\"now\":8,"
                        "\"prompt_digest\":\"" DIGEST "\"}}\n");
    b.len = 0;
    assert_int_equal(buf_append_str(&b, "{\"a\":1}\n"), ST_OK);
    x = (wire_resume){.seed = 1, .prompt_digest = DIGEST, .prompt_ids = prompt, .n_prompt_ids = 1};
    assert_int_equal(wire_request_put_resume(&b, &x), ST_OK);
    assert_int_equal(wire_request_put_deadline(&b, 9), ST_OK); /* the order in which the daemon does it */
    assert_string_equal(b.data, "{\"a\":1,\"resume\":{\"ids\":[],\"seed\":1,\"now\":0,"
                                "\"prompt_digest\":\"" DIGEST "\",\"prompt_ids\":[0]},\"deadline_ms\":9}\n");
    buf_release(&b);

    /* behind a whole request, it says all that was given */
    wire_request *r = decode(lines[1], strlen(lines[1]));
    x = (wire_resume){ids, 2, WIRE_MAX_SEED, INT64_MAX, DIGEST, prompt, 1};
    assert_int_equal(wire_request_put(&b, r), ST_OK);
    assert_int_equal(wire_request_put_resume(&b, &x), ST_OK);
    wire_request *again = decode(b.data, b.len - 1);
    assert_true(same_resume(again->resume, &x));
    again->resume = NULL;
    assert_true(same_request(r, again));
    wire_request_free(again);

    /* without memory the buffer is as it was */
    for (uint64_t n = 1; n < 4; n++) {
        buf tight = {0};
        assert_int_equal(buf_append(&tight, b.data, b.len), ST_OK);
        while (tight.len + 1 < tight.cap) {
            buf_append_char(&tight, ' ');
        }
        memcpy(tight.data + tight.len - 2, "}\n", 2);
        size_t len = tight.len;
        mem_fail_at(n, true);
        status st = wire_request_put_resume(&tight, &x);
        mem_fail_at(0, false);
        assert_true(n > 1 || st == ST_NOMEM);
        assert_true(st == ST_OK ? tight.len > len : tight.len == len);
        assert_memory_equal(tight.data + tight.len - 2, "}\n", 3);
        buf_release(&tight);
    }
    wire_request_free(r);
    buf_release(&b);
}

/* Without memory the buffer is as it was. */
static void test_memory(void **state)
{
    wire_request *r = decode(lines[4], strlen(lines[4]));
    for (uint64_t n = 1; n < 8; n++) {
        buf b = {0};
        mem_fail_at(n, true);
        status st = wire_request_put(&b, r);
        size_t len = b.len;
        status late = st == ST_OK ? wire_request_put_deadline(&b, 7) : ST_NOMEM;
        mem_fail_at(0, false);
        assert_true(st == ST_OK ? len > 0 : len == 0);
        assert_true(late == ST_OK ? b.len > len : b.len == len);
        assert_true(b.len == 0 || (b.data[b.len - 2] == '}' && b.data[b.len - 1] == '\n'));
        buf_release(&b);
    }
    /* the deadline's own allocation */
    buf tight = {0};
    assert_int_equal(wire_request_put(&tight, r), ST_OK);
    while (tight.len + 1 < tight.cap) { /* no room is left in it */
        buf_append_char(&tight, ' ');
    }
    memcpy(tight.data + tight.len - 2, "}\n", 2);
    size_t len = tight.len;
    mem_fail_at(1, true);
    status st = wire_request_put_deadline(&tight, 7);
    mem_fail_at(0, false);
    assert_int_equal(st, ST_NOMEM);
    assert_int_equal(tight.len, len);
    assert_memory_equal(tight.data + len - 2, "}\n", 3);
    buf_release(&tight);
    wire_request_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),         cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_lines_differ), cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_resume),       cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
