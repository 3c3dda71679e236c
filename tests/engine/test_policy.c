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

/* The shortest first, ties to the first; each once. */
static void test_shorter(void **state)
{
    static const struct {
        size_t want[5], n;
        size_t order[5];
    } cases[] = {
        {{7}, 1, {0}},
        {{9, 3}, 2, {1, 0}},
        {{5, 5, 5}, 3, {0, 1, 2}},
        {{8, 2, 8, 1, 2}, 5, {3, 1, 4, 0, 2}},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        size_t at = POLICY_NONE;
        for (size_t k = 0; k < cases[i].n; k++) {
            at = policy_shorter(cases[i].want, cases[i].n, at);
            assert_int_equal(at, cases[i].order[k]);
        }
        assert_int_equal(policy_shorter(cases[i].want, cases[i].n, at), POLICY_NONE);
    }
    assert_int_equal(policy_shorter(cases[0].want, 0, POLICY_NONE), POLICY_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_before),  cmocka_unit_test(test_before_is_an_order),
        cmocka_unit_test(test_victim),  cmocka_unit_test(test_resume),
        cmocka_unit_test(test_shorter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
