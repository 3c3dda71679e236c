/*
 * Types of keys and values, on the reference models of fixtures/arch: how far the logits move from the exact ones,
 * as a share of their spread, and that each type is a cache of its own, with the same bits in every set.
 *
 * Bounds. F16: 1e-2, which is promised. A value of BF16 is rounded 8 times as coarsely (8 bits against 11), one of Q8_0
 * by up to 1/254 of the largest of its block, 2^4 times what F16 does to that largest one: 8 and 16 times the bound.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "fixtures.h"
#include "model/rig.h"

#define N_TOKENS 40
#define N_VOCAB  512

static const double within[KV_TYPE_COUNT] = {2e-4, 1e-2, 8e-2, 16e-2};

static FILE *fixture_open(const char *name, const char *suffix, const char *mode)
{
    char file[96];
    snprintf(file, sizeof file, "arch/%s%s", name, suffix);
    const char *path = fixture_path(file);
    return path ? fopen(path, mode) : NULL;
}

static bool read_fixture(const char *name, int32_t *tokens, float *exact)
{
    FILE *t = fixture_open(name, ".tokens.txt", "r"), *f = fixture_open(name, ".exact.f32", "rb");
    size_t n = 0;
    while (t && n < N_TOKENS && fscanf(t, "%d", &tokens[n]) == 1) {
        n++;
    }
    bool ok = n == N_TOKENS && f && fread(exact, sizeof *exact, N_TOKENS * N_VOCAB, f) == N_TOKENS * N_VOCAB;
    if (t) {
        fclose(t);
    }
    if (f) {
        fclose(f);
    }
    return ok;
}

static void run(const char *path, kern_set set, kv_type kv, const int32_t *tokens, float *logits)
{
    rig r;
    rig_options opt = rig_options_of(set);
    opt.kv = kv;
    rig_open(&r, path, &opt);
    assert_true(rig_run(&r, tokens, N_TOKENS, set == KERN_REF ? N_TOKENS : 11, logits));
    rig_close(&r);
}

static void check_model(const char *name)
{
    static float exact[N_TOKENS * N_VOCAB], got[KV_TYPE_COUNT][N_TOKENS * N_VOCAB], other[N_TOKENS * N_VOCAB];
    int32_t tokens[N_TOKENS];
    char file[96], path[4096];
    snprintf(file, sizeof file, "arch/%s.gguf", name);
    const char *found = fixture_path(file);
    if (!found) {
        skip();
    }
    snprintf(path, sizeof path, "%s", found);
    assert_true(read_fixture(name, tokens, exact));
    double spread = rig_spread(exact, N_TOKENS, N_VOCAB);
    for (int kv = 0; kv < KV_TYPE_COUNT; kv++) {
        run(path, KERN_REF, (kv_type)kv, tokens, got[kv]);
        double d = rig_distance(got[kv], exact, N_TOKENS * N_VOCAB);
        print_message("%s, %s: largest error %.3g x spread (allowed %.0e)\n", name, kv_type_name((kv_type)kv),
                      d / spread, within[kv]);
        assert_true(d <= within[kv] * spread);
        assert_true(kv == KV_F32 || memcmp(got[kv], got[KV_F32], sizeof got[kv]) != 0);
        for (int set = KERN_REF + 1; set < KERN_SET_COUNT; set++) {
            if (kern_table_of((kern_set)set)) {
                run(path, (kern_set)set, (kv_type)kv, tokens, other);
                assert_memory_equal(other, got[kv], sizeof other);
            }
        }
    }
}

static void test_llama(void **state)
{
    (void)state;
    check_model("llama");
}

static void test_llama_untied(void **state)
{
    (void)state;
    check_model("llama-untied");
}

static void test_qwen3(void **state)
{
    (void)state;
    check_model("qwen3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama),
        cmocka_unit_test(test_llama_untied),
        cmocka_unit_test(test_qwen3),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
