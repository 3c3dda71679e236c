#include "cmd/reference_door.h"

#include "base/mem.h"
#include "kern/kv_layout.h"
#include "kv/page_pool.h"

typedef struct door { /* owned */
    page_pool *pool;
    void **pages;
    batch_row *rows;
    float *logits;
    uint8_t *bad;
    size_t chunk;
} door;

static void door_release(door *d)
{
    mem_free(d->bad);
    mem_free(d->logits);
    mem_free(d->rows);
    mem_free(d->pages);
    page_pool_free(d->pool);
}

static status door_init(door *d, const forward_ops *ops, size_t n, err *e)
{
    size_t n_pages = (n + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
    d->chunk = ops->max_logit_rows < ops->max_rows ? ops->max_logit_rows : ops->max_rows;
    status st = page_pool_new(ops->page_bytes, n_pages, &d->pool, e);
    if (st != ST_OK) {
        return st;
    }
    d->pages = mem_calloc(n_pages, sizeof *d->pages);
    d->rows = mem_calloc(d->chunk, sizeof *d->rows);
    d->bad = mem_calloc(d->chunk, 1);
    size_t n_logits;
    if (!size_mul(d->chunk, ops->shape->n_vocab, &n_logits)) {
        return err_set(e, ST_NOMEM, NULL, "logits do not fit memory");
    }
    d->logits = mem_alloc_array(n_logits, sizeof *d->logits);
    if (!d->pages || !d->rows || !d->bad || !d->logits) {
        return err_set(e, ST_NOMEM, NULL, "out of memory");
    }
    for (size_t i = 0; i < n_pages; i++) {
        page_id id;
        if (page_pool_take(d->pool, &id) != ST_OK) {
            return err_set(e, ST_INTERNAL, NULL, "page pool is short of its own size");
        }
        d->pages[i] = page_pool_addr(d->pool, id);
    }
    return ST_OK;
}

status door_check(const instance *in, const int32_t *tokens, size_t n, err *e)
{
    const instance_info *info = instance_describe(in);
    if (n > (size_t)info->context) {
        return err_set(e, ST_CONTEXT_LENGTH, "tokens", "%zu tokens, but the context is %d", n, info->context);
    }
    for (size_t i = 0; i < n; i++) {
        if (tokens[i] < 0 || tokens[i] >= info->n_vocab) {
            return err_set(e, ST_INVALID_FIELD, "tokens",
                           "token %d at place %zu is outside the vocabulary of %d", tokens[i], i,
                           info->n_vocab);
        }
    }
    return ST_OK;
}

static status door_chunk(const door *d, instance *in, const int32_t *tokens, size_t at, size_t n, door_fn fn,
                         void *ctx, err *e)
{
    const forward_ops *ops = instance_forward(in);
    batch_seq seq = {d->pages, page_pool_total(d->pool)};
    batch b = {d->rows, n, &seq, 1};
    for (size_t i = 0; i < n; i++) {
        d->rows[i] = (batch_row){0, (int32_t)(at + i), tokens[at + i], true};
    }
    status st = ops->forward(ops->ctx, instance_pool(in), &b, d->logits, d->bad, e);
    for (size_t i = 0; st == ST_OK && i < n; i++) {
        if (d->bad[i]) {
            return err_set(e, ST_NONFINITE, "tokens", "a value that is not finite at position %zu", at + i);
        }
        st = fn(ctx, at + i, d->logits + i * ops->shape->n_vocab);
    }
    return st;
}

status door_run(instance *in, const int32_t *tokens, size_t n, door_fn fn, void *ctx, err *e)
{
    door d = {0};
    status st = door_check(in, tokens, n, e);
    if (st == ST_OK && n > 0) {
        st = door_init(&d, instance_forward(in), n, e);
        for (size_t at = 0; st == ST_OK && at < n; at += d.chunk) {
            st = door_chunk(&d, in, tokens, at, n - at < d.chunk ? n - at : d.chunk, fn, ctx, e);
        }
        door_release(&d);
    }
    return st;
}
