/*
 * json, reading. What must be accepted and refused is RFC 8259 and PROTOCOL 2; offsets are counted by hand.
 */
#include "base/test_main.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/json.h"
#include "base/mem.h"
#include "fixtures.h"

#define DEPTH 8

/* The text up to its NUL; texts that hold one are tested apart. */
static const char *const accepted[] = {
    "null",
    "true",
    "false",
    "0",
    "-0",
    "1",
    "-1",
    "10",
    "1.5",
    "-0.0",
    "1e5",
    "1E5",
    "1e+5",
    "1E-5",
    "0e0",
    "0.0e-0",
    "1.0E+2",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "1e308",
    "1e-400",
    "1.7976931348623157e308",
    "\"\"",
    "\"a\"",
    "\" \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\u0000 \\uFFFF \"",
    "[]",
    "{}",
    "[ ]",
    "{ }",
    " \t\r\n[ \t\r\n1 \t\r\n, \t\r\n2 \t\r\n] \t\r\n",
    "{\"a\":1}",
    "{\"\":1}",
    "{\"a\":{\"a\":1}}",
    "[{\"a\":1},{\"a\":2}]",
    "{\"a\":1,\"A\":2}",
    "{ \"a\" : 1 , \"b\" : [ ] }",
    "\"\\uD83D\\uDE00\"",
    "\"\\ud800\\udc00\"",
    "\"\\uDBFF\\uDFFF\"",
    "\"\x7f\"",
    "\"\xC2\x80\xE2\x82\xAC\xF0\x9F\x98\x80\"",
    "\"\xEF\xBF\xBF\"",
    "[[[[[[[[]]]]]]]]",
    "{\"a\":[{\"b\":[{\"c\":[{\"d\":[0]}]}]}]}",
};

