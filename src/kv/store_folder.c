#include "kv/store_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"

#define PAGE_ENDING   ".page"
#define TEMP_PREFIX   "new-"
#define TEMP_ENDING   ".tmp"
#define PAGE_NAME_MAX (SHA256_HEX_LEN + sizeof PAGE_ENDING)

/* 0, or the errno that this operation is to fail with. */
static int before(const store_folder *f, store_op op)
{
    return f->seam ? f->seam->before(f->seam->ctx, op) : 0;
}

static status what_failed(err *e, const char *what, int why)
{
    bool later = why == EMFILE || why == ENFILE || why == ENOMEM || why == EINTR || why == EAGAIN;
    return err_set(e, later ? ST_CAPACITY : ST_IO, NULL, "cannot %s: %s", what, strerror(why));
}

static void page_name(const store_key *key, char out[PAGE_NAME_MAX])
{
    hex_encode(key->bytes, sizeof key->bytes, out);
    memcpy(out + SHA256_HEX_LEN, PAGE_ENDING, sizeof PAGE_ENDING);
}

/*
 * The folder
 */
static void close_ahead(store_folder *f)
{
    for (size_t i = 0; i < STORE_AHEAD; i++) {
        if (f->ahead[i].open) {
            close(f->ahead[i].fd);
            f->ahead[i].open = false;
        }
    }
}

status store_folder_open(store_folder *f, const char *path, const store_seam *seam, err *e)
{
    const store_folder opened = {.seam = seam};
    int why = before(&opened, STORE_OPEN_FOLDER);
    int fd = why ? -1 : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return what_failed(e, "open the folder", why ? why : errno);
    }
    memset(f, 0, sizeof *f);
    f->fd = fd;
    f->seam = seam;
    return ST_OK;
}

void store_folder_close(store_folder *f)
{
    close_ahead(f);
    if (f->fd >= 0) {
        close(f->fd);
        f->fd = -1;
    }
}

bool store_folder_is_gone(const store_folder *f)
{
    struct stat sb;
    return fstat(f->fd, &sb) != 0 || sb.st_nlink == 0;
}

/*
 * Reading
 */
/* Whoever put something else there than a file: it is refused without waiting for it. */
static int open_page(const store_folder *f, const store_key *key, int *why)
{
    char name[PAGE_NAME_MAX];
    page_name(key, name);
    *why = before(f, STORE_OPEN);
    int fd = *why ? -1 : openat(f->fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 && *why == 0) {
        *why = errno;
    }
    return fd;
}

static status not_opened(int why, err *e)
{
    switch (why) {
    case ENOENT:
        return err_set(e, ST_NOT_FOUND, NULL, "there is no such file");
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case EINTR:
        return err_set(e, ST_CAPACITY, NULL, "cannot open it: %s", strerror(why));
    default:
        return err_set(e, ST_BAD_FORMAT, NULL, "cannot open it: %s", strerror(why));
    }
}

/* The place of a file that is open already; NULL: it is not. */
static store_ahead *find_ahead(store_folder *f, const store_key *key)
{
    for (size_t i = 0; i < STORE_AHEAD; i++) {
        if (f->ahead[i].open && memcmp(&f->ahead[i].key, key, sizeof *key) == 0) {
            return &f->ahead[i];
        }
    }
    return NULL;
}

static void expect(store_folder *f, const store_key *keys, size_t n)
{
    store_ahead next[STORE_AHEAD] = {0};
    for (size_t i = 0; i < n; i++) {
        store_ahead *old = find_ahead(f, &keys[i]);
        int why, fd = old ? old->fd : open_page(f, &keys[i], &why);
        if (old) {
            old->open = false; /* moves */
        } else if (fd >= 0) {
            (void)posix_fadvise(fd, 0, 0, POSIX_FADV_WILLNEED);
        }
        next[i] = (store_ahead){.open = fd >= 0, .fd = fd, .key = keys[i]};
    }
    close_ahead(f);
    memcpy(f->ahead, next, sizeof next);
}

/* As open_page, but for one that is open already. */
static int take_page(store_folder *f, const store_key *key, int *why)
{
    store_ahead *a = find_ahead(f, key);
    if (a) {
        a->open = false;
        return a->fd;
    }
    return open_page(f, key, why);
}

