/*
 * SIGSYS: a system call that the filter neither allows nor punishes did not happen. The handler gives it its
 * result and the thread goes on.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/ucontext.h>
#include <unistd.h>

#include "worker/sandbox_int.h"

#define BY_FILTER 1 /* SYS_SECCOMP: si_code of a trap */

#if defined(__x86_64__)
static long argument(const ucontext_t *uc, int i)
{
    static const int regs[] = {REG_RDI, REG_RSI, REG_RDX, REG_R10};
    return uc->uc_mcontext.gregs[regs[i]];
}

static void set_result(ucontext_t *uc, long result)
{
    uc->uc_mcontext.gregs[REG_RAX] = result;
}
#elif defined(__aarch64__)
static long argument(const ucontext_t *uc, int i)
{
    return (long)uc->uc_mcontext.regs[i];
}

static void set_result(ucontext_t *uc, long result)
{
    uc->uc_mcontext.regs[0] = (unsigned long long)result;
}
#else
#error "where does this machine keep the arguments of a system call?"
#endif

/* log_emit is not for signal handlers. */
static void log_once(int number)
{
    static atomic_flag done = ATOMIC_FLAG_INIT;
    char line[96] = "warn worker event=unknown_system_call result=ENOSYS number=";
    char digits[12];
    size_t len = strlen(line), n = 0;
    if (atomic_flag_test_and_set_explicit(&done, memory_order_relaxed)) {
        return;
    }
    do {
        digits[n++] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    while (n > 0) {
        line[len++] = digits[--n];
    }
    line[len++] = '\n';
    ssize_t written = write(STDERR_FILENO, line, len);
    (void)written; /* nobody is left to be told */
}

/*
 * fstat of the C library is a newfstatat with an empty path, and no filter sees that it is empty. With a path
 * it is a stat: refused like the others.
 */
static bool is_stat(int number)
{
#ifdef SYS_newfstatat
    return number == SYS_newfstatat;
#else
    return false;
#endif
}

static long answer_stat(const ucontext_t *uc)
{
    const char *path = (const char *)argument(uc, 1);
    if (argument(uc, 3) != AT_EMPTY_PATH || !path || *path != '\0') {
        return -EACCES;
    }
    return syscall(SYS_fstat, argument(uc, 0), argument(uc, 2)) == 0 ? 0 : -errno;
}

static void on_trap(int sig, siginfo_t *info, void *context)
{
    ucontext_t *uc = context;
    int saved = errno; /* of what runs on after a call of ours; the trapped one gets its own */
    long result = -ENOSYS;
    if (info->si_code != BY_FILTER) { /* somebody sent it: the action that it would have had */
        signal(sig, SIG_DFL);
        raise(sig);
        return;
    }
    if (is_stat(info->si_syscall)) {
        result = answer_stat(uc);
    } else {
        log_once(info->si_syscall);
    }
    set_result(uc, result);
    errno = saved;
}

status sandbox_trap_install(err *e)
{
    struct sigaction sa;
    memset(&sa, 0, sizeof sa);
    sigemptyset(&sa.sa_mask);
    sa.sa_sigaction = on_trap;
    sa.sa_flags = SA_SIGINFO;
    return sigaction(SIGSYS, &sa, NULL) == 0
               ? ST_OK
               : err_set(e, ST_IO, NULL, "cannot set the action of SIGSYS: %s", strerror(errno));
}
