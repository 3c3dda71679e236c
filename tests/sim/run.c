#include <string.h>

#include "base/mem.h"
#include "sim/sim_store.h"
#include "sim/world.h"

#define START_NS  UINT64_C(1000000000)
#define MAX_STEPS 60000

static world w; /* too large for a stack */

/* What the engine tells */

static bool over(const life *l)
{
    return l->phase != LIFE_WAITS && l->phase != LIFE_RUNS;
}

static void ask_cancel(life *l, bool by_flag, bool guarded)
{
    if (!l->cancel_asked) {
        l->cancel_asked = true;
        l->cancel_step = w.step;
        l->guarded = guarded;
    }
    if (by_flag) {
        atomic_store(&l->flag, true);
    } else if (guarded) {
        seq_cancel_guarded(l->seq, SIM_GUARD);
    } else {
        seq_cancel(l->seq);
    }
}

/* A request is held while its reader is slow or the writer's ring is full. */
static void set_hold(life *l)
{
    bool held = l->slow || w.clock.now_ns < w.ring_full_until_ns;
    if (held != l->held) {
        seq_hold(l->seq, held);
        l->held = held;
    }
}

static void become_slow(life *l)
{
    l->slow = l->was_slow = true;
    l->slow_until_ns = w.clock.now_ns + US(l->r->hold_for);
    set_hold(l);
}

static void add_text(life *l, const char *text, size_t len)
{
    if (l->n_text + len > SIM_TEXT_MAX) {
        sim_fail("request %zu: more text than there can be", (size_t)(l - w.lives));
    }
    memcpy(l->text + l->n_text, text, len);
    l->n_text += len;
}

static void keep_token(life *l, const gen_token *t)
{
    l->last_token_ns = w.clock.now_ns;
    add_text(l, t->text, t->text_len);
    l->shown[l->n_ids] = l->n_text;
    l->probs[l->n_ids] = t->probs ? probs_digest(1, t->probs) : 0;
    l->n_probs += t->probs != NULL;
    l->ids[l->n_ids++] = t->token;
}

/* One that it had elsewhere: while it is submitted, in order, and nothing happens by it. */
static void on_token_again(life *l, const gen_token *t)
{
    if (l->phase != LIFE_WAITS || l->n_ids >= l->n_had || t->token != l->had[l->n_ids] || t->probs) {
        sim_fail("request %zu: a token is told again that it had not", (size_t)(l - w.lives));
    }
    keep_token(l, t);
}

static void on_token(void *ctx, const gen_token *t)
{
    life *l = ctx;
    size_t who = (size_t)(l - w.lives);
    if (t->again) {
        on_token_again(l, t);
        return;
    }
    if (l->phase != LIFE_RUNS || l->n_ids == SIM_MAX_CTX) {
        sim_fail("request %zu: a token that may not be", who);
    }
    l->cancel_at_last_token = l->cancel_asked;
    keep_token(l, t);
    w.n_generated++;
    if (!w.lives[who].in_batch) {
        sim_fail("request %zu: a token in a step that did not compute it", who);
    }
    if (l->r->cancel >= CANCEL_IN_TOKEN && (int64_t)l->n_ids == l->r->cancel_at) {
        ask_cancel(l, l->r->cancel == CANCEL_FLAG_IN_TOKEN, false);
    }
    if (l->r->hold_for > 0 && l->r->hold_token > 0 && (int64_t)l->n_ids == l->r->hold_token) {
        become_slow(l);
    }
}

static void ended(life *l, life_phase phase)
{
    if (l->phase != LIFE_RUNS) {
        sim_fail("request %zu: it ended twice", (size_t)(l - w.lives));
    }
    l->phase = phase;
    l->end_ns = w.clock.now_ns;
    l->end_step = w.step;
    l->seq = NULL;
}

