#include "text/detok.h"

#include <string.h>

#include "base/utf8.h"

#define REPLACEMENT     "\xEF\xBF\xBD"
#define REPLACEMENT_LEN 3

void detok_init(detok *d, const tokenizer *tok)
{
    memset(d, 0, sizeof *d);
    d->tok = tok;
}

/* Completes the unfinished character with bytes of s; *used tells how many. Afterwards the tail is empty, or
 * all of s was used. */
static status tail_complete(detok *d, const char *s, size_t n, size_t *used, buf *out)
{
    status st = ST_OK;
    *used = 0;
    while (st == ST_OK && d->n_tail > 0 && *used < n) {
        bool ok;
        d->tail[d->n_tail] = (unsigned char)s[*used];
        const char *tail = (const char *)d->tail;
        size_t len = d->n_tail + 1;
        utf8_decode(tail, len, NULL, &ok);
        if (ok) {
            st = buf_append(out, tail, len);
            d->n_tail = 0;
            ++*used;
        } else if (utf8_incomplete_tail(tail, len) == len) {
            d->n_tail++;
            ++*used;
        } else { /* this byte cannot go on: it is looked at again, as the first of what follows */
            st = buf_append(out, REPLACEMENT, REPLACEMENT_LEN);
            d->n_tail = 0;
        }
    }
    return st;
}

status detok_push(detok *d, int32_t id, buf *out)
{
    size_t n, used, before = out->len;
    const char *s = tokenizer_piece(d->tok, id, &n);
    detok next = *d;
    status st = tail_complete(&next, s, n, &used, out);
    if (st == ST_OK && used < n) {
        size_t tail = utf8_incomplete_tail(s + used, n - used);
        st = utf8_repair(out, s + used, n - used - tail);
        memcpy(next.tail, s + n - tail, tail);
        next.n_tail = (unsigned)tail;
    }
    if (st != ST_OK) {
        if (out->len > before) {
            buf_truncate(out, before);
        }
        return st;
    }
    *d = next;
    return ST_OK;
}

status detok_flush(detok *d, buf *out)
{
    status st = d->n_tail > 0 ? buf_append(out, REPLACEMENT, REPLACEMENT_LEN) : ST_OK;
    if (st == ST_OK) {
        d->n_tail = 0;
    }
    return st;
}
