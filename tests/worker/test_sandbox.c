/*
 * The sandbox from inside: each act is done by a process of its own that has entered it, and how it ends is
 * compared with PROTOCOL 6. The same act is also done outside: if it ended the same way there, the sandbox
 * would have no part in it, and the case would show nothing.
 */
#include "worker/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
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
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "worker/sandbox_acts.h"
#include "worker/sandbox_int.h"

#define FILE_BYTES ((uint64_t)100 << 20)
#define KV_BYTES   ((uint64_t)60 << 20)

typedef enum place { OUTSIDE, ENTERED, SEALED } place;

static bool go_to(place where)
{
    return where == OUTSIDE ||
           (sandbox_prepare(NULL) == ST_OK && sandbox_enter(FILE_BYTES, NULL) == ST_OK &&
            (where == ENTERED || sandbox_seal(FILE_BYTES, KV_BYTES, N_THREADS, NULL) == ST_OK));
}

/* stderr of the process goes to err_fd, or away. */
static int run_act(int (*run)(void), place where, int err_fd)
{
    int wait_status = 0;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(err_fd >= 0 ? err_fd : null, STDERR_FILENO);
        _exit(go_to(where) ? run() : 255);
    }
    assert_int_equal(waitpid(pid, &wait_status, 0), pid);
    int how = WIFSIGNALED(wait_status) ? -WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
    if (how == 255) {
        fail_msg("the sandbox could not be entered");
    }
    return how;
}

static int open_model(void **state)
{
    static char bytes[8192];
    memset(bytes, 'x', sizeof bytes);
    memcpy(bytes, "GGUF", 4);
    snprintf(out.path, sizeof out.path, "/tmp/hearth-sandbox-%d", (int)getpid());
    int fd = open(out.path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, bytes, sizeof bytes) != (ssize_t)sizeof bytes || close(fd) != 0) {
        return -1;
    }
    out.parent = getpid();
    out.model = open(out.path, O_RDONLY | O_CLOEXEC);
    out.map = mmap(NULL, sizeof bytes, PROT_READ, MAP_PRIVATE, out.model, 0);
    out.socket = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    out.root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return out.model >= 0 && out.map != MAP_FAILED && out.socket >= 0 && out.root >= 0 &&
                   pipe2(out.pipe, O_CLOEXEC) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, out.pair) == 0
               ? 0
               : -1;
}

static int remove_model(void **state)
{
    unlink(out.path);
    return 0;
}

/* unlink outside took it. */
static void open_again_if_gone(void)
{
    if (access(out.path, F_OK) != 0) {
        int fd = open(out.path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        close(fd);
    }
}

static void test_forbidden(void **state)
{
    size_t n_bad = 0;
    for (const act *a = forbidden_acts; a->what; a++) {
        int outside = run_act(a->run, OUTSIDE, -1), inside = run_act(a->run, SEALED, -1);
        if (inside != a->expect || outside == inside) {
            print_error("%s: %d outside, %d inside, expected %d\n", a->what, outside, inside, a->expect);
            n_bad++;
        }
        open_again_if_gone();
    }
    assert_int_equal(n_bad, 0);
}

static void test_permitted(void **state)
{
    size_t n_bad = 0;
    for (const act *a = permitted_acts; a->what; a++) {
        int outside = run_act(a->run, OUTSIDE, -1), inside = run_act(a->run, SEALED, -1);
        if (inside != a->expect || outside != a->expect) {
            print_error("%s: %d outside, %d inside, expected %d\n", a->what, outside, inside, a->expect);
            n_bad++;
        }
    }
    assert_int_equal(n_bad, 0);
}

/* Before the seal: no different, but that RLIMIT_DATA may still be set, and filters added. */
static void test_entered(void **state)
{
    static const struct {
        const char *what;
        int expect;
    } acts[] = {
        {"raise RLIMIT_DATA", 0},
        {"set another limit", EPERM},
        {"the parent's limits", EPERM},
        {"another filter", EFAULT}, /* address 0, as the kernel itself says */
        {"open a file for reading", EACCES},
        {"exec", KILLED},
        {"4 GiB", ENOMEM},
        {"threads that open", EACCES},
    };
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++) {
        int inside = run_act(act_named(acts[i].what), ENTERED, -1);
        if (inside != acts[i].expect) {
            fail_msg("%s: %d, expected %d", acts[i].what, inside, acts[i].expect);
        }
    }
}

/* The seal reaches threads that run already. */
static void *wait_and_lower(void *arg)
{
    char go;
    int *got = arg;
    if (read(out.pipe[0], &go, 1) == 1) {
        *got = act_named("lower RLIMIT_DATA")();
    }
    return NULL;
}

