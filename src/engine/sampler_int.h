/*
 * sampler_int: the sampler's workspace and what its files do with it: sampler_values.c makes the values that are
 * drawn from, sampler_set.c says which tokens are candidates, sampler.c draws.
 *
 * A draw takes the vocabulary in few vector passes. The first divides by T and keeps the largest value of each lane
 * of a run (kern.h, scale_tops): from those follow the largest value of all, a floor that at least k values reach,
 * and which runs need no look. Sets of candidates are ids in ascending order, so that sums by lanes need no sorting.
 *
 * Passes over many tokens are cut into tasks for the pool that is lent. Each writes to places of its own, or finds the
 * best of its part, and sums are taken by one thread, so the cuts change no bit.
 */
#ifndef HEARTH_ENGINE_SAMPLER_INT_H
#define HEARTH_ENGINE_SAMPLER_INT_H

#include "engine/sampler.h"

#define SAMPLER_TASKS 64 /* of a pass, at most */

typedef struct best {
    int32_t token;
    float score;
} best;

/* Tokens below `token` whose value is at least `least`, and from there on those with at least `above`: with token 0
 * all of one floor; with another's id, value and the value above that all that stand before it in descending
 * order (the lower id first). */
typedef struct floors {
    int32_t token; /* >= 0 */
    float least, above;
} floors;

struct sampler {
    int32_t n_vocab;
    size_t n_runs;          /* of KERN_TOPS_RUN tokens */
    const kern_table *kern; /* borrowed */
    pool *lent;             /* borrowed, or NULL */
    const float
        *values; /* [n_vocab] after bias and penalties, divided by T: scaled, or the logits as they are */
    float max;   /* the largest of values */
    /* owned */
    float *scaled;    /* [n_vocab] */
    float *tops;      /* [16 n_runs] of values */
    float *run_tops;  /* [n_runs] of tops */
    float *terms;     /* [n_vocab] */
    float *picked;    /* [n_vocab] the values of a set */
    int32_t *set;     /* [n_vocab] the candidates, ascending */
    int32_t *order;   /* [n_vocab] the same by value */
    int32_t *scratch; /* [n_vocab] for sorting */
    int32_t *counts;  /* [n_vocab] all zero between draws */
    /* The present pass. */
    struct {
        size_t n, unit, n_tasks; /* task i has [i * unit, (i + 1) * unit) of n */
        const float *logits;
        float t;
        uint64_t seed;
        int32_t position;
        floors from;
        best first;               /* what is to be beaten */
        best part[SAMPLER_TASKS]; /* what the tasks found */
        double sum[SAMPLER_TASKS];
    } pass;
};

/* Calls fn(s, task, thread) for the tasks of a pass over n units of `tokens` tokens each. */
void sampler_spread(sampler *s, pool_fn fn, size_t n, size_t tokens);
/* What task i of the pass has: [*i0, *i1). */
void sampler_part(const sampler *s, size_t task, size_t *i0, size_t *i1);

/* Whether bias or penalties touch a logit. */
bool sampler_edits(const sampling *params, const sampler_in *in);
/* s->values, s->tops and s->max for this T. */
void sampler_fill(sampler *s, const sampling *params, const sampler_in *in, float t);

size_t sampler_run_length(const sampler *s, size_t run);
/* The lowest id with the largest value. */
int32_t sampler_first_largest(const sampler *s);

/* exp(value - s->max) of all tokens into s->terms; returns their sum (rule 6). */
float sampler_softmax(sampler *s);
/* The k tokens of largest value into s->order; returns how many there are. */
size_t sampler_best(sampler *s, size_t k);

/* What may be drawn. */
typedef struct candidates {
    bool listed; /* n ids in s->set; else all above floors, … */
    size_t n;
    floors from;
    bool nucleus; /* … and of these only what sampler_in_nucleus accepts */
    double sum;   /* then: about that of s->terms */
} candidates;

/* The tokens that may be drawn. */
candidates sampler_candidates(sampler *s, const sampling *params);
/* Whether fewer tokens than top_p's stand before this one in descending order. */
bool sampler_in_nucleus(sampler *s, float top_p, double sum, int32_t token);
/* All that stand before the token. */
floors sampler_before(const sampler *s, int32_t token);

#endif
