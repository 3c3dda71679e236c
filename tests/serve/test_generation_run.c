/*
 * A generation run between a connection and a service that are not there: what it asks of the two, in which
 * order, when the client leaves, the request is cancelled or memory is out at any moment. This program
 * defines the functions of http.h, models.h and model_service.h that a run calls.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/test_main.h"
#include "serve/api_reply.h"
#include "serve/chat.h"
#include "serve/completion.h"
#include "serve/generation_run.h"
#include "serve/responses.h"

#define MAX_JOBS 8
#define MAX_OUT  8192

/*
 * The connection.
 */
struct http_conn {
    int n_answers; /* complete ones */
    int status;
    bool streaming, cut;
    char out[MAX_OUT]; /* the body, or all events */
    size_t len;
    void (*gone)(void *ctx);
    void *gone_ctx;
    void (*slow)(void *ctx, bool is_slow);
    void *slow_ctx;
};

static void keep(http_conn *c, const char *data, size_t n)
{
    assert_true(c->len + n < sizeof c->out);
    if (n > 0) {
        memcpy(c->out + c->len, data, n);
    }
    c->len += n;
    c->out[c->len] = '\0';
}

const char *http_conn_request_id(const http_conn *c)
{
    return "req_0123456789abcdef01234567";
}

void http_conn_on_gone(http_conn *c, void (*gone)(void *ctx), void *ctx)
{
    c->gone = gone;
    c->gone_ctx = ctx;
}

void http_conn_on_slow(http_conn *c, void (*slow)(void *ctx, bool is_slow), void *ctx)
{
    c->slow = slow;
    c->slow_ctx = ctx;
}

void http_conn_reply(http_conn *c, const http_reply *reply)
{
    assert_false(c->streaming);
    c->n_answers++;
    c->status = reply->status;
    keep(c, reply->body, reply->body_len);
}

void http_conn_stream_begin(http_conn *c)
{
    assert_false(c->streaming);
    assert_int_equal(c->n_answers, 0);
    c->streaming = true;
    c->status = 200;
}

void http_conn_stream_write(http_conn *c, const char *data, size_t n)
{
    assert_true(c->streaming && c->n_answers == 0);
    keep(c, data, n);
}

void http_conn_stream_end(http_conn *c)
{
    assert_true(c->streaming);
    c->n_answers++;
}

void http_conn_stream_cut(http_conn *c)
{
    assert_true(c->streaming);
    c->n_answers++;
    c->cut = true;
}

/*
 * The service.
 */
struct model_service {
    service_job *jobs[MAX_JOBS]; /* NULL once it has ended */
    size_t n_jobs;
    size_t refuse_at; /* this submit says queue_full; SIZE_MAX = none */
    size_t n_cancelled, n_stopped, n_paused, n_continued;
    const char *digest; /* NULL = it tells none */
};
struct models {
    model_service service;
};

/* A job that is with the service has some entry. */
static struct service_entry *const here = (struct service_entry *)&(char){0};

static size_t find_job(const model_service *s, const service_job *j)
{
    for (size_t i = 0; i < s->n_jobs; i++) {
        if (s->jobs[i] == j) {
            return i;
        }
    }
    return SIZE_MAX;
}

model_service *models_find(models *m, const char *name)
{
    return !name || strcmp(name, "m") == 0 ? &m->service : NULL;
}

void service_read(const model_service *s, service_info *out)
{
    memset(out, 0, sizeof *out); /* its model says nothing of sampling */
    snprintf(out->model.digest, sizeof out->model.digest, "%s", s->digest ? s->digest : "");
}

const char *service_id(const model_service *s)
{
    return "m";
}

service_state service_state_now(const model_service *s)
{
    return SERVICE_READY;
}

status service_submit(model_service *s, service_job *j, err *e)
{
    assert_int_equal(find_job(s, j), SIZE_MAX);
    assert_true(j->line.len > 0 && s->n_jobs < MAX_JOBS);
    if (s->n_jobs == s->refuse_at) {
        return err_set(e, ST_QUEUE_FULL, NULL, "full");
    }
    s->jobs[s->n_jobs++] = j;
    j->entry = here;
    return ST_OK;
}

/* It is the owner's again. */
static void end_job(model_service *s, size_t i)
{
    s->jobs[i]->entry = NULL;
    s->jobs[i] = NULL;
}

void service_cancel(model_service *s, service_job *j)
{
    size_t i = find_job(s, j);
    if (i != SIZE_MAX) {
        s->n_cancelled++;
        end_job(s, i);
    }
}

void service_stop(model_service *s, service_job *j)
{
    s->n_stopped += find_job(s, j) != SIZE_MAX;
}

void service_pause(model_service *s, service_job *j, bool paused)
{
    assert_true(find_job(s, j) != SIZE_MAX);
    s->n_paused += paused;
    s->n_continued += !paused;
}

