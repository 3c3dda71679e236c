#include "engine/sampler_int.h"

#include <float.h>
#include <math.h>

#include "base/fp16.h"
#include "kern/fmath.h"

/* Sorting */

#define SORT_FEW    48 /* up to here inserting is faster than counting */
#define SORT_BITS   11
#define SORT_DIGITS (1u << SORT_BITS)
#define SORT_PASSES 3

/* Rises as the value falls; equal for -0 and +0. */
static uint32_t sort_key(float value)
{
    uint32_t bits = f32_bits(value + 0.0f);
    return bits >> 31 ? bits : ~(bits | 0x80000000u);
}

static float value_of_key(uint32_t key)
{
    return f32_from_bits(key >> 31 ? key : ~key & 0x7FFFFFFFu);
}

static uint32_t digit_of(uint32_t key, int digit)
{
    return key >> (digit * SORT_BITS) & (SORT_DIGITS - 1);
}

/* How often each digit occurs -> where the keys that have it begin. */
static void counts_to_places(uint32_t at[SORT_PASSES][SORT_DIGITS])
{
    for (int digit = 0; digit < SORT_PASSES; digit++) {
        uint32_t sum = 0;
        for (size_t d = 0; d < SORT_DIGITS; d++) {
            uint32_t count = at[digit][d];
            at[digit][d] = sum;
            sum += count;
        }
    }
}

static void key_count(uint32_t at[SORT_PASSES][SORT_DIGITS], uint32_t key)
{
    for (int digit = 0; digit < SORT_PASSES; digit++) {
        at[digit][digit_of(key, digit)]++;
    }
}

