#include "kern/pack.h"

#include <assert.h>
#include <string.h>

#include "base/fp16.h"
#include "base/le.h"
#include "base/mem.h"
#include "kern/pack_units.h"

/*
 * A packer places one block of one output into its unit: bits of the block are moved, never computed with. The
 * places where a block of the file keeps its codes are those of gguf/blocks.h.
 */
typedef void (*pack_block)(const uint8_t *block, size_t column, void *unit);

/*
 * Four values of one output are neighbours in a line, and mostly in the file too, so codes move four at a time:
 * words are little-endian, byte j of one is its value j.
 */
static uint32_t word_of(const uint8_t *from, size_t i)
{
    return le32_get(from + 4 * i);
}

static void put_word(pack_line line, size_t n, uint32_t codes)
{
    memcpy(line + 4 * n, &codes, sizeof codes);
}

/* A block of 32 whose byte i holds value i in its low half and value 16 + i in the high one, as a unit does. */
static void put_split_nibbles(pack_line *nibbles, size_t n, const uint8_t *qs)
{
    for (size_t r = 0; r < 4; r++) {
        put_word(nibbles[r], n, word_of(qs, r));
    }
}

/* A block of 32 from the half bytes of 32 bytes: the low ones (shift 0) or the high ones (4). */
static void put_shifted_nibbles(pack_line *nibbles, size_t n, const uint8_t *qs, unsigned shift)
{
    for (size_t r = 0; r < 4; r++) {
        uint32_t low = word_of(qs, r) >> shift & 0x0f0f0f0fu;
        uint32_t high = word_of(qs, r + 4) >> shift & 0x0f0f0f0fu;
        put_word(nibbles[r], n, low | high << 4);
    }
}

/* Bit i of qh belongs to value i. */
static void put_fifth_bits(pack_line bits, size_t n, const uint8_t *qh)
{
    uint32_t word = le32_get(qh), out = 0;
    for (unsigned r = 0; r < 8; r++) {
        uint32_t four = word >> 4 * r & 15u; /* bit j to byte j: no two products meet */
        out |= (four * 0x00204081u & 0x01010101u) << r;
    }
    put_word(bits, n, out);
}

static void pack_q8_0(const uint8_t *block, size_t n, void *unit)
{
    unit_q8_0 *u = unit;
    const uint8_t *qs = block + offsetof(block_q8_0, qs);
    u->d[n] = le16_get(block);
    for (size_t r = 0; r < 8; r++) {
        memcpy(u->lines[r] + 4 * n, qs + 4 * r, 4);
    }
}

static void pack_q4_0(const uint8_t *block, size_t n, void *unit)
{
    unit_q4_0 *u = unit;
    u->d[n] = le16_get(block);
    put_split_nibbles(u->nibbles, n, block + offsetof(block_q4_0, qs));
}

static void pack_q4_1(const uint8_t *block, size_t n, void *unit)
{
    unit_q4_1 *u = unit;
    u->d[n] = le16_get(block);
    u->m[n] = le16_get(block + offsetof(block_q4_1, m));
    put_split_nibbles(u->nibbles, n, block + offsetof(block_q4_1, qs));
}

static void pack_q5_0(const uint8_t *block, size_t n, void *unit)
{
    unit_q5_0 *u = unit;
    u->d[n] = le16_get(block);
    put_split_nibbles(u->nibbles, n, block + offsetof(block_q5_0, qs));
    put_fifth_bits(u->bits, n, block + offsetof(block_q5_0, qh));
}

static void pack_q5_1(const uint8_t *block, size_t n, void *unit)
{
    unit_q5_1 *u = unit;
    u->d[n] = le16_get(block);
    u->m[n] = le16_get(block + offsetof(block_q5_1, m));
    put_split_nibbles(u->nibbles, n, block + offsetof(block_q5_1, qs));
    put_fifth_bits(u->bits, n, block + offsetof(block_q5_1, qh));
}

