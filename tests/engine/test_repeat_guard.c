/*
 * Whether a reply repeats itself, against a search over all periods token by token: on hand-made tails, on random
 * sequences over few tokens (which repeat by chance), and on those that are bad for prefix functions.
 */
#include "engine/test_main.h"

#include <string.h>

#include "base/mem.h"
#include "engine/repeat_guard.h"

#define MOST 5000

/* The sentence of the header, as it stands. */
static bool naive_fires(const int32_t *g, size_t n, size_t span)
{
    if (span == 0 || n < span || n % REPEAT_STRIDE != 0) {
        return false;
    }
    const int32_t *w = g + n - span;
    for (size_t period = 1; period * REPEAT_COPIES <= span; period++) {
        size_t i = period;
        while (i < span && w[i] == w[i - period]) {
            i++;
        }
        if (i == span) {
            return true;
        }
    }
    return false;
}

/* The real one on memory of exactly the sizes it may use, so that a sanitizer sees a step beyond. */
static bool fires(const int32_t *g, size_t n, size_t span)
{
    int32_t *copy = mem_alloc_array(n, sizeof *copy), *scratch = mem_alloc_array(span, sizeof *scratch);
    assert_true(copy && scratch);
    memcpy(copy, g, n * sizeof *copy);
    bool got = repeat_guard_fires(copy, n, span, scratch);
    mem_free(copy);
    mem_free(scratch);
    return got;
}

/* n tokens: n - tail that never repeat, then copies of 1 … period. */
static void make_tail(int32_t *g, size_t n, size_t tail, size_t period)
{
    for (size_t i = 0; i < n; i++) {
        g[i] = i < n - tail ? (int32_t)(100000 + i) : (int32_t)((i - (n - tail)) % period + 1);
    }
}

typedef struct tail_case {
    const char *name;
    size_t n, tail, period, span;
    bool fires;
} tail_case;

static const tail_case tail_cases[] = {
    {"off", 64, 64, 1, 0, false},
    {"one token", 64, 64, 1, 64, true},
    {"eight copies", 64, 64, 8, 64, true},
    {"a run that is too long for eight", 64, 64, 9, 64, false},
    {"only the last span counts", 128, 64, 8, 64, true},
    {"one token short of the span", 128, 63, 8, 64, false},
    {"more than eight, not even", 64, 64, 7, 64, true},
    {"too few generated", 32, 32, 1, 64, false},
    {"as many as the span", 96, 96, 12, 96, true},
    {"not looked at in between", 65, 65, 1, 64, false},
    {"nor one before", 63, 63, 1, 32, false},
    {"looked at again a stride later", 96, 96, 1, 64, true},
    {"a span that is no multiple of the stride", 128, 128, 12, 100, true},
    {"the same, too long a run", 128, 128, 13, 100, false},
    {"the same, not yet as many", 96, 96, 12, 100, false},
    {"the smallest span", 32, 16, 2, 16, true},
    {"its longest run", 32, 16, 3, 16, false},
    {"the largest span", 4096, 4096, 512, 4096, true},
    {"its longest run and one", 4096, 4096, 513, 4096, false},
};

static void test_tails(void **state)
{
    static int32_t g[MOST];
    for (size_t i = 0; i < N_OF(tail_cases); i++) {
        const tail_case *c = &tail_cases[i];
        make_tail(g, c->n, c->tail, c->period);
        assert_int_equal(naive_fires(g, c->n, c->span), c->fires);
        if (fires(g, c->n, c->span) != c->fires) {
            print_error("%s\n", c->name);
            fail();
        }
    }
    assert_false(repeat_guard_fires(NULL, 0, 64, g));
    assert_false(repeat_guard_fires(NULL, 0, 0, NULL));
}

/* One other token anywhere in the span, and it is no copy. */
static void test_one_token_differs(void **state)
{
    static int32_t g[256];
    for (size_t at = 0; at < 256; at++) {
        make_tail(g, 256, 256, 5);
        g[at] = 77;
        assert_int_equal(fires(g, 256, 128), at < 128);
    }
}

static uint32_t next(uint32_t *x)
{
    *x = *x * 1664525u + 1013904223u;
    return *x >> 10;
}

/* Random runs over one to three tokens, repeated now and then with a fault in them. */
static void test_random(void **state)
{
    static const size_t spans[] = {16, 17, 31, 32, 48, 64, 100, 129};
    static int32_t g[512];
    uint32_t x = 4711;
    size_t n_fired = 0, n_not = 0;
    for (int round = 0; round < 20000; round++) {
        size_t n = 32 * (next(&x) % 8 + 1) + (next(&x) % 8 == 0);
        size_t period = next(&x) % 20 + 1;
        uint32_t n_tokens = next(&x) % 3 + 1;
        for (size_t i = 0; i < n; i++) {
            g[i] = i < period ? (int32_t)(next(&x) % n_tokens) : g[i - period];
        }
        if (next(&x) % 2) {
            g[next(&x) % n] = 3;
        }
        size_t span = spans[next(&x) % N_OF(spans)];
        bool want = naive_fires(g, n, span);
        assert_int_equal(fires(g, n, span), want);
        n_fired += want;
        n_not += !want;
    }
    assert_true(n_fired > 2000 && n_not > 2000); /* both were tried */
}

/* Words whose prefixes are nearly periodic, so that the prefix function falls back often. */
static void test_adversarial(void **state)
{
    static int32_t g[4096];
    static const size_t spans[] = {512, 1000, 4096};
    g[0] = 0;
    g[1] = 1;
    for (size_t before = 1, n = 2;
         n < 4096;) { /* the word of Fibonacci: each is the last one and the one before */
        size_t copy = before < 4096 - n ? before : 4096 - n;
        memcpy(g + n, g, copy * sizeof *g);
        before = n;
        n += copy;
    }
    for (size_t i = 0; i < N_OF(spans); i++) {
        assert_int_equal(fires(g, 4096, spans[i]), naive_fires(g, 4096, spans[i]));
    }
    for (size_t i = 0; i < 4096; i++) { /* aaaa…b aaaa…b, with runs that grow */
        g[i] = (i & (i - 1)) == 0;
    }
    for (size_t i = 0; i < N_OF(spans); i++) {
        assert_int_equal(fires(g, 4096, spans[i]), naive_fires(g, 4096, spans[i]));
    }
    for (size_t i = 0; i < 4096; i++) { /* Thue and Morse: it never says anything three times */
        g[i] = __builtin_popcountll(i) & 1;
    }
    for (size_t i = 0; i < N_OF(spans); i++) {
        assert_false(naive_fires(g, 4096, spans[i]));
        assert_false(fires(g, 4096, spans[i]));
    }
    for (size_t at = 0; at < 4096; at += 61) { /* aaaa… with one b */
        memset(g, 0, sizeof g);
        g[at] = 1;
        for (size_t i = 0; i < N_OF(spans); i++) {
            assert_int_equal(fires(g, 4096, spans[i]), at < 4096 - spans[i]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tails),
        cmocka_unit_test(test_one_token_differs),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_adversarial),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