static const struct {
    const char *text;
    uint64_t at;
} refused[] = {
    {"", 0},
    {" ", 1},
    {"\n\t", 2},
    /* text after the value */
    {"1 2", 2},
    {"[] []", 3},
    {"{}x", 2},
    {"null,", 4},
    {"nullx", 4},
    {"\"a\"\"b\"", 3},
    {"1]", 1},
    {"[]]", 2},
    /* not JSON, though json-c and others take it */
    {"NaN", 0},
    {"nan", 0},
    {"Infinity", 0},
    {"-Infinity", 0},
    {"-inf", 0},
    {"'a'", 0},
    {"[1,2]/*c*/", 5},
    {"//c\n1", 0},
    {"{a:1}", 1},
    {"{'a':1}", 1},
    {"True", 0},
    {"NULL", 0},
    {"TRUE", 0},
    {"tru", 0},
    {"nul", 0},
    {"falsy", 0},
    {"\xEF\xBB\xBF[]", 0},
    {"\x0c[]", 0},
    {"\xC2\xA0[]", 0},
    {"undefined", 0},
    /* numbers */
    {"+1", 0},
    {"-", 0},
    {"01", 0},
    {"-01", 0},
    {"00", 0},
    {"1.", 0},
    {".5", 0},
    {"-.5", 0},
    {"1.e5", 0},
    {"1e", 0},
    {"1e+", 0},
    {"1E-", 0},
    {"1e5.5", 3},
    {"0x10", 1},
    {"1_000", 1},
    {"--1", 0},
    {"1-1", 1},
    {"[1a]", 2},
    {"[-a]", 1},
    {"18446744073709551616", 0},
    {"[18446744073709551616]", 1},
    {"-9223372036854775809", 0},
    {"99999999999999999999999999", 0},
    {"1e309", 0},
    {"-1e309", 0},
    {"1.7976931348623159e308", 0},
    {"1e99999999999", 0},
    /* strings */
    {"\"", 0},
    {"\"abc", 0},
    {"\"\\", 0},
    {"\"\\\"", 0},
    {"\"\\x41\"", 1},
    {"\"\\a\"", 1},
    {"\"\\'\"", 1},
    {"\"\\u\"", 1},
    {"\"\\u12\"", 1},
    {"\"\\u12G4\"", 1},
    {"\"\\u123", 1},
    {"\"a\nb\"", 2},
    {"\"\x1f\"", 1},
    {"\"\\U0041\"", 1},
    {"\"\\\n\"", 1},
    /* surrogates */
    {"\"\\uD800\"", 1},
    {"\"ab\\uDC00\"", 3},
    {"\"\\uD800\\uD800\"", 1},
    {"\"\\uD800x\"", 1},
    {"\"\\uD83D\\n\"", 1},
    {"\"\\uDE00\\uD83D\"", 1},
    {"\"\\uD83D\\u0041\"", 1},
    {"\"\\uD83D\\uDE0\"", 1},
    {"\"\\uD83D\\", 1},
    /* UTF-8 */
    {"\"\xff\"", 1},
    {"\"a\xC3\"", 2},
    {"\"\xC0\x80\"", 1},
    {"\"\xED\xA0\x80\"", 1},
    {"\"\xF4\x90\x80\x80\"", 1},
    {"\"ok\xE2\x82\"", 3},
    {"\"\x80\"", 1},
    /* structure */
    {"[", 1},
    {"{", 1},
    {"]", 0},
    {"}", 0},
    {"[1", 2},
    {"[1,", 3},
    {"[1,]", 3},
    {"[,1]", 1},
    {"[1,,2]", 3},
    {"[1 2]", 3},
    {"[1}", 2},
    {"{\"a\"]", 4},
    {"{\"a\"", 4},
    {"{\"a\":", 5},
    {"{\"a\":}", 5},
    {"{\"a\":1", 6},
    {"{\"a\":1,", 7},
    {"{\"a\":1,}", 7},
    {"{,}", 1},
    {"{1:2}", 1},
    {"{\"a\" 1}", 5},
    {"{\"a\":1:2}", 6},
    {"{\"a\":1]", 6},
    {"{null:1}", 1},
    {"[1:2]", 2},
    {"{\"a\"}", 4},
    {"{\"a\",1}", 4},
    {"{[]:1}", 1},
    {"[\"a\":1]", 4},
    {":", 0},
    {",", 0},
    /* too deep: the ninth bracket */
    {"[[[[[[[[[]]]]]]]]]", 8},
    {"[[[[[[[[{}]]]]]]]]", 8},
    {"{\"a\":[{\"a\":[{\"a\":[{\"a\":[[]]}]}]}]}", 24},
    /* keys that stand twice in one object, however they are written */
    {"{\"a\":1,\"a\":2}", 7},
    {"{\"a\":1,\"\\u0061\":2}", 7},
    {"{\"\\u0061\":1,\"a\":1}", 12},
    {"{\"\":1,\"\":1}", 6},
    {"{\"/\":1,\"\\/\":1}", 7},
    {"{\"\xC3\xA9\":1,\"\\u00E9\":1}", 8},
    {"[{\"a\":1,\"b\":{\"a\":2},\"a\":3}]", 20},
    {"{\"\xF0\x9F\x98\x80\":1,\"\\uD83D\\uDE00\":1}", 10},
    {"{\"a\\n\":null,\"a\\u000a\":1}", 12},
    /* a key with U+0000 */
    {"{\"\\u0000\":1}", 1},
    {"{\"a\":1,\"a\\u0000\":1}", 7},
};

static void test_accepted(void **state)
{
    for (size_t i = 0; i < N_OF(accepted); i++) {
        json_doc *d = NULL;
        err e;
        if (json_parse(accepted[i], strlen(accepted[i]), DEPTH, &d, &e) != ST_OK) {
            fail_msg("%s: %s", accepted[i], e.msg);
        }
        json_doc_free(d);
    }
    json_doc_free(NULL);
}

static void test_refused(void **state)
{
    for (size_t i = 0; i < N_OF(refused); i++) {
        json_doc *d = NULL;
        err e;
        err_clear(&e);
        status st = json_parse(refused[i].text, strlen(refused[i].text), DEPTH, &d, &e);
        if (st != ST_BAD_REQUEST || e.code != st || e.offset != refused[i].at || e.msg[0] == '\0' || d) {
            fail_msg("%s: status %d, offset %llu instead of %llu, %s", refused[i].text, st,
                     (unsigned long long)e.offset, (unsigned long long)refused[i].at, e.msg);
        }
        assert_int_equal(json_parse(refused[i].text, strlen(refused[i].text), DEPTH, &d, NULL),
                         ST_BAD_REQUEST);
    }
}

