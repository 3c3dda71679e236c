/*
 * oracle: what a request says when nothing disturbs it, straight from the model's function, the sampler, the
 * detokeniser and the stop matcher, without an engine. What was drawn for a prompt and its sampling parameters is
 * remembered: scenarios say much the same over and over.
 */
#ifndef HEARTH_TESTS_SIM_ORACLE_H
#define HEARTH_TESTS_SIM_ORACLE_H

#include "base/buf.h"
#include "engine/engine.h"
#include "sim/scenario.h"
#include "sim/sim_model.h"

#define SIM_PROMPT_MAX (SIM_MAX_CTX + 8)

/* One request, as the oracle needs it. */
typedef struct question {
    const sim_model *model;
    const tokenizer *tok; /* NULL = none */
    const sim_request *r;
    const int32_t *prompt;
    size_t n_prompt;
    size_t max_new;
    bool ceiling; /* max_new is the context's */
} question;

typedef struct answer {
    bool over;            /* the undisturbed reply has exactly that many tokens */
    bool too_many;        /* it has fewer */
    finish_causes causes; /* if it is over */
    bool repetition;      /* among them */
    bool stop_cut, repaired;
    size_t n;                  /* tokens told: as many as were asked for, or all if that is too many */
    size_t n_shown;            /* bytes of text behind the tokens, before what the end releases */
    size_t shown[SIM_MAX_CTX]; /* of them behind token i */
    buf text;                  /* those bytes, and what the end releases */
} answer;

bool oracle_open(void);
void oracle_close(void);

sampling oracle_sampling(const sim_request *r);
/* Stop strings and stop ids by their numbers in a scenario. */
status oracle_stops(const sim_request *r, stop_set **out);
const int32_t *oracle_stop_ids(const sim_request *r, size_t *n);

/* The first n ids of the undisturbed reply, and what they come to; fewer if it has fewer (too_many). ended: the text
 * is that of a reply that ends there, whatever ends it. The caller releases text. */
void oracle_answer(const question *q, size_t n, bool ended, int32_t *ids, answer *out);
/* A digest of the bits of what the sampler says of reply token i / of prompt token i + 1. */
uint64_t oracle_probs(const question *q, const int32_t *ids, size_t i);
uint64_t oracle_prompt_probs(const question *q);
uint64_t probs_digest(uint64_t h, const sampler_out *p);
/* The bits of the log-probability of one token behind the prompt. */
float oracle_label(const question *q, int32_t token);

#endif
