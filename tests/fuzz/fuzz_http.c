/*
 * fuzz_http: bytes of a connection, cut at two different places, give the same requests and the same refusal;
 * no body is larger than allowed, none is kept before its headers are complete, and what is kept is given
 * back.
 */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "serve/http_reader.h"

#define MAX_BODY 256

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct trail { /* what a way of cutting gave */
    uint64_t hash;
    size_t n_steps;
    bool lost;
} trail;

static void must(bool ok)
{
    if (!ok) {
        abort();
    }
}

static void note(trail *t, const void *data, size_t n, int number)
{
    t->hash = t->hash * 31 + hash64(data, n) + (uint64_t)number;
}

static void take_headers(trail *t, const http_request *q)
{
    static const char *const names[] = {
#define X(name) name,
        HTTP_KEPT_HEADERS(X)
#undef X
    };
    for (int i = 0; i < HTTP_N_KEPT; i++) {
        const char *value = http_request_header(q, names[i]);
        if (value) {
            size_t n = strlen(value);
            must(n <= HTTP_MAX_VALUE_BYTES && !strpbrk(value, "\r\n"));
            must(n == 0 || (!strchr(" \t", value[0]) && !strchr(" \t", value[n - 1])));
            note(t, value, n, i);
        }
    }
}

/* "/s…" is refused and its body skipped, "/l…" may have 8 bytes. */
static void take(trail *t, http_reader *r, http_step step)
{
    const http_request *q = &r->request;
    t->n_steps++;
    if (step == HTTP_STEP_HEAD) {
        must(q->is_whole && q->body.len == 0);
        note(t, buf_str(&q->path), q->path.len, (int)q->method);
        note(t, "", 0, q->minor * 8 + q->keep_alive * 4 + q->has_body * 2 + q->expect_100);
        take_headers(t, q);
        if (strncmp(buf_str(&q->path), "/s", 2) == 0) {
            http_reader_skip_body(r);
        } else if (strncmp(buf_str(&q->path), "/l", 2) == 0) {
            http_reader_limit_body(r, 8);
        }
        note(t, "", 0, http_reader_fits(r) * 2 + http_reader_may_skip(r));
    } else if (step == HTTP_STEP_DONE) {
        must(q->body.len <= (strncmp(buf_str(&q->path), "/l", 2) == 0 ? 8 : MAX_BODY));
        must(q->body.len == 0 || strncmp(buf_str(&q->path), "/s", 2) != 0);
        note(t, buf_str(&q->body), q->body.len, 0);
        http_reader_next(r);
    } else {
        must(r->fault.status >= 400 && r->fault.status < 600 && r->fault.message);
        note(t, "", 0, r->fault.status);
        t->lost = true;
    }
}

static trail cut(const char *data, size_t size, size_t piece)
{
    trail t = {0};
    byte_budget budget = {.max = MAX_BODY};
    http_reader r;
    http_reader_init(&r, MAX_BODY, &budget);
    for (size_t begin = 0; begin < size && !t.lost; begin += piece) {
        size_t end = size - begin < piece ? size : begin + piece;
        for (size_t at = begin; at < end && !t.lost;) {
            http_step step;
            at += http_reader_push(&r, data + at, end - at, &step);
            must(at <= end && (step != HTTP_STEP_MORE || at == end));
            if (step != HTTP_STEP_MORE) {
                take(&t, &r, step);
            }
        }
        must(budget.used == r.request.body.len);
    }
    http_reader_release(&r);
    must(budget.used == 0);
    return t;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    trail whole = cut((const char *)data, size, size + 1);
    trail pieces = cut((const char *)data, size, size % 7 + 1);
    must(whole.hash == pieces.hash && whole.n_steps == pieces.n_steps);
    return 0;
}
