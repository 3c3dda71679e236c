/*
 * The journal: what a start finds after any cut and any flipped byte, in any order of records, and without memory.
 */

#include "base/mem.h"
#include "serve/journal_bench.h"

static void test_round_trip(void **state)
{
    size_t ends[N_SCRIPT];
    buf file = script_file(ends);
    bench b;
    char path[512];
    make_bench(&b, JOURNAL_MIN_BYTES);
    path_of(b.dir, FIRST, path);
    write_file(path, file.data, file.len);
    open_journal(&b);
    check_states(&b, N_SCRIPT);
    journal_counts counts;
    journal_read_counts(b.j, &counts);
    assert_true(counts.is_on);
    assert_int_equal(counts.n_entries, 4);
    assert_int_equal(counts.n_unanswered, 2);
    assert_int_equal(counts.bytes, file.len);
    assert_int_equal(counts.n_bad, 0);
    assert_int_equal(find(&b, "a")->http_status, 200);
    assert_int_equal(find(&b, "a")->created_ms, START_MS);
    assert_true(find(&b, "a")->found);
    assert_string_equal(journal_unanswered(b.j, NULL)->name, "c"); /* the oldest one */
    assert_null(journal_unanswered(b.j, journal_unanswered(b.j, find(&b, "c"))));
    assert_null(journal_find(b.j, "bob", 3, "a", 1)); /* somebody else's */
    assert_null(journal_find(b.j, "", 0, "anna", 4));
    journal_begun(b.j, find(&b, "d"));
    reopen(&b);
    journal_begun(b.j, find(&b, "d"));
    reopen(&b);
    assert_int_equal(find(&b, "d")->n_begun, 2);
    assert_int_equal(find(&b, "c")->n_begun, 0);
    free_bench(&b);
    buf_release(&file);
}

/* What is whole counts; and the journal goes on behind it. */
static void test_every_length(void **state)
{
    size_t ends[N_SCRIPT];
    buf file = script_file(ends);
    for (size_t len = 0; len <= file.len; len++) {
        bench b;
        char path[512];
        size_t n = 0;
        make_bench(&b, JOURNAL_MIN_BYTES);
        path_of(b.dir, FIRST, path);
        write_file(path, file.data, len);
        while (n < N_SCRIPT && ends[n] <= len) {
            n++;
        }
        open_journal(&b);
        check_states(&b, n);
        journal_counts counts;
        journal_read_counts(b.j, &counts);
        bool whole = len == JOURNAL_SEGMENT_HEAD || len == 0 || (n > 0 && ends[n - 1] == len);
        assert_int_equal(counts.n_bad, whole ? 0 : 1);
        act(&b, 'q', "z");
        reopen(&b);
        check_states(&b, n);
        assert_int_equal(state_of(&b, "z"), 'q');
        free_bench(&b);
    }
    buf_release(&file);
}

/* Records before the flipped byte are there. Behind it too, unless it stands in what says how long a record is. */
static void test_every_byte(void **state)
{
    size_t ends[N_SCRIPT];
    buf file = script_file(ends);
    for (size_t at = 0; at < file.len; at++) {
        bench b;
        char path[512];
        size_t n = 0;
        make_bench(&b, JOURNAL_MIN_BYTES);
        path_of(b.dir, FIRST, path);
        file.data[at] ^= (char)(1 << at % 8);
        write_file(path, file.data, file.len);
        file.data[at] ^= (char)(1 << at % 8);
        while (n < N_SCRIPT && ends[n] <= at) {
            n++;
        }
        err e;
        if (try_open(&b, &e) != ST_OK) { /* only where it says of which version it is */
            assert_int_equal(at, 7);
            free_bench(&b);
            continue;
        }
        journal_counts counts;
        journal_read_counts(b.j, &counts);
        assert_int_equal(counts.n_bad, 1);
        size_t begin = n == 0 ? JOURNAL_SEGMENT_HEAD : ends[n - 1];
        if (at < JOURNAL_SEGMENT_HEAD) {
            check_states(&b, 0);
        } else if (at < begin + JOURNAL_RECORD_HEAD) {
            check_states(&b, n);
        } else {
            for (char name = 'a'; name <= 'd'; name++) {
                const char text[2] = {name, 0};
                if (script[n].name[0] != name) {
                    assert_int_equal(state_of(&b, text), expected(N_SCRIPT, name));
                } else {
                    state_of(&b, text); /* its text is right */
                }
            }
        }
        free_bench(&b);
    }
    buf_release(&file);
}

