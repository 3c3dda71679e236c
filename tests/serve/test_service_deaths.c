/*
 * model_service when its worker dies, breaks the protocol, stands still or cannot be started: PROTOCOL 6, and
 * FAILURES H1 and L2.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "serve/service_bench.h"
#include "wire/status_page.h"

static bool is_failed(void *ctx)
{
    return bench_info(ctx).state == SERVICE_FAILED;
}

static bool is_stalled(void *ctx)
{
    return bench_info(ctx).state == SERVICE_STALLED;
}

static bool has_started_twice_and_is_ready(void *ctx)
{
    return bench_info(ctx).n_starts == 2 && bench_is_ready(ctx);
}

static bool has_token(void *ctx)
{
    return ((client *)ctx)->n_tokens > 0;
}

static uint64_t wanted_starts;

static bool has_begun_to_start(void *ctx)
{
    return bench_info(ctx).n_starts == wanted_starts;
}

static bool has_started_enough(void *ctx)
{
    return has_begun_to_start(ctx) && bench_is_ready(ctx);
}

/* Its back-off passes; that the worker is loaded takes real time: none must pass for it. */
static void wait_for_start(bench *b, uint64_t n)
{
    wanted_starts = n;
    bench_until_later(b, has_begun_to_start, b);
    bench_until(b, bench_is_ready, b);
}

/* Until the counter has moved, while time stands still, and the service has seen it. */
static void wait_for_move(bench *b, status_row row)
{
    status_snapshot before, now;
    service_page(b->service, &before);
    do {
        bench_run_ms(b, 1);
        service_page(b->service, &now);
    } while (now.row[row] == before.row[row]);
    bench_later(b, 1);
}

/*
 * Deaths.
 */
static void a_death_is_a_pause(void **state)
{
    static const struct {
        const char *last_words;
        worker_cause cause;
        const char *logged;
    } rows[] = {{"die", WORKER_EXITED, "exit status 3"},
                {"kill", WORKER_KILLED, "signal 11"},
                {"signal 9", WORKER_KILLED, "signal 9"},
                {"close", WORKER_BROKEN, "does not speak"}};
    for (size_t i = 0; i < N_OF(rows); i++) {
        bench b;
        client dying, other, waiting;
        char prompt[64];
        bench_open(&b, "lanes 1", NULL, NULL);
        bench_start(&b);
        client_submit(&b, &other, "other", 0, "say x gate say y");
        bench_until(&b, has_token, &other);
        snprintf(prompt, sizeof prompt, "say half once %s say rest", rows[i].last_words);
        client_submit(&b, &dying, "dying", 0, prompt);
        client_submit(&b, &waiting, "waiting", 0, "say whole");
        client_wait(&b, &dying);
        client_wait(&b, &waiting);
        bench_open_gate(&b);
        client_wait(&b, &other);
        assert_string_equal(dying.text, "half rest ");
        assert_string_equal(other.text, "x y ");
        assert_string_equal(waiting.text, "whole ");
        service_info info = bench_info(&b);
        assert_int_equal(info.n_deaths[rows[i].cause], 1);
        assert_int_equal(info.n_starts, 2);
        assert_int_equal(info.n_resumed, 2);
        assert_int_equal(info.n_resumed_tokens, 2);
        assert_int_equal(info.n_blamed, 0);
        assert_true(bench_logged(&b, rows[i].logged) > 0);
        assert_int_equal(bench_logged(&b, "worker=gone"), 1);
        bench_close(&b);
    }
}

