/*
 * cost_model: how long a step will take, learnt from the steps that were: a part that every step has, one for each
 * row, and one for each row and position that it reads (DESIGN 6). The scheduler cuts chunks of prompts by it.
 *
 *   ns = step + row * rows + read * positions
 *
 * Least squares over the past with weights that fade (about the last 64 steps), held to coefficients of at least
 * zero; until it has seen steps of both kinds it answers from a prior. One wild step (the machine was away) moves
 * it little: what a step may count is bounded by a multiple of its prediction.
 *
 * Time decides only how much is computed at a time, never what (P1). Plain values, no allocation; one thread.
 */
#ifndef HEARTH_ENGINE_COST_MODEL_H
#define HEARTH_ENGINE_COST_MODEL_H

#include <stddef.h>
#include <stdint.h>

#define COST_MODEL_MEMORY 64 /* steps after which one counts for little */

typedef struct step_shape {
    size_t rows;
    uint64_t positions; /* sum over the rows of the positions each attends to */
} step_shape;

/* Positions that n rows at adjacent positions from `first` on attend to: the row at p reads p + 1. */
static inline uint64_t step_positions(size_t first, size_t n)
{
    return (uint64_t)n * first + (uint64_t)n * (n + 1) / 2;
}

typedef struct cost_model {
    double step_ns, row_ns, read_ns; /* what it believes now; >= 0 */
    /* private: weighted sums of the normal equations */
    double a[3][3], b[3];
    size_t n_seen;
} cost_model;

void cost_model_init(cost_model *m);
void cost_model_observe(cost_model *m, const step_shape *s, uint64_t ns);
uint64_t cost_model_predict(const cost_model *m, const step_shape *s);
/* The most rows, at adjacent positions from `position` on, that may be added to `base` so that the step is
 * predicted to take at most budget_ns; at most max_rows, and 0 if not even one fits. */
size_t cost_model_rows(const cost_model *m, const step_shape *base, size_t position, uint64_t budget_ns,
                       size_t max_rows);

#endif