size_t service_position(const model_service *s, const service_job *j, double *estimate_s)
{
    *estimate_s = 0.25;
    return 4;
}

static size_t n_open(const model_service *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n_jobs; i++) {
        n += s->jobs[i] != NULL;
    }
    return n;
}

/*
 * One run.
 */
typedef struct bench {
    http_conn conn;
    models models;
    metrics metrics;
    clock_fake clock;
    api_context api;
} bench;

static const generation_route completions = {"/v1/completions", &completion_shape, &run_chunks,
                                             completion_read};
static const generation_route responses = {"/v1/responses", &responses_shape, &run_responses, responses_read};
static const generation_route chat = {"/v1/chat/completions", &chat_shape, &run_chunks, chat_read};

static void open_bench(bench *b)
{
    memset(b, 0, sizeof *b);
    clock_fake_init(&b->clock, 1000000000, 1700000000000);
    b->models.service.refuse_at = SIZE_MAX;
    b->api = (api_context){
        .clock = &b->clock.src, .models = &b->models, .metrics = &b->metrics, .keepalive_ms = 1000};
    b->api.base = event_base_new();
    assert_non_null(b->api.base);
    assert_int_equal(request_table_new(&b->api.requests), ST_OK);
}

/* Answered once, or its client has left; nothing is left behind. */
static void close_bench(bench *b, int n_answers)
{
    assert_int_equal(b->conn.n_answers, n_answers);
    assert_int_equal(n_open(&b->models.service), 0);
    assert_int_equal(request_table_n_live(b->api.requests), 0);
    request_table_free(b->api.requests);
    event_base_free(b->api.base);
}

/*
 * A taker that does what a connection would: what is said of a run is said of one with a taker too.
 */
static bool by_taker;

static int use_taker(void **state)
{
    by_taker = true;
    return 0;
}

static int use_connection(void **state)
{
    by_taker = false;
    return 0;
}

static void on_answer(void *ctx, buf *body)
{
    bench *b = ctx;
    http_conn_reply(&b->conn, &(http_reply){.status = 200, .body = buf_str(body), .body_len = body->len});
    buf_release(body);
}

static void on_refuse(void *ctx, const api_fault *f)
{
    bench *b = ctx;
    api_reply_fault(&b->conn, f);
}

/* NULL: it was refused, and that was told. */
static generation_run *make_run(bench *b, const generation_route *route, const char *body, int64_t created_ms,
                                const char *digest)
{
    const generation_taker taker = {on_answer, on_refuse, b};
    const frame_sampling nothing = {0};
    const generation_order order = {.request_id = http_conn_request_id(&b->conn),
                                    .created_ms = created_ms,
                                    .sampling = &nothing,
                                    .model_digest = digest,
                                    .service = &b->models.service};
    generation g;
    generation_run *r = NULL;
    err e;
    api_fault fault;
    status st = route->read(body, strlen(body), 9, &g, &e);
    if (st == ST_OK) {
        assert_false(g.stream);
        st = generation_run_new(&b->api, route, &order, &taker, &g, &r, &e);
        generation_release(&g);
    }
    if (st != ST_OK) {
        generation_fault_of(&b->api, 0, &e, &fault);
        api_reply_fault(&b->conn, &fault);
    }
    return r;
}

static void start(bench *b, const generation_route *route, const char *body)
{
    if (by_taker && !strstr(body, "\"stream\":true")) {
        generation_run *r = make_run(b, route, body, b->clock.wall_ms, "");
        if (r) {
            assert_null(b->conn.gone);
            generation_run_begin(r);
        }
        return;
    }
    generation_run_start(&b->api, route, &b->conn, KEYS_ANONYMOUS, NULL, body, strlen(body));
}

/* What is due at once. */
static void turn(bench *b)
{
    event_base_loop(b->api.base, EVLOOP_NONBLOCK);
}

/*
 * The failing allocation, counted only while the run is at work.
 */
static uint64_t fail_left; /* so many are still to come, the failing one included; 0 = none fails */
static uint64_t fail_from;

static void fail_on(void)
{
    fail_from = mem_alloc_count();
    mem_fail_at(fail_left, false);
}

static void fail_off(void)
{
    uint64_t used = mem_alloc_count() - fail_from;
    mem_fail_at(0, false);
    fail_left = used < fail_left ? fail_left - used : 0;
}

static bool is_last(const frame *f)
{
    return f->kind == FRAME_DONE || f->kind == FRAME_ERROR || f->kind == FRAME_TEXT ||
           f->kind == FRAME_SESSION_INFO || f->kind == FRAME_CLOSED;
}

/* To job i, unless it has ended. */
static void say(bench *b, size_t i, const char *members)
{
    frame f;
    char line[600];
    model_service *s = &b->models.service;
    service_job *j = i < s->n_jobs ? s->jobs[i] : NULL;
    if (!j) {
        return;
    }
    snprintf(line, sizeof line, "{\"id\":\"%s\",%s}", j->id, members);
    assert_int_equal(frame_decode(line, strlen(line), &f, NULL), ST_OK);
    if (is_last(&f)) {
        end_job(s, i);
    }
    fail_on();
    j->on_frame(j->ctx, &f);
    turn(b);
    fail_off();
    frame_release(&f);
}

