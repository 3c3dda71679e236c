#include "worker/saved.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/le.h"
#include "base/log.h"

#define ENDING       ".session"
#define VERSION      1u
#define HEADER_BYTES ((size_t)64)
#define TYPE_BYTES   8
#define AT_VERSION   8
#define AT_TYPE      16
#define AT_IDENTITY  24
#define AT_COUNT     56
#define SUM_BYTES    sizeof(uint64_t)

static const char magic[8] = {'h', 'e', 'a', 'r', 't', 'h', 'i', 'd'};

typedef char file_name[SAVED_NAME_MAX + sizeof ENDING];

static void name_file(const char *name, file_name out)
{
    snprintf(out, sizeof(file_name), "%.*s" ENDING, SAVED_NAME_MAX, name);
}

status saved_open(saved *s, const char *folder, err *e)
{
    s->folder = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return s->folder >= 0 ? ST_OK
                          : err_set(e, ST_IO, NULL, "cannot open the folder %s: %s", folder, strerror(errno));
}

void saved_close(saved *s)
{
    if (s->folder >= 0) {
        close(s->folder);
        s->folder = -1;
    }
}

/* Of an errno, for whoever asked. */
static status failed(err *e, const char *what, int why)
{
    switch (why) {
    case ENOENT:
        return err_set(e, ST_UNKNOWN_ID, "name", "nothing is saved under this name");
    case EROFS:
    case EACCES:
    case EPERM:
        return err_set(e, ST_UNSUPPORTED, "action", "%s: the store's folder cannot be written: %s", what,
                       strerror(why));
    default:
        return err_set(e, ST_CAPACITY, NULL, "%s: %s", what, strerror(why));
    }
}

/*
 * Files
 */
static void put_type(const saved *s, void *out)
{
    memset(out, 0, TYPE_BYTES);
    memcpy(out, s->kv_type, strnlen(s->kv_type, TYPE_BYTES));
}

static status make_bytes(const saved *s, const int32_t *ids, size_t n, buf *out)
{
    uint8_t header[HEADER_BYTES] = {0};
    const uint32_t version = VERSION;
    const uint64_t count = n;
    memcpy(header, magic, sizeof magic); /* base/le.h: this machine is little-endian */
    memcpy(header + AT_VERSION, &version, sizeof version);
    put_type(s, header + AT_TYPE);
    memcpy(header + AT_IDENTITY, s->identity, sizeof s->identity);
    memcpy(header + AT_COUNT, &count, sizeof count);
    status st = buf_append(out, header, sizeof header);
    st = st == ST_OK ? buf_append(out, ids, n * sizeof *ids) : st;
    const uint64_t sum = st == ST_OK ? hash64(out->data, out->len) : 0;
    return st == ST_OK ? buf_append(out, &sum, sizeof sum) : st;
}

