/*
 * What was right. The reasons of ends are worked out here from what the simulator did and when, not from what the
 * engine says; what was said is compared with the oracle.
 */
#include <string.h>

#include "engine/resident.h"
#include "sim/world.h"

const int32_t sim_labels[SIM_MAX_LABELS] = {9, 2, 63, 3, 30, 9, 11, 0};

#define WHO(w, l) ((size_t)((l) - (w)->lives))

question verdict_question(const world *w, const life *l)
{
    return (question){.model = &w->model,
                      .tok = w->tok,
                      .r = l->r,
                      .prompt = l->prompt,
                      .n_prompt = l->n_prompt,
                      .max_new = l->max_new,
                      .ceiling = l->ceiling};
}

status verdict_submit(const world *w, life *l)
{
    const sim_config *c = &w->s->config;
    size_t n = l->n_prompt, n_pool = (size_t)c->pages * KV_PAGE_TOKENS;
    size_t n_ctx = (size_t)c->n_ctx;
    if (n == 0) {
        return ST_INVALID_FIELD;
    }
    if (n >= n_ctx) {
        return ST_CONTEXT_LENGTH;
    }
    l->ceiling = l->r->max_new < 0 || (size_t)l->r->max_new > n_ctx - n;
    if (l->ceiling) { /* what the pool cannot hold is beyond the context */
        size_t last = n_ctx < n_pool ? n_ctx : n_pool;
        l->max_new = last > n ? last - n : 1;
    } else {
        l->max_new = (size_t)l->r->max_new;
    }
    if (l->r->plan != GEN_SAMPLE) {
        l->ceiling = false;
        l->max_new = 0;
    }
    return n + l->max_new > n_pool ? ST_NEVER_FITS : ST_OK;
}

/* After each step */

/* A cut that was asked for before the step began has been made by its end (P4). */
static void cut_in_time(const world *w, const life *l)
{
    if (l->phase != LIFE_RUNS) {
        return;
    }
    if (l->cancel_asked && l->cancel_step < w->step) {
        sim_fail("request %zu: cancelled a step ago and not over", WHO(w, l));
    }
    if (l->deadline_ns && l->deadline_ns <= w->step_began_ns) {
        sim_fail("request %zu: its deadline has passed before the step and it is not over", WHO(w, l));
    }
    if (l->in_batch && (l->call_failed || l->spoilt)) {
        sim_fail("request %zu: it goes on although its part of the step failed", WHO(w, l));
    }
}

static void just_failures(const world *w, const life *l, size_t *n_nomem)
{
    if (l->phase != LIFE_FAILED || l->end_step != w->step) {
        return;
    }
    bool just = false;
    switch (l->error.code) {
    case ST_NONFINITE:
        just = l->in_batch && (l->spoilt || l->poisoned);
        break;
    case ST_INTERNAL:
        just = l->in_batch && l->call_failed;
        break;
    case ST_NOMEM:
        just = w->memory_failed && ++*n_nomem == 1;
        break;
    default:
        break;
    }
    if (!just) {
        sim_fail("request %zu: failed for no reason: %s", WHO(w, l), l->error.msg);
    }
}

static void progress(const world *w, const life *l)
{
    int32_t cached, processed;
    if (l->phase != LIFE_RUNS) {
        return;
    }
    seq_progress(l->seq, &cached, &processed);
    if (cached < 0 || cached > processed || (size_t)processed > l->n_prompt ||
        (l->n_ids > l->n_had && (size_t)processed != l->n_prompt)) {
        sim_fail("request %zu: cached %d, processed %d of %zu", WHO(w, l), cached, processed, l->n_prompt);
    }
}

