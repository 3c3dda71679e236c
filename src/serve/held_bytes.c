#include "serve/held_bytes.h"

#include <event2/buffer.h>

#include "base/mem.h"

bool byte_budget_take(byte_budget *b, size_t n)
{
    if (b->used > b->max || n > b->max - b->used) {
        return false;
    }
    b->used += n;
    return true;
}

held_bytes *held_bytes_new(buf *bytes, byte_budget *budget, size_t charged)
{
    held_bytes *h = mem_calloc(1, sizeof *h);
    if (h) {
        h->bytes = *bytes;
        h->budget = budget;
        h->charged = charged;
        *bytes = (buf){0};
    }
    return h;
}

void held_bytes_free(held_bytes *h)
{
    if (h) {
        h->budget->used -= h->charged;
        buf_release(&h->bytes);
        mem_free(h);
    }
}

void held_bytes_recharge(held_bytes *h, size_t charged)
{
    h->budget->used -= h->charged - charged;
    h->charged = charged;
}

static void sent(const void *data, size_t len, void *ctx)
{
    held_bytes_free(ctx);
}

bool held_bytes_send(held_bytes *h, struct evbuffer *out)
{
    if (evbuffer_add_reference(out, buf_str(&h->bytes), h->bytes.len, sent, h) != 0) {
        held_bytes_free(h);
        return false;
    }
    return true;
}
