/*
 * A reply that goes on where it stopped: whatever ends it, and after whichever token it was interrupted, what it says
 * and how it ends is what it says and how it ends undisturbed. The model is the fake one, so that a token which was
 * computed from another history shows.
 */
#include "engine/test_main.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "engine/engine_int.h"
#include "engine/engine_rig.h"

#define N_PROMPT 45

static tokenizer *tok;
static int32_t eos;

/* What is asked; the rest is as rig_request says. */
typedef struct kind {
    const char *name;
    const char *says; /* the model says these bytes, then the end token; NULL: hashed logits, no tokenizer */
    const char *stops[3];
    int32_t max_new;
    float temperature;
    bool penalties, probs, prompt_probs, ignore_eos;
    int32_t min_tokens, stop_id; /* stop_id 0 = none */
    int32_t repeat_span;
    bool session;
    size_t force_at; /* the watcher forces "XYZ" behind so many tokens; 0 = never */
    size_t close_at; /* and closes the reply's last call; 0 = never */
} kind;

static const kind kinds[] = {
    {"greedy", .max_new = 40},
    {"sampled", .max_new = 40, .temperature = 0.8f, .penalties = true},
    {"probs", .max_new = 40, .temperature = 0.8f, .probs = true, .prompt_probs = true},
    {"end token", "Hello, w\xC3\xB6rld", .max_new = -1},
    {"a stop string", "Hello, world and all", {"wor", "d and"}, .max_new = -1},
    {"one that is held back", "aab aab aabc aaa", {"aab aab aac", "zz"}, .max_new = -1},
    {"a character is cut", "h\xC3\xA9\xF0\x9F\x91\xA9!", .max_new = 6},
    {"an unfinished stop string", "Hello wor", {"world"}, .max_new = 9},
    {"a stop id", "Hello, world", .max_new = -1, .stop_id = 'w'},
    {"at least", "Hel", .max_new = 12, .min_tokens = 10},
    {"no end", "Hel", .max_new = 12, .ignore_eos = true},
    {"repetition", "abababababababababababababababababababababababab", .max_new = -1, .repeat_span = 32},
    {"forced", "Hello, world", .max_new = -1, .force_at = 4},
    {"closed", "Hello, world", .max_new = -1, .close_at = 7},
    {"a session", "Hello, world", .max_new = 9, .session = true},
    {"a session that is cut", "Hello, world", {"wo"}, .max_new = -1, .session = true},
    {"a session's end token", "Hello", .max_new = -1, .session = true},
};

static int32_t say(void *ctx, const int32_t *tokens, size_t n)
{
    const char *says = ctx;
    size_t at = n - N_PROMPT;
    (void)tokens;
    return n >= N_PROMPT && at < strlen(says) ? (unsigned char)says[at] : eos;
}

typedef struct watcher {
    reply_log *l;
    const kind *k;
    buf heard; /* the text, and a letter for each moment */
    size_t n;
} watcher;

static status watch(void *ctx, gen_moment when, const char *text, size_t len, gen_verdict *v)
{
    static const int32_t forced[] = {'X', 'Y', 'Z'};
    watcher *w = ctx;
    buf_append_char(&w->heard, "BTEC"[when]);
    buf_append(&w->heard, text, len);
    w->n += when == GEN_TOKEN;
    if (when == GEN_TOKEN && w->n == w->k->force_at) {
        v->force = forced;
        v->n_force = 3;
    }
    v->n_tool_calls = w->k->close_at > 0 && w->n >= w->k->close_at;
    v->tool_calls_closed = v->n_tool_calls > 0;
    return ST_OK;
}

/* The engine's sink has one context: the log's; the watcher finds itself by it. */
static watcher *watched;

static status on_watch(void *ctx, gen_moment when, const char *text, size_t len, gen_verdict *v)
{
    assert_ptr_equal(ctx, watched->l);
    return watch(watched, when, text, len, v);
}

static stop_set *stops_of(const char *const *list)
{
    stop_string strings[3];
    size_t n = 0;
    stop_set *set = NULL;
    err e;
    for (; n < 3 && list[n]; n++) {
        strings[n] = (stop_string){list[n], strlen(list[n])};
    }
    assert_int_equal(n == 0 ? ST_OK : stop_set_new(strings, n, &set, &e), ST_OK);
    return set;
}

