#include "model/rig.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/philox.h"

static void need(bool ok, const char *what, const err *e)
{
    if (!ok) {
        fprintf(stderr, "rig: %s failed: [%s] %s\n", what, e ? e->field : "", e ? e->msg : "");
        abort();
    }
}

rig_options rig_options_of(kern_set set)
{
    return (rig_options){.set = set, .kv = KV_F32, .threads = 1, .max_rows = 64, .n_pages = 64};
}

static uint32_t draw(uint64_t seed, uint32_t i)
{
    const uint32_t ctr[4] = {i, 0, 0, 0};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t out[4];
    philox4x32_10(ctr, key, out);
    return out[0];
}

static void order_pages(rig *r, uint32_t shuffle)
{
    for (size_t i = 0; i < r->n_pages; i++) {
        page_id id;
        need(page_pool_take(r->pages, &id) == ST_OK, "taking pages", NULL);
        r->order[i] = page_pool_addr(r->pages, id);
    }
    for (size_t i = r->n_pages; shuffle && i-- > 1;) {
        size_t j = draw(shuffle, (uint32_t)i) % (i + 1);
        void *t = r->order[i];
        r->order[i] = r->order[j];
        r->order[j] = t;
    }
}

void rig_open(rig *r, const char *path, const rig_options *opt)
{
    err e = {0};
    const model_options mo = {.kv_type = opt->kv, .max_rows = opt->max_rows, .max_logit_rows = opt->max_rows};
    const kern_table *kern = kern_table_of(opt->set);
    memset(r, 0, sizeof *r);
    need(kern != NULL, "finding the instruction set", NULL);
    gguf_files *files = NULL;
    pack_file *packed = NULL;
    pack_key key = {.types = pack_key_types(kern)};
    need(gguf_files_open(path, &files, &e) == ST_OK, "gguf_files_open", &e);
    if (opt->pack_dir && key.types != 0) {
        const pack_file_options how = {.folder = opt->pack_dir, .model_bytes = gguf_files_bytes(files)};
        need(gguf_files_identity(files, key.source) == ST_OK, "gguf_files_identity", NULL);
        need(pack_file_open(&how, &key, &packed, &e) == ST_OK, "pack_file_open", &e);
    }
    need(gguf_files_parse_take(files, &r->file, &e) == ST_OK, "gguf_files_parse_take", &e);
    need(model_open(r->file, kern, &mo, &r->m, &e) == ST_OK, "model_open", &e);
    r->ops = model_forward_ops(r->m);
    need(pool_new(opt->threads, false, &r->p, &e) == ST_OK, "pool_new", &e);
    const model_pack_options po = {.file = packed, .huge_pages = opt->huge_pages};
    need(model_pack(r->m, r->p, &po, &e) == ST_OK, "model_pack", &e);
    need(!packed || !model_wants_packing(r->m) || model_digest(r->m) != NULL, "packing on disk", NULL);
    pack_file_close(packed);
    need(page_pool_new(r->ops.page_bytes, opt->n_pages, &r->pages, &e) == ST_OK, "page_pool_new", &e);
    r->n_pages = opt->n_pages;
    r->order = mem_alloc_array(r->n_pages, sizeof *r->order);
    need(r->order != NULL, "page list", NULL);
    order_pages(r, opt->shuffle);
    rig_reset(r);
}

void rig_close(rig *r)
{
    mem_free(r->order);
    page_pool_free(r->pages);
    pool_free(r->p);
    model_free(r->m);
    gguf_close(r->file);
}

void rig_reset(rig *r)
{
    for (size_t i = 0; i < r->n_pages; i++) {
        memset(r->order[i], 0xFF, r->ops.page_bytes);
    }
    r->next = 0;
}

rig_seq rig_sequence(rig *r, size_t n_tokens)
{
    size_t n = (n_tokens + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
    need(r->next + n <= r->n_pages, "finding a free page", NULL);
    rig_seq s = {.pages = r->order + r->next, .n_pages = n};
    r->next += n;
    return s;
}

void rig_step(rig *r, const rig_part *parts, size_t n_parts, float *logits, uint8_t *bad)
{
    batch_row rows[512];
    batch_seq seqs[32];
    err e = {0};
    batch b = {.rows = rows, .seqs = seqs, .n_seqs = n_parts};
    need(n_parts <= 32, "fitting the sequences into a rig", NULL);
    for (size_t i = 0; i < n_parts; i++) {
        seqs[i] = (batch_seq){.pages = parts[i].seq->pages, .n_pages = parts[i].seq->n_pages};
        need(b.n_rows + parts[i].n <= 512, "fitting the rows into a rig", NULL);
        for (size_t j = 0; j < parts[i].n; j++) {
            rows[b.n_rows++] = (batch_row){.seq = (int32_t)i,
                                           .pos = parts[i].seq->n_pos++,
                                           .token = parts[i].tokens[j],
                                           .want_logits = true};
        }
    }
    need(r->ops.forward(r->ops.ctx, r->p, &b, logits, bad, &e) == ST_OK, "forward", &e);
}

bool rig_run(rig *r, const int32_t *tokens, size_t n, size_t chunk, float *logits)
{
    uint8_t bad[512];
    bool good = true;
    rig_reset(r);
    rig_seq s = rig_sequence(r, n);
    for (size_t at = 0; at < n; at += chunk) {
        size_t m = n - at < chunk ? n - at : chunk;
        const rig_part part = {.seq = &s, .tokens = tokens + at, .n = m};
        rig_step(r, &part, 1, logits + at * r->ops.shape->n_vocab, bad);
        for (size_t i = 0; i < m; i++) {
            good = good && !bad[i];
        }
    }
    return good;
}

double rig_distance(const float *a, const float *b, size_t n)
{
    double worst = 0.0;
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        worst = d <= worst ? worst : d == d ? d : (double)INFINITY;
    }
    return worst;
}

double rig_spread(const float *logits, size_t n_rows, size_t n_vocab)
{
    double total = 0.0;
    for (size_t r = 0; r < n_rows; r++) {
        const float *row = logits + r * n_vocab;
        double sum = 0.0, squares = 0.0;
        for (size_t i = 0; i < n_vocab; i++) {
            sum += (double)row[i];
        }
        for (size_t i = 0; i < n_vocab; i++) {
            double d = (double)row[i] - sum / (double)n_vocab;
            squares += d * d;
        }
        total += sqrt(squares / (double)n_vocab);
    }
    return total / (double)n_rows;
}

static size_t best_of(const float *row, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++) {
        best = row[i] > row[best] ? i : best;
    }
    return best;
}

size_t rig_argmax_misses(const float *got, const float *want, size_t n_rows, size_t n_vocab, double margin)
{
    size_t misses = 0;
    for (size_t r = 0; r < n_rows; r++) {
        const float *w = want + r * n_vocab;
        size_t best = best_of(w, n_vocab);
        double second = -(double)INFINITY;
        for (size_t i = 0; i < n_vocab; i++) {
            second = i != best && (double)w[i] > second ? (double)w[i] : second;
        }
        misses += (double)w[best] - second > margin && best_of(got + r * n_vocab, n_vocab) != best;
    }
    return misses;
}

void rig_tokens(int32_t *out, size_t n, uint32_t n_vocab, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        out[i] = (int32_t)(draw(seed, (uint32_t)i) % n_vocab);
    }
}
