/*
 * What a sequence says: id → detok → stop matcher → text. The buffers are reserved when the sequence is made,
 * so that nothing here allocates.
 */
#include "engine/engine_int.h"

/* U+FFFD takes three bytes and may stand for one. */
#define REPAIR_GROWTH  3
#define MAX_CHAR_BYTES 4

status reply_reserve(sequence *s)
{
    engine *en = s->en;
    /* The matcher looks at new text behind what it held, and may release all of it at once. */
    size_t n_text = REPAIR_GROWTH * (en->max_piece + MAX_CHAR_BYTES);
    size_t n_held = s->stops ? stop_set_longest(s->stops) + n_text : 0;
    buf_reset(&en->piece);
    buf_reset(&en->text);
    status st = buf_reserve(&en->piece, n_text);
    if (st == ST_OK) {
        st = buf_reserve(&en->text, n_text + n_held);
    }
    if (st == ST_OK) {
        st = buf_reserve(&s->stop.held, n_held);
    }
    if (st == ST_OK) {
        st = buf_reserve(&s->tail, n_held + REPAIR_GROWTH * MAX_CHAR_BYTES);
    }
    return st;
}

status reply_push(sequence *s, int32_t token)
{
    engine *en = s->en;
    buf_reset(&en->piece);
    buf_reset(&en->text);
    if (!en->cfg.tok) {
        return ST_OK;
    }
    status st = detok_push(&s->detok, token, &en->piece);
    if (st == ST_OK) {
        st = stop_matcher_push(&s->stop, buf_str(&en->piece), en->piece.len, &en->text);
    }
    s->stop_cut = s->stop.matched >= 0;
    return st;
}

status reply_flush(sequence *s)
{
    engine *en = s->en;
    if (!en->cfg.tok || s->stop_cut) {
        return ST_OK; /* what follows a stop string is dropped */
    }
    buf_reset(&en->piece);
    s->repaired_tail = s->detok.n_tail > 0;
    status st = detok_flush(&s->detok, &en->piece);
    if (st == ST_OK) {
        st = stop_matcher_push(&s->stop, buf_str(&en->piece), en->piece.len, &s->tail);
    }
    s->stop_cut = s->stop.matched >= 0; /* a stop string may end in U+FFFD */
    if (st == ST_OK && !s->stop_cut) {
        st = stop_matcher_flush(&s->stop, &s->tail);
    }
    return st;
}
