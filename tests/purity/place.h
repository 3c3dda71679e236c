/*
 * place: where a case is computed: one of the table's models, opened for an instruction set and a KV type, with an
 * engine of its own. Time is a clock that stands still but for the forward calls, each of which takes what its rows
 * cost, so that what depends on time is the same each run. A prompt with PLACE_POISON at PLACE_POISON_AT meets a
 * non-finite value there; place_prompt never makes one.
 *
 * Model files are made when the folder has none, and kept open, and so are the compute pools, until places_close. One thread. What cannot
 * be put up ends the program.
 */
#ifndef HEARTH_TESTS_PURITY_PLACE_H
#define HEARTH_TESTS_PURITY_PLACE_H

#include "base/clock.h"
#include "kv/store.h"
#include "model/model.h"
#include "purity/matrix.h"

#define PLACE_MAX_SEQUENCES 9
#define PLACE_POISON        65
#define PLACE_POISON_AT     2

/* What of engine_config a way may want otherwise. */
typedef struct place_config {
    size_t n_pages;
    size_t max_sequences;
    uint64_t max_step_ns;
    size_t park_bytes;
    bool warm;
    const char *store_dir;  /* borrowed; NULL: no store */
    const store_seam *seam; /* borrowed; of the store's disk */
} place_config;

place_config place_config_default(void); /* pages for 12 full contexts, 9 sequences, no cut by time, warm */

typedef struct place {
    engine *en;
    const tokenizer *tok;   /* borrowed */
    const kern_table *kern; /* borrowed */
    store *kept;            /* owned; NULL: none */
    size_t n_steps, n_rows;
    /* private */
    model *m;
    forward_ops real;
    clock_fake clock;
} place;

typedef struct place_way { /* on what a model is computed */
    kern_set set;
    kv_type kv;
    size_t threads, chunk;
} place_way;

void place_open(place *p, const model_entry *m, const place_way *how, const place_config *cfg);
void place_wait(place *p, uint64_t ns); /* time goes by */
/* Whether nothing is left in the engine, and closes it; *why: what is left. */
bool place_close(place *p, const char **why);
/* Before the first: the folder where made models are, or will be; borrowed. */
void places_open(const char *models);
void places_close(void);

/* n ids of the model's plain tokens, drawn from the seed. */
void place_prompt(const place *p, int32_t *out, size_t n, uint32_t seed);

#endif
