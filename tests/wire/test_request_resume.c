/*
 * The field `resume` of a generate or chat line (PROTOCOL 4): what is taken, and what each refusal says.
 */
#include "base/test_main.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "wire/frame.h"
#include "wire/request.h"

#define DIGEST "74aa326617f00d2d252a24a9b0a9669c8f96fc9531abfbfb344cd9ca2aa9c633"
#define CHAT   "{\"id\":\"r\",\"op\":\"chat\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]"

static const wire_limits limits = {.n_vocab = 1000, .supports_cancel = true};

static wire_request *accept(const char *line, size_t len)
{
    wire_request *r = NULL;
    buf answer = {0};
    if (wire_request_decode(line, len, &limits, &r, &answer, NULL, NULL) != ST_OK) {
        print_error("refused: %s\n", buf_str(&answer));
    }
    assert_non_null(r);
    buf_release(&answer);
    return r;
}

static wire_request *accept_text(const char *line)
{
    return accept(line, strlen(line));
}

/* The one answer carries the id, the code and the field. */
static void refuse(const char *line, size_t len, const char *field, status code)
{
    wire_request *r = NULL;
    buf answer = {0};
    frame f;
    assert_int_equal(wire_request_decode(line, len, &limits, &r, &answer, NULL, NULL), code);
    assert_null(r);
    assert_int_equal(frame_decode(answer.data, answer.len - 1, &f, NULL), ST_OK);
    if (strcmp(f.field, field) != 0) {
        print_error("%.*s: field %s\n", len < 500 ? (int)len : 500, line, f.field);
    }
    assert_string_equal(f.field, field);
    assert_string_equal(f.id.data, "r");
    assert_int_equal(f.code, code);
    frame_release(&f);
    buf_release(&answer);
}

/* A reply that goes on: every field of it is there and right, or the answer says which is not. */
static void test_resume(void **state)
{
    wire_request *r =
        accept_text("{\"id\":\"r\",\"prompt\":\"a\",\"seed\":3,\"now\":4,\"resume\":{\"ids\":[999,0,999],"
                    "\"seed\":9223372036854775807,\"now\":17,\"prompt_digest\":\"" DIGEST "\"}}");
    assert_non_null(r->resume);
    assert_int_equal(r->resume->n_ids, 3);
    assert_true(r->resume->ids[0] == 999 && r->resume->ids[1] == 0 && r->resume->ids[2] == 999);
    assert_true(r->resume->seed == INT64_MAX && r->resume->now_ms == 17);
    assert_string_equal(r->resume->prompt_digest, DIGEST);
    assert_null(r->resume->prompt_ids);
    assert_true(r->seed == 3 && r->now_ms == 4); /* the request stays what it was */
    wire_request_free(r);
    r = accept_text(CHAT ",\"resume\":{\"prompt_ids\":[7,8],\"ids\":[],\"seed\":1,\"now\":0,"
                         "\"prompt_digest\":\"" DIGEST "\"}}");
    assert_int_equal(r->resume->n_ids, 0);
    assert_int_equal(r->resume->n_prompt_ids, 2);
    assert_int_equal(r->resume->prompt_ids[1], 8);
    wire_request_free(r);
    r = accept_text("{\"id\":\"r\",\"prompt\":\"a\"}");
    assert_null(r->resume);
    wire_request_free(r);
    r = accept_text("{\"prompt\":\"a\",\"resume\":7}"); /* plain: ignored */
    assert_null(r->resume);
    wire_request_free(r);
}

