#include "worker/output.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#define CHUNK_BYTES OUTPUT_HIGH_BYTES       /* one write */
#define BUF_BYTES   (2 * OUTPUT_HIGH_BYTES) /* of a buffer, always */
#define KEEP_BYTES  ((size_t)1 << 20)       /* of one that is empty, at most */

struct output {
    pthread_t thread;
    bool started;
    /* borrowed */
    halt *halt;
    const bell *bell;
    status_page *page; /* NULL = none */
    /* owned */
    int wake; /* eventfd: there is something to write, or the end */
    int fd;   /* the second opening of the caller's descriptor, or that one itself */
    bool fd_is_own;
    int old_flags; /* of the caller's descriptor, -1 unless they were changed */
    bool is_socket;

    /* engine thread */
    buf staged;
    size_t frame_at;      /* in it: where the frame that is put next begins, or has begun */
    uint64_t handed_over; /* bytes */

    pthread_mutex_t
        writing;      /* held over one write, which never blocks: who asks sees what the other end may see */
    uint64_t written; /* bytes; guarded by writing */

    pthread_mutex_t mu;
    /* guarded by mu */
    buf pending; /* bytes [first, len) are not taken yet */
    size_t first;
    bool behind;  /* there was no memory to hand over what is staged: it goes when pending is empty */
    bool closing; /* the writer ends when pending is empty */

    /* writer thread */
    size_t chunk_at, chunk_len;
    char chunk[CHUNK_BYTES]; /* bytes [chunk_at, chunk_len) are not written yet */
};

/*
 * Engine thread
 */
buf *output_stage(output *o)
{
    return &o->staged;
}

bool output_check(output *o, status st)
{
    if (st == ST_OK) {
        st = buf_reserve(&o->staged, OUTPUT_RESERVE_BYTES);
    }
    if (st != ST_OK) {
        buf_truncate(&o->staged, o->frame_at);
    }
    o->frame_at = o->staged.len;
    return st == ST_OK;
}

bool output_put_last(output *o, const frame_error *f)
{
    bool said = frame_put_error(&o->staged, f) == ST_OK;
    o->frame_at = o->staged.len;
    return said;
}

static void wake_writer(const output *o)
{
    uint64_t one = 1;
    ssize_t n = write(o->wake, &one, sizeof one);
    (void)n; /* fails only when it is awake already */
}

/* What grew for one large frame is given back, but never all. */
static void empty_out(buf *b)
{
    buf_reset(b);
    if (b->cap > KEEP_BYTES) {
        buf_trim(b, BUF_BYTES);
    }
}

void output_commit(output *o)
{
    if (o->staged.len == 0) {
        return;
    }
    status st = ST_OK;
    size_t n = o->staged.len;
    pthread_mutex_lock(&o->mu);
    if (o->first == o->pending.len) { /* all is taken: what is staged moves over as it is */
        buf empty = o->pending;
        o->pending = o->staged;
        o->staged = empty;
        o->first = 0;
    } else {
        st = buf_append(&o->pending, o->staged.data, n);
    }
    o->behind = st != ST_OK;
    pthread_mutex_unlock(&o->mu);
    if (st == ST_OK) {
        o->handed_over += n;
        empty_out(&o->staged);
        o->frame_at = 0;
    }
    wake_writer(o);
}

bool output_has_room(output *o)
{
    pthread_mutex_lock(&o->mu);
    size_t n = o->pending.len - o->first;
    bool behind = o->behind;
    pthread_mutex_unlock(&o->mu);
    return !behind && n < OUTPUT_HIGH_BYTES && o->staged.len < OUTPUT_HIGH_BYTES - n;
}

uint64_t output_said(output *o)
{
    return o->handed_over + o->staged.len;
}

uint64_t output_written(output *o)
{
    pthread_mutex_lock(&o->writing);
    uint64_t n = o->written;
    pthread_mutex_unlock(&o->writing);
    return n;
}

/*
 * Writer thread
 */

/* Moves pending bytes into the empty chunk. Returns true if this made room for the engine; *closing as it is
 * now. */
