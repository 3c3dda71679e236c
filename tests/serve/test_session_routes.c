/*
 * The routes of sessions between a connection and a service that are not there: each with its answer, with a client that
 * leaves, with a worker that is lost, when the daemon ends meanwhile, and with no memory at any moment. This program
 * defines the functions of http.h, models.h and model_service.h that they call. What they say is in session_script.py.
 */
#include <event2/event.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/test_main.h"
#include "serve/session_routes.h"

#define TOKENS 10 /* of the session "s" */

struct http_conn {
    int n_answers, status;
    char out[4096], headers[512];
    size_t held_len;
    void (*gone)(void *ctx);
    void *gone_ctx;
    const http_request *request;
    byte_budget *bodies;
};

void http_conn_on_gone(http_conn *c, void (*gone)(void *ctx), void *ctx)
{
    c->gone = gone;
    c->gone_ctx = ctx;
}

void http_conn_reply(http_conn *c, const http_reply *reply)
{
    c->n_answers++;
    c->status = reply->status;
    snprintf(c->headers, sizeof c->headers, "%s", reply->headers ? reply->headers : "");
    if (reply->held) {
        c->held_len = reply->held->bytes.len;
        assert_int_equal(reply->held->charged, c->held_len); /* it counts as what it is */
        held_bytes_free(reply->held);
    } else {
        snprintf(c->out, sizeof c->out, "%.*s", (int)reply->body_len, reply->body);
    }
}

held_bytes *http_conn_take_body(http_conn *c)
{
    buf copy = {0};
    size_t n = c->request->body.len;
    if (buf_append(&copy, c->request->body.data, n) != ST_OK) {
        return NULL;
    }
    assert_true(byte_budget_take(c->bodies, n));
    held_bytes *h = held_bytes_new(&copy, c->bodies, n);
    if (!h) {
        buf_release(&copy);
        c->bodies->used -= n;
    }
    return h;
}

struct model_service {
    service_job *job; /* NULL: none */
    status refuses;
    service_state state;
};
struct models {
    model_service service;
};
static struct service_entry *const here = (struct service_entry *)&(char){0};

model_service *models_find(models *m, const char *name)
{
    return !name || strcmp(name, "m") == 0 ? &m->service : NULL;
}

const char *service_id(const model_service *s)
{
    return "m";
}

service_state service_state_now(const model_service *s)
{
    return s->state;
}

status service_submit(model_service *s, service_job *j, err *e)
{
    assert_true(!s->job && j->light && j->line.len > 0);
    if (s->refuses != ST_OK) {
        return err_set(e, s->refuses, NULL, "refused");
    }
    s->job = j;
    j->entry = here;
    return ST_OK;
}

typedef struct bench {
    http_conn conn;
    models models;
    clock_fake clock;
    byte_budget bodies, downloads;
    http_request request;
    api_context api;
} bench;

static void open_bench(bench *b)
{
    err e;
    session_row *r;
    memset(b, 0, sizeof *b);
    clock_fake_init(&b->clock, 1000000000, 1700000000000);
    b->models.service.state = SERVICE_READY;
    b->bodies.max = 1000;
    b->downloads.max = SESSION_DOWNLOADS;
    b->conn.request = &b->request;
    b->conn.bodies = &b->bodies;
    b->api = (api_context){.clock = &b->clock.src, .models = &b->models, .downloads = &b->downloads};
    b->api.base = event_base_new();
    assert_non_null(b->api.base);
    assert_int_equal(request_table_new(&b->api.requests), ST_OK);
    const session_desk_config cfg = {.base = b->api.base,
                                     .clock = &b->clock.src,
                                     .requests = b->api.requests,
                                     .caps = {.per_key = 2, .ttl_ns = 3600000000000}};
    assert_int_equal(session_desk_new(&cfg, &b->api.sessions, &e), ST_OK);
    assert_int_equal(session_desk_open(b->api.sessions, &b->models.service, KEYS_ANONYMOUS, "s", &r, &e),
                     ST_OK);
    r->opened = true;
    r->tokens = TOKENS;
    session_desk_let_go(b->api.sessions, r);
}

