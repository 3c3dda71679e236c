/*
 * The status page: its offsets as plain file reads see them, its seals, another process and another thread
 * reading while it is written, and values that a hostile worker could leave in it.
 */
#include "base/test_main.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/le.h"
#include "wire/status_page.h"

/* A page with both ends open. */
typedef struct fixture {
    int fd; /* the test's own, for reads and writes past the module */
    status_page *reader, *writer;
} fixture;

static fixture open_both(void)
{
    fixture x;
    err e;
    assert_int_equal(status_page_create(&x.fd, &x.reader, &e), ST_OK);
    int fd = fcntl(x.fd, F_DUPFD_CLOEXEC, 3);
    assert_true(fd > 2);
    assert_int_equal(status_page_open(fd, &x.writer, &e), ST_OK);
    assert_true(fcntl(fd, F_GETFD) < 0 && errno == EBADF); /* nothing of it stays open */
    return x;
}

static void close_both(fixture *x)
{
    status_page_close(x->reader);
    status_page_close(x->writer);
    close(x->fd);
}

static uint64_t cell(int fd, size_t row)
{
    unsigned char b[8];
    assert_int_equal(pread(fd, b, sizeof b, (off_t)(8 * row)), sizeof b);
    return le64_get(b);
}

static void put_cell(int fd, size_t row, uint64_t value)
{
    assert_int_equal(pwrite(fd, &value, sizeof value, (off_t)(8 * row)), sizeof value);
}

/* The table in the header, typed again: row by row. */
static void test_offsets(void **state)
{
    static const struct {
        status_row row;
        size_t offset;
    } rows[] = {
        {STATUS_ROW_TICK, 8},
        {STATUS_ROW_PHASE, 16},
        {STATUS_ROW_LOADED_BYTES, 24},
        {STATUS_ROW_LOAD_TOTAL_BYTES, 32},
        {STATUS_ROW_PREPARED, 40},
        {STATUS_ROW_TOKENS_PREFILLED, 56},
        {STATUS_ROW_TOKENS_GENERATED, 64},
        {STATUS_ROW_LANES_TOTAL, 72},
        {STATUS_ROW_LANES_LIVE, 80},
        {STATUS_ROW_PAGES_TOTAL, 88},
        {STATUS_ROW_PAGES_USED, 96},
        {STATUS_ROW_QUEUED, 104},
        {STATUS_ROW_RUNNING, 112},
        {STATUS_ROW_REQUESTS_DONE, 120},
        {STATUS_ROW_REQUESTS_FAILED, 128},
        {STATUS_ROW_REQUESTS_CANCELLED, 136},
        {STATUS_ROW_INPUT_LINES, 144},
        {STATUS_ROW_OUTPUT_BYTES, 152},
        {STATUS_ROW_TOKENS_REUSED, 160},
        {STATUS_ROW_LANES_IDLE, 168},
        {STATUS_ROW_PARKED, 176},
        {STATUS_ROW_PREEMPTIONS, 184},
        {STATUS_ROW_TOKENS_RECOMPUTED, 192},
        {STATUS_ROW_TOKENS_RESTORED, 200},
        {STATUS_ROW_PAGES_CACHED, 208},
        {STATUS_ROW_TOKENS_FETCHED, 216},
        {STATUS_ROW_PREPARING, 224},
        {STATUS_ROW_ATTENDED, 232},
    };
    fixture x = open_both();
    char magic[8];
    status_snapshot s;
    assert_int_equal(pread(x.fd, magic, 8, 0), 8);
    assert_memory_equal(magic, "HEARTHS1", 8);
    assert_true(cell(x.fd, 6) == (uint64_t)getpid());
    for (size_t i = 0; i < N_OF(rows); i++) {
        status_page_set(x.writer, rows[i].row, 1000 + i);
        status_page_add(x.writer, rows[i].row, 5);
        assert_true(cell(x.fd, rows[i].offset / 8) == 1005 + i);
    }
    status_page_read(x.reader, &s);
    assert_true(s.row[STATUS_ROW_MAGIC] == STATUS_PAGE_MAGIC);
    for (size_t i = 0; i < N_OF(rows); i++) {
        assert_true(s.row[rows[i].offset / 8] == 1005 + i);
    }
    assert_true(s.step_whole && s.n_rows == 0);
    close_both(&x);
}

