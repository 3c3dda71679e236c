/*
 * The life of one sequence: made by engine_submit, moved by the functions on the arrows in engine_int.h, gone
 * with its one terminal call.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "engine/engine_int.h"

static void sequence_free(sequence *s)
{
    if (!s) {
        return;
    }
    ivec_release(&s->history);
    mem_free(s->bias);
    mem_free(s->stop_ids);
    mem_free(s->labels);
    mem_free(s->label_logprobs);
    mem_free(s->prompt_probs);
    stop_set_free(s->stops);
    stop_matcher_release(&s->stop);
    buf_release(&s->tail);
    mem_free(s);
}

static status copy_lists(sequence *s, const gen_request *r)
{
    if (r->params.n_bias > 0) {
        s->bias = mem_alloc_array(r->params.n_bias, sizeof *s->bias);
        if (!s->bias) {
            return ST_NOMEM;
        }
        memcpy(s->bias, r->params.bias, r->params.n_bias * sizeof *s->bias);
    }
    s->params.bias = s->bias;
    if (r->n_stop_ids > 0) {
        s->stop_ids = mem_alloc_array(r->n_stop_ids, sizeof *s->stop_ids);
        if (!s->stop_ids) {
            return ST_NOMEM;
        }
        memcpy(s->stop_ids, r->stop_ids, r->n_stop_ids * sizeof *s->stop_ids);
        s->n_stop_ids = r->n_stop_ids;
    }
    if (r->plan == GEN_SCORE) {
        s->labels = mem_alloc_array(r->n_labels, sizeof *s->labels);
        s->label_logprobs = mem_alloc_array(r->n_labels, sizeof *s->label_logprobs);
        if (!s->labels || !s->label_logprobs) {
            return ST_NOMEM;
        }
        memcpy(s->labels, r->labels, r->n_labels * sizeof *s->labels);
        s->n_labels = r->n_labels;
    }
    if (r->sink.prompt_probs && r->prompt_logprobs >= 0 && r->n_resumed == 0) {
        s->prompt_probs = mem_alloc_array(s->n_prompt - 1, sizeof *s->prompt_probs); /* not NULL for 0 */
        if (!s->prompt_probs) {
            return ST_NOMEM;
        }
        s->n_prompt_top = r->prompt_logprobs;
    }
    return ST_OK;
}

/* Everything the sequence will need until its end is allocated here. */
static status allocate(sequence *s, const gen_request *r)
{
    size_t n_total;
    if (!size_add(s->n_prompt, s->max_new, &n_total)) {
        return ST_NOMEM;
    }
    status st = copy_lists(s, r);
    if (st == ST_OK) {
        st = ivec_reserve(&s->history, n_total);
    }
    if (st == ST_OK) {
        st = ivec_append(&s->history, r->prompt, s->n_prompt);
    }
    if (st == ST_OK) {
        st = reuse_root(s->en, r->cache_namespace, r->n_cache_namespace, &s->root);
    }
    if (st == ST_OK) {
        st = reply_reserve(s);
    }
    return st;
}

size_t sequence_generated(const sequence *s)
{
    return s->history.len - s->n_prompt;
}

/* While it is there still: TAIL, or a reply that was over before it came here. */
static bool is_sealed(const sequence *s)
{
    return s->sealed != FINISH_NONE;
}

/* So that the next turn finds the whole reply resident. */
static bool forwards_last(const sequence *s)
{
    return s->sealed == FINISH_LENGTH && s->session && !s->stop_cut;
}

bool sequence_over(const sequence *s)
{
    return s->state == SEQ_QUEUED && is_sealed(s) && !forwards_last(s);
}

size_t sequence_reserves(const sequence *s)
{
    size_t left = s->max_new - sequence_generated(s);
    return s->history.len + (left < GEN_WATERMARK_TOKENS ? left : GEN_WATERMARK_TOKENS);
}