static void lose(bench *b, size_t i, status code)
{
    err e;
    service_job *j = b->models.service.jobs[i];
    err_set(&e, code, NULL, "lost");
    end_job(&b->models.service, i);
    j->on_lost(j->ctx, &e);
    turn(b);
}

#define ACCEPTED_OF(n)                                                              \
    "\"accepted\":{\"seed\":5,\"now\":1,\"prompt_tokens\":" n ",\"prompt_digest\":" \
    "\"abababababababababababababababababababababababababababababababab\",\"cached_prompt_tokens\":0}"
#define ACCEPTED ACCEPTED_OF("2")
#define TOKEN \
    "\"token\":\"xy\",\"ids\":[3],\"logprobs\":[{\"id\":3,\"logprob\":-0.5,\"text\":\"xy\",\"top\":[]}]"
#define DELTA                                                                                              \
    "\"delta\":{\"content\":\"xy\"},\"ids\":[3],\"logprobs\":[{\"id\":3,\"logprob\":-0.5,\"text\":\"xy\"," \
    "\"top\":[]}]"
#define THOUGHT "\"delta\":{\"reasoning\":\"hm\"},\"ids\":[3]"
#define CALL                                                                                              \
    "\"delta\":{\"tool_call\":{\"index\":0,\"id\":\"call_a\",\"name\":\"f\",\"arguments_delta\":\"{\"}}," \
    "\"ids\":[]"
#define CALL_ENDED \
    "\"delta\":{\"tool_call\":{\"index\":0,\"arguments_delta\":\"}\",\"closed\":true}},\"ids\":[4]"
#define PROMPT "\"prompt_logprobs\":[null,{\"id\":2,\"logprob\":-1,\"text\":\"b\",\"top\":[]}]"
#define DONE_AS(reason, n)                                                                                  \
    "\"done\":true,\"prompt_tokens\":2,\"completion_tokens\":" n ",\"finish_reason\":\"stop\","             \
    "\"reused_prompt_tokens\":0,\"prefilled_prompt_tokens\":2,\"session_reset_reason\":\"new\",\"prefill_"  \
    "ms\":1,"                                                                                               \
    "\"decode_ms\":1,\"total_ms\":2,\"prefill_tok_s\":0,\"decode_tok_s\":0,\"seed\":5,\"reason\":\"" reason \
    "\","                                                                                                   \
    "\"queue_ms\":0,\"ttft_ms\":0"
#define DONE  DONE_AS("stop", "1")
#define ERROR "\"error\":\"no\",\"code\":\"nonfinite\""

static size_t count(const char *text, const char *part)
{
    size_t n = 0;
    for (; (text = strstr(text, part)); text++) {
        n++;
    }
    return n;
}

typedef struct script {
    const generation_route *route;
    const char *body;
    struct {
        size_t job;
        const char *members;
    } frames[12];
} script;

static const script scripts[] = {
    {&completions,
     "{\"prompt\":\"ab\",\"seed\":4,\"n\":2,\"echo\":true,\"logprobs\":1}",
     {{0, ACCEPTED}, {1, ACCEPTED}, {0, PROMPT}, {0, TOKEN}, {1, PROMPT}, {1, TOKEN}, {1, DONE}, {0, DONE}}},
    {&completions,
     "{\"prompt\":[\"ab\",\"b\"],\"seed\":4,\"stream\":true,\"echo\":true,\"logprobs\":1,\"stream_options\":{"
     "\"include_usage\":true}}",
     {{0, ACCEPTED}, {1, ACCEPTED_OF("1")}, {0, PROMPT}, {0, TOKEN}, {1, TOKEN}, {1, DONE}, {0, DONE}}},
    {&chat,
     "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"ab\"}]}],\"seed\":4,"
     "\"stream\":true,"
     "\"logprobs\":true,\"hearth\":{\"progress\":true}}",
     {{0, ACCEPTED},
      {0, "\"progress\":{\"prompt_tokens\":2,\"cached\":0,\"processed\":1}"},
      {0, DELTA},
      {0, DONE}}},
    {&chat,
     "{\"messages\":[{\"role\":\"user\",\"content\":\"ab\"}],\"seed\":4,\"logprobs\":true}",
     {{0, ACCEPTED}, {0, DELTA}, {0, DONE}}},
    {&completions, /* job 0 and 1 ask for the text of the prompts */
     "{\"prompt\":[[1,2],[3]],\"seed\":4,\"echo\":true}",
     {{0, "\"text\":\"ab\""},
      {1, "\"text\":\"c\""},
      {2, ACCEPTED},
      {3, ACCEPTED},
      {3, TOKEN},
      {3, DONE},
      {2, DONE}}},
    {&chat,
     "{\"messages\":[{\"role\":\"user\",\"content\":\"ab\"}],\"seed\":4}",
     {{0, ACCEPTED}, {0, THOUGHT}, {0, CALL}, {0, CALL_ENDED}, {0, DONE_AS("tool_calls", "1")}}},
    {&chat,
     "{\"messages\":[{\"role\":\"user\",\"content\":\"ab\"}],\"seed\":4,\"stream\":true}",
     {{0, ACCEPTED}, {0, THOUGHT}, {0, CALL}, {0, CALL_ENDED}, {0, DONE_AS("tool_calls", "1")}}},
    {&responses,
     "{\"input\":\"ab\",\"seed\":4}",
     {{0, ACCEPTED}, {0, THOUGHT}, {0, CALL}, {0, CALL_ENDED}, {0, DONE_AS("tool_calls", "1")}}},
    {&responses,
     "{\"input\":\"ab\",\"seed\":4,\"stream\":true}",
     {{0, ACCEPTED}, {0, THOUGHT}, {0, CALL}, {0, CALL_ENDED}, {0, DONE_AS("tool_calls", "1")}}},
};

