/*
 * Merging against a plain quadratic merger, on runs of many windows: random rules, and rules made to carry an
 * effect far to the left or to make tokens larger than a window.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "text/merge.h"

#define NO_RANK MERGE_RANK_NONE

/* The rank of joining [start, mid) and [mid, end) of the text. */
typedef uint32_t (*rank_fn)(const void *rules, const char *text, size_t start, size_t mid, size_t end);

typedef struct job {
    rank_fn rank;
    const void *rules;
    const char *text;
    size_t len;
    bool cut_words; /* '-' is in no token */
    size_t last_end;
} job;

static size_t symbol(void *ctx, size_t at, int32_t *id, bool *apart)
{
    const job *j = ctx;
    *id = (unsigned char)j->text[at];
    *apart = j->cut_words && (j->text[at] == '-' || (at > 0 && j->text[at - 1] == '-'));
    return 1;
}

static bool pair(const void *ctx, const merge_symbol *left, const merge_symbol *right, uint32_t end,
                 uint32_t *rank, int32_t *id)
{
    const job *j = ctx;
    *rank = j->rank(j->rules, j->text, left->start, right->start, end);
    *id = 1000;
    return *rank != NO_RANK;
}

/* Tokens are told by their ends. */
static status emit(void *ctx, const merge_symbol *s, uint32_t end, ivec *out)
{
    job *j = ctx;
    assert_int_equal(s->id == 1000, end - s->start > 1);
    j->last_end = end;
    return ivec_push(out, (int32_t)end);
}

/* start[0..k] are the borders. */
static size_t plain_merge(const job *j, size_t *start)
{
    size_t k = j->len;
    uint32_t *rank = malloc((k + 1) * sizeof *rank);
    for (size_t i = 0; i <= k; i++) {
        start[i] = i;
    }
    for (size_t i = 0; i + 1 < k; i++) {
        rank[i] = j->rank(j->rules, j->text, i, i + 1, i + 2);
    }
    while (k > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < k; i++) {
            best = rank[i] < rank[best] ? i : best;
        }
        if (rank[best] == NO_RANK) {
            break;
        }
        memmove(start + best + 1, start + best + 2, (k - best - 1) * sizeof *start);
        memmove(rank + best, rank + best + 1, (k - best - 1) * sizeof *rank);
        k--;
        for (size_t i = best > 0 ? best - 1 : 0; i <= best && i + 1 < k; i++) {
            rank[i] = j->rank(j->rules, j->text, start[i], start[i + 1], start[i + 2]);
        }
    }
    free(rank);
    return k;
}

static void check(job *j)
{
    size_t *start = malloc((j->len + 2) * sizeof *start);
    size_t k = plain_merge(j, start);
    merger m = {0};
    ivec out = {0};
    const merge_rules rules = {j, symbol, pair, emit};
    assert_int_equal(ivec_push(&out, -7), ST_OK); /* what is there stays */
    assert_int_equal(merge_text(&m, &rules, j->len, &out), ST_OK);
    assert_int_equal(out.data[0], -7);
    assert_int_equal(out.len, k + 1);
    for (size_t i = 0; i < k; i++) {
        assert_int_equal(out.data[i + 1], start[i + 1]);
    }
    ivec_release(&out);
    merger_release(&m);
    free(start);
}

static uint32_t next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33);
}

/* --- Random rules: which joins exist, and their rank, is a hash of the two lengths and the bytes at the
 * seam. --- */

typedef struct hashed {
    uint64_t seed;
    size_t max_len;
    uint32_t one_in; /* joins that exist */
    uint32_t n_ranks;
} hashed;

static uint32_t hashed_rank(const void *rules, const char *text, size_t start, size_t mid, size_t end)
{
    const hashed *h = rules;
    if (end - start > h->max_len) {
        return NO_RANK;
    }
    uint64_t x = h->seed;
    for (size_t i = start; i < end; i++) {
        x = (x ^ (unsigned char)text[i]) * UINT64_C(0x100000001B3);
    }
    x = (x ^ (mid - start)) * UINT64_C(0x9E3779B97F4A7C15);
    x ^= x >> 29;
    return x % h->one_in ? NO_RANK : (uint32_t)(x >> 32) % h->n_ranks;
}

