#include "worker/sandbox_acts.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

surroundings out;

static int result_of(long rc)
{
    return rc < 0 ? errno : 0;
}

/*
 * Files
 */
static int open_read(void)
{
    return result_of(open(out.path, O_RDONLY | O_CLOEXEC));
}
static int open_write(void)
{
    return result_of(open(out.path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
}
static int open_new(void)
{
    char path[sizeof out.path + 8];
    snprintf(path, sizeof path, "%s.new", out.path);
    int fd = creat(path, 0600);
    int why = result_of(fd);
    unlink(path);
    return why;
}
static int open_below(void)
{
    return result_of(openat(out.root, "etc/passwd", O_RDONLY | O_CLOEXEC));
}
static int open_how(void)
{
    uint64_t how[3] = {O_RDONLY | O_CLOEXEC, 0, 0}; /* struct open_how */
    return result_of(syscall(SYS_openat2, AT_FDCWD, out.path, how, sizeof how));
}
static int open_folder(void)
{
    return opendir("/") ? 0 : errno;
}
static int open_proc_maps(void)
{
    return result_of(open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
}
static int open_proc_parent(void)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/environ", (int)out.parent);
    return result_of(open(path, O_RDONLY | O_CLOEXEC));
}
static int open_proc_fd(void)
{
    return result_of(open("/proc/self/fd/0", O_RDONLY | O_CLOEXEC));
}
static int do_stat(void)
{
    struct stat s;
    return result_of(stat("/etc/passwd", &s));
}
static int do_access(void)
{
    return result_of(access("/etc/passwd", R_OK));
}
static int do_readlink(void)
{
    char text[64];
    return result_of(readlink("/proc/self/exe", text, sizeof text));
}
static int do_unlink(void)
{
    return result_of(unlink(out.path));
}
static int do_rename(void)
{
    char path[sizeof out.path + 8];
    snprintf(path, sizeof path, "%s.gone", out.path);
    int why = result_of(rename(out.path, path));
    if (why == 0) {
        rename(path, out.path);
    }
    return why;
}
static int do_mkdir(void)
{
    char path[sizeof out.path + 8];
    snprintf(path, sizeof path, "%s.dir", out.path);
    int why = result_of(mkdir(path, 0700));
    if (why == 0) {
        rmdir(path);
    }
    return why;
}
static int do_chmod(void)
{
    return result_of(chmod(out.path, 0600));
}
static int do_fchmod(void)
{
    return result_of(fchmod(out.model, 0600));
}
static int do_truncate(void)
{
    return result_of(truncate(out.path, 8192));
}
static int do_chdir(void)
{
    return result_of(chdir("/"));
}
static int do_link(void)
{
    char path[sizeof out.path + 8];
    snprintf(path, sizeof path, "%s.link", out.path);
    int why = result_of(link(out.path, path));
    unlink(path);
    return why;
}
static int make_memfd(void)
{
    return result_of(memfd_create("x", MFD_CLOEXEC));
}
static int watch_files(void)
{
    return result_of(inotify_init1(IN_CLOEXEC));
}

/*
 * Programs and processes
 */
static int do_exec(void)
{
    char path[] = "/bin/true";
    char *const argv[] = {path, NULL};
    execv(path, argv);
    return errno;
}
static int do_execveat(void)
{
    char path[] = "bin/true";
    char *const argv[] = {path, NULL};
    syscall(SYS_execveat, out.root, path, argv, environ, 0);
    return errno;
}
static int do_fork(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        _exit(0);
    }
    return result_of(pid);
}
static int do_spawn(void)
{
    char path[] = "/bin/true";
    char *const argv[] = {path, NULL};
    pid_t pid;
    return posix_spawn(&pid, path, NULL, NULL, argv, environ);
}
static int clone_with_new_names(void)
{
    return result_of(syscall(SYS_clone, CLONE_NEWUSER | CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0));
}
static int do_ptrace(void)
{
    return result_of(ptrace(PTRACE_SEIZE, out.parent, NULL, NULL));
}
static int do_ptrace_me(void)
{
    return result_of(ptrace(PTRACE_TRACEME, 0, NULL, NULL));
}
static int read_parent(void)
{
    char byte;
    struct iovec to = {&byte, 1}, from = {&out, 1};
    return result_of(process_vm_readv(out.parent, &to, 1, &from, 1, 0));
}
static int write_parent(void)
{
    char byte = out.path[63];
    struct iovec from = {&byte, 1}, to = {&out.path[63], 1};
    return result_of(process_vm_writev(out.parent, &from, 1, &to, 1, 0));
}
static int open_pidfd(void)
{
    return result_of(syscall(SYS_pidfd_open, out.parent, 0));
}
static int kill_parent(void)
{
    return result_of(kill(out.parent, 0));
}
static int kill_group(void)
{
    return result_of(kill(0, 0));
}
static int kill_all(void)
{
    return result_of(kill(-1, 0));
}
static int tgkill_parent(void)
{
    return result_of(syscall(SYS_tgkill, out.parent, out.parent, 0));
}
static int queue_to_parent(void)
{
    return result_of(sigqueue(out.parent, 0, (union sigval){0}));
}
static int own_the_signals(void)
{
    return result_of(fcntl(out.pipe[0], F_SETOWN, out.parent));
}

/*
 * The network
 */
static int make_socket(void)
{
    return result_of(socket(AF_INET, SOCK_STREAM, 0));
}
static int make_pair(void)
{
    int fd[2];
    return result_of(socketpair(AF_UNIX, SOCK_STREAM, 0, fd));
}
static struct sockaddr_un abstract_name(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path + 1, sizeof a.sun_path - 1, "hearth-test-%d", (int)out.parent);
    return a;
}
static int do_connect(void)
{
    struct sockaddr_un a = abstract_name();
    return result_of(connect(out.socket, (struct sockaddr *)&a, sizeof a));
}
static int do_bind(void)
{
    struct sockaddr_un a = abstract_name();
    return result_of(bind(out.socket, (struct sockaddr *)&a, sizeof a));
}
static int do_listen(void)
{
    return result_of(listen(out.socket, 1));
}
static int do_accept(void)
{
    return result_of(accept4(out.socket, NULL, NULL, SOCK_CLOEXEC));
}
static int send_to_address(void)
{
    struct sockaddr_un a = abstract_name();
    return result_of(sendto(out.socket, "x", 1, MSG_NOSIGNAL, (struct sockaddr *)&a, sizeof a));
}

