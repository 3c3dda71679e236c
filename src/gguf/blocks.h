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

_Static_assert(sizeof(block_q4_0) == 18, "q4_0");
_Static_assert(sizeof(block_q8_0) == 34, "q8_0");
_Static_assert(sizeof(block_q4_k) == 144, "q4_k");
_Static_assert(sizeof(block_q6_k) == 210, "q6_k");

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
