#include "engine/fake_model.h"

#include <stdlib.h>
#include <string.h>

#include "kern/kv_layout.h"

typedef struct slot {
    int32_t token;
    int32_t pos;
    uint32_t check;
} slot;

static uint32_t mix(uint32_t h, uint32_t x)
{
    h ^= x + 0x9E3779B9u + (h << 6) + (h >> 2);
    h ^= h >> 16;
    h *= 0x85EBCA6Bu;
    h ^= h >> 13;
    h *= 0xC2B2AE35u;
    return h ^ (h >> 16);
}

static uint32_t hash_of(const int32_t *tokens, size_t n)
{
    uint32_t h = 1;
    for (size_t i = 0; i < n; i++) {
        h = mix(h, (uint32_t)tokens[i]);
    }
    return h;
}

void fake_hidden(const int32_t *tokens, size_t n, float *hidden)
{
    uint32_t h = hash_of(tokens, n);
    for (uint32_t i = 0; i < FAKE_N_EMBD; i++) {
        hidden[i] = (float)(mix(~h, i) >> 8) * 0x1p-23f - 1.0f;
    }
}

void fake_logits(const fake_model *m, const int32_t *tokens, size_t n, float *logits)
{
    uint32_t h = hash_of(tokens, n);
    int32_t wanted = m->script ? m->script(m->script_ctx, tokens, n) : -1;
    for (uint32_t v = 0; v < m->shape.n_vocab; v++) {
        logits[v] = (float)(mix(h, v) >> 8) * 0x1p-21f - 4.0f; /* [-4, 4) */
    }
    if (wanted >= 0) {
        logits[wanted] = 50.0f;
    }
}

void fake_greedy(const fake_model *m, int32_t *tokens, size_t n_prompt, size_t n)
{
    float logits[4096];
    for (size_t i = n_prompt; i < n_prompt + n; i++) {
        uint32_t best = 0;
        fake_logits(m, tokens, i, logits);
        for (uint32_t v = 1; v < m->shape.n_vocab; v++) {
            best = logits[v] > logits[best] ? v : best;
        }
        tokens[i] = (int32_t)best;
    }
}

static slot *slot_at(const batch_seq *s, int32_t pos)
{
    return (slot *)s->pages[pos / KV_PAGE_TOKENS] + pos % KV_PAGE_TOKENS;
}

static uint32_t check_word(const slot *s)
{
    return mix((uint32_t)s->token, (uint32_t)s->pos);
}

/* What forward.h demands of a batch. */
static bool batch_is_fine(const fake_model *m, const batch *b)
{
    size_t n_logits = 0;
    if (b->n_rows < 1 || b->n_rows > m->ops.max_rows) {
        return false;
    }
    for (size_t i = 0; i < b->n_rows; i++) {
        const batch_row *r = &b->rows[i], *before = i > 0 ? r - 1 : NULL;
        bool in_range = r->seq >= 0 && (size_t)r->seq < b->n_seqs && r->pos >= 0 && r->token >= 0 &&
                        (uint32_t)r->token < m->shape.n_vocab;
        if (!in_range || (size_t)r->pos / KV_PAGE_TOKENS >= b->seqs[r->seq].n_pages) {
            return false;
        }
        if (before && before->seq == r->seq ? r->pos != before->pos + 1 : before && r->seq < before->seq) {
            return false;
        }
        if (r->want_hidden && !b->hidden) {
            return false;
        }
        n_logits += r->want_logits;
    }
    return n_logits <= m->ops.max_logit_rows;
}

static void note(fake_model *m, const batch *b)
{
    size_t run = 0, n_logits = 0;
    m->n_calls++;
    m->n_rows += b->n_rows;
    m->most_rows = b->n_rows > m->most_rows ? b->n_rows : m->most_rows;
    m->most_seqs = b->n_seqs > m->most_seqs ? b->n_seqs : m->most_seqs;
    for (size_t i = 0; i < b->n_rows; i++) {
        n_logits += b->rows[i].want_logits;
        run = i > 0 && b->rows[i].seq == b->rows[i - 1].seq ? run + 1 : 1;
        m->most_rows_of_one = run > m->most_rows_of_one ? run : m->most_rows_of_one;
    }
    m->n_logit_rows += n_logits;
    m->most_logit_rows = n_logits > m->most_logit_rows ? n_logits : m->most_logit_rows;
}

/* Reads the tokens 0 … pos back from the pages. */
static void read_back(fake_model *m, const batch_seq *s, int32_t pos)
{
    for (int32_t p = 0; p <= pos; p++) {
        const slot *at = slot_at(s, p);
        if (at->pos != p || at->check != check_word(at)) {
            m->n_faults++;
        }
        m->tokens[p] = at->token;
    }
}

static status fake_forward(void *ctx, pool *p, const batch *b, float *logits, uint8_t *bad, err *e)
{
    fake_model *m = ctx;
    if (m->on_step) {
        m->on_step(m->on_step_ctx);
    }
    note(m, b);
    if (!batch_is_fine(m, b)) {
        m->n_faults++;
        return err_set(e, ST_INTERNAL, NULL, "the batch breaks the rules");
    }
    if (m->fail != ST_OK) {
        return err_set(e, m->fail, NULL, "the fake fails as told");
    }
    for (size_t i = 0; i < b->n_rows; i++) {
        const batch_row *r = &b->rows[i];
        slot *at = slot_at(&b->seqs[r->seq], r->pos);
        *at = (slot){.token = r->token, .pos = r->pos};
        at->check = check_word(at);
        bad[i] = r->token == m->bad_token || (i > 0 && r[-1].seq == r->seq && bad[i - 1]);
    }
    float *hidden = b->hidden;
    for (size_t i = 0; i < b->n_rows; i++) {
        const batch_row *r = &b->rows[i];
        if (r->want_logits || r->want_hidden) {
            read_back(m, &b->seqs[r->seq], r->pos);
        }
        if (r->want_logits) {
            fake_logits(m, m->tokens, (size_t)r->pos + 1, logits);
            logits += m->shape.n_vocab;
        }
        if (r->want_hidden) {
            fake_hidden(m->tokens, (size_t)r->pos + 1, hidden);
            hidden += FAKE_N_EMBD;
        }
    }
    return ST_OK;
}

void fake_model_init(fake_model *m, uint32_t n_vocab, size_t max_rows, size_t max_logit_rows)
{
    memset(m, 0, sizeof *m);
    m->shape =
        (model_shape){.arch = "fake", .n_vocab = n_vocab, .n_embd = FAKE_N_EMBD, .n_ctx_train = FAKE_MAX_POS};
    m->bad_token = -1;
    size_t page_bytes = 0;
    const kv_dims dims = {.n_kv_heads = 1, .k_dim = 0, .v_dim = sizeof(slot) / sizeof(float)};
    if (kv_layout_init(KV_F32, &dims, 1, &m->layer, &page_bytes) != ST_OK ||
        page_bytes != KV_PAGE_TOKENS * sizeof(slot)) {
        abort();
    }
    m->ops = (forward_ops){.ctx = m,
                           .shape = &m->shape,
                           .page_bytes = KV_PAGE_TOKENS * sizeof(slot),
                           .max_rows = max_rows,
                           .max_logit_rows = max_logit_rows,
                           .kv_layers = &m->layer,
                           .n_kv_layers = 1,
                           .kv_type = KV_F32,
                           .forward = fake_forward};
}
