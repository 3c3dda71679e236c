/*
 * Stop strings against a naive search, for every way of cutting the text into pushes (FAILURES T2).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "text/stop.h"

#define N_OF(array) (sizeof(array) / sizeof((array)[0]))
#define MAX_STOPS   8

typedef struct expected {
    char shown[64]; /* what a reader ends up with */
    size_t len;
    int32_t matched;
} expected;

/* The rule as it stands: bytes one by one; the first byte at which some string ends decides, the longest of
 * them. */
static expected naive(const char *const *stops, size_t n, const char *text)
{
    expected e = {.matched = -1};
    for (size_t end = 1; end <= strlen(text) && e.matched < 0; end++) {
        size_t best = 0;
        for (size_t i = 0; i < n; i++) {
            size_t len = strlen(stops[i]);
            if (len > best && len <= end && memcmp(text + end - len, stops[i], len) == 0) {
                best = len;
                e.matched = (int32_t)i;
            }
        }
        e.len = end - best;
    }
    memcpy(e.shown, text, e.len);
    return e;
}

/* Longest end of text that begins a stop string but is not all of it. */
static size_t naive_held(const char *const *stops, size_t n, const char *text, size_t len)
{
    size_t held = 0;
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 1; k < strlen(stops[i]) && k <= len; k++) {
            if (k > held && memcmp(text + len - k, stops[i], k) == 0) {
                held = k;
            }
        }
    }
    return held;
}

static stop_set *set_of(const char *const *stops, size_t n)
{
    stop_string strings[MAX_STOPS];
    stop_set *s = NULL;
    for (size_t i = 0; i < n; i++) {
        strings[i] = (stop_string){stops[i], strlen(stops[i])};
    }
    assert_int_equal(stop_set_new(strings, n, &s, NULL), ST_OK);
    return s;
}

/* cuts: bit i = a push ends behind byte i. */
static void check_cut(const stop_set *set, const char *const *stops, size_t n, const char *text,
                      uint32_t cuts)
{
    expected want = naive(stops, n, text);
    size_t len = strlen(text), at = 0;
    stop_matcher m;
    buf out = {0};
    stop_matcher_init(&m, set);
    for (size_t i = 0; i < len; i++) {
        if (i + 1 < len && !(cuts >> i & 1)) {
            continue;
        }
        assert_int_equal(stop_matcher_push(&m, text + at, i + 1 - at, &out), ST_OK);
        at = i + 1;
        if (m.matched < 0) { /* everything that can be shown is shown, and nothing else */
            assert_int_equal(out.len, at - naive_held(stops, n, text, at));
            assert_int_equal(m.held.len, at - out.len);
        }
    }
    assert_int_equal(stop_matcher_flush(&m, &out), ST_OK);
    assert_int_equal(m.matched, want.matched);
    assert_int_equal(out.len, want.len);
    assert_memory_equal(buf_str(&out), want.shown, want.len);
    buf_release(&out);
    stop_matcher_release(&m);
}

static const struct row {
    const char *stops[MAX_STOPS];
    const char *text;
} rows[] = {
    {{"END"}, "say ENEND no"},
    {{"abc", "b"}, "xabcx"},       /* b is complete first */
    {{"abc", "bc", "c"}, "xabcx"}, /* all at once: the longest */
    {{"ab", "abab"}, "aabab"},     /* one a prefix of another */
    {{"hello"}, "hello"},          /* the whole answer */
    {{"hello!"}, "hello"},         /* begun, never finished */
    {{"aab"}, "aaab"},             /* falls back to a shorter beginning */
    {{"\n\n", "\n\nUser:"}, "a\nb\n\n"},
    {{""}, "abc"},              /* ignored */
    {{"", "c", "c"}, "abcd"},   /* of equal ones the first */
    {{"\xA9"}, "caf\xC3\xA9!"}, /* inside a character */
    {{"abcabd"}, "abcabcabd"},
    {{"a"}, ""},
    {{NULL}, "nothing to find"},
};

static void test_every_cut(void **state)
{
    for (size_t r = 0; r < N_OF(rows); r++) {
        size_t n = 0, len = strlen(rows[r].text);
        while (n < MAX_STOPS && rows[r].stops[n]) {
            n++;
        }
        stop_set *set = set_of(rows[r].stops, n);
        for (uint32_t cuts = 0; cuts < (len ? UINT32_C(1) << (len - 1) : 1); cuts++) {
            check_cut(set, rows[r].stops, n, rows[r].text, cuts);
        }
        stop_set_free(set);
    }
}

static uint32_t next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33);
}

