#include "serve/service_bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/log.h"
#include "serve/model_service_int.h" /* when it has looked */

#define PATIENCE_S 60
#define STEP_MS    300 /* two or three of them at one tick are no reason to think that the daemon stood still */

static buf the_log;

static void log_sink_buf(void *ctx, log_level level, const char *line, size_t len)
{
    buf_append(&the_log, line, len);
}

service_limits bench_limits(void)
{
    service_limits l = service_limits_default();
    l.stall_ms = 20000;
    l.cancel_grace_ms = 20000;
    l.tick_ms = 10;
    l.max_respawns = 2;
    return l;
}

static void on_changed(void *ctx, model_service *s)
{
    bench *b = ctx;
    b->n_changes++;
}

static void open_at(bench *b, const char *mode, const service_limits *limits, const char *program,
                    const clock_src *clock)
{
    static char words[256], python[] = "/usr/bin/python3";
    static char name[512];
    size_t n = 0;
    const char *root = getenv("HEARTH_ROOT");
    assert_non_null(root);
    memset(b, 0, sizeof *b);
    clock_fake_init(&b->still, 1000000000, 0);
    buf_reset(&the_log);
    log_set_sink(log_sink_buf, NULL, LOG_INFO);
    snprintf(b->dir, sizeof b->dir, "/tmp/hearth-service-XXXXXX");
    assert_non_null(mkdtemp(b->dir));
    snprintf(b->seen, sizeof b->seen, "%s/seen", b->dir);
    snprintf(b->stub, sizeof b->stub, "%s/tests/serve/stub_worker.py", root);
    snprintf(words, sizeof words, "%s", mode);
    snprintf(name, sizeof name, "%s", program ? program : "");
    if (program) {
        b->argv[n++] = name;
    } else {
        b->argv[n++] = python;
        b->argv[n++] = b->stub;
        b->argv[n++] = b->seen;
    }
    for (char *w = strtok(words, " "); w; w = strtok(NULL, " ")) {
        assert_true(n < BENCH_MAX_ARGS - 1);
        b->argv[n++] = w;
    }
    b->base = event_base_new();
    b->cfg = (service_config){.id = "stub",
                              .argv = b->argv,
                              .limits = limits ? *limits : bench_limits(),
                              .clock = clock ? clock : &b->still.src,
                              .changed = on_changed,
                              .ctx = b};
    err e;
    assert_int_equal(service_open(b->base, &b->cfg, &b->service, &e), ST_OK);
}

void bench_open(bench *b, const char *mode, const service_limits *limits, const char *program)
{
    open_at(b, mode, limits, program, clock_system());
}

void bench_open_still(bench *b, const char *mode, const service_limits *limits)
{
    service_limits l = limits ? *limits : bench_limits();
    l.tick_ms = 1; /* what is waited for is its tick */
    open_at(b, mode, &l, NULL, NULL);
}

bool bench_is_ready(void *ctx)
{
    return service_state_now(((bench *)ctx)->service) == SERVICE_READY;
}

void bench_start(bench *b)
{
    service_start(b->service);
    bench_until(b, bench_is_ready, b);
}

void bench_close(bench *b)
{
    service_free(b->service);
    event_base_free(b->base);
    char command[160];
    snprintf(command, sizeof command, "rm -rf %s", b->dir);
    assert_int_equal(system(command), 0);
    log_set_sink(NULL, NULL, LOG_INFO);
}

static void once(bench *b)
{
    const struct timeval pause = {0, 2000};
    event_base_loopexit(b->base, &pause);
    event_base_loop(b->base, EVLOOP_ONCE);
}

void bench_until(bench *b, bool (*cond)(void *ctx), void *ctx)
{
    uint64_t end = clock_mono_ns(clock_system()) + PATIENCE_S * UINT64_C(1000000000);
    while (!cond(ctx)) {
        if (clock_mono_ns(clock_system()) > end) {
            fail_msg("waited for %d s in vain; the log:\n%s", PATIENCE_S, buf_str(&the_log));
        }
        once(b);
    }
}

/* A tick that is still to come, at the time that it is now. */
static bool is_to_look(const bench *b)
{
    return evtimer_pending(b->service->tick, NULL) && b->service->watch.tick_ns < b->still.now_ns;
}

static void step(bench *b, uint64_t ms)
{
    clock_fake_advance_ms(&b->still, ms);
    do { /* once at least: frames, deaths */
        once(b);
    } while (is_to_look(b));
}

uint64_t bench_until_later(bench *b, bool (*cond)(void *ctx), void *ctx)
{
    uint64_t ms = 0, end = clock_mono_ns(clock_system()) + PATIENCE_S * UINT64_C(1000000000);
    while (!cond(ctx)) {
        if (clock_mono_ns(clock_system()) > end) {
            fail_msg("waited for %d s in vain, %llu ms of its time; the log:\n%s", PATIENCE_S,
                     (unsigned long long)ms, buf_str(&the_log));
        }
        step(b, STEP_MS);
        ms += STEP_MS;
    }
    return ms;
}

