/* Byte-level BPE on small vocabularies: ids worked out by hand, and an independent quadratic merger. */
#include <pthread.h>

#include "toy_vocab.h"

enum { SPECIAL = TOKENIZE_ADD_SPECIAL, PARSE = TOKENIZE_PARSE_SPECIAL };

#define G "\xC4\xA0" /* the way a vocabulary writes a space */

typedef struct words {
    int32_t lo, low, er, g_low, lower, whole, end, tag;
} words;

static toy_vocab *words_toy(words *w, const char *pre)
{
    toy_vocab *v = toy_new("gpt2", pre);
    toy_bpe_base(v);
    w->lo = toy_token(v, "lo", 0, TOKEN_NORMAL);
    w->low = toy_token(v, "low", 0, TOKEN_NORMAL);
    w->er = toy_token(v, "er", 0, TOKEN_NORMAL);
    w->g_low = toy_token(v, G "low", 0, TOKEN_NORMAL);
    w->lower = toy_token(v, "lower", 0, TOKEN_NORMAL);
    w->whole = toy_token(v, "wide", 0, TOKEN_NORMAL); /* no merge makes it */
    w->end = toy_token(v, "<|im_end|>", 0, TOKEN_CONTROL);
    w->tag = toy_token(v, "<think>", 0, TOKEN_USER_DEFINED);
    toy_merge(v, "l o");
    toy_merge(v, "lo w");
    toy_merge(v, "e r");
    toy_merge(v, G " low");
    toy_merge(v, "low er");
    toy_merge(v, "lo w"); /* again, later: the first one counts */
    toy_u32(v, "tokenizer.ggml.eos_token_id", (uint32_t)w->end);
    return v;
}

static void test_merging(void **state)
{
    words w;
    tokenizer *t = toy_open_ok(words_toy(&w, "gpt-2"));
    EXPECT_IDS(t, "lower low", 0, w.lower, w.g_low);
    EXPECT_IDS(t, "low", 0, w.low);
    EXPECT_IDS(t, "lo ow er", 0, w.lo, ' ', 'o', 'w', ' ', w.er);
    EXPECT_IDS(t, "wide", 0, 'w', 'i', 'd', 'e');
    /* " low" + "er": G low is rank 3, low er rank 4, so the space wins. */
    EXPECT_IDS(t, " lower", 0, w.g_low, w.er);
    EXPECT_IDS(t, "\xC3\xA9\n", 0, 0xC3, 0xA9, '\n');
    EXPECT_IDS_N(t, "l\0o", 3, 0, 'l', 0, 'o');
    EXPECT_NO_IDS(t, "", 0);
    EXPECT_NO_IDS(t, "", SPECIAL); /* this family adds nothing of its own accord */
    tokenizer_free(t);
}

/* llama 3: a piece that is a token is taken whole, whatever the merges would make of it. */
static void test_ignore_merges(void **state)
{
    words w;
    tokenizer *t = toy_open_ok(words_toy(&w, "llama-bpe"));
    EXPECT_IDS(t, "wide", 0, w.whole);
    EXPECT_IDS(t, "wider", 0, 'w', 'i', 'd', w.er);
    EXPECT_IDS(t, "lower low", 0, w.lower, w.g_low);
    tokenizer_free(t);
}

static void test_broken_utf8(void **state)
{
    words w;
    tokenizer *t = toy_open_ok(words_toy(&w, "gpt-2"));
    /* Maximal subparts: E2 96 is one, FF is one, F0 9F 98 is one, C0 AF are two. */
    EXPECT_IDS(t, "lo\xE2\x96lo", 0, w.lo, 0xEF, 0xBF, 0xBD, w.lo);
    EXPECT_IDS(t, "\xFF", 0, 0xEF, 0xBF, 0xBD);
    EXPECT_IDS(t, "\xF0\x9F\x98", 0, 0xEF, 0xBF, 0xBD);
    EXPECT_IDS(t, "\xC0\xAF", 0, 0xEF, 0xBF, 0xBD, 0xEF, 0xBF, 0xBD);
    EXPECT_IDS(t, "\xE2<|im_end|>", PARSE, 0xEF, 0xBF, 0xBD, w.end);
    tokenizer_free(t);
}

