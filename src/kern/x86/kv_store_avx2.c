/* K and V of positions into their page (kern/kv_layout.h): eight dimensions are narrowed at a time. */
#include <math.h>

#include "base/fp16.h"
#include "kern/x86/avx2.h"
#include "kern/x86/vec_avx2.h"

/* Half to even; a NaN becomes quiet (base/fp16.h). */
static __m128i to_bf16(__m256 v)
{
    __m256i u = _mm256_castps_si256(v);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
    __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
    __m256 nan = _mm256_cmp_ps(v, v, _CMP_UNORD_Q);
    __m256i high =
        _mm256_castps_si256(_mm256_blendv_ps(_mm256_castsi256_ps(rounded), _mm256_castsi256_ps(quiet), nan));
    high = _mm256_srli_epi32(high, 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
}

static __m128i to_halves(__m256 v, kv_type type)
{
    return type == KV_F16 ? v8_to_f16(v) : to_bf16(v);
}

/* k [n] down the column of its slot. */
static void column_store_halves(unsigned char *head, kv_type type, size_t slot, const float *k, size_t n)
{
    for (size_t d = 0; d < n; d += 8) {
        size_t m = n - d < 8 ? n - d : 8;
        uint16_t h[8];
        _mm_storeu_si128((__m128i *)(void *)h, to_halves(v8_load_n(k + d, m), type));
        for (size_t i = 0; i < m; i++) {
            memcpy(head + ((d + i) * KV_PAGE_TOKENS + slot) * sizeof h[0], &h[i], sizeof h[0]);
        }
    }
}

static void row_store_halves(unsigned char *row, kv_type type, const float *v, size_t n)
{
    for (size_t d = 0; d < n; d += 8) {
        size_t m = n - d < 8 ? n - d : 8;
        __m128i h = to_halves(v8_load_n(v + d, m), type);
        if (m == 8) {
            _mm_storeu_si128((__m128i *)(void *)(row + d * 2), h);
        } else {
            memcpy(row + d * 2, &h, m * 2);
        }
    }
}

/* Codes of one block of Q8_0 and its scale (NaN if a value is not finite or the scale would not be). */
static uint16_t block_codes(int8_t q[KV_BLOCK], const float *x, size_t n)
{
    const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFFFFFF));
    __m256 v[4], most = _mm256_setzero_ps(), bad = _mm256_setzero_ps();
    for (size_t i = 0; i < 4; i++) {
        size_t left = n > 8 * i ? n - 8 * i : 0;
        v[i] = v8_load_n(x + 8 * i, left < 8 ? left : 8);
        __m256 size = _mm256_and_ps(v[i], magnitude);
        most = _mm256_max_ps(most, size);
        bad = _mm256_or_ps(bad, _mm256_cmp_ps(size, _mm256_set1_ps(INFINITY), _CMP_NLT_UQ));
    }
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(most), _mm256_extractf128_ps(most, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    m = _mm_max_ss(m, _mm_movehdup_ps(m));
    uint16_t h = fp16_from_f32(_mm_cvtss_f32(m) / 127.0f);
    h = _mm256_movemask_ps(bad) || h == 0x7C00 ? 0x7E00 : h;
    float scale = fp16_to_f32(h);
    __m256 inv = _mm256_set1_ps(scale > 0 ? 1.0f / scale : 0.0f);
    for (size_t i = 0; i < 4; i++) {
        __m256i c = _mm256_cvtps_epi32(scale > 0 ? _mm256_mul_ps(v[i], inv) : inv);
        c = _mm256_max_epi32(_mm256_min_epi32(c, _mm256_set1_epi32(127)), _mm256_set1_epi32(-127));
        __m128i w = _mm_packs_epi32(_mm256_castsi256_si128(c), _mm256_extracti128_si256(c, 1));
        _mm_storel_epi64((__m128i *)(void *)(q + 8 * i), _mm_packs_epi16(w, w));
    }
    return h;
}

static void column_store_codes(unsigned char *head, size_t slot, const float *k, size_t n)
{
    unsigned char *codes = head + kv_q8_scale_bytes(n) + slot;
    for (size_t d = 0; d < n; d += KV_BLOCK) {
        size_t m = n - d < KV_BLOCK ? n - d : KV_BLOCK;
        int8_t q[KV_BLOCK];
        uint16_t h = block_codes(q, k + d, m);
        memcpy(head + (d + slot) * sizeof h, &h, sizeof h); /* [block][32] */
        for (size_t i = 0; i < m; i++) {
            codes[(d + i) * KV_PAGE_TOKENS] = (unsigned char)q[i];
        }
    }
}

static void row_store_codes(unsigned char *part, size_t slot, const float *v, size_t n)
{
    size_t n_blocks = (n + KV_BLOCK - 1) / KV_BLOCK;
    unsigned char *codes = part + kv_q8_scale_bytes(n) + slot * n;
    for (size_t b = 0; b < n_blocks; b++) {
        size_t d = b * KV_BLOCK, m = n - d < KV_BLOCK ? n - d : KV_BLOCK;
        int8_t q[KV_BLOCK];
        uint16_t h = block_codes(q, v + d, m);
        memcpy(part + (slot * n_blocks + b) * sizeof h, &h, sizeof h);
        memcpy(codes + d, q, m);
    }
}

static void key_store(unsigned char *head, kv_type type, size_t slot, const float *k, size_t n)
{
    if (type == KV_F32) {
        for (size_t d = 0; d < n; d++) {
            memcpy(head + (d * KV_PAGE_TOKENS + slot) * sizeof k[0], &k[d], sizeof k[0]);
        }
    } else if (type == KV_Q8_0) {
        column_store_codes(head, slot, k, n);
    } else {
        column_store_halves(head, type, slot, k, n);
    }
}

static void value_store(unsigned char *part, kv_type type, size_t slot, const float *v, size_t n)
{
    if (type == KV_F32) {
        memcpy(part + slot * n * sizeof v[0], v, n * sizeof v[0]);
    } else if (type == KV_Q8_0) {
        row_store_codes(part, slot, v, n);
    } else {
        row_store_halves(part + slot * n * 2, type, v, n);
    }
}

void kv_store_avx2(void *page, const kv_layer *layer, kv_type type, size_t slot, size_t n, const float *k,
                   size_t k_stride, const float *v, size_t v_stride)
{
    for (size_t h = 0; h < layer->n_kv_heads; h++) {
        unsigned char *head = (unsigned char *)page + layer->offset_bytes + h * layer->head_bytes;
        for (size_t i = 0; i < n; i++) {
            key_store(head, type, slot + i, k + i * k_stride + h * layer->k_dim, layer->k_dim);
            if (!layer->v_in_k) {
                value_store(head + layer->v_bytes, type, slot + i, v + i * v_stride + h * layer->v_dim,
                            layer->v_dim);
            }
        }
    }
}