void sequence_admit(sequence *s, lane *l, reuse_offer *o, size_t need_pages, uint64_t now_ns)
{
    engine *en = s->en;
    assert(s->state == SEQ_QUEUED && !s->held && l->kv.n_pages == 0);
    s->lane = l;
    s->kv = &l->kv;
    if (s->session) {
        s->session->active = s;
        l->tokens = &l->kv.ids;
        s->session->dirty = false;
    }
    s->reset = o->reason;
    s->miss = o->miss;
    s->miss_at = o->miss_at;
    s->reused = o->n_tokens < s->n_prompt ? o->n_tokens : s->n_prompt;
    s->n_known = o->n_tokens;
    reuse_take(s, o);
    s->admit_ns = now_ns;
    s->admitted = ++en->n_admitted;
    s->promised_pages = need_pages - s->kv->n_pages;
    en->promised_pages += s->promised_pages;
    en->active[en->n_active++] = s;
    counter_set(&en->count.running, en->n_active);
    counter_add(&en->count.reused, s->reused);
    counter_add(&en->count.restored, s->n_known - s->reused);
    s->state = SEQ_PREFILL;
    engine_note_pages(en);
}

size_t sequence_pending(const sequence *s)
{
    return s->history.len - (s->kv ? s->kv->ids.len : 0);
}

bool sequence_wants_logits(const sequence *s, size_t position)
{
    bool last = position + 1 == s->history.len; /* of what is known: a token is drawn from it */
    bool draws = last && !is_sealed(s) && (s->max_new > 0 || s->plan == GEN_SCORE);
    return draws || (s->prompt_probs && position >= s->n_known && position + 1 < s->n_prompt);
}

bool sequence_wants_hidden(const sequence *s, size_t position)
{
    return s->plan == GEN_EMBED && position + 1 == s->n_prompt;
}

static size_t pages_to_take(const sequence *s, size_t n_rows)
{
    return resident_pages_for(s->kv->ids.len + n_rows) - s->kv->n_pages;
}

size_t sequence_short_of(const sequence *s, size_t n_rows)
{
    size_t take = pages_to_take(s, n_rows);
    return take > s->promised_pages ? take - s->promised_pages : 0;
}

status sequence_cover(sequence *s, size_t n_rows)
{
    size_t before = s->kv->n_pages;
    status st = resident_cover(s->kv, s->en->pages, s->kv->ids.len + n_rows);
    size_t taken = s->kv->n_pages - before;
    size_t kept = taken < s->promised_pages ? taken : s->promised_pages; /* of the promise */
    s->promised_pages -= kept;
    s->en->promised_pages -= kept;
    return st;
}

bool sequence_cancelled(const sequence *s)
{
    /* Acquire: what the canceller did before is visible to the sink that reports it. Partner: any release
     * store. */
    return s->cancel_asked || (s->cancel && atomic_load_explicit(s->cancel, memory_order_acquire));
}

bool sequence_overdue(const sequence *s, uint64_t now_ns)
{
    return s->deadline_ns != 0 && now_ns >= s->deadline_ns;
}

/* The session's tokens are those that its last request computed, or none. Returns how many it still lacks. */
static size_t leave_session(sequence *s, bool kept)
{
    session *owner = s->session;
    status st = ST_OK;
    owner->active = NULL;
    owner->last_used = s->en->step_no;
    if (kept && s->en->cfg.warm) {
        st = session_keep(owner, &s->kv->ids);
    } else {
        ivec_reset(&owner->ids);
    }
    s->lane->tokens = &owner->ids;
    return st == ST_OK ? 0 : s->kv->ids.len;
}

/* Without memory for a copy the session takes the sequence's own, which begin with the n that it is to have. What
 * points to them stays valid until its next request. */
static void give_history(sequence *s, size_t n)
{
    ivec old = s->session->ids;
    s->session->ids = s->history;
    ivec_truncate(&s->session->ids, n);
    s->history = old;
}

/* Out of those that run: its lane, its pages and what was promised to it are free again. */
static void leave_active(sequence *s, bool kept)
{
    engine *en = s->en;
    size_t i = 0;
    while (en->active[i] != s) {
        i++;
    }
    memmove(en->active + i, en->active + i + 1, (en->n_active - i - 1) * sizeof(sequence *));
    en->n_active--;
    counter_set(&en->count.running, en->n_active);
    en->promised_pages -= s->promised_pages;
    if (s->state == SEQ_PARKED) {
        atomic_fetch_sub_explicit(&en->count.parked, 1, memory_order_relaxed);
    }
    sequence_drop_image(s);
    size_t lacks = s->session ? leave_session(s, kept) : 0;
    if (kept) {
        stored_write(s, true);
    }
    reuse_leave(s, kept);
    if (lacks > 0) {
        give_history(s, lacks);
    }
    if (!s->session) {
        (void)lanes_release(en->lanes, s->ticket);
    } else if (s->session->gives_lane) {
        session_lose_lane(s->session);
    }
}

