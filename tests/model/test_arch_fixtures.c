/*
 * The reference models of fixtures/arch, F32 pages: logits within 2e-4 x spread of the exact ones and the
 * same best token, and the same bits for every cut into steps, number of threads and instruction set.
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

#define N_TOKENS  40
#define N_VOCAB   512
#define TOLERANCE 2e-4

static bool read_file(const char *name, const char *suffix, void *out, size_t n_bytes)
{
    char file[96];
    snprintf(file, sizeof file, "arch/%s%s", name, suffix);
    const char *path = fixture_path(file);
    FILE *f = path ? fopen(path, "rb") : NULL;
    if (!f) {
        return false;
    }
    size_t n = fread(out, 1, n_bytes, f);
    fclose(f);
    return n == n_bytes;
}

static bool read_tokens(const char *name, int32_t *tokens)
{
    char file[96];
    snprintf(file, sizeof file, "arch/%s.tokens.txt", name);
    const char *path = fixture_path(file);
    FILE *f = path ? fopen(path, "r") : NULL;
    size_t n = 0;
    while (f && n < N_TOKENS && fscanf(f, "%d", &tokens[n]) == 1) {
        n++;
    }
    if (f) {
        fclose(f);
    }
    return n == N_TOKENS;
}

/* Every set, thread count and chunk against the bits of the first one. Returns how many sets ran. */
static size_t compare_variants(const char *path, const int32_t *tokens, const float *want)
{
    static const size_t chunks[] = {1, 7, 32, N_TOKENS};
    static float got[N_TOKENS * N_VOCAB];
    size_t n_sets = 0;
    for (int set = 0; set < KERN_SET_COUNT; set++) {
        if (!kern_table_of((kern_set)set)) {
            continue;
        }
        n_sets++;
        for (size_t threads = 1; threads <= 2; threads++) {
            rig_options opt = rig_options_of((kern_set)set);
            opt.threads = threads;
            opt.shuffle = (uint32_t)threads - 1;
            rig r;
            rig_open(&r, path, &opt);
            for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
                assert_true(rig_run(&r, tokens, N_TOKENS, chunks[i], got));
                if (memcmp(got, want, sizeof got) != 0) {
                    print_error("%s: set %s, %zu threads, chunks of %zu: other bits\n", path,
                                kern_set_name((kern_set)set), threads, chunks[i]);
                    fail();
                }
            }
            rig_close(&r);
        }
    }
    return n_sets;
}

static void check_model(const char *name)
{
    static float exact[N_TOKENS * N_VOCAB], got[N_TOKENS * N_VOCAB];
    int32_t tokens[N_TOKENS];
    char file[96], path[4096];
    snprintf(file, sizeof file, "arch/%s.gguf", name);
    const char *found = fixture_path(file);
    if (!found) {
        skip();
    }
    snprintf(path, sizeof path, "%s", found);
    assert_true(read_tokens(name, tokens));
    assert_true(read_file(name, ".exact.f32", exact, sizeof exact));

    rig_options opt = rig_options_of(KERN_REF);
    rig r;
    rig_open(&r, path, &opt);
    assert_int_equal(r.ops.shape->n_vocab, N_VOCAB);
    assert_true(rig_run(&r, tokens, N_TOKENS, N_TOKENS, got));
    rig_close(&r);

    double spread = rig_spread(exact, N_TOKENS, N_VOCAB);
    double d = rig_distance(got, exact, N_TOKENS * N_VOCAB);
    size_t n_sets = compare_variants(path, tokens, got);
    print_message("%s: largest error %.3g = %.3g x spread (allowed %.0e), %zu instruction sets\n", name, d,
                  d / spread, TOLERANCE, n_sets);
    assert_true(d <= TOLERANCE * spread);
    assert_int_equal(rig_argmax_misses(got, exact, N_TOKENS, N_VOCAB, 0.0), 0);
}

static void test_llama(void **state)
{
    check_model("llama");
}

static void test_llama_untied(void **state)
{
    check_model("llama-untied");
}

static void test_qwen3(void **state)
{
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
