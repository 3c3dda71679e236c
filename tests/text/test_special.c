/* Right of way among special tokens, by hand and against the rule taken literally (one token after the
 * other). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "text/special.h"

#define N_OF(array) (sizeof(array) / sizeof((array)[0]))
#define MAX_TEXT    64

static void expect(const special_token *tokens, size_t n, const char *text, const special_hit *want,
                   size_t n_want)
{
    special_set *s = NULL;
    special_hits hits = {0};
    assert_int_equal(special_set_new(tokens, n, &s), ST_OK);
    assert_int_equal(special_find(s, text, strlen(text), &hits), ST_OK);
    assert_int_equal(hits.n, n_want);
    for (size_t i = 0; i < n_want; i++) {
        assert_int_equal(hits.data[i].start, want[i].start);
        assert_int_equal(hits.data[i].end, want[i].end);
        assert_int_equal(hits.data[i].id, want[i].id);
    }
    special_hits_release(&hits);
    special_set_free(s);
}

static void test_right_of_way(void **state)
{
    const special_token tokens[] = {{"abcd", 4, 1, false}, {"xab", 3, 2, false}, {"ab", 2, 3, false},
                                    {"", 0, 4, false},     {"<e>", 3, 5, true},  {"ab", 2, 9, false}};
    const size_t n = N_OF(tokens);
    expect(tokens, n, "", NULL, 0);
    expect(tokens, n, "zzz", NULL, 0);
    /* The longer token wins although the other begins earlier; what is left of that one finds a shorter one.
     */
    expect(tokens, n, "xabcd", (special_hit[]){{1, 5, 1}}, 1);
    expect(tokens, n, "xabab", (special_hit[]){{0, 3, 2}, {3, 5, 3}}, 2);
    expect(tokens, n, "ababcd", (special_hit[]){{0, 2, 3}, {2, 6, 1}}, 2);
    /* White space behind <e> goes with it, up to the next token. */
    expect(tokens, n, " <e> \n\tab <e>", (special_hit[]){{1, 7, 5}, {7, 9, 3}, {10, 13, 5}}, 3);
    expect(tokens, n, "<e>  ", (special_hit[]){{0, 5, 5}}, 1);
    expect(tokens, 0, "ab", NULL, 0);
}

/* A token blocked by a longer one behind it gives way to a shorter one at the same place. */
static void test_shorter_at_same_place(void **state)
{
    const special_token tokens[] = {
        {"bbbb", 4, 1, false}, {"aab", 3, 2, false}, {"aa", 2, 3, false}, {"a", 1, 4, false}};
    expect(tokens, N_OF(tokens), "aabbbb", (special_hit[]){{0, 2, 3}, {2, 6, 1}}, 2);
    expect(tokens, N_OF(tokens), "aaabbb", (special_hit[]){{0, 1, 4}, {1, 4, 2}}, 2);
}

static uint32_t next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33);
}

static bool all_free(const int32_t *owner, size_t at, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (owner[at + i] != 0) {
            return false;
        }
    }
    return true;
}

/* owner[i]: 0 = plain, else 1 + index of the hit that took byte i; tokens sorted by length down, then id. */
static size_t literal(const special_token *tokens, size_t n, const char *text, size_t len, special_hit *hits)
{
    int32_t owner[MAX_TEXT] = {0};
    size_t n_hits = 0;
    for (size_t t = 0; t < n; t++) {
        for (size_t at = 0; at + tokens[t].len <= len; at++) {
            if (memcmp(text + at, tokens[t].text, tokens[t].len) != 0 ||
                !all_free(owner, at, tokens[t].len)) {
                continue;
            }
            size_t end = at + tokens[t].len;
            while (tokens[t].strips_right && end < len && owner[end] == 0 && text[end] == ' ') {
                end++;
            }
            for (size_t i = at; i < end; i++) {
                owner[i] = (int32_t)n_hits + 1;
            }
            hits[n_hits++] = (special_hit){(uint32_t)at, (uint32_t)end, tokens[t].id};
        }
    }
    for (size_t i = 0; i < n_hits; i++) { /* by place */
        for (size_t k = i + 1; k < n_hits; k++) {
            if (hits[k].start < hits[i].start) {
                special_hit swap = hits[i];
                hits[i] = hits[k];
                hits[k] = swap;
            }
        }
    }
    return n_hits;
}

static void test_against_rule(void **state)
{
    static const char letters[] = "ab ";
    uint64_t rng = 5;
    for (int round = 0; round < 3000; round++) {
        char texts[8][8], text[MAX_TEXT];
        special_token tokens[8];
        size_t n = 1 + next_random(&rng) % 8, len = next_random(&rng) % (MAX_TEXT - 1);
        for (size_t i = 0; i < n; i++) {
            size_t token_len = 6 - i * 6 / n; /* not growing, so that the array is in order of right of way */
            for (size_t k = 0; k < token_len; k++) {
                texts[i][k] = letters[next_random(&rng) % 3];
            }
            tokens[i] = (special_token){texts[i], token_len, (int32_t)i, next_random(&rng) % 3 == 0};
        }
        for (size_t i = 0; i < len; i++) {
            text[i] = letters[next_random(&rng) % 3];
        }
        text[len] = '\0';
        special_hit want[MAX_TEXT];
        expect(tokens, n, text, want, literal(tokens, n, text, len, want));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right_of_way),
        cmocka_unit_test(test_shorter_at_same_place),
        cmocka_unit_test(test_against_rule),
    };
    return cmocka_run_group_tests_name("text-special", tests, NULL, NULL);
}
