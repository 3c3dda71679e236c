/*
 * How a worker process begins (serve/worker_proc.h): what it inherits, and that the kernel ends it with the
 * process that started it. The started programs are /bin/sh and /bin/sleep: what they see is what a worker would.
 */
#include "serve/worker_proc.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define WAIT_MS \
    60000 /* for an end that the kernel brings at once (PROTOCOL 6), or never: the worker sleeps for 1,000 s */

static void set_blocking(int fd)
{
    assert_int_equal(fcntl(fd, F_SETFL, 0), 0);
}

/* Runs a shell script as the worker; what it wrote to its stdout. */
static void run_script(const char *script, int status_fd, char *out, size_t cap)
{
    char shell[] = "/bin/sh", flag[] = "-c", text[1024];
    char *const argv[] = {shell, flag, text, NULL};
    const worker_proc_options opt = {.argv = argv, .status_fd = status_fd};
    worker_proc p;
    err e;
    size_t len = 0;
    ssize_t n;
    int wait_status;
    snprintf(text, sizeof text, "%s", script);
    if (worker_proc_start(&opt, &p, &e) != ST_OK) {
        fail_msg("%s", e.msg);
    }
    set_blocking(p.from_fd);
    while (len < cap - 1 && (n = read(p.from_fd, out + len, cap - 1 - len)) > 0) {
        len += (size_t)n;
    }
    out[len] = '\0';
    close(p.to_fd);
    close(p.from_fd);
    assert_int_equal(waitpid(p.pid, &wait_status, 0), p.pid);
    assert_true(WIFEXITED(wait_status));
    assert_int_equal(WEXITSTATUS(wait_status), 0);
}

static void test_descriptors(void **state)
{
    char out[4096], want[64];
    int extra = open("/dev/null", O_RDONLY); /* inheritable, and not for workers */
    assert_true(extra > 2);
    /* the shell's own list; the glob's descriptor is the one that cannot be opened any more */
    run_script("for f in /proc/$$/fd/*; do [ -e $f ] && echo ${f##*/}; done; true", -1, out, sizeof out);
    assert_string_equal(out, "0\n1\n2\n");

    int page = memfd_create("status", MFD_CLOEXEC);
    assert_true(page > 2);
    assert_int_equal(ftruncate(page, 4096), 0);
    run_script(
        "echo $HEARTH_WORKER_STATUS_FD; for f in /proc/$$/fd/*; do [ -e $f ] && echo ${f##*/}; done; true",
        page, out, sizeof out);
    int number = atoi(out);
    assert_true(number > 2);
    snprintf(want, sizeof want, "%d\n0\n1\n2\n%d\n", number, number);
    assert_string_equal(out, want);

    /* what the worker writes there is what we read */
    char byte = 0;
    run_script("printf T > /proc/$$/fd/$HEARTH_WORKER_STATUS_FD", page, out, sizeof out);
    assert_int_equal(pread(page, &byte, 1, 0), 1);
    assert_int_equal(byte, 'T');
    assert_true(fcntl(page, F_GETFD) & FD_CLOEXEC);
    close(page);
    close(extra);
}

static void test_status_page_below_three(void **state)
{
    char out[256];
    int saved = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 10);
    assert_true(saved >= 10);
    close(STDIN_FILENO); /* a daemon that was started so */
    int page = memfd_create("status", MFD_CLOEXEC);
    assert_int_equal(page, STDIN_FILENO);
    run_script("echo $HEARTH_WORKER_STATUS_FD", page, out, sizeof out);
    assert_true(atoi(out) > 2);
    run_script("printf T > /proc/$$/fd/$HEARTH_WORKER_STATUS_FD", page, out, sizeof out);
    char byte = 0;
    assert_int_equal(pread(page, &byte, 1, 0), 1);
    assert_int_equal(byte, 'T');
    close(page);
    assert_int_equal(dup2(saved, STDIN_FILENO), STDIN_FILENO);
    close(saved);
}

static void test_environment(void **state)
{
    char out[256];
    setenv("HEARTH_WORKER_CONTROL_FD", "7", 1);
    setenv("EXECUTORCH_LLM_WORKER_CONTROL_FD", "8", 1);
    setenv("HEARTH_WORKER_STATUS_FD", "9", 1);
    setenv("HEARTH_TEST_KEPT", "kept", 1);
    run_script("echo \"[${HEARTH_WORKER_CONTROL_FD-none}|${EXECUTORCH_LLM_WORKER_CONTROL_FD-none}|"
               "${HEARTH_WORKER_STATUS_FD-none}|${HEARTH_TEST_KEPT-none}]\"",
               -1, out, sizeof out);
    assert_string_equal(out, "[none|none|none|kept]\n");
    assert_string_equal(getenv("HEARTH_WORKER_CONTROL_FD"), "7"); /* ours is as it was */
    unsetenv("HEARTH_WORKER_CONTROL_FD");
    unsetenv("EXECUTORCH_LLM_WORKER_CONTROL_FD");
    unsetenv("HEARTH_WORKER_STATUS_FD");
    unsetenv("HEARTH_TEST_KEPT");
}

