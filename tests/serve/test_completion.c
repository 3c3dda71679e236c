/*
 * The body of /v1/completions. What the lines must say is written by hand from PROTOCOL 4 and OpenAI's
 * reference; where a line is made it is read again by the decoder that the worker uses.
 */
#include <math.h>

#include "base/mem.h"
#include "serve/completion.h"
#include "serve/generation_rig.h"

#define BASE "\"prompt\":\"a\""

static void test_defaults(void **state)
{
    generation g = rig_good(completion_read, "{\"prompt\":\"a\\u0000b\"}");
    assert_int_equal(generation_n_choices(&g), 1);
    assert_false(g.stream || g.include_usage || g.echo || g.progress);
    assert_int_equal(g.deadline_ms, 0);
    assert_null(g.model);
    wire_request *r = rig_wire(&g, 0);
    assert_int_equal(r->op, WIRE_GENERATE);
    assert_string_equal(r->prompt_field, "prompt");
    assert_int_equal(r->segments[0].text.len, 3);
    assert_memory_equal(r->segments[0].text.data, "a\0b", 3);
    assert_true(r->add_special);
    assert_int_equal(r->max_new_tokens, 16);
    assert_true(fabs(r->temperature - 1) < 1e-12 && fabs(r->top_p - 1) < 1e-12 && fabs(r->min_p) < 1e-12);
    assert_int_equal(r->top_k, 0);
    assert_int_equal(r->seed, RIG_SEED);
    assert_int_equal(r->n_stops, 0);
    assert_int_equal(r->session_id.len, 0);
    assert_int_equal(r->top_logprobs, -1);
    assert_int_equal(r->prompt_logprobs, -1);
    assert_int_equal(r->min_tokens, 0);
    assert_int_equal(r->priority, 0);
    assert_int_equal(r->repetition_guard, -1); /* unsaid */
    assert_false(r->ignore_eos || r->progress || r->has_now);
    wire_request_free(r);
    generation_release(&g);
}

static void test_all_fields(void **state)
{
    generation g = rig_good(
        completion_read,
        "{\"model\":\"ember\",\"prompt\":[\"hi\"],\"max_tokens\":5000000000,\"temperature\":0,\"top_p\":0.25,"
        "\"top_k\":40,\"min_p\":0.05,\"seed\":9223372036854775806,\"stop\":[\"x\",\"yz\"],\"stream\":true,"
        "\"stream_options\":{\"include_usage\":true},\"user\":\"u\",\"n\":1,\"best_of\":1,\"echo\":true,"
        "\"logprobs\":3,\"presence_penalty\":-1.5,\"frequency_penalty\":2,\"repetition_penalty\":1.25,"
        "\"logit_bias\":{\"999\":-100,\"5\":2.5,\"0\":100},\"min_tokens\":2,\"ignore_eos\":true,"
        "\"priority\":-3,\"repetition_guard\":512,"
        "\"stop_token_ids\":[7,8],\"hearth\":{\"progress\":true,\"deadline_ms\":2500}}");
    assert_string_equal(g.model, "ember");
    assert_true(g.stream && g.include_usage && g.echo && g.progress);
    assert_int_equal(g.deadline_ms, 2500);
    wire_request *r = rig_wire(&g, 0);
    assert_memory_equal(r->segments[0].text.data, "hi", 3);
    assert_int_equal(r->max_new_tokens, INT32_MAX);
    assert_true(fabs(r->temperature) < 1e-12 && fabs(r->top_p - 0.25) < 1e-12 &&
                fabs(r->min_p - 0.05) < 1e-12);
    assert_int_equal(r->top_k, 40);
    assert_true(r->seed == (uint64_t)INT64_MAX);
    assert_int_equal(r->n_stops, 2);
    assert_string_equal(r->stops[1].data, "yz");
    assert_true(fabs(r->presence_penalty + 1.5) < 1e-12 && fabs(r->frequency_penalty - 2) < 1e-12);
    assert_true(fabs(r->repetition_penalty - 1.25) < 1e-12);
    assert_int_equal(r->n_bias, 3);
    const int32_t tokens[] = {0, 5, 999};
    const double bias[] = {100, 2.5, -100};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(r->bias[i].token, tokens[i]);
        assert_true(fabs(r->bias[i].bias - bias[i]) < 1e-12);
    }
    assert_int_equal(r->min_tokens, 2);
    assert_int_equal(r->priority, -3);
    assert_int_equal(r->repetition_guard, 512);
    assert_true(r->ignore_eos && r->progress);
    assert_int_equal(r->n_stop_token_ids, 2);
    assert_int_equal(r->stop_token_ids[1], 8);
    assert_int_equal(r->top_logprobs, 3);
    assert_int_equal(r->prompt_logprobs, 3);
    assert_int_equal(r->deadline_ms, 0); /* what remains of it is put when the line is sent */
    wire_request_free(r);
    generation_release(&g);
}

