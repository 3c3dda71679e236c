#include "sim/sim_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gguf/writer.h"

static int32_t loop_script(void *ctx, const int32_t *tokens, size_t n)
{
    (void)ctx;
    if (n < 2 || tokens[0] != SIM_LOOP || tokens[1] <= SIM_LOOP_P) {
        return -1;
    }
    return 30 + (int32_t)(n % (size_t)(tokens[1] - SIM_LOOP_P));
}

static uint64_t cost(const sim_model *m, const batch *b)
{
    uint64_t ns = m->step_ns + m->row_ns * b->n_rows;
    for (size_t i = 0; i < b->n_rows && m->read_ns > 0; i++) {
        ns += m->read_ns * (uint64_t)(b->rows[i].pos + 1);
    }
    return ns;
}

/* Rows of one sequence are within the chunk; those that are to be spoilt are. */
static void look_at_rows(sim_model *m, const batch *b, uint8_t *bad)
{
    for (size_t i = 0, n; i < b->n_rows; i += n) {
        size_t from = 0;
        for (n = 1; i + n < b->n_rows && b->rows[i + n].seq == b->rows[i].seq; n++) {
        }
        m->n_faults += n > m->chunk;
        if (m->spoil(m->faults_ctx, &b->seqs[b->rows[i].seq], &from)) {
            from = from < n ? from : n - 1;
            memset(bad + i + from, 1, n - from);
        }
    }
}

static status sim_forward(void *ctx, pool *p, const batch *b, float *logits, uint8_t *bad, err *e)
{
    sim_model *m = ctx;
    m->clock->now_ns += cost(m, b) + m->stall_ns;
    m->stall_ns = 0;
    if (m->fails(m->faults_ctx, b)) {
        return err_set(e, ST_INTERNAL, NULL, "the model fails as told");
    }
    status st = m->fake.ops.forward(m->fake.ops.ctx, p, b, logits, bad, e);
    m->n_faults += m->fake.n_faults;
    m->fake.n_faults = 0;
    if (st != ST_OK) {
        return st;
    }
    look_at_rows(m, b, bad);
    for (size_t i = 0; i < b->n_rows; i++) {
        if (b->rows[i].want_logits) {
            logits[SIM_POISON] = -100.0f;
            logits += SIM_VOCAB;
        }
    }
    return ST_OK;
}

void sim_model_init(sim_model *m, clock_fake *clock, size_t max_rows, size_t max_logit_rows)
{
    memset(m, 0, offsetof(sim_model, fake));
    fake_model_init(&m->fake, SIM_VOCAB, max_rows, max_logit_rows);
    m->fake.bad_token = SIM_POISON;
    m->fake.script = loop_script;
    m->clock = clock;
    m->stall_ns = 0;
    m->n_faults = 0;
    m->ops = m->fake.ops;
    m->ops.ctx = m;
    m->ops.forward = sim_forward;
}

void sim_logits(const sim_model *m, const int32_t *tokens, size_t n, float *logits)
{
    fake_logits(&m->fake, tokens, n, logits);
    logits[SIM_POISON] = -100.0f;
}

/* The vocabulary */

enum { KIND_NORMAL = 1, KIND_UNKNOWN = 2, KIND_CONTROL = 3, KIND_BYTE = 6 };

#define FIRST_BYTE   5
#define FIRST_LETTER 14
#define FIRST_PAIR   40

static const char *const byte_words[] = {"<0xC3>", "<0xA9>", "<0xE2>", "<0x82>", "<0xAC>",
                                         "<0xF0>", "<0x9F>", "<0x98>", "<0x80>"};
static const char *const special_words[] = {"<unk>", "<s>", "</s>", "!", "^"};
static const char *const pair_words[] = {"\xe2\x96\x81",
                                         "\xe2\x96\x81"
                                         "a",
                                         "ab",
                                         "bc",
                                         "cd",
                                         "zz",
                                         "\xc3\xa9"
                                         "a"};

static void word_of(int32_t id, char *out, size_t size, int32_t *kind)
{
    *kind = id == 0 ? KIND_UNKNOWN : id < 3 ? KIND_CONTROL : KIND_NORMAL;
    if (id < FIRST_BYTE) {
        snprintf(out, size, "%s", special_words[id]);
    } else if (id < FIRST_LETTER) {
        snprintf(out, size, "%s", byte_words[id - FIRST_BYTE]);
        *kind = KIND_BYTE;
    } else if (id < FIRST_PAIR) {
        snprintf(out, size, "%c", 'a' + id - FIRST_LETTER);
    } else if ((size_t)(id - FIRST_PAIR) < sizeof pair_words / sizeof pair_words[0]) {
        snprintf(out, size, "%s", pair_words[id - FIRST_PAIR]);
    } else {
        snprintf(out, size, "%c%c", 'a' + id % 26, 'a' + id / 3 % 26);
    }
}

static bool write_vocab(const char *path)
{
    static char words[SIM_VOCAB][16];
    gguf_str strs[SIM_VOCAB];
    int32_t kinds[SIM_VOCAB];
    float scores[SIM_VOCAB];
    gguf_writer *w = NULL;
    for (int32_t id = 0; id < SIM_VOCAB; id++) {
        word_of(id, words[id], sizeof words[id], &kinds[id]);
        strs[id] = (gguf_str){words[id], strlen(words[id])};
        scores[id] = -(float)id;
    }
    bool ok = gguf_writer_new(&w) == ST_OK &&
              gguf_writer_str(w, "general.architecture", "llama", 5) == ST_OK &&
              gguf_writer_str(w, "tokenizer.ggml.model", "llama", 5) == ST_OK &&
              gguf_writer_str_array(w, "tokenizer.ggml.tokens", strs, SIM_VOCAB) == ST_OK &&
              gguf_writer_array(w, "tokenizer.ggml.scores", GGUF_F32, scores, SIM_VOCAB) == ST_OK &&
              gguf_writer_array(w, "tokenizer.ggml.token_type", GGUF_I32, kinds, SIM_VOCAB) == ST_OK &&
              gguf_writer_u32(w, "tokenizer.ggml.unknown_token_id", 0) == ST_OK &&
              gguf_writer_u32(w, "tokenizer.ggml.bos_token_id", 1) == ST_OK &&
              gguf_writer_u32(w, "tokenizer.ggml.eos_token_id", SIM_EOS) == ST_OK &&
              gguf_writer_finish(w, path, NULL) == ST_OK;
    gguf_writer_free(w);
    return ok;
}

tokenizer *sim_tokenizer_open(void)
{
    char path[] = "/tmp/hearth-sim-XXXXXX";
    tokenizer *t = NULL;
    gguf_file *f = NULL;
    err e;
    int fd = mkstemp(path);
    err_clear(&e);
    if (fd < 0) {
        return NULL;
    }
    close(fd);
    if (!write_vocab(path) || gguf_open(path, &f, &e) != ST_OK || tokenizer_open(f, &t, &e) != ST_OK) {
        fprintf(stderr, "sim: no tokenizer: %s\n", e.msg);
        t = NULL;
    }
    gguf_close(f);
    unlink(path);
    return t;
}