static void on_done(void *ctx, const gen_result *r)
{
    life *l = ctx;
    bool cut = l->cancel_asked || (l->deadline_ns && l->deadline_ns <= w.clock.now_ns);
    if (l->held && !l->begun && !l->in_batch && !cut) {
        sim_fail("request %zu: it ended although its reader is slow", (size_t)(l - w.lives));
    }
    ended(l, LIFE_DONE);
    if (r->n_ids != l->n_ids || (l->n_ids && memcmp(r->ids, l->ids, l->n_ids * sizeof *l->ids) != 0)) {
        sim_fail("request %zu: the result has other ids than the tokens", (size_t)(l - w.lives));
    }
    l->cut_short = l->n_had > 0 && l->n_ids == l->n_had && (!l->in_batch || l->spoilt || l->call_failed);
    l->result = *r;
    strncpy(l->guard, r->guard, sizeof l->guard - 1);
    l->has_labels = r->label_logprobs != NULL;
    l->has_embedding = r->embedding != NULL;
    if (l->has_labels) {
        memcpy(l->labels, r->label_logprobs, (size_t)l->r->n_labels * sizeof *l->labels);
    }
    if (l->has_embedding) {
        memcpy(l->embedding, r->embedding, sizeof l->embedding);
    }
    add_text(l, r->tail_text, r->tail_text_len);
    w.n_done++;
    w.n_cancelled += r->reason == FINISH_CANCELLED;
}

static void on_failed(void *ctx, const err *e)
{
    life *l = ctx;
    ended(l, LIFE_FAILED);
    l->error = *e;
    w.n_failed++;
}

static void on_prompt_probs(void *ctx, const sampler_out *probs, size_t n)
{
    life *l = ctx;
    l->n_prompt_calls++;
    l->prompt_probs = 1;
    if (l->n_ids > 0 || n + 1 != l->n_prompt) {
        sim_fail("request %zu: prompt_probs at the wrong time, or %zu of them for %zu tokens",
                 (size_t)(l - w.lives), n, l->n_prompt);
    }
    for (size_t i = 0; i < n; i++) {
        l->prompt_probs = probs_digest(l->prompt_probs, &probs[i]);
    }
}

static void before_step(void *ctx, const step_row *rows, size_t n, bool any_prefill)
{
    (void)ctx;
    (void)any_prefill;
    w.n_batch = n;
    look_planned(&w);
    for (size_t i = 0; i < n; i++) {
        if (rows[i].id_hash < 1 || rows[i].id_hash > w.s->n_requests) {
            sim_fail("a row of nobody in a step");
        }
        life *l = &w.lives[rows[i].id_hash - 1];
        w.batch[i] = rows[i].id_hash - 1;
        if (l->in_batch || l->phase != LIFE_RUNS || l->held) {
            sim_fail("request %zu: computed twice in a step, or held, or over", w.batch[i]);
        }
        l->in_batch = true;
        l->position = rows[i].position;
    }
}

/* The one that a sequence of a batch belongs to: the first call of a step has them in the order told, those behind
 * a failed one each alone. */
static life *whose(const batch_seq *s)
{
    for (size_t i = 0; i < w.n_batch; i++) {
        if (w.pages[i] == s->pages) {
            return &w.lives[w.batch[i]];
        }
    }
    sim_fail("a sequence in a batch that was not told before the step");
}

static bool fails(void *ctx, const batch *b)
{
    (void)ctx;
    bool failed = w.fail_next;
    if (!w.pages[0]) {
        for (size_t i = 0; i < b->n_seqs && i < w.n_batch; i++) {
            w.pages[i] = b->seqs[i].pages;
        }
    }
    for (size_t i = 0; i < b->n_seqs; i++) {
        failed = failed || whose(&b->seqs[i])->fail_pending;
    }
    if (failed && b->n_seqs == 1) {
        whose(&b->seqs[0])->call_failed = true;
    }
    w.fail_next = false;
    w.n_forward_failures += failed;
    return failed;
}

static bool spoil(void *ctx, const batch_seq *s, size_t *from)
{
    (void)ctx;
    life *l = whose(s);
    bool bad = l->bad_pending;
    l->bad_pending = false;
    l->spoilt = l->spoilt || bad;
    *from = l->n_prompt % 3;
    return bad;
}

