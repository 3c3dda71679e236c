/*
 * model_open: what it tells about a good file (numbers worked out by hand below), and that a file which is
 * wrong in one place is refused with the key or tensor named.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "model/edit_model.h"
#include "model/make_model.h"
#include "model/model.h"
#include "model/temp_path.h"

static const model_options options = {.kv_type = KV_F16, .max_rows = 8, .max_logit_rows = 4};

static char good_path[TEMP_PATH_BYTES], bad_path[TEMP_PATH_BYTES];

/* llama, width 64, 2 layers, heads 4:2 of 16, ffn 96, 300 tokens, tied, all F32. */
static make_model_spec good_spec(void)
{
    make_model_spec spec = make_model_default(GGUF_TYPE_F32);
    spec.width = 64;
    spec.head_dim = 16;
    spec.n_ff = 96;
    spec.vocab = MAKE_VOCAB_SPM;
    return spec;
}

static int set_up(void **state)
{
    make_model_spec spec = good_spec();
    temp_path(bad_path, "load-bad.gguf");
    return make_model(temp_path(good_path, "load.gguf"), &spec, NULL) == ST_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    unlink(bad_path);
    return unlink(good_path);
}

/* Opens file and model; the first failure's status. */
static status try_open(const char *path, err *e)
{
    gguf_file *f = NULL;
    model *m = NULL;
    status st = gguf_open(path, &f, e);
    if (st == ST_OK) {
        st = model_open(f, kern_table_of(KERN_REF), &options, &m, e);
        assert_true((st == ST_OK) == (m != NULL));
    }
    model_free(m);
    gguf_close(f);
    return st;
}

static void test_good_file(void **state)
{
    gguf_file *f = NULL;
    model *m = NULL;
    assert_int_equal(gguf_open(good_path, &f, NULL), ST_OK);
    assert_int_equal(model_open(f, kern_table_of(KERN_REF), &options, &m, NULL), ST_OK);
    const model_shape *s = model_shape_of(m);
    assert_string_equal(s->arch, "llama");
    assert_int_equal(s->n_layers, 2);
    assert_int_equal(s->n_embd, 64);
    assert_int_equal(s->n_ff, 96);
    assert_int_equal(s->n_heads, 4);
    assert_int_equal(s->n_kv_heads, 2);
    assert_int_equal(s->k_dim, 16);
    assert_int_equal(s->v_dim, 16);
    assert_int_equal(s->n_rot, 16);
    assert_int_equal(s->n_vocab, 300);
    assert_int_equal(s->n_ctx_train, 512);
    /* Layer: q and o 4096 each, k and v 2048 each, gate, up, down 6144 each: 30720 in matrices, 128 in norms.
     * Embedding 19200, last norm 64. */
    assert_int_equal(model_params(m), 2 * (30720 + 128) + 19200 + 64);
    /* Read per token: the layers' matrices, the output (here the embedding), one row of the embedding. */
    assert_int_equal(model_bytes_per_token(m), 4 * (2 * 30720 + 19200 + 64));
    assert_string_equal(model_quant_name(m), "F32");
    forward_ops ops = model_forward_ops(m);
    assert_ptr_equal(ops.ctx, m);
    assert_ptr_equal(ops.shape, s);
    /* 2 layers x 2 heads x (16 + 16) values x 32 positions x 2 bytes. */
    assert_int_equal(ops.page_bytes, 2 * 2 * 32 * 32 * 2);
    assert_int_equal(ops.max_rows, 8);
    assert_int_equal(ops.max_logit_rows, 4);
    model_free(m);
    gguf_close(f);
    model_free(NULL);
}

static void test_arch_names(void **state)
{
    assert_string_equal(model_arch_name(0), "llama");
    assert_string_equal(model_arch_name(1), "qwen3");
    assert_null(model_arch_name(2));
    assert_null(model_arch_name(SIZE_MAX));
}

static void test_quant_name_counts_values(void **state)
{
    make_model_spec spec = make_model_default(GGUF_TYPE_Q4_K);
    gguf_file *f = NULL;
    model *m = NULL;
    spec.type_alt = GGUF_TYPE_Q6_K; /* v and down: the smaller part */
    assert_int_equal(make_model(bad_path, &spec, NULL), ST_OK);
    assert_int_equal(gguf_open(bad_path, &f, NULL), ST_OK);
    assert_int_equal(model_open(f, kern_table_of(KERN_REF), &options, &m, NULL), ST_OK);
    assert_string_equal(model_quant_name(m), "Q4_K");
    /* Rows of 256: 144 bytes in Q4_K, 210 in Q6_K. Layer: q, o 256 rows, k 128, gate and up 512 each in Q4_K;
     * v 128 and down (256 rows of 512) 512 in Q6_K. Output 300 rows, one row of the embedding. */
    assert_int_equal(model_bytes_per_token(m), 2 * (1664 * 144 + 640 * 210) + 301 * 144);
    model_free(m);
    gguf_close(f);
}