static bool is_chunks(size_t i)
{
    return scripts[i].route->voice == &run_chunks;
}

static size_t n_frames(const script *s)
{
    size_t n = 0;
    while (s->frames[n].members) {
        n++;
    }
    return n;
}

/* Starts it and says the first n frames. */
static void play(bench *b, const script *s, size_t n)
{
    fail_on();
    start(b, s->route, s->body);
    turn(b);
    fail_off();
    for (size_t i = 0; i < n; i++) {
        say(b, s->frames[i].job, s->frames[i].members);
    }
}

static void test_to_the_end(void **state)
{
    for (size_t i = 0; i < N_OF(scripts); i++) {
        bench b;
        open_bench(&b);
        play(&b, &scripts[i], n_frames(&scripts[i]));
        assert_int_equal(b.conn.status, 200);
        size_t n_choices = i == 0 || i == 1 || i == 4 ? 2 : 1;
        bool calls = i > 4;
        const char *end = !is_chunks(i) ? "\"status\":\"completed\",\"error\""
                          : calls       ? "\"finish_reason\":\"tool_calls\""
                                        : "\"finish_reason\":\"stop\"";
        assert_int_equal(count(b.conn.out, end), n_choices);
        assert_int_equal(count(b.conn.out, "data: [DONE]\n\n"), b.conn.streaming && is_chunks(i));
        assert_int_equal(b.models.service.n_cancelled, 0);
        request_entry *r = request_table_find(b.api.requests, 0, "req_0123456789abcdef01234567");
        assert_true(r && r->state == REQUEST_DONE);
        assert_string_equal(r->ending, calls ? "tool_calls" : "stop");
        assert_int_equal(b.metrics.finished[calls ? METRIC_FINISH_TOOL_CALLS : METRIC_FINISH_STOP],
                         n_choices);
        close_bench(&b, 1);
    }
}

/* The text of both choices, the prompt in it, what it begins with in the lists. */
static void test_echo(void **state)
{
    bench b;
    open_bench(&b);
    play(&b, &scripts[0], n_frames(&scripts[0]));
    assert_int_equal(count(b.conn.out, "\"text\":\"abxy\",\"logprobs\":{\"tokens\":[\"a\",\"b\",\"xy\"],"
                                       "\"token_logprobs\":[null,-1,-0.5],\"top_logprobs\":[null,{\"b\":-1},"
                                       "{\"xy\":-0.5}],\"text_offset\":[0,1,2]}"),
                     2);
    close_bench(&b, 1);
    open_bench(&b); /* the second prompt has one token, and no frame of its own for it */
    play(&b, &scripts[1], n_frames(&scripts[1]));
    assert_int_equal(count(b.conn.out,
                           "\"text\":\"b\",\"logprobs\":{\"tokens\":[\"b\"],\"token_logprobs\":[null],"
                           "\"top_logprobs\":[null],\"text_offset\":[0]}"),
                     1);
    close_bench(&b, 1);
    open_bench(&b); /* cut before anything was computed: what the prompt's tokens are nobody knows */
    play(&b, &scripts[0], 2);
    say(&b, 0, DONE_AS("timeout", "0"));
    say(&b, 1, DONE_AS("timeout", "0"));
    assert_int_equal(count(b.conn.out, "\"text\":\"ab\",\"logprobs\":{\"tokens\":[],\"token_logprobs\":[],"
                                       "\"top_logprobs\":[],\"text_offset\":[]}"),
                     2);
    close_bench(&b, 1);
    open_bench(&b);
    play(&b, &scripts[4], n_frames(&scripts[4]));
    assert_int_equal(count(b.conn.out, "\"text\":\"ab\""), 1);
    assert_int_equal(count(b.conn.out, "\"text\":\"cxy\""), 1);
    close_bench(&b, 1);
}