static void on_lane(void *ctx, const lane_event *ev)
{
    (void)ctx;
    w.n_lane_events++;
    if (ev->kind != LANE_RESET || ev->owner == 0 || ev->index >= (uint32_t)w.s->config.lanes) {
        sim_fail("a lane's event that may not be");
    }
}

/* What happens to it */

static void append(life *l, int32_t token)
{
    if (l->n_prompt < SIM_PROMPT_MAX) {
        l->prompt[l->n_prompt++] = token;
    }
}

/* Token i of a conversation or of a request's own part; never poison, and no beginning of a loop. */
int32_t sim_word(uint64_t who, uint64_t i)
{
    uint64_t z = (who * 1000 + i + 1) * UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    return 5 + (int32_t)((z >> 33) % (SIM_VOCAB - 5));
}

static void build_prompt(life *l)
{
    const sim_request *r = l->r;
    l->n_prompt = 0;
    if (r->follows > 0) {
        const life *before = &w.lives[r->follows - 1];
        for (size_t i = 0; i < before->n_prompt; i++) {
            append(l, before->prompt[i]);
        }
        for (size_t i = 0; i < before->n_ids; i++) {
            append(l, before->ids[i]);
        }
    }
    for (int64_t i = 0; i < r->shared; i++) {
        append(l, sim_word((uint64_t)r->conv, (uint64_t)i));
    }
    for (int64_t i = 0; i < r->own; i++) {
        append(l, sim_word(10 + (uint64_t)r->salt, (uint64_t)i));
    }
    if (r->looped > 0 && l->n_prompt > 1) {
        l->prompt[0] = SIM_LOOP;
        l->prompt[1] = SIM_LOOP_P + (int32_t)r->looped % 8;
    }
    if (r->poison > 0 && (size_t)r->poison <= l->n_prompt) {
        l->prompt[r->poison - 1] = SIM_POISON;
    }
    l->poisoned = false;
    for (size_t i = 0; i < l->n_prompt; i++) {
        l->poisoned = l->poisoned || l->prompt[i] == SIM_POISON;
    }
}

static session *session_of(const life *l)
{
    if (l->r->session == 0) {
        return NULL;
    }
    session **s = &w.sessions[l->r->session - 1];
    if (!*s && session_open(w.en, s) != ST_OK) {
        sim_fail("a session could not be opened");
    }
    return *s;
}

static status submit(life *l, size_t fail_at, err *e)
{
    const sim_request *r = l->r;
    gen_request q = {.prompt = l->prompt,
                     .n_prompt = l->n_prompt,
                     .max_new_tokens = (int32_t)r->max_new,
                     .params = oracle_sampling(r),
                     .session = session_of(l),
                     .deadline_ns = r->deadline > 0 ? w.clock.now_ns + US(r->deadline) : 0,
                     .cancel = &l->flag,
                     .prompt_logprobs = (int32_t)r->prompt_logprobs,
                     .id_hash = (uint64_t)(l - w.lives) + 1,
                     .priority = (int32_t)r->priority,
                     .repeat_span = (int32_t)r->repeat_span,
                     .plan = (gen_plan)r->plan,
                     .labels = sim_labels,
                     .n_labels = (size_t)r->n_labels,
                     .cache_namespace = "ab",
                     .n_cache_namespace = (size_t)r->space,
                     .resumed = l->had,
                     .n_resumed = l->n_had};
    q.sink = (gen_sink){.ctx = l, .token = on_token, .done = on_done, .failed = on_failed};
    q.sink.prompt_probs = r->prompt_logprobs >= 0 ? on_prompt_probs : NULL;
    q.stop_ids = oracle_stop_ids(r, &q.n_stop_ids);
    if (oracle_stops(r, &q.stops) != ST_OK) {
        sim_fail("no stop strings");
    }
    l->submit_ns = w.clock.now_ns;
    l->deadline_ns = q.deadline_ns;
    l->n_ids = l->n_text = 0; /* what it had is told anew where a first try failed */
    mem_fail_at(fail_at, false);
    status st = engine_submit(w.en, &q, &l->seq, e);
    mem_fail_at(0, false);
    if (st != ST_OK) {
        stop_set_free(q.stops); /* still ours */
    }
    return st;
}

