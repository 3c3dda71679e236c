/* Loops over lines of 64 bytes: the compiler makes vectors of them. */
#include "kern/arm/chunk.h"

#include <string.h>

#include "base/fp16.h"

#define LINE (4 * KERN_PANEL)

static const int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};
static const int8_t fp4_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}; /* doubled */

static void put_nibbles(const pack_line *nibbles, int less, int8_t (*lines)[LINE])
{
    for (size_t r = 0; r < 4; r++) {
        for (size_t i = 0; i < LINE; i++) {
            lines[r][i] = (int8_t)((nibbles[r][i] & 15) - less);
            lines[r + 4][i] = (int8_t)((nibbles[r][i] >> 4) - less);
        }
    }
}

static void put_looked_up(const pack_line *nibbles, const int8_t *table, int8_t (*lines)[LINE])
{
    for (size_t r = 0; r < 4; r++) {
        for (size_t i = 0; i < LINE; i++) {
            lines[r][i] = table[nibbles[r][i] & 15];
            lines[r + 4][i] = table[nibbles[r][i] >> 4];
        }
    }
}

static void put_pairs(const pack_line *pairs, int8_t (*lines)[LINE])
{
    for (size_t r = 0; r < 8; r++) {
        for (size_t i = 0; i < LINE; i++) {
            lines[r][i] = (int8_t)(pairs[r / 4][i] >> 2 * (r % 4) & 3);
        }
    }
}

/* One more bit, worth `worth`. */
static void add_bits(const pack_line bits, int worth, int8_t (*lines)[LINE])
{
    for (size_t r = 0; r < 8; r++) {
        for (size_t i = 0; i < LINE; i++) {
            lines[r][i] = (int8_t)(lines[r][i] + (bits[i] >> r & 1) * worth);
        }
    }
}

static void widen(const uint16_t *halves, float *out)
{
    for (size_t n = 0; n < KERN_PANEL; n++) {
        out[n] = fp16_to_f32(halves[n]);
    }
}

/* 2^(e - 128); the two smallest are denormal. */
static float mxfp4_scale(uint8_t e)
{
    return e < 2 ? f32_from_bits(0x00200000u << e) : f32_from_bits((uint32_t)(e - 1) << 23);
}

static size_t unpack_block(gguf_type type, const uint8_t *unit, int8_t (*lines)[LINE], float *d, float *m)
{
    switch ((int)type) {
    case GGUF_TYPE_Q8_0: {
        const unit_q8_0 *u = (const void *)unit;
        memcpy(lines, u->lines, sizeof u->lines);
        widen(u->d, d);
        return sizeof *u;
    }
    case GGUF_TYPE_Q4_0:
    case GGUF_TYPE_IQ4_NL: {
        const unit_q4_0 *u = (const void *)unit;
        if (type == GGUF_TYPE_Q4_0) {
            put_nibbles(u->nibbles, 8, lines);
        } else {
            put_looked_up(u->nibbles, iq4_values, lines);
        }
        widen(u->d, d);
        return sizeof *u;
    }
    case GGUF_TYPE_Q4_1: {
        const unit_q4_1 *u = (const void *)unit;
        put_nibbles(u->nibbles, 0, lines);
        widen(u->d, d);
        widen(u->m, m);
        return sizeof *u;
    }
    case GGUF_TYPE_Q5_0: {
        const unit_q5_0 *u = (const void *)unit;
        put_nibbles(u->nibbles, 16, lines);
        add_bits(u->bits, 16, lines);
        widen(u->d, d);
        return sizeof *u;
    }
    case GGUF_TYPE_Q5_1: {
        const unit_q5_1 *u = (const void *)unit;
        put_nibbles(u->nibbles, 0, lines);
        add_bits(u->bits, 16, lines);
        widen(u->d, d);
        widen(u->m, m);
        return sizeof *u;
    }
    default: {
        const unit_mxfp4 *u = (const void *)unit;
        put_looked_up(u->nibbles, fp4_values, lines);
        for (size_t n = 0; n < KERN_PANEL; n++) {
            d[n] = mxfp4_scale(u->e[n]);
        }
        return sizeof *u;
    }
    }
}

void chunk_unpack_q32(gguf_type type, const uint8_t *units, size_t n, chunk *c)
{
    for (size_t b = 0; b < n; b++) {
        units += unpack_block(type, units, c->lines[b], c->d[b], c->m[b]);
    }
}