/*
 * The kernel. Arguments that do nothing where the call is let through.
 */
#define RAW(name, number, ...)                              \
    static int name(void)                                   \
    {                                                       \
        return result_of(syscall((number), ##__VA_ARGS__)); \
    }
RAW(do_bpf, SYS_bpf, 0, NULL, 0)
RAW(do_perf, SYS_perf_event_open, NULL, 0, -1, -1, 0)
RAW(do_userfaultfd, SYS_userfaultfd, 0)
RAW(do_io_uring, SYS_io_uring_setup, 0, NULL)
RAW(do_io_uring_enter, SYS_io_uring_enter, -1, 0, 0, 0, NULL, 0)
RAW(do_keyctl, SYS_keyctl, 0, -3, 0, 0, 0)
RAW(do_add_key, SYS_add_key, NULL, NULL, NULL, 0, 0)
RAW(do_open_by_handle, SYS_open_by_handle_at, -1, NULL, 0)
RAW(do_kexec, SYS_kexec_load, 0, 0, NULL, ~0UL)
RAW(do_init_module, SYS_init_module, NULL, 0, NULL)
RAW(do_finit_module, SYS_finit_module, -1, NULL, 0)
RAW(do_mount, SYS_mount, NULL, NULL, NULL, 0, NULL)
RAW(do_umount, SYS_umount2, NULL, 0)
RAW(do_chroot, SYS_chroot, "/")
RAW(do_setuid, SYS_setuid, getuid())
RAW(do_setgid, SYS_setgid, getgid())
RAW(do_setresuid, SYS_setresuid, -1, -1, -1)
RAW(do_setgroups, SYS_setgroups, -1, NULL)
RAW(do_capset, SYS_capset, NULL, NULL)
RAW(do_unshare, SYS_unshare, 0)
RAW(do_setns, SYS_setns, -1, 0)
RAW(do_personality, SYS_personality, 0xffffffff)
RAW(do_seccomp_strict, SYS_prctl, PR_SET_SECCOMP, 1, 0, 0, 0)
RAW(do_unknown, 1000)

static int keep_living(void)
{
    return result_of(prctl(PR_SET_PDEATHSIG, 0));
}
static int make_dumpable(void)
{
    return result_of(prctl(PR_SET_DUMPABLE, 1));
}
static int set_name(void)
{
    return result_of(prctl(PR_SET_NAME, "engine"));
}
static int type_into_terminal(void)
{
    return result_of(ioctl(out.pipe[0], TIOCSTI, "x"));
}

/*
 * Memory and limits
 */
static int map_memory(size_t n, int prot, int fd)
{
    int flags = MAP_PRIVATE | MAP_NORESERVE | (fd < 0 ? MAP_ANONYMOUS : 0);
    void *p = mmap(NULL, n, prot, flags, fd, 0);
    if (p == MAP_FAILED) {
        return errno;
    }
    munmap(p, n);
    return 0;
}
static int map_write_exec(void)
{
    return map_memory(4096, PROT_READ | PROT_WRITE | PROT_EXEC, -1);
}
static int map_exec(void)
{
    return map_memory(4096, PROT_READ | PROT_EXEC, -1);
}
static int map_model_exec(void)
{
    return map_memory(4096, PROT_READ | PROT_EXEC, out.model);
}
static int protect_exec(bool with_key)
{
    void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        return -1;
    }
    return result_of(with_key ? syscall(SYS_pkey_mprotect, p, 4096, PROT_READ | PROT_EXEC, -1)
                              : mprotect(p, 4096, PROT_READ | PROT_EXEC));
}
static int make_executable(void)
{
    return protect_exec(false);
}
static int make_executable_with_key(void)
{
    return protect_exec(true);
}
/* Sealed: (100 + 60) MiB x 1.25 + 2 GiB + stacks is under 4 GiB with stacks of up to 256 MiB. */
static int take_four_gib(void)
{
    return map_memory((size_t)4 << 30, PROT_READ | PROT_WRITE, -1);
}
static int take_one_gib(void)
{
    return map_memory((size_t)1 << 30, PROT_READ | PROT_WRITE, -1);
}
static int raise_data_limit(void)
{
    const struct rlimit r = {(rlim_t)8 << 30, (rlim_t)8 << 30};
    return result_of(setrlimit(RLIMIT_DATA, &r));
}
static int lower_data_limit(void)
{
    const struct rlimit r = {(rlim_t)1 << 30, (rlim_t)1 << 30};
    return result_of(setrlimit(RLIMIT_DATA, &r));
}
static int set_file_limit(void)
{
    const struct rlimit r = {16, 16};
    return result_of(setrlimit(RLIMIT_NOFILE, &r));
}
static int read_limit(void)
{
    struct rlimit r;
    return result_of(getrlimit(RLIMIT_STACK, &r));
}
static int set_parent_limit(void)
{
    struct rlimit r;
    return result_of(prlimit(out.parent, RLIMIT_CORE, NULL, &r));
}
RAW(add_filter, SYS_seccomp, 1, 0, NULL)

/*
 * What a worker does
 */
static int read_model(void)
{
    return memcmp(out.map, "GGUF", 4) == 0 && out.map[8191] == 'x' ? 0 : EIO;
}
static int use_pipe(void)
{
    char byte = 0;
    struct pollfd p = {.fd = out.pipe[0], .events = POLLIN};
    if (write(out.pipe[1], "y", 1) != 1 || poll(&p, 1, 1000) != 1 || read(out.pipe[0], &byte, 1) != 1) {
        return errno;
    }
    return byte == 'y' ? 0 : EIO;
}
static int use_socket(void)
{
    char byte = 0;
    if (send(out.pair[0], "z", 1, MSG_NOSIGNAL | MSG_DONTWAIT) != 1 || recv(out.pair[1], &byte, 1, 0) != 1) {
        return errno;
    }
    return byte == 'z' ? 0 : EIO;
}
static int use_eventfd(void)
{
    uint64_t one = 1, got = 0;
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0 || write(fd, &one, 8) != 8 || read(fd, &got, 8) != 8) {
        return errno;
    }
    return result_of(close(fd));
}
static int use_clocks(void)
{
    const struct timespec short_time = {0, 1000};
    struct timespec now;
    return clock_gettime(CLOCK_MONOTONIC, &now) != 0 || nanosleep(&short_time, NULL) != 0 ||
                   time(NULL) == (time_t)-1
               ? errno
               : 0;
}
static int use_memory(void)
{
    char *p = malloc((size_t)64 << 20); /* a mapping */
    char *q = malloc(1000);             /* the heap */
    if (!p || !q) {
        return ENOMEM;
    }
    memset(p, 1, (size_t)64 << 20);
    p = realloc(p, (size_t)96 << 20); /* mremap */
    int sum = p ? p[0] + p[(64 << 20) - 1] : 0;
    free(p);
    free(q);
    return sum == 2 ? 0 : ENOMEM;
}
static int use_random(void)
{
    uint64_t x;
    return result_of(getrandom(&x, sizeof x, 0));
}
static int look_at_descriptor(void)
{
    struct stat s;
    if (fstat(out.model, &s) != 0) {
        return errno;
    }
    return S_ISREG(s.st_mode) && s.st_size == 8192 ? 0 : EIO;
}
static int look_at_bad_descriptor(void)
{
    struct stat s;
    return result_of(fstat(-1, &s));
}
static int look_by_path_at_descriptor(void)
{
    struct stat s;
    return result_of(fstatat(out.root, "etc/passwd", &s, AT_EMPTY_PATH));
}
static void *thread_main(void *arg)
{
    int *got = arg;
    *got = open_read();
    return NULL;
}
static int use_threads(void)
{
    int got[N_THREADS];
    pthread_t t[N_THREADS];
    for (int i = 0; i < N_THREADS; i++) {
        got[i] = -1;
        int rc = pthread_create(&t[i], NULL, thread_main, &got[i]);
        if (rc != 0) {
            return rc;
        }
    }
    for (int i = 0; i < N_THREADS; i++) {
        pthread_join(t[i], NULL);
    }
    return got[0] == got[1] && got[1] == got[2] ? got[0] : EIO; /* they are inside as well: EACCES */
}
static volatile sig_atomic_t n_signals;
static void count_signal(int sig)
{
    n_signals++;
}
static int signal_self(void)
{
    struct sigaction sa = {.sa_handler = count_signal};
    if (sigaction(SIGUSR1, &sa, NULL) != 0 || raise(SIGUSR1) != 0 || kill(getpid(), SIGUSR1) != 0) {
        return errno;
    }
    return n_signals == 2 ? 0 : EIO;
}
static int do_abort(void)
{
    signal(SIGABRT, SIG_DFL); /* cmocka catches it */
    abort();
}

