/*
 * json_scan against RFC 8259: texts that are one object or array, the beginnings of them, and texts that no byte
 * more can mend; where it says complete the strict reader must agree, for every prefix.
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
#include "text/json_scan.h"

#define N_OF(array) (sizeof(array) / sizeof((array)[0]))

static json_scan_result scan(const char *text, size_t len, size_t *used)
{
    json_scan s;
    json_scan_result r = JSON_SCAN_MORE;
    json_scan_init(&s);
    for (*used = 0; *used < len && r == JSON_SCAN_MORE; ++*used) {
        r = json_scan_push(&s, (unsigned char)text[*used]);
    }
    return r;
}

static const char *const good[] = {
    "{}",
    "[]",
    "{ \"a\" : 1 , \"b\" : [ ] }",
    "[0, -0, 1, -12, 0.5, 1.25, 1e3, 1E+3, 1e-3, 0e0, -0.0e-10]",
    "[true, false, null, \"\", \"x\", {}, [[]]]",
    "[\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e4\\uD83D\\ude00\"]",
    "{\"\": {\"]\": \"}\"}}",
    "[1\n]",
    "[\"\xC3\xA4\"]",
};

/* Bad at the last byte, and not before. */
static const char *const bad[] = {
    "1",     "\"",    " ",     "{1",       "{\"a\",", "{\"a\":}", "{\"a\":1,}", "{]",     "[}",
    "[,",    "[1,]",  "[1 2",  "[01",      "[-a",     "[1.]",     "[1.e",       "[1e]",   "[1e+]",
    "[.",    "[+",    "[tru]", "[nulll",   "[T",      "['",       "[\"\n",      "[\"\\x", "[\"\\u12g",
    "[1.2.", "[1e3e", "[--",   "{\"a\" 1", "{a",      "[\"\x01",
};

static void test_good(void **state)
{
    for (size_t i = 0; i < N_OF(good); i++) {
        size_t used, len = strlen(good[i]);
        for (size_t n = 0; n < len; n++) { /* no beginning is complete, or bad */
            assert_int_equal(scan(good[i], n, &used), JSON_SCAN_MORE);
        }
        assert_int_equal(scan(good[i], len, &used), JSON_SCAN_DONE);
        json_doc *doc = NULL;
        assert_int_equal(json_parse(good[i], len, JSON_MAX_DEPTH, &doc, NULL), ST_OK);
        json_doc_free(doc);
    }
}

static void test_bad(void **state)
{
    for (size_t i = 0; i < N_OF(bad); i++) {
        size_t used, len = strlen(bad[i]);
        json_scan_result r = scan(bad[i], len, &used);
        if (r != JSON_SCAN_BAD || used != len) {
            fail_msg("%s: %d at %zu", bad[i], r, used);
        }
    }
}

static void test_depth(void **state)
{
    for (int object = 0; object < 2; object++) {
        json_scan s;
        json_scan_init(&s);
        for (unsigned i = 0; i < JSON_SCAN_MAX_DEPTH; i++) {
            const char *open = object ? "{\"k\":" : "[";
            for (size_t k = 0; k < (object ? 5 : 1); k++) {
                assert_int_equal(json_scan_push(&s, (unsigned char)open[k]), JSON_SCAN_MORE);
            }
        }
        json_scan deeper = s;
        assert_int_equal(json_scan_push(&deeper, '['), JSON_SCAN_BAD);
        assert_int_equal(json_scan_push(&s, '1'), JSON_SCAN_MORE);
        for (unsigned i = JSON_SCAN_MAX_DEPTH; i > 0; i--) {
            assert_int_equal(s.depth, i);
            assert_int_equal(json_scan_push(&s, object ? '}' : ']'),
                             i == 1 ? JSON_SCAN_DONE : JSON_SCAN_MORE);
        }
    }
}

/* Every text of up to five of these parts: complete exactly where the strict reader takes it. */
static void test_all_short(void **state)
{
    static const char *const parts[] = {"{", "}", "[", "]", ",", ":", "\"k\"", "0", "-1.5e2", "null", " "};
    enum { LEN = 5 };
    size_t n = 1;
    for (int i = 0; i < LEN; i++) {
        n *= N_OF(parts);
    }
    for (size_t i = 0; i < n; i++) {
        char text[64] = "";
        size_t code = i, used;
        for (int k = 0; k < LEN; k++, code /= N_OF(parts)) {
            strcat(text, parts[code % N_OF(parts)]);
        }
        size_t len = strlen(text);
        while (len > 0 && text[len - 1] == ' ') {
            len--;
        }
        bool done = scan(text, len, &used) == JSON_SCAN_DONE && used == len;
        json_doc *doc = NULL;
        bool read = text[0] != ' ' && json_parse(text, len, JSON_MAX_DEPTH, &doc, NULL) == ST_OK &&
                    (json_kind(json_root(doc)) == JSON_OBJECT || json_kind(json_root(doc)) == JSON_ARRAY);
        json_doc_free(doc);
        if (done != read) {
            fail_msg("[%s]: %d, the reader says %d", text, done, read);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_bad),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_all_short),
    };
    return cmocka_run_group_tests_name("text-json-scan", tests, NULL, NULL);
}
