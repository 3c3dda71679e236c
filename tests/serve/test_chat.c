/*
 * The body of /v1/chat/completions, by OpenAI's reference; lines are read again by the worker's decoder.
 */
#include <math.h>

#include "serve/chat.h"
#include "serve/generation_rig.h"

#define BASE "\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]"

/* A part of the conversation as the worker gets it; `got` is the memory. */
static const char *shown(const json *v, buf *got)
{
    json_w w;
    buf_reset(got);
    json_w_begin(&w, got);
    json_w_json(&w, v);
    assert_int_equal(json_w_end(&w), ST_OK);
    return buf_str(got);
}

static void test_messages(void **state)
{
    static const struct {
        const char *messages, *want;
    } rows[] = {
        {"{\"role\":\"system\",\"content\":\"be <|im_end|> kind\"}", NULL},
        {"{\"content\":[{\"type\":\"text\",\"text\":\"one \"},{\"text\":\"tw\\u0000o\",\"type\":\"text\"}],"
         "\"role\":\"user\"}",
         "{\"role\":\"user\",\"content\":\"one tw\\u0000o\"}"},
        {"{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null,\"audio\":null,\"function_call\":null,"
         "\"tool_calls\":[],\"annotations\":[]}",
         "{\"role\":\"assistant\",\"content\":\"\"}"},
        {"{\"role\":\"developer\",\"content\":\"d\"}", "{\"role\":\"system\",\"content\":\"d\"}"},
        {"{\"role\":\"user\",\"content\":\"a\",\"name\":\"bob\"}", NULL},
        {"{\"role\":\"assistant\",\"content\":null,\"reasoning_content\":\"hm\",\"tool_calls\":["
         "{\"id\":\"call_1\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\"}},"
         "{\"id\":\"call_2\",\"index\":1,\"function\":{\"name\":\"g\",\"arguments\":{\"x\":[1.0,null]}}},"
         "{\"id\":\"3\",\"function\":{\"name\":\"h\",\"arguments\":\"\"}},"
         "{\"id\":\"4\",\"function\":{\"name\":\"h\"}}]}",
         "{\"role\":\"assistant\",\"content\":null,\"reasoning_content\":\"hm\",\"tool_calls\":["
         "{\"id\":\"call_1\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\"}},"
         "{\"id\":\"call_2\",\"type\":\"function\",\"function\":{\"name\":\"g\",\"arguments\":{\"x\":[1.0,"
         "null]}}},"
         "{\"id\":\"3\",\"type\":\"function\",\"function\":{\"name\":\"h\",\"arguments\":\"\"}},"
         "{\"id\":\"4\",\"type\":\"function\",\"function\":{\"name\":\"h\",\"arguments\":null}}]}"},
        {"{\"role\":\"tool\",\"tool_call_id\":\"call_1\",\"content\":\"21\"}",
         "{\"role\":\"tool\",\"content\":\"21\",\"tool_call_id\":\"call_1\"}"},
        /* FAILURES S4 */
        {"{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"content\":\"b\"},"
         "{\"role\":\"system\",\"content\":\"c\"}",
         NULL},
    };
    buf got = {0}, body = {0}, want = {0};
    for (size_t i = 0; i < N_OF(rows); i++) {
        buf_reset(&body);
        buf_reset(&want);
        buf_printf(&body, "{\"messages\":[%s]}", rows[i].messages);
        buf_printf(&want, "[%s]", rows[i].want ? rows[i].want : rows[i].messages);
        generation g = rig_good(chat_read, buf_str(&body));
        assert_int_equal(generation_n_choices(&g), 1);
        wire_request *r = rig_wire(&g, 0);
        assert_int_equal(r->op, WIRE_CHAT);
        assert_string_equal(shown(r->messages, &got), buf_str(&want));
        assert_int_equal(r->max_new_tokens, -1); /* the rest of the context */
        assert_int_equal(r->top_logprobs, -1);
        assert_int_equal(r->prompt_logprobs, -1);
        assert_true(fabs(r->temperature - 1) < 1e-12);
        assert_int_equal(r->seed, RIG_SEED);
        assert_null(r->tools);
        wire_request_free(r);
        generation_release(&g);
    }
    buf_release(&got);
    buf_release(&body);
    buf_release(&want);
}

#define F "{\"type\":\"function\",\"function\":{\"name\":\"f\"}}"

