/* Rows: the table of types, sizes, and loops over blocks. */
#include "gguf/quant.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/fp16.h"
#include "base/le.h"
#include "base/mem.h"
#include "gguf/quant_int.h"

#define MAX_BLOCK_VALUES 256

typedef struct codec {
    quant_decode_fn *decode;
    quant_encode_fn *encode;
} codec;

/* F32, F16 and BF16 have no blocks and are loops of their own. */
#define CODEC(NAME, name) [GGUF_TYPE_##NAME] = {quant_decode_##name, quant_encode_##name}
static const codec codecs[GGUF_TYPE_COUNT] = {
    CODEC(Q4_0, q4_0),       CODEC(Q4_1, q4_1),     CODEC(Q5_0, q5_0),     CODEC(Q5_1, q5_1),
    CODEC(Q8_0, q8_0),       CODEC(Q2_K, q2_k),     CODEC(Q3_K, q3_k),     CODEC(Q4_K, q4_k),
    CODEC(Q5_K, q5_k),       CODEC(Q6_K, q6_k),     CODEC(IQ4_NL, iq4_nl), CODEC(IQ4_XS, iq4_xs),
    CODEC(TQ1_0, tq1_0),     CODEC(TQ2_0, tq2_0),   CODEC(MXFP4, mxfp4),   CODEC(NVFP4, nvfp4),
    CODEC(Q1_0, q1_0),       CODEC(Q2_0, q2_0),     CODEC(IQ1_S, iq1_s),   CODEC(IQ1_M, iq1_m),
    CODEC(IQ2_XXS, iq2_xxs), CODEC(IQ2_XS, iq2_xs), CODEC(IQ2_S, iq2_s),   CODEC(IQ3_XXS, iq3_xxs),
    CODEC(IQ3_S, iq3_s),
};

static bool is_float(gguf_type type)
{
    return type == GGUF_TYPE_F32 || type == GGUF_TYPE_F16 || type == GGUF_TYPE_BF16;
}

bool quant_supported(gguf_type type)
{
    return is_float(type) || ((unsigned)type < GGUF_TYPE_COUNT && codecs[type].decode);
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

static void decode_floats(gguf_type type, const uint8_t *p, float *out, size_t n)
{
    if (type == GGUF_TYPE_F32) {
        memcpy(out, p, n * sizeof *out);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        uint16_t half = le16_get(p + 2 * i);
        out[i] = type == GGUF_TYPE_F16 ? fp16_to_f32(half) : bf16_to_f32(half);
    }
}

void quant_dequantise(gguf_type type, const void *blocks, float *out, size_t n)
{
    const uint8_t *p = blocks;
    gguf_type_info info = gguf_type_info_of((uint32_t)type);
    if (!quant_supported(type)) {
        assert(!"type is not supported");
        return;
    }
    if (is_float(type)) {
        decode_floats(type, p, out, n);
        return;
    }
    for (size_t i = 0; i < n; i += info.block_values, p += info.block_bytes) {
        codecs[type].decode(p, out + i);
    }
}

static void encode_floats(gguf_type type, const float *x, uint8_t *p, size_t n)
{
    if (type == GGUF_TYPE_F32) {
        memcpy(p, x, n * sizeof *x);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        uint16_t half = type == GGUF_TYPE_F16 ? fp16_from_f32(x[i]) : bf16_from_f32(x[i]);
        memcpy(p + 2 * i, &half, sizeof half);
    }
}

/* No block format has NaN or infinity. */
static float finite_of(float v)
{
    return isnan(v) ? 0.0f : fmaxf(-FLT_MAX, fminf(FLT_MAX, v));
}

void quant_quantise(gguf_type type, const float *x, void *blocks, size_t n)
{
    uint8_t *p = blocks;
    gguf_type_info info = gguf_type_info_of((uint32_t)type);
    float values[MAX_BLOCK_VALUES];
    if (!quant_supported(type)) {
        assert(!"type is not supported");
        return;
    }
    if (is_float(type)) {
        encode_floats(type, x, p, n);
        return;
    }
    for (size_t i = 0; i < n; i += info.block_values, p += info.block_bytes) {
        for (size_t j = 0; j < info.block_values; j++) {
            values[j] = finite_of(x[i + j]);
        }
        codecs[type].encode(values, p);
    }
}