static void pack_mxfp4(const uint8_t *block, size_t n, void *unit)
{
    unit_mxfp4 *u = unit;
    u->e[n] = block[offsetof(block_mxfp4, e)];
    put_split_nibbles(u->nibbles, n, block + offsetof(block_mxfp4, qs));
}

/* In each half of 128 values byte l holds values l, l + 32, l + 64, l + 96. */
static void put_spread_pairs(pack_line (*pairs)[2], size_t n, const uint8_t *qs)
{
    for (size_t s = 0; s < 8; s++) {
        const uint8_t *from = qs + 32 * (s / 4);
        for (size_t p = 0; p < 2; p++) {
            uint32_t out = 0;
            for (size_t i = 0; i < 4; i++) {
                out |= (word_of(from, 4 * p + i) >> 2 * (s % 4) & 0x03030303u) << 2 * i;
            }
            put_word(pairs[s][p], n, out);
        }
    }
}

/* Bit s of from[i] belongs to value 32 s + i. */
static void put_spread_bits(pack_line *bits, size_t n, const uint8_t *from)
{
    for (size_t s = 0; s < 8; s++) {
        uint32_t out = 0;
        for (size_t r = 0; r < 8; r++) {
            out |= (word_of(from, r) >> s & 0x01010101u) << r;
        }
        put_word(bits[s], n, out);
    }
}

/* Runs of 32 bytes: the low halves are one sub-block of 32, the high ones the next. */
static void put_run_nibbles(pack_line (*nibbles)[4], size_t n, const uint8_t *qs)
{
    for (size_t s = 0; s < 8; s++) {
        put_shifted_nibbles(nibbles[s], n, qs + 32 * (s / 2), 4 * (s % 2));
    }
}

static void pack_q2_k(const uint8_t *block, size_t n, void *unit)
{
    unit_q2_k *u = unit;
    u->d[n] = le16_get(block + offsetof(block_q2_k, d));
    u->dmin[n] = le16_get(block + offsetof(block_q2_k, dmin));
    for (size_t j = 0; j < 16; j++) {
        u->sc_m[j][n] = block[offsetof(block_q2_k, scales) + j];
    }
    put_spread_pairs(u->pairs, n, block + offsetof(block_q2_k, qs));
}

static void pack_q3_k(const uint8_t *block, size_t n, void *unit)
{
    unit_q3_k *u = unit;
    const uint8_t *scales = block + offsetof(block_q3_k, scales);
    u->d[n] = le16_get(block + offsetof(block_q3_k, d));
    for (size_t j = 0; j < 16; j++) {
        int low = j < 8 ? scales[j] & 15 : scales[j - 8] >> 4;
        int high = scales[8 + j % 4] >> 2 * (j / 4) & 3;
        u->sc[j][n] = (int8_t)((low | high << 4) - 32);
    }
    put_spread_pairs(u->pairs, n, block + offsetof(block_q3_k, qs));
    put_spread_bits(u->bits, n, block + offsetof(block_q3_k, hmask));
}

/* The six-bit scales and minima of Q4_K and Q5_K. */
static void put_packed_scales(const uint8_t *packed, size_t n, uint8_t (*sc)[KERN_PANEL],
                              uint8_t (*m)[KERN_PANEL])
{
    for (size_t j = 0; j < 4; j++) {
        sc[j][n] = packed[j] & 63;
        m[j][n] = packed[4 + j] & 63;
        sc[4 + j][n] = (uint8_t)((packed[8 + j] & 15) | packed[j] >> 6 << 4);
        m[4 + j][n] = (uint8_t)(packed[8 + j] >> 4 | packed[4 + j] >> 6 << 4);
    }
}

static void pack_q4_k(const uint8_t *block, size_t n, void *unit)
{
    unit_q4_k *u = unit;
    u->d[n] = le16_get(block + offsetof(block_q4_k, d));
    u->dmin[n] = le16_get(block + offsetof(block_q4_k, dmin));
    put_packed_scales(block + offsetof(block_q4_k, scales), n, u->sc, u->m);
    put_run_nibbles(u->nibbles, n, block + offsetof(block_q4_k, qs));
}

