/*
 * What the two routes answer, by OpenAI's reference: chunks, whole answers, usage, log probabilities. The texts
 * are compared whole, so that a key too many or in another place is seen.
 */
#include <float.h>
#include <string.h>

#include "base/mem.h"
#include "base/test_main.h"
#include "serve/chat.h"
#include "serve/completion.h"

#define TEXT(s) ((wire_string){(s), sizeof(s) - 1})

static const answer_head legacy_head = {&completion_shape, "cmpl-1", "m", 5};
static const answer_head chat_head = {&chat_shape, "chatcmpl-1", "m", 5};

static const answer_result stopped = {.reason = "stop",
                                      .seed = 8,
                                      .prompt_tokens = 3,
                                      .completion_tokens = 2,
                                      .cached_tokens = 1,
                                      .queue_ms = 0.5,
                                      .ttft_ms = 1.25,
                                      .prefill_ms = 1,
                                      .decode_ms = 2,
                                      .total_ms = 3.0625,
                                      .preemptions = 4};
/* A turn of a session, of which something was not at hand any more. */
static const answer_result turned = {.reason = "stop",
                                     .seed = 8,
                                     .queue_ms = 0.5,
                                     .ttft_ms = 1.25,
                                     .prefill_ms = 1,
                                     .decode_ms = 2,
                                     .total_ms = 3.0625,
                                     .preemptions = 4,
                                     .reset_reason = "exact_prefix",
                                     .miss_reason = "no_snapshot",
                                     .miss_at = 64};
#define STOPPED                                                                                 \
    "\"finish\":\"stop\",\"seed\":7,\"queue_ms\":0.500,\"ttft_ms\":1.250,\"prefill_ms\":1.000," \
    "\"decode_ms\":2.000,\"total_ms\":3.062,\"preemptions\":4"

#define CHAT_DELTA(delta)                                                                        \
    "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":5,\"model\":\"m\"," \
    "\"choices\":[{\"index\":0,\"delta\":{" delta "},\"logprobs\":null,\"finish_reason\":null}]}"

/* The first chunk of a call has all but the arguments, the others have nothing else. */
static void test_calls_in_chunks(void **state)
{
    const frame_call begin = {.index = 1, .id = TEXT("call_a"), .name = TEXT("f"), .arguments = TEXT("{\"")};
    const frame_call more = {.index = 1, .arguments = TEXT("{\"")};
    const struct {
        answer_choice choice;
        const char *json;
    } rows[] = {
        {{.text = "", .kind = SPEECH_CALL, .call = &begin},
         CHAT_DELTA("\"tool_calls\":[{\"index\":1,\"id\":\"call_a\",\"type\":\"function\",\"function\":"
                    "{\"name\":\"f\",\"arguments\":\"\"}}]")},
        {{.text = "", .kind = SPEECH_CALL, .call = &more},
         CHAT_DELTA("\"tool_calls\":[{\"index\":1,\"function\":{\"arguments\":\"{\\\"\"}}]")},
        {{.text = "hm", .text_len = 2, .kind = SPEECH_THOUGHT}, CHAT_DELTA("\"reasoning_content\":\"hm\"")},
    };
    for (size_t i = 0; i < N_OF(rows); i++) {
        buf out = {0};
        assert_int_equal(answer_put_chunk(&out, &chat_head, &rows[i].choice, NULL, false), ST_OK);
        assert_string_equal(buf_str(&out), rows[i].json);
        buf_release(&out);
    }
}

