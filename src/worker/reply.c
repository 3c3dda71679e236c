#include "worker/reply.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "wire/frame.h"
#include "wire/line.h"
#include "worker/last.h"
#include "worker/talk.h"

#define LOGPROB_BYTES ((size_t)128) /* of one in a frame, generously */

/*
 * Frames. All go through here: once the worker is halted nothing is said any more, nor of a reply of which a frame could
 * not be said, but its end.
 */
static bool may_speak(const task *k)
{
    return !k->lost && !halt_asked(k->desk->halt);
}

static buf *stage_of(const task *k)
{
    return output_stage(k->desk->out);
}

/* Without memory for a frame its reply fails: the client would miss it. */
static void said(task *k, status st)
{
    if (!output_check(k->desk->out, st)) {
        k->lost = true;
        seq_fail(k->seq, ST_NOMEM);
    }
}

static wire_string id_of(const task *k)
{
    return k->request->id;
}

static wire_string piece_of(const task *k, int32_t token)
{
    wire_string piece;
    piece.data = tokenizer_piece(k->desk->tok, token, &piece.len);
    return piece;
}

/* top: room for SAMPLER_MAX_TOP_LOGPROBS; the result borrows it. */
static frame_logprob logprob_of(const task *k, const sampler_out *probs, frame_logprob *top)
{
    for (int32_t i = 0; i < probs->n_top; i++) {
        const token_logprob *p = &probs->top[i];
        top[i] =
            (frame_logprob){.token = p->token, .logprob = (double)p->logprob, .text = piece_of(k, p->token)};
    }
    return (frame_logprob){.token = probs->token,
                           .logprob = (double)probs->chosen.logprob,
                           .text = piece_of(k, probs->token),
                           .top = top,
                           .n_top = (size_t)probs->n_top};
}

static void say_step(task *k, const frame_step *s)
{
    if (may_speak(k)) {
        said(k, frame_put_token(stage_of(k), id_of(k), s));
    }
}

static void say_delta(void *ctx, const frame_step *s)
{
    task *k = ctx;
    if (may_speak(k) && k->n_again == 0) {
        said(k, frame_put_delta(stage_of(k), id_of(k), s));
    }
}

static status on_watch(void *ctx, gen_moment when, const char *text, size_t len, gen_verdict *v)
{
    const task *k = ctx;
    uint64_t before = desk_attend(k->desk, k->id_hash);
    status st = talk_watch(k->talk, when, text, len, v);
    desk_attend(k->desk, before);
    return st;
}

static void on_token(void *ctx, const gen_token *t)
{
    task *k = ctx;
    frame_logprob top[SAMPLER_MAX_TOP_LOGPROBS], lp;
    frame_step s = {.text = {t->text, t->text_len}, .ids = &t->token, .n_ids = 1};
    if (t->probs) {
        lp = logprob_of(k, t->probs, top);
        s.logprobs = &lp;
    }
    if (k->talk) {
        talk_say_ids(k->talk, &s);
    } else if (!t->again && (k->multiplexed || t->text_len > 0)) {
        say_step(k, &s);
    }
    k->n_again -= t->again; /* with the ids of the last one all of its step is said */
}

static void on_prompt_probs(void *ctx, const sampler_out *probs, size_t n)
{
    task *k = ctx;
    if (!may_speak(k)) {
        return;
    }
    frame_logprob *lp = mem_alloc_array(n, sizeof *lp);
    frame_logprob *tops = mem_alloc_array(n, SAMPLER_MAX_TOP_LOGPROBS * sizeof *tops);
    status st = lp && tops ? ST_OK : ST_NOMEM;
    for (size_t i = 0; st == ST_OK && i < n; i++) {
        lp[i] = logprob_of(k, &probs[i], tops + i * SAMPLER_MAX_TOP_LOGPROBS);
    }
    if (st == ST_OK) {
        st = frame_put_prompt_logprobs(stage_of(k), id_of(k), lp, n);
    }
    mem_free(lp);
    mem_free(tops);
    said(k, st);
}

/* Until the engine had it: preparing and waiting included. */
static double waited_ms(const task *k)
{
    return clock_ms_between(k->begun_ns, k->submit_ns);
}