/* Each accepted text cut anywhere is refused, or is a shorter number; nothing behind len is looked at. */
static void test_cut_anywhere(void **state)
{
    for (size_t i = 0; i < N_OF(accepted); i++) {
        for (size_t n = 0; n < strlen(accepted[i]); n++) {
            char *exact = mem_strndup(accepted[i], n); /* ASan: not a byte more */
            json_doc *d = NULL;
            if (json_parse(exact, n, DEPTH, &d, NULL) == ST_OK) {
                json_type kind = json_kind(json_root(d));
                assert_true(kind == JSON_INT || kind == JSON_DOUBLE || strchr(" \t\r\n", accepted[i][n]));
                json_doc_free(d);
            }
            mem_free(exact);
        }
    }
    json_doc *d = NULL;
    assert_int_equal(json_parse("[1]\0", 4, DEPTH, &d, NULL),
                     ST_BAD_REQUEST); /* a NUL is text after the value */
    assert_int_equal(json_parse("\"a\0b\"", 5, DEPTH, &d, NULL), ST_BAD_REQUEST);
    assert_int_equal(json_parse("123456", 3, DEPTH, &d, NULL), ST_OK);
    int64_t v = 0;
    assert_true(json_i64(json_root(d), &v));
    assert_int_equal(v, 123);
    json_doc_free(d);
}

static json_doc *must_parse(const char *text)
{
    json_doc *d = NULL;
    err e;
    if (json_parse(text, strlen(text), JSON_MAX_DEPTH, &d, &e) != ST_OK) {
        fail_msg("%s: %s", text, e.msg);
    }
    return d;
}

static const struct {
    const char *text;
    bool is_int, i64_ok, u64_ok;
    int64_t i64;
    uint64_t u64;
    double f64;
} numbers[] = {
    {"0", true, true, true, 0, 0, 0},
    {"-0", true, true, true, 0, 0, 0},
    {"-1", true, true, false, -1, 0, -1},
    {"9223372036854775807", true, true, true, INT64_MAX, INT64_MAX, 0x1p63},
    {"9223372036854775808", true, false, true, 0, UINT64_C(1) << 63, 0x1p63},
    {"-9223372036854775808", true, true, false, INT64_MIN, 0, -0x1p63},
    {"18446744073709551615", true, false, true, 0, UINT64_MAX, 0x1p64},
    {"9007199254740993", true, true, true, 9007199254740993, 9007199254740993, 9007199254740992.0},
    {"1.0", false, false, false, 0, 0, 1},
    {"1e2", false, false, false, 0, 0, 100},
    {"-0.0", false, false, false, 0, 0, -0.0},
    {"0.1", false, false, false, 0, 0, 0.1},
    {"4.9406564584124654e-324", false, false, false, 0, 0, 0x1p-1074},
    {"2.2250738585072011e-308", false, false, false, 0, 0, 0x0.fffffffffffffp-1022},
    {"1.7976931348623157e308", false, false, false, 0, 0, 0x1.fffffffffffffp1023},
    {"1e-999", false, false, false, 0, 0, 0},
    {"123456789012345678901234567890.0", false, false, false, 0, 0, 123456789012345678901234567890.0},
};

static void test_numbers(void **state)
{
    for (size_t i = 0; i < N_OF(numbers); i++) {
        json_doc *d = must_parse(numbers[i].text);
        const json *v = json_root(d);
        int64_t i64 = 0;
        uint64_t u64 = 0;
        double f64 = 99;
        assert_int_equal(json_kind(v), numbers[i].is_int ? JSON_INT : JSON_DOUBLE);
        assert_int_equal(json_i64(v, &i64), numbers[i].i64_ok);
        assert_int_equal(json_u64(v, &u64), numbers[i].u64_ok);
        assert_true(i64 == numbers[i].i64 && u64 == numbers[i].u64);
        assert_true(json_f64(v, &f64));
        assert_true(f64 == numbers[i].f64 && !signbit(f64) == !signbit(numbers[i].f64));
        json_doc_free(d);
    }
}

/* 2^1024 - 2^970 is halfway to the first number that does not exist: it and all above round to infinity. */
#define HALFWAY_HEAD                                                                                       \
    "1797693134862315807937289714053034150799341327100378269361737789804449682927647509466490179775872070" \
    "9633028641669288791094655554785194040263065748867150582068190890200070838367627385484581771153176447" \
    "5730270069855571366959622842914819860834936475292719074168444365510704342711559699508093042880177904" \
    "1744977"

