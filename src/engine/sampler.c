#include "engine/sampler.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/fp16.h"
#include "base/mem.h"
#include "kern/fmath.h"

/*
 * A draw takes the vocabulary in few vector passes. The first divides by T and keeps the largest value of each lane
 * of a run (kern.h, scale_tops): from those follow the largest value of all, a floor that at least k values reach,
 * and which runs need no look. Sets of candidates are ids in ascending order, so that sums by lanes need no sorting.
 */
struct sampler {
    int32_t n_vocab;
    size_t n_runs;          /* of KERN_TOPS_RUN tokens */
    const kern_table *kern; /* borrowed */
    /* owned */
    float *values;    /* [n_vocab] after bias and penalties, divided by T */
    float *tops;      /* [16 n_runs] of values */
    float *run_tops;  /* [n_runs] of tops */
    float *terms;     /* [n_vocab] */
    int32_t *set;     /* [n_vocab] the candidates, ascending */
    int32_t *order;   /* [n_vocab] the same by value */
    int32_t *scratch; /* [n_vocab] for sorting */
    int32_t *counts;  /* [n_vocab] all zero between draws */
};

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
    s->values = mem_alloc_array(n, sizeof *s->values);
    s->tops = mem_alloc_array(KERN_TOPS(n), sizeof *s->tops);
    s->run_tops = mem_alloc_array(s->n_runs, sizeof *s->run_tops);
    s->terms = mem_alloc_array(n, sizeof *s->terms);
    s->set = mem_alloc_array(n, sizeof *s->set);
    s->order = mem_alloc_array(n, sizeof *s->order);
    s->scratch = mem_alloc_array(n, sizeof *s->scratch);
    s->counts = mem_calloc(n, sizeof *s->counts);
    bool floats = s->values && s->tops && s->run_tops && s->terms;
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
    mem_free(s->values);
    mem_free(s->tops);
    mem_free(s->run_tops);
    mem_free(s->terms);
    mem_free(s->set);
    mem_free(s->order);
    mem_free(s->scratch);
    mem_free(s->counts);
    mem_free(s);
}

/* Bias and penalties: on s->values where the logits of the tokens that they touch stand. */

static bool too_early(const sampling *p, const sampler_in *in)
{
    return in->n_history - in->n_prompt < (size_t)p->min_tokens;
}

/* Ids of what may change besides the biased tokens, any number of times each. */
typedef struct id_list {
    const int32_t *ids;
    size_t n;
} id_list;

typedef struct edits {
    id_list forbidden[2]; /* end-of-generation ids, stop ids */
    id_list window;       /* of the repetition penalty */
    id_list reply;        /* of the presence and frequency penalties */
} edits;

static edits edits_of(const sampling *p, const sampler_in *in)
{
    edits e = {0};
    if (too_early(p, in) || p->ignore_eos) {
        e.forbidden[0] = (id_list){in->eog, in->n_eog};
    }
    if (too_early(p, in)) {
        e.forbidden[1] = (id_list){in->stop_ids, in->n_stop_ids};
    }
    if (p->repetition_penalty != 1.0f) {
        size_t n = in->n_history;
        if (p->repeat_last_n >= 0 && (size_t)p->repeat_last_n < n) {
            n = (size_t)p->repeat_last_n;
        }
        e.window = (id_list){in->history + (in->n_history - n), n};
    }
    if (p->presence_penalty != 0.0f || p->frequency_penalty != 0.0f) {
        e.reply = (id_list){in->history + in->n_prompt, in->n_history - in->n_prompt};
    }
    return e;
}

static void apply_bias(sampler *s, const sampling *p, const edits *e)
{
    for (size_t i = 0; i < p->n_bias; i++) {
        s->values[p->bias[i].token] += p->bias[i].bias;
    }
    for (size_t l = 0; l < 2; l++) {
        for (size_t i = 0; i < e->forbidden[l].n; i++) {
            s->values[e->forbidden[l].ids[i]] = -INFINITY;
        }
    }
}

/* Each token of the window once, however often it occurs. */
static void apply_repetition(sampler *s, const sampling *p, const id_list *window)
{
    for (size_t i = 0; i < window->n; i++) {
        if (s->counts[window->ids[i]]++ == 0) {
            float *l = &s->values[window->ids[i]];
            *l = *l > 0 ? *l / p->repetition_penalty : *l * p->repetition_penalty;
        }
    }
    for (size_t i = 0; i < window->n; i++) {
        s->counts[window->ids[i]] = 0;
    }
}

