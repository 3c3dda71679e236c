/* kv_layout: see the drawing in the header. */
#include "kern/kv_layout.h"

#include <string.h>

#include "base/mem.h"

#define LAYER_ALIGN 64

static const struct {
    const char *name;
    size_t bytes;
} types[] = {
    [KV_F32] = {"f32", 4},
    [KV_F16] = {"f16", 2},
};

#define N_TYPES (sizeof types / sizeof types[0])

size_t kv_type_bytes(kv_type type)
{
    return types[type].bytes;
}

const char *kv_type_name(kv_type type)
{
    return types[type].name;
}

status kv_type_parse(const char *name, kv_type *out, err *e)
{
    for (size_t i = 0; i < N_TYPES; i++) {
        if (strcmp(name, types[i].name) == 0) {
            *out = (kv_type)i;
            return ST_OK;
        }
    }
    return err_set(e, ST_INVALID_FIELD, "kv_type", "unknown kv type '%s': f32 and f16 exist", name);
}

/* Bytes of K and of V of one head: one row of 32 positions per value. */
static bool head_bytes(size_t value_bytes, const kv_dims *d, size_t *k_bytes, size_t *v_bytes)
{
    return size_mul(value_bytes * KV_PAGE_TOKENS, d->k_dim, k_bytes) &&
           size_mul(value_bytes * KV_PAGE_TOKENS, d->v_dim, v_bytes);
}

/* Rows of a head are 32 values, so that heads and layers begin on multiples of 64 bytes of themselves. */
_Static_assert(KV_PAGE_TOKENS * 2 % LAYER_ALIGN == 0, "the smallest row of a page is whole cache lines");

static bool layer_init(size_t value_bytes, const kv_dims *d, size_t *offset, kv_layer *out)
{
    size_t k_bytes, v_bytes, one, all, end;
    if (!head_bytes(value_bytes, d, &k_bytes, &v_bytes) || !size_add(k_bytes, v_bytes, &one) ||
        !size_mul(one, d->n_kv_heads, &all) || !size_add(*offset, all, &end)) {
        return false;
    }
    *out = (kv_layer){
        .offset_bytes = *offset,
        .head_bytes = one,
        .v_bytes = k_bytes,
        .n_kv_heads = d->n_kv_heads,
        .k_dim = d->k_dim,
        .v_dim = d->v_dim,
    };
    *offset = end;
    return true;
}

status kv_layout_init(kv_type type, const kv_dims *dims, size_t n, kv_layer *layers, size_t *page_bytes)
{
    size_t end = 0;
    kv_layer one;
    for (size_t i = 0; i < n; i++) { /* first without writing: outputs are written only on success */
        if (!layer_init(kv_type_bytes(type), &dims[i], &end, &one)) {
            return ST_LOAD_FAILED;
        }
    }
    end = 0;
    for (size_t i = 0; i < n; i++) {
        layer_init(kv_type_bytes(type), &dims[i], &end, &layers[i]);
    }
    *page_bytes = end;
    return ST_OK;
}
