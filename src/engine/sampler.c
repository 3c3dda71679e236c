#include "engine/sampler_int.h"

#include <float.h>
#include <math.h>

#include "base/mem.h"
#include "kern/fmath.h"

sampling sampling_default(void)
{
    sampling s = {0};
    s.top_p = 1.0f;
    s.repetition_penalty = 1.0f;
    s.repeat_last_n = 64;
    s.top_logprobs = -1;
    return s;
}

static status refuse(err *e, const char *field, double value, const char *rule)
{
    return err_set(e, ST_INVALID_FIELD, field, "%s is %g: %s", field, value, rule);
}

static status check_bias(const sampling *s, int32_t n_vocab, err *e)
{
    if (s->n_bias > SAMPLER_MAX_BIAS) {
        return err_set(e, ST_INVALID_FIELD, "logit_bias",
                       "logit_bias has %zu entries: at most %u are allowed", s->n_bias, SAMPLER_MAX_BIAS);
    }
    for (size_t i = 0; i < s->n_bias; i++) {
        int32_t token = s->bias[i].token;
        float bias = s->bias[i].bias;
        if (token < 0 || token >= n_vocab) {
            return err_set(e, ST_INVALID_FIELD, "logit_bias",
                           "logit_bias names token %d: the vocabulary has %d", token, n_vocab);
        }
        if (i > 0 && token <= s->bias[i - 1].token) {
            return err_set(e, ST_INVALID_FIELD, "logit_bias",
                           "logit_bias names token %d twice or out of order", token);
        }
        if (isnan(bias) || bias > FLT_MAX) {
            return refuse(e, "logit_bias", (double)bias, "must be a number below infinity");
        }
    }
    return ST_OK;
}

status sampling_check(const sampling *s, int32_t n_vocab, err *e)
{
    if (!isfinite(s->temperature) || s->temperature < 0) {
        return refuse(e, "temperature", (double)s->temperature, "must be finite and at least 0");
    }
    if (s->top_k < 0) {
        return refuse(e, "top_k", s->top_k, "must be at least 0");
    }
    if (!(s->top_p > 0 && s->top_p <= 1)) {
        return refuse(e, "top_p", (double)s->top_p, "must be above 0 and at most 1");
    }
    if (!(s->min_p >= 0 && s->min_p <= 1)) {
        return refuse(e, "min_p", (double)s->min_p, "must be between 0 and 1");
    }
    if (!(s->repetition_penalty >= 0.01f && s->repetition_penalty <= 100)) {
        return refuse(e, "repetition_penalty", (double)s->repetition_penalty, "must be between 0.01 and 100");
    }
    if (!isfinite(s->presence_penalty)) {
        return refuse(e, "presence_penalty", (double)s->presence_penalty, "must be finite");
    }
    if (!isfinite(s->frequency_penalty)) {
        return refuse(e, "frequency_penalty", (double)s->frequency_penalty, "must be finite");
    }
    if (s->repeat_last_n < -1) {
        return refuse(e, "repeat_last_n", s->repeat_last_n, "must be at least -1");
    }
    if (s->min_tokens < 0) {
        return refuse(e, "min_tokens", s->min_tokens, "must be at least 0");
    }
    if (s->top_logprobs < -1 || s->top_logprobs > SAMPLER_MAX_TOP_LOGPROBS) {
        return refuse(e, "top_logprobs", s->top_logprobs, "must be between 0 and 20");
    }
    return check_bias(s, n_vocab, e);
}

status sampler_new(int32_t n_vocab, const kern_table *kern, sampler **out)
{
    sampler *s = mem_calloc(1, sizeof *s);
    if (!s) {
        return ST_NOMEM;
    }
    size_t n = (size_t)n_vocab;
    s->n_vocab = n_vocab;
    s->kern = kern;
    s->n_runs = KERN_TOPS(n) / 16;
    s->scaled = mem_alloc_array(n, sizeof *s->scaled);
    s->tops = mem_alloc_array(KERN_TOPS(n), sizeof *s->tops);
    s->run_tops = mem_alloc_array(s->n_runs, sizeof *s->run_tops);
    s->terms = mem_alloc_array(n, sizeof *s->terms);
    s->picked = mem_alloc_array(n, sizeof *s->picked);
    s->set = mem_alloc_array(n, sizeof *s->set);
    s->order = mem_alloc_array(n, sizeof *s->order);
    s->scratch = mem_alloc_array(n, sizeof *s->scratch);
    s->counts = mem_calloc(n, sizeof *s->counts);
    bool floats = s->scaled && s->tops && s->run_tops && s->terms && s->picked;
    if (!floats || !s->set || !s->order || !s->scratch || !s->counts) {
        sampler_free(s);
        return ST_NOMEM;
    }
    *out = s;
    return ST_OK;
}

