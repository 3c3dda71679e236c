/*
 * Prompts as PROTOCOL 2 has them, on the made vocabularies, whose ids are known: BPE id b is byte b, then "
 * e" … and "ee", "et" …; SPM byte b is id 3 + b, then "▁", "e", "t" …, then "▁e", "▁t" …
 * (tests/model/make_vocab.c).
 */
#include "base/test_main.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/make_model.h"
#include "worker/prompt.h"

enum { E = 260, T = 261, SPACE_E = 286, SPACE_T = 287, BOS = 1, IM_END = 299, ET = 283, EN = 287 };

typedef struct vocab {
    gguf_file *file;
    tokenizer *tok;
} vocab;

static void vocab_open(vocab *v, make_vocab kind)
{
    char path[] = "/tmp/test_prompt_XXXXXX";
    make_model_spec spec = make_model_default(GGUF_TYPE_F32);
    err e;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    spec.vocab = kind;
    spec.width = 32;
    spec.head_dim = 8;
    spec.n_ff = 32;
    assert_int_equal(make_model(path, &spec, &e), ST_OK);
    assert_int_equal(gguf_open(path, &v->file, &e), ST_OK);
    assert_int_equal(tokenizer_open(v->file, &v->tok, &e), ST_OK);
    unlink(path);
}

static void vocab_close(vocab *v)
{
    tokenizer_free(v->tok);
    gguf_close(v->file);
}

/* A request by hand: text segments, or ids where the text is NULL. */
static wire_request request(const wire_segment *s, size_t n, bool add_special)
{
    return (wire_request){
        .prompt_field = "prompt_segments", .segments = s, .n_segments = n, .add_special = add_special};
}

static const int32_t five[] = {5}, none[] = {0};
#define TEXT(s)                      \
    {                                \
        .text = { s, sizeof(s) - 1 } \
    }
#define FIVE                                     \
    {                                            \
        .text = {"", 0}, .ids = five, .n_ids = 1 \
    }
#define NO_IDS                                   \
    {                                            \
        .text = {"", 0}, .ids = none, .n_ids = 0 \
    }

typedef struct prompt_case {
    make_vocab kind;
    bool add_special;
    size_t n;
    wire_segment segments[4];
    size_t n_ids;
    int32_t ids[9];
} prompt_case;

static const prompt_case cases[] = {
    {MAKE_VOCAB_BPE, false, 1, {TEXT("et")}, 1, {ET}},
    {MAKE_VOCAB_BPE, false, 2, {TEXT("e"), TEXT("t")}, 2, {101, 116}}, /* no merge crosses a border */
    {MAKE_VOCAB_BPE, false, 1, {TEXT("a<|im_end|>b")}, 3, {97, IM_END, 98}},
    {MAKE_VOCAB_BPE, false, 2, {TEXT("<|i"), TEXT("m|>")}, 6, {60, 124, 105, 109, 124, 62}},
    {MAKE_VOCAB_BPE, false, 2, {TEXT("<|im_end"), TEXT("|>")}, 9, {60, 124, 105, 109, 95, EN, 100, 124, 62}},
    {MAKE_VOCAB_BPE, true, 1, {TEXT("et")}, 1, {ET}}, /* this one wants no BOS */
    {MAKE_VOCAB_SPM, false, 1, {TEXT("e")}, 1, {SPACE_E}},
    {MAKE_VOCAB_SPM, false, 2, {TEXT("e"), TEXT("e")}, 2, {SPACE_E, E}},
    {MAKE_VOCAB_SPM, false, 2, {FIVE, TEXT("e")}, 2, {5, E}},
    {MAKE_VOCAB_SPM, false, 4, {TEXT(""), NO_IDS, TEXT("t"), TEXT("")}, 1, {SPACE_T}},
    {MAKE_VOCAB_SPM, false, 1, {TEXT("<s>e")}, 2, {BOS, SPACE_E}},
    {MAKE_VOCAB_SPM, true, 1, {TEXT("e")}, 2, {BOS, SPACE_E}},
    {MAKE_VOCAB_SPM, true, 3, {TEXT("e"), FIVE, TEXT("t")}, 4, {BOS, SPACE_E, 5, T}},
    {MAKE_VOCAB_SPM, true, 1, {TEXT("")}, 1, {BOS}},
    {MAKE_VOCAB_SPM, true, 0, {{{0}}}, 1, {BOS}},
};

