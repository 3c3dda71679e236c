#include "serve/journal_disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

#define NAME_BYTES 24

typedef struct op_list {
    journal_op *first, **end;
} op_list;

struct journal_disk {
    int dir_fd, lock_fd, wake_fd; /* owned; -1 = none */
    struct event *wake;           /* owned */
    pthread_t thread;
    bool has_thread;

    pthread_mutex_t mu;
    pthread_cond_t more;
    /* guarded by mu */
    op_list waiting, ended;
    bool stop;

    /* the thread's */
    int fd;           /* of the segment that is written; -1 = none */
    uint64_t segment; /* its number, also when it is broken; 0 = none yet */
    uint64_t length;  /* of it */
    bool unsynced;
    bool is_broken; /* for the reason `why` */
    err why;
};

static void list_init(op_list *l)
{
    l->first = NULL;
    l->end = &l->first;
}

static void list_add(op_list *l, journal_op *op)
{
    op->next = NULL;
    *l->end = op;
    l->end = &op->next;
}

static void op_free(journal_op *op)
{
    buf_release(&op->bytes);
    mem_free(op);
}

static void name_of(uint64_t segment, char name[NAME_BYTES])
{
    snprintf(name, NAME_BYTES, "%016" PRIx64 ".seg", segment);
}

/* 0: not the name of one. */
static uint64_t number_of(const char *name)
{
    char *end;
    if (strlen(name) != 20 || strspn(name, "0123456789abcdef") != 16) {
        return 0;
    }
    uint64_t n = strtoull(name, &end, 16);
    return strcmp(end, ".seg") == 0 ? n : 0;
}

/*
 * Files: whole reads and writes.
 */
static status write_all(int fd, const char *data, size_t n, uint64_t at, err *e)
{
    while (n > 0) {
        ssize_t got = pwrite(fd, data, n, (off_t)at);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return err_set(e, ST_IO, NULL, "cannot write to the journal: %s",
                           got < 0 ? strerror(errno) : "nothing was taken");
        }
        data += got;
        n -= (size_t)got;
        at += (uint64_t)got;
    }
    return ST_OK;
}

/* ST_NOT_FOUND: it ends before. */
static status read_all(int fd, void *data, size_t n, uint64_t at, err *e)
{
    char *to = data;
    while (n > 0) {
        ssize_t got = pread(fd, to, n, (off_t)at);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return err_set(e, ST_IO, NULL, "cannot read the journal: %s", strerror(errno));
        }
        if (got == 0) {
            return err_set(e, ST_NOT_FOUND, NULL, "the journal's file ends too early");
        }
        to += got;
        n -= (size_t)got;
        at += (uint64_t)got;
    }
    return ST_OK;
}

static status read_record(journal_disk *d, const journal_place *at, buf *out, err *e)
{
    char name[NAME_BYTES];
    if (buf_reserve(out, at->n_bytes) != ST_OK) {
        return err_set(e, ST_NOMEM, NULL, "out of memory");
    }
    name_of(at->segment, name);
    int fd = openat(d->dir_fd, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return err_set(e, errno == ENOENT ? ST_NOT_FOUND : ST_IO, NULL, "cannot open the journal's %s: %s",
                       name, strerror(errno));
    }
    status st = read_all(fd, out->data, at->n_bytes, at->offset, e);
    close(fd);
    if (st == ST_OK) {
        out->len = at->n_bytes;
        out->data[out->len] = '\0';
    }
    return st;
}

/*
 * The thread.
 */
/* Nothing more is added; what was may still be synced. */
static void give_up(journal_disk *d, const err *why)
{
    d->is_broken = true;
    d->why = *why;
}

static status sync_segment(journal_disk *d, err *e)
{
    bool failed = d->unsynced && fdatasync(d->fd) != 0;
    d->unsynced = false; /* a second try would succeed and say nothing of what the first has lost */
    if (failed) {
        err_set(e, ST_IO, NULL, "cannot sync the journal: %s", strerror(errno));
        give_up(d, e);
    }
    return failed ? ST_IO : ST_OK;
}

