#include "model/pack_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/folder.h"
#include "base/log.h"
#include "base/mem.h"
#include "model/pack_folder.h"

#define OPEN_TRIES 16 /* others may make, finish and remove the file meanwhile */
#define POLL_NS    (20 * 1000 * 1000)
#define READ_BYTES (4u << 20)
#define SYNC_BYTES (64u << 20) /* written before the disk is asked to have it: it works beside the packing */

typedef enum file_state { FILE_WHOLE, FILE_NEW, FILE_AWAITED } file_state;

struct pack_file {
    int fd;       /* for reading: what is mapped can never be written through */
    int write_fd; /* of a new file until it is whole, holds the lock; else -1 */
    file_state state;
    pack_key key;
    uint64_t wait_ms;
    uint64_t n_header;
    unsigned char *header; /* owned; of a whole file */
    /* while it is written */
    uint64_t at;
    uint64_t synced;
    char path[PACK_PATH_MAX];
};

static status io_fail(const pack_file *f, err *e, const char *what)
{
    int why = errno;
    bool full = why == ENOSPC || why == EDQUOT || why == EFBIG;
    return err_set(e, full ? ST_FULL : ST_IO, NULL, "cannot %s %s: %s", what, f->path, strerror(why));
}

static ssize_t read_at(int fd, void *to, size_t n, uint64_t at)
{
    size_t done = 0;
    while (done < n) {
        ssize_t got = pread(fd, (char *)to + done, n - done, (off_t)(at + done));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return -1;
        }
        if (got == 0) {
            break;
        }
        done += (size_t)got;
    }
    return (ssize_t)done;
}

static bool write_at(int fd, const void *from, size_t n, uint64_t at)
{
    for (size_t done = 0; done < n;) {
        ssize_t put = pwrite(fd, (const char *)from + done, n - done, (off_t)(at + done));
        if (put < 0 && errno != EINTR) {
            return false;
        }
        done += put > 0 ? (size_t)put : 0;
    }
    return true;
}

/* NULL if the file is whole (then f->header is there), else what it lacks; *unfinished if it has not even begun to
 * have a header. */
static const char *look(pack_file *f, bool *unfinished)
{
    unsigned char fixed[PACK_HEADER_FIXED] = {0};
    static const unsigned char zeros[PACK_HEADER_FIXED] = {0};
    struct stat sb;
    ssize_t got = read_at(f->fd, fixed, sizeof fixed, 0);
    *unfinished = got >= 0 && memcmp(fixed, zeros, sizeof fixed) == 0;
    if (got < 0 || fstat(f->fd, &sb) != 0) {
        return "it cannot be read";
    }
    uint64_t n = got == (ssize_t)sizeof fixed ? pack_header_length(fixed) : 0;
    if (n == 0 || n > (uint64_t)sb.st_size) {
        return *unfinished ? "nobody finished it" : "it does not begin like a packed file";
    }
    unsigned char *header = mem_alloc((size_t)n);
    if (!header) {
        return "out of memory for its header";
    }
    const char *fault = read_at(f->fd, header, (size_t)n, 0) == (ssize_t)n
                            ? pack_header_fault(header, n, (uint64_t)sb.st_size, &f->key)
                            : "it cannot be read";
    if (fault) {
        mem_free(header);
        return fault;
    }
    f->header = header;
    f->n_header = n;
    return NULL;
}

/* The path still means the file that is open as fd: it was not removed, and no other one put in its place. */
static bool still_there(const pack_file *f, int fd)
{
    struct stat named, opened;
    return lstat(f->path, &named) == 0 && fstat(fd, &opened) == 0 && named.st_ino == opened.st_ino &&
           named.st_dev == opened.st_dev;
}

static void close_fds(pack_file *f)
{
    if (f->fd >= 0) {
        close(f->fd);
    }
    if (f->write_fd >= 0) {
        close(f->write_fd);
    }
    f->fd = f->write_fd = -1;
}

