/*
 * Ways of running that are about what was there before, and about what happens to its own state.
 */
#include "purity/scene.h"

#include <string.h>

#include "engine/session_range.h"

#define PAGE KV_PAGE_TOKENS

/* Of n tokens that a stranger left. */
static size_t offered(size_t n)
{
    return n >= PAGE ? n : 0;
}

static size_t whole_pages(size_t n)
{
    return n - n % PAGE;
}

void run_not_warm(scene *s)
{
    session *in = open_session(s);
    heard *h = submit_other(s, &(other){.prompt = s->q.prompt, .n_prompt = s->q.n_prompt, .session = in});
    until_over(s, h);
    tested(s, in);
    until_over(s, &s->got);
    expect(s, s->got.result.reused_tokens == 0, "something was reused");
}

/* The turn that the prompt begins with, and its reply, through a session. */
static session *first_turn(scene *s)
{
    session *in = open_session(s);
    heard *h = submit_other(s, &(other){.prompt = s->q.prompt,
                                        .n_prompt = s->q.n_turn,
                                        .n_new = (int32_t)s->q.n_reply,
                                        .session = in,
                                        .force = s->q.prompt + s->q.n_turn,
                                        .n_force = s->q.n_reply});
    until_over(s, h);
    expect(s, h->ids.len == s->q.n_reply, "the first turn said something else");
    return in;
}

/* A turn that is computed and says nothing. */
static session *turn(scene *s, const int32_t *prompt, size_t n)
{
    session *in = open_session(s);
    until_over(s, submit_other(s, &(other){.prompt = prompt, .n_prompt = n, .session = in}));
    return in;
}

static void next_turn(scene *s, session *in, reset_reason reason, size_t reused)
{
    tested(s, in);
    until_over(s, &s->got);
    expect(s, s->got.result.reset == reason, reset_reason_name(s->got.result.reset));
    expect(s, (size_t)s->got.result.reused_tokens == reused, "not as many tokens reused");
}

void run_turn_exact(scene *s)
{
    next_turn(s, first_turn(s), RESET_EXACT_PREFIX, s->q.n_turn + s->q.n_reply);
}

void run_turn_equal(scene *s)
{
    next_turn(s, turn(s, s->q.prompt, s->q.n_prompt), RESET_EQUAL, s->q.n_prompt - 1);
}

void run_turn_prefix(scene *s)
{
    int32_t ids[ASK_MAX_PROMPT + PAGE];
    size_t shared = s->q.n_prompt - 2;
    memcpy(ids, s->q.prompt, shared * sizeof *ids);
    place_prompt(&s->p, ids + shared, PAGE, 9);
    ids[shared] = s->q.prompt[shared] == 70 ? 71 : 70;
    bool page = shared >= PAGE;
    next_turn(s, turn(s, ids, shared + PAGE), page ? RESET_PREFIX : RESET_MISMATCH, page ? shared : 0);
}

void run_turn_mismatch(scene *s)
{
    int32_t ids[ASK_MAX_PROMPT];
    memcpy(ids, s->q.prompt, s->q.n_prompt * sizeof *ids);
    ids[0] = ids[0] == 70 ? 71 : 70;
    next_turn(s, turn(s, ids, s->q.n_prompt), RESET_MISMATCH, 0);
}

void run_turn_told(scene *s)
{
    size_t n;
    int32_t ids[ASK_MAX_PROMPT];
    const int32_t *known = session_resident(first_turn(s), &n);
    memcpy(ids, known, n * sizeof *ids);
    session *in = open_session(s);
    expect(s, session_set_tokens(in, ids, n, NULL) == ST_OK, "it cannot be told");
    next_turn(s, in, RESET_EXACT_PREFIX, s->q.n_turn + s->q.n_reply);
}

kern_set another_set(const purity_case *c)
{
    purity_case changed = *c;
    size_t n = matrix_values(AXIS_SET), at = c->at[AXIS_SET];
    changed.at[AXIS_SET] = (uint8_t)(at > 1 ? at - 1 : n - 1);
    return matrix_set(&changed);
}

