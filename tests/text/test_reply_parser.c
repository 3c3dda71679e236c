/*
 * What the caller of reply_parser relies on beside the end result: what is out after each piece, the state between
 * pieces, withdrawn calls, limits, a sink that fails, linear time. And the formats: chosen from a template, forced
 * openers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "fixtures.h"
#include "reply_collect.h"

#define N_OF(array) (sizeof(array) / sizeof((array)[0]))

static reply_parser *parser_of(reply_style style, collected *c)
{
    reply_parser *p = NULL;
    reply_options o = {.format = reply_format_of(style)};
    assert_int_equal(reply_parser_new(&o, collect, c, &p), ST_OK);
    return p;
}

static void push(reply_parser *p, const char *text)
{
    assert_int_equal(reply_parser_push(p, text, strlen(text)), ST_OK);
}

static void finish(reply_parser *p, bool cut)
{
    reply_end end;
    assert_int_equal(reply_parser_finish(p, cut, &end), ST_OK);
    reply_parser_free(p);
}

/* Pieces, and all that must be out after each: nothing is held that cannot become something else. */
static const struct step_row {
    reply_style style;
    struct {
        const char *push, *content, *reasoning, *name, *args; /* name, args: of the last call */
    } steps[8];
} step_rows[] = {
    {REPLY_HERMES,
     {{"a", "a", "", "", ""},
      {" ", "a", "", "", ""}, /* white space may be the end */
      {"b <", "a b", "", "", ""},
      {"x", "a b <x", "", "", ""},
      {"<tool_call", "a b <x", "", "", ""},
      {"s>", "a b <x<tool_calls>", "", "", ""}}},
    {REPLY_HERMES,
     {{"<think>\n", "", "", "", ""},
      {"one ", "", "one", "", ""},
      {"two </", "", "one two", "", ""},
      {"b></think>", "", "one two </b>", "", ""},
      {"\n\nc", "c", "one two </b>", "", ""}}},
    {REPLY_HERMES,
     {{"<tool_call>{\"name\": \"f", "", "", "", ""},
      {"\", \"arguments\": ", "", "", "", ""},
      {"{\"a\": \"x", "", "", "f", "{\"a\": \"x"},
      {"y </tool", "", "", "f", "{\"a\": \"xy </tool"},
      {"\"}", "", "", "f", "{\"a\": \"xy </tool\"}"},
      {"}\n</tool_call>d", "d", "", "f", "{\"a\": \"xy </tool\"}"}}},
    {REPLY_HERMES, /* the name comes last */
     {{"<tool_call>{\"arguments\": {\"a\": 1}, \"name\": ", "", "", "", ""},
      {"\"f\"", "", "", "f", "{\"a\": 1}"}}},
    {REPLY_QWEN3_CODER,
     {{"<tool_call>\n<function=f>\n", "", "", "", ""},
      {"<parameter=a>\nx", "", "", "f", "{\"a\": \"x"},
      {"\ny\n", "", "", "f", "{\"a\": \"x\\ny"},
      {"</para", "", "", "f", "{\"a\": \"x\\ny"},
      {"</parameter>", "", "", "f", "{\"a\": \"x\\ny\\n</para\""}}},
    {REPLY_LLAMA3_JSON,
     {{"{\"", "", "", "", ""}, {"sky\"", "{\"sky\"", "", "", ""}, {": 1", "{\"sky\": 1", "", "", ""}}},
    {REPLY_LLAMA3_PYTHON_TAG,
     {{"<|python_tag|>x", "", "", "", ""},
      {" = ", "", "", "python", "{\"code\": \"x ="},
      {"1", "", "", "python", "{\"code\": \"x = 1"}}},
    {REPLY_GEMMA,
     {{"```tool_code\nf(a=", "", "", "f", "{\"a\": "},
      {"'x", "", "", "f", "{\"a\": \"x"},
      {"', b=(1", "", "", "f", "{\"a\": \"x\", \"b\": "}, /* a tuple or a parenthesis? */
      {", 2", "", "", "f", "{\"a\": \"x\", \"b\": [1"},
      {")", "", "", "f", "{\"a\": \"x\", \"b\": [1, 2]"}}},
    {REPLY_FUNCTIONARY_V3_2,
     {{"al", "", "", "", ""},
      {"l\na", "a", "", "", ""},
      {" >>>", "a", "", "", ""},
      {" b", "a >>> b", "", "", ""}}},
    {REPLY_HARMONY,
     {{"<|channel|>analysis<|message|>a", "", "a", "", ""},
      {"<|end|><|start|>assistant<|channel|>final<|message|>b", "b", "a", "", ""}}},
};

