#include "worker/control.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_BYTES ((size_t)4096)

/* The number that text spells, or -1: all digits, and an int. */
static int number_of(const char *text)
{
    int64_t n = 0;
    if (*text == '\0') {
        return -1;
    }
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9') {
            return -1;
        }
        n = n * 10 + (*text - '0');
        if (n > INT_MAX) {
            return -1;
        }
    }
    return (int)n;
}

static bool is_readable_fifo(int fd)
{
    struct stat s;
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && (flags & O_ACCMODE) != O_WRONLY && fstat(fd, &s) == 0 && S_ISFIFO(s.st_mode);
}

static bool set_modes(int fd)
{
    int flags = fcntl(fd, F_GETFL), fd_flags = fcntl(fd, F_GETFD);
    return flags >= 0 && fd_flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0 &&
           fcntl(fd, F_SETFD, fd_flags | FD_CLOEXEC) == 0;
}

/* At most n bytes: those read, 0 at the end of the pipe, -1 when nothing is there now. */
static ssize_t read_bytes(const control *c, unsigned char *chunk, size_t n)
{
    ssize_t got;
    do {
        got = read(c->fd, chunk, n);
    } while (got < 0 && errno == EINTR);
    return got < 0 && errno != EAGAIN && errno != EWOULDBLOCK ? 0 : got;
}

static void leave_fd(control *c)
{
    close(c->fd);
    c->fd = -1;
}

/* The frames that are in the pipe now, and not those that a busy writer adds meanwhile. */
static void read_first(control *c)
{
    unsigned char chunk[READ_BYTES];
    int n_there = 0;
    bool first = true;
    if (ioctl(c->fd, FIONREAD, &n_there) != 0 || n_there < 1) {
        n_there = 1;
    }
    for (size_t left = (size_t)n_there; left > 0 && c->fd >= 0; first = false) {
        ssize_t n = read_bytes(c, chunk, left < sizeof chunk ? left : sizeof chunk);
        if (n < 0) {
            return;
        }
        if (n == 0) {
            c->supported = !first;
            leave_fd(c);
            return;
        }
        cancel_gate_bytes(&c->gate, chunk, (size_t)n, 0);
        left -= (size_t)n;
    }
}

void control_open(control *c, const char *text)
{
    memset(c, 0, sizeof *c);
    pthread_mutex_init(&c->mu, NULL); /* a plain mutex: cannot fail on Linux */
    c->fd = -1;
    int fd = text ? number_of(text) : -1;
    if (fd <= STDERR_FILENO) {
        return;
    }
    if (!is_readable_fifo(fd) || !set_modes(fd)) {
        close(fd);
        return;
    }
    c->fd = fd;
    c->supported = true;
    read_first(c);
}

void control_close(control *c)
{
    if (c->fd >= 0) {
        leave_fd(c);
    }
    pthread_mutex_destroy(&c->mu);
}

int control_fd(const control *c)
{
    return c->fd;
}

bool control_read(control *c, uint64_t written)
{
    unsigned char chunk[READ_BYTES];
    ssize_t n = read_bytes(c, chunk, sizeof chunk);
    if (n == 0) {
        leave_fd(c); /* a half frame is dropped with it */
        return false;
    }
    if (n < 0) {
        return false;
    }
    pthread_mutex_lock(&c->mu);
    bool cancelled = cancel_gate_bytes(&c->gate, chunk, (size_t)n, written);
    if (cancelled) {
        atomic_store_explicit(&c->cancel, true, memory_order_release);
    }
    pthread_mutex_unlock(&c->mu);
    return cancelled;
}

bool control_allows(control *c, uint64_t id)
{
    pthread_mutex_lock(&c->mu);
    bool allowed = cancel_gate_allows(&c->gate, id);
    pthread_mutex_unlock(&c->mu);
    return allowed;
}

void control_begin(control *c, uint64_t id)
{
    pthread_mutex_lock(&c->mu);
    bool named = cancel_gate_begin(&c->gate, id);
    atomic_store_explicit(&c->cancel, named, memory_order_release);
    pthread_mutex_unlock(&c->mu);
}

void control_spend(control *c, uint64_t id)
{
    pthread_mutex_lock(&c->mu);
    cancel_gate_spend(&c->gate, id);
    pthread_mutex_unlock(&c->mu);
}

void control_seal(control *c, uint64_t end_at)
{
    pthread_mutex_lock(&c->mu);
    cancel_gate_seal(&c->gate, end_at);
    pthread_mutex_unlock(&c->mu);
}