/* The segment before it is settled: see take_turn. */
static status make_segment(journal_disk *d, uint64_t number, err *e)
{
    char name[NAME_BYTES];
    uint8_t head[JOURNAL_SEGMENT_HEAD];
    if (d->fd >= 0) {
        close(d->fd);
    }
    d->is_broken = d->unsynced = false;
    d->segment = number;
    name_of(number, name);
    d->fd = openat(d->dir_fd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (d->fd < 0) {
        return err_set(e, ST_IO, NULL, "cannot make the journal's %s: %s", name, strerror(errno));
    }
    journal_segment_put(number, head);
    status st = write_all(d->fd, (const char *)head, sizeof head, 0, e);
    if (st == ST_OK && fsync(d->dir_fd) != 0) { /* else the name may be lost with the power */
        st = err_set(e, ST_IO, NULL, "cannot sync the journal's folder: %s", strerror(errno));
    }
    d->length = sizeof head;
    d->unsynced = true;
    return st;
}

/* Adds the record to the segment that it names. */
static status append(journal_disk *d, const journal_place *at, const buf *bytes, err *e)
{
    status st = at->segment == d->segment ? ST_OK : make_segment(d, at->segment, e);
    if (st == ST_OK && d->is_broken) {
        *e = d->why;
        return d->why.code;
    }
    if (st == ST_OK && (at->offset != d->length || bytes->len != at->n_bytes)) {
        st = err_set(e, ST_INTERNAL, NULL, "the journal's segment is %" PRIu64 " bytes long, not %" PRIu64,
                     d->length, at->offset);
    }
    st = st == ST_OK ? write_all(d->fd, bytes->data, bytes->len, at->offset, e) : st;
    if (st != ST_OK) {
        give_up(d, e);
        return st;
    }
    d->length += bytes->len;
    d->unsynced = true;
    return ST_OK;
}

/* What takes the place of a record that cannot be copied: one that says nothing. */
static status put_filler(size_t n_bytes, buf *out, err *e)
{
    size_t n = n_bytes - journal_record_size(0, 0, 0);
    char *zeros = mem_calloc(1, n + 1);
    const journal_record r = {.kind = JOURNAL_DROPPED, .text = zeros, .text_len = n};
    buf_reset(out);
    status st =
        zeros && journal_record_put(out, &r) == ST_OK ? ST_OK : err_set(e, ST_NOMEM, NULL, "out of memory");
    mem_free(zeros);
    return st;
}

/* ST_BAD_FORMAT: it is not there any more. ST_CAPACITY: it cannot be read now. In both cases the place is taken. */
static status copy(journal_disk *d, journal_op *op)
{
    err e;
    status got = read_record(d, &op->at, &op->bytes, &op->why), st = ST_OK;
    if (got != ST_OK) {
        st = put_filler(op->at.n_bytes, &op->bytes, &e);
    }
    st = st == ST_OK ? append(d, &op->to, &op->bytes, &e) : st;
    buf_release(&op->bytes);
    if (st != ST_OK) {
        op->why = e;
        give_up(d, &e);
        return ST_IO;
    }
    return got == ST_OK ? ST_OK : got == ST_NOT_FOUND ? ST_BAD_FORMAT : ST_CAPACITY;
}

static status remove_segment(journal_disk *d, uint64_t number, err *e)
{
    char name[NAME_BYTES];
    name_of(number, name);
    if (unlinkat(d->dir_fd, name, 0) != 0 && errno != ENOENT) {
        return err_set(e, ST_IO, NULL, "cannot remove the journal's %s: %s", name, strerror(errno));
    }
    return ST_OK;
}

static status carry_out(journal_disk *d, journal_op *op)
{
    status st = ST_OK;
    switch (op->kind) {
    case JOURNAL_WRITE:
        st = append(d, &op->at, &op->bytes, &op->why);
        buf_release(&op->bytes);
        return st;
    case JOURNAL_READ:
        return read_record(d, &op->at, &op->bytes, &op->why);
    case JOURNAL_COPY:
        return copy(d, op);
    case JOURNAL_REMOVE:
        return remove_segment(d, op->at.segment, &op->why);
    }
    return st;
}

/* Where an op adds something; 0 = nowhere. */
static uint64_t adds_to(const journal_op *op)
{
    return op->kind == JOURNAL_WRITE ? op->at.segment : op->kind == JOURNAL_COPY ? op->to.segment : 0;
}

/* One sync for all of [first, end) that want one and were written to the segment. If that fails they have failed. */
static void settle(journal_disk *d, journal_op *first, const journal_op *end)
{
    bool wanted = false;
    err e;
    for (const journal_op *op = first; op != end; op = op->next) {
        wanted = wanted || (op->sync && op->st == ST_OK && adds_to(op) == d->segment);
    }
    if (!wanted || sync_segment(d, &e) == ST_OK) {
        return;
    }
    for (journal_op *op = first; op != end; op = op->next) {
        if (op->st == ST_OK && op->sync && adds_to(op) == d->segment) {
            op->st = e.code;
            op->why = e;
        }
    }
}

static void take_turn(journal_disk *d, journal_op *first)
{
    for (journal_op *op = first; op; op = op->next) {
        uint64_t segment = adds_to(op);
        if (segment > 0 && segment != d->segment) {
            settle(d, first, op);
        }
        op->st = carry_out(d, op);
    }
    settle(d, first, NULL);
}

static void wake_loop(const journal_disk *d)
{
    const uint64_t one = 1;
    ssize_t done; /* a full counter wakes as well */
    do {
        done = write(d->wake_fd, &one, sizeof one);
    } while (done < 0 && errno == EINTR);
}

static void *run(void *ctx)
{
    journal_disk *d = ctx;
    pthread_mutex_lock(&d->mu);
    while (d->waiting.first || !d->stop) {
        if (!d->waiting.first) {
            pthread_cond_wait(&d->more, &d->mu);
            continue;
        }
        op_list turn = d->waiting;
        list_init(&d->waiting);
        pthread_mutex_unlock(&d->mu);
        take_turn(d, turn.first);
        pthread_mutex_lock(&d->mu);
        *d->ended.end = turn.first;
        d->ended.end = turn.end;
        pthread_mutex_unlock(&d->mu);
        wake_loop(d);
        pthread_mutex_lock(&d->mu);
    }
    pthread_mutex_unlock(&d->mu);
    err e;
    sync_segment(d, &e); /* of records that nobody waited for */
    return NULL;
}

/*
 * The loop.
 */
static void on_wake(evutil_socket_t fd, short what, void *ctx)
{
    journal_disk *d = ctx;
    uint64_t n;
    ssize_t got = read(fd, &n, sizeof n);
    (void)got; /* nothing there: somebody else's wake was taken with ours */
    pthread_mutex_lock(&d->mu);
    journal_op *op = d->ended.first;
    list_init(&d->ended);
    pthread_mutex_unlock(&d->mu);
    while (op) {
        journal_op *next = op->next;
        if (op->done) {
            op->done(op);
        }
        op_free(op);
        op = next;
    }
}

void journal_disk_submit(journal_disk *d, journal_op *op)
{
    pthread_mutex_lock(&d->mu);
    list_add(&d->waiting, op);
    pthread_cond_signal(&d->more);
    pthread_mutex_unlock(&d->mu);
}

/* Signals are the loop's: a thread that got one would end nobody's wait. */
static int start_thread(journal_disk *d)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&d->thread, NULL, run, d);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