static void broken_protocol_costs_the_worker(void **state)
{
    static const struct {
        const char *prompt, *detail;
    } rows[] = {
        {"say x garbage hang", "broken_protocol"},    {"say x stray", "no request that runs"},
        {"say x never hang", "no request that runs"}, {"say x no_id hang", "without an id"},
        {"say x error_no_id hang", "without an id"},  {"say x ready hang", "second ready"},
        {"say x accept hang", "second accepted"},     {"say x answer hang", "answer of an op"},
        {"say x attach hang", "attachment"},
    };
    for (size_t i = 0; i < N_OF(rows); i++) {
        bench b;
        client c, next;
        bench_open_still(&b, "", NULL);
        bench_start(&b);
        client_submit(&b, &c, "c", 0, rows[i].prompt);
        client_wait(&b, &c);
        if (strcmp(rows[i].prompt, "say x stray") == 0) {
            assert_string_equal(c.reason, "stop"); /* it had ended before the break */
        } else {
            assert_true(c.lost && c.code == ST_WORKER_CRASHED);
        }
        assert_string_equal(c.text, "x ");
        size_t n = c.lost ? 2 : 1; /* it is tried once more */
        wait_for_start(&b, n + 1);
        client_submit(&b, &next, "next", 0, "say y");
        client_wait(&b, &next);
        assert_string_equal(next.text, "y ");
        assert_int_equal(bench_info(&b).n_deaths[WORKER_BROKEN], n);
        assert_int_equal(bench_info(&b).n_blamed, n - 1);
        assert_int_equal(bench_logged(&b, "cause=broken_protocol"), n);
        assert_true(bench_logged(&b, rows[i].detail) > 0);
        bench_close(&b);
    }
}

/* An id that the worker cannot know yet. */
static void a_frame_for_a_job_that_waits_is_broken_protocol(void **state)
{
    bench b;
    client c[3];
    bench_open(&b, "lanes 1", NULL, NULL);
    bench_start(&b);
    client_submit(&b, &c[0], "first", 0, "say x gate say z");
    bench_until(&b, has_token, &c[0]);
    client_submit(&b, &c[1], "second", 0, "other third hang");
    client_submit(&b, &c[2], "third", 0, "say y");
    client_wait(&b, &c[1]);
    assert_true(c[1].lost && c[1].code == ST_WORKER_CRASHED);
    client_wait(&b, &c[2]);
    assert_string_equal(c[2].text, "y ");
    bench_open_gate(&b);
    client_wait(&b, &c[0]);
    assert_string_equal(c[0].text, "x z ");
    assert_int_equal(bench_info(&b).n_deaths[WORKER_BROKEN], 2);
    bench_close(&b);
}

static void a_worker_that_starts_badly_is_given_up(void **state)
{
    static const struct {
        const char *mode;
        worker_cause cause;
    } rows[] = {{"exit", WORKER_EXITED},
                {"garbage", WORKER_BROKEN},
                {"two_ready", WORKER_BROKEN},
                {"early", WORKER_BROKEN},
                {"stuck", WORKER_STALLED}};
    for (size_t i = 0; i < N_OF(rows); i++) {
        bench b;
        client waiting, late;
        service_limits l = bench_limits();
        l.stall_ms = rows[i].cause == WORKER_STALLED ? 300 : l.stall_ms;
        bench_open(&b, rows[i].mode, &l, NULL);
        bool submitted = i != 2; /* a ready frame comes before the second one */
        if (submitted) {
            assert_int_equal(client_submit(&b, &waiting, "w", 0, "say x"), ST_OK);
        }
        service_start(b.service);
        bench_until(&b, is_failed, &b);
        if (submitted) {
            client_wait(&b, &waiting);
            assert_true(waiting.lost && waiting.code == ST_WORKER_CRASHED);
        }
        service_info info = bench_info(&b);
        assert_int_equal(info.n_starts, 3); /* max_respawns is 2 */
        assert_int_equal(info.n_deaths[rows[i].cause], 3);
        assert_int_equal(bench_logged(&b, "wait_ms=0 "), 1);
        assert_int_equal(bench_logged(&b, "wait_ms=250 "), 1);
        assert_int_equal(client_submit(&b, &late, "l", 0, "say x"), ST_WORKER_CRASHED); /* at once */
        assert_int_equal(bench_info(&b).n_starts, 3);
        bench_close(&b);
    }
}

