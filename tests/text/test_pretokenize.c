/*
 * The cuts of each pre-tokenizer, worked out by hand from the published patterns. ('|' marks a cut below; the
 * texts hold none.) The fixtures judge gpt-2, llama-bpe, qwen2, deepseek-coder, starcoder and falcon once
 * more.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "text/pretokenize.h"

#define N_OF(array) (sizeof(array) / sizeof((array)[0]))

static const struct cut {
    const char *pre, *cuts;
} cuts[] = {
    /* GPT-2: contractions in lower case only, numbers whole, a space goes with the word behind it, and of a
     * run of white space the last one stays back for it. */
    {"gpt-2", "Hello|,| world|!"},
    {"gpt-2", "I|'m| SHE|'|S| you|'ll"},
    {"gpt-2", "a| 2024|x"},
    {"gpt-2", "a|  | b|\n|c|  "},
    {"gpt-2", "a|\t\t|\t|b"},
    {"gpt-2", "x|\r\n|\n|y"},
    {"gpt-2",
     "\xE4\xBD\xA0\xE5\xA5\xBD|\xEF\xBC\x8C|a"}, /* ideographs are letters, the full-width comma not */
    {"gpt-2", "e|\xCC\x81|e"},                   /* a combining mark is no letter */
    {"gpt-2", "a|\xC2\xA0|b"},                   /* no-break space is white space, but no ' ' */
    {"gpt-2", "a|\xE1\xA0\x8E|b"},               /* U+180E is none (any more) */
    {"phi-2", "a| 12| b"},
    {"jina-v2-de", "I|'m| SHE|'|S| 12"},
    {"modern-bert", "a| 2024|x"},
    /* StarCoder's kind: every digit alone first; the space before it was cut off by then. */
    {"starcoder", "a| |1|2|x| y"},
    {"starcoder", "a|  |7"},
    {"smollm", "v|2|.|0| ok"},
    {"refact", "a| |3"},
    {"command-r", "a| |3"},
    /* llama 3: contractions in any case, at most three digits, one leading character of any kind but a line
       break. */
    {"llama-bpe", "I|'M| you|'ll"},
    {"llama-bpe", "123|4| |567"},
    {"llama-bpe", "(foo|)(|\tbar"},
    {"llama-bpe", "a|,\n\n|b|  \n \n|  | c"},
    {"llama-bpe", "x|\n|  "},
    {"llama-bpe", "x|   "},
    {"llama3", "a| |12"},
    {"falcon3", "I|'M"},
    {"jina-v5-nano", "I|'M| |123|4"},
    /* qwen 2: the same with single digits. */
    {"qwen2", "1|2|3"},
    {"qwen2", "I|'VE| |1|0|,|0|0|0"},
    {"qwen2", "e|\xCC\x81"},
    {"deepseek-r1-qwen", "a| |1|2"},
    {"kormo", "I|'VE| |1|0"},
    {"f2llmv2", "1|2|3"},
    /* qwen 3.5: marks belong to words, and may be all of one. */
    {"qwen35", "e\xCC\x81"
               "a| |1|2|,\xCC\x81|!"},
    /* DeepSeek LLM: line breaks alone, cased letters, ASCII and full-width punctuation, white space at the
       end, CJK. */
    {"deepseek-llm", "Hi|!|\n|\n| you|   |12|  "},
    {"deepseek-llm", "a|\xE4\xBD\xA0\xE5\xA5\xBD|\xE3\x80\x82|b"},
    {"deepseek-llm", "a|  | b"},
    {"deepseek-coder", "a|,|\n|\n| b| |1|2"},
    {"deepseek-coder", "a|  |\tb"},
    /* DeepSeek V3: three digits, then CJK and kana, then words that take one foreign character in front. */
    {"deepseek-v3", "123|45"},
    {"deepseek-v3", "a\xCC\x81| b|.foo|  | x"},
    {"deepseek-v3", "ab|\xE4\xBD\xA0\xE3\x81\x82|cd"},
    {"deepseek-v3", "a|!!\n\n|b"},
    {"joyai-llm", "123|45| b|.foo"},
    {"hy_v4", "123|45| b|.foo"},
    {"falcon", "a|+|b|,| |123|45|x"},
    {"default", "a|+|b| |123|45"},
};