static void test_chunks(void **state)
{
    static const struct {
        const answer_head *head;
        answer_choice choice;
        const answer_result *result;
        bool usage_null;
        const char *json;
    } rows[] = {
        {&legacy_head,
         {.index = 0, .text = "a\n\xf0\x9f\x99\x82", .text_len = 6},
         NULL,
         false,
         "{\"id\":\"cmpl-1\",\"object\":\"text_completion\",\"created\":5,\"model\":\"m\",\"choices\":[{"
         "\"index\":0,"
         "\"text\":\"a\\n\xf0\x9f\x99\x82\",\"logprobs\":null,\"finish_reason\":null}]}"},
        {&legacy_head,
         {.index = 3, .text = "", .finish_reason = "stop"},
         &stopped,
         true,
         "{\"id\":\"cmpl-1\",\"object\":\"text_completion\",\"created\":5,\"model\":\"m\",\"choices\":[{"
         "\"index\":3,"
         "\"text\":\"\",\"logprobs\":null,\"finish_reason\":\"stop\"}],\"usage\":null,\"hearth\":{" STOPPED
         "}}"},
        {&chat_head,
         {.text = "", .first = true},
         NULL,
         false,
         "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":5,\"model\":\"m\","
         "\"choices\":[{"
         "\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_"
         "reason\":null}"
         "]}"},
        {&chat_head,
         {.text = "hi", .text_len = 2},
         NULL,
         false,
         "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":5,\"model\":\"m\","
         "\"choices\":[{"
         "\"index\":0,\"delta\":{\"content\":\"hi\"},\"logprobs\":null,\"finish_reason\":null}]}"},
        {&chat_head,
         {.text = "", .finish_reason = "length"},
         &stopped,
         false,
         "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":5,\"model\":\"m\","
         "\"choices\":[{"
         "\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"length\"}],\"hearth\":{" STOPPED
         "}}"},
        {&chat_head,
         {.text = "", .finish_reason = "stop"},
         &turned,
         false,
         "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":5,\"model\":\"m\","
         "\"choices\":[{"
         "\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"stop\"}],\"hearth\":{" STOPPED
         ",\"session_reset_reason\":\"exact_prefix\",\"cache_miss\":{\"at\":64,\"reason\":\"no_snapshot\"}}"
         "}"},
    };
    for (size_t i = 0; i < N_OF(rows); i++) {
        buf out = {0};
        assert_int_equal(
            answer_put_chunk(&out, rows[i].head, &rows[i].choice, rows[i].result, rows[i].usage_null), ST_OK);
        assert_string_equal(buf_str(&out), rows[i].json);
        buf_release(&out);
    }
}

/* A prompt counts once, however many choices it has. */
static void test_whole(void **state)
{
    buf out = {0};
    const answer_choice choices[] = {{.index = 0, .text = "x", .text_len = 1, .finish_reason = "stop"},
                                     {.index = 1, .text = "y", .text_len = 1, .finish_reason = "length"}};
    answer_result results[] = {stopped, stopped};
    strcpy(results[1].reason, "length");
    strcpy(results[1].guard, "context");
    assert_int_equal(answer_put_whole(&out, &chat_head, choices, results, 1, 1), ST_OK);
    assert_string_equal(
        buf_str(&out),
        "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion\",\"created\":5,\"model\":\"m\","
        "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"x\",\"refusal\":"
        "null},\"logprobs\":null,\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":3,"
        "\"completion_tokens\":2,\"total_tokens\":5,\"prompt_tokens_details\":{\"cached_tokens\":1},"
        "\"completion_tokens_details\":{\"reasoning_tokens\":0}},"
        "\"hearth\":{" STOPPED "}}");
    buf_reset(&out);
    assert_int_equal(answer_put_whole(&out, &legacy_head, choices, results, 2, 2), ST_OK);
    assert_non_null(strstr(out.data,
                           "\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4,\"total_tokens\":7,"
                           "\"prompt_tokens_details\":{\"cached_tokens\":1}}"));
    assert_non_null(strstr(out.data,
                           "\"hearth\":{" STOPPED ",\"choices\":[{" STOPPED "},{\"finish\":\"length\","
                           "\"guard\":\"context\",\"seed\":7,"));
    buf_reset(&out);
    assert_int_equal(answer_put_usage(&out, &legacy_head, results, 2, 1), ST_OK); /* two prompts */
    assert_string_equal(
        buf_str(&out),
        "{\"id\":\"cmpl-1\",\"object\":\"text_completion\",\"created\":5,\"model\":\"m\",\"choices\":"
        "[],\"usage\":{\"prompt_tokens\":6,\"completion_tokens\":4,\"total_tokens\":10,"
        "\"prompt_tokens_details\":{\"cached_tokens\":2}}}");
    buf_release(&out);
}

static void test_finish(void **state)
{
    static const char *const rows[][2] = {{"stop", "stop"},
                                          {"length", "length"},
                                          {"timeout", "length"},
                                          {"cancelled", "length"},
                                          {"tool_calls", "tool_calls"}};
    for (size_t i = 0; i < N_OF(rows); i++) {
        answer_result r;
        const frame_done d = {.reason = rows[i][0], .guard = "", .finish_reason = "stop", .seed = 3};
        answer_result_of(&r, &d);
        assert_string_equal(answer_finish_reason(&r), rows[i][1]);
        assert_string_equal(r.reason, rows[i][0]);
    }
}

