#include "cmd/reference_door.h"

#include "base/mem.h"
#include "kern/kv_layout.h"
#include "kv/page_pool.h"

typedef struct door { /* owned */
    page_pool *pool;
    void **pages;
    batch_row *rows;
    float *out; /* [chunk][width] */
    uint8_t *bad;
    size_t chunk, width;
    door_what what;
} door;

static void door_release(door *d)
{
    mem_free(d->bad);
    mem_free(d->out);
    mem_free(d->rows);
    mem_free(d->pages);
    page_pool_free(d->pool);
}

static status door_init(door *d, const forward_ops *ops, size_t n, err *e)
{
    size_t n_pages = (n + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
    d->chunk =
        d->what == DOOR_LOGITS && ops->max_logit_rows < ops->max_rows ? ops->max_logit_rows : ops->max_rows;
    status st = page_pool_new(ops->page_bytes, n_pages, &d->pool, e);
    if (st != ST_OK) {
        return st;
    }
    d->pages = mem_calloc(n_pages, sizeof *d->pages);
    d->rows = mem_calloc(d->chunk, sizeof *d->rows);
    d->bad = mem_calloc(d->chunk, 1);
    size_t n_out;
    if (!size_mul(d->chunk, d->width, &n_out)) {
        return err_set(e, ST_NOMEM, NULL, "the rows do not fit memory");
    }
    d->out = mem_alloc_array(n_out, sizeof *d->out);
    if (!d->pages || !d->rows || !d->bad || !d->out) {
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
    bool logits = d->what == DOOR_LOGITS;
    batch b = {.rows = d->rows, .n_rows = n, .seqs = &seq, .n_seqs = 1, .hidden = logits ? NULL : d->out};
    for (size_t i = 0; i < n; i++) {
        d->rows[i] = (batch_row){
            .pos = (int32_t)(at + i), .token = tokens[at + i], .want_logits = logits, .want_hidden = !logits};
    }
    status st = ops->forward(ops->ctx, instance_pool(in), &b, logits ? d->out : NULL, d->bad, e);
    for (size_t i = 0; st == ST_OK && i < n; i++) {
        if (d->bad[i]) {
            return err_set(e, ST_NONFINITE, "tokens", "a value that is not finite at position %zu", at + i);
        }
        st = fn(ctx, at + i, d->out + i * d->width);
    }
    return st;
}

size_t door_width(const instance *in, door_what what)
{
    const model_shape *shape = instance_forward(in)->shape;
    return what == DOOR_LOGITS ? shape->n_vocab : shape->n_embd;
}

status door_run(instance *in, door_what what, const int32_t *tokens, size_t n, door_fn fn, void *ctx, err *e)
{
    door d = {.what = what, .width = door_width(in, what)};
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
