/*
 * model_service around stub_worker.py, over real processes and pipes: jobs, the queue, cancel and pause, the
 * end. What must happen is PROTOCOL 6 and DESIGN 8; FAILURES C2, C4 and C8 are here too.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "serve/service_bench.h"
#include "wire/status_page.h"

static bool is_down(void *ctx)
{
    return bench_info(ctx).n_starts == 0;
}

static bool is_failed(void *ctx)
{
    return bench_info(ctx).state == SERVICE_FAILED;
}

static bool is_stopped(void *ctx)
{
    return service_stopped(((bench *)ctx)->service);
}

static bool is_stalled(void *ctx)
{
    return bench_info(ctx).state == SERVICE_STALLED;
}

static bool has_read_two(void *ctx)
{
    return bench_seen(ctx, "", NULL) >= 2;
}

static bool has_no_light(void *ctx)
{
    return bench_info(ctx).n_light == 0;
}

static bool is_quiet(void *ctx)
{
    return bench_info(ctx).n_with_worker == 0;
}

static bool has_token(void *ctx)
{
    return ((client *)ctx)->n_tokens > 0;
}

/*
 * Replies.
 */
static void reply_and_reuse(void **state)
{
    bench b;
    client a, c;
    bench_open(&b, "", NULL, NULL);
    assert_true(is_down(&b));
    assert_int_equal(client_submit(&b, &a, "a", 0, "say x say y"), ST_OK); /* it waits for the worker */
    bench_start(&b);
    service_info before = bench_info(&b);
    client_wait(&b, &a);
    assert_string_equal(a.text, "x y ");
    assert_string_equal(a.reason, "stop");
    assert_int_equal(client_submit(&b, &c, "c", 0, "say z error nonfinite"), ST_OK);
    client_wait(&b, &c);
    assert_int_equal(c.code, ST_NONFINITE);
    assert_int_equal(client_submit(&b, &c, "a", 0, "say again"), ST_OK); /* the id is free again */
    client_wait(&b, &c);
    assert_string_equal(c.text, "again ");
    service_info after = bench_info(&b);
    assert_int_equal(after.pid, before.pid); /* a reported error keeps the worker */
    assert_int_equal(after.n_starts, 1);
    assert_string_equal(after.model.arch, "stub");
    assert_int_equal(after.model.lanes, 8);
    assert_true(after.job_s > 0 && after.job_s < 20);
    status_snapshot page;
    service_page(b.service, &page);
    assert_int_equal(page.row[STATUS_ROW_PID], after.pid);
    assert_int_equal(page.row[STATUS_ROW_INPUT_LINES], 3);
    bench_close(&b);
}

static void requests_run_together(void **state)
{
    bench b;
    client slow, quick;
    bench_open(&b, "", NULL, NULL);
    bench_start(&b);
    client_submit(&b, &slow, "slow", 0, "say a hang");
    client_submit(&b, &quick, "quick", 0, "say b");
    client_wait(&b, &quick);
    bench_until(&b, has_token, &slow);
    assert_false(slow.ended);
    assert_string_equal(slow.text, "a ");
    service_cancel(b.service, &slow.job);
    bench_close(&b);
}

static void an_id_in_use_is_refused(void **state)
{
    bench b;
    client a, c;
    bench_open(&b, "", NULL, NULL);
    bench_start(&b);
    client_submit(&b, &a, "same", 0, "hang");
    assert_int_equal(client_submit(&b, &c, "same", 0, "say x"), ST_BAD_REQUEST);
    service_cancel(b.service, &a.job);
    assert_int_equal(client_submit(&b, &c, "same", 0, "say x"), ST_BAD_REQUEST); /* until its last frame */
    bench_until(&b, is_quiet, &b);
    assert_int_equal(client_submit(&b, &c, "same", 0, "say x"), ST_OK);
    client_wait(&b, &c);
    bench_close(&b);
}

