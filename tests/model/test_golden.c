/*
 * Golden digests: SHA-256 of the logits of made models. They detect change and judge nothing: what is right
 * is said by the fixtures and by tests/oracle.
 *
 * golden.txt: "numerics N", then one line per case: name, SHA-256 of the model file, SHA-256 of the logits.
 * Other logits of the same file under the same numerics version are a broken promise (P1: kept pages, packed
 * files and seeds would mean something else) and fail whatever is asked. HEARTH_REMAKE_GOLDEN=1 writes the
 * list anew when it may: NUMERICS_VERSION has risen, the made file itself is another (writer, quantiser,
 * maker), or the case is new.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/mem.h"
#include "model/make_model.h"
#include "model/rig.h"
#include "model/temp_path.h"

#define N_TOKENS  40
#define N_VOCAB   300
#define CHUNK     16
#define MAX_LINES 32

typedef struct golden_case {
    const char *name;
    const char *arch;
    gguf_type type, type_alt;
    bool tied, rope_freqs;
    kv_type kv;
} golden_case;

static const golden_case cases[] = {
    {"llama-f32", "llama", GGUF_TYPE_F32, GGUF_TYPE_F32, true, true, KV_F32},
    {"llama-f16", "llama", GGUF_TYPE_F16, GGUF_TYPE_F16, false, false, KV_F16},
    {"llama-bf16", "llama", GGUF_TYPE_BF16, GGUF_TYPE_BF16, true, false, KV_F16},
    {"llama-q8_0", "llama", GGUF_TYPE_Q8_0, GGUF_TYPE_Q8_0, true, false, KV_F32},
    {"llama-q4_0", "llama", GGUF_TYPE_Q4_0, GGUF_TYPE_Q4_0, false, true, KV_F16},
    {"llama-q4_k-q6_k", "llama", GGUF_TYPE_Q4_K, GGUF_TYPE_Q6_K, true, false, KV_F16},
    {"qwen3-f32", "qwen3", GGUF_TYPE_F32, GGUF_TYPE_F32, false, false, KV_F32},
    {"qwen3-q8_0", "qwen3", GGUF_TYPE_Q8_0, GGUF_TYPE_Q8_0, true, false, KV_F16},
    {"qwen3-q4_k-q6_k", "qwen3", GGUF_TYPE_Q4_K, GGUF_TYPE_Q6_K, false, false, KV_F32},
    {"llama-q4_1-q5_1", "llama", GGUF_TYPE_Q4_1, GGUF_TYPE_Q5_1, false, false, KV_F16},
    {"llama-q5_0-q5_k", "llama", GGUF_TYPE_Q5_0, GGUF_TYPE_Q5_K, false, false, KV_F16},
    {"llama-q2_k-q3_k", "llama", GGUF_TYPE_Q2_K, GGUF_TYPE_Q3_K, false, false, KV_F16},
    {"llama-iq4_nl-iq4_xs", "llama", GGUF_TYPE_IQ4_NL, GGUF_TYPE_IQ4_XS, false, false, KV_F16},
    {"llama-mxfp4-nvfp4", "llama", GGUF_TYPE_MXFP4, GGUF_TYPE_NVFP4, false, false, KV_F16},
    {"llama-tq1_0-tq2_0", "llama", GGUF_TYPE_TQ1_0, GGUF_TYPE_TQ2_0, false, false, KV_F16},
    {"llama-q1_0-q2_0", "llama", GGUF_TYPE_Q1_0, GGUF_TYPE_Q2_0, false, false, KV_F16},
    {"llama-kv-bf16", "llama", GGUF_TYPE_Q8_0, GGUF_TYPE_Q8_0, true, false, KV_BF16},
    {"qwen3-kv-q8_0", "qwen3", GGUF_TYPE_Q8_0, GGUF_TYPE_Q8_0, true, false, KV_Q8_0},
};

#define N_CASES (sizeof cases / sizeof *cases)

typedef struct golden_line {
    char name[32];
    char file[SHA256_HEX_LEN + 1];
    char logits[SHA256_HEX_LEN + 1];
} golden_line;

typedef struct golden_list {
    int numerics; /* 0: there is no list */
    golden_line lines[MAX_LINES];
    size_t n;
} golden_list;

static const char *list_path(void)
{
    static char path[4096];
    const char *root = getenv("HEARTH_ROOT");
    snprintf(path, sizeof path, "%s/tests/model/golden.txt", root ? root : ".");
    return path;
}

