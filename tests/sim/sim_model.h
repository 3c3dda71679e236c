/*
 * sim_model: the fake model (tests/engine/fake_model.h) that takes simulated time and can be told to fail.
 *
 * Its logits are a pure function of the tokens (sim_logits), with two more words to the vocabulary: SIM_POISON is
 * never drawn, and no row from it on is finite; behind a prompt that begins with SIM_LOOP, p the reply is one run of
 * p tokens over and over.
 */
#ifndef HEARTH_TESTS_SIM_SIM_MODEL_H
#define HEARTH_TESTS_SIM_SIM_MODEL_H

#include "base/clock.h"
#include "engine/fake_model.h"
#include "text/tokenizer.h"

#define SIM_VOCAB  64
#define SIM_EOS    2
#define SIM_POISON 3
#define SIM_LOOP   4
#define SIM_LOOP_P 20 /* this token and those behind it: runs of 1, 2 … */

typedef struct sim_model {
    forward_ops ops; /* ctx = this struct */
    fake_model fake;
    clock_fake *clock;
    uint64_t step_ns, row_ns, read_ns; /* what a forward call takes */
    size_t chunk;                      /* rows of one sequence at most */
    /* Of the next forward call; it puts it back. */
    uint64_t stall_ns;
    /* Whether the call fails. */
    bool (*fails)(void *ctx, const batch *b);
    /* Whether the rows of that sequence are not finite, from its row `*from` on. */
    bool (*spoil)(void *ctx, const batch_seq *s, size_t *from);
    void *faults_ctx;
    size_t n_faults; /* batches that break the rules, pages that do not hold what was written */
} sim_model;

void sim_model_init(sim_model *m, clock_fake *clock, size_t max_rows, size_t max_logit_rows);
/* logits [SIM_VOCAB] after tokens[0..n). */
void sim_logits(const sim_model *m, const int32_t *tokens, size_t n, float *logits);
/* Letters, pairs of letters and single bytes of characters; SIM_EOS ends. NULL: it could not be made. */
tokenizer *sim_tokenizer_open(void);

#endif
