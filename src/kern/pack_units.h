/*
 * pack_units: the units of packed weights (kern/pack.h). A unit is one block along k of all KERN_PANEL outputs.
 * Internal to kern/: the packer writes them, the products read them.
 *
 * Codes lie in lines of 64 bytes: line r of a block of 32 holds values 4 r … 4 r + 3 of each output, byte
 * 4 n + j being value 4 r + j of output n. That is the operand of a 4-byte dot product with one output a lane
 * and, eight or sixteen lines in a row, the second operand of an int8 matrix unit.
 *
 * Narrow codes share the bytes of lines. Of a block of 32 (8 lines):
 *   nibbles[r], r < 4: line r in the low half of each byte, line r + 4 in the high half
 *   pairs[p][.], p < 2: two bits of each byte for lines 4 p … 4 p + 3, bits 2 i, 2 i + 1 for line 4 p + i
 *   bits[.]:           one bit of each byte, bit r for line r
 *
 * Codes are stored as the format has them, without their offset or table: Q4_0 has 0 … 15 for -8 … 7.
 * d and m are binary16. No field needs alignment beyond two bytes; units follow each other without gaps.
 */
#ifndef HEARTH_KERN_PACK_UNITS_H
#define HEARTH_KERN_PACK_UNITS_H

#include <stdint.h>

#include "kern/kern.h"

typedef uint8_t pack_line[4 * KERN_PANEL];

/* Blocks of 32. */
typedef struct unit_q8_0 { /* values are int8 */
    pack_line lines[8];
    uint16_t d[KERN_PANEL];
} unit_q8_0;

typedef struct unit_q4_0 { /* also IQ4_NL: codes are places in its table */
    pack_line nibbles[4];
    uint16_t d[KERN_PANEL];
} unit_q4_0;

typedef struct unit_q4_1 {
    pack_line nibbles[4];
    uint16_t d[KERN_PANEL];
    uint16_t m[KERN_PANEL];
} unit_q4_1;

typedef struct unit_q5_0 {
    pack_line nibbles[4];
    pack_line bits;
    uint16_t d[KERN_PANEL];
} unit_q5_0;

typedef struct unit_q5_1 {
    pack_line nibbles[4];
    pack_line bits;
    uint16_t d[KERN_PANEL];
    uint16_t m[KERN_PANEL];
} unit_q5_1;

typedef struct unit_mxfp4 { /* codes are places in its table */
    pack_line nibbles[4];
    uint8_t e[KERN_PANEL];
} unit_mxfp4;

/* Blocks of 256: eight blocks of 32 lines each. sc and m per sub-block of 16 or 32 values. */
typedef struct unit_q2_k {
    pack_line pairs[8][2];
    uint8_t sc_m[16][KERN_PANEL]; /* sc in the low half, m in the high half */
    uint16_t d[KERN_PANEL];
    uint16_t dmin[KERN_PANEL];
} unit_q2_k;

typedef struct unit_q3_k { /* code 0 … 7 for -4 … 3 */
    pack_line pairs[8][2];
    pack_line bits[8];
    int8_t sc[16][KERN_PANEL]; /* -32 … 31 */
    uint16_t d[KERN_PANEL];
} unit_q3_k;

typedef struct unit_q4_k {
    pack_line nibbles[8][4];
    uint8_t sc[8][KERN_PANEL];
    uint8_t m[8][KERN_PANEL];
    uint16_t d[KERN_PANEL];
    uint16_t dmin[KERN_PANEL];
} unit_q4_k;

typedef struct unit_q5_k {
    pack_line nibbles[8][4];
    pack_line bits[8];
    uint8_t sc[8][KERN_PANEL];
    uint8_t m[8][KERN_PANEL];
    uint16_t d[KERN_PANEL];
    uint16_t dmin[KERN_PANEL];
} unit_q5_k;

typedef struct unit_q6_k { /* code 0 … 63 for -32 … 31: nibble and, above it, pair */
    pack_line nibbles[8][4];
    pack_line pairs[8][2];
    int8_t sc[16][KERN_PANEL];
    uint16_t d[KERN_PANEL];
} unit_q6_k;

typedef struct unit_iq4_xs { /* codes are places in its table */
    pack_line nibbles[8][4];
    int8_t sc[8][KERN_PANEL]; /* -32 … 31 */
    uint16_t d[KERN_PANEL];
} unit_iq4_xs;

/* Float weights: value by value, bf16 pair by pair, sixteen pairs (32 values, zeros behind k) a unit. */
typedef struct unit_f32 {
    float w[KERN_PANEL];
} unit_f32;

typedef struct unit_f16 {
    uint16_t w[KERN_PANEL];
} unit_f16;

typedef struct unit_bf16 {
    uint16_t w[16][KERN_PANEL][2];
} unit_bf16;

_Static_assert(sizeof(unit_q8_0) == 544, "q8_0");
_Static_assert(sizeof(unit_q4_0) == 288, "q4_0");
_Static_assert(sizeof(unit_q4_1) == 320, "q4_1");
_Static_assert(sizeof(unit_q5_0) == 352, "q5_0");
_Static_assert(sizeof(unit_q5_1) == 384, "q5_1");
_Static_assert(sizeof(unit_mxfp4) == 272, "mxfp4");
_Static_assert(sizeof(unit_q2_k) == 1344, "q2_k");
_Static_assert(sizeof(unit_q3_k) == 1824, "q3_k");
_Static_assert(sizeof(unit_q4_k) == 2368, "q4_k");
_Static_assert(sizeof(unit_q5_k) == 2880, "q5_k");
_Static_assert(sizeof(unit_q6_k) == 3360, "q6_k");
_Static_assert(sizeof(unit_iq4_xs) == 2208, "iq4_xs");
_Static_assert(sizeof(unit_bf16) == 1024, "bf16");

#endif
