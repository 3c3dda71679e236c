/*
 * matmul_codes: weight blocks unpacked to integers, for the reference products of all block formats. Private to
 * ref/. Pure, any thread.
 *
 * A format is a decoder that spreads one block over matmul_codes: value i of the row is then
 *
 *     d[i / 16] * sc[i / 16] * q[i]  +  min[i / 16]                        (activations in blocks of 32)
 *     d[i / 256] * sc[i / 16] * q[i]  -  min[i / 256] * sub_min[i / 16]    (activations in blocks of 256)
 *
 * with every q, sc and sub_min an integer; what is a half or an eighth in the format is in d.
 */
#ifndef HEARTH_KERN_REF_MATMUL_CODES_H
#define HEARTH_KERN_REF_MATMUL_CODES_H

#include "kern/kern.h"

#define MATMUL_STRIP_VALUES 1024 /* of a row; a multiple of every block */
#define MATMUL_RUN          16   /* the finest scale */
#define MATMUL_STRIP_RUNS   (MATMUL_STRIP_VALUES / MATMUL_RUN)

typedef struct matmul_codes {
    int16_t q[MATMUL_STRIP_VALUES];
    int16_t sc[MATMUL_STRIP_RUNS];      /* blocks of 256 only */
    int16_t sub_min[MATMUL_STRIP_RUNS]; /* those with minima */
    float d[MATMUL_STRIP_RUNS];         /* read at the first run of what it serves */
    float min[MATMUL_STRIP_RUNS];       /* likewise */
} matmul_codes;

/* One block, whose first value is value `at` of the strip. */
typedef void (*matmul_decode)(const uint8_t *block, size_t at, matmul_codes *out);

typedef struct matmul_format {
    matmul_decode decode;
    bool has_min;
    bool d_per_run; /* NVFP4: two float scales in an activation block of 32 */
} matmul_format;

/* decode is NULL for types that are not of that kind. */
matmul_format matmul_format_q32(gguf_type type);
matmul_format matmul_format_q256(gguf_type type);
matmul_format matmul_format_grid(gguf_type type); /* those of 256 with a grid of points; q256 asks it */

/* Once, before the first decode of a format with a grid (filling the tables does it). */
void matmul_grids_fill(void);

extern const int16_t matmul_iq4_values[16]; /* the codebook of IQ4_NL and IQ4_XS */

#endif