static void test_record(void **state)
{
    buf out = {0};
    const journal_record r = {.kind = JOURNAL_ANSWERED,
                              .serial = 1ull << 60,
                              .created_ms = -5,
                              .http_status = 409,
                              .digest = {1, [31] = 9},
                              .owner = "",
                              .name = "n\0m",
                              .name_len = 3,
                              .text = "text",
                              .text_len = 4};
    journal_record got;
    size_t n_body;
    assert_int_equal(journal_record_put(&out, &r), ST_OK);
    assert_int_equal(out.len, journal_record_size(0, 3, 4));
    const uint8_t *head = (const uint8_t *)out.data;
    assert_true(journal_head_get(head, &n_body));
    assert_int_equal(n_body, out.len - JOURNAL_RECORD_HEAD);
    assert_true(journal_record_get(head, out.data + JOURNAL_RECORD_HEAD, n_body, &got));
    assert_int_equal(got.kind, r.kind);
    assert_true(got.serial == r.serial);
    assert_int_equal(got.created_ms, -5);
    assert_int_equal(got.http_status, 409);
    assert_memory_equal(got.digest, r.digest, sizeof r.digest);
    assert_int_equal(got.owner_len, 0);
    assert_int_equal(got.name_len, 3);
    assert_memory_equal(got.name, "n\0m", 3);
    assert_int_equal(got.text_len, 4);
    assert_memory_equal(got.text, "text", 4);
    assert_int_equal(journal_record_size(256, 1, 1), 0);
    assert_int_equal(journal_record_size(1, 256, 1), 0);
    assert_int_equal(journal_record_size(1, 1, JOURNAL_MAX_BODY), 0);
    const journal_record large = {.kind = JOURNAL_ASKED, .text = "", .text_len = JOURNAL_MAX_BODY};
    assert_int_equal(journal_record_put(&out, &large), ST_CAPACITY);
    buf_release(&out);
}

/* A name that is asked again after it was forgotten: the later one counts, also if a copy of the earlier one follows. */
static void test_later_counts(void **state)
{
    bench b;
    make_bench(&b, JOURNAL_MIN_BYTES);
    open_journal(&b);
    act(&b, 'q', "a");
    act(&b, 'a', "a");
    b.clock.wall_ms += JOURNAL_TTL_MS;
    act(&b, 'q', "a");
    assert_false(find(&b, "a")->answered);
    reopen(&b);
    assert_int_equal(state_of(&b, "a"), 'q');
    assert_int_equal(find(&b, "a")->created_ms, START_MS + JOURNAL_TTL_MS);
    free_bench(&b);
}

static void put_record(buf *file, journal_kind kind, uint64_t serial, const char *text)
{
    const journal_record r = {.kind = kind,
                              .serial = serial,
                              .created_ms = START_MS,
                              .digest = {0, 0, 'a'},
                              .owner = "ann",
                              .owner_len = 3,
                              .name = "a",
                              .name_len = 1,
                              .text = text,
                              .text_len = strlen(text)};
    assert_int_equal(journal_record_put(file, &r), ST_OK);
}

/* Records in any order: what is over is over. */
static void test_any_order(void **state)
{
    static const char q[] = "question of a", a[] = "answer of a";
    static const struct {
        struct {
            journal_kind kind;
            uint64_t serial;
        } records[4];
        char want;
    } rows[] = {{{{JOURNAL_ANSWERED, 1}, {JOURNAL_ASKED, 1}}, 'a'},
                {{{JOURNAL_ASKED, 2}, {JOURNAL_ANSWERED, 1}}, 'q'},
                {{{JOURNAL_ASKED, 2}, {JOURNAL_DROPPED, 1}}, 'q'},
                {{{JOURNAL_ANSWERED, 1}, {JOURNAL_ASKED, 2}}, 'q'},
                {{{JOURNAL_ANSWERED, 1}, {JOURNAL_ASKED, 2}, {JOURNAL_DROPPED, 2}}, '-'},
                {{{JOURNAL_ANSWERED, 1}, {JOURNAL_ANSWERED, 1}}, 'a'},
                {{{JOURNAL_ASKED, 1}, {JOURNAL_DROPPED, 1}, {JOURNAL_BEGUN, 1}}, '-'}};
    for (size_t i = 0; i < N_OF(rows); i++) {
        bench b;
        buf file = {0};
        char path[512];
        uint8_t head[JOURNAL_SEGMENT_HEAD];
        make_bench(&b, JOURNAL_MIN_BYTES);
        journal_segment_put(1, head);
        assert_int_equal(buf_append(&file, head, sizeof head), ST_OK);
        for (size_t k = 0; k < 4 && rows[i].records[k].kind; k++) {
            journal_kind kind = rows[i].records[k].kind;
            put_record(&file, kind, rows[i].records[k].serial,
                       kind == JOURNAL_ASKED      ? q
                       : kind == JOURNAL_ANSWERED ? a
                                                  : "");
        }
        path_of(b.dir, FIRST, path);
        write_file(path, file.data, file.len);
        open_journal(&b);
        assert_int_equal(state_of(&b, "a"), rows[i].want);
        free_bench(&b);
        buf_release(&file);
    }
}

