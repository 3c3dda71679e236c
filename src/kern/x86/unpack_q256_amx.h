/*
 * unpack_q256_amx: units of formats with integer scales within blocks of 256 (kern/pack_units.h) to tiles of int8.
 * Private to x86/.
 *
 * A code times its sub-scale, p = w * sc, is at most 16 bits wide and becomes two planes: p = 8 * high + low, both
 * unsigned bytes, where sc and w are not negative (then sc is cut, into 8 * h + l), else p = 256 * high + low, high a
 * signed byte and low an unsigned one. Where p, or -p, fits a byte there is one plane. Either way four tiles a plane
 * hold the 256 values of sixteen outputs: byte 4 n + j of line r is value 4 r + j of output n. Minima are one tile of
 * bf16: value 2 n and 2 n + 1 of line r is that of output n and values 16 r … 16 r + 15, which thus multiply both
 * halves of a sum (act.h).
 */
#ifndef HEARTH_KERN_X86_UNPACK_Q256_AMX_H
#define HEARTH_KERN_X86_UNPACK_Q256_AMX_H

#include <stdint.h>

#include "kern/pack_units.h"

typedef struct q256_codes {
    pack_line high[64]; /* or the only plane */
    pack_line low[64];
    uint32_t mins[16][KERN_PANEL];
} q256_codes;

typedef struct q256_scales {
    float d[KERN_PANEL];
    float dmin[KERN_PANEL];
} q256_scales;

/* One unit; out and scales are aligned to 64 bytes. Prefetches the unit `ahead` bytes on (any address). */
typedef void (*q256_unpack_fn)(const void *unit, size_t ahead, q256_codes *out, q256_scales *scales);

/* Two planes, of eighths, and minima. */
void q256_unpack_q4_k(const void *unit, size_t ahead, q256_codes *out, q256_scales *scales);
void q256_unpack_q5_k(const void *unit, size_t ahead, q256_codes *out, q256_scales *scales);
/* Two planes, of bytes. */
void q256_unpack_q6_k(const void *unit, size_t ahead, q256_codes *out, q256_scales *scales);
void q256_unpack_iq4_xs(const void *unit, size_t ahead, q256_codes *out, q256_scales *scales);
/* One plane and minima. */
void q256_unpack_q2_k(const void *unit, size_t ahead, q256_codes *out, q256_scales *scales);
/* One plane, of -w * sc. */
void q256_unpack_q3_k(const void *unit, size_t ahead, q256_codes *out, q256_scales *scales);

#endif
