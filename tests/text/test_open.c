/* Opening: what is refused and how it is said, what an absent key means, which ids end a reply. */
#include "toy_vocab.h"

#define IM_END "<|im_end|>"

/* A small vocabulary of either family that opens. */
static toy_vocab *good(const char *model)
{
    toy_vocab *v = toy_new(model, "gpt-2");
    if (strcmp(model, "llama") == 0) {
        toy_spm_base(v);
    } else {
        toy_bpe_base(v);
        toy_token(v, "ab", 0, TOKEN_NORMAL);
        toy_merge(v, "a b");
    }
    return v;
}

/* --- What is refused. Each row spoils a good vocabulary in one way. --- */

static void no_tokens(toy_vocab *v)
{
    v->no_tokens = v->no_types = v->no_scores = v->no_merges = true;
}

static void empty_vocabulary(toy_vocab *v)
{
    v->n_less_scores = v->n_less_types = 0;
    for (size_t i = 0; i < v->n; i++) {
        free((void *)(uintptr_t)v->tokens[i].data);
    }
    v->n = 0;
}

static void few_scores(toy_vocab *v)
{
    v->n_less_scores = 1;
}

static void few_types(toy_vocab *v)
{
    v->n_less_types = 1;
}

static void bad_type(toy_vocab *v)
{
    v->types[7] = 9;
}

static void bad_score(toy_vocab *v)
{
    v->scores[7] = (float)(1e300 * 1e300);
}

static void byte_minus_one(toy_vocab *v)
{
    toy_token(v, "<0x-1>", 0, TOKEN_BYTE);
}

static void byte_not_hex(toy_vocab *v)
{
    toy_token(v, "<0xZZ>", 0, TOKEN_BYTE);
}

static void byte_too_long(toy_vocab *v)
{
    toy_token(v, "<0x041>", 0, TOKEN_BYTE);
}

static void byte_empty(toy_vocab *v)
{
    toy_token(v, "", 0, TOKEN_BYTE);
}

static void bos_out_of_range(toy_vocab *v)
{
    toy_u32(v, "tokenizer.ggml.bos_token_id", (uint32_t)v->n);
}

static void eos_out_of_range(toy_vocab *v)
{
    toy_u32(v, "tokenizer.ggml.eos_token_id", UINT32_MAX);
}

static void eot_out_of_range(toy_vocab *v)
{
    toy_u32(v, "tokenizer.ggml.eot_token_id", 1u << 30);
}

static void eom_negative(toy_vocab *v)
{
    assert_int_equal(gguf_writer_i32(v->w, "tokenizer.ggml.eom_token_id", -1), ST_OK);
}

static void unknown_out_of_range(toy_vocab *v)
{
    toy_u32(v, "tokenizer.ggml.unknown_token_id", (uint32_t)v->n);
}

static void no_bos(toy_vocab *v)
{
    toy_bool(v, "tokenizer.ggml.add_bos_token", true);
}

static void no_bos_by_default(toy_vocab *v)
{
    free((void *)(uintptr_t)v->tokens[1].data);
    v->tokens[1] = toy_copy("<start>", 7);
}

static void no_eos(toy_vocab *v)
{
    toy_bool(v, "tokenizer.ggml.add_eos_token", true);
}

static void no_merges(toy_vocab *v)
{
    v->no_merges = true;
}

static void merge_without_space(toy_vocab *v)
{
    toy_merge(v, "ab");
}

static void merge_of_nothing(toy_vocab *v)
{
    toy_merge(v, "a ");
}

static void merge_empty(toy_vocab *v)
{
    toy_merge(v, "");
}

static void merge_left_unknown(toy_vocab *v)
{
    toy_merge(v, "zz a");
}

static void merge_right_unknown(toy_vocab *v)
{
    toy_merge(v, "a zz");
}

static void merge_makes_nothing(toy_vocab *v)
{
    toy_merge(v, "b a");
}

