#include "model/batch.h"

#include "kern/kv_layout.h"

static status broken(err *e, size_t row, const char *what)
{
    return err_set(e, ST_INTERNAL, "batch", "row %zu of a batch %s", row, what);
}

static bool listed(const int32_t *groups, size_t n, int32_t seq)
{
    for (size_t i = 0; i < n; i++) {
        if (groups[i] == seq) {
            return true;
        }
    }
    return false;
}

/* The pages of a sequence whose last row in the batch is row. */
static status check_pages(const batch *b, size_t row, err *e)
{
    const batch_seq *s = &b->seqs[b->rows[row].seq];
    size_t n = (size_t)b->rows[row].pos / KV_PAGE_TOKENS + 1;
    if (s->n_pages < n) {
        return broken(e, row, "has a position behind the last page of its sequence");
    }
    for (size_t i = 0; i < n; i++) {
        if (!s->pages[i]) {
            return broken(e, row, "needs a page that is not there");
        }
    }
    return ST_OK;
}

/* A row by itself, and against the row before it if that is of the same sequence. */
static status check_row(const batch *b, const batch_limits *limits, size_t i, err *e)
{
    const batch_row *r = &b->rows[i];
    if (r->seq < 0 || (size_t)r->seq >= b->n_seqs) {
        return broken(e, i, "belongs to no sequence of it");
    }
    if (r->token < 0 || (uint32_t)r->token >= limits->n_vocab) {
        return broken(e, i, "has a token outside the vocabulary");
    }
    if (r->pos < 0) {
        return broken(e, i, "has a negative position");
    }
    if (r->want_hidden && !b->hidden) {
        return broken(e, i, "wants its hidden state, and there is no place for it");
    }
    if (i > 0 && b->rows[i - 1].seq == r->seq && (int64_t)b->rows[i - 1].pos + 1 != r->pos) {
        return broken(e, i, "does not follow the position before it");
    }
    return ST_OK;
}

status batch_check(const batch *b, const batch_limits *limits, err *e)
{
    size_t n_groups = 0, n_logits = 0;
    if (b->n_rows == 0 || b->n_rows > limits->max_rows) {
        return err_set(e, ST_INTERNAL, "batch", "a batch has %zu rows, it must have 1 to %zu", b->n_rows,
                       limits->max_rows);
    }
    for (size_t i = 0; i < b->n_rows; i++) {
        status st = check_row(b, limits, i, e);
        if (st != ST_OK) {
            return st;
        }
        int32_t seq = b->rows[i].seq;
        if (i == 0 || b->rows[i - 1].seq != seq) {
            if (listed(limits->groups, n_groups, seq)) {
                return broken(e, i, "stands apart from the other rows of its sequence");
            }
            limits->groups[n_groups++] = seq;
        }
        if (i + 1 == b->n_rows || b->rows[i + 1].seq != seq) {
            st = check_pages(b, i, e);
            if (st != ST_OK) {
                return st;
            }
        }
        n_logits += b->rows[i].want_logits;
    }
    if (n_logits > limits->max_logit_rows) {
        return err_set(e, ST_INTERNAL, "batch", "a batch wants logits of %zu rows, at most %zu are possible",
                       n_logits, limits->max_logit_rows);
    }
    return ST_OK;
}
