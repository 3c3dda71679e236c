/*
 * store: its index is missing, garbage, of another version, damaged while it is open, lost to another worker: it is made
 * anew from the folder, and nothing is lost but the order of use.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "kv/store_index.h"
#include "kv/store_keys.h"
#include "kv/store_rig.h"

enum { PAGES = 6 };

static void put_text(const store_rig *r, const char *name, uint64_t at, const void *bytes, size_t n)
{
    char path[RIG_PATH_BYTES];
    rig_name(r, name, path);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, n, (off_t)at), n);
    close(fd);
}

static void remove_name(const store_rig *r, const char *name)
{
    char path[RIG_PATH_BYTES];
    rig_name(r, name, path);
    (void)unlink(path);
}

static void nothing(const store_rig *r)
{
    (void)r;
}
static void no_index(const store_rig *r)
{
    remove_name(r, "index.db");
}
static void nothing_but_pages(const store_rig *r)
{
    static const char *const names[] = {"index.db", "index.db-wal", "index.db-shm", "index.lock"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        remove_name(r, names[i]);
    }
}
static void fill_name(const store_rig *r, const char *name, uint64_t from, size_t n)
{
    static uint8_t noise[200000];
    uint64_t x = 88172645463325252u;
    for (size_t i = 0; i < sizeof noise; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        noise[i] = (uint8_t)x;
    }
    put_text(r, name, from, noise, n);
}
static void garbage(const store_rig *r)
{
    fill_name(r, "index.db", 0, 100000);
}
static void garbage_behind_header(const store_rig *r)
{
    fill_name(r, "index.db", 100, 100000);
}
static void garbage_in_tables(const store_rig *r)
{
    fill_name(r, "index.db", 4096, 60000);
}
static void garbage_everywhere(const store_rig *r)
{
    fill_name(r, "index.db", 0, 100000);
    fill_name(r, "index.db-wal", 0, 100000);
    fill_name(r, "index.db-shm", 0, 32768);
    fill_name(r, "index.lock", 0, 100);
}
static void empty(const store_rig *r)
{
    char path[RIG_PATH_BYTES];
    rig_name(r, "index.db", path);
    assert_int_equal(truncate(path, 0), 0);
}
static void half(const store_rig *r)
{
    char path[RIG_PATH_BYTES];
    struct stat sb;
    rig_name(r, "index.db", path);
    assert_int_equal(stat(path, &sb), 0);
    assert_int_equal(truncate(path, sb.st_size / 2), 0);
}
static void other_version(const store_rig *r) /* offset 60: user_version (sqlite.org/fileformat2.html) */
{
    put_text(r, "index.db", 60, "\0\0\0\7", 4);
}
static void other_application(const store_rig *r) /* offset 68: application_id */
{
    put_text(r, "index.db", 68, "\1\2\3\4", 4);
}

static void wrong_counts(const store_rig *r) /* a sound database that says what is not so */
{
    char path[RIG_PATH_BYTES];
    sqlite3 *db = NULL;
    rig_name(r, "index.db", path);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(
        sqlite3_exec(db, "UPDATE total SET files = 7, bytes = 1000000000; UPDATE page SET kids = 1 - kids",
                     NULL, NULL, NULL),
        SQLITE_OK);
    sqlite3_close(db);
}

static const struct {
    const char *what;
    void (*spoil)(const store_rig *r);
    unsigned warnings;
} cases[] = {
    {"nothing", nothing, 0},
    {"no index", no_index, 0},
    {"nothing but pages", nothing_but_pages, 0},
    {"empty", empty, 0},
    {"garbage", garbage, 1},
    {"garbage behind the header", garbage_behind_header, 1},
    {"garbage in the tables", garbage_in_tables, 1},
    {"garbage everywhere", garbage_everywhere, 1},
    {"half of it", half, 1},
    {"another version", other_version, 1},
    {"another application", other_application, 1},
    {"wrong counts", wrong_counts, 0},
};

