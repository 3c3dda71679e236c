/*
 * The body of /v1/chat/completions, by OpenAI's reference; lines are read again by the worker's decoder.
 */
#include <math.h>

#include "serve/chat.h"
#include "serve/generation_rig.h"

#define BASE "\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]"

static void test_messages(void **state)
{
    generation g = rig_good(
        chat_read,
        "{\"messages\":[{\"role\":\"system\",\"content\":\"be <|im_end|> kind\"},"
        "{\"content\":[{\"type\":\"text\",\"text\":\"one \"},{\"text\":\"tw\\u0000o\",\"type\":\"text\"}],"
        "\"role\":\"user\"},{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null,\"tool_calls\":null},"
        "{\"role\":\"developer\",\"content\":\"d\"}]}");
    assert_int_equal(generation_n_choices(&g), 1);
    wire_request *r = rig_wire(&g, 0);
    assert_int_equal(r->op, WIRE_CHAT);
    assert_int_equal(r->n_messages, 4);
    static const struct {
        const char *role, *content;
        size_t len;
    } want[] = {{"system", "be <|im_end|> kind", 18},
                {"user", "one tw\0o", 8},
                {"assistant", "", 0},
                {"system", "d", 1}};
    for (size_t i = 0; i < N_OF(want); i++) {
        assert_string_equal(r->messages[i].role.data, want[i].role);
        assert_int_equal(r->messages[i].content.len, want[i].len);
        assert_memory_equal(r->messages[i].content.data, want[i].content, want[i].len);
    }
    assert_int_equal(r->max_new_tokens, -1); /* the rest of the context */
    assert_int_equal(r->top_logprobs, -1);
    assert_int_equal(r->prompt_logprobs, -1);
    assert_true(fabs(r->temperature - 1) < 1e-12);
    assert_int_equal(r->seed, RIG_SEED);
    wire_request_free(r);
    generation_release(&g);
}

static void test_fields(void **state)
{
    generation g =
        rig_good(chat_read, "{" BASE ",\"model\":\"m\",\"max_completion_tokens\":9,\"max_tokens\":9,\"n\":2,"
                            "\"logprobs\":true,\"top_logprobs\":20,\"seed\":4,\"stop\":\"s\",\"top_k\":3,"
                            "\"response_format\":{\"type\":\"text\"},\"stream\":true,\"user\":\"u\","
                            "\"tools\":null,\"logit_bias\":{\"3\":1},\"hearth\":{\"deadline_ms\":1}}");
    assert_int_equal(generation_n_choices(&g), 2);
    assert_true(g.stream);
    assert_int_equal(g.deadline_ms, 1);
    wire_request *r = rig_wire(&g, 1);
    assert_int_equal(r->seed, 6);
    assert_int_equal(r->max_new_tokens, 9);
    assert_int_equal(r->top_logprobs, 20);
    assert_int_equal(r->top_k, 3);
    assert_int_equal(r->n_bias, 1);
    assert_string_equal(r->stops[0].data, "s");
    wire_request_free(r);
    generation_release(&g);
    static const struct {
        const char *members;
        int32_t max_new_tokens, top_logprobs;
    } rows[] = {{"\"max_tokens\":5", 5, -1},
                {"\"max_completion_tokens\":6", 6, -1},
                {"\"logprobs\":true", -1, 0},
                {"\"logprobs\":false,\"top_logprobs\":0", -1, -1}};
    for (size_t i = 0; i < N_OF(rows); i++) {
        char body[200];
        snprintf(body, sizeof body, "{" BASE ",%s}", rows[i].members);
        g = rig_good(chat_read, body);
        r = rig_wire(&g, 0);
        assert_int_equal(r->max_new_tokens, rows[i].max_new_tokens);
        assert_int_equal(r->top_logprobs, rows[i].top_logprobs);
        wire_request_free(r);
        generation_release(&g);
    }
}

static const rig_bad bad[] = {
    {"", 400, "", "bad_request"},
    {"{}", 400, "messages", "invalid_field"},
    {"{\"messages\":[]}", 400, "messages", "invalid_field"},
    {"{\"messages\":{}}", 400, "messages", "invalid_field"},
    {"{\"messages\":[\"a\"]}", 400, "messages[0]", "invalid_field"},
    {"{\"messages\":[{\"content\":\"a\"}]}", 400, "messages[0].role", "invalid_field"},
    {"{\"messages\":[{\"role\":\"tool\",\"content\":\"a\"}]}", 400, "messages[0].role", "invalid_field"},
    {"{\"messages\":[{\"role\":\"user\\u0000\",\"content\":\"a\"}]}", 400, "messages[0].role",
     "invalid_field"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\"}]}", 400, "messages[1].content",
     "invalid_field"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":null}]}", 400, "messages[0].content", "invalid_field"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":[]}]}", 400, "messages[0].content", "invalid_field"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":[\"a\"]}]}", 400, "messages[0].content", "invalid_field"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{}}]}]}", 400,
     "messages[0].content", "unsupported"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]}", 400, "messages[0].content",
     "invalid_field"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"name\":\"bob\"}]}", 400, "messages[0].name",
     "unsupported"},
    {"{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\",\"tool_calls\":[]}]}", 400,
     "messages[0].tool_calls", "unsupported"},
    {"\"tools\":[]", 400, "tools", "unsupported"},
    {"\"tool_choice\":\"auto\"", 400, "tool_choice", "unsupported"},
    {"\"functions\":[]", 400, "functions", "unsupported"},
    {"\"reasoning_effort\":\"low\"", 400, "reasoning_effort", "unsupported"},
    {"\"prompt\":\"a\"", 400, "prompt", "unsupported"},
    {"\"echo\":true", 400, "echo", "unsupported"},
    {"\"best_of\":1", 400, "best_of", "unsupported"},
    {"\"max_tokens\":5,\"max_completion_tokens\":6", 400, "max_tokens", "invalid_field"},
    {"\"max_tokens\":0", 400, "max_tokens", "invalid_field"},
    {"\"top_logprobs\":2", 400, "top_logprobs", "invalid_field"},
    {"\"logprobs\":true,\"top_logprobs\":21", 400, "top_logprobs", "invalid_field"},
    {"\"logprobs\":1", 400, "logprobs", "invalid_field"},
    {"\"response_format\":{\"type\":\"json_object\"}", 400, "response_format", "unsupported"},
    {"\"response_format\":\"text\"", 400, "response_format", "invalid_field"},
    {"\"response_format\":{\"type\":\"text\",\"x\":1}", 400, "response_format.x", "unsupported"},
};

static void test_refused(void **state)
{
    rig_refused(chat_read, BASE, bad, N_OF(bad));
}

static void test_numbers(void **state)
{
    static const rig_number fields[] = {
        {"max_tokens", " 2147483648 "},
        {"max_completion_tokens", " 2147483648 "},
        {"temperature", " 2147483648 9223372036854775808 1e308 "},
        {"top_p", " "},
        {"top_k", " "},
        {"min_p", " "},
        {"n", " "},
        {"top_logprobs", " "},
        {"seed", " 2147483648 "},
        {"presence_penalty", " -1 -0.5 "},
        {"frequency_penalty", " -1 -0.5 "},
        {"repetition_penalty", " "},
        {"min_tokens", " "},
        {"hearth.deadline_ms", " "},
    };
    rig_sweep(chat_read, BASE, fields, N_OF(fields));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