static void many_ids_are_told_apart(void **state)
{
    enum { N = 3000 }; /* several in each bucket of the table */
    bench b;
    client *c = calloc(N, sizeof *c), again;
    service_limits l = bench_limits();
    l.max_waiting = N;
    bench_open(&b, "", &l, NULL);
    for (size_t i = 0; i < N; i++) {
        char id[16];
        snprintf(id, sizeof id, "m%zu", i);
        assert_int_equal(client_submit(&b, &c[i], id, (uint32_t)(i % 7), "x"), ST_OK);
    }
    for (size_t i = 0; i < N; i += 2) {
        service_cancel(b.service, &c[i].job);
    }
    for (size_t i = 0; i < N; i++) {
        status st = client_submit(&b, &again, c[i].job.id, 0, "x");
        assert_int_equal(st, i % 2 ? ST_BAD_REQUEST : ST_OK);
        if (st == ST_OK) {
            service_cancel(b.service, &again.job);
        }
    }
    assert_int_equal(bench_info(&b).n_waiting, N / 2);
    bench_close(&b);
    free(c);
}

/*
 * The queue.
 */
static void the_worker_gets_two_per_lane_and_keys_take_turns(void **state)
{
    static const struct {
        const char *id;
        uint32_t key;
    } jobs[] = {{"j0", 1}, {"j1", 1}, {"j2", 1}, {"j3", 1}, {"j4", 1}, {"j5", 2}, {"j6", 2}, {"j7", 3}};
    static const char *const order[] = {"j0", "j1", "j2", "j5", "j7", "j3", "j6", "j4"};
    bench b;
    client c[8];
    bench_open(&b, "lanes 1", NULL, NULL);
    bench_start(&b);
    for (size_t i = 0; i < 8; i++) {
        client_submit(&b, &c[i], jobs[i].id, jobs[i].key, i < 2 ? "hang" : "say x");
    }
    assert_int_equal(bench_info(&b).n_with_worker, 2);
    assert_int_equal(bench_info(&b).n_waiting, 6);
    for (size_t n = 0; n < 8; n++) {
        for (size_t i = 0; i < 8; i++) {
            if (strcmp(jobs[i].id, order[n]) == 0) {
                assert_int_equal(service_position(b.service, &c[i].job, NULL), n < 2 ? 0 : n - 1);
            }
        }
    }
    bench_until(&b, has_read_two, &b);
    bench_run_ms(&b, 50);
    assert_int_equal(bench_seen(&b, "", NULL), 2); /* nothing more was sent */
    service_cancel(b.service, &c[0].job);
    service_cancel(b.service, &c[1].job);
    for (size_t i = 2; i < 8; i++) {
        client_wait(&b, &c[i]);
    }
    size_t at = 0;
    for (size_t n = 2; n < 8; n++) {
        char id[16];
        size_t line = 0;
        snprintf(id, sizeof id, "\"id\":\"%s\"", order[n]);
        assert_int_equal(bench_seen(&b, id, &line), 1);
        assert_true(line > at);
        at = line;
    }
    bench_close(&b);
}

/* What waits goes by priority; what is with the worker and ranks behind it does not hold it back, up to four a lane. */
static void priorities(void **state)
{
    static const struct {
        const char *id;
        int32_t priority;
        size_t position; /* 0 = with the worker; as soon as it is there */
    } jobs[] = {{"j0", 0, 0}, {"j1", 0, 0},  {"low", -1, 1}, {"same", 0, 1}, {"up", 5, 0},
                {"j5", 0, 2}, {"up2", 5, 0}, {"up3", 5, 1},  {"top", 10, 1}, {"top2", 10, 2}};
    static const char *const order[] = {"top", "top2", "up3", "same", "j5", "low"};
    bench b;
    client c[N_OF(jobs)];
    bench_open_still(&b, "lanes 1", NULL);
    bench_start(&b);
    for (size_t i = 0; i < N_OF(jobs); i++) {
        client_fill(&c[i], jobs[i].id, 0, "hang");
        c[i].job.priority = jobs[i].priority;
        assert_int_equal(service_submit(b.service, &c[i].job, NULL), ST_OK);
        assert_int_equal(service_position(b.service, &c[i].job, NULL), jobs[i].position);
    }
    assert_int_equal(bench_info(&b).n_with_worker, 4);
    for (size_t n = 0; n < N_OF(order); n++) {
        for (size_t i = 0; i < N_OF(jobs); i++) {
            if (strcmp(jobs[i].id, order[n]) == 0) {
                assert_int_equal(service_position(b.service, &c[i].job, NULL), n + 1);
            }
        }
    }
    for (size_t i = 0; i < N_OF(jobs); i++) {
        service_cancel(b.service, &c[i].job);
    }
    bench_close(&b);
}

