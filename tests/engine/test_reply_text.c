/*
 * From ids to text: characters, stop strings, what is held back and what the end releases (PROTOCOL 2,
 * FAILURES T1 and T2). The fake model says a fixed byte string, one byte a token, and then the end token.
 */
#include "engine/test_main.h"

#include <string.h>

#include "engine/engine_rig.h"

#define BAD "\xEF\xBF\xBD" /* U+FFFD */

static tokenizer *tok;
static int32_t eos;

typedef struct speech {
    const char *bytes;
    size_t n_prompt;
} speech;

static int32_t say(void *ctx, const int32_t *tokens, size_t n)
{
    const speech *s = ctx;
    size_t at = n - s->n_prompt;
    return at < strlen(s->bytes) ? (unsigned char)s->bytes[at] : eos;
}

static void open_text(engine_rig *r, speech *s, const char *bytes)
{
    rig_config cfg = rig_config_default();
    cfg.tok = tok;
    rig_open(r, &cfg);
    *s = (speech){.bytes = bytes, .n_prompt = 3};
    r->model.script = say;
    r->model.script_ctx = s;
}

static stop_set *stops_of(const char *const *list)
{
    stop_string strings[8];
    size_t n = 0;
    stop_set *set = NULL;
    for (; list[n]; n++) {
        strings[n] = (stop_string){list[n], strlen(list[n])};
    }
    err e;
    assert_int_equal(stop_set_new(strings, n, &set, &e), ST_OK);
    return set;
}

static const int32_t prompt[3] = {'a', 'b', 'c'};

static void test_table(void **state)
{
    static const struct {
        const char *says;
        const char *stops[4];
        int32_t max_new;
        const char *text; /* all of it */
        const char *tail; /* the part that the end released */
        finish_reason reason;
        bool cut;
        size_t n_ids;
    } rows[] = {
        {"Hello", {0}, -1, "Hello", "", FINISH_STOP, false, 5},
        {"", {0}, -1, "", "", FINISH_STOP, false, 0},
        {"Hello", {0}, 3, "Hel", "", FINISH_LENGTH, false, 3},
        {"Hello", {0}, 0, "", "", FINISH_LENGTH, false, 0},
        {"Hello", {0}, 5, "Hello", "", FINISH_LENGTH, false, 5}, /* the end token was never drawn */
        {"Hello", {"ll"}, -1, "He", "", FINISH_STOP, true, 4},   /* all generated tokens count */
        {"Hello", {"Hello"}, -1, "", "", FINISH_STOP, true, 5},  /* the whole answer */
        {"Hello", {"H"}, -1, "", "", FINISH_STOP, true, 1},
        {"Hello", {"lo w"}, -1, "Hello", "lo", FINISH_STOP, false, 5}, /* begun, never finished */
        {"Hello", {"lo w"}, 4, "Hell", "l", FINISH_LENGTH, false, 4},
        {"abcd", {"abc", "ab"}, -1, "", "", FINISH_STOP, true, 2}, /* a prefix of another: the first to be
                                                                      complete */
        {"xabcd", {"bcd", "abce", "q"}, -1, "xa", "", FINISH_STOP, true, 5},
        {"aab", {"ab"}, -1, "a", "", FINISH_STOP, true, 3},
        {"Hello", {"", "ll", ""}, -1, "He", "", FINISH_STOP, true, 4}, /* empty ones are ignored */
        {"h\xC3\xA9!", {0}, -1, "h\xC3\xA9!", "", FINISH_STOP, false, 4},
        {"h\xC3\xA9!", {0}, 2, "h" BAD, BAD, FINISH_LENGTH, false, 2},
        {"h\xC3", {0}, -1, "h" BAD, BAD, FINISH_STOP, false, 2},
        {"\xF0\x9F\x91\xA9\xE2\x80\x8D", {0}, 6, "\xF0\x9F\x91\xA9" BAD, BAD, FINISH_LENGTH, false, 6},
        {"\xF0\x9F\x91!", {0}, -1, BAD "!", "", FINISH_STOP, false, 4},
        {"x\xC3", {BAD}, 2, "x", "", FINISH_LENGTH, true, 2}, /* the stop string is completed by the repair */
        {"x\xC3", {BAD}, -1, "x", "", FINISH_STOP, true, 2},
        {"h\xC3\xA9!", {"\xC3\xA9"}, -1, "h", "", FINISH_STOP, true, 3},
        {"Hello", {"lo"}, 5, "Hel", "", FINISH_LENGTH, true, 5}, /* budget and stop string in one step: DESIGN
                                                                    6 */
    };
    for (size_t i = 0; i < N_OF(rows); i++) {
        engine_rig r;
        speech s;
        reply_log l;
        open_text(&r, &s, rows[i].says);
        log_init(&l, &r);
        gen_request q = rig_request(&l, prompt, 3, rows[i].max_new);
        q.stops = rows[i].stops[0] ? stops_of(rows[i].stops) : NULL;
        rig_generate(&r, &q, &l);
        assert_int_equal(l.n_done, 1);
        assert_string_equal(buf_str(&l.text), rows[i].text);
        assert_string_equal(buf_str(&l.tail), rows[i].tail);
        assert_string_equal(finish_name(l.result.reason), finish_name(rows[i].reason));
        assert_int_equal(l.result.stop_cut, rows[i].cut);
        assert_int_equal(l.result.repaired_tail,
                         strcmp(rows[i].tail, BAD) == 0 ||
                             strcmp(rows[i].stops[0] ? rows[i].stops[0] : "", BAD) == 0);
        assert_int_equal(l.result.n_ids, rows[i].n_ids);
        assert_int_equal(l.ids.len, rows[i].n_ids); /* each id was told once */
        log_release(&l);
        rig_close(&r);
    }
}

