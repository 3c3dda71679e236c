/*
 * faults: a library for LD_PRELOAD that makes system calls fail in ways that they may. Which, and how often,
 * stands in the environment (README.md). A test tool: it is in no product.
 *
 * Only what can happen is made to happen: streams are written short, not eventfds; what may wait is
 * interrupted, not a poll that returns at once; stderr is left alone, since nobody repeats a line of a log.
 *
 * Any thread. All state is written by the constructor and constant afterwards, but for counters (relaxed: each
 * stands alone) and the places of the real calls (every thread finds the same).
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define EXPORT    __attribute__((visibility("default")))
#define SECOND_NS 1000000000

/* The file of HEARTH_FAULT_COUNTS: eight numbers of 64 bits. */
typedef enum count {
    COUNT_SHORT,
    COUNT_EINTR,
    COUNT_REFUSED,
    COUNT_NOSPC,
    COUNT_DISK, /* by the control file */
    N_COUNTS = 8
} count;

/* The file of HEARTH_FAULT_CONTROL: eight numbers of 64 bits, 0 for nothing. Others write it while we run. */
typedef enum control {
    CONTROL_WRITES,   /* errno of what changes a regular file or a folder */
    CONTROL_READS,    /* errno of reads from a file that was opened relative to a folder */
    CONTROL_CLOCK_NS, /* what is added to CLOCK_REALTIME, signed */
    CONTROL_READ_NS,  /* how long each of those reads takes, at least */
    N_CONTROLS = 8
} control;

/* Calls that give a descriptor or a process: `pass` go through, the next `fail` do not. */
typedef struct refusal {
    const char *name;
    int why;
    atomic_uint_fast64_t seen;
    uint64_t pass, fail;
} refusal;

enum { R_ACCEPT, R_OPEN, R_PIPE, R_MEMFD, R_SOCKET, R_FORK, N_REFUSALS };

static refusal refusals[N_REFUSALS] = {
    [R_ACCEPT] = {.name = "accept", .why = EMFILE}, [R_OPEN] = {.name = "open", .why = EMFILE},
    [R_PIPE] = {.name = "pipe", .why = EMFILE},     [R_MEMFD] = {.name = "memfd", .why = EMFILE},
    [R_SOCKET] = {.name = "socket", .why = EMFILE}, [R_FORK] = {.name = "fork", .why = EAGAIN},
};

static uint64_t short_max;  /* 0: whole writes */
static uint64_t eintr_each; /* 0: none */
static bool space_limited;
static atomic_int_fast64_t space_left;
static atomic_uint_fast64_t n_writes, n_waits;
static atomic_uint_fast64_t own_counts[N_COUNTS];
static atomic_uint_fast64_t *counts = own_counts;
static atomic_uint_fast64_t no_controls[N_CONTROLS];
static atomic_uint_fast64_t *controls = no_controls;
/* Of each descriptor, as far as they go: whether its file was opened relative to a folder. Kept by open and openat; what
 * else a number became in between is no regular file. */
static atomic_bool in_folder[4096];

static void note(count what)
{
    atomic_fetch_add_explicit(&counts[what], 1, memory_order_relaxed);
}

/*
 * The environment
 */
static void complain(const char *name, const char *value)
{
    fprintf(stderr, "faults: %s=%s cannot be read\n", name, value);
    _exit(99);
}

static uint64_t number_of(const char *name, uint64_t least)
{
    const char *value = getenv(name);
    char *end;
    if (!value) {
        return 0;
    }
    uint64_t n = strtoull(value, &end, 10);
    if (end == value || *end || n < least) {
        complain(name, value);
    }
    return n;
}

/* "accept:3:5,open": accept fails from the fourth call on, five times; open always. */
static void read_refusals(const char *text)
{
    char copy[256], *rest = copy;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *item = strsep(&rest, ","); item; item = strsep(&rest, ",")) {
        char *name = strsep(&item, ":"), *pass = strsep(&item, ":"), *fail = strsep(&item, ":");
        refusal *r = NULL;
        for (size_t i = 0; i < N_REFUSALS; i++) {
            r = strcmp(refusals[i].name, name) == 0 ? &refusals[i] : r;
        }
        if (!r) {
            complain("HEARTH_FAULT_REFUSE", text);
        } else {
            r->pass = pass ? strtoull(pass, NULL, 10) : 0;
            r->fail = fail ? strtoull(fail, NULL, 10) : UINT64_MAX;
        }
    }
}