/* Each 2 s of waiting count as one more. */
static void priorities_age(void **state)
{
    bench b;
    client c[5];
    static const char *const ids[] = {"j0", "j1", "old", "young", "urgent"};
    bench_open_still(&b, "lanes 1", NULL);
    bench_start(&b);
    for (size_t i = 0; i < 5; i++) {
        client_fill(&c[i], ids[i], 0, "hang");
        c[i].job.priority = i == 3 ? 1 : i == 4 ? 2 : 0;
        if (i == 3) {
            bench_later(&b, 3000);
        }
        assert_int_equal(service_submit(b.service, &c[i].job, NULL), ST_OK);
    }
    /* 3 s ago and 0 are before now and 1, behind now and 2, which those two hold back no more */
    assert_int_equal(service_position(b.service, &c[4].job, NULL), 0);
    assert_int_equal(service_position(b.service, &c[2].job, NULL), 1);
    assert_int_equal(service_position(b.service, &c[3].job, NULL), 2);
    for (size_t i = 0; i < 5; i++) {
        service_cancel(b.service, &c[i].job);
    }
    bench_close(&b);
}

static void an_estimate_comes_from_what_jobs_took(void **state)
{
    bench b;
    client c[5];
    double s = 1;
    bench_open(&b, "lanes 1", NULL, NULL);
    bench_start(&b);
    client_submit(&b, &c[0], "first", 0, "wait 0.2");
    client_wait(&b, &c[0]);
    double job_s = bench_info(&b).job_s;
    assert_true(job_s >= 0.2 && job_s < 10);
    for (size_t i = 0; i < 5; i++) {
        char id[8];
        snprintf(id, sizeof id, "e%zu", i);
        client_submit(&b, &c[i], id, 0, "hang");
    }
    assert_int_equal(service_position(b.service, &c[4].job, &s), 3);
    assert_true(s > 1.49 * job_s && s < 1.51 * job_s); /* two leave in the time of one: 3 / 2 of it */
    assert_int_equal(service_position(b.service, &c[0].job, &s), 0);
    assert_true(s < 1e-9);
    bench_close(&b);
}

static void the_queue_is_bounded(void **state)
{
    bench b;
    client c[4];
    service_limits l = bench_limits();
    l.max_waiting = 3;
    l.max_waiting_bytes = 1000;
    bench_open(&b, "", &l, NULL); /* not started: all wait */
    char big[1200];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = 0;
    assert_int_equal(client_submit(&b, &c[0], "big", 0, big), ST_QUEUE_FULL);
    assert_int_equal(client_submit(&b, &c[0], "a", 0, "say x"), ST_OK);
    assert_int_equal(client_submit(&b, &c[1], "b", 1, "say x"), ST_OK);
    assert_int_equal(client_submit(&b, &c[2], "c", 2, "say x"), ST_OK);
    assert_int_equal(client_submit(&b, &c[3], "d", 3, "say x"), ST_QUEUE_FULL);
    service_cancel(b.service, &c[1].job);
    assert_int_equal(client_submit(&b, &c[3], "d", 3, "say x"), ST_OK);
    assert_int_equal(bench_info(&b).n_waiting, 3);
    assert_true(bench_info(&b).waiting_bytes > 0);
    bench_close(&b);
}

static status make_longer(void *ctx, const service_model *m)
{
    buf *line = &((client *)ctx)->job.line;
    buf_truncate(line, line->len - 2);
    return buf_printf(line, ",\"more\":\"%01200d\"}\n", 0);
}

static bool is_with_the_worker(void *ctx)
{
    return bench_info(ctx).n_with_worker == 1;
}

