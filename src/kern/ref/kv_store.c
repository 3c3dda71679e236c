/* K and V into and out of a page, value by value: K goes down a column, V along a row (kern/kv_layout.h). */
#include <math.h>
#include <string.h>

#include "base/fp16.h"
#include "kern/ref/ref.h"

/* Where value d of a slot lies in a part of a head, and the scale of its block; counted in values and scales. */
typedef struct place {
    size_t value;
    size_t scale;
    size_t dim; /* of the part */
} place;

static place key_place(const kv_layer *l, size_t slot, size_t d)
{
    return (place){d * KV_PAGE_TOKENS + slot, d / KV_BLOCK * KV_PAGE_TOKENS + slot, l->k_dim};
}

static place value_place(const kv_layer *l, size_t slot, size_t d)
{
    size_t blocks = (l->v_dim + KV_BLOCK - 1) / KV_BLOCK;
    return (place){slot * l->v_dim + d, slot * blocks + d / KV_BLOCK, l->v_dim};
}

static float part_load(const unsigned char *part, kv_type type, place at)
{
    float x;
    uint16_t h;
    switch (type) {
    case KV_F32:
        memcpy(&x, part + at.value * sizeof x, sizeof x);
        return x;
    case KV_F16:
        memcpy(&h, part + at.value * sizeof h, sizeof h);
        return fp16_to_f32(h);
    case KV_BF16:
        memcpy(&h, part + at.value * sizeof h, sizeof h);
        return bf16_to_f32(h);
    default:
        memcpy(&h, part + at.scale * sizeof h, sizeof h);
        return fp16_to_f32(h) * (float)(int8_t)part[kv_q8_scale_bytes(at.dim) + at.value];
    }
}

float kv_key_ref(const unsigned char *head, const kv_layer *layer, kv_type type, size_t slot, size_t d)
{
    return part_load(head, type, key_place(layer, slot, d));
}

float kv_value_ref(const unsigned char *head, const kv_layer *layer, kv_type type, size_t slot, size_t d)
{
    if (layer->v_in_k) {
        return kv_key_ref(head, layer, type, slot, d);
    }
    return part_load(head + layer->v_bytes, type, value_place(layer, slot, d));
}

static void part_store(unsigned char *part, kv_type type, place at, float x)
{
    uint16_t h = type == KV_F16 ? fp16_from_f32(x) : bf16_from_f32(x);
    if (type == KV_F32) {
        memcpy(part + at.value * sizeof x, &x, sizeof x);
    } else {
        memcpy(part + at.value * sizeof h, &h, sizeof h);
    }
}

/* The scale of the n values of a block (binary16); NaN if one is not finite or the scale would not be. */
static uint16_t block_scale(const float *x, size_t n)
{
    float most = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) {
            return 0x7E00;
        }
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    }
    uint16_t h = fp16_from_f32(most / 127.0f);
    return h == 0x7C00 ? 0x7E00 : h;
}

static int8_t code_of(float x, float scale)
{
    if (!(scale > 0)) {
        return 0; /* all zero, or NaN */
    }
    float q = rintf(x * (1.0f / scale));
    q = q < -127.0f ? -127.0f : q > 127.0f ? 127.0f : q;
    return (int8_t)q;
}

/* dim values of one slot. */
static void slot_store(unsigned char *part, const kv_layer *l, kv_type type,
                       place (*place_of)(const kv_layer *, size_t, size_t), size_t slot, const float *x,
                       size_t dim)
{
    uint16_t h = 0;
    for (size_t d = 0; d < dim; d++) {
        place at = place_of(l, slot, d);
        if (type != KV_Q8_0) {
            part_store(part, type, at, x[d]);
            continue;
        }
        if (d % KV_BLOCK == 0) {
            h = block_scale(x + d, dim - d < KV_BLOCK ? dim - d : KV_BLOCK);
            memcpy(part + at.scale * sizeof h, &h, sizeof h);
        }
        part[kv_q8_scale_bytes(dim) + at.value] = (unsigned char)code_of(x[d], fp16_to_f32(h));
    }
}

void kv_store_ref(void *page, const kv_layer *layer, kv_type type, size_t slot, size_t n, const float *k,
                  size_t k_stride, const float *v, size_t v_stride)
{
    for (size_t i = 0; i < n * layer->n_kv_heads; i++) {
        size_t row = i / layer->n_kv_heads, h = i % layer->n_kv_heads;
        unsigned char *head = (unsigned char *)page + layer->offset_bytes + h * layer->head_bytes;
        slot_store(head, layer, type, key_place, slot + row, k + row * k_stride + h * layer->k_dim,
                   layer->k_dim);
        if (!layer->v_in_k) {
            slot_store(head + layer->v_bytes, layer, type, value_place, slot + row,
                       v + row * v_stride + h * layer->v_dim, layer->v_dim);
        }
    }
}