/* Every budget: the text is the whole characters so far, the broken rest repaired (T1). */
static void test_every_budget(void **state)
{
    static const char family[] =
        "\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7 \xEA\xB0\x80"; /* woman ZWJ girl, Hangul */
    for (size_t n = 1; n < sizeof family - 1; n++) {
        engine_rig r;
        speech s;
        reply_log l;
        buf want = {0};
        open_text(&r, &s, family);
        log_init(&l, &r);
        gen_request q = rig_request(&l, prompt, 3, (int32_t)n);
        rig_generate(&r, &q, &l);
        size_t whole = 0; /* the last character boundary within n bytes */
        for (size_t i = 0; i <= n; i++) {
            whole = ((unsigned char)family[i] & 0xC0) != 0x80 ? i : whole;
        }
        assert_int_equal(buf_append(&want, family, whole), ST_OK);
        if (whole < n) {
            assert_int_equal(buf_append_str(&want, BAD), ST_OK);
        }
        assert_string_equal(buf_str(&l.text), buf_str(&want));
        buf_release(&want);
        log_release(&l);
        rig_close(&r);
    }
}

/* Held text is released by a cancel and a deadline, dropped by an error. */
static void test_held_text_at_a_cut(void **state)
{
    static const char *const stop[] = {"lo w", NULL};
    for (int how = 0; how < 3; how++) {
        engine_rig r;
        speech s;
        reply_log l;
        open_text(&r, &s, "Hello Hello");
        log_init(&l, &r);
        gen_request q = rig_request(&l, prompt, 3, -1);
        q.stops = stops_of(stop);
        q.deadline_ns = how == 1 ? r.clock.now_ns + 1000000 : 0;
        rig_submit(&r, &q, &l);
        for (int i = 0; i < 5; i++) {
            engine_step(r.en);
        }
        assert_string_equal(buf_str(&l.text), "Hel");
        if (how == 0) {
            seq_cancel(l.seq);
        } else if (how == 1) {
            clock_fake_advance_ms(&r.clock, 1);
        } else {
            r.model.bad_token = 'o';
        }
        engine_step(r.en);
        assert_true(log_over(&l));
        assert_string_equal(buf_str(&l.text), how < 2 ? "Hello" : "Hel");
        assert_string_equal(buf_str(&l.tail), how < 2 ? "lo" : "");
        assert_int_equal(l.n_failed, how == 2);
        log_release(&l);
        rig_close(&r);
    }
}

/* The end token is neither emitted nor counted nor resident; a stop cut makes the session dirty. */
static void test_ends_in_a_session(void **state)
{
    static const char *const stop[] = {"ll", NULL};
    engine_rig r;
    speech s;
    session *chat;
    size_t n;
    open_text(&r, &s, "Hello");
    assert_int_equal(session_open(r.en, &chat), ST_OK);
    for (int turn = 0; turn < 4; turn++) {
        int32_t p[32] = {'a', 'b', 'c', 'H', 'e', 'l', 'l', 'o', 'x', 'y'};
        reply_log l;
        log_init(&l, &r);
        s.n_prompt = turn == 0 ? 3 : 10;
        gen_request q = rig_request(&l, p, s.n_prompt, -1);
        q.session = chat;
        q.stops = turn == 1 ? stops_of(stop) : NULL;
        rig_generate(&r, &q, &l);
        static const struct {
            reset_reason reason;
            int32_t reused;
            const char *text;
            bool dirty;
        } want[] = {{RESET_NEW, 0, "Hello", false},
                    {RESET_EXACT_PREFIX, 8, "He", true}, /* prompt and completion of the turn before */
                    {RESET_DIRTY, 0, "Hello", false},
                    {RESET_EQUAL, 9, "Hello", false}};
        assert_int_equal(l.result.reason, FINISH_STOP);
        assert_int_equal(l.result.reset, want[turn].reason);
        assert_int_equal(l.result.reused_tokens, want[turn].reused);
        assert_string_equal(buf_str(&l.text), want[turn].text);
        assert_int_equal(session_dirty(chat), want[turn].dirty);
        const int32_t *ids = session_resident(chat, &n);
        if (!want[turn].dirty) {
            assert_int_equal(n, s.n_prompt + 5);
            assert_memory_equal(ids + s.n_prompt, ((int32_t[]){'H', 'e', 'l', 'l', 'o'}), 5 * sizeof *ids);
        }
        log_release(&l);
    }
    session_close(chat);
    rig_close(&r);
}

static void test_min_tokens_and_ignore_eos(void **state)
{
    for (int ignore = 0; ignore < 2; ignore++) {
        engine_rig r;
        speech s;
        reply_log l;
        open_text(&r, &s, "");
        log_init(&l, &r);
        gen_request q = rig_request(&l, prompt, 3, 20);
        q.params.min_tokens = ignore ? 0 : 6;
        q.params.ignore_eos = ignore;
        rig_generate(&r, &q, &l);
        assert_int_equal(l.result.reason, ignore ? FINISH_LENGTH : FINISH_STOP);
        assert_int_equal(l.result.n_ids, ignore ? 20 : 6);
        log_release(&l);
        rig_close(&r);
    }
}

static int open_tokenizer(void **state)
{
    tok = byte_tokenizer_open(&eos);
    return tok ? 0 : 1;
}

static int close_tokenizer(void **state)
{
    tokenizer_free(tok);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_every_budget),
        cmocka_unit_test(test_held_text_at_a_cut),
        cmocka_unit_test(test_ends_in_a_session),
        cmocka_unit_test(test_min_tokens_and_ignore_eos),
    };
    return cmocka_run_group_tests(tests, open_tokenizer, close_tokenizer);
}