static const struct refusal {
    const char *model;
    void (*spoil)(toy_vocab *v);
    const char *field;
    const char *says; /* part of the message */
} refusals[] = {
    {"llama", no_tokens, "tokenizer.ggml.tokens", "not in the file"},
    {"llama", empty_vocabulary, "tokenizer.ggml.tokens", "empty"},
    {"gpt2", empty_vocabulary, "tokenizer.ggml.tokens", "empty"},
    {"llama", few_scores, "tokenizer.ggml.scores", "258 entries for 259 tokens"},
    {"llama", few_types, "tokenizer.ggml.token_type", "258 entries for 259 tokens"},
    {"gpt2", few_types, "tokenizer.ggml.token_type", "256 entries for 257 tokens"},
    {"llama", bad_type, "tokenizer.ggml.token_type", "entry 7 is 9"},
    {"llama", bad_score, "tokenizer.ggml.scores", "entry 7"},
    {"llama", byte_minus_one, "tokenizer.ggml.tokens", "entry 259 is typed as a byte, but reads '<0x-1>'"},
    {"gpt2", byte_minus_one, "tokenizer.ggml.tokens", "entry 257"},
    {"llama", byte_not_hex, "tokenizer.ggml.tokens", "entry 259"},
    {"llama", byte_too_long, "tokenizer.ggml.tokens", "entry 259"},
    {"llama", byte_empty, "tokenizer.ggml.tokens", "entry 259"},
    {"llama", bos_out_of_range, "tokenizer.ggml.bos_token_id", "259"},
    {"llama", eos_out_of_range, "tokenizer.ggml.eos_token_id", "4294967295"},
    {"gpt2", eot_out_of_range, "tokenizer.ggml.eot_token_id", "1073741824"},
    {"gpt2", eom_negative, "tokenizer.ggml.eom_token_id", "-1"},
    {"llama", unknown_out_of_range, "tokenizer.ggml.unknown_token_id", "259"},
    {"gpt2", no_bos, "tokenizer.ggml.bos_token_id", "start token"},
    {"llama", no_bos_by_default, "tokenizer.ggml.bos_token_id", "start token"},
    {"llama", no_eos, "tokenizer.ggml.eos_token_id", "end token"},
    {"gpt2", no_merges, "tokenizer.ggml.merges", "not in the file"},
    {"gpt2", merge_without_space, "tokenizer.ggml.merges", "entry 1, 'ab'"},
    {"gpt2", merge_of_nothing, "tokenizer.ggml.merges", "entry 1, 'a '"},
    {"gpt2", merge_empty, "tokenizer.ggml.merges", "entry 1, ''"},
    {"gpt2", merge_left_unknown, "tokenizer.ggml.merges", "entry 1, 'zz a'"},
    {"gpt2", merge_right_unknown, "tokenizer.ggml.merges", "entry 1, 'a zz'"},
    {"gpt2", merge_makes_nothing, "tokenizer.ggml.merges", "entry 1, 'b a', makes no token"},
};

static void test_refusals(void **state)
{
    for (size_t i = 0; i < N_OF(refusals); i++) {
        const struct refusal *r = &refusals[i];
        toy_vocab *v = good(r->model);
        tokenizer *t = NULL;
        err e = {0};
        r->spoil(v);
        status st = toy_open(v, &t, &e);
        if (st != ST_LOAD_FAILED || strcmp(e.field, r->field) != 0 || !strstr(e.msg, r->says)) {
            print_error("row %zu: %s, field '%s': %s\n", i, status_name(st), e.field, e.msg);
        }
        assert_int_equal(st, ST_LOAD_FAILED);
        assert_string_equal(e.field, r->field);
        assert_non_null(strstr(e.msg, r->says));
        assert_null(t);
    }
}