static void test_step(void **state)
{
    static const uint64_t hashes[] = {7, 0, UINT64_MAX};
    static const int32_t positions[] = {0, 12, INT32_MAX};
    fixture x = open_both();
    status_snapshot s;
    status_page_step(x.writer, hashes, positions, 3);
    assert_true(cell(x.fd, 30) == 2); /* even: whole */
    assert_true(cell(x.fd, 31) == 3);
    for (size_t i = 0; i < 3; i++) {
        assert_true(cell(x.fd, 32 + 2 * i) == hashes[i]);
        assert_true(cell(x.fd, 33 + 2 * i) == (uint64_t)positions[i]);
    }
    status_page_read(x.reader, &s);
    assert_true(s.step_whole);
    assert_int_equal(s.n_rows, 3);
    assert_memory_equal(s.id_hash, hashes, sizeof hashes);
    assert_true(s.position[0] == 0 && s.position[1] == 12 && s.position[2] == INT32_MAX);
    status_page_step(x.writer, NULL, NULL, 0);
    assert_true(cell(x.fd, 30) == 4 && cell(x.fd, 31) == 0);
    status_page_read(x.reader, &s);
    assert_true(s.step_whole && s.n_rows == 0);

    uint64_t many[STATUS_PAGE_MAX_ROWS + 10];
    int32_t at[STATUS_PAGE_MAX_ROWS + 10];
    for (size_t i = 0; i < N_OF(many); i++) {
        many[i] = i + 1;
        at[i] = (int32_t)i;
    }
    status_page_step(x.writer, many, at, N_OF(many)); /* cut: the page ends after 240 */
    status_page_read(x.reader, &s);
    assert_int_equal(s.n_rows, 240);
    assert_true(s.id_hash[239] == 240 && s.position[239] == 239);
    assert_true(cell(x.fd, 511) == 239);
    close_both(&x);
}

/* What a worker gone mad may leave there. */
static void test_hostile_values(void **state)
{
    static const uint64_t counts[] = {241, (uint64_t)1 << 32, (uint64_t)1 << 63, UINT64_MAX};
    fixture x = open_both();
    status_snapshot s;
    for (size_t i = 0; i < N_OF(counts); i++) {
        put_cell(x.fd, 31, counts[i]);
        status_page_read(x.reader, &s);
        assert_false(s.step_whole);
        assert_int_equal(s.n_rows, 0);
    }
    put_cell(x.fd, 31, 240);
    for (size_t row = 32; row < 512; row++) {
        put_cell(x.fd, row, UINT64_MAX);
    }
    status_page_read(x.reader, &s);
    assert_true(s.step_whole);
    assert_int_equal(s.n_rows, 240);
    assert_true(s.id_hash[239] == UINT64_MAX && s.position[239] == INT64_MAX);
    put_cell(x.fd, 33, (uint64_t)1 << 63);
    status_page_read(x.reader, &s);
    assert_true(s.position[0] == INT64_MAX); /* never negative */
    put_cell(x.fd, 30, 7);                   /* died while writing the list, or says so for ever */
    status_page_read(x.reader, &s);
    assert_false(s.step_whole);
    assert_int_equal(s.n_rows, 0);
    for (size_t row = 0; row < 30; row++) {
        put_cell(x.fd, row, UINT64_MAX);
    }
    status_page_read(x.reader, &s);
    assert_true(s.row[STATUS_ROW_PHASE] == UINT64_MAX);
    /* a next worker of the same page, or a step after a half-written one, ends whole */
    status_page_step(x.writer, (const uint64_t[]){9}, (const int32_t[]){4}, 1);
    status_page_read(x.reader, &s);
    assert_true(s.step_whole && s.n_rows == 1 && s.id_hash[0] == 9);
    close_both(&x);
}

static void test_moved(void **state)
{
    fixture x = open_both();
    status_snapshot before, after;
    status_page_read(x.reader, &before);
    for (size_t row = 1; row < 21; row++) {
        bool counts = row == 1 || row == 3 || row == 5 || row == 7 || row == 8 || row == 18 || row == 19;
        status_page_read(x.reader, &before);
        assert_false(status_page_moved(&before, &before));
        status_page_add(x.writer, (status_row)row, 1);
        status_page_read(x.reader, &after);
        assert_int_equal(status_page_moved(&before, &after), counts);
    }
    status_page_read(x.reader, &before);
    status_page_step(x.writer, NULL, NULL, 0); /* no counter */
    status_page_read(x.reader, &after);
    assert_false(status_page_moved(&before, &after));
    close_both(&x);
}

