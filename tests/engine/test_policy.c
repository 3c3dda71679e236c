/*
 * Who is next and who gives way: the sentences of engine/policy.h and DESIGN 6, one by one. Every case is worked out
 * by hand, and each rule has one that comes out differently without it.
 */
#include "engine/test_main.h"

#include "engine/policy.h"

#define AGE     POLICY_AGEING_NS
#define HIGHEST 10 /* what a request may ask for (docs/api.md) */
#define LOWEST  (-10)

typedef struct before_case {
    const char *rule;
    policy_waiting first, second; /* first goes before second */
} before_case;

static const before_case before_cases[] = {
    {"equal priority: the one submitted first", {0, 0, 1}, {0, 0, 2}},
    {"a larger priority first", {1, 0, 2}, {0, 0, 1}},
    {"over the whole range", {HIGHEST, 0, 9}, {LOWEST, 0, 1}},
    {"negative ones too", {-9, 0, 2}, {-10, 0, 1}},
    {"one more for each time span of waiting", {0, 2 * AGE, 1}, {1, 0, 0}},
    {"a span that is not over does not count", {1, 0, 9}, {0, 2 * AGE - 1 - AGE, 1}},
    {"equal after ageing: the one submitted first", {0, AGE, 1}, {1, 0, 2}},
    {"both age", {0, 3 * AGE, 2}, {0, 2 * AGE, 1}},
    {"less than a span apart is equal", {0, AGE, 1}, {0, 2 * AGE - 1, 2}},
    {"the lowest outruns the highest in the end", {LOWEST, 21 * AGE, 9}, {HIGHEST, 0, 1}},
    {"no wrap at the end of time", {LOWEST, UINT64_MAX, 9}, {HIGHEST, 0, 1}},
};

static void test_before(void **state)
{
    for (size_t i = 0; i < N_OF(before_cases); i++) {
        const before_case *c = &before_cases[i];
        if (!policy_before(&c->first, &c->second) || policy_before(&c->second, &c->first)) {
            print_error("%s\n", c->rule);
            fail();
        }
        assert_false(policy_before(&c->first, &c->first));
    }
}

/* A total order: of any two with different tickets one is first, and no three run in a circle. */
static void test_before_is_an_order(void **state)
{
    static const uint64_t waits[] = {0, AGE - 1, AGE, 5 * AGE};
    policy_waiting w[12];
    for (size_t i = 0; i < N_OF(w); i++) {
        w[i] = (policy_waiting){(int32_t)(i % 3) - 1, waits[i % 4], (uint64_t)(i * 7 % 12)};
    }
    for (size_t i = 0; i < N_OF(w); i++) {
        for (size_t j = 0; j < N_OF(w); j++) {
            assert_int_equal(policy_before(&w[i], &w[j]) + policy_before(&w[j], &w[i]), i != j);
            for (size_t k = 0; k < N_OF(w); k++) {
                assert_false(policy_before(&w[i], &w[j]) && policy_before(&w[j], &w[k]) &&
                             policy_before(&w[k], &w[i]));
            }
        }
    }
}

#define MOST_RUNNING 5
#define NOBODY       POLICY_NONE

typedef struct victim_case {
    const char *rule;
    policy_running r[MOST_RUNNING];
    size_t n;
    size_t victim;
} victim_case;

/* {n_generated, admitted, immune, held, can_be_parked} */
static const victim_case victim_cases[] = {
    {"nobody runs", {{0}}, 0, NOBODY},
    {"one alone is the eldest", {{0, 1, false, false, true}}, 1, NOBODY},
    {"the fewest generated", {{50, 1, 0, 0, 1}, {9, 2, 0, 0, 1}, {30, 3, 0, 0, 1}}, 3, 1},
    {"equal: the one admitted last", {{50, 1, 0, 0, 1}, {9, 3, 0, 0, 1}, {9, 2, 0, 0, 1}}, 3, 1},
    {"the same, in the other order", {{50, 1, 0, 0, 1}, {9, 2, 0, 0, 1}, {9, 3, 0, 0, 1}}, 3, 2},
    {"never the eldest", {{0, 1, 0, 0, 1}, {70, 2, 0, 0, 1}}, 2, 1},
    {"the eldest by admission, not by place", {{70, 8, 0, 0, 1}, {0, 5, 0, 0, 1}}, 2, 0},
    {"a held one is not protected as the eldest", {{0, 1, 0, 1, 1}, {70, 2, 0, 0, 1}}, 2, 0},
    {"then the eldest is the next one", {{90, 1, 0, 1, 1}, {0, 2, 0, 0, 1}, {95, 3, 0, 0, 1}}, 3, 0},
    {"all held: nobody is protected", {{5, 1, 0, 1, 1}, {6, 2, 0, 1, 1}}, 2, 0},
    {"one alone that is held", {{5, 1, 0, 1, 1}}, 1, 0},
    {"not one that cannot be parked", {{50, 1, 0, 0, 1}, {1, 2, 0, 0, 0}, {30, 3, 0, 0, 1}}, 3, 2},
    {"nobody can be parked but the eldest", {{50, 1, 0, 0, 1}, {1, 2, 0, 0, 0}}, 2, NOBODY},
    {"the eldest is protected also if it cannot be parked", {{50, 1, 0, 0, 0}, {1, 2, 0, 0, 1}}, 2, 1},
    {"not an immune one", {{50, 1, 0, 0, 1}, {1, 2, 1, 0, 1}, {30, 3, 0, 0, 1}}, 3, 2},
    {"the immune one stands first", {{1, 2, 1, 0, 1}, {30, 3, 0, 0, 1}, {50, 1, 0, 0, 1}}, 3, 1},
    {"all candidates immune: as if none were", {{50, 1, 0, 0, 1}, {3, 2, 1, 0, 1}, {2, 3, 1, 0, 1}}, 3, 2},
    {"the eldest is no candidate, so it does not spare them", {{50, 1, 0, 0, 1}, {3, 2, 1, 0, 1}}, 2, 1},
    {"neither does one that cannot be parked", {{9, 1, 0, 0, 1}, {1, 2, 0, 0, 0}, {3, 3, 1, 0, 1}}, 3, 2},
};

