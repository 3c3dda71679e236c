/*
 * kernel_speed: how fast the matrix products of one kernel table run by themselves, on matrices that no cache
 * holds: 2,048 inputs, as many outputs as fill 512 MiB (or what max_bytes allows), an eighth of them for more
 * than 64 activation rows, which take long.
 *
 * Thread: the pool's caller. ST_NOMEM.
 */
#ifndef HEARTH_CMD_KERNEL_SPEED_H
#define HEARTH_CMD_KERNEL_SPEED_H

#include "base/pool.h"
#include "kern/kern.h"

#define KERNEL_SPEED_MAX_ROWS 4096

typedef struct kernel_speed {
    gguf_type type;
    bool packed;
    size_t rows;
    double ms;   /* of one product, best of five: the machine's other users only ever add time */
    double gbs;  /* 10^9 bytes of weights read a second */
    double tops; /* 10^12 operations a second, two per multiply-add */
} kernel_speed;

typedef struct kernel_speed_plan {
    const kern_table *kern; /* borrowed */
    pool *p;                /* borrowed */
    uint64_t max_bytes;
    const size_t *rows; /* [n_rows], each 1 … KERNEL_SPEED_MAX_ROWS */
    size_t n_rows;
    void (*each)(void *ctx, const kernel_speed *s); /* called with each figure as it is found */
    void *ctx;
} kernel_speed_plan;

/* The types that are measured, in the order in which people look at them; GGUF_TYPE_COUNT past the end. */
gguf_type kernel_speed_type(size_t i);
status kernel_speed_measure(const kernel_speed_plan *plan, gguf_type type, err *e);

#endif
