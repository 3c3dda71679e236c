#include "worker/bell.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

status bell_open(bell *b, err *e)
{
    b->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return b->fd >= 0 ? ST_OK : err_set(e, ST_IO, NULL, "cannot make an eventfd: %s", strerror(errno));
}

void bell_close(bell *b)
{
    if (b->fd >= 0) {
        close(b->fd);
    }
}

void bell_ring(const bell *b)
{
    uint64_t one = 1;
    ssize_t n = write(b->fd, &one, sizeof one);
    (void)n; /* fails only when it rings already */
}

void bell_wait(const bell *b, const halt *h, int timeout_ms)
{
    struct pollfd fds[2] = {{.fd = b->fd, .events = POLLIN}, {.fd = h->fd, .events = POLLIN}};
    uint64_t rings;
    int woken = poll(fds, 2, timeout_ms);
    if (woken < 0 && errno == EINTR) {
        return; /* who wakes looks at everything, and comes back */
    }
    ssize_t n = read(b->fd, &rings, sizeof rings);
    (void)n; /* nothing to read: it was the halt, or time */
}