static void check_all_there(store_rig *r, const char *what)
{
    store_stats s = rig_stats(r);
    if (s.files != 2 * PAGES || s.bytes != 2 * PAGES * RIG_FILE_BYTES || !s.writes || s.bad != 0) {
        fail_msg("%s: %llu files, %llu bytes", what, (unsigned long long)s.files,
                 (unsigned long long)s.bytes);
    }
    assert_int_equal(rig_prefix(r, 1, PAGES + 1), PAGES);
    assert_int_equal(rig_prefix(r, 2, PAGES + 1), PAGES);
}

static void test_made_anew(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        store_rig r;
        rig_init(&r);
        r.cfg.budget_bytes = (uint64_t)2 * PAGES * RIG_FILE_BYTES;
        rig_open(&r);
        rig_put_all(&r, 1, 0, PAGES);
        rig_put_all(&r, 2, 0, PAGES);
        rig_close(&r);
        cases[i].spoil(&r);
        rig_open(&r);
        check_all_there(&r, cases[i].what);
        if (rig_lines("event=index_made_anew") != cases[i].warnings ||
            rig_lines("warn ") != cases[i].warnings) {
            fail_msg("%s: %u lines", cases[i].what, rig_lines("warn "));
        }
        rig_prefix(&r, 2, PAGES); /* it knows what goes on from what, and counts use */
        rig_put_all(&r, 3, 0, PAGES);
        assert_int_equal(rig_prefix(&r, 1, PAGES), 0);
        assert_int_equal(rig_prefix(&r, 2, PAGES), PAGES);
        assert_int_equal(rig_prefix(&r, 3, PAGES), PAGES);
        assert_int_equal(rig_stats(&r).bytes, r.cfg.budget_bytes);
        rig_close(&r);
        rig_open(&r); /* and the new one is sound */
        assert_int_equal(rig_stats(&r).files, 2 * PAGES);
        assert_int_equal(rig_lines("warn "), cases[i].warnings);
        rig_end(&r);
    }
}

/* The files that it enters then are looked at: what is no page file of that name goes. */
static void test_bad_files_go(void **state)
{
    store_rig r;
    rig_page p, other;
    char path[RIG_PATH_BYTES], to[RIG_PATH_BYTES];
    rig_init(&r);
    rig_open(&r);
    rig_put_all(&r, 1, 0, PAGES);
    rig_close(&r);
    rig_page_make(&p, 1, 1);
    rig_path(&r, &p, path);
    assert_int_equal(truncate(path, 100), 0);
    rig_page_make(&p, 1, 2);
    rig_path(&r, &p, path);
    assert_int_equal(truncate(path, RIG_FILE_BYTES - 1), 0);
    rig_page_make(&p, 1, 3);
    rig_page_make(&other, 9, 9);
    rig_path(&r, &p, path);
    rig_path(&r, &other, to);
    assert_int_equal(rename(path, to), 0); /* a page under the name of another */
    no_index(&r);
    rig_open(&r);
    assert_int_equal(rig_stats(&r).bad, 3);
    assert_int_equal(rig_stats(&r).files, PAGES - 3);
    assert_int_equal(rig_count_files(&r, ".page"), PAGES - 3);
    rig_end(&r);
}

/* Damaged under a store that is at work: sooner or later it notices, and goes on. */
static void test_damaged_at_work(void **state)
{
    store_rig r;
    rig_init(&r);
    r.cfg.budget_bytes = (uint64_t)2 * PAGES * RIG_FILE_BYTES;
    rig_open(&r);
    rig_put_all(&r, 1, 0, PAGES);
    fill_name(&r, "index.db", 0, 100000);
    fill_name(&r, "index.db-wal", 0, 200000);
    for (unsigned i = 0; i < 10; i++) {
        rig_put_all(&r, 10 + i, 0, PAGES);
    }
    rig_close(&r);
    rig_open(&r);
    store_stats s = rig_stats(&r);
    assert_true(s.writes);
    assert_int_equal(s.files, rig_count_files(&r, ".page"));
    assert_true(s.bytes <= r.cfg.budget_bytes);
    assert_true(s.files >= PAGES);
    rig_put_all(&r, 30, 0, PAGES);
    assert_int_equal(rig_prefix(&r, 30, PAGES), PAGES);
    rig_end(&r);
}

