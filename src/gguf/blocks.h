/*
 * blocks: the tensor types of GGUF and the layout of their blocks. Data only; kern/ includes this and nothing
 * else of gguf/. All values little-endian; `d` scales are IEEE binary16 bits (base/fp16.h). The layouts are
 * fixed by the file format (ggml's quantisation formats); static assertions hold each to its size.
 */
#ifndef HEARTH_GGUF_BLOCKS_H
#define HEARTH_GGUF_BLOCKS_H

#include <stddef.h>
#include <stdint.h>

/* X(name, id in the file, values per block, bytes per block). Removed ids (4, 5, 31-33, 36-38) are absent. */
#define GGUF_TYPE_LIST(X)   \
    X(F32, 0, 1, 4)         \
    X(F16, 1, 1, 2)         \
    X(Q4_0, 2, 32, 18)      \
    X(Q4_1, 3, 32, 20)      \
    X(Q5_0, 6, 32, 22)      \
    X(Q5_1, 7, 32, 24)      \
    X(Q8_0, 8, 32, 34)      \
    X(Q8_1, 9, 32, 36)      \
    X(Q2_K, 10, 256, 84)    \
    X(Q3_K, 11, 256, 110)   \
    X(Q4_K, 12, 256, 144)   \
    X(Q5_K, 13, 256, 176)   \
    X(Q6_K, 14, 256, 210)   \
    X(Q8_K, 15, 256, 292)   \
    X(IQ2_XXS, 16, 256, 66) \
    X(IQ2_XS, 17, 256, 74)  \
    X(IQ3_XXS, 18, 256, 98) \
    X(IQ1_S, 19, 256, 50)   \
    X(IQ4_NL, 20, 32, 18)   \
    X(IQ3_S, 21, 256, 110)  \
    X(IQ2_S, 22, 256, 82)   \
    X(IQ4_XS, 23, 256, 136) \
    X(I8, 24, 1, 1)         \
    X(I16, 25, 1, 2)        \
    X(I32, 26, 1, 4)        \
    X(I64, 27, 1, 8)        \
    X(F64, 28, 1, 8)        \
    X(IQ1_M, 29, 256, 56)   \
    X(BF16, 30, 1, 2)       \
    X(TQ1_0, 34, 256, 54)   \
    X(TQ2_0, 35, 256, 66)   \
    X(MXFP4, 39, 32, 17)    \
    X(NVFP4, 40, 64, 36)    \
    X(Q1_0, 41, 128, 18)    \
    X(Q2_0, 42, 64, 18)

typedef enum gguf_type {
#define X(name, id, values, bytes) GGUF_TYPE_##name = (id),
    GGUF_TYPE_LIST(X)
#undef X
        GGUF_TYPE_COUNT = 43 /* one past the largest id */
} gguf_type;

typedef struct block_q4_0 { /* value i: d * (q(i) - 8); i < 16 in the low nibbles, i >= 16 in the high ones */
    uint16_t d;
    uint8_t qs[16];
} block_q4_0;

typedef struct block_q4_1 { /* value i: d * q(i) + m, q as in Q4_0 */
    uint16_t d;
    uint16_t m;
    uint8_t qs[16];
} block_q4_1;

typedef struct block_q5_0 { /* value i: d * (q(i) - 16); four bits as in Q4_0, the fifth is bit i of qh */
    uint16_t d;
    uint8_t qh[4];
    uint8_t qs[16];
} block_q5_0;

typedef struct block_q5_1 { /* value i: d * q(i) + m, q as in Q5_0 */
    uint16_t d;
    uint16_t m;
    uint8_t qh[4];
    uint8_t qs[16];
} block_q5_1;

typedef struct block_q8_0 { /* value i: d * qs[i] */
    uint16_t d;
    int8_t qs[32];
} block_q8_0;

/*
 * 8 sub-blocks of 32: value = d * sc_j * q - dmin * m_j. scales: bytes 0..3 hold the low six bits of sc 0..3
 * and (top two bits) the high bits of sc 4..7; bytes 4..7 likewise for m; byte 8+j the low nibble of sc 4+j
 * and, above it, of m 4+j. qs: 4 runs of 32 bytes, run r holds sub-block 2r in the low and 2r+1 in the high
 * nibbles.
 */
typedef struct block_q4_k {
    uint16_t d;
    uint16_t dmin;
    uint8_t scales[12];
    uint8_t qs[128];
} block_q4_k;

/*
 * 16 sub-blocks of 16: value = d * scales[i / 16] * (q - 32), q of six bits. For each half h of 128 values,
 * with l in 0..31 and ql = &ql[64 h], qh = &qh[32 h]: value l: ql[l] low nibble | qh[l] bits 0-1 << 4; value
 * l + 32: ql[l + 32] low | bits 2-3; value l + 64: ql[l] high | bits 4-5; value l + 96: ql[l + 32] high |
 * bits 6-7.
 */
