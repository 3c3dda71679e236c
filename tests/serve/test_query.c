/*
 * Queries of a target.
 */
#include <stdio.h>
#include <string.h>

#include "base/test_main.h"
#include "serve/query.h"

#define X10 "xxxxxxxxxx"
#define X50 X10 X10 X10 X10 X10

static void test_read(void **state)
{
    static const struct {
        const char *query;
        const char *a, *b; /* NULL = not given */
        const char *fault; /* NULL = none; else the field */
        status code;
    } rows[] = {
        {"", NULL, NULL, NULL, ST_OK},
        {"&&", NULL, NULL, NULL, ST_OK},
        {"a=1", "1", NULL, NULL, ST_OK},
        {"bb=2&a=1&", "1", "2", NULL, ST_OK},
        {"a", "", NULL, NULL, ST_OK},
        {"a=", "", NULL, NULL, ST_OK},
        {"a==", "=", NULL, NULL, ST_OK},
        {"%61=x%20y+z%2B", "x y z+", NULL, NULL, ST_OK},
        {"a=%C3%a4", "\xC3\xA4", NULL, NULL, ST_OK},
        {"a=1&a=1", NULL, NULL, "a", ST_INVALID_FIELD},
        {"a=%", NULL, NULL, "a", ST_INVALID_FIELD},
        {"a=%4", NULL, NULL, "a", ST_INVALID_FIELD},
        {"a=%4&bb=1", NULL, NULL, "a", ST_INVALID_FIELD},
        {"a=%g0", NULL, NULL, "a", ST_INVALID_FIELD},
        {"a=x%00", NULL, NULL, "a", ST_INVALID_FIELD},
        {"a=" X50 X50 X50 X50 X50 "12345", X50 X50 X50 X50 X50 "12345", NULL, NULL, ST_OK},
        {"a=" X50 X50 X50 X50 X50 "123456", NULL, NULL, "a", ST_INVALID_FIELD},
        {"A=1", NULL, NULL, "A", ST_UNSUPPORTED},
        {"b=1", NULL, NULL, "b", ST_UNSUPPORTED},
        {"=1", NULL, NULL, "", ST_UNSUPPORTED},
        {"a%00=1", NULL, NULL, "a%00", ST_UNSUPPORTED},
        {X50 X50 "=1", NULL, NULL, X50 X10 "xxxx", ST_UNSUPPORTED},
    };
    for (size_t i = 0; i < N_OF(rows); i++) {
        query_field f[] = {{.name = "a"}, {.name = "bb"}};
        err e;
        err_clear(&e);
        bool ok = query_read(rows[i].query, f, 2, &e);
        if (ok != !rows[i].fault ||
            (!ok && (e.code != rows[i].code || strcmp(e.field, rows[i].fault) != 0))) {
            fail_msg("%s: %d, %s \"%s\"", rows[i].query, ok, e.field, e.msg);
        }
        if (ok &&
            (f[0].given != (rows[i].a != NULL) || strcmp(f[0].value, rows[i].a ? rows[i].a : "") != 0 ||
             f[1].given != (rows[i].b != NULL) || strcmp(f[1].value, rows[i].b ? rows[i].b : "") != 0)) {
            fail_msg("%s: \"%s\", \"%s\"", rows[i].query, f[0].value, f[1].value);
        }
    }
}

static void test_int(void **state)
{
    static const struct {
        const char *text;
        int64_t min, want; /* want -1 = refused */
    } rows[] = {
        {"0", 0, 0},
        {"17", 0, 17},
        {"007", 0, 7},
        {"9223372036854775807", 0, INT64_MAX},
        {"9223372036854775808", 0, -1},
        {"99999999999999999999999", 0, -1},
        {"0", 1, -1},
        {"1", 1, 1},
        {"", 0, -1},
        {"-1", 0, -1},
        {"+1", 0, -1},
        {" 1", 0, -1},
        {"1 ", 0, -1},
        {"1e3", 0, -1},
        {"0x1", 0, -1},
        {"1.0", 0, -1},
    };
    for (size_t i = 0; i < N_OF(rows); i++) {
        query_field f = {.name = "n", .given = true};
        int64_t n = -1;
        err e;
        snprintf(f.value, sizeof f.value, "%s", rows[i].text);
        bool ok = query_int(&f, rows[i].min, &n, &e);
        if (ok != (rows[i].want >= 0) || n != rows[i].want || (!ok && strcmp(e.field, "n") != 0)) {
            fail_msg("\"%s\": %d, %lld", rows[i].text, ok, (long long)n);
        }
    }
}

/* A path: '+' is itself; it fits with its NUL or not at all. */
static void test_path(void **state)
{
    char out[4];
    assert_true(query_unescape("a+%2f", 5, false, out, sizeof out));
    assert_string_equal(out, "a+/");
    assert_false(query_unescape("a+%2fb", 6, false, out, sizeof out));
    assert_true(query_unescape("%41%4", 3, false, out, sizeof out)); /* the rest is somebody else's */
    assert_string_equal(out, "A");
    assert_false(query_unescape("%41%4", 5, false, out, sizeof out));
    assert_true(query_unescape("", 0, false, out, sizeof out));
    assert_string_equal(out, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_read), cmocka_unit_test(test_int),
                                       cmocka_unit_test(test_path)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