static int seal_beside_a_thread(void)
{
    pthread_t t;
    int got = -1;
    if (pthread_create(&t, NULL, wait_and_lower, &got) != 0 ||
        sandbox_seal(FILE_BYTES, KV_BYTES, N_THREADS, NULL) != ST_OK || write(out.pipe[1], "g", 1) != 1 ||
        pthread_join(t, NULL) != 0) {
        return 254;
    }
    return got;
}

static void test_seal_reaches_threads(void **state)
{
    assert_int_equal(run_act(seal_beside_a_thread, ENTERED, -1), EPERM);
}

/* Lines that a process in the sandbox writes to its stderr. */
static void stderr_of(int (*run)(void), char *text, size_t cap)
{
    int fd = memfd_create("stderr", MFD_CLOEXEC);
    assert_true(fd >= 0);
    (void)run_act(run, SEALED, fd);
    ssize_t n = pread(fd, text, cap - 1, 0);
    assert_true(n >= 0);
    text[n] = '\0';
    close(fd);
}

static int three_unknown_calls(void)
{
    syscall(SYS_chdir, "/");
    syscall(SYS_unlink, "/nonexistent");
    syscall(SYS_chdir, "/");
    return 0;
}

static void test_logged_once(void **state)
{
    char text[1024], want[128];
    stderr_of(three_unknown_calls, text, sizeof text);
    snprintf(want, sizeof want, "warn worker event=unknown_system_call result=ENOSYS number=%d\n", SYS_chdir);
    assert_string_equal(text, want);
    stderr_of(act_named("fstat"), text, sizeof text); /* trapped as well, and nothing to tell */
    assert_string_equal(text, "");
    stderr_of(act_named("open a file for reading"), text, sizeof text);
    assert_string_equal(text, "");
    stderr_of(act_named("stat"), text, sizeof text);
    assert_string_equal(text, "");
}

/* Tells RLIMIT_DATA and RLIMIT_CORE through the pipe. */
static int tell_limits(void)
{
    struct rlimit r[2];
    if (getrlimit(RLIMIT_DATA, &r[0]) != 0 || getrlimit(RLIMIT_CORE, &r[1]) != 0) {
        return errno;
    }
    return write(out.pipe[1], r, sizeof r) == (ssize_t)sizeof r ? 0 : EIO;
}

static void test_limits(void **state)
{
    struct rlimit r[2];
    pthread_attr_t attr;
    size_t stack;
    assert_int_equal(pthread_getattr_default_np(&attr), 0);
    assert_int_equal(pthread_attr_getstacksize(&attr, &stack), 0);
    pthread_attr_destroy(&attr);
    assert_int_equal(run_act(tell_limits, ENTERED, -1), 0);
    assert_int_equal(read(out.pipe[0], r, sizeof r), sizeof r);
    /* 100 MiB and a quarter, 2 GiB, four stacks; the hard limit is as it was */
    assert_int_equal(r[0].rlim_cur, ((uint64_t)(125 + 2048) << 20) + 4 * stack);
    assert_int_equal(r[0].rlim_max, RLIM_INFINITY);
    assert_int_equal(r[1].rlim_max, 0);
    assert_int_equal(run_act(tell_limits, SEALED, -1), 0);
    assert_int_equal(read(out.pipe[0], r, sizeof r), sizeof r);
    assert_int_equal(r[0].rlim_cur, ((uint64_t)(200 + 2048) << 20) + (N_THREADS + 4) * stack);
    assert_int_equal(r[0].rlim_max, r[0].rlim_cur);
}

/* The value after "name:" in /proc/PID/file, or the whole of it if name is NULL. */
static long proc_value(pid_t pid, const char *file, const char *name)
{
    char path[64], line[256];
    long value = -1;
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        size_t len = name ? strlen(name) : 0;
        if (!name || (strncmp(line, name, len) == 0 && line[len] == ':')) {
            value = strtol(line + (name ? len + 1 : 0), NULL, 10);
            break;
        }
    }
    fclose(f);
    return value;
}

/* A process that has entered, says so, and waits. */
static pid_t start_inside(place where)
{
    char ready = 0;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        bool ok = go_to(where);
        ssize_t n = write(out.pipe[1], ok ? "r" : "x", 1);
        for (;;) {
            poll(NULL, 0, n == 1 ? 1000 : 0);
        }
    }
    assert_int_equal(read(out.pipe[0], &ready, 1), 1);
    assert_int_equal(ready, 'r');
    return pid;
}