static session_row *row_of(const bench *b, const char *name)
{
    return session_table_find(session_desk_table(b->api.sessions), KEYS_ANONYMOUS, NULL, name, NULL);
}

static void close_bench(bench *b, int n_answers)
{
    session_desk_free(b->api.sessions);
    assert_int_equal(b->conn.n_answers, n_answers);
    assert_int_equal(b->bodies.used, 0);
    assert_int_equal(b->downloads.used, 0);
    request_table_free(b->api.requests);
    event_base_free(b->api.base);
    buf_release(&b->request.query);
    buf_release(&b->request.body);
}

#define EXTENT "{\"session_id\":\"/s\",\"tokens\":10"

static const struct script {
    session_action action;
    enum http_method method;
    const char *id, *query, *body;
    const char *line;   /* what is in the worker's */
    const char *answer; /* of the worker */
    const char *says;   /* to the client; "" = raw bytes */
} scripts[] = {
    {SESSION_ONE, HTTP_GET, "s", "", "", "\"action\":\"get\"",
     "\"session\":{\"session_id\":\"/s\",\"known\":true,\"tokens\":9,\"dirty\":true,\"busy\":false}",
     "\"tokens\":9,\"dirty\":true"},
    {SESSION_ONE, HTTP_DELETE, "s", "", "", "\"action\":\"close\"", "\"closed\":true,\"session_id\":\"/s\"",
     "\"deleted\":true"},
    {SESSION_RESET, HTTP_POST, "s", "", "{}", "\"action\":\"reset\"", "\"reset\":true,\"session_id\":\"/s\"",
     "\"tokens\":0"},
    {SESSION_PREWARM, HTTP_POST, "s", "model=m", "", "\"action\":\"prewarm\"",
     "\"prewarmed\":" EXTENT ",\"prefilled\":3}", "\"prefilled\":3"},
    {SESSION_SAVE, HTTP_POST, "s", "", "{\"name\":\"a\"}", "\"name\":\"0-a\"",
     "\"saved\":" EXTENT ",\"name\":\"0-a\"}", "\"saved\":\"a\""},
    {SESSION_RESTORE, HTTP_POST, "new", "", "{\"name\":\"a\"}", "\"session_id\":\"/new\",\"name\":\"0-a\"",
     "\"restored\":" EXTENT ",\"name\":\"0-a\"}", "\"restored\":\"a\""},
    {SESSION_DROP, HTTP_POST, "nobody", "", "{\"name\":\"a\"}", "\"session_id\":\"/nobody\",\"name\":\"0-a\"",
     "\"dropped\":" EXTENT ",\"name\":\"0-a\"}", "\"dropped\":\"a\""},
    {SESSION_PROBE, HTTP_GET, "s", "from=2&count=5", "", "\"from\":2,\"count\":5",
     "\"probe\":" EXTENT ",\"from\":2,\"count\":5,\"in_memory\":4,\"stored\":1}",
     "\"in_memory\":4,\"stored\":1"},
    {SESSION_EXPORT, HTTP_GET, "s", "from=2", "", "\"from\":2,\"count\":8",
     "\"export\":" EXTENT ",\"from\":2,\"count\":8},\"attach\":7", ""},
    {SESSION_IMPORT, HTTP_PUT, "new", "", "bytes of it", "\"attach\":11",
     "\"import\":" EXTENT ",\"from\":0,\"count\":10}", "\"count\":10"},
};

static uint64_t fail_left; /* allocations until the one that fails; 0 = none */
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

static void ask(bench *b, const struct script *s)
{
    b->request.method = s->method;
    assert_int_equal(buf_append_str(&b->request.query, s->query), ST_OK);
    assert_int_equal(buf_append_str(&b->request.body, s->body), ST_OK);
    fail_on();
    session_routes_answer(&b->api, &b->conn, KEYS_ANONYMOUS, s->action, s->id, strlen(s->id), &b->request);
    fail_off();
    event_base_loop(b->api.base, EVLOOP_NONBLOCK);
}