static void open_for(engine_rig *r, const kind *k)
{
    rig_config cfg = rig_config_default();
    cfg.tok = k->says ? tok : NULL;
    cfg.logit_rows = 16;
    rig_open(r, &cfg);
    if (k->says) {
        r->model.script = say;
        r->model.script_ctx = (void *)(uintptr_t)k->says;
    }
}

static gen_request request_of(const kind *k, reply_log *l, const int32_t *prompt, const int32_t *had,
                              size_t n_had)
{
    static const int32_t stop_id[] = {'w'};
    gen_request q = rig_request(l, prompt, N_PROMPT, k->max_new);
    q.sink.watch = on_watch;
    q.stops = stops_of(k->stops);
    q.params.temperature = k->temperature;
    q.params.seed = 11;
    q.params.ignore_eos = k->ignore_eos;
    q.params.min_tokens = k->min_tokens;
    if (k->penalties) {
        q.params.repetition_penalty = 1.3f;
        q.params.presence_penalty = 0.5f;
        q.params.frequency_penalty = 0.25f;
        q.params.repeat_last_n = 16;
    }
    q.params.top_logprobs = k->probs ? 2 : -1;
    q.prompt_logprobs = k->prompt_probs ? 1 : -1;
    q.stop_ids = stop_id;
    q.n_stop_ids = k->stop_id != 0;
    q.repeat_span = k->repeat_span;
    q.resumed = had;
    q.n_resumed = n_had;
    return q;
}

static void run(engine_rig *r, const kind *k, reply_log *l, watcher *w, const int32_t *had, size_t n_had)
{
    int32_t prompt[N_PROMPT];
    session *s = NULL;
    rig_tokens(prompt, N_PROMPT, 3);
    log_init(l, r);
    *w = (watcher){.l = l, .k = k};
    watched = w;
    gen_request q = request_of(k, l, prompt, had, n_had);
    if (k->session) {
        assert_int_equal(session_open(r->en, &s), ST_OK);
        q.session = s;
    }
    rig_generate(r, &q, l);
    assert_int_equal(l->n_done, 1);
    if (s) { /* a cut one is dirty, where it ran; else all of it is there, but for what ended it by itself */
        size_t n;
        const int32_t *ids = session_resident(s, &n);
        assert_true(n == 0 || (n >= N_PROMPT && memcmp(ids, prompt, sizeof prompt) == 0));
        if (l->result.reason == FINISH_LENGTH) {
            assert_int_equal(n, N_PROMPT + l->ids.len);
            assert_memory_equal(ids + N_PROMPT, l->ids.data, l->ids.len * sizeof *ids);
        }
    }
    session_close(s);
}

static void expect_ivec(const ivec *got, const int32_t *want, size_t n)
{
    assert_int_equal(got->len, n);
    if (n > 0) {
        assert_memory_equal(got->data, want, n * sizeof *want);
    }
}

static void expect_same(const kind *k, size_t at, const reply_log *got, const watcher *heard,
                        const reply_log *want, const watcher *should)
{
    const gen_result *a = &got->result, *b = &want->result;
    if (got->ids.len != want->ids.len || strcmp(buf_str(&got->text), buf_str(&want->text)) != 0) {
        print_error("%s, resumed after %zu of %zu: \"%s\", not \"%s\"\n", k->name, at, want->ids.len,
                    buf_str(&got->text), buf_str(&want->text));
    }
    expect_ivec(&got->ids, want->ids.data, want->ids.len);
    expect_ivec(&got->result_ids, want->ids.data, want->ids.len);
    expect_ivec(&got->ends, want->ends.data, want->ends.len);
    assert_int_equal(got->n_again, at);
    assert_string_equal(buf_str(&got->text), buf_str(&want->text));
    assert_string_equal(buf_str(&got->tail), buf_str(&want->tail));
    assert_string_equal(buf_str(&heard->heard), buf_str(&should->heard));
    assert_string_equal(finish_name(a->reason), finish_name(b->reason));
    assert_string_equal(got->guard, want->guard);
    assert_true(a->stop_cut == b->stop_cut && a->repaired_tail == b->repaired_tail && a->seed == b->seed);
    assert_int_equal(a->prompt_tokens, N_PROMPT);
    assert_int_equal(a->reused_tokens + a->prefilled_tokens, N_PROMPT);
    size_t per = want->probs.len / want->ids.len; /* of the others, the same to the bit */
    expect_ivec(&got->probs, want->probs.data + at * per, want->probs.len - at * per);
    assert_int_equal(got->n_prompt_calls, k->prompt_probs && at == 0);
}

