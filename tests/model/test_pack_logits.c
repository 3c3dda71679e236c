/*
 * The same bits of logits from weights as they lie in the file (reference kernels), packed in memory, packed on
 * disk by this process, found on disk, and copied into huge pages: for every set that the CPU has.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "model/make_model.h"
#include "model/rig.h"
#include "model/temp_path.h"

#define N_TOKENS 21 /* more than one tile of activations, and a rest */

static char folder[TEMP_PATH_BYTES];

static float *logits_of(const char *path, const rig_options *opt, size_t *n)
{
    rig r;
    int32_t tokens[N_TOKENS];
    rig_open(&r, path, opt);
    *n = N_TOKENS * r.ops.shape->n_vocab;
    rig_tokens(tokens, N_TOKENS, r.ops.shape->n_vocab, 5);
    float *out = mem_alloc_array(*n, sizeof *out);
    assert_non_null(out);
    assert_true(rig_run(&r, tokens, N_TOKENS, 13, out));
    rig_close(&r);
    return out;
}

static void compare(const char *path, kern_set set)
{
    rig_options opt = rig_options_of(KERN_REF);
    size_t n, n_got;
    float *want = logits_of(path, &opt, &n);
    opt.set = set;
    opt.threads = 2;
    for (int how = 0; how < 4; how++) { /* memory; disk, made or found by then; disk; huge pages */
        opt.pack_dir = how > 0 ? folder : NULL;
        opt.huge_pages = how == 3;
        float *got = logits_of(path, &opt, &n_got);
        assert_int_equal(n_got, n);
        if (memcmp(got, want, n * sizeof *got) != 0) {
            fail_msg("%s, kernels %s, way %d: other logits", path, kern_set_name(set), how);
        }
        mem_free(got);
    }
    mem_free(want);
}

static void same_logits(void **state)
{
    static const gguf_type types[][2] = {{GGUF_TYPE_Q4_0, GGUF_TYPE_Q8_0},
                                         {GGUF_TYPE_Q4_K, GGUF_TYPE_Q6_K},
                                         {GGUF_TYPE_F16, GGUF_TYPE_BF16},
                                         {GGUF_TYPE_F32, GGUF_TYPE_Q5_0}};
    char path[TEMP_PATH_BYTES], name[32];
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        make_model_spec spec = make_model_default(types[i][0]);
        spec.type_alt = types[i][1];
        spec.tied = i % 2 == 0;
        snprintf(name, sizeof name, "pack-logits-%zu.gguf", i);
        assert_int_equal(make_model(temp_path(path, name), &spec, NULL), ST_OK);
        for (kern_set set = 0; set < KERN_SET_COUNT; set++) {
            if (kern_table_of(set)) {
                compare(path, set);
            }
        }
        unlink(path);
    }
}

static int set_up(void **state)
{
    temp_path(folder, "pack-logits");
    return 0;
}

static int tear_down(void **state)
{
    char command[TEMP_PATH_BYTES + 16];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_logits),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
