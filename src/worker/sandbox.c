#include "worker/sandbox.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sanitized.h"
#include "worker/sandbox_int.h"

#define OWN_THREADS 4 /* reader, writer, and room: a stack is counted as a whole when its thread starts */

static bool entered;         /* by sandbox_enter, read by sandbox_seal: the same thread */
static int kept_folder = -1; /* from sandbox_keep_folder to sandbox_enter */

const char *sandbox_missing(void)
{
    if (SANITIZED) {
        return "this is a build with a sanitizer, which must open files and map terabytes";
    }
    return sandbox_seccomp_available() ? NULL : "the kernel has no seccomp filters";
}

/*
 * Before
 */
static size_t count_threads(void)
{
    DIR *d = opendir("/proc/self/task");
    size_t n = 0;
    if (!d) {
        return 1; /* no /proc: nothing to count with */
    }
    for (const struct dirent *entry = readdir(d); entry; entry = readdir(d)) {
        n += entry->d_name[0] != '.';
    }
    closedir(d);
    return n;
}

static status check_alone(err *e)
{
    size_t n = SANITIZED ? 1 : count_threads(); /* they have threads of their own, and no sandbox anyway */
    return n == 1 ? ST_OK
                  : err_set(e, ST_INTERNAL, NULL,
                            "the sandbox comes too late: there are %zu threads, it would hold one", n);
}

/* A worker is worth less than its daemon. Without /proc it stays as it is. */
static void raise_oom_score(void)
{
    char text[16];
    int fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return;
    }
    ssize_t n = read(fd, text, sizeof text - 1);
    if (n > 0) {
        text[n] = '\0';
        long score = strtol(text, NULL, 10) + SANDBOX_OOM_SCORE;
        int len = snprintf(text, sizeof text, "%ld", score < 1000 ? score : 1000);
        n = pwrite(fd, text, (size_t)len, 0);
    }
    if (n <= 0) {
        log_emit(LOG_WARN, "worker", "event=oom_score_kept error=\"%s\"", strerror(errno));
    }
    close(fd);
}

status sandbox_prepare(err *e)
{
    uint8_t sum[SHA256_BYTES];
    const struct rlimit none = {0, 0};
    status st = check_alone(e);
    if (st != ST_OK) {
        return st;
    }
    mallopt(M_ARENA_MAX, 1);                /* one heap: its size is what RLIMIT_DATA was chosen for */
    if (sha256_once("", 0, sum) != ST_OK) { /* libcrypto reads its configuration when it is first used */
        return err_set(e, ST_NOMEM, NULL, "cannot make libcrypto ready");
    }
    (void)hash64_keyed("", 0); /* draws its seed */
    raise_oom_score();
    if (setrlimit(RLIMIT_CORE, &none) != 0) {
        return err_set(e, ST_IO, NULL, "cannot switch core dumps off: %s", strerror(errno));
    }
    return ST_OK;
}

/*
 * Limits
 */
static uint64_t plus_quarter(uint64_t bytes)
{
    uint64_t sum;
    return u64_add(bytes, bytes / 4, &sum) ? sum : UINT64_MAX;
}

static uint64_t data_limit(uint64_t planned_bytes, size_t n_threads)
{
    pthread_attr_t attr;
    size_t stack = 0;
    uint64_t stacks, limit = plus_quarter(planned_bytes);
    if (pthread_getattr_default_np(&attr) == 0) {
        pthread_attr_getstacksize(&attr, &stack);
        pthread_attr_destroy(&attr);
    }
    if (!u64_mul(stack, n_threads + OWN_THREADS, &stacks) || !u64_add(limit, stacks, &limit) ||
        !u64_add(limit, SANDBOX_ALLOWANCE_BYTES, &limit)) {
        return UINT64_MAX;
    }
    return limit;
}

/* Lowers RLIMIT_DATA; one that is lower already stays. Soft only, or the hard one too. */
static status set_data_limit(uint64_t bytes, bool hard, uint64_t *got, err *e)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_DATA, &r) != 0) {
        return err_set(e, ST_IO, NULL, "cannot read RLIMIT_DATA: %s", strerror(errno));
    }
    rlim_t limit = bytes < r.rlim_max ? (rlim_t)bytes : r.rlim_max;
    r.rlim_cur = limit;
    r.rlim_max = hard ? limit : r.rlim_max;
    *got = limit;
    return setrlimit(RLIMIT_DATA, &r) == 0 ? ST_OK
                                           : err_set(e, ST_IO, NULL, "cannot set RLIMIT_DATA to %llu: %s",
                                                     (unsigned long long)bytes, strerror(errno));
}

static status give_up_rights(int abi, err *e)
{
    /* 0: also no core by way of a program of the system, and no debugger of the same user */
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
        return err_set(e, ST_IO, NULL, "cannot give up privileges: %s", strerror(errno));
    }
    status st = abi > 0 ? sandbox_landlock_enter(abi, kept_folder, e) : ST_OK;
    if (st == ST_OK) {
        st = sandbox_trap_install(e);
    }
    if (st == ST_OK) {
        st = sandbox_seccomp_enter(kept_folder >= 0, e);
    }
    return st;
}

status sandbox_keep_folder(const char *path, err *e)
{
    if (sandbox_missing()) {
        return ST_OK;
    }
    if (sandbox_landlock_abi() == 0) {
        return err_set(e, ST_UNSUPPORTED, NULL,
                       "the kernel has no Landlock: nothing would hold the worker in %s", path);
    }
    int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return err_set(e, ST_IO, NULL, "cannot open %s: %s", path, strerror(errno));
    }
    if (kept_folder >= 0) {
        close(kept_folder);
    }
    kept_folder = fd;
    return ST_OK;
}

status sandbox_enter(uint64_t file_bytes, err *e)
{
    const char *missing = sandbox_missing();
    uint64_t limit = 0;
    if (missing) {
        log_emit(LOG_WARN, "worker", "event=no_sandbox reason=\"%s\"", missing);
        return ST_OK;
    }
    int abi = sandbox_landlock_abi();
    status st = check_alone(e);
    if (st == ST_OK) {
        st = set_data_limit(data_limit(file_bytes, 0), false, &limit, e);
    }
    if (st == ST_OK) {
        st = give_up_rights(abi, e);
    }
    if (kept_folder >= 0) {
        close(kept_folder); /* the domain has it */
        kept_folder = -1;
    }
    if (st == ST_OK) {
        entered = true;
        log_emit(LOG_INFO, "worker", "event=sandboxed landlock=%d data_limit_bytes=%llu", abi,
                 (unsigned long long)limit);
    }
    return st;
}

status sandbox_seal(uint64_t file_bytes, uint64_t kv_bytes, size_t n_threads, err *e)
{
    uint64_t planned, limit = 0;
    if (!entered) {
        return ST_OK;
    }
    if (!u64_add(file_bytes, kv_bytes, &planned)) {
        planned = UINT64_MAX;
    }
    status st = set_data_limit(data_limit(planned, n_threads), true, &limit, e);
    if (st == ST_OK) {
        st = sandbox_seccomp_seal(e);
    }
    if (st == ST_OK) {
        log_emit(LOG_INFO, "worker", "event=sandbox_sealed data_limit_bytes=%llu", (unsigned long long)limit);
    }
    return st;
}