/* Cold, where the reply was (everything is in memory), and behind another request. */
static void test_every_token(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_OF(kinds); i++) {
        const kind *k = &kinds[i];
        engine_rig r;
        reply_log want, got;
        watcher should, heard;
        open_for(&r, k);
        run(&r, k, &want, &should, NULL, 0);
        assert_true(want.ids.len > 4);
        for (size_t at = 0; at <= want.ids.len; at++) {
            engine_rig fresh;
            open_for(&fresh, k);
            run(&fresh, k, &got, &heard, want.ids.data, at);
            expect_same(k, at, &got, &heard, &want, &should);
            bool over = at == want.ids.len && fresh.model.n_calls == 0;
            engine_stats st = rig_stats(&fresh);
            assert_int_equal(st.tokens_recomputed, over || at == 0 ? 0 : at - 1);
            assert_int_equal(st.tokens_prefilled, over ? 0 : N_PROMPT);
            assert_int_equal(st.tokens_generated, want.ids.len - at);
            log_release(&got);
            buf_release(&heard.heard);
            rig_close(&fresh);

            run(&r, k, &got, &heard, want.ids.data, at);
            expect_same(k, at, &got, &heard, &want, &should);
            log_release(&got);
            buf_release(&heard.heard);
        }
        log_release(&want);
        buf_release(&should.heard);
        rig_close(&r);
    }
}

/* Which of them are over with their last token, so that nothing is computed for them. */
static void test_over(void **state)
{
    static const char *const names[] = {"greedy",
                                        "sampled",
                                        "probs",
                                        "a stop string",
                                        "a character is cut",
                                        "an unfinished stop string",

                                        "no end",
                                        "repetition",
                                        "closed",
                                        "a session that is cut"};
    (void)state;
    for (size_t i = 0; i < N_OF(kinds); i++) {
        const kind *k = &kinds[i];
        engine_rig r;
        reply_log want, got;
        watcher should, heard;
        bool listed = false;
        for (size_t n = 0; n < N_OF(names); n++) {
            listed = listed || strcmp(names[n], k->name) == 0;
        }
        open_for(&r, k);
        run(&r, k, &want, &should, NULL, 0);
        size_t before = r.model.n_calls;
        run(&r, k, &got, &heard, want.ids.data, want.ids.len);
        assert_int_equal(r.model.n_calls == before, listed);
        assert_int_equal(got.result.reused_tokens, N_PROMPT);
        log_release(&want);
        log_release(&got);
        buf_release(&should.heard);
        buf_release(&heard.heard);
        rig_close(&r);
    }
}

/* What is in memory of it is not computed again, its own tokens neither; prompt and reply are told apart. */
static void test_reuse(void **state)
{
    const kind k = {"long", .max_new = 200};
    engine_rig r;
    reply_log want, got;
    watcher should, heard;
    (void)state;
    open_for(&r, &k);
    run(&r, &k, &want, &should, NULL, 0);
    for (size_t at = 1; at < 200; at += 7) {
        engine_stats before = rig_stats(&r);
        run(&r, &k, &got, &heard, want.ids.data, at);
        expect_same(&k, at, &got, &heard, &want, &should);
        engine_stats after = rig_stats(&r);
        assert_int_equal(got.result.reused_tokens,
                         at == 1 ? N_PROMPT : N_PROMPT); /* all of the prompt is there */
        assert_int_equal(after.tokens_prefilled, before.tokens_prefilled);
        assert_int_equal(after.tokens_reused - before.tokens_reused, N_PROMPT);
        assert_int_equal(after.tokens_recomputed, before.tokens_recomputed);
        assert_int_equal(after.tokens_restored - before.tokens_restored, at - 1);
        log_release(&got);
        buf_release(&heard.heard);
    }
    log_release(&want);
    buf_release(&should.heard);
    rig_close(&r);
}

