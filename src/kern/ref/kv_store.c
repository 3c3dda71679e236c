/* One position's K and V into its page: K goes down a column, V along a row (kern/kv_layout.h). */
#include <string.h>

#include "base/fp16.h"
#include "kern/ref/ref.h"

static void value_store(unsigned char *head, kv_type type, size_t index, float x)
{
    if (type == KV_F16) {
        uint16_t h = fp16_from_f32(x);
        memcpy(head + index * sizeof h, &h, sizeof h);
    } else {
        memcpy(head + index * sizeof x, &x, sizeof x);
    }
}

void kv_store_ref(void *page, const kv_layer *layer, kv_type type, size_t slot, const float *k,
                  const float *v)
{
    for (size_t h = 0; h < layer->n_kv_heads; h++) {
        unsigned char *head = (unsigned char *)page + layer->offset_bytes + h * layer->head_bytes;
        for (size_t d = 0; d < layer->k_dim; d++) {
            value_store(head, type, d * KV_PAGE_TOKENS + slot, k[h * layer->k_dim + d]);
        }
        for (size_t d = 0; d < layer->v_dim; d++) {
            value_store(head + layer->v_bytes, type, slot * layer->v_dim + d, v[h * layer->v_dim + d]);
        }
    }
}
