/*
 * Blocks of the IQ formats with a grid, to integers (layouts: gguf/blocks.h; points: gguf/quant_tables.h). Scales
 * of 1/2 + s are doubled, points with an eighth (IQ1) are multiplied by 8; what that adds is taken off d.
 */
#include "base/fp16.h"
#include "base/le.h"
#include "gguf/quant_tables.h"
#include "kern/ref/matmul_codes.h"

/* The points of the grids by index, eight coordinates each; written once by grid_points_fill. */
static int8_t iq1[2048][8], iq2_xxs[256][8], iq2_xs[512][8], iq2_s[1024][8];
static int8_t iq3_xxs[256][8], iq3_s[512][8];

static void grid_fill(const quant_grid *grid, int8_t (*points)[8])
{
    for (unsigned i = 0; i < grid->n_points; i++) {
        quant_grid_point(grid, i, points[i]);
    }
}

void matmul_grids_fill(void)
{
    grid_fill(&quant_grid_iq1, iq1);
    grid_fill(&quant_grid_iq2_xxs, iq2_xxs);
    grid_fill(&quant_grid_iq2_xs, iq2_xs);
    grid_fill(&quant_grid_iq2_s, iq2_s);
    grid_fill(&quant_grid_iq3_xxs, iq3_xxs);
    grid_fill(&quant_grid_iq3_s, iq3_s);
}

/* Seven stored sign bits and the eighth that makes their number even. */
static unsigned even_signs(unsigned seven)
{
    return seven | (unsigned)(__builtin_popcount(seven) & 1) << 7;
}

/* The n values of one point; bit i of signs negates value i. */
static void put_point(const int8_t *point, size_t n, unsigned signs, int16_t *q)
{
    for (size_t i = 0; i < n; i++) {
        q[i] = (int16_t)(signs >> i & 1u ? -point[i] : point[i]);
    }
}

static void decode_iq2_xxs(const uint8_t *block, size_t at, matmul_codes *out)
{
    const uint8_t *qs = block + offsetof(block_iq2_xxs, qs);
    size_t run = at / MATMUL_RUN;
    out->d[run] = fp16_to_f32(le16_get(block)) * 0.125f;
    for (size_t r = 0; r < 8; r++) {
        uint32_t word = le32_get(qs + 8 * r + 4);
        out->sc[run + 2 * r] = out->sc[run + 2 * r + 1] = (int16_t)(2 * (word >> 28) + 1);
        for (size_t g = 0; g < 4; g++) {
            put_point(iq2_xxs[qs[8 * r + g]], 8, even_signs(word >> 7 * g & 127u),
                      out->q + at + 32 * r + 8 * g);
        }
    }
}

/* The nibbles of IQ2_XS and IQ2_S, one per 16 values. */
static void put_iq2_scales(const uint8_t *scales, int16_t *sc)
{
    for (size_t j = 0; j < 16; j++) {
        sc[j] = (int16_t)(2 * (scales[j / 2] >> 4 * (j % 2) & 15) + 1);
    }
}

static void decode_iq2_xs(const uint8_t *block, size_t at, matmul_codes *out)
{
    const uint8_t *qs = block + offsetof(block_iq2_xs, qs);
    out->d[at / MATMUL_RUN] = fp16_to_f32(le16_get(block)) * 0.125f;
    put_iq2_scales(block + offsetof(block_iq2_xs, scales), out->sc + at / MATMUL_RUN);
    for (size_t g = 0; g < 32; g++) {
        unsigned word = le16_get(qs + 2 * g);
        put_point(iq2_xs[word & 511u], 8, even_signs(word >> 9), out->q + at + 8 * g);
    }
}

static void decode_iq2_s(const uint8_t *block, size_t at, matmul_codes *out)
{
    const uint8_t *qh = block + offsetof(block_iq2_s, qh);
    out->d[at / MATMUL_RUN] = fp16_to_f32(le16_get(block)) * 0.125f;
    put_iq2_scales(block + offsetof(block_iq2_s, scales), out->sc + at / MATMUL_RUN);
    for (size_t g = 0; g < 32; g++) {
        unsigned index = block[offsetof(block_iq2_s, qs) + g] | (qh[g / 4] >> 2 * (g % 4) & 3u) << 8;
        put_point(iq2_s[index], 8, block[offsetof(block_iq2_s, signs) + g], out->q + at + 8 * g);
    }
}

