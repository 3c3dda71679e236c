#include "purity/place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/philox.h"
#include "ember.h"

#define MAX_THREADS 3
#define N_CTX       512
#define N_VOCAB     320
#define STORE_QUEUE ((size_t)16 << 20)
#define SCORE_ROWS  16 /* rows of logits beyond one for each sequence, as in src/engine/instance.c */

typedef struct kept_model { /* a model's file, open */
    const model_entry *entry;
    gguf_file *file;
    tokenizer *tok;
} kept_model;

static kept_model kept[PURITY_MAX_VALUES];
static pool *pools[MAX_THREADS + 1];
static const char *folder; /* borrowed */

static void need(status st, const char *what, const err *e)
{
    if (st != ST_OK) {
        fprintf(stderr, "purity: %s: %s\n", what, e ? e->msg : status_text(st));
        exit(1);
    }
}

static void make(const model_entry *m, const char *path)
{
    make_model_spec s = make_model_default(m->type);
    err e;
    s.arch = m->arch;
    s.type_alt = m->type_alt;
    s.width = m->width;
    s.n_heads = 4;
    s.n_kv_heads = 2;
    s.head_dim = m->width == 256 ? 64 : 32;
    s.n_ff = m->width == 256 ? 256 : 128;
    s.tied = m->tied;
    s.n_vocab = N_VOCAB;
    s.vocab = MAKE_VOCAB_BPE;
    need(make_model(path, &s, &e), m->name, &e);
}

/* The file of a model, made if it is not in the folder yet. Quantising takes longer than all its cases do. */
static void find_file(const model_entry *m, char *path, size_t n)
{
    char fresh[4200];
    if (!m->arch) {
        snprintf(path, n, "%s", ember_path());
        return;
    }
    snprintf(path, n, "%s/purity_%s.gguf", folder, m->name);
    if (access(path, R_OK) == 0) {
        return;
    }
    snprintf(fresh, sizeof fresh, "%s.%d", path, (int)getpid());
    make(m, fresh);
    if (rename(fresh, path) != 0) {
        perror(path);
        exit(1);
    }
}

static kept_model *keep(const model_entry *m)
{
    char path[4096];
    kept_model *k = kept;
    err e;
    while (k->entry && k->entry != m) {
        k++;
    }
    if (k->entry) {
        return k;
    }
    find_file(m, path, sizeof path);
    need(gguf_open(path, &k->file, &e), m->name, &e);
    need(tokenizer_open(k->file, &k->tok, &e), m->name, &e);
    k->entry = m;
    return k;
}

void places_open(const char *models)
{
    folder = models;
}

void places_close(void)
{
    for (kept_model *k = kept; k->entry; k++) {
        tokenizer_free(k->tok);
        gguf_close(k->file);
        k->entry = NULL;
    }
    for (size_t i = 0; i <= MAX_THREADS; i++) {
        pool_free(pools[i]);
        pools[i] = NULL;
    }
}

place_config place_config_default(void)
{
    return (place_config){
        .n_pages = 12 * N_CTX / KV_PAGE_TOKENS, .max_sequences = PLACE_MAX_SEQUENCES, .warm = true};
}

/* The model, and the time that it takes; and a value that is not finite where a prompt has the poison. */
static status forward(void *ctx, pool *pl, const batch *b, float *logits, uint8_t *bad, err *e)
{
    place *p = ctx;
    status st = p->real.forward(p->real.ctx, pl, b, logits, bad, e);
    for (size_t i = 0; i < b->n_rows; i++) {
        const batch_row *r = &b->rows[i];
        bool poison = r->pos == PLACE_POISON_AT && r->token == PLACE_POISON;
        bad[i] |= poison || (i > 0 && r[-1].seq == r->seq && bad[i - 1]);
    }
    p->n_steps++;
    p->n_rows += b->n_rows;
    p->clock.now_ns += PURITY_ROW_NS * (b->n_rows + 2);
    return st;
}

