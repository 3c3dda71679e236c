/*
 * The sandbox with a folder kept (the store's): what can be done in it, that nothing more can be done elsewhere than
 * without, and that a store does its work in there without a system call that nobody thought of.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "kv/store.h"
#include "worker/sandbox.h"

#define FILE_BYTES ((uint64_t)100 << 20)
#define KV_BYTES   ((uint64_t)60 << 20)
#define PAGE_BYTES 65536u
#define N_PAGES    20u

static char inside[128], outside[128]; /* folders beside each other; outside/file is there */

static const char *path_in(const char *dir, const char *name)
{
    static char path[4][256];
    static unsigned i;
    char *out = path[i++ % 4];
    snprintf(out, sizeof path[0], "%s/%s", dir, name);
    return out;
}

static int result_of(long rc)
{
    return rc < 0 ? errno : 0;
}

static int open_in(const char *dir, const char *name, int flags)
{
    int fd = open(path_in(dir, name), flags | O_CLOEXEC, 0600);
    int why = result_of(fd);
    if (fd >= 0) {
        close(fd);
    }
    return why;
}

/*
 * Acts: 0, or an errno
 */
static int make_file(void)
{
    return open_in(inside, "a", O_RDWR | O_CREAT | O_EXCL);
}
static int write_and_read(void)
{
    char got[4] = "";
    int fd = open(path_in(inside, "b"), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    return fd >= 0 && write(fd, "abc", 3) == 3 && pread(fd, got, 3, 0) == 3 && strcmp(got, "abc") == 0
               ? 0
               : errno;
}
static int rename_inside(void)
{
    int why = open_in(inside, "from", O_WRONLY | O_CREAT);
    return why ? why : result_of(rename(path_in(inside, "from"), path_in(inside, "to")));
}
static int remove_file(void)
{
    int why = open_in(inside, "gone", O_WRONLY | O_CREAT);
    return why ? why : result_of(unlink(path_in(inside, "gone")));
}
static int lock_file(void)
{
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    int fd = open(path_in(inside, "lock"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    return fd >= 0 ? result_of(fcntl(fd, F_SETLK, &l)) : errno;
}
static int list_folder(void)
{
    char bytes[1024];
    int fd = open(inside, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd >= 0 ? result_of(syscall(SYS_getdents64, fd, bytes, sizeof bytes)) : errno;
}
static int map_file(void)
{
    int fd = open(path_in(inside, "map"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, 4096) != 0) {
        return errno;
    }
    return mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED ? errno : 0;
}
static int make_folder(void)
{
    return result_of(mkdir(path_in(inside, "sub"), 0700));
}
static int make_link(void)
{
    return result_of(symlink("/etc/passwd", path_in(inside, "link")));
}
static int through_link(void) /* it is there already */
{
    return open_in(inside, "way-out", O_RDONLY);
}
static int through_parent(void)
{
    return open_in(inside, "../outside/file", O_RDONLY);
}
static int read_outside(void)
{
    return open_in(outside, "file", O_RDONLY);
}
static int write_outside(void)
{
    return open_in(outside, "file", O_WRONLY);
}
static int make_outside(void)
{
    return open_in(outside, "new", O_WRONLY | O_CREAT);
}
static int list_outside(void)
{
    return open_in(outside, ".", O_RDONLY | O_DIRECTORY);
}
static int look_up_outside(void)
{
    return open_in(outside, "file", O_PATH);
}
static int open_how_outside(void)
{
    uint64_t how[3] = {O_RDONLY | O_CLOEXEC, 0, 0}; /* struct open_how */
    return result_of(syscall(SYS_openat2, AT_FDCWD, path_in(outside, "file"), how, sizeof how));
}
static int remove_outside(void)
{
    return result_of(unlink(path_in(outside, "file")));
}
static int rename_outside(void)
{
    return result_of(rename(path_in(outside, "file"), path_in(outside, "other")));
}
static int move_out(void)
{
    int why = open_in(inside, "leaves", O_WRONLY | O_CREAT);
    return why ? why : result_of(rename(path_in(inside, "leaves"), path_in(outside, "leaves")));
}
static int move_in(void)
{
    return result_of(rename(path_in(outside, "file"), path_in(inside, "stolen")));
}
static int read_memory_file(void)
{
    return result_of(open("/proc/self/mem", O_RDWR | O_CLOEXEC));
}
static int change_mode(void)
{
    int fd = open(path_in(inside, "mode"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    return fd >= 0 ? result_of(fchmod(fd, 0644)) : errno;
}

typedef struct act {
    const char *what;
    int (*run)(void);
    int with, without; /* expected, with a folder kept and without one */
} act;

static const act acts[] = {
    {"make a file", make_file, 0, EACCES},
    {"write and read", write_and_read, 0, EACCES},
    {"rename", rename_inside, 0, EACCES},
    {"remove", remove_file, 0, EACCES},
    {"lock", lock_file, 0, EACCES},
    {"list", list_folder, 0, EACCES},
    {"map", map_file, 0, EACCES},
    {"make a folder in it", make_folder, ENOSYS, ENOSYS},
    {"make a link in it", make_link, ENOSYS, ENOSYS},
    {"change a mode in it", change_mode, EPERM, EACCES},
    {"read through a link", through_link, EACCES, EACCES},
    {"read through ..", through_parent, EACCES, EACCES},
    {"read outside", read_outside, EACCES, EACCES},
    {"write outside", write_outside, EACCES, EACCES},
    {"make a file outside", make_outside, EACCES, EACCES},
    {"list outside", list_outside, EACCES, EACCES},
    {"look up outside", look_up_outside, EACCES, EACCES},
    {"openat2 outside", open_how_outside, EACCES, EACCES},
    {"remove outside", remove_outside, EACCES, ENOSYS},
    {"rename outside", rename_outside, EACCES, ENOSYS},
    {"move out", move_out, EACCES, EACCES},
    {"move in", move_in, EACCES, ENOSYS},
    {"/proc/self/mem", read_memory_file, EACCES, EACCES},
};

typedef enum place { FREE, SHUT_IN, WITH_FOLDER } place;

static bool go_to(place where)
{
    if (where == FREE) {
        return true;
    }
    return sandbox_prepare(NULL) == ST_OK &&
           (where == SHUT_IN || sandbox_keep_folder(inside, NULL) == ST_OK) &&
           sandbox_enter(FILE_BYTES, NULL) == ST_OK && sandbox_seal(FILE_BYTES, KV_BYTES, 3, NULL) == ST_OK;
}

static int run_in(int (*run)(void), place where, int err_fd)
{
    int wait_status = 0;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        dup2(err_fd >= 0 ? err_fd : null, STDERR_FILENO);
        _exit(go_to(where) ? run() : 255);
    }
    assert_int_equal(waitpid(pid, &wait_status, 0), pid);
    return WIFSIGNALED(wait_status) ? -WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

static void make_folders(void)
{
    static char base[64];
    snprintf(base, sizeof base, "/tmp/hearth-folder-XXXXXX");
    assert_non_null(mkdtemp(base));
    snprintf(inside, sizeof inside, "%s/inside", base);
    snprintf(outside, sizeof outside, "%s/outside", base);
    assert_int_equal(mkdir(inside, 0700) | mkdir(outside, 0700), 0);
    assert_int_equal(open_in(outside, "file", O_WRONLY | O_CREAT), 0);
    assert_int_equal(symlink(path_in(outside, "file"), path_in(inside, "way-out")), 0);
}

static void remove_folders(void)
{
    char command[256];
    snprintf(command, sizeof command, "rm -rf %.*s", (int)(strlen(inside) - strlen("/inside")), inside);
    assert_int_equal(system(command), 0);
}

static void skip_without_sandbox(void)
{
    const char *missing = sandbox_missing();
    if (missing || sandbox_landlock_abi() == 0) {
        print_message("SKIPPED: %s\n", missing ? missing : "this kernel has no Landlock");
        skip();
    }
}

static void test_acts(void **state)
{
    size_t n_bad = 0;
    skip_without_sandbox();
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++) {
        const act *a = &acts[i];
        int got[2];
        for (int with = 0; with < 2; with++) {
            make_folders();
            got[with] = run_in(a->run, with ? WITH_FOLDER : SHUT_IN, -1);
            remove_folders();
        }
        if (got[1] != a->with || got[0] != a->without) {
            print_error("%s: %d with a folder, %d without, expected %d and %d\n", a->what, got[1], got[0],
                        a->with, a->without);
            n_bad++;
        }
    }
    assert_int_equal(n_bad, 0);
}

/*
 * A store in there
 */
static void fill(uint8_t *page, unsigned i)
{
    for (size_t j = 0; j < PAGE_BYTES; j++) {
        page[j] = (uint8_t)(i * 31 + j % 251);
    }
}

static bool wait_ok(store *s)
{
    const struct timespec pause = {0, 1000000};
    store_result r = {.ok = false};
    for (unsigned i = 0; i < 60000 && store_poll(s, &r, 1) == 0; i++) {
        nanosleep(&pause, NULL);
    }
    return r.ok;
}

/* Writes a chain that is over the budget and reads what is left of it: evicts, renames, locks, checkpoints. */
static int use_store(void)
{
    static int err_fd = STDERR_FILENO;
    static uint8_t page[PAGE_BYTES], dst[PAGE_BYTES];
    const store_config cfg = {.dir = inside,
                              .page_bytes = PAGE_BYTES,
                              .budget_bytes = (N_PAGES - 5) * (PAGE_BYTES + 512u),
                              .queue_bytes = (size_t)N_PAGES * PAGE_BYTES,
                              .clock = clock_system()};
    kv_root_key roots[2] = {{{1}}, {{2}}};
    int32_t ids[KV_PAGE_TOKENS] = {0};
    store_key key;
    store *s = NULL;
    log_set_sink(log_fd_sink, &err_fd, LOG_INFO);
    for (unsigned life = 0; life < 2; life++) {
        if (store_open(&cfg, &s, NULL) != ST_OK) {
            return 1;
        }
        for (unsigned i = 0; i < N_PAGES; i++) {
            ids[0] = (int32_t)i;
            fill(page, i + life);
            if (!store_put(s, &roots[life], i ? &key : NULL, ids, KV_PAGE_TOKENS, page)) {
                return 2;
            }
            key = store_chain(&roots[life], i ? &key : NULL, ids, KV_PAGE_TOKENS);
        }
        store_flush(s);
        ids[0] = 0;
        fill(page, life);
        if (!store_get(s, &roots[life], NULL, ids, KV_PAGE_TOKENS, dst, 1) || !wait_ok(s) ||
            memcmp(page, dst, sizeof page) != 0) {
            return 3;
        }
        store_stats st = store_stats_read(s);
        if (!st.reads || !st.writes || st.files != N_PAGES - 5 || st.written != N_PAGES - 5) {
            return 4;
        }
        store_close(s, 60000);
    }
    return 0;
}

static void test_store(void **state)
{
    char text[4096];
    skip_without_sandbox();
    make_folders();
    int fd = memfd_create("stderr", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(run_in(use_store, FREE, fd), 0);
    remove_folders();
    make_folders();
    int how = run_in(use_store, WITH_FOLDER, fd);
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    assert_true(n >= 0);
    text[n] = '\0';
    assert_string_equal(text, ""); /* neither a call that nobody thought of, nor a warning of the store's */
    assert_int_equal(how, 0);
    close(fd);
    remove_folders();
}

static int keep_nothing(void)
{
    err e;
    return sandbox_keep_folder("/nonexistent/folder", &e) == (sandbox_missing() ? ST_OK : ST_IO) ? 0 : 1;
}

static void test_no_folder(void **state)
{
    skip_without_sandbox();
    assert_int_equal(run_in(keep_nothing, FREE, -1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_acts),
        cmocka_unit_test(test_store),
        cmocka_unit_test(test_no_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
