/*
 * The sampler against an independent implementation of the distribution (plain double, sorting) by
 * chi-square, and against rule 7 taken literally where it names a single token.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/philox.h"
#include "base/sanitized.h"
#include "engine/sampler.h"
#include "kern/fmath.h"

#define N_VOCAB 24
/* A sanitizer makes draws twenty times slower and has nothing to see in their distribution. */
#define N_DRAWS (SANITIZED ? 10000 : 200000)

typedef struct setting {
    const char *name;
    sampling p;
} setting;

static float logits[N_VOCAB];
static const int32_t history[] = {3, 5, 5, 7, 1, 9, 5, 7, 7, 7}; /* prompt of 5, reply of 5 */
#define N_PROMPT 5
static const int32_t eog[] = {2, 11};
static const logit_bias biases[] = {{4, 1.5f}, {8, -2.0f}, {10, -INFINITY}};

static void make_logits(void)
{
    for (uint32_t i = 0; i < N_VOCAB; i++) {
        uint32_t out[4], ctr[4] = {i, 99, 0, 0}, key[2] = {7, 7};
        philox4x32_10(ctr, key, out);
        logits[i] = (float)(out[0] >> 8) * 0x1p-24f * 6.0f - 3.0f;
    }
    logits[20] = logits[21]; /* a tie */
}

static sampler_in input_at(int32_t position)
{
    return (sampler_in){logits, history, sizeof history / sizeof *history, N_PROMPT, position, eog, 2};
}

typedef struct entry {
    double value;
    int id;
    double prob;
} entry;

static int descending(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    return x->value != y->value ? (x->value < y->value ? 1 : -1) : x->id - y->id;
}

/* The logits after bias, end-token rules and penalties, as the field defines them. */
static void adjust(const sampling *p, double *l)
{
    size_t n = sizeof history / sizeof *history;
    for (int i = 0; i < N_VOCAB; i++) {
        l[i] = (double)logits[i];
    }
    for (size_t i = 0; i < p->n_bias; i++) {
        l[p->bias[i].token] += (double)p->bias[i].bias;
    }
    if (p->ignore_eos || (int32_t)(n - N_PROMPT) < p->min_tokens) {
        l[eog[0]] = l[eog[1]] = -HUGE_VAL;
    }
    size_t from = p->repeat_last_n < 0 || (size_t)p->repeat_last_n > n ? 0 : n - (size_t)p->repeat_last_n;
    for (int t = 0; t < N_VOCAB; t++) {
        int in_window = 0, in_reply = 0;
        for (size_t i = 0; i < n; i++) {
            in_window |= i >= from && history[i] == t;
            in_reply += i >= N_PROMPT && history[i] == t;
        }
        if (in_window) {
            l[t] = l[t] > 0 ? l[t] / (double)p->repetition_penalty : l[t] * (double)p->repetition_penalty;
        }
        if (in_reply) {
            l[t] -= (double)p->presence_penalty + in_reply * (double)p->frequency_penalty;
        }
    }
}

static void normalise(entry *e, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        e[i].prob = exp(e[i].value - e[0].value);
        sum += e[i].prob;
    }
    for (int i = 0; i < n; i++) {
        e[i].prob /= sum;
    }
}

static void expected(const sampling *p, double probs[N_VOCAB])
{
    double l[N_VOCAB];
    entry e[N_VOCAB];
    int n = 0;
    adjust(p, l);
    for (int i = 0; i < N_VOCAB; i++) {
        if (!isinf(l[i])) {
            e[n++] = (entry){l[i] / (double)p->temperature, i, 0};
        }
    }
    qsort(e, (size_t)n, sizeof *e, descending);
    n = p->top_k > 0 && p->top_k < n ? p->top_k : n;
    normalise(e, n);
    if (p->top_p < 1) {
        double reached = 0;
        int keep = 0;
        while (keep < n && reached < (double)p->top_p) {
            reached += e[keep++].prob;
        }
        n = keep;
    }
    int keep = 0;
    while (keep < n && e[keep].prob >= (double)p->min_p * e[0].prob) {
        keep++;
    }
    n = keep;
    normalise(e, n);
    memset(probs, 0, N_VOCAB * sizeof *probs);
    for (int i = 0; i < n; i++) {
        probs[e[i].id] = e[i].prob;
    }
}

