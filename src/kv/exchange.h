/*
 * exchange: a range of one sequence's tokens with their keys and values as bytes, to be kept in a file or sent to another
 * worker (PROTOCOL 4: export, import, save, restore). The same values come out as went in, bit for bit, whatever
 * instruction set either side uses.
 *
 * Format, little-endian: magic "hearthkv", version, identity (what else the state depends on: the root key and the
 * layout), KV type, layers with their head counts and widths, first position and number of tokens, all ids from 0 to
 * the range's end, then one row for each token of the range in order (layers, heads, K then V, each with its scales
 * where the type has them), last an XXH3 of all before it.
 *
 * Pure functions on memory; any thread. Nothing is trusted: a reader checks every size, shape and the checksum before
 * it looks at a row, and names what does not agree.
 */
#ifndef HEARTH_KV_EXCHANGE_H
#define HEARTH_KV_EXCHANGE_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "kern/kv_layout.h"

typedef struct exchange_shape {
    uint8_t identity[32];
    kv_type type;
    const kv_layer *layers; /* of one page; borrowed */
    size_t n_layers;
} exchange_shape;

/* Bytes of one token's row. */
size_t exchange_row_bytes(const exchange_shape *s);
/* Bytes of the whole; ST_NOMEM if they overflow. */
status exchange_bytes(const exchange_shape *s, size_t from, size_t count, size_t *out);

/* Appends the range [from, from + count) to out. ids: [from + count]; pages[p] holds positions [32 p, 32 p + 32), looked
 * at only where the range is. ST_NOMEM: out is as it was. */
status exchange_write(const exchange_shape *s, const int32_t *ids, size_t from, size_t count,
                      void *const *pages, buf *out);

typedef struct exchange_range {
    size_t from, count;
    const uint8_t *ids;  /* [from + count] little-endian, not aligned; borrowed from the bytes */
    const uint8_t *rows; /* [count][row bytes] */
} exchange_range;

/* Checks all of it. ST_INVALID_FIELD, naming what differs: "kv_type", "layers", "identity", "checksum" … */
status exchange_read(const exchange_shape *s, const uint8_t *bytes, size_t n, exchange_range *out, err *e);
int32_t exchange_id(const exchange_range *r, size_t position);
/* Puts the rows [position, position + n), which are within the range and in one page, into that. */
void exchange_put_rows(const exchange_shape *s, const exchange_range *r, size_t position, size_t n,
                       void *page);

#endif
