#include "engine/test_main.h"

#include "engine/engine_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/philox.h"
#include "base/utf8.h"
#include "gguf/writer.h"
#include "model/make_vocab.h"

rig_config rig_config_default(void)
{
    return (rig_config){.n_ctx = 512, .n_pages = 64, .chunk = 32, .max_rows = 64, .max_sequences = 4};
}

void rig_open(engine_rig *r, const rig_config *cfg)
{
    err e;
    memset(r, 0, sizeof *r);
    r->cfg = *cfg;
    fake_model_init(&r->model, cfg->tok ? (uint32_t)tokenizer_n_vocab(cfg->tok) : RIG_VOCAB, cfg->max_rows,
                    cfg->logit_rows ? cfg->logit_rows : cfg->max_sequences);
    clock_fake_init(&r->clock, 1000000000, 1000);
    assert_int_equal(pool_new(1, false, &r->compute, &e), ST_OK);
    engine_config ec = {.ops = r->model.ops,
                        .tok = cfg->tok,
                        .kern = kern_table_of(KERN_REF),
                        .compute = r->compute,
                        .clock = &r->clock.src,
                        .n_ctx = cfg->n_ctx,
                        .n_pages = cfg->n_pages,
                        .prefill_chunk = cfg->chunk,
                        .max_sequences = cfg->max_sequences,
                        .prewarm_lanes = cfg->prewarm ? cfg->max_sequences : 0,
                        .park_bytes = cfg->park_bytes,
                        .max_step_ns = cfg->max_step_ns,
                        .warm = !cfg->cold,
                        .store = cfg->store,
                        .before_step = cfg->before_step,
                        .before_step_ctx = cfg->before_step_ctx};
    if (engine_new(&ec, &r->en, &e) != ST_OK) {
        fail_msg("engine_new: %s", e.msg);
    }
}

engine_stats rig_stats(const engine_rig *r)
{
    engine_stats st;
    engine_stats_read(r->en, &st);
    return st;
}

static void expect_books(const engine_rig *r)
{
    const char *why;
    if (!engine_check(r->en, &why)) {
        fail_msg("the engine's books: %s", why);
    }
}

bool rig_step(engine_rig *r)
{
    bool computed = engine_step(r->en);
    expect_books(r);
    return computed;
}

void rig_close(engine_rig *r)
{
    engine_stats st = rig_stats(r);
    expect_books(r);
    assert_int_equal(engine_running(r->en), 0);
    assert_int_equal(st.sequences, 0);
    assert_int_equal(st.sessions, 0);
    assert_int_equal(st.pages_used, 0);
    assert_int_equal(r->model.n_faults, 0);
    engine_free(r->en);
    pool_free(r->compute);
}

static void keep_one(ivec *out, const token_logprob *p)
{
    int32_t bits;
    memcpy(&bits, &p->logprob, sizeof bits);
    assert_int_equal(ivec_push(out, p->token), ST_OK);
    assert_int_equal(ivec_push(out, bits), ST_OK);
}

static void keep_probs(ivec *out, const sampler_out *probs)
{
    keep_one(out, &probs->chosen);
    for (int32_t i = 0; i < probs->n_top; i++) {
        keep_one(out, &probs->top[i]);
    }
}

static void on_prompt_probs(void *ctx, const sampler_out *probs, size_t n)
{
    reply_log *l = ctx;
    assert_false(log_over(l));
    assert_int_equal(l->ids.len, 0); /* before the first token */
    l->n_prompt_calls++;
    l->n_prompt_probs = n;
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(probs[i].token, probs[i].chosen.token);
        keep_probs(&l->prompt_probs, &probs[i]);
    }
}

static void on_token(void *ctx, const gen_token *t)
{
    reply_log *l = ctx;
    assert_false(log_over(l));
    assert_true(!t->again || (l->n_again == l->ids.len && !t->probs));
    l->n_again += t->again;
    assert_int_equal(ivec_push(&l->ids, t->token), ST_OK);
    assert_int_equal(buf_append(&l->text, t->text, t->text_len), ST_OK);
    assert_int_equal(ivec_push(&l->ends, (int32_t)l->text.len), ST_OK);
    assert_true(utf8_valid(t->text, t->text_len, NULL)); /* whole characters */
    if (t->probs) {
        keep_probs(&l->probs, t->probs);
    }
    if (l->ids.len == l->cancel_after) {
        seq_cancel(l->seq);
        seq_cancel(l->seq); /* idempotent */
    }
    if (l->ids.len == l->flag_after) {
        atomic_store(l->flag, true);
    }
    if (l->ids.len == l->hold_after) {
        seq_hold(l->seq, true);
    }
}

