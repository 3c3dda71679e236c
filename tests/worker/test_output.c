#include "base/test_main.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "worker/output.h"

#define LINE       "0123456789abcde\n"
#define LINE_BYTES 16
#define PATIENCE_S 20

typedef struct rig {
    halt halt;
    bell bell;
    output *out;
    int ends[2]; /* ours to read, the writer's */
} rig;

static void rig_open(rig *r, bool sockets)
{
    assert_int_equal(halt_open(&r->halt, NULL), ST_OK);
    assert_int_equal(bell_open(&r->bell, NULL), ST_OK);
    if (sockets) {
        int small = 4096;
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, r->ends), 0);
        assert_int_equal(setsockopt(r->ends[1], SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0);
    } else {
        assert_int_equal(pipe(r->ends), 0);
        assert_true(fcntl(r->ends[1], F_SETPIPE_SZ, 4096) >= 4096);
    }
    assert_int_equal(output_open(r->ends[1], &r->halt, &r->bell, &r->out, NULL), ST_OK);
    assert_int_equal(output_start(r->out, NULL, NULL), ST_OK);
}

static void rig_close(rig *r)
{
    output_close(r->out);
    if (r->ends[0] >= 0) {
        close(r->ends[0]);
    }
    close(r->ends[1]);
    bell_close(&r->bell);
    halt_close(&r->halt);
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

static void put_lines(rig *r, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        assert_true(output_check(r->out, buf_append_str(output_stage(r->out), LINE)));
    }
    output_commit(r->out);
}

/* Reads n whole lines; every one must be LINE. */
static void read_lines(rig *r, size_t n)
{
    char got[LINE_BYTES];
    size_t have = 0;
    while (n > 0) {
        struct pollfd p = {.fd = r->ends[0], .events = POLLIN};
        assert_int_equal(poll(&p, 1, PATIENCE_S * 1000), 1);
        ssize_t k = read(r->ends[0], got + have, sizeof got - have);
        assert_true(k > 0);
        have += (size_t)k;
        if (have == LINE_BYTES) {
            assert_memory_equal(got, LINE, LINE_BYTES);
            have = 0;
            n--;
        }
    }
}

/* Commits lines until there is no room and the writer is stuck: its chunk and the ring are full then,
 * whatever the other end holds. Returns how many went in. */
static size_t fill(rig *r)
{
    size_t n = 0;
    double until = now_s() + PATIENCE_S;
    for (int quiet = 0; quiet < 150 || n * LINE_BYTES <= OUTPUT_HIGH_BYTES;) {
        if (output_has_room(r->out)) {
            put_lines(r, 16);
            n += 16;
            quiet = 0;
        } else {
            struct pollfd p = {.fd = r->ends[1], .events = POLLOUT};
            nap();
            quiet = poll(&p, 1, 0) == 0 ? quiet + 1 : 0; /* a writer that gets no CPU is not stuck */
        }
        assert_true(now_s() < until);
    }
    return n;
}

static void wait_halted(rig *r, int cause)
{
    double until = now_s() + PATIENCE_S;
    while (!halt_asked(&r->halt)) {
        assert_true(now_s() < until);
        nap();
    }
    assert_int_equal(halt_cause(&r->halt), cause);
}

static void test_writes_and_drains(void **state)
{
    for (int sockets = 0; sockets < 2; sockets++) {
        rig r;
        rig_open(&r, sockets);
        put_lines(&r, 3);
        read_lines(&r, 3); /* each commit is written at once */
        put_lines(&r, 5);
        output_commit(r.out); /* nothing staged */
        read_lines(&r, 5);
        rig_close(&r);
    }
}

static void test_bounded_and_rings_when_there_is_room(void **state)
{
    for (int sockets = 0; sockets < 2; sockets++) {
        rig r;
        rig_open(&r, sockets);
        size_t n = fill(&r);
        assert_true(n * LINE_BYTES <= 2 * OUTPUT_HIGH_BYTES + 65536); /* ring, chunk, pipe or socket */
        while (poll(&(struct pollfd){.fd = r.bell.fd, .events = POLLIN}, 1, 0) > 0) {
            bell_wait(&r.bell, &r.halt, BELL_FOREVER); /* old rings */
        }
        size_t had = n;
        while (n > 0 && !output_has_room(r.out)) {
            read_lines(&r, 1);
            n--;
            nap();
        }
        assert_true(n < had);
        bell_wait(&r.bell, &r.halt, BELL_FOREVER); /* rung, or this test hangs */
        put_lines(&r, 7);
        read_lines(&r, n + 7); /* nothing lost, nothing twice */
        rig_close(&r);
    }
}