/* Chi-square at a level of about 1e-6 (Wilson and Hilferty's cube-root approximation, z = 4.75). */
static double critical(int df)
{
    double k = 2.0 / (9.0 * df);
    return df * pow(1 - k + 4.75 * sqrt(k), 3);
}

static void check_counts(const char *name, const double *probs, const int *counts)
{
    double chi = 0, rest_expected = 0, rest_seen = 0;
    int bins = 0;
    for (int i = 0; i < N_VOCAB; i++) {
        double want = probs[i] * N_DRAWS;
        if (probs[i] == 0) {
            if (counts[i] != 0) {
                fail_msg("%s: token %d is no candidate but was drawn %d times", name, i, counts[i]);
            }
        } else if (want < 10) {
            rest_expected += want;
            rest_seen += counts[i];
        } else {
            chi += (counts[i] - want) * (counts[i] - want) / want;
            bins++;
        }
    }
    if (rest_expected >= 5) {
        chi += (rest_seen - rest_expected) * (rest_seen - rest_expected) / rest_expected;
        bins++;
    }
    if (bins > 1 && chi > critical(bins - 1)) {
        fail_msg("%s: chi-square %.1f over %d bins exceeds %.1f", name, chi, bins, critical(bins - 1));
    }
}

static sampling with(float t, int32_t k, float top_p, float min_p)
{
    sampling p = sampling_default();
    p.temperature = t;
    p.top_k = k;
    p.top_p = top_p;
    p.min_p = min_p;
    return p;
}

static size_t make_settings(setting *s)
{
    size_t n = 0;
    s[n++] = (setting){"T 1", with(1, 0, 1, 0)};
    s[n++] = (setting){"T 0.5", with(0.5f, 0, 1, 0)};
    s[n++] = (setting){"T 3", with(3, 0, 1, 0)};
    s[n++] = (setting){"top-k 5", with(1, 5, 1, 0)};
    s[n++] = (setting){"top-k 1", with(1, 1, 1, 0)};
    s[n++] = (setting){"top-k beyond the vocabulary", with(1, 1000, 1, 0)};
    s[n++] = (setting){"top-p 0.7", with(1, 0, 0.7f, 0)};
    s[n++] = (setting){"top-p 0.01", with(1, 0, 0.01f, 0)};
    s[n++] = (setting){"min-p 0.2", with(1, 0, 1, 0.2f)};
    s[n++] = (setting){"all together", with(0.8f, 20, 0.9f, 0.05f)};
    s[n] = (setting){"repetition over 4", with(1, 0, 1, 0)};
    s[n].p.repetition_penalty = 1.7f;
    s[n++].p.repeat_last_n = 4;
    s[n] = (setting){"repetition over all", with(1, 0, 1, 0)};
    s[n].p.repetition_penalty = 1.3f;
    s[n++].p.repeat_last_n = -1;
    s[n] = (setting){"presence and frequency", with(1, 0, 1, 0)};
    s[n].p.presence_penalty = 0.6f;
    s[n++].p.frequency_penalty = -0.4f;
    s[n] = (setting){"bias", with(1, 0, 1, 0)};
    s[n].p.bias = biases;
    s[n++].p.n_bias = 3;
    s[n] = (setting){"ignore_eos", with(1, 0, 1, 0)};
    s[n++].p.ignore_eos = true;
    s[n] = (setting){"min_tokens unmet", with(1, 0, 1, 0)};
    s[n++].p.min_tokens = 6;
    s[n] = (setting){"min_tokens met", with(1, 0, 1, 0)};
    s[n++].p.min_tokens = 5;
    return n;
}

static sampler *fresh(void)
{
    sampler *s = NULL;
    assert_int_equal(sampler_new(N_VOCAB, kern_select(KERN_SET_COUNT - 1), &s), ST_OK);
    return s;
}

