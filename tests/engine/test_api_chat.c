/*
 * Chatting through the public library, on a small random model: the layout's ids, and turns that cost only
 * what is new.
 */
#include "engine/test_main.h"

#include <hearth.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "model/edit_model.h"
#include "model/make_model.h"

#define N_VOCAB 300
#define CONTEXT 256
/* Of make_vocab.c: the last ids; e and letter i of "etaoinshrdlcumw" are 282 + i. */
#define START 298
#define END   299
#define EN    (282 + 5)
#define ER    (282 + 8)

static char bpe[64], spm[64], chatml[64], other[64];

static int make(void **state)
{
    static const model_edit templates[2] = {
        {EDIT_STR, "tokenizer.chat_template", .text = "{{ '<|im_start|>' + messages[0].role }}"},
        {EDIT_STR, "tokenizer.chat_template", .text = "{{ '[INST]' + messages[0].content }}"},
    };
    make_model_spec spec = make_model_default(GGUF_TYPE_Q8_0);
    spec.n_vocab = N_VOCAB;
    spec.n_ctx = CONTEXT;
    snprintf(bpe, sizeof bpe, "/tmp/hearth-chat-%d-bpe.gguf", (int)getpid());
    snprintf(spm, sizeof spm, "/tmp/hearth-chat-%d-spm.gguf", (int)getpid());
    snprintf(chatml, sizeof chatml, "/tmp/hearth-chat-%d-chatml.gguf", (int)getpid());
    snprintf(other, sizeof other, "/tmp/hearth-chat-%d-other.gguf", (int)getpid());
    spec.vocab = MAKE_VOCAB_SPM;
    bool made = make_model(spm, &spec, NULL) == ST_OK;
    spec.vocab = MAKE_VOCAB_BPE;
    made = made && make_model(bpe, &spec, NULL) == ST_OK;
    made = made && edit_model(bpe, chatml, &templates[0], 1, NULL) == ST_OK;
    made = made && edit_model(bpe, other, &templates[1], 1, NULL) == ST_OK;
    return made ? 0 : -1;
}

static int unmake(void **state)
{
    unlink(spm);
    unlink(chatml);
    unlink(other);
    return unlink(bpe);
}

static hearth_session *open_chat(const char *path, hearth_model **m)
{
    hearth_session *s = NULL;
    hearth_error e = HEARTH_ERROR_INIT;
    if (hearth_model_open(path, NULL, m, &e) != HEARTH_OK || hearth_session_open(*m, &s, &e) != HEARTH_OK) {
        fail_msg("%s: %s", path, e.message);
    }
    return s;
}

static void close_chat(hearth_model *m, hearth_session *s)
{
    hearth_session_close(s);
    hearth_model_close(m);
}

static void test_ids(void **state)
{
    static const hearth_message m[] = {{"user", "hi, <|im_end|>", 2}, {"assistant", "<|im_end|>", SIZE_MAX}};
    static const int32_t want[] = {
        START, 'u', 's', ER,  '\n', 'h', 'i', END, '\n',            /* user */
        START, 'a', 's', 's', 'i',  's', 't', 'a', 'n',  't', '\n', /* assistant: */
        '<',   '|', 'i', 'm', '_',  EN,  'd', '|', '>',  END, '\n', /* text, not a token */
        START, 'a', 's', 's', 'i',  's', 't', 'a', 'n',  't', '\n', /* the reply */
    };
    hearth_model *model;
    hearth_session *s = open_chat(bpe, &model);
    const int32_t *ids;
    size_t n;
    assert_int_equal(hearth_chat_ids(s, m, 2, false, &ids, &n, NULL), HEARTH_OK);
    assert_int_equal(n, N_OF(want));
    assert_memory_equal(ids, want, sizeof want);
    assert_int_equal(hearth_chat_ids(s, m, 0, true, &ids, &n, NULL), HEARTH_OK);
    assert_int_equal(n, 2 + 11);
    assert_int_equal(ids[0], END);
    assert_int_equal(ids[1], '\n');
    assert_memory_equal(ids + 2, want + N_OF(want) - 11, 11 * sizeof *want);
    close_chat(model, s);
}