static void figures(const world *w)
{
    engine_stats st;
    engine_stats_read(w->en, &st);
    uint64_t alive = w->n_submitted - w->n_done - w->n_failed;
    if (engine_running(w->en) != alive || st.sequences != alive) {
        sim_fail("%zu requests run, should be %llu", engine_running(w->en), (unsigned long long)alive);
    }
    if (st.requests_done + st.requests_cancelled != w->n_done || st.requests_cancelled != w->n_cancelled ||
        st.requests_failed != w->n_failed || st.tokens_generated != w->n_generated) {
        sim_fail("the engine's counts of ends or tokens are wrong");
    }
    if (st.preemptions < w->n_preemptions || st.preemptions > w->n_preemptions + w->s->n_requests ||
        st.parked > st.running) {
        sim_fail("the engine's counts of preemptions are wrong");
    }
    if (st.pages_used > st.pages_total || st.running > (uint64_t)w->s->config.lanes) {
        sim_fail("more pages or lanes in use than there are");
    }
}

/* What lanes are in use, and whether the engine's own books agree. */
static void books(const world *w)
{
    const char *why;
    const sim_config *c = &w->s->config;
    size_t least = 0, most = 0, cap = (size_t)(c->idle_lanes ? c->idle_lanes : c->lanes);
    bool used[SIM_MAX_SESSIONS] = {false};
    if (!engine_check(w->en, &why)) {
        sim_fail("the engine's books: %s", why);
    }
    for (size_t i = 0; i < w->s->n_requests; i++) {
        const life *l = &w->lives[i];
        bool runs = l->phase == LIFE_RUNS;
        least += l->begun && runs;
        most += runs && l->r->session == 0;
        if (l->r->session > 0 && w->sessions[l->r->session - 1]) {
            used[l->r->session - 1] = true;
        }
    }
    for (size_t i = 0; i < SIM_MAX_SESSIONS; i++) {
        most += used[i];
    }
    lanes_stats st = lanes_stats_read(engine_lanes(w->en));
    if (st.live < least || st.live > most || st.tracked != st.live || st.idle > cap ||
        st.live + st.idle > st.lanes) {
        sim_fail("lanes: %zu live (%zu to %zu), %zu tracked, %zu idle (at most %zu)", st.live, least, most,
                 st.tracked, st.idle, cap);
    }
}

void verdict_step(world *w)
{
    size_t n_nomem = 0;
    if (w->model.n_faults > 0) {
        sim_fail(
            "the model saw a batch that breaks the rules, or a page that does not hold what was written");
    }
    for (size_t i = 0; i < w->s->n_requests; i++) {
        cut_in_time(w, &w->lives[i]);
        just_failures(w, &w->lives[i], &n_nomem);
        progress(w, &w->lives[i]);
    }
    figures(w);
    books(w);
}

/* After the end */

/* The reason by DESIGN 6: deadline, cancelled, length, its own end. */
static finish_reason reason_of(const answer *a, bool deadline, bool cancelled)
{
    if (deadline) {
        return FINISH_TIMEOUT;
    }
    if (cancelled) {
        return FINISH_CANCELLED;
    }
    if (!a->over) {
        return FINISH_NONE;
    }
    return a->causes.budget || a->causes.context || a->causes.guard ? FINISH_LENGTH : FINISH_STOP;
}

static bool guard_fits(const life *l, const answer *a)
{
    switch (l->result.reason) {
    case FINISH_TIMEOUT:
        return strcmp(l->guard, "deadline") == 0;
    case FINISH_CANCELLED:
        return strcmp(l->guard, l->guarded ? SIM_GUARD : "") == 0;
    case FINISH_LENGTH: /* of two that cut at once either is true */
        return (a->causes.guard && strcmp(l->guard, "repetition") == 0) ||
               (a->causes.context && strcmp(l->guard, "context") == 0) ||
               (a->causes.budget && l->guard[0] == '\0');
    default:
        return l->guard[0] == '\0';
    }
}