static void a_token_is_a_new_beginning(void **state)
{
    bench b;
    client c;
    bench_open_still(&b, "", NULL);
    bench_start(&b);
    for (size_t i = 0; i < 5; i++) { /* more than max_respawns */
        client_submit(&b, &c, "c", 0, "say x die");
        client_wait(&b, &c);
        assert_true(c.lost);
        wait_for_start(&b, 2 * i + 3);
    }
    client_submit(&b, &c, "c", 0, "say y");
    client_wait(&b, &c);
    assert_string_equal(c.text, "y ");
    assert_int_equal(bench_logged(&b, "wait_ms=0 "), 5);
    assert_int_equal(bench_logged(&b, "wait_ms=250 "), 5); /* each was tried again, without a new token */
    bench_close(&b);
}

static void without_a_token_in_between_deaths_add_up(void **state)
{
    bench b;
    client c;
    bench_open(&b, "", NULL, NULL);
    bench_start(&b);
    for (int i = 0; i < 2; i++) { /* two deaths by the first, and one */
        assert_int_equal(client_submit(&b, &c, "c", 0, "die"), ST_OK);
        client_wait(&b, &c);
        assert_true(c.lost && c.code == ST_WORKER_CRASHED);
    }
    bench_until(&b, is_failed, &b);
    assert_int_equal(bench_info(&b).n_starts, 3);
    assert_int_equal(bench_info(&b).n_blamed, 1);
    bench_close(&b);
}

static bool is_killed_again(void *ctx)
{
    return bench_info(ctx).n_deaths[WORKER_KILLED] == 6;
}

/* Deaths that lie far apart do not add up, also where nobody asks for a token. */
static void a_steady_time_is_a_new_beginning(void **state)
{
    bench b;
    bench_open_still(&b, "", NULL);
    bench_start(&b);
    for (wanted_starts = 2; wanted_starts < 7; wanted_starts++) { /* more than max_respawns */
        bench_later(&b, bench_limits().steady_ms);
        kill(bench_info(&b).pid, SIGKILL);
        bench_until(&b, has_started_enough, &b);
    }
    assert_int_equal(bench_logged(&b, "wait_ms=0 deaths=1"), 5);
    kill(bench_info(&b).pid, SIGKILL); /* at once: it adds to the last one */
    bench_until(&b, is_killed_again, &b);
    wait_for_start(&b, wanted_starts);
    assert_int_equal(bench_logged(&b, "wait_ms=250 deaths=2"), 1);
    bench_close(&b);
}

static void found_dead_while_idle(void **state)
{
    bench b;
    client c;
    bench_open(&b, "", NULL, NULL);
    bench_start(&b);
    kill(bench_info(&b).pid, SIGKILL);
    bench_until(&b, has_started_twice_and_is_ready, &b); /* nobody asked */
    client_submit(&b, &c, "c", 0, "say x");
    client_wait(&b, &c);
    assert_string_equal(c.text, "x ");
    assert_int_equal(bench_info(&b).n_deaths[WORKER_KILLED], 1);
    assert_true(bench_logged(&b, "signal 9") == 1);
    bench_close(&b);
}

