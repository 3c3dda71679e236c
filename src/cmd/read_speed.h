/*
 * read_speed: how fast this machine reads memory, measured now: what bounds the decoding of a model, which
 * reads all its weights for each token. A pass is plain reading by all threads of a pool, a piece at a
 * time in some streams side by side, with prefetching. One call at a time.
 */
#ifndef HEARTH_CMD_READ_SPEED_H
#define HEARTH_CMD_READ_SPEED_H

#include <stddef.h>
#include <stdint.h>

#include "base/pool.h"

#define READ_PIECE_BYTES ((size_t)1 << 20)

typedef struct read_piece { /* borrowed; whole lines are read, the last bytes that fill none are not */
    const void *data;
    size_t n_bytes;
} read_piece;

/* Cuts n_bytes from data on into pieces of at most READ_PIECE_BYTES. Writes those of them that fit out[0 … cap),
 * returns how many there are. */
size_t read_pieces_cut(const void *data, size_t n_bytes, read_piece *out, size_t cap);
/* One pass over the pieces: GB (10^9 bytes) a second. */
double read_speed_pass(pool *p, const read_piece *pieces, size_t n);

/* A buffer to read when there is nothing else: anonymous memory, in huge pages where the system has them, as
 * packed weights are kept. More than caches hold (512 MiB), or what max_bytes allows. */
typedef struct read_buffer {
    void *data; /* NULL: there was no memory for it */
    size_t n_bytes;
} read_buffer;

void read_buffer_init(read_buffer *b, uint64_t max_bytes);
void read_buffer_release(read_buffer *b);

/* Best of three passes over such a buffer; 0 if there is no memory for it. */
double read_speed_measure(pool *p, uint64_t max_bytes);

#endif