static void test_bad_options(void **state)
{
    static const struct {
        size_t max_rows, max_logit_rows;
        const char *field;
    } cases[] = {
        {0, 1, "max_rows"}, {4097, 1, "max_rows"}, {8, 0, "max_logit_rows"}, {8, 9, "max_logit_rows"}};
    gguf_file *f = NULL;
    assert_int_equal(gguf_open(good_path, &f, NULL), ST_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const model_options opt = {.max_rows = cases[i].max_rows, .max_logit_rows = cases[i].max_logit_rows};
        model *m = NULL;
        err e;
        assert_int_equal(model_open(f, kern_table_of(KERN_REF), &opt, &m, &e), ST_INVALID_FIELD);
        assert_string_equal(e.field, cases[i].field);
        assert_null(m);
    }
    gguf_close(f);
}

typedef struct load_case {
    model_edit edits[2];
    status want;
    const char *field;
    const char *says; /* part of the message, or NULL */
} load_case;

#define U32(key, v)                                \
    {                                              \
        .kind = EDIT_U32, .name = key, .number = v \
    }
#define F32(key, v)                                \
    {                                              \
        .kind = EDIT_F32, .name = key, .number = v \
    }
#define STR(key, v)                              \
    {                                            \
        .kind = EDIT_STR, .name = key, .text = v \
    }
#define DROP(key)                      \
    {                                  \
        .kind = EDIT_DROP, .name = key \
    }
#define PAIR(key, a, b)                                              \
    {                                                                \
        .kind = EDIT_ARRAY, .name = key, .list = {a, b}, .n_list = 2 \
    }
#define TENSOR(key, t, k, n)                                                      \
    {                                                                             \
        .kind = EDIT_TENSOR, .name = key, .type = GGUF_TYPE_##t, .dims = { k, n } \
    }
#define HEADS    "llama.attention.head_count"
#define KV_HEADS "llama.attention.head_count_kv"
#define EPS      "llama.attention.layer_norm_rms_epsilon"