static void test_special(void **state)
{
    words w;
    toy_vocab *v = words_toy(&w, "gpt-2");
    toy_u32(v, "tokenizer.ggml.bos_token_id", (uint32_t)w.tag);
    toy_bool(v, "tokenizer.ggml.add_bos_token", true);
    toy_bool(v, "tokenizer.ggml.add_eos_token", true);
    tokenizer *t = toy_open_ok(v);
    EXPECT_IDS(t, "low<|im_end|>low", PARSE, w.low, w.end, w.low);
    EXPECT_IDS(t, "<|im_end|>", 0, '<', '|', 'i', 'm', '_', 'e', 'n', 'd', '|', '>');
    EXPECT_IDS(t, "low<think>", 0, w.low, w.tag);
    EXPECT_IDS(t, "low", SPECIAL, w.tag, w.low, w.end);
    EXPECT_IDS(t, "", SPECIAL, w.tag, w.end);
    tokenizer_free(t);
}

static void test_pieces(void **state)
{
    words w;
    tokenizer *t = toy_open_ok(words_toy(&w, "gpt-2"));
    for (int b = 0; b < 256; b++) {
        size_t n;
        const char *s = tokenizer_piece(t, b, &n);
        assert_int_equal(n, 1);
        assert_int_equal((unsigned char)s[0], b);
    }
    size_t n;
    assert_memory_equal(tokenizer_piece(t, w.g_low, &n), " low", 4);
    assert_int_equal(n, 4);
    assert_memory_equal(tokenizer_piece(t, w.end, &n), "<|im_end|>", 10);
    tokenizer_free(t);
}

/* A byte without a token is left out, also where the file names an unknown token: StarCoder's is the end of
 * the document, and plain text must not spell that. */
static void test_missing_byte(void **state)
{
    for (int with_unknown = 0; with_unknown < 2; with_unknown++) {
        toy_vocab *v = toy_new("gpt2", "gpt-2");
        toy_token(v, "a", 0, TOKEN_NORMAL);
        toy_token(v, "<|endoftext|>", 0, TOKEN_CONTROL);
        if (with_unknown) {
            toy_u32(v, "tokenizer.ggml.unknown_token_id", 1);
        }
        tokenizer *t = toy_open_ok(v);
        EXPECT_IDS(t, "aba", 0, 0, 0);
        tokenizer_free(t);
    }
}

typedef struct worker {
    const tokenizer *t;
    bool good;
} worker;

static void *encode_often(void *arg)
{
    worker *w = arg;
    w->good = true;
    for (int i = 0; i < 200; i++) {
        ivec ids = {0};
        w->good &=
            tokenizer_encode(w->t, "lower low<think> \xE2 9", 20, PARSE, &ids) == ST_OK && ids.len == 9;
        ivec_release(&ids);
    }
    return NULL;
}

/* One tokenizer, several threads (a matter for TSan). */
static void test_threads(void **state)
{
    words w;
    tokenizer *t = toy_open_ok(words_toy(&w, "llama-bpe"));
    worker workers[4];
    pthread_t threads[N_OF(workers)];
    for (size_t i = 0; i < N_OF(workers); i++) {
        workers[i].t = t;
        assert_int_equal(pthread_create(&threads[i], NULL, encode_often, &workers[i]), 0);
    }
    for (size_t i = 0; i < N_OF(workers); i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_true(workers[i].good);
    }
    tokenizer_free(t);
}

/* --- An independent merger over the letters of one word. --- */

#define MAX_RULES 40

typedef struct rule {
    char left[16], right[16];
} rule;