status journal_disk_start(journal_disk *d, uint64_t last, uint64_t n_bytes, err *e)
{
    char name[NAME_BYTES];
    if (last > 0) {
        name_of(last, name);
        d->fd = openat(d->dir_fd, name, O_RDWR | O_CLOEXEC);
        if (d->fd < 0) {
            return err_set(e, ST_IO, NULL, "cannot open the journal's %s: %s", name, strerror(errno));
        }
        d->segment = last;
        d->length = n_bytes;
    }
    int rc = start_thread(d);
    if (rc != 0) {
        return err_set(e, ST_IO, NULL, "cannot start the journal's thread: %s", strerror(rc));
    }
    d->has_thread = true;
    return ST_OK;
}

/*
 * Start: the folder, and what stands in it.
 */
static status open_folder(journal_disk *d, const char *dir, err *e)
{
    if (mkdir(dir, 0700) != 0 && errno != EEXIST) {
        return err_set(e, ST_IO, NULL, "cannot make the journal's folder %.200s: %s", dir, strerror(errno));
    }
    d->dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d->dir_fd < 0) {
        return err_set(e, ST_IO, NULL, "cannot open the journal's folder %.200s: %s", dir, strerror(errno));
    }
    d->lock_fd = openat(d->dir_fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (d->lock_fd < 0) {
        return err_set(e, ST_IO, NULL, "cannot write in the journal's folder %.200s: %s", dir,
                       strerror(errno));
    }
    if (flock(d->lock_fd, LOCK_EX | LOCK_NB) != 0) {
        return errno == EWOULDBLOCK
                   ? err_set(e, ST_IO, NULL, "another daemon uses the journal in %.200s", dir)
                   : err_set(e, ST_IO, NULL, "cannot lock the journal in %.200s: %s", dir, strerror(errno));
    }
    return ST_OK;
}

