/*
 * Replies that come back in a conversation (FAILURES P3, T5). Each reply here is tokenised as no tokenizer would: "us"
 * is a token, and the model writes "u", "s". So whether the next prompt holds its tokens, or the text tokenised anew,
 * is seen in the ids; the judge of the text is the template, of canonical ids tokenizer_encode_ranges.
 */
#include "text/toy_vocab.h"

#include "base/mem.h"
#include "text/detok.h"
#include "worker/prompt.h"
#include "worker/talk.h"

#define CALLS                                                                                       \
    "{% for c in m.tool_calls %}<tool_call>\n{\"name\": \"{{ c.function.name }}\", \"arguments\": " \
    "{{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}"
#define BEFORE "{% if tools %}T<think></think>{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n"
#define AFTER  "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
/* Reasoning is read, and shown or not. */
#define PLAIN BEFORE "{{ m.content }}" CALLS AFTER
#define THINKS                                                                                        \
    BEFORE "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content.strip('\n') }}\n</think>\n\n" \
           "{% endif %}{{ m.content.lstrip('\n') }}" CALLS AFTER
#define TRIMS   BEFORE "{{ m.content | trim }}" CALLS AFTER
#define CHANGES BEFORE "{{ m.content | replace('too', 'TOO') }}" CALLS AFTER
#define DATED   "{{ day }}" PLAIN

#define TOOLS   ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]"
#define USER    "{\"role\":\"user\",\"content\":\"hi\"}"
#define SAID(s) "{\"role\":\"assistant\",\"content\":\"" s "\"}"
#define MORE    "{\"role\":\"user\",\"content\":\"more\"}"
#define CALL(id, args)                                                                                   \
    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"" id "\",\"type\":\"function\"," \
    "\"function\":{\"name\":\"f\",\"arguments\":" args "}}]}"
#define RESULT "{\"role\":\"tool\",\"tool_call_id\":\"c\",\"content\":\"7\"}"
#define CALL_TEXT \
    "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"us\": 1, \"b\": [2, \"x\"]}}\n</tool_call>"

enum { ALL = 0 };

typedef struct rig {
    tokenizer *tok;
    chat_template *chat;
    turns *kept;
    int32_t us, im_start, odd;
} rig;

static void rig_open(rig *r, const char *source)
{
    toy_vocab *v = toy_new("gpt2", "llama-bpe");
    toy_bpe_base(v);
    r->us = toy_token(v, "us", 0, TOKEN_NORMAL);
    toy_merge(v, "u s");
    gguf_str odd = toy_byte_text("\xa9!", 2);
    r->odd = toy_token_n(v, odd.data, odd.len, 0, TOKEN_NORMAL);
    r->im_start = toy_token(v, "<|im_start|>", 0, TOKEN_CONTROL);
    int32_t end = toy_token(v, "<|im_end|>", 0, TOKEN_CONTROL);
    toy_token(v, "<think>", 0, TOKEN_CONTROL);
    toy_token(v, "</think>", 0, TOKEN_CONTROL);
    toy_token(v, "<tool_call>", 0, TOKEN_USER_DEFINED);
    toy_token(v, "</tool_call>", 0, TOKEN_USER_DEFINED);
    toy_u32(v, "tokenizer.ggml.eos_token_id", (uint32_t)end);
    r->tok = toy_open_ok(v);
    assert_int_equal(chat_template_new(source, strlen(source), r->tok, &r->chat, NULL), ST_OK);
    assert_int_equal(turns_new(TURNS_DEFAULT_BYTES, &r->kept), ST_OK);
}

static void rig_close(rig *r)
{
    chat_template_free(r->chat);
    tokenizer_free(r->tok);
    turns_free(r->kept);
}

/* A chat as the engine would get it. */
typedef struct asked {
    wire_request *request;
    prompt_talk talk;
    ivec ids;
} asked;

static void ask(rig *r, const char *messages, const char *fields, asked *a)
{
    char line[4096];
    buf answer = {0};
    err e = {0};
    wire_limits limits = {tokenizer_n_vocab(r->tok), false};
    memset(a, 0, sizeof *a);
    snprintf(line, sizeof line, "{\"id\":\"x\",\"op\":\"chat\",\"messages\":[%s]%s}", messages, fields);
    if (wire_request_decode(line, strlen(line), &limits, &a->request, &answer, NULL, &e) != ST_OK ||
        prompt_lay_out(r->chat, r->tok, r->kept, a->request, 0, &a->talk, &a->ids, &e) != ST_OK) {
        fail_msg("%s: %s", line, e.msg);
    }
    buf_release(&answer);
}

