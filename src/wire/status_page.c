#include "wire/status_page.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/le.h" /* refuses to build where numbers are not little-endian */

#define N_CELLS    (STATUS_PAGE_BYTES / sizeof(uint64_t))
#define READ_TRIES 4

/*
 * Orders: a counter says nothing about other rows, so counters are relaxed. The step list is a seqlock without
 * fences (ThreadSanitizer knows none): the writer stores each of its rows with release after step_seq became
 * odd, the reader loads each with acquire before it looks at step_seq again; a reader that saw a new row thus
 * sees the new step_seq too.
 */
struct status_page {
    _Atomic uint64_t cell[N_CELLS];
};

_Static_assert(sizeof(struct status_page) == STATUS_PAGE_BYTES, "rows of 8 bytes, nothing between");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "a lock would lie in one process only");
_Static_assert(STATUS_ROW_COUNT + 2 * STATUS_PAGE_MAX_ROWS <= N_CELLS, "the step list fits");

static status map(int fd, int protection, status_page **out, err *e)
{
    int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    void *p = mmap(NULL, STATUS_PAGE_BYTES, protection, flags, fd, 0);
    if (p == MAP_FAILED) {
        return err_set(e, fd < 0 ? ST_NOMEM : ST_INVALID_FIELD, "status_fd",
                       "the status page cannot be mapped: %s", strerror(errno));
    }
    *out = p;
    return ST_OK;
}

/*
 * The worker's side
 */
status status_page_open(int fd, status_page **out, err *e)
{
    struct stat s;
    status_page *p = NULL;
    status st = ST_OK;
    if (fd >= 0 && (fd <= STDERR_FILENO || fstat(fd, &s) != 0 || !S_ISREG(s.st_mode) ||
                    s.st_size != STATUS_PAGE_BYTES)) {
        st = err_set(e, ST_INVALID_FIELD, "status_fd", "descriptor %d is no status page", fd);
    }
    if (st == ST_OK) {
        st = map(fd, PROT_READ | PROT_WRITE, &p, e);
    }
    if (fd > STDERR_FILENO) {
        close(fd);
    }
    if (st == ST_OK) {
        status_page_set(p, STATUS_ROW_PID, (uint64_t)getpid());
        status_page_set(p, STATUS_ROW_MAGIC, STATUS_PAGE_MAGIC);
        *out = p;
    }
    return st;
}

void status_page_close(status_page *p)
{
    if (p) {
        munmap(p, STATUS_PAGE_BYTES);
    }
}

void status_page_set(status_page *p, status_row row, uint64_t value)
{
    atomic_store_explicit(&p->cell[row], value, memory_order_relaxed);
}

void status_page_add(status_page *p, status_row row, uint64_t n)
{
    /* one writer: no read-modify-write is needed */
    uint64_t now = atomic_load_explicit(&p->cell[row], memory_order_relaxed);
    atomic_store_explicit(&p->cell[row], now + n, memory_order_relaxed);
}

void status_page_step(status_page *p, const uint64_t *id_hashes, const int32_t *positions, size_t n)
{
    _Atomic uint64_t *list = &p->cell[STATUS_ROW_COUNT];
    uint64_t seq = atomic_load_explicit(&p->cell[STATUS_ROW_STEP_SEQ], memory_order_relaxed) | 1;
    n = n > STATUS_PAGE_MAX_ROWS ? STATUS_PAGE_MAX_ROWS : n;
    atomic_store_explicit(&p->cell[STATUS_ROW_STEP_SEQ], seq, memory_order_relaxed);
    for (size_t i = 0; i < n; i++) {
        atomic_store_explicit(&list[2 * i], id_hashes[i], memory_order_release);
        atomic_store_explicit(&list[2 * i + 1], (uint64_t)positions[i], memory_order_release);
    }
    atomic_store_explicit(&p->cell[STATUS_ROW_N_ROWS], n, memory_order_release);
    atomic_store_explicit(&p->cell[STATUS_ROW_STEP_SEQ], seq + 1, memory_order_release);
}

uint64_t status_page_id_hash(const char *id, size_t len)
{
    uint64_t h = hash64(id, len);
    return h == 0 ? 1 : h; /* 0 means plain */
}

/*
 * The daemon's side
 */
status status_page_create(int *fd_out, status_page **out, err *e)
{
    int fd = memfd_create("hearth-status", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    bool made = fd >= 0 && ftruncate(fd, STATUS_PAGE_BYTES) == 0 &&
                fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) == 0;
    status st = made ? map(fd, PROT_READ, out, e)
                     : err_set(e, ST_IO, NULL, "the status page cannot be made: %s", strerror(errno));
    if (st == ST_OK) {
        *fd_out = fd;
    } else if (fd >= 0) {
        close(fd);
    }
    return st;
}

static uint64_t load(const status_page *p, size_t cell)
{
    return atomic_load_explicit(&p->cell[cell], memory_order_acquire);
}

/* False if the list changed meanwhile, is being written, or is longer than the page. */
static bool read_step(const status_page *p, status_snapshot *out)
{
    uint64_t seq = load(p, STATUS_ROW_STEP_SEQ);
    uint64_t n = load(p, STATUS_ROW_N_ROWS);
    if (seq % 2 != 0 || n > STATUS_PAGE_MAX_ROWS) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        out->id_hash[i] = load(p, STATUS_ROW_COUNT + 2 * i);
        uint64_t position = load(p, STATUS_ROW_COUNT + 2 * i + 1);
        out->position[i] = position > INT64_MAX ? INT64_MAX : (int64_t)position;
    }
    out->n_rows = (size_t)n;
    return load(p, STATUS_ROW_STEP_SEQ) == seq;
}

void status_page_read(const status_page *p, status_snapshot *out)
{
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < STATUS_ROW_COUNT; i++) {
        out->row[i] = load(p, i);
    }
    for (int i = 0; i < READ_TRIES && !out->step_whole; i++) {
        out->step_whole = read_step(p, out);
    }
    if (!out->step_whole) {
        out->n_rows = 0;
    }
}

bool status_page_moved(const status_snapshot *before, const status_snapshot *after)
{
    static const status_row counters[] = {
        STATUS_ROW_TICK,
        STATUS_ROW_LOADED_BYTES,
        STATUS_ROW_PREPARED,
        STATUS_ROW_TOKENS_PREFILLED,
        STATUS_ROW_TOKENS_GENERATED,
        STATUS_ROW_INPUT_LINES,
        STATUS_ROW_OUTPUT_BYTES,
    };
    for (size_t i = 0; i < sizeof counters / sizeof counters[0]; i++) {
        if (before->row[counters[i]] != after->row[counters[i]]) {
            return true;
        }
    }
    return false;
}
