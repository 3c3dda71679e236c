#include "serve/generation_run.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/mem.h"
#include "serve/api_reply.h"
#include "serve/generation_int.h"
#include "wire/errors.h"

#define JOB_NAME_BYTES 56                 /* of a run in the ids of its jobs */
#define MAX_WIRE_BYTES ((size_t)16 << 20) /* lines of all choices of a run: they are written in one go */

static uint64_t now_ns(const generation_run *r)
{
    return clock_mono_ns(r->api->clock);
}

/*
 * Ends of a run.
 */
static void end_turn(generation_run *r)
{
    const run_choice *c = &r->choices[0];
    session_turn_end end = {.opened = r->was_accepted, .tokens = -1, .dirty = true};
    if (r->session && r->entry.state == REQUEST_DONE && c->result.prompt_tokens > 0) {
        end.tokens = (int64_t)c->result.prompt_tokens + c->result.completion_tokens;
        end.dirty = strcmp(c->result.reason, "cancelled") == 0;
    }
    if (r->session) {
        session_desk_end(r->api->sessions, r->session, &end);
    }
}

static void run_free(generation_run *r)
{
    end_turn(r);
    request_table_end(r->api->requests, &r->entry);
    for (size_t i = 0; i < r->n_choices; i++) {
        buf_release(&r->choices[i].job.line);
        speech_release(&r->choices[i].said);
        logprob_list_release(&r->choices[i].logprobs);
    }
    run_echo_free(r);
    sse_release(&r->sse);
    buf_release(&r->request);
    mem_free(r->told);
    if (r->asked) {
        generation_release(r->asked);
        mem_free(r->asked);
    }
    if (r->timer) {
        event_free(r->timer);
    }
    mem_free(r);
}

static void give_up_jobs(generation_run *r, const char *ending)
{
    run_echo_cancel(r);
    for (size_t i = 0; i < r->n_choices; i++) {
        if (!r->choices[i].ended) {
            service_cancel(r->service, &r->choices[i].job);
            metrics_count_finish(r->api->metrics, ending);
        }
    }
}

static void note_end(generation_run *r, request_state state, const char *ending)
{
    r->entry.state = state;
    r->entry.ended_ms = clock_wall_ms(r->api->clock);
    snprintf(r->entry.ending, sizeof r->entry.ending, "%s", ending);
    metrics_observe(&r->api->metrics->request, clock_ms_between(r->created_ns, now_ns(r)) / 1e3);
}

static void on_gone(void *ctx)
{
    generation_run *r = ctx;
    give_up_jobs(r, "gone");
    note_end(r, REQUEST_GONE, "gone");
    run_free(r);
}

void run_fail(generation_run *r, const api_fault *f)
{
    give_up_jobs(r, "error");
    note_end(r, REQUEST_FAILED, f->code);
    if (!r->conn) {
        const generation_taker taker = r->taker;
        run_free(r);
        taker.refuse(taker.ctx, f);
        return;
    }
    if (!r->sse.began) {
        api_reply_fault(r->conn, f);
    } else {
        r->route->voice->fault(r, f);
        sse_end(&r->sse, false); /* the reply is not whole */
    }
    run_free(r);
}

void run_fail_no_memory(generation_run *r)
{
    api_fault f;
    api_fault_http(&f, 503, "out of memory");
    r->sse.failed = false; /* the event that says so may fit */
    run_fail(r, &f);
}

static void end_stream(generation_run *r)
{
    r->route->voice->end(r);
    if (r->failed || r->sse.failed) {
        run_fail_no_memory(r);
        return;
    }
    note_end(r, REQUEST_DONE, r->choices[0].result.reason);
    sse_end(&r->sse, r->route->voice->ends_with_done);
    run_free(r);
}

static void end_whole(generation_run *r)
{
    buf out = {0};
    status st = r->failed ? ST_NOMEM : r->route->voice->whole(r, &out);
    if (st != ST_OK) {
        buf_release(&out);
        run_fail_no_memory(r);
        return;
    }
    note_end(r, REQUEST_DONE, r->choices[0].result.reason);
    if (r->conn) {
        api_reply_take(r->conn, 200, &out, ST_OK);
        run_free(r);
    } else {
        const generation_taker taker = r->taker;
        run_free(r);
        taker.answer(taker.ctx, &out);
    }
}

void run_no_memory(generation_run *r)
{
    const struct timeval at_once = {0, 0};
    r->failed = true;
    event_add(r->timer, &at_once);
}

/*
 * One choice.
 */
