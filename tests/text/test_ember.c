/*
 * The vocabulary and the layout of a model that people chat with, the bundled one: what the toys of the other tests
 * promise holds for a real byte-level vocabulary with control tokens.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/utf8.h"
#include "ember.h"
#include "text/chatml.h"
#include "text/detok.h"
#include "text/tokenizer.h"

#define N_OF(array) (sizeof(array) / sizeof((array)[0]))
#define MSG(role, content)                                              \
    (chatml_message)                                                    \
    {                                                                   \
        role, sizeof(role) - 1, content, sizeof(content) - 1 /* NULs */ \
    }

static tokenizer *t;

static int open_vocabulary(void **state)
{
    gguf_file *f = NULL;
    err e;
    bool ok = gguf_open(ember_path(), &f, &e) == ST_OK && tokenizer_open(f, &t, &e) == ST_OK;
    gguf_close(f);
    if (!ok) {
        print_error("%s: %s\n", ember_path(), e.msg);
    }
    return ok ? 0 : -1;
}

static int close_vocabulary(void **state)
{
    tokenizer_free(t);
    return 0;
}

/* Text and ids of a conversation with the start of a reply. */
static void render(const chatml_message *m, size_t n, buf *text, ivec *ids)
{
    arena mem;
    const chatml_segment *s = NULL;
    size_t n_segments = 0;
    arena_init(&mem, 4096);
    assert_int_equal(chatml_render(m, n, CHATML_GENERATION_PROMPT, &mem, &s, &n_segments), ST_OK);
    for (size_t i = 0; i < n_segments; i++) {
        assert_int_equal(buf_append(text, s[i].text, s[i].len), ST_OK);
    }
    assert_int_equal(chatml_encode(t, s, n_segments, ids), ST_OK);
    arena_release(&mem);
}

static void join(const int32_t *ids, size_t n, buf *out)
{
    for (size_t i = 0; i < n; i++) {
        size_t len;
        const char *piece = tokenizer_piece(t, ids[i], &len);
        assert_int_equal(buf_append(out, piece, len), ST_OK);
    }
}

static size_t count(const ivec *ids, int32_t id)
{
    size_t n = 0;
    for (size_t i = 0; i < ids->len; i++) {
        n += ids->data[i] == id;
    }
    return n;
}

static void assert_same(const ivec *a, const ivec *b)
{
    assert_int_equal(a->len, b->len);
    assert_memory_equal(a->data, b->data, a->len * sizeof(int32_t));
}

static void test_speaks_chatml(void **state)
{
    assert_true(chatml_known(t));
    assert_true(tokenizer_is_eog(t, tokenizer_find(t, CHATML_END, strlen(CHATML_END))));
    assert_false(tokenizer_is_eog(t, tokenizer_find(t, CHATML_START, strlen(CHATML_START))));
    assert_false(tokenizer_adds_bos(t));
}

static const chatml_message talk[] = {
    MSG("system", "You are a gardener.\n\nBe brief."),
    MSG("user", "  What grows in March?\n"),
    MSG("assistant", "Peas, beans & 12 kinds of \xE2\x80\x9Clettuce\xE2\x80\x9D."),
    MSG("user",
        "\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x8C\xBE \xED\x95\x9C\xEA\xB8\x80 e\xCC\x81\t\t{\"a\": [1,2]}"),
    MSG("assistant", ""),
    MSG("user", "nul \0 and\r\nmore"),
};

/* The ids of a conversation are those of its text tokenised whole, and say that text again. */
static void test_ids_of_the_whole(void **state)
{
    for (size_t n = 0; n <= N_OF(talk); n++) {
        buf text = {0}, back = {0};
        ivec ids = {0}, whole = {0};
        render(talk, n, &text, &ids);
        assert_int_equal(tokenizer_encode(t, buf_str(&text), text.len,
                                          TOKENIZE_PARSE_SPECIAL | TOKENIZE_NO_PREFIX, &whole),
                         ST_OK);
        assert_same(&ids, &whole);
        join(ids.data, ids.len, &back);
        assert_int_equal(back.len, text.len);
        assert_memory_equal(buf_str(&back), buf_str(&text), text.len);
        assert_int_equal(count(&ids, tokenizer_find(t, CHATML_START, strlen(CHATML_START))), n + 1);
        assert_int_equal(count(&ids, tokenizer_find(t, CHATML_END, strlen(CHATML_END))), n);
        ivec_release(&ids);
        ivec_release(&whole);
        buf_release(&text);
        buf_release(&back);
    }
}

/* FAILURES T5, with every control token that the file has. */
static void test_control_text_stays_text(void **state)
{
    size_t n_controls = 0;
    for (int32_t id = 0; id < tokenizer_n_vocab(t); id++) {
        size_t len;
        if (tokenizer_kind(t, id) != TOKEN_CONTROL) {
            continue;
        }
        const char *name = tokenizer_piece(t, id, &len);
        const chatml_message none = MSG("user", ""), evil = {"user", 4, name, len};
        ivec plain = {0}, ids = {0}, spelled = {0};
        buf text = {0};
        render(&none, 1, &text, &plain);
        render(&evil, 1, &text, &ids);
        assert_int_equal(count(&ids, id), count(&plain, id));
        assert_int_equal(tokenizer_encode(t, name, len, TOKENIZE_PARSE_SPECIAL, &spelled), ST_OK);
        assert_int_equal(spelled.len, 1);
        assert_int_equal(spelled.data[0], id);
        ivec_release(&plain);
        ivec_release(&ids);
        ivec_release(&spelled);
        buf_release(&text);
        n_controls++;
    }
    assert_true(n_controls >= 2);
}

/* Every character has ids; they say it, in one go and token by token, whatever stands around it. */
static void test_every_character(void **state)
{
    static const uint32_t steps[] = {1, 7, 61, 1021};
    buf text = {0};
    for (size_t k = 0; k < N_OF(steps); k++) {
        for (uint32_t cp = k == 0 ? 1 : 0x80; cp < (k == 0 ? 0x800 : 0x110000) && text.len < 200000;
             cp += steps[k]) {
            char bytes[4];
            if (cp < 0xD800 || cp > 0xDFFF) {
                assert_int_equal(buf_append(&text, bytes, utf8_encode(cp, bytes)), ST_OK);
            }
        }
    }
    buf back = {0}, stream = {0};
    ivec ids = {0};
    detok d;
    detok_init(&d, t);
    assert_int_equal(tokenizer_encode(t, buf_str(&text), text.len, 0, &ids), ST_OK);
    join(ids.data, ids.len, &back);
    for (size_t i = 0; i < ids.len; i++) {
        size_t before = stream.len;
        assert_int_equal(detok_push(&d, ids.data[i], &stream), ST_OK);
        assert_true(utf8_valid(buf_str(&stream) + before, stream.len - before, NULL));
    }
    assert_int_equal(detok_flush(&d, &stream), ST_OK);
    assert_int_equal(back.len, text.len);
    assert_int_equal(stream.len, text.len);
    assert_memory_equal(buf_str(&back), buf_str(&text), text.len);
    assert_memory_equal(buf_str(&stream), buf_str(&text), text.len);
    ivec_release(&ids);
    buf_release(&stream);
    buf_release(&back);
    buf_release(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_speaks_chatml),
        cmocka_unit_test(test_ids_of_the_whole),
        cmocka_unit_test(test_control_text_stays_text),
        cmocka_unit_test(test_every_character),
    };
    return cmocka_run_group_tests(tests, open_vocabulary, close_vocabulary);
}
