/*
 * Each sentence of PROTOCOL 2 about a line and its fields, as a table of lines and what must come of them.
 */
#include "base/test_main.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "wire/frame.h"
#include "wire/request.h"

#define N_VOCAB 1000

static const wire_limits limits = {.n_vocab = N_VOCAB, .supports_cancel = false};
static const wire_limits with_pipe = {.n_vocab = N_VOCAB, .supports_cancel = true};

/* Decodes; on refusal checks that the answer is one error frame with this code. */
static wire_request *decode(const char *line, size_t len, frame *answer_out)
{
    wire_request *r = NULL;
    buf answer = {0};
    err e;
    err_clear(&e);
    status st = wire_request_decode(line, len, &limits, &r, &answer, NULL, &e);
    if (st == ST_OK) {
        assert_int_equal(answer.len, 0);
        assert_non_null(r);
    } else {
        assert_null(r);
        assert_int_equal(e.code, st);
        assert_true(answer.len > 1);
        assert_int_equal(answer.data[answer.len - 1], '\n');
        assert_null(memchr(answer.data, '\n', answer.len - 1)); /* one line */
        assert_int_equal(frame_decode(answer.data, answer.len - 1, answer_out, &e), ST_OK);
        assert_int_equal(answer_out->kind, FRAME_ERROR);
        assert_int_equal(answer_out->code, st);
    }
    buf_release(&answer);
    return r;
}

static wire_request *decode_str(const char *line)
{
    frame f;
    wire_request *r = decode(line, strlen(line), &f);
    if (!r) {
        print_error("refused: %s: %.*s\n", line, (int)f.text_len, f.text);
    }
    assert_non_null(r);
    return r;
}

/* Lines that are not exactly one JSON object. */
static const char *const not_an_object[] = {
    "{",
    "}",
    "[]",
    "[{}]",
    "null",
    "true",
    "1",
    "\"prompt\"",
    "{}{}",
    "{} {}",
    "{}x",
    "{\"prompt\":\"a\"} trailing",
    "{\"prompt\":\"a\"},",
    "{'prompt':'a'}",
    "{prompt:\"a\"}",
    "{\"prompt\":\"a\",}",
    "{,\"prompt\":\"a\"}",
    "{\"prompt\"}",
    "{\"prompt\":}",
    "{\"prompt\":\"a}",
    "{\"prompt\":\"\\q\"}",
    "{\"prompt\":\"\\u12\"}",
    "{\"prompt\":\"a\",\"temperature\":NaN}",
    "{\"prompt\":\"a\",\"temperature\":Infinity}",
    "{\"prompt\":\"a\",\"temperature\":-Infinity}",
    "{\"prompt\":\"a\",\"temperature\":nan}",
    "{\"prompt\":\"a\",\"temperature\":1e999}",
    "{\"prompt\":\"a\",\"seed\":01}",
    "{\"prompt\":\"a\",\"seed\":+1}",
    "{\"prompt\":\"a\",\"seed\":0x1}",
    "{\"prompt\":\"a\",\"temperature\":.5}",
    "{\"prompt\":\"a\",\"temperature\":1.}",
    "{\"prompt\":\"a\",\"seed\":1e}",
    "{\"prompt\":\"a\"}//comment",
    "/**/{\"prompt\":\"a\"}",
    "{\"prompt\":\"a\",\"prompt\":\"b\"}",
    "{\"prompt\":\"a\",\"x\":1,\"x\":1}", /* duplicate keys */
    "{\"prompt\":\"a\",\"x\":{\"y\":1,\"y\":2}}",
    "{\"prompt\":\"a\",\"\\u0070rompt\":\"b\"}",
    "{\"prompt\":\"\xff\"}",
    "{\"prompt\":\"\xc3\"}",
    "{\"prompt\":\"\xed\xa0\x80\"}",
    "{\"prompt\":\"\xc0\x80\"}",
    "{\"\xff\":1,\"prompt\":\"a\"}",
    "{\"prompt\":\"\\ud800\"}",
    "{\"prompt\":\"\\udc00\\ud800\"}",
    "{\"prompt\":\"tab\there\"}",
    "\xef\xbb\xbf{\"prompt\":\"a\"}",
    "{\"prompt\":\"a\",\"x\":18446744073709551616}",
    "{\"prompt\":\"a\",\"seed\":18446744073709551616}",
    "{\"prompt\":\"a\",\"x\":-9223372036854775809}",
    "{\"prompt\":\"a\",\"cancel_request_id\":18446744073709551616}",
    "{\"prompt\":tru}",
    "{\"prompt\":nul}",
};

static void test_not_an_object(void **state)
{
    for (size_t i = 0; i < N_OF(not_an_object); i++) {
        frame f;
        wire_request *r = decode(not_an_object[i], strlen(not_an_object[i]), &f);
        if (r || f.code != ST_BAD_REQUEST) {
            print_error("line %zu: %s\n", i, not_an_object[i]);
        }
        assert_null(r);
        assert_int_equal(f.code, ST_BAD_REQUEST);
        frame_release(&f);
    }
}

