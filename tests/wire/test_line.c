#include "base/test_main.h"

#include <string.h>

#include "base/mem.h"
#include "wire/line.h"

/* What the callback got, one after another: "text|" for a line, "<long>|" or "<memory>|" for a report. */
typedef struct seen {
    char text[4096];
    size_t len;
    size_t calls;
    size_t stop_after; /* calls; 0 = never */
} seen;

static bool collect(void *ctx, line_kind kind, const char *text, size_t len)
{
    seen *s = ctx;
    const char *what = kind == LINE_TEXT ? text : kind == LINE_TOO_LONG ? "<long>" : "<memory>";
    size_t n = kind == LINE_TEXT ? len : strlen(what);
    assert_true(s->len + n + 2 < sizeof s->text);
    assert_true(kind == LINE_TEXT || len == 0);
    memcpy(s->text + s->len, what, n);
    s->len += n;
    s->text[s->len++] = '|';
    s->text[s->len] = '\0';
    s->calls++;
    return s->calls != s->stop_after;
}

/* max_bytes is 8 in this table. */
static const struct {
    const char *in;
    const char *want;
} cases[] = {
    {"", ""},
    {"a\n", "a|"},
    {"a\nb\n", "a|b|"},
    {"a", "a|"}, /* a last line without '\n' */
    {"a\nb", "a|b|"},
    {"\n\n\n", ""},         /* empty lines */
    {" \n\t\n \t\r\n", ""}, /* blank lines */
    {" ", ""},
    {"a\r\n", "a\r|"}, /* '\r' is JSON white space: it stays */
    {"\na\n\n", "a|"},
    {" a \n", " a |"},
    {"12345678\n", "12345678|"}, /* exactly the limit */
    {"12345678", "12345678|"},
    {"123456789\n", "<long>|"},
    {"123456789", "<long>|"},
    {"123456789\nok\n", "<long>|ok|"},
    {"a\n123456789012345678901234567890\nok", "a|<long>|ok|"},
    {"         \nok\n", "<long>|ok|"}, /* too long before it is known to be blank */
    {"123456789\n123456789\n", "<long>|<long>|"},
    {"\f\n", "\f|"}, /* not white space in JSON */
};

static void test_cuts(void **state)
{
    for (size_t i = 0; i < N_OF(cases); i++) {
        size_t n = strlen(cases[i].in);
        for (size_t step = 1; step <= n + 1; step++) {
            line_splitter s;
            seen got = {.len = 0};
            line_init(&s, 8);
            for (size_t at = 0; at < n; at += step) {
                size_t piece = n - at < step ? n - at : step;
                assert_int_equal(line_push(&s, cases[i].in + at, piece, collect, &got), ST_OK);
            }
            assert_int_equal(line_end(&s, collect, &got), ST_OK);
            assert_string_equal(got.text, cases[i].want);
            line_release(&s);
        }
    }
}

static void test_nul_bytes(void **state)
{
    line_splitter s;
    seen got = {.len = 0};
    line_init(&s, 8);
    assert_int_equal(line_push(&s, "a\0b\n\0", 5, collect, &got), ST_OK);
    assert_int_equal(line_end(&s, collect, &got), ST_OK);
    assert_int_equal(got.len, 6);
    assert_memory_equal(got.text, "a\0b|\0|", 6);
    line_release(&s);
}

static void test_too_long_is_told_at_once(void **state)
{
    line_splitter s;
    seen got = {.len = 0};
    line_init(&s, 4);
    assert_int_equal(line_push(&s, "12345", 5, collect, &got), ST_OK);
    assert_string_equal(got.text, "<long>|"); /* before its '\n' */
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(line_push(&s, "xxxxxxxxxx", 10, collect, &got), ST_OK);
    }
    assert_true(s.partial.cap < 1024); /* what is skipped is not kept */
    assert_int_equal(line_push(&s, "\nok\n", 4, collect, &got), ST_OK);
    assert_string_equal(got.text, "<long>|ok|");
    line_release(&s);
}

static void test_stop(void **state)
{
    line_splitter s;
    seen got = {.stop_after = 2};
    line_init(&s, 8);
    assert_int_equal(line_push(&s, "a\nb\nc\n", 6, collect, &got), ST_CLOSED);
    assert_string_equal(got.text, "a|b|");
    line_release(&s);
    line_release(NULL);
}

static void test_memory(void **state)
{
    line_splitter s;
    seen got = {.len = 0};
    line_init(&s, 1000);
    mem_fail_at(1, false);
    assert_int_equal(line_push(&s, "abc", 3, collect, &got), ST_OK);
    mem_fail_at(0, false);
    assert_int_equal(line_push(&s, "def\nok\n", 7, collect, &got), ST_OK);
    assert_string_equal(got.text, "<memory>|ok|");
    line_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_nul_bytes),
        cmocka_unit_test(test_too_long_is_told_at_once),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