status journal_disk_open(struct event_base *base, const char *dir, journal_disk **out, err *e)
{
    journal_disk *d = mem_calloc(1, sizeof *d);
    if (!d) {
        return err_set(e, ST_NOMEM, NULL, "out of memory");
    }
    d->dir_fd = d->lock_fd = d->fd = -1;
    list_init(&d->waiting);
    list_init(&d->ended);
    pthread_mutex_init(&d->mu, NULL);
    pthread_cond_init(&d->more, NULL);
    d->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (d->wake_fd >= 0) {
        d->wake = event_new(base, d->wake_fd, EV_READ | EV_PERSIST, on_wake, d);
    }
    status st = d->wake && event_add(d->wake, NULL) == 0
                    ? open_folder(d, dir, e)
                    : err_set(e, ST_IO, NULL, "cannot make an eventfd for the journal");
    if (st != ST_OK) {
        journal_disk_close(d);
        return st;
    }
    *out = d;
    return ST_OK;
}

/* Its good beginning. body is memory to read into. */
static status scan_segment(int fd, uint64_t number, buf *body, journal_scan_fn record, void *ctx,
                           uint64_t *end, err *e)
{
    uint8_t head[JOURNAL_RECORD_HEAD];
    size_t n_body;
    *end = 0;
    status st = read_all(fd, head, JOURNAL_SEGMENT_HEAD, 0, e);
    if (st == ST_OK && journal_segment_is_foreign(head)) {
        return err_set(e, ST_BAD_FORMAT, NULL, "the journal was written by another version of hearth");
    }
    if (st != ST_OK || !journal_segment_check(number, head)) {
        return st == ST_NOT_FOUND ? ST_OK : st;
    }
    *end = JOURNAL_SEGMENT_HEAD;
    while ((st = read_all(fd, head, sizeof head, *end, e)) == ST_OK && journal_head_get(head, &n_body)) {
        journal_record r;
        journal_place at = {number, *end, sizeof head + n_body};
        buf_reset(body);
        if (buf_reserve(body, n_body) != ST_OK) {
            return err_set(e, ST_NOMEM, NULL, "out of memory");
        }
        st = read_all(fd, body->data, n_body, *end + sizeof head, e);
        if (st != ST_OK) {
            break;
        }
        *end += at.n_bytes;
        if (!record(ctx, &at, journal_record_get(head, body->data, n_body, &r) ? &r : NULL)) {
            return err_set(e, ST_NOMEM, NULL, "out of memory");
        }
    }
    return st == ST_NOT_FOUND ? ST_OK : st;
}

