/*
 * A worker (worker_main.c) that aborts in a step in which the token and the position of HEARTH_TEST_POISON
 * ("TOKEN POSITION") stand in one row, as a fault in a kernel would: for crash_script.py. Linked with
 * --wrap=model_forward_ops.
 */
#include <stdio.h>
#include <stdlib.h>

#include "model/model.h"

static forward_ops real;
static int token = -1, position = -1;

static status forward(void *ctx, pool *p, const batch *b, float *logits, uint8_t *bad, err *e)
{
    for (size_t i = 0; i < b->n_rows; i++) {
        if (b->rows[i].token == token && b->rows[i].pos == position) {
            abort();
        }
    }
    return real.forward(ctx, p, b, logits, bad, e);
}

/* Names that the linker makes. NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */
forward_ops __real_model_forward_ops(model *m);
forward_ops __wrap_model_forward_ops(model *m);

forward_ops __wrap_model_forward_ops(model *m)
{
    const char *poison = getenv("HEARTH_TEST_POISON");
    real = __real_model_forward_ops(m);
    if (poison && sscanf(poison, "%d %d", &token, &position) != 2) {
        abort();
    }
    forward_ops ops = real;
    ops.forward = forward;
    return ops;
}
/* NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */
