/*
 * json, writing: what a text must look like is written out by hand; doubles are read back with strtod.
 */
#include "base/test_main.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fp16.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/philox.h"

static void test_structure(void **state)
{
    buf b = {0};
    json_w w;
    json_w_begin(&w, &b);
    json_w_obj_open(&w);
    json_w_key(&w, "a");
    json_w_i64(&w, INT64_MIN);
    json_w_key(&w, "b");
    json_w_arr_open(&w);
    json_w_u64(&w, UINT64_MAX);
    json_w_arr_open(&w);
    json_w_arr_close(&w);
    json_w_obj_open(&w);
    json_w_obj_close(&w);
    json_w_null(&w);
    json_w_bool(&w, true);
    json_w_bool(&w, false);
    json_w_arr_close(&w);
    json_w_key(&w, "c\"");
    json_w_obj_open(&w);
    json_w_key(&w, "d");
    json_w_cstr(&w, "e");
    json_w_key(&w, "f");
    json_w_f64(&w, 0.5);
    json_w_obj_close(&w);
    json_w_key(&w, "g");
    json_w_fixed(&w, 2.0 / 3, 2);
    json_w_obj_close(&w);
    assert_int_equal(json_w_end(&w), ST_OK);
    assert_string_equal(b.data,
                        "{\"a\":-9223372036854775808,\"b\":[18446744073709551615,[],{},null,true,false],"
                        "\"c\\\"\":{\"d\":\"e\",\"f\":0.5},\"g\":0.67}");
    json_w_begin(&w, &b); /* appends */
    json_w_null(&w);
    assert_int_equal(json_w_end(&w), ST_OK);
    assert_string_equal(b.data + b.len - 5, "}null");
    buf_release(&b);
}

static void test_strings(void **state)
{
    static const struct {
        const char *s;
        size_t n;
        const char *want;
    } cases[] = {
        {"", 0, "\"\""},
        {"plain", 5, "\"plain\""},
        {"\"\\/", 3, "\"\\\"\\\\/\""},
        {"\b\f\n\r\t", 5, "\"\\b\\f\\n\\r\\t\""},
        {"\x01\x1f\x7f", 3, "\"\\u0001\\u001f\\u007f\""},
        {"a\0b", 3, "\"a\\u0000b\""},
        {"\xC2\x9B\xC2\x80\xC2\xA0", 6, "\"\\u009b\\u0080\xC2\xA0\""},
        {"\xE2\x80\xA8\xE2\x80\xA9\xE2\x80\xA7", 9, "\"\\u2028\\u2029\xE2\x80\xA7\""},
        {"\xC3\xA9\xF0\x9F\x98\x80", 6, "\"\xC3\xA9\xF0\x9F\x98\x80\""},
        {"a\xF0\x9F\x98z\xFF", 6, "\"a\xEF\xBF\xBDz\xEF\xBF\xBD\""},
        {"\xED\xA0\x80", 3, "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\""},
        {"</script>", 9, "\"</script>\""},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        buf b = {0};
        json_w w;
        json_w_begin(&w, &b);
        json_w_str(&w, cases[i].s, cases[i].n);
        assert_int_equal(json_w_end(&w), ST_OK);
        assert_string_equal(buf_str(&b), cases[i].want);
        buf_release(&b);
    }
}

static void write_one(buf *b, double v)
{
    json_w w;
    buf_reset(b);
    json_w_begin(&w, b);
    json_w_f64(&w, v);
    assert_int_equal(json_w_end(&w), ST_OK);
}

/* Digits as in the shortest form that other implementations agree on (Python repr, JavaScript). */
static void test_doubles(void **state)
{
    static const struct {
        double v;
        const char *want;
    } cases[] = {
        {0.0, "0"},
        {-0.0, "-0.0"},
        {1, "1"},
        {-1.5, "-1.5"},
        {0.1, "0.1"},
        {0.1 + 0.2, "0.30000000000000004"},
        {1.0 / 3, "0.3333333333333333"},
        {100, "100"},
        {9007199254740992.0, "9007199254740992"},
        {1e22, "1e+22"},
        {1e23, "1e+23"},
        {0x1p-1074, "5e-324"},
        {0x1p-1022, "2.2250738585072014e-308"},
        {0x1.fffffffffffffp1023, "1.7976931348623157e+308"},
        {4.35, "4.35"},
        {(double)0.1f, "0.10000000149011612"},
        {(double)INFINITY, "null"},
        {-(double)INFINITY, "null"},
        {(double)NAN, "null"},
    };
    buf b = {0};
    for (size_t i = 0; i < N_OF(cases); i++) {
        write_one(&b, cases[i].v);
        assert_string_equal(b.data, cases[i].want);
    }
    buf_release(&b);
}

/* Any double, by its bits: reads back equal, through strtod and through our own reader. */
static void test_doubles_round_trip(void **state)
{
    buf b = {0};
    for (uint32_t i = 0; i < 20000; i++) {
        uint32_t r[4];
        uint64_t bits;
        double v, back = 0;
        json_doc *d = NULL;
        philox4x32_10((uint32_t[4]){i, 0, 0, 0}, (uint32_t[2]){1, 2}, r);
        bits = (uint64_t)r[0] << 32 | r[1];
        if (i % 4 == 0) {
            bits &= UINT64_C(0x800FFFFFFFFFFFFF); /* subnormal */
        }
        memcpy(&v, &bits, sizeof v);
        if (!isfinite(v)) {
            continue;
        }
        write_one(&b, v);
        assert_true(strtod(b.data, NULL) == v);
        assert_int_equal(json_parse(b.data, b.len, 1, &d, NULL), ST_OK);
        assert_true(json_f64(json_root(d), &back) && back == v);
        json_doc_free(d);
    }
    buf_release(&b);
}

static void test_fixed(void **state)
{
    static const struct {
        double v;
        int digits;
        const char *want;
    } cases[] = {
        {1.005, 1, "1.0"},
        {12.345, 0, "12"},
        {-0.5, 3, "-0.500"},
        {1e15, 2, "1000000000000000.00"},
        {(double)NAN, 2, "null"},
        {(double)INFINITY, 2, "null"},
        {3, -5, "3"},
        {0.25, 99, "0.25000000000000000"},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        buf b = {0};
        json_w w;
        json_w_begin(&w, &b);
        json_w_fixed(&w, cases[i].v, cases[i].digits);
        assert_int_equal(json_w_end(&w), ST_OK);
        assert_string_equal(b.data, cases[i].want);
        buf_release(&b);
    }
    buf b = {0};
    json_w w;
    json_w_begin(&w, &b);
    json_w_fixed(&w, -0x1.fffffffffffffp1023, 17);
    assert_int_equal(json_w_end(&w), ST_OK);
    assert_true(strtod(b.data, NULL) == -0x1.fffffffffffffp1023);
    buf_release(&b);
}

/* A program that embeds us may have set a locale whose decimal point is a comma. */
static void test_locale(void **state)
{
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "fr_FR.utf8", "de_DE"};
    const char *set = NULL;
    for (size_t i = 0; i < N_OF(names) && !set; i++) {
        set = setlocale(LC_NUMERIC, names[i]);
    }
    if (!set) {
        skip();
    }
    buf b = {0};
    json_doc *d = NULL;
    double v = 0;
    write_one(&b, 1234.5);
    status st = json_parse("0.1", 3, 1, &d, NULL);
    setlocale(LC_NUMERIC, "C");
    assert_string_equal(b.data, "1234.5");
    assert_int_equal(st, ST_OK);
    assert_true(json_f64(json_root(d), &v) && v == 0.1);
    json_doc_free(d);
    buf_release(&b);
}

static void test_sticky_nomem(void **state)
{
    for (uint64_t n = 1; n <= 3; n++) {
        buf b = {0};
        json_w w;
        mem_fail_at(n, false); /* one failure, and memory again afterwards */
        json_w_begin(&w, &b);
        json_w_arr_open(&w);
        for (int i = 0; i < 100; i++) {
            json_w_cstr(&w, "some text");
        }
        json_w_arr_close(&w);
        mem_fail_at(0, false);
        assert_int_equal(json_w_end(&w), ST_NOMEM);
        buf_release(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_structure),    cmocka_unit_test(test_strings),
        cmocka_unit_test(test_doubles),      cmocka_unit_test(test_doubles_round_trip),
        cmocka_unit_test(test_fixed),        cmocka_unit_test(test_locale),
        cmocka_unit_test(test_sticky_nomem),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