static void test_steps(void **state)
{
    for (size_t i = 0; i < N_OF(step_rows); i++) {
        collected c = {.whole_characters = true};
        reply_parser *p = parser_of(step_rows[i].style, &c);
        for (size_t k = 0; k < N_OF(step_rows[i].steps) && step_rows[i].steps[k].push; k++) {
            push(p, step_rows[i].steps[k].push);
            assert_string_equal(buf_str(&c.content), step_rows[i].steps[k].content);
            assert_string_equal(buf_str(&c.reasoning), step_rows[i].steps[k].reasoning);
            assert_string_equal(c.n ? buf_str(&c.calls[c.n - 1].name) : "", step_rows[i].steps[k].name);
            assert_string_equal(c.n ? buf_str(&c.calls[c.n - 1].args) : "", step_rows[i].steps[k].args);
        }
        finish(p, false);
        collected_release(&c);
    }
}

static void check_state(const reply_parser *p, bool reasoning, int calls, bool closed)
{
    assert_int_equal(reply_parser_in_reasoning(p), reasoning);
    assert_int_equal(reply_parser_calls(p), calls);
    assert_int_equal(reply_parser_call_closed(p), closed);
}

static void test_state(void **state)
{
    collected c = {0};
    reply_parser *p = parser_of(REPLY_HERMES, &c);
    check_state(p, false, 0, false);
    push(p, "<think>a");
    check_state(p, true, 0, false);
    push(p, "</think>");
    check_state(p, false, 0, false);
    push(p, "<tool_call>{\"name\": \"f\", \"arguments\": {}}");
    check_state(p, false, 1, false); /* its block is not closed */
    push(p, "</tool_call>");
    check_state(p, false, 1, true);
    push(p, "\n");
    check_state(p, false, 1, true);
    push(p, "<tool_call>");
    check_state(p, false, 1, false);
    push(p, "{\"name\": \"f\", \"arguments\": {}}");
    check_state(p, false, 2, false);
    push(p, "?");
    check_state(p, false, 1, false); /* withdrawn */
    finish(p, false);
    assert_int_equal(c.n, 2);
    assert_true(c.calls[1].withdrawn && c.calls[1].ended);
    assert_string_equal(buf_str(&c.content), "<tool_call>{\"name\": \"f\", \"arguments\": {}}?");
    collected_release(&c);
}