/* What the model is known for only later may make a line longer than all may be. */
static void a_line_that_has_grown_leaves_no_room(void **state)
{
    bench b;
    client grown, next;
    service_limits l = bench_limits();
    err e;
    l.max_waiting_bytes = 1000;
    bench_open(&b, "", &l, NULL);
    client_fill(&grown, "grown", 0, "hang");
    grown.job.complete = make_longer;
    assert_int_equal(service_submit(b.service, &grown.job, &e), ST_OK);
    bench_start(&b);
    bench_until(&b, is_with_the_worker, &b);
    assert_true(bench_info(&b).waiting_bytes > l.max_waiting_bytes);
    assert_int_equal(client_submit(&b, &next, "next", 0, "say x"), ST_QUEUE_FULL);
    service_cancel(b.service, &grown.job);
    assert_int_equal(client_submit(&b, &next, "next", 0, "say x"), ST_OK);
    client_wait(&b, &next);
    bench_close(&b);
}

static void light_jobs_do_not_wait_and_are_bounded(void **state)
{
    bench b;
    client busy[3], ops[4];
    service_limits l = bench_limits();
    l.max_waiting = 3;
    l.max_light_bytes = 1000;
    char big[1200];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = 0;
    memcpy(big, "\"op\":\"tokenize\",\"text\":\"", 24);
    big[sizeof big - 2] = '"';
    bench_open(&b, "lanes 1", &l, NULL);
    bench_start(&b);
    for (size_t i = 0; i < 3; i++) {
        client_submit(&b, &busy[i], (const char *[]){"a", "b", "c"}[i], 0, "hang");
    }
    assert_int_equal(client_submit_op(&b, &ops[0], "big", big), ST_QUEUE_FULL);
    client_submit_op(&b, &ops[0], "op0", "\"op\":\"detokenize\",\"ids\":[3,1,2]");
    client_wait(&b, &ops[0]);
    assert_string_equal(ops[0].text, "3 1 2");
    for (size_t i = 0; i < 3; i++) {
        char id[8];
        snprintf(id, sizeof id, "w%zu", i);
        assert_int_equal(client_submit_op(&b, &ops[i], id, "\"op\":\"tokenize\",\"text\":\"wait 0.2\""),
                         ST_OK);
    }
    assert_int_equal(client_submit_op(&b, &ops[3], "w3", "\"op\":\"tokenize\",\"text\":\"x\""),
                     ST_QUEUE_FULL);
    assert_int_equal(bench_info(&b).n_light, 3);
    service_cancel(b.service, &ops[0].job); /* given up: its answer is dropped, no cancel is sent */
    client_wait(&b, &ops[1]);
    client_wait(&b, &ops[2]);
    bench_until(&b, has_no_light, &b);
    assert_int_equal(bench_seen(&b, "cancel", NULL), 0);
    assert_int_equal(bench_info(&b).n_starts, 1);
    bench_close(&b);
}

/* FAILURES C2 and C4. */
static void a_waiting_job_that_is_cancelled_is_never_sent(void **state)
{
    bench b;
    client a, c, d;
    bench_open(&b, "lanes 1", NULL, NULL);
    bench_start(&b);
    client_submit(&b, &a, "a", 0, "say 1 gate say 2");
    client_submit(&b, &c, "filler", 0, "gate");
    client_submit(&b, &d, "gone", 0, "say never");
    service_cancel(b.service, &d.job);
    assert_null(d.job.entry);
    bench_open_gate(&b);
    client_wait(&b, &a);
    client_wait(&b, &c);
    assert_string_equal(a.text, "1 2 ");
    assert_string_equal(a.reason, "stop");
    assert_int_equal(bench_seen(&b, "never", NULL), 0);
    assert_int_equal(bench_seen(&b, "gone", NULL), 0);
    assert_int_equal(d.n_frames + d.lost + d.ended, 0);
    assert_int_equal(bench_info(&b).n_cancelled, 1);
    bench_close(&b);
}

