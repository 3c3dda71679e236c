/* The rank queue against a plain search for the smallest entry. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "text/rankq.h"

#define N_RANKS 50u

static uint32_t next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33);
}

/* The entries that are in the queue, unordered. */
typedef struct bag {
    uint64_t keys[4096];
    size_t n;
} bag;

static uint64_t bag_take_least(bag *b)
{
    size_t least = 0;
    for (size_t i = 1; i < b->n; i++) {
        least = b->keys[i] < b->keys[least] ? i : least;
    }
    uint64_t key = b->keys[least];
    b->keys[least] = b->keys[--b->n];
    return key;
}

static void push(rankq *q, bag *b, uint32_t rank, uint32_t item)
{
    assert_int_equal(rankq_push(q, rank, item), ST_OK);
    b->keys[b->n++] = (uint64_t)rank << 32 | item;
}

static void pop(rankq *q, bag *b)
{
    uint32_t rank, item;
    assert_true(rankq_pop(q, &rank, &item));
    uint64_t want = bag_take_least(b);
    assert_int_equal(rank, want >> 32);
    assert_int_equal(item, (uint32_t)want);
}

/* First many entries, then pops with pushes between them that go below, at and above what was popped last. */
static void test_order(void **state)
{
    static bag b;
    uint64_t rng = 3;
    rankq q = {0};
    uint32_t rank, item;
    for (int round = 0; round < 20; round++) {
        assert_false(rankq_pop(&q, &rank, &item));
        for (uint32_t i = 0; i < 400; i++) {
            push(&q, &b, next_random(&rng) % N_RANKS, round % 2 ? i : next_random(&rng) % 300);
        }
        while (b.n > 0) {
            for (uint32_t k = next_random(&rng) % 3; b.n < 700 && k > 0; k--) {
                push(&q, &b, next_random(&rng) % N_RANKS, next_random(&rng) % 300);
            }
            for (uint32_t k = 1 + next_random(&rng) % 4; b.n > 0 && k > 0; k--) {
                pop(&q, &b);
            }
        }
    }
    rankq_release(&q);
}

static void test_pop_below(void **state)
{
    rankq q = {0};
    uint32_t rank = 1, item = 1;
    assert_false(rankq_pop_below(&q, &rank, &item));
    assert_int_equal(rankq_push(&q, 3, 9), ST_OK);
    assert_int_equal(rankq_push(&q, UINT32_MAX, UINT32_MAX), ST_OK);
    assert_false(rankq_pop_below(&q, &rank, &item));
    assert_int_equal(rank, 1);
    rank = 3;
    item = 9;
    assert_false(rankq_pop_below(&q, &rank, &item)); /* as large, not below */
    item = 10;
    assert_true(rankq_pop_below(&q, &rank, &item));
    assert_int_equal(rank, 3);
    assert_int_equal(item, 9);
    rankq_reset(&q);
    assert_false(rankq_pop(&q, &rank, &item));
    rankq_release(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_pop_below),
    };
    return cmocka_run_group_tests_name("text-rankq", tests, NULL, NULL);
}