static void apply_presence(sampler *s, const sampling *p, const id_list *reply)
{
    for (size_t i = 0; i < reply->n; i++) {
        s->counts[reply->ids[i]]++;
    }
    for (size_t i = 0; i < reply->n; i++) {
        int32_t *count = &s->counts[reply->ids[i]];
        if (*count > 0) {
            float *l = &s->values[reply->ids[i]];
            *l = fmaf(-(float)*count, p->frequency_penalty, *l - p->presence_penalty);
            *count = 0;
        }
    }
}

typedef void (*edit_fn)(sampler *s, const sampler_in *in, float t, int32_t token);

static void each_edited(sampler *s, const sampling *p, const sampler_in *in, const edits *e, edit_fn fn,
                        float t)
{
    const id_list lists[] = {e->forbidden[0], e->forbidden[1], e->window, e->reply};
    for (size_t i = 0; i < p->n_bias; i++) {
        fn(s, in, t, p->bias[i].token);
    }
    for (size_t l = 0; l < sizeof lists / sizeof lists[0]; l++) {
        for (size_t i = 0; i < lists[l].n; i++) {
            fn(s, in, t, lists[l].ids[i]);
        }
    }
}

static void edit_begin(sampler *s, const sampler_in *in, float t, int32_t token)
{
    (void)t;
    s->values[token] = in->logits[token];
}

static void edit_scale(sampler *s, const sampler_in *in, float t, int32_t token)
{
    (void)in;
    if (s->counts[token]++ == 0) {
        s->values[token] /= t;
    }
}

/* The top of the token's lane. All edited values are final by now. */
static void edit_end(sampler *s, const sampler_in *in, float t, int32_t token)
{
    size_t run = (size_t)token / KERN_TOPS_RUN, lane = (size_t)token % 16, n = (size_t)s->n_vocab;
    float *top = &s->tops[16 * run + lane];
    s->counts[token] = 0;
    if (s->values[token] > *top) {
        *top = s->values[token];
    } else if (in->logits[token] / t == *top) { /* it was the largest, or beside it */
        *top = -INFINITY;
        for (size_t i = KERN_TOPS_RUN * run + lane; i < n && i < KERN_TOPS_RUN * (run + 1); i += 16) {
            *top = s->values[i] > *top ? s->values[i] : *top;
        }
    }
}

/* s->values and s->tops for this T; returns the largest value. */
static float values_fill(sampler *s, const sampling *p, const sampler_in *in, const edits *e, float t)
{
    size_t n = (size_t)s->n_vocab;
    s->kern->scale_tops(s->values, s->tops, in->logits, t, n);
    each_edited(s, p, in, e, edit_begin, t);
    apply_bias(s, p, e);
    apply_repetition(s, p, &e->window);
    apply_presence(s, p, &e->reply);
    each_edited(s, p, in, e, edit_scale, t);
    each_edited(s, p, in, e, edit_end, t);
    for (size_t run = 0; run < s->n_runs; run++) {
        const float *tops = s->tops + 16 * run;
        s->run_tops[run] = tops[s->kern->argmax(tops, 16)];
    }
    return s->run_tops[s->kern->argmax(s->run_tops, s->n_runs)];
}

static size_t run_length(const sampler *s, size_t run)
{
    size_t left = (size_t)s->n_vocab - run * KERN_TOPS_RUN;
    return left < KERN_TOPS_RUN ? left : KERN_TOPS_RUN;
}

/* The lowest id with the largest value. */
static int32_t first_largest(const sampler *s)
{
    size_t first = s->kern->argmax(s->run_tops, s->n_runs) * KERN_TOPS_RUN;
    return (int32_t)(first + s->kern->argmax(s->values + first, run_length(s, first / KERN_TOPS_RUN)));
}

/* Candidates */

#define SORT_FEW    48 /* up to here inserting is faster than counting */
#define SORT_BITS   11
#define SORT_DIGITS (1u << SORT_BITS)

/* Rises as the value falls; equal for -0 and +0. */
static uint32_t sort_key(float value)
{
    uint32_t bits = f32_bits(value + 0.0f);
    return bits >> 31 ? bits : ~(bits | 0x80000000u);
}

static uint32_t digit_of(const float *values, int32_t token, int digit)
{
    return sort_key(values[token]) >> (digit * SORT_BITS) & (SORT_DIGITS - 1);
}

