#include "base/vec.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

#define MIN_CAP 16

void ivec_release(ivec *v)
{
    if (v) {
        mem_free(v->data);
        memset(v, 0, sizeof *v);
    }
}

void ivec_reset(ivec *v)
{
    v->len = 0;
}

status ivec_reserve(ivec *v, size_t n_more)
{
    size_t need, n_bytes;
    if (!size_add(v->len, n_more, &need)) {
        return ST_NOMEM;
    }
    if (need <= v->cap) {
        return ST_OK;
    }
    size_t cap = v->cap < MIN_CAP ? MIN_CAP : v->cap;
    while (cap < need) {
        if (!size_add(cap, cap / 2, &cap)) {
            cap = need;
        }
    }
    if (!size_mul(cap, sizeof *v->data, &n_bytes)) {
        return ST_NOMEM;
    }
    int32_t *data = mem_realloc(v->data, n_bytes);
    if (!data) {
        return ST_NOMEM;
    }
    v->data = data;
    v->cap = cap;
    return ST_OK;
}

status ivec_push(ivec *v, int32_t x)
{
    return ivec_append(v, &x, 1);
}

status ivec_append(ivec *v, const int32_t *x, size_t n)
{
    status st = ivec_reserve(v, n);
    if (st == ST_OK && n > 0) {
        memcpy(v->data + v->len, x, n * sizeof *x);
        v->len += n;
    }
    return st;
}

void ivec_truncate(ivec *v, size_t n)
{
    assert(n <= v->len);
    v->len = n;
}