/* Each turn computes its own new ids and nothing else. */
static void test_turns(void **state)
{
    hearth_model *model;
    hearth_session *s = open_chat(bpe, &model);
    int32_t all[CONTEXT];
    size_t n_all = 0;
    for (int turn = 0; turn < 3; turn++) {
        const hearth_message m = {"user", "tell me more", SIZE_MAX};
        hearth_generate_options o = HEARTH_GENERATE_OPTIONS_INIT;
        hearth_result r = HEARTH_RESULT_INIT;
        const int32_t *ids;
        size_t n, n_before = n_all;
        assert_int_equal(hearth_chat_ids(s, &m, 1, turn > 0, &ids, &n, NULL), HEARTH_OK);
        memcpy(all + n_all, ids, n * sizeof *ids);
        n_all += n;
        o.prompt_ids = all;
        o.n_prompt_ids = n_all;
        o.max_tokens = 9;
        assert_int_equal(hearth_generate(s, &o, NULL, NULL, &r, NULL), HEARTH_OK);
        assert_int_equal(r.reused_tokens, n_before);
        memcpy(all + n_all, r.ids, r.n_ids * sizeof *r.ids);
        n_all += r.n_ids;
    }
    close_chat(model, s);
}

static void test_refused(void **state)
{
    static const struct {
        hearth_message m;
        const char *says;
    } rows[] = {
        {{"tool", "x", SIZE_MAX}, "'tool'"}, {{"", "x", SIZE_MAX}, "''"},
        {{NULL, "x", SIZE_MAX}, "role"},     {{"user", NULL, SIZE_MAX}, "content"},
        {{"User", "x", SIZE_MAX}, "'User'"},
    };
    hearth_error e = HEARTH_ERROR_INIT;
    hearth_model *model;
    hearth_session *s = open_chat(bpe, &model);
    const int32_t *ids = NULL;
    size_t n = 7;
    for (size_t i = 0; i < N_OF(rows); i++) {
        hearth_message two[2] = {{"user", "x", 1}, rows[i].m};
        assert_int_equal(hearth_chat_ids(s, two, 2, false, &ids, &n, &e), HEARTH_INVALID_FIELD);
        assert_string_equal(e.field, "messages");
        assert_non_null(strstr(e.message, rows[i].says));
        assert_non_null(strstr(e.message, "message 1"));
        assert_true(!ids && n == 7);
    }
    close_chat(model, s);
    s = open_chat(spm, &model);
    assert_int_equal(hearth_chat_ids(s, NULL, 0, false, &ids, &n, &e), HEARTH_UNSUPPORTED);
    assert_non_null(strstr(e.message, "<|im_start|>"));
    close_chat(model, s);
}

/* Told is whether the template writes this layout, not whether the tokens happen to be there. */
static void test_info(void **state)
{
    const struct {
        const char *path;
        bool has_template, speaks;
    } rows[] = {{bpe, false, false}, {chatml, true, true}, {other, true, false}, {spm, false, false}};
    for (size_t i = 0; i < N_OF(rows); i++) {
        hearth_model_info info = HEARTH_MODEL_INFO_INIT;
        hearth_model *m = NULL;
        assert_int_equal(hearth_model_open(rows[i].path, NULL, &m, NULL), HEARTH_OK);
        hearth_model_info_get(m, &info);
        assert_int_equal(info.has_chat_template, rows[i].has_template);
        assert_int_equal(info.speaks_chatml, rows[i].speaks);
        hearth_model_close(m);
    }
}

static void test_no_memory(void **state)
{
    const hearth_message m = {"user", "tell me <|im_end|>", SIZE_MAX};
    hearth_model *model;
    hearth_session *s = open_chat(bpe, &model);
    hearth_status st = HEARTH_NOMEM;
    const int32_t *ids;
    size_t n;
    uint64_t at = 1;
    for (; st != HEARTH_OK; at++) {
        mem_fail_at(at, false);
        st = hearth_chat_ids(s, &m, 1, true, &ids, &n, NULL);
        mem_fail_at(0, false);
        assert_true(st == HEARTH_OK || st == HEARTH_NOMEM);
    }
    assert_true(at > 4);
    close_chat(model, s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids),  cmocka_unit_test(test_turns),     cmocka_unit_test(test_refused),
        cmocka_unit_test(test_info), cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, make, unmake);
}
