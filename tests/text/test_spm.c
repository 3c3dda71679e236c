/* SentencePiece's BPE on small vocabularies: ids worked out by hand, and an independent quadratic merger. */
#include "toy_vocab.h"

#define MARK       "\xE2\x96\x81"
#define BYTE_ID(b) (3 + (b))

enum { SPECIAL = TOKENIZE_ADD_SPECIAL, PARSE = TOKENIZE_PARSE_SPECIAL, NO_PREFIX = TOKENIZE_NO_PREFIX };

typedef struct words {
    int32_t mark, h, e, l, o, he, ll, lo, hell, mark_he, a, aa, aaaa, end, tag, longer, spaces;
} words;

static toy_vocab *words_toy(words *w)
{
    toy_vocab *v = toy_new("llama", "default");
    toy_spm_base(v);
    w->mark = toy_token(v, MARK, -20, TOKEN_NORMAL);
    w->h = toy_token(v, "h", -21, TOKEN_NORMAL);
    w->e = toy_token(v, "e", -22, TOKEN_NORMAL);
    w->l = toy_token(v, "l", -23, TOKEN_NORMAL);
    w->o = toy_token(v, "o", -24, TOKEN_NORMAL);
    w->he = toy_token(v, "he", -1, TOKEN_NORMAL);
    w->ll = toy_token(v, "ll", -2, TOKEN_NORMAL);
    w->lo = toy_token(v, "lo", -3, TOKEN_NORMAL);
    w->hell = toy_token(v, "hell", -4, TOKEN_NORMAL);
    w->mark_he = toy_token(v, MARK "he", -5, TOKEN_NORMAL);
    w->a = toy_token(v, "a", -25, TOKEN_NORMAL);
    w->aa = toy_token(v, "aa", -6, TOKEN_NORMAL);
    w->aaaa = toy_token(v, "aaaa", -6, TOKEN_NORMAL); /* same score: the leftmost pair goes first */
    w->end = toy_token(v, "<|im_end|>", -30, TOKEN_CONTROL);
    w->tag = toy_token(v, "<t>", -31, TOKEN_USER_DEFINED);
    w->longer = toy_token(v, "x<t>y", -32, TOKEN_USER_DEFINED);
    w->spaces = toy_token(v, "   ", -33, TOKEN_USER_DEFINED);
    return v;
}

static void test_merging(void **state)
{
    words w;
    tokenizer *t = toy_open_ok(words_toy(&w));
    /* he (-1), then ll (-2), then hell (-4); "lo" (-3) lost its l to ll. MARK+he (-5) lost its he. */
    EXPECT_IDS(t, "hello", 0, w.mark, w.hell, w.o);
    EXPECT_IDS(t, "hello", NO_PREFIX, w.hell, w.o);
    EXPECT_IDS(t, "he", 0, w.mark_he);
    EXPECT_IDS(t, "helo", 0, w.mark_he, w.lo);
    EXPECT_IDS(t, "he he", 0, w.mark_he, w.mark_he);
    EXPECT_IDS(t, "lll", NO_PREFIX, w.ll, w.l);
    EXPECT_IDS(t, "aaa", NO_PREFIX, w.aa, w.a);
    /* aa at 0, aa at 2; both aa pairs are as good as aaaa, and the one at 0 is leftmost as soon as it exists.
     */
    EXPECT_IDS(t, "aaaaaaa", NO_PREFIX, w.aaaa, w.aa, w.a);
    EXPECT_NO_IDS(t, "", 0);
    EXPECT_IDS(t, "", SPECIAL, 1);
    EXPECT_IDS(t, "he", SPECIAL, 1, w.mark_he);
    EXPECT_IDS(t, MARK "he", NO_PREFIX, w.mark_he); /* the mark itself counts as a space */
    tokenizer_free(t);
}