/* 0 or an errno. */
static int write_all(int fd, const buf *bytes)
{
    size_t at = 0;
    while (at < bytes->len) {
        ssize_t n = write(fd, bytes->data + at, bytes->len - at);
        if (n < 0 && errno != EINTR) {
            return errno;
        }
        at += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* How many sessions are saved, this one aside. */
static size_t count_others(const saved *s, const char *file)
{
    size_t count = 0, n_ending = sizeof ENDING - 1;
    int fd = openat(s->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d) {
        if (fd >= 0) {
            close(fd);
        }
        return 0;
    }
    for (const struct dirent *x = readdir(d); x; x = readdir(d)) {
        size_t len = strlen(x->d_name);
        count +=
            len > n_ending && strcmp(x->d_name + len - n_ending, ENDING) == 0 && strcmp(x->d_name, file) != 0;
    }
    closedir(d);
    return count;
}

/* Into a new file and that into its place; 0 or an errno, and then nothing has changed. */
static int place(const saved *s, const char *file, const buf *bytes)
{
    char temp[32];
    uint64_t number;
    if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number) {
        return errno;
    }
    snprintf(temp, sizeof temp, "new-%016llx.tmp", (unsigned long long)number);
    int fd = openat(s->folder, temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return errno;
    }
    int why = flock(fd, LOCK_EX | LOCK_NB) == 0 ? write_all(fd, bytes) : errno;
    if (why == 0 && renameat(s->folder, temp, s->folder, file) != 0) {
        why = errno;
    }
    if (why != 0) {
        unlinkat(s->folder, temp, 0);
    }
    close(fd);
    return why;
}

status saved_put(const saved *s, const char *name, const int32_t *ids, size_t n, err *e)
{
    file_name file;
    buf bytes = {0};
    name_file(name, file);
    if (count_others(s, file) >= SAVED_MAX) {
        return err_set(e, ST_CAPACITY, NULL, "%d sessions are saved already: that is as many as may be",
                       SAVED_MAX);
    }
    status st = make_bytes(s, ids, n, &bytes);
    if (st == ST_OK) {
        int why = place(s, file, &bytes);
        st = why == 0 ? ST_OK : failed(e, "the session cannot be saved", why == ENOENT ? EAGAIN : why);
    } else {
        err_set(e, st, NULL, "out of memory for a session to be saved");
    }
    buf_release(&bytes);
    return st;
}

/* All bytes of a file that is no longer than one of max_ids; 0 or an errno (EFBIG). */
static int read_all(const saved *s, int fd, buf *out)
{
    struct stat sb;
    size_t at = 0, most = HEADER_BYTES + s->max_ids * sizeof(int32_t) + SUM_BYTES;
    if (fstat(fd, &sb) != 0) {
        return errno;
    }
    if (!S_ISREG(sb.st_mode) || sb.st_size < 0) {
        return EINVAL;
    }
    if ((uint64_t)sb.st_size > most) {
        return EFBIG;
    }
    size_t size = (size_t)sb.st_size;
    if (buf_reserve(out, size) != ST_OK) {
        return ENOMEM;
    }
    while (at < size) {
        ssize_t n = read(fd, out->data + at, size - at);
        if (n < 0 && errno != EINTR) {
            return errno;
        }
        if (n == 0) {
            return EINVAL;
        }
        at += n > 0 ? (size_t)n : 0;
    }
    out->len = size;
    return 0;
}

static int open_file(const saved *s, const char *file)
{
    return openat(s->folder, file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
}

/*
 * Reading
 */

/* Whether they are a whole file of this format. */
static bool is_whole(const buf *b)
{
    const char *p = b->data;
    if (b->len < HEADER_BYTES + SUM_BYTES || memcmp(p, magic, sizeof magic) != 0 ||
        le32_get(p + AT_VERSION) != VERSION || le32_get(p + AT_VERSION + 4) != 0) {
        return false;
    }
    size_t n = b->len - HEADER_BYTES - SUM_BYTES;
    return n % sizeof(int32_t) == 0 && le64_get(p + AT_COUNT) == n / sizeof(int32_t) &&
           le64_get(p + b->len - SUM_BYTES) == hash64(p, b->len - SUM_BYTES);
}

static status check_identity(const saved *s, const buf *b, err *e)
{
    char ours[TYPE_BYTES];
    put_type(s, ours);
    if (memcmp(b->data + AT_TYPE, ours, TYPE_BYTES) != 0) {
        return err_set(e, ST_INVALID_FIELD, "name",
                       "the session was saved with kv type %.8s, this worker keeps %s", b->data + AT_TYPE,
                       s->kv_type);
    }
    if (memcmp(b->data + AT_IDENTITY, s->identity, sizeof s->identity) != 0) {
        return err_set(e, ST_INVALID_FIELD, "name",
                       "the session was saved with another model, or with other settings of it");
    }
    return ST_OK;
}

static status take_ids(const buf *b, ivec *ids, err *e)
{
    size_t n = (size_t)le64_get(b->data + AT_COUNT);
    if (ivec_reserve(ids, n) != ST_OK) {
        return err_set(e, ST_NOMEM, NULL, "out of memory for a saved session");
    }
    for (size_t i = 0; i < n; i++) {
        (void)ivec_push(ids, (int32_t)le32_get(b->data + HEADER_BYTES + i * sizeof(int32_t)));
    }
    return ST_OK;
}

static status damaged(const saved *s, const char *file, err *e)
{
    log_emit(LOG_WARN, "worker", "event=saved_session_damaged file=%s", file);
    (void)unlinkat(s->folder, file, 0);
    return err_set(e, ST_INVALID_FIELD, "name", "what was saved under this name is damaged: it is deleted");
}

status saved_get(const saved *s, const char *name, ivec *ids, err *e)
{
    file_name file;
    buf b = {0};
    name_file(name, file);
    int fd = open_file(s, file);
    if (fd < 0) {
        return failed(e, "the session cannot be restored", errno);
    }
    int why = read_all(s, fd, &b);
    close(fd);
    status st;
    if (why == EFBIG) {
        st = err_set(e, ST_INVALID_FIELD, "name", "the saved session has more tokens than the context of %zu",
                     s->max_ids);
    } else if (why == ENOMEM) {
        st = err_set(e, ST_NOMEM, NULL, "out of memory for a saved session");
    } else if (why != 0 || !is_whole(&b)) {
        st = damaged(s, file, e);
    } else {
        st = check_identity(s, &b, e);
        st = st == ST_OK ? take_ids(&b, ids, e) : st;
    }
    buf_release(&b);
    return st;
}

status saved_drop(const saved *s, const char *name, size_t *n, err *e)
{
    file_name file;
    uint8_t header[HEADER_BYTES];
    name_file(name, file);
    int fd = open_file(s, file);
    bool said = fd >= 0 && read(fd, header, sizeof header) == (ssize_t)sizeof header &&
                memcmp(header, magic, sizeof magic) == 0;
    if (fd >= 0) {
        close(fd);
    }
    if (unlinkat(s->folder, file, 0) != 0) {
        return failed(e, "the saved session cannot be removed", errno);
    }
    if (n) {
        *n = said ? (size_t)le64_get(header + AT_COUNT) : 0;
    }
    return ST_OK;
}