static void test_null_is_absent(void **state)
{
    generation g = rig_good(completion_read,
                            "{\"model\":null,\"prompt\":\"\",\"max_tokens\":null,\"temperature\":null,\"top_"
                            "p\":null,\"seed\":null,"
                            "\"stop\":null,\"stream\":null,\"stream_options\":null,\"n\":null,\"logit_bias\":"
                            "null,\"suffix\":null,"
                            "\"logprobs\":null,\"hearth\":null,\"stop_token_ids\":null,\"whatever\":null}");
    wire_request *r = rig_wire(&g, 0);
    assert_int_equal(r->max_new_tokens, 16);
    assert_int_equal(r->seed, RIG_SEED);
    assert_false(g.stream);
    wire_request_free(r);
    generation_release(&g);
}

static void test_ids(void **state)
{
    static const char *const bodies[] = {"{\"prompt\":[5,0,999]}", "{\"prompt\":[[5,0,999]]}"};
    for (size_t i = 0; i < N_OF(bodies); i++) {
        generation g = rig_good(completion_read, bodies[i]);
        wire_request *r = rig_wire(&g, 0);
        const int32_t want[] = {5, 0, 999};
        assert_string_equal(r->prompt_field, "prompt_segments");
        assert_int_equal(r->n_segments, 1);
        assert_int_equal(r->segments[0].n_ids, 3);
        assert_memory_equal(r->segments[0].ids, want, sizeof want);
        assert_false(r->add_special);
        wire_request_free(r);
        generation_release(&g);
    }
}

/* n for each prompt, and each prompt's choices as if it had come alone. */
static void test_several(void **state)
{
    generation g = rig_good(completion_read, "{\"prompt\":[\"one\",[4,5],\"three\"],\"n\":2,\"seed\":10}");
    assert_int_equal(generation_n_choices(&g), 6);
    static const struct {
        const char *text;
        uint64_t seed;
    } want[] = {{"one", 11}, {"one", 12}, {NULL, 11}, {NULL, 12}, {"three", 11}, {"three", 12}};
    for (size_t i = 0; i < N_OF(want); i++) {
        wire_request *r = rig_wire(&g, i);
        assert_int_equal(r->seed, want[i].seed);
        if (want[i].text) {
            assert_string_equal(r->segments[0].text.data, want[i].text);
        } else {
            assert_int_equal(r->segments[0].ids[1], 5);
        }
        wire_request_free(r);
    }
    generation_release(&g);
    /* the last of n seeds is the last there is */
    g = rig_good(completion_read, "{" BASE ",\"n\":3,\"seed\":9223372036854775804}");
    wire_request *r = rig_wire(&g, 2);
    assert_true(r->seed == (uint64_t)INT64_MAX);
    wire_request_free(r);
    generation_release(&g);
    assert_int_equal(
        completion_read("{" BASE ",\"n\":16}", strlen("{" BASE ",\"n\":16}"), WIRE_MAX_SEED, &g, NULL),
        ST_OK);
    assert_true(g.seed + 15 == WIRE_MAX_SEED);
    generation_release(&g);
}

static void test_small_values(void **state)
{
    generation g =
        rig_good(completion_read, "{" BASE ",\"seed\":0,\"stop\":\"\\n\",\"max_tokens\":0,\"logprobs\":0}");
    wire_request *r = rig_wire(&g, 0);
    assert_int_equal(r->seed, 1); /* 0 is a seed in the API, "draw one" on the wire */
    assert_int_equal(r->n_stops, 1);
    assert_string_equal(r->stops[0].data, "\n");
    assert_int_equal(r->max_new_tokens, 0);
    assert_int_equal(r->top_logprobs, 0);
    assert_int_equal(r->prompt_logprobs, -1); /* no echo */
    wire_request_free(r);
    generation_release(&g);
}