static void test_distribution(void **state)
{
    setting settings[32];
    size_t n = make_settings(settings);
    sampler *s = fresh();
    for (size_t i = 0; i < n; i++) {
        double probs[N_VOCAB];
        int by_position[N_VOCAB] = {0}, by_seed[N_VOCAB] = {0};
        expected(&settings[i].p, probs);
        for (int32_t d = 0; d < N_DRAWS; d++) {
            sampler_out out;
            sampler_in in = input_at(d);
            settings[i].p.seed = 1234567890123456789u;
            sampler_draw(s, &settings[i].p, &in, &out);
            by_position[out.token]++;
            if (i % 4 !=
                0) { /* seeds are the other half of the counter-key pair: a sample of the settings will do */
                continue;
            }
            in = input_at(10);
            settings[i].p.seed = (uint64_t)d;
            sampler_draw(s, &settings[i].p, &in, &out);
            by_seed[out.token]++;
        }
        check_counts(settings[i].name, probs, by_position);
        if (i % 4 == 0) {
            check_counts(settings[i].name, probs, by_seed);
        }
    }
    sampler_free(s);
}

/* Rule 7 word for word: the largest logit/T + noise over the whole vocabulary, no pruning. */
static void test_rule_7(void **state)
{
    enum { N = 3000 };
    static float l[N];
    sampler *s = NULL;
    assert_int_equal(sampler_new(N, kern_select(KERN_SET_COUNT - 1), &s), ST_OK);
    sampling p = with(0.9f, 0, 1, 0);
    for (int32_t pos = 0; pos < 300; pos++) {
        p.seed = UINT64_C(0x9e3779b97f4a7c15) * (uint64_t)(pos + 1);
        for (int i = 0; i < N; i++) {
            l[i] = (float)((i * 7919 + pos * 104729) % 4001) * 0.01f - 20.0f;
        }
        int best = -1;
        float best_score = -INFINITY;
        for (int i = 0; i < N; i++) {
            uint32_t out[4], ctr[4] = {(uint32_t)pos, (uint32_t)i, 0, 0};
            uint32_t key[2] = {(uint32_t)p.seed, (uint32_t)(p.seed >> 32)};
            philox4x32_10(ctr, key, out);
            float u = ((float)(out[0] >> 8) + 0.5f) * 0x1p-24f;
            float score = l[i] / p.temperature + -fm_log(-fm_log(u));
            if (score > best_score) {
                best = i;
                best_score = score;
            }
        }
        sampler_in in = {l, history, 10, 5, pos, eog, 2};
        sampler_out out;
        sampler_draw(s, &p, &in, &out);
        assert_int_equal(out.token, best);
    }
    sampler_free(s);
}

/* Found by search: philox4x32_10({10, 3, 0, 0}, {5573695, 0}) begins with 24 set bits, so u is 1 in float.
 * The exact noise of 24 set bits is 17.33: a token that is further than that behind another's score is not
 * drawn. */
static void test_noise_is_bounded(void **state)
{
    const int32_t lucky = 3;
    sampler *s = fresh();
    sampler_out out;
    float l[N_VOCAB];
    uint32_t bits[4], ctr[4] = {10, (uint32_t)lucky, 0, 0}, key[2] = {5573695, 0};
    philox4x32_10(ctr, key, bits);
    assert_int_equal(bits[0] >> 8, 0xffffff);
    sampling p = with(1, 0, 1, 0);
    p.seed = 5573695;
    for (int32_t other = 0; other < N_VOCAB; other++) {
        if (other == lucky) {
            continue;
        }
        for (int32_t i = 0; i < N_VOCAB; i++) {
            l[i] = -INFINITY;
        }
        uint32_t octr[4] = {10, (uint32_t)other, 0, 0};
        philox4x32_10(octr, key, bits);
        double noise = -log(-log(((double)(bits[0] >> 8) + 0.5) * 0x1p-24));
        l[other] = 0;
        l[lucky] = (float)(noise - 17.38); /* so near that only the noise decides */
        sampler_in in = {l, history, 10, 5, 10, eog, 2};
        sampler_draw(s, &p, &in, &out);
        assert_int_equal(out.token, other);
        /* and alone in front it is drawn like any other */
        l[lucky] = (float)(noise - 16.0);
        sampler_draw(s, &p, &in, &out);
        assert_int_equal(out.token, lucky);
    }
    sampler_free(s);
}

