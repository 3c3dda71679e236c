/*
 * The body of /v1/completions. What the line must say is written by hand from PROTOCOL 2 and OpenAI's
 * reference; where a line is made it is read again by the decoder that the worker uses.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/test_main.h"
#include "serve/api_error.h"
#include "serve/completions.h"
#include "wire/request.h"

#define DRAWN   77
#define N_VOCAB 1000

static status read_body(const char *body, completion_options *o, buf *line, err *e)
{
    return completion_read(body, strlen(body), "ember", DRAWN, o, line, e);
}

/* Reads body, which must be good, as the worker will see it. */
static wire_request *wire(const char *body, completion_options *o)
{
    buf line = {0}, answer = {0};
    err e;
    wire_request *r = NULL;
    status st = read_body(body, o, &line, &e);
    if (st != ST_OK) {
        fail_msg("%s: %s", body, e.msg);
    }
    assert_true(line.len > 1 && line.data[line.len - 1] == '\n');
    assert_null(memchr(line.data, '\n', line.len - 1));
    st = wire_request_decode(line.data, line.len - 1, N_VOCAB, &r, &answer, &e);
    if (st != ST_OK) {
        fail_msg("%s: the worker refuses %s", body, buf_str(&answer));
    }
    buf_release(&line);
    buf_release(&answer);
    return r;
}

static void test_defaults(void **state)
{
    completion_options o;
    wire_request *r = wire("{\"prompt\":\"a\\u0000b\"}", &o);
    assert_int_equal(r->op, WIRE_GENERATE);
    assert_string_equal(r->prompt_field, "prompt");
    assert_int_equal(r->segments[0].text.len, 3);
    assert_memory_equal(r->segments[0].text.data, "a\0b", 3);
    assert_true(r->add_special);
    assert_int_equal(r->max_new_tokens, 16);
    assert_true(fabs(r->temperature - 1) < 1e-12 && fabs(r->top_p - 1) < 1e-12);
    assert_int_equal(r->top_k, 0);
    assert_int_equal(r->seed, DRAWN);
    assert_int_equal(r->n_stops, 0);
    assert_int_equal(r->session_id.len, 0);
    assert_false(o.stream || o.include_usage);
    wire_request_free(r);
}

static void test_all_fields(void **state)
{
    completion_options o;
    wire_request *r =
        wire("{\"model\":\"ember\",\"prompt\":[\"hi\"],\"max_tokens\":5000000000,\"temperature\":0,"
             "\"top_p\":0.25,\"top_k\":40,\"seed\":9223372036854775806,\"stop\":[\"x\",\"yz\"],"
             "\"stream\":true,\"stream_options\":{\"include_usage\":true},\"user\":\"u\",\"n\":1,"
             "\"best_of\":1,\"echo\":false,\"logprobs\":null,\"suffix\":\"\",\"presence_penalty\":0,"
             "\"frequency_penalty\":0.0,\"logit_bias\":{},\"min_p\":0}",
             &o);
    assert_memory_equal(r->segments[0].text.data, "hi", 3);
    assert_int_equal(r->max_new_tokens, INT32_MAX);
    assert_true(fabs(r->temperature) < 1e-12 && fabs(r->top_p - 0.25) < 1e-12);
    assert_int_equal(r->top_k, 40);
    assert_true(r->seed == (uint64_t)INT64_MAX);
    assert_int_equal(r->n_stops, 2);
    assert_string_equal(r->stops[1].data, "yz");
    assert_true(o.stream && o.include_usage);
    wire_request_free(r);
}

static void test_null_is_absent(void **state)
{
    completion_options o;
    wire_request *r =
        wire("{\"model\":null,\"prompt\":\"\",\"max_tokens\":null,\"temperature\":null,\"top_p\":null,"
             "\"seed\":null,\"stop\":null,\"stream\":null,\"stream_options\":null,\"n\":null,"
             "\"logit_bias\":null,\"suffix\":null}",
             &o);
    assert_int_equal(r->max_new_tokens, 16);
    assert_int_equal(r->seed, DRAWN);
    assert_false(o.stream);
    wire_request_free(r);
}

