/*
 * Every allocation of opening, encoding, detokenising, stop matching and reply parsing fails once, alone and with all that
 * follow: always ST_NOMEM, nothing written, nothing lost (the leak check of ASan is the judge of that).
 */
#include "base/mem.h"
#include "reply_collect.h"
#include "text/detok.h"
#include "text/stop.h"
#include "toy_vocab.h"

#define MAX_ALLOCS 2000

typedef status (*attempt_fn)(void *ctx);

/* Fails allocation 1, 2, ... until the attempt gets by without reaching the one that fails. */
static void sweep(attempt_fn attempt, void *ctx)
{
    for (int sticky = 0; sticky < 2; sticky++) {
        uint64_t n = 1;
        for (; n < MAX_ALLOCS; n++) {
            mem_fail_at(n, sticky);
            uint64_t before = mem_alloc_count();
            status st = attempt(ctx);
            uint64_t used = mem_alloc_count() - before;
            mem_fail_at(0, false);
            if (used < n) {
                assert_int_equal(st, ST_OK);
                break;
            }
            assert_int_equal(st, ST_NOMEM);
        }
        assert_in_range(n, 2, MAX_ALLOCS - 1);
    }
}

static toy_vocab *toy(bool bpe)
{
    toy_vocab *v = toy_new(bpe ? "gpt2" : "llama", bpe ? "deepseek-v3" : NULL);
    if (bpe) {
        toy_bpe_base(v);
        toy_token(v, "aa", 0, TOKEN_NORMAL);
        toy_merge(v, "a a");
    } else {
        toy_spm_base(v);
        toy_token(v, "a", -1, TOKEN_NORMAL);
        toy_token(v, "aa", -2, TOKEN_NORMAL);
    }
    toy_token(v, "<|im_end|>", 0, TOKEN_CONTROL);
    toy_token(v, "<t>", 0, TOKEN_USER_DEFINED);
    return v;
}

static status open_attempt(void *ctx)
{
    tokenizer *t = NULL;
    err e = {0};
    status st = tokenizer_open(ctx, &t, &e);
    if (st != ST_OK) {
        assert_null(t);
        assert_int_equal(e.code, ST_NOMEM);
    }
    tokenizer_free(t);
    return st;
}

static void test_open(void **state)
{
    for (int bpe = 0; bpe < 2; bpe++) {
        toy_vocab *v = toy(bpe);
        gguf_file *f = toy_write(v);
        sweep(open_attempt, f);
        gguf_close(f);
        toy_free(v);
    }
}

typedef struct encoding {
    const tokenizer *t;
    const char *text;
    size_t len;
} encoding;

static status encode_attempt(void *ctx)
{
    const encoding *c = ctx;
    ivec out = {0};
    status st = tokenizer_encode(c->t, c->text, c->len, TOKENIZE_ADD_SPECIAL | TOKENIZE_PARSE_SPECIAL, &out);
    if (st != ST_OK) {
        assert_int_equal(out.len, 0);
    }
    ivec_release(&out);
    return st;
}

static void test_encode(void **state)
{
    static const char mixed[] = "aaa <|im_end|>\xE2 aab<t> 12\n\xF0\x9F\x98\x80 aaaa";
    enum { N_LONG = 6000 }; /* a run of several windows */
    char *run = malloc(N_LONG);
    memset(run, 'a', N_LONG);
    for (int bpe = 0; bpe < 2; bpe++) {
        tokenizer *t = toy_open_ok(toy(bpe));
        encoding rows[] = {{t, mixed, strlen(mixed)}, {t, run, N_LONG}};
        for (size_t i = 0; i < N_OF(rows); i++) {
            sweep(encode_attempt, &rows[i]);
        }
        tokenizer_free(t);
    }
    free(run);
}

static status detok_attempt(void *ctx)
{
    detok d;
    buf out = {0};
    detok_init(&d, ctx);
    static const int32_t ids[] = {0xE2, 0x82, 'a', 0xF0};
    status st = ST_OK;
    for (size_t i = 0; st == ST_OK && i < N_OF(ids); i++) {
        detok before = d;
        size_t len = out.len;
        st = detok_push(&d, ids[i], &out);
        if (st != ST_OK) { /* as if the push had not been */
            assert_memory_equal(&d, &before, sizeof d);
            assert_int_equal(out.len, len);
        }
    }
    if (st == ST_OK) {
        st = detok_flush(&d, &out);
    }
    buf_release(&out);
    return st;
}

static void test_detok(void **state)
{
    toy_vocab *v = toy(true);
    tokenizer *t = toy_open_ok(v);
    sweep(detok_attempt, t);
    tokenizer_free(t);
}

