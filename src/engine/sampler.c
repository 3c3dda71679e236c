#include "engine/sampler.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/philox.h"
#include "kern/fmath.h"

/* Rule 7's u = (24 bits + 1/2) 2^-24 is rounded to float, and its last value would become 1, whose noise is
 * infinite: a token without any chance would be drawn. It stays the largest float below 1. */
#define U_MAX 0x1.fffffep-1f
/* The largest noise there is: -log(-log U_MAX) = 16.64. */
#define NOISE_MAX 16.7f

typedef struct candidate {
    float value; /* logit / T */
    int32_t token;
} candidate;

struct sampler {
    int32_t n_vocab;
    const kern_table *kern; /* borrowed */
    /* owned */
    float *logits;    /* [n_vocab] after bias and penalties, then divided by T */
    float *exps;      /* [n_vocab] */
    candidate *cands; /* [n_vocab] */
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
    s->logits = mem_alloc_array(n, sizeof *s->logits);
    s->exps = mem_alloc_array(n, sizeof *s->exps);
    s->cands = mem_alloc_array(n, sizeof *s->cands);
    s->counts = mem_calloc(n, sizeof *s->counts);
    if (!s->logits || !s->exps || !s->cands || !s->counts) {
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
    mem_free(s->logits);
    mem_free(s->exps);
    mem_free(s->cands);
    mem_free(s->counts);
    mem_free(s);
}

static void apply_bias(sampler *s, const sampling *p, const sampler_in *in)
{
    for (size_t i = 0; i < p->n_bias; i++) {
        s->logits[p->bias[i].token] += p->bias[i].bias;
    }
    size_t n_generated = in->n_history - in->n_prompt;
    bool too_early = n_generated < (size_t)p->min_tokens;
    for (size_t i = 0; (too_early || p->ignore_eos) && i < in->n_eog; i++) {
        s->logits[in->eog[i]] = -INFINITY;
    }
    for (size_t i = 0; too_early && i < in->n_stop_ids; i++) {
        s->logits[in->stop_ids[i]] = -INFINITY;
    }
}

/* Each token of the window once, however often it occurs. */
static void apply_repetition(sampler *s, const sampling *p, const sampler_in *in)
{
    if (p->repetition_penalty == 1.0f) {
        return;
    }
    size_t n = in->n_history;
    if (p->repeat_last_n >= 0 && (size_t)p->repeat_last_n < n) {
        n = (size_t)p->repeat_last_n;
    }
    const int32_t *window = in->history + (in->n_history - n);
    for (size_t i = 0; i < n; i++) {
        if (s->counts[window[i]]++ == 0) {
            float *l = &s->logits[window[i]];
            *l = *l > 0 ? *l / p->repetition_penalty : *l * p->repetition_penalty;
        }
    }
    for (size_t i = 0; i < n; i++) {
        s->counts[window[i]] = 0;
    }
}

static void apply_presence(sampler *s, const sampling *p, const sampler_in *in)
{
    if (p->presence_penalty == 0.0f && p->frequency_penalty == 0.0f) {
        return;
    }
    const int32_t *reply = in->history + in->n_prompt;
    size_t n = in->n_history - in->n_prompt;
    for (size_t i = 0; i < n; i++) {
        s->counts[reply[i]]++;
    }
    for (size_t i = 0; i < n; i++) {
        int32_t *count = &s->counts[reply[i]];
        if (*count > 0) {
            float *l = &s->logits[reply[i]];
            *l = fmaf(-(float)*count, p->frequency_penalty, *l - p->presence_penalty);
            *count = 0;
        }
    }
}

/* Rule 6 over exps[token] of the candidates, ids ascending, lane = id mod 16. */
static float lanes_sum(const float lanes[16])
{
    float a[8], b[4], c[2];
    for (int i = 0; i < 8; i++) {
        a[i] = lanes[i] + lanes[i + 8];
    }
    for (int i = 0; i < 4; i++) {
        b[i] = a[i] + a[i + 4];
    }
    for (int i = 0; i < 2; i++) {
        c[i] = b[i] + b[i + 2];
    }
    return c[0] + c[1];
}

static float sum_all(const float *exps, size_t n)
{
    float lanes[16] = {0};
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        for (size_t l = 0; l < 16; l++) {
            lanes[l] += exps[i + l];
        }
    }
    for (; i < n; i++) {
        lanes[i % 16] += exps[i];
    }
    return lanes_sum(lanes);
}