/*
 * The table
 */

const act forbidden_acts[] = {
    {"open a file for reading", open_read, EACCES},
    {"open a file for writing", open_write, EACCES},
    {"make a file", open_new, EACCES},
    {"open below a folder that is open", open_below, EACCES},
    {"openat2", open_how, EACCES},
    {"read a folder", open_folder, EACCES},
    {"read /proc/self/maps", open_proc_maps, EACCES},
    {"read the parent's environment", open_proc_parent, EACCES},
    {"open a descriptor again", open_proc_fd, EACCES},
    {"stat", do_stat, EACCES},
    {"fstatat with a path and AT_EMPTY_PATH", look_by_path_at_descriptor, EACCES},
    {"access", do_access, EACCES},
    {"readlink", do_readlink, EACCES},
    {"unlink", do_unlink, ENOSYS},
    {"rename", do_rename, ENOSYS},
    {"mkdir", do_mkdir, ENOSYS},
    {"link", do_link, ENOSYS},
    {"chmod", do_chmod, ENOSYS},
    {"fchmod", do_fchmod, ENOSYS},
    {"truncate", do_truncate, ENOSYS},
    {"chdir", do_chdir, ENOSYS},
    {"memfd_create", make_memfd, ENOSYS},
    {"inotify", watch_files, ENOSYS},
    {"exec", do_exec, KILLED},
    {"execveat", do_execveat, KILLED},
    {"fork", do_fork, KILLED},
    {"posix_spawn", do_spawn, KILLED},
    {"clone into new namespaces", clone_with_new_names, KILLED},
    {"ptrace the parent", do_ptrace, KILLED},
    {"ask to be traced", do_ptrace_me, KILLED},
    {"read the parent's memory", read_parent, KILLED},
    {"write the parent's memory", write_parent, KILLED},
    {"pidfd_open", open_pidfd, KILLED},
    {"kill the parent", kill_parent, EPERM},
    {"kill the own group", kill_group, EPERM},
    {"kill everybody", kill_all, EPERM},
    {"tgkill the parent", tgkill_parent, EPERM},
    {"sigqueue to the parent", queue_to_parent, ENOSYS},
    {"F_SETOWN", own_the_signals, ENOSYS},
    {"socket", make_socket, KILLED},
    {"socketpair", make_pair, KILLED},
    {"connect", do_connect, KILLED},
    {"bind", do_bind, KILLED},
    {"listen", do_listen, KILLED},
    {"accept", do_accept, KILLED},
    {"send to an address", send_to_address, ENOSYS},
    {"bpf", do_bpf, KILLED},
    {"perf_event_open", do_perf, KILLED},
    {"userfaultfd", do_userfaultfd, KILLED},
    {"io_uring_setup", do_io_uring, KILLED},
    {"io_uring_enter", do_io_uring_enter, KILLED},
    {"keyctl", do_keyctl, KILLED},
    {"add_key", do_add_key, KILLED},
    {"open_by_handle_at", do_open_by_handle, KILLED},
    {"kexec_load", do_kexec, KILLED},
    {"init_module", do_init_module, KILLED},
    {"finit_module", do_finit_module, KILLED},
    {"mount", do_mount, KILLED},
    {"umount", do_umount, KILLED},
    {"chroot", do_chroot, KILLED},
    {"setuid", do_setuid, KILLED},
    {"setgid", do_setgid, KILLED},
    {"setresuid", do_setresuid, KILLED},
    {"setgroups", do_setgroups, KILLED},
    {"capset", do_capset, KILLED},
    {"unshare", do_unshare, KILLED},
    {"setns", do_setns, KILLED},
    {"personality", do_personality, KILLED},
    {"prctl(PR_SET_SECCOMP)", do_seccomp_strict, ENOSYS},
    {"outlive the parent", keep_living, ENOSYS},
    {"become dumpable", make_dumpable, ENOSYS},
    {"TIOCSTI", type_into_terminal, ENOSYS},
    {"mmap, writable and executable", map_write_exec, EACCES},
    {"mmap, executable", map_exec, EACCES},
    {"mmap the model, executable", map_model_exec, EACCES},
    {"mprotect, executable", make_executable, EACCES},
    {"pkey_mprotect, executable", make_executable_with_key, EACCES},
    {"4 GiB", take_four_gib, ENOMEM},
    {"raise RLIMIT_DATA", raise_data_limit, EPERM},
    {"lower RLIMIT_DATA", lower_data_limit, EPERM}, /* whoever may raise it, too */
    {"set another limit", set_file_limit, EPERM},
    {"the parent's limits", set_parent_limit, EPERM},
    {"another filter", add_filter, EPERM},
    {"threads that open", use_threads, EACCES},
    {NULL, NULL, 0},
};

/* ends outside as it ends inside */
const act permitted_acts[] = {
    {"read the mapped model", read_model, 0},
    {"a pipe", use_pipe, 0},
    {"a socket that is there", use_socket, 0},
    {"an eventfd", use_eventfd, 0},
    {"clocks", use_clocks, 0},
    {"memory", use_memory, 0},
    {"1 GiB", take_one_gib, 0},
    {"getrandom", use_random, 0},
    {"fstat", look_at_descriptor, 0},
    {"fstat of nothing", look_at_bad_descriptor, EBADF},
    {"read a limit", read_limit, 0},
    {"name a thread", set_name, 0},
    {"signals to itself", signal_self, 0},
    {"abort", do_abort, -SIGABRT},
    {"a call that does not exist", do_unknown, ENOSYS},
    {NULL, NULL, 0},
};

static act_run find(const act *list, const char *what)
{
    while (list->what && strcmp(list->what, what) != 0) {
        list++;
    }
    return list->run;
}

act_run act_named(const char *what)
{
    act_run run = find(forbidden_acts, what);
    run = run ? run : find(permitted_acts, what);
    if (!run) {
        fprintf(stderr, "there is no act \"%s\"\n", what);
        abort();
    }
    return run;
}