static void test_greedy(void **state)
{
    sampler *s = fresh();
    sampler_out out;
    sampling p = sampling_default();
    float tied[N_VOCAB] = {0};
    tied[20] = tied[12] = 1;
    sampler_in in = {tied, history, 10, 5, 10, eog, 2};
    sampler_draw(s, &p, &in, &out);
    assert_int_equal(out.token, 12); /* ties to the lower id */
    p.temperature = 1e-45f;          /* logit / T overflows: greedy */
    sampler_draw(s, &p, &in, &out);
    assert_int_equal(out.token, 12);
    p = with(1, 1, 1, 0);
    sampler_draw(s, &p, &in, &out);
    assert_int_equal(out.token, 12);
    p = sampling_default();
    logit_bias ban = {12, -INFINITY};
    p.bias = &ban;
    p.n_bias = 1;
    sampler_draw(s, &p, &in, &out);
    assert_int_equal(out.token, 20);
    logit_bias all[N_VOCAB];
    for (int i = 0; i < N_VOCAB; i++) {
        all[i] = (logit_bias){i, -INFINITY};
    }
    p = with(1, 0, 1, 0);
    p.bias = all;
    p.n_bias = N_VOCAB;
    sampler_draw(s, &p, &in, &out);
    assert_int_equal(out.token, 12); /* everything forbidden: the model's own best */
    sampler_free(s);
}

static void test_logprobs(void **state)
{
    sampler *s = fresh();
    sampling p = with(1.3f, 0, 1, 0);
    p.bias = biases; /* bias and penalties must not show in logprobs */
    p.n_bias = 3;
    p.top_logprobs = 7;
    entry e[N_VOCAB];
    for (int i = 0; i < N_VOCAB; i++) {
        e[i] = (entry){(double)logits[i], i, 0};
    }
    qsort(e, N_VOCAB, sizeof *e, descending);
    normalise(e, N_VOCAB);
    sampler_in in = input_at(10);
    sampler_out out;
    sampler_draw(s, &p, &in, &out);
    assert_int_equal(out.n_top, 7);
    for (int i = 0; i < 7; i++) {
        assert_int_equal(out.top[i].token, e[i].id);
        assert_true(fabs((double)out.top[i].logprob - log(e[i].prob)) < 2e-6);
    }
    assert_int_equal(out.chosen.token, out.token);
    for (int i = 0; i < N_VOCAB; i++) {
        if (e[i].id == out.token) {
            assert_true(fabs((double)out.chosen.logprob - log(e[i].prob)) < 2e-6);
        }
    }
    sampler_free(s);
}

/* Every kernel set gives the same tokens and the same bits. */
static void test_sets_agree(void **state)
{
    setting settings[32];
    size_t n = make_settings(settings);
    for (kern_set set = KERN_REF; set < KERN_SET_COUNT; set++) {
        const kern_table *table = kern_table_of(set);
        if (!table) {
            continue;
        }
        sampler *ref = NULL, *other = NULL;
        assert_int_equal(sampler_new(N_VOCAB, kern_table_of(KERN_REF), &ref), ST_OK);
        assert_int_equal(sampler_new(N_VOCAB, table, &other), ST_OK);
        for (size_t i = 0; i < n; i++) {
            settings[i].p.top_logprobs = 5;
            for (int32_t pos = 0; pos < 50; pos++) {
                sampler_in in = input_at(pos);
                sampler_out a, b;
                memset(&a, 0, sizeof a);
                memset(&b, 0, sizeof b);
                sampler_draw(ref, &settings[i].p, &in, &a);
                sampler_draw(other, &settings[i].p, &in, &b);
                assert_memory_equal(&a, &b, sizeof a);
            }
        }
        sampler_free(other);
        sampler_free(ref);
    }
}

/*
 * Rule 7 taken literally in the same float operations, over vocabularies of all sizes: sort everything, add up
 * everything. What the sampler leaves out or takes in another order must not show in a bit.
 */
typedef struct plain {
    float value;
    int32_t id;
} plain;

static int plain_descending(const void *a, const void *b)
{
    const plain *x = a, *y = b;
    return x->value != y->value ? (x->value < y->value ? 1 : -1) : x->id - y->id;
}

/* Rule 6 over exp(value - max) by id, tokens that are not in [0, n) of p left out. */
static float plain_sum(const plain *p, size_t n, float max, float *terms, size_t n_vocab)
{
    float lane[16] = {0};
    memset(terms, 0, n_vocab * sizeof *terms);
    for (size_t i = 0; i < n; i++) {
        terms[p[i].id] = fm_exp(p[i].value - max);
    }
    for (size_t i = 0; i < n_vocab; i++) {
        lane[i % 16] += terms[i];
    }
    for (size_t half = 8; half > 0; half /= 2) {
        for (size_t i = 0; i < half; i++) {
            lane[i] += lane[i + half];
        }
    }
    return lane[0];
}

