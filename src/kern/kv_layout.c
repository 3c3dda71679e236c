/* kv_layout: see the drawing in the header. */
#include "kern/kv_layout.h"

#include <string.h>

#include "base/mem.h"

#define PART_ALIGN 64

static const char *const names[KV_TYPE_COUNT] = {
    [KV_F32] = "f32", [KV_F16] = "f16", [KV_BF16] = "bf16", [KV_Q8_0] = "q8_0"};

size_t kv_part_bytes(kv_type type, uint32_t dim)
{
    size_t n = (size_t)dim * KV_PAGE_TOKENS; /* below 2^37: no overflow below */
    switch (type) {
    case KV_F32:
        return n * sizeof(float);
    case KV_F16:
    case KV_BF16:
        return n * sizeof(uint16_t);
    default:
        return (kv_q8_scale_bytes(dim) + n + PART_ALIGN - 1) / PART_ALIGN * PART_ALIGN;
    }
}

const char *kv_type_name(kv_type type)
{
    return names[type];
}

status kv_type_parse(const char *name, kv_type *out, err *e)
{
    for (size_t i = 0; i < KV_TYPE_COUNT; i++) {
        if (strcmp(name, names[i]) == 0) {
            *out = (kv_type)i;
            return ST_OK;
        }
    }
    return err_set(e, ST_INVALID_FIELD, "kv_type", "unknown kv type '%s': f32, f16, bf16 and q8_0 exist",
                   name);
}

/* 32 values of two bytes are one line, and so are 32 scales; codes are rounded up. */
_Static_assert(KV_PAGE_TOKENS * 2 % PART_ALIGN == 0, "parts of a head are whole cache lines");

static bool layer_init(kv_type type, const kv_dims *d, size_t *offset, kv_layer *out)
{
    size_t k_bytes = kv_part_bytes(type, d->k_dim);
    size_t one = k_bytes + (d->v_in_k ? 0 : kv_part_bytes(type, d->v_dim)); /* each below 2^40 */
    size_t all, end;
    if (!size_mul(one, d->n_kv_heads, &all) || !size_add(*offset, all, &end)) {
        return false;
    }
    *out = (kv_layer){
        .offset_bytes = *offset,
        .head_bytes = one,
        .v_bytes = d->v_in_k ? 0 : k_bytes,
        .n_kv_heads = d->n_kv_heads,
        .k_dim = d->k_dim,
        .v_dim = d->v_dim,
        .v_in_k = d->v_in_k,
    };
    *offset = end;
    return true;
}

status kv_layout_init(kv_type type, const kv_dims *dims, size_t n, kv_layer *layers, size_t *page_bytes)
{
    size_t end = 0;
    kv_layer one;
    for (size_t i = 0; i < n; i++) { /* first without writing: outputs are written only on success */
        if (!layer_init(type, &dims[i], &end, &one)) {
            return ST_LOAD_FAILED;
        }
    }
    end = 0;
    for (size_t i = 0; i < n; i++) {
        layer_init(type, &dims[i], &end, &layers[i]);
    }
    *page_bytes = end;
    return ST_OK;
}