/* A sequence in the middle of its life and one that was resumed just before: the same, field by field. */
static void expect_fields(const sequence *a, const sequence *b)
{
    expect_ivec(&a->history, b->history.data, b->history.len);
    expect_ivec(&a->kv->ids, b->kv->ids.data, b->kv->ids.len);
    assert_int_equal(a->state, b->state);
    assert_true(a->begun && b->begun);
    assert_memory_equal(&a->detok, &b->detok, sizeof a->detok);
    assert_int_equal(a->stop.held.len, b->stop.held.len);
    assert_string_equal(buf_str(&a->stop.held), buf_str(&b->stop.held));
    assert_int_equal(a->stop.matched, b->stop.matched);
    assert_true(a->stop_cut == b->stop_cut && a->repaired_tail == b->repaired_tail &&
                a->repeated == b->repeated);
    assert_true(a->ceiling == b->ceiling && a->max_new == b->max_new && a->n_prompt == b->n_prompt);
    assert_int_equal(a->sealed, b->sealed);
    assert_int_equal(a->n_forced, b->n_forced);
    assert_memory_equal(&a->verdict, &b->verdict, sizeof a->verdict);
    assert_int_equal(a->drawn.token, b->drawn.token);
    assert_int_equal(a->n_known, b->n_known);
}

static void test_fields(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_OF(kinds); i++) {
        kind k = kinds[i];
        if (k.session) {
            continue;
        }
        for (size_t at = 1; at < 4; at++) { /* one more token than it had, both */
            engine_rig r[2];
            reply_log l[2];
            watcher w[2];
            int32_t prompt[N_PROMPT];
            rig_tokens(prompt, N_PROMPT, 3);
            k.force_at = k.force_at ? 2 : 0;
            for (size_t x = 0; x < 2; x++) {
                open_for(&r[x], &k);
                log_init(&l[x], &r[x]);
                w[x] = (watcher){.l = &l[x], .k = &k};
                watched = &w[x];
                gen_request q = request_of(&k, &l[x], prompt, x ? l[0].ids.data : NULL, x ? at : 0);
                rig_submit(&r[x], &q, &l[x]);
                while (l[x].ids.len < at + 1) {
                    rig_step(&r[x]);
                }
            }
            expect_fields(l[0].seq, l[1].seq);
            for (size_t x = 0; x < 2; x++) {
                watched = &w[x];
                seq_cancel(l[x].seq);
                rig_drain(&r[x]);
            }
            assert_string_equal(buf_str(&l[0].tail), buf_str(&l[1].tail));
            for (size_t x = 0; x < 2; x++) {
                log_release(&l[x]);
                buf_release(&w[x].heard);
                rig_close(&r[x]);
            }
        }
    }
}

/* Cut before it runs again: it says what it would have said, cut at that token. */
static void test_cut_while_queued(void **state)
{
    const kind k = {"held", "aab aab aab aab", {"aab aab aac"}, .max_new = -1};
    (void)state;
    for (size_t at = 1; at <= 12; at++) {
        engine_rig r;
        reply_log want, got;
        watcher should, heard;
        int32_t prompt[N_PROMPT];
        rig_tokens(prompt, N_PROMPT, 3);
        open_for(&r, &k);
        log_init(&want, &r);
        want.cancel_after = at;
        should = (watcher){.l = &want, .k = &k};
        watched = &should;
        gen_request q = request_of(&k, &want, prompt, NULL, 0);
        rig_generate(&r, &q, &want);
        assert_int_equal(want.ids.len, at);

        log_init(&got, &r);
        heard = (watcher){.l = &got, .k = &k};
        watched = &heard;
        q = request_of(&k, &got, prompt, want.ids.data, at);
        rig_submit(&r, &q, &got);
        seq_cancel(got.seq);
        rig_drain(&r);
        expect_ivec(&got.result_ids, want.ids.data, at);
        assert_string_equal(buf_str(&got.tail), buf_str(&want.tail));
        assert_string_equal(buf_str(&heard.heard), buf_str(&should.heard));
        assert_int_equal(got.result.reason, FINISH_CANCELLED);
        log_release(&want);
        log_release(&got);
        buf_release(&should.heard);
        buf_release(&heard.heard);
        rig_close(&r);
    }
}

