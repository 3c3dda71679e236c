/* One position's K and V into its page; only the narrowing to binary16 has anything to gain from vectors. */
#include "kern/x86/avx2.h"
#include "kern/x86/vec_avx2.h"

/* k [n] down the column of its slot. */
static void column_store_f16(unsigned char *head, size_t slot, const float *k, size_t n)
{
    for (size_t d = 0; d < n; d += 8) {
        size_t m = n - d < 8 ? n - d : 8;
        uint16_t h[8];
        _mm_storeu_si128((__m128i *)(void *)h, v8_to_f16(v8_load_n(k + d, m)));
        for (size_t i = 0; i < m; i++) {
            memcpy(head + ((d + i) * KV_PAGE_TOKENS + slot) * sizeof h[0], &h[i], sizeof h[0]);
        }
    }
}

static void column_store_f32(unsigned char *head, size_t slot, const float *k, size_t n)
{
    for (size_t d = 0; d < n; d++) {
        memcpy(head + (d * KV_PAGE_TOKENS + slot) * sizeof k[0], &k[d], sizeof k[0]);
    }
}

static void row_store_f16(unsigned char *row, const float *v, size_t n)
{
    for (size_t d = 0; d < n; d += 8) {
        size_t m = n - d < 8 ? n - d : 8;
        __m128i h = v8_to_f16(v8_load_n(v + d, m));
        if (m == 8) {
            _mm_storeu_si128((__m128i *)(void *)(row + d * 2), h);
        } else {
            memcpy(row + d * 2, &h, m * 2);
        }
    }
}

void kv_store_avx2(void *page, const kv_layer *layer, kv_type type, size_t slot, const float *k,
                   const float *v)
{
    size_t k_dim = layer->k_dim;
    size_t v_dim = layer->v_dim;
    for (size_t h = 0; h < layer->n_kv_heads; h++) {
        unsigned char *head = (unsigned char *)page + layer->offset_bytes + h * layer->head_bytes;
        unsigned char *row = head + layer->v_bytes + slot * v_dim * kv_type_bytes(type);
        if (type == KV_F16) {
            column_store_f16(head, slot, k + h * k_dim, k_dim);
            row_store_f16(row, v + h * v_dim, v_dim);
        } else {
            column_store_f32(head, slot, k + h * k_dim, k_dim);
            memcpy(row, v + h * v_dim, v_dim * sizeof(float));
        }
    }
}
