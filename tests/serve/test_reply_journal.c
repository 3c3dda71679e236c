/* reply_journal: what the owner of a reply hears while its workers die, and what the next worker is told. */
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/test_main.h"
#include "serve/reply_journal.h"
#include "wire/request.h"

#define CONTEXT 16
#define DIGEST  "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define OTHER   "ff112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

/*
 * Frames in letters: A accepted, a..e a token with the id 0..4, '2' one with two ids, '-' a piece without ids, P prompt_logprobs, D done,
 * E error, '0' … progress of so many tokens. '!' is the death of the worker.
 */
static const int32_t prompt[] = {7, 8, 9};
static const int32_t numbers[] = {0, 1, 2, 3, 4, 5};

static frame frame_of(char c)
{
    frame f = {.kind = c == '-' ? FRAME_TOKEN : FRAME_DELTA, .text = "x", .text_len = 1};
    if (c == 'A') {
        f.kind = FRAME_ACCEPTED;
        f.accepted = (frame_accepted){
            .seed = 5, .now_ms = 77, .prompt_tokens = 3, .prompt_digest = DIGEST, .cached_prompt_tokens = 2};
    } else if (c == 'P' || c == 'D' || c == 'E') {
        f.kind = c == 'P' ? FRAME_PROMPT_LOGPROBS : c == 'D' ? FRAME_DONE : FRAME_ERROR;
        f.done = (frame_done){.prompt_tokens = 3, .reused_prompt_tokens = 0, .prefilled_prompt_tokens = 3};
    } else if (c >= '3' && c <= '9') {
        f.kind = FRAME_PROGRESS;
        f.progress.processed = c - '0';
    } else if (c == '2') {
        f.ids = numbers + 4;
        f.n_ids = 2;
    } else if (c >= 'a') {
        f.ids = numbers + (c - 'a');
        f.n_ids = 1;
    }
    return f;
}

/* Frames and deaths of `said`; returns what the owner has heard, and with '#' at its end if the last one breaks. */
static const char *hear(reply_journal *j, const char *said, char heard[64])
{
    const char *why = NULL;
    size_t n = 0;
    for (; *said; said++) {
        frame f = frame_of(*said);
        if (*said == '!') {
            assert_true(reply_journal_restart(j));
            continue;
        }
        reply_verdict v = reply_journal_take(j, &f, CONTEXT, &why);
        if (v != REPLY_SWALLOW) {
            heard[n++] = v == REPLY_PASS ? *said : '#';
        }
        assert_int_equal(v == REPLY_BROKEN, why != NULL);
    }
    heard[n] = '\0';
    return heard;
}

static void one_undisturbed_sequence(void **state)
{
    static const struct {
        const char *said, *heard;
        int n_ids; /* known in the end */
    } rows[] = {
        {"AabD", "AabD", 2},
        {"!AabD", "AabD", 2},
        {"A!AabD", "AabD", 2},
        {"Aa!AbD", "AabD", 2},
        {"A!A!A!Aa!A!AbD", "AabD", 2},
        {"A2!AcD", "A2cD", 3},
        {"Aa--b!AcD", "Aa--bcD", 3}, /* those before an id belong to it */
        {"Aa-!A-bD", "Aa-bD", 2},
        {"Aa--!A--bD", "Aa--bD", 2},
        {"Aa--!A---bD", "Aa---bD", 2},
        {"Aa--!A-!A---bD", "Aa---bD", 2}, /* dies while it says them again */
        {"Aa--!A!A--bD", "Aa--bD", 2},
        {"A-!A--aD", "A--aD", 1}, /* before the first id */
        {"Aa-!A-D", "Aa-D", 1},   /* the last one was the reply's last id */
        {"Aa--!AD", "Aa--D", 1},  /* cancelled before it had said them again */
        {"AP!APaD", "APaD", 1},
        {"APa!AbD", "APabD", 2},
        {"35A!35679AaD", "35A5679aD", 1},
        {"Aa!A5bD", "AabD", 2}, /* the prompt is read a second time: nobody's concern */
        {"E", "E", 0},
        {"Aa!E", "AaE", 1},
        /* contradictions */
        {"AA", "A#", 0},
        {"a", "#", 0},
        {"-", "#", 0},
        {"Aa!b", "Aa#", 1},
        {"Aa-!Ab", "Aa-#", 1},
        {"Aa!AA", "Aa#", 1},
        {"Aabcdabcdabcdabcda", "Aabcdabcdabcdabcd#", 16}, /* the context has room for 16 */
        {"Aabcdabcdabcdabc2", "Aabcdabcdabcdabc#", 15},
    };
    for (size_t i = 0; i < N_OF(rows); i++) {
        reply_journal j = {0};
        char heard[64];
        if (strcmp(hear(&j, rows[i].said, heard), rows[i].heard) != 0) {
            fail_msg("%s: heard %s, not %s", rows[i].said, heard, rows[i].heard);
        }
        assert_int_equal(j.n_ids, rows[i].n_ids);
        reply_journal_release(&j);
    }
}