/* Takes the sequence out of every list and count; only its own memory is left. What it computed is kept for others, or
 * nothing of it. */
static void leave(sequence *s, bool kept)
{
    engine *en = s->en;
    stored_give_up(s);
    if (s->state != SEQ_QUEUED) {
        leave_active(s, kept);
    }
    if (s->session) {
        s->session->n_requests--;
    }
    if (s->prev) {
        s->prev->next = s->next;
    } else {
        en->first = s->next;
    }
    if (s->next) {
        s->next->prev = s->prev;
    } else {
        en->last = s->prev;
    }
    en->n_sequences--;
    counter_set(&en->count.sequences, en->n_sequences);
    engine_note_pages(en);
}

/* Frees it; one that never told its caller how it ended is our bug. */
static void destroy(sequence *s)
{
    if (!s->terminal_sent) {
        counter_add(&s->en->count.bugs, 1);
        log_emit(LOG_ERROR, "engine", "event=sequence_without_terminal state=%d", (int)s->state);
#ifdef HEARTH_DEBUG
        abort();
#endif
    }
    sequence_free(s);
}

void sequence_fail(sequence *s, const err *e)
{
    session *owner = s->session;
    if (owner && owner->active == s) {
        owner->dirty = true;
    }
    leave(s, false);
    counter_add(&s->en->count.failed, 1);
    s->terminal_sent = true;
    s->sink.failed(s->sink.ctx, e);
    destroy(s);
}

static void fill_times(const sequence *s, uint64_t now_ns, gen_result *r)
{
    r->total_ms = clock_ms_between(s->submit_ns, now_ns);
    r->queue_ms = clock_ms_between(s->submit_ns, s->state == SEQ_QUEUED ? now_ns : s->admit_ns);
    if (s->prefill_ns != 0) {
        r->prefill_ms = clock_ms_between(s->prefill_ns, s->decode_ns ? s->decode_ns : now_ns);
    }
    if (s->decode_ns != 0) {
        r->decode_ms = clock_ms_between(s->decode_ns, now_ns);
    }
    if (s->first_token_ns != 0) {
        r->ttft_ms = clock_ms_between(s->submit_ns, s->first_token_ns);
    }
}

static const char *guard_name(const sequence *s)
{
    if (s->sealed == FINISH_TIMEOUT) {
        return "deadline";
    }
    if (s->sealed == FINISH_CANCELLED) {
        return s->cancel_guard;
    }
    if (s->sealed != FINISH_LENGTH) {
        return "";
    }
    /* The budget, which the caller knows of, goes before the guard, the guard before the ceiling. */
    bool used_up = sequence_generated(s) == s->max_new;
    return used_up && !s->ceiling ? "" : s->repeated ? "repetition" : "context";
}

static void end(sequence *s, uint64_t now_ns)
{
    engine *en = s->en;
    if (s->sealed == FINISH_NONE) {
        err e;
        counter_add(&en->count.bugs, 1);
        err_set(&e, ST_INTERNAL, NULL, "a reply ended without a reason");
        sequence_fail(s, &e);
        return;
    }
    if (s->session && s->state != SEQ_QUEUED && (s->stop_cut || s->sealed == FINISH_CANCELLED)) {
        s->session->dirty = true;
    }
    gen_result r = {.reason = s->sealed, .guard = guard_name(s), .stop_cut = s->stop_cut};
    r.repaired_tail = s->repaired_tail;
    r.tail_text = buf_str(&s->tail);
    r.tail_text_len = s->tail.len;
    r.ids = s->history.data + s->n_prompt;
    r.n_ids = s->history.len - s->n_prompt;
    r.prompt_tokens = (int32_t)s->n_prompt;
    r.reused_tokens = (int32_t)s->reused;
    r.prefilled_tokens = (int32_t)s->prefilled;
    r.preemptions = (int32_t)s->n_preempted;
    if (s->sealed == FINISH_STOP && s->begun) {
        r.embedding = s->plan == GEN_EMBED ? s->step_hidden : NULL;
        r.label_logprobs = s->plan == GEN_SCORE ? s->label_logprobs : NULL;
    }
    r.reset = s->reset;
    r.seed = s->params.seed;
    r.miss = s->miss;
    r.miss_at = (int32_t)s->miss_at;
    fill_times(s, now_ns, &r);
    leave(s, true);
    counter_add(s->sealed == FINISH_CANCELLED ? &en->count.cancelled : &en->count.done, 1);
    s->terminal_sent = true;
    s->sink.done(s->sink.ctx, &r);
    destroy(s);
}