static void test_frame_larger_than_the_ring(void **state)
{
    rig r;
    rig_open(&r, false);
    put_lines(&r, 20000);
    assert_false(output_has_room(r.out));
    put_lines(&r, 1); /* what a step says is always taken */
    read_lines(&r, 20001);
    rig_close(&r);
}

static void test_reader_gone(void **state)
{
    for (int sockets = 0; sockets < 2; sockets++) {
        for (int full = 0; full < 2; full++) { /* idle, then blocked */
            rig r;
            rig_open(&r, sockets);
            if (full) {
                fill(&r);
            }
            close(r.ends[0]);
            r.ends[0] = -1;
            wait_halted(&r, HALT_OUTPUT_GONE);
            bell_wait(&r.bell, &r.halt, BELL_FOREVER); /* the engine thread wakes */
            rig_close(&r);
        }
    }
}

static void test_halt_while_blocked(void **state)
{
    for (int sockets = 0; sockets < 2; sockets++) {
        rig r;
        rig_open(&r, sockets);
        fill(&r);
        double since = now_s();
        halt_ask(&r.halt, 15);
        halt_ask(&r.halt, HALT_OUTPUT_GONE); /* the first cause counts */
        rig_close(&r);                       /* does not wait for the reader */
        assert_int_equal(r.halt.cause, 15);
        assert_true(now_s() - since < PATIENCE_S);
    }
}

static void test_halt_writes_what_fits(void **state)
{
    rig r;
    char got[4 * LINE_BYTES];
    rig_open(&r, false);
    put_lines(&r, 3);
    halt_ask(&r.halt, 15);
    output_close(r.out);
    assert_int_equal(read(r.ends[0], got, sizeof got), 3 * LINE_BYTES);
    close(r.ends[0]);
    close(r.ends[1]);
    bell_close(&r.bell);
    halt_close(&r.halt);
}

static void test_file_and_bad_descriptor(void **state)
{
    rig r;
    char path[] = "/tmp/test_output_XXXXXX", got[64] = "";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    unlink(path);
    assert_int_equal(write(fd, "before\n", 7), 7); /* the offset is the descriptor's */
    assert_int_equal(halt_open(&r.halt, NULL), ST_OK);
    assert_int_equal(bell_open(&r.bell, NULL), ST_OK);
    assert_int_equal(output_open(fd, &r.halt, &r.bell, &r.out, NULL), ST_OK);
    assert_int_equal(output_start(r.out, NULL, NULL), ST_OK);
    put_lines(&r, 1);
    output_close(r.out);
    assert_int_equal(pread(fd, got, sizeof got, 0), 7 + LINE_BYTES);
    assert_string_equal(got, "before\n" LINE);
    assert_false(halt_asked(&r.halt));
    close(fd);
    assert_int_equal(output_open(987, &r.halt, &r.bell, &r.out, NULL), ST_OK); /* not open */
    assert_int_equal(output_start(r.out, NULL, NULL), ST_OK);
    wait_halted(&r, HALT_OUTPUT_GONE);
    output_close(r.out);
    output_close(NULL);
    bell_close(&r.bell);
    halt_close(&r.halt);
}

/* What is said and what is written are told in bytes; what is staged needs room too. */
static void test_counts(void **state)
{
    rig r;
    rig_open(&r, false);
    assert_int_equal(output_said(r.out), 0);
    assert_true(output_check(r.out, buf_append_str(output_stage(r.out), LINE)));
    assert_int_equal(output_said(r.out), LINE_BYTES); /* not handed over yet */
    put_lines(&r, 2);
    assert_int_equal(output_said(r.out), 3 * LINE_BYTES);
    read_lines(&r, 3);
    for (int naps = 0; output_written(r.out) < 3 * LINE_BYTES; naps++) {
        assert_true(naps < 10000);
        nap();
    }
    assert_int_equal(output_written(r.out), 3 * LINE_BYTES);
    for (size_t n = 0; n < OUTPUT_HIGH_BYTES; n += LINE_BYTES) {
        assert_true(output_has_room(r.out));
        assert_true(output_check(r.out, buf_append_str(output_stage(r.out), LINE)));
    }
    assert_false(output_has_room(r.out));
    output_commit(r.out);
    assert_true(output_written(r.out) < output_said(r.out)); /* the pipe holds 4 KiB */
    read_lines(&r, OUTPUT_HIGH_BYTES / LINE_BYTES);
    rig_close(&r);
}

