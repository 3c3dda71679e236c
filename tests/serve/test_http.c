/*
 * The framing of HTTP/1.1: what a connection's bytes mean must not depend on how they arrive, so each case is
 * read whole, byte by byte, and cut at every place.
 */
#include <stdio.h>
#include <string.h>

#include "base/test_main.h"
#include "serve/http_reader.h"

#define MAX_BODY 20

#define REQUEST(method, target, headers) method " " target " HTTP/1.1\r\nHost: h\r\n" headers "\r\n"

typedef struct http_case {
    const char *name, *bytes, *trace;
} http_case;

/* H: method path, "+" keeps the connection, "-" closes it, "b" a body follows, "l" it is known to be too large,
 * "e" 100-continue is wanted; the kept headers as [name=value].
 * D: body. B: refused with this status. */
static const http_case cases[] = {
    {"get", REQUEST("GET", "/health", ""), "H:GET /health + D:"},
    {"query", REQUEST("GET", "/a/b?x=1&y=/z", ""), "H:GET /a/b + ?x=1&y=/z D:"},
    {"queries are of one request",
     REQUEST("GET", "/a?x", "") REQUEST("GET", "/b?", "") REQUEST("GET", "/c?y#z", ""),
     "H:GET /a + ?x D: H:GET /b + D: H:GET /c + ?y D:"},
    {"absolute form", REQUEST("GET", "http://h:1/v1/models?x", ""), "H:GET /v1/models + ?x D:"},
    {"absolute form without path", REQUEST("GET", "http://h", ""), "H:GET  + D:"},
    {"asterisk", REQUEST("OPTIONS", "*", ""), "H:OPTIONS * + D:"},
    {"body", REQUEST("POST", "/p", "Content-Length: 5\r\n") "hello", "H:POST /p +b D:hello"},
    {"body of none", REQUEST("POST", "/p", "Content-Length: 0\r\n"), "H:POST /p + D:"},
    {"chunks",
     REQUEST("POST", "/p", "Transfer-Encoding: chunked\r\n") "3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\nT: v\r\n\r\n",
     "H:POST /p +b D:hello"},
    {"no chunks", REQUEST("POST", "/p", "Transfer-Encoding: chunked\r\n") "0\r\n\r\n", "H:POST /p +b D:"},
    {"largest body", REQUEST("POST", "/p", "Content-Length: 20\r\n") "01234567890123456789",
     "H:POST /p +b D:01234567890123456789"},
    {"expect", REQUEST("POST", "/p", "Expect: 100-Continue\r\nContent-Length: 1\r\n") "x",
     "H:POST /p +be D:x"},
    {"expect something else", REQUEST("POST", "/p", "Expect: 100-continue-not\r\nContent-Length: 1\r\n") "x",
     "H:POST /p +b D:x"},
    {"header without value", REQUEST("GET", "/", "X:\r\nExpect:\r\n"), "H:GET / + D:"},
    {"kept headers",
     REQUEST("GET", "/",
             "AUTHORIZATION:Bearer a,b\r\nx-api-key: \t k e y \t \r\nX-Other: x\r\nX-Request-Id:\r\n"),
     "H:GET / + [authorization=Bearer a,b] [x-api-key=k e y] [x-request-id=] D:"},
    {"names that only begin alike", REQUEST("GET", "/", "Accept-Language: de\r\nAccep: x\r\n"),
     "H:GET / + D:"},
    {"the first accept counts", REQUEST("GET", "/", "Accept: a\r\nAccept: b\r\nX-Hearth-Session: s\r\n"),
     "H:GET / + [x-hearth-session=s] [accept=a] D:"},
    {"headers are of one request",
     REQUEST("GET", "/a", "Idempotency-Key: k\r\n") REQUEST("GET", "/b", "X-Api-Key: l\r\n"),
     "H:GET /a + [idempotency-key=k] D: H:GET /b + [x-api-key=l] D:"},
    {"close", REQUEST("GET", "/", "Connection: close\r\n"), "H:GET / - D:"},
    {"1.0", "GET / HTTP/1.0\r\n\r\n", "H:GET / - D:"},
    {"1.0 kept", "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "H:GET / + D:"},
    {"upgrade is ignored",
     REQUEST("POST", "/p",
             "Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n") "ab" REQUEST("GET", "/q", ""),
     "H:POST /p +b D:ab H:GET /q + D:"},
    {"pipelined",
     REQUEST("POST", "/p", "Content-Length: 3\r\n") "one" REQUEST("GET", "/q", "")
         REQUEST("POST", "/r", "Transfer-Encoding: chunked\r\n") "1\r\n!\r\n0\r\n\r\n",
     "H:POST /p +b D:one H:GET /q + D: H:POST /r +b D:!"},
    {"empty lines between", "\r\n" REQUEST("GET", "/a", "") "\r\n\r\n" REQUEST("GET", "/b", ""),
     "H:GET /a + D: H:GET /b + D:"},
    {"unfinished", "GET / HTTP/1.1\r\nHost: h\r\n", ""},
    {"body unfinished", REQUEST("POST", "/p", "Content-Length: 5\r\n") "hell", "H:POST /p +b"},

    {"garbage", "\x16\x03\x01\x02 garbage\r\n\r\n", "B:400"},
    {"http/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "B:400"},
    {"version 2", "GET / HTTP/2.0\r\nHost: h\r\n\r\n", "B:505"},
    {"no version", "GET /\r\n\r\n", "B:505"},
    {"no host", "GET / HTTP/1.1\r\n\r\n", "B:400"},
    {"two hosts", REQUEST("GET", "/", "Host: i\r\n"), "B:400"},
    {"bad header", REQUEST("GET", "/", "a b: c\r\n"), "B:400"},
    {"space before the colon", REQUEST("GET", "/", "Content-Length : 5\r\n"), "B:400"},
    {"two keys", REQUEST("GET", "/", "Authorization: a\r\nHost: h\r\nAuthorization: a\r\n"), "B:400"},
    {"bad target", REQUEST("GET", "a b", ""), "B:400"},
    {"bad length", REQUEST("POST", "/p", "Content-Length: -1\r\n"), "B:400"},
    {"huge length", REQUEST("POST", "/p", "Content-Length: 99999999999999999999999\r\n"), "B:400"},
    {"two lengths", REQUEST("POST", "/p", "Content-Length: 1\r\nContent-Length: 2\r\n") "x", "B:400"},
    {"length and chunks",
     REQUEST("POST", "/p", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n") "0\r\n\r\n", "B:400"},
    {"bad chunk", REQUEST("POST", "/p", "Transfer-Encoding: chunked\r\n") "zz\r\n", "H:POST /p +b B:400"},
    {"body too large", REQUEST("POST", "/p", "Content-Length: 21\r\n"), "H:POST /p +bl"},
    {"and sent", REQUEST("POST", "/p", "Content-Length: 21\r\n") "0", "H:POST /p +bl B:413"},
    {"chunk longer than it says",
     REQUEST("POST", "/p", "Transfer-Encoding: chunked\r\n") "12\r\n0123456789012345678\r\n",
     "H:POST /p +b B:400"},
    {"many chunks too large",
     REQUEST("POST", "/p",
             "Transfer-Encoding: chunked\r\n") "a\r\n0123456789\r\na\r\n0123456789\r\n1\r\nx\r\n",
     "H:POST /p +b B:413"},
    {"good then bad", REQUEST("GET", "/a", "") "\x01\x02\r\n\r\n", "H:GET /a + D: B:400"},
};

static void add(char *trace, size_t cap, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

static void add(char *trace, size_t cap, const char *fmt, ...)
{
    va_list ap;
    size_t n = strlen(trace);
    if (n > 0) {
        snprintf(trace + n, cap - n, " ");
        n++;
    }
    va_start(ap, fmt);
    vsnprintf(trace + n, cap - n, fmt, ap);
    va_end(ap);
}

static void add_headers(char *trace, size_t cap, const http_request *q)
{
    static const char *const names[] = {
#define X(name) name,
        HTTP_KEPT_HEADERS(X)
#undef X
    };
    for (size_t i = 0; i < N_OF(names); i++) {
        const char *value = http_request_header(q, names[i]);
        if (value) {
            add(trace, cap, "[%s=%s]", names[i], value);
        }
    }
    assert_null(http_request_header(q, "host")); /* not kept */
}

/* Pushes data and notes what happens. Returns false once the connection is lost. */
static bool push(http_reader *r, const char *data, size_t n, char *trace, size_t cap)
{
    while (n > 0) {
        http_step step;
        size_t used = http_reader_push(r, data, n, &step);
        const http_request *q = &r->request;
        assert_true(used <= n);
        data += used;
        n -= used;
        switch (step) {
        case HTTP_STEP_MORE:
            assert_int_equal(n, 0);
            break;
        case HTTP_STEP_HEAD:
            assert_int_equal(q->body.len, 0); /* nothing of the body is kept yet */
            add(trace, cap, "H:%s %s %c%s%s%s", http_method_str(q->method), buf_str(&q->path),
                q->keep_alive ? '+' : '-', q->has_body ? "b" : "", http_reader_fits(r) ? "" : "l",
                q->expect_100 ? "e" : "");
            if (q->query.len > 0) {
                add(trace, cap, "?%s", buf_str(&q->query));
            }
            add_headers(trace, cap, q);
            break;
        case HTTP_STEP_DONE:
            add(trace, cap, "D:%s", buf_str(&q->body));
            assert_int_equal(http_reader_push(r, data, n, &step), 0); /* it waits for the answer */
            assert_int_equal(step, HTTP_STEP_DONE);
            http_reader_next(r);
            assert_false(http_reader_started(r));
            break;
        case HTTP_STEP_BAD:
            assert_true(strlen(r->fault.message) > 0);
            add(trace, cap, "B:%d", r->fault.status);
            assert_int_equal(http_reader_push(r, "GET", 3, &step), 0);
            assert_int_equal(step, HTTP_STEP_BAD);
            return false;
        }
    }
    return true;
}

/* The bytes in pieces: `first`, then `step` at a time. */
static void check(const http_case *c, size_t first, size_t step)
{
    char trace[512] = "";
    byte_budget budget = {.max = 1000};
    http_reader r;
    size_t len = strlen(c->bytes), at = 0, n = first;
    http_reader_init(&r, MAX_BODY, &budget);
    while (at < len) {
        n = n < len - at ? n : len - at;
        if (!push(&r, c->bytes + at, n, trace, sizeof trace)) {
            break;
        }
        at += n;
        n = step;
    }
    if (strcmp(trace, c->trace) != 0) {
        fail_msg("%s (first %zu, step %zu): %s, not %s", c->name, first, step, trace, c->trace);
    }
    http_reader_release(&r);
    assert_int_equal(budget.used, 0);
}

static void test_cases(void **state)
{
    for (size_t i = 0; i < N_OF(cases); i++) {
        size_t len = strlen(cases[i].bytes);
        check(&cases[i], 1, 1);
        for (size_t cut = 1; cut <= len; cut++) {
            check(&cases[i], cut, len);
        }
    }
}

static http_step push_all(http_reader *r, const char *data, size_t n)
{
    http_step step = HTTP_STEP_MORE;
    for (size_t at = 0; at < n && step != HTTP_STEP_BAD && step != HTTP_STEP_DONE;) {
        at += http_reader_push(r, data + at, n - at, &step);
    }
    return step;
}

static void test_long_target(void **state)
{
    static char line[HTTP_MAX_TARGET_BYTES + 64];
    for (size_t extra = 0; extra < 2; extra++) {
        byte_budget budget = {.max = 1000};
        http_reader r;
        http_reader_init(&r, MAX_BODY, &budget);
        memset(line, 'a', sizeof line);
        memcpy(line, "GET /", 5);
        snprintf(line + 4 + HTTP_MAX_TARGET_BYTES + extra, 32, " HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_int_equal(push_all(&r, line, strlen(line)), extra ? HTTP_STEP_BAD : HTTP_STEP_DONE);
        assert_int_equal(r.fault.status, extra ? 414 : 0);
        http_reader_release(&r);
    }
}

/* Endless headers: refused after http_parser's 80 KiB, and nothing of them is kept. */
static void test_long_headers(void **state)
{
    static const char start[] = "GET / HTTP/1.1\r\nHost: h\r\n",
                      header[] = "Name-of-a-header: and its value\r\n";
    byte_budget budget = {.max = 1000};
    http_reader r;
    http_step step;
    size_t sent = 0;
    http_reader_init(&r, MAX_BODY, &budget);
    http_reader_push(&r, start, sizeof start - 1, &step);
    for (; step == HTTP_STEP_MORE && sent < 200000; sent += sizeof header - 1) {
        http_reader_push(&r, header, sizeof header - 1, &step);
    }
    assert_int_equal(step, HTTP_STEP_BAD);
    assert_int_equal(r.fault.status, 431);
    assert_in_range(sent, 70000, 90000);
    http_reader_release(&r);
}

/* A kept value may have HTTP_MAX_VALUE_BYTES, another any length. */
static void test_long_values(void **state)
{
    static const struct {
        const char *name;
        size_t n;
        int fault;
    } tests[] = {
        {"accept", HTTP_MAX_VALUE_BYTES, 0},
        {"accept", HTTP_MAX_VALUE_BYTES + 1, 431},
        {"accepts", HTTP_MAX_VALUE_BYTES + 1, 0},
    };
    static char text[HTTP_MAX_VALUE_BYTES + 128];
    for (size_t i = 0; i < N_OF(tests); i++) {
        byte_budget budget = {.max = 1000};
        http_reader r;
        http_reader_init(&r, MAX_BODY, &budget);
        int n = snprintf(text, sizeof text, "GET / HTTP/1.1\r\nHost: h\r\n%s: ", tests[i].name);
        memset(text + n, 'v', tests[i].n);
        snprintf(text + (size_t)n + tests[i].n, 8, "\r\n\r\n");
        assert_int_equal(push_all(&r, text, strlen(text)), tests[i].fault ? HTTP_STEP_BAD : HTTP_STEP_DONE);
        assert_int_equal(r.fault.status, tests[i].fault);
        const char *value = http_request_header(&r.request, "accept");
        assert_int_equal(value ? strlen(value) : 0, i == 0 ? HTTP_MAX_VALUE_BYTES : 0);
        http_reader_release(&r);
    }
}

/* What is known at the headers about a body that nobody wants, and that nothing of it is kept. */
static void test_skipped_body(void **state)
{
    static const struct {
        const char *header;
        bool may_skip;
    } tests[] = {
        {"Content-Length: 65536", true},
        {"Content-Length: 65537", false},
        {"Transfer-Encoding: chunked", false},
        {"Content-Length: 5\r\nExpect: 100-continue", false},
    };
    for (size_t i = 0; i < N_OF(tests); i++) {
        char text[200];
        byte_budget budget = {.max = 0};
        http_reader r;
        http_step step;
        http_reader_init(&r, MAX_BODY, &budget);
        int n = snprintf(text, sizeof text, "POST / HTTP/1.1\r\nHost: h\r\n%s\r\n\r\n", tests[i].header);
        http_reader_push(&r, text, (size_t)n, &step);
        assert_int_equal(step, HTTP_STEP_HEAD);
        assert_int_equal(http_reader_may_skip(&r), tests[i].may_skip);
        if (i == 0) {
            size_t left = 65536;
            http_reader_skip_body(&r);
            http_reader_push(&r, "\n", 1, &step); /* the byte that it stopped at */
            while (step == HTTP_STEP_MORE && left > 0) {
                left -= http_reader_push(&r, text, left < sizeof text ? left : sizeof text, &step);
            }
            assert_int_equal(left, 0);
            assert_int_equal(step, HTTP_STEP_DONE);
            assert_int_equal(r.request.body.len, 0);
        }
        http_reader_release(&r);
    }
}

static void test_lower_limit(void **state)
{
    static const char head[] = REQUEST("POST", "/p", "Content-Length: 8\r\n");
    byte_budget budget = {.max = 1000};
    http_reader r;
    http_step step;
    http_reader_init(&r, MAX_BODY, &budget);
    for (size_t limit = 7; limit <= 30; limit += limit == 7 ? 1 : 22) { /* 7, 8, 30 */
        size_t used = http_reader_push(&r, head, sizeof head - 1, &step);
        assert_int_equal(step, HTTP_STEP_HEAD);
        http_reader_limit_body(&r, limit);
        assert_int_equal(http_reader_fits(&r), limit >= 8);
        http_reader_skip_body(&r);
        assert_int_equal(push_all(&r, head + used, sizeof head - 1 - used), HTTP_STEP_MORE);
        assert_int_equal(push_all(&r, "01234567", 8), HTTP_STEP_DONE);
        http_reader_next(&r); /* and the next one has the old limit again */
    }
    http_reader_release(&r);
}

/* A body beyond the general limit: it may come, but only into the first half of the budget. */
static void test_larger_limit(void **state)
{
    static const char head[] = REQUEST("PUT", "/p", "Content-Length: 32\r\n");
    static const char bytes[] = "01234567890123456789012345678901";
    byte_budget budget = {.max = 100};
    http_reader r;
    http_step step;
    http_reader_init(&r, MAX_BODY, &budget);
    for (size_t other = 0; other <= 50; other += 50) { /* in the hands of others */
        size_t used = http_reader_push(&r, head, sizeof head - 1, &step);
        assert_int_equal(step, HTTP_STEP_HEAD);
        assert_false(http_reader_fits(&r));
        http_reader_allow_body(&r, 32);
        assert_true(http_reader_fits(&r));
        assert_int_equal(push_all(&r, head + used, sizeof head - 1 - used), HTTP_STEP_MORE);
        budget.used += other;
        assert_int_equal(push_all(&r, bytes, 32), other == 0 ? HTTP_STEP_DONE : HTTP_STEP_BAD);
        if (other == 0) {
            held_bytes *h = http_reader_take_body(&r);
            assert_int_equal(h->bytes.len, 32);
            assert_memory_equal(h->bytes.data, bytes, 32);
            assert_int_equal(r.request.body.len, 0);
            http_reader_next(&r);
            assert_int_equal(budget.used, 32); /* as long as it is held */
            held_bytes_recharge(h, 10);
            assert_int_equal(budget.used, 10);
            held_bytes_free(h);
            assert_int_equal(budget.used, 0);
        }
    }
    assert_int_equal(r.fault.status, 429);
    http_reader_release(&r);
}

static void test_budget(void **state)
{
    static const char post[] = REQUEST("POST", "/p", "Content-Length: 8\r\n") "01234567";
    byte_budget budget = {.max = 20};
    http_reader r[3];
    for (size_t i = 0; i < 3; i++) {
        http_reader_init(&r[i], MAX_BODY, &budget);
    }
    assert_int_equal(push_all(&r[0], post, sizeof post - 1), HTTP_STEP_DONE);
    assert_int_equal(push_all(&r[1], post, sizeof post - 1), HTTP_STEP_DONE);
    assert_int_equal(budget.used, 16);
    assert_int_equal(push_all(&r[2], post, sizeof post - 1), HTTP_STEP_BAD); /* 24 of 20 bytes */
    assert_int_equal(r[2].fault.status, 429);
    http_reader_drop_body(&r[0]);
    assert_int_equal(budget.used, 8);
    http_reader_next(&r[0]);
    assert_int_equal(push_all(&r[0], post, sizeof post - 1), HTTP_STEP_DONE); /* there is room again */
    for (size_t i = 0; i < 3; i++) {
        http_reader_release(&r[i]);
    }
    assert_int_equal(budget.used, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),        cmocka_unit_test(test_long_target),
        cmocka_unit_test(test_long_headers), cmocka_unit_test(test_long_values),
        cmocka_unit_test(test_skipped_body), cmocka_unit_test(test_lower_limit),
        cmocka_unit_test(test_larger_limit), cmocka_unit_test(test_budget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