static bool take_chunk(output *o, bool *closing)
{
    pthread_mutex_lock(&o->mu);
    size_t before = o->pending.len - o->first;
    size_t n = before < CHUNK_BYTES ? before : CHUNK_BYTES;
    if (n > 0) {
        memcpy(o->chunk, o->pending.data + o->first, n);
        o->first += n;
        if (o->first == o->pending.len) {
            empty_out(&o->pending);
            o->first = 0;
        } else if (o->first > o->pending.len / 2) {
            buf_consume(&o->pending, o->first);
            o->first = 0;
        }
    }
    *closing = o->closing;
    bool behind = o->behind && n == before;
    pthread_mutex_unlock(&o->mu);
    o->chunk_at = 0;
    o->chunk_len = n;
    return behind || (before >= OUTPUT_HIGH_BYTES && before - n < OUTPUT_HIGH_BYTES);
}

static bool output_lost(output *o, const char *why)
{
    log_emit(LOG_WARN, "worker", "event=stdout_gone error=\"%s\"", why);
    halt_ask(o->halt, HALT_OUTPUT_GONE);
    return false;
}

/* One write of what is left of the chunk; false when the other end is gone. */
static bool write_some(output *o)
{
    const char *p = o->chunk + o->chunk_at;
    size_t len = o->chunk_len - o->chunk_at;
    pthread_mutex_lock(&o->writing);
    ssize_t n = o->is_socket ? send(o->fd, p, len, MSG_DONTWAIT | MSG_NOSIGNAL) : write(o->fd, p, len);
    int why = errno;
    o->written += n > 0 ? (uint64_t)n : 0;
    uint64_t all = o->written;
    pthread_mutex_unlock(&o->writing);
    if (n >= 0) {
        o->chunk_at += (size_t)n;
        if (o->page) {
            status_page_set(o->page, STATUS_ROW_OUTPUT_BYTES, all);
        }
        return true;
    }
    if (why == EINTR || why == EAGAIN || why == EWOULDBLOCK) {
        return true;
    }
    return output_lost(o, strerror(why));
}

/* Waits for work, room, the end or a loss. False when the writer has to end. */
static bool wait_and_write(output *o, int timeout_ms)
{
    bool some = o->chunk_at < o->chunk_len;
    struct pollfd fds[3] = {{.fd = o->fd, .events = some ? POLLOUT : 0},
                            {.fd = o->wake, .events = POLLIN},
                            {.fd = o->halt->fd, .events = POLLIN}};
    uint64_t wakes;
    int n = poll(fds, timeout_ms < 0 ? 3 : 1, timeout_ms);
    if (n <= 0) {
        return n < 0 && errno == EINTR;
    }
    if (fds[0].revents & (POLLERR | POLLHUP | POLLNVAL)) {
        return output_lost(o, "its reader is gone");
    }
    if (fds[2].revents) {
        return false;
    }
    if (fds[1].revents) {
        ssize_t got = read(o->wake, &wakes, sizeof wakes);
        (void)got;
    }
    return !(fds[0].revents & POLLOUT) || write_some(o);
}

/* Halted: what fits now is written, so that whole frames which are there already are not lost. */
static void write_what_fits(output *o)
{
    bool closing;
    while (halt_cause(o->halt) != HALT_OUTPUT_GONE) {
        if (o->chunk_at == o->chunk_len) {
            take_chunk(o, &closing);
        }
        if (o->chunk_at == o->chunk_len || !wait_and_write(o, 0)) {
            return;
        }
    }
}

/* Whether output_close was called, or is within the grace. */
static bool closed_in_time(output *o)
{
    uint64_t until = clock_mono_ns(clock_system()) + (uint64_t)HALT_GRACE_MS * 1000000;
    for (;;) {
        struct pollfd wake = {.fd = o->wake, .events = POLLIN};
        uint64_t wakes, now = clock_mono_ns(clock_system());
        pthread_mutex_lock(&o->mu);
        bool closing = o->closing;
        pthread_mutex_unlock(&o->mu);
        if (closing || now >= until) {
            return closing;
        }
        if (poll(&wake, 1, (int)((until - now) / 1000000) + 1) > 0) {
            ssize_t got = read(o->wake, &wakes, sizeof wakes);
            (void)got;
        }
    }
}