void sampler_free(sampler *s)
{
    if (!s) {
        return;
    }
    mem_free(s->scaled);
    mem_free(s->tops);
    mem_free(s->run_tops);
    mem_free(s->terms);
    mem_free(s->picked);
    mem_free(s->set);
    mem_free(s->order);
    mem_free(s->scratch);
    mem_free(s->counts);
    mem_free(s);
}

/* The draw */

static void best_take(best *b, int32_t token, float score)
{
    if (score > b->score || (score == b->score && token < b->token)) {
        *b = (best){token, score};
    }
}

void sampler_lend(sampler *s, pool *p)
{
    s->lent = p;
}

/* Tasks of a pass are worth a thread's while from so many tokens on. */
#define TASK_WORTH       ((size_t)4096)
#define TASKS_PER_THREAD 4

void sampler_spread(sampler *s, pool_fn fn, size_t n, size_t tokens)
{
    size_t threads = s->lent ? pool_threads(s->lent) : 1;
    size_t most = threads > 1 ? TASKS_PER_THREAD * threads : 1;
    size_t n_tasks = n * tokens / TASK_WORTH;
    most = most < SAMPLER_TASKS ? most : SAMPLER_TASKS;
    n_tasks = n_tasks < most ? n_tasks : most;
    n_tasks = n_tasks > 1 ? n_tasks : 1;
    s->pass.n = n;
    s->pass.unit = (n + n_tasks - 1) / n_tasks;
    s->pass.n_tasks = s->pass.unit > 0 ? (n + s->pass.unit - 1) / s->pass.unit : 0;
    if (s->pass.n_tasks > 1) {
        pool_run(s->lent, fn, s, s->pass.n_tasks);
    } else if (s->pass.n_tasks == 1) {
        fn(s, 0, 0);
    }
}

void sampler_part(const sampler *s, size_t task, size_t *i0, size_t *i1)
{
    *i0 = task * s->pass.unit;
    *i1 = s->pass.n - *i0 < s->pass.unit ? s->pass.n : *i0 + s->pass.unit;
}

/* The best of s->set [i0, i1). */
static void draw_set_task(void *arg, size_t task, size_t thread)
{
    sampler *s = arg;
    best b = s->pass.first;
    size_t i0, i1;
    (void)thread;
    sampler_part(s, task, &i0, &i1);
    for (size_t i = i0; i < i1; i++) {
        s->picked[i] = s->values[s->set[i]];
    }
    float score = b.score;
    size_t at = s->kern->gumbel_argmax(s->picked + i0, s->set + i0, 0, i1 - i0, s->pass.seed,
                                       s->pass.position, -FLT_MAX, &score);
    if (at < i1 - i0) {
        best_take(&b, s->set[i0 + at], score);
    }
    s->pass.part[task] = b;
}

/* Where the run of token i ends, or the range that ends at i1. */
static size_t run_end(size_t i, size_t i1)
{
    size_t end = (i / KERN_TOPS_RUN + 1) * KERN_TOPS_RUN;
    return end < i1 ? end : i1;
}

/* Whether a token of the run is a candidate and with the largest noise as good as the best. */
static bool run_may_win(const sampler *s, size_t i, float least, const best *b)
{
    float top = s->run_tops[i / KERN_TOPS_RUN];
    return top >= least && top + FM_GUMBEL_MAX >= b->score;
}