/* What its reply had elsewhere: the beginning of the undisturbed one. */
static void bring_back(life *l)
{
    static answer a;
    question q = verdict_question(&w, l);
    if (l->r->plan != GEN_SAMPLE || l->poisoned || l->r->had == 0) {
        return; /* nobody can have had anything of a prompt that cannot be computed */
    }
    oracle_answer(&q, l->r->had < SIM_MAX_CTX ? (size_t)l->r->had : SIM_MAX_CTX, false, l->had, &a);
    l->n_had = a.n;
    buf_release(&a.text);
}

static void arrive(life *l)
{
    size_t who = (size_t)(l - w.lives);
    err e;
    build_prompt(l);
    status want = verdict_submit(&w, l), got = ST_OK;
    if (want == ST_OK) {
        bring_back(l);
    }
    uint64_t before = mem_alloc_count();
    if (l->r->fail_submit > 0) {
        session_of(l); /* its own allocations are not meant */
        before = mem_alloc_count();
        got = submit(l, (size_t)l->r->fail_submit, &e);
        bool fired = mem_alloc_count() - before >= (uint64_t)l->r->fail_submit;
        if (got == ST_NOMEM && !fired) {
            sim_fail("request %zu: out of memory although no allocation failed", who);
        }
        l->retried = got == ST_NOMEM;
    }
    if (l->r->fail_submit == 0 || l->retried) {
        got = submit(l, 0, &e);
    }
    if (got != want) {
        sim_fail("request %zu: submit says %s, it should %s", who, status_name(got), status_name(want));
    }
    if (got != ST_OK) {
        l->phase = LIFE_REFUSED;
        return;
    }
    l->phase = LIFE_RUNS;
    l->ticket = ++w.n_submitted;
    set_hold(l);
}

static void happen(const sim_event *v, bool *done)
{
    session **s = v->kind <= EVENT_SESSION_CLOSE ? &w.sessions[v->arg % SIM_MAX_SESSIONS] : NULL;
    *done = true;
    switch (v->kind) {
    case EVENT_SESSION_RESET:
        if (*s && !session_busy(*s) && session_reset(*s) != ST_OK) {
            sim_fail("a reset failed");
        }
        break;
    case EVENT_SESSION_CLOSE:
        if (*s && !session_busy(*s)) {
            session_close(*s);
            *s = NULL;
        }
        break;
    case EVENT_RING_FULL:
        w.ring_full_until_ns = w.clock.now_ns + US(v->span);
        break;
    case EVENT_FORWARD_FAILS:
        if (v->span == 0) {
            w.fail_next = true;
        } else {
            w.lives[(size_t)v->arg % w.s->n_requests].fail_pending = true;
        }
        break;
    case EVENT_BAD_ROW:
        w.lives[(size_t)v->arg % w.s->n_requests].bad_pending = true;
        break;
    case EVENT_NO_MEMORY:
        w.no_memory = (size_t)v->arg;
        break;
    case EVENT_STALL:
        w.model.stall_ns = US(v->span);
        break;
    case EVENT_DISK_FULL:
        sim_store_disk()->full = v->span > 0;
        break;
    case EVENT_DISK_DAMAGED:
        sim_store_disk()->n_damaged = (size_t)v->arg;
        break;
    case EVENT_DISK_STUCK:
        sim_store_disk()->stuck_ns = w.clock.now_ns + US(v->span);
        break;
    default:
        break;
    }
}

/* When it is going to be cancelled or to become slow by the clock; UINT64_MAX = not any more. */
static uint64_t cancel_due(const life *l)
{
    bool by_clock = l->r->cancel > CANCEL_NEVER && l->r->cancel < CANCEL_IN_TOKEN;
    return l->phase == LIFE_RUNS && by_clock && !l->cancel_sent ? l->submit_ns + US(l->r->cancel_at)
                                                                : UINT64_MAX;
}

