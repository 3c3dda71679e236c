/*
 * The descriptor of the cancel pipe: which are taken, which are closed, what is read when.
 */
#include "base/test_main.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker/control.h"

typedef struct ends {
    int frm, to;
} ends;

static ends make_pipe(void)
{
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    return (ends){fds[0], fds[1]};
}

static void send_id(int fd, uint64_t id)
{
    assert_int_equal(write(fd, &id, sizeof id), sizeof id); /* this machine is little-endian: base/le.h */
}

static void open_fd(control *c, int fd)
{
    char text[16];
    snprintf(text, sizeof text, "%d", fd);
    control_open(c, text);
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static void test_accepted(void **state)
{
    control c;
    ends p = make_pipe();
    open_fd(&c, p.frm);
    assert_true(c.supported);
    assert_int_equal(control_fd(&c), p.frm);
    assert_true(fcntl(p.frm, F_GETFL) & O_NONBLOCK);
    assert_true(fcntl(p.frm, F_GETFD) & FD_CLOEXEC);
    control_close(&c);
    assert_false(is_open(p.frm));
    close(p.to);
}

static void test_a_fifo_in_the_file_system(void **state)
{
    control c;
    char dir[] = "/tmp/hearth-control-XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/fifo", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    int fd = open(path, O_RDWR);
    assert_true(fd > 2);
    open_fd(&c, fd); /* readable, and its writer is there */
    assert_true(c.supported);
    control_close(&c);
    unlink(path);
    rmdir(dir);
}

static void test_texts_that_are_no_number(void **state)
{
    static const char *const texts[] = {"",    " ",   " 5",      "5 ",         "+5",
                                        "-1",  "0x5", "5.0",     "2147483648", "99999999999999999999",
                                        "abc", "5\n", "\xd9\xa5"};
    for (size_t i = 0; i < N_OF(texts); i++) {
        control c;
        control_open(&c, texts[i]);
        assert_false(c.supported);
        assert_int_equal(control_fd(&c), -1);
        control_close(&c);
    }
    control c;
    control_open(&c, NULL);
    assert_false(c.supported);
    control_close(&c);
}

/* 0 to 2 are left alone, whatever they are. */
static void test_standard_descriptors(void **state)
{
    control c;
    for (int fd = 0; fd <= 2; fd++) {
        bool was_open = is_open(fd);
        ends p = make_pipe();
        int saved = was_open ? dup(fd) : -1;
        assert_int_equal(dup2(p.frm, fd), fd);
        open_fd(&c, fd);
        bool still_open = is_open(fd), supported = c.supported;
        int flags = fcntl(fd, F_GETFL);
        control_close(&c);
        if (was_open) {
            dup2(saved, fd);
            close(saved);
        } else {
            close(fd);
        }
        assert_true(still_open);
        assert_false(supported);
        assert_false(flags & O_NONBLOCK);
        close(p.frm);
        close(p.to);
    }
}

/* Refused above 2: closed. */
static void test_refused_are_closed(void **state)
{
    int sockets[2];
    ends p = make_pipe();
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    const int refused[] = {open("/dev/null", O_RDONLY), p.to, sockets[0],
                           open("/tmp", O_RDONLY | O_DIRECTORY)};
    for (size_t i = 0; i < N_OF(refused); i++) {
        control c;
        assert_true(refused[i] > 2);
        open_fd(&c, refused[i]);
        assert_false(c.supported);
        assert_false(is_open(refused[i]));
        control_close(&c);
    }
    control c;
    control_open(&c, "1000"); /* not open at all */
    assert_false(c.supported);
    control_close(&c);
    close(p.frm);
    close(sockets[1]);
}

static void test_at_its_end_at_start(void **state)
{
    control c;
    ends p = make_pipe();
    close(p.to);
    open_fd(&c, p.frm);
    assert_false(c.supported);
    assert_int_equal(control_fd(&c), -1);
    assert_false(is_open(p.frm));
    control_close(&c);
}

static void test_frames_in_the_pipe_are_read_at_start(void **state)
{
    control c;
    ends p = make_pipe();
    send_id(p.to, 7);
    send_id(p.to, 8);
    assert_int_equal(write(p.to, "\x09\0\0", 3), 3); /* and a part of one */
    open_fd(&c, p.frm);
    assert_true(c.supported);
    assert_int_equal(c.gate.pending, 7);
    control_begin(&c, 7);
    assert_true(atomic_load(&c.cancel));
    control_seal(&c, 0);
    assert_int_equal(write(p.to, "\0\0\0\0\0", 5), 5);
    assert_false(control_read(&c, 0));
    control_begin(&c, 9); /* the rest of it came */
    assert_true(atomic_load(&c.cancel));
    control_close(&c);
    close(p.to);
}

static void test_cancel(void **state)
{
    control c;
    ends p = make_pipe();
    open_fd(&c, p.frm);
    assert_true(control_allows(&c, 3));
    control_begin(&c, 3);
    assert_false(atomic_load(&c.cancel));
    send_id(p.to, 4);
    assert_false(control_read(&c, 0));
    assert_false(atomic_load(&c.cancel));
    send_id(p.to, 3);
    assert_true(control_read(&c, 0));
    assert_true(atomic_load(&c.cancel));
    control_seal(&c, 10);
    control_begin(&c, 5); /* the flag of the last one is not this one's */
    assert_false(atomic_load(&c.cancel));
    control_spend(&c, 6);
    assert_false(control_allows(&c, 6));
    assert_false(control_read(&c, 0)); /* nothing there: no change, no end */
    assert_int_equal(control_fd(&c), p.frm);
    control_close(&c);
    close(p.to);
}

/* If its writers leave later nothing changes but that no cancel comes; a half frame is dropped. */
static void test_writers_leave_later(void **state)
{
    control c;
    ends p = make_pipe();
    open_fd(&c, p.frm);
    send_id(p.to, 12);
    assert_int_equal(write(p.to, "\x0d\0\0\0", 4), 4);
    close(p.to);
    assert_false(control_read(&c, 0));
    assert_false(control_read(&c, 0)); /* the end */
    assert_int_equal(control_fd(&c), -1);
    assert_true(c.supported);
    assert_int_equal(c.gate.pending, 12); /* what came whole still counts */
    control_begin(&c, 12);
    assert_true(atomic_load(&c.cancel));
    control_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accepted),
        cmocka_unit_test(test_a_fifo_in_the_file_system),
        cmocka_unit_test(test_texts_that_are_no_number),
        cmocka_unit_test(test_standard_descriptors),
        cmocka_unit_test(test_refused_are_closed),
        cmocka_unit_test(test_at_its_end_at_start),
        cmocka_unit_test(test_frames_in_the_pipe_are_read_at_start),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_writers_leave_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