static void deadlines(void **state)
{
    bench b;
    client busy[2], waiting, sent, op;
    uint64_t now = clock_mono_ns(clock_system());
    bench_open(&b, "lanes 1", NULL, NULL);
    bench_start(&b);
    client_fill(&sent, "sent", 0, "say x");
    sent.job.deadline_ns = clock_mono_ns(clock_system()) + UINT64_C(60000000000);
    assert_int_equal(service_submit(b.service, &sent.job, NULL), ST_OK);
    client_wait(&b, &sent);
    assert_true(bench_seen(&b, "\"deadline_ms\":5", NULL) + bench_seen(&b, "\"deadline_ms\":60000", NULL) ==
                1);
    client_submit(&b, &busy[0], "a", 0, "hang");
    client_submit(&b, &busy[1], "b", 0, "hang");
    client_fill(&waiting, "late", 0, "say never");
    waiting.job.deadline_ns = clock_mono_ns(clock_system()) + 100000000;
    assert_int_equal(service_submit(b.service, &waiting.job, NULL), ST_OK);
    client_fill(&op, "op", 0, "");
    buf_reset(&op.job.line);
    buf_append_str(&op.job.line, "{\"id\":\"op\",\"op\":\"tokenize\",\"text\":\"gate\"}\n");
    op.job.light = true;
    op.job.deadline_ns = clock_mono_ns(clock_system()) + 100000000;
    assert_int_equal(service_submit(b.service, &op.job, NULL), ST_OK);
    client_wait(&b, &waiting);
    client_wait(&b, &op);
    assert_true(waiting.lost && waiting.code == ST_TIMEOUT);
    assert_true(op.lost && op.code == ST_TIMEOUT);
    assert_true(clock_mono_ns(clock_system()) - now >= 100000000);
    assert_int_equal(bench_seen(&b, "never", NULL), 0);
    assert_int_equal(bench_info(&b).n_light, 1);
    bench_open_gate(&b);
    bench_until(&b, has_no_light, &b); /* the op's answer comes and is dropped */
    assert_int_equal(bench_info(&b).n_starts, 1);
    assert_false(busy[0].lost);
    bench_close(&b);
}

/*
 * Cancel and pause.
 */
static void frames_of_a_cancelled_one_are_dropped_until_its_last(void **state)
{
    bench b;
    client gone, other;
    bench_open(&b, "", NULL, NULL);
    bench_start(&b);
    client_submit(&b, &gone, "gone", 0, "late 50 say x hang");
    client_submit(&b, &other, "other", 0, "say 1 gate say 2");
    bench_until(&b, has_token, &gone);
    service_cancel(b.service, &gone.job);
    service_cancel(b.service, &gone.job); /* of one that has ended: nothing */
    size_t frames = gone.n_frames;
    bench_open_gate(&b);
    client_wait(&b, &other);
    bench_until(&b, is_quiet, &b);
    assert_int_equal(gone.n_frames, frames);
    assert_false(gone.ended || gone.lost);
    assert_string_equal(other.text, "1 2 ");
    service_info i = bench_info(&b);
    assert_int_equal(i.n_starts, 1);
    assert_int_equal(i.n_cancelled, 1);
    assert_int_equal(bench_seen(&b, "\"op\":\"cancel\"", NULL), 1);
    bench_close(&b);
}

static void stop_lets_the_job_end(void **state)
{
    bench b;
    client running, filler, waiting;
    bench_open(&b, "lanes 1", NULL, NULL);
    bench_start(&b);
    client_submit(&b, &running, "r", 0, "say x hang");
    client_submit(&b, &filler, "f", 0, "hang");
    client_submit(&b, &waiting, "w", 0, "say never");
    bench_until(&b, has_token, &running);
    service_stop(b.service, &running.job);
    service_stop(b.service, &running.job);
    service_stop(b.service, &waiting.job);
    assert_false(waiting.lost); /* not from inside */
    client_wait(&b, &running);
    client_wait(&b, &waiting);
    assert_string_equal(running.reason, "cancelled");
    assert_true(waiting.lost && waiting.code == ST_CANCELLED);
    assert_int_equal(bench_seen(&b, "never", NULL), 0);
    assert_int_equal(bench_info(&b).n_cancelled, 2);
    assert_int_equal(bench_seen(&b, "\"op\":\"cancel\"", NULL), 1);
    bench_close(&b);
}