/* By counting, the lowest digit first; each pass keeps the order of equal digits. */
static void sort_many(sampler *s, const float *values, size_t n)
{
    uint32_t at[SORT_PASSES][SORT_DIGITS] = {{0}};
    for (size_t i = 0; i < n; i++) {
        key_count(at, sort_key(values[s->set[i]]));
    }
    counts_to_places(at);
    const int32_t *from = s->set;
    for (int digit = 0; digit < SORT_PASSES; digit++) {
        int32_t *to = digit == 1 ? s->scratch : s->order;
        for (size_t i = 0; i < n; i++) {
            to[at[digit][digit_of(sort_key(values[from[i]]), digit)]++] = from[i];
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

/* The n values of s->picked in descending order: as sort_many, without ids. */
static void picked_sort(sampler *s, size_t n)
{
    uint32_t at[SORT_PASSES][SORT_DIGITS] = {{0}};
    uint32_t *from = (uint32_t *)s->order, *to = (uint32_t *)s->scratch;
    for (size_t i = 0; i < n; i++) {
        from[i] = sort_key(s->picked[i]);
        key_count(at, from[i]);
    }
    counts_to_places(at);
    for (int digit = 0; digit < SORT_PASSES; digit++) {
        for (size_t i = 0; i < n; i++) {
            to[at[digit][digit_of(from[i], digit)]++] = from[i];
        }
        uint32_t *sorted = to;
        to = from;
        from = sorted;
    }
    for (size_t i = 0; i < n; i++) {
        s->picked[i] = value_of_key(from[i]);
    }
}

/* Sets */

/* Every token of at least this value into s->set. Returns how many. */
static size_t set_gather(sampler *s, float least)
{
    size_t n = 0;
    for (size_t run = 0; run < s->n_runs; run++) {
        if (s->run_tops[run] >= least) {
            int32_t first = (int32_t)(run * KERN_TOPS_RUN);
            size_t more = s->kern->at_least(s->set + n, s->values + first, sampler_run_length(s, run), least);
            for (size_t end = n + more; n < end; n++) {
                s->set[n] += first;
            }
        }
    }
    return n;
}

/* Guesses: what a few runs say of all. */

#define GUESS_RUNS  10 /* about; as much as the first cache holds */
#define GUESS_HALVE 12 /* times */
#define GUESS_DEPTH 24 /* below the largest value; what lies deeper is hardly ever asked for */

static size_t guess_step(const sampler *s)
{
    return s->n_runs / GUESS_RUNS + 1;
}

/* How many tokens of the few runs have at least this value; their ids go to s->set. */
static size_t guess_count(sampler *s, float least)
{
    size_t n = 0;
    for (size_t run = 0; run < s->n_runs; run += guess_step(s)) {
        n += s->kern->at_least(s->set, s->values + run * KERN_TOPS_RUN, sampler_run_length(s, run), least);
    }
    return n;
}

/* A value that about k tokens reach. */
static float guess_of(sampler *s, size_t k)
{
    float low = s->max - GUESS_DEPTH, high = s->max;
    size_t wanted = k * guess_count(s, -INFINITY) / (size_t)s->n_vocab;
    for (int i = 0; i < GUESS_HALVE; i++) {
        float mid = low + (high - low) * 0.5f;
        bool enough = guess_count(s, mid) > wanted;
        low = enough ? mid : low;
        high = enough ? high : mid;
    }
    return low;
}

/* A value that at least k of s->values reach: the k-th largest of the runs' or the lanes' tops. If these are too few
 * to say much, one that a guess says and all confirm, else the lowest value there is. */
static float floor_of(sampler *s, size_t k)
{
    const bool few = 2 * k <= s->n_runs;
    const float *tops = few ? s->run_tops : s->tops;
    size_t n_tops = few ? s->n_runs : 16 * s->n_runs;
    if (2 * k > n_tops) {
        float guess = guess_of(s, k + k / 4);
        return set_gather(s, guess) >= k ? guess : -FLT_MAX;
    }
    size_t n = s->kern->at_least(s->set, tops, n_tops, -FLT_MAX);
    if (n < k) {
        return -FLT_MAX;
    }
    set_sort(s, tops, n);
    return tops[s->order[k - 1]];
}

size_t sampler_best(sampler *s, size_t k)
{
    size_t n = set_gather(s, floor_of(s, k));
    set_sort(s, s->values, n);
    return n < k ? n : k;
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

/* Softmax */

/* Runs [r0, r1). */
static void exp_task(void *arg, size_t task, size_t thread)
{
    sampler *s = arg;
    double sum = 0;
    size_t run, r1;
    (void)thread;
    for (sampler_part(s, task, &run, &r1); run < r1; run++) {
        size_t i = run * KERN_TOPS_RUN;
        sum +=
            (double)s->kern->softmax_terms(s->terms + i, s->values + i, s->max, sampler_run_length(s, run));
    }
    s->pass.sum[task] = sum;
}

static double tasks_sum(const sampler *s)
{
    double sum = 0;
    for (size_t task = 0; task < s->pass.n_tasks; task++) {
        sum += s->pass.sum[task];
    }
    return sum;
}

/* exp(value - s->max) of all tokens into s->terms; returns about their sum. */
static double terms_fill(sampler *s)
{
    sampler_spread(s, exp_task, s->n_runs, KERN_TOPS_RUN);
    return tasks_sum(s);
}

/* The sum of s->terms by rule 6: one addition after the other, so it is left out where about the sum will do. */
static float terms_sum(const sampler *s)
{
    return s->kern->sum_at_least(s->terms, s->values, (size_t)s->n_vocab, -INFINITY);
}

float sampler_softmax(sampler *s)
{
    terms_fill(s);
    return terms_sum(s);
}

/* exp(value - max) of the candidates into s->terms by token id; returns their sum (rule 6, the others left out). */
static float set_softmax(sampler *s, size_t n)
{
    float lane[16] = {0};
    for (size_t i = 0; i < n; i++) {
        int32_t token = s->set[i];
        s->terms[token] = fm_exp(s->values[token] - s->max);
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

/* The nucleus
 *
 * Where many tokens make it up, they are not sorted: a token is drawn from all, and then it is asked whether it is in
 * the nucleus, that is, whether the probabilities of the tokens before it, added in descending order, stay below
 * top_p. If not, neither are those behind it, and it is drawn again from those before it.
 *
 * The sum in any order answers unless it is close to top_p. With n terms before the token, each addition below 1
 * rounds by at most 2^-25 and the last one, which may pass 1, by 2^-24: as long as the sum in descending order is
 * below top_p it is within (n + 1) * 2^-25 of the exact sum of the quotients. The terms' sum by rule 6, by which they
 * are divided, is within 2^-24 times the additions of a lane of the exact one; the sums by runs within 2^-24 times 37
 * and the quotients within 2^-24, for which 2^-18 is more than enough. Only within that distance are the values
 * sorted.
 */

/* The terms of tokens [i0, i1) of a run whose value is at least this. */
static double run_terms(const sampler *s, size_t i0, size_t i1, float least)
{
    return i0 < i1 ? (double)s->kern->sum_at_least(s->terms + i0, s->values + i0, i1 - i0, least) : 0;
}

/* The terms of a run's tokens above floors. */
static double terms_from_run(const sampler *s, const floors *f, size_t run)
{
    size_t i0 = run * KERN_TOPS_RUN, i1 = i0 + sampler_run_length(s, run), token = (size_t)f->token;
    size_t split = token < i0 ? i0 : token < i1 ? token : i1;
    if (s->run_tops[run] < f->least) {
        return 0;
    }
    return run_terms(s, i0, split, f->least) + run_terms(s, split, i1, f->above);
}

static void terms_task(void *arg, size_t task, size_t thread)
{
    sampler *s = arg;
    double sum = 0;
    size_t run, r1;
    (void)thread;
    for (sampler_part(s, task, &run, &r1); run < r1; run++) {
        sum += terms_from_run(s, &s->pass.from, run);
    }
    s->pass.sum[task] = sum;
}

/* The terms of all tokens above floors. */
static double terms_from(sampler *s, const floors *f)
{
    s->pass.from = *f;
    sampler_spread(s, terms_task, s->n_runs, KERN_TOPS_RUN);
    return tasks_sum(s);
}

floors sampler_before(const sampler *s, int32_t token)
{
    float value = s->values[token];
    return (floors){token, value, nextafterf(value, INFINITY)};
}

static floors floors_at(float least)
{
    return (floors){0, least, least};
}

/* Into s->picked the values before the token's; returns how many. */
static size_t pick_before(sampler *s, int32_t token)
{
    const float least = s->values[token];
    size_t n = 0;
    for (int32_t i = 0; i < s->n_vocab; i++) {
        bool before = s->values[i] > least || (i < token && s->values[i] == least);
        s->picked[n] = s->values[i];
        n += before;
    }
    return n;
}

/* Whether the probabilities before the token stay below top_p, added in descending order. */
static bool stays_below(sampler *s, float top_p, int32_t token)
{
    float sum = terms_sum(s), reached = 0.0f;
    size_t n = pick_before(s, token);
    picked_sort(s, n);
    s->kern->softmax_terms(s->picked, s->picked, s->max, n);
    for (size_t i = 0; i < n && reached < top_p; i++) {
        reached += s->picked[i] / sum;
    }
    return reached < top_p;
}

/* How far from the sum by runs, in probability, the sum of n terms in descending order may be. */
static double doubt(const sampler *s, double n)
{
    return (n + 2) * 0x1p-25 + ((double)s->n_vocab / 16 + 8) * 0x1p-24 + 0x1p-18;
}

bool sampler_in_nucleus(sampler *s, float top_p, double sum, int32_t token)
{
    const floors before = sampler_before(s, token);
    double reached = terms_from(s, &before) / sum, n = (double)s->n_vocab;
    /* Each of them has at least the token's term, since exp never falls. */
    double most = reached * sum / (double)s->terms[token] * 1.01 + 1;
    if (fabs(reached - (double)top_p) > doubt(s, most < n ? most : n)) {
        return reached < (double)top_p;
    }
    return stays_below(s, top_p, token);
}

/* The terms of the tokens of the few runs that have at least this value. */
static double guess_terms(const sampler *s, float least)
{
    const floors f = floors_at(least);
    double sum = 0;
    for (size_t run = 0; run < s->n_runs; run += guess_step(s)) {
        sum += terms_from_run(s, &f, run);
    }
    return sum;
}

/* A floor above which the whole nucleus is: one that a few runs suggest if all confirm it, else none. Drawing from
 * fewer tokens is cheaper. */
static float nucleus_floor(sampler *s, float top_p, double sum)
{
    if (top_p > 0.8f && 4 * sum > (double)s->n_vocab) {
        return -FLT_MAX; /* flat: the nucleus is most of all */
    }
    double wanted = guess_terms(s, -FLT_MAX) * (0.75 * (double)top_p + 0.25);
    float low = s->max - GUESS_DEPTH, high = s->max;
    for (int i = 0; i < GUESS_HALVE; i++) {
        float mid = low + (high - low) * 0.5f;
        bool enough = guess_terms(s, mid) >= wanted;
        low = enough ? mid : low;
        high = enough ? high : mid;
    }
    const floors guess = floors_at(low);
    double reached = terms_from(s, &guess) / sum;
    return reached > (double)top_p + doubt(s, (double)s->n_vocab) ? low : -FLT_MAX;
}

/* Candidates */

/* The k best, and of them the shortest run in descending order that reaches top_p. */
static size_t set_top_k(sampler *s, const sampling *params)
{
    size_t k = (size_t)params->top_k;
    size_t n = set_gather(s, floor_of(s, k));
    set_sort(s, s->values, n);
    k = k < n ? k : n;
    n = set_cut(s, n, s->order[k - 1]);
    if (params->top_p < 1.0f) {
        size_t taken = reach(s, k, params->top_p, set_softmax(s, n));
        n = taken <= k ? set_cut(s, n, s->order[taken - 1]) : n;
    }
    return n;
}

/* For any value v, exp(v - max) >= min_p is v >= this, since neither the difference nor exp ever falls as v rises
 * (tests/kern/test_fmath_range.c). Found by halving among the floats. */
static float min_p_floor(float min_p, float max)
{
    uint32_t high = sort_key(max), low = sort_key(-FLT_MAX); /* keys fall as values rise */
    while (high < low) {
        uint32_t mid = high + (low - high + 1) / 2;
        if (fm_exp(value_of_key(mid) - max) >= min_p) {
            high = mid;
        } else {
            low = mid - 1;
        }
    }
    return value_of_key(high);
}

#define TOP_P_FIRST 64 /* candidates tried at first */

/* Of all tokens, the shortest run in descending order that reaches top_p, if few do; else c->nucleus. */
static candidates set_top_p(sampler *s, float top_p)
{
    candidates c = {.sum = terms_fill(s)};
    double few = 0;
    if (c.sum * (double)top_p < 8 * TOP_P_FIRST) { /* terms are at most 1 */
        c.n = set_gather(s, floor_of(s, TOP_P_FIRST));
        for (size_t i = 0; i < c.n; i++) {
            few += (double)s->terms[s->set[i]];
        }
    }
    if (few / c.sum > (double)top_p - doubt(s, (double)c.n)) {
        set_sort(s, s->values, c.n);
        size_t taken = reach(s, c.n, top_p, terms_sum(s));
        if (taken <= c.n) {
            c.listed = true;
            c.n = set_cut(s, c.n, s->order[taken - 1]);
            return c;
        }
    }
    c.nucleus = true;
    c.from = floors_at(nucleus_floor(s, top_p, c.sum));
    return c;
}

/* Keeps in s->set what has at least this value. */
static size_t set_above(sampler *s, size_t n, float least)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (s->values[s->set[i]] >= least) {
            s->set[kept++] = s->set[i];
        }
    }
    return kept;
}

candidates sampler_candidates(sampler *s, const sampling *params)
{
    candidates c = {.from = floors_at(-FLT_MAX)};
    if (params->top_k > 0 && params->top_k < s->n_vocab) {
        c = (candidates){.listed = true, .n = set_top_k(s, params)};
    } else if (params->top_p < 1.0f) {
        c = set_top_p(s, params->top_p);
    }
    if (params->min_p > 0.0f) {
        float least = min_p_floor(params->min_p, s->max);
        if (c.listed) {
            c.n = set_above(s, c.n, least);
        } else if (least > c.from.least) {
            c.from = floors_at(least);
        }
    }
    return c;
}
