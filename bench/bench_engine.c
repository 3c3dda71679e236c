/*
 * bench_engine: what the engine itself costs a decode step: sweeping, admission, the plan, pages, one greedy draw from
 * a vocabulary of 1,000 for each reply and the books after it. The model in its place does nothing but write logits
 * that never end a reply, so all that is left is overhead.
 *
 *     bench_engine [STEPS]        2000; told for 1, 4, 16 and 32 replies: microseconds a step, least and median
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/pool.h"
#include "engine/engine.h"
#include "kern/kv_layout.h"

#define N_VOCAB   1000
#define MAX_LANES 32
#define CONTEXT   8192

static uint64_t in_forward;

static status forward(void *ctx, pool *p, const batch *b, float *logits, uint8_t *bad, err *e)
{
    (void)ctx, (void)p, (void)bad, (void)e;
    uint64_t begun = clock_mono_ns(clock_system());
    for (size_t i = 0; i < b->n_rows; i++) {
        if (b->rows[i].want_logits) {
            memset(logits, 0, N_VOCAB * sizeof *logits);
            logits[(b->rows[i].token + 1) % N_VOCAB] = 1;
            logits += N_VOCAB;
        }
    }
    in_forward += clock_mono_ns(clock_system()) - begun;
    return ST_OK;
}

static void on_token(void *ctx, const gen_token *t)
{
    (void)t;
    ++*(size_t *)ctx;
}

static void on_done(void *ctx, const gen_result *r)
{
    (void)ctx, (void)r;
}

static void on_failed(void *ctx, const err *e)
{
    (void)ctx;
    fprintf(stderr, "bench_engine: %s\n", e->msg);
    exit(1);
}

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void must(status st, const err *e)
{
    if (st != ST_OK) {
        fprintf(stderr, "bench_engine: %s\n", e->msg);
        exit(1);
    }
}

static void run(size_t n_lanes, size_t n_steps)
{
    static const model_shape shape = {.n_vocab = N_VOCAB, .n_embd = 8};
    static int32_t prompt[16];
    static uint64_t took[100000];
    err e;
    pool *compute;
    engine *en;
    sequence *seq[MAX_LANES];
    size_t n_tokens = 0;
    must(pool_new(1, false, &compute, &e), &e);
    engine_config cfg = {.ops = {.shape = &shape,
                                 .page_bytes = 64,
                                 .max_rows = 64,
                                 .max_logit_rows = MAX_LANES,
                                 .forward = forward},
                         .kern = kern_select(KERN_SET_COUNT - 1),
                         .compute = compute,
                         .clock = clock_system(),
                         .n_ctx = CONTEXT,
                         .n_pages = MAX_LANES * CONTEXT / KV_PAGE_TOKENS,
                         .prefill_chunk = 16,
                         .max_step_ns = GEN_MAX_STEP_NS,
                         .max_sequences = n_lanes,
                         .warm = true};
    must(engine_new(&cfg, &en, &e), &e);
    for (size_t i = 0; i < n_lanes; i++) {
        gen_request q = {.prompt = prompt,
                         .n_prompt = 16,
                         .max_new_tokens = -1,
                         .params = sampling_default(),
                         .prompt_logprobs = -1,
                         .repeat_span = 1024,
                         .sink = {.ctx = &n_tokens, .token = on_token, .done = on_done, .failed = on_failed}};
        must(engine_submit(en, &q, &seq[i], &e), &e);
    }
    while (n_tokens < n_lanes * 4) {
        engine_step(en);
    }
    for (size_t i = 0; i < n_steps; i++) {
        uint64_t begun = clock_mono_ns(clock_system());
        in_forward = 0;
        engine_step(en);
        took[i] = clock_mono_ns(clock_system()) - begun - in_forward;
    }
    qsort(took, n_steps, sizeof *took, ascending);
    printf("%2zu replies: least %.1f, median %.1f us a step\n", n_lanes, (double)took[0] / 1e3,
           (double)took[n_steps / 2] / 1e3);
    for (size_t i = 0; i < n_lanes; i++) {
        seq_cancel(seq[i]);
    }
    while (engine_running(en) > 0) {
        engine_step(en);
    }
    engine_free(en);
    pool_free(compute);
}

int main(int argc, char **argv)
{
    size_t n_steps = argc > 1 ? strtoul(argv[1], NULL, 10) : 2000;
    static const size_t lanes[] = {1, 4, 16, 32};
    for (size_t i = 0; i < sizeof lanes / sizeof lanes[0]; i++) {
        run(lanes[i], n_steps < 6000 ? n_steps : 6000);
    }
    return 0;
}