static void test_bytes(void **state)
{
    words w;
    tokenizer *t = toy_open_ok(words_toy(&w));
    EXPECT_IDS(t, "\xC3\xA9", NO_PREFIX, BYTE_ID(0xC3), BYTE_ID(0xA9)); /* é is no token */
    EXPECT_IDS(t, "h\n", NO_PREFIX, w.h, BYTE_ID('\n'));
    EXPECT_IDS_N(t, "h\0o", 3, NO_PREFIX, w.h, BYTE_ID(0), w.o);
    /* Broken UTF-8: lone continuation bytes; a lead byte takes as many bytes as it promises, spaces (three
     * bytes by then) and letters too. */
    EXPECT_IDS(t, "\x80\xBFh", NO_PREFIX, BYTE_ID(0x80), BYTE_ID(0xBF), w.h);
    EXPECT_IDS(t, "\xC3 h", NO_PREFIX, BYTE_ID(0xC3), BYTE_ID(0xE2), BYTE_ID(0x96), BYTE_ID(0x81), w.h);
    EXPECT_IDS(t, "\xE2hho", NO_PREFIX, BYTE_ID(0xE2), BYTE_ID('h'), BYTE_ID('h'), w.o);
    EXPECT_IDS(t, "\xF0\x9F", NO_PREFIX, BYTE_ID(0xF0), BYTE_ID(0x9F));
    tokenizer_free(t);
}

static void test_special(void **state)
{
    words w;
    tokenizer *t = toy_open_ok(words_toy(&w));
    /* Control tokens only when asked; the text is then neither merged nor prefixed, but what follows it is.
     */
    EXPECT_IDS(t, "he<|im_end|>he", PARSE, w.mark_he, w.end, w.mark_he);
    EXPECT_IDS(t, "he<|im_end|>he", PARSE | NO_PREFIX, w.he, w.end, w.he);
    EXPECT_IDS(t, "<|im_end|>", PARSE, w.end);
    EXPECT_IDS(t, "<|im_end|>", NO_PREFIX, BYTE_ID('<'), BYTE_ID('|'), BYTE_ID('i'), BYTE_ID('m'),
               BYTE_ID('_'), w.e, BYTE_ID('n'), BYTE_ID('d'), BYTE_ID('|'), BYTE_ID('>'));
    /* User-defined ones always; the longer one wins wherever it stands. */
    EXPECT_IDS(t, "he<t>he", 0, w.mark_he, w.tag, w.mark_he);
    EXPECT_IDS(t, "hex<t>y<t>", 0, w.mark_he, w.longer, w.tag);
    EXPECT_IDS(t, "<t><t>", SPECIAL | PARSE, 1, w.tag, w.tag);
    EXPECT_IDS(t, "he    he", 0, w.mark_he, w.spaces, w.mark, w.mark_he);
    EXPECT_IDS(t, "<s></s>", PARSE, 1, 2);
    EXPECT_IDS(t, "<unk>", PARSE, 0);
    tokenizer_free(t);
}

/* A control token must not come out of plain text, not even by merging. */
static void test_no_control_by_merging(void **state)
{
    toy_vocab *v = toy_new("llama", NULL);
    toy_spm_base(v);
    int32_t lt = toy_token(v, "<", -1, TOKEN_NORMAL), s = toy_token(v, "s", -2, TOKEN_NORMAL);
    int32_t gt = toy_token(v, ">", -3, TOKEN_NORMAL), lts = toy_token(v, "<s", -4, TOKEN_NORMAL);
    tokenizer *t = toy_open_ok(v);
    EXPECT_IDS(t, "<s>", NO_PREFIX, lts, gt);
    EXPECT_IDS(t, "s<", NO_PREFIX, s, lt);
    EXPECT_IDS(t, "<s>", NO_PREFIX | PARSE, 1);
    tokenizer_free(t);
}