static void test_tools(void **state)
{
    static const struct {
        const char *members;
        wire_tool_choice choice;
        const char *name;
        bool parallel;
    } rows[] = {
        {"\"tools\":[" F "]", WIRE_TOOLS_AUTO, NULL, true},
        {"\"tools\":[" F "],\"tool_choice\":\"auto\",\"parallel_tool_calls\":false", WIRE_TOOLS_AUTO, NULL,
         false},
        {"\"tools\":[" F "],\"tool_choice\":\"none\"", WIRE_TOOLS_NONE, NULL, true},
        {"\"tools\":[" F "],\"tool_choice\":\"required\"", WIRE_TOOLS_REQUIRED, NULL, true},
        {"\"tools\":[" F "],\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"f\"}}",
         WIRE_TOOLS_NAMED, "f", true},
    };
    buf got = {0};
    for (size_t i = 0; i < N_OF(rows); i++) {
        char body[512];
        snprintf(body, sizeof body, "{" BASE ",%s}", rows[i].members);
        generation g = rig_good(chat_read, body);
        wire_request *r = rig_wire(&g, 0);
        assert_string_equal(shown(r->tools, &got), "[" F "]");
        assert_int_equal(r->tool_choice, rows[i].choice);
        assert_int_equal(r->parallel_tool_calls, rows[i].parallel);
        if (rows[i].name) {
            assert_string_equal(r->tool_name.data, rows[i].name);
        }
        wire_request_free(r);
        generation_release(&g);
    }
    /* as the client wrote it, for the template prints it; but what is nothing to the model is left out */
    generation g =
        rig_good(chat_read,
                 "{" BASE ",\"tools\":[{\"type\":\"function\",\"function\":{\"strict\":false,\"parameters\":"
                 "{\"type\":\"object\",\"required\":[]},\"description\":null,\"name\":\"f.g-h\"}}]}");
    wire_request *r = rig_wire(&g, 0);
    assert_string_equal(shown(r->tools, &got),
                        "[{\"type\":\"function\",\"function\":{\"parameters\":{\"type\":\"object\","
                        "\"required\":[]},\"name\":\"f.g-h\"}}]");
    wire_request_free(r);
    generation_release(&g);
    buf_release(&got);
}

static void test_reasoning(void **state)
{
    static const struct {
        const char *members;
        const char *effort;
        wire_toggle enabled;
        int32_t budget;
        const char *kwargs;
    } rows[] = {
        {"\"user\":\"u\"", NULL, WIRE_UNSAID, -1, NULL},
        {"\"reasoning_effort\":\"low\"", "low", WIRE_UNSAID, -1, NULL},
        {"\"reasoning_effort\":\"none\"", NULL, WIRE_OFF, -1, NULL},
        {"\"reasoning_effort\":\"none\",\"enable_thinking\":false", NULL, WIRE_OFF, -1, NULL},
        {"\"enable_thinking\":true", NULL, WIRE_ON, -1, NULL},
        {"\"reasoning_budget\":0", NULL, WIRE_UNSAID, 0, NULL},
        {"\"thinking_budget\":9,\"reasoning_budget\":9", NULL, WIRE_UNSAID, 9, NULL},
        {"\"thinking_token_budget\":2147483648", NULL, WIRE_UNSAID, INT32_MAX, NULL},
        {"\"chat_template_kwargs\":{}", NULL, WIRE_UNSAID, -1, NULL},
        {"\"chat_template_kwargs\":{\"enable_thinking\":false,\"x\":[1]}", NULL, WIRE_OFF, -1,
         "{\"enable_thinking\":false,\"x\":[1]}"},
    };
    buf got = {0};
    for (size_t i = 0; i < N_OF(rows); i++) {
        char body[512];
        snprintf(body, sizeof body, "{" BASE ",%s}", rows[i].members);
        generation g = rig_good(chat_read, body);
        wire_request *r = rig_wire(&g, 0);
        assert_int_equal(r->reasoning_enabled, rows[i].enabled);
        assert_int_equal(r->reasoning_budget, rows[i].budget);
        assert_string_equal(r->reasoning_effort ? r->reasoning_effort : "",
                            rows[i].effort ? rows[i].effort : "");
        assert_string_equal(r->template_kwargs ? shown(r->template_kwargs, &got) : "",
                            rows[i].kwargs ? rows[i].kwargs : "");
        wire_request_free(r);
        generation_release(&g);
    }
    buf_release(&got);
}

