/*
 * bench_work: what a step of a model must read and compute at least, and how long that takes on a machine whose
 * memory gives so many bytes and whose matrix unit so many operations a second.
 *
 * A step reads all its matrices once, whatever the number of rows, and each lane's keys and values; it
 * multiplies each row with all matrices of the layers, and each row that wants logits with the output. The limit is
 * the longer of the two times. Attention's arithmetic, the float steps of a product and matrices of floats, which
 * run on another unit, are not counted as operations.
 *
 * Borrows the instance.
 */
#ifndef HEARTH_CMD_BENCH_WORK_H
#define HEARTH_CMD_BENCH_WORK_H

#include "cmd/bench_report.h"
#include "cmd/read_speed.h"
#include "engine/instance.h"

typedef struct bench_work {
    const kern_table *kern;
    uint64_t layer_bytes;  /* of the layers' matrices as they are read, packed or not */
    uint64_t layer_values; /* of those that are multiplied as integers */
    uint64_t output_bytes; /* likewise of the output */
    uint64_t output_values;
    double kv_bytes; /* per position */
    size_t max_rows; /* of a step */
    /* What is read to know the bandwidth: the matrices themselves, so on the same kind of memory; or, where they
     * are so small that a cache holds them, a buffer (own_weights false). */
    bool own_weights;
    read_piece *pieces; /* [n_pieces] owned */
    size_t n_pieces;
    read_buffer buffer; /* owned */
} bench_work;

/* kern: the instance's table. ST_NOMEM. */
status bench_work_init(bench_work *w, instance *in, const kern_table *kern, err *e);
void bench_work_release(bench_work *w);

/* Tokens a second at best in the test that `what` names (test, n, batch, depth); 0 without a bandwidth. tops = 0:
 * only reading counts. */
double bench_work_limit(const bench_work *w, const bench_result *what, double gbs, double tops,
                        bool *by_matrix);

#endif