static void test_overflow_is_exact(void **state)
{
    static const struct {
        const char *tail;
        bool ok;
    } cases[] = {
        {"92.0", false}, {"91.999999", true}, {"92.000001", false}, {"91e0", true},
        {"92e0", false}, {"91.0e-1", true},   {"92.0e1", false},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        char text[400];
        json_doc *d = NULL;
        snprintf(text, sizeof text, "%s%s", HALFWAY_HEAD, cases[i].tail);
        assert_int_equal(json_parse(text, strlen(text), DEPTH, &d, NULL),
                         cases[i].ok ? ST_OK : ST_BAD_REQUEST);
        if (cases[i].ok) {
            json_doc_free(d);
        }
    }
}

static void test_strings(void **state)
{
    static const struct {
        const char *text, *want;
        size_t n;
    } cases[] = {
        {"\"\"", "", 0},
        {"\"abc\"", "abc", 3},
        {"\"a\\u0000b\"", "a\0b", 3},
        {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t", 8},
        {"\"\\u0041\\u00e9\\u20AC\\uD83D\\uDE00\"", "A\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80", 10},
        {"\"x\\uFFFFy\xEF\xBF\xBD\"", "x\xEF\xBF\xBFy\xEF\xBF\xBD", 8},
        {"\"a long string, longer than any that a reader might keep in a node, with one \\n in it\"",
         "a long string, longer than any that a reader might keep in a node, with one \n in it", 83},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        json_doc *d = must_parse(cases[i].text);
        size_t n = 99;
        const char *s = json_string(json_root(d), &n);
        assert_int_equal(n, cases[i].n);
        assert_memory_equal(s, cases[i].want, n + 1); /* with the NUL behind it */
        assert_ptr_equal(json_string(json_root(d), NULL), s);
        json_doc_free(d);
    }
}

typedef struct visit {
    char keys[100];
    size_t n, stop_after;
} visit;

static bool visit_member(void *ctx, const char *key, size_t key_len, const json *v)
{
    visit *w = ctx;
    int64_t number = -1;
    assert_int_equal(strlen(key), key_len);
    assert_true(json_i64(v, &number));
    assert_int_equal(number, w->n);
    strcat(w->keys, key);
    return ++w->n < w->stop_after;
}

static void test_tree(void **state)
{
    json_doc *d = must_parse("{\"z\":0,\"b\":1,\"a\":2,\"zz\":3}");
    visit w = {.stop_after = 99};
    json_each(json_root(d), visit_member, &w);
    assert_string_equal(w.keys, "zbazz"); /* as written, not sorted */
    w = (visit){.stop_after = 2};
    json_each(json_root(d), visit_member, &w);
    assert_string_equal(w.keys, "zb");
    assert_int_equal(json_len(json_root(d)), 4);
    json_doc_free(d);

    d = must_parse("{\"arr\":[1,\"two\",null,true,{}],\"none\":null,\"yes\":true,\"no\":false}");
    const json *root = json_root(d), *v = NULL;
    bool b = false;
    assert_int_equal(json_kind(root), JSON_OBJECT);
    assert_true(json_get(root, "none", &v));
    assert_null(v);
    assert_int_equal(json_kind(v), JSON_NULL);
    v = root;
    assert_false(json_get(root, "absent", &v));
    assert_ptr_equal(v, root); /* written only on success */
    assert_true(json_get(root, "none", NULL));
    assert_true(json_get(root, "yes", &v) && json_bool(v, &b) && b);
    assert_true(json_get(root, "no", &v) && json_bool(v, &b) && !b);
    assert_true(json_get(root, "arr", &v));
    assert_int_equal(json_len(v), 5);
    assert_int_equal(json_kind(json_at(v, 1)), JSON_STRING);
    assert_null(json_at(v, 2));
    assert_null(json_at(v, 5));
    assert_null(json_at(v, SIZE_MAX));
    assert_int_equal(json_kind(json_at(v, 4)), JSON_OBJECT);
    json_doc_free(d);
}

/* Every reader refuses every other type, and null. */
static void test_wrong_type(void **state)
{
    static const char *const texts[] = {"null", "true", "1", "1.5", "\"1\"", "[1]", "{\"a\":1}"};
    for (size_t i = 0; i < N_OF(texts); i++) {
        json_doc *d = must_parse(texts[i]);
        const json *v = json_root(d), *m = NULL;
        bool b;
        int64_t i64;
        uint64_t u64;
        double f64;
        assert_int_equal(json_kind(v), (json_type)i);
        assert_int_equal(json_bool(v, &b), i == JSON_BOOL);
        assert_int_equal(json_i64(v, &i64), i == JSON_INT);
        assert_int_equal(json_u64(v, &u64), i == JSON_INT);
        assert_int_equal(json_f64(v, &f64), i == JSON_INT || i == JSON_DOUBLE);
        assert_int_equal(json_string(v, NULL) != NULL, i == JSON_STRING);
        assert_int_equal(json_get(v, "a", &m), i == JSON_OBJECT);
        assert_int_equal(json_at(v, 0) != NULL, i == JSON_ARRAY);
        assert_int_equal(json_len(v), i == JSON_ARRAY || i == JSON_OBJECT);
        json_each(i == JSON_OBJECT ? NULL : v, visit_member, NULL); /* visits nothing */
        json_doc_free(d);
    }
}

static void test_duplicate_named(void **state)
{
    json_doc *d = NULL;
    err e;
    static const char text[] = "{\"temperature\":1,\"seed\":2,\"temperature\":0}";
    assert_int_equal(json_parse(text, strlen(text), DEPTH, &d, &e), ST_BAD_REQUEST);
    assert_string_equal(e.field, "temperature");
    assert_non_null(strstr(e.msg, "duplicate"));
}

static void test_depth(void **state)
{
    static char text[2 * 20000];
    json_doc *d = NULL;
    err e;
    for (size_t deep = 255; deep <= 258; deep++) {
        memset(text, '[', deep);
        memset(text + deep, ']', deep);
        bool ok = deep <= JSON_MAX_DEPTH;
        assert_int_equal(json_parse(text, 2 * deep, 100000, &d, &e), ok ? ST_OK : ST_BAD_REQUEST);
        if (ok) {
            json_doc_free(d);
        } else {
            assert_true(e.offset == JSON_MAX_DEPTH);
        }
    }
    memset(text, '[', sizeof text);
    assert_int_equal(json_parse(text, sizeof text, JSON_MAX_DEPTH, &d, &e), ST_BAD_REQUEST);
    assert_true(e.offset == JSON_MAX_DEPTH);
    assert_int_equal(json_parse("1", 1, 0, &d, NULL), ST_OK);
    json_doc_free(d);
    assert_int_equal(json_parse("[]", 2, 0, &d, NULL), ST_BAD_REQUEST);
    assert_int_equal(json_parse("[]", 2, 1, &d, NULL), ST_OK);
    json_doc_free(d);
    assert_int_equal(json_parse(text, JSON_MAX_BYTES + 1, 1, &d, &e), ST_BAD_REQUEST); /* not read at all */
}

/* Around the size where an index begins and where it doubles: each member is found, each duplicate too. */
static void test_large_objects(void **state)
{
    static const unsigned sizes[] = {1, 7, 8, 9, 10, 15, 16, 17, 31, 32, 33, 64, 65, 1000};
    for (size_t k = 0; k < N_OF(sizes); k++) {
        buf b = {0};
        unsigned n = sizes[k];
        for (unsigned i = 0; i < n; i++) {
            assert_int_equal(buf_printf(&b, "%s\"k%u\":%u", i ? "," : "{", i, i), ST_OK);
        }
        assert_int_equal(buf_append_char(&b, '}'), ST_OK);
        json_doc *d = must_parse(b.data);
        const json *v = NULL;
        assert_int_equal(json_len(json_root(d)), n);
        for (unsigned i = 0; i < n; i++) {
            char key[16];
            uint64_t number = 0;
            snprintf(key, sizeof key, "k%u", i);
            assert_true(json_get(json_root(d), key, &v) && json_u64(v, &number));
            assert_int_equal(number, i);
        }
        assert_false(json_get(json_root(d), "k", &v));
        assert_false(json_get(json_root(d), "k99999", &v));
        json_doc_free(d);
        d = NULL;
        size_t at = b.len; /* the quote of the key that comes next */
        b.data[b.len - 1] = ',';
        for (unsigned i = 0; i < n; i += 1 + n / 5) {
            err e;
            buf_truncate(&b, at);
            assert_int_equal(buf_printf(&b, "\"k%u\":{}}", i), ST_OK);
            assert_int_equal(json_parse(b.data, b.len, DEPTH, &d, &e), ST_BAD_REQUEST);
            assert_true(e.offset == at);
            assert_null(d);
        }
        buf_release(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accepted),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_cut_anywhere),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_overflow_is_exact),
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_tree),
        cmocka_unit_test(test_wrong_type),
        cmocka_unit_test(test_duplicate_named),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_large_objects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