/* c->result is set. The run may be freed. */
static void choice_ended(run_choice *c)
{
    generation_run *r = c->run;
    metrics *m = r->api->metrics;
    c->ended = true;
    r->n_ended++;
    metrics_count_finish(m, c->result.reason);
    m->tokens_prompt += (uint64_t)c->result.prompt_tokens;
    m->tokens_cached += (uint64_t)c->result.cached_tokens;
    m->tokens_generated += (uint64_t)c->result.completion_tokens;
    if (r->stream) {
        r->route->voice->ended(c);
    }
    if (r->n_ended == r->n_choices) {
        (r->stream ? end_stream : end_whole)(r);
    }
}

static void cut_choice(run_choice *c, const char *reason)
{
    answer_result_cut(&c->result, reason);
    choice_ended(c);
}

void run_cut_all(generation_run *r)
{
    size_t left = r->n_choices - r->n_ended; /* the last one frees the run */
    for (size_t i = 0; left > 0; i++) {
        if (!r->choices[i].ended) {
            left--;
            cut_choice(&r->choices[i], "cancelled");
        }
    }
}

/* A worker that does not tell the digest of its file is believed. */
static bool is_other_model(const generation_run *r)
{
    service_info info;
    if (r->model_digest[0] == '\0') {
        return false;
    }
    service_read(r->service, &info);
    return info.model.digest[0] != '\0' && strcmp(info.model.digest, r->model_digest) != 0;
}

static void on_accepted(run_choice *c, const frame *f)
{
    generation_run *r = c->run;
    if (is_other_model(r)) {
        err e;
        api_fault fault;
        err_set(&e, ST_MODEL_CHANGED, NULL, "the file of the model %.64s is another one now", r->entry.model);
        api_fault_err(&fault, &e);
        run_fail(r, &fault);
        return;
    }
    for (size_t i = 0; i < r->n_choices && !r->was_accepted; i++) {
        r->choices[i].job.has_begun = true;
    }
    c->accepted = r->was_accepted = true;
    c->result.prompt_tokens = f->accepted.prompt_tokens;
    c->result.cached_tokens = f->accepted.cached_prompt_tokens;
    if (r->entry.state == REQUEST_QUEUED) {
        r->entry.state = REQUEST_RUNNING;
        r->entry.started_ms = clock_wall_ms(r->api->clock);
    }
    if ((size_t)(c - r->choices) % r->per_prompt == 0) {
        r->entry.prompt_tokens += f->accepted.prompt_tokens;
    }
    if (r->stream) {
        sse_begin(&r->sse);
    }
    if (r->echo && !r->has_logprobs) {
        run_echo_put(c, NULL, 0);
    } else if (r->stream && !c->began) {
        r->route->voice->accepted(c);
    }
}

static void on_progress(run_choice *c, const frame *f)
{
    generation_run *r = c->run;
    char text[160];
    if (r->progress) {
        snprintf(text, sizeof text,
                 "progress {\"choice\":%zu,\"prompt_tokens\":%" PRId32 ",\"cached\":%" PRId32
                 ",\"processed\":%" PRId32 "}",
                 (size_t)(c - r->choices), f->progress.prompt_tokens, f->progress.cached,
                 f->progress.processed);
        sse_comment(&r->sse, text);
    }
}

/* Only a prompt of one token has no frame of its own for the log probabilities. */
static void ensure_echo(run_choice *c)
{
    if (c->run->echo && !c->echo_is_out) {
        run_echo_put(c, NULL, 0);
    }
}

static void on_piece(run_choice *c, const frame *f)
{
    generation_run *r = c->run;
    if (!r->has_first) {
        r->has_first = true;
        metrics_observe(&r->api->metrics->ttft, clock_ms_between(r->created_ns, now_ns(r)) / 1e3);
    }
    r->entry.completion_tokens += (int64_t)f->n_ids;
    c->result.completion_tokens += (int32_t)f->n_ids; /* until the done frame says it */
    ensure_echo(c);
    for (size_t i = 0; r->has_logprobs && i < f->n_logprobs; i++) {
        if (logprob_list_add(&c->logprobs, &f->logprobs[i]) != ST_OK) {
            run_no_memory(r);
        }
    }
    size_t item = SIZE_MAX;
    status st = !r->stream || r->route->voice->keeps ? speech_add(&c->said, f, &item) : ST_OK;
    if (st != ST_OK) {
        run_no_memory(r);
    } else if (r->stream) {
        r->route->voice->piece(c, f, item);
    }
}