/* The first turn somewhere else; its tokens as bytes, [0, half) and [half, all). */
static void export_turn(scene *s, buf parts[2])
{
    static scene t;
    const place_way how = {
        .set = another_set(&s->judged), .kv = matrix_kv(&s->judged), .threads = 1, .chunk = 37};
    const place_config cfg = place_config_default();
    const char *left;
    err e;
    memset(&t, 0, sizeof t);
    t.judged = s->judged;
    t.q = s->q;
    place_open(&t.p, matrix_model(&s->judged), &how, &cfg);
    session *from = first_turn(&t);
    size_t n = s->q.n_turn + s->q.n_reply, half = n / 2;
    const session_range ranges[2] = {{.count = half}, {.from = half, .count = n - half}};
    for (size_t i = 0; i < 2; i++) {
        expect(s, ranges[i].count == 0 || session_export(from, &ranges[i], &parts[i], &e) == ST_OK, e.msg);
    }
    session_close(from);
    expect(s, t.why[0] == '\0', t.why);
    if (!place_close(&t.p, &left)) {
        expect(s, false, left);
    }
    heard_release(&t.others[0]);
}

void run_turn_moved(scene *s)
{
    buf parts[2] = {{0}, {0}};
    session *in = open_session(s);
    export_turn(s, parts);
    for (size_t i = 0; i < 2; i++) {
        session_range r = {0};
        err e;
        expect(s,
               parts[i].len == 0 ||
                   session_import(in, (const uint8_t *)parts[i].data, parts[i].len, &r, &e) == ST_OK,
               e.msg);
        buf_release(&parts[i]);
    }
    next_turn(s, in, RESET_EXACT_PREFIX, s->q.n_turn + s->q.n_reply);
}

void run_turn_dirty(scene *s)
{
    session *in = open_session(s);
    until_over(s, submit_other(s, &(other){.prompt = s->q.prompt,
                                           .n_prompt = s->q.n_prompt,
                                           .n_new = 9,
                                           .session = in,
                                           .cancel_at = 2}));
    next_turn(s, in, RESET_DIRTY,
              offered(s->q.n_prompt - 1)); /* it is there, whatever the session may know */
}

void run_other_lane(scene *s)
{
    heard *h[3];
    for (size_t i = 0; i < 3; i++) {
        h[i] = submit_other(s, &(other){.n_prompt = 8 + 30 * i, .n_new = 100});
        until_said(s, h[i], 1);
    }
    cancel(h[1]); /* its lane and its pages are free, not as new */
    hold(h[2], true);
    step(s, 1);
    tested(s, NULL);
    step(s, 1);
    const lane *own = lanes_at(engine_lanes(s->p.en), 1);
    expect(s, own && own->owner != 0 && own->generation > 1, "it is not in another's lane");
    until_over(s, &s->got);
}

void run_used_pages(scene *s)
{
    for (size_t i = 0; i < 20; i += 5) {
        heard *h[5];
        for (size_t k = 0; k < 5; k++) {
            h[k] = submit_other(s, &(other){.n_prompt = 15 + 8 * k, .n_new = 1});
        }
        for (size_t k = 0; k < 5; k++) {
            until_over(s, h[k]);
        }
    }
    tested(s, NULL);
    until_over(s, &s->got);
}

/*
 * Preempted. An elder neighbour of three pages (32 + 64 tokens is what is reserved for it) stands, held, before the
 * token that needs a fourth one; all other pages are the request's.
 */
static heard *elder(scene *s, int32_t n_new)
{
    heard *h = submit_other(s, &(other){.n_prompt = 32, .n_new = n_new});
    until_said(s, h, GEN_WATERMARK_TOKENS);
    expect(s, !h->over, "the elder neighbour is gone");
    hold(h, true);
    step(s, 1);
    return h;
}

/* The elder goes on, and takes a page. */
static void preempt(scene *s, heard *by, uint64_t times)
{
    hold(by, false);
    for (int i = 0; stats_of(s).preemptions < times && !by->over && !s->got.over && i < 200; i++) {
        step(s, 1);
    }
    expect(s, stats_of(s).preemptions == times && stats_of(s).parked == 1 && !s->got.over,
           "it was not preempted");
}

static void preempted(scene *s, session *in, size_t when)
{
    heard *by = elder(s, 96);
    tested(s, in);
    until_said(s, &s->got, when);
    preempt(s, by, 1);
    until_over(s, &s->got);
    expect(s, by->over, "it did not wait for its pages");
    expect(s, s->got.result.preemptions == 1, "not preempted once");
}