static void check_reason(const world *w, const life *l, const answer *a)
{
    /* Sealed with its last token, if that ended it; else by the call that ended it. */
    bool sealed = a->over && !a->causes.end_token && l->n_ids > 0;
    uint64_t when_ns = sealed ? l->last_token_ns : l->end_ns;
    bool cancelled = sealed ? l->cancel_at_last_token : l->cancel_asked;
    finish_reason want = reason_of(a, l->deadline_ns && l->deadline_ns <= when_ns, cancelled);
    if (l->result.reason != want) {
        sim_fail("request %zu: ended as %s behind %zu tokens, it should as %s", WHO(w, l),
                 finish_name(l->result.reason), l->n_ids, finish_name(want));
    }
    if (!guard_fits(l, a)) {
        sim_fail("request %zu: %s by the guard \"%s\"", WHO(w, l), finish_name(want), l->guard);
    }
    if (l->poisoned && want != FINISH_CANCELLED && want != FINISH_TIMEOUT) {
        sim_fail("request %zu: a non-finite prompt has a reply", WHO(w, l));
    }
}

static void check_text(const world *w, const life *l, const int32_t *ids, const answer *a)
{
    if (a->too_many || memcmp(ids, l->ids, l->n_ids * sizeof *ids) != 0) {
        sim_fail("request %zu: of %zu tokens not all are those of the undisturbed reply", WHO(w, l),
                 l->n_ids);
    }
    if (l->n_text != a->text.len || memcmp(l->text, buf_str(&a->text), a->text.len) != 0) {
        sim_fail("request %zu: the text is not that of the undisturbed reply", WHO(w, l));
    }
    if (memcmp(l->shown, a->shown, l->n_ids * sizeof *l->shown) != 0) {
        sim_fail("request %zu: text came with other tokens than in the undisturbed reply", WHO(w, l));
    }
}

static void check_probs(const world *w, const life *l, const question *q)
{
    bool wanted = l->r->logprobs >= 0, prompt_wanted = l->r->prompt_logprobs >= 0 && l->n_had == 0;
    bool prompt_computed = l->n_ids > 0 || (l->phase == LIFE_DONE && l->result.reason != FINISH_CANCELLED &&
                                            l->result.reason != FINISH_TIMEOUT);
    if (l->n_probs != (wanted ? l->n_ids - l->n_had : 0)) { /* what they were elsewhere nobody knows here */
        sim_fail("request %zu: log-probabilities of %zu tokens", WHO(w, l), l->n_probs);
    }
    for (size_t i = l->n_had; wanted && i < l->n_ids; i++) {
        if (oracle_probs(q, l->ids, i) != l->probs[i]) {
            sim_fail("request %zu: other log-probabilities at token %zu", WHO(w, l), i);
        }
    }
    if (!prompt_wanted || (prompt_computed ? l->n_prompt_calls != 1 : l->n_prompt_calls > 1)) {
        if (l->n_prompt_calls != 0 || prompt_wanted) {
            sim_fail("request %zu: prompt_probs called %d times", WHO(w, l), l->n_prompt_calls);
        }
    }
    if (l->n_prompt_calls > 0 && oracle_prompt_probs(q) != l->prompt_probs) {
        sim_fail("request %zu: other log-probabilities of the prompt", WHO(w, l));
    }
}

/* What is read instead of a reply. */
static void check_plan(const world *w, const life *l, const question *q)
{
    bool whole = l->result.reason == FINISH_STOP;
    float hidden[FAKE_N_EMBD];
    if (l->has_embedding != (whole && l->r->plan == GEN_EMBED) ||
        l->has_labels != (whole && l->r->plan == GEN_SCORE)) {
        sim_fail("request %zu: an embedding or labels that nobody asked for, or none", WHO(w, l));
    }
    fake_hidden(l->prompt, l->n_prompt, hidden);
    if (l->has_embedding && memcmp(hidden, l->embedding, sizeof hidden) != 0) {
        sim_fail("request %zu: another embedding than the undisturbed one", WHO(w, l));
    }
    for (size_t i = 0; l->has_labels && i < (size_t)l->r->n_labels; i++) {
        float want = oracle_label(q, sim_labels[i]);
        if (memcmp(&want, &l->labels[i], sizeof want) != 0) {
            sim_fail("request %zu: another log-probability of label %zu", WHO(w, l), i);
        }
    }
}

