/*
 * Every published case of ../shared/fixtures/tokenizers (ids and pieces made by llama.cpp, and by Hugging
 * Face's tokenizers where they could; see its MANIFEST), and detokenising them, must come out equal.
 */
#include "cases.h"
#include "text/detok.h"

/* Name, cases in its file by the MANIFEST. */
static const struct fixture {
    const char *name;
    size_t n_cases;
} fixtures[] = {{"llama-spm", 302},      {"phi-3", 302},     {"gpt-2", 282},  {"qwen3", 300}, {"llama3", 294},
                {"deepseek-coder", 290}, {"starcoder", 286}, {"falcon", 290}, {"gemma3", 294}};

/* The text that the pieces make, whatever way their bytes are split: utf8_repair of all of them. */
static void check_detok(const tokenizer *t, const ivec *ids)
{
    buf bytes = {0}, whole = {0}, stream = {0};
    detok d;
    detok_init(&d, t);
    for (size_t i = 0; i < ids->len; i++) {
        size_t n;
        const char *s = tokenizer_piece(t, ids->data[i], &n);
        assert_int_equal(buf_append(&bytes, s, n), ST_OK);
        assert_int_equal(detok_push(&d, ids->data[i], &stream), ST_OK);
    }
    assert_int_equal(detok_flush(&d, &stream), ST_OK);
    assert_int_equal(utf8_repair(&whole, buf_str(&bytes), bytes.len), ST_OK);
    assert_int_equal(stream.len, whole.len);
    assert_memory_equal(buf_str(&stream), buf_str(&whole), whole.len);
    buf_release(&stream);
    buf_release(&whole);
    buf_release(&bytes);
}

static bool run_case(const tokenizer *t, const char *file, size_t line, const token_case *c)
{
    ivec ids = {0};
    unsigned flags =
        (c->add_special ? TOKENIZE_ADD_SPECIAL : 0) | (c->parse_special ? TOKENIZE_PARSE_SPECIAL : 0);
    assert_int_equal(tokenizer_encode(t, buf_str(&c->text), c->text.len, flags, &ids), ST_OK);
    bool same = ids.len == c->ids.len;
    for (size_t i = 0; same && i < ids.len; i++) {
        same = ids.data[i] == c->ids.data[i];
    }
    if (!same) {
        print_error("%s:%zu: flags %u, text '%s'\n  want", file, line, flags, buf_str(&c->text));
        for (size_t i = 0; i < c->ids.len; i++) {
            print_error(" %d", c->ids.data[i]);
        }
        print_error("\n  got ");
        for (size_t i = 0; i < ids.len; i++) {
            print_error(" %d", ids.data[i]);
        }
        print_error("\n");
    } else {
        buf joined = {0};
        for (size_t i = 0; i < ids.len; i++) {
            size_t n;
            const char *s = tokenizer_piece(t, ids.data[i], &n);
            assert_int_equal(n, (size_t)c->piece_len.data[i]);
            assert_int_equal(buf_append(&joined, s, n), ST_OK);
        }
        assert_int_equal(joined.len, c->pieces.len);
        assert_memory_equal(buf_str(&joined), buf_str(&c->pieces), joined.len);
        buf_release(&joined);
        check_detok(t, &ids);
    }
    ivec_release(&ids);
    return same;
}

static void run_fixture(const char *name, size_t n_cases)
{
    char rel[128];
    tokenizer *t = tokenizer_from_fixture(name);
    snprintf(rel, sizeof rel, "tokenizers/%s.cases.jsonl", name);
    buf lines = {0};
    if (!t || !file_read(fixture_path(rel), &lines)) {
        tokenizer_free(t);
        skip();
    }
    size_t n = 0, n_bad = 0;
    const char *at = lines.data, *end = lines.data + lines.len;
    while (at < end) {
        const char *eol = memchr(at, '\n', (size_t)(end - at));
        size_t len = (size_t)((eol ? eol : end) - at);
        token_case c;
        case_parse(at, len, &c);
        n_bad += !run_case(t, rel, n + 1, &c);
        case_release(&c);
        n++;
        at += len + 1;
    }
    assert_int_equal(n_bad, 0);
    assert_int_equal(n, n_cases);
    buf_release(&lines);
    tokenizer_free(t);
}

static void test_cases(void **state)
{
    const struct fixture *f = *state;
    run_fixture(f->name, f->n_cases);
}

int main(void)
{
    enum { N = sizeof fixtures / sizeof *fixtures };
    struct CMUnitTest tests[N];
    for (size_t i = 0; i < N; i++) {
        tests[i] = (struct CMUnitTest){.name = fixtures[i].name, .test_func = test_cases};
        /* cmocka takes the initial state as void *; it is only read */
        tests[i].initial_state = (void *)(uintptr_t)&fixtures[i];
    }
    return _cmocka_run_group_tests("text-fixtures", tests, N, NULL, NULL);
}