/* One that is over says so only when it may speak; a cancel changes nothing any more. */
static void test_over_and_held(void **state)
{
    const kind budget = {"budget", "Hello, world", .max_new = 5};
    (void)state;
    for (int named = 0; named < 2; named++) {
        kind k = budget;
        engine_rig r;
        reply_log l;
        watcher w;
        session *s = NULL;
        int32_t prompt[N_PROMPT];
        static const int32_t had[] = {'H', 'e', 'l', 'l', 'o'};
        rig_tokens(prompt, N_PROMPT, 3);
        open_for(&r, &k);
        log_init(&l, &r);
        w = (watcher){.l = &l, .k = &k};
        watched = &w;
        gen_request q = request_of(&k, &l, prompt, had, 5);
        if (named) {
            assert_int_equal(session_open(r.en, &s), ST_OK);
            q.session = s;
        }
        rig_submit(&r, &q, &l);
        seq_hold(l.seq, true);
        for (int i = 0; i < 5; i++) {
            rig_step(&r);
        }
        assert_false(log_over(&l));
        assert_int_equal(r.model.n_calls, 0);
        if (named) { /* it is to be forwarded: half of that, then the cancel */
            seq_hold(l.seq, false);
            rig_step(&r);
            assert_false(log_over(&l));
            assert_int_equal(r.model.n_calls, 1);
        }
        seq_cancel(l.seq);
        rig_drain(&r);
        assert_int_equal(l.result.reason, FINISH_LENGTH);
        assert_int_equal(l.result.reused_tokens + l.result.prefilled_tokens, N_PROMPT);
        expect_ivec(&l.result_ids, had, 5);
        if (s) {
            assert_false(session_dirty(s));
        }
        session_close(s);
        log_release(&l);
        buf_release(&w.heard);
        rig_close(&r);
    }
}

static void refuse(const kind *k, const char *had, size_t n_had, status code)
{
    engine_rig r;
    reply_log l;
    watcher w;
    int32_t prompt[N_PROMPT], ids[64];
    err e;
    rig_tokens(prompt, N_PROMPT, 3);
    for (size_t i = 0; i < n_had; i++) {
        ids[i] = had[i] == '$' ? eos : (unsigned char)had[i];
    }
    open_for(&r, k);
    log_init(&l, &r);
    w = (watcher){.l = &l, .k = k};
    watched = &w;
    gen_request q = request_of(k, &l, prompt, ids, n_had);
    status st = rig_refused(&r, &q, &e);
    if (st != code) {
        print_error("%s, %s: %s\n", k->name, had, e.msg);
    }
    assert_int_equal(st, code);
    assert_int_equal(e.code, code);
    assert_false(log_over(&l));
    stop_set_free(q.stops); /* still ours */
    log_release(&l);
    buf_release(&w.heard);
    rig_close(&r);
}

static void test_refused(void **state)
{
    (void)state;
    refuse(&(kind){"budget", "x", .max_new = 3}, "abcd", 4, ST_RESUME_MISMATCH);
    refuse(&(kind){"nothing", "x", .max_new = 0}, "a", 1, ST_RESUME_MISMATCH);
    refuse(&(kind){"end token", "x", .max_new = -1}, "ab$", 3, ST_RESUME_MISMATCH);
    refuse(&(kind){"end token inside", "x", .max_new = -1}, "a$b", 3, ST_RESUME_MISMATCH);
    refuse(&(kind){"stop id", "x", .max_new = -1, .stop_id = 'w'}, "aw", 2, ST_RESUME_MISMATCH);
    refuse(&(kind){"stop string", "x", {"bc"}, .max_new = -1}, "abcd", 4, ST_RESUME_MISMATCH);
    refuse(&(kind){"closed", "x", .max_new = -1, .close_at = 2}, "abc", 3, ST_RESUME_MISMATCH);
    refuse(&(kind){"forced", "x", .max_new = -1, .force_at = 2}, "abXQ", 4, ST_RESUME_MISMATCH);
    refuse(&(kind){"forced", "x", .max_new = -1, .force_at = 2}, "abc", 3, ST_RESUME_MISMATCH);
    refuse(&(kind){"repetition", "x", .max_new = -1, .repeat_span = 32},
           "abababababababababababababababababab", 36, ST_RESUME_MISMATCH);
}