static void test_ids(void **state)
{
    static const char *const bodies[] = {"{\"prompt\":[5,0,999]}", "{\"prompt\":[[5,0,999]]}"};
    for (size_t i = 0; i < N_OF(bodies); i++) {
        completion_options o;
        wire_request *r = wire(bodies[i], &o);
        const int32_t want[] = {5, 0, 999};
        assert_string_equal(r->prompt_field, "prompt_segments");
        assert_int_equal(r->n_segments, 1);
        assert_int_equal(r->segments[0].n_ids, 3);
        assert_memory_equal(r->segments[0].ids, want, sizeof want);
        assert_false(r->add_special);
        wire_request_free(r);
    }
}

static void test_small_values(void **state)
{
    completion_options o;
    wire_request *r = wire("{\"prompt\":\"a\",\"seed\":0,\"stop\":\"\\n\",\"max_tokens\":1}", &o);
    assert_int_equal(r->seed, 1); /* 0 is a seed in the API, "draw one" on the wire */
    assert_int_equal(r->n_stops, 1);
    assert_string_equal(r->stops[0].data, "\n");
    assert_int_equal(r->max_new_tokens, 1);
    wire_request_free(r);
}

static const struct {
    const char *members; /* after a good prompt, or the whole body if it does not begin with a quote */
    int http_status;
    const char *param, *code;
} bad[] = {
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
    {"{\"prompt\":[1.0]}", 400, "prompt", "invalid_field"},
    {"{\"prompt\":[-1]}", 400, "prompt", "invalid_field"},
    {"{\"prompt\":[2147483648]}", 400, "prompt", "invalid_field"},
    {"{\"prompt\":[[[1]]]}", 400, "prompt", "invalid_field"},
    {"{\"prompt\":[\"a\",\"b\"]}", 400, "prompt", "unsupported"},
    {"{\"prompt\":[[1],[2]]}", 400, "prompt", "unsupported"},
    {"\"model\":\"other\"", 404, "model", "model_not_found"},
    {"\"model\":\"embe\"", 404, "model", "model_not_found"},
    {"\"model\":7", 400, "model", "invalid_field"},
    {"\"max_tokens\":0", 400, "max_tokens", "invalid_field"},
    {"\"max_tokens\":-1", 400, "max_tokens", "invalid_field"},
    {"\"max_tokens\":1.5", 400, "max_tokens", "invalid_field"},
    {"\"max_tokens\":\"5\"", 400, "max_tokens", "invalid_field"},
    {"\"max_tokens\":9223372036854775808", 400, "max_tokens", "invalid_field"},
    {"\"temperature\":-0.1", 400, "temperature", "invalid_field"},
    {"\"temperature\":\"1\"", 400, "temperature", "invalid_field"},
    {"\"temperature\":NaN", 400, "", "bad_request"},
    {"\"temperature\":1e999", 400, "", "bad_request"},
    {"\"top_p\":0", 400, "top_p", "invalid_field"},
    {"\"top_p\":1.01", 400, "top_p", "invalid_field"},
    {"\"top_k\":-1", 400, "top_k", "invalid_field"},
    {"\"top_k\":2147483648", 400, "top_k", "invalid_field"},
    {"\"seed\":-1", 400, "seed", "invalid_field"},
    {"\"seed\":9223372036854775807", 400, "seed", "invalid_field"},
    {"\"seed\":1.0", 400, "seed", "invalid_field"},
    {"\"stop\":\"\"", 400, "stop", "invalid_field"},
    {"\"stop\":[\"a\",\"\"]", 400, "stop", "invalid_field"},
    {"\"stop\":[1]", 400, "stop", "invalid_field"},
    {"\"stop\":{}", 400, "stop", "invalid_field"},
    {"\"stream\":1", 400, "stream", "invalid_field"},
    {"\"stream_options\":{\"include_usage\":true}", 400, "stream_options", "invalid_field"},
    {"\"stream\":true,\"stream_options\":[]", 400, "stream_options", "invalid_field"},
    {"\"stream\":true,\"stream_options\":{\"include_usage\":1}", 400, "stream_options.include_usage",
     "invalid_field"},
    {"\"stream\":true,\"stream_options\":{\"x\":1}", 400, "stream_options.x", "unsupported"},
    {"\"n\":2", 400, "n", "unsupported"},
    {"\"n\":0", 400, "n", "unsupported"},
    {"\"n\":\"1\"", 400, "n", "unsupported"},
    {"\"best_of\":2", 400, "best_of", "unsupported"},
    {"\"echo\":true", 400, "echo", "unsupported"},
    {"\"logprobs\":0", 400, "logprobs", "unsupported"},
    {"\"suffix\":\"s\"", 400, "suffix", "unsupported"},
    {"\"presence_penalty\":0.1", 400, "presence_penalty", "unsupported"},
    {"\"frequency_penalty\":-2", 400, "frequency_penalty", "unsupported"},
    {"\"repetition_penalty\":1.1", 400, "repetition_penalty", "unsupported"},
    {"\"min_p\":0.05", 400, "min_p", "unsupported"},
    {"\"min_tokens\":1", 400, "min_tokens", "unsupported"},
    {"\"ignore_eos\":true", 400, "ignore_eos", "unsupported"},
    {"\"logit_bias\":{\"5\":1}", 400, "logit_bias", "unsupported"},
    {"\"temprature\":1", 400, "temprature", "unsupported"},
    {"\"session_id\":\"s\"", 400, "session_id", "unsupported"},
};