static void a_cancel_that_is_not_answered_costs_the_worker(void **state)
{
    static const char *const prompts[] = {"ignore say x hang", "say x freeze"}; /* the second is C8 */
    for (size_t i = 0; i < N_OF(prompts); i++) {
        bench b;
        client deaf, other, next;
        service_limits l = bench_limits();
        l.cancel_grace_ms = 300;
        bench_open(&b, "lanes 1", &l, NULL);
        bench_start(&b);
        client_submit(&b, &other, "other", 0, "say x gate say z");
        bench_until(&b, has_token, &other);
        client_submit(&b, &deaf, "deaf", 0, prompts[i]);
        bench_until(&b, i == 0 ? has_token : is_stalled, i == 0 ? (void *)&deaf : (void *)&b);
        client_submit(&b, &next, "next", 0, "say y");
        service_cancel(b.service, &deaf.job);
        client_wait(&b, &next); /* went on to the next worker */
        assert_string_equal(next.text, "y ");
        bench_open_gate(&b);
        client_wait(&b, &other); /* and so did this one */
        assert_string_equal(other.text, "x z ");
        service_info info = bench_info(&b);
        assert_int_equal(info.n_deaths[WORKER_DEAF], 1);
        assert_int_equal(info.n_starts, 2);
        bench_close(&b);
    }
}

static void pause_and_continue(void **state)
{
    bench b;
    client c, op;
    bench_open_still(&b, "", NULL);
    bench_start(&b);
    client_submit(&b, &c, "p", 0, "still say a gate say b say c");
    bench_until(&b, has_token, &c);
    service_pause(b.service, &c.job, true);
    service_pause(b.service, &c.job, true);
    client_submit_op(&b, &op, "op", "\"op\":\"tokenize\",\"text\":\"x\"");
    client_wait(&b, &op); /* what was written before it has been read */
    bench_open_gate(&b);
    bench_later(&b, 60000); /* longer than the stall limit: a paused one is no work */
    assert_int_equal(c.n_tokens, 1);
    service_pause(b.service, &c.job, false);
    client_wait(&b, &c);
    assert_string_equal(c.text, "a b c ");
    assert_int_equal(bench_seen(&b, "\"op\":\"pause\"", NULL), 1);
    assert_int_equal(bench_seen(&b, "\"op\":\"continue\"", NULL), 1);
    assert_int_equal(bench_info(&b).n_starts, 1);
    bench_close(&b);
}

/*
 * Pipes.
 */
static void full_pipes_never_block_the_daemon(void **state)
{
    bench b;
    client *c = calloc(40, sizeof *c);
    char *prompt = malloc(60000);
    int n = sprintf(prompt, "many 20 5000 ");
    memset(prompt + n, 'w', 59000);
    prompt[n + 59000] = 0;
    /* it writes 100 KB before it reads the next 60 KB, through 4 KiB each way */
    bench_open(&b, "serial pipes 4096 lanes 20", NULL, NULL);
    bench_start(&b);
    for (size_t i = 0; i < 40; i++) {
        char id[8];
        snprintf(id, sizeof id, "p%zu", i);
        assert_int_equal(client_submit(&b, &c[i], id, 0, prompt), ST_OK);
    }
    for (size_t i = 0; i < 40; i++) {
        client_wait(&b, &c[i]);
        assert_int_equal(c[i].n_tokens, 20);
    }
    assert_int_equal(bench_info(&b).n_starts, 1);
    bench_close(&b);
    free(prompt);
    free(c);
}

/*
 * Owners.
 */
static void cancel_the_other(client *c)
{
    bench *b = c->then_ctx;
    client *others = c + 1;
    service_cancel(b->service, &others[0].job); /* lost as well, but not told yet */
    err e;
    client_fill(&others[1], "again", 0, "say x");
    assert_int_equal(service_submit(b->service, &others[1].job, &e), ST_OK);
}

static void owners_may_cancel_and_submit_from_their_callbacks(void **state)
{
    bench b;
    client c[3];
    bench_open(&b, "", NULL, NULL); /* not started: they wait */
    client_submit(&b, &c[0], "a", 0, "say x");
    client_submit(&b, &c[1], "b", 0, "say x");
    c[0].then = cancel_the_other;
    c[0].then_ctx = &b;
    service_stop(b.service, &c[0].job);
    service_stop(b.service, &c[1].job);
    client_wait(&b, &c[0]);
    service_start(b.service);
    assert_true(c[0].lost);
    assert_false(c[1].lost);
    client_wait(&b, &c[2]);
    assert_string_equal(c[2].text, "x ");
    bench_close(&b);
}

