/*
 * reference_door: running a list of tokens straight through the forward pass, for the commands that exist so
 * that others can check us (logits, perplexity). F32 KV, pages of its own, no sampler, no session.
 */
#ifndef HEARTH_CMD_REFERENCE_DOOR_H
#define HEARTH_CMD_REFERENCE_DOOR_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "engine/instance.h"

typedef enum door_what {
    DOOR_LOGITS, /* [n_vocab] */
    DOOR_HIDDEN  /* [n_embd]: the state behind the output norm */
} door_what;

/* Called once per position in order: that position's row. Anything but ST_OK ends the run. */
typedef status (*door_fn)(void *ctx, size_t pos, const float *row);

/* ST_CONTEXT_LENGTH if n exceeds the context, ST_INVALID_FIELD naming the token outside the vocabulary. */
status door_check(const instance *in, const int32_t *tokens, size_t n, err *e);
/* Runs tokens[0..n) from an empty cache at positions 0 …. Errors of door_check, ST_NOMEM, ST_NONFINITE, and
 * what fn returns. */
status door_run(instance *in, door_what what, const int32_t *tokens, size_t n, door_fn fn, void *ctx, err *e);
size_t door_width(const instance *in, door_what what); /* floats of a row */

#endif