static char *without_bars(const char *s, size_t *len)
{
    char *out = malloc(strlen(s) + 1);
    size_t n = 0;
    for (; *s; s++) {
        if (*s != '|') {
            out[n++] = *s;
        }
    }
    out[n] = '\0';
    *len = n;
    return out;
}

static pretokenizer *open_pre(const char *name)
{
    pretokenizer *p = NULL;
    err e = {0};
    const pretokenize_family *family = pretokenize_find(name, strlen(name));
    assert_non_null(family);
    if (pretokenizer_new(family, &p, &e) != ST_OK) {
        fail_msg("%s: %s", name, e.msg);
    }
    return p;
}

static void cut_text(const pretokenizer *p, const char *text, size_t len, buf *out)
{
    pretokenize_cursor c;
    size_t at = 0;
    assert_int_equal(pretokenize_cursor_init(&c, p), ST_OK);
    pretokenize_start(&c, text, len);
    for (;;) {
        size_t start, end;
        assert_int_equal(pretokenize_next(&c, &start, &end), ST_OK);
        if (start == end) {
            break;
        }
        assert_int_equal(start, at); /* nothing is left out */
        if (at > 0) {
            assert_int_equal(buf_append_char(out, '|'), ST_OK);
        }
        assert_int_equal(buf_append(out, text + start, end - start), ST_OK);
        at = end;
    }
    assert_int_equal(at, len);
    pretokenize_cursor_release(&c);
}

static void test_cuts(void **state)
{
    size_t n_bad = 0;
    for (size_t i = 0; i < N_OF(cuts); i++) {
        size_t len;
        char *text = without_bars(cuts[i].cuts, &len);
        pretokenizer *p = open_pre(cuts[i].pre);
        buf got = {0};
        cut_text(p, text, len, &got);
        if (strcmp(buf_str(&got), cuts[i].cuts) != 0) {
            print_error("row %zu (%s): want %s\n  got %s\n", i, cuts[i].pre, cuts[i].cuts, buf_str(&got));
        }
        n_bad += strcmp(buf_str(&got), cuts[i].cuts) != 0;
        buf_release(&got);
        pretokenizer_free(p);
        free(text);
    }
    assert_int_equal(n_bad, 0);
}

static void test_traits(void **state)
{
    assert_null(pretokenize_find("no-such", 7));
    assert_null(pretokenize_find("gpt-", 4));
    assert_null(pretokenize_find("gpt-2x", 6));
    assert_null(pretokenize_find("", 0));
    assert_true(pretokenize_find("llama-bpe", 9)->ignore_merges);
    assert_true(pretokenize_find("llama-bpe", 9)->adds_bos);
    assert_false(pretokenize_find("qwen2", 5)->ignore_merges);
    assert_false(pretokenize_find("qwen2", 5)->adds_bos);
}

/* A cursor is used again after a text it did not finish. */
static void test_restart(void **state)
{
    pretokenizer *p = open_pre("starcoder");
    pretokenize_cursor c;
    size_t start, end;
    assert_int_equal(pretokenize_cursor_init(&c, p), ST_OK);
    pretokenize_start(&c, "ab 12", 5);
    assert_int_equal(pretokenize_next(&c, &start, &end), ST_OK);
    pretokenize_start(&c, "7x", 2);
    assert_int_equal(pretokenize_next(&c, &start, &end), ST_OK);
    assert_int_equal(end, 1);
    pretokenize_start(&c, "", 0);
    assert_int_equal(pretokenize_next(&c, &start, &end), ST_OK);
    assert_int_equal(start, end);
    pretokenize_cursor_release(&c);
    pretokenizer_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_traits),
        cmocka_unit_test(test_restart),
    };
    return cmocka_run_group_tests_name("text-pretokenize", tests, NULL, NULL);
}
