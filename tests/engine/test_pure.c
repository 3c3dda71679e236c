/*
 * P1 on a real forward pass: a sampled reply with 20 logprobs a token has the same bits for every chunk size,
 * thread count and instruction set, alone or beside others, cold or warm, in fresh pages or in used ones; and
 * the same bits when its tokens are scored as a prompt.
 */
#include "engine/test_main.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/philox.h"
#include "base/vec.h"
#include "engine/instance.h"
#include "model/make_model.h"

#define N_PROMPT 70
#define N_LONG   280 /* more than one span of attention */
#define N_NEW    8
#define N_VOCAB  320

static char path[] = "/tmp/hearth-pure-XXXXXX";

typedef struct heard {
    ivec ids;
    ivec probs; /* ids and bits */
    int32_t reused;
    bool over;
} heard;

static void keep(heard *h, const token_logprob *p)
{
    int32_t bits;
    memcpy(&bits, &p->logprob, sizeof bits);
    assert_int_equal(ivec_push(&h->probs, p->token), ST_OK);
    assert_int_equal(ivec_push(&h->probs, bits), ST_OK);
}

static void on_token(void *ctx, const gen_token *t)
{
    heard *h = ctx;
    assert_int_equal(ivec_push(&h->ids, t->token), ST_OK);
    if (t->probs) {
        keep(h, &t->probs->chosen);
        for (int32_t i = 0; i < t->probs->n_top; i++) {
            keep(h, &t->probs->top[i]);
        }
    }
}

static void on_done(void *ctx, const gen_result *g)
{
    ((heard *)ctx)->over = true;
    ((heard *)ctx)->reused = g->reused_tokens;
}

static void on_failed(void *ctx, const err *e)
{
    fail_msg("a reply failed: %s", e->msg);
}

static void some_tokens(int32_t *out, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t ctr[4] = {(uint32_t)i, 0, 0, 0}, key[2] = {seed, 5}, got[4];
        philox4x32_10(ctr, key, got);
        out[i] = (int32_t)(got[0] % N_VOCAB);
    }
}

static sequence *submit(instance *in, heard *h, uint32_t which, size_t n_prompt, session *s)
{
    int32_t p[512];
    sequence *seq;
    err e;
    some_tokens(p, n_prompt, which);
    gen_request q = {.prompt = p, .n_prompt = n_prompt, .max_new_tokens = N_NEW, .session = s};
    q.params = sampling_default();
    q.params.temperature = 0.9f;
    q.params.top_p = 0.95f;
    q.params.repetition_penalty = 1.1f;
    q.params.ignore_eos = true;
    q.params.seed = 42 + which;
    q.params.top_logprobs = 20;
    q.sink = (gen_sink){.ctx = h, .token = on_token, .done = on_done, .failed = on_failed};
    if (engine_submit(instance_engine(in), &q, &seq, &e) != ST_OK) {
        fail_msg("%s", e.msg);
    }
    return seq;
}

static void drain(instance *in)
{
    while (engine_step(instance_engine(in))) {
    }
    assert_int_equal(engine_running(instance_engine(in)), 0);
}

static void release(heard *h)
{
    ivec_release(&h->ids);
    ivec_release(&h->probs);
    memset(h, 0, sizeof *h);
}

static void expect_same(const heard *a, const heard *b)
{
    assert_true(a->over && b->over);
    assert_int_equal(a->ids.len, N_NEW);
    assert_int_equal(a->probs.len, N_NEW * 42);
    assert_int_equal(b->ids.len, N_NEW);
    assert_int_equal(b->probs.len, a->probs.len);
    assert_memory_equal(a->ids.data, b->ids.data, N_NEW * sizeof(int32_t));
    assert_memory_equal(a->probs.data, b->probs.data, a->probs.len * sizeof(int32_t));
}

static instance *open_instance(kern_set set, size_t threads, size_t chunk, kv_type kv)
{
    instance_options o = instance_options_default();
    instance *in = NULL;
    err e;
    o.cpu = set;
    o.threads = threads;
    o.prefill_chunk = chunk;
    o.kv_type = kv;
    o.max_sequences = 4;
    if (instance_open(path, &o, &in, &e) != ST_OK) {
        fail_msg("instance_open: %s", e.msg);
    }
    return in;
}

/* Three others in the batch, at different places of their own. */
static void run_beside(instance *in, const heard *want)
{
    heard h = {0}, others[3];
    memset(others, 0, sizeof others);
    submit(in, &others[0], 1, 40, NULL);
    engine_step(instance_engine(in));
    submit(in, &others[1], 2, 150, NULL);
    submit(in, &h, 0, N_PROMPT, NULL);
    engine_step(instance_engine(in));
    submit(in, &others[2], 3, 7, NULL);
    drain(in);
    expect_same(want, &h);
    release(&h);
    for (size_t i = 0; i < 3; i++) {
        release(&others[i]);
    }
}

/* Warm: the same prompt again (all but its last token reused), then after a detour that shares 40 tokens. */
static void run_warm(instance *in, const heard *want)
{
    static const int32_t reused[] = {0, N_PROMPT - 1, N_PROMPT - 1};
    heard h = {0};
    session *s;
    assert_int_equal(session_open(instance_engine(in), &s), ST_OK);
    for (size_t i = 0; i < N_OF(reused); i++) {
        submit(in, &h, 0, N_PROMPT, s);
        drain(in);
        expect_same(want, &h);
        assert_int_equal(h.reused, reused[i]);
        release(&h);
    }
    submit(in, &h, 0, 40, s); /* shorter: equal; then on from inside a page */
    drain(in);
    release(&h);
    submit(in, &h, 0, N_PROMPT, s);
    drain(in);
    expect_same(want, &h);
    assert_int_equal(h.reused, 40); /* the detour's reply is dropped */
    release(&h);
    session_close(s);
}