/* FAILURES L2: 100 requests for a corrupt file. */
static void a_failed_load_is_remembered(void **state)
{
    bench b;
    client waiting, c;
    char flag[128];
    static char word[] = "bad_if";
    bench_open_still(&b, "", NULL);
    snprintf(flag, sizeof flag, "%s/bad", b.dir);
    b.argv[3] = word;
    b.argv[4] = flag;
    fclose(fopen(flag, "w"));
    client_submit(&b, &waiting, "w", 0, "say x");
    service_start(b.service);
    client_wait(&b, &waiting);
    assert_true(waiting.lost && waiting.code == ST_LOAD_FAILED);
    assert_non_null(strstr(waiting.message, "blk.0.attn_q.weight"));
    for (int i = 0; i < 100; i++) {
        assert_int_equal(client_submit(&b, &c, "c", 0, "say x"), ST_LOAD_FAILED);
        assert_non_null(strstr(c.message, "blk.0.attn_q.weight"));
    }
    bench_later(&b, 5000);
    assert_int_equal(bench_info(&b).n_starts, 1);                    /* nobody asked: not tried again */
    assert_int_equal(client_submit(&b, &c, "c", 0, "say x"), ST_OK); /* 1 s has passed */
    client_wait(&b, &c);
    assert_true(c.lost && c.code == ST_LOAD_FAILED);
    assert_int_equal(bench_info(&b).n_starts, 2);
    remove(flag);
    bench_later(&b, 1900);
    assert_int_equal(client_submit(&b, &c, "c", 0, "say x"), ST_LOAD_FAILED); /* not before 2 s */
    bench_later(&b, 100);
    assert_int_equal(client_submit(&b, &c, "c", 0, "say x"), ST_OK);
    client_wait(&b, &c);
    assert_string_equal(c.text, "x "); /* the file was mended */
    assert_int_equal(bench_info(&b).n_starts, 3);
    bench_close(&b);
}

static void a_load_belongs_to_the_daemon(void **state)
{
    bench b;
    client c;
    char flag[128];
    static char word[] = "slow";
    bench_open_still(&b, "", NULL);
    snprintf(flag, sizeof flag, "%s/go", b.dir);
    b.argv[3] = word;
    b.argv[4] = flag;
    service_start(b.service);
    client_submit(&b, &c, "c", 0, "say never");
    for (int i = 0; i < 5; i++) { /* much longer than the stall limit, but its counters move */
        wait_for_move(&b, STATUS_ROW_LOADED_BYTES);
        bench_later(&b, 15000);
    }
    assert_int_equal(bench_info(&b).n_starts, 1);
    service_cancel(b.service, &c.job);
    fclose(fopen(flag, "w"));
    bench_until(&b, bench_is_ready, &b);
    assert_int_equal(bench_info(&b).n_starts, 1);
    bench_close(&b);
}

static void a_program_that_does_not_exist(void **state)
{
    bench b;
    client c;
    bench_open(&b, "", NULL, "/nonexistent/worker");
    client_submit(&b, &c, "c", 0, "say x");
    service_start(b.service);
    client_wait(&b, &c);
    assert_true(c.lost && c.code == ST_WORKER_CRASHED);
    bench_until(&b, is_failed, &b); /* it was tried again first: what is missing may come */
    assert_int_equal(bench_info(&b).n_deaths[WORKER_NOT_STARTED], 3);
    assert_int_equal(bench_info(&b).n_starts, 0);
    assert_non_null(strstr(bench_info(&b).failure, "/nonexistent/worker"));
    bench_close(&b);
}

static bool could_not_be_started(void *ctx)
{
    return bench_info(ctx).n_deaths[WORKER_NOT_STARTED] > 0;
}

/* EMFILE: the requests that wait fail at once, the daemon goes on and so does the model, later, and what has begun. */
static void no_descriptors_for_a_worker(void **state)
{
    bench b;
    client c, next, other;
    struct rlimit before, few;
    service_limits l = bench_limits();
    l.max_respawns = 9;
    bench_open(&b, "", &l, NULL);
    bench_start(&b);
    getrlimit(RLIMIT_NOFILE, &before);
    few = before;
    few.rlim_cur = 3;
    setrlimit(RLIMIT_NOFILE, &few);
    client_submit(&b, &c, "c", 0, "say a once die say b");
    bench_until(&b, could_not_be_started, &b);
    client_submit(&b, &next, "next", 0, "say x");
    client_submit(&b, &other, "other", 0, "say y");
    other.job.has_begun = true; /* of one request with c */
    client_wait(&b, &next);
    setrlimit(RLIMIT_NOFILE, &before);
    assert_true(next.lost && next.code == ST_WORKER_CRASHED);
    assert_true(bench_info(&b).n_deaths[WORKER_NOT_STARTED] > 0);
    assert_true(bench_logged(&b, "Too many open files") > 0);
    client_wait(&b, &c);
    assert_string_equal(c.text, "a b ");
    client_wait(&b, &other);
    assert_string_equal(other.text, "y ");
    assert_int_equal(bench_info(&b).n_starts, 2);
    bench_close(&b);
}

