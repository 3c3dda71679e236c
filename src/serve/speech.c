#include "serve/speech.h"

#include <string.h>

size_t speech_len(const speech *r)
{
    return r->items.len / sizeof(speech_item);
}

speech_item *speech_at(const speech *r, size_t i)
{
    return (speech_item *)(void *)r->items.data + i;
}

void speech_release(speech *r)
{
    for (size_t i = 0; i < speech_len(r); i++) {
        speech_item *item = speech_at(r, i);
        buf_release(&item->text);
        buf_release(&item->id);
        buf_release(&item->name);
    }
    buf_release(&r->items);
}

static speech_item *last_of(const speech *r)
{
    size_t n = speech_len(r);
    return n > 0 ? speech_at(r, n - 1) : NULL;
}

static status begin(speech *r, speech_kind kind, int32_t call)
{
    const speech_item item = {.kind = kind, .call = call};
    return buf_append(&r->items, &item, sizeof item);
}

status speech_add_text(speech *r, speech_kind kind, const char *text, size_t len)
{
    const speech_item *last = last_of(r);
    if (len == 0) {
        return ST_OK;
    }
    if (!last || last->kind != kind) {
        status st = begin(r, kind, -1);
        if (st != ST_OK) {
            return st;
        }
    }
    return buf_append(&last_of(r)->text, text, len);
}

/* Calls need not come one after the other. */
static size_t find_call(const speech *r, int32_t call)
{
    for (size_t i = speech_len(r); i-- > 0;) {
        if (speech_at(r, i)->call == call) {
            return i;
        }
    }
    return SIZE_MAX;
}

static status add_call(speech *r, const frame_call *c, size_t *at)
{
    status st = ST_OK;
    *at = find_call(r, c->index);
    if (c->index < 0 || (*at == SIZE_MAX) != (c->name.data != NULL)) {
        return ST_BAD_REQUEST;
    }
    if (*at == SIZE_MAX) {
        *at = speech_len(r);
        st = begin(r, SPEECH_CALL, c->index);
        if (st == ST_OK) {
            st = buf_append(&speech_at(r, *at)->id, c->id.data, c->id.len);
        }
        if (st == ST_OK) {
            st = buf_append(&speech_at(r, *at)->name, c->name.data, c->name.len);
        }
    }
    if (st == ST_OK) {
        speech_item *item = speech_at(r, *at);
        st = buf_append(&item->text, c->arguments.data, c->arguments.len);
        item->closed = item->closed || c->closed;
        item->withdrawn = item->withdrawn || c->withdrawn;
    }
    return st;
}

status speech_add(speech *r, const frame *f, size_t *item)
{
    size_t at = SIZE_MAX;
    status st;
    if (f->kind == FRAME_DELTA && f->delta == FRAME_DELTA_CALL) {
        st = add_call(r, &f->call, &at);
    } else {
        bool thought = f->kind == FRAME_DELTA && f->delta == FRAME_DELTA_REASONING;
        st = speech_add_text(r, thought ? SPEECH_THOUGHT : SPEECH_TEXT, f->text, f->text_len);
        at = f->text_len > 0 ? speech_len(r) - 1 : SIZE_MAX;
    }
    if (item) {
        *item = at;
    }
    return st;
}

status speech_join(const speech *r, speech_kind kind, buf *out)
{
    status st = ST_OK;
    for (size_t i = 0; st == ST_OK && i < speech_len(r); i++) {
        const speech_item *item = speech_at(r, i);
        if (item->kind == kind) {
            st = buf_append(out, buf_str(&item->text), item->text.len);
        }
    }
    return st;
}

size_t speech_n_calls(const speech *r)
{
    size_t n = 0;
    for (size_t i = 0; i < speech_len(r); i++) {
        n += speech_at(r, i)->kind == SPEECH_CALL && !speech_at(r, i)->withdrawn;
    }
    return n;
}