static int lowest_free_fd(void)
{
    int fd = open("/dev/null", O_RDONLY);
    assert_true(fd >= 0);
    close(fd);
    return fd;
}

static void test_cannot_start(void **state)
{
    static const struct {
        const char *path, *why;
    } cases[] = {
        {"/nonexistent/worker", "cannot start the worker /nonexistent/worker: No such file or directory"},
        {"/etc/passwd", "cannot start the worker /etc/passwd: Permission denied"},
        {"/tmp", "cannot start the worker /tmp: Permission denied"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[64];
        char *const argv[] = {path, NULL};
        const worker_proc_options opt = {.argv = argv, .status_fd = -1};
        worker_proc p = {.pid = 42};
        err e;
        int before = lowest_free_fd();
        snprintf(path, sizeof path, "%s", cases[i].path);
        assert_int_equal(worker_proc_start(&opt, &p, &e), ST_IO);
        assert_string_equal(e.msg, cases[i].why);
        assert_int_equal(p.pid, 42); /* outputs only on success */
        assert_int_equal(lowest_free_fd(), before);
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no zombie either */
        assert_int_equal(errno, ECHILD);
    }
}

/* The daemon's part: starts the worker, tells its pid, then waits to be killed. Never returns. */
static void be_daemon(int tell)
{
    char path[] = "/bin/sleep", arg[] = "1000";
    char *const argv[] = {path, arg, NULL};
    const worker_proc_options opt = {.argv = argv, .status_fd = -1};
    worker_proc p;
    if (worker_proc_start(&opt, &p, NULL) == ST_OK && getpgid(p.pid) == p.pid) {
        ssize_t n = write(tell, &p.pid, sizeof p.pid);
        (void)n;
    }
    close(tell);
    for (;;) {
        pause();
    }
}

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* We adopt the worker, so that its end can be waited for and its cause seen. */
static void daemon_dies(int how)
{
    int tell[2], wait_status;
    pid_t worker = 0, got = 0;
    assert_int_equal(pipe2(tell, O_CLOEXEC), 0);
    pid_t daemon = fork();
    assert_true(daemon >= 0);
    if (daemon == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(how, SIG_DFL); /* cmocka and the sanitizers catch some */
        be_daemon(tell[1]);
    }
    close(tell[1]);
    assert_int_equal(read(tell[0], &worker, sizeof worker), sizeof worker);
    close(tell[0]);
    assert_int_equal(kill(worker, 0), 0);
    int64_t start = now_ms();
    assert_int_equal(kill(daemon, how), 0);
    assert_int_equal(waitpid(daemon, &wait_status, 0), daemon);
    assert_true(WIFSIGNALED(wait_status));
    while (got == 0 && now_ms() - start < WAIT_MS) {
        got = waitpid(worker, &wait_status, WNOHANG);
        if (got == 0) {
            poll(NULL, 0, 5);
        }
    }
    if (got != worker) {
        kill(worker, SIGKILL);
        fail_msg("the worker outlived a daemon killed by signal %d", how);
    }
    assert_true(WIFSIGNALED(wait_status));
    assert_int_equal(WTERMSIG(wait_status), SIGKILL);
}

static void test_no_orphan(void **state)
{
    const int deaths[] = {SIGKILL, SIGSEGV, SIGTERM};
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    for (size_t i = 0; i < sizeof deaths / sizeof deaths[0]; i++) {
        daemon_dies(deaths[i]);
    }
    prctl(PR_SET_CHILD_SUBREAPER, 0);
}

/* Signals that the daemon ignores or blocks would stay so over exec. */
static void test_signals(void **state)
{
    char out[256];
    sigset_t block, before;
    sigemptyset(&block);
    sigaddset(&block, SIGUSR1);
    sigaddset(&block, SIGTERM);
    sigprocmask(SIG_BLOCK, &block, &before);
    void (*old)(int) = signal(SIGPIPE, SIG_IGN);
    run_script("grep -E '^Sig(Blk|Ign)' /proc/$$/status | tr -d '\\t\\n'", -1, out, sizeof out);
    signal(SIGPIPE, old);
    sigprocmask(SIG_SETMASK, &before, NULL);
    assert_non_null(strstr(out, "SigBlk:0000000000000000"));
    const char *ignored = strstr(out, "SigIgn:");
    assert_non_null(ignored);
    unsigned long long mask = strtoull(ignored + strlen("SigIgn:"), NULL, 16);
    assert_int_equal(mask & (1ull << (SIGPIPE - 1)), 0);
    assert_int_equal(mask & (1ull << (SIGTERM - 1)), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_descriptors), cmocka_unit_test(test_status_page_below_three),
        cmocka_unit_test(test_environment), cmocka_unit_test(test_cannot_start),
        cmocka_unit_test(test_signals),     cmocka_unit_test(test_no_orphan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