/* Opened and never started: nothing is written, nothing hangs. */
static void test_not_started(void **state)
{
    halt h;
    bell b;
    output *o;
    assert_int_equal(halt_open(&h, NULL), ST_OK);
    assert_int_equal(bell_open(&b, NULL), ST_OK);
    assert_int_equal(output_open(1, &h, &b, &o, NULL), ST_OK);
    assert_true(output_check(o, buf_append_str(output_stage(o), LINE)));
    output_close(o);
    bell_close(&b);
    halt_close(&h);
}

/* Without memory frames are refused, whole, once what there is is used up; the last of each request still finds room. */
static void test_no_memory(void **state)
{
    static char id[256]; /* as long as one may be, and as long as it gets on the wire */
    rig r;
    err e;
    size_t n = 0;
    memset(id, 1, sizeof id);
    err_set(&e, ST_NOMEM, NULL, "out of memory for a frame");
    frame_error f = frame_error_of(&e);
    f.id = (wire_string){id, sizeof id};
    f.has_session = true;
    f.session_id = id;
    f.session_id_len = sizeof id;
    rig_open(&r, false);
    for (int round = 0; round < 3; round++) {
        mem_fail_at(1, true);
        uint64_t before = output_said(r.out);
        for (n = 0; output_check(r.out, buf_append_str(output_stage(r.out), LINE)); n++) {
            assert_true(n < 10000);
        }
        assert_true(n * LINE_BYTES >= OUTPUT_HIGH_BYTES);
        assert_false(output_check(r.out, ST_NOMEM)); /* of a frame that was not begun */
        assert_true(output_said(r.out) == before + n * LINE_BYTES);
        assert_true(output_put_last(r.out, &f));
        assert_false(output_put_last(r.out, &f)); /* there is room for one */
        uint64_t said = output_said(r.out) - before;
        assert_true(said > n * LINE_BYTES + 12 * sizeof id); /* \u0001 each */
        output_commit(r.out);
        mem_fail_at(0, false);
        read_lines(&r, n);
        for (uint64_t left = said - n * LINE_BYTES; left > 0;) {
            char byte;
            assert_int_equal(read(r.ends[0], &byte, 1), 1);
            left--;
            assert_int_equal(byte == '\n', left == 0);
        }
        assert_false(halt_asked(&r.halt));
    }
    rig_close(&r);
}

/* What cannot be handed over for want of memory waits, and the bell tells when there is room. */
static void test_handed_over_later(void **state)
{
    rig r;
    rig_open(&r, false);
    put_lines(&r, 2 * OUTPUT_HIGH_BYTES / LINE_BYTES); /* the pipe holds 4 KiB: pending is full */
    for (size_t i = 0; i < OUTPUT_HIGH_BYTES / LINE_BYTES; i++) {
        assert_true(output_check(r.out, buf_append_str(output_stage(r.out), LINE)));
    }
    bell_wait(&r.bell, &r.halt, 0); /* what was rung before */
    mem_fail_at(1, true);
    output_commit(r.out);
    mem_fail_at(0, false);
    assert_false(output_has_room(r.out));
    read_lines(&r, 2 * OUTPUT_HIGH_BYTES / LINE_BYTES);
    while (!output_has_room(r.out)) {
        bell_wait(&r.bell, &r.halt, PATIENCE_S * 1000);
        output_commit(r.out);
    }
    read_lines(&r, OUTPUT_HIGH_BYTES / LINE_BYTES);
    rig_close(&r);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN); /* as the worker does: the writer may write before it sees that nobody reads */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_writes_and_drains),
        cmocka_unit_test(test_bounded_and_rings_when_there_is_room),
        cmocka_unit_test(test_frame_larger_than_the_ring),
        cmocka_unit_test(test_reader_gone),
        cmocka_unit_test(test_halt_while_blocked),
        cmocka_unit_test(test_halt_writes_what_fits),
        cmocka_unit_test(test_file_and_bad_descriptor),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_not_started),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_handed_over_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
