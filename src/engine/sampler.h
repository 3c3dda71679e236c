/*
 * sampler: from a row of logits to one token (DESIGN 4, rule 7), a pure function of logits, parameters,
 * history and absolute position.
 *
 * Order: bias (ignore_eos and unmet min_tokens are -inf here), repetition, presence, frequency, temperature,
 * top-k, top-p, min-p. Drawn is the candidate with the largest logit / T + Gumbel noise, noise from Philox
 * with key = seed and counter = (position, token id, 0, 0); temperature 0 is greedy, without noise, and so is
 * one so small that a logit divided by it overflows. Ties to the lower id. Softmax sums: rule 6 with lane =
 * token id mod 16, ids ascending, tokens that are no candidates left out. top-p keeps the shortest run of
 * candidates, in descending logit (lower id first), whose probabilities, added in that order, reach top_p.
 *
 * A `sampler` is the workspace (no allocation after sampler_new; SAMPLER_TOKEN_BYTES per token); one thread at a time. An engine
 * has several, and which one draws makes no difference, nor does what helps it.
 */
#ifndef HEARTH_ENGINE_SAMPLER_H
#define HEARTH_ENGINE_SAMPLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/pool.h"
#include "base/status.h"
#include "kern/kern.h"

#define SAMPLER_MAX_BIAS         1024u
#define SAMPLER_TOKEN_BYTES      29 /* of a workspace, for each token of the vocabulary */
#define SAMPLER_MAX_TOP_LOGPROBS 20

typedef struct logit_bias {
    int32_t token;
    float bias; /* added to the logit; -inf forbids */
} logit_bias;

typedef struct sampling {
    float temperature;        /* finite, >= 0; 0 = greedy */
    int32_t top_k;            /* >= 0; 0 = off */
    float top_p;              /* (0, 1]; 1 = off */
    float min_p;              /* [0, 1]; 0 = off */
    float repetition_penalty; /* [0.01, 100]; 1 = off: positive logits are divided by it, others multiplied */
    float presence_penalty;   /* finite; subtracted once from each generated token's logit */
    float frequency_penalty;  /* finite; subtracted per occurrence among generated tokens */
    int32_t repeat_last_n;    /* >= 0 tokens of prompt and reply the repetition penalty looks at; -1 = all */
    int32_t min_tokens;       /* >= 0: no end-of-generation token and no stop id before that many */
    bool ignore_eos;          /* end-of-generation tokens are never drawn */
    uint64_t seed;          /* as drawn or given; 0 is only "not yet drawn" on the wire, here it is a seed */
    const logit_bias *bias; /* borrowed, ascending token, no duplicates */
    size_t n_bias;
    int32_t top_logprobs; /* -1 = no logprobs; else how many alternatives, up to SAMPLER_MAX_TOP_LOGPROBS */
} sampling;

sampling sampling_default(
    void); /* greedy: temperature 0, everything else off, repeat_last_n 64, top_logprobs -1 */
/* ST_INVALID_FIELD naming the field and value. n_vocab bounds the bias ids. */
status sampling_check(const sampling *s, int32_t n_vocab, err *e);

typedef struct token_logprob {
    int32_t token;
    float logprob; /* natural log of the softmax over the model's own logits (before bias and penalties, T =
                      1) */
} token_logprob;

typedef struct sampler_in {
    const float *logits;    /* [n_vocab], finite; unchanged */
    const int32_t *history; /* prompt then generated tokens */
    size_t n_history;
    size_t n_prompt;    /* the first n_prompt of history are the prompt */
    int32_t position;   /* absolute position of the token to be drawn = n_history */
    const int32_t *eog; /* end-of-generation ids, ascending */
    size_t n_eog;
    const int32_t *stop_ids; /* more ids that unmet min_tokens forbid; ignore_eos does not */
    size_t n_stop_ids;
} sampler_in;

typedef struct sampler_out {
    int32_t token;
    token_logprob chosen;                        /* only if top_logprobs >= 0 */
    token_logprob top[SAMPLER_MAX_TOP_LOGPROBS]; /* descending, lower id first on a tie */
    int32_t n_top;
} sampler_out;

typedef struct sampler sampler;
status sampler_new(int32_t n_vocab, const kern_table *kern, sampler **out);
void sampler_free(sampler *s);
/* From now on the threads of p help with what the sampler does, which then is not done in one of p's tasks. NULL, as
 * after sampler_new: the caller's thread alone. Borrowed. */
void sampler_lend(sampler *s, pool *p);
/* params must have passed sampling_check. If bias forbids everything the lowest id among the largest unbiased
 * logits is drawn. */
void sampler_draw(sampler *s, const sampling *params, const sampler_in *in, sampler_out *out);
/* What the same row of logits says about a token that stands there already: its logprob in chosen and n_top
 * (0 … SAMPLER_MAX_TOP_LOGPROBS) alternatives, by the same arithmetic. */
void sampler_score(sampler *s, const float *logits, int32_t token, int32_t n_top, sampler_out *out);

#endif