static status stop_attempt(void *ctx)
{
    const stop_string strings[] = {{"stop", 4}, {"step", 4}, {"", 0}};
    stop_set *set = NULL;
    stop_matcher m;
    buf out = {0};
    status st = stop_set_new(strings, N_OF(strings), &set, NULL);
    stop_matcher_init(&m, set);
    for (int i = 0; st == ST_OK && i < 3; i++) {
        int32_t before = m.state;
        size_t held = m.held.len, len = out.len;
        st = stop_matcher_push(&m, i == 2 ? "op!" : "some st", i == 2 ? 3 : 7, &out);
        if (st != ST_OK) {
            assert_int_equal(m.state, before);
            assert_int_equal(m.held.len, held);
            assert_int_equal(out.len, len);
        }
    }
    if (st == ST_OK) {
        assert_int_equal(m.matched, 0);
        assert_string_equal(buf_str(&out), "some stsome ");
    }
    buf_release(&out);
    stop_matcher_release(&m);
    stop_set_free(set);
    return st;
}

static void test_stop(void **state)
{
    sweep(stop_attempt, NULL);
}

typedef struct reply_case {
    reply_style style;
    const char *text;
    const json *tools;
} reply_case;

static status reply_attempt(void *ctx)
{
    const reply_case *r = ctx;
    reply_options o = {.format = reply_format_of(r->style), .tools = r->tools};
    collected c = {0};
    status st = collect_text(&c, &o, r->text, strlen(r->text), false, collect_bytes, NULL);
    if (st == ST_OK) {
        assert_in_range(collected_n_calls(&c), 1, 3);
    }
    collected_release(&c);
    return st;
}

static void test_reply(void **state)
{
    static const char tools[] = "[{\"name\":\"f\",\"parameters\":{\"properties\":{\"a\":{},\"b\":{}}}}]";
    static const reply_case rows[] = {
        {REPLY_HERMES,
         "<think>a b</think>c  d<tool_call>{\"arguments\": {\"x\": \"y\"}, \"id\": \"i\", \"name\": \"f\"}"
         "</tool_call>e<tool_call>{\"name\": \"g\", \"arguments\": {x"},
        {REPLY_QWEN3_CODER,
         "<tool_call><function=f><parameter=a>['x']</parameter><parameter=s>\ny\n</parameter></function>"
         "</tool_call>"},
        {REPLY_LLAMA3_JSON, "{\"a\": {}} {\"name\": \"f\", \"parameters\": {}}; x"},
        {REPLY_LLAMA3_PYTHON_TAG, "<|python_tag|>f.call(a=x)\n + 1"},
        {REPLY_MISTRAL, "[TOOL_CALLS]f[CALL_ID]i[ARGS]{}[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}]"},
        {REPLY_DEEPSEEK,
         "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}\n```"},
        {REPLY_HARMONY,
         "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary to=functions.f"
         "<|message|>{}<|call|>"},
        {REPLY_GEMMA, "```tool_code\nprint(f('a' 'b', (1, 0x2)))\n```\n[f(x={'k': -1.5})]\n```c\n```"},
        {REPLY_FUNCTIONARY_V3_2, "all\nx>>>f\n{}>>>python\ny >>> z\n>>>python\n{z"},
        {REPLY_FUNCTIONARY_V3_1, "<function=f>{}</function><|python_tag|>x"},
    };
    json_doc *doc = NULL;
    assert_int_equal(json_parse(tools, sizeof tools - 1, JSON_MAX_DEPTH, &doc, NULL), ST_OK);
    for (size_t i = 0; i < N_OF(rows); i++) {
        reply_case r = rows[i];
        r.tools = json_root(doc);
        sweep(reply_attempt, &r);
    }
    json_doc_free(doc);
}

static status opener_attempt(void *ctx)
{
    reply_format f = reply_format_of(REPLY_HERMES);
    buf out = {0};
    status st =
        reply_format_opener(&f, "a_tool_with_a_name_that_needs_more_room_than_the_first_growth_gives", &out);
    if (st != ST_OK) {
        assert_int_equal(out.len, 0);
    }
    buf_release(&out);
    return st;
}

static void test_opener(void **state)
{
    sweep(opener_attempt, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open), cmocka_unit_test(test_encode), cmocka_unit_test(test_detok),
        cmocka_unit_test(test_stop), cmocka_unit_test(test_reply),  cmocka_unit_test(test_opener),
    };
    return cmocka_run_group_tests_name("text-oom", tests, NULL, NULL);
}
