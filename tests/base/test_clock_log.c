#include "base/test_main.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/utf8.h"

static void test_fake_clock(void **state)
{
    clock_fake f;
    clock_fake_init(&f, 5, 1000);
    const clock_src *c = &f.src;
    assert_true(clock_mono_ns(c) == 5);
    assert_true(clock_mono_ns(c) == 5);
    assert_true(clock_wall_ms(c) == 1000);
    clock_fake_advance_ms(&f, 250);
    assert_true(clock_mono_ns(c) == 250000005);
    assert_true(clock_wall_ms(c) == 1250);
}

static void test_system_clock(void **state)
{
    const clock_src *c = clock_system();
    uint64_t before = clock_mono_ns(c);
    nanosleep(&(struct timespec){0, 5000000}, NULL);
    assert_true(clock_ms_between(before, clock_mono_ns(c)) >= 4.9);
    assert_true(clock_wall_ms(c) / 1000 - time(NULL) <= 1 && time(NULL) - clock_wall_ms(c) / 1000 <= 1);
    assert_true(clock_ms_between(1000000, 3500000) == 2.5);
    assert_true(clock_ms_between(3500000, 1000000) == 0.0);
}

typedef struct lines {
    char text[4096];
    size_t len;
    log_level level;
    unsigned n;
} lines;

static void keep(void *ctx, log_level level, const char *line, size_t len)
{
    lines *l = ctx;
    assert_true(len < sizeof l->text);
    memcpy(l->text, line, len);
    l->text[len] = '\0';
    l->len = len;
    l->level = level;
    l->n++;
    errno = 0;
}

static void test_line(void **state)
{
    lines l = {.n = 0};
    log_set_sink(keep, &l, LOG_INFO);
    errno = EPIPE;
    log_emit(LOG_WARN, "serve", "event=%s n=%d", "retry", 3);
    assert_int_equal(errno, EPIPE); /* whoever logs on the way out keeps its errno */
    assert_string_equal(l.text, "warn serve event=retry n=3\n");
    assert_int_equal(l.level, LOG_WARN);
    log_emit(LOG_DEBUG, "serve", "below the least level");
    assert_int_equal(l.n, 1);
    log_emit(LOG_INFO, "x", "name=%s", "a\nerror fake line=1\r\x1b[31m\xff\xC3\xA9");
    assert_string_equal(l.text, "info x name=a?error fake line=1??[31m?\xC3\xA9\n");
    log_emit(LOG_ERROR, "x", "%s", "");
    assert_string_equal(l.text, "error x \n");
    log_set_sink(NULL, NULL, LOG_DEBUG);
    log_emit(LOG_ERROR, "x", "silent");
    assert_int_equal(l.n, 3);
}

/* 1 KiB with the newline, whole characters. */
static void test_cut(void **state)
{
    char text[3000];
    lines l = {.n = 0};
    log_set_sink(keep, &l, LOG_DEBUG);
    for (size_t lead = 0; lead < 3; lead++) {
        size_t n = lead;
        memset(text, 'x', lead);
        for (; n + 3 < sizeof text; n += 3) {
            memcpy(text + n, "\xE2\x82\xAC", 3);
        }
        text[n] = '\0';
        log_emit(LOG_DEBUG, "cut", "%s", text);
        assert_true(l.len <= 1024 && l.len > 1024 - 3);
        assert_int_equal(l.text[l.len - 1], '\n');
        assert_true(utf8_valid(l.text, l.len, NULL));
        assert_null(strchr(l.text, '?'));
    }
    log_emit(LOG_DEBUG, text, "long component");
    assert_true(l.len <= 1024);
    log_set_sink(NULL, NULL, LOG_DEBUG);
}

static void test_fd_sink(void **state)
{
    int fds[2];
    char got[200];
    assert_int_equal(pipe(fds), 0);
    log_set_sink(log_fd_sink, &fds[1], LOG_DEBUG);
    log_emit(LOG_DEBUG, "a", "one");
    log_emit(LOG_ERROR, "b", "two=%d", 2);
    log_set_sink(NULL, NULL, LOG_DEBUG);
    ssize_t n = read(fds[0], got, sizeof got);
    assert_int_equal(n, 24 + 2);
    assert_memory_equal(got, "debug a one\nerror b two=2\n", 26);
    close(fds[0]);
    close(fds[1]);
}

static atomic_uint good_lines;

static void check_whole(void *ctx, log_level level, const char *line, size_t len)
{
    if (len == 10 && memcmp(line, "info t ", 7) == 0 && line[7] == line[8] && line[9] == '\n') {
        atomic_fetch_add(&good_lines, 1);
    }
}

static void *log_a_lot(void *arg)
{
    for (int i = 0; i < 1000; i++) {
        log_emit(LOG_INFO, "t", "%s", (const char *)arg);
    }
    return NULL;
}

static void test_threads(void **state)
{
    pthread_t t[3];
    static char text[3][3] = {"aa", "bb", "cc"};
    log_set_sink(check_whole, NULL, LOG_DEBUG);
    for (size_t i = 0; i < N_OF(t); i++) {
        assert_int_equal(pthread_create(&t[i], NULL, log_a_lot, text[i]), 0);
    }
    for (size_t i = 0; i < N_OF(t); i++) {
        pthread_join(t[i], NULL);
    }
    log_set_sink(NULL, NULL, LOG_DEBUG);
    assert_int_equal(atomic_load(&good_lines), 3000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fake_clock), cmocka_unit_test(test_system_clock),
        cmocka_unit_test(test_line),       cmocka_unit_test(test_cut),
        cmocka_unit_test(test_fd_sink),    cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
