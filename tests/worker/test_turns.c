/*
 * The memory of turns: found by key, bounded, and safe while somebody reads.
 */
#include "base/test_main.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "worker/turns.h"

/* Key n, with an id that tells which turn it is. */
static turn turn_of(uint8_t n, const int32_t *ids, size_t n_ids)
{
    turn t = {.prompt_bytes = n, .ids = ids, .n_ids = n_ids};
    memset(t.key, n, sizeof t.key);
    return t;
}

static const turn *get(turns *t, uint8_t n)
{
    turn key = turn_of(n, NULL, 0);
    return turns_get(t, key.key);
}

static bool has(turns *t, uint8_t n)
{
    const turn *found = get(t, n);
    turns_unget(t, found);
    return found != NULL;
}

static void test_found(void **state)
{
    turns *t;
    const int32_t ids[] = {7, 8, 9};
    assert_int_equal(turns_new(4096, &t), ST_OK);
    turn one = turn_of(1, ids, N_OF(ids)), two = turn_of(2, NULL, 0);
    one.rest = "rest";
    one.n_rest = 4;
    one.reasoning = "why";
    one.n_reasoning = 3;
    memset(one.prompt_digest, 5, sizeof one.prompt_digest);
    assert_int_equal(turns_put(t, &one), ST_OK);
    assert_int_equal(turns_put(t, &two), ST_OK);
    const turn *found = get(t, 1);
    assert_non_null(found);
    assert_int_equal(found->n_ids, 3);
    assert_memory_equal(found->ids, ids, sizeof ids);
    assert_ptr_not_equal(found->ids, ids);
    assert_memory_equal(found->rest, "rest", found->n_rest);
    assert_memory_equal(found->reasoning, "why", found->n_reasoning);
    assert_memory_equal(found->prompt_digest, one.prompt_digest, sizeof one.prompt_digest);
    assert_int_equal(found->prompt_bytes, 1);
    turns_unget(t, found);
    turns_unget(t, NULL);
    assert_false(has(t, 3));
    assert_int_equal(turns_count(t).n, 2);
    turns_free(t);
    turns_free(NULL);
}

/* The later one counts; who has the earlier one keeps it. */
static void test_replaced(void **state)
{
    turns *t;
    const int32_t first[] = {1}, second[] = {2};
    assert_int_equal(turns_new(4096, &t), ST_OK);
    turn a = turn_of(1, first, 1), b = turn_of(1, second, 1);
    assert_int_equal(turns_put(t, &a), ST_OK);
    const turn *had = get(t, 1);
    assert_int_equal(turns_put(t, &b), ST_OK);
    assert_int_equal(turns_count(t).n, 1);
    const turn *now = get(t, 1);
    assert_int_equal(had->ids[0], 1);
    assert_int_equal(now->ids[0], 2);
    turns_unget(t, had);
    turns_unget(t, now);
    turns_free(t);
}

/* The one unused for longest goes, used or not by count of bytes; too large a one is not kept and drives nobody out. */
static void test_budget(void **state)
{
    enum { N_IDS = 100 };
    static int32_t ids[N_IDS], many[4096];
    turns *t;
    turn x = turn_of(0, ids, N_IDS);
    assert_int_equal(turns_new(SIZE_MAX, &t), ST_OK);
    assert_int_equal(turns_put(t, &x), ST_OK);
    size_t one = turns_count(t).bytes;
    assert_true(one >= sizeof ids);
    turns_free(t);

    assert_int_equal(turns_new(3 * one, &t), ST_OK);
    for (uint8_t n = 1; n <= 3; n++) {
        x = turn_of(n, ids, N_IDS);
        assert_int_equal(turns_put(t, &x), ST_OK);
    }
    assert_true(has(t, 1)); /* used: 2 is the oldest now */
    x = turn_of(4, ids, N_IDS);
    assert_int_equal(turns_put(t, &x), ST_OK);
    assert_false(has(t, 2));
    assert_true(has(t, 1) && has(t, 3) && has(t, 4));
    assert_int_equal(turns_count(t).bytes, 3 * one);

    const turn *had = get(t, 1);
    x = turn_of(5, many, N_OF(many));
    assert_int_equal(turns_put(t, &x), ST_OK);
    assert_false(has(t, 5));
    assert_int_equal(turns_count(t).n, 3);
    for (uint8_t n = 6; n <= 9; n++) {
        x = turn_of(n, ids, N_IDS);
        assert_int_equal(turns_put(t, &x), ST_OK);
    }
    assert_false(has(t, 1));
    assert_int_equal(had->n_ids, N_IDS); /* gone, but not from who has it */
    turns_unget(t, had);
    turns_free(t);
}

static void test_number(void **state)
{
    turns *t;
    assert_int_equal(turns_new(SIZE_MAX, &t), ST_OK);
    for (uint32_t i = 0; i < TURNS_MAX + 10; i++) {
        turn x = {.prompt_bytes = i};
        memcpy(x.key, &i, sizeof i);
        assert_int_equal(turns_put(t, &x), ST_OK);
    }
    assert_int_equal(turns_count(t).n, TURNS_MAX);
    uint8_t key[SHA256_BYTES] = {9}, later[SHA256_BYTES] = {10};
    assert_null(turns_get(t, key));
    const turn *x = turns_get(t, later);
    assert_non_null(x);
    turns_unget(t, x);
    turns_free(t);
}

static void test_nomem(void **state)
{
    turns *t = NULL;
    const int32_t ids[] = {1};
    turn x = turn_of(1, ids, 1), y = turn_of(2, ids, 1);
    for (uint64_t n = 1; n <= 2; n++) {
        mem_fail_at(n, false);
        assert_int_equal(turns_new(4096, &t), ST_NOMEM);
        mem_fail_at(0, false);
        assert_null(t);
    }
    assert_int_equal(turns_new(4096, &t), ST_OK);
    assert_int_equal(turns_put(t, &x), ST_OK);
    mem_fail_at(1, false);
    assert_int_equal(turns_put(t, &y), ST_NOMEM);
    mem_fail_at(0, false);
    assert_true(has(t, 1));
    assert_false(has(t, 2));
    turns_free(t);
}

/* One puts, one gets: what is got is whole. For TSan, and for ASan. */
#define N_ROUNDS 20000

static void *put_all(void *arg)
{
    turns *t = arg;
    for (int32_t i = 0; i < N_ROUNDS; i++) {
        int32_t ids[4] = {i, i, i, i};
        turn x = turn_of((uint8_t)(i % 7), ids, 4);
        if (turns_put(t, &x) != ST_OK) {
            return t;
        }
    }
    return NULL;
}

static void test_threads(void **state)
{
    turns *t;
    pthread_t writer;
    void *failed;
    size_t bad = 0;
    assert_int_equal(turns_new(4 * 512, &t), ST_OK);
    assert_int_equal(pthread_create(&writer, NULL, put_all, t), 0);
    for (int i = 0; i < N_ROUNDS; i++) {
        const turn *x = get(t, (uint8_t)(i % 7));
        bad += x && (x->ids[0] != x->ids[3] || x->ids[0] % 7 != i % 7);
        turns_unget(t, x);
    }
    assert_int_equal(pthread_join(writer, &failed), 0);
    assert_null(failed);
    assert_int_equal(bad, 0);
    turns_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_found),  cmocka_unit_test(test_replaced), cmocka_unit_test(test_budget),
        cmocka_unit_test(test_number), cmocka_unit_test(test_nomem),    cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
