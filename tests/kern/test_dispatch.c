/*
 * dispatch: what detection says against /proc/cpuinfo (the kernel's own reading of the CPU), tables complete,
 * selection by `at_most`, names; and the set-up of activations against hand calculation.
 */
#include "kern_test.h"

/* The `flags` line of the first CPU, or "" where there is none. */
static const char *cpu_flags(void)
{
    static char line[8192];
    FILE *f = fopen("/proc/cpuinfo", "r");
    bool found = false;
    while (f && !found && fgets(line, sizeof line, f)) {
        found = strncmp(line, "flags", 5) == 0;
    }
    if (f) {
        fclose(f);
    }
    if (!found) {
        line[0] = 0;
    }
    return line;
}

static bool has_flags(const char *line, const char *const *names)
{
    for (; *names; names++) {
        char word[32];
        snprintf(word, sizeof word, " %s ", *names);
        char last[32];
        snprintf(last, sizeof last, " %s\n", *names);
        if (!strstr(line, word) && !strstr(line, last)) {
            return false;
        }
    }
    return true;
}

static void test_detection(void **state)
{
    static const char *const avx2[] = {"avx", "avx2", "fma", "f16c", NULL};
    static const char *const avx512[] = {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni",
                                         "avx2",    "fma",      "f16c",     NULL};
    static const char *const amx[] = {"amx_tile", "amx_int8", "amx_bf16", "avx512vbmi", "gfni", NULL};
    const char *line = cpu_flags();
    (void)state;
    assert_true(kern_set_on_cpu(KERN_REF));
#if !defined(__x86_64__)
    line = ""; /* under an emulator the file is the host's */
#else
    assert_false(kern_set_on_cpu(KERN_DOTPROD) || kern_set_on_cpu(KERN_I8MM));
#endif
    assert_int_equal(kern_set_on_cpu(KERN_AVX2), has_flags(line, avx2));
    assert_int_equal(kern_set_on_cpu(KERN_AVX512), has_flags(line, avx512));
    if (!has_flags(line, amx)) { /* having it is not enough: the kernel may refuse the permission */
        assert_false(kern_set_on_cpu(KERN_AMX));
    }
    printf("on this CPU: avx2 %d avx512 %d amx %d\n", kern_set_on_cpu(KERN_AVX2),
           kern_set_on_cpu(KERN_AVX512), kern_set_on_cpu(KERN_AMX));
}

static void table_check(const kern_table *t)
{
    const kern_table *ref = kern_table_of(KERN_REF);
    assert_non_null(t->act_prepare);
    assert_non_null(t->rms_norm);
    assert_non_null(t->add);
    assert_non_null(t->silu_mul);
    assert_non_null(t->rope);
    assert_non_null(t->rope_angles);
    assert_non_null(t->kv_store);
    assert_non_null(t->attention);
    assert_non_null(t->all_finite);
    assert_non_null(t->exp_array);
    assert_non_null(t->log_array);
    assert_non_null(t->tanh_array);
    assert_non_null(t->sin_cos_array);
    assert_non_null(t->argmax);
    assert_non_null(t->scale_tops);
    assert_non_null(t->softmax_terms);
    assert_non_null(t->sum_at_least);
    assert_non_null(t->at_least);
    assert_non_null(t->gumbel_argmax);
    for (int type = 0; type < GGUF_TYPE_COUNT; type++) {
        /* a type has a kernel exactly if it wants activations, in every set */
        bool wanted = kern_act_kind_of((gguf_type)type) != KERN_ACT_NONE;
        assert_int_equal(t->matmul[type] != NULL, wanted);
        assert_int_equal(ref->matmul[type] != NULL, wanted);
    }
}

static void test_tables(void **state)
{
    const kern_table *t;
    (void)state;
    for (int s = -1; (t = sets_next(&s));) {
        assert_int_equal(t->set, s);
        assert_string_equal(t->name, kern_set_name((kern_set)s));
        table_check(t);
    }
    for (int s = 0; s < KERN_SET_COUNT; s++) {
        bool both = kern_set_built((kern_set)s) && kern_set_on_cpu((kern_set)s);
        assert_int_equal(kern_table_of((kern_set)s) != NULL, both);
    }
}

/* The highest set that is there and not above `at_most`. */
static void test_select(void **state)
{
    (void)state;
    assert_ptr_equal(kern_select(KERN_REF), kern_table_of(KERN_REF));
    for (int most = 0; most < KERN_SET_COUNT; most++) {
        const kern_table *t = kern_select((kern_set)most);
        assert_non_null(t);
        assert_true((int)t->set <= most);
        for (int s = (int)t->set + 1; s <= most; s++) {
            assert_null(kern_table_of((kern_set)s));
        }
    }
}