static void test_raw_nul(void **state)
{
    static const char line[] = "{\"prompt\":\"a\0b\"}";
    frame f;
    assert_null(decode(line, sizeof line - 1, &f));
    assert_int_equal(f.code, ST_BAD_REQUEST);
    frame_release(&f);
}

/* {"prompt":"a","x":[[[…]]]} with n brackets, in an object already one deep. */
static char *nested(size_t n)
{
    buf b = {0};
    buf_append_str(&b, "{\"prompt\":\"a\",\"x\":");
    for (size_t i = 0; i < n; i++) {
        buf_append_char(&b, '[');
    }
    for (size_t i = 0; i < n; i++) {
        buf_append_char(&b, ']');
    }
    buf_append_char(&b, '}');
    return buf_detach(&b, NULL);
}

static void test_depth(void **state)
{
    frame f;
    char *line = nested(JSON_MAX_DEPTH - 1);
    wire_request_free(decode_str(line)); /* depth 256 is allowed */
    mem_free(line);
    line = nested(JSON_MAX_DEPTH);
    assert_null(decode(line, strlen(line), &f));
    assert_int_equal(f.code, ST_BAD_REQUEST);
    frame_release(&f);
    mem_free(line);
    line = nested(1000000);
    assert_null(decode(line, strlen(line), &f));
    assert_int_equal(f.code, ST_BAD_REQUEST);
    frame_release(&f);
    mem_free(line);
}

