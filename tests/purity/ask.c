#include "purity/ask.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

#define MAX_REFERENCES 1024
#define MAX_STOP       4 /* bytes of a stop string */

static void must(status st)
{
    if (st != ST_OK) {
        fprintf(stderr, "purity: %s\n", status_text(st));
        exit(1);
    }
}

/* What a reply says */

void heard_keep(ivec *out, const sampler_out *probs)
{
    for (int32_t i = -1; i < SAMPLER_MAX_TOP_LOGPROBS; i++) {
        const token_logprob none = {.token = -1};
        const token_logprob *p = i < 0 ? &probs->chosen : i < probs->n_top ? &probs->top[i] : &none;
        int32_t bits;
        memcpy(&bits, &p->logprob, sizeof bits);
        must(ivec_push(out, p->token));
        must(ivec_push(out, bits));
    }
}

static void on_token(void *ctx, const gen_token *t)
{
    heard *h = ctx;
    if (t->again && h->probs_had) {
        must(ivec_append(&h->probs, h->probs_had + h->ids.len * ASK_PROBS, ASK_PROBS));
    }
    h->n_again += t->again;
    must(ivec_push(&h->ids, t->token));
    must(buf_append(&h->text, t->text, t->text_len));
    must(ivec_push(&h->text_at, (int32_t)h->text.len));
    if (t->probs) {
        heard_keep(&h->probs, t->probs);
    }
    if (h->ids.len == h->cancel_at) {
        seq_cancel(h->seq);
    }
    if (h->ids.len == h->hold_at) {
        seq_hold(h->seq, true);
    }
}

static void on_done(void *ctx, const gen_result *g)
{
    heard *h = ctx;
    h->over = true;
    h->result = *g;
    must(buf_append(&h->text, g->tail_text, g->tail_text_len));
}

static void on_failed(void *ctx, const err *e)
{
    heard *h = ctx;
    h->over = h->failed = true;
    snprintf(h->error, sizeof h->error, "%.190s", e->msg);
}

static status on_watch(void *ctx, gen_moment when, const char *text, size_t len, gen_verdict *v)
{
    const heard *h = ctx;
    (void)text;
    (void)len;
    if (when == GEN_BEGINS) {
        v->force = h->force;
        v->n_force = h->n_force;
    }
    return ST_OK;
}

gen_sink heard_sink(heard *h)
{
    return (gen_sink){.ctx = h,
                      .token = on_token,
                      .done = on_done,
                      .failed = on_failed,
                      .watch = h->n_force > 0 ? on_watch : NULL};
}

void heard_release(heard *h)
{
    ivec_release(&h->ids);
    ivec_release(&h->probs);
    ivec_release(&h->text_at);
    ivec_release(&h->said);
    buf_release(&h->text);
    memset(h, 0, sizeof *h);
}

/* What is asked */

void ask_init(ask *q, const purity_case *c, const place *p)
{
    const prompt_entry *e = matrix_prompt(c);
    q->n_turn = e->n_turn;
    q->n_reply = e->n_reply;
    q->n_prompt = e->n_turn + e->n_reply + e->n_rest;
    place_prompt(p, q->prompt, q->n_prompt, 100 + (uint32_t)q->n_prompt);
    q->params = matrix_sampling(c);
    q->params.seed = 42 + q->n_prompt;
    if (q->params.presence_penalty > 0) { /* the one with everything */
        q->bias[0] = (logit_bias){70, 2.5f};
        q->bias[1] = (logit_bias){101, -3.0f};
        q->bias[2] = (logit_bias){250, -INFINITY};
        q->params.bias = q->bias;
        q->params.n_bias = 3;
    }
}

gen_request ask_request(const ask *q, heard *h)
{
    return (gen_request){.prompt = q->prompt,
                         .n_prompt = q->n_prompt,
                         .max_new_tokens = PURITY_N_NEW,
                         .params = q->params,
                         .prompt_logprobs = -1,
                         .sink = heard_sink(h)};
}

static struct {
    purity_case of;
    heard h;
} references[MAX_REFERENCES];
static size_t n_references;

static bool same_reply(const purity_case *a, const purity_case *b)
{
    return a->at[AXIS_MODEL] == b->at[AXIS_MODEL] && a->at[AXIS_KV] == b->at[AXIS_KV] &&
           a->at[AXIS_PROMPT] == b->at[AXIS_PROMPT] && a->at[AXIS_SAMPLING] == b->at[AXIS_SAMPLING];
}

static void run_reference(const purity_case *c, heard *h)
{
    const place_way how = {.set = KERN_REF, .kv = matrix_kv(c), .threads = 1, .chunk = 16};
    const place_config cfg = place_config_default();
    const char *why;
    place p;
    ask q;
    err e;
    place_open(&p, matrix_model(c), &how, &cfg);
    ask_init(&q, c, &p);
    gen_request r = ask_request(&q, h);
    must(engine_submit(p.en, &r, &h->seq, &e));
    while (engine_step(p.en)) {
    }
    if (!place_close(&p, &why) || !h->over || h->failed || h->ids.len != PURITY_N_NEW) {
        fprintf(stderr, "purity: no reference for %s: %zu tokens, %s\n", matrix_model(c)->name, h->ids.len,
                h->error);
        exit(1);
    }
}

const heard *ask_reference(const purity_case *c)
{
    size_t i = 0;
    while (i < n_references && !same_reply(&references[i].of, c)) {
        i++;
    }
    if (i == MAX_REFERENCES) {
        fprintf(stderr, "purity: too many references\n");
        exit(1);
    }
    if (i == n_references) {
        references[i].of = *c;
        run_reference(c, &references[i].h);
        n_references++;
    }
    return &references[i].h;
}

