/*
 * The journal when room or time is over, when its disk takes nothing, and what a power cut leaves.
 */
#include <unistd.h>

#include "base/mem.h"
#include "serve/journal_bench.h"

static void test_time(void **state)
{
    bench b;
    make_bench(&b, JOURNAL_MIN_BYTES);
    open_journal(&b);
    act(&b, 'q', "a");
    act(&b, 'a', "a");
    journal_entry *q = ask(&b, "b", "question of b"); /* held */
    b.clock.wall_ms += JOURNAL_TTL_MS - 1;
    assert_int_equal(state_of(&b, "a"), 'a');
    reopen(&b);
    assert_int_equal(state_of(&b, "a"), 'a');
    q = find(&b, "b");
    q->held = &b;
    b.clock.wall_ms += 1;
    assert_null(find(&b, "a"));
    assert_ptr_equal(find(&b, "b"), q);
    q->held = NULL;
    assert_null(find(&b, "b"));
    reopen(&b);
    assert_null(find(&b, "a"));
    act(&b, 'q', "c");
    act(&b, 'q', "d");
    find(&b, "c")->held = find(&b, "d")->held = NULL;
    b.clock.wall_ms -= 3 * JOURNAL_TTL_MS; /* a clock that is put back keeps them */
    assert_int_equal(state_of(&b, "c"), 'q');
    b.clock.wall_ms += 5 * JOURNAL_TTL_MS;
    journal_tick(b.j);
    journal_counts counts;
    journal_read_counts(b.j, &counts);
    assert_int_equal(counts.n_entries, 0);
    free_bench(&b);
}

/* The oldest answers go, questions stay, and files take no more than they may. */
static void test_room(void **state)
{
    enum { N = 400, BYTES = 16000 };
    bench b;
    err e;
    char name[16], *text = mem_alloc(BYTES);
    memset(text, 'x', BYTES);
    make_bench(&b, JOURNAL_MIN_BYTES);
    open_journal(&b);
    act(&b, 'q', "stays");
    find(&b, "stays")->held = NULL;
    for (int i = 0; i < N; i++) {
        journal_entry *entry;
        snprintf(name, sizeof name, "k%d", i);
        assert_int_equal(ask_it(&b, name, "q", 1, &entry, &e), ST_OK);
        assert_int_equal(answer_it(&b, entry, text, BYTES, &e), ST_OK);
        assert_true(bytes_in(b.dir) <= JOURNAL_MIN_BYTES + JOURNAL_MIN_BYTES / 4);
    }
    for (int round = 0; round < 2; round++) {
        int first = 0;
        journal_counts counts;
        journal_read_counts(b.j, &counts);
        assert_int_equal(counts.n_bad, 0);
        assert_true(counts.bytes <= JOURNAL_MIN_BYTES + JOURNAL_MIN_BYTES / 4);
        assert_int_equal(state_of(&b, "stays"), 'q');
        for (int i = 0; i < N; i++) {
            snprintf(name, sizeof name, "k%d", i);
            journal_entry *entry = find(&b, name);
            if (!entry) {
                assert_int_equal(first, i); /* no gap */
                first = i + 1;
            } else {
                assert_int_equal(read_it(&b, entry), ST_OK);
                assert_int_equal(b.text.len, BYTES);
            }
        }
        assert_true(first > N / 2 && first < N - 25); /* half of a MiB holds 32 */
        reopen(&b);
    }
    mem_free(text);
    free_bench(&b);
}