void run_parked_kept(scene *s)
{
    preempted(s, NULL, PURITY_HOLD_AT);
    expect(s, stats_of(s).tokens_restored >= s->q.n_prompt, "its pages did not come back");
    expect(s, stats_of(s).tokens_recomputed == 0, "it was computed again");
}

void run_parked_dropped(scene *s)
{
    preempted(s, NULL, PURITY_HOLD_AT);
    uint64_t whole = whole_pages(s->q.n_prompt), again = stats_of(s).tokens_recomputed;
    expect(s, stats_of(s).tokens_restored == whole, "its whole pages were not found");
    expect(s, again >= s->q.n_prompt - whole && again < PAGE, "the rest was not computed again");
}

/* The elder takes all pages, those that it left first of all. */
void run_parked_evicted(scene *s)
{
    heard *by = elder(s, (int32_t)((stats_of(s).pages_total - 1) * PAGE));
    tested(s, NULL);
    until_said(s, &s->got, PURITY_HOLD_AT);
    preempt(s, by, 1);
    until_over(s, &s->got);
    expect(s, by->over && s->got.result.preemptions == 1, "not preempted once");
    expect(s, stats_of(s).tokens_restored == 0, "its pages were kept");
    expect(s, stats_of(s).tokens_recomputed >= s->q.n_prompt, "it was not computed again");
}

void run_parked_early(scene *s)
{
    preempted(s, NULL, 0);
}

void run_parked_session(scene *s)
{
    session *in = first_turn(s);
    preempted(s, in, PURITY_HOLD_AT);
    expect(s, s->got.result.reset == RESET_EXACT_PREFIX, reset_reason_name(s->got.result.reset));
    size_t whole = whole_pages(s->q.n_turn + s->q.n_reply); /* it needs all pages that there are */
    expect(s, (size_t)s->got.result.reused_tokens == whole, "not as many tokens reused");
}

static void step_until_preempted(scene *s, uint64_t n)
{
    for (int i = 0; stats_of(s).preemptions < n && i < 2000; i++) {
        step(s, 1);
    }
    expect(s, stats_of(s).preemptions == n && !s->got.over, "nobody gave way");
}

/* The elder is held, so it comes back in the elder's place; then it is held, and the elder comes back in its place. */
void run_parked_twice(scene *s)
{
    heard *by = elder(s, 96);
    tested(s, NULL);
    until_said(s, &s->got, PURITY_HOLD_AT);
    preempt(s, by, 1);
    hold(by, true);
    step_until_preempted(s, 2);
    hold(&s->got, true);
    hold(by, false);
    step_until_preempted(s, 3);
    hold(&s->got, false);
    until_over(s, &s->got);
    expect(s, s->got.result.preemptions == 2, "not preempted twice");
}

void run_limit_low(scene *s)
{
    engine_set_page_limit(s->p.en, 1);
    tested(s, NULL);
    until_said(s, &s->got, PURITY_HOLD_AT);
    bool beyond = s->q.n_prompt + PURITY_HOLD_AT > PAGE;
    expect(s, s->got.over || !beyond || stats_of(s).pages_total > 1, "it did not go beyond the limit");
    until_over(s, &s->got);
    step(s, 1);
    expect(s, stats_of(s).pages_total == 1 && stats_of(s).pages_cached <= 1, "it gave nothing back");
    expect(s, stats_of(s).preemptions == 0, "it was preempted");
}

/* It falls where only the elder fits, and rises again, over and over; the elder is never the one that gives way. */
void run_limit_moves(scene *s)
{
    heard *by = submit_other(s, &(other){.n_prompt = 40, .n_new = 200});
    until_said(s, by, 1);
    tested(s, NULL);
    for (size_t i = 0; !s->got.over && i < 4000; i++) {
        engine_set_page_limit(s->p.en, i % 8 < 4 || by->over ? SIZE_MAX : 1);
        step(s, 1);
    }
    until_over(s, &s->got);
    expect(s, s->got.result.preemptions > 0 || s->got.result.n_ids < 4, "it was not preempted");
    engine_set_page_limit(s->p.en, SIZE_MAX);
    until_over(s, by);
    expect(s, by->result.preemptions == 0, "the elder gave way");
}