/* Objects that are refused; the frame must name this field and have this code. */
static const struct {
    const char *line;
    const char *field;
    status code;
} refused[] = {
    /* prompt or prompt_segments, exactly one: presence decides, even with null */
    {"{}", "prompt", ST_INVALID_FIELD},
    {"{\"op\":\"generate\"}", "prompt", ST_INVALID_FIELD},
    {"{\"Prompt\":\"a\"}", "prompt", ST_INVALID_FIELD},
    {"{\"prompt\":null}", "prompt", ST_INVALID_FIELD},
    {"{\"prompt\":\"a\",\"prompt_segments\":[{\"text\":\"a\"}]}", "prompt_segments", ST_INVALID_FIELD},
    {"{\"prompt\":null,\"prompt_segments\":[{\"text\":\"a\"}]}", "prompt_segments", ST_INVALID_FIELD},
    {"{\"prompt\":\"a\",\"prompt_segments\":null}", "prompt_segments", ST_INVALID_FIELD},
    {"{\"prompt\":1}", "prompt", ST_INVALID_FIELD},
    {"{\"prompt\":true}", "prompt", ST_INVALID_FIELD},
    {"{\"prompt\":[\"a\"]}", "prompt", ST_INVALID_FIELD},
    {"{\"prompt\":{\"text\":\"a\"}}", "prompt", ST_INVALID_FIELD},
    {"{\"prompt_segments\":null}", "prompt_segments", ST_INVALID_FIELD},
    {"{\"prompt_segments\":\"a\"}", "prompt_segments", ST_INVALID_FIELD},
    {"{\"prompt_segments\":{\"text\":\"a\"}}", "prompt_segments", ST_INVALID_FIELD},
    {"{\"prompt_segments\":7}", "prompt_segments", ST_INVALID_FIELD},
    /* a segment with neither key is an error */
    {"{\"prompt_segments\":[{}]}", "prompt_segments[0]", ST_INVALID_FIELD},
    {"{\"prompt_segments\":[{\"text\":\"a\"},{\"TEXT\":\"a\"}]}", "prompt_segments[1]", ST_INVALID_FIELD},
    {"{\"prompt_segments\":[null]}", "prompt_segments[0]", ST_INVALID_FIELD},
    {"{\"prompt_segments\":[\"a\"]}", "prompt_segments[0]", ST_INVALID_FIELD},
    {"{\"prompt_segments\":[1,2]}", "prompt_segments[0]", ST_INVALID_FIELD},
    {"{\"prompt_segments\":[[1,2]]}", "prompt_segments[0]", ST_INVALID_FIELD},
    {"{\"prompt_segments\":[{\"text\":null}]}", "prompt_segments[0].text", ST_INVALID_FIELD},
    {"{\"prompt_segments\":[{\"text\":1}]}", "prompt_segments[0].text", ST_INVALID_FIELD},
    {"{\"prompt_segments\":[{\"text\":[\"a\"]}]}", "prompt_segments[0].text", ST_INVALID_FIELD},
    {"{\"prompt_segments\":[{\"ids\":null}]}", "prompt_segments[0].ids", ST_INVALID_FIELD},
    {"{\"prompt_segments\":[{\"ids\":1}]}", "prompt_segments[0].ids", ST_INVALID_FIELD},
    {"{\"prompt_segments\":[{\"ids\":\"1 2\"}]}", "prompt_segments[0].ids", ST_INVALID_FIELD},
    {"{\"prompt_segments\":[{\"ids\":[1,\"2\"]}]}", "prompt_segments[0].ids", ST_INVALID_FIELD},
    {"{\"prompt_segments\":[{\"ids\":[1.0]}]}", "prompt_segments[0].ids", ST_INVALID_FIELD},
    {"{\"prompt_segments\":[{\"ids\":[1e0]}]}", "prompt_segments[0].ids", ST_INVALID_FIELD},
    {"{\"prompt_segments\":[{\"ids\":[null]}]}", "prompt_segments[0].ids", ST_INVALID_FIELD},
    {"{\"prompt_segments\":[{\"ids\":[true]}]}", "prompt_segments[0].ids", ST_INVALID_FIELD},
    {"{\"prompt_segments\":[{\"ids\":[-1]}]}", "prompt_segments[0].ids", ST_INVALID_FIELD},
    {"{\"prompt_segments\":[{\"ids\":[0,1000]}]}", "prompt_segments[0].ids", ST_INVALID_FIELD},
    {"{\"prompt_segments\":[{\"ids\":[1001]}]}", "prompt_segments[0].ids", ST_INVALID_FIELD},
    {"{\"prompt_segments\":[{\"ids\":[2147483648]}]}", "prompt_segments[0].ids", ST_INVALID_FIELD},
    {"{\"prompt_segments\":[{\"ids\":[4294967296]}]}", "prompt_segments[0].ids", ST_INVALID_FIELD},
    {"{\"prompt_segments\":[{\"ids\":[18446744073709551615]}]}", "prompt_segments[0].ids", ST_INVALID_FIELD},
    {"{\"prompt_segments\":[{\"text\":\"a\",\"ids\":null}]}", "prompt_segments[0].ids", ST_INVALID_FIELD},
    /* max_new_tokens: an integer literal */
    {"{\"prompt\":\"a\",\"max_new_tokens\":null}", "max_new_tokens", ST_INVALID_FIELD},
    {"{\"prompt\":\"a\",\"max_new_tokens\":1.0}", "max_new_tokens", ST_INVALID_FIELD},
    {"{\"prompt\":\"a\",\"max_new_tokens\":1e3}", "max_new_tokens", ST_INVALID_FIELD},
    {"{\"prompt\":\"a\",\"max_new_tokens\":1e308}", "max_new_tokens", ST_INVALID_FIELD},
    {"{\"prompt\":\"a\",\"max_new_tokens\":\"5\"}", "max_new_tokens", ST_INVALID_FIELD},
    {"{\"prompt\":\"a\",\"max_new_tokens\":true}", "max_new_tokens", ST_INVALID_FIELD},
    {"{\"prompt\":\"a\",\"max_new_tokens\":[5]}", "max_new_tokens", ST_INVALID_FIELD},
    {"{\"prompt\":\"a\",\"max_new_tokens\":{}}", "max_new_tokens", ST_INVALID_FIELD},
    /* temperature: finite, >= 0 */
    {"{\"prompt\":\"a\",\"temperature\":null}", "temperature", ST_INVALID_FIELD},
    {"{\"prompt\":\"a\",\"temperature\":-1}", "temperature", ST_INVALID_FIELD},
    {"{\"prompt\":\"a\",\"temperature\":-0.001}", "temperature", ST_INVALID_FIELD},
    {"{\"prompt\":\"a\",\"temperature\":\"1\"}", "temperature", ST_INVALID_FIELD},
    {"{\"prompt\":\"a\",\"temperature\":false}", "temperature", ST_INVALID_FIELD},
    {"{\"prompt\":\"a\",\"temperature\":[]}", "temperature", ST_INVALID_FIELD},
    /* top_p in (0, 1] */
    {"{\"prompt\":\"a\",\"top_p\":0}", "top_p", ST_INVALID_FIELD},
    {"{\"prompt\":\"a\",\"top_p\":0.0}", "top_p", ST_INVALID_FIELD},
    {"{\"prompt\":\"a\",\"top_p\":-0.5}", "top_p", ST_INVALID_FIELD},
    {"{\"prompt\":\"a\",\"top_p\":1.0000001}", "top_p", ST_INVALID_FIELD},
    {"{\"prompt\":\"a\",\"top_p\":2}", "top_p", ST_INVALID_FIELD},
    {"{\"prompt\":\"a\",\"top_p\":1e308}", "top_p", ST_INVALID_FIELD},
    {"{\"prompt\":\"a\",\"top_p\":null}", "top_p", ST_INVALID_FIELD},
    {"{\"prompt\":\"a\",\"top_p\":\"0.5\"}", "top_p", ST_INVALID_FIELD},
    /* top_k >= 0, int32 */
    {"{\"prompt\":\"a\",\"top_k\":-1}", "top_k", ST_INVALID_FIELD},
    {"{\"prompt\":\"a\",\"top_k\":2147483648}", "top_k", ST_INVALID_FIELD},
    {"{\"prompt\":\"a\",\"top_k\":-2147483649}", "top_k", ST_INVALID_FIELD},
    {"{\"prompt\":\"a\",\"top_k\":9223372036854775808}", "top_k", ST_INVALID_FIELD},
    {"{\"prompt\":\"a\",\"top_k\":40.0}", "top_k", ST_INVALID_FIELD},
    {"{\"prompt\":\"a\",\"top_k\":null}", "top_k", ST_INVALID_FIELD},
    {"{\"prompt\":\"a\",\"top_k\":\"40\"}", "top_k", ST_INVALID_FIELD},
    /* seed 0 … 2^63 - 1: 2^63 is refused, not rounded */
    {"{\"prompt\":\"a\",\"seed\":-1}", "seed", ST_INVALID_FIELD},
    {"{\"prompt\":\"a\",\"seed\":-9223372036854775808}", "seed", ST_INVALID_FIELD},
    {"{\"prompt\":\"a\",\"seed\":9223372036854775808}", "seed", ST_INVALID_FIELD},
    {"{\"prompt\":\"a\",\"seed\":18446744073709551615}", "seed", ST_INVALID_FIELD},
    {"{\"prompt\":\"a\",\"seed\":1.0}", "seed", ST_INVALID_FIELD},
    {"{\"prompt\":\"a\",\"seed\":1e3}", "seed", ST_INVALID_FIELD},
    {"{\"prompt\":\"a\",\"seed\":null}", "seed", ST_INVALID_FIELD},
    {"{\"prompt\":\"a\",\"seed\":\"1\"}", "seed", ST_INVALID_FIELD},
    /* stop: a list of strings */
    {"{\"prompt\":\"a\",\"stop\":null}", "stop", ST_INVALID_FIELD},
    {"{\"prompt\":\"a\",\"stop\":\"x\"}", "stop", ST_INVALID_FIELD},
    {"{\"prompt\":\"a\",\"stop\":[1]}", "stop", ST_INVALID_FIELD},
    {"{\"prompt\":\"a\",\"stop\":[\"x\",null]}", "stop", ST_INVALID_FIELD},
    {"{\"prompt\":\"a\",\"stop\":[[\"x\"]]}", "stop", ST_INVALID_FIELD},
    {"{\"prompt\":\"a\",\"stop\":{}}", "stop", ST_INVALID_FIELD},
    /* session_id: a string; null is a wrong type, not an absent field */
    {"{\"prompt\":\"a\",\"session_id\":null}", "session_id", ST_INVALID_FIELD},
    {"{\"prompt\":\"a\",\"session_id\":1}", "session_id", ST_INVALID_FIELD},
    {"{\"prompt\":\"a\",\"session_id\":[\"s\"]}", "session_id", ST_INVALID_FIELD},
    {"{\"prompt\":\"a\",\"session_id\":false}", "session_id", ST_INVALID_FIELD},
    /* add_special: bool */
    {"{\"prompt\":\"a\",\"add_special\":1}", "add_special", ST_INVALID_FIELD},
    {"{\"prompt\":\"a\",\"add_special\":null}", "add_special", ST_INVALID_FIELD},
    {"{\"prompt\":\"a\",\"add_special\":\"true\"}", "add_special", ST_INVALID_FIELD},
    /* without a control pipe, whatever the value */
    {"{\"prompt\":\"a\",\"cancel_request_id\":1}", "cancel_request_id", ST_UNSUPPORTED},
    {"{\"prompt\":\"a\",\"cancel_request_id\":0}", "cancel_request_id", ST_UNSUPPORTED},
    {"{\"prompt\":\"a\",\"cancel_request_id\":null}", "cancel_request_id", ST_UNSUPPORTED},
    /* ops of the multiplexed dialect say what they need */
    {"{\"op\":\"chat\",\"messages\":[]}", "id", ST_INVALID_FIELD},
    {"{\"op\":\"tokenize\",\"text\":\"a\"}", "id", ST_INVALID_FIELD},
    {"{\"op\":\"detokenize\",\"ids\":[]}", "id", ST_INVALID_FIELD},
    {"{\"op\":\"count\",\"text\":\"a\"}", "id", ST_INVALID_FIELD},
    {"{\"op\":\"session\",\"action\":\"get\",\"session_id\":\"s\"}", "id", ST_INVALID_FIELD},
    {"{\"op\":\"stats\"}", "id", ST_INVALID_FIELD},
    {"{\"op\":\"cancel\"}", "id", ST_INVALID_FIELD},
    {"{\"op\":\"pause\"}", "id", ST_INVALID_FIELD},
    {"{\"op\":\"continue\"}", "id", ST_INVALID_FIELD},
    {"{\"op\":\"embed\",\"input\":[]}", "op", ST_UNSUPPORTED},
    /* op */
    {"{\"op\":\"nope\",\"session_id\":\"s\"}", "op", ST_INVALID_FIELD},
    {"{\"op\":\"\",\"session_id\":\"s\"}", "op", ST_INVALID_FIELD},
    {"{\"op\":\"Open\",\"session_id\":\"s\"}", "op", ST_INVALID_FIELD},
    {"{\"op\":\"open \",\"session_id\":\"s\"}", "op", ST_INVALID_FIELD},
    {"{\"op\":\"open\\u0000\",\"session_id\":\"s\"}", "op", ST_INVALID_FIELD},
    {"{\"op\":null,\"prompt\":\"a\"}", "op", ST_INVALID_FIELD},
    {"{\"op\":1,\"prompt\":\"a\"}", "op", ST_INVALID_FIELD},
    {"{\"op\":[\"open\"],\"session_id\":\"s\"}", "op", ST_INVALID_FIELD},
    /* in an op an absent, empty or non-string session_id is an error */
    {"{\"op\":\"open\"}", "session_id", ST_INVALID_FIELD},
    {"{\"op\":\"close\"}", "session_id", ST_INVALID_FIELD},
    {"{\"op\":\"reset\"}", "session_id", ST_INVALID_FIELD},
    {"{\"op\":\"open\",\"session_id\":\"\"}", "session_id", ST_INVALID_FIELD},
    {"{\"op\":\"close\",\"session_id\":\"\"}", "session_id", ST_INVALID_FIELD},
    {"{\"op\":\"reset\",\"session_id\":\"\"}", "session_id", ST_INVALID_FIELD},
    {"{\"op\":\"open\",\"session_id\":null}", "session_id", ST_INVALID_FIELD},
    {"{\"op\":\"open\",\"session_id\":1}", "session_id", ST_INVALID_FIELD},
    {"{\"op\":\"reset\",\"session_id\":{}}", "session_id", ST_INVALID_FIELD},
};