static void test_random_rules(void **state)
{
    uint64_t rng = 21;
    char *text = malloc(4000);
    for (int round = 0; round < 60; round++) {
        hashed h = {next_random(&rng), 2 + next_random(&rng) % 40, 1 + next_random(&rng) % 3,
                    1 + next_random(&rng) % 50};
        unsigned n_letters = 1 + next_random(&rng) % 3, period = 1 + next_random(&rng) % 7;
        job j = {hashed_rank, &h,
                 text,        round < 20 ? next_random(&rng) % 300 : 1500 + next_random(&rng) % 2500,
                 0,           0};
        for (size_t i = 0; i < j.len; i++) {
            bool copy = round % 2 == 0 && i >= period; /* every other text repeats itself */
            text[i] = copy ? text[i - period] : (char)('a' + next_random(&rng) % n_letters);
        }
        check(&j);
    }
    free(text);
}

/* --- Tokens of 2, 4, 8 ... letters: far larger than a window. --- */

static uint32_t doubling_rank(const void *rules, const char *text, size_t start, size_t mid, size_t end)
{
    size_t left = mid - start, right = end - mid;
    return left == right && (left & (left - 1)) == 0 ? (uint32_t)left : NO_RANK;
}

static void test_tokens_over_windows(void **state)
{
    char *text = malloc(5000);
    memset(text, 'a', 5000);
    for (size_t len = 4090; len <= 4100; len += 5) {
        check(&(job){doubling_rank, NULL, text, len, 0, 0});
    }
    check(&(job){doubling_rank, NULL, text, 5000, 0, 0});
    free(text);
}

/* --- "c" eats up to 200 letters to its left, before any "aa" is made: the first window cannot know. --- */

static uint32_t eating_rank(const void *rules, const char *text, size_t start, size_t mid, size_t end)
{
    const size_t most = *(const size_t *)rules;
    if (text[end - 1] == 'c') {
        return mid - start == 1 && end - start <= most + 1 ? (uint32_t)(end - start) : NO_RANK;
    }
    return end - start == 2 ? 5000 : NO_RANK;
}

static void test_far_effects(void **state)
{
    char *text = malloc(4000);
    for (size_t most = 10; most <= 1500; most = most * 3 + 7) {
        for (size_t len = 1000; len < 2400; len += 41) {
            memset(text, 'a', len);
            text[len - 1] = 'c';
            check(&(job){eating_rank, &most, text, len, 0, 0});
        }
    }
    free(text);
}

/* Borders that no token crosses part the text; what is left and right of them does not meet. */
static void test_apart(void **state)
{
    uint64_t rng = 4;
    char text[3000];
    for (size_t i = 0; i < sizeof text; i++) {
        text[i] = "ab--"[next_random(&rng) % 4];
    }
    static const hashed h = {99, 6, 1, 20};
    job j = {hashed_rank, &h, text, sizeof text, true, 0};
    merger m = {0};
    ivec out = {0};
    const merge_rules rules = {&j, symbol, pair, emit};
    assert_int_equal(merge_text(&m, &rules, j.len, &out), ST_OK);
    size_t n = 0;
    for (size_t i = 0; i < sizeof text; i++) { /* each '-' is a token of its own */
        bool border = n < out.len && out.data[n] == (int32_t)i + 1;
        assert_true(text[i] != '-' || (border && (i == 0 || (n > 0 && out.data[n - 1] == (int32_t)i))));
        n += border;
    }
    assert_int_equal(n, out.len);
    assert_int_equal(j.last_end, sizeof text);
    ivec_release(&out);
    merger_release(&m);
}

static void test_empty(void **state)
{
    merger m = {0};
    ivec out = {0};
    job j = {doubling_rank, NULL, "", 0, 0, 0};
    const merge_rules rules = {&j, symbol, pair, emit};
    assert_int_equal(merge_text(&m, &rules, 0, &out), ST_OK);
    assert_int_equal(out.len, 0);
    merger_release(&m);
    merger_release(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_rules), cmocka_unit_test(test_tokens_over_windows),
        cmocka_unit_test(test_far_effects),  cmocka_unit_test(test_apart),
        cmocka_unit_test(test_empty),
    };
    return cmocka_run_group_tests_name("text-merge", tests, NULL, NULL);
}