static void on_frame(void *ctx, const frame *f)
{
    run_choice *c = ctx;
    api_fault fault;
    switch (f->kind) {
    case FRAME_ACCEPTED:
        on_accepted(c, f);
        break;
    case FRAME_PROMPT_LOGPROBS:
        if (c->run->echo && !c->echo_is_out) {
            run_echo_put(c, f->logprobs, f->n_logprobs);
        }
        break;
    case FRAME_PROGRESS:
        on_progress(c, f);
        break;
    case FRAME_TOKEN:
    case FRAME_DELTA:
        on_piece(c, f);
        break;
    case FRAME_DONE:
        ensure_echo(c);
        answer_result_of(&c->result, &f->done);
        if (c->run->session) {
            snprintf(c->result.reset_reason, sizeof c->result.reset_reason, "%s",
                     f->done.session_reset_reason);
        }
        choice_ended(c);
        break;
    case FRAME_ERROR:
        c->ended = true;
        metrics_count_finish(c->run->api->metrics, "error");
        api_fault_frame(&fault, f);
        run_fail(c->run, &fault);
        break;
    default: /* of a later protocol */
        break;
    }
}

static bool any_accepted(const generation_run *r)
{
    for (size_t i = 0; i < r->n_choices; i++) {
        if (r->choices[i].accepted || r->choices[i].ended) {
            return true;
        }
    }
    return false;
}

static void on_lost(void *ctx, const err *why)
{
    run_choice *c = ctx;
    api_fault fault;
    if (why->code == ST_CANCELLED) {
        cut_choice(c, "cancelled");
    } else if (why->code == ST_TIMEOUT && any_accepted(c->run)) {
        cut_choice(c, "timeout");
    } else {
        api_fault_err(&fault, why);
        run_fail(c->run, &fault);
    }
}

void run_submit_choices(generation_run *r)
{
    err e;
    api_fault fault;
    for (size_t i = 0; i < r->n_choices; i++) {
        if (service_submit(r->service, &r->choices[i].job, &e) != ST_OK) {
            api_fault_err(&fault, &e);
            run_fail(r, &fault);
            return;
        }
        if (r->slow) {
            service_pause(r->service, &r->choices[i].job, true);
        }
    }
}

/*
 * While it lasts.
 */
static void on_slow(void *ctx, bool is_slow)
{
    generation_run *r = ctx;
    r->slow = is_slow;
    for (size_t i = 0; i < r->n_choices; i++) {
        if (r->choices[i].job.entry) {
            service_pause(r->service, &r->choices[i].job, is_slow);
        }
    }
}

/* DELETE: each choice gets its terminal frame, or is lost as cancelled, later. */
static void on_cancel(void *ctx)
{
    generation_run *r = ctx;
    r->entry.cancelling = true;
    run_echo_stop(r);
    for (size_t i = 0; i < r->n_choices; i++) {
        if (!r->choices[i].ended) {
            service_stop(r->service, &r->choices[i].job);
        }
    }
}

/*
 * Start.
 */
status generation_draw_seed(uint64_t *seed, err *e)
{
    ssize_t got;
    do {
        got = getrandom(seed, sizeof *seed, 0);
    } while (got < 0 && errno == EINTR);
    *seed = *seed % WIRE_MAX_SEED + 1;
    return got == (ssize_t)sizeof *seed /* always, for so few bytes */
               ? ST_OK
               : err_set(e, ST_INTERNAL, NULL, "no random bytes: %s", strerror(errno));
}

status generation_find_service(const api_context *api, const generation *g, model_service **out, err *e)
{
    bool is_text = !g->model || strlen(g->model) == g->model_len;
    model_service *s = is_text ? models_find(api->models, g->model) : NULL;
    if (!s) {
        return err_set(e, ST_NOT_FOUND, "model", "the model %.64s does not exist here", g->model);
    }
    *out = s;
    return ST_OK;
}

void generation_fault_of(const api_context *api, uint32_t key, const err *e, api_fault *out)
{
    api_fault_err(out, e);
    if (e->code == ST_CAPACITY) { /* one session more than the key may have */
        out->retry_after_s = session_desk_retry_s(api->sessions, key);
    }
}

static void name_run(generation_run *r, const generation_order *order, char job_name[JOB_NAME_BYTES])
{
    const char *id = order->request_id;
    uint64_t serial = order->serial ? order->serial : request_table_serial(r->api->requests);
    const char *bare = strncmp(id, "req_", 4) == 0 ? id + 4 : id;
    snprintf(r->entry.id, sizeof r->entry.id, "%s", id);
    snprintf(r->entry.answer_id, sizeof r->entry.answer_id, "%s%.64s", r->route->shape->id_prefix, bare);
    snprintf(job_name, JOB_NAME_BYTES, "%.32s.%llx", bare, (unsigned long long)serial);
}