/*
 * Stall.
 */
static bool has_stalled(void *ctx)
{
    return bench_info(ctx).n_deaths[WORKER_STALLED] > 0;
}

static void a_standstill_costs_the_worker(void **state)
{
    static const char *const rows[][2] = {
        {"", "say x still hang"}, {"", "say x freeze"}, {"no_counters", "say x hang"}};
    for (size_t i = 0; i < N_OF(rows); i++) {
        bench b;
        client c, next;
        service_limits l = bench_limits();
        l.stall_ms = 6000; /* twice, of a clock that only goes on while it shall stall */
        bench_open_still(&b, rows[i][0], &l);
        bench_start(&b);
        client_submit(&b, &c, "c", 0, rows[i][1]);
        bench_until(&b, has_token, &c);
        bench_run_ms(&b, 100);
        uint64_t ms = bench_until_later(&b, has_stalled, &b);
        assert_true(ms >= l.stall_ms);
        bench_until(&b, has_started_twice_and_is_ready, &b);
        bench_run_ms(&b, 100);
        ms = bench_until_later(&b, client_is_over, &c); /* it is tried once more */
        assert_true(ms >= l.stall_ms);
        assert_true(c.lost && c.code == ST_WORKER_CRASHED);
        assert_string_equal(c.text, "x ");
        assert_int_equal(bench_info(&b).n_deaths[WORKER_STALLED], 2);
        assert_int_equal(bench_logged(&b, "cause=stalled"), 2);
        bench_later(&b, 300); /* its back-off */
        client_submit(&b, &next, "next", 0, "say y");
        client_wait(&b, &next);
        assert_string_equal(next.text, "y ");
        bench_close(&b);
    }
}

static void progress_is_never_killed(void **state)
{
    bench b;
    client c;
    bench_open_still(&b, "", NULL);
    bench_start(&b);
    client_submit(&b, &c, "c", 0, "hang"); /* no frame */
    for (int i = 0; i < 5; i++) {
        wait_for_move(&b, STATUS_ROW_TICK);
        bench_later(&b, 15000);
    }
    service_stop(b.service, &c.job);
    client_wait(&b, &c);
    assert_string_equal(c.reason, "cancelled");
    bench_later(&b, 60000); /* and an idle worker moves nothing */
    assert_int_equal(bench_info(&b).n_starts, 1);
    bench_close(&b);
}

/* FAILURES H1: not healthy within the limit, also when nobody asks it for anything. */
static void a_suspended_worker_is_not_healthy(void **state)
{
    bench b;
    bench_open(&b, "", NULL, NULL);
    bench_start(&b);
    kill(bench_info(&b).pid, SIGSTOP);
    bench_until(&b, is_stalled, &b);
    kill(bench_info(&b).pid, SIGCONT);
    bench_until(&b, bench_is_ready, &b);
    assert_int_equal(bench_info(&b).n_starts, 1);
    bench_close(&b);
}

static void a_standstill_shows_before_the_end(void **state)
{
    bench b;
    client c;
    bench_open_still(&b, "", NULL);
    bench_start(&b);
    client_submit(&b, &c, "c", 0, "say x still hang");
    bench_until(&b, has_token, &c);
    uint64_t ms = bench_until_later(&b, is_stalled, &b);
    assert_true(ms >= bench_limits().stall_ms / 2);
    assert_int_equal(bench_info(&b).n_deaths[WORKER_STALLED], 0);
    bench_close(&b);
}