static bool is_for_us(int argc, char **argv)
{
    const char *only = getenv("HEARTH_FAULT_IN");
    for (int i = 0; only && i < argc; i++) {
        if (strcmp(argv[i], only) == 0) {
            return true;
        }
    }
    return !only;
}

/* The file that the variable names, as shared memory of n bytes; NULL if it is not set. */
static void *share(const char *name, size_t n)
{
    const char *path = getenv(name);
    if (!path) {
        return NULL;
    }
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    void *p = MAP_FAILED;
    if (fd >= 0 && syscall(SYS_ftruncate, fd, n) == 0) {
        p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (p == MAP_FAILED) {
        complain(name, path);
    }
    syscall(SYS_close, fd);
    return p;
}

__attribute__((constructor)) static void begin(int argc, char **argv)
{
    const char *refuse = getenv("HEARTH_FAULT_REFUSE");
    if (!is_for_us(argc, argv)) {
        return;
    }
    void *shared_counts = share("HEARTH_FAULT_COUNTS", sizeof own_counts);
    void *shared_controls = share("HEARTH_FAULT_CONTROL", sizeof no_controls);
    counts = shared_counts ? shared_counts : own_counts;
    controls = shared_controls ? shared_controls : no_controls;
    if (refuse) {
        read_refusals(refuse);
    }
    space_limited = getenv("HEARTH_FAULT_SPACE") != NULL;
    atomic_store(&space_left, (int_fast64_t)number_of("HEARTH_FAULT_SPACE", 0));
    short_max = number_of("HEARTH_FAULT_SHORT", 1);
    eintr_each = number_of("HEARTH_FAULT_EINTR", 2);
}

/*
 * Decisions
 */
static mode_t kind_of(int fd)
{
    struct stat s; /* not fstat: in a worker's sandbox that is the slow way */
    int saved = errno;
    long rc = syscall(SYS_fstat, fd, &s);
    errno = saved;
    return rc == 0 ? s.st_mode & S_IFMT : 0;
}

static bool may_wait(int fd)
{
    mode_t kind = kind_of(fd);
    return kind == S_IFIFO || kind == S_IFSOCK || kind == S_IFCHR;
}

/* splitmix64. A plain count would beat with loops: of poll and read in turn always the read, for ever. */
static uint64_t mix(uint64_t n)
{
    uint64_t x = n * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static bool interrupt_now(void)
{
    uint64_t n = atomic_fetch_add_explicit(&n_waits, 1, memory_order_relaxed) + 1;
    if (mix(n) % eintr_each != 0) {
        return false;
    }
    note(COUNT_EINTR);
    errno = EINTR;
    return true;
}

static bool interrupted(int fd)
{
    return eintr_each != 0 && fd != STDERR_FILENO && may_wait(fd) && interrupt_now();
}

/* A byte goes or does not, and is how signal handlers speak to loops: libevent's would not send it again. */
static bool write_interrupted(int fd, size_t n)
{
    return n > 1 && interrupted(fd);
}

static bool wait_interrupted(int timeout)
{
    return eintr_each != 0 && timeout != 0 && interrupt_now();
}

static bool refused(int which)
{
    refusal *r = &refusals[which];
    if (r->fail == 0) {
        return false;
    }
    uint64_t n = atomic_fetch_add_explicit(&r->seen, 1, memory_order_relaxed);
    if (n < r->pass || n - r->pass >= r->fail) {
        return false;
    }
    note(COUNT_REFUSED);
    errno = r->why;
    return true;
}

/* What the control file says of this moment. */
static bool disk_fails(control which)
{
    uint64_t why = atomic_load_explicit(&controls[which], memory_order_relaxed);
    if (why == 0) {
        return false;
    }
    note(COUNT_DISK);
    errno = (int)why;
    return true;
}

static bool is_asked(control which)
{
    return atomic_load_explicit(&controls[which], memory_order_relaxed) != 0;
}

/* A memfd is none: it has no name. */
static bool is_on_disk(int fd)
{
    struct stat s;
    int saved = errno;
    long rc = syscall(SYS_fstat, fd, &s);
    errno = saved;
    return rc == 0 && S_ISREG(s.st_mode) && s.st_nlink > 0;
}

/* stderr may be a file, too, and nobody repeats a line of a log. */
static bool write_fails(int fd)
{
    return fd != STDERR_FILENO && is_asked(CONTROL_WRITES) && is_on_disk(fd) && disk_fails(CONTROL_WRITES);
}

static bool is_below_folder(int fd)
{
    return fd >= 0 && (size_t)fd < sizeof in_folder / sizeof *in_folder &&
           atomic_load_explicit(&in_folder[fd], memory_order_relaxed) && kind_of(fd) == S_IFREG;
}

static uint64_t monotonic_ns(void)
{
    struct timespec t = {0};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * SECOND_NS + (uint64_t)t.tv_nsec;
}

/* A slow disk, then one that fails. It turns round instead of sleeping, for which a sandbox may have no call. */
static bool read_fails(int fd)
{
    if ((!is_asked(CONTROL_READS) && !is_asked(CONTROL_READ_NS)) || !is_below_folder(fd)) {
        return false;
    }
    uint64_t begin = monotonic_ns();
    while (monotonic_ns() - begin < atomic_load_explicit(&controls[CONTROL_READ_NS], memory_order_relaxed)) {
    }
    return disk_fails(CONTROL_READS);
}

/* How many of n bytes this write shall take: 1 to n; 0 with errno if it shall fail. n > 0. */
static size_t room_for(int fd, size_t n)
{
    if (write_fails(fd)) {
        return 0;
    }
    if (fd == STDERR_FILENO || (!short_max && !space_limited)) {
        return n;
    }
    mode_t kind = kind_of(fd);
    if (space_limited && kind == S_IFREG) {
        int_fast64_t left = atomic_load_explicit(&space_left, memory_order_relaxed);
        if (left <= 0) {
            note(COUNT_NOSPC);
            errno = ENOSPC;
            return 0;
        }
        n = n < (size_t)left ? n : (size_t)left;
        atomic_fetch_sub_explicit(&space_left, (int_fast64_t)n, memory_order_relaxed);
    }
    if (short_max && (kind == S_IFIFO || kind == S_IFSOCK)) {
        size_t most = 1 + atomic_fetch_add_explicit(&n_writes, 1, memory_order_relaxed) % short_max;
        if (most < n) {
            note(COUNT_SHORT);
            return most;
        }
    }
    return n;
}

/*
 * The calls
 */
#define NEXT(name, ...)                                                    \
    ({                                                                     \
        static __typeof__(&name) real_;                                    \
        if (!real_) {                                                      \
            real_ = (__typeof__(&name))(uintptr_t)dlsym(RTLD_NEXT, #name); \
        }                                                                  \
        real_(__VA_ARGS__);                                                \
    })

EXPORT ssize_t write(int fd, const void *data, size_t n)
{
    size_t take = n;
    if (write_interrupted(fd, n) || (n > 0 && (take = room_for(fd, n)) == 0)) {
        return -1;
    }
    return NEXT(write, fd, data, take);
}

EXPORT ssize_t pwrite(int fd, const void *data, size_t n, off_t at)
{
    size_t take = n;
    if (n > 0 && (take = room_for(fd, n)) == 0) {
        return -1;
    }
    return NEXT(pwrite, fd, data, take, at);
}

EXPORT ssize_t pwrite64(int fd, const void *data, size_t n, off64_t at)
{
    size_t take = n;
    if (n > 0 && (take = room_for(fd, n)) == 0) {
        return -1;
    }
    return NEXT(pwrite64, fd, data, take, at);
}

EXPORT ssize_t send(int fd, const void *data, size_t n, int flags)
{
    size_t take = n;
    if (write_interrupted(fd, n) || (n > 0 && (take = room_for(fd, n)) == 0)) {
        return -1;
    }
    return NEXT(send, fd, data, take, flags);
}

static size_t total(const struct iovec *v, size_t n)
{
    size_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += v[i].iov_len;
    }
    return sum;
}

/* The first of v that has bytes, cut to `most`. */
static struct iovec first_of(const struct iovec *v, size_t n, size_t most)
{
    size_t i = 0;
    while (i + 1 < n && v[i].iov_len == 0) {
        i++;
    }
    struct iovec cut = v[i];
    cut.iov_len = cut.iov_len < most ? cut.iov_len : most;
    return cut;
}

EXPORT ssize_t writev(int fd, const struct iovec *v, int n)
{
    size_t all = n > 0 ? total(v, (size_t)n) : 0, take = all;
    if (write_interrupted(fd, all) || (all > 0 && (take = room_for(fd, all)) == 0)) {
        return -1;
    }
    if (take < all) {
        struct iovec cut = first_of(v, (size_t)n, take);
        return NEXT(writev, fd, &cut, 1);
    }
    return NEXT(writev, fd, v, n);
}

EXPORT ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
    size_t all = total(m->msg_iov, m->msg_iovlen), take = all;
    if (write_interrupted(fd, all) || (all > 0 && (take = room_for(fd, all)) == 0)) {
        return -1;
    }
    if (take < all) {
        struct iovec cut = first_of(m->msg_iov, m->msg_iovlen, take);
        struct msghdr shorter = *m;
        shorter.msg_iov = &cut;
        shorter.msg_iovlen = 1;
        return NEXT(sendmsg, fd, &shorter, flags);
    }
    return NEXT(sendmsg, fd, m, flags);
}

EXPORT ssize_t read(int fd, void *data, size_t n)
{
    return interrupted(fd) || read_fails(fd) ? -1 : NEXT(read, fd, data, n);
}

EXPORT ssize_t readv(int fd, const struct iovec *v, int n)
{
    return interrupted(fd) || read_fails(fd) ? -1 : NEXT(readv, fd, v, n);
}

EXPORT ssize_t pread(int fd, void *data, size_t n, off_t at)
{
    return read_fails(fd) ? -1 : NEXT(pread, fd, data, n, at);
}

EXPORT ssize_t pread64(int fd, void *data, size_t n, off64_t at)
{
    return read_fails(fd) ? -1 : NEXT(pread64, fd, data, n, at);
}

EXPORT ssize_t recv(int fd, void *data, size_t n, int flags)
{
    return interrupted(fd) ? -1 : NEXT(recv, fd, data, n, flags);
}

EXPORT int poll(struct pollfd *fds, nfds_t n, int timeout)
{
    return wait_interrupted(timeout) ? -1 : NEXT(poll, fds, n, timeout);
}

EXPORT int epoll_wait(int fd, struct epoll_event *events, int n, int timeout)
{
    return wait_interrupted(timeout) ? -1 : NEXT(epoll_wait, fd, events, n, timeout);
}

EXPORT int epoll_pwait(int fd, struct epoll_event *events, int n, int timeout, const sigset_t *mask)
{
    return wait_interrupted(timeout) ? -1 : NEXT(epoll_pwait, fd, events, n, timeout, mask);
}

EXPORT int accept(int fd, struct sockaddr *a, socklen_t *len)
{
    return refused(R_ACCEPT) || interrupted(fd) ? -1 : NEXT(accept, fd, a, len);
}

EXPORT int accept4(int fd, struct sockaddr *a, socklen_t *len, int flags)
{
    return refused(R_ACCEPT) || interrupted(fd) ? -1 : NEXT(accept4, fd, a, len, flags);
}

/* The mode is there only with O_CREAT or O_TMPFILE; reading it always is what the C library does as well. */
static mode_t mode_of(va_list ap)
{
    return (mode_t)va_arg(ap, unsigned);
}

static int remember(int fd, bool relative)
{
    if (fd >= 0 && (size_t)fd < sizeof in_folder / sizeof *in_folder) {
        atomic_store_explicit(&in_folder[fd], relative, memory_order_relaxed);
    }
    return fd;
}

static bool open_fails(int flags)
{
    return refused(R_OPEN) || ((flags & O_CREAT) != 0 && disk_fails(CONTROL_WRITES));
}

#define OPEN(name, relative, ...)                                  \
    va_list ap;                                                    \
    va_start(ap, flags);                                           \
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? mode_of(ap) : 0; \
    va_end(ap);                                                    \
    return open_fails(flags) ? -1 : remember(NEXT(name, __VA_ARGS__, flags, mode), relative)

EXPORT int open(const char *path, int flags, ...)
{
    OPEN(open, false, path);
}

EXPORT int open64(const char *path, int flags, ...)
{
    OPEN(open64, false, path);
}

EXPORT int openat(int folder, const char *path, int flags, ...)
{
    OPEN(openat, folder != AT_FDCWD, folder, path);
}

EXPORT int openat64(int folder, const char *path, int flags, ...)
{
    OPEN(openat64, folder != AT_FDCWD, folder, path);
}

EXPORT int fsync(int fd)
{
    return write_fails(fd) ? -1 : NEXT(fsync, fd);
}

EXPORT int fdatasync(int fd)
{
    return write_fails(fd) ? -1 : NEXT(fdatasync, fd);
}

EXPORT int ftruncate(int fd, off_t n)
{
    return write_fails(fd) ? -1 : NEXT(ftruncate, fd, n);
}

EXPORT int ftruncate64(int fd, off64_t n)
{
    return write_fails(fd) ? -1 : NEXT(ftruncate64, fd, n);
}

EXPORT int rename(const char *from, const char *to)
{
    return disk_fails(CONTROL_WRITES) ? -1 : NEXT(rename, from, to);
}

EXPORT int renameat(int from_folder, const char *from, int to_folder, const char *to)
{
    return disk_fails(CONTROL_WRITES) ? -1 : NEXT(renameat, from_folder, from, to_folder, to);
}

EXPORT int pipe(int fd[2])
{
    return refused(R_PIPE) ? -1 : NEXT(pipe, fd);
}

EXPORT int pipe2(int fd[2], int flags)
{
    return refused(R_PIPE) ? -1 : NEXT(pipe2, fd, flags);
}

EXPORT int memfd_create(const char *name, unsigned flags)
{
    return refused(R_MEMFD) ? -1 : NEXT(memfd_create, name, flags);
}

EXPORT int socket(int domain, int type, int protocol)
{
    return refused(R_SOCKET) ? -1 : NEXT(socket, domain, type, protocol);
}

EXPORT pid_t fork(void)
{
    return refused(R_FORK) ? -1 : NEXT(fork);
}

/*
 * The clock
 */
static bool is_wall(clockid_t clock)
{
    return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
}

/* What the clock on the wall shall show now, from what it shows. */
static void jump(struct timespec *t)
{
    int64_t by = (int64_t)atomic_load_explicit(&controls[CONTROL_CLOCK_NS], memory_order_relaxed);
    int64_t ns = t->tv_nsec + by % SECOND_NS;
    t->tv_sec += by / SECOND_NS + (ns >= SECOND_NS) - (ns < 0);
    t->tv_nsec = ns - SECOND_NS * ((ns >= SECOND_NS) - (ns < 0));
}

EXPORT int clock_gettime(clockid_t clock, struct timespec *t)
{
    int rc = NEXT(clock_gettime, clock, t);
    if (rc == 0 && is_wall(clock) && is_asked(CONTROL_CLOCK_NS)) {
        jump(t);
    }
    return rc;
}

EXPORT int gettimeofday(struct timeval *restrict t, void *restrict zone)
{
    struct timespec now;
    if (zone || !is_asked(CONTROL_CLOCK_NS)) {
        return NEXT(gettimeofday, t, zone);
    }
    clock_gettime(CLOCK_REALTIME, &now);
    t->tv_sec = now.tv_sec;
    t->tv_usec = now.tv_nsec / 1000;
    return 0;
}

EXPORT time_t time(time_t *out)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) {
        *out = now.tv_sec;
    }
    return now.tv_sec;
}