/* One worker makes a new index while another has the old one open: that one comes over. */
static void test_comes_over(void **state)
{
    store_rig r, other;
    rig_page p;
    const struct timespec pause = {0, 10000000};
    rig_init(&r);
    rig_open(&r);
    rig_put_all(&r, 1, 0, PAGES);
    no_index(&r);
    remove_name(&r, "index.db-wal");
    remove_name(&r, "index.db-shm");
    other = r;
    rig_open(&other);
    assert_int_equal(rig_stats(&other).files, PAGES);
    assert_true(rig_stats(&other).writes);
    rig_put_all(&other, 2, 0, 1);
    rig_page_make(&p, 2, 0);
    for (unsigned i = 0; i < 6000 && !store_has(r.s, &p.key); i++) {
        nanosleep(&pause, NULL); /* the first learns of it only from the new one */
    }
    assert_true(store_has(r.s, &p.key));
    rig_put_all(&r, 3, 0, 1);
    rig_close(&r);
    rig_close(&other);
    rig_open(&r);
    assert_int_equal(rig_stats(&r).files, PAGES + 2);
    assert_true(rig_stats(&r).writes);
    rig_end(&r);
}

/* Something else of that name: no index, so no budget can be kept, so nothing is written. */
static void test_no_index_possible(void **state)
{
    store_rig r;
    char path[RIG_PATH_BYTES], below[RIG_PATH_BYTES + 8];
    rig_init(&r);
    rig_open(&r);
    rig_put_all(&r, 1, 0, PAGES);
    rig_close(&r);
    no_index(&r);
    rig_name(&r, "index.db", path);
    snprintf(below, sizeof below, "%s/x", path);
    assert_int_equal(mkdir(path, 0700) | mkdir(below, 0700), 0);
    rig_open(&r);
    assert_false(rig_stats(&r).writes);
    assert_int_equal(rig_lines("warn "), 1);
    assert_int_equal(rig_stats(&r).files, PAGES);
    assert_int_equal(rig_stats(&r).bytes, PAGES * RIG_FILE_BYTES);
    assert_int_equal(rig_prefix(&r, 1, PAGES + 1), PAGES);
    rig_end(&r);
}

/*
 * The set of keys, against a plain array of what should be in it
 */
static void test_keys(void **state)
{
    enum { MANY = 3000 };
    static store_key_state want[MANY];
    store_keys k = {0};
    uint64_t x = 7;
    for (unsigned i = 0; i < 60000; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        unsigned which = (unsigned)(x >> 8) % MANY;
        store_key key = {{0}}; /* all begin near each other, so that their runs do too */
        uint16_t near = (uint16_t)(which / 7);
        memcpy(key.bytes, &near, sizeof near);
        memcpy(key.bytes + 8, &which, sizeof which);
        if (x % 5 < 2) {
            store_keys_remove(&k, &key);
            want[which] = STORE_KEY_NONE;
        } else {
            store_keys bigger;
            if (store_keys_full(&k)) {
                assert_true(store_keys_grown(&k, &bigger));
                store_keys_release(&k);
                k = bigger;
            }
            want[which] = x % 5 == 4 ? STORE_KEY_REFUSED : STORE_KEY_THERE;
            store_keys_put(&k, &key, want[which], (uint8_t)which);
        }
        if (i % 1000 == 999) {
            size_t n = 0;
            for (unsigned j = 0; j < MANY; j++) {
                near = (uint16_t)(j / 7);
                memcpy(key.bytes, &near, sizeof near);
                memcpy(key.bytes + 8, &j, sizeof j);
                const store_key_slot *slot = store_keys_find(&k, &key);
                assert_int_equal(slot ? slot->state : STORE_KEY_NONE, want[j]);
                n += want[j] != STORE_KEY_NONE;
            }
            assert_int_equal(k.n, n);
        }
    }
    store_keys_release(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_made_anew),         cmocka_unit_test(test_bad_files_go),
        cmocka_unit_test(test_damaged_at_work),   cmocka_unit_test(test_comes_over),
        cmocka_unit_test(test_no_index_possible), cmocka_unit_test(test_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