/* Nothing that was promised goes: then there is no room. */
static void test_no_room(void **state)
{
    enum { BYTES = 100000 };
    bench b;
    err e;
    journal_entry *entry = NULL;
    char name[16], *text = mem_calloc(1, 4 * BYTES);
    int n = 0;
    make_bench(&b, JOURNAL_MIN_BYTES);
    open_journal(&b);
    assert_int_equal(ask_it(&b, "large", text, 3 * BYTES, &entry, &e), ST_CAPACITY);
    for (status st = ST_OK; st == ST_OK; n++) {
        snprintf(name, sizeof name, "k%d", n);
        st = ask_it(&b, name, text, BYTES, &entry, &e);
        assert_true(st == ST_OK || st == ST_FULL);
    }
    assert_int_equal(n, 6); /* five times 100 kB are less than half of a MiB */
    reopen(&b);
    for (int i = 0; i < 5; i++) {
        snprintf(name, sizeof name, "k%d", i);
        entry = find(&b, name);
        entry->held = &b;
        assert_false(entry->answered);
    }
    assert_int_equal(answer_it(&b, entry, text, BYTES, &e), ST_FULL);
    entry->held = &b;
    assert_int_equal(answer_it(&b, entry, text, 10, &e), ST_OK);
    assert_int_equal(ask_it(&b, "more", text, BYTES / 2, &entry, &e), ST_OK);
    mem_free(text);
    free_bench(&b);
}

/* A question that waits for long is copied from segment to segment, whole, and dropped it stays dropped; the order in
 * which they came stays too. */
static void test_moved(void **state)
{
    bench b, after;
    err e;
    char *text = mem_calloc(1, 60000);
    make_bench(&b, JOURNAL_MIN_BYTES);
    open_journal(&b);
    act(&b, 'q', "old");
    act(&b, 'q', "gone");
    act(&b, 'b', "old");
    journal_place at = find(&b, "old")->place;
    for (int i = 0; i < 60; i++) {
        journal_entry *entry;
        char name[16];
        snprintf(name, sizeof name, "k%d", i);
        if (ask_it(&b, name, text, 60000, &entry, &e) != ST_OK) {
            fail_msg("%d: %s", i, e.msg);
        }
        journal_drop(b.j, entry);
        if (i == 40) {
            act(&b, 'd', "gone");
        }
        if (i == 5) {
            act(&b, 'q', "young");
        }
        for (int k = 0; k < 4; k++) { /* a move, and what follows it, is over */
            assert_int_equal(state_of(&b, "old"), 'q');
        }
        size_t n = open_after_cut(&b, &after);
        assert_int_equal(state_of(&after, "old"), 'q');
        free_bench(&after);
        n_synced = n;
        assert_true(i < 20 || find(&b, "old")->place.segment > at.segment);
        if (i == 20) {
            assert_true(find(&b, "young")->place.segment < find(&b, "old")->place.segment);
            n = open_after_cut(&b, &after);
            assert_string_equal(journal_unanswered(after.j, NULL)->name, "old");
            free_bench(&after);
            n_synced = n;
        }
    }
    check_order(&b);
    assert_true(find(&b, "old")->place.segment > at.segment + 10);
    assert_int_equal(state_of(&b, "old"), 'q');
    reopen(&b);
    journal_counts counts;
    journal_read_counts(b.j, &counts);
    assert_int_equal(counts.n_entries, 2);
    assert_int_equal(state_of(&b, "old"), 'q');
    act(&b, 'a', "old");
    reopen(&b);
    assert_int_equal(state_of(&b, "old"), 'a');
    mem_free(text);
    free_bench(&b);
}

