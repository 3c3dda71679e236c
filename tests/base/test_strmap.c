#include "base/test_main.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/strmap.h"

#define N_KEYS 5000

static void test_put_get(void **state)
{
    strmap *m = NULL;
    int32_t v = -1;
    bool existed = true;
    assert_int_equal(strmap_new(0, &m), ST_OK);
    assert_false(strmap_get(m, "a", 1, &v));
    assert_int_equal(strmap_put(m, "a", 1, 7, &existed), ST_OK);
    assert_false(existed);
    assert_int_equal(strmap_put(m, "a", 1, 8, &existed), ST_OK);
    assert_true(existed);
    assert_true(strmap_get(m, "a", 1, &v));
    assert_int_equal(v, 7); /* the first value stays */
    assert_int_equal(strmap_put(m, "a\0b", 3, 9, NULL), ST_OK);
    assert_int_equal(strmap_put(m, "a\0c", 3, 10, NULL), ST_OK);
    assert_int_equal(strmap_put(m, NULL, 0, 11, NULL), ST_OK);
    assert_int_equal(strmap_count(m), 4);
    assert_true(strmap_get(m, "a\0b", 3, &v));
    assert_int_equal(v, 9);
    assert_true(strmap_get(m, "", 0, &v));
    assert_int_equal(v, 11);
    assert_false(strmap_remove(m, "b", 1));
    assert_true(strmap_remove(m, "", 0));
    assert_false(strmap_get(m, NULL, 0, NULL));
    assert_int_equal(strmap_count(m), 3);
    strmap_free(m);
    strmap_free(NULL);
}

/* Random puts and removes beside a plain array that says what must be there. */
static void test_against_array(void **state)
{
    static char keys[N_KEYS][8];
    static int32_t want[N_KEYS]; /* 0 = absent */
    strmap *m = NULL;
    uint32_t x = 1;
    size_t count = 0;
    memset(want, 0, sizeof want);
    assert_int_equal(strmap_new(10, &m), ST_OK);
    for (size_t i = 0; i < N_KEYS; i++) {
        snprintf(keys[i], sizeof keys[i], "k%zu", i);
    }
    for (int32_t round = 1; round < 40000; round++) {
        x = x * 1664525u + 1013904223u;
        size_t i = (x >> 8) % N_KEYS;
        size_t len = strlen(keys[i]);
        if (x >> 31) {
            assert_int_equal(strmap_put(m, keys[i], len, round, NULL), ST_OK);
            count += want[i] == 0;
            want[i] = want[i] ? want[i] : round;
        } else {
            assert_int_equal(strmap_remove(m, keys[i], len), want[i] != 0);
            count -= want[i] != 0;
            want[i] = 0;
        }
    }
    assert_int_equal(strmap_count(m), count);
    for (size_t i = 0; i < N_KEYS; i++) {
        int32_t v = 0;
        assert_int_equal(strmap_get(m, keys[i], strlen(keys[i]), &v), want[i] != 0);
        assert_int_equal(v, want[i]);
    }
    strmap_free(m);
}

/* An expected count that is met needs no allocation later. */
static void test_expected(void **state)
{
    static char keys[1000][8];
    strmap *m = NULL;
    assert_int_equal(strmap_new(N_OF(keys), &m), ST_OK);
    uint64_t before = mem_alloc_count();
    for (size_t i = 0; i < N_OF(keys); i++) {
        int n = snprintf(keys[i], sizeof keys[i], "%zu", i);
        assert_int_equal(strmap_put(m, keys[i], (size_t)n, (int32_t)i, NULL), ST_OK);
    }
    assert_true(mem_alloc_count() == before);
    strmap_free(m);
}

static void test_nomem(void **state)
{
    static char keys[100][8];
    strmap *m = NULL;
    for (uint64_t n = 1; n <= 2; n++) {
        mem_fail_at(n, false);
        assert_int_equal(strmap_new(4, &m), ST_NOMEM);
        mem_fail_at(0, false);
        assert_null(m);
    }
    assert_int_equal(strmap_new(SIZE_MAX, &m), ST_NOMEM);
    assert_int_equal(strmap_new(0, &m), ST_OK);
    mem_fail_at(1, true);
    size_t n = 0;
    for (; n < N_OF(keys); n++) {
        int len = snprintf(keys[n], sizeof keys[n], "%zu", n);
        if (strmap_put(m, keys[n], (size_t)len, (int32_t)n, NULL) != ST_OK) {
            break;
        }
    }
    mem_fail_at(0, false);
    assert_true(n > 0 && n < N_OF(keys));
    assert_int_equal(strmap_count(m), n);
    for (size_t i = 0; i < n; i++) { /* all that was there is still there */
        assert_true(strmap_get(m, keys[i], strlen(keys[i]), NULL));
    }
    strmap_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_put_get),
        cmocka_unit_test(test_against_array),
        cmocka_unit_test(test_expected),
        cmocka_unit_test(test_nomem),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