static void test_refused(void **state)
{
    for (size_t i = 0; i < N_OF(refused); i++) {
        frame f;
        wire_request *r = decode(refused[i].line, strlen(refused[i].line), &f);
        if (r || strcmp(f.field, refused[i].field) != 0 || f.code != refused[i].code) {
            print_error("line %zu: %s: field %s\n", i, refused[i].line, r ? "(accepted)" : f.field);
        }
        assert_null(r);
        assert_string_equal(f.field, refused[i].field);
        assert_int_equal(f.code, refused[i].code);
        assert_non_null(strstr(f.text, refused[i].field)); /* the message names it too */
        frame_release(&f);
    }
}

/* Every answer to an op, errors included, carries session_id; other refusals do not. */
static void test_session_id_in_answers(void **state)
{
    static const struct {
        const char *line;
        const char *part; /* of the answer; NULL: no session_id in it */
    } cases[] = {
        {"{\"op\":\"nope\",\"session_id\":\"s 1\"}", "\"session_id\":\"s 1\""},
        {"{\"op\":7,\"session_id\":\"s\"}", "\"session_id\":\"s\""},
        {"{\"op\":\"open\"}", "\"session_id\":null"},
        {"{\"op\":\"open\",\"session_id\":\"\"}", "\"session_id\":\"\""},
        {"{\"op\":\"reset\",\"session_id\":5}", "\"session_id\":null"},
        {"{\"op\":\"close\",\"session_id\":null}", "\"session_id\":null"},
        {"{\"op\":\"chat\",\"session_id\":\"a\\u0000b\"}", "\"session_id\":\"a\\u0000b\""},
        {"{\"op\":\"generate\",\"session_id\":\"s\"}", NULL},
        {"{\"session_id\":\"s\"}", NULL},
        {"{\"session_id\":\"s\",", NULL},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        wire_request *r = NULL;
        buf answer = {0};
        assert_int_not_equal(
            wire_request_decode(cases[i].line, strlen(cases[i].line), &limits, &r, &answer, NULL, NULL),
            ST_OK);
        if (cases[i].part) {
            assert_non_null(strstr(buf_str(&answer), cases[i].part));
        } else {
            assert_null(strstr(buf_str(&answer), "session_id\":"));
        }
        buf_release(&answer);
    }
}

