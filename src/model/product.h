/*
 * product: matrix products over the compute pool. Products that share their input run together in one
 * pool_run, cut into chunks of output columns over all rows, so that a layer pays one barrier for several
 * matrices. A chunk never changes a result (kern.h), so neither do the number of threads and the cut.
 *
 * No state, no allocation. Thread: the caller of pool_run.
 */
#ifndef HEARTH_MODEL_PRODUCT_H
#define HEARTH_MODEL_PRODUCT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/pool.h"
#include "kern/kern.h"

#define PRODUCT_MAX 4

typedef struct product {
    const kern_matrix *w; /* [n][k] */
    const kern_act *act;  /* m rows of k, of the kind that w wants */
    float *y;             /* [m][n], rows y_stride apart */
    float *add_to;        /* [m][n] += y, rows add_stride apart; or NULL */
    size_t y_stride;
    size_t add_stride;
    uint8_t *bad; /* [m] set to 1 where a row of y is not finite, else left; or NULL */
} product;

/* n_list in [1, PRODUCT_MAX]; all have the same m. */
void product_run(const kern_table *kern, pool *p, const product *list, size_t n_list);
/* gate.y = silu(gate.y) * up.y; both have the same shape. True if that is prepared, too, as `to`, an empty act of m rows
 * of n (bad: as of act_prepare). False where the threads are many for n: such tasks would be too large. */
bool product_run_gated(const kern_table *kern, pool *p, const product *gate, const product *up, kern_act *to,
                       uint8_t *bad);

#endif