static void asked_release(asked *a)
{
    wire_request_free(a->request);
    prompt_talk_release(&a->talk);
    ivec_release(&a->ids);
}

/* The text's tokens, "us" in two. The first half of a character at its end is a token too, and the second half of one
 * with "!" behind it. */
static void reply_ids(const rig *r, const char *text, ivec *out)
{
    ivec ids = {0};
    size_t n = strlen(text);
    bool half = text[n - 1] == '\xc3';
    assert_int_equal(tokenizer_encode(r->tok, text, n - half, TOKENIZE_PARSE_SPECIAL, &ids), ST_OK);
    assert_int_equal(half ? ivec_push(&ids, 0xc3) : ST_OK, ST_OK);
    for (size_t i = 0; i < ids.len; i++) {
        bool two = ids.data[i] == r->us,
             odd = ids.data[i] == 0xa9 && i + 1 < ids.len && ids.data[i + 1] == '!';
        if (odd) {
            ids.data[++i] = r->odd;
        }
        assert_int_equal(ivec_push(out, two ? 'u' : ids.data[i]), ST_OK);
        assert_int_equal(two ? ivec_push(out, 's') : ST_OK, ST_OK);
    }
    ivec_release(&ids);
}

static void say_nothing(void *ctx, const frame_step *s)
{
}

/* The reply is generated and kept; n_shown: a stop string cut it there. fail_at: of the allocations that keeping it
 * takes; 0 = none. */
static status reply_failing(const rig *r, const asked *a, const ivec *ids, size_t n_shown, uint64_t fail_at)
{
    ivec no_ids = {0};
    buf text = {0};
    talk *t;
    detok d;
    size_t shown = 0;
    gen_verdict v = {0};
    talk_options o = {.request = a->request,
                      .format = chat_template_format(r->chat),
                      .opening = &a->talk.opening,
                      .reasoning_open = a->talk.reasoning_open,
                      .budget = -1,
                      .close_ids = &no_ids,
                      .say = say_nothing};
    assert_int_equal(talk_new(&o, &t), ST_OK);
    detok_init(&d, r->tok);
    assert_int_equal(talk_watch(t, GEN_BEGINS, "", 0, &v), ST_OK);
    for (size_t i = 0; i <= ids->len; i++) {
        buf_reset(&text);
        assert_int_equal(i < ids->len ? detok_push(&d, ids->data[i], &text) : detok_flush(&d, &text), ST_OK);
        size_t len = n_shown != ALL && shown + text.len > n_shown ? n_shown - shown : text.len;
        shown += len;
        assert_int_equal(talk_watch(t, i < ids->len ? GEN_TOKEN : GEN_ENDS, buf_str(&text), len, &v), ST_OK);
    }
    mem_fail_at(fail_at, false);
    status st = talk_keep(t, r->tok, &a->talk.known, ids->data, ids->len);
    mem_fail_at(0, false);
    talk_free(t);
    buf_release(&text);
    return st;
}

static void reply(const rig *r, const asked *a, const ivec *ids, size_t n_shown)
{
    assert_int_equal(reply_failing(r, a, ids, n_shown, 0), ST_OK);
}

static bool begins(const ivec *whole, const ivec *a, const ivec *b)
{
    return whole->len >= a->len + b->len && memcmp(whole->data, a->data, a->len * sizeof *a->data) == 0 &&
           memcmp(whole->data + a->len, b->data, b->len * sizeof *b->data) == 0;
}

static bool equal(const ivec *a, const ivec *b)
{
    return a->len == b->len && memcmp(a->data, b->data, a->len * sizeof *a->data) == 0;
}

static void canonical(const rig *r, const asked *a, ivec *out)
{
    const chat_text *c = &a->talk.text;
    assert_int_equal(
        tokenizer_encode_ranges(r->tok, buf_str(&c->text), c->text.len, c->plain, c->n_plain, 0, out), ST_OK);
}