static void test_refused_ids(void **state)
{
    engine_rig r;
    reply_log l;
    err e;
    int32_t prompt[N_PROMPT], ids[] = {4, RIG_VOCAB}, many[512] = {0};
    (void)state;
    rig_tokens(prompt, N_PROMPT, 3);
    open_for(&r, &kinds[0]);
    log_init(&l, &r);
    gen_request q = rig_request(&l, prompt, N_PROMPT, -1);
    q.resumed = ids;
    q.n_resumed = 2;
    assert_int_equal(rig_refused(&r, &q, &e), ST_INVALID_FIELD);
    assert_string_equal(e.field, "resumed");
    q.n_resumed = 1;
    q.plan = GEN_EMBED;
    assert_int_equal(rig_refused(&r, &q, &e), ST_RESUME_MISMATCH);
    q.plan = GEN_SAMPLE;
    q.resumed = many; /* one more than the context has */
    q.n_resumed = 512 - N_PROMPT + 1;
    assert_int_equal(rig_refused(&r, &q, &e), ST_RESUME_MISMATCH);
    log_release(&l);
    rig_close(&r);
}

/* The pool is smaller than where it began: what it had fits, or it never does; the rest ends at the ceiling. */
static void test_smaller_pool(void **state)
{
    (void)state;
    for (size_t pages = 4; pages <= 6; pages++) {
        rig_config cfg = rig_config_default();
        engine_rig r;
        reply_log l;
        err e;
        int32_t all[N_PROMPT + 110];
        cfg.n_pages = pages;
        rig_open(&r, &cfg);
        rig_tokens(all, N_PROMPT, 3);
        fake_greedy(&r.model, all, N_PROMPT, 110);
        log_init(&l, &r);
        gen_request q = rig_request(&l, all, N_PROMPT, -1);
        q.resumed = all + N_PROMPT;
        q.n_resumed = 100; /* 145 positions: five pages */
        if (pages < 5) {
            assert_int_equal(rig_refused(&r, &q, &e), ST_NEVER_FITS);
        } else {
            rig_generate(&r, &q, &l);
            assert_int_equal(l.ids.len, pages * 32 - N_PROMPT);
            assert_memory_equal(l.ids.data, all + N_PROMPT, 110 * sizeof *all);
            assert_string_equal(l.guard, "context");
        }
        log_release(&l);
        rig_close(&r);
    }
}

/* Memory fails anywhere while it is taken: it is refused, and nothing is left of it. */
static void test_memory(void **state)
{
    const kind k = {"memory", "Hello, world", {"wor"}, .max_new = -1};
    static const int32_t had[] = {'H', 'e', 'l'};
    engine_rig r;
    int32_t prompt[N_PROMPT];
    bool done = false;
    (void)state;
    rig_tokens(prompt, N_PROMPT, 3);
    open_for(&r, &k);
    for (uint64_t n = 1; !done; n++) {
        reply_log l;
        watcher w;
        err e;
        log_init(&l, &r);
        w = (watcher){.l = &l, .k = &k};
        assert_int_equal(buf_reserve(&w.heard, 200), ST_OK);
        assert_int_equal(buf_reserve(&l.text, 200), ST_OK);
        assert_int_equal(ivec_reserve(&l.ids, 50), ST_OK);
        assert_int_equal(ivec_reserve(&l.ends, 50), ST_OK);
        watched = &w;
        gen_request q = request_of(&k, &l, prompt, had, 3);
        mem_fail_at(n, true);
        status st = engine_submit(r.en, &q, &l.seq, &e);
        mem_fail_at(0, false);
        done = st == ST_OK;
        if (!done) {
            assert_int_equal(st, ST_NOMEM);
            assert_int_equal(engine_running(r.en), 0);
            stop_set_free(q.stops);
        }
        rig_drain(&r);
        log_release(&l);
        buf_release(&w.heard);
    }
    rig_close(&r);
}

static int open_tokenizer(void **state)
{
    (void)state;
    tok = byte_tokenizer_open(&eos);
    return 0;
}

static int close_tokenizer(void **state)
{
    (void)state;
    tokenizer_free(tok);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_token),
        cmocka_unit_test(test_over),
        cmocka_unit_test(test_reuse),
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_cut_while_queued),
        cmocka_unit_test(test_over_and_held),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_refused_ids),
        cmocka_unit_test(test_smaller_pool),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, open_tokenizer, close_tokenizer);
}
