/*
 * unpack_q256_amx: units of formats with integer scales within blocks of 256 (kern/pack_units.h) to tiles of int8.
 * Private to x86/.
 *
 * A code times its sub-scale, p = w * sc, is at most 16 bits wide (|p| <= 4096) and becomes a high and a low plane:
 * p = 256 * high + low, high a signed byte and low an unsigned one. Where p, or -p, fits a signed byte there is
 * one plane. Either way four tiles a plane hold the 256 values of sixteen outputs: byte 4 n + j of line r is value
 * 4 r + j of output n.
 */
#ifndef HEARTH_KERN_X86_UNPACK_Q256_AMX_H
#define HEARTH_KERN_X86_UNPACK_Q256_AMX_H

#include <stdint.h>

#include "kern/pack_units.h"

typedef struct q256_codes {
    pack_line high[64]; /* or the only plane */
    pack_line low[64];
    pack_line mins[4]; /* of 16 values each: byte 4 n + j of line r is number 4 r + j of output n */
} q256_codes;

typedef struct q256_scales {
    float d[KERN_PANEL];
    float dmin[KERN_PANEL];
} q256_scales;

/* One unit; out and scales are aligned to 64 bytes. Prefetches the unit `ahead` bytes on (any address). */
typedef void (*q256_unpack_fn)(const void *unit, size_t ahead, q256_codes *out, q256_scales *scales);

/* Two planes and minima. */
void q256_unpack_q4_k(const void *unit, size_t ahead, q256_codes *out, q256_scales *scales);
void q256_unpack_q5_k(const void *unit, size_t ahead, q256_codes *out, q256_scales *scales);
/* Two planes. */
void q256_unpack_q6_k(const void *unit, size_t ahead, q256_codes *out, q256_scales *scales);
void q256_unpack_iq4_xs(const void *unit, size_t ahead, q256_codes *out, q256_scales *scales);
/* One plane and minima. */
void q256_unpack_q2_k(const void *unit, size_t ahead, q256_codes *out, q256_scales *scales);
/* One plane, of -w * sc. */
void q256_unpack_q3_k(const void *unit, size_t ahead, q256_codes *out, q256_scales *scales);

#endif