/* An answer is on its way while the segment of its question is to go: the question stays there until that is decided. */
static void test_moved_meanwhile(void **state)
{
    enum { BYTES = 60000 };
    bench b;
    err e;
    char *text = mem_calloc(1, BYTES);
    make_bench(&b, JOURNAL_MIN_BYTES);
    open_journal(&b);
    act(&b, 'q', "old");
    journal_counts counts;
    for (int i = 0;; i++) {
        journal_entry *entry;
        char name[16];
        journal_read_counts(b.j, &counts);
        if (counts.bytes + BYTES + 2000 > b.max_bytes) {
            break;
        }
        snprintf(name, sizeof name, "k%d", i);
        assert_int_equal(ask_it(&b, name, text, BYTES, &entry, &e), ST_OK);
        journal_drop(b.j, entry);
    }
    unsigned before = b.n_done;
    journal_entry *entry, *old = find(&b, "old");
    const journal_question q = {.owner = "x",
                                .owner_len = 1,
                                .name = "y",
                                .name_len = 1,
                                .text = text,
                                .text_len = BYTES,
                                .created_ms = START_MS};
    assert_int_equal(old->place.segment, 1);
    assert_int_equal(journal_answer(b.j, old, 200, "answer of old", 13, on_written, &b, &e), ST_OK);
    assert_int_equal(journal_ask(b.j, &q, &b, on_written, &b, &entry, &e), ST_OK); /* now it is too much */
    journal_tick(b.j);
    while (b.n_done < before + 2) {
        event_base_loop(b.base, EVLOOP_ONCE);
    }
    old->held = NULL;
    journal_drop(b.j, entry);
    for (int i = 0; i < 5; i++) {
        char name[16];
        snprintf(name, sizeof name, "m%d", i);
        assert_int_equal(ask_it(&b, name, text, BYTES, &entry, &e), ST_OK);
        journal_drop(b.j, entry);
    }
    close_journal(&b);
    check_order(&b);
    open_journal(&b);
    assert_int_equal(state_of(&b, "old"), 'a');
    mem_free(text);
    free_bench(&b);
}

/* A file that somebody has removed costs what was in it, and nothing else. */
static void test_lost_file(void **state)
{
    bench b;
    err e;
    char path[512], *text = mem_calloc(1, 60000);
    make_bench(&b, JOURNAL_MIN_BYTES);
    open_journal(&b);
    act(&b, 'q', "lost");
    act(&b, 'q', "also");
    find(&b, "lost")->held = find(&b, "also")->held = NULL;
    path_of(b.dir, FIRST, path);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(read_it(&b, find(&b, "also")), ST_BAD_FORMAT);
    for (int i = 0; i < 40; i++) {
        journal_entry *entry;
        char name[16];
        snprintf(name, sizeof name, "k%d", i);
        assert_int_equal(ask_it(&b, name, text, 60000, &entry, &e), ST_OK);
        journal_drop(b.j, entry);
    }
    assert_null(find(&b, "lost"));
    act(&b, 'q', "new");
    reopen(&b);
    assert_int_equal(state_of(&b, "new"), 'q');
    journal_counts counts;
    journal_read_counts(b.j, &counts);
    assert_int_equal(counts.n_entries, 1);
    assert_int_equal(counts.n_bad, 0); /* what stands for the lost ones is no damage */
    mem_free(text);
    free_bench(&b);
}

/* What the disk does not take is not promised; one try in ten seconds; what was kept is there. */
static void test_disk_full(void **state)
{
    bench b;
    err e;
    journal_entry *entry = NULL;
    make_bench(&b, JOURNAL_MIN_BYTES);
    open_journal(&b);
    act(&b, 'q', "a");
    act(&b, 'a', "a");
    act(&b, 'q', "b");
    fail_writes = -1;
    assert_int_equal(ask_it(&b, "c", "x", 1, &entry, &e), ST_IO); /* tried */
    assert_null(find(&b, "c"));
    journal_counts counts;
    journal_read_counts(b.j, &counts);
    assert_false(counts.is_on);
    fail_writes = 0;
    assert_int_equal(ask_it(&b, "c", "x", 1, &entry, &e), ST_IO); /* not tried */
    assert_int_equal(answer_it(&b, find(&b, "b"), "answer of b", 11, &e), ST_IO);
    assert_int_equal(state_of(&b, "a"), 'a');
    assert_int_equal(state_of(&b, "b"), 'q');
    clock_fake_advance_ms(&b.clock, JOURNAL_RETRY_MS);
    fail_writes = 1;
    const journal_question q = {.owner = "", .name = "two", .name_len = 3, .created_ms = START_MS};
    unsigned before = b.n_done;
    assert_int_equal(journal_ask(b.j, &q, &b, on_written, &b, &entry, &e), ST_OK);
    assert_int_equal(ask_it(&b, "c", "x", 1, &entry, &e), ST_IO); /* one is enough to find out */
    assert_int_equal(wait_for(&b, before), ST_IO);
    clock_fake_advance_ms(&b.clock, JOURNAL_RETRY_MS);
    act(&b, 'q', "c");
    find(&b, "b")->held = &b;
    act(&b, 'a', "b");
    journal_read_counts(b.j, &counts);
    assert_true(counts.is_on);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(state_of(&b, "a"), 'a');
        assert_int_equal(state_of(&b, "b"), 'a');
        assert_int_equal(state_of(&b, "c"), 'q');
        reopen(&b);
    }
    free_bench(&b);
}