typedef struct block_q6_k {
    uint8_t ql[128];
    uint8_t qh[64];
    int8_t scales[16];
    uint16_t d;
} block_q6_k;

/*
 * 16 sub-blocks of 16: value = d * (scales[j] & 15) * q - dmin * (scales[j] >> 4), q of two bits. For each
 * half h of 128 values, with l in 0..31: value 128 h + 32 r + l is bits 2r, 2r + 1 of qs[32 h + l].
 */
typedef struct block_q2_k {
    uint8_t scales[16];
    uint8_t qs[64];
    uint16_t d;
    uint16_t dmin;
} block_q2_k;

/*
 * 16 sub-blocks of 16: value = d * (sc_j - 32) * (q - 4), q of three bits: the low two as in Q2_K, the third
 * of value 32 n + l is bit n of hmask[l]. sc_j has six bits: the low four of j < 8 are the low nibble of
 * scales[j], those of j >= 8 the high nibble of scales[j - 8]; the high two are bits 2 (j / 4), 2 (j / 4) + 1
 * of scales[8 + j % 4].
 */
typedef struct block_q3_k {
    uint8_t hmask[32];
    uint8_t qs[64];
    uint8_t scales[12];
    uint16_t d;
} block_q3_k;

/* As Q4_K, with a fifth bit: that of value 32 j + l is bit j of qh[l]. */
typedef struct block_q5_k {
    uint16_t d;
    uint16_t dmin;
    uint8_t scales[12];
    uint8_t qh[32];
    uint8_t qs[128];
} block_q5_k;

/*
 * The IQ formats hold groups of 8 (IQ1, IQ2) or 4 (IQ3) values as an index into a grid of points
 * (gguf/quant_tables.h). IQ2_XXS: 8 runs of 32; of run r the 8 bytes at qs[8 r] are 4 grid indices (256
 * points) and a word w: signs of group g in bits 7 g .. 7 g + 6 (the eighth makes the number of minus signs
 * even), the scale in bits 28..31. Value = d * (0.5 + scale) * 0.25 * point * sign.
 */
typedef struct block_iq2_xxs {
    uint16_t d;
    uint8_t qs[64];
} block_iq2_xxs;

/* Group g: qs[g] = index (9 bits, 512 points) | seven sign bits << 9. scales[r]: low nibble for the groups
 * 4 r and 4 r + 1, high for 4 r + 2 and 4 r + 3. Value as in IQ2_XXS. */
typedef struct block_iq2_xs {
    uint16_t d;
    uint16_t qs[32];
    uint8_t scales[8];
} block_iq2_xs;

/* Group g: index = qs[g] | bits 2 (g % 4), 2 (g % 4) + 1 of qh[g / 4] << 8 (1024 points); its eight signs are
 * signs[g], all free. scales as in IQ2_XS. */
typedef struct block_iq2_s {
    uint16_t d;
    uint8_t qs[32];
    uint8_t signs[32];
    uint8_t qh[8];
    uint8_t scales[8];
} block_iq2_s;

/* Group g of 4: index qs[g] (256 points). Run r of 32: the word at words[4 r] as the one of IQ2_XXS, seven
 * sign bits for each 8 values. Value = d * (0.5 + scale) * 0.5 * point * sign. */
typedef struct block_iq3_xxs {
    uint16_t d;
    uint8_t qs[64];
    uint8_t words[32];
} block_iq3_xxs;

/* Group g of 4: index qs[g] | bit g % 8 of qh[g / 8] << 8 (512 points); sign of value i: bit i % 8 of
 * signs[i / 8]. Value = d * (1 + 2 * s_r) * point * sign, s_r the nibble r (low first) of scales. */
typedef struct block_iq3_s {
    uint16_t d;
    uint8_t qs[64];
    uint8_t qh[8];
    uint8_t signs[32];
    uint8_t scales[4];
} block_iq3_s;

/* Group g of 8: index qs[g] | bits 3 (g % 4) .. + 2 of qh[g / 4] << 8 (2048 points of -1, 0, 1). Run r of 32:
 * bits 12..14 of qh[r] are its scale s, bit 15 makes delta -1/8 instead of 1/8. Value =
 * d * (2 s + 1) * (point + delta). */
typedef struct block_iq1_s {
    uint16_t d;
    uint8_t qs[32];
    uint16_t qh[8];
} block_iq1_s;

/* Group g of 8: nibble g (low first) of qh: three high bits of the index, and the sign of delta. scales is
 * four 16-bit words: bits 3 k .. 3 k + 2 of word j are the scale of groups 8 j + 2 k and 8 j + 2 k + 1; the
 * high nibble of word j is nibble j of d, a binary16. Value as in IQ1_S. */
typedef struct block_iq1_m {
    uint8_t qs[32];
    uint8_t qh[16];
    uint8_t scales[8];
} block_iq1_m;

typedef struct block_iq4_nl { /* value i: d * quant_iq4_values[q(i)], q as in Q4_0 */
    uint16_t d;
    uint8_t qs[16];
} block_iq4_nl;