/* The client leaves after each frame: its jobs are given up, nothing more is said to it. */
static void test_gone(void **state)
{
    for (size_t i = 0; i < N_OF(scripts); i++) {
        for (size_t n = 0; n < n_frames(&scripts[i]); n++) {
            bench b;
            open_bench(&b);
            play(&b, &scripts[i], n);
            size_t open = n_open(&b.models.service);
            assert_true(open > 0);
            b.conn.gone(b.conn.gone_ctx);
            assert_int_equal(b.models.service.n_cancelled, open);
            assert_true(request_table_find(b.api.requests, 0, "req_0123456789abcdef01234567")->state ==
                        REQUEST_GONE);
            turn(&b);
            close_bench(&b, 0);
        }
    }
}

/* DELETE after each frame: what the service then says ends it, as cancelled; of the first choice that was open. */
static void test_stopped(void **state)
{
    for (size_t i = 0; i < N_OF(scripts); i++) {
        for (size_t n = 0; n < n_frames(&scripts[i]); n++) {
            for (int waiting = 0; waiting <= 1; waiting++) {
                bench b;
                open_bench(&b);
                play(&b, &scripts[i], n);
                model_service *s = &b.models.service;
                size_t open = n_open(s);
                request_entry *r = request_table_find(b.api.requests, 0, "req_0123456789abcdef01234567");
                r->cancel(r->ctx);
                assert_int_equal(s->n_stopped, open);
                assert_int_equal(b.conn.n_answers, 0);
                bool light = i == 4 && n < 2;
                for (size_t k = 0; k < s->n_jobs; k++) {
                    if (s->jobs[k] && (waiting || light)) {
                        lose(&b, k, ST_CANCELLED);
                    } else {
                        say(&b, k, DONE_AS("cancelled", "0"));
                    }
                }
                assert_int_equal(b.conn.status, 200);
                assert_true(count(b.conn.out, "\"finish\":\"cancelled\"") >= 1);
                const char *cut =
                    is_chunks(i) ? "\"finish_reason\":\"length\"" : "{\"reason\":\"max_output_tokens\"}";
                assert_true(count(b.conn.out, cut) >= 1);
                assert_int_equal(count(b.conn.out, "data: [DONE]\n\n"), b.conn.streaming && is_chunks(i));
                close_bench(&b, 1);
            }
        }
    }
}

/* One choice fails: the others are given up; before the headers it is a status, after them an event. */
static void test_fails(void **state)
{
    static const status lost[] = {ST_OK, ST_WORKER_CRASHED, ST_DRAINING,
                                  ST_NOMEM}; /* ST_OK: an error frame */
    for (size_t i = 0; i < N_OF(scripts); i++) {
        for (size_t n = 0; n < n_frames(&scripts[i]); n++) {
            for (size_t k = 0; k < N_OF(lost); k++) {
                bench b;
                open_bench(&b);
                play(&b, &scripts[i], n);
                size_t job = scripts[i].frames[n].job;
                if (lost[k] == ST_OK) {
                    say(&b, job, ERROR);
                } else {
                    lose(&b, job, lost[k]);
                }
                int http_status = lost[k] == ST_OK ? 500 : 503;
                assert_int_equal(b.conn.status, b.conn.streaming ? 200 : http_status);
                bool event = b.conn.streaming && !is_chunks(i);
                const char *error =
                    event ? "\"status\":\"failed\",\"error\":{\"code\":" : "{\"error\":{\"message\":";
                assert_int_equal(count(b.conn.out, error), 1);
                assert_int_equal(count(b.conn.out, "[DONE]"), 0);
                assert_true(request_table_find(b.api.requests, 0, "req_0123456789abcdef01234567")->state ==
                            REQUEST_FAILED);
                close_bench(&b, 1);
            }
        }
    }
}

static void test_refused_submit(void **state)
{
    for (size_t i = 0; i < N_OF(scripts); i++) {
        for (size_t at = 0; at < 2; at++) {
            bench b;
            open_bench(&b);
            b.models.service.refuse_at = at;
            play(&b, &scripts[i], n_frames(&scripts[i]));
            bool several = i == 0 || i == 1 || i == 4;
            if (at == 0 || several) {
                assert_int_equal(count(b.conn.out, "\"code\":\"queue_full\""), 1);
                assert_true(b.conn.streaming || b.conn.status == 429);
                assert_int_equal(b.models.service.n_cancelled, several && at == 1 && i != 4);
            }
            close_bench(&b, 1);
        }
    }
}