/* l: after bias and penalties; p, terms: [n_vocab] to work in. */
static int32_t plain_draw(const sampling *s, const float *l, int32_t position, size_t n_vocab, plain *p,
                          float *terms)
{
    size_t n = 0;
    for (size_t i = 0; i < n_vocab; i++) {
        if (l[i] > -INFINITY) {
            p[n++] = (plain){s->temperature > 0 ? l[i] / s->temperature : l[i], (int32_t)i};
        }
    }
    qsort(p, n, sizeof *p, plain_descending);
    if (s->temperature == 0) {
        return p[0].id;
    }
    float max = p[0].value;
    n = s->top_k > 0 && (size_t)s->top_k < n ? (size_t)s->top_k : n;
    if (s->top_p < 1) {
        float sum = plain_sum(p, n, max, terms, n_vocab), reached = 0;
        size_t keep = 0;
        while (keep < n && reached < s->top_p) {
            reached += terms[p[keep++].id] / sum;
        }
        n = keep;
    }
    int32_t best = -1;
    float best_score = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        float score = p[i].value + fm_gumbel(s->seed, position, p[i].id);
        bool in = s->min_p == 0 || fm_exp(p[i].value - max) >= s->min_p;
        if (in && (score > best_score || (score == best_score && p[i].id < best))) {
            best = p[i].id;
            best_score = score;
        }
    }
    return best;
}

/* The logits after penalties and end-token rules, with the sampler's own operations. */
static void plain_adjust(const sampling *s, const sampler_in *in, float *l)
{
    size_t n = in->n_history, window = s->repeat_last_n < 0 ? n : (size_t)s->repeat_last_n;
    for (size_t i = 0; s->ignore_eos && i < in->n_eog; i++) {
        l[in->eog[i]] = -INFINITY;
    }
    for (size_t i = n - window; i < n && s->repetition_penalty != 1; i++) {
        size_t before = n - window;
        while (in->history[before] != in->history[i]) {
            before++;
        }
        float *at = &l[in->history[i]];
        *at = before < i ? *at : *at > 0 ? *at / s->repetition_penalty : *at * s->repetition_penalty;
    }
    for (size_t i = in->n_prompt; i < n && (s->presence_penalty != 0 || s->frequency_penalty != 0); i++) {
        int count = 0;
        bool first = true;
        for (size_t j = in->n_prompt; j < n; j++) {
            count += in->history[j] == in->history[i];
            first = first && (j >= i || in->history[j] != in->history[i]);
        }
        float *at = &l[in->history[i]];
        *at = first ? fmaf(-(float)count, s->frequency_penalty, *at - s->presence_penalty) : *at;
    }
}

#define PLAIN_HISTORY 90

static uint32_t plain_random(uint32_t a, uint32_t b)
{
    uint32_t out[4], ctr[4] = {a, b, 17, 0}, key[2] = {3, 5};
    philox4x32_10(ctr, key, out);
    return out[0];
}

static sampling plain_setting(uint32_t i)
{
    static const int32_t top_ks[] = {0, 0, 1, 7, 40, 200, 3000};
    static const float top_ps[] = {1, 1, 0.95f, 0.5f, 0.9999f, 1e-6f};
    static const float min_ps[] = {0, 0, 0, 0.05f, 0.9f};
    static const float temperatures[] = {1, 0.7f, 0, 2.5f, 0.01f};
    sampling s = with(temperatures[plain_random(i, 1) % 5], top_ks[plain_random(i, 2) % 7],
                      top_ps[plain_random(i, 3) % 6], min_ps[plain_random(i, 4) % 5]);
    s.seed = (uint64_t)plain_random(i, 5) << 32 | i;
    s.repetition_penalty = plain_random(i, 6) % 3 ? 1.0f : 1.2f;
    s.repeat_last_n = (int32_t)(plain_random(i, 7) % (PLAIN_HISTORY + 2)) - 1;
    s.repeat_last_n = s.repeat_last_n > PLAIN_HISTORY ? -1 : s.repeat_last_n;
    s.presence_penalty = plain_random(i, 8) % 4 ? 0.0f : 0.6f;
    s.frequency_penalty = plain_random(i, 9) % 4 ? 0.0f : -0.4f;
    s.ignore_eos = plain_random(i, 10) % 2;
    return s;
}