/* By the worker, unless nothing was asked. */
static void answer(bench *b, const char *members)
{
    frame f;
    char line[600];
    model_service *s = &b->models.service;
    service_job *j = s->job;
    if (!j) {
        return;
    }
    snprintf(line, sizeof line, "{\"id\":\"%s\",%s}", j->id, members);
    assert_int_equal(frame_decode(line, strlen(line), &f, NULL), ST_OK);
    f.attached = f.attach_bytes > 0 ? "content" : NULL;
    s->job = NULL;
    j->entry = NULL;
    held_bytes_free(j->behind);
    j->behind = NULL;
    fail_on();
    j->on_frame(j->ctx, &f);
    fail_off();
    frame_release(&f);
}

static void lose(bench *b, status code)
{
    err e;
    service_job *j = b->models.service.job;
    b->models.service.job = NULL;
    j->entry = NULL;
    held_bytes_free(j->behind);
    j->behind = NULL;
    err_set(&e, code, NULL, "lost");
    j->on_lost(j->ctx, &e);
}

static void test_answers(void **state)
{
    for (size_t i = 0; i < N_OF(scripts); i++) {
        const struct script *s = &scripts[i];
        bench b;
        open_bench(&b);
        ask(&b, s);
        service_job *j = b.models.service.job;
        if (!j || !strstr(buf_str(&j->line), s->line)) {
            fail_msg("%zu: %s", i, j ? buf_str(&j->line) : "nothing is asked");
        }
        assert_int_equal(b.bodies.used, s->action == SESSION_IMPORT ? strlen(s->body) : 0);
        assert_int_equal(b.downloads.used, s->action == SESSION_EXPORT ? WIRE_MAX_ATTACH_BYTES : 0);
        answer(&b, s->answer);
        if (b.conn.status != 200 || !strstr(b.conn.out, s->says)) {
            fail_msg("%zu: %d %s", i, b.conn.status, b.conn.out);
        }
        assert_int_equal(b.conn.held_len, s->action == SESSION_EXPORT ? 7 : 0);
        assert_int_equal(strstr(b.conn.headers, "X-Hearth-Count: 8\r\n") != NULL,
                         s->action == SESSION_EXPORT);
        assert_int_equal(row_of(&b, "s") == NULL, s->method == HTTP_DELETE);
        assert_int_equal(row_of(&b, "new") != NULL, strcmp(s->id, "new") == 0);
        close_bench(&b, 1);
    }
}

/* It is carried out all the same, and nobody is told. */
static void test_gone(void **state)
{
    for (size_t i = 0; i < N_OF(scripts); i++) {
        bench b;
        open_bench(&b);
        ask(&b, &scripts[i]);
        b.conn.gone(b.conn.gone_ctx);
        assert_non_null(b.models.service.job);
        answer(&b, scripts[i].answer);
        assert_int_equal(row_of(&b, "s") == NULL, scripts[i].method == HTTP_DELETE);
        assert_int_equal(row_of(&b, "new") != NULL, strcmp(scripts[i].id, "new") == 0);
        close_bench(&b, 0);
    }
}

static void test_lost(void **state)
{
    static const status codes[] = {ST_WORKER_CRASHED, ST_DRAINING, ST_NOMEM};
    for (size_t i = 0; i < N_OF(scripts); i++) {
        for (size_t k = 0; k < N_OF(codes); k++) {
            bench b;
            open_bench(&b);
            ask(&b, &scripts[i]);
            lose(&b, codes[k]);
            bool fine = scripts[i].action == SESSION_ONE &&
                        (scripts[i].method == HTTP_GET || codes[k] == ST_WORKER_CRASHED);
            assert_int_equal(b.conn.status, fine ? 200 : 503);
            assert_null(row_of(&b, "new")); /* nothing is known of it */
            assert_int_equal(row_of(&b, "s") == NULL,
                             scripts[i].method == HTTP_DELETE && codes[k] != ST_NOMEM);
            close_bench(&b, 1);
        }
    }
}