/* Whatever the ids are, they spell the text. */
static void assert_spelled(const rig *r, const asked *a)
{
    buf text = {0};
    for (size_t i = 0; i < a->ids.len; i++) {
        size_t len;
        const char *piece = tokenizer_piece(r->tok, a->ids.data[i], &len);
        assert_int_equal(buf_append(&text, piece, len), ST_OK);
    }
    assert_string_equal(buf_str(&text), buf_str(&a->talk.text.text));
    buf_release(&text);
}

typedef struct turn_case {
    const char *name, *source;
    const char *first, *fields; /* the first request */
    const char *reply;
    size_t n_shown;
    const char *second, *fields_2;
    bool spliced;
    const char *shows; /* in the second prompt's text; NULL: not looked at */
    const char *hides;
    size_t n_less; /* tokens at the reply's end that are not spliced */
} turn_case;

#define THOUGHT "<think>\nus\n</think>\n\nok"

static const turn_case cases[] = {
    {"the same", PLAIN, USER, "", "us", ALL, USER "," SAID("us") "," MORE, "", true},
    {"at the end", PLAIN, USER, "", "us", ALL, USER "," SAID("us"), ",\"continue_final_message\":true", true},
    {"in parts", PLAIN, USER, "", "us", ALL,
     USER ",{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"u\"},{\"type\":\"text\","
          "\"text\":\"s\"}]}," MORE,
     "", true},
    {"the assistant has a name", PLAIN, USER, "", "us", ALL,
     USER ",{\"role\":\"assistant\",\"name\":\"me\",\"content\":\"us\"}," MORE, "", true},
    {"other sampling, a session", PLAIN, USER, "", "us", ALL, USER "," SAID("us") "," MORE,
     ",\"temperature\":1,\"session_id\":\"s\"", true},
    {"other content", PLAIN, USER, "", "us", ALL, USER "," SAID("us ") "," MORE, "", false},
    {"half of it", PLAIN, USER, "", "us", ALL, USER "," SAID("u") "," MORE, "", false},
    {"something earlier is changed", PLAIN, USER, "", "us", ALL, MORE "," SAID("us") "," MORE, "", false},
    {"a name earlier", PLAIN, USER, "", "us", ALL,
     "{\"role\":\"user\",\"name\":\"bob\",\"content\":\"hi\"}," SAID("us") "," MORE, "", false},
    {"something in between", PLAIN, USER, "", "us", ALL, USER "," MORE "," SAID("us") "," MORE, "", false},
    {"said by the user", PLAIN, USER, "", "us", ALL, USER ",{\"role\":\"user\",\"content\":\"us\"}," MORE, "",
     false},
    {"tools come in", PLAIN, USER, "", "us", ALL, USER "," SAID("us") "," MORE, TOOLS, false},
    /* reasoning */
    {"reasoning left out", THINKS, USER, "", THOUGHT, ALL, USER "," SAID("ok") "," MORE, "", true, THOUGHT},
    {"reasoning null", THINKS, USER, "", THOUGHT, ALL,
     USER ",{\"role\":\"assistant\",\"content\":\"ok\",\"reasoning_content\":null}," MORE, "", true, THOUGHT},
    {"reasoning sent back", THINKS, USER, "", THOUGHT, ALL,
     USER ",{\"role\":\"assistant\",\"content\":\"ok\",\"reasoning_content\":\"us\"}," MORE, "", true,
     THOUGHT},
    {"reasoning of the client's own", THINKS, USER, "", THOUGHT, ALL,
     USER ",{\"role\":\"assistant\",\"content\":\"ok\",\"reasoning_content\":\"no\"}," MORE, "", false,
     "<think>\nno\n", "us\n</think>"},
    {"reasoning that is none", THINKS, USER, "", THOUGHT, ALL,
     USER ",{\"role\":\"assistant\",\"content\":\"ok\",\"reasoning_content\":\"\"}," MORE, "", false, NULL,
     "<think>"},
    {"reasoning that is not shown", PLAIN, USER, TOOLS, THOUGHT, ALL, USER "," SAID("ok") "," MORE, TOOLS,
     false, NULL, "us\n"},
    {"reasoning spelled another way", THINKS, USER, "", "<think>us</think>ok", ALL,
     USER "," SAID("ok") "," MORE, "", false, THOUGHT},
    {"tools come in: the reasoning stays", THINKS, USER, "", THOUGHT, ALL, USER "," SAID("ok") "," MORE,
     TOOLS, false, THOUGHT},
    {"reasoning and a call", THINKS, USER, TOOLS, "<think>\nus\n</think>\n\n" CALL_TEXT, ALL,
     USER "," CALL("c", "\"{\\\"us\\\": 1, \\\"b\\\": [2, \\\"x\\\"]}\"") "," RESULT, TOOLS, true,
     "<think>\nus\n</think>\n\n<tool_call>"},
    /* calls */
    {"arguments as text", PLAIN, USER, TOOLS, CALL_TEXT, ALL,
     USER "," CALL("c", "\"{\\\"us\\\": 1, \\\"b\\\": [2, \\\"x\\\"]}\"") "," RESULT, TOOLS, true},
    {"arguments as an object, another id", PLAIN, USER, TOOLS, CALL_TEXT, ALL,
     USER "," CALL("else", "{\"us\":1,\"b\":[2,\"\\u0078\"]}") "," RESULT, TOOLS, true},
    {"arguments in another order", THINKS, USER, TOOLS, "<think>\nus\n</think>\n\n" CALL_TEXT, ALL,
     USER "," CALL("c", "\"{\\\"b\\\":[2.0,\\\"x\\\"],\\\"us\\\":1.0}\"") "," RESULT, TOOLS, false,
     "<think>\nus\n</think>"},
    {"other arguments", THINKS, USER, TOOLS, "<think>\nus\n</think>\n\n" CALL_TEXT, ALL,
     USER "," CALL("c", "{\"us\":1,\"b\":[\"x\",2]}") "," RESULT, TOOLS, false, NULL, "<think>\nus"},
    {"another function", THINKS, USER, TOOLS, "<think>\nus\n</think>\n\n" CALL_TEXT, ALL,
     USER ",{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"g\",\"arguments\":{\"us\":1,"
          "\"b\":[2,\"x\"]}}}]}," RESULT,
     TOOLS, false, NULL, "<think>\nus"},
    {"a call that was forced", PLAIN, USER, TOOLS ",\"tool_choice\":\"required\"",
     "{\"name\": \"f\", \"arguments\": {\"us\": 1, \"b\": [2, \"x\"]}}\n</tool_call>", ALL,
     USER "," CALL("c", "{\"us\":1,\"b\":[2,\"x\"]}") "," RESULT, TOOLS, true},
    {"a call that was named", PLAIN, USER, TOOLS ",\"tool_choice\":{\"name\":\"f\"}",
     " {\"us\": 1, \"b\": [2, \"x\"]}}\n</tool_call>", ALL,
     USER "," CALL("c", "{\"us\":1,\"b\":[2,\"x\"]}") "," RESULT, TOOLS, true},
    /* white space that template and parser take away */
    {"white space at the end", PLAIN, USER, "", "us\n", ALL, USER "," SAID("us") "," MORE, "", false},
    {"a template that trims", TRIMS, USER, "", "us", ALL, USER "," SAID("us") "," MORE, "", true},
    /* what was shown is not what was generated */
    {"a stop string behind", PLAIN, USER, "", "us END", 2, USER "," SAID("us") "," MORE, "", true, NULL, NULL,
     4},
    {"a stop string inside a token", PLAIN, USER, "", "us</tool_call>", 7, USER "," SAID("us</too") "," MORE,
     "", true, "us</too", NULL, 1},
    {"half a character", PLAIN, USER, "", "us\xc3", ALL, USER "," SAID("us\xef\xbf\xbd") "," MORE, "", true,
     "us\xef\xbf\xbd", NULL, 1},
    {"a stop string inside a character's token", PLAIN, USER, "", "us\xc3\xa9!", 4,
     USER "," SAID("us\xc3\xa9") "," MORE, "", true, "us\xc3\xa9<", NULL, 2},
    {"a template that changes the rest", CHANGES, USER, "", "us</tool_call>", 7,
     USER "," SAID("us</too") "," MORE, "", false, "us</TOO"},
    {"something before it is another", DATED, USER, ",\"template_kwargs\":{\"day\":\"1\"}", "us", ALL,
     USER "," SAID("us") "," MORE, ",\"template_kwargs\":{\"day\":\"2\"}", false},
    {"nothing before it is", DATED, USER, ",\"template_kwargs\":{\"day\":\"1\"}", "us", ALL,
     USER "," SAID("us") "," MORE, ",\"template_kwargs\":{\"day\":\"1\"}", true},
    /* the client has written the beginning */
    {"continued", PLAIN, USER "," SAID("so "), ",\"continue_final_message\":true", "us", ALL,
     USER "," SAID("so us") "," MORE, "", true},
    /* T5: control tokens in what the client sends */
    {"a control token in the content", PLAIN, USER, "", "us<|im_start|>us", ALL,
     USER "," SAID("us<|im_start|>us") "," MORE, "", false},
    {"one that the user spells", PLAIN, "{\"role\":\"user\",\"content\":\"<|im_start|>\"}", "", "us", ALL,
     "{\"role\":\"user\",\"content\":\"<|im_start|>\"}," SAID("us") "," MORE, "", true},
    {"in the reasoning", THINKS, USER, "", "<think>\nus<|im_start|>\n</think>\n\nok", ALL,
     USER "," SAID("ok") "," MORE, "", false, "us<|im_start|>\n</think>"},
    /* whose it is */
    {"another namespace", PLAIN, USER, ",\"cache_namespace\":\"a\"", "us", ALL, USER "," SAID("us") "," MORE,
     ",\"cache_namespace\":\"b\"", false},
    {"the common namespace", PLAIN, USER, ",\"cache_namespace\":\"a\"", "us", ALL,
     USER "," SAID("us") "," MORE, "", false},
    {"the same namespace", PLAIN, USER, ",\"cache_namespace\":\"a\"", "us", ALL, USER "," SAID("us") "," MORE,
     ",\"cache_namespace\":\"a\"", true},
};