/* From flat to peaked; coarse steps make ties. */
static void plain_logits(uint32_t shape, uint32_t row, float *l, size_t n)
{
    for (uint32_t t = 0; t < n; t++) {
        float x = (float)(plain_random(t, row) >> 24) / 256.0f;
        float y = (float)(plain_random(t, row) >> 8 & 0xFFFF) / 65536.0f;
        switch (shape % 7) {
        case 4: /* flat, no ties */
            l[t] = x + y * 0x1p-8f;
            break;
        case 5: /* as flat as can be */
            l[t] = -3.5f;
            break;
        case 6: /* a few stand out of what is flat */
            l[t] = 0.3f * x + (plain_random(t, row) % 997 == 0 ? 5.0f : 0.0f);
            break;
        default:
            l[t] = 14.0f * powf(x, (float)(1 + shape % 7)) - 4.0f;
            break;
        }
    }
}

#define N_RIGS 3

/* Memory for n tokens, and samplers with the help of 1, 2 and 3 threads. */
typedef struct plain_rig {
    size_t n;
    float *l, *adjusted, *terms;
    plain *work;
    pool *team[N_RIGS];
    sampler *s[N_RIGS];
} plain_rig;

static plain_rig rig_new(size_t n)
{
    plain_rig r = {.n = n};
    r.l = malloc(n * sizeof *r.l);
    r.adjusted = malloc(n * sizeof *r.adjusted);
    r.terms = malloc(n * sizeof *r.terms);
    r.work = malloc(n * sizeof *r.work);
    assert_true(r.l && r.adjusted && r.terms && r.work);
    for (size_t i = 0; i < N_RIGS; i++) {
        assert_int_equal(sampler_new((int32_t)n, kern_select(KERN_SET_COUNT - 1), &r.s[i]), ST_OK);
        if (i > 0) {
            assert_int_equal(pool_new(i + 1, true, &r.team[i], NULL), ST_OK);
            sampler_lend(r.s[i], r.team[i]);
        }
    }
    return r;
}

static void rig_free(plain_rig *r)
{
    for (size_t i = 0; i < N_RIGS; i++) {
        sampler_free(r->s[i]);
        pool_free(r->team[i]);
    }
    free(r->l);
    free(r->adjusted);
    free(r->terms);
    free(r->work);
}

/* r->adjusted: r->l after bias and penalties. */
static void rig_check(plain_rig *r, const sampling *p, const sampler_in *in, uint32_t number)
{
    int32_t want = plain_draw(p, r->adjusted, in->position, r->n, r->work, r->terms);
    for (size_t i = 0; i < N_RIGS; i++) {
        sampler_out out;
        sampler_draw(r->s[i], p, in, &out);
        if (out.token != want) {
            fail_msg("%zu tokens, setting %u, top-p %a, %zu threads: %d, by the rule %d", r->n, number,
                     (double)p->top_p, i + 1, out.token, want);
        }
    }
}

static void test_plain(void **state)
{
    static const size_t sizes[] = {3, 16, 17, 511, 512, 513, 2049, 20000};
    (void)state;
    for (size_t v = 0; v < sizeof sizes / sizeof sizes[0]; v++) {
        plain_rig r = rig_new(sizes[v]);
        size_t n = r.n;
        for (uint32_t i = 0; i < (n > 5000 ? 140u : 700u) / (SANITIZED ? 4 : 1); i++) {
            int32_t told[PLAIN_HISTORY];
            sampling p = plain_setting(i);
            plain_logits(i, i / 7, r.l, n);
            for (uint32_t t = 0; t < PLAIN_HISTORY; t++) {
                told[t] = (int32_t)(plain_random(t, i) % (i % 2 ? n : 1 + n / 7));
            }
            int32_t ends[] = {(int32_t)n / 3, (int32_t)n - 1};
            sampler_in in = {r.l, told, PLAIN_HISTORY, 40, (int32_t)i, ends, 2};
            memcpy(r.adjusted, r.l, n * sizeof *r.l);
            plain_adjust(&p, &in, r.adjusted);
            rig_check(&r, &p, &in, i);
        }
        rig_free(&r);
    }
}