static void pack_q5_k(const uint8_t *block, size_t n, void *unit)
{
    unit_q5_k *u = unit;
    u->d[n] = le16_get(block + offsetof(block_q5_k, d));
    u->dmin[n] = le16_get(block + offsetof(block_q5_k, dmin));
    put_packed_scales(block + offsetof(block_q5_k, scales), n, u->sc, u->m);
    put_run_nibbles(u->nibbles, n, block + offsetof(block_q5_k, qs));
    put_spread_bits(u->bits, n, block + offsetof(block_q5_k, qh));
}

static void pack_q6_k(const uint8_t *block, size_t n, void *unit)
{
    unit_q6_k *u = unit;
    u->d[n] = le16_get(block + offsetof(block_q6_k, d));
    for (size_t j = 0; j < 16; j++) {
        u->sc[j][n] = (int8_t)block[offsetof(block_q6_k, scales) + j];
    }
    for (size_t s = 0; s < 8; s++) { /* four sub-blocks of 32 in each half */
        const uint8_t *low = block + offsetof(block_q6_k, ql) + 64 * (s / 4) + 32 * (s % 2);
        put_shifted_nibbles(u->nibbles[s], n, low, 4 * (s % 4 / 2));
    }
    put_spread_pairs(u->pairs, n, block + offsetof(block_q6_k, qh));
}

static void pack_iq4_xs(const uint8_t *block, size_t n, void *unit)
{
    unit_iq4_xs *u = unit;
    const uint8_t *scales_l = block + offsetof(block_iq4_xs, scales_l);
    unsigned scales_h = le16_get(block + offsetof(block_iq4_xs, scales_h));
    u->d[n] = le16_get(block + offsetof(block_iq4_xs, d));
    for (size_t j = 0; j < 8; j++) {
        int sc = (scales_l[j / 2] >> 4 * (j % 2) & 15) | (int)(scales_h >> 2 * j & 3u) << 4;
        u->sc[j][n] = (int8_t)(sc - 32);
        put_split_nibbles(u->nibbles[j], n, block + offsetof(block_iq4_xs, qs) + 16 * j);
    }
}

static void pack_f32(const uint8_t *value, size_t n, void *unit)
{
    unit_f32 *u = unit;
    u->w[n] = lef32_get(value);
}

static void pack_f16(const uint8_t *value, size_t n, void *unit)
{
    unit_f16 *u = unit;
    u->w[n] = le16_get(value);
}

typedef struct pack_format {
    pack_block put;
    size_t unit_bytes;
} pack_format;

/* put is NULL for BF16, whose unit is not a block of the file, and for types without a packed form. */
static pack_format format_of(gguf_type type)
{
    switch ((int)type) {
    case GGUF_TYPE_F32:
        return (pack_format){pack_f32, sizeof(unit_f32)};
    case GGUF_TYPE_F16:
        return (pack_format){pack_f16, sizeof(unit_f16)};
    case GGUF_TYPE_BF16:
        return (pack_format){NULL, sizeof(unit_bf16)};
    case GGUF_TYPE_Q4_0:
    case GGUF_TYPE_IQ4_NL: /* the same block */
        return (pack_format){pack_q4_0, sizeof(unit_q4_0)};
    case GGUF_TYPE_Q4_1:
        return (pack_format){pack_q4_1, sizeof(unit_q4_1)};
    case GGUF_TYPE_Q5_0:
        return (pack_format){pack_q5_0, sizeof(unit_q5_0)};
    case GGUF_TYPE_Q5_1:
        return (pack_format){pack_q5_1, sizeof(unit_q5_1)};
    case GGUF_TYPE_Q8_0:
        return (pack_format){pack_q8_0, sizeof(unit_q8_0)};
    case GGUF_TYPE_MXFP4:
        return (pack_format){pack_mxfp4, sizeof(unit_mxfp4)};
    case GGUF_TYPE_Q2_K:
        return (pack_format){pack_q2_k, sizeof(unit_q2_k)};
    case GGUF_TYPE_Q3_K:
        return (pack_format){pack_q3_k, sizeof(unit_q3_k)};
    case GGUF_TYPE_Q4_K:
        return (pack_format){pack_q4_k, sizeof(unit_q4_k)};
    case GGUF_TYPE_Q5_K:
        return (pack_format){pack_q5_k, sizeof(unit_q5_k)};
    case GGUF_TYPE_Q6_K:
        return (pack_format){pack_q6_k, sizeof(unit_q6_k)};
    case GGUF_TYPE_IQ4_XS:
        return (pack_format){pack_iq4_xs, sizeof(unit_iq4_xs)};
    default:
        return (pack_format){NULL, 0};
    }
}