static void *run(void *arg)
{
    output *o = arg;
    bool closing = false, going = true;
    while (going) {
        if (o->chunk_at == o->chunk_len && take_chunk(o, &closing)) {
            bell_ring(o->bell);
        }
        if (o->chunk_len == o->chunk_at && closing) {
            return NULL;
        }
        going = wait_and_write(o, -1);
    }
    write_what_fits(o);
    if (!closed_in_time(o)) {
        log_emit(LOG_WARN, "worker", "event=halt_enforced grace_ms=%d", HALT_GRACE_MS);
        halt_enforce(o->halt);
    }
    return NULL;
}

/*
 * Opening
 */

/* Makes o->fd a descriptor whose writes do not block, if fd is of a kind that can block. */
static void choose_descriptor(output *o, int fd)
{
    struct stat s;
    char path[64];
    o->fd = fd;
    o->old_flags = -1;
    if (fstat(fd, &s) != 0) {
        return; /* poll will tell */
    }
    o->is_socket = S_ISSOCK(s.st_mode);
    if (!S_ISFIFO(s.st_mode) && !S_ISCHR(s.st_mode)) {
        return; /* a file never blocks for long, and a second opening would begin at its start */
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int again = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (again >= 0) {
        o->fd = again;
        o->fd_is_own = true;
    } else if (S_ISFIFO(s.st_mode)) { /* without /proc, or not ours to open; terminals stay blocking then */
        o->old_flags = fcntl(fd, F_GETFL);
        if (o->old_flags >= 0) {
            fcntl(fd, F_SETFL, o->old_flags | O_NONBLOCK);
        }
    }
}

static void release(output *o)
{
    if (!o) {
        return;
    }
    if (o->fd_is_own) {
        close(o->fd);
    } else if (o->old_flags >= 0) {
        fcntl(o->fd, F_SETFL, o->old_flags);
    }
    if (o->wake >= 0) {
        close(o->wake);
    }
    buf_release(&o->staged);
    buf_release(&o->pending);
    pthread_mutex_destroy(&o->writing);
    pthread_mutex_destroy(&o->mu);
    mem_free(o);
}

status output_open(int fd, halt *h, const bell *b, output **out, err *e)
{
    output *o = mem_calloc(1, sizeof *o);
    if (!o) {
        return err_set(e, ST_NOMEM, NULL, "out of memory for the writer");
    }
    pthread_mutex_init(&o->mu, NULL); /* plain mutexes: cannot fail on Linux */
    pthread_mutex_init(&o->writing, NULL);
    o->halt = h;
    o->bell = b;
    o->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    choose_descriptor(o, fd);
    if (o->wake < 0 || buf_reserve(&o->staged, BUF_BYTES) != ST_OK ||
        buf_reserve(&o->pending, BUF_BYTES) != ST_OK) {
        release(o);
        return err_set(e, ST_NOMEM, NULL, "cannot make the buffers of the writer");
    }
    *out = o;
    return ST_OK;
}

status output_start(output *o, status_page *page, err *e)
{
    o->page = page;
    int rc = pthread_create(&o->thread, NULL, run, o);
    o->started = rc == 0;
    return rc == 0 ? ST_OK : err_set(e, ST_IO, NULL, "cannot start the writer thread: %s", strerror(rc));
}

void output_close(output *o)
{
    if (!o || !o->started) {
        release(o);
        return;
    }
    output_commit(o);
    while (o->staged.len > 0 && !halt_asked(o->halt)) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); /* the writer makes room */
        output_commit(o);
    }
    pthread_mutex_lock(&o->mu);
    o->closing = true;
    pthread_mutex_unlock(&o->mu);
    wake_writer(o);
    pthread_join(o->thread, NULL);
    release(o);
}