static void fail_status(sequence *s, status st)
{
    err e;
    err_set(&e, st, NULL, "a reply ended: %s", status_text(st));
    sequence_fail(s, &e);
}

bool sequence_fails(sequence *s)
{
    bool fails = s->fail_asked != ST_OK;
    if (fails) {
        fail_status(s, s->fail_asked);
    }
    return fails;
}

static status watch(sequence *s, gen_moment when, const buf *text)
{
    return s->sink.watch ? s->sink.watch(s->sink.ctx, when, buf_str(text), text->len, &s->verdict) : ST_OK;
}

/* As sealed. What is not computed yet never will be: of a reply that was over when it came that may be its prompt. */
static void end_sealed(sequence *s, uint64_t now_ns)
{
    s->reused = s->n_prompt - s->prefilled;
    end(s, now_ns);
}

void sequence_cut(sequence *s, uint64_t now_ns)
{
    if (is_sealed(s)) {
        end_sealed(s, now_ns);
        return;
    }
    finish_causes c = {.deadline = sequence_overdue(s, now_ns), .cancelled = sequence_cancelled(s)};
    status st = reply_flush(s);
    if (st == ST_OK) {
        st = watch(s, GEN_CUT, &s->tail);
    }
    if (st != ST_OK) {
        fail_status(s, st);
        return;
    }
    s->sealed = finish_of(&c);
    end(s, now_ns);
}

void sequence_end_short(sequence *s, uint64_t now_ns)
{
    assert(s->state == SEQ_TAIL);
    end(s, now_ns);
}

void sequence_fail_step(sequence *s, const err *e, uint64_t now_ns)
{
    if (is_sealed(s)) {
        s->session->dirty = true;
        end_sealed(s, now_ns);
        return;
    }
    sequence_fail(s, e);
}

void sequence_spoil(sequence *s, uint64_t now_ns)
{
    err e;
    err_set(&e, ST_NONFINITE, NULL, "the model computed a non-finite value between positions %zu and %zu",
            s->kv->ids.len, s->kv->ids.len + s->step_rows - 1);
    sequence_fail_step(s, &e, now_ns);
}

bool sequence_draws(const sequence *s)
{
    return !is_sealed(s) && s->max_new > 0 && s->step_rows == sequence_pending(s);
}

void sequence_draw(sequence *s, sampler *with, const float *logits)
{
    engine *en = s->en;
    sampler_in in = {.logits = logits,
                     .history = s->history.data,
                     .n_history = s->history.len,
                     .n_prompt = s->n_prompt,
                     .position = (int32_t)s->history.len,
                     .eog = en->eog,
                     .n_eog = en->n_eog,
                     .stop_ids = s->stop_ids,
                     .n_stop_ids = s->n_stop_ids};
    sampler_draw(with, &s->params, &in, &s->drawn);
}

/* Whether drawing it ends the reply without being part of it. */
static bool is_terminal(const sequence *s, int32_t token)
{
    for (size_t i = 0; i < s->n_stop_ids; i++) {
        if (s->stop_ids[i] == token) {
            return true;
        }
    }
    return s->en->cfg.tok && tokenizer_is_eog(s->en->cfg.tok, token);
}

/* Adds the token to the reply; the text that this releases is in the engine's buffer. */
static status take(sequence *s, int32_t token)
{
    mem_guard_enter();
    status st = ivec_push(&s->history, token);
    if (st == ST_OK) {
        st = reply_push(s, token);
    }
    mem_guard_leave();
    return st;
}

/* What holds a reply back until its end comes out now. */
static status release(sequence *s, const finish_causes *c)
{
    bool cut = c->budget || c->context || c->guard || c->cancelled || c->deadline;
    mem_guard_enter();
    status st = reply_flush(s);
    mem_guard_leave();
    return st == ST_OK ? watch(s, cut ? GEN_CUT : GEN_ENDS, &s->tail) : st;
}

