/* The public library as hearth.h promises it, on a small random model. */
#include "engine/test_main.h"

#include <hearth.h>

#include <math.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "model/make_model.h"

#define N_VOCAB      300
#define CONTEXT      256
#define LONG_CONTEXT 16384

static char path[] = "/tmp/hearth-api-XXXXXX";
static char no_tokenizer[] = "/tmp/hearth-api-XXXXXX";
static char long_context[] = "/tmp/hearth-api-XXXXXX";
static char garbage[] = "/tmp/hearth-api-XXXXXX";

static hearth_model *open_model(int32_t max_sessions)
{
    hearth_model_options o = HEARTH_MODEL_OPTIONS_INIT;
    hearth_error e = HEARTH_ERROR_INIT;
    hearth_model *m = NULL;
    o.threads = 2;
    o.max_sessions = max_sessions;
    if (hearth_model_open(path, &o, &m, &e) != HEARTH_OK) {
        fail_msg("hearth_model_open: %s", e.message);
    }
    return m;
}

static hearth_session *open_session(hearth_model *m)
{
    hearth_session *s = NULL;
    assert_int_equal(hearth_session_open(m, &s, NULL), HEARTH_OK);
    return s;
}

static hearth_generate_options options_of(const char *prompt, int32_t max_tokens)
{
    hearth_generate_options o = HEARTH_GENERATE_OPTIONS_INIT;
    o.prompt = prompt;
    o.max_tokens = max_tokens;
    o.ignore_eos = true;
    return o;
}

static hearth_result generate(hearth_session *s, const hearth_generate_options *o, hearth_token_fn fn,
                              void *ctx)
{
    hearth_result r = HEARTH_RESULT_INIT;
    hearth_error e = HEARTH_ERROR_INIT;
    if (hearth_generate(s, o, fn, ctx, &r, &e) != HEARTH_OK) {
        fail_msg("hearth_generate: %s", e.message);
    }
    return r;
}

static void test_open_errors(void **state)
{
    const struct {
        const char *path;
        const char *cpu, *kv;
        int32_t threads, context, sessions;
        hearth_status want;
        const char *field;
    } rows[] = {
        {NULL, NULL, NULL, 0, 0, 0, HEARTH_INVALID_FIELD, "path"},
        {"/nowhere/at/all.gguf", NULL, NULL, 0, 0, 0, HEARTH_NOT_FOUND, "path"},
        {garbage, NULL, NULL, 0, 0, 0, HEARTH_LOAD_FAILED, "header"},
        {no_tokenizer, NULL, NULL, 0, 0, 0, HEARTH_LOAD_FAILED, "tokenizer.ggml.model"},
        {path, "sse9", NULL, 0, 0, 0, HEARTH_INVALID_FIELD, "cpu"},
        {path, NULL, "q3", 0, 0, 0, HEARTH_INVALID_FIELD, "kv_type"},
        {path, NULL, NULL, -1, 0, 0, HEARTH_INVALID_FIELD, "threads"},
        {path, NULL, NULL, 0, -1, 0, HEARTH_INVALID_FIELD, "context"},
        {path, NULL, NULL, 0, CONTEXT + 1, 0, HEARTH_INVALID_FIELD, "context"},
        {path, NULL, NULL, 0, 0, -1, HEARTH_INVALID_FIELD, "max_sessions"},
    };
    for (size_t i = 0; i < N_OF(rows); i++) {
        hearth_model_options o = HEARTH_MODEL_OPTIONS_INIT;
        hearth_error e = HEARTH_ERROR_INIT;
        hearth_model *m = NULL;
        o.cpu = rows[i].cpu;
        o.kv_type = rows[i].kv;
        o.threads = rows[i].threads;
        o.context = rows[i].context;
        o.max_sessions = rows[i].sessions;
        assert_int_equal(hearth_model_open(rows[i].path, &o, &m, &e), rows[i].want);
        assert_null(m);
        assert_int_equal(e.code, rows[i].want);
        assert_string_equal(e.field, rows[i].field);
        assert_int_not_equal(e.message[0], '\0');
        assert_int_equal(hearth_model_open(rows[i].path, &o, &m, NULL), rows[i].want); /* error may be NULL */
    }
    hearth_model_options wrong = HEARTH_MODEL_OPTIONS_INIT;
    hearth_error e = HEARTH_ERROR_INIT;
    hearth_model *m = NULL;
    for (size_t size = 0; size <= sizeof wrong + 8;
         size += sizeof wrong + 8) { /* not set up, or from the future */
        wrong.size = size;
        assert_int_equal(hearth_model_open(path, &wrong, &m, &e), HEARTH_INVALID_FIELD);
        assert_string_equal(e.field, "size");
    }
    hearth_model_close(NULL);
    hearth_session_close(NULL);
}