/* How much of what it began with was computed for it. over: it was over when it came. */
static void check_reuse(const world *w, const life *l, bool over)
{
    const gen_result *r = &l->result;
    bool cold = w->s->config.cold || (l->r->prompt_logprobs >= 0 && l->n_had == 0);
    size_t n = l->n_prompt + l->n_had, most = l->reused < l->n_prompt ? l->reused : l->n_prompt;
    size_t found = l->n_had > 0 ? l->reused : (size_t)r->reused_tokens;
    bool known = l->n_had == 0 || !l->parked_first; /* where the first row of it was */
    if (l->begun && !l->parked_first && r->reused_tokens != (int32_t)most &&
        !(over && r->reused_tokens > (int32_t)most)) { /* the rest of it never was computed */
        sim_fail("request %zu: it began at %zu and says that %d tokens were reused", WHO(w, l), l->reused,
                 r->reused_tokens);
    }
    if (!cold && l->begun && known &&
        ((r->miss == KV_MISS_NONE) != (found + 1 == n) || (size_t)r->miss_at < found ||
         (size_t)r->miss_at >= n)) {
        sim_fail("request %zu: %zu of %zu tokens reused, and what ends that is %s at %d", WHO(w, l), found, n,
                 kv_miss_name(r->miss), r->miss_at);
    }
    if (cold && r->reused_tokens > 0 && !over) {
        sim_fail("request %zu: tokens reused although nothing may be", WHO(w, l));
    }
}

static void check_counts(const world *w, const life *l, const answer *a)
{
    const gen_result *r = &l->result;
    bool cut = r->reason == FINISH_CANCELLED || r->reason == FINISH_TIMEOUT;
    bool over = l->n_had > 0 && l->n_ids == l->n_had && a->over && !a->causes.end_token;
    if (r->prompt_tokens != (int32_t)l->n_prompt || r->reused_tokens >= r->prompt_tokens + (l->n_had > 0) ||
        r->reused_tokens < 0 || r->reused_tokens + r->prefilled_tokens > r->prompt_tokens ||
        (r->reused_tokens + r->prefilled_tokens < r->prompt_tokens && !(cut && l->n_ids == l->n_had))) {
        sim_fail("request %zu: %d tokens reused and %d prefilled of %d", WHO(w, l), r->reused_tokens,
                 r->prefilled_tokens, r->prompt_tokens);
    }
    if ((size_t)r->preemptions != l->n_preempted) {
        sim_fail("request %zu: says that it was parked %d times, it was %zu times", WHO(w, l), r->preemptions,
                 l->n_preempted);
    }
    bool forwards = l->r->session > 0 && r->reason == FINISH_LENGTH && !r->stop_cut; /* its last token */
    if (over && !forwards && (l->begun || r->prefilled_tokens > 0)) {
        sim_fail("request %zu: it was over, and something of it was computed", WHO(w, l));
    }
    check_reuse(w, l, over);
    if (r->seed != (uint64_t)l->r->sample_seed ||
        (int64_t)(r->total_ms * 1e6 + 0.5) != (int64_t)(l->end_ns - l->submit_ns)) {
        sim_fail("request %zu: wrong seed or time in the result", WHO(w, l));
    }
}

void verdict_end(const world *w, const life *l)
{
    static int32_t ids[SIM_MAX_CTX];
    answer a;
    if (l->phase != LIFE_DONE && l->phase != LIFE_FAILED) {
        return;
    }
    question q = verdict_question(w, l);
    oracle_answer(&q, l->n_ids, l->phase == LIFE_DONE, ids, &a);
    check_text(w, l, ids, &a);
    if (l->phase == LIFE_DONE) {
        check_reason(w, l, &a);
        check_counts(w, l, &a);
        check_plan(w, l, &q);
        if (a.stop_cut != l->result.stop_cut || a.repaired != l->result.repaired_tail) {
            sim_fail("request %zu: stop_cut or repaired_tail is wrong", WHO(w, l));
        }
    }
    check_probs(w, l, &q);
    buf_release(&a.text);
}