static void another_prompt_or_seed_is_a_break(void **state)
{
    for (int what = 0; what < 5; what++) {
        reply_journal j = {0};
        char heard[64];
        const char *why = NULL;
        hear(&j, "Aa!", heard);
        frame f = frame_of('A');
        f.accepted.cached_prompt_tokens = 0; /* this is another worker's own */
        f.accepted.seed += what == 1;
        f.accepted.now_ms += what == 2;
        f.accepted.prompt_tokens += what == 3;
        f.accepted.prompt_digest = what == 4 ? OTHER : DIGEST;
        assert_int_equal(reply_journal_take(&j, &f, CONTEXT, &why), what == 0 ? REPLY_SWALLOW : REPLY_BROKEN);
        reply_journal_release(&j);
    }
}

static void what_the_next_worker_is_told(void **state)
{
    static const struct {
        const char *said;
        bool with_prompt;
        const char *line;
    } rows[] = {
        {"", false, "{\"id\":\"a\"}\n"},
        {"A", false,
         "{\"id\":\"a\",\"resume\":{\"ids\":[],\"seed\":5,\"now\":77,\"prompt_digest\":\"" DIGEST "\"}}\n"},
        {"Aac-!A-b", false,
         "{\"id\":\"a\",\"resume\":{\"ids\":[0,2,1],\"seed\":5,\"now\":77,\"prompt_digest\":\"" DIGEST
         "\"}}\n"},
        {"a", true,
         "{\"id\":\"a\",\"resume\":{\"ids\":[0],\"seed\":5,\"now\":77,\"prompt_digest\":\"" DIGEST
         "\",\"prompt_ids\":[7,8,9]}}\n"},
    };
    for (size_t i = 0; i < N_OF(rows); i++) {
        reply_journal j = {0};
        char heard[64];
        const char *why;
        buf line = {0};
        if (rows[i].with_prompt) {
            frame f = frame_of('A');
            f.accepted.prompt_ids = prompt;
            assert_int_equal(reply_journal_take(&j, &f, CONTEXT, &why), REPLY_PASS);
        }
        hear(&j, rows[i].said, heard);
        buf_append_str(&line, "{\"id\":\"a\"}\n");
        assert_int_equal(reply_journal_put_resume(&j, &line), ST_OK);
        assert_string_equal(buf_str(&line), rows[i].line);
        buf_release(&line);
        reply_journal_release(&j);
    }
}

static void the_end_says_what_was_cached_at_first(void **state)
{
    for (int died = 0; died < 2; died++) {
        reply_journal j = {0};
        char heard[64];
        frame f = frame_of('D'), told;
        hear(&j, died ? "Aa!Ab" : "Aab", heard);
        reply_journal_mend_done(&j, &f, &told);
        assert_int_equal(told.done.reused_prompt_tokens, died ? 2 : 0);
        assert_int_equal(told.done.prefilled_prompt_tokens, died ? 1 : 3);
        assert_int_equal(told.done.cached_prompt_tokens, died ? 2 : 0);
        f.done.prefilled_prompt_tokens = 1; /* cancelled while it was read */
        reply_journal_mend_done(&j, &f, &told);
        assert_int_equal(told.done.prefilled_prompt_tokens, 1);
        reply_journal_release(&j);
    }
}

/* The reply goes on; only a second worker cannot go on with it. */
static void without_memory_it_is_not_gone_on_with(void **state)
{
    for (uint64_t n = 1; n <= 2; n++) { /* the prompt's ids, the reply's */
        reply_journal j = {0};
        const char *why;
        frame f = frame_of('A');
        f.accepted.prompt_ids = prompt;
        mem_fail_at(n, false);
        assert_int_equal(reply_journal_take(&j, &f, CONTEXT, &why), REPLY_PASS);
        f = frame_of('a');
        assert_int_equal(reply_journal_take(&j, &f, CONTEXT, &why), REPLY_PASS);
        mem_fail_at(0, false);
        assert_true(j.lost);
        assert_false(reply_journal_restart(&j));
        reply_journal_release(&j);
    }
}

/* Beyond what is allocated at first. */
static void long_replies(void **state)
{
    reply_journal j = {0};
    const char *why;
    frame f = frame_of('A');
    reply_journal_take(&j, &f, 1000, &why);
    for (int32_t i = 0; i < 1000; i++) {
        f = frame_of('a');
        f.ids = &i;
        assert_int_equal(reply_journal_take(&j, &f, 1000, &why), REPLY_PASS);
    }
    for (int32_t i = 0; i < 1000; i++) {
        assert_int_equal(j.ids[i], i);
    }
    assert_int_equal(reply_journal_take(&j, &f, 1000, &why), REPLY_BROKEN);
    reply_journal_release(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_undisturbed_sequence),
        cmocka_unit_test(another_prompt_or_seed_is_a_break),
        cmocka_unit_test(what_the_next_worker_is_told),
        cmocka_unit_test(the_end_says_what_was_cached_at_first),
        cmocka_unit_test(without_memory_it_is_not_gone_on_with),
        cmocka_unit_test(long_replies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