static void see_progress(void *ctx, double done)
{
    double *last = ctx;
    assert_true(done >= *last && done <= 1);
    *last = done;
}

static void test_info(void **state)
{
    hearth_model_options o = HEARTH_MODEL_OPTIONS_INIT;
    hearth_model_info info = HEARTH_MODEL_INFO_INIT;
    hearth_model *m = NULL;
    double progress = 0;
    o.progress = see_progress;
    o.progress_ctx = &progress;
    o.cpu = "ref";
    o.context = 100;
    o.threads = 1;
    assert_int_equal(hearth_model_open(path, &o, &m, NULL), HEARTH_OK);
    assert_true(progress == 1);
    hearth_model_info_get(m, &info);
    assert_string_equal(info.arch, "llama");
    assert_string_equal(info.quant, "Q8_0");
    assert_string_equal(info.kernels, "ref");
    assert_int_equal(info.vocab, N_VOCAB);
    assert_int_equal(info.context, 100);
    assert_int_equal(info.threads, 1);
    assert_false(info.has_chat_template);
    assert_true(info.params > 0 && info.bytes_per_token > 0);
    hearth_model_close(m);
    /* The default context is the largest that memory allows: of such small models their own. */
    m = open_model(0);
    hearth_model_info_get(m, &info);
    assert_int_equal(info.context, CONTEXT);
    hearth_model_close(m);
    assert_int_equal(hearth_model_open(long_context, NULL, &m, NULL), HEARTH_OK);
    hearth_model_info_get(m, &info);
    assert_int_equal(info.context, LONG_CONTEXT);
    hearth_model_close(m);
    assert_string_equal(hearth_version(), HEARTH_VERSION);
    assert_string_equal(hearth_status_text(HEARTH_NOMEM), "out of memory");
    assert_non_null(hearth_status_text((hearth_status)12345));
}

typedef struct heard {
    char text[8192];
    size_t len, n_tokens, n_tails, stop_after;
    int32_t ids[1024];
    bool probs_seen;
} heard;

static bool on_token(void *ctx, const hearth_token *t)
{
    heard *h = ctx;
    assert_true(h->len + t->text_len < sizeof h->text && h->n_tails == 0);
    memcpy(h->text + h->len, t->text, t->text_len);
    h->len += t->text_len;
    if (t->id < 0) {
        h->n_tails++;
        assert_true(t->text_len > 0);
        return true;
    }
    h->ids[h->n_tokens++] = t->id;
    h->probs_seen = !isnan(t->logprob);
    for (int32_t i = 0; i < t->n_top; i++) {
        assert_true(t->top_logprobs[i] <= (i ? t->top_logprobs[i - 1] : 0.0f));
        assert_true(t->top_ids[i] >= 0 && t->top_ids[i] < N_VOCAB);
    }
    return h->n_tokens != h->stop_after;
}

static void test_turns(void **state)
{
    hearth_model *m = open_model(2);
    hearth_session *s = open_session(m);
    int32_t ids[200];
    heard h = {{0}};
    hearth_generate_options o = options_of("Once upon a time", 20);
    hearth_result r = generate(s, &o, on_token, &h);
    assert_string_equal(r.finish_reason, "length");
    assert_int_equal(r.n_ids, 20);
    assert_true(r.n_prompt_ids > 4 && r.n_prompt_ids <= 16); /* bytes and some merges */
    assert_int_equal(r.reused_tokens, 0);
    assert_int_equal(h.n_tokens, 20);
    assert_memory_equal(h.ids, r.ids, 20 * sizeof(int32_t));
    assert_int_equal(r.text_len, h.len);
    assert_memory_equal(r.text, h.text, h.len);
    assert_int_equal(r.text[r.text_len], '\0');
    assert_false(h.probs_seen);
    assert_true(r.total_ms >= r.prefill_ms && r.ttft_ms > 0);
    /* The next turn splices the ids and adds one: all that was there is reused. */
    size_t n = r.n_prompt_ids;
    memcpy(ids, r.prompt_ids, n * sizeof *ids);
    memcpy(ids + n, r.ids, 20 * sizeof *ids);
    ids[n + 20] = 'x';
    o = options_of(NULL, 5);
    o.prompt_ids = ids;
    o.n_prompt_ids = n + 21;
    o.top_logprobs = 4;
    memset(&h, 0, sizeof h);
    r = generate(s, &o, on_token, &h);
    assert_int_equal(r.reused_tokens, n + 20);
    assert_true(h.probs_seen);
    int32_t warm[5];
    memcpy(warm, r.ids, sizeof warm);
    /* In another session, and after a reset: the same reply, and what was computed is found. */
    hearth_session *other = open_session(m);
    r = generate(other, &o, NULL, NULL);
    assert_int_equal(r.reused_tokens, n + 20);
    assert_memory_equal(r.ids, warm, sizeof warm);
    assert_int_equal(hearth_session_reset(s, NULL), HEARTH_OK);
    r = generate(s, &o, NULL, NULL);
    assert_int_equal(r.reused_tokens, n + 20);
    assert_memory_equal(r.ids, warm, sizeof warm);
    hearth_session *third = NULL;
    hearth_error e = HEARTH_ERROR_INIT;
    assert_int_equal(hearth_session_open(m, &third, &e), HEARTH_CAPACITY);
    assert_null(third);
    hearth_session_close(other);
    third = open_session(m);
    hearth_session_close(third);
    hearth_session_close(s);
    hearth_model_close(m);
}