/* A deadline that passes in the queue: of all choices 504, of one beside another that has begun a cut. */
static void test_deadline(void **state)
{
    bench b;
    static const char body[] = "{\"prompt\":[\"a\",\"b\"],\"seed\":4,\"hearth\":{\"deadline_ms\":250}}";
    open_bench(&b);
    start(&b, &completions, body);
    assert_true(b.models.service.jobs[0]->deadline_ns == 1250000000);
    lose(&b, 1, ST_TIMEOUT);
    assert_int_equal(b.conn.status, 504);
    close_bench(&b, 1);
    open_bench(&b);
    start(&b, &completions, body);
    say(&b, 0, ACCEPTED);
    lose(&b, 1, ST_TIMEOUT);
    say(&b, 0, TOKEN);
    say(&b, 0, DONE_AS("timeout", "1"));
    assert_int_equal(b.conn.status, 200);
    assert_int_equal(count(b.conn.out, "\"text\":\"xy\",\"logprobs\":null,\"finish_reason\":\"length\""), 1);
    assert_int_equal(count(b.conn.out, "\"text\":\"\",\"logprobs\":null,\"finish_reason\":\"length\""), 1);
    assert_int_equal(count(b.conn.out, "\"finish\":\"timeout\""), 3); /* the first one's twice */
    close_bench(&b, 1);
}

static void test_slow(void **state)
{
    bench b;
    open_bench(&b);
    play(&b, &scripts[1], 3);
    b.conn.slow(b.conn.slow_ctx, true);
    assert_int_equal(b.models.service.n_paused, 2);
    say(&b, 0, DONE);
    b.conn.slow(b.conn.slow_ctx, false);
    assert_int_equal(b.models.service.n_continued, 1); /* the other has ended */
    say(&b, 1, DONE);
    close_bench(&b, 1);
}

/* Memory is out once, at every moment: an answer that looks whole is whole, and nothing leaks. */
static void test_no_memory(void **state)
{
    for (size_t i = 0; i < N_OF(scripts); i++) {
        bench whole;
        open_bench(&whole);
        play(&whole, &scripts[i], n_frames(&scripts[i]));
        http_conn want = whole.conn;
        close_bench(&whole, 1);
        bool all_there = false;
        for (uint64_t n = 1; !all_there; n++) {
            bench b;
            open_bench(&b);
            fail_left = n;
            play(&b, &scripts[i], n_frames(&scripts[i]));
            all_there = fail_left > 0; /* it was never reached */
            fail_left = 0;
            const char *end = is_chunks(i) ? "[DONE]" : "event: response.completed";
            bool looks_whole = b.conn.streaming ? strstr(b.conn.out, end) != NULL : b.conn.status == 200;
            if (looks_whole) {
                assert_string_equal(b.conn.out, want.out);
            } else {
                assert_true(b.conn.streaming || b.conn.status == 503);
                /* it says so, or its connection does */
                assert_true(!b.conn.streaming || b.conn.cut || strstr(b.conn.out, "\"error\"") != NULL);
            }
            assert_true(looks_whole || !all_there);
            close_bench(&b, 1);
            assert_true(n < 5000);
        }
    }
}

/*
 * Turns of sessions. Times are the bench's clock; the desk's timer is the event base's.
 */
static const char in_session[] =
    "{\"messages\":[{\"role\":\"user\",\"content\":\"ab\"}],\"seed\":4,\"session_id\":\"s\"}";

static void open_sessions(bench *b, size_t per_key, uint64_t ttl_ns)
{
    open_bench(b);
    const session_desk_config cfg = {.base = b->api.base,
                                     .clock = &b->clock.src,
                                     .requests = b->api.requests,
                                     .caps = {.per_key = per_key, .ttl_ns = ttl_ns}};
    assert_int_equal(session_desk_new(&cfg, &b->api.sessions, NULL), ST_OK);
}

static session_row *row_of(const bench *b, const char *name)
{
    return session_table_find(session_desk_table(b->api.sessions), KEYS_ANONYMOUS, NULL, name, NULL);
}

static bool line_has(const bench *b, size_t job, const char *part)
{
    const service_job *j = job < b->models.service.n_jobs ? b->models.service.jobs[job] : NULL;
    return j && strstr(buf_str(&j->line), part);
}

/* Asks that are under way end with the desk. */
static void close_sessions(bench *b, int n_answers)
{
    session_desk_free(b->api.sessions);
    for (size_t i = 0; i < b->models.service.n_jobs; i++) {
        b->models.service.jobs[i] = NULL;
    }
    close_bench(b, n_answers);
}