static void decode_iq3_xxs(const uint8_t *block, size_t at, matmul_codes *out)
{
    size_t run = at / MATMUL_RUN;
    out->d[run] = fp16_to_f32(le16_get(block)) * 0.25f;
    for (size_t r = 0; r < 8; r++) {
        uint32_t word = le32_get(block + offsetof(block_iq3_xxs, words) + 4 * r);
        out->sc[run + 2 * r] = out->sc[run + 2 * r + 1] = (int16_t)(2 * (word >> 28) + 1);
        for (size_t g = 0; g < 8; g++) {
            unsigned signs = even_signs(word >> 7 * (g / 2) & 127u) >> 4 * (g % 2);
            put_point(iq3_xxs[block[offsetof(block_iq3_xxs, qs) + 8 * r + g]], 4, signs,
                      out->q + at + 32 * r + 4 * g);
        }
    }
}

static void decode_iq3_s(const uint8_t *block, size_t at, matmul_codes *out)
{
    const uint8_t *scales = block + offsetof(block_iq3_s, scales);
    size_t run = at / MATMUL_RUN;
    out->d[run] = fp16_to_f32(le16_get(block));
    for (size_t j = 0; j < 16; j++) {
        out->sc[run + j] = (int16_t)(1 + 2 * (scales[j / 4] >> 4 * (j / 2 % 2) & 15));
    }
    for (size_t g = 0; g < 64; g++) {
        unsigned high = block[offsetof(block_iq3_s, qh) + g / 8] >> g % 8 & 1u;
        unsigned signs = (unsigned)block[offsetof(block_iq3_s, signs) + g / 2] >> 4 * (g % 2);
        put_point(iq3_s[block[offsetof(block_iq3_s, qs) + g] | high << 8], 4, signs, out->q + at + 4 * g);
    }
}

/* Eight times (point + delta), delta = 1/8 or -1/8. */
static void put_iq1_point(unsigned index, unsigned is_negative, int16_t *q)
{
    for (size_t i = 0; i < 8; i++) {
        q[i] = (int16_t)(8 * iq1[index][i] + (is_negative ? -1 : 1));
    }
}

static void decode_iq1_s(const uint8_t *block, size_t at, matmul_codes *out)
{
    size_t run = at / MATMUL_RUN;
    out->d[run] = fp16_to_f32(le16_get(block)) * 0.125f;
    for (size_t g = 0; g < 32; g++) {
        unsigned qh = le16_get(block + offsetof(block_iq1_s, qh) + 2 * (g / 4));
        unsigned index = block[offsetof(block_iq1_s, qs) + g] | (qh >> 3 * (g % 4) & 7u) << 8;
        out->sc[run + g / 2] = (int16_t)(2 * (qh >> 12 & 7u) + 1);
        put_iq1_point(index, qh >> 15, out->q + at + 8 * g);
    }
}

static void decode_iq1_m(const uint8_t *block, size_t at, matmul_codes *out)
{
    const uint8_t *scales = block + offsetof(block_iq1_m, scales);
    size_t run = at / MATMUL_RUN;
    unsigned d_bits = 0;
    for (size_t j = 0; j < 4; j++) {
        d_bits |= (unsigned)(le16_get(scales + 2 * j) >> 12) << 4 * j;
    }
    out->d[run] = fp16_to_f32((uint16_t)d_bits) * 0.125f;
    for (size_t g = 0; g < 32; g++) {
        unsigned nibble = block[offsetof(block_iq1_m, qh) + g / 2] >> 4 * (g % 2) & 15u;
        unsigned scale = le16_get(scales + 2 * (g / 8)) >> 3 * (g % 8 / 2) & 7u;
        out->sc[run + g / 2] = (int16_t)(2 * scale + 1);
        put_iq1_point(block[offsetof(block_iq1_m, qs) + g] | (nibble & 7u) << 8, nibble >> 3,
                      out->q + at + 8 * g);
    }
}

matmul_format matmul_format_grid(gguf_type type)
{
    switch ((int)type) {
    case GGUF_TYPE_IQ2_XXS:
        return (matmul_format){.decode = decode_iq2_xxs};
    case GGUF_TYPE_IQ2_XS:
        return (matmul_format){.decode = decode_iq2_xs};
    case GGUF_TYPE_IQ2_S:
        return (matmul_format){.decode = decode_iq2_s};
    case GGUF_TYPE_IQ3_XXS:
        return (matmul_format){.decode = decode_iq3_xxs};
    case GGUF_TYPE_IQ3_S:
        return (matmul_format){.decode = decode_iq3_s};
    case GGUF_TYPE_IQ1_S:
        return (matmul_format){.decode = decode_iq1_s};
    case GGUF_TYPE_IQ1_M:
        return (matmul_format){.decode = decode_iq1_m};
    default:
        return (matmul_format){0};
    }
}
