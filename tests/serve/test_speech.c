/*
 * What a choice has said, put together from frames as PROTOCOL 4 has them.
 */
#include <string.h>

#include "base/mem.h"
#include "base/test_main.h"
#include "serve/chat.h"

#define TEXT(s) ((wire_string){(s), sizeof(s) - 1})

static frame content(const char *text)
{
    return (frame){.kind = FRAME_DELTA, .text = text, .text_len = strlen(text)};
}

static frame thought(const char *text)
{
    return (frame){
        .kind = FRAME_DELTA, .delta = FRAME_DELTA_REASONING, .text = text, .text_len = strlen(text)};
}

static frame call(frame_call c)
{
    return (frame){.kind = FRAME_DELTA, .delta = FRAME_DELTA_CALL, .call = c, .text = ""};
}

static void say(speech *s, frame f)
{
    assert_int_equal(speech_add(s, &f, NULL), ST_OK);
}

/* A run for each kind of thing said, in the order of their beginnings; calls may be told in turn. */
static void test_order(void **state)
{
    speech s = {0};
    buf text = {0};
    size_t at = 0;
    say(&s, thought("let "));
    say(&s, thought("me see"));
    say(&s, content("I'll "));
    say(&s, content(""));
    say(&s, content("look."));
    say(&s, call((frame_call){.index = 0, .id = TEXT("a"), .name = TEXT("f"), .arguments = TEXT("{")}));
    say(&s, call((frame_call){.index = 1, .id = TEXT("b"), .name = TEXT("g"), .arguments = TEXT("")}));
    const frame rest = call((frame_call){.index = 0, .arguments = TEXT("}"), .closed = true});
    assert_int_equal(speech_add(&s, &rest, &at), ST_OK);
    assert_int_equal(at, 2);
    say(&s, call((frame_call){.index = 1, .arguments = TEXT(""), .withdrawn = true}));
    say(&s, content("<g>"));
    assert_int_equal(speech_len(&s), 5);
    assert_int_equal(speech_n_calls(&s), 1);
    assert_int_equal(speech_join(&s, SPEECH_TEXT, &text), ST_OK);
    assert_string_equal(buf_str(&text), "I'll look.<g>");
    buf_reset(&text);
    assert_int_equal(speech_join(&s, SPEECH_THOUGHT, &text), ST_OK);
    assert_string_equal(buf_str(&text), "let me see");
    assert_string_equal(buf_str(&speech_at(&s, 2)->text), "{}");
    assert_true(speech_at(&s, 2)->closed);
    assert_true(speech_at(&s, 3)->withdrawn);
    buf_release(&text);
    speech_release(&s);
}

/* A worker is not trusted. */
static void test_broken(void **state)
{
    const frame bad[] = {call((frame_call){.index = 0, .arguments = TEXT("x")}),
                         call((frame_call){.index = -1, .id = TEXT("a"), .name = TEXT("f")})};
    for (size_t i = 0; i < N_OF(bad); i++) {
        speech s = {0};
        assert_int_equal(speech_add(&s, &bad[i], NULL), ST_BAD_REQUEST);
        speech_release(&s);
    }
    speech s = {0};
    const frame begin =
        call((frame_call){.index = 3, .id = TEXT("a"), .name = TEXT("f"), .arguments = TEXT("")});
    assert_int_equal(speech_add(&s, &begin, NULL), ST_OK);
    assert_int_equal(speech_add(&s, &begin, NULL), ST_BAD_REQUEST);
    speech_release(&s);
}

/* The message of a plain answer: null content beside calls alone, a withdrawn call is only its text. */
static void test_message(void **state)
{
    static const char *const want[] = {
        "\"message\":{\"role\":\"assistant\",\"content\":null,\"refusal\":null,\"tool_calls\":[{\"id\":\"a\","
        "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]}",
        "\"message\":{\"role\":\"assistant\",\"content\":\"<f>\",\"reasoning_content\":\"hm\",\"refusal\":"
        "null}"};
    for (size_t i = 0; i < N_OF(want); i++) {
        speech s = {0};
        buf text = {0}, thoughts = {0}, out = {0};
        json_w w;
        bool void_call = i == 1;
        say(&s, call((frame_call){.index = 0, .id = TEXT("a"), .name = TEXT("f"), .arguments = TEXT("{}")}));
        say(&s, call((frame_call){
                    .index = 0, .arguments = TEXT(""), .closed = !void_call, .withdrawn = void_call}));
        if (void_call) {
            say(&s, content("<f>"));
            say(&s, thought("hm"));
        }
        assert_int_equal(speech_join(&s, SPEECH_TEXT, &text), ST_OK);
        assert_int_equal(speech_join(&s, SPEECH_THOUGHT, &thoughts), ST_OK);
        const answer_choice choice = {.text = buf_str(&text),
                                      .text_len = text.len,
                                      .thoughts = buf_str(&thoughts),
                                      .thoughts_len = thoughts.len,
                                      .said = &s};
        json_w_begin(&w, &out);
        json_w_obj_open(&w);
        chat_shape.put_text(&w, &choice);
        json_w_obj_close(&w);
        assert_int_equal(json_w_end(&w), ST_OK);
        assert_int_equal(out.len, strlen(want[i]) + 2);
        assert_memory_equal(out.data + 1, want[i], strlen(want[i]));
        buf_release(&text);
        buf_release(&thoughts);
        buf_release(&out);
        speech_release(&s);
    }
}

static void test_no_memory(void **state)
{
    const frame begin =
        call((frame_call){.index = 0, .id = TEXT("a"), .name = TEXT("f"), .arguments = TEXT("{}")});
    const frame more = content("text");
    status st = ST_NOMEM;
    for (uint64_t n = 1; st != ST_OK; n++) {
        speech s = {0};
        mem_fail_at(n, false);
        st = speech_add(&s, &begin, NULL);
        st = st == ST_OK ? speech_add(&s, &more, NULL) : st;
        mem_fail_at(0, false);
        assert_true(st == ST_OK || st == ST_NOMEM);
        assert_true(n < 100);
        speech_release(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_broken),
        cmocka_unit_test(test_message),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