void bench_later(bench *b, uint64_t ms)
{
    for (; ms > 0; ms -= ms < STEP_MS ? ms : STEP_MS) {
        step(b, ms < STEP_MS ? ms : STEP_MS);
    }
}

void bench_run_ms(bench *b, unsigned ms)
{
    uint64_t end = clock_mono_ns(clock_system()) + ms * UINT64_C(1000000);
    do { /* once at least, however long we were away */
        once(b);
    } while (clock_mono_ns(clock_system()) < end);
}

/*
 * Clients.
 */
static void note_text(client *c, const char *text, size_t len)
{
    size_t used = strlen(c->text), room = sizeof c->text - 1 - used;
    memcpy(c->text + used, text, len < room ? len : room);
    c->text[used + (len < room ? len : room)] = '\0';
}

static void over(client *c)
{
    assert_null(c->job.entry); /* it is ours again */
    assert_false(c->ended && c->lost);
    if (c->then) {
        c->then(c);
    }
}

static void on_frame(void *ctx, const frame *f)
{
    client *c = ctx;
    assert_false(c->ended || c->lost);
    c->n_frames++;
    switch (f->kind) {
    case FRAME_TOKEN:
    case FRAME_DELTA:
        c->n_tokens++;
        note_text(c, f->text, f->text_len);
        return;
    case FRAME_ACCEPTED:
    case FRAME_PROGRESS:
    case FRAME_PROMPT_LOGPROBS:
        return;
    case FRAME_DONE:
        snprintf(c->reason, sizeof c->reason, "%s", f->done.reason);
        break;
    case FRAME_ERROR:
        c->code = f->code;
        snprintf(c->message, sizeof c->message, "%s", f->text);
        break;
    case FRAME_TEXT:
        note_text(c, f->text, f->text_len);
        break;
    default:
        break;
    }
    c->ended = true;
    over(c);
}

static void on_lost(void *ctx, const err *why)
{
    client *c = ctx;
    assert_false(c->ended || c->lost);
    c->lost = true;
    c->code = why->code;
    snprintf(c->message, sizeof c->message, "%s", why->msg);
    over(c);
}

static void fill(client *c, const char *id, uint32_t key)
{
    memset(c, 0, sizeof *c);
    snprintf(c->job.id, sizeof c->job.id, "%s", id);
    c->job.key = key;
    c->job.on_frame = on_frame;
    c->job.on_lost = on_lost;
    c->job.ctx = c;
}

void client_fill(client *c, const char *id, uint32_t key, const char *prompt)
{
    json_w w;
    fill(c, id, key);
    json_w_begin(&w, &c->job.line);
    json_w_obj_open(&w);
    json_w_key(&w, "id");
    json_w_cstr(&w, id);
    json_w_key(&w, "op");
    json_w_cstr(&w, "generate");
    json_w_key(&w, "prompt");
    json_w_cstr(&w, prompt);
    json_w_key(&w, "seed");
    json_w_u64(&w, 1);
    json_w_obj_close(&w);
    assert_int_equal(json_w_end(&w), ST_OK);
    buf_append_char(&c->job.line, '\n');
}

static status submit(bench *b, client *c)
{
    err e;
    status st = service_submit(b->service, &c->job, &e);
    if (st != ST_OK) {
        c->code = st;
        snprintf(c->message, sizeof c->message, "%s", e.msg);
        assert_null(c->job.entry);
        buf_release(&c->job.line);
    }
    assert_false(c->ended || c->lost); /* no callback from inside */
    return st;
}

status client_submit(bench *b, client *c, const char *id, uint32_t key, const char *prompt)
{
    client_fill(c, id, key, prompt);
    return submit(b, c);
}

status client_submit_op(bench *b, client *c, const char *id, const char *members)
{
    fill(c, id, 0);
    c->job.light = true;
    assert_int_equal(buf_printf(&c->job.line, "{\"id\":\"%s\",%s}\n", id, members), ST_OK);
    return submit(b, c);
}

bool client_is_over(void *ctx)
{
    const client *c = ctx;
    return c->ended || c->lost;
}

void client_wait(bench *b, client *c)
{
    bench_until(b, client_is_over, c);
}

service_info bench_info(const bench *b)
{
    service_info i;
    service_read(b->service, &i);
    return i;
}

static size_t count(const char *all, const char *text)
{
    size_t n = 0;
    for (const char *at = all; text[0] && (at = strstr(at, text)); at++) {
        n++;
    }
    return n;
}

void bench_open_gate(const bench *b)
{
    char path[80];
    snprintf(path, sizeof path, "%s/gate", b->dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fclose(f);
}

size_t bench_seen(const bench *b, const char *text, size_t *first)
{
    static char line[1 << 20];
    size_t n = 0, i = 0;
    FILE *f = fopen(b->seen, "r");
    while (f && fgets(line, sizeof line, f)) {
        if (strstr(line, text)) {
            if (n++ == 0 && first) {
                *first = i;
            }
        }
        i++;
    }
    if (f) {
        fclose(f);
    }
    return n;
}

size_t bench_logged(const bench *b, const char *text)
{
    return count(buf_str(&the_log), text);
}