/* The next of the tokens that the watcher forces, if there is one: it takes the place of the drawn one. */
static bool take_forced(sequence *s, int32_t *token)
{
    gen_verdict *v = &s->verdict;
    if (s->n_forced == v->n_force) {
        return false;
    }
    *token = v->force[s->n_forced++];
    if (s->n_forced == v->n_force) {
        s->n_forced = v->n_force = 0;
    }
    return true;
}

/* Adds the token to the reply and finds out what ends it by that. */
static status hear(sequence *s, int32_t token, bool forced, bool *emit, finish_causes *c)
{
    status st = ST_OK;
    *emit =
        forced || !is_terminal(s, token); /* a terminal one is neither emitted nor counted nor forwarded */
    c->end_token = !*emit;
    if (*emit) {
        st = take(s, token);
        if (st == ST_OK) {
            st = watch(s, GEN_TOKEN, &s->en->text);
        }
        bool used_up = sequence_generated(s) == s->max_new;
        c->budget = used_up && !s->ceiling;
        c->context = used_up && s->ceiling;
        s->repeated = repeat_guard_fires(s->history.data + s->n_prompt, sequence_generated(s), s->repeat_span,
                                         s->en->repeat_scratch);
        c->guard = s->repeated;
    }
    c->tool_calls_closed = s->verdict.tool_calls_closed;
    return st;
}

static bool ends_by(const sequence *s, const finish_causes *c)
{
    return c->end_token || s->stop_cut || c->budget || c->context || c->guard || c->cancelled ||
           c->deadline || c->tool_calls_closed;
}

static status seal(sequence *s, finish_causes *c)
{
    status st = release(s, c);
    c->stop_string = s->stop_cut;
    c->n_tool_calls = s->verdict.n_tool_calls;
    s->sealed = finish_of(c);
    return st;
}

/* Adds the drawn token to the reply and seals the outcome if that, or anything else, ends it. */
static status decide(sequence *s, int32_t token, bool forced, bool *emit, uint64_t now_ns)
{
    finish_causes c = {0};
    status st = hear(s, token, forced, emit, &c);
    c.cancelled = sequence_cancelled(s);
    c.deadline = sequence_overdue(s, now_ns);
    return st == ST_OK && ends_by(s, &c) ? seal(s, &c) : st;
}

static void report(sequence *s, const sampler_out *drawn, uint64_t now_ns)
{
    engine *en = s->en;
    gen_token t = {.token = drawn->token, .text = buf_str(&en->text), .text_len = en->text.len};
    t.probs = s->params.top_logprobs >= 0 ? drawn : NULL;
    if (s->first_token_ns == 0) {
        s->first_token_ns = now_ns;
    }
    counter_add(&en->count.generated, 1);
    s->sink.token(s->sink.ctx, &t);
}

/* One of the tokens that the reply began with: all that it did then, but for computing and telling it. */
static status replay_token(sequence *s, int32_t token, bool last, err *e)
{
    int32_t wanted = token;
    bool forced = take_forced(s, &wanted), emitted;
    finish_causes c = {0};
    if (wanted != token || (!forced && is_terminal(s, token))) {
        return err_set(e, ST_RESUME_MISMATCH, NULL, "token %zu of the reply cannot be %d",
                       sequence_generated(s), (int)token);
    }
    status st = hear(s, token, forced, &emitted, &c);
    if (st == ST_OK && ends_by(s, &c)) {
        st = last ? seal(s, &c)
                  : err_set(e, ST_RESUME_MISMATCH, NULL, "the reply was over with its first %zu tokens",
                            sequence_generated(s));
    }
    if (st == ST_OK) {
        const buf *text = &s->en->text;
        gen_token t = {.token = token, .text = buf_str(text), .text_len = text->len, .again = true};
        s->sink.token(s->sink.ctx, &t);
    }
    return st;
}

static status replay(sequence *s, const gen_request *r, err *e)
{
    status st = r->n_resumed > 0 ? watch(s, GEN_BEGINS, &(buf){0}) : ST_OK;
    s->n_resumed = r->n_resumed;
    err_clear(e);
    for (size_t i = 0; st == ST_OK && i < r->n_resumed; i++) {
        st = replay_token(s, r->resumed[i], i + 1 == r->n_resumed, e);
    }
    return st == ST_OK || e->code == st ? st
                                        : err_set(e, st, NULL, "a reply cannot go on: %s", status_text(st));
}