static int open_to_read(const pack_file *f)
{
    return open(f->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
}

/* The steps of opening: *done if the file is open now, else they are to be tried again. */
static status make_new(pack_file *f, const pack_file_options *opt, bool *done, err *e)
{
    uint64_t about = opt->model_bytes + opt->model_bytes / 16 + PACK_HEADER_ALIGN;
    status st = pack_folder_make_room(opt->folder, about, opt->budget_bytes, e);
    if (st != ST_OK) {
        return st;
    }
    f->write_fd = open(f->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0400);
    if (f->write_fd < 0) {
        return errno == EEXIST ? ST_OK : io_fail(f, e, "make");
    }
    bool locked = flock(f->write_fd, LOCK_EX | LOCK_NB) == 0;
    f->fd = open_to_read(f);
    if (locked && f->fd >= 0 && still_there(f, f->fd) && still_there(f, f->write_fd)) {
        f->state = FILE_NEW;
        *done = true;
        return ST_OK;
    }
    close_fds(f); /* somebody took it for a dead one's in between */
    return ST_OK;
}

/* A file that is neither whole nor being written, and locked by us: its name becomes free. */
static status remove_bad(pack_file *f, const char *fault, err *e)
{
    status st = ST_OK;
    if (still_there(f, f->fd)) {
        log_emit(LOG_WARN, "pack", "event=rewritten reason=\"%s\" path=\"%s\"", fault, f->path);
        st = unlink(f->path) == 0 ? ST_OK : io_fail(f, e, "replace");
    }
    close_fds(f);
    return st;
}

static status look_at_old(pack_file *f, bool *done, err *e)
{
    struct stat sb;
    bool unfinished;
    f->fd = open_to_read(f);
    if (f->fd < 0) {
        return errno == ENOENT ? ST_OK : io_fail(f, e, "open");
    }
    if (fstat(f->fd, &sb) != 0 || !S_ISREG(sb.st_mode)) {
        close_fds(f);
        return err_set(e, ST_IO, NULL, "cannot use %s: it is not a regular file", f->path);
    }
    f->state = FILE_WHOLE;
    *done = true;
    if (!look(f, &unfinished)) {
        return ST_OK;
    }
    if (flock(f->fd, LOCK_EX | LOCK_NB) != 0) {
        f->state = FILE_AWAITED;
        return ST_OK;
    }
    const char *fault = look(f, &unfinished); /* it may have been finished before the lock was free */
    if (fault) {
        *done = false;
        return remove_bad(f, fault, e);
    }
    (void)flock(f->fd, LOCK_UN);
    return ST_OK;
}

static status open_some(pack_file *f, const pack_file_options *opt, err *e)
{
    bool done = false;
    status st = folder_make(opt->folder, e);
    for (int i = 0; st == ST_OK && !done && i < OPEN_TRIES; i++) {
        st = look_at_old(f, &done, e);
        if (st == ST_OK && !done && access(f->path, F_OK) != 0) {
            st = make_new(f, opt, &done, e);
        }
    }
    if (st == ST_OK && !done) {
        st = err_set(e, ST_IO, NULL, "cannot open %s: others make and remove it all the time", f->path);
    }
    return st;
}

status pack_file_open(const pack_file_options *opt, const pack_key *key, pack_file **out, err *e)
{
    pack_file *f = mem_calloc(1, sizeof *f);
    if (!f) {
        return err_set(e, ST_NOMEM, NULL, "out of memory for a packed file");
    }
    f->fd = f->write_fd = -1;
    f->key = *key;
    f->wait_ms = opt->wait_ms ? opt->wait_ms : PACK_FILE_WAIT_MS;
    status st = pack_folder_path(opt->folder, key, f->path, e);
    if (st == ST_OK) {
        st = open_some(f, opt, e);
    }
    if (st != ST_OK) {
        pack_file_close(f);
        return st;
    }
    if (f->state == FILE_WHOLE) {
        (void)futimens(f->fd, NULL); /* when it was last used; a folder that is read-only does without */
    }
    *out = f;
    return ST_OK;
}

void pack_file_close(pack_file *f)
{
    if (f) {
        close_fds(f);
        mem_free(f->header);
        mem_free(f);
    }
}

/*
 * Writing
 */
static status write_image(void *ctx, const void *data, size_t n, err *e)
{
    pack_file *f = ctx;
    if (!write_at(f->write_fd, data, n, f->at)) {
        return io_fail(f, e, "write");
    }
    f->at += n;
    if (f->at - f->synced >= SYNC_BYTES) {
        f->synced = f->at;
        return fdatasync(f->write_fd) == 0 ? ST_OK : io_fail(f, e, "write");
    }
    return ST_OK;
}

/* All the room at once, so that a full disk is known before the work. */
static status take_room(pack_file *f, uint64_t n_bytes, err *e)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && n_bytes > limit.rlim_cur) {
        errno = EFBIG; /* going over it would be a signal */
        return io_fail(f, e, "write");
    }
    if (fallocate(f->write_fd, 0, 0, (off_t)n_bytes) == 0 || errno == EOPNOTSUPP || errno == ENOSYS) {
        return ST_OK;
    }
    return io_fail(f, e, "write");
}

static status write_header(pack_file *f, const pack_plan *plan, const uint8_t digest[SHA256_BYTES], err *e)
{
    unsigned char *header = mem_alloc((size_t)f->n_header);
    if (!header) {
        return err_set(e, ST_NOMEM, NULL, "out of memory for the header of %s", f->path);
    }
    pack_header_make(plan, &f->key, digest, header);
    status st = fsync(f->write_fd) == 0 ? ST_OK : io_fail(f, e, "write");
    if (st == ST_OK && gguf_changed(plan->file)) {
        st = err_set(e, ST_MODEL_CHANGED, NULL, "the model changed while %s was written", f->path);
    }
    if (st == ST_OK && (!write_at(f->write_fd, header, (size_t)f->n_header, 0) || fsync(f->write_fd) != 0)) {
        st = io_fail(f, e, "write");
    }
    if (st != ST_OK) {
        mem_free(header);
        return st;
    }
    f->header = header;
    return ST_OK;
}