/* An index is never used again, also where the call before it is none. */
static void test_withdrawn(void **state)
{
    collected c = {0};
    reply_parser *p = parser_of(REPLY_MISTRAL, &c);
    push(p, "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": {");
    check_state(p, false, 1, false);
    push(p, "x");
    check_state(p, false, 0, false);
    push(p, "[TOOL_CALLS]h[ARGS]{}");
    check_state(p, false, 1, true);
    finish(p, false);
    assert_int_equal(c.n, 3);
    assert_true(c.calls[0].withdrawn && c.calls[1].withdrawn && !c.calls[2].withdrawn);
    assert_string_equal(buf_str(&c.calls[2].name), "h");
    collected_release(&c);
}

/* The engine closes reasoning by the text that the format names: it goes through the parser as any other. */
static void test_forced_close(void **state)
{
    for (reply_style s = 0; s <= REPLY_FUNCTIONARY_V3_1; s++) {
        collected c = {0};
        reply_format f = reply_format_of(s);
        reply_options o = {.format = f, .reasoning_open = true};
        reply_parser *p = NULL;
        assert_int_equal(reply_parser_new(&o, collect, &c, &p), ST_OK);
        push(p, "thought </th");
        assert_true(reply_parser_in_reasoning(p));
        push(p, reply_format_reasoning_end(&f));
        assert_false(reply_parser_in_reasoning(p));
        push(p, "answer");
        finish(p, false);
        assert_string_equal(buf_str(&c.reasoning), "thought </th");
        assert_string_equal(buf_str(&c.content), "answer");
        collected_release(&c);
    }
}

static void test_name_limit(void **state)
{
    for (size_t n = REPLY_MAX_NAME; n <= REPLY_MAX_NAME + 1; n++) {
        char name[REPLY_MAX_NAME + 2] = {0}, text[REPLY_MAX_NAME + 100];
        memset(name, 'n', n);
        const reply_style styles[] = {REPLY_HERMES, REPLY_MISTRAL, REPLY_FUNCTIONARY_V3_1, REPLY_GEMMA};
        for (size_t i = 0; i < N_OF(styles); i++) {
            collected c = {0};
            reply_parser *p = parser_of(styles[i], &c);
            int len = i == 0   ? snprintf(text, sizeof text,
                                          "<tool_call>{\"name\": \"%s\", \"arguments\": {}}</tool_call>", name)
                      : i == 1 ? snprintf(text, sizeof text, "[TOOL_CALLS]%s[ARGS]{}", name)
                      : i == 2 ? snprintf(text, sizeof text, "<function=%s>{}</function>", name)
                               : snprintf(text, sizeof text, "```tool_code\n%s()\n```", name);
            push(p, text);
            finish(p, false);
            assert_int_equal(collected_n_calls(&c), n == REPLY_MAX_NAME);
            assert_int_equal(c.content.len, n == REPLY_MAX_NAME ? 0 : len);
            collected_release(&c);
        }
    }
}

static status fail_third(void *ctx, const reply_event *ev)
{
    int *n = ctx;
    return ++*n == 3 ? ST_FULL : ST_OK;
}

static void test_sink_fails(void **state)
{
    int n = 0;
    reply_parser *p = NULL;
    reply_options o = {.format = reply_format_of(REPLY_NONE)};
    assert_int_equal(reply_parser_new(&o, fail_third, &n, &p), ST_OK);
    push(p, "a");
    push(p, "b");
    assert_int_equal(reply_parser_push(p, "c", 1), ST_FULL);
    assert_int_equal(reply_parser_push(p, "d", 1), ST_FULL);
    assert_int_equal(n, 3);
    reply_parser_free(p);
    reply_parser_free(NULL);
}

/* A quarter of a megabyte of each, in each form: work that grows with the square would take hours. */
static void test_linear(void **state)
{
    static const char *const units[] = {
        "<",
        "{",
        "[",
        "`",
        ">",
        "(",
        "\"",
        "\\",
        "\n",
        " ",
        "a",
        "<tool_call>",
        "<tool_call>{",
        "{\"name\": \"f\", ",
        "<tool_call>\n<function=f>\n<parameter=a>\n",
        "[TOOL_CALLS]",
        "[TOOL_CALLS][",
        "[f(",
        "```tool_code\n",
        "```json\n",
        "<|python_tag|>",
        "<|python_tag|>f.call(a=(",
        ">>>",
        ">>>python\n",
        ">>>f\n{",
        "<|channel|>",
        "<|start|>",
        "<|message|>",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>",
        "<think>",
        "<think></think>",
        "{\"name\": \"f\", \"parameters\": {}}; ",
        "<function=f>\n</function>",
        "</parameter",
        "{\"a\":",
    };
    enum { N_BYTES = 1 << 18 };
    char *text = malloc(N_BYTES + 64);
    for (size_t i = 0; i < N_OF(units); i++) {
        size_t len = 0;
        for (; len < N_BYTES; len += strlen(units[i])) {
            memcpy(text + len, units[i], strlen(units[i]));
        }
        for (reply_style s = 0; s <= REPLY_FUNCTIONARY_V3_1; s++) {
            collected c = {0};
            reply_options o = {.format = reply_format_of(s)};
            assert_int_equal(collect_text(&c, &o, text, len, false, NULL, NULL), ST_OK);
            collected_release(&c);
        }
    }
    free(text);
}

/* Formats. */

static const struct template_row {
    const char *text;
    reply_style style;
    const char *think;
    bool newer;
} template_rows[] = {
    {"", REPLY_NONE, "<think>", false},
    {"{{ '<tool_call>' }} <think>", REPLY_HERMES, "<think>", false},
    {"<tool_call>\n<function=x>\n<parameter=y>", REPLY_QWEN3_CODER, "<think>", false},
    {"<tool_call>x<arg_key>", REPLY_NONE, "<think>", false},
    {"<function=x>{}</function> <|python_tag|>", REPLY_FUNCTIONARY_V3_1, "<think>", false},
    {"{{ '>>>all\\n' }}", REPLY_FUNCTIONARY_V3_2, "<think>", false},
    {"[TOOL_CALLS][ [THINK]", REPLY_MISTRAL, "[THINK]", false},
    {"[TOOL_CALLS]f[ARGS] <think>", REPLY_MISTRAL, "<think>", true},
    {"<｜tool▁calls▁begin｜>```json", REPLY_DEEPSEEK, "<think>", false},
    {"<｜tool▁calls▁begin｜></think>", REPLY_DEEPSEEK, "<think>", true},
    {"<seed:think>", REPLY_NONE, "<seed:think>", false},
    {"<|START_THINKING|>", REPLY_NONE, "<|START_THINKING|>", false},
    {"<thought>", REPLY_NONE, "<thought>", false},
};

static void test_detect(void **state)
{
    for (size_t i = 0; i < N_OF(template_rows); i++) {
        reply_format f = reply_format_detect(template_rows[i].text, strlen(template_rows[i].text));
        assert_string_equal(reply_style_name(f.style), reply_style_name(template_rows[i].style));
        assert_string_equal(f.think_open, template_rows[i].think);
        assert_int_equal(f.newer_form, template_rows[i].newer);
    }
}

/* The published templates. */
static void test_detect_published(void **state)
{
    static const struct {
        const char *name;
        reply_style style;
    } published[] = {
        {"chatml", REPLY_NONE},
        {"qwen2.5", REPLY_HERMES},
        {"qwen3", REPLY_HERMES},
        {"hermes-3", REPLY_HERMES},
        {"qwen3-coder", REPLY_QWEN3_CODER},
        {"llama2", REPLY_NONE},
        {"llama-3.1", REPLY_LLAMA3_PYTHON_TAG},
        {"llama-3.2", REPLY_LLAMA3_JSON},
        {"mistral-nemo", REPLY_MISTRAL},
        {"gemma-2", REPLY_GEMMA},
        {"gemma-3", REPLY_GEMMA},
        {"phi-3.5", REPLY_NONE},
        {"deepseek-v3", REPLY_DEEPSEEK},
        {"command-r-plus", REPLY_NONE},
        {"granite-3.3", REPLY_NONE},
        {"gpt-oss", REPLY_HARMONY},
        {"functionary-v3.1", REPLY_FUNCTIONARY_V3_1},
        {"glm-4.6", REPLY_NONE},
    };
    for (size_t i = 0; i < N_OF(published); i++) {
        char name[64], text[32768];
        snprintf(name, sizeof name, "templates/%s.jinja", published[i].name);
        const char *path = fixture_path(name);
        if (!path) {
            skip();
        }
        FILE *file = fopen(path, "rb");
        assert_non_null(file);
        size_t len = fread(text, 1, sizeof text, file);
        fclose(file);
        reply_format f = reply_format_detect(text, len);
        if (f.style != published[i].style) {
            fail_msg("%s: %s", name, reply_style_name(f.style));
        }
        if (f.style == REPLY_DEEPSEEK || f.style == REPLY_MISTRAL) {
            assert_false(f.newer_form);
        }
    }
}

static void test_names(void **state)
{
    static const char *const names[] = {
        "none",     "hermes",  "qwen3-coder", "llama3-json",      "llama3-python-tag", "mistral",
        "deepseek", "harmony", "gemma",       "functionary-v3.2", "functionary-v3.1"};
    for (size_t i = 0; i < N_OF(names); i++) {
        reply_style s = REPLY_NONE;
        assert_true(reply_style_by_name(names[i], &s));
        assert_string_equal(reply_style_name(s), names[i]);
    }
    reply_style s = REPLY_GEMMA;
    assert_false(reply_style_by_name("Hermes", &s));
    assert_int_equal(s, REPLY_GEMMA);
}

/* What a model goes on with behind the opener, so that the call f {"a": 1} comes out. */
static const struct opener_row {
    reply_style style;
    bool newer;
    const char *rest, *rest_any; /* NULL: no opener */
} opener_rows[] = {
    {REPLY_NONE, false, NULL, NULL},
    {REPLY_HERMES, false, "{\"a\": 1}}\n</tool_call>",
     "{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>"},
    {REPLY_QWEN3_CODER, false, "<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
     "f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>"},
    {REPLY_LLAMA3_JSON, false, "{\"a\": 1}}", "f\", \"parameters\": {\"a\": 1}}"},
    {REPLY_LLAMA3_PYTHON_TAG, false, "{\"a\": 1}}", "f\", \"parameters\": {\"a\": 1}}"},
    {REPLY_MISTRAL, false, "{\"a\": 1}}]", "f\", \"arguments\": {\"a\": 1}}]"},
    {REPLY_MISTRAL, true, "{\"a\": 1}", "f[ARGS]{\"a\": 1}"},
    {REPLY_DEEPSEEK, false, "{\"a\": 1}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "f\n```json\n{\"a\": 1}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
    {REPLY_DEEPSEEK, true, "{\"a\": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "f<｜tool▁sep｜>{\"a\": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
    {REPLY_HARMONY, false, "{\"a\": 1}<|call|>", "f <|constrain|>json<|message|>{\"a\": 1}<|call|>"},
    {REPLY_GEMMA, false, "a=1)\n```", "f(a=1)\n```"},
    {REPLY_FUNCTIONARY_V3_2, false, "{\"a\": 1}", NULL},
    {REPLY_FUNCTIONARY_V3_1, false, "{\"a\": 1}</function>", "f>{\"a\": 1}</function>"},
};

static void check_opener(const reply_format *f, const char *name, const char *rest)
{
    static const char tools[] =
        "[{\"name\":\"f\",\"parameters\":{\"properties\":{\"a\":{\"type\":\"integer\"}}}}]";
    json_doc *doc = NULL;
    buf text = {0};
    assert_int_equal(reply_format_opener(f, name, &text), ST_OK);
    assert_int_equal(text.len > 0, rest != NULL);
    if (rest) {
        assert_int_equal(json_parse(tools, sizeof tools - 1, JSON_MAX_DEPTH, &doc, NULL), ST_OK);
        collected c = {0};
        reply_options o = {.format = *f, .tools = json_root(doc)};
        assert_int_equal(buf_append_str(&text, rest), ST_OK);
        assert_int_equal(collect_text(&c, &o, text.data, text.len, false, collect_bytes, NULL), ST_OK);
        assert_int_equal(collected_n_calls(&c), 1);
        assert_string_equal(buf_str(&c.calls[0].name), "f");
        assert_string_equal(buf_str(&c.calls[0].args), "{\"a\": 1}");
        assert_string_equal(buf_str(&c.content), "");
        assert_true(c.end.complete);
        collected_release(&c);
        json_doc_free(doc);
    }
    buf_release(&text);
}

static void test_openers(void **state)
{
    for (size_t i = 0; i < N_OF(opener_rows); i++) {
        reply_format f = reply_format_of(opener_rows[i].style);
        f.newer_form = opener_rows[i].newer;
        check_opener(&f, "f", opener_rows[i].rest);
        check_opener(&f, NULL, opener_rows[i].rest_any);
    }
}

static void test_prompt_reasons(void **state)
{
    static const struct {
        reply_style style;
        const char *prompt;
        bool reasons;
    } prompts[] = {
        {REPLY_HERMES, "<|im_start|>assistant\n<think>\n", true},
        {REPLY_HERMES, "<think>", true},
        {REPLY_HERMES, "<|im_start|>assistant\n<think>\n\n</think>\n\n", false},
        {REPLY_HERMES, "think>", false},
        {REPLY_HERMES, "", false},
        {REPLY_MISTRAL, "[/INST][THINK]", true},
        {REPLY_HARMONY, "<|start|>assistant", false},
        {REPLY_HARMONY, "<|start|>assistant<|channel|>analysis<|message|>", true},
    };
    for (size_t i = 0; i < N_OF(prompts); i++) {
        reply_format f = reply_format_of(prompts[i].style);
        assert_int_equal(reply_format_prompt_reasons(&f, prompts[i].prompt, strlen(prompts[i].prompt)),
                         prompts[i].reasons);
    }
}

/* A reply that ended by itself inside a call: its text after all, but for what stands beside calls that count. */
static void test_give_up(void **state)
{
    static const struct {
        reply_style style;
        const char *text, *content;
        size_t n_calls, n_withdrawn; /* that count, that do not */
    } rows[] = {
        {REPLY_HERMES, "a <tool_call>{\"name\": \"f\", \"arguments\": {\"x",
         "a <tool_call>{\"name\": \"f\", \"arguments\": {\"x", 0, 1},
        {REPLY_HERMES, "<tool_call>{\"na", "<tool_call>{\"na", 0, 0},
        {REPLY_MISTRAL, "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {",
         "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {", 0, 1},
        {REPLY_MISTRAL,
         "a[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": {", "a", 1, 1},
        {REPLY_MISTRAL, "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}},", "", 1, 0},
        {REPLY_QWEN3_CODER, "<tool_call>\n<function=f>\n<parameter=a>\nx",
         "<tool_call>\n<function=f>\n<parameter=a>\nx", 0, 1},
    };
    for (size_t i = 0; i < N_OF(rows); i++) {
        collected c = {0};
        reply_end end;
        size_t withdrawn = 0;
        reply_parser *p = parser_of(rows[i].style, &c);
        push(p, rows[i].text);
        assert_int_equal(reply_parser_finish(p, false, &end), ST_OK);
        assert_true(end.in_call);
        assert_int_equal(reply_parser_give_up(p), ST_OK);
        for (size_t k = 0; k < c.n; k++) {
            withdrawn += c.calls[k].withdrawn;
        }
        if (strcmp(buf_str(&c.content), rows[i].content) != 0 || withdrawn != rows[i].n_withdrawn) {
            fail_msg("%s: %zu withdrawn, content %s", rows[i].text, withdrawn, buf_str(&c.content));
        }
        assert_int_equal(collected_n_calls(&c), rows[i].n_calls);
        assert_int_equal(reply_parser_calls(p), rows[i].n_calls);
        reply_parser_free(p);
        collected_release(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps),          cmocka_unit_test(test_state),
        cmocka_unit_test(test_withdrawn),      cmocka_unit_test(test_give_up),
        cmocka_unit_test(test_forced_close),   cmocka_unit_test(test_name_limit),
        cmocka_unit_test(test_sink_fails),     cmocka_unit_test(test_linear),
        cmocka_unit_test(test_detect),         cmocka_unit_test(test_detect_published),
        cmocka_unit_test(test_names),          cmocka_unit_test(test_openers),
        cmocka_unit_test(test_prompt_reasons),
    };
    return cmocka_run_group_tests_name("text-reply-parser", tests, NULL, NULL);
}
