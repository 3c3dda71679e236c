#include "serve/completion_run.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/json.h"
#include "base/mem.h"
#include "serve/api_error.h"
#include "serve/completions.h"

#define ID_BYTES  40
#define MS_DIGITS 3

typedef struct completion_run {
    const completion_service *service; /* borrowed */
    http_conn *conn;                   /* borrowed: until the answer is complete or `gone` */
    worker_job job;
    completion_options options;
    char id[ID_BYTES];
    int64_t created_s;
    bool streaming; /* the stream's headers are out */
    bool no_memory; /* a piece of the text was lost: the answer must not look whole */

    /* owned */
    buf text; /* not streamed: the reply so far */
    buf out;  /* one event or body */
} completion_run;

static bool draw(void *out, size_t n)
{
    ssize_t got;
    do {
        got = getrandom(out, n, 0);
    } while (got < 0 && errno == EINTR);
    return got == (ssize_t)n; /* always, for so few bytes */
}

static void run_free(completion_run *r)
{
    buf_release(&r->job.line);
    buf_release(&r->text);
    buf_release(&r->out);
    mem_free(r);
}

static void on_gone(void *ctx)
{
    completion_run *r = ctx;
    worker_link_drop(r->service->link, &r->job);
    run_free(r);
}

static void reply_fault(http_conn *c, const api_fault *f)
{
    buf body = {0};
    api_fault_put(f, &body); /* without memory: an empty body */
    http_conn_reply(c, &(http_reply){.status = f->http_status,
                                     .retry_after_s = f->retry_after_s,
                                     .body = buf_str(&body),
                                     .body_len = body.len});
    buf_release(&body);
}

/*
 * Objects. Each writes into r->out.
 */
static void put_usage(json_w *w, const frame_done *d)
{
    json_w_obj_open(w);
    json_w_key(w, "prompt_tokens");
    json_w_i64(w, d->prompt_tokens);
    json_w_key(w, "completion_tokens");
    json_w_i64(w, d->completion_tokens);
    json_w_key(w, "total_tokens");
    json_w_i64(w, (int64_t)d->prompt_tokens + d->completion_tokens);
    json_w_key(w, "prompt_tokens_details");
    json_w_obj_open(w);
    json_w_key(w, "cached_tokens");
    json_w_i64(w, d->reused_prompt_tokens);
    json_w_obj_close(w);
    json_w_obj_close(w);
}

/* What the API has no name for. */
static void put_hearth(json_w *w, const frame_done *d)
{
    json_w_obj_open(w);
    json_w_key(w, "finish");
    json_w_cstr(w, d->reason);
    if (d->guard[0] != '\0') {
        json_w_key(w, "guard");
        json_w_cstr(w, d->guard);
    }
    json_w_key(w, "seed");
    json_w_u64(w, d->seed - 1); /* as the API counts: sent again it gives this reply again */
    json_w_key(w, "prefill_ms");
    json_w_fixed(w, d->prefill_ms, MS_DIGITS);
    json_w_key(w, "decode_ms");
    json_w_fixed(w, d->decode_ms, MS_DIGITS);
    json_w_key(w, "total_ms");
    json_w_fixed(w, d->total_ms, MS_DIGITS);
    json_w_obj_close(w);
}

static void put_choice(json_w *w, const char *text, size_t len, const char *finish_reason)
{
    json_w_obj_open(w);
    json_w_key(w, "text");
    json_w_str(w, text, len);
    json_w_key(w, "index");
    json_w_i64(w, 0);
    json_w_key(w, "logprobs");
    json_w_null(w);
    json_w_key(w, "finish_reason");
    if (finish_reason) {
        json_w_cstr(w, finish_reason);
    } else {
        json_w_null(w);
    }
    json_w_obj_close(w);
}

static void put_head(const completion_run *r, json_w *w)
{
    json_w_obj_open(w);
    json_w_key(w, "id");
    json_w_cstr(w, r->id);
    json_w_key(w, "object");
    json_w_cstr(w, "text_completion");
    json_w_key(w, "created");
    json_w_i64(w, r->created_s);
    json_w_key(w, "model");
    json_w_cstr(w, r->service->model_id);
    json_w_key(w, "choices");
    json_w_arr_open(w);
}

/*
 * The stream.
 */
static void event_begin(completion_run *r, json_w *w)
{
    buf_reset(&r->out);
    r->no_memory = buf_append_str(&r->out, "data: ") != ST_OK || r->no_memory;
    json_w_begin(w, &r->out);
}

static void event_send(completion_run *r, json_w *w)
{
    r->no_memory = json_w_end(w) != ST_OK || buf_append_str(&r->out, "\n\n") != ST_OK || r->no_memory;
    if (!r->no_memory) {
        http_conn_stream_write(r->conn, r->out.data, r->out.len);
    }
}

/* One chunk; done is NULL but in the last one that has a choice. */
static void send_chunk(completion_run *r, const char *text, size_t len, const frame_done *done)
{
    json_w w;
    event_begin(r, &w);
    put_head(r, &w);
    put_choice(&w, text, len, done ? done->finish_reason : NULL);
    json_w_arr_close(&w);
    if (r->options.include_usage) {
        json_w_key(&w, "usage");
        json_w_null(&w);
    }
    if (done) {
        json_w_key(&w, "hearth");
        put_hearth(&w, done);
    }
    json_w_obj_close(&w);
    event_send(r, &w);
}