/* 8 sub-blocks of 32, codes of sub-block j as in Q4_0 at qs[16 j]: d * (s_j - 32) * quant_iq4_values[q]; s_j =
 * nibble j (low first) of scales_l | bits 2 j, 2 j + 1 of scales_h << 4. */
typedef struct block_iq4_xs {
    uint16_t d;
    uint16_t scales_h;
    uint8_t scales_l[4];
    uint8_t qs[128];
} block_iq4_xs;

/*
 * Values d * (t - 1), t in 0..2. A byte holds five trits as a binary fraction: ceil(n * 256 / 243) with n =
 * t0 * 81 + t1 * 27 + t2 * 9 + t3 * 3 + t4; trit k is the integer part of 3 * frac(byte * 3^k / 256). qs[m],
 * m < 32: values m + 32 k; qs[32 + m], m < 16: values 160 + m + 16 k; qh[m]: four trits, 240 + m + 4 k.
 */
typedef struct block_tq1_0 {
    uint8_t qs[48];
    uint8_t qh[4];
    uint16_t d;
} block_tq1_0;

typedef struct block_tq2_0 { /* values d * (q - 1), q of two bits placed as in Q2_K */
    uint8_t qs[64];
    uint16_t d;
} block_tq2_0;

typedef struct block_mxfp4 { /* value i: 2^(e - 128) * quant_fp4_values[q(i)], q as in Q4_0 */
    uint8_t e;
    uint8_t qs[16];
} block_mxfp4;

/* 4 sub-blocks of 16, codes at qs[8 s] (low nibbles: the first 8 values): half the scale d[s], an unsigned
 * E4M3 float, times quant_fp4_values[q]. */
typedef struct block_nvfp4 {
    uint8_t d[4];
    uint8_t qs[32];
} block_nvfp4;

typedef struct block_q1_0 { /* value i: d if bit i % 8 of qs[i / 8] is set, else -d */
    uint16_t d;
    uint8_t qs[16];
} block_q1_0;

typedef struct block_q2_0 { /* value i: d * (q - 1), q = bits 2 (i % 4), 2 (i % 4) + 1 of qs[i / 4] */
    uint16_t d;
    uint8_t qs[16];
} block_q2_0;

_Static_assert(sizeof(block_q4_0) == 18, "q4_0");
_Static_assert(sizeof(block_q8_0) == 34, "q8_0");
_Static_assert(sizeof(block_q4_k) == 144, "q4_k");
_Static_assert(sizeof(block_q6_k) == 210, "q6_k");
_Static_assert(sizeof(block_q4_1) == 20, "q4_1");
_Static_assert(sizeof(block_q5_0) == 22, "q5_0");
_Static_assert(sizeof(block_q5_1) == 24, "q5_1");
_Static_assert(sizeof(block_q2_k) == 84, "q2_k");
_Static_assert(sizeof(block_q3_k) == 110, "q3_k");
_Static_assert(sizeof(block_q5_k) == 176, "q5_k");
_Static_assert(sizeof(block_iq2_xxs) == 66, "iq2_xxs");
_Static_assert(sizeof(block_iq2_xs) == 74, "iq2_xs");
_Static_assert(sizeof(block_iq2_s) == 82, "iq2_s");
_Static_assert(sizeof(block_iq3_xxs) == 98, "iq3_xxs");
_Static_assert(sizeof(block_iq3_s) == 110, "iq3_s");
_Static_assert(sizeof(block_iq1_s) == 50, "iq1_s");
_Static_assert(sizeof(block_iq1_m) == 56, "iq1_m");
_Static_assert(sizeof(block_iq4_nl) == 18, "iq4_nl");
_Static_assert(sizeof(block_iq4_xs) == 136, "iq4_xs");
_Static_assert(sizeof(block_tq1_0) == 54, "tq1_0");
_Static_assert(sizeof(block_tq2_0) == 66, "tq2_0");
_Static_assert(sizeof(block_mxfp4) == 17, "mxfp4");
_Static_assert(sizeof(block_nvfp4) == 36, "nvfp4");
_Static_assert(sizeof(block_q1_0) == 18, "q1_0");
_Static_assert(sizeof(block_q2_0) == 18, "q2_0");

typedef struct gguf_type_info {
    const char *name; /* "Q4_0"; NULL for an id that is not a type */
    uint32_t block_values;
    uint32_t block_bytes;
} gguf_type_info;

/* Any number; for an unknown one name is NULL and the sizes are 0. Static storage. */
static inline gguf_type_info gguf_type_info_of(uint32_t id)
{
    switch (id) {
#define X(name, id, values, bytes) \
    case id:                       \
        return (gguf_type_info){#name, values, bytes};
        GGUF_TYPE_LIST(X)
#undef X
    default:
        return (gguf_type_info){NULL, 0, 0};
    }
}

#endif