static void test_unsupported(void **state)
{
    tokenizer *t = NULL;
    err e = {0};
    toy_vocab *v = toy_new("bert", NULL);
    toy_spm_base(v);
    assert_int_equal(toy_open(v, &t, &e), ST_UNSUPPORTED);
    assert_string_equal(e.field, "tokenizer.ggml.model");
    assert_non_null(strstr(e.msg, "'bert'"));
    v = toy_new("gpt2", "made-up");
    toy_bpe_base(v);
    assert_int_equal(toy_open(v, &t, &e), ST_UNSUPPORTED);
    assert_string_equal(e.field, "tokenizer.ggml.pre");
    assert_non_null(strstr(e.msg, "'made-up'"));
    v = toy_new("gpt2", NULL);
    toy_bpe_base(v);
    assert_int_equal(gguf_writer_str(v->w, "tokenizer.ggml.pre", "gpt-2\0x", 7), ST_OK);
    assert_int_equal(toy_open(v, &t, &e), ST_UNSUPPORTED);
    assert_string_equal(e.field, "tokenizer.ggml.pre");
    assert_non_null(strstr(e.msg, "NUL"));
    v = toy_new(NULL, NULL);
    toy_spm_base(v);
    assert_int_equal(toy_open(v, &t, &e), ST_LOAD_FAILED);
    assert_string_equal(e.field, "tokenizer.ggml.model");
    assert_null(t);
}

/* --- What an absent key means. --- */

static void test_defaults(void **state)
{
    toy_vocab *v = toy_new("llama", NULL);
    toy_spm_base(v);
    tokenizer *t = toy_open_ok(v);
    assert_string_equal(tokenizer_model(t), "llama");
    assert_string_equal(tokenizer_pre(t), "default");
    assert_int_equal(tokenizer_n_vocab(t), 259);
    assert_true(tokenizer_adds_bos(t));
    assert_false(tokenizer_adds_eos(t));
    assert_true(tokenizer_adds_space_prefix(t));
    assert_int_equal(tokenizer_bos(t), 1);
    assert_int_equal(tokenizer_eos(t), TOKEN_NONE); /* the file names no end token */
    tokenizer_free(t);

    v = toy_new("gpt2", "qwen2");
    toy_bpe_base(v);
    t = toy_open_ok(v);
    assert_string_equal(tokenizer_model(t), "gpt2");
    assert_string_equal(tokenizer_pre(t), "qwen2");
    assert_false(tokenizer_adds_bos(t));
    assert_false(tokenizer_adds_eos(t));
    assert_false(tokenizer_adds_space_prefix(t));
    assert_int_equal(tokenizer_bos(t), TOKEN_NONE);
    assert_int_equal(tokenizer_eos(t), TOKEN_NONE);
    size_t n_eog;
    tokenizer_eog_ids(t, &n_eog);
    assert_int_equal(n_eog, 0);
    assert_false(tokenizer_is_eog(t, 0));
    tokenizer_free(t);
}

/* llama 3's converters left add_bos_token out for a while: the family adds BOS if the file has one. */
static void test_llama3_bos(void **state)
{
    for (int with_bos = 0; with_bos < 2; with_bos++) {
        toy_vocab *v = toy_new("gpt2", "llama-bpe");
        toy_bpe_base(v);
        int32_t bos = toy_token(v, "<|begin_of_text|>", 0, TOKEN_CONTROL);
        if (with_bos) {
            toy_u32(v, "tokenizer.ggml.bos_token_id", (uint32_t)bos);
        }
        tokenizer *t = toy_open_ok(v);
        assert_int_equal(tokenizer_adds_bos(t), with_bos);
        if (with_bos) {
            EXPECT_IDS(t, "a", TOKENIZE_ADD_SPECIAL, bos, 'a');
        }
        tokenizer_free(t);
    }
}

/* Types and scores may be absent: all tokens are ordinary then, but <0x0A> still means a byte to
 * SentencePiece. */