static size_t count(const char *text, const char *word)
{
    size_t n = 0;
    for (const char *p = text; (p = strstr(p, word)) != NULL; p++) {
        n++;
    }
    return n;
}

/* Control tokens are those that the template wrote: one for each message, and one for the reply. */
static void assert_no_more_markers(const rig *r, const asked *a)
{
    size_t n = 0;
    for (size_t i = 0; i < a->ids.len; i++) {
        n += a->ids.data[i] == r->im_start;
    }
    assert_int_equal(n, json_len(a->request->messages) + !a->request->continue_final_message);
}

static void check(const turn_case *c)
{
    rig r;
    asked one, two;
    ivec ids = {0}, whole = {0};
    rig_open(&r, c->source);
    ask(&r, c->first, c->fields, &one);
    reply_ids(&r, c->reply, &ids);
    reply(&r, &one, &ids, c->n_shown);
    ask(&r, c->second, c->fields_2, &two);
    canonical(&r, &two, &whole);
    ivec_truncate(&ids, ids.len - c->n_less);
    bool spliced = begins(&two.ids, &one.ids, &ids);
    const char *text = buf_str(&two.talk.text.text);
    if (spliced != c->spliced || (!c->spliced && !equal(&two.ids, &whole)) ||
        (c->shows && !strstr(text, c->shows)) || (c->hides && strstr(text, c->hides))) {
        fail_msg("%s: %s, and the text is\n%s", c->name, spliced ? "spliced" : "not spliced", text);
    }
    assert_spelled(&r, &two);
    assert_no_more_markers(&r, &two);
    asked_release(&one);
    asked_release(&two);
    ivec_release(&ids);
    ivec_release(&whole);
    rig_close(&r);
}