/* a before b: larger value, lower id on a tie. */
static bool before(candidate a, candidate b)
{
    return a.value > b.value || (a.value == b.value && a.token < b.token);
}

/* Heap with the candidate on top that no other is `before` (worst = false) or that is before none (worst =
 * true). */
static void sift_down(candidate *heap, size_t n, size_t i, bool worst)
{
    candidate x = heap[i];
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= n) {
            break;
        }
        if (child + 1 < n && before(heap[child + 1], heap[child]) != worst) {
            child++;
        }
        if (before(heap[child], x) == worst) {
            break;
        }
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = x;
}

static void make_heap(candidate *heap, size_t n, bool worst)
{
    for (size_t i = n / 2; i-- > 0;) {
        sift_down(heap, n, i, worst);
    }
}

/* The k first of values[0..n) in descending order into out[k]; -inf never counts. Returns how many there are.
 */
static size_t select_top(const float *values, size_t n, candidate *out, size_t k)
{
    size_t m = 0;
    size_t i = 0;
    for (; i < n && m < k; i++) {
        if (values[i] > -INFINITY) {
            out[m++] = (candidate){values[i], (int32_t)i};
        }
    }
    make_heap(out, m, true);
    for (; i < n; i++) {
        if (values[i] > out[0].value) { /* a tie keeps the lower id, which is in already */
            out[0] = (candidate){values[i], (int32_t)i};
            sift_down(out, m, 0, true);
        }
    }
    for (size_t left = m; left > 1; left--) { /* heap sort: the worst goes last */
        candidate last = out[left - 1];
        out[left - 1] = out[0];
        out[0] = last;
        sift_down(out, left - 1, 0, true);
    }
    return m;
}

/* exp(value - max) of every candidate into s->exps by token id; returns their sum. */
static float softmax_candidates(sampler *s, size_t n, float max, bool whole_vocab)
{
    size_t n_vocab = (size_t)s->n_vocab;
    if (whole_vocab) {
        for (size_t i = 0; i < n_vocab; i++) {
            s->exps[i] = s->logits[i] - max;
        }
        s->kern->exp_array(s->exps, s->exps, n_vocab);
        return sum_all(s->exps, n_vocab);
    }
    memset(s->exps, 0, n_vocab * sizeof *s->exps);
    for (size_t i = 0; i < n; i++) {
        s->exps[s->cands[i].token] = fm_exp(s->cands[i].value - max);
    }
    return sum_all(s->exps, n_vocab);
}

/* Keeps the shortest run in descending order whose probabilities reach top_p. `sorted`: s->cands is
 * descending. */
static size_t cut_top_p(sampler *s, size_t n, float top_p, float sum, bool sorted)
{
    float reached = 0.0f;
    if (sorted) {
        for (size_t i = 0; i < n; i++) {
            reached += s->exps[s->cands[i].token] / sum;
            if (reached >= top_p) {
                return i + 1;
            }
        }
        return n;
    }
    make_heap(s->cands, n, false);
    size_t left = n;
    while (left > 0) { /* taken candidates gather at the end */
        candidate best = s->cands[0];
        s->cands[0] = s->cands[left - 1];
        s->cands[left - 1] = best;
        left--;
        sift_down(s->cands, left, 0, false);
        reached += s->exps[best.token] / sum;
        if (reached >= top_p) {
            break;
        }
    }
    memmove(s->cands, s->cands + left, (n - left) * sizeof *s->cands);
    return n - left;
}