void run_scored(scene *s)
{
    s->scored = true;
    submit_other(s, &(other){.n_prompt = 40, .n_new = 100});
    tested(s, NULL);
    until_over(s, &s->got);
    expect(s, s->got.said.len == (s->q.n_prompt - 1) * ASK_PROBS, "its prompt was not scored");
}

/* A reply that is scored as a prompt has the bits that it had when it was drawn. */
void run_said_again(scene *s)
{
    int32_t ids[ASK_MAX_PROMPT + PURITY_N_NEW];
    size_t n = s->q.n_prompt, behind = (n - 1) * ASK_PROBS;
    memcpy(ids, s->q.prompt, n * sizeof *ids);
    memcpy(ids + n, s->reference->ids.data, PURITY_N_NEW * sizeof *ids);
    submit_other(s, &(other){.n_prompt = 40, .n_new = 100});
    heard *h = submit_other(s, &(other){.prompt = ids, .n_prompt = n + PURITY_N_NEW, .scored = true});
    until_over(s, h);
    expect(s, h->said.len == behind + PURITY_N_NEW * ASK_PROBS, "not every token was scored");
    expect(s,
           h->said.len < behind || memcmp(h->said.data + behind, s->reference->probs.data,
                                          s->reference->probs.len * sizeof *ids) == 0,
           "a token has other bits as a prompt's");
    tested(s, NULL); /* and with what the scored prompt has left */
    until_over(s, &s->got);
    expect(s, (size_t)s->got.result.reused_tokens == offered(n - 1), "not as many tokens reused");
}

/* The case's request goes on behind the tokens that it had. */
static void goes_on(scene *s, session *in)
{
    s->n_had = tokens_had(s);
    tested(s, in);
    until_over(s, &s->got);
}

void run_resumed_cold(scene *s)
{
    began_elsewhere(s, tokens_had(s), NULL, NULL);
    goes_on(s, NULL);
    expect(s, s->got.result.reused_tokens == 0, "something was reused");
    expect(s, stats_of(s).tokens_recomputed == s->n_had - 1, "its own tokens were not computed again");
}

void run_resumed_here(scene *s)
{
    heard *h = submit_other(s, &(other){.prompt = s->q.prompt,
                                        .n_prompt = s->q.n_prompt,
                                        .n_new = (int32_t)tokens_had(s),
                                        .force = s->reference->ids.data,
                                        .n_force = tokens_had(s)});
    until_over(s, h);
    goes_on(s, NULL);
    expect(s, (size_t)s->got.result.reused_tokens == s->q.n_prompt, "its prompt was computed again");
    expect(s, stats_of(s).tokens_recomputed == 0, "its own tokens were computed again");
    expect(s, stats_of(s).tokens_restored == s->n_had - 1, "its own tokens were not found");
}

void run_resumed_beside(scene *s)
{
    heard *h = submit_other(s, &(other){.n_prompt = 33, .n_new = 100});
    until_said(s, h, 4);
    submit_other(s, &(other){.n_prompt = 200, .n_new = 100});
    goes_on(s, NULL);
    expect(s, h->ids.len > 4, "the neighbour did not go on");
}

void run_resumed_session(scene *s)
{
    session *in = first_turn(s);
    goes_on(s, in);
    expect(s, s->got.result.reset == RESET_EXACT_PREFIX, reset_reason_name(s->got.result.reset));
    expect(s, (size_t)s->got.result.reused_tokens == s->q.n_turn + s->q.n_reply, "not as many tokens reused");
}

void run_resumed_parked(scene *s)
{
    s->n_had = PURITY_HOLD_AT;
    preempted(s, NULL, s->n_had + 1);
}

void run_resumed_twice(scene *s)
{
    s->n_had = 1;
    tested(s, NULL);
    until_said(s, &s->got, PURITY_HOLD_AT);
    cancel(&s->got);
    until_over(s, &s->got);
    expect(s, s->got.ids.len >= PURITY_HOLD_AT, "it did not go on");
    heard_release(&s->got);
    s->n_had = PURITY_HOLD_AT;
    tested(s, NULL);
    until_over(s, &s->got);
}