/* The value at fault is shown, long ones abridged. */
static void test_value_in_answers(void **state)
{
    static const struct {
        const char *line;
        const char *part;
    } cases[] = {
        {"{\"prompt\":\"a\",\"top_p\":2}", "\"value\":2}"},
        {"{\"prompt\":\"a\",\"top_p\":1.5}", "\"value\":1.5}"},
        /* a float literal that is whole must not look like the integer that was asked for */
        {"{\"prompt\":\"a\",\"seed\":1.0}", "not 1.0\""},
        {"{\"prompt\":\"a\",\"seed\":1.0}", "\"value\":1.0}"},
        {"{\"prompt\":\"a\",\"seed\":1e3}", "\"value\":1000.0}"},
        {"{\"prompt\":\"a\",\"seed\":1e308}", "\"value\":1e+308}"},
        {"{\"prompt\":\"a\",\"seed\":9223372036854775808}", "\"value\":9223372036854775808}"},
        {"{\"prompt\":\"a\",\"seed\":-9223372036854775808}", "\"value\":-9223372036854775808}"},
        {"{\"prompt\":\"a\",\"seed\":null}", "\"value\":null}"},
        {"{\"prompt\":\"a\",\"seed\":true}", "\"value\":true}"},
        {"{\"prompt\":\"a\",\"seed\":\"x\\ny\"}", "\"value\":\"x\\ny\"}"},
        {"{\"prompt\":\"a\",\"seed\":[1,2]}", "\"value\":\"[...]\"}"},
        {"{\"prompt\":\"a\",\"seed\":{}}", "\"value\":\"{...}\"}"},
        {"{\"prompt_segments\":[{\"ids\":[5,-1]}]}", "\"value\":-1}"},
        {"{\"op\":\"0123456789012345678901234567890123456789012345678901234567890123456789\"}",
         "\"value\":\"0123456789012345678901234567890123456789012345678901234567890123\""},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        wire_request *r = NULL;
        buf answer = {0};
        assert_int_not_equal(
            wire_request_decode(cases[i].line, strlen(cases[i].line), &limits, &r, &answer, NULL, NULL),
            ST_OK);
        if (!strstr(buf_str(&answer), cases[i].part)) {
            print_error("%s", buf_str(&answer));
        }
        assert_non_null(strstr(buf_str(&answer), cases[i].part));
        buf_release(&answer);
    }
    /* a character is not cut in two */
    wire_request *r = NULL;
    buf line = {0}, answer = {0};
    buf_append_str(&line, "{\"op\":\"x");
    for (int i = 0; i < 40; i++) {
        buf_append_str(&line, "\xc3\xa9");
    }
    buf_append_str(&line, "\"}");
    assert_int_equal(wire_request_decode(line.data, line.len, &limits, &r, &answer, NULL, NULL),
                     ST_INVALID_FIELD);
    assert_null(strstr(answer.data, "\xef\xbf\xbd"));
    buf_release(&line);
    buf_release(&answer);
}