static status read_all(const store_folder *f, int fd, void *bytes, size_t n, err *e)
{
    char *at = bytes;
    while (n > 0) {
        int why = before(f, STORE_READ);
        ssize_t got = why ? -1 : read(fd, at, n);
        if (got <= 0) {
            why = why ? why : errno;
            if (got < 0 && why == EINTR) {
                continue;
            }
            return err_set(e, ST_BAD_FORMAT, NULL, "cannot read it: %s",
                           got < 0 ? strerror(why) : "it ends early");
        }
        at += got;
        n -= (size_t)got;
    }
    return ST_OK;
}

static status check_size(int fd, uint64_t bytes, err *e)
{
    struct stat sb;
    if (fstat(fd, &sb) != 0 || !S_ISREG(sb.st_mode)) {
        return err_set(e, ST_BAD_FORMAT, NULL, "it is not a file");
    }
    return (uint64_t)sb.st_size == bytes ? ST_OK
                                         : err_set(e, ST_BAD_FORMAT, "size", "%lld bytes, expected %llu",
                                                   (long long)sb.st_size, (unsigned long long)bytes);
}

static size_t step_at(uint64_t at, uint64_t end)
{
    return (size_t)(end - at < STORE_STEP_BYTES ? end - at : STORE_STEP_BYTES);
}

static status read_page(const store_folder *f, int fd, const store_header *want, char *page, err *e)
{
    uint8_t header[STORE_HEADER_BYTES];
    uint64_t sum = 0;
    status st = check_size(fd, sizeof header + want->page_bytes, e);
    st = st == ST_OK ? read_all(f, fd, header, sizeof header, e) : st;
    for (uint64_t at = 0; at < want->page_bytes && st == ST_OK; at += STORE_STEP_BYTES) {
        size_t n = step_at(at, want->page_bytes);
        st = read_all(f, fd, page + at, n, e);
        sum = st == ST_OK ? store_sum_step(sum, page + at, n) : sum;
    }
    return st == ST_OK ? store_header_check(header, want, sum, e) : st;
}

status store_folder_read(store_folder *f, const store_key *key, const store_header *want, void *page,
                         const store_key *next, size_t n_next, err *e)
{
    int why = 0, fd = take_page(f, key, &why);
    expect(f, next, n_next);
    if (fd < 0) {
        return not_opened(why, e);
    }
    status st = read_page(f, fd, want, page, e);
    close(fd);
    return st;
}

bool store_folder_has(const store_folder *f, const store_key *key)
{
    int why, fd = open_page(f, key, &why);
    if (fd >= 0) {
        close(fd);
    }
    return why != ENOENT;
}

status store_folder_look(const store_folder *f, const store_key *key, store_entry *out, err *e)
{
    uint8_t bytes[STORE_HEADER_BYTES];
    struct stat sb;
    store_header h;
    int why, fd = open_page(f, key, &why);
    if (fd < 0) {
        return not_opened(why, e);
    }
    status st = fstat(fd, &sb) == 0 && S_ISREG(sb.st_mode)
                    ? ST_OK
                    : err_set(e, ST_BAD_FORMAT, NULL, "it is not a file");
    st = st == ST_OK ? read_all(f, fd, bytes, sizeof bytes, e) : st;
    st = st == ST_OK ? store_header_get(bytes, &h, e) : st;
    close(fd);
    if (st != ST_OK) {
        return st;
    }
    if ((uint64_t)sb.st_size - sizeof bytes != h.page_bytes) {
        return err_set(e, ST_BAD_FORMAT, "size", "%lld bytes do not fit its header", (long long)sb.st_size);
    }
    const store_key own = store_header_key(&h);
    if (memcmp(&own, key, sizeof own) != 0) {
        return err_set(e, ST_BAD_FORMAT, "key", "its name is that of another page");
    }
    out->parent = h.parent;
    out->bytes = (uint64_t)sb.st_size;
    out->modified_ms = (int64_t)sb.st_mtim.tv_sec * 1000 + sb.st_mtim.tv_nsec / 1000000;
    return ST_OK;
}

/*
 * Writing
 */
static status open_temp(const store_folder *f, store_temp *t, err *e)
{
    uint64_t number;
    int why = before(f, STORE_CREATE);
    if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number) {
        return err_set(e, ST_CAPACITY, NULL, "cannot draw a name: %s", strerror(errno));
    }
    snprintf(t->name, sizeof t->name, TEMP_PREFIX "%016llx" TEMP_ENDING, (unsigned long long)number);
    t->fd = why ? -1 : openat(f->fd, t->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (t->fd < 0) {
        return what_failed(e, "make a file", why ? why : errno);
    }
    if (flock(t->fd, LOCK_EX | LOCK_NB) == 0) {
        return ST_OK;
    }
    why = errno; /* EWOULDBLOCK: somebody takes it for a leftover at this moment */
    store_folder_drop(f, t);
    return what_failed(e, "lock a file", why);
}

static status write_all(const store_folder *f, int fd, const void *bytes, size_t n, uint64_t to, err *e)
{
    const char *at = bytes;
    while (n > 0) {
        int why = before(f, STORE_WRITE);
        ssize_t put = why ? -1 : pwrite(fd, at, n, (off_t)to);
        if (put < 0) {
            why = why ? why : errno;
            if (why == EINTR) {
                continue;
            }
            return what_failed(e, "write a file", why);
        }
        at += put;
        to += (uint64_t)put;
        n -= (size_t)put;
    }
    return ST_OK;
}

/* The header last: it has the sum of all the rest. */
static status write_page(const store_folder *f, int fd, const store_header *h, const char *page, err *e)
{
    uint8_t header[STORE_HEADER_BYTES];
    uint64_t sum = 0;
    status st = ST_OK;
    for (uint64_t at = 0; at < h->page_bytes && st == ST_OK; at += STORE_STEP_BYTES) {
        size_t n = step_at(at, h->page_bytes);
        sum = store_sum_step(sum, page + at, n);
        st = write_all(f, fd, page + at, n, sizeof header + at, e);
    }
    store_header_put(h, sum, header);
    return st == ST_OK ? write_all(f, fd, header, sizeof header, 0, e) : st;
}

status store_folder_write(const store_folder *f, const store_header *h, const void *page, store_temp *out,
                          err *e)
{
    store_temp t = {.fd = -1};
    status st = open_temp(f, &t, e);
    if (st != ST_OK) {
        return st;
    }
    st = write_page(f, t.fd, h, page, e);
    if (st != ST_OK) {
        store_folder_drop(f, &t);
        return st;
    }
    *out = t;
    return ST_OK;
}

void store_folder_drop(const store_folder *f, store_temp *t)
{
    (void)unlinkat(f->fd, t->name, 0); /* if not now, whoever opens the folder next does */
    close(t->fd);
    t->fd = -1;
}

status store_folder_place(const store_folder *f, store_temp *t, const store_key *key, err *e)
{
    char name[PAGE_NAME_MAX];
    page_name(key, name);
    int why = before(f, STORE_RENAME);
    if (why == 0 && renameat(f->fd, t->name, f->fd, name) != 0) {
        why = errno;
    }
    if (why) {
        store_folder_drop(f, t);
        if (why == EISDIR || why == ENOTEMPTY || (why == ENOENT && !store_folder_is_gone(f))) {
            why = EAGAIN; /* something of that name is no file; or the temporary one was swept away */
        }
        return what_failed(e, "rename a file", why);
    }
    close(t->fd);
    t->fd = -1;
    return ST_OK;
}

status store_folder_remove(const store_folder *f, const store_key *key, err *e)
{
    char name[PAGE_NAME_MAX];
    page_name(key, name);
    int why = before(f, STORE_REMOVE);
    if (why == 0 && unlinkat(f->fd, name, 0) != 0 && errno != ENOENT) {
        why = errno;
    }
    return why ? what_failed(e, "remove a file", why) : ST_OK;
}

/*
 * Names
 */
static bool read_hex(const char *text, store_key *key)
{
    for (size_t i = 0; i < SHA256_HEX_LEN; i++) {
        char c = text[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0) {
            return false;
        }
        key->bytes[i / 2] = (uint8_t)(i % 2 ? key->bytes[i / 2] | digit : digit << 4);
    }
    return true;
}

store_entry_kind store_folder_kind(const char *name, store_key *key)
{
    size_t n = strlen(name), n_prefix = strlen(TEMP_PREFIX), n_ending = strlen(TEMP_ENDING);
    if (n == PAGE_NAME_MAX - 1 && memcmp(name + SHA256_HEX_LEN, PAGE_ENDING, sizeof PAGE_ENDING) == 0 &&
        read_hex(name, key)) {
        return STORE_ENTRY_PAGE;
    }
    if (n > n_prefix + n_ending && memcmp(name, TEMP_PREFIX, n_prefix) == 0 &&
        strcmp(name + n - n_ending, TEMP_ENDING) == 0) {
        return STORE_ENTRY_TEMP;
    }
    return STORE_ENTRY_OTHER;
}

void store_folder_sweep(const store_folder *f, const char *name)
{
    int fd = openat(f->fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        return;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        (void)unlinkat(f->fd, name, 0);
    }
    close(fd);
}