/* A reply that is not kept, for want of memory, is tokenised like any text when it comes back. */
static void keep(const task *k, const gen_result *r)
{
    if (k->talk && k->desk->kept && r->n_ids > 0 && r->reason != FINISH_CANCELLED) {
        (void)talk_keep(k->talk, k->desk->tok, &k->job.talk.known, r->ids, r->n_ids);
    }
}

/* What was known and yet computed: only that is a miss to be told. */
static void tell_miss(const gen_result *r, frame_done *d)
{
    if (r->miss == KV_MISS_DIFFERS || r->miss == KV_MISS_EVICTED || r->miss == KV_MISS_SNAPSHOT) {
        d->cache_miss_reason = kv_miss_name(r->miss);
        d->cache_miss_at = r->miss_at;
    }
}

static void on_done(void *ctx, const gen_result *r)
{
    task *k = ctx;
    const desk *served = k->desk;
    uint64_t before = desk_attend(served, k->id_hash);
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
        .total_ms = clock_ms_between(k->begun_ns, clock_mono_ns(k->desk->clock)),
        .queue_ms = r->queue_ms + waited_ms(k),
        .ttft_ms = r->ttft_ms > 0 ? r->ttft_ms + waited_ms(k) : 0,
        .seed = r->seed,
        .has_ids = !r->stop_cut && !cancelled,
        .ids = r->ids,
        .cancelled = cancelled,
        .tail_repaired = r->repaired_tail,
        .preemptions = r->preemptions,
    };
    tell_miss(r, &d);
    if (k->talk) {
        talk_say_rest(k->talk);
        d.reasoning_tokens = talk_reasoning_tokens(k->talk);
    } else if (r->tail_text_len > 0) {
        say_step(k, &(frame_step){.text = {r->tail_text, r->tail_text_len}});
    }
    status st = k->lost ? ST_NOMEM : ST_OK;
    if (may_speak(k)) {
        keep(k, r);
        st = frame_put_done(stage_of(k), id_of(k), &d);
    }
    tasks *t = k->desk->tasks;
    if (!last_said(k, st)) { /* the engine has counted it as what it was to be */
        *(cancelled ? &t->n_cancelled : &t->n_done) -= 1;
        t->n_failed++;
    }
    desk_attend(served, before);
}

static void on_failed(void *ctx, const err *e)
{
    reply_fail(ctx, e);
}

/* What its reply had elsewhere; nothing, if it begins here. */
static const wire_resume *had(const task *k)
{
    static const wire_resume nothing;
    return k->request->resume ? k->request->resume : &nothing;
}

/* Of prompt and reply; a reply that has no end of its own wants one token. */
static int64_t needed_pages(const task *k)
{
    size_t n_prompt = k->job.ids.len, room = (size_t)k->desk->n_ctx - n_prompt;
    int32_t max_new = k->request->max_new_tokens;
    size_t n_had = had(k)->n_ids, n_least = n_had > 0 ? n_had : 1;
    size_t n_reply = max_new < 0 || (size_t)max_new > room ? n_least : (size_t)max_new;
    return (int64_t)resident_pages_for(n_prompt + n_reply);
}

void reply_fail(task *k, const err *e)
{
    const wire_request *r = k->request;
    frame_error f = frame_error_of(e);
    f.id = id_of(k);
    if (e->code == ST_CONTEXT_LENGTH) {
        f.prompt_tokens = (int64_t)k->job.ids.len;
        f.limit = k->desk->n_ctx;
    }
    if (e->code == ST_NEVER_FITS) {
        f.need = needed_pages(k);
        f.have = (int64_t)desk_stats(k->desk).pages_total;
    }
    if (e->code == ST_CAPACITY || e->code == ST_UNSUPPORTED_SESSION) {
        f.has_session = true;
        f.session_id = r->session_id.data;
        f.session_id_len = r->session_id.len;
    }
    k->desk->tasks->n_failed += !k->submitted; /* else the engine has counted it */
    last_said(k, halt_asked(k->desk->halt) ? ST_OK : frame_put_error(stage_of(k), &f));
}