static status write_file(pack_file *f, const pack_plan *plan, pool *p, const pack_progress *progress, err *e)
{
    const pack_sink sink = {write_image, f};
    uint8_t digest[SHA256_BYTES];
    f->n_header = f->at = f->synced = pack_header_bytes(plan);
    status st = f->n_header <= PACK_HEADER_MAX
                    ? take_room(f, f->n_header + plan->image_bytes, e)
                    : err_set(e, ST_FULL, NULL, "too many matrices for %s", f->path);
    if (st == ST_OK) {
        st = pack_fill_stream(plan, p, &sink, progress, digest, e);
    }
    if (st == ST_OK) {
        st = write_header(f, plan, digest, e);
    }
    if (st != ST_OK) { /* give the room back; that it is unfinished shows anyhow */
        (void)!ftruncate(f->write_fd, 0);
    }
    f->state = st == ST_OK ? FILE_WHOLE : f->state;
    close(f->write_fd); /* the lock goes with it */
    f->write_fd = -1;
    return st;
}

/*
 * Waiting
 */
/* What it reports is how much of its patience is gone: whoever watches sees that it is not stuck. */
static status await_writer(pack_file *f, const pack_progress *progress, err *e)
{
    const clock_src *clock = clock_system();
    const struct timespec pause = {.tv_nsec = POLL_NS};
    uint64_t begun = clock_mono_ns(clock);
    bool unfinished;
    log_emit(LOG_INFO, "pack", "event=waiting reason=\"another process writes it\" path=\"%s\"", f->path);
    while (look(f, &unfinished)) {
        if (flock(f->fd, LOCK_EX | LOCK_NB) == 0) { /* it has finished just now, or never will */
            const char *fault = look(f, &unfinished);
            (void)flock(f->fd, LOCK_UN);
            if (!fault) {
                break;
            }
            return err_set(e, ST_IO, NULL, "cannot use %s: %s", f->path, fault);
        }
        double waited_ms = clock_ms_between(begun, clock_mono_ns(clock));
        if (progress->report && waited_ms < (double)f->wait_ms) {
            progress->report(progress->ctx, waited_ms / (double)f->wait_ms);
        }
        if (waited_ms > (double)f->wait_ms) {
            return err_set(e, ST_TIMEOUT, NULL,
                           "cannot use %s: another process did not finish it within %llu ms", f->path,
                           (unsigned long long)f->wait_ms);
        }
        (void)nanosleep(&pause, NULL);
    }
    f->state = FILE_WHOLE;
    return ST_OK;
}

status pack_file_complete(pack_file *f, const pack_plan *plan, pool *p, const pack_progress *progress, err *e)
{
    if (f->state == FILE_NEW) {
        return write_file(f, plan, p, progress, e);
    }
    status st = f->state == FILE_AWAITED ? await_writer(f, progress, e) : ST_OK;
    if (st != ST_OK) {
        return st;
    }
    const char *fault = pack_header_plan_fault(f->header, plan);
    return fault ? err_set(e, ST_IO, NULL, "cannot use %s: %s", f->path, fault) : ST_OK;
}

/*
 * Using
 */
status pack_file_map(const pack_file *f, const pack_plan *plan, void **image, err *e)
{
    void *map = mmap(NULL, (size_t)plan->image_bytes, PROT_READ, MAP_SHARED, f->fd, (off_t)f->n_header);
    if (map == MAP_FAILED) {
        return io_fail(f, e, "map");
    }
    *image = map;
    return ST_OK;
}

typedef struct read_job {
    const pack_file *f;
    const pack_plan *plan;
    unsigned char *image;
    atomic_bool failed; /* relaxed: pool_run's end orders it */
} read_job;

static void read_task(void *arg, size_t task, size_t thread)
{
    read_job *job = arg;
    uint64_t at = (uint64_t)task * READ_BYTES, left = job->plan->image_bytes - at;
    size_t n = left < READ_BYTES ? (size_t)left : READ_BYTES;
    (void)thread;
    if (read_at(job->f->fd, job->image + at, n, job->f->n_header + at) != (ssize_t)n) {
        atomic_store_explicit(&job->failed, true, memory_order_relaxed);
    }
}

status pack_file_read(const pack_file *f, const pack_plan *plan, pool *p, void *image, err *e)
{
    read_job job = {.f = f, .plan = plan, .image = image};
    pool_run(p, read_task, &job, (size_t)((plan->image_bytes + READ_BYTES - 1) / READ_BYTES));
    if (atomic_load_explicit(&job.failed, memory_order_relaxed)) {
        return err_set(e, ST_IO, NULL, "cannot read %s", f->path);
    }
    return ST_OK;
}

const uint8_t *pack_file_digest(const pack_file *f)
{
    return pack_header_digest(f->header);
}

const char *pack_file_path(const pack_file *f)
{
    return f->path;
}