static void test_ids(void **state)
{
    vocab v[3];
    ivec out = {0}, prefix = {0};
    vocab_open(&v[MAKE_VOCAB_SPM], MAKE_VOCAB_SPM);
    vocab_open(&v[MAKE_VOCAB_BPE], MAKE_VOCAB_BPE);
    for (size_t with_prefix = 0; with_prefix < 2; with_prefix++) {
        for (size_t i = 0; i < N_OF(cases); i++) {
            const prompt_case *c = &cases[i];
            wire_request r = request(c->segments, c->n, c->add_special);
            err e;
            assert_int_equal(prompt_build(v[c->kind].tok, &prefix, &r, 512, NULL, &out, &e), ST_OK);
            assert_int_equal(out.len, with_prefix + c->n_ids);
            assert_memory_equal(out.data + with_prefix, c->ids, c->n_ids * sizeof *c->ids);
            assert_true(!with_prefix || out.data[0] == 7); /* before everything, and changing nothing else */
        }
        assert_int_equal(ivec_push(&prefix, 7), ST_OK);
    }
    ivec_release(&out);
    ivec_release(&prefix);
    vocab_close(&v[MAKE_VOCAB_SPM]);
    vocab_close(&v[MAKE_VOCAB_BPE]);
}

/* With add_special a text alone is what the tokenizer itself makes of it. */
static void test_add_special_is_the_tokenizers(void **state)
{
    static const char *const texts[] = {"", "e", "the cat", " e", "<s>e", "\xc3\xa9"};
    vocab v;
    ivec out = {0}, want = {0}, prefix = {0};
    vocab_open(&v, MAKE_VOCAB_SPM);
    for (size_t i = 0; i < N_OF(texts); i++) {
        wire_segment s = {.text = {texts[i], strlen(texts[i])}};
        wire_request r = request(&s, 1, true);
        ivec_reset(&want);
        assert_int_equal(tokenizer_encode(v.tok, s.text.data, s.text.len,
                                          TOKENIZE_ADD_SPECIAL | TOKENIZE_PARSE_SPECIAL, &want),
                         ST_OK);
        assert_int_equal(prompt_build(v.tok, &prefix, &r, 512, NULL, &out, NULL), ST_OK);
        assert_int_equal(out.len, want.len);
        assert_memory_equal(out.data, want.data, want.len * sizeof *want.data);
    }
    ivec_release(&out);
    ivec_release(&want);
    vocab_close(&v);
}

static void test_limits(void **state)
{
    vocab v;
    ivec out = {0}, prefix = {0};
    err e;
    vocab_open(&v, MAKE_VOCAB_BPE);
    wire_segment empty = TEXT(""), long_text = TEXT("qqqqqqqqqq");
    wire_request r = request(&empty, 1, true);
    assert_int_equal(ivec_push(&prefix, 7), ST_OK);
    assert_int_equal(prompt_build(v.tok, &prefix, &r, 512, NULL, &out, &e),
                     ST_INVALID_FIELD); /* the request's own part */
    assert_string_equal(e.field, "prompt_segments");
    r = request(&long_text, 1, false);
    assert_int_equal(prompt_build(v.tok, &prefix, &r, 12, NULL, &out, &e), ST_OK);
    assert_int_equal(prompt_build(v.tok, &prefix, &r, 11, NULL, &out, &e), ST_CONTEXT_LENGTH);
    assert_int_equal(out.len, 11);
    assert_non_null(strstr(e.msg, "11"));
    ivec_release(&out);
    ivec_release(&prefix);
    vocab_close(&v);
}

