/*
 * act: activation rows as the matrix products want them (rules 1 and 2 of DESIGN 4), and where each value lies.
 *
 * Rows come in tiles of `tile` rows, and inside a tile the values come in runs of 64 bytes, row under row, so
 * that a run of one tile is what a matrix unit loads at once and a single row (tile 1) is one plain array:
 *
 *     codes, bf16:   [tile][run][row in tile][64 bytes]          a run is 64 codes or 32 bf16 values
 *     d, totals:     [tile][block][row in tile]
 *     sums:          [tile][block][row in tile][block / 16]
 *     halves:        [tile][block][row in tile][16][high, low]
 *     f32:           [row][k]
 *
 * tile is m up to KERN_ACT_SMALL rows and KERN_ACT_TILE above; the rows that fill the last tile hold anything and
 * are never asked for. Values beyond k are zero.
 *
 * The caller owns the memory and fills it through kern_table.act_prepare; different threads may fill different rows
 * and different parts of a row. Rows of a tile share cache lines: threads that divide a tile by values do not wait for
 * each other's stores, threads that divide it by rows do (three times slower).
 */
#ifndef HEARTH_KERN_ACT_H
#define HEARTH_KERN_ACT_H

#include <stddef.h>
#include <stdint.h>

#include "gguf/blocks.h"

#define KERN_ACT_SMALL  8
#define KERN_ACT_TILE   16
#define KERN_ACT_RUN    64 /* bytes */
#define KERN_ACT_HALVES 32 /* of a block of 256 */
/* Where a row may be divided: parts share no line of codes and no block. */
#define KERN_ACT_STEP 256

/* What a weight type wants its activations to be. */
typedef enum kern_act_kind {
    KERN_ACT_F32,    /* F32 and F16 weights: the float row itself */
    KERN_ACT_BF16,   /* BF16 weights: rounded to bf16 */
    KERN_ACT_Q8_32,  /* int8 codes, one d per 32 */
    KERN_ACT_Q8_256, /* int8 codes, one d per 256 */
    KERN_ACT_NONE    /* no kernel multiplies this type */
} kern_act_kind;

typedef struct kern_act {
    kern_act_kind kind;
    size_t m;
    size_t k;
    size_t tile;     /* rows of a tile */
    size_t block;    /* 32 or 256; 0 for float kinds */
    size_t n_blocks; /* ceil(k / block); 0 for float kinds */
    size_t n_runs;   /* of 64 bytes; 0 for F32 */
    float *f32;      /* F32 */
    uint16_t *bf16;  /* BF16 */
    int8_t *q;       /* codes, -127 … 127 */
    float *d;
    int16_t *sums;    /* of each 16 codes */
    float *totals;    /* Q8_32: of the block's 32 codes, exact */
    uint16_t *halves; /* Q8_256: sum of 16 codes = high + low, bf16; high a multiple of 16, low in -8 … 7 */
} kern_act;

kern_act_kind kern_act_kind_of(gguf_type type);

/* Bytes of one buffer that holds an act of this kind and shape (0 on overflow; never less for more rows or a
 * larger k), and its set-up inside mem (64-byte aligned). */
size_t kern_act_bytes(kern_act_kind kind, size_t m, size_t k);
void kern_act_init(kern_act *a, kern_act_kind kind, size_t m, size_t k, void *mem);

/* Position of row r in arrays of [tile][n][row in tile], element i of n. */
static inline size_t kern_act_at(const kern_act *a, size_t r, size_t n, size_t i)
{
    return (r / a->tile * n + i) * a->tile + r % a->tile;
}

/* 64 codes of row r: values [64 run, 64 run + 64). The next run of the row lies tile * 64 bytes on. */
static inline int8_t *kern_act_q(const kern_act *a, size_t r, size_t run)
{
    return a->q + kern_act_at(a, r, a->n_runs, run) * KERN_ACT_RUN;
}

/* 32 values of row r: [32 run, 32 run + 32). */
static inline uint16_t *kern_act_bf16(const kern_act *a, size_t r, size_t run)
{
    return a->bf16 + kern_act_at(a, r, a->n_runs, run) * (KERN_ACT_RUN / 2);
}

static inline float *kern_act_d(const kern_act *a, size_t r, size_t block)
{
    return a->d + kern_act_at(a, r, a->n_blocks, block);
}

static inline float *kern_act_total(const kern_act *a, size_t r, size_t block)
{
    return a->totals + kern_act_at(a, r, a->n_blocks, block);
}

/* The block / 16 sums of one block. */
static inline int16_t *kern_act_sums(const kern_act *a, size_t r, size_t block)
{
    return a->sums + kern_act_at(a, r, a->n_blocks, block) * (a->block / 16);
}

/* The sums of one block as sixteen pairs: what a bf16 matrix unit multiplies exactly. */
static inline uint16_t *kern_act_halves(const kern_act *a, size_t r, size_t block)
{
    return a->halves + kern_act_at(a, r, a->n_blocks, block) * KERN_ACT_HALVES;
}

#endif