static status scan_one(journal_disk *d, uint64_t number, bool is_last, buf *body, journal_scan_fn record,
                       journal_segment_fn segment, void *ctx, err *e)
{
    char name[NAME_BYTES];
    struct stat s;
    journal_segment_info info = {.number = number};
    name_of(number, name);
    int fd = openat(d->dir_fd, name, O_RDWR | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &s) != 0) {
        status st = err_set(e, ST_IO, NULL, "cannot open the journal's %s: %s", name, strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return st;
    }
    status st = scan_segment(fd, number, body, record, ctx, &info.n_bytes, e);
    if (st == ST_OK) {
        info.n_lost = (uint64_t)s.st_size - info.n_bytes;
        if (is_last && info.n_lost > 0 && info.n_bytes >= JOURNAL_SEGMENT_HEAD &&
            (ftruncate(fd, (off_t)info.n_bytes) != 0 || fdatasync(fd) != 0)) {
            st = err_set(e, ST_IO, NULL, "cannot cut the journal's %s: %s", name, strerror(errno));
        }
    }
    close(fd);
    if (st == ST_OK) {
        segment(ctx, &info);
    }
    return st;
}

typedef struct numbers {
    uint64_t *at; /* owned */
    size_t n, cap;
} numbers;

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static status add_number(numbers *list, uint64_t n, err *e)
{
    if (list->n == list->cap) {
        size_t cap = list->cap ? 2 * list->cap : 16;
        uint64_t *more = mem_realloc(list->at, cap * sizeof *more);
        if (!more) {
            return err_set(e, ST_NOMEM, NULL, "out of memory");
        }
        list->at = more;
        list->cap = cap;
    }
    list->at[list->n++] = n;
    return ST_OK;
}

static status list_segments(journal_disk *d, numbers *list, err *e)
{
    status st = ST_OK;
    int fd = openat(d->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir) {
        if (fd >= 0) {
            close(fd);
        }
        return err_set(e, ST_IO, NULL, "cannot read the journal's folder: %s", strerror(errno));
    }
    for (struct dirent *entry; st == ST_OK && (entry = readdir(dir));) {
        uint64_t n = number_of(entry->d_name);
        st = n > 0 ? add_number(list, n, e) : ST_OK;
    }
    closedir(dir);
    if (list->n > 1) {
        qsort(list->at, list->n, sizeof *list->at, by_number);
    }
    return st;
}

status journal_disk_scan(journal_disk *d, journal_scan_fn record, journal_segment_fn segment, void *ctx,
                         err *e)
{
    numbers list = {0};
    buf body = {0};
    status st = list_segments(d, &list, e);
    for (size_t i = 0; st == ST_OK && i < list.n; i++) {
        st = scan_one(d, list.at[i], i + 1 == list.n, &body, record, segment, ctx, e);
    }
    buf_release(&body);
    mem_free(list.at);
    return st;
}

static void free_list(journal_op *op)
{
    while (op) {
        journal_op *next = op->next;
        op_free(op);
        op = next;
    }
}

void journal_disk_close(journal_disk *d)
{
    if (!d) {
        return;
    }
    if (d->has_thread) {
        pthread_mutex_lock(&d->mu);
        d->stop = true;
        pthread_cond_signal(&d->more);
        pthread_mutex_unlock(&d->mu);
        pthread_join(d->thread, NULL);
    }
    free_list(d->waiting.first);
    free_list(d->ended.first);
    if (d->wake) {
        event_free(d->wake);
    }
    int fds[] = {d->fd, d->wake_fd, d->dir_fd, d->lock_fd};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
    pthread_cond_destroy(&d->more);
    pthread_mutex_destroy(&d->mu);
    mem_free(d);
}