static size_t reference_encode(const rule *rules, size_t n_rules, const char *text, size_t n, size_t *start)
{
    size_t k = n;
    for (size_t i = 0; i <= n; i++) {
        start[i] = i;
    }
    for (size_t r = 0; r < n_rules;) {
        size_t nl = strlen(rules[r].left), nr = strlen(rules[r].right), i = 0;
        while (i + 1 < k && !(start[i + 1] - start[i] == nl && start[i + 2] - start[i + 1] == nr &&
                              memcmp(text + start[i], rules[r].left, nl) == 0 &&
                              memcmp(text + start[i + 1], rules[r].right, nr) == 0)) {
            i++;
        }
        if (i + 1 >= k) {
            r++;
            continue;
        }
        memmove(start + i + 1, start + i + 2, (k - i - 1) * sizeof *start);
        k--;
        r = 0; /* the new token may stand in an earlier rule */
    }
    return k;
}

static uint32_t next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33);
}

/* Rules join tokens made by earlier rules, in a shuffled order of rank. */
static size_t random_rules(uint64_t *rng, unsigned n_letters, rule *rules)
{
    size_t n = 0;
    char parts[MAX_RULES + 3][16] = {"a", "b", "c"};
    size_t n_parts = n_letters;
    while (n < 20) {
        rule *r = &rules[n];
        strcpy(r->left, parts[next_random(rng) % n_parts]);
        strcpy(r->right, parts[next_random(rng) % n_parts]);
        bool known = strlen(r->left) + strlen(r->right) > 12;
        for (size_t i = 0; i < n; i++) {
            known |= strcmp(rules[i].left, r->left) == 0 && strcmp(rules[i].right, r->right) == 0;
        }
        if (known) {
            if (next_random(rng) % 8 == 0) {
                break;
            }
            continue;
        }
        snprintf(parts[n_parts], sizeof parts[0], "%.7s%.7s", r->left, r->right);
        n_parts += strlen(r->left) < 8 && strlen(r->right) < 8;
        n++;
    }
    for (size_t i = n; i > 1; i--) {
        size_t k = next_random(rng) % i;
        rule swap = rules[k];
        rules[k] = rules[i - 1];
        rules[i - 1] = swap;
    }
    return n;
}

static void check_round(uint64_t *rng, unsigned n_letters, size_t len)
{
    rule rules[MAX_RULES];
    size_t n_rules = random_rules(rng, n_letters, rules);
    toy_vocab *v = toy_new("gpt2", "gpt-2");
    toy_bpe_base(v);
    for (size_t i = 0; i < n_rules; i++) {
        char text[64];
        snprintf(text, sizeof text, "%.15s%.15s", rules[i].left, rules[i].right);
        bool known = false;
        for (size_t k = 256; k < v->n; k++) {
            known |= strcmp(v->tokens[k].data, text) == 0;
        }
        if (!known) {
            toy_token(v, text, 0, TOKEN_NORMAL);
        }
        snprintf(text, sizeof text, "%.15s %.15s", rules[i].left, rules[i].right);
        toy_merge(v, text);
    }
    tokenizer *t = toy_open_ok(v);
    char *text = malloc(len);
    size_t *start = malloc((len + 1) * sizeof *start);
    for (size_t i = 0; i < len; i++) {
        text[i] = (char)('a' + next_random(rng) % n_letters);
    }
    size_t n = reference_encode(rules, n_rules, text, len, start);
    ivec got = {0};
    assert_int_equal(tokenizer_encode(t, text, len, 0, &got), ST_OK);
    assert_int_equal(got.len, n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(got.data[i], tokenizer_find(t, text + start[i], start[i + 1] - start[i]));
    }
    ivec_release(&got);
    free(start);
    free(text);
    tokenizer_free(t);
}

static void test_against_reference(void **state)
{
    uint64_t rng = 11;
    for (int round = 0; round < 60; round++) {
        check_round(&rng, 1 + (unsigned)round % 3, 1 + next_random(&rng) % 120);
    }
    check_round(&rng, 1, 6000); /* several windows */
    check_round(&rng, 2, 6000);
    check_round(&rng, 3, 6000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merging),
        cmocka_unit_test(test_ignore_merges),
        cmocka_unit_test(test_broken_utf8),
        cmocka_unit_test(test_special),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_missing_byte),
        cmocka_unit_test(test_against_reference),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests_name("text-bpe", tests, NULL, NULL);
}
