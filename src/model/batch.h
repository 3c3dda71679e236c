/*
 * batch: the rules of forward.h about a batch, checked. The checks survive NDEBUG: a batch that breaks them
 * would write outside the pages or mix two sequences.
 *
 * Pure but for groups, the caller's scratch. ST_INTERNAL with the row and what is wrong with it.
 */
#ifndef HEARTH_MODEL_BATCH_H
#define HEARTH_MODEL_BATCH_H

#include "base/status.h"
#include "model/forward.h"

typedef struct batch_limits {
    size_t max_rows;
    size_t max_logit_rows;
    uint32_t n_vocab;
    int32_t *groups; /* [max_rows] scratch */
} batch_limits;

status batch_check(const batch *b, const batch_limits *limits, err *e);

#endif