static void test_seals(void **state)
{
    fixture x = open_both();
    assert_int_equal(lseek(x.fd, 0, SEEK_END), STATUS_PAGE_BYTES);
    assert_true(ftruncate(x.fd, 8192) != 0 && errno == EPERM);
    assert_true(ftruncate(x.fd, 0) != 0 && errno == EPERM);
    assert_true(fcntl(x.fd, F_ADD_SEALS, F_SEAL_WRITE) != 0);
    assert_true((fcntl(x.fd, F_GETFD) & FD_CLOEXEC) != 0);
    close_both(&x);
}

/* A worker gets only what is a page. */
static void test_open_refuses(void **state)
{
    static const off_t sizes[] = {0, 4095, 4097, 8192};
    status_page *p = NULL;
    err e;
    for (size_t i = 0; i < N_OF(sizes); i++) {
        int fd = memfd_create("test", MFD_CLOEXEC);
        assert_true(fd > 2 && ftruncate(fd, sizes[i]) == 0);
        assert_int_equal(status_page_open(fd, &p, &e), ST_INVALID_FIELD);
        assert_true(fcntl(fd, F_GETFD) < 0); /* closed all the same */
    }
    int pipe_fds[2];
    assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
    assert_int_equal(status_page_open(pipe_fds[0], &p, &e), ST_INVALID_FIELD);
    assert_int_equal(status_page_open(pipe_fds[1], &p, &e), ST_INVALID_FIELD);
    assert_int_equal(status_page_open(pipe_fds[0], &p, &e), ST_INVALID_FIELD); /* not open */
    assert_int_equal(status_page_open(0, &p, &e), ST_INVALID_FIELD);
    assert_int_equal(status_page_open(2, &p, &e), ST_INVALID_FIELD);
    assert_true(fcntl(2, F_GETFD) >= 0); /* 0–2 are left alone */
    char path[] = "/proc/self/fd/0123456789";
    int fd = memfd_create("test", MFD_CLOEXEC);
    assert_true(fd > 2 && ftruncate(fd, STATUS_PAGE_BYTES) == 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int read_only = open(path, O_RDONLY | O_CLOEXEC);
    close(fd);
    assert_true(read_only > 2);
    assert_int_equal(status_page_open(read_only, &p, &e), ST_INVALID_FIELD);
    assert_null(p);
    assert_int_equal(status_page_open(-1, &p, &e), ST_OK); /* a page of one's own */
    status_page_add(p, STATUS_ROW_TICK, 1);
    status_page_close(p);
    status_page_close(NULL);
}

/*
 * Another thread and another process write while the test reads. The list of step k has k % 240 rows, all of
 * them {k, k}: any mixture shows.
 */
static void write_step(status_page *p, uint64_t k)
{
    uint64_t hashes[STATUS_PAGE_MAX_ROWS];
    int32_t positions[STATUS_PAGE_MAX_ROWS];
    size_t n = k % STATUS_PAGE_MAX_ROWS;
    for (size_t i = 0; i < n; i++) {
        hashes[i] = k;
        positions[i] = (int32_t)k;
    }
    status_page_step(p, hashes, positions, n);
    status_page_set(p, STATUS_ROW_TICK, k);
}

/* Reads until the writer is at its last step. */
static void read_lists(const status_page *p, uint64_t last_step)
{
    uint64_t tick = 0;
    status_snapshot s;
    while (tick < last_step) {
        status_page_read(p, &s);
        assert_true(s.row[STATUS_ROW_TICK] >= tick); /* never backwards */
        tick = s.row[STATUS_ROW_TICK];
        assert_true(s.step_whole || s.n_rows == 0);
        for (size_t i = 0; i < s.n_rows; i++) {
            assert_true(s.id_hash[i] % STATUS_PAGE_MAX_ROWS == s.n_rows);
            assert_true(s.id_hash[i] == s.id_hash[0]);
            assert_true((uint64_t)s.position[i] == s.id_hash[0]);
        }
    }
}

#define N_STEPS 20000

static void *writer_thread(void *arg)
{
    for (uint64_t k = 1; k <= N_STEPS; k++) {
        write_step(arg, k);
    }
    return NULL;
}

static void test_thread(void **state)
{
    fixture x = open_both();
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, writer_thread, x.writer), 0);
    read_lists(x.reader, N_STEPS);
    assert_int_equal(pthread_join(t, NULL), 0);
    status_snapshot s;
    status_page_read(x.reader, &s); /* at rest it is whole */
    assert_true(s.step_whole);
    assert_int_equal(s.n_rows, N_STEPS % STATUS_PAGE_MAX_ROWS);
    close_both(&x);
}