static void test_seed(void **state)
{
    hearth_model *m = open_model(0);
    hearth_session *s = open_session(m);
    hearth_generate_options o = options_of("seed", 30);
    int32_t ids[30];
    o.temperature = 1.2f;
    hearth_result r = generate(s, &o, NULL, NULL);
    assert_true(r.seed != 0 && r.seed < UINT64_C(1) << 63);
    uint64_t first = r.seed;
    memcpy(ids, r.ids, sizeof ids);
    r = generate(s, &o, NULL, NULL);
    assert_true(r.seed != first);
    assert_memory_not_equal(r.ids, ids, sizeof ids);
    o.seed = first;
    r = generate(s, &o, NULL, NULL);
    assert_true(r.seed == first);
    assert_memory_equal(r.ids, ids, sizeof ids);
    hearth_session_close(s);
    hearth_model_close(m);
}

static void test_stop(void **state)
{
    hearth_model *m = open_model(0);
    hearth_session *s = open_session(m);
    hearth_generate_options o = options_of("stop", 60);
    hearth_result r = generate(s, &o, NULL, NULL);
    char text[1024], stop[2] = {0};
    const char *list[] = {"", stop};
    assert_true(r.text_len < sizeof text);
    memcpy(text, r.text, r.text_len + 1);
    for (size_t i = r.text_len / 2; i > 0 && !stop[0]; i--) { /* some plain letter, not the first */
        stop[0] = text[i] > ' ' && text[i] < 0x7F ? text[i] : '\0';
    }
    assert_int_not_equal(stop[0], '\0');
    o.stop = list;
    o.n_stop = 2;
    heard h = {{0}};
    r = generate(s, &o, on_token, &h);
    size_t want = (size_t)((char *)memchr(text, stop[0], 1024) - text);
    assert_string_equal(r.finish_reason, "stop");
    assert_int_equal(r.text_len, want);
    assert_memory_equal(r.text, text, want);
    assert_int_equal(h.len, want);
    r = generate(s, &o, NULL, NULL); /* after the cut: computed again, the same */
    assert_int_equal(r.reused_tokens, 0);
    assert_memory_equal(r.text, text, want);
    hearth_session_close(s);
    hearth_model_close(m);
}

static void test_callback_stops(void **state)
{
    hearth_model *m = open_model(0);
    hearth_session *s = open_session(m);
    hearth_generate_options o = options_of("halt", 60);
    heard h = {.stop_after = 7};
    hearth_result r = generate(s, &o, on_token, &h);
    assert_string_equal(r.finish_reason, "cancelled");
    assert_int_equal(r.n_ids, 7);
    assert_memory_equal(r.text, h.text, h.len);
    hearth_stats st = HEARTH_STATS_INIT;
    hearth_stats_get(m, &st);
    assert_int_equal(st.requests_cancelled, 1);
    assert_int_equal(st.requests_done, 0);
    o.timeout_s = 1e-9;
    r = generate(s, &o, NULL, NULL);
    assert_string_equal(r.finish_reason, "timeout");
    assert_int_equal(r.n_ids, 0);
    hearth_session_close(s);
    hearth_stats_get(m, &st);
    assert_int_equal(st.kv_pages_used, 0);
    assert_int_equal(st.requests_done, 1);
    hearth_model_close(m);
}

typedef struct race {
    hearth_model *m;
    hearth_session *s;
    sem_t speaking, cancelled;
} race;