/* 0 = none. A run that is begun again may be past it. */
static uint64_t deadline_of(const generation_run *r, const generation *g)
{
    int64_t age_ms = clock_wall_ms(r->api->clock) - r->entry.created_ms;
    uint64_t spent = age_ms > 0 ? (uint64_t)age_ms : 0;
    uint64_t left = g->deadline_ms > spent ? g->deadline_ms - spent : 0;
    return g->deadline_ms ? r->created_ns + left * RUN_NS_PER_MS : 0;
}

/* The model is known now, and with it what it says of sampling. */
static status complete_line(void *ctx, const service_model *m)
{
    run_choice *c = ctx;
    generation_run *r = c->run;
    generation_adopt_sampling(r->asked, &m->sampling);
    r->temperature = r->asked->common.temperature;
    r->top_p = r->asked->common.top_p;
    buf_reset(&c->job.line);
    return generation_put_line(r->asked, (size_t)(c - r->choices), c->job.id, &c->job.line, NULL);
}

/* The rest of g is the run's from here on. */
static status keep_asked(generation_run *r, generation *g, err *e)
{
    r->asked = mem_calloc(1, sizeof *r->asked);
    if (!r->asked) {
        return err_set(e, ST_NOMEM, NULL, "out of memory");
    }
    *r->asked = *g;
    *g = (generation){0};
    for (size_t i = 0; i < r->n_choices; i++) {
        r->choices[i].job.complete = complete_line;
    }
    return ST_OK;
}

static status make_lines(generation_run *r, const generation *g, const char *job_name, err *e)
{
    status st = ST_OK;
    size_t n_bytes = 0;
    uint64_t deadline_ns = deadline_of(r, g);
    for (size_t i = 0; st == ST_OK && i < r->n_choices; i++) {
        run_choice *c = &r->choices[i];
        snprintf(c->job.id, sizeof c->job.id, "%s.%u", job_name, (unsigned)i);
        c->run = r;
        c->job.key = r->entry.key;
        c->job.priority = r->priority;
        c->job.deadline_ns = deadline_ns;
        c->job.order = (uint64_t)(uintptr_t)r->session;
        c->job.on_frame = on_frame;
        c->job.on_lost = on_lost;
        c->job.ctx = c;
        c->result.seed = g->seed + i % r->per_prompt;
        st = generation_put_line(g, i, c->job.id, &c->job.line, e);
        n_bytes += c->job.line.len;
        if (st == ST_OK && n_bytes > MAX_WIRE_BYTES) {
            st = err_set(e, ST_BAD_REQUEST, NULL,
                         "the %zu choices take more than %zu bytes on the worker's wire", r->n_choices,
                         MAX_WIRE_BYTES);
        }
    }
    return st == ST_OK && g->echo ? run_echo_prepare(r, g, job_name, e) : st;
}

/* The session is the run's from here on, and keeps the order of its turns in the daemon's queue too. */
static status begin_turn(generation_run *r, generation *g, err *e)
{
    buf name = {0};
    r->priority = g->common.priority;
    if (!g->session) {
        return ST_OK;
    }
    status st = session_desk_begin(r->api->sessions, r->entry.key, r->service, g->session, &r->priority,
                                   &r->session, e);
    if (st == ST_OK) {
        st = session_desk_put_name(r->api->sessions, r->entry.key, g->session, &name);
        char *copy = st == ST_OK ? arena_alloc(&g->mem, name.len + 1) : NULL;
        if (copy) {
            memcpy(copy, name.data, name.len + 1);
            g->common.session_id = (wire_string){copy, name.len};
        } else {
            st = err_set(e, ST_NOMEM, NULL, "out of memory");
        }
    }
    buf_release(&name);
    return st;
}

