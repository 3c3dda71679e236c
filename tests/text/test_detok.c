/*
 * The detokenising stream: whatever way bytes are split over tokens, what comes out is utf8_repair of all of
 * them, in whole characters, as early as can be.
 */
#include "text/detok.h"
#include "toy_vocab.h"

#define FFFD "\xEF\xBF\xBD"

/* Texts with what a reader must see. */
static const struct row {
    const char *bytes, *shown;
} rows[] = {
    {"plain", "plain"},
    {"h\xC3\xA9llo", "h\xC3\xA9llo"},
    {"\xF0\x9F\x91\xA8\xE2\x80\x8D\xF0\x9F\x91\xA9",
     "\xF0\x9F\x91\xA8\xE2\x80\x8D\xF0\x9F\x91\xA9"},                           /* joined emoji */
    {"\xF0\x9F\x87\xA9\xF0\x9F\x87\xAA!", "\xF0\x9F\x87\xA9\xF0\x9F\x87\xAA!"}, /* a flag */
    {"\xED\x95\x9C\xEA\xB8\x80", "\xED\x95\x9C\xEA\xB8\x80"},                   /* Hangul */
    {"\xE1\x84\x92\xE1\x85\xA1", "\xE1\x84\x92\xE1\x85\xA1"},                   /* jamo */
    {"e\xCC\x81", "e\xCC\x81"},
    {"\xF0\x9F\x98", FFFD}, /* never finished */
    {"\xF0\x9F\x98"
     "a",
     FFFD "a"}, /* broken off by a letter: one subsequence */
    {"\xE2\x96\xF0\x9F\x98\x80", FFFD "\xF0\x9F\x98\x80"},
    {"\x80\x81z", FFFD FFFD "z"},     /* nothing to continue */
    {"\xC0\xAF", FFFD FFFD},          /* overlong */
    {"\xED\xA0\x80", FFFD FFFD FFFD}, /* a surrogate */
    {"\xF8\x88\x80", FFFD FFFD FFFD},
    {"\xE2\xE2\x82\xAC\xE2", FFFD "\xE2\x82\xAC" FFFD},
    {"\xF4\x90\x80", FFFD FFFD FFFD}, /* over U+10FFFF */
};

/* A vocabulary whose tokens are all the substrings of bytes; id_of[from][len]. */
static tokenizer *substrings(const char *bytes, size_t n, int32_t id_of[16][17])
{
    toy_vocab *v = toy_new("gpt2", "gpt-2");
    for (size_t from = 0; from < n; from++) {
        for (size_t len = 1; from + len <= n; len++) {
            gguf_str s = toy_byte_text(bytes + from, len);
            id_of[from][len] = toy_token_n(v, s.data, s.len, 0, TOKEN_NORMAL);
        }
    }
    return toy_open_ok(v);
}

static void check_split(const tokenizer *t, const struct row *r, size_t n, uint32_t cuts,
                        int32_t id_of[16][17])
{
    detok d;
    buf out = {0}, so_far = {0};
    size_t from = 0;
    detok_init(&d, t);
    for (size_t i = 0; i < n; i++) {
        if (i + 1 < n && !(cuts >> i & 1)) {
            continue;
        }
        assert_int_equal(detok_push(&d, id_of[from][i + 1 - from], &out), ST_OK);
        from = i + 1;
        /* All but an unfinished character has been shown. */
        size_t tail = utf8_incomplete_tail(r->bytes, from);
        buf_reset(&so_far);
        assert_int_equal(utf8_repair(&so_far, r->bytes, from - tail), ST_OK);
        assert_string_equal(buf_str(&out), buf_str(&so_far));
        assert_int_equal(d.n_tail, tail);
    }
    assert_int_equal(detok_flush(&d, &out), ST_OK);
    assert_string_equal(buf_str(&out), r->shown);
    assert_int_equal(d.n_tail, 0);
    assert_int_equal(detok_flush(&d, &out), ST_OK); /* nothing twice */
    assert_string_equal(buf_str(&out), r->shown);
    buf_release(&so_far);
    buf_release(&out);
}

static void test_every_split(void **state)
{
    for (size_t i = 0; i < N_OF(rows); i++) {
        int32_t id_of[16][17];
        size_t n = strlen(rows[i].bytes);
        tokenizer *t = substrings(rows[i].bytes, n, id_of);
        for (uint32_t cuts = 0; cuts < UINT32_C(1) << (n - 1); cuts++) {
            check_split(t, &rows[i], n, cuts, id_of);
        }
        tokenizer_free(t);
    }
}

/* A copy goes on where the original stood: parking a sequence. */
static void test_copy(void **state)
{
    int32_t id_of[16][17];
    tokenizer *t = substrings("\xE2\x82\xAC", 3, id_of);
    detok d;
    buf a = {0}, b = {0};
    detok_init(&d, t);
    assert_int_equal(detok_push(&d, id_of[0][2], &a), ST_OK);
    detok copy = d;
    assert_int_equal(detok_push(&d, id_of[2][1], &a), ST_OK);
    assert_string_equal(buf_str(&a), "\xE2\x82\xAC");
    assert_int_equal(detok_flush(&copy, &b), ST_OK);
    assert_string_equal(buf_str(&b), FFFD);
    buf_release(&a);
    buf_release(&b);
    tokenizer_free(t);
}

/* SentencePiece: spaces, byte tokens, control tokens as the vocabulary writes them. */
static void test_spm(void **state)
{
    toy_vocab *v = toy_new("llama", NULL);
    toy_spm_base(v);
    int32_t word = toy_token(v, "\xE2\x96\x81word", -1, TOKEN_NORMAL);
    tokenizer *t = toy_open_ok(v);
    detok d;
    buf out = {0};
    const int32_t ids[] = {1, word, 3 + 0xE2, 3 + 0x82, 3 + 0xAC, 3 + 0xC3, word, 2};
    detok_init(&d, t);
    for (size_t i = 0; i < N_OF(ids); i++) {
        assert_int_equal(detok_push(&d, ids[i], &out), ST_OK);
    }
    assert_string_equal(buf_str(&out), "<s> word\xE2\x82\xAC" FFFD " word</s>");
    buf_release(&out);
    tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_split),
        cmocka_unit_test(test_copy),
        cmocka_unit_test(test_spm),
    };
    return cmocka_run_group_tests_name("text-detok", tests, NULL, NULL);
}