static void on_done(void *ctx, const gen_result *g)
{
    reply_log *l = ctx;
    assert_false(log_over(l));
    l->n_done++;
    l->result = *g;
    snprintf(l->guard, sizeof l->guard, "%s", g->guard);
    l->has_labels = g->label_logprobs != NULL;
    l->has_embedding = g->embedding != NULL;
    if (l->has_labels) {
        memcpy(l->labels, g->label_logprobs, l->n_labels * sizeof *l->labels);
    }
    if (l->has_embedding) {
        memcpy(l->embedding, g->embedding, l->rig->model.shape.n_embd * sizeof *l->embedding);
    }
    assert_int_equal(ivec_append(&l->result_ids, g->ids, g->n_ids), ST_OK);
    assert_int_equal(buf_append(&l->text, g->tail_text, g->tail_text_len), ST_OK);
    assert_int_equal(buf_append(&l->tail, g->tail_text, g->tail_text_len), ST_OK);
}

static void on_failed(void *ctx, const err *e)
{
    reply_log *l = ctx;
    assert_false(log_over(l));
    l->n_failed++;
    l->error = *e;
}

void log_init(reply_log *l, engine_rig *r)
{
    memset(l, 0, sizeof *l);
    l->rig = r;
}

void log_release(reply_log *l)
{
    ivec_release(&l->ids);
    ivec_release(&l->ends);
    ivec_release(&l->probs);
    ivec_release(&l->prompt_probs);
    ivec_release(&l->result_ids);
    buf_release(&l->text);
    buf_release(&l->tail);
}

gen_sink log_sink_of(reply_log *l)
{
    return (gen_sink){
        .ctx = l, .token = on_token, .done = on_done, .failed = on_failed, .prompt_probs = on_prompt_probs};
}

bool log_over(const reply_log *l)
{
    return l->n_done + l->n_failed > 0;
}

gen_request rig_request(reply_log *l, const int32_t *prompt, size_t n_prompt, int32_t max_new)
{
    return (gen_request){.prompt = prompt,
                         .n_prompt = n_prompt,
                         .max_new_tokens = max_new,
                         .params = sampling_default(),
                         .prompt_logprobs = -1,
                         .sink = log_sink_of(l)};
}

void rig_submit(engine_rig *r, const gen_request *q, reply_log *l)
{
    err e;
    if (engine_submit(r->en, q, &l->seq, &e) != ST_OK) {
        fail_msg("engine_submit: %s", e.msg);
    }
}

status rig_refused(engine_rig *r, const gen_request *q, err *e)
{
    sequence *none = NULL;
    size_t running = engine_running(r->en);
    engine_stats before = rig_stats(r);
    status st = engine_submit(r->en, q, &none, e);
    engine_stats after = rig_stats(r);
    assert_int_not_equal(st, ST_OK);
    assert_null(none);
    assert_int_equal(engine_running(r->en), running);
    assert_memory_equal(&before, &after, sizeof before);
    return st;
}

void rig_drain(engine_rig *r)
{
    for (int i = 0; engine_running(r->en) > 0; i++) {
        assert_true(i < 100000);
        if (!rig_step(r) && r->cfg.store) {
            (void)usleep(200); /* it reads */
        }
    }
}

void rig_generate(engine_rig *r, const gen_request *q, reply_log *l)
{
    rig_submit(r, q, l);
    rig_drain(r);
    assert_true(log_over(l));
}

void rig_tokens(int32_t *out, size_t n, uint64_t seed)
{
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    for (size_t i = 0; i < n; i++) {
        uint32_t ctr[4] = {(uint32_t)i, 0, 0, 7}, got[4];
        philox4x32_10(ctr, key, got);
        out[i] = (int32_t)(got[0] % RIG_VOCAB);
    }
}

void log_expect_ids(const reply_log *l, const int32_t *ids, size_t n)
{
    assert_int_equal(l->n_done, 1);
    assert_int_equal(l->n_failed, 0);
    assert_int_equal(l->ids.len, n);
    assert_int_equal(l->result_ids.len, n);
    if (n > 0) {
        assert_memory_equal(l->ids.data, ids, n * sizeof *ids);
        assert_memory_equal(l->result_ids.data, ids, n * sizeof *ids);
    }
}

void log_expect_greedy(const reply_log *l, const int32_t *prompt, size_t n, size_t n_new)
{
    int32_t all[FAKE_MAX_POS];
    memcpy(all, prompt, n * sizeof *all);
    fake_greedy(&l->rig->model, all, n, n_new);
    log_expect_ids(l, all + n, n_new);
}

tokenizer *byte_tokenizer_open(int32_t *eos)
{
    char path[] = "/tmp/hearth-test-XXXXXX";
    gguf_writer *w = NULL;
    gguf_file *f = NULL;
    tokenizer *t = NULL;
    arena mem;
    err e;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    arena_init(&mem, 4096);
    assert_int_equal(gguf_writer_new(&w), ST_OK);
    assert_int_equal(gguf_writer_str(w, "general.architecture", "llama", 5), ST_OK);
    assert_int_equal(make_vocab_write(w, &mem, MAKE_VOCAB_BPE, RIG_VOCAB), ST_OK);
    assert_int_equal(gguf_writer_finish(w, path, &e), ST_OK);
    assert_int_equal(gguf_open(path, &f, &e), ST_OK);
    assert_int_equal(tokenizer_open(f, &t, &e), ST_OK);
    *eos = tokenizer_eos(t);
    gguf_close(f);
    gguf_writer_free(w);
    arena_release(&mem);
    unlink(path);
    return t;
}