static uint64_t slow_due(const life *l)
{
    if (l->phase != LIFE_RUNS || l->r->hold_for == 0) {
        return UINT64_MAX;
    }
    if (l->slow) {
        return l->slow_until_ns;
    }
    return l->was_slow || l->r->hold_token > 0 ? UINT64_MAX : l->submit_ns + US(l->r->hold_at);
}

static void befall(life *l)
{
    uint64_t now = w.clock.now_ns;
    if (slow_due(l) <= now) {
        if (l->slow) {
            l->slow = false;
        } else {
            become_slow(l);
        }
    }
    if (cancel_due(l) <= now) {
        l->cancel_sent = true;
        ask_cancel(l, l->r->cancel == CANCEL_FLAG, l->r->cancel == CANCEL_GUARDED);
    }
    if (l->phase == LIFE_RUNS) {
        set_hold(l);
    }
}

/* All that is due by now. */
static void befall_all(void)
{
    uint64_t now = w.clock.now_ns;
    for (size_t i = 0; i < w.s->n_events; i++) {
        if (!w.event_done[i] && START_NS + US(w.s->events[i].at) <= now) {
            happen(&w.s->events[i], &w.event_done[i]);
        }
    }
    for (size_t i = 0; i < w.s->n_requests; i++) {
        life *l = &w.lives[i];
        if (l->phase == LIFE_WAITS && START_NS + US(l->r->at) <= now) {
            arrive(l);
        }
        befall(l);
    }
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* When the next thing is due; UINT64_MAX: nothing is. */
static uint64_t next_due(void)
{
    uint64_t due = UINT64_MAX;
    for (size_t i = 0; i < w.s->n_events; i++) {
        due = w.event_done[i] ? due : earlier(due, START_NS + US(w.s->events[i].at));
    }
    for (size_t i = 0; i < w.s->n_requests; i++) {
        const life *l = &w.lives[i];
        due = l->phase == LIFE_WAITS ? earlier(due, START_NS + US(l->r->at)) : due;
        due = earlier(due, earlier(cancel_due(l), slow_due(l)));
        due = l->phase == LIFE_RUNS && l->deadline_ns ? earlier(due, l->deadline_ns) : due;
    }
    due = w.s->config.store_room > 0 ? earlier(due, sim_store_due()) : due;
    return w.clock.now_ns < w.ring_full_until_ns ? earlier(due, w.ring_full_until_ns) : due;
}

static bool step(void)
{
    uint64_t before = mem_alloc_count();
    for (size_t i = 0; i < w.s->n_requests; i++) {
        w.lives[i].in_batch = w.lives[i].spoilt = w.lives[i].call_failed = false;
    }
    w.step++;
    w.step_began_ns = w.clock.now_ns;
    w.n_batch = 0;
    w.pages[0] = NULL;
    look_before(&w);
    mem_fail_at(w.no_memory, false);
    bool computed = engine_step(w.en);
    mem_fail_at(0, false);
    w.memory_failed = w.no_memory > 0 && mem_alloc_count() - before >= w.no_memory;
    w.n_memory_failures += w.memory_failed;
    w.no_memory = mem_alloc_count() == before ? w.no_memory : 0; /* it waits for a step that allocates */
    verdict_step(&w);
    look_after(&w);
    remember_step(&w);
    return computed;
}

static void live(void)
{
    while (true) {
        befall_all();
        if (w.step > MAX_STEPS) {
            sim_fail("%d steps and no end: %zu requests still wait", MAX_STEPS, engine_running(w.en));
        }
        if (step() || w.memory_failed) {
            continue;
        }
        uint64_t due = next_due();
        if (due != UINT64_MAX) {
            w.clock.now_ns = w.clock.now_ns > due ? w.clock.now_ns : due;
        } else if (engine_running(w.en) == 0) {
            return;
        } else {
            sim_fail("nothing is computed and nothing is due, and %zu requests wait", engine_running(w.en));
        }
    }
}

/* Beginning and end */

static bool nothing_fails(void *ctx, const batch *b)
{
    (void)ctx;
    (void)b;
    return false;
}

static bool nothing_spoilt(void *ctx, const batch_seq *s, size_t *from)
{
    (void)ctx;
    (void)s;
    (void)from;
    return false;
}

static void no_token(void *ctx, const gen_token *t)
{
    (void)ctx;
    (void)t;
}

static void seed_done(void *ctx, const gen_result *r)
{
    (void)r;
    *(bool *)ctx = true;
}

static void seed_failed(void *ctx, const err *e)
{
    (void)ctx;
    sim_fail("a process before failed: %s", e->msg);
}

/* A process before this one has read the beginning of each conversation, and left it on disk. */
static void leave_on_disk(const engine_config *like, size_t n_tokens)
{
    engine_config ec = *like;
    engine *before = NULL;
    err e;
    ec.n_pages = resident_pages_for((size_t)ec.n_ctx) + 1;
    ec.before_step = NULL;
    ec.lane_event = NULL;
    w.model.fails = nothing_fails;
    w.model.spoil = nothing_spoilt;
    if (engine_new(&ec, &before, &e) != ST_OK) {
        sim_fail("engine_new: %s", e.msg);
    }
    for (uint64_t conv = 0; conv < 3; conv++) {
        int32_t ids[SIM_MAX_CTX];
        sequence *seq;
        bool over_now = false;
        for (size_t i = 0; i < n_tokens; i++) {
            ids[i] = sim_word(conv, i);
        }
        gen_request q = {.prompt = ids, .n_prompt = n_tokens, .max_new_tokens = 1, .prompt_logprobs = -1};
        q.params = sampling_default();
        q.sink = (gen_sink){.ctx = &over_now, .token = no_token, .done = seed_done, .failed = seed_failed};
        if (engine_submit(before, &q, &seq, &e) != ST_OK) {
            sim_fail("a process before: %s", e.msg);
        }
        while (!over_now) {
            engine_step(before);
            w.clock.now_ns = sim_store_due() == UINT64_MAX ? w.clock.now_ns : sim_store_due();
        }
    }
    engine_free(before);
    w.clock.now_ns = START_NS;
}

static void open_disk(engine_config *ec)
{
    const sim_config *c = &w.s->config;
    sim_disk d = {.clock = &w.clock.src,
                  .page_bytes = w.model.ops.page_bytes,
                  .room = c->store_room < SIM_STORE_MOST ? (size_t)c->store_room : SIM_STORE_MOST};
    if (c->store_room == 0) {
        return;
    }
    ec->store = sim_store_new(&d);
    if (c->stored > 0 && c->cold == 0) {
        leave_on_disk(ec, (size_t)c->stored);
    }
    sim_store_disk()->read_ns = US(c->store_delay);
    sim_store_disk()->ready_ns = START_NS + US(c->store_ready);
}

static void open_engine(pool *compute)
{
    const sim_config *c = &w.s->config;
    clock_fake_init(&w.clock, START_NS, 1000);
    sim_model_init(&w.model, &w.clock, (size_t)c->max_rows, (size_t)c->logit_rows);
    w.model.step_ns = US(c->step_cost);
    w.model.row_ns = US(c->row_cost);
    w.model.read_ns = (uint64_t)c->read_cost_ns;
    w.model.chunk = (size_t)c->chunk;
    engine_config ec = {.ops = w.model.ops,
                        .tok = w.tok,
                        .kern = kern_table_of(KERN_REF),
                        .compute = compute,
                        .clock = &w.clock.src,
                        .n_ctx = (int32_t)c->n_ctx,
                        .n_pages = (size_t)c->pages,
                        .prefill_chunk = (size_t)c->chunk,
                        .max_step_ns = US(c->max_step),
                        .max_sequences = (size_t)c->lanes,
                        .idle_lanes = (size_t)c->idle_lanes,
                        .prewarm_lanes = (size_t)(c->prewarm < c->lanes ? c->prewarm : c->lanes),
                        .park_bytes = (size_t)c->park_pages * w.model.ops.page_bytes,
                        .warm = c->cold == 0,
                        .lane_event = on_lane,
                        .before_step = before_step};
    open_disk(&ec);
    w.model.spoil = spoil;
    w.model.fails = fails;
    err e;
    err_clear(&e);
    if (c->fail_new > 0) {
        uint64_t before = mem_alloc_count();
        int64_t blocks = sim_live_blocks();
        mem_fail_at((uint64_t)c->fail_new, false);
        status st = engine_new(&ec, &w.en, &e);
        mem_fail_at(0, false);
        bool fired = mem_alloc_count() - before >= (uint64_t)c->fail_new;
        if (st == ST_OK) {
            engine_free(w.en);
        }
        if ((st != ST_OK && (st != ST_NOMEM || !fired)) || sim_live_blocks() != blocks) {
            sim_fail("engine_new without memory: %s, %lld blocks left", status_name(st),
                     (long long)(sim_live_blocks() - blocks));
        }
    }
    if (engine_new(&ec, &w.en, &e) != ST_OK) {
        sim_fail("engine_new: %s", e.msg);
    }
}

static void close_engine(sim_tally *t)
{
    engine_stats st;
    uint64_t n_anonymous = 0;
    for (size_t i = 0; i < SIM_MAX_SESSIONS; i++) {
        session_close(w.sessions[i]);
    }
    engine_stats_read(w.en, &st);
    t->preemptions += st.preemptions;
    t->recomputed += st.tokens_recomputed;
    t->restored += st.tokens_restored;
    for (size_t i = 0; i < w.s->n_requests; i++) {
        n_anonymous += w.lives[i].begun && w.lives[i].r->session == 0;
    }
    if (st.parked != 0 || st.lanes_live != 0 || w.n_lane_events < n_anonymous ||
        w.n_lane_events > w.n_submitted) {
        sim_fail("at the end: %llu parked, %llu lanes live, %llu events of lanes",
                 (unsigned long long)st.parked, (unsigned long long)st.lanes_live,
                 (unsigned long long)w.n_lane_events);
    }
    if (st.pages_used != 0 || st.sequences != 0 || st.sessions != 0 || st.running != 0) {
        sim_fail("at the end: %llu pages, %llu sequences, %llu sessions, %llu running",
                 (unsigned long long)st.pages_used, (unsigned long long)st.sequences,
                 (unsigned long long)st.sessions, (unsigned long long)st.running);
    }
    if (st.bugs != w.n_forward_failures) {
        sim_fail("%llu bugs counted, %llu made", (unsigned long long)st.bugs,
                 (unsigned long long)w.n_forward_failures);
    }
    engine_free(w.en);
}

static void sum_up(sim_tally *t)
{
    t->scenarios++;
    t->requests += w.s->n_requests;
    t->tokens += w.n_generated;
    t->steps += w.step;
    for (size_t i = 0; i < w.s->n_requests; i++) {
        const life *l = &w.lives[i];
        t->refused += l->phase == LIFE_REFUSED;
        t->failed += l->phase == LIFE_FAILED;
        if (l->phase == LIFE_DONE) {
            t->ends[l->result.reason]++;
            t->reused += (uint64_t)l->result.reused_tokens;
        }
    }
}

void run_scenario(const scenario *s, pool *compute, const tokenizer *tok, sim_tally *tally)
{
    int64_t blocks = sim_live_blocks();
    memset(&w, 0, offsetof(world, lives));
    for (size_t i = 0; i < s->n_requests; i++) {
        memset(&w.lives[i], 0, sizeof w.lives[i]);
        w.lives[i].r = &s->requests[i];
    }
    w.s = s;
    w.tok = s->config.tok ? tok : NULL;
    open_engine(compute);
    live();
    for (size_t i = 0; i < s->n_requests; i++) {
        if (!over(&w.lives[i])) {
            sim_fail("request %zu has not ended", i);
        }
        verdict_end(&w, &w.lives[i]);
    }
    close_engine(tally);
    if (sim_live_blocks() != blocks) {
        sim_fail("%lld blocks of memory left", (long long)(sim_live_blocks() - blocks));
    }
    sum_up(tally);
}
