/*
 * rig: a model with pages and threads, put up for a test, and ways to run token lists through its forward
 * table. Every failure ends the program with a message: a rig that does not stand is a failed test.
 */
#ifndef HEARTH_TESTS_MODEL_RIG_H
#define HEARTH_TESTS_MODEL_RIG_H

#include <stddef.h>
#include <stdint.h>

#include "base/pool.h"
#include "gguf/reader.h"
#include "kern/kern.h"
#include "kv/page_pool.h"
#include "model/model.h"

typedef struct rig_options {
    kern_set set;
    kv_type kv;
    size_t threads;
    size_t max_rows;
    size_t n_pages;
    uint32_t shuffle;     /* 0: pages in order, else a seed for their order */
    const char *pack_dir; /* packed weights on disk, must work; NULL: in memory */
    bool huge_pages;
} rig_options;

typedef struct rig {
    gguf_file *file;
    model *m;
    forward_ops ops;
    pool *p;
    page_pool *pages;
    void **order; /* [n_pages] every page, in the order they are given to sequences */
    size_t n_pages;
    size_t next;
} rig;

typedef struct rig_seq {
    void *const *pages;
    size_t n_pages;
    int32_t n_pos; /* positions computed so far */
} rig_seq;

/* Some new tokens of a sequence. */
typedef struct rig_part {
    rig_seq *seq;
    const int32_t *tokens;
    size_t n;
} rig_part;

/* The set named, 1 thread, F32 pages in order, 64 rows a step, 64 pages. */
rig_options rig_options_of(kern_set set);
void rig_open(rig *r, const char *path, const rig_options *opt);
void rig_close(rig *r);
/* Fills every page with NaN; all of them are free for new sequences again. */
void rig_reset(rig *r);
rig_seq rig_sequence(rig *r, size_t n_tokens); /* pages for that many positions */
/* One step of all parts. logits [all tokens][n_vocab], bad [all tokens]. */
void rig_step(rig *r, const rig_part *parts, size_t n_parts, float *logits, uint8_t *bad);
/* A sequence of its own from position 0 after rig_reset, chunk tokens a step. False if any row was bad. */
bool rig_run(rig *r, const int32_t *tokens, size_t n, size_t chunk, float *logits);

/* Largest |a - b| over n values; NaN anywhere gives infinity. */
double rig_distance(const float *a, const float *b, size_t n);
/* Mean over rows of the standard deviation of a row: the spread of the fixtures. */
double rig_spread(const float *logits, size_t n_rows, size_t n_vocab);
/* Rows whose best entry differs, among those where want's best two differ by more than margin. */
size_t rig_argmax_misses(const float *got, const float *want, size_t n_rows, size_t n_vocab, double margin);
/* n ids in [0, n_vocab) drawn from seed. */
void rig_tokens(int32_t *out, size_t n, uint32_t n_vocab, uint64_t seed);

#endif