/* By counting, the lowest digit first; each pass keeps the order of equal digits. */
static void sort_many(sampler *s, const float *values, size_t n)
{
    uint32_t at[3][SORT_DIGITS] = {{0}};
    for (size_t i = 0; i < n; i++) {
        uint32_t key = sort_key(values[s->set[i]]);
        for (int digit = 0; digit < 3; digit++) {
            at[digit][key >> (digit * SORT_BITS) & (SORT_DIGITS - 1)]++;
        }
    }
    const int32_t *from = s->set;
    for (int digit = 0; digit < 3; digit++) {
        int32_t *to = digit == 1 ? s->scratch : s->order;
        uint32_t sum = 0;
        for (size_t d = 0; d < SORT_DIGITS; d++) {
            uint32_t count = at[digit][d];
            at[digit][d] = sum;
            sum += count;
        }
        for (size_t i = 0; i < n; i++) {
            to[at[digit][digit_of(values, from[i], digit)]++] = from[i];
        }
        from = to;
    }
}

/* s->order = the n ids of s->set by descending value, the lower id first on a tie. */
static void set_sort(sampler *s, const float *values, size_t n)
{
    if (n > SORT_FEW) {
        sort_many(s, values, n);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        int32_t token = s->set[i];
        size_t at = i;
        for (; at > 0 && values[s->order[at - 1]] < values[token]; at--) {
            s->order[at] = s->order[at - 1];
        }
        s->order[at] = token;
    }
}

/* A value that at least k of s->values reach: the k-th largest of the runs' or the lanes' tops. If these are too few
 * to say much, the lowest value there is. */
static float floor_of(sampler *s, size_t k)
{
    const bool few = 2 * k <= s->n_runs;
    const float *tops = few ? s->run_tops : s->tops;
    size_t n_tops = few ? s->n_runs : 16 * s->n_runs;
    size_t n = 2 * k <= n_tops ? s->kern->at_least(s->set, tops, n_tops, -FLT_MAX) : 0;
    if (n < k) {
        return -FLT_MAX;
    }
    set_sort(s, tops, n);
    return tops[s->order[k - 1]];
}

/* Every token of at least this value into s->set, and by value into s->order. Returns how many. */
static size_t set_gather(sampler *s, float least)
{
    size_t n = 0;
    for (size_t run = 0; run < s->n_runs; run++) {
        if (s->run_tops[run] >= least) {
            int32_t first = (int32_t)(run * KERN_TOPS_RUN);
            size_t more = s->kern->at_least(s->set + n, s->values + first, run_length(s, run), least);
            for (size_t end = n + more; n < end; n++) {
                s->set[n] += first;
            }
        }
    }
    set_sort(s, s->values, n);
    return n;
}

/* Keeps in s->set what does not come behind `last` in descending order. */
static size_t set_cut(sampler *s, size_t n, int32_t last)
{
    float least = s->values[last];
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        int32_t token = s->set[i];
        if (s->values[token] > least || (token <= last && s->values[token] == least)) {
            s->set[kept++] = token;
        }
    }
    return kept;
}

/* exp(value - max) of the candidates into s->terms by token id; returns their sum (rule 6, the others left out). */
static float set_softmax(sampler *s, size_t n, float max)
{
    float lane[16] = {0};
    for (size_t i = 0; i < n; i++) {
        int32_t token = s->set[i];
        s->terms[token] = fm_exp(s->values[token] - max);
        lane[token % 16] += s->terms[token];
    }
    for (size_t half = 8; half > 0; half /= 2) {
        for (size_t i = 0; i < half; i++) {
            lane[i] += lane[i + half];
        }
    }
    return lane[0];
}

/* How many of the first n of s->order it takes until their probabilities reach top_p; n + 1 if they do not. */
static size_t reach(const sampler *s, size_t n, float top_p, float sum)
{
    float reached = 0.0f;
    for (size_t i = 0; i < n; i++) {
        reached += s->terms[s->order[i]] / sum;
        if (reached >= top_p) {
            return i + 1;
        }
    }
    return n + 1;
}

/* The k best, and of them the shortest run in descending order that reaches top_p. */
static size_t set_top_k(sampler *s, const sampling *p, float max)
{
    size_t k = (size_t)p->top_k;
    size_t n = set_gather(s, floor_of(s, k));
    k = k < n ? k : n;
    n = set_cut(s, n, s->order[k - 1]);
    if (p->top_p < 1.0f) {
        size_t taken = reach(s, k, p->top_p, set_softmax(s, n, max));
        n = taken <= k ? set_cut(s, n, s->order[taken - 1]) : n;
    }
    return n;
}

#define TOP_P_FIRST 64 /* candidates tried at first */

