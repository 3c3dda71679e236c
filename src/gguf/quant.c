/* Blocks to values, and the sizes of rows. Each value is the format's formula, one fp32 rounding per
 * operation. */
#include "gguf/quant.h"

#include <assert.h>
#include <string.h>

#include "base/fp16.h"
#include "base/le.h"
#include "base/mem.h"

bool quant_supported(gguf_type type)
{
    switch (type) {
    case GGUF_TYPE_F32:
    case GGUF_TYPE_F16:
    case GGUF_TYPE_BF16:
    case GGUF_TYPE_Q8_0:
    case GGUF_TYPE_Q4_0:
    case GGUF_TYPE_Q4_K:
    case GGUF_TYPE_Q6_K:
        return true;
    default:
        return false;
    }
}

size_t quant_row_bytes(gguf_type type, size_t n)
{
    gguf_type_info info = gguf_type_info_of((uint32_t)type);
    size_t n_bytes;
    if (!info.name || n % info.block_values != 0 ||
        !size_mul(n / info.block_values, info.block_bytes, &n_bytes)) {
        return 0;
    }
    return n_bytes;
}

static void dequantise_q4_0(const block_q4_0 *b, float *y)
{
    float d = fp16_to_f32(b->d);
    for (size_t i = 0; i < 16; i++) {
        y[i] = (float)((b->qs[i] & 15) - 8) * d;
        y[i + 16] = (float)((b->qs[i] >> 4) - 8) * d;
    }
}

static void dequantise_q8_0(const block_q8_0 *b, float *y)
{
    float d = fp16_to_f32(b->d);
    for (size_t i = 0; i < 32; i++) {
        y[i] = (float)b->qs[i] * d;
    }
}

/* Six-bit scale and minimum of sub-block j: blocks.h has the drawing. */
static void q4_k_scale_min(const uint8_t *s, size_t j, unsigned *scale, unsigned *min)
{
    if (j < 4) {
        *scale = s[j] & 63u;
        *min = s[j + 4] & 63u;
    } else {
        *scale = (s[j + 4] & 15u) | (unsigned)(s[j - 4] >> 6) << 4;
        *min = (unsigned)(s[j + 4] >> 4) | (unsigned)(s[j] >> 6) << 4;
    }
}

static void dequantise_q4_k(const block_q4_k *b, float *y)
{
    float d = fp16_to_f32(b->d);
    float dmin = fp16_to_f32(b->dmin);
    for (size_t j = 0; j < 8; j++) {
        unsigned scale, min;
        q4_k_scale_min(b->scales, j, &scale, &min);
        float sub_d = d * (float)scale;
        float sub_min = dmin * (float)min;
        const uint8_t *q = b->qs + 32 * (j / 2);
        for (size_t l = 0; l < 32; l++) {
            y[32 * j + l] = sub_d * (float)(j % 2 ? q[l] >> 4 : q[l] & 15) - sub_min;
        }
    }
}

static void dequantise_q6_k(const block_q6_k *b, float *y)
{
    float d = fp16_to_f32(b->d);
    for (size_t i = 0; i < 256; i++) {
        size_t sub = i / 16, half = i / 128, run = i % 128 / 32,
               l = i % 32; /* run: which of the four 32-runs of the half */
        unsigned low = b->ql[64 * half + 32 * (run % 2) + l];
        unsigned high = b->qh[32 * half + l] >> (2 * run);
        int q = (int)((run < 2 ? low & 15u : low >> 4) | (high & 3u) << 4) - 32;
        y[i] = d * (float)b->scales[sub] * (float)q;
    }
}

void quant_dequantise(gguf_type type, const void *blocks, float *out, size_t n)
{
    const uint8_t *p = blocks;
    gguf_type_info info = gguf_type_info_of((uint32_t)type);
    if (type == GGUF_TYPE_F32) {
        memcpy(out, blocks, n * sizeof *out);
        return;
    }
    for (size_t i = 0; i < n; i += info.block_values, p += info.block_bytes) {
        switch (type) {
        case GGUF_TYPE_F16:
            out[i] = fp16_to_f32(le16_get(p));
            break;
        case GGUF_TYPE_BF16:
            out[i] = bf16_to_f32(le16_get(p));
            break;
        case GGUF_TYPE_Q8_0:
            dequantise_q8_0((const block_q8_0 *)p, out + i);
            break;
        case GGUF_TYPE_Q4_0:
            dequantise_q4_0((const block_q4_0 *)p, out + i);
            break;
        case GGUF_TYPE_Q4_K:
            dequantise_q4_k((const block_q4_k *)p, out + i);
            break;
        case GGUF_TYPE_Q6_K:
            dequantise_q6_k((const block_q6_k *)p, out + i);
            break;
        default:
            assert(!"type is not supported");
            return;
        }
    }
}