static void test_no_types(void **state)
{
    toy_vocab *v = toy_new("llama", NULL);
    toy_spm_base(v);
    int32_t a = toy_token(v, "a", 0, TOKEN_NORMAL), aa = toy_token(v, "aa", 0, TOKEN_NORMAL);
    v->no_types = v->no_scores = true;
    tokenizer *t = toy_open_ok(v);
    EXPECT_IDS(t, "aaa\n", TOKENIZE_NO_PREFIX, aa, a, 3 + '\n');
    size_t n;
    assert_memory_equal(tokenizer_piece(t, 3 + '\n', &n), "\n", 1);
    assert_int_equal(n, 1);
    assert_int_equal(tokenizer_kind(t, a), TOKEN_NORMAL);
    tokenizer_free(t);
}

/* Real vocabularies hold equal and empty texts: the first of equal ones is found. */
static void test_duplicates(void **state)
{
    for (int bpe = 0; bpe < 2; bpe++) {
        toy_vocab *v = good(bpe ? "gpt2" : "llama");
        int32_t first = toy_token(v, "q", -1, TOKEN_NORMAL);
        toy_token(v, "q", -2, TOKEN_NORMAL);
        int32_t user = toy_token(v, "<x>", -1, TOKEN_USER_DEFINED);
        toy_token(v, "<x>", -1, TOKEN_USER_DEFINED);
        int32_t empty = toy_token(v, "", -1, TOKEN_NORMAL);
        toy_token(v, "", -1, TOKEN_CONTROL);
        tokenizer *t = toy_open_ok(v);
        EXPECT_IDS(t, "q<x>q", TOKENIZE_NO_PREFIX | TOKENIZE_PARSE_SPECIAL, bpe ? 'q' : first, user,
                   bpe ? 'q' : first);
        size_t n;
        tokenizer_piece(t, empty, &n);
        assert_int_equal(n, 0);
        tokenizer_free(t);
    }
}

/* --- The ids that end a reply. --- */

static void expect_eog(const tokenizer *t, const int32_t *want, size_t n_want)
{
    size_t n;
    const int32_t *ids = tokenizer_eog_ids(t, &n);
    assert_int_equal(n, n_want);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(ids[i], want[i]);
        assert_true(tokenizer_is_eog(t, want[i]));
    }
    assert_false(tokenizer_is_eog(t, 'a'));
    assert_false(tokenizer_is_eog(t, TOKEN_NONE));
}

static void test_eog(void **state)
{
    toy_vocab *v = good("gpt2");
    int32_t end = toy_token(v, IM_END, 0, TOKEN_NORMAL); /* typed wrongly, as files do */
    int32_t turn = toy_token(v, "<end_of_turn>", 0, TOKEN_CONTROL);
    int32_t fim = toy_token(v, "<|fim_prefix|>", 0, TOKEN_NORMAL);
    int32_t eot = toy_token(v, "<mine>", 0, TOKEN_CONTROL), eom = toy_token(v, "<also>", 0, TOKEN_CONTROL);
    toy_u32(v, "tokenizer.ggml.eos_token_id", (uint32_t)turn);
    toy_u32(v, "tokenizer.ggml.eot_token_id", (uint32_t)eot);
    toy_u32(v, "tokenizer.ggml.eom_token_id", (uint32_t)eom);
    tokenizer *t = toy_open_ok(v);
    assert_int_equal(tokenizer_eos(t), turn);
    expect_eog(t, (int32_t[]){end, turn, eot, eom}, 4);
    assert_int_equal(tokenizer_kind(t, end), TOKEN_CONTROL);
    assert_int_equal(tokenizer_kind(t, fim), TOKEN_CONTROL);
    EXPECT_IDS(t, "a" IM_END, TOKENIZE_PARSE_SPECIAL, 'a', end);
    EXPECT_IDS(t, "<|", 0, '<', '|');
    tokenizer_free(t);
}