static const rig_bad bad[] = {
    {"", 400, "", "bad_request"},
    {"[]", 400, "", "bad_request"},
    {"{\"prompt\":\"a\"} x", 400, "", "bad_request"},
    {"{\"prompt\":\"\xff\"}", 400, "", "bad_request"},
    {"{\"prompt\":\"a\",\"prompt\":\"b\"}", 400, "prompt", "bad_request"},
    {"{}", 400, "prompt", "invalid_field"},
    {"{\"prompt\":null}", 400, "prompt", "invalid_field"},
    {"{\"prompt\":1}", 400, "prompt", "invalid_field"},
    {"{\"prompt\":[]}", 400, "prompt", "invalid_field"},
    {"{\"prompt\":[[]]}", 400, "prompt", "invalid_field"},
    {"{\"prompt\":[null]}", 400, "prompt", "invalid_field"},
    {"{\"prompt\":[1,\"a\"]}", 400, "prompt", "invalid_field"},
    {"{\"prompt\":[\"a\",1]}", 400, "prompt", "invalid_field"},
    {"{\"prompt\":[1.0]}", 400, "prompt", "invalid_field"},
    {"{\"prompt\":[-1]}", 400, "prompt", "invalid_field"},
    {"{\"prompt\":[2147483648]}", 400, "prompt", "invalid_field"},
    {"{\"prompt\":[[[1]]]}", 400, "prompt", "invalid_field"},
    {"\"model\":7", 400, "model", "invalid_field"},
    {"\"user\":7", 400, "user", "invalid_field"},
    {"\"stop\":\"\"", 400, "stop", "invalid_field"},
    {"\"stop\":[\"a\",\"\"]", 400, "stop", "invalid_field"},
    {"\"stop\":[1]", 400, "stop", "invalid_field"},
    {"\"stop\":[null]", 400, "stop", "invalid_field"},
    {"\"stop\":{}", 400, "stop", "invalid_field"},
    {"\"stop\":5", 400, "stop", "invalid_field"},
    {"\"stream\":1", 400, "stream", "invalid_field"},
    {"\"stream_options\":{\"include_usage\":true}", 400, "stream_options", "invalid_field"},
    {"\"stream\":true,\"stream_options\":[]", 400, "stream_options", "invalid_field"},
    {"\"stream\":true,\"stream_options\":{\"include_usage\":1}", 400, "stream_options.include_usage",
     "invalid_field"},
    {"\"stream\":true,\"stream_options\":{\"x\":1}", 400, "stream_options.x", "unsupported"},
    {"\"n\":17", 400, "n", "invalid_field"},
    {"\"best_of\":2", 400, "best_of", "unsupported"},
    {"\"n\":3,\"best_of\":2", 400, "best_of", "unsupported"},
    {"\"n\":2,\"seed\":9223372036854775806", 400, "seed", "invalid_field"},
    {"\"echo\":1", 400, "echo", "invalid_field"},
    {"\"logprobs\":21", 400, "logprobs", "invalid_field"},
    {"\"logprobs\":true", 400, "logprobs", "invalid_field"},
    {"\"suffix\":\"\"", 400, "suffix", "unsupported"},
    {"\"top_p\":1.01", 400, "top_p", "invalid_field"},
    {"\"min_p\":1.01", 400, "min_p", "invalid_field"},
    {"\"presence_penalty\":2.1", 400, "presence_penalty", "invalid_field"},
    {"\"repetition_penalty\":0", 400, "repetition_penalty", "invalid_field"},
    {"\"priority\":11", 400, "priority", "invalid_field"},
    {"\"priority\":-11", 400, "priority", "invalid_field"},
    {"\"priority\":0.5", 400, "priority", "invalid_field"},
    {"\"repetition_guard\":-1", 400, "repetition_guard", "invalid_field"},
    {"\"repetition_guard\":15", 400, "repetition_guard", "invalid_field"},
    {"\"repetition_guard\":4097", 400, "repetition_guard", "invalid_field"},
    {"\"ignore_eos\":\"no\"", 400, "ignore_eos", "invalid_field"},
    {"\"logit_bias\":{\"5\":101}", 400, "logit_bias", "invalid_field"},
    {"\"logit_bias\":{\"5\":null}", 400, "logit_bias", "invalid_field"},
    {"\"logit_bias\":{\"5\":\"1\"}", 400, "logit_bias", "invalid_field"},
    {"\"logit_bias\":{\"-1\":1}", 400, "logit_bias", "invalid_field"},
    {"\"logit_bias\":{\"05\":1}", 400, "logit_bias", "invalid_field"},
    {"\"logit_bias\":{\"2147483648\":1}", 400, "logit_bias", "invalid_field"},
    {"\"logit_bias\":{\"\":1}", 400, "logit_bias", "invalid_field"},
    {"\"logit_bias\":[1]", 400, "logit_bias", "invalid_field"},
    {"\"stop_token_ids\":[-1]", 400, "stop_token_ids", "invalid_field"},
    {"\"stop_token_ids\":[1.5]", 400, "stop_token_ids", "invalid_field"},
    {"\"stop_token_ids\":5", 400, "stop_token_ids", "invalid_field"},
    {"\"temprature\":1", 400, "temprature", "unsupported"},
    {"\"session_id\":\"\"", 400, "session_id", "invalid_field"},
    {"\"session_id\":\"a/b\"", 400, "session_id", "invalid_field"},
    {"\"session_id\":\"a\\u0000b\"", 400, "session_id", "invalid_field"},
    {"\"session_id\":7", 400, "session_id", "invalid_field"},
    {"\"messages\":[]", 400, "messages", "unsupported"},
    {"\"hearth\":1", 400, "hearth", "invalid_field"},
    {"\"hearth\":{\"x\":1}", 400, "hearth.x", "unsupported"},
    {"\"hearth\":{\"progress\":true}", 400, "hearth.progress", "invalid_field"},
    {"\"hearth\":{\"deadline_ms\":0}", 400, "hearth.deadline_ms", "invalid_field"},
};