static status fill(generation_run *r, const generation_order *order, generation *g, err *e)
{
    char job_name[JOB_NAME_BYTES];
    r->created_ns = now_ns(r);
    r->n_choices = generation_n_choices(g);
    r->per_prompt = (size_t)g->n;
    r->stream = g->stream;
    r->include_usage = g->include_usage;
    r->progress = g->progress;
    r->echo = g->echo;
    r->has_logprobs = g->common.top_logprobs >= 0;
    r->shown_position = SIZE_MAX;
    r->temperature = g->common.temperature;
    r->top_p = g->common.top_p;
    r->request = g->request;
    g->request = (buf){0};
    r->sse.conn = r->conn;
    r->sse.clock = r->api->clock;
    snprintf(r->model_digest, sizeof r->model_digest, "%s", order->model_digest);
    name_run(r, order, job_name);
    r->entry.route = r->route->path;
    r->entry.model = service_id(r->service);
    r->entry.n_choices = r->n_choices;
    r->entry.created_ms = order->created_ms;
    r->entry.cancel = on_cancel;
    r->entry.position = run_position;
    r->entry.ctx = r;
    r->head = (answer_head){.shape = r->route->shape,
                            .id = r->entry.answer_id,
                            .model = r->entry.model,
                            .created_s = r->entry.created_ms / 1000};
    g->common.has_now = true;
    g->common.now_ms = r->entry.created_ms;
    g->common.cache_namespace = keys_namespace(r->api->keys, r->entry.key);
    r->timer = evtimer_new(r->api->base, run_wait_over, r);
    if (!r->timer) {
        return err_set(e, ST_NOMEM, NULL, "out of memory");
    }
    status st = begin_turn(r, g, e);
    return st == ST_OK ? make_lines(r, g, job_name, e) : st;
}

/* Takes parts of g; either conn or taker is there. */
static status make_run(const api_context *api, const generation_route *route, const generation_order *order,
                       http_conn *c, const generation_taker *taker, generation *g, generation_run **out,
                       err *e)
{
    if (order->sampling) {
        generation_adopt_sampling(g, order->sampling);
    }
    generation_run *r = mem_calloc(1, sizeof *r + generation_n_choices(g) * sizeof r->choices[0]);
    if (!r) {
        return err_set(e, ST_NOMEM, NULL, "out of memory");
    }
    r->api = api;
    r->route = route;
    r->service = order->service;
    r->conn = c;
    r->taker = taker ? *taker : (generation_taker){0};
    r->entry.key = order->key;
    request_table_add(api->requests, &r->entry);
    status st = fill(r, order, g, e);
    if (st == ST_OK && !order->sampling) {
        st = keep_asked(r, g, e);
    }
    if (st == ST_OK) {
        *out = r;
    } else {
        note_end(r, REQUEST_FAILED, wire_error_name(st));
        run_free(r);
    }
    return st;
}

status generation_run_new(const api_context *api, const generation_route *route,
                          const generation_order *order, const generation_taker *taker, generation *g,
                          generation_run **out, err *e)
{
    return make_run(api, route, order, NULL, taker, g, out, e);
}

size_t generation_run_bytes(const generation_run *r)
{
    size_t n = 0;
    for (size_t i = 0; i < r->n_choices; i++) {
        n += r->choices[i].job.line.len;
    }
    return n;
}

void generation_run_begin(generation_run *r)
{
    if (r->entry.cancelling) { /* before it began */
        run_cut_all(r);
    } else {
        run_echo_next(r);
    }
}

void generation_run_drop(generation_run *r)
{
    give_up_jobs(r, "gone");
    note_end(r, REQUEST_GONE, "gone");
    run_free(r);
}

static status read_run(const api_context *api, const generation_route *route, http_conn *c, uint32_t key,
                       const char *session, const char *body, size_t len, generation_run **out, err *e)
{
    generation g;
    uint64_t seed;
    service_info info;
    generation_order order = {.key = key,
                              .request_id = http_conn_request_id(c),
                              .created_ms = clock_wall_ms(api->clock),
                              .model_digest = ""};
    status st = generation_draw_seed(&seed, e);
    st = st == ST_OK ? route->read(body, len, seed, &g, e) : st;
    if (st != ST_OK) {
        return st;
    }
    st = generation_read_session(&g, session, e) ? generation_find_service(api, &g, &order.service, e)
                                                 : e->code;
    if (st == ST_OK) {
        service_read(order.service, &info);
        order.sampling = info.known ? &info.model.sampling : NULL;
        st = make_run(api, route, &order, c, NULL, &g, out, e);
    }
    generation_release(&g);
    return st;
}

void generation_run_start(const api_context *api, const generation_route *route, http_conn *c, uint32_t key,
                          const char *session, const char *body, size_t len)
{
    err e;
    api_fault fault;
    generation_run *r = NULL;
    (void)read_run(api, route, c, key, session, body, len, &r, &e);
    if (!r) {
        generation_fault_of(api, key, &e, &fault);
        api_reply_fault(c, &fault);
        return;
    }
    http_conn_on_gone(c, on_gone, r);
    if (r->stream) {
        http_conn_on_slow(c, on_slow, r);
        if (r->progress) {
            sse_begin(&r->sse);
        }
        run_wait(r);
    }
    run_echo_next(r);
}