static void *canceller(void *arg)
{
    race *c = arg;
    sem_wait(&c->speaking);
    hearth_stats st = HEARTH_STATS_INIT;
    hearth_stats_get(c->m, &st);
    hearth_cancel(c->s);
    sem_post(&c->cancelled);
    for (int i = 0; i < 1000; i++) {
        hearth_stats_get(c->m, &st);
    }
    return st.tokens_generated > 0 ? arg : NULL;
}

static bool on_third(void *ctx, const hearth_token *t)
{
    race *c = ctx;
    hearth_stats st = HEARTH_STATS_INIT;
    hearth_stats_get(c->m, &st); /* callbacks may ask, too */
    if (st.tokens_generated == 3) {
        sem_post(&c->speaking);
        sem_wait(&c->cancelled);
    }
    return true;
}

static void test_cancel_from_another_thread(void **state)
{
    race c = {.m = open_model(0)};
    pthread_t t;
    c.s = open_session(c.m);
    sem_init(&c.speaking, 0, 0);
    sem_init(&c.cancelled, 0, 0);
    hearth_cancel(c.s); /* nothing runs: forgotten */
    assert_int_equal(pthread_create(&t, NULL, canceller, &c), 0);
    hearth_generate_options o = options_of("race", 200);
    hearth_result r = generate(c.s, &o, on_third, &c);
    void *saw;
    pthread_join(t, &saw);
    assert_non_null(saw);
    assert_string_equal(r.finish_reason, "cancelled");
    assert_int_equal(r.n_ids, 3);
    sem_destroy(&c.speaking);
    sem_destroy(&c.cancelled);
    hearth_session_close(c.s);
    hearth_model_close(c.m);
}

static bool call_again(void *ctx, const hearth_token *t)
{
    hearth_generate_options o = options_of("again", 1);
    assert_int_equal(hearth_generate(ctx, &o, NULL, NULL, NULL, NULL), HEARTH_INVALID_FIELD);
    assert_int_equal(hearth_session_reset(ctx, NULL), HEARTH_INVALID_FIELD);
    return true;
}

static void test_refusals(void **state)
{
    static const hearth_logit_bias twice[] = {{5, 1.0f}, {4, 1.0f}, {5, 2.0f}};
    static const hearth_logit_bias outside[] = {{N_VOCAB, 1.0f}};
    static const char *const null_stop[] = {"a", NULL};
    static const int32_t bad_id[] = {1, N_VOCAB};
    static char too_long[CONTEXT + 2];
    hearth_model *m = open_model(0);
    hearth_session *s = open_session(m);
    hearth_generate_options good = options_of("fine", 4), o;
    hearth_error e = HEARTH_ERROR_INIT;
    hearth_result r = generate(s, &good, NULL, NULL);
#define REFUSED(change, status, name)                                     \
    o = good;                                                             \
    change;                                                               \
    assert_int_equal(hearth_generate(s, &o, NULL, NULL, &r, &e), status); \
    assert_string_equal(e.field, name)
    REFUSED(o.size = 4, HEARTH_INVALID_FIELD, "size");
    REFUSED(o.prompt = NULL, HEARTH_INVALID_FIELD, "prompt");
    REFUSED(o.prompt = "", HEARTH_INVALID_FIELD, "prompt");
    REFUSED(o.n_prompt_ids = 2, HEARTH_INVALID_FIELD, "prompt_ids");
    REFUSED((o.n_prompt_ids = 2, o.prompt_ids = bad_id), HEARTH_INVALID_FIELD, "prompt");
    REFUSED(o.temperature = NAN, HEARTH_INVALID_FIELD, "temperature");
    REFUSED(o.top_p = 0, HEARTH_INVALID_FIELD, "top_p");
    REFUSED(o.top_k = -1, HEARTH_INVALID_FIELD, "top_k");
    REFUSED(o.top_logprobs = 21, HEARTH_INVALID_FIELD, "top_logprobs");
    REFUSED(o.timeout_s = -1, HEARTH_INVALID_FIELD, "timeout_s");
    REFUSED((o.stop = null_stop, o.n_stop = 2), HEARTH_INVALID_FIELD, "stop");
    REFUSED((o.stop = null_stop, o.n_stop = 5000), HEARTH_INVALID_FIELD, "stop");
    REFUSED((o.logit_bias = twice, o.n_logit_bias = 3), HEARTH_INVALID_FIELD, "logit_bias");
    REFUSED((o.logit_bias = outside, o.n_logit_bias = 1), HEARTH_INVALID_FIELD, "logit_bias");
    REFUSED((o.logit_bias = NULL, o.n_logit_bias = 1), HEARTH_INVALID_FIELD, "logit_bias");
    memset(too_long, '~', CONTEXT);
    REFUSED(o.prompt = too_long, HEARTH_CONTEXT_LENGTH, "prompt");
    assert_non_null(strstr(e.message, "256"));
#undef REFUSED
    /* None of them touched the session. */
    r = generate(s, &good, call_again, s);
    assert_int_equal(r.reused_tokens, r.n_prompt_ids - 1);
    /* A program built with an older, shorter header. */
    o = good;
    o.size = offsetof(hearth_generate_options, seed);
    o.timeout_s = (double)NAN;
    o.top_logprobs = 99;
    struct {
        hearth_result r;
        char beyond[8];
    } small = {.r = HEARTH_RESULT_INIT, .beyond = "beyond"};
    small.r.size = offsetof(hearth_result, prompt_ids);
    small.r.ttft_ms = -1;
    assert_int_equal(hearth_generate(s, &o, NULL, NULL, &small.r, NULL), HEARTH_OK);
    assert_int_equal(small.r.n_ids, 4);
    assert_true(small.r.ttft_ms == -1);
    assert_int_equal(small.r.size, offsetof(hearth_result, prompt_ids));
    hearth_session_close(s);
    hearth_model_close(m);
}