/* Two segments in one turn of the thread: each is synced before it is said to be there. */
static void test_sync_between(void **state)
{
    enum { BYTES = 70000 }; /* more than a segment takes */
    bench b;
    err e;
    journal_entry *entry;
    status heard[3] = {ST_INTERNAL, ST_INTERNAL, ST_INTERNAL};
    char name[] = "k0", *text = mem_calloc(1, BYTES);
    make_bench(&b, JOURNAL_MIN_BYTES);
    open_journal(&b);
    act(&b, 'q', "first");
    pthread_mutex_lock(&gate); /* the thread stops in its next read, and what follows waits together */
    find(&b, "first")->held = &b;
    assert_int_equal(journal_read(b.j, find(&b, "first"), on_text, &b, &e), ST_OK);
    for (size_t i = 0; i < 3; i++, name[1]++) {
        const journal_question q = {.owner = "ann",
                                    .owner_len = 3,
                                    .name = name,
                                    .name_len = 2,
                                    .text = text,
                                    .text_len = BYTES,
                                    .created_ms = START_MS};
        assert_int_equal(journal_ask(b.j, &q, &b, on_heard, &heard[i], &entry, &e), ST_OK);
    }
    fail_syncs = 1;
    pthread_mutex_unlock(&gate);
    while (heard[2] == ST_INTERNAL) {
        event_base_loop(b.base, EVLOOP_ONCE);
    }
    assert_int_equal(heard[0], ST_IO);
    assert_null(find(&b, "k0"));
    assert_int_equal(heard[1], ST_OK);
    assert_int_equal(heard[2], ST_OK);
    mem_free(text);
    free_bench(&b);
}

/* A failed sync breaks what it was for, and nothing is added behind it. */
static void test_sync_fails(void **state)
{
    bench b;
    err e;
    journal_entry *entry = NULL;
    make_bench(&b, JOURNAL_MIN_BYTES);
    open_journal(&b);
    act(&b, 'q', "a");
    uint64_t segment = find(&b, "a")->place.segment;
    fail_syncs = 1;
    assert_int_equal(ask_it(&b, "b", "x", 1, &entry, &e), ST_IO);
    assert_null(find(&b, "b"));
    clock_fake_advance_ms(&b.clock, JOURNAL_RETRY_MS);
    act(&b, 'q', "c");
    assert_true(find(&b, "c")->place.segment > segment);
    fail_syncs = 1;
    assert_int_equal(answer_it(&b, find(&b, "a"), "x", 1, &e), ST_IO);
    assert_int_equal(state_of(&b, "a"), 'q');
    free_bench(&b);
}

static void test_power_cut(void **state)
{
    bench b, after;
    make_bench(&b, JOURNAL_MIN_BYTES);
    open_journal(&b);
    for (size_t i = 0; i < N_SCRIPT; i++) {
        act(&b, script[i].what, script[i].name);
        if (script[i].what != 'q' && script[i].what != 'a') {
            continue; /* a note: nobody was told that it is there */
        }
        size_t n = open_after_cut(&b, &after);
        check_states(&after, i + 1);
        free_bench(&after);
        n_synced = n;
    }
    free_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_time),
        cmocka_unit_test(test_room),
        cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_moved),
        cmocka_unit_test(test_moved_meanwhile),
        cmocka_unit_test(test_lost_file),
        cmocka_unit_test(test_disk_full),
        cmocka_unit_test(test_sync_between),
        cmocka_unit_test(test_sync_fails),
        cmocka_unit_test(test_power_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