static void test_random(void **state)
{
    uint64_t rng = 9;
    for (int round = 0; round < 3000; round++) {
        char stops[MAX_STOPS][8] = {{0}}, text[24] = {0};
        const char *list[MAX_STOPS];
        size_t n = next_random(&rng) % MAX_STOPS, len = next_random(&rng) % 23;
        for (size_t i = 0; i < n; i++) {
            for (size_t k = next_random(&rng) % 6; k-- > 0;) {
                stops[i][k] = (char)('a' + next_random(&rng) % 2);
            }
            list[i] = stops[i];
        }
        for (size_t i = 0; i < len; i++) {
            text[i] = (char)('a' + next_random(&rng) % 2);
        }
        stop_set *set = set_of(list, n);
        for (int k = 0; k < 4; k++) {
            check_cut(set, list, n, text, next_random(&rng));
        }
        stop_set_free(set);
    }
}

/* A thousand strings, each a number; the text counts upwards. */
static void test_thousand(void **state)
{
    static char texts[1000][24];
    static stop_string strings[1000];
    for (int i = 0; i < 1000; i++) {
        snprintf(texts[i], sizeof texts[i], "<stop %d>", i);
        strings[i] = (stop_string){texts[i], strlen(texts[i])};
    }
    stop_set *set = NULL;
    stop_matcher m;
    buf out = {0};
    assert_int_equal(stop_set_new(strings, 1000, &set, NULL), ST_OK);
    stop_matcher_init(&m, set);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(stop_matcher_push(&m, "<stop x> <stop ", 15, &out), ST_OK);
    }
    assert_int_equal(m.matched, -1);
    assert_string_equal(buf_str(&m.held), "<stop ");
    assert_int_equal(stop_matcher_push(&m, "731> more", 9, &out), ST_OK);
    assert_int_equal(m.matched, 731);
    assert_int_equal(out.len, 15 * 1000 - 6);
    assert_int_equal(stop_matcher_push(&m, "<stop 1>", 8, &out), ST_OK); /* nothing comes behind a match */
    assert_int_equal(stop_matcher_flush(&m, &out), ST_OK);
    assert_int_equal(m.matched, 731);
    assert_int_equal(out.len, 15 * 1000 - 6);
    buf_release(&out);
    stop_matcher_release(&m);
    stop_set_free(set);
}

static void test_limits(void **state)
{
    static stop_string many[STOP_MAX_STRINGS + 1];
    static char big[STOP_MAX_TOTAL_BYTES + 1];
    stop_set *set = NULL;
    err e = {0};
    for (size_t i = 0; i <= STOP_MAX_STRINGS; i++) {
        many[i] = (stop_string){"x", 1};
    }
    assert_int_equal(stop_set_new(many, STOP_MAX_STRINGS + 1, &set, &e), ST_INVALID_FIELD);
    assert_string_equal(e.field, "stop");
    assert_int_equal(stop_set_new(many, STOP_MAX_STRINGS, &set, &e), ST_OK);
    stop_set_free(set);
    memset(big, 'a', sizeof big);
    stop_string one = {big, sizeof big};
    assert_int_equal(stop_set_new(&one, 1, &set, &e), ST_INVALID_FIELD);
    assert_string_equal(e.field, "stop");
    one.len--;
    assert_int_equal(stop_set_new(&one, 1, &set, &e), ST_OK);
    stop_matcher m;
    buf out = {0};
    stop_matcher_init(&m, set);
    assert_int_equal(stop_matcher_push(&m, big, sizeof big - 2, &out), ST_OK);
    assert_int_equal(out.len, 0);
    assert_int_equal(stop_matcher_push(&m, "b", 1, &out), ST_OK);
    assert_int_equal(out.len, sizeof big - 1);
    buf_release(&out);
    stop_matcher_release(&m);
    stop_set_free(set);
}

static void test_no_set(void **state)
{
    stop_matcher m;
    buf out = {0};
    stop_matcher_init(&m, NULL);
    assert_int_equal(stop_matcher_push(&m, "text", 4, &out), ST_OK);
    assert_string_equal(buf_str(&out), "text");
    assert_int_equal(stop_matcher_flush(&m, &out), ST_OK);
    assert_int_equal(out.len, 4);
    buf_release(&out);
    stop_matcher_release(&m);
    stop_set_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_cut), cmocka_unit_test(test_random), cmocka_unit_test(test_thousand),
        cmocka_unit_test(test_limits),    cmocka_unit_test(test_no_set),
    };
    return cmocka_run_group_tests_name("text-stop", tests, NULL, NULL);
}