void ask_references_close(void)
{
    while (n_references > 0) {
        heard_release(&references[--n_references].h);
    }
}

/* How it ends */

/* What a case's reply is, said by the reference: how many tokens, how much text, why it ends. */
typedef struct outcome {
    size_t n_ids, text_len;
    finish_reason reason;
    const char *stop; /* in the reference's text; NULL: none */
    size_t stop_len;
    int32_t token; /* -1: none */
} outcome;

/* The first run of characters that the text says for the first time behind `from`, released by a token. */
static bool find_stop(const heard *r, size_t from, outcome *o)
{
    const char *text = buf_str(&r->text);
    size_t len = (size_t)r->text_at.data[r->text_at.len - 1];
    for (size_t at = 0; at < len; at++) {
        for (size_t n = 1; n <= MAX_STOP && at + n <= len; n++) {
            bool first = memmem(text, at + n, text + at, n) == text + at;
            if (at + n > from && first && utf8_valid(text + at, n, NULL)) {
                o->stop = text + at;
                o->stop_len = n;
                return true;
            }
        }
    }
    return false;
}

static outcome by_stop(const heard *r)
{
    outcome o = {.n_ids = PURITY_N_NEW, .text_len = r->text.len, .reason = FINISH_LENGTH, .token = -1};
    size_t n = ASK_FIRST_END;
    if (!find_stop(r, (size_t)r->text_at.data[n - 1], &o)) {
        return o;
    }
    o.text_len = (size_t)(o.stop - buf_str(&r->text));
    while ((size_t)r->text_at.data[n - 1] < o.text_len + o.stop_len) {
        n++;
    }
    o.n_ids = n;
    o.reason = n == PURITY_N_NEW ? FINISH_LENGTH : FINISH_STOP;
    return o;
}

static outcome by_token(const heard *r)
{
    outcome o = {.n_ids = PURITY_N_NEW, .text_len = r->text.len, .reason = FINISH_LENGTH, .token = -1};
    for (size_t n = ASK_FIRST_END; n < PURITY_N_NEW && o.token < 0; n++) {
        size_t before = 0;
        while (r->ids.data[before] != r->ids.data[n]) {
            before++;
        }
        if (before == n) {
            o = (outcome){.n_ids = n,
                          .text_len = (size_t)r->text_at.data[n - 1],
                          .reason = FINISH_STOP,
                          .token = r->ids.data[n]};
        }
    }
    return o;
}

static outcome outcome_of(const purity_case *c, const heard *r)
{
    switch (matrix_end(c)) {
    case END_stop:
        return by_stop(r);
    case END_token:
        return by_token(r);
    case END_cancelled:
        return (outcome){.n_ids = ASK_CANCEL_AT,
                         .text_len = (size_t)r->text_at.data[ASK_CANCEL_AT - 1],
                         .reason = FINISH_CANCELLED,
                         .token = -1};
    case END_budget:
        break;
    }
    return (outcome){.n_ids = PURITY_N_NEW, .text_len = r->text.len, .reason = FINISH_LENGTH, .token = -1};
}

void ask_end(gen_request *r, heard *h, const purity_case *c, const heard *reference, int32_t *stop_id)
{
    outcome o = outcome_of(c, reference);
    err e;
    h->cancel_at = o.reason == FINISH_CANCELLED ? ASK_CANCEL_AT : 0;
    if (o.stop) {
        const stop_string s = {o.stop, o.stop_len};
        must(stop_set_new(&s, 1, &r->stops, &e));
    }
    if (o.token >= 0) {
        *stop_id = o.token;
        r->stop_ids = stop_id;
        r->n_stop_ids = 1;
    }
    if (matrix_is_quiet(c)) {
        r->params.top_logprobs = -1;
    }
}

const char *ask_judge(const purity_case *c, const heard *reference, const heard *got)
{
    static char why[200];
    outcome o = outcome_of(c, reference);
    bool cut = o.reason == FINISH_CANCELLED;
    size_t n = got->ids.len, n_probs = matrix_is_quiet(c) ? 0 : n * ASK_PROBS;
    if (!got->over || got->failed) {
        snprintf(why, sizeof why, "no end, or failed: %.150s", got->error);
        return why;
    }
    for (size_t i = 0; i < n && i < reference->ids.len; i++) {
        if (got->ids.data[i] != reference->ids.data[i]) {
            snprintf(why, sizeof why, "token %zu is %d, not %d", i, (int)got->ids.data[i],
                     (int)reference->ids.data[i]);
            return why;
        }
    }
    if (n < o.n_ids || n > o.n_ids + cut) {
        snprintf(why, sizeof why, "%zu tokens, not %zu", n, o.n_ids);
        return why;
    }
    if (got->probs.len != n_probs) {
        return "not as many log-probabilities as were asked for";
    }
    for (size_t i = 0; i < n_probs; i++) {
        if (got->probs.data[i] != reference->probs.data[i]) {
            snprintf(why, sizeof why, "token %zu: %s %zu has other bits", i / ASK_PROBS,
                     i % ASK_PROBS < 2 ? "what was chosen," : "alternative", i % ASK_PROBS / 2);
            return why;
        }
    }
    bool same_text = got->text.len >= o.text_len &&
                     memcmp(buf_str(&got->text), buf_str(&reference->text), o.text_len) == 0;
    if (!same_text || (matrix_end(c) < END_token && got->text.len != o.text_len)) {
        return "the text is another";
    }
    if (got->result.reason != o.reason) {
        snprintf(why, sizeof why, "the reason is %s, not %s", finish_name(got->result.reason),
                 finish_name(o.reason));
        return why;
    }
    return NULL;
}