static void without_memory_a_job_is_refused_whole(void **state)
{
    bench b;
    client c;
    err e;
    bench_open(&b, "", NULL, NULL); /* not started: it waits */
    for (uint64_t n = 1;; n++) {
        client_fill(&c, "c", 0, "say x");
        mem_fail_at(n, false);
        status st = service_submit(b.service, &c.job, &e);
        mem_fail_at(0, false);
        if (st == ST_OK) {
            assert_true(n > 2); /* an entry and a key */
            break;
        }
        assert_int_equal(st, ST_NOMEM);
        assert_null(c.job.entry);
        assert_true(c.job.line.len > 0); /* it keeps its line */
        assert_int_equal(bench_info(&b).n_waiting, 0);
        buf_release(&c.job.line);
    }
    bench_start(&b);
    client_wait(&b, &c);
    assert_string_equal(c.text, "x ");
    bench_close(&b);
}

/* Whichever allocation fails while a request runs: it ends, and the next one is served. */
static void memory_that_fails_costs_a_request_at_most(void **state)
{
    bench b;
    client c, next;
    bench_open(&b, "", NULL, NULL);
    bench_start(&b);
    for (uint64_t n = 1; n <= 60; n++) {
        client_fill(&c, "c", 0, "say x say y");
        mem_fail_at(n, false);
        bool taken = service_submit(b.service, &c.job, NULL) == ST_OK;
        if (taken) {
            client_wait(&b, &c);
        } else {
            buf_release(&c.job.line);
        }
        mem_fail_at(0, false);
        assert_true(!taken || c.ended || c.code == ST_WORKER_CRASHED || c.code == ST_NOMEM);
        assert_int_equal(client_submit(&b, &next, "next", 0, "say z"), ST_OK);
        client_wait(&b, &next);
        assert_string_equal(next.text, "z ");
    }
    service_info info = bench_info(&b);
    assert_int_equal(info.n_starts, 1); /* what is set aside was enough each time */
    bench_close(&b);
}

/*
 * The end.
 */
static void a_drain_lets_replies_finish(void **state)
{
    bench b;
    client running, waiting, late;
    bench_open(&b, "lanes 1", NULL, NULL);
    bench_start(&b);
    client_submit(&b, &running, "r", 0, "say a gate say b");
    client_submit(&b, &late, "f", 0, "gate");
    client_submit(&b, &waiting, "w", 0, "say never");
    bench_until(&b, has_token, &running);
    service_drain(b.service);
    assert_false(waiting.lost);
    client_wait(&b, &waiting);
    assert_true(waiting.code == ST_DRAINING);
    assert_int_equal(bench_info(&b).state, SERVICE_DRAINING);
    bench_open_gate(&b);
    client_wait(&b, &running);
    client_wait(&b, &late);
    assert_string_equal(running.text, "a b ");
    assert_int_equal(client_submit(&b, &late, "l", 0, "say x"), ST_DRAINING);
    bench_until(&b, is_stopped, &b);
    assert_int_equal(bench_info(&b).n_deaths[WORKER_STOPPED], 1);
    assert_int_equal(bench_info(&b).n_starts, 1);
    bench_close(&b);
}

static void a_cut_ends_what_runs(void **state)
{
    static const char *const modes[] = {"", "deaf"};
    for (size_t i = 0; i < N_OF(modes); i++) {
        bench b;
        client c;
        bench_open(&b, modes[i], NULL, NULL);
        bench_start(&b);
        client_submit(&b, &c, "c", 0, "say x ignore hang");
        bench_until(&b, has_token, &c);
        pid_t pid = bench_info(&b).pid;
        service_drain(b.service);
        bench_run_ms(&b, 100);
        assert_false(c.lost);
        service_cut(b.service);
        assert_false(c.lost);
        client_wait(&b, &c);
        assert_true(c.code == ST_DRAINING);
        bench_until(&b, is_stopped, &b);
        assert_int_equal(kill(pid, 0), -1);
        assert_int_equal(bench_info(&b).n_starts, 1);
        bench_close(&b);
    }
}