/* The worker says no, or something else. */
static void test_refused(void **state)
{
    static const struct {
        const char *answer;
        int status;
    } rows[] = {{"\"error\":\"no\",\"code\":\"invalid_field\",\"field\":\"count\"", 400},
                {"\"error\":\"no\",\"code\":\"unknown_id\"", 404},
                {"\"text\":\"x\"", 500}};
    for (size_t i = 0; i < N_OF(scripts); i++) {
        for (size_t k = 0; k < N_OF(rows); k++) {
            bench b;
            open_bench(&b);
            ask(&b, &scripts[i]);
            answer(&b, rows[k].answer);
            bool known =
                scripts[i].action == SESSION_ONE && k == 1; /* the name is there; its worker is a new one */
            assert_int_equal(b.conn.status, known ? 200 : rows[k].status);
            assert_null(row_of(&b, "new"));
            close_bench(&b, 1);
        }
    }
}

static void test_refused_submit(void **state)
{
    for (size_t i = 0; i < N_OF(scripts); i++) {
        bench b;
        open_bench(&b);
        b.models.service.refuses = ST_QUEUE_FULL;
        ask(&b, &scripts[i]);
        assert_int_equal(b.conn.status, 429);
        assert_non_null(row_of(&b, "s"));
        assert_null(row_of(&b, "new"));
        close_bench(&b, 1);
    }
}

/* The daemon ends while the worker is at it; its clients have been cut before. */
static void test_end(void **state)
{
    for (size_t i = 0; i < N_OF(scripts); i++) {
        bench b;
        open_bench(&b);
        ask(&b, &scripts[i]);
        b.conn.gone(b.conn.gone_ctx);
        close_bench(&b, 0);
    }
}

/* GET does not wait for long; the worker's answer is still learned from. */
static void test_patience(void **state)
{
    bench b;
    open_bench(&b);
    ask(&b, &scripts[0]);
    while (b.conn.n_answers == 0) {
        event_base_loop(b.api.base, EVLOOP_ONCE);
    }
    assert_non_null(strstr(b.conn.out, "\"tokens\":10,\"dirty\":false"));
    answer(&b, scripts[0].answer);
    assert_int_equal(row_of(&b, "s")->tokens, 9);
    close_bench(&b, 1);
}

/* Without a worker the two of them need none. */
static void test_no_worker(void **state)
{
    for (size_t i = 0; i < 2; i++) {
        bench b;
        open_bench(&b);
        b.models.service.state = SERVICE_FAILED;
        session_desk_look(b.api.sessions, &b.models.service);
        ask(&b, &scripts[i]);
        assert_null(b.models.service.job);
        assert_int_equal(b.conn.status, 200);
        assert_non_null(strstr(b.conn.out, i == 0 ? "\"tokens\":0" : "\"deleted\":true"));
        assert_int_equal(row_of(&b, "s") == NULL, i == 1);
        close_bench(&b, 1);
    }
}

static void test_no_memory(void **state)
{
    for (size_t i = 0; i < N_OF(scripts); i++) {
        bool all_there = false;
        for (uint64_t n = 1; !all_there; n++) {
            bench b;
            open_bench(&b);
            fail_left = n;
            ask(&b, &scripts[i]);
            answer(&b, scripts[i].answer);
            all_there = fail_left > 0; /* it was never reached */
            fail_left = 0;
            assert_true(b.conn.status == 200 || b.conn.status == 503);
            assert_true(b.conn.status == 200 || !all_there);
            session_row *r = row_of(&b, "s");
            assert_true(!r || r->n_ops == 0);
            close_bench(&b, 1);
            assert_true(n < 1000);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),   cmocka_unit_test(test_gone),
        cmocka_unit_test(test_lost),      cmocka_unit_test(test_refused),
        cmocka_unit_test(test_end),       cmocka_unit_test(test_refused_submit),
        cmocka_unit_test(test_patience),  cmocka_unit_test(test_no_worker),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