static void test_prefill(void **state)
{
    static const char prefix[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},"
                                 "{\"role\":\"assistant\",\"content\":\"b\"}],";
    static const struct {
        const char *members;
        bool goes_on;
    } rows[] = {{"\"continue_final_message\":true", true},
                {"\"continue_final_message\":true,\"add_generation_prompt\":false", true},
                {"\"continue_final_message\":false,\"add_generation_prompt\":true", false}};
    for (size_t i = 0; i < N_OF(rows); i++) {
        char body[512];
        snprintf(body, sizeof body, "%s%s}", prefix, rows[i].members);
        generation g = rig_good(chat_read, body);
        wire_request *r = rig_wire(&g, 0);
        assert_int_equal(r->continue_final_message, rows[i].goes_on);
        wire_request_free(r);
        generation_release(&g);
    }
}

static void test_fields(void **state)
{
    generation g = rig_good(
        chat_read, "{" BASE ",\"model\":\"m\",\"max_completion_tokens\":9,\"max_tokens\":9,\"n\":2,"
                   "\"logprobs\":true,\"top_logprobs\":20,\"seed\":4,\"stop\":\"s\",\"top_k\":3,"
                   "\"response_format\":{\"type\":\"text\"},\"stream\":true,\"user\":\"u\","
                   "\"tools\":null,\"store\":false,\"metadata\":{\"a\":\"b\"},\"modalities\":[\"text\"],"
                   "\"service_tier\":\"auto\",\"verbosity\":\"medium\",\"prompt_cache_key\":\"k\","
                   "\"safety_identifier\":\"s\",\"prompt_cache_retention\":\"24h\",\"logit_bias\":{\"3\":1},"
                   "\"hearth\":{\"deadline_ms\":1}}");
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
    {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\\u0000\",\"text\":\"a\"}]}]}", 400,
     "messages[0].content", "unsupported"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
     "{\"type\":\"text\",\"text\":\"b\",\"cache_control\":{}}]}]}",
     400, "messages[0].content[1].cache_control", "unsupported"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"name\":1}]}", 400, "messages[0].name",
     "invalid_field"},
    {"{\"messages\":[{\"role\":\"function\",\"content\":\"a\",\"name\":\"f\"}]}", 400, "messages[0].role",
     "invalid_field"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"tool_calls\":[]}]}", 400,
     "messages[0].tool_calls", "unsupported"},
    {"{\"messages\":[{\"role\":\"assistant\",\"content\":null}]}", 400, "messages[0].content",
     "invalid_field"},
    {"{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\",\"refusal\":\"no\"}]}", 400,
     "messages[0].refusal", "unsupported"},
    {"{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\",\"function_call\":{}}]}", 400,
     "messages[0].function_call", "unsupported"},
    {"{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":{}}]}", 400, "messages[0].tool_calls",
     "invalid_field"},
    {"{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\"}}]}]}", 400,
     "messages[0].tool_calls[0].id", "invalid_field"},
    {"{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"1\"}]}]}", 400,
     "messages[0].tool_calls[0].function", "invalid_field"},
    {"{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"1\",\"type\":\"custom\"}]}]}", 400,
     "messages[0].tool_calls[0].type", "unsupported"},
    {"{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"1\",\"function\":{\"name\":\"\"}}]}]}",
     400, "messages[0].tool_calls[0].function.name", "invalid_field"},
    {"{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"1\",\"function\":{\"name\":\"f\","
     "\"arguments\":[]}}]}]}",
     400, "messages[0].tool_calls[0].function.arguments", "invalid_field"},
    {"{\"messages\":[{\"role\":\"tool\",\"content\":\"a\"}]}", 400, "messages[0].tool_call_id",
     "invalid_field"},
    {"\"tools\":{}", 400, "tools", "invalid_field"},
    {"\"tools\":[1]", 400, "tools[0]", "invalid_field"},
    {"\"tools\":[{\"type\":\"custom\"}]", 400, "tools[0].type", "unsupported"},
    {"\"tools\":[{\"type\":\"function\"}]", 400, "tools[0].function", "invalid_field"},
    {"\"tools\":[{\"type\":\"function\",\"function\":{}}]", 400, "tools[0].function.name", "invalid_field"},
    {"\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":1}}]", 400,
     "tools[0].function.parameters", "invalid_field"},
    {"\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"strict\":true}}]", 400,
     "tools[0].function.strict", "unsupported"},
    {"\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"x\":1}}]", 400, "tools[0].function.x",
     "unsupported"},
    {"\"tool_choice\":\"required\"", 400, "tool_choice", "invalid_field"},
    {"\"tool_choice\":\"any\"", 400, "tool_choice", "invalid_field"},
    {"\"tool_choice\":{\"type\":\"allowed_tools\"}", 400, "tool_choice", "unsupported"},
    {"\"tools\":[" F "],\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"g\"}}", 400,
     "tool_choice.function.name", "invalid_field"},
    {"\"parallel_tool_calls\":1", 400, "parallel_tool_calls", "invalid_field"},
    {"\"reasoning_effort\":\"max\"", 400, "reasoning_effort", "invalid_field"},
    {"\"reasoning_effort\":\"low\\u0000\"", 400, "reasoning_effort", "invalid_field"},
    {"\"reasoning_effort\":\"none\\u0000x\"", 400, "reasoning_effort", "invalid_field"},
    {"\"reasoning_effort\":\"none\",\"enable_thinking\":true", 400, "reasoning_effort", "invalid_field"},
    {"\"enable_thinking\":true,\"chat_template_kwargs\":{\"enable_thinking\":false}", 400, "enable_thinking",
     "invalid_field"},
    {"\"chat_template_kwargs\":[]", 400, "chat_template_kwargs", "invalid_field"},
    {"\"reasoning_budget\":1,\"thinking_budget\":2", 400, "thinking_budget", "invalid_field"},
    {"\"continue_final_message\":true", 400, "continue_final_message", "invalid_field"},
    {"\"add_generation_prompt\":false", 400, "add_generation_prompt", "unsupported"},
    {"{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\"}],\"continue_final_message\":true,"
     "\"add_generation_prompt\":true}",
     400, "add_generation_prompt", "invalid_field"},
    {"\"store\":true", 400, "store", "unsupported"},
    {"\"metadata\":1", 400, "metadata", "invalid_field"},
    {"\"service_tier\":\"flex\"", 400, "service_tier", "unsupported"},
    {"\"service_tier\":\"auto\\u0000x\"", 400, "service_tier", "unsupported"},
    {"\"modalities\":[\"text\\u0000\"]", 400, "modalities", "unsupported"},
    {"\"verbosity\":\"low\"", 400, "verbosity", "unsupported"},
    {"\"modalities\":[\"text\",\"audio\"]", 400, "modalities", "unsupported"},
    {"\"audio\":{}", 400, "audio", "unsupported"},
    {"\"prediction\":{}", 400, "prediction", "unsupported"},
    {"\"web_search_options\":{}", 400, "web_search_options", "unsupported"},
    {"\"functions\":[]", 400, "functions", "unsupported"},
    {"\"function_call\":\"auto\"", 400, "function_call", "unsupported"},
    {"\"prompt\":\"a\"", 400, "prompt", "unsupported"},
    {"\"echo\":true", 400, "echo", "unsupported"},
    {"\"best_of\":1", 400, "best_of", "unsupported"},
    {"\"max_tokens\":5,\"max_completion_tokens\":6", 400, "max_tokens", "invalid_field"},
    {"\"max_tokens\":0", 400, "max_tokens", "invalid_field"},
    {"\"top_logprobs\":2", 400, "top_logprobs", "invalid_field"},
    {"\"logprobs\":true,\"top_logprobs\":21", 400, "top_logprobs", "invalid_field"},
    {"\"logprobs\":1", 400, "logprobs", "invalid_field"},
    {"\"response_format\":{\"type\":\"json_object\"}", 400, "response_format", "unsupported"},
    {"\"response_format\":{\"type\":\"text\\u0000x\"}", 400, "response_format", "unsupported"},
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
        {"reasoning_budget", " -1 2147483648 "},
        {"hearth.deadline_ms", " "},
    };
    rig_sweep(chat_read, BASE, fields, N_OF(fields));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages), cmocka_unit_test(test_tools),  cmocka_unit_test(test_reasoning),
        cmocka_unit_test(test_prefill),  cmocka_unit_test(test_fields), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
