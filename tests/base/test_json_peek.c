/* json_peek_string: one string of a text that there is no memory to parse. */
#include "base/test_main.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"

#define LONG_256                                                       \
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef" \
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef" \
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef" \
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static const struct {
    const char *text, *want; /* NULL: there is none */
} rows[] = {
    {"{\"id\":\"a\"}", "a"},
    {" \t{ \"id\" : \"a\" , \"b\":1}", "a"},
    {"{\"a\":-1.5e3,\"b\":[1,{\"id\":\"x\"},\"]\"],\"c\":{\"id\":\"y\",\"d\":{}},\"e\":null,\"id\":\"a\"}",
     "a"},
    {"{\"x\":\"\\\"id\\\":\",\"id\":\"a\"}", "a"},
    {"{\"i\\u0064\":\"\\ud83d\\ude00\\n\"}", "\xF0\x9F\x98\x80\n"},
    {"{\"id\":\"\"}", ""},
    {"{\"idx\":\"b\",\"i\":\"c\",\"id\":\"a\"}", "a"},
    {"{\"id\":\"a\",\"id\":\"b\"}", "a"},    /* a parser refuses it */
    {"{\"id\":\"a\", this is no JSON", "a"}, /* not looked at */
    {"{\"id\":\"" LONG_256 "\"}", LONG_256},
    {"{\"" LONG_256 "x\":1,\"id\":\"a\"}", "a"},
    {"{\"id\":\"" LONG_256 "x\"}", NULL},
    {"{\"id\":1}", NULL},
    {"{\"id\":null}", NULL},
    {"{\"id\":\"a", NULL},
    {"{\"id\":\"\\ud83d\"}", NULL},
    {"{\"id\":\"\xFF\"}", NULL},
    {"{\"a\":}", NULL},
    {"{\"a\":,\"id\":\"a\"}", NULL},
    {"{}", NULL},
    {"{", NULL},
    {"", NULL},
    {"[\"id\",\"a\"]", NULL},
    {"\"id\"", NULL},
    {"{\"a\":{\"id\":\"x\"}}", NULL},
};

static void test_rows(void **state)
{
    for (size_t i = 0; i < N_OF(rows); i++) {
        char got[JSON_PEEK_BYTES];
        size_t n = 0;
        mem_fail_at(1, true);
        bool there = json_peek_string(rows[i].text, strlen(rows[i].text), "id", got, &n);
        mem_fail_at(0, false);
        assert_int_equal(there, rows[i].want != NULL);
        if (there) {
            assert_int_equal(n, strlen(rows[i].want));
            assert_memory_equal(got, rows[i].want, n);
        }
    }
}

/* Cut anywhere (in a block of its own, for ASan) it says the same or nothing. */
static void test_cut(void **state)
{
    for (size_t i = 0; i < N_OF(rows); i++) {
        for (size_t len = 0; len <= strlen(rows[i].text); len++) {
            char got[JSON_PEEK_BYTES], *cut = mem_alloc(len);
            size_t n = 0;
            memcpy(cut, rows[i].text, len);
            if (json_peek_string(cut, len, "id", got, &n)) {
                assert_non_null(rows[i].want);
                assert_int_equal(n, strlen(rows[i].want));
                assert_memory_equal(got, rows[i].want, n);
            }
            mem_free(cut);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_cut),
    };
    return cmocka_run_group_tests_name("json_peek", tests, NULL, NULL);
}