/* 1 … 2^64 - 1, exact at both ends; 2^64 is no integer of ours (not_an_object above). */
static void test_cancel_request_id(void **state)
{
    static const struct {
        const char *text;
        uint64_t want; /* 0: refused */
    } cases[] = {
        {"1", 1},
        {"9223372036854775807", 9223372036854775807u},
        {"9223372036854775808", 9223372036854775808u},
        {"18446744073709551614", UINT64_MAX - 1},
        {"18446744073709551615", UINT64_MAX},
        {"0", 0},
        {"-0", 0},
        {"-1", 0},
        {"1.0", 0},
        {"1e3", 0},
        {"1e308", 0},
        {"null", 0},
        {"true", 0},
        {"\"1\"", 0},
        {"[1]", 0},
        {"{}", 0},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        char line[128];
        wire_request *r = NULL;
        buf answer = {0};
        err e;
        snprintf(line, sizeof line, "{\"prompt\":\"a\",\"cancel_request_id\":%s}", cases[i].text);
        status st = wire_request_decode(line, strlen(line), &with_pipe, &r, &answer, NULL, &e);
        if (cases[i].want > 0) {
            assert_int_equal(st, ST_OK);
            assert_true(r->cancel_request_id == cases[i].want);
        } else {
            assert_int_equal(st, ST_INVALID_FIELD);
            assert_string_equal(e.field, "cancel_request_id");
        }
        wire_request_free(r);
        buf_release(&answer);
    }
}

static void test_defaults(void **state)
{
    wire_request *r = decode_str("{\"prompt\":\"hi\"}");
    assert_int_equal(r->op, WIRE_GENERATE);
    assert_int_equal(r->session_id.len, 0);
    assert_string_equal(r->prompt_field, "prompt");
    assert_int_equal(r->n_segments, 1);
    assert_null(r->segments[0].ids);
    assert_string_equal(r->segments[0].text.data, "hi");
    assert_int_equal(r->segments[0].text.len, 2);
    assert_false(r->add_special);
    assert_int_equal(r->max_new_tokens, -1);
    assert_true(r->temperature == 0.0);
    assert_true(r->top_p == 1.0);
    assert_int_equal(r->top_k, 0);
    assert_int_equal(r->seed, 0);
    assert_int_equal(r->n_stops, 0);
    assert_null(r->id.data);
    assert_true(r->cancel_request_id == 0);
    /* the fields of the other dialect change nothing */
    assert_true(r->min_p == 0.0 && r->repetition_penalty == 1.0);
    assert_true(r->presence_penalty == 0.0 && r->frequency_penalty == 0.0);
    assert_int_equal(r->repeat_last_n, 64);
    assert_int_equal(r->top_logprobs, -1);
    assert_int_equal(r->prompt_logprobs, -1);
    assert_true(r->n_bias == 0 && r->n_stop_token_ids == 0 && r->min_tokens == 0 && r->deadline_ms == 0);
    assert_false(r->ignore_eos || r->progress || r->has_now);
    assert_true(wire_request_bytes(r) >= sizeof *r + 2);
    wire_request_free(r);
    wire_request_free(NULL);
}