/* Scales per 32 values stand for two sub-blocks of 16. */
static void put_scales_32(const uint8_t (*from)[KERN_PANEL], int32_t (*to)[KERN_PANEL])
{
    for (size_t j = 0; j < 16; j++) {
        for (size_t n = 0; n < KERN_PANEL; n++) {
            to[j][n] = from[j / 2][n];
        }
    }
}

static void put_signed_scales(const int8_t (*from)[KERN_PANEL], size_t per, int32_t (*to)[KERN_PANEL])
{
    for (size_t j = 0; j < 16; j++) {
        for (size_t n = 0; n < KERN_PANEL; n++) {
            to[j][n] = from[j / per][n];
        }
    }
}

static void unpack_q2_k(const unit_q2_k *u, chunk *c)
{
    for (size_t b = 0; b < CHUNK_BLOCKS; b++) {
        put_pairs(u->pairs[b], c->lines[b]);
    }
    for (size_t j = 0; j < 16; j++) {
        for (size_t n = 0; n < KERN_PANEL; n++) {
            c->sc[j][n] = u->sc_m[j][n] & 15;
            c->mins[j][n] = u->sc_m[j][n] >> 4;
        }
    }
    widen(u->d, c->d[0]);
    widen(u->dmin, c->m[0]);
}

static void unpack_q3_k(const unit_q3_k *u, chunk *c)
{
    for (size_t b = 0; b < CHUNK_BLOCKS; b++) {
        put_pairs(u->pairs[b], c->lines[b]);
        add_bits(u->bits[b], 4, c->lines[b]);
        for (size_t i = 0; i < sizeof c->lines[b]; i++) {
            c->lines[b][i / LINE][i % LINE] = (int8_t)(c->lines[b][i / LINE][i % LINE] - 4);
        }
    }
    put_signed_scales(u->sc, 1, c->sc);
    widen(u->d, c->d[0]);
}

static void unpack_q6_k(const unit_q6_k *u, chunk *c)
{
    for (size_t b = 0; b < CHUNK_BLOCKS; b++) {
        int8_t high[8][LINE];
        put_nibbles(u->nibbles[b], 32, c->lines[b]);
        put_pairs(u->pairs[b], high);
        for (size_t i = 0; i < sizeof high; i++) {
            c->lines[b][i / LINE][i % LINE] =
                (int8_t)(c->lines[b][i / LINE][i % LINE] + 16 * high[i / LINE][i % LINE]);
        }
    }
    put_signed_scales(u->sc, 1, c->sc);
    widen(u->d, c->d[0]);
}

void chunk_unpack_q256(gguf_type type, const uint8_t *unit, chunk *c)
{
    const unit_q4_k *q4 = (const void *)unit;
    const unit_q5_k *q5 = (const void *)unit;
    const unit_iq4_xs *iq4 = (const void *)unit;
    switch ((int)type) {
    case GGUF_TYPE_Q2_K:
        unpack_q2_k((const void *)unit, c);
        return;
    case GGUF_TYPE_Q3_K:
        unpack_q3_k((const void *)unit, c);
        return;
    case GGUF_TYPE_Q6_K:
        unpack_q6_k((const void *)unit, c);
        return;
    case GGUF_TYPE_Q4_K:
        for (size_t b = 0; b < CHUNK_BLOCKS; b++) {
            put_nibbles(q4->nibbles[b], 0, c->lines[b]);
        }
        put_scales_32(q4->sc, c->sc);
        put_scales_32(q4->m, c->mins);
        widen(q4->d, c->d[0]);
        widen(q4->dmin, c->m[0]);
        return;
    case GGUF_TYPE_Q5_K:
        for (size_t b = 0; b < CHUNK_BLOCKS; b++) {
            put_nibbles(q5->nibbles[b], 0, c->lines[b]);
            add_bits(q5->bits[b], 16, c->lines[b]);
        }
        put_scales_32(q5->sc, c->sc);
        put_scales_32(q5->m, c->mins);
        widen(q5->d, c->d[0]);
        widen(q5->dmin, c->m[0]);
        return;
    default: /* IQ4_XS */
        for (size_t b = 0; b < CHUNK_BLOCKS; b++) {
            put_looked_up(iq4->nibbles[b], iq4_values, c->lines[b]);
        }
        put_signed_scales(iq4->sc, 2, c->sc);
        widen(iq4->d, c->d[0]);
        return;
    }
}

bool chunk_has_min(gguf_type type)
{
    return type == GGUF_TYPE_Q4_1 || type == GGUF_TYPE_Q5_1 || type == GGUF_TYPE_Q2_K ||
           type == GGUF_TYPE_Q4_K || type == GGUF_TYPE_Q5_K;
}