/* In the harmony format <|end|> closes a message, not the reply. */
static void test_eog_misleading(void **state)
{
    for (int harmony = 0; harmony < 2; harmony++) {
        toy_vocab *v = good("gpt2");
        int32_t end = toy_token(v, "<|end|>", 0, TOKEN_CONTROL);
        int32_t back = toy_token(v, "<|return|>", 0, TOKEN_CONTROL);
        int32_t call = toy_token(v, harmony ? "<|call|>" : "<|recall|>", 0, TOKEN_CONTROL);
        tokenizer *t = toy_open_ok(v);
        if (harmony) {
            expect_eog(t, (int32_t[]){back, call}, 2);
        } else {
            expect_eog(t, (int32_t[]){end, back}, 2);
        }
        tokenizer_free(t);
    }
}

/* Phi-3's file types </s> as user-defined: it is a control token all the same, and no plain text. */
static void test_close_s_is_control(void **state)
{
    toy_vocab *v = good("llama");
    v->types[2] = TOKEN_USER_DEFINED;
    tokenizer *t = toy_open_ok(v);
    assert_int_equal(tokenizer_kind(t, 2), TOKEN_CONTROL);
    expect_eog(t, (int32_t[]){2}, 1);
    EXPECT_IDS(t, "</s>", TOKENIZE_NO_PREFIX, 3 + '<', 3 + '/', 3 + 's', 3 + '>');
    EXPECT_IDS(t, "</s>", TOKENIZE_PARSE_SPECIAL, 2);
    tokenizer_free(t);
}

/* A token of a megabyte: as a merge of tokens, as a whole piece, as an added token. */
static void test_huge_token(void **state)
{
    enum { LOG = 20 };
    const size_t len = (size_t)1 << LOG;
    char *text = malloc(len + 1);
    memset(text, 'a', len);
    text[len] = '\0';

    toy_vocab *v = toy_new("llama", NULL);
    toy_spm_base(v);
    int32_t first = (int32_t)v->n;
    for (int k = 0; k <= LOG; k++) {
        toy_token_n(v, text, (size_t)1 << k, k, TOKEN_NORMAL);
    }
    tokenizer *t = toy_open_ok(v);
    EXPECT_IDS_N(t, text, len, TOKENIZE_NO_PREFIX, first + LOG);
    EXPECT_IDS_N(t, text, len - 1, TOKENIZE_NO_PREFIX, first + 19, first + 18, first + 17, first + 16,
                 first + 15, first + 14, first + 13, first + 12, first + 11, first + 10, first + 9, first + 8,
                 first + 7, first + 6, first + 5, first + 4, first + 3, first + 2, first + 1, first);
    tokenizer_free(t);

    v = toy_new("gpt2", "llama-bpe");
    toy_bpe_base(v);
    int32_t whole = toy_token_n(v, text, len, 0, TOKEN_NORMAL);
    t = toy_open_ok(v);
    EXPECT_IDS_N(t, text, len, 0, whole);
    tokenizer_free(t);

    v = toy_new("gpt2", "gpt-2");
    toy_bpe_base(v);
    int32_t added = toy_token_n(v, text, len, 0, TOKEN_USER_DEFINED);
    t = toy_open_ok(v);
    EXPECT_IDS_N(t, text, len, 0, added);
    EXPECT_IDS(t, "aa", 0, 'a', 'a');
    size_t n;
    tokenizer_piece(t, added, &n);
    assert_int_equal(n, len);
    tokenizer_free(t);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_unsupported),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_llama3_bos),
        cmocka_unit_test(test_no_types),
        cmocka_unit_test(test_duplicates),
        cmocka_unit_test(test_eog),
        cmocka_unit_test(test_eog_misleading),
        cmocka_unit_test(test_close_s_is_control),
        cmocka_unit_test(test_huge_token),
    };
    return cmocka_run_group_tests_name("text-open", tests, NULL, NULL);
}