/* What stood behind a bad head does not come back when something is written over that. */
static void test_cut_for_good(void **state)
{
    size_t ends[N_SCRIPT];
    buf file = script_file(ends);
    bench b;
    char path[512];
    make_bench(&b, JOURNAL_MIN_BYTES);
    path_of(b.dir, FIRST, path);
    file.data[ends[0]] ^= 1; /* "b" is asked there */
    write_file(path, file.data, file.len);
    open_journal(&b);
    check_states(&b, 1);
    act(&b, 'q', "z"); /* as long as that */
    reopen(&b);
    check_states(&b, 1);
    assert_int_equal(state_of(&b, "z"), 'q');
    free_bench(&b);
    buf_release(&file);
}

static void test_one_at_a_time(void **state)
{
    bench b;
    journal *other = NULL;
    err e;
    make_bench(&b, JOURNAL_MIN_BYTES);
    open_journal(&b);
    const journal_config cfg = {b.base, &b.clock.src, b.dir, JOURNAL_MIN_BYTES};
    assert_int_equal(journal_open(&cfg, &other, &e), ST_IO);
    assert_non_null(strstr(e.msg, "another daemon"));
    act(&b, 'q', "a");
    close_journal(&b);
    assert_int_equal(journal_open(&cfg, &other, &e), ST_OK);
    journal_close(other);
    free_bench(&b);
}

/* Closed with work under way: what was handed in is written, and nobody hears of it. */
static void test_close_at_once(void **state)
{
    bench b;
    err e;
    journal_entry *entry;
    make_bench(&b, JOURNAL_MIN_BYTES);
    open_journal(&b);
    act(&b, 'q', "b");
    const journal_question q = {.owner = "ann",
                                .owner_len = 3,
                                .name = "a",
                                .name_len = 1,
                                .text = "question of a",
                                .text_len = 13,
                                .digest = {0, 0, 'a'},
                                .created_ms = START_MS};
    unsigned before = b.n_done;
    assert_int_equal(journal_ask(b.j, &q, &b, on_written, &b, &entry, &e), ST_OK);
    assert_int_equal(journal_answer(b.j, find(&b, "b"), 200, "answer of b", 11, on_written, &b, &e), ST_OK);
    journal_entry *third = NULL;
    const journal_question r = {.owner = "", .name = "c", .name_len = 1, .created_ms = START_MS};
    assert_int_equal(journal_ask(b.j, &r, &b, on_written, &b, &third, &e), ST_OK);
    reopen(&b);
    assert_int_equal(b.n_done, before);
    assert_int_equal(state_of(&b, "a"), 'q');
    assert_int_equal(state_of(&b, "b"), 'a');
    assert_non_null(journal_find(b.j, "", 0, "c", 1));
    journal_drop(b.j, find(&b, "a"));
    reopen(&b);
    assert_null(find(&b, "a"));
    free_bench(&b);
}

/* Whichever allocation fails: an error or none, and what was there stays. */
static void test_no_memory(void **state)
{
    bench b;
    make_bench(&b, JOURNAL_MIN_BYTES);
    open_journal(&b);
    act(&b, 'q', "kept");
    for (uint64_t n = 1; n < 60; n++) {
        err e;
        journal_entry *entry = NULL;
        mem_fail_at(n, false);
        status st = ask_it(&b, "a", "question of a", 13, &entry, &e);
        if (st == ST_OK) {
            st = answer_it(&b, entry, "answer of a", 11, &e);
            assert_true(st == ST_OK || st == ST_NOMEM);
        } else {
            assert_true(st == ST_NOMEM || st == ST_IO);
            clock_fake_advance_ms(&b.clock, JOURNAL_RETRY_MS);
        }
        mem_fail_at(0, false);
        if (find(&b, "a")) {
            act(&b, 'd', "a");
        }
        close_journal(&b);
        mem_fail_at(n, false);
        st = try_open(&b, &e);
        mem_fail_at(0, false);
        assert_true(st == ST_OK || st == ST_NOMEM || st == ST_IO);
        if (st != ST_OK) {
            open_journal(&b);
        }
        assert_int_equal(state_of(&b, "kept"), 'q');
    }
    free_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),    cmocka_unit_test(test_every_length),
        cmocka_unit_test(test_every_byte),    cmocka_unit_test(test_record),
        cmocka_unit_test(test_later_counts),  cmocka_unit_test(test_any_order),
        cmocka_unit_test(test_cut_for_good),  cmocka_unit_test(test_one_at_a_time),
        cmocka_unit_test(test_close_at_once), cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