/* What the probabilities before the token come to, added in descending order. */
static float plain_before(plain_rig *r, int32_t token)
{
    for (size_t i = 0; i < r->n; i++) {
        r->work[i] = (plain){r->l[i], (int32_t)i};
    }
    qsort(r->work, r->n, sizeof *r->work, plain_descending);
    float sum = plain_sum(r->work, r->n, r->work[0].value, r->terms, r->n), reached = 0;
    for (size_t i = 0; r->work[i].id != token; i++) {
        reached += r->terms[r->work[i].id] / sum;
    }
    return reached;
}

/* top-p where it is met: by exactly what stands before the token that would be drawn of all, and by one float more. */
static void test_nucleus_edge(void **state)
{
    static const size_t sizes[] = {300, 5000, 20000};
    (void)state;
    for (size_t v = 0; v < sizeof sizes / sizeof sizes[0]; v++) {
        plain_rig r = rig_new(sizes[v]);
        memset(r.terms, 0, r.n * sizeof *r.terms);
        for (uint32_t i = 0; i < 42u / (SANITIZED ? 3 : 1); i++) {
            static const int32_t told[] = {1, 2};
            sampling p = with(1, 0, 1, i % 3 == 2 ? 0.01f : 0);
            p.seed = i;
            plain_logits(i, i, r.l, r.n);
            memcpy(r.adjusted, r.l, r.n * sizeof *r.l);
            sampler_in in = {
                .logits = r.l, .history = told, .n_history = 2, .n_prompt = 1, .position = (int32_t)i};
            sampler_out out;
            sampler_draw(r.s[0], &p, &in, &out);
            float before = plain_before(&r, out.token);
            const float top_ps[] = {before, nextafterf(before, 1), nextafterf(before, 0), before * 0.5f};
            for (size_t k = 0; k < sizeof top_ps / sizeof top_ps[0]; k++) {
                p.top_p = top_ps[k];
                if (p.top_p > 0 && p.top_p <= 1) {
                    rig_check(&r, &p, &in, i);
                }
            }
        }
        rig_free(&r);
    }
}

static void test_check(void **state)
{
    struct {
        const char *field;
        sampling p;
    } bad[16];
    size_t n = 0;
#define BAD(name, member, value)   \
    bad[n].field = name;           \
    bad[n].p = sampling_default(); \
    bad[n++].p.member = value
    BAD("temperature", temperature, -0.1f);
    BAD("temperature", temperature, NAN);
    BAD("temperature", temperature, INFINITY);
    BAD("top_k", top_k, -1);
    BAD("top_p", top_p, 0.0f);
    BAD("top_p", top_p, 1.01f);
    BAD("top_p", top_p, NAN);
    BAD("min_p", min_p, -0.5f);
    BAD("repetition_penalty", repetition_penalty, 0.0f);
    BAD("presence_penalty", presence_penalty, INFINITY);
    BAD("frequency_penalty", frequency_penalty, NAN);
    BAD("repeat_last_n", repeat_last_n, -2);
    BAD("min_tokens", min_tokens, -1);
    BAD("top_logprobs", top_logprobs, 21);
#undef BAD
    for (size_t i = 0; i < n; i++) {
        err e = {0};
        assert_int_equal(sampling_check(&bad[i].p, N_VOCAB, &e), ST_INVALID_FIELD);
        assert_string_equal(e.field, bad[i].field);
    }
    logit_bias outside = {N_VOCAB, 1}, twice[] = {{1, 1}, {1, 2}}, infinite = {1, INFINITY};
    struct {
        const logit_bias *b;
        size_t n;
    } lists[] = {{&outside, 1}, {twice, 2}, {&infinite, 1}};
    for (size_t i = 0; i < 3; i++) {
        sampling p = sampling_default();
        err e = {0};
        p.bias = lists[i].b;
        p.n_bias = lists[i].n;
        assert_int_equal(sampling_check(&p, N_VOCAB, &e), ST_INVALID_FIELD);
        assert_string_equal(e.field, "logit_bias");
    }
    sampling fine = sampling_default();
    assert_int_equal(sampling_check(&fine, N_VOCAB, NULL), ST_OK);
}

int main(void)
{
    make_logits();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_distribution), cmocka_unit_test(test_rule_7),
        cmocka_unit_test(test_greedy),       cmocka_unit_test(test_noise_is_bounded),
        cmocka_unit_test(test_logprobs),     cmocka_unit_test(test_sets_agree),
        cmocka_unit_test(test_check),        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_nucleus_edge),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
