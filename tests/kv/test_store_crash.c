/*
 * store: writers that are killed in the middle of it, several processes on one folder, and a disk that is full after so
 * many bytes, whoever writes them, SQLite too (with the library of tests/preload as the argument). The program starts
 * itself as those others: `test_store_crash ROLE FOLDER NUMBER`.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "kv/store_rig.h"

extern char **environ;

enum {
    BUDGET_PAGES = 60,
    CONVERSATIONS = 12,
    PAGES = 10,
    ROUNDS = 40, /* of a worker beside others */
    KILLS = 25
};

static void use_folder(store_rig *r, const char *dir)
{
    memset(r, 0, sizeof *r);
    snprintf(r->dir, sizeof r->dir, "%s", dir);
    r->cfg = (store_config){.dir = r->dir,
                            .page_bytes = RIG_PAGE_BYTES,
                            .budget_bytes = (uint64_t)BUDGET_PAGES * RIG_FILE_BYTES,
                            .queue_bytes = (size_t)1 << 20,
                            .clock = clock_system()};
}

static unsigned next_random(uint64_t *x)
{
    *x ^= *x << 13, *x ^= *x >> 7, *x ^= *x << 17;
    return (unsigned)(*x >> 16);
}

/* Reads what there is of a conversation, as a worker does, and writes what is missing. Bytes are checked by the rig. */
static void one_turn(store_rig *r, unsigned c)
{
    unsigned had = rig_prefix(r, c, PAGES);
    for (unsigned i = had; i < PAGES; i++) {
        (void)rig_put(r, c, i);
    }
}

/* Writes until it is killed. */
_Noreturn static void write_for_ever(const char *dir, unsigned seed)
{
    store_rig r;
    uint64_t x = seed + 1;
    use_folder(&r, dir);
    rig_open(&r);
    for (;;) {
        one_turn(&r, next_random(&x) % CONVERSATIONS);
        if (next_random(&x) % 8 == 0) {
            store_flush(r.s);
        }
    }
}

static int work_beside_others(const char *dir, unsigned seed)
{
    store_rig r;
    uint64_t x = seed + 1;
    use_folder(&r, dir);
    rig_open(&r);
    for (unsigned i = 0; i < ROUNDS; i++) {
        one_turn(&r, next_random(&x) % CONVERSATIONS);
        if (i % 10 == 9) {
            rig_close(&r);
            rig_open(&r);
        }
    }
    store_flush(r.s);
    store_stats s = rig_stats(&r);
    int verdict = s.bad != 0 ? 10 : !s.writes || !s.reads ? 11 : s.bytes > r.cfg.budget_bytes ? 12 : 0;
    rig_close(&r);
    return verdict;
}

/* Holds a file that has its name and nothing in it, says so, and waits to be killed. */
static int stop_before_write(void *ctx, store_op op)
{
    if (op == STORE_WRITE) {
        char path[RIG_PATH_BYTES];
        rig_name(ctx, "stopped", path);
        close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
        pause();
    }
    return 0;
}

static int hold_half(const char *dir, unsigned seed)
{
    store_rig r;
    use_folder(&r, dir);
    const store_seam seam = {.before = stop_before_write, .ctx = &r};
    r.cfg.seam = &seam;
    rig_open(&r);
    (void)rig_put(&r, seed, 0);
    pause();
    return 0;
}

/* Writes more than the disk takes. What was written before can be read, and it warned once if it stopped. */
static int fill_disk(const char *dir, unsigned space)
{
    store_rig r;
    rig_catch_log();
    use_folder(&r, dir);
    rig_open(&r);
    for (unsigned i = 0; i < PAGES; i++) {
        (void)rig_put(&r, 1, i);
        store_flush(r.s);
    }
    store_stats s = rig_stats(&r);
    unsigned n = s.reads ? rig_prefix(&r, 1, PAGES) : 0;
    bool must_stop = space < PAGES * RIG_FILE_BYTES;
    int verdict = s.bad != 0                         ? 20
                  : s.written > n                    ? 21
                  : !s.reads                         ? 22
                  : rig_lines("warn ") != !s.writes  ? 23
                  : s.written != PAGES && s.writes   ? 24
                  : rig_count_files(&r, ".tmp") != 0 ? 25
                  : must_stop && s.writes            ? 26 /* the disk did not fill up */
                                                     : 0;
    rig_close(&r);
    return verdict;
}

/*
 * The test's side
 */
static const char *faults; /* the library */

static pid_t start(const char *role, const char *dir, unsigned number)
{
    char self[] = "/proc/self/exe", text[16],
         *argv[] = {self, (char *)(uintptr_t)role, (char *)(uintptr_t)dir, text, NULL};
    pid_t pid = -1;
    snprintf(text, sizeof text, "%u", number);
    assert_int_equal(posix_spawn(&pid, self, NULL, NULL, argv, environ), 0);
    return pid;
}

