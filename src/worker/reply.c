#include "worker/reply.h"

#include <errno.h>
#include <float.h>
#include <string.h>
#include <sys/random.h>

#include "base/mem.h"
#include "wire/frame.h"
#include "worker/prompt.h"

/*
 * Frames
 */
static void say_error(reply *p, const frame_error *f)
{
    if (!halt_asked(p->halt)) {
        output_check(p->out, frame_put_error(output_stage(p->out), f));
    }
}

static void say_text(reply *p, const char *text, size_t len)
{
    if (len > 0 && !halt_asked(p->halt)) {
        output_check(p->out, frame_put_token(output_stage(p->out), text, len));
    }
}

static void on_token(void *ctx, const gen_token *t)
{
    say_text(ctx, t->text, t->text_len);
}

static void on_done(void *ctx, const gen_result *r)
{
    reply *p = ctx;
    bool cancelled = r->reason == FINISH_CANCELLED;
    frame_done d = {
        .prompt_tokens = r->prompt_tokens,
        .completion_tokens = (int32_t)r->n_ids,
        .reused_prompt_tokens = r->reused_tokens,
        .prefilled_prompt_tokens = r->prefilled_tokens,
        .finish_reason = finish_plain_name(r->reason),
        .reason = finish_name(r->reason),
        .guard = r->guard,
        .session_reset_reason = reset_reason_name(r->reset),
        .prefill_ms = r->prefill_ms,
        .decode_ms = r->decode_ms,
        .total_ms = clock_ms_between(p->taken_ns, clock_mono_ns(p->clock)),
        .queue_ms = r->queue_ms,
        .ttft_ms = r->ttft_ms,
        .seed = r->seed,
        .has_ids = !r->stop_cut && !cancelled,
        .ids = r->ids,
        .cancelled = cancelled,
        .tail_repaired = r->repaired_tail,
    };
    p->running = false;
    say_text(p, r->tail_text, r->tail_text_len);
    if (!halt_asked(p->halt)) {
        output_check(p->out, frame_put_done(output_stage(p->out), &d));
    }
}

static void on_failed(void *ctx, const err *e)
{
    reply *p = ctx;
    frame_error f = frame_error_of(e);
    p->running = false;
    say_error(p, &f);
}

/*
 * Starting
 */
static status draw_seed(uint64_t *seed, err *e)
{
    uint64_t x = 0;
    while (x == 0) { /* 0 would mean "draw one" where it is used again */
        ssize_t n = getrandom(&x, sizeof x, 0);
        if (n < 0 && errno != EINTR) {
            return err_set(e, ST_IO, "seed", "no random seed: %s", strerror(errno));
        }
        x = n == (ssize_t)sizeof x ? x & WIRE_MAX_SEED : 0;
    }
    *seed = x;
    return ST_OK;
}

static status sampling_of(const wire_request *r, sampling *out, err *e)
{
    sampling s = sampling_default();
    s.temperature = r->temperature > (double)FLT_MAX ? FLT_MAX : (float)r->temperature;
    s.top_p = r->top_p < (double)FLT_MIN ? FLT_MIN : (float)r->top_p;
    s.top_k = r->top_k;
    s.seed = r->seed;
    status st = s.seed == 0 ? draw_seed(&s.seed, e) : ST_OK;
    if (st == ST_OK) {
        *out = s;
    }
    return st;
}

/* NULL where there are none. */
static status stops_of(const wire_request *r, stop_set **out, err *e)
{
    *out = NULL;
    if (r->n_stops == 0) {
        return ST_OK;
    }
    stop_string *strings = mem_alloc_array(r->n_stops, sizeof *strings);
    if (!strings) {
        return err_set(e, ST_NOMEM, "stop", "out of memory for the stop strings");
    }
    for (size_t i = 0; i < r->n_stops; i++) {
        strings[i] = (stop_string){r->stops[i].data, r->stops[i].len};
    }
    status st = stop_set_new(strings, r->n_stops, out, e);
    mem_free(strings);
    return st;
}

/* Finds or opens the session and gives the request to the engine; if that fails nothing is left behind. */
static status submit(reply *p, const wire_request *r, gen_request *g, err *e)
{
    bool opened = false;
    if (r->session_id.len > 0) {
        status st = sessions_open(p->sessions, r->session_id, &g->session, &opened, e);
        if (st != ST_OK) {
            return st;
        }
    }
    p->running = true; /* a sink may be called before engine_submit returns */
    status st = engine_submit(p->en, g, &p->seq, e);
    if (st != ST_OK) {
        p->running = false;
        if (opened) {
            sessions_close(p->sessions, r->session_id);
        }
    }
    return st;
}

static void refuse(reply *p, const wire_request *r, size_t n_prompt, const err *e)
{
    frame_error f = frame_error_of(e);
    if (e->code == ST_CONTEXT_LENGTH) {
        f.prompt_tokens = (int64_t)n_prompt;
        f.limit = p->n_ctx;
    }
    if (e->code == ST_CAPACITY || e->code == ST_UNSUPPORTED_SESSION) {
        f.has_session = true;
        f.session_id = r->session_id.data;
        f.session_id_len = r->session_id.len;
    }
    say_error(p, &f);
}

void reply_start(reply *p, const wire_request *r)
{
    err e;
    ivec prompt = {0};
    gen_request g = {
        .max_new_tokens = r->max_new_tokens,
        .cancel = &p->halt->on,
        .sink = {p, on_token, on_done, on_failed},
    };
    err_clear(&e);
    p->taken_ns = clock_mono_ns(p->clock);
    status st = prompt_build(p->tok, p->prefix, r, p->n_ctx, &prompt, &e);
    if (st == ST_OK) {
        st = sampling_of(r, &g.params, &e);
    }
    if (st == ST_OK) {
        st = stops_of(r, &g.stops, &e);
    }
    if (st == ST_OK) {
        g.prompt = prompt.data;
        g.n_prompt = prompt.len;
        st = submit(p, r, &g, &e);
    }
    if (st != ST_OK) {
        stop_set_free(g.stops);
        refuse(p, r, prompt.len, &e);
    }
    ivec_release(&prompt);
}

bool reply_running(const reply *p)
{
    return p->running;
}

void reply_hold(reply *p, bool held)
{
    if (p->running) {
        seq_hold(p->seq, held);
    }
}