/* The undisturbed reply: alone, one thread, one row at a time. */
static void reference(heard *h, kern_set set, kv_type kv, size_t n_prompt)
{
    instance *in = open_instance(set, 1, 1, kv);
    submit(in, h, 0, n_prompt, NULL);
    drain(in);
    instance_close(in);
}

static void test_same_bits(void **state)
{
    static const struct {
        kern_set set;
        size_t threads, chunk;
        bool others; /* beside others and warm too */
    } rows[] = {
        {KERN_REF, 2, 1, false}, {KERN_REF, 1, 7, true},  {KERN_REF, 2, 32, false}, {KERN_REF, 1, 512, false},
        {KERN_AVX2, 1, 1, true}, {KERN_AVX2, 2, 7, true}, {KERN_AVX2, 1, 32, true}, {KERN_AVX2, 2, 512, true},
    };
    heard want = {0};
    reference(&want, KERN_REF, KV_F32, N_PROMPT);
    for (size_t i = 0; i < N_OF(rows); i++) {
        if (!kern_table_of(rows[i].set)) {
            fprintf(stderr, "SKIPPED: no %s on this CPU\n", kern_set_name(rows[i].set));
            continue;
        }
        instance *in = open_instance(rows[i].set, rows[i].threads, rows[i].chunk, KV_F32);
        assert_string_equal(instance_describe(in)->kernels, kern_set_name(rows[i].set));
        assert_true(instance_describe(in)->threads <= rows[i].threads); /* fewer on a smaller machine */
        heard h = {0};
        submit(in, &h, 0, N_PROMPT, NULL);
        drain(in);
        expect_same(&want, &h);
        release(&h);
        if (rows[i].others) {
            run_beside(in, &want);
            run_warm(in, &want);
        }
        instance_close(in);
    }
    release(&want);
}

/* A longer prompt on the best set, F16 pages. */
static void test_same_bits_over_spans(void **state)
{
    static const size_t chunks[] = {7, 32, 512};
    heard want = {0};
    reference(&want, KERN_SET_COUNT - 1, KV_F16, N_LONG);
    for (size_t i = 0; i < N_OF(chunks); i++) {
        instance *in = open_instance(KERN_SET_COUNT - 1, 2, chunks[i], KV_F16);
        heard h = {0};
        submit(in, &h, 0, N_LONG, NULL);
        drain(in);
        expect_same(&want, &h);
        release(&h);
        instance_close(in);
    }
    release(&want);
}

static void on_prompt_probs(void *ctx, const sampler_out *probs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        keep(ctx, &probs[i].chosen);
        for (int32_t k = 0; k < probs[i].n_top; k++) {
            keep(ctx, &probs[i].top[k]);
        }
    }
}

/* What the model says about p as a prompt, into h->probs. */
static void score(instance *in, heard *h, const int32_t *p, size_t n)
{
    sequence *seq;
    err e;
    gen_request q = {.prompt = p, .n_prompt = n, .params = sampling_default(), .prompt_logprobs = 20};
    q.sink = (gen_sink){h, on_token, on_done, on_failed, on_prompt_probs};
    if (engine_submit(instance_engine(in), &q, &seq, &e) != ST_OK) {
        fail_msg("%s", e.msg);
    }
}

/* A prompt is scored with the bits that generating it had, however it is cut and whoever is beside. */
static void test_prompt_probs(void **state)
{
    static const struct {
        size_t threads, chunk;
        bool others;
    } rows[] = {{1, 1, false}, {2, 7, false}, {1, 512, false}, {2, 512, true}};
    heard want = {0};
    int32_t p[N_PROMPT + N_NEW];
    reference(&want, KERN_SET_COUNT - 1, KV_F16, N_PROMPT);
    some_tokens(p, N_PROMPT, 0);
    memcpy(p + N_PROMPT, want.ids.data, N_NEW * sizeof *p);
    for (size_t i = 0; i < N_OF(rows); i++) {
        instance *in = open_instance(KERN_SET_COUNT - 1, rows[i].threads, rows[i].chunk, KV_F16);
        heard h = {0}, others[2];
        memset(others, 0, sizeof others);
        if (rows[i].others) {
            submit(in, &others[0], 1, 40, NULL);
            score(in, &others[1], p + 1, 50);
            engine_step(instance_engine(in));
        }
        score(in, &h, p, N_PROMPT + N_NEW);
        drain(in);
        assert_int_equal(h.probs.len, (N_PROMPT + N_NEW - 1) * 42);
        assert_memory_equal(h.probs.data + (N_PROMPT - 1) * 42, want.probs.data,
                            want.probs.len * sizeof(int32_t));
        release(&h);
        release(&others[0]);
        release(&others[1]);
        instance_close(in);
    }
    release(&want);
}

static int make(void **state)
{
    make_model_spec spec = make_model_default(GGUF_TYPE_Q4_K);
    err e;
    int fd = mkstemp(path);
    close(fd);
    spec.type_alt = GGUF_TYPE_Q6_K;
    spec.vocab = MAKE_VOCAB_BPE;
    spec.n_vocab = N_VOCAB;
    if (fd < 0 || make_model(path, &spec, &e) != ST_OK) {
        fprintf(stderr, "make_model: %s\n", e.msg);
        return 1;
    }
    return 0;
}

static int unmake(void **state)
{
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_same_bits_over_spans),
        cmocka_unit_test(test_prompt_probs),
    };
    return cmocka_run_group_tests(tests, make, unmake);
}
