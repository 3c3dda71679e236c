/*
 * The lists. What is in none of them is trapped (sandbox_trap.c). A number below zero is a call that this
 * machine does not have.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "worker/sandbox_int.h"

#define N_OF(a) (sizeof(a) / sizeof(a)[0])

#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41 /* newer C libraries give their memory names and do without if they cannot */
#endif

/* What a worker does: computes, waits, and speaks through descriptors that it has. */
static const int allowed[] = {
    /* descriptors */
    SCMP_SYS(read), SCMP_SYS(write), SCMP_SYS(readv), SCMP_SYS(writev), SCMP_SYS(lseek), SCMP_SYS(close),
    SCMP_SYS(fstat), SCMP_SYS(poll), SCMP_SYS(ppoll), SCMP_SYS(eventfd2), SCMP_SYS(recvfrom),
    /* packed weights: a file that is open already is written once, or read */
    SCMP_SYS(pread64), SCMP_SYS(pwrite64), SCMP_SYS(fallocate), SCMP_SYS(ftruncate), SCMP_SYS(fsync),
    SCMP_SYS(fdatasync), SCMP_SYS(flock),
    /* memory (mmap and mprotect: below) */
    SCMP_SYS(brk), SCMP_SYS(munmap), SCMP_SYS(mremap), SCMP_SYS(madvise),
    /* threads (clone: below) */
    SCMP_SYS(futex), SCMP_SYS(set_robust_list), SCMP_SYS(rseq), SCMP_SYS(sched_yield),
    SCMP_SYS(sched_getaffinity), SCMP_SYS(gettid), SCMP_SYS(exit), SCMP_SYS(exit_group),
    /* time */
    SCMP_SYS(clock_gettime), SCMP_SYS(clock_getres), SCMP_SYS(clock_nanosleep), SCMP_SYS(nanosleep),
    SCMP_SYS(gettimeofday), SCMP_SYS(time), SCMP_SYS(restart_syscall),
    /* signals (kill: below) */
    SCMP_SYS(rt_sigaction), SCMP_SYS(rt_sigprocmask), SCMP_SYS(rt_sigreturn),
    /* itself */
    SCMP_SYS(getpid), SCMP_SYS(getppid), SCMP_SYS(getrandom), SCMP_SYS(getrusage), SCMP_SYS(sysinfo),
    /* sandbox_seal ends this one */
    SCMP_SYS(seccomp)};

/* Looking for a file is no crime, and done without: EACCES, whether or not there is Landlock. (newfstatat is
 * answered in the trap.) */
static const int refused[] = {SCMP_SYS(open),     SCMP_SYS(openat2),   SCMP_SYS(creat),
                              SCMP_SYS(stat),     SCMP_SYS(lstat),     SCMP_SYS(statx),
                              SCMP_SYS(access),   SCMP_SYS(faccessat), SCMP_SYS(faccessat2),
                              SCMP_SYS(readlink), SCMP_SYS(readlinkat)};

/* What files in the folder are made with, by the store and by SQLite (openat: below). Which files: Landlock. */
static const int folder_allowed[] = {SCMP_SYS(newfstatat), SCMP_SYS(getdents64), SCMP_SYS(unlink),
                                     SCMP_SYS(unlinkat),   SCMP_SYS(rename),     SCMP_SYS(renameat),
                                     SCMP_SYS(renameat2),  SCMP_SYS(fadvise64),  SCMP_SYS(geteuid)};
/* SQLite would like a new file to have owner and mode of its database; it has. */
static const int folder_refused[] = {SCMP_SYS(fchmod), SCMP_SYS(fchown)};

/* Nothing in a worker asks for these: whoever does is not a worker any more. */
static const int fatal[] = {
    /* other programs and processes */
    SCMP_SYS(execve), SCMP_SYS(execveat), SCMP_SYS(fork), SCMP_SYS(vfork), SCMP_SYS(ptrace),
    SCMP_SYS(process_vm_readv), SCMP_SYS(process_vm_writev), SCMP_SYS(process_madvise), SCMP_SYS(pidfd_open),
    SCMP_SYS(pidfd_getfd), SCMP_SYS(pidfd_send_signal), SCMP_SYS(kcmp),
    /* the network */
    SCMP_SYS(socket), SCMP_SYS(socketpair), SCMP_SYS(connect), SCMP_SYS(bind), SCMP_SYS(listen),
    SCMP_SYS(accept), SCMP_SYS(accept4),
    /* the kernel, and the corners of it that exploits go through */
    SCMP_SYS(bpf), SCMP_SYS(perf_event_open), SCMP_SYS(userfaultfd), SCMP_SYS(io_uring_setup),
    SCMP_SYS(io_uring_enter), SCMP_SYS(io_uring_register), SCMP_SYS(keyctl), SCMP_SYS(add_key),
    SCMP_SYS(request_key), SCMP_SYS(kexec_load), SCMP_SYS(kexec_file_load), SCMP_SYS(init_module),
    SCMP_SYS(finit_module), SCMP_SYS(delete_module), SCMP_SYS(iopl), SCMP_SYS(ioperm), SCMP_SYS(reboot),
    SCMP_SYS(syslog), SCMP_SYS(modify_ldt),
    /* the file system's shape, and ways around its permissions */
    SCMP_SYS(mount), SCMP_SYS(umount2), SCMP_SYS(move_mount), SCMP_SYS(open_tree), SCMP_SYS(fsopen),
    SCMP_SYS(fsconfig), SCMP_SYS(fsmount), SCMP_SYS(fspick), SCMP_SYS(mount_setattr), SCMP_SYS(pivot_root),
    SCMP_SYS(chroot), SCMP_SYS(open_by_handle_at), SCMP_SYS(name_to_handle_at), SCMP_SYS(swapon),
    SCMP_SYS(swapoff), SCMP_SYS(acct), SCMP_SYS(quotactl),
    /* being somebody else, or somewhere else */
    SCMP_SYS(setuid), SCMP_SYS(setgid), SCMP_SYS(setreuid), SCMP_SYS(setregid), SCMP_SYS(setresuid),
    SCMP_SYS(setresgid), SCMP_SYS(setfsuid), SCMP_SYS(setfsgid), SCMP_SYS(setgroups), SCMP_SYS(capset),
    SCMP_SYS(unshare), SCMP_SYS(setns), SCMP_SYS(personality)};