/* Values of k that a unit covers. */
static size_t unit_values(gguf_type type)
{
    return type == GGUF_TYPE_BF16 ? 32 : gguf_type_info_of((uint32_t)type).block_values;
}

size_t kern_packed_panel_bytes(gguf_type type, size_t k)
{
    size_t unit_bytes = format_of(type).unit_bytes;
    size_t values = unit_values(type);
    size_t bytes;
    if (unit_bytes == 0) {
        return 0;
    }
    return size_mul(k / values + (k % values != 0), unit_bytes, &bytes) ? bytes : 0;
}

size_t kern_packed_bytes(gguf_type type, size_t n, size_t k)
{
    size_t bytes;
    return size_mul(n / KERN_PANEL + (n % KERN_PANEL != 0), kern_packed_panel_bytes(type, k), &bytes) ? bytes
                                                                                                      : 0;
}

/* Two values of each output side by side; an odd last one beside a zero. */
static void pack_panel_bf16(const uint8_t *rows, size_t row_bytes, size_t n_rows, size_t k, unit_bf16 *units)
{
    for (size_t pair = 0; pair < k / 2 + k % 2; pair++) {
        for (size_t i = 0; i < n_rows; i++) {
            const uint8_t *from = rows + i * row_bytes + 4 * pair;
            uint16_t *to = units[pair / 16].w[pair % 16][i];
            to[0] = le16_get(from);
            to[1] = 2 * pair + 1 < k ? le16_get(from + 2) : 0;
        }
    }
}

static void pack_panel(const pack_format *f, const gguf_type_info *info, const kern_matrix *w, size_t p,
                       uint8_t *panel)
{
    const uint8_t *rows = (const uint8_t *)w->data + p * KERN_PANEL * w->row_bytes;
    size_t left = w->n - p * KERN_PANEL;
    size_t n_rows = left < KERN_PANEL ? left : KERN_PANEL;
    if (!f->put) {
        pack_panel_bf16(rows, w->row_bytes, n_rows, w->k, (unit_bf16 *)(void *)panel);
        return;
    }
    for (size_t b = 0; b < w->k / info->block_values; b++) {
        for (size_t i = 0; i < n_rows; i++) {
            f->put(rows + i * w->row_bytes + b * info->block_bytes, i, panel + b * f->unit_bytes);
        }
    }
}

void kern_pack(const kern_matrix *w, size_t p0, size_t p1, void *out)
{
    const pack_format f = format_of(w->type);
    const gguf_type_info info = gguf_type_info_of((uint32_t)w->type);
    const size_t panel_bytes = kern_packed_panel_bytes(w->type, w->k);
    assert(panel_bytes > 0 && info.block_values > 0);
    for (size_t p = p0; p < p1; p++) {
        uint8_t *panel = (uint8_t *)out + (p - p0) * panel_bytes;
        if (w->n - p * KERN_PANEL < KERN_PANEL || !f.put) { /* columns, or values behind k, that stay zero */
            memset(panel, 0, panel_bytes);
        }
        pack_panel(&f, &info, w, p, panel);
    }
}