static void test_cases(void **state)
{
    for (size_t i = 0; i < N_OF(cases); i++) {
        check(&cases[i]);
    }
}

/* Ten turns: each prompt begins with the one before and its reply, whatever the others hold. */
static void test_ten_turns(void **state)
{
    rig r;
    buf said = {0};
    ivec ids = {0};
    asked last = {0};
    rig_open(&r, THINKS);
    assert_int_equal(buf_append_str(&said, USER), ST_OK);
    for (int i = 0; i < 10; i++) {
        asked now;
        ask(&r, buf_str(&said), TOOLS, &now);
        assert_true(i == 0 || begins(&now.ids, &last.ids, &ids));
        assert_int_equal(count(buf_str(&now.talk.text.text), "<think>\nus"), i);
        asked_release(&last);
        last = now;
        ivec_reset(&ids);
        reply_ids(&r, "<think>\nus\n</think>\n\n" CALL_TEXT, &ids);
        reply(&r, &now, &ids, ALL);
        assert_int_equal(buf_append_str(&said, "," CALL("c", "{\"us\":1,\"b\":[2,\"x\"]}") "," RESULT),
                         ST_OK);
    }
    asked_release(&last);
    ivec_release(&ids);
    buf_release(&said);
    rig_close(&r);
}

/* T5: the same text, but with one character of a marker in it the client's. Then the marker is no control token, and the
 * turn that has one there is not spliced. */