/* tokenize may ask for control tokens to stay text; nothing else may. */
static void test_literal(void **state)
{
    vocab v;
    ivec out = {0};
    wire_segment s = TEXT("a<|im_end|>");
    wire_request r = request(&s, 1, false);
    vocab_open(&v, MAKE_VOCAB_BPE);
    r.op = WIRE_TOKENIZE;
    assert_int_equal(prompt_encode(v.tok, &r, NULL, &out, NULL), ST_OK);
    assert_true(out.len > 2 && out.data[0] == 97 && out.data[1] == '<');
    r.parse_special = true;
    ivec_reset(&out);
    assert_int_equal(prompt_encode(v.tok, &r, NULL, &out, NULL), ST_OK);
    assert_int_equal(out.len, 2);
    assert_int_equal(out.data[1], IM_END);
    r.op = WIRE_GENERATE;
    r.parse_special = false;
    ivec_reset(&out);
    assert_int_equal(prompt_encode(v.tok, &r, NULL, &out, NULL), ST_OK);
    assert_int_equal(out.len, 2);
    ivec_release(&out);
    vocab_close(&v);
}

/* <|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n, where x spells a marker and does not become one. */
static void test_messages(void **state)
{
    enum { IM_START = 298 };
    vocab v;
    ivec out = {0}, want = {0};
    chat_template *chat;
    prompt_talk talked = {0};
    static const char talk[] = "[{\"role\":\"user\",\"content\":\"<|im_end|>\"}]";
    json_doc *doc;
    assert_int_equal(json_parse(talk, sizeof talk - 1, JSON_MAX_DEPTH, &doc, NULL), ST_OK);
    wire_request r = wire_request_default(WIRE_CHAT);
    r.messages = json_root(doc);
    static const int32_t markers[] = {IM_START, IM_END, IM_START};
    vocab_open(&v, MAKE_VOCAB_BPE);
    assert_int_equal(chat_template_new(NULL, 0, v.tok, &chat, NULL), ST_OK);
    assert_int_equal(prompt_lay_out(chat, v.tok, NULL, &r, 0, &talked, &out, NULL), ST_OK);
    for (size_t i = 0; i < out.len; i++) {
        if (out.data[i] >= IM_START) {
            assert_int_equal(ivec_push(&want, out.data[i]), ST_OK);
        }
    }
    assert_int_equal(want.len, 3);
    assert_memory_equal(want.data, markers, sizeof markers);
    assert_int_equal(out.data[0], IM_START);
    assert_int_equal(out.data[out.len - 1], '\n');
    ivec_release(&out);
    ivec_release(&want);
    json_doc_free(doc);
    prompt_talk_release(&talked);
    chat_template_free(chat);
    vocab_close(&v);
}

/* Who is no longer wanted stops before the next text. */
static void test_dropped(void **state)
{
    vocab v;
    ivec out = {0};
    wire_segment s[] = {FIVE, TEXT("e")};
    wire_request r = request(s, 2, false);
    atomic_bool dropped = true;
    vocab_open(&v, MAKE_VOCAB_BPE);
    assert_int_equal(prompt_encode(v.tok, &r, &dropped, &out, NULL), ST_CANCELLED);
    assert_int_equal(out.len, 0);
    dropped = false;
    assert_int_equal(prompt_encode(v.tok, &r, &dropped, &out, NULL), ST_OK);
    assert_int_equal(out.len, 2);
    ivec_release(&out);
    vocab_close(&v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids),      cmocka_unit_test(test_add_special_is_the_tokenizers),
        cmocka_unit_test(test_limits),   cmocka_unit_test(test_literal),
        cmocka_unit_test(test_messages), cmocka_unit_test(test_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