/* "Ä" in two tokens, an alternative with the same text, one with a NUL, one that cannot happen. */
static void test_logprobs(void **state)
{
    const frame_logprob top[] = {{.token = 1, .logprob = -0.5, .text = TEXT("A")},
                                 {.token = 2, .logprob = -1, .text = TEXT("A")},
                                 {.token = 3, .logprob = -2, .text = TEXT("\0")},
                                 {.token = 4, .logprob = -(double)FLT_MAX, .text = TEXT("\xff")}};
    const frame_logprob tokens[] = {
        {.token = 9, .logprob = -3, .text = TEXT("\xc3"), .top = top, .n_top = 4},
        {.token = 8, .logprob = 0, .text = TEXT("\x84")},
        {.token = 1, .logprob = -0.25, .text = TEXT("A"), .top = top, .n_top = 1}};
    logprob_list l = {.next_offset = 2};
    buf out = {0};
    json_w w;
    for (size_t i = 0; i < N_OF(tokens); i++) {
        assert_int_equal(logprob_list_add(&l, &tokens[i]), ST_OK);
    }
    json_w_begin(&w, &out);
    logprob_put_legacy(&w, &l);
    assert_int_equal(json_w_end(&w), ST_OK);
    assert_string_equal(
        buf_str(&out),
        "{\"tokens\":[\"bytes:\\\\xc3\",\"bytes:\\\\x84\",\"A\"],\"token_logprobs\":[-3,0,-0.25],"
        "\"top_logprobs\":[{\"A\":-0.5,\"bytes:\\\\x00\":-2,\"bytes:\\\\xff\":-9999,"
        "\"bytes:\\\\xc3\":-3},{\"bytes:\\\\x84\":0},{\"A\":-0.5}],\"text_offset\":[2,3,3]}");
    buf_reset(&out);
    json_w_begin(&w, &out);
    logprob_put_chat(&w, &l);
    assert_int_equal(json_w_end(&w), ST_OK);
    assert_string_equal(
        buf_str(&out),
        "{\"content\":[{\"token\":\"\xef\xbf\xbd\",\"logprob\":-3,\"bytes\":[195],\"top_logprobs\":["
        "{\"token\":\"A\",\"logprob\":-0.5,\"bytes\":[65]},{\"token\":\"A\",\"logprob\":-1,\"bytes\":[65]},"
        "{\"token\":\"\\u0000\",\"logprob\":-2,\"bytes\":[0]},"
        "{\"token\":\"\xef\xbf\xbd\",\"logprob\":-9999,\"bytes\":[255]}]},"
        "{\"token\":\"\xef\xbf\xbd\",\"logprob\":0,\"bytes\":[132],\"top_logprobs\":[]},"
        "{\"token\":\"A\",\"logprob\":-0.25,\"bytes\":[65],\"top_logprobs\":["
        "{\"token\":\"A\",\"logprob\":-0.5,\"bytes\":[65]}]}],\"refusal\":null}");
    logprob_list_reset(&l);
    assert_int_equal(l.next_offset, 4);
    assert_int_equal(logprob_list_add_first(&l, TEXT("go")), ST_OK);
    buf_reset(&out);
    json_w_begin(&w, &out);
    logprob_put_legacy(&w, &l);
    assert_int_equal(json_w_end(&w), ST_OK);
    assert_string_equal(buf_str(&out),
                        "{\"tokens\":[\"go\"],\"token_logprobs\":[null],\"top_logprobs\":[null],"
                        "\"text_offset\":[4]}");
    buf_release(&out);
    logprob_list_release(&l);
}

/* Out of memory anywhere leaves the output as it was. */
static void test_no_memory(void **state)
{
    const answer_choice choice = {.text = "x", .text_len = 1};
    status st = ST_NOMEM;
    for (uint64_t n = 1; st != ST_OK; n++) {
        buf out = {0};
        logprob_list l = {0};
        const frame_logprob p = {.text = TEXT("a"), .logprob = -1};
        assert_int_equal(buf_append_str(&out, "before"), ST_OK);
        mem_fail_at(n, false);
        st = logprob_list_add(&l, &p);
        st = st == ST_OK ? answer_put_chunk(&out, &legacy_head, &choice, &stopped, true) : st;
        mem_fail_at(0, false);
        if (st != ST_OK) {
            assert_string_equal(buf_str(&out), "before");
        }
        assert_true(n < 100);
        buf_release(&out);
        logprob_list_release(&l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chunks),   cmocka_unit_test(test_whole),
        cmocka_unit_test(test_finish),   cmocka_unit_test(test_calls_in_chunks),
        cmocka_unit_test(test_logprobs), cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