static void test_session(void **state)
{
    bench b;
    open_sessions(&b, 2, 1000000000);
    start(&b, &chat, in_session);
    assert_true(line_has(&b, 0, "\"session_id\":\"/s\""));
    session_row *r = row_of(&b, "s");
    assert_true(r && r->n_turns == 1 && !r->opened);
    say(&b, 0, ACCEPTED);
    say(&b, 0, DELTA);
    clock_fake_advance_ms(&b.clock, 500);
    say(&b, 0, DONE);
    assert_int_equal(count(b.conn.out, "\"session_reset_reason\":\"new\""), 1);
    assert_true(r->n_turns == 0 && r->opened && !r->dirty && r->tokens == 3 && r->used_ns == 1500000000);
    assert_true(line_has(&b, 1, "\"action\":\"get\"") && line_has(&b, 1, "\"session_id\":\"/s\""));
    say(&b, 1,
        "\"session\":{\"session_id\":\"/s\",\"known\":true,\"tokens\":4,\"dirty\":true,\"busy\":false}");
    assert_true(r->n_ops == 0 && r->dirty && r->tokens == 4);

    /* its time comes: closed at the worker, whose answer ends it */
    clock_fake_advance_ms(&b.clock, 1000);
    for (int i = 0; i < 10000 && b.models.service.n_jobs < 3; i++) {
        event_base_loop(b.api.base, EVLOOP_ONCE);
    }
    assert_true(line_has(&b, 2, "\"action\":\"close\"") && row_of(&b, "s") == r);
    say(&b, 2, "\"closed\":true,\"session_id\":\"/s\"");
    assert_null(row_of(&b, "s"));
    close_sessions(&b, 1);
}

/* A turn that comes while its session is being closed begins it anew. */
static void test_session_used_again(void **state)
{
    bench b;
    open_sessions(&b, 2, 1000000);
    start(&b, &chat, in_session);
    say(&b, 0, ACCEPTED);
    say(&b, 0, DONE);
    say(&b, 1,
        "\"session\":{\"session_id\":\"/s\",\"known\":true,\"tokens\":3,\"dirty\":false,\"busy\":false}");
    clock_fake_advance_ms(&b.clock, 10);
    for (int i = 0; i < 10000 && b.models.service.n_jobs < 3; i++) {
        event_base_loop(b.api.base, EVLOOP_ONCE);
    }
    session_row *r = row_of(&b, "s");
    memset(&b.conn, 0, sizeof b.conn);
    start(&b, &chat, in_session);
    say(&b, 2, "\"closed\":true,\"session_id\":\"/s\"");
    assert_true(row_of(&b, "s") == r && !r->opened && r->tokens == 0);
    say(&b, 3, ACCEPTED);
    say(&b, 3, DONE);
    assert_true(row_of(&b, "s") == r && r->opened);
    close_sessions(&b, 1);
}

/* Not accepted: there is no session. Accepted, and then cut: it is dirty. */
static void test_session_cut(void **state)
{
    for (int accepted = 0; accepted <= 1; accepted++) {
        for (int how = 0; how < 3; how++) {
            bench b;
            open_sessions(&b, 2, 1000000000);
            start(&b, &chat, in_session);
            if (accepted) {
                say(&b, 0, ACCEPTED);
            }
            if (how == 0) {
                b.conn.gone(b.conn.gone_ctx);
            } else if (how == 1) {
                say(&b, 0, ERROR);
            } else {
                lose(&b, 0, ST_WORKER_CRASHED);
            }
            session_row *r = row_of(&b, "s");
            assert_int_equal(r != NULL, accepted);
            assert_true(!r || (r->dirty && r->n_turns == 0));
            close_sessions(&b, how > 0);
        }
    }
}

static void test_session_limits(void **state)
{
    bench b;
    open_sessions(&b, 1, 5000000000);
    start(&b, &chat, in_session);
    say(&b, 0, ACCEPTED);
    say(&b, 0, DONE);
    memset(&b.conn, 0, sizeof b.conn);
    generation_run_start(&b.api, &completions, &b.conn, KEYS_ANONYMOUS, "t", "{\"prompt\":\"a\"}", 14);
    assert_int_equal(b.conn.status, 429);
    assert_int_equal(count(b.conn.out, "\"code\":\"capacity_exhausted\""), 1);
    assert_null(row_of(&b, "t"));
    memset(&b.conn, 0, sizeof b.conn);
    b.models.service.refuse_at = b.models.service.n_jobs; /* the queue is full */
    start(&b, &chat, in_session);
    assert_int_equal(b.conn.status, 429);
    assert_true(row_of(&b, "s")->n_turns == 0);
    close_sessions(&b, 1);
}

static void test_session_no_memory(void **state)
{
    static const script s = {&chat, in_session, {{0, ACCEPTED}, {0, DELTA}, {0, DONE}}};
    bool all_there = false;
    for (uint64_t n = 1; !all_there; n++) {
        bench b;
        open_sessions(&b, 2, 1000000000);
        fail_left = n;
        play(&b, &s, n_frames(&s));
        all_there = fail_left > 0;
        fail_left = 0;
        session_row *r = row_of(&b, "s");
        assert_true(b.conn.status == 200 || b.conn.status == 503);
        assert_true(b.conn.status != 200 || (r && r->opened));
        assert_true(!r || r->n_turns == 0);
        close_sessions(&b, 1);
        assert_true(n < 5000);
    }
}

