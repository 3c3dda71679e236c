/*
 * Python literals as JSON. Expected: what json.dumps(ast.literal_eval(text), ensure_ascii=False) of Python 3.11
 * says (spaces aside: a mere parenthesis leaves one; numbers keep their spelling where JSON has it), made by hand;
 * refused: what ast.literal_eval refuses, or what JSON cannot hold.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "text/python_literal.h"

#define N_OF(array) (sizeof(array) / sizeof((array)[0]))

static const struct row {
    const char *text, *json; /* NULL: refused */
} rows[] = {
    {"True", "true"},
    {"False", "false"},
    {"None", "null"},
    {"null", "null"},
    {"0", "0"},
    {"-1", "-1"},
    {"+12", "12"},
    {"1_000", "1000"},
    {"0x1F", "31"},
    {"-0b101", "-5"},
    {"0o17", "15"},
    {"0xFFFF_FFFF_FFFF_FFFF", "18446744073709551615"},
    {"123456789012345678901234567890", "123456789012345678901234567890"},
    {"1.5", "1.5"},
    {"1.", "1.0"},
    {".5", "0.5"},
    {"007.5", "7.5"},
    {"1e5", "1e5"},
    {"-2.5E-3", "-2.5E-3"},
    {"''", "\"\""},
    {"\"a'b\"", "\"a'b\""},
    {"'a\"b'", "\"a\\\"b\""},
    {"'\\n\\t\\\\\\''", "\"\\u000a\\u0009\\\\'\""},
    {"'\\x41\\101\\u00e4\\U0001F600\\0'", "\"AA\xC3\xA4\xF0\x9F\x98\x80\\u0000\""},
    {"'\\ud83d\\ude00'", "\"\\ud83d\\ude00\""},
    {"'\\d \\.'", "\"\\\\d \\\\.\""},
    {"'a\\\nb'", "\"ab\""},
    {"r'\\n\\''", "\"\\\\n\\\\'\""},
    {"u'x'", "\"x\""},
    {"'''a\n\"b' ''c'''", "\"a\\u000a\\\"b' ''c\""},
    {"\"\"\"\"\"\"", "\"\""},
    {"\"\"\"a\\\"\"\"\"", "\"a\\\"\""},
    {"'a' \"b\"\nr'\\c' '''d'''", "\"ab\\\\cd\""},
    {"[]", "[]"},
    {"[1, [2,], 'x',]", "[1, [2], \"x\"]"},
    {"()", "[]"},
    {"(1,)", "[1]"},
    {"(1, (2, 3), ((4,),))", "[1, [2, 3], [[4]]]"},
    {"((1))", "  1"},
    {"('a' 'b')", " \"ab\""},
    {"([1], )", "[[1]]"},
    {"{}", "{}"},
    {"{'a': 1, \"b\": {'c': (None,)},}", "{\"a\": 1, \"b\": {\"c\": [null]}}"},
    {"{1: 'x', -2.5: 'y'}", "{\"1\": \"x\", \"-2.5\": \"y\"}"},
    {"{'a' 'b': (1)}", "{\"ab\":  1}"},
    {"[ 1 ,\n2 ]", "[1, 2]"},

    {"x", NULL},
    {"Tru", NULL},
    {"f'x'", NULL},
    {"b'x'", NULL},
    {"'x", NULL},
    {"'a\nb'", NULL},
    {"'\\xg1'", NULL},
    {"'\\N{BULLET}'", NULL},
    {"'\\U00110000'", NULL},
    {"'a' x", NULL},
    {"1 2", NULL},
    {"1__0", NULL},
    {"1_", NULL},
    {"0x", NULL},
    {"0b2", NULL},
    {"1.2.3", NULL},
    {"1e", NULL},
    {"--1", NULL},
    {".", NULL},
    {"1j", NULL},
    {"[1", NULL},
    {"[1)", NULL},
    {"[,]", NULL},
    {"[1,,]", NULL},
    {"(,)", NULL},
    {"{1}", NULL},
    {"{'a', 'b'}", NULL},
    {"{'a': }", NULL},
    {"{[]: 1}", NULL},
    {"{(1, 2): 1}", NULL},
    {"{None: 1}", NULL},
    {"", NULL},
    {"f()", NULL},
    {"1 + 2", NULL},
};

static bool read_all(python_literal *v, const char *text)
{
    python_result r = PYTHON_MORE;
    python_literal_begin(v);
    for (const char *s = text; *s && r == PYTHON_MORE; s++) {
        r = python_literal_push(v, (unsigned char)*s);
    }
    return r == PYTHON_MORE && python_literal_finish(v);
}

static void test_rows(void **state)
{
    python_literal v = {0};
    for (size_t i = 0; i < N_OF(rows); i++) {
        bool good = read_all(&v, rows[i].text);
        if (good != (rows[i].json != NULL) || (good && strcmp(buf_str(&v.out), rows[i].json) != 0)) {
            fail_msg("%s: %d %s", rows[i].text, good, buf_str(&v.out));
        }
        assert_true(!good || v.n_open == 0);
    }
    buf_release(&v.out);
}

/* What stands before an undecided parenthesis may be taken out; the byte of the parenthesis may not. */
static void test_open(void **state)
{
    python_literal v = {0};
    python_literal_begin(&v);
    for (const char *s = "[(1"; *s; s++) {
        assert_int_equal(python_literal_push(&v, (unsigned char)*s), PYTHON_MORE);
    }
    assert_int_equal(v.n_open, 1);
    assert_int_equal(python_literal_push(&v, ','), PYTHON_MORE);
    assert_int_equal(v.n_open, 0);
    assert_string_equal(buf_str(&v.out), "[[1");
    buf_release(&v.out);
}

static void test_limits(void **state)
{
    python_literal v = {0};
    char text[2 * PYTHON_MAX_DEPTH + PYTHON_MAX_NUMBER];
    for (unsigned depth = PYTHON_MAX_DEPTH; depth <= PYTHON_MAX_DEPTH + 1; depth++) {
        memset(text, '[', depth);
        memset(text + depth, ']', depth);
        text[2 * depth] = 0;
        assert_int_equal(read_all(&v, text), depth == PYTHON_MAX_DEPTH);
    }
    for (unsigned n = PYTHON_MAX_NUMBER; n <= PYTHON_MAX_NUMBER + 1; n++) {
        memset(text, '1', n);
        text[n] = 0;
        assert_int_equal(read_all(&v, text), n == PYTHON_MAX_NUMBER);
    }
    assert_false(read_all(&v, "0x1FFFFFFFFFFFFFFFF"));
    buf_release(&v.out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests_name("text-python-literal", tests, NULL, NULL);
}