/* Time that stands still for the worker and the daemon alike, by a clock that jumps. */
static void time_without_the_daemon_does_not_count(void **state)
{
    bench b;
    client c;
    bench_open_still(&b, "", NULL);
    bench_start(&b);
    client_submit(&b, &c, "c", 0, "say x still hang");
    bench_until(&b, has_token, &c);
    bench_run_ms(&b, 100);
    bench_later(&b, 10000);
    clock_fake_advance_ms(&b.still, 3600000); /* stopped for an hour, in the middle of the limit */
    bench_run_ms(&b, 100);
    bench_later(&b, 5000);
    assert_false(has_stalled(&b));
    bench_until_later(&b, has_stalled, &b);
    assert_false(c.lost); /* it goes on */
    bench_close(&b);
}

/* What a client that reads slowly has paused counts as no work, but a suspect is not held back, so it does. */
static void a_paused_suspect_that_stands_still_costs_the_worker(void **state)
{
    bench b;
    client c;
    bench_open_still(&b, "", NULL);
    bench_start(&b);
    client_submit(&b, &c, "c", 0, "say a still gate");
    bench_until(&b, has_token, &c);
    service_pause(b.service, &c.job, true);
    kill(bench_info(&b).pid, SIGSEGV);
    bench_until(&b, has_started_twice_and_is_ready, &b);
    bench_until_later(&b, client_is_over, &c);
    assert_true(c.lost && c.code == ST_WORKER_CRASHED);
    service_info info = bench_info(&b);
    assert_int_equal(info.n_deaths[WORKER_KILLED], 1);
    assert_int_equal(info.n_deaths[WORKER_STALLED], 1);
    bench_close(&b);
}

static status no_memory_for_it(void *ctx, const service_model *m)
{
    return ST_NOMEM;
}

/* It was to be tried first; the other one waited for its trial to end. */
static void a_suspect_that_cannot_be_sent_holds_nobody_up(void **state)
{
    bench b;
    client first, second;
    bench_open(&b, "batch", NULL, NULL);
    bench_start(&b);
    client_submit(&b, &first, "first", 0, "say a gate say b");
    bench_until(&b, has_token, &first);
    client_submit(&b, &second, "second", 0, "say c gate say d");
    bench_until(&b, has_token, &second);
    first.job.complete = no_memory_for_it;
    kill(bench_info(&b).pid, SIGSEGV);
    client_wait(&b, &first);
    assert_true(first.lost && first.code == ST_NOMEM);
    bench_open_gate(&b);
    client_wait(&b, &second);
    assert_string_equal(second.text, "c d ");
    bench_close(&b);
}

#define TEST(name) cmocka_unit_test(name)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(a_death_is_a_pause),
        TEST(broken_protocol_costs_the_worker),
        TEST(a_frame_for_a_job_that_waits_is_broken_protocol),
        TEST(a_worker_that_starts_badly_is_given_up),
        TEST(a_token_is_a_new_beginning),
        TEST(without_a_token_in_between_deaths_add_up),
        TEST(a_steady_time_is_a_new_beginning),
        TEST(found_dead_while_idle),
        TEST(a_failed_load_is_remembered),
        TEST(a_load_belongs_to_the_daemon),
        TEST(a_program_that_does_not_exist),
        TEST(no_descriptors_for_a_worker),
        TEST(a_standstill_costs_the_worker),
        TEST(progress_is_never_killed),
        TEST(a_suspended_worker_is_not_healthy),
        TEST(a_standstill_shows_before_the_end),
        TEST(time_without_the_daemon_does_not_count),
        TEST(a_paused_suspect_that_stands_still_costs_the_worker),
        TEST(a_suspect_that_cannot_be_sent_holds_nobody_up),
    };
    signal(SIGPIPE, SIG_IGN);
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