static void test_refused(void **state)
{
    rig_refused(completion_read, BASE, bad, N_OF(bad));
}

/* Clamps that docs/http.md speaks of: max_tokens beyond int32 is the rest of the context. */
static void test_numbers(void **state)
{
    static const rig_number fields[] = {
        {"max_tokens", " 2147483648 "},
        {"temperature", " 2147483648 9223372036854775808 1e308 "},
        {"top_p", " "},
        {"top_k", " "},
        {"min_p", " "},
        {"n", " "},
        {"best_of", " "},
        {"logprobs", " "},
        {"seed", " 2147483648 "},
        {"presence_penalty", " -1 -0.5 "},
        {"frequency_penalty", " -1 -0.5 "},
        {"repetition_penalty", " "},
        {"min_tokens", " "},
        {"hearth.deadline_ms", " "},
        {"logit_bias.5", " -1 -0.5 "},
        {"logit_bias", " {} "},
        {"stop_token_ids", " [] "},
    };
    rig_sweep(completion_read, BASE, fields, N_OF(fields));
}

/* 1,000 stop strings are fine, one more is not; so with prompts. */
static void test_counts(void **state)
{
    for (size_t n = 1000; n <= 1001; n++) {
        buf body = {0};
        generation g;
        err e;
        assert_int_equal(buf_append_str(&body, "{" BASE ",\"stop\":["), ST_OK);
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(buf_printf(&body, "%s\"s%zu\"", i ? "," : "", i), ST_OK);
        }
        assert_int_equal(buf_append_str(&body, "]}"), ST_OK);
        status st = completion_read(body.data, body.len, RIG_SEED, &g, &e);
        assert_int_equal(st, n == 1000 ? ST_OK : ST_INVALID_FIELD);
        if (st == ST_OK) {
            wire_request *r = rig_wire(&g, 0);
            assert_int_equal(r->n_stops, 1000);
            assert_string_equal(r->stops[999].data, "s999");
            wire_request_free(r);
            generation_release(&g);
        }
        buf_release(&body);
    }
    for (size_t n = 8; n <= 9; n++) {
        buf body = {0};
        generation g;
        err e;
        assert_int_equal(buf_append_str(&body, "{\"n\":16,\"prompt\":["), ST_OK);
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(buf_printf(&body, "%s[%zu]", i ? "," : "", i), ST_OK);
        }
        assert_int_equal(buf_append_str(&body, "]}"), ST_OK);
        status st = completion_read(body.data, body.len, RIG_SEED, &g, &e);
        assert_int_equal(st, n == 8 ? ST_OK : ST_INVALID_FIELD);
        if (st == ST_OK) {
            generation_release(&g);
        } else {
            assert_string_equal(e.field, "n");
        }
        buf_release(&body);
    }
}

/* A body of control characters grows sixfold on the wire. */
static void test_line_limit(void **state)
{
    size_t n = (size_t)2 << 20;
    buf body = {0}, line = {0};
    generation g;
    err e;
    assert_int_equal(buf_append_str(&body, "{\"prompt\":\""), ST_OK);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(buf_append(&body, "\x7f", 1), ST_OK);
    }
    assert_int_equal(buf_append_str(&body, "\"}"), ST_OK);
    assert_int_equal(completion_read(body.data, body.len, RIG_SEED, &g, &e), ST_OK);
    assert_int_equal(buf_append_str(&line, "before"), ST_OK);
    assert_int_equal(generation_put_line(&g, 0, "x", &line, &e), ST_BAD_REQUEST);
    assert_string_equal(buf_str(&line), "before");
    generation_release(&g);
    buf_release(&body);
    buf_release(&line);
}

