/*
 * ask: the request of a case, and everything that a reply said.
 *
 * A reference is the reply of a cold, lone run of the reference set, one thread, to its end by budget, with 20
 * alternatives for each token. What a case has to say follows from it and from how the case's request ends: the
 * sampled tokens do not depend on that.
 */
#ifndef HEARTH_TESTS_PURITY_ASK_H
#define HEARTH_TESTS_PURITY_ASK_H

#include "base/buf.h"
#include "base/vec.h"
#include "purity/place.h"

#define ASK_MAX_PROMPT 300
#define ASK_PROBS      (2 * (1 + SAMPLER_MAX_TOP_LOGPROBS)) /* words for each token */
#define ASK_CANCEL_AT  7                                    /* tokens, END_cancelled */
#define ASK_FIRST_END  5                                    /* no stop string or end token before that many */

typedef struct heard {
    /* What it does inside the token call. */
    sequence *seq;
    size_t cancel_at; /* seq_cancel in the n-th; 0 = never */
    size_t hold_at;   /* seq_hold likewise */
    const int32_t
        *probs_had; /* of tokens that it had elsewhere, [n][ASK_PROBS]: nobody tells them again. Or NULL */
    const int32_t *force; /* GEN_BEGINS: the reply is these */
    size_t n_force;
    /* What it heard. */
    ivec ids;
    size_t n_again; /* of them: were had elsewhere */
    ivec probs;     /* [ids][ASK_PROBS]: id and bits of what was chosen and of each alternative */
    ivec text_at;   /* length of the text after each token */
    ivec said;      /* of a prompt that is scored: as probs, [n_prompt - 1] */
    buf text;       /* the tail included */
    bool over, failed;
    gen_result result; /* pointers in it are dead */
    char error[200];
} heard;

void heard_release(heard *h);
void heard_keep(ivec *out, const sampler_out *probs); /* ASK_PROBS words */
gen_sink heard_sink(heard *h);                        /* prompt_probs is not set */

typedef struct ask {
    int32_t prompt[ASK_MAX_PROMPT];
    size_t n_prompt, n_turn, n_reply; /* the first turn and its reply begin it */
    sampling params;
    logit_bias bias[3];
} ask;

/* The case's prompt and sampling. */
void ask_init(ask *q, const purity_case *c, const place *p);
/* As a request to the end by budget. */
gen_request ask_request(const ask *q, heard *h);
/* A reply that is through. */
const heard *ask_reference(const purity_case *c);
void ask_references_close(void);

/* Changes the request so that it ends as the case wants; *stops is owned by the request's sequence. */
void ask_end(gen_request *r, heard *h, const purity_case *c, const heard *reference, int32_t *stop_id);
/* NULL, or what is not as the reference says. */
const char *ask_judge(const purity_case *c, const heard *reference, const heard *got);

#endif