/* It waits, behind all that were submitted before. */
static void enqueue(sequence *s)
{
    engine *en = s->en;
    s->submit_ns = clock_mono_ns(en->cfg.clock);
    s->waits_ns = s->submit_ns;
    s->ticket = ++en->n_tickets;
    s->prev = en->last;
    if (s->prev) {
        s->prev->next = s;
    } else {
        en->first = s;
    }
    en->last = s;
    en->n_sequences++;
    if (s->session) {
        s->session->n_requests++;
    }
    counter_set(&en->count.sequences, en->n_sequences);
}

status sequence_new(engine *en, const gen_request *r, size_t max_new, bool ceiling, sequence **out, err *e)
{
    sequence *s = mem_calloc(1, sizeof *s);
    err why;
    if (!s) {
        return err_set(e, ST_NOMEM, NULL, "out of memory for a request of %zu tokens", r->n_prompt);
    }
    s->en = en;
    s->session = r->session;
    s->cancel = r->cancel;
    s->sink = r->sink;
    s->params = r->params;
    s->n_prompt = r->n_prompt;
    s->max_new = max_new;
    s->ceiling = ceiling;
    s->id_hash = r->id_hash;
    s->priority = r->priority;
    s->repeat_span = (size_t)r->repeat_span;
    s->plan = r->plan;
    s->cancel_guard = "";
    s->deadline_ns = r->deadline_ns;
    s->stops = r->stops;
    stop_matcher_init(&s->stop, s->stops);
    if (en->cfg.tok) {
        detok_init(&s->detok, en->cfg.tok);
    }
    status st = allocate(s, r);
    st = st == ST_OK ? replay(s, r, &why)
                     : err_set(&why, st, NULL, "out of memory for a request of %zu tokens", r->n_prompt);
    if (st != ST_OK) {
        s->stops = NULL; /* still the caller's */
        sequence_free(s);
        return err_set(e, st, why.field, "%s", why.msg);
    }
    enqueue(s);
    *out = s;
    return ST_OK;
}

/* Puts a forced token in the place of the drawn one. logits: the row it was drawn from. */
static bool force_token(sequence *s, const float *logits)
{
    int32_t token;
    if (!take_forced(s, &token)) {
        return false;
    }
    if (s->params.top_logprobs >= 0) {
        sampler_score(s->en->samplers[0], logits, token, s->params.top_logprobs, &s->drawn);
    }
    s->drawn.token = token;
    return true;
}

/* logits: the row that the token was drawn from. */
static void next_token(sequence *s, const float *logits, uint64_t now_ns)
{
    bool emit;
    bool forced = force_token(s, logits);
    status st = decide(s, s->drawn.token, forced, &emit, now_ns);
    if (st != ST_OK) {
        fail_status(s, st);
        return;
    }
    if (emit) {
        report(s, &s->drawn, now_ns);
    }
    if (sequence_fails(s)) {
        return;
    }
    if (!is_sealed(s)) {
        s->state = SEQ_DECODE;
    } else if (forwards_last(s)) {
        s->state = SEQ_TAIL;
    } else {
        end(s, now_ns);
    }
}

/* Keeps what the rows of this step say about the prompt tokens behind them. first: position of its first row. */
static void score_prompt(sequence *s, size_t first, const float *logits)
{
    engine *en = s->en;
    mem_guard_enter();
    size_t from = first > s->n_known ? first : s->n_known; /* those below were scored before it was parked */
    for (size_t i = from; s->prompt_probs && i < first + s->step_rows && i + 1 < s->n_prompt; i++) {
        sampler_score(en->samplers[0], logits, s->history.data[i + 1], s->n_prompt_top, &s->prompt_probs[i]);
        logits += en->cfg.ops.shape->n_vocab;
    }
    mem_guard_leave();
}

/* Nothing is to be generated: the end, with what was asked for. */
static void read_prompt(sequence *s, const float *logits, uint64_t now_ns)
{
    mem_guard_enter();
    for (size_t i = 0; i < s->n_labels; i++) {
        sampler_score(s->en->samplers[0], logits, s->labels[i], 0, &s->drawn);
        s->label_logprobs[i] = s->drawn.chosen.logprob;
    }
    mem_guard_leave();
    finish_causes c = {.budget = s->plan == GEN_SAMPLE, .end_token = s->plan != GEN_SAMPLE};
    c.cancelled = sequence_cancelled(s);
    c.deadline = sequence_overdue(s, now_ns);
    s->sealed = finish_of(&c);
    end(s, now_ns);
}