#define BODY "{\"prompt\":\"ab\",\"seed\":4,\"hearth\":{\"deadline_ms\":5000}}"

static request_entry *entry_of(bench *b)
{
    return request_table_find(b->api.requests, 0, http_conn_request_id(&b->conn));
}

/* Nothing is asked of the service before it begins, and nothing is told when it is dropped, before or after that. */
static void test_dropped(void **state)
{
    for (int begun = 0; begun <= 1; begun++) {
        bench b;
        open_bench(&b);
        generation_run *r = make_run(&b, &completions, BODY, b.clock.wall_ms, "");
        assert_non_null(r);
        assert_int_equal(b.models.service.n_jobs, 0);
        assert_int_equal(entry_of(&b)->state, REQUEST_QUEUED);
        if (begun) {
            generation_run_begin(r);
            say(&b, 0, ACCEPTED);
            say(&b, 0, TOKEN);
        }
        generation_run_drop(r);
        assert_int_equal(b.models.service.n_cancelled, begun);
        close_bench(&b, 0);
    }
}

/* DELETE before it begins: it ends with nothing when it does. */
static void test_stopped_before(void **state)
{
    bench b;
    open_bench(&b);
    generation_run *r = make_run(&b, &completions, BODY, b.clock.wall_ms, "");
    entry_of(&b)->cancel(entry_of(&b)->ctx);
    assert_int_equal(b.conn.n_answers, 0);
    generation_run_begin(r);
    assert_int_equal(b.models.service.n_jobs, 0);
    assert_int_equal(b.conn.status, 200);
    assert_int_equal(count(b.conn.out, "\"finish\":\"cancelled\""), 1);
    close_bench(&b, 1);
}

/* A run that is begun again is as old as it is: its `now`, what its answer says, how much of its time is left. */
static void test_begun_again(void **state)
{
    static const struct {
        int64_t age_ms;
        uint64_t left_ms;
    } rows[] = {{0, 5000}, {3000, 2000}, {5000, 0}, {1000000, 0}, {-1000000, 5000}};
    for (size_t i = 0; i < N_OF(rows); i++) {
        bench b;
        char now[64], created[64];
        open_bench(&b);
        int64_t then = b.clock.wall_ms - rows[i].age_ms;
        generation_run_begin(make_run(&b, &completions, BODY, then, ""));
        service_job *j = b.models.service.jobs[0];
        assert_int_equal(j->deadline_ns, b.clock.now_ns + rows[i].left_ms * 1000000);
        snprintf(now, sizeof now, "\"now\":%lld", (long long)then);
        snprintf(created, sizeof created, "\"created\":%lld", (long long)(then / 1000));
        assert_non_null(strstr(buf_str(&j->line), now));
        say(&b, 0, ACCEPTED);
        say(&b, 0, DONE);
        assert_non_null(strstr(b.conn.out, created));
        close_bench(&b, 1);
    }
}

/* The worker's file is another one than the order says: no token of it is taken. Without a digest it is believed. */
static void test_other_model(void **state)
{
    static const struct {
        const char *asked, *there;
        bool runs;
    } rows[] = {{"ab", "ab", true}, {"ab", "cd", false}, {"", "cd", true}, {"ab", "", true}};
    for (size_t i = 0; i < N_OF(rows); i++) {
        bench b;
        open_bench(&b);
        b.models.service.digest = rows[i].there;
        generation_run_begin(make_run(&b, &completions, BODY, b.clock.wall_ms, rows[i].asked));
        say(&b, 0, ACCEPTED);
        say(&b, 0, DONE);
        assert_int_equal(b.conn.status, rows[i].runs ? 200 : 503);
        assert_int_equal(count(b.conn.out, "model_changed"), !rows[i].runs);
        close_bench(&b, 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_to_the_end, use_taker, use_connection),
        cmocka_unit_test_setup_teardown(test_echo, use_taker, use_connection),
        cmocka_unit_test_setup_teardown(test_stopped, use_taker, use_connection),
        cmocka_unit_test_setup_teardown(test_fails, use_taker, use_connection),
        cmocka_unit_test_setup_teardown(test_refused_submit, use_taker, use_connection),
        cmocka_unit_test_setup_teardown(test_deadline, use_taker, use_connection),
        cmocka_unit_test_setup_teardown(test_no_memory, use_taker, use_connection),
        cmocka_unit_test(test_dropped),
        cmocka_unit_test(test_stopped_before),
        cmocka_unit_test(test_begun_again),
        cmocka_unit_test(test_other_model),
        cmocka_unit_test(test_to_the_end),
        cmocka_unit_test(test_echo),
        cmocka_unit_test(test_gone),
        cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_fails),
        cmocka_unit_test(test_refused_submit),
        cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_slow),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_session),
        cmocka_unit_test(test_session_used_again),
        cmocka_unit_test(test_session_cut),
        cmocka_unit_test(test_session_limits),
        cmocka_unit_test(test_session_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