static void end_inside(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void test_seen_from_outside(void **state)
{
    long own_score = proc_value(getpid(), "oom_score_adj", NULL);
    long want = own_score + 500 < 1000 ? own_score + 500 : 1000;
    pid_t pid = start_inside(SEALED);
    assert_int_equal(proc_value(pid, "status", "NoNewPrivs"), 1);
    assert_int_equal(proc_value(pid, "status", "Seccomp"), 2);
    assert_int_equal(proc_value(pid, "oom_score_adj", NULL), want);
    end_inside(pid);
}

static void test_parent_death_signal(void **state)
{
    pid_t told = 0;
    int fd[2], wait_status;
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    assert_int_equal(pipe2(fd, O_CLOEXEC), 0);
    pid_t daemon = fork();
    assert_true(daemon >= 0);
    if (daemon == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pid_t worker = start_inside(SEALED);
        ssize_t n = write(fd[1], &worker, sizeof worker);
        for (;;) {
            poll(NULL, 0, n > 0 ? 1000 : 0);
        }
    }
    assert_int_equal(read(fd[0], &told, sizeof told), sizeof told);
    kill(daemon, SIGKILL);
    waitpid(daemon, NULL, 0);
    assert_int_equal(waitpid(told, &wait_status, 0), told); /* ours now; it would wait for ever */
    assert_true(WIFSIGNALED(wait_status));
    assert_int_equal(WTERMSIG(wait_status), SIGKILL);
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    close(fd[0]);
    close(fd[1]);
}

/* Threads that exist already would stay outside. */
static void *wait_for_pipe(void *arg)
{
    char byte;
    ssize_t n = read(out.pipe[0], &byte, 1);
    (void)n;
    return NULL;
}

static int come_too_late(void)
{
    pthread_t t;
    err e;
    int verdict = 0;
    if (pthread_create(&t, NULL, wait_for_pipe, NULL) != 0) {
        return 254;
    }
    verdict |= sandbox_prepare(&e) == ST_INTERNAL ? 0 : 1;
    verdict |= sandbox_enter(FILE_BYTES, &e) == ST_INTERNAL ? 0 : 2;
    verdict |= act_named("open a file for reading")() == 0 ? 0 : 4; /* nothing is half done */
    verdict |=
        sandbox_seal(FILE_BYTES, KV_BYTES, 1, &e) == ST_OK && act_named("raise RLIMIT_DATA")() == 0 ? 0 : 8;
    return verdict;
}

static void test_too_late(void **state)
{
    assert_int_equal(run_act(come_too_late, OUTSIDE, -1), 0);
}

/* Landlock alone: in the sandbox the filter answers first, so nothing there shows what it does. */
static act_run behind_landlock;

static int landlock_alone(void)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        sandbox_landlock_enter(sandbox_landlock_abi(), -1, NULL) != ST_OK) {
        return 254;
    }
    return behind_landlock();
}

static int bind_tcp(void)
{
    const struct sockaddr a = {.sa_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return fd >= 0 && bind(fd, &a, sizeof a) == 0 ? 0 : errno;
}

static void test_landlock(void **state)
{
    static const struct {
        const char *what;
        int expect, abi; /* of Landlock that has it */
    } cases[] = {
        {"open a file for reading", EACCES, 1},
        {"make a file", EACCES, 1},
        {"read a folder", EACCES, 1},
        {"unlink", EACCES, 1},
        {"exec", EACCES, 1},
        {"truncate", EACCES, 3},
        {"kill the parent", EPERM, 6},
        {"read the mapped model", 0, 1},
    };
    int abi = sandbox_landlock_abi();
    if (abi == 0) {
        print_message("SKIPPED: this kernel has no Landlock\n");
        skip();
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        behind_landlock = act_named(cases[i].what);
        int got = cases[i].abi <= abi ? run_act(landlock_alone, OUTSIDE, -1) : cases[i].expect;
        if (got != cases[i].expect) {
            fail_msg("%s: %d, expected %d", cases[i].what, got, cases[i].expect);
        }
    }
    behind_landlock = bind_tcp;
    assert_int_equal(run_act(bind_tcp, OUTSIDE, -1), 0);
    assert_int_equal(run_act(landlock_alone, OUTSIDE, -1), abi >= 4 ? EACCES : 0);
}

/* Where there can be no sandbox the worker goes on without, and says so. */
static void test_without(void **state)
{
    assert_int_equal(run_act(act_named("open a file for reading"), SEALED, -1), 0);
    assert_int_equal(run_act(act_named("fork"), SEALED, -1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forbidden),         cmocka_unit_test(test_permitted),
        cmocka_unit_test(test_entered),           cmocka_unit_test(test_seal_reaches_threads),
        cmocka_unit_test(test_logged_once),       cmocka_unit_test(test_limits),
        cmocka_unit_test(test_seen_from_outside), cmocka_unit_test(test_parent_death_signal),
        cmocka_unit_test(test_too_late),          cmocka_unit_test(test_landlock),
    };
    const struct CMUnitTest without[] = {cmocka_unit_test(test_without)};
    const char *missing = sandbox_missing();
    if (missing) {
        int rc = cmocka_run_group_tests(without, open_model, remove_model);
        fprintf(stderr, "SKIPPED: sandbox: %s\n", missing);
        return rc ? rc : 77;
    }
    return cmocka_run_group_tests(tests, open_model, remove_model);
}