static const load_case cases[] = {
    /* architecture */
    {{DROP("general.architecture")}, ST_LOAD_FAILED, "general.architecture", "missing"},
    {{STR("general.architecture", "gpt9")}, ST_UNSUPPORTED, "general.architecture", "'gpt9'"},
    {{STR("general.architecture", "llam")}, ST_UNSUPPORTED, "general.architecture", "llama, qwen3"},
    {{STR("general.architecture", "")}, ST_UNSUPPORTED, "general.architecture", NULL},
    {{U32("general.architecture", 1)}, ST_LOAD_FAILED, "general.architecture", NULL},
    /* counts */
    {{DROP("llama.block_count")}, ST_LOAD_FAILED, "llama.block_count", "missing"},
    {{U32("llama.block_count", 0)}, ST_LOAD_FAILED, "llama.block_count", "is 0"},
    {{U32("llama.block_count", 1e9)}, ST_LOAD_FAILED, "llama.block_count", "1000000000"},
    {{U32("llama.block_count", 3)}, ST_LOAD_FAILED, "blk.2.attn_norm.weight", "missing"},
    {{U32("llama.block_count", 1)}, ST_UNSUPPORTED, "blk.1.attn_norm.weight", "no place"},
    {{F32("llama.block_count", 2)}, ST_LOAD_FAILED, "llama.block_count", NULL},
    {{DROP("llama.embedding_length")}, ST_LOAD_FAILED, "llama.embedding_length", "missing"},
    {{U32("llama.embedding_length", 0)}, ST_LOAD_FAILED, "llama.embedding_length", "is 0"},
    {{U32("llama.embedding_length", 32)},
     ST_LOAD_FAILED,
     "token_embd.weight",
     "is 64 x 300, it must be 32 x 300"},
    {{U32("llama.feed_forward_length", 97)},
     ST_LOAD_FAILED,
     "blk.0.ffn_gate.weight",
     "is 64 x 96, it must be 64 x 97"},
    {{DROP("llama.feed_forward_length")}, ST_LOAD_FAILED, "llama.feed_forward_length", "missing"},
    {{DROP("llama.context_length")}, ST_LOAD_FAILED, "llama.context_length", "missing"},
    {{U32("llama.context_length", 0)}, ST_LOAD_FAILED, "llama.context_length", "is 0"},
    /* heads */
    {{U32(HEADS, 0)}, ST_LOAD_FAILED, HEADS, "is 0"},
    {{DROP(HEADS)}, ST_LOAD_FAILED, HEADS, "missing"},
    {{U32(HEADS, 5000)}, ST_LOAD_FAILED, HEADS, "5000"},
    {{U32(HEADS, 6), DROP("llama.attention.key_length")}, ST_LOAD_FAILED, HEADS, "64"},
    {{U32(HEADS, 5)}, ST_LOAD_FAILED, KV_HEADS, "5 query heads cannot share 2"},
    {{U32(KV_HEADS, 0)}, ST_LOAD_FAILED, KV_HEADS, "is 0"},
    {{U32(KV_HEADS, 3)}, ST_LOAD_FAILED, KV_HEADS, "4 query heads cannot share 3"},
    {{U32(KV_HEADS, 1)}, ST_LOAD_FAILED, "blk.0.attn_k.weight", "is 64 x 32, it must be 64 x 16"},
    {{DROP(KV_HEADS)}, ST_LOAD_FAILED, "blk.0.attn_k.weight", "it must be 64 x 64"},
    {{PAIR(KV_HEADS, 2, 2)}, ST_OK, "", NULL},
    {{PAIR(KV_HEADS, 2, 4)}, ST_UNSUPPORTED, KV_HEADS, "differs between layers"},
    {{PAIR(KV_HEADS, 0, 0)}, ST_LOAD_FAILED, KV_HEADS, "is 0"},
    {{PAIR(KV_HEADS, -2, -2)}, ST_LOAD_FAILED, KV_HEADS, NULL},
    {{{.kind = EDIT_ARRAY, .name = KV_HEADS, .list = {2, 2, 2}, .n_list = 3}},
     ST_LOAD_FAILED,
     KV_HEADS,
     "3 values"},
    {{U32("llama.attention.key_length", 2000)}, ST_LOAD_FAILED, "llama.attention.key_length", "2000"},
    {{U32("llama.attention.value_length", 8)}, ST_LOAD_FAILED, "blk.0.attn_v.weight", "it must be 64 x 16"},
    {{DROP("llama.attention.key_length"), DROP("llama.attention.value_length")}, ST_OK, "", NULL},
    /* constants */
    {{DROP(EPS)}, ST_LOAD_FAILED, EPS, "missing"},
    {{F32(EPS, 0)}, ST_LOAD_FAILED, EPS, "is 0"},
    {{F32(EPS, -1e-5)}, ST_LOAD_FAILED, EPS, NULL},
    {{F32(EPS, (double)NAN)}, ST_LOAD_FAILED, EPS, NULL},
    {{F32("llama.rope.freq_base", (double)NAN)}, ST_LOAD_FAILED, "llama.rope.freq_base", NULL},
    {{F32("llama.rope.freq_base", (double)INFINITY)}, ST_LOAD_FAILED, "llama.rope.freq_base", NULL},
    {{F32("llama.rope.freq_base", 0)}, ST_LOAD_FAILED, "llama.rope.freq_base", "is 0"},
    {{F32("llama.rope.freq_base", -10000)}, ST_LOAD_FAILED, "llama.rope.freq_base", "-10000"},
    {{STR("llama.rope.freq_base", "10000")}, ST_LOAD_FAILED, "llama.rope.freq_base", NULL},
    {{DROP("llama.rope.freq_base")}, ST_OK, "", NULL},
    {{DROP("llama.rope.dimension_count")}, ST_OK, "", NULL},
    {{U32("llama.rope.dimension_count", 8)}, ST_OK, "", NULL},
    {{U32("llama.rope.dimension_count", 7)}, ST_LOAD_FAILED, "llama.rope.dimension_count", "7"},
    {{U32("llama.rope.dimension_count", 18)}, ST_LOAD_FAILED, "llama.rope.dimension_count", "18"},
    {{STR("llama.rope.scaling.type", "none"), F32("llama.rope.scaling.factor", 4)}, ST_OK, "", NULL},
    {{STR("llama.rope.scaling.type", "yarn")}, ST_UNSUPPORTED, "llama.rope.scaling.type", "'yarn'"},
    {{STR("llama.rope.scaling.type", "llama3")}, ST_UNSUPPORTED, "llama.rope.scaling.type", "'llama3'"},
    {{STR("llama.rope.scaling.type", "llama3"),
      {.kind = EDIT_TENSOR,
       .name = "rope_freqs.weight",
       .dims = {8, 0},
       .data = (const float[]){1, 1, 1, 1, 2, 4, 8, 8}}},
     ST_OK,
     "",
     NULL},
    {{F32("llama.rope.scaling.factor", 0)}, ST_LOAD_FAILED, "llama.rope.scaling.factor", "is 0"},
    {{TENSOR("rope_freqs.weight", F32, 8, 0)}, ST_LOAD_FAILED, "rope_freqs.weight", "holds 0 at 0"},
    {{TENSOR("rope_freqs.weight", F32, 16, 0)}, ST_LOAD_FAILED, "rope_freqs.weight", "is 16, it must be 8"},
    /* what is not computed yet is not left out in silence */
    {{U32("llama.expert_count", 8)}, ST_UNSUPPORTED, "llama.expert_count", "is 8"},
    {{U32("llama.expert_count", 0)}, ST_OK, "", NULL},
    {{U32("llama.attention.sliding_window", 16)}, ST_UNSUPPORTED, "llama.attention.sliding_window", "is 16"},
    {{U32("llama.attention.sliding_window", 512)}, ST_OK, "", NULL},
    {{F32("llama.attn_logit_softcapping", 50)}, ST_UNSUPPORTED, "llama.attn_logit_softcapping", "is 50"},
    {{F32("llama.logit_scale", 0.5)}, ST_UNSUPPORTED, "llama.logit_scale", "is 0.5"},
    {{F32("llama.logit_scale", 1)}, ST_OK, "", NULL},
    {{STR("llama.logit_scale", "2")}, ST_UNSUPPORTED, "llama.logit_scale", NULL},
    {{TENSOR("blk.0.attn_q.bias", F32, 64, 0)}, ST_UNSUPPORTED, "blk.0.attn_q.bias", "no place"},
    {{TENSOR("blk.1.ffn_gate_exps.weight", F32, 64, 96)},
     ST_UNSUPPORTED,
     "blk.1.ffn_gate_exps.weight",
     "no place"},
    {{TENSOR("blk.00.attn_q.weight", F32, 64, 64)}, ST_UNSUPPORTED, "blk.00.attn_q.weight", "no place"},
    {{TENSOR("blk.4294967296.attn_q.weight", F32, 64, 64)},
     ST_UNSUPPORTED,
     "blk.4294967296.attn_q.weight",
     NULL},
    {{TENSOR("blk..attn_q.weight", F32, 64, 64)}, ST_UNSUPPORTED, "blk..attn_q.weight", NULL},
    /* vocabulary */
    {{U32("llama.vocab_size", 299)},
     ST_LOAD_FAILED,
     "llama.vocab_size",
     "is 299 but token_embd.weight has 300"},
    {{U32("llama.vocab_size", 300)}, ST_OK, "", NULL},
    {{TENSOR("token_embd.weight", F32, 64, 301)},
     ST_LOAD_FAILED,
     "tokenizer.ggml.tokens",
     "has 300 tokens but token_embd.weight has 301"},
    {{TENSOR("output.weight", F32, 64, 299)},
     ST_LOAD_FAILED,
     "output.weight",
     "is 64 x 299, it must be 64 x 300"},
    {{TENSOR("output.weight", F32, 64, 300)}, ST_OK, "", NULL},
    /* types */
    {{TENSOR("blk.1.attn_norm.weight", Q8_0, 64, 0)}, ST_UNSUPPORTED, "blk.1.attn_norm.weight", "type Q8_0"},
    {{TENSOR("blk.1.attn_norm.weight", F16, 64, 0)}, ST_OK, "", NULL},
    {{TENSOR("blk.1.ffn_up.weight", Q5_0, 64, 96)}, ST_OK, "", NULL},
    {{TENSOR("blk.1.ffn_up.weight", Q8_1, 64, 96)}, ST_UNSUPPORTED, "blk.1.ffn_up.weight", "type Q8_1"},
    {{TENSOR("token_embd.weight", Q8_1, 64, 300)}, ST_UNSUPPORTED, "token_embd.weight", "type Q8_1"},
    {{TENSOR("blk.1.ffn_up.weight", I32, 64, 96)}, ST_UNSUPPORTED, "blk.1.ffn_up.weight", "type I32"},
};

