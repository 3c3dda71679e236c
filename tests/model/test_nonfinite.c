/*
 * A value that is not finite ends its own sequence and touches no other: the row and all later ones of the
 * sequence are marked, earlier rows and the neighbours keep their bits, and what is written for a marked row
 * is finite.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "model/edit_model.h"
#include "model/make_model.h"
#include "model/rig.h"
#include "model/temp_path.h"

#define N_VOCAB 300
#define WIDTH   64
#define N_A     12 /* the sequence that meets the bad token */
#define N_B     9
#define BAD     7 /* the token */
#define BAD_AT  5 /* its position */

static int32_t tokens_a[N_A], tokens_b[N_B];
static char path[TEMP_PATH_BYTES];

static make_model_spec small_spec(gguf_type type)
{
    make_model_spec spec = make_model_default(type);
    spec.width = WIDTH;
    spec.head_dim = 16;
    spec.n_ff = 96;
    spec.n_vocab = N_VOCAB;
    spec.tied = false;
    return spec;
}

/* A model of this type whose F32 embedding of BAD holds `value` once. */
static void make_bad_model(gguf_type type, float value)
{
    static float embd[N_VOCAB * WIDTH];
    char plain[TEMP_PATH_BYTES];
    make_model_spec spec = small_spec(type);
    for (size_t i = 0; i < N_VOCAB * WIDTH; i++) {
        embd[i] = (float)((i * 37) % 101) / 101.0f - 0.5f;
    }
    embd[BAD * WIDTH + 3] = value;
    const model_edit edit = {.kind = EDIT_TENSOR,
                             .name = "token_embd.weight",
                             .type = GGUF_TYPE_F32,
                             .dims = {WIDTH, N_VOCAB},
                             .data = embd};
    assert_int_equal(make_model(temp_path(plain, "nonfinite-plain.gguf"), &spec, NULL), ST_OK);
    assert_int_equal(edit_model(plain, temp_path(path, "nonfinite.gguf"), &edit, 1, NULL), ST_OK);
    assert_int_equal(unlink(plain), 0);
}

static int set_up(void **state)
{
    rig_tokens(tokens_a, N_A, N_VOCAB, 1);
    rig_tokens(tokens_b, N_B, N_VOCAB, 2);
    for (size_t i = 0; i < N_A; i++) {
        tokens_a[i] = tokens_a[i] == BAD ? BAD + 1 : tokens_a[i];
    }
    for (size_t i = 0; i < N_B; i++) {
        tokens_b[i] = tokens_b[i] == BAD ? BAD + 1 : tokens_b[i];
    }
    tokens_a[BAD_AT] = BAD;
    return 0;
}

static void assert_finite(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        assert_true(isfinite(x[i]));
    }
}

/* Both sequences in one batch, A first and then A last. */
static void check_batch(const rig_options *opt)
{
    static float alone_a[N_A * N_VOCAB], alone_b[N_B * N_VOCAB], got[(N_A + N_B) * N_VOCAB];
    rig r;
    rig_open(&r, path, opt);
    assert_false(rig_run(&r, tokens_a, N_A, 1, alone_a)); /* some row is bad */
    assert_true(rig_run(&r, tokens_b, N_B, N_B, alone_b));
    for (int a_last = 0; a_last < 2; a_last++) {
        uint8_t bad[N_A + N_B];
        memset(bad, 0xAA, sizeof bad);
        rig_reset(&r);
        rig_seq a = rig_sequence(&r, N_A), b = rig_sequence(&r, N_B);
        const rig_part part_a = {.seq = &a, .tokens = tokens_a, .n = N_A};
        const rig_part part_b = {.seq = &b, .tokens = tokens_b, .n = N_B};
        const rig_part parts[2] = {a_last ? part_b : part_a, a_last ? part_a : part_b};
        rig_step(&r, parts, 2, got, bad);
        size_t at_a = a_last ? N_B : 0, at_b = a_last ? 0 : N_A;
        for (size_t i = 0; i < N_A; i++) {
            assert_int_equal(bad[at_a + i], i >= BAD_AT);
        }
        for (size_t i = 0; i < N_B; i++) {
            assert_int_equal(bad[at_b + i], 0);
        }
        assert_memory_equal(got + at_b * N_VOCAB, alone_b, sizeof alone_b);
        assert_memory_equal(got + at_a * N_VOCAB, alone_a, BAD_AT * N_VOCAB * sizeof(float));
        assert_finite(got, (N_A + N_B) * N_VOCAB);
    }
    rig_close(&r);
}

static void test_bad_embedding(void **state)
{
    static const gguf_type types[] = {GGUF_TYPE_F32, GGUF_TYPE_BF16, GGUF_TYPE_Q8_0, GGUF_TYPE_Q4_0};
    const float values[] = {INFINITY, -INFINITY, NAN, 1e25f /* finite, but its square is not */};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        make_bad_model(types[i], values[i]);
        for (int set = 0; set < KERN_SET_COUNT; set++) {
            rig_options opt = rig_options_of((kern_set)set);
            opt.threads = 2;
            opt.kv = i == 1 ? KV_F16 : KV_F32;
            if (kern_table_of((kern_set)set)) {
                check_batch(&opt);
            }
        }
        assert_int_equal(unlink(path), 0);
    }
}

/* The output matrix overflows for every row: all are bad, and their logits zero. */
static void test_bad_output(void **state)
{
    static float output[N_VOCAB * WIDTH], got[N_B * N_VOCAB];
    char plain[TEMP_PATH_BYTES];
    make_model_spec spec = small_spec(GGUF_TYPE_F32);
    output[299 * WIDTH + 5] = INFINITY;
    const model_edit edit = {.kind = EDIT_TENSOR,
                             .name = "output.weight",
                             .type = GGUF_TYPE_F32,
                             .dims = {WIDTH, N_VOCAB},
                             .data = output};
    assert_int_equal(make_model(temp_path(plain, "nonfinite-plain.gguf"), &spec, NULL), ST_OK);
    assert_int_equal(edit_model(plain, temp_path(path, "nonfinite.gguf"), &edit, 1, NULL), ST_OK);
    rig_options opt = rig_options_of(KERN_REF);
    opt.threads = 2;
    rig r;
    rig_open(&r, path, &opt);
    uint8_t bad[N_B];
    rig_seq s = rig_sequence(&r, N_B);
    const rig_part part = {.seq = &s, .tokens = tokens_b, .n = N_B};
    rig_step(&r, &part, 1, got, bad);
    for (size_t i = 0; i < N_B; i++) {
        assert_int_equal(bad[i], 1);
    }
    for (size_t i = 0; i < N_B * N_VOCAB; i++) {
        assert_true(got[i] == 0.0f);
    }
    rig_close(&r);
    unlink(plain);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_embedding),
        cmocka_unit_test(test_bad_output),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