static void test_flags(void **state)
{
    words w;
    toy_vocab *v = words_toy(&w);
    toy_bool(v, "tokenizer.ggml.add_space_prefix", false);
    toy_bool(v, "tokenizer.ggml.add_bos_token", false);
    toy_bool(v, "tokenizer.ggml.add_eos_token", true);
    toy_u32(v, "tokenizer.ggml.eos_token_id", 2);
    tokenizer *t = toy_open_ok(v);
    assert_false(tokenizer_adds_space_prefix(t));
    assert_false(tokenizer_adds_bos(t));
    assert_true(tokenizer_adds_eos(t));
    EXPECT_IDS(t, "he", SPECIAL, w.he, 2);
    EXPECT_IDS(t, "", SPECIAL, 2);
    tokenizer_free(t);
}

/* Phi-3 drops white space behind its tokens (not behind <s>, <unk> and <|endoftext|>). */
static void test_phi3_strips(void **state)
{
    words w;
    toy_vocab *v = words_toy(&w);
    assert_int_equal(gguf_writer_str(v->w, "general.name", "My Phi-3 mini", 13), ST_OK);
    tokenizer *t = toy_open_ok(v);
    EXPECT_IDS(t, "<|im_end|> \n he", PARSE, w.end, w.mark_he);
    EXPECT_IDS(t, "<|im_end|> \n ", PARSE, w.end);
    EXPECT_IDS(t, "<t>  <t>he", 0, w.tag, w.tag, w.mark_he);
    EXPECT_IDS(t, "<s> he", PARSE, 1, w.mark, w.mark_he);
    tokenizer_free(t);
}

/* Without byte tokens what nothing covers is one unknown token a character; without that one, nothing. */
static void test_no_byte_tokens(void **state)
{
    for (int with_unknown = 0; with_unknown < 2; with_unknown++) {
        toy_vocab *v = toy_new("llama", NULL);
        toy_token(v, with_unknown ? "<unk>" : "?", 0, with_unknown ? TOKEN_UNKNOWN : TOKEN_NORMAL);
        toy_token(v, "<s>", 0, TOKEN_CONTROL);
        int32_t a = toy_token(v, "a", 0, TOKEN_NORMAL);
        tokenizer *t = toy_open_ok(v);
        if (with_unknown) {
            EXPECT_IDS(t,
                       "a\xE4\xBD\xA0"
                       "a",
                       NO_PREFIX, a, 0, a);
        } else {
            EXPECT_IDS(t,
                       "a\xE4\xBD\xA0"
                       "a",
                       NO_PREFIX, a, a);
        }
        tokenizer_free(t);
    }
}

/* --- An independent merger: looks at all pairs, joins the best, starts again. --- */

typedef struct reference {
    const gguf_str *tokens;
    const float *scores;
    size_t first, n; /* tokens that may come out of merging */
} reference;

static int32_t reference_find(const reference *r, const char *s, size_t n)
{
    for (size_t i = r->first; i < r->n; i++) {
        if (r->tokens[i].len == n && memcmp(r->tokens[i].data, s, n) == 0) {
            return (int32_t)i;
        }
    }
    return -1;
}

/* ASCII text whose characters are all tokens. */
static size_t reference_encode(const reference *r, const char *text, size_t n, int32_t *out)
{
    size_t *start = malloc((n + 1) * sizeof *start);
    size_t k = n;
    for (size_t i = 0; i <= n; i++) {
        start[i] = i;
    }
    for (;;) {
        size_t best = n;
        float score = 0;
        for (size_t i = 0; i + 1 < k; i++) {
            int32_t id = reference_find(r, text + start[i], start[i + 2] - start[i]);
            if (id >= 0 && (best == n || r->scores[id] > score)) {
                best = i;
                score = r->scores[id];
            }
        }
        if (best == n) {
            break;
        }
        memmove(start + best + 1, start + best + 2, (k - best - 1) * sizeof *start);
        k--;
    }
    for (size_t i = 0; i < k; i++) {
        out[i] = reference_find(r, text + start[i], start[i + 1] - start[i]);
    }
    free(start);
    return k;
}

static uint32_t next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33);
}

/* Random vocabularies over three letters with many equal scores, random texts, the long ones of several
 * windows. */