static void send_usage(completion_run *r, const frame_done *done)
{
    json_w w;
    event_begin(r, &w);
    put_head(r, &w);
    json_w_arr_close(&w);
    json_w_key(&w, "usage");
    put_usage(&w, done);
    json_w_obj_close(&w);
    event_send(r, &w);
}

static void ensure_stream(completion_run *r)
{
    if (!r->streaming) {
        r->streaming = true;
        http_conn_stream_begin(r->conn);
    }
}

/*
 * Ends. Each completes the answer and frees the run.
 */
static void end_with_fault(completion_run *r, const api_fault *f)
{
    buf_reset(&r->out);
    if (!r->streaming) {
        reply_fault(r->conn, f);
    } else {
        if (buf_append_str(&r->out, "data: ") == ST_OK && api_fault_put(f, &r->out) == ST_OK &&
            buf_append_str(&r->out, "\n\n") == ST_OK) {
            http_conn_stream_write(r->conn, r->out.data, r->out.len);
        }
        http_conn_stream_end(r->conn); /* without [DONE]: the reply is not whole */
    }
    run_free(r);
}

static void end_without_memory(completion_run *r)
{
    api_fault f;
    api_fault_http(&f, 503, "out of memory");
    end_with_fault(r, &f);
}

static void end_stream(completion_run *r, const frame_done *done)
{
    ensure_stream(r);
    send_chunk(r, "", 0, done);
    if (r->options.include_usage) {
        send_usage(r, done);
    }
    if (r->no_memory) {
        end_without_memory(r);
        return;
    }
    static const char last[] = "data: [DONE]\n\n";
    http_conn_stream_write(r->conn, last, sizeof last - 1);
    http_conn_stream_end(r->conn);
    run_free(r);
}

static void end_whole(completion_run *r, const frame_done *done)
{
    json_w w;
    buf_reset(&r->out);
    json_w_begin(&w, &r->out);
    put_head(r, &w);
    put_choice(&w, buf_str(&r->text), r->text.len, done->finish_reason);
    json_w_arr_close(&w);
    json_w_key(&w, "usage");
    put_usage(&w, done);
    json_w_key(&w, "hearth");
    put_hearth(&w, done);
    json_w_obj_close(&w);
    if (json_w_end(&w) != ST_OK || r->no_memory) {
        end_without_memory(r);
        return;
    }
    http_conn_reply(r->conn, &(http_reply){.status = 200, .body = r->out.data, .body_len = r->out.len});
    run_free(r);
}

/*
 * From the worker.
 */
static void on_piece(completion_run *r, const frame *f)
{
    if (f->text_len == 0) {
        return;
    }
    if (r->options.stream) {
        ensure_stream(r);
        send_chunk(r, f->text, f->text_len, NULL);
    } else {
        r->no_memory = buf_append(&r->text, f->text, f->text_len) != ST_OK || r->no_memory;
    }
}

static void on_frame(void *ctx, const frame *f)
{
    completion_run *r = ctx;
    api_fault fault;
    if (f->kind == FRAME_TOKEN) {
        on_piece(r, f);
    } else if (f->kind == FRAME_ERROR) {
        api_fault_frame(&fault, f);
        end_with_fault(r, &fault);
    } else if (r->options.stream) {
        end_stream(r, &f->done);
    } else {
        end_whole(r, &f->done);
    }
}

static void on_lost(void *ctx, const err *why)
{
    api_fault fault;
    api_fault_err(&fault, why);
    end_with_fault(ctx, &fault);
}

static status prepare(completion_run *r, const char *body, size_t len, err *e)
{
    uint64_t random[3];
    if (!draw(random, sizeof random)) {
        return err_set(e, ST_INTERNAL, NULL, "no random bytes: %s", strerror(errno));
    }
    uint64_t seed = random[0] % (uint64_t)INT64_MAX + 1; /* 1 … 2^63-1 */
    snprintf(r->id, sizeof r->id, "cmpl-%016llx%08llx", (unsigned long long)random[1],
             (unsigned long long)(random[2] & 0xffffffffu));
    r->created_s = clock_wall_ms(r->service->clock) / 1000;
    return completion_read(body, len, r->service->model_id, seed, &r->options, &r->job.line, e);
}

void completion_run_start(const completion_service *s, http_conn *c, const char *body, size_t len)
{
    api_fault fault;
    err e;
    completion_run *r = mem_calloc(1, sizeof *r);
    if (!r) {
        api_fault_http(&fault, 503, "out of memory");
        reply_fault(c, &fault);
        return;
    }
    r->service = s;
    r->conn = c;
    r->job.on_frame = on_frame;
    r->job.on_lost = on_lost;
    r->job.ctx = r;
    status st = prepare(r, body, len, &e);
    if (st == ST_OK) {
        http_conn_on_gone(c, on_gone, r);
        st = worker_link_submit(s->link, &r->job, &e);
    }
    if (st != ST_OK) {
        api_fault_err(&fault, &e);
        end_with_fault(r, &fault);
    }
}