/* Idle, loading, suspended, waiting for a respawn, given up, never started: it stops by itself in each. */
static void a_drain_stops_in_every_state(void **state)
{
    static const char *const modes[] = {"", "stuck", "stuck deaf", "exit", "load_failed", "-"};
    for (size_t i = 0; i < N_OF(modes); i++) {
        bench b;
        bench_open(&b, modes[i], NULL, NULL);
        if (modes[i][0] != '-') {
            service_start(b.service);
        }
        if (modes[i][0] == '\0') {
            bench_until(&b, bench_is_ready, &b);
        } else if (strcmp(modes[i], "load_failed") == 0) {
            bench_until(&b, is_failed, &b);
        } else {
            bench_run_ms(&b, 200);
        }
        size_t changes = b.n_changes;
        service_drain(b.service);
        assert_int_equal(b.n_changes, changes); /* told from the loop */
        bench_until(&b, is_stopped, &b);
        bench_run_ms(&b, 20);
        assert_true(b.n_changes > changes);
        assert_int_equal(bench_info(&b).pid, 0);
        bench_close(&b);
    }
}

static void a_death_while_draining_is_not_the_end_of_the_world(void **state)
{
    bench b;
    client c;
    bench_open(&b, "", NULL, NULL);
    bench_start(&b);
    client_submit(&b, &c, "c", 0, "say x gate once die say y");
    bench_until(&b, has_token, &c);
    service_drain(b.service);
    bench_open_gate(&b);
    client_wait(&b, &c);
    assert_string_equal(c.text, "x y ");
    bench_until(&b, is_stopped, &b);
    assert_int_equal(bench_info(&b).n_starts, 2);
    bench_close(&b);
}

static void freed_with_jobs_everywhere(void **state)
{
    bench b;
    client c[4];
    bench_open(&b, "lanes 1", NULL, NULL);
    bench_start(&b);
    for (size_t i = 0; i < 4; i++) {
        char id[8];
        snprintf(id, sizeof id, "f%zu", i);
        client_submit(&b, &c[i], id, (uint32_t)i, "hang");
    }
    service_cancel(b.service, &c[0].job);
    service_stop(b.service, &c[3].job);
    pid_t pid = bench_info(&b).pid;
    bench_close(&b);
    assert_int_equal(kill(pid, 0), -1);
    for (size_t i = 0; i < 4; i++) {
        assert_false(c[i].ended || c[i].lost);
        assert_null(c[i].job.entry);
        assert_null(c[i].job.line.data);
    }
}

#define TEST(name) cmocka_unit_test(name)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(reply_and_reuse),
        TEST(requests_run_together),
        TEST(an_id_in_use_is_refused),
        TEST(many_ids_are_told_apart),
        TEST(the_worker_gets_two_per_lane_and_keys_take_turns),
        TEST(priorities),
        TEST(priorities_age),
        TEST(an_estimate_comes_from_what_jobs_took),
        TEST(the_queue_is_bounded),
        TEST(a_line_that_has_grown_leaves_no_room),
        TEST(light_jobs_do_not_wait_and_are_bounded),
        TEST(a_waiting_job_that_is_cancelled_is_never_sent),
        TEST(deadlines),
        TEST(frames_of_a_cancelled_one_are_dropped_until_its_last),
        TEST(stop_lets_the_job_end),
        TEST(a_cancel_that_is_not_answered_costs_the_worker),
        TEST(pause_and_continue),
        TEST(full_pipes_never_block_the_daemon),
        TEST(owners_may_cancel_and_submit_from_their_callbacks),
        TEST(without_memory_a_job_is_refused_whole),
        TEST(memory_that_fails_costs_a_request_at_most),
        TEST(a_drain_lets_replies_finish),
        TEST(a_cut_ends_what_runs),
        TEST(a_drain_stops_in_every_state),
        TEST(a_death_while_draining_is_not_the_end_of_the_world),
        TEST(freed_with_jobs_everywhere),
    };
    signal(SIGPIPE, SIG_IGN);
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