static int end_of(pid_t pid)
{
    int wait_status = 0;
    assert_int_equal(waitpid(pid, &wait_status, 0), pid);
    return WIFSIGNALED(wait_status) ? -WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

static void check_folder(store_rig *r)
{
    store_stats s = rig_stats(r);
    assert_true(s.reads && s.writes);
    assert_int_equal(s.bad, 0);
    assert_int_equal(s.files, rig_count_files(r, ".page"));
    assert_int_equal(s.bytes, s.files * RIG_FILE_BYTES);
    assert_true(s.bytes <= r->cfg.budget_bytes);
    assert_int_equal(rig_count_files(r, ".tmp"), 0);
    unsigned n = 0;
    for (unsigned c = 0; c < CONVERSATIONS; c++) {
        n += rig_prefix(r, c, PAGES);
    }
    assert_int_equal(n, s.files); /* all of it can be reached */
    assert_int_equal(rig_stats(r).bad, 0);
}

/* FAILURES P4: kill -9 while writing. What is there is right; the index knows all of it; nothing is left behind. */
static void test_killed(void **state)
{
    store_rig r, used;
    uint64_t x = 5, found = 0;
    rig_init(&r);
    for (unsigned i = 0; i < KILLS; i++) {
        pid_t pid = start("write", r.dir, i);
        for (unsigned ms = 0; i == 0 && ms < 60000 && rig_count_files(&r, ".page") == 0; ms++) {
            usleep(1000); /* a slow machine: once at least it was writing */
        }
        usleep(next_random(&x) % 60000 + (i % 5 == 0 ? 200000 : 0));
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(end_of(pid), -SIGKILL);
        use_folder(&used, r.dir);
        rig_open(&used);
        check_folder(&used);
        found += rig_stats(&used).files;
        rig_close(&used);
    }
    assert_int_equal(rig_lines("event=index_made_anew"), 0);
    assert_true(found > 0);
    rig_end(&r);
}

/* What somebody alive writes at this moment is no leftover; once he is dead it is. */
static void test_half_written(void **state)
{
    store_rig r, used;
    char path[RIG_PATH_BYTES];
    rig_init(&r);
    pid_t pid = start("hold", r.dir, 3);
    rig_name(&r, "stopped", path);
    for (unsigned i = 0; i < 60000 && access(path, F_OK) != 0; i++) {
        usleep(1000);
    }
    assert_int_equal(access(path, F_OK), 0);
    use_folder(&used, r.dir);
    rig_open(&used);
    assert_false(rig_get(&used, 3, 0));
    rig_close(&used);
    assert_int_equal(rig_count_files(&r, ".tmp"), 1);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(end_of(pid), -SIGKILL);
    rig_open(&used);
    assert_int_equal(rig_count_files(&r, ".tmp"), 0);
    assert_int_equal(rig_stats(&used).files, 0);
    rig_close(&used);
    rig_end(&r);
}

static void test_several_processes(void **state)
{
    enum { WORKERS = 3 };
    store_rig r, used;
    pid_t pids[WORKERS];
    rig_init(&r);
    for (unsigned i = 0; i < WORKERS; i++) {
        pids[i] = start("work", r.dir, 100 + i);
    }
    for (unsigned i = 0; i < WORKERS; i++) {
        assert_int_equal(end_of(pids[i]), 0);
    }
    use_folder(&used, r.dir);
    rig_open(&used);
    store_stats s = rig_stats(&used);
    assert_int_equal(s.files, rig_count_files(&used, ".page"));
    assert_true(s.bytes <= used.cfg.budget_bytes);
    assert_true(s.files > BUDGET_PAGES / 2);
    assert_int_equal(rig_count_files(&used, ".tmp"), 0);
    unsigned n = 0;
    for (unsigned c = 0; c < CONVERSATIONS; c++) {
        n += rig_prefix(&used, c, PAGES);
    }
    assert_int_equal(n, s.files); /* nobody wrote a page whose parent another removed */
    assert_int_equal(rig_stats(&used).bad, 0);
    rig_close(&used);
    rig_end(&r);
}

/* A full disk at any moment, in the index' files as well as in the pages. Afterwards there is room again. */
static void test_full_anywhere(void **state)
{
    char text[32];
    for (unsigned space = 0; space < 260000; space += space < 20000 ? 1009 : 6007) {
        store_rig r, used;
        rig_init(&r);
        snprintf(text, sizeof text, "%u", space);
        assert_int_equal(setenv("LD_PRELOAD", faults, 1) | setenv("HEARTH_FAULT_SPACE", text, 1), 0);
        pid_t pid = start("fill", r.dir, space);
        assert_int_equal(unsetenv("LD_PRELOAD") | unsetenv("HEARTH_FAULT_SPACE"), 0);
        int verdict = end_of(pid);
        if (verdict != 0) {
            fail_msg("%u bytes left: %d", space, verdict);
        }
        use_folder(&used, r.dir);
        rig_open(&used);
        check_folder(&used);
        rig_put_all(&used, 1, 0, PAGES);
        assert_int_equal(rig_prefix(&used, 1, PAGES), PAGES);
        rig_close(&used);
        rig_end(&r);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed),
        cmocka_unit_test(test_half_written),
        cmocka_unit_test(test_several_processes),
    };
    const struct CMUnitTest with_faults[] = {cmocka_unit_test(test_full_anywhere)};
    if (argc == 4) {
        unsigned number = (unsigned)strtoul(argv[3], NULL, 10);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (strcmp(argv[1], "write") == 0) {
            write_for_ever(argv[2], number);
        }
        return strcmp(argv[1], "work") == 0   ? work_beside_others(argv[2], number)
               : strcmp(argv[1], "fill") == 0 ? fill_disk(argv[2], number)
                                              : hold_half(argv[2], number);
    }
    if (argc == 2) {
        faults = argv[1];
        return cmocka_run_group_tests(with_faults, NULL, NULL);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
