/*
 * quant_tables: the codebooks of the tensor formats that have one. They are part of the definition of the
 * formats (GGUF as ggml reads it): chosen once by their authors, not given by a formula. Constant, any thread.
 *
 * A grid is a set of points: n_dims coordinates, each one of `base` levels. The rank of a point is the number
 * whose digit i (least significant first) in that base is the level of coordinate i. A format's index of a
 * point is its place in the order of rising rank; so the set alone says everything, and is kept as one bit
 * per rank (members), with the number of points below each word (before) to find a point by its index.
 */
#ifndef HEARTH_GGUF_QUANT_TABLES_H
#define HEARTH_GGUF_QUANT_TABLES_H

#include <stddef.h>
#include <stdint.h>

#define QUANT_GRID_MAX_DIMS   8
#define QUANT_GRID_MAX_LEVELS 8

typedef struct quant_grid {
    const uint64_t *members; /* [n_words] bit r % 64 of word r / 64: the point of rank r is in the grid */
    const uint16_t *before;  /* [n_words] points of the words before */
    uint16_t n_words;
    uint16_t n_points;
    uint8_t n_dims;
    uint8_t base;
    int8_t levels[QUANT_GRID_MAX_LEVELS]; /* [base] rising */
} quant_grid;

extern const quant_grid quant_grid_iq1; /* IQ1_S and IQ1_M */
extern const quant_grid quant_grid_iq2_xxs, quant_grid_iq2_xs, quant_grid_iq2_s;
extern const quant_grid quant_grid_iq3_xxs, quant_grid_iq3_s;

extern const int8_t quant_iq4_values[16]; /* IQ4_NL and IQ4_XS */
extern const int8_t
    quant_fp4_values[16]; /* E2M1 floats, doubled: sign, two bits of exponent, one of mantissa */

/* The rank of the point of an index below n_points. */
unsigned quant_grid_rank(const quant_grid *grid, unsigned index);
/* The other way: the index of a rank that is in the grid. */
unsigned quant_grid_index(const quant_grid *grid, unsigned rank);
/* The first rank of the grid that is not below rank; 64 * n_words if there is none. */
unsigned quant_grid_next(const quant_grid *grid, unsigned rank);
/* The coordinates of the point of an index, out[n_dims]. */
void quant_grid_point(const quant_grid *grid, unsigned index, int8_t *out);

#endif