void reply_cut(task *k, finish_reason reason, const char *guard)
{
    uint64_t seed = k->request->resume ? had(k)->seed : k->request->seed;
    double waited = clock_ms_between(k->begun_ns, clock_mono_ns(k->desk->clock));
    frame_done d = {
        .prompt_tokens = k->state == TASK_PREPARED ? (int32_t)k->job.ids.len : 0,
        .completion_tokens = (int32_t)had(k)->n_ids,
        .finish_reason = finish_plain_name(reason),
        .reason = finish_name(reason),
        .guard = guard,
        .session_reset_reason = reset_reason_name(RESET_NEW),
        .total_ms = waited,
        .queue_ms = waited,
        .seed = seed > 0 ? seed : 1,
        .cancelled = reason == FINISH_CANCELLED,
    };
    bool counts = task_is_generation(k), as_put;
    tasks *t = k->desk->tasks;
    as_put = last_said(k, halt_asked(k->desk->halt) ? ST_OK : frame_put_done(stage_of(k), id_of(k), &d));
    *(!as_put ? &t->n_failed : d.cancelled ? &t->n_cancelled : &t->n_done) += counts;
}

void reply_progress(task *k, uint64_t now_ns)
{
    frame_progress p = {.prompt_tokens = (int32_t)k->job.ids.len};
    bool soon = k->progress_ns != 0 && clock_ms_between(k->progress_ns, now_ns) < REPLY_PROGRESS_MS;
    if (!k->request->progress || soon || !may_speak(k)) {
        return;
    }
    seq_progress(k->seq, &p.cached, &p.processed);
    if (p.processed < p.prompt_tokens) {
        (void)output_check(k->desk->out, frame_put_progress(stage_of(k), id_of(k), &p)); /* none is missed */
        k->progress_ns = now_ns;
    }
}

void reply_hold(task *k, bool held)
{
    seq_hold(k->seq, held);
}

/*
 * Submitting
 */
static float narrow(double x)
{
    return x > (double)FLT_MAX ? FLT_MAX : (float)x;
}

/* bias: [n_bias] room. */
static sampling sampling_of(const task *k, logit_bias *bias)
{
    const wire_request *r = k->request;
    sampling s = sampling_default();
    s.temperature = narrow(r->temperature);
    s.top_p = r->top_p < (double)FLT_MIN ? FLT_MIN : (float)r->top_p;
    s.top_k = r->top_k;
    s.seed = k->job.seed;
    if (!k->multiplexed) {
        return s;
    }
    for (size_t i = 0; i < r->n_bias; i++) {
        double b = r->bias[i].bias;
        bias[i] = (logit_bias){r->bias[i].token, b <= -WIRE_MAX_BIAS_VALUE ? -INFINITY : (float)b};
    }
    s.bias = bias;
    s.n_bias = r->n_bias;
    s.min_p = (float)r->min_p;
    s.repetition_penalty = (float)r->repetition_penalty;
    s.presence_penalty = (float)r->presence_penalty;
    s.frequency_penalty = (float)r->frequency_penalty;
    s.repeat_last_n = r->repeat_last_n;
    s.min_tokens = r->min_tokens;
    s.ignore_eos = r->ignore_eos;
    s.top_logprobs = r->top_logprobs;
    return s;
}

static void say_accepted(task *k, int32_t cached)
{
    frame_accepted a = {
        .seed = k->job.seed,
        .now_ms = k->job.now_ms,
        .prompt_tokens = (int32_t)k->job.ids.len,
        .prompt_digest = k->job.digest,
        .cached_prompt_tokens = cached,
        .prompt_ids = k->job.talk.known.used || had(k)->prompt_ids ? k->job.ids.data : NULL,
    };
    if (may_speak(k)) {
        said(k, frame_put_accepted(stage_of(k), id_of(k), &a));
    }
}

static gen_request generation_of(task *k, logit_bias *bias)
{
    const wire_request *r = k->request;
    gen_request g = {
        .prompt = k->job.ids.data,
        .n_prompt = k->job.ids.len,
        .max_new_tokens = r->max_new_tokens,
        .params = sampling_of(k, bias),
        .stops = k->job.stops,
        .deadline_ns = k->deadline_ns,
        .cancel = r->cancel_request_id != 0 ? &k->desk->control->cancel : NULL,
        .sink = {k, on_token, on_done, on_failed, NULL, k->talk ? on_watch : NULL},
        .prompt_logprobs = -1,
    };
    if (k->multiplexed) {
        g.priority = r->priority;
        g.cache_namespace = r->cache_namespace.data;
        g.n_cache_namespace = r->cache_namespace.len;
        g.repeat_span = wire_request_repetition_guard(r);
        g.stop_ids = r->stop_token_ids;
        g.n_stop_ids = r->n_stop_token_ids;
        g.prompt_logprobs = r->prompt_logprobs;
        g.sink.prompt_probs = r->prompt_logprobs >= 0 ? on_prompt_probs : NULL;
        g.id_hash = k->id_hash;
        g.resumed = had(k)->ids;
        g.n_resumed = had(k)->n_ids;
    }
    return g;
}

/* Finds or opens the session and gives the request to the engine; if that fails nothing is left behind. */
static status submit(task *k, gen_request *g, err *e)
{
    const wire_request *r = k->request;
    bool opened = false;
    if (r->session_id.len > 0) {
        status st = sessions_open(k->desk->sessions, r->session_id,
                                  k->multiplexed ? SESSION_WITHOUT_LANE : SESSION_KEEPS_LANE, &g->session,
                                  &opened, e);
        if (st != ST_OK) {
            return st;
        }
    }
    int32_t cached = engine_would_reuse(k->desk->en, g);
    k->n_again = g->n_resumed;
    status st = engine_submit(k->desk->en, g, &k->seq, e);
    if (st != ST_OK) {
        k->seq = NULL;
        if (opened) {
            sessions_close(k->desk->sessions, r->session_id);
        }
        return st;
    }
    k->job.stops = NULL; /* the engine's now */
    k->submitted = true;
    if (k->multiplexed) {
        say_accepted(k, cached);
    }
    return ST_OK;
}

/* They go into one frame, and a frame must fit into a line. */
static status check_prompt_logprobs(const task *k, err *e)
{
    size_t n = k->job.ids.len, per_token = (size_t)k->request->prompt_logprobs + 1;
    if (!k->multiplexed || k->request->prompt_logprobs < 0 || had(k)->n_ids > 0 ||
        n <= WIRE_MAX_LINE_BYTES / LOGPROB_BYTES / per_token) {
        return ST_OK;
    }
    return err_set(e, ST_INVALID_FIELD, "prompt_logprobs",
                   "prompt_logprobs of %zu tokens do not fit into one frame", n);
}

static status begin_talk(task *k, err *e)
{
    if (k->request->op != WIRE_CHAT) {
        return ST_OK;
    }
    talk_options o = {.request = k->request,
                      .format = chat_template_format(k->desk->chat),
                      .opening = &k->job.talk.opening,
                      .reasoning_open = k->job.talk.reasoning_open,
                      .budget = k->job.budget,
                      .close_ids = &k->job.close_ids,
                      .say = say_delta,
                      .ctx = k};
    return talk_new(&o, &k->talk) == ST_OK ? ST_OK : err_set(e, ST_NOMEM, NULL, "out of memory for a reply");
}

static status check_and_submit(task *k, err *e)
{
    if (k->job.st != ST_OK) {
        *e = k->job.error;
        return k->job.st;
    }
    status st = check_prompt_logprobs(k, e);
    if (st != ST_OK) {
        return st;
    }
    st = begin_talk(k, e);
    if (st != ST_OK) {
        return st;
    }
    logit_bias bias[WIRE_MAX_BIAS];
    gen_request g = generation_of(k, bias);
    return submit(k, &g, e);
}

void reply_submit(task *k)
{
    err e;
    uint64_t cancel_id = k->request->cancel_request_id;
    err_clear(&e);
    k->submit_ns = clock_mono_ns(k->desk->clock);
    status st = check_and_submit(k, &e);
    if (st == ST_OK) {
        if (cancel_id != 0) {
            control_begin(k->desk->control, cancel_id);
        }
        k->state = TASK_RUNNING;
        return;
    }
    if (cancel_id != 0 && st != ST_CAPACITY && st != ST_UNSUPPORTED_SESSION) {
        control_spend(k->desk->control, cancel_id);
    }
    reply_fail(k, &e);
}