static pool *pool_of(size_t threads)
{
    err e;
    if (!pools[threads]) {
        need(pool_new(threads, false, &pools[threads], &e), "pool_new", &e);
    }
    return pools[threads];
}

/* Its days are the system's: the place's clock is not another thread's. */
static store *open_store(const forward_ops *ops, const place_config *cfg)
{
    const store_config c = {.dir = cfg->store_dir,
                            .page_bytes = ops->page_bytes,
                            .budget_bytes = (uint64_t)1 << 40,
                            .queue_bytes = STORE_QUEUE,
                            .clock = clock_system(),
                            .seam = cfg->seam};
    store *st = NULL;
    err e;
    if (cfg->store_dir) {
        need(store_open(&c, &st, &e), "store_open", &e);
    }
    return st;
}

void place_open(place *p, const model_entry *m, const place_way *how, const place_config *cfg)
{
    const kept_model *k = keep(m);
    size_t max_rows = how->chunk + cfg->max_sequences - 1, max_logits = cfg->max_sequences + SCORE_ROWS;
    const model_options mo = {.kv_type = how->kv,
                              .max_rows = max_rows,
                              .max_logit_rows = max_logits < max_rows ? max_logits : max_rows};
    err e;
    memset(p, 0, sizeof *p);
    p->tok = k->tok;
    p->kern = kern_table_of(how->set);
    clock_fake_init(&p->clock, 1000000000, 1000);
    need(model_open(k->file, p->kern, &mo, &p->m, &e), m->name, &e);
    need(model_pack(p->m, pool_of(how->threads), &(model_pack_options){0}, &e), m->name, &e);
    p->real = model_forward_ops(p->m);
    p->kept = open_store(&p->real, cfg);
    engine_config ec = {.ops = p->real,
                        .tok = k->tok,
                        .kern = p->kern,
                        .compute = pool_of(how->threads),
                        .clock = &p->clock.src,
                        .n_ctx = N_CTX,
                        .n_pages = cfg->n_pages,
                        .prefill_chunk = how->chunk,
                        .max_step_ns = cfg->max_step_ns,
                        .max_sequences = cfg->max_sequences,
                        .park_bytes = cfg->park_bytes,
                        .warm = cfg->warm,
                        .store = p->kept};
    ec.ops.ctx = p;
    ec.ops.forward = forward;
    need(engine_new(&ec, &p->en, &e), "engine_new", &e);
}

void place_wait(place *p, uint64_t ns)
{
    p->clock.now_ns += ns;
}

bool place_close(place *p, const char **why)
{
    engine_stats st;
    engine_stats_read(p->en, &st);
    *why = st.sequences != 0 || engine_running(p->en) != 0 ? "sequences are left"
           : st.sessions != 0                              ? "sessions are left"
           : st.pages_used != 0                            ? "pages are left"
           : st.bugs != 0                                  ? "the engine counted a bug of its own"
                                                           : NULL;
    if (*why) {
        return false; /* and the engine stays as it is: freeing it would abort */
    }
    store_close(p->kept, 10000);
    engine_free(p->en);
    model_free(p->m);
    return true;
}

void place_prompt(const place *p, int32_t *out, size_t n, uint32_t seed)
{
    uint32_t n_vocab = (uint32_t)tokenizer_n_vocab(p->tok), drawn = 0;
    for (size_t i = 0; i < n;) {
        const uint32_t ctr[4] = {drawn++, 0, 0, 0}, key[2] = {seed, 5};
        uint32_t got[4];
        philox4x32_10(ctr, key, got);
        out[i] = (int32_t)(got[0] % n_vocab);
        bool poison = i == PLACE_POISON_AT && out[i] == PLACE_POISON;
        i += !poison && tokenizer_kind(p->tok, out[i]) == TOKEN_NORMAL;
    }
}
