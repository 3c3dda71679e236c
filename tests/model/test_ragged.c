/*
 * Several sequences in one batch: pages in any order, rows that were never written NaN, every sequence as if
 * it were alone, bit for bit.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "model/make_model.h"
#include "model/rig.h"
#include "model/temp_path.h"

#define N_SEQS  3
#define LONGEST 275 /* more than one span of 256 */

static const size_t lengths[N_SEQS] = {37, LONGEST, 5};

static char quant_path[TEMP_PATH_BYTES], float_path[TEMP_PATH_BYTES];
static int32_t tokens[N_SEQS][LONGEST];

static int set_up(void **state)
{
    make_model_spec spec = make_model_default(GGUF_TYPE_Q8_0);
    spec.type_alt = GGUF_TYPE_BF16;
    spec.tied = false;
    spec.width = 96;
    spec.head_dim = 32;
    spec.n_ff = 160;
    for (size_t i = 0; i < N_SEQS; i++) {
        rig_tokens(tokens[i], LONGEST, spec.n_vocab, 100 + i);
    }
    status st = make_model(temp_path(quant_path, "ragged-quant.gguf"), &spec, NULL);
    spec.type = spec.type_alt = GGUF_TYPE_F32;
    return st == ST_OK && make_model(temp_path(float_path, "ragged-float.gguf"), &spec, NULL) == ST_OK ? 0
                                                                                                       : -1;
}

static int tear_down(void **state)
{
    return unlink(quant_path) | unlink(float_path);
}

/* Each sequence alone, token by token in big steps, pages in order, reference kernels, one thread. */
static float *alone(const char *path, kv_type kv, size_t *n_vocab, size_t at[N_SEQS + 1])
{
    rig_options opt = rig_options_of(KERN_REF);
    rig r;
    opt.kv = kv;
    rig_open(&r, path, &opt);
    *n_vocab = r.ops.shape->n_vocab;
    at[0] = 0;
    for (size_t i = 0; i < N_SEQS; i++) {
        at[i + 1] = at[i] + lengths[i];
    }
    float *out = mem_alloc_array(at[N_SEQS] * *n_vocab, sizeof *out);
    assert_non_null(out);
    for (size_t i = 0; i < N_SEQS; i++) {
        assert_true(rig_run(&r, tokens[i], lengths[i], 64, out + at[i] * *n_vocab));
    }
    rig_close(&r);
    return out;
}

/* Rows of sequence i in step number step: uneven, sometimes none. */
static size_t rows_of(size_t i, size_t step, size_t left)
{
    size_t n = (i * 5 + step * 3) % 11 + (i == 1 ? 9 : 0);
    return n < left ? n : left;
}

static void run_together(rig *r, const float *want, const size_t at[N_SEQS + 1], size_t n_vocab)
{
    float *got = mem_alloc_array(64 * n_vocab, sizeof *got);
    uint8_t bad[64];
    rig_seq seqs[N_SEQS];
    size_t done[N_SEQS] = {0}, n_done = 0;
    assert_non_null(got);
    rig_reset(r);
    for (size_t i = 0; i < N_SEQS; i++) {
        seqs[i] = rig_sequence(r, lengths[i]);
    }
    for (size_t step = 0; n_done < at[N_SEQS]; step++) {
        rig_part parts[N_SEQS];
        size_t which[N_SEQS], n_parts = 0, row = 0;
        for (size_t k = 0; k < N_SEQS; k++) {
            size_t i = (k + step) % N_SEQS; /* another order each time */
            size_t n = rows_of(i, step, lengths[i] - done[i]);
            if (n > 0) {
                which[n_parts] = i;
                parts[n_parts++] = (rig_part){.seq = &seqs[i], .tokens = tokens[i] + done[i], .n = n};
            }
        }
        if (n_parts == 0) {
            continue;
        }
        rig_step(r, parts, n_parts, got, bad);
        for (size_t k = 0; k < n_parts; k++) {
            size_t i = which[k], bytes = parts[k].n * n_vocab * sizeof *got;
            if (memcmp(got + row * n_vocab, want + (at[i] + done[i]) * n_vocab, bytes) != 0) {
                print_error("sequence %zu differs in step %zu, tokens %zu to %zu\n", i, step, done[i],
                            done[i] + parts[k].n);
                fail();
            }
            row += parts[k].n;
            done[i] += parts[k].n;
            n_done += parts[k].n;
        }
    }
    mem_free(got);
}

static void check(kv_type kv)
{
    size_t n_vocab, at[N_SEQS + 1], n_sets = 0;
    float *want = alone(quant_path, kv, &n_vocab, at);
    for (int set = 0; set < KERN_SET_COUNT; set++) {
        for (size_t threads = 1; threads <= 3 && kern_table_of((kern_set)set); threads += 2) {
            rig_options opt = rig_options_of((kern_set)set);
            rig r;
            opt.kv = kv;
            opt.threads = threads;
            opt.shuffle = 5;
            rig_open(&r, quant_path, &opt);
            run_together(&r, want, at, n_vocab);
            rig_close(&r);
            n_sets++;
        }
    }
    assert_true(n_sets > 0);
    mem_free(want);
}

static void test_f32_pages(void **state)
{
    check(KV_F32);
}

static void test_f16_pages(void **state)
{
    check(KV_F16);
}

/* F16 pages are another cache, not another model: near the F32 result, but not its bits. */
static void test_f16_is_near_f32(void **state)
{
    size_t n_vocab, at[N_SEQS + 1];
    float *exact = alone(float_path, KV_F32, &n_vocab, at);
    float *half = alone(float_path, KV_F16, &n_vocab, at);
    size_t n = at[N_SEQS] * n_vocab;
    double spread = rig_spread(exact, at[N_SEQS], n_vocab);
    double d = rig_distance(half, exact, n);
    assert_true(d > 0.0);
    /* A half has 11 bits: a key or value moves by at most 2^-12 of itself, and the weights here do not round.
     */
    assert_true(d < 0x1p-9 * spread);
    mem_free(exact);
    mem_free(half);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f32_pages),
        cmocka_unit_test(test_f16_pages),
        cmocka_unit_test(test_f16_is_near_f32),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