static void test_bad_files(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const load_case *c = &cases[i];
        err e = {0};
        if (edit_model(good_path, bad_path, c->edits, 2, &e) != ST_OK) {
            print_error("case %zu (%s): edit failed: %s\n", i, c->edits[0].name, e.msg);
            fail();
        }
        e = (err){0};
        status st = try_open(bad_path, &e);
        if (st != c->want || strcmp(e.field, c->field) != 0 || (c->says && !strstr(e.msg, c->says))) {
            print_error("case %zu (%s): %s [%s] %s\n", i, c->edits[0].name, status_name(st), e.field, e.msg);
            fail();
        }
    }
}

/* Every tensor in turn: gone, or with one row or value less. */
static void test_every_tensor(void **state)
{
    gguf_file *f = NULL;
    assert_int_equal(gguf_open(good_path, &f, NULL), ST_OK);
    for (size_t i = 0; i < gguf_n_tensors(f); i++) {
        const gguf_tensor *t = gguf_tensor_at(f, i);
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)t->name.len, t->name.data);
        const model_edit edits[] = {
            DROP(name),
            {.kind = EDIT_TENSOR,
             .name = name,
             .type = t->type,
             .dims = {t->dims[0] - 1, t->n_dims > 1 ? t->dims[1] : 0}},
            {.kind = EDIT_TENSOR,
             .name = name,
             .type = t->type,
             .dims = {t->dims[0], t->n_dims > 1 ? t->dims[1] - 1 : 2}},
        };
        for (size_t j = 0; j < 3; j++) {
            err e = {0};
            assert_int_equal(edit_model(good_path, bad_path, &edits[j], 1, NULL), ST_OK);
            assert_int_equal(try_open(bad_path, &e), ST_LOAD_FAILED);
            bool vocabulary = strcmp(name, "token_embd.weight") == 0 && j == 2;
            assert_string_equal(e.field, vocabulary ? "tokenizer.ggml.tokens" : name);
        }
    }
    gguf_close(f);
}