static void test_numbers(void **state)
{
    static const struct {
        const char *text;
        int32_t want;
    } budgets[] = {
        {"-1", -1},
        {"0", -1},
        {"-0", -1},
        {"1", 1},
        {"2147483647", INT32_MAX},
        {"2147483648", INT32_MAX},
        {"-2147483649", -1},
        {"-9223372036854775808", -1},
        {"9223372036854775807", INT32_MAX},
        {"9223372036854775808", INT32_MAX},
        {"18446744073709551615", INT32_MAX},
    };
    char line[256];
    for (size_t i = 0; i < N_OF(budgets); i++) {
        snprintf(line, sizeof line, "{\"prompt\":\"a\",\"max_new_tokens\":%s}", budgets[i].text);
        wire_request *r = decode_str(line);
        assert_int_equal(r->max_new_tokens, budgets[i].want);
        wire_request_free(r);
    }
    wire_request *r = decode_str("{\"prompt\":\"a\",\"seed\":9223372036854775807,\"top_k\":2147483647,"
                                 "\"temperature\":1e308,\"top_p\":1,\"add_special\":true}");
    assert_true(r->seed == WIRE_MAX_SEED);
    assert_int_equal(r->top_k, INT32_MAX);
    assert_true(r->temperature == 1e308);
    assert_true(r->top_p == 1.0);
    assert_true(r->add_special);
    wire_request_free(r);
    r = decode_str("{\"prompt\":\"a\",\"seed\":0,\"top_k\":0,\"temperature\":0,\"top_p\":1e-300}");
    assert_true(r->seed == 0 && r->top_k == 0 && r->temperature == 0.0 && r->top_p == 1e-300);
    wire_request_free(r);
    r = decode_str("{\"prompt\":\"a\",\"temperature\":-0.0}");
    assert_true(r->temperature == 0.0);
    wire_request_free(r);
}

static void test_strings_have_a_length(void **state)
{
    wire_request *r =
        decode_str("{\"prompt\":\"a\\u0000b\",\"session_id\":\"s\\u0000\",\"stop\":[\"\\u0000\"]}");
    assert_int_equal(r->segments[0].text.len, 3);
    assert_memory_equal(r->segments[0].text.data, "a\0b", 4);
    assert_int_equal(r->session_id.len, 2);
    assert_memory_equal(r->session_id.data, "s\0", 3);
    assert_int_equal(r->n_stops, 1);
    assert_int_equal(r->stops[0].len, 1);
    wire_request_free(r);
    r = decode_str("{\"prompt\":\"\\ud83d\\ude00\xf0\x9f\x98\x80\"}");
    assert_string_equal(r->segments[0].text.data, "\xf0\x9f\x98\x80\xf0\x9f\x98\x80");
    wire_request_free(r);
    r = decode_str("{\"prompt\":\"\"}"); /* empty: the worker's to refuse, add_special may fill it */
    assert_int_equal(r->segments[0].text.len, 0);
    wire_request_free(r);
}

static void test_stops(void **state)
{
    wire_request *r = decode_str("{\"prompt\":\"a\",\"stop\":[]}");
    assert_int_equal(r->n_stops, 0);
    wire_request_free(r);
    r = decode_str(
        "{\"prompt\":\"a\",\"stop\":[\"\",\"x\",\"\",\"yz\",\"x\"]}"); /* an empty string is ignored */
    assert_int_equal(r->n_stops, 3);
    assert_string_equal(r->stops[0].data, "x");
    assert_string_equal(r->stops[1].data, "yz");
    assert_string_equal(r->stops[2].data, "x");
    wire_request_free(r);
}

static void test_segments(void **state)
{
    wire_request *r = decode_str("{\"prompt_segments\":[{\"text\":\"a\"},{\"ids\":[0,5,999]},{\"text\":\"\"},"
                                 "{\"ids\":[]},{\"text\":7,\"ids\":[9],\"x\":{}}]}");
    assert_string_equal(r->prompt_field, "prompt_segments");
    assert_int_equal(r->n_segments, 5);
    assert_null(r->segments[0].ids);
    assert_string_equal(r->segments[0].text.data, "a");
    assert_int_equal(r->segments[1].n_ids, 3);
    assert_int_equal(r->segments[1].ids[1], 5);
    assert_int_equal(r->segments[1].ids[2], 999);
    assert_null(r->segments[2].ids); /* empty segments are allowed */
    assert_non_null(r->segments[3].ids);
    assert_int_equal(r->segments[3].n_ids, 0);
    assert_int_equal(r->segments[4].n_ids, 1); /* with both keys it counts as ids */
    assert_int_equal(r->segments[4].ids[0], 9);
    wire_request_free(r);
    r = decode_str("{\"prompt_segments\":[]}");
    assert_int_equal(r->n_segments, 0);
    wire_request_free(r);
}

