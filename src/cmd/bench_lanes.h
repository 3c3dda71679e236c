/*
 * bench_lanes: some conversations on one engine, advanced together and timed: what a server does, without the
 * wire. Prompts are ids that follow from lane, position and a counter; replies are sampled (temperature 0.8,
 * top-k 40, top-p 0.95) and cannot end early.
 *
 * Thread: the engine's. Errors: ST_NOMEM, ST_CAPACITY if the lanes do not fit the KV pages, and the engine's;
 * after an error the lanes can only be closed.
 */
#ifndef HEARTH_CMD_BENCH_LANES_H
#define HEARTH_CMD_BENCH_LANES_H

#include <stddef.h>

#include "engine/instance.h"

typedef struct bench_lanes bench_lanes;

/* max_tokens: of a prompt. n: at most the instance's max_sequences. */
status bench_lanes_open(instance *in, size_t n, size_t max_tokens, bench_lanes **out, err *e);
void bench_lanes_close(bench_lanes *l); /* ends what runs; NULL is fine */

/* Every lane has depth tokens computed and reads n more. *ms: from then until each lane has its first token. */
status bench_lanes_prefill(bench_lanes *l, size_t depth, size_t n, double *ms, err *e);
/* Every lane has depth tokens computed (at least one) and replies with n more, all together. *ms: for these n
 * steps; reading the prompt and its first token are not in it. */
status bench_lanes_decode(bench_lanes *l, size_t depth, size_t n, double *ms, err *e);

#endif