/* PREFILL → the next token, or, with nothing to generate, the end. */
static void prefilled(sequence *s, const float *logits, uint64_t now_ns)
{
    s->begun = true;
    s->decode_ns = now_ns;
    if (s->prompt_probs) {
        s->sink.prompt_probs(s->sink.ctx, s->prompt_probs, s->n_prompt - 1);
    }
    if (sequence_fails(s)) {
        return;
    }
    if (s->max_new == 0) {
        read_prompt(s, logits, now_ns);
        return;
    }
    if (is_sealed(s)) { /* its last token is forwarded */
        end(s, now_ns);
        return;
    }
    status st = s->n_resumed == 0 ? watch(s, GEN_BEGINS, &(buf){0}) : ST_OK;
    if (st != ST_OK) {
        fail_status(s, st);
        return;
    }
    next_token(s, logits, now_ns);
}

/* Of the rows of logits of this step: the one that the next token is drawn from. */
static const float *last_row(const sequence *s, const float *logits)
{
    return s->step_logits > 0 ? logits + (s->step_logits - 1) * (size_t)s->en->cfg.ops.shape->n_vocab
                              : logits;
}

/* How many of [from, to) lie in [low, high). */
static size_t within(size_t from, size_t to, size_t low, size_t high)
{
    from = from > low ? from : low;
    to = to < high ? to : high;
    return to > from ? to - from : 0;
}

/* The rows of this step are in its pages. Those that were there before count as computed again, and those of tokens that
 * the reply began with, but for the last, which nothing had followed. */
static status note_rows(sequence *s)
{
    size_t first = s->kv->ids.len, end = first + s->step_rows, known = s->n_known;
    size_t elsewhere = s->n_resumed > 0 ? s->n_prompt + s->n_resumed - 1 : 0;
    status st = ivec_append(&s->kv->ids, s->history.data + first, s->step_rows);
    size_t of_prompt = s->begun ? 0 : within(first, end, known, s->n_prompt);
    size_t again = within(first, end, 0, known);
    again += within(first, end, known > s->n_prompt ? known : s->n_prompt, elsewhere);
    s->prefilled += of_prompt;
    counter_add(&s->en->count.prefilled, of_prompt);
    counter_add(&s->en->count.recomputed, again);
    return st;
}

void sequence_advance(sequence *s, const float *logits, uint64_t now_ns)
{
    size_t first = s->kv->ids.len, known = first + s->step_rows;
    status st = note_rows(s);
    if (st != ST_OK) {
        fail_status(s, st);
        return;
    }
    stored_write(s, false);
    switch (s->state) {
    case SEQ_PREFILL:
        score_prompt(s, first, logits);
        s->n_known = known > s->n_known ? known : s->n_known;
        if (sequence_pending(s) > 0) {
            break;
        }
        if (s->begun) { /* it was parked, and is where it was */
            next_token(s, last_row(s, logits), now_ns);
        } else {
            prefilled(s, last_row(s, logits), now_ns);
        }
        break;
    case SEQ_DECODE:
        s->n_known = known;
        next_token(s, last_row(s, logits), now_ns);
        break;
    case SEQ_TAIL:
        end(s, now_ns);
        break;
    case SEQ_QUEUED:
    case SEQ_PARKED:
    case SEQ_RESTORE:
        assert(!"it computes nothing");
        break;
    }
}

void seq_cancel(sequence *s)
{
    s->cancel_asked = true;
}

void seq_cancel_guarded(sequence *s, const char *guard)
{
    if (!s->cancel_asked) {
        s->cancel_guard = guard;
        s->cancel_asked = true;
    }
}

void seq_fail(sequence *s, status why)
{
    s->fail_asked = why;
}

void seq_progress(const sequence *s, int32_t *cached, int32_t *processed)
{
    *cached = (int32_t)s->reused;
    *processed = (int32_t)(s->reused + s->prefilled);
}

void seq_hold(sequence *s, bool held)
{
    s->held = held;
}