/* Fills s->cands from s->logits (divided by T already) and returns their number. max: the largest of them. */
static size_t build_candidates(sampler *s, const sampling *p, float max)
{
    size_t n_vocab = (size_t)s->n_vocab;
    bool limited = p->top_k > 0 && (size_t)p->top_k < n_vocab;
    size_t n = 0;
    if (limited) {
        n = select_top(s->logits, n_vocab, s->cands, (size_t)p->top_k);
    } else {
        for (size_t i = 0; i < n_vocab; i++) {
            if (s->logits[i] > -INFINITY) {
                s->cands[n++] = (candidate){s->logits[i], (int32_t)i};
            }
        }
    }
    if (p->top_p < 1.0f) {
        float sum = softmax_candidates(s, n, max, !limited);
        n = cut_top_p(s, n, p->top_p, sum, limited);
    }
    if (p->min_p > 0.0f) {
        size_t kept = 0;
        for (size_t i = 0; i < n; i++) {
            if (fm_exp(s->cands[i].value - max) >= p->min_p) {
                s->cands[kept++] = s->cands[i];
            }
        }
        n = kept;
    }
    return n;
}

static float gumbel(uint64_t seed, int32_t position, int32_t token)
{
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t ctr[4] = {(uint32_t)position, (uint32_t)token, 0, 0};
    uint32_t out[4];
    philox4x32_10(ctr, key, out);
    float u = ((float)(out[0] >> 8) + 0.5f) * 0x1p-24f;
    return -fm_log(-fm_log(u < U_MAX ? u : U_MAX));
}

static int32_t draw_gumbel(const sampler *s, size_t n, uint64_t seed, int32_t position, int32_t start)
{
    /* The most likely candidate first: whoever cannot beat it with the largest noise there is costs a
     * compare. */
    int32_t best = start;
    float best_score = s->logits[start] + gumbel(seed, position, start);
    for (size_t i = 0; i < n; i++) {
        candidate c = s->cands[i];
        if (c.token == start || c.value + NOISE_MAX < best_score) {
            continue;
        }
        float score = c.value + gumbel(seed, position, c.token);
        if (score > best_score || (score == best_score && c.token < best)) {
            best = c.token;
            best_score = score;
        }
    }
    return best;
}

void sampler_score(sampler *s, const float *logits, int32_t token, int32_t n_top, sampler_out *out)
{
    size_t n = (size_t)s->n_vocab;
    float max = logits[s->kern->argmax(logits, n)];
    for (size_t i = 0; i < n; i++) {
        s->exps[i] = logits[i] - max;
    }
    s->kern->exp_array(s->exps, s->exps, n);
    float log_sum = fm_log(sum_all(s->exps, n));
    out->token = token;
    out->chosen = (token_logprob){token, (logits[token] - max) - log_sum};
    candidate top[SAMPLER_MAX_TOP_LOGPROBS];
    out->n_top = 0;
    if (n_top > 0) {
        out->n_top = (int32_t)select_top(logits, n, top, (size_t)n_top);
    }
    for (int32_t i = 0; i < out->n_top; i++) {
        out->top[i] = (token_logprob){top[i].token, (top[i].value - max) - log_sum};
    }
}

static int32_t draw(sampler *s, const sampling *p, const sampler_in *in)
{
    size_t n_vocab = (size_t)s->n_vocab;
    memcpy(s->logits, in->logits, n_vocab * sizeof *s->logits);
    apply_bias(s, p, in);
    apply_repetition(s, p, in);
    apply_presence(s, p, in);
    int32_t best = (int32_t)s->kern->argmax(s->logits, n_vocab);
    if (s->logits[best] == -INFINITY) {
        return (int32_t)s->kern->argmax(in->logits, n_vocab);
    }
    if (p->temperature == 0.0f || !isfinite(s->logits[best] / p->temperature)) {
        return best;
    }
    for (size_t i = 0; i < n_vocab; i++) {
        s->logits[i] /= p->temperature;
    }
    size_t n = build_candidates(s, p, s->logits[best]);
    return draw_gumbel(s, n, p->seed, in->position, best);
}

void sampler_draw(sampler *s, const sampling *params, const sampler_in *in, sampler_out *out)
{
    out->token = draw(s, params, in);
    out->n_top = 0;
    if (params->top_logprobs >= 0) {
        sampler_score(s, in->logits, out->token, params->top_logprobs, out);
    }
}