/* The best of tokens [i0, i1) whose value is at least this. */
static void draw_range(const sampler *s, size_t i0, size_t i1, float least, best *b)
{
    for (size_t i = i0; i < i1;) {
        size_t end = i;
        while (end < i1 && run_may_win(s, end, least, b)) {
            end = run_end(end, i1);
        }
        if (end == i) {
            i = run_end(i, i1);
            continue;
        }
        float score = b->score;
        size_t at = s->kern->gumbel_argmax(s->values + i, NULL, (int32_t)i, end - i, s->pass.seed,
                                           s->pass.position, least, &score);
        if (at < end - i) {
            best_take(b, (int32_t)(i + at), score);
        }
        i = end;
    }
}

/* The best of runs [r0, r1). */
static void draw_all_task(void *arg, size_t task, size_t thread)
{
    sampler *s = arg;
    best b = s->pass.first;
    size_t r0, r1, n = (size_t)s->n_vocab, token = (size_t)s->pass.from.token;
    (void)thread;
    sampler_part(s, task, &r0, &r1);
    size_t i0 = r0 * KERN_TOPS_RUN, i1 = r1 * KERN_TOPS_RUN < n ? r1 * KERN_TOPS_RUN : n;
    size_t split = token < i0 ? i0 : token < i1 ? token : i1;
    draw_range(s, i0, split, s->pass.from.least, &b);
    draw_range(s, split, i1, s->pass.from.above, &b);
    s->pass.part[task] = b;
}

/* The best of the candidates, the nucleus aside; `top`, the largest value's token, is one. */
static int32_t draw_from(sampler *s, const candidates *c, best top)
{
    s->pass.first = top;
    s->pass.from = c->from;
    if (c->listed) {
        sampler_spread(s, draw_set_task, c->n, 1);
    } else {
        sampler_spread(s, draw_all_task, s->n_runs, KERN_TOPS_RUN);
    }
    for (size_t task = 0; task < s->pass.n_tasks; task++) {
        best_take(&top, s->pass.part[task].token, s->pass.part[task].score);
    }
    return top.token;
}

static int32_t draw(sampler *s, const sampling *params, const sampler_in *in)
{
    float t = params->temperature;
    if (t == 0.0f && !sampler_edits(params, in)) {
        return (int32_t)s->kern->argmax(in->logits, (size_t)s->n_vocab);
    }
    sampler_fill(s, params, in, t == 0.0f ? 1.0f : t);
    if (t != 0.0f && !isfinite(s->max)) { /* all forbidden, or T too small to divide by */
        sampler_fill(s, params, in, 1.0f);
        t = 0.0f;
    }
    if (s->max == -INFINITY) {
        return (int32_t)s->kern->argmax(in->logits, (size_t)s->n_vocab);
    }
    int32_t token = sampler_first_largest(s);
    if (t == 0.0f) {
        return token;
    }
    const best top = {token, s->max + fm_gumbel(params->seed, in->position, token)};
    candidates c = sampler_candidates(s, params);
    s->pass.seed = params->seed;
    s->pass.position = in->position;
    token = draw_from(s, &c, top);
    while (c.nucleus && !sampler_in_nucleus(s, params->top_p, c.sum, token)) {
        c.from = sampler_before(s, token); /* what is behind it is not in the nucleus either */
        token = draw_from(s, &c, top);
    }
    return token;
}

void sampler_draw(sampler *s, const sampling *params, const sampler_in *in, sampler_out *out)
{
    out->token = draw(s, params, in);
    out->n_top = 0;
    if (params->top_logprobs >= 0) {
        sampler_score(s, in->logits, out->token, params->top_logprobs, out);
    }
}

void sampler_score(sampler *s, const float *logits, int32_t token, int32_t n_top, sampler_out *out)
{
    const sampling none = sampling_default();
    const sampler_in in = {.logits = logits};
    sampler_fill(s, &none, &in, 1.0f);
    float log_sum = fm_log(sampler_softmax(s));
    out->token = token;
    out->chosen = (token_logprob){token, (logits[token] - s->max) - log_sum};
    out->n_top = n_top > 0 ? (int32_t)sampler_best(s, (size_t)n_top) : 0;
    for (int32_t i = 0; i < out->n_top; i++) {
        int32_t id = s->order[i];
        out->top[i] = (token_logprob){id, (logits[id] - s->max) - log_sum};
    }
}