static void test_process(void **state)
{
    fixture x;
    err e;
    assert_int_equal(status_page_create(&x.fd, &x.reader, &e), ST_OK);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        status_page *p;
        if (status_page_open(x.fd, &p, NULL) != ST_OK) {
            _exit(1);
        }
        writer_thread(p);
        _exit(0);
    }
    read_lists(x.reader, N_STEPS);
    int rc = -1;
    assert_int_equal(waitpid(pid, &rc, 0), pid);
    assert_true(WIFEXITED(rc) && WEXITSTATUS(rc) == 0);
    status_snapshot s;
    status_page_read(x.reader, &s); /* it outlives its writer */
    assert_true(s.step_whole && s.row[STATUS_ROW_TICK] == N_STEPS);
    assert_true(s.row[STATUS_ROW_PID] == (uint64_t)pid);
    status_page_close(x.reader);
    close(x.fd);
}

/*
 * The reader is interrupted anywhere in the middle of a list by a whole step of the writer (a signal handler: it
 * does no more than atomic stores), also on a machine with one core. It must not take the mixture for a list.
 */
static status_page *interrupted_page;
static volatile sig_atomic_t n_interrupts;

static void on_alarm(int signal)
{
    write_step(interrupted_page, STATUS_PAGE_MAX_ROWS - 1 + STATUS_PAGE_MAX_ROWS * (uint64_t)++n_interrupts);
}

static void test_interrupted(void **state)
{
    fixture x = open_both();
    const struct itimerval often = {{0, 20}, {0, 20}}, off = {{0, 0}, {0, 0}};
    status_snapshot s;
    long whole = 0; /* where a read takes longer than the timer none may be */
    interrupted_page = x.writer;
    n_interrupts = 0;
    assert_true(signal(SIGALRM, on_alarm) != SIG_ERR);
    assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
    for (long i = 0; i < 1000000 && n_interrupts < 3000; i++) {
        status_page_read(x.reader, &s);
        whole += s.step_whole;
        for (size_t row = 1; row < s.n_rows; row++) {
            assert_true(s.id_hash[row] == s.id_hash[0] && (uint64_t)s.position[row] == s.id_hash[0]);
        }
    }
    assert_int_equal(setitimer(ITIMER_REAL, &off, NULL), 0);
    status_page_read(x.reader, &s); /* at rest it is whole */
    assert_true(s.step_whole);
    print_message("%ld whole lists, %d interrupts\n", whole, (int)n_interrupts);
    assert_true(signal(SIGALRM, SIG_DFL) != SIG_ERR);
    close_both(&x);
}

/* The daemon's mapping cannot be written, not even by the daemon. */
static void test_reader_is_read_only(void **state)
{
    fixture x = open_both();
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        signal(SIGSEGV, SIG_DFL);
        status_page_set(x.reader, STATUS_ROW_TICK, 1);
        _exit(0);
    }
    int rc = 0;
    assert_int_equal(waitpid(pid, &rc, 0), pid);
    assert_true(WIFSIGNALED(rc) && WTERMSIG(rc) == SIGSEGV);
    close_both(&x);
}

static void test_id_hash(void **state)
{
    /* XXH3_64bits with seed 0, its published test vector for the empty input */
    assert_true(status_page_id_hash("", 0) == UINT64_C(0x2D06800538D394C2));
    assert_true(status_page_id_hash("a", 1) != status_page_id_hash("b", 1));
    assert_true(status_page_id_hash("req_1", 5) != 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_offsets),        cmocka_unit_test(test_step),
        cmocka_unit_test(test_hostile_values), cmocka_unit_test(test_moved),
        cmocka_unit_test(test_seals),          cmocka_unit_test(test_open_refuses),
        cmocka_unit_test(test_thread),         cmocka_unit_test(test_process),
        cmocka_unit_test(test_interrupted),    cmocka_unit_test(test_reader_is_read_only),
        cmocka_unit_test(test_id_hash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
