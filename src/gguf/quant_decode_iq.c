/* Blocks of the IQ formats with a grid to values: point * scale * sign, in the format's own order. */
#include "base/fp16.h"
#include "base/le.h"
#include "gguf/quant_int.h"
#include "gguf/quant_tables.h"

/* Seven stored sign bits and the eighth that makes their number even. */
static unsigned even_signs(unsigned seven)
{
    unsigned fold = seven ^ seven >> 4;
    fold ^= fold >> 2;
    fold ^= fold >> 1;
    return seven | (fold & 1u) << 7;
}

/* n values of one point; bit i of signs negates value i. */
static void put_point(const quant_grid *grid, unsigned index, unsigned signs, float scale, float *y)
{
    int8_t point[QUANT_GRID_MAX_DIMS];
    quant_grid_point(grid, index, point);
    for (size_t i = 0; i < grid->n_dims; i++) {
        y[i] = scale * (float)point[i] * (signs >> i & 1u ? -1.0f : 1.0f);
    }
}

void quant_decode_iq2_xxs(const void *block, float *y)
{
    const block_iq2_xxs *b = block;
    float d = fp16_to_f32(b->d);
    for (size_t g = 0; g < 32; g++) {
        const uint8_t *run = b->qs + 8 * (g / 4);
        uint32_t word = le32_get(run + 4);
        float scale = d * (0.5f + (float)(word >> 28)) * 0.25f;
        put_point(&quant_grid_iq2_xxs, run[g % 4], even_signs(word >> 7 * (g % 4) & 127u), scale, y + 8 * g);
    }
}

/* The scale of group g of IQ2_XS and IQ2_S. */
static float iq2_scale(float d, const uint8_t *scales, size_t g)
{
    return d * (0.5f + (float)(scales[g / 4] >> 4 * (g % 4 / 2) & 15)) * 0.25f;
}

void quant_decode_iq2_xs(const void *block, float *y)
{
    const block_iq2_xs *b = block;
    float d = fp16_to_f32(b->d);
    for (size_t g = 0; g < 32; g++) {
        put_point(&quant_grid_iq2_xs, b->qs[g] & 511u, even_signs(b->qs[g] >> 9), iq2_scale(d, b->scales, g),
                  y + 8 * g);
    }
}

void quant_decode_iq2_s(const void *block, float *y)
{
    const block_iq2_s *b = block;
    float d = fp16_to_f32(b->d);
    for (size_t g = 0; g < 32; g++) {
        unsigned index = b->qs[g] | (b->qh[g / 4] >> 2 * (g % 4) & 3u) << 8;
        put_point(&quant_grid_iq2_s, index, b->signs[g], iq2_scale(d, b->scales, g), y + 8 * g);
    }
}

void quant_decode_iq3_xxs(const void *block, float *y)
{
    const block_iq3_xxs *b = block;
    float d = fp16_to_f32(b->d);
    for (size_t g = 0; g < 64; g++) {
        uint32_t word = le32_get(b->words + 4 * (g / 8));
        float scale = d * (0.5f + (float)(word >> 28)) * 0.5f;
        unsigned signs = even_signs(word >> 7 * (g % 8 / 2) & 127u);
        put_point(&quant_grid_iq3_xxs, b->qs[g], signs >> 4 * (g % 2), scale, y + 4 * g);
    }
}

void quant_decode_iq3_s(const void *block, float *y)
{
    const block_iq3_s *b = block;
    float d = fp16_to_f32(b->d);
    for (size_t g = 0; g < 64; g++) {
        unsigned index = b->qs[g] | (b->qh[g / 8] >> g % 8 & 1u) << 8;
        float scale = d * (float)(1 + 2 * (b->scales[g / 16] >> 4 * (g / 8 % 2) & 15));
        put_point(&quant_grid_iq3_s, index, (unsigned)b->signs[g / 2] >> 4 * (g % 2), scale, y + 4 * g);
    }
}

static void put_iq1_point(unsigned index, unsigned is_negative, float scale, float *y)
{
    int8_t point[QUANT_GRID_MAX_DIMS];
    float delta = is_negative ? -0.125f : 0.125f;
    quant_grid_point(&quant_grid_iq1, index, point);
    for (size_t i = 0; i < 8; i++) {
        y[i] = scale * ((float)point[i] + delta);
    }
}

void quant_decode_iq1_s(const void *block, float *y)
{
    const block_iq1_s *b = block;
    float d = fp16_to_f32(b->d);
    for (size_t g = 0; g < 32; g++) {
        unsigned qh = b->qh[g / 4];
        unsigned index = b->qs[g] | (qh >> 3 * (g % 4) & 7u) << 8;
        float scale = d * (float)(2 * (qh >> 12 & 7u) + 1);
        put_iq1_point(index, qh >> 15, scale, y + 8 * g);
    }
}

void quant_decode_iq1_m(const void *block, float *y)
{
    const block_iq1_m *b = block;
    unsigned d_bits = 0;
    for (size_t j = 0; j < 4; j++) {
        d_bits |= (unsigned)(le16_get(b->scales + 2 * j) >> 12) << 4 * j;
    }
    float d = fp16_to_f32((uint16_t)d_bits);
    for (size_t g = 0; g < 32; g++) {
        unsigned nibble = b->qh[g / 2] >> 4 * (g % 2) & 15u;
        unsigned scale = le16_get(b->scales + 2 * (g / 8)) >> 3 * (g % 8 / 2) & 7u;
        put_iq1_point(b->qs[g] | (nibble & 7u) << 8, nibble >> 3, d * (float)(2 * scale + 1), y + 8 * g);
    }
}