static void list_read(golden_list *list)
{
    FILE *f = fopen(list_path(), "r");
    memset(list, 0, sizeof *list);
    if (!f) {
        return;
    }
    assert_int_equal(fscanf(f, "numerics %d", &list->numerics), 1);
    golden_line *l = list->lines;
    while (list->n < MAX_LINES && fscanf(f, "%31s %64s %64s", l->name, l->file, l->logits) == 3) {
        l++;
        list->n++;
    }
    fclose(f);
}

static void list_write(const golden_line *lines)
{
    FILE *f = fopen(list_path(), "w");
    assert_non_null(f);
    fprintf(f, "numerics %d\n", NUMERICS_VERSION);
    for (size_t i = 0; i < N_CASES; i++) {
        fprintf(f, "%s %s %s\n", lines[i].name, lines[i].file, lines[i].logits);
    }
    assert_int_equal(fclose(f), 0);
}

static void digest(const void *data, size_t n, char *hex)
{
    uint8_t sum[SHA256_BYTES];
    assert_int_equal(sha256_once(data, n, sum), ST_OK);
    hex_encode(sum, sizeof sum, hex);
}

static void digest_file(const char *path, char *hex)
{
    static unsigned char bytes[16 << 20];
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t n = fread(bytes, 1, sizeof bytes, f);
    assert_true(n > 0 && n < sizeof bytes);
    fclose(f);
    digest(bytes, n, hex);
}

static golden_line compute(const golden_case *c)
{
    static float logits[N_TOKENS * N_VOCAB];
    golden_line l = {0};
    char path[TEMP_PATH_BYTES];
    int32_t tokens[N_TOKENS];
    make_model_spec spec = make_model_default(c->type);
    spec.arch = c->arch;
    spec.type_alt = c->type_alt;
    spec.tied = c->tied;
    spec.rope_freqs = c->rope_freqs;
    spec.seed = 4;
    assert_int_equal(make_model(temp_path(path, "golden.gguf"), &spec, NULL), ST_OK);
    rig_tokens(tokens, N_TOKENS, N_VOCAB, 4);
    rig_options opt = rig_options_of(kern_select(KERN_SET_COUNT - 1)->set);
    opt.kv = c->kv;
    opt.threads = 2;
    rig r;
    rig_open(&r, path, &opt);
    assert_true(rig_run(&r, tokens, N_TOKENS, CHUNK, logits));
    rig_close(&r);
    snprintf(l.name, sizeof l.name, "%s", c->name);
    digest_file(path, l.file);
    digest(logits, sizeof logits, l.logits);
    assert_int_equal(unlink(path), 0);
    return l;
}

static const golden_line *line_of(const golden_list *list, const char *name)
{
    for (size_t i = 0; i < list->n; i++) {
        if (strcmp(list->lines[i].name, name) == 0) {
            return &list->lines[i];
        }
    }
    return NULL;
}

/* 0: as kept; 1: differs, but a remake may follow; 2: other logits of the same file under the same numerics.
 */
static int compare(const golden_list *list, const golden_line *now)
{
    const golden_line *kept = line_of(list, now->name);
    if (list->numerics != NUMERICS_VERSION) {
        print_error(
            "golden.txt is of numerics version %d, this build of %d: remake it when the oracle passes\n",
            list->numerics, NUMERICS_VERSION);
        return 1;
    }
    if (!kept) {
        print_error("%s: not in golden.txt\n", now->name);
        return 1;
    }
    if (strcmp(kept->file, now->file) != 0) {
        print_error("%s: the made file is another one: writer, quantiser or maker changed\n", now->name);
        return 1;
    }
    if (strcmp(kept->logits, now->logits) != 0) {
        print_error("%s: other logits of the same file: the numerics changed and NUMERICS_VERSION did not\n",
                    now->name);
        return 2;
    }
    return 0;
}

static void test_golden(void **state)
{
    golden_list list;
    golden_line lines[N_CASES];
    int worst = 0;
    list_read(&list);
    for (size_t i = 0; i < N_CASES; i++) {
        lines[i] = compute(&cases[i]);
        int now = compare(&list, &lines[i]);
        worst = now > worst ? now : worst;
    }
    if (worst == 1 && getenv("HEARTH_REMAKE_GOLDEN")) {
        list_write(lines);
        print_message("golden.txt remade\n");
        return;
    }
    assert_int_equal(worst, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