typedef struct arg_rule {
    uint32_t action;
    int number;
    struct scmp_arg_cmp args[2]; /* op 0: not used */
} arg_rule;

/* clang-format off */
#define EQ(i, value)         {(i), SCMP_CMP_EQ, (scmp_datum_t)(value), 0}
#define NE(i, value)         {(i), SCMP_CMP_NE, (scmp_datum_t)(value), 0}
#define HAS(i, bits)         {(i), SCMP_CMP_MASKED_EQ, (bits), (bits)}
#define LACKS(i, bits)       {(i), SCMP_CMP_MASKED_EQ, (bits), 0}
#define ALLOW(name, ...)     {SCMP_ACT_ALLOW, SCMP_SYS(name), {__VA_ARGS__}}
#define FAIL(why, name, ...) {SCMP_ACT_ERRNO(why), SCMP_SYS(name), {__VA_ARGS__}}
#define KILL(name, ...)      {SCMP_ACT_KILL_PROCESS, SCMP_SYS(name), {__VA_ARGS__}}
/* clang-format on */

/* No memory becomes executable, whatever it was before. */
static const arg_rule memory_rules[] = {
    ALLOW(mmap, LACKS(2, PROT_EXEC)),
    FAIL(EACCES, mmap, HAS(2, PROT_EXEC)),
    ALLOW(mprotect, LACKS(2, PROT_EXEC)),
    FAIL(EACCES, mprotect, HAS(2, PROT_EXEC)),
    FAIL(EACCES, pkey_mprotect, HAS(2, PROT_EXEC)),
};

/* Threads, not processes. clone3 keeps its flags in memory, where no filter sees them: the C library falls
 * back to clone (it has signals blocked then, so this must not be a trap). */
static const arg_rule thread_rules[] = {
    ALLOW(clone, HAS(0, CLONE_THREAD)),
    KILL(clone, LACKS(0, CLONE_THREAD)),
    FAIL(ENOSYS, clone3),
};

static const arg_rule descriptor_rules[] = {
    ALLOW(sendto, EQ(4, 0)), /* to the other end, not to an address */
    ALLOW(fcntl, EQ(1, F_GETFD)),
    ALLOW(fcntl, EQ(1, F_SETFD)),
    ALLOW(fcntl, EQ(1, F_GETFL)),
    ALLOW(fcntl, EQ(1, F_SETFL)),
    ALLOW(fcntl, EQ(1, F_DUPFD_CLOEXEC)),
    ALLOW(ioctl, EQ(1, TCGETS)), /* isatty */
    ALLOW(ioctl, EQ(1, FIONREAD)),
};

/* A path that is only looked up is nothing that Landlock holds up. */
static const arg_rule folder_rules[] = {
    ALLOW(openat, LACKS(2, O_PATH)),
    FAIL(EACCES, openat, HAS(2, O_PATH)),
    ALLOW(fcntl, EQ(1, F_SETLK)),
    ALLOW(fcntl, EQ(1, F_GETLK)),
};
static const arg_rule no_folder_rules[] = {
    FAIL(EACCES, openat),
};

/* Limits are read; RLIMIT_DATA is set until the seal. */
static const arg_rule limit_rules[] = {
    ALLOW(prlimit64, EQ(0, 0), EQ(2, 0)),
    ALLOW(prlimit64, EQ(0, 0), EQ(1, RLIMIT_DATA)),
    FAIL(EPERM, prlimit64, NE(0, 0)),
    FAIL(EPERM, prlimit64, NE(1, RLIMIT_DATA), NE(2, 0)),
    FAIL(EPERM, setrlimit),
};

/* The parent-death signal is not in here: it cannot be taken away from inside. */
static const arg_rule name_rules[] = {
    ALLOW(prctl, EQ(0, PR_SET_NAME)),
    ALLOW(prctl, EQ(0, PR_GET_NAME)),
    FAIL(EINVAL, prctl, EQ(0, PR_SET_VMA)),
};