/* A row that does not fill blocks cannot be written by our writer: patch the record of a good file. */
static void test_rows_not_whole_blocks(void **state)
{
    static const char name[] = "blk.0.attn_q.weight";
    make_model_spec spec = make_model_default(GGUF_TYPE_Q4_K);
    static unsigned char bytes[4 << 20];
    const uint64_t k = 250;
    err e = {0};
    assert_int_equal(make_model(bad_path, &spec, NULL), ST_OK);
    FILE *f = fopen(bad_path, "r+b");
    assert_non_null(f);
    size_t n = fread(bytes, 1, sizeof bytes, f);
    unsigned char *at = memmem(bytes, n, name, sizeof name - 1);
    assert_non_null(at);
    /* name, u32 number of dimensions, u64 row length … */
    assert_int_equal(fseek(f, (long)(at - bytes) + (long)sizeof name - 1 + 4, SEEK_SET), 0);
    assert_int_equal(fwrite(&k, sizeof k, 1, f), 1);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(try_open(bad_path, &e), ST_LOAD_FAILED);
    assert_string_equal(e.field, name);
}

static void test_failing_memory(void **state)
{
    static const char *const norms[] = {"f32", "f16"};
    for (size_t i = 0; i < 2; i++) {
        make_model_spec spec = good_spec();
        gguf_file *f = NULL;
        model *m = NULL;
        spec.arch = "qwen3";
        spec.norm_type =
            i == 0 ? GGUF_TYPE_F32 : GGUF_TYPE_F16; /* widened norms are taken from the arena too */
        assert_int_equal(make_model(bad_path, &spec, NULL), ST_OK);
        assert_int_equal(gguf_open(bad_path, &f, NULL), ST_OK);
        uint64_t before = mem_alloc_count();
        assert_int_equal(model_open(f, kern_table_of(KERN_REF), &options, &m, NULL), ST_OK);
        uint64_t n = mem_alloc_count() - before;
        model_free(m);
        print_message("%s norms: %llu allocations\n", norms[i], (unsigned long long)n);
        assert_true(n > 2);
        for (uint64_t j = 1; j <= n; j++) {
            err e = {0};
            m = NULL;
            mem_fail_at(j, false);
            status st = model_open(f, kern_table_of(KERN_REF), &options, &m, &e);
            mem_fail_at(0, false);
            assert_int_equal(st, ST_NOMEM);
            assert_int_equal(e.code, ST_NOMEM);
            assert_null(m);
        }
        gguf_close(f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_file),
        cmocka_unit_test(test_arch_names),
        cmocka_unit_test(test_quant_name_counts_values),
        cmocka_unit_test(test_bad_options),
        cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_every_tensor),
        cmocka_unit_test(test_rows_not_whole_blocks),
        cmocka_unit_test(test_failing_memory),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