static void test_resume_refused(void **state)
{
    static const char whole[] =
        "\"ids\":[1,2,3,4],\"seed\":1,\"now\":0,\"prompt_digest\":\"" DIGEST "\",\"prompt_ids\":[1,2]";
    static const struct {
        const char *from, *to, *field; /* `to` stands where `from` stood */
    } cases[] = {
        {"\"ids\":[1,2,3,4],", "", "resume.ids"},
        {"\"seed\":1,", "", "resume.seed"},
        {"\"now\":0,", "", "resume.now"},
        {"\"prompt_digest\":\"" DIGEST "\",", "", "resume.prompt_digest"},
        {"[1,2,3,4]", "null", "resume.ids"},
        {"[1,2,3,4]", "7", "resume.ids"},
        {"[1,2,3,4]", "{\"0\":1}", "resume.ids"},
        {"[1,2,3,4]", "[1,2,3,1000]", "resume.ids[3]"},
        {"[1,2,3,4]", "[-1]", "resume.ids[0]"},
        {"[1,2,3,4]", "[1,2.0]", "resume.ids[1]"},
        {"[1,2,3,4]", "[1,2,null]", "resume.ids[2]"},
        {"[1,2,3,4]", "[\"1\"]", "resume.ids[0]"},
        {"[1,2,3,4]", "[4294967297]", "resume.ids[0]"},
        {"\"seed\":1", "\"seed\":0", "resume.seed"},
        {"\"seed\":1", "\"seed\":-1", "resume.seed"},
        {"\"seed\":1", "\"seed\":1.0", "resume.seed"},
        {"\"seed\":1", "\"seed\":9223372036854775808", "resume.seed"},
        {"\"seed\":1", "\"seed\":null", "resume.seed"},
        {"\"now\":0", "\"now\":-1", "resume.now"},
        {"\"now\":0", "\"now\":\"0\"", "resume.now"},
        {"\"now\":0", "\"now\":null", "resume.now"},
        {"\"" DIGEST "\"", "null", "resume.prompt_digest"},
        {"\"" DIGEST "\"", "7", "resume.prompt_digest"},
        {"\"" DIGEST "\"", "\"\"", "resume.prompt_digest"},
        {"74aa", "74AA", "resume.prompt_digest"},
        {"74aa", "4aa", "resume.prompt_digest"},
        {"74aa", "774aa", "resume.prompt_digest"},
        {"74aa", "\\u00004aa", "resume.prompt_digest"},
        {"[1,2]", "null", "resume.prompt_ids"},
        {"[1,2]", "[]", "resume.prompt_ids"},
        {"[1,2]", "\"ab\"", "resume.prompt_ids"},
        {"[1,2]", "[1,1000]", "resume.prompt_ids[1]"},
        {"[1,2]", "[1,2],\"x\":1", "resume.x"},
        {"[1,2]", "[1,2],\"session_id\":null", "resume.session_id"},
    };
    static const char *const no_objects[] = {"null", "1", "[]", "\"x\"", "true"};
    char line[512];
    for (size_t i = 0; i < 2 * N_OF(cases); i++) {
        const char *head = i % 2 == 0 ? "{\"id\":\"r\",\"prompt\":\"a\"" : CHAT;
        const char *at = strstr(whole, cases[i / 2].from);
        assert_non_null(at);
        snprintf(line, sizeof line, "%s,\"resume\":{%.*s%s%s}}", head, (int)(at - whole), whole,
                 cases[i / 2].to, at + strlen(cases[i / 2].from));
        refuse(line, strlen(line), cases[i / 2].field, ST_INVALID_FIELD);
    }
    for (size_t i = 0; i < N_OF(no_objects); i++) {
        snprintf(line, sizeof line, "{\"id\":\"r\",\"prompt\":\"a\",\"resume\":%s}", no_objects[i]);
        refuse(line, strlen(line), "resume", ST_INVALID_FIELD);
    }
    static const char empty[] = "{\"id\":\"r\",\"prompt\":\"a\",\"resume\":{}}";
    refuse(empty, strlen(empty), "resume.ids", ST_INVALID_FIELD);
    snprintf(line, sizeof line, "{\"id\":\"r\",\"op\":\"tokenize\",\"text\":\"a\",\"resume\":{%s}}", whole);
    refuse(line, strlen(line), "resume", ST_INVALID_FIELD);
}

/* A line with n x's as the prompt. */
static void put_line(buf *b, const char *before, size_t n, const char *after)
{
    buf_reset(b);
    assert_int_equal(buf_append_str(b, before), ST_OK);
    assert_int_equal(buf_reserve(b, n), ST_OK);
    for (size_t i = 0; i < n; i++) {
        buf_append_char(b, 'x');
    }
    assert_int_equal(buf_append_str(b, after), ST_OK);
}

/* What is 8 MiB long when it is first sent may be 24 with what it had. */
static void test_length(void **state)
{
    static const char before[] = "{\"id\":\"r\",\"prompt\":\"";
    static const char after[] =
        "\",\"resume\":{\"ids\":[],\"seed\":1,\"now\":0,\"prompt_digest\":\"" DIGEST "\"}}";
    size_t room = WIRE_MAX_RESUME_LINE_BYTES - strlen(before) - strlen(after);
    buf b = {0};
    put_line(&b, before, room, after);
    assert_int_equal(b.len, (size_t)24 << 20);
    wire_request_free(accept(b.data, b.len));
    put_line(&b, before, room + 1, after);
    refuse(b.data, b.len, "", ST_BAD_REQUEST);
    buf_release(&b);
}

/* A failing allocation anywhere gives ST_NOMEM or a whole request, and leaks nothing (ASan looks). */
static void test_memory(void **state)
{
    static const char line[] = "{\"id\":\"r\",\"prompt\":\"a\",\"resume\":{\"ids\":[1],\"seed\":1,\"now\":0,"
                               "\"prompt_digest\":\"" DIGEST "\",\"prompt_ids\":[1]}}";
    bool ever = false;
    for (uint64_t n = 1; n < 40; n++) {
        wire_request *r = NULL;
        buf answer = {0};
        mem_fail_at(n, true);
        status st = wire_request_decode(line, strlen(line), &limits, &r, &answer, NULL, NULL);
        mem_fail_at(0, false);
        assert_true(st == ST_OK || st == ST_NOMEM);
        assert_true((st == ST_OK) == (r != NULL));
        ever = ever || st == ST_OK;
        wire_request_free(r);
        buf_release(&answer);
    }
    assert_true(ever);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resume),
        cmocka_unit_test(test_resume_refused),
        cmocka_unit_test(test_length),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