static const arg_rule seal_rules[] = {
    FAIL(EPERM, prlimit64, NE(2, 0)),
    FAIL(EPERM, setrlimit),
    FAIL(EPERM, seccomp),
};

/* All of these return 0 or a negative errno, as libseccomp does. */
static int add_names(scmp_filter_ctx ctx, uint32_t action, const int *numbers, size_t n)
{
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = numbers[i] < 0 ? 0 : seccomp_rule_add(ctx, action, numbers[i], 0);
    }
    return rc;
}

static int add_rules(scmp_filter_ctx ctx, const arg_rule *rules, size_t n)
{
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        const arg_rule *r = &rules[i];
        unsigned n_args = r->args[0].op == 0 ? 0 : r->args[1].op == 0 ? 1 : 2;
        rc = r->number < 0 ? 0 : seccomp_rule_add_array(ctx, r->action, r->number, n_args, r->args);
    }
    return rc;
}

/* Signals reach this process and no other. */
static int add_signal_rules(scmp_filter_ctx ctx)
{
    const pid_t self = getpid();
    const arg_rule rules[] = {
        ALLOW(kill, EQ(0, self)),
        ALLOW(tgkill, EQ(0, self)),
        FAIL(EPERM, kill, NE(0, self)),
        FAIL(EPERM, tgkill, NE(0, self)),
    };
    return add_rules(ctx, rules, N_OF(rules));
}

static int fill(scmp_filter_ctx ctx)
{
    int rc = add_names(ctx, SCMP_ACT_ALLOW, allowed, N_OF(allowed));
    rc = rc ? rc : add_names(ctx, SCMP_ACT_ERRNO(EACCES), refused, N_OF(refused));
    rc = rc ? rc : add_names(ctx, SCMP_ACT_KILL_PROCESS, fatal, N_OF(fatal));
    rc = rc ? rc : add_rules(ctx, memory_rules, N_OF(memory_rules));
    rc = rc ? rc : add_rules(ctx, thread_rules, N_OF(thread_rules));
    rc = rc ? rc : add_rules(ctx, descriptor_rules, N_OF(descriptor_rules));
    rc = rc ? rc : add_rules(ctx, limit_rules, N_OF(limit_rules));
    rc = rc ? rc : add_rules(ctx, name_rules, N_OF(name_rules));
    return rc ? rc : add_signal_rules(ctx);
}

static int fill_without_folder(scmp_filter_ctx ctx)
{
    int rc = fill(ctx);
    return rc ? rc : add_rules(ctx, no_folder_rules, N_OF(no_folder_rules));
}

static int fill_with_folder(scmp_filter_ctx ctx)
{
    int rc = fill(ctx);
    rc = rc ? rc : add_names(ctx, SCMP_ACT_ALLOW, folder_allowed, N_OF(folder_allowed));
    rc = rc ? rc : add_names(ctx, SCMP_ACT_ERRNO(EPERM), folder_refused, N_OF(folder_refused));
    return rc ? rc : add_rules(ctx, folder_rules, N_OF(folder_rules));
}

static int fill_seal(scmp_filter_ctx ctx)
{
    return add_rules(ctx, seal_rules, N_OF(seal_rules));
}

static status load(uint32_t otherwise, int (*fill_in)(scmp_filter_ctx), bool all_threads, err *e)
{
    scmp_filter_ctx ctx = seccomp_init(otherwise);
    int rc = ctx ? fill_in(ctx) : -ENOMEM;
    if (rc == 0) {
        rc = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH,
                              SCMP_ACT_KILL_PROCESS); /* 32-bit calls and the like */
    }
    if (rc == 0) {
        rc = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_NNP,
                              0); /* is set already, and prctl is not for everything */
    }
    if (rc == 0 && all_threads) {
        rc = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_TSYNC, 1);
    }
    if (rc == 0) {
        /* Speed, where the library and the kernel know it: a tree instead of a list; and speculation as it was
         * (kernels before 5.16 would slow the whole computation down; no secret is kept from code in here). */
        (void)seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
        (void)seccomp_attr_set(ctx, SCMP_FLTATR_CTL_SSB, 1);
        rc = seccomp_load(ctx);
    }
    if (ctx) {
        seccomp_release(ctx);
    }
    return rc == 0 ? ST_OK
                   : err_set(e, rc == -ENOMEM ? ST_NOMEM : ST_IO, NULL,
                             "cannot load the system call filter: %s", strerror(-rc));
}

bool sandbox_seccomp_available(void)
{
    /* a filter at address 0 is refused as such by a kernel that knows filters */
    return prctl(PR_SET_SECCOMP, 2 /* SECCOMP_MODE_FILTER */, NULL) != 0 && errno == EFAULT;
}

status sandbox_seccomp_enter(bool with_folder, err *e)
{
    return load(SCMP_ACT_TRAP, with_folder ? fill_with_folder : fill_without_folder, false, e);
}

status sandbox_seccomp_seal(err *e)
{
    return load(SCMP_ACT_ALLOW, fill_seal, true, e);
}