static void test_ops(void **state)
{
    static const struct {
        const char *line;
        wire_op op;
    } cases[] = {
        {"{\"op\":\"open\",\"session_id\":\"s\"}", WIRE_OPEN},
        {"{\"op\":\"close\",\"session_id\":\"s\"}", WIRE_CLOSE},
        {"{\"op\":\"reset\",\"session_id\":\"s\"}", WIRE_RESET},
        {"{\"session_id\":\"s\",\"op\":\"open\",\"prompt\":null,\"seed\":\"ignored\"}", WIRE_OPEN},
        {"{\"op\":\"generate\",\"prompt\":\"a\",\"session_id\":\"s\"}", WIRE_GENERATE},
        {"{\"prompt\":\"a\",\"session_id\":\"s\",\"unknown\":[{}],\"n\":1,\"token\":1}", WIRE_GENERATE},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        wire_request *r = decode_str(cases[i].line);
        assert_int_equal(r->op, cases[i].op);
        assert_string_equal(r->session_id.data, "s");
        wire_request_free(r);
    }
    wire_request *r = decode_str("{\"op\":\"drain\"}"); /* may come without an id */
    assert_int_equal(r->op, WIRE_DRAIN);
    assert_null(r->id.data);
    wire_request_free(r);
    r = decode_str("{\"op\":\"shutdown\",\"session_id\":7,\"x\":null}"); /* plain: others are ignored */
    assert_int_equal(r->op, WIRE_SHUTDOWN);
    wire_request_free(r);
    /* fields of the other dialect are unknown here */
    r = decode_str(
        "{\"prompt\":\"a\",\"min_p\":7,\"grammar\":1,\"messages\":0,\"attach\":5,\"deadline_ms\":-1}");
    assert_true(r->min_p == 0.0 && r->deadline_ms == 0 && !r->messages);
    wire_request_free(r);
    r = decode_str("  {\"prompt\" : \"a\" }\r");
    wire_request_free(r);
    r = decode_str("{\"prompt\":\"a\",\"session_id\":\"\"}"); /* empty means anonymous in generate */
    assert_int_equal(r->session_id.len, 0);
    wire_request_free(r);
}

static void test_session_id_limit(void **state)
{
    buf line = {0};
    frame f;
    for (size_t extra = 0; extra < 2; extra++) {
        buf_reset(&line);
        buf_append_str(&line, "{\"op\":\"open\",\"session_id\":\"");
        for (size_t i = 0; i < WIRE_MAX_SESSION_ID_BYTES + extra; i++) {
            buf_append_char(&line, 's');
        }
        buf_append_str(&line, "\"}");
        wire_request *r = decode(line.data, line.len, &f);
        if (extra == 0) {
            assert_non_null(r);
            assert_int_equal(r->session_id.len, WIRE_MAX_SESSION_ID_BYTES);
            wire_request_free(r);
        } else {
            assert_null(r);
            assert_string_equal(f.field, "session_id");
            frame_release(&f);
        }
    }
    buf_release(&line);
}

/* A failing allocation anywhere gives ST_NOMEM or a whole answer, and leaks nothing (ASan looks). */
static void test_memory(void **state)
{
    static const char *const lines[] = {
        "{\"prompt_segments\":[{\"text\":\"abc\"},{\"ids\":[1,2,3]}],\"stop\":[\"x\"],\"session_id\":\"s\"}",
        "{\"prompt\":\"a\",\"top_p\":2}",
        "{\"op\":\"open\",\"session_id\":1}",
    };
    for (size_t i = 0; i < N_OF(lines); i++) {
        for (uint64_t n = 1; n < 40; n++) {
            wire_request *r = NULL;
            buf answer = {0};
            mem_fail_at(n, true);
            status st = wire_request_decode(lines[i], strlen(lines[i]), &limits, &r, &answer, NULL, NULL);
            mem_fail_at(0, false);
            assert_true(st == ST_OK ? r != NULL : r == NULL);
            assert_true(answer.len == 0 || answer.data[answer.len - 1] == '\n');
            wire_request_free(r);
            buf_release(&answer);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_not_an_object),
        cmocka_unit_test(test_raw_nul),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_session_id_in_answers),
        cmocka_unit_test(test_value_in_answers),
        cmocka_unit_test(test_cancel_request_id),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_strings_have_a_length),
        cmocka_unit_test(test_stops),
        cmocka_unit_test(test_segments),
        cmocka_unit_test(test_ops),
        cmocka_unit_test(test_session_id_limit),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
