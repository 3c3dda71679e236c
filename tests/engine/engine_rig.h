/*
 * engine_rig: an engine on a fake model with a clock that stands still, and logs of what its sinks were told.
 * Every log checks for itself that tokens come before the one terminal call. A rig that does not stand ends
 * the program.
 */
#ifndef HEARTH_TESTS_ENGINE_ENGINE_RIG_H
#define HEARTH_TESTS_ENGINE_ENGINE_RIG_H

#include "base/buf.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "engine/fake_model.h"

#define RIG_VOCAB         300
#define RIG_MAX_EMBEDDING 64

typedef struct rig_config {
    int32_t n_ctx;
    size_t n_pages;
    size_t chunk;
    size_t max_rows;
    size_t max_sequences;
    size_t logit_rows; /* 0 = max_sequences */
    bool cold;         /* no reuse */
    bool prewarm;      /* all lanes are made at once */
    size_t park_bytes;
    uint64_t max_step_ns;
    store *store;                                                                     /* NULL = none */
    const tokenizer *tok;                                                             /* NULL = none */
    void (*before_step)(void *ctx, const step_row *rows, size_t n, bool any_prefill); /* NULL = nothing */
    void *before_step_ctx;
} rig_config;

typedef struct engine_rig {
    fake_model model;
    clock_fake clock;
    pool *compute;
    engine *en;
    rig_config cfg;
} engine_rig;

rig_config rig_config_default(
    void); /* 512 positions, 64 pages, chunk 32, 64 rows, 4 sequences, no tokenizer */
void rig_open(engine_rig *r, const rig_config *cfg);
void rig_close(
    engine_rig *r); /* fails the test if pages are missing, the model saw a fault, or a bug was counted */
engine_stats rig_stats(const engine_rig *r);

typedef struct reply_log {
    /* What happens inside the token call; set by tests. */
    engine_rig *rig;
    size_t cancel_after; /* seq_cancel in the n-th token call; 0 = never */
    size_t hold_after;   /* seq_hold likewise */
    size_t flag_after;   /* sets flag likewise */
    atomic_bool *flag;
    sequence *seq;
    size_t n_labels; /* of the request */
    /* What was told. */
    bool has_labels, has_embedding;
    float labels[GEN_MAX_LABELS];
    float embedding[RIG_MAX_EMBEDDING];
    ivec ids;
    size_t n_again;    /* of these: were said elsewhere; all before the others */
    ivec ends;         /* of text, behind each token */
    buf text;          /* joined, the tail included */
    buf tail;          /* that of the result alone */
    ivec probs;        /* bits of chosen and top logprobs, if asked for */
    ivec prompt_probs; /* the same of the prompt */
    size_t n_prompt_probs;
    int n_prompt_calls;
    ivec result_ids;   /* those of the result */
    gen_result result; /* pointers inside are dead */
    char guard[16];
    err error;
    int n_done, n_failed;
} reply_log;

void log_init(reply_log *l, engine_rig *r);
void log_release(reply_log *l);
gen_sink log_sink_of(reply_log *l);
bool log_over(const reply_log *l);

/* Greedy, max_new tokens, no prompt_logprobs, into l. The caller may change the request before rig_submit. */
gen_request rig_request(reply_log *l, const int32_t *prompt, size_t n_prompt, int32_t max_new);
void rig_submit(engine_rig *r, const gen_request *q, reply_log *l);
status rig_refused(engine_rig *r, const gen_request *q, err *e); /* submits; must not succeed */
/* One step, and what it says; fails the test if the engine's books do not agree after it. */
bool rig_step(engine_rig *r);
void rig_drain(engine_rig *r); /* steps until nothing runs; fails the test after 100,000 */
/* All of it: submit, drain. */
void rig_generate(engine_rig *r, const gen_request *q, reply_log *l);

/* n pseudo-random ids in [0, RIG_VOCAB). */
void rig_tokens(int32_t *out, size_t n, uint64_t seed);
/* Fails unless the log ended well with exactly these ids. */
void log_expect_ids(const reply_log *l, const int32_t *ids, size_t n);
/* Unless these are the first n_new tokens of what the model function says greedily after the prompt. */
void log_expect_greedy(const reply_log *l, const int32_t *prompt, size_t n, size_t n_new);

/* A tokenizer whose token b is the byte b (0 … 255), with <|endoftext|> as an end token. */
tokenizer *byte_tokenizer_open(int32_t *eos);

#endif