/* Each allocation of opening fails once, then each of a reply: HEARTH_NOMEM, and the next try works. */
static void test_no_memory(void **state)
{
    static const char *const stop[] = {"\x01\x02 never"};
    static const hearth_logit_bias bias[] = {{7, -1.0f}};
    hearth_model_options mo = HEARTH_MODEL_OPTIONS_INIT;
    hearth_error e = HEARTH_ERROR_INIT;
    hearth_model *m = NULL;
    hearth_status st = HEARTH_NOMEM;
    mo.threads = 2;
    for (uint64_t n = 1; st != HEARTH_OK; n++) {
        assert_null(m);
        mem_fail_at(n, false);
        st = hearth_model_open(path, &mo, &m, &e);
        mem_fail_at(0, false);
        assert_true(st == HEARTH_OK || st == HEARTH_NOMEM);
    }
    hearth_session *s = open_session(m);
    hearth_generate_options o = options_of("no memory for this", 12);
    o.stop = stop;
    o.n_stop = 1;
    o.logit_bias = bias;
    o.n_logit_bias = 1;
    size_t n_failures = 0;
    st = HEARTH_NOMEM;
    for (uint64_t n = 1; st != HEARTH_OK; n++) {
        hearth_session_close(s); /* a fresh one, whose buffers have to grow */
        s = open_session(m);
        mem_fail_at(n, false);
        st = hearth_generate(s, &o, NULL, NULL, NULL, &e);
        mem_fail_at(0, false);
        assert_true(st == HEARTH_OK || st == HEARTH_NOMEM);
        n_failures += st != HEARTH_OK;
    }
    assert_true(n_failures > 8);
    hearth_session_close(s);
    hearth_model_close(m);
}

static int make_file(char *name, make_vocab vocab, uint32_t n_ctx)
{
    make_model_spec spec = make_model_default(GGUF_TYPE_Q8_0);
    err e = {.msg = "mkstemp"};
    int fd = mkstemp(name);
    spec.width = 64;
    spec.n_heads = 2;
    spec.n_kv_heads = 1;
    spec.head_dim = 32;
    spec.n_ff = 64;
    spec.vocab = vocab;
    spec.n_vocab = N_VOCAB;
    spec.n_ctx = n_ctx;
    if (fd < 0 || close(fd) != 0 || make_model(name, &spec, &e) != ST_OK) {
        fprintf(stderr, "make_model: %s\n", e.msg);
        return 1;
    }
    return 0;
}

static int make(void **state)
{
    int fd = mkstemp(garbage);
    if (fd < 0 || write(fd, "this is not a model, it only is a file", 38) != 38) {
        return 1;
    }
    close(fd);
    return make_file(path, MAKE_VOCAB_BPE, CONTEXT) || make_file(no_tokenizer, MAKE_VOCAB_NONE, CONTEXT) ||
           make_file(long_context, MAKE_VOCAB_BPE, LONG_CONTEXT);
}

static int unmake(void **state)
{
    unlink(path);
    unlink(no_tokenizer);
    unlink(long_context);
    return unlink(garbage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open_errors),
        cmocka_unit_test(test_info),
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_seed),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_callback_stops),
        cmocka_unit_test(test_cancel_from_another_thread),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, make, unmake);
}