static void test_error_object(void **state)
{
    static const struct {
        const char *frame, *json;
        int http_status, retry_after_s;
    } rows[] = {
        {"{\"id\":\"a\",\"error\":\"prompt_segments has 9 tokens\",\"code\":\"context_length_exceeded\","
         "\"field\":\"prompt_segments\",\"prompt_tokens\":9,\"limit\":8}",
         "{\"error\":{\"message\":\"prompt has 9 "
         "tokens\",\"type\":\"invalid_request_error\",\"param\":\"prompt\","
         "\"code\":\"context_length_exceeded\",\"prompt_tokens\":9,\"limit\":8}}",
         400, 0},
        {"{\"id\":\"a\",\"error\":\"too much\",\"code\":\"never_fits\",\"need\":17,\"have\":16}",
         "{\"error\":{\"message\":\"too much\",\"type\":\"invalid_request_error\",\"param\":null,"
         "\"code\":\"never_fits\",\"need\":17,\"have\":16}}",
         400, 0},
        {"{\"error\":\"no lane\",\"code\":\"capacity_exhausted\"}",
         "{\"error\":{\"message\":\"no lane\",\"type\":\"rate_limit_error\",\"param\":null,\"code\":"
         "\"capacity_exhausted\"}}",
         429, API_RETRY_AFTER_S},
        {"{\"error\":\"full\",\"code\":\"queue_full\",\"retry_after\":7}",
         "{\"error\":{\"message\":\"full\",\"type\":\"rate_limit_error\",\"param\":null,\"code\":\"queue_"
         "full\"}}",
         429, 7},
        {"{\"error\":\"max_new_tokens is odd\",\"code\":\"invalid_field\",\"field\":\"max_new_tokens\"}",
         "{\"error\":{\"message\":\"max_tokens is odd\",\"type\":\"invalid_request_error\",\"param\":"
         "\"max_tokens\",\"code\":\"invalid_field\"}}",
         400, 0},
        {"{\"error\":\"ids[3] is 99\",\"code\":\"invalid_field\",\"field\":\"ids\"}",
         "{\"error\":{\"message\":\"tokens[3] is "
         "99\",\"type\":\"invalid_request_error\",\"param\":\"tokens\","
         "\"code\":\"invalid_field\"}}",
         400, 0},
        {"{\"error\":\"what\"}",
         "{\"error\":{\"message\":\"what\",\"type\":\"server_error\",\"param\":null,\"code\":\"internal\"}}",
         500, 0},
    };
    for (size_t i = 0; i < N_OF(rows); i++) {
        frame fr;
        api_fault f;
        buf out = {0};
        assert_int_equal(frame_decode(rows[i].frame, strlen(rows[i].frame), &fr, NULL), ST_OK);
        api_fault_frame(&f, &fr);
        assert_int_equal(f.http_status, rows[i].http_status);
        assert_int_equal(f.retry_after_s, rows[i].retry_after_s);
        assert_int_equal(api_fault_put(&f, &out), ST_OK);
        assert_string_equal(buf_str(&out), rows[i].json);
        frame_release(&fr);
        buf_release(&out);
    }
}

/* Each allocation fails once: out of memory is said, nothing leaks. */
static void test_no_memory(void **state)
{
    static const char body[] = "{\"prompt\":[[1,2,3],\"b\"],\"stop\":[\"a\",\"b\"],\"max_tokens\":3,"
                               "\"logit_bias\":{\"1\":1},\"stop_token_ids\":[1]}";
    status st = ST_NOMEM;
    for (uint64_t n = 1; st != ST_OK; n++) {
        generation g;
        buf line = {0};
        err e;
        mem_fail_at(n, false);
        st = completion_read(body, sizeof body - 1, RIG_SEED, &g, &e);
        if (st == ST_OK) {
            st = generation_put_line(&g, 1, "x", &line, &e);
            generation_release(&g);
        }
        mem_fail_at(0, false);
        if (st != ST_OK) {
            assert_int_equal(st, ST_NOMEM);
            assert_int_equal(e.code, ST_NOMEM);
            assert_int_equal(line.len, 0);
        }
        assert_true(n < 1000);
        buf_release(&line);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),       cmocka_unit_test(test_all_fields),
        cmocka_unit_test(test_null_is_absent), cmocka_unit_test(test_ids),
        cmocka_unit_test(test_several),        cmocka_unit_test(test_small_values),
        cmocka_unit_test(test_refused),        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_counts),         cmocka_unit_test(test_line_limit),
        cmocka_unit_test(test_error_object),   cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