static void test_against_reference(void **state)
{
    uint64_t rng = 7;
    for (int round = 0; round < 30; round++) {
        toy_vocab *v = toy_new("llama", NULL);
        toy_spm_base(v);
        size_t first = v->n;
        for (const char *c = "abc"; *c; c++) {
            toy_token_n(v, c, 1, -50, TOKEN_NORMAL);
        }
        for (int i = 0; i < 25; i++) {
            char text[8];
            size_t len = 2 + next_random(&rng) % 5;
            for (size_t k = 0; k < len; k++) {
                text[k] = (char)('a' + next_random(&rng) % (round % 3 == 0 ? 1 : 3));
            }
            reference so_far = {v->tokens, v->scores, first, v->n};
            if (reference_find(&so_far, text, len) < 0) {
                toy_token_n(v, text, len, -(double)(next_random(&rng) % 6), TOKEN_NORMAL);
            }
        }
        gguf_file *f = toy_write(v);
        tokenizer *t = NULL;
        assert_int_equal(tokenizer_open(f, &t, NULL), ST_OK);
        size_t len = round < 27 ? 1 + next_random(&rng) % 200 : 5000;
        char *text = malloc(len);
        int32_t *want = malloc(len * sizeof *want);
        for (size_t i = 0; i < len; i++) {
            text[i] = (char)('a' + (round == 27 ? 0 : next_random(&rng) % 3));
        }
        reference r = {v->tokens, v->scores, first, v->n};
        size_t n = reference_encode(&r, text, len, want);
        ivec got = {0};
        assert_int_equal(tokenizer_encode(t, text, len, NO_PREFIX, &got), ST_OK);
        assert_int_equal(got.len, n);
        assert_memory_equal(got.data, want, n * sizeof *want);
        ivec_release(&got);
        free(want);
        free(text);
        tokenizer_free(t);
        gguf_close(f);
        toy_free(v);
    }
}

/* What is there already stays, and a token's piece is what it stands for. */
static void test_output(void **state)
{
    words w;
    tokenizer *t = toy_open_ok(words_toy(&w));
    ivec ids = {0};
    assert_int_equal(ivec_push(&ids, 99), ST_OK);
    assert_int_equal(tokenizer_encode(t, "he", 2, 0, &ids), ST_OK);
    assert_int_equal(ids.len, 2);
    assert_int_equal(ids.data[0], 99);
    ivec_release(&ids);
    const struct {
        int32_t id;
        const char *piece;
    } pieces[] = {{w.mark_he, " he"}, {BYTE_ID(0x0A), "\n"}, {w.end, "<|im_end|>"}, {w.tag, "<t>"},
                  {1, "<s>"},         {w.spaces, "   "},     {0, "<unk>"}};
    for (size_t i = 0; i < N_OF(pieces); i++) {
        size_t n;
        const char *s = tokenizer_piece(t, pieces[i].id, &n);
        assert_int_equal(n, strlen(pieces[i].piece));
        assert_memory_equal(s, pieces[i].piece, n);
    }
    assert_int_equal(tokenizer_find(t, MARK "he", strlen(MARK "he")), w.mark_he);
    assert_int_equal(tokenizer_find(t, " he", 3), TOKEN_NONE);
    assert_int_equal(tokenizer_find(t, "", 0), TOKEN_NONE);
    assert_int_equal(tokenizer_kind(t, w.tag), TOKEN_USER_DEFINED);
    assert_int_equal(tokenizer_kind(t, BYTE_ID(7)), TOKEN_BYTE);
    tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merging),        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_special),        cmocka_unit_test(test_no_control_by_merging),
        cmocka_unit_test(test_flags),          cmocka_unit_test(test_phi3_strips),
        cmocka_unit_test(test_no_byte_tokens), cmocka_unit_test(test_against_reference),
        cmocka_unit_test(test_output),
    };
    return cmocka_run_group_tests_name("text-spm", tests, NULL, NULL);
}