static void test_names(void **state)
{
    static const char *const names[KERN_SET_COUNT] = {"ref", "avx2", "avx512", "amx", "dotprod", "i8mm"};
    static const char *const bad[] = {"", "AVX2", "sse", "avx2 ", "avx"};
    kern_set set = KERN_AMX;
    err e;
    (void)state;
    for (int s = 0; s < KERN_SET_COUNT; s++) {
        assert_int_equal(kern_set_parse(names[s], &set, &e), ST_OK);
        assert_int_equal(set, s);
        assert_string_equal(kern_set_name(set), names[s]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(kern_set_parse(bad[i], &set, &e), ST_INVALID_FIELD);
        assert_string_equal(e.field, "cpu");
        assert_int_equal(set, KERN_I8MM); /* as the last good name left it */
    }
}

static void test_act_kinds(void **state)
{
    static const struct {
        gguf_type type;
        kern_act_kind kind;
    } cases[] = {
        {GGUF_TYPE_F32, KERN_ACT_F32},       {GGUF_TYPE_F16, KERN_ACT_F32},
        {GGUF_TYPE_BF16, KERN_ACT_BF16},     {GGUF_TYPE_Q8_0, KERN_ACT_Q8_32},
        {GGUF_TYPE_Q4_0, KERN_ACT_Q8_32},    {GGUF_TYPE_Q4_K, KERN_ACT_Q8_256},
        {GGUF_TYPE_Q6_K, KERN_ACT_Q8_256},   {GGUF_TYPE_Q8_K, KERN_ACT_NONE},
        {GGUF_TYPE_I32, KERN_ACT_NONE},      {GGUF_TYPE_Q4_1, KERN_ACT_Q8_32},
        {GGUF_TYPE_Q5_0, KERN_ACT_Q8_32},    {GGUF_TYPE_Q5_1, KERN_ACT_Q8_32},
        {GGUF_TYPE_IQ4_NL, KERN_ACT_Q8_32},  {GGUF_TYPE_MXFP4, KERN_ACT_Q8_32},
        {GGUF_TYPE_NVFP4, KERN_ACT_Q8_32},   {GGUF_TYPE_Q1_0, KERN_ACT_Q8_32},
        {GGUF_TYPE_Q2_0, KERN_ACT_Q8_32},    {GGUF_TYPE_Q2_K, KERN_ACT_Q8_256},
        {GGUF_TYPE_Q3_K, KERN_ACT_Q8_256},   {GGUF_TYPE_Q5_K, KERN_ACT_Q8_256},
        {GGUF_TYPE_IQ4_XS, KERN_ACT_Q8_256}, {GGUF_TYPE_TQ1_0, KERN_ACT_Q8_256},
        {GGUF_TYPE_TQ2_0, KERN_ACT_Q8_256},  {GGUF_TYPE_Q8_1, KERN_ACT_NONE},
        {GGUF_TYPE_IQ2_XS, KERN_ACT_Q8_256}, {GGUF_TYPE_IQ1_S, KERN_ACT_Q8_256},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(kern_act_kind_of(cases[i].type), cases[i].kind);
    }
    assert_int_equal(kern_act_kind_of((gguf_type)4), KERN_ACT_NONE); /* a removed id */
}

static void test_act_buffers(void **state)
{
    /* Bytes by hand; each part rounded up to 64. */
    static const struct {
        kern_act_kind kind;
        size_t m, k, bytes, n_blocks, d_at, sums_at;
    } cases[] = {
        {KERN_ACT_F32, 3, 100, 1216, 0, 0, 0},              /* 1200 */
        {KERN_ACT_BF16, 1, 16, 64, 0, 0, 0},                /* one run of 32 */
        {KERN_ACT_BF16, 9, 33, 2048, 0, 0, 0},              /* 16 rows, two runs */
        {KERN_ACT_Q8_32, 2, 64, 128 + 3 * 64, 2, 128, 192}, /* 128 codes, 4 d, 8 sums, 4 totals */
        {KERN_ACT_Q8_32, 1, 33, 64 + 3 * 64, 2, 64, 128},   /* 64 codes, 2 d, 4 sums, 2 totals */
        {KERN_ACT_Q8_32, 9, 32, 1024 + 3 * 64 + 0, 1, 1024,
         1088}, /* 16 rows of 64, 16 d, 32 sums, 16 totals */
        {KERN_ACT_Q8_256, 3, 300, 1536 + 64 + 192 + 384, 2, 1536, 1600}, /* 6 d, 96 sums, 192 halves */
    };
    static _Alignas(64) unsigned char mem[2176];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        kern_act a;
        assert_int_equal(kern_act_bytes(cases[i].kind, cases[i].m, cases[i].k), cases[i].bytes);
        kern_act_init(&a, cases[i].kind, cases[i].m, cases[i].k, mem);
        assert_int_equal(a.kind, cases[i].kind);
        assert_int_equal(a.m, cases[i].m);
        assert_int_equal(a.k, cases[i].k);
        assert_int_equal(a.n_blocks, cases[i].n_blocks);
        bool codes = cases[i].kind == KERN_ACT_Q8_32 || cases[i].kind == KERN_ACT_Q8_256;
        assert_ptr_equal(a.f32, cases[i].kind == KERN_ACT_F32 ? mem : NULL);
        assert_ptr_equal(a.bf16, cases[i].kind == KERN_ACT_BF16 ? mem : NULL);
        assert_ptr_equal(a.q, codes ? mem : NULL);
        assert_ptr_equal(a.d, codes ? mem + cases[i].d_at : NULL);
        assert_ptr_equal(a.sums, codes ? mem + cases[i].sums_at : NULL);
    }
    assert_int_equal(kern_act_bytes(KERN_ACT_NONE, 5, 5), 0);
    assert_int_equal(kern_act_bytes(KERN_ACT_F32, SIZE_MAX / 4, 2), 0);
    assert_int_equal(kern_act_bytes(KERN_ACT_F32, SIZE_MAX / 4, 1), 0); /* the rounding overflows */
    assert_int_equal(kern_act_bytes(KERN_ACT_Q8_32, 1, SIZE_MAX), 0);
    assert_int_equal(kern_act_bytes(KERN_ACT_Q8_256, SIZE_MAX, SIZE_MAX), 0);
    assert_int_equal(kern_act_bytes(KERN_ACT_Q8_32, SIZE_MAX / 32, 32), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_detection),     cmocka_unit_test(test_tables),
        cmocka_unit_test(test_select),        cmocka_unit_test(test_names),
        cmocka_unit_test(test_act_kinds),     cmocka_unit_test(test_act_buffers),
        cmocka_unit_test(test_every_set_ran),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