static void test_victim(void **state)
{
    for (size_t i = 0; i < N_OF(victim_cases); i++) {
        const victim_case *c = &victim_cases[i];
        size_t got = policy_victim(c->r, c->n);
        if (got != c->victim) {
            print_error("%s: %zu, not %zu\n", c->rule, got, c->victim);
            fail();
        }
    }
}

typedef struct resume_case {
    const char *rule;
    policy_parked p[4];
    size_t n;
    size_t next;
} resume_case;

/* {n_tokens, since, held} */
static const resume_case resume_cases[] = {
    {"nobody is parked", {{0}}, 0, NOBODY},
    {"the smallest", {{90, 1, false}, {20, 3, false}, {40, 2, false}}, 3, 1},
    {"equal: parked first", {{20, 5, false}, {20, 3, false}, {20, 4, false}}, 3, 1},
    {"not a held one", {{10, 1, true}, {20, 2, false}}, 2, 1},
    {"all held", {{10, 1, true}, {20, 2, true}}, 2, NOBODY},
    {"a held one in the middle", {{30, 1, false}, {10, 2, true}, {20, 3, false}}, 3, 2},
};

static void test_resume(void **state)
{
    for (size_t i = 0; i < N_OF(resume_cases); i++) {
        const resume_case *c = &resume_cases[i];
        size_t got = policy_resume(c->p, c->n);
        if (got != c->next) {
            print_error("%s: %zu, not %zu\n", c->rule, got, c->next);
            fail();
        }
    }
}

typedef struct share_case {
    const char *rule;
    size_t room, n;
    size_t want[4], got[4];
} share_case;

static const share_case share_cases[] = {
    {"nobody", 8, 0, {0}, {0}},
    {"no room", 0, 2, {5, 5}, {0, 0}},
    {"one alone has all it wants", 64, 1, {40}, {40}},
    {"or all there is", 64, 1, {100}, {64}},
    {"the short one overtakes, the long one has the rest", 64, 2, {1000, 20}, {44, 20}},
    {"the eldest has its quarter whoever is shorter", 64, 3, {1000, 30, 25}, {16, 23, 25}},
    {"one row at least", 3, 2, {1000, 50}, {1, 2}},
    {"of a single row it is the eldest's", 1, 2, {1000, 1}, {1, 0}},
    {"what it does not want of its quarter is left to others", 64, 2, {4, 100}, {4, 60}},
    {"the shortest first, not the elder", 40, 3, {100, 50, 20}, {10, 10, 20}},
    {"ties to the elder", 40, 3, {100, 25, 25}, {10, 25, 5}},
    {"ties with the eldest too", 40, 2, {40, 40}, {40, 0}},
    {"a length is what is wanted in all", 40, 2, {35, 32}, {10, 30}},
    {"what nobody wants is left", 64, 3, {8, 9, 10}, {8, 9, 10}},
};

static void test_share(void **state)
{
    for (size_t i = 0; i < N_OF(share_cases); i++) {
        const share_case *c = &share_cases[i];
        size_t got[5];
        for (size_t j = 0; j < N_OF(got); j++) {
            got[j] = 12345;
        }
        policy_share_rows(c->want, c->n, c->room, got);
        for (size_t j = 0; j < c->n; j++) {
            if (got[j] != c->got[j]) {
                print_error("%s: prompt %zu has %zu, not %zu\n", c->rule, j, got[j], c->got[j]);
                fail();
            }
        }
        assert_int_equal(got[c->n], 12345);
    }
}

/* In whatever mix: nobody gets more than it wants, no row is lost that somebody wants, and the eldest moves. */
static void test_share_loses_nothing(void **state)
{
    uint32_t x = 12345;
    for (int round = 0; round < 20000; round++) {
        size_t want[9], got[9], wanted = 0, given = 0;
        size_t n = (size_t)round % 9 + 1;
        for (size_t i = 0; i < n; i++) {
            x = x * 1664525u + 1013904223u;
            want[i] = (x >> 8) % 50 + 1;
            wanted += want[i];
        }
        x = x * 1664525u + 1013904223u;
        size_t room = (x >> 8) % 100;
        policy_share_rows(want, n, room, got);
        for (size_t i = 0; i < n; i++) {
            assert_true(got[i] <= want[i]);
            given += got[i];
        }
        assert_int_equal(given, wanted < room ? wanted : room);
        assert_true(room == 0 || got[0] > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_before), cmocka_unit_test(test_before_is_an_order),
        cmocka_unit_test(test_victim), cmocka_unit_test(test_resume),
        cmocka_unit_test(test_share),  cmocka_unit_test(test_share_loses_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