static void test_markers_must_be_the_templates(void **state)
{
    rig r;
    asked one, two;
    ivec ids = {0};
    rig_open(&r, THINKS);
    ask(&r, USER, "", &one);
    reply_ids(&r, THOUGHT, &ids);
    reply(&r, &one, &ids, ALL);
    ask(&r, USER "," SAID("ok"), ",\"continue_final_message\":true", &two);
    chat_text *c = &two.talk.text;
    size_t think = (size_t)(strstr(buf_str(&c->text), "<think>") - buf_str(&c->text)),
           len = strlen("<think>");
    for (size_t bent = 0; bent <= len + 1; bent++) { /* a character before it, each of its own, and none */
        special_range client = {think + bent - 1, think + bent};
        chat_text other = {.text = c->text, .plain = &client, .n_plain = bent <= len};
        recall known = {0};
        assert_int_equal(recall_look(&known, r.kept, two.request), ST_OK);
        assert_int_equal(recall_place(&known, r.tok, &other), ST_OK);
        assert_int_equal(known.n_splices, bent == 0 || bent > len);
        recall_release(&known);
    }
    asked_release(&one);
    asked_release(&two);
    ivec_release(&ids);
    rig_close(&r);
}

/* No memory, no turn: nothing of it is remembered, nothing goes wrong. */
static void test_off(void **state)
{
    rig r;
    asked one, two;
    ivec ids = {0}, whole = {0};
    rig_open(&r, THINKS);
    turns_free(r.kept);
    r.kept = NULL;
    ask(&r, USER, "", &one);
    reply_ids(&r, THOUGHT, &ids);
    reply(&r, &one, &ids, ALL);
    ask(&r, USER "," SAID("ok"), "", &two);
    canonical(&r, &two, &whole);
    assert_true(equal(&two.ids, &whole));
    assert_null(strstr(buf_str(&two.talk.text.text), "<think>"));
    asked_release(&one);
    asked_release(&two);
    ivec_release(&ids);
    ivec_release(&whole);
    rig_close(&r);
}

/* At each allocation: an error, or a reply that is not remembered. */
static void test_nomem(void **state)
{
    rig r;
    asked one;
    ivec ids = {0};
    rig_open(&r, THINKS);
    ask(&r, USER, TOOLS, &one);
    reply_ids(&r, "<think>\nus\n</think>\n\n" CALL_TEXT, &ids);
    uint64_t at = 1;
    for (status st = ST_NOMEM; st != ST_OK; at++) {
        st = reply_failing(&r, &one, &ids, ALL, at);
        assert_true(st == ST_OK || st == ST_NOMEM);
        assert_int_equal(turns_count(r.kept).n, st == ST_OK);
        assert_true(at < 100000);
    }
    assert_true(at > 10);
    asked two;
    ask(&r, USER "," CALL("c", "{\"us\":1,\"b\":[2,\"x\"]}") "," RESULT, TOOLS, &two);
    bool done = false;
    for (uint64_t n = 1; !done; n++) {
        prompt_talk laid = {0};
        ivec again = {0};
        err e;
        mem_fail_at(n, false);
        status st = prompt_lay_out(r.chat, r.tok, r.kept, two.request, 0, &laid, &again, &e);
        mem_fail_at(0, false);
        assert_true(st == ST_OK || st == ST_NOMEM);
        done = st == ST_OK;
        assert_true(!done || equal(&again, &two.ids));
        prompt_talk_release(&laid);
        ivec_release(&again);
        assert_true(n < 100000);
    }
    asked_release(&one);
    asked_release(&two);
    ivec_release(&ids);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_ten_turns),
        cmocka_unit_test(test_markers_must_be_the_templates),
        cmocka_unit_test(test_off),
        cmocka_unit_test(test_nomem),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