static void test_refused(void **state)
{
    for (size_t i = 0; i < N_OF(bad); i++) {
        char body[256];
        completion_options o;
        buf line = {0};
        err e;
        api_fault f;
        bool member = bad[i].members[0] == '"';
        snprintf(body, sizeof body, member ? "{\"prompt\":\"a\",%s}" : "%s", bad[i].members);
        assert_int_equal(buf_append_str(&line, "before"), ST_OK);
        if (read_body(body, &o, &line, &e) == ST_OK) {
            fail_msg("%s is not refused", body);
        }
        assert_string_equal(buf_str(&line), "before");
        api_fault_err(&f, &e);
        if (f.http_status != bad[i].http_status || strcmp(f.param, bad[i].param) != 0 ||
            strcmp(f.code, bad[i].code) != 0 || f.message[0] == '\0') {
            fail_msg("%s: %d param \"%s\" code %s (%s)", body, f.http_status, f.param, f.code, f.message);
        }
        buf_release(&line);
    }
}

static void test_error_object(void **state)
{
    static const struct {
        const char *frame, *json;
        int http_status, retry_after_s;
    } rows[] = {
        {"{\"error\":\"prompt_segments has 9 tokens\",\"code\":\"context_length_exceeded\",\"field\":"
         "\"prompt_segments\",\"prompt_tokens\":9,\"limit\":8}",
         "{\"error\":{\"message\":\"prompt has 9 "
         "tokens\",\"type\":\"invalid_request_error\",\"param\":\"prompt\","
         "\"code\":\"context_length_exceeded\",\"prompt_tokens\":9,\"limit\":8}}",
         400, 0},
        {"{\"error\":\"no lane\",\"code\":\"capacity_exhausted\"}",
         "{\"error\":{\"message\":\"no lane\",\"type\":\"rate_limit_error\",\"param\":null,\"code\":"
         "\"capacity_exhausted\"}}",
         429, API_RETRY_AFTER_S},
        {"{\"error\":\"max_new_tokens is odd\",\"code\":\"invalid_field\",\"field\":\"max_new_tokens\"}",
         "{\"error\":{\"message\":\"max_tokens is "
         "odd\",\"type\":\"invalid_request_error\",\"param\":\"max_tokens\","
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

/* Each allocation fails once: out of memory is said, nothing leaks, the line is as it was. */
static void test_no_memory(void **state)
{
    static const char body[] = "{\"prompt\":[1,2,3],\"stop\":[\"a\",\"b\"],\"max_tokens\":3}";
    status st = ST_NOMEM;
    for (uint64_t n = 1; st != ST_OK; n++) {
        completion_options o;
        buf line = {0};
        err e;
        mem_fail_at(n, false);
        st = read_body(body, &o, &line, &e);
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
        cmocka_unit_test(test_small_values),   cmocka_unit_test(test_refused),
        cmocka_unit_test(test_error_object),   cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