/* Of all tokens, the shortest run in descending order that reaches top_p. */
static size_t set_top_p(sampler *s, float top_p, float max)
{
    float sum = s->kern->softmax_terms(s->terms, s->values, max, (size_t)s->n_vocab);
    for (size_t k = TOP_P_FIRST;; k *= 8) {
        float least = floor_of(s, k);
        size_t n = set_gather(s, least);
        size_t taken = reach(s, n, top_p, sum);
        if (taken <= n) {
            return set_cut(s, n, s->order[taken - 1]);
        }
        if (least == -FLT_MAX) {
            return n;
        }
    }
}

static size_t set_min_p(sampler *s, size_t n, float min_p, float max)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (fm_exp(s->values[s->set[i]] - max) >= min_p) {
            s->set[kept++] = s->set[i];
        }
    }
    return kept;
}

/* The tokens that may be drawn into s->set; false: all may. */
static bool set_build(sampler *s, const sampling *p, float max, size_t *n)
{
    size_t n_vocab = (size_t)s->n_vocab;
    if (p->top_k > 0 && (size_t)p->top_k < n_vocab) {
        *n = set_top_k(s, p, max);
    } else if (p->top_p < 1.0f) {
        *n = set_top_p(s, p->top_p, max);
    } else if (p->min_p > 0.0f) {
        s->kern->softmax_terms(s->terms, s->values, max, n_vocab);
        *n = s->kern->at_least(s->set, s->terms, n_vocab, p->min_p);
        return true;
    } else {
        return false;
    }
    if (p->min_p > 0.0f) {
        *n = set_min_p(s, *n, p->min_p, max);
    }
    return true;
}

/* The draw */

typedef struct best {
    int32_t token;
    float score;
} best;

static void best_take(best *b, int32_t token, float score)
{
    if (score > b->score || (score == b->score && token < b->token)) {
        *b = (best){token, score};
    }
}

static void draw_from_set(sampler *s, size_t n, uint64_t seed, int32_t position, best *b)
{
    float score = b->score;
    for (size_t i = 0; i < n; i++) {
        s->terms[i] = s->values[s->set[i]];
    }
    size_t at = s->kern->gumbel_argmax(s->terms, s->set, 0, n, seed, position, &score);
    if (at < n) {
        best_take(b, s->set[at], score);
    }
}

static void draw_from_all(const sampler *s, uint64_t seed, int32_t position, best *b)
{
    for (size_t run = 0; run < s->n_runs; run++) {
        size_t n = run_length(s, run);
        int32_t first = (int32_t)(run * KERN_TOPS_RUN);
        float score = b->score;
        if (s->run_tops[run] + FM_GUMBEL_MAX < score) {
            continue; /* not even with the largest noise */
        }
        size_t at = s->kern->gumbel_argmax(s->values + first, NULL, first, n, seed, position, &score);
        if (at < n) {
            best_take(b, first + (int32_t)at, score);
        }
    }
}

static int32_t draw(sampler *s, const sampling *p, const sampler_in *in)
{
    const edits e = edits_of(p, in);
    bool edited =
        p->n_bias > 0 || e.forbidden[0].n > 0 || e.forbidden[1].n > 0 || e.window.n > 0 || e.reply.n > 0;
    float t = p->temperature;
    if (t == 0.0f && !edited) {
        return (int32_t)s->kern->argmax(in->logits, (size_t)s->n_vocab);
    }
    float max = values_fill(s, p, in, &e, t == 0.0f ? 1.0f : t);
    if (t != 0.0f && !isfinite(max)) { /* all forbidden, or T too small to divide by */
        max = values_fill(s, p, in, &e, 1.0f);
        t = 0.0f;
    }
    if (max == -INFINITY) {
        return (int32_t)s->kern->argmax(in->logits, (size_t)s->n_vocab);
    }
    best b = {first_largest(s), 0.0f};
    if (t == 0.0f) {
        return b.token;
    }
    size_t n;
    b.score = max + fm_gumbel(p->seed, in->position, b.token);
    if (set_build(s, p, max, &n)) {
        draw_from_set(s, n, p->seed, in->position, &b);
    } else {
        draw_from_all(s, p->seed, in->position, &b);
    }
    return b.token;
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
    const edits e = {0};
    float max = values_fill(s, &none, &in, &e, 1.0f);
    float log_sum = fm_log(s->kern->softmax_terms(s->terms, s->values, max, (size_t)s->n_vocab));
    out->token = token;
    out->chosen = (token_logprob){token, (logits[token] - max) - log_sum};
    size_t n = n_top > 0 ? set_gather(s, floor_of(s, (size_t)n_top)) : 0;
    out->n_top = n < (size_t)n_top ? (int32_t)n : n_top;
    for (int32_t i = 0; i < out->n_top; i++) {
        int32_t id = s->order[i];
        out->top[i] = (token_logprob){id, (logits[id] - max) - log_sum};
    }
}
